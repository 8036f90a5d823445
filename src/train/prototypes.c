/* prototypes.c - where the classes lie in feature space, and the loss that pulls voxels towards
 * them.
 *
 * A prototype is the mean of all features of a class seen so far, with their variance by dimension
 * or the full covariance matrix, pooled exactly from batch to batch. A batch is summed about the
 * mean known so far, y = f - M, so that nothing cancels; a class met for the first time has none
 * yet, and its batch is summed twice. With n old and m new voxels, w = m / (n + m), and d, s mean
 * and mean square of y,
 *
 *     cov <- (1-w) cov + w (s - d d') + w (1-w) d d'        M <- M + w d        n <- n + m
 *
 * The loss sees M / |M| and cov / |cov| (Frobenius norm, which for a diagonal is that of the
 * vector of variances), so their scale never matters and nothing is inverted: a singular
 * covariance is as good as any. What remains to guard: a class never seen has no prototype and is
 * left out of the softmax, and voxels of it out of the mean; below 2 voxels, or with all of them
 * equal, its covariance is 0; up to 16 voxels a full matrix is of deficient rank by chance alone
 * and only its diagonal is used.
 */
#include <math.h>
#include <string.h>

#include "device/kernels.h"
#include "train/loss_scratch.h"

/* ---- pooling -------------------------------------------------------------------------------- */

/* Sums of one class over a batch, about a shift: number, y, y y'. */
struct moments {
    double count;
    double mean[PROTO_DIMS];
    double square[PROTO_DIMS][PROTO_DIMS];
};

/* From the numbers of r_class_moments; 1 if all of them are finite. */
static int read_moments(struct moments *m, const double *sums, int full)
{
    double n = sums[0] > 0 ? sums[0] : 1, finite = 0;
    *m = (struct moments){.count = sums[0]};
    for (int a = 0; a < PROTO_DIMS; a++) {
        m->mean[a] = sums[1 + a] / n;
        for (int b = full ? 0 : a; b <= a; b++) {
            double x = sums[1 + PROTO_DIMS + (full ? a * (a + 1) / 2 + b : a)] / n;
            m->square[a][b] = m->square[b][a] = x;
            finite += x * 0;
        }
    }
    return isfinite(finite);
}

static void pool_class(struct prototypes *p, int c, const double *shift, const struct moments *m)
{
    double w = m->count / (p->count[c] + m->count), center[PROTO_DIMS], delta[PROTO_DIMS];
    for (int a = 0; a < PROTO_DIMS; a++) {
        center[a] = shift[a] + m->mean[a];
        delta[a] = p->count[c] > 0 ? center[a] - p->mean[c][a] : 0;
    }
    for (int a = 0; a < PROTO_DIMS; a++)
        for (int b = p->full ? 0 : a; b < (p->full ? PROTO_DIMS : a + 1); b++) {
            double within = m->square[a][b] - m->mean[a] * m->mean[b];
            double *cov = &p->cov[c][a][b];
            *cov = (1 - w) * *cov + w * within + w * (1 - w) * delta[a] * delta[b];
        }
    for (int a = 0; a < PROTO_DIMS; a++) {
        p->mean[c][a] = p->count[c] > 0 ? p->mean[c][a] + w * delta[a] : center[a];
        p->cov[c][a][a] = p->cov[c][a][a] > 0 ? p->cov[c][a][a] : 0;
    }
    p->count[c] += m->count;
}

/* One sum over the batch about args->shift, in doubles that are floats. */
static void sum_group(struct device *dev, double *sums, double (*shift)[PROTO_DIMS],
                      struct r_class_moments *k, int64_t voxels)
{
    int per = k->order == 3 ? K_ORDER_3 : K_ORDER_2;
    for (int c = 0; c < k->classes; c++)
        for (int a = 0; a < PROTO_DIMS; a++) {
            k->shift[c][a] = (float)shift[c][a];
            shift[c][a] = (double)k->shift[c][a];
        }
    dev->ops->reduce(dev, REDUCE_class_moments, k, voxels, k->classes * per, sums);
}

static void update_group(struct device *dev, struct prototypes *p, struct r_class_moments *k, int64_t voxels)
{
    double sums[K_GROUP * K_ORDER_3], shift[K_GROUP][PROTO_DIMS];
    int per = k->order == 3 ? K_ORDER_3 : K_ORDER_2, news = 0;
    struct moments m;
    memcpy(shift, p->mean[k->first], sizeof(double) * PROTO_DIMS * (size_t)k->classes);
    sum_group(dev, sums, shift, k, voxels);
    for (int c = 0; c < k->classes; c++)
        if (p->count[k->first + c] <= 0 && sums[c * per] > 0 && read_moments(&m, sums + c * per, p->full)) {
            for (int a = 0; a < PROTO_DIMS; a++)
                shift[c][a] += m.mean[a];
            news = 1;
        }
    if (news)
        sum_group(dev, sums, shift, k, voxels);
    for (int c = 0; c < k->classes; c++)
        if (sums[c * per] > 0 && read_moments(&m, sums + c * per, p->full))
            pool_class(p, k->first + c, shift[c], &m);
}

void prototypes_update(struct device *dev, struct prototypes *p, const struct tensor *features,
                       const struct tensor *label)
{
    int64_t voxels = tensor_voxels(features);
    CHECK(features->c == PROTO_DIMS && features->type == VALUE_F32 && label->type == VALUE_U8);
    CHECK(tensor_voxels(label) == voxels && p->classes >= 1 && p->classes <= PROTO_CLASSES);
    if (dev->error.code != ERR_NONE) /* sums would be made of nothing */
        return;
    for (int first = 0; first < p->classes; first += K_GROUP) {
        int left = p->classes - first;
        struct r_class_moments k = {.rows = features->data,
                                    .label = label->data,
                                    .first = first,
                                    .classes = left < K_GROUP ? left : K_GROUP,
                                    .order = p->full ? 3 : 2};
        update_group(dev, p, &k, voxels);
    }
}

/* ---- the loss ------------------------------------------------------------------------------- */

/* Eq. 12 of the AUA paper, with u a feature, M and S mean and covariance of a class:
 *
 *     logit(c) = u.M(c) / tau + u.S(c) u / (2 tau^2)      value = mean of [ CE(logit, label) + u.S(label) u ]
 *
 * The equation writes the last term with a free index i outside the mean over all pixels; the mean includes
 * it here, for no other reading has a value. The released code divides that term by 2 tau^2, which is 20,000
 * at tau = 100; `unscaled` does not. Unit norms of u, M and S are the released code's in both forms. */

/* What the kernels know of one class (K_PROTO_ROW numbers). */
static void class_row(float *row, const struct prototypes *p, int c)
{
    double mean = 0, cov = 0;
    int full = p->full && p->count[c] > PROTO_DIMS;
    memset(row, 0, K_PROTO_ROW * sizeof *row);
    row[0] = p->count[c] > 0 ? 0.0f : -1e30f;
    for (int a = 0; a < PROTO_DIMS; a++) {
        mean += p->mean[c][a] * p->mean[c][a];
        for (int b = 0; b < PROTO_DIMS; b++)
            cov += a == b || full ? p->cov[c][a][b] * p->cov[c][a][b] : 0;
    }
    double by_mean = mean > 1e-24 ? 1 / sqrt(mean) : 0; /* lengths below 1e-12 have no direction */
    double by_cov = cov > 1e-60 && p->count[c] >= 2 ? 1 / sqrt(cov) : 0;
    for (int a = 0; a < PROTO_DIMS; a++) {
        row[K_PROTO_MEAN + a] = (float)(p->mean[c][a] * by_mean);
        for (int b = 0; b < PROTO_DIMS; b++)
            if (a == b || full)
                row[K_PROTO_COV + a * PROTO_DIMS + b] = (float)(p->cov[c][a][b] * by_cov);
    }
}

static void prototypes_settle(struct loss_scratch *s, const struct pending *p, const double *sums)
{
    (void)s;
    *p->value = sums[0] > 0 ? sums[1] / sums[0] : 0;
}

void ask_prototypes(struct loss_scratch *s, const struct pcl *how, const struct tensor *features,
                    const struct tensor *label, const struct tensor *weights, double weight,
                    const struct tensor *dfeatures, double *value)
{
    struct device *dev = s->dev;
    const struct prototypes *p = how->prototypes;
    int64_t voxels = tensor_voxels(features);
    const float *by_voxel = weights ? weights->data : NULL;
    size_t table = (size_t)p->classes * K_PROTO_ROW;
    CHECK(features->c == PROTO_DIMS && features->type == VALUE_F32 && label->type == VALUE_U8);
    CHECK(tensor_voxels(label) == voxels && table <= s->table_count && how->tau > 0);
    struct pending *asked = loss_ask(s, 2, value);
    asked->settle = prototypes_settle;
    double *sums = s->found + asked->first;
    for (int c = 0; c < p->classes; c++)
        class_row(s->host + c * K_PROTO_ROW, p, c);
    dev->ops->upload(dev, s->table, s->host, table * sizeof *s->host);
    SUM(dev, proto_count, voxels, 1, sums, .table = s->table, .label = label->data, .weights = by_voxel,
        .classes = p->classes, .ignore_bg = how->ignore_bg);
    SUM(dev, proto_loss, voxels, 1, sums + 1, .table = s->table, .features = features->data,
        .dfeatures = dfeatures->data, .fresh = how->fresh, .label = label->data, .weights = by_voxel,
        .classes = p->classes, .ignore_bg = how->ignore_bg, .full = p->full, .tau = (float)how->tau,
        .unscaled = how->unscaled, .weight = weight, .count = sums);
}
