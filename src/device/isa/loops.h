/* loops.h - the voxel loops of kernels.h as one table per level of the processor.
 *
 * A device cuts [0, count) into blocks of LOOP_BLOCK indices, whatever the number of threads, and
 * hands each block to map() or reduce():
 *
 *     count   |....4096....|....4096....|..rest..|      blocks, shared out by the pool
 *     reduce  |512|512|...                               float inside 512, double across them
 *
 * Sums of blocks are then added in the order of the blocks, in double, starting from 0. A device
 * that keeps the sums of many blocks at once need not keep those of all: adding up after every
 * LOOP_GROUP blocks gives the same bits.
 */
#ifndef FALX_LOOPS_H
#define FALX_LOOPS_H

#include "base/base.h"

enum {
    LOOP_BLOCK = 4096, /* indices of a block, a multiple of 512: enough to pay for a pool item */
    LOOP_GROUP = 64,   /* blocks whose sums a device holds at once: 64 * LOOP_SUMS doubles, 2 MiB */
    LOOP_SUMS = 4096   /* most sums one reduction makes */
};

struct loop_ops {
    /* Runs kernel number `kernel` (enum kernel_id) for indices i0 <= i < i1. */
    void (*map)(int kernel, const void *args, int64_t i0, int64_t i1);
    /* sums[0 .. n_sums) = the sums over i0 <= i < i1 (overwritten, in double). `reduction` is an
     * enum reduce_id; i0 is a multiple of LOOP_BLOCK and i1 - i0 <= LOOP_BLOCK. */
    void (*reduce)(int reduction, const void *args, int64_t i0, int64_t i1, int n_sums, double *sums);
};

#endif
