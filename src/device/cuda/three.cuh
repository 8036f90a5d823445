/* three.cuh - what the files of CONV_3 share: tiles, the pattern of a warp's voxels, and writing results. */
#ifndef FALX_CUDA_THREE_CUH
#define FALX_CUDA_THREE_CUH

#include "device/cuda/conv_int.cuh"

enum {
    US = 2, VS = 4, /* places of a pattern in z and y; its own voxels lie that far apart */
    THREE_WARPS = 4,
    THREE_THREADS = 32 * THREE_WARPS
};

struct three_job {
    struct three_plan p;
    struct volume v;
    struct reader from;
    struct target to;
    const uint4 *weights;
    float *partial;   /* (splits, voxels, 16 groups), or NULL */
    float4 *moments;  /* or NULL */
    int regions;
};

/* The first voxel of a tile. */
__device__ __forceinline__ struct corner tile_corner(const struct three_plan &p, int tile)
{
    struct corner c;
    c.x = tile % p.nx * p.tx;
    c.y = tile / p.nx % p.ny * p.ty;
    c.z = tile / (p.nx * p.ny) % p.nz * p.tz;
    c.item = tile / (p.nx * p.ny * p.nz);
    return c;
}

/* Where a warp begins in its tile: warps along x, then y, then z. */
__device__ __forceinline__ struct corner warp_corner(const struct three_plan &p, int position)
{
    struct corner c = {0, position / (p.wx * p.wy) * US * p.pz, position / p.wx % p.wy * VS * p.py,
                       position % p.wx * p.px};
    return c;
}

/* Voxel `row` of the pattern, from the warp's first. */
__host__ __device__ __forceinline__ struct corner pattern_voxel(const struct three_plan &p, int row)
{
    struct corner c = {0, row / (p.px * p.py) * US, row / p.px % p.py * VS, row % p.px};
    return c;
}

/* Its word in a box, with the warp's. */
__device__ __forceinline__ int pattern_word(const struct three_plan &p, const struct box &b,
                                            const struct corner &warp, int row)
{
    struct corner v = pattern_voxel(p, row);
    return (warp.z + v.z) * b.plane + (warp.y + v.y) * b.line + warp.x + v.x;
}

/* ---- results ------------------------------------------------------------------------------------------- */

__device__ __forceinline__ float over_rows(float v)
{
    v += __shfl_xor_sync(0xffffffffu, v, 4);
    v += __shfl_xor_sync(0xffffffffu, v, 8);
    v += __shfl_xor_sync(0xffffffffu, v, 16);
    return v;
}

/* Mean and sum of squared distances of the warp's voxels; `inside`: one bit for each (u, v, row). */
__device__ __forceinline__ void keep_moments(const struct three_job &j, const float acc[US][VS][2][4],
                                             uint32_t inside, int channel, int region)
{
    float n = over_rows((float)__popc(inside));
#pragma unroll
    for (int k = 0; k < 4; k++) {
        float sum = 0, square = 0;
#pragma unroll
        for (int i = 0; i < 2 * US * VS; i++)
            if (inside >> i & 1)
                sum += acc[i / 8][i / 2 % 4][k / 2][i % 2 * 2 + k % 2];
        float mean = over_rows(sum) / fmaxf(n, 1.0f);
#pragma unroll
        for (int i = 0; i < 2 * US * VS; i++)
            if (inside >> i & 1) {
                float d = acc[i / 8][i / 2 % 4][k / 2][i % 2 * 2 + k % 2] - mean;
                square += d * d;
            }
        square = over_rows(square);
        if (threadIdx.x % 32 < 4 && channel + k < j.to.c)
            j.moments[(int64_t)(channel + k) * j.regions + region] = make_float4(n, mean, square, 0);
    }
}

/* Everything of one lane: rows g and g + 8 of the pattern at eight places, four channels. */
__device__ __forceinline__ void write_results(const struct three_job &j, float acc[US][VS][2][4],
                                              const struct corner &at, int group, int region)
{
    int lane = threadIdx.x % 32, channel = 16 * group + lane % 4 * 4;
    uint32_t inside = 0;
    float bias[4];
    target_bias(j.to, channel, bias);
#pragma unroll
    for (int i = 0; i < 2 * US * VS; i++) {
        struct corner row = pattern_voxel(j.p, lane / 4 + i % 2 * 8);
        int u = i / 8, v = i / 2 % 4, z = at.z + row.z + u, y = at.y + row.y + v, x = at.x + row.x;
        if (z >= j.v.d || y >= j.v.h || x >= j.v.w)
            continue;
        int64_t voxel = ((int64_t)(at.item * j.v.d + z) * j.v.h + y) * j.v.w + x;
        float *d0 = acc[u][v][0] + i % 2 * 2, *d1 = acc[u][v][1] + i % 2 * 2;
        float r[4] = {d0[0], d0[1], d1[0], d1[1]};
        inside |= 1u << i;
        if (j.partial) {
            int64_t all = (int64_t)j.v.n * j.v.d * j.v.h * j.v.w, columns = 16 * j.p.groups;
            *(float4 *)(j.partial + (blockIdx.z * all + voxel) * columns + channel) =
                make_float4(r[0], r[1], r[2], r[3]);
            continue;
        }
#pragma unroll
        for (int k = 0; k < 4; k++)
            r[k] += bias[k];
        target_store(j.to, voxel, channel, r);
        d0[0] = r[0];
        d0[1] = r[1];
        d1[0] = r[2];
        d1[1] = r[3];
    }
    if (j.moments)
        keep_moments(j, acc, inside, channel, region);
}

#endif
