/* gemm_amx.c - forward products with AMX tiles: C = A * B over segments (gemm.h), bf16 to float.
 *
 * A tile of A is 16 rows of the block and 32 elements of a segment, straight from the caller's
 * memory; the end of a segment is filled up with weights of zero. Two tiles of A meet two of B, or
 * four meet one if there is but one column tile. B goes by in chunks that stay in cache while all
 * rows pass:
 *
 *     packed:  two column tiles | segment, step of 32 k | column tile | tile
 *
 * Sums are in float, in an order that follows from the shapes alone: a row of C has the same bits
 * whatever rows are made beside it (rows of 16 channels: as long as even rows stay even).
 */
#include "device/isa/gemm_amx.h"

#ifdef ISA_LEVEL_amx

struct row_tile {
    const uint16_t *a;
    float *c;
    int64_t c_bytes; /* from row to row */
};

/* Steps of a chunk. 18 with two column tiles, or 36 with one, are 36 KiB of B: the first cache has
 * room for the rows going by. Sums wait in C between chunks; the more columns, the farther apart
 * its rows and the dearer that is, so chunks grow with n (measured; B then waits in the second
 * cache). */
enum { CHUNK_LEAST = 18, CHUNK_MOST = 72 };

/* Rows are done in panels of this size, which stay in the second cache (2 MiB) for all columns. */
enum { PANEL_BYTES = 1 << 20 };

static int chunk_limit(int n, int width)
{
    int limit = n * 9 / 32;

    if (width == 1)
        return 2 * CHUNK_LEAST;
    return limit < CHUNK_LEAST ? CHUNK_LEAST : limit > CHUNK_MOST ? CHUNK_MOST : limit;
}

/* One pass over a chunk of B: `count` steps of 32 k. */
struct chunk {
    int64_t a_bytes; /* from row to row */
    int count;
    int add;         /* go on with what is in C */
    int64_t at[CHUNK_MOST];        /* element of a row of A where a step begins */
    const uint16_t *b[CHUNK_MOST]; /* its one or two tiles */
    int64_t ahead, ahead_end;      /* lines to ask for, of the two tiles one chunk later */
};

/* Two column tiles, one or two row tiles: the last of them is always in registers 2, 3, 5. */
static inline __attribute__((always_inline)) void rows_by_pair(const struct row_tile *r, int n_rows,
                                                               const struct chunk *k)
{
    const struct row_tile *r1 = r + n_rows - 1;

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
    for (int i = 0; i < k->count; i++) {
        const char *later = (const char *)(k->b[i] + (int64_t)k->count * 2 * TILE_SIZE);
        for (int64_t line = k->ahead; line < k->ahead_end; line++)
            _mm_prefetch(later + line * LINE, _MM_HINT_T1);
        _tile_loadd(6, k->b[i], LINE);
        _tile_loadd(7, k->b[i] + TILE_SIZE, LINE);
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
#define EACH_ROW(DO)                                                                              \
    DO(0, 4);                                                                                     \
    if (n_rows > 1)                                                                               \
        DO(1, 5);                                                                                 \
    if (n_rows > 2)                                                                               \
        DO(2, 4);                                                                                 \
    if (n_rows > 3)                                                                               \
        DO(3, 5)
#define START(i, reg) _tile_loadd(i, r[i].c, r[i].c_bytes)
#define CLEAR(i, reg) _tile_zero(i)
#define STORE(i, reg) _tile_stored(i, r[i].c, r[i].c_bytes)
#define STEP(i, reg)                                                                              \
    do {                                                                                          \
        _tile_loadd(reg, r[i].a + k->at[step], k->a_bytes);                                       \
        _tile_dpbf16ps(i, reg, 7);                                                                \
    } while (0)

    if (k->add) {
        EACH_ROW(START);
    } else {
        EACH_ROW(CLEAR);
    }
    for (int step = 0; step < k->count; step++) {
        _tile_loadd(7, k->b[step], LINE);
        EACH_ROW(STEP);
    }
    EACH_ROW(STORE);
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
    float *c;
    const uint16_t *a, *packed;
    int64_t ldc, lda, m;
    const int64_t *offset;
    const struct gemm_shape *s;
    int halves; /* 1, 2: rows are every second one of 32 bytes, the even or the odd ones */
};

/* Steps [first, first + count) of the columns whose tiles begin at b, `width` side by side. */
static void chunk_start(struct chunk *k, const struct product *p, const uint16_t *b, int width,
                        int first, int count)
{
    int steps = steps_of(p->s), all = steps * p->s->n_segments;

    k->count = count;
    k->add = first > 0;
    for (int i = 0; i < count; i++) {
        int step = first + i;
        int64_t begin = p->offset[step / steps];
        int moved = p->halves && (begin / (TILE_K / 2) + p->halves) % 2 == 0;
        k->at[i] = begin + step % steps * TILE_K - (moved ? TILE_K / 2 : 0);
        k->b[i] = b + (int64_t)(step + (moved ? all : 0)) * width * TILE_SIZE;
    }
}

/* Rows that do not fill a tile are computed together with those before them, into `spare`, whose
 * last rows then go to C. */
struct spare {
    float c[TILE_ROWS * 2 * TILE_COLS];
};

/* Up to `most` row tiles from number t on, with the columns from j on; returns how many. */
static int row_tiles(struct row_tile *r, const struct product *p, int64_t t, int most, int j,
                     struct spare *spare)
{
    int64_t tiles = (p->m + TILE_ROWS - 1) / TILE_ROWS;
    int n_rows = (int)(tiles - t < most ? tiles - t : most);

    for (int i = 0; i < n_rows; i++) {
        int64_t m = (t + i) * TILE_ROWS;
        r[i] = (struct row_tile){ p->a + m * p->lda, p->c + m * p->ldc + j, p->ldc * 4 };
    }
    if (t + n_rows == tiles && p->m > TILE_ROWS && p->m % TILE_ROWS)
        r[n_rows - 1] = (struct row_tile){ p->a + (p->m - TILE_ROWS) * p->lda, spare->c,
                                           2 * TILE_COLS * 4 };
    return n_rows;
}

/* All rows with `cols` columns from j on. */
static void forward_columns(const struct product *p, const uint16_t *b, int j, int cols)
{
    int width = cols > TILE_COLS ? 2 : 1, most = width == 2 ? 2 : 4;
    int all = p->s->n_segments * steps_of(p->s), limit = chunk_limit(p->s->n, width);
    int chunks = (all + limit - 1) / limit, length = (all + chunks - 1) / chunks;
    int64_t rest = p->m > TILE_ROWS ? p->m % TILE_ROWS : 0;
    int64_t tiles = up_to(p->m, most * TILE_ROWS) / TILE_ROWS;
    struct chunk k = { .a_bytes = p->lda * 2 };
    struct row_tile r[4];
    struct spare spare;

    for (int first = 0; first < all; first += length) {
        chunk_start(&k, p, b, width, first, all - first < length ? all - first : length);
        for (int64_t t = 0; t * TILE_ROWS < p->m; t += most) {
            k.ahead = 2 * TILE_ROWS * t / tiles;
            k.ahead_end = 2 * TILE_ROWS * (t + most) / tiles;
            run_rows(r, row_tiles(r, p, t, most, j, &spare), width == 2, &k);
        }
    }
    for (int64_t i = 0; i < rest; i++)
        memcpy(p->c + (p->m - rest + i) * p->ldc + j,
               spare.c + (TILE_ROWS - rest + i) * 2 * TILE_COLS, (size_t)cols * 4);
}

static void forward_rows(const struct product *p)
{
    int64_t all = (int64_t)p->s->n_segments * steps_of(p->s) * (has_halves(p->s) ? 2 : 1);
    int rows = p->m < TILE_ROWS ? (int)p->m : TILE_ROWS, set = 0, cols;

    for (int j = 0; j < p->s->n; j += cols) {
        cols = p->s->n - j < 2 * TILE_COLS ? p->s->n - j : 2 * TILE_COLS;
        if (cols != set)
            tiles_configure(4, rows, cols > TILE_COLS ? TILE_COLS : cols,
                            cols > TILE_COLS ? cols - TILE_COLS : cols);
        set = cols;
        forward_columns(p, p->packed + j / TILE_COLS * all * TILE_SIZE, j, cols);
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
    p.halves = halves;
    if (p.m > 0)
        forward_rows(&p);
}

static void forward(float *c, int64_t ldc, const void *a, int64_t lda, const int64_t *offset,
                    const void *packed, const struct gemm_shape *s, int64_t m_count)
{
    int64_t panels = m_count * lda * 2 / PANEL_BYTES + 1;
    int64_t each = up_to((m_count + panels - 1) / panels, 4 * TILE_ROWS);
    int halves = has_halves(s) && lda == TILE_K / 2;

    for (int i = 0; i < s->n_segments; i++)
        halves = halves && offset[i] % lda == 0;
    for (int64_t m = 0; m < m_count; m += each) {
        struct product p = { c + m * ldc, (const uint16_t *)a + m * lda, packed, ldc, lda,
                             m_count - m < each ? m_count - m : each, offset, s, 0 };
        if (halves) {
            forward_half(p, 1);
            forward_half(p, 2);
        } else {
            forward_rows(&p);
        }
    }
    _tile_release();
}

static int64_t peak(int64_t rounds)
{
    tiles_configure(4, TILE_ROWS, TILE_COLS, TILE_COLS);
    _tile_zero(4);
    _tile_zero(5);
    _tile_zero(6);
    _tile_zero(7);
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
    .pack_bytes = ISA(gemm_amx_pack_bytes),
    .pack = ISA(gemm_amx_pack),
    .pack_turned = ISA(gemm_amx_pack_turned),
    .forward = forward,
    .weights_scratch = ISA(gemm_amx_weights_scratch),
    .weights = ISA(gemm_amx_weights),
    .peak = peak,
};
#endif
