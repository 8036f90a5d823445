/* verb_pseudo.c - `falx pseudo RUN DATASET -o OUT`: proposed labels for the unlabelled training cases, and
 * which of them a person should look at first.
 *
 *     OUT/labels/NAME.nii.gz       proposed label, on the scan's own grid
 *     OUT/confidence/NAME.nii.gz   1 - entropy, 0..1
 *     OUT/ranking.json             cases from the most to the least ambiguous
 *
 * The ranking is written after each case, so that --resume finds all cases whose files are there.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "base/json.h"
#include "cli/predicting.h"

struct ranked {
    const char *name;
    double ambiguity, volume_mm3;
};

static int most_ambiguous_first(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    if (x->ambiguity != y->ambiguity)
        return x->ambiguity < y->ambiguity ? 1 : -1;
    return strcmp(x->name, y->name);
}

static void invert(struct volume *entropy)
{
    float *v = entropy->data;
    for (int64_t i = 0, n = volume_voxels(entropy); i < n; i++)
        v[i] = 1.0f - v[i];
}

static double foreground_mm3(const struct volume *label)
{
    const uint8_t *v = label->data;
    const double *mm = label->geometry.spacing_mm;
    int64_t count = 0;
    for (int64_t i = 0, n = volume_voxels(label); i < n; i++)
        count += v[i] != 0;
    return (double)count * mm[0] * mm[1] * mm[2];
}

static int propose(struct ranked *out, struct open_run *p, const struct config *c, const struct dataset *d,
                   const struct data_case *k, const char *const folder[2], struct error *e)
{
    struct scan_result r;
    if (predicting_case(&r, p, c, d, k, e) < 0)
        return -1;
    *out = (struct ranked){k->name, r.ambiguity, foreground_mm3(&r.label)};
    invert(&r.entropy);
    int result = predicting_write(&r.label, folder[0], k->name, "", e);
    if (result == 0)
        result = predicting_write(&r.entropy, folder[1], k->name, "", e);
    scan_result_free(&r);
    return result;
}

/* Sorts and writes; *text, if not NULL, gets what was written. */
static int write_ranking(char **text, const struct config *c, struct ranked *ranked, int n, struct error *e)
{
    struct js_out o = {0};
    char *written = NULL, *path = path_join(e, c->output, "ranking.json");
    int result = -1;
    qsort(ranked, (size_t)n, sizeof *ranked, most_ambiguous_first);
    js_out_open(&o, NULL, '{');
    js_out_open(&o, "cases", '[');
    for (int i = 0; i < n; i++) {
        js_out_open(&o, NULL, '{');
        js_out_int(&o, "rank", i + 1);
        js_out_text(&o, "name", ranked[i].name);
        js_out_real(&o, "ambiguity", ranked[i].ambiguity);
        js_out_real(&o, "foreground_mm3", ranked[i].volume_mm3);
        js_out_close(&o, '}');
    }
    js_out_close(&o, ']');
    js_out_close(&o, '}');
    if (js_out_take(&written, &o, e) == 0 && path)
        result = io_write_all(path, 0666, written, strlen(written), e);
    mem_free(path);
    if (text)
        *text = written;
    else
        mem_free(written);
    return result;
}

static int tell(const struct config *c, struct ranked *ranked, int n, struct error *e)
{
    char *text = NULL, shown[256];
    int result = write_ranking(&text, c, ranked, n, e);
    if (result == 0 && c->json)
        printf("%s", text);
    for (int i = 0; result == 0 && !c->json && !c->quiet && i < n; i++)
        printf("%4d  %-40s  ambiguity %.4f%s\n", i + 1, text_escape(shown, sizeof shown, ranked[i].name),
               ranked[i].ambiguity, ranked[i].volume_mm3 > 0 ? "" : "  empty");
    mem_free(text);
    return result;
}

static int is_unlabeled(const struct data_case *k)
{
    return k->split == SPLIT_TRAIN && !k->label;
}

static int has_files(const struct data_case *k, const char *const folder[2], struct error *e)
{
    int found = 1;
    for (int i = 0; i < 2 && found > 0; i++) {
        char *path = mem_format(e, "%s/%s.nii.gz", folder[i], k->name);
        found = path ? io_exists(path) : -1;
        mem_free(path);
    }
    return found;
}

/* 1, and *out, if the list of ranking.json has the case. */
static int find_ranked(struct ranked *out, const struct js *list, const char *name)
{
    for (int i = 0; i < js_count(list); i++) {
        const struct js *entry = js_at(list, i);
        const char *its = js_text(js_get(entry, "name"));
        *out = (struct ranked){name, js_number(js_get(entry, "ambiguity")),
                               js_number(js_get(entry, "foreground_mm3"))};
        if (its && strcmp(its, name) == 0)
            return !isnan(out->ambiguity) && !isnan(out->volume_mm3);
    }
    return 0;
}

/* For --resume: the cases that were ranked before and have their files. Returns how many. */
static int read_ranking(struct ranked *out, const struct config *c, const struct dataset *d,
                        const char *const folder[2], struct error *e)
{
    struct js *before = NULL;
    char *path = path_join(e, c->output, "ranking.json");
    int n = 0, found = !path ? -1 : io_exists(path) ? js_read_file(&before, path, e) : 0;
    mem_free(path);
    for (int i = 0; i < d->n_cases && found >= 0; i++) {
        const struct data_case *k = &d->cases[i];
        found = is_unlabeled(k) && find_ranked(&out[n], js_get(before, "cases"), k->name)
                    ? has_files(k, folder, e)
                    : 0;
        n += found > 0;
    }
    js_free(before);
    return found < 0 ? -1 : n;
}

static int is_ranked(const struct ranked *ranked, int n, const char *name)
{
    int i = 0;
    while (i < n && strcmp(ranked[i].name, name) != 0)
        i++;
    return i < n;
}

/* Every file that will be written, before the first scan is read. */
static int check_outputs(const struct config *c, const struct dataset *d, const char *const folder[2],
                         struct error *e)
{
    char *list = path_join(e, c->output, "ranking.json");
    int result = list && io_make_folders(folder[0], e) == 0 && io_make_folders(folder[1], e) == 0
                     ? predicting_check_output(list, c, e)
                     : -1;
    mem_free(list);
    for (int i = 0; i < 2 * d->n_cases && result == 0; i++) {
        const struct data_case *k = &d->cases[i / 2];
        char *path = mem_format(e, "%s/%s.nii.gz", folder[i % 2], k->name);
        result = !path ? -1 : is_unlabeled(k) ? predicting_check_output(path, c, e) : 0;
        mem_free(path);
    }
    return result;
}

static int propose_all(struct open_run *p, const struct config *c, const struct dataset *d, struct error *e)
{
    int n = dataset_count(d, SPLIT_TRAIN, 0), done = 0, result = -1;
    struct progress *line = progress_begin(c, "proposing", n);
    struct ranked *ranked = mem_alloc(e, (size_t)n, sizeof *ranked);
    char *labels = path_join(e, c->output, "labels"), *sure = path_join(e, c->output, "confidence");
    const char *const folder[2] = {labels, sure};
    size_t missing[2] = {labels ? io_missing(labels) : 0, sure ? io_missing(sure) : 0};
    if (!ranked || !labels || !sure || check_outputs(c, d, folder, e) < 0)
        goto out;
    if (c->resume && (done = read_ranking(ranked, c, d, folder, e)) < 0)
        goto out;
    progress_skip(line, done);
    for (int i = 0; i < d->n_cases; i++) {
        const struct data_case *k = &d->cases[i];
        if (!is_unlabeled(k) || is_ranked(ranked, done, k->name))
            continue;
        if (propose(&ranked[done], p, c, d, k, folder, e) == 0) {
            progress_at(line, ++done);
            if (write_ranking(NULL, c, ranked, done, e) < 0)
                goto out;
        } else if (!predicting_skips(c, e)) {
            goto out;
        }
    }
    progress_end(line);
    line = NULL;
    if (done == 0) {
        fail(e, ERR_DATA, "L10", "no unlabelled case can be read");
        fail_in(e, c->args[1]);
        goto out;
    }
    result = tell(c, ranked, done, e);
out:
    for (int i = 0; i < 2 && result < 0 && missing[i]; i++)
        io_remove_empty(folder[i], missing[i]);
    progress_end(line);
    mem_free(ranked);
    mem_free(labels);
    mem_free(sure);
    return result;
}

/* Proposals in the data set, or in a folder of its scans or labels, would be taken for cases of it. */
static int spare_dataset(const char *output, const struct dataset *d, struct error *e)
{
    int same = io_is_same(output, d->root);
    for (int i = 0; i < 2 * d->n_cases && !same; i++) {
        const struct data_case *k = &d->cases[i / 2];
        const char *file = i % 2 ? k->label : k->images[0];
        char *folder = file ? path_folder(e, file) : NULL;
        if (file && !folder)
            return -1;
        same = folder && io_is_same(output, folder);
        mem_free(folder);
    }
    if (!same)
        return 0;
    fail(e, ERR_CONFIG, "O01", "this is the data set: proposals would lie among its scans or labels");
    return fail_in(e, output);
}

int verb_pseudo(struct config *c)
{
    struct error e = {.code = ERR_NONE};
    struct open_run p = {0};
    struct dataset d = {0};
    struct dataset_options o = config_dataset(c);
    int result = predicting_open(&p, c, 1, &e);
    if (result == 0)
        predicting_note_crop(c, &p.facts.recipe, 0);
    if (result == 0)
        result = dataset_open(&d, c->args[1], &o, &e);
    if (result == 0 && dataset_count(&d, SPLIT_TRAIN, 0) == 0) {
        result = fail(&e, ERR_DATA, "L10", "no unlabelled training case; --labeled N hides labels");
        fail_in(&e, c->args[1]);
    }
    if (result == 0)
        result = spare_dataset(c->output, &d, &e);
    if (result == 0)
        result = propose_all(&p, c, &d, &e);
    dataset_free(&d);
    open_run_close(&p);
    return result < 0 ? complain(&e) : 0;
}
