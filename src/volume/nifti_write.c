/* nifti_write.c - a volume as NIfTI bytes, and the one list of header fields that reading and
 * writing share.
 *
 * A volume that came from NIfTI keeps the words of its header: sform, qform, units and spacing go
 * out exactly as they came in. Others get an sform and, if their axes are orthogonal, the matching
 * qform. Headers are built on zeroed memory: no free text of any input, no undefined byte.
 */
#include <math.h>
#include <string.h>

#include "volume/nifti.h"

const int nifti_datatypes[DTYPE_F64 + 1] = {
    [DTYPE_U8] = 2,  [DTYPE_I8] = 256,   [DTYPE_U16] = 512,  [DTYPE_I16] = 4,  [DTYPE_U32] = 768,
    [DTYPE_I32] = 8, [DTYPE_U64] = 1280, [DTYPE_I64] = 1024, [DTYPE_F32] = 16, [DTYPE_F64] = 64,
};

/* ---- fields ---------------------------------------------------------------------------------- */

/* One walk over a header, in either direction. */
struct walk {
    unsigned char *byte;
    int swap, writing;
};

static uint64_t code_bits(const struct walk *w, size_t at, size_t n, uint64_t x)
{
    uint64_t got = 0;
    for (size_t i = 0; i < n; i++) { /* little-endian unless swapped */
        unsigned char *b = w->byte + at + (w->swap ? n - 1 - i : i);
        if (w->writing)
            *b = (unsigned char)(x >> (8 * i));
        got |= (uint64_t)*b << (8 * i);
    }
    return got;
}

static void code_int(const struct walk *w, size_t at, size_t n, int64_t *x)
{
    uint64_t u = code_bits(w, at, n, (uint64_t)*x);
    *x = n == 2 ? (int16_t)u : n == 4 ? (int32_t)u : (int64_t)u;
}

static void code_real(const struct walk *w, size_t at, size_t n, double *x)
{
    float narrow = (float)*x;
    uint64_t u = 0;
    memcpy(&u, n == 4 ? (void *)&narrow : (void *)x, n);
    u = code_bits(w, at, n, u);
    memcpy(n == 4 ? (void *)&narrow : (void *)x, &u, n);
    if (n == 4)
        *x = (double)narrow;
}

void nifti_code(struct nifti_fields *f, unsigned char *bytes, int swap, int writing)
{
    /* Where the fields stand and how wide they are. */
    static const struct nifti_layout {
        size_t int_w, real_w, code_w, units_w;
        size_t dim, datatype, bitpix, pixdim, offset, slope, inter, units;
        size_t qform, sform, quatern, qoffset, srow;
    } layouts[3] = {
        [1] = {2, 4, 2, 1, 40, 70, 72, 76, 108, 112, 116, 123, 252, 254, 256, 268, 280},
        [2] = {8, 8, 4, 4, 16, 12, 14, 104, 168, 176, 184, 500, 344, 348, 352, 376, 400},
    };
    const struct nifti_layout *at = &layouts[f->space.version];
    const struct walk w = {bytes, swap, writing};
    size_t real = at->real_w;
    struct nifti_space *s = &f->space;
    for (size_t i = 0; i < 8; i++) {
        code_int(&w, at->dim + i * at->int_w, at->int_w, &f->dim[i]);
        code_real(&w, at->pixdim + i * real, real, &s->pixdim[i]);
    }
    code_int(&w, at->datatype, 2, &f->datatype);
    code_int(&w, at->bitpix, 2, &f->bitpix);
    int64_t offset = writing ? (int64_t)f->vox_offset : 0; /* an integer in version 2 only */
    if (s->version == 1) {
        code_real(&w, at->offset, 4, &f->vox_offset);
    } else {
        code_int(&w, at->offset, 8, &offset);
        f->vox_offset = (double)offset;
    }
    code_real(&w, at->slope, real, &f->slope);
    code_real(&w, at->inter, real, &f->inter);
    code_int(&w, at->units, at->units_w, &s->xyzt_units);
    code_int(&w, at->qform, at->code_w, &s->qform_code);
    code_int(&w, at->sform, at->code_w, &s->sform_code);
    for (size_t i = 0; i < 3; i++) {
        code_real(&w, at->quatern + i * real, real, &s->quatern[i]);
        code_real(&w, at->qoffset + i * real, real, &s->qoffset[i]);
        for (size_t j = 0; j < 4; j++)
            code_real(&w, at->srow + (i * 4 + j) * real, real, &s->srow[i][j]);
    }
}

/* ---- space ----------------------------------------------------------------------------------- */

/* Quaternion (b, c, d) and qfac of an orthogonal affine; returns 0 if the axes are sheared. */
static int quaternion_of(double quatern[3], double *qfac, const struct geometry *g)
{
    double m[3][3];
    if (affine_shear(g->affine) > 1e-6)
        return 0;
    for (int row = 0; row < 3; row++)
        for (int col = 0; col < 3; col++)
            m[row][col] = g->affine[row][col] / g->spacing_mm[col];
    double det = m[0][0] * (m[1][1] * m[2][2] - m[1][2] * m[2][1]) -
                 m[0][1] * (m[1][0] * m[2][2] - m[1][2] * m[2][0]) +
                 m[0][2] * (m[1][0] * m[2][1] - m[1][1] * m[2][0]);
    *qfac = det < 0.0 ? -1.0 : 1.0;
    for (int row = 0; row < 3; row++)
        m[row][2] *= *qfac;
    /* products[i][j] = 4 q[i] q[j] for the unit quaternion q = (a, b, c, d) */
    double ab = m[2][1] - m[1][2], ac = m[0][2] - m[2][0], ad = m[1][0] - m[0][1];
    double bc = m[0][1] + m[1][0], bd = m[0][2] + m[2][0], cd = m[1][2] + m[2][1];
    const double products[4][4] = {{1 + m[0][0] + m[1][1] + m[2][2], ab, ac, ad},
                                   {ab, 1 + m[0][0] - m[1][1] - m[2][2], bc, bd},
                                   {ac, bc, 1 - m[0][0] + m[1][1] - m[2][2], cd},
                                   {ad, bd, cd, 1 - m[0][0] - m[1][1] + m[2][2]}};
    int most = 0; /* divide by the largest component: no cancellation */
    for (int i = 1; i < 4; i++)
        most = products[i][i] > products[most][most] ? i : most;
    /* the format implies a >= 0, and q and -q are the same rotation */
    double scale = products[most][0] < 0.0 ? -0.5 : 0.5;
    for (int i = 0; i < 3; i++)
        quatern[i] = scale * products[most][i + 1] / sqrt(products[most][most]);
    return 1;
}

/* The words of a header for a volume that did not come from NIfTI. */
static void space_from_affine(struct nifti_space *out, const struct geometry *g)
{
    *out = (struct nifti_space){.xyzt_units = 2, .pixdim = {1.0}};
    for (int i = 1; i < 8; i++)
        out->pixdim[i] = i < 4 ? g->spacing_mm[i - 1] : 1.0;
    if (!g->known)
        return;
    out->sform_code = 1;
    memcpy(out->srow, g->affine, sizeof out->srow);
    if (quaternion_of(out->quatern, &out->pixdim[0], g)) {
        out->qform_code = 1;
        for (int i = 0; i < 3; i++)
            out->qoffset[i] = g->affine[i][3];
    }
}

/* ---- files ----------------------------------------------------------------------------------- */

size_t nifti_header(unsigned char out[NIFTI_HEADER_MAX], const struct volume *v)
{
    struct nifti_fields f = {.dim = {v->n_dims},
                             .datatype = nifti_datatypes[v->dtype],
                             .bitpix = 8 * (int64_t)dtype_bytes(v->dtype),
                             .slope = v->slope,
                             .inter = v->inter,
                             .space = v->geometry.nifti};
    int version = v->geometry.nifti.version == 2 ? 2 : 1;
    if (f.space.version == 0)
        space_from_affine(&f.space, &v->geometry);
    for (int a = 0; a < 7; a++) {
        f.dim[a + 1] = v->dims[a];
        version = v->dims[a] > INT16_MAX ? 2 : version;
    }
    f.space.version = version;
    size_t bytes = version == 1 ? NIFTI_1_BYTES : NIFTI_2_BYTES;
    f.vox_offset = (double)bytes + 4;
    memset(out, 0, NIFTI_HEADER_MAX);
    out[0] = bytes & 0xFF;
    out[1] = (unsigned char)(bytes >> 8);
    if (version == 1)
        memcpy(out + 344, "n+1", 4);
    else
        memcpy(out + 4, "n+2\0\r\n\x1A\n", 8);
    nifti_code(&f, out, 0, 1);
    return bytes + 4;
}

int nifti_write(const struct volume *v, const char *path, struct error *e)
{
    unsigned char header[NIFTI_HEADER_MAX];
    size_t n = nifti_header(header, v);
    return volume_write_file(v, path, header, n, text_ends_with_nocase(path, ".gz") ? 0 : 2, e);
}
