/* conv_step_weight.cu - the weight gradient of CONV_DOWN and CONV_UP, on tensor cores.
 *
 *     dW(tap, f, c) = sum over voxels v of the coarse side of  fine(v's voxel for the tap, f) coarse(v, c)
 *
 * is a product whose inner index is the voxel, as in conv_three_weight.cu. A block takes 16 channels of the
 * fine side and up to 64 of the coarse one, and walks over its tiles of 128 rows: both operands go through
 * the reading formula into shared memory and come turned out of it. Eight warps, one for each tap.
 */
#include "device/cuda/conv_int.cuh"

enum {
    TAPS = 8,
    THREADS = 32 * TAPS,
    COLUMNS = 4, /* groups of 16 channels of the coarse side in a block */
    ROWS = THREADS / 2,
    HALF = ROWS + 4 /* 4 more than a multiple of 8: see fill.cuh */
};

struct step_weight_job {
    struct volume v; /* the coarse side */
    struct divisor by_w, by_h, by_tiles;
    struct reader fine, coarse;
    int tiles; /* of an item */
    int row_groups, col_groups;
    float *partial; /* (parts, taps, 16 row_groups, 16 col_groups) */
};

/* The places of a tile: row i of the coarse side, and its voxel of the fine side for each tap. */
__device__ __forceinline__ void row_places(struct place *coarse, struct place *fine,
                                           const struct step_weight_job &j, int item, int tile)
{
    const struct volume &v = j.v;
    for (int i = threadIdx.x; i < TAPS * ROWS; i += THREADS) {
        int row = i % ROWS, tap = i / ROWS, at = tile * ROWS + row, line = divide(at, j.by_w);
        int z = divide(line, j.by_h), inside = at < v.d * v.h * v.w;
        struct volume twice = {v.n, 2 * v.d, 2 * v.h, 2 * v.w};
        struct corner c = {item, 2 * z + tap / 4, 2 * (line - z * v.h) + tap / 2 % 2,
                           2 * (at - line * v.w) + tap % 2};
        struct place p = {inside ? voxel_at(twice, c) : -1, tap * 2 * HALF + row};
        struct place own = {inside ? item * v.d * v.h * v.w + at : -1, row};
        fine[i] = p;
        if (tap == 0)
            coarse[row] = own;
    }
}

__device__ __forceinline__ void write_part(const struct step_weight_job &j,
                                           const float (&acc)[2 * COLUMNS][4], int tap, int row_group,
                                           int col_group)
{
    int lane = threadIdx.x % 32, rows = 16 * j.row_groups, cols = 16 * j.col_groups;
    float *to = j.partial + ((int64_t)blockIdx.x * TAPS + tap) * rows * cols;
#pragma unroll
    for (int t = 0; t < 2 * COLUMNS; t++) {
        int row = 16 * row_group + lane / 4, col = 16 * col_group + 8 * t + lane % 4 * 2;
        if (col >= cols)
            continue;
        *(float2 *)(to + (int64_t)row * cols + col) = make_float2(acc[t][0], acc[t][1]);
        *(float2 *)(to + (int64_t)(row + 8) * cols + col) = make_float2(acc[t][2], acc[t][3]);
    }
}

/* blockIdx: a share of the tiles; 16 channels of the fine side; 64 of the coarse one. */
__global__ void __launch_bounds__(THREADS, 2)
    step_weight_multiply(const __grid_constant__ struct step_weight_job j)
{
    SHARED_MEMORY(memory);
    int lane = threadIdx.x % 32, tap = threadIdx.x / 32;
    int row_group = blockIdx.y, col_group = blockIdx.z * COLUMNS;
    int columns = j.col_groups - col_group < COLUMNS ? j.col_groups - col_group : COLUMNS;
    struct place *fine_places = (struct place *)memory, *coarse_places = fine_places + TAPS * ROWS;
    uint4 *fine = (uint4 *)(coarse_places + ROWS), *coarse = fine + TAPS * 2 * HALF;
    /* tiles as in conv_three_weight.cu */
    uint32_t a_at = shared_address(fine + tap * 2 * HALF + lane % 8 + lane / 16 * 8 + lane / 8 % 2 * HALF);
    uint32_t b_at = shared_address(coarse + lane % 16 + lane / 16 * HALF);
    float acc[2 * COLUMNS][4] = {};
    for (int tile = blockIdx.x; tile < j.tiles * j.v.n; tile += gridDim.x) {
        int item = divide(tile, j.by_tiles);
        row_places(coarse_places, fine_places, j, item, tile - item * j.tiles);
        __syncthreads();
        fill(fine, HALF, fine_places, TAPS * ROWS, j.fine, item, 16 * row_group, THREADS);
        for (int k = 0; k < columns; k++)
            fill(coarse + k * 2 * HALF, HALF, coarse_places, ROWS, j.coarse, item, 16 * (col_group + k),
                 THREADS);
        __syncthreads();
#pragma unroll
        for (int s = 0; s < ROWS / 16; s++) {
            uint32_t a[4], b[4];
            tile_load_turned(a, a_at + 256 * s);
#pragma unroll
            for (int k = 0; k < COLUMNS; k++) {
                if (k >= columns)
                    break;
                tile_load_turned(b, b_at + 256 * s + 32 * k * HALF);
                tile_multiply(acc[2 * k], a, b[0], b[1]);
                tile_multiply(acc[2 * k + 1], a, b[2], b[3]);
            }
        }
    }
    write_part(j, acc, tap, row_group, col_group);
}

struct step_weight_cut {
    int tiles, blocks;
};

static struct step_weight_cut cut_weight(const struct conv *v, int n)
{
    struct step_weight_cut k;
    k.tiles = (int)((volume_item(v->coarse) + ROWS - 1) / ROWS);
    int work = divide_up(v->fine_c, 16) * divide_up(divide_up(v->coarse_c, 16), COLUMNS);
    k.blocks = 2 * MULTIPROCESSORS / work > 1 ? 2 * MULTIPROCESSORS / work : 1;
    k.blocks = k.blocks < k.tiles * n ? k.blocks : k.tiles * n;
    return k;
}

int step_weight(struct weight_pass *p)
{
    struct conv *v = p->v;
    struct step_weight_cut k = cut_weight(v, p->n);
    struct step_weight_job j = {};
    int up = v->s.kind == CONV_UP;
    j.v = v->coarse;
    j.v.n = p->n;
    j.by_w = divisor_of(j.v.w);
    j.by_h = divisor_of(j.v.h);
    j.by_tiles = divisor_of(k.tiles);
    j.fine = up ? p->dy : p->x;
    j.coarse = up ? p->x : p->dy;
    j.tiles = k.tiles;
    j.row_groups = divide_up(v->fine_c, 16);
    j.col_groups = divide_up(v->coarse_c, 16);
    j.partial = p->partial;
    p->parts = k.blocks;
    p->rows = 16 * j.row_groups;
    p->cols = 16 * j.col_groups;
    int columns = j.col_groups < COLUMNS ? j.col_groups : COLUMNS;
    size_t shared = 32 * HALF * (size_t)(TAPS + columns) + sizeof(struct place) * (TAPS + 1) * ROWS;
    return cuda_start(step_weight_multiply, dim3(k.blocks, j.row_groups, divide_up(j.col_groups, COLUMNS)),
                      THREADS, shared, p->stream, j);
}

size_t step_weight_bytes(const struct conv *v)
{
    struct step_weight_cut k = cut_weight(v, v->coarse.n);
    size_t numbers = (size_t)TAPS * 256 * divide_up(v->fine_c, 16) * divide_up(v->coarse_c, 16);
    return (size_t)k.blocks * numbers * sizeof(float);
}
