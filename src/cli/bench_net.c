/* bench_net.c - speed of the network: training steps and inference windows of the published V-Net, one image
 * channel, two classes, 16 filters.
 *
 *     train.f32.64     seconds of forward, CE + Dice, backward and SGD on 2 patches of 64^3
 *     window.bf16.96   seconds of one inference window of 96^3
 *     step.aua.64      seconds of a whole step of a method in the loop, 2 + 2 patches of 64^3, with batches,
 *                      guards and averages; step.supervised.64 beside it
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "base/rng.h"
#include "cli/bench.h"
#include "train/loss.h"
#include "train/train.h"

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
static int make_batch(struct net_bench *b, int n, int size, struct error *e)
{
    int64_t voxels = (int64_t)n * size * size * size;
    float *image = mem_alloc(e, (size_t)voxels, sizeof *image);
    uint8_t *label = mem_alloc(e, (size_t)voxels, 1);
    int result = -1;
    if (!image || !label)
        goto out;
    struct rng r = rng_start(1, 0, RNG_TEST, 0);
    for (int64_t i = 0; i < voxels; i++) {
        int64_t x = i % size, y = i / size % size, z = i / size / size % size, half = size / 2;
        int64_t far = (x - half) * (x - half) + (y - half) * (y - half) + (z - half) * (z - half);
        image[i] = rng_between(&r, -1.7f, 1.7f);
        label[i] = far < (int64_t)size * size / 9;
    }
    b->image = (struct tensor){.type = VALUE_F32, .n = n, .d = size, .h = size, .w = size, .c = 1};
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
                      int size, enum net_use use, struct error *e)
{
    static const struct optim_options sgd = {.lr = 0.01, .momentum = 0.9, .weight_decay = 1e-4};
    struct device_options o = {.name = c->device, .precision = precision, .threads = (int)c->threads};
    struct net_definition def = {.define = vnet_define, .channels = 1, .classes = 2, .filters = 16};
    struct net_shape shape = {.n = n, .d = size, .h = size, .w = size, .use = use};
    memset(b, 0, sizeof *b);
    if (device_open(&b->dev, &o, e) < 0 ||
        params_new(&b->params, b->dev, &def, use == NET_TRAINING ? PARAMS_WITH_GRAD : PARAMS_NO_GRAD, e) < 0)
        return -1;
    params_init(b->params, 1337, 0);
    if (net_new(&b->net, b->params, &def, &shape, e) < 0 || make_batch(b, n, size, e) < 0)
        return -1;
    if (use != NET_TRAINING)
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
    loss_ce_dice(b->dev, b->scratch, &logits, &b->label, &none, 1.0, &dlogits, NULL, NULL);
    net_backward(b->net);
    optim_step(b->optim, 1e-3, 1.0);
    return device_check(b->dev, e);
}

static int window_once(void *arg, struct error *e)
{
    struct net_bench *b = arg;
    struct net_pass pass = {.mode = NET_EVAL};
    net_forward(b->net, &b->image, &pass);
    return device_check(b->dev, e);
}

static int bench_sizes(const struct bench_teller *t, const char *group, enum precision precision,
                       struct error *e)
{
    static const int sizes[] = {32, 64, 96};
    int trains = strcmp(group, "train") == 0, result = 0;
    for (int i = 0; i < 3 && result == 0; i++) {
        struct net_bench b;
        char name[40];
        double seconds;
        snprintf(name, sizeof name, "%s.%s.%d", group, precision_name(precision), sizes[i]);
        if (!bench_wanted(t->config, name))
            continue;
        result = bench_open(&b, t->config, precision, trains ? 2 : 1, sizes[i],
                            trains ? NET_TRAINING : NET_FORWARD_ONLY, e);
        if (result == 0)
            result = bench_median(&seconds, trains ? train_once : window_once, &b, e);
        if (result == 0)
            bench_tell(t, name, seconds, "seconds");
        bench_close(&b);
    }
    return result;
}

/* ---- whole steps in the loop ------------------------------------------------------------------ */

enum { STEPS = 12, SKIP = 3 };
struct stepping {
    double last, took[STEPS];
    int n;
};

static void step_done(void *arg, const struct train_step *s)
{
    struct stepping *k = arg;
    if (s->step > SKIP && k->n < STEPS)
        k->took[k->n++] = s->seconds - k->last;
    k->last = s->seconds;
}

static int ball_cases(struct case_store *store, int size, struct error *e)
{
    struct rng r = rng_start(2, 0, RNG_TEST, 0);
    int dims[3] = {size, size, size};
    store->channels = 1;
    store->n_classes = 2;
    for (int k = 0; k < 4; k++) {
        struct stored_case *c = case_store_add(store, k < 2 ? "labelled" : "unlabelled", dims,
                                               k < 2 ? CASE_LABELED : CASE_UNLABELED, e);
        if (!c)
            return -1;
        for (int64_t i = 0; i < (int64_t)size * size * size; i++) {
            int64_t x = i % size - size / 2, y = i / size % size - size / 2, z = i / size / size - size / 2;
            int inside = x * x + y * y + z * z < (int64_t)size * size / 9;
            c->image[i] = (float)inside + rng_between(&r, -1, 1);
            if (c->label)
                c->label[i] = (label_t)inside;
        }
    }
    return 0;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int bench_step(const struct bench_teller *t, const char *method, int size, struct error *e)
{
    struct config c = *t->config;
    struct case_store store = {0};
    struct stepping k = {.n = 0};
    struct train_result r;
    struct device *dev = NULL;
    char *folder = NULL, name[40];
    struct device_options o = {.name = c.device, .threads = (int)c.threads};
    int result = -1;
    snprintf(name, sizeof name, "step.%s.%d", method, size);
    if (!bench_wanted(&c, name))
        return 0;
    c.set.method = (char *)(uintptr_t)method;
    c.set.steps = STEPS;
    c.set.stages = 1;
    for (int a = 0; a < 3; a++)
        c.set.patch[a] = size;
    if (device_open(&dev, &o, e) < 0 || ball_cases(&store, size, e) < 0 || io_temp_folder(&folder, e) < 0)
        goto out;
    struct train_options to = {.run = folder, .settings = &c.set, .store = &store, .dev = dev,
                               .checkpoint_seconds = 1e9, .sampler_threads = 1,
                               .listen = {.arg = &k, .step = step_done}};
    if (train_run(&r, &to, e) < 0)
        goto out;
    qsort(k.took, (size_t)k.n, sizeof *k.took, by_value);
    bench_tell(t, name, k.took[k.n / 2], "seconds");
    result = 0;
out:
    if (folder)
        io_remove_tree(folder);
    mem_free(folder);
    case_store_free(&store);
    device_close(dev);
    return result;
}

int bench_networks(const struct bench_teller *t, struct error *e)
{
    static const char *const groups[] = {"train", "window"};
    for (int g = 0; g < 2; g++)
        for (int p = PRECISION_F32; p <= PRECISION_BF16; p++) {
            if ((p == PRECISION_BF16 && !cpu_features().amx) ||
                (t->config->precision != PRECISION_AUTO && t->config->precision != p))
                continue;
            if (bench_sizes(t, groups[g], (enum precision)p, e) < 0 ||
                (g == 0 && bench_layers(t, (enum precision)p, e) < 0))
                return -1;
        }
    for (int size = 32; size <= 96; size += 32)
        if (bench_step(t, "supervised", size, e) < 0 || bench_step(t, "aua", size, e) < 0)
            return -1;
    return 0;
}
