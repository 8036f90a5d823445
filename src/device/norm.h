/* norm.h - what batch norm's backward pass needs of the voxels: two sums per item and channel.
 *
 * With G = dL/da of the value that follows y (conv.h) and M = [scale*y + shift > 0], or 1 without relu,
 *
 *     norm_sums:  sums[n*C + c]       = sum over voxels of  M G
 *                 sums[N*C + n*C + c] = sum over voxels of  M G (y - mean(c))
 *     grad_join:  to += M G           (to: F32; y read without a table, relu or not)
 *
 * From these kernels_norm.h makes the gradients of gamma and beta and the tables p, q, r that the
 * convolution's backward pass reads its gradient through.
 *
 * Order of summation: an item is cut into norm_pieces() pieces by its shape alone; a piece is summed in
 * float over NORM_RUN rows at a time, in double across runs, then across pieces in order.
 */
#ifndef FALX_NORM_H
#define FALX_NORM_H

#include "device/conv.h"

enum {
    NORM_PIECES = 64, /* of one item, at most: enough for any number of cores, small partial sums */
    NORM_RUN = 128    /* rows summed in float: error below 128 * 2^-24 of the sum of magnitudes */
};

/* Doubles that sums must have room for: the result, then the partial sums of all pieces. */
size_t norm_sums_count(int n, int c);

/* The inner loops, one table per level of the processor. */
struct norm_ops {
    /* voxels rows of c channels each; sums (2, c) overwritten; tables are those of one item. */
    void (*sums)(double *sums, const void *g, enum value_type g_type, const struct conv_source *y,
                 const float *mean, int64_t voxels, int c);
    /* count elements, flat. */
    void (*join)(float *to, const void *g, enum value_type g_type, const void *y, enum value_type y_type,
                 int relu, int64_t count);
};

/* The members norm_sums and grad_join of the cpu's struct device_ops. */
void cpu_norm_sums(struct device *dev, const struct tensor *g, const struct conv_source *y, const float *mean,
                   double *sums);
void cpu_grad_join(struct device *dev, const struct tensor *to, const struct tensor *g,
                   const struct conv_source *y);

#endif
