/* contrast.c - tiles of the contrastive loss, 64 rows x 64 columns (see contrast.h).
 *
 * A tile is a small product, scores = rows (64,16) x panel (16,64), in powers of two since the
 * panel carries log2(e)/tau; then an exponential; then sums over its rows and columns, or the
 * products of the weights with the rows of the other side:
 *
 *     scores -> exp2(score - shift) -> sums along rows    -> Z of the rows
 *                                   -> sums along columns -> Z of the columns
 *                                   -> weights x rows     -> pull of rows and columns
 *
 * Pairs that do not count, a row with itself and the filling of the last tile, get a score so low
 * that exp2 is exactly 0. Within a strip against itself a tile off the diagonal is met once, by i
 * < j.
 */
#include "device/contrast.h"
#include "device/isa/isa.h"
#include "device/isa/vec.h"

#include <string.h>

enum {
    SCORE_VECTORS = LANES == 16 ? 4 : 2, /* of a row of scores held in registers, for 4 rows */
    T = CONTRAST_TILE,
    K = CONTRAST_DIMS,
    ROW = K / LANES,    /* vectors of a row */
    PULL_ROWS = 8 / ROW /* rows whose sums fill 8 registers */
};

#define UNROLL _Pragma("GCC unroll 16")

/* 2^x for x <= 127, relative error 1e-7; exactly 0 for x <= -64, where it no longer counts beside
 * the largest, and where products with it would be denormal and slow; what is not a number stays
 * so. Adding 1.5 * 2^23 leaves round(x) in the low bits; the polynomial is fitted to 2^f over |f|
 * <= 1/2 for the least relative error. */
INLINE vec exp2_vec(vec x)
{
    const vec magic = vec_all(12582912.0f);
    vec n = x + magic, f = x - (n - magic);
    vec p = vec_all(0.0013264727252400715f);
    p = vec_madd(p, f, vec_all(0.009671512785776853f));
    p = vec_madd(p, f, vec_all(0.055507337444717086f));
    p = vec_madd(p, f, vec_all(0.24022242083111767f));
    p = vec_madd(p, f, vec_all(0.6931469775976766f));
    p = vec_madd(p, f, vec_all(1.0f));
    return (vec)(((uvec)p + ((uvec)n << 23)) & ~(uvec)(x <= vec_all(-64.0f)));
}

static float sum_lanes(vec x)
{
    float s[LANES];
    memcpy(s, &x, sizeof s);
    for (int half = LANES / 2; half >= 1; half /= 2)
        for (int l = 0; l < half; l++)
            s[l] += s[l + half];
    return s[0];
}

/* ---- scores --------------------------------------------------------------------------------- */

/* The pairs of tile (i0, j0) that do not count. */
static void hide_pairs(float *score, int i0, int j0, int count)
{
    const float never = -1e30f;
    for (int r = 0; i0 == j0 && r < T; r++)
        score[r * T + r] = never;
    for (int r = 0; r < T; r++)
        for (int c = i0 + r < count ? (count > j0 ? count - j0 : 0) : 0; c < T; c++)
            score[r * T + c] = never;
}

INLINE void score_block(float *score, const float *rows, const float *panel)
{
    vec sum[4][SCORE_VECTORS] = {{{0}}};
    for (int k = 0; k < K; k++) {
        UNROLL
        for (int r = 0; r < 4; r++)
            UNROLL
        for (int v = 0; v < SCORE_VECTORS; v++)
            sum[r][v] =
                vec_madd(vec_all(rows[r * K + k]), *(const vec *)(panel + k * T + v * LANES), sum[r][v]);
    }
    for (int r = 0; r < 4; r++)
        for (int v = 0; v < SCORE_VECTORS; v++)
            *(vec *)(score + r * T + v * LANES) = sum[r][v];
}

static void score_tile(float *score, const struct contrast_work *w, int i0, int j0)
{
    const float *panel = w->panels + (size_t)j0 * K, *rows = w->rows + (size_t)i0 * K;
    for (int r = 0; r < T; r += 4)
        for (int c = 0; c < T; c += LANES * SCORE_VECTORS)
            score_block(score + r * T + c, rows + r * K, panel + c);
    if (i0 == j0 || i0 + T > w->count || j0 + T > w->count)
        hide_pairs(score, i0, j0, w->count);
}

/* Calls f for every tile of the range, each pair of rows once. */
typedef void tile_function(const struct contrast_work *w, float *score, int i0, int j0);
INLINE void each_tile(const struct contrast_work *w, int i0, int i1, int j0, int j1, tile_function *f)
{
    _Alignas(64) float score[T * T];
    for (int i = i0; i < i1; i += T)
        for (int j = i0 == j0 ? i : j0; j < j1; j += T) {
            score_tile(score, w, i, j);
            f(w, score, i, j);
        }
}

/* ---- pass 0: the largest score of each row, kept in shift ----------------------------------- */

static void largest_tile(const struct contrast_work *w, float *score, int i0, int j0)
{
    for (int r = 0; r < T; r++) {
        vec most = vec_all(w->shift[i0 + r]);
        for (int c = 0; c < T; c += LANES) {
            vec s = *(const vec *)(score + r * T + c), *side = (vec *)(w->shift + j0 + c);
            most = vec_max(most, s);
            if (i0 != j0)
                *side = vec_max(*side, s);
        }
        float m = w->shift[i0 + r];
        for (int l = 0; l < LANES; l++)
            m = most[l] > m ? most[l] : m;
        w->shift[i0 + r] = m;
    }
}

/* ---- pass 1: Z ------------------------------------------------------------------------------ */

/* side: 0 the rows' sums only, 1 both of one exponential, 2 the columns' only. */
INLINE void sum_side(const struct contrast_work *w, const float *score, int i0, int j0, int side)
{
    vec column[T / LANES] = {{0}};
    for (int r = 0; r < T; r++) {
        vec row = vec_all(0.0f);
        UNROLL
        for (int v = 0; v < T / LANES; v++) {
            vec shift = vec_all(w->shift[i0 + r]);
            if (side == 2)
                shift = *(const vec *)(w->shift + j0 + v * LANES);
            vec e = exp2_vec(*(const vec *)(score + r * T + v * LANES) - shift);
            row += e;
            if (side)
                column[v] += e;
        }
        if (side != 2)
            w->sum[i0 + r] += (double)sum_lanes(row);
    }
    for (int c = 0; side && c < T; c++)
        w->sum[j0 + c] += (double)column[c / LANES][c % LANES];
}

static void sum_tile(const struct contrast_work *w, float *score, int i0, int j0)
{
    if (i0 == j0) {
        sum_side(w, score, i0, j0, 0);
    } else if (w->one_shift) {
        sum_side(w, score, i0, j0, 1);
    } else {
        sum_side(w, score, i0, j0, 0);
        sum_side(w, score, i0, j0, 2);
    }
}

/* ---- pass 2: pull --------------------------------------------------------------------------- */

/* Scores to weights: 2^(s - shift_i) share_i + 2^(s - shift_j) share_j. */
INLINE void weigh(const struct contrast_work *w, float *score, int i0, int j0, int one_shift)
{
    for (int r = 0; r < T; r++) {
        vec shift_i = vec_all(w->shift[i0 + r]), share_i = vec_all(w->share[i0 + r]);
        UNROLL
        for (int v = 0; v < T / LANES; v++) {
            vec *s = (vec *)(score + r * T + v * LANES);
            vec share_j = *(const vec *)(w->share + j0 + v * LANES);
            vec e = exp2_vec(*s - shift_i);
            if (one_shift)
                *s = e * (share_i + share_j);
            else
                *s = vec_madd(e, share_i, share_j * exp2_vec(*s - *(const vec *)(w->shift + j0 + v * LANES)));
        }
    }
}

/* out(a) += sum over b of weight[a * step_a + b * step_b] * rows(b). */
INLINE void add_products(float *out, const float *weight, int step_a, int step_b, const float *rows)
{
    for (int a = 0; a < T; a += PULL_ROWS) {
        vec sum[PULL_ROWS][ROW] = {{{0}}};
        for (int b = 0; b < T; b++) {
            UNROLL
            for (int r = 0; r < PULL_ROWS; r++)
                UNROLL
            for (int v = 0; v < ROW; v++)
                sum[r][v] = vec_madd(vec_all(weight[(a + r) * step_a + b * step_b]),
                                     *(const vec *)(rows + b * K + v * LANES), sum[r][v]);
        }
        for (int r = 0; r < PULL_ROWS; r++)
            for (int v = 0; v < ROW; v++)
                *(vec *)(out + (a + r) * K + v * LANES) += sum[r][v];
    }
}

static void pull_tile(const struct contrast_work *w, float *score, int i0, int j0)
{
    if (w->one_shift)
        weigh(w, score, i0, j0, 1);
    else
        weigh(w, score, i0, j0, 0);
    add_products(w->pull + (size_t)i0 * K, score, T, 1, w->rows + (size_t)j0 * K);
    if (i0 != j0)
        add_products(w->pull + (size_t)j0 * K, score, 1, T, w->rows + (size_t)i0 * K);
}

static void largest_range(const struct contrast_work *w, int i0, int i1, int j0, int j1)
{
    each_tile(w, i0, i1, j0, j1, largest_tile);
}

static void sums_range(const struct contrast_work *w, int i0, int i1, int j0, int j1)
{
    each_tile(w, i0, i1, j0, j1, sum_tile);
}

static void pull_range(const struct contrast_work *w, int i0, int i1, int j0, int j1)
{
    each_tile(w, i0, i1, j0, j1, pull_tile);
}

extern const struct contrast_ops ISA(contrast_ops);
const struct contrast_ops ISA(contrast_ops) = {
    .largest = largest_range,
    .sums = sums_range,
    .pull = pull_range,
};
