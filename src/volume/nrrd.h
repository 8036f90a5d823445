/* nrrd.h - writing NRRD; reading goes through volume.h like every other format.
 *
 * The header is made apart from the file, so that tests and fuzzers can write to memory:
 * nrrd_header() followed by the voxels is a complete file.
 */
#ifndef FALX_NRRD_H
#define FALX_NRRD_H

#include "volume/volume.h"

enum nrrd_encoding { NRRD_RAW, NRRD_GZIP };

/* *out gets the header of v's voxels as they lie in memory, with the blank line that ends it
 * (mem_free). v->slope and v->inter must be 1 and 0: the format has no word for them. */
int nrrd_header(char **out, const struct volume *v, enum nrrd_encoding encoding, struct error *e);
/* Writes v atomically. Scaled voxels are written as the float values they stand for. */
int nrrd_write(const struct volume *v, const char *path, enum nrrd_encoding encoding,
               struct error *e);
/* Writes labels as a segmentation of 3D Slicer (.seg.nrrd, gzip): one segment a class present. */
int nrrd_write_segmentation(const struct volume *v, const char *path, struct error *e);

/* Name of a dtype in a header: "uint8", "float", ... */
const char *nrrd_type_name(enum dtype t);

#endif
