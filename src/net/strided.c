/* strided.c - see strided.h. Kernels of the critic's shape are made of others (halving.h), the rest is
 * unfolded (unfolding.h).
 */
#include "net/strided.h"

#include <stdio.h>

#include "net/unfolding.h"

enum { SLAB_FLOATS = 64 << 20 }; /* of rows at once: 256 MiB */

/* One convolution, as one or the other; or the linear layer, as neither. */
struct stride {
    int weight, bias; /* params->list */
    struct halving *halving;
    struct unfolding *unfolding;
};

struct strided {
    struct device *dev; /* borrowed, as params */
    struct params *params;
    const struct strided_spec *spec;
    int n, layers;
    struct stride stride[STRIDED_LAYERS + 1], linear; /* the last one: of the image */
    struct tensor y[STRIDED_LAYERS + 1], dy[STRIDED_LAYERS];
    float *factor[STRIDED_LAYERS]; /* (n, c) dropout of y; NULL: none */
    float *work;                   /* of whichever layer runs */
    struct tensor mean, dmean, out, dout;
    struct conv *product; /* the linear layer's */
    uint64_t version;     /* of the params that are packed */

    /* the pass at hand; before the first, the shapes of both */
    struct tensor map, image;
    int items, train;
};

const struct strided_spec critic_spec = {.name = {"conv0", "conv2", "conv3", "conv4"},
                                         .second = "conv1",
                                         .linear = "classifier",
                                         .width = {4, 8, 16, 32},
                                         .kernel = {4, 4, 4},
                                         .stride = {2, 2, 2},
                                         .pad = {1, 1, 1},
                                         .slope = 0.2f,
                                         .dropout = {0.5f, 0.5f, 0.5f},
                                         .out = 2};

const struct strided_spec projector_spec = {.name = {"projector.conv1", "projector.conv2", "projector.conv3"},
                                            .linear = "projector.linear",
                                            .width = {1, 2, 4, 8},
                                            .kernel = {3, 3, 1},
                                            .stride = {2, 2, 1},
                                            .pad = {1, 1, 0},
                                            .columns = 1};

static int layer_count(const struct strided_spec *s)
{
    int n = 0;
    while (n < STRIDED_LAYERS && s->name[n])
        n++;
    return n;
}

/* Channels that layer i gives. */
static int width_of(const struct strided_spec *s, int i, int filters)
{
    return s->width[i] * filters;
}

static int out_of(const struct strided_spec *s, int filters)
{
    return s->out ? s->out : s->width[STRIDED_LAYERS - 1] * filters;
}

void strided_declare(struct builder *b, const struct strided_spec *s, int map, int image, int filters)
{
    const int *k = s->kernel, n = layer_count(s);
    for (int i = 0; i < n; i++) {
        int c = width_of(s, i, filters), in = i ? width_of(s, i - 1, filters) : map;
        net_weights(b, s->name[i], (int[5]){c, in, k[0], k[1], k[2]});
        if (i == 0 && s->second)
            net_weights(b, s->second, (int[5]){c, image, k[0], k[1], k[2]});
    }
    net_weights(b, s->linear, (int[5]){out_of(s, filters), width_of(s, n - 1, filters), 1, 1, 1});
}

void critic_define(struct builder *b, const struct net_definition *self)
{
    strided_declare(b, &critic_spec, self->classes, self->channels, self->filters);
}

void projector_define(struct builder *b, const struct net_definition *self)
{
    strided_declare(b, &projector_spec, self->classes - 1, 0, self->filters);
}

/* ---- making ---------------------------------------------------------------------------------- */

static int find_weights(struct strided *s, struct stride *t, const char *name, struct error *e)
{
    char full[sizeof s->params->list->name];
    const char *tails[2] = {"weight", "bias"};
    int *to[2] = {&t->weight, &t->bias};
    for (int i = 0; i < 2; i++) {
        snprintf(full, sizeof full, "%s.%s", name, tails[i]);
        const struct param *p = params_find(s->params, full);
        if (!p)
            return fail(e, ERR_CONFIG, NULL, "the weights are of another network: %s is missing", full);
        *to[i] = (int)(p - s->params->list);
    }
    return 0;
}

static void make_tensor(struct strided *s, struct tensor *x, const int extent[3], int c)
{
    *x =
        (struct tensor){.type = VALUE_F32, .n = s->n, .d = extent[0], .h = extent[1], .w = extent[2], .c = c};
    x->data = s->dev->ops->alloc(s->dev, (size_t)tensor_count(x) * sizeof(float));
}

/* The layer that reads x, of which the shape counts, and gives y[i]. */
static int make_stride(struct strided *s, int i, const struct tensor *x, int c_out, struct error *e)
{
    const struct strided_spec *spec = s->spec;
    const int extent[3] = {x->d, x->h, x->w};
    struct stride *t = &s->stride[i];
    int halves = 1, most = spec->slab ? spec->slab : SLAB_FLOATS, training = s->params->grad != NULL;
    struct k_window at = {.c = x->c};
    for (int a = 0; a < 3; a++) {
        halves &= spec->kernel[a] == 4 && spec->stride[a] == 2 && spec->pad[a] == 1;
        at.extent[a] = extent[a];
        at.kernel[a] = spec->kernel[a];
        at.stride[a] = spec->stride[a];
        at.pad[a] = spec->pad[a];
        at.out[a] = (extent[a] + 2 * spec->pad[a] - spec->kernel[a]) / spec->stride[a] + 1;
    }
    struct halving_shape h = {s->n, {x->d, x->h, x->w}, x->c, c_out, most};
    struct unfolding_shape u = {at, c_out, most, training};
    if ((halves ? halving_new(&t->halving, s->dev, &h, e) : unfolding_new(&t->unfolding, s->dev, &u, e)) < 0)
        return -1;
    make_tensor(s, &s->y[i], at.out, c_out);
    if (i < STRIDED_LAYERS && training)
        make_tensor(s, &s->dy[i], at.out, c_out);
    if (i < STRIDED_LAYERS && spec->dropout[i] > 0)
        s->factor[i] = s->dev->ops->alloc(s->dev, (size_t)s->n * (size_t)c_out * sizeof(float));
    return 0;
}

static void make_end(struct strided *s, int filters)
{
    int training = s->params->grad != NULL, out = out_of(s->spec, filters);
    const struct tensor *last = &s->y[s->layers - 1];
    const int row[3] = {1, 1, s->spec->columns ? last->w : 1};
    struct conv_shape linear = {.kind = CONV_1,
                                .n = s->n,
                                .d = 1,
                                .h = 1,
                                .w = row[2],
                                .c_in = last->c,
                                .c_out = out,
                                .in = VALUE_F32,
                                .out = VALUE_F32,
                                .training = training,
                                .input_grad = training};
    s->product = s->dev->ops->conv_new(s->dev, &linear);
    make_tensor(s, &s->mean, row, last->c);
    make_tensor(s, &s->dmean, row, last->c);
    make_tensor(s, &s->out, row, out);
    make_tensor(s, &s->dout, row, out);
}

/* Working memory that is enough for every layer. */
static int64_t work_floats(const struct strided *s)
{
    int64_t most = 0;
    for (int i = 0; i <= STRIDED_LAYERS; i++) {
        const struct stride *t = &s->stride[i];
        int64_t own = t->halving     ? halving_floats(t->halving)
                      : t->unfolding ? unfolding_floats(t->unfolding)
                                     : 0;
        most = own > most ? own : most;
    }
    return most;
}

static int build(struct strided *s, const struct net_shape *shape, int map, int image, int filters,
                 struct error *e)
{
    s->map = s->image = (struct tensor){.d = shape->d, .h = shape->h, .w = shape->w, .c = map};
    s->image.c = image;
    for (int i = 0; i < s->layers; i++)
        if (make_stride(s, i, i ? &s->y[i - 1] : &s->map, width_of(s->spec, i, filters), e) < 0 ||
            find_weights(s, &s->stride[i], s->spec->name[i], e) < 0)
            return -1;
    if (s->spec->second && (make_stride(s, STRIDED_LAYERS, &s->image, width_of(s->spec, 0, filters), e) < 0 ||
                            find_weights(s, &s->stride[STRIDED_LAYERS], s->spec->second, e) < 0))
        return -1;
    make_end(s, filters);
    s->work = s->dev->ops->alloc(s->dev, (size_t)work_floats(s) * sizeof(float));
    return device_check(s->dev, e) < 0 ? -1 : find_weights(s, &s->linear, s->spec->linear, e);
}

int strided_new(struct strided **out, struct params *p, const struct strided_spec *spec,
                const struct net_shape *shape, int map, int image, int filters, struct error *e)
{
    struct strided *s = mem_alloc(e, 1, sizeof *s);
    *out = NULL;
    if (!s)
        return -1;
    s->dev = p->dev;
    s->params = p;
    s->spec = spec;
    s->n = shape->n;
    s->layers = layer_count(spec);
    if (build(s, shape, map, image, filters, e) < 0) {
        strided_free(s);
        return -1;
    }
    *out = s;
    return 0;
}

void strided_free(struct strided *s)
{
    if (!s)
        return;
    const struct device_ops *ops = s->dev->ops;
    for (int i = 0; i <= STRIDED_LAYERS; i++) {
        halving_free(s->stride[i].halving);
        unfolding_free(s->stride[i].unfolding);
        ops->free(s->dev, s->y[i].data);
    }
    for (int i = 0; i < STRIDED_LAYERS; i++) {
        ops->free(s->dev, s->dy[i].data);
        ops->free(s->dev, s->factor[i]);
    }
    if (s->product)
        ops->conv_free(s->product);
    void *memory[] = {s->work, s->mean.data, s->dmean.data, s->out.data, s->dout.data};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        ops->free(s->dev, memory[i]);
    mem_free(s);
}

/* ---- forward --------------------------------------------------------------------------------- */

static float *value_of(const struct strided *s, int param)
{
    return s->params->value + s->params->list[param].offset;
}

static void pack_weights(struct strided *s)
{
    struct conv_weight linear = {s->product, value_of(s, s->linear.weight)};
    if (s->version == s->params->version)
        return;
    for (int i = 0; i <= STRIDED_LAYERS; i++) {
        const struct stride *t = &s->stride[i];
        if (t->halving)
            halving_pack(t->halving, value_of(s, t->weight));
        if (t->unfolding)
            unfolding_pack(t->unfolding, value_of(s, t->weight));
    }
    s->dev->ops->conv_pack(s->dev, &linear, 1);
    s->version = s->params->version;
}

/* What layer i reads, and how. */
static struct leaky_in input_of(const struct strided *s, int i)
{
    struct leaky_in in = {.slope = 1.0f};
    if (i == 0 || i == STRIDED_LAYERS) {
        in.x = i ? s->image : s->map;
        return in;
    }
    in.x = s->y[i - 1];
    in.slope = s->spec->slope;
    if (i == 1 && s->spec->second)
        in.more = s->y[STRIDED_LAYERS];
    if (s->train)
        in.factor = s->factor[i - 1];
    return in;
}

static void forward_layer(struct strided *s, int i)
{
    const struct stride *t = &s->stride[i];
    struct leaky_in in = input_of(s, i);
    struct tensor y = tensor_items(&s->y[i], 0, s->items);
    if (t->halving)
        halving_forward(t->halving, &in, value_of(s, t->bias), &y, s->work);
    else
        unfolding_forward(t->unfolding, &in, value_of(s, t->bias), &y, s->work);
}

static void draw_dropout(struct strided *s, int i, const struct net_pass *pass)
{
    int c = s->y[i].c;
    if (s->train && s->factor[i])
        RUN(s->dev, drop, c, .factor = s->factor[i], .p = s->spec->dropout[i], .items = s->items, .c = c,
            .seed = pass->seed, .step = pass->step, .first = (uint64_t)i << 48, .item = (uint64_t)1 << 24,
            .stream = pass->stream);
}

/* The last layer as groups of a mean: voxels of each, and how many an item has. */
static struct tensor last_of(const struct strided *s, int64_t *voxels, int *columns)
{
    struct tensor y = s->y[s->layers - 1];
    *columns = s->mean.w;
    *voxels = (int64_t)y.d * y.h * y.w / *columns;
    y.n = s->items;
    return y;
}

struct tensor strided_forward(struct strided *s, const struct tensor *map, const struct tensor *image,
                              const struct net_pass *pass)
{
    int64_t voxels;
    int columns;
    CHECK(map->n <= s->n && map->c == s->map.c && map->d == s->map.d && map->w == s->map.w);
    s->map = *map;
    if (image)
        s->image = *image;
    s->items = map->n;
    s->train = pass->mode == NET_TRAIN;
    pack_weights(s);
    if (s->spec->second)
        forward_layer(s, STRIDED_LAYERS);
    for (int i = 0; i < s->layers; i++) {
        draw_dropout(s, i, pass);
        forward_layer(s, i);
    }
    struct tensor last = last_of(s, &voxels, &columns), out = tensor_items(&s->out, 0, s->items);
    struct tensor mean = tensor_items(&s->mean, 0, s->items);
    RUN(s->dev, pool, tensor_count(&mean), .x = last.data, .mean = mean.data, .voxels = voxels,
        .columns = columns, .c = last.c, .slope = s->spec->slope);
    struct conv_in in = {.count = 1, .from = {{.y = mean}}};
    s->dev->ops->conv_forward(s->product, &in, value_of(s, s->linear.bias), &out, NULL);
    return out;
}

/* ---- backward -------------------------------------------------------------------------------- */

struct tensor strided_grad(struct strided *s)
{
    struct tensor g = tensor_items(&s->dout, 0, s->items);
    s->dev->ops->zero(s->dev, g.data, (size_t)tensor_count(&g) * sizeof(float));
    return g;
}

/* Where a layer's gradients go: of its parameters, if they are wanted. */
static struct layer_grads grads_of(struct strided *s, const struct stride *t, int what)
{
    struct params *p = s->params;
    struct layer_grads to = {.fresh = !p->touched[t->weight]};
    if (what & STRIDED_WEIGHTS) {
        to.dweight = p->grad + p->list[t->weight].offset;
        to.dbias = p->grad + p->list[t->bias].offset;
        p->touched[t->weight] = p->touched[t->bias] = 1;
    }
    return to;
}

/* The linear layer: of x, from dy to dx. */
static void backward_linear(struct strided *s, int what, const struct tensor *x, const struct tensor *dy,
                            const struct tensor *dx)
{
    struct conv_grad g = {.g = *dy};
    struct conv_in in = {.count = 1, .from = {{.y = *x}}};
    struct layer_grads to = grads_of(s, &s->linear, what);
    if (to.dbias && to.fresh)
        s->dev->ops->zero(s->dev, to.dbias, (size_t)dy->c * sizeof(float));
    s->dev->ops->conv_backward(s->product, &g, &in, dx, to.fresh ? 0 : CONV_ADD_WEIGHT, to.dweight, to.dbias,
                               NULL);
}

/* Layer i from dy (that of layer 0 for the image's); dx, if there is one, is overwritten. */
static void backward_layer(struct strided *s, int i, int what, const struct tensor *dx)
{
    const struct stride *t = &s->stride[i];
    struct leaky_in in = input_of(s, i);
    struct tensor dy = tensor_items(&s->dy[i % STRIDED_LAYERS], 0, s->items);
    struct layer_grads to = grads_of(s, t, what);
    if (dx)
        to.dx = *dx;
    if (t->halving)
        halving_backward(t->halving, &in, &dy, &to, s->work);
    else
        unfolding_backward(t->unfolding, &in, &dy, &to, s->work);
}

void strided_backward(struct strided *s, int what, const struct tensor *dmap)
{
    int64_t voxels;
    int columns;
    struct tensor last = last_of(s, &voxels, &columns), dout = tensor_items(&s->dout, 0, s->items);
    struct tensor mean = tensor_items(&s->mean, 0, s->items), dmean = tensor_items(&s->dmean, 0, s->items);
    if (s->dev->error.code != ERR_NONE)
        return;
    backward_linear(s, what, &mean, &dout, &dmean);
    RUN(s->dev, pool_grad, tensor_count(&last), .x = last.data, .dmean = dmean.data,
        .g = s->dy[s->layers - 1].data, .voxels = voxels, .columns = columns, .c = last.c,
        .slope = s->spec->slope);
    for (int i = s->layers - 1; i > 0; i--)
        backward_layer(s, i, what, &s->dy[i - 1]);
    if (what & STRIDED_WEIGHTS && s->spec->second)
        backward_layer(s, STRIDED_LAYERS, what, NULL);
    backward_layer(s, 0, what, what & STRIDED_MAP ? dmap : NULL);
}
