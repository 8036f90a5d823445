/* norm_cpu.c - norm.h on a pool of threads: cut items into pieces, sum each, add the sums in order.
 */
#include "device/norm.h"

#include <string.h>

#include "device/cpu.h"
#include "device/isa/levels.h"

enum { PIECE_ELEMENTS = 32768 }; /* least size of a piece: some microseconds, much more than a hand-out */

size_t norm_sums_count(int n, int c)
{
    return 2 * (size_t)n * (size_t)c * (1 + NORM_PIECES);
}

static int norm_pieces(int64_t voxels, int c)
{
    int64_t pieces = voxels * c / PIECE_ELEMENTS;
    return pieces < 1 ? 1 : pieces > NORM_PIECES ? NORM_PIECES : (int)pieces;
}

struct norm_work {
    const struct norm_ops *ops;
    const struct tensor *g;
    const struct conv_source *y;
    const float *mean;
    double *partial; /* (items, pieces, 2, c) */
    int64_t voxels;  /* of an item */
    int pieces;
};

static void sum_piece(void *arg, int64_t at)
{
    const struct norm_work *w = arg;
    int c = w->g->c;
    int64_t item = at / w->pieces, piece = at % w->pieces;
    int64_t from = w->voxels * piece / w->pieces, to = w->voxels * (piece + 1) / w->pieces;
    int64_t first = (item * w->voxels + from) * c;
    struct conv_source y = *w->y;
    y.y.data = (char *)y.y.data + first * (int64_t)value_bytes(y.y.type);
    if (y.scale) {
        y.scale += item * c;
        y.shift += item * c;
    }
    const char *g = (const char *)w->g->data + first * (int64_t)value_bytes(w->g->type);
    w->ops->sums(w->partial + at * 2 * c, g, w->g->type, &y, w->mean, to - from, c);
}

void cpu_norm_sums(struct device *dev, const struct tensor *g, const struct conv_source *y, const float *mean,
                   double *sums)
{
    int64_t voxels = (int64_t)g->d * g->h * g->w, c = g->c, nc = g->n * c;
    struct norm_work w = {.ops = cpu_isa(dev)->norm,
                          .g = g,
                          .y = y,
                          .mean = mean,
                          .voxels = voxels,
                          .pieces = norm_pieces(voxels, g->c),
                          .partial = sums + 2 * nc};
    if (dev->error.code != ERR_NONE)
        return;
    pool_run(dev->pool, (int64_t)g->n * w.pieces, sum_piece, &w);
    memset(sums, 0, 2 * (size_t)nc * sizeof *sums);
    for (int64_t item = 0; item < g->n; item++)
        for (int64_t k = 0; k < w.pieces; k++) {
            const double *part = w.partial + (item * w.pieces + k) * 2 * c;
            for (int64_t j = 0; j < c; j++) {
                sums[item * c + j] += part[j];
                sums[nc + item * c + j] += part[c + j];
            }
        }
}

struct join_work {
    const struct norm_ops *ops;
    const struct tensor *to, *g;
    const struct conv_source *y;
    int64_t count;
};

static void join_piece(void *arg, int64_t at)
{
    const struct join_work *w = arg;
    int64_t i0 = at * PIECE_ELEMENTS, left = w->count - i0;
    const char *g = (const char *)w->g->data + i0 * (int64_t)value_bytes(w->g->type);
    const char *y = (const char *)w->y->y.data + i0 * (int64_t)value_bytes(w->y->y.type);
    w->ops->join((float *)w->to->data + i0, g, w->g->type, y, w->y->y.type, w->y->relu,
                 left < PIECE_ELEMENTS ? left : PIECE_ELEMENTS);
}

void cpu_grad_join(struct device *dev, const struct tensor *to, const struct tensor *g,
                   const struct conv_source *y)
{
    struct join_work w = {cpu_isa(dev)->norm, to, g, y, tensor_count(to)};
    if (dev->error.code != ERR_NONE)
        return;
    CHECK(to->type == VALUE_F32 && !y->scale);
    pool_run(dev->pool, (w.count + PIECE_ELEMENTS - 1) / PIECE_ELEMENTS, join_piece, &w);
}
