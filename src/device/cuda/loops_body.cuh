/* loops_body.cuh - the two shapes of a voxel loop on the GPU, around any body of kernels.h.
 *
 * A thread calls its body with one index. Sums are made by the warp together (k_add_row of kernels_math.h),
 * so in a reduction the threads past the end call it, too, with an empty range: a body reads and writes
 * nothing then and adds zeros.
 */
#ifndef FALX_CUDA_LOOPS_BODY_CUH
#define FALX_CUDA_LOOPS_BODY_CUH

#include "device/cuda/launch.cuh"
#include "device/cuda/loops.cuh"
#include "device/kernels.h"

/* One block: the parts blockIdx.x, blockIdx.x + gridDim.x, ... of `run` indices a warp. */
template <class Args, void (*range)(const Args *, int64_t, int64_t, float *)>
static __device__ void reduce_parts(const Args *args, int64_t count, int n_sums, int run, double *partial)
{
    SHARED_MEMORY(shared);
    double *block_sums = (double *)shared;
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, warps = (int)blockDim.x / 32;
    float *rows = (float *)(block_sums + n_sums), *row = rows + warp * n_sums;
    const int64_t part = (int64_t)warps * run;
    for (int s = (int)threadIdx.x; s < n_sums; s += (int)blockDim.x)
        block_sums[s] = 0;
    for (int64_t first = blockIdx.x * part; first < count; first += gridDim.x * part) {
        for (int s = lane; s < n_sums; s += 32)
            row[s] = 0;
        __syncwarp();
        int64_t i0 = first + warp * run;
        for (int64_t i = i0; i < i0 + run && i < count; i += 32)
            range(args, i + lane, i + lane < count ? i + lane + 1 : i + lane, row);
        __syncthreads();
        for (int s = (int)threadIdx.x; s < n_sums; s += (int)blockDim.x)
            for (int w = 0; w < warps; w++)
                block_sums[s] += (double)rows[w * n_sums + s];
        __syncthreads();
    }
    for (int s = (int)threadIdx.x; s < n_sums; s += (int)blockDim.x)
        partial[(int64_t)s * gridDim.x + blockIdx.x] = block_sums[s];
}

/* Shared memory of a block. */
static inline size_t reduce_shared(const struct loops_launch *l)
{
    size_t warps = (size_t)l->threads / 32;
    return (size_t)l->n_sums * (sizeof(double) + warps * sizeof(float));
}

/* A kernel for every name of a list, and the launch of each; further words of a list entry are not used. */
#define MAP_KERNEL(name, ...)                                                                                \
    static __global__ void __launch_bounds__(LOOPS_THREADS)                                                  \
        map_##name(const __grid_constant__ struct k_##name args, int64_t count)                              \
    {                                                                                                        \
        int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;                                          \
        if (i < count)                                                                                       \
            k_##name##_range(&args, i, i + 1);                                                               \
    }
#define REDUCE_KERNEL(name, ...)                                                                             \
    static __global__ void __launch_bounds__(LOOPS_THREADS) reduce_##name(                                   \
        const __grid_constant__ struct r_##name args, int64_t count, int n_sums, int run, double *partial)   \
    {                                                                                                        \
        reduce_parts<struct r_##name, r_##name##_range>(&args, count, n_sums, run, partial);                 \
    }
#define MAP_LAUNCH(name, ...)                                                                                \
    case KERNEL_##name:                                                                                      \
        map_##name<<<l->blocks, l->threads, 0, l->stream>>>(*(const struct k_##name *)args, l->count);       \
        break;
#define REDUCE_LAUNCH(name, ...)                                                                             \
    case REDUCE_##name:                                                                                      \
        reduce_##name<<<l->blocks, l->threads, reduce_shared(l), l->stream>>>(                               \
            *(const struct r_##name *)args, l->count, l->n_sums, l->run, l->partial);                        \
        break;

#endif
