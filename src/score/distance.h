/* distance.h - exact Euclidean distances on a voxel grid, in linear time.
 *
 * The grid carries one byte a voxel whose bits are up to eight sets of voxels ("marks"). Distances
 * go from the voxels of one set to the nearest voxel of another, in the unit of `spacing`, between
 * voxel centres. The result does not depend on the number of threads.
 */
#ifndef FALX_DISTANCE_H
#define FALX_DISTANCE_H

#include "base/base.h"
#include "base/pool.h"

struct distance; /* working memory for one grid: 2 bytes a voxel and one plane per thread */

/* No axis may be longer than DISTANCE_MAX_AXIS. spacing must be positive and finite. The pool is
 * borrowed and may be NULL. */
enum { DISTANCE_MAX_AXIS = 65534 }; /* steps are kept in 16 bits, with one more value for "none" */
int distance_new(struct distance **out, const int64_t dims[3], const double spacing[3], struct pool *pool,
                 struct error *e);
void distance_free(struct distance *d);

/* One entry per voxel of a set, ordered by (y, z, x). */
struct distance_list {
    int64_t n;
    double *value; /* infinite if there is nothing to be near to */
    int64_t *at;   /* index of the voxel in the grid */
};
void distance_list_free(struct distance_list *l);

/* Distances from every voxel whose mark has the bit `from` to the nearest whose mark has `to`.
 * Marks are dims[0] * dims[1] * dims[2] bytes, first axis fastest. */
int distance_between(struct distance_list *out, struct distance *d, const uint8_t *marks, uint8_t from,
                     uint8_t to, struct error *e);

#endif
