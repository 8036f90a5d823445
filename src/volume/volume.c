/* volume.c - from a path to voxels and back: which format, which checks. See volume.h.
 *
 * Formats share everything but their headers: the claim of a header is compared with limits and
 * with what the file can hold before a byte is allocated. What is odd about a file is held back
 * until it has been read: then it is told or, in a strict read, turned into a refusal. So a file
 * gives warnings or one error, never both.
 */
#include <math.h>
#include <string.h>

#include "base/io.h"
#include "volume/volume.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "voxels are kept little-endian");

const struct volume_limits volume_default_limits = {
    .voxels = (uint64_t)1 << 31,
    .bytes = (uint64_t)8 << 30,
};

static const struct {
    size_t bytes;
    const char *name;
} dtypes[] = {
    [DTYPE_U8] = {1, "uint8"},    [DTYPE_I8] = {1, "int8"},    [DTYPE_U16] = {2, "uint16"},
    [DTYPE_I16] = {2, "int16"},   [DTYPE_U32] = {4, "uint32"}, [DTYPE_I32] = {4, "int32"},
    [DTYPE_U64] = {8, "uint64"},  [DTYPE_I64] = {8, "int64"},  [DTYPE_F32] = {4, "float32"},
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
            return fail(e, ERR_DATA, "N08", "dim[%d]=%lld, must be at least 1", a + 1, (long long)v->dims[a]);
        if (size_mul(&n, n, (size_t)v->dims[a]) < 0)
            return fail(e, ERR_DATA, "N09", "size overflows at dim[%d]=%lld", a + 1, (long long)v->dims[a]);
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
static int check_end(struct source *data, int exact, const char *id_claim, const struct volume_request *r,
                     struct error *e)
{
    int64_t more = source_finish(data, e);
    if (more < 0)
        return -1;
    if (more > 0 && exact)
        return fail(e, ERR_DATA, id_claim, "size does not fit: the file goes on after the claimed voxels");
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
    enum { BLOCK = 4096 }; /* numbers looked at a time */
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
        volume_warn(r, "N30", "%zu of %zu values have implausible exponents; is the byte order right?", odd,
                    nonzero);
}

int volume_read_voxels(struct volume *v, struct source *data, int flags, const char *id_claim,
                       const struct volume_request *r, struct error *e)
{
    size_t n = 0, each = dtype_bytes(v->dtype);
    if (claimed_values(&n, v, &r->limits, e) < 0 || source_can_hold(data, n * each, id_claim, e) < 0)
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
    static const struct volume_format *const formats[] = {&format_nifti, &format_nrrd, &format_metaimage};
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

static int read_source(struct volume *out, struct source *s, const struct volume_request *r, struct error *e)
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

static int read_file(struct volume *out, const char *path, const struct volume_request *r, struct error *e)
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
static int end(struct volume *out, struct report_hold *hold, const struct volume_request *r, int result,
               struct error *e)
{
    if (result == 0 && r && r->strict && report_refuse(hold, e) < 0)
        result = hold->path ? fail_in(e, hold->path) : -1;
    if (result < 0)
        volume_free(out);
    else
        report_release(hold, r ? r->report : NULL);
    return result;
}

int volume_read_source(struct volume *out, struct source *s, const struct volume_request *r, struct error *e)
{
    struct volume_request own;
    struct report_hold hold;
    struct error unheard;
    e = e ? e : &unheard;
    begin(out, &own, &hold, r);
    return end(out, &hold, r, read_source(out, s, &own, e), e);
}

int volume_read(struct volume *out, const char *path, const struct volume_request *r, struct error *e)
{
    struct volume_request own;
    struct report_hold hold;
    struct error unheard;
    e = e ? e : &unheard;
    begin(out, &own, &hold, r);
    hold.path = path;
    int result = io_is_folder(path) ? dicom_read(out, path, &own, e) : read_file(out, path, &own, e);
    return end(out, &hold, r, result, e);
}

int volume_can_write(const char *path, struct error *e)
{
    if (text_ends_with_nocase(path, ".nii") || text_ends_with_nocase(path, ".nii.gz") ||
        text_ends_with_nocase(path, ".nrrd"))
        return 0;
    fail(e, ERR_CONFIG, "O02", "cannot write this kind of file, expected .nii, .nii.gz, .nrrd or .seg.nrrd");
    return fail_in(e, path);
}

int volume_write(const struct volume *v, const char *path, struct error *e)
{
    if (volume_can_write(path, e) < 0)
        return -1;
    return text_ends_with_nocase(path, ".nrrd") ? format_nrrd.write(v, path, e)
                                                : format_nifti.write(v, path, e);
}

int volume_write_file(const struct volume *v, const char *path, const void *header, size_t n, int n_plain,
                      struct error *e)
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
