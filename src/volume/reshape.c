/* reshape.c - changes of grid that keep voxels bit for bit: exchange and reversal of axes, crop,
 * pad.
 *
 * All of them are one walk: output rows (i running) are read from the input with a signed stride.
 * Element types are copied as 1, 2, 4 or 8 bytes; nothing here looks at values.
 *
 * The affine follows by affine_out = affine_in * map, where map takes output to input indices:
 *
 *     permute   input[axis[a]] = flip[a] ? n - 1 - output[a] : output[a]
 *     crop      input[a]       = output[a] + first[a]
 */
#include <math.h>
#include <string.h>

#include "volume/resample.h"

static int count_bytes(size_t *bytes, const struct volume *v, struct error *e)
{
    size_t n = dtype_bytes(v->dtype);
    for (int a = 0; a < VOLUME_MAX_DIMS; a++) {
        if (v->dims[a] < 1 || size_mul(&n, n, (size_t)v->dims[a]) < 0) {
            return fail(e, ERR_DATA, NULL, "axis %d of the new grid has %lld voxels: too many", a,
                        (long long)v->dims[a]);
        }
    }
    *bytes = n;
    return 0;
}

int volume_new_like(struct volume *out, const struct volume *in, enum dtype t,
                    const int64_t dims[3], const struct index_map *map, struct error *e)
{
    double affine[3][4];
    size_t bytes = 0;
    memset(out, 0, sizeof *out);
    out->format = in->format;
    out->dtype = t;
    out->n_dims = in->n_dims < 3 ? 3 : in->n_dims;
    for (int a = 0; a < VOLUME_MAX_DIMS; a++)
        out->dims[a] = a < 3 ? dims[a] : in->dims[a];
    out->slope = in->slope;
    out->inter = in->inter;
    affine_multiply(affine, in->geometry.affine, map->m);
    geometry_from_affine(&out->geometry, (const double(*)[4])affine);
    out->geometry.known = in->geometry.known;
    if (count_bytes(&bytes, out, e) < 0)
        return -1;
    uint64_t most = volume_default_limits.bytes;
    if (bytes > most) {
        return fail(e, ERR_DATA, NULL,
                    "the new grid of %lldx%lldx%lld needs %zu bytes, at most %llu",
                    (long long)dims[0], (long long)dims[1], (long long)dims[2], bytes,
                    (unsigned long long)most);
    }
    out->data = mem_alloc(e, bytes, 1);
    return out->data ? 0 : -1;
}

/* n elements from `in`, `stride` elements apart (any sign), to consecutive places. */
static void copy_strided(void *out, const void *in, int64_t n, int64_t stride, size_t each)
{
    if (stride == 1) {
        memcpy(out, in, (size_t)n * each);
        return;
    }
    switch (each) {
    case 1:
        for (int64_t i = 0; i < n; i++)
            ((uint8_t *)out)[i] = ((const uint8_t *)in)[i * stride];
        break;
    case 2:
        for (int64_t i = 0; i < n; i++)
            ((uint16_t *)out)[i] = ((const uint16_t *)in)[i * stride];
        break;
    case 4:
        for (int64_t i = 0; i < n; i++)
            ((uint32_t *)out)[i] = ((const uint32_t *)in)[i * stride];
        break;
    default:
        for (int64_t i = 0; i < n; i++)
            ((uint64_t *)out)[i] = ((const uint64_t *)in)[i * stride];
    }
}

int volume_permute(struct volume *out, const struct volume *in, const int axis[3],
                   const int flip[3], struct error *e)
{
    const int64_t in_stride[3] = {1, in->dims[0], in->dims[0] * in->dims[1]};
    int64_t dims[3], stride[3], start = 0;
    struct index_map map = {{{0}}};
    for (int a = 0; a < 3; a++) {
        int from = axis[a];
        dims[a] = in->dims[from];
        stride[a] = flip[a] ? -in_stride[from] : in_stride[from];
        if (flip[a])
            start += in_stride[from] * (dims[a] - 1);
        map.m[from][a] = flip[a] ? -1.0 : 1.0;
        map.m[from][3] = flip[a] ? (double)(dims[a] - 1) : 0.0;
    }
    if (volume_new_like(out, in, in->dtype, dims, &map, e) < 0)
        return -1;

    size_t each = dtype_bytes(in->dtype);
    int64_t voxels = volume_voxels(in), channels = volume_channels(in), row = 0;
    const char *from = in->data;
    for (int64_t c = 0; c < channels; c++) {
        for (int64_t k = 0; k < dims[2]; k++) {
            for (int64_t j = 0; j < dims[1]; j++, row++) {
                int64_t at = c * voxels + start + k * stride[2] + j * stride[1];
                copy_strided((char *)out->data + (size_t)(row * dims[0]) * each,
                             from + (size_t)at * each, dims[0], stride[0], each);
            }
        }
    }
    return 0;
}

int volume_unpermute(struct volume *out, const struct volume *in, const int axis[3],
                     const int flip[3], struct error *e)
{
    int back[3], back_flip[3];
    for (int a = 0; a < 3; a++) {
        back[axis[a]] = a;
        back_flip[axis[a]] = flip[a];
    }
    return volume_permute(out, in, back, back_flip, e);
}

/* Patient axis and sign a letter stands for; -1 if none. */
static int letter_axis(int *sign, char letter)
{
    static const char plus[] = "RAS", minus[] = "LPI";
    for (int a = 0; a < 3; a++) {
        if (letter == plus[a] || letter == minus[a]) {
            *sign = letter == plus[a] ? 1 : -1;
            return a;
        }
    }
    return -1;
}

int orientation_axes(int axis[3], int flip[3], const struct geometry *g, const char *orientation,
                     struct error *e)
{
    int have[3], have_sign[3], seen = 0;
    geometry_axes(have, have_sign, g);
    for (int a = 0; a < 3; a++) {
        int sign = 1, want = strlen(orientation) == 3 ? letter_axis(&sign, orientation[a]) : -1;
        if (want < 0 || (seen & (1 << want))) {
            return fail(e, ERR_CONFIG, NULL, "orientation '%s', allowed three letters such as RAS",
                        orientation);
        }
        seen |= 1 << want;
        for (int b = 0; b < 3; b++) {
            if (have[b] != want)
                continue;
            axis[a] = b;
            flip[a] = have_sign[b] != sign;
        }
    }
    return 0;
}

int volume_reorient(struct volume *out, const struct volume *in, const char *orientation,
                    struct error *e)
{
    int axis[3], flip[3];
    memset(out, 0, sizeof *out);
    if (orientation_axes(axis, flip, &in->geometry, orientation, e) < 0)
        return -1;
    return volume_permute(out, in, axis, flip, e);
}

/* One element of the given type holding `value`; returns the value's bytes in out[8]. */
static void stored_bytes(unsigned char out[8], enum dtype t, double value)
{
    union {
        uint8_t u8;
        int8_t i8;
        uint16_t u16;
        int16_t i16;
        uint32_t u32;
        int32_t i32;
        uint64_t u64;
        int64_t i64;
        float f32;
        double f64;
        unsigned char byte[8];
    } u = {.u64 = 0};
    switch (t) {
    case DTYPE_U8:
        u.u8 = (uint8_t)value;
        break;
    case DTYPE_I8:
        u.i8 = (int8_t)value;
        break;
    case DTYPE_U16:
        u.u16 = (uint16_t)value;
        break;
    case DTYPE_I16:
        u.i16 = (int16_t)value;
        break;
    case DTYPE_U32:
        u.u32 = (uint32_t)value;
        break;
    case DTYPE_I32:
        u.i32 = (int32_t)value;
        break;
    case DTYPE_U64:
        u.u64 = (uint64_t)value;
        break;
    case DTYPE_I64:
        u.i64 = (int64_t)value;
        break;
    case DTYPE_F32:
        u.f32 = (float)value;
        break;
    case DTYPE_F64:
        u.f64 = value;
        break;
    }
    memcpy(out, u.byte, 8);
}

static void fill_all(struct volume *v, double fill)
{
    unsigned char bytes[8];
    size_t each = dtype_bytes(v->dtype);
    size_t n = (size_t)(volume_voxels(v) * volume_channels(v));
    if (fill == 0.0)
        return; /* memory comes zeroed */
    stored_bytes(bytes, v->dtype, fill);
    for (size_t i = 0; i < n; i++)
        memcpy((char *)v->data + i * each, bytes, each);
}

int volume_crop(struct volume *out, const struct volume *in, const int64_t first[3],
                const int64_t dims[3], double fill, struct error *e)
{
    struct index_map map = {{{0}}};
    int64_t lo[3], hi[3]; /* the part of the output that the input covers */
    for (int a = 0; a < 3; a++) {
        map.m[a][a] = 1.0;
        map.m[a][3] = (double)first[a];
        lo[a] = first[a] < 0 ? -first[a] : 0;
        hi[a] = in->dims[a] - first[a] < dims[a] ? in->dims[a] - first[a] : dims[a];
    }
    if (volume_new_like(out, in, in->dtype, dims, &map, e) < 0)
        return -1;
    int covers = 1, whole = 1;
    for (int a = 0; a < 3; a++) {
        covers &= lo[a] < hi[a];
        whole &= lo[a] == 0 && hi[a] == dims[a];
    }
    if (!whole)
        fill_all(out, fill);
    if (!covers)
        return 0;

    size_t each = dtype_bytes(in->dtype), row = (size_t)(hi[0] - lo[0]) * each;
    int64_t channels = volume_channels(in);
    for (int64_t c = 0; c < channels; c++) {
        for (int64_t k = lo[2]; k < hi[2]; k++) {
            for (int64_t j = lo[1]; j < hi[1]; j++) {
                int64_t to = lo[0] + dims[0] * (j + dims[1] * (k + dims[2] * c));
                int64_t k_in = k + first[2] + in->dims[2] * c;
                int64_t from = lo[0] + first[0] + in->dims[0] * (j + first[1] + in->dims[1] * k_in);
                memcpy((char *)out->data + (size_t)to * each,
                       (const char *)in->data + (size_t)from * each, row);
            }
        }
    }
    return 0;
}

int volume_as_floats(struct volume *out, const struct volume *in, enum nan_policy nan,
                     struct error *e)
{
    const struct index_map same = {{{1, 0, 0, 0}, {0, 1, 0, 0}, {0, 0, 1, 0}}};
    int64_t voxels = volume_voxels(in), channels = volume_channels(in);
    if (volume_new_like(out, in, DTYPE_F32, in->dims, &same, e) < 0)
        goto failed;
    out->slope = 1.0;
    out->inter = 0.0;
    out->geometry = in->geometry;
    for (int64_t c = 0; c < channels; c++) {
        float *values = NULL;
        if (volume_floats(&values, in, c, nan, e) < 0)
            goto failed;
        memcpy((float *)out->data + c * voxels, values, (size_t)voxels * sizeof *values);
        mem_free(values);
    }
    return 0;
failed:
    volume_free(out);
    return -1;
}
