/* test_gemm.c - the products of gemm.h at every level this machine has, against a loop in double.
 *
 * Operands of the bf16 tables are rounded first and the oracle multiplies the rounded numbers, so
 * what is measured is the product alone. A is a block as convolutions use it: rows may overlap
 * (lda < k), and every segment begins elsewhere. Behind each row of C and D lie sentinels that must
 * survive; D starts with numbers of its own that must still be in the sum, or that must not.
 */
#include <math.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/rng.h"
#include "device/device.h"
#include "device/isa/levels.h"
#include "test.h"

enum { SENTINELS = 64 };
static const float SENTINEL = 12345.5f;

struct problem {
    struct gemm_shape shape;
    int64_t m, lda, ldy, ldc, ldb, ldd, rows, reach; /* rows: of B that exist */
    int64_t offset[GEMM_MAX_SEGMENTS];
    float *a, *b, *y;  /* what the table sees, as float */
    void *a_in, *y_in; /* the same as elements of the table */
};

/* To the nearest bf16, ties to even, as a float. */
static float rounded(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    u = (u + 0x7fffu + (u >> 16 & 1)) & 0xffff0000u;
    memcpy(&x, &u, sizeof x);
    return x;
}

static float *numbers(struct rng *r, int64_t count, int64_t room, int bf16)
{
    float *p = mem_alloc(NULL, (size_t)room, sizeof *p);
    assert_non_null(p);
    for (int64_t i = 0; i < count; i++) {
        float x = rng_normal(r);
        p[i] = bf16 ? rounded(x) : x;
    }
    return p;
}

/* The upper halves of floats if elements have 2 bytes, else a copy. */
static void *elements(const float *from, int64_t count, int element_bytes)
{
    char *out = mem_alloc(NULL, (size_t)count, (size_t)element_bytes);
    assert_non_null(out);
    for (int64_t i = 0; i < count; i++)
        memcpy(out + i * element_bytes, (const char *)(from + i) + (4 - element_bytes),
               (size_t)element_bytes);
    return out;
}

/* Segments are anywhere, or, with a pitch, the nine lines of a kernel in planes of four lines. What
 * lies in A from the end of the last one on is finite, not zero: it must not count. */
static void problem_make(struct problem *p, const struct gemm_ops *ops, uint64_t number)
{
    struct rng r = rng_start(3, number, RNG_TEST, 0);
    int bf16 = ops->element_bytes == 2;
    p->reach = 0;
    for (int s = 0; s < p->shape.n_segments; s++) {
        p->offset[s] =
            p->shape.pitch ? (s / 3 * 4 + s % 3) * p->shape.pitch * p->lda : s * 2 * p->lda + (s % 3) * 7;
        int64_t end = p->offset[s] + (p->m - 1) * p->lda + p->shape.k;
        p->reach = end > p->reach ? end : p->reach;
    }
    int64_t room = p->reach + GEMM_SLACK, steps = (int64_t)p->shape.n_segments * p->shape.k;
    p->rows = number % 3 ? steps : steps - steps / 4;
    p->ldb = p->shape.n + (number % 2 ? 0 : 11);
    p->ldd = p->shape.n + (number % 5 ? 0 : 7);
    p->a = numbers(&r, room, room, bf16);
    p->b = numbers(&r, p->rows * p->ldb, p->rows * p->ldb, bf16);
    p->y = numbers(&r, (p->m - 1) * p->ldy + p->shape.n, (p->m - 1) * p->ldy + p->shape.n, bf16);
    p->a_in = elements(p->a, room, ops->element_bytes);
    p->y_in = elements(p->y, (p->m - 1) * p->ldy + p->shape.n, ops->element_bytes);
}

static void problem_free(struct problem *p)
{
    mem_free(p->a);
    mem_free(p->b);
    mem_free(p->y);
    mem_free(p->a_in);
    mem_free(p->y_in);
}

static float *sentinels(int64_t count)
{
    float *p = aligned_alloc(64, ((size_t)count + SENTINELS + 15) / 16 * 64);
    assert_non_null(p);
    for (int64_t i = 0; i < count + SENTINELS; i++)
        p[i] = SENTINEL;
    return p;
}

static void sentinels_check(const float *p, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        assert_true(p[i] == SENTINEL);
}

/* Mean squared error over mean square. */
struct nmse {
    double error, square;
};

static void nmse_add(struct nmse *e, double got, double want)
{
    e->error += (got - want) * (got - want);
    e->square += want * want;
}

/* Long sums round more often. */
static void nmse_check(const struct nmse *e, const struct problem *p, const struct gemm_ops *ops,
                       const char *what)
{
    double limit = (ops->element_bytes == 2 ? 1e-10 : 1e-12) * (1 + (double)p->m / 1000);
    if (!(e->error <= limit * e->square) || e->square == 0)
        test_fail("%s, %s: segments %d k %d n %d m %d lda %d: NMSE %g", ops->name, what, p->shape.n_segments,
                  p->shape.k, p->shape.n, (int)p->m, (int)p->lda, e->error / e->square);
}

/* Room for a packed B: aligned as devices align it. */
static void *packed_new(const struct gemm_ops *ops, const struct gemm_shape *s)
{
    void *p = aligned_alloc(64, (ops->pack_bytes(s) + 63) / 64 * 64);
    assert_non_null(p);
    return p;
}

static void check_forward(const struct problem *p, const struct gemm_ops *ops)
{
    const struct gemm_shape *s = &p->shape;
    void *packed = packed_new(ops, s);
    ops->pack(packed, p->b, p->ldb, p->rows, s, NULL);
    float *c = sentinels(p->m * p->ldc);
    ops->forward(c, p->ldc, p->a_in, p->lda, p->offset, packed, s, p->m);
    struct nmse e = {0, 0};
    for (int64_t m = 0; m < p->m; m++) {
        for (int j = 0; j < s->n; j++) {
            double sum = 0;
            for (int64_t r = 0; r < p->rows; r++)
                sum +=
                    (double)p->a[m * p->lda + p->offset[r / s->k] + r % s->k] * (double)p->b[r * p->ldb + j];
            nmse_add(&e, (double)c[m * p->ldc + j], sum);
        }
        sentinels_check(c + m * p->ldc + s->n, p->ldc - s->n);
    }
    sentinels_check(c + p->m * p->ldc, SENTINELS);
    nmse_check(&e, p, ops, "forward");
    free(c);
    free(packed);
}

/* Added to numbers of its own, or over numbers that are none. */
static void check_weights(const struct problem *p, const struct gemm_ops *ops, enum gemm_put put)
{
    const struct gemm_shape *s = &p->shape;
    int64_t steps = (int64_t)s->n_segments * s->k;
    int add = put == GEMM_ADD;
    void *scratch = mem_alloc(NULL, ops->weights_scratch(s, p->lda, p->m, p->reach), 1);
    float *d = sentinels(steps * p->ldd);
    assert_non_null(scratch);
    for (int64_t i = 0; i < steps; i++)
        for (int j = 0; j < s->n; j++)
            d[i * p->ldd + j] = add ? (float)((i + j) % 5 - 2) : NAN;
    ops->weights(d, p->ldd, put, p->a_in, p->lda, p->offset, p->y_in, p->ldy, s, p->m, p->reach, scratch);
    struct nmse e = {0, 0};
    for (int64_t i = 0; i < steps; i++) {
        const float *a = p->a + p->offset[i / s->k] + i % s->k;
        for (int j = 0; j < s->n; j++) {
            double sum = add ? (double)((i + j) % 5 - 2) : 0;
            for (int64_t m = 0; m < p->m; m++)
                sum += (double)a[m * p->lda] * (double)p->y[m * p->ldy + j];
            nmse_add(&e, (double)d[i * p->ldd + j], sum);
        }
        sentinels_check(d + i * p->ldd + s->n, p->ldd - s->n);
    }
    sentinels_check(d + steps * p->ldd, SENTINELS);
    nmse_check(&e, p, ops, add ? "weights added" : "weights");
    free(d);
    mem_free(scratch);
}

static void check_problem(struct problem *p, uint64_t number)
{
    for (int l = 0; l < ISA_LEVELS; l++) {
        const struct isa_ops *level = isa_level(isa_names[l]);
        for (int t = 0; level && t < 2; t++) {
            const struct gemm_ops *ops = t ? level->bf16 : level->f32;
            if (!ops)
                continue;
            problem_make(p, ops, number);
            check_forward(p, ops);
            check_weights(p, ops, GEMM_OVER);
            check_weights(p, ops, GEMM_ADD);
            check_weights(p, ops, GEMM_FAR);
            problem_free(p);
        }
    }
}

/* ---- tests ---------------------------------------------------------------------------------- */

/* Every pair of length and width, with heights and strides that go round. */
static void test_shapes(void **state)
{
    static const int ks[] = {1, 2, 3, 4, 16, 27, 32, 48, 50, 96};
    static const int ns[] = {1, 2, 3, 5, 16, 17, 20, 32, 40, 64};
    (void)state;
    uint64_t number = 0;
    for (size_t i = 0; i < sizeof ks / sizeof *ks; i++) {
        for (size_t j = 0; j < sizeof ns / sizeof *ns; j++, number++) {
            struct problem p = {.shape = {number % 2 ? 9 : 1, ks[i], ns[j], 0, {0}}};
            p.m = 1 + (int64_t)(number * 37 % 60);
            p.lda = number % 3 == 0 ? ks[i] : number % 3 == 1 ? ks[i] + 5 : (ks[i] + 2) / 3;
            p.ldy = ns[j] + (number % 4 == 3 ? 3 : 0);
            p.ldc = ns[j] + (number % 4 > 1 ? 9 : 0);
            check_problem(&p, number);
        }
    }
}

/* Every number of rows, so every way to cut them. */
static void test_heights(void **state)
{
    static const int ns[] = {3, 16, 32, 48};
    (void)state;
    for (int m = 1; m <= 100; m++) {
        struct problem p = {.shape = {m % 5 == 0 ? 9 : 1, 1 + m % 12, ns[m % 4], 0, {0}}};
        p.m = m;
        p.lda = p.shape.k;
        p.ldy = p.ldc = p.shape.n;
        check_problem(&p, 1000 + (uint64_t)m);
    }
}

/* A layer as deep ones are: wide, 3x3x3, rows that overlap. */
static void test_convolution(void **state)
{
    static const struct {
        int c, n, m;
    } layers[] = {{1, 16, 70}, {16, 16, 66}, {32, 32, 33}, {20, 256, 19}};
    (void)state;
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        struct problem p = {.shape = {9, 3 * layers[i].c, layers[i].n, 0, {0}}};
        p.m = layers[i].m;
        p.lda = layers[i].c;
        p.ldy = p.ldc = p.shape.n;
        check_problem(&p, 2000 + i);
    }
}

/* Long lines, whose order of work differs; more rows than are summed in one go. */
static void test_lines(void **state)
{
    static const struct {
        int segments, c, n, pitch, m;
    } grids[] = {{9, 16, 16, 90, 275}, {9, 16, 16, 90, 16},   {9, 16, 20, 45, 77},  {9, 32, 32, 50, 131},
                 {9, 32, 40, 50, 64},  {2, 16, 16, 66, 3301}, {1, 40, 20, 66, 3300}};
    (void)state;
    for (size_t i = 0; i < sizeof grids / sizeof *grids; i++) {
        struct problem p = {.shape = {.n_segments = grids[i].segments,
                                      .k = 3 * grids[i].c,
                                      .n = grids[i].n,
                                      .pitch = grids[i].pitch}};
        p.m = grids[i].m;
        p.lda = grids[i].c;
        p.ldy = p.ldc = p.shape.n;
        check_problem(&p, 5000 + i);
    }
}

/* Rows of C made a few at a time, from even ones on, without knowledge of the lines. */
static void cut_rows(float *c, const struct problem *p, const struct gemm_ops *ops, const void *packed,
                     int step)
{
    struct gemm_shape s = p->shape;
    s.pitch = 0;
    for (int64_t m = 0, rows = step; m < p->m; m += rows, rows = rows % 7 + step) {
        rows = rows < p->m - m ? rows : p->m - m;
        const char *a = (const char *)p->a_in + m * p->lda * ops->element_bytes;
        ops->forward(c + m * s.n, s.n, a, p->lda, p->offset, packed, &s, rows);
    }
}

/* A row of C is the same numbers, to the bit, whatever rows are made beside it. */
static void check_cutting(const struct gemm_ops *ops, const struct gemm_shape *s, int64_t lda, int step)
{
    struct problem p = {.shape = *s, .m = 211, .lda = lda, .ldy = s->n, .ldc = s->n};
    problem_make(&p, ops, 3000);
    void *packed = packed_new(ops, s);
    float *whole = sentinels(p.m * s->n), *part = sentinels(p.m * s->n);
    ops->pack(packed, p.b, p.ldb, p.rows, s, NULL);
    ops->forward(whole, s->n, p.a_in, lda, p.offset, packed, s, p.m);
    cut_rows(part, &p, ops, packed, step);
    assert_memory_equal(whole, part, (size_t)(p.m * s->n) * sizeof *whole);
    free(whole);
    free(part);
    free(packed);
    problem_free(&p);
}

static void test_cutting(void **state)
{
    struct gemm_shape any = {9, 27, 40, 0, {0}}, halves = {9, 48, 16, 90, {0}};
    struct gemm_shape lines = {9, 96, 32, 50, {0}};
    (void)state;
    for (int l = 0; l < ISA_LEVELS; l++) {
        const struct isa_ops *level = isa_level(isa_names[l]);
        for (int t = 0; level && t < 2; t++) {
            const struct gemm_ops *ops = t ? level->bf16 : level->f32;
            if (!ops)
                continue;
            check_cutting(ops, &any, 9, 1);
            check_cutting(ops, &halves, 16, 14);
            check_cutting(ops, &lines, 32, 1);
        }
    }
}

static int counts(const struct gemm_shape *s, int64_t m)
{
    int64_t line = m / s->pitch + s->lines.first;
    return m % s->pitch < s->lines.line && line % s->lines.plane < s->lines.of_plane;
}

/* C of positions that count, and D where Y is zero at the others, are the same to the bit whether or not
 * the lines are known; D within rounding where lines decide which voxels make a pair. */
static void check_border(const struct gemm_ops *ops, const struct gemm_shape *s, int64_t m, uint64_t number)
{
    struct problem p = {.shape = *s, .m = m, .lda = s->k / 3, .ldy = s->n, .ldc = s->n};
    struct gemm_shape plain = *s;
    int64_t steps = (int64_t)s->n_segments * s->k;
    problem_make(&p, ops, number);
    plain.lines.line = 0;
    void *packed = packed_new(ops, s);
    void *scratch = mem_alloc(NULL, ops->weights_scratch(s, p.lda, m, p.reach), 1);
    float *c[2] = {sentinels(m * s->n), sentinels(m * s->n)};
    float *d[2] = {sentinels(steps * s->n), sentinels(steps * s->n)};
    assert_non_null(scratch);
    for (int64_t i = 0; i < m; i++)
        if (!counts(s, i))
            memset((char *)p.y_in + i * s->n * ops->element_bytes, 0, (size_t)(s->n * ops->element_bytes));
    ops->pack(packed, p.b, p.ldb, p.rows, s, NULL);
    for (int i = 0; i < 2; i++) {
        const struct gemm_shape *shape = i ? s : &plain;
        ops->forward(c[i], s->n, p.a_in, p.lda, p.offset, packed, shape, m);
        ops->weights(d[i], s->n, GEMM_OVER, p.a_in, p.lda, p.offset, p.y_in, p.ldy, shape, m, p.reach,
                     scratch);
    }
    for (int64_t i = 0; i < m; i++)
        if (counts(s, i))
            assert_memory_equal(c[0] + i * s->n, c[1] + i * s->n, (size_t)s->n * sizeof(float));
    struct nmse e = {0, 0};
    for (int64_t i = 0; i < steps * s->n; i++)
        nmse_add(&e, (double)d[1][i], (double)d[0][i]);
    nmse_check(&e, &p, ops, "weights by lines");
    assert_true(e.error == 0 || (ops->element_bytes == 2 && ops->by_lines == 1));
    for (int i = 0; i < 2; i++) {
        sentinels_check(c[i] + m * s->n, SENTINELS);
        free(c[i]);
        free(d[i]);
    }
    free(packed);
    mem_free(scratch);
    problem_free(&p);
}

static void check_borders(const struct gemm_ops *ops, int line, int k, int n)
{
    int of_plane = 1 + line % 5, first = line % (of_plane + 2), lines = 2 * (of_plane + 2);
    struct gemm_shape s = {9, k, n, line + 2, {line, of_plane, of_plane + 2, first}};
    check_border(ops, &s, lines * s.pitch, 6000 + (uint64_t)line);
    s.lines.first = 0;
    check_border(ops, &s, (lines - 3) * s.pitch + line, 6100 + (uint64_t)line);
}

/* Lines of every length in planes of a few, from any line of a plane on, whole and cut off at the end. */
static void test_borders(void **state)
{
    static const int columns[] = {7, 16, 32, 40};
    (void)state;
    for (int l = 0; l < ISA_LEVELS; l++) {
        const struct isa_ops *level = isa_level(isa_names[l]);
        for (int line = 1; level && level->f32->by_lines && line <= 19; line++)
            check_borders(level->f32, line, 12, columns[line % 4]);
        for (int line = 16; level && level->bf16 && line <= 96; line += level->bf16->by_lines)
            for (int c = 16; c <= 64; c *= 2)
                check_borders(level->bf16, line, 3 * c, columns[line / 16 % 4]);
    }
}

/* Parts give the bytes that all at once gives. */
static void check_parts(const struct gemm_ops *ops, const struct gemm_shape *s, const float *plain,
                        const struct gemm_turned *t, const char *want)
{
    int64_t all = (int64_t)s->n_segments * s->k;
    char *got[2] = {packed_new(ops, s), packed_new(ops, s)};
    for (int64_t row = all - GEMM_PART; row >= 0; row -= GEMM_PART)
        for (int col = 0; col < s->n; col += GEMM_PART) {
            struct gemm_part part = {row, row + GEMM_PART, col, col + GEMM_PART};
            ops->pack(got[0], plain, s->n, all, s, &part);
            ops->pack_turned(got[1], t, s, &part);
        }
    for (int i = 0; i < 2; i++) {
        assert_memory_equal(want, got[i], ops->pack_bytes(s));
        free(got[i]);
    }
}

/* B by columns gives the bytes that the same B by rows gives. */
static void check_turned(const struct gemm_ops *ops, const struct gemm_shape *s, int64_t block, int64_t rows,
                         uint64_t number)
{
    struct rng r = rng_start(3, number, RNG_TEST, 0);
    int64_t all = (int64_t)s->n_segments * s->k, blocks = (rows + block - 1) / block;
    struct gemm_turned t = {.ld = block + (int64_t)number % 3, .block = block, .rows = rows};
    t.stride = s->n * t.ld;
    float *from = numbers(&r, blocks * t.stride, blocks * t.stride, 0);
    float *plain = numbers(&r, rows * s->n, rows * s->n, 0);
    size_t bytes = ops->pack_bytes(s);
    char *want = packed_new(ops, s), *got = packed_new(ops, s);
    t.b = from + (blocks - 1) * t.stride;
    for (int64_t i = 0; i < rows * s->n; i++) {
        int64_t row = i / s->n;
        plain[i] = t.b[i % s->n * t.ld + row % block - row / block * t.stride];
    }
    if (rows == all && number % 2)
        t.rows = 0;
    memset(want, 1, bytes);
    memset(got, 2, bytes);
    ops->pack(want, plain, s->n, rows, s, NULL);
    ops->pack_turned(got, &t, s, NULL);
    assert_memory_equal(want, got, bytes);
    if (rows == all && s->k % GEMM_PART == 0 && s->n % GEMM_PART == 0)
        check_parts(ops, s, plain, &t, want);
    mem_free(from);
    mem_free(plain);
    free(want);
    free(got);
}

static void test_turned(void **state)
{
    static const struct {
        struct gemm_shape s;
        int block, rows;
    } cases[] = {
        {{9, 48, 16, 0, {0}}, 16, 432},   {{9, 48, 20, 0, {0}}, 16, 432}, {{9, 96, 32, 0, {0}}, 32, 864},
        {{3, 144, 33, 0, {0}}, 16, 432},  {{1, 32, 16, 0, {0}}, 1, 27},   {{1, 96, 7, 0, {0}}, 3, 81},
        {{1, 128, 40, 0, {0}}, 200, 128}, {{2, 27, 17, 0, {0}}, 9, 54},   {{9, 15, 48, 0, {0}}, 5, 135},
        {{9, 48, 5, 0, {0}}, 24, 430},    {{1, 1, 1, 0, {0}}, 1, 1},      {{1, 50, 32, 0, {0}}, 50, 50},
        {{3, 96, 64, 0, {0}}, 32, 288},   {{1, 64, 96, 0, {0}}, 64, 64}};
    (void)state;
    for (int l = 0; l < ISA_LEVELS; l++) {
        const struct isa_ops *level = isa_level(isa_names[l]);
        for (size_t i = 0; level && i < sizeof cases / sizeof *cases; i++) {
            check_turned(level->f32, &cases[i].s, cases[i].block, cases[i].rows, 4000 + i);
            if (level->bf16)
                check_turned(level->bf16, &cases[i].s, cases[i].block, cases[i].rows, 4000 + i);
        }
    }
}

static int base_is_best(void)
{
    return isa_level(NULL) == isa_level("base") && strcmp(isa_best_name(), "base") == 0 && !isa_level("avx2");
}

static int unknown_level_is_rejected(void)
{
    struct device_options o = {.name = "cpu", .threads = 1};
    struct device *dev = NULL;
    struct error e = {0};
    return device_open(&dev, &o, &e) < 0 && e.code == ERR_DEVICE && strstr(e.text, "\"sse9\"");
}

/* The level is chosen once in a process, so each value of FALX_CPU_ISA gets a process. The first test: this
 * process must not have chosen yet. */
static void holds_with_isa(const char *level, int (*holds)(void))
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        setenv("FALX_CPU_ISA", level, 1);
        _exit(holds() ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void test_level_from_environment(void **state)
{
    (void)state;
    holds_with_isa("base", base_is_best);
    holds_with_isa("sse9", unknown_level_is_rejected);
}

static void test_levels(void **state)
{
    (void)state;
    assert_non_null(isa_level("base"));
    assert_null(isa_level("sse9"));
    assert_null(isa_level(""));
    assert_ptr_equal(isa_level(NULL), isa_level(isa_best_name()));
    int seen = 1; /* the levels that run here are the first ones */
    for (int l = 0; l < ISA_LEVELS; l++) {
        const struct isa_ops *level = isa_level(isa_names[l]);
        assert_true(seen || !level);
        seen = level != NULL;
        if (!level) {
            print_message("level %s: not on this machine\n", isa_names[l]);
            continue;
        }
        assert_int_equal(level->f32->element_bytes, 4);
        assert_true(text_starts_with(level->f32->name, isa_names[l]));
        assert_true(!level->bf16 || level->bf16->element_bytes == 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_level_from_environment),
        cmocka_unit_test(test_levels),
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_heights),
        cmocka_unit_test(test_convolution),
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_cutting),
        cmocka_unit_test(test_borders),
        cmocka_unit_test(test_turned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
