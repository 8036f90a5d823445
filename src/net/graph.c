/* graph.c - the builder: what definitions call. It records layers and values, and either collects
 * parameters (params_new) or finds them by name (net_new), so both come from the same definition.
 *
 * Mistakes here are mistakes in a definition, that is bugs of ours: CHECK. What a caller can get
 * wrong (parameters of another network) is an error, kept until the definition has run.
 */
#include "net/net_int.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct builder {
    struct graph *graph;
    const struct params *params; /* NULL: collect into list */
    struct param *list;
    int n_list;
    struct error error;
};

/* ---- parameters ------------------------------------------------------------------------------ */

static int find_param(struct builder *b, const struct param *want)
{
    const struct param *p = params_find(b->params, want->name);
    if (!p || p->count != want->count || p->kind != want->kind) {
        if (b->error.code == ERR_NONE)
            fail(&b->error, ERR_CONFIG, NULL, "the weights are of another network: %s %s", want->name,
                 p ? "has another shape" : "is missing");
        return 0;
    }
    return (int)(p - b->params->list);
}

static int add_param(struct builder *b, const char *name, const char *tail, enum param_kind kind,
                     const int *dims, int n_dims, double fan)
{
    struct param p = {.kind = kind, .n_dims = n_dims, .count = 1};
    snprintf(p.name, sizeof p.name, "%s.%s", name, tail);
    CHECK(strlen(name) + strlen(tail) + 2 <= sizeof p.name);
    for (int i = 0; i < n_dims; i++) {
        p.dims[i] = dims[i];
        p.count *= dims[i];
    }
    p.bound = fan > 0 ? (float)(1.0 / sqrt(fan)) : 0.0f;
    if (b->params)
        return find_param(b, &p);
    if (b->error.code != ERR_NONE)
        return 0;
    struct param *grown = mem_resize(&b->error, b->list, (size_t)b->n_list + 1, sizeof p);
    if (!grown)
        return 0;
    b->list = grown;
    b->list[b->n_list] = p;
    return b->n_list++;
}

/* PyTorch's default: uniform within 1/sqrt(fan-in), fan-in being dimension 1 times the kernel. For
 * a transposed convolution dimension 1 is c_out. */
static void add_conv_params(struct builder *b, struct layer *l, const char *name)
{
    int k = l->kind == CONV_3 ? 3 : l->kind == CONV_1 ? 1 : 2, up = l->kind == CONV_UP;
    int dims[5] = {up ? l->c_in : l->c_out, up ? l->c_out : l->c_in, k, k, k};
    double fan = (double)dims[1] * k * k * k;
    l->weight = add_param(b, name, "weight", PARAM_WEIGHT, dims, 5, fan);
    l->bias = add_param(b, name, "bias", PARAM_BIAS, &l->c_out, 1, fan);
}

/* ---- what definitions call ------------------------------------------------------------------- */

static int add_value(struct builder *b, struct value v)
{
    struct graph *g = b->graph;
    CHECK(g->n_values < NET_VALUES);
    g->values[g->n_values] = v;
    return g->n_values++;
}

static const struct value *get_value(const struct builder *b, int x)
{
    CHECK(x >= 0 && x < b->graph->n_values);
    return &b->graph->values[x];
}

int net_input(struct builder *b, int channels)
{
    CHECK(b->graph->n_values == 0);
    return add_value(b, (struct value){.kind = FROM_INPUT, .c = channels});
}

/* A layer is read in one way only; that way becomes its view. */
static void read_layer(struct builder *b, int x)
{
    const struct value *v = get_value(b, x);
    struct layer *l = &b->graph->layers[v->layer];
    CHECK(l->view < 0 || l->view == x);
    l->view = x;
}

static void read_value(struct builder *b, int x)
{
    const struct value *v = get_value(b, x);
    if (v->kind == FROM_LAYER)
        read_layer(b, x);
    for (int i = 0; v->kind == FROM_ADD && i < 2; i++)
        read_layer(b, v->from[i]);
}

/* The next layer, which reads x; its output is `up` levels finer. */
static struct layer *add_layer(struct builder *b, enum layer_kind is, int x, int c_out, int up)
{
    struct graph *g = b->graph;
    const struct value *in = get_value(b, x);
    int level = in->level - up;
    CHECK(g->n_layers < NET_LAYERS && level >= 0 && c_out > 0);
    read_value(b, x);
    struct layer *l = &g->layers[g->n_layers++];
    *l = (struct layer){.is = is,
                        .input = x,
                        .c_in = in->c,
                        .c_out = c_out,
                        .level_in = in->level,
                        .level = level,
                        .view = -1,
                        .output = -1};
    g->max_level = level > g->max_level ? level : g->max_level;
    return l;
}

static int output_of(struct builder *b, const struct layer *l)
{
    return add_value(
        b, (struct value){
               .kind = FROM_LAYER, .c = l->c_out, .level = l->level, .layer = (int)(l - b->graph->layers)});
}

int net_conv(struct builder *b, int x, enum conv_kind kind, int c_out, const char *name)
{
    struct layer *l = add_layer(b, LAYER_CONV, x, c_out, (kind == CONV_UP) - (kind == CONV_DOWN));
    l->kind = kind;
    add_conv_params(b, l, name);
    return output_of(b, l);
}

int net_resize(struct builder *b, int x, enum net_resize_by how, int levels)
{
    const struct value *in = get_value(b, x);
    CHECK(in->kind == FROM_LAYER && levels >= 1 && levels <= 4);
    struct layer *l = add_layer(b, LAYER_RESIZE, x, in->c, levels);
    l->by = (int)how;
    return output_of(b, l);
}

int net_shake(struct builder *b, int x, enum net_shake_by how)
{
    const struct value *in = get_value(b, x);
    CHECK(in->kind == FROM_LAYER);
    struct layer *l = add_layer(b, LAYER_SHAKE, x, in->c, 0);
    l->by = (int)how;
    return output_of(b, l);
}

/* What is not stored by a convolution is read as it is. */
static int is_conv(const struct builder *b, const struct value *v)
{
    return v->kind == FROM_LAYER && b->graph->layers[v->layer].is == LAYER_CONV;
}

int net_norm(struct builder *b, int x, const char *name)
{
    struct value v = *get_value(b, x);
    CHECK(is_conv(b, &v) && !v.norm && !v.relu && v.dropout == 0);
    struct layer *l = &b->graph->layers[v.layer];
    CHECK(!l->norm && l->output < 0);
    l->norm = v.norm = 1;
    l->gamma = add_param(b, name, "weight", PARAM_GAMMA, &v.c, 1, 0);
    l->beta = add_param(b, name, "bias", PARAM_BETA, &v.c, 1, 0);
    l->mean = add_param(b, name, "running_mean", PARAM_MEAN, &v.c, 1, 0);
    l->var = add_param(b, name, "running_var", PARAM_VAR, &v.c, 1, 0);
    return add_value(b, v);
}

int net_relu(struct builder *b, int x)
{
    struct value v = *get_value(b, x);
    CHECK(is_conv(b, &v) && v.dropout == 0);
    v.relu = 1;
    return add_value(b, v);
}

int net_norm_relu(struct builder *b, int x, const char *name)
{
    return net_relu(b, net_norm(b, x, name));
}

int net_dropout(struct builder *b, int x, float p)
{
    struct value v = *get_value(b, x);
    CHECK(is_conv(b, &v) && v.dropout == 0 && p > 0 && p < 1);
    v.dropout = p;
    return add_value(b, v);
}

int net_add(struct builder *b, int x, int y)
{
    const struct value *u = get_value(b, x), *v = get_value(b, y);
    CHECK(u->kind == FROM_LAYER && v->kind == FROM_LAYER && u->layer != v->layer);
    CHECK(u->c == v->c && u->level == v->level);
    return add_value(b, (struct value){.kind = FROM_ADD, .c = u->c, .level = u->level, .from = {x, y}});
}

void net_output(struct builder *b, int x, const char *name)
{
    struct graph *g = b->graph;
    const struct value *v = get_value(b, x);
    CHECK(v->kind == FROM_LAYER && !v->norm && !v->relu && v->dropout == 0);
    CHECK(g->n_outputs < NET_OUTPUTS && !g->layers[v->layer].norm);
    g->layers[v->layer].output = g->n_outputs;
    g->output_layer[g->n_outputs] = v->layer;
    g->outputs[g->n_outputs++] = name;
}

void net_output_open(struct builder *b, int x, const char *name)
{
    b->graph->open[b->graph->n_outputs] = 1;
    net_output(b, x, name);
}

void net_freeze(struct builder *b)
{
    b->graph->frozen = b->graph->n_layers;
}

void net_weights(struct builder *b, const char *name, const int dims[5])
{
    double fan = (double)dims[1] * dims[2] * dims[3] * dims[4];
    add_param(b, name, "weight", PARAM_WEIGHT, dims, 5, fan);
    add_param(b, name, "bias", PARAM_BIAS, dims, 1, fan);
}

void net_declare(struct builder *b, void (*define)(struct builder *b, const struct net_definition *self),
                 const struct net_definition *self)
{
    if (b->params)
        return; /* looking up: the other network finds its own */
    struct graph *aside = mem_alloc(&b->error, 1, sizeof *aside), *kept = b->graph;
    if (!aside)
        return;
    b->graph = aside;
    define(b, self);
    b->graph = kept;
    mem_free(aside);
}

int graph_record(struct graph *g, const struct net_definition *def, const struct params *params,
                 struct param **list, int *n_list, struct error *e)
{
    struct builder b = {.graph = g, .params = params};
    memset(g, 0, sizeof *g);
    if (def->channels < 1 || def->classes < 1 || def->filters < 1 || def->rank < 0)
        return fail(e, ERR_CONFIG, NULL, "a network needs at least one channel, class and filter");
    def->define(&b, def);
    if (b.error.code != ERR_NONE) {
        mem_free(b.list);
        if (e)
            *e = b.error;
        return -1;
    }
    if (list) {
        *list = b.list;
        *n_list = b.n_list;
    }
    return 0;
}
