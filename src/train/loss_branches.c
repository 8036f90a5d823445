/* loss_branches.c - losses between the outputs of one network: its branches should agree. Nothing is held
 * fixed, gradients go to every branch.
 *
 *     mutual = share * sum over i < askers, j != i of mean (p_i - q_j)^2
 *              p = softmax(z), q = p^h / sum p^h = softmax(h z), h the sharpness; mean: voxels and classes
 *     with e = 2 share (p_i - q_j) / (voxels classes), per pair:
 *     dz_i += p_i (e - sum e p_i),   dz_j -= h q_j (e - sum e q_j)
 *
 * The sharpened side is made from logits, so it needs no care where a probability is 0 or 1.
 *
 *     pyramid = mean over k of A_k / W_k + mean kl_k      (loss.h has the terms)
 *               A_k = mean of s_k (m - p_k)^2,  W_k = mean s_k + 1e-8
 *     by (m - p)^2: s / (voxels classes W);   by s: (m - p)^2 summed / (voxels classes W) - A / (voxels W^2)
 *     by kl: 1 / voxels - s times that;       and on through m, of which every p has its share
 */
#include "train/loss_scratch.h"

_Static_assert((int)LOSS_BRANCHES == (int)K_BRANCHES, "the kernels read as many");

/* Checks that the branches fit each other and what the kernels can take. */
static struct k_branches branches_of(const struct loss_scratch *s, const struct loss_branches *b)
{
    struct k_branches k = {.n = b->n, .classes = s->classes};
    CHECK(b->n >= 2 && b->n <= K_BRANCHES);
    for (int i = 0; i < b->n; i++) {
        CHECK(b->logits[i].c == s->classes && tensor_count(&b->logits[i]) == tensor_count(&b->logits[0]));
        k.logits[i] = b->logits[i].data;
    }
    return k;
}

static void mutual_settle(struct loss_scratch *s, const struct pending *p, const double *sums)
{
    const struct branch_loss *l = &p->of.branches;
    int64_t voxels = tensor_voxels(&l->b.logits[0]);
    double share = l->mutual.share / ((double)voxels * s->classes);
    *p->value = share * sums[0];
    if (l->weight == 0)
        return;
    struct k_mutual_grad k = {.b = branches_of(s, &l->b),
                              .askers = l->mutual.askers,
                              .sharpness = (float)l->mutual.sharpness,
                              .scale = (float)(2 * l->weight * share)};
    for (int i = 0; i < l->b.n; i++)
        k.dlogits[i] = l->b.dlogits[i].data;
    s->dev->ops->map(s->dev, KERNEL_mutual_grad, &k, voxels);
}

void ask_mutual(struct loss_scratch *s, const struct loss_branches *b, const struct mutual *m, double weight,
                double *value)
{
    struct pending *p = loss_ask(s, 1, value);
    p->settle = mutual_settle;
    p->of.branches = (struct branch_loss){.b = *b, .mutual = *m, .weight = weight};
    CHECK(m->askers >= 1 && m->askers <= b->n);
    SUM(s->dev, mutual, tensor_voxels(&b->logits[0]), 1, s->found + p->first, .b = branches_of(s, b),
        .askers = m->askers, .sharpness = (float)m->sharpness);
}

/* Per branch: A and W of the head's formula. */
static void pyramid_means(const struct loss_scratch *s, const double *sums, int64_t voxels, double *A,
                          double *W)
{
    *A = sums[0] / ((double)voxels * s->classes);
    *W = sums[1] / (double)voxels + 1e-8;
}

static void pyramid_settle(struct loss_scratch *s, const struct pending *p, const double *sums)
{
    const struct branch_loss *l = &p->of.branches;
    int64_t voxels = tensor_voxels(&l->b.logits[0]);
    double share = 1.0 / l->b.n, scale = l->weight * share / (double)voxels, A, W;
    struct k_pyramid_grad k = {.b = branches_of(s, &l->b), .by_kl = (float)scale};
    *p->value = 0;
    for (int i = 0; i < l->b.n; i++) {
        pyramid_means(s, sums + 3 * i, voxels, &A, &W);
        *p->value += share * (A / W + sums[3 * i + 2] / (double)voxels);
        k.by_square[i] = (float)(scale / (s->classes * W));
        k.by_sure[i] = (float)(scale * A / (W * W));
        k.dlogits[i] = l->b.dlogits[i].data;
    }
    if (l->weight != 0)
        s->dev->ops->map(s->dev, KERNEL_pyramid_grad, &k, voxels);
}

void ask_pyramid(struct loss_scratch *s, const struct loss_branches *b, double weight, double *value)
{
    struct pending *p = loss_ask(s, 3 * (size_t)b->n, value);
    p->settle = pyramid_settle;
    p->of.branches = (struct branch_loss){.b = *b, .weight = weight};
    SUM(s->dev, pyramid, tensor_voxels(&b->logits[0]), 3 * b->n, s->found + p->first, .b = branches_of(s, b));
}
