/* kernels_branch.h - voxel loops of losses between the outputs of one network, its branches. Part of
 * kernels.h; see there for the form of a body. All branches are read at once, so what they say of a voxel
 * meets in registers and nothing of the size of the logits is stored.
 */
#ifndef FALX_KERNELS_BRANCH_H
#define FALX_KERNELS_BRANCH_H

#include "device/kernels_loss.h"

enum { K_BRANCHES = 4 };

/* Loop over branches; unrolled for the usual numbers, so that what is said of them stays in registers. */
#if defined(KERNEL_USUAL) && defined(__CUDA_ARCH__)
#define EACH_BRANCH(k, count)                                                                                \
    _Pragma("unroll") for (int k = 0; k < K_BRANCHES; k++) if (k >= (count))                                 \
    {                                                                                                        \
    }                                                                                                        \
    else
#else
#define EACH_BRANCH(k, count) for (int k = 0; k < (count); k++)
#endif

/* Logits of one voxel under every branch. */
struct k_branches {
    const float *logits[K_BRANCHES];
    int n, classes;
};

/* What a chunk of voxels says. */
typedef float k_branch_lanes[K_BRANCHES][KERNEL_CLASSES][K_LANES];

/* p(i) = softmax(sharpness * logits(i)) for n voxels from i on. */
KERNEL void k_branch_softmax(const struct k_branches *b, k_branch_lanes p, float sharpness, int64_t i,
                             int64_t n)
{
    const int classes = K_CLASSES(b->classes);
    EACH_BRANCH (k, b->n) {
        k_load(p[k], b->logits[k] + i * classes, classes, classes, n);
        for (int c = 0; c < classes; c++)
            EACH_LANE (j)
                p[k][c][j] *= sharpness;
        k_softmax(p[k], classes);
    }
}

/* Sum over i < askers, j != i and classes of (p(i) - q(j))^2, p = softmax(logits), q = softmax(sharpness *
 * logits), which is p^sharpness over its sum. */
struct r_mutual {
    struct k_branches b;
    int askers;
    float sharpness;
};
KERNEL void r_mutual_range(const struct r_mutual *k, int64_t i0, int64_t i1, float *sums)
{
    k_branch_lanes p, q;
    float w[K_LANES], square[K_LANES];
    const int classes = K_CLASSES(k->b.classes);
    EACH_CHUNK (i, n, i0, i1) {
        k_branch_softmax(&k->b, p, 1.0f, i, n);
        k_branch_softmax(&k->b, q, k->sharpness, i, n);
        k_load_weights(w, NULL, i, n);
        EACH_LANE (j)
            square[j] = 0;
        EACH_BRANCH (a, k->askers)
            EACH_BRANCH (o, k->b.n)
                for (int c = 0; o != a && c < classes; c++)
                    EACH_LANE (j)
                        square[j] += (p[a][c][j] - q[o][c][j]) * (p[a][c][j] - q[o][c][j]);
        k_add_product(sums, 0, square, w);
    }
}

/* dlogits(i) += scale/2 times the slope of that: through p(i) if i asks, and through q(i). */
struct k_mutual_grad {
    struct k_branches b;
    float *dlogits[K_BRANCHES];
    int askers;
    float sharpness, scale;
};
KERNEL void k_mutual_grad_range(const struct k_mutual_grad *k, int64_t i0, int64_t i1)
{
    k_branch_lanes p, q;
    float g[KERNEL_CLASSES][K_LANES];
    const int classes = K_CLASSES(k->b.classes);
    EACH_CHUNK (i, n, i0, i1) {
        k_branch_softmax(&k->b, p, 1.0f, i, n);
        k_branch_softmax(&k->b, q, k->sharpness, i, n);
        EACH_BRANCH (a, k->b.n) {
            float *to = k->dlogits[a] + i * classes;
            const float own = k->scale, sharp = k->scale * k->sharpness;
            k_clear(g, classes);
            EACH_BRANCH (o, a < k->askers ? k->b.n : 0)
                for (int c = 0; o != a && c < classes; c++)
                    EACH_LANE (j)
                        g[c][j] += own * (p[a][c][j] - q[o][c][j]);
            k_through_softmax(g, p[a], classes);
            k_add_rows(to, g, classes, classes, n, 0);
            k_clear(g, classes);
            EACH_BRANCH (o, k->askers)
                for (int c = 0; o != a && c < classes; c++)
                    EACH_LANE (j)
                        g[c][j] += sharp * (q[a][c][j] - p[o][c][j]);
            k_through_softmax(g, q[a], classes);
            k_add_rows(to, g, classes, classes, n, 0);
        }
    }
}

/* ---- a pyramid of outputs and their mean ------------------------------------------------------ */

/* With m the mean of the branches' p: kl(k) = sum over classes of m (ln m - ln p(k)). */
struct k_pyramid_lanes {
    k_branch_lanes p, log;
    float mean[KERNEL_CLASSES][K_LANES], log_mean[KERNEL_CLASSES][K_LANES];
    float square[K_BRANCHES][K_LANES]; /* sum over classes of (m - p)^2 */
    float sure[K_BRANCHES][K_LANES];   /* exp(-kl) */
    float kl[K_BRANCHES][K_LANES];
};

/* p and ln p of branch k. */
KERNEL void k_pyramid_read(const struct k_branches *b, struct k_pyramid_lanes *l, int k, int64_t i, int64_t n)
{
    const int classes = K_CLASSES(b->classes);
    float max[K_LANES], total[K_LANES];
    k_load(l->p[k], b->logits[k] + i * classes, classes, classes, n);
    for (int c = 0; c < classes; c++)
        EACH_LANE (j)
            l->log[k][c][j] = l->p[k][c][j];
    k_shift_exp(l->p[k], classes, max, total);
    EACH_LANE (j)
        max[j] += k_log(total[j]);
    EACH_LANE (j)
        total[j] = 1.0f / total[j];
    for (int c = 0; c < classes; c++) {
        EACH_LANE (j) {
            l->p[k][c][j] *= total[j];
            l->log[k][c][j] -= max[j];
        }
    }
}

KERNEL void k_pyramid_compare(const struct k_branches *b, struct k_pyramid_lanes *l, int k)
{
    EACH_LANE (j)
        l->kl[k][j] = l->square[k][j] = 0;
    for (int c = 0; c < K_CLASSES(b->classes); c++) {
        EACH_LANE (j) {
            float m = l->mean[c][j], off = m - l->p[k][c][j];
            l->square[k][j] += off * off;
            l->kl[k][j] += m * (l->log_mean[c][j] - l->log[k][c][j]);
        }
    }
    EACH_LANE (j)
        l->sure[k][j] = k_exp(-l->kl[k][j]);
}

KERNEL void k_pyramid_lanes_at(const struct k_branches *b, struct k_pyramid_lanes *l, int64_t i, int64_t n)
{
    const float share = 1.0f / (float)b->n;
    EACH_BRANCH (k, b->n)
        k_pyramid_read(b, l, k, i, n);
    for (int c = 0; c < K_CLASSES(b->classes); c++) {
        EACH_LANE (j)
            l->mean[c][j] = 0;
        EACH_BRANCH (k, b->n)
            EACH_LANE (j)
                l->mean[c][j] += share * l->p[k][c][j];
        /* 1e-37: a class that nobody believes in has a logarithm, times 0 */
        EACH_LANE (j)
            l->log_mean[c][j] = k_log(k_max(l->mean[c][j], 1e-37f));
    }
    EACH_BRANCH (k, b->n)
        k_pyramid_compare(b, l, k);
}

/* Sums 3k .. 3k+2 of branch k: sure * square, sure, kl. */
struct r_pyramid {
    struct k_branches b;
};
KERNEL void r_pyramid_range(const struct r_pyramid *r, int64_t i0, int64_t i1, float *sums)
{
    struct k_pyramid_lanes l;
    float w[K_LANES];
    EACH_CHUNK (i, n, i0, i1) {
        k_pyramid_lanes_at(&r->b, &l, i, n);
        k_load_weights(w, NULL, i, n);
        EACH_BRANCH (k, r->b.n) {
            k_add_product(sums, 3 * k + 2, l.kl[k], w);
            EACH_LANE (j)
                l.sure[k][j] *= w[j];
            k_add(sums, 3 * k + 1, l.sure[k]);
            k_add_product(sums, 3 * k, l.sure[k], l.square[k]);
        }
    }
}

/* dlogits += the gradient of sum over k of  by_square(k) sure square - by_sure(k) sure + by_kl kl. */
struct k_pyramid_grad {
    struct k_branches b;
    float *dlogits[K_BRANCHES];
    float by_square[K_BRANCHES], by_sure[K_BRANCHES], by_kl;
};

/* sure becomes by_square * sure, kl the slope by kl, and g that by the mean. */
KERNEL void k_pyramid_mean_slope(const struct k_pyramid_grad *r, struct k_pyramid_lanes *l,
                                 float (*g)[K_LANES])
{
    const int classes = K_CLASSES(r->b.classes);
    k_clear(g, classes);
    EACH_BRANCH (k, r->b.n) {
        const float square = r->by_square[k], sure = r->by_sure[k], kl = r->by_kl;
        EACH_LANE (j) {
            l->kl[k][j] = kl - l->sure[k][j] * (square * l->square[k][j] - sure);
            l->sure[k][j] *= square;
        }
        for (int c = 0; c < classes; c++)
            EACH_LANE (j)
                g[c][j] += 2.0f * l->sure[k][j] * (l->mean[c][j] - l->p[k][c][j]) +
                           l->kl[k][j] * (l->log_mean[c][j] - l->log[k][c][j] + 1.0f);
    }
}

KERNEL void k_pyramid_grad_range(const struct k_pyramid_grad *r, int64_t i0, int64_t i1)
{
    struct k_pyramid_lanes l;
    float by_mean[KERNEL_CLASSES][K_LANES], g[KERNEL_CLASSES][K_LANES];
    const int classes = K_CLASSES(r->b.classes);
    const float share = 1.0f / (float)r->b.n;
    EACH_CHUNK (i, n, i0, i1) {
        k_pyramid_lanes_at(&r->b, &l, i, n);
        k_pyramid_mean_slope(r, &l, by_mean);
        EACH_BRANCH (k, r->b.n) {
            for (int c = 0; c < classes; c++)
                EACH_LANE (j)
                    g[c][j] = share * by_mean[c][j] - 2.0f * l.sure[k][j] * (l.mean[c][j] - l.p[k][c][j]);
            k_through_softmax(g, l.p[k], classes);
            for (int c = 0; c < classes; c++) /* of -m/p, through softmax: no quotient is left */
                EACH_LANE (j)
                    g[c][j] += l.kl[k][j] * (l.p[k][c][j] - l.mean[c][j]);
            k_add_rows(r->dlogits[k] + i * classes, g, classes, classes, n, 0);
        }
    }
}

#define KERNELS_BRANCH(X) X(mutual_grad) X(pyramid_grad)
#define REDUCES_BRANCH(X) X(mutual) X(pyramid)

#endif
