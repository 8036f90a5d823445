/* bench_layers.c - speed of every layer of the published V-Net by itself, beside what the processor can do.
 *
 *     layer.bf16.64.16to16.forward    GFLOP/s of the 3x3x3 convolution 16 -> 16 on 2 patches of 64^3
 *     layer.bf16.64.16to16.backward   both gradients, with the sums of batch norm read on the way
 *     peak.bf16                       GFLOP/s of multiplications alone, operands in registers
 */
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "cli/bench.h"
#include "device/conv.h"
#include "device/isa/levels.h"

struct layer {
    const char *name;
    enum conv_kind kind;
    int coarser; /* the input's edge is the patch's over this */
    int c_in, c_out;
};

static const struct layer layers[] = {
    {"1to16", CONV_3, 1, 1, 16},
    {"16to16", CONV_3, 1, 16, 16},
    {"16down32", CONV_DOWN, 1, 16, 32},
    {"32to32", CONV_3, 2, 32, 32},
    {"32down64", CONV_DOWN, 2, 32, 64},
    {"64to64", CONV_3, 4, 64, 64},
    {"64down128", CONV_DOWN, 4, 64, 128},
    {"128to128", CONV_3, 8, 128, 128},
    {"128down256", CONV_DOWN, 8, 128, 256},
    {"256to256", CONV_3, 16, 256, 256},
    {"256up128", CONV_UP, 16, 256, 128},
    {"128up64", CONV_UP, 8, 128, 64},
    {"64up32", CONV_UP, 4, 64, 32},
    {"32up16", CONV_UP, 2, 32, 16},
    {"16to2", CONV_1, 1, 16, 2},
};

struct layer_bench {
    struct device *dev;
    struct conv *conv;
    struct tensor x, y, dx, dy;
    float *weight, *dweight, *bias, *dbias, *scale, *shift; /* scale and shift serve as p, q, r too */
    double *moments;
    double flops; /* of one direction */
};

static void *noise(struct device *dev, enum value_type type, int64_t count, float around, float spread,
                   struct error *e)
{
    size_t bytes = (size_t)count * value_bytes(type);
    char *host = mem_alloc(e, 1, bytes), *to = host ? dev->ops->alloc(dev, bytes) : NULL;
    struct rng r = rng_start(3, 0, RNG_TEST, 0);
    for (int64_t i = 0; to && i < count; i++) {
        float f = around + spread * rng_between(&r, -1, 1);
        uint32_t bits;
        memcpy(&bits, &f, sizeof bits);
        uint16_t half = (uint16_t)(bits >> 16);
        memcpy(host + (size_t)i * value_bytes(type), type == VALUE_F32 ? (void *)&f : (void *)&half,
               value_bytes(type));
    }
    if (to)
        dev->ops->upload(dev, to, host, bytes);
    mem_free(host);
    return to;
}

static void layer_close(struct layer_bench *b)
{
    void *memory[] = {b->x.data, b->y.data, b->dx.data, b->dy.data, b->weight, b->dweight,
                      b->bias,   b->dbias,  b->scale,   b->shift,   b->moments};
    if (!b->dev)
        return;
    b->dev->ops->conv_free(b->conv);
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        b->dev->ops->free(b->dev, memory[i]);
}

static int layer_open(struct layer_bench *b, struct device *dev, const struct layer *l, int patch,
                      struct error *e)
{
    enum value_type type = device_value_type(dev);
    int in = patch / l->coarser;
    int out = l->kind == CONV_DOWN ? in / 2 : l->kind == CONV_UP ? in * 2 : in;
    int taps = l->kind == CONV_3 ? 27 : l->kind == CONV_1 ? 1 : 8, first = l->c_in == 1;
    struct conv_shape s = {.kind = l->kind,
                           .n = 2,
                           .d = in,
                           .h = in,
                           .w = in,
                           .c_in = l->c_in,
                           .c_out = l->c_out,
                           .in = first ? VALUE_F32 : type,
                           .out = l->kind == CONV_1 ? VALUE_F32 : type,
                           .training = 1,
                           .input_grad = !first};
    int64_t coarse = l->kind == CONV_DOWN ? out : in, weights = (int64_t)taps * l->c_in * l->c_out;
    memset(b, 0, sizeof *b);
    b->dev = dev;
    b->conv = dev->ops->conv_new(dev, &s);
    b->x = (struct tensor){.type = s.in, .n = 2, .d = in, .h = in, .w = in, .c = l->c_in};
    b->y = (struct tensor){.type = s.out, .n = 2, .d = out, .h = out, .w = out, .c = l->c_out};
    b->dx = b->x;
    b->dy = b->y;
    b->x.data = noise(dev, b->x.type, tensor_count(&b->x), 0, 1, e);
    b->y.data = noise(dev, b->y.type, tensor_count(&b->y), 0, 1, e);
    b->dy.data = noise(dev, b->dy.type, tensor_count(&b->dy), 0, 1, e);
    b->dx.data = first ? NULL : noise(dev, b->dx.type, tensor_count(&b->dx), 0, 1, e);
    b->weight = noise(dev, VALUE_F32, weights, 0, 0.1f, e);
    b->dweight = noise(dev, VALUE_F32, weights, 0, 1, e);
    b->bias = noise(dev, VALUE_F32, l->c_out, 0, 1, e);
    b->dbias = noise(dev, VALUE_F32, l->c_out, 0, 1, e);
    b->scale = noise(dev, VALUE_F32, 2 * 256, 1, 0.1f, e);
    b->shift = noise(dev, VALUE_F32, 2 * 256, 0, 0.1f, e);
    b->moments = dev->ops->alloc(dev, 2 * 256 * sizeof *b->moments);
    if (device_check(dev, e) < 0)
        return -1;
    dev->ops->conv_pack(dev, &(struct conv_weight){b->conv, b->weight}, 1);
    b->flops = 2.0 * 2 * (double)(coarse * coarse * coarse) * (double)weights;
    return 0;
}

static struct conv_in input_of(const struct layer_bench *b)
{
    struct conv_in in = {.count = 1, .from = {{.y = b->x}}};
    if (b->x.c > 1)
        in.from[0] = (struct conv_source){b->x, b->scale, b->shift, 1};
    return in;
}

static int layer_forward(void *arg, struct error *e)
{
    struct layer_bench *b = arg;
    struct conv_in in = input_of(b);
    struct conv_stats stats = {b->moments, b->moments + 256, NULL};
    b->dev->ops->conv_forward(b->conv, &in, b->bias, &b->y, &stats);
    b->dev->ops->sync(b->dev);
    return device_check(b->dev, e);
}

static int layer_backward(void *arg, struct error *e)
{
    struct layer_bench *b = arg;
    struct conv_in in = input_of(b);
    struct conv_grad g = {.g = b->dy};
    if (b->y.type == b->x.type || b->x.c == 1) /* the head has no norm */
        g = (struct conv_grad){b->dy, {b->y, b->scale, b->shift, 1}, b->scale, b->shift, b->shift};
    b->dev->ops->conv_backward(b->conv, &g, &in, &b->dx, 0, b->dweight, b->dbias, NULL);
    b->dev->ops->sync(b->dev);
    return device_check(b->dev, e);
}

static int bench_layer(const struct bench_teller *t, struct device *dev, const struct layer *l, int patch,
                       struct error *e)
{
    static const char *const ways[] = {"forward", "backward"};
    struct layer_bench b = {0};
    double seconds;
    int result = 0;
    for (int back = 0; back < 2 && result == 0; back++) {
        char name[64];
        int products = back && l->c_in > 1 ? 2 : 1;
        snprintf(name, sizeof name, "layer.%s.%d.%s.%s", precision_name(dev->precision), patch, l->name,
                 ways[back]);
        if (!bench_wanted(t->config, name))
            continue;
        if (!b.dev)
            result = layer_open(&b, dev, l, patch, e);
        if (result == 0)
            result = bench_median(&seconds, back ? layer_backward : layer_forward, &b, e);
        if (result == 0)
            bench_tell(t, name, b.flops * products / seconds / 1e9, "GFLOP/s");
    }
    layer_close(&b);
    return result;
}

/* ---- what the processor can do ---------------------------------------------------------------- */

enum { PEAK_ROUNDS = 1 << 20 };
struct peak_bench {
    struct device *dev;
    const struct gemm_ops *gemm;
    int64_t done; /* operations of one thread */
};

static void peak_item(void *arg, int64_t i)
{
    struct peak_bench *b = arg;
    int64_t done = b->gemm->peak(PEAK_ROUNDS);
    if (i == 0)
        b->done = done;
}

static int peak_once(void *arg, struct error *e)
{
    struct peak_bench *b = arg;
    pool_run(b->dev->pool, pool_threads(b->dev->pool), peak_item, b);
    return device_check(b->dev, e);
}

static int bench_peak(const struct bench_teller *t, struct device *dev, struct error *e)
{
    const struct isa_ops *isa = isa_level(NULL);
    struct peak_bench b = {dev, dev->precision == PRECISION_BF16 ? isa->bf16 : isa->f32, 0};
    double seconds;
    char name[40];
    snprintf(name, sizeof name, "peak.%s", precision_name(dev->precision));
    if (!bench_wanted(t->config, name))
        return 0;
    if (bench_median(&seconds, peak_once, &b, e) < 0)
        return -1;
    bench_tell(t, name, (double)b.done * pool_threads(dev->pool) / seconds / 1e9, "GFLOP/s");
    return 0;
}

int bench_layers(const struct bench_teller *t, enum precision precision, struct error *e)
{
    struct device_options o = {
        .name = t->config->device, .precision = precision, .threads = (int)t->config->threads};
    struct device *dev = NULL;
    int result = device_open(&dev, &o, e);
    if (result == 0)
        result = bench_peak(t, dev, e);
    for (int patch = 32; patch <= 96; patch += 32)
        for (size_t i = 0; i < sizeof layers / sizeof *layers && result == 0; i++)
            result = bench_layer(t, dev, &layers[i], patch, e);
    device_close(dev);
    return result;
}
