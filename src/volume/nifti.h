/* nifti.h - a NIfTI header as numbers: what nifti.c (reading), nifti_write.c and tests share. */
#ifndef FALX_NIFTI_H
#define FALX_NIFTI_H

#include "volume/volume.h"

enum {
    NIFTI_1_BYTES = 348,
    NIFTI_2_BYTES = 540,
    NIFTI_HEADER_MAX = NIFTI_2_BYTES + 4,
    NIFTI_EXTENSION_BYTES = 16 << 20 /* of all extensions of a file together, at most */
};

/* The fields that matter, of either version (in space.version), as wide types. */
struct nifti_fields {
    int64_t dim[8], datatype, bitpix;
    double vox_offset, slope, inter;
    struct nifti_space space;
};
/* Bytes to fields; the other way if `writing`. `swap`: the file has the other byte order. */
void nifti_code(struct nifti_fields *f, unsigned char *bytes, int swap, int writing);

/* The code of a dtype in a header is nifti_datatypes[dtype]. */
extern const int nifti_datatypes[DTYPE_F64 + 1];

/* The bytes in front of the voxels of a single-file NIfTI: 352 (version 1) or 544 (version 2),
 * every byte defined. Version 2 is written for volumes that came from it or have an axis over
 * 32767. */
size_t nifti_header(unsigned char out[NIFTI_HEADER_MAX], const struct volume *v);
int nifti_write(const struct volume *v, const char *path, struct error *e);

#endif
