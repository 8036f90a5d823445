/* verb_report.c - `falx report RUN... -o report.html`: one page about one or more runs.
 *
 *     read runs, scores, pictures -> check that they fit each other -> write the page, and charts as files
 *
 * Everything is read, and every file to write looked at, before anything is written. What is read stays as it
 * is, also with --force. With scores, their table is printed, too.
 */
#include <limits.h>
#include <math.h>
#include <string.h>

#include "base/io.h"
#include "cli/config.h"
#include "report/report.h"
#include "train/method.h"

struct reporting {
    struct report_run *runs;
    int n_runs;
    struct report_pictures pictures;
};

/* ---- what must stay as it is -------------------------------------------------------------------- */

/* Would this file lie in the folder, however deep? Climbs with "..", so that links are seen through. */
static int is_inside(const char *path, const char *folder)
{
    char *at = path_folder(NULL, path);
    int inside = 0;
    while (at && io_is_folder(at) && !(inside = io_is_same(at, folder))) {
        char *up = path_join(NULL, at, "..");
        int is_root = up && io_is_same(at, up);
        mem_free(at);
        at = up;
        if (is_root)
            break;
    }
    mem_free(at);
    return inside;
}

static int is_file_of(const char *path, const char *folder, const char *name)
{
    char *file = path_join(NULL, folder, name);
    int same = file && io_is_same(path, file);
    mem_free(file);
    return same;
}

/* Is it one of the files with commas between? */
static int is_listed(const char *path, const char *list)
{
    char file[PATH_MAX];
    for (const char *at = list; at;)
        if (text_next(file, sizeof file, &at) && io_is_same(path, file))
            return 1;
    return 0;
}

/* A page (.html) or chart (.svg) may lie in a run's folder, but must not be taken for a file of the run. */
static int check_target(const char *path, const char *extension, const struct config *c, struct error *e)
{
    int of_run = 0;
    for (int i = 0; i < c->n_args; i++)
        of_run |= is_file_of(path, c->args[i], "run.json") ||
                  is_file_of(path, c->args[i], "metrics.sqlite") ||
                  (!text_ends_with_nocase(path, extension) && is_inside(path, c->args[i]));
    if (of_run)
        fail(e, ERR_CONFIG, "O01", "among the files of a run only *%s is written", extension);
    else if (c->eval && is_listed(path, c->eval))
        fail(e, ERR_CONFIG, "O01", "these are scores to report, and would be replaced");
    else if (c->pictures && text_ends_with(path, ".png") && is_inside(path, c->pictures))
        fail(e, ERR_CONFIG, "O01", "this is a picture to show, and would be replaced");
    else
        return io_check_output(path, c->force, e);
    return fail_in(e, path);
}

/* ---- reading ----------------------------------------------------------------------------------- */

/* Phases have numbers in the store of numbers; their names belong to the method. */
static void name_phases(struct report_run *r)
{
    const struct method *m = method_find(r->method);
    for (int i = 0; m && i < REPORT_PHASES && m->phases[i].name; i++)
        r->phases[i] = m->phases[i].name;
}

/* Folders of the same name in different places: the later one gets its place among the runs as a number. */
static int make_unique(struct reporting *t, int i, struct error *e)
{
    int same = 0;
    for (int k = 0; k < i; k++)
        same |= strcmp(t->runs[k].name, t->runs[i].name) == 0;
    if (!same)
        return 0;
    char *name = mem_format(e, "%s-%d", t->runs[i].name, i + 1);
    if (!name)
        return -1;
    mem_free(t->runs[i].name);
    t->runs[i].name = name;
    return 0;
}

static int read_runs(struct reporting *t, const struct config *c, struct error *e)
{
    if (!(t->runs = mem_alloc(e, (size_t)c->n_args, sizeof *t->runs)))
        return -1;
    for (int i = 0; i < c->n_args; i++) {
        if (report_run_read(&t->runs[i], c->args[i], e) < 0)
            return -1;
        t->n_runs = i + 1;
        name_phases(&t->runs[i]);
        if (make_unique(t, i, e) < 0)
            return -1;
    }
    return 0;
}

/* `list` names one file of scores a run, in their order, with commas between. */
static int read_scores(struct reporting *t, const char *list, struct error *e)
{
    char path[PATH_MAX];
    const char *at = list;
    int n = 0;
    for (; at && n < t->n_runs; n++) {
        if (text_next(path, sizeof path, &at) >= sizeof path) {
            fail(e, ERR_CONFIG, "C02", "\"%.60s...\" is too long for a file", path);
            return fail_in(e, "--eval");
        }
        if (report_scores_read(&t->runs[n].scores, path, e) < 0)
            return -1;
    }
    if (!at && n == t->n_runs)
        return 0;
    fail(e, ERR_CONFIG, "C02", "%s files than the %d run%s given", at ? "more" : "fewer", t->n_runs,
         t->n_runs == 1 ? "" : "s");
    return fail_in(e, "--eval");
}

/* Millimetres and voxels cannot stand in one column. */
static int check_units(const struct reporting *t, struct error *e)
{
    for (int i = 1; i < t->n_runs; i++)
        if (strcmp(t->runs[i].scores.unit, t->runs[0].scores.unit) != 0) {
            fail(e, ERR_CONFIG, "C02", "distances in %s and in %s cannot be compared: choose one --protocol",
                 t->runs[0].scores.unit, t->runs[i].scores.unit);
            return fail_in(e, "--eval");
        }
    return 0;
}

static int read_all(struct reporting *t, const struct config *c, struct error *e)
{
    if (check_target(c->output, ".html", c, e) < 0 || read_runs(t, c, e) < 0 ||
        (c->eval && (read_scores(t, c->eval, e) < 0 || check_units(t, e) < 0)))
        return -1;
    return c->pictures ? report_pictures_read(&t->pictures, c->pictures, e) : 0;
}

/* ---- writing ----------------------------------------------------------------------------------- */

struct chart {
    struct html svg;
    int drawn; /* 0: there is nothing to draw */
    char *path;
};

/* Number i: dice.svg, validation.svg, then loss-RUN.svg of each run. */
static int draw_chart(struct chart *out, const struct report_page *p, int i, const char *folder,
                      struct error *e)
{
    const struct report_run *run = i < 2 ? NULL : &p->runs[i - 2];
    out->drawn = run      ? report_draw_losses(&out->svg, run, 1)
                 : i == 1 ? report_draw_validation(&out->svg, p, 1)
                          : report_draw_cases(&out->svg, p, 1, e);
    out->path = mem_format(e, "%s/%s%s.svg", folder,
                           run      ? "loss-"
                           : i == 1 ? "validation"
                                    : "dice",
                           run ? run->name : "");
    return out->drawn < 0 || !out->path ? -1 : 0;
}

/* All are drawn, and looked at where they would go, before one is written. */
static int write_charts(const struct report_page *p, const struct config *c, struct error *e)
{
    int n = p->n_runs + 2, result = 0;
    struct chart *chart = mem_alloc(e, (size_t)n, sizeof *chart);
    if (!chart)
        return -1;
    for (int i = 0; i < n && result == 0; i++) {
        result = draw_chart(&chart[i], p, i, c->charts, e);
        if (result == 0 && chart[i].drawn && io_is_folder(c->charts))
            result = check_target(chart[i].path, ".svg", c, e);
    }
    if (result == 0)
        result = io_make_folders(c->charts, e);
    for (int i = 0; i < n; i++) {
        if (result == 0 && chart[i].drawn)
            result = html_write(&chart[i].svg, chart[i].path, e);
        html_drop(&chart[i].svg);
        mem_free(chart[i].path);
    }
    mem_free(chart);
    return result;
}

static int write_all(const struct reporting *t, const struct config *c, struct error *e)
{
    struct report_page page = {.title = c->title,
                               .runs = t->runs,
                               .n_runs = t->n_runs,
                               .pictures = &t->pictures,
                               .version = FALX_VERSION};
    struct html h = {0};
    if (c->charts && write_charts(&page, c, e) < 0)
        return -1;
    report_html(&h, &page); /* last: a page is there when all else is */
    return html_write(&h, c->output, e);
}

/* ---- telling ------------------------------------------------------------------------------------ */

/* Right-aligned in `width` columns; what is not a number is "-". */
static void print_mean(double mean, double sd, double times, int digits, int width)
{
    char text[64] = "-";
    int both = isfinite(mean) && isfinite(sd);
    if (both)
        snprintf(text, sizeof text, "%.*f \u00b1 %.*f", digits, times * mean, digits, times * sd);
    else if (isfinite(mean))
        snprintf(text, sizeof text, "%.*f", digits, times * mean);
    printf("  %*s", width + both, text); /* the sign takes two bytes and one column */
}

/* The four metrics of the literature, a row a run. */
static void print_table(const struct reporting *t)
{
    int width = 3;
    char name[256];
    for (int i = 0; i < t->n_runs; i++) {
        int n = (int)strlen(text_escape(name, sizeof name, t->runs[i].name));
        width = n > width && n <= 24 ? n : width;
    }
    printf("%-*s  %7s  %6s", width, "run", "seconds", "steps");
    for (int m = 0; m < REPORT_METRICS; m++) {
        char head[32];
        const char *unit = report_is_share(m) ? "%" : t->runs[0].scores.unit;
        snprintf(head, sizeof head, "%s %s", report_title[m], unit);
        printf("  %15s", head);
    }
    printf("\n");
    for (int i = 0; i < t->n_runs; i++) {
        const struct report_run *r = &t->runs[i];
        printf("%-*s", width, text_escape(name, sizeof name, r->name));
        print_mean(r->seconds, NAN, 1, 0, 7);
        printf("  %6lld", (long long)report_steps(r));
        for (int m = 0; m < REPORT_METRICS; m++)
            print_mean(r->scores.mean[m], r->scores.sd[m], report_is_share(m) ? 100 : 1, 2, 15);
        printf("\n");
    }
}

static int print_json(const struct reporting *t)
{
    struct js_out o = {0};
    js_out_open(&o, NULL, '{');
    js_out_text(&o, "unit", t->runs[0].scores.unit);
    js_out_open(&o, "runs", '[');
    for (int i = 0; i < t->n_runs; i++) {
        const struct report_run *r = &t->runs[i];
        js_out_open(&o, NULL, '{');
        js_out_text(&o, "name", r->name);
        js_out_text(&o, "method", r->method);
        js_out_real(&o, "seconds", r->seconds);
        js_out_int(&o, "steps", report_steps(r));
        js_out_int(&o, "n_cases", r->scores.n_cases);
        for (int m = 0; m < REPORT_METRICS && r->scores.n_cases > 0; m++) {
            js_out_open(&o, metric_name(report_metric[m]), '{');
            js_out_real(&o, "mean", r->scores.mean[m]);
            js_out_real(&o, "sd", r->scores.sd[m]);
            js_out_close(&o, '}');
        }
        js_out_close(&o, '}');
    }
    js_out_close(&o, ']');
    js_out_close(&o, '}');
    return console_json(&o);
}

/* Returns the exit code. */
static int tell(const struct reporting *t, const struct config *c)
{
    if (c->json)
        return print_json(t);
    if (c->eval)
        print_table(t);
    if (!c->quiet)
        printf("%s: %d run%s, %d picture%s\n", c->output, t->n_runs, t->n_runs == 1 ? "" : "s", t->pictures.n,
               t->pictures.n == 1 ? "" : "s");
    return 0;
}

int verb_report(struct config *c)
{
    struct error e = {.code = ERR_NONE};
    struct reporting t = {0};
    int code;
    if (read_all(&t, c, &e) < 0 || write_all(&t, c, &e) < 0)
        code = complain(&e);
    else
        code = tell(&t, c);
    for (int i = 0; i < t.n_runs; i++)
        report_run_free(&t.runs[i]);
    mem_free(t.runs);
    report_pictures_free(&t.pictures);
    return code;
}
