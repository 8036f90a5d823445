/* heads.cu - heads.h on the GPU: tensor cores, everything read and written once.
 *
 * Rows are voxels, and a lane takes four channels in a row, 4q .. 4q+3, as in conv_one.cu: two words of bf16
 * pairs. So the numbers k of a product are those channels in the order 0 1 4 5 8 9 12 13 | 2 3 6 7 ..., and
 * so are the columns of two tiles of the wide head. The narrow heads share one more tile: lane q has both
 * channels of head q.
 *
 *     forward    (voxels x 16) (16 x [16 | 2 2 2 2])
 *     dx         (voxels x [16 | 2 2 2 2]) (.. x 16), zero where max(x, 0) is flat
 *     dweight    (16 x voxels) (voxels x [16 | 2 2 2 2]), 8 x 8 numbers turned within the registers of a warp
 *
 * Sums of a block are those of its warps in order; blocks are added in double, in order.
 */
#include "device/cuda/context.cuh"
#include "device/cuda/launch.cuh"
#include "device/cuda/mma.cuh"
#include "device/heads.h"

#include <math.h>

enum {
    WARPS = 8,
    THREADS = 32 * WARPS,
    EACH = 8, /* voxels of a lane, forward; a warp has eight times as many */
    BACK_EACH = 4,
    COLUMNS = HEADS_WIDE + HEADS_NARROW * HEADS_NARROWS,
    SUMS = (HEADS_IN + 1) * COLUMNS, /* of a block: rows of x's channels, then the bias */
    OWN = 18,                        /* of these in a lane */
    SLICES = 8                       /* of the blocks, when they are added */
};

struct heads_job {
    int voxels, tiles, narrows;
    float floor; /* 0, or -infinity: x is read as it is */
    const float *x;
    struct head wide, narrow[HEADS_NARROWS];
    uint2 *dx;
    float *partial; /* (blocks, SUMS) */
};

/* ---- numbers of a lane ----------------------------------------------------------------------- */

/* The channel that column n of tile t stands for. */
static __device__ __forceinline__ int dealt(int t, int n)
{
    return n / 2 * 4 + 2 * t + n % 2;
}

static __device__ __forceinline__ uint2 paired(const float4 &v)
{
    return make_uint2(bf16_pair(v.x, v.y), bf16_pair(v.z, v.w));
}

static __device__ __forceinline__ float4 raised(const float4 &v, float floor)
{
    return make_float4(larger(v.x, floor), larger(v.y, floor), larger(v.z, floor), larger(v.w, floor));
}

/* Four channels of voxel v of a tensor of 16; zeros behind the last. */
static __device__ __forceinline__ float4 four_at(const float *from, int v, int voxels, int q)
{
    return v < voxels ? __ldg((const float4 *)row_at(from, v, 64) + q) : make_float4(0, 0, 0, 0);
}

/* ---- forward --------------------------------------------------------------------------------- */

/* Rows 4q .. 4q+3 of a column of weights. */
static __device__ __forceinline__ uint2 column_of(const float *weight, int c, int channel, int q)
{
    const float *w = weight + 4 * q * c + channel;
    return make_uint2(bf16_pair(w[0], w[c]), bf16_pair(w[2 * c], w[3 * c]));
}

/* Two rows of voxels, v and v + 8: products, bias, stored. */
static __device__ __forceinline__ void put_two(const struct heads_job &j, const uint32_t (&a)[4],
                                               const uint2 (&w)[3], const float4 &bias, const float2 &narrow,
                                               float *to, int v, int q)
{
    float acc[3][4] = {};
#pragma unroll
    for (int t = 0; t < 3; t++)
        tile_multiply(acc[t], a, w[t].x, w[t].y);
#pragma unroll
    for (int r = 0; r < 4; r += 2, v += 8) {
        if (v >= j.voxels)
            continue;
        ((float4 *)row_at(j.wide.y, v, 64))[q] = make_float4(acc[0][r] + bias.x, acc[0][r + 1] + bias.y,
                                                             acc[1][r] + bias.z, acc[1][r + 1] + bias.w);
        if (q < j.narrows)
            *(float2 *)row_at(to, v, 8) = make_float2(acc[2][r] + narrow.x, acc[2][r + 1] + narrow.y);
    }
}

static __global__ void __launch_bounds__(THREADS, 2) forward_heads(const __grid_constant__ struct heads_job j)
{
    const int lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
    const struct head &column = j.narrow[g / 2], &own = j.narrow[q];
    uint2 w[3] = {};
#pragma unroll
    for (int t = 0; t < 2; t++)
        w[t] = column_of(j.wide.weight, HEADS_WIDE, dealt(t, g), q);
    if (g / 2 < j.narrows)
        w[2] = column_of(column.weight, HEADS_NARROW, g % 2, q);
    float4 bias = make_float4(j.wide.bias[4 * q], j.wide.bias[4 * q + 1], j.wide.bias[4 * q + 2],
                              j.wide.bias[4 * q + 3]);
    float2 narrow = q < j.narrows ? make_float2(own.bias[0], own.bias[1]) : make_float2(0, 0);
    float *to = own.y;
    for (int tile = blockIdx.x * WARPS + threadIdx.x / 32; tile < j.tiles; tile += gridDim.x * WARPS) {
        const int first = tile * 8 * EACH + g;
        float4 x[EACH];
#pragma unroll
        for (int i = 0; i < EACH; i++)
            x[i] = four_at(j.x, first + 8 * i, j.voxels, q);
#pragma unroll
        for (int i = 0; i < EACH; i += 2) {
            uint2 x0 = paired(raised(x[i], j.floor)), x8 = paired(raised(x[i + 1], j.floor));
            const uint32_t a[4] = {x0.x, x8.x, x0.y, x8.y};
            put_two(j, a, w, bias, narrow, to, first + 8 * i, q);
        }
    }
}

/* ---- backward -------------------------------------------------------------------------------- */

/* What a lane multiplies dy by: of tile t the wide head's numbers, and of the narrow ones'. */
struct back_weights {
    uint2 wide[2];
    uint32_t narrow[2];
};

static __device__ __forceinline__ struct back_weights back_weights_of(const struct heads_job &j, int g, int q)
{
    struct back_weights w;
#pragma unroll
    for (int t = 0; t < 2; t++) {
        const float *wide = j.wide.weight + dealt(t, g) * HEADS_WIDE + 4 * q;
        w.wide[t] = make_uint2(bf16_pair(wide[0], wide[1]), bf16_pair(wide[2], wide[3]));
        const float *narrow = j.narrow[q].weight + dealt(t, g) * HEADS_NARROW;
        w.narrow[t] = q < j.narrows ? bf16_pair(narrow[0], narrow[1]) : 0;
    }
    return w;
}

static __device__ __forceinline__ float open_at(float x, float floor, float v)
{
    return x > floor ? v : 0.0f;
}

/* dx of two rows of voxels, v and v + 8. */
static __device__ __forceinline__ void put_dx(const struct heads_job &j, const struct back_weights &w,
                                              const uint2 *wide, const uint32_t *narrow, const float4 *x,
                                              int v, int q)
{
    const uint32_t a[4] = {wide[0].x, wide[1].x, wide[0].y, wide[1].y}, b[4] = {narrow[0], narrow[1], 0, 0};
    float acc[2][4] = {};
#pragma unroll
    for (int t = 0; t < 2; t++) {
        tile_multiply(acc[t], a, w.wide[t].x, w.wide[t].y);
        tile_multiply(acc[t], b, w.narrow[t], 0);
    }
#pragma unroll
    for (int r = 0; r < 2; r++, v += 8)
        if (v < j.voxels)
            ((uint2 *)row_at(j.dx, v, 32))[q] = paired(make_float4(
                open_at(x[r].x, j.floor, acc[0][2 * r]), open_at(x[r].y, j.floor, acc[0][2 * r + 1]),
                open_at(x[r].z, j.floor, acc[1][2 * r]), open_at(x[r].w, j.floor, acc[1][2 * r + 1])));
}

/* Sixteen voxels run inside. own: three tiles of four numbers. */
static __device__ __forceinline__ void add_weights(float (&own)[OWN], const uint2 &x0, const uint2 &x8,
                                                   const uint2 *wide, const uint32_t *narrow)
{
    const uint32_t a[4] = {tile_turn(x0.x), tile_turn(x0.y), tile_turn(x8.x), tile_turn(x8.y)};
    tile_multiply(own, a, tile_turn(wide[0].x), tile_turn(wide[1].x));
    tile_multiply(own + 4, a, tile_turn(wide[0].y), tile_turn(wide[1].y));
    tile_multiply(own + 8, a, tile_turn(narrow[0]), tile_turn(narrow[1]));
}

static __device__ __forceinline__ void add_bias(float (&own)[OWN], const uint2 &wide, uint32_t narrow)
{
    own[12] += bf16_low(wide.x);
    own[13] += bf16_high(wide.x);
    own[14] += bf16_low(wide.y);
    own[15] += bf16_high(wide.y);
    own[16] += bf16_low(narrow);
    own[17] += bf16_high(narrow);
}

/* The block's sums, over its warps in order, by the first of them. */
static __device__ void put_sums(const struct heads_job &j, float (&own)[OWN], int g, int q)
{
    __shared__ float all[WARPS][OWN][32];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, row = dealt(0, g);
    for (int i = 12; i < OWN; i++)
        own[i] = over_rows(own[i]);
    for (int i = 0; i < OWN; i++)
        all[warp][i][lane] = own[i];
    __syncthreads();
    if (warp > 0)
        return;
    for (int i = 0; i < OWN; i++)
        for (int w = 1; w < WARPS; w++)
            own[i] += all[w][i][lane];
    float *to = j.partial + (int64_t)blockIdx.x * SUMS;
    for (int r = 0; r < 4; r += 2) {
        float *at = to + (row + r) * COLUMNS;
        *(float4 *)(at + 4 * q) = make_float4(own[r], own[r + 1], own[4 + r], own[5 + r]);
        *(float2 *)(at + HEADS_WIDE + 2 * q) = make_float2(own[8 + r], own[9 + r]);
    }
    to += HEADS_IN * COLUMNS;
    if (g == 0) {
        *(float4 *)(to + 4 * q) = make_float4(own[12], own[13], own[14], own[15]);
        *(float2 *)(to + HEADS_WIDE + 2 * q) = make_float2(own[16], own[17]);
    }
}

static __global__ void __launch_bounds__(THREADS, 2)
    backward_heads(const __grid_constant__ struct heads_job j)
{
    const int lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
    const struct back_weights w = back_weights_of(j, g, q);
    const float *narrow_dy = j.narrow[q].dy;
    float own[OWN] = {};
    for (int tile = blockIdx.x * WARPS + threadIdx.x / 32; tile < j.tiles; tile += gridDim.x * WARPS) {
        const int first = tile * 8 * BACK_EACH + g;
        float4 x[BACK_EACH], y[BACK_EACH];
        float2 n[BACK_EACH];
        uint2 wide[BACK_EACH];
        uint32_t narrow[BACK_EACH];
#pragma unroll
        for (int i = 0; i < BACK_EACH; i++) {
            const int v = first + 8 * i;
            x[i] = four_at(j.x, v, j.voxels, q);
            y[i] = four_at(j.wide.dy, v, j.voxels, q);
            n[i] = q < j.narrows && v < j.voxels ? __ldg((const float2 *)row_at(narrow_dy, v, 8))
                                                 : make_float2(0, 0);
        }
#pragma unroll
        for (int i = 0; i < BACK_EACH; i++) {
            wide[i] = paired(y[i]);
            narrow[i] = bf16_pair(n[i].x, n[i].y);
            add_bias(own, wide[i], narrow[i]);
        }
#pragma unroll
        for (int i = 0; i < BACK_EACH; i += 2) {
            put_dx(j, w, wide + i, narrow + i, x + i, first + 8 * i, q);
            add_weights(own, paired(raised(x[i], j.floor)), paired(raised(x[i + 1], j.floor)), wide + i,
                        narrow + i);
        }
    }
    put_sums(j, own, g, q);
}

static __device__ __forceinline__ void put_gradient(const struct head &h, int row, int channel, double sum)
{
    float *to = row < HEADS_IN ? h.dweight + row * h.c + channel : h.dbias + channel;
    *to = (float)(h.add ? (double)*to + sum : sum);
}

/* 32 sums a block, each in SLICES of the blocks. */
static __global__ void __launch_bounds__(32 * SLICES)
    join_heads(const __grid_constant__ struct heads_job j, int blocks)
{
    __shared__ double all[SLICES][32];
    const int at = blockIdx.x * 32 + threadIdx.x % 32, slice = threadIdx.x / 32;
    const int row = at / COLUMNS, column = at % COLUMNS, narrow = (column - HEADS_WIDE) / HEADS_NARROW;
    double sum = 0;
    for (int b = slice; b < blocks && at < SUMS; b += SLICES)
        sum += (double)j.partial[(int64_t)b * SUMS + at];
    all[slice][threadIdx.x % 32] = sum;
    __syncthreads();
    if (slice > 0 || at >= SUMS)
        return;
    for (int s = 1; s < SLICES; s++)
        sum += all[s][threadIdx.x];
    if (column < HEADS_WIDE)
        put_gradient(j.wide, row, column, sum);
    else if (narrow < j.narrows)
        put_gradient(j.narrow[narrow], row, column % HEADS_NARROW, sum);
}

/* ---- the whole ------------------------------------------------------------------------------- */

static struct heads_job job_of(const struct heads *h, int each)
{
    struct heads_job j = {};
    j.voxels = (int)h->voxels;
    j.tiles = (j.voxels + 8 * each - 1) / (8 * each);
    j.floor = h->relu ? 0.0f : -INFINITY;
    j.x = h->x;
    j.dx = (uint2 *)h->dx;
    for (int i = 0; i < h->n; i++) {
        if (h->head[i].c == HEADS_WIDE)
            j.wide = h->head[i];
        else
            j.narrow[j.narrows++] = h->head[i];
    }
    return j;
}

/* At most two for every multiprocessor of an H200, whatever runs this: sums follow from shapes alone. */
static int blocks_of(const struct heads_job &j)
{
    enum { MOST = 264 };
    int blocks = (j.tiles + WARPS - 1) / WARPS;
    return blocks < MOST ? blocks : MOST;
}

int cuda_heads_forward(struct cuda_context *c, const struct heads *h)
{
    if (!heads_are_usual(h))
        return cudaErrorInvalidValue;
    struct heads_job j = job_of(h, EACH);
    return cuda_start(forward_heads, dim3(blocks_of(j)), THREADS, 0, c->stream, j);
}

int cuda_heads_backward(struct cuda_context *c, const struct heads *h)
{
    if (!heads_are_usual(h))
        return cudaErrorInvalidValue;
    struct heads_job j = job_of(h, BACK_EACH);
    int blocks = blocks_of(j), code = cuda_reserve(c, (size_t)blocks * SUMS * sizeof(float));
    if (code)
        return code;
    j.partial = (float *)c->scratch;
    code = cuda_start(backward_heads, dim3(blocks), THREADS, 0, c->stream, j);
    return code ? code : cuda_start(join_heads, dim3((SUMS + 31) / 32), 32 * SLICES, 0, c->stream, j, blocks);
}
