/* volume.c - from a path to voxels: which format, which checks, which numbers. See volume.h.
 *
 * Formats share everything but their headers: the claim of a header is compared with limits and
 * with what the file can hold before a byte is allocated, and all types become doubles in
 * volume_block(). What is odd about a file is held back until it has been read: then it is told or,
 * in a strict read, turned into a refusal. So a file gives warnings or one error, never both.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "volume/volume.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "voxels are kept little-endian");

const struct volume_limits volume_default_limits = {
    .voxels = (uint64_t)1 << 31,
    .bytes = (uint64_t)8 << 30,
};

enum { BLOCK = 4096 }; /* numbers converted at a time */

static const struct { size_t bytes; const char *name; } dtypes[] = {
    [DTYPE_U8] = {1, "uint8"},   [DTYPE_I8] = {1, "int8"},    [DTYPE_U16] = {2, "uint16"},
    [DTYPE_I16] = {2, "int16"},  [DTYPE_U32] = {4, "uint32"}, [DTYPE_I32] = {4, "int32"},
    [DTYPE_U64] = {8, "uint64"}, [DTYPE_I64] = {8, "int64"},  [DTYPE_F32] = {4, "float32"},
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

size_t volume_bytes(const struct volume *v)
{
    return (size_t)(volume_voxels(v) * volume_channels(v)) * dtype_bytes(v->dtype);
}

void volume_free(struct volume *v)
{
    mem_free(v->data);
    memset(v, 0, sizeof *v);
}

/* The number of values that v's dims claim, checked for overflow and against the limits. */
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
        return fail(e, ERR_DATA, "N09", "size overflows: %zu voxels of %s", n,
                    dtype_name(v->dtype));
    if (n > limit->voxels || bytes > limit->bytes)
        return fail(e, ERR_DATA, "N10",
                    "%zu voxels of %s claimed, limit %llu voxels and %llu bytes", n,
                    dtype_name(v->dtype), (unsigned long long)limit->voxels,
                    (unsigned long long)limit->bytes);
    *out = n;
    return 0;
}

int volume_new(struct volume *out, enum dtype t, const int64_t dims[3], const struct geometry *like,
               struct error *e)
{
    const struct volume_limits none = {UINT64_MAX, UINT64_MAX};
    size_t n;
    *out = (struct volume){.format = "memory", .dtype = t, .n_dims = 3, .slope = 1.0};
    for (int a = 0; a < VOLUME_MAX_DIMS; a++)
        out->dims[a] = a < 3 ? dims[a] : 1;
    if (like)
        out->geometry = *like;
    else
        geometry_identity(&out->geometry, NULL);
    if (claimed_values(&n, out, &none, e) < 0)
        return -1;
    out->data = mem_alloc(e, n, dtype_bytes(t));
    return out->data ? 0 : -1;
}

/* ---- voxels of a file ------------------------------------------------------------------------ */

static void swap_bytes(void *data, size_t n, size_t each)
{
    if (each == 2)
        for (size_t i = 0; i < n; i++)
            ((uint16_t *)data)[i] = __builtin_bswap16(((uint16_t *)data)[i]);
    else if (each == 4)
        for (size_t i = 0; i < n; i++)
            ((uint32_t *)data)[i] = __builtin_bswap32(((uint32_t *)data)[i]);
    else if (each == 8)
        for (size_t i = 0; i < n; i++)
            ((uint64_t *)data)[i] = __builtin_bswap64(((uint64_t *)data)[i]);
}

/* What stands after the voxels: nothing, or something odd [N12 Z07]. */
static int check_end(struct source *data, int exact, const char *id_claim,
                     const struct volume_request *r, struct error *e)
{
    int64_t more = source_finish(data, e);
    if (more < 0)
        return -1;
    if (more > 0 && exact)
        return fail(e, ERR_DATA, id_claim,
                    "size does not fit: the file goes on after the claimed voxels");
    if (more > 0)
        volume_warn(r, "N12", "file goes on after the claimed voxels; the rest is ignored");
    else if (source_has_trailing_garbage(data))
        volume_warn(r, "Z07", "bytes after the end of the gzip stream are ignored");
    return 0;
}

/* Data in the other byte order than the header says cannot be proven; nearly all floats being tiny
 * or huge is a strong hint [N30]. */
static void warn_if_implausible(const struct volume *v, size_t n, const struct volume_request *r)
{
    if (v->dtype != DTYPE_F32 && v->dtype != DTYPE_F64)
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
        volume_warn(r, "N30",
                    "%zu of %zu values have implausible exponents; is the byte order right?", odd,
                    nonzero);
}

int volume_read_voxels(struct volume *v, struct source *data, int flags, const char *id_claim,
                       const struct volume_request *r, struct error *e)
{
    size_t n = 0, each = dtype_bytes(v->dtype);
    if (claimed_values(&n, v, &r->limits, e) < 0 ||
        source_can_hold(data, n * each, id_claim, e) < 0)
        return -1;
    if (r->part == VOLUME_HEADER_ONLY)
        return 0;
    v->data = mem_alloc(e, n, each);
    if (!v->data || source_read(data, v->data, n * each, e) < 0 ||
        check_end(data, flags & VOXELS_EXACT, id_claim, r, e) < 0)
        return -1;
    if (flags & VOXELS_BIG_ENDIAN)
        swap_bytes(v->data, n, each);
    warn_if_implausible(v, n, r);
    return 0;
}

/* ---- files ----------------------------------------------------------------------------------- */

/* No scanner makes voxels thinner than 0.1 micron or thicker than 10 metres [N23]. */
static int check_spacing(const struct volume *v, const struct volume_request *r, struct error *e)
{
    for (int a = 0; a < 3 && !r->describe; a++)
        if (!(v->geometry.spacing_mm[a] >= 1e-4 && v->geometry.spacing_mm[a] <= 1e4))
            return fail(e, ERR_DATA, "N23", "spacing[%d]=%g mm, allowed 1e-4..1e4", a + 1,
                        v->geometry.spacing_mm[a]);
    return 0;
}

/* The format of these first bytes. If nothing recognises them, the name says what the user believed
 * the file to be; else the NIfTI reader tells what is wrong with it. */
static const struct volume_format *recognise(const unsigned char *head, size_t n, const char *path,
                                             struct error *e)
{
    static const struct volume_format *const formats[] = {&format_nifti, &format_nrrd,
                                                          &format_metaimage};
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
        if (formats[i]->recognise(head, n))
            return formats[i];
    if (text_ends_with_nocase(path, ".h5") || text_ends_with_nocase(path, ".hdf5"))
        fail(e, ERR_DATA, "H01", "no HDF5 signature");
    else if (text_ends_with_nocase(path, ".dcm"))
        fail(e, ERR_DATA, "D01", "no DICM at byte 128");
    else
        return &format_nifti;
    return NULL;
}

static int read_source(struct volume *out, struct source *s, const struct volume_request *r,
                       struct error *e)
{
    unsigned char head[512];
    int64_t n = source_peek(s, head, sizeof head, e);
    if (n < 0)
        return -1;
    const struct volume_format *format = recognise(head, (size_t)n, source_path(s), e);
    if (!format)
        return -1;
    return format->read(out, s, r, e) < 0 ? -1 : check_spacing(out, r, e);
}

/* A name that says gzip over plain content, or the other way round [Z01 Z02]. */
static void check_name(const struct source *s, const struct volume_request *r)
{
    int named = text_ends_with_nocase(source_path(s), ".gz");
    if (named && !source_is_compressed(s))
        volume_warn(r, "Z01", "named .gz but not compressed; read by content");
    if (!named && source_is_compressed(s))
        volume_warn(r, "Z02", "gzip content under a plain name; read by content");
}

static int read_file(struct volume *out, const char *path, const struct volume_request *r,
                     struct error *e)
{
    struct source *s;
    unsigned char head[4096]; /* HDF5 may start behind a user block of 512, 1024 or 2048 bytes */
    if (source_open(&s, path, e) < 0)
        return fail_in(e, path);
    check_name(s, r);
    int64_t n = source_peek(s, head, sizeof head, e);
    int plain = n >= 0 && !source_is_compressed(s), result = -1, is_dicom = 0;
    if (plain && hdf5_recognise(head, (size_t)n))
        result = hdf5_read(out, path, r, e);
    else if (plain && dicom_recognise(head, (size_t)n))
        is_dicom = 1;
    else if (n >= 0)
        result = read_source(out, s, r, e);
    source_close(s);
    if (is_dicom)
        return dicom_read(out, path, r, e);
    return result < 0 ? fail_in(e, path) : 0;
}

/* Prepares a read: *out empty, *own a complete request whose warnings are held. */
static void begin(struct volume *out, struct volume_request *own, struct report_hold *hold,
                  const struct volume_request *r)
{
    *out = (struct volume){.slope = 1.0};
    *own = r ? *r : (struct volume_request){.part = VOLUME_ALL};
    if (!own->limits.voxels)
        own->limits.voxels = volume_default_limits.voxels;
    if (!own->limits.bytes)
        own->limits.bytes = volume_default_limits.bytes;
    report_hold(hold);
    own->report = &hold->report;
}

/* Ends it: warnings go out, or refuse a strict read. */
static int end(struct volume *out, struct report_hold *hold, const struct volume_request *r,
               int result, struct error *e)
{
    if (result == 0 && r && r->strict && report_refuse(hold, e) < 0)
        result = hold->path ? fail_in(e, hold->path) : -1;
    if (result < 0)
        volume_free(out);
    else
        report_release(hold, r ? r->report : NULL);
    return result;
}

int volume_read_source(struct volume *out, struct source *s, const struct volume_request *r,
                       struct error *e)
{
    struct volume_request own;
    struct report_hold hold;
    begin(out, &own, &hold, r);
    return end(out, &hold, r, read_source(out, s, &own, e), e);
}

int volume_read(struct volume *out, const char *path, const struct volume_request *r,
                struct error *e)
{
    struct volume_request own;
    struct report_hold hold;
    begin(out, &own, &hold, r);
    hold.path = path;
    int result = io_is_folder(path) ? dicom_read(out, path, &own, e)
                                    : read_file(out, path, &own, e);
    return end(out, &hold, r, result, e);
}

int volume_can_write(const char *path, struct error *e)
{
    if (text_ends_with_nocase(path, ".nii") || text_ends_with_nocase(path, ".nii.gz") ||
        text_ends_with_nocase(path, ".nrrd"))
        return 0;
    fail(e, ERR_CONFIG, "O02",
         "cannot write this kind of file, expected .nii, .nii.gz, .nrrd or .seg.nrrd");
    return fail_in(e, path);
}

int volume_write(const struct volume *v, const char *path, struct error *e)
{
    if (volume_can_write(path, e) < 0)
        return -1;
    return text_ends_with_nocase(path, ".nrrd") ? format_nrrd.write(v, path, e)
                                                : format_nifti.write(v, path, e);
}

int volume_write_file(const struct volume *v, const char *path, const void *header, size_t n,
                      int n_plain, struct error *e)
{
    const struct io_part parts[2] = {{header, n}, {v->data, volume_bytes(v)}};
    struct io_file *f;
    int result = 0;
    if (io_create(&f, path, 0666, e) < 0)
        return -1;
    for (int i = 0; i < n_plain && result == 0; i++)
        result = io_append(f, parts[i].bytes, parts[i].n, e);
    if (result == 0 && n_plain < 2)
        result = io_append_gzip(f, parts + n_plain, 2 - n_plain, e);
    if (result == 0)
        return io_commit(f, e);
    io_abandon(f);
    return -1;
}

/* ---- numbers --------------------------------------------------------------------------------- */

#define BLOCK_OF(TYPE)                                 \
    {                                                  \
        const TYPE *p = (const TYPE *)v->data + start; \
        for (int64_t i = 0; i < n; i++)                \
            out[i] = (double)p[i];                     \
        break;                                         \
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
             (long long)(at / v->dims[0] % v->dims[1]),
             (long long)(at / (v->dims[0] * v->dims[1])));
    return out;
}

/* Replaces or refuses what is not a number an image can hold. */
static int settle_nonfinite(float *x, const struct volume *v, int64_t n_odd, int64_t first,
                            float least, enum nan_policy policy, struct error *e)
{
    char where[80];
    if (policy == NAN_REFUSE)
        return fail(e, ERR_DATA, "N37",
                    "%lld NaN or Inf voxels, first at %s; use --nan zero or --nan min",
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
                            "value %g at %s, allowed up to %g", value,
                            index_text(where, v, at + i), most);
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

#define LABELS_OF(TYPE)                                      \
    for (int64_t i = 0; i < n; i++) {                        \
        int32_t x = ((const TYPE *)v->data)[i];              \
        least = x < least ? x : least;                       \
        most = x > most ? x : most;                          \
        y[i] = (label_t)x;                                   \
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
    return fail(e, ERR_DATA, !isfinite(value) ? "L06" : v->slope != 1.0 ? "N21" : "L05",
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

/* n is a multiple of LANES. NaN compares false: it is never the least, the most, or counted. */
static void measure_block(struct lanes *l, const double *x, int64_t n)
{
    struct lanes m = *l;
    for (int64_t i = 0; i < n; i += LANES)
        for (int k = 0; k < LANES; k++) {
            double value = x[i + k], good = value == value ? 1.0 : 0.0;
            m.min[k] = value < m.min[k] ? value : m.min[k];
            m.max[k] = value > m.max[k] ? value : m.max[k];
            m.sum[k] += value == value ? value : 0.0;
            m.n[k] += good;
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
    out->n_nan = n - (int64_t)n_good;
    if (n_good > 0.0)
        out->mean = sum / n_good;
    else
        out->min = out->max = NAN;
}
