/* nrrd.h - writing NRRD; reading goes through volume.h like every other format. */
#ifndef FALX_NRRD_H
#define FALX_NRRD_H

#include "volume/volume.h"

/* *out gets the header of v's voxels as they lie in memory, with the blank line that ends it
 * (mem_free); header, then voxels (as one gzip stream if so told) are a complete file. v->slope and
 * v->inter must be 1 and 0: the format has no word for them. */
int nrrd_header(char **out, const struct volume *v, int gzip, struct error *e);
/* Writes v atomically, compressed. Scaled voxels are written as the float values they stand for;
 * under the name .seg.nrrd labels as a segmentation of 3D Slicer, one segment a class present. */
int nrrd_write(const struct volume *v, const char *path, struct error *e);

#endif
