/* conv_first.cu - 3x3x3 convolutions of one channel, the first layer of a network, on tensor cores.
 *
 * With one channel the inner index of the product is the tap. A block's tile is 4 x 8 x 16 voxels, a warp's
 * 2 x 4 x 16: rows are 16 voxels in x at 8 places, as in conv_three.cu. The tile with its border holds single
 * numbers, two of them to a word of shared memory, and everything is kept twice: once from number 0 on, once
 * from number 1 on. So two neighbours are one word wherever they begin:
 *
 *     even   |0 1|2 3|4 5|...          a pair that begins at 3 is word 1 of odd
 *     odd    |1 2|3 4|5 6|...
 *
 * Forward: the inner index of a product is (4 lines in y, 4 numbers in x), the last of both with weight 0;
 * three products, one for each plane, and planes are shared by neighbours in z. The weight gradient is
 *
 *     dW(tap, o) = sum over voxels of  a(v + tap) dy(v, o)          taps are rows, voxels run inside
 */
#include "device/cuda/three.cuh"

enum {
    BOX_Z = 6,
    BOX_Y = 10,
    BOX_X = 18,
    LINE = 10, /* words */
    PLANE = LINE * BOX_Y,
    ODD = PLANE * BOX_Z + 13, /* from even to odd: room for a line behind the last, and no bank conflicts */
    WORDS = 2 * ODD
};

/* What is behind the end of a line is multiplied by 0, but must be a number. */
__device__ __forceinline__ void clear_tile(uint32_t *tile)
{
    for (int i = threadIdx.x; i < WORDS; i += THREE_THREADS)
        tile[i] = 0;
}

enum { COUNT = BOX_Z * BOX_Y * BOX_X, BATCH = (COUNT + THREE_THREADS - 1) / THREE_THREADS };

/* The voxel of number i of a tile, or -1. */
__device__ __forceinline__ int tile_voxel(const struct volume &v, const struct corner &at, int i)
{
    struct corner c = {at.item, at.z + i / (BOX_X * BOX_Y), at.y + i / BOX_X % BOX_Y, at.x + i % BOX_X};
    int inside = i < COUNT && (unsigned)c.z < (unsigned)v.d && (unsigned)c.y < (unsigned)v.h &&
                 (unsigned)c.x < (unsigned)v.w;
    return inside ? voxel_at(v, c) : -1;
}

/* A thread's numbers of a tile, all loads in flight. An image has no norm; what has takes its time. */
__device__ __forceinline__ void load_tile(float (&a)[BATCH], const struct volume &v, const struct corner &at,
                                          const struct reader &r)
{
    int plain = r.kind == READ_ONE && r.f32[0] && !r.scale[0];
#pragma unroll
    for (int k = 0; k < BATCH; k++) {
        int voxel = tile_voxel(v, at, threadIdx.x + k * THREE_THREADS);
        a[k] = 0.0f;
        if (plain && voxel >= 0)
            a[k] = __ldg((const float *)r.from[0] + voxel);
    }
    if (plain)
#pragma unroll
        for (int k = 0; k < BATCH; k++)
            a[k] = larger(a[k], r.floor[0]);
    else
#pragma unroll 1
        for (int k = 0; k < BATCH; k++) {
            int voxel = tile_voxel(v, at, threadIdx.x + k * THREE_THREADS);
            float number = voxel >= 0 ? read_single(r, at.item, voxel, 0) : 0.0f;
#pragma unroll
            for (int i = 0; i < BATCH; i++)
                a[i] = i == k ? number : a[i];
        }
}

__device__ __forceinline__ void fill_tile(uint32_t *tile, const float (&a)[BATCH])
{
    unsigned short *even = (unsigned short *)tile, *odd = (unsigned short *)(tile + ODD);
#pragma unroll
    for (int k = 0; k < BATCH; k++) {
        int i = threadIdx.x + k * THREE_THREADS, to = i / BOX_X * (2 * LINE) + i % BOX_X;
        unsigned short number = (unsigned short)bf16_pair(a[k], 0.0f);
        if (i >= COUNT)
            continue;
        even[to] = number;
        if (to > 0)
            odd[to - 1] = number;
    }
}

/* ---- forward ------------------------------------------------------------------------------------------- */

__device__ __forceinline__ void multiply_lines(float (&acc)[US][VS][2][4], const uint32_t *at,
                                               const uint4 *weights)
{
    uint4 w[3];
#pragma unroll
    for (int i = 0; i < 3; i++)
        w[i] = __ldg(weights + 32 * i);
#pragma unroll
    for (int v = 0; v < VS; v++)
#pragma unroll
        for (int u = 0; u < US + 2; u++) {
            const uint32_t *from = at + u * PLANE + v * LINE;
            const uint32_t a[4] = {from[0], from[4], from[2 * LINE], from[2 * LINE + 4]};
#pragma unroll
            for (int t = 0; t < 3; t++) {
                if (u - t < 0 || u - t >= US)
                    continue;
                tile_multiply(acc[u - t][v][0], a, w[t].x, w[t].y);
                tile_multiply(acc[u - t][v][1], a, w[t].z, w[t].w);
            }
        }
}

__global__ void __launch_bounds__(THREE_THREADS, 3) first_multiply(const __grid_constant__ struct three_job j)
{
    SHARED_MEMORY(memory);
    uint32_t *tile = (uint32_t *)memory;
    int lane = threadIdx.x % 32, g = lane / 4, q = lane % 4, item = blockIdx.z, group = blockIdx.y;
    struct corner w = warp_corner(j.p, threadIdx.x / 32);
    const uint32_t *from = tile + w.z * PLANE + w.y * LINE + g % 2 * ODD + g / 2 + q % 2 + q / 2 * LINE;
    struct lane_tally<4> *tally = tally_start<4, THREE_THREADS>();
    clear_tile(tile);
    for (int t = blockIdx.x; t < j.p.tiles; t += gridDim.x) {
        struct corner at = tile_corner(j.p, item, t);
        float acc[US][VS][2][4] = {}, v[THREE_ROWS][4], a[BATCH];
        int voxel[THREE_ROWS];
        load_tile(a, j.v, border_corner(at), j.from);
        __syncthreads();
        fill_tile(tile, a);
        __syncthreads();
        multiply_lines(acc, from, j.weights + 96 * group + lane);
        lane_rows(v, acc);
        at.z += w.z;
        at.y += w.y;
        lane_voxels(voxel, j, at);
        put_rows(j.to, voxel, lane_channel(group), v);
        tally_rows(j.tally, tally, item, voxel, lane_channel(group), v);
    }
    struct tally_block k = {
        16 * group, 1, 16, item, (int)blockIdx.x, j.tally.counters + group, (int)(gridDim.x * gridDim.z)};
    tally_finish<THREE_WARPS>(j.tally, tally, k);
}

struct three_plan first_plan(const struct volume &v, int c_out)
{
    struct three_plan p = {};
    p.pz = p.py = p.wx = p.wn = 1;
    p.px = 16;
    p.log_px = 4;
    p.wz = p.wy = 2;
    p.tz = BOX_Z - 2;
    p.ty = BOX_Y - 2;
    p.tx = BOX_X - 2;
    p.nz = divide_up(v.d, p.tz);
    p.ny = divide_up(v.h, p.ty);
    p.nx = divide_up(v.w, p.tx);
    p.tiles = p.nz * p.ny * p.nx;
    p.by_tiles = divisor_of(p.tiles);
    p.by_ny = divisor_of(p.ny);
    p.by_nx = divisor_of(p.nx);
    p.out = box_make(p.tz, p.ty, p.tx, p.tx, p.tx * p.ty);
    p.chunks = p.splits = 1;
    p.groups = divide_up(c_out, 16);
    return p;
}

/* Blocks along the tiles of an item, if `items` share the GPU; `each` fit on a multiprocessor. */
static int first_blocks(const struct three_plan &p, int items, int each)
{
    int blocks = each * MULTIPROCESSORS / (p.groups * items);
    blocks = blocks > 1 ? blocks : 1;
    return blocks < p.tiles ? blocks : p.tiles;
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
    int blocks = first_blocks(j.p, p->n, 3);
    j.tally = tally_ready(p, 0, blocks);
    return cuda_start(first_multiply, dim3(blocks, j.p.groups, p->n), THREE_THREADS, 4 * (size_t)WORDS,
                      v->context->stream, j);
}

/* ---- weight -------------------------------------------------------------------------------------------- */

struct first_weight_job {
    struct three_plan p;
    struct volume v;
    struct reader x, dy;
    float *partial; /* (parts, 27, 16 groups) */
};

/* Where a lane finds two voxels in x for a tap. */
__device__ __forceinline__ int tap_word(int tap, int q)
{
    tap = tap < 27 ? tap : 0; /* those that fill up may be any */
    return tap / 9 * PLANE + tap / 3 % 3 * LINE + q + (tap % 3 == 1 ? ODD : tap % 3 / 2);
}

__device__ __forceinline__ void write_taps(const struct first_weight_job &j, const float (&acc)[2][2][4])
{
    int lane = threadIdx.x % 32, cols = 16 * j.p.groups, part = blockIdx.x * THREE_WARPS + threadIdx.x / 32;
    float *to = j.partial + (int64_t)part * 27 * cols + 16 * blockIdx.y;
#pragma unroll
    for (int k = 0; k < 8; k++) { /* (16 taps, eight of them, tile of columns) */
        int tap = k / 4 * 16 + k / 2 % 2 * 8 + lane / 4;
        const float *d = acc[k / 4][k % 2] + k / 2 % 2 * 2;
        if (tap < 27)
            *(float2 *)(to + tap * cols + k % 2 * 8 + lane % 4 * 2) = make_float2(d[0], d[1]);
    }
}

__global__ void __launch_bounds__(THREE_THREADS, 4)
    first_weight_multiply(const __grid_constant__ struct first_weight_job j)
{
    SHARED_MEMORY(memory);
    const struct box &o = j.p.out;
    uint4 *dy = (uint4 *)memory;
    struct place *places = (struct place *)(dy + box_words(o));
    uint32_t *tile = (uint32_t *)(places + places_length(o.count, THREE_THREADS));
    int lane = threadIdx.x % 32;
    struct corner w = warp_corner(j.p, threadIdx.x / 32);
    const uint32_t *from = tile + w.z * PLANE + w.y * LINE;
    int word[4];
    uint32_t dy_at = shared_address(dy + w.z * o.plane + w.y * o.line + lane % 16 + lane / 16 * o.half);
    float acc[2][2][4] = {};
#pragma unroll
    for (int m = 0; m < 4; m++)
        word[m] = tap_word(8 * m + lane / 4, lane % 4);
    clear_tile(tile);
    for (int t = blockIdx.x; t < j.p.tiles * j.v.n; t += gridDim.x) {
        int item = divide(t, j.p.by_tiles);
        struct corner at = tile_corner(j.p, item, t - item * j.p.tiles);
        float a[BATCH];
        box_places(places, o, j.v, at, THREE_THREADS);
        load_tile(a, j.v, border_corner(at), j.x);
        __syncthreads();
        fill_tile(tile, a);
        fill(dy, o.half, places, o.count, j.dy, item, 16 * blockIdx.y, THREE_THREADS);
        __syncthreads();
#pragma unroll
        for (int i = 0; i < US * VS; i++) {
            const uint32_t *row = from + i / VS * PLANE + i % VS * LINE;
            uint32_t g[4];
            tile_load_turned(g, dy_at + 16 * (i / VS * o.plane + i % VS * o.line));
#pragma unroll
            for (int m = 0; m < 2; m++) {
                const uint32_t *r0 = row + word[2 * m], *r1 = row + word[2 * m + 1];
                const uint32_t a[4] = {r0[0], r1[0], r0[4], r1[4]};
                tile_multiply(acc[m][0], a, g[0], g[1]);
                tile_multiply(acc[m][1], a, g[2], g[3]);
            }
        }
    }
    write_taps(j, acc);
}

static int weight_blocks(const struct three_plan &p, int n)
{
    int blocks = 4 * MULTIPROCESSORS / p.groups;
    blocks = blocks > 1 ? blocks : 1;
    return blocks < p.tiles * n ? blocks : p.tiles * n;
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
    j.partial = p->partial;
    int blocks = weight_blocks(j.p, p->n);
    p->parts = blocks * THREE_WARPS;
    p->rows = 1;
    p->cols = 16 * j.p.groups;
    size_t places = sizeof(struct place) * (size_t)places_length(j.p.out.count, THREE_THREADS);
    size_t shared = 16 * (size_t)box_words(j.p.out) + places + 4 * (size_t)WORDS;
    return cuda_start(first_weight_multiply, dim3(blocks, j.p.groups), THREE_THREADS, shared, p->stream, j);
}

size_t first_bytes(const struct conv *v)
{
    return tally_bytes(16 * v->forward.groups, v->in.n, v->forward.tiles);
}

size_t first_weight_bytes(const struct conv *v)
{
    size_t parts = (size_t)weight_blocks(v->weight, v->in.n) * THREE_WARPS;
    return parts * 27 * 16 * (size_t)v->weight.groups * sizeof(float);
}
