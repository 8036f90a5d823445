/* net_bench.h - a device, parameters and a network on it, with image and gradients by formula. */
#ifndef FALX_NET_BENCH_H
#define FALX_NET_BENCH_H

#include <math.h>

#include "base/rng.h"
#include "net/net_int.h"
#include "test.h"

enum { SEED = 1337, SALT = 5, SALT_ZERO = 7, STEP = 77 }; /* of golden_net.py */

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

static inline struct device *open_device(enum precision precision, int threads)
{
    struct device_options o = {.name = "cpu", .precision = precision, .threads = threads};
    struct device *dev = NULL;
    struct error e = {0};
    if (device_open(&dev, &o, &e) < 0) {
        print_message("%s\n", e.text);
        return NULL;
    }
    return dev;
}

/* A device, parameters and a network, with an image by formula. */
struct bench {
    struct device *dev;
    struct params *params;
    struct net *net;
    struct tensor image;
};

static inline double image_at(int64_t i)
{
    double x = (double)i;
    return (double)(float)sin(1.3 * x + 0.0007 * x * x);
}

static inline double grad_at(int64_t i, int phase)
{
    double x = (double)i;
    return (double)(float)((sin(0.0013 * x + phase) + 0.5 * cos(2.0 * x)) * 0.001);
}

static inline struct tensor make_tensor(struct device *dev, int n, int d, int h, int w, int c)
{
    struct tensor t = {.type = VALUE_F32, .n = n, .d = d, .h = h, .w = w, .c = c};
    t.data = dev->ops->alloc(dev, (size_t)tensor_count(&t) * sizeof(float));
    assert_non_null(t.data);
    return t;
}

static inline float *fetch(struct device *dev, const void *from, int64_t count)
{
    float *out = malloc((size_t)count * sizeof *out);
    assert_non_null(out);
    dev->ops->download(dev, out, from, (size_t)count * sizeof *out);
    return out;
}

static inline float *fetch_tensor(struct device *dev, struct tensor t)
{
    assert_int_equal(t.type, VALUE_F32);
    return fetch(dev, t.data, tensor_count(&t));
}

static inline void store(struct device *dev, void *to, const float *from, int64_t count)
{
    dev->ops->upload(dev, to, from, (size_t)count * sizeof *from);
}

static inline void fill_image(struct device *dev, const struct tensor *t)
{
    int64_t n = tensor_count(t);
    float *v = malloc((size_t)n * sizeof *v);
    for (int64_t i = 0; i < n; i++)
        v[i] = (float)image_at(i);
    store(dev, t->data, v, n);
    free(v);
}

static inline void fill_grad(struct device *dev, const struct tensor *t, int phase)
{
    int64_t n = tensor_count(t);
    float *v = malloc((size_t)n * sizeof *v);
    for (int64_t i = 0; i < n; i++)
        v[i] = (float)grad_at(i, phase);
    store(dev, t->data, v, n);
    free(v);
}

static inline void bench_open(struct bench *b, struct device *dev, const struct net_definition *def,
                              const struct net_shape *s)
{
    struct error e = {0};
    b->dev = dev;
    assert_ok(params_new(&b->params, dev, def, PARAMS_WITH_GRAD, &e), e);
    params_init(b->params, SEED, SALT);
    assert_ok(net_new(&b->net, b->params, def, s, &e), e);
    b->image = make_tensor(dev, s->n, s->d, s->h, s->w, b->net->graph.values[0].c);
    fill_image(dev, &b->image);
}

static inline void bench_close(struct bench *b)
{
    struct error e = {0};
    assert_ok(device_check(b->dev, &e), e);
    b->dev->ops->free(b->dev, b->image.data);
    net_free(b->net);
    params_free(b->params);
}

static const struct net_pass train_pass = {
    .mode = NET_TRAIN, .seed = SEED, .step = STEP, .stream = RNG_DROPOUT};
static const struct net_pass eval_pass = {
    .mode = NET_EVAL, .seed = SEED, .step = STEP, .stream = RNG_DROPOUT};

static inline double norm_of(const float *v, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)v[i] * (double)v[i];
    return sqrt(sum);
}

/* Forward, and the gradients of all outputs by formula; what is left is net_backward. */
static inline void train_forward(struct bench *b)
{
    struct graph *g = &b->net->graph;
    net_forward(b->net, &b->image, &train_pass);
    params_zero_grad(b->params);
    for (int k = 0; k < g->n_outputs; k++) {
        struct tensor t = net_grad(b->net, g->outputs[k]);
        fill_grad(b->dev, &t, k);
    }
}

#endif
