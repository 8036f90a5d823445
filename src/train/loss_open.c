/* loss_open.c - losses that need no label: agreement with a teacher's probabilities, and certainty.
 *
 *     MSE = sum w (p - q)^2 / (classes * sum w),   p = softmax(logits), q the target
 *     dMSE/dp(c) = 2 w (p - q) / (classes * sum w), then through softmax: p (G - sum G p)
 *
 *     H = - sum p ln(p + 1e-6) / (voxels * ln classes), from 0 to 1
 *     dH/dp(c) = - (ln(p + 1e-6) + p / (p + 1e-6)) / (voxels * ln classes)
 *
 * Sums over voxels and classes, items taken together; without weights that is the plain mean.
 */
#include "train/loss_scratch.h"

#include <math.h>

void soft_labels(struct device *dev, const struct tensor *prob, const struct tensor *logits, double share,
                 int how)
{
    CHECK(logits->c <= KERNEL_CLASSES && tensor_count(prob) == tensor_count(logits));
    RUN(dev, add_softmax, tensor_voxels(logits), .logits = logits->data, .prob = prob->data,
        .classes = logits->c, .share = (float)share, .fresh = how == SOFT_SET);
}

void soft_labels_grad(struct device *dev, const struct tensor *dlogits, const struct tensor *prob,
                      const struct tensor *dprob)
{
    CHECK(prob->c <= KERNEL_CLASSES && tensor_count(prob) == tensor_count(dlogits));
    RUN(dev, softmax_grad, tensor_voxels(prob), .prob = prob->data, .dprob = dprob->data,
        .dlogits = dlogits->data, .classes = prob->c);
}

void certain_voxels(struct device *dev, const struct tensor *weights, const struct tensor *prob, double limit)
{
    CHECK(prob->c <= KERNEL_CLASSES && tensor_count(weights) == tensor_voxels(prob));
    RUN(dev, certain, tensor_voxels(prob), .prob = prob->data, .weight = weights->data, .classes = prob->c,
        .limit = (float)limit);
}

static void mse_settle(struct loss_scratch *s, const struct pending *p, const double *sums)
{
    const struct open_loss *l = &p->of.open;
    double total = s->classes * sums[1];
    *p->value = 0;
    if (l->counted)
        *l->counted = sums[1];
    if (total == 0) /* no voxel takes part */
        return;
    *p->value = sums[0] / total;
    if (l->weight != 0)
        RUN(s->dev, mse_grad, tensor_voxels(&l->logits), .logits = l->logits.data, .target = l->target,
            .weight = l->weights, .dlogits = l->dlogits.data, .classes = s->classes,
            .scale = (float)(2 * l->weight / total));
}

void ask_mse(struct loss_scratch *s, const struct tensor *logits, const struct tensor *target,
             const struct tensor *weights, double weight, const struct tensor *dlogits, double *value,
             double *counted)
{
    CHECK(logits->c == s->classes && tensor_count(target) == tensor_count(logits));
    struct pending *p = loss_ask(s, 2, value);
    p->settle = mse_settle;
    p->of.open = (struct open_loss){.logits = *logits,
                                    .dlogits = *dlogits,
                                    .target = target->data,
                                    .weights = weights ? weights->data : NULL,
                                    .weight = weight,
                                    .counted = counted};
    SUM(s->dev, mse, tensor_voxels(logits), 2, s->found + p->first, .logits = logits->data,
        .target = target->data, .weight = p->of.open.weights, .classes = s->classes);
}

static double entropy_scale(const struct tensor *logits)
{
    return 1.0 / ((double)tensor_voxels(logits) * log(logits->c));
}

static void entropy_settle(struct loss_scratch *s, const struct pending *p, const double *sums)
{
    const struct open_loss *l = &p->of.open;
    double scale = entropy_scale(&l->logits);
    *p->value = scale * sums[0];
    if (l->weight != 0)
        RUN(s->dev, entropy_grad, tensor_voxels(&l->logits), .logits = l->logits.data,
            .dlogits = l->dlogits.data, .classes = s->classes, .scale = (float)(l->weight * scale));
}

void ask_entropy(struct loss_scratch *s, const struct tensor *logits, double weight,
                 const struct tensor *dlogits, double *value)
{
    CHECK(logits->c == s->classes);
    struct pending *p = loss_ask(s, 1, value);
    p->settle = entropy_settle;
    p->of.open = (struct open_loss){.logits = *logits, .dlogits = *dlogits, .weight = weight};
    SUM(s->dev, entropy, tensor_voxels(logits), 1, s->found + p->first, .logits = logits->data,
        .classes = s->classes);
}
