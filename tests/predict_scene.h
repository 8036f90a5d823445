/* predict_scene.h - a small network that says something, for tests of prediction.
 *
 * Fresh networks answer almost the same everywhere; here the head is scaled and shifted until the logits
 * of every class spread over noise, so that labels vary and a wrong window shows.
 */
#ifndef FALX_PREDICT_SCENE_H
#define FALX_PREDICT_SCENE_H

#include <math.h>

#include "base/rng.h"
#include "predict/predict.h"
#include "test.h"

static inline void assert_near(double got, double want, double tolerance)
{
    if (!(fabs(got - want) <= tolerance))
        test_fail("%.9g, expected %.9g within %g", got, want, tolerance);
}

struct scene {
    struct device *dev;
    struct predict_model model;
};

/* The caller frees it. */
static inline float *noise_image(const int dims[3], int channels, uint64_t seed)
{
    size_t n = (size_t)dims[0] * (size_t)dims[1] * (size_t)dims[2] * (size_t)channels;
    float *image = mem_alloc(NULL, n, sizeof *image);
    struct rng r = rng_start(seed, 0, RNG_TEST, 0);
    assert_non_null(image);
    for (size_t i = 0; i < n; i++)
        image[i] = rng_normal(&r);
    return image;
}

/* Gives the logits of every class mean 0 and standard deviation 1.5 over a window of noise. */
static inline void scene_enliven(struct scene *s)
{
    static const int dims[3] = {16, 16, 16};
    struct error e;
    struct net *net;
    struct params *p = s->model.params;
    int c = s->model.def.classes, rank = s->model.def.rank, voxels = 16 * 16 * 16;
    struct net_shape shape = {1, 16, 16, 16, NET_FORWARD_ONLY, 0};
    struct net_pass pass = {.mode = NET_EVAL};
    float *image = noise_image(dims, s->model.def.channels, 99);
    struct tensor x = {image, VALUE_F32, 1, 16, 16, 16, s->model.def.channels}; /* cpu: any memory will do */
    assert_ok(net_new(&net, p, &s->model.def, &shape, &e), e);
    net_forward(net, &x, &pass);
    const float *z = net_value(net, rank ? "mean" : "logits").data;
    const struct param *w = params_find(p, rank ? "mean_l.weight" : "out_conv.weight");
    const struct param *b = params_find(p, rank ? "mean_l.bias" : "out_conv.bias");
    for (int k = 0; k < c; k++) {
        double sum = 0, square = 0;
        for (int v = 0; v < voxels; v++) {
            sum += (double)z[v * c + k] / voxels;
            square += (double)z[v * c + k] * (double)z[v * c + k] / voxels;
        }
        double scale = 1.5 / sqrt(square - sum * sum);
        assert_true(isfinite(scale) && scale < 1e5);
        for (int64_t i = 0; i < w->count / c; i++)
            p->value[w->offset + i * c + k] *= (float)scale; /* (c_in, c_out) */
        p->value[b->offset + k] = (float)(((double)p->value[b->offset + k] - sum) * scale);
    }
    p->version++;
    net_free(net);
    mem_free(image);
}

static inline void scene_open(struct scene *s, int channels, int classes, int rank, int threads)
{
    struct error e;
    struct device_options o = {.name = "cpu", .precision = PRECISION_F32, .threads = threads};
    assert_ok(device_open(&s->dev, &o, &e), e);
    s->model = (struct predict_model){.def = {.define = rank ? aua_define : vnet_define,
                                              .channels = channels,
                                              .classes = classes,
                                              .filters = 2,
                                              .rank = rank}};
    assert_ok(params_new(&s->model.params, s->dev, &s->model.def, PARAMS_NO_GRAD, &e), e);
    params_init(s->model.params, 5, 0);
    scene_enliven(s);
}

static inline void scene_close(struct scene *s)
{
    params_free(s->model.params);
    device_close(s->dev);
}

#endif
