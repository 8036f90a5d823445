/* gemm_amx_weights.c - weight gradients with AMX tiles: D += A' * Y over the rows m (gemm.h).
 *
 * The sum runs over the rows, so A is transposed, once for all segments, in strips of 32 channels:
 * element offset[s] + k of row m is channel (offset[s] + k) % lda at position
 * m + (offset[s] + k) / lda. What changes from one tap of a kernel to the next is then a shift of
 * positions. Y is shifted, not A (gemm_amx_operands.c): every tile loaded is aligned.
 *
 *     position   0 ........ 31 | 32 ....... 63 | 64 ...      tiles of the strip
 *     Y            0 0 0 y0 y1 y2 ..... ym-1 0 0 ...         at shift 3: zeros where Y has ended
 *
 * Six sums are made at once: a unit is a tile of 16 channels with three tiles of Y, for three taps
 * or three columns, and a job is two units. Operands stream from the second cache, which is what
 * limits the speed; so rows go by in chunks that stay there. While a job runs, the next one's part
 * of D is asked for. Where few rows make a large D, writing it takes longer than the products: if it goes far
 * away, whole lines are written past the caches and not read first (gemm_bf16_pack.c).
 *
 * Sums are in float, in an order that follows from the shapes alone; added to D, they begin with what
 * is in it.
 */
#include "device/isa/gemm_amx_operands.h"

#ifdef ISA_LEVEL_amx

enum { GROUP = 3 }; /* tiles of Y that meet one of A */

/* Rows of a chunk: a hundred steps or so for sums that are loaded and stored once, and no more than
 * leaves room in the second cache (2 MiB): Y in two copies is beside A, its strip and the caller's Y. */
enum { CHUNK_ROWS = 3070, PAIR_BYTES = 640 << 10 };

static int64_t chunk_rows(const struct gemm_shape *s, int64_t m)
{
    int64_t most = PAIR_BYTES / (up_to(s->n, TILE_COLS) / TILE_COLS * LINE), chunks;

    most = most > CHUNK_ROWS ? CHUNK_ROWS : most;
    chunks = (m + most - 1) / most;
    return up_to((m + chunks - 1) / chunks, 2);
}

/* ---- sums ----------------------------------------------------------------------------------- */

/* A tile of 16 channels with up to three streams of Y. */
struct unit {
    const uint16_t *a, *b[GROUP];
    float *d[GROUP];
    int count;
    int rows, cols; /* of the tiles of D */
    int64_t steps;
};

struct job {
    struct unit unit[2];
    int units;
};

struct weights_job {
    struct strip strip;
    float *d;
    int64_t ldd;
    int add, far;
    const int64_t *offset;
    const struct gemm_shape *s;
    int64_t lda, first_row, rows; /* the chunk */
    int set;                      /* what the tiles are configured for */
    struct job job[2];            /* one is made while the other waits to be run */
    int open;                     /* the one being made */
};

/* Tiles of D to ask for, `each` rows of all in a step. */
struct ahead {
    const struct job *next;
    int64_t at, end, each, d_bytes; /* bytes but for each */
    int far;                        /* 1: the sums at hand are written past the caches */
};

static inline __attribute__((always_inline)) void ahead_step(struct ahead *p, int count, int units)
{
    for (int64_t i = 0; i < p->each && p->at < p->end; i++, p->at += p->d_bytes)
        for (int u = 0; u < units; u++)
            for (int t = 0; t < count; t++)
                __builtin_prefetch((const char *)p->next->unit[u].d[t] + p->at, 1);
}

#define SUM_CLEAR(i, of, t) _tile_zero(i)
#define SUM_START(i, of, t) _tile_loadd(i, (of)->d[t], d_bytes)
#define SUM_STORE(i, of, t) _tile_stored(i, (of)->d[t], d_bytes)
#define SUM_FAR(i, of, t)                                                                                    \
    do {                                                                                                     \
        _tile_stored(i, tile, LINE);                                                                         \
        MEMORY_SETTLED();                                                                                    \
        stream_tile((of)->d[t], d_bytes, tile);                                                              \
    } while (0)
#define SUM_A(of) _tile_loadd(6, (of)->a + step * a_step, LINE)
#define SUM_B(of, t) _tile_loadd(7, (of)->b[t] + step * TILE_SIZE, LINE)

static inline void stream_tile(float *to, int64_t to_bytes, const float *tile)
{
    for (int r = 0; r < TILE_ROWS; r++)
        _mm512_stream_ps((float *)(void *)((char *)to + r * to_bytes), _mm512_load_ps(tile + r * TILE_COLS));
}

/* Sums 0, 1, 2 are the first unit's, 3, 4, 5 the second's. */
#define EACH_SUM(DO)                                                                                         \
    do {                                                                                                     \
        DO(0, u, 0);                                                                                         \
        if (count > 1)                                                                                       \
            DO(1, u, 1);                                                                                     \
        if (count > 2)                                                                                       \
            DO(2, u, 2);                                                                                     \
        if (units > 1) {                                                                                     \
            DO(3, v, 0);                                                                                     \
            if (count > 1)                                                                                   \
                DO(4, v, 1);                                                                                 \
            if (count > 2)                                                                                   \
                DO(5, v, 2);                                                                                 \
        }                                                                                                    \
    } while (0)

/* One unit or two of `count` streams. If the second has the same streams of Y they are taken
 * backwards: the last one is still loaded. */
static inline __attribute__((always_inline)) void sum_units(const struct job *job, int count, int units,
                                                            int shared, int add, int64_t a_step,
                                                            struct ahead *ahead)
{
    const struct unit *u = &job->unit[0], *v = &job->unit[1];
    int64_t d_bytes = ahead->d_bytes;
    _Alignas(LINE) float tile[TILE_ROWS * TILE_COLS];

    if (add)
        EACH_SUM (SUM_START)
            ;
    else
        EACH_SUM (SUM_CLEAR)
            ;
    for (int64_t step = 0; step < u->steps; step++) {
        ahead_step(ahead, count, units);
        SUM_A(u);
        SUM_B(u, 0);
        _tile_dpbf16ps(0, 6, 7);
        if (count > 1) {
            SUM_B(u, 1);
            _tile_dpbf16ps(1, 6, 7);
        }
        if (count > 2) {
            SUM_B(u, 2);
            _tile_dpbf16ps(2, 6, 7);
        }
        if (units < 2)
            continue;
        SUM_A(v);
        if (count > 2) {
            if (!shared)
                SUM_B(v, 2);
            _tile_dpbf16ps(5, 6, 7);
        }
        if (count > 1) {
            if (!shared || count > 2)
                SUM_B(v, 1);
            _tile_dpbf16ps(4, 6, 7);
        }
        if (!shared || count > 1)
            SUM_B(v, 0);
        _tile_dpbf16ps(3, 6, 7);
    }
    if (ahead->far)
        EACH_SUM (SUM_FAR)
            ;
    else
        EACH_SUM (SUM_STORE)
            ;
}

static void job_sum(const struct job *job, int add, int64_t a_step, struct ahead *ahead)
{
    const struct unit *u = &job->unit[0], *v = &job->unit[1];
    int shared = job->units > 1;

    for (int i = 0; i < u->count; i++)
        shared = shared && u->b[i] == v->b[i];
    switch (u->count + (job->units + shared - 1) * GROUP) {
    case 1: sum_units(job, 1, 1, 0, add, a_step, ahead); break;
    case 2: sum_units(job, 2, 1, 0, add, a_step, ahead); break;
    case 3: sum_units(job, 3, 1, 0, add, a_step, ahead); break;
    case 4: sum_units(job, 1, 2, 0, add, a_step, ahead); break;
    case 5: sum_units(job, 2, 2, 0, add, a_step, ahead); break;
    case 6: sum_units(job, 3, 2, 0, add, a_step, ahead); break;
    case 7: sum_units(job, 1, 2, 1, add, a_step, ahead); break;
    case 8: sum_units(job, 2, 2, 1, add, a_step, ahead); break;
    default: sum_units(job, 3, 2, 1, add, a_step, ahead); break;
    }
}

/* ---- jobs ----------------------------------------------------------------------------------- */

/* Runs the job that waits; the one being made waits from now on. */
static void job_close(struct weights_job *w)
{
    const struct job *next = &w->job[w->open], *job = &w->job[1 - w->open];
    const struct unit *u = job->unit;

    if (job->units) {
        struct ahead ahead = {next,       0,
                              0,          1 + (TILE_ROWS - 1) / u->steps,
                              w->ldd * 4, w->far && u->rows == TILE_ROWS && u->cols == TILE_COLS};
        if (!ahead.far && next->units == job->units && next->unit->count == u->count)
            ahead.end = next->unit->rows * ahead.d_bytes;
        if (w->set != u->rows * 32 + u->cols)
            tiles_configure(6, u->rows, u->cols, u->cols);
        w->set = u->rows * 32 + u->cols;
        job_sum(job, w->add || w->first_row > 0, w->strip.channels * TILE_K, &ahead);
    }
    w->open = 1 - w->open;
    w->job[w->open].units = 0;
}

/* A unit to fill in. It joins the last one if they have the same shape. */
static struct unit *job_unit(struct weights_job *w, int count, int64_t steps, int rows, int cols)
{
    struct job *job = &w->job[w->open];
    struct unit *u = job->unit;

    if (job->units == 2 ||
        (job->units && (u->count != count || u->steps != steps || u->rows != rows || u->cols != cols))) {
        job_close(w);
        job = &w->job[w->open];
    }
    u = &job->unit[job->units++];
    u->count = count;
    u->steps = steps;
    u->rows = rows;
    u->cols = cols;
    return u;
}

/* All jobs: before operands change. */
static void job_flush(struct weights_job *w)
{
    job_close(w);
    job_close(w);
}

/* ---- groups of taps ------------------------------------------------------------------------- */

/* Some elements of a segment that are neighbouring channels of the strip at one shift. */
struct tap {
    int64_t shift;   /* positions */
    int row, height; /* channels of the strip */
    int64_t d_row;   /* row of D of the first */
};

/* Taps with the same channels, by rising shift. */
struct group {
    int count;
    struct tap tap[GROUP];
};

/* Column tiles that a pass over the taps makes. */
struct span {
    int first, count;
    int cols; /* of each: the last of all may have less than 16 */
};

/* Streams of a group are numbered (column tile, tap). `count` of them from stream `first` on, for 16
 * channels from `row` on. */
static void group_unit(struct weights_job *w, const struct group *g, const struct span *c, int first,
                       int count, int row)
{
    const struct strip *strip = &w->strip;
    int64_t start = (g->tap->shift + w->first_row) / TILE_K * TILE_K;
    int64_t end = g->tap[g->count - 1].shift + w->first_row + w->rows;
    int left = g->tap->height - row, column = c->first + first / g->count, number = first % g->count;
    struct unit *u =
        job_unit(w, count, (end - start + TILE_K - 1) / TILE_K, left < TILE_ROWS ? left : TILE_ROWS, c->cols);

    u->a = strip->at + start * strip->channels + (g->tap->row + row) * TILE_K;
    for (int i = 0; i < count; i++) {
        const struct tap *t = &g->tap[number];
        u->b[i] = pairs_at(strip, column, start - w->first_row - t->shift);
        u->d[i] = w->d + (t->d_row + row) * w->ldd + column * TILE_COLS;
        if (++number == g->count)
            number = 0, column++;
    }
}

static void group_run(struct weights_job *w, struct group *g, const struct span *c)
{
    int all = c->count * g->count;

    for (int first = 0, count; first < all; first += count) {
        count = all - first == GROUP + 1 ? 2 : all - first < GROUP ? all - first : GROUP;
        for (int row = 0; row < g->tap->height; row += TILE_ROWS)
            group_unit(w, g, c, first, count, row);
    }
    g->count = 0;
}

static int group_takes(const struct group *g, const struct tap *tap)
{
    const struct tap *first = g->tap, *last = g->tap + g->count - 1;

    return g->count == 0 || (g->count < GROUP && tap->row == first->row && tap->height == first->height &&
                             tap->shift >= last->shift && tap->shift <= first->shift + PAIR_SPAN);
}

/* What the channels [first, first + n) of the strip contribute to some columns. */
static void span_sum(struct weights_job *w, int64_t first, int64_t n, const struct span *c)
{
    struct group g = {0};

    for (int seg = 0; seg < w->s->n_segments; seg++) {
        int64_t begin = w->offset[seg], end = begin + w->s->k;
        for (int64_t shift = begin / w->lda; shift * w->lda + first < end; shift++) {
            int64_t lo = shift * w->lda + first, hi = lo + n, at = lo;
            lo = lo > begin ? lo : begin;
            hi = hi < end ? hi : end;
            if (lo >= hi)
                continue;
            struct tap tap = {shift, (int)(lo - at), (int)(hi - lo), (int64_t)seg * w->s->k + lo - begin};
            if (!group_takes(&g, &tap))
                group_run(w, &g, c);
            g.tap[g.count++] = tap;
        }
    }
    group_run(w, &g, c);
}

/* All columns, three tiles at a time: a few rows of Y stay in the first cache for all taps. */
static void strip_sum(struct weights_job *w, int64_t first, int64_t n)
{
    int whole = w->s->n / TILE_COLS;
    struct span c = {.cols = TILE_COLS};

    for (; c.first < whole; c.first += c.count) {
        int left = whole - c.first;
        c.count = left == GROUP + 1 ? 2 : left < GROUP ? left : GROUP;
        span_sum(w, first, n, &c);
    }
    c.count = 1;
    c.cols = w->s->n % TILE_COLS;
    if (c.cols)
        span_sum(w, first, n, &c);
    job_flush(w);
}

/* ---- the product ---------------------------------------------------------------------------- */

size_t ISA(gemm_amx_weights_scratch)(const struct gemm_shape *s, int64_t lda, int64_t m_count, int64_t reach)
{
    return strip_bytes(s, lda, m_count < CHUNK_ROWS ? m_count : CHUNK_ROWS, reach);
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

/* All chunks of rows, with one strip of channels. */
static void strip_run(struct weights_job *w, struct strip_source *from, int64_t each, int64_t m)
{
    int odd = any_odd_shift(w);

    from->done = 0;
    for (w->first_row = 0; w->first_row < m; w->first_row += each) {
        w->rows = m - w->first_row < each ? m - w->first_row : each;
        if (from->first == 0 || w->rows < m)
            pairs_fill(&w->strip, from, w->first_row, w->rows, w->s->n, odd);
        strip_fill(&w->strip, from, w->offset, w->s, w->first_row + w->rows, w->rows == m);
        MEMORY_SETTLED();
        strip_sum(w, from->first, from->n);
    }
}

void ISA(gemm_amx_weights)(float *d, int64_t ldd, enum gemm_put put, const void *a, int64_t lda,
                           const int64_t *offset, const void *y, int64_t ldy, const struct gemm_shape *s,
                           int64_t m_count, int64_t reach, void *scratch)
{
    struct weights_job w = {.d = d, .ldd = ldd, .add = put == GEMM_ADD, .offset = offset, .s = s, .lda = lda};
    struct strip_source from = {.a = a, .lda = lda, .reach = reach, .y = y, .ldy = ldy};
    int64_t channels = 0, each;

    if (m_count <= 0) { /* nothing to sum */
        for (int64_t r = 0; !w.add && r < (int64_t)s->n_segments * s->k; r++)
            memset(d + r * ldd, 0, (size_t)s->n * sizeof *d);
        return;
    }
    each = chunk_rows(s, m_count);
    w.far = put == GEMM_FAR && each >= m_count && (uintptr_t)d % LINE == 0 && ldd * 4 % LINE == 0;
    strip_lay_out(&w.strip, scratch, lda, each, reach);
    for (int seg = 0; seg < s->n_segments; seg++)
        channels = offset[seg] + s->k > channels ? offset[seg] + s->k : channels;
    channels = channels < lda ? channels : lda;
    for (from.first = 0; from.first < channels; from.first += STRIP) {
        from.n = channels - from.first < STRIP ? channels - from.first : STRIP;
        strip_run(&w, &from, each, m_count);
    }
    _tile_release();
}
#endif
