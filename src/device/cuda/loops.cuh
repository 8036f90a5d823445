/* loops.cuh - what the four files of the voxel loops agree on.
 *
 *     loops.cu        map and reduce: which copy, how many blocks, the last sums
 *     loops_all.cu    every body of kernels.h, for any number of classes
 *     loops_few.cu    those with arrays over classes once more, for up to LOOPS_FEW classes
 *     loops_usual.cu  those of a training step once more, for the usual numbers as constants
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
 * All three follow from count and n_sums alone. (The sums of loops_usual.cu are a thread's own, up to 32
 * indices in float.)
 */
#ifndef FALX_CUDA_LOOPS_CUH
#define FALX_CUDA_LOOPS_CUH

#include "device/cuda/context.cuh"

enum {
    LOOPS_FEW = 4,
    LOOPS_THREADS = 256,
    LOOPS_RUN = 128,     /* indices summed in float by one warp: a tree of 32, four times, ... */
    LOOPS_RUN_SHORT = 32 /* ... or once, where there are few of them */
};

/* Where and how wide one launch is. A block's shared memory: n_sums doubles, then the warps' rows. */
struct loops_launch {
    cudaStream_t stream;
    int64_t count;
    int blocks, threads, n_sums, run;
    double *partial; /* (n_sums, blocks) */
};

/* The copies: each puts kernel number `kernel` (enum kernel_id, enum reduce_id) into the stream. */
void loops_all_map(const struct loops_launch *l, int kernel, const void *args);
void loops_all_reduce(const struct loops_launch *l, int reduction, const void *args);
void loops_few_map(const struct loops_launch *l, int kernel, const void *args);
void loops_few_reduce(const struct loops_launch *l, int reduction, const void *args);

/* The usual ones; has: whether these arguments are usual. blocks: of a reduction. */
void loops_usual_map(const struct loops_launch *l, int kernel, const void *args);
void loops_usual_reduce(const struct loops_launch *l, int reduction, const void *args);
int loops_usual_blocks(int reduction, int64_t count);
int loops_usual_has_map(int kernel, const void *args);
int loops_usual_has_reduce(int reduction, const void *args);

/* Its bodies; how many sums they make, and how many indices a thread has under way. The Gram matrices and
 * what gathers from far are kernels of their own. */
/* clang-format off */
#define LOOPS_USUAL_MAPS(X)                                                                              \
    X(ce_dice_grad) X(hard_label) X(sample_nll_grad) X(ged_grad) X(patch) X(mutual_grad) X(pyramid_grad)
#define LOOPS_USUAL_REDUCES(X)                                                                           \
    X(ce_dice, 5, 4) X(sample_nll, 6, 1) X(square_sum, 1, 8) X(mutual, 1, 2) X(pyramid, 12, 1)           \
    X(class_moments, 66, 1) X(proto_loss, 1, 1)
/* clang-format on */

/* Bodies with arrays over classes, and the argument that says how many. */
/* clang-format off */
#define LOOPS_CLASS_MAPS(X)                                                                              \
    X(ce_dice_grad, classes) X(hard_label, classes) X(sample_nll_grad, g.classes) X(ged_grad, p.classes) \
    X(window_add, c) X(window_spread, g.classes) X(add_softmax, classes) X(mse_grad, classes) \
    X(entropy_grad, classes) X(certain, classes) X(dual_grad, classes) X(softmax_grad, classes) \
    X(mutual_grad, b.classes) X(pyramid_grad, b.classes)
#define LOOPS_CLASS_REDUCES(X)                                                                           \
    X(ce_dice, classes) X(sample_nll, g.classes) X(gram, p.classes) X(proto_loss, classes) \
    X(mse, classes) X(entropy, classes) X(dual, classes) X(mutual, b.classes) X(pyramid, b.classes)
/* clang-format on */

#endif
