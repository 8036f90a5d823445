/* conv_three.cu - 3x3x3 convolutions and their gradient of the input, on tensor cores.
 *
 * A block brings a tile of voxels with a border of one into shared memory (fill.cuh), 16 channels at a
 * time, and multiplies it by the weights of all 27 taps. What limits this is reading shared memory, so a
 * warp reuses what it has read. Its work is 8 x 16 voxels times 16 columns: a pattern of 16 voxels, the
 * rows of a product, moved to 2 places in z and 4 in y:
 *
 *     pattern 1 x 2 x 8:        x x x x x x x x      place v = 0      a tap's input for place v is that of
 *                               . . . . . . . .      places 1, 2, 3   another tap for place v + 1
 *                               x x x x x x x x
 *                               . . . . . . . .
 *
 * Taken once from shared memory, the rows at one of 4 x 6 places (with border) and one of 3 shifts in x
 * are multiplied for up to 9 pairs of (place, tap): 72 reads for 216 products of two tiles each. The
 * weights of the nine taps of a shift stay in registers; they are packed as the lanes want them:
 *
 *     (chunk of 16 inputs, group of 16 outputs, tap x, tap z, tap y, lane): 16 bytes, two tiles of B
 *
 * Column 2q + j of tile t is output 4q + 2t + j, so that a lane ends up with four channels in a row.
 *
 * The pattern, the arrangement of the warps and the padding of lines (no bank conflicts) are searched for
 * each shape: small volumes want other tiles than large ones. If there are too few tiles to fill the GPU,
 * the chunks are split over blocks, and their sums are added by another kernel.
 */
#include "device/cuda/three.cuh"

/* 27 taps of one chunk: rows at `address`, weights at `w`. */
__device__ __forceinline__ void multiply_chunk(float acc[US][VS][2][4], uint32_t address, uint32_t plane,
                                               uint32_t line, const uint4 *w)
{
#pragma unroll
    for (int shift = 0; shift < 3; shift++) {
        uint4 b[9];
#pragma unroll
        for (int t = 0; t < 9; t++)
            b[t] = __ldg(w + (shift * 9 + t) * 32);
#pragma unroll
        for (int u = 0; u < US + 2; u++)
#pragma unroll
            for (int v = 0; v < VS + 2; v++) {
                uint32_t a[4];
                tile_load(a, address + 16 * shift + u * plane + v * line);
#pragma unroll
                for (int t = 0; t < 9; t++) {
                    int pu = u - t / 3, pv = v - t % 3;
                    if (pu < 0 || pu >= US || pv < 0 || pv >= VS)
                        continue;
                    tile_multiply(acc[pu][pv][0], a, b[t].x, b[t].y);
                    tile_multiply(acc[pu][pv][1], a, b[t].z, b[t].w);
                }
            }
    }
}

/* ---- kernel -------------------------------------------------------------------------------------------- */

__global__ void __launch_bounds__(THREE_THREADS, 3) three_multiply(const __grid_constant__ struct three_job j)
{
    SHARED_MEMORY(memory);
    uint4 *tile = (uint4 *)memory;
    const struct three_plan &p = j.p;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int position = warp / p.wn, group = blockIdx.y * p.wn + warp % p.wn;
    struct corner out = tile_corner(p, blockIdx.x), in = {out.item, out.z - 1, out.y - 1, out.x - 1};
    struct corner warp_at = warp_corner(p, position);
    struct corner at = {out.item, out.z + warp_at.z, out.y + warp_at.y, out.x + warp_at.x};
    uint32_t address = shared_address(tile + pattern_word(p, p.in, warp_at, lane % 16) +
                                      lane / 16 * p.in.half);
    int chunk = p.chunks * blockIdx.z / p.splits, end = p.chunks * (blockIdx.z + 1) / p.splits;
    float acc[US][VS][2][4] = {};
    for (int first = chunk; chunk < end; chunk++) {
        if (chunk > first)
            __syncthreads();
        fill_box(tile, p.in, j.v, in, j.from, 16 * chunk, threadIdx.x, THREE_THREADS);
        __syncthreads();
        if (group < p.groups)
            multiply_chunk(acc, address, 16 * p.in.plane, 16 * p.in.line,
                           j.weights + (int64_t)(chunk * p.groups + group) * (27 * 32) + lane);
    }
    if (group < p.groups)
        write_results(j, acc, at, group, blockIdx.x * (THREE_WARPS / p.wn) + position);
}

/* ---- plans --------------------------------------------------------------------------------------------- */

/* How many of 8 rows of the pattern meet in a bank, at worst: 1 is none. */
static int conflicts(const struct three_plan &p, int line, int plane)
{
    int worst = 1;
    for (int half = 0; half < 16; half += 8) {
        int n[8] = {0};
        for (int row = half; row < half + 8; row++) {
            struct corner v = pattern_voxel(p, row);
            int bank = (v.z * plane + v.y * line + v.x) % 8;
            n[bank]++;
            worst = n[bank] > worst ? n[bank] : worst;
        }
    }
    return worst;
}

/* A box with the least padding among those with the fewest conflicts. */
static struct box padded_box(const struct three_plan &p, int z, int y, int x, int *worst)
{
    struct box best = box_make(z, y, x, x, x * y);
    *worst = conflicts(p, x, x * y);
    for (int a = 0; a < 8 && *worst > 1; a++)
        for (int b = 0; b < 8; b++) {
            int line = x + a, plane = y * line + b, c = conflicts(p, line, plane);
            if (c < *worst) {
                *worst = c;
                best = box_make(z, y, x, line, plane);
            }
        }
    return best;
}

enum { LONGEST_BOX = 4096, MOST_SHARED = 72 << 10 }; /* so that three blocks fit, or two of the weight's */

/* What a block costs for a chunk, in clock ticks: products (432 a warp; the weight gradient has six warps
 * with 144), filling, and half of the time in which its bytes come from the second cache, 24 in a tick:
 * weights, 13824 for each group, and voxels. */
static double cost_of(const struct three_plan &p, const struct volume &v, int weight, int worst)
{
    double tiles = (double)p.nz * p.ny * p.nx * v.n, blocks = tiles * divide_up(p.groups, p.wn);
    double words = p.in.count + (weight ? (double)p.out.count * p.wn : 0);
    double bytes = 32 * words + (weight ? 0 : 13824.0 * p.wn);
    double multiply = (weight ? 1380.0 : 2760.0) * (worst > 1 ? 0.7 + 0.3 * worst : 1.0);
    return blocks * p.chunks * (multiply + words + bytes / 48);
}

/* Completes a plan whose pattern and warps are chosen; 0 if it does not fit. */
static double complete(struct three_plan *p, const struct volume &v, int weight)
{
    int worst, worst_out;
    p->tz = US * p->pz * p->wz;
    p->ty = VS * p->py * p->wy;
    p->tx = p->px * p->wx;
    p->nz = divide_up(v.d, p->tz);
    p->ny = divide_up(v.h, p->ty);
    p->nx = divide_up(v.w, p->tx);
    p->in = padded_box(*p, p->tz + 2, p->ty + 2, p->tx + 2, &worst);
    p->out = padded_box(*p, p->tz, p->ty, p->tx, &worst_out);
    int words = box_words(p->in) + (weight ? p->wn * box_words(p->out) : 0);
    if (p->in.count >= LONGEST_BOX || 16 * words > MOST_SHARED)
        return 0;
    return cost_of(*p, v, weight, worst > worst_out || !weight ? worst : worst_out);
}

static void split_chunks(struct three_plan *p, const struct volume &v)
{
    int64_t blocks = (int64_t)p->nz * p->ny * p->nx * v.n * divide_up(p->groups, p->wn);
    int64_t wanted = (CONV_BLOCKS + blocks - 1) / blocks;
    p->splits = wanted < p->chunks ? (int)wanted : p->chunks;
}

struct three_plan three_plan(const struct volume &v, int c_in, int c_out, int weight)
{
    struct three_plan best = {}, p = {};
    int warps = weight ? 2 : THREE_WARPS;
    double least = 0;
    p.chunks = divide_up(c_in, 16);
    p.groups = divide_up(c_out, 16);
    for (int i = 0; i < 5 * 5 * 3 * 3 * 3; i++) { /* powers of two: pattern z, y; warps n, z, y */
        p.pz = 1 << i % 5;
        p.py = 1 << i / 5 % 5;
        p.wn = 1 << i / 25 % 3;
        p.wz = 1 << i / 75 % 3;
        p.wy = 1 << i / 225;
        if (p.pz * p.py > 16 || p.wn * p.wz * p.wy > warps || p.wn >= 2 * p.groups)
            continue;
        p.px = 16 / (p.pz * p.py);
        p.wx = warps / (p.wn * p.wz * p.wy);
        double cost = complete(&p, v, weight);
        if (cost > 0 && (least == 0 || cost < least)) {
            least = cost;
            best = p;
        }
    }
    split_chunks(&best, v);
    return best;
}

/* Numbers of all splits of a pass. */
static size_t split_floats(const struct three_plan &p, const struct volume &v)
{
    return (size_t)p.splits * (size_t)volume_voxels(v) * 16 * (size_t)p.groups;
}

/* ---- running ------------------------------------------------------------------------------------------- */

int three_pass(struct conv_pass *p)
{
    struct conv *v = p->v;
    struct cuda_context *c = v->context;
    struct three_job j = {};
    j.p = p->backward ? v->data : v->forward;
    j.v = v->in;
    j.v.n = p->n;
    j.from = p->from;
    j.to = p->to;
    j.weights = (const uint4 *)v->packed[p->backward];
    int tiles = j.p.nz * j.p.ny * j.p.nx * p->n;
    if (j.p.splits > 1)
        j.partial = (float *)c->scratch;
    else
        j.moments = p->moments;
    j.regions = p->regions = j.moments ? tiles * (THREE_WARPS / j.p.wn) : 0;
    dim3 grid(tiles, divide_up(j.p.groups, j.p.wn), j.p.splits);
    int e = cuda_start(three_multiply, grid, THREE_THREADS, 16 * (size_t)box_words(j.p.in), c->stream, j);
    if (e || !j.partial)
        return e;
    if (p->moments) /* the splits come first in scratch */
        p->moments += split_floats(j.p, j.v) / 4;
    return splits_join(c, j.partial, j.p.splits, volume_voxels(j.v), 16 * j.p.groups, j.to, p->moments,
                       &p->regions);
}

/* Scratch of a pass: splits and their moments, or moments. */
static size_t pass_bytes(const struct three_plan &p, const struct volume &v)
{
    size_t splits = split_floats(p, v) * sizeof(float) + splits_bytes(volume_voxels(v), 16 * p.groups);
    size_t regions = (size_t)p.nz * p.ny * p.nx * v.n * (THREE_WARPS / p.wn);
    size_t moments = regions * 16 * (size_t)p.groups * sizeof(float4);
    return p.splits > 1 ? splits : moments;
}

size_t three_bytes(const struct conv *v)
{
    size_t forward = pass_bytes(v->forward, v->in), data = pass_bytes(v->data, v->in);
    return forward > data ? forward : data;
}
