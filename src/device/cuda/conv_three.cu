/* conv_three.cu - 3x3x3 convolutions and their gradient of the input, on tensor cores.
 *
 * A block brings a tile of voxels with a border of one into shared memory, 16 channels at a time, and
 * multiplies it by the weights of all 27 taps. The operand is laid out first (conv_lay.cu), so a tile is a
 * list of lines to copy, the next one's while this one is multiplied. A warp reuses what it has read from
 * shared memory. Its work is 8 x 16 voxels times 16 columns: a pattern of 16 voxels, the
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
 * the chunks are split over blocks; the last of them adds up the sums of all, in order.
 */
#include "device/cuda/three.cuh"

enum { STAGES = 2 }; /* of boxes: being multiplied, and on its way */

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

/* Sums of all splits, in order, once all are there; 0: they are not, and another block will go on. */
__device__ __forceinline__ int join_splits(const struct three_job &j, float (&v)[THREE_ROWS][4], int unit,
                                           int split)
{
    int splits = j.p.splits;
    float4 *all = j.partial + (int64_t)unit * splits * THREE_ROWS * THREE_THREADS + threadIdx.x;
#pragma unroll
    for (int i = 0; i < THREE_ROWS; i++)
        all[(split * THREE_ROWS + i) * THREE_THREADS] = make_float4(v[i][0], v[i][1], v[i][2], v[i][3]);
    if (!last_block(j.counters + unit, splits))
        return 0;
#pragma unroll
    for (int i = 0; i < THREE_ROWS; i++)
        v[i][0] = v[i][1] = v[i][2] = v[i][3] = 0.0f;
    for (int s = 0; s < splits; s++)
#pragma unroll
        for (int i = 0; i < THREE_ROWS; i++) {
            float4 f = __ldcg(all + (s * THREE_ROWS + i) * THREE_THREADS);
            v[i][0] += f.x;
            v[i][1] += f.y;
            v[i][2] += f.z;
            v[i][3] += f.w;
        }
    return 1;
}

/* What is copied next: a chunk of a tile. */
struct next_box {
    int tile, chunk;
};

__device__ __forceinline__ void start_box(const struct three_job &j, struct next_box &next, uint32_t to,
                                          const struct line *list, int item, int begin, int end)
{
    if (next.tile < j.p.tiles) {
        int block = 2 * (item * j.operand.chunks + next.chunk);
        int first = tile_word(j.laid, tile_corner(j.p, item, next.tile));
        copy_box(to, list, j.p.in, j.operand.at + (int64_t)block * j.laid.words + first, j.laid.words,
                 THREE_THREADS);
        next.chunk++;
    }
    if (next.chunk == end) {
        next.chunk = begin;
        next.tile += gridDim.x;
    }
    copies_end();
}

/* Of n blocks each takes every n-th tile of an item, a range of columns, and a range of chunks. */
__global__ void __launch_bounds__(THREE_THREADS, 3) three_multiply(const __grid_constant__ struct three_job j)
{
    SHARED_MEMORY(memory);
    const struct three_plan &p = j.p;
    uint4 *box = (uint4 *)memory;
    struct line *list = (struct line *)(box + STAGES * box_words(p.in));
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, item = blockIdx.z;
    int columns = divide_up(p.groups, p.wn), column = blockIdx.y % columns, split = blockIdx.y / columns;
    int group = column * p.wn + warp % p.wn, channel = lane_channel(group);
    int begin = p.chunks * split / p.splits, end = p.chunks * (split + 1) / p.splits;
    struct corner warp_at = warp_corner(p, warp / p.wn);
    uint32_t address =
        shared_address(box + pattern_word(p, p.in, warp_at, lane % 16) + lane / 16 * p.in.half);
    struct lane_tally<4> *tally = tally_start<4, THREE_THREADS>();
    struct next_box next = {(int)blockIdx.x, begin};
    int stage = 0, stage_bytes = 16 * box_words(p.in);
    list_lines(list, p.in, j.laid, 0, THREE_THREADS);
    __syncthreads();
    start_box(j, next, shared_address(box), list, item, begin, end);
    for (int tile = blockIdx.x; tile < p.tiles; tile += gridDim.x) {
        struct corner at = tile_corner(p, item, tile);
        float acc[US][VS][2][4] = {}, v[THREE_ROWS][4];
        int voxel[THREE_ROWS];
        for (int chunk = begin; chunk < end; chunk++, stage ^= 1) {
            copies_wait<0>();
            __syncthreads();
            start_box(j, next, shared_address(box) + (stage ^ 1) * stage_bytes, list, item, begin, end);
            if (group < p.groups)
                multiply_chunk(acc, address + stage * stage_bytes, 16 * p.in.plane, 16 * p.in.line,
                               j.weights + (int64_t)(chunk * p.groups + group) * (27 * 32) + lane);
        }
        lane_rows(v, acc);
        if (p.splits > 1 && !join_splits(j, v, (item * p.tiles + tile) * columns + column, split))
            return;
        at.z += warp_at.z;
        at.y += warp_at.y;
        at.x += warp_at.x;
        lane_voxels(voxel, j, at);
        put_rows(j.to, voxel, channel, v);
        tally_rows(j.tally, tally, item, voxel, channel, v);
    }
    struct tally_block k = {
        16 * column * p.wn,          p.wn, 16, item, (int)blockIdx.x, j.tally.counters + column,
        (int)(gridDim.x * gridDim.z)};
    tally_finish<THREE_WARPS>(j.tally, tally, k);
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

enum { MOST_SHARED = 102 << 10, MOST_OF_THREE = 66 << 10, MOST_WEIGHT = 110 << 10 };

/* Shared memory of a block beside its tally: boxes, and their lines. */
static size_t three_shared(const struct three_plan &p)
{
    return STAGES * sizeof(uint4) * (size_t)box_words(p.in) + sizeof(struct line) * (size_t)box_lines(p.in);
}

/* Blocks that fit into a multiprocessor. */
static int three_fit(const struct three_plan &p)
{
    return three_shared(p) <= MOST_OF_THREE ? 3 : 2;
}

/* What a block costs for a chunk, in clock ticks: products (432 a warp; the weight gradient has six warps
 * with 144), filling, and half of the time in which its bytes come from the second cache, 24 in a tick:
 * weights, 13824 for each group, and voxels. Of equal ones that with the least shared memory. */
static double cost_of(const struct three_plan &p, const struct volume &v, int weight, int worst)
{
    double tiles = (double)p.nz * p.ny * p.nx * v.n, blocks = tiles * divide_up(p.groups, p.wn);
    double words = p.in.count + (weight ? (double)p.out.count * p.wn : 0);
    double bytes = 32 * words + (weight ? 0 : 13824.0 * p.wn);
    double multiply = (weight ? 1380.0 : 2760.0) * (worst > 1 ? 0.7 + 0.3 * worst : 1.0);
    return blocks * p.chunks * (multiply + words + bytes / 48 + (weight ? 0 : 1e-3 * box_words(p.in)));
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
    p->tiles = p->nz * p->ny * p->nx;
    p->by_tiles = divisor_of(p->tiles);
    p->by_ny = divisor_of(p->ny);
    p->by_nx = divisor_of(p->nx);
    p->in = padded_box(*p, p->tz + 2, p->ty + 2, p->tx + 2, &worst);
    p->out = padded_box(*p, p->tz, p->ty, p->tx, &worst_out);
    if (weight ? three_weight_shared(*p) > MOST_WEIGHT : three_shared(*p) > MOST_SHARED)
        return 0;
    return cost_of(*p, v, weight, worst > worst_out || !weight ? worst : worst_out);
}

/* Blocks without splits. */
static int64_t whole_blocks(const struct three_plan &p, const struct volume &v)
{
    return (int64_t)p.tiles * v.n * divide_up(p.groups, p.wn);
}

/* How long so many splits take, in clock ticks: a chunk takes 8000 from memory to memory, and 3000 of the
 * tensor cores, if other blocks fill the rest; splits are written, waited for and added. */
static double split_cost(const struct three_plan &p, const struct volume &v, int splits)
{
    double blocks = (double)((whole_blocks(p, v) * splits + MULTIPROCESSORS - 1) / MULTIPROCESSORS);
    double work = divide_up(p.chunks, splits) * (3000 * blocks > 8000 ? 3000 * blocks : 8000);
    return work + (splits > 1 ? 2700 * blocks + 1000 * splits : 0);
}

static void split_chunks(struct three_plan *p, const struct volume &v)
{
    p->splits = 1;
    for (int s = 2; s <= p->chunks; s++)
        if (split_cost(*p, v, s) < split_cost(*p, v, p->splits))
            p->splits = s;
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
        p.log_py = i / 5 % 5;
        p.log_px = 4 - i % 5 - i / 5 % 5;
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

/* ---- running ------------------------------------------------------------------------------------------- */

/* Blocks along the tiles of an item: one for each, or as many as there is room for if each then has some. */
static int tile_blocks(const struct three_plan &p, int n)
{
    int64_t all = (int64_t)p.tiles * n * divide_up(p.groups, p.wn), room = three_fit(p) * MULTIPROCESSORS;
    if (p.splits > 1 || all < 4 * room)
        return p.tiles;
    int64_t each = room * p.tiles / all;
    return each > 1 ? (int)each : 1;
}

/* Bytes of all splits. */
static size_t split_bytes(const struct three_plan &p, const struct volume &v)
{
    size_t each = THREE_ROWS * THREE_THREADS * sizeof(float4);
    return p.splits > 1 ? (size_t)whole_blocks(p, v) * (size_t)p.splits * each : 0;
}

/* Scratch of a pass, beside its operand. */
static size_t pass_bytes(const struct three_plan &p, const struct volume &v)
{
    return split_bytes(p, v) + tally_bytes(16 * p.groups, v.n, p.tiles);
}

int three_pass(struct conv_pass *p)
{
    struct conv *v = p->v;
    struct three_job j = {};
    j.p = p->backward ? v->data : v->forward;
    j.v = v->in;
    j.v.n = p->n;
    j.laid = v->laid;
    j.to = p->to;
    j.weights = (const uint4 *)v->packed[p->backward];
    j.partial = (float4 *)v->context->scratch;
    j.counters = v->counters + v->tally_counters;
    int columns = divide_up(j.p.groups, j.p.wn), blocks = tile_blocks(j.p, p->n);
    j.tally = tally_ready(p, split_bytes(j.p, j.v), blocks);
    j.operand = p->laid;
    return cuda_start(three_multiply, dim3(blocks, columns * j.p.splits, p->n), THREE_THREADS,
                      three_shared(j.p), v->context->stream, j);
}

/* Tensor cores cut off sums, they do not round them: where that would show, in outputs of float32, every
 * chunk of 16 channels is summed on its own. */
void three_split_all(struct three_plan *p, const struct volume &v)
{
    enum { MOST = 256 << 20 };
    struct three_plan all = *p;
    all.splits = all.chunks;
    if (split_bytes(all, v) <= MOST)
        *p = all;
}

size_t three_operand(const struct conv *v)
{
    return (pass_bytes(v->forward, v->in) + 255) / 256 * 256;
}

/* The operand of a forward pass lies in scratch unless it is kept, that of a backward pass never. */
size_t three_bytes(const struct conv *v)
{
    size_t forward = three_operand(v), data = pass_bytes(v->data, v->in);
    if (!v->s.training)
        forward += laid_bytes(v->laid, v->in.n, v->forward.chunks);
    return forward > data ? forward : data;
}

/* Splits that are counted, of a pass of any number of items. */
int three_counters(const struct conv *v)
{
    int64_t forward = v->forward.splits > 1 ? whole_blocks(v->forward, v->in) : 0;
    int64_t data = v->data.splits > 1 ? whole_blocks(v->data, v->in) : 0;
    return (int)(forward > data ? forward : data);
}
