/* loss_contrast.c - boundary-aware contrastive learning: which voxels, and the loss between them.
 *
 *     label patch -> near-boundary voxels -> at most `cap` of them -> rows of the projection there
 *     -> unit vectors g -> sum over anchors i of
 *
 *            ln sum_{o != i} exp(g_i.g_o / tau)  -  mean over positives p of g_i.g_p / tau
 *
 * Eq. 10 of the AUA paper sums over the anchors (BCL_SUM), the released code takes their mean (BCL_MEAN);
 * both take the mean over the positives. Positives of i are all other points of its class, n - 1 of them, so
 * the second term and its gradient need only the class sums S: mean = g_i.(S - g_i) / (tau (n - 1)). What is
 * left of the pairs is the device's (contrast.h). A point alone in its class is no anchor, but others are
 * compared with it. If all points have one class (NB_BG_RING with two classes), each anchor has positives
 * only: the minimum, n ln(n - 1), is reached where all features are equal.
 *
 * In the released code the unit vectors of all near-boundary voxels are gathered with a mask from a
 * channel-first tensor, which lists channel 0 of all voxels, then channel 1. The list is read as rows of 16,
 * which mix voxels and are not of unit length, and then at most `cap` rows are chosen. BCL_OFFICIAL does the
 * same (boundary_scramble).
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

/* At most `cap` of the voxels that are near, and their ranks among these, unless NULL. Returns how many.
 * Selection sampling: of `left` voxels that may be taken, the next is with probability needed / left. */
static int choose_near(int64_t *points, int32_t *ranks, struct boundary *b, uint32_t n_near)
{
    int64_t voxels = (int64_t)b->dims[0] * b->dims[1] * b->dims[2];
    uint32_t left = n_near, needed = b->cap < 0 ? 0 : (uint32_t)b->cap < left ? (uint32_t)b->cap : left;
    struct rng r = rng_start(b->seed, b->step, RNG_POINTS, b->item);
    int taken = 0;
    for (int64_t v = 0; needed > 0; v++, left--) {
        v = next_near(b->near, v, voxels);
        if (needed == left || rng_below(&r, left) < needed) {
            if (ranks)
                ranks[taken] = (int32_t)(n_near - left);
            points[taken++] = v;
            needed--;
        }
    }
    return taken;
}

static uint32_t mark_near(struct boundary *b, struct pool *pool)
{
    int64_t voxels = (int64_t)b->dims[0] * b->dims[1] * b->dims[2];
    uint32_t n = 0;
    pool_run(pool, b->dims[0], mark_plane, b);
    for (int64_t v = 0; v < voxels; v++)
        n += b->near[v];
    return n;
}

int boundary_points(int64_t *points, struct boundary *b, struct pool *pool)
{
    return choose_near(points, NULL, b, mark_near(b, pool));
}

/* ---- rows of the released code ---------------------------------------------------------------- */

int scramble_room(int64_t voxels, int cap)
{
    int64_t most = (int64_t)cap * K_DIMS; /* every number of a row may be another voxel's */
    return (int)(voxels < most ? voxels : most);
}

/* Value k of the list is channel k / n_near of voxel k % n_near, and column k % 16 of row k / 16. */
static int64_t listed_at(const struct scramble *s, int64_t i)
{
    return (int64_t)s->row_rank[i / K_DIMS] * K_DIMS + i % K_DIMS;
}

void boundary_scramble(struct scramble *s, struct boundary *b, struct pool *pool)
{
    int64_t n_near = mark_near(b, pool), voxels = (int64_t)b->dims[0] * b->dims[1] * b->dims[2], v = 0;
    s->n_rows = choose_near(s->row_voxels, s->row_rank, b, (uint32_t)n_near);
    s->n_points = 0;
    memset(s->of_rank, -1, (size_t)n_near * sizeof *s->of_rank);
    for (int64_t i = 0; i < (int64_t)s->n_rows * K_DIMS; i++)
        s->of_rank[listed_at(s, i) % n_near] = 0; /* is a point */
    for (int64_t rank = 0; rank < n_near; rank++, v++) {
        v = next_near(b->near, v, voxels);
        if (s->of_rank[rank] < 0)
            continue;
        s->of_rank[rank] = s->n_points;
        s->points[s->n_points++] = v;
    }
    memset(s->place, -1, (size_t)s->n_points * K_DIMS * sizeof *s->place);
    for (int64_t i = 0; i < (int64_t)s->n_rows * K_DIMS; i++) {
        int64_t k = listed_at(s, i), point = s->of_rank[k % n_near];
        s->place[point * K_DIMS + k / n_near] = (int32_t)i;
    }
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
    CHECK(!of->place || of->dims == CONTRAST_DIMS);
    struct device *dev = s->dev;
    const uint8_t *label = of->label;
    int n_sums = s->classes * K_ORDER_1 + 1, count = of->count, points = of->place ? of->points : count;
    float t = (float)of->tau;
    *value = 0;
    if (count < 2)
        return;
    struct pending *p = loss_ask(s, (size_t)n_sums, value);
    p->settle = contrast_settle;
    p->of.contrast.mean = of->reduce != BCL_SUM;
    double *sums = s->found + p->first;
    dev->ops->zero(dev, s->rows, (size_t)count * CONTRAST_DIMS * sizeof *s->rows);
    RUN(dev, unit_rows, points, .rows = s->rows, .g = of->g, .place = of->place, .dims = of->dims);
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
    RUN(dev, unit_rows_back, points, .dg = dg, .g = of->g, .drows = s->pull, .place = of->place,
        .dims = of->dims, .scale = s->table + s->classes * K_ORDER_1);
}
