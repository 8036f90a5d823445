/* bench_net.c - speed of the network: training steps and inference windows of the published V-Net, one image
 * channel, two classes, 16 filters.
 *
 *     train.f32.64     seconds of forward, CE + Dice, backward and SGD on 2 patches of 64^3
 *     window.bf16.96   seconds of one inference window of 96^3
 *     window.bf16.la   of 112x112x80, eight at once
 *     window.aua.f32.64   of AUA's network: its mask alone
 */
#include <string.h>

#include "base/rng.h"
#include "cli/bench.h"
#include "device/cuda/cuda.h"
#include "train/loss.h"
#include "train/train.h"

const struct bench_patch bench_patches[BENCH_PATCHES] = {
    {"32", {32, 32, 32}}, {"64", {64, 64, 64}}, {"96", {96, 96, 96}}, {"la", {112, 112, 80}}};

int bench_patch_wanted(char name[48], const struct config *c, const char *group, const char *kind,
                       const struct bench_patch *p)
{
    snprintf(name, 48, "%s.%s.%s", group, kind, p->name);
    return strcmp(p->name, "la") == 0 ? bench_named(c, name) : bench_wanted(c, name);
}

struct bench_group {
    const char *name;
    void (*define)(struct builder *b, const struct net_definition *self);
    enum net_use use;
};

struct net_bench {
    struct device *dev;
    struct params *params;
    struct net *net;
    struct optim *optim;
    struct loss_scratch *scratch;
    struct tensor image, label;
};

static void bench_close(struct net_bench *b)
{
    if (b->dev) {
        b->dev->ops->free(b->dev, b->image.data);
        b->dev->ops->free(b->dev, b->label.data);
    }
    loss_scratch_free(b->scratch);
    optim_free(b->optim);
    net_free(b->net);
    params_free(b->params);
    device_close(b->dev);
    memset(b, 0, sizeof *b);
}

/* Noise as the image, a ball as the label. */
static int make_batch(struct net_bench *b, int n, const int dims[3], struct error *e)
{
    int64_t d = dims[0], h = dims[1], w = dims[2], voxels = n * d * h * w;
    float *image = mem_alloc(e, (size_t)voxels, sizeof *image);
    uint8_t *label = mem_alloc(e, (size_t)voxels, 1);
    int result = -1;
    if (!image || !label)
        goto out;
    struct rng r = rng_start(1, 0, RNG_TEST, 0);
    for (int64_t i = 0; i < voxels; i++) {
        int64_t x = i % w - w / 2, y = i / w % h - h / 2, z = i / w / h % d - d / 2;
        image[i] = rng_between(&r, -1.7f, 1.7f);
        label[i] = x * x + y * y + z * z < w * w / 9;
    }
    b->image = (struct tensor){.type = VALUE_F32, .n = n, .d = dims[0], .h = dims[1], .w = dims[2], .c = 1};
    b->label = b->image;
    b->label.type = VALUE_U8;
    b->image.data = b->dev->ops->alloc(b->dev, (size_t)voxels * sizeof *image);
    b->label.data = b->dev->ops->alloc(b->dev, (size_t)voxels);
    if (device_check(b->dev, e) < 0)
        goto out;
    b->dev->ops->upload(b->dev, b->image.data, image, (size_t)voxels * sizeof *image);
    b->dev->ops->upload(b->dev, b->label.data, label, (size_t)voxels);
    result = 0;
out:
    mem_free(image);
    mem_free(label);
    return result;
}

static int bench_open(struct net_bench *b, const struct config *c, enum precision precision, int n,
                      const int dims[3], const struct bench_group *g, struct error *e)
{
    static const struct optim_options sgd = {.lr = 0.01, .momentum = 0.9, .weight_decay = 1e-4};
    struct device_options o = {.name = c->device, .precision = precision, .threads = (int)c->threads};
    struct net_definition def = {.define = g->define, .channels = 1, .classes = 2, .filters = 16};
    struct net_shape shape = {.n = n, .d = dims[0], .h = dims[1], .w = dims[2], .use = g->use};
    int trains = g->use == NET_TRAINING;
    memset(b, 0, sizeof *b);
    if (device_open(&b->dev, &o, e) < 0 ||
        params_new(&b->params, b->dev, &def, trains ? PARAMS_WITH_GRAD : PARAMS_NO_GRAD, e) < 0)
        return -1;
    params_init(b->params, 1337, 0);
    if (net_new(&b->net, b->params, &def, &shape, e) < 0 || make_batch(b, n, dims, e) < 0)
        return -1;
    if (!trains)
        return 0;
    struct loss_options losses = {.classes = 2, .dice_share = 0.5};
    if (loss_scratch_new(&b->scratch, b->dev, &losses, e) < 0)
        return -1;
    return optim_new(&b->optim, b->params, &sgd, e);
}

static int train_once(void *arg, struct error *e)
{
    struct net_bench *b = arg;
    struct net_pass pass = {.mode = NET_TRAIN, .seed = 1, .step = 1, .stream = RNG_DROPOUT};
    struct tensor none = {.data = NULL};
    params_zero_grad(b->params);
    net_forward(b->net, &b->image, &pass);
    struct tensor logits = net_value(b->net, "logits"), dlogits = net_grad(b->net, "logits");
    loss_ce_dice(b->scratch, &logits, &b->label, &none, 1.0, &dlogits, NULL, NULL);
    net_backward(b->net);
    optim_step(b->optim, 1e-3, 1.0);
    b->dev->ops->sync(b->dev);
    return device_check(b->dev, e);
}

static int window_once(void *arg, struct error *e)
{
    struct net_bench *b = arg;
    struct net_pass pass = {.mode = NET_EVAL};
    net_forward(b->net, &b->image, &pass);
    b->dev->ops->sync(b->dev);
    return device_check(b->dev, e);
}

/* Patches at once: a GPU wants several windows. */
static int items_of(const struct bench_patch *p, int trains)
{
    return trains ? 2 : strcmp(p->name, "la") == 0 ? 8 : 1;
}

static int bench_sizes(const struct bench_teller *t, const struct bench_group *g, enum precision precision,
                       struct error *e)
{
    int trains = g->use == NET_TRAINING, result = 0;
    for (int i = 0; i < BENCH_PATCHES && result == 0; i++) {
        const struct bench_patch *p = &bench_patches[i];
        int n = items_of(p, trains);
        struct net_bench b;
        char name[48];
        double seconds;
        if (!bench_patch_wanted(name, t->config, g->name, precision_name(precision), p))
            continue;
        result = bench_open(&b, t->config, precision, n, p->dims, g, e);
        if (result == 0)
            result = bench_median(&seconds, trains ? train_once : window_once, &b, e);
        if (result == 0)
            bench_tell(t, name, trains ? seconds : seconds / n, "seconds");
        bench_close(&b);
    }
    return result;
}

int bench_on_gpu(const struct config *c)
{
    return c->device && cuda_is_name(c->device);
}

/* Whether the device asked for multiplies so fast enough to be timed. */
static int has_precision(const struct config *c, int precision)
{
    return precision == PRECISION_F32 || bench_on_gpu(c) || (precision == PRECISION_BF16 && cpu_has_bf16());
}

int bench_networks(const struct bench_teller *t, struct error *e)
{
    static const struct bench_group groups[] = {{"train", vnet_define, NET_TRAINING},
                                                {"window", vnet_define, NET_FORWARD_ONLY},
                                                {"window.aua", aua_mask_define, NET_FORWARD_ONLY}};
    for (int g = 0; g < 3; g++)
        for (int p = PRECISION_F32; p <= PRECISION_TF32; p++) {
            if (!has_precision(t->config, p) ||
                (t->config->precision != PRECISION_AUTO && t->config->precision != p))
                continue;
            if (bench_sizes(t, &groups[g], (enum precision)p, e) < 0 ||
                (g == 0 && bench_layers(t, (enum precision)p, e) < 0))
                return -1;
        }
    return 0;
}
