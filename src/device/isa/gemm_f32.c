/* gemm_f32.c - the two products of gemm.h in float32, for every level of the processor: the walk of
 * gemm_walk.h, and how its panels are filled. */
#include "device/isa/gemm_walk.h"
#include "device/isa/transpose.h"

/* Rows of the right operand, lying ld apart, as rows of a panel; returns where they end. */
INLINE float *pack_rows(float *to, int width, const float *from, int64_t ld, int64_t rows, int valid, int far)
{
    for (int64_t i = 0; i < rows; i++, to += width)
        for (int l = 0; l < width; l += LANES) {
            vec v = vec_load(from + i * ld + l, valid - l);
            if (far)
                vec_stream(to + l, v);
            else
                *(vec *)(to + l) = v;
        }
    return to;
}

/* Columns with those that fill the last vector. */
static size_t padded(int n)
{
    return (size_t)(n + LANES - 1) / LANES * LANES;
}

static size_t pack_bytes(const struct gemm_shape *s)
{
    return (size_t)s->n_segments * (size_t)s->k * padded(s->n) * sizeof(float);
}

static struct gemm_part part_or_all(const struct gemm_part *part, const struct gemm_shape *s)
{
    return part ? *part : (struct gemm_part){0, (int64_t)s->n_segments * s->k, 0, s->n};
}

static void pack(void *packed, const float *b, int64_t ldb, int64_t rows, const struct gemm_shape *s,
                 const struct gemm_part *part)
{
    struct gemm_part p = part_or_all(part, s);
    int64_t all = (int64_t)s->n_segments * s->k, last = p.end < rows ? p.end : rows;
    last = last > p.row ? last : p.row;
    for (int j = p.col; j < p.col_end; j += 2 * LANES) {
        int width = panel_vectors(s->n - j) * LANES;
        float *to = (float *)packed + j * all + p.row * width;
        to = pack_rows(to, width, b + p.row * ldb + j, ldb, last - p.row, s->n - j, 1);
        memset(to, 0, (size_t)((p.end - last) * width) * sizeof *to);
    }
}

/* Four by four of a panel. Four lanes are there at every level. */
INLINE void turn_four(float *to, int width, const float *from, int64_t ld)
{
    __m128 a = _mm_loadu_ps(from), b = _mm_loadu_ps(from + ld);
    __m128 c = _mm_loadu_ps(from + 2 * ld), d = _mm_loadu_ps(from + 3 * ld);
    _MM_TRANSPOSE4_PS(a, b, c, d);
    _mm_storeu_ps(to, a);
    _mm_storeu_ps(to + width, b);
    _mm_storeu_ps(to + 2 * width, c);
    _mm_storeu_ps(to + 3 * width, d);
}

enum { RUN = 16 }; /* rows of B turned at a time: a line of each of its columns */

#if defined(__AVX512F__)
/* A run of rows with all columns of the panel. */
static void turn_run(float *to, int width, const float *from, int64_t ld)
{
    for (int j = 0; j < width; j += LANES) {
        __m512i r[RUN];
        UNROLL
        for (int i = 0; i < RUN; i++)
            r[i] = _mm512_loadu_si512(from + (j + i) * ld);
        transpose_16(r);
        UNROLL
        for (int i = 0; i < RUN; i++)
            vec_stream(to + i * width + j, (vec)r[i]);
    }
}
#endif

/* `rows` <= RUN rows of a panel. */
static void turn_rows(float *to, int width, const float *from, int64_t ld, int64_t rows, int columns)
{
    int64_t fours = rows / 4 * 4;
#if defined(__AVX512F__)
    if (rows == RUN && columns == width) {
        turn_run(to, width, from, ld);
        return;
    }
#endif
    for (int j = 0; j < columns; j++) {
        int64_t i = 0;
        if (j % 4 == 0 && j + 4 <= columns)
            for (; i < fours; i += 4)
                turn_four(to + i * width + j, width, from + j * ld + i, ld);
        else if (j / 4 * 4 + 4 <= columns)
            i = fours;
        for (; i < rows; i++)
            to[i * width + j] = from[j * ld + i];
    }
}

static void pack_turned(void *packed, const struct gemm_turned *t, const struct gemm_shape *s,
                        const struct gemm_part *part)
{
    struct gemm_part p = part_or_all(part, s);
    int64_t all = (int64_t)s->n_segments * s->k, rows = t->rows && t->rows < p.end ? t->rows : p.end;
    for (int j = p.col; j < p.col_end; j += 2 * LANES) {
        int width = panel_vectors(s->n - j) * LANES, valid = s->n - j < width ? s->n - j : width;
        float *to = (float *)packed + j * all + p.row * width;
        for (int64_t r = p.row, run; r < p.end; r += run, to += run * width) {
            const float *from = t->b + j * t->ld + r % t->block - r / t->block * t->stride;
            run = t->block - r % t->block < RUN ? t->block - r % t->block : RUN;
            run = r < rows && rows - r < run ? rows - r : p.end - r < run ? p.end - r : run;
            if (r >= rows || valid < width)
                memset(to, 0, (size_t)(run * width) * sizeof *to);
            if (r < rows)
                turn_rows(to, width, from, t->ld, run, valid);
        }
    }
}

/* ---- the products --------------------------------------------------------------------------- */

static void forward(float *c, int64_t ldc, const void *a, int64_t lda, const int64_t *offset,
                    const void *packed, const struct gemm_shape *s, int64_t m_count)
{
    forward_walk(c, ldc, a, lda, offset, packed, s->k, s, m_count);
}

static size_t weights_scratch(const struct gemm_shape *s, int64_t lda, int64_t m_count, int64_t reach)
{
    (void)lda, (void)reach;
    return (size_t)panel_floats(s, m_count) * sizeof(float);
}

static float *copy_line(float *to, int V, const void *y, int64_t ldy, int64_t line, int valid)
{
    return pack_rows(to, V * LANES, y, ldy, line, valid, 0);
}

static void weights(float *d, int64_t ldd, enum gemm_put put, const void *a, int64_t lda,
                    const int64_t *offset, const void *y, int64_t ldy, const struct gemm_shape *s,
                    int64_t m_count, int64_t reach, void *scratch)
{
    struct gradient to = {d, ldd, put == GEMM_ADD};
    (void)reach;
    weights_walk(&to, a, lda, offset, y, ldy, s, m_count, scratch, copy_line);
}

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

extern const struct gemm_ops ISA(gemm_f32_ops);
const struct gemm_ops ISA(gemm_f32_ops) = {
    .name = TEXT(ISA_LEVEL) " f32",
    .element_bytes = sizeof(float),
    .by_lines = 1,
    .pack_bytes = pack_bytes,
    .pack = pack,
    .pack_turned = pack_turned,
    .forward = forward,
    .weights_scratch = weights_scratch,
    .weights = weights,
    .peak = peak,
};
