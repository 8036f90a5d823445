/* mma.cuh - what kernels with products on tensor cores share: numbers as the instructions take them, and sums
 * over the lanes of a warp (instructions.cuh). */
#ifndef FALX_CUDA_MMA_CUH
#define FALX_CUDA_MMA_CUH

#include "device/cuda/instructions.cuh"

__device__ __forceinline__ uint4 tf32_four(const float v[4])
{
    return make_uint4(tf32_rounded(v[0]), tf32_rounded(v[1]), tf32_rounded(v[2]), tf32_rounded(v[3]));
}

__device__ __forceinline__ uint4 f32_four(const float v[4])
{
    return make_uint4(__float_as_uint(v[0]), __float_as_uint(v[1]), __float_as_uint(v[2]),
                      __float_as_uint(v[3]));
}

/* The sum over the eight lanes that have the same q. */
__device__ __forceinline__ float over_rows(float v)
{
    v += __shfl_xor_sync(0xffffffffu, v, 4);
    v += __shfl_xor_sync(0xffffffffu, v, 8);
    v += __shfl_xor_sync(0xffffffffu, v, 16);
    return v;
}

__device__ __forceinline__ uint4 bf16_eight(const float v[8])
{
    return make_uint4(bf16_pair(v[0], v[1]), bf16_pair(v[2], v[3]), bf16_pair(v[4], v[5]),
                      bf16_pair(v[6], v[7]));
}

__device__ __forceinline__ float bf16_low(uint32_t u)
{
    return __uint_as_float(u << 16);
}

__device__ __forceinline__ float bf16_high(uint32_t u)
{
    return __uint_as_float(u & 0xffff0000u);
}

__device__ __forceinline__ float bf16_rounded(float f)
{
    return bf16_low(bf16_pair(f, 0.0f));
}

#endif
