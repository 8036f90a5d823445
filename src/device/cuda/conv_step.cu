/* conv_step.cu - CONV_DOWN, CONV_UP and their gradients of the input, on tensor cores.
 *
 * Both are one product: rows are voxels of the coarse side, the inner index runs over what such a voxel meets
 * on the side that is read, columns over what it meets on the side that is written (struct step_sides):
 *
 *     from fine to coarse    DOWN, UP's gradient           k = (4 runs of two voxels), columns = channels
 *     from coarse to fine    UP, DOWN's gradient           k = channels, columns = (4 runs of two voxels)
 *
 * The operands need no shared memory: the order of k is free, so a lane takes eight numbers in a row of its
 * four voxels straight into the registers of a product (packed weights have the same order), and columns are
 * dealt out so that it ends up with eight numbers in a row of the result. A warp makes 32 rows by 32 columns,
 * or by twice 32 that hold the same channels of different voxels. Blocks have rows of one item, so the tables
 * of the formula are the same for all. With few rows the four warps of a block share k instead of rows.
 */
#include "device/cuda/pack.cuh"

enum { WARPS = 4, ROWS = 32 };

struct step_job {
    struct step_sides s;
    struct volume coarse;
    struct divisor by_w, by_h;
    struct reader from;
    struct target to;
    struct tally tally;
    const uint4 *weights;
    int tiles; /* of 32 rows, in an item */
    int sets;  /* of columns that have the same channels; a block has one of them */
    int each;  /* groups of columns of a run */
    int share; /* 1: warps share k */
};

/* Rows lane/4 + 8i of a warp: the first voxel that is read and the first that is written; -1: none. */
struct step_rows {
    int from[4], to[4];
};

__device__ __forceinline__ struct step_rows find_rows(const struct step_job &j, int item, int tile)
{
    const struct volume &v = j.coarse;
    struct step_rows r;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int at = tile * ROWS + threadIdx.x % 32 / 4 + 8 * i;
        int line = divide(at, j.by_w), z = divide(line, j.by_h);
        int inside = at < v.d * v.h * v.w, coarse = item * v.d * v.h * v.w + at;
        int fine = (((item * v.d + z) * 2 * v.h + line - z * v.h) * 2 * v.w + at - line * v.w) * 2;
        r.from[i] = !inside ? -1 : j.s.to_fine ? coarse : fine;
        r.to[i] = !inside ? -1 : j.s.to_fine ? fine : coarse;
    }
    return r;
}

/* Voxels from a row's first to that of run `part` of a fine side. */
__device__ __forceinline__ int part_offset(const struct step_job &j, int part)
{
    return (part / 2 * 2 * j.coarse.h + part % 2) * 2 * j.coarse.w;
}

/* The channel of a place in a run of one or two voxels. */
__device__ __forceinline__ int within(int offset, int c)
{
    return offset < c ? offset : offset - c;
}

/* ---- reading ------------------------------------------------------------------------------------------- */

/* Eight numbers of each row: from `offset` on, `move` voxels on. */
template <int KIND>
__device__ __forceinline__ void read_rows(uint4 (&a)[4], const struct step_job &j,
                                          const struct step_rows &rows, int item, int move, int offset)
{
    const struct reader &r = j.from;
    float t[READ_TABLES][8];
    uint4 x[4], y[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const char *from = row_at((const unsigned short *)r.from[0] + offset, rows.from[i] + move, 2 * r.c);
        const char *second = row_at((const unsigned short *)r.from[1] + offset, rows.from[i] + move, 2 * r.c);
        x[i] = y[i] = make_uint4(0, 0, 0, 0);
        if (rows.from[i] >= 0)
            x[i] = __ldg((const uint4 *)from);
        if (KIND != READ_ONE && rows.from[i] >= 0)
            y[i] = __ldg((const uint4 *)second);
    }
    read_tables<KIND>(t, r, item, within(offset, r.c), 1);
#pragma unroll
    for (int i = 0; i < 4; i++)
        a[i] = read_words<KIND>(x[i], y[i], t, r.floor); /* rows that are not there are not written */
}

/* The same for any types and channels, number by number. */
__device__ __forceinline__ void read_rows_any(uint4 (&a)[4], const struct step_job &j,
                                              const struct step_rows &rows, int item, int move, int offset)
{
    const struct reader &r = j.from;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float v[8];
#pragma unroll
        for (int e = 0; e < 8; e++) {
            int at = offset + e;
            v[e] = rows.from[i] >= 0 && at < j.s.from.length
                       ? read_single(r, item, rows.from[i] + move + (at >= r.c), within(at, r.c))
                       : 0.0f;
        }
        a[i] = bf16_eight(v);
    }
}

template <int WIDE>
__device__ __forceinline__ void read_chunk(uint4 (&a)[4], const struct step_job &j,
                                           const struct step_rows &rows, int item, int chunk)
{
    int each = j.s.from.chunks / j.s.from.parts, part = j.s.to_fine ? 0 : chunk / each;
    int offset = (chunk - part * each) * 32 + threadIdx.x % 4 * 8, move = part_offset(j, part);
#pragma unroll
    for (int i = 0; i < 4; i++)
        a[i] = make_uint4(0, 0, 0, 0);
    if (offset >= j.s.from.length)
        return;
    if (!WIDE)
        read_rows_any(a, j, rows, item, move, offset);
    else if (j.from.kind == READ_ONE)
        read_rows<READ_ONE>(a, j, rows, item, move, offset);
    else if (j.from.kind == READ_TWO)
        read_rows<READ_TWO>(a, j, rows, item, move, offset);
    else
        read_rows<READ_GRAD>(a, j, rows, item, move, offset);
}

/* ---- products ------------------------------------------------------------------------------------------ */

/* A chunk of k by a group of columns. */
__device__ __forceinline__ void multiply_group(float (&acc)[2][4][4], const uint4 (&a)[4], const uint4 *w)
{
#pragma unroll
    for (int t = 0; t < 4; t++) {
        uint4 b = __ldg(w + 32 * t);
#pragma unroll
        for (int m = 0; m < 2; m++) {
            const uint4 &r0 = a[2 * m], &r1 = a[2 * m + 1];
            const uint32_t a0[4] = {r0.x, r1.x, r0.y, r1.y}, a1[4] = {r0.z, r1.z, r0.w, r1.w};
            tile_multiply(acc[m][t], a0, b.x, b.y);
            tile_multiply(acc[m][t], a1, b.z, b.w);
        }
    }
}

/* Adds what the warps of a block have of the same rows, in order; warp w gets rows 8w .. 8w+7. */
template <int GROUPS>
__device__ __forceinline__ void share_rows(float (&acc)[GROUPS][2][4][4], struct step_rows &rows)
{
    __shared__ float all[WARPS][32 * GROUPS][32];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 32 * GROUPS; i++)
        all[warp][i][lane] = acc[i / 32][i / 16 % 2][i / 4 % 4][i % 4];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 32 * GROUPS; i++) {
        float sum = 0;
        if (2 * (i / 16 % 2) + i % 4 / 2 != warp)
            continue;
        for (int w = 0; w < WARPS; w++)
            sum += all[w][i][lane];
        acc[i / 32][i / 16 % 2][i / 4 % 4][i % 4] = sum;
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
        rows.to[i] = i == warp ? rows.to[i] : -1;
}

/* ---- writing ------------------------------------------------------------------------------------------- */

/* Eight numbers of a row from `offset` on in a run, number by number. */
__device__ __forceinline__ void write_any(const struct step_job &j, int voxel, int offset, float (&v)[8])
{
    const struct target &t = j.to;
#pragma unroll
    for (int e = 0; e < 8; e++) {
        if (offset + e >= j.s.to.length)
            continue;
        float bias = t.bias ? __ldg(t.bias + within(offset + e, t.c)) : 0.0f;
        target_one(t, (int64_t)voxel * t.c + offset + e, v[e] + bias);
    }
}

/* Groups set, set + sets, ... of columns. */
template <int GROUPS>
__device__ __forceinline__ void write_groups(const struct step_job &j, struct lane_tally<8> *tally,
                                             const struct step_rows &rows, int item, int first,
                                             const float (&acc)[GROUPS][2][4][4])
{
    float v[4 * GROUPS][8];
    int voxel[4 * GROUPS], offset[GROUPS];
#pragma unroll
    for (int g = 0; g < GROUPS; g++) {
        int group = first + g * j.sets, part = j.s.to_fine ? group / j.each : 0;
        offset[g] = (group - part * j.each) * 32 + threadIdx.x % 4 * 8;
        int move = part_offset(j, part);
#pragma unroll
        for (int i = 0; i < 4; i++) { /* row 8i: half i % 2 of tile i / 2 */
            voxel[4 * g + i] = rows.to[i] < 0 || offset[g] >= j.s.to.length ? -1 : rows.to[i] + move;
#pragma unroll
            for (int e = 0; e < 8; e++)
                v[4 * g + i][e] = acc[g][i / 2][e / 2][i % 2 * 2 + e % 2];
        }
    }
    if (!target_whole<8>(j.to)) {
#pragma unroll
        for (int i = 0; i < 4 * GROUPS; i++)
            if (voxel[i] >= 0)
                write_any(j, voxel[i], offset[i / 4], v[i]);
        return;
    }
#pragma unroll
    for (int i = 0; i < 4 * GROUPS; i++) /* the second voxel of a run */
        voxel[i] += voxel[i] >= 0 && offset[i / 4] >= j.to.c;
    int channel = within(offset[0], j.to.c);
    put_rows(j.to, voxel, channel, v);
    tally_rows(j.tally, tally, item, voxel, channel, v);
}

/* ---- kernel -------------------------------------------------------------------------------------------- */

template <int GROUPS, int WIDE>
__global__ void __launch_bounds__(32 * WARPS, 3) step_multiply(const __grid_constant__ struct step_job j)
{
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, item = blockIdx.z, chunks = j.s.from.chunks;
    int set = blockIdx.y % j.sets, first = blockIdx.y / j.sets * GROUPS * j.sets + set;
    int begin = j.share ? chunks * warp / WARPS : 0, end = j.share ? chunks * (warp + 1) / WARPS : chunks;
    int tile = j.share ? blockIdx.x : blockIdx.x * WARPS + warp;
    struct lane_tally<8> *tally = tally_start<8, 32 * WARPS>();
    for (; tile < j.tiles; tile += gridDim.x * (j.share ? 1 : WARPS)) {
        struct step_rows rows = find_rows(j, item, tile);
        float acc[GROUPS][2][4][4] = {};
        for (int chunk = begin; chunk < end; chunk++) {
            uint4 a[4];
            read_chunk<WIDE>(a, j, rows, item, chunk);
#pragma unroll
            for (int g = 0; g < GROUPS; g++)
                multiply_group(acc[g], a,
                               j.weights + ((int64_t)(first + g * j.sets) * chunks + chunk) * 128 + lane);
        }
        if (j.share)
            share_rows(acc, rows);
        write_groups(j, tally, rows, item, first, acc);
    }
    int distinct = j.to.c < 32 ? j.to.c : 32, y = blockIdx.y / j.sets, ys = gridDim.y / j.sets;
    struct tally_block k = {32 * set,
                            1,
                            distinct,
                            item,
                            (int)blockIdx.x * ys + y,
                            j.tally.counters + set,
                            (int)(gridDim.x * ys * gridDim.z)};
    tally_finish<WARPS>(j.tally, tally, k);
}

/* ---- running ------------------------------------------------------------------------------------------- */

/* Blocks along the tiles of an item, if `others` share the GPU with them. */
static int row_blocks(int tiles, int share, int others)
{
    int most = share ? tiles : divide_up(tiles, WARPS), blocks = 3 * MULTIPROCESSORS / others;
    blocks = blocks > 1 ? blocks : 1;
    return blocks < most ? blocks : most;
}

int step_pass(struct conv_pass *p)
{
    struct conv *v = p->v;
    struct step_job j = {};
    j.s = step_sides_of((v->s.kind == CONV_UP) != p->backward, p->from.c, p->to.c);
    j.coarse = v->coarse;
    j.coarse.n = p->n;
    j.by_w = divisor_of(v->coarse.w);
    j.by_h = divisor_of(v->coarse.h);
    j.from = p->from;
    j.to = p->to;
    j.weights = (const uint4 *)v->packed[p->backward];
    j.tiles = (int)((volume_item(v->coarse) + ROWS - 1) / ROWS);
    j.each = j.s.to.chunks / j.s.to.parts;
    int groups = j.s.to.chunks, c = p->to.c, again = j.s.to_fine && (c == 16 || c % 32 == 0);
    j.sets = !again ? groups : c == 16 ? 1 : c / 32;
    int two = groups % (2 * j.sets) == 0, wide = p->from.wide, ys = groups / (two ? 2 : 1);
    j.share = divide_up(j.tiles, WARPS) * ys * p->n < 2 * MULTIPROCESSORS && j.s.from.chunks >= WARPS;
    int blocks = row_blocks(j.tiles, j.share, ys * p->n);
    if (!target_whole<8>(p->to) || (j.s.to_fine && !again))
        p->tally.kind = TALLY_NONE;
    j.tally = tally_ready(p, 0, blocks * (ys / j.sets));
    return cuda_start(two    ? wide ? step_multiply<2, 1> : step_multiply<2, 0>
                         : wide ? step_multiply<1, 1>
                             : step_multiply<1, 0>,
                      dim3(blocks, ys, p->n), 32 * WARPS, 0, v->context->stream, j);
}

/* The tally of a result of c channels. Blocks that have the same of them are as many as run at once, or, if
 * there are more, one for each item, or four: see row_blocks() and sets. */
static size_t tally_of(const struct conv *v, int c)
{
    int regions = 3 * MULTIPROCESSORS / (c < 64 ? 1 : c / 32), least = 4 * v->coarse.n;
    return tally_bytes(c, 1, regions > least ? regions : least);
}

size_t step_bytes(const struct conv *v)
{
    size_t forward = tally_of(v, v->s.c_out), backward = tally_of(v, v->s.c_in);
    return forward > backward ? forward : backward;
}
