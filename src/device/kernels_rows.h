/* kernels_rows.h - where a voxel lies, and runs of its channels. Part of kernels.h; see there for the form
 * of a body.
 *
 * An index is a run of up to K_RUN channels of one voxel:
 *
 *     voxel 0: channels 0 .. 7 | 8 .. 15 | 16 .. 19    voxel 1: channels 0 .. 7 | ...      (20 channels)
 *     index           0            1          2                       3
 *
 * What is the same for all channels of a voxel is found once. A GPU thread has one run, in registers and as
 * one or two vectors; a CPU walks along several runs of a voxel at once, a row.
 */
#ifndef FALX_KERNELS_ROWS_H
#define FALX_KERNELS_ROWS_H

#include "device/kernels_math.h"

/* ---- places ------------------------------------------------------------------------------------ */

/* a / b of numbers that are not negative, and the rest: in 32 bits where they fit, which is far faster. */
KERNEL int64_t k_divide(int64_t a, int b, int *rest)
{
    const int64_t quotient = a >> 32 ? a / b : (int64_t)((uint32_t)a / (uint32_t)b);
    *rest = (int)(a - quotient * b);
    return quotient;
}

/* A voxel of items of some extent, from its number. */
KERNEL void k_place(int64_t voxel, const int extent[3], int64_t *item, int at[3])
{
    voxel = k_divide(voxel, extent[2], &at[2]);
    voxel = k_divide(voxel, extent[1], &at[1]);
    *item = k_divide(voxel, extent[0], &at[0]);
}

/* Its number; -1 outside. */
KERNEL int64_t k_number(int64_t item, const int extent[3], int z, int y, int x)
{
    int inside = z >= 0 && z < extent[0] && y >= 0 && y < extent[1] && x >= 0 && x < extent[2];
    return inside ? ((item * extent[0] + z) * extent[1] + y) * extent[2] + x : -1;
}

/* ---- rows of channels -------------------------------------------------------------------------- */

enum { K_RUN = 8 };
#ifdef __CUDA_ARCH__
enum { K_ROW = K_RUN };
/* its if has an else, so that one after the loop is not taken for it */
#define EACH_CHANNEL(j, width)                                                                               \
    _Pragma("unroll") for (int j = 0; j < K_ROW; j++) if (j >= (width))                                      \
    {                                                                                                        \
    }                                                                                                        \
    else
#else
enum { K_ROW = 4 * K_RUN };
#define EACH_CHANNEL(j, width) for (int j = 0; j < (width); j++)
#endif

/* Indices of so many voxels. */
KERNEL int64_t k_runs(int64_t voxels, int c)
{
    return voxels * ((c + K_RUN - 1) / K_RUN);
}

/* Channels first .. first + width - 1 of a voxel, of the indices from one to before `next`. */
struct k_row {
    int64_t voxel, next;
    int first, width;
};

/* The row that begins with index i, of those up to i1. */
KERNEL struct k_row k_row_at(int64_t i, int64_t i1, int c)
{
    struct k_row r;
    int run;
    r.voxel = k_divide(i, (c + K_RUN - 1) / K_RUN, &run);
    r.first = run * K_RUN;
    r.width = c - r.first < K_ROW ? c - r.first : K_ROW;
    if ((i1 - i) * K_RUN < r.width)
        r.width = (int)(i1 - i) * K_RUN;
    r.next = i + (r.width + K_RUN - 1) / K_RUN;
    return r;
}

#ifdef __CUDA_ARCH__
/* A full run as vectors, of which a bf16 one needs the first. */
union k_run {
    uint4 v[2];
    float f[K_RUN];
    uint16_t half[K_RUN];
};
#endif

/* Elements i .. i + n - 1, as vectors: on a GPU a full run that lies at a multiple of 16 bytes. */
KERNEL void k_get_row(float *x, const void *from, int bf16, int64_t i, int n)
{
#ifdef __CUDA_ARCH__
    const uint4 *at = (const uint4 *)((const char *)from + i * (bf16 ? 2 : 4));
    if (n == K_RUN && (uintptr_t)at % sizeof *at == 0) {
        union k_run run;
        run.v[0] = at[0];
        if (!bf16)
            run.v[1] = at[1];
        EACH_CHANNEL (j, K_RUN)
            x[j] = bf16 ? k_get(run.half, 1, j) : run.f[j];
        return;
    }
#endif
    if (bf16) {
        EACH_CHANNEL (j, n)
            x[j] = k_get(from, 1, i + j);
    } else {
        EACH_CHANNEL (j, n)
            x[j] = k_get(from, 0, i + j);
    }
}

KERNEL void k_put_row(void *to, int bf16, int64_t i, const float *x, int n)
{
#ifdef __CUDA_ARCH__
    uint4 *at = (uint4 *)((char *)to + i * (bf16 ? 2 : 4));
    if (n == K_RUN && (uintptr_t)at % sizeof *at == 0) {
        union k_run run;
        EACH_CHANNEL (j, K_RUN)
            k_put(bf16 ? (void *)run.half : run.f, bf16, j, x[j]);
        at[0] = run.v[0];
        if (!bf16)
            at[1] = run.v[1];
        return;
    }
#endif
    if (bf16) {
        EACH_CHANNEL (j, n)
            k_put(to, 1, i + j, x[j]);
    } else {
        EACH_CHANNEL (j, n)
            k_put(to, 0, i + j, x[j]);
    }
}

/* Stores x, or, unless it is fresh, adds it to what is there; x is what is stored then. */
KERNEL void k_store_row(void *to, int bf16, int fresh, int64_t i, float *x, int n)
{
    float old[K_ROW];
    if (!fresh) {
        k_get_row(old, to, bf16, i, n);
        EACH_CHANNEL (j, n)
            x[j] = old[j] + x[j];
    }
    k_put_row(to, bf16, i, x, n);
}

#endif
