/* conv_lay.cu - operands brought through their formula once, and laid out so that tiles are plain copies.
 *
 * A 3x3x3 convolution reads every voxel once for every 32 or 64 channels of the result, its weight gradient
 * for each pair of 16 by 32, and voxels near the border of a tile again: the formula was most of their
 * instructions. Laid out, an operand is
 *
 *     (item, block of 8 channels, z, y, x): words of 16 bytes, bf16
 *
 * over a volume with a border of one and filled up to whole tiles. Border and filling are 0, so nobody asks
 * whether a voxel is inside; a line of a tile is a line of memory, and lies in shared memory as it does here
 * (fill.cuh).
 */
#include "device/cuda/conv_int.cuh"

enum { THREADS = 256, ROUNDS = 8, RUN = ROUNDS * THREADS / 2 };

struct lay_job {
    struct volume v;
    struct laid laid;
    struct divisor by_w, by_h;
    struct reader from;
    uint4 *to;
    int chunks;
};

/* What this block lays out: a run of voxels, border and all. */
__device__ __forceinline__ void run_places(struct place *places, const struct lay_job &j, int item)
{
    for (int i = threadIdx.x; i < RUN; i += THREADS) {
        int at = blockIdx.x * RUN + i, line = divide(at, j.by_w), z = divide(line, j.by_h);
        struct corner c = {item, z - 1, line - z * j.laid.h - 1, at - line * j.laid.w - 1};
        struct place p = {-1, at < j.laid.words ? at : j.laid.words - 1}; /* the last word is border */
        if ((unsigned)c.z < (unsigned)j.v.d && (unsigned)c.y < (unsigned)j.v.h &&
            (unsigned)c.x < (unsigned)j.v.w)
            p.voxel = voxel_at(j.v, c);
        places[i] = p;
    }
}

/* blockIdx: run of voxels; 16 channels; item. */
__global__ void __launch_bounds__(THREADS) lay_rows(const __grid_constant__ struct lay_job j)
{
    __shared__ struct place places[RUN];
    int item = blockIdx.z, chunk = blockIdx.y;
    run_places(places, j, item);
    __syncthreads();
    fill(j.to + (int64_t)(item * j.chunks + chunk) * 2 * j.laid.words, j.laid.words, places, RUN, j.from,
         item, 16 * chunk, THREADS);
}

static int larger_of(int a, int b)
{
    return a > b ? a : b;
}

struct laid laid_over(const struct laid &l, const struct three_plan &p)
{
    struct laid to = {larger_of(l.d, p.nz * p.tz + 2), larger_of(l.h, p.ny * p.ty + 2),
                      larger_of(l.w, p.nx * p.tx + 2), 0};
    to.words = to.d * to.h * to.w;
    return to;
}

size_t laid_bytes(const struct laid &l, int n, int chunks)
{
    return sizeof(uint4) * 2 * (size_t)l.words * (size_t)chunks * (size_t)n;
}

int lay_out(const struct conv *v, int n, const struct reader &from, uint4 *to, int chunks,
            struct laid_operand *out, cudaStream_t stream)
{
    const struct laid &l = v->laid;
    struct lay_job j = {v->in, l, divisor_of(l.w), divisor_of(l.h), from, to, chunks};
    j.v.n = n;
    out->at = to;
    out->chunks = chunks;
    return cuda_start(lay_rows, dim3(divide_up(l.words, RUN), chunks, n), THREADS, 0, stream, j);
}
