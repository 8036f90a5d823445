/* gemm_walk.h - the walk that both products of gemm.h are, over words of four bytes: floats in
 * gemm_f32.c, pairs of bf16 in gemm_pairs.c, which defines WALK_PAIRS before it includes this.
 *
 * A block of R x V registers holds sums; a step i multiplies R single words of A by V vectors of the
 * other operand:
 *
 *                      b(i)  [ vector 0 | vector 1 ]      V vectors of LANES columns: a panel
 *     a(row 0, i)  *         [   sum    |   sum    ]
 *     a(row 1, i)  *         [   sum    |   sum    ]      R rows
 *     ...
 *
 *     forward   rows are voxels m, steps the words of all segments, which lie side by side
 *     weights   rows are elements k, steps the voxels m, or pairs of them
 *
 * The right operand lies in panels, so that a step reads it as one run: B is packed so once per
 * change of the weights, Y once per product. Panels are 2 vectors wide, the last one 1 or 2;
 * columns beyond n are zero there and never leave the block. Every sum runs over its steps in
 * order, however rows are cut into blocks: a result depends on the operands alone.
 *
 * Voxels are walked line by line, so what lies between the lines of a block with a border costs
 * nothing: of lines of 8 in planes of 8 that would be 36 positions of 100.
 */
#ifndef FALX_GEMM_WALK_H
#define FALX_GEMM_WALK_H

#include "device/gemm.h"
#include "device/isa/isa.h"
#include "device/isa/vec.h"

#include <string.h>

/* A block is R * V = 4 * GROUPS registers: 28 of 32 at 512 bits (the others hold a and b), 12 of 16
 * below. Rows come in groups of 4 / V. */
enum { GROUPS = LANES == 16 ? 7 : 3 };
typedef float word __attribute__((aligned(2), may_alias)); /* or two bf16: it is only moved */

#ifdef WALK_PAIRS
enum { PER_WORD = 2 }; /* elements of A or Y in a word */
#else
enum { PER_WORD = 1 };
#endif
enum { WORD = 4, ELEMENT = WORD / PER_WORD }; /* bytes */

static inline vec madd(word a, vec b, vec sum)
{
#ifdef WALK_PAIRS
    return (vec)_mm512_dpbf16_ps((__m512)sum, (__m512bh)_mm512_set1_ps(a), (__m512bh)b);
#else
    return vec_madd(vec_all(a), b, sum);
#endif
}

enum { BLOCK = 4 * GROUPS };

#define UNROLL _Pragma("GCC unroll 32")

/* ---- the block ------------------------------------------------------------------------------ */

/* Where the voxels are that count: in lines. */
struct lines {
    int64_t line, pitch; /* voxels of a line; from line to line */
    int of_plane, plane; /* lines of a plane; from plane to plane */
    int64_t n;           /* lines in all */
    int64_t begin;       /* the line at hand: its first voxel, and which of its plane it is */
    int number;
};

static inline void next_line(struct lines *l)
{
    do {
        l->begin += l->pitch;
        l->number = l->number + 1 < l->plane ? l->number + 1 : 0;
    } while (l->number >= l->of_plane);
}

struct walk {
    const char *a;
    int64_t lda;           /* bytes from voxel to voxel */
    const int64_t *offset; /* forward: of each segment in a, elements */
    int n_segments;
    int64_t steps, filled; /* forward: in a segment, and in its part of the panel */
    struct lines lines;
    const float *b;        /* panel: V vectors a step, segments or lines one after the other */
    int64_t begin[GROUPS]; /* in a: of each group of rows, bytes */
    float *to[GROUPS];     /* results of each group of rows, V vectors a row, ld_to apart */
    int64_t ld_to;
};

/* Where rows begin. A group of 4 / V rows has a pointer of its own and the rest of it is reached by
 * multiples of a distance, which is what an x86 address can hold: 7 groups take 9 registers. */
struct rows {
    const char *group[GROUPS];
    int64_t apart;
};

INLINE void step(vec *sum, const struct rows *w, int64_t i, const float *b, int R, int V)
{
    const int unit = 4 / V;
    vec b0 = *(const vec *)b, b1 = V > 1 ? *(const vec *)(b + LANES) : b0;
    UNROLL
    for (int r = 0; r < R; r++) {
        word a = *(const word *)(w->group[r / unit] + i + r % unit * w->apart);
        sum[r * V] = madd(a, b0, sum[r * V]);
        if (V > 1)
            sum[r * V + 1] = madd(a, b1, sum[r * V + 1]);
    }
}

INLINE void begin(vec *sum, int R, int V)
{
    UNROLL
    for (int i = 0; i < R * V; i++)
        sum[i] = (vec){0};
}

INLINE void end(const struct walk *t, const vec *sum, int R, int V)
{
    const int unit = 4 / V;
    UNROLL
    for (int i = 0; i < R * V; i++)
        *(vec *)(t->to[i / V / unit] + i / V % unit * t->ld_to + i % V * LANES) = sum[i];
}

/* The block of the forward product: groups of voxels from anywhere, all segments. */
INLINE void forward_block(const struct walk *t, int R, int V)
{
    const int unit = 4 / V, groups = (R + unit - 1) / unit;
    vec sum[BLOCK];
    struct rows w = {.apart = t->lda};
    const float *b = t->b;
    begin(sum, R, V);
    for (int s = 0; s < t->n_segments; s++) {
        UNROLL
        for (int g = 0; g < groups; g++)
            w.group[g] = t->a + t->offset[s] * ELEMENT + t->begin[g];
        for (int64_t i = 0; i < t->steps; i++, b += V * LANES)
            step(sum, &w, i * WORD, b, R, V);
        b += (t->filled - t->steps) * V * LANES;
    }
    end(t, sum, R, V);
}

/* The block of the weights product: groups of elements from anywhere, all voxels. */
INLINE void weights_block(const struct walk *t, int R, int V)
{
    const int unit = 4 / V, groups = (R + unit - 1) / unit;
    vec sum[BLOCK];
    struct rows w = {.apart = WORD};
    struct lines l = t->lines;
    const float *b = t->b;
    begin(sum, R, V);
    UNROLL
    for (int g = 0; g < groups; g++)
        w.group[g] = t->a + t->begin[g];
    for (; l.n > 0; l.n--, next_line(&l))
        for (int64_t i = 0; i < l.line; i += PER_WORD, b += V * LANES)
            step(sum, &w, (l.begin + i) * t->lda, b, R, V);
    end(t, sum, R, V);
}

/* Blocks of G = 1, 2 ... GROUPS groups by [V - 1][G]; G = 0 is a single row. */
#define BLOCK_OF(name, V, G)                                                                                 \
    static void name##_##V##_##G(const struct walk *t)                                                       \
    {                                                                                                        \
        name##_block(t, (G) > 0 ? (G)*4 / (V) : 1, (V));                                                     \
    }
#define BLOCKS(name, V)                                                                                      \
    BLOCK_OF(name, V, 0) BLOCK_OF(name, V, 1) BLOCK_OF(name, V, 2) BLOCK_OF(name, V, 3) MORE_BLOCKS(name, V)
#define NAMES(name, V) name##_##V##_0, name##_##V##_1, name##_##V##_2, name##_##V##_3 MORE_NAMES(name, V)
#if defined(__AVX512F__)
#define MORE_BLOCKS(name, V)                                                                                 \
    BLOCK_OF(name, V, 4) BLOCK_OF(name, V, 5) BLOCK_OF(name, V, 6) BLOCK_OF(name, V, 7)
#define MORE_NAMES(name, V) , name##_##V##_4, name##_##V##_5, name##_##V##_6, name##_##V##_7
#else
#define MORE_BLOCKS(name, V)
#define MORE_NAMES(name, V)
#endif

BLOCKS(forward, 1)
BLOCKS(forward, 2)
BLOCKS(weights, 1)
BLOCKS(weights, 2)

static void (*const forward_blocks[2][GROUPS + 1])(const struct walk *) = {{NAMES(forward, 1)},
                                                                           {NAMES(forward, 2)}};
static void (*const weights_blocks[2][GROUPS + 1])(const struct walk *) = {{NAMES(weights, 1)},
                                                                           {NAMES(weights, 2)}};

/* ---- cutting -------------------------------------------------------------------------------- */

static int panel_vectors(int columns_left)
{
    return columns_left > LANES ? 2 : 1;
}

/* Groups of the next block when `left` remain: blocks are evened out. */
static int block_groups(int64_t left)
{
    int64_t blocks = (left + GROUPS - 1) / GROUPS;
    return (int)((left + blocks - 1) / blocks);
}

/* Lines among m_count voxels; all are one line where all count, or where lines are shorter than `least`. */
static struct lines find_lines(const struct gemm_shape *s, int64_t m_count, int least)
{
    const struct gemm_lines *g = &s->lines;
    struct lines l = {.line = m_count, .pitch = m_count, .of_plane = 1, .plane = 1, .n = 1};
    if (g->line == 0 || g->line < least)
        return l;
    l = (struct lines){
        .line = g->line, .pitch = s->pitch, .of_plane = g->of_plane, .plane = g->plane, .number = g->first};
    if (l.number >= l.of_plane)
        next_line(&l);
    struct lines end = l;
    for (; end.begin < m_count; next_line(&end))
        l.n++;
    return l;
}

/* ---- forward -------------------------------------------------------------------------------- */

/* Takes the next `unit` voxels of a line; the last of a line begin earlier, and what is made again are
 * the same values. */
static int64_t next_group(struct lines *l, int64_t *x, int unit)
{
    int64_t at = l->begin + (*x + unit <= l->line ? *x : l->line - unit);
    *x += unit;
    if (*x >= l->line) {
        *x = 0;
        next_line(l);
    }
    return at;
}

/* One panel of C, `valid` columns of it; voxel by voxel if there are less than a group has. */
static void forward_panel(struct walk *t, float *c, int64_t ldc, int V, int valid)
{
    float tile[BLOCK * LANES];
    int64_t at[GROUPS], x = 0;
    struct lines l = t->lines;
    int direct = valid == V * LANES, single = l.line < 4 / V, unit = single ? 1 : 4 / V;
    t->ld_to = direct ? ldc : V * LANES;
    for (int64_t left = l.n * ((l.line + unit - 1) / unit), groups; left > 0; left -= groups) {
        groups = single ? 1 : block_groups(left);
        for (int64_t g = 0; g < groups; g++) {
            at[g] = next_group(&l, &x, unit);
            t->begin[g] = at[g] * t->lda;
            t->to[g] = direct ? c + at[g] * ldc : tile + g * 4 * LANES;
        }
        forward_blocks[V - 1][single ? 0 : groups](t);
        for (int64_t r = 0; r < groups * unit && !direct; r++)
            for (int k = 0; k < valid; k += LANES)
                vec_store(c + (at[r / unit] + r % unit) * ldc + k, *(const vec *)(tile + r * V * LANES + k),
                          valid - k);
    }
}

/* filled: words of a segment in a panel. */
static void forward_walk(float *c, int64_t ldc, const void *a, int64_t lda, const int64_t *offset,
                         const void *packed, int64_t filled, const struct gemm_shape *s, int64_t m_count)
{
    struct walk t = {.a = a,
                     .lda = lda * ELEMENT,
                     .offset = offset,
                     .n_segments = s->n_segments,
                     .steps = (s->k + PER_WORD - 1) / PER_WORD,
                     .filled = filled,
                     .lines = find_lines(s, m_count, 4)};
    for (int j = 0; j < s->n; j += 2 * LANES) {
        int V = panel_vectors(s->n - j), valid = s->n - j < V * LANES ? s->n - j : V * LANES;
        t.b = (const float *)packed + j * s->n_segments * filled;
        forward_panel(&t, c + j, ldc, V, valid);
    }
}

/* ---- weights -------------------------------------------------------------------------------- */

/* Adds rows of a tile, V vectors wide with `valid` columns, to D, or puts them there. */
static void tile_to_d(float *d, int64_t ldd, int add, const float *tile, int V, int rows, int valid)
{
    for (int r = 0; r < rows; r++, d += ldd, tile += V * LANES) {
        if (!add)
            for (int l = 0; l < valid; l += LANES)
                vec_store(d + l, *(const vec *)(tile + l), valid - l);
        else if (valid == V * LANES)
            for (int l = 0; l < valid; l += LANES)
                *(vec *)(d + l) += *(const vec *)(tile + l);
        else
            for (int l = 0; l < valid; l++)
                d[l] += tile[l];
    }
}

struct gradient {
    float *d;
    int64_t ldd;
    int add;
};

static inline void fetch_ahead(const float *row, int V)
{
    __builtin_prefetch(row, 1);
    if (V > 1)
        __builtin_prefetch(row + LANES, 1);
}

/* One panel of D. The elements k of all segments are cut into groups; the last group of a segment
 * may reach past k into what follows in A, and those rows are dropped. D is wanted only after a
 * block: fetched ahead, its way from memory is hidden. */
static void weights_panel(struct walk *t, const struct gradient *to_d, int j, const int64_t *offset,
                          const struct gemm_shape *s, int V, int valid)
{
    float tile[BLOCK * LANES], *to[GROUPS], *d = to_d->d + j;
    int rows[GROUPS], unit = 4 / V, in_segment = (s->k + unit - 1) / unit;
    for (int g = 0; g < GROUPS; g++)
        t->to[g] = tile + g * 4 * LANES;
    t->ld_to = V * LANES;
    int k = 0; /* of the next group in its segment */
    for (int left = s->n_segments * in_segment, groups; left > 0; left -= groups) {
        groups = block_groups(left);
        for (int g = 0; g < groups; g++) {
            to[g] = d;
            t->begin[g] = (*offset + k) * WORD;
            rows[g] = s->k - k < unit ? s->k - k : unit;
            for (int r = 0; r < rows[g]; r++, d += to_d->ldd)
                fetch_ahead(d, V);
            k += unit;
            if (k >= s->k)
                k = 0, offset++;
        }
        weights_blocks[V - 1][groups](t);
        for (int g = 0; g < groups; g++)
            tile_to_d(to[g], to_d->ldd, to_d->add, tile + g * 4 * LANES, V, rows[g], valid);
    }
}

static int64_t panel_floats(const struct gemm_shape *s, int64_t m_count)
{
    return m_count * panel_vectors(s->n) * LANES;
}

/* A line of Y, `valid` columns of it, as rows of a panel; returns where they end. */
typedef float *panel_line(float *to, int V, const void *y, int64_t ldy, int64_t line, int valid);

/* words: A, or what was made of it; lda in words. panel: room for panel_floats(). */
INLINE void weights_walk(const struct gradient *to, const void *words, int64_t lda, const int64_t *offset,
                         const void *y, int64_t ldy, const struct gemm_shape *s, int64_t m_count,
                         float *panel, panel_line *fill)
{
    struct walk t = {.a = words, .lda = lda * WORD, .b = panel, .lines = find_lines(s, m_count, 1)};
    for (int j = 0; j < s->n; j += 2 * LANES) {
        int V = panel_vectors(s->n - j), valid = s->n - j < V * LANES ? s->n - j : V * LANES;
        float *end = panel;
        for (struct lines l = t.lines; l.n > 0; l.n--, next_line(&l))
            end = fill(end, V, (const char *)y + (l.begin * ldy + j) * ELEMENT, ldy, l.line, valid);
        weights_panel(&t, to, j, offset, s, V, valid);
    }
}

/* ---- peak ----------------------------------------------------------------------------------- */

static int64_t peak(int64_t rounds)
{
    vec sum[BLOCK] = {{0}}, b = {0};
    for (int64_t i = 0; i < rounds; i++) {
        UNROLL
        for (int k = 0; k < BLOCK; k++) {
            sum[k] = madd(0, b, sum[k]);
            __asm__ volatile("" : "+v"(sum[k])); /* or the compiler would see that all are the same */
        }
    }
    return rounds * BLOCK * 2 * LANES * PER_WORD;
}

#endif
