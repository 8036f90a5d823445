/* contrast.cu - contrast.h on the GPU: all pairs of N rows, none of them stored, on tensor cores but with the
 * precision of float32.
 *
 *     rows --> deal --> [ sums: rows x splits ] --> shares --> [ pull: rows x splits ] --> added up
 *
 * Scores are powers of two, b(i,j) = row(i).row(j) log2(e) / tau. A warp has 32 rows i and walks over the
 * rows j of its split, eight at a time: a tile of 32 x 8 scores is twelve products, and two words of each
 * lane. Tensor cores multiply TF32, 11 bits; so every number is taken as high + low, and of the four products
 * of two such sums three are made (low x low is below the rounding of float32).
 *
 *     deal    the rows as the lanes want them, high and low apart, twice: as columns of the scores' product
 *             and as rows of the pull's
 *     sums    m(i) = the largest score so far, z(i) = sum of 2^(b - m), made smaller whenever m grows: four
 *             tiles at a time, 64 rows in float, then and over splits in double. No bound on the scores is
 *             needed: long rows and tiny temperatures are all right
 *     shares  the splits' m and z of a row made one, ln Z and anchor / z from it
 *     pull    sum over j of [ 2^(b - m(i)) share(i) + 2^(b - m(j)) share(j) ] row(j): weights come out of the
 *             first product where the second one wants them, if its rows j are 0 2 4 6 1 3 5 7. Tensor cores
 *             cut sums off instead of rounding them: 64 rows are summed by them, and those sums in float
 *
 * A pair that does not count (a row with itself, rows beyond the last) has the score -infinity: 2^that is 0,
 * and m starts at a finite number, so that nothing undefined comes of it. What is not a number goes through
 * to the results: larger() takes the other, but the difference from it stays undefined.
 *
 * Every order of summation follows from N.
 */
#include "device/cuda/context.cuh"
#include "device/cuda/instructions.cuh"

enum {
    K = CONTRAST_DIMS,
    COLUMNS = 8, /* rows j of a tile */
    RUN = 8,     /* tiles between two looks at the whole: 64 rows */
    CHUNK = 4,   /* tiles between two looks at the largest score */
    WARPS = 8,
    THREADS = 32 * WARPS,
    HALVES = 2,        /* products of 16 rows that make the 32 of a warp */
    MINE = 2 * HALVES, /* rows that a lane has to do with: its place, and 8, 16, 24 further */
    OF_WARP = 16 * HALVES,
    OF_BLOCK = OF_WARP * WARPS,
    MOST_BLOCKS = 264, /* about: two for each of an H200's multiprocessors, all at once */
    SPLITS = 28        /* most */
};
static const double log2_e = 1.4426950408889634;

/* Words of a lane for a tile: columns of the scores (high, low), rows of the pull (high, low). */
enum { WORDS = 4 };

struct pairs_work {
    int count, tiles, per_split, splits; /* tiles of COLUMNS; per_split is a multiple of RUN */
    float scale;                         /* log2(e) / tau */
    const float *rows, *anchor;
    float *log_sum, *pull; /* out */
    float4 *dealt;         /* (tiles, WORDS, 32) */
    float2 *side;          /* (tiles * COLUMNS): m and share */
    float *part_top;       /* (splits, count) */
    double *part_sum;      /* (splits, count) */
    float *part_pull;      /* (splits, count, K) */
};

/* ---- numbers --------------------------------------------------------------------------------- */

/* The number of 11 bits nearest to x; x less that is exact. */
static __device__ __forceinline__ float high_part(float x)
{
    return __uint_as_float(tf32_rounded(x));
}

static __device__ __forceinline__ void multiply(float (&d)[4], const float (&a)[4], float b0, float b1)
{
    const uint32_t bits[4] = {__float_as_uint(a[0]), __float_as_uint(a[1]), __float_as_uint(a[2]),
                              __float_as_uint(a[3])};
    tf32_multiply(d, bits, __float_as_uint(b0), __float_as_uint(b1));
}

/* ---- deal ------------------------------------------------------------------------------------ */

static __device__ __forceinline__ float row_number(const struct pairs_work &w, int j, int k)
{
    return j < w.count ? w.rows[(int64_t)j * K + k] : 0.0f;
}

static __device__ __forceinline__ void deal_word(float4 *to, float a, float b, float c, float d)
{
    float4 high = make_float4(high_part(a), high_part(b), high_part(c), high_part(d));
    to[0] = high;
    to[32] = make_float4(a - high.x, b - high.y, c - high.z, d - high.w);
}

/* A warp a tile. */
static __global__ void __launch_bounds__(THREADS) deal(const __grid_constant__ struct pairs_work w)
{
    const int tile = (int)(blockIdx.x * WARPS + threadIdx.x / 32), lane = (int)threadIdx.x % 32;
    const int g = lane / 4, q = lane % 4, j = tile * COLUMNS, even = j + 2 * q;
    if (tile >= w.tiles)
        return;
    float4 *to = w.dealt + (int64_t)tile * WORDS * 32 + lane;
    deal_word(to, row_number(w, j + g, q), row_number(w, j + g, q + 4), row_number(w, j + g, q + 8),
              row_number(w, j + g, q + 12));
    deal_word(to + 64, row_number(w, even, g), row_number(w, even + 1, g), row_number(w, even, g + 8),
              row_number(w, even + 1, g + 8));
}

/* ---- scores ---------------------------------------------------------------------------------- */

/* The rows of a warp, times scale, high and low: (half, step of 8 numbers, a). */
struct mine {
    float high[HALVES][2][4], low[HALVES][2][4];
};

static __device__ __forceinline__ void load_mine(struct mine &m, const struct pairs_work &w, int i0, int lane)
{
#pragma unroll
    for (int at = 0; at < HALVES * 8; at++) {
        const int half = at / 8, step = at / 4 % 2, e = at % 4;
        int i = i0 + 16 * half + lane / 4 + e % 2 * 8, k = 8 * step + lane % 4 + e / 2 * 4;
        float x = row_number(w, i, k) * w.scale;
        m.high[half][step][e] = high_part(x);
        m.low[half][step][e] = x - m.high[half][step][e];
    }
}

/* 32 x 8 scores of which a lane gets, for each half, rows g and g + 8 in columns 2q and 2q + 1. */
static __device__ __forceinline__ void score_tile(float (&s)[HALVES][4], const struct mine &m, float4 high,
                                                  float4 low)
{
#pragma unroll
    for (int half = 0; half < HALVES; half++) {
        s[half][0] = s[half][1] = s[half][2] = s[half][3] = 0;
        multiply(s[half], m.low[half][0], high.x, high.y);
        multiply(s[half], m.low[half][1], high.z, high.w);
        multiply(s[half], m.high[half][0], low.x, low.y);
        multiply(s[half], m.high[half][1], low.z, low.w);
        multiply(s[half], m.high[half][0], high.x, high.y);
        multiply(s[half], m.high[half][1], high.z, high.w);
    }
}

/* Whether a run of tiles has pairs that do not count: the same for all lanes of a warp. */
static __device__ __forceinline__ int needs_care(const struct pairs_work &w, int i0, int j0)
{
    return j0 + RUN * COLUMNS > w.count || (j0 < i0 + OF_WARP && i0 < j0 + RUN * COLUMNS);
}

static __device__ __forceinline__ void count_out(float (&s)[HALVES][4], const struct pairs_work &w, int i0,
                                                 int j0, int lane)
{
#pragma unroll
    for (int half = 0; half < HALVES; half++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            int i = i0 + 16 * half + lane / 4 + e / 2 * 8, j = j0 + lane % 4 * 2 + e % 2;
            s[half][e] = i == j || j >= w.count ? -INFINITY : s[half][e];
        }
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* CHUNK tiles: the lane's share of every row's sum. */
template <int CARE>
static __device__ __forceinline__ void sum_chunk(float (&top)[MINE], float (&sum)[MINE],
                                                 const struct pairs_work &w, const struct mine &m, int i0,
                                                 int tile, int lane)
{
    float s[CHUNK][HALVES][4];
#pragma unroll
    for (int c = 0; c < CHUNK; c++) {
        const float4 *from = w.dealt + (int64_t)(tile + c) * WORDS * 32 + lane;
        score_tile(s[c], m, __ldg(from), __ldg(from + 32));
        if (CARE)
            count_out(s[c], w, i0, (tile + c) * COLUMNS, lane);
    }
#pragma unroll
    for (int r = 0; r < MINE; r++) {
        float most = top[r], more = 0;
#pragma unroll
        for (int c = 0; c < 2 * CHUNK; c++)
            most = fmaxf(most, s[c / 2][r / 2][r % 2 * 2 + c % 2]);
#pragma unroll
        for (int c = 0; c < 2 * CHUNK; c++)
            more += power_of_two(s[c / 2][r / 2][r % 2 * 2 + c % 2] - most);
        sum[r] = fmaf(sum[r], power_of_two(top[r] - most), more);
        top[r] = most;
    }
}

template <int CARE>
static __device__ __forceinline__ void sum_run(float (&top)[MINE], double (&all)[MINE],
                                               const struct pairs_work &w, const struct mine &m, int i0,
                                               int tile, int lane)
{
    float before[MINE], sum[MINE];
#pragma unroll
    for (int r = 0; r < MINE; r++) {
        before[r] = top[r];
        sum[r] = 0;
    }
#pragma unroll 1
    for (int c = 0; c < RUN; c += CHUNK)
        sum_chunk<CARE>(top, sum, w, m, i0, tile + c, lane);
#pragma unroll
    for (int r = 0; r < MINE; r++)
        all[r] = all[r] * (double)power_of_two(before[r] - top[r]) + (double)sum[r];
}

/* Four lanes have a part of every row. */
static __device__ __forceinline__ void keep_sums(const struct pairs_work &w, int i0, int lane, float top,
                                                 double sum, int r)
{
    const int i = i0 + 16 * (r / 2) + lane / 4 + r % 2 * 8;
    float most = top;
    for (int apart = 1; apart < 4; apart *= 2)
        most = fmaxf(most, __shfl_xor_sync(0xFFFFFFFFu, most, apart));
    sum *= (double)power_of_two(top - most);
    for (int apart = 1; apart < 4; apart *= 2)
        sum += __shfl_xor_sync(0xFFFFFFFFu, sum, apart);
    if (lane % 4 != 0 || i >= w.count)
        return;
    w.part_top[(int64_t)blockIdx.y * w.count + i] = most;
    w.part_sum[(int64_t)blockIdx.y * w.count + i] = sum;
}

static __global__ void __launch_bounds__(THREADS, 2) sum_pairs(const __grid_constant__ struct pairs_work w)
{
    const int lane = (int)threadIdx.x % 32, i0 = (int)(blockIdx.x * OF_BLOCK + threadIdx.x / 32 * OF_WARP);
    const int first = (int)blockIdx.y * w.per_split, end = min(first + w.per_split, w.tiles);
    struct mine m;
    float top[MINE];
    double all[MINE];
    load_mine(m, w, i0, lane);
#pragma unroll
    for (int r = 0; r < MINE; r++) {
        top[r] = -1e30f;
        all[r] = 0;
    }
    for (int t = first; t < end; t += RUN) {
        if (needs_care(w, i0, t * COLUMNS))
            sum_run<1>(top, all, w, m, i0, t, lane);
        else
            sum_run<0>(top, all, w, m, i0, t, lane);
    }
#pragma unroll
    for (int r = 0; r < MINE; r++)
        keep_sums(w, i0, lane, top[r], all[r], r);
}

/* ---- shares ---------------------------------------------------------------------------------- */

static __global__ void join_sums(const __grid_constant__ struct pairs_work w)
{
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= w.tiles * COLUMNS)
        return;
    if (i >= w.count) {
        w.side[i] = make_float2(0, 0);
        return;
    }
    float top = -1e30f;
    double sum = 0;
    for (int s = 0; s < w.splits; s++)
        top = fmaxf(top, w.part_top[(int64_t)s * w.count + i]);
    for (int s = 0; s < w.splits; s++) {
        int64_t at = (int64_t)s * w.count + i;
        sum += w.part_sum[at] * exp2((double)w.part_top[at] - (double)top);
    }
    w.side[i] = make_float2(top, (float)((double)w.anchor[i] / sum));
    w.log_sum[i] = (float)(((double)top + log2(sum)) / log2_e);
}

/* ---- pull ------------------------------------------------------------------------------------ */

/* The weights of 16 x 8 pairs, as the left side of the next product: high and low. */
static __device__ __forceinline__ void weigh(float (&high)[4], float (&low)[4], const float (&s)[4],
                                             float2 row, float2 eighth, float4 columns)
{
#pragma unroll
    for (int e = 0; e < 4; e++) {
        float2 mine = e / 2 ? eighth : row;
        float2 other = e % 2 ? make_float2(columns.z, columns.w) : make_float2(columns.x, columns.y);
        float weight = fmaf(power_of_two(s[e] - mine.x), mine.y, power_of_two(s[e] - other.x) * other.y);
        const int to = e % 2 * 2 + e / 2; /* D's (row, column) is A's (row, column / 2 + column % 2 * 4) */
        high[to] = high_part(weight);
        low[to] = weight - high[to];
    }
}

/* One tile: sum (half, numbers 0 .. 7 and 8 .. 15, D) += weights x rows. */
template <int CARE>
static __device__ __forceinline__ void pull_tile(float (&sum)[HALVES][2][4], const struct pairs_work &w,
                                                 const struct mine &m, const float2 (&mine)[MINE], int i0,
                                                 int tile, int lane)
{
    const float4 *from = w.dealt + (int64_t)tile * WORDS * 32 + lane;
    float4 rows_high = __ldg(from + 64), rows_low = __ldg(from + 96);
    float4 columns = __ldg((const float4 *)(w.side + tile * COLUMNS + lane % 4 * 2));
    float s[HALVES][4];
    score_tile(s, m, __ldg(from), __ldg(from + 32));
    if (CARE)
        count_out(s, w, i0, tile * COLUMNS, lane);
#pragma unroll
    for (int half = 0; half < HALVES; half++) {
        float high[4], low[4];
        weigh(high, low, s[half], mine[2 * half], mine[2 * half + 1], columns);
        multiply(sum[half][0], low, rows_high.x, rows_high.y);
        multiply(sum[half][1], low, rows_high.z, rows_high.w);
        multiply(sum[half][0], high, rows_low.x, rows_low.y);
        multiply(sum[half][1], high, rows_low.z, rows_low.w);
        multiply(sum[half][0], high, rows_high.x, rows_high.y);
        multiply(sum[half][1], high, rows_high.z, rows_high.w);
    }
}

template <int CARE>
static __device__ __forceinline__ void pull_run(float (&all)[HALVES][2][4], const struct pairs_work &w,
                                                const struct mine &m, const float2 (&mine)[MINE], int i0,
                                                int tile, int lane)
{
    float sum[HALVES][2][4] = {};
#pragma unroll 2
    for (int t = 0; t < RUN; t++)
        pull_tile<CARE>(sum, w, m, mine, i0, tile + t, lane);
#pragma unroll
    for (int at = 0; at < HALVES * 8; at++)
        all[at / 8][at / 4 % 2][at % 4] += sum[at / 8][at / 4 % 2][at % 4];
}

static __global__ void __launch_bounds__(THREADS, 2) pull_pairs(const __grid_constant__ struct pairs_work w)
{
    const int lane = (int)threadIdx.x % 32, i0 = (int)(blockIdx.x * OF_BLOCK + threadIdx.x / 32 * OF_WARP);
    const int first = (int)blockIdx.y * w.per_split, end = min(first + w.per_split, w.tiles);
    struct mine m;
    float2 mine[MINE];
    float all[HALVES][2][4] = {};
    load_mine(m, w, i0, lane);
#pragma unroll
    for (int r = 0; r < MINE; r++) {
        int i = i0 + 16 * (r / 2) + lane / 4 + r % 2 * 8;
        mine[r] = i < w.count ? w.side[i] : make_float2(0, 0);
    }
    for (int t = first; t < end; t += RUN) {
        if (needs_care(w, i0, t * COLUMNS))
            pull_run<1>(all, w, m, mine, i0, t, lane);
        else
            pull_run<0>(all, w, m, mine, i0, t, lane);
    }
#pragma unroll
    for (int r = 0; r < MINE; r++) {
        int i = i0 + 16 * (r / 2) + lane / 4 + r % 2 * 8;
        float2 *to = (float2 *)(w.part_pull + ((int64_t)blockIdx.y * w.count + i) * K);
        for (int k = 0; k < 2 && i < w.count; k++)
            to[4 * k + lane % 4] = make_float2(all[r / 2][k][r % 2 * 2], all[r / 2][k][r % 2 * 2 + 1]);
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

static int divide_up(int a, int b)
{
    return (a + b - 1) / b;
}

static void cut_pairs(struct pairs_work *w, const struct contrast *c)
{
    int runs = divide_up(c->count, RUN * COLUMNS), splits = MOST_BLOCKS / divide_up(c->count, OF_BLOCK);
    splits = splits < 1 ? 1 : splits < SPLITS ? splits : SPLITS;
    w->count = c->count;
    w->tiles = runs * RUN;
    w->per_split = divide_up(runs, splits) * RUN;
    w->splits = divide_up(w->tiles, w->per_split);
    w->scale = (float)(log2_e / (double)c->tau);
    w->rows = c->rows, w->anchor = c->anchor, w->log_sum = c->log_sum, w->pull = c->pull;
}

/* Numbers of 64 bytes first: every part is aligned. */
static size_t place_pairs(struct pairs_work *w, void *scratch)
{
    size_t n = (size_t)w->count, all = n * (size_t)w->splits, tiles = (size_t)w->tiles;
    w->dealt = (float4 *)scratch;
    w->part_pull = (float *)(w->dealt + tiles * WORDS * 32);
    w->side = (float2 *)(w->part_pull + all * K);
    w->part_sum = (double *)(w->side + tiles * COLUMNS);
    w->part_top = (float *)(w->part_sum + all);
    return tiles * (WORDS * 32 * sizeof(float4) + COLUMNS * sizeof(float2)) +
           all * (K * sizeof(float) + sizeof(double) + sizeof(float));
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
    dim3 grid((unsigned)divide_up(w.count, OF_BLOCK), (unsigned)w.splits);
    unsigned numbers = (unsigned)(((int64_t)w.count * K + THREADS - 1) / THREADS);
    deal<<<(unsigned)divide_up(w.tiles, WARPS), THREADS, 0, c->stream>>>(w);
    sum_pairs<<<grid, THREADS, 0, c->stream>>>(w);
    join_sums<<<(unsigned)divide_up(w.tiles * COLUMNS, THREADS), THREADS, 0, c->stream>>>(w);
    pull_pairs<<<grid, THREADS, 0, c->stream>>>(w);
    join_pull<<<numbers, THREADS, 0, c->stream>>>(w);
    return cudaGetLastError();
}
