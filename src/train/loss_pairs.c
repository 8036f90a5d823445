/* loss_pairs.c - rows that belong together are told from all others: those of two networks, or of one list
 * whose rows are like or unlike each other. See kernels_pairs.h.
 *
 * The gradient needs no sum over all anchors, so asking makes it at once; the value comes by settling.
 */
#include "train/loss_scratch.h"

/* Rows and how alike they are; a list is told from `other`, which may be itself. */
struct rows {
    struct device *dev;
    int count, dims;
    float *unit, *length;  /* (count, dims), (count) */
    float *other, *turned; /* (count, dims), (dims, count) */
    float *like;           /* (count, count); then the losses' slope by it */
    float *pull, *loss;    /* (count, dims), (count) by anchor */
};

static void rows_alloc(struct rows *r, struct device *dev, int count, int dims)
{
    size_t row = (size_t)count * sizeof(float), all = row * (size_t)dims;
    *r = (struct rows){.dev = dev, .count = count, .dims = dims};
    float **lists[] = {&r->unit, &r->other, &r->turned, &r->pull}, **numbers[] = {&r->length, &r->loss};
    for (int i = 0; i < 4; i++)
        *lists[i] = dev->ops->alloc(dev, all);
    for (int i = 0; i < 2; i++)
        *numbers[i] = dev->ops->alloc(dev, row);
    r->like = dev->ops->alloc(dev, row * (size_t)count);
}

static void rows_free(struct rows *r)
{
    void *memory[] = {r->unit, r->other, r->turned, r->pull, r->length, r->loss, r->like};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        r->dev->ops->free(r->dev, memory[i]);
}

static int64_t rows_pairs(const struct rows *r)
{
    return (int64_t)r->count * r->count;
}

/* How alike rows of x are to those of other, which are left in r->other; lengths are those of x. */
static void rows_compare(struct rows *r, const float *x, const float *other, double tau)
{
    struct device *dev = r->dev;
    RUN(dev, pair_unit, r->count, .x = other, .unit = r->other, .turned = r->turned, .length = r->length,
        .count = r->count, .dims = r->dims);
    RUN(dev, pair_unit, r->count, .x = x, .unit = r->unit, .length = r->length, .count = r->count,
        .dims = r->dims);
    RUN(dev, pair_product, rows_pairs(r), .left = r->unit, .right = r->turned, .product = r->like,
        .inner = r->dims, .columns = r->count, .scale = (float)(1 / tau));
}

/* dx += weight * gradient of the mean over anchors, from the slopes in r->like. */
static void rows_learn(struct rows *r, double tau, double weight, float *dx)
{
    struct device *dev = r->dev;
    RUN(dev, pair_product, (int64_t)r->count * r->dims, .left = r->like, .right = r->other,
        .product = r->pull, .inner = r->count, .columns = r->dims, .scale = 1.0f);
    RUN(dev, pair_leave, r->count, .pull = r->pull, .unit = r->unit, .length = r->length, .dx = dx,
        .dims = r->dims, .weight = (float)(weight / tau / r->count));
}

static void rows_settle(struct loss_scratch *s, const struct pending *p, const double *sums)
{
    (void)s;
    *p->value = sums[0] / p->of.pairs.count;
}

static void rows_ask(struct loss_scratch *s, struct rows *r, double *value)
{
    struct pending *q = loss_ask(s, 1, value);
    q->settle = rows_settle;
    q->of.pairs.count = r->count;
    SUM(s->dev, total, r->count, 1, s->found + q->first, .x = r->loss);
}

/* ---- two networks' ------------------------------------------------------------------------------- */

struct pairs {
    struct rows rows;
    float *log_sum; /* (count) by anchor */
};

int pairs_new(struct pairs **out, struct device *dev, int count, int dims, struct error *e)
{
    struct pairs *p = *out = mem_alloc(e, 1, sizeof *p);
    if (!p)
        return -1;
    rows_alloc(&p->rows, dev, count, dims);
    p->log_sum = dev->ops->alloc(dev, (size_t)count * sizeof(float));
    if (device_check(dev, e) == 0)
        return 0;
    pairs_free(p);
    *out = NULL;
    return -1;
}

void pairs_free(struct pairs *p)
{
    if (!p)
        return;
    p->rows.dev->ops->free(p->rows.dev, p->log_sum);
    rows_free(&p->rows);
    mem_free(p);
}

void ask_pairs(struct loss_scratch *s, struct pairs *p, const float *x, const float *other,
               enum pairs_anchor anchor, double tau, double weight, float *dx, double *value)
{
    struct rows *r = &p->rows;
    int of_columns = anchor == PAIRS_OTHERS;
    rows_compare(r, x, other, tau);
    RUN(s->dev, pair_anchor, r->count, .like = r->like, .log_sum = p->log_sum, .loss = r->loss,
        .count = r->count, .of_columns = of_columns);
    if (weight != 0) {
        RUN(s->dev, pair_share, rows_pairs(r), .log_sum = p->log_sum, .like = r->like, .count = r->count,
            .of_columns = of_columns);
        rows_learn(r, tau, weight, dx);
    }
    rows_ask(s, r, value);
}

/* ---- one list's ---------------------------------------------------------------------------------- */

struct relations {
    struct rows rows;
    uint8_t *kind;   /* (count, count) */
    float *z, *rest; /* (count) */
};

int relations_new(struct relations **out, struct device *dev, const uint8_t *kind, int count, int dims,
                  struct error *e)
{
    struct relations *r = *out = mem_alloc(e, 1, sizeof *r);
    size_t row = (size_t)count * sizeof(float), table = (size_t)count * (size_t)count;
    if (!r)
        return -1;
    rows_alloc(&r->rows, dev, count, dims);
    r->z = dev->ops->alloc(dev, row);
    r->rest = dev->ops->alloc(dev, row);
    r->kind = dev->ops->alloc(dev, table);
    if (device_check(dev, e) < 0) {
        relations_free(r);
        *out = NULL;
        return -1;
    }
    dev->ops->upload(dev, r->kind, kind, table);
    return 0;
}

void relations_free(struct relations *r)
{
    if (!r)
        return;
    void *memory[] = {r->kind, r->z, r->rest};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        r->rows.dev->ops->free(r->rows.dev, memory[i]);
    rows_free(&r->rows);
    mem_free(r);
}

void ask_relations(struct loss_scratch *s, struct relations *of, const float *x, double tau, double weight,
                   float *dx, double *value)
{
    struct rows *r = &of->rows;
    rows_compare(r, x, x, tau);
    RUN(s->dev, relate, r->count, .like = r->like, .kind = of->kind, .z = of->z, .rest = of->rest,
        .loss = r->loss, .count = r->count);
    if (weight != 0) {
        RUN(s->dev, relate_share, rows_pairs(r), .kind = of->kind, .z = of->z, .rest = of->rest,
            .like = r->like, .count = r->count);
        rows_learn(r, tau, weight, dx);
    }
    rows_ask(s, r, value);
}
