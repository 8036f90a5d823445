/* verb_check.c - `falx check DATASET`: recognise the layout, read every file, say what is wrong.
 *
 * Problems and warnings go to stderr, one line each, as they are for every verb. stdout gets the
 * summary, as text or as JSON. The exit code is 0, 3 for refused data or 4 if a file could not be
 * read.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json_write.h"
#include "cli/config.h"
#include "data/check.h"

struct range { /* of a number over the cases */
    double min, max;
};

static void widen(struct range *r, double v)
{
    r->min = v < r->min ? v : r->min;
    r->max = v > r->max ? v : r->max;
}

struct summary {
    int labeled, unlabeled, test, test_labeled;
    struct range voxels[3], spacing_mm[3], value;
    int64_t channels;
};

static void summarise(struct summary *s, const struct dataset *d, const struct check_result *r)
{
    memset(s, 0, sizeof *s);
    s->labeled = dataset_count(d, SPLIT_TRAIN, 1);
    s->unlabeled = dataset_count(d, SPLIT_TRAIN, 0);
    s->test = dataset_count(d, SPLIT_TEST, -1);
    s->test_labeled = dataset_count(d, SPLIT_TEST, 1);
    for (int a = 0; a < 3; a++)
        s->voxels[a] = s->spacing_mm[a] = (struct range){INFINITY, -INFINITY};
    s->value = (struct range){INFINITY, -INFINITY};
    for (int i = 0; i < r->n_cases; i++) {
        const struct check_case *c = &r->cases[i];
        if (c->bad)
            continue;
        s->channels = c->channels;
        widen(&s->value, c->min);
        widen(&s->value, c->max);
        for (int a = 0; a < 3; a++) {
            widen(&s->voxels[a], (double)c->dims[a]);
            widen(&s->spacing_mm[a], c->spacing_mm[a]);
        }
    }
}

/* ---- text ------------------------------------------------------------------------------------ */

static void print_ranges(const char *title, const struct range r[3])
{
    printf("%-12s", title);
    for (int a = 0; a < 3; a++)
        if (r[a].min == r[a].max)
            printf("%s%g", a ? " x " : "", r[a].min);
        else
            printf("%s%g..%g", a ? " x " : "", r[a].min, r[a].max);
    printf("\n");
}

static void print_classes(const struct dataset *d, const struct check_result *r)
{
    enum { EMPTY_ROWS = 3 }; /* classes without a voxel that are shown: a warning names them all */
    char shown[64];
    int empty = 0;
    printf("%-12s%-24s%16s%10s\n", "class", "name", "voxels", "cases");
    for (int k = 0; k < r->n_classes; k++) {
        empty += r->voxels[k] == 0;
        if (r->voxels[k] || empty <= EMPTY_ROWS)
            printf("%-12d%-24s%16lld%10d\n", k,
                   d->class_names ? text_escape(shown, sizeof shown, d->class_names[k]) : "-",
                   (long long)r->voxels[k], r->cases_with[k]);
    }
}

static void print_text(const struct dataset *d, const struct check_result *r, const struct summary *s,
                       const struct told *told)
{
    char shown[4096];
    printf("%-12s%s\n", "data set", text_escape(shown, sizeof shown, d->root));
    printf("%-12s%s\n", "layout", layout_name(d->layout));
    printf("%-12s%d labelled, %d unlabelled, %d test (%d with labels)\n", "cases", s->labeled, s->unlabeled,
           s->test, s->test_labeled);
    if (r->n_bad < r->n_cases) {
        print_ranges("size", s->voxels);
        print_ranges("spacing mm", s->spacing_mm);
        printf("%-12s%lld, values %g to %g\n", "channels", (long long)s->channels, s->value.min,
               s->value.max);
    }
    if (r->n_classes > 0 && s->labeled + s->test_labeled > 0)
        print_classes(d, r);
    for (int i = 0; i < told->n; i++)
        if (told->line[i].kind == REPORT_NOTE)
            printf("%-12s%s\n", "note", told->line[i].text);
    if (r->n_bad)
        printf("%-12s%d\n", "bad cases", r->n_bad);
    printf("%-12s%s\n", "result", r->code ? "refused" : "sound");
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void json_lines(struct js_out *o, const char *key, const struct told *t, enum report_kind kind)
{
    js_out_open(o, key, '[');
    for (int i = 0; i < t->n; i++)
        if (t->line[i].kind == kind)
            js_out_text(o, NULL, t->line[i].text);
    js_out_close(o, ']');
}

static void json_cases(struct js_out *o, const struct dataset *d, const struct check_result *r)
{
    js_out_open(o, "cases", '[');
    for (int i = 0; i < d->n_cases; i++) {
        const struct check_case *c = &r->cases[i];
        js_out_open(o, NULL, '{');
        js_out_text(o, "name", d->cases[i].name);
        js_out_text(o, "split", d->cases[i].split == SPLIT_TEST ? "test" : "train");
        js_out_int(o, "labeled", d->cases[i].label != NULL);
        js_out_int(o, "bad", c->bad != ERR_NONE);
        if (!c->bad) {
            js_out_ints(o, "dims", c->dims, 3);
            js_out_reals(o, "spacing_mm", c->spacing_mm, 3);
            js_out_int(o, "channels", c->channels);
            if (isfinite(c->mean)) { /* else no voxel is a number */
                js_out_real(o, "min", c->min);
                js_out_real(o, "max", c->max);
                js_out_real(o, "mean", c->mean);
            }
            if (c->voxels)
                js_out_ints(o, "class_voxels", c->voxels, c->n_classes);
        }
        js_out_close(o, '}');
    }
    js_out_close(o, ']');
}

static void json_classes(struct js_out *o, const struct dataset *d, const struct check_result *r)
{
    js_out_open(o, "classes", '[');
    for (int k = 0; k < r->n_classes; k++) {
        js_out_open(o, NULL, '{');
        js_out_text(o, "name", d->class_names ? d->class_names[k] : "");
        js_out_int(o, "voxels", r->voxels[k]);
        js_out_int(o, "cases", r->cases_with[k]);
        js_out_close(o, '}');
    }
    js_out_close(o, ']');
}

static void json_duplicates(struct js_out *o, const struct dataset *d, const struct check_result *r)
{
    js_out_open(o, "duplicates", '[');
    for (int i = 0; i < r->n_twins; i++) {
        const struct twin *t = &r->twins[i];
        int64_t offset[3] = {t->offset[0], t->offset[1], t->offset[2]};
        js_out_open(o, NULL, '{');
        js_out_text(o, "a", d->cases[t->a].name);
        js_out_text(o, "b", d->cases[t->b].name);
        js_out_int(o, "exact", t->exact);
        js_out_ints(o, "offset", offset, 3);
        js_out_close(o, '}');
    }
    js_out_close(o, ']');
}

/* Answers the exit code of printing. */
static int print_as_json(const struct dataset *d, const struct check_result *r, const struct summary *s,
                         const struct told *told)
{
    struct js_out o = {0};
    js_out_open(&o, NULL, '{');
    js_out_text(&o, "layout", layout_name(d->layout));
    js_out_text(&o, "result", r->code ? "refused" : "sound");
    js_out_int(&o, "labeled", s->labeled);
    js_out_int(&o, "unlabeled", s->unlabeled);
    js_out_int(&o, "test", s->test);
    js_out_int(&o, "bad", r->n_bad);
    json_lines(&o, "problems", told, REPORT_PROBLEM);
    json_lines(&o, "warnings", told, REPORT_WARNING);
    json_lines(&o, "notes", told, REPORT_NOTE);
    json_classes(&o, d, r);
    json_duplicates(&o, d, r);
    json_cases(&o, d, r);
    js_out_close(&o, '}');
    return console_json(&o);
}

/* ---- the verb -------------------------------------------------------------------------------- */

/* Opens, checks and prints; the exit code. */
static int check_and_print(const struct config *c, struct told *told, struct pool *pool)
{
    struct dataset_options opening = config_dataset(c);
    struct dataset d;
    struct check_result r;
    struct summary s;
    struct error e = {0};
    opening.checking = 1;
    opening.report = &told->report;
    if (dataset_open(&d, c->args[0], &opening, &e) < 0)
        return complain(&e);
    int opened_badly = told->report.n_problems > 0;
    if (*d.note)
        report_line(&told->report, REPORT_NOTE, NULL, NULL, "%s", d.note);
    struct progress *progress = progress_begin(c, "checking", d.n_cases);
    struct check_options o = {.request = config_request(c),
                              .nan = (enum nan_policy)c->nan,
                              .skip_bad = c->skip_bad,
                              .patch = {c->set.patch[0], c->set.patch[1], c->set.patch[2]},
                              .labeled_batch = c->set.labeled_batch,
                              .pool = pool,
                              .report = &told->report,
                              .done = progress_count,
                              .arg = progress};
    int result = check_dataset(&r, &d, &o, &e);
    progress_end(progress);
    int code = 0;
    if (result < 0) {
        code = complain(&e);
    } else {
        if (opened_badly && r.code == ERR_NONE)
            r.code = ERR_DATA;
        summarise(&s, &d, &r);
        if (c->json)
            code = print_as_json(&d, &r, &s, told);
        else
            print_text(&d, &r, &s, told);
        code = code ? code : (int)r.code;
    }
    check_free(&r);
    dataset_free(&d);
    return code;
}

int verb_check(struct config *c)
{
    struct told told = {.report = {.line = told_keep}, .next = console_report(c)};
    struct pool *pool = NULL;
    struct error e = {0};
    int code = pool_new(&pool, (int)c->threads, &e) < 0 ? complain(&e) : check_and_print(c, &told, pool);
    pool_free(pool);
    told_free(&told);
    return code;
}
