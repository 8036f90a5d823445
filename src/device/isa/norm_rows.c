/* norm_rows.c - the inner loops of norm.h for one level of the processor.
 *
 * A piece is a flat run of voxels * c elements. It is looked at in wide rows of W = lcm(c, LANES)
 * elements, so that lane l of column j always holds channel (LANES j + l) mod c, whatever c is; of 16
 * lanes:
 *
 *     c = 16:  one column      c = 64:  |col 0|col 1|col 2|col 3|      c = 4:  |0123 0123 0123 0123|
 *
 * Each column is summed down the rows in vectors, NORM_RUN rows in float, then in double; what is
 * left of the last wide row is added one by one. Up to BESIDE columns go down together, so that lines
 * are used up when they come.
 */
#include "device/isa/isa.h"
#include "device/isa/vec.h"
#include "device/norm.h"

#include <string.h>

enum {
    CHAINS = 4, /* sums of one run that do not wait for each other */
    BESIDE = 4
};

INLINE float load1(const void *p, int64_t at, int bf16)
{
    float f;
    uint32_t bits;
    if (!bf16)
        return ((const float *)p)[at];
    bits = (uint32_t)((const uint16_t *)p)[at] << 16;
    memcpy(&f, &bits, sizeof f);
    return f;
}

INLINE vec load_vec(const void *p, int64_t at, int bf16)
{
    const float *f = (const float *)p + at;
    const uint16_t *h = (const uint16_t *)p + at;
    return bf16 ? vec_widen(*(const hvec *)h) : *(const vec *)f;
}

/* One piece: where it lies and how it is read. */
struct piece {
    const void *g, *y;
    const float *scale, *shift, *mean; /* scale NULL: 1 and 0 */
    int relu, c;
};

struct column {
    vec scale, shift, mean;
    ivec open; /* all ones without relu: nothing is masked */
};

static void column_tables(struct column *t, const struct piece *p, int j)
{
    float scale[LANES], shift[LANES], mean[LANES];
    for (int l = 0; l < LANES; l++) {
        int c = (j * LANES + l) % p->c;
        scale[l] = p->scale ? p->scale[c] : 1.0f;
        shift[l] = p->scale ? p->shift[c] : 0.0f;
        mean[l] = p->mean[c];
    }
    memcpy(&t->scale, scale, sizeof scale);
    memcpy(&t->shift, shift, sizeof shift);
    memcpy(&t->mean, mean, sizeof mean);
    memset(&t->open, p->relu ? 0 : 0xff, sizeof t->open);
}

/* One element of every lane into its two sums. */
INLINE void add_vec(vec *s1, vec *s2, const struct piece *p, const struct column *t, int64_t at, int bf16)
{
    __builtin_prefetch(isa_ahead(p->g, at * (bf16 ? 2 : 4)));
    __builtin_prefetch(isa_ahead(p->y, at * (bf16 ? 2 : 4)));
    vec g = load_vec(p->g, at, bf16), y = load_vec(p->y, at, bf16);
    g = (vec)((ivec)g & ((t->scale * y + t->shift > 0.0f) | t->open));
    *s1 += g;
    *s2 += g * (y - t->mean);
}

/* `rows` wide rows from element `at`, W apart; at most NORM_RUN. */
INLINE void add_run(double *sum1, double *sum2, const struct piece *p, const struct column *t, int64_t at,
                    int64_t rows, int64_t W, int bf16)
{
    vec s1[CHAINS] = {{0}}, s2[CHAINS] = {{0}};
    int64_t r = 0;
    for (; r + CHAINS <= rows; r += CHAINS)
        for (int k = 0; k < CHAINS; k++)
            add_vec(&s1[k], &s2[k], p, t, at + (r + k) * W, bf16);
    for (; r < rows; r++)
        add_vec(&s1[0], &s2[0], p, t, at + r * W, bf16);
    vec a = (s1[0] + s1[1]) + (s1[2] + s1[3]), b = (s2[0] + s2[1]) + (s2[2] + s2[3]);
    for (int l = 0; l < LANES; l++) {
        sum1[l] += (double)a[l];
        sum2[l] += (double)b[l];
    }
}

/* Columns [first, end), at most BESIDE. */
INLINE void add_columns(double *sums, const struct piece *p, int first, int end, int64_t rows, int64_t W,
                        int bf16)
{
    double sum1[BESIDE][LANES] = {{0}}, sum2[BESIDE][LANES] = {{0}};
    struct column t[BESIDE];
    for (int j = first; j < end; j++)
        column_tables(&t[j - first], p, j);
    for (int64_t r = 0; r < rows; r += NORM_RUN) {
        int64_t n = rows - r < NORM_RUN ? rows - r : NORM_RUN;
        for (int j = first; j < end; j++)
            add_run(sum1[j - first], sum2[j - first], p, &t[j - first], r * W + j * LANES, n, W, bf16);
    }
    for (int i = 0; i < (end - first) * LANES; i++) {
        int c = (first * LANES + i) % p->c;
        sums[c] += sum1[i / LANES][i % LANES];
        sums[p->c + c] += sum2[i / LANES][i % LANES];
    }
}

INLINE void add_rest(double *sums, const struct piece *p, int64_t from, int64_t to, int g_bf16, int y_bf16)
{
    for (int64_t i = from; i < to; i++) {
        int c = (int)(i % p->c);
        float y = load1(p->y, i, y_bf16), g = load1(p->g, i, g_bf16);
        float u = p->scale ? p->scale[c] * y + p->shift[c] : y;
        if (p->relu && !(u > 0.0f))
            continue;
        sums[c] += (double)g;
        sums[p->c + c] += (double)(g * (y - p->mean[c]));
    }
}

static int64_t wide_row(int c)
{
    int w = c;
    while (w % LANES)
        w += c;
    return w;
}

static void norm_rows_sums(double *sums, const void *g, enum value_type g_type, const struct conv_source *y,
                           const float *mean, int64_t voxels, int c)
{
    struct piece p = {g, y->y.data, y->scale, y->shift, mean, y->relu, c};
    int64_t W = wide_row(c), count = voxels * c, rows = g_type == y->y.type ? count / W : 0;
    memset(sums, 0, 2 * (size_t)c * sizeof *sums);
    for (int j = 0, columns = (int)(W / LANES); j < columns; j += BESIDE) {
        int end = j + BESIDE < columns ? j + BESIDE : columns;
        if (g_type == VALUE_BF16)
            add_columns(sums, &p, j, end, rows, W, 1);
        else
            add_columns(sums, &p, j, end, rows, W, 0);
    }
    add_rest(sums, &p, rows * W, count, g_type == VALUE_BF16, y->y.type == VALUE_BF16);
}

INLINE void join(float *to, const void *g, int g_bf16, const void *y, int y_bf16, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        float value = load1(g, i, g_bf16);
        to[i] += load1(y, i, y_bf16) > 0.0f ? value : 0.0f;
    }
}

static void norm_rows_join(float *to, const void *g, enum value_type g_type, const void *y,
                           enum value_type y_type, int relu, int64_t count)
{
    int g_bf16 = g_type == VALUE_BF16;
    if (!relu)
        for (int64_t i = 0; i < count; i++)
            to[i] += load1(g, i, g_bf16);
    else if (y_type == VALUE_BF16)
        join(to, g, g_bf16, y, 1, count);
    else if (g_bf16)
        join(to, g, 1, y, 0, count);
    else
        join(to, g, 0, y, 0, count);
}

extern const struct norm_ops ISA(norm_ops);
const struct norm_ops ISA(norm_ops) = {.sums = norm_rows_sums, .join = norm_rows_join};
