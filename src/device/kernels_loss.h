/* kernels_loss.h - voxel loops of the losses on logits. Part of kernels.h; see there for the form
 * of a body.
 *
 *     logits (v, c) --k_load--> z[c][lane] --k_softmax--> probabilities --> sums | gradients
 *
 * Softmax and its logarithm are made from z - max(z), so logits of any finite size are fine. What
 * is not finite stays so up to the sums, where the training loop sees it and skips the step. Labels
 * are classes; one that is not would match none, and nothing is read out of bounds for it.
 */
#ifndef FALX_KERNELS_LOSS_H
#define FALX_KERNELS_LOSS_H

#include "device/kernels_math.h"

/* ---- softmax --------------------------------------------------------------------------------- */

/* z(c) becomes exp(z(c) - max), max its largest, total the sum. */
KERNEL void k_shift_exp(float (*z)[K_LANES], int classes, float *max, float *total)
{
    if (classes == 2) { /* one of the two exponentials is 1 */
        EACH_LANE (j) {
            float d = z[1][j] - z[0][j];
            float e = k_exp(-fabsf(d)) + (d - d); /* d - d: what is not finite stays so */
            max[j] = k_max(z[0][j], z[1][j]);
            z[0][j] = d > 0 ? e : 1.0f;
            z[1][j] = d > 0 ? 1.0f : e;
            total[j] = 1.0f + e;
        }
        return;
    }
    EACH_LANE (j) {
        max[j] = z[0][j];
        total[j] = 0;
    }
    for (int c = 1; c < classes; c++)
        EACH_LANE (j)
            max[j] = k_max(z[c][j], max[j]);
    for (int c = 0; c < classes; c++) {
        EACH_LANE (j) {
            z[c][j] = k_exp(z[c][j] - max[j]);
            total[j] += z[c][j];
        }
    }
}

KERNEL void k_softmax(float (*z)[K_LANES], int classes)
{
    float max[K_LANES], total[K_LANES];
    k_shift_exp(z, classes, max, total);
    EACH_LANE (j)
        total[j] = 1.0f / total[j];
    for (int c = 0; c < classes; c++)
        EACH_LANE (j)
            z[c][j] *= total[j];
}

/* nll = -ln softmax(z) of the label's class, and z becomes exp(z - max), total its sum. */
KERNEL void k_nll(float *nll, float (*z)[K_LANES], float *total, int classes, const int32_t *label)
{
    float own[K_LANES] = {0}, max[K_LANES];
    for (int c = 0; c < classes; c++)
        EACH_LANE (j)
            own[j] = label[j] == c ? z[c][j] : own[j];
    k_shift_exp(z, classes, max, total);
    EACH_LANE (j)
        nll[j] = k_log(total[j]) + (max[j] - own[j]);
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

KERNEL void k_clear(float (*x)[K_LANES], int rows)
{
    K_UNROLL
    for (int r = 0; r < rows; r++)
        EACH_LANE (j)
            x[r][j] = 0;
}

/* ---- cross-entropy and Dice ------------------------------------------------------------------ */

/* Sums, weighted by voxel: nll, weight, then for every class of Dice p*y, p*p (linear: p), y. */
struct r_ce_dice {
    const float *logits;
    const uint8_t *label;
    const float *weight; /* NULL: 1 */
    int classes;
    int background; /* 1: class 0 has a Dice, too */
    int linear;     /* 1: Dice without squares */
};
KERNEL void r_ce_dice_range(const struct r_ce_dice *k, int64_t i0, int64_t i1, float *sums)
{
    float z[KERNEL_CLASSES][K_LANES], w[K_LANES], nll[K_LANES], total[K_LANES], t[K_LANES];
    int32_t y[K_LANES];
    const int classes = K_CLASSES(k->classes), first = K_DICE_FIRST(!k->background);
    EACH_CHUNK (i, n, i0, i1) {
        k_load(z, k->logits + i * classes, classes, classes, n);
        k_load_labels(y, k->label + i, n);
        k_load_weights(w, k->weight, i, n);
        k_nll(nll, z, total, classes, y);
        k_add_product(sums, 0, nll, w);
        k_add(sums, 1, w);
        EACH_LANE (j)
            total[j] = 1.0f / total[j];
        for (int c = first; c < classes; c++) {
            const int at = 2 + 3 * (c - first);
            float *p = z[c];
            EACH_LANE (j)
                p[j] *= total[j];
            EACH_LANE (j)
                t[j] = y[j] == c ? w[j] : 0.0f;
            k_add(sums, at + 2, t);
            k_add_product(sums, at, p, t);
            EACH_LANE (j)
                t[j] = k->linear ? w[j] : p[j] * w[j];
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
    EACH_CHUNK (i, n, i0, i1) {
        k_load(z, k->logits + i * classes, classes, classes, n);
        k_load_labels(y, k->label + i, n);
        k_load_weights(w, k->weight, i, n);
        k_softmax(z, classes);
        EACH_LANE (j)
            dot[j] = 0;
        for (int c = 0; c < classes; c++) {
            float a = k->a[c], b = k->b[c], *p = z[c];
            EACH_LANE (j)
                dot[j] += p[j] * ((y[j] == c ? a : 0.0f) + b * (k->linear ? 1.0f : p[j]));
        }
        for (int c = 0; c < classes; c++) {
            float a = k->a[c], b = k->b[c], ce = k->ce, *p = z[c];
            EACH_LANE (j) {
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
    EACH_CHUNK (i, n, i0, i1) {
        k_load(z, k->logits + i * classes, classes, classes, n);
        k_softmax(z, classes);
        for (int c = 0; c < classes; c++)
            EACH_LANE (j)
                z[c][j] *= share;
        k_add_rows(k->prob + i * classes, z, classes, classes, n, k->fresh);
    }
}

/* z, a gradient by probabilities p, becomes that by logits: p * (z - sum z p). */
KERNEL void k_through_softmax(float (*z)[K_LANES], float (*p)[K_LANES], int classes)
{
    float dot[K_LANES] = {0};
    for (int c = 0; c < classes; c++)
        EACH_LANE (j)
            dot[j] += z[c][j] * p[c][j];
    for (int c = 0; c < classes; c++)
        EACH_LANE (j)
            z[c][j] = p[c][j] * (z[c][j] - dot[j]);
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
    EACH_CHUNK (i, n, i0, i1) {
        k_load(p, k->logits + i * classes, classes, classes, n);
        k_load(q, k->target + i * classes, classes, classes, n);
        k_load_weights(w, k->weight, i, n);
        k_softmax(p, classes);
        EACH_LANE (j)
            square[j] = 0;
        for (int c = 0; c < classes; c++)
            EACH_LANE (j)
                square[j] += (p[c][j] - q[c][j]) * (p[c][j] - q[c][j]);
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
    EACH_CHUNK (i, n, i0, i1) {
        k_load(p, k->logits + i * classes, classes, classes, n);
        k_load(q, k->target + i * classes, classes, classes, n);
        k_load_weights(w, k->weight, i, n);
        k_softmax(p, classes);
        for (int c = 0; c < classes; c++)
            EACH_LANE (j)
                q[c][j] = w[j] * scale * (p[c][j] - q[c][j]);
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
    EACH_CHUNK (i, n, i0, i1) {
        k_load(p, k->logits + i * classes, classes, classes, n);
        k_load_weights(one, NULL, i, n); /* lanes not in use count 0 */
        k_softmax(p, classes);
        EACH_LANE (j)
            value[j] = 0;
        for (int c = 0; c < classes; c++)
            EACH_LANE (j)
                value[j] -= p[c][j] * k_log(p[c][j] + K_LOG_FLOOR);
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
    EACH_CHUNK (i, n, i0, i1) {
        k_load(p, k->logits + i * classes, classes, classes, n);
        k_softmax(p, classes);
        for (int c = 0; c < classes; c++) {
            EACH_LANE (j) {
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
    EACH_CHUNK (i, n, i0, i1) {
        k_load(p, k->prob + i * classes, classes, classes, n);
        EACH_LANE (j)
            value[j] = 0;
        for (int c = 0; c < classes; c++)
            EACH_LANE (j)
                value[j] -= p[c][j] * k_log(p[c][j] + K_LOG_FLOOR);
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
    EACH_CHUNK (i, n, i0, i1) {
        k_load(z, k->logits + i * classes, classes, classes, n);
        EACH_LANE (j) {
            max[j] = z[0][j];
            best[j] = 0;
        }
        for (int c = 1; c < classes; c++) {
            EACH_LANE (j) {
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
    EACH_CHUNK (i, n, i0, i1) {
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

/* clang-format off */
#define KERNELS_LOSS(X) X(ce_dice_grad) X(hard_label) X(noise) X(add_softmax) X(mse_grad) X(entropy_grad) \
    X(certain)
#define REDUCES_LOSS(X) X(ce_dice) X(mse) X(entropy)
/* clang-format on */

#endif
