/* gemm_amx.c - forward products with AMX tiles: C = A * B over segments (gemm.h), bf16 to float.
 *
 * A tile of A is 16 rows of the block and 32 elements of a segment, straight from the caller's
 * memory; the end of a segment is filled up with weights of zero. Two tiles of A meet two of B, or
 * four meet one if there is but one column tile: four sums. B goes by in chunks of steps.
 *
 * The nine segments of a 3x3x3 kernel are rows of three lines in three planes, so what a tile reads
 * is read again by the tiles of the next two lines. Where nine lines are too much for the first cache,
 * tiles follow each other down the lines rather than along them (p: tiles in a line's pitch):
 *
 *     line 0    0    1  ..  p-1            order   0, p, 2p, 3p ...
 *     line 1    p   p+1 .. 2p-1                    1, p+1, 2p+1 ...
 *
 * Where lines are whole tiles long, tiles keep to them, and nothing is multiplied for the border between
 * lines and planes: a fifth of all at 16 x 16 positions, an eighth at 32 x 32.
 *
 * Sums are in float, in an order that follows from the shapes alone: a row of C has the same bits
 * whatever rows are made beside it (rows of 16 channels: as long as even rows stay even).
 */
#include "device/isa/gemm_amx.h"

#ifdef ISA_LEVEL_amx

enum {
    /* Steps of a chunk. 18 with two column tiles, or 36 with one, are 36 KiB of B: the first cache has
     * room for the rows going by. Sums wait in C between chunks; the more columns, the farther apart
     * its rows and the dearer that is, so chunks grow with n (measured; B then waits in the second
     * cache). So they do where rows of A are long and come from the second cache anyway. */
    CHUNK_LEAST = 18,
    CHUNK_MOST = 72,
    LONG_ROW = 256,        /* elements */
    NEAR_BYTES = 24 << 10, /* of nine lines that the first cache (48 KiB) keeps beside B */
    PANEL_BYTES = 1 << 20  /* of rows done at a time: they stay in the second cache (2 MiB) for all
                               columns */
};

static int chunk_limit(int n, int width, int64_t lda)
{
    int least = lda >= LONG_ROW ? 2 * CHUNK_LEAST : CHUNK_LEAST, limit = n * 9 / 32;

    if (width == 1)
        return 2 * CHUNK_LEAST;
    return limit < least ? least : limit > CHUNK_MOST ? CHUNK_MOST : limit;
}

struct row_tile {
    const uint16_t *a;
    float *c;
    int64_t c_bytes; /* from row to row */
};

/* One pass over a chunk of B: `count` steps of 32 k. */
struct chunk {
    int64_t a_bytes; /* from row to row */
    int64_t b_step;  /* elements */
    int count;
    int add;                  /* go on with what is in C */
    const uint16_t *b;        /* one or two tiles a step */
    int64_t ahead, ahead_end; /* lines to ask for, of the two tiles one chunk later */
    int64_t at[CHUNK_MOST];   /* element of a row of A where a step begins */
};

/* Two column tiles, one or two row tiles: the last of them is always in registers 2, 3, 5. */
static inline __attribute__((always_inline)) void rows_by_pair(const struct row_tile *r, int n_rows,
                                                               const struct chunk *k)
{
    const struct row_tile *r1 = r + n_rows - 1;
    const uint16_t *b = k->b;

    if (k->add) {
        if (n_rows > 1) {
            _tile_loadd(0, r->c, r->c_bytes);
            _tile_loadd(1, r->c + TILE_COLS, r->c_bytes);
        }
        _tile_loadd(2, r1->c, r1->c_bytes);
        _tile_loadd(3, r1->c + TILE_COLS, r1->c_bytes);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (int i = 0; i < k->count; i++, b += k->b_step) {
        const char *later = (const char *)(b + k->count * k->b_step);
        for (int64_t line = k->ahead; line < k->ahead_end; line++)
            _mm_prefetch(later + line * LINE, _MM_HINT_T1);
        _tile_loadd(6, b, LINE);
        _tile_loadd(7, b + TILE_SIZE, LINE);
        if (n_rows > 1) {
            _tile_loadd(4, r->a + k->at[i], k->a_bytes);
            _tile_dpbf16ps(0, 4, 6);
            _tile_dpbf16ps(1, 4, 7);
        }
        _tile_loadd(5, r1->a + k->at[i], k->a_bytes);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    if (n_rows > 1) {
        _tile_stored(0, r->c, r->c_bytes);
        _tile_stored(1, r->c + TILE_COLS, r->c_bytes);
    }
    _tile_stored(2, r1->c, r1->c_bytes);
    _tile_stored(3, r1->c + TILE_COLS, r1->c_bytes);
}

/* One column tile, up to four row tiles. */
static inline __attribute__((always_inline)) void rows_by_one(const struct row_tile *r, int n_rows,
                                                              const struct chunk *k)
{
#define EACH_ROW(DO)                                                                                         \
    DO(0, 4);                                                                                                \
    if (n_rows > 1)                                                                                          \
        DO(1, 5);                                                                                            \
    if (n_rows > 2)                                                                                          \
        DO(2, 4);                                                                                            \
    if (n_rows > 3)                                                                                          \
    DO(3, 5)
#define START(i, reg) _tile_loadd(i, r[i].c, r[i].c_bytes)
#define CLEAR(i, reg) _tile_zero(i)
#define STORE(i, reg) _tile_stored(i, r[i].c, r[i].c_bytes)
#define STEP(i, reg)                                                                                         \
    do {                                                                                                     \
        _tile_loadd(reg, r[i].a + k->at[step], k->a_bytes);                                                  \
        _tile_dpbf16ps(i, reg, 7);                                                                           \
    } while (0)

    if (k->add) {
        EACH_ROW (START)
            ;
    } else {
        EACH_ROW (CLEAR)
            ;
    }
    for (int step = 0; step < k->count; step++) {
        _tile_loadd(7, k->b + step * k->b_step, LINE);
        EACH_ROW (STEP)
            ;
    }
    EACH_ROW (STORE)
        ;
#undef START
#undef CLEAR
#undef STORE
#undef STEP
#undef EACH_ROW
}

static void run_rows(const struct row_tile *r, int n_rows, int pair, const struct chunk *k)
{
    switch (n_rows + (pair ? 4 : 0)) {
    case 1: rows_by_one(r, 1, k); break;
    case 2: rows_by_one(r, 2, k); break;
    case 3: rows_by_one(r, 3, k); break;
    case 4: rows_by_one(r, 4, k); break;
    case 5: rows_by_pair(r, 1, k); break;
    default: rows_by_pair(r, 2, k); break;
    }
}

struct product {
    const struct gemm_shape *s;
    const int64_t *offset;
    const uint16_t *a, *packed;
    int64_t lda, m;
    float *c;
    int64_t ldc;
    int64_t pitch; /* tiles from line to line, at least 1 */
    int halves;    /* 1, 2: rows are every second one of 32 bytes, the even or the odd ones */
    int64_t line_tiles, line_rows, first; /* tiles of a line and rows from line to line; row 0 begins this
                                             line of a plane. No tiles: they do not keep to lines */
};

/* Lines that count, of those before line i of a plane; i may be planes later. */
static int64_t lines_before(const struct gemm_lines *l, int64_t i)
{
    int64_t rest = i % l->plane;

    return i / l->plane * l->of_plane + (rest < l->of_plane ? rest : l->of_plane);
}

static int64_t count_tiles(const struct product *p)
{
    const struct gemm_lines *l = &p->s->lines;

    if (!p->line_tiles)
        return (p->m + TILE_ROWS - 1) / TILE_ROWS;
    int64_t lines = (p->m + p->line_rows - 1) / p->line_rows;
    return (lines_before(l, p->first + lines) - lines_before(l, p->first)) * p->line_tiles;
}

/* The row that tile t begins with. */
static int64_t tile_row(const struct product *p, int64_t t)
{
    const struct gemm_lines *l = &p->s->lines;

    if (!p->line_tiles)
        return t * TILE_ROWS;
    int64_t line = lines_before(l, p->first) + t / p->line_tiles;
    line = line / l->of_plane * l->plane + line % l->of_plane - p->first;
    return line * p->line_rows + t % p->line_tiles * TILE_ROWS;
}

/* Rows that do not fill a tile are computed together with those before them, into `spare`, whose
 * last rows then go to C. */
struct spare {
    float c[TILE_ROWS * 2 * TILE_COLS];
};

static struct row_tile row_tile_at(const struct product *p, int64_t t, int j, struct spare *spare)
{
    int64_t m = tile_row(p, t);

    if (m + TILE_ROWS <= p->m || p->m < TILE_ROWS)
        return (struct row_tile){p->a + m * p->lda, p->c + m * p->ldc + j, p->ldc * 4};
    m = p->m - TILE_ROWS;
    return (struct row_tile){p->a + m * p->lda, spare->c, 2 * TILE_COLS * 4};
}

static void spare_to_c(const struct product *p, const struct spare *spare, int j, int cols)
{
    int64_t rest = p->m > TILE_ROWS && !p->line_tiles ? p->m % TILE_ROWS : 0;

    for (int64_t i = 0; i < rest; i++)
        memcpy(p->c + (p->m - rest + i) * p->ldc + j, spare->c + (TILE_ROWS - rest + i) * 2 * TILE_COLS,
               (size_t)cols * 4);
}

/* Steps [first, first + count). An odd row's line begins half a line before it. */
static void chunk_start(struct chunk *k, const struct product *p, int first, int count)
{
    int steps = steps_of(p->s);

    k->count = count;
    k->add = first > 0;
    for (int i = 0; i < count; i++) {
        int step = first + i;
        k->at[i] = p->offset[step / steps] + step % steps * TILE_K - (p->halves == 2 ? TILE_K / 2 : 0);
    }
}

/* One chunk with all rows: tiles down the lines. */
static void chunk_run(struct chunk *k, const struct product *p, int pair, int j, struct spare *spare)
{
    int64_t tiles = count_tiles(p), done = 0;
    int most = pair ? 2 : 4, n = 0;
    struct row_tile r[4];

    for (int64_t column = 0; column < p->pitch; column++)
        for (int64_t t = column; t < tiles; t += p->pitch) {
            r[n++] = row_tile_at(p, t, j, spare);
            if (++done < tiles && n < most)
                continue;
            k->ahead = 2 * TILE_ROWS * (done - n) / tiles;
            k->ahead_end = 2 * TILE_ROWS * done / tiles;
            run_rows(r, n, pair, k);
            n = 0;
        }
}

/* All rows with `cols` columns from j on, whose tiles begin at b. */
static void forward_columns(const struct product *p, const uint16_t *b, int j, int cols)
{
    int pair = cols > TILE_COLS;
    int all = p->s->n_segments * steps_of(p->s), limit = chunk_limit(p->s->n, pair ? 2 : 1, p->lda);
    int chunks = (all + limit - 1) / limit, length = (all + chunks - 1) / chunks;
    struct chunk k = {.a_bytes = p->lda * 2, .b_step = (pair ? 2 : 1) * TILE_SIZE};
    struct spare spare;

    for (int first = 0; first < all; first += length) {
        k.b = b + first * k.b_step;
        chunk_start(&k, p, first, all - first < length ? all - first : length);
        chunk_run(&k, p, pair, j, &spare);
    }
    spare_to_c(p, &spare, j, cols);
}

static void forward_rows(const struct product *p)
{
    int by_one = has_halves(p->s), most = by_one ? TILE_COLS : 2 * TILE_COLS, set = 0, cols;
    int64_t all = (int64_t)p->s->n_segments * steps_of(p->s), each = all * (by_one ? 2 : 1);
    int rows = p->m < TILE_ROWS ? (int)p->m : TILE_ROWS;

    for (int j = 0; j < p->s->n; j += cols) {
        const uint16_t *b = p->packed + (j / TILE_COLS * each + (p->halves == 2 ? all : 0)) * TILE_SIZE;
        cols = p->s->n - j < most ? p->s->n - j : most;
        if (cols != set)
            tiles_configure(4, rows, cols > TILE_COLS ? TILE_COLS : cols,
                            cols > TILE_COLS ? cols - TILE_COLS : cols);
        set = cols;
        forward_columns(p, b, j, cols);
    }
}

/* Every second row, from an even (halves = 1) or odd (2) one on. */
static void forward_half(struct product p, int halves)
{
    p.c += (halves - 1) * p.ldc;
    p.a += (halves - 1) * p.lda;
    p.m = (p.m + 2 - halves) / 2;
    p.ldc *= 2;
    p.lda *= 2;
    p.line_rows /= 2;
    p.halves = halves;
    if (p.m > 0)
        forward_rows(&p);
}

/* Whether halves can be used: segments must begin with a line. */
static int takes_halves(const struct gemm_shape *s, int64_t lda, const int64_t *offset)
{
    int halves = has_halves(s) && lda == TILE_K / 2;

    for (int i = 0; i < s->n_segments; i++)
        halves = halves && offset[i] % TILE_K == 0;
    return halves;
}

/* How tiles of `height` rows go by: along lines or down them, and whether they keep to lines. */
static void plan_tiles(struct product *p, int64_t m_count, int height)
{
    const struct gemm_shape *s = p->s;
    int64_t rest = s->pitch ? m_count % s->pitch : 0;
    int far = 9 * s->pitch * p->lda * 2 > NEAR_BYTES;

    p->pitch = far ? (s->pitch + height / 2) / height : 1;
    p->pitch = p->pitch > 1 ? p->pitch : 1;
    if (s->lines.line == 0 || s->lines.line % height || s->pitch % (height / TILE_ROWS) ||
        (rest > 0 && rest < s->lines.line))
        return;
    p->line_tiles = s->lines.line / height;
    p->line_rows = s->pitch;
    p->pitch = far ? p->line_tiles : 1;
}

static void forward(float *c, int64_t ldc, const void *a, int64_t lda, const int64_t *offset,
                    const void *packed, const struct gemm_shape *s, int64_t m_count)
{
    int64_t panels = m_count * lda * 2 / PANEL_BYTES + 1;
    int64_t each = up_to((m_count + panels - 1) / panels, 4 * TILE_ROWS);
    int halves = takes_halves(s, lda, offset);
    struct product p = {.s = s, .offset = offset, .packed = packed, .lda = lda, .ldc = ldc};

    plan_tiles(&p, m_count, halves ? 2 * TILE_ROWS : TILE_ROWS);
    if (p.line_tiles)
        each = up_to(each, 2 * s->pitch);
    for (int64_t m = 0; m < m_count; m += each) {
        p.a = (const uint16_t *)a + m * lda;
        p.c = c + m * ldc;
        p.m = m_count - m < each ? m_count - m : each;
        p.first = p.line_tiles ? s->lines.first + m / s->pitch : 0;
        if (halves) {
            forward_half(p, 1);
            forward_half(p, 2);
        } else {
            forward_rows(&p);
        }
    }
    _tile_release();
}

/* With numbers: the processor is slower, by a fifth, when it multiplies them than with zeros. */
static int64_t peak(int64_t rounds)
{
    uint16_t some[2 * TILE_SIZE];

    for (int i = 0; i < 2 * TILE_SIZE; i++) /* +-[0.5, 2) */
        some[i] = (uint16_t)(0x3f00 + (i * 40503 >> 3 & 0x80ff));
    tiles_configure(4, TILE_ROWS, TILE_COLS, TILE_COLS);
    _tile_loadd(4, some, LINE);
    _tile_loadd(5, some + TILE_SIZE, LINE);
    _tile_loadd(6, some + TILE_SIZE, LINE);
    _tile_loadd(7, some, LINE);
    for (int64_t i = 0; i < rounds; i++) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_release();
    return rounds * 4 * 2 * TILE_ROWS * TILE_K * TILE_COLS;
}

extern const struct gemm_ops ISA(gemm_amx_ops);
const struct gemm_ops ISA(gemm_amx_ops) = {
    .name = "amx bf16",
    .element_bytes = 2,
    .by_lines = TILE_ROWS,
    .pack_bytes = ISA(gemm_bf16_pack_bytes),
    .pack = ISA(gemm_bf16_pack),
    .pack_turned = ISA(gemm_bf16_pack_turned),
    .forward = forward,
    .weights_scratch = ISA(gemm_amx_weights_scratch),
    .weights = ISA(gemm_amx_weights),
    .peak = peak,
};
#endif
