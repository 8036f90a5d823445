/* selftest.c - see selftest.h.
 *
 * The network is AUA's, with all heads and as wide as it is used, so that the kernels are those of a
 * training; weights, image and the gradients that come from the losses are fixed. A batch is small enough for
 * the processor's base level to take a second, and has 24 voxels at the bottom for a variance.
 */
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "net/net.h"
#include "net/selftest.h"

enum { ITEMS = 2, DEPTH = 32, HEIGHT = 48, WIDTH = 32, OUTPUTS = 4 };
static const char *const outputs[OUTPUTS] = {"features", "mean", "log_cov_diag", "cov_factor"};
static const struct net_definition definition = {
    .define = aua_define, .channels = 1, .classes = 2, .filters = 16, .rank = 8, .dropout = NET_DROPOUT_NONE};
static const struct net_shape shape = {ITEMS, DEPTH, HEIGHT, WIDTH, NET_TRAINING, 0};

/* What a pass gives, on the host; tensors one after the other. */
struct numbers {
    float *values, *gradients;
    int64_t value_counts[OUTPUTS], *gradient_counts;
    int n_gradients;
};

static void numbers_free(struct numbers *x)
{
    mem_free(x->values);
    mem_free(x->gradients);
    mem_free(x->gradient_counts);
}

/* A ball in every item, brighter than what is around it. */
static int inside(int64_t voxel)
{
    double x = (double)(voxel % WIDTH) - 15, y = (double)(voxel / WIDTH % HEIGHT) - 25,
           z = (double)(voxel / WIDTH / HEIGHT % DEPTH) - 14;
    return x * x + y * y + z * z < 11 * 11;
}

/* The ball in noise for the image; for the gradient of an output what a loss would say that wants odd
 * channels to be large in it and even ones small. To device memory. */
static int upload_ball(struct device *dev, const struct tensor *t, float noise, struct error *e)
{
    int64_t n = tensor_count(t);
    float *values = mem_alloc(e, (size_t)n, sizeof *values);
    if (!values)
        return -1;
    struct rng r = rng_start(1, 0, RNG_TEST, 0);
    for (int64_t i = 0; i < n; i++) {
        float sign = (inside(i / t->c) ? 1.0f : -1.0f) * (i % t->c % 2 ? -1.0f : 1.0f);
        values[i] = sign + (noise > 0 ? noise * rng_normal(&r) : 0);
    }
    dev->ops->upload(dev, t->data, values, (size_t)n * sizeof *values);
    mem_free(values);
    return 0;
}

static int take_values(struct numbers *out, struct device *dev, struct net *net, struct error *e)
{
    int64_t total = 0;
    for (int i = 0; i < OUTPUTS; i++) {
        struct tensor t = net_value(net, outputs[i]);
        total += out->value_counts[i] = tensor_count(&t);
    }
    if (!(out->values = mem_alloc(e, (size_t)total, sizeof *out->values)))
        return -1;
    float *at = out->values;
    for (int i = 0; i < OUTPUTS; at += out->value_counts[i++])
        dev->ops->download(dev, at, net_value(net, outputs[i]).data,
                           (size_t)out->value_counts[i] * sizeof *at);
    return 0;
}

static int take_gradients(struct numbers *out, struct device *dev, const struct params *p, struct error *e)
{
    out->gradients = mem_alloc(e, (size_t)p->trainable_count, sizeof *out->gradients);
    out->gradient_counts = mem_alloc(e, (size_t)p->n_trainable, sizeof *out->gradient_counts);
    if (!out->gradients || !out->gradient_counts)
        return -1;
    float *at = out->gradients;
    for (int k = 0; k < p->n_trainable; k++) {
        if (!p->touched[k]) /* the projection head: another little network */
            continue;
        int64_t n = out->gradient_counts[out->n_gradients++] = p->list[k].count;
        dev->ops->download(dev, at, p->grad + p->list[k].offset, (size_t)n * sizeof *at);
        at += n;
    }
    return 0;
}

/* Random layers of batch norm and ReLU blow rounding up, gradients most of all: after twenty of them nothing
 * can be told from it. With most values above zero they are nearly linear and do not. */
static int raise_betas(struct params *p, struct error *e)
{
    float raised[256]; /* channels at the bottom */
    for (int i = 0; i < 256; i++)
        raised[i] = 2.0f;
    for (int k = 0; k < p->n_trainable; k++) {
        if (p->list[k].kind != PARAM_BETA)
            continue;
        CHECK(p->list[k].count <= 256);
        if (param_upload(p->value, p, k, raised, e) < 0)
            return -1;
    }
    p->version++;
    return 0;
}

static int run_pass(struct numbers *out, struct device *dev, struct params *p, struct net *net,
                    struct error *e)
{
    struct tensor image = {NULL, VALUE_F32, ITEMS, DEPTH, HEIGHT, WIDTH, 1};
    struct net_pass pass = {.mode = NET_TRAIN};
    image.data = dev->ops->alloc(dev, (size_t)tensor_count(&image) * sizeof(float));
    int result = device_check(dev, e);
    if (result == 0 && (result = upload_ball(dev, &image, 1.0f, e)) == 0) {
        params_init(p, 1, 0);
        result = raise_betas(p, e);
    }
    if (result == 0) {
        params_zero_grad(p);
        net_forward(net, &image, &pass);
        result = take_values(out, dev, net, e);
    }
    for (int i = 0; i < OUTPUTS && result == 0; i++) {
        struct tensor gradient = net_grad_to_set(net, outputs[i]);
        result = upload_ball(dev, &gradient, 0.0f, e);
    }
    if (result == 0) {
        net_backward(net);
        result = take_gradients(out, dev, p, e);
    }
    dev->ops->free(dev, image.data);
    return result < 0 ? -1 : device_check(dev, e);
}

static int compute(struct numbers *out, struct device *dev, struct error *e)
{
    struct params *p = NULL;
    struct net *net = NULL;
    memset(out, 0, sizeof *out);
    int result = -1;
    if (params_new(&p, dev, &definition, PARAMS_WITH_GRAD, e) == 0 &&
        net_new(&net, p, &definition, &shape, e) == 0)
        result = run_pass(out, dev, p, net, e);
    net_free(net);
    params_free(p);
    return result;
}

/* A bias before batch norm has no gradient but rounding: a tensor counts as no smaller than a hundredth of
 * the root mean square of all. */
static struct selftest_error worst_of(const float *want, const float *got, const int64_t *counts, int n)
{
    struct selftest_error worst = {0, 0};
    double all = 0, total = 0;
    const float *at = want;
    for (int k = 0; k < n; at += counts[k++])
        for (int64_t i = 0; i < counts[k]; i++, total++)
            all += (double)at[i] * (double)at[i];
    for (int k = 0; k < n; want += counts[k], got += counts[k], k++) {
        double square = 0, off = 0, furthest = 0;
        for (int64_t i = 0; i < counts[k]; i++) {
            double d = (double)got[i] - (double)want[i];
            square += (double)want[i] * (double)want[i];
            off += d * d;
            furthest = isnan(d) ? INFINITY : fmax(furthest, fabs(d));
        }
        double scale = fmax(square / (double)counts[k], 1e-4 * all / total);
        off /= (double)counts[k] * scale;
        worst.mean_square = isnan(off) ? INFINITY : fmax(worst.mean_square, off);
        worst.furthest = fmax(worst.furthest, furthest / sqrt(scale));
    }
    return worst;
}

static int judge(const char *what, const struct selftest_error *found, const struct selftest_error *most,
                 const struct device *dev, struct error *e)
{
    if (found->mean_square <= most->mean_square && found->furthest <= most->furthest)
        return 0;
    fail(e, ERR_DEVICE, "G08",
         "%s of a test differ from plain float32 code by %.1e (mean square) and %.1e "
         "(furthest), expected at most %.0e and %.0e: its results are not to be trusted",
         what, found->mean_square, found->furthest, most->mean_square, most->furthest);
    return fail_in(e, dev->describe);
}

int selftest_run(struct selftest *out, struct device *dev, struct error *e)
{
    /* Healthy ones, an EPYC and an H200, show 2e-13 and 6e-7 (mean square) in float32, 2e-7 and 4e-5 in tf32,
     * 1e-5 and 4e-4 in bf16. */
    static const struct selftest most[] = {[PRECISION_F32] = {{1e-11, 1e-4}, {1e-5, 0.1}},
                                           [PRECISION_TF32] = {{1e-5, 0.02}, {1e-3, 0.2}},
                                           [PRECISION_BF16] = {{1e-4, 0.2}, {1e-2, 1}}};
    struct device_options plain = {
        .name = "cpu", .precision = PRECISION_F32, .level = "base", .threads = pool_threads(dev->pool)};
    struct device *reference;
    struct numbers want = {0}, got = {0};
    if (device_open(&reference, &plain, e) < 0)
        return -1;
    size_t peak = dev->peak_bytes;
    int result = compute(&want, reference, e) < 0 || compute(&got, dev, e) < 0 ? -1 : 0;
    device_close(reference);
    dev->peak_bytes = peak; /* of the work to come, not of this */
    if (result == 0) {
        struct selftest found = {
            worst_of(want.values, got.values, want.value_counts, OUTPUTS),
            worst_of(want.gradients, got.gradients, want.gradient_counts, want.n_gradients)};
        if (judge("values", &found.values, &most[dev->precision].values, dev, e) < 0 ||
            judge("gradients", &found.gradients, &most[dev->precision].gradients, dev, e) < 0)
            result = -1;
        if (out)
            *out = found;
    }
    numbers_free(&want);
    numbers_free(&got);
    return result;
}
