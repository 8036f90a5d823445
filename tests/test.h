/* test.h - what every unit test includes, in the order cmocka wants, and a few helpers. */
#ifndef FALX_TEST_H
#define FALX_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#undef fail /* ours fills a struct error */
#define test_fail(...) (print_error(__VA_ARGS__), print_error("\n"), _fail(__FILE__, __LINE__))

#include "base/io.h"

/* The call succeeded; else its error is shown. */
#define assert_ok(call, e)                                                                                   \
    do {                                                                                                     \
        if ((call) < 0)                                                                                      \
            test_fail("%s: %s [%s]", #call, (e).text, (e).id);                                               \
    } while (0)

/* The call failed with this code and catalogue id. */
#define assert_refused(call, e, want_code, want_id)                                                          \
    do {                                                                                                     \
        assert_int_equal((call), -1);                                                                        \
        assert_int_equal((e).code, (want_code));                                                             \
        assert_string_equal((e).id, (want_id));                                                              \
    } while (0)

/* A folder of real files named by FALX_TEST_DATA, or NULL (then say skip()). */
static inline const char *test_data(const char *sub, char *out, size_t cap)
{
    const char *base = getenv("FALX_TEST_DATA");
    if (!base)
        return NULL;
    snprintf(out, cap, "%s/%s", base, sub);
    return out;
}

/* A scratch folder that the test program works in: the last two arguments of
 * cmocka_run_group_tests(). */
static char *test_folder;

static inline int test_folder_make(void **state)
{
    (void)state;
    return io_temp_folder(&test_folder, NULL) < 0 || chdir(test_folder) < 0 ? -1 : 0;
}

static inline int test_folder_remove(void **state)
{
    (void)state;
    io_remove_tree(test_folder);
    mem_free(test_folder);
    return 0;
}

/* What test_listen, the `line` of a struct report, has heard, a line each. */
static char test_told[4000];

static inline void test_listen(struct report *r, enum report_kind kind, const char *text)
{
    size_t n = strlen(test_told);
    (void)r, (void)kind;
    snprintf(test_told + n, sizeof test_told - n, "%s\n", text);
}

#endif
