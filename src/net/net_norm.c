/* net_norm.c - batch norm and dropout of the layers of a network: the tables that convolutions read through,
 * made on the device (kernels_norm.h has the formulas).
 */
#include "device/kernels.h"
#include "net/net_int.h"

static const double MOMENTUM = 0.1; /* of the running statistics; PyTorch's default */

/* One block of random numbers for every (layer, item, channel). */
static void draw_dropout(struct net *n, int layer, const struct net_pass *pass)
{
    const struct layer *l = &n->graph.layers[layer];
    RUN(n->dev, drop, l->c_out, .factor = n->run[layer].drop, .p = n->graph.values[l->view].dropout,
        .items = n->items, .c = l->c_out, .seed = pass->seed, .step = pass->step,
        .first = (uint64_t)layer << 48, .item = (uint64_t)1 << 24, .stream = pass->stream);
}

struct k_norm_tables norm_tables(struct net *n, int layer, const struct net_pass *pass)
{
    const struct layer *l = &n->graph.layers[layer];
    struct layer_run *r = &n->run[layer];
    struct tensor y = net_layer_tensor(n, layer);
    int train = pass->mode == NET_TRAIN;
    int batch = train || (pass->mode == NET_MEASURE && tensor_voxels(&y) > 1); /* one has no variance */
    if (r->drop && train)
        draw_dropout(n, layer, pass);
    struct k_norm_tables k = {.factor = train ? r->drop : NULL,
                              .items = n->items,
                              .c = l->c_out,
                              .momentum = train ? MOMENTUM : 1.0 / (1 + pass->measured),
                              .elements = (double)tensor_voxels(&y),
                              .mean = r->mean,
                              .rstd = r->rstd,
                              .center = r->center,
                              .scale = r->scale,
                              .shift = r->shift};
    if (l->norm) {
        k.batch_mean = batch ? n->stat_mean : NULL;
        k.batch_m2 = batch ? n->stat_m2 : NULL;
        k.gamma = net_param(n, l->gamma);
        k.beta = net_param(n, l->beta);
        k.running_mean = net_param(n, l->mean);
        k.running_var = net_param(n, l->var);
    }
    return k;
}

struct k_norm_grads norm_grads(struct net *n, int layer)
{
    const struct layer *l = &n->graph.layers[layer];
    struct layer_run *r = &n->run[layer];
    struct tensor y = net_layer_tensor(n, layer);
    struct k_norm_grads k = {.factor = n->pass.mode == NET_TRAIN ? r->drop : NULL,
                             .items = n->items,
                             .c = l->c_out,
                             .p = r->p,
                             .q = r->q,
                             .r = r->r};
    if (l->norm) {
        k.sums = n->sums;
        k.mean = r->mean;
        k.rstd = r->rstd;
        k.elements = n->pass.mode == NET_TRAIN ? (double)tensor_voxels(&y) : 0;
        k.gamma = net_param(n, l->gamma);
        k.fresh = !n->params->touched[l->gamma];
        k.dgamma = net_touched_grad(n, l->gamma);
        k.dbeta = net_touched_grad(n, l->beta);
        if (n->pass.mode == NET_TRAIN && !n->params->touched[l->bias])
            k.dbias = net_touched_grad(n, l->bias);
    }
    return k;
}

void norm_backward(struct net *n, int layer, const struct tensor *g)
{
    struct conv_source y = net_source(n, layer);
    struct k_norm_grads k = norm_grads(n, layer);
    if (n->graph.layers[layer].norm)
        n->dev->ops->norm_sums(n->dev, g, &y, n->run[layer].center, n->sums);
    n->dev->ops->map(n->dev, KERNEL_norm_grads, &k, k.c);
}
