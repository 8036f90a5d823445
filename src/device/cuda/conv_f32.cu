/* conv_f32.cu - all convolutions and their gradients of the input, with tensors of float32. See f32.cuh.
 *
 *     gather    to(row, column)       = sum over (tap, k) of  box(row's voxel for tap, k) W(tap, k, column)
 *     scatter   to(tap, row, column)  = sum over k of         box(row, k) W(tap, k, column)
 *
 * The second is a pass from the coarse side to the fine one: the taps are groups of columns of their own, and
 * name the voxel that is written.
 *
 * A block has a tile of rows and some columns. Sixteen channels at a time are filled into shared memory, then
 * all taps run over them. A warp makes 16 MT rows by 8 NT columns; a lane has 2 MT rows, 8 apart, by 2 NT
 * neighbouring columns.
 *
 *     tf32   A is rows by channels as they lie there, B comes from packed weights (conv_pack.cu), columns of
 *            which are dealt out so; those of the next tap come while this one is multiplied
 *     f32    a lane multiplies its rows by its columns; the sixteen products of a tap are summed on their own
 *            before they are added: less rounding
 */
#include "device/cuda/f32.cuh"
#include "device/cuda/pack.cuh"

enum {
    CHUNK = 16, /* channels at a time */
    PITCH = 20, /* words of a voxel: eight in a row are read without bank conflicts */
    WARPS = 4,
    THREADS = 32 * WARPS,
    MOST_BOX = 768 /* voxels, so that shared memory is enough */
};

/* ---- tiles --------------------------------------------------------------------------------------------- */

/* The cheaper the better: products of all rows, there or not, and voxels to fill. */
static int64_t plan_cost(const struct tile_plan &p, const struct tile_wish &w)
{
    int conflicts = p.x % 8 == 0 ? 8 : 9;
    return (int64_t)p.count * (w.rows * (w.taps + 1) * conflicts / 16 + p.box);
}

static struct tile_plan plan_try(const struct volume &v, const struct tile_wish &w, int z, int y, int x)
{
    struct tile_plan p = {};
    p.z = z;
    p.y = y;
    p.x = x;
    p.rows = z * y * x;
    p.ny = divide_up(v.h, y);
    p.nx = divide_up(v.w, x);
    p.count = divide_up(v.d, z) * p.ny * p.nx;
    p.step = w.step;
    p.border = w.border;
    p.border_z = w.border_z;
    p.box_z = z * w.step + 2 * w.border_z;
    p.box_y = y * w.step + 2 * w.border;
    p.box_x = x * w.step + 2 * w.border;
    p.box = p.box_z * p.box_y * p.box_x;
    return p;
}

/* All sides that a tile can have are tried; that of one voxel always fits. */
struct tile_plan tile_plan_of(const struct volume &v, const struct tile_wish &w)
{
    struct tile_plan best = plan_try(v, w, 1, 1, 1);
    for (int x = 1; x <= w.rows; x++)
        for (int y = 1; x * y <= w.rows; y++) {
            int z = w.rows / (x * y);
            struct tile_plan p = plan_try(v, w, z < v.d ? z : v.d, y, x);
            if (p.box <= MOST_BOX && plan_cost(p, w) < plan_cost(best, w))
                best = p;
        }
    best.by_y = divisor_of(best.y);
    best.by_x = divisor_of(best.x);
    best.by_ny = divisor_of(best.ny);
    best.by_nx = divisor_of(best.nx);
    best.by_box_y = divisor_of(best.box_y);
    best.by_box_x = divisor_of(best.box_x);
    return best;
}

/* ---- products ------------------------------------------------------------------------------------------ */

struct f32_job {
    struct tile_plan p;
    struct volume rows, box; /* volumes that tiles and boxes lie in */
    struct reader from;
    struct target to;
    const uint4 *weights; /* packed: 32 NT words for each (chunk, group, tap) */
    struct f32_columns columns;
    int chunks;
    int offset[27]; /* of the taps, in words of shared memory */
};

/* Rows whose channels a lane names or reads. */
template <int TF32, int MT> struct lane_rows {
    enum { N = TF32 ? MT : 2 * MT };
    int word[N];
};

template <int TF32, int MT>
__device__ __forceinline__ struct lane_rows<TF32, MT> rows_of(const struct tile_plan &p, int first) {
    struct lane_rows<TF32, MT> r;
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < r.N; i++) {
        int row = TF32 ? first + 16 * i + lane % 16 : first + 8 * i + lane / 4;
        r.word[i] = plan_place(p, row) * PITCH + (TF32 ? lane / 16 * 4 : 0);
    }
    return r;
}

template <int NT>
__device__ __forceinline__ void load_weights(uint4 (&w)[NT], const uint4 *from)
{
#pragma unroll
    for (int t = 0; t < NT; t++)
        w[t] = __ldg(from + 32 * t);
}

/* One tap: eight channels, or sixteen. */
template <int MT, int NT>
__device__ __forceinline__ void multiply_tap(float (&acc)[MT][NT][4], uint32_t box,
                                             const struct lane_rows<1, MT> &rows, const uint4 (&w)[NT],
                                             int both)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        uint32_t a[MT][4];
        if (half == 1 && !both)
            break;
#pragma unroll
        for (int m = 0; m < MT; m++)
            tile_load(a[m], box + 4 * rows.word[m] + 32 * half);
#pragma unroll
        for (int t = 0; t < NT; t++)
#pragma unroll
            for (int m = 0; m < MT; m++)
                tf32_multiply(acc[m][t], a[m], half ? w[t].z : w[t].x, half ? w[t].w : w[t].y);
    }
}

/* All taps over n channels. */
template <int MT, int NT>
__device__ __forceinline__ void multiply_taps(float (&acc)[MT][NT][4], const uint32_t *box,
                                              const struct lane_rows<1, MT> &rows, const struct f32_job &j,
                                              const uint4 *weights, int n)
{
    uint4 w[NT], next[NT];
    weights += threadIdx.x % 32;
    load_weights(next, weights);
#pragma unroll 2
    for (int tap = 0; tap < j.columns.taps; tap++) {
#pragma unroll
        for (int t = 0; t < NT; t++)
            w[t] = next[t];
        if (tap + 1 < j.columns.taps)
            load_weights(next, weights + (tap + 1) * NT * 32);
        multiply_tap(acc, shared_address(box + j.offset[tap]), rows, w, n > 8);
    }
}

/* Four channels, in float32. */
template <int MT, int NT>
__device__ __forceinline__ void multiply_four(float (&part)[2 * MT][2 * NT], const uint32_t *box,
                                              const struct lane_rows<0, MT> &rows, const float4 *weights)
{
    float a[2 * MT][4];
#pragma unroll
    for (int i = 0; i < 2 * MT; i++) {
        float4 f = *(const float4 *)(box + rows.word[i]);
        a[i][0] = f.x, a[i][1] = f.y, a[i][2] = f.z, a[i][3] = f.w;
    }
#pragma unroll
    for (int k = 0; k < 4; k++)
#pragma unroll
        for (int quad = 0; quad < NT / 2; quad++) {
            float4 b = __ldg(weights + k * 2 * NT + quad);
#pragma unroll
            for (int i = 0; i < 2 * MT; i++) {
                part[i][4 * quad] = fmaf(a[i][k], b.x, part[i][4 * quad]);
                part[i][4 * quad + 1] = fmaf(a[i][k], b.y, part[i][4 * quad + 1]);
                part[i][4 * quad + 2] = fmaf(a[i][k], b.z, part[i][4 * quad + 2]);
                part[i][4 * quad + 3] = fmaf(a[i][k], b.w, part[i][4 * quad + 3]);
            }
        }
}

template <int MT, int NT>
__device__ __forceinline__ void multiply_taps(float (&acc)[MT][NT][4], const uint32_t *box,
                                              const struct lane_rows<0, MT> &rows, const struct f32_job &j,
                                              const uint4 *weights, int n)
{
    const float4 *own = (const float4 *)weights + threadIdx.x % 4 * (NT / 2);
    for (int tap = 0; tap < j.columns.taps; tap++) {
        float part[2 * MT][2 * NT] = {};
#pragma unroll 2
        for (int k = 0; k < CHUNK && k < n; k += 4)
            multiply_four<MT, NT>(part, box + j.offset[tap] + k, rows, own + (tap * CHUNK + k) * 2 * NT);
#pragma unroll
        for (int i = 0; i < 4 * MT * NT; i++)
            acc[i / (4 * NT)][i / 2 % NT][i / (2 * NT) % 2 * 2 + i % 2] += part[i / (2 * NT)][i % (2 * NT)];
    }
}

/* ---- results ------------------------------------------------------------------------------------------- */

/* Voxels of a lane's rows that are written by group `group`; -1 outside. */
template <int MT>
__device__ __forceinline__ void written_voxels(int (&voxel)[2 * MT], const struct f32_job &j,
                                               const struct corner &at, int first, int group)
{
    int tap = group / j.columns.groups_each;
#pragma unroll
    for (int i = 0; i < 2 * MT; i++) {
        int row = first + 8 * i + threadIdx.x % 32 / 4;
        struct corner c = plan_voxel(j.p, at, row);
        voxel[i] = row < j.p.rows && group < j.columns.groups ? voxel_inside(j.rows, c) : -1;
        if (!j.columns.scatter || voxel[i] < 0)
            continue;
        struct volume twice = {j.rows.n, 2 * j.rows.d, 2 * j.rows.h, 2 * j.rows.w};
        struct corner fine = {c.item, 2 * c.z + tap / 4, 2 * c.y + tap / 2 % 2, 2 * c.x + tap % 2};
        voxel[i] = voxel_at(twice, fine);
    }
}

template <int MT, int NT>
__device__ __forceinline__ void write_rows(const float (&acc)[MT][NT][4], const struct f32_job &j,
                                           const struct corner &at, int first, int group)
{
    int voxel[2 * MT], channel = group % j.columns.groups_each * 8 * NT + threadIdx.x % 4 * 2 * NT;
    float v[2 * MT][2 * NT];
#pragma unroll
    for (int i = 0; i < 2 * MT; i++)
#pragma unroll
        for (int k = 0; k < 2 * NT; k++)
            v[i][k] = acc[i / 2][k / 2][i % 2 * 2 + k % 2];
    written_voxels<MT>(voxel, j, at, first, group);
    put_rows(j.to, voxel, channel, v);
}

/* WM warps along the rows, the others along the columns. */
template <int TF32, int MT, int NT, int WM>
__global__ void __launch_bounds__(THREADS, 3) f32_multiply(const __grid_constant__ struct f32_job j)
{
    SHARED_MEMORY(memory);
    enum { BESIDE = WARPS / WM };
    uint32_t *box = (uint32_t *)memory;
    int *voxels = (int *)(box + j.p.box * PITCH), warp = threadIdx.x / 32, first = warp / BESIDE * 16 * MT;
    int group = blockIdx.y * BESIDE + warp % BESIDE, safe = group < j.columns.groups ? group : 0;
    struct corner at = plan_corner(j.p, blockIdx.z, blockIdx.x);
    struct lane_rows<TF32, MT> rows = rows_of<TF32, MT>(j.p, first);
    float acc[MT][NT][4] = {};
    box_voxels(voxels, j.p, j.box, plan_box(j.p, at), THREADS);
    for (int chunk = 0; chunk < j.chunks; chunk++) {
        __syncthreads();
        fill_quads<TF32, CHUNK / 4, THREADS>(box, PITCH, voxels, j.p.box, j.from, at.item, CHUNK * chunk);
        __syncthreads();
        int64_t part = (int64_t)(chunk * j.columns.groups + safe) * j.columns.taps;
        multiply_taps(acc, box, rows, j, j.weights + part * NT * 32, j.from.c - CHUNK * chunk);
    }
    write_rows(acc, j, at, first, group);
}

/* ---- plans --------------------------------------------------------------------------------------------- */

struct f32_kernel {
    void (*kernel)(const struct f32_job);
    int rows, beside; /* rows, and groups of columns, of a block */
};

/* By precision, size of the blocks, and width: 16 columns, 32, more. */
static const struct f32_kernel kernels[2][2][3] = {{{{f32_multiply<0, 4, 2, 4>, 256, 1},
                                                     {f32_multiply<0, 2, 4, 4>, 128, 1},
                                                     {f32_multiply<0, 2, 4, 2>, 64, 2}},
                                                    {{f32_multiply<0, 1, 2, 4>, 64, 1},
                                                     {f32_multiply<0, 1, 4, 4>, 64, 1},
                                                     {f32_multiply<0, 2, 4, 2>, 64, 2}}},
                                                   {{{f32_multiply<1, 4, 2, 4>, 256, 1},
                                                     {f32_multiply<1, 4, 4, 4>, 256, 1},
                                                     {f32_multiply<1, 4, 4, 2>, 128, 2}},
                                                    {{f32_multiply<1, 1, 2, 4>, 64, 1},
                                                     {f32_multiply<1, 1, 4, 4>, 64, 1},
                                                     {f32_multiply<1, 2, 4, 2>, 64, 2}}}};

/* A pass of a convolution. */
struct f32_way {
    struct f32_columns to;
    int edge, step; /* of the taps; step 2: eight voxels are gathered */
    struct f32_kernel by;
};

/* Large blocks, unless they are too few for the GPU or their boxes too large. */
static struct f32_kernel kernel_of(const struct f32_way &w, int tf32, int64_t rows)
{
    int width = w.to.tiles == 2 ? 0 : w.to.groups == 1 ? 1 : 2;
    const struct f32_kernel &large = kernels[tf32][0][width];
    int64_t blocks = rows / large.rows * divide_up(w.to.groups, large.beside);
    return w.step == 2 || blocks < 3 * MULTIPROCESSORS ? kernels[tf32][1][width] : large;
}

static struct f32_way way_of(const struct conv *v, int backward)
{
    int up = v->s.kind == CONV_UP;
    struct f32_way w = {};
    w.to = f32_columns_of(v->taps, up != backward, backward ? v->s.c_in : v->s.c_out);
    w.edge = w.to.taps == 27 ? 3 : w.to.taps == 8 ? 2 : 1;
    w.step = w.edge == 2 ? 2 : 1;
    w.by = kernel_of(w, v->tf32, volume_voxels(v->coarse));
    return w;
}

void f32_plan(struct conv *v)
{
    for (int backward = 0; backward < 2; backward++) {
        struct f32_way w = way_of(v, backward);
        struct tile_wish wish = {w.by.rows, w.step, w.edge == 3, w.edge == 3, w.to.taps};
        v->tile[backward] = tile_plan_of(v->coarse, wish);
    }
    v->tile[2] = f32_weight_plan(v);
}

int f32_pass(struct conv_pass *p)
{
    struct conv *v = p->v;
    struct f32_way w = way_of(v, p->backward);
    struct f32_job j = {};
    j.p = v->tile[p->backward];
    j.rows = v->coarse;
    j.rows.n = p->n;
    j.box = (struct volume){p->n, w.step * j.rows.d, w.step * j.rows.h, w.step * j.rows.w};
    j.from = p->from;
    j.to = p->to;
    j.weights = (const uint4 *)v->packed[p->backward];
    j.columns = w.to;
    j.chunks = divide_up(p->from.c, CHUNK);
    for (int tap = 0; tap < w.to.taps; tap++)
        j.offset[tap] =
            PITCH * ((tap / w.edge / w.edge * j.p.box_y + tap / w.edge % w.edge) * j.p.box_x + tap % w.edge);
    size_t shared = (size_t)j.p.box * (PITCH * sizeof(float) + sizeof(int));
    dim3 grid(j.p.count, divide_up(w.to.groups, w.by.beside), p->n);
    return cuda_start(w.by.kernel, grid, THREADS, shared, v->context->stream, j);
}
