/* kernels.h - every loop over voxels, as lists: one body each, compiled for every device.
 *
 * A kernel is a struct of named arguments and a body that runs a range of indices:
 *
 *     struct k_axpy { float *y; const float *x; float a; };
 *     KERNEL void k_axpy_range(const struct k_axpy *k, int64_t i0, int64_t i1) { ... }
 *
 * and a word in a list, KERNELS_...(X). A reduction is struct r_name and r_name_range() with one
 * more argument, sums: rows of REDUCE_LANES floats that the body adds to (kernels_math.h). Its
 * range is at most REDUCE_RUN long, so floats are enough; beyond that sums are double, in a fixed
 * order.
 *
 * A call names its arguments:
 *
 *     RUN(dev, axpy, count, .y = y, .x = x, .a = 0.5f);
 *     REDUCE(dev, norm, count, 1, &sum, .x = x);
 *
 * Expanding the lists gives the numbers below, the loops of the CPU (isa/loops.c) and those of any
 * other device. A new loop is one struct, one body, one word, for all devices at once.
 *
 * Range, not index, so that a CPU can work on many voxels at once; a GPU thread calls it with one, or, in a
 * reduction past the end, with none.
 */
#ifndef FALX_KERNELS_H
#define FALX_KERNELS_H

#include "device/kernels_math.h"

#include "device/kernels_branch.h"
#include "device/kernels_contrast.h"
#include "device/kernels_gauss.h"
#include "device/kernels_layer.h"
#include "device/kernels_loss.h"
#include "device/kernels_mix.h"
#include "device/kernels_norm.h"
#include "device/kernels_optim.h"
#include "device/kernels_pairs.h"
#include "device/kernels_patch.h"
#include "device/kernels_predict.h"
#include "device/kernels_strided.h"
#include "device/kernels_twin.h"

/* clang-format off */
#define KERNELS(X) KERNELS_LOSS(X) KERNELS_GAUSS(X) KERNELS_CONTRAST(X) KERNELS_MIX(X) KERNELS_NORM(X) \
    KERNELS_BRANCH(X) KERNELS_TWIN(X) KERNELS_LAYER(X) KERNELS_OPTIM(X) KERNELS_PATCH(X) \
    KERNELS_PREDICT(X) KERNELS_STRIDED(X) KERNELS_PAIRS(X)
#define REDUCES(X) REDUCES_LOSS(X) REDUCES_GAUSS(X) REDUCES_CONTRAST(X) REDUCES_TWIN(X) REDUCES_BRANCH(X) \
    REDUCES_OPTIM(X) REDUCES_PAIRS(X)
/* clang-format on */

#define KERNEL_ID_(name) KERNEL_##name,
#define REDUCE_ID_(name) REDUCE_##name,
enum kernel_id { KERNELS(KERNEL_ID_) N_KERNELS };
enum reduce_id { REDUCES(REDUCE_ID_) N_REDUCES };

/* Changes with the lists, their order and the arguments of their loops: by it a program knows whether a
 * library that was built at another time takes the same numbers for the same loops. */
#define KERNEL_FORM_(name) +(KERNEL_##name + 1) * (int)sizeof(struct k_##name)
#define REDUCE_FORM_(name) +(REDUCE_##name + 1) * (int)sizeof(struct r_##name)
enum { KERNELS_FORM = 0 KERNELS(KERNEL_FORM_) REDUCES(REDUCE_FORM_) };

/* Indices summed in float: a lane sees 512 / 16 = 32 of them, rounding below 32 * 2^-24. */
enum { REDUCE_RUN = 512 };

#define RUN(dev, name, count, ...)                                                                           \
    do {                                                                                                     \
        const struct k_##name run_args_ = {__VA_ARGS__};                                                     \
        (dev)->ops->map((dev), KERNEL_##name, &run_args_, (count));                                          \
    } while (0)

/* sums: n_sums doubles of the device, overwritten; REDUCE: of the host, for which it waits. */
#define SUM(dev, name, count, n_sums, sums, ...)                                                             \
    do {                                                                                                     \
        const struct r_##name run_args_ = {__VA_ARGS__};                                                     \
        (dev)->ops->sum((dev), REDUCE_##name, &run_args_, (count), (n_sums), (sums));                        \
    } while (0)
#define REDUCE(dev, name, count, n_sums, sums, ...)                                                          \
    do {                                                                                                     \
        const struct r_##name run_args_ = {__VA_ARGS__};                                                     \
        (dev)->ops->reduce((dev), REDUCE_##name, &run_args_, (count), (n_sums), (sums));                     \
    } while (0)

#endif
