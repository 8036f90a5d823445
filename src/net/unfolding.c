/* unfolding.c - see unfolding.h.
 *
 *     item by item, slab by slab of positions:
 *     forward    unfold -> rows -> product -> y
 *     backward   dy, rows (unfolded again) -> dweight;  dy -> drows -> unfolded back, added to dx
 *
 * Slabs divide the planes evenly, so one plan of the product fits all of them. Everything is added in the
 * order of items and slabs.
 */
#include "net/unfolding.h"

struct unfolding {
    struct device *dev;
    struct unfolding_shape s;
    int planes;               /* of a slab */
    int64_t positions, width; /* of a slab: rows, and numbers of each */
    struct conv *conv;
};

static int64_t slab_floats(const struct unfolding *u)
{
    return (u->positions * u->width + 15) / 16 * 16; /* what follows is aligned as this is */
}

int64_t unfolding_floats(const struct unfolding *u)
{
    return slab_floats(u) * (u->s.training ? 2 : 1);
}

/* The largest number of planes that divides all of them and fits. */
static void choose_slab(struct unfolding *u)
{
    const struct k_window *w = &u->s.at;
    int64_t plane = (int64_t)w->out[1] * w->out[2];
    u->width = (int64_t)w->kernel[0] * w->kernel[1] * w->kernel[2] * w->c;
    u->planes = w->out[0];
    while (u->planes > 1 && (w->out[0] % u->planes || u->planes * plane * u->width > u->s.most))
        u->planes--;
    u->positions = u->planes * plane;
}

int unfolding_new(struct unfolding **out, struct device *dev, const struct unfolding_shape *s,
                  struct error *e)
{
    struct unfolding *u = *out = mem_alloc(e, 1, sizeof *u);
    if (!u)
        return -1;
    *u = (struct unfolding){.dev = dev, .s = *s};
    choose_slab(u);
    struct conv_shape of = {.kind = CONV_1,
                            .n = 1,
                            .d = 1,
                            .h = 1,
                            .w = (int)u->positions,
                            .c_in = (int)u->width,
                            .c_out = s->c_out,
                            .in = VALUE_F32,
                            .out = VALUE_F32,
                            .training = s->training,
                            .input_grad = s->training};
    u->conv = dev->ops->conv_new(dev, &of);
    if (device_check(dev, e) == 0)
        return 0;
    unfolding_free(u);
    *out = NULL;
    return -1;
}

void unfolding_free(struct unfolding *u)
{
    if (u && u->conv)
        u->dev->ops->conv_free(u->conv);
    mem_free(u);
}

void unfolding_pack(struct unfolding *u, const float *weight)
{
    struct conv_weight w = {u->conv, weight};
    u->dev->ops->conv_pack(u->dev, &w, 1);
}

static float *item_of(const struct tensor *x, int item)
{
    return x->data ? tensor_items(x, item, 1).data : NULL;
}

static struct tensor rows_at(const struct unfolding *u, float *data, int64_t c)
{
    return (struct tensor){data, VALUE_F32, 1, 1, 1, (int)u->positions, (int)c};
}

/* Slab k of y, or of its gradient. */
static struct tensor slab_of(const struct unfolding *u, const struct tensor *y, int item, int k)
{
    return rows_at(u, item_of(y, item) + k * u->positions * u->s.c_out, u->s.c_out);
}

/* Slab k of an item as rows. */
static void unfold(struct unfolding *u, const struct leaky_in *in, int item, int k, float *rows)
{
    const struct k_window *at = &u->s.at;
    RUN(u->dev, unfold, k_runs(u->positions * u->width / at->c, at->c), .at = *at, .x = item_of(&in->x, item),
        .more = item_of(&in->more, item), .factor = in->factor ? in->factor + (int64_t)item * at->c : NULL,
        .slope = in->slope, .first = k * u->positions, .rows = rows);
}

void unfolding_forward(struct unfolding *u, const struct leaky_in *in, const float *bias,
                       const struct tensor *y, float *work)
{
    struct conv_in rows = {.count = 1, .from = {{.y = rows_at(u, work, u->width)}}};
    for (int item = 0; item < y->n; item++)
        for (int k = 0; k < u->s.at.out[0] / u->planes; k++) {
            struct tensor to = slab_of(u, y, item, k);
            unfold(u, in, item, k, work);
            u->dev->ops->conv_forward(u->conv, &rows, bias, &to, NULL);
        }
}

/* The gradient by what is unfolded is all in dx: through act and factor. */
static void leave(struct unfolding *u, const struct leaky_in *in, int item, float *dx, int64_t elements)
{
    int c = u->s.at.c;
    if (in->slope != 1 || in->factor)
        RUN(u->dev, leaky_grad, elements, .x = item_of(&in->x, item), .more = item_of(&in->more, item),
            .factor = in->factor ? in->factor + (int64_t)item * c : NULL, .g = dx, .slope = in->slope,
            .c = c);
}

void unfolding_backward(struct unfolding *u, const struct leaky_in *in, const struct tensor *dy,
                        const struct layer_grads *to, float *work)
{
    const struct device_ops *ops = u->dev->ops;
    const struct k_window *at = &u->s.at;
    int64_t voxels = (int64_t)at->extent[0] * at->extent[1] * at->extent[2], elements = voxels * at->c;
    struct conv_in rows = {.count = 1, .from = {{.y = rows_at(u, work, u->width)}}};
    struct tensor drows = rows_at(u, to->dx.data ? work + slab_floats(u) : NULL, u->width);
    int add = to->fresh ? 0 : CONV_ADD_WEIGHT;
    if (to->dbias && to->fresh)
        ops->zero(u->dev, to->dbias, (size_t)u->s.c_out * sizeof(float));
    for (int item = 0; item < dy->n; item++) {
        float *dx = item_of(&to->dx, item);
        if (dx)
            ops->zero(u->dev, dx, (size_t)elements * sizeof(float));
        for (int k = 0; k < at->out[0] / u->planes; k++, add = CONV_ADD_WEIGHT) {
            struct conv_grad g = {.g = slab_of(u, dy, item, k)};
            if (to->dweight)
                unfold(u, in, item, k, work);
            ops->conv_backward(u->conv, &g, &rows, &drows, add, to->dweight, to->dbias, NULL);
            if (dx)
                RUN(u->dev, unfold_grad, k_runs(voxels, at->c), .at = *at, .rows = drows.data,
                    .plane = k * u->planes, .planes = u->planes, .dx = dx);
        }
        if (dx)
            leave(u, in, item, dx, elements);
    }
}
