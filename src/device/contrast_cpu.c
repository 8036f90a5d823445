/* contrast_cpu.c - the tournament of contrast.h on a pool of threads.
 *
 *     rows -> padded copy and panels -> [largest scores] -> Z -> shares -> pull
 *
 * Scores are powers of two, b(i,j) = row(i).row(j) log2(e) / tau. By Cauchy and Schwarz |b| is at
 * most B = largest |row|^2 log2(e) / tau. If that leaves all of them within 2^60 of each other, B
 * is taken off every score, and one exponential serves row and column (unit rows: tau >= 0.049).
 * Otherwise, a tiny temperature or the long rows of the published layout, a pass more finds the
 * largest score of every row and each side has an exponential of its own.
 */
#include "device/contrast.h"

#include <math.h>
#include <string.h>

#include "device/cpu.h"
#include "device/isa/levels.h"

/* Twice this stays above -64, where the tiles' exponential ends. */
static const double one_shift_limit = 30;
static const double log2_e = 1.4426950408889634;

static size_t padded_rows(int count)
{
    return ((size_t)count + CONTRAST_TILE - 1) / CONTRAST_TILE * CONTRAST_TILE;
}

size_t contrast_scratch(int count)
{
    size_t row = 3 * CONTRAST_DIMS * sizeof(float) + 2 * sizeof(float) + sizeof(double);
    return padded_rows(count) * row;
}

/* ---- the tournament ------------------------------------------------------------------------- */

typedef void range_function(const struct contrast_work *w, int i0, int i1, int j0, int j1);

struct tournament {
    const struct contrast_work *work;
    range_function *play;
    int padded, strip, strips;
    int round; /* 0: every strip against itself */
};

/* The circle method for n players, n even: the last one stays, the others turn around a table;
 * pair 0 is the one who stays with the one opposite, pair k those k seats to the left and right of
 * him. */
static void pair_of_round(int *a, int *b, int n, int round, int k)
{
    int seats = n - 1;
    *a = k == 0 ? seats : (round + k) % seats;
    *b = (round + seats - k) % seats;
}

static void play_pair(void *arg, int64_t item)
{
    const struct tournament *t = arg;
    int a = (int)item, b = a;
    if (t->round > 0)
        pair_of_round(&a, &b, t->strips + t->strips % 2, t->round, (int)item);
    if (a >= t->strips || b >= t->strips) /* odd number of strips: one of them rests */
        return;
    int a1 = (a + 1) * t->strip, b1 = (b + 1) * t->strip;
    t->play(t->work, a * t->strip, a1 < t->padded ? a1 : t->padded, b * t->strip,
            b1 < t->padded ? b1 : t->padded);
}

static void play_all(struct pool *pool, const struct contrast_work *w, range_function *play)
{
    int tiles = (int)(padded_rows(w->count) / CONTRAST_TILE);
    int per_strip = (tiles + CONTRAST_STRIPS - 1) / CONTRAST_STRIPS;
    struct tournament t = {
        w, play, tiles * CONTRAST_TILE, per_strip * CONTRAST_TILE, (tiles + per_strip - 1) / per_strip, 0};
    pool_run(pool, t.strips, play_pair, &t);
    int n = t.strips + t.strips % 2;
    for (t.round = 1; t.round < n && t.strips > 1; t.round++)
        pool_run(pool, n / 2, play_pair, &t);
}

/* ---- before, between and after the passes --------------------------------------------------- */

struct buffers {
    float *rows, *panels;
    struct contrast_work work;
};

static struct buffers cut_scratch(const struct contrast *c)
{
    size_t n = padded_rows(c->count);
    double *sum = c->scratch;
    float *rows = (float *)(sum + n), *panels = rows + n * CONTRAST_DIMS;
    float *pull = panels + n * CONTRAST_DIMS, *shift = pull + n * CONTRAST_DIMS, *share = shift + n;
    struct buffers b = {rows, panels, {c->count, 0, rows, panels, shift, share, sum, pull}};
    memset(c->scratch, 0, contrast_scratch(c->count));
    return b;
}

/* Copies and transposes the rows; returns the largest square of a length. */
static double fill_rows(const struct buffers *b, const struct contrast *c)
{
    const int T = CONTRAST_TILE, K = CONTRAST_DIMS;
    float scale = (float)(log2_e / (double)c->tau);
    double most = 0;
    memcpy(b->rows, c->rows, (size_t)c->count * CONTRAST_DIMS * sizeof(float));
    for (int i = 0; i < c->count; i++) {
        float *panel = b->panels + (size_t)(i / T) * (size_t)(T * K) + i % T;
        double square = 0;
        for (int k = 0; k < K; k++) {
            float x = c->rows[(size_t)i * CONTRAST_DIMS + (size_t)k];
            panel[k * T] = x * scale;
            square += (double)x * (double)x;
        }
        most = square > most || isnan(square) ? square : most;
    }
    return most;
}

/* Z is known: log_sum, and what pull multiplies its exponentials by. */
static void share_out(const struct buffers *b, const struct contrast *c)
{
    const struct contrast_work *w = &b->work;
    for (int i = 0; i < c->count; i++) {
        double bits = (double)w->shift[i] + log2(w->sum[i]);
        c->log_sum[i] = (float)(bits / log2_e);
        w->share[i] = (float)((double)c->anchor[i] / w->sum[i]);
    }
}

/* The whole, on this pool with these tiles. */
static void run(struct pool *pool, const struct contrast_ops *ops, const struct contrast *c)
{
    struct buffers b = cut_scratch(c);
    double bound = fill_rows(&b, c) * log2_e / (double)c->tau;
    b.work.one_shift = bound <= one_shift_limit;
    for (size_t i = 0; i < padded_rows(c->count); i++)
        b.work.shift[i] = b.work.one_shift ? (float)bound : -1e30f;
    if (!b.work.one_shift)
        play_all(pool, &b.work, ops->largest);
    play_all(pool, &b.work, ops->sums);
    share_out(&b, c);
    play_all(pool, &b.work, ops->pull);
    memcpy(c->pull, b.work.pull, (size_t)c->count * CONTRAST_DIMS * sizeof(float));
}

void cpu_contrast(struct device *dev, const struct contrast *c)
{
    if (!dev->error.code)
        run(dev->pool, cpu_isa(dev)->contrast, c);
}
