/* test_compare.c - results of runs to tables, charts and a page: numbers that can be checked by hand, names
 * that try to escape, results that are broken or missing.
 */
#include <math.h>

#include "compare/compare.h"
#include "test.h"

enum { SEEDS = 2, CASES = 6 };

static struct error e;

static void put(const char *path, const char *text)
{
    assert_ok(io_write_all(path, 0666, text, strlen(text), &e), e);
}

/* A result whose case i has Dice base + i/100, Jaccard half of that, ASD and 95HD of 1 and 2. */
static void put_result(const char *path, const char *name, double base, int with_ambiguity)
{
    char text[6000];
    int n = snprintf(text, sizeof text,
                     "{\"name\": \"%s\", \"error\": null, \"precision_used\": \"f32\", \"processor\": "
                     "\"cpu\",\n"
                     "\"cost\": {\"parameters\": 1000, \"seconds\": 50, \"steps\": 100, \"planned_bytes\": "
                     "1048576, \"seconds_case\": 0.25, \"peak_bytes\": 3145728},\n"
                     "\"curves\": {\"loss\": [{\"step\": [1, 2], \"value\": [3, 2]}]},\n%s"
                     "\"scores\": {\"unit\": \"mm\", \"cases\": [",
                     name,
                     with_ambiguity ? "\"ambiguity\": [6, 5, 4, 3, 2, 1],\n\"features\": {\"x\": [1, 2, 3], "
                                      "\"y\": [0, 1, 0], \"class\": [0, 1, -7], \"apart\": 0.5, "
                                      "\"explained\": 0.75},\n"
                                    : "");
    for (int i = 0; i < CASES; i++)
        n += snprintf(text + n, sizeof text - (size_t)n,
                      "%s{\"name\": \"case%d\", \"mean\": {\"dice\": %.17g, \"jaccard\": %.17g, \"asd\": 1, "
                      "\"hd95\": 2}}",
                      i ? "," : "", i, base + i / 100.0, (base + i / 100.0) / 2);
    snprintf(text + n, sizeof text - (size_t)n,
             "],\"mean\": {\"dice\": %.17g, \"jaccard\": %.17g, \"asd\": 1, \"hd95\": 2}}}", base + 0.025,
             base / 2 + 0.0125);
    put(path, text);
}

struct scene {
    struct compare_run run[2 * SEEDS];
    const struct compare_run *list[2][SEEDS];
    struct compare_line lines[2];
    struct compare_table table;
    struct comparison c;
};

/* Two methods, two seeds; the second is the reference and 0.1 better in every case. */
static void make_scene(struct scene *s, const char *odd_name)
{
    memset(s, 0, sizeof *s);
    for (int m = 0; m < 2; m++)
        for (int k = 0; k < SEEDS; k++) {
            char path[40], name[40];
            snprintf(path, sizeof path, "r%d%d.json", m, k);
            snprintf(name, sizeof name, "m%d-s%d", m, k);
            put_result(path, name, 0.5 + 0.1 * m + 0.02 * k, m == 1);
            assert_ok(compare_run_read(&s->run[2 * m + k], path, &e), e);
            s->list[m][k] = &s->run[2 * m + k];
        }
    for (int m = 0; m < 2; m++)
        s->lines[m] = (struct compare_line){.title = m ? "aua" : odd_name,
                                            .method = m ? "aua" : "supervised",
                                            .labeled = 16,
                                            .unlabeled = m ? 64 : 0,
                                            .reference = 1,
                                            .runs = s->list[m],
                                            .n_seeds = SEEDS};
    s->table = (struct compare_table){.name = "methods", .title = "Methods", .lines = s->lines, .n_lines = 2};
    s->c = (struct comparison){
        .title = "t", .version = "0", .about = "about", .tables = &s->table, .n_tables = 1};
}

static void scene_done(struct scene *s)
{
    compare_done(&s->c);
    for (int i = 0; i < 2 * SEEDS; i++)
        compare_run_free(&s->run[i]);
}

static char *text_of(const char *path)
{
    char *text;
    assert_ok(io_read_text(&text, NULL, path, 1 << 22, &e), e);
    return text;
}

static void holds(const char *path, const char *part)
{
    char *text = text_of(path);
    if (!strstr(text, part))
        test_fail("%s has no \"%s\":\n%s", path, part, text);
    mem_free(text);
}

static void tables_are_right(void **state)
{
    struct scene s;
    (void)state;
    make_scene(&s, "supervised");
    s.c.published = "la20";
    assert_ok(compare_summarise(&s.c, &e), e);
    assert_int_equal(s.c.n_cases, CASES);
    assert_true(fabs(s.lines[0].mean[0] - 0.535) < 1e-12 && fabs(s.lines[1].sd[0] - 0.02 / sqrt(2)) < 1e-12);
    assert_true(s.lines[0].p[0] == 2.0 / 64 && isnan(s.lines[1].p[0])); /* six pairs, all one way */
    assert_true(s.lines[0].p_holm[0] == 2.0 / 64 && isnan(s.lines[0].p[2]));
    assert_ok(compare_write_tables(&s.c, ".", &e), e);
    holds("results.md", "| supervised | 16/0 | 2 | 53.50 ± 1.41 | 26.75 ± 0.71 | **1.00 ± 0.00** | "
                        "**2.00 ± 0.00** | 0.031 | 86.03 | 76.06 | 3.51 | 14.26 |");
    holds("results.md", "| aua | 16/64 | 2 | **63.50 ± 1.41** | **31.75 ± 0.71** |");
    holds("results.tex", "aua & 16/64 & 2 & \\textbf{63.50 $\\pm$ 1.41}");
    holds("results.tex", "Dice \\% $\\uparrow$");
    holds("results.csv", "\nmethods,supervised,16,0,2,2,0.535,0.01414213562,0.03125,0.03125,86.03,");
    holds("cost.md", "| aua | 16/64 | 1000 | 50.0 | 500.00 | 0.250 | 1 | 3 |");
    holds("cases.csv", "\nmethods,aua,16,m1-s1,case5,0.67,0.335,1,2,1\n");
    scene_done(&s);
}

/* An empty prediction has distances of 0 under the paper's protocol: they are marked, and not the best. */
static void empty_predictions_are_marked(void **state)
{
    struct scene s;
    struct html h = {0};
    char *text;
    (void)state;
    make_scene(&s, "supervised");
    for (int k = 0; k < 2 * SEEDS; k++) {
        snprintf(s.run[k].scores.unit, sizeof s.run[k].scores.unit, "voxels");
        s.run[k].scores.mean[2] = k < SEEDS ? 0.5 : 1;
    }
    s.run[1].scores.has_empty = 1; /* of supervised, the second seed */
    assert_ok(compare_summarise(&s.c, &e), e);
    assert_ok(compare_write_tables(&s.c, ".", &e), e);
    holds("results.md",
          "| supervised | 16/0 | 2 | 53.50 ± 1.41 | 26.75 ± 0.71 | 0.50 ± 0.00 † | 2.00 ± 0.00 † |");
    holds("results.md", "\n† Some predictions are empty.");
    holds("results.tex", "0.50 $\\pm$ 0.00 $\\dagger$");
    assert_ok(compare_page(&h, &s.c, NULL, &e), e);
    assert_ok(html_take(&text, NULL, &h, &e), e);
    assert_non_null(strstr(text, "† Some predictions are empty."));
    mem_free(text);
    compare_done(&s.c);
    s.run[1].scores.has_empty = 0;
    assert_ok(compare_summarise(&s.c, &e), e);
    assert_ok(compare_write_tables(&s.c, ".", &e), e);
    holds("results.md", "| **0.50 ± 0.00** |");
    assert_null(strstr(text = text_of("results.md"), "†"));
    mem_free(text);
    scene_done(&s);
}

/* The paper's upper bound stands only where as many cases are labelled. */
static void upper_bounds_have_their_labels(void **state)
{
    struct scene s;
    char *text;
    (void)state;
    make_scene(&s, "supervised");
    s.c.published = "la20";
    for (int labeled = 79; labeled <= 80; labeled++) {
        s.lines[0].labeled = labeled;
        assert_ok(compare_summarise(&s.c, &e), e);
        assert_ok(compare_write_tables(&s.c, ".", &e), e);
        text = text_of("results.md");
        assert_int_equal(strstr(text, "91.14") != NULL, labeled == 80);
        mem_free(text);
        compare_done(&s.c);
    }
    scene_done(&s);
}

/* A name from outside is a name, in every language. */
static void names_do_not_escape(void **state)
{
    struct scene s;
    struct html h = {0};
    char *text;
    (void)state;
    make_scene(&s, "<b>|*_&%,\"\\");
    assert_ok(compare_summarise(&s.c, &e), e);
    assert_ok(compare_write_tables(&s.c, ".", &e), e);
    holds("results.md", "| &lt;b>\\|\\*\\_&%,\"\\ | 16/0 |");
    holds("results.tex", "$<$b$>$|*\\_\\&\\%,\"\\textbackslash{} & 16/0");
    holds("results.csv", "\nmethods,\"<b>|*_&%,\"\"\\\",16,0");
    assert_ok(compare_page(&h, &s.c, NULL, &e), e);
    assert_ok(html_take(&text, NULL, &h, &e), e);
    assert_null(strstr(text, "<b>"));
    assert_null(strstr(text, "http"));
    assert_null(strstr(text, "<script"));
    mem_free(text);
    scene_done(&s);
    make_scene(&s, "=1+2"); /* a formula to a spreadsheet */
    assert_ok(compare_summarise(&s.c, &e), e);
    assert_ok(compare_write_tables(&s.c, ".", &e), e);
    holds("results.csv", "\nmethods,\"'=1+2\",16,0");
    holds("cases.csv", "\nmethods,\"'=1+2\",16,");
    scene_done(&s);
}

static void missing_and_failed(void **state)
{
    struct scene s;
    struct compare_run failed;
    (void)state;
    make_scene(&s, "supervised");
    put("failed.json", "{\"name\": \"m0-s0\", \"error\": \"no memory <at all>\"}");
    assert_ok(compare_run_read(&failed, "failed.json", &e), e);
    s.list[0][0] = &failed;
    s.list[1][1] = NULL;
    assert_ok(compare_summarise(&s.c, &e), e);
    assert_int_equal(s.lines[0].n_done, 1);
    assert_int_equal(compare_missing(&s.c), 1);
    assert_true(isnan(s.lines[0].sd[0]));
    assert_ok(compare_write_tables(&s.c, ".", &e), e);
    holds("results.md", "| supervised | 16/0 | 1 of 2 | 54.50 |");
    holds("results.md", "1 run is not finished yet");
    holds("results.md", "- m0-s0: no memory &lt;at all&gt;");
    s.list[0][1] = s.list[1][0] = NULL; /* nothing at all */
    compare_done(&s.c);
    s.c.first = NULL;
    s.c.unit[0] = '\0';
    assert_ok(compare_summarise(&s.c, &e), e);
    assert_ok(compare_write_tables(&s.c, ".", &e), e);
    holds("results.md", "| aua | 16/64 | 0 of 2 | – | – | – | – | – |");
    compare_run_free(&failed);
    scene_done(&s);
}

static int drawn(const struct comparison *c, enum compare_chart k, int i, const char *part)
{
    struct html h = {0};
    char *text;
    int n = compare_draw(&h, c, k, i, 1, &e);
    assert_true(n >= 0);
    assert_ok(html_take(&text, NULL, &h, &e), e);
    if (n && !strstr(text, part))
        test_fail("no \"%s\" in chart %d", part, (int)k);
    mem_free(text);
    return n;
}

static void charts_are_drawn(void **state)
{
    struct scene s;
    (void)state;
    make_scene(&s, "supervised");
    assert_ok(compare_summarise(&s.c, &e), e);
    assert_int_equal(drawn(&s.c, CHART_CASES, 0, "case5, aua: 0.66"), 1);
    assert_int_equal(drawn(&s.c, CHART_CASES, 1, ""), 0);
    assert_int_equal(drawn(&s.c, CHART_LABELS, 0, ""), 0); /* only one number of labels */
    assert_int_equal(drawn(&s.c, CHART_LOSS, 0, "Loss, 16 labelled"), 1);
    assert_int_equal(drawn(&s.c, CHART_VALIDATION, 0, ""), 0);
    assert_int_equal(drawn(&s.c, CHART_UNCERTAINTY, 0, "correlation -1.00, of ranks -1.00"), 1);
    assert_int_equal(drawn(&s.c, CHART_UNCERTAINTY, 1, ""), 0);
    assert_int_equal(drawn(&s.c, CHART_FEATURES, 0, "classes apart 0.50"), 1);
    assert_int_equal(drawn(&s.c, CHART_FEATURES, 0, "hold 75 % of the variance"), 1);
    assert_int_equal(drawn(&s.c, CHART_FEATURES, 1, ""), 0);
    compare_done(&s.c);
    s.lines[0].labeled = 8;
    s.lines[0].title = "aua"; /* one method at two numbers of labels */
    assert_ok(compare_summarise(&s.c, &e), e);
    assert_int_equal(drawn(&s.c, CHART_LABELS, 0, "labelled cases"), 1);
    scene_done(&s);
}

/* Files of others: refused with their name, or read as far as they make sense. */
static void broken_results(void **state)
{
    static const char *const bad[] = {"",
                                      "[]",
                                      "{}",
                                      "{\"name\": 3}",
                                      "{\"name\": \"a\"}",
                                      "{\"name\": \"a\", \"scores\": []}",
                                      "{\"name\": \"a\", \"scores\": {\"cases\": []}}"};
    struct compare_run r;
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        put("bad.json", bad[i]);
        assert_int_equal(compare_run_read(&r, "bad.json", &e), -1);
        assert_says(e.text, "bad.json");
    }
    put("odd.json", "{\"name\": \"a\", \"cost\": 5, \"curves\": {\"loss\": [{\"step\": [1], "
                    "\"value\": []}, 7]}, \"ambiguity\": [1], \"scores\": {\"unit\": \"mm\", \"cases\": "
                    "[{\"mean\": 3}, {\"name\": \"b\"}]}}");
    assert_ok(compare_run_read(&r, "odd.json", &e), e);
    assert_int_equal(r.scores.n_cases, 2);
    assert_true(isnan(r.value[0][0]) && isnan(r.cost.seconds) && r.loss[0].n == 0 && !r.ambiguity);
    compare_run_free(&r);
}

/* Millimetres and voxels cannot stand in one table. */
static void units_must_agree(void **state)
{
    struct scene s;
    (void)state;
    make_scene(&s, "supervised");
    strcpy(s.run[3].scores.unit, "voxels");
    assert_refused(compare_summarise(&s.c, &e), e, ERR_CONFIG, "C02");
    scene_done(&s);
}

/* Every allocation on the way fails once: an error, nothing lost, nothing written half. */
static int all_of_it(struct scene *s, struct compare_run *extra)
{
    struct html h = {0};
    char *text = NULL;
    int result = compare_run_read(extra, "r10.json", &e) < 0 || compare_summarise(&s->c, &e) < 0 ||
                         compare_write_tables(&s->c, ".", &e) < 0 || compare_page(&h, &s->c, NULL, &e) < 0 ||
                         html_take(&text, NULL, &h, &e) < 0
                     ? -1
                     : 0;
    html_drop(&h);
    mem_free(text);
    compare_run_free(extra);
    compare_done(&s->c);
    s->c.first = NULL;
    s->c.unit[0] = '\0';
    return result;
}

static void no_memory(void **state)
{
    struct scene s;
    struct compare_run extra = {0};
    int64_t n = 0;
    (void)state;
    make_scene(&s, "supervised");
    for (int done = 0; !done; n++) {
        memset(&e, 0, sizeof e);
        mem_fail_at(n, 0);
        done = all_of_it(&s, &extra) == 0;
        mem_fail_at(-1, 0);
        assert_true(done || e.code == ERR_MEMORY);
        memset(&extra, 0, sizeof extra);
    }
    assert_true(n > 100);
    scene_done(&s);
}

static void published_numbers(void **state)
{
    (void)state;
    assert_true(compare_published_find("la20", "aua", 16)->value[3] == 5.60);
    assert_true(compare_published_find("pancreas20", "supervised", 62)->value[0] == 81.78);
    assert_true(compare_published_find("pancreas20", "supervised", 12)->value[0] == 70.63);
    assert_null(compare_published_find("pancreas20", "supervised", 60));
    assert_null(compare_published_find("la20", "nobody", 16));
    assert_null(compare_published_find(NULL, "aua", 16));
    assert_null(compare_published_find("la20", "aua", 80));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tables_are_right),
        cmocka_unit_test(names_do_not_escape),
        cmocka_unit_test(missing_and_failed),
        cmocka_unit_test(charts_are_drawn),
        cmocka_unit_test(broken_results),
        cmocka_unit_test(units_must_agree),
        cmocka_unit_test(empty_predictions_are_marked),
        cmocka_unit_test(upper_bounds_have_their_labels),
        cmocka_unit_test(published_numbers),
        cmocka_unit_test(no_memory),
    };
    return cmocka_run_group_tests(tests, test_folder_make, test_folder_remove);
}
