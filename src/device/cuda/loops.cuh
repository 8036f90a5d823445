/* loops.cuh - what the three files of the voxel loops agree on.
 *
 *     loops.cu        map and reduce: which copy, how many blocks, the last sums
 *     loops_all.cu    every body of kernels.h, for any number of classes
 *     loops_few.cu    those with arrays over classes once more, for up to LOOPS_FEW classes
 *
 * A body keeps an array of so many numbers as there may be classes, in a GPU thread's local memory: 11 KB
 * for 256 classes and the two networks of an energy distance, times all threads that the GPU can hold.
 * So few classes, the usual case, have a copy of their own with arrays that fit the first cache.
 *
 * map: a thread an index. reduce, for `count` indices and n_sums sums:
 *
 *     a warp    LOOPS_RUN indices, 32 at once: a row of n_sums floats in shared memory (k_add_row)
 *     a block   its warps' rows added in double, in order; then the next part of the range
 *     the end   the blocks' sums, one warp a sum, in double, in an order fixed by their number
 *
 * All three follow from count and n_sums alone.
 */
#ifndef FALX_CUDA_LOOPS_CUH
#define FALX_CUDA_LOOPS_CUH

#include "device/cuda/context.cuh"

enum {
    LOOPS_FEW = 4,
    LOOPS_THREADS = 256,
    LOOPS_RUN = 128 /* indices summed in float by one warp: a tree of 32, four times */
};

/* Where and how wide one launch is. A block's shared memory: n_sums doubles, then the warps' rows. */
struct loops_launch {
    cudaStream_t stream;
    int64_t count;
    int blocks, threads, n_sums;
    double *partial;     /* (n_sums, blocks) */
};

/* The copies: each puts kernel number `kernel` (enum kernel_id, enum reduce_id) into the stream. */
void loops_all_map(const struct loops_launch *l, int kernel, const void *args);
void loops_all_reduce(const struct loops_launch *l, int reduction, const void *args);
void loops_few_map(const struct loops_launch *l, int kernel, const void *args);
void loops_few_reduce(const struct loops_launch *l, int reduction, const void *args);

/* Bodies with arrays over classes, and the argument that says how many. */
#define LOOPS_CLASS_MAPS(X)                                                                              \
    X(ce_dice_grad, classes) X(hard_label, classes) X(sample_nll_grad, g.classes) X(ged_grad, p.classes) \
    X(window_add, c) X(window_spread, g.classes)
#define LOOPS_CLASS_REDUCES(X)                                                                           \
    X(ce_dice, classes) X(sample_nll, g.classes) X(gram, p.classes) X(proto_loss, classes)

#endif
