/* loss_branches.c - losses between the outputs of one network: its branches should agree. Nothing is held
 * fixed, gradients go to every branch.
 *
 *     mutual = share * sum over i < askers, j != i of mean (p_i - q_j)^2
 *              p = softmax(z), q = p^h / sum p^h = softmax(h z), h the sharpness; mean: voxels and classes
 *     with e = 2 share (p_i - q_j) / (voxels classes), per pair:
 *     dz_i += p_i (e - sum e p_i),   dz_j -= h q_j (e - sum e q_j)
 *
 * The sharpened side is made from logits, so it needs no care where a probability is 0 or 1.
 */
#include "train/loss_scratch.h"

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
    struct k_mutual_grad k = {.b = branches_of(s, &l->b), .askers = l->mutual.askers,
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
