/* gemm_amx_operands.h - both operands of the weight gradient as tiles want them.
 *
 *     strip:   32 positions | channel | position          a tile of A is 16 channels of it
 *     pairs:   column tile | even, odd | pair | 16 x 2    a tile of Y is 16 pairs from any on
 *
 * The strip is A transposed, up to 32 of its channels. With Y's rows stored in pairs, a shift of Y by
 * an even number of positions is a shift by whole rows of memory; an odd one is the same in a second
 * copy whose pairs are cut one later. Rows of zeros before and after let every tile be whole.
 */
#ifndef FALX_GEMM_AMX_OPERANDS_H
#define FALX_GEMM_AMX_OPERANDS_H

#include "device/isa/gemm_amx.h"

#ifdef ISA_LEVEL_amx

enum {
    STRIP = 32,    /* channels transposed at a time: two tiles */
    PAIR_SPAN = 2, /* most positions between taps that share a tile of A: neighbours in x */
    PAIR_PAD = 34  /* rows of zeros before and after Y: the span + 31 to fill a tile, made even */
};

/* The scratch memory. */
struct strip {
    uint16_t *at;     /* (tile of positions, channels, 32) */
    int64_t n_at;     /* tiles of positions */
    int64_t channels; /* of the strip now in memory, in eights */
    uint16_t *pairs;  /* (column tile, 2, n_pairs, 16, 2) */
    int64_t n_pairs;
};

/* What it is made from. */
struct strip_source {
    const uint16_t *a, *y;
    int64_t lda, reach, ldy;
    int64_t first, n; /* channels of the strip */
    int64_t done;     /* tiles of positions made so far */
};

/* Memory for `rows` rows of Y at a time. */
size_t ISA(strip_bytes)(const struct gemm_shape *s, int64_t lda, int64_t rows, int64_t reach);
void ISA(strip_lay_out)(struct strip *w, void *scratch, int64_t lda, int64_t rows, int64_t reach);

/* Makes the tiles that rows before `end` need, if they are not done; `once`: for the last time, so that
 * what lies between segments is left out. */
void ISA(strip_fill)(struct strip *w, struct strip_source *from, const int64_t *offset,
                     const struct gemm_shape *s, int64_t end, int once);

/* Rows [first, first + rows) of Y; the odd copy if it is wanted. */
void ISA(pairs_fill)(const struct strip *w, const struct strip_source *from, int64_t first, int64_t rows,
                     int n, int odd);

#define strip_bytes ISA(strip_bytes)
#define strip_lay_out ISA(strip_lay_out)
#define strip_fill ISA(strip_fill)
#define pairs_fill ISA(pairs_fill)

/* Y from `row` of the chunk on (it may lie before or behind it). */
static inline const uint16_t *pairs_at(const struct strip *w, int column, int64_t row)
{
    int64_t at = row + PAIR_PAD;

    return w->pairs + ((column * 2 + at % 2) * w->n_pairs + at / 2) * TILE_K;
}
#endif

#endif
