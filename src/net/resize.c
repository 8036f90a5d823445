/* resize.c - layers that make a value larger (kernels_layer.h has the bodies): the other way up of a decoder,
 * and what brings coarse outputs to the size of the image. They read their input like a convolution does,
 * and store what they make.
 */
#include "device/kernels.h"
#include "net/net_int.h"

static struct k_grids grids_of(const struct net *n, int layer)
{
    const struct layer *l = &n->graph.layers[layer];
    static const int how[] = {K_NEAREST, K_ALIGNED, K_CENTRED}; /* by enum net_resize_by */
    const int size[3] = {n->shape.d, n->shape.h, n->shape.w};
    struct k_grids g = {.how = how[l->by], .c = l->c_out};
    for (int a = 0; a < 3; a++) {
        g.from[a] = size[a] >> l->level_in;
        g.to[a] = size[a] >> l->level;
    }
    return g;
}

void resize_forward(struct net *n, int layer, const struct conv_source *in)
{
    struct tensor y = net_layer_tensor(n, layer);
    struct k_view a = {in->y.data, in->y.type == VALUE_BF16, in->scale, in->shift, in->relu};
    RUN(n->dev, resize, k_runs(tensor_voxels(&y), y.c), .a = a, .out = y.data,
        .out_bf16 = y.type == VALUE_BF16, .grid = grids_of(n, layer));
}

void resize_backward(struct net *n, int layer, const struct tensor *g, const struct tensor *dx, int add)
{
    if (dx->data)
        RUN(n->dev, resize_grad, k_runs(tensor_voxels(dx), dx->c), .g = g->data,
            .g_bf16 = g->type == VALUE_BF16, .dx = dx->data, .dx_bf16 = dx->type == VALUE_BF16, .fresh = !add,
            .grid = grids_of(n, layer));
}
