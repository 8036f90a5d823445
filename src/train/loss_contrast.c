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
#include "train/loss_scratch.h"
#include "train/settings.h"

/* ---- near-boundary voxels ------------------------------------------------------------------- */

static int clamp(int x, int n)
{
    return x < 0 ? 0 : x >= n ? n - 1 : x;
}

/* near |= voxels of a row of w whose label differs from the one `dx` beside it in another row. */
static void mark_differing(uint8_t *near, const uint8_t *own, const uint8_t *other, int w, int dx)
{
    int first = dx<0, last = dx> 0;
    for (int i = first; i < w - last; i++)
        near[i] |= own[i] != other[i + dx];
    if (first) /* beyond the edge lies the edge */
        near[0] |= own[0] != other[0];
    if (last)
        near[w - 1] |= own[w - 1] != other[w - 1];
}

/* A row; outside the patch the edge is repeated. */
static const uint8_t *row_at(const struct boundary *b, int z, int y)
{
    int64_t row = (int64_t)clamp(z, b->dims[0]) * b->dims[1] + clamp(y, b->dims[1]);
    return b->label + row * b->dims[2];
}

/* 1 if the row and all around it hold one label: the usual case. */
static int row_is_flat(const struct boundary *b, int z, int y, int far)
{
    const uint8_t *own = row_at(b, z, y);
    size_t w = (size_t)b->dims[2];
    int flat = memcmp(own, own + 1, w - 1) == 0;
    for (int dz = -1; flat && dz <= far; dz++)
        for (int dy = -1; flat && dy <= far; dy++)
            flat = memcmp(own, row_at(b, z + dz, y + dy), w) == 0;
    return flat;
}

/* Marks plane z: the neighbourhood is centred, 3x3x3, or (official) the 2x2x2 cube whose far corner the
 * voxel is. */
static void mark_plane(void *arg, int64_t z)
{
    const struct boundary *b = arg;
    int far = b->rule == NB_OFFICIAL ? 0 : 1, w = b->dims[2];
    uint8_t *near = b->near + z * b->dims[1] * w;
    memset(near, 0, (size_t)b->dims[1] * (size_t)w);
    for (int y = 0; y < b->dims[1]; y++, near += w) {
        const uint8_t *own = row_at(b, (int)z, y);
        if (row_is_flat(b, (int)z, y, far))
            continue;
        for (int dz = -1; dz <= far; dz++)
            for (int dy = -1; dy <= far; dy++)
                for (int dx = -1; dx <= far; dx++)
                    mark_differing(near, own, row_at(b, (int)z + dz, y + dy), w, dx);
        for (int i = 0; b->rule == NB_BG_RING && i < w; i++)
            near[i] &= own[i] == 0;
    }
}

/* The next marked voxel from `at` on, or `voxels`; eight at a time where there are none. */
static int64_t next_near(const uint8_t *near, int64_t at, int64_t voxels)
{
    uint64_t eight;
    for (; at < voxels && !near[at]; at++)
        for (; at + 9 <= voxels; at += 8) {
            memcpy(&eight, near + at + 1, sizeof eight);
            if (eight != 0)
                break;
        }
    return at;
}

/* Selection sampling: of `left` voxels that may be taken, the next is with probability needed / left. */
int boundary_points(int64_t *points, struct boundary *b, struct pool *pool)
{
    int64_t voxels = (int64_t)b->dims[0] * b->dims[1] * b->dims[2];
    uint32_t left = 0;
    int taken = 0;
    pool_run(pool, b->dims[0], mark_plane, b);
    for (int64_t v = 0; v < voxels; v++)
        left += b->near[v];
    uint32_t needed = b->cap < 0 ? 0 : (uint32_t)b->cap < left ? (uint32_t)b->cap : left;
    struct rng r = rng_start(b->seed, b->step, RNG_POINTS, b->item);
    for (int64_t v = 0; needed > 0; v++, left--) {
        v = next_near(b->near, v, voxels);
        if (needed == left || rng_below(&r, left) < needed) {
            points[taken++] = v;
            needed--;
        }
    }
    return taken;
}

/* ---- rows ----------------------------------------------------------------------------------- */

void gather_rows(struct device *dev, float *out, const struct tensor *from, const int64_t *points, int count)
{
    RUN(dev, gather_rows, (int64_t)count * from->c, .rows = out, .from = from->data, .at = points,
        .c = from->c);
}

void fold_rows(struct device *dev, float *out, const float *rows, int count, int repeated, int c)
{
    RUN(dev, fold, (int64_t)count * c, .to = out, .from = rows, .period = (int64_t)count * c,
        .total = (int64_t)repeated * c);
}

/* ---- the loss ------------------------------------------------------------------------------- */

/* Number and sum of the rows of every class into s->table, the factor of the gradient behind them; the sums
 * themselves are left at `sums`. */
static void class_table(struct loss_scratch *s, double *sums, const uint8_t *label, int count, int mean,
                        double weight)
{
    CHECK(s->table_count > (size_t)s->classes * K_ORDER_1);
    for (int first = 0; first < s->classes; first += K_GROUP) {
        int group = s->classes - first < K_GROUP ? s->classes - first : K_GROUP;
        SUM(s->dev, class_moments, count, group * K_ORDER_1, sums + first * K_ORDER_1, .rows = s->rows,
            .label = label, .first = first, .classes = group, .order = 1);
    }
    RUN(s->dev, contrast_table, s->classes, .sums = sums, .table = s->table,
        .scale = s->table + s->classes * K_ORDER_1, .classes = s->classes, .mean = mean, .weight = weight);
}

static void contrast_settle(struct loss_scratch *s, const struct pending *p, const double *sums)
{
    double anchors = k_anchors(sums, s->classes), sum = sums[s->classes * K_ORDER_1];
    if (anchors > 0)
        *p->value += sum * (p->of.contrast.mean ? 1 / anchors : 1);
}

void ask_contrast(struct loss_scratch *s, const struct contrast_points *of, double weight, float *dg,
                  double *value)
{
    CHECK(of->count <= s->points && of->dims >= 1 && of->dims <= CONTRAST_DIMS && of->tau > 0);
    struct device *dev = s->dev;
    const uint8_t *label = of->label;
    int official = of->layout == BCL_OFFICIAL, n_sums = s->classes * K_ORDER_1 + 1, count = of->count;
    float t = (float)of->tau;
    *value = 0;
    if (count < 2)
        return;
    struct pending *p = loss_ask(s, (size_t)n_sums, value);
    p->settle = contrast_settle;
    p->of.contrast.mean = of->reduce != BCL_SUM;
    double *sums = s->found + p->first;
    dev->ops->zero(dev, s->rows, (size_t)count * CONTRAST_DIMS * sizeof *s->rows);
    RUN(dev, unit_rows, count, .rows = s->rows, .g = of->g, .count = count, .dims = of->dims,
        .official = official);
    class_table(s, sums, label, count, p->of.contrast.mean, weight);
    RUN(dev, contrast_anchors, count, .anchor = s->anchor, .label = label, .table = s->table);
    struct contrast pairs = {count, t, s->rows, s->anchor, s->log_sum, s->pull, s->contrast};
    dev->ops->contrast(dev, &pairs);
    SUM(dev, contrast_value, count, 1, sums + n_sums - 1, .rows = s->rows, .log_sum = s->log_sum,
        .label = label, .table = s->table, .tau = t);
    if (weight == 0)
        return;
    RUN(dev, contrast_pull, count, .pull = s->pull, .rows = s->rows, .label = label, .table = s->table,
        .tau = t);
    RUN(dev, unit_rows_back, count, .dg = dg, .g = of->g, .rows = s->rows, .drows = s->pull, .count = count,
        .dims = of->dims, .official = official, .scale = s->table + s->classes * K_ORDER_1);
}
