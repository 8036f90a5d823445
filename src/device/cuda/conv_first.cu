/* conv_first.cu - 3x3x3 convolutions of one channel, the first layer of a network, on tensor cores.
 *
 * With one channel the inner index of the product is the tap: 27, filled up to 32. Tiles and results are
 * those of conv_three.cu with the pattern 1 x 1 x 16, but the tile with its border holds single numbers in
 * shared memory, and a lane collects its rows' neighbours from there. The weight gradient is
 *
 *     dW(tap, o) = sum over voxels of  a(v + tap) dy(v, o)          taps are rows, voxels run inside
 */
#include "device/cuda/three.cuh"

/* Words of the border tile, each one number. */
__device__ void fill_scalars(unsigned short *to, const struct box &b, const struct volume &v,
                             const struct corner &at, const struct reader &r)
{
    enum { BATCH = 9 }; /* loads in flight: a whole tile */
    struct box_places f = {b, v, at};
    for (int first = threadIdx.x; first < b.count; first += BATCH * THREE_THREADS) {
        float a[BATCH];
#pragma unroll
        for (int k = 0; k < BATCH; k++) {
            struct fill_place p = fill_locate(f, first + k * THREE_THREADS);
            a[k] = p.voxel >= 0 ? read_single(r, at.item, p.voxel, 0) : 0.0f;
        }
#pragma unroll
        for (int k = 0; k < BATCH; k++) {
            struct fill_place p = fill_locate(f, first + k * THREE_THREADS);
            if (p.to >= 0)
                to[p.to] = (unsigned short)bf16_pair(a[k], 0.0f);
        }
    }
}

/* Distance of a tap in the tile; taps that fill up have weight 0 and may be any. */
__device__ __forceinline__ int tap_offset(const struct box &b, int tap)
{
    return tap < 27 ? tap / 9 * b.plane + tap / 3 % 3 * b.line + tap % 3 : 0;
}

__device__ __forceinline__ uint32_t two_numbers(const unsigned short *a, const unsigned short *b)
{
    return (uint32_t)*a | (uint32_t)*b << 16;
}

__global__ void __launch_bounds__(THREE_THREADS, 4) first_multiply(const __grid_constant__ struct three_job j)
{
    SHARED_MEMORY(memory);
    unsigned short *tile = (unsigned short *)memory;
    const struct box &b = j.p.in;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = blockIdx.y, q = lane % 4;
    struct corner out = tile_corner(j.p, blockIdx.x), in = {out.item, out.z - 1, out.y - 1, out.x - 1};
    struct corner w = warp_corner(j.p, warp), at = {out.item, out.z + w.z, out.y + w.y, out.x + w.x};
    float acc[US][VS][2][4] = {};
    fill_scalars(tile, b, j.v, in, j.from);
    __syncthreads();
#pragma unroll
    for (int half = 0; half < 2; half++) {
        uint4 weight = __ldg(j.weights + (group * 2 + half) * 32 + lane);
        int tap = 16 * half + 2 * q;
        int o0 = tap_offset(b, tap), o1 = tap_offset(b, tap + 1), o8 = tap_offset(b, tap + 8),
            o9 = tap_offset(b, tap + 9);
#pragma unroll
        for (int i = 0; i < US * VS; i++) {
            const unsigned short *row = tile + (w.z + i / VS) * b.plane + (w.y + i % VS) * b.line + w.x +
                                        lane / 4;
            const uint32_t a[4] = {two_numbers(row + o0, row + o1), two_numbers(row + o0 + 8, row + o1 + 8),
                                   two_numbers(row + o8, row + o9), two_numbers(row + o8 + 8, row + o9 + 8)};
            tile_multiply(acc[i / VS][i % VS][0], a, weight.x, weight.y);
            tile_multiply(acc[i / VS][i % VS][1], a, weight.z, weight.w);
        }
    }
    write_results(j, acc, at, group, blockIdx.x * THREE_WARPS + warp);
}

struct three_plan first_plan(const struct volume &v, int c_out)
{
    struct three_plan p = {};
    p.pz = p.py = p.wx = p.wn = 1;
    p.px = 16;
    p.wz = p.wy = 2;
    p.tz = US * p.wz;
    p.ty = VS * p.wy;
    p.tx = p.px;
    p.nz = divide_up(v.d, p.tz);
    p.ny = divide_up(v.h, p.ty);
    p.nx = divide_up(v.w, p.tx);
    p.in = box_make(p.tz + 2, p.ty + 2, p.tx + 2, p.tx + 2, (p.tx + 2) * (p.ty + 2));
    p.out = box_make(p.tz, p.ty, p.tx, p.tx, p.tx * p.ty);
    p.chunks = p.splits = 1;
    p.groups = divide_up(c_out, 16);
    return p;
}

int first_pass(struct conv_pass *p)
{
    struct conv *v = p->v;
    struct three_job j = {};
    j.p = v->forward;
    j.v = v->in;
    j.v.n = p->n;
    j.from = p->from;
    j.to = p->to;
    j.weights = (const uint4 *)v->packed[0];
    j.moments = p->moments;
    int tiles = j.p.nz * j.p.ny * j.p.nx * p->n;
    j.regions = p->regions = j.moments ? tiles * THREE_WARPS : 0;
    return cuda_start(first_multiply, dim3(tiles, j.p.groups), THREE_THREADS,
                      sizeof(unsigned short) * (size_t)j.p.in.count, v->context->stream, j);
}

/* ---- weight -------------------------------------------------------------------------------------------- */

struct first_weight_job {
    struct three_plan p;
    struct volume v;
    struct reader x, dy;
    int tiles;
    float *partial; /* (parts, 27, 16 groups) */
};

__global__ void __launch_bounds__(THREE_THREADS, 3)
    first_weight_multiply(const __grid_constant__ struct first_weight_job j)
{
    SHARED_MEMORY(memory);
    const struct box &b = j.p.in, &o = j.p.out;
    uint4 *dy = (uint4 *)memory;
    unsigned short *tile = (unsigned short *)(dy + box_words(o));
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = blockIdx.y, cols = 16 * j.p.groups;
    struct corner w = warp_corner(j.p, warp);
    const unsigned short *row = tile + w.z * b.plane + w.y * b.line + w.x + lane % 4 * 2;
    uint32_t dy_at = shared_address(dy + w.z * o.plane + w.y * o.line + w.x + lane % 16 + lane / 16 * o.half);
    float acc[2][2][4] = {};
    for (int t = blockIdx.x; t < j.tiles; t += gridDim.x) {
        struct corner at = tile_corner(j.p, t), in = {at.item, at.z - 1, at.y - 1, at.x - 1};
        __syncthreads();
        fill_scalars(tile, b, j.v, in, j.x);
        fill_box(dy, o, j.v, at, j.dy, 16 * group, threadIdx.x, THREE_THREADS);
        __syncthreads();
#pragma unroll
        for (int i = 0; i < US * VS; i++) {
            uint32_t g[4];
            tile_load_turned(g, dy_at + 16 * (i / VS * o.plane + i % VS * o.line));
#pragma unroll
            for (int m = 0; m < 2; m++) {
                const unsigned short *r = row + i / VS * b.plane + i % VS * b.line;
                const unsigned short *r0 = r + tap_offset(b, 16 * m + lane / 4);
                const unsigned short *r8 = r + tap_offset(b, 16 * m + lane / 4 + 8);
                const uint32_t a[4] = {two_numbers(r0, r0 + 1), two_numbers(r8, r8 + 1),
                                       two_numbers(r0 + 8, r0 + 9), two_numbers(r8 + 8, r8 + 9)};
                tile_multiply(acc[m][0], a, g[0], g[1]);
                tile_multiply(acc[m][1], a, g[2], g[3]);
            }
        }
    }
    float *to = j.partial + (int64_t)(blockIdx.x * THREE_WARPS + warp) * 27 * cols + 16 * group;
#pragma unroll
    for (int k = 0; k < 8; k++) { /* (16 taps, eight of them, tile of columns) */
        int tap = k / 4 * 16 + k / 2 % 2 * 8 + lane / 4;
        const float *d = acc[k / 4][k % 2] + k / 2 % 2 * 2;
        if (tap < 27)
            *(float2 *)(to + tap * cols + k % 2 * 8 + lane % 4 * 2) = make_float2(d[0], d[1]);
    }
}

static int weight_blocks(const struct three_plan &p, int n)
{
    int tiles = p.nz * p.ny * p.nx * n, blocks = 2 * CONV_BLOCKS / p.groups;
    blocks = blocks > 1 ? blocks : 1;
    return blocks < tiles ? blocks : tiles;
}

int first_weight(struct weight_pass *p)
{
    struct conv *v = p->v;
    struct first_weight_job j = {};
    j.p = v->weight;
    j.v = v->in;
    j.v.n = p->n;
    j.x = p->x;
    j.dy = p->dy;
    j.tiles = j.p.nz * j.p.ny * j.p.nx * p->n;
    j.partial = p->partial;
    int blocks = weight_blocks(j.p, p->n);
    p->parts = blocks * THREE_WARPS;
    p->rows = 1;
    p->cols = 16 * j.p.groups;
    size_t shared = 16 * (size_t)box_words(j.p.out) + sizeof(unsigned short) * (size_t)j.p.in.count;
    return cuda_start(first_weight_multiply, dim3(blocks, j.p.groups), THREE_THREADS, shared,
                      v->context->stream, j);
}

size_t first_weight_bytes(const struct conv *v)
{
    size_t parts = (size_t)weight_blocks(v->weight, v->in.n) * THREE_WARPS;
    return parts * 27 * 16 * (size_t)v->weight.groups * sizeof(float);
}
