/* rng.h - counter-based random numbers: Philox 4x32-10 (Salmon et al., SC 2011).
 *
 * Every number is a pure function of (seed, step, stream, index). There is no state to save, restore
 * or share between threads, and the same code gives the same numbers on every device. `stream` says
 * what the number is for, so that two uses never see the same numbers.
 */
#ifndef FALX_RNG_H
#define FALX_RNG_H

#include <math.h>
#include <stdint.h>

enum rng_stream {
    RNG_SPLIT = 1,        /* drawing of train/test splits */
    RNG_SHUFFLE,          /* order of cases in an epoch */
    RNG_AUGMENT,          /* spatial and intensity augmentation */
    RNG_CROP,             /* random crop margins of the LA preparation */
    RNG_PHANTOM,          /* shapes of synthetic scans */
    RNG_NOISE,            /* voxel noise of synthetic scans */
    RNG_FINGERPRINT,      /* sampled voxels of an intensity fingerprint */
    RNG_TEST,             /* tests */
    RNG_INIT,             /* initial weights */
    RNG_POINTS,           /* which boundary voxels take part in the contrast */
    RNG_PASTE,            /* boxes of copy-paste */
    RNG_BLEND,            /* shares of patches that are interpolated */
    RNG_FOCUS,            /* patches that are cut around a class */
    RNG_INPUT_NOISE = 32, /* noise on inputs, + number of the network or pass (up to 16) */
    RNG_DROPOUT = 48,     /* dropped channels, + number of the network or pass */
    RNG_SAMPLE = 64       /* logit samples, + 2 * number of the network: epsilon, then eta */
};

struct rng_block {
    uint32_t v[4];
};

/* Four independent 32-bit numbers. */
static inline struct rng_block rng_block(uint64_t seed, uint64_t step, uint32_t stream, uint64_t index)
{
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    /* 128-bit counter: index (64), step (low 32), stream and high step bits folded together */
    uint32_t c[4] = {(uint32_t)index, (uint32_t)(index >> 32), (uint32_t)step,
                     stream ^ ((uint32_t)(step >> 32) << 8)};
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c[0];
        uint64_t p1 = (uint64_t)0xCD9E8D57u * c[2];
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c[1] ^ k0;
        uint32_t n2 = (uint32_t)(p0 >> 32) ^ c[3] ^ k1;
        c[0] = n0;
        c[1] = (uint32_t)p1;
        c[2] = n2;
        c[3] = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    struct rng_block b = {{c[0], c[1], c[2], c[3]}};
    return b;
}

/* A cursor over one (seed, step, stream): successive numbers without choosing indices by hand. */
struct rng {
    uint64_t seed, step, index;
    uint32_t stream;
    int used; /* of the current block */
    struct rng_block block;
};

static inline struct rng rng_start(uint64_t seed, uint64_t step, uint32_t stream, uint64_t index)
{
    struct rng r = {seed, step, index << 24, stream, 4, {{0, 0, 0, 0}}};
    return r; /* index << 24: each start has 2^24 blocks of its own */
}

static inline uint32_t rng_u32(struct rng *r)
{
    if (r->used == 4) {
        r->block = rng_block(r->seed, r->step, r->stream, r->index++);
        r->used = 0;
    }
    return r->block.v[r->used++];
}

/* Uniform in [0, n), n >= 1, without bias worth a test: 64-bit multiply, error below n / 2^64. */
static inline uint32_t rng_below(struct rng *r, uint32_t n)
{
    uint64_t high = (uint64_t)rng_u32(r) * n, low = (uint64_t)rng_u32(r) * n;
    return (uint32_t)((high + (low >> 32)) >> 32);
}

/* Uniform in the open interval (0, 1): 23 bits, so that adding a half stays exact and 1 is never met. */
static inline float rng_word_uniform(uint32_t word)
{
    return ((float)(word >> 9) + 0.5f) * (1.0f / 8388608.0f);
}

static inline float rng_uniform(struct rng *r)
{
    return rng_word_uniform(rng_u32(r));
}

static inline float rng_between(struct rng *r, float lo, float hi)
{
    return lo + (hi - lo) * rng_uniform(r);
}

/* Standard normal (Box-Muller, one of the pair). */
static inline float rng_normal(struct rng *r)
{
    float u = rng_uniform(r), v = rng_uniform(r);
    return sqrtf(-2.0f * logf(u)) * cosf(6.28318530717958648f * v);
}

/* Beta(a, a) for a from 0.1 to 1 (Johnk, 1964): of two uniforms to the power 1/a, taken again until their sum
 * is at most 1, the share of the first. At a = 0.2 the first two do in 95 of 100 cases. */
static inline double rng_beta(struct rng *r, double a)
{
    double x, y;
    do {
        x = pow((double)rng_uniform(r), 1.0 / a);
        y = pow((double)rng_uniform(r), 1.0 / a);
    } while (x + y > 1.0);
    return x / (x + y);
}

#endif
