/* conv_store.c - from the sums of a product to the tensor they belong to: bias, rounding, adding, and on the
 * way what batch norm wants to know of them, its moments forward and its two sums backward.
 *
 * A product's positions are those of the block's grid; lines of it become lines of voxels, or every second
 * voxel of two lines of the fine grid (CONV_UP, dx of CONV_DOWN).
 */
#include <string.h>

#include "device/conv_int.h"

/* Tensors from here on are written past the caches: nobody will find them there when they are read, and
 * what they would push out is of use. It also saves the reading of what is then overwritten. */
enum { STREAM_BYTES = 4 << 20 };

struct target conv_target(const struct tensor *t)
{
    int64_t bytes = t ? tensor_count(t) * (int64_t)value_bytes(t->type) : 0;
    return (struct target){.t = t, .stream = bytes >= STREAM_BYTES};
}

struct sums conv_sums_start(const struct conv *v, char *scratch, const struct product *p)
{
    int room = table_room(p->c);
    struct sums s = {.sum = (double *)(void *)(scratch + v->at.sums)};
    s.square = s.sum + room;
    s.shift = (float *)(void *)(s.square + room);
    memset(s.sum, 0, 2 * (size_t)room * sizeof *s.sum);
    return s;
}

/* The first results are near enough to the mean. */
static void sums_shift(struct sums *s, const struct target *to, const float *row, int first, int n, int c)
{
    for (int j = 0; j < table_room(c); j++) {
        int at = j % c - first;
        s->shift[j] = at >= 0 && at < n ? row[at] + (to->bias ? to->bias[j] : 0) : 0;
    }
    s->started = 1;
}

/* From channel `first` on, y from element `at` on. */
static struct row_norm norm_at(const struct target *to, const struct sums *sums, int item, int64_t at,
                               int first)
{
    int64_t room = table_room(to->t->c), table = item * room + first;
    double *sum = sums->sum + 2 * item * room + first;
    return (struct row_norm){.y = (const char *)to->y.y + at * (int64_t)value_bytes(to->y.type),
                             .scale = to->y.scale + table,
                             .shift = to->y.shift + table,
                             .mean = to->mean + first,
                             .floor = to->y.floor,
                             .sum = sum,
                             .product = sum + room};
}

/* `len` results of `chunk` channels from channel `first` on: to voxels, or pairs of voxels, side by side.
 * Rows that are joined on both sides become rows of a whole number of vectors. */
static void write_voxels(const struct results *s, int item, int64_t voxel, int64_t stride, const float *from,
                         int64_t len, int first, int chunk)
{
    const struct target *to = s->to;
    struct sums *sums = s->sums;
    int64_t ldc = s->n;
    int c = to->t->c, period = row_period(c), joined = stride == c && chunk == c && ldc == c;
    int64_t rows = joined ? len * c / period : len, rest = joined ? len * c % period : 0;
    int64_t bytes = (int64_t)value_bytes(to->t->type), begin = voxel * c + first;
    struct row_store how = {
        .bias = to->bias ? to->bias + first : NULL, .accumulate = to->accumulate, .stream = to->stream};
    struct row_norm norm;
    char *at = (char *)to->t->data + begin * bytes;
    if (to->mean) {
        norm = norm_at(to, sums, item, begin, first);
        how.norm = &norm;
    }
    if (to->moments) {
        if (!sums->started)
            sums_shift(sums, to, from, first, chunk, c);
        how.shift = sums->shift + first;
        how.sum = sums->sum + first;
        how.square = sums->square + first;
    }
    if (joined)
        stride = ldc = chunk = period;
    s->v->rows->store(at, to->t->type, stride, from, ldc, rows, chunk, &how);
    if (rest && to->mean)
        norm = norm_at(to, sums, item, begin + rows * period, first);
    if (rest)
        s->v->rows->store(at + rows * period * bytes, to->t->type, rest, from + rows * period, rest, 1,
                          (int)rest, &how);
}

/* Part [x0, x1) of line r of plane p. */
static void write_line(const struct results *s, const struct place *at, int64_t m, int64_t x0, int64_t x1)
{
    const float *from = s->c + (m + x0 - s->first) * s->n;
    int c = s->p->c;
    if (!s->p->scatter) {
        write_voxels(s, at->item, at->voxel + x0, c, from, x1 - x0, s->column, s->n);
        return;
    }
    for (int j = 0, width; j < s->n; j += width) { /* two fine voxels lie side by side */
        int t = (s->column + j) / c;
        width = t % 2 == 0 && j + 2 * c <= s->n ? 2 * c : c;
        write_voxels(s, at->item, conv_fine_voxel(s->v, at, s->b, t) + 2 * x0, 2 * c, from + j, x1 - x0, 0,
                     width);
    }
}

void conv_store(const struct results *s)
{
    const struct block *b = s->b;
    struct grid g = conv_grid(&s->p->a, b);
    struct place at;
    for (int p = (int)(s->first / g.plane); p < b->planes && p * g.plane < s->end; p++)
        for (int r = 0; r < b->rows; r++) {
            int64_t m = p * g.plane + r * g.row;
            int64_t x0 = s->first > m ? s->first - m : 0, x1 = s->end - m < b->len ? s->end - m : b->len;
            if (x0 < x1 && conv_locate(&at, s->v, b, p, r))
                write_line(s, &at, m, x0, x1);
        }
}
