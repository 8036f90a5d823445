/* nifti.c - NIfTI-1 and NIfTI-2: .nii, .nii.gz, .hdr/.img pairs, both byte orders.
 *
 *   NIfTI-1   348-byte header, 4 bytes "is there an extension", extensions, voxels at vox_offset
 *   NIfTI-2   540-byte header, otherwise the same with wider fields
 *
 * Both headers are first decoded into one struct of wide types; every check is written once, on
 * that. A header is believed only as far as the file can honour it. Real files are odd in known
 * ways (NaN slopes, vox_offset 0, spacing of unused axes 0); each such case is named below with its
 * id.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "volume/nifti.h"

enum { EXTENSIONS_MAX = 1000 };

struct header {
    int version; /* 1 or 2 */
    int swap;    /* the file is big-endian */
    int pair;    /* voxels are in a second file */
    struct nifti_fields f;
};

static int32_t get_i32(const unsigned char *p, int swap)
{
    uint32_t x;
    memcpy(&x, p, 4);
    return (int32_t)(swap ? __builtin_bswap32(x) : x);
}

/* ---- recognising ----------------------------------------------------------------------------- */

/* Version 1 or 2 and byte order from sizeof_hdr; 0 if it is neither. */
static int version_of(const unsigned char *head, size_t n, int *swap)
{
    for (*swap = 0; n >= 4 && *swap < 2; (*swap)++) {
        int32_t size = get_i32(head, *swap);
        if (size == NIFTI_1_BYTES || size == NIFTI_2_BYTES)
            return size == NIFTI_1_BYTES ? 1 : 2;
    }
    return 0;
}

static int recognise(const unsigned char *head, size_t n)
{
    int swap;
    return version_of(head, n, &swap) != 0;
}

/* A file no format recognises ends here, with what was expected of it. b holds 348 bytes. */
static int refuse_unknown(const unsigned char *b, size_t n, struct error *e)
{
    if (n == 0)
        return fail(e, ERR_DATA, "N01", "0 bytes, need 348 for a NIfTI header");
    if (memcmp(b, "<nifti_image", 12) == 0)
        return fail(e, ERR_DATA, "N40", "ASCII NIfTI (.nia) is not supported");
    if (n < NIFTI_1_BYTES)
        return fail(e, ERR_DATA, "N02", "truncated header, %zu of 348 bytes", n);
    const char *guess = memcmp(b + 128, "DICM", 4) == 0          ? "; it looks like DICOM"
                        : memcmp(b, "\x89HDF\r\n\x1A\n", 8) == 0 ? "; it looks like HDF5"
                        : memcmp(b, "\x89PNG", 4) == 0           ? "; it looks like PNG"
                                                                 : "";
    return fail(e, ERR_DATA, "N03", "no known image format: NIfTI's sizeof_hdr is %ld, expected 348 or 540%s",
                (long)get_i32(b, 0), guess);
}

static int check_magic(struct header *h, const unsigned char *b, struct error *e)
{
    const unsigned char *magic = b + (h->version == 1 ? 344 : 4);
    const char *single = h->version == 1 ? "n+1" : "n+2", *pair = h->version == 1 ? "ni1" : "ni2";
    h->pair = memcmp(magic, pair, 4) == 0;
    if (!h->pair && memcmp(magic, single, 4) != 0)
        return fail(e, ERR_DATA, "N05",
                    "magic missing: Analyze 7.5 is not supported, its orientation is unknown");
    if (h->version == 2 && memcmp(magic + 4, "\r\n\x1A\n", 4) != 0)
        return fail(e, ERR_DATA, "N06", "damaged in text-mode transfer: line ends in the magic changed");
    return 0;
}

/* ---- shape and type -------------------------------------------------------------------------- */

static int check_dims(struct volume *v, const int64_t dim[8], struct error *e)
{
    if (dim[0] < 1 || dim[0] > 7)
        return fail(e, ERR_DATA, "N07", "dim[0]=%lld, allowed 1..7", (long long)dim[0]);
    v->n_dims = (int)dim[0];
    for (int a = 0; a < VOLUME_MAX_DIMS; a++) {
        v->dims[a] = a < v->n_dims ? dim[a + 1] : 1;
        if (v->dims[a] < 1)
            return fail(e, ERR_DATA, "N08", "dim[%d]=%lld, must be at least 1", a + 1, (long long)v->dims[a]);
    }
    return 0;
}

static int check_datatype(struct volume *v, const struct nifti_fields *f, struct error *e)
{
    static const struct {
        int code;
        const char *name;
    } useless[] = {
        {32, "complex64"},    {128, "RGB24"},       {1536, "float128"},
        {1792, "complex128"}, {2048, "complex256"}, {2304, "RGBA32"},
    };
    for (size_t i = 0; i < sizeof useless / sizeof useless[0]; i++)
        if (useless[i].code == f->datatype)
            return fail(e, ERR_DATA, "N17", "datatype %s cannot be a scalar image", useless[i].name);
    int t = DTYPE_U8;
    while (t <= DTYPE_F64 && nifti_datatypes[t] != f->datatype)
        t++;
    if (t > DTYPE_F64)
        return fail(e, ERR_DATA, "N16", "datatype %d unknown", (int)f->datatype);
    v->dtype = (enum dtype)t;
    int bits = 8 * (int)dtype_bytes(v->dtype);
    if (f->bitpix != bits)
        return fail(e, ERR_DATA, "N18", "bitpix %d, datatype %s needs %d", (int)f->bitpix,
                    dtype_name(v->dtype), bits);
    return 0;
}

static int check_scaling(struct volume *v, const struct nifti_fields *f, const struct volume_request *r,
                         struct error *e)
{
    if (isinf(f->slope) || isinf(f->inter))
        return fail(e, ERR_DATA, "N19", "scl_slope=%g, scl_inter=%g, must be finite", f->slope, f->inter);
    if (isnan(f->slope) || isnan(f->inter)) {
        volume_warn(r, "N19", "scl_slope or scl_inter is NaN; no scaling");
    } else if (f->slope != 0.0) { /* the standard: slope 0 means no scaling */
        v->slope = f->slope;
        v->inter = f->inter;
    }
    return 0;
}

/* ---- geometry -------------------------------------------------------------------------------- */

/* xyzt_units: 1 metre, 2 millimetre, 3 micron; anything else is taken as millimetres. */
static double unit_mm(const struct nifti_space *s)
{
    int code = s->xyzt_units & 7;
    return code == 1 ? 1000.0 : code == 3 ? 0.001 : 1.0;
}

static int check_spacing(struct volume *v, const struct nifti_space *s, const struct volume_request *r,
                         struct error *e)
{
    int negative = 0, bad = -1;
    for (int a = 2; a >= 0; a--) {
        double step = a < v->n_dims ? s->pixdim[a + 1] : 1.0;
        if (v->dims[a] == 1 && (step == 0.0 || !isfinite(step)))
            step = 1.0; /* an axis of one voxel: writers leave its spacing 0 */
        negative |= step < 0.0;
        step = fabs(step) * unit_mm(s);
        v->geometry.spacing_mm[a] = step;
        if (!isfinite(step) || step < FLT_MIN) /* zero and denormals too */
            bad = a;
    }
    if (bad >= 0)
        return fail(e, ERR_DATA, "N22", "spacing[%d]=%g, must be positive", bad + 1,
                    v->geometry.spacing_mm[bad]);
    if (negative)
        volume_warn(r, "N22", "negative spacing; absolute value used");
    return 0;
}

/* The rotation of the quaternion (a from b, c, d), columns scaled by spacing, third by qfac. */
static int qform_affine(double out[3][4], const struct nifti_space *s, const double spacing[3],
                        struct error *e)
{
    double qfac = s->pixdim[0] == 0.0 ? 1.0 : s->pixdim[0];
    if (qfac != 1.0 && qfac != -1.0)
        return fail(e, ERR_DATA, "N28", "qfac (pixdim[0]) is %g, allowed -1, 0, 1", qfac);
    double b = s->quatern[0], c = s->quatern[1], d = s->quatern[2];
    double squared = b * b + c * c + d * d;
    if (!(squared <= 1.01))
        return fail(e, ERR_DATA, "N27", "quaternion b^2+c^2+d^2=%g, must be at most 1", squared);
    double a = squared > 1.0 ? 0.0 : sqrt(1.0 - squared);
    double scale = squared > 1.0 ? 1.0 / sqrt(squared) : 1.0;
    b *= scale, c *= scale, d *= scale;
    const double rotation[3][3] = {
        {a * a + b * b - c * c - d * d, 2 * (b * c - a * d), 2 * (b * d + a * c)},
        {2 * (b * c + a * d), a * a + c * c - b * b - d * d, 2 * (c * d - a * b)},
        {2 * (b * d - a * c), 2 * (c * d + a * b), a * a + d * d - b * b - c * c},
    };
    for (int row = 0; row < 3; row++) {
        for (int col = 0; col < 3; col++)
            out[row][col] = rotation[row][col] * spacing[col] * (col == 2 ? qfac : 1.0);
        out[row][3] = s->qoffset[row] * unit_mm(s);
        if (!isfinite(out[row][3]))
            return fail(e, ERR_DATA, "N25", "qoffset[%d]=%g, must be finite", row, out[row][3]);
    }
    return 0;
}

static int sform_affine(double out[3][4], const struct nifti_space *s, struct error *e)
{
    double inverse[3][4];
    for (int i = 0; i < 12; i++) {
        double x = out[i / 4][i % 4] = s->srow[i / 4][i % 4] * unit_mm(s);
        if (!isfinite(x))
            return fail(e, ERR_DATA, "N25", "sform contains %g", x);
    }
    if (affine_invert(inverse, (const double(*)[4])out) < 0)
        return fail(e, ERR_DATA, "N25", "sform is singular");
    return 0;
}

/* Which of the two maps holds, and what to say about it [N24 N25 N26]. */
static int choose_affine(struct geometry *g, const struct nifti_space *n, const struct volume_request *r,
                         struct error *e)
{
    double q[3][4], s[3][4], worst = 0.0;
    int has_q = n->qform_code > 0, has_s = n->sform_code > 0;
    if (!has_q && !has_s) {
        if (!r->place_unknown)
            volume_warn(r, "N24", "no orientation (sform and qform codes are 0)");
        return 0;
    }
    if ((has_s && sform_affine(s, n, e) < 0) || (has_q && qform_affine(q, n, g->spacing_mm, e) < 0))
        return -1;
    g->known = 1;
    double shear = has_s ? affine_shear((const double(*)[4])s) : 0.0;
    if (shear > 1e-3) {
        volume_warn(r, "N25", "sform axes are not orthogonal (cosine %.3g)%s", shear,
                    has_q ? "; qform used" : "");
        has_s = !has_q;
    }
    memcpy(g->affine, has_s ? s : q, sizeof g->affine);
    for (int i = 0; i < 12 && has_s && has_q; i++)
        worst = fmax(worst, fabs(s[i / 4][i % 4] - q[i / 4][i % 4]));
    if (worst > 1e-3)
        volume_warn(r, "N26", "sform and qform differ by %.3g mm; sform used", worst);
    return 0;
}

/* What is wrong with the geometry is a refusal, or a warning if the file is only described. */
static int odd_geometry(const struct volume_request *r, const struct error *e)
{
    if (r->describe)
        volume_warn(r, e->id, "%s", e->text);
    return r->describe ? 0 : -1;
}

static int read_geometry(struct volume *v, const struct nifti_space *s, const struct volume_request *r,
                         struct error *e)
{
    struct geometry *g = &v->geometry;
    geometry_identity(g, NULL);
    g->nifti = *s;
    if (check_spacing(v, s, r, e) < 0 && odd_geometry(r, e) < 0)
        return -1;
    for (int a = 0; a < 3; a++)
        g->affine[a][a] = g->spacing_mm[a];
    return choose_affine(g, s, r, e) < 0 ? odd_geometry(r, e) : 0;
}

/* ---- where the voxels are -------------------------------------------------------------------- */

/* Walks the extensions between the header and vox_offset [N35]. `left` bytes lie between. */
static int skip_extensions(struct source *s, int swap, uint64_t left, struct error *e)
{
    if (left > NIFTI_EXTENSION_BYTES)
        return fail(e, ERR_DATA, "N35", "%llu bytes of extensions, limit %d", (unsigned long long)left,
                    NIFTI_EXTENSION_BYTES);
    for (int count = 0; left >= 8; count++) {
        unsigned char b[8];
        if (source_read(s, b, 8, e) < 0)
            return -1;
        int64_t bytes = get_i32(b, swap);
        if (bytes < 8 || bytes % 16 != 0 || (uint64_t)bytes > left || count == EXTENSIONS_MAX)
            return fail(e, ERR_DATA, "N35",
                        "extension %d has esize=%lld, %llu bytes are left before vox_offset", count,
                        (long long)bytes, (unsigned long long)left);
        if (source_skip(s, (uint64_t)bytes - 8, e) < 0)
            return -1;
        left -= (uint64_t)bytes;
    }
    return source_skip(s, left, e);
}

static int check_offset(double offset, double least, struct error *e)
{
    if (!isfinite(offset) || offset < 0.0 || offset != floor(offset) || offset > 9e15)
        return fail(e, ERR_DATA, "N13", "vox_offset=%g, must be a whole number from %g on", offset, least);
    return 0;
}

static int read_single(struct volume *v, struct source *s, const struct header *h,
                       const struct volume_request *r, struct error *e)
{
    double least = (h->version == 1 ? NIFTI_1_BYTES : NIFTI_2_BYTES) + 4, offset = h->f.vox_offset;
    int flags = h->swap ? VOXELS_BIG_ENDIAN : 0;
    unsigned char flag[4];
    if (check_offset(offset, least, e) < 0)
        return -1;
    int repaired = offset == 0.0 || offset == least - 4; /* seen in the wild */
    if (repaired) {
        volume_warn(r, "N14", "vox_offset=%g; taken as %g", offset, least);
        offset = least;
        flags |= VOXELS_EXACT; /* believed only if the size then fits exactly */
    }
    if (offset < least)
        return fail(e, ERR_DATA, "N15", "vox_offset=%g lies inside the header, least is %g", offset, least);
    int64_t got = source_read_some(s, flag, 4, e);
    if (got < 4)
        return got < 0 ? -1 : fail(e, ERR_DATA, "N11", "ends after the header, voxels are at %g", offset);
    uint64_t between = (uint64_t)(offset - least);
    if (source_can_hold(s, between, "N13", e) < 0 ||
        (flag[0] ? skip_extensions(s, h->swap, between, e) : source_skip(s, between, e)) < 0)
        return -1;
    return volume_read_voxels(v, s, flags, repaired ? "N14" : "N11", r, e);
}

/* The .img of a .hdr: same folder, same stem, compressed or not. Of several failures the one that
 * is not "no such file" is told [N36]. */
static int open_image(struct source **out, struct source *s, struct error *e)
{
    static const char *const tails[] = {".img", ".img.gz", ".IMG", ".IMG.gz"};
    const char *name = path_name(source_path(s));
    size_t stem = strlen(name) - (text_ends_with_nocase(name, ".gz") ? 3 : 0);
    stem = stem > 4 && name[stem - 4] == '.' ? stem - 4 : stem;
    int result = -1;
    for (int i = 0; i < 4 && result < 0; i++) {
        char *image = mem_format(e, "%.*s%s", (int)stem, name, tails[i]);
        struct error trial;
        if (!image)
            return -1;
        result = source_open_beside(out, s, image, &trial);
        if (result < 0 && (i == 0 || !strstr(trial.text, "no such file")))
            *e = trial;
        mem_free(image);
    }
    if (result < 0) {
        e->code = ERR_DATA;
        snprintf(e->id, sizeof e->id, "N36");
    }
    return result;
}

static int read_pair(struct volume *v, struct source *s, const struct header *h,
                     const struct volume_request *r, struct error *e)
{
    struct source *image;
    unsigned char head[2] = {0};
    if (check_offset(h->f.vox_offset, 0.0, e) < 0 || open_image(&image, s, e) < 0)
        return -1;
    uint64_t offset = (uint64_t)h->f.vox_offset;
    int result = source_peek(image, head, 2, e) < 0 ? -1 : 0;
    if (result == 0 && head[0] == 0x1F && head[1] == 0x8B)
        result = source_decode(image, SOURCE_GZIP, e);
    if (result == 0 && source_can_hold(image, offset, "N36", e) == 0 && source_skip(image, offset, e) == 0)
        result = volume_read_voxels(v, image, h->swap ? VOXELS_BIG_ENDIAN : 0, "N36", r, e);
    else
        result = -1;
    if (result < 0)
        fail_in(e, path_name(source_path(image)));
    source_close(image);
    return result;
}

static int read_nifti(struct volume *v, struct source *s, const struct volume_request *r, struct error *e)
{
    struct header h = {.version = 0};
    unsigned char b[NIFTI_2_BYTES] = {0};
    int64_t n = source_read_some(s, b, NIFTI_1_BYTES, e);
    if (n < 0)
        return -1;
    h.version = version_of(b, (size_t)n, &h.swap);
    if (h.version == 0 || n < NIFTI_1_BYTES)
        return refuse_unknown(b, (size_t)n, e);
    if (h.version == 2) {
        n = source_read_some(s, b + NIFTI_1_BYTES, NIFTI_2_BYTES - NIFTI_1_BYTES, e);
        if (n < NIFTI_2_BYTES - NIFTI_1_BYTES)
            return n < 0 ? -1
                         : fail(e, ERR_DATA, "N04", "truncated NIfTI-2 header, %d of 540 bytes",
                                NIFTI_1_BYTES + (int)n);
    }
    if (check_magic(&h, b, e) < 0)
        return -1;
    h.f.space.version = h.version;
    nifti_code(&h.f, b, h.swap, 0);
    v->format = h.version == 1 ? "NIfTI-1" : "NIfTI-2";
    if (check_dims(v, h.f.dim, e) < 0 || check_datatype(v, &h.f, e) < 0 || check_scaling(v, &h.f, r, e) < 0 ||
        read_geometry(v, &h.f.space, r, e) < 0)
        return -1;
    return h.pair ? read_pair(v, s, &h, r, e) : read_single(v, s, &h, r, e);
}

const struct volume_format format_nifti = {recognise, read_nifti, nifti_write};
