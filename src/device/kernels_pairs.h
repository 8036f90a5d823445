/* kernels_pairs.h - rows that belong together are to be told from others (InfoNCE): first two lists of
 * rows, of which number i of one belongs to number i of the other, then one list with a table of relations.
 * Part of kernels.h; see there for the form of a body.
 *
 *     s(i, j) = u(i) v(j) / tau,   u, v rows of unit length, so that no exponential needs a shift
 *     loss    = mean over i of ln sum_j exp s(i, j) - s(i, i)
 *
 * There are some hundred rows of a hundred numbers, so few that a GPU needs an index for every pair:
 *
 *     unit -> product: all s(i, j) -> anchor: a row's loss -> share: slopes -> product: their pull -> leave
 */
#ifndef FALX_KERNELS_PAIRS_H
#define FALX_KERNELS_PAIRS_H

#include "device/kernels_math.h"

/* unit = x / |x|, and |x|, at least 1e-12; turned, unless NULL: unit with rows and columns exchanged. An
 * index is a row. */
struct k_pair_unit {
    const float *x;
    float *unit, *turned, *length; /* (count, dims), (dims, count), (count) */
    int count, dims;
};
KERNEL void k_pair_unit_range(const struct k_pair_unit *k, int64_t i0, int64_t i1)
{
    for (int64_t i = i0; i < i1; i++) {
        const float *x = k->x + i * k->dims;
        float sum = 0;
        for (int d = 0; d < k->dims; d++)
            sum += x[d] * x[d];
        const float length = k_max(sqrtf(sum), 1e-12f);
        k->length[i] = length;
        for (int d = 0; d < k->dims; d++) {
            const float unit = x[d] / length;
            k->unit[i * k->dims + d] = unit;
            if (k->turned)
                k->turned[(int64_t)d * k->count + i] = unit;
        }
    }
}

/* product (rows, columns) = scale * left (rows, inner) times right (inner, columns): how alike rows are,
 * where right is turned, and what slopes draw them at. An index is a number of it. */
struct k_pair_product {
    const float *left, *right;
    float *product;
    int inner, columns;
    float scale;
};
KERNEL void k_pair_product_range(const struct k_pair_product *k, int64_t i0, int64_t i1)
{
    for (int64_t i = i0, n; i < i1; i += n) { /* n numbers of one row, which is 1 for a GPU */
        float sum[K_LANES] = {0};
        const int64_t row = i / k->columns, column = i % k->columns, left = k->columns - column;
        n = left < i1 - i ? left : i1 - i;
        n = n < K_LANES ? n : K_LANES;
        const int64_t some = K_LANES == 1 ? 1 : n; /* known beforehand */
        for (int64_t d = 0; d < k->inner; d++)
            for (int64_t e = 0; e < some; e++)
                sum[e] += k->left[row * k->inner + d] * k->right[d * k->columns + column + e];
        for (int64_t e = 0; e < some; e++)
            k->product[i + e] = k->scale * sum[e];
    }
}

/* Of anchor i, a row of s or, with others as anchors, a column: log_sum = ln sum exp s, loss = log_sum -
 * s(i, i). An index is an anchor. */
struct k_pair_anchor {
    const float *like;
    float *log_sum, *loss;
    int count, of_columns;
};
KERNEL void k_pair_anchor_range(const struct k_pair_anchor *k, int64_t i0, int64_t i1)
{
    const int64_t along = k->of_columns ? k->count : 1, across = k->of_columns ? 1 : k->count;
    for (int64_t i = i0; i < i1; i++) {
        float sum = 0;
        for (int64_t j = 0; j < k->count; j++)
            sum += k_exp(k->like[i * across + j * along]);
        k->log_sum[i] = k_log(sum);
        k->loss[i] = k->log_sum[i] - k->like[i * (k->count + 1)];
    }
}

/* s(i, j) becomes the slope of all anchors' losses by it. An index is a pair. */
struct k_pair_share {
    const float *log_sum;
    float *like;
    int count, of_columns;
};
KERNEL void k_pair_share_range(const struct k_pair_share *k, int64_t i0, int64_t i1)
{
    for (int64_t i = i0; i < i1; i++) {
        const int64_t row = i / k->count, column = i % k->count;
        const float share = k_exp(k->like[i] - k->log_sum[k->of_columns ? column : row]);
        k->like[i] = row == column ? share - 1 : share;
    }
}

/* dx += weight * pull, the gradient by u, behind the division of x by its length. An index is a row. */
struct k_pair_leave {
    const float *pull, *unit, *length;
    float *dx; /* (count, dims) */
    int dims;
    float weight;
};
KERNEL void k_pair_leave_range(const struct k_pair_leave *k, int64_t i0, int64_t i1)
{
    for (int64_t i = i0; i < i1; i++) {
        const float *pull = k->pull + i * k->dims, *u = k->unit + i * k->dims;
        float along = 0, size = k->weight / k->length[i];
        for (int d = 0; d < k->dims; d++)
            along += pull[d] * u[d];
        for (int d = 0; d < k->dims; d++)
            k->dx[i * k->dims + d] += size * (pull[d] - along * u[d]);
    }
}

/* ---- rows of one list that are like or unlike each other ---------------------------------------- */

/*     z(i) = sum over all j unlike i of exp s(i, j)
 *     loss = sum over all j like i of ln(exp s(i, j) + z(i)) - s(i, j)
 *
 * Who is like whom is told by a table, kind(i, j), which need not be symmetric: that of the anchor counts. */
enum relation { RELATION_NONE, RELATION_LIKE, RELATION_UNLIKE };

/* Of anchor i: z, loss, and rest = sum over all j like i of 1 / (exp s(i, j) + z). An index is an anchor. */
struct k_relate {
    const float *like;   /* s (count, count) */
    const uint8_t *kind; /* (count, count) */
    float *z, *rest, *loss;
    int count;
};
KERNEL void k_relate_range(const struct k_relate *k, int64_t i0, int64_t i1)
{
    for (int64_t i = i0; i < i1; i++) {
        const float *s = k->like + i * k->count;
        const uint8_t *kind = k->kind + i * k->count;
        float z = 0, rest = 0, loss = 0;
        for (int j = 0; j < k->count; j++)
            if (kind[j] == RELATION_UNLIKE)
                z += k_exp(s[j]);
        for (int j = 0; j < k->count; j++) {
            if (kind[j] != RELATION_LIKE)
                continue;
            float all = k_exp(s[j]) + z;
            loss += k_log(all) - s[j];
            rest += 1 / all;
        }
        k->z[i] = z;
        k->rest[i] = rest;
        k->loss[i] = loss;
    }
}

/* The slope of an anchor's loss along s, for a row of this kind; e = exp s. */
KERNEL float k_relate_slope(int kind, float e, float z, float rest)
{
    return kind == RELATION_LIKE ? -z / (e + z) : kind == RELATION_UNLIKE ? e * rest : 0.0f;
}

/* s(i, j) becomes the slope of all losses by it: i is an anchor, and one that others are told by. An index is
 * a pair. */
struct k_relate_share {
    const uint8_t *kind;
    const float *z, *rest;
    float *like;
    int count;
};
KERNEL void k_relate_share_range(const struct k_relate_share *k, int64_t i0, int64_t i1)
{
    for (int64_t i = i0; i < i1; i++) {
        const int64_t a = i / k->count, b = i % k->count;
        const float e = k_exp(k->like[i]);
        k->like[i] = k_relate_slope(k->kind[i], e, k->z[a], k->rest[a]) +
                     k_relate_slope(k->kind[b * k->count + a], e, k->z[b], k->rest[b]);
    }
}

/* Sum of numbers. */
struct r_total {
    const float *x;
};
KERNEL void r_total_range(const struct r_total *k, int64_t i0, int64_t i1, float *sums)
{
    float x[1][K_LANES];
    EACH_CHUNK (i, n, i0, i1) {
        k_load(x, k->x + i, 1, 1, n);
        k_add(sums, 0, x[0]);
    }
}

/* clang-format off */
#define KERNELS_PAIRS(X) X(pair_unit) X(pair_product) X(pair_anchor) X(pair_share) X(pair_leave) \
    X(relate) X(relate_share)
#define REDUCES_PAIRS(X) X(total)
/* clang-format on */

#endif
