/* regrid.c - resampling of whole volumes: all channels, any type, affine moved along.
 *
 * volume_resample() is the separable core of resample.c with a volume around it.
 * volume_resample_like() brings a volume onto any grid of the same patient space. The map from
 * output index to input index is inverse(affine_in) * affine_out; if it is diagonal after
 * exchanging and reversing axes, the separable way is taken, else every output voxel looks up its
 * own position ("oblique").
 */
#include <math.h>
#include <string.h>

#include "volume/resample.h"

/* ---- aligned --------------------------------------------------------------------------------- */

struct nearest_job {
    char *out;
    const char *in;
    size_t each;
    int64_t dims[3], to[3];
    struct resample_axis axis[3];
};

static int64_t nearest_index(const struct resample_axis *a, int64_t o, int64_t n)
{
    double x = floor(a->start + a->step * (double)o + 0.5);
    return x < 0.0 ? 0 : x > (double)(n - 1) ? n - 1 : (int64_t)x;
}

/* Slice number s runs over the output slices of all channels. */
static void nearest_slice(void *arg, int64_t s)
{
    const struct nearest_job *job = arg;
    int64_t channel = s / job->to[2];
    int64_t k = nearest_index(&job->axis[2], s % job->to[2], job->dims[2]) + channel * job->dims[2];
    char *out = job->out + (size_t)(s * job->to[0] * job->to[1]) * job->each;
    for (int64_t j = 0; j < job->to[1]; j++) {
        int64_t j_in = nearest_index(&job->axis[1], j, job->dims[1]);
        const char *row = job->in + (size_t)(job->dims[0] * (j_in + job->dims[1] * k)) * job->each;
        for (int64_t i = 0; i < job->to[0]; i++, out += job->each) {
            int64_t i_in = nearest_index(&job->axis[0], i, job->dims[0]);
            memcpy(out, row + (size_t)i_in * job->each, job->each);
        }
    }
}

static void fill_nearest(struct volume *out, const struct volume *in,
                         const struct resample_axis axis[3], struct pool *pool)
{
    struct nearest_job job = {.out = out->data, .in = in->data, .each = dtype_bytes(in->dtype)};
    for (int a = 0; a < 3; a++) {
        job.dims[a] = in->dims[a];
        job.to[a] = out->dims[a];
        job.axis[a] = axis[a];
    }
    pool_run(pool, out->dims[2] * volume_channels(out), nearest_slice, &job);
}

static int fill_classes(struct volume *out, const struct volume *in,
                        const struct resample_axis axis[3], struct pool *pool, struct error *e)
{
    label_t *labels = NULL, *made = NULL;
    int status = -1;
    if (volume_channels(in) != 1) {
        return fail(e, ERR_DATA, NULL, "a label volume has %lld channels, allowed 1",
                    (long long)volume_channels(in));
    }
    if (volume_labels(&labels, NULL, in, e) < 0)
        goto out;
    if (resample_classes(&made, labels, in->dims, axis, RESAMPLE_SMOOTH, pool, e) < 0)
        goto out;
    memcpy(out->data, made, (size_t)volume_voxels(out) * sizeof *made);
    status = 0;
out:
    mem_free(labels);
    mem_free(made);
    return status;
}

static int fill_floats(struct volume *out, const struct volume *in,
                       const struct resample_axis axis[3], enum resample_kind kind,
                       struct pool *pool, struct error *e)
{
    int64_t channels = volume_channels(in), voxels = volume_voxels(out);
    for (int64_t c = 0; c < channels; c++) {
        float *values = NULL, *made = NULL;
        int failed = volume_floats(&values, in, c, NAN_REFUSE, e) < 0 ||
                     resample_floats(&made, values, in->dims, axis, kind, pool, e) < 0;
        mem_free(values);
        if (!failed)
            memcpy((float *)out->data + c * voxels, made, (size_t)voxels * sizeof *made);
        mem_free(made);
        if (failed)
            return -1;
    }
    return 0;
}

static enum dtype result_dtype(const struct volume *in, enum resample_kind kind)
{
    return kind == RESAMPLE_NEAREST ? in->dtype : kind == RESAMPLE_CLASSES ? DTYPE_U16 : DTYPE_F32;
}

/* Values other than those of NEAREST are made with the scaling applied. */
static void drop_scaling(struct volume *out, enum resample_kind kind)
{
    if (kind == RESAMPLE_NEAREST)
        return;
    out->slope = 1.0;
    out->inter = 0.0;
}

int volume_resample(struct volume *out, const struct volume *in, const struct resample_axis axis[3],
                    enum resample_kind kind, struct pool *pool, struct error *e)
{
    const int64_t dims[3] = {axis[0].n, axis[1].n, axis[2].n};
    struct index_map map = {{{0}}};
    int status = 0;
    for (int a = 0; a < 3; a++) {
        map.m[a][a] = axis[a].step;
        map.m[a][3] = axis[a].start;
    }
    if (volume_new_like(out, in, result_dtype(in, kind), dims, &map, e) < 0)
        return -1;
    drop_scaling(out, kind);
    if (kind == RESAMPLE_NEAREST)
        fill_nearest(out, in, axis, pool);
    else if (kind == RESAMPLE_CLASSES)
        status = fill_classes(out, in, axis, pool, e);
    else
        status = fill_floats(out, in, axis, kind, pool, e);
    if (status < 0)
        volume_free(out);
    return status;
}

int volume_resample_spacing(struct volume *out, const struct volume *in, const double target_mm[3],
                            enum resample_kind kind, struct pool *pool, struct error *e)
{
    struct resample_axis axis[3];
    memset(out, 0, sizeof *out);
    for (int a = 0; a < 3; a++) {
        double have = in->geometry.spacing_mm[a], want = target_mm[a];
        if (!(have > 0.0) || !isfinite(have) || !(want >= 0.0) || !isfinite(want)) {
            return fail(e, ERR_DATA, NULL, "spacing %g mm to %g mm on axis %d, allowed > 0", have,
                        want, a);
        }
        if (want > 0.0)
            resample_axis_centred(&axis[a], in->dims[a], have, want);
        else
            resample_axis_identity(&axis[a], in->dims[a]);
    }
    return volume_resample(out, in, axis, kind, pool, e);
}

int volume_resample_zoom(struct volume *out, const struct volume *in, const int64_t dims[3],
                         enum resample_kind kind, struct pool *pool, struct error *e)
{
    struct resample_axis axis[3];
    for (int a = 0; a < 3; a++)
        resample_axis_ends(&axis[a], in->dims[a], dims[a]);
    return volume_resample(out, in, axis, kind, pool, e);
}

/* ---- any grid -------------------------------------------------------------------------------- */

struct oblique_job {
    struct volume *out;
    const struct volume *in;
    const float
        *values; /* of the channel at hand: samples, spline coefficients, or NULL (NEAREST) */
    const label_t *labels;
    int64_t channel;
    enum resample_kind kind;
    struct index_map map;
    double outside;
};

/* Indices and weights around x along an axis of n voxels; returns how many. */
static int position_taps(int64_t index[4], double weight[4], double x, int64_t n,
                         enum resample_kind kind)
{
    x = fmin(fmax(x, 0.0), (double)(n - 1));
    if (kind == RESAMPLE_CUBIC) {
        spline_taps(index, weight, x, n);
        return 4;
    }
    index[0] = (int64_t)floor(x);
    index[1] = index[0] + 1 < n ? index[0] + 1 : index[0];
    weight[1] = x - (double)index[0];
    weight[0] = 1.0 - weight[1];
    return 2;
}

static double oblique_value(const struct oblique_job *job, const double x[3])
{
    const int64_t *dims = job->in->dims;
    int64_t index[3][4];
    double weight[3][4], sum = 0.0;
    int n = 0;
    for (int a = 0; a < 3; a++)
        n = position_taps(index[a], weight[a], x[a], dims[a], job->kind);
    for (int c = 0; c < n; c++) {
        for (int b = 0; b < n; b++) {
            const float *row = job->values + dims[0] * (index[1][b] + dims[1] * index[2][c]);
            double part = 0.0;
            for (int a = 0; a < n; a++)
                part += weight[0][a] * (double)row[index[0][a]];
            sum += weight[2][c] * weight[1][b] * part;
        }
    }
    return sum;
}

/* The class of largest linear weight among the eight neighbours, ties to the lower class. */
static label_t oblique_class(const struct oblique_job *job, const double x[3])
{
    const int64_t *dims = job->in->dims;
    int64_t index[3][4];
    double weight[3][4], of[8], best = 0.0;
    label_t class[8], winner = 0;
    int n = 0;
    for (int a = 0; a < 3; a++)
        position_taps(index[a], weight[a], x[a], dims[a], RESAMPLE_LINEAR);
    for (int t = 0; t < 8; t++) {
        int a = t & 1, b = t >> 1 & 1, c = t >> 2, found = 0;
        double w = weight[0][a] * weight[1][b] * weight[2][c];
        label_t l = job->labels[index[0][a] + dims[0] * (index[1][b] + dims[1] * index[2][c])];
        while (found < n && class[found] != l)
            found++;
        if (found == n) {
            class[n] = l;
            of[n++] = 0.0;
        }
        of[found] += w;
    }
    for (int t = 0; t < n; t++) {
        int tie = fabs(of[t] - best) < 1e-9;
        if (t > 0 && (tie ? class[t] >= winner : of[t] < best))
            continue;
        best = of[t];
        winner = class[t];
    }
    return winner;
}

static int64_t oblique_nearest(const struct oblique_job *job, const double x[3])
{
    const int64_t *dims = job->in->dims;
    int64_t i[3];
    for (int a = 0; a < 3; a++) {
        double at = floor(x[a] + 0.5);
        i[a] = at < 0.0 ? 0 : at > (double)(dims[a] - 1) ? dims[a] - 1 : (int64_t)at;
    }
    return i[0] + dims[0] * (i[1] + dims[1] * (i[2] + dims[2] * job->channel));
}

/* Writes a scaled value into a voxel of any type. */
static void put_scaled(struct volume *v, int64_t at, double value)
{
    double stored = (value - v->inter) / (v->slope != 0.0 ? v->slope : 1.0);
    char *to = (char *)v->data + (size_t)at * dtype_bytes(v->dtype);
    switch (v->dtype) {
    case DTYPE_F32: {
        float f = (float)stored;
        memcpy(to, &f, sizeof f);
        break;
    }
    case DTYPE_F64:
        memcpy(to, &stored, sizeof stored);
        break;
    default: {
        int64_t whole = (int64_t)rint(stored); /* low bytes first: hosts are little-endian */
        memcpy(to, &whole, dtype_bytes(v->dtype));
    }
    }
}

static int position_inside(const double x[3], const int64_t dims[3])
{
    for (int a = 0; a < 3; a++) {
        if (!(x[a] >= -0.5 && x[a] <= (double)dims[a] - 0.5))
            return 0;
    }
    return 1;
}

static void oblique_slice(void *arg, int64_t k)
{
    const struct oblique_job *job = arg;
    struct volume *out = job->out;
    size_t each = dtype_bytes(out->dtype);
    int64_t at = (k + out->dims[2] * job->channel) * out->dims[0] * out->dims[1];
    for (int64_t j = 0; j < out->dims[1]; j++) {
        for (int64_t i = 0; i < out->dims[0]; i++, at++) {
            double x[3];
            for (int a = 0; a < 3; a++) {
                const double *m = job->map.m[a];
                x[a] = m[0] * (double)i + m[1] * (double)j + m[2] * (double)k + m[3];
            }
            if (!position_inside(x, job->in->dims)) {
                put_scaled(out, at, job->outside);
            } else if (job->labels) {
                ((label_t *)out->data)[at] = oblique_class(job, x);
            } else if (job->values) {
                ((float *)out->data)[at] = (float)oblique_value(job, x);
            } else {
                memcpy((char *)out->data + (size_t)at * each,
                       (const char *)job->in->data + (size_t)oblique_nearest(job, x) * each, each);
            }
        }
    }
}

static int fill_oblique(struct oblique_job *job, struct pool *pool, struct error *e)
{
    int64_t channels = job->kind == RESAMPLE_CLASSES ? 1 : volume_channels(job->in);
    for (job->channel = 0; job->channel < channels; job->channel++) {
        float *values = NULL;
        label_t *labels = NULL;
        int failed = 0;
        if (job->kind == RESAMPLE_CLASSES) {
            failed = volume_labels(&labels, NULL, job->in, e) < 0;
        } else if (job->kind != RESAMPLE_NEAREST) {
            failed = volume_floats(&values, job->in, job->channel, NAN_REFUSE, e) < 0;
        }
        if (!failed && job->kind == RESAMPLE_CUBIC) {
            failed = spline_coefficients(values, job->in->dims, pool, e) < 0;
        }
        job->values = values;
        job->labels = labels;
        if (!failed)
            pool_run(pool, job->out->dims[2], oblique_slice, job);
        mem_free(values);
        mem_free(labels);
        if (failed)
            return -1;
    }
    return 0;
}

/* Positions of the separable way are clamped; those outside of the input get `outside`. */
static void fill_outside(struct volume *out, const struct resample_axis axis[3],
                         const int64_t dims[3], double outside)
{
    int64_t at = 0, slices = out->dims[2] * volume_channels(out);
    for (int64_t s = 0; s < slices; s++) {
        for (int64_t j = 0; j < out->dims[1]; j++) {
            for (int64_t i = 0; i < out->dims[0]; i++, at++) {
                const double x[3] = {axis[0].start + axis[0].step * (double)i,
                                     axis[1].start + axis[1].step * (double)j,
                                     axis[2].start + axis[2].step * (double)(s % out->dims[2])};
                if (!position_inside(x, dims))
                    put_scaled(out, at, outside);
            }
        }
    }
}

/* 1 if the map only scales and shifts: off by less than 1e-4 voxel over the whole grid. */
static int map_is_aligned(struct resample_axis axis[3], const struct index_map *map,
                          const int64_t dims[3])
{
    for (int a = 0; a < 3; a++) {
        double off = 0.0;
        for (int b = 0; b < 3; b++) {
            if (b != a)
                off += fabs(map->m[a][b]) * (double)dims[b];
        }
        if (off > 1e-4 || map->m[a][a] <= 0.0)
            return 0;
        axis[a].n = dims[a];
        axis[a].step = map->m[a][a];
        axis[a].start = map->m[a][3];
    }
    return 1;
}

static int resample_turned(struct volume *out, const struct volume *turned,
                           const struct geometry *grid, const int64_t dims[3],
                           enum resample_kind kind, double outside, struct pool *pool,
                           struct error *e)
{
    struct oblique_job job = {.out = out, .in = turned, .kind = kind, .outside = outside};
    struct resample_axis axis[3];
    double inverse[3][4];
    if (affine_invert(inverse, turned->geometry.affine) < 0) {
        return fail(e, ERR_DATA, NULL, "the affine is singular");
    }
    affine_multiply(job.map.m, (const double(*)[4])inverse, grid->affine);
    if (map_is_aligned(axis, &job.map, dims)) {
        if (volume_resample(out, turned, axis, kind, pool, e) < 0)
            return -1;
        fill_outside(out, axis, turned->dims, outside);
        return 0;
    }
    if (volume_new_like(out, turned, result_dtype(turned, kind), dims, &job.map, e) < 0)
        return -1;
    drop_scaling(out, kind);
    return fill_oblique(&job, pool, e);
}

int volume_resample_like(struct volume *out, const struct volume *in, const struct geometry *grid,
                         const int64_t dims[3], enum resample_kind kind, double outside,
                         struct pool *pool, struct error *e)
{
    struct volume turned = {0};
    char orientation[4];
    int status = -1;
    memset(out, 0, sizeof *out);
    geometry_orientation(orientation, grid);
    if (volume_reorient(&turned, in, orientation, e) < 0)
        goto out;
    if (resample_turned(out, &turned, grid, dims, kind, outside, pool, e) < 0)
        goto out;
    out->geometry = *grid;
    status = 0;
out:
    volume_free(&turned);
    if (status < 0)
        volume_free(out);
    return status;
}
