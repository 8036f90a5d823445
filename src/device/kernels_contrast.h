/* kernels_contrast.h - bodies for the losses in feature space: rows picked at chosen voxels, sums
 * by class, the parts of the contrastive loss that are linear in the rows (contrast.h has the
 * pairs), and the prototype loss. Part of kernels.h; see there for the form of a body.
 *
 * A row is K_DIMS = 16 numbers. "unit" is row / max(|row|, K_SHORT), as PyTorch's normalize; a row
 * shorter than that has no direction, and no gradient.
 */
#ifndef FALX_KERNELS_CONTRAST_H
#define FALX_KERNELS_CONTRAST_H

#include "device/kernels_rows.h"

enum { K_DIMS = 16 };
#define K_SHORT 1e-12f

/* ---- rows at chosen voxels ------------------------------------------------------------------ */

/* Row i = row at[i] of `from`, c numbers each. Indices are numbers here and below, not rows: GPUs write them
 * side by side. */
struct k_gather_rows {
    float *rows;
    const float *from;
    const int64_t *at;
    int c;
};
KERNEL void k_gather_rows_range(const struct k_gather_rows *k, int64_t i0, int64_t i1)
{
    for (int64_t i = i0; i < i1; i++) {
        int c;
        int64_t row = k_divide(i, k->c, &c);
        k->rows[i] = k->from[k->at[row] * k->c + c];
    }
}

/* to[at] += its row; no voxel is named twice. */
struct k_scatter_rows {
    void *to;
    const float *rows;
    const int64_t *at;
    int c, bf16; /* 1: to is rounded to that */
};
KERNEL void k_scatter_rows_range(const struct k_scatter_rows *k, int64_t i0, int64_t i1)
{
    for (int64_t i = i0; i < i1; i++) {
        int c;
        int64_t row = k_divide(i, k->c, &c), at = k->at[row] * k->c + c;
        k_put(k->to, k->bf16, at, k_get(k->to, k->bf16, at) + k->rows[i]);
    }
}

/* to[i] = from[i] + from[i + period] + ..., of `total` numbers. */
struct k_fold {
    float *to;
    const float *from;
    int64_t period, total;
};
KERNEL void k_fold_range(const struct k_fold *k, int64_t i0, int64_t i1)
{
    for (int64_t i = i0; i < i1; i++) {
        float sum = k->from[i];
        for (int64_t at = i + k->period; at < k->total; at += k->period)
            sum += k->from[at];
        k->to[i] = sum;
    }
}

/* ---- sums by class -------------------------------------------------------------------------- */

/* Per class first .. first + classes - 1, with y = row - shift of the class:
 *
 *     1 number, sums of y (16), then for order 2 sums of y*y (16), for order 3 sums of y(a)*y(b),
 *     b <= a, at a*(a+1)/2 + b (136)
 */
enum {
    K_GROUP = 16, /* most classes at once: their sums and shifts stay small */
    K_ORDER_1 = 1 + K_DIMS,
    K_ORDER_2 = 1 + 2 * K_DIMS,
    K_ORDER_3 = 1 + K_DIMS + K_DIMS * (K_DIMS + 1) / 2
};
struct r_class_moments {
    const float *rows; /* (count, 16) */
    const uint8_t *label;
    int first, classes, order;
    float shift[K_GROUP][K_DIMS];
};
KERNEL void k_class_chunk(float *sums, float (*x)[K_LANES], const float *in, const float *shift, int order)
{
    float y[K_DIMS][K_LANES];
    k_add(sums, 0, in);
    for (int a = 0; a < K_DIMS; a++) {
        float s = shift[a];
        EACH_LANE (j)
            y[a][j] = in[j] > 0 ? x[a][j] - s : 0.0f;
        k_add(sums, 1 + a, y[a]);
    }
    if (order == 2)
        for (int a = 0; a < K_DIMS; a++) {
            EACH_LANE (j)
                y[a][j] *= y[a][j];
            k_add(sums, 1 + K_DIMS + a, y[a]);
        }
    if (order == 3)
        for (int a = 0; a < K_DIMS; a++)
            for (int b = 0; b <= a; b++)
                k_add_product(sums, 1 + K_DIMS + a * (a + 1) / 2 + b, y[a], y[b]);
}
KERNEL void r_class_moments_range(const struct r_class_moments *k, int64_t i0, int64_t i1, float *sums)
{
    const int order = K_ORDER(k->order), classes = K_CLASSES(k->classes), first = K_FIRST(k->first);
    const int per = order == 1 ? K_ORDER_1 : order == 2 ? K_ORDER_2 : K_ORDER_3;
    EACH_CHUNK (i, n, i0, i1) {
        float x[K_DIMS][K_LANES], in[K_LANES];
        k_load(x, k->rows + i * K_DIMS, K_DIMS, K_DIMS, n);
        for (int c = 0; c < classes; c++) {
            int some = 0;
            EACH_LANE (j)
                in[j] = 0;
            for (int64_t j = 0; j < n; j++) {
                int here = k->label[i + j] == first + c;
                in[j] = (float)here;
                some |= here;
            }
            if (K_SOME(some))
                k_class_chunk(sums + (int64_t)c * per * REDUCE_LANES, x, in, k->shift[c], order);
        }
    }
}

/* ---- contrast ------------------------------------------------------------------------------- */

/* Where channel c of point i lies among the rows of the loss: row i; or by a table (points, 16), where -1
 * says that no row has it (loss.h, struct scramble). */
KERNEL int64_t k_row_place(const int32_t *place, int64_t i, int c)
{
    return place ? place[i * K_DIMS + c] : i * K_DIMS + c;
}

/* rows = g / |g|, put in place. */
struct k_unit_rows {
    float *rows;
    const float *g;       /* (points, dims) */
    const int32_t *place; /* NULL: by point */
    int dims;
};
KERNEL float k_length(const float *x, int dims)
{
    float square = 0;
    for (int c = 0; c < dims; c++)
        square += x[c] * x[c];
    return sqrtf(square);
}
KERNEL void k_unit_rows_range(const struct k_unit_rows *k, int64_t i0, int64_t i1)
{
    for (int64_t i = i0; i < i1; i++) {
        const float *g = k->g + i * k->dims;
        float length = k_max(K_SHORT, k_length(g, k->dims));
        for (int c = 0; c < k->dims; c++) {
            int64_t at = k_row_place(k->place, i, c);
            if (at >= 0)
                k->rows[at] = g[c] / length;
        }
    }
}

/* Sums by class (order 1, above) as floats, and what gradients are multiplied with: weight, over the number
 * of anchors if the loss is their mean. */
struct k_contrast_table {
    const double *sums; /* (classes, 17) */
    float *table;       /* (classes, 17) */
    float *scale;       /* one number */
    int classes, mean;
    double weight;
};
KERNEL double k_anchors(const double *sums, int classes)
{
    double anchors = 0;
    for (int c = 0; c < classes; c++)
        anchors += sums[c * K_ORDER_1] > 1 ? sums[c * K_ORDER_1] : 0;
    return anchors;
}
KERNEL void k_contrast_table_range(const struct k_contrast_table *k, int64_t i0, int64_t i1)
{
    for (int64_t i = i0; i < i1; i++) {
        for (int a = 0; a < K_ORDER_1; a++)
            k->table[i * K_ORDER_1 + a] = (float)k->sums[i * K_ORDER_1 + a];
        if (i > 0)
            continue;
        double anchors = k_anchors(k->sums, k->classes), share = k->mean ? 1 / anchors : 1;
        *k->scale = anchors > 0 ? (float)(k->weight * share) : 0.0f;
    }
}

/* anchor = 1 if there is another row of the same class, else 0. */
struct k_contrast_anchors {
    float *anchor;
    const uint8_t *label;
    const float *table; /* (classes, 17): number of rows, their sum */
};
KERNEL void k_contrast_anchors_range(const struct k_contrast_anchors *k, int64_t i0, int64_t i1)
{
    for (int64_t i = i0; i < i1; i++)
        k->anchor[i] = (float)(k->table[k->label[i] * K_ORDER_1] > 1.0f);
}

/* The value: sum over anchors of ln Z - the mean score of the positives, which is
 * row . (class sum - row) / (tau (n - 1)). */
struct r_contrast_value {
    const float *rows, *log_sum;
    const uint8_t *label;
    const float *table;
    float tau;
};
KERNEL void r_contrast_value_range(const struct r_contrast_value *k, int64_t i0, int64_t i1, float *sums)
{
    EACH_CHUNK (i, n, i0, i1) {
        float x[K_LANES] = {0};
        for (int64_t j = 0; j < n; j++) {
            const float *row = k->rows + (i + j) * K_DIMS;
            const float *of = k->table + k->label[i + j] * K_ORDER_1;
            float dot = 0;
            for (int c = 0; c < K_DIMS; c++)
                dot += row[c] * (of[1 + c] - row[c]);
            if (of[0] > 1.0f)
                x[j] = k->log_sum[i + j] - dot / (k->tau * (of[0] - 1.0f));
        }
        k_add(sums, 0, x);
    }
}

/* pull becomes the gradient with respect to the rows: (pull - 2 / (n - 1) (class sum - row)) /
 * tau. */
struct k_contrast_pull {
    float *pull;
    const float *rows;
    const uint8_t *label;
    const float *table;
    float tau;
};
KERNEL void k_contrast_pull_range(const struct k_contrast_pull *k, int64_t i0, int64_t i1)
{
    for (int64_t i = i0; i < i1; i++) {
        const float *row = k->rows + i * K_DIMS, *of = k->table + k->label[i] * K_ORDER_1;
        float *pull = k->pull + i * K_DIMS, twice = of[0] > 1.0f ? 2.0f / (of[0] - 1.0f) : 0.0f;
        for (int c = 0; c < K_DIMS; c++)
            pull[c] = (pull[c] - twice * (of[1 + c] - row[c])) / k->tau;
    }
}

/* dg += scale * the gradient brought back through place and length: (G - u (u.G)) / |g|. */
struct k_unit_rows_back {
    float *dg;
    const float *g, *drows;
    const int32_t *place; /* NULL: by point */
    int dims;
    const float *scale; /* one number, device memory */
};
KERNEL void k_unit_rows_back_range(const struct k_unit_rows_back *k, int64_t i0, int64_t i1)
{
    for (int64_t i = i0; i < i1; i++) {
        const float *g = k->g + i * k->dims;
        float dot = 0, size = k_length(g, k->dims), length = k_max(K_SHORT, size);
        float factor = size < K_SHORT ? 0.0f : *k->scale / size;
        for (int c = 0; c < k->dims; c++) {
            int64_t at = k_row_place(k->place, i, c);
            dot += at >= 0 ? g[c] / length * k->drows[at] : 0.0f;
        }
        for (int c = 0; c < k->dims; c++) {
            int64_t at = k_row_place(k->place, i, c);
            float d = at >= 0 ? k->drows[at] : 0.0f;
            k->dg[i * k->dims + c] += factor * (d - g[c] / length * dot);
        }
    }
}

/* ---- prototypes ----------------------------------------------------------------------------- */

/* What the loss knows of a class: 0 or -1e30 (never seen), unit mean, covariance of unit norm. */
enum { K_PROTO_MEAN = 1, K_PROTO_COV = 1 + K_DIMS, K_PROTO_ROW = 1 + K_DIMS + K_DIMS * K_DIMS };

/* The share of a voxel in the mean: its weight, or 0 if it is left out. */
KERNEL float k_proto_share(const float *table, int classes, const uint8_t *label, const float *weights,
                           int ignore_bg, int64_t i)
{
    int l = label[i];
    if (l >= classes || (ignore_bg && l == 0) || table[(int64_t)l * K_PROTO_ROW] < 0)
        return 0;
    return weights ? weights[i] : 1.0f;
}

struct r_proto_count {
    const float *table; /* (classes, K_PROTO_ROW) */
    const uint8_t *label;
    const float *weights; /* or NULL */
    int classes, ignore_bg;
};
KERNEL void r_proto_count_range(const struct r_proto_count *k, int64_t i0, int64_t i1, float *sums)
{
    EACH_CHUNK (i, n, i0, i1) {
        float x[K_LANES] = {0};
        for (int64_t j = 0; j < n; j++)
            x[j] = k_proto_share(k->table, k->classes, k->label, k->weights, k->ignore_bg, i + j);
        k_add(sums, 0, x);
    }
}

/* y = covariance x u, and u.y in `form`. Each number off the diagonal is used twice; two loops
 * over lanes side by side also keep a compiler from exchanging loops, which would end in sums that
 * are not vectors. */
KERNEL void k_proto_form(float (*y)[K_LANES], float *form, float (*u)[K_LANES], const float *cov, int full)
{
    EACH_LANE (j)
        form[j] = 0;
    for (int a = 0; a < K_DIMS; a++) {
        const float *row = cov + a * K_DIMS;
        EACH_LANE (j)
            y[a][j] = row[a] * u[a][j];
        for (int b = 0; full && b < a; b++) {
            EACH_LANE (j)
                y[a][j] += row[b] * u[b][j];
            EACH_LANE (j)
                y[b][j] += row[b] * u[a][j];
        }
    }
    for (int a = 0; a < K_DIMS; a++)
        EACH_LANE (j)
            form[j] += u[a][j] * y[a][j];
}

/* The loss of every voxel, summed, and the gradient of weight times its mean added on the way:
 *
 *     logit(c) = (u.M + u.S u / (2 tau)) / tau
 *     value    = CE(logit, label) + u.S(label) u / (2 tau^2), or + u.S(label) u if unscaled
 *
 * u is the unit feature, M and S mean and covariance of class c from the table. */
struct r_proto_loss {
    const float *table;
    const float *features; /* (count, 16) */
    float *dfeatures;
    const uint8_t *label;
    const float *weights;
    int classes, ignore_bg, full, unscaled;
    int fresh; /* 1: dfeatures is set, zeros included, not added to */
    float tau;
    double weight;
    const double *count; /* sum of the shares */
};

/* logit per class, and u.S(label) u. */
KERNEL void k_proto_logits(const struct r_proto_loss *k, float (*logit)[K_LANES], float *form_label,
                           float (*u)[K_LANES], const int *label)
{
    float y[K_DIMS][K_LANES], form[K_LANES], inv = 1.0f / k->tau;
    EACH_LANE (j)
        form_label[j] = 0;
    for (int c = 0; c < K_CLASSES(k->classes); c++) {
        const float *t = k->table + (int64_t)c * K_PROTO_ROW;
        k_proto_form(y, form, u, t + K_PROTO_COV, K_FULL(k->full));
        EACH_LANE (j)
            logit[c][j] = 0.5f * inv * form[j];
        for (int a = 0; a < K_DIMS; a++) {
            float m = t[K_PROTO_MEAN + a];
            EACH_LANE (j)
                logit[c][j] += m * u[a][j];
        }
        EACH_LANE (j)
            logit[c][j] = logit[c][j] * inv + t[0];
        EACH_LANE (j)
            form_label[j] += label[j] == c ? form[j] : 0.0f;
    }
}

/* Turns logits into probabilities; value = ln sum exp - logit of the label. */
KERNEL void k_proto_softmax(float (*p)[K_LANES], float *value, const int *label, int classes)
{
    float top[K_LANES], sum[K_LANES], mine[K_LANES];
    EACH_LANE (j)
        top[j] = p[0][j];
    EACH_LANE (j)
        sum[j] = mine[j] = 0;
    for (int c = 1; c < classes; c++)
        EACH_LANE (j)
            top[j] = k_max(top[j], p[c][j]);
    for (int c = 0; c < classes; c++) {
        EACH_LANE (j)
            mine[j] += label[j] == c ? p[c][j] : 0.0f;
        EACH_LANE (j)
            p[c][j] = k_exp(p[c][j] - top[j]);
        EACH_LANE (j)
            sum[j] += p[c][j];
    }
    EACH_LANE (j)
        value[j] = k_log(sum[j]) + top[j] - mine[j];
    for (int c = 0; c < classes; c++)
        EACH_LANE (j)
            p[c][j] /= sum[j];
}

/* G = d value / d u. */
KERNEL void k_proto_grad(const struct r_proto_loss *k, float (*G)[K_LANES], float (*p)[K_LANES],
                         float (*u)[K_LANES], const int *label)
{
    float y[K_DIMS][K_LANES], form[K_LANES], r[K_LANES], s[K_LANES], inv = 1.0f / k->tau;
    float own = k->unscaled ? 2.0f * k->tau : inv; /* of the last term, times tau */
    for (int a = 0; a < K_DIMS; a++)
        EACH_LANE (j)
            G[a][j] = 0;
    for (int c = 0; c < K_CLASSES(k->classes); c++) {
        const float *t = k->table + (int64_t)c * K_PROTO_ROW;
        k_proto_form(y, form, u, t + K_PROTO_COV, K_FULL(k->full));
        EACH_LANE (j)
            r[j] = inv * (label[j] == c ? p[c][j] - 1.0f : p[c][j]);
        EACH_LANE (j)
            s[j] = inv * (label[j] == c ? r[j] + own : r[j]);
        for (int a = 0; a < K_DIMS; a++) {
            float m = t[K_PROTO_MEAN + a];
            EACH_LANE (j)
                G[a][j] += r[j] * m + s[j] * y[a][j];
        }
    }
}

/* dfeatures += weight / count * share * (G - u (u.G)) / |f|, from voxel i on. */
KERNEL void k_proto_back(const struct r_proto_loss *k, float (*G)[K_LANES], float (*u)[K_LANES],
                         const float *inverse, const float *share, int64_t i, int64_t n)
{
    float dot[K_LANES] = {0}, scale = (float)(k->weight / *k->count);
    for (int a = 0; a < K_DIMS; a++)
        EACH_LANE (j)
            dot[j] += G[a][j] * u[a][j];
    for (int a = 0; a < K_DIMS; a++)
        EACH_LANE (j) {
            float d = scale * share[j] * inverse[j] * (G[a][j] - u[a][j] * dot[j]);
            G[a][j] = share[j] > 0 ? d : 0.0f;
        }
    k_add_rows(k->dfeatures + i * K_DIMS, G, K_DIMS, K_DIMS, n, k->fresh);
}

/* u = f / |f| in lanes; inverse = 1 / |f|, 0 if there is no direction. */
KERNEL void k_unit_lanes(float (*u)[K_LANES], float *inverse)
{
    float length[K_LANES] = {0};
    for (int a = 0; a < K_DIMS; a++)
        EACH_LANE (j)
            length[j] += u[a][j] * u[a][j];
    EACH_LANE (j)
        length[j] = sqrtf(length[j]);
    EACH_LANE (j)
        inverse[j] = length[j] < K_SHORT ? 0.0f : 1.0f / k_max(K_SHORT, length[j]);
    for (int a = 0; a < K_DIMS; a++)
        EACH_LANE (j)
            u[a][j] /= k_max(K_SHORT, length[j]);
}

KERNEL void r_proto_loss_range(const struct r_proto_loss *k, int64_t i0, int64_t i1, float *sums)
{
    float logit[KERNEL_CLASSES][K_LANES], u[K_DIMS][K_LANES], G[K_DIMS][K_LANES];
    EACH_CHUNK (i, n, i0, i1) {
        float share[K_LANES] = {0}, inverse[K_LANES], form[K_LANES], value[K_LANES];
        int label[K_LANES] = {0}, some = 0;
        for (int64_t j = 0; j < n; j++) {
            share[j] = k_proto_share(k->table, k->classes, k->label, k->weights, k->ignore_bg, i + j);
            label[j] = k->label[i + j];
            some |= share[j] > 0;
        }
        if (!K_SOME(some || k->fresh))
            continue;
        k_load(u, k->features + i * K_DIMS, K_DIMS, K_DIMS, n);
        k_unit_lanes(u, inverse);
        k_proto_logits(k, logit, form, u, label);
        k_proto_softmax(logit, value, label, K_CLASSES(k->classes));
        float scale = k->unscaled ? 1.0f : 0.5f / (k->tau * k->tau);
        EACH_LANE (j)
            value[j] = share[j] > 0 ? share[j] * (value[j] + scale * form[j]) : 0.0f;
        k_add(sums, 0, value);
        k_proto_grad(k, G, logit, u, label);
        k_proto_back(k, G, u, inverse, share, i, n);
    }
}

/* clang-format off */
#define KERNELS_CONTRAST(X)                                                                       \
    X(gather_rows) X(scatter_rows) X(fold)                                                        \
    X(unit_rows) X(contrast_table) X(contrast_anchors) X(contrast_pull) X(unit_rows_back)
#define REDUCES_CONTRAST(X) X(class_moments) X(contrast_value) X(proto_count) X(proto_loss)
/* clang-format on */

#endif
