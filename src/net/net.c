/* net.c - the two loops: layers forward in order, layers backward in reverse.
 *
 * forward of a layer:   source formula of its input -> convolution -> moments -> tables (net_norm.c)
 * backward of a layer:  gradient of its view and, if it is an output, of the output
 *                       -> sums, p, q, r (net_norm.c) -> convolution's backward: dx into the slot of
 * its input and dweight (first writer overwrites, later ones add), dbias added. The sums of a layer are
 * made by the one after it if that reads it: nobody else writes the slot between the two. Heads may be
 * run at once (net_heads.c), and layers without weights are in resize.c and shake.c. Weight gradients feed no
 * other layer: a device may make them beside the rest, some layers behind.
 *
 * A layer that no gradient reaches is left out, and its parameters stay untouched.
 */
#include <string.h>

#include "device/kernels.h"
#include "net/net_int.h"

/* ---- tensors of this pass -------------------------------------------------------------------- */

static struct tensor shaped(const struct net *n, int item, enum value_type type, int level, int c)
{
    const struct net_shape *s = &n->shape;
    struct tensor t = {
        .type = type, .n = n->items, .d = s->d >> level, .h = s->h >> level, .w = s->w >> level, .c = c};
    if (item >= 0 && n->arena)
        t.data = n->arena + n->plan.items[item].offset;
    return t;
}

struct tensor net_layer_tensor(const struct net *n, int layer)
{
    const struct layer *l = &n->graph.layers[layer];
    return shaped(n, n->run[layer].y, n->run[layer].type, l->level, l->c_out);
}

struct tensor net_slot_tensor(const struct net *n, int slot)
{
    const struct slot *s = &n->slots[slot];
    if (s->layer < 0)
        return shaped(n, s->item, VALUE_F32, 0, n->graph.values[0].c);
    const struct layer *l = &n->graph.layers[s->layer];
    enum value_type type = l->output >= 0 ? device_value_type(n->dev) : n->run[s->layer].type;
    return shaped(n, s->item, type, l->level, l->c_out);
}

/* Of an open output, with all its classes. */
static struct tensor wide_tensor(const struct net *n, int layer, int item)
{
    const struct layer *l = &n->graph.layers[layer];
    return shaped(n, item, VALUE_F32, l->level, l->c_out + 1);
}

static struct tensor out_grad_tensor(const struct net *n, int layer)
{
    const struct layer *l = &n->graph.layers[layer];
    return shaped(n, n->run[layer].out_grad, VALUE_F32, l->level, l->c_out);
}

struct conv_source net_source(const struct net *n, int layer)
{
    const struct layer *l = &n->graph.layers[layer];
    return (struct conv_source){.y = net_layer_tensor(n, layer),
                                .scale = n->run[layer].scale,
                                .shift = n->run[layer].shift,
                                .relu = l->view >= 0 && n->graph.values[l->view].relu};
}

static struct conv_in input_of(const struct net *n, int layer)
{
    const struct value *v = &n->graph.values[n->graph.layers[layer].input];
    struct conv_in in = {.count = 1};
    if (v->kind == FROM_INPUT) {
        in.from[0].y = n->image;
    } else if (v->kind == FROM_LAYER) {
        in.from[0] = net_source(n, v->layer);
    } else {
        in.count = 2;
        for (int k = 0; k < 2; k++)
            in.from[k] = net_source(n, n->graph.values[v->from[k]].layer);
    }
    return in;
}

int net_input_slot(const struct net *n, int layer)
{
    const struct value *all = n->graph.values, *v = &all[n->graph.layers[layer].input];
    if (v->kind == FROM_INPUT)
        return n->input_slot;
    if (v->kind == FROM_LAYER)
        return n->run[v->layer].slot;
    int a = all[v->from[0]].layer, b = all[v->from[1]].layer;
    return n->run[a > b ? a : b].slot;
}

float *net_param(const struct net *n, int param)
{
    return n->params->value + n->params->list[param].offset;
}

/* ---- forward --------------------------------------------------------------------------------- */

static void begin_pass(struct net *n, const struct tensor *image, const struct net_pass *pass)
{
    const struct net_shape *s = &n->shape;
    CHECK(image->type == VALUE_F32 && image->c == n->graph.values[0].c);
    CHECK(image->d == s->d && image->h == s->h && image->w == s->w && image->n >= 1);
    CHECK(image->n == s->n || (image->n < s->n && pass->mode != NET_TRAIN));
    n->image = *image;
    n->items = image->n;
    n->pass = *pass;
    n->fresh = 1;
    memset(n->asked, 0, sizeof n->asked);
    n->rows.at = NULL;
    /* several networks may share the parameters: the one that has the first parameter counts */
    if (pass->mode != NET_EVAL && n->graph.layers[0].weight == 0)
        n->params->batches++;
    const struct params *p = n->params;
    n->tables_stand = pass->mode == NET_EVAL && n->tables_of.version == p->version &&
                      n->tables_of.batches == p->batches && n->tables_of.items >= n->items;
    if (n->tables_stand)
        return;
    n->tables_of.version = p->version;
    n->tables_of.batches = p->batches;
    n->tables_of.items = pass->mode == NET_EVAL ? n->items : 0;
}

static void pack_weights(struct net *n)
{
    struct packing *k = &n->packing;
    if (k->version == n->params->version)
        return;
    n->dev->ops->conv_pack(n->dev, k->list, k->n);
    k->version = n->params->version;
}

static void forward_layer(struct net *n, int i, const struct net_pass *pass)
{
    const struct layer *l = &n->graph.layers[i];
    struct conv_in in = input_of(n, i);
    struct tensor y = net_layer_tensor(n, i);
    struct conv_stats stats = {n->stat_mean, n->stat_m2, NULL};
    struct k_norm_tables tables;
    int with_tables = n->run[i].scale && !n->tables_stand, wanted = l->norm && pass->mode != NET_EVAL;
    if (l->is != LAYER_CONV) {
        (l->is == LAYER_RESIZE ? resize_forward : shake_forward)(n, i, &in.from[0]);
        return;
    }
    if (with_tables) {
        tables = norm_tables(n, i, pass);
        stats.then = &tables;
    }
    n->dev->ops->conv_forward(n->run[i].conv, &in, net_param(n, l->bias), &y, wanted ? &stats : NULL);
    if (with_tables && !wanted)
        n->dev->ops->map(n->dev, KERNEL_norm_tables, &tables, l->c_out);
    if (n->run[i].wide >= 0)
        RUN(n->dev, widen, tensor_voxels(&y), .x = y.data, .c = y.c,
            .out = wide_tensor(n, i, n->run[i].wide).data);
}

/* 1 if the device made both layers at once. */
static int forward_pair(struct net *n, int i)
{
    const struct layer *l = n->graph.layers;
    struct conv_in in = input_of(n, i);
    struct tensor y = net_layer_tensor(n, i + 1);
    return n->dev->ops->conv_pair(n->run[i].conv, &in, net_param(n, l[i].bias), n->run[i + 1].conv,
                                  net_param(n, l[i + 1].bias), &y);
}

void net_forward(struct net *n, const struct tensor *image, const struct net_pass *pass)
{
    if (n->dev->error.code != ERR_NONE)
        return;
    begin_pass(n, image, pass);
    pack_weights(n);
    for (int i = 0; i < n->graph.n_layers; i++) {
        if (i == n->pair && forward_pair(n, i))
            break;
        if (n->n_heads == 0 || i != n->first_head) {
            forward_layer(n, i, pass);
            continue;
        }
        heads_forward(n);
        i += n->n_heads - 1;
    }
}

/* ---- weight gradients beside ----------------------------------------------------------------- */

/* What comes now waits for the first `count` weight gradients of this pass. */
static void catch_up(struct net *n, int count)
{
    if (count <= n->n_caught)
        return;
    n->dev->ops->catch_up(n->dev, n->n_beside - count);
    n->n_caught = count;
}

/* Before a layer's turn: memory that is used again now was read by those of layers so far behind. */
static void catch_up_layer(struct net *n, int i)
{
    int behind = i + n->behind + 1;
    if (n->behind > 0 && behind < n->graph.n_layers)
        catch_up(n, n->beside[behind]);
}

/* A layer's weight gradient is made beside: what it reads of a slot must not change before it is done. */
static void put_beside(struct net *n, int i)
{
    int s = n->run[i].slot;
    n->n_beside++;
    if (s >= 0)
        n->slots[s].beside = n->n_beside;
}

/* ---- backward -------------------------------------------------------------------------------- */

static void add_rows(struct net *n, const struct tensor *to)
{
    const struct net_rows *r = &n->rows;
    for (int i = 0; i < r->items; i++)
        RUN(n->dev, scatter_rows, (int64_t)r->count[i] * to->c, .to = to->data,
            .rows = r->rows + (int64_t)i * r->most * to->c, .at = r->at + (int64_t)i * r->most, .c = to->c,
            .bf16 = to->type == VALUE_BF16);
}

/* The gradient at a layer's stored output; 0 if none reached it. */
static int gradient_of(struct net *n, int layer, struct conv_grad *out)
{
    const struct layer *l = &n->graph.layers[layer];
    struct layer_run *r = &n->run[layer];
    int from_view = r->slot >= 0 && n->slots[r->slot].written;
    int masked = from_view && n->slots[r->slot].masked;
    int from_output = l->output >= 0 && n->asked[l->output];
    int from_rows = l->output >= 0 && n->rows.at && n->rows_output == l->output;
    struct tensor view = {0};
    *out = (struct conv_grad){.y = net_source(n, layer)};
    if (from_view)
        view = net_slot_tensor(n, r->slot);
    if (masked)
        out->y.relu = 0;
    if (from_rows && (from_output || !masked)) {
        struct tensor all = net_grad(n, n->graph.outputs[l->output]);
        add_rows(n, &all);
        from_output = 1;
    } else if (from_rows) {
        catch_up(n, n->slots[r->slot].beside);
        add_rows(n, &view);
    }
    if (from_output) {
        out->g = out_grad_tensor(n, layer);
        if (from_view)
            n->dev->ops->grad_join(n->dev, &out->g, &view, &out->y);
        out->y.relu = 0; /* the mask is in the joined gradient */
        return 1;
    }
    if (from_view && r->scale) {
        if (n->sums_of != layer)
            norm_backward(n, layer, &view);
        out->p = r->p;
        out->q = r->q;
        out->r = r->r;
    }
    out->g = view;
    return from_view;
}

float *net_touched_grad(struct net *n, int param)
{
    n->params->touched[param] = 1;
    return n->params->grad + n->params->list[param].offset;
}

/* The gradient of a bias, to be added to: zeros if it is the first since the last update. */
static float *started_grad(struct net *n, int param)
{
    int first = !n->params->touched[param];
    float *grad = net_touched_grad(n, param);
    if (first)
        n->dev->ops->zero(n->dev, grad, (size_t)n->params->list[param].count * sizeof(float));
    return grad;
}

/* Whether writing dx of layer i also makes the sums of the layer before it, whose turn is next. */
static int sums_before(struct net *n, int i, struct conv_sums *out)
{
    const struct value *v = &n->graph.values[n->graph.layers[i].input], *from = n->graph.values;
    out->of = v->kind == FROM_ADD && from[v->from[1]].layer == i - 1;
    if (v->kind == FROM_INPUT || i <= n->graph.frozen || !n->graph.layers[i - 1].norm)
        return 0;
    if ((v->kind == FROM_ADD ? from[v->from[out->of]].layer : v->layer) != i - 1)
        return 0;
    out->mean = n->run[i - 1].center;
    out->sums = n->sums;
    return 1;
}

/* dx: what add says of it is CONV_ADD_DX or nothing. */
static void backward_conv(struct net *n, int i, const struct conv_grad *g, const struct tensor *dx, int add)
{
    const struct layer *l = &n->graph.layers[i];
    struct conv_in in = input_of(n, i);
    struct conv_sums sums;
    struct k_norm_grads grads;
    /* batch statistics take the bias out: its gradient is exactly 0, and norm_backward set it */
    float *dbias = l->norm && n->pass.mode == NET_TRAIN ? NULL : started_grad(n, l->bias);
    add |= CONV_SAME_X | (n->behind > 0 ? CONV_BESIDE : 0);
    add |= n->params->touched[l->weight] ? CONV_ADD_WEIGHT : 0;
    int with_sums = sums_before(n, i, &sums);
    if (with_sums) {
        grads = norm_grads(n, i - 1);
        sums.then = &grads;
    }
    n->dev->ops->conv_backward(n->run[i].conv, g, &in, dx, add, net_touched_grad(n, l->weight), dbias,
                               with_sums ? &sums : NULL);
    n->sums_of = with_sums ? i - 1 : -1;
    if (n->behind > 0)
        put_beside(n, i);
}

static void backward_layer(struct net *n, int i)
{
    struct conv_grad g;
    int reached = gradient_of(n, i, &g);
    n->sums_of = -1;
    if (!reached)
        return;
    int s = net_input_slot(n, i), add = s >= 0 && n->slots[s].written ? CONV_ADD_DX : 0;
    struct tensor dx = {0};
    if (s >= 0) {
        dx = net_slot_tensor(n, s);
        n->slots[s].written = 1;
        catch_up(n, n->slots[s].beside);
    }
    enum layer_kind is = n->graph.layers[i].is;
    if (is == LAYER_CONV)
        backward_conv(n, i, &g, &dx, add);
    else
        (is == LAYER_RESIZE ? resize_backward : shake_backward)(n, i, &g.g, &dx, add != 0);
}

/* The layer has read its slot: what other decoders sent to the same skip joins it. */
static void meet(struct net *n, int i)
{
    const struct layer_run *r = &n->run[i];
    if (r->meets < 0 || !n->slots[r->meets].written)
        return;
    struct tensor to = net_slot_tensor(n, r->slot), from = net_slot_tensor(n, r->meets);
    catch_up(n, n->slots[r->slot].beside);
    RUN(n->dev, meet, tensor_count(&to), .to = to.data, .from = from.data, .bf16 = to.type == VALUE_BF16,
        .fresh = !n->slots[r->slot].written);
    n->slots[r->slot].written = 1;
}

/* The gradients of open outputs lose the channel that is no number of the network's. */
static void narrow_grads(struct net *n)
{
    for (int k = 0; k < n->graph.n_outputs; k++) {
        int layer = n->graph.output_layer[k];
        struct tensor g = out_grad_tensor(n, layer);
        if (n->asked[k] && n->graph.open[k])
            RUN(n->dev, narrow, tensor_voxels(&g), .c = g.c, .out = g.data,
                .x = wide_tensor(n, layer, n->run[layer].wide_grad).data);
    }
}

void net_backward(struct net *n)
{
    CHECK(n->shape.use == NET_TRAINING);
    if (n->dev->error.code != ERR_NONE)
        return;
    CHECK(n->fresh); /* backward reuses the memory of what it has read: once for each forward pass */
    n->fresh = 0;
    n->sums_of = -1;
    narrow_grads(n);
    for (int k = 0; k < n->n_slots; k++)
        n->slots[k].written = n->slots[k].masked = n->slots[k].beside = 0;
    n->n_beside = n->n_caught = 0;
    memset(n->beside, 0, sizeof n->beside);
    for (int i = n->graph.n_layers - 1; i >= n->graph.frozen; i--) {
        if (n->n_heads > 0 && i == n->first_head + n->n_heads - 1 && heads_backward(n)) {
            i = n->first_head;
        } else {
            catch_up_layer(n, i);
            backward_layer(n, i);
            meet(n, i);
            n->beside[i] = n->n_beside;
        }
    }
    catch_up(n, n->n_beside);
    if (n->input_slot >= 0 && !n->slots[n->input_slot].written) {
        struct tensor t = net_slot_tensor(n, n->input_slot);
        n->dev->ops->zero(n->dev, t.data, (size_t)tensor_count(&t) * sizeof(float));
    }
}

/* ---- what goes in and out -------------------------------------------------------------------- */

static int find_output(const struct net *n, const char *name)
{
    int k = 0;
    while (k < n->graph.n_outputs && strcmp(n->graph.outputs[k], name) != 0)
        k++;
    CHECK(k < n->graph.n_outputs);
    return k;
}

struct tensor net_value(const struct net *n, const char *output)
{
    int layer = n->graph.output_layer[find_output(n, output)], wide = n->run[layer].wide;
    return wide >= 0 ? wide_tensor(n, layer, wide) : net_layer_tensor(n, layer);
}

struct tensor net_grad_to_set(struct net *n, const char *output)
{
    int k = find_output(n, output);
    CHECK(n->shape.use == NET_TRAINING);
    n->asked[k] = 1;
    int layer = n->graph.output_layer[k], wide = n->run[layer].wide_grad;
    return wide >= 0 ? wide_tensor(n, layer, wide) : out_grad_tensor(n, layer);
}

struct tensor net_grad(struct net *n, const char *output)
{
    int fresh = !n->asked[find_output(n, output)];
    struct tensor t = net_grad_to_set(n, output);
    if (fresh)
        n->dev->ops->zero(n->dev, t.data, (size_t)tensor_count(&t) * sizeof(float));
    return t;
}

void net_grad_rows(struct net *n, const char *output, const struct net_rows *rows)
{
    int k = find_output(n, output);
    CHECK(n->shape.use == NET_TRAINING && !n->rows.at && !n->graph.open[k]);
    n->rows = *rows;
    n->rows_output = k;
}

struct tensor net_input_grad(const struct net *n)
{
    CHECK(n->input_slot >= 0);
    return net_slot_tensor(n, n->input_slot);
}
