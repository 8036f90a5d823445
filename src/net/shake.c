/* shake.c - layers that perturb a value at random, in training only (kernels_layer.h has the bodies). They
 * read their input like a convolution does, and store what they make. The factors are not stored: backward
 * draws them again from the random numbers of the pass, index (layer, item, element / 4).
 *
 *     NET_NOISE    x (1 + e),  e uniform in (-0.3, 0.3) for every element, the same for all items
 *     NET_DROP     elements dropped with probability 0.3, the others divided by 0.7
 *     NET_PEAKS    voxels dropped whose mean over channels is at least g times the largest of the item, g
 *                  uniform in (0.7, 0.9), one for all items; the means are kept for the backward pass
 */
#include "base/rng.h"
#include "device/kernels.h"
#include "device/peak.h"
#include "net/net_int.h"

/* As published. */
static const float NOISE_RANGE = 0.3f, DROP_SHARE = 0.3f, PEAKS_FROM = 0.7f, PEAKS_TO = 0.9f;

/* Floats that NET_PEAKS keeps: means, and on the way to the largest of each item, which are the last. */
static int64_t kept_floats(int items, int64_t voxels)
{
    return items * (voxels + peak_floats(voxels));
}

size_t shake_bytes(const struct net *n, int layer)
{
    struct tensor y = net_layer_tensor(n, layer);
    int64_t item = tensor_voxels(&y) / y.n;
    CHECK(item * y.c % 4 == 0); /* an item begins with a random block */
    return n->graph.layers[layer].by == NET_PEAKS ? (size_t)kept_floats(y.n, item) * sizeof(float) : 0;
}

static struct k_view view_of(const struct conv_source *in)
{
    return (struct k_view){in->y.data, in->y.type == VALUE_BF16, in->scale, in->shift, in->relu};
}

static struct k_view item_view(const struct conv_source *in, int item, int64_t elements)
{
    struct k_view a = view_of(in);
    a.y = (const char *)a.y + (size_t)(item * elements) * value_bytes(in->y.type);
    if (a.scale) {
        a.scale += item * in->y.c;
        a.shift += item * in->y.c;
    }
    return a;
}

/* The share of the peak that voxels must stay below, in this pass. */
static float peaks_share(const struct net *n, int layer)
{
    struct rng_block b = rng_block(n->pass.seed, n->pass.step, n->pass.stream, (uint64_t)layer << 48);
    return PEAKS_FROM + (PEAKS_TO - PEAKS_FROM) * rng_word_uniform(b.v[0]);
}

static void shake_item(struct net *n, int layer, int item, const struct k_view *a, const struct tensor *out,
                       int add)
{
    const struct layer *l = &n->graph.layers[layer];
    int64_t count = tensor_count(out) / out->n;
    void *to = (char *)out->data + (size_t)(item * count) * value_bytes(out->type);
    int drop = l->by == NET_DROP && n->pass.mode == NET_TRAIN;
    float amount = n->pass.mode != NET_TRAIN ? 0.0f : drop ? DROP_SHARE : NOISE_RANGE;
    uint64_t first = ((uint64_t)layer << 48) + (drop ? (uint64_t)(item * count / 4) : 0);
    RUN(n->dev, shake, count / 4, .a = *a, .out = to, .out_bf16 = out->type == VALUE_BF16, .fresh = !add,
        .c = out->c, .drop = drop, .amount = amount, .seed = n->pass.seed, .step = n->pass.step,
        .first = first, .stream = n->pass.stream);
}

/* Whether this pass drops peaks, of all items at once. */
static int drops_peaks(const struct net *n, int layer)
{
    return n->pass.mode == NET_TRAIN && n->graph.layers[layer].by == NET_PEAKS;
}

/* The means of all items and the largest of each. */
static void find_peaks(struct net *n, int layer, const struct k_view *a, const struct tensor *y)
{
    float *means = n->run[layer].kept;
    int64_t voxels = tensor_voxels(y) / y->n;
    RUN(n->dev, activity, tensor_voxels(y), .a = *a, .out = means, .voxels = (int)voxels, .c = y->c);
    peak_find(n->dev, means, y->n, voxels, 1, means + tensor_voxels(y));
}

static void drop_peaks(struct net *n, int layer, const struct k_view *a, const struct tensor *out, int add)
{
    const float *kept = n->run[layer].kept;
    int64_t voxels = tensor_voxels(out) / out->n;
    RUN(n->dev, keep_low, k_runs(tensor_voxels(out), out->c), .a = *a, .out = out->data,
        .out_bf16 = out->type == VALUE_BF16, .fresh = !add, .activity = kept,
        .peak = kept + kept_floats(out->n, voxels) - out->n, .voxels = (int)voxels, .c = out->c,
        .share = peaks_share(n, layer));
}

void shake_forward(struct net *n, int layer, const struct conv_source *in)
{
    struct tensor y = net_layer_tensor(n, layer);
    struct k_view all = view_of(in);
    if (drops_peaks(n, layer)) {
        find_peaks(n, layer, &all, &y);
        drop_peaks(n, layer, &all, &y, 0);
        return;
    }
    for (int item = 0; item < y.n; item++) {
        struct k_view a = item_view(in, item, tensor_count(&y) / y.n);
        shake_item(n, layer, item, &a, &y, 0);
    }
}

void shake_backward(struct net *n, int layer, const struct tensor *g, const struct tensor *dx, int add)
{
    struct conv_source plain = {.y = *g};
    struct k_view all = view_of(&plain);
    if (dx->data && drops_peaks(n, layer)) {
        drop_peaks(n, layer, &all, dx, add);
        return;
    }
    for (int item = 0; dx->data && item < g->n; item++) {
        struct k_view a = item_view(&plain, item, tensor_count(g) / g->n);
        shake_item(n, layer, item, &a, dx, add);
    }
}
