/* conv_step.cu - CONV_1, CONV_DOWN, CONV_UP and their gradients of the input, on tensor cores.
 *
 * All are one product: rows are voxels of the coarse side, the inner index runs over what such a voxel meets
 * on the side that is read, columns over what it meets on the side that is written (struct step_sides):
 *
 *     from fine to coarse    DOWN, UP's gradient           k = (4 runs of two voxels), columns = channels
 *     from coarse to fine    UP, DOWN's gradient           k = channels, columns = (4 runs of two voxels)
 *     CONV_1                 both sides are alike, one run
 *
 * No shared memory: the order of k is free, so a lane takes eight numbers in a row of its four voxels
 * straight into the registers of a product (packed weights have the same order), and columns are dealt out
 * so that it ends up with eight numbers in a row of the result. A warp makes 32 rows by 32 or 64 columns.
 * Its rows belong to one item, so the tables of the formula are the same for all.
 */
#include "device/cuda/pack.cuh"

enum { WARPS = 4, ROWS = 32 };

struct step_job {
    struct step_sides s;
    struct volume coarse;
    struct reader from;
    struct target to;
    const uint4 *weights;
    int tiles;            /* of 32 rows, in an item */
};

/* Rows lane/4 + 8i of a warp: the first voxel that is read and the first that is written; -1: none. */
struct step_rows {
    int item;
    int64_t from[4], to[4];
};

__device__ __forceinline__ struct step_rows find_rows(const struct step_job &j, int tile)
{
    struct step_rows r;
    int per_item = j.coarse.d * j.coarse.h * j.coarse.w;
    r.item = tile / j.tiles;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int v = tile % j.tiles * ROWS + threadIdx.x % 32 / 4 + 8 * i;
        int x = v % j.coarse.w, y = v / j.coarse.w % j.coarse.h, z = v / (j.coarse.w * j.coarse.h);
        int64_t coarse = v < per_item ? (int64_t)r.item * per_item + v : -1;
        int64_t fine = v < per_item ? fine_voxel(j.coarse, j.s.edge, r.item, z, y, x, 0) : -1;
        r.from[i] = j.s.to_fine ? coarse : fine;
        r.to[i] = j.s.to_fine ? fine : coarse;
    }
    return r;
}

/* Voxels from a row's first to that of run `part` of a fine side. */
__device__ __forceinline__ int64_t part_offset(const struct step_job &j, int part)
{
    int64_t line = (int64_t)j.coarse.w * j.s.edge, plane = line * j.coarse.h * j.s.edge;
    return part / 2 * plane + part % 2 * line;
}

/* The channel of a place in a run of one or two voxels. */
__device__ __forceinline__ int within(int offset, int c)
{
    return offset < c ? offset : offset - c;
}

/* ---- reading ------------------------------------------------------------------------------------------- */

/* Eight numbers of each row: from `offset` on in run `part`. */
template <int KIND>
__device__ __forceinline__ void read_rows(uint4 a[4], const struct step_job &j, const struct step_rows &rows,
                                          int part, int offset)
{
    const struct reader &r = j.from;
    int64_t move = j.s.to_fine ? 0 : part_offset(j, part);
    float t[READ_TABLES][8];
    uint4 x[4], y[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        x[i] = y[i] = make_uint4(0, 0, 0, 0);
        if (rows.from[i] < 0)
            continue;
        int64_t at = (rows.from[i] + move) * r.c + offset;
        x[i] = __ldg((const uint4 *)((const unsigned short *)r.from[0] + at));
        if (KIND != READ_ONE)
            y[i] = __ldg((const uint4 *)((const unsigned short *)r.from[1] + at));
    }
    read_tables<KIND>(t, r, rows.item, within(offset, r.c));
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (rows.from[i] >= 0)
            a[i] = read_words<KIND>(x[i], y[i], t, r.floor);
}

/* The same for any types and channels, number by number. */
__device__ __forceinline__ void read_rows_any(uint4 a[4], const struct step_job &j,
                                              const struct step_rows &rows, int part, int offset)
{
    const struct reader &r = j.from;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int64_t first = rows.from[i];
        float v[8];
        if (!j.s.to_fine)
            first += first < 0 ? 0 : part_offset(j, part);
#pragma unroll
        for (int e = 0; e < 8; e++) {
            int at = offset + e;
            v[e] = first >= 0 && at < j.s.from.length
                       ? read_single(r, rows.item, first + (at >= r.c), within(at, r.c)) : 0.0f;
        }
        a[i] = bf16_eight(v);
    }
}

template <int WIDE>
__device__ __forceinline__ void read_chunk(uint4 a[4], const struct step_job &j, const struct step_rows &rows,
                                           int chunk)
{
    int each = j.s.from.chunks / j.s.from.parts, part = chunk / each;
    int offset = chunk % each * 32 + threadIdx.x % 4 * 8;
#pragma unroll
    for (int i = 0; i < 4; i++)
        a[i] = make_uint4(0, 0, 0, 0);
    if (offset >= j.s.from.length)
        return;
    if (!WIDE)
        read_rows_any(a, j, rows, part, offset);
    else if (j.from.kind == READ_ONE)
        read_rows<READ_ONE>(a, j, rows, part, offset);
    else if (j.from.kind == READ_TWO)
        read_rows<READ_TWO>(a, j, rows, part, offset);
    else
        read_rows<READ_GRAD>(a, j, rows, part, offset);
}

/* ---- writing ------------------------------------------------------------------------------------------- */

/* Eight numbers of a row, from `offset` on in run `part` of the side that is written. */
__device__ __forceinline__ void write_eight(const struct step_job &j, int64_t voxel, int offset, float v[8])
{
    const struct target &t = j.to;
#pragma unroll
    for (int e = 0; e < 8; e++)
        if (t.bias && offset + e < j.s.to.length)
            v[e] += __ldg(t.bias + within(offset + e, t.c));
    if (t.wide) {
        target_store_wide(t, voxel * t.c + offset, v);
        return;
    }
#pragma unroll
    for (int e = 0; e < 8; e++)
        if (offset + e < j.s.to.length)
            target_one(t, voxel * t.c + offset + e, v[e]);
}

__device__ __forceinline__ void write_group(const struct step_job &j, const struct step_rows &rows, int group,
                                            const float acc[2][4][4])
{
    int each = j.s.to.chunks / j.s.to.parts, part = group / each;
    int offset = group % each * 32 + threadIdx.x % 4 * 8;
    int64_t move = j.s.to_fine ? part_offset(j, part) : 0;
    if (offset >= j.s.to.length)
        return;
#pragma unroll
    for (int i = 0; i < 4; i++) { /* row 8i: half i % 2 of tile i / 2 */
        int64_t first = rows.to[i];
        float v[8];
#pragma unroll
        for (int e = 0; e < 8; e++)
            v[e] = acc[i / 2][e / 2][i % 2 * 2 + e % 2];
        if (first >= 0)
            write_eight(j, first + move, offset, v);
    }
}

/* ---- kernel -------------------------------------------------------------------------------------------- */

template <int GROUPS, int WIDE>
__global__ void __launch_bounds__(32 * WARPS) step_multiply(const __grid_constant__ struct step_job j)
{
    int tile = blockIdx.x * WARPS + threadIdx.x / 32, first = blockIdx.y * GROUPS;
    if (tile >= j.tiles * j.coarse.n)
        return;
    struct step_rows rows = find_rows(j, tile);
    float acc[GROUPS][2][4][4] = {};
    for (int chunk = 0; chunk < j.s.from.chunks; chunk++) {
        uint4 a[4];
        read_chunk<WIDE>(a, j, rows, chunk);
#pragma unroll
        for (int g = 0; g < GROUPS; g++) {
            if (first + g >= j.s.to.chunks)
                break;
            const uint4 *w = j.weights + ((int64_t)(first + g) * j.s.from.chunks + chunk) * 128 +
                             threadIdx.x % 32;
#pragma unroll
            for (int t = 0; t < 4; t++) {
                uint4 b = __ldg(w + 32 * t);
#pragma unroll
                for (int m = 0; m < 2; m++) {
                    const uint4 &r0 = a[2 * m], &r1 = a[2 * m + 1];
                    const uint32_t a0[4] = {r0.x, r1.x, r0.y, r1.y}, a1[4] = {r0.z, r1.z, r0.w, r1.w};
                    tile_multiply(acc[g][m][t], a0, b.x, b.y);
                    tile_multiply(acc[g][m][t], a1, b.z, b.w);
                }
            }
        }
    }
#pragma unroll
    for (int g = 0; g < GROUPS; g++)
        if (first + g < j.s.to.chunks)
            write_group(j, rows, first + g, acc[g]);
}

int step_pass(struct conv_pass *p)
{
    struct conv *v = p->v;
    struct step_job j = {};
    j.s = step_sides_of(v->s.kind == CONV_1 ? 1 : 2, (v->s.kind == CONV_UP) != p->backward, p->from.c,
                        p->to.c);
    j.coarse = v->coarse;
    j.coarse.n = p->n;
    j.from = p->from;
    j.to = p->to;
    j.weights = (const uint4 *)v->packed[p->backward];
    j.tiles = (int)((volume_item(v->coarse) + ROWS - 1) / ROWS);
    int blocks = divide_up(j.tiles * p->n, WARPS), groups = j.s.to.chunks;
    int two = groups > 1 && blocks * divide_up(groups, 2) >= CONV_BLOCKS, wide = j.from.wide;
    dim3 grid(blocks, two ? divide_up(groups, 2) : groups);
    p->regions = 0;
    return cuda_start(two ? wide ? step_multiply<2, 1> : step_multiply<2, 0>
                          : wide ? step_multiply<1, 1> : step_multiply<1, 0>,
                      grid, 32 * WARPS, 0, v->context->stream, j);
}
