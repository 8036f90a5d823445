/* conv_step_weight.cu - the weight gradient of CONV_1, CONV_DOWN and CONV_UP, on tensor cores.
 *
 *     dW(tap, f, c) = sum over voxels v of the coarse side of  fine(v's voxel for the tap, f) coarse(v, c)
 *
 * is a product whose inner index is the voxel, as in conv_three_weight.cu. A block takes 16 channels of the
 * fine side and up to 64 of the coarse one, and walks over its tiles of rows: both operands go through the
 * reading formula into shared memory and come turned out of it. Eight warps: one for each tap, or for CONV_1
 * one for each eighth of the rows of a tile, added up in the end.
 */
#include "device/cuda/conv_int.cuh"

enum { WARPS = 8, COLUMNS = 4 }; /* groups of 16 channels of the coarse side in a block */

struct step_weight_job {
    struct volume coarse_v;
    int edge, taps;
    struct reader fine, coarse;
    int rows;              /* of a tile */
    int tiles;             /* of an item */
    int row_groups, col_groups;
    float *partial;        /* (parts, taps, 16 row_groups, 16 col_groups) */
};

/* Rows of a tile, for `taps` voxels of the fine side, or for the coarse side itself. */
struct row_places {
    enum { ONE = 4, TWO = 2 };
    const struct step_weight_job &j;
    int item, first; /* row in its item */
    int taps;        /* 0: the coarse side */
};

__host__ __device__ inline int row_half(int rows)
{
    return rows + 4; /* 4 more than a multiple of 8: see fill.cuh */
}

__device__ __forceinline__ int fill_count(const struct row_places &f)
{
    return f.taps ? f.taps * f.j.rows : f.j.rows;
}

__device__ __forceinline__ struct fill_place fill_locate(const struct row_places &f, int i)
{
    const struct volume &v = f.j.coarse_v;
    struct fill_place p = {-1, -1};
    int tap = i / f.j.rows, row = i % f.j.rows, at = f.first + row;
    if (i >= fill_count(f))
        return p;
    p.to = tap * 2 * row_half(f.j.rows) + row;
    if (at >= v.d * v.h * v.w)
        return p;
    p.voxel = f.taps ? fine_voxel(v, f.j.edge, f.item, at / (v.w * v.h), at / v.w % v.h, at % v.w, tap)
                     : (int64_t)f.item * v.d * v.h * v.w + at;
    return p;
}

__device__ __forceinline__ void write_part(const struct step_weight_job &j, const float acc[2 * COLUMNS][4],
                                           int part, int tap, int row_group, int col_group)
{
    int lane = threadIdx.x % 32, rows = 16 * j.row_groups, cols = 16 * j.col_groups;
    float *to = j.partial + ((int64_t)part * j.taps + tap) * rows * cols;
#pragma unroll
    for (int t = 0; t < 2 * COLUMNS; t++) {
        int row = 16 * row_group + lane / 4, col = 16 * col_group + 8 * t + lane % 4 * 2;
        if (col >= cols)
            continue;
        *(float2 *)(to + (int64_t)row * cols + col) = make_float2(acc[t][0], acc[t][1]);
        *(float2 *)(to + (int64_t)(row + 8) * cols + col) = make_float2(acc[t][2], acc[t][3]);
    }
}

/* Sums over the warps, one after another; warp 0 gets them. */
__device__ __forceinline__ void add_warps(float acc[2 * COLUMNS][4], float *memory)
{
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int w = WARPS - 1; w >= 0; w--) {
        __syncthreads();
        if (warp != w)
            continue;
#pragma unroll
        for (int i = 0; i < 8 * COLUMNS; i++) {
            float *sum = memory + 32 * i + lane;
            if (w < WARPS - 1)
                acc[i / 4][i % 4] += *sum;
            *sum = acc[i / 4][i % 4];
        }
    }
}

__global__ void __launch_bounds__(32 * WARPS, 2)
    step_weight_multiply(const __grid_constant__ struct step_weight_job j)
{
    SHARED_MEMORY(memory);
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, half = row_half(j.rows);
    int row_group = blockIdx.y % j.row_groups, col_group = blockIdx.y / j.row_groups * COLUMNS;
    int columns = j.col_groups - col_group < COLUMNS ? j.col_groups - col_group : COLUMNS;
    uint4 *fine = (uint4 *)memory, *coarse = fine + j.taps * 2 * half;
    int tap = j.taps > 1 ? warp : 0, steps = j.taps > 1 ? j.rows / 16 : j.rows / (16 * WARPS);
    int skip = j.taps > 1 ? 0 : 16 * steps * warp;
    /* tiles as in conv_three_weight.cu */
    uint32_t a_at = shared_address(fine + tap * 2 * half + skip + lane % 8 + lane / 16 * 8 +
                                   lane / 8 % 2 * half);
    uint32_t b_at = shared_address(coarse + skip + lane % 16 + lane / 16 * half);
    float acc[2 * COLUMNS][4] = {};
    for (int tile = blockIdx.x; tile < j.tiles * j.coarse_v.n; tile += gridDim.x) {
        struct row_places to_fine = {j, tile / j.tiles, tile % j.tiles * j.rows, j.taps}, rows = to_fine;
        rows.taps = 0;
        __syncthreads();
        fill(fine, half, to_fine, j.fine, rows.item, 16 * row_group, threadIdx.x, 32 * WARPS);
        for (int k = 0; k < columns; k++)
            fill(coarse + k * 2 * half, half, rows, j.coarse, rows.item, 16 * (col_group + k), threadIdx.x,
                 32 * WARPS);
        __syncthreads();
        for (int s = 0; s < steps; s++) {
            uint32_t a[4], b[4];
            tile_load_turned(a, a_at + 256 * s);
#pragma unroll
            for (int k = 0; k < COLUMNS; k++) {
                if (k >= columns)
                    break;
                tile_load_turned(b, b_at + 256 * s + 32 * k * half);
                tile_multiply(acc[2 * k], a, b[0], b[1]);
                tile_multiply(acc[2 * k + 1], a, b[2], b[3]);
            }
        }
    }
    if (j.taps == 1)
        add_warps(acc, (float *)memory);
    if (j.taps > 1 || warp == 0)
        write_part(j, acc, blockIdx.x, tap, row_group, col_group);
}

struct step_weight_cut {
    int rows, tiles, work, blocks;
};

static struct step_weight_cut cut_weight(const struct conv *v, int n)
{
    struct step_weight_cut k;
    int columns = divide_up(v->coarse_c, 16);
    k.rows = v->taps > 1 ? 64 : 16 * WARPS * (columns > 2 ? 1 : 4 / columns);
    k.tiles = (int)((volume_item(v->coarse) + k.rows - 1) / k.rows);
    k.work = divide_up(v->fine_c, 16) * divide_up(divide_up(v->coarse_c, 16), COLUMNS);
    k.blocks = 2 * CONV_BLOCKS / k.work > 1 ? 2 * CONV_BLOCKS / k.work : 1;
    k.blocks = k.blocks < k.tiles * n ? k.blocks : k.tiles * n;
    return k;
}

int step_weight(struct weight_pass *p)
{
    struct conv *v = p->v;
    struct step_weight_cut k = cut_weight(v, p->n);
    struct step_weight_job j = {};
    int up = v->s.kind == CONV_UP;
    j.coarse_v = v->coarse;
    j.coarse_v.n = p->n;
    j.edge = v->taps > 1 ? 2 : 1;
    j.taps = v->taps;
    j.fine = up ? p->dy : p->x;
    j.coarse = up ? p->x : p->dy;
    j.rows = k.rows;
    j.tiles = k.tiles;
    j.row_groups = divide_up(v->fine_c, 16);
    j.col_groups = divide_up(v->coarse_c, 16);
    j.partial = p->partial;
    p->parts = k.blocks;
    p->rows = 16 * j.row_groups;
    p->cols = 16 * j.col_groups;
    int columns = j.col_groups < COLUMNS ? j.col_groups : COLUMNS;
    size_t shared = 16 * (size_t)(2 * row_half(j.rows)) * (size_t)(j.taps + columns);
    return cuda_start(step_weight_multiply, dim3(k.blocks, k.work), 32 * WARPS, shared, v->context->stream,
                      j);
}

size_t step_bytes(const struct conv *v)
{
    struct step_weight_cut k = cut_weight(v, v->coarse.n);
    size_t numbers = (size_t)v->taps * 256 * divide_up(v->fine_c, 16) * divide_up(v->coarse_c, 16);
    return (size_t)k.blocks * numbers * sizeof(float);
}
