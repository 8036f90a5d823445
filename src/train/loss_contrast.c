/* loss_contrast.c - boundary-aware contrastive learning: which voxels, and the loss between them.
 *
 *     label patch -> near-boundary voxels -> at most `cap` of them -> rows of the projection there
 *     -> unit vectors g -> sum over anchors i of
 *
 *            ln sum_{o != i} exp(g_i.g_o / tau)  -  mean over positives p of g_i.g_p / tau
 *
 * Positives of i are all other points of its class, n - 1 of them, so the second term and its
 * gradient need only the class sums S: mean = g_i.(S - g_i) / (tau (n - 1)). What is left of the
 * pairs is the device's (contrast.h). A point alone in its class is no anchor, but others are
 * compared with it.
 *
 * In the published code the unit vectors are gathered with a mask from a channel-first tensor,
 * which lists channel 0 of all points, then channel 1, and the list is read as rows of 16: rows
 * that mix points and are not of unit length. BCL_OFFICIAL does the same, for reproduction.
 */
#include <string.h>

#include "base/rng.h"
#include "device/contrast.h"
#include "device/kernels.h"
#include "train/loss_scratch.h"
#include "train/settings.h"

/* ---- near-boundary voxels ------------------------------------------------------------------- */

enum { SPAN = 256 }; /* voxels of a row looked at together */

/* A walk over a label patch in raster order, span by span. */
struct border_walk {
    const uint8_t *label;
    const int *dims;
    int rule;
    int64_t at;         /* flat index of the span */
    int n;              /* its voxels, all of one row; 0 at the end */
    uint8_t near[SPAN]; /* 1: takes part */
};

static int clamp(int x, int n)
{
    return x < 0 ? 0 : x >= n ? n - 1 : x;
}

/* near |= voxels x0.. whose label differs from the one `dx` beside it in another row. */
static void mark_differing(struct border_walk *b, const uint8_t *own, const uint8_t *other, int x0,
                           int dx)
{
    int w = b->dims[2], first = x0 + dx < 0, last = x0 + b->n - 1 + dx >= w;
    for (int i = first; i < b->n - last; i++)
        b->near[i] |= own[x0 + i] != other[x0 + dx + i];
    if (first) /* beyond the edge lies the edge */
        b->near[0] |= own[x0] != other[0];
    if (last)
        b->near[b->n - 1] |= own[x0 + b->n - 1] != other[w - 1];
}

/* The row dz, dy beside the walk's own; outside the patch the edge is repeated. */
static const uint8_t *row_beside(const struct border_walk *b, int dz, int dy)
{
    int64_t row = b->at / b->dims[2];
    int y = clamp((int)(row % b->dims[1]) + dy, b->dims[1]);
    int z = clamp((int)(row / b->dims[1]) + dz, b->dims[0]);
    return b->label + ((int64_t)z * b->dims[1] + y) * b->dims[2];
}

/* 1 if all rows around hold one label along the span and a voxel beyond both ends: the usual
 * case. */
static int span_is_flat(const struct border_walk *b, int x0, int far)
{
    int w = b->dims[2], lo = x0 > 0 ? x0 - 1 : 0, hi = x0 + b->n < w ? x0 + b->n + 1 : w;
    const uint8_t *own = row_beside(b, 0, 0) + lo;
    size_t n = (size_t)(hi - lo);
    int flat = memcmp(own, own + 1, n - 1) == 0;
    for (int dz = -1; flat && dz <= far; dz++)
        for (int dy = -1; flat && dy <= far; dy++)
            flat = memcmp(own, row_beside(b, dz, dy) + lo, n) == 0;
    return flat;
}

/* Marks the span: the neighbourhood is centred, 3x3x3, or (official) the 2x2x2 cube whose far
 * corner the voxel is. */
static void mark_span(struct border_walk *b)
{
    int x0 = (int)(b->at % b->dims[2]), far = b->rule == NB_OFFICIAL ? 0 : 1;
    const uint8_t *own = row_beside(b, 0, 0);
    memset(b->near, 0, sizeof b->near);
    if (span_is_flat(b, x0, far))
        return;
    for (int dz = -1; dz <= far; dz++)
        for (int dy = -1; dy <= far; dy++)
            for (int dx = -1; dx <= far; dx++)
                mark_differing(b, own, row_beside(b, dz, dy), x0, dx);
    for (int i = 0; b->rule == NB_BG_RING && i < b->n; i++)
        b->near[i] &= own[x0 + i] == 0;
}

static int next_span(struct border_walk *b)
{
    int64_t voxels = (int64_t)b->dims[0] * b->dims[1] * b->dims[2];
    b->at += b->n;
    if (b->at >= voxels)
        return 0;
    int64_t left = b->dims[2] - b->at % b->dims[2];
    b->n = left < SPAN ? (int)left : SPAN;
    mark_span(b);
    return 1;
}

/* Selection sampling: of `total` voxels that may be taken, the next is with probability needed /
 * left. */
int boundary_points(int64_t *points, const uint8_t *label, const int dims[3], int rule, int cap,
                    uint64_t seed, uint64_t step, uint32_t item)
{
    struct border_walk count = {.label = label, .dims = dims, .rule = rule}, pick = count;
    uint32_t left = 0;
    while (next_span(&count))
        for (int i = 0; i < count.n; i++)
            left += count.near[i];
    uint32_t needed = cap < 0 ? 0 : (uint32_t)cap < left ? (uint32_t)cap : left;
    struct rng r = rng_start(seed, step, RNG_POINTS, item);
    int taken = 0;
    while (needed > 0 && next_span(&pick))
        for (int i = 0; i < pick.n; i++) {
            if (!pick.near[i])
                continue;
            if (needed == left || rng_below(&r, left) < needed) {
                points[taken++] = pick.at + i;
                needed--;
            }
            left--;
        }
    return taken;
}

/* ---- rows ----------------------------------------------------------------------------------- */

void gather_rows(struct device *dev, float *out, const struct tensor *from, const int64_t *points,
                 int count)
{
    RUN(dev, gather_rows, count, .rows = out, .from = from->data, .at = points, .c = from->c);
}

void scatter_rows(struct device *dev, const struct tensor *to, const float *rows,
                  const int64_t *points, int count)
{
    RUN(dev, scatter_rows, count, .to = to->data, .rows = rows, .at = points, .c = to->c);
}

/* ---- the loss ------------------------------------------------------------------------------- */

/* Number and sum of the rows of every class into s->table; returns how many anchors there are. */
static double class_table(struct device *dev, struct loss_scratch *s, const uint8_t *label,
                          int count)
{
    double sums[K_GROUP * K_ORDER_1], anchors = 0;
    CHECK(s->table_count >= (size_t)s->classes * K_ORDER_1);
    for (int first = 0; first < s->classes; first += K_GROUP) {
        int group = s->classes - first < K_GROUP ? s->classes - first : K_GROUP;
        REDUCE(dev, class_moments, count, group * K_ORDER_1, sums, .rows = s->rows, .label = label,
               .first = first, .classes = group, .order = 1);
        for (int i = 0; i < group * K_ORDER_1; i++)
            s->host[first * K_ORDER_1 + i] = (float)sums[i];
        for (int c = 0; c < group; c++)
            anchors += sums[c * K_ORDER_1] > 1 ? sums[c * K_ORDER_1] : 0;
    }
    dev->ops->upload(dev, s->table, s->host, (size_t)s->classes * K_ORDER_1 * sizeof *s->host);
    return anchors;
}

double loss_contrast(struct device *dev, struct loss_scratch *s, const float *g,
                     const uint8_t *label, int count, int dims, double tau, int layout, int reduce,
                     double weight, float *dg)
{
    CHECK(count <= s->points && dims >= 1 && dims <= CONTRAST_DIMS && tau > 0);
    if (count < 2)
        return 0;
    int official = layout == BCL_OFFICIAL;
    float t = (float)tau;
    dev->ops->zero(dev, s->rows, (size_t)count * CONTRAST_DIMS * sizeof *s->rows);
    RUN(dev, unit_rows, count, .rows = s->rows, .g = g, .count = count, .dims = dims,
        .official = official);
    double anchors = class_table(dev, s, label, count), sum = 0;
    if (anchors <= 0)
        return 0;
    RUN(dev, contrast_anchors, count, .anchor = s->anchor, .label = label, .table = s->table);
    struct contrast pairs = {count, t, s->rows, s->anchor, s->log_sum, s->pull, s->contrast};
    dev->ops->contrast(dev, &pairs);
    REDUCE(dev, contrast_value, count, 1, &sum, .rows = s->rows, .log_sum = s->log_sum,
           .label = label, .table = s->table, .tau = t);
    double share = reduce == BCL_SUM ? 1 : 1 / anchors;
    if (dg && weight != 0) {
        RUN(dev, contrast_pull, count, .pull = s->pull, .rows = s->rows, .label = label,
            .table = s->table, .tau = t);
        RUN(dev, unit_rows_back, count, .dg = dg, .g = g, .rows = s->rows, .drows = s->pull,
            .count = count, .dims = dims, .official = official, .scale = (float)(weight * share));
    }
    return sum * share;
}
