/* params.c - the block of named numbers behind a network; see params.h for its layout. */
#include "net/params.h"

#include <string.h>

#include "base/rng.h"
#include "net/net_int.h"

static int is_trainable(const struct param *p)
{
    return p->kind != PARAM_MEAN && p->kind != PARAM_VAR;
}

/* Trainable ones first, both parts in their order; offsets follow. */
static int arrange(struct params *p, const struct param *from, int n, struct error *e)
{
    p->list = mem_alloc(e, (size_t)n, sizeof *p->list);
    if (!p->list)
        return -1;
    for (int part = 0; part < 2; part++) {
        for (int i = 0; i < n; i++) {
            if (is_trainable(&from[i]) == part)
                continue;
            struct param *to = &p->list[p->n++];
            *to = from[i];
            to->offset = p->count;
            p->count += to->count;
        }
        if (part == 0) {
            p->n_trainable = p->n;
            p->trainable_count = p->count;
        }
    }
    return 0;
}

static int allocate(struct params *p, enum params_grad grad, struct error *e)
{
    struct device *dev = p->dev;
    p->touched = mem_alloc(e, (size_t)p->n_trainable, 1);
    if (!p->touched)
        return -1;
    p->value = dev->ops->alloc(dev, (size_t)p->count * sizeof(float));
    if (grad == PARAMS_WITH_GRAD)
        p->grad = dev->ops->alloc(dev, (size_t)p->trainable_count * sizeof(float));
    return device_check(dev, e);
}

int params_new(struct params **out, struct device *dev, const struct net_definition *def,
               enum params_grad grad, struct error *e)
{
    struct param *list = NULL;
    int n = 0, rc = -1;
    struct graph *graph = mem_alloc(e, 1, sizeof *graph);
    struct params *p = mem_alloc(e, 1, sizeof *p);
    if (p)
        p->dev = dev;
    if (!graph || !p)
        goto out;
    p->version = 1;
    if (graph_record(graph, def, NULL, &list, &n, e) < 0 || arrange(p, list, n, e) < 0 ||
        allocate(p, grad, e) < 0)
        goto out;
    *out = p;
    p = NULL;
    rc = 0;
out:
    params_free(p);
    mem_free(list);
    mem_free(graph);
    return rc;
}

void params_free(struct params *p)
{
    if (!p)
        return;
    p->dev->ops->free(p->dev, p->value);
    p->dev->ops->free(p->dev, p->grad);
    mem_free(p->touched);
    mem_free(p->list);
    mem_free(p);
}

/* (taps, minor, major) here, (major, minor, taps) there; all else is one row. */
struct order {
    int64_t major, minor, taps;
};

static struct order order_of(const struct param *p)
{
    struct order o = {1, 1, p->count};
    if (p->n_dims == 5)
        o = (struct order){p->dims[0], p->dims[1], (int64_t)p->dims[2] * p->dims[3] * p->dims[4]};
    return o;
}

static int64_t torch_index(const struct order *o, int64_t i)
{
    int64_t a = i % o->major, b = i / o->major % o->minor, t = i / o->major / o->minor;
    return (a * o->minor + b) * o->taps + t;
}

int param_download(float *to, const struct params *p, const float *block, int k, struct error *e)
{
    const struct param *q = &p->list[k];
    struct order o = order_of(q);
    float *here = mem_alloc(e, (size_t)q->count, sizeof *here);
    if (!here)
        return -1;
    p->dev->ops->download(p->dev, here, block + q->offset, (size_t)q->count * sizeof *here);
    for (int64_t b = 0; b < o.minor; b++)
        for (int64_t a = 0; a < o.major; a++)
            for (int64_t t = 0; t < o.taps; t++)
                to[(a * o.minor + b) * o.taps + t] = here[(t * o.minor + b) * o.major + a];
    mem_free(here);
    return device_check(p->dev, e);
}

int param_upload(float *block, const struct params *p, int k, const float *from, struct error *e)
{
    const struct param *q = &p->list[k];
    struct order o = order_of(q);
    float *here = mem_alloc(e, (size_t)q->count, sizeof *here);
    if (!here)
        return -1;
    for (int64_t b = 0; b < o.minor; b++)
        for (int64_t a = 0; a < o.major; a++)
            for (int64_t t = 0; t < o.taps; t++)
                here[(t * o.minor + b) * o.major + a] = from[(a * o.minor + b) * o.taps + t];
    p->dev->ops->upload(p->dev, block + q->offset, here, (size_t)q->count * sizeof *here);
    mem_free(here);
    return device_check(p->dev, e);
}

/* Number i, in PyTorch's order, of parameter k: a quarter of Philox block k * 2^40 + i/4, as
 * (2u - 1) * bound, u uniform. */
static float initial(const struct param *p, int k, int64_t i, uint64_t seed, uint64_t salt)
{
    if (p->bound == 0)
        return p->kind == PARAM_GAMMA || p->kind == PARAM_VAR ? 1.0f : 0.0f;
    struct rng_block b = rng_block(seed, salt, RNG_INIT, ((uint64_t)k << 40) + (uint64_t)i / 4);
    return (2.0f * rng_word_uniform(b.v[i % 4]) - 1.0f) * p->bound;
}

void params_init(struct params *p, uint64_t seed, uint64_t salt)
{
    enum { CHUNK = 4096 };
    float chunk[CHUNK];
    for (int k = 0; k < p->n; k++) {
        const struct param *q = &p->list[k];
        struct order o = order_of(q);
        for (int64_t at = 0; at < q->count; at += CHUNK) {
            int64_t n = q->count - at < CHUNK ? q->count - at : CHUNK;
            for (int64_t i = 0; i < n; i++)
                chunk[i] = initial(q, k, torch_index(&o, at + i), seed, salt);
            p->dev->ops->upload(p->dev, p->value + q->offset + at, chunk, (size_t)n * sizeof *chunk);
        }
    }
    p->batches = 0;
    p->version++;
}

void params_copy(struct params *to, const struct params *from)
{
    CHECK(to->count == from->count && to->n == from->n && to->dev == from->dev);
    to->dev->ops->copy(to->dev, to->value, from->value, (size_t)to->count * sizeof(float));
    to->batches = from->batches;
    to->version++;
}

int params_part(struct params **out, const struct params *from, const struct net_definition *def,
                struct error *e)
{
    struct params *p = NULL;
    if (params_new(&p, from->dev, def, PARAMS_NO_GRAD, e) < 0)
        return -1;
    for (int i = 0; i < p->n; i++) {
        const struct param *to = &p->list[i], *q = params_find(from, to->name);
        CHECK(q && q->count == to->count);
        p->dev->ops->copy(p->dev, p->value + to->offset, from->value + q->offset,
                          (size_t)q->count * sizeof(float));
    }
    p->batches = from->batches;
    *out = p;
    return 0;
}

int64_t params_buffer_count(const struct params *p)
{
    return p->count - p->trainable_count;
}

void params_zero_grad(struct params *p)
{
    CHECK(p->grad);
    memset(p->touched, 0, (size_t)p->n_trainable);
}

static int packs_along(const struct params *p)
{
    return p->packing && p->packing->version == p->version;
}

void params_map(struct params *p, int kernel, const void *args, int64_t first, int64_t count)
{
    const struct device_ops *ops = p->dev->ops;
    const float *begin = p->value + first;
    if (!packs_along(p)) {
        ops->map(p->dev, kernel, args, count);
        return;
    }
    const struct conv_weight *list = p->packing->list;
    int n = p->packing->n;
    for (; n > 0 && list->weight < begin; n--)
        list++;
    while (n > 0 && list[n - 1].weight >= begin + count)
        n--;
    ops->conv_update(p->dev, list, n, kernel, args, begin, count);
}

void params_mapped(struct params *p)
{
    if (packs_along(p))
        p->packing->version++;
    p->version++;
}

const struct param *params_find(const struct params *p, const char *name)
{
    for (int i = 0; i < p->n; i++)
        if (!strcmp(p->list[i].name, name))
            return &p->list[i];
    return NULL;
}
