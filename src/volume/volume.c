/* volume.c - from a path to voxels: which format, which checks, which numbers. See volume.h.
 *
 * Formats share everything but their headers: the claim of a header is compared with limits and with
 * what the file can hold before a byte is allocated, and all types become doubles in volume_block().
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "volume/volume.h"

const struct volume_limits volume_default_limits = {
    .voxels = (uint64_t)1 << 31,
    .bytes = (uint64_t)8 << 30,
};

enum { BLOCK = 4096 }; /* numbers converted at a time */

static const struct { size_t bytes; const char *name; } dtypes[] = {
    [DTYPE_U8] = {1, "uint8"},   [DTYPE_I8] = {1, "int8"},   [DTYPE_U16] = {2, "uint16"},
    [DTYPE_I16] = {2, "int16"},  [DTYPE_U32] = {4, "uint32"}, [DTYPE_I32] = {4, "int32"},
    [DTYPE_U64] = {8, "uint64"}, [DTYPE_I64] = {8, "int64"}, [DTYPE_F32] = {4, "float32"},
    [DTYPE_F64] = {8, "float64"},
};

size_t dtype_bytes(enum dtype t)
{
    return dtypes[t].bytes;
}

const char *dtype_name(enum dtype t)
{
    return dtypes[t].name;
}

int64_t volume_voxels(const struct volume *v)
{
    return v->dims[0] * v->dims[1] * v->dims[2];
}

int64_t volume_channels(const struct volume *v)
{
    return v->dims[3] * v->dims[4] * v->dims[5] * v->dims[6];
}

void volume_free(struct volume *v)
{
    mem_free(v->data);
    memset(v, 0, sizeof *v);
}

int volume_new(struct volume *out, enum dtype t, const int64_t dims[3], const struct geometry *like,
               struct error *e)
{
    *out = (struct volume){.format = "memory", .dtype = t, .n_dims = 3, .slope = 1.0};
    for (int a = 0; a < VOLUME_MAX_DIMS; a++)
        out->dims[a] = a < 3 ? dims[a] : 1;
    if (like)
        out->geometry = *like;
    else
        geometry_identity(&out->geometry, NULL);
    size_t n;
    if (size_mul(&n, (size_t)dims[0], (size_t)dims[1]) < 0 || size_mul(&n, n, (size_t)dims[2]) < 0)
        return fail(e, ERR_DATA, "N09", "%lld x %lld x %lld voxels overflow", (long long)dims[0],
                    (long long)dims[1], (long long)dims[2]);
    out->data = mem_alloc(e, n, dtype_bytes(t));
    return out->data ? 0 : -1;
}

/* ---- reading ------------------------------------------------------------------------------------ */

static struct volume_limits limits_of(const struct volume_request *r)
{
    struct volume_limits l = volume_default_limits;
    if (r && r->limits.voxels)
        l.voxels = r->limits.voxels;
    if (r && r->limits.bytes)
        l.bytes = r->limits.bytes;
    return l;
}

/* The number of values a header claims, checked for overflow and against the limits. */
static int claimed_values(size_t *out, const struct volume *v, const struct volume_limits *limit,
                          struct error *e)
{
    size_t n = 1, bytes;
    for (int a = 0; a < VOLUME_MAX_DIMS; a++) {
        if (v->dims[a] < 1)
            return fail(e, ERR_DATA, "N08", "dim[%d]=%lld, must be at least 1", a + 1,
                        (long long)v->dims[a]);
        if (size_mul(&n, n, (size_t)v->dims[a]) < 0)
            return fail(e, ERR_DATA, "N09", "size overflows at dim[%d]=%lld", a + 1,
                        (long long)v->dims[a]);
    }
    if (size_mul(&bytes, n, dtype_bytes(v->dtype)) < 0)
        return fail(e, ERR_DATA, "N09", "size overflows: %zu voxels of %s", n, dtype_name(v->dtype));
    if (n > limit->voxels || bytes > limit->bytes)
        return fail(e, ERR_DATA, "N10", "%zu voxels of %s claimed, limit %llu voxels and %llu bytes", n,
                    dtype_name(v->dtype), (unsigned long long)limit->voxels,
                    (unsigned long long)limit->bytes);
    *out = n;
    return 0;
}

static void swap_bytes(unsigned char *p, size_t n, size_t each)
{
    if (each == 2)
        for (size_t i = 0; i < n; i++, p += 2) {
            uint16_t x;
            memcpy(&x, p, 2);
            x = __builtin_bswap16(x);
            memcpy(p, &x, 2);
        }
    else if (each == 4)
        for (size_t i = 0; i < n; i++, p += 4) {
            uint32_t x;
            memcpy(&x, p, 4);
            x = __builtin_bswap32(x);
            memcpy(p, &x, 4);
        }
    else if (each == 8)
        for (size_t i = 0; i < n; i++, p += 8) {
            uint64_t x;
            memcpy(&x, p, 8);
            x = __builtin_bswap64(x);
            memcpy(p, &x, 8);
        }
}

/* What stands after the voxels: nothing, or a warning [N12 Z07], or a refusal if strict. */
static int check_end(struct source *data, const struct volume_request *r, struct error *e)
{
    int64_t more = source_finish(data, e);
    if (more < 0)
        return -1;
    struct report *report = r ? r->report : NULL;
    if (more > 0) {
        if (r && r->strict)
            return fail(e, ERR_DATA, "N12", "file goes on after the claimed voxels");
        report_line(report, REPORT_WARNING, source_path(data), "N12",
                    "file goes on after the claimed voxels; the rest is ignored");
    } else if (source_has_trailing_garbage(data)) {
        if (r && r->strict)
            return fail(e, ERR_DATA, "Z07", "bytes after the end of the gzip stream");
        report_line(report, REPORT_WARNING, source_path(data), "Z07",
                    "bytes after the end of the gzip stream are ignored");
    }
    return 0;
}

/* Data in the other byte order than the header says cannot be proven; nearly all floats being tiny or
 * huge is a strong hint [N30]. */
static void warn_if_implausible(const struct volume *v, size_t n, const struct volume_request *r,
                                const char *path)
{
    if ((v->dtype != DTYPE_F32 && v->dtype != DTYPE_F64) || !r || !r->report)
        return;
    double block[BLOCK];
    size_t odd = 0, nonzero = 0;
    for (size_t at = 0; at < n; at += BLOCK) {
        int64_t count = (int64_t)(n - at < BLOCK ? n - at : BLOCK);
        volume_block(block, v, (int64_t)at, count);
        for (int64_t i = 0; i < count; i++) {
            double x = fabs(block[i]);
            nonzero += x != 0.0;
            odd += x != 0.0 && !(x > 1e-20 && x < 1e20);
        }
    }
    if (nonzero > 0 && (double)odd > 0.99 * (double)nonzero)
        report_line(r->report, REPORT_WARNING, path, "N30",
                    "%zu of %zu values have implausible exponents; is the byte order right?", odd,
                    nonzero);
}

int volume_read_voxels(struct volume *v, struct source *data, int swap, const char *id_claim,
                       const struct volume_request *r, struct error *e)
{
    size_t n = 0, each = dtype_bytes(v->dtype);
    struct volume_limits limit = limits_of(r);
    if (claimed_values(&n, v, &limit, e) < 0 || source_can_hold(data, n * each, id_claim, e) < 0)
        return -1;
    if (r && r->part == VOLUME_HEADER_ONLY)
        return 0;
    v->data = mem_alloc(e, n, each);
    if (!v->data || source_read(data, v->data, n * each, e) < 0 || check_end(data, r, e) < 0)
        return -1;
    if (swap)
        swap_bytes(v->data, n, each);
    warn_if_implausible(v, n, r, source_path(data));
    return 0;
}

/* No scanner makes voxels thinner than 0.1 micron or thicker than 10 metres [N23]. */
static int check_spacing(const struct volume *v, const struct volume_request *r, struct error *e)
{
    for (int a = 0; a < 3 && !(r && r->describe); a++)
        if (!(v->geometry.spacing_mm[a] >= 1e-4 && v->geometry.spacing_mm[a] <= 1e4))
            return fail(e, ERR_DATA, "N23", "spacing[%d]=%g mm, allowed 1e-4..1e4", a + 1,
                        v->geometry.spacing_mm[a]);
    return 0;
}

static const struct volume_format *const formats[] = {&format_nifti, &format_nrrd, &format_metaimage};

static const struct volume_format *recognise(const unsigned char *head, size_t n)
{
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
        if (formats[i]->recognise(head, n))
            return formats[i];
    return NULL;
}

/* Content that nothing recognises: the name says what the user believed it to be. */
static int refuse_unknown(const char *path, struct error *e)
{
    if (text_ends_with_nocase(path, ".h5") || text_ends_with_nocase(path, ".hdf5"))
        return fail(e, ERR_DATA, "H01", "no HDF5 signature");
    if (text_ends_with_nocase(path, ".dcm"))
        return fail(e, ERR_DATA, "D01", "no DICM at byte 128");
    return 0; /* the NIfTI reader tells what is wrong with it */
}

int volume_read_source(struct volume *out, struct source *s, const struct volume_request *r,
                       struct error *e)
{
    memset(out, 0, sizeof *out);
    unsigned char head[512];
    int64_t n = source_peek(s, head, sizeof head, e);
    if (n < 0)
        return -1;
    const struct volume_format *format = recognise(head, (size_t)n);
    if (!format && refuse_unknown(source_path(s), e) < 0)
        return -1;
    format = format ? format : &format_nifti;
    out->slope = 1.0;
    if (format->read(out, s, r, e) < 0 || check_spacing(out, r, e) < 0) {
        volume_free(out);
        return -1;
    }
    return 0;
}

/* A name that says gzip over plain content, or the other way round [Z01 Z02]. */
static int check_name(const struct source *s, const struct volume_request *r, struct error *e)
{
    int named = text_ends_with_nocase(source_path(s), ".gz");
    if (named == source_is_compressed(s))
        return 0;
    const char *id = named ? "Z01" : "Z02";
    const char *what = named ? "named .gz but not compressed" : "gzip content under a plain name";
    if (r && r->strict)
        return fail(e, ERR_DATA, id, "%s", what);
    report_line(r ? r->report : NULL, REPORT_WARNING, source_path(s), id, "%s; read by content", what);
    return 0;
}

static int read_file(struct volume *out, const char *path, const struct volume_request *r,
                     struct error *e)
{
    struct source *s;
    if (source_open(&s, path, e) < 0)
        return fail_in(e, path);
    unsigned char head[4096]; /* HDF5 may start behind a user block of 512, 1024 or 2048 bytes */
    int64_t n = source_peek(s, head, sizeof head, e);
    int result;
    if (n < 0 || check_name(s, r, e) < 0) {
        result = fail_in(e, path);
    } else if (!source_is_compressed(s) && hdf5_recognise(head, (size_t)n)) {
        result = hdf5_read(out, path, r, e);
    } else if (!source_is_compressed(s) && dicom_recognise(head, (size_t)n)) {
        result = dicom_read_folder(out, path, r, e);
    } else {
        result = volume_read_source(out, s, r, e);
        if (result < 0)
            fail_in(e, path);
    }
    source_close(s);
    return result;
}

int volume_read(struct volume *out, const char *path, const struct volume_request *r, struct error *e)
{
    struct volume_request held = r ? *r : (struct volume_request){.part = VOLUME_ALL};
    struct report_hold hold;
    report_hold(&hold);
    held.report = &hold.report;
    memset(out, 0, sizeof *out);
    int result = io_is_folder(path) ? dicom_read_folder(out, path, &held, e)
                                    : read_file(out, path, &held, e);
    if (result == 0)
        report_release(&hold, r ? r->report : NULL);
    return result;
}

int volume_write(const struct volume *v, const char *path, struct error *e)
{
    const struct volume_format *format = NULL;
    if (text_ends_with_nocase(path, ".nii") || text_ends_with_nocase(path, ".nii.gz"))
        format = &format_nifti;
    else if (text_ends_with_nocase(path, ".nrrd"))
        format = &format_nrrd;
    if (!format) {
        fail(e, ERR_CONFIG, NULL, "cannot write this kind of file, expected .nii, .nii.gz, .nrrd or "
                                  ".seg.nrrd");
        return fail_in(e, path);
    }
    return format->write(v, path, e);
}

/* ---- numbers ------------------------------------------------------------------------------------ */

#define BLOCK_OF(TYPE)                                      \
    {                                                       \
        const TYPE *p = (const TYPE *)v->data + start;      \
        for (int64_t i = 0; i < n; i++)                     \
            out[i] = (double)p[i];                          \
        break;                                              \
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

static void index_text(char out[80], const struct volume *v, int64_t at)
{
    int64_t i = at % v->dims[0], j = at / v->dims[0] % v->dims[1], k = at / (v->dims[0] * v->dims[1]);
    snprintf(out, 80, "(%lld, %lld, %lld)", (long long)i, (long long)j, (long long)k);
}

/* Replaces or refuses what is not a number an image can hold. */
static int settle_nonfinite(float *x, const struct volume *v, int64_t n, int64_t n_odd, int64_t first,
                            float least, enum nan_policy policy, struct error *e)
{
    char where[80];
    index_text(where, v, first);
    if (policy == NAN_REFUSE)
        return fail(e, ERR_DATA, "N37",
                    "%lld NaN or Inf voxels, first at %s; use --nan zero or --nan min",
                    (long long)n_odd, where);
    float fill = policy == NAN_MIN && isfinite(least) ? least : 0.0f;
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(x[i]))
            x[i] = fill;
    return 0;
}

int volume_floats(float **out, const struct volume *v, int64_t channel, enum nan_policy policy,
                  struct error *e)
{
    const double most = 1e30; /* no scanner unit comes near; beyond it sums of squares overflow */
    int64_t n = volume_voxels(v), n_odd = 0, first = -1;
    float least = INFINITY;
    *out = NULL;
    float *x = mem_alloc(e, (size_t)n, sizeof *x);
    if (!x)
        return -1;
    double block[BLOCK];
    for (int64_t at = 0; at < n; at += BLOCK) {
        int64_t count = n - at < BLOCK ? n - at : BLOCK;
        volume_block(block, v, channel * n + at, count);
        for (int64_t i = 0; i < count; i++) {
            double value = block[i];
            if (!isfinite(value)) {
                first = n_odd++ ? first : at + i;
            } else if (fabs(value) > most) {
                char where[80];
                index_text(where, v, at + i);
                fail(e, ERR_DATA, v->slope != 1.0 || v->inter != 0.0 ? "N20" : "N39",
                     "value %g at %s, allowed up to %g", value, where, most);
                mem_free(x);
                return -1;
            } else if ((float)value < least) {
                least = (float)value;
            }
            x[at + i] = (float)value;
        }
    }
    if (n_odd && settle_nonfinite(x, v, n, n_odd, first, least, policy, e) < 0) {
        mem_free(x);
        return -1;
    }
    *out = x;
    return 0;
}

static int label_refused(const struct volume *v, int64_t at, double value, struct error *e)
{
    char where[80];
    index_text(where, v, at);
    if (fabs(value - nearbyint(value)) <= 1e-3)
        return fail(e, ERR_DATA, "L04", "label value %g at %s, allowed 0..65535", value, where);
    return fail(e, ERR_DATA, !isfinite(value) ? "L06" : v->slope != 1.0 ? "N21" : "L05",
                "label value %g at %s is not an integer", value, where);
}

int volume_labels(label_t **out, label_t *highest, const struct volume *v, struct error *e)
{
    int64_t n = volume_voxels(v);
    label_t top = 0;
    *out = NULL;
    label_t *y = mem_alloc(e, (size_t)n, sizeof *y);
    if (!y)
        return -1;
    double block[BLOCK];
    for (int64_t at = 0; at < n; at += BLOCK) {
        int64_t count = n - at < BLOCK ? n - at : BLOCK;
        volume_block(block, v, at, count);
        for (int64_t i = 0; i < count; i++) {
            double whole = nearbyint(block[i]);
            if (!(fabs(block[i] - whole) <= 1e-3 && whole >= 0.0 && whole <= 65535.0)) {
                mem_free(y); /* the condition is written so that NaN fails it */
                return label_refused(v, at + i, block[i], e);
            }
            y[at + i] = (label_t)whole;
            top = y[at + i] > top ? y[at + i] : top;
        }
    }
    if (highest)
        *highest = top;
    *out = y;
    return 0;
}

void volume_measure(struct volume_stats *out, const struct volume *v)
{
    int64_t n = volume_voxels(v) * volume_channels(v), n_good = 0;
    double block[BLOCK], sum = 0.0;
    *out = (struct volume_stats){INFINITY, -INFINITY, 0.0, 0};
    for (int64_t at = 0; at < n; at += BLOCK) {
        int64_t count = n - at < BLOCK ? n - at : BLOCK;
        volume_block(block, v, at, count);
        double part = 0.0;
        for (int64_t i = 0; i < count; i++) {
            double x = block[i];
            int bad = isnan(x);
            out->n_nan += bad;
            n_good += !bad;
            part += bad ? 0.0 : x;
            out->min = x < out->min ? x : out->min;
            out->max = x > out->max ? x : out->max;
        }
        sum += part;
    }
    out->mean = n_good ? sum / (double)n_good : NAN;
    if (!n_good)
        out->min = out->max = NAN;
}
