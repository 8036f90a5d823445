/* transpose.h - 16 x 16 numbers of 32 bits in registers: row i, number j becomes row j, number i. */
#ifndef FALX_TRANSPOSE_H
#define FALX_TRANSPOSE_H

#ifdef __AVX512F__
#include <immintrin.h>

/* Four rounds, each joins what is 1, 2, 4, 8 apart. */
static inline void transpose_16(__m512i *r)
{
    __m512i p[16];

    for (int i = 0; i < 16; i += 2) {
        p[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        p[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
    for (int i = 0; i < 16; i += 4)
        for (int h = 0; h < 2; h++) { /* columns i .. i+3 of number 2h (+1) of every four */
            r[i + 2 * h] = _mm512_unpacklo_epi64(p[i + h], p[i + 2 + h]);
            r[i + 2 * h + 1] = _mm512_unpackhi_epi64(p[i + h], p[i + 2 + h]);
        }
    for (int h = 0; h < 4; h++) { /* numbers h, 8+h and 4+h, 12+h */
        p[h] = _mm512_shuffle_i32x4(r[h], r[4 + h], 0x88);
        p[4 + h] = _mm512_shuffle_i32x4(r[h], r[4 + h], 0xdd);
        p[8 + h] = _mm512_shuffle_i32x4(r[8 + h], r[12 + h], 0x88);
        p[12 + h] = _mm512_shuffle_i32x4(r[8 + h], r[12 + h], 0xdd);
    }
    for (int h = 0; h < 8; h++) {
        r[h] = _mm512_shuffle_i32x4(p[h], p[8 + h], 0x88);
        r[8 + h] = _mm512_shuffle_i32x4(p[h], p[8 + h], 0xdd);
    }
}
#endif

#endif
