/* kernels_branch.h - voxel loops of losses between the outputs of one network, its branches. Part of
 * kernels.h; see there for the form of a body. All branches are read at once, so what they say of a voxel
 * meets in registers and nothing of the size of the logits is stored.
 */
#ifndef FALX_KERNELS_BRANCH_H
#define FALX_KERNELS_BRANCH_H

#include "device/kernels_loss.h"

enum { K_BRANCHES = 4 };

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
    const int classes = b->classes;
    for (int k = 0; k < b->n; k++) {
        k_load(p[k], b->logits[k] + i * classes, classes, classes, n);
        for (int c = 0; c < classes; c++)
            EACH_LANE(j) p[k][c][j] *= sharpness;
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
    EACH_CHUNK(i, n, i0, i1) {
        k_branch_softmax(&k->b, p, 1.0f, i, n);
        k_branch_softmax(&k->b, q, k->sharpness, i, n);
        k_load_weights(w, NULL, i, n);
        EACH_LANE(j) square[j] = 0;
        for (int a = 0; a < k->askers; a++)
            for (int o = 0; o < k->b.n; o++)
                for (int c = 0; o != a && c < k->b.classes; c++)
                    EACH_LANE(j) square[j] += (p[a][c][j] - q[o][c][j]) * (p[a][c][j] - q[o][c][j]);
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
    const int classes = k->b.classes;
    EACH_CHUNK(i, n, i0, i1) {
        k_branch_softmax(&k->b, p, 1.0f, i, n);
        k_branch_softmax(&k->b, q, k->sharpness, i, n);
        for (int a = 0; a < k->b.n; a++) {
            float *to = k->dlogits[a] + i * classes;
            const float own = k->scale, sharp = k->scale * k->sharpness;
            k_clear(g, classes);
            for (int o = 0; a < k->askers && o < k->b.n; o++)
                for (int c = 0; o != a && c < classes; c++)
                    EACH_LANE(j) g[c][j] += own * (p[a][c][j] - q[o][c][j]);
            k_through_softmax(g, p[a], classes);
            k_add_rows(to, g, classes, classes, n, 0);
            k_clear(g, classes);
            for (int o = 0; o < k->askers; o++)
                for (int c = 0; o != a && c < classes; c++)
                    EACH_LANE(j) g[c][j] += sharp * (q[a][c][j] - p[o][c][j]);
            k_through_softmax(g, q[a], classes);
            k_add_rows(to, g, classes, classes, n, 0);
        }
    }
}

#define KERNELS_BRANCH(X) X(mutual_grad)
#define REDUCES_BRANCH(X) X(mutual)

#endif
