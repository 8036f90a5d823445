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
#include "fact.h"

/* The call succeeded; else its error is shown. */
#define assert_ok(call, e)                                                                                   \
    do {                                                                                                     \
        if ((call) < 0)                                                                                      \
            test_fail("%s: %s [%s]", #call, (e).text, (e).id);                                               \
    } while (0)

/* What messages say is asserted through these alone: the id, and facts (fact.h) that must be in the text. */

/* NULL-terminated facts. */
#define FACTS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* assert_refused(call, e, code, id, facts...): the call failed with this code, catalogue id and text. */
#define assert_refused(call, e, want_code, ...)                                                              \
    do {                                                                                                     \
        assert_int_equal((call), -1);                                                                        \
        assert_error(e, want_code, __VA_ARGS__);                                                             \
    } while (0)
/* assert_error(e, code, id, facts...): e is this error. */
#define assert_error(e, want_code, ...)                                                                      \
    do {                                                                                                     \
        assert_int_equal((e).code, (want_code));                                                             \
        assert_string_equal((e).id, FACTS(__VA_ARGS__)[0]);                                                  \
        test_says((e).text, FACTS(__VA_ARGS__) + 1, __FILE__, __LINE__);                                     \
    } while (0)
/* assert_says(text, facts...): for texts without an id. */
#define assert_says(text, ...) test_says(text, FACTS(__VA_ARGS__), __FILE__, __LINE__)
/* assert_reported(kind, id, facts...): test_listen heard one line of this kind and id ("" for none) that
 * holds all the facts. */
#define assert_reported(kind, ...) assert_logged(test_told, kind, __VA_ARGS__)
#define assert_logged(log, kind, ...)                                                                        \
    do {                                                                                                     \
        if (!test_find(log, kind, FACTS(__VA_ARGS__), __FILE__, __LINE__))                                   \
            test_fail("no line of kind %d with %s in:\n%s", (int)(kind), #__VA_ARGS__, log);                 \
    } while (0)
/* No line of this id was heard. */
#define assert_not_reported(kind, ...)                                                                       \
    assert_false(test_find(test_told, kind, FACTS(__VA_ARGS__), __FILE__, __LINE__))

static inline void test_fact(const char *fact, const char *file, int line)
{
    if (!is_fact(fact)) {
        print_error("\"%s\" is wording, expected a fact (fact.h)\n", fact);
        _fail(file, line);
    }
}

static inline void test_says(const char *text, const char *const *facts, const char *file, int line)
{
    for (; *facts; facts++) {
        test_fact(*facts, file, line);
        if (!strstr(text, *facts)) {
            print_error("\"%s\" lacks \"%s\"\n", text, *facts);
            _fail(file, line);
        }
    }
}

/* A folder of real files named by FALX_TEST_DATA, or NULL (then say skip()). */
static inline const char *test_data(const char *sub, char *out, size_t cap)
{
    const char *base = getenv("FALX_TEST_DATA");
    if (!base)
        return NULL;
    snprintf(out, cap, "%s/%s", base, sub);
    return out;
}

/* Adds n to a count that tools/run-tests prints and holds against its floor. */
static inline void test_tally(const char *what, int n)
{
    print_message("tally %s %d\n", what, n);
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

/* Appends a report to a log of lines "KIND text". */
static inline void test_log(char *log, size_t cap, enum report_kind kind, const char *text)
{
    size_t n = strlen(log);
    snprintf(log + n, cap - n, "%d %s\n", (int)kind, text);
}

/* What test_listen, the `line` of a struct report, has heard. */
static char test_told[4000];

static inline void test_listen(struct report *r, enum report_kind kind, const char *text)
{
    (void)r;
    test_log(test_told, sizeof test_told, kind, text);
}

static inline int test_has_facts(const char *text, const char *const *facts)
{
    for (; *facts; facts++)
        if (!strstr(text, *facts))
            return 0;
    return 1;
}

/* Whether the line ends in this id, or for "" in none. */
static inline int test_has_id(const char *line, const char *id)
{
    char tail[16];
    snprintf(tail, sizeof tail, " [%s]", id);
    return *id ? text_ends_with(line, tail) : !text_ends_with(line, "]");
}

/* Whether a line of the log is of this kind, ends in the id words[0], and holds the facts words[1...]. */
static inline int test_find(const char *log, enum report_kind kind, const char *const *words,
                            const char *file, int line)
{
    char text[800], head[16];
    snprintf(head, sizeof head, "%d ", (int)kind);
    for (int i = 1; words[i]; i++)
        test_fact(words[i], file, line);
    for (size_t n; *log; log += n + (log[n] == '\n')) {
        n = strcspn(log, "\n");
        snprintf(text, sizeof text, "%.*s", (int)n, log);
        if (text_starts_with(text, head) && test_has_id(text, words[0]) &&
            test_has_facts(text + strlen(head), words + 1))
            return 1;
    }
    return 0;
}

#endif
