/* landmarks.h - finds the same scan twice, even cropped differently, rescaled or slightly noisy.
 *
 * Landmarks are the strongest local extremes of a smoothed scan. A crop moves them all by one
 * offset; an intensity scale a*v + b with a > 0 does not move them. Each carries a key: 26 signs of
 * comparisons around it. Two scans that share many (key, one offset) pairs are one scan; two
 * different scans hardly share any. The table of keys makes this linear in the number of cases.
 */
#ifndef FALX_LANDMARKS_H
#define FALX_LANDMARKS_H

#include <stdint.h>

#include "base/base.h"

enum { LANDMARKS_MAX = 128 }; /* of one scan */

struct landmark {
    int32_t at[3]; /* voxel */
    uint32_t key;
};

struct landmarks {
    struct landmark *point; /* n of them, owned */
    int n;
};

/* Fills *out (free out->point with mem_free). `values` (dims[0]*dims[1]*dims[2], first axis
 * fastest) is smoothed in place. */
int landmarks_find(struct landmarks *out, float *values, const int64_t dims[3], const double spacing_mm[3],
                   struct error *e);

struct twin { /* scans a < b that look like one */
    int a, b;
    int exact;         /* 1: the very same voxels (set by check_set.c) */
    int32_t offset[3]; /* else: voxel of b = voxel of a + offset */
    int shared;        /* else: landmarks that agree */
};
/* All pairs among n scans, sorted by (a, b); *out for mem_free. */
int landmarks_find_twins(struct twin **out, int *n_twins, const struct landmarks *scans, int n,
                         struct error *e);

#endif
