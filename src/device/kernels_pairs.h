/* kernels_pairs.h - two lists of rows, of which number i of one belongs to number i of the other: each is to
 * be told from all others (InfoNCE). Part of kernels.h; see there for the form of a body.
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
        float along = k_dot(pull, u, dims), size = k->weight * k->scale / k->length[i];
        for (int d = 0; d < dims; d++)
            dx[d] += size * (pull[d] - along * u[d]);
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

#define KERNELS_PAIRS(X) X(pair_unit) X(pair_anchor) X(pair_grad)
#define REDUCES_PAIRS(X) X(total)

#endif
