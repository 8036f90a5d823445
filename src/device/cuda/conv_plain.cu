/* conv_plain.cu - every convolution in float32, all directions, in one way: small tiles of a product in
 * shared memory. Right for all shapes; speed is secondary.
 *
 *     pass     to(row, col)         = sum over (tap, k) of  from(row's voxel for the tap, k) W(tap, k, col)
 *     weight   part(tap, row, col)  = sum over voxels v of  fine(v's voxel for the tap, row) coarse(v, col)
 *
 * CONV_3 counts as a step (conv_int.cuh) whose fine side has the same size: the voxel for a tap is a
 * neighbour or, outside, nothing. A pass from the coarse side to the fine one runs tap by tap.
 *
 * Sixteen products at a time are summed on their own before they are added: less rounding.
 */
#include "device/cuda/conv_int.cuh"

enum { TILE = 64, INNER = 16, THREADS = 256, PAD = 4 };

/* How rows, that is voxels, find their neighbours. */
struct plain_grid {
    struct volume v;  /* of the rows */
    int edge;         /* 3: neighbours, 2: the fine side is twice as large, 1: the same voxel */
    int mirrored;     /* 3: the neighbour on the other side */
};

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

/* The voxel of the fine side for tap t of a voxel (z, y, x) of the coarse side; `edge` 2, or 1: itself. */
__device__ __forceinline__ int64_t fine_voxel(const struct volume &coarse, int edge, int item, int z, int y,
                                              int x, int tap)
{
    int tx = edge == 2 ? tap % 2 : 0, ty = edge == 2 ? tap / 2 % 2 : 0, tz = edge == 2 ? tap / 4 : 0;
    int64_t plane = (int64_t)item * coarse.d * edge + z * edge + tz;
    return ((plane * coarse.h * edge) + y * edge + ty) * ((int64_t)coarse.w * edge) + x * edge + tx;
}

/* Voxel `row` of the grid, and the one of the other side that a tap leads to, or -1. */
__device__ int64_t plain_voxel(const struct plain_grid &g, int64_t row, int tap, int *item)
{
    int x = (int)(row % g.v.w), y = (int)(row / g.v.w % g.v.h);
    int z = (int)(row / ((int64_t)g.v.w * g.v.h) % g.v.d);
    *item = (int)(row / ((int64_t)g.v.w * g.v.h * g.v.d));
    if (g.edge < 3)
        return fine_voxel(g.v, g.edge, *item, z, y, x, tap);
    int sign = g.mirrored ? -1 : 1;
    x += sign * (tap % 3 - 1);
    y += sign * (tap / 3 % 3 - 1);
    z += sign * (tap / 9 - 1);
    if ((unsigned)x >= (unsigned)g.v.w || (unsigned)y >= (unsigned)g.v.h || (unsigned)z >= (unsigned)g.v.d)
        return -1;
    return ((int64_t)(*item * g.v.d + z) * g.v.h + y) * g.v.w + x;
}

__device__ __forceinline__ float plain_weight_at(const struct plain_job &j, int tap, int k, int col)
{
    return k < j.k && col < j.cols ? j.weight[tap * j.tap_step + k * j.k_step + col * j.col_step] : 0.0f;
}

/* sum += A^T B for 4 x 4 of the tile. */
__device__ __forceinline__ void plain_multiply(float sum[4][4], const float a[INNER][TILE + PAD],
                                               const float b[INNER][TILE + PAD])
{
    int row = threadIdx.x / 16 * 4, col = threadIdx.x % 16 * 4;
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

__global__ void __launch_bounds__(THREADS) plain_pass_kernel(const __grid_constant__ struct plain_job j)
{
    __shared__ float a[INNER][TILE + PAD], b[INNER][TILE + PAD];
    int64_t rows = (int64_t)j.grid.v.n * j.grid.v.d * j.grid.v.h * j.grid.v.w;
    int64_t first = (int64_t)blockIdx.x * TILE;
    int col0 = blockIdx.y * TILE, tap0 = j.scatter ? blockIdx.z : 0, item;
    float sum[4][4] = {};
    for (int tap = tap0; tap < tap0 + j.taps; tap++)
        for (int k0 = 0; k0 < j.k; k0 += INNER) {
            __syncthreads();
            for (int i = threadIdx.x; i < TILE * INNER; i += THREADS) {
                int k = i % INNER, row = i / INNER, kb = i / TILE, col = i % TILE;
                int64_t voxel = -1, at = first + row;
                if (at < rows && k0 + k < j.k)
                    voxel = plain_voxel(j.grid, at, j.scatter ? 0 : tap, &item);
                if (j.scatter && voxel >= 0)
                    voxel = at;
                a[k][row] = voxel < 0 ? 0.0f : read_single(j.from, item, voxel, k0 + k);
                b[kb][col] = plain_weight_at(j, tap, k0 + kb, col0 + col);
            }
            __syncthreads();
            plain_multiply(sum, a, b);
        }
    int voxel[4];
    for (int i = 0; i < 4; i++) {
        int64_t row = first + threadIdx.x / 16 * 4 + i;
        voxel[i] = row >= rows ? -1 : j.scatter ? (int)plain_voxel(j.grid, row, tap0, &item) : (int)row;
    }
    put_rows(j.to, voxel, col0 + threadIdx.x % 16 * 4, sum);
}

/* The grid of rows: for steps the coarse side. */
static struct plain_grid plain_grid_of(const struct conv *v, int n)
{
    struct plain_grid g = {v->coarse, v->s.kind == CONV_3 ? 3 : v->s.kind == CONV_1 ? 1 : 2, 0};
    g.v.n = n;
    return g;
}

int plain_pass(struct conv_pass *p)
{
    struct conv *v = p->v;
    int up = v->s.kind == CONV_UP, to_fine = up != p->backward && v->s.kind != CONV_1;
    struct plain_job j = {};
    j.grid = plain_grid_of(v, p->n);
    j.grid.mirrored = p->backward;
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
    int64_t rows = volume_voxels(j.grid.v);
    dim3 grid((unsigned)((rows + TILE - 1) / TILE), divide_up(j.cols, TILE), j.scatter ? v->taps : 1);
    return cuda_start(plain_pass_kernel, grid, THREADS, 0, v->context->stream, j);
}

/* ---- weight -------------------------------------------------------------------------------------------- */

struct plain_weight_job {
    struct plain_grid grid;
    struct reader fine, coarse;
    int64_t run;     /* voxels of a part */
    float *partial;  /* (parts, taps, rows, cols) */
    int row_tiles;
};

__global__ void __launch_bounds__(THREADS)
    plain_weight_kernel(const __grid_constant__ struct plain_weight_job j)
{
    __shared__ float a[INNER][TILE + PAD], b[INNER][TILE + PAD];
    int64_t voxels = (int64_t)j.grid.v.n * j.grid.v.d * j.grid.v.h * j.grid.v.w;
    int64_t first = (int64_t)blockIdx.z * j.run, end = first + j.run < voxels ? first + j.run : voxels;
    int row0 = blockIdx.y % j.row_tiles * TILE, col0 = blockIdx.y / j.row_tiles * TILE, tap = blockIdx.x;
    float sum[4][4] = {};
    for (; first < end; first += INNER) {
        __syncthreads();
        for (int i = threadIdx.x; i < TILE * INNER; i += THREADS) {
            int c = i % TILE, k = i / TILE, item = 0;
            int64_t v = first + k, other = v < end ? plain_voxel(j.grid, v, tap, &item) : -1;
            a[k][c] = other >= 0 && row0 + c < j.fine.c ? read_single(j.fine, item, other, row0 + c) : 0.0f;
            b[k][c] = v < end && col0 + c < j.coarse.c ? read_single(j.coarse, item, v, col0 + c) : 0.0f;
        }
        __syncthreads();
        plain_multiply(sum, a, b);
    }
    float *to = j.partial + ((int64_t)blockIdx.z * gridDim.x + tap) * j.fine.c * j.coarse.c;
    for (int i = 0; i < 16; i++) {
        int row = row0 + threadIdx.x / 16 * 4 + i / 4, col = col0 + threadIdx.x % 16 * 4 + i % 4;
        if (row < j.fine.c && col < j.coarse.c)
            to[(int64_t)row * j.coarse.c + col] = sum[i / 4][i % 4];
    }
}

/* Parts so that there are enough blocks, each with some hundred voxels at least. */
static int plain_parts(const struct conv *v, int64_t voxels)
{
    int64_t blocks = (int64_t)v->taps * divide_up(v->s.c_in, TILE) * divide_up(v->s.c_out, TILE);
    int64_t parts = 8 * MULTIPROCESSORS / blocks, most = (voxels + 255) / 256;
    parts = parts < most ? parts : most;
    return parts > 1 ? (int)parts : 1;
}

int plain_weight(struct weight_pass *p)
{
    struct conv *v = p->v;
    int up = v->s.kind == CONV_UP;
    struct plain_weight_job j = {};
    j.grid = plain_grid_of(v, p->n);
    j.fine = up ? p->dy : p->x;
    j.coarse = up ? p->x : p->dy;
    j.partial = p->partial;
    int64_t voxels = volume_voxels(j.grid.v);
    p->parts = plain_parts(v, volume_voxels(v->coarse));
    p->rows = j.fine.c;
    p->cols = j.coarse.c;
    j.run = (voxels + p->parts - 1) / p->parts;
    j.row_tiles = divide_up(j.fine.c, TILE);
    dim3 grid(v->taps, j.row_tiles * divide_up(j.coarse.c, TILE), p->parts);
    return cuda_start(plain_weight_kernel, grid, THREADS, 0, v->context->stream, j);
}

size_t plain_bytes(const struct conv *v)
{
    size_t parts = (size_t)plain_parts(v, volume_voxels(v->coarse));
    return parts * v->taps * v->s.c_in * v->s.c_out * sizeof(float);
}
