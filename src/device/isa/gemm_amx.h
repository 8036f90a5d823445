/* gemm_amx.h - what the two directions of the AMX products share: tiles and how they are stored.
 *
 * A tile register holds 16 rows of 64 bytes. One instruction, TDPBF16PS, adds the product of a tile
 * of 16 rows x 32 bf16 and a tile of 32 x 16 bf16, stored as 16 rows of pairs, to a tile of 16 x 16
 * floats:
 *
 *     A:  row | 32 k         B:  pair of k | 16 columns x 2 k         sums:  row | 16 columns
 *
 * It takes 16 cycles. Loading a tile takes 8 if its rows lie in the first cache, each within a line
 * of 64 bytes, but some 50 if every row crosses one: so load little, and aligned.
 *
 * Registers are configured at the start of a call and released at its end, about 75 ns; the thread
 * keeps nothing.
 */
#ifndef FALX_GEMM_AMX_H
#define FALX_GEMM_AMX_H

#include "device/gemm.h"
#include "device/isa/isa.h"

#ifdef ISA_LEVEL_amx
#include <immintrin.h>
#include <string.h>

enum {
    TILE_ROWS = 16,  /* of every tile register */
    TILE_K = 32,     /* bf16 elements of a row */
    TILE_COLS = 16,  /* floats of a row */
    TILE_SIZE = 512, /* bf16 elements of a tile */
    LINE = 64        /* bytes of a cache line and of a tile's row */
};

/* The compiler does not know what memory the tile instructions read. */
#define MEMORY_SETTLED() __asm__ volatile("" ::: "memory")

static inline int64_t up_to(int64_t x, int64_t unit)
{
    return (x + unit - 1) / unit * unit;
}

/* Registers 0 .. n_sums-1 hold sums, then come those of A, last those of B:
 *     4 sums: 0 1 2 3 | 4 5 | 6 7        6 sums: 0 1 2 3 4 5 | 6 | 7
 * Sums and B have even_cols or odd_cols columns, by the register's number. */
static inline void tiles_configure(int n_sums, int rows, int even_cols, int odd_cols)
{
    struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } config; /* the processor's layout */
    int first_b = n_sums == 4 ? 6 : 7;

    memset(&config, 0, sizeof config);
    config.palette = 1;
    for (int i = 0; i < 8; i++) {
        int is_a = i >= n_sums && i < first_b;
        int cols = i % 2 ? odd_cols : even_cols;
        config.rows[i] = (uint8_t)(i < first_b ? rows : TILE_ROWS);
        config.row_bytes[i] = (uint16_t)(is_a ? LINE : cols * 4);
    }
    MEMORY_SETTLED();
    _tile_loadconfig(&config);
}

/* Two rows of 16 bf16 as 16 pairs. */
static inline __m512i interleave(__m256i first, __m256i second)
{
    return _mm512_or_si512(_mm512_cvtepu16_epi32(first),
                           _mm512_slli_epi32(_mm512_cvtepu16_epi32(second), 16));
}

/* The first `left` of 16 columns. */
static inline __mmask16 column_mask(int left)
{
    return (__mmask16)(left < TILE_COLS ? (1 << left) - 1 : 0xffff);
}

/* gemm_amx_weights.c: struct gemm_ops' weights and weights_scratch. */
size_t ISA(gemm_amx_weights_scratch)(const struct gemm_shape *s, int64_t lda, int64_t m_count,
                                     int64_t reach);
void ISA(gemm_amx_weights)(float *d, int64_t ldd, enum gemm_put put, const void *a, int64_t lda,
                           const int64_t *offset, const void *y, int64_t ldy,
                           const struct gemm_shape *s, int64_t m_count, int64_t reach,
                           void *scratch);

/* gemm_amx_pack.c: struct gemm_ops' pack and pack_turned, and how the packed B is laid out. */
size_t ISA(gemm_amx_pack_bytes)(const struct gemm_shape *s);
void ISA(gemm_amx_pack)(void *packed, const float *b, int64_t ldb, int64_t rows,
                        const struct gemm_shape *s, const struct gemm_part *part);
void ISA(gemm_amx_pack_turned)(void *packed, const struct gemm_turned *t, const struct gemm_shape *s,
                               const struct gemm_part *part);

/* Steps of 32 k in one segment; the last may be filled up with zeros. */
static inline int steps_of(const struct gemm_shape *s)
{
    return (s->k + TILE_K - 1) / TILE_K;
}

/* Rows of 16 channels (32 bytes) with segments of three of them are read as whole lines. An even row
 * and the odd one after it find their three neighbours in the same two lines:
 *
 *     line  | 0 1 | 2 3 |      weights of row 0  | a b | c - |      of row 1  | - a | b c |
 *
 * So B is packed twice, the second time moved by half a line; even rows are done first, then the odd
 * ones. */
static inline int has_halves(const struct gemm_shape *s)
{
    return s->k == 3 * TILE_K / 2;
}
#endif

#endif
