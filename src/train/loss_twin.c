/* loss_twin.c - losses of a head that predicts signed distances, t = tanh(raw).
 *
 *     distance = mean (t - target)^2
 *     dual     = mean (m - p)^2,  m = sigma(-1500 t), p = softmax(logits), over foreground classes
 *                dm/dt = -1500 m (1 - m): of the distances, only those near the surface are moved
 *
 * Means over voxels and foreground classes, items taken together. Both heads get dual's gradient.
 */
#include "train/loss_scratch.h"

static void distance_settle(struct loss_scratch *s, const struct pending *p, const double *sums)
{
    const struct twin_loss *l = &p->of.twin;
    double count = (double)tensor_count(&l->raw);
    *p->value = sums[0] / count;
    if (l->weight != 0)
        RUN(s->dev, distance_grad, tensor_count(&l->raw), .raw = l->raw.data, .target = l->target,
            .draw = l->draw.data, .scale = (float)(2 * l->weight / count));
}

void ask_distance(struct loss_scratch *s, const struct tensor *raw, const struct tensor *target,
                  double weight, const struct tensor *draw, double *value)
{
    CHECK(raw->c == s->classes - 1 && tensor_count(target) == tensor_count(raw));
    struct pending *p = loss_ask(s, 1, value);
    p->settle = distance_settle;
    p->of.twin = (struct twin_loss){.raw = *raw, .draw = *draw, .target = target->data, .weight = weight};
    SUM(s->dev, distance, tensor_count(raw), 1, s->found + p->first, .raw = raw->data,
        .target = target->data);
}

void distances(struct device *dev, const struct tensor *map, const struct tensor *raw)
{
    CHECK(tensor_count(map) == tensor_count(raw));
    RUN(dev, tanh_map, tensor_count(raw), .raw = raw->data, .map = map->data);
}

void distances_grad(struct device *dev, const struct tensor *draw, const struct tensor *map,
                    const struct tensor *dmap)
{
    CHECK(tensor_count(map) == tensor_count(draw) && tensor_count(map) == tensor_count(dmap));
    RUN(dev, tanh_grad, tensor_count(map), .map = map->data, .dmap = dmap->data, .draw = draw->data);
}

static void dual_settle(struct loss_scratch *s, const struct pending *p, const double *sums)
{
    const struct twin_loss *l = &p->of.twin;
    double count = (double)tensor_count(&l->raw);
    *p->value = sums[0] / count;
    if (l->weight != 0)
        RUN(s->dev, dual_grad, tensor_voxels(&l->raw), .logits = l->logits.data, .raw = l->raw.data,
            .dlogits = l->dlogits.data, .draw = l->draw.data, .classes = s->classes,
            .scale = (float)(2 * l->weight / count));
}

void ask_dual(struct loss_scratch *s, const struct tensor *logits, const struct tensor *raw, double weight,
              const struct tensor *dlogits, const struct tensor *draw, double *value)
{
    CHECK(logits->c == s->classes && raw->c == s->classes - 1 && tensor_voxels(raw) == tensor_voxels(logits));
    struct pending *p = loss_ask(s, 1, value);
    p->settle = dual_settle;
    p->of.twin = (struct twin_loss){
        .raw = *raw, .draw = *draw, .logits = *logits, .dlogits = *dlogits, .weight = weight};
    SUM(s->dev, dual, tensor_voxels(raw), 1, s->found + p->first, .logits = logits->data, .raw = raw->data,
        .classes = s->classes);
}
