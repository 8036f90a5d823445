/* conv_three_weight.cu - the weight gradient of 3x3x3 convolutions, on tensor cores.
 *
 *     dW(tap, i, o) = sum over voxels v of  a(v + tap, i) dy(v, o)
 *
 * is a product whose inner index is the voxel. A block takes a chunk of 16 input channels and one or two
 * groups of 16 output channels; it walks over its tiles and keeps their 27 x 16 x 16 sums in registers, nine
 * taps (one shift in x) to a warp. Tiles and patterns are those of conv_three.cu: the gradient of the 8
 * places of a pattern stays in registers, and the input at 4 x 6 places is read once and multiplied for up
 * to nine taps each. Both operands come turned out of shared memory, so the voxels run inside.
 *
 * Operands are laid out first (conv_lay.cu), so a tile is a list of lines to copy, the same list for every
 * tile. Tiles are copied some stages ahead of the products.
 *
 * Every block ends with a part of the gradient; parts_join adds them up, in order.
 */
#include "device/cuda/three.cuh"

enum { STAGES = 3 }; /* of tiles: being multiplied, and two on their way */

/* Words of a stage: both operands of a tile. */
__host__ __device__ __forceinline__ int stage_words(const struct three_plan &p)
{
    return box_words(p.in) + p.wn * box_words(p.out);
}

struct three_weight_job {
    struct three_plan p;
    struct laid laid;
    struct laid_operand x, dy;
    int tiles;
    float *partial; /* (parts, 27, 16 chunks, 16 groups) */
};

/* ---- tiles --------------------------------------------------------------------------------------------- */

/* Both operands of a tile into a stage: 16 channels of x, those of the block's groups of dy. */
__device__ __forceinline__ void start_tile(const struct three_weight_job &j, uint32_t stage,
                                           const struct line *list, int tile, int chunk, int group)
{
    const struct three_plan &p = j.p;
    int item = divide(tile, p.by_tiles), words = j.laid.words;
    int first = tile_word(j.laid, tile_corner(p, item, tile - item * p.tiles));
    copy_box(stage, list, p.in, j.x.at + (int64_t)(item * j.x.chunks + chunk) * 2 * words + first, words,
             WEIGHT_THREADS);
    for (int k = 0; k < p.wn; k++)
        copy_box(stage + 16 * (box_words(p.in) + k * box_words(p.out)), list + box_lines(p.in), p.out,
                 j.dy.at + (int64_t)(item * j.dy.chunks + group + k) * 2 * words + first, words,
                 WEIGHT_THREADS);
}

/* ---- products ------------------------------------------------------------------------------------------ */

/* Nine taps of the voxels of a warp. */
__device__ __forceinline__ void multiply_tile(float acc[9][2][4], const struct three_plan &p, uint32_t x,
                                              uint32_t y)
{
    uint32_t dy[US][VS][4];
#pragma unroll
    for (int u = 0; u < US; u++)
#pragma unroll
        for (int v = 0; v < VS; v++)
            tile_load_turned(dy[u][v], y + 16 * (u * p.out.plane + v * p.out.line));
#pragma unroll
    for (int u = 0; u < US + 2; u++)
#pragma unroll
        for (int v = 0; v < VS + 2; v++) {
            uint32_t a[4];
            tile_load_turned(a, x + 16 * (u * p.in.plane + v * p.in.line));
#pragma unroll
            for (int t = 0; t < 9; t++) {
                int pu = u - t / 3, pv = v - t % 3;
                if (pu < 0 || pu >= US || pv < 0 || pv >= VS)
                    continue;
                tile_multiply(acc[t][0], a, dy[pu][pv][0], dy[pu][pv][1]);
                tile_multiply(acc[t][1], a, dy[pu][pv][2], dy[pu][pv][3]);
            }
        }
}

__device__ __forceinline__ void write_part(const struct three_weight_job &j, const float acc[9][2][4],
                                           int part, int shift, int chunk, int group)
{
    int lane = threadIdx.x % 32, rows = 16 * j.p.chunks, cols = 16 * j.p.groups;
    float *to = j.partial + (int64_t)part * 27 * rows * cols;
#pragma unroll
    for (int t = 0; t < 9; t++)
#pragma unroll
        for (int k = 0; k < 4; k++) { /* tile k % 2, rows g and g + 8 */
            int row = 16 * chunk + lane / 4 + k / 2 * 8, col = 16 * group + k % 2 * 8 + lane % 4 * 2;
            const float *d = acc[t][k % 2] + k / 2 * 2;
            *(float2 *)(to + ((int64_t)(t * 3 + shift) * rows + row) * cols + col) = make_float2(d[0], d[1]);
        }
}

/* blockIdx: a share of the tiles; 16 channels of x; 16 wn of dy. */
__global__ void __launch_bounds__(WEIGHT_THREADS, 2)
    three_weight_multiply(const __grid_constant__ struct three_weight_job j)
{
    SHARED_MEMORY(memory);
    const struct three_plan &p = j.p;
    uint4 *in = (uint4 *)memory, *out = in + box_words(p.in);
    int words = stage_words(p), stage_bytes = 16 * words, ahead = (STAGES - 1) * gridDim.x;
    struct line *list = (struct line *)(in + STAGES * words);
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, shift = warp % 3;
    int n = warp / 3 % p.wn, position = warp / 3 / p.wn;
    int chunk = blockIdx.y, first_group = blockIdx.z * p.wn;
    struct corner warp_at = warp_corner(p, position);
    /* tiles of the input: voxels 0-7 with channels 0-7, then 8-15; voxels 8-15 likewise. Of the gradient:
     * channels 0-7 with voxels 0-7, then 8-15; channels 8-15 likewise. */
    uint32_t x = shared_address(in + pattern_word(p, p.in, warp_at, lane % 8 + lane / 16 * 8) + shift +
                                lane / 8 % 2 * p.in.half);
    uint32_t y = shared_address(out + n * box_words(p.out) + pattern_word(p, p.out, warp_at, lane % 16) +
                                lane / 16 * p.out.half);
    uint32_t stages = shared_address(in);
    float acc[9][2][4] = {};
    list_lines(list, p.in, j.laid, 0, WEIGHT_THREADS);
    list_lines(list + box_lines(p.in), p.out, j.laid, (j.laid.h + 1) * j.laid.w + 1, WEIGHT_THREADS);
    __syncthreads();
    for (int s = 0, tile = blockIdx.x; s < STAGES - 1; s++, tile += gridDim.x) {
        if (tile < j.tiles)
            start_tile(j, stages + s * stage_bytes, list, tile, chunk, first_group);
        copies_end();
    }
    for (int tile = blockIdx.x, stage = 0; tile < j.tiles; tile += gridDim.x) {
        int last = stage > 0 ? stage - 1 : STAGES - 1; /* what was multiplied before, and is free now */
        copies_wait<STAGES - 2>();
        __syncthreads();
        if (tile + ahead < j.tiles)
            start_tile(j, stages + last * stage_bytes, list, tile + ahead, chunk, first_group);
        copies_end();
        multiply_tile(acc, p, x + stage * stage_bytes, y + stage * stage_bytes);
        stage = stage < STAGES - 1 ? stage + 1 : 0;
    }
    if (first_group + n < p.groups)
        write_part(j, acc, blockIdx.x * (p.wz * p.wy * p.wx) + position, shift, chunk, first_group + n);
}

/* ---- running ------------------------------------------------------------------------------------------- */

/* Shared memory of a block: stages, and the lines of boxes. */
size_t three_weight_shared(const struct three_plan &p)
{
    return STAGES * sizeof(uint4) * (size_t)stage_words(p) +
           sizeof(struct line) * (size_t)(box_lines(p.in) + box_lines(p.out));
}

/* Blocks that share the tiles of a chunk and a group: so many that all fill the GPU. */
static int weight_blocks(const struct three_plan &p, int n)
{
    int work = p.chunks * divide_up(p.groups, p.wn), tiles = p.tiles * n;
    int blocks = 2 * MULTIPROCESSORS / work > 1 ? 2 * MULTIPROCESSORS / work : 1;
    return blocks < tiles ? blocks : tiles;
}

/* Whole blocks take wn of them. */
int three_weight_groups(const struct conv *v)
{
    return divide_up(v->weight.groups, v->weight.wn) * v->weight.wn;
}

int three_weight(struct weight_pass *p)
{
    struct conv *v = p->v;
    struct three_weight_job j = {};
    j.p = v->weight;
    j.laid = v->laid;
    j.tiles = j.p.tiles * p->n;
    j.partial = p->partial;
    j.x = p->laid_x;
    j.dy = p->laid_dy;
    int blocks = weight_blocks(j.p, p->n);
    p->parts = blocks * j.p.wz * j.p.wy * j.p.wx;
    p->rows = 16 * j.p.chunks;
    p->cols = 16 * j.p.groups;
    return cuda_start(three_weight_multiply, dim3(blocks, j.p.chunks, divide_up(j.p.groups, j.p.wn)),
                      WEIGHT_THREADS, three_weight_shared(j.p), p->stream, j);
}

size_t three_weight_bytes(const struct conv *v)
{
    const struct three_plan &p = v->weight;
    size_t parts = (size_t)weight_blocks(p, v->in.n) * p.wz * p.wy * p.wx;
    return parts * 27 * 256 * p.chunks * p.groups * sizeof(float);
}
