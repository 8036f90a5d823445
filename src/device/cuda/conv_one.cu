/* conv_one.cu - CONV_1 in all directions, on tensor cores. Its layers are the heads of a network: few
 * channels, many voxels, so all that counts is to read and write without detours.
 *
 * Rows are voxels. A lane takes four channels in a row, 4q .. 4q+3, of eight voxels: two words of bf16 pairs,
 * which are operands of a product as they are, with weights packed in the same order:
 *
 *     forward, dx    rows of A: voxels g and g + 8;  k: the channels;   columns dealt out as in conv_three.cu
 *     dweight        rows of A: channels of x;       k: the voxels;     columns: channels of dy
 *
 * For the last one 8 x 8 numbers are turned within the registers of a warp (tile_turn). Sums of dy, for the
 * gradient of the bias, come along.
 */
#include "device/cuda/conv_int.cuh"

enum {
    WARPS = 8,
    THREADS = 32 * WARPS,
    EACH = 8,       /* rows of a lane; a warp has eight times as many */
    WEIGHT_EACH = 4 /* likewise, of the weight gradient */
};

/* ---- reading ------------------------------------------------------------------------------------------- */

/* Four numbers of each of a lane's N voxels, as they are stored: loaded first, all at once, used later. */
template <int N> struct fours {
    uint4 x[N], y[N];
};

enum { PAIRS, FLOATS, SOME_BF16, SOME_F32 }; /* two words of pairs; four floats; what there is, as floats */

template <int HOW> __device__ __forceinline__ uint4 load_four(const char *from, int n)
{
    uint32_t u[4] = {0, 0, 0, 0};
    if (HOW == PAIRS && n > 0) {
        uint2 w = __ldg((const uint2 *)from);
        return make_uint4(w.x, w.y, 0, 0);
    }
    if (HOW == FLOATS && n > 0)
        return __ldg((const uint4 *)from);
#pragma unroll
    for (int k = 0; k < 4; k++) {
        if (HOW == SOME_BF16 && k < n)
            u[k] = (uint32_t)__ldg((const unsigned short *)from + k) << 16;
        if (HOW == SOME_F32 && k < n)
            u[k] = __ldg((const uint32_t *)from + k);
    }
    return make_uint4(u[0], u[1], u[2], u[3]);
}

template <int HOW, int N>
__device__ __forceinline__ void load_rows(uint4 (&to)[N], const struct reader &r, const void *from,
                                          const int (&voxel)[N], int channel)
{
    const int size = HOW == PAIRS || HOW == SOME_BF16 ? 2 : 4;
    const char *first = (const char *)from + size * channel;
#pragma unroll
    for (int i = 0; i < N; i++)
        to[i] = load_four<HOW>(row_at(first, voxel[i], size * r.c), voxel[i] >= 0 ? r.c - channel : 0);
}

/* Channels `channel` .. +3 of source i. */
template <int N>
__device__ __forceinline__ void load_source(uint4 (&to)[N], const struct reader &r, int i,
                                            const int (&voxel)[N], int channel)
{
    if (r.quads == QUADS_BF16)
        load_rows<PAIRS>(to, r, r.from[i], voxel, channel);
    else if (r.quads == QUADS_F32)
        load_rows<FLOATS>(to, r, r.from[i], voxel, channel);
    else if (r.f32[i])
        load_rows<SOME_F32>(to, r, r.from[i], voxel, channel);
    else
        load_rows<SOME_BF16>(to, r, r.from[i], voxel, channel);
}

template <int N>
__device__ __forceinline__ void load_fours(struct fours<N> &f, const struct reader &r, const int (&voxel)[N],
                                           int channel)
{
    load_source(f.x, r, 0, voxel, channel);
    if (r.kind != READ_ONE)
        load_source(f.y, r, 1, voxel, channel);
}

/* Number k of four that were loaded. */
template <int PAIRED> __device__ __forceinline__ float open_four(const uint4 &u, int k)
{
    const uint32_t w[4] = {u.x, u.y, u.z, u.w};
    return !PAIRED ? __uint_as_float(w[k]) : k % 2 ? bf16_high(w[k / 2]) : bf16_low(w[k / 2]);
}

template <int KIND, int PAIRED, int N>
__device__ __forceinline__ void open_rows(uint2 (&to)[N], const struct fours<N> &f, const struct reader &r,
                                          int item, const int (&voxel)[N], int channel)
{
    float t[READ_TABLES][4];
    read_tables<KIND>(t, r, item, channel, r.quads != QUADS_NONE);
#pragma unroll
    for (int i = 0; i < N; i++) {
        float v[4];
#pragma unroll
        for (int k = 0; k < 4; k++)
            v[k] = read_one<KIND>(open_four<PAIRED>(f.x[i], k), open_four<PAIRED>(f.y[i], k), t, k, r.floor);
        to[i] = voxel[i] < 0 ? make_uint2(0, 0) : make_uint2(bf16_pair(v[0], v[1]), bf16_pair(v[2], v[3]));
    }
}

template <int KIND, int N>
__device__ __forceinline__ void open_kind(uint2 (&to)[N], const struct fours<N> &f, const struct reader &r,
                                          int item, const int (&voxel)[N], int channel)
{
    if (r.quads == QUADS_BF16)
        open_rows<KIND, 1>(to, f, r, item, voxel, channel);
    else
        open_rows<KIND, 0>(to, f, r, item, voxel, channel);
}

/* What was loaded, through the formula. */
template <int N>
__device__ __forceinline__ void open_fours(uint2 (&to)[N], const struct fours<N> &f, const struct reader &r,
                                           int item, const int (&voxel)[N], int channel)
{
    if (r.kind == READ_ONE)
        open_kind<READ_ONE>(to, f, r, item, voxel, channel);
    else if (r.kind == READ_TWO)
        open_kind<READ_TWO>(to, f, r, item, voxel, channel);
    else
        open_kind<READ_GRAD>(to, f, r, item, voxel, channel);
}

/* Voxels lane/4 + 8i of a tile of 8 N of an item; -1 behind the last. */
template <int N> __device__ __forceinline__ void lane_voxels(int (&voxel)[N], int voxels, int item, int tile)
{
#pragma unroll
    for (int i = 0; i < N; i++) {
        int at = (tile * N + i) * 8 + threadIdx.x % 32 / 4;
        voxel[i] = at < voxels ? item * voxels + at : -1;
    }
}

/* ---- forward and dx ------------------------------------------------------------------------------------ */

struct one_job {
    int voxels, tiles; /* of an item */
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
                int channel = 16 * chunk + lane % 4 * 4;
                if (group == 0 || j.chunks > 1) {
                    struct fours<EACH> f;
                    load_fours(f, j.from, voxel, channel);
                    open_fours(x, f, j.from, item, voxel, channel);
                }
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

/* What would be stored, as the next product wants it. */
__device__ __forceinline__ void pair_rows(uint2 (&x)[EACH], const float (&acc)[EACH / 2][2][4],
                                          const float (&bias)[4])
{
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        float v[4];
#pragma unroll
        for (int k = 0; k < 4; k++)
            v[k] = larger(acc[i / 2][k / 2][i % 2 * 2 + k % 2] + bias[k], 0.0f);
        x[i] = make_uint2(bf16_pair(v[0], v[1]), bf16_pair(v[2], v[3]));
    }
}

struct pair_job {
    struct one_job first; /* of its target only bias and channels count */
    const uint4 *weights;
    struct target to;
};

/* A lane's columns of the first are its channels for the second. */
__global__ void __launch_bounds__(THREADS, 2) one_multiply_pair(const __grid_constant__ struct pair_job j)
{
    int lane = threadIdx.x % 32, item = blockIdx.z, channel = lane % 4 * 4;
    uint4 w1 = __ldg(j.first.weights + lane), w2 = __ldg(j.weights + lane);
    float bias[4];
#pragma unroll
    for (int k = 0; k < 4; k++)
        bias[k] = channel + k < j.first.to.c ? __ldg(j.first.to.bias + channel + k) : 0.0f;
    for (int tile = blockIdx.x * WARPS + threadIdx.x / 32; tile < j.first.tiles; tile += gridDim.x * WARPS) {
        int voxel[EACH];
        uint2 x[EACH];
        struct fours<EACH> f;
        float acc[EACH / 2][2][4] = {}, next[EACH / 2][2][4] = {}, v[EACH][4];
        lane_voxels(voxel, j.first.voxels, item, tile);
        load_fours(f, j.first.from, voxel, channel);
        open_fours(x, f, j.first.from, item, voxel, channel);
        multiply_four(acc, x, w1);
        pair_rows(x, acc, bias);
        multiply_four(next, x, w2);
#pragma unroll
        for (int i = 0; i < EACH; i++)
#pragma unroll
            for (int k = 0; k < 4; k++)
                v[i][k] = next[i / 2][k / 2][i % 2 * 2 + k % 2];
        put_rows(j.to, voxel, channel, v);
    }
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
    j.tiles = divide_up(j.voxels, 8 * EACH);
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

int one_pair(const struct conv_pass *first, const struct conv_pass *second)
{
    struct conv *v = first->v;
    struct pair_job j = {};
    j.first.voxels = (int)volume_item(v->in);
    j.first.tiles = divide_up(j.first.voxels, 8 * EACH);
    j.first.from = first->from;
    j.first.to = first->to;
    j.first.weights = (const uint4 *)v->packed[0];
    j.weights = (const uint4 *)second->v->packed[0];
    j.to = second->to;
    return cuda_start(one_multiply_pair, dim3(one_blocks(j.first.tiles, first->n), 1, first->n), THREADS, 0,
                      v->context->stream, j);
}

/* ---- weight -------------------------------------------------------------------------------------------- */

struct one_weight_job {
    int voxels, tiles; /* of an item */
    struct divisor by_tiles;
    int items, chunks, groups;
    struct reader x, dy;
    float *partial; /* (parts, 16 chunks + 1, 16 groups): the last row is that of the bias */
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

/* blockIdx: a share of the tiles; 16 channels of x; 16 of dy. */
__global__ void __launch_bounds__(THREADS, 2)
    one_weight_multiply(const __grid_constant__ struct one_weight_job j)
{
    int chunk = blockIdx.y, group = blockIdx.z;
    int row = 16 * chunk + threadIdx.x % 4 * 4, column = 16 * group + threadIdx.x % 4 * 4; /* channels */
    float acc[2][4] = {}, bias[4] = {}, v[12];
    for (int t = blockIdx.x * WARPS + threadIdx.x / 32; t < j.tiles * j.items; t += gridDim.x * WARPS) {
        int item = divide(t, j.by_tiles), voxel[WEIGHT_EACH];
        uint2 x[WEIGHT_EACH], y[WEIGHT_EACH];
        lane_voxels(voxel, j.voxels, item, t - item * j.tiles);
        struct fours<WEIGHT_EACH> fx, fy;
        load_fours(fx, j.x, voxel, row);
        load_fours(fy, j.dy, voxel, column);
        open_fours(x, fx, j.x, item, voxel, row);
        open_fours(y, fy, j.dy, item, voxel, column);
#pragma unroll
        for (int i = 0; i < WEIGHT_EACH; i++) {
            bias[0] += bf16_low(y[i].x);
            bias[1] += bf16_high(y[i].x);
            bias[2] += bf16_low(y[i].y);
            bias[3] += bf16_high(y[i].y);
        }
#pragma unroll
        for (int i = 0; i < WEIGHT_EACH; i += 2)
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
    j.tiles = divide_up(j.voxels, 8 * WEIGHT_EACH);
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
    return cuda_start(one_weight_multiply, dim3(p->parts, j.chunks, j.groups), THREADS, 0, p->stream, j);
}

size_t one_bytes(const struct conv *v)
{
    return tally_bytes(16, v->in.n, 2 * MULTIPROCESSORS);
}

size_t one_weight_bytes(const struct conv *v)
{
    size_t chunks = (size_t)divide_up(v->s.c_in, 16), groups = (size_t)divide_up(v->s.c_out, 16);
    size_t parts = 2 * MULTIPROCESSORS / (chunks * groups); /* at most, see one_blocks() */
    return (parts > 1 ? parts : 1) * (16 * chunks + 1) * 16 * groups * sizeof(float);
}
