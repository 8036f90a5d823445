/* nifti_write.c - a volume as NIfTI bytes, and the tables that reading and writing share.
 *
 * A volume that came from NIfTI keeps the words of its header: sform, qform, units and spacing go out
 * exactly as they came in. Others get an sform and, if their axes are orthogonal, the matching qform.
 * Headers are built on zeroed memory: no free text of any input, no undefined byte.
 */
#include <math.h>
#include <string.h>

#include "base/io.h"
#include "volume/nifti.h"

const struct nifti_layout nifti_layouts[3] = {
    [1] = {348, 2, 4, 40, 70, 72, 76, 108, 112, 116, 123, 252, 254, 256, 268, 280, 344, 2},
    [2] = {540, 8, 8, 16, 12, 14, 104, 168, 176, 184, 500, 344, 348, 352, 376, 400, 4, 4},
};

static const struct { int code; enum dtype dtype; } datatypes[] = {
    {2, DTYPE_U8},    {256, DTYPE_I8},  {512, DTYPE_U16},  {4, DTYPE_I16},  {768, DTYPE_U32},
    {8, DTYPE_I32},   {1280, DTYPE_U64}, {1024, DTYPE_I64}, {16, DTYPE_F32}, {64, DTYPE_F64},
};
enum { N_DATATYPES = sizeof datatypes / sizeof datatypes[0] };

int nifti_dtype(enum dtype *out, int code)
{
    for (int i = 0; i < N_DATATYPES; i++)
        if (datatypes[i].code == code) {
            *out = datatypes[i].dtype;
            return 0;
        }
    return -1;
}

static int datatype_of(enum dtype t)
{
    int i = 0;
    while (datatypes[i].dtype != t)
        i++;
    return datatypes[i].code;
}

static void put_bits(unsigned char *p, size_t n, uint64_t x)
{
    for (size_t i = 0; i < n; i++)
        p[i] = (unsigned char)(x >> (8 * i));
}

static void put_real(unsigned char *p, size_t n, double d)
{
    uint64_t bits;
    float f = (float)d;
    uint32_t low;
    memcpy(&bits, &d, 8);
    memcpy(&low, &f, 4);
    put_bits(p, n, n == 8 ? bits : low);
}

/* Quaternion and qfac of an orthogonal affine; returns 0 if the axes are sheared. */
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
    double a2 = 1 + m[0][0] + m[1][1] + m[2][2], b2 = 1 + m[0][0] - m[1][1] - m[2][2];
    double c2 = 1 - m[0][0] + m[1][1] - m[2][2], d2 = 1 - m[0][0] - m[1][1] + m[2][2];
    if (a2 >= b2 && a2 >= c2 && a2 >= d2) { /* divide by the largest component: no cancellation */
        double a = sqrt(a2);
        quatern[0] = (m[2][1] - m[1][2]) / a / 2;
        quatern[1] = (m[0][2] - m[2][0]) / a / 2;
        quatern[2] = (m[1][0] - m[0][1]) / a / 2;
        return 1;
    }
    double a; /* its sign is made positive at the end, as the format implies */
    if (b2 >= c2 && b2 >= d2) {
        double b = sqrt(b2);
        quatern[0] = b / 2, quatern[1] = (m[0][1] + m[1][0]) / b / 2;
        quatern[2] = (m[0][2] + m[2][0]) / b / 2, a = (m[2][1] - m[1][2]) / b;
    } else if (c2 >= d2) {
        double c = sqrt(c2);
        quatern[0] = (m[0][1] + m[1][0]) / c / 2, quatern[1] = c / 2;
        quatern[2] = (m[1][2] + m[2][1]) / c / 2, a = (m[0][2] - m[2][0]) / c;
    } else {
        double d = sqrt(d2);
        quatern[0] = (m[0][2] + m[2][0]) / d / 2, quatern[1] = (m[1][2] + m[2][1]) / d / 2;
        quatern[2] = d / 2, a = (m[1][0] - m[0][1]) / d;
    }
    for (int i = 0; i < 3; i++)
        quatern[i] = a < 0.0 ? -quatern[i] : quatern[i];
    return 1;
}

/* The words of a header for a volume that did not come from NIfTI. */
static void space_from_affine(struct nifti_space *out, const struct geometry *g)
{
    memset(out, 0, sizeof *out);
    out->xyzt_units = 2;
    out->pixdim[0] = 1.0;
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

static int needs_version_2(const struct volume *v)
{
    for (int a = 0; a < v->n_dims; a++)
        if (v->dims[a] > INT16_MAX)
            return 1;
    return v->geometry.nifti.version == 2;
}

size_t nifti_header(unsigned char out[NIFTI_HEADER_MAX], const struct volume *v)
{
    struct nifti_space made, space = v->geometry.nifti;
    if (space.version == 0) {
        space_from_affine(&made, &v->geometry);
        space = made;
    }
    int version = needs_version_2(v) ? 2 : 1;
    const struct nifti_layout *at = &nifti_layouts[version];
    memset(out, 0, NIFTI_HEADER_MAX);
    put_bits(out, 4, at->bytes);
    memcpy(out + at->magic, version == 1 ? "n+1\0" : "n+2\0\r\n\x1A\n", version == 1 ? 4 : 8);
    put_bits(out + at->dim, at->int_w, (uint64_t)v->n_dims);
    for (size_t i = 0; i < 7; i++)
        put_bits(out + at->dim + (i + 1) * at->int_w, at->int_w, (uint64_t)v->dims[i]);
    for (size_t i = 0; i < 8; i++)
        put_real(out + at->pixdim + i * at->real_w, at->real_w, space.pixdim[i]);
    put_bits(out + at->datatype, 2, (uint64_t)datatype_of(v->dtype));
    put_bits(out + at->bitpix, 2, 8 * dtype_bytes(v->dtype));
    if (version == 1)
        put_real(out + at->vox_offset, 4, 352.0);
    else
        put_bits(out + at->vox_offset, 8, 544);
    put_real(out + at->slope, at->real_w, v->slope);
    put_real(out + at->inter, at->real_w, v->inter);
    put_bits(out + at->units, version == 1 ? 1 : 4, (uint64_t)space.xyzt_units);
    put_bits(out + at->qform, at->code_w, (uint64_t)space.qform_code);
    put_bits(out + at->sform, at->code_w, (uint64_t)space.sform_code);
    for (size_t i = 0; i < 3; i++) {
        put_real(out + at->quatern + i * at->real_w, at->real_w, space.quatern[i]);
        put_real(out + at->qoffset + i * at->real_w, at->real_w, space.qoffset[i]);
        for (size_t j = 0; j < 4; j++)
            put_real(out + at->srow + (i * 4 + j) * at->real_w, at->real_w, space.srow[i][j]);
    }
    return at->bytes + 4;
}

int nifti_write(const struct volume *v, const char *path, struct error *e)
{
    unsigned char header[NIFTI_HEADER_MAX];
    size_t n = nifti_header(header, v);
    size_t bytes = (size_t)(volume_voxels(v) * volume_channels(v)) * dtype_bytes(v->dtype);
    struct io_file *f;
    if (io_create(&f, path, 0666, e) < 0)
        return -1;
    struct io_part parts[2] = {{header, n}, {v->data, bytes}};
    int result;
    if (text_ends_with_nocase(path, ".gz"))
        result = io_append_gzip(f, parts, 2, e);
    else
        result = io_append(f, header, n, e) < 0 ? -1 : io_append(f, v->data, bytes, e);
    if (result < 0) {
        io_abandon(f);
        return -1;
    }
    return io_commit(f, e);
}
