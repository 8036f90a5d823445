/* kernels_pairs.h - rows that belong together are to be told from others (InfoNCE): first two lists of
 * rows, of which number i of one belongs to number i of the other, then one list with a table of relations.
 * Part of kernels.h; see there for the form of a body.
 *
 *     s(i, j) = u(i) v(j) / tau,   u, v rows of unit length, so that no exponential needs a shift
 *     loss    = mean over i of ln sum_j exp s(i, j) - s(i, i)
 *
 * An index is a row; there are a few hundred.
 */
#ifndef FALX_KERNELS_PAIRS_H
#define FALX_KERNELS_PAIRS_H

#include "device/kernels_math.h"

KERNEL float k_dot(const float *a, const float *b, int dims)
{
    float part[8] = {0}, sum = 0;
    int d = 0;
    for (; d + 8 <= dims; d += 8)
        for (int j = 0; j < 8; j++)
            part[j] += a[d + j] * b[d + j];
    for (int j = 0; j < 8; j++)
        sum += part[j];
    for (; d < dims; d++)
        sum += a[d] * b[d];
    return sum;
}

/* unit = x / |x|, and |x|, at least 1e-12. */
struct k_pair_unit {
    const float *x;
    float *unit, *length;
    int dims;
};
KERNEL void k_pair_unit_range(const struct k_pair_unit *k, int64_t i0, int64_t i1)
{
    for (int64_t i = i0; i < i1; i++) {
        const float *x = k->x + i * k->dims;
        float length = sqrtf(k_dot(x, x, k->dims));
        length = length < 1e-12f ? 1e-12f : length;
        k->length[i] = length;
        for (int d = 0; d < k->dims; d++)
            k->unit[i * k->dims + d] = x[d] / length;
    }
}

/* Of anchor i: log_sum = ln sum_j exp s(i, j), loss = log_sum - s(i, i). */
struct k_pair_anchor {
    const float *anchor, *other; /* (count, dims) */
    float *log_sum, *loss;
    int count, dims;
    float scale;                 /* 1 / tau */
};
KERNEL void k_pair_anchor_range(const struct k_pair_anchor *k, int64_t i0, int64_t i1)
{
    for (int64_t i = i0; i < i1; i++) {
        const float *a = k->anchor + i * k->dims;
        float sum = 0;
        for (int j = 0; j < k->count; j++)
            sum += k_exp(k->scale * k_dot(a, k->other + (int64_t)j * k->dims, k->dims));
        k->log_sum[i] = k_log(sum);
        k->loss[i] = k->log_sum[i] - k->scale * k_dot(a, k->other + i * k->dims, k->dims);
    }
}

/* dx += size * what is left of pull, a gradient by the unit u of x, behind the division by |x|. */
KERNEL void k_pair_through(float *dx, const float *pull, const float *u, int dims, float size)
{
    float along = k_dot(pull, u, dims);
    for (int d = 0; d < dims; d++)
        dx[d] += size * (pull[d] - along * u[d]);
}

/* dx += weight * gradient by row x, whose unit is `own`: pull = sum_j exp(s - log_sum of the anchor) other(j)
 * - other(i), through the division by |x|. */
struct k_pair_grad {
    const float *own, *other;    /* (count, dims) */
    const float *log_sum, *length;
    float *pull, *dx;            /* (count, dims) */
    int count, dims, own_is_anchor;
    float scale, weight;
};
KERNEL void k_pair_grad_range(const struct k_pair_grad *k, int64_t i0, int64_t i1)
{
    const int dims = k->dims;
    for (int64_t i = i0; i < i1; i++) {
        const float *u = k->own + i * dims;
        float *pull = k->pull + i * dims, *dx = k->dx + i * dims;
        for (int d = 0; d < dims; d++)
            pull[d] = -k->other[i * dims + d];
        for (int j = 0; j < k->count; j++) {
            const float *v = k->other + (int64_t)j * dims;
            float share = k_exp(k->scale * k_dot(u, v, dims) - k->log_sum[k->own_is_anchor ? i : j]);
            for (int d = 0; d < dims; d++)
                pull[d] += share * v[d];
        }
        k_pair_through(dx, pull, u, dims, k->weight * k->scale / k->length[i]);
    }
}

/* ---- rows of one list that are like or unlike each other ---------------------------------------- */

/*     z(i) = sum over all j unlike i of exp s(i, j)
 *     loss = sum over all j like i of ln(exp s(i, j) + z(i)) - s(i, j)
 *
 * Who is like whom is told by a table, kind(i, j), which need not be symmetric: that of the anchor counts. */
enum relation { RELATION_NONE, RELATION_LIKE, RELATION_UNLIKE };

/* Of anchor i: z, loss, and rest = sum over all j like i of 1 / (exp s(i, j) + z). */
struct k_relate {
    const float *unit;           /* (count, dims) */
    const uint8_t *kind;         /* (count, count) */
    float *z, *rest, *loss;
    int count, dims;
    float scale;                 /* 1 / tau */
};
KERNEL void k_relate_range(const struct k_relate *k, int64_t i0, int64_t i1)
{
    for (int64_t i = i0; i < i1; i++) {
        const float *a = k->unit + i * k->dims;
        const uint8_t *kind = k->kind + i * k->count;
        float z = 0, rest = 0, loss = 0;
        for (int j = 0; j < k->count; j++)
            if (kind[j] == RELATION_UNLIKE)
                z += k_exp(k->scale * k_dot(a, k->unit + (int64_t)j * k->dims, k->dims));
        for (int j = 0; j < k->count; j++) {
            if (kind[j] != RELATION_LIKE)
                continue;
            float s = k->scale * k_dot(a, k->unit + (int64_t)j * k->dims, k->dims), all = k_exp(s) + z;
            loss += k_log(all) - s;
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

/* dx += weight * gradient by row x, both as an anchor and as one that others are told by. */
struct k_relate_grad {
    const float *unit, *length;
    const uint8_t *kind;
    const float *z, *rest;
    float *pull, *dx;            /* (count, dims) */
    int count, dims;
    float scale, weight;
};
KERNEL void k_relate_grad_range(const struct k_relate_grad *k, int64_t i0, int64_t i1)
{
    const int dims = k->dims;
    for (int64_t i = i0; i < i1; i++) {
        const float *u = k->unit + i * dims;
        float *pull = k->pull + i * dims, *dx = k->dx + i * dims;
        for (int d = 0; d < dims; d++)
            pull[d] = 0;
        for (int64_t j = 0; j < k->count; j++) {
            int own = k->kind[i * k->count + j], its = k->kind[j * k->count + i];
            const float *v = k->unit + j * dims;
            if (own == RELATION_NONE && its == RELATION_NONE)
                continue;
            float e = k_exp(k->scale * k_dot(u, v, dims));
            float slope = k_relate_slope(own, e, k->z[i], k->rest[i]) +
                          k_relate_slope(its, e, k->z[j], k->rest[j]);
            for (int d = 0; d < dims; d++)
                pull[d] += slope * v[d];
        }
        k_pair_through(dx, pull, u, dims, k->weight * k->scale / k->length[i]);
    }
}

/* Sum of numbers. */
struct r_total {
    const float *x;
};
KERNEL void r_total_range(const struct r_total *k, int64_t i0, int64_t i1, float *sums)
{
    float x[1][K_LANES];
    EACH_CHUNK(i, n, i0, i1) {
        k_load(x, k->x + i, 1, 1, n);
        k_add(sums, 0, x[0]);
    }
}

#define KERNELS_PAIRS(X) X(pair_unit) X(pair_anchor) X(pair_grad) X(relate) X(relate_grad)
#define REDUCES_PAIRS(X) X(total)

#endif
