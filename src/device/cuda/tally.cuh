/* tally.cuh - two sums per channel over everything that a pass writes, made by the pass itself.
 *
 *     MOMENTS   of the values v:  sum of v, sum of v^2           -> mean and squared distances from it
 *     NORM      of gradients G:   sum of M G, sum of M G (y - mean)      batch norm's backward sums (norm.h)
 *
 * A lane adds up its channels in float over all rows of its block; moments are taken from the lane's first
 * value, which is near enough to the mean. A block adds its lanes in double and leaves one part per channel;
 * the block that finishes last adds the parts, in order, and makes the tables of batch norm of them. So no
 * second kernel is needed, and whichever block is last, the bits are the same.
 *
 * Blocks work on one item each, for the tables of the formulas and the sums of NORM belong to items. NORM
 * reads whole words only: bf16, c a multiple of 8, everything aligned.
 */
#ifndef FALX_CUDA_TALLY_CUH
#define FALX_CUDA_TALLY_CUH

#include "device/cuda/read.cuh"
#include "device/cuda/store.cuh"
#include "device/kernels_norm.h"

enum tally_kind { TALLY_NONE, TALLY_MOMENTS, TALLY_NORM };

struct tally {
    int kind;
    struct target of;                  /* what is written */
    const void *y;                     /* NORM: of the same shape as what is written, bf16 as that */
    const float *scale, *shift, *mean; /* scale NULL: 1 and 0 */
    int relu;
    double *first, *second;      /* results: (c), or (n, c) each */
    double2 *parts;              /* (channel, item, region) */
    unsigned *counters;          /* zero before and after */
    int items, regions;          /* regions of an item */
    double count;                /* MOMENTS: values of a channel */
    int then;                    /* 1: what is made of the results */
    struct k_norm_tables tables; /* MOMENTS */
    struct k_norm_grads grads;   /* NORM */
};

/* What a lane knows of its channels. It waits in shared memory: registers are for products. */
template <int W> struct lane_tally {
    int n;
    float center[W], a[W], b[W];
};

template <int W, int THREADS> __device__ __forceinline__ struct lane_tally<W> *tally_start(void) {
    __shared__ struct lane_tally<W> all[THREADS];
    struct lane_tally<W> *own = all + threadIdx.x;
    own->n = 0;
#pragma unroll
    for (int k = 0; k < W; k++)
        own->center[k] = own->a[k] = own->b[k] = 0;
    return own;
}

/* ---- a lane -------------------------------------------------------------------------------------------- */

template <int N, int W>
__device__ __forceinline__ void tally_moments(struct lane_tally<W> &l, const int (&voxel)[N],
                                              const float (&v)[N][W])
{
#pragma unroll
    for (int k = 0; k < W; k++)
        l.center[k] = l.n == 0 ? v[0][k] : l.center[k]; /* row 0 is outside only if all are */
#pragma unroll
    for (int i = 0; i < N; i++) {
        if (voxel[i] < 0)
            continue;
        l.n++;
#pragma unroll
        for (int k = 0; k < W; k++) {
            float d = v[i][k] - l.center[k];
            l.a[k] += d;
            l.b[k] += d * d;
        }
    }
}

template <int N, int W>
__device__ __forceinline__ void tally_norm(const struct tally &t, struct lane_tally<W> &l, int item,
                                           const int (&voxel)[N], int channel, const float (&v)[N][W])
{
    enum { BATCH = N < 64 / W ? N : 64 / W }; /* rows whose y is loaded at once */
    float scale[W], shift[W], mean[W];
    int at = item * t.of.c + channel, n = t.of.c - channel;
    table_load(scale, t.scale, 1.0f, at, n, 1);
    table_load(shift, t.shift, 0.0f, at, n, 1);
    table_load(mean, t.mean, 0.0f, channel, n, 1);
#pragma unroll
    for (int first = 0; first < N; first += BATCH) {
        uint32_t y[BATCH][W / 2] = {};
#pragma unroll
        for (int i = 0; i < BATCH; i++) {
            const char *from = row_at((const unsigned short *)t.y + channel, voxel[first + i], 2 * t.of.c);
            if (voxel[first + i] >= 0 && n > 0)
                words_load(y[i], from);
        }
#pragma unroll
        for (int i = 0; i < BATCH; i++) {
            float of[W];
            words_open(of, y[i]);
#pragma unroll
            for (int k = 0; k < W; k++) {
                float u = __fadd_rn(__fmul_rn(of[k], scale[k]), shift[k]);
                float kept = voxel[first + i] >= 0 && (!t.relu || u > 0.0f) ? v[first + i][k] : 0.0f;
                l.a[k] += kept;
                l.b[k] += kept * (of[k] - mean[k]);
            }
        }
    }
}

/* Rows as they were stored. */
template <int N, int W>
__device__ __forceinline__ void tally_rows(const struct tally &t, struct lane_tally<W> *own, int item,
                                           const int (&voxel)[N], int channel, const float (&v)[N][W])
{
    struct lane_tally<W> l;
    if (t.kind == TALLY_NONE)
        return;
    l = *own;
    if (t.kind == TALLY_MOMENTS)
        tally_moments(l, voxel, v);
    else
        tally_norm(t, l, item, voxel, channel, v);
    *own = l;
}

/* ---- a block ------------------------------------------------------------------------------------------- */

/* Whether this block is the last of so many to come here; what the others have written can be read then. */
__device__ __forceinline__ int last_block(unsigned *counter, int blocks)
{
    __shared__ int last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        last = atomicAdd(counter, 1u) == (unsigned)blocks - 1;
        if (last)
            *counter = 0;
    }
    __syncthreads();
    if (last)
        __threadfence();
    return last;
}

/* The channels of a block: its warps are so many positions by `groups`, each with 4 W columns; column i is
 * channel first + i, or the same channels come again after `distinct` columns. */
struct tally_block {
    int first, groups, distinct;
    int item, region;
    unsigned *counter;
    int blocks; /* that have these channels */
};

/* Adds parts i, i + step, ... as long as N of them are there: so many loads are in flight, for nothing else
 * is left to do meanwhile. Returns the next. */
template <int N>
__device__ __forceinline__ int add_batches(double2 &sum, const double2 *parts, int i, int count, int step)
{
    for (; i + (N - 1) * step < count; i += N * step) {
        double2 p[N];
#pragma unroll
        for (int k = 0; k < N; k++)
            p[k] = parts[i + k * step];
#pragma unroll
        for (int k = 0; k < N; k++) {
            sum.x += p[k].x;
            sum.y += p[k].y;
        }
    }
    return i;
}

/* Adds up parts over `lanes` neighbouring threads, a power of two; all get the sums. */
__device__ __forceinline__ double2 add_parts(const double2 *parts, int count, int lanes)
{
    double2 sum = {0, 0};
    int i = add_batches<16>(sum, parts, threadIdx.x % lanes, count, lanes);
    i = add_batches<4>(sum, parts, i, count, lanes);
    add_batches<1>(sum, parts, i, count, lanes);
    for (int apart = lanes / 2; apart > 0; apart /= 2) {
        sum.x += __shfl_xor_sync(0xffffffffu, sum.x, apart);
        sum.y += __shfl_xor_sync(0xffffffffu, sum.y, apart);
    }
    return sum;
}

/* By the last block: the results of its channels. */
__device__ __forceinline__ void tally_join(const struct tally &t, const struct tally_block &k, int threads)
{
    int moments = t.kind == TALLY_MOMENTS, each = moments ? 1 : t.items, lanes = 1;
    int channels = k.groups * k.distinct, count = moments ? t.items * t.regions : t.regions;
    if (channels > t.of.c - k.first)
        channels = t.of.c - k.first;
    while (lanes < 32 && 2 * lanes * channels * each <= threads)
        lanes *= 2;
    for (int base = 0; base < channels * each; base += threads / lanes) {
        int i = base + threadIdx.x / lanes, item = i % each, channel = k.first + i / each;
        int inside = i < channels * each;
        double2 s =
            add_parts(t.parts + ((int64_t)channel * t.items + item) * t.regions, inside ? count : 0, lanes);
        if (!inside || threadIdx.x % lanes != 0)
            continue;
        double m2 = s.y - s.x * s.x / t.count;
        t.first[item * t.of.c + channel] = moments ? s.x / t.count : s.x;
        t.second[item * t.of.c + channel] = !moments ? s.y : m2 < 0 ? 0 : m2;
    }
}

/* By the last block: what is made of the results of its channels. Not inlined: registers are for products. */
static __device__ __noinline__ void tally_then(const struct tally &t, const struct tally_block &k,
                                               int threads)
{
    int end = k.first + k.groups * k.distinct;
    __syncthreads();
    for (int i = k.first + threadIdx.x; i < (end < t.of.c ? end : t.of.c); i += threads) {
        if (t.kind == TALLY_MOMENTS)
            k_norm_tables_range(&t.tables, i, i + 1);
        else
            k_norm_grads_range(&t.grads, i, i + 1);
    }
}

/* By all threads of a block, when it has written everything. */
template <int WARPS, int W>
__device__ __forceinline__ void tally_finish(const struct tally &t, const struct lane_tally<W> *own,
                                             const struct tally_block &k)
{
    __shared__ double2 sums[WARPS][4 * W];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (t.kind == TALLY_NONE)
        return;
#pragma unroll
    for (int i = 0; i < W; i++) {
        double n = own->n, c = own->center[i], a = own->a[i], b = own->b[i];
        if (t.kind == TALLY_MOMENTS && n > 0) {
            b += 2 * c * a + n * c * c;
            a += n * c;
        }
#pragma unroll
        for (int apart = 4; apart < 32; apart *= 2) {
            a += __shfl_xor_sync(0xffffffffu, a, apart);
            b += __shfl_xor_sync(0xffffffffu, b, apart);
        }
        if (lane < 4)
            sums[warp][lane * W + i] = make_double2(a, b);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < k.groups * k.distinct; i += 32 * WARPS) {
        double2 sum = {0, 0};
        for (int w = i / k.distinct; w < WARPS; w += k.groups)
            for (int column = i % k.distinct; column < 4 * W; column += k.distinct) {
                sum.x += sums[w][column].x;
                sum.y += sums[w][column].y;
            }
        if (k.first + i < t.of.c)
            t.parts[((int64_t)(k.first + i) * t.items + k.item) * t.regions + k.region] = sum;
    }
    if (!last_block(k.counter, k.blocks))
        return;
    tally_join(t, k, 32 * WARPS);
    if (t.then)
        tally_then(t, k, 32 * WARPS);
}

#endif
