/* f32.cuh - what convolutions with tensors of float32 share: tiles, and voxels brought into shared memory.
 *
 * All kinds are one product over a tile. Its rows are voxels of the coarse side (conv_int.cuh; of both sides,
 * where they have the same size), numbered x fastest. What the taps of those rows can meet on the fine side
 * is a box of voxels:
 *
 *     CONV_3      a border of one voxel around the tile     CONV_DOWN, CONV_UP    2 x 2 x 2 for each voxel
 *     CONV_1      the tile
 *
 * A box lies in shared memory densely, voxel by voxel, some channels and a pad each: so a tap is a constant
 * distance there. Numbers come through the reading formula (read.cuh) once, four channels to a thread;
 * outside the volume is 0. TF32, a parameter of all that computes: products are made by tensor cores, of
 * operands rounded to tf32; else of float32, as it is.
 */
#ifndef FALX_CUDA_F32_CUH
#define FALX_CUDA_F32_CUH

#include "device/cuda/conv_int.cuh"

/* ---- tiles --------------------------------------------------------------------------------------------- */

/* How a tile becomes a box, and what it may cost. */
struct tile_wish {
    int rows; /* at most */
    int step, border, border_z;
    int taps;
};

struct tile_plan tile_plan_of(const struct volume &v, const struct tile_wish &w);
struct tile_plan f32_weight_plan(const struct conv *v);

/* The first voxel of a tile. */
__device__ __forceinline__ struct corner plan_corner(const struct tile_plan &p, int item, int tile)
{
    int row = divide(tile, p.by_nx), z = divide(row, p.by_ny);
    struct corner c = {item, z * p.z, (row - z * p.ny) * p.y, (tile - row * p.nx) * p.x};
    return c;
}

/* Of its box. */
__device__ __forceinline__ struct corner plan_box(const struct tile_plan &p, const struct corner &c)
{
    struct corner b = {c.item, c.z * p.step - p.border_z, c.y * p.step - p.border, c.x * p.step - p.border};
    return b;
}

/* Row `row` of a tile, from its first voxel; rows behind the last are made the first. */
__device__ __forceinline__ struct corner plan_row(const struct tile_plan &p, int row)
{
    int line = divide(row, p.by_x), z = divide(line, p.by_y);
    struct corner c = {0, z, line - z * p.y, row - line * p.x}, first = {};
    return row < p.rows ? c : first;
}

/* The same in the volume. */
__device__ __forceinline__ struct corner plan_voxel(const struct tile_plan &p, const struct corner &at,
                                                    int row)
{
    struct corner c = plan_row(p, row);
    struct corner in = {at.item, at.z + c.z, at.y + c.y, at.x + c.x};
    return in;
}

/* Its first voxel in the box. */
__device__ __forceinline__ int plan_place(const struct tile_plan &p, int row)
{
    struct corner c = plan_row(p, row);
    return ((c.z * p.box_y + c.y) * p.box_x + c.x) * p.step;
}

__device__ __forceinline__ int voxel_inside(const struct volume &v, const struct corner &c)
{
    int inside =
        (unsigned)c.z < (unsigned)v.d && (unsigned)c.y < (unsigned)v.h && (unsigned)c.x < (unsigned)v.w;
    return inside ? voxel_at(v, c) : -1;
}

/* The voxels of a box, or -1, by all threads of the block. */
__device__ __forceinline__ void box_voxels(int *to, const struct tile_plan &p, const struct volume &v,
                                           const struct corner &at, int threads)
{
    for (int i = threadIdx.x; i < p.box; i += threads) {
        int line = divide(i, p.by_box_x), z = divide(line, p.by_box_y);
        struct corner c = {at.item, at.z + z, at.y + line - z * p.box_y, at.x + i - line * p.box_x};
        to[i] = voxel_inside(v, c);
    }
}

/* ---- filling ------------------------------------------------------------------------------------------- */

/* Four numbers of source i: all at once, or what there is, n of them, one by one. */
template <int WHOLE>
__device__ __forceinline__ float4 quad_load(const struct reader &r, int i, int voxel, int channel, int n)
{
    float v[4] = {0, 0, 0, 0};
    if (WHOLE && voxel >= 0 && n > 0)
        return __ldg((const float4 *)row_at((const float *)r.from[i] + channel, voxel, 4 * r.c));
#pragma unroll
    for (int k = 0; k < 4; k++)
        if (!WHOLE && voxel >= 0 && k < n)
            v[k] = value_load(r.from[i], r.f32[i], (int64_t)voxel * r.c + channel + k);
    return make_float4(v[0], v[1], v[2], v[3]);
}

template <int TF32> __device__ __forceinline__ uint32_t operand(float f)
{
    return TF32 ? tf32_rounded(f) : __float_as_uint(f);
}

template <int TF32, int KIND>
__device__ __forceinline__ uint4 quad_through(const float4 &a, const float4 &b,
                                              const float (&t)[READ_TABLES][4], const float floor[2])
{
    return make_uint4(operand<TF32>(read_one<KIND>(a.x, b.x, t, 0, floor)),
                      operand<TF32>(read_one<KIND>(a.y, b.y, t, 1, floor)),
                      operand<TF32>(read_one<KIND>(a.z, b.z, t, 2, floor)),
                      operand<TF32>(read_one<KIND>(a.w, b.w, t, 3, floor)));
}

template <int TF32, int KIND, int WHOLE, int QUADS, int THREADS>
__device__ __forceinline__ void fill_batches(uint32_t *to, int pitch, const int *voxels, int count,
                                             const struct reader &r, int item, int channel)
{
    enum { STEP = THREADS / QUADS, BATCH = !WHOLE ? 1 : KIND == READ_ONE ? 8 : 4 }; /* loads in flight */
    int quad = threadIdx.x % QUADS;
    float t[READ_TABLES][4];
    channel += 4 * quad;
    to += 4 * quad;
    read_tables<KIND>(t, r, item, channel, WHOLE);
    for (int first = threadIdx.x / QUADS; first < count; first += BATCH * STEP) {
        int voxel[BATCH];
        float4 a[BATCH], b[BATCH];
#pragma unroll
        for (int k = 0; k < BATCH; k++)
            voxel[k] = first + k * STEP < count ? voxels[first + k * STEP] : -1;
#pragma unroll
        for (int k = 0; k < BATCH; k++) {
            a[k] = quad_load<WHOLE>(r, 0, voxel[k], channel, r.c - channel);
            b[k] = KIND == READ_ONE ? a[k] : quad_load<WHOLE>(r, 1, voxel[k], channel, r.c - channel);
        }
#pragma unroll
        for (int k = 0; k < BATCH; k++) {
            uint4 words = quad_through<TF32, KIND>(a[k], b[k], t, r.floor);
            if (first + k * STEP < count)
                *(uint4 *)(to + (first + k * STEP) * pitch) = voxel[k] >= 0 ? words : make_uint4(0, 0, 0, 0);
        }
    }
}

template <int TF32, int KIND, int QUADS, int THREADS>
__device__ __forceinline__ void fill_width(uint32_t *to, int pitch, const int *voxels, int count,
                                           const struct reader &r, int item, int channel)
{
    if (r.quads == QUADS_F32)
        fill_batches<TF32, KIND, 1, QUADS, THREADS>(to, pitch, voxels, count, r, item, channel);
    else
        fill_batches<TF32, KIND, 0, QUADS, THREADS>(to, pitch, voxels, count, r, item, channel);
}

/* Four times QUADS channels of the voxels listed, `pitch` words each, by all threads of the block. */
template <int TF32, int QUADS, int THREADS>
__device__ __forceinline__ void fill_quads(uint32_t *to, int pitch, const int *voxels, int count,
                                           const struct reader &r, int item, int channel)
{
    if (r.kind == READ_ONE)
        fill_width<TF32, READ_ONE, QUADS, THREADS>(to, pitch, voxels, count, r, item, channel);
    else if (r.kind == READ_TWO)
        fill_width<TF32, READ_TWO, QUADS, THREADS>(to, pitch, voxels, count, r, item, channel);
    else
        fill_width<TF32, READ_GRAD, QUADS, THREADS>(to, pitch, voxels, count, r, item, channel);
}

#endif
