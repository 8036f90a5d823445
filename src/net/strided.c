/* strided.c - see strided.h.
 *
 *     item by item, slab by slab of positions:
 *     forward    unfold -> rows -> product -> y
 *     backward   dy, rows (unfolded again) -> dweight;  dy -> drows -> unfolded back, added to dx
 *
 * Slabs divide the planes of a layer evenly, so one plan of the product fits all of them. Everything is added
 * in the order of items and slabs. Kernels of the critic's shape are not unfolded (halving.h).
 */
#include "net/strided.h"

#include <stdio.h>

#include "device/kernels.h"
#include "net/halving.h"
#include "net/net_int.h"

enum { SLAB_FLOATS = 64 << 20 }; /* of rows at once: 256 MiB */

/* One convolution. */
struct stride {
    struct k_window at;
    int c_out, weight, bias;       /* channels; params->list */
    int planes;                    /* of a slab */
    struct conv *conv;             /* of its rows; or */
    struct halving *halving;
};

struct strided {
    struct device *dev;            /* borrowed, as params */
    struct params *params;
    const struct strided_spec *spec;
    int n, layers;
    struct stride stride[STRIDED_LAYERS + 1], linear; /* the last one: of the image */
    struct tensor y[STRIDED_LAYERS + 1], dy[STRIDED_LAYERS];
    float *factor[STRIDED_LAYERS]; /* (n, c) dropout of y; NULL: none */
    float *rows, *drows;           /* of a slab, their gradient; rows is work memory of halving.h, too */
    struct tensor mean, dmean, out, dout;
    struct conv_weight weights[STRIDED_LAYERS + 2];
    uint64_t version;              /* of the params that are packed */

    /* the pass at hand */
    struct tensor map, image;
    int items, train;
};

const struct strided_spec critic_spec = {
    .name = {"conv0", "conv2", "conv3", "conv4"}, .second = "conv1", .linear = "classifier",
    .width = {4, 8, 16, 32}, .kernel = {4, 4, 4}, .stride = {2, 2, 2}, .pad = {1, 1, 1},
    .slope = 0.2f, .dropout = {0.5f, 0.5f, 0.5f}, .out = 2};

const struct strided_spec projector_spec = {
    .name = {"projector.conv1", "projector.conv2", "projector.conv3"}, .linear = "projector.linear",
    .width = {1, 2, 4, 8}, .kernel = {3, 3, 1}, .stride = {2, 2, 1}, .pad = {1, 1, 0}, .columns = 1};

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

static int64_t taps_of(const struct k_window *w)
{
    return (int64_t)w->kernel[0] * w->kernel[1] * w->kernel[2];
}

static int64_t plane_of(const struct k_window *w)
{
    return (int64_t)w->out[1] * w->out[2];
}

static int64_t slab_floats(const struct stride *t)
{
    return t->planes * plane_of(&t->at) * taps_of(&t->at) * t->at.c;
}

/* The largest number of planes that divides all of them and fits. */
static void choose_slab(struct stride *t, int most)
{
    t->planes = t->at.out[0];
    while (t->planes > 1 && (t->at.out[0] % t->planes || slab_floats(t) > most))
        t->planes--;
}

static void make_product(struct strided *s, struct stride *t, int n, int64_t rows, int64_t c_in)
{
    struct conv_shape c = {.kind = CONV_1, .n = n, .d = 1, .h = 1, .w = (int)rows, .c_in = (int)c_in,
                           .c_out = t->c_out, .in = VALUE_F32, .out = VALUE_F32,
                           .training = s->params->grad != NULL, .input_grad = s->params->grad != NULL};
    t->conv = s->dev->ops->conv_new(s->dev, &c);
}

static void make_tensor(struct strided *s, struct tensor *x, const int extent[3], int c)
{
    *x = (struct tensor){.type = VALUE_F32, .n = s->n, .d = extent[0], .h = extent[1], .w = extent[2],
                         .c = c};
    x->data = s->dev->ops->alloc(s->dev, (size_t)tensor_count(x) * sizeof(float));
}

static int make_stride(struct strided *s, int i, const int extent[3], int c_in, int c_out, struct error *e)
{
    struct stride *t = &s->stride[i];
    int halves = 1, most = s->spec->slab ? s->spec->slab : SLAB_FLOATS;
    for (int a = 0; a < 3; a++) {
        halves &= s->spec->kernel[a] == 4 && s->spec->stride[a] == 2 && s->spec->pad[a] == 1;
        t->at.extent[a] = extent[a];
        t->at.kernel[a] = s->spec->kernel[a];
        t->at.stride[a] = s->spec->stride[a];
        t->at.pad[a] = s->spec->pad[a];
        t->at.out[a] = (extent[a] + 2 * s->spec->pad[a] - s->spec->kernel[a]) / s->spec->stride[a] + 1;
    }
    t->at.c = c_in;
    t->c_out = c_out;
    struct halving_shape h = {s->n, {extent[0], extent[1], extent[2]}, c_in, c_out, most};
    if (halves && halving_new(&t->halving, s->dev, &h, e) < 0)
        return -1;
    if (!halves) {
        choose_slab(t, most);
        make_product(s, t, 1, t->planes * plane_of(&t->at), taps_of(&t->at) * c_in);
    }
    make_tensor(s, &s->y[i], t->at.out, c_out);
    if (i < STRIDED_LAYERS && s->params->grad)
        make_tensor(s, &s->dy[i], t->at.out, c_out);
    if (i < STRIDED_LAYERS && s->spec->dropout[i] > 0)
        s->factor[i] = s->dev->ops->alloc(s->dev, (size_t)s->n * (size_t)c_out * sizeof(float));
    return 0;
}

/* Floats of working memory that a layer wants. */
static int64_t work_floats(const struct stride *t)
{
    return t->halving ? halving_floats(t->halving) : t->conv ? slab_floats(t) : 0;
}

static void make_end(struct strided *s, int filters)
{
    const struct k_window *last = &s->stride[s->layers - 1].at;
    int columns = s->spec->columns ? last->out[2] : 1, c = width_of(s->spec, s->layers - 1, filters);
    const int row[3] = {1, 1, columns};
    s->linear.c_out = out_of(s->spec, filters);
    make_product(s, &s->linear, s->n, columns, c);
    make_tensor(s, &s->mean, row, c);
    make_tensor(s, &s->dmean, row, c);
    make_tensor(s, &s->out, row, s->linear.c_out);
    make_tensor(s, &s->dout, row, s->linear.c_out);
}

static int build(struct strided *s, const struct net_shape *shape, int map, int image, int filters,
                 struct error *e)
{
    const int extent[3] = {shape->d, shape->h, shape->w};
    int64_t most = 0;
    for (int i = 0; i < s->layers; i++) {
        if (make_stride(s, i, i ? s->stride[i - 1].at.out : extent,
                        i ? width_of(s->spec, i - 1, filters) : map, width_of(s->spec, i, filters), e) < 0 ||
            find_weights(s, &s->stride[i], s->spec->name[i], e) < 0)
            return -1;
    }
    if (s->spec->second) {
        if (make_stride(s, STRIDED_LAYERS, extent, image, width_of(s->spec, 0, filters), e) < 0 ||
            find_weights(s, &s->stride[STRIDED_LAYERS], s->spec->second, e) < 0)
            return -1;
    }
    make_end(s, filters);
    for (int i = 0; i <= STRIDED_LAYERS; i++)
        most = work_floats(&s->stride[i]) > most ? work_floats(&s->stride[i]) : most;
    s->rows = s->dev->ops->alloc(s->dev, (size_t)most * sizeof(float));
    if (s->params->grad && !s->stride[0].halving)
        s->drows = s->dev->ops->alloc(s->dev, (size_t)most * sizeof(float));
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
        if (s->stride[i].conv)
            ops->conv_free(s->stride[i].conv);
        halving_free(s->stride[i].halving);
        ops->free(s->dev, s->y[i].data);
    }
    for (int i = 0; i < STRIDED_LAYERS; i++) {
        ops->free(s->dev, s->dy[i].data);
        ops->free(s->dev, s->factor[i]);
    }
    if (s->linear.conv)
        ops->conv_free(s->linear.conv);
    void *memory[] = {s->rows, s->drows, s->mean.data, s->dmean.data, s->out.data, s->dout.data};
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
    int n = 0;
    if (s->version == s->params->version)
        return;
    for (int i = 0; i <= STRIDED_LAYERS; i++) {
        if (s->stride[i].halving)
            halving_pack(s->stride[i].halving, value_of(s, s->stride[i].weight));
        if (s->stride[i].conv)
            s->weights[n++] = (struct conv_weight){s->stride[i].conv, value_of(s, s->stride[i].weight)};
    }
    s->weights[n++] = (struct conv_weight){s->linear.conv, value_of(s, s->linear.weight)};
    s->dev->ops->conv_pack(s->dev, s->weights, n);
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

static float *item_of(const struct tensor *x, int item)
{
    return x->data ? tensor_items(x, item, 1).data : NULL;
}

static struct tensor row_tensor(void *data, int n, int64_t rows, int64_t c)
{
    return (struct tensor){.data = data, .type = VALUE_F32, .n = n, .d = 1, .h = 1, .w = (int)rows,
                           .c = (int)c};
}

/* Slab number k of one item: its rows, and where its results lie. */
struct slab {
    struct tensor rows, y;
    int64_t first; /* position */
};

static struct slab slab_of(struct strided *s, int i, int item, int k)
{
    const struct stride *t = &s->stride[i];
    int64_t count = t->planes * plane_of(&t->at), width = taps_of(&t->at) * t->at.c;
    struct slab b = {.first = k * count, .rows = row_tensor(s->rows, 1, count, width)};
    b.y = row_tensor(item_of(&s->y[i], item) + b.first * t->c_out, 1, count, t->c_out);
    return b;
}

static void unfold(struct strided *s, int i, int item, const struct slab *b)
{
    struct leaky_in in = input_of(s, i);
    const struct k_window *at = &s->stride[i].at;
    RUN(s->dev, unfold, k_runs(tensor_count(&b->rows) / at->c, at->c), .at = *at, .x = item_of(&in.x, item),
        .more = item_of(&in.more, item), .factor = in.factor ? in.factor + item * at->c : NULL,
        .slope = in.slope, .first = b->first, .rows = s->rows);
}

static int slabs_of(const struct stride *t)
{
    return t->at.out[0] / t->planes;
}

static void forward_layer(struct strided *s, int i)
{
    const struct stride *t = &s->stride[i];
    if (t->halving) {
        struct leaky_in in = input_of(s, i);
        struct tensor y = tensor_items(&s->y[i], 0, s->items);
        halving_forward(t->halving, &in, value_of(s, t->bias), &y, s->rows);
        return;
    }
    for (int item = 0; item < s->items; item++) {
        for (int k = 0; k < slabs_of(t); k++) {
            struct slab b = slab_of(s, i, item, k);
            unfold(s, i, item, &b);
            struct conv_in in = {.count = 1, .from = {{.y = b.rows}}};
            s->dev->ops->conv_forward(t->conv, &in, value_of(s, t->bias), &b.y, NULL);
        }
    }
}

static void draw_dropout(struct strided *s, int i, const struct net_pass *pass)
{
    int c = s->stride[i].c_out;
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
    CHECK(map->n <= s->n && map->c == s->stride[0].at.c && map->d == s->stride[0].at.extent[0]);
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
    s->dev->ops->conv_forward(s->linear.conv, &in, value_of(s, s->linear.bias), &out, NULL);
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

/* One product back: of rows x with result y and its gradient dy; dx data NULL: not wanted. */
static void backward_product(struct strided *s, const struct stride *t, int what, const struct tensor *x,
                             const struct tensor *y, const struct tensor *dy, const struct tensor *dx)
{
    struct conv_grad g = {.g = *dy, .y = {.y = *y}};
    struct conv_in in = {.count = 1, .from = {{.y = *x}}};
    struct layer_grads to = grads_of(s, t, what);
    if (to.dbias && to.fresh)
        s->dev->ops->zero(s->dev, to.dbias, (size_t)t->c_out * sizeof(float));
    s->dev->ops->conv_backward(t->conv, &g, &in, dx, to.fresh ? 0 : CONV_ADD_WEIGHT, to.dweight, to.dbias,
                               NULL);
}

static void backward_halving(struct strided *s, int i, int what, const struct tensor *dx)
{
    const struct stride *t = &s->stride[i];
    struct leaky_in in = input_of(s, i);
    struct tensor dy = tensor_items(&s->dy[i % STRIDED_LAYERS], 0, s->items);
    struct layer_grads to = grads_of(s, t, what);
    if (dx)
        to.dx = *dx;
    halving_backward(t->halving, &in, &dy, &to, s->rows);
}

/* Layer i from dy (that of layer 0 for the image's); dx, if there is one, is overwritten. */
static void backward_layer(struct strided *s, int i, int what, const struct tensor *dx)
{
    const struct stride *t = &s->stride[i];
    const struct tensor *dy = &s->dy[i % STRIDED_LAYERS];
    if (t->halving) {
        backward_halving(s, i, what, dx);
        return;
    }
    for (int item = 0; item < s->items; item++) {
        struct tensor to = {.data = dx ? item_of(dx, item) : NULL};
        int64_t elements = (int64_t)t->at.extent[0] * t->at.extent[1] * t->at.extent[2] * t->at.c;
        if (to.data)
            s->dev->ops->zero(s->dev, to.data, (size_t)elements * sizeof(float));
        for (int k = 0; k < slabs_of(t); k++) {
            struct slab b = slab_of(s, i, item, k);
            struct tensor g = b.y, drows = b.rows;
            if (what & STRIDED_WEIGHTS)
                unfold(s, i, item, &b);
            g.data = item_of(dy, item) + b.first * t->c_out;
            drows.data = to.data ? s->drows : NULL;
            backward_product(s, t, what, &b.rows, &b.y, &g, &drows);
            if (to.data)
                RUN(s->dev, unfold_grad, k_runs(elements / t->at.c, t->at.c), .at = t->at,
                    .rows = s->drows, .plane = k * t->planes, .planes = t->planes, .dx = to.data);
        }
        struct leaky_in in = input_of(s, i);
        if (to.data && i > 0)
            RUN(s->dev, leaky_grad, elements, .x = item_of(&in.x, item), .more = item_of(&in.more, item),
                .factor = in.factor ? in.factor + item * t->at.c : NULL, .g = to.data, .slope = in.slope,
                .c = t->at.c);
    }
}

void strided_backward(struct strided *s, int what, const struct tensor *dmap)
{
    int64_t voxels;
    int columns;
    struct tensor last = last_of(s, &voxels, &columns), out = tensor_items(&s->out, 0, s->items);
    struct tensor mean = tensor_items(&s->mean, 0, s->items), dmean = tensor_items(&s->dmean, 0, s->items);
    struct tensor dout = tensor_items(&s->dout, 0, s->items);
    if (s->dev->error.code != ERR_NONE)
        return;
    backward_product(s, &s->linear, what, &mean, &out, &dout, &dmean);
    RUN(s->dev, pool_grad, tensor_count(&last), .x = last.data, .dmean = dmean.data,
        .g = s->dy[s->layers - 1].data, .voxels = voxels, .columns = columns, .c = last.c,
        .slope = s->spec->slope);
    for (int i = s->layers - 1; i > 0; i--)
        backward_layer(s, i, what, &s->dy[i - 1]);
    if (what & STRIDED_WEIGHTS && s->spec->second)
        backward_layer(s, STRIDED_LAYERS, what, NULL);
    backward_layer(s, 0, what, what & STRIDED_MAP ? dmap : NULL);
}
