/* check.c - one case after the other: read, measure, compare image with label. See check.h.
 *
 *     header -> wait until the budget has room -> image -> values, hash, landmarks -> free
 *                                              -> label -> grid, classes, copy of the image?
 *
 * Threads take cases as they come. What a case says is collected and told afterwards in case order,
 * so the output does not depend on threads. What concerns several cases is in check_set.c.
 */
#include "data/check.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "data/check_set.h"

/* ---- what a case has to say ------------------------------------------------------------------ */

void told_keep(struct report *r, enum report_kind kind, const char *text)
{
    struct told *t = (struct told *)r;
    if (t->next && kind != REPORT_NOTE)
        report_line(t->next, kind, NULL, NULL, "%s", text);
    struct told_line *grown = mem_resize(NULL, t->line, (size_t)t->n + 1, sizeof *grown);
    if (!grown)
        return; /* the counts of the report still tell */
    t->line = grown;
    t->line[t->n] = (struct told_line){kind, mem_string(NULL, text)};
    t->n += t->line[t->n].text != NULL;
}

void told_free(struct told *t)
{
    for (int i = 0; i < t->n; i++)
        mem_free(t->line[i].text);
    mem_free(t->line);
}

/* ---- memory in use by all threads ------------------------------------------------------------ */

/* Volumes being looked at take about this much together, or one case does. */
static const uint64_t budget_bytes = (uint64_t)2 << 30;

static void gate_enter(struct gate *g, uint64_t bytes)
{
    pthread_mutex_lock(&g->lock);
    while (g->used > 0 && g->used + bytes > budget_bytes)
        pthread_cond_wait(&g->changed, &g->lock);
    g->used += bytes;
    pthread_mutex_unlock(&g->lock);
}

static void gate_leave(struct gate *g, uint64_t bytes)
{
    pthread_mutex_lock(&g->lock);
    g->used -= bytes;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
}

/* ---- image ----------------------------------------------------------------------------------- */

/* Every channel must give numbers; the first one is hashed and searched for landmarks. */
static int look_at_values(struct check_case *c, struct landmarks *points, const struct volume *image,
                          enum nan_policy nan, struct error *e)
{
    for (int64_t channel = c->channels - 1; channel >= 0; channel--) {
        float *values;
        if (volume_floats(&values, image, channel, nan, e) < 0)
            return -1;
        int result = 0;
        if (channel == 0) {
            int64_t n = volume_voxels(image);
            c->constant = 1;
            for (int64_t i = 1; i < n && c->constant; i++)
                c->constant = values[i] == values[0];
            c->hash = hash_bytes(image->dims, 3 * sizeof image->dims[0], 0);
            c->hash = hash_bytes(values, (size_t)n * sizeof *values, c->hash);
            result = landmarks_find(points, values, image->dims, image->geometry.spacing_mm, e);
        }
        mem_free(values);
        if (result < 0)
            return -1;
    }
    return 0;
}

static int look_at_image(struct check_job *j, int i, const struct volume *image, struct error *e)
{
    struct check_case *c = &j->out->cases[i];
    struct volume_stats stats;
    const char *path = j->d->cases[i].images[0];
    memcpy(c->dims, image->dims, sizeof c->dims);
    memcpy(c->spacing_mm, image->geometry.spacing_mm, sizeof c->spacing_mm);
    c->channels = volume_channels(image);
    volume_measure(&stats, image);
    c->min = stats.min;
    c->max = stats.max;
    c->mean = stats.mean;
    if (look_at_values(c, &j->points[i], image, j->o->nan, e) < 0)
        return fail_in(e, path);
    if (c->constant && volume_voxels(image) > 1)
        report_line(&j->told[i].report, REPORT_WARNING, path, "N38", "constant: every voxel is %.6g", c->min);
    return 0;
}

/* ---- label ----------------------------------------------------------------------------------- */

/* A label that equals its image voxel for voxel was copied by mistake. */
static int is_copy(const struct volume *label, const struct volume *image)
{
    const label_t *classes = label->data;
    int64_t n = volume_voxels(label), filled = 0;
    for (int64_t i = 0; i < n; i++) {
        if (volume_value(image, i) != classes[i])
            return 0;
        filled += classes[i] != 0;
    }
    return filled > 0;
}

static int count_classes(struct check_case *c, const struct volume *label, struct error *e)
{
    const label_t *classes = label->data;
    int64_t n = volume_voxels(label);
    int highest = 0;
    for (int64_t i = 0; i < n; i++)
        highest = classes[i] > highest ? classes[i] : highest;
    c->voxels = mem_alloc(e, (size_t)highest + 1, sizeof *c->voxels);
    if (!c->voxels)
        return -1;
    c->n_classes = highest + 1;
    for (int64_t i = 0; i < n; i++)
        c->voxels[classes[i]]++;
    return 0;
}

static int look_at_label(struct check_job *j, int i, const struct volume *image, struct volume *label,
                         struct error *e)
{
    struct check_case *c = &j->out->cases[i];
    const struct data_case *of = &j->d->cases[i];
    if (dataset_match_label(j->d, of, image, label, e) < 0)
        return -1;
    if (count_classes(c, label, e) < 0)
        return -1;
    if (is_copy(label, image)) {
        fail(e, ERR_DATA, "L08", "every label voxel equals the image: a copy of it?");
        return fail_in(e, of->label);
    }
    if (dataset_highest_class(j->d, of, label, e) < 0)
        return -1;
    if (c->n_classes == 1)
        report_line(&j->told[i].report, REPORT_WARNING, of->label, "L07", "the label is all background");
    return 0;
}

/* ---- one case -------------------------------------------------------------------------------- */

/* Bytes that looking at a case takes: stored voxels, their floats, the label in two forms. For a
 * folder of DICOM slices the header costs as much as the whole; a CT of 512x512x400 stands for it.
 */
static int bytes_for(uint64_t *bytes, struct check_job *j, const struct data_case *c, struct error *e)
{
    struct volume header = {.dtype = DTYPE_I16, .dims = {512, 512, 400, 1, 1, 1, 1}};
    struct volume_request request = j->o->request;
    request.part = VOLUME_HEADER_ONLY;
    request.report = NULL;
    if (!io_is_folder(c->images[0]) && dataset_load_image(&header, j->d, c, &request, e) < 0)
        return -1;
    uint64_t n = (uint64_t)volume_voxels(&header);
    uint64_t stored = (uint64_t)volume_channels(&header) * dtype_bytes(header.dtype);
    *bytes = n * (stored + sizeof(float) + 2 * sizeof(label_t));
    volume_free(&header);
    return 0;
}

/* A file may vanish between listing and reading, or a json may promise it [L13]. */
static int is_there(const char *path, struct error *e)
{
    struct stat st;
    if (lstat(path, &st) == 0 || errno != ENOENT)
        return 0; /* what else is wrong shows when it is opened */
    fail(e, ERR_SYSTEM, "L13", "the file is not there");
    return fail_in(e, path);
}

static int look_at_case(struct check_job *j, int i, struct error *e)
{
    const struct data_case *c = &j->d->cases[i];
    struct volume_request request = j->o->request;
    struct volume image = {0}, label = {0};
    int result = -1;
    request.report = &j->told[i].report;
    if (dataset_load_image(&image, j->d, c, &request, e) < 0 || look_at_image(j, i, &image, e) < 0)
        goto out;
    if (c->label &&
        (dataset_load_label(&label, j->d, c, &request, e) < 0 || look_at_label(j, i, &image, &label, e) < 0))
        goto out;
    result = 0;
out:
    volume_free(&image);
    volume_free(&label);
    return result;
}

static void check_one(void *arg, int64_t i)
{
    struct check_job *j = arg;
    struct error e = {0};
    uint64_t bytes;
    const struct data_case *c = &j->d->cases[i];
    int result = 0;
    j->told[i].report.line = told_keep;
    for (int k = 0; k < c->n_images && result == 0; k++)
        result = is_there(c->images[k], &e);
    if (result == 0)
        result = c->label ? is_there(c->label, &e) : 0;
    if (result == 0)
        result = bytes_for(&bytes, j, c, &e);
    if (result == 0) {
        gate_enter(&j->gate, bytes);
        result = look_at_case(j, (int)i, &e);
        gate_leave(&j->gate, bytes);
    }
    if (result < 0) {
        j->out->cases[i].bad = e.code;
        report_line(&j->told[i].report, REPORT_PROBLEM, NULL, *e.id ? e.id : NULL, "%s", e.text);
    }
    if (j->o->done) {
        pthread_mutex_lock(&j->gate.lock);
        j->o->done(j->o->arg, ++j->n_done);
        pthread_mutex_unlock(&j->gate.lock);
    }
}

/* ---- all cases ------------------------------------------------------------------------------- */

/* Tells what the cases had to say. With skip_bad a bad case is a warning and no more. */
static void tell_all(struct check_job *j)
{
    for (int i = 0; i < j->d->n_cases; i++) {
        enum error_code bad = j->out->cases[i].bad;
        for (int k = 0; k < j->told[i].n; k++) {
            struct told_line *line = &j->told[i].line[k];
            int skip = j->o->skip_bad && line->kind == REPORT_PROBLEM;
            report_line(j->o->report, skip ? REPORT_WARNING : line->kind, NULL, NULL,
                        skip ? "skipped: %s" : "%s", line->text);
        }
        j->out->n_bad += bad != ERR_NONE;
        if (bad && !j->o->skip_bad) /* a system fault outweighs bad data: look there first */
            j->out->code = bad > j->out->code ? bad : j->out->code;
    }
}

int check_dataset(struct check_result *out, const struct dataset *d, const struct check_options *o,
                  struct error *e)
{
    struct check_job j = {.out = out,
                          .d = d,
                          .o = o,
                          .gate = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER}};
    int result = -1;
    size_t n = (size_t)d->n_cases;
    memset(out, 0, sizeof *out);
    out->n_cases = d->n_cases;
    out->cases = mem_alloc(e, n, sizeof *out->cases);
    j.told = mem_alloc(e, n, sizeof *j.told);
    j.points = mem_alloc(e, n, sizeof *j.points);
    if (!out->cases || !j.told || !j.points)
        goto out;
    pool_run(o->pool, d->n_cases, check_one, &j);
    tell_all(&j);
    result = check_set(&j, e);
out:
    for (int i = 0; i < d->n_cases && j.told; i++)
        told_free(&j.told[i]);
    for (int i = 0; i < d->n_cases && j.points; i++)
        mem_free(j.points[i].point);
    mem_free(j.told);
    mem_free(j.points);
    if (result < 0)
        check_free(out);
    return result;
}

void check_free(struct check_result *r)
{
    for (int i = 0; i < r->n_cases && r->cases; i++)
        mem_free(r->cases[i].voxels);
    mem_free(r->cases);
    mem_free(r->voxels);
    mem_free(r->cases_with);
    mem_free(r->twins);
    memset(r, 0, sizeof *r);
}
