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

#include <cmocka.h>
#undef fail /* ours fills a struct error */
#define test_fail(...) (print_error(__VA_ARGS__), print_error("\n"), _fail(__FILE__, __LINE__))

#include "base/base.h"

/* The call succeeded; else its error is shown. */
#define assert_ok(call, e)                              \
    do {                                                \
        if ((call) < 0)                                 \
            test_fail("%s: %s [%s]", #call, (e).text, (e).id); \
    } while (0)

/* The call failed with this code and catalogue id. */
#define assert_refused(call, e, want_code, want_id)     \
    do {                                                \
        assert_int_equal((call), -1);                   \
        assert_int_equal((e).code, (want_code));        \
        assert_string_equal((e).id, (want_id));         \
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

#endif
