/* kernels_math.h - what the bodies of kernels.h are written with: lanes, exp, log, random numbers.
 *
 * A body works on K_LANES voxels at once, in small arrays x[K_LANES] ("lanes"), through loops over
 * the lanes that a C compiler turns into vector instructions.
 *
 *     voxels  i0 .. i1      |--- K_LANES ---|--- K_LANES ---|-- n --|
 *     one chunk             x[0] x[1] ...          loads and stores touch n lanes, arithmetic all
 *
 * On a GPU a warp is the chunk and a thread is one lane of it: K_LANES is 1, n is 1, or 0 past the end, and
 * the same text is a scalar program. Threads of a warp take every decision together (K_SOME), since sums
 * are made by all of them, but in the copy for the usual numbers, where they are a thread's own.
 *
 * The functions are branch-free polynomials of our own, so that every device and every level of the
 * processor gives the same numbers; coefficients are minimax fits on the intervals named beside
 * them. Errors (relative; absolute for sine and cosine) stay below 2e-7: tests/test_kernels.c.
 *
 * Sums: a reduction adds lanes into rows of REDUCE_LANES floats, one row per sum, through k_add().
 * So rounding does not grow with the chunk, and the loop over a row is one vector addition.
 */
#ifndef FALX_KERNELS_MATH_H
#define FALX_KERNELS_MATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>
#if defined(__AVX512F__) && !defined(__CUDACC__)
#include <immintrin.h>
#endif

#ifdef __CUDACC__
#define KERNEL static inline __host__ __device__
#else
#define KERNEL static inline
#endif

/* One copy of the loops is made for the usual numbers alone (cuda/loops.cuh): there they are constants, loops
 * over them are unrolled, arrays are registers, and rows of 2 or 16 numbers are read as vectors. */
#ifdef KERNEL_USUAL
enum { USUAL_CLASSES = 2, USUAL_PAIRS = 3, USUAL_RANK = 8 };
#define K_CLASSES(n) USUAL_CLASSES
#define K_FIRST(n) 0
#define K_DICE_FIRST(n) 1
#define K_PAIRS(n) USUAL_PAIRS
#define K_RANK(n) USUAL_RANK
#define K_CHANNELS(n) 1
#define K_NOISE(sd) 0.0f
#define K_ORDER(n) 2
#define K_FULL(n) 0
#else
#define K_CLASSES(n) (n)
#define K_FIRST(n) (n)
#define K_DICE_FIRST(n) (n)
#define K_PAIRS(n) (n)
#define K_RANK(n) (n)
#define K_CHANNELS(n) (n)
#define K_NOISE(sd) (sd)
#define K_ORDER(n) (n)
#define K_FULL(n) (n)
#endif
#if defined(KERNEL_USUAL) && defined(__CUDA_ARCH__)
#define K_UNROLL _Pragma("unroll")
#else
#define K_UNROLL
#endif

/* Loop over the lanes, and over the chunks of a range: n is the number of lanes in use. K_SOME: true for
 * one lane of the chunk at least. */
#define EACH_LANE(j) for (int j = 0; j < K_LANES; j++)
#ifdef __CUDA_ARCH__
enum { K_LANES = 1, REDUCE_LANES = 1 };
#ifdef KERNEL_USUAL
#define K_SOME(x) (x)
#else
#define K_SOME(x) __any_sync(0xFFFFFFFFu, (x))
#endif
#define EACH_CHUNK(i, n, i0, i1) for (int64_t i = (i0), n = (i1)-i, once_ = 1; once_; once_ = 0)
#else
enum { K_LANES = 32, REDUCE_LANES = 16 }; /* 32: two 64-byte registers, which hides their latency */
#define K_SOME(x) (x)
#define EACH_CHUNK(i, n, i0, i1)                                                                             \
    for (int64_t i = (i0), n = (i1)-i < K_LANES ? (i1)-i : K_LANES; n > 0;                                   \
         i += K_LANES, n = (i1)-i < K_LANES ? (i1)-i : K_LANES)
#endif

/* sums row s += x, REDUCE_LANES numbers; on a GPU the warp's numbers, in the order of a tree, or, in the copy
 * for the usual numbers, a thread's own. */
KERNEL void k_add_row(float *sums, int s, const float *x)
{
    float *row = sums + (int64_t)s * REDUCE_LANES;
#if defined(__CUDA_ARCH__) && defined(KERNEL_USUAL)
    row[0] += x[0];
#elif defined(__CUDA_ARCH__)
    float sum = x[0];
    for (int apart = 16; apart > 0; apart /= 2)
        sum += __shfl_xor_sync(0xFFFFFFFFu, sum, apart);
    if (threadIdx.x % 32 == 0)
        row[0] += sum;
#else
    for (int j = 0; j < REDUCE_LANES; j++)
        row[j] += x[j];
#endif
}

/* sums row s += x, all lanes; lanes not in use must hold 0. */
KERNEL void k_add(float *sums, int s, const float *x)
{
    for (int part = 0; part < K_LANES; part += REDUCE_LANES)
        k_add_row(sums, s, x + part);
}

/* sums row s += x * y, lane by lane. */
KERNEL void k_add_product(float *sums, int s, const float *x, const float *y)
{
#ifdef __CUDA_ARCH__
    float product = x[0] * y[0];
    k_add_row(sums, s, &product);
#else
    float *row = sums + (int64_t)s * REDUCE_LANES;
    for (int part = 0; part < K_LANES; part += REDUCE_LANES)
        for (int j = 0; j < REDUCE_LANES; j++)
            row[j] += x[part + j] * y[part + j];
#endif
}

/* Most classes a body can have in its arrays (labels are bytes), and most pairs of samples times classes.
 * What a CPU has on its stack a GPU keeps for every thread: it has a copy of these loops for few classes
 * (cuda/loops.cuh). */
#ifdef KERNEL_FEW
enum { KERNEL_CLASSES = KERNEL_FEW, GAUSS_ROWS = 8 * KERNEL_FEW };
#else
enum { KERNEL_CLASSES = 256, GAUSS_ROWS = 256 }; /* rows: a multiple of 4 */
#endif

/* ---- bits ------------------------------------------------------------------------------------ */

KERNEL uint32_t k_bits(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

KERNEL float k_float(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* Element i of floats, or of bf16 numbers, which are upper halves of floats. */
KERNEL float k_get(const void *from, int bf16, int64_t i)
{
    return bf16 ? k_float((uint32_t)((const uint16_t *)from)[i] << 16) : ((const float *)from)[i];
}

/* Rounded to nearest even; NaN stays NaN. */
KERNEL void k_put(void *to, int bf16, int64_t i, float x)
{
    uint32_t u = k_bits(x), rounded = u + 0x7FFFu + (u >> 16 & 1u);
    if (bf16)
        ((uint16_t *)to)[i] = (uint16_t)((x == x ? rounded : u | 0x00400000u) >> 16);
    else
        ((float *)to)[i] = x;
}

KERNEL float k_max(float a, float b)
{
    return a > b ? a : b;
}

KERNEL float k_min(float a, float b)
{
    return a < b ? a : b;
}

/* ---- functions ------------------------------------------------------------------------------- */

/* e^x. 0 below -87 (no denormals), infinite above 88, NaN for NaN. x = n ln2 + r, |r| <= ln2/2. */
KERNEL float k_exp(float x)
{
    float c = x > 88.0f ? 88.0f : x;
    c = c < -87.0f ? -87.0f : c;
    float t = c * 1.44269504f + 12582912.0f; /* 1.5 * 2^23: rounds; n is in the low bits, too */
    float n = t - 12582912.0f;
    float r = (c - n * 0.693359375f) - n * -2.12194440e-4f; /* ln2 in two parts, the first exact */
    float p = 1.9913327e-4f;
    p = p * r + 1.3935488e-3f;
    p = p * r + 8.3332751e-3f;
    p = p * r + 4.1666459e-2f;
    p = p * r + 1.6666667e-1f;
    p = p * r + 0.5f;
    p = p * (r * r) + r + 1.0f;
    p *= k_float((k_bits(t) << 23) + 0x3F800000u); /* 2^n */
    p = x < -87.0f ? 0.0f : p;
    return x > 88.0f ? (float)INFINITY : p;
}

/* ln x for positive normal x; NaN for what is not finite. x = 2^n (1 + f) with 1 + f from sqrt(1/2)
 * to sqrt 2. */
KERNEL float k_log(float x)
{
    uint32_t u = k_bits(x) - 0x3F3504F3u; /* bits of sqrt(1/2) */
    float n = (float)((int32_t)u >> 23);
    float f = k_float((u & 0x007FFFFFu) + 0x3F3504F3u) - 1.0f;
    float p = 6.7466386e-2f;
    p = p * f - 1.1675651e-1f;
    p = p * f + 1.1888163e-1f;
    p = p * f - 1.2405589e-1f;
    p = p * f + 1.4219552e-1f;
    p = p * f - 1.6667996e-1f;
    p = p * f + 2.0002119e-1f;
    p = p * f - 2.5000009e-1f;
    p = p * f + 3.3333313e-1f;
    float ff = f * f;
    float small = p * (ff * f) + n * -2.12194440e-4f - 0.5f * ff;
    return (small + f) + n * 0.693359375f + (x - x);
}

/* Sine and cosine of 2 pi t, 0 <= t < 1: an eighth of a turn by polynomial, the rest by
 * symmetry. */
KERNEL void k_sincos_turn(float t, float *sine, float *cosine)
{
    float q = (t * 4.0f + 12582912.0f) - 12582912.0f; /* nearest quarter, 0 .. 4 */
    float r = t - q * 0.25f, z = r * r;               /* exact, |r| <= 1/8 */
    float s = 41.472946f;
    s = s * z - 76.697868f;
    s = s * z + 81.605202f;
    s = s * z - 41.341702f;
    s = s * z + 6.2831855f;
    s = s * r;
    float c = 59.245964f;
    c = c * z - 85.443741f;
    c = c * z + 64.939323f;
    c = c * z - 19.739208f;
    c = c * z + 1.0f;
    int32_t k = (int32_t)q;
    /* quarter by quarter: (s,c) (c,-s) (-s,-c) (-c,s) */
    float a = k & 1 ? c : s, b = k & 1 ? s : c;
    *sine = k & 2 ? -a : a;
    *cosine = (k + 1) & 2 ? -b : b;
}

/* ---- random numbers: rng_block() of base/rng.h in lanes -------------------------------------- */

/* A round makes (c0, c1, c2, c3) into
 *     (high(b c2) ^ c1 ^ key0, low(b c2), high(a c0) ^ c3 ^ key1, low(a c0)).
 * The ten are written out: a loop around them would keep that over lanes from becoming vectors. */
#define K_TEN_ROUNDS(ROUND)                                                                                  \
    ROUND(0u) ROUND(1u) ROUND(2u) ROUND(3u) ROUND(4u) ROUND(5u) ROUND(6u) ROUND(7u) ROUND(8u) ROUND(9u)
#define K_MUL_A 0xD2511F53u
#define K_MUL_B 0xCD9E8D57u
#define K_KEY_0(i) (s0 + (i)*0x9E3779B9u)
#define K_KEY_1(i) (s1 + (i)*0xBB67AE85u)

#if defined(__AVX512F__) && !defined(__CUDACC__)
/* Sixteen products of 32 by 32 bits, as halves: the compiler would take 64-bit products, three
 * times the work. */
KERNEL void k_mul_16(__m512i *high, __m512i *low, __m512i x, __m512i by)
{
    __m512i even = _mm512_mul_epu32(x, by), odd = _mm512_mul_epu32(_mm512_srli_epi64(x, 32), by);
    *high = _mm512_mask_shuffle_epi32(odd, 0x5555, even, (_MM_PERM_ENUM)0xF5);
    *low = _mm512_mask_shuffle_epi32(even, 0xAAAA, odd, (_MM_PERM_ENUM)0xA0);
}
#endif

/* Lane j gets the four numbers of index first + j * stride. */
KERNEL void k_random(uint32_t out[4][K_LANES], uint64_t seed, uint64_t step, uint32_t stream, uint64_t first,
                     uint64_t stride)
{
    const uint32_t s0 = (uint32_t)seed, s1 = (uint32_t)(seed >> 32), step0 = (uint32_t)step;
    const uint32_t tail = stream ^ ((uint32_t)(step >> 32) << 8);
    EACH_LANE (j) {
        uint64_t index = first + (uint64_t)j * stride;
        out[0][j] = (uint32_t)index;
        out[1][j] = (uint32_t)(index >> 32);
    }
#if defined(__AVX512F__) && !defined(__CUDACC__)
    const __m512i a = _mm512_set1_epi32((int)K_MUL_A), b = _mm512_set1_epi32((int)K_MUL_B);
    for (int j = 0; j < K_LANES; j += 16) {
        __m512i c0 = _mm512_loadu_si512(out[0] + j), c1 = _mm512_loadu_si512(out[1] + j);
        __m512i c2 = _mm512_set1_epi32((int)step0), c3 = _mm512_set1_epi32((int)tail);
        __m512i h0, h1, l0, l1;
#define K_ROUND(i)                                                                                           \
    k_mul_16(&h0, &l0, c0, a);                                                                               \
    k_mul_16(&h1, &l1, c2, b);                                                                               \
    c0 = _mm512_xor_si512(_mm512_xor_si512(h1, c1), _mm512_set1_epi32((int)K_KEY_0(i)));                     \
    c2 = _mm512_xor_si512(_mm512_xor_si512(h0, c3), _mm512_set1_epi32((int)K_KEY_1(i)));                     \
    c1 = l1;                                                                                                 \
    c3 = l0;
        K_TEN_ROUNDS(K_ROUND)
        _mm512_storeu_si512(out[0] + j, c0);
        _mm512_storeu_si512(out[1] + j, c1);
        _mm512_storeu_si512(out[2] + j, c2);
        _mm512_storeu_si512(out[3] + j, c3);
    }
#elif defined(__CUDA_ARCH__)
    uint32_t c0 = out[0][0], c1 = out[1][0], c2 = step0, c3 = tail, h0, h1;
#define K_ROUND(i)                                                                                           \
    h0 = __umulhi(K_MUL_A, c0);                                                                              \
    h1 = __umulhi(K_MUL_B, c2);                                                                              \
    c3 = h0 ^ c3 ^ K_KEY_1(i);                                                                               \
    c1 = h1 ^ c1 ^ K_KEY_0(i);                                                                               \
    h0 = K_MUL_A * c0;                                                                                       \
    h1 = K_MUL_B * c2;                                                                                       \
    c0 = c1;                                                                                                 \
    c2 = c3;                                                                                                 \
    c1 = h1;                                                                                                 \
    c3 = h0;
    K_TEN_ROUNDS(K_ROUND)
    out[0][0] = c0;
    out[1][0] = c1;
    out[2][0] = c2;
    out[3][0] = c3;
#else
    EACH_LANE (j) {
        uint32_t c0 = out[0][j], c1 = out[1][j], c2 = step0, c3 = tail;
        uint64_t p0, p1;
#define K_ROUND(i)                                                                                           \
    p0 = (uint64_t)K_MUL_A * c0;                                                                             \
    p1 = (uint64_t)K_MUL_B * c2;                                                                             \
    c0 = (uint32_t)(p1 >> 32) ^ c1 ^ K_KEY_0(i);                                                             \
    c2 = (uint32_t)(p0 >> 32) ^ c3 ^ K_KEY_1(i);                                                             \
    c1 = (uint32_t)p1;                                                                                       \
    c3 = (uint32_t)p0;
        K_TEN_ROUNDS(K_ROUND)
        out[0][j] = c0;
        out[1][j] = c1;
        out[2][j] = c2;
        out[3][j] = c3;
    }
#endif
#undef K_ROUND
}

/* What rng_word_uniform() makes of a random word, by way of an int, which every level converts in vectors. */
KERNEL float k_uniform(uint32_t word)
{
    return ((float)(int32_t)(word >> 9) + 0.5f) * (1.0f / 8388608.0f);
}

/* Two standard normals from two random words (Box-Muller): the cosine's, then the sine's. */
KERNEL void k_normal(float *x, float *y, uint32_t a, uint32_t b)
{
    float u = k_uniform(a), t = k_uniform(b);
    float length = sqrtf(-2.0f * k_log(u)), sine, cosine;
    k_sincos_turn(t, &sine, &cosine);
    *x = length * cosine;
    *y = length * sine;
}

/* Lanes of four normals from the block of that index. */
KERNEL void k_normals(float out[4][K_LANES], uint64_t seed, uint64_t step, uint32_t stream, uint64_t first,
                      uint64_t stride)
{
    uint32_t bits[4][K_LANES];
    k_random(bits, seed, step, stream, first, stride);
    EACH_LANE (j)
        k_normal(&out[0][j], &out[1][j], bits[0][j], bits[1][j]);
    EACH_LANE (j)
        k_normal(&out[2][j], &out[3][j], bits[2][j], bits[3][j]);
}

/* ---- lanes to and from channels-last rows ---------------------------------------------------- */

enum { K_TILE = 16 }; /* channels brought over at once where there are many */

/* t = row or row = t; 2 numbers, or up to 16 by fours. */
KERNEL void k_read_row(float *t, const float *row, const int count)
{
#if defined(__CUDA_ARCH__) && defined(KERNEL_USUAL)
    float2 v[K_TILE / 2];
    for (int i = 0; i < count / 4; i++)
        ((float4 *)v)[i] = ((const float4 *)row)[i];
    if (count == 2)
        v[0] = *(const float2 *)row;
    memcpy(t, v, (size_t)count * sizeof *t);
#else
    memcpy(t, row, (size_t)count * sizeof *t);
#endif
}

KERNEL void k_write_row(float *row, const float *t, const int count)
{
#if defined(__CUDA_ARCH__) && defined(KERNEL_USUAL)
    for (int i = 0; i < count / 4; i++)
        ((float4 *)row)[i] = make_float4(t[4 * i], t[4 * i + 1], t[4 * i + 2], t[4 * i + 3]);
    if (count == 2)
        *(float2 *)row = make_float2(t[0], t[1]);
#else
    memcpy(row, t, (size_t)count * sizeof *t);
#endif
}

/* x[c][lane] = t[lane * width + c], and back: with a constant width, shuffles in registers. */
KERNEL void k_split(float (*__restrict__ x)[K_LANES], const float *__restrict__ t, const int width)
{
    EACH_LANE (j)
        for (int c = 0; c < width; c++)
            x[c][j] = t[j * width + c];
}

KERNEL void k_join(float *__restrict__ t, float (*__restrict__ x)[K_LANES], const int width)
{
    EACH_LANE (j)
        for (int c = 0; c < width; c++)
            t[j * width + c] = x[c][j];
}

/* Channels 0 .. count of rows `stride` apart: x[c][lane] = row[lane * stride + c] for n lanes, the
 * others 0. */
KERNEL void k_load(float (*x)[K_LANES], const float *row, int count, int64_t stride, int64_t n)
{
    int c = 0;
    if (n == K_LANES && count == 2 && stride == 2) {
        float t[2 * K_LANES];
        k_read_row(t, row, 2 * K_LANES);
        k_split(x, t, 2);
        return;
    }
    for (; n == K_LANES && c + K_TILE <= count; c += K_TILE) {
        float t[K_LANES * K_TILE];
        EACH_LANE (j)
            k_read_row(t + j * K_TILE, row + j * stride + c, K_TILE);
        k_split(x + c, t, K_TILE);
    }
    for (; c < count; c++) {
        for (int64_t j = 0; j < n; j++)
            x[c][j] = row[j * stride + c];
        for (int64_t j = n; j < K_LANES; j++)
            x[c][j] = 0;
    }
}

/* row[lane * stride + c] += x[c][lane] for n lanes; fresh: = instead. */
KERNEL void k_add_rows(float *row, float (*x)[K_LANES], int count, int64_t stride, int64_t n, int fresh)
{
    int c = 0;
    float t[K_LANES * K_TILE], old[K_LANES * K_TILE];
    if (n == K_LANES && count == 2 && stride == 2) {
        k_join(t, x, 2);
        if (!fresh)
            k_read_row(old, row, 2 * K_LANES);
        for (int j = 0; j < 2 * K_LANES && !fresh; j++)
            t[j] = old[j] + t[j];
        k_write_row(row, t, 2 * K_LANES);
        return;
    }
    for (; n == K_LANES && c + K_TILE <= count; c += K_TILE) {
        k_join(t, x + c, K_TILE);
        EACH_LANE (j) {
            float *to = row + j * stride + c, *own = t + j * K_TILE;
            if (!fresh)
                k_read_row(old, to, K_TILE);
            for (int a = 0; a < K_TILE && !fresh; a++)
                own[a] = old[a] + own[a];
            k_write_row(to, own, K_TILE);
        }
    }
    for (; c < count; c++)
        for (int64_t j = 0; j < n; j++)
            row[j * stride + c] = fresh ? x[c][j] : row[j * stride + c] + x[c][j];
}

#endif
