/* kernels_gauss.h - voxel loops of AUA's low-rank Gaussian over logits: its samples, the likelihood of labels
 * under them and the energy distance between two networks'. Part of kernels.h; see there for the form of a
 * body.
 *
 * Of every voxel and class k_gauss draws the antithetic logit samples
 *
 *     g(+-j, c) = mean(c) +- [ m * sum_k eps(j,k) * factor(k,c)  +  sqrt(D(c)) * eta(j,c) ]
 *     D = m * (exp(diag) + 1e-5) + 1e-5,   m = mask, 0 or 1
 *
 * again in every pass: eta is a function of (item, voxel, j, c), so nothing of the size of the
 * samples is ever stored. The four normals of random block b of a voxel are the rows 4b .. 4b+3 of
 * (j, c), c fastest.
 */
#ifndef FALX_KERNELS_GAUSS_H
#define FALX_KERNELS_GAUSS_H

#include "device/kernels_loss.h"

enum { GAUSS_PAIRS = 8, GAUSS_RANK = 16 };

/* ---- samples --------------------------------------------------------------------------------- */

/* One item of one network's distribution. */
struct k_gauss {
    const float *mean, *diag, *factor; /* (v, classes), (v, classes), (v, rank * classes) */
    const uint8_t *mask;               /* NULL: 1 everywhere */
    int classes, rank, pairs;
    uint32_t wanted;            /* bit j: pair j is looked at; the others stay undefined */
    uint64_t seed, step, first; /* first: random index of voxel 0 */
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
        EACH_LANE (j) {
            float e = k_exp(l->slope[c][j] > 80.0f ? 80.0f : l->slope[c][j]); /* finite, and so are samples */
            root[j] = sqrtf(l->mask[j] * (e + 1e-5f) + 1e-5f);
            l->slope[c][j] = l->mask[j] * e / (2.0f * root[j]);
        }
        K_UNROLL
        for (int p = 0; p < pairs; p++)
            EACH_LANE (j)
                l->delta[p * classes + c][j] = root[j] * l->eta[p * classes + c][j];
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
            k_load(w, g->factor + i * channels + q, channels - q < K_TILE ? channels - q : K_TILE, channels,
                   n);
        EACH_LANE (j)
            w[t][j] *= l->mask[j];
        K_UNROLL
        for (int p = 0; p < pairs; p++) {
            float eps = g->eps[p][k], *delta = l->delta[p * classes + c];
            EACH_LANE (j)
                delta[j] += eps * w[t][j];
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
KERNEL void k_gauss_sample(const struct k_gauss *g, const struct k_gauss_lanes *l, int s, float (*z)[K_LANES])
{
    const int classes = K_CLASSES(g->classes), pairs = K_PAIRS(g->pairs);
    int pair = s < pairs ? s : s - pairs;
    float sign = s < pairs ? 1.0f : -1.0f;
    K_UNROLL
    for (int c = 0; c < classes; c++) {
        const float *mean = l->mean[c], *delta = l->delta[pair * classes + c];
        EACH_LANE (j)
            z[c][j] = mean[j] + sign * delta[j];
    }
}

/* The gradient of factor: channel (k,c) += m * sum_j eps(j,k) * odd(j,c). */
KERNEL void k_gauss_add_low_rank(const struct k_gauss *g, const struct k_gauss_grad *d,
                                 const struct k_gauss_lanes *l, int64_t i, int64_t n, float (*odd)[K_LANES])
{
    const int classes = K_CLASSES(g->classes), pairs = K_PAIRS(g->pairs);
    const int channels = K_RANK(g->rank) * classes;
    float w[K_TILE][K_LANES];
    K_UNROLL
    for (int q = 0; q < channels; q++) {
        int k = q / classes, c = q % classes, t = q % K_TILE;
        EACH_LANE (j)
            w[t][j] = 0;
        K_UNROLL
        for (int p = 0; p < pairs; p++) {
            float eps = g->eps[p][k];
            if (g->wanted >> p & 1)
                EACH_LANE (j)
                    w[t][j] += eps * odd[p * classes + c][j];
        }
        EACH_LANE (j)
            w[t][j] *= l->mask[j];
        if (t == K_TILE - 1 || q == channels - 1)
            k_add_rows(d->factor + i * channels + q - t, w, t + 1, channels, n, d->fresh);
    }
}

/* Brings gradients by sample to the parameters. even(c): sum over samples; odd(j,c): that of +j
 * less that of -j. */
KERNEL void k_gauss_add_grad(const struct k_gauss *g, const struct k_gauss_grad *d,
                             const struct k_gauss_lanes *l, int64_t i, int64_t n, float (*even)[K_LANES],
                             float (*odd)[K_LANES])
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
        EACH_LANE (j)
            even[c][j] = 0;
        K_UNROLL
        for (int p = 0; p < pairs; p++) {
            if (g->wanted >> p & 1)
                EACH_LANE (j)
                    even[c][j] += l->eta[p * classes + c][j] * odd[p * classes + c][j];
        }
        EACH_LANE (j)
            even[c][j] *= l->slope[c][j];
    }
    k_add_rows(d->diag + i * classes, even, classes, classes, n, d->fresh);
}

/* even and odd take the gradient z of sample s. */
KERNEL void k_gauss_take(const struct k_gauss *g, int s, float (*z)[K_LANES], float (*even)[K_LANES],
                         float (*odd)[K_LANES])
{
    const int classes = K_CLASSES(g->classes), pairs = K_PAIRS(g->pairs);
    int pair = s < pairs ? s : s - pairs;
    float sign = s < pairs ? 1.0f : -1.0f;
    K_UNROLL
    for (int c = 0; c < classes; c++) {
        float *to = odd[pair * classes + c];
        EACH_LANE (j) {
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
    EACH_CHUNK (i, n, i0, i1) {
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
    EACH_CHUNK (i, n, i0, i1) {
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
                EACH_LANE (j)
                    z[c][j] = omega * (z[c][j] - (y[j] == c ? 1.0f : 0.0f));
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
    EACH_CHUNK (i, n, i0, i1) {
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
    EACH_CHUNK (i, n, i0, i1) {
        k_gauss_probs(&k->q, &l, i, n, q);
        k_gauss_probs(&k->p, &l, i, n, p); /* last: l is p's below */
        k_clear(even, classes);
        k_clear(odd, samples / 2 * classes);
        K_UNROLL
        for (int a = 0; a < samples; a++) {
            float(*own)[K_LANES] = p + a * classes;
            EACH_LANE (j)
                dot[j] = 0;
            K_UNROLL
            for (int c = 0; c < classes; c++) {
                float mix[4 * GAUSS_PAIRS], g[K_LANES] = {0};
                k_read_row(mix, k->mix + (c * samples + a) * 2 * samples, 2 * samples);
                K_UNROLL
                for (int b = 0; b < samples; b++) {
                    const float *qb = q[b * classes + c], *pb = p[b * classes + c];
                    float to_q = mix[b], to_p = mix[samples + b];
                    EACH_LANE (j)
                        g[j] += to_q * qb[j] + to_p * pb[j];
                }
                EACH_LANE (j) {
                    z[c][j] = g[j];
                    dot[j] += g[j] * own[c][j];
                }
            }
            for (int c = 0; c < classes; c++)
                EACH_LANE (j)
                    z[c][j] = own[c][j] * (z[c][j] - dot[j]);
            k_gauss_take(&k->p, a, z, even, odd);
        }
        k_gauss_add_grad(&k->p, &k->d, &l, i, n, even, odd);
    }
}

#define KERNELS_GAUSS(X) X(sample_nll_grad) X(ged_grad)
#define REDUCES_GAUSS(X) X(sample_nll) X(gram)

#endif
