/* contrast.h - the part of the supervised contrastive loss that is made of all pairs of N rows.
 *
 * With s(i,j) = row(i).row(j) / tau and Z(i) = sum over o != i of exp s(i,o), the loss needs ln Z
 * for its value and, for its gradient with respect to the rows,
 *
 *     pull(i) = sum over j != i of exp s(i,j) [ anchor(i) / Z(i) + anchor(j) / Z(j) ] row(j)
 *
 * Nothing else depends on pairs: positives of a row are all others of its class, so their part is
 * a class sum (loss_contrast.c). No N x N matrix is ever stored: scores are made in tiles of 64 x
 * 64, used and forgotten, twice (sums, then pull). A tile serves rows and columns at once, since s
 * is symmetric.
 *
 *     strip  0   1   2   3     The rows are cut into strips (a function of N alone). A pass is a
 *       0    a   b   c   d     tournament: first every strip against itself (a), then rounds in
 *       1        a   d   c     which each strip meets one other (b, c, d). Pairs of a round share
 *       2            a   b     no strip, so they run at once and add to memory without locks, and
 *       3                a     the order of additions is that of the rounds: same bits for any
 *                              number of threads.
 */
#ifndef FALX_CONTRAST_H
#define FALX_CONTRAST_H

#include "device/device.h"

enum {
    CONTRAST_DIMS = 16,  /* numbers of a row; shorter ones are filled up with zeros */
    CONTRAST_TILE = 64,  /* rows and columns of a tile: it fits the first cache, with operands */
    CONTRAST_STRIPS = 32 /* most strips: 16 pairs a round to share out */
};

struct contrast {
    int count;           /* rows, N >= 1 */
    float tau;           /* > 0 */
    const float *rows;   /* (count, 16) */
    const float *anchor; /* (count): 1, or 0 for a row that is only compared with */
    float *log_sum;      /* (count) out: ln Z */
    float *pull;         /* (count, 16) out */
    void *scratch;       /* contrast_scratch(count) bytes, aligned to 64 */
};
size_t contrast_scratch(int count);

/* The tiles, one table per level of the processor (isa/contrast.c). */
struct contrast_work {
    int count;           /* rows that exist; the last tile is filled up with zero rows */
    int one_shift;       /* all of `shift` are the same: one exponential serves both sides */
    const float *rows;   /* (padded, 16) */
    const float *panels; /* (padded / 64, 16, 64): transposed by tiles, times log2(e) / tau */
    float *shift;        /* (padded) in powers of two: taken off the scores before exp2 */
    float *share;        /* (padded) anchor / sum */
    double *sum;         /* (padded) Z / 2^shift */
    float *pull;         /* (padded, 16) */
};

/* Rows i0 .. i1 against rows j0 .. j1, multiples of the tile; equal ranges, or no row in common.
 * Each adds (largest: raises) what both sides get. */
struct contrast_ops {
    void (*largest)(const struct contrast_work *w, int i0, int i1, int j0, int j1);
    void (*sums)(const struct contrast_work *w, int i0, int i1, int j0, int j1);
    void (*pull)(const struct contrast_work *w, int i0, int i1, int j0, int j1);
};

/* device_ops.contrast of the CPU. */
void cpu_contrast(struct device *dev, const struct contrast *c);

#endif
