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

#include "base/base.h"
#include "base/pool.h"

struct sdf; /* working memory for patches of one extent: 11 bytes a voxel */
int sdf_new(struct sdf **out, const int dims[3], struct pool *pool, struct error *e);
void sdf_free(struct sdf *s); /* NULL is fine */

/* out (d, h, w, classes - 1), host memory, from label (d, h, w). The same bits for any number of threads. */
void sdf_maps(float *out, struct sdf *s, const uint8_t *label, int classes);

#endif
