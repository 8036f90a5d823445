/* gemm_amx_weights.c - weight gradients with AMX tiles: D += A' * Y over the rows m (gemm.h).
 *
 * The sum runs over the rows, so A is transposed, once for all segments, in strips of 32 channels:
 * element offset[s] + k of row m is channel (offset[s] + k) % lda at position
 * m + (offset[s] + k) / lda. What changes from one tap of a kernel to the next is then a shift of
 * positions. Y is shifted, not A: with Y's rows stored in pairs an even shift is a shift by whole
 * rows of memory, and an odd one is the same in a second copy whose pairs are cut one later. So
 * every tile loaded is aligned.
 *
 *     strip:   32 positions | channel | position          a tile of A is 16 channels of it
 *     pairs:   column tile | even, odd | pair | 16 x 2    a tile of B is 16 pairs from any on
 *
 *     position   0 ........ 31 | 32 ....... 63 | 64 ...      tiles of the strip
 *     Y            0 0 0 y0 y1 y2 ..... ym-1 0 0 ...         at shift 3: zeros where Y has ended
 *
 * Sums are in float, in an order that follows from the shapes alone; added to D, they begin with what is
 * in it.
 */
#include "device/isa/gemm_amx.h"

#ifdef ISA_LEVEL_amx

enum {
    STRIP = 32,      /* channels transposed at a time: two tiles */
    GROUP = 3,       /* taps that share the tiles of a strip: six sums, all there is room for */
    GROUP_SPAN = 32, /* positions between the first and the last of them */
    PAIR_PAD = 64    /* zero rows before and after Y: the span + 31 to fill a tile, made even */
};

/* The scratch memory. */
struct strip {
    uint16_t *at;    /* (tile of positions, channels, 32) */
    int64_t n_at;    /* tiles of positions */
    int64_t channels;/* of the strip now in memory, in eights */
    uint16_t *pairs; /* (column tile, 2, n_pairs, 16, 2) */
    int64_t n_pairs;
};

static void strip_lay_out(struct strip *w, int64_t lda, int64_t m, int64_t reach)
{
    w->n_at = (reach + lda * TILE_K - 1) / (lda * TILE_K);
    w->n_pairs = (m + 1) / 2 + PAIR_PAD + 1;
}

size_t ISA(gemm_amx_weights_scratch)(const struct gemm_shape *s, int64_t lda, int64_t m_count,
                                     int64_t reach)
{
    struct strip w;

    strip_lay_out(&w, lda, m_count, reach);
    return (size_t)(LINE - 1 + w.n_at * STRIP * LINE +
                    up_to(s->n, TILE_COLS) / TILE_COLS * 2 * w.n_pairs * LINE);
}

/* 32 positions x 8 channels from `from` (rows of lda) to 8 rows of `to`. Not inlined: in a loop the
 * compiler would keep 32 addresses alive. */
static __attribute__((noinline)) void transpose_32x8(uint16_t *to, const uint16_t *from,
                                                     int64_t lda)
{
    __m512i r[8], p[8], q[8];

    for (int i = 0; i < 8; i++) { /* positions i, 8+i, 16+i, 24+i side by side */
        const uint16_t *row = from + i * lda;
        __m512i v = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)row));
        v = _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i *)(row + 8 * lda)), 1);
        v = _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i *)(row + 16 * lda)), 2);
        r[i] = _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i *)(row + 24 * lda)), 3);
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

/* Tile t of positions: channels [first, first + n); zero from the end of A on. Groups of 8 channels
 * may read a few of the next position's: they land in rows of the strip that nobody uses. */
static void strip_fill_tile(const struct strip *w, const uint16_t *a, int64_t lda, int64_t reach,
                            int64_t first, int64_t n, int64_t t)
{
    int64_t base = t * TILE_K * lda + first;

    strip_prefetch(a + base + TILE_K * lda, lda);
    for (int64_t ch = 0; ch < n; ch += 8) {
        uint16_t *to = w->at + (t * w->channels + ch) * TILE_K;
        if ((t + 1) * TILE_K * lda <= reach) {
            transpose_32x8(to, a + base + ch, lda);
            continue;
        }
        uint16_t rows[TILE_K * 8] = { 0 };
        for (int64_t i = 0; i < TILE_K * 8; i++) {
            int64_t at = base + i / 8 * lda + ch + i % 8;
            if (ch + i % 8 < n && at < reach)
                rows[i] = a[at];
        }
        transpose_32x8(to, rows, 8);
    }
}

/* All positions that the segments need; gaps between segments in rising order are left out. */
static void strip_fill(struct strip *w, const uint16_t *a, int64_t lda, const int64_t *offset,
                       const struct gemm_shape *s, int64_t m, int64_t reach, int64_t first,
                       int64_t n)
{
    int64_t done = 0;
    int rising = 1;

    for (int i = 1; i < s->n_segments; i++)
        rising = rising && offset[i] >= offset[i - 1];
    w->channels = up_to(n, 8);
    for (int i = 0; i < s->n_segments; i++) {
        int64_t begin = offset[i] / lda / TILE_K, last = (offset[i] + s->k - 1) / lda + m - 1;
        if (rising && begin > done)
            done = begin;
        for (; done <= last / TILE_K; done++)
            strip_fill_tile(w, a, lda, reach, first, n, done);
    }
}

static __m256i pair_row(const uint16_t *y, int64_t ldy, int64_t m, int64_t at, __mmask16 mask)
{
    if (at < 0 || at >= m)
        return _mm256_setzero_si256();
    return _mm256_maskz_loadu_epi16(mask, y + at * ldy);
}

/* Pair i is rows 2i, 2i+1 of Y, counted from -PAIR_PAD, or 2i+1, 2i+2 in the odd copy. */
static void pairs_fill(const struct strip *w, const uint16_t *y, int64_t ldy, int64_t m, int n,
                       int odd)
{
    for (int j = 0; j < n; j += TILE_COLS) {
        uint16_t *even_to = w->pairs + j / TILE_COLS * 2 * w->n_pairs * TILE_K;
        uint16_t *odd_to = even_to + w->n_pairs * TILE_K;
        __mmask16 mask = column_mask(n - j);
        __m256i row = pair_row(y + j, ldy, m, -PAIR_PAD, mask);
        for (int64_t i = 0; i < w->n_pairs; i++) {
            int64_t at = 2 * i - PAIR_PAD;
            __m256i next = pair_row(y + j, ldy, m, at + 1, mask);
            __m256i after = pair_row(y + j, ldy, m, at + 2, mask);
            _mm512_storeu_si512(even_to + i * TILE_K, interleave(row, next));
            if (odd)
                _mm512_storeu_si512(odd_to + i * TILE_K, interleave(next, after));
            row = after;
        }
    }
}

/* Some elements of a segment that are neighbouring channels of the strip at one shift. */
struct tap {
    int64_t shift;   /* positions */
    int row, height; /* channels of the strip */
    int64_t d_row;   /* row of D of the first */
};

/* `count` taps at once: `steps` tiles of the strip from a on, of Y from b[] on, sums to d[]. */
struct tap_sum {
    const uint16_t *a, *b[GROUP];
    float *d[GROUP];
    int64_t a_step, d_bytes, steps;
    int add;         /* else sums begin with zero */
};

#define TAP_LOAD(i, t, row)                                                                       \
    do {                                                                                          \
        _tile_zero(i);                                                                            \
        if (w->add)                                                                               \
            _tile_loadd(i, w->d[t] + (row) * (w->d_bytes / 4), w->d_bytes);                       \
    } while (0)
#define TAP_STORE(i, t, row) _tile_stored(i, w->d[t] + (row) * (w->d_bytes / 4), w->d_bytes)
#define TAP_B(t) _tile_loadd(7, w->b[t] + step * TILE_SIZE, LINE)

/* One tile of the strip or two, up to three taps. */
static inline __attribute__((always_inline)) void taps_by_rows(const struct tap_sum *w, int count,
                                                               int tiles)
{
    TAP_LOAD(0, 0, 0);
    if (count > 1)
        TAP_LOAD(1, 1, 0);
    if (count > 2)
        TAP_LOAD(2, 2, 0);
    if (tiles > 1) {
        TAP_LOAD(3, 0, 16);
        if (count > 1)
            TAP_LOAD(4, 1, 16);
        if (count > 2)
            TAP_LOAD(5, 2, 16);
    }
    for (int64_t step = 0; step < w->steps; step++) {
        _tile_loadd(6, w->a + step * w->a_step, LINE);
        TAP_B(0);
        _tile_dpbf16ps(0, 6, 7);
        if (count > 1) {
            TAP_B(1);
            _tile_dpbf16ps(1, 6, 7);
        }
        if (count > 2) {
            TAP_B(2);
            _tile_dpbf16ps(2, 6, 7);
        }
        if (tiles > 1) {
            _tile_loadd(6, w->a + step * w->a_step + TILE_SIZE, LINE);
            if (count > 2)
                _tile_dpbf16ps(5, 6, 7);
            if (count > 1) {
                if (count > 2)
                    TAP_B(1);
                _tile_dpbf16ps(4, 6, 7);
                TAP_B(0);
            }
            _tile_dpbf16ps(3, 6, 7);
        }
    }
    TAP_STORE(0, 0, 0);
    if (count > 1)
        TAP_STORE(1, 1, 0);
    if (count > 2)
        TAP_STORE(2, 2, 0);
    if (tiles > 1) {
        TAP_STORE(3, 0, 16);
        if (count > 1)
            TAP_STORE(4, 1, 16);
        if (count > 2)
            TAP_STORE(5, 2, 16);
    }
}

static void run_taps(const struct tap_sum *w, int count, int tiles)
{
    switch (count + (tiles > 1 ? GROUP : 0)) {
    case 1: taps_by_rows(w, 1, 1); break;
    case 2: taps_by_rows(w, 2, 1); break;
    case 3: taps_by_rows(w, 3, 1); break;
    case 4: taps_by_rows(w, 1, 2); break;
    case 5: taps_by_rows(w, 2, 2); break;
    default: taps_by_rows(w, 3, 2); break;
    }
}

/* Taps with the same channels, by rising shift. */
struct group {
    int count;
    struct tap tap[GROUP];
};

struct weights_job {
    struct strip strip;
    float *d;
    int64_t ldd;
    int add;
    const int64_t *offset;
    const struct gemm_shape *s;
    int64_t lda, m;
    int set; /* what the tiles are configured for */
};

/* D comes from far away in deep layers, in rows too far apart for the processor to guess: ask for
 * the next column tile while this one is summed. */
static void group_prefetch(const struct tap_sum *sum, int count, int height)
{
    for (int i = 0; i < count; i++)
        for (int row = 0; row < height; row++)
            _mm_prefetch((const char *)(sum->d[i] + TILE_COLS) + row * sum->d_bytes, _MM_HINT_T0);
}

/* `height` channels of a group from `row` on, all columns. */
static void group_columns(struct weights_job *w, const struct group *g, int row, int height)
{
    const struct tap *tap = g->tap;
    int64_t last = tap[g->count - 1].shift, start = tap->shift / TILE_K * TILE_K, n = w->s->n;
    int rows = height < TILE_ROWS ? height : TILE_ROWS;
    struct tap_sum sum = { .a_step = w->strip.channels * TILE_K, .d_bytes = w->ldd * 4,
                           .add = w->add };

    sum.a = w->strip.at + start * w->strip.channels + (tap->row + row) * TILE_K;
    sum.steps = (last + w->m - start + TILE_K - 1) / TILE_K;
    for (int j = 0; j < n; j += TILE_COLS) {
        int cols = n - j < TILE_COLS ? (int)n - j : TILE_COLS;
        for (int i = 0; i < g->count; i++) {
            int64_t at = start - tap[i].shift + PAIR_PAD;
            sum.b[i] = w->strip.pairs + (j / TILE_COLS * 2 + at % 2) * w->strip.n_pairs * TILE_K +
                       at / 2 * TILE_K;
            sum.d[i] = w->d + (tap[i].d_row + row) * w->ldd + j;
        }
        if (w->set != rows * 32 + cols)
            tiles_configure(6, rows, cols, cols);
        w->set = rows * 32 + cols;
        if (j + TILE_COLS < n)
            group_prefetch(&sum, g->count, height);
        run_taps(&sum, g->count, height > TILE_ROWS ? 2 : 1);
    }
}

static void group_run(struct weights_job *w, struct group *g)
{
    int height = g->tap[0].height;

    if (g->count && height == STRIP)
        group_columns(w, g, 0, STRIP);
    else if (g->count)
        for (int row = 0; row < height; row += TILE_ROWS)
            group_columns(w, g, row, height - row < TILE_ROWS ? height - row : TILE_ROWS);
    g->count = 0;
}

static int group_takes(const struct group *g, const struct tap *tap)
{
    const struct tap *first = g->tap, *last = g->tap + g->count - 1;

    return g->count == 0 ||
           (g->count < GROUP && tap->row == first->row && tap->height == first->height &&
            tap->shift >= last->shift && tap->shift <= first->shift + GROUP_SPAN);
}

/* What the channels [first, first + n) of the strip contribute. */
static void strip_sum(struct weights_job *w, int64_t first, int64_t n)
{
    struct group g = { 0 };

    for (int seg = 0; seg < w->s->n_segments; seg++) {
        int64_t begin = w->offset[seg], end = begin + w->s->k;
        for (int64_t shift = begin / w->lda; shift * w->lda + first < end; shift++) {
            int64_t lo = shift * w->lda + first, hi = lo + n, at = lo;
            lo = lo > begin ? lo : begin;
            hi = hi < end ? hi : end;
            if (lo >= hi)
                continue;
            struct tap tap = { shift, (int)(lo - at), (int)(hi - lo),
                               (int64_t)seg * w->s->k + lo - begin };
            if (!group_takes(&g, &tap))
                group_run(w, &g);
            g.tap[g.count++] = tap;
        }
    }
    group_run(w, &g);
}

/* 1 if some tap's shift is odd. */
static int any_odd_shift(const struct weights_job *w)
{
    for (int seg = 0; seg < w->s->n_segments; seg++) {
        int64_t first = w->offset[seg] / w->lda, last = (w->offset[seg] + w->s->k - 1) / w->lda;
        if (first % 2 || last > first)
            return 1;
    }
    return 0;
}

void ISA(gemm_amx_weights)(float *d, int64_t ldd, int add, const void *a, int64_t lda,
                           const int64_t *offset, const void *y, int64_t ldy,
                           const struct gemm_shape *s, int64_t m_count, int64_t reach,
                           void *scratch)
{
    struct weights_job w = { .d = d, .ldd = ldd, .add = add, .offset = offset, .s = s, .lda = lda,
                             .m = m_count };
    int64_t channels = 0;

    if (m_count <= 0) { /* nothing to sum */
        for (int64_t r = 0; !add && r < (int64_t)s->n_segments * s->k; r++)
            memset(d + r * ldd, 0, (size_t)s->n * sizeof *d);
        return;
    }
    strip_lay_out(&w.strip, lda, m_count, reach);
    w.strip.at = (uint16_t *)up_to((intptr_t)scratch, LINE);
    w.strip.pairs = w.strip.at + w.strip.n_at * STRIP * TILE_K;
    pairs_fill(&w.strip, y, ldy, m_count, s->n, any_odd_shift(&w));
    for (int seg = 0; seg < s->n_segments; seg++)
        channels = offset[seg] + s->k > channels ? offset[seg] + s->k : channels;
    channels = channels < lda ? channels : lda;
    for (int64_t first = 0; first < channels; first += STRIP) {
        int64_t n = channels - first < STRIP ? channels - first : STRIP;
        strip_fill(&w.strip, a, lda, offset, s, m_count, reach, first, n);
        MEMORY_SETTLED();
        strip_sum(&w, first, n);
    }
    _tile_release();
}
#endif
