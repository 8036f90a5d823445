/* kernels_loss.h - voxel loops of the losses on logits. Part of kernels.h; see there for the form
 * of a body.
 *
 *     logits (v, c) --k_load--> z[c][lane] --k_shift_exp, k_scale--> softmax --> sums | gradients
 *
 * Softmax and its logarithm are made from z - max(z), so logits of any finite size are fine. What
 * is not finite stays so up to the sums, where the training loop sees it and skips the step. Labels
 * are classes; one that is not would match none, and nothing is read out of bounds for it.
 *
 * The low-rank Gaussian (k_gauss) draws, per voxel and class, the antithetic logit samples
 *
 *     g(+-j, c) = mean(c) +- [ m * sum_k eps(j,k) * factor(k,c)  +  sqrt(D(c)) * eta(j,c) ]
 *     D = m * (exp(diag) + 1e-5) + 1e-5,   m = mask, 0 or 1
 *
 * again in every pass: eta is a function of (item, voxel, j, c), so nothing of the size of the
 * samples is ever stored. The four normals of random block b of a voxel are the rows 4b .. 4b+3 of
 * (j, c), c fastest.
 */
#ifndef FALX_KERNELS_LOSS_H
#define FALX_KERNELS_LOSS_H

#include "device/kernels_math.h"

enum { GAUSS_PAIRS = 8, GAUSS_RANK = 16 };

/* ---- softmax --------------------------------------------------------------------------------- */

/* z(c) becomes exp(z(c) - max), max its largest, total the sum. */
KERNEL void k_shift_exp(float (*z)[K_LANES], int classes, float *max, float *total)
{
    if (classes == 2) { /* one of the two exponentials is 1 */
        EACH_LANE(j) {
            float d = z[1][j] - z[0][j];
            float e = k_exp(-fabsf(d)) + (d - d); /* d - d: what is not finite stays so */
            max[j] = k_max(z[0][j], z[1][j]);
            z[0][j] = d > 0 ? e : 1.0f;
            z[1][j] = d > 0 ? 1.0f : e;
            total[j] = 1.0f + e;
        }
        return;
    }
    EACH_LANE(j) {
        max[j] = z[0][j];
        total[j] = 0;
    }
    for (int c = 1; c < classes; c++)
        EACH_LANE(j) max[j] = k_max(z[c][j], max[j]);
    for (int c = 0; c < classes; c++) {
        EACH_LANE(j) {
            z[c][j] = k_exp(z[c][j] - max[j]);
            total[j] += z[c][j];
        }
    }
}

KERNEL void k_softmax(float (*z)[K_LANES], int classes)
{
    float max[K_LANES], total[K_LANES];
    k_shift_exp(z, classes, max, total);
    EACH_LANE(j) total[j] = 1.0f / total[j];
    for (int c = 0; c < classes; c++)
        EACH_LANE(j) z[c][j] *= total[j];
}

/* nll = -ln softmax(z) of the label's class, and z becomes exp(z - max), total its sum. */
KERNEL void k_nll(float *nll, float (*z)[K_LANES], float *total, int classes, const int32_t *label)
{
    float own[K_LANES] = {0}, max[K_LANES];
    for (int c = 0; c < classes; c++)
        EACH_LANE(j) own[j] = label[j] == c ? z[c][j] : own[j];
    k_shift_exp(z, classes, max, total);
    EACH_LANE(j) nll[j] = k_log(total[j]) + (max[j] - own[j]);
}

/* Labels of n lanes; -1, which is no class, in the others. */
KERNEL void k_load_labels(int32_t *out, const uint8_t *label, int64_t n)
{
    for (int64_t j = 0; j < n; j++)
        out[j] = label[j];
    for (int64_t j = n; j < K_LANES; j++)
        out[j] = -1;
}

/* Weights of n lanes (1 if there are none), 0 in the others. */
KERNEL void k_load_weights(float *out, const float *weight, int64_t i, int64_t n)
{
    for (int64_t j = 0; j < n; j++)
        out[j] = weight ? weight[i + j] : 1.0f;
    for (int64_t j = n; j < K_LANES; j++)
        out[j] = 0;
}

/* ---- cross-entropy and Dice ------------------------------------------------------------------ */

/* Sums, weighted by voxel: nll, weight, then for every class of Dice p*y, p*p (linear: p), y. */
struct r_ce_dice {
    const float *logits;
    const uint8_t *label;
    const float *weight; /* NULL: 1 */
    int classes;
    int background;      /* 1: class 0 has a Dice, too */
    int linear;          /* 1: Dice without squares */
};
KERNEL void r_ce_dice_range(const struct r_ce_dice *k, int64_t i0, int64_t i1, float *sums)
{
    float z[KERNEL_CLASSES][K_LANES], w[K_LANES], nll[K_LANES], total[K_LANES], t[K_LANES];
    int32_t y[K_LANES];
    const int classes = K_CLASSES(k->classes), first = K_DICE_FIRST(!k->background);
    EACH_CHUNK(i, n, i0, i1) {
        k_load(z, k->logits + i * classes, classes, classes, n);
        k_load_labels(y, k->label + i, n);
        k_load_weights(w, k->weight, i, n);
        k_nll(nll, z, total, classes, y);
        k_add_product(sums, 0, nll, w);
        k_add(sums, 1, w);
        EACH_LANE(j) total[j] = 1.0f / total[j];
        for (int c = first; c < classes; c++) {
            const int at = 2 + 3 * (c - first);
            float *p = z[c];
            EACH_LANE(j) p[j] *= total[j];
            EACH_LANE(j) t[j] = y[j] == c ? w[j] : 0.0f;
            k_add(sums, at + 2, t);
            k_add_product(sums, at, p, t);
            EACH_LANE(j) t[j] = k->linear ? w[j] : p[j] * w[j];
            k_add_product(sums, at + 1, p, t);
        }
    }
}

/* dlogits += w * ( ce * (p - y) + p * (G - sum G p) ) with G(c) = a(c) y + b(c) p, linear: a(c) y + b(c); a
 * class without Dice has zeros there. */
struct k_ce_dice_grad {
    const float *logits;
    const uint8_t *label;
    const float *weight;
    float *dlogits;
    int classes;
    float ce;
    const float *a, *b; /* (classes), device memory */
    int linear;
};
KERNEL void k_ce_dice_grad_range(const struct k_ce_dice_grad *k, int64_t i0, int64_t i1)
{
    float z[KERNEL_CLASSES][K_LANES], w[K_LANES], dot[K_LANES];
    int32_t y[K_LANES];
    const int classes = K_CLASSES(k->classes);
    EACH_CHUNK(i, n, i0, i1) {
        k_load(z, k->logits + i * classes, classes, classes, n);
        k_load_labels(y, k->label + i, n);
        k_load_weights(w, k->weight, i, n);
        k_softmax(z, classes);
        EACH_LANE(j) dot[j] = 0;
        for (int c = 0; c < classes; c++) {
            float a = k->a[c], b = k->b[c], *p = z[c];
            EACH_LANE(j) dot[j] += p[j] * ((y[j] == c ? a : 0.0f) + b * (k->linear ? 1.0f : p[j]));
        }
        for (int c = 0; c < classes; c++) {
            float a = k->a[c], b = k->b[c], ce = k->ce, *p = z[c];
            EACH_LANE(j) {
                float own = y[j] == c ? 1.0f : 0.0f, g = a * own + b * (k->linear ? 1.0f : p[j]) - dot[j];
                p[j] = w[j] * (ce * (p[j] - own) + p[j] * g);
            }
        }
        k_add_rows(k->dlogits + i * classes, z, classes, classes, n, 0);
    }
}

/* ---- without labels -------------------------------------------------------------------------- */

/* prob = share * softmax(logits), or, unless it is fresh, that is added. */
struct k_add_softmax {
    const float *logits;
    float *prob;
    int classes;
    float share;
    int fresh;
};
KERNEL void k_add_softmax_range(const struct k_add_softmax *k, int64_t i0, int64_t i1)
{
    float z[KERNEL_CLASSES][K_LANES];
    const int classes = k->classes;
    const float share = k->share;
    EACH_CHUNK(i, n, i0, i1) {
        k_load(z, k->logits + i * classes, classes, classes, n);
        k_softmax(z, classes);
        for (int c = 0; c < classes; c++)
            EACH_LANE(j) z[c][j] *= share;
        k_add_rows(k->prob + i * classes, z, classes, classes, n, k->fresh);
    }
}

/* z, a gradient by probabilities p, becomes that by logits: p * (z - sum z p). */
KERNEL void k_through_softmax(float (*z)[K_LANES], float (*p)[K_LANES], int classes)
{
    float dot[K_LANES] = {0};
    for (int c = 0; c < classes; c++)
        EACH_LANE(j) dot[j] += z[c][j] * p[c][j];
    for (int c = 0; c < classes; c++)
        EACH_LANE(j) z[c][j] = p[c][j] * (z[c][j] - dot[j]);
}

/* Sums, weighted by voxel: (p - target)^2 over all classes, weight. */
struct r_mse {
    const float *logits, *target; /* target: probabilities */
    const float *weight;          /* NULL: 1 */
    int classes;
};
KERNEL void r_mse_range(const struct r_mse *k, int64_t i0, int64_t i1, float *sums)
{
    float p[KERNEL_CLASSES][K_LANES], q[KERNEL_CLASSES][K_LANES], w[K_LANES], square[K_LANES];
    const int classes = k->classes;
    EACH_CHUNK(i, n, i0, i1) {
        k_load(p, k->logits + i * classes, classes, classes, n);
        k_load(q, k->target + i * classes, classes, classes, n);
        k_load_weights(w, k->weight, i, n);
        k_softmax(p, classes);
        EACH_LANE(j) square[j] = 0;
        for (int c = 0; c < classes; c++)
            EACH_LANE(j) square[j] += (p[c][j] - q[c][j]) * (p[c][j] - q[c][j]);
        k_add_product(sums, 0, square, w);
        k_add(sums, 1, w);
    }
}

/* dlogits += w * scale * (p - target), through softmax. */
struct k_mse_grad {
    const float *logits, *target, *weight;
    float *dlogits;
    int classes;
    float scale;
};
KERNEL void k_mse_grad_range(const struct k_mse_grad *k, int64_t i0, int64_t i1)
{
    float p[KERNEL_CLASSES][K_LANES], q[KERNEL_CLASSES][K_LANES], w[K_LANES];
    const int classes = k->classes;
    const float scale = k->scale;
    EACH_CHUNK(i, n, i0, i1) {
        k_load(p, k->logits + i * classes, classes, classes, n);
        k_load(q, k->target + i * classes, classes, classes, n);
        k_load_weights(w, k->weight, i, n);
        k_softmax(p, classes);
        for (int c = 0; c < classes; c++)
            EACH_LANE(j) q[c][j] = w[j] * scale * (p[c][j] - q[c][j]);
        k_through_softmax(q, p, classes);
        k_add_rows(k->dlogits + i * classes, q, classes, classes, n, 0);
    }
}

/* Keeps p ln p and its slope finite at p = 0; as published with the entropies below. */
#define K_LOG_FLOOR 1e-6f

/* Sum of the voxels' entropies, -sum p ln(p + floor) over classes. */
struct r_entropy {
    const float *logits;
    int classes;
};
KERNEL void r_entropy_range(const struct r_entropy *k, int64_t i0, int64_t i1, float *sums)
{
    float p[KERNEL_CLASSES][K_LANES], one[K_LANES], value[K_LANES];
    const int classes = k->classes;
    EACH_CHUNK(i, n, i0, i1) {
        k_load(p, k->logits + i * classes, classes, classes, n);
        k_load_weights(one, NULL, i, n); /* lanes not in use count 0 */
        k_softmax(p, classes);
        EACH_LANE(j) value[j] = 0;
        for (int c = 0; c < classes; c++)
            EACH_LANE(j) value[j] -= p[c][j] * k_log(p[c][j] + K_LOG_FLOOR);
        k_add_product(sums, 0, value, one);
    }
}

/* dlogits += scale * its derivative, -ln(p + floor) - p / (p + floor), through softmax. */
struct k_entropy_grad {
    const float *logits;
    float *dlogits;
    int classes;
    float scale;
};
KERNEL void k_entropy_grad_range(const struct k_entropy_grad *k, int64_t i0, int64_t i1)
{
    float p[KERNEL_CLASSES][K_LANES], g[KERNEL_CLASSES][K_LANES];
    const int classes = k->classes;
    const float scale = k->scale;
    EACH_CHUNK(i, n, i0, i1) {
        k_load(p, k->logits + i * classes, classes, classes, n);
        k_softmax(p, classes);
        for (int c = 0; c < classes; c++) {
            EACH_LANE(j) {
                float t = p[c][j] + K_LOG_FLOOR;
                g[c][j] = -scale * (k_log(t) + p[c][j] / t);
            }
        }
        k_through_softmax(g, p, classes);
        k_add_rows(k->dlogits + i * classes, g, classes, classes, n, 0);
    }
}

/* weight = 1 where the entropy of these probabilities is below limit, else 0. */
struct k_certain {
    const float *prob;
    float *weight;
    int classes;
    float limit;
};
KERNEL void k_certain_range(const struct k_certain *k, int64_t i0, int64_t i1)
{
    float p[KERNEL_CLASSES][K_LANES], value[K_LANES];
    const int classes = k->classes;
    const float limit = k->limit;
    EACH_CHUNK(i, n, i0, i1) {
        k_load(p, k->prob + i * classes, classes, classes, n);
        EACH_LANE(j) value[j] = 0;
        for (int c = 0; c < classes; c++)
            EACH_LANE(j) value[j] -= p[c][j] * k_log(p[c][j] + K_LOG_FLOOR);
        for (int64_t j = 0; j < n; j++)
            k->weight[i + j] = value[j] < limit ? 1.0f : 0.0f;
    }
}

/* ---- labels and noise ------------------------------------------------------------------------ */

/* label = first class of largest logit; confidence, if wanted, its probability. */
struct k_hard_label {
    const float *logits;
    uint8_t *label;
    float *confidence;
    int classes;
};
KERNEL void k_hard_label_range(const struct k_hard_label *k, int64_t i0, int64_t i1)
{
    float z[KERNEL_CLASSES][K_LANES], max[K_LANES], total[K_LANES];
    int32_t best[K_LANES];
    const int classes = K_CLASSES(k->classes);
    EACH_CHUNK(i, n, i0, i1) {
        k_load(z, k->logits + i * classes, classes, classes, n);
        EACH_LANE(j) {
            max[j] = z[0][j];
            best[j] = 0;
        }
        for (int c = 1; c < classes; c++) {
            EACH_LANE(j) {
                best[j] = z[c][j] > max[j] ? c : best[j];
                max[j] = k_max(z[c][j], max[j]);
            }
        }
        for (int64_t j = 0; j < n; j++)
            k->label[i + j] = (uint8_t)best[j];
        if (!k->confidence)
            continue;
        k_shift_exp(z, classes, max, total);
        for (int64_t j = 0; j < n; j++)
            k->confidence[i + j] = 1.0f / total[j];
    }
}

/* out = in + clip(sd * normal, +-2 sd). An index is a random block: elements 4i .. 4i+3. */
struct k_noise {
    float *out;
    const float *in;
    int64_t count;
    float sd;
    uint64_t seed, step;
    uint32_t stream;
};
KERNEL void k_noise_range(const struct k_noise *k, int64_t i0, int64_t i1)
{
    float x[4][K_LANES];
    const float sd = k->sd;
    EACH_CHUNK(i, n, i0, i1) {
        k_normals(x, k->seed, k->step, k->stream, (uint64_t)i, 1);
        int64_t last = k->count - 4 * i < 4 * n ? k->count - 4 * i : 4 * n;
        for (int64_t e = 0; e < last; e++) {
            float v = x[e & 3][e >> 2];
            v = v > 2.0f ? 2.0f : v;
            v = v < -2.0f ? -2.0f : v;
            k->out[4 * i + e] = k->in[4 * i + e] + sd * v;
        }
    }
}

/* ---- the low-rank Gaussian ------------------------------------------------------------------- */

/* One item of one network's distribution. */
struct k_gauss {
    const float *mean, *diag, *factor; /* (v, classes), (v, classes), (v, rank * classes) */
    const uint8_t *mask;               /* NULL: 1 everywhere */
    int classes, rank, pairs;
    uint32_t wanted;                   /* bit j: pair j is looked at; the others stay undefined */
    uint64_t seed, step, first;        /* first: random index of voxel 0 */
    uint32_t stream;
    float eps[GAUSS_PAIRS][GAUSS_RANK];
};
struct k_gauss_grad {
    float *mean, *diag, *factor; /* gradients to add to; NULL: not wanted */
    int fresh;                   /* 1: to be set instead */
};

/* What a chunk of voxels draws. */
struct k_gauss_lanes {
    float mean[KERNEL_CLASSES][K_LANES];
    float slope[KERNEL_CLASSES][K_LANES]; /* d sqrt(D) / d diag */
    float mask[K_LANES];
    float eta[GAUSS_ROWS][K_LANES], delta[GAUSS_ROWS][K_LANES];
};

KERNEL uint64_t k_gauss_blocks(const struct k_gauss *g)
{
    return (uint64_t)((K_PAIRS(g->pairs) * K_CLASSES(g->classes) + 3) / 4);
}

KERNEL int k_gauss_wants(const struct k_gauss *g, int block)
{
    const int classes = K_CLASSES(g->classes);
    int first = 4 * block / classes, last = (4 * block + 3) / classes, any = 0;
    for (int p = first; p <= last; p++)
        any |= (int)(g->wanted >> p) & 1;
    return any;
}

/* delta(j,c) = sqrt(D(c)) * eta(j,c), and the slope. */
KERNEL void k_gauss_diagonal(const struct k_gauss *g, struct k_gauss_lanes *l, int64_t i, int64_t n)
{
    const int classes = K_CLASSES(g->classes), pairs = K_PAIRS(g->pairs);
    float root[K_LANES];
    k_load(l->slope, g->diag + i * classes, classes, classes, n);
    K_UNROLL
    for (int c = 0; c < classes; c++) {
        EACH_LANE(j) {
            float e = k_exp(l->slope[c][j]);
            root[j] = sqrtf(l->mask[j] * (e + 1e-5f) + 1e-5f);
            l->slope[c][j] = l->mask[j] * e / (2.0f * root[j]);
        }
        K_UNROLL
        for (int p = 0; p < pairs; p++)
            EACH_LANE(j) l->delta[p * classes + c][j] = root[j] * l->eta[p * classes + c][j];
    }
}

/* delta(j,c) += m * sum_k eps(j,k) * factor(k,c). */
KERNEL void k_gauss_low_rank(const struct k_gauss *g, struct k_gauss_lanes *l, int64_t i, int64_t n)
{
    const int classes = K_CLASSES(g->classes), pairs = K_PAIRS(g->pairs);
    const int channels = K_RANK(g->rank) * classes;
    float w[K_TILE][K_LANES];
    K_UNROLL
    for (int q = 0; q < channels; q++) {
        int k = q / classes, c = q % classes, t = q % K_TILE;
        if (t == 0)
            k_load(w, g->factor + i * channels + q, channels - q < K_TILE ? channels - q : K_TILE,
                   channels, n);
        EACH_LANE(j) w[t][j] *= l->mask[j];
        K_UNROLL
        for (int p = 0; p < pairs; p++) {
            float eps = g->eps[p][k], *delta = l->delta[p * classes + c];
            EACH_LANE(j) delta[j] += eps * w[t][j];
        }
    }
}

KERNEL void k_gauss_draw(const struct k_gauss *g, struct k_gauss_lanes *l, int64_t i, int64_t n)
{
    const uint64_t blocks = k_gauss_blocks(g);
    const int classes = K_CLASSES(g->classes);
    K_UNROLL
    for (int b = 0; b < (int)blocks; b++)
        if (k_gauss_wants(g, b))
            k_normals(l->eta + 4 * b, g->seed, g->step, g->stream,
                      (g->first + (uint64_t)i) * blocks + (uint64_t)b, blocks);
    for (int64_t j = 0; j < K_LANES; j++)
        l->mask[j] = j < n && g->mask ? (float)(g->mask[i + j] != 0) : 1.0f;
    k_load(l->mean, g->mean + i * classes, classes, classes, n);
    k_gauss_diagonal(g, l, i, n);
    k_gauss_low_rank(g, l, i, n);
}

/* Logits of sample s: the first half is mean + delta, the second mean - delta. */
KERNEL void k_gauss_sample(const struct k_gauss *g, const struct k_gauss_lanes *l, int s,
                           float (*z)[K_LANES])
{
    const int classes = K_CLASSES(g->classes), pairs = K_PAIRS(g->pairs);
    int pair = s < pairs ? s : s - pairs;
    float sign = s < pairs ? 1.0f : -1.0f;
    K_UNROLL
    for (int c = 0; c < classes; c++) {
        const float *mean = l->mean[c], *delta = l->delta[pair * classes + c];
        EACH_LANE(j) z[c][j] = mean[j] + sign * delta[j];
    }
}

/* The gradient of factor: channel (k,c) += m * sum_j eps(j,k) * odd(j,c). */
KERNEL void k_gauss_add_low_rank(const struct k_gauss *g, const struct k_gauss_grad *d,
                                 const struct k_gauss_lanes *l, int64_t i, int64_t n,
                                 float (*odd)[K_LANES])
{
    const int classes = K_CLASSES(g->classes), pairs = K_PAIRS(g->pairs);
    const int channels = K_RANK(g->rank) * classes;
    float w[K_TILE][K_LANES];
    K_UNROLL
    for (int q = 0; q < channels; q++) {
        int k = q / classes, c = q % classes, t = q % K_TILE;
        EACH_LANE(j) w[t][j] = 0;
        K_UNROLL
        for (int p = 0; p < pairs; p++) {
            float eps = g->eps[p][k];
            if (g->wanted >> p & 1)
                EACH_LANE(j) w[t][j] += eps * odd[p * classes + c][j];
        }
        EACH_LANE(j) w[t][j] *= l->mask[j];
        if (t == K_TILE - 1 || q == channels - 1)
            k_add_rows(d->factor + i * channels + q - t, w, t + 1, channels, n, d->fresh);
    }
}

/* Brings gradients by sample to the parameters. even(c): sum over samples; odd(j,c): that of +j
 * less that of -j. */
KERNEL void k_gauss_add_grad(const struct k_gauss *g, const struct k_gauss_grad *d,
                             const struct k_gauss_lanes *l, int64_t i, int64_t n,
                             float (*even)[K_LANES], float (*odd)[K_LANES])
{
    const int classes = K_CLASSES(g->classes), pairs = K_PAIRS(g->pairs);
    if (d->mean)
        k_add_rows(d->mean + i * classes, even, classes, classes, n, d->fresh);
    if (d->factor)
        k_gauss_add_low_rank(g, d, l, i, n, odd);
    if (!d->diag)
        return;
    K_UNROLL
    for (int c = 0; c < classes; c++) { /* even has been used up: it takes the gradient of diag */
        EACH_LANE(j) even[c][j] = 0;
        K_UNROLL
        for (int p = 0; p < pairs; p++) {
            if (g->wanted >> p & 1)
                EACH_LANE(j) even[c][j] += l->eta[p * classes + c][j] * odd[p * classes + c][j];
        }
        EACH_LANE(j) even[c][j] *= l->slope[c][j];
    }
    k_add_rows(d->diag + i * classes, even, classes, classes, n, d->fresh);
}

KERNEL void k_clear(float (*x)[K_LANES], int rows)
{
    K_UNROLL
    for (int r = 0; r < rows; r++)
        EACH_LANE(j) x[r][j] = 0;
}

/* even and odd take the gradient z of sample s. */
KERNEL void k_gauss_take(const struct k_gauss *g, int s, float (*z)[K_LANES],
                         float (*even)[K_LANES], float (*odd)[K_LANES])
{
    const int classes = K_CLASSES(g->classes), pairs = K_PAIRS(g->pairs);
    int pair = s < pairs ? s : s - pairs;
    float sign = s < pairs ? 1.0f : -1.0f;
    K_UNROLL
    for (int c = 0; c < classes; c++) {
        float *to = odd[pair * classes + c];
        EACH_LANE(j) {
            even[c][j] += z[c][j];
            to[j] += sign * z[c][j];
        }
    }
}

/* ---- Monte-Carlo likelihood ------------------------------------------------------------------ */

/* Sum s: -ln softmax of the label's class under sample s. */
struct r_sample_nll {
    struct k_gauss g;
    const uint8_t *label;
};
KERNEL void r_sample_nll_range(const struct r_sample_nll *k, int64_t i0, int64_t i1, float *sums)
{
    struct k_gauss_lanes l;
    float z[KERNEL_CLASSES][K_LANES], nll[K_LANES], total[K_LANES];
    int32_t y[K_LANES];
    const int samples = 2 * K_PAIRS(k->g.pairs), classes = K_CLASSES(k->g.classes);
    EACH_CHUNK(i, n, i0, i1) {
        k_gauss_draw(&k->g, &l, i, n);
        k_load_labels(y, k->label + i, n);
        K_UNROLL
        for (int s = 0; s < samples; s++) {
            k_gauss_sample(&k->g, &l, s, z);
            k_nll(nll, z, total, classes, y);
            for (int64_t j = n; j < K_LANES; j++)
                nll[j] = 0;
            k_add(sums, s, nll);
        }
    }
}

/* Adds sum over s of omega(s) * (softmax(sample s) - y), brought to the parameters. */
struct k_sample_nll_grad {
    struct k_gauss g;
    struct k_gauss_grad d;
    const uint8_t *label;
    float omega[2 * GAUSS_PAIRS];
};
KERNEL void k_sample_nll_grad_range(const struct k_sample_nll_grad *k, int64_t i0, int64_t i1)
{
    struct k_gauss_lanes l;
    float z[KERNEL_CLASSES][K_LANES], even[KERNEL_CLASSES][K_LANES], odd[GAUSS_ROWS][K_LANES];
    int32_t y[K_LANES];
    const int samples = 2 * K_PAIRS(k->g.pairs), classes = K_CLASSES(k->g.classes);
    EACH_CHUNK(i, n, i0, i1) {
        k_gauss_draw(&k->g, &l, i, n);
        k_load_labels(y, k->label + i, n);
        k_clear(even, classes);
        k_clear(odd, samples / 2 * classes);
        K_UNROLL
        for (int s = 0; s < samples; s++) {
            float omega = k->omega[s];
            if (omega == 0)
                continue;
            k_gauss_sample(&k->g, &l, s, z);
            k_softmax(z, classes);
            for (int c = 0; c < classes; c++)
                EACH_LANE(j) z[c][j] = omega * (z[c][j] - (y[j] == c ? 1.0f : 0.0f));
            k_gauss_take(&k->g, s, z, even, odd);
        }
        k_gauss_add_grad(&k->g, &k->d, &l, i, n, even, odd);
    }
}

/* ---- generalised energy distance ------------------------------------------------------------- */

/* prob row s * classes + c of all samples; lanes not in use are 0. */
KERNEL void k_gauss_probs(const struct k_gauss *g, struct k_gauss_lanes *l, int64_t i, int64_t n,
                          float (*prob)[K_LANES])
{
    const int samples = 2 * K_PAIRS(g->pairs), classes = K_CLASSES(g->classes);
    k_gauss_draw(g, l, i, n);
    K_UNROLL
    for (int s = 0; s < samples; s++) {
        float(*p)[K_LANES] = prob + s * classes;
        k_gauss_sample(g, l, s, p);
        k_softmax(p, classes);
        for (int c = 0; n < K_LANES && c < classes; c++)
            for (int64_t j = n; j < K_LANES; j++)
                p[c][j] = 0;
    }
}

/* Sums `at` and on take x(a) x(b), a <= b, of rows `apart` apart; returns the next. */
KERNEL int k_add_triangle(float *sums, int at, float (*x)[K_LANES], const int samples, const int apart)
{
    K_UNROLL
    for (int a = 0; a < samples; a++) {
        K_UNROLL
        for (int b = a; b < samples; b++)
            k_add_product(sums, at++, x[a * apart], x[b * apart]);
    }
    return at;
}

/* For every class c in [c0, c1), P and Q the samples of both networks: sums of P(i) Q(j) for all i,
 * j, then of P(i) P(j) and of Q(i) Q(j) for i <= j. */
struct r_gram {
    struct k_gauss p, q;
    int c0, c1;
};
KERNEL void r_gram_range(const struct r_gram *k, int64_t i0, int64_t i1, float *sums)
{
    struct k_gauss_lanes l;
    float p[2 * GAUSS_ROWS][K_LANES], q[2 * GAUSS_ROWS][K_LANES];
    const int samples = 2 * K_PAIRS(k->p.pairs), classes = K_CLASSES(k->p.classes);
    const int first = K_FIRST(k->c0), end = K_CLASSES(k->c1);
    EACH_CHUNK(i, n, i0, i1) {
        k_gauss_probs(&k->p, &l, i, n, p);
        k_gauss_probs(&k->q, &l, i, n, q);
        int at = 0;
        K_UNROLL
        for (int c = first; c < end; c++) {
            K_UNROLL
            for (int ab = 0; ab < samples * samples; ab++)
                k_add_product(sums, at++, p[ab / samples * classes + c], q[ab % samples * classes + c]);
            at = k_add_triangle(sums, at, p + c, samples, classes);
            at = k_add_triangle(sums, at, q + c, samples, classes);
        }
    }
}

/* With G(a,c) = sum_b mix(c,a,b) Q(b,c) + sum_b mix(c,a,samples+b) P(b,c) = dL/dP(a,c): adds the
 * gradient through softmax to the parameters of p. mix: (classes, samples, 2*samples), device
 * memory. */
struct k_ged_grad {
    struct k_gauss p, q;
    struct k_gauss_grad d;
    const float *mix;
};
KERNEL void k_ged_grad_range(const struct k_ged_grad *k, int64_t i0, int64_t i1)
{
    struct k_gauss_lanes l;
    float p[2 * GAUSS_ROWS][K_LANES], q[2 * GAUSS_ROWS][K_LANES];
    float z[KERNEL_CLASSES][K_LANES], even[KERNEL_CLASSES][K_LANES], odd[GAUSS_ROWS][K_LANES];
    float dot[K_LANES];
    const int samples = 2 * K_PAIRS(k->p.pairs), classes = K_CLASSES(k->p.classes);
    EACH_CHUNK(i, n, i0, i1) {
        k_gauss_probs(&k->q, &l, i, n, q);
        k_gauss_probs(&k->p, &l, i, n, p); /* last: l is p's below */
        k_clear(even, classes);
        k_clear(odd, samples / 2 * classes);
        K_UNROLL
        for (int a = 0; a < samples; a++) {
            float(*own)[K_LANES] = p + a * classes;
            EACH_LANE(j) dot[j] = 0;
            K_UNROLL
            for (int c = 0; c < classes; c++) {
                float mix[4 * GAUSS_PAIRS], g[K_LANES] = {0};
                k_read_row(mix, k->mix + (c * samples + a) * 2 * samples, 2 * samples);
                K_UNROLL
                for (int b = 0; b < samples; b++) {
                    const float *qb = q[b * classes + c], *pb = p[b * classes + c];
                    float to_q = mix[b], to_p = mix[samples + b];
                    EACH_LANE(j) g[j] += to_q * qb[j] + to_p * pb[j];
                }
                EACH_LANE(j) {
                    z[c][j] = g[j];
                    dot[j] += g[j] * own[c][j];
                }
            }
            for (int c = 0; c < classes; c++)
                EACH_LANE(j) z[c][j] = own[c][j] * (z[c][j] - dot[j]);
            k_gauss_take(&k->p, a, z, even, odd);
        }
        k_gauss_add_grad(&k->p, &k->d, &l, i, n, even, odd);
    }
}

#define KERNELS_LOSS(X) X(ce_dice_grad) X(hard_label) X(noise) X(sample_nll_grad) X(ged_grad) \
    X(add_softmax) X(mse_grad) X(entropy_grad) X(certain)
#define REDUCES_LOSS(X) X(ce_dice) X(sample_nll) X(gram) X(mse) X(entropy)

#endif
