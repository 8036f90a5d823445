/* verb_predict.c - `falx predict RUN -i IN -o OUT`: masks of scans on their own grids.
 *
 * IN is a scan, a DICOM folder or a folder of scans. OUT is a file for one scan, else a folder that gets
 * NAME.nii.gz and, if wanted, NAME_foreground, NAME_std and NAME_entropy, and uncertainty.json with one
 * score a case, of a part uncertainty-I-of-N.json. Every output is looked at before the first scan is read,
 * and has a path of its own.
 */
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "cli/predicting.h"

/* Keeps every n-th case from the i-th, for `--part i/n`. */
static int keep_part(struct dataset *d, const char *part, struct error *e)
{
    int64_t i, n;
    if (part_parse(&i, &n, part, e) < 0)
        return -1;
    char *keep = mem_alloc(e, (size_t)d->n_cases, 1);
    if (!keep)
        return -1;
    for (int k = 0; k < d->n_cases; k++)
        keep[k] = k % n == i - 1;
    dataset_keep(d, keep);
    mem_free(keep);
    return 0;
}

/* Is OUT a file for the one scan? */
static int is_file_output(const struct config *c, const struct dataset *d)
{
    struct error ignored;
    return d->n_cases == 1 && !io_is_folder(c->output) && volume_can_write(c->output, &ignored) == 0;
}

/* What is written of a scan, each with what its name ends in. */
enum { N_OUTPUTS = 4 };
static const char *const suffixes[N_OUTPUTS] = {"", "_foreground", "_std", "_entropy"};

static int is_wanted(const struct config *c, int output)
{
    return output == 0 || (output == 1 ? c->prob : c->uncertainty);
}

/* With OUT a file, maps stand beside it. */
static char *output_path(const struct config *c, const struct dataset *d, const struct data_case *k,
                         int output, struct error *e)
{
    const char *name = path_name(c->output);
    if (!is_file_output(c, d))
        return mem_format(e, "%s/%s%s.nii.gz", c->output, k->name, suffixes[output]);
    if (output == 0)
        return mem_string(e, c->output);
    return mem_format(e, "%.*s%s.nii.gz", (int)((size_t)(name - c->output) + stem_length(name)), c->output,
                      suffixes[output]);
}

struct target { /* a file to write, and the scan it is made from */
    char *path;
    const struct data_case *scan;
};

/* By path, then in the order of the cases: the same message every time. */
static int compare_targets(const void *a, const void *b)
{
    const struct target *x = a, *y = b;
    int order = strcmp(x->path, y->path);
    return order ? order : (x->scan > y->scan) - (x->scan < y->scan);
}

/* Fills t[N_OUTPUTS * n_cases] as far as wanted; on error the *n so far are to be freed, too. */
static int list_targets(struct target *t, size_t *n, const struct config *c, const struct dataset *d,
                        struct error *e)
{
    for (int i = 0; i < d->n_cases; i++)
        for (int k = 0; k < N_OUTPUTS; k++) {
            if (!is_wanted(c, k))
                continue;
            t[*n].scan = &d->cases[i];
            if (!(t[*n].path = output_path(c, d, &d->cases[i], k, e)))
                return -1;
            (*n)++;
        }
    return 0;
}

/* The map a_std of a scan "a" and the mask of a scan "a_std" would be one file, and one of them be lost. All
 * parts of --part are looked at, since they may share OUT. */
static int check_distinct(const struct config *c, const struct dataset *d, struct error *e)
{
    size_t n = 0;
    struct target *t = mem_alloc(e, (size_t)d->n_cases, N_OUTPUTS * sizeof *t);
    int result = t ? list_targets(t, &n, c, d, e) : -1;
    if (result == 0)
        qsort(t, n, sizeof *t, compare_targets);
    for (size_t i = 1; i < n && result == 0; i++)
        if (strcmp(t[i - 1].path, t[i].path) == 0) {
            fail(e, ERR_CONFIG, "O01",
                 "made of %.80s and of %.80s, two files would have this name; rename a scan",
                 path_name(t[i - 1].scan->images[0]), path_name(t[i].scan->images[0]));
            result = fail_in(e, t[i].path);
        }
    for (size_t i = 0; i < n; i++)
        mem_free(t[i].path);
    mem_free(t);
    return result;
}

/* Even --force does not write a mask over the scan it is made from. */
static int check_output(const char *path, const struct data_case *k, int force, struct error *e)
{
    for (int i = 0; i < k->n_images; i++)
        if (io_is_same(path, k->images[i])) {
            fail(e, ERR_CONFIG, "O01", "this is a scan to predict, and would be replaced");
            return fail_in(e, path);
        }
    return io_check_output(path, force, e);
}

static char *scores_path(const struct config *c, struct error *e)
{
    const char *slash = c->part ? strchr(c->part, '/') : NULL;
    if (!slash)
        return path_join(e, c->output, "uncertainty.json");
    return mem_format(e, "%s/uncertainty-%.*s-of-%s.json", c->output, (int)(slash - c->part), c->part,
                      slash + 1);
}

static int check_scores(const struct config *c, struct error *e)
{
    char *path = scores_path(c, e);
    int result = path ? io_check_output(path, c->force, e) : -1;
    mem_free(path);
    return result;
}

static int check_outputs(const struct config *c, const struct dataset *d, struct error *e)
{
    int is_file = is_file_output(c, d);
    /* mask.mha for one scan is a file that cannot be written, not a folder */
    if (!is_file && !io_is_folder(c->input) && !io_is_folder(c->output) && strchr(path_name(c->output), '.'))
        return volume_can_write(c->output, e);
    if (!is_file && io_make_folders(c->output, e) < 0)
        return -1;
    for (int i = 0; i < d->n_cases; i++)
        for (int k = 0; k < N_OUTPUTS; k++) {
            char *path = output_path(c, d, &d->cases[i], k, e);
            int result = !path ? -1 : is_wanted(c, k) ? check_output(path, &d->cases[i], c->force, e) : 0;
            mem_free(path);
            if (result < 0)
                return -1;
        }
    return c->uncertainty && !is_file ? check_scores(c, e) : 0;
}

/* One scan's files. */
static int write_outputs(const struct config *c, const struct dataset *d, const struct data_case *k,
                         const struct scan_result *r, struct error *e)
{
    const struct volume *volumes[N_OUTPUTS] = {&r->label, &r->foreground, &r->std, &r->entropy};
    for (int i = 0; i < N_OUTPUTS; i++) {
        char *path = output_path(c, d, k, i, e);
        int result = !path ? -1 : volumes[i]->data ? volume_write(volumes[i], path, e) : 0;
        mem_free(path);
        if (result < 0)
            return -1;
    }
    return 0;
}

static int write_scores(const struct config *c, struct js_out *scores, struct error *e)
{
    char *path = scores_path(c, e);
    js_out_close(scores, ']');
    js_out_close(scores, '}');
    int result = js_out_write(scores, path, 0666, e);
    mem_free(path);
    return result;
}

/* The score of a lone file is printed with it; *last gets it. */
static int predict_all(double *last, struct open_run *p, const struct config *c, const struct dataset *d,
                       struct error *e)
{
    struct js_out scores = {0};
    struct progress *line = progress_begin(c, "predicting", d->n_cases);
    int result = 0;
    js_out_open(&scores, NULL, '{');
    js_out_open(&scores, "cases", '[');
    for (int i = 0; i < d->n_cases && result == 0; i++) {
        struct scan_result r = {0};
        result = predicting_case(&r, p, c, d, &d->cases[i], e);
        if (result == 0)
            result = write_outputs(c, d, &d->cases[i], &r, e);
        js_out_open(&scores, NULL, '{');
        js_out_text(&scores, "name", d->cases[i].name);
        js_out_real(&scores, "ambiguity", r.ambiguity);
        js_out_close(&scores, '}');
        *last = r.ambiguity;
        scan_result_free(&r);
        progress_at(line, i + 1);
    }
    progress_end(line);
    if (result == 0 && c->uncertainty && !is_file_output(c, d))
        return write_scores(c, &scores, e);
    mem_free(scores.text);
    return result;
}

int verb_predict(struct config *c)
{
    struct error e = {.code = ERR_NONE};
    struct open_run p = {0};
    struct dataset d = {0};
    struct dataset_options o = {.follow = c->follow, .geometry_tolerance_mm = c->geometry_tolerance_mm,
                                .report = console_report(c)};
    double ambiguity = 0.0;
    size_t missing = io_missing(c->output);
    int result = predicting_open(&p, c, c->uncertainty, &e);
    if (result == 0)
        result = dataset_open_scans(&d, c->input, p.facts.channels, &o, &e);
    if (result == 0)
        result = check_distinct(c, &d, &e);
    if (result == 0 && c->part)
        result = keep_part(&d, c->part, &e);
    if (result == 0 && c->uncertainty && !p.uncertainty.params)
        report_line(o.report, REPORT_NOTE, c->args[0], NULL,
                    "a %s run has no distribution of logits: entropy only, no standard deviation",
                    p.facts.method);
    if (result == 0)
        result = check_outputs(c, &d, &e);
    if (result == 0)
        result = predict_all(&ambiguity, &p, c, &d, &e);
    if (result < 0)
        io_remove_empty(c->output, missing); /* a folder that was made for nothing */
    if (result == 0 && !c->quiet) {
        printf("%s: %d mask%s", c->output, d.n_cases, d.n_cases == 1 ? "" : "s");
        printf(c->uncertainty && d.n_cases == 1 ? ", ambiguity %.4f\n" : "\n", ambiguity);
    }
    dataset_free(&d);
    open_run_close(&p);
    return result < 0 ? complain(&e) : 0;
}
