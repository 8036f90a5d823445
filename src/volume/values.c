/* values.c - what stored voxels stand for: numbers, class numbers, statistics. See volume.h.
 *
 * All types become doubles in volume_block(), block by block; whatever looks at values goes through it.
 * Only masks of small integers, which need no arithmetic, have a shorter way.
 */
#include <math.h>
#include <stdio.h>

#include "volume/volume.h"

enum { BLOCK = 4096 }; /* numbers converted at a time */

/* ---- numbers --------------------------------------------------------------------------------- */

#define BLOCK_OF(TYPE)                                                                                       \
    {                                                                                                        \
        const TYPE *p = (const TYPE *)v->data + start;                                                       \
        for (int64_t i = 0; i < n; i++)                                                                      \
            out[i] = (double)p[i];                                                                           \
        break;                                                                                               \
    }

void volume_block(double *out, const struct volume *v, int64_t start, int64_t n)
{
    switch (v->dtype) {
    case DTYPE_U8: BLOCK_OF(uint8_t)
    case DTYPE_I8: BLOCK_OF(int8_t)
    case DTYPE_U16: BLOCK_OF(uint16_t)
    case DTYPE_I16: BLOCK_OF(int16_t)
    case DTYPE_U32: BLOCK_OF(uint32_t)
    case DTYPE_I32: BLOCK_OF(int32_t)
    case DTYPE_U64: BLOCK_OF(uint64_t)
    case DTYPE_I64: BLOCK_OF(int64_t)
    case DTYPE_F32: BLOCK_OF(float)
    case DTYPE_F64: BLOCK_OF(double)
    }
    if (v->slope != 1.0 || v->inter != 0.0)
        for (int64_t i = 0; i < n; i++)
            out[i] = v->slope * out[i] + v->inter;
}

double volume_value(const struct volume *v, int64_t index)
{
    double value = 0.0;
    volume_block(&value, v, index, 1);
    return value;
}

/* "(i, j, k)" of a voxel of the first channel. */
static const char *index_text(char out[80], const struct volume *v, int64_t at)
{
    snprintf(out, 80, "(%lld, %lld, %lld)", (long long)(at % v->dims[0]),
             (long long)(at / v->dims[0] % v->dims[1]), (long long)(at / (v->dims[0] * v->dims[1])));
    return out;
}

/* Replaces or refuses what is not a number an image can hold. */
static int settle_nonfinite(float *x, const struct volume *v, int64_t n_odd, int64_t first, float least,
                            enum nan_policy policy, struct error *e)
{
    char where[80];
    if (policy == NAN_REFUSE)
        return fail(e, ERR_DATA, "N37", "%lld NaN or Inf voxels, first at %s; use --nan zero or --nan min",
                    (long long)n_odd, index_text(where, v, first));
    float fill = policy == NAN_MIN && isfinite(least) ? least : 0.0f;
    for (int64_t i = 0; i < volume_voxels(v); i++)
        if (!isfinite(x[i]))
            x[i] = fill;
    return 0;
}

static int fill_floats(float *x, const struct volume *v, int64_t channel, enum nan_policy policy,
                       struct error *e)
{
    const double most = 1e30; /* no scanner unit comes near; beyond it sums of squares overflow */
    int64_t n = volume_voxels(v), n_odd = 0, first = -1;
    float least = INFINITY;
    double block[BLOCK];
    for (int64_t at = 0; at < n; at += BLOCK) {
        int64_t count = n - at < BLOCK ? n - at : BLOCK;
        volume_block(block, v, channel * n + at, count);
        for (int64_t i = 0; i < count; i++) {
            double value = block[i];
            char where[80];
            if (!isfinite(value))
                first = n_odd++ ? first : at + i;
            else if (fabs(value) > most)
                return fail(e, ERR_DATA, v->slope != 1.0 || v->inter != 0.0 ? "N20" : "N39",
                            "value %g at %s, allowed up to %g", value, index_text(where, v, at + i), most);
            else if ((float)value < least)
                least = (float)value;
            x[at + i] = (float)value;
        }
    }
    return n_odd ? settle_nonfinite(x, v, n_odd, first, least, policy, e) : 0;
}

int volume_floats(float **out, const struct volume *v, int64_t channel, enum nan_policy policy,
                  struct error *e)
{
    *out = mem_alloc(e, (size_t)volume_voxels(v), sizeof **out);
    if (*out && fill_floats(*out, v, channel, policy, e) == 0)
        return 0;
    mem_free(*out);
    *out = NULL;
    return -1;
}

/* ---- class numbers --------------------------------------------------------------------------- */

#define LABELS_OF(TYPE)                                                                                      \
    for (int64_t i = 0; i < n; i++) {                                                                        \
        int32_t x = ((const TYPE *)v->data)[i];                                                              \
        least = x < least ? x : least;                                                                       \
        most = x > most ? x : most;                                                                          \
        y[i] = (label_t)x;                                                                                   \
    }

/* Masks are nearly always small unscaled integers, which need no arithmetic. Returns 0, y being
 * useless, if v has another type or a value that is no class. */
static int copy_labels(label_t *y, label_t *highest, const struct volume *v)
{
    int64_t n = volume_voxels(v);
    int32_t least = 0, most = 0;
    if (v->slope != 1.0 || v->inter != 0.0)
        return 0;
    switch (v->dtype) {
    case DTYPE_U8: LABELS_OF(uint8_t) break;
    case DTYPE_U16: LABELS_OF(uint16_t) break;
    case DTYPE_I16: LABELS_OF(int16_t) break;
    case DTYPE_I32: LABELS_OF(int32_t) break;
    default: return 0;
    }
    *highest = (label_t)most;
    return least >= 0 && most <= UINT16_MAX;
}

static int refuse_label(const struct volume *v, int64_t at, double value, struct error *e)
{
    char where[80];
    index_text(where, v, at);
    if (fabs(value - nearbyint(value)) <= 1e-3)
        return fail(e, ERR_DATA, "L04", "label value %g at %s, allowed 0..65535", value, where);
    return fail(e, ERR_DATA,
                !isfinite(value)  ? "L06"
                : v->slope != 1.0 ? "N21"
                                  : "L05",
                "label value %g at %s is not an integer", value, where);
}

/* The general way, through doubles. */
static int round_labels(label_t *y, label_t *highest, const struct volume *v, struct error *e)
{
    int64_t n = volume_voxels(v);
    double block[BLOCK];
    *highest = 0;
    for (int64_t at = 0; at < n; at += BLOCK) {
        int64_t count = n - at < BLOCK ? n - at : BLOCK;
        volume_block(block, v, at, count);
        for (int64_t i = 0; i < count; i++) {
            double whole = nearbyint(block[i]); /* written so that NaN is refused */
            if (!(fabs(block[i] - whole) <= 1e-3 && whole >= 0.0 && whole <= 65535.0))
                return refuse_label(v, at + i, block[i], e);
            y[at + i] = (label_t)whole;
            *highest = y[at + i] > *highest ? y[at + i] : *highest;
        }
    }
    return 0;
}

int volume_labels(label_t **out, label_t *highest, const struct volume *v, struct error *e)
{
    label_t top, *y = mem_alloc(e, (size_t)volume_voxels(v), sizeof *y);
    *out = NULL;
    if (!y || (!copy_labels(y, &top, v) && round_labels(y, &top, v, e) < 0)) {
        mem_free(y);
        return -1;
    }
    if (highest)
        *highest = top;
    *out = y;
    return 0;
}

enum { LANES = 8 }; /* sums kept in flight at once, so that the loop vectorises; order is fixed */

struct lanes {
    double min[LANES], max[LANES], sum[LANES], n[LANES];
};

/* n is a multiple of LANES. Only what is finite gives 0 when taken from itself. */
static void measure_block(struct lanes *l, const double *x, int64_t n)
{
    struct lanes m = *l;
    for (int64_t i = 0; i < n; i += LANES)
        for (int k = 0; k < LANES; k++) {
            int good = x[i + k] - x[i + k] == 0.0;
            double low = good ? x[i + k] : INFINITY, high = good ? x[i + k] : -INFINITY;
            m.min[k] = low < m.min[k] ? low : m.min[k];
            m.max[k] = high > m.max[k] ? high : m.max[k];
            m.sum[k] += good ? x[i + k] : 0.0;
            m.n[k] += good ? 1.0 : 0.0;
        }
    *l = m;
}

void volume_measure(struct volume_stats *out, const struct volume *v)
{
    int64_t n = volume_voxels(v) * volume_channels(v);
    double block[BLOCK], sum = 0.0, n_good = 0.0;
    struct lanes l = {.n = {0}};
    *out = (struct volume_stats){INFINITY, -INFINITY, NAN, 0};
    for (int k = 0; k < LANES; k++)
        l.min[k] = INFINITY, l.max[k] = -INFINITY;
    for (int64_t at = 0; at < n; at += BLOCK) {
        int64_t count = n - at < BLOCK ? n - at : BLOCK;
        volume_block(block, v, at, count);
        while (count % LANES)
            block[count++] = NAN;
        measure_block(&l, block, count);
    }
    for (int k = 0; k < LANES; k++) {
        out->min = fmin(out->min, l.min[k]);
        out->max = fmax(out->max, l.max[k]);
        sum += l.sum[k];
        n_good += l.n[k];
    }
    out->n_odd = n - (int64_t)n_good;
    if (n_good > 0.0)
        out->mean = sum / n_good;
    else
        out->min = out->max = NAN;
}
