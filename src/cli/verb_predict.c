/* verb_predict.c - `falx predict RUN -i IN -o OUT`: masks of scans on their own grids.
 *
 * IN is a scan, a DICOM folder or a folder of scans. OUT is a file for one scan, else a folder that gets
 * NAME.nii.gz and, if wanted, NAME_foreground, NAME_std and NAME_entropy, and uncertainty.json with the crop
 * and one score a case, of a part uncertainty-I-of-N.json. With --crop-labels a paper-* run crops each scan
 * around its label. Every output is looked at before the first scan is read,
 * and has a path of its own. The scores are written after each scan, so that --resume finds those of all
 * scans whose files are there.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "base/json.h"
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

/* The label of a scan by its name; of a lone scan the lone label, whatever its name. */
static const struct data_case *find_label(const struct dataset *labels, const struct dataset *d,
                                          const struct data_case *k, const struct config *c)
{
    if (labels->n_cases == 1 && d->n_cases == 1 && !c->part)
        return labels->cases;
    for (int i = 0; i < labels->n_cases; i++)
        if (strcmp(labels->cases[i].name, k->name) == 0)
            return &labels->cases[i];
    return NULL;
}

/* --crop-labels: sets the label of each scan. */
static int show_labels(struct dataset *d, const struct recipe *r, const struct config *c, struct error *e)
{
    struct dataset labels = {0};
    struct dataset_options o = config_dataset(c);
    if (!recipe_needs_label(r)) {
        fail(e, ERR_CONFIG, "C01",
             "the run's recipe %s crops around no label; expected a run under a paper-* recipe", r->name);
        return fail_in(e, "--crop-labels");
    }
    int result = dataset_open_scans(&labels, c->crop_labels, 1, &o, e);
    for (int i = 0; i < d->n_cases && result == 0; i++) {
        struct data_case *k = &d->cases[i];
        const struct data_case *found = find_label(&labels, d, k, c);
        if (!found)
            fail(e, ERR_DATA, "L01",
                 "no label of scan \"%.80s\"; without --crop-labels whole scans are predicted", k->name);
        if (!found || !(k->label = mem_string(e, found->images[0])))
            result = fail_in(e, c->crop_labels);
    }
    dataset_free(&labels);
    return result;
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

/* Even --force does not write a mask over the scan it is made from, or its label. */
static int check_output(const char *path, const struct data_case *k, const struct config *c, struct error *e)
{
    for (int i = 0; i < k->n_images; i++)
        if (io_is_same(path, k->images[i])) {
            fail(e, ERR_CONFIG, "O01", "this is a scan to predict, and would be replaced");
            return fail_in(e, path);
        }
    if (k->label && io_is_same(path, k->label)) {
        fail(e, ERR_CONFIG, "O01", "this is a label of --crop-labels, and would be replaced");
        return fail_in(e, path);
    }
    return predicting_check_output(path, c, e);
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
    int result = path ? predicting_check_output(path, c, e) : -1;
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
            int result = !path ? -1 : !is_wanted(c, k) ? 0 : check_output(path, &d->cases[i], c, e);
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

/* ---- scores of cases ------------------------------------------------------------------------- */

struct score {
    const char *name;
    double ambiguity;
};

struct scores { /* in the order in which the cases were predicted */
    struct score *of;
    int n;
    const char *crop;  /* what masks cover */
    struct js *before; /* what --resume found; owns its names */
};

static void scores_free(struct scores *s)
{
    js_free(s->before);
    mem_free(s->of);
}

/* Those of an earlier start, if it is resumed, and room for one of each case. */
static int read_scores(struct scores *s, const struct config *c, const struct dataset *d, struct error *e)
{
    char *path = scores_path(c, e);
    int found = path && c->resume && c->uncertainty && io_exists(path);
    int result = !path ? -1 : found ? js_read_file(&s->before, path, e) : 0;
    const struct js *cases = js_get(s->before, "cases");
    const char *crop = js_text(js_get(s->before, "crop"));
    if (crop && strcmp(crop, s->crop) != 0) {
        fail(e, ERR_BUSY, "K05", "masks of the earlier predict have crop = %.60s, expected %s", crop,
             s->crop);
        result = fail_in(e, path);
    }
    mem_free(path);
    if (result < 0 || !(s->of = mem_alloc(e, (size_t)(js_count(cases) + d->n_cases), sizeof *s->of)))
        return -1;
    for (int i = 0; i < js_count(cases); i++) {
        struct score of = {js_text(js_get(js_at(cases, i), "name")),
                           js_number(js_get(js_at(cases, i), "ambiguity"))};
        if (of.name && !isnan(of.ambiguity))
            s->of[s->n++] = of;
    }
    return 0;
}

/* Its place; s->n if there is none of this name. */
static int find_score(const struct scores *s, const char *name)
{
    int i = 0;
    while (i < s->n && strcmp(s->of[i].name, name) != 0)
        i++;
    return i;
}

static int write_scores(const struct config *c, const struct scores *s, struct error *e)
{
    struct js_out o = {0};
    char *path = scores_path(c, e);
    js_out_open(&o, NULL, '{');
    js_out_text(&o, "crop", s->crop);
    js_out_open(&o, "cases", '[');
    for (int i = 0; i < s->n; i++) {
        js_out_open(&o, NULL, '{');
        js_out_text(&o, "name", s->of[i].name);
        js_out_real(&o, "ambiguity", s->of[i].ambiguity);
        js_out_close(&o, '}');
    }
    js_out_close(&o, ']');
    js_out_close(&o, '}');
    int result = js_out_write(&o, path, 0666, e);
    mem_free(path);
    return result;
}

/* ---- all cases ------------------------------------------------------------------------------- */

/* 1 if every file that the run makes of the case is there, and its score where there is a list of them. */
static int is_done(const struct open_run *p, const struct config *c, const struct dataset *d,
                   const struct data_case *k, const struct scores *s, struct error *e)
{
    enum { STD = 2 };
    int done = !c->uncertainty || is_file_output(c, d) || find_score(s, k->name) < s->n;
    for (int i = 0; i < N_OUTPUTS && done > 0; i++) {
        if (!is_wanted(c, i) || (i == STD && !p->uncertainty.params))
            continue;
        char *path = output_path(c, d, k, i, e);
        done = path ? io_exists(path) : -1;
        mem_free(path);
    }
    return done;
}

/* For --resume: only the cases that are not done. *n_done gets the number of the others. */
static int keep_missing(int *n_done, struct dataset *d, const struct open_run *p, const struct config *c,
                        const struct scores *s, struct error *e)
{
    char *keep = mem_alloc(e, (size_t)d->n_cases, 1);
    int result = keep ? 0 : -1;
    *n_done = 0;
    for (int i = 0; i < d->n_cases && result == 0; i++) {
        int done = is_done(p, c, d, &d->cases[i], s, e);
        keep[i] = !done;
        *n_done += done > 0;
        result = done < 0 ? -1 : 0;
    }
    if (result == 0)
        dataset_keep(d, keep);
    mem_free(keep);
    return result;
}

/* A case to its files. The score of a lone file is printed with it, others are listed. */
static int predict_one(struct scores *s, struct open_run *p, const struct config *c, const struct dataset *d,
                       const struct data_case *k, struct error *e)
{
    struct scan_result r = {0};
    int result = predicting_case(&r, p, c, d, k, e);
    if (result == 0)
        result = write_outputs(c, d, k, &r, e);
    int at = find_score(s, k->name);
    if (result == 0) {
        s->of[at] = (struct score){k->name, r.ambiguity};
        s->n += at == s->n;
    }
    if (result == 0 && c->uncertainty && !is_file_output(c, d))
        result = write_scores(c, s, e);
    scan_result_free(&r);
    return result;
}

/* *made gets the number of masks; n_done are there already. */
static int predict_all(int *made, struct scores *s, struct open_run *p, const struct config *c,
                       const struct dataset *d, int n_done, struct error *e)
{
    struct progress *line = progress_begin(c, "predicting", n_done + d->n_cases);
    int result = 0;
    progress_skip(line, n_done);
    for (int i = 0; i < d->n_cases && result == 0; i++) {
        result = predict_one(s, p, c, d, &d->cases[i], e);
        *made += result == 0;
        if (result < 0 && predicting_skips(c, e))
            result = 0;
        progress_at(line, n_done + i + 1);
    }
    progress_end(line);
    if (result == 0 && d->n_cases > 0 && *made + n_done == 0) {
        fail(e, ERR_DATA, "L10", "no scan can be read");
        return fail_in(e, c->input);
    }
    return result;
}

static void tell(const struct config *c, const struct recipe *r, int made, int n_done, const struct scores *s)
{
    printf("%s: %d mask%s", c->output, made, made == 1 ? "" : "s");
    if (n_done > 0)
        printf(", %d %s there", n_done, n_done == 1 ? "was" : "were");
    if (c->uncertainty && made == 1 && s->n == 1)
        printf(", ambiguity %.4f", s->of[0].ambiguity);
    if (recipe_needs_label(r))
        printf(", crop: %s", s->crop);
    printf("\n");
}

int verb_predict(struct config *c)
{
    struct error e = {.code = ERR_NONE};
    struct open_run p = {0};
    struct dataset d = {0};
    struct scores s = {0};
    struct dataset_options o = config_dataset(c);
    int made = 0, n_done = 0;
    size_t missing = io_missing(c->output);
    int result = predicting_open(&p, c, c->uncertainty, &e);
    if (result == 0)
        result = dataset_open_scans(&d, c->input, p.facts.channels, &o, &e);
    if (result == 0)
        result = check_distinct(c, &d, &e);
    if (result == 0 && c->part)
        result = keep_part(&d, c->part, &e);
    if (result == 0 && c->crop_labels)
        result = show_labels(&d, &p.facts.recipe, c, &e);
    s.crop = predicting_crop(&p.facts.recipe, c->crop_labels != NULL);
    if (result == 0)
        result = read_scores(&s, c, &d, &e);
    if (result == 0 && c->resume)
        result = keep_missing(&n_done, &d, &p, c, &s, &e);
    if (result == 0 && c->uncertainty && !p.uncertainty.params)
        report_line(o.report, REPORT_NOTE, c->args[0], NULL,
                    "a %s run has no distribution of logits: entropy only, no standard deviation",
                    p.facts.method);
    if (result == 0 && d.n_cases > 0)
        result = check_outputs(c, &d, &e);
    if (result == 0)
        predicting_note_crop(c, &p.facts.recipe, c->crop_labels != NULL);
    if (result == 0)
        result = predict_all(&made, &s, &p, c, &d, n_done, &e);
    if (result < 0)
        io_remove_empty(c->output, missing); /* a folder that was made for nothing */
    if (result == 0 && !c->quiet)
        tell(c, &p.facts.recipe, made, n_done, &s);
    scores_free(&s);
    dataset_free(&d);
    open_run_close(&p);
    return result < 0 ? complain(&e) : 0;
}
