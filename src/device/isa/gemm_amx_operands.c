/* gemm_amx_operands.c - the operands of the weight gradient, made: see gemm_amx_operands.h. */
#include "device/isa/gemm_amx_operands.h"

#ifdef ISA_LEVEL_amx

static int64_t tiles_of(int64_t lda, int64_t reach)
{
    return (reach + lda * TILE_K - 1) / (lda * TILE_K);
}

static int64_t pairs_of(int64_t rows)
{
    return (rows + 1) / 2 + PAIR_PAD + 1;
}

size_t strip_bytes(const struct gemm_shape *s, int64_t lda, int64_t rows, int64_t reach)
{
    return (size_t)(LINE - 1 + tiles_of(lda, reach) * STRIP * LINE +
                    up_to(s->n, TILE_COLS) / TILE_COLS * 2 * pairs_of(rows) * LINE);
}

void strip_lay_out(struct strip *w, void *scratch, int64_t lda, int64_t rows, int64_t reach)
{
    w->n_at = tiles_of(lda, reach);
    w->n_pairs = pairs_of(rows);
    w->at = (uint16_t *)up_to((intptr_t)scratch, LINE);
    w->pairs = w->at + w->n_at * STRIP * TILE_K;
}

/* Eight elements to the quarter of v that the mask names. A masked broadcast, unlike an insertion,
 * leaves the one port that can shuffle to the transposition. */
static inline __m512i put_quarter(__m512i v, __mmask16 quarter, const uint16_t *from)
{
    return _mm512_mask_broadcast_i32x4(v, quarter, _mm_loadu_si128((const __m128i *)from));
}

/* 32 positions x 8 channels from `from` (rows of lda) to 8 rows of `to`. Not inlined: in a loop the
 * compiler would keep 32 addresses alive. */
static __attribute__((noinline)) void transpose_32x8(uint16_t *to, const uint16_t *from, int64_t lda)
{
    __m512i r[8], p[8], q[8];

    for (int i = 0; i < 8; i++) { /* positions i, 8+i, 16+i, 24+i side by side */
        const uint16_t *row = from + i * lda;
        __m512i v = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)row));
        v = put_quarter(v, 0x00f0, row + 8 * lda);
        v = put_quarter(v, 0x0f00, row + 16 * lda);
        r[i] = put_quarter(v, 0xf000, row + 24 * lda);
    }
    for (int i = 0; i < 4; i++) { /* channels 0-3 and 4-7 of two positions */
        p[i] = _mm512_unpacklo_epi16(r[2 * i], r[2 * i + 1]);
        p[4 + i] = _mm512_unpackhi_epi16(r[2 * i], r[2 * i + 1]);
    }
    for (int h = 0; h < 8; h += 4) /* two channels of four positions */
        for (int i = 0; i < 2; i++) {
            q[h + i] = _mm512_unpacklo_epi32(p[h + 2 * i], p[h + 2 * i + 1]);
            q[h + 2 + i] = _mm512_unpackhi_epi32(p[h + 2 * i], p[h + 2 * i + 1]);
        }
    for (int i = 0; i < 4; i++) {
        uint16_t *row = to + 2 * i * TILE_K;
        _mm512_storeu_si512(row, _mm512_unpacklo_epi64(q[2 * i], q[2 * i + 1]));
        _mm512_storeu_si512(row + TILE_K, _mm512_unpackhi_epi64(q[2 * i], q[2 * i + 1]));
    }
}

/* Rows of many channels are too far apart for the processor to guess the next: ask for them. */
static void strip_prefetch(const uint16_t *from, int64_t lda)
{
    for (int i = 0; lda > 2 * TILE_K && i < TILE_K; i++)
        _mm_prefetch((const char *)(from + i * lda), _MM_HINT_T0);
}

/* Tile t of positions; zero from the end of A on. Groups of 8 channels may read a few of the next
 * position's: they land in rows of the strip that nobody uses. */
static void strip_fill_tile(const struct strip *w, const struct strip_source *from, int64_t t)
{
    int64_t lda = from->lda, base = t * TILE_K * lda + from->first;

    strip_prefetch(from->a + base + TILE_K * lda, lda);
    for (int64_t ch = 0; ch < from->n; ch += 8) {
        uint16_t *to = w->at + (t * w->channels + ch) * TILE_K;
        if ((t + 1) * TILE_K * lda <= from->reach) {
            transpose_32x8(to, from->a + base + ch, lda);
            continue;
        }
        uint16_t rows[TILE_K * 8] = {0};
        for (int64_t i = 0; i < TILE_K * 8; i++) {
            int64_t at = base + i / 8 * lda + ch + i % 8;
            if (ch + i % 8 < from->n && at < from->reach)
                rows[i] = from->a[at];
        }
        transpose_32x8(to, rows, 8);
    }
}

void strip_fill(struct strip *w, struct strip_source *from, const int64_t *offset, const struct gemm_shape *s,
                int64_t end, int once)
{
    for (int i = 1; i < s->n_segments; i++)
        once = once && offset[i] >= offset[i - 1];
    w->channels = up_to(from->n, 8);
    for (int i = 0; i < s->n_segments; i++) {
        int64_t begin = offset[i] / from->lda / TILE_K;
        int64_t last = (offset[i] + s->k - 1) / from->lda + end - 1;
        if (once && begin > from->done)
            from->done = begin;
        for (; from->done <= last / TILE_K; from->done++)
            strip_fill_tile(w, from, from->done);
    }
}

/* ---- Y -------------------------------------------------------------------------------------- */

static __m512i load_row(const uint16_t *y, __mmask16 mask)
{
    return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, y));
}

static __m512i join_rows(__m512i first, __m512i second)
{
    return _mm512_or_si512(first, _mm512_slli_epi32(second, 16));
}

/* One column tile: pairs of rows 0, 1; 2, 3 ..., in the odd copy of -1, 0; 1, 2 ... */
static void pairs_fill_rows(uint16_t *even, uint16_t *odd, const uint16_t *y, int64_t ldy, int64_t rows,
                            __mmask16 mask)
{
    __m512i last = _mm512_setzero_si512();

    for (int64_t i = 0; i < (rows + 1) / 2; i++) {
        __m512i first = load_row(y + 2 * i * ldy, mask);
        __m512i second = 2 * i + 1 < rows ? load_row(y + (2 * i + 1) * ldy, mask) : _mm512_setzero_si512();
        _mm512_storeu_si512(even + i * TILE_K, join_rows(first, second));
        if (odd)
            _mm512_storeu_si512(odd + i * TILE_K, join_rows(last, first));
        last = second;
    }
    if (odd)
        _mm512_storeu_si512(odd + (rows + 1) / 2 * TILE_K, join_rows(last, _mm512_setzero_si512()));
}

/* Pair i of the even copy is rows 2i, 2i+1 counted from -PAIR_PAD, in the odd one 2i+1, 2i+2. */
void pairs_fill(const struct strip *w, const struct strip_source *from, int64_t first, int64_t rows, int n,
                int odd)
{
    enum { BEFORE = PAIR_PAD / 2 };
    int64_t after = w->n_pairs - BEFORE - (rows + 1) / 2;

    for (int j = 0; j < n; j += TILE_COLS) {
        uint16_t *even_to = w->pairs + j / TILE_COLS * 2 * w->n_pairs * TILE_K;
        uint16_t *odd_to = even_to + w->n_pairs * TILE_K;
        uint16_t *even_end = even_to + (w->n_pairs - after) * TILE_K;
        memset(even_to, 0, BEFORE * LINE);
        memset(even_end, 0, (size_t)after * LINE);
        if (odd) {
            memset(odd_to, 0, BEFORE * LINE);
            memset(odd_to + (w->n_pairs - after) * TILE_K, 0, (size_t)after * LINE);
        }
        pairs_fill_rows(even_to + BEFORE * TILE_K, odd ? odd_to + (BEFORE - 1) * TILE_K : NULL,
                        from->y + first * from->ldy + j, from->ldy, rows, vec_first(n - j));
    }
}
#endif
