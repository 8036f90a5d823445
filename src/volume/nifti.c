/* nifti.c - NIfTI-1 and NIfTI-2: .nii, .nii.gz, .hdr/.img pairs, both byte orders.
 *
 *   NIfTI-1   348-byte header, 4 bytes "is there an extension", extensions, voxels at vox_offset
 *   NIfTI-2   540-byte header, otherwise the same with wider fields
 *
 * Both headers are first decoded into one `struct header` of wide types; every check is written once,
 * on that. A header is believed only as far as the file can honour it. Real files are odd in known ways
 * (NaN slopes, vox_offset 0, spacing of unused axes 0); each such case is named below with its id.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "volume/nifti.h"

enum {
    EXTENSION_BYTES_MAX = 16 << 20,
    EXTENSIONS_MAX = 1000
};

struct header {
    int version;           /* 1 or 2 */
    int swap;              /* file has the other byte order */
    int pair;              /* voxels are in a second file */
    int64_t dim[8];
    int datatype, bitpix;
    double vox_offset, slope, inter;
    struct nifti_space space;
};

/* ---- decoding bytes ------------------------------------------------------------------------------ */

static uint64_t get_bits(const unsigned char *p, size_t n, int swap)
{
    uint64_t x = 0;
    for (size_t i = 0; i < n; i++) /* little-endian unless swapped */
        x |= (uint64_t)p[swap ? n - 1 - i : i] << (8 * i);
    return x;
}

static int64_t get_int(const unsigned char *p, size_t n, int swap)
{
    uint64_t x = get_bits(p, n, swap);
    return n == 2 ? (int16_t)x : n == 4 ? (int32_t)x : (int64_t)x;
}

static double get_real(const unsigned char *p, size_t n, int swap)
{
    uint64_t bits = get_bits(p, n, swap);
    if (n == 8) {
        double d;
        memcpy(&d, &bits, 8);
        return d;
    }
    uint32_t low = (uint32_t)bits;
    float f;
    memcpy(&f, &low, 4);
    return f;
}

static void decode(struct header *h, const unsigned char *b)
{
    const struct nifti_layout *at = &nifti_layouts[h->version];
    int swap = h->swap;
    for (size_t i = 0; i < 8; i++) {
        h->dim[i] = get_int(b + at->dim + i * at->int_w, at->int_w, swap);
        h->space.pixdim[i] = get_real(b + at->pixdim + i * at->real_w, at->real_w, swap);
    }
    h->datatype = (int)get_int(b + at->datatype, 2, swap);
    h->bitpix = (int)get_int(b + at->bitpix, 2, swap);
    h->vox_offset = h->version == 1 ? get_real(b + at->vox_offset, 4, swap)
                                    : (double)get_int(b + at->vox_offset, 8, swap);
    h->slope = get_real(b + at->slope, at->real_w, swap);
    h->inter = get_real(b + at->inter, at->real_w, swap);
    h->space.version = h->version;
    h->space.xyzt_units = h->version == 1 ? b[at->units] : (int)get_int(b + at->units, 4, swap);
    h->space.qform_code = (int)get_int(b + at->qform, at->code_w, swap);
    h->space.sform_code = (int)get_int(b + at->sform, at->code_w, swap);
    for (size_t i = 0; i < 3; i++) {
        h->space.quatern[i] = get_real(b + at->quatern + i * at->real_w, at->real_w, swap);
        h->space.qoffset[i] = get_real(b + at->qoffset + i * at->real_w, at->real_w, swap);
        for (size_t j = 0; j < 4; j++)
            h->space.srow[i][j] =
                get_real(b + at->srow + (i * 4 + j) * at->real_w, at->real_w, swap);
    }
}

/* ---- recognising ----------------------------------------------------------------------------------- */

/* Version 1 or 2 and byte order from sizeof_hdr; 0 if it is neither. */
static int version_of(const unsigned char *head, size_t n, int *swap)
{
    if (n < 4)
        return 0;
    for (*swap = 0; *swap < 2; (*swap)++) {
        int64_t size = get_int(head, 4, *swap);
        if (size == 348 || size == 540)
            return size == 348 ? 1 : 2;
    }
    return 0;
}

static int recognise(const unsigned char *head, size_t n)
{
    int swap;
    return version_of(head, n, &swap) != 0;
}

static const char *guess_format(const unsigned char *b, size_t n)
{
    if (n >= 132 && memcmp(b + 128, "DICM", 4) == 0)
        return "; it looks like DICOM";
    if (n >= 8 && memcmp(b, "\x89HDF\r\n\x1A\n", 8) == 0)
        return "; it looks like HDF5";
    if (n >= 4 && memcmp(b, "NRRD", 4) == 0)
        return "; it looks like NRRD";
    if (n >= 4 && memcmp(b, "\x89PNG", 4) == 0)
        return "; it looks like PNG";
    return "";
}

/* A file no format recognises ends here, with what was expected of it. */
static int refuse_unknown(const unsigned char *b, size_t n, struct error *e)
{
    if (n == 0)
        return fail(e, ERR_DATA, "N01", "0 bytes, need 348 for a NIfTI header");
    if (n >= 12 && memcmp(b, "<nifti_image", 12) == 0)
        return fail(e, ERR_DATA, "N40", "ASCII NIfTI (.nia) is not supported");
    if (n >= 4 && memcmp(b, "NRRD", 4) == 0)
        return fail(e, ERR_DATA, "R01", "NRRD magic is not NRRD0001 to NRRD0005");
    if (n < 348)
        return fail(e, ERR_DATA, "N02", "truncated header, %zu of 348 bytes", n);
    return fail(e, ERR_DATA, "N03", "no known image format: NIfTI's sizeof_hdr is %lld, expected 348 or "
                                    "540%s", (long long)get_int(b, 4, 0), guess_format(b, n));
}

static int check_magic(struct header *h, const unsigned char *b, struct error *e)
{
    const unsigned char *magic = b + nifti_layouts[h->version].magic;
    char digit = h->version == 1 ? '1' : '2';
    int single = magic[0] == 'n' && magic[1] == '+' && magic[2] == digit && magic[3] == 0;
    int pair = magic[0] == 'n' && magic[1] == 'i' && magic[2] == digit && magic[3] == 0;
    if (!single && !pair)
        return fail(e, ERR_DATA, "N05",
                    "magic missing: Analyze 7.5 is not supported, its orientation is unknown");
    if (h->version == 2 && memcmp(magic + 4, "\r\n\x1A\n", 4) != 0)
        return fail(e, ERR_DATA, "N06", "damaged in text-mode transfer: line ends in the magic changed");
    h->pair = pair;
    return 0;
}

/* ---- checks on the header ------------------------------------------------------------------------- */

static int check_dims(struct volume *v, const struct header *h, struct error *e)
{
    if (h->dim[0] < 1 || h->dim[0] > 7)
        return fail(e, ERR_DATA, "N07", "dim[0]=%lld, allowed 1..7", (long long)h->dim[0]);
    v->n_dims = (int)h->dim[0];
    for (int a = 0; a < VOLUME_MAX_DIMS; a++) {
        v->dims[a] = a < v->n_dims ? h->dim[a + 1] : 1;
        if (v->dims[a] < 1)
            return fail(e, ERR_DATA, "N08", "dim[%d]=%lld, must be at least 1", a + 1,
                        (long long)v->dims[a]);
    }
    return 0;
}

static const struct { int code; const char *name; } useless_datatypes[] = {
    {32, "complex64"}, {128, "RGB24"},       {1536, "float128"},
    {1792, "complex128"}, {2048, "complex256"}, {2304, "RGBA32"},
};

static int check_datatype(struct volume *v, const struct header *h, struct error *e)
{
    for (size_t i = 0; i < sizeof useless_datatypes / sizeof useless_datatypes[0]; i++)
        if (useless_datatypes[i].code == h->datatype)
            return fail(e, ERR_DATA, "N17", "datatype %s cannot be a scalar image",
                        useless_datatypes[i].name);
    if (nifti_dtype(&v->dtype, h->datatype) < 0)
        return fail(e, ERR_DATA, "N16", "datatype %d unknown", h->datatype);
    int bits = 8 * (int)dtype_bytes(v->dtype);
    if (h->bitpix != bits)
        return fail(e, ERR_DATA, "N18", "bitpix %d, datatype %s needs %d", h->bitpix,
                    dtype_name(v->dtype), bits);
    return 0;
}

static int check_scaling(struct volume *v, const struct header *h, struct report *report,
                         const char *path, struct error *e)
{
    if (isinf(h->slope) || isinf(h->inter))
        return fail(e, ERR_DATA, "N19", "scl_slope=%g, scl_inter=%g, must be finite", h->slope, h->inter);
    if (isnan(h->slope) || isnan(h->inter)) {
        report_line(report, REPORT_WARNING, path, "N19", "scl_slope or scl_inter is NaN; no scaling");
        return 0;
    }
    if (h->slope != 0.0) { /* the standard: slope 0 means no scaling */
        v->slope = h->slope;
        v->inter = h->inter;
    }
    return 0;
}

/* ---- geometry --------------------------------------------------------------------------------------- */

/* What is wrong with the geometry is a refusal, or a warning when the file is only to be described. */
static int odd_geometry(const struct volume_request *r, const char *path, struct error *e)
{
    if (!r || !r->describe)
        return -1;
    report_line(r->report, REPORT_WARNING, path, e->id[0] ? e->id : NULL, "%s", e->text);
    return 0;
}

/* xyzt_units: 1 metre, 2 millimetre, 3 micron; anything else is taken as millimetres. */
static double unit_mm(int xyzt_units)
{
    int code = xyzt_units & 7;
    return code == 1 ? 1000.0 : code == 3 ? 0.001 : 1.0;
}

static int check_spacing(struct geometry *g, const struct volume *v, const struct header *h,
                         struct report *report, const char *path, struct error *e)
{
    int negative = 0;
    for (int a = 0; a < 3; a++) {
        double s = a < v->n_dims ? h->space.pixdim[a + 1] : 1.0;
        if (v->dims[a] == 1 && (s == 0.0 || !isfinite(s)))
            s = 1.0; /* an axis of one voxel: writers leave its spacing 0 */
        negative |= s < 0.0;
        s = fabs(s) * unit_mm(h->space.xyzt_units);
        g->spacing_mm[a] = s;
        if (!isfinite(s) || s < FLT_MIN) /* zero and denormals too */
            return fail(e, ERR_DATA, "N22", "spacing[%d]=%g, must be positive", a + 1, s);
    }
    if (negative)
        report_line(report, REPORT_WARNING, path, "N22", "negative spacing; absolute value used");
    return 0;
}

/* The rotation of the quaternion (a from b, c, d), columns scaled by spacing, third one by qfac. */
static int qform_affine(double out[3][4], const struct header *h, const struct geometry *g,
                        struct error *e)
{
    double qfac = h->space.pixdim[0];
    if (qfac == 0.0)
        qfac = 1.0;
    if (qfac != 1.0 && qfac != -1.0)
        return fail(e, ERR_DATA, "N28", "qfac (pixdim[0]) is %g, allowed -1, 0, 1", qfac);
    double b = h->space.quatern[0], c = h->space.quatern[1], d = h->space.quatern[2];
    double squared = b * b + c * c + d * d;
    if (!(squared <= 1.01))
        return fail(e, ERR_DATA, "N27", "quaternion b^2+c^2+d^2=%g, must be at most 1", squared);
    double a = 0.0;
    if (squared > 1.0) {
        double scale = 1.0 / sqrt(squared);
        b *= scale, c *= scale, d *= scale;
    } else {
        a = sqrt(1.0 - squared);
    }
    const double rotation[3][3] = {
        {a * a + b * b - c * c - d * d, 2 * (b * c - a * d), 2 * (b * d + a * c)},
        {2 * (b * c + a * d), a * a + c * c - b * b - d * d, 2 * (c * d - a * b)},
        {2 * (b * d - a * c), 2 * (c * d + a * b), a * a + d * d - b * b - c * c},
    };
    double unit = unit_mm(h->space.xyzt_units);
    for (int row = 0; row < 3; row++) {
        for (int col = 0; col < 3; col++)
            out[row][col] = rotation[row][col] * g->spacing_mm[col] * (col == 2 ? qfac : 1.0);
        out[row][3] = h->space.qoffset[row] * unit;
        if (!isfinite(out[row][3]))
            return fail(e, ERR_DATA, "N25", "qoffset[%d]=%g, must be finite", row, out[row][3]);
    }
    return 0;
}

static int sform_affine(double out[3][4], const struct header *h, struct error *e)
{
    double unit = unit_mm(h->space.xyzt_units), inverse[3][4];
    for (int row = 0; row < 3; row++)
        for (int col = 0; col < 4; col++) {
            out[row][col] = h->space.srow[row][col] * unit;
            if (!isfinite(out[row][col]))
                return fail(e, ERR_DATA, "N25", "sform contains %g", out[row][col]);
        }
    if (affine_invert(inverse, (const double(*)[4])out) < 0)
        return fail(e, ERR_DATA, "N25", "sform is singular");
    return 0;
}

/* Which of the two maps holds, and what to say about it [N24 N25 N26]. */
static int choose_affine(struct geometry *g, const struct header *h, struct report *report,
                         const char *path, struct error *e)
{
    double q[3][4], s[3][4], worst = 0.0;
    int has_q = h->space.qform_code > 0, has_s = h->space.sform_code > 0;
    if (!has_q && !has_s) {
        report_line(report, REPORT_WARNING, path, "N24", "no orientation (sform and qform codes are 0)");
        return 0;
    }
    if (has_s && sform_affine(s, h, e) < 0)
        return -1;
    if (has_q && qform_affine(q, h, g, e) < 0)
        return -1;
    g->known = 1;
    if (has_s && affine_shear((const double(*)[4])s) > 1e-3) {
        report_line(report, REPORT_WARNING, path, "N25", "sform axes are not orthogonal (cosine %.3g)%s",
                    affine_shear((const double(*)[4])s), has_q ? "; qform used" : "");
        has_s = !has_q;
    }
    memcpy(g->affine, has_s ? s : q, sizeof g->affine);
    if (has_s && has_q) {
        for (int i = 0; i < 12; i++)
            worst = fmax(worst, fabs(s[i / 4][i % 4] - q[i / 4][i % 4]));
        if (worst > 1e-3)
            report_line(report, REPORT_WARNING, path, "N26",
                        "sform and qform differ by %.3g mm; sform used", worst);
    }
    return 0;
}

static int read_geometry(struct volume *v, const struct header *h, const struct volume_request *r,
                         const char *path, struct error *e)
{
    struct geometry *g = &v->geometry;
    struct report *report = r ? r->report : NULL;
    geometry_identity(g, NULL);
    g->nifti = h->space;
    if (check_spacing(g, v, h, report, path, e) < 0 && odd_geometry(r, path, e) < 0)
        return -1;
    for (int a = 0; a < 3; a++)
        g->affine[a][a] = g->spacing_mm[a];
    return choose_affine(g, h, report, path, e) < 0 ? odd_geometry(r, path, e) : 0;
}

/* ---- where the voxels are ---------------------------------------------------------------------------- */

/* Walks the extensions between the header and vox_offset [N35]. `left` bytes lie between. */
static int skip_extensions(struct source *s, const struct header *h, uint64_t left, struct error *e)
{
    if (left > EXTENSION_BYTES_MAX)
        return fail(e, ERR_DATA, "N35", "%llu bytes of extensions, limit %d", (unsigned long long)left,
                    EXTENSION_BYTES_MAX);
    for (int count = 0; left >= 8; count++) {
        unsigned char b[8];
        if (source_read(s, b, 8, e) < 0)
            return -1;
        int64_t bytes = get_int(b, 4, h->swap);
        if (bytes < 8 || bytes % 16 != 0 || (uint64_t)bytes > left || count == EXTENSIONS_MAX)
            return fail(e, ERR_DATA, "N35", "extension %d has esize=%lld, %llu bytes are left before "
                        "vox_offset", count, (long long)bytes, (unsigned long long)left);
        if (source_skip(s, (uint64_t)bytes - 8, e) < 0)
            return -1;
        left -= (uint64_t)bytes;
    }
    return source_skip(s, left, e);
}

enum { OFFSET_SOUND, OFFSET_REPAIRED };

/* Moves a single-file source from the end of its header to the voxels. Returns OFFSET_* or -1. */
static int go_to_voxels(struct source *s, const struct header *h, struct report *report, struct error *e)
{
    double least = (double)nifti_layouts[h->version].bytes + 4, offset = h->vox_offset;
    int state = OFFSET_SOUND;
    if (!isfinite(offset) || offset < 0.0 || offset != floor(offset) || offset > 9e15)
        return fail(e, ERR_DATA, "N13", "vox_offset=%g, must be a whole number from %g on", offset, least);
    if (offset == 0.0 || offset == least - 4) {
        report_line(report, REPORT_WARNING, source_path(s), "N14", "vox_offset=%g; taken as %g", offset,
                    least);
        offset = least;
        state = OFFSET_REPAIRED;
    }
    if (offset < least)
        return fail(e, ERR_DATA, "N15", "vox_offset=%g lies inside the header, least is %g", offset,
                    least);
    unsigned char flag[4];
    int64_t got = source_read_some(s, flag, 4, e);
    if (got < 4)
        return got < 0 ? -1 : fail(e, ERR_DATA, "N11", "ends after the header, voxels are at %g", offset);
    uint64_t between = (uint64_t)(offset - least);
    if (source_can_hold(s, between, "N13", e) < 0)
        return -1;
    if (flag[0] && between > 0)
        return skip_extensions(s, h, between, e) < 0 ? -1 : state;
    return source_skip(s, between, e) < 0 ? -1 : state;
}

/* The .img of a .hdr: same folder, same stem, compressed or not. */
static int open_image(struct source **out, struct source *s, struct error *e)
{
    const char *name = path_name(source_path(s));
    size_t stem = strlen(name);
    if (text_ends_with_nocase(name, ".gz"))
        stem -= 3;
    stem = stem > 4 && name[stem - 4] == '.' ? stem - 4 : stem;
    static const char *const tails[] = {".img", ".img.gz", ".IMG", ".IMG.gz"};
    int result = -1;
    for (int i = 0; i < 4 && result < 0; i++) {
        char *image = mem_format(e, "%.*s%s", (int)stem, name, tails[i]);
        struct error trial = {.code = ERR_NONE};
        result = image ? source_open_beside(out, s, image, &trial) : -1;
        if (result < 0 && (i == 0 || (trial.code != ERR_SYSTEM && e->code == ERR_SYSTEM)))
            *e = trial;
        mem_free(image);
    }
    if (result < 0) {
        e->code = ERR_DATA;
        snprintf(e->id, sizeof e->id, "N36");
        return -1;
    }
    unsigned char head[2];
    int64_t n = source_peek(*out, head, 2, e);
    if (n == 2 && head[0] == 0x1F && head[1] == 0x8B)
        result = source_decode(*out, SOURCE_GZIP, e);
    if (n < 0 || result < 0) {
        source_close(*out);
        return -1;
    }
    return 0;
}

static int read_pair(struct volume *v, struct source *s, const struct header *h,
                     const struct volume_request *r, struct error *e)
{
    struct source *image;
    double offset = h->vox_offset;
    if (!isfinite(offset) || offset < 0.0 || offset != floor(offset) || offset > 9e15)
        return fail(e, ERR_DATA, "N13", "vox_offset=%g, must be a whole number", offset);
    if (open_image(&image, s, e) < 0)
        return -1;
    int result = -1;
    if (source_can_hold(image, (uint64_t)offset, "N36", e) == 0 &&
        source_skip(image, (uint64_t)offset, e) == 0)
        result = volume_read_voxels(v, image, h->swap, "N36", r, e);
    if (result < 0)
        fail_in(e, path_name(source_path(image)));
    source_close(image);
    return result;
}

static int read_single(struct volume *v, struct source *s, const struct header *h,
                       const struct volume_request *r, struct error *e)
{
    int state = go_to_voxels(s, h, r ? r->report : NULL, e);
    if (state < 0)
        return -1;
    if (state == OFFSET_SOUND)
        return volume_read_voxels(v, s, h->swap, "N11", r, e);
    struct volume_request exact = r ? *r : (struct volume_request){.part = VOLUME_ALL};
    exact.strict = 1; /* a repaired offset is believed only if the size then fits exactly [N14] */
    if (volume_read_voxels(v, s, h->swap, "N14", &exact, e) < 0) {
        if (strcmp(e->id, "N12") == 0)
            fail(e, ERR_DATA, "N14", "vox_offset=%g and the size does not fit", h->vox_offset);
        return -1;
    }
    return 0;
}

static int read_nifti(struct volume *v, struct source *s, const struct volume_request *r,
                      struct error *e)
{
    struct header h = {.version = 0};
    unsigned char b[540] = {0};
    int64_t n = source_read_some(s, b, 348, e);
    if (n < 0)
        return -1;
    h.version = version_of(b, (size_t)n, &h.swap);
    if (h.version == 0 || n < 348)
        return refuse_unknown(b, (size_t)n, e);
    if (h.version == 2) {
        int64_t more = source_read_some(s, b + 348, 540 - 348, e);
        if (more < 540 - 348)
            return more < 0 ? -1 : fail(e, ERR_DATA, "N04", "truncated NIfTI-2 header, %lld of 540 bytes",
                                        (long long)(348 + more));
    }
    const char *path = source_path(s);
    struct report *report = r ? r->report : NULL;
    if (check_magic(&h, b, e) < 0)
        return -1;
    decode(&h, b);
    v->format = h.version == 1 ? "NIfTI-1" : "NIfTI-2";
    if (check_dims(v, &h, e) < 0 || check_datatype(v, &h, e) < 0 ||
        check_scaling(v, &h, report, path, e) < 0 || read_geometry(v, &h, r, path, e) < 0)
        return -1;
    return h.pair ? read_pair(v, s, &h, r, e) : read_single(v, s, &h, r, e);
}

const struct volume_format format_nifti = {"NIfTI", recognise, read_nifti, nifti_write};
