/* net_build.c - from a recorded graph to a network that can run: lifetimes, memory, convolution
 * plans.
 *
 * Gradients between layers live in slots. A skip connection needs one slot for three values:
 *
 *     s ---------- + --> a --> conv      backward:  conv writes dL/da into the slot
 *      \ down     / up                              up's layer reads it (dL/du = dL/da)
 *       ... ---- u                                  ... down to the layer `down`, which ADDS to it
 *                                                   s's layer reads it (dL/ds = dL/da + from below)
 *
 * So nothing is copied, as long as everything that reads s directly is recorded before u is, and u
 * is read by the add alone: check_skip() sees to that. If s is part of several adds, one a decoder, each
 * has a slot of its own; from the last decoder to the first they are added up: when u of a decoder has read
 * its slot, that of the decoder after it is added to it, and s reads the slot of the first (net.c: meet()).
 */
#include "device/norm.h"
#include "net/net_int.h"

/* First and last layer that read the output of `layer`, directly or through an add; -1: none. */
static void readers(const struct graph *g, int layer, int *first, int *last)
{
    *first = *last = -1;
    for (int j = 0; j < g->n_layers; j++) {
        const struct value *v = &g->values[g->layers[j].input];
        int reads = v->kind == FROM_LAYER && v->layer == layer;
        for (int k = 0; v->kind == FROM_ADD && k < 2; k++)
            reads |= g->values[v->from[k]].layer == layer;
        if (!reads)
            continue;
        *first = *first < 0 ? j : *first;
        *last = j;
    }
}

/* ---- slots ----------------------------------------------------------------------------------- */

static int new_slot(struct net *n, int layer, int from, int until)
{
    n->slots[n->n_slots] = (struct slot){.item = -1, .layer = layer, .from = from, .until = until};
    return n->n_slots++;
}

/* The earlier operand of the add whose later one is layer u, or -1. */
static int skip_of(const struct graph *g, int u)
{
    for (int k = 0; k < g->n_values; k++) {
        const struct value *v = &g->values[k];
        if (v->kind != FROM_ADD)
            continue;
        int a = g->values[v->from[0]].layer, b = g->values[v->from[1]].layer;
        if ((a > b ? a : b) == u)
            return a > b ? b : a;
    }
    return -1;
}

/* u is read by one add alone, s by nobody but adds from u on. */
static void check_skip(const struct graph *g, int u, int s)
{
    int adds = 0;
    for (int k = 0; k < g->n_values; k++) {
        const struct value *v = &g->values[k];
        for (int i = 0; v->kind == FROM_ADD && i < 2; i++)
            adds += g->values[v->from[i]].layer == u;
    }
    CHECK(adds == 1);
    for (int j = 0; j < g->n_layers; j++) {
        const struct value *v = &g->values[g->layers[j].input];
        CHECK(v->kind != FROM_LAYER || (v->layer != u && (v->layer != s || j < u)));
    }
}

/* From the last decoder to the first: u and s share a slot, and s has that of the first in the end. */
static void share_slot(struct net *n, int u, int s)
{
    int first, last, other = n->run[s].slot;
    check_skip(&n->graph, u, s);
    readers(&n->graph, u, &first, &last);
    n->run[u].slot = n->run[s].slot = new_slot(n, s, last, s);
    n->run[u].meets = other;
    if (other >= 0)
        n->slots[other].until = u;
}

static void make_slots(struct net *n)
{
    const struct graph *g = &n->graph;
    int first, last;
    for (int u = g->n_layers - 1; u >= 0; u--) {
        int s = skip_of(g, u);
        if (s >= 0 && g->layers[u].view >= 0)
            share_slot(n, u, s);
    }
    for (int i = 0; i < g->n_layers; i++) {
        readers(g, i, &first, &last);
        if (g->layers[i].view >= 0 && n->run[i].slot < 0)
            n->run[i].slot = new_slot(n, i, last, i);
    }
    if (!n->shape.input_grad)
        return;
    last = g->n_layers - 1;
    while (g->values[g->layers[last].input].kind != FROM_INPUT)
        last--;
    n->input_slot = new_slot(n, -1, last, -1); /* to the end, for net_input_grad */
}

/* ---- lifetimes ------------------------------------------------------------------------------- */

static size_t layer_bytes(const struct net *n, int layer, enum value_type type)
{
    struct tensor t = net_layer_tensor(n, layer);
    return (size_t)tensor_count(&t) * value_bytes(type);
}

static void plan_layer(struct net *n, int i)
{
    const struct graph *g = &n->graph;
    const struct layer *l = &g->layers[i];
    struct layer_run *r = &n->run[i];
    int first, last, N = g->n_layers, end = 2 * N + 1;
    readers(g, i, &first, &last);
    last = last < 0 ? i : last;
    if (n->shape.use == NET_TRAINING && first >= 0) {
        const struct value *v = &g->values[l->view];
        last = v->norm || v->relu ? 2 * N - i : 2 * N - first;
    }
    r->y = plan_add(&n->plan, layer_bytes(n, i, r->type), i, l->output >= 0 ? end : last + n->behind);
    r->out_grad = r->aside = r->wide = r->wide_grad = -1;
    if (l->is == LAYER_SHAKE && shake_bytes(n, i) > 0)
        r->aside = plan_add(&n->plan, shake_bytes(n, i), i, n->shape.use == NET_TRAINING ? 2 * N - i : i);
    if (n->shape.use == NET_TRAINING && l->output >= 0)
        r->out_grad = plan_add(&n->plan, layer_bytes(n, i, VALUE_F32), N, 2 * N - i + n->behind);
    if (l->output < 0 || !g->open[l->output])
        return;
    CHECK(l->view < 0);
    size_t bytes = layer_bytes(n, i, VALUE_F32) / (size_t)l->c_out * (size_t)(l->c_out + 1);
    r->wide = plan_add(&n->plan, bytes, i, end);
    if (n->shape.use == NET_TRAINING)
        r->wide_grad = plan_add(&n->plan, bytes, N, N);
}

/* A slot lives from the backward pass of the last layer that reads the value to that of the layer whose value
 * it is, or that it meets another slot in. */
static void plan_slot(struct net *n, int k)
{
    int N = n->graph.n_layers;
    struct slot *s = &n->slots[k];
    struct tensor t = net_slot_tensor(n, k);
    s->item = plan_add(&n->plan, (size_t)tensor_count(&t) * value_bytes(t.type), 2 * N - s->from,
                       2 * N - s->until + n->behind);
}

/* ---- tables and convolutions ----------------------------------------------------------------- */

static int has_table(const struct graph *g, int layer)
{
    const struct layer *l = &g->layers[layer];
    return l->view >= 0 && (g->values[l->view].norm || g->values[l->view].dropout > 0);
}

/* Hands out pieces of the two blocks of tables; with the blocks NULL it only counts. */
struct share {
    float *tables;
    double *moments;
    int64_t n_tables, n_moments;
};

static float *take(struct share *s, int64_t count)
{
    float *p = s->tables ? s->tables + s->n_tables : NULL;
    s->n_tables += count;
    return p;
}

static double *take_double(struct share *s, int64_t count)
{
    double *p = s->moments ? s->moments + s->n_moments : NULL;
    s->n_moments += count;
    return p;
}

static void share_layer(struct net *n, struct share *s, int i)
{
    const struct graph *g = &n->graph;
    struct layer_run *r = &n->run[i];
    int64_t c = g->layers[i].c_out, nc = n->shape.n * c;
    r->scale = take(s, nc);
    r->shift = take(s, nc);
    if (n->shape.use == NET_TRAINING) {
        r->p = take(s, nc);
        r->q = take(s, nc);
        r->r = take(s, nc);
        r->center = take(s, c);
    }
    if (g->values[g->layers[i].view].dropout > 0)
        r->drop = take(s, nc);
    r->mean = take_double(s, c);
    r->rstd = take_double(s, c);
}

static void share_tables(struct net *n, struct share *s)
{
    int widest = 1;
    for (int i = 0; i < n->graph.n_layers; i++) {
        widest = n->graph.layers[i].c_out > widest ? n->graph.layers[i].c_out : widest;
        if (has_table(&n->graph, i))
            share_layer(n, s, i);
    }
    n->stat_mean = take_double(s, widest);
    n->stat_m2 = take_double(s, widest);
    n->sums = take_double(s, (int64_t)norm_sums_count(n->shape.n, widest));
}

static int make_tables(struct net *n, struct error *e)
{
    struct share s = {0};
    share_tables(n, &s);
    size_t floats = (size_t)s.n_tables * sizeof(float), doubles = (size_t)s.n_moments * sizeof(double);
    n->tables = n->dev->ops->alloc(n->dev, floats);
    n->moments = n->dev->ops->alloc(n->dev, doubles);
    if (device_check(n->dev, e) < 0)
        return -1;
    s = (struct share){.tables = n->tables, .moments = n->moments};
    share_tables(n, &s);
    return 0;
}

static int make_conv(struct net *n, int i, struct error *e)
{
    const struct graph *g = &n->graph;
    const struct layer *l = &g->layers[i];
    const struct value *v = &g->values[l->input];
    struct conv_shape s = {.kind = l->kind,
                           .n = n->shape.n,
                           .d = n->shape.d >> l->level_in,
                           .h = n->shape.h >> l->level_in,
                           .w = n->shape.w >> l->level_in,
                           .c_in = l->c_in,
                           .c_out = l->c_out,
                           .out = n->run[i].type,
                           .training = n->shape.use == NET_TRAINING};
    if (v->kind == FROM_INPUT) {
        s.in = VALUE_F32;
        s.input_grad = n->input_slot >= 0;
    } else {
        const struct value *a = v->kind == FROM_ADD ? &g->values[v->from[0]] : v;
        const struct value *b = v->kind == FROM_ADD ? &g->values[v->from[1]] : v;
        CHECK(n->run[a->layer].type == n->run[b->layer].type);
        s.in = n->run[a->layer].type;
        s.input_grad = s.training;
    }
    n->run[i].conv = n->dev->ops->conv_new(n->dev, &s);
    return device_check(n->dev, e);
}

/* ---- making and freeing ---------------------------------------------------------------------- */

static int check_shape(struct net *n, struct error *e)
{
    const struct net_shape *s = &n->shape;
    int step = 1 << n->graph.max_level;
    if (s->n < 1 || s->d < 1 || s->h < 1 || s->w < 1)
        return fail(e, ERR_CONFIG, NULL, "a network needs at least one voxel");
    if (s->d % step || s->h % step || s->w % step)
        return fail(e, ERR_CONFIG, NULL, "the patch %dx%dx%d must be made of multiples of %d", s->d, s->h,
                    s->w, step);
    if (s->use == NET_TRAINING && !n->params->grad)
        return fail(e, ERR_INTERNAL, NULL, "training needs parameters with a gradient");
    return 0;
}

static void start_runs(struct net *n)
{
    const struct graph *g = &n->graph;
    n->items = n->shape.n;
    n->input_slot = -1;
    n->behind = n->shape.use == NET_TRAINING && n->dev->ops->catch_up ? NET_BEHIND : 0;
    for (int i = 0; i < g->n_layers; i++) {
        const struct layer *l = &g->layers[i];
        n->run[i].slot = n->run[i].meets = -1;
        n->run[i].type = l->output >= 0 ? VALUE_F32 : device_value_type(n->dev);
        if (l->is == LAYER_RESIZE && l->output >= 0) /* an output made larger: of float32, too */
            n->run[g->values[l->input].layer].type = VALUE_F32;
        /* an output that is also read joins two gradients (grad_join): no tables there */
        CHECK(l->output < 0 || !has_table(g, i));
    }
}

void net_plan(struct net *n)
{
    start_runs(n);
    if (n->shape.use == NET_TRAINING)
        make_slots(n);
    for (int i = 0; i < n->graph.n_layers; i++)
        plan_layer(n, i);
    for (int k = 0; k < n->n_slots; k++)
        plan_slot(n, k);
    plan_place(&n->plan);
}

static int build(struct net *n, struct error *e)
{
    net_plan(n);
    n->arena = n->dev->ops->alloc(n->dev, n->plan.bytes);
    for (int i = 0; n->arena && i < n->graph.n_layers; i++)
        if (n->run[i].aside >= 0)
            n->run[i].kept = (float *)(void *)(n->arena + n->plan.items[n->run[i].aside].offset);
    if (make_tables(n, e) < 0)
        return -1;
    for (int i = 0; i < n->graph.n_layers; i++)
        if (n->graph.layers[i].is == LAYER_CONV && make_conv(n, i, e) < 0)
            return -1;
    heads_find(n);
    pair_find(n);
    return 0;
}

/* Lists the weights. The first network on these parameters has them packed whenever they change. */
static void list_weights(struct net *n)
{
    struct params *p = n->params;
    int in_order = 1;
    n->packing = (struct packing){.list = n->weights};
    for (int i = 0; i < n->graph.n_layers; i++) {
        struct conv_weight *w = &n->weights[n->packing.n];
        if (n->graph.layers[i].is != LAYER_CONV)
            continue;
        *w = (struct conv_weight){n->run[i].conv, net_param(n, n->graph.layers[i].weight)};
        in_order = in_order && (n->packing.n++ == 0 || w->weight > w[-1].weight);
    }
    if (in_order && !p->packing)
        p->packing = &n->packing;
}

int net_new(struct net **out, struct params *p, const struct net_definition *def, const struct net_shape *s,
            struct error *e)
{
    struct net *n = mem_alloc(e, 1, sizeof *n);
    if (!n)
        return -1;
    n->params = p;
    n->dev = p->dev;
    n->shape = *s;
    if (graph_record(&n->graph, def, p, NULL, NULL, e) < 0 || check_shape(n, e) < 0 || build(n, e) < 0) {
        net_free(n);
        return -1;
    }
    list_weights(n);
    *out = n;
    return 0;
}

void net_free(struct net *n)
{
    if (!n)
        return;
    const struct device_ops *ops = n->dev->ops;
    if (n->params->packing == &n->packing)
        n->params->packing = NULL;
    for (int i = 0; i < n->graph.n_layers; i++)
        if (n->run[i].conv)
            ops->conv_free(n->run[i].conv);
    ops->free(n->dev, n->arena);
    ops->free(n->dev, n->tables);
    ops->free(n->dev, n->moments);
    mem_free(n);
}
