/* net_heads.c - the last layers of a network, where the device can run some at once: heads of one output, or
 * two that follow each other.
 */
#include "device/heads.h"
#include "net/net_int.h"

/* 1 if a layer could be a head beside head `other`: both read one output, as it is or through relu, and no
 * layer reads them. */
static int is_head(const struct graph *g, int layer, int other)
{
    const struct layer *l = &g->layers[layer];
    const struct value *v = &g->values[l->input];
    return l->kind == CONV_1 && !l->norm && l->view < 0 && l->output >= 0 && !g->open[l->output] &&
           l->c_in == HEADS_IN && l->input == g->layers[other].input && v->kind == FROM_LAYER &&
           g->layers[v->layer].output >= 0;
}

/* What the heads of this pass read and write. */
static struct heads heads_of(const struct net *n)
{
    const struct graph *g = &n->graph;
    struct conv_source from = net_source(n, g->values[g->layers[n->first_head].input].layer);
    struct heads h = {.n = n->n_heads, .relu = from.relu, .voxels = tensor_voxels(&from.y), .x = from.y.data};
    for (int i = 0; i < n->n_heads; i++) {
        const struct layer *l = &g->layers[n->first_head + i];
        h.head[i] = (struct head){.c = l->c_out,
                                  .weight = net_param(n, l->weight),
                                  .bias = net_param(n, l->bias),
                                  .y = net_layer_tensor(n, n->first_head + i).data};
    }
    return h;
}

void heads_find(struct net *n)
{
    const struct graph *g = &n->graph;
    int first = g->n_layers;
    while (first > 0 && g->n_layers - first < HEADS_MOST && is_head(g, first - 1, g->n_layers - 1))
        first--;
    n->first_head = first;
    n->n_heads = g->n_layers - first;
    if (n->n_heads == 0)
        return;
    struct heads h = heads_of(n);
    if (!n->dev->ops->heads_fit || !n->dev->ops->heads_fit(n->dev, &h))
        n->n_heads = 0;
}

/* The last two layers, if the second is all that reads the first, as max(., 0), and no gradient is wanted. */
void pair_find(struct net *n)
{
    const struct graph *g = &n->graph;
    int last = g->n_layers - 1;
    n->pair = -1;
    if (last < 1 || n->shape.use != NET_FORWARD_ONLY || !n->dev->ops->conv_pair)
        return;
    const struct layer *a = &g->layers[last - 1], *b = &g->layers[last];
    const struct value *v = &g->values[b->input];
    int plain = a->is == LAYER_CONV && b->is == LAYER_CONV && a->kind == CONV_1 && b->kind == CONV_1 &&
                !a->norm && !b->norm && a->output < 0;
    if (plain && v->kind == FROM_LAYER && v->layer == last - 1 && net_source(n, last - 1).relu &&
        !n->run[last - 1].scale && n->run[last].wide < 0)
        n->pair = last - 1;
}

void heads_forward(struct net *n)
{
    struct heads h = heads_of(n);
    n->dev->ops->heads_forward(n->dev, &h);
}

int heads_backward(struct net *n)
{
    struct heads h = heads_of(n);
    struct slot *to = &n->slots[net_input_slot(n, n->first_head)];
    int all = !to->written;
    for (int i = 0; i < n->n_heads; i++) {
        int output = n->graph.layers[n->first_head + i].output;
        all &= n->asked[output] && !(n->rows.at && n->rows_output == output);
    }
    if (!all)
        return 0;
    for (int i = 0; i < n->n_heads; i++) {
        const struct layer *l = &n->graph.layers[n->first_head + i];
        h.head[i].dy = net_grad_to_set(n, n->graph.outputs[l->output]).data;
        h.head[i].add = n->params->touched[l->weight];
        h.head[i].dweight = net_touched_grad(n, l->weight);
        h.head[i].dbias = net_touched_grad(n, l->bias);
    }
    h.dx = net_slot_tensor(n, (int)(to - n->slots)).data;
    to->written = to->masked = 1;
    n->dev->ops->heads_backward(n->dev, &h);
    return 1;
}
