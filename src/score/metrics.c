/* metrics.c - scores of one case, class by class. See metrics.h for the definitions.
 *
 *   count     one pass over both label volumes: voxels and bounding box of every class
 *   surfaces  per class, inside the joint box of truth and prediction only: surface voxels, then
 *             the distances from one surface to the other and back
 *   corners   the same on the half-voxel grid, weighted by area
 *
 * Lists of distances are in a fixed order and summed in that order: same bits for any thread count.
 */
#include <math.h>
#include <string.h>

#include "score/distance.h"
#include "score/metrics.h"
#include "score/select.h"
#include "score/surface.h"

static const struct {
    const char *name;
    int is_distance;
} metric_table[METRIC_COUNT] = {
    [METRIC_DICE] = {"dice", 0},
    [METRIC_JACCARD] = {"jaccard", 0},
    [METRIC_ASD] = {"asd", 1},
    [METRIC_HD95] = {"hd95", 1},
    [METRIC_ASSD] = {"assd", 1},
    [METRIC_HD] = {"hd", 1},
    [METRIC_HD95_MONAI] = {"hd95_monai", 1},
    [METRIC_HD95_DEEPMIND] = {"hd95_deepmind", 1},
    [METRIC_NSD] = {"nsd", 0},
    [METRIC_VOLUME_ERROR] = {"volume_error", 0},
};

const char *metric_name(enum metric m)
{
    return metric_table[m].name;
}

int metric_is_distance(enum metric m)
{
    return metric_table[m].is_distance;
}

/* ---- counting ------------------------------------------------------------------------------ */

struct extent {
    int64_t n_truth, n_prediction, n_both;
    struct mask_box box; /* of truth and prediction together; meaningless if both are empty */
};

struct count_job {
    const label_t *truth, *prediction;
    const int64_t *dims;
    struct extent *extents; /* [n_slabs][n_classes] */
    int64_t n_slabs, n_classes;
};

static void extent_add(struct extent *x, int64_t x0, int64_t x1, int64_t y, int64_t z)
{
    const int64_t lo[3] = {x0, y, z}, hi[3] = {x1, y + 1, z + 1};
    int fresh = x->n_truth + x->n_prediction == 0;
    for (int a = 0; a < 3; a++) {
        x->box.lo[a] = fresh || lo[a] < x->box.lo[a] ? lo[a] : x->box.lo[a];
        x->box.hi[a] = fresh || hi[a] > x->box.hi[a] ? hi[a] : x->box.hi[a];
    }
}

/* Enters one run of voxels [x0, x1) that all carry truth t and prediction p. */
static void count_run(struct extent *extents, label_t t, label_t p, const int64_t x[2], int64_t y, int64_t z)
{
    if (t) {
        extent_add(&extents[t], x[0], x[1], y, z);
        extents[t].n_truth += x[1] - x[0];
    }
    if (p) {
        extent_add(&extents[p], x[0], x[1], y, z);
        extents[p].n_prediction += x[1] - x[0];
        extents[p].n_both += t == p ? x[1] - x[0] : 0;
    }
}

static int row_is_empty(const label_t *t, const label_t *p, int64_t n)
{
    label_t any = 0;
    for (int64_t x = 0; x < n; x++)
        any = (label_t)(any | t[x] | p[x]);
    return !any;
}

static void count_slab(void *arg, int64_t slab)
{
    const struct count_job *j = arg;
    struct extent *extents = j->extents + slab * j->n_classes;
    int64_t nx = j->dims[0], ny = j->dims[1], nz = j->dims[2];
    for (int64_t z = nz * slab / j->n_slabs; z < nz * (slab + 1) / j->n_slabs; z++)
        for (int64_t y = 0; y < ny; y++) {
            const label_t *t = j->truth + (z * ny + y) * nx;
            const label_t *p = j->prediction + (z * ny + y) * nx;
            if (row_is_empty(t, p, nx))
                continue;
            for (int64_t x[2] = {0, 0}; x[0] < nx; x[0] = x[1]) {
                for (x[1] = x[0] + 1; x[1] < nx && t[x[1]] == t[x[0]] && p[x[1]] == p[x[0]];)
                    x[1]++;
                count_run(extents, t[x[0]], p[x[0]], x, y, z);
            }
        }
}

static void extent_merge(struct extent *into, const struct extent *from)
{
    if (from->n_truth + from->n_prediction == 0)
        return;
    for (int a = 0; a < 3; a++) {
        int fresh = into->n_truth + into->n_prediction == 0;
        if (fresh || from->box.lo[a] < into->box.lo[a])
            into->box.lo[a] = from->box.lo[a];
        if (fresh || from->box.hi[a] > into->box.hi[a])
            into->box.hi[a] = from->box.hi[a];
    }
    into->n_truth += from->n_truth;
    into->n_prediction += from->n_prediction;
    into->n_both += from->n_both;
}

enum { SLABS = 16 }; /* enough to balance a few threads */

struct top_job {
    const label_t *truth, *prediction;
    int64_t voxels;
    label_t top[SLABS];
};

static void find_top(void *arg, int64_t slab)
{
    struct top_job *j = arg;
    const label_t *t = j->truth, *p = j->prediction;
    label_t top = 0;
    for (int64_t i = j->voxels * slab / SLABS; i < j->voxels * (slab + 1) / SLABS; i++) {
        label_t higher = t[i] > p[i] ? t[i] : p[i];
        top = higher > top ? higher : top;
    }
    j->top[slab] = top;
}

static label_t highest_class(const label_t *truth, const label_t *prediction, int64_t voxels,
                             struct pool *pool)
{
    struct top_job job = {truth, prediction, voxels, {0}};
    label_t top = 0;
    pool_run(pool, SLABS, find_top, &job);
    for (int s = 0; s < SLABS; s++)
        top = job.top[s] > top ? job.top[s] : top;
    return top;
}

/* *out: one extent per class number 0..highest. */
static int count_classes(struct extent **out, label_t *highest, const struct label_pair *pair,
                         struct pool *pool, struct error *e)
{
    const int64_t *dims = pair->dims;
    label_t top = highest_class(pair->truth, pair->prediction, dims[0] * dims[1] * dims[2], pool);
    struct count_job job = {pair->truth, pair->prediction, dims, NULL, 0, (int64_t)top + 1};
    /* with many class numbers, a table for each slab would cost more than it saves */
    job.n_slabs = top < 1024 && dims[2] >= SLABS ? SLABS : 1;
    job.extents = mem_alloc(e, (size_t)(job.n_slabs * job.n_classes), sizeof *job.extents);
    if (!job.extents)
        return -1;
    pool_run(pool, job.n_slabs, count_slab, &job);
    for (int64_t s = 1; s < job.n_slabs; s++)
        for (int64_t c = 0; c < job.n_classes; c++)
            extent_merge(&job.extents[c], &job.extents[s * job.n_classes + c]);
    *out = job.extents;
    *highest = top;
    return 0;
}

/* ---- one class ----------------------------------------------------------------------------- */

static void score_clear(struct class_score *s, label_t class)
{
    memset(s, 0, sizeof *s);
    s->class = class;
    for (int m = 0; m < METRIC_COUNT; m++)
        s->value[m] = NAN;
}

static void score_overlap(struct class_score *s)
{
    double t = (double)s->n_truth, p = (double)s->n_prediction, both = (double)s->n_both;
    if (t + p > 0) {
        s->value[METRIC_DICE] = 2 * both / (t + p);
        s->value[METRIC_JACCARD] = both / (t + p - both);
    }
    if (t > 0)
        s->value[METRIC_VOLUME_ERROR] = (p - t) / t;
    if ((t > 0) != (p > 0))
        s->value[METRIC_NSD] = 0;
}

/* An empty prediction under the paper's protocol: see enum metric_protocol. */
static void score_apply_protocol(struct class_score *s, const struct metric_options *o)
{
    if (o->protocol != METRIC_PROTOCOL_PAPER || s->n_prediction > 0)
        return;
    s->value[METRIC_DICE] = s->value[METRIC_JACCARD] = 0;
    s->value[METRIC_ASD] = s->value[METRIC_HD95] = 0;
}

static double list_mean(const struct distance_list *l)
{
    double sum = 0;
    for (int64_t i = 0; i < l->n; i++)
        sum += l->value[i];
    return sum / (double)l->n;
}

static double list_largest(const struct distance_list *l)
{
    double top = 0;
    for (int64_t i = 0; i < l->n; i++)
        top = l->value[i] > top ? l->value[i] : top;
    return top;
}

/* Percentile of both lists taken as one. */
static int pooled_percentile(double *out, const struct distance_list *a, const struct distance_list *b,
                             struct error *e)
{
    double *all = mem_alloc(e, (size_t)(a->n + b->n), sizeof *all);
    if (!all)
        return -1;
    memcpy(all, a->value, (size_t)a->n * sizeof *all);
    memcpy(all + a->n, b->value, (size_t)b->n * sizeof *all);
    int result = select_percentile(out, all, a->n + b->n, 0.95, e);
    mem_free(all);
    return result;
}

/* Both directions' distances between the two surfaces marked in `marks`. */
static int both_ways(struct distance_list *to_truth, struct distance_list *to_prediction,
                     const uint8_t *marks, const int64_t dims[3], const double spacing[3], struct pool *pool,
                     struct error *e)
{
    struct distance *d = NULL;
    int result = -1;
    if (distance_new(&d, dims, spacing, pool, e) < 0)
        return -1;
    if (distance_between(to_truth, d, marks, SURFACE_PREDICTION, SURFACE_TRUTH, e) < 0 ||
        distance_between(to_prediction, d, marks, SURFACE_TRUTH, SURFACE_PREDICTION, e) < 0)
        goto out;
    result = 0;
out:
    distance_free(d);
    return result;
}

static int score_voxel_surfaces(struct class_score *s, const struct mask_pair *m, const double spacing[3],
                                struct pool *pool, struct error *e)
{
    struct distance_list to_truth = {0}, to_prediction = {0};
    double one, other;
    int result = -1;
    size_t voxels = (size_t)(m->dims[0] * m->dims[1] * m->dims[2]);
    uint8_t *marks = mem_alloc(e, voxels, 1);
    if (!marks)
        return -1;
    surface_mark_voxels(marks, m, pool);
    if (both_ways(&to_truth, &to_prediction, marks, m->dims, spacing, pool, e) < 0)
        goto out;
    s->value[METRIC_ASD] = list_mean(&to_truth);
    s->value[METRIC_ASSD] = 0.5 * (s->value[METRIC_ASD] + list_mean(&to_prediction));
    s->value[METRIC_HD] = fmax(list_largest(&to_truth), list_largest(&to_prediction));
    if (pooled_percentile(&s->value[METRIC_HD95], &to_truth, &to_prediction, e) < 0 ||
        select_percentile(&one, to_truth.value, to_truth.n, 0.95, e) < 0 ||
        select_percentile(&other, to_prediction.value, to_prediction.n, 0.95, e) < 0)
        goto out;
    s->value[METRIC_HD95_MONAI] = fmax(one, other);
    result = 0;
out:
    distance_list_free(&to_truth);
    distance_list_free(&to_prediction);
    mem_free(marks);
    return result;
}

struct area_sums {
    double total, near; /* all of it, and what lies within the tolerance of the other surface */
    double percentile;  /* distance within which 95 % of the area lies */
};

static int sum_areas(struct area_sums *out, const struct distance_list *l, const struct mask_pair *m,
                     uint8_t bit, const double area[256], double tolerance, struct error *e)
{
    double *weight = mem_alloc(e, (size_t)l->n, sizeof *weight);
    if (!weight)
        return -1;
    out->total = out->near = 0;
    for (int64_t i = 0; i < l->n; i++) {
        weight[i] = area[surface_code(m, l->at[i], bit)];
        out->total += weight[i];
        out->near += l->value[i] <= tolerance ? weight[i] : 0;
    }
    /* the last factor lets a sum that equals 95 % but for rounding count as reached */
    double target = 0.95 * out->total * (1 - 1e-12);
    int result = select_weighted(&out->percentile, l->value, weight, l->n, target, e);
    mem_free(weight);
    return result;
}

static int score_corner_surfaces(struct class_score *s, const struct mask_pair *m, const double spacing[3],
                                 double tolerance, struct pool *pool, struct error *e)
{
    const int64_t dims[3] = {m->dims[0] + 1, m->dims[1] + 1, m->dims[2] + 1};
    struct distance_list to_truth = {0}, to_prediction = {0};
    struct area_sums prediction, truth;
    double area[256];
    int result = -1;
    uint8_t *marks = mem_alloc(e, (size_t)(dims[0] * dims[1] * dims[2]), 1);
    if (!marks)
        return -1;
    surface_areas(area, spacing);
    surface_mark_corners(marks, m, pool);
    if (both_ways(&to_truth, &to_prediction, marks, dims, spacing, pool, e) < 0 ||
        sum_areas(&prediction, &to_truth, m, SURFACE_PREDICTION, area, tolerance, e) < 0 ||
        sum_areas(&truth, &to_prediction, m, SURFACE_TRUTH, area, tolerance, e) < 0)
        goto out;
    s->value[METRIC_HD95_DEEPMIND] = fmax(prediction.percentile, truth.percentile);
    s->value[METRIC_NSD] = (prediction.near + truth.near) / (prediction.total + truth.total);
    result = 0;
out:
    distance_list_free(&to_truth);
    distance_list_free(&to_prediction);
    mem_free(marks);
    return result;
}

/* ---- one case ------------------------------------------------------------------------------ */

struct class_input {
    const struct label_pair *pair;
    const double *spacing; /* in the protocol's unit */
    const struct metric_options *options;
    struct pool *pool;
};

static int score_class(struct class_score *s, const struct class_input *in, const struct extent *x,
                       label_t class, struct error *e)
{
    struct mask_pair m = {0};
    int result = -1;
    score_clear(s, class);
    s->n_truth = x->n_truth;
    s->n_prediction = x->n_prediction;
    s->n_both = x->n_both;
    score_overlap(s);
    score_apply_protocol(s, in->options);
    if (x->n_truth == 0 || x->n_prediction == 0)
        return 0;
    if (mask_pair_new(&m, in->pair, &x->box, class, in->pool, e) < 0 ||
        score_voxel_surfaces(s, &m, in->spacing, in->pool, e) < 0 ||
        score_corner_surfaces(s, &m, in->spacing, in->options->nsd_tolerance, in->pool, e) < 0)
        goto out;
    result = 0;
out:
    mask_pair_free(&m);
    return result;
}

int metrics_measure(struct case_score *out, const struct label_pair *pair, const struct metric_options *o,
                    struct pool *pool, struct error *e)
{
    static const double voxels[3] = {1, 1, 1};
    const double *spacing = o->protocol == METRIC_PROTOCOL_PAPER ? voxels : pair->spacing_mm;
    struct class_input in = {pair, spacing, o, pool};
    struct extent *extents = NULL;
    label_t highest;
    int result = -1;
    memset(out, 0, sizeof *out);
    if (count_classes(&extents, &highest, pair, pool, e) < 0)
        return -1;
    int n = 0;
    for (int c = 1; c <= highest; c++)
        n += extents[c].n_truth + extents[c].n_prediction > 0;
    out->classes = mem_alloc(e, (size_t)n, sizeof *out->classes);
    if (!out->classes)
        goto out;
    for (int c = 1; c <= highest; c++) {
        if (extents[c].n_truth + extents[c].n_prediction == 0)
            continue;
        if (score_class(&out->classes[out->n_classes], &in, &extents[c], (label_t)c, e) < 0)
            goto out;
        out->n_classes++;
    }
    result = 0;
out:
    mem_free(extents);
    if (result < 0)
        case_score_free(out);
    return result;
}

void case_score_free(struct case_score *c)
{
    mem_free(c->name);
    mem_free(c->classes);
    memset(c, 0, sizeof *c);
}
