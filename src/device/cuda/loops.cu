/* loops.cu - map and reduce: which copy of a body, how many blocks, and the last step of a sum.
 *
 * Blocks of a reduction and their rows of sums must fit 48 KB of shared memory for any number of sums:
 *
 *     up to 1024 sums     8 warps a block, 40 bytes a sum     up to 1024 blocks
 *     up to 4096          1 warp,          12 bytes a sum     up to 256 blocks
 */
#include <string.h>

#include "device/cuda/loops.cuh"
#include "device/isa/loops.h"
#include "device/kernels.h"

enum { SOME_SUMS = 1024, MOST_BLOCKS = 1024, MOST_BLOCKS_MANY = 256, SHORT_BLOCKS = 64, AT_ONCE = 8 };

#define MAP_CLASSES_(name, classes)                                                                          \
    case KERNEL_##name:                                                                                      \
        return ((const struct k_##name *)args)->classes <= LOOPS_FEW;
#define REDUCE_CLASSES_(name, classes)                                                                       \
    case REDUCE_##name: return ((const struct r_##name *)args)->classes <= LOOPS_FEW;

static int map_is_few(int kernel, const void *args)
{
    switch (kernel) {
        LOOPS_CLASS_MAPS(MAP_CLASSES_)
    }
    return 0;
}

static int reduce_is_few(int reduction, const void *args)
{
    switch (reduction) {
        LOOPS_CLASS_REDUCES(REDUCE_CLASSES_)
    }
    return 0;
}

int cuda_map(struct cuda_context *c, int kernel, const void *args, int64_t count)
{
    if (count <= 0)
        return cudaSuccess;
    int64_t blocks = (count + LOOPS_THREADS - 1) / LOOPS_THREADS;
    if (blocks > INT32_MAX)
        return cudaErrorInvalidValue;
    struct loops_launch l = {c->stream, count, (int)blocks, LOOPS_THREADS, 0, 0, NULL};
    if (loops_usual_has_map(kernel, args))
        loops_usual_map(&l, kernel, args);
    else if (map_is_few(kernel, args))
        loops_few_map(&l, kernel, args);
    else
        loops_all_map(&l, kernel, args);
    return cudaGetLastError();
}

/* sums[s] = the blocks' sums of s, added by one warp: each thread every 32nd, then a tree. */
static __global__ void last_sums(double *sums, const double *partial, int n_sums, int blocks)
{
    int s = (int)((blockIdx.x * blockDim.x + threadIdx.x) / 32), lane = (int)threadIdx.x % 32;
    double sum = 0;
    if (s >= n_sums) /* whole warps */
        return;
    const double *of = partial + (int64_t)s * blocks;
    int b = lane;
    for (; b + 32 * (AT_ONCE - 1) < blocks; b += 32 * AT_ONCE) {
        double some[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            some[i] = of[b + 32 * i];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            sum += some[i];
    }
    for (; b < blocks; b += 32)
        sum += of[b];
    for (int apart = 16; apart > 0; apart /= 2)
        sum += __shfl_xor_sync(0xFFFFFFFFu, sum, apart);
    if (lane == 0)
        sums[s] = sum;
}

static struct loops_launch reduce_launch(const struct cuda_context *c, int64_t count, int n_sums)
{
    int threads = n_sums <= SOME_SUMS ? LOOPS_THREADS : 32;
    int most = n_sums <= SOME_SUMS ? MOST_BLOCKS : MOST_BLOCKS_MANY;
    int run = count < (int64_t)threads / 32 * LOOPS_RUN * SHORT_BLOCKS ? LOOPS_RUN_SHORT : LOOPS_RUN;
    int64_t part = (int64_t)threads / 32 * run, parts = (count + part - 1) / part;
    struct loops_launch l = {c->stream, count, parts < most ? (int)parts : most, threads, n_sums, run, NULL};
    return l;
}

/* sums NULL: they are left at the start of scratch. */
int cuda_sum(struct cuda_context *c, int reduction, const void *args, int64_t count, int n_sums, double *sums)
{
    if (n_sums < 0 || n_sums > LOOP_SUMS)
        return cudaErrorInvalidValue;
    size_t bytes = (size_t)n_sums * sizeof(double);
    if (count <= 0 || n_sums == 0)
        return n_sums ? cudaMemsetAsync(sums, 0, bytes, c->stream) : cudaSuccess;
    int usual = loops_usual_has_reduce(reduction, args);
    struct loops_launch l = reduce_launch(c, count, n_sums);
    l.blocks = usual ? loops_usual_blocks(reduction, count) : l.blocks;
    int code = cuda_reserve(c, bytes * (size_t)(l.blocks + 1));
    if (code)
        return code;
    l.partial = (double *)c->scratch + n_sums;
    if (usual)
        loops_usual_reduce(&l, reduction, args);
    else if (reduce_is_few(reduction, args))
        loops_few_reduce(&l, reduction, args);
    else
        loops_all_reduce(&l, reduction, args);
    last_sums<<<(n_sums + 7) / 8, 256, 0, c->stream>>>(sums ? sums : (double *)c->scratch, l.partial, n_sums,
                                                       l.blocks);
    return cudaGetLastError();
}

int cuda_reduce(struct cuda_context *c, int reduction, const void *args, int64_t count, int n_sums,
                double *sums_host)
{
    size_t bytes = (size_t)(n_sums > 0 ? n_sums : 0) * sizeof(double);
    memset(sums_host, 0, bytes);
    if (count <= 0 || n_sums == 0)
        return cudaSuccess;
    int code = cuda_sum(c, reduction, args, count, n_sums, NULL);
    return code ? code : cuda_fetch(c, sums_host, c->scratch, bytes);
}
