/* test_report.c - pages: escaping, axes, thinning, charts of odd data, whole pages, the verb's refusals. */
#include "test.h"

#include <math.h>

#include "cli/config.h"
#include "cli/options.h"
#include "report/report.h"
#include "report/svg.h"
#include "score/picture.h"

/* ---- text ---------------------------------------------------------------------------------------- */

static void escapes(const char *in, const char *want)
{
    struct html h = {0};
    char *text;
    struct error e;
    html_text(&h, in);
    assert_ok(html_take(&text, NULL, &h, &e), e);
    assert_string_equal(text, want);
    mem_free(text);
}

static void text_is_escaped(void **state)
{
    (void)state;
    escapes("", "");
    escapes("plain – ü", "plain – ü");
    escapes("<script>alert('a' & \"b\")</script>",
            "&lt;script&gt;alert(&#39;a&#39; &amp; &quot;b&quot;)&lt;/script&gt;");
    escapes("a\nb\x01\xff", "a\\x0Ab\\x01\\xFF");
}

/* The examples of RFC 4648, section 10. */
static void bytes_become_base64(void **state)
{
    static const char *const want[] = {"", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"};
    (void)state;
    for (size_t n = 0; n <= 6; n++) {
        struct html h = {0};
        char *text;
        struct error e;
        html_base64(&h, "foobar", n);
        assert_ok(html_take(&text, NULL, &h, &e), e);
        assert_string_equal(text, want[n]);
        mem_free(text);
    }
}

static void lack_of_memory_is_told_once(void **state)
{
    struct html h = {0};
    char *text;
    struct error e = {.code = ERR_NONE};
    (void)state;
    mem_fail_at(0, 1);
    html_add(&h, "<p>%d", 1);
    html_text(&h, "more");
    html_base64(&h, "bytes", 5);
    int result = html_take(&text, NULL, &h, &e);
    mem_fail_at(-1, 0);
    assert_int_equal(result, -1);
    assert_int_equal(e.code, ERR_MEMORY);
    assert_null(text);
}

/* ---- axes ---------------------------------------------------------------------------------------- */

/* Whatever the numbers: ticks rise, lie inside, are 2 to 24, and every value has a place in 0..1. */
static void check_axis(double lo, double hi, int log)
{
    struct svg_axis a;
    char label[24], last[24] = "";
    svg_axis_fit(&a, lo, hi, log);
    assert_true(isfinite(a.lo) && isfinite(a.hi) && a.lo < a.hi);
    assert_true(a.n_ticks >= 2 && a.n_ticks <= 24);
    for (int i = 0; i < a.n_ticks; i++) {
        assert_true(a.tick[i] >= a.lo * (a.lo > 0 ? 1 - 1e-9 : 1 + 1e-9) - 1e-300);
        assert_true(i == 0 || a.tick[i] > a.tick[i - 1]);
        svg_axis_label(label, &a, a.tick[i]);
        assert_string_not_equal(label, last);
        strcpy(last, label);
    }
    double place = svg_axis_place(&a, hi);
    assert_true(place >= 0 && place <= 1);
}

static void axes_hold_any_numbers(void **state)
{
    static const double odd[][2] = {
        {0, 1},       {0, 0},       {5, 5},         {-3, 7},      {0.81, 0.83},
        {1e-9, 2e-9}, {0, 6000},    {NAN, 1},       {1, NAN},     {-INFINITY, INFINITY},
        {3, 1},       {1e29, 1e30}, {1e9, 1e9 + 1}, {0.001, 800}, {1e-20, 1e20},
        {-1e30, 1e30}};
    (void)state;
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++)
        for (int log = 0; log <= 1; log++)
            check_axis(odd[i][0], odd[i][1], log);
}

static void ticks_are_round(void **state)
{
    struct svg_axis a;
    char label[24];
    (void)state;
    svg_axis_fit(&a, 0.612, 0.848, 0);
    assert_int_equal(a.n_ticks, 6); /* 0.60 0.65 ... 0.85 */
    assert_string_equal(svg_axis_label(label, &a, a.tick[0]), "0.60");
    assert_string_equal(svg_axis_label(label, &a, a.tick[5]), "0.85");
    svg_axis_fit(&a, 1, 6000, 0);
    assert_string_equal(svg_axis_label(label, &a, a.tick[1]), "2000");
    svg_axis_fit(&a, 0.04, 2.4, 1);
    assert_true(a.log);
    assert_string_equal(svg_axis_label(label, &a, a.tick[0]), "0.05");
    assert_true(fabs(svg_axis_place(&a, sqrt(a.lo * a.hi)) - 0.5) < 1e-12);
}

/* ---- curves -------------------------------------------------------------------------------------- */

static void curves_are_thinned(void **state)
{
    enum { N = 1001 };
    static double x[N], y[N];
    double tx[SVG_MAX_POINTS], ty[SVG_MAX_POINTS];
    struct svg_series s = {.x = x, .y = y, .n = N};
    (void)state;
    for (int i = 0; i < N; i++) {
        x[i] = i;
        y[i] = 2 * i;
    }
    y[1] = NAN;                                  /* left out of its mean */
    y[6] = y[7] = y[8] = INFINITY;               /* a whole group: a gap */
    assert_int_equal(svg_thin(tx, ty, &s), 334); /* groups of 3, the last of 2 */
    assert_true(fabs(tx[0] - 1) < 1e-12 && fabs(ty[0] - 2) < 1e-12);
    assert_true(isnan(ty[2]));
    assert_true(fabs(ty[3] - 20) < 1e-12 && fabs(ty[333] - 2 * 999.5) < 1e-9);
    s.n = SVG_MAX_POINTS;
    assert_int_equal(svg_thin(tx, ty, &s), SVG_MAX_POINTS);
    s.n = 0;
    assert_int_equal(svg_thin(tx, ty, &s), 0);
}

static void means_stop_at_gaps(void **state)
{
    const double y[] = {1, 3, 8, NAN, 10, 30, 80, 0, 20};
    const double want[] = {1, 4, 8, NAN, 10, 40, 28, 100 / 3.0, 20};
    double out[9];
    (void)state;
    svg_smooth(out, y, 9, 2);
    for (int i = 0; i < 9; i++)
        assert_true(isnan(want[i]) ? isnan(out[i]) : fabs(out[i] - want[i]) < 1e-12);
}

/* ---- charts -------------------------------------------------------------------------------------- */

static int count_of(const char *text, const char *part)
{
    int n = 0;
    for (; (text = strstr(text, part)) != NULL; text += strlen(part))
        n++;
    return n;
}

/* Every element that is opened is closed, nothing is "nan" or "inf". For mem_free. */
static char *finished(struct html *h)
{
    char *text;
    struct error e;
    assert_ok(html_take(&text, NULL, h, &e), e);
    assert_null(strstr(text, "nan"));
    assert_null(strstr(text, "inf"));
    static const char *const pairs[][2] = {{"<svg", "</svg>"},       {"<text", "</text>"},
                                           {"<circle", "</circle>"}, {"<tr", "</tr>"},
                                           {"<td", "</td>"},         {"<figure>", "</figure>"}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        assert_int_equal(count_of(text, pairs[i][0]), count_of(text, pairs[i][1]));
    return text;
}

static char *draw(const double *y, int n, int smooth)
{
    static const double x[] = {1, 2, 3, 4, 5, 6, 7, 8};
    struct svg_series s = {.name = "a<b", .x = x, .y = y, .n = n};
    struct svg_chart c = {.title = "t",
                          .x_name = "step",
                          .y_name = "loss",
                          .series = &s,
                          .n_series = 1,
                          .smooth = smooth,
                          .log = 1};
    struct html h = {0};
    svg_lines(&h, &c);
    return finished(&h);
}

static void odd_curves_are_drawn(void **state)
{
    static const double lost[] = {NAN, INFINITY, -INFINITY, 1e40}, gap[] = {1, 2, NAN, 4, NAN, 6, 7, 8};
    (void)state;
    char *none = draw(gap, 0, 0), *no_number = draw(lost, 4, 1), *one = draw(gap, 1, 1);
    char *gaps = draw(gap, 8, 0);
    assert_non_null(strstr(none, "no data"));
    assert_non_null(strstr(no_number, "no data"));
    assert_null(strstr(one, "no data"));
    assert_int_equal(count_of(one, "<circle"), 1);
    assert_int_equal(count_of(gaps, "<circle"), 1);    /* 4 stands alone */
    assert_int_equal(count_of(gaps, " d=\"M"), 1 + 2); /* legend, 1-2, 6-8 */
    assert_non_null(strstr(gaps, "a&lt;b"));
    mem_free(none);
    mem_free(no_number);
    mem_free(one);
    mem_free(gaps);
}

/* The highest point lies on the upper edge of the frame, the lowest on the lower one. */
static void values_keep_their_order(void **state)
{
    static const double y[] = {10, 0, 5};
    (void)state;
    char *text = draw(y, 3, 0);
    double at[6];
    const char *path = strstr(text, "d=\"M"); /* the legend's */
    assert_non_null(path);
    path = strstr(path + 1, "d=\"M");
    assert_non_null(path);
    assert_int_equal(
        sscanf(path, "d=\"M%lf %lfL%lf %lfL%lf %lf", &at[0], &at[1], &at[2], &at[3], &at[4], &at[5]), 6);
    assert_true(at[0] < at[2] && at[2] < at[4]);
    assert_true(at[1] < at[5] && at[5] < at[3]);
    assert_true(fabs(at[5] - 0.5 * (at[1] + at[3])) < 0.11); /* written with one decimal */
    mem_free(text);
}

static void cases_are_drawn(void **state)
{
    enum { MANY = 50 };
    static char names[MANY][16];
    static const char *list[MANY];
    static double a[MANY], b[MANY];
    (void)state;
    for (int i = 0; i < MANY; i++) {
        snprintf(names[i], sizeof names[i], "case <%d>", i);
        list[i] = names[i];
        a[i] = 0.5 + 0.005 * i;
        b[i] = i == 1 ? NAN : 0.9;
    }
    struct svg_row rows[] = {{"one", a}, {"two", b}};
    struct svg_dots d = {
        .title = "t", .x_name = "Dice", .cases = list, .n_cases = 3, .rows = rows, .n_rows = 2};
    struct html h = {0};
    svg_dots(&h, &d);
    char *few = finished(&h);
    assert_int_equal(count_of(few, "<circle"), 2 + 3 + 2); /* legend, values without the missing one */
    assert_non_null(strstr(few, "case &lt;2&gt;"));
    d.n_cases = MANY;
    svg_dots(&h, &d);
    char *many = finished(&h);
    assert_int_equal(count_of(many, "<circle"), 2 * MANY - 1); /* names stand beside the rows */
    assert_int_equal(count_of(many, "class=\"b\""), 2);        /* means */
    d.n_cases = 0;
    svg_dots(&h, &d);
    char *none = finished(&h);
    assert_non_null(strstr(none, "no data"));
    mem_free(few);
    mem_free(many);
    mem_free(none);
}

/* ---- pages --------------------------------------------------------------------------------------- */

static void write_file(const char *path, const char *text)
{
    struct error e;
    assert_ok(io_write_all(path, 0666, text, strlen(text), &e), e);
}

static const char scores_a[] =
    "{\"protocol\": \"mm\", \"unit\": \"mm\", \"cases\": ["
    "{\"name\": \"c1\", \"mean\": {\"dice\": 0.5, \"jaccard\": 0.4, \"asd\": 2, \"hd95\": 9}},"
    "{\"name\": \"<c2>\", \"classes\": {}, \"mean\": {\"dice\": null}}],"
    "\"classes\": {\"1\": {\"mean\": {\"dice\": 0.5}, \"sd\": {\"dice\": null}},"
    "\"2\": {\"mean\": {\"dice\": 0.25}, \"sd\": {\"dice\": 0.125}}},"
    "\"mean\": {\"dice\": 0.5, \"jaccard\": 0.4, \"asd\": 2, \"hd95\": 9}, \"sd\": {\"dice\": 0.0625}}";
static const char scores_b[] =
    "{\"unit\": \"mm\", \"cases\": [{\"name\": \"c1\", \"mean\": {\"dice\": 0.75}}],"
    "\"mean\": {\"dice\": 0.75, \"jaccard\": 0.7, \"asd\": 3, \"hd95\": 4}, \"sd\": {}}";

/* A run of two phases with a number that was not one. */
static void make_run(const char *folder, const char *method)
{
    struct error e;
    struct runs *r;
    char path[64], text[400];
    assert_ok(io_make_folders(folder, &e), e);
    snprintf(path, sizeof path, "%s/run.json", folder);
    snprintf(text, sizeof text,
             "{\"falx\": \"9.9\", \"trained_method\": \"%s\", \"seed\": 7, \"lr\": 0.01, \"network_patch\": "
             "[16, 32, 48], \"validation_cases\": [\"x\", \"y\"], \"output\": \"/secret/place\", "
             "\"class_names\": [\"background\", \"left & right\"]}",
             method);
    write_file(path, text);
    snprintf(path, sizeof path, "%s/metrics.sqlite", folder);
    assert_ok(runs_open(&r, path, &e), e);
    for (int phase = 0; phase < 2; phase++)
        for (int step = 1; step <= 500; step++) {
            double value = step == 3 ? NAN : 1.0 / step;
            assert_ok(runs_add_step(r, phase, step, "loss", value, &e), e);
            assert_ok(runs_add_step(r, phase, step, "gradient", 12345.0, &e), e);
            if (step % 100 == 0)
                assert_ok(runs_add_validation(r, phase, step, 1, 0.001 * step, &e), e);
        }
    assert_ok(runs_set_fact(r, "seconds", "151.5", &e), e);
    runs_close(r);
}

static void make_inputs(void)
{
    struct error e;
    struct picture p;
    make_run("one", "aua");
    make_run("two", "<method>");
    write_file("a.json", scores_a);
    write_file("b.json", scores_b);
    assert_ok(io_make_folders("pictures/inner", &e), e);
    assert_ok(picture_new(&p, 4, 4, &e), e);
    assert_ok(picture_write(&p, "pictures/inner/shot.png", &e), e);
    assert_ok(picture_write(&p, "pictures/first.png", &e), e);
    picture_free(&p);
    write_file("pictures/notes.txt", "not a picture");
}

static void runs_are_read(void **state)
{
    struct report_run r;
    struct error e;
    (void)state;
    make_inputs();
    assert_ok(report_run_read(&r, "one/", &e), e);
    assert_string_equal(r.name, "one");
    assert_string_equal(r.method, "aua");
    assert_int_equal(r.n_curves, 2);
    assert_int_equal(r.validation.n, 10);
    assert_true(fabs(r.seconds - 151.5) < 1e-12);
    assert_int_equal(report_steps(&r), 1000);
    int patch = 0, counted = 0;
    for (int i = 0; i < r.n_facts; i++) {
        const char *value = r.facts[i].value;
        patch |= value && strcmp(r.facts[i].name, "patch") == 0 && strcmp(value, "16 × 32 × 48") == 0;
        counted |= value && strcmp(r.facts[i].name, "validation cases") == 0 && strcmp(value, "2") == 0;
        assert_true(!value || !strstr(value, "secret"));
    }
    assert_true(patch && counted);
    report_run_free(&r);
    assert_ok(report_scores_read(&r.scores, "a.json", &e), e);
    assert_int_equal(r.scores.n_cases, 2);
    assert_true(isnan(r.scores.dice[1]) && isnan(r.scores.class_sd[0]));
    assert_true(fabs(r.scores.class_mean[1] - 0.25) < 1e-15 && r.scores.class_number[1] == 2);
    report_scores_free(&r.scores);
}

/* Runs the verb as the program would; its message to the console is not looked at. */
static int report_verb(char *const words[], int n)
{
    char *argv[16] = {(char[]){"report"}};
    struct config c;
    struct error e = {.code = ERR_NONE};
    for (int i = 0; i < n; i++)
        argv[i + 1] = words[i];
    if (config_parse(&c, VERB_REPORT, n + 1, argv, &e) < 0)
        return (int)e.code;
    c.quiet = 1;
    int code = verb_report(&c);
    config_free(&c);
    return code;
}
#define REPORT(...)                                                                                          \
    report_verb((char *[]){__VA_ARGS__}, (int)(sizeof((char *[]){__VA_ARGS__}) / sizeof(char *)))
#define W(text) ((char[]){text})

static char *read_page(const char *path)
{
    char *text;
    struct error e;
    assert_ok(io_read_text(&text, NULL, path, 1 << 24, &e), e);
    return text;
}

static void page_holds_everything(void **state)
{
    (void)state;
    make_inputs();
    assert_int_equal(REPORT(W("one"), W("two"), W("-o"), W("p.html"), W("--eval"), W("a.json,b.json"),
                            W("--pictures"), W("pictures"), W("--charts"), W("charts"), W("--title"),
                            W("A & B")),
                     0);
    char *page = read_page("p.html");
    assert_true(strncmp(page, "<!DOCTYPE html>", 15) == 0);
    assert_non_null(strstr(page, "<title>A &amp; B</title>"));
    assert_non_null(strstr(page, "two (&lt;method&gt;)"));
    assert_non_null(strstr(page, "<td class=\"n\">50.00 ± 6.25</td>"));
    assert_non_null(strstr(page, "<td class=\"n best\">75.00</td>"));
    assert_non_null(strstr(page, "<td class=\"n best\">2.00</td>")); /* the smaller distance */
    assert_non_null(strstr(page, "left &amp; right"));
    assert_non_null(strstr(page, "stage1"));
    assert_int_equal(count_of(page, "data:image/png;base64,iVBORw0KGgo"), 2);
    assert_true(strstr(page, "first") < strstr(page, "inner"));
    assert_int_equal(count_of(page, "<svg"), 1 + 1 + 2);
    /* nothing is fetched, run or given away */
    assert_null(strstr(page, "<script"));
    assert_null(strstr(page, "http"));
    assert_null(strstr(page, "secret"));
    assert_null(strstr(page, "12345"));
    assert_true(io_exists("charts/dice.svg") && io_exists("charts/validation.svg"));
    assert_true(io_exists("charts/loss-one.svg") && io_exists("charts/loss-two.svg"));
    mem_free(page);
}

static void same_input_same_bytes(void **state)
{
    (void)state;
    make_inputs();
    assert_int_equal(REPORT(W("one"), W("two"), W("-o"), W("a.html"), W("--eval"), W("a.json,b.json")), 0);
    assert_int_equal(REPORT(W("one"), W("two"), W("-o"), W("b.html"), W("--eval"), W("a.json,b.json")), 0);
    char *a = read_page("a.html"), *b = read_page("b.html");
    assert_string_equal(a, b);
    mem_free(a);
    mem_free(b);
}

static void few_data_are_enough(void **state)
{
    struct error e;
    (void)state;
    assert_ok(io_make_folders("bare", &e), e);
    write_file("bare/run.json", "{}");
    assert_int_equal(REPORT(W("bare"), W("-o"), W("bare.html")), 0);
    assert_int_equal(REPORT(W("bare"), W("-o"), W("bare.html")), ERR_CONFIG); /* exists */
    assert_int_equal(REPORT(W("bare"), W("-o"), W("bare.html"), W("--force")), 0);
    char *page = read_page("bare.html");
    assert_null(strstr(page, "<svg"));
    mem_free(page);
}

static void bad_input_is_refused(void **state)
{
    struct error e;
    (void)state;
    make_inputs();
    write_file("c.json", "{\"unit\": \"voxels\", \"cases\": [{\"name\": \"c1\"}]}");
    write_file("d.json", "{\"cases\": 5}");
    assert_ok(io_make_folders("empty", &e), e);
    assert_ok(io_make_folders("broken", &e), e);
    write_file("broken/run.json", "{}");
    write_file("broken/metrics.sqlite", "this is no database, though it is long enough to be looked at");
    assert_ok(io_make_folders("bad-pictures", &e), e);
    write_file("bad-pictures/a.png", "GIF89a, not a PNG");
    assert_int_equal(REPORT(W("one")), ERR_CONFIG);                       /* no -o */
    assert_int_equal(REPORT(W("-o"), W("x.html")), ERR_CONFIG);           /* no run */
    assert_int_equal(REPORT(W("empty"), W("-o"), W("x.html")), ERR_DATA); /* no run.json */
    assert_int_equal(REPORT(W("broken"), W("-o"), W("x.html")), ERR_DATA);
    assert_int_equal(REPORT(W("one"), W("-o"), W("x.html"), W("--eval"), W("a.json,b.json")), ERR_CONFIG);
    assert_int_equal(REPORT(W("one"), W("two"), W("-o"), W("x.html"), W("--eval"), W("a.json")), ERR_CONFIG);
    assert_int_equal(REPORT(W("one"), W("-o"), W("x.html"), W("--eval"), W("d.json")), ERR_DATA);
    assert_int_equal(REPORT(W("one"), W("-o"), W("x.html"), W("--eval"), W("missing.json")), ERR_SYSTEM);
    assert_int_equal(REPORT(W("one"), W("two"), W("-o"), W("x.html"), W("--eval"), W("a.json,c.json")),
                     ERR_CONFIG); /* mm and voxels */
    assert_int_equal(REPORT(W("one"), W("-o"), W("x.html"), W("--pictures"), W("bad-pictures")), ERR_DATA);
    assert_int_not_equal(REPORT(W("one"), W("-o"), W("no-such-folder/x.html")), 0);
    assert_false(io_exists("x.html"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_escaped),
        cmocka_unit_test(bytes_become_base64),
        cmocka_unit_test(lack_of_memory_is_told_once),
        cmocka_unit_test(axes_hold_any_numbers),
        cmocka_unit_test(ticks_are_round),
        cmocka_unit_test(curves_are_thinned),
        cmocka_unit_test(means_stop_at_gaps),
        cmocka_unit_test(odd_curves_are_drawn),
        cmocka_unit_test(values_keep_their_order),
        cmocka_unit_test(cases_are_drawn),
        cmocka_unit_test(runs_are_read),
        cmocka_unit_test(page_holds_everything),
        cmocka_unit_test(same_input_same_bytes),
        cmocka_unit_test(few_data_are_enough),
        cmocka_unit_test(bad_input_is_refused),
    };
    return cmocka_run_group_tests(tests, test_folder_make, test_folder_remove);
}
