/* nifti.h - what nifti.c (reading), nifti_write.c and the tests share. */
#ifndef FALX_NIFTI_H
#define FALX_NIFTI_H

#include "volume/volume.h"

/* Where the fields of a header stand and how wide they are; row 1 is NIfTI-1, row 2 NIfTI-2. */
struct nifti_layout {
    size_t bytes;          /* of the header */
    size_t int_w, real_w;  /* width of dims, and of all real numbers */
    size_t dim, datatype, bitpix, pixdim, vox_offset, slope, inter, units;
    size_t qform, sform, quatern, qoffset, srow, magic;
    size_t code_w;         /* width of qform_code and sform_code */
};
extern const struct nifti_layout nifti_layouts[3];

int nifti_dtype(enum dtype *out, int code); /* -1 if the code is not a scalar type */

enum { NIFTI_HEADER_MAX = 544 };

/* The bytes in front of the voxels of a single-file NIfTI: 352 (version 1) or 544 (version 2), every
 * byte defined. Version 2 is written for volumes that came from it or have an axis over 32767. */
size_t nifti_header(unsigned char out[NIFTI_HEADER_MAX], const struct volume *v);
int nifti_write(const struct volume *v, const char *path, struct error *e);

#endif
