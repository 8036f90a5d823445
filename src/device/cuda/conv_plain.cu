/* conv_plain.cu - every convolution in float32, all directions, in one way: small tiles of a product in
 * shared memory. Right for all shapes; speed is secondary.
 *
 *     pass     to(row, col)         = sum over (tap, k) of  from(row's voxel for the tap, k) W(tap, k, col)
 *     weight   part(tap, row, col)  = sum over voxels v of  fine(v's voxel for the tap, row) coarse(v, col)
 *
 * CONV_3 counts as a step (conv_int.cuh) whose fine side has the same size: the voxel for a tap is a
 * neighbour or, outside, nothing. A pass from the coarse side to the fine one runs tap by tap.
 *
 * A thread makes 4 x 4 numbers. Tiles are as narrow as the channels: a pass has the more rows then, and of
 * the weight gradient's threads several slices share the voxels.
 *
 * Sixteen products at a time are summed on their own before they are added: less rounding.
 */
#include "device/cuda/conv_int.cuh"

enum { INNER = 16, THREADS = 256, PAD = 4 };

/* How rows, that is voxels, find their neighbours. */
struct plain_grid {
    struct volume v;  /* of the rows */
    struct divisor by_w, by_h, by_d;
    int edge;         /* 3: neighbours, 2: the fine side is twice as large, 1: the same voxel */
    int mirrored;     /* 3: the neighbour on the other side */
};

/* Voxel `row` of the grid, and the one of the other side that a tap leads to, or -1. */
__device__ __forceinline__ int plain_voxel(const struct plain_grid &g, int row, int tap, int *item)
{
    int line = divide(row, g.by_w), plane = divide(line, g.by_h), sign = g.mirrored ? -1 : 1;
    struct corner c = {divide(plane, g.by_d), 0, line - plane * g.v.h, row - line * g.v.w};
    c.z = plane - c.item * g.v.d;
    *item = c.item;
    if (g.edge == 1)
        return row;
    if (g.edge == 2) {
        struct volume twice = {g.v.n, 2 * g.v.d, 2 * g.v.h, 2 * g.v.w};
        struct corner fine = {c.item, 2 * c.z + tap / 4, 2 * c.y + tap / 2 % 2, 2 * c.x + tap % 2};
        return voxel_at(twice, fine);
    }
    c.x += sign * (tap % 3 - 1);
    c.y += sign * (tap / 3 % 3 - 1);
    c.z += sign * (tap / 9 - 1);
    int inside = (unsigned)c.x < (unsigned)g.v.w && (unsigned)c.y < (unsigned)g.v.h &&
                 (unsigned)c.z < (unsigned)g.v.d;
    return inside ? voxel_at(g.v, c) : -1;
}

/* The grid of rows: for steps the coarse side. */
static struct plain_grid plain_grid_of(const struct conv *v, int n, int mirrored)
{
    struct plain_grid g = {};
    g.v = v->coarse;
    g.v.n = n;
    g.by_w = divisor_of(g.v.w);
    g.by_h = divisor_of(g.v.h);
    g.by_d = divisor_of(g.v.d);
    g.edge = v->s.kind == CONV_3 ? 3 : v->s.kind == CONV_1 ? 1 : 2;
    g.mirrored = mirrored;
    return g;
}

/* sum += A^T B for 4 x 4 of a tile; the operands are (k, row) and (k, column). */
template <int ROWS, int COLS>
__device__ __forceinline__ void plain_multiply(float (&sum)[4][4], const float (*a)[ROWS + PAD],
                                               const float (*b)[COLS + PAD], int row, int col)
{
    float part[4][4] = {};
#pragma unroll
    for (int k = 0; k < INNER; k++)
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                part[i][j] = fmaf(a[k][row + i], b[k][col + j], part[i][j]);
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
            sum[i][j] += part[i][j];
}

/* ---- pass ---------------------------------------------------------------------------------------------- */

struct plain_job {
    struct plain_grid grid;
    struct reader from;
    struct target to;
    const float *weight;
    int taps;         /* summed over */
    int scatter;      /* 1: taps are blocks, and name the voxel that is written */
    int k, cols;
    int64_t tap_step, k_step, col_step; /* in the weight */
};

__device__ __forceinline__ float plain_weight_at(const struct plain_job &j, int tap, int k, int col)
{
    return k < j.k && col < j.cols ? j.weight[tap * j.tap_step + k * j.k_step + col * j.col_step] : 0.0f;
}

template <int COLS>
__global__ void __launch_bounds__(THREADS) plain_pass_kernel(const __grid_constant__ struct plain_job j)
{
    enum { ROWS = 16 * THREADS / COLS };
    __shared__ float a[INNER][ROWS + PAD], b[INNER][COLS + PAD];
    int rows = j.grid.v.n * j.grid.v.d * j.grid.v.h * j.grid.v.w, first = blockIdx.x * ROWS;
    int col0 = blockIdx.y * COLS, tap0 = j.scatter ? blockIdx.z : 0, item, voxel[4];
    int row = threadIdx.x / (COLS / 4) * 4, col = threadIdx.x % (COLS / 4) * 4;
    float sum[4][4] = {};
    for (int tap = tap0; tap < tap0 + j.taps; tap++)
        for (int k0 = 0; k0 < j.k; k0 += INNER) {
            __syncthreads();
            for (int i = threadIdx.x; i < ROWS * INNER; i += THREADS) {
                int k = k0 + i % INNER, at = first + i / INNER, from = -1;
                if (at < rows && k < j.k)
                    from = plain_voxel(j.grid, at, tap, &item);
                if (j.scatter && from >= 0)
                    from = at;
                a[i % INNER][i / INNER] = from < 0 ? 0.0f : read_single(j.from, item, from, k);
            }
            for (int i = threadIdx.x; i < COLS * INNER; i += THREADS)
                b[i / COLS][i % COLS] = plain_weight_at(j, tap, k0 + i / COLS, col0 + i % COLS);
            __syncthreads();
            plain_multiply<ROWS, COLS>(sum, a, b, row, col);
        }
    for (int i = 0; i < 4; i++) {
        int at = first + row + i;
        voxel[i] = at >= rows ? -1 : j.scatter ? plain_voxel(j.grid, at, tap0, &item) : at;
    }
    put_rows(j.to, voxel, col0 + col, sum);
}

int plain_pass(struct conv_pass *p)
{
    struct conv *v = p->v;
    int up = v->s.kind == CONV_UP, to_fine = up != p->backward && v->s.kind != CONV_1;
    struct plain_job j = {};
    j.grid = plain_grid_of(v, p->n, p->backward);
    j.from = p->from;
    j.to = p->to;
    j.weight = (const float *)v->packed[0];
    j.scatter = to_fine && v->s.kind != CONV_3;
    j.taps = j.scatter ? 1 : v->taps;
    j.k = p->from.c;
    j.cols = p->to.c;
    j.tap_step = (int64_t)v->s.c_in * v->s.c_out;
    int k_is_major = p->backward != up; /* k is the last index of the weight */
    j.k_step = k_is_major ? 1 : j.cols;
    j.col_step = k_is_major ? j.k : 1;
    int cols = j.cols > 32 ? 64 : j.cols > 16 ? 32 : 16, rows = 16 * THREADS / cols;
    dim3 grid((unsigned)((volume_voxels(j.grid.v) + rows - 1) / rows), divide_up(j.cols, cols),
              j.scatter ? v->taps : 1);
    return cuda_start(cols == 64 ? plain_pass_kernel<64>
                      : cols == 32 ? plain_pass_kernel<32> : plain_pass_kernel<16>,
                      grid, THREADS, 0, v->context->stream, j);
}

/* ---- weight -------------------------------------------------------------------------------------------- */

struct plain_weight_job {
    struct plain_grid grid;
    struct reader fine, coarse;
    int run;         /* voxels of a part */
    float *partial;  /* (parts, taps, rows, cols) */
    int row_tiles;
};

/* Adds what the slices of a block have, in order; slice 0 gets the sums. */
template <int TILE> __device__ __forceinline__ void add_slices(float (&sum)[4][4], float (*all)[THREADS])
{
    enum { EACH = TILE * TILE / 16, SLICES = THREADS / EACH };
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 16; i++)
        all[i][threadIdx.x] = sum[i / 4][i % 4];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 16; i++)
        for (int s = 1; s < SLICES; s++)
            sum[i / 4][i % 4] += all[i][threadIdx.x % EACH + s * EACH];
}

template <int TILE>
__global__ void __launch_bounds__(THREADS)
    plain_weight_kernel(const __grid_constant__ struct plain_weight_job j)
{
    enum { EACH = TILE * TILE / 16, SLICES = THREADS / EACH, DEPTH = INNER * SLICES };
    __shared__ float both[2][DEPTH][TILE + PAD];
    float(*a)[TILE + PAD] = both[0], (*b)[TILE + PAD] = both[1];
    int voxels = j.grid.v.n * j.grid.v.d * j.grid.v.h * j.grid.v.w, slice = threadIdx.x / EACH;
    int first = blockIdx.z * j.run, end = first + j.run < voxels ? first + j.run : voxels;
    int row0 = blockIdx.y % j.row_tiles * TILE, col0 = blockIdx.y / j.row_tiles * TILE, tap = blockIdx.x;
    int row = threadIdx.x % EACH / (TILE / 4) * 4, col = threadIdx.x % (TILE / 4) * 4;
    float sum[4][4] = {};
    for (; first < end; first += DEPTH) {
        __syncthreads();
        for (int i = threadIdx.x; i < TILE * DEPTH; i += THREADS) {
            int c = i % TILE, k = i / TILE, item = 0, v = first + k;
            int other = v < end ? plain_voxel(j.grid, v, tap, &item) : -1;
            a[k][c] = other >= 0 && row0 + c < j.fine.c ? read_single(j.fine, item, other, row0 + c) : 0.0f;
            b[k][c] = v < end && col0 + c < j.coarse.c ? read_single(j.coarse, item, v, col0 + c) : 0.0f;
        }
        __syncthreads();
        plain_multiply<TILE, TILE>(sum, a + INNER * slice, b + INNER * slice, row, col);
    }
    if (SLICES > 1)
        add_slices<TILE>(sum, (float(*)[THREADS])both);
    float *to = j.partial + ((int64_t)blockIdx.z * gridDim.x + tap) * j.fine.c * j.coarse.c;
    for (int i = 0; i < 16 && slice == 0; i++)
        if (row0 + row + i / 4 < j.fine.c && col0 + col + i % 4 < j.coarse.c)
            to[(row0 + row + i / 4) * j.coarse.c + col0 + col + i % 4] = sum[i / 4][i % 4];
}

/* Numbers of a tile in both directions. */
static int weight_tile(const struct conv *v)
{
    int most = v->s.c_in > v->s.c_out ? v->s.c_in : v->s.c_out;
    return most > 32 ? 64 : most > 16 ? 32 : 16;
}

/* Parts so that there are enough blocks, each with some hundred voxels at least. */
static int plain_parts(const struct conv *v, int64_t voxels)
{
    int tile = weight_tile(v), blocks = v->taps * divide_up(v->s.c_in, tile) * divide_up(v->s.c_out, tile);
    int64_t parts = 8 * MULTIPROCESSORS / blocks, most = (voxels + 255) / 256;
    parts = parts < most ? parts : most;
    return parts > 1 ? (int)parts : 1;
}

int plain_weight(struct weight_pass *p)
{
    struct conv *v = p->v;
    int up = v->s.kind == CONV_UP, tile = weight_tile(v);
    struct plain_weight_job j = {};
    j.grid = plain_grid_of(v, p->n, 0);
    j.fine = up ? p->dy : p->x;
    j.coarse = up ? p->x : p->dy;
    j.partial = p->partial;
    p->parts = plain_parts(v, volume_voxels(v->coarse));
    p->rows = j.fine.c;
    p->cols = j.coarse.c;
    j.run = (int)((volume_voxels(j.grid.v) + p->parts - 1) / p->parts);
    j.row_tiles = divide_up(j.fine.c, tile);
    dim3 grid(v->taps, j.row_tiles * divide_up(j.coarse.c, tile), p->parts);
    return cuda_start(tile == 64 ? plain_weight_kernel<64>
                      : tile == 32 ? plain_weight_kernel<32> : plain_weight_kernel<16>,
                      grid, THREADS, 0, p->stream, j);
}

size_t plain_bytes(const struct conv *v)
{
    size_t parts = (size_t)plain_parts(v, volume_voxels(v->coarse));
    return parts * v->taps * v->s.c_in * v->s.c_out * sizeof(float);
}
