/* contrast.cu - contrast.h on the GPU: all pairs of N rows, in float32, none of them stored.
 *
 *     rows --> [ sums: rows x splits ] --> shares --> [ pull: rows x splits ] --> added up
 *
 * Scores are powers of two, b(i,j) = row(i).row(j) log2(e) / tau. A thread has MINE rows i in registers and
 * walks over the rows j of its split, which its block reads into shared memory TILE at a time; all threads
 * of a warp look at the same j, so that a read serves 32 of them. A split is a run of tiles; with N / 256
 * blocks of rows there are some thousand blocks for 18,000 rows.
 *
 *     sums    m(i) = the largest score so far, z(i) = sum of 2^(b - m), made smaller whenever m grows: eight
 *             scores at a time, a tile in float, tiles and splits in double. No bound on the scores is
 *             needed: long rows and tiny temperatures are all right
 *     shares  the splits' m and z of a row made one, ln Z and anchor / z from it
 *     pull    sum over j of [ 2^(b - m(i)) share(i) + 2^(b - m(j)) share(j) ] row(j), splits in double
 *
 * A pair that does not count (a row with itself, rows beyond the last) has the score -infinity: 2^that is 0,
 * and m starts at a finite number, so that nothing undefined comes of it. What is not a number goes through
 * to the results: larger() takes the other, but the difference from it stays undefined.
 *
 * Cost for N rows: N^2 (22 + 41) instructions; N = 18,000 about 0.8 ms, 9,000 about 0.2 ms on 132
 * multiprocessors. Every order of summation follows from N.
 */
#include "device/cuda/context.cuh"

enum {
    K = CONTRAST_DIMS,
    TILE = 64,
    THREADS = 128,
    MINE = 2,                /* rows of a thread, THREADS apart */
    OF_BLOCK = THREADS * MINE,
    CHUNK = 8,               /* scores between two looks at the largest */
    SPLITS = 28              /* most */
};
static const double log2_e = 1.4426950408889634;

struct pairs_work {
    int count, tiles, per_split, splits;
    float scale;                 /* log2(e) / tau */
    const float *rows, *anchor;
    float *log_sum, *pull;       /* out */
    float *part_top, *top, *share; /* (splits, count), (count), (count) */
    double *part_sum;            /* (splits, count) */
    float *part_pull;            /* (splits, count, K) */
};

/* ---- one thread ------------------------------------------------------------------------------ */

/* 2^x, relative error 2^-22; 0 for -infinity and for what would be denormal. */
static __device__ __forceinline__ float power(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* The rows of this thread, times scale; those beyond the last are 0. */
static __device__ __forceinline__ void load_mine(float (&q)[MINE][K], const struct pairs_work &w, int i0)
{
#pragma unroll
    for (int r = 0; r < MINE; r++) {
        int i = i0 + r * THREADS;
#pragma unroll
        for (int k = 0; k < K; k += 4) {
            float4 v = make_float4(0, 0, 0, 0);
            if (i < w.count)
                v = *(const float4 *)(w.rows + (int64_t)i * K + k);
            q[r][k] = v.x * w.scale, q[r][k + 1] = v.y * w.scale;
            q[r][k + 2] = v.z * w.scale, q[r][k + 3] = v.w * w.scale;
        }
    }
}

/* The block's tile of rows j0 .. j0 + TILE; those beyond the last are 0. */
static __device__ __forceinline__ void load_tile(float (*tile)[K], const struct pairs_work &w, int j0)
{
    for (int at = (int)threadIdx.x; at < TILE * K / 4; at += THREADS) {
        int j = at / (K / 4), k = at % (K / 4) * 4;
        float4 v = make_float4(0, 0, 0, 0);
        if (j0 + j < w.count)
            v = *(const float4 *)(w.rows + (int64_t)(j0 + j) * K + k);
        *(float4 *)&tile[j][k] = v;
    }
}

static __device__ __forceinline__ void load_row(float (&x)[K], const float *from)
{
#pragma unroll
    for (int k = 0; k < K; k += 4) {
        float4 v = *(const float4 *)(from + k);
        x[k] = v.x, x[k + 1] = v.y, x[k + 2] = v.z, x[k + 3] = v.w;
    }
}

/* Two sums side by side: half the wait. */
static __device__ __forceinline__ float score(const float (&q)[K], const float (&x)[K])
{
    float even = q[0] * x[0], odd = q[1] * x[1];
#pragma unroll
    for (int k = 2; k < K; k += 2) {
        even = fmaf(q[k], x[k], even);
        odd = fmaf(q[k + 1], x[k + 1], odd);
    }
    return even + odd;
}

static __device__ __forceinline__ float counted(float s, int i, int j, int count)
{
    return i == j || j >= count ? -INFINITY : s;
}

/* Whether a tile has pairs that do not count: the same for all threads of a block. */
static __device__ __forceinline__ int needs_care(const struct pairs_work &w, int j0)
{
    int i0 = (int)blockIdx.x * OF_BLOCK;
    return j0 + TILE > w.count || (j0 < i0 + OF_BLOCK && i0 < j0 + TILE);
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* CHUNK rows j from `first` of the tile. */
static __device__ __forceinline__ void sum_chunk(float (&top)[MINE], float (&sum)[MINE],
                                                 const float (&q)[MINE][K], const float (*tile)[K],
                                                 int first, int i0, int j0, int count, int care)
{
    float s[MINE][CHUNK];
#pragma unroll
    for (int c = 0; c < CHUNK; c++) {
        float x[K];
        load_row(x, tile[first + c]);
#pragma unroll
        for (int r = 0; r < MINE; r++) {
            s[r][c] = score(q[r], x);
            if (care)
                s[r][c] = counted(s[r][c], i0 + r * THREADS, j0 + first + c, count);
        }
    }
#pragma unroll
    for (int r = 0; r < MINE; r++) {
        float most = top[r], more = 0;
#pragma unroll
        for (int c = 0; c < CHUNK; c++)
            most = fmaxf(most, s[r][c]);
#pragma unroll
        for (int c = 0; c < CHUNK; c++)
            more += power(s[r][c] - most);
        sum[r] = fmaf(sum[r], power(top[r] - most), more);
        top[r] = most;
    }
}

/* All rows j of the tile. */
static __device__ __forceinline__ void sum_tile(float (&top)[MINE], float (&sum)[MINE],
                                                const float (&q)[MINE][K], const float (*tile)[K], int i0,
                                                int j0, int count, int care)
{
#pragma unroll 1
    for (int c = 0; c < TILE; c += CHUNK)
        sum_chunk(top, sum, q, tile, c, i0, j0, count, care);
}

static __global__ void __launch_bounds__(THREADS) sum_pairs(const __grid_constant__ struct pairs_work w)
{
    __shared__ __align__(16) float tile[TILE][K];
    const int i0 = (int)(blockIdx.x * OF_BLOCK + threadIdx.x), split = (int)blockIdx.y;
    const int first = split * w.per_split, end = min(first + w.per_split, w.tiles);
    float q[MINE][K], top[MINE];
    double all[MINE];
    load_mine(q, w, i0);
#pragma unroll
    for (int r = 0; r < MINE; r++) {
        top[r] = -1e30f;
        all[r] = 0;
    }
    for (int t = first; t < end; t++) {
        const int j0 = t * TILE;
        float before[MINE], sum[MINE];
        __syncthreads();
        load_tile(tile, w, j0);
        __syncthreads();
#pragma unroll
        for (int r = 0; r < MINE; r++) {
            before[r] = top[r];
            sum[r] = 0;
        }
        if (needs_care(w, j0))
            sum_tile(top, sum, q, tile, i0, j0, w.count, 1);
        else
            sum_tile(top, sum, q, tile, i0, j0, w.count, 0);
#pragma unroll
        for (int r = 0; r < MINE; r++)
            all[r] = all[r] * (double)power(before[r] - top[r]) + (double)sum[r];
    }
#pragma unroll
    for (int r = 0; r < MINE; r++)
        if (i0 + r * THREADS < w.count) {
            int64_t at = (int64_t)split * w.count + i0 + r * THREADS;
            w.part_top[at] = top[r];
            w.part_sum[at] = all[r];
        }
}

/* ---- shares ---------------------------------------------------------------------------------- */

static __global__ void join_sums(const __grid_constant__ struct pairs_work w)
{
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= w.count)
        return;
    float top = -1e30f;
    double sum = 0;
    for (int s = 0; s < w.splits; s++)
        top = fmaxf(top, w.part_top[(int64_t)s * w.count + i]);
    for (int s = 0; s < w.splits; s++) {
        int64_t at = (int64_t)s * w.count + i;
        sum += w.part_sum[at] * exp2((double)w.part_top[at] - (double)top);
    }
    w.top[i] = top;
    w.share[i] = (float)((double)w.anchor[i] / sum);
    w.log_sum[i] = (float)(((double)top + log2(sum)) / log2_e);
}

/* ---- pull ------------------------------------------------------------------------------------ */

struct pull_tile {
    float rows[TILE][K];
    float2 side[TILE]; /* top and share */
};

/* All rows j of the tile. */
static __device__ __forceinline__ void pull_rows(float (&sum)[MINE][K], const float (&q)[MINE][K],
                                                 const float2 (&mine)[MINE], const struct pull_tile &tile,
                                                 int i0, int j0, int count, int care)
{
#pragma unroll 2
    for (int j = 0; j < TILE; j++) {
        float x[K];
        float2 other = tile.side[j];
        load_row(x, tile.rows[j]);
#pragma unroll
        for (int r = 0; r < MINE; r++) {
            float s = score(q[r], x);
            if (care)
                s = counted(s, i0 + r * THREADS, j0 + j, count);
            float weight = fmaf(power(s - mine[r].x), mine[r].y, power(s - other.x) * other.y);
#pragma unroll
            for (int k = 0; k < K; k++)
                sum[r][k] = fmaf(weight, x[k], sum[r][k]);
        }
    }
}

static __device__ __forceinline__ float2 side_of(const struct pairs_work &w, int i)
{
    return i < w.count ? make_float2(w.top[i], w.share[i]) : make_float2(0, 0);
}

static __global__ void __launch_bounds__(THREADS, 4) pull_pairs(const __grid_constant__ struct pairs_work w)
{
    __shared__ __align__(16) struct pull_tile tile;
    const int i0 = (int)(blockIdx.x * OF_BLOCK + threadIdx.x), split = (int)blockIdx.y;
    const int first = split * w.per_split, end = min(first + w.per_split, w.tiles);
    float q[MINE][K], sum[MINE][K] = {{0}};
    float2 mine[MINE];
    load_mine(q, w, i0);
#pragma unroll
    for (int r = 0; r < MINE; r++)
        mine[r] = side_of(w, i0 + r * THREADS);
    for (int t = first; t < end; t++) {
        const int j0 = t * TILE;
        __syncthreads();
        load_tile(tile.rows, w, j0);
        if (threadIdx.x < TILE)
            tile.side[threadIdx.x] = side_of(w, j0 + (int)threadIdx.x);
        __syncthreads();
        if (needs_care(w, j0))
            pull_rows(sum, q, mine, tile, i0, j0, w.count, 1);
        else
            pull_rows(sum, q, mine, tile, i0, j0, w.count, 0);
    }
#pragma unroll
    for (int r = 0; r < MINE; r++) {
        int i = i0 + r * THREADS;
        float4 *to = (float4 *)(w.part_pull + ((int64_t)split * w.count + i) * K);
#pragma unroll
        for (int k = 0; k < K && i < w.count; k += 4)
            to[k / 4] = make_float4(sum[r][k], sum[r][k + 1], sum[r][k + 2], sum[r][k + 3]);
    }
}

static __global__ void join_pull(const __grid_constant__ struct pairs_work w)
{
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, n = (int64_t)w.count * K;
    double sum = 0;
    if (i >= n)
        return;
    for (int s = 0; s < w.splits; s++)
        sum += (double)w.part_pull[s * n + i];
    w.pull[i] = (float)sum;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static void cut_pairs(struct pairs_work *w, const struct contrast *c)
{
    w->count = c->count;
    w->tiles = (c->count + TILE - 1) / TILE;
    w->per_split = (w->tiles + SPLITS - 1) / SPLITS;
    w->splits = (w->tiles + w->per_split - 1) / w->per_split;
    w->scale = (float)(log2_e / (double)c->tau);
    w->rows = c->rows, w->anchor = c->anchor, w->log_sum = c->log_sum, w->pull = c->pull;
}

/* Numbers of 64 bytes first: every part is aligned. */
static size_t place_pairs(struct pairs_work *w, void *scratch)
{
    size_t n = (size_t)w->count, all = n * (size_t)w->splits;
    w->part_pull = (float *)scratch;
    w->part_sum = (double *)(w->part_pull + all * K);
    w->part_top = (float *)(w->part_sum + all);
    w->top = w->part_top + all;
    w->share = w->top + n;
    return all * (K * sizeof(float) + sizeof(double) + sizeof(float)) + 2 * n * sizeof(float);
}

int cuda_contrast(struct cuda_context *c, const struct contrast *work)
{
    struct pairs_work w = {};
    if (work->count < 1)
        return cudaSuccess;
    cut_pairs(&w, work);
    int code = cuda_reserve(c, place_pairs(&w, NULL));
    if (code)
        return code;
    place_pairs(&w, c->scratch);
    dim3 grid((unsigned)((w.count + OF_BLOCK - 1) / OF_BLOCK), (unsigned)w.splits);
    unsigned numbers = (unsigned)(((int64_t)w.count * K + THREADS - 1) / THREADS);
    sum_pairs<<<grid, THREADS, 0, c->stream>>>(w);
    join_sums<<<(unsigned)((w.count + THREADS - 1) / THREADS), THREADS, 0, c->stream>>>(w);
    pull_pairs<<<grid, THREADS, 0, c->stream>>>(w);
    join_pull<<<numbers, THREADS, 0, c->stream>>>(w);
    return cudaGetLastError();
}
