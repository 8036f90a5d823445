/* halving.c - see halving.h. Items are taken a few at a time, so that what passes between stays small. */
#include "net/halving.h"

#include <string.h>

/* Of x, at most, to be folded: 216 products for 64, but c_out numbers instead of 8 c_out pass between. */
enum { FOLD_CHANNELS = 4 };

struct halving {
    struct device *dev;
    struct halving_shape s;
    int each;          /* items at a time, a divisor of all */
    int folded, parts; /* CONV_3; parts of a block: 1, else 8 */
    int out[3];
    enum value_type type;    /* of what is multiplied; parts are floats */
    struct tensor framed;    /* of all items: forward to backward */
    float *weight, *dweight; /* of the convolution: (2, 2, 2, c_in, 8, c_out), (3, 3, 3, 8, c_in, c_out) */
    float *dbias;            /* (parts, c_out) */
    struct conv *conv;
};

static struct tensor parts_of(const struct halving *h, int n, enum value_type type, void *data)
{
    return (struct tensor){data, type, n, h->out[0] + 1, h->out[1] + 1, h->out[2] + 1, h->parts * h->s.c_out};
}

/* Of n items. */
static int64_t parts_floats(const struct halving *h, int n)
{
    struct tensor parts = parts_of(h, n, VALUE_F32, NULL);
    return tensor_count(&parts);
}

int64_t halving_floats(const struct halving *h)
{
    struct tensor framed = tensor_items(&h->framed, 0, h->each);
    return parts_floats(h, h->each) + tensor_count(&framed); /* backward's; forward has no second one */
}

static int64_t weight_count(const struct halving *h)
{
    return (int64_t)64 * h->s.c_in * h->s.c_out;
}

/* Of the convolution's. */
static size_t made_bytes(const struct halving *h)
{
    return (size_t)(h->folded ? 27 * 8 : 64) * (size_t)h->s.c_in * (size_t)h->s.c_out * sizeof(float);
}

/* Always for training: what is only looked at is small beside it. */
static void allocate(struct halving *h)
{
    const struct device_ops *ops = h->dev->ops;
    const int *extent = h->s.extent, by = h->folded ? 2 : 1;
    struct conv_shape of = {.kind = h->folded ? CONV_3 : CONV_DOWN,
                            .n = h->each,
                            .d = (extent[0] + 2) / by,
                            .h = (extent[1] + 2) / by,
                            .w = (extent[2] + 2) / by,
                            .c_in = h->s.c_in * by * by * by,
                            .c_out = h->parts * h->s.c_out,
                            .in = h->type,
                            .out = VALUE_F32,
                            .training = 1,
                            .input_grad = 1};
    h->framed = (struct tensor){.type = h->type, .n = h->s.n, .d = of.d, .h = of.h, .w = of.w, .c = of.c_in};
    h->framed.data = ops->alloc(h->dev, (size_t)tensor_count(&h->framed) * value_bytes(h->type));
    h->weight = ops->alloc(h->dev, made_bytes(h)); /* zeroed: places of a CONV_3 stay so */
    h->dweight = ops->alloc(h->dev, made_bytes(h));
    h->dbias = ops->alloc(h->dev, (size_t)(h->parts * h->s.c_out) * sizeof(float));
    h->conv = ops->conv_new(h->dev, &of);
}

int halving_new(struct halving **out, struct device *dev, const struct halving_shape *s, struct error *e)
{
    struct halving *h = *out = mem_alloc(e, 1, sizeof *h);
    if (!h)
        return -1;
    *h = (struct halving){.dev = dev, .s = *s, .each = s->n, .type = device_value_type(dev)};
    h->folded = s->c_in <= FOLD_CHANNELS;
    h->parts = h->folded ? 1 : 8;
    for (int a = 0; a < 3; a++) {
        CHECK(s->extent[a] % 2 == 0);
        h->out[a] = s->extent[a] / 2;
    }
    while (h->each > 1 && (s->n % h->each || parts_floats(h, h->each) > s->most))
        h->each--;
    allocate(h);
    if (device_check(dev, e) == 0)
        return 0;
    halving_free(h);
    *out = NULL;
    return -1;
}

void halving_free(struct halving *h)
{
    if (!h)
        return;
    void *memory[] = {h->framed.data, h->weight, h->dweight, h->dbias};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        h->dev->ops->free(h->dev, memory[i]);
    if (h->conv)
        h->dev->ops->conv_free(h->conv);
    mem_free(h);
}

void halving_pack(struct halving *h, const float *weight)
{
    struct conv_weight w = {h->conv, h->weight};
    RUN(h->dev, halve_weight, weight_count(h), .from = weight, .to = h->weight, .c_in = h->s.c_in,
        .c_out = h->s.c_out, .folded = h->folded);
    h->dev->ops->conv_pack(h->dev, &w, 1);
}

/* How items `first` and on are read; framed: their place in h->framed. */
static struct k_frame frame_of(const struct halving *h, const struct leaky_in *in, int first)
{
    struct k_frame f = {.framed = tensor_items(&h->framed, first, 1).data,
                        .bf16 = h->type == VALUE_BF16,
                        .folded = h->folded,
                        .c = h->s.c_in,
                        .slope = in->slope,
                        .x = tensor_items(&in->x, first, 1).data};
    memcpy(f.extent, h->s.extent, sizeof f.extent);
    if (in->more.data)
        f.more = tensor_items(&in->more, first, 1).data;
    if (in->factor)
        f.factor = in->factor + (int64_t)first * h->s.c_in;
    return f;
}

/* Indices of KERNEL_frame for n items. */
static int64_t frame_runs(const struct halving *h, int n)
{
    struct tensor framed = tensor_items(&h->framed, 0, n);
    return k_runs(tensor_count(&framed) / h->s.c_in, h->s.c_in);
}

void halving_forward(struct halving *h, const struct leaky_in *in, const float *bias, const struct tensor *y,
                     float *work)
{
    for (int first = 0, n; first < y->n; first += n) {
        n = y->n - first < h->each ? y->n - first : h->each;
        struct k_frame frame = frame_of(h, in, first);
        struct tensor parts = parts_of(h, n, VALUE_F32, work), to = tensor_items(y, first, n);
        struct tensor framed = tensor_items(&h->framed, first, n);
        struct conv_in x = {.count = 1, .from = {{.y = framed}}};
        h->dev->ops->map(h->dev, KERNEL_frame, &frame, frame_runs(h, n));
        h->dev->ops->conv_forward(h->conv, &x, NULL, &parts, NULL);
        RUN(h->dev, join, k_runs(tensor_voxels(&to), to.c), .parts = work, .bias = bias, .y = to.data,
            .each = h->parts, .c = h->s.c_out, .out = {h->out[0], h->out[1], h->out[2]});
    }
}

/* Items from `first` on, as many as are taken at a time: their weight gradient, added to h's own unless they
 * are the first, and dx. */
static void backward_some(struct halving *h, const struct leaky_in *in, const struct tensor *dy, int first,
                          const struct layer_grads *to, float *work)
{
    int n = dy->n - first < h->each ? dy->n - first : h->each;
    struct tensor framed = tensor_items(&h->framed, first, n), dframed = framed;
    struct conv_grad g = {.g = parts_of(h, n, h->type, work)};
    struct conv_in x = {.count = 1, .from = {{.y = framed}}};
    dframed.data = to->dx.data ? work + parts_floats(h, h->each) : NULL;
    RUN(h->dev, spread, k_runs(tensor_voxels(&g.g) * h->parts, h->s.c_out),
        .dy = tensor_items(dy, first, n).data, .dparts = work, .bf16 = h->type == VALUE_BF16,
        .out = {h->out[0], h->out[1], h->out[2]}, .each = h->parts, .c = h->s.c_out);
    h->dev->ops->conv_backward(h->conv, &g, &x, &dframed, first > 0 ? CONV_ADD_WEIGHT : 0,
                               to->dweight ? h->dweight : NULL, to->dweight ? h->dbias : NULL, NULL);
    if (!to->dx.data)
        return;
    struct tensor dx = tensor_items(&to->dx, first, n);
    struct k_frame_grad leave = {.of = frame_of(h, in, first), .dx = dx.data};
    leave.of.framed = dframed.data;
    h->dev->ops->map(h->dev, KERNEL_frame_grad, &leave, k_runs(tensor_voxels(&dx), dx.c));
}

void halving_backward(struct halving *h, const struct leaky_in *in, const struct tensor *dy,
                      const struct layer_grads *to, float *work)
{
    if (to->dweight)
        h->dev->ops->zero(h->dev, h->dbias, (size_t)(h->parts * h->s.c_out) * sizeof(float));
    for (int first = 0; first < dy->n; first += h->each)
        backward_some(h, in, dy, first, to, work);
    if (!to->dweight)
        return;
    RUN(h->dev, halve_weight, weight_count(h), .from = h->dweight, .to = to->dweight, .c_in = h->s.c_in,
        .c_out = h->s.c_out, .folded = h->folded, .back = 1, .fresh = to->fresh);
    /* each of the parts has seen all of dy: the first is the bias's */
    RUN(h->dev, meet, h->s.c_out, .to = to->dbias, .from = h->dbias, .fresh = to->fresh);
}
