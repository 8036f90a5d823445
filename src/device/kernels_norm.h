/* kernels_norm.h - batch norm and dropout as tables, a few hundred numbers a layer, one channel an index,
 * made in double where the voxels are, so that no pass waits for the host. Part of kernels.h.
 *
 * Forward, from the moments of the stored output (mean, var over items and voxels), per item and channel:
 *
 *     k = gamma / sqrt(var + eps),   scale = m k,   shift = m (beta - mean k),   m = 0 or 1/(1-p)
 *
 * Backward, with M = [scale*y + shift > 0], xhat = (y - mean) rstd and N elements a channel:
 *
 *     s1 = sum m M G  = dL/dbeta          s2 = sum m M G xhat  = dL/dgamma
 *     dy = k (m M G - s1/N - xhat s2/N)   so  p = k m,  q = -k rstd s2/N,  r = -k s1/N - q mean
 *
 * With the running statistics, which are constants, q = r = 0. One element or no variance [M11]: eps keeps
 * rstd finite. Moments of one element, which has no variance, and those that are not finite (a diverged step,
 * which the loop discards) do not enter the running statistics.
 */
#ifndef FALX_KERNELS_NORM_H
#define FALX_KERNELS_NORM_H

#include "device/kernels_math.h"

#define K_NORM_EPS 1e-5 /* PyTorch's default */

/* The factors m: one block of random numbers for every item and channel. An index is a channel. */
struct k_drop {
    float *factor; /* (items, c) */
    float p;
    int items, c;
    uint64_t seed, step, first, item; /* random index of channel 0 of the first item; from item to item */
    uint32_t stream;
};
KERNEL void k_drop_range(const struct k_drop *k, int64_t i0, int64_t i1)
{
    uint32_t word[4][K_LANES];
    EACH_CHUNK (i, n, i0, i1) {
        for (int item = 0; item < k->items; item++) {
            k_random(word, k->seed, k->step, k->stream, k->first + (uint64_t)item * k->item + (uint64_t)i, 1);
            for (int64_t j = 0; j < n; j++) {
                int kept = k_uniform(word[0][j]) >= k->p;
                k->factor[(int64_t)item * k->c + i + j] = kept ? 1.0f / (1.0f - k->p) : 0.0f;
            }
        }
    }
}

/* Tables of a forward pass. gamma NULL: no norm, dropout alone. */
struct k_norm_tables {
    const double *batch_mean, *batch_m2; /* of this batch; NULL: the running statistics are used */
    double elements;                     /* that the moments are of */
    const float *gamma, *beta;
    float *running_mean, *running_var; /* moved if there are moments ... */
    double momentum;                   /* ... so far, 1: to where they are */
    const float *factor;               /* (items, c) m; NULL: 1 */
    int items, c;
    double *mean, *rstd;  /* (c), for the backward pass */
    float *center;        /* (c) the mean as float; may be NULL */
    float *scale, *shift; /* (items, c) */
};

/* Moves the running statistics, which were `mean` and `var`. */
KERNEL void k_norm_running(const struct k_norm_tables *k, int64_t j, double mean, double var, double new_mean,
                           double m2)
{
    double unbiased = m2 / (k->elements - 1);
    mean = (1 - k->momentum) * mean + k->momentum * new_mean;
    var = (1 - k->momentum) * var + k->momentum * (unbiased > 0 ? unbiased : 0);
    if (k->elements <= 1 || !isfinite((float)mean) || !isfinite((float)var) || !isfinite(m2))
        return;
    k->running_mean[j] = (float)mean;
    k->running_var[j] = (float)var;
}

/* Channel j. All that is read is read first: a GPU waits for it once. */
KERNEL void k_norm_channel(const struct k_norm_tables *k, int64_t j, double *scale, double *shift)
{
    const int batch = k->batch_m2 != NULL;
    const double gamma = (double)k->gamma[j], beta = (double)k->beta[j];
    const double old_mean = (double)k->running_mean[j], old_var = (double)k->running_var[j];
    const double mean = batch ? k->batch_mean[j] : old_mean, m2 = batch ? k->batch_m2[j] : 0.0;
    const double var = batch ? m2 / k->elements : old_var;
    const double rstd = 1.0 / sqrt((var < 0 ? 0 : var) + K_NORM_EPS);
    k->mean[j] = mean;
    k->rstd[j] = rstd;
    if (batch)
        k_norm_running(k, j, old_mean, old_var, mean, m2);
    if (k->center)
        k->center[j] = (float)mean;
    *scale = gamma * rstd;
    *shift = beta - mean * *scale;
}

KERNEL void k_norm_tables_range(const struct k_norm_tables *k, int64_t i0, int64_t i1)
{
    for (int64_t j = i0; j < i1; j++) {
        double scale = 1.0, shift = 0.0;
        if (k->gamma)
            k_norm_channel(k, j, &scale, &shift);
        for (int64_t at = j; at < (int64_t)k->items * k->c; at += k->c) {
            double m = k->factor ? (double)k->factor[at] : 1.0;
            k->scale[at] = (float)(scale * m);
            k->shift[at] = (float)(shift * m);
        }
    }
}

/* Gradients of gamma and beta, and the tables p, q, r. gamma NULL: no norm. */
struct k_norm_grads {
    const double *sums; /* of norm.h: (2, items, c) */
    const double *mean, *rstd;
    double elements; /* 0: the statistics were constants */
    const float *gamma, *factor;
    int items, c;
    float *dgamma, *dbeta;
    int fresh;        /* 1: they are set, not added to */
    float *dbias;     /* set to 0, if not NULL */
    float *p, *q, *r; /* (items, c) */
};

/* s1 and s2 of channel j. */
KERNEL void k_norm_channel_sums(const struct k_norm_grads *k, int64_t j, double mean, double rstd, double *s1,
                                double *s2)
{
    int64_t nc = (int64_t)k->items * k->c;
    double off = (double)(float)mean - mean, first = 0, second = 0;
    for (int64_t at = j; at < nc; at += k->c) {
        double m = k->factor ? (double)k->factor[at] : 1.0;
        first += m * k->sums[at];
        second += m * (k->sums[nc + at] + off * k->sums[at]);
    }
    *s1 = first;
    *s2 = second * rstd;
}

/* Channel j: its factor, and what q and r are. Reads first, as above. */
KERNEL void k_norm_channel_grads(const struct k_norm_grads *k, int64_t j, double *scale, double *slope,
                                 double *constant)
{
    const double mean = k->mean[j], rstd = k->rstd[j], gamma = (double)k->gamma[j];
    const double dbeta = k->fresh ? 0.0 : (double)k->dbeta[j], dgamma = k->fresh ? 0.0 : (double)k->dgamma[j];
    double s1, s2;
    k_norm_channel_sums(k, j, mean, rstd, &s1, &s2);
    k->dbeta[j] = (float)(dbeta + s1);
    k->dgamma[j] = (float)(dgamma + s2);
    if (k->dbias)
        k->dbias[j] = 0.0f;
    *scale = gamma * rstd;
    if (k->elements > 0) {
        *slope = -*scale * rstd * s2 / k->elements;
        *constant = -*scale * s1 / k->elements - *slope * mean;
    }
}

KERNEL void k_norm_grads_range(const struct k_norm_grads *k, int64_t i0, int64_t i1)
{
    for (int64_t j = i0; j < i1; j++) {
        double scale = 1.0, slope = 0, constant = 0;
        if (k->gamma)
            k_norm_channel_grads(k, j, &scale, &slope, &constant);
        for (int64_t at = j; at < (int64_t)k->items * k->c; at += k->c) {
            k->p[at] = (float)(scale * (k->factor ? (double)k->factor[at] : 1.0));
            k->q[at] = (float)slope;
            k->r[at] = (float)constant;
        }
    }
}

#define KERNELS_NORM(X) X(drop) X(norm_tables) X(norm_grads)

#endif
