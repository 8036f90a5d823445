/* loss_pairs.c - rows of two networks that belong together, told from all others. See kernels_pairs.h.
 *
 * The gradient needs no sum over all anchors, so asking makes it at once; the value comes by settling.
 */
#include "train/loss_scratch.h"

struct pairs {
    struct device *dev;
    int count, dims;
    float *unit[2], *length[2]; /* (count, dims), (count): of the learner's rows, of the others */
    float *log_sum, *loss;      /* (count) by anchor */
    float *pull;                /* (count, dims) */
};

int pairs_new(struct pairs **out, struct device *dev, int count, int dims, struct error *e)
{
    struct pairs *p = mem_alloc(e, 1, sizeof *p);
    size_t row = (size_t)count * sizeof(float), rows = row * (size_t)dims;
    *out = NULL;
    if (!p)
        return -1;
    p->dev = dev;
    p->count = count;
    p->dims = dims;
    for (int i = 0; i < 2; i++) {
        p->unit[i] = dev->ops->alloc(dev, rows);
        p->length[i] = dev->ops->alloc(dev, row);
    }
    p->log_sum = dev->ops->alloc(dev, row);
    p->loss = dev->ops->alloc(dev, row);
    p->pull = dev->ops->alloc(dev, rows);
    if (device_check(dev, e) < 0) {
        pairs_free(p);
        return -1;
    }
    *out = p;
    return 0;
}

void pairs_free(struct pairs *p)
{
    if (!p)
        return;
    void *memory[] = {p->unit[0], p->unit[1], p->length[0], p->length[1], p->log_sum, p->loss, p->pull};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        p->dev->ops->free(p->dev, memory[i]);
    mem_free(p);
}

static void pairs_settle(struct loss_scratch *s, const struct pending *p, const double *sums)
{
    (void)s;
    *p->value = sums[0] / p->of.pairs.count;
}

void ask_pairs(struct loss_scratch *s, struct pairs *p, const float *x, const float *other,
               enum pairs_anchor anchor, double tau, double weight, float *dx, double *value)
{
    struct device *dev = s->dev;
    const float *rows[2] = {x, other};
    int of = anchor == PAIRS_OTHERS;
    for (int i = 0; i < 2; i++)
        RUN(dev, pair_unit, p->count, .x = rows[i], .unit = p->unit[i], .length = p->length[i],
            .dims = p->dims);
    RUN(dev, pair_anchor, p->count, .anchor = p->unit[of], .other = p->unit[!of], .log_sum = p->log_sum,
        .loss = p->loss, .count = p->count, .dims = p->dims, .scale = (float)(1 / tau));
    if (dx && weight != 0)
        RUN(dev, pair_grad, p->count, .own = p->unit[0], .other = p->unit[1], .log_sum = p->log_sum,
            .length = p->length[0], .pull = p->pull, .dx = dx, .count = p->count, .dims = p->dims,
            .own_is_anchor = !of, .scale = (float)(1 / tau), .weight = (float)(weight / p->count));
    struct pending *q = loss_ask(s, 1, value);
    q->settle = pairs_settle;
    q->of.pairs.count = p->count;
    SUM(dev, total, p->count, 1, s->found + q->first, .x = p->loss);
}
