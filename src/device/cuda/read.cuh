/* read.cuh - operands of a convolution, read through the formulas of conv.h, W channels at a time.
 *
 *     READ_ONE    act(scale y + shift)
 *     READ_TWO    the sum of two of them
 *     READ_GRAD   p [scale y + shift > 0] G + (q y + r)
 *
 * Products and sums are rounded one by one, as on the processor, so that operands are the same numbers
 * there and here. Channels behind the last are 0: their tables are, too.
 */
#ifndef FALX_CUDA_READ_CUH
#define FALX_CUDA_READ_CUH

#include "device/conv.h"
#include "device/cuda/mma.cuh"

enum read_kind { READ_ONE, READ_TWO, READ_GRAD };

struct reader {
    int kind, c;
    int wide;            /* bf16, c a multiple of 8, all aligned: whole words of 16 bytes */
    int quads;           /* c a multiple of 4, all aligned: QUADS_BF16 or QUADS_F32 */
    const void *from[2]; /* y; y and y; G and y */
    int f32[2];
    const float *scale[2], *shift[2]; /* (n, c) or NULL; GRAD: y's are the second */
    float floor[2];                   /* 0 with relu, else -infinity */
    const float *p, *q, *r;
};

enum { READ_TABLES = 5 };
enum { QUADS_NONE, QUADS_BF16, QUADS_F32 };

/* ---- tables -------------------------------------------------------------------------------------------- */

/* Of W channels, n of which are there. `whole`: n is a multiple of four, and memory aligned. */
template <int W>
__device__ __forceinline__ void table_load(float (&t)[W], const float *from, float otherwise, int at, int n,
                                           int whole)
{
    if (whole && from) {
#pragma unroll
        for (int i = 0; i < W; i += 4) {
            float4 f = i < n ? __ldg((const float4 *)(from + at + i)) : make_float4(0, 0, 0, 0);
            t[i] = f.x;
            t[i + 1] = f.y;
            t[i + 2] = f.z;
            t[i + 3] = f.w;
        }
        return;
    }
#pragma unroll
    for (int j = 0; j < W; j++)
        t[j] = j >= n ? 0.0f : from ? __ldg(from + at + j) : otherwise;
}

/* Of channels `channel` .. of an item. */
template <int KIND, int W>
__device__ __forceinline__ void read_tables(float (&t)[READ_TABLES][W], const struct reader &r, int item,
                                            int channel, int whole)
{
    int at = item * r.c + channel, n = r.c - channel;
    if (KIND == READ_GRAD) {
        table_load(t[0], r.scale[1], 1.0f, at, n, whole);
        table_load(t[1], r.shift[1], 0.0f, at, n, whole);
        table_load(t[2], r.p, 1.0f, at, n, whole);
        table_load(t[3], r.q, 0.0f, at, n, whole);
        table_load(t[4], r.r, 0.0f, at, n, whole);
        return;
    }
    table_load(t[0], r.scale[0], 1.0f, at, n, whole);
    table_load(t[1], r.shift[0], 0.0f, at, n, whole);
    if (KIND == READ_TWO) {
        table_load(t[2], r.scale[1], 1.0f, at, n, whole);
        table_load(t[3], r.shift[1], 0.0f, at, n, whole);
    }
}

/* ---- numbers ------------------------------------------------------------------------------------------- */

__device__ __forceinline__ float formula(float y, float scale, float shift, float floor)
{
    return larger(__fadd_rn(__fmul_rn(y, scale), shift), floor);
}

/* One number from what is stored. */
template <int KIND, int W>
__device__ __forceinline__ float read_one(float a, float b, const float (&t)[READ_TABLES][W], int j,
                                          const float floor[2])
{
    if (KIND == READ_ONE)
        return formula(a, t[0][j], t[1][j], floor[0]);
    if (KIND == READ_TWO)
        return __fadd_rn(formula(a, t[0][j], t[1][j], floor[0]), formula(b, t[2][j], t[3][j], floor[1]));
    float normed = __fadd_rn(__fmul_rn(b, t[0][j]), t[1][j]);
    float g = normed > floor[1] ? __fmul_rn(a, t[2][j]) : 0.0f;
    return __fadd_rn(g, __fadd_rn(__fmul_rn(t[3][j], b), t[4][j]));
}

/* Eight numbers from two words of eight, as bf16. */
template <int KIND>
__device__ __forceinline__ uint4 read_words(uint4 a, uint4 b, const float (&t)[READ_TABLES][8],
                                            const float floor[2])
{
    const uint32_t x[4] = {a.x, a.y, a.z, a.w}, y[4] = {b.x, b.y, b.z, b.w};
    uint32_t to[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        to[i] = bf16_pair(read_one<KIND>(bf16_low(x[i]), bf16_low(y[i]), t, 2 * i, floor),
                          read_one<KIND>(bf16_high(x[i]), bf16_high(y[i]), t, 2 * i + 1, floor));
    return make_uint4(to[0], to[1], to[2], to[3]);
}

__device__ __forceinline__ float value_load(const void *from, int f32, int64_t at)
{
    if (f32)
        return __ldg((const float *)from + at);
    return bf16_low((uint32_t)__ldg((const unsigned short *)from + at));
}

/* The same from any types and channels: `at` is the first element's index, n channels are left. */
template <int KIND, int W>
__device__ __forceinline__ void read_any(float (&v)[W], const struct reader &r, int64_t at, int n,
                                         const float (&t)[READ_TABLES][W])
{
#pragma unroll
    for (int j = 0; j < W; j++) {
        float a = 0.0f, b = 0.0f;
        if (j < n) {
            a = value_load(r.from[0], r.f32[0], at + j);
            if (KIND != READ_ONE)
                b = value_load(r.from[1], r.f32[1], at + j);
        }
        v[j] = read_one<KIND>(a, b, t, j, r.floor);
    }
}

/* One number, with its tables looked up: for kernels in which speed is secondary. */
__device__ __forceinline__ float table_at(const float *t, int64_t at, float otherwise)
{
    return t ? __ldg(t + at) : otherwise;
}

__device__ __forceinline__ float read_single(const struct reader &r, int item, int64_t voxel, int channel)
{
    int64_t at = voxel * r.c + channel, k = (int64_t)item * r.c + channel;
    float t[READ_TABLES][1], a = value_load(r.from[0], r.f32[0], at), b = 0.0f;
    if (r.kind != READ_ONE)
        b = value_load(r.from[1], r.f32[1], at);
    int first = r.kind == READ_GRAD;
    t[0][0] = table_at(r.scale[first], k, 1.0f);
    t[1][0] = table_at(r.shift[first], k, 0.0f);
    if (r.kind == READ_ONE)
        return read_one<READ_ONE>(a, b, t, 0, r.floor);
    if (r.kind == READ_TWO) {
        t[2][0] = table_at(r.scale[1], k, 1.0f);
        t[3][0] = table_at(r.shift[1], k, 0.0f);
        return read_one<READ_TWO>(a, b, t, 0, r.floor);
    }
    t[2][0] = table_at(r.p, k, 1.0f);
    t[3][0] = table_at(r.q, k, 0.0f);
    t[4][0] = table_at(r.r, k, 0.0f);
    return read_one<READ_GRAD>(a, b, t, 0, r.floor);
}

#endif
