/* align.h - puts a label whose header cannot be trusted onto the grid of its image. */
#ifndef FALX_ALIGN_H
#define FALX_ALIGN_H

#include "volume/volume.h"

/* Exchanges axes 0 and 1 and reverses axes of `label` (uint16, with voxels) as needed and gives it
 * the geometry of `image` (with voxels). -1 if no exchange makes the shapes equal [L02]. */
int align_label(struct volume *label, const struct volume *image, struct error *e);

#endif
