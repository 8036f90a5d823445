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

#include "device/isa/gemm_bf16.h"

#ifdef ISA_LEVEL_amx
#include <string.h>

enum { LINE = 64 }; /* bytes of a cache line and of a tile's row */

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

/* gemm_amx_weights.c: struct gemm_ops' weights and weights_scratch. */
size_t ISA(gemm_amx_weights_scratch)(const struct gemm_shape *s, int64_t lda, int64_t m_count, int64_t reach);
void ISA(gemm_amx_weights)(float *d, int64_t ldd, enum gemm_put put, const void *a, int64_t lda,
                           const int64_t *offset, const void *y, int64_t ldy, const struct gemm_shape *s,
                           int64_t m_count, int64_t reach, void *scratch);
#endif

#endif
