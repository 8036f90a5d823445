/* gpu_text.h - the bodies of kernels.h as a GPU's compiler reads them, called as its threads call them, an
 * index each, beside the processor's: SAME runs both, which must write the same bits. For tests; the file
 * that includes this says which copy of the bodies it wants (cuda/loops.cuh). */
#ifndef FALX_GPU_TEXT_H
#define FALX_GPU_TEXT_H

#pragma GCC diagnostic ignored "-Wunknown-pragmas"  /* unroll */
#pragma GCC diagnostic ignored "-Wdangling-else"    /* of loops that end in an if */
#pragma GCC diagnostic ignored "-Wunused-parameter" /* what is usual is not asked for */
#ifndef __clang__
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized" /* beyond a row's width, which is not used */
#endif
#include "test.h"

#include "base/rng.h"
#include "device/isa/levels.h"
#include "device/isa/loops.h"

/* What the text asks of a GPU. A thread is a warp of its own. */
#define __CUDA_ARCH__ 900
#define __any_sync(mask, x) (x)
#define __umulhi(a, b) ((uint32_t)((uint64_t)(a) * (b) >> 32))
typedef struct {
    _Alignas(8) uint32_t x;
    uint32_t y;
} __attribute__((may_alias)) uint2;
typedef struct {
    _Alignas(16) uint32_t x;
    uint32_t y, z, w;
} __attribute__((may_alias)) uint4;
typedef struct {
    _Alignas(8) float x;
    float y;
} __attribute__((may_alias)) float2;
typedef struct {
    _Alignas(16) float x;
    float y, z, w;
} __attribute__((may_alias)) float4;
#define make_float2(a, b) ((float2){(a), (b)})
#define make_float4(a, b, c, d) ((float4){(a), (b), (c), (d)})
static const struct {
    unsigned x;
} threadIdx;
static inline float __shfl_xor_sync(unsigned mask, float x, int apart)
{
    (void)mask, (void)x, (void)apart;
    return 0;
}
#include "device/kernels.h"

/* ---- two sides ----------------------------------------------------------------------------------- */

enum { PROCESSOR, GPU, SIDES };
enum { ARENA = 1 << 18 };
static float arena[SIDES][ARENA] __attribute__((aligned(64)));
static int64_t used;           /* floats */
static uint8_t bytes[1 << 12]; /* below some number */

/* Room for n floats, `skew` of them behind a multiple of 64 bytes; as an index of the arena. */
static int64_t take(int64_t n, int skew)
{
    int64_t at = (used + 15) / 16 * 16 + skew;
    used = at + n;
    CHECK(used <= ARENA);
    return at;
}

/* Each float is two bf16 numbers of -1 to 1, so that either may be read. */
static void refill(void)
{
    for (int64_t i = 0; i < used; i++) {
        struct rng_block b = rng_block(7, 1, RNG_TEST, (uint64_t)i);
        uint32_t half[2];
        for (int k = 0; k < 2; k++)
            half[k] = k_bits((float)(int32_t)b.v[k] * (1.0f / 2147483648.0f)) >> 16;
        arena[PROCESSOR][i] = k_float(half[0] << 16 | half[1]);
    }
    memcpy(arena[GPU], arena[PROCESSOR], sizeof arena[GPU]);
}

static void fill_bytes(uint32_t below)
{
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(rng_block(8, 1, RNG_TEST, i).v[0] % below);
}

static void compare(const char *name, int c, int bf16, int skew)
{
    for (int64_t i = 0; i < used; i++)
        if (k_bits(arena[GPU][i]) != k_bits(arena[PROCESSOR][i]))
            test_fail("%s, %d channels%s, skew %d: float %lld is %g, the processor's %g", name, c,
                      bf16 ? ", bf16" : "", skew, (long long)i, (double)arena[GPU][i],
                      (double)arena[PROCESSOR][i]);
}

/* Runs a kernel on both sides, whose arguments `set` makes with F(place). */
#define F(at) (arena[side] + (at))
#define SAME(name, count, ...)                                                                               \
    do {                                                                                                     \
        const struct loop_ops *loops = isa_level(NULL)->loops;                                               \
        const int64_t all = (count), cut = all / 3;                                                          \
        refill();                                                                                            \
        for (int side = 0; side < SIDES; side++) {                                                           \
            struct k_##name k;                                                                               \
            memset(&k, 0, sizeof k);                                                                         \
            __VA_ARGS__;                                                                                     \
            for (int64_t i = 0; side == GPU && i < all; i++)                                                 \
                k_##name##_range(&k, i, i + 1);                                                              \
            if (side == PROCESSOR) {                                                                         \
                loops->map(KERNEL_##name, &k, 0, cut);                                                       \
                loops->map(KERNEL_##name, &k, cut, all);                                                     \
            }                                                                                                \
        }                                                                                                    \
        compare(#name, c, bf16, skew);                                                                       \
    } while (0)

/* The same of a body that sums, in the copy where sums are a thread's own: written bits are the same, its
 * n sums, which must not cancel, are near. */
#define SAME_SUMS(name, count, n, ...)                                                                       \
    do {                                                                                                     \
        const struct loop_ops *loops = isa_level(NULL)->loops;                                               \
        double want[n];                                                                                      \
        float own[n] = {0};                                                                                  \
        const int64_t all = (count);                                                                         \
        CHECK(all <= LOOP_BLOCK);                                                                            \
        refill();                                                                                            \
        for (int side = 0; side < SIDES; side++) {                                                           \
            struct r_##name k;                                                                               \
            memset(&k, 0, sizeof k);                                                                         \
            __VA_ARGS__;                                                                                     \
            for (int64_t i = 0; side == GPU && i < all; i++)                                                 \
                r_##name##_range(&k, i, i + 1, own);                                                         \
            if (side == PROCESSOR)                                                                           \
                loops->reduce(REDUCE_##name, &k, 0, all, n, want);                                           \
        }                                                                                                    \
        compare(#name, c, bf16, skew);                                                                       \
        for (int s = 0; s < (n); s++)                                                                        \
            if (!(fabs((double)own[s] - want[s]) <= 1e-5 * (1 + fabs(want[s]))))                             \
                test_fail("%s: sum %d is %g, the processor's %g", #name, s, (double)own[s], want[s]);        \
    } while (0)

#endif
