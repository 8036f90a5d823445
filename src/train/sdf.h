/* sdf.h - signed distance maps of label patches, as the targets of networks that predict shapes.
 *
 *                 outside: 0 .. 1, distance to the object / the largest there is
 *     -----+         inside: -1 .. 0, likewise to what is not the object
 *     obj. |         0 on the object's own outermost voxels
 *
 * One map for every class but background, in voxels of the patch alone: its rim is no surface. Where a class
 * has no surface in the patch (it is nowhere, or everywhere) its map is 0.
 */
#ifndef FALX_SDF_H
#define FALX_SDF_H

#include "device/device.h"

struct sdf; /* working memory of the device for patches of one extent: 8 bytes a voxel */
int sdf_new(struct sdf **out, struct device *dev, const int dims[3], struct error *e);
void sdf_free(struct sdf *s); /* NULL is fine */

/* out (n, d, h, w, classes - 1) from label (n, d, h, w, 1), both of the device. */
void sdf_maps(const struct tensor *out, struct sdf *s, const struct tensor *label);

#endif
