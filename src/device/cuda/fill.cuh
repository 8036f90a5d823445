/* fill.cuh - voxels brought through the reading formula into shared memory, as bf16.
 *
 * Sixteen channels at a time, in two halves of eight. A voxel of a half is one word of 16 bytes:
 *
 *     [half 0: z, y, x][half 1: z, y, x]        voxel (z, y, x) at z*plane + y*line + x of its half
 *
 * So eight neighbours in x are 128 bytes in a row: every shift of them is read without bank conflicts, and
 * a shift by a tap is a constant in the address. `half` is 4 more than a multiple of 8, so that the two
 * halves of a voxel, written by neighbouring threads, never meet in a bank. Outside the volume is 0.
 *
 * Which voxels: a list of places in shared memory, made once for all channels that are filled from it, for
 * finding a place costs as much as filling it. Lists are as long as the threads of a block want them: a pair
 * of n threads takes every n-th place, and what is behind the last is filled into a spare word.
 */
#ifndef FALX_CUDA_FILL_CUH
#define FALX_CUDA_FILL_CUH

#include "device/cuda/read.cuh"

/* ---- geometry ------------------------------------------------------------------------------------------ */

/* n / by without dividing, for 0 <= n < 2^31. */
struct divisor {
    int by, shift;
    uint32_t factor;
};

static inline struct divisor divisor_of(int by)
{
    struct divisor d = {by, 0, 0};
    int bits = 0;
    while ((int64_t)1 << bits < by)
        bits++;
    d.shift = bits - 1;
    d.factor = (uint32_t)((((uint64_t)1 << (31 + bits)) + (uint32_t)by - 1) / (uint32_t)by);
    return d;
}

__device__ __forceinline__ int divide(int n, const struct divisor &d)
{
    return d.by == 1 ? n : (int)(__umulhi((uint32_t)n, d.factor) >> d.shift);
}

struct volume {
    int n, d, h, w;
};

struct corner { /* of a box in a volume; may lie outside */
    int item, z, y, x;
};

__device__ __forceinline__ int voxel_at(const struct volume &v, const struct corner &c)
{
    return ((c.item * v.d + c.z) * v.h + c.y) * v.w + c.x;
}

struct box {
    int z, y, x;     /* voxels */
    int line, plane; /* distances in shared memory, in voxels */
    int half;        /* of the halves; the last word of a half is a spare one */
    int count;       /* z*y*x */
    struct divisor by_x, by_y;
};

static inline struct box box_make(int z, int y, int x, int line, int plane)
{
    struct box b = {z, y, x, line, plane, 0, z * y * x, divisor_of(x), divisor_of(y)};
    b.half = ((z - 1) * plane + (y - 1) * line + x + 4) / 8 * 8 + 4;
    return b;
}

/* Words of 16 bytes that sixteen channels of a box take. */
__host__ __device__ inline int box_words(const struct box &b)
{
    return 2 * b.half;
}

/* ---- places -------------------------------------------------------------------------------------------- */

struct __align__(8) place
{
    int voxel; /* or -1: outside the volume */
    int word;
};

/* Length of a list of `count` places. */
__host__ __device__ inline int places_length(int count, int threads)
{
    return (count + threads / 2 - 1) / (threads / 2) * (threads / 2);
}

/* The places of a box, by all threads of the block. */
__device__ __forceinline__ void box_places(struct place *to, const struct box &b, const struct volume &v,
                                           const struct corner &at, int threads)
{
    for (int i = threadIdx.x; i < places_length(b.count, threads); i += threads) {
        int row = divide(i, b.by_x), x = i - row * b.x, z = divide(row, b.by_y), y = row - z * b.y;
        struct corner c = {at.item, at.z + z, at.y + y, at.x + x};
        struct place p = {-1, b.half - 1};
        if (i < b.count) {
            p.word = z * b.plane + y * b.line + x;
            if ((unsigned)c.z < (unsigned)v.d && (unsigned)c.y < (unsigned)v.h &&
                (unsigned)c.x < (unsigned)v.w)
                p.voxel = voxel_at(v, c);
        }
        to[i] = p;
    }
}

/* ---- filling ------------------------------------------------------------------------------------------- */

template <int KIND>
__device__ __forceinline__ void fill_wide(uint4 *to, const struct place *places, int rounds,
                                          const struct reader &r, int item, int channel, int threads)
{
    const int BATCH = KIND == READ_ONE ? 8 : 4; /* loads in flight */
    const unsigned short *a = (const unsigned short *)r.from[0] + channel;
    const unsigned short *b = (const unsigned short *)r.from[1] + channel;
    float t[READ_TABLES][8];
    read_tables<KIND>(t, r, item, channel, 1);
    for (int round = 0; round < rounds; round += BATCH) {
        int voxel[BATCH];
        uint4 x[BATCH], y[BATCH];
#pragma unroll
        for (int k = 0; k < BATCH; k++)
            voxel[k] = round + k < rounds ? places[(round + k) * (threads / 2)].voxel : -1;
#pragma unroll
        for (int k = 0; k < BATCH; k++) {
            const char *from = row_at(a, voxel[k], 2 * r.c), *second = row_at(b, voxel[k], 2 * r.c);
            x[k] = y[k] = make_uint4(0, 0, 0, 0);
            if (voxel[k] >= 0)
                x[k] = __ldg((const uint4 *)from);
            if (KIND != READ_ONE && voxel[k] >= 0)
                y[k] = __ldg((const uint4 *)second);
        }
#pragma unroll
        for (int k = 0; k < BATCH; k++) {
            if (round + k >= rounds)
                break;
            struct place p = places[(round + k) * (threads / 2)];
            uint4 words = read_words<KIND>(x[k], y[k], t, r.floor);
            to[p.word] = p.voxel >= 0 ? words : make_uint4(0, 0, 0, 0);
        }
    }
}

template <int KIND>
__device__ __forceinline__ void fill_any(uint4 *to, const struct place *places, int rounds,
                                         const struct reader &r, int item, int channel, int threads)
{
    float t[READ_TABLES][8];
    read_tables<KIND>(t, r, item, channel, 0);
    for (int round = 0; round < rounds; round++) {
        struct place p = places[round * (threads / 2)];
        float words[8] = {0};
        if (p.voxel >= 0 && channel < r.c)
            read_any<KIND>(words, r, (int64_t)p.voxel * r.c + channel, r.c - channel, t);
        to[p.word] = bf16_eight(words);
    }
}

template <int KIND>
__device__ __forceinline__ void fill_kind(uint4 *to, int half, const struct place *places, int count,
                                          const struct reader &r, int item, int channel, int threads)
{
    int rounds = places_length(count, threads) / (threads / 2);
    channel += threadIdx.x % 2 * 8;
    to += threadIdx.x % 2 * half;
    places += threadIdx.x / 2;
    if (r.wide && channel < r.c)
        fill_wide<KIND>(to, places, rounds, r, item, channel, threads);
    else
        fill_any<KIND>(to, places, rounds, r, item, channel, threads);
}

/* Channels `channel` .. +15 of an item, by all threads of the block (an even number of them). */
__device__ __forceinline__ void fill(uint4 *to, int half, const struct place *places, int count,
                                     const struct reader &r, int item, int channel, int threads)
{
    if (r.kind == READ_ONE)
        fill_kind<READ_ONE>(to, half, places, count, r, item, channel, threads);
    else if (r.kind == READ_TWO)
        fill_kind<READ_TWO>(to, half, places, count, r, item, channel, threads);
    else
        fill_kind<READ_GRAD>(to, half, places, count, r, item, channel, threads);
}

#endif
