/* gemm_bf16.h - bf16 weights packed for products: by AMX tiles (gemm_amx.c) or by vectors (gemm_pairs.c).
 *
 * Either instruction multiplies pairs of neighbouring k. B becomes tiles of 32 k, a row for each pair:
 *
 *     tile:  pair of k | 16 columns x 2 k
 *
 * AMX loads a tile as it lies in memory; vectors go over rows, and those of two column tiles lie side
 * by side: a panel of gemm_walk.h.
 */
#ifndef FALX_GEMM_BF16_H
#define FALX_GEMM_BF16_H

#include "device/gemm.h"
#include "device/isa/isa.h"

#ifdef __AVX512BF16__
#include "device/isa/vec.h"

enum {
    TILE_ROWS = 16, /* pairs */
    TILE_K = 32,    /* bf16 elements of a row */
    TILE_COLS = 16, /* columns of B; floats of a row of sums */
    TILE_SIZE = 512 /* bf16 elements of a tile */
};

#ifdef ISA_LEVEL_amx
enum { BY_TILES = 1 };
#else
enum { BY_TILES = 0 };
#endif

/* Two rows of 16 bf16 as 16 pairs. */
static inline __m512i interleave(__m256i first, __m256i second)
{
    return _mm512_or_si512(_mm512_cvtepu16_epi32(first),
                           _mm512_slli_epi32(_mm512_cvtepu16_epi32(second), 16));
}

/* Steps of 32 k in one segment; the last may be filled up with zeros. */
static inline int steps_of(const struct gemm_shape *s)
{
    return (s->k + TILE_K - 1) / TILE_K;
}

/* AMX: rows of 16 channels (32 bytes) with segments of three of them are read as whole lines. An even row
 * and the odd one after it find their three neighbours in the same two lines:
 *
 *     line  | 0 1 | 2 3 |      weights of row 0  | a b | c - |      of row 1  | - a | b c |
 *
 * So B is packed twice, the second time moved by half a line; even rows are done first, then the odd
 * ones. */
static inline int has_halves(const struct gemm_shape *s)
{
    return BY_TILES && s->k == 3 * TILE_K / 2;
}

/* gemm_bf16_pack.c: struct gemm_ops' pack_bytes, pack and pack_turned. */
size_t ISA(gemm_bf16_pack_bytes)(const struct gemm_shape *s);
void ISA(gemm_bf16_pack)(void *packed, const float *b, int64_t ldb, int64_t rows, const struct gemm_shape *s,
                         const struct gemm_part *part);
void ISA(gemm_bf16_pack_turned)(void *packed, const struct gemm_turned *t, const struct gemm_shape *s,
                                const struct gemm_part *part);
#endif

#endif
