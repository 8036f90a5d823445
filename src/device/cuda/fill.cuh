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
 * Which voxels: a box of a volume here, rows of voxels in conv_step_weight.cu; PLACES is a struct with a
 * count and fill_locate() of its own.
 */
#ifndef FALX_CUDA_FILL_CUH
#define FALX_CUDA_FILL_CUH

#include "device/cuda/read.cuh"

struct box {
    int z, y, x;       /* voxels */
    int line, plane;   /* distances in shared memory, in voxels */
    int half;          /* of the halves */
    int count;         /* z*y*x */
    uint32_t by_x, by_y; /* i / x == i*by_x >> 20, likewise y, for all i in use */
};

struct volume {
    int n, d, h, w;
};

struct corner { /* of a box in a volume; may lie outside */
    int item, z, y, x;
};

/* Words of 16 bytes that sixteen channels of a box take. */
__host__ __device__ inline int box_words(const struct box &b)
{
    return 2 * b.half;
}

struct fill_place {
    int to;            /* word, or -1: none */
    int64_t voxel;     /* or -1: outside the volume */
};

struct box_places {
    enum { ONE = 7, TWO = 3 }; /* loads in flight: of one tensor, of two */
    const struct box &b;
    const struct volume &v;
    struct corner at;
};

__device__ __forceinline__ int fill_count(const struct box_places &f)
{
    return f.b.count;
}

__device__ __forceinline__ struct fill_place fill_locate(const struct box_places &f, int i)
{
    struct fill_place p = {-1, -1};
    const struct volume &v = f.v;
    if (i >= f.b.count)
        return p;
    int row = (int)(((uint32_t)i * f.b.by_x) >> 20), x = i - row * f.b.x;
    int z = (int)(((uint32_t)row * f.b.by_y) >> 20), y = row - z * f.b.y;
    p.to = z * f.b.plane + y * f.b.line + x;
    z += f.at.z;
    y += f.at.y;
    x += f.at.x;
    if ((unsigned)z < (unsigned)v.d && (unsigned)y < (unsigned)v.h && (unsigned)x < (unsigned)v.w)
        p.voxel = ((int64_t)(f.at.item * v.d + z) * v.h + y) * v.w + x;
    return p;
}

template <int KIND, class PLACES>
__device__ __forceinline__ void fill_wide(uint4 *to, const PLACES &f, const struct reader &r, int channel,
                                          int thread, int threads, const float t[READ_TABLES][8])
{
    const int BATCH = KIND == READ_ONE ? PLACES::ONE : PLACES::TWO;
    for (int first = thread / 2; first < fill_count(f); first += BATCH * (threads / 2)) {
        uint4 x[BATCH], y[BATCH];
        struct fill_place p[BATCH];
#pragma unroll
        for (int k = 0; k < BATCH; k++) {
            p[k] = fill_locate(f, first + k * (threads / 2));
            x[k] = y[k] = make_uint4(0, 0, 0, 0);
            if (p[k].voxel < 0)
                continue;
            int64_t from = p[k].voxel * r.c + channel;
            x[k] = __ldg((const uint4 *)((const unsigned short *)r.from[0] + from));
            if (KIND != READ_ONE)
                y[k] = __ldg((const uint4 *)((const unsigned short *)r.from[1] + from));
        }
#pragma unroll
        for (int k = 0; k < BATCH; k++) {
            if (p[k].to < 0)
                continue;
            uint4 words = make_uint4(0, 0, 0, 0);
            if (p[k].voxel >= 0)
                words = read_words<KIND>(x[k], y[k], t, r.floor);
            to[p[k].to] = words;
        }
    }
}

template <int KIND, class PLACES>
__device__ __forceinline__ void fill_any(uint4 *to, const PLACES &f, const struct reader &r, int channel,
                                         int thread, int threads, const float t[READ_TABLES][8])
{
    for (int i = thread / 2; i < fill_count(f); i += threads / 2) {
        struct fill_place p = fill_locate(f, i);
        float words[8] = {0};
        if (p.voxel >= 0)
            read_any<KIND>(words, r, p.voxel * r.c + channel, r.c - channel, t);
        to[p.to] = bf16_eight(words);
    }
}

template <int KIND, class PLACES>
__device__ __forceinline__ void fill_kind(uint4 *to, int half, const PLACES &f, const struct reader &r,
                                          int item, int channel, int thread, int threads)
{
    float t[READ_TABLES][8];
    channel += thread % 2 * 8;
    to += thread % 2 * half;
    read_tables<KIND>(t, r, item, channel);
    if (r.wide && channel < r.c)
        fill_wide<KIND>(to, f, r, channel, thread, threads, t);
    else
        fill_any<KIND>(to, f, r, channel, thread, threads, t);
}

/* Channels `channel` .. +15 of an item, by all threads of the block (an even number of them). */
template <class PLACES>
__device__ __forceinline__ void fill(uint4 *to, int half, const PLACES &f, const struct reader &r, int item,
                                     int channel, int thread, int threads)
{
    if (r.kind == READ_ONE)
        fill_kind<READ_ONE>(to, half, f, r, item, channel, thread, threads);
    else if (r.kind == READ_TWO)
        fill_kind<READ_TWO>(to, half, f, r, item, channel, thread, threads);
    else
        fill_kind<READ_GRAD>(to, half, f, r, item, channel, thread, threads);
}

__device__ __forceinline__ void fill_box(uint4 *to, const struct box &b, const struct volume &v,
                                         const struct corner &at, const struct reader &r, int channel,
                                         int thread, int threads)
{
    struct box_places f = {b, v, at};
    fill(to, b.half, f, r, at.item, channel, thread, threads);
}

/* ---- on the host --------------------------------------------------------------------------------------- */

static inline uint32_t box_inverse(int by)
{
    return ((1u << 20) + (uint32_t)by - 1) / (uint32_t)by;
}

static inline struct box box_make(int z, int y, int x, int line, int plane)
{
    struct box b = {z, y, x, line, plane, 0, z * y * x, box_inverse(x), box_inverse(y)};
    b.half = ((z - 1) * plane + (y - 1) * line + x + 3) / 8 * 8 + 4;
    return b;
}

#endif
