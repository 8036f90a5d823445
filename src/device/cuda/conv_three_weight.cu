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
 * Every block ends with a part of the gradient; parts_join adds them up, in order.
 */
#include "device/cuda/three.cuh"

struct three_weight_job {
    struct three_plan p;
    struct volume v;
    struct reader x, dy;
    float *partial; /* (parts, 27, 16 chunks, 16 groups) */
};

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

__global__ void __launch_bounds__(WEIGHT_THREADS, 2)
    three_weight_multiply(const __grid_constant__ struct three_weight_job j)
{
    SHARED_MEMORY(memory);
    const struct three_plan &p = j.p;
    uint4 *in = (uint4 *)memory, *out = in + box_words(p.in);
    struct place *in_places = (struct place *)(out + p.wn * box_words(p.out));
    struct place *out_places = in_places + places_length(p.in.count, WEIGHT_THREADS);
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, shift = warp % 3;
    int n = warp / 3 % p.wn, position = warp / 3 / p.wn;
    int chunk = blockIdx.y % p.chunks, first_group = blockIdx.y / p.chunks * p.wn;
    struct corner warp_at = warp_corner(p, position);
    /* tiles of the input: voxels 0-7 with channels 0-7, then 8-15; voxels 8-15 likewise. Of the gradient:
     * channels 0-7 with voxels 0-7, then 8-15; channels 8-15 likewise. */
    uint32_t x = shared_address(in + pattern_word(p, p.in, warp_at, lane % 8 + lane / 16 * 8) + shift +
                                lane / 8 % 2 * p.in.half);
    uint32_t y = shared_address(out + n * box_words(p.out) + pattern_word(p, p.out, warp_at, lane % 16) +
                                lane / 16 * p.out.half);
    float acc[9][2][4] = {};
    for (int tile = blockIdx.x; tile < p.tiles * j.v.n; tile += gridDim.x) {
        int item = divide(tile, p.by_tiles);
        struct corner at = tile_corner(p, item, tile - item * p.tiles);
        box_places(in_places, p.in, j.v, border_corner(at), WEIGHT_THREADS);
        box_places(out_places, p.out, j.v, at, WEIGHT_THREADS);
        __syncthreads();
        fill(in, p.in.half, in_places, p.in.count, j.x, item, 16 * chunk, WEIGHT_THREADS);
        for (int k = 0; k < p.wn; k++)
            fill(out + k * box_words(p.out), p.out.half, out_places, p.out.count, j.dy, item,
                 16 * (first_group + k), WEIGHT_THREADS);
        __syncthreads();
        multiply_tile(acc, p, x, y);
    }
    if (first_group + n < p.groups)
        write_part(j, acc, blockIdx.x * (p.wz * p.wy * p.wx) + position, shift, chunk, first_group + n);
}

/* Blocks that share the tiles of a chunk and a group: so many that all fill the GPU. */
static int weight_blocks(const struct three_plan &p, int n)
{
    int work = p.chunks * divide_up(p.groups, p.wn), tiles = p.tiles * n;
    int blocks = 2 * MULTIPROCESSORS / work > 1 ? 2 * MULTIPROCESSORS / work : 1;
    return blocks < tiles ? blocks : tiles;
}

int three_weight(struct weight_pass *p)
{
    struct conv *v = p->v;
    struct three_weight_job j = {};
    j.p = v->weight;
    j.v = v->in;
    j.v.n = p->n;
    j.x = p->x;
    j.dy = p->dy;
    j.partial = p->partial;
    int blocks = weight_blocks(j.p, p->n);
    p->parts = blocks * j.p.wz * j.p.wy * j.p.wx;
    p->rows = 16 * j.p.chunks;
    p->cols = 16 * j.p.groups;
    return cuda_start(three_weight_multiply, dim3(blocks, j.p.chunks * divide_up(j.p.groups, j.p.wn)),
                      WEIGHT_THREADS, three_shared(j.p, 1), p->stream, j);
}

size_t three_weight_bytes(const struct conv *v)
{
    const struct three_plan &p = v->weight;
    size_t parts = (size_t)weight_blocks(p, v->in.n) * p.wz * p.wy * p.wx;
    return parts * 27 * 256 * p.chunks * p.groups * sizeof(float);
}
