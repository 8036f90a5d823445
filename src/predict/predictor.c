/* predictor.c - what all scans of a predictor share: networks, a batch of windows, the weights of a window.
 *
 * Where a GPU is short of memory, fewer windows go at a time [G05].
 */
#include <math.h>
#include <string.h>

#include "device/kernels.h"
#include "predict/predict_int.h"

enum { MAX_BATCH = 8 };

static int make_weights(struct predictor *p, struct error *e)
{
    for (int a = 0; a < 3; a++) {
        int n = p->o.patch[a];
        double sigma = n / 8.0, middle = (n - 1) / 2.0;
        if (!(p->weight[a] = mem_alloc(e, (size_t)n, sizeof(float))))
            return -1;
        for (int i = 0; i < n; i++) {
            double g = exp(-0.5 * (i - middle) * (i - middle) / (sigma * sigma));
            /* never nothing: the rim of a scan is seen by the rim of one window only */
            p->weight[a][i] = p->o.weight == WINDOW_GAUSSIAN ? (float)fmax(g, 1e-3) : 1.0f;
        }
        p->weight_dev[a] = p->dev->ops->alloc(p->dev, (size_t)n * sizeof(float));
        if (!p->weight_dev[a])
            return device_check(p->dev, e);
        p->dev->ops->upload(p->dev, p->weight_dev[a], p->weight[a], (size_t)n * sizeof(float));
    }
    return 0;
}

static int make_exchange(struct predictor *p, struct error *e)
{
    p->exchange = p->dev->ops->alloc(p->dev, sizeof p->o.sides.other);
    if (!p->exchange)
        return device_check(p->dev, e);
    p->dev->ops->upload(p->dev, p->exchange, p->o.sides.other, sizeof p->o.sides.other);
    return 0;
}

/* A processor is busy with one large window, a GPU with several. */
static void choose_defaults(struct predict_options *o, const struct device *dev)
{
    int64_t room = strcmp(dev->ops->name, "cpu") == 0 ? 96 * 96 * 96 : 1 << 24;
    int64_t voxels = (int64_t)o->patch[0] * o->patch[1] * o->patch[2], fit = room / voxels;
    for (int a = 0; a < 3; a++)
        if (o->stride[a] <= 0)
            o->stride[a] = o->patch[a] / 2;
    if (o->batch <= 0)
        o->batch = fit < 1 ? 1 : fit > MAX_BATCH ? MAX_BATCH : (int)fit;
}

/* Does everything fit the windows, and the arrays of the kernels? */
static int check_options(struct predictor *p, struct error *e)
{
    struct predict_options *o = &p->o;
    const struct net_definition *mask = &p->model[0].def, *second = &p->model[1].def;
    for (int a = 0; a < 3; a++)
        if (o->stride[a] > o->patch[a])
            return fail(e, ERR_CONFIG, "C03", "stride %d, allowed 1..%d (the patch): windows must touch",
                        o->stride[a], o->patch[a]);
    if (mask->channels < 1 || mask->classes < 2 || mask->classes > KERNEL_CLASSES)
        return fail(e, ERR_DATA, "S10", "a model of %d channels and %d classes", mask->channels,
                    mask->classes);
    if (!p->model[1].params)
        return 0;
    if (second->define != aua_define || second->channels != mask->channels ||
        second->classes != mask->classes || second->rank < 1 || second->rank > GAUSS_RANK)
        return fail(e, ERR_DATA, "S10", "a model of uncertainty with %d channels, %d classes and rank %d",
                    second->channels, second->classes, second->rank);
    int most = 2 * (GAUSS_ROWS / mask->classes);
    most = most < 2 * GAUSS_PAIRS ? most : 2 * GAUSS_PAIRS;
    o->samples = o->samples > 0 ? o->samples : most;
    if (o->samples % 2 || o->samples > most)
        return fail(e, ERR_CONFIG, "C03", "%d samples of %d classes, allowed 2, 4, ... %d", o->samples,
                    mask->classes, most);
    return 0;
}

static int make_nets(struct predictor *p, struct error *e)
{
    const int *patch = p->o.patch;
    struct net_shape shape = {
        .n = p->o.batch, .d = patch[0], .h = patch[1], .w = patch[2], .use = NET_FORWARD_ONLY};
    for (int i = 0; i < 2; i++)
        if (p->model[i].params && net_new(&p->net[i], p->model[i].params, &p->model[i].def, &shape, e) < 0)
            return -1;
    p->input = (struct tensor){
        .type = VALUE_F32, .n = p->o.batch, .d = patch[0], .h = patch[1], .w = patch[2], .c = p->channels};
    p->input.data = p->dev->ops->alloc(p->dev, (size_t)tensor_count(&p->input) * sizeof(float));
    return device_check(p->dev, e);
}

static void drop_nets(struct predictor *p)
{
    for (int i = 0; i < 2; i++) {
        net_free(p->net[i]);
        p->net[i] = NULL;
    }
    p->dev->ops->free(p->dev, p->input.data);
    p->input.data = NULL;
}

int predictor_shrink(struct predictor *p, struct error *e)
{
    while (p->o.batch > 1 && device_forgive_memory(p->dev)) {
        drop_nets(p);
        p->o.batch /= 2;
        if (make_nets(p, e) == 0)
            return 1;
    }
    return 0;
}

int predictor_new(struct predictor **out, struct device *dev, const struct predict_model *mask,
                  const struct predict_model *uncertainty, const struct predict_options *o, struct error *e)
{
    struct predictor *p = mem_alloc(e, 1, sizeof *p);
    *out = NULL;
    if (!p)
        return -1;
    p->dev = dev;
    p->o = *o;
    choose_defaults(&p->o, dev);
    p->model[0] = *mask;
    if (mask->def.define == aua_define)
        p->model[0].def.define = aua_mask_define;
    if (uncertainty)
        p->model[1] = *uncertainty;
    p->channels = mask->def.channels;
    p->classes = mask->def.classes;
    if (check_options(p, e) < 0 || (make_nets(p, e) < 0 && !predictor_shrink(p, e)) ||
        make_weights(p, e) < 0 || make_exchange(p, e) < 0 || statistics_keep(p, e) < 0)
        goto failed;
    *out = p;
    return 0;
failed:
    predictor_free(p);
    return -1;
}

void predictor_free(struct predictor *p)
{
    if (!p)
        return;
    drop_nets(p);
    statistics_forget(p);
    for (int a = 0; a < 3; a++) {
        mem_free(p->weight[a]);
        p->dev->ops->free(p->dev, p->weight_dev[a]);
    }
    p->dev->ops->free(p->dev, p->exchange);
    mem_free(p);
}
