/* report_read.c - what a report is made from: run.json, metrics.sqlite, scores, PNG files. See report.h.
 *
 * All of it may come from anywhere: sizes are bounded, a picture must at least begin like one, numbers that
 * are not there are NaN, and facts are copied as text, whatever they hold.
 */
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "base/json.h"
#include "report/report.h"

enum {
    MAX_CASES = 10000, /* more than any set of the field */
    MAX_CURVES = 64,   /* a method notes a dozen numbers */
    MAX_PICTURES = 500,
    MAX_PICTURE_BYTES = 16 << 20,
    MAX_ALL_BYTES = 256 << 20 /* of all pictures: a browser still opens the page */
};

const enum metric report_metric[REPORT_METRICS] = {METRIC_DICE, METRIC_JACCARD, METRIC_ASD, METRIC_HD95};
const char *const report_title[REPORT_METRICS] = {"Dice", "Jaccard", "ASD", "95HD"};

int report_is_share(int m)
{
    return !metric_is_distance(report_metric[m]);
}

/* ---- scores ------------------------------------------------------------------------------------ */

static void read_summary(double mean[REPORT_METRICS], double sd[REPORT_METRICS], const struct js *json)
{
    for (int m = 0; m < REPORT_METRICS; m++) {
        const char *name = metric_name(report_metric[m]);
        mean[m] = js_number(js_get(js_get(json, "mean"), name));
        sd[m] = js_number(js_get(js_get(json, "sd"), name));
    }
}

static int read_cases(struct report_scores *s, const struct js *cases, struct error *e)
{
    int n = js_count(cases);
    if (!js_is_array(cases) || n < 1 || n > MAX_CASES)
        return fail(e, ERR_DATA, "C01", "no scores of cases: expected what `falx eval --json` prints");
    s->names = mem_alloc(e, (size_t)n, sizeof *s->names);
    s->dice = mem_alloc(e, (size_t)n, sizeof *s->dice);
    if (!s->names || !s->dice)
        return -1;
    for (int i = 0; i < n; i++) {
        const char *name = js_text(js_get(js_at(cases, i), "name"));
        s->dice[i] = js_number(js_get(js_get(js_at(cases, i), "mean"), "dice"));
        if (!(s->names[i] = mem_string(e, name ? name : "")))
            return -1;
        s->n_cases = i + 1;
    }
    return 0;
}

static void read_classes(struct report_scores *s, const struct js *classes)
{
    void *place = NULL;
    const char *key;
    const struct js *value;
    int64_t number;
    while (s->n_classes < REPORT_CLASSES && js_next(&place, &key, &value, classes)) {
        if (parse_int(&number, key) < 0 || number < 0 || number > 65535)
            continue;
        double mean[REPORT_METRICS], sd[REPORT_METRICS];
        read_summary(mean, sd, value);
        s->class_number[s->n_classes] = (int)number;
        s->class_mean[s->n_classes] = mean[0];
        s->class_sd[s->n_classes++] = sd[0];
    }
}

int report_scores_of(struct report_scores *out, const struct js *json, struct error *e)
{
    const char *unit = js_text(js_get(json, "unit"));
    memset(out, 0, sizeof *out);
    if (read_cases(out, js_get(json, "cases"), e) < 0) {
        report_scores_free(out);
        return -1;
    }
    snprintf(out->unit, sizeof out->unit, "%s", unit ? unit : "");
    read_summary(out->mean, out->sd, json);
    out->has_empty = js_number(js_get(json, "n_empty_predictions")) > 0;
    read_classes(out, js_get(json, "classes"));
    return 0;
}

int report_scores_read(struct report_scores *out, const char *path, struct error *e)
{
    struct js *json = NULL;
    memset(out, 0, sizeof *out);
    if (js_read_file(&json, path, e) < 0)
        return -1;
    int result = report_scores_of(out, json, e);
    if (result < 0)
        fail_in(e, path);
    js_free(json);
    return result;
}

static void free_texts(char **text, int n)
{
    for (int i = 0; text && i < n; i++)
        mem_free(text[i]);
    mem_free(text);
}

void report_scores_free(struct report_scores *s)
{
    free_texts(s->names, s->n_cases);
    mem_free(s->dice);
    memset(s, 0, sizeof *s);
}

/* ---- facts -------------------------------------------------------------------------------------- */

/* Members of run.json that are shown: none of them is a path. */
static const struct {
    const char *key, *name;
} shown[] = {
    {"trained_method", "method"},
    {"preset", "preset"},
    {"seed", "seed"},
    {"steps", "steps of a phase"},
    {"max-time", "time limit"},
    {"budget", "time allowed"},
    {NULL, "seconds taken"}, /* from metrics.sqlite */
    {"labeled_cases", "labelled cases"},
    {"unlabeled_cases", "unlabelled cases"},
    {"validation_cases", "validation cases"},
    {"n_classes", "classes, with background"},
    {"image_channels", "channels"},
    {"network_patch", "patch"},
    {"batch", "batch"},
    {"labeled-batch", "of it labelled"},
    {"filters", "filters"},
    {"augment", "augmentation"},
    {"optimizer", "update rule"},
    {"schedule", "learning rate over time"},
    {"lr", "learning rate"},
    {"precision_used", "precision"},
    {"processor", "processor"},
    {"data_hash", "hash of the data"},
    {"falx", "falx"},
};
enum { N_SHOWN = sizeof shown / sizeof *shown };

/* Text of a value: numbers short, lists of numbers with a times sign, of anything else their length. */
static char *value_text(const struct js *v, struct error *e)
{
    int64_t n, side[3];
    double x;
    int flag;
    if (js_text(v))
        return mem_string(e, js_text(v));
    if (js_int(&n, v) == 0)
        return mem_format(e, "%lld", (long long)n);
    if (js_real(&x, v) == 0)
        return mem_format(e, "%.6g", x);
    if (js_is_bool(&flag, v))
        return mem_string(e, flag ? "yes" : "no");
    if (js_count(v) == 3 && js_int(&side[0], js_at(v, 0)) == 0 && js_int(&side[1], js_at(v, 1)) == 0 &&
        js_int(&side[2], js_at(v, 2)) == 0)
        return mem_format(e, "%lld × %lld × %lld", (long long)side[0], (long long)side[1],
                          (long long)side[2]);
    return mem_format(e, "%d", js_count(v));
}

static int read_facts(struct report_run *r, const struct js *json, struct error *e)
{
    const char *method = js_text(js_get(json, "trained_method"));
    r->facts = mem_alloc(e, N_SHOWN, sizeof *r->facts);
    r->method = mem_string(e, method ? method : "");
    if (!r->facts || !r->method)
        return -1;
    for (int i = 0; i < N_SHOWN; i++) {
        const struct js *v = shown[i].key ? js_get(json, shown[i].key) : NULL;
        r->facts[i].name = shown[i].name;
        r->n_facts = i + 1;
        if (v && !(r->facts[i].value = value_text(v, e)))
            return -1;
    }
    return 0;
}

static int read_class_names(struct report_run *r, const struct js *names, struct error *e)
{
    int n = js_count(names) < 256 ? js_count(names) : 256; /* labels are stored in a byte */
    if (n == 0)
        return 0;
    if (!(r->class_names = mem_alloc(e, (size_t)n, sizeof *r->class_names)))
        return -1;
    for (int i = 0; i < n; i++) {
        const char *text = js_text(js_at(names, i));
        if (!(r->class_names[i] = mem_string(e, text ? text : "")))
            return -1;
        r->n_class_names = i + 1;
    }
    return 0;
}

static int read_run_json(struct report_run *r, const char *folder, struct error *e)
{
    struct js *json = NULL;
    char *path = path_join(e, folder, "run.json");
    int result = -1;
    if (!path)
        return -1;
    if (!io_exists(path)) {
        fail(e, ERR_DATA, "L01", "no run.json here: not a run folder");
        fail_in(e, folder);
    } else if (js_read_file(&json, path, e) == 0) {
        result = read_facts(r, json, e);
        if (result == 0)
            result = read_class_names(r, js_get(json, "class_names"), e);
    }
    js_free(json);
    mem_free(path);
    return result;
}

/* ---- curves ------------------------------------------------------------------------------------- */

/* Takes `value`. */
static void set_fact(struct report_run *r, const char *name, char *value)
{
    for (int i = 0; i < r->n_facts; i++)
        if (value && strcmp(r->facts[i].name, name) == 0) {
            mem_free(r->facts[i].value);
            r->facts[i].value = value;
            return;
        }
    mem_free(value);
}

static int read_seconds(struct report_run *r, struct runs *store, struct error *e)
{
    char *text;
    if (runs_fact(&text, store, "seconds", e) < 0)
        return -1;
    if (!text || parse_real(&r->seconds, text) < 0)
        r->seconds = NAN;
    set_fact(r, "seconds taken", text);
    return 0;
}

static int read_all_curves(struct report_run *r, struct runs *store, struct error *e)
{
    int n;
    char **names;
    if (runs_names(&names, &n, store, e) < 0)
        return -1;
    r->curve_names = names;
    r->n_curves = n;
    if (n > MAX_CURVES)
        return fail(e, ERR_DATA, NULL, "%d kinds of numbers, at most %d are drawn", n, MAX_CURVES);
    if (!(r->curves = mem_alloc(e, (size_t)n, sizeof *r->curves)))
        return -1;
    for (int i = 0; i < n; i++)
        if (runs_curve(&r->curves[i], store, names[i], e) < 0)
            return -1;
    return runs_validation(&r->validation, store, e);
}

static int read_metrics(struct report_run *r, const char *folder, struct error *e)
{
    struct runs *store;
    char *path = path_join(e, folder, "metrics.sqlite");
    int there = path ? io_find(path, e) : -1, result = there == 0 ? 0 : -1;
    if (there == 1 && runs_open_reading(&store, path, e) == 0) {
        result = read_seconds(r, store, e);
        if (result == 0)
            result = read_all_curves(r, store, e);
        runs_close(store);
    }
    mem_free(path);
    return result;
}

/* The last component of a path, trailing slashes aside. */
static char *folder_name(const char *folder, struct error *e)
{
    size_t n = strlen(folder);
    while (n > 1 && folder[n - 1] == '/')
        n--;
    char *whole = mem_format(e, "%.*s", (int)n, folder);
    char *name = whole ? mem_string(e, path_name(whole)) : NULL;
    mem_free(whole);
    return name;
}

int report_run_read(struct report_run *out, const char *folder, struct error *e)
{
    memset(out, 0, sizeof *out);
    out->seconds = NAN;
    if (!(out->name = folder_name(folder, e)) || read_run_json(out, folder, e) < 0 ||
        read_metrics(out, folder, e) < 0) {
        report_run_free(out);
        return -1;
    }
    return 0;
}

void report_run_free(struct report_run *r)
{
    for (int i = 0; i < r->n_facts; i++)
        mem_free(r->facts[i].value);
    mem_free(r->facts);
    free_texts(r->class_names, r->n_class_names);
    for (int i = 0; r->curves && i < r->n_curves; i++)
        runs_curve_free(&r->curves[i]);
    mem_free(r->curves);
    free_texts(r->curve_names, r->n_curves);
    runs_curve_free(&r->validation);
    report_scores_free(&r->scores);
    mem_free(r->name);
    mem_free(r->method);
    memset(r, 0, sizeof *r);
}

/* ---- pictures ------------------------------------------------------------------------------------ */

static int read_png(struct report_picture *p, const char *path, struct error *e)
{
    static const unsigned char mark[8] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};
    uint64_t bytes;
    int fd, result = -1;
    if (io_open_regular(&fd, &bytes, path, e) < 0)
        return fail_in(e, path);
    if (bytes < sizeof mark || bytes > MAX_PICTURE_BYTES)
        fail(e, ERR_DATA, NULL, "%llu bytes, pictures have 8..%d", (unsigned long long)bytes,
             MAX_PICTURE_BYTES);
    else if ((p->png = mem_alloc(e, (size_t)bytes, 1)) != NULL) {
        ssize_t got = io_read_full(fd, p->png, (size_t)bytes);
        if (got != (ssize_t)bytes)
            fail(e, ERR_SYSTEM, "Z12", "cannot be read to its end");
        else if (memcmp(p->png, mark, sizeof mark) != 0)
            fail(e, ERR_DATA, NULL, "not a PNG picture");
        else
            result = 0;
        p->bytes = (size_t)bytes;
    }
    io->close(fd);
    return result < 0 ? fail_in(e, path) : 0;
}

static int add_picture(struct report_pictures *p, const char *folder, const char *group, const char *file,
                       struct error *e)
{
    size_t all = 0;
    for (int i = 0; i < p->n; i++)
        all += p->picture[i].bytes;
    if (p->n == MAX_PICTURES || all > MAX_ALL_BYTES) {
        fail(e, ERR_DATA, NULL, "more than %d pictures or %d MiB", MAX_PICTURES, MAX_ALL_BYTES >> 20);
        return fail_in(e, folder);
    }
    struct report_picture *more = mem_resize(e, p->picture, (size_t)p->n + 1, sizeof *more);
    if (!more)
        return -1;
    p->picture = more;
    struct report_picture *new = &more[p->n++];
    *new = (struct report_picture){.group = mem_string(e, group)};
    new->name = mem_format(e, "%.*s", (int)(strlen(file) - strlen(".png")), file);
    char *path = path_join(e, folder, file);
    int result = new->group &&new->name &&path ? read_png(new, path, e) : -1;
    mem_free(path);
    return result;
}

static int read_group(struct report_pictures *p, const char *folder, const char *group, struct error *e)
{
    struct io_listing l = {0};
    int result = io_list(&l, folder, e);
    for (int i = 0; i < l.n && result == 0; i++)
        if (!l.entry[i].is_folder && text_ends_with(l.entry[i].name, ".png") && l.entry[i].name[0] != '.')
            result = add_picture(p, folder, group, l.entry[i].name, e);
    for (int i = 0; i < l.n && result == 0 && !*group; i++)
        if (l.entry[i].is_folder && l.entry[i].name[0] != '.') {
            char *sub = path_join(e, folder, l.entry[i].name);
            result = sub ? read_group(p, sub, l.entry[i].name, e) : -1;
            mem_free(sub);
        }
    io_listing_free(&l);
    return result;
}

int report_pictures_read(struct report_pictures *out, const char *folder, struct error *e)
{
    memset(out, 0, sizeof *out);
    if (read_group(out, folder, "", e) == 0)
        return 0;
    report_pictures_free(out);
    return -1;
}

void report_pictures_free(struct report_pictures *p)
{
    for (int i = 0; i < p->n; i++) {
        mem_free(p->picture[i].group);
        mem_free(p->picture[i].name);
        mem_free(p->picture[i].png);
    }
    mem_free(p->picture);
    memset(p, 0, sizeof *p);
}
