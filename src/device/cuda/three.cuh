/* three.cuh - what the files of CONV_3 share: tiles, the pattern of a warp's voxels, and writing results. */
#ifndef FALX_CUDA_THREE_CUH
#define FALX_CUDA_THREE_CUH

#include "device/cuda/conv_int.cuh"

enum {
    US = 2,
    VS = 4,                   /* places of a pattern in z and y; its own voxels lie that far apart */
    THREE_ROWS = 2 * US * VS, /* of a lane: two of the pattern at all places */
    THREE_WARPS = 4,
    THREE_THREADS = 32 * THREE_WARPS,
    WEIGHT_THREADS = 192 /* of the weight gradient: two warps' work by three shifts */
};

struct three_job {
    struct three_plan p;
    struct volume v;
    struct reader from; /* of one channel; else */
    struct laid laid;
    struct laid_operand operand;
    struct target to;
    struct tally tally;
    const uint4 *weights;
    float4 *partial;    /* (tile, columns, split, row, thread), or NULL */
    unsigned *counters; /* one for each (tile, columns): splits that are done */
};

/* The first voxel of a tile of an item. */
__device__ __forceinline__ struct corner tile_corner(const struct three_plan &p, int item, int tile)
{
    int row = divide(tile, p.by_nx), z = divide(row, p.by_ny);
    struct corner c = {item, z * p.tz, (row - z * p.ny) * p.ty, (tile - row * p.nx) * p.tx};
    return c;
}

__device__ __forceinline__ struct corner border_corner(const struct corner &c)
{
    struct corner b = {c.item, c.z - 1, c.y - 1, c.x - 1};
    return b;
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
    struct corner c = {0, (row >> (p.log_px + p.log_py)) * US, (row >> p.log_px & (p.py - 1)) * VS,
                       row & (p.px - 1)};
    return c;
}

/* Its word in a box, with the warp's. */
__device__ __forceinline__ int pattern_word(const struct three_plan &p, const struct box &b,
                                            const struct corner &warp, int row)
{
    struct corner v = pattern_voxel(p, row);
    return (warp.z + v.z) * b.plane + (warp.y + v.y) * b.line + warp.x + v.x;
}

/* ---- copying ------------------------------------------------------------------------------------------- */

/* Lines of a box, in words: from the tile's first in a laid block of 8 channels, and in half of the box. */
struct __align__(8) line
{
    int from, to;
};

__host__ __device__ __forceinline__ int box_lines(const struct box &b)
{
    return b.z * b.y;
}

/* Those of a box that begins `first` words behind its tile: the same for every tile. */
__device__ __forceinline__ void list_lines(struct line *list, const struct box &b, const struct laid &v,
                                           int first, int threads)
{
    for (int i = threadIdx.x; i < box_lines(b); i += threads) {
        int z = divide(i, b.by_y), y = i - z * b.y;
        struct line l = {first + (z * v.h + y) * v.w, z * b.plane + y * b.line};
        list[i] = l;
    }
}

/* Sends 16 channels of a box on their way; `from` is the tile's first word. */
__device__ __forceinline__ void copy_box(uint32_t to, const struct line *list, const struct box &b,
                                         const uint4 *from, int words, int threads)
{
#pragma unroll 2
    for (int i = threadIdx.x; i < b.count; i += threads) {
        int row = divide(i, b.by_x), x = i - row * b.x;
        struct line l = list[row];
        word_copy(to + 16 * (l.to + x), from + l.from + x);
        word_copy(to + 16 * (l.to + x + b.half), from + l.from + x + words);
    }
}

/* The first word of a tile in block 0 of 8 channels. */
__device__ __forceinline__ int tile_word(const struct laid &v, const struct corner &at)
{
    return (at.z * v.h + at.y) * v.w + at.x;
}

/* ---- results ------------------------------------------------------------------------------------------- */

/* The voxels of a lane's rows: (place in z, in y, row g or g + 8 of the pattern); -1 outside. */
__device__ __forceinline__ void lane_voxels(int (&voxel)[THREE_ROWS], const struct three_job &j,
                                            const struct corner &at)
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        struct corner c = pattern_voxel(j.p, threadIdx.x % 32 / 4 + 8 * r);
        c.item = at.item;
        c.z += at.z;
        c.y += at.y;
        c.x += at.x;
        int first = voxel_at(j.v, c);
#pragma unroll
        for (int i = 0; i < US * VS; i++) {
            int inside = c.z + i / VS < j.v.d && c.y + i % VS < j.v.h && c.x < j.v.w;
            voxel[2 * i + r] = inside ? first + (i / VS * j.v.h + i % VS) * j.v.w : -1;
        }
    }
}

/* Row i of a lane: four channels. */
__device__ __forceinline__ void lane_rows(float (&v)[THREE_ROWS][4], const float (&acc)[US][VS][2][4])
{
#pragma unroll
    for (int i = 0; i < THREE_ROWS; i++)
#pragma unroll
        for (int k = 0; k < 4; k++)
            v[i][k] = acc[i / 8][i / 2 % 4][k / 2][i % 2 * 2 + k % 2];
}

/* The first channel of a lane. */
__device__ __forceinline__ int lane_channel(int group)
{
    return 16 * group + threadIdx.x % 4 * 4;
}

#endif
