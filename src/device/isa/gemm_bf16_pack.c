/* gemm_bf16_pack.c - float weights to the bf16 tiles of gemm_bf16.h.
 *
 *     AMX      two column tiles | segment, step of 32 k | column tile | tile
 *     halves   one column tile  | as it is, moved by 16 k | segment, step of 32 k | tile
 *     vectors  two column tiles | segment, step of 32 k | row of the one tile, of the other
 *
 * Weights are far larger than the caches and each is used once here, so what counts is that memory is
 * read in long runs and asked for ahead of time. Rows of B make a tile by interleaving two and two. A B
 * that lies by columns makes one by transposition: 16 columns give 16 vectors of 32 k, which are 16 x 16
 * pairs.
 *
 * Tiles are written past the caches: a line that is written whole need not be read first, and
 * products find it no later. Other threads may read them after the pool's next barrier, which is atomic: an
 * instruction with LOCK waits for such writes too.
 */
#include "device/isa/gemm_bf16.h"
#include "device/isa/transpose.h"

#ifdef __AVX512BF16__

/* Where a tile of B begins. */
struct tile_place {
    int64_t row; /* of B: that of the tile's first k, even if it is not in the tile's segment */
    int lo, hi;  /* the k of the tile that exist: [lo, hi) of 32 */
    int col;
};

/* row: elements from row to row of the tile. */
typedef void make_tile(uint16_t *to, int row, const void *from, const struct tile_place *at,
                       __mmask16 columns);

/* The tile of a step, `moved` k later; rows of B from `rows` on are zero. */
static struct tile_place place_tile(const struct gemm_shape *s, int64_t rows, int step, int col, int moved)
{
    int steps = steps_of(s), k = step % steps * TILE_K - moved, end = s->k - k;
    struct tile_place at = {(int64_t)(step / steps) * s->k + k, k < 0 ? -k : 0, end < TILE_K ? end : TILE_K,
                            col};

    if (rows - at.row < at.hi)
        at.hi = (int)(rows - at.row);
    return at;
}

/* Tiles of a part, or all, in their order. */
static void pack_tiles(uint16_t *packed, const struct gemm_shape *s, int64_t rows,
                       const struct gemm_part *part, make_tile *make, const void *from)
{
    int halves = has_halves(s), all = s->n_segments * steps_of(s);
    int cols = halves ? TILE_COLS : 2 * TILE_COLS; /* made side by side */
    int first = part ? (int)(part->row / TILE_K) : 0, end = part ? (int)(part->end / TILE_K) : all;
    int j = part ? part->col : 0, last = part ? part->col_end : s->n;

    for (; j < last; j += cols)
        for (int half = 0; half <= halves; half++) {
            int tiles = s->n - j > TILE_COLS ? cols / TILE_COLS : 1;
            int row = BY_TILES ? TILE_K : tiles * TILE_K, tile = BY_TILES ? TILE_SIZE : TILE_K;
            uint16_t *to =
                packed + (j / TILE_COLS * (1 + halves) + half) * all * TILE_SIZE + first * tiles * TILE_SIZE;
            for (int step = first; step < end; step++, to += tiles * TILE_SIZE)
                for (int t = 0; t < tiles; t++) {
                    struct tile_place at = place_tile(s, rows, step, j + t * TILE_COLS, half * TILE_K / 2);
                    make(to + t * tile, row, from, &at, vec_first(s->n - at.col));
                }
        }
}

size_t ISA(gemm_bf16_pack_bytes)(const struct gemm_shape *s)
{
    return (size_t)s->n_segments * (size_t)steps_of(s) * (has_halves(s) ? 2 : 1) *
           (size_t)((s->n + TILE_COLS - 1) / TILE_COLS) * TILE_SIZE * 2;
}

static void put_row(uint16_t *row, __m512i pairs)
{
    _mm512_stream_si512((void *)row, pairs);
}

/* ---- B by rows ------------------------------------------------------------------------------ */

struct plain {
    const float *b;
    int64_t ld;
};

static __m256i load_rounded(const float *b, __mmask16 mask)
{
    return (__m256i)_mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(mask, b));
}

enum { AHEAD = TILE_K }; /* rows to ask for ahead: those of the next step */

static void plain_tile(uint16_t *to, int row, const void *from, const struct tile_place *at,
                       __mmask16 columns)
{
    const struct plain *p = from;
    const float *b = p->b + at->row * p->ld + at->col;

    for (int k = 0; k < TILE_K; k += 2, b += 2 * p->ld) {
        __m256i first = _mm256_setzero_si256(), second = first;
        _mm_prefetch((const char *)(b + AHEAD * p->ld), _MM_HINT_T0);
        _mm_prefetch((const char *)(b + (AHEAD + 1) * p->ld), _MM_HINT_T0);
        if (k >= at->lo && k < at->hi)
            first = load_rounded(b, columns);
        if (k + 1 >= at->lo && k + 1 < at->hi)
            second = load_rounded(b + p->ld, columns);
        put_row(to + k / 2 * row, interleave(first, second));
    }
}

void ISA(gemm_bf16_pack)(void *packed, const float *b, int64_t ldb, int64_t rows, const struct gemm_shape *s,
                         const struct gemm_part *part)
{
    struct plain p = {b, ldb};

    pack_tiles(packed, s, rows, part, plain_tile, &p);
}

/* ---- B by columns --------------------------------------------------------------------------- */

static const float *turned_at(const struct gemm_turned *t, int64_t row, int col)
{
    return t->b + col * t->ld + row % t->block - row / t->block * t->stride;
}

/* Element by element. */
static void turned_gather(float *half, const struct gemm_turned *t, int64_t row, __mmask16 rows, int col)
{
    for (int i = 0; i < TILE_ROWS; i++)
        half[i] = rows >> i & 1 ? *turned_at(t, row + i, col) : 0;
}

/* Half a tile: 16 k. */
struct half {
    __mmask16 mask;   /* those that exist */
    int64_t row;      /* of B */
    const float *run; /* they lie side by side from here on in the first column; NULL: they do not */
};

static struct half half_start(const struct gemm_turned *t, const struct tile_place *at, int h)
{
    int lo = at->lo - h * TILE_ROWS, hi = at->hi - h * TILE_ROWS;
    struct half half = {.row = at->row + h * TILE_ROWS};

    lo = lo < 0 ? 0 : lo;
    hi = hi > TILE_ROWS ? TILE_ROWS : hi;
    if (lo >= hi)
        return half;
    half.mask = (__mmask16)((1u << hi) - (1u << lo));
    if ((half.row + lo) / t->block == (half.row + hi - 1) / t->block)
        half.run = turned_at(t, half.row + lo, at->col) - lo;
    return half;
}

/* The half's 16 numbers of column j. */
static inline __m512 half_column(const struct half *half, const struct gemm_turned *t, int col, int j)
{
    float slow[TILE_ROWS];

    if (!half->mask)
        return _mm512_setzero_ps();
    if (half->run)
        return _mm512_maskz_loadu_ps(half->mask, half->run + j * t->ld);
    turned_gather(slow, t, half->row, half->mask, col + j);
    return _mm512_loadu_ps(slow);
}

static void turned_tile(uint16_t *to, int row, const void *from, const struct tile_place *at,
                        __mmask16 columns)
{
    const struct gemm_turned *t = from;
    struct half first = half_start(t, at, 0), second = half_start(t, at, 1);
    int n = __builtin_popcount(columns);
    __m512i r[TILE_ROWS];

    for (int j = 0; j < TILE_ROWS; j++)
        r[j] = j < n ? (__m512i)_mm512_cvtne2ps_pbh(half_column(&second, t, at->col, j),
                                                    half_column(&first, t, at->col, j))
                     : _mm512_setzero_si512();
    transpose_16(r);
    for (int i = 0; i < TILE_ROWS; i++)
        put_row(to + i * row, r[i]);
}

void ISA(gemm_bf16_pack_turned)(void *packed, const struct gemm_turned *t, const struct gemm_shape *s,
                                const struct gemm_part *part)
{
    pack_tiles(packed, s, t->rows ? t->rows : (int64_t)s->n_segments * s->k, part, turned_tile, t);
}
#endif
