/* test_base.c - errors, text, numbers, memory, random numbers, the thread pool and JSON. */
#include <jansson.h>
#include <locale.h>
#include <math.h>
#include <stdatomic.h>

#include "base/json.h"
#include "base/pool.h"
#include "base/rng.h"
#include "test.h"

static void errors_are_one_printable_line(void **state)
{
    (void)state;
    struct error e;
    assert_int_equal(fail(&e, ERR_DATA, "N07", "a\nb\x1B[2J\xFF%s", "\xE2\x80\xAE"), -1);
    assert_string_equal(e.text, "a\\x0Ab\\x1B[2J\\xFF\\xE2\\x80\\xAE");
    assert_int_equal(fail_in(&e, "x\ny"), -1);
    assert_memory_equal(e.text, "x\\x0Ay: a", 9);
    assert_string_equal(e.id, "N07");
    char path[3000];
    memset(path, 'p', sizeof path - 1);
    path[sizeof path - 1] = '\0';
    memcpy(path + sizeof path - 10, "/tail.nii", 10);
    fail(&e, ERR_DATA, NULL, "reason");
    fail_in(&e, path);
    assert_says(e.text, "/tail.nii: reason");
    assert_true(strlen(e.text) < 230);
    char letters[2 * 170 + 1] = "", shown[sizeof e.text];
    for (int i = 0; i < 170; i++)
        memcpy(letters + 2 * i, "ö", 3);
    for (int n = 0; n < 2; n++) { /* what does not fit is cut between letters */
        fail(&e, ERR_DATA, NULL, "%s", letters);
        fail_in(&e, n ? "a/long/path/to/a/scan" : "a/long/path/to/a/scan1");
        assert_string_equal(text_escape(shown, sizeof shown, e.text), e.text);
    }
}

static void valid_utf8_is_kept(void **state)
{
    (void)state;
    char out[64];
    assert_string_equal(text_escape(out, sizeof out, "Größe 左"), "Größe 左");
    assert_string_equal(text_escape(out, sizeof out, "\xC0\x80"), "\\xC0\\x80"); /* overlong NUL */
    assert_string_equal(text_escape(out, 4, "abcdef"), "abc");
}

static void numbers_are_strict(void **state)
{
    (void)state;
    int64_t i;
    double d;
    static const char *const bad[] = {"",    " 1", "1 ", "0x10", "1e3", "12abc", "9223372036854775808",
                                      "--1", "+",  "1.0"};
    for (size_t k = 0; k < sizeof bad / sizeof bad[0]; k++)
        assert_int_equal(parse_int(&i, bad[k]), -1);
    assert_int_equal(parse_int(&i, "-9223372036854775808"), 0);
    assert_true(i == INT64_MIN);
    static const char *const bad_reals[] = {"",     "nan", "inf", "1e999", "0x1p3", "1,5",
                                            "1.5x", " 1",  ".",   "e5",    "1e",    "1 "};
    for (size_t k = 0; k < sizeof bad_reals / sizeof bad_reals[0]; k++)
        assert_int_equal(parse_real(&d, bad_reals[k]), -1);
    assert_int_equal(parse_real(&d, "-1.5e-3"), 0);
    assert_true(d == -1.5e-3);
}

static void distance_finds_near_words(void **state)
{
    (void)state;
    assert_int_equal(text_distance("patch", "patch"), 0);
    assert_int_equal(text_distance("patch", "pach"), 1);
    assert_int_equal(text_distance("", "abc"), 3);
    assert_int_equal(text_distance("kitten", "sitting"), 3);
}

static void lists_are_walked_word_by_word(void **state)
{
    (void)state;
    static const char *const words[] = {"ab", "", "long", ""}, *const kept[] = {"ab", "", "lon", ""};
    const char *at = "ab,,long,";
    char word[4];
    for (int i = 0; i < 4; i++) {
        assert_non_null(at);
        assert_int_equal(text_next(word, sizeof word, &at), strlen(words[i]));
        assert_string_equal(word, kept[i]);
    }
    assert_null(at);
    at = "";
    assert_int_equal(text_next(word, sizeof word, &at), 0);
    assert_null(at);
}

static void sizes_and_memory_are_checked(void **state)
{
    (void)state;
    size_t n;
    struct error e;
    assert_int_equal(size_mul(&n, SIZE_MAX / 2, 3), -1);
    assert_int_equal(size_add(&n, SIZE_MAX, 1), -1);
    assert_null(mem_alloc(&e, SIZE_MAX / 4, 8));
    assert_int_equal(e.code, ERR_MEMORY);
    mem_fail_at(1, 0);
    void *a = mem_alloc(&e, 1, 1), *b = mem_alloc(&e, 1, 1), *c = mem_alloc(&e, 1, 1);
    mem_fail_at(-1, 0);
    assert_non_null(a);
    assert_null(b);
    assert_non_null(c);
    mem_free(a);
    mem_free(c);
}

/* Known answers of Philox 4x32-10 from the authors' published test vectors (kat_vectors). */
static void philox_matches_the_published_vectors(void **state)
{
    (void)state;
    static const struct {
        uint64_t seed, step, index;
        uint32_t stream, want[4];
    } vectors[] = {
        {0, 0, 0, 0, {0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u}},
        {UINT64_MAX,
         UINT32_MAX,
         UINT64_MAX,
         UINT32_MAX,
         {0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu}},
        {0x299f31d0a4093822u,
         0x13198a2eu,
         0x85a308d3243f6a88u,
         0x03707344u,
         {0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u}},
    };
    for (size_t i = 0; i < 3; i++) {
        struct rng_block b = rng_block(vectors[i].seed, vectors[i].step, vectors[i].stream, vectors[i].index);
        assert_memory_equal(b.v, vectors[i].want, sizeof b.v);
    }
}

static void random_numbers_are_even(void **state)
{
    (void)state;
    struct rng r = rng_start(1, 2, RNG_TEST, 3);
    int count[7] = {0};
    double sum = 0.0, squares = 0.0;
    for (int i = 0; i < 70000; i++) {
        count[rng_below(&r, 7)]++;
        double x = rng_normal(&r);
        sum += x;
        squares += x * x;
    }
    for (int i = 0; i < 7; i++)
        assert_in_range(count[i], 9600, 10400); /* 4 sigma are 370 */
    assert_true(fabs(sum / 70000) < 0.02);
    assert_true(fabs(squares / 70000 - 1.0) < 0.03);
}

struct squares {
    int64_t out[1000];
    atomic_int calls;
};

/* Shares below a point against the distribution function of Beta(0.2, 0.2), by SciPy's betainc. */
static void beta_numbers_have_their_distribution(void **state)
{
    (void)state;
    static const double at[] = {1e-6, 0.001, 0.01, 0.1, 0.25, 0.5, 0.9};
    static const double below[] = {0.0332030383, 0.1322012917, 0.2097776901, 0.3366897784,
                                   0.4140555195, 0.5,          0.6633102216};
    enum { N = 40000 };
    int count[7] = {0};
    double sum = 0.0, squares = 0.0;
    for (int i = 0; i < N; i++) {
        struct rng r = rng_start(1, (uint64_t)i, RNG_BLEND, 0), again = r;
        double x = rng_beta(&r, 0.2);
        assert_true(x > 0 && x <= 1 && x == rng_beta(&again, 0.2));
        for (int k = 0; k < 7; k++)
            count[k] += x < at[k];
        sum += x;
        squares += (x - 0.5) * (x - 0.5);
    }
    for (int k = 0; k < 7; k++) /* 4 sigma */
        assert_true(fabs((double)count[k] / N - below[k]) < 4 * sqrt(below[k] * (1 - below[k]) / N));
    assert_true(fabs(sum / N - 0.5) < 0.01);
    assert_true(fabs(squares / N - 0.25 / 1.4) < 0.003);
}

static void square(void *arg, int64_t i)
{
    struct squares *s = arg;
    s->out[i] += i * i;
    atomic_fetch_add(&s->calls, 1);
}

static void every_item_runs_once(void **state)
{
    (void)state;
    struct error e;
    for (int threads = 1; threads <= 4; threads++) {
        struct pool *p;
        assert_ok(pool_new(&p, threads, &e), e);
        assert_int_equal(pool_threads(p), threads);
        for (int round = 0; round < 200; round++) {
            struct squares s = {.calls = 0};
            pool_run(p, round % 3 == 0 ? 1000 : round % 5, square, &s);
            int n = round % 3 == 0 ? 1000 : round % 5;
            assert_int_equal(s.calls, n);
            for (int64_t i = 0; i < n; i++)
                assert_int_equal(s.out[i], i * i);
        }
        pool_free(p);
    }
    struct squares s = {.calls = 0};
    pool_run(NULL, 10, square, &s);
    assert_int_equal(s.calls, 10);
    pool_free(NULL);
}

#ifdef __x86_64__
static volatile float denormal = 1e-40f;

static void halve(void *arg, int64_t i)
{
    float *out = arg;
    out[i] = fegetround() == FE_TONEAREST ? denormal * 0.5f : -1.0f;
}

/* [M13] whichever thread runs an item, and whatever the caller does outside of it */
static void items_flush_denormals(void **state)
{
    (void)state;
    struct error e;
    assert_true(denormal * 0.5f > 0.0f);
    for (int threads = 0; threads <= 3; threads++) {
        struct pool *p = NULL;
        fesetround(FE_UPWARD); /* of the caller of pool_new, not of the pool's threads */
        if (threads > 0)
            assert_ok(pool_new(&p, threads, &e), e);
        fesetround(FE_TONEAREST);
        for (int n = 1; n <= 64; n += 21) {
            float out[64] = {0};
            for (int i = 0; i < n; i++)
                out[i] = 1.0f;
            pool_run(p, n, halve, out);
            for (int i = 0; i < n; i++)
                assert_true(out[i] == 0.0f);
            assert_true(denormal * 0.5f > 0.0f); /* and not in between */
        }
        pool_free(p);
    }
}
#endif

static void count_line(struct report *r, enum report_kind kind, const char *text)
{
    (void)kind;
    (void)r;
    assert_string_equal(text, "file: 3 of 4 [N12]");
}

static void reports_count_and_can_be_held(void **state)
{
    (void)state;
    struct report r = {.line = count_line};
    report_line(NULL, REPORT_WARNING, "file", "N12", "nobody listens");
    report_line(&r, REPORT_WARNING, "file", "N12", "%d of %d", 3, 4);
    assert_int_equal(r.n_warnings, 1);
    struct report_hold h;
    report_hold(&h);
    struct error e;
    report_line(&h.report, REPORT_NOTE, NULL, "N11", "only a note");
    assert_int_equal(report_refuse(&h, &e), 0);
    report_hold(&h);
    h.path = "file";
    for (int i = 0; i < 20; i++)
        report_line(&h.report, REPORT_WARNING, i % 2 ? "file" : NULL, "N12", "%d of %d", 3, 4);
    assert_refused(report_refuse(&h, &e), e, ERR_DATA, "N12", "3 of 4");
    report_release(&h, &r);
    assert_int_equal(r.n_warnings, 9);
}

static void json_is_bounded(void **state)
{
    (void)state;
    struct error e;
    struct js *v;
    int64_t n;
    char deep[101];
    assert_ok(js_parse(&v, "{\"b\": 2, \"a\": [1, \"x\"]}", 23, &e), e);
    assert_int_equal(js_count(js_get(v, "a")), 2);
    assert_int_equal(js_int(&n, js_get(v, "b")), 0);
    assert_int_equal(n, 2);
    assert_int_equal(js_int(&n, js_at(js_get(v, "a"), 1)), -1);
    assert_null(js_get(js_get(js_get(v, "a"), "none"), "none"));
    js_free(v);
    memset(deep, '[', 100);
    assert_refused(js_parse(&v, deep, 100, &e), e, ERR_DATA, "C06");
    const char *const bad[] = {"{\"a\": 1, \"a\": 2}", "[1] x", "[1e999]",    "[99999999999999999999]",
                               "[\"\\u0000\"]",        "",      "[\"\xFF\"]", "{\"a\""};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_refused(js_parse(&v, bad[i], strlen(bad[i]), &e), e, ERR_DATA, "C06");
    char *quoted = js_quote("a\"\n\xFF\xE2\x80\xAE", &e);
    assert_string_equal(quoted, "\"a\\\"\\\\x0A\\\\xFF\\\\xE2\\\\x80\\\\xAE\"");
    mem_free(quoted);
    quoted = js_quote("a\n\xC3\xA9", &e);
    assert_string_equal(quoted, "\"a\\n\\u00E9\"");
    mem_free(quoted);
}

static int jansson_left; /* allocations until one fails */
static void *jansson_alloc(size_t bytes)
{
    return jansson_left-- == 0 ? NULL : malloc(bytes);
}

/* jansson has its own ways to say so, or none. */
static void json_without_memory(void **state)
{
    (void)state;
    static const char text[] = "{\"a\": [1, \"x\", {\"b\": 2.5}]}";
    struct error e;
    struct js *v;
    int n_parse = 0, refused = 0;
    json_set_alloc_funcs(jansson_alloc, free);
    for (int done = 0; !done; n_parse++) {
        jansson_left = n_parse;
        done = js_parse(&v, text, strlen(text), &e) == 0;
        if (done)
            js_free(v);
        else /* a string that could not be copied is a bad one to jansson itself */
            assert_true(e.code == ERR_MEMORY || strstr(e.text, " near '\""));
    }
    for (int n = 0; n < 8; n++) {
        jansson_left = n;
        char *quoted = js_quote("a\xC3\xA9", &e);
        refused += !quoted;
        if (quoted)
            assert_string_equal(quoted, "\"a\\u00E9\"");
        else
            assert_int_equal(e.code, ERR_MEMORY);
        mem_free(quoted);
    }
    json_set_alloc_funcs(malloc, free);
    assert_true(n_parse > 8 && refused > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_are_one_printable_line),
        cmocka_unit_test(valid_utf8_is_kept),
        cmocka_unit_test(numbers_are_strict),
        cmocka_unit_test(distance_finds_near_words),
        cmocka_unit_test(lists_are_walked_word_by_word),
        cmocka_unit_test(sizes_and_memory_are_checked),
        cmocka_unit_test(philox_matches_the_published_vectors),
        cmocka_unit_test(random_numbers_are_even),
        cmocka_unit_test(beta_numbers_have_their_distribution),
        cmocka_unit_test(every_item_runs_once),
#ifdef __x86_64__
        cmocka_unit_test(items_flush_denormals),
#endif
        cmocka_unit_test(reports_count_and_can_be_held),
        cmocka_unit_test(json_is_bounded),
        cmocka_unit_test(json_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
