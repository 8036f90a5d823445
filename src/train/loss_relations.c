/* loss_relations.c - rows of one list that are like or unlike each other. See kernels_pairs.h.
 *
 * As in loss_pairs.c asking makes the gradient at once, and the value comes by settling.
 */
#include "train/loss_scratch.h"

struct relations {
    struct device *dev;
    int count, dims;
    uint8_t *kind;            /* (count, count) */
    float *unit, *pull;       /* (count, dims) */
    float *length, *z, *rest, *loss; /* (count) */
};

int relations_new(struct relations **out, struct device *dev, const uint8_t *kind, int count, int dims,
                  struct error *e)
{
    struct relations *r = mem_alloc(e, 1, sizeof *r);
    size_t row = (size_t)count * sizeof(float), table = (size_t)count * (size_t)count;
    *out = NULL;
    if (!r)
        return -1;
    r->dev = dev;
    r->count = count;
    r->dims = dims;
    float **rows[] = {&r->unit, &r->pull}, **numbers[] = {&r->length, &r->z, &r->rest, &r->loss};
    for (int i = 0; i < 2; i++)
        *rows[i] = dev->ops->alloc(dev, row * (size_t)dims);
    for (int i = 0; i < 4; i++)
        *numbers[i] = dev->ops->alloc(dev, row);
    r->kind = dev->ops->alloc(dev, table);
    if (device_check(dev, e) < 0) {
        relations_free(r);
        return -1;
    }
    dev->ops->upload(dev, r->kind, kind, table);
    *out = r;
    return 0;
}

void relations_free(struct relations *r)
{
    if (!r)
        return;
    void *memory[] = {r->kind, r->unit, r->pull, r->length, r->z, r->rest, r->loss};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        r->dev->ops->free(r->dev, memory[i]);
    mem_free(r);
}

static void relations_settle(struct loss_scratch *s, const struct pending *p, const double *sums)
{
    (void)s;
    *p->value = sums[0] / p->of.pairs.count;
}

void ask_relations(struct loss_scratch *s, struct relations *r, const float *x, double tau, double weight,
                   float *dx, double *value)
{
    struct device *dev = s->dev;
    float scale = (float)(1 / tau);
    RUN(dev, pair_unit, r->count, .x = x, .unit = r->unit, .length = r->length, .dims = r->dims);
    RUN(dev, relate, r->count, .unit = r->unit, .kind = r->kind, .z = r->z, .rest = r->rest, .loss = r->loss,
        .count = r->count, .dims = r->dims, .scale = scale);
    if (dx && weight != 0)
        RUN(dev, relate_grad, r->count, .unit = r->unit, .length = r->length, .kind = r->kind, .z = r->z,
            .rest = r->rest, .pull = r->pull, .dx = dx, .count = r->count, .dims = r->dims, .scale = scale,
            .weight = (float)(weight / r->count));
    struct pending *q = loss_ask(s, 1, value);
    q->settle = relations_settle;
    q->of.pairs.count = r->count;
    SUM(dev, total, r->count, 1, s->found + q->first, .x = r->loss);
}
