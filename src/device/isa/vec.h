/* vec.h - a vector of floats as long as the level's registers, and what GCC's vector types cannot say.
 *
 * A longer vector would be plain C too, but GCC keeps those in memory, and what works on them takes two to
 * three times as long.
 */
#ifndef FALX_VEC_H
#define FALX_VEC_H

#include <immintrin.h>
#include <stdint.h>

#if defined(__AVX512F__)
enum { LANES = 16 };
#define VEC_LEVEL(avx512, avx2, base) avx512
#elif defined(__AVX2__)
enum { LANES = 8 };
#define VEC_LEVEL(avx512, avx2, base) avx2
#else
enum { LANES = 4 };
#define VEC_LEVEL(avx512, avx2, base) base
#endif

/* Vectors in memory may begin at any element. */
typedef float vec __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int32_t ivec __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef uint32_t uvec __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef uint16_t hvec __attribute__((vector_size(2 * LANES), aligned(2), may_alias)); /* bf16 */

#define INLINE static inline __attribute__((always_inline))

INLINE vec vec_all(float x)
{
    return x - (vec){0}; /* x + 0 would be an addition: it turns -0 into 0 */
}

INLINE vec vec_widen(hvec h)
{
#ifdef __AVX512F__
    return (vec)_mm512_slli_epi32(_mm512_cvtepu16_epi32((__m256i)h), 16);
#else
    return (vec)(__builtin_convertvector(h, uvec) << 16);
#endif
}

/* a*b + c, in one rounding where the level has it. */
INLINE vec vec_madd(vec a, vec b, vec c)
{
    return VEC_LEVEL((vec)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c),
                     (vec)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c), a * b + c);
}

/* The larger; b if one of them is not a number. */
INLINE vec vec_max(vec a, vec b)
{
    return (vec)VEC_LEVEL(_mm512_max_ps((__m512)a, (__m512)b), _mm256_max_ps((__m256)a, (__m256)b),
                          _mm_max_ps((__m128)a, (__m128)b));
}

#if defined(__AVX512F__)
INLINE __mmask16 vec_first(int n)
{
    return (__mmask16)(n < LANES ? (1u << n) - 1 : 0xffffu);
}
#elif defined(__AVX2__)
INLINE __m256i vec_first(int n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
#endif

/* The first n elements, all if n is LANES or more; the others are zero, and not read. */
INLINE vec vec_load(const float *from, int n)
{
#if defined(__AVX512F__)
    return (vec)_mm512_maskz_loadu_ps(vec_first(n), from);
#elif defined(__AVX2__)
    return (vec)_mm256_maskload_ps(from, vec_first(n));
#else
    vec v = {0};
    for (int i = 0; i < LANES && i < n; i++)
        v[i] = from[i];
    return v;
#endif
}

/* The first n elements, all if n is LANES or more; nothing is written behind them. */
INLINE void vec_store(float *to, vec v, int n)
{
#if defined(__AVX512F__)
    _mm512_mask_storeu_ps(to, vec_first(n), (__m512)v);
#elif defined(__AVX2__)
    _mm256_maskstore_ps(to, vec_first(n), (__m256)v);
#else
    for (int i = 0; i < LANES && i < n; i++)
        to[i] = v[i];
#endif
}

/* Past the caches: for what goes far away, in whole lines of 64 bytes that are written at once. `to` is a
 * multiple of the vector. */
INLINE void vec_stream(float *to, vec v)
{
    VEC_LEVEL(_mm512_stream_ps(to, (__m512)v), _mm256_stream_ps(to, (__m256)v), _mm_stream_ps(to, (__m128)v));
}

#endif
