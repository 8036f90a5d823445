/* surface.h - the surfaces of two masks, in the two ways the field measures them.
 *
 * Both masks share one byte a voxel: bit 0 (SURFACE_TRUTH) and bit 1 (SURFACE_PREDICTION), so every
 * pass handles the two at once. A mask is kept with a frame of one empty voxel around it: dims + 2
 * along each axis. Only the box that holds both masks is kept; outside it everything is empty,
 * exactly as outside the array, so cropping changes no surface.
 *
 *   voxels    a foreground voxel with a 6-neighbour that is background or outside: the mask minus
 *             its erosion
 *   corners   a point between 2x2x2 voxels that are not all alike; it stands for the piece of
 *             surface inside that cell, whose area depends on which of the eight are set ("code")
 */
#ifndef FALX_SURFACE_H
#define FALX_SURFACE_H

#include "base/pool.h"
#include "volume/volume.h"

enum { SURFACE_TRUTH = 1, SURFACE_PREDICTION = 2 };

/* Two label volumes on one grid; all borrowed. */
struct label_pair {
    const label_t *truth, *prediction;
    const int64_t *dims;      /* (3), first axis fastest */
    const double *spacing_mm; /* (3) */
};

struct mask_box {
    int64_t lo[3], hi[3]; /* first voxel, and one past the last */
};

struct mask_pair {
    int64_t dims[3]; /* of the box, without the frame */
    uint8_t *bits;   /* (dims[0] + 2) * (dims[1] + 2) * (dims[2] + 2) */
};

/* Cuts one class out of two label volumes, whose spacing does not matter. */
int mask_pair_new(struct mask_pair *out, const struct label_pair *from, const struct mask_box *box,
                  label_t class, struct pool *pool, struct error *e);
void mask_pair_free(struct mask_pair *m);

/* marks: dims[0] * dims[1] * dims[2] bytes. */
void surface_mark_voxels(uint8_t *marks, const struct mask_pair *m, struct pool *pool);
/* marks: dims + 1 along each axis; corner i lies between the voxels i - 1 and i. */
void surface_mark_corners(uint8_t *marks, const struct mask_pair *m, struct pool *pool);

/* Code of the corner with this index in the marks: bit x + 2y + 4z is the neighbour there. */
int surface_code(const struct mask_pair *m, int64_t corner, uint8_t bit);
/* Area of surface in a cell for each code; 0 for the codes 0 and 255. */
void surface_areas(double area[256], const double spacing[3]);

#endif
