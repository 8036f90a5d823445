/* regrid.c - whole volumes on another grid: all channels, any type, the affine moved along.
 *
 * Exchange and reversal of axes, crop and pad keep voxels bit for bit: output rows are read from
 * the input with a signed stride, and elements are moved as 1, 2, 4 or 8 bytes; nothing looks at
 * values. volume_resample() puts a volume around the separable core of resample.c.
 *
 * The affine follows by affine_out = affine_in * map, where map takes output to input indices:
 *
 *     permute    input[axis[a]] = flip[a] ? n - 1 - output[a] : output[a]
 *     crop       input[a]       = output[a] + first[a]
 *     resample   input[a]       = start[a] + step[a] * output[a]
 */
#include <math.h>
#include <string.h>

#include "volume/resample.h"

/* A zeroed volume with the channels, scaling and format of `in` but another type and shape, in the
 * same place of the patient: output index (i, j, k) is input index map * (i, j, k, 1). */
static int new_like(struct volume *out, const struct volume *in, enum dtype t, const int64_t dims[3],
                    const double map[3][4], struct error *e)
{
    double affine[3][4];
    size_t n = 1;
    *out = *in;
    out->data = NULL;
    out->dtype = t;
    out->n_dims = in->n_dims < 3 ? 3 : in->n_dims;
    memcpy(out->dims, dims, 3 * sizeof dims[0]);
    affine_multiply(affine, in->geometry.affine, map);
    geometry_from_affine(&out->geometry, (const double(*)[4])affine);
    out->geometry.known = in->geometry.known;
    for (int a = 0; a < VOLUME_MAX_DIMS; a++)
        if (out->dims[a] < 1 || size_mul(&n, n, (size_t)out->dims[a]) < 0 ||
            n > volume_default_limits.bytes / dtype_bytes(t)) {
            fail(e, ERR_DATA, NULL, "the new grid of %lldx%lldx%lld is none of at most %llu bytes",
                 (long long)dims[0], (long long)dims[1], (long long)dims[2],
                 (unsigned long long)volume_default_limits.bytes);
            goto failed;
        }
    out->data = mem_alloc(e, n, dtype_bytes(t));
    if (out->data)
        return 0;
failed:
    volume_free(out);
    return -1;
}

/* ---- bit for bit ----------------------------------------------------------------------------- */

/* n elements from `in`, `stride` elements apart (any sign), to consecutive places. */
static void copy_strided(void *out, const void *in, int64_t n, int64_t stride, size_t each)
{
    if (stride == 1)
        memcpy(out, in, (size_t)n * each);
    else if (each == 1)
        for (int64_t i = 0; i < n; i++)
            ((uint8_t *)out)[i] = ((const uint8_t *)in)[i * stride];
    else if (each == 2)
        for (int64_t i = 0; i < n; i++)
            ((uint16_t *)out)[i] = ((const uint16_t *)in)[i * stride];
    else if (each == 4)
        for (int64_t i = 0; i < n; i++)
            ((uint32_t *)out)[i] = ((const uint32_t *)in)[i * stride];
    else
        for (int64_t i = 0; i < n; i++)
            ((uint64_t *)out)[i] = ((const uint64_t *)in)[i * stride];
}

void volume_gather(void *out, const struct volume *v, const int64_t dims[VOLUME_MAX_DIMS],
                   const int64_t stride[VOLUME_MAX_DIMS], int64_t start)
{
    size_t each = dtype_bytes(v->dtype);
    int64_t index[VOLUME_MAX_DIMS] = {0};
    for (char *to = out;; to += (size_t)dims[0] * each) {
        copy_strided(to, (const char *)v->data + (size_t)start * each, dims[0], stride[0], each);
        int a = 1; /* the next row */
        for (; a < VOLUME_MAX_DIMS && ++index[a] == dims[a]; a++) {
            start -= (dims[a] - 1) * stride[a];
            index[a] = 0;
        }
        if (a == VOLUME_MAX_DIMS)
            return;
        start += stride[a];
    }
}

int volume_permute(struct volume *out, const struct volume *in, const int axis[3], const int flip[3],
                   struct error *e)
{
    int64_t stride_in[VOLUME_MAX_DIMS], stride[VOLUME_MAX_DIMS], dims[3], n = 1, start = 0;
    double map[3][4] = {{0}};
    for (int a = 0; a < VOLUME_MAX_DIMS; a++, n *= in->dims[a - 1])
        stride[a] = stride_in[a] = n;
    for (int a = 0; a < 3; a++) {
        int from = axis[a];
        int64_t last = in->dims[from] - 1;
        dims[a] = in->dims[from];
        stride[a] = flip[a] ? -stride_in[from] : stride_in[from];
        start += flip[a] ? stride_in[from] * last : 0;
        map[from][a] = flip[a] ? -1.0 : 1.0;
        map[from][3] = flip[a] ? (double)last : 0.0;
    }
    if (new_like(out, in, in->dtype, dims, (const double(*)[4])map, e) < 0)
        return -1;
    volume_gather(out->data, in, out->dims, stride, start);
    return 0;
}

void geometry_permute(struct geometry *out, const struct volume *in, const int axis[3], const int flip[3])
{
    double affine[3][4];
    for (int row = 0; row < 3; row++) {
        const double *from = in->geometry.affine[row];
        affine[row][3] = from[3];
        for (int a = 0; a < 3; a++) {
            double step = from[axis[a]];
            affine[row][a] = flip[a] ? -step : step;
            affine[row][3] += flip[a] ? step * (double)(in->dims[axis[a]] - 1) : 0.0;
        }
    }
    geometry_from_affine(out, (const double(*)[4])affine);
}

int volume_find_turn(int axis[3], int flip[3], const struct volume *v, const struct volume *grid,
                     double tolerance_mm)
{
    char wanted[4];
    struct geometry turned;
    if (!v->geometry.known || !grid->geometry.known)
        return 0;
    if (memcmp(v->dims, grid->dims, 3 * sizeof *v->dims) == 0 &&
        geometry_distance_mm(&v->geometry, &grid->geometry, v->dims) <= tolerance_mm)
        return 0;
    geometry_orientation(wanted, &grid->geometry);
    if (orientation_axes(axis, flip, &v->geometry, wanted, NULL) < 0)
        return -1;
    for (int a = 0; a < 3; a++)
        if (v->dims[axis[a]] != grid->dims[a])
            return -1;
    geometry_permute(&turned, v, axis, flip);
    return geometry_distance_mm(&turned, &grid->geometry, grid->dims) <= tolerance_mm ? 1 : -1;
}

int volume_turn_onto(struct volume *v, const struct volume *grid, double tolerance_mm, struct error *e)
{
    int axis[3], flip[3];
    struct volume turned;
    if (volume_find_turn(axis, flip, v, grid, tolerance_mm) != 1)
        return 0;
    if (volume_permute(&turned, v, axis, flip, e) < 0)
        return -1;
    volume_free(v);
    *v = turned;
    return 0;
}

int volume_unpermute(struct volume *out, const struct volume *in, const int axis[3], const int flip[3],
                     struct error *e)
{
    int back[3], back_flip[3];
    for (int a = 0; a < 3; a++) {
        back[axis[a]] = a;
        back_flip[axis[a]] = flip[a];
    }
    return volume_permute(out, in, back, back_flip, e);
}

int orientation_axes(int axis[3], int flip[3], const struct geometry *g, const char *orientation,
                     struct error *e)
{
    static const char letters[] = "RASLPI"; /* patient axis and, three further, its opposite */
    int have[3], sign[3], seen = 0;
    geometry_axes(have, sign, g);
    for (int a = 0; a < 3 && strlen(orientation) == 3; a++) {
        const char *letter = strchr(letters, orientation[a]);
        int want = letter ? (int)(letter - letters) : 0;
        for (int b = 0; b < 3 && letter; b++)
            if (have[b] == want % 3) {
                axis[a] = b;
                flip[a] = sign[b] != (want < 3 ? 1 : -1);
                seen |= 1 << b;
            }
    }
    if (seen != 7)
        return fail(e, ERR_CONFIG, NULL, "orientation '%s', allowed three letters such as RAS", orientation);
    return 0;
}

/* Puts a stored value into every voxel. */
static void fill_all(struct volume *v, double fill)
{
    size_t each = dtype_bytes(v->dtype), bytes = volume_bytes(v);
    float narrow = (float)fill;
    int64_t whole = v->dtype < DTYPE_F32 ? (int64_t)fill : 0; /* its low bytes come first */
    const void *from = v->dtype == DTYPE_F32   ? (const void *)&narrow
                       : v->dtype == DTYPE_F64 ? (const void *)&fill
                                               : (const void *)&whole;
    for (size_t at = 0; at < bytes && fill != 0.0; at += each) /* memory comes zeroed */
        memcpy((char *)v->data + at, from, each);
}

int volume_crop(struct volume *out, const struct volume *in, const int64_t first[3], const int64_t dims[3],
                double fill, struct error *e)
{
    double map[3][4] = {{0}};
    int64_t lo[3], hi[3]; /* the part of the output that the input covers */
    int whole = 1;
    for (int a = 0; a < 3; a++) {
        map[a][a] = 1.0;
        map[a][3] = (double)first[a];
        lo[a] = first[a] < 0 ? -first[a] : 0;
        hi[a] = in->dims[a] - first[a] < dims[a] ? in->dims[a] - first[a] : dims[a];
        whole &= lo[a] == 0 && hi[a] == dims[a];
    }
    if (new_like(out, in, in->dtype, dims, (const double(*)[4])map, e) < 0)
        return -1;
    if (!whole)
        fill_all(out, fill);
    if (lo[0] >= hi[0])
        return 0;
    size_t each = dtype_bytes(in->dtype), row = (size_t)(hi[0] - lo[0]) * each;
    for (int64_t c = 0; c < volume_channels(in); c++)
        for (int64_t k = lo[2]; k < hi[2]; k++)
            for (int64_t j = lo[1]; j < hi[1]; j++) {
                int64_t to = lo[0] + dims[0] * (j + dims[1] * (k + dims[2] * c));
                int64_t k_in = k + first[2] + in->dims[2] * c;
                int64_t from = lo[0] + first[0] + in->dims[0] * (j + first[1] + in->dims[1] * k_in);
                memcpy((char *)out->data + (size_t)to * each, (const char *)in->data + (size_t)from * each,
                       row);
            }
    return 0;
}

/* ---- computed -------------------------------------------------------------------------------- */

/* Hands over the values of channel c; a volume of one channel takes them without a copy. */
static void put_channel(struct volume *out, float *values, int64_t c)
{
    size_t n = (size_t)volume_voxels(out);
    if (volume_channels(out) == 1) {
        mem_free(out->data);
        out->data = values;
        return;
    }
    memcpy((float *)out->data + (size_t)c * n, values, n * sizeof *values);
    mem_free(values);
}

int volume_as_floats(struct volume *out, const struct volume *in, enum nan_policy nan, struct error *e)
{
    static const double same[3][4] = {{1, 0, 0, 0}, {0, 1, 0, 0}, {0, 0, 1, 0}};
    if (new_like(out, in, DTYPE_F32, in->dims, same, e) < 0)
        return -1;
    out->slope = 1.0;
    out->inter = 0.0;
    out->geometry = in->geometry;
    for (int64_t c = 0; c < volume_channels(in); c++) {
        float *values = NULL;
        if (volume_floats(&values, in, c, nan, e) < 0) {
            volume_free(out);
            return -1;
        }
        put_channel(out, values, c);
    }
    return 0;
}

struct nearest_job {
    struct volume *out;
    const struct volume *in;
    const struct resample_axis *axis;
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
    const struct resample_axis *axis = job->axis;
    const int64_t *dims = job->in->dims;
    size_t each = dtype_bytes(job->in->dtype);
    int64_t k = nearest_index(&axis[2], s % axis[2].n, dims[2]) + s / axis[2].n * dims[2];
    char *out = (char *)job->out->data + (size_t)(s * axis[0].n * axis[1].n) * each;
    for (int64_t j = 0; j < axis[1].n; j++) {
        int64_t row = dims[0] * (nearest_index(&axis[1], j, dims[1]) + dims[1] * k);
        const char *in = (const char *)job->in->data + (size_t)row * each;
        for (int64_t i = 0; i < axis[0].n; i++, out += each)
            memcpy(out, in + (size_t)nearest_index(&axis[0], i, dims[0]) * each, each);
    }
}

static int fill_classes(struct volume *out, const struct volume *in, const struct resample_axis axis[3],
                        struct pool *pool, struct error *e)
{
    label_t *labels = NULL, *made = NULL;
    if (volume_channels(in) != 1)
        return fail(e, ERR_DATA, NULL, "a label volume has %lld channels, allowed 1",
                    (long long)volume_channels(in));
    int failed = volume_labels(&labels, NULL, in, e) < 0 ||
                 resample_classes(&made, labels, in->dims, axis, pool, e) < 0;
    mem_free(labels);
    if (failed)
        return -1;
    mem_free(out->data);
    out->data = made;
    return 0;
}

static int fill_floats(struct volume *out, const struct volume *in, const struct resample_axis axis[3],
                       enum resample_kind kind, struct pool *pool, struct error *e)
{
    for (int64_t c = 0; c < volume_channels(in); c++) {
        float *values = NULL;
        if (volume_floats(&values, in, c, NAN_REFUSE, e) < 0 ||
            resample_replace(&values, in->dims, axis, kind, pool, e) < 0)
            return -1;
        put_channel(out, values, c);
    }
    return 0;
}

/* An empty volume on the new grid. */
static int new_resampled(struct volume *out, const struct volume *in, const struct resample_axis axis[3],
                         enum resample_kind kind, struct error *e)
{
    const int64_t dims[3] = {axis[0].n, axis[1].n, axis[2].n};
    enum dtype t = kind == RESAMPLE_NEAREST ? in->dtype : kind == RESAMPLE_CLASSES ? DTYPE_U16 : DTYPE_F32;
    double map[3][4] = {{0}};
    for (int a = 0; a < 3; a++) {
        map[a][a] = axis[a].step;
        map[a][3] = axis[a].start;
    }
    if (new_like(out, in, t, dims, (const double(*)[4])map, e) < 0)
        return -1;
    if (kind != RESAMPLE_NEAREST) { /* computed values have the scaling applied */
        out->slope = 1.0;
        out->inter = 0.0;
    }
    return 0;
}

int volume_resample(struct volume *out, const struct volume *in, const struct resample_axis axis[3],
                    enum resample_kind kind, struct pool *pool, struct error *e)
{
    if (new_resampled(out, in, axis, kind, e) < 0)
        return -1;
    if (kind == RESAMPLE_NEAREST) {
        struct nearest_job job = {out, in, axis};
        pool_run(pool, out->dims[2] * volume_channels(out), nearest_slice, &job);
        return 0;
    }
    int status = kind == RESAMPLE_CLASSES ? fill_classes(out, in, axis, pool, e)
                                          : fill_floats(out, in, axis, kind, pool, e);
    if (status < 0)
        volume_free(out);
    return status;
}

int volume_resample_last(struct volume *out, struct volume *in, const struct resample_axis axis[3],
                         enum resample_kind kind, struct pool *pool, struct error *e)
{
    float *values = in->data;
    if (kind == RESAMPLE_NEAREST || kind == RESAMPLE_CLASSES || in->dtype != DTYPE_F32 || in->slope != 1.0 ||
        in->inter != 0.0 || volume_channels(in) != 1)
        return volume_resample(out, in, axis, kind, pool, e);
    if (new_resampled(out, in, axis, kind, e) < 0)
        return -1;
    in->data = NULL;
    if (resample_replace(&values, in->dims, axis, kind, pool, e) < 0) {
        volume_free(out);
        return -1;
    }
    put_channel(out, values, 0);
    return 0;
}
