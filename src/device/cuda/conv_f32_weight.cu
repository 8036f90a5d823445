/* conv_f32_weight.cu - gradients of the weights of all convolutions with tensors of float32.
 *
 *     part(tap, f, c)  =  sum over voxels v of  fine(v's voxel for the tap, f)  coarse(v, c)
 *
 * A is coarse channels by voxels, B voxels by fine channels, eight voxels at a time. Both lie in shared
 * memory voxel by voxel (f32.cuh), so a lane reads its numbers one by one; pitches are such that no bank is
 * met twice. In float32 a lane multiplies what it would have of the result of tensor cores, and the eight
 * products of a tap are summed on their own. Voxels of the coarse side are read once for all taps of a warp,
 * which keeps the sums of
 *
 *     CONV_3        one plane of 9 taps       CONV_DOWN, CONV_UP      all 8       CONV_1      1
 *
 * in registers over all tiles of its block. Narrow layers: the warps of a block are the three planes of taps
 * and take turns in the voxels. Wide ones: they are groups of 8 fine channels, a plane of taps is a block.
 */
#include "device/cuda/f32.cuh"

struct weight_job {
    struct tile_plan p;
    struct volume rows, box; /* volumes that tiles and boxes lie in */
    struct reader fine, coarse;
    struct divisor by_count; /* tiles of an item */
    int tiles, run;          /* of all items; of a part */
    int planes;              /* of taps, that are blocks of their own */
    float *partial;          /* (parts, taps, c of fine, c of coarse) */
};

/* How a block is made up: TAPS of a warp, EDGE^2 or EDGE^3; PLANES of so many taps; 16 MT coarse and 8 NT
 * fine channels of a warp; GROUPS of warps along the fine channels; TURNS that share the voxels. */
template <int TENSOR_CORES, int EDGE, int TAPS, int PLANES, int MT, int NT, int GROUPS, int TURNS>
struct weight_way {
    enum {
        TF32 = TENSOR_CORES,
        THREADS = 32 * PLANES * GROUPS * TURNS,
        FINE = 8 * NT * GROUPS,
        COARSE = 16 * MT,
        FINE_PITCH = EDGE == 2   ? FINE + 4
                     : FINE % 16 ? FINE
                                 : FINE + 8,
        COARSE_PITCH = COARSE + 8,
        SUMS = TAPS * MT * NT * 4 /* of a lane */
    };
    static size_t shared(const struct tile_plan &p, int rows)
    {
        size_t voxels = (size_t)p.box * (FINE_PITCH + 1) + (size_t)rows * (COARSE_PITCH + 2);
        size_t sums = (size_t)(TURNS - 1) * PLANES * GROUPS * SUMS * 32;
        return sizeof(float) * (voxels > sums ? voxels : sums);
    }
};

/* ---- products ------------------------------------------------------------------------------------------ */

/* What a tile is in shared memory. */
struct weight_tile {
    uint32_t *fine, *coarse;
    int *box, *rows; /* their voxels */
    int *place;      /* of the rows in the box, in words */
};

template <class W>
__device__ __forceinline__ struct weight_tile tile_memory(unsigned char *memory, int box, int rows)
{
    struct weight_tile t;
    t.fine = (uint32_t *)memory;
    t.coarse = t.fine + box * W::FINE_PITCH;
    t.box = (int *)(t.coarse + rows * W::COARSE_PITCH);
    t.rows = t.box + box;
    t.place = t.rows + rows;
    return t;
}

/* The voxels of a tile's rows, -1 for none, and their places. */
template <class W>
__device__ __forceinline__ void tile_rows(const struct weight_tile &t, const struct weight_job &j,
                                          const struct corner &at, int rows)
{
    for (int i = threadIdx.x; i < rows; i += W::THREADS) {
        t.rows[i] = i < j.p.rows ? voxel_inside(j.rows, plan_voxel(j.p, at, i)) : -1;
        t.place[i] = plan_place(j.p, i) * W::FINE_PITCH;
    }
}

/* Where a tap of a warp leads in the box, in words. */
template <class W, int EDGE> __device__ __forceinline__ int tap_offset(int tap, int line, int plane)
{
    return tap / EDGE / EDGE * plane + tap / EDGE % EDGE * line + tap % EDGE * W::FINE_PITCH;
}

/* Eight voxels, by tensor cores. `fine` and `coarse` begin with the warp's channels. */
template <class W, int EDGE, int TAPS, int MT, int NT>
__device__ __forceinline__ void multiply_tensor(float (&acc)[TAPS][MT][NT][4], const uint32_t *fine,
                                                const uint32_t *coarse, const int *place, int line, int plane)
{
    uint32_t a[MT][4];
    int g = threadIdx.x % 32 / 4, q = threadIdx.x % 4;
    const uint32_t *low = fine + place[q] + g, *high = fine + place[q + 4] + g;
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            a[m][i] = coarse[(q + i / 2 * 4) * W::COARSE_PITCH + g + 16 * m + i % 2 * 8];
#pragma unroll
    for (int tap = 0; tap < TAPS; tap++) {
        int offset = tap_offset<W, EDGE>(tap, line, plane);
#pragma unroll
        for (int t = 0; t < NT; t++) {
            uint32_t b0 = low[offset + 8 * t], b1 = high[offset + 8 * t];
#pragma unroll
            for (int m = 0; m < MT; m++)
                tf32_multiply(acc[tap][m][t], a[m], b0, b1);
        }
    }
}

/* Likewise, in float32. */
template <class W, int EDGE, int TAPS, int MT, int NT>
__device__ __forceinline__ void multiply_plain(float (&acc)[TAPS][MT][NT][4], const float *fine,
                                               const float *coarse, const int *place, int line, int plane)
{
    float a[8][2 * MT];
    const float *from[8];
#pragma unroll
    for (int v = 0; v < 8; v++) {
        from[v] = fine + place[v] + threadIdx.x % 4 * 2;
#pragma unroll
        for (int m = 0; m < 2 * MT; m++)
            a[v][m] = coarse[v * W::COARSE_PITCH + threadIdx.x % 32 / 4 + 8 * m];
    }
#pragma unroll
    for (int tap = 0; tap < TAPS; tap++) {
        int offset = tap_offset<W, EDGE>(tap, line, plane);
        float part[MT][NT][4] = {};
#pragma unroll
        for (int v = 0; v < 8; v++)
#pragma unroll
            for (int t = 0; t < NT; t++) {
                float2 b = *(const float2 *)(from[v] + offset + 8 * t);
#pragma unroll
                for (int m = 0; m < 2 * MT; m++) {
                    float *to = &part[m / 2][t][m % 2 * 2];
                    to[0] = fmaf(a[v][m], b.x, to[0]);
                    to[1] = fmaf(a[v][m], b.y, to[1]);
                }
            }
#pragma unroll
        for (int i = 0; i < 4 * MT * NT; i++)
            acc[tap][i / (4 * NT)][i / 4 % NT][i % 4] += part[i / (4 * NT)][i / 4 % NT][i % 4];
    }
}

template <class W, int EDGE, int TAPS, int MT, int NT>
__device__ __forceinline__ void multiply_voxels(float (&acc)[TAPS][MT][NT][4], const uint32_t *fine,
                                                const uint32_t *coarse, const int *place, int line, int plane)
{
    if (W::TF32)
        multiply_tensor<W, EDGE>(acc, fine, coarse, place, line, plane);
    else
        multiply_plain<W, EDGE>(acc, (const float *)fine, (const float *)coarse, place, line, plane);
}

/* Adds what the turns have, in order; turn 0 gets the sums. */
template <int TURNS, int N>
__device__ __forceinline__ void add_turns(float *sums, float *all, int unit, int units, int turn)
{
    int lane = threadIdx.x % 32;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < N && turn > 0; i++)
        all[(((turn - 1) * units + unit) * N + i) * 32 + lane] = sums[i];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < N && turn == 0; i++)
        for (int k = 0; k < TURNS - 1; k++)
            sums[i] += all[((k * units + unit) * N + i) * 32 + lane];
}

template <int TAPS, int MT, int NT>
__device__ __forceinline__ void write_part(const float (&acc)[TAPS][MT][NT][4], const struct weight_job &j,
                                           int first_tap, int taps, int fine, int coarse)
{
    float *to = j.partial + ((int64_t)blockIdx.z * taps + first_tap) * j.fine.c * j.coarse.c;
    fine += threadIdx.x % 4 * 2;
    coarse += threadIdx.x % 32 / 4;
#pragma unroll
    for (int i = 0; i < TAPS * MT * NT * 4; i++) {
        int tap = i / (MT * NT * 4), m = i / (NT * 4) % MT, t = i / 4 % NT;
        int f = fine + 8 * t + i % 2, c = coarse + 16 * m + i / 2 % 2 * 8;
        if (f < j.fine.c && c < j.coarse.c)
            to[((int64_t)tap * j.fine.c + f) * j.coarse.c + c] = acc[tap][m][t][i % 4];
    }
}

template <int TF32, int EDGE, int TAPS, int PLANES, int MT, int NT, int GROUPS, int TURNS>
__global__ void __launch_bounds__(32 * PLANES * GROUPS * TURNS, PLANES > 1 ? 2 : 3)
    f32_multiply_weight(const __grid_constant__ struct weight_job j)
{
    typedef struct weight_way<TF32, EDGE, TAPS, PLANES, MT, NT, GROUPS, TURNS> W;
    SHARED_MEMORY(memory);
    int rows = divide_up(j.p.rows, 8) * 8, warp = threadIdx.x / 32;
    struct weight_tile t = tile_memory<W>(memory, j.p.box, rows);
    int turn = warp % TURNS, group = warp / TURNS % GROUPS, plane = warp / (TURNS * GROUPS);
    int block_plane = blockIdx.x % j.planes, fine = blockIdx.x / j.planes * W::FINE;
    int coarse = blockIdx.y * W::COARSE, end = (blockIdx.z + 1) * j.run;
    int line = j.p.box_x * W::FINE_PITCH, level = j.p.box_y * line;
    float acc[TAPS][MT][NT][4] = {};
    for (int tile = blockIdx.z * j.run; tile < end && tile < j.tiles; tile++) {
        int item = divide(tile, j.by_count);
        struct corner at = plan_corner(j.p, item, tile - item * j.p.count), box = plan_box(j.p, at);
        box.z += j.planes > 1 ? block_plane - 1 : 0;
        __syncthreads();
        box_voxels(t.box, j.p, j.box, box, W::THREADS);
        tile_rows<W>(t, j, at, rows);
        __syncthreads();
        fill_quads<TF32, W::FINE / 4, W::THREADS>(t.fine, W::FINE_PITCH, t.box, j.p.box, j.fine, item, fine);
        fill_quads<TF32, W::COARSE / 4, W::THREADS>(t.coarse, W::COARSE_PITCH, t.rows, rows, j.coarse, item,
                                                    coarse);
        __syncthreads();
        for (int k = 8 * turn; k < rows; k += 8 * TURNS)
            multiply_voxels<W, EDGE>(acc, t.fine + plane * level + 8 * NT * group,
                                     t.coarse + k * W::COARSE_PITCH, t.place + k, line, level);
    }
    if (TURNS > 1)
        add_turns<TURNS, W::SUMS>(&acc[0][0][0][0], (float *)memory, plane * GROUPS + group, PLANES * GROUPS,
                                  turn);
    if (turn == 0)
        write_part(acc, j, (plane + block_plane) * TAPS, PLANES * j.planes * TAPS, fine + 8 * NT * group,
                   coarse);
}

/* ---- plans --------------------------------------------------------------------------------------------- */

/* The kernel of a layer and what it wants. */
struct weight_choice {
    void (*kernel)(const struct weight_job);
    int threads, fine, coarse, planes; /* of a block; planes of taps by blocks */
    int rows;                          /* of a tile */
    size_t (*shared)(const struct tile_plan &p, int rows);
};

template <int TF32, int EDGE, int TAPS, int PLANES, int MT, int NT, int GROUPS, int TURNS>
static struct weight_choice choice_of(int planes, int rows)
{
    typedef struct weight_way<TF32, EDGE, TAPS, PLANES, MT, NT, GROUPS, TURNS> W;
    struct weight_choice c = {f32_multiply_weight<TF32, EDGE, TAPS, PLANES, MT, NT, GROUPS, TURNS>,
                              W::THREADS,
                              W::FINE,
                              W::COARSE,
                              planes,
                              rows,
                              W::shared};
    return c;
}

template <int TF32> static struct weight_choice choose_of(const struct conv *v)
{
    int narrow = v->fine_c <= 16 && v->coarse_c <= 16;
    if (v->s.kind == CONV_1 && narrow)
        return choice_of<TF32, 1, 1, 1, 1, 2, 1, 4>(1, 256);
    if (v->s.kind == CONV_1)
        return choice_of<TF32, 1, 1, 1, 2, 1, 4, 1>(1, 256);
    if (v->s.kind != CONV_3)
        return v->fine_c <= 16 ? choice_of<TF32, 2, 8, 1, 2, 1, 2, 2>(1, 64)
                               : choice_of<TF32, 2, 8, 1, 2, 1, 4, 1>(1, 64);
    if (!narrow)
        return choice_of<TF32, 3, 9, 1, 2, 1, 4, 1>(3, 128);
    return v->fine_c <= 8 ? choice_of<TF32, 3, 9, 3, 1, 1, 1, 2>(1, 128)
                          : choice_of<TF32, 3, 9, 3, 1, 2, 1, 2>(1, 128);
}

static struct weight_choice choose(const struct conv *v)
{
    return v->tf32 ? choose_of<1>(v) : choose_of<0>(v);
}

struct tile_plan f32_weight_plan(const struct conv *v)
{
    struct weight_choice c = choose(v);
    int three = v->s.kind == CONV_3;
    struct tile_wish wish = {c.rows, v->taps == 8 ? 2 : 1, three, three && c.planes == 1, v->taps / c.planes};
    return tile_plan_of(v->coarse, wish);
}

/* Parts so that all blocks run at once: three on a multiprocessor. */
static int weight_parts(const struct conv *v, const struct weight_choice &c)
{
    int blocks = c.planes * divide_up(v->fine_c, c.fine) * divide_up(v->coarse_c, c.coarse);
    int64_t parts = (c.threads > 128 ? 2 : 3) * MULTIPROCESSORS / blocks;
    int64_t tiles = (int64_t)v->tile[2].count * v->coarse.n;
    parts = parts < tiles ? parts : tiles;
    return parts > 1 ? (int)parts : 1;
}

int f32_weight(struct weight_pass *p)
{
    struct conv *v = p->v;
    int up = v->s.kind == CONV_UP;
    struct weight_choice c = choose(v);
    struct weight_job j = {};
    j.p = v->tile[2];
    j.rows = v->coarse;
    j.rows.n = p->n;
    j.box = v->taps == 8 ? (struct volume){p->n, 2 * j.rows.d, 2 * j.rows.h, 2 * j.rows.w} : j.rows;
    j.fine = up ? p->dy : p->x;
    j.coarse = up ? p->x : p->dy;
    j.by_count = divisor_of(j.p.count);
    j.tiles = j.p.count * p->n;
    j.planes = c.planes;
    j.partial = p->partial;
    p->parts = weight_parts(v, c);
    p->rows = v->fine_c;
    p->cols = v->coarse_c;
    j.run = divide_up(j.tiles, p->parts);
    dim3 grid(c.planes * divide_up(v->fine_c, c.fine), divide_up(v->coarse_c, c.coarse), p->parts);
    return cuda_start(c.kernel, grid, c.threads, c.shared(j.p, divide_up(j.p.rows, 8) * 8), p->stream, j);
}

size_t f32_weight_bytes(const struct conv *v)
{
    size_t parts = (size_t)weight_parts(v, choose(v));
    return parts * v->taps * v->fine_c * v->coarse_c * sizeof(float);
}
