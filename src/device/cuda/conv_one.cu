/* conv_one.cu - CONV_1 in all directions, on tensor cores. Its layers are the heads of a network: few
 * channels, many voxels, so all that counts is to read and write without detours.
 *
 * Rows are voxels. A lane takes four channels in a row, 4q .. 4q+3, of eight voxels: two words of bf16 pairs,
 * which are operands of a product as they are, with weights packed in the same order:
 *
 *     forward, dx    rows of A: voxels g and g + 8;  k: the channels;    columns dealt out as in conv_three.cu
 *     dweight        rows of A: channels of x;       k: the voxels;      columns: channels of dy
 *
 * For the last one 8 x 8 numbers are turned within the registers of a warp (tile_turn). Sums of dy, for the
 * gradient of the bias, come along.
 */
#include "device/cuda/conv_int.cuh"

enum { WARPS = 8, THREADS = 32 * WARPS, ROWS = 64, EACH = ROWS / 8 }; /* rows of a warp, of a lane */

/* ---- reading ------------------------------------------------------------------------------------------- */

/* Four numbers as they are stored. */
template <int QUADS> __device__ __forceinline__ float4 load_four(const void *from, int64_t at)
{
    if (QUADS == QUADS_F32)
        return __ldg((const float4 *)((const float *)from + at));
    uint2 u = __ldg((const uint2 *)((const unsigned short *)from + at));
    return make_float4(bf16_low(u.x), bf16_high(u.x), bf16_low(u.y), bf16_high(u.y));
}

template <int KIND, int QUADS>
__device__ __forceinline__ void read_quads(uint2 (&to)[EACH], const struct reader &r, int item,
                                           const int (&voxel)[EACH], int channel)
{
    float t[READ_TABLES][4];
    float4 x[EACH], y[EACH];
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        int64_t at = (int64_t)voxel[i] * r.c + channel;
        x[i] = y[i] = make_float4(0, 0, 0, 0);
        if (voxel[i] >= 0)
            x[i] = load_four<QUADS>(r.from[0], at);
        if (voxel[i] >= 0 && KIND != READ_ONE)
            y[i] = load_four<QUADS>(r.from[1], at);
    }
    read_tables<KIND>(t, r, item, channel, 1);
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        float v0 = read_one<KIND>(x[i].x, y[i].x, t, 0, r.floor), v1 = read_one<KIND>(x[i].y, y[i].y, t, 1, r.floor);
        float v2 = read_one<KIND>(x[i].z, y[i].z, t, 2, r.floor), v3 = read_one<KIND>(x[i].w, y[i].w, t, 3, r.floor);
        to[i] = voxel[i] < 0 ? make_uint2(0, 0) : make_uint2(bf16_pair(v0, v1), bf16_pair(v2, v3));
    }
}

template <int KIND>
__device__ __forceinline__ void read_singles(uint2 (&to)[EACH], const struct reader &r, int item,
                                             const int (&voxel)[EACH], int channel)
{
    float t[READ_TABLES][4];
    read_tables<KIND>(t, r, item, channel, 0);
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        float v[4];
        int there = voxel[i] >= 0;
        read_any<KIND>(v, r, there ? (int64_t)voxel[i] * r.c + channel : 0, there ? r.c - channel : 0, t);
        to[i] = there ? make_uint2(bf16_pair(v[0], v[1]), bf16_pair(v[2], v[3])) : make_uint2(0, 0);
    }
}

template <int KIND>
__device__ __forceinline__ void read_kind(uint2 (&to)[EACH], const struct reader &r, int item,
                                          const int (&voxel)[EACH], int channel)
{
    if (r.quads == QUADS_BF16)
        read_quads<KIND, QUADS_BF16>(to, r, item, voxel, channel);
    else if (KIND == READ_ONE && r.quads == QUADS_F32)
        read_quads<KIND, QUADS_F32>(to, r, item, voxel, channel);
    else
        read_singles<KIND>(to, r, item, voxel, channel);
}

/* Channels `channel` .. +3 of a lane's voxels. */
__device__ __forceinline__ void read_fours(uint2 (&to)[EACH], const struct reader &r, int item,
                                           const int (&voxel)[EACH], int channel)
{
#pragma unroll
    for (int i = 0; i < EACH; i++)
        to[i] = make_uint2(0, 0);
    if (channel >= r.c)
        return;
    if (r.kind == READ_ONE)
        read_kind<READ_ONE>(to, r, item, voxel, channel);
    else if (r.kind == READ_TWO)
        read_kind<READ_TWO>(to, r, item, voxel, channel);
    else
        read_kind<READ_GRAD>(to, r, item, voxel, channel);
}

/* Voxels lane/4 + 8i of a tile of an item; -1 behind the last. */
__device__ __forceinline__ void lane_voxels(int (&voxel)[EACH], int voxels, int item, int tile)
{
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        int at = tile * ROWS + threadIdx.x % 32 / 4 + 8 * i;
        voxel[i] = at < voxels ? item * voxels + at : -1;
    }
}

/* ---- forward and dx ------------------------------------------------------------------------------------ */

struct one_job {
    int voxels, tiles;    /* of an item; tiles of 64 rows */
    struct reader from;
    struct target to;
    struct tally tally;
    const uint4 *weights;
    int chunks, groups;
};

/* Four tiles of A by a group of 16 columns. */
__device__ __forceinline__ void multiply_four(float (&acc)[EACH / 2][2][4], const uint2 (&x)[EACH], uint4 w)
{
#pragma unroll
    for (int m = 0; m < EACH / 2; m++) {
        const uint32_t a[4] = {x[2 * m].x, x[2 * m + 1].x, x[2 * m].y, x[2 * m + 1].y};
        tile_multiply(acc[m][0], a, w.x, w.y);
        tile_multiply(acc[m][1], a, w.z, w.w);
    }
}

__global__ void __launch_bounds__(THREADS, 2) one_multiply(const __grid_constant__ struct one_job j)
{
    int lane = threadIdx.x % 32, item = blockIdx.z;
    struct lane_tally<4> *tally = tally_start<4, THREADS>();
    for (int tile = blockIdx.x * WARPS + threadIdx.x / 32; tile < j.tiles; tile += gridDim.x * WARPS) {
        int voxel[EACH];
        uint2 x[EACH];
        lane_voxels(voxel, j.voxels, item, tile);
        for (int group = 0; group < j.groups; group++) {
            float acc[EACH / 2][2][4] = {}, v[EACH][4];
            for (int chunk = 0; chunk < j.chunks; chunk++) {
                if (group == 0 || j.chunks > 1)
                    read_fours(x, j.from, item, voxel, 16 * chunk + lane % 4 * 4);
                multiply_four(acc, x, __ldg(j.weights + (chunk * j.groups + group) * 32 + lane));
            }
#pragma unroll
            for (int i = 0; i < EACH; i++)
#pragma unroll
                for (int k = 0; k < 4; k++)
                    v[i][k] = acc[i / 2][k / 2][i % 2 * 2 + k % 2];
            put_rows(j.to, voxel, 16 * group + lane % 4 * 4, v);
            tally_rows(j.tally, tally, item, voxel, 16 * group + lane % 4 * 4, v);
        }
    }
    struct tally_block k = {0, 1, 16, item, (int)blockIdx.x, j.tally.counters, (int)(gridDim.x * gridDim.z)};
    tally_finish<WARPS>(j.tally, tally, k);
}

/* Blocks along the tiles, if `others` share the GPU with them. */
static int one_blocks(int tiles, int others)
{
    int most = divide_up(tiles, WARPS), blocks = 2 * MULTIPROCESSORS / others;
    blocks = blocks > 1 ? blocks : 1;
    return blocks < most ? blocks : most;
}

int one_pass(struct conv_pass *p)
{
    struct conv *v = p->v;
    struct one_job j = {};
    j.voxels = (int)volume_item(v->in);
    j.tiles = divide_up(j.voxels, ROWS);
    j.from = p->from;
    j.to = p->to;
    j.weights = (const uint4 *)v->packed[p->backward];
    j.chunks = divide_up(p->from.c, 16);
    j.groups = divide_up(p->to.c, 16);
    if (j.groups > 1)
        p->tally.kind = TALLY_NONE;
    int blocks = one_blocks(j.tiles, p->n);
    j.tally = tally_ready(p, 0, blocks);
    return cuda_start(one_multiply, dim3(blocks, 1, p->n), THREADS, 0, v->context->stream, j);
}

/* ---- weight -------------------------------------------------------------------------------------------- */

struct one_weight_job {
    int voxels, tiles;    /* of an item */
    struct divisor by_tiles;
    int items, chunks, groups;
    struct reader x, dy;
    float *partial;       /* (parts, 16 chunks + 1, 16 groups): the last row is that of the bias */
};

/* Two tiles of rows: sixteen voxels run inside. */
__device__ __forceinline__ void multiply_turned(float (&acc)[2][4], const uint2 &x0, const uint2 &x8,
                                                const uint2 &y0, const uint2 &y8)
{
    const uint32_t a[4] = {tile_turn(x0.x), tile_turn(x0.y), tile_turn(x8.x), tile_turn(x8.y)};
    tile_multiply(acc[0], a, tile_turn(y0.x), tile_turn(y8.x));
    tile_multiply(acc[1], a, tile_turn(y0.y), tile_turn(y8.y));
}

/* The block's sums of 12 numbers a lane, over the warps, in order; warp 0 gets them. */
__device__ __forceinline__ void add_warps(float (&v)[12])
{
    __shared__ float all[WARPS][12][32];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 12; i++)
        all[warp][i][lane] = v[i];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 12; i++)
        for (int w = 1; w < WARPS; w++)
            v[i] += all[w][i][lane];
}

/* In order: rows 4(g/2) + g%2 of the chunk and the second next, four columns each; the bias. */
__device__ __forceinline__ void write_part(const struct one_weight_job &j, const float (&v)[12], int chunk,
                                           int group)
{
    int lane = threadIdx.x % 32, row = 16 * chunk + lane / 8 * 4 + lane / 4 % 2, cols = 16 * j.groups;
    float *to = j.partial + (int64_t)blockIdx.x * (16 * j.chunks + 1) * cols + 16 * group + lane % 4 * 4;
    *(float4 *)(to + row * cols) = make_float4(v[0], v[1], v[4], v[5]);
    *(float4 *)(to + (row + 2) * cols) = make_float4(v[2], v[3], v[6], v[7]);
    if (chunk == 0 && lane < 4)
        *(float4 *)(to + 16 * j.chunks * cols) = make_float4(v[8], v[9], v[10], v[11]);
}

__global__ void __launch_bounds__(THREADS, 2)
    one_weight_multiply(const __grid_constant__ struct one_weight_job j)
{
    int lane = threadIdx.x % 32, chunk = blockIdx.y % j.chunks, group = blockIdx.y / j.chunks;
    float acc[2][4] = {}, bias[4] = {}, v[12];
    for (int t = blockIdx.x * WARPS + threadIdx.x / 32; t < j.tiles * j.items; t += gridDim.x * WARPS) {
        int item = divide(t, j.by_tiles), voxel[EACH];
        uint2 x[EACH], y[EACH];
        lane_voxels(voxel, j.voxels, item, t - item * j.tiles);
        read_fours(x, j.x, item, voxel, 16 * chunk + lane % 4 * 4);
        read_fours(y, j.dy, item, voxel, 16 * group + lane % 4 * 4);
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            bias[0] += bf16_low(y[i].x);
            bias[1] += bf16_high(y[i].x);
            bias[2] += bf16_low(y[i].y);
            bias[3] += bf16_high(y[i].y);
        }
#pragma unroll
        for (int i = 0; i < EACH; i += 2)
            multiply_turned(acc, x[i], x[i + 1], y[i], y[i + 1]);
    }
#pragma unroll
    for (int i = 0; i < 8; i++)
        v[i] = acc[i / 4][i % 4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        v[8 + i] = over_rows(bias[i]);
    add_warps(v);
    if (threadIdx.x < 32)
        write_part(j, v, chunk, group);
}

int one_weight(struct weight_pass *p)
{
    struct conv *v = p->v;
    struct one_weight_job j = {};
    j.voxels = (int)volume_item(v->in);
    j.tiles = divide_up(j.voxels, ROWS);
    j.by_tiles = divisor_of(j.tiles);
    j.items = p->n;
    j.chunks = divide_up(v->s.c_in, 16);
    j.groups = divide_up(v->s.c_out, 16);
    j.x = p->x;
    j.dy = p->dy;
    j.partial = p->partial;
    p->parts = one_blocks(j.tiles * p->n, j.chunks * j.groups);
    p->rows = 16 * j.chunks + 1;
    p->cols = 16 * j.groups;
    return cuda_start(one_weight_multiply, dim3(p->parts, j.chunks * j.groups), THREADS, 0,
                      v->context->stream, j);
}

size_t one_bytes(const struct conv *v)
{
    size_t chunks = (size_t)divide_up(v->s.c_in, 16), groups = (size_t)divide_up(v->s.c_out, 16);
    size_t weight = 2 * MULTIPROCESSORS * (16 * chunks + 1) * 16 * groups * sizeof(float);
    size_t tally = tally_bytes(16, v->in.n, 2 * MULTIPROCESSORS);
    return weight > tally ? weight : tally;
}
