/* predict.c - the sliding window. See predict.h.
 *
 *     planes of one layer of windows (same first plane) -> device -> windows, in batches -> network
 *     -> ring of patch[0] planes
 *     next layer starts at plane z: planes below z are closed: divided, labelled, stored, emptied
 *
 *           z ->  |== layer 0 ==|
 *                      |== layer 1 ==|          ring of |==| planes, addressed modulo its length
 *
 * Window k along an axis starts at min(k * stride, extent - patch), extent at least the patch (zeros around
 * smaller scans); windows at the end may overlap more, all are counted. Sums of weights are products of
 * three tables, so no volume of weights is needed.
 *
 * Uncertainty: the parameters of the stage-1 student's Gaussian are averaged over windows just so; its
 * samples are then drawn once per voxel of the volume, with one epsilon per case and sample, so that
 * overlapping windows agree and a sample spans the whole scan.
 */
#include <string.h>

#include "base/rng.h"
#include "device/kernels.h"
#include "predict/component.h"
#include "predict/predict_int.h"

enum { MAX_RUN = 64 }; /* windows that the network is run for at a time */

void prediction_free(struct prediction *p)
{
    mem_free(p->label);
    mem_free(p->foreground);
    mem_free(p->std);
    mem_free(p->entropy);
    memset(p, 0, sizeof *p);
}

/* ---- memory of a walk ------------------------------------------------------------------------ */

static void walk_end(struct walk *w)
{
    const struct device_ops *ops = w->p->dev->ops;
    for (int i = 0; i < w->n_parts; i++) {
        ops->free(w->p->dev, w->part[i].ring);
        ops->free(w->p->dev, w->part[i].plane);
    }
    for (int a = 0; a < 3; a++) {
        mem_free(w->total[a]);
        ops->free(w->p->dev, w->total_dev[a]);
        ops->free(w->p->dev, w->map[a]);
    }
    ops->free(w->p->dev, w->label);
    ops->free(w->p->dev, w->slab);
    mem_free(w->row);
}

int walk_start(const struct walk *w, int axis, int k)
{
    int last = w->padded[axis] - w->p->o.patch[axis], start = k * w->p->o.stride[axis];
    return start < last ? start : last;
}

static int mirror_images(int mirrors)
{
    return 1 << ((mirrors & 1) + (mirrors >> 1 & 1) + (mirrors >> 2 & 1));
}

/* Windows along an axis of this length. */
static int windows_along(const struct predictor *p, int axis, int length)
{
    int rest = length - p->o.patch[axis], stride = p->o.stride[axis];
    return rest > 0 ? (rest + stride - 1) / stride + 1 : 1;
}

int64_t predictor_runs(const struct predictor *p, const int dims[3])
{
    int64_t layer = (int64_t)windows_along(p, 1, dims[1]) * windows_along(p, 2, dims[2]);
    int batch = p->o.batch < MAX_RUN ? p->o.batch : MAX_RUN;
    return windows_along(p, 0, dims[0]) * ((layer * mirror_images(p->o.mirrors) + batch - 1) / batch);
}

/* Windows along the axes and the sums of their weights. */
static int lay_grid(struct walk *w, const int dims[3], struct error *e)
{
    struct predictor *p = w->p;
    for (int a = 0; a < 3; a++) {
        int patch = p->o.patch[a];
        w->dims[a] = dims[a];
        w->padded[a] = dims[a] > patch ? dims[a] : patch;
        w->left[a] = (w->padded[a] - dims[a]) / 2;
        w->n[a] = windows_along(p, a, dims[a]);
        size_t bytes = (size_t)w->padded[a] * sizeof(float);
        w->total[a] = mem_alloc(e, bytes, 1);
        w->total_dev[a] = p->dev->ops->alloc(p->dev, bytes);
        if (!w->total[a] || !w->total_dev[a])
            return w->total[a] ? device_check(p->dev, e) : -1;
        for (int k = 0; k < w->n[a]; k++)
            for (int i = 0; i < patch; i++)
                w->total[a][walk_start(w, a, k) + i] += p->weight[a][i];
        p->dev->ops->upload(p->dev, w->total_dev[a], w->total[a], bytes);
    }
    return 0;
}

static int add_part(struct walk *w, struct net *net, const char *output, int c, int softmax, struct error *e)
{
    struct gathered *g = &w->part[w->n_parts++];
    size_t plane = (size_t)w->padded[1] * (size_t)w->padded[2], bytes;
    *g = (struct gathered){.net = net, .output = output, .c = c, .softmax = softmax};
    if (size_mul(&bytes, plane * (size_t)w->p->o.patch[0], (size_t)c * sizeof(float)) < 0)
        return fail(e, ERR_MEMORY, NULL, "scan too large for its windows");
    g->ring = w->p->dev->ops->alloc(w->p->dev, bytes);
    g->plane = w->p->dev->ops->alloc(w->p->dev, plane * (size_t)c * sizeof(float));
    return g->ring && g->plane ? 0 : device_check(w->p->dev, e);
}

static int make_parts(struct walk *w, struct error *e)
{
    struct predictor *p = w->p;
    int c = p->classes, rank = p->model[1].def.rank;
    const char *logits = p->model[0].def.define == aua_mask_define ? "mean" : "logits";
    if (add_part(w, p->net[0], logits, c, 1, e) < 0)
        return -1;
    if (!p->net[1])
        return 0;
    if (add_part(w, p->net[1], "mean", c, 0, e) < 0 || add_part(w, p->net[1], "log_cov_diag", c, 0, e) < 0)
        return -1;
    return add_part(w, p->net[1], "cov_factor", rank * c, 0, e);
}

static int make_slab(struct walk *w, struct error *e)
{
    size_t plane = (size_t)w->dims[1] * (size_t)w->dims[2], bytes;
    int planes = w->dims[0] < w->p->o.patch[0] ? w->dims[0] : w->p->o.patch[0];
    if (size_mul(&bytes, plane * (size_t)planes, (size_t)w->p->channels * sizeof(float)) < 0)
        return fail(e, ERR_MEMORY, NULL, "scan too large for its windows");
    w->slab = w->p->dev->ops->alloc(w->p->dev, bytes);
    return w->slab ? 0 : device_check(w->p->dev, e);
}

static int make_output(struct walk *w, struct error *e)
{
    struct predictor *p = w->p;
    struct prediction *out = w->out;
    size_t plane = (size_t)w->padded[1] * (size_t)w->padded[2], voxels;
    if (size_mul(&voxels, (size_t)w->dims[0] * (size_t)w->dims[1], (size_t)w->dims[2]) < 0)
        return fail(e, ERR_MEMORY, NULL, "scan too large");
    memcpy(out->dims, w->dims, sizeof out->dims);
    if (!(out->label = mem_alloc(e, voxels, sizeof *out->label)) ||
        (p->o.probabilities && !(out->foreground = mem_alloc(e, voxels, sizeof(float)))) ||
        (p->o.uncertainty && !(out->entropy = mem_alloc(e, voxels, sizeof(float)))) ||
        (p->net[1] && !(out->std = mem_alloc(e, voxels, sizeof(float)))) ||
        !(w->row = mem_alloc(e, plane, sizeof(float))))
        return -1;
    w->label = p->dev->ops->alloc(p->dev, plane);
    for (int i = 0; i < 3; i++)
        w->map[i] = p->dev->ops->alloc(p->dev, plane * sizeof(float));
    return device_check(p->dev, e);
}

/* ---- windows --------------------------------------------------------------------------------- */

void walk_load(struct walk *w, int z)
{
    struct device *dev = w->p->dev;
    int first = z - w->left[0], end = first + w->p->o.patch[0];
    size_t plane = (size_t)w->dims[1] * (size_t)w->dims[2] * (size_t)w->p->channels;
    w->slab_first = first > 0 ? first : 0;
    w->slab_planes = (end < w->dims[0] ? end : w->dims[0]) - w->slab_first;
    dev->ops->upload(dev, w->slab, w->image + (size_t)w->slab_first * plane,
                     (size_t)w->slab_planes * plane * sizeof(float));
}

void walk_cut(struct walk *w, int i, const int first[3], const int flip[3])
{
    struct predictor *p = w->p;
    const int *patch = p->o.patch;
    struct tensor to = tensor_items(&p->input, i, 1);
    RUN(p->dev, window_cut, tensor_voxels(&to), .scan = w->slab, .out = to.data, .c = p->channels,
        .extent = {w->slab_planes, w->dims[1], w->dims[2]}, .patch = {patch[0], patch[1], patch[2]},
        .first = {first[0] - w->left[0] - w->slab_first, first[1] - w->left[1], first[2] - w->left[2]},
        .flip = {flip[0], flip[1], flip[2]});
}

struct slot {
    int first[3], flip[3];
};

/* Runs n windows and adds what came out to the rings. */
static void run_windows(struct walk *w, const struct slot *slots, int n)
{
    struct predictor *p = w->p;
    const int *patch = p->o.patch;
    struct tensor x = tensor_items(&p->input, 0, n);
    struct net_pass pass = {.mode = NET_EVAL};
    for (int i = 0; i < 2; i++)
        if (p->net[i])
            net_forward(p->net[i], &x, &pass);
    for (int k = 0; k < w->n_parts; k++) {
        const struct gathered *g = &w->part[k];
        struct tensor all = net_value(g->net, g->output);
        for (int i = 0; i < n; i++) {
            struct tensor y = tensor_items(&all, i, 1);
            RUN(p->dev, window_add, tensor_voxels(&y), .x = y.data, .ring = g->ring,
                .weight = {p->weight_dev[0], p->weight_dev[1], p->weight_dev[2]}, .c = g->c,
                .softmax = g->softmax, .h = w->padded[1], .w = w->padded[2],
                .patch = {patch[0], patch[1], patch[2]},
                .first = {slots[i].first[0], slots[i].first[1], slots[i].first[2]},
                .flip = {slots[i].flip[0], slots[i].flip[1], slots[i].flip[2]},
                .exchange = sides_are_exchanged(&p->o.sides, slots[i].flip) ? p->exchange : NULL,
                .classes = p->classes);
        }
    }
}

/* The i-th of them: the bits of i, dealt to the mirrored axes. */
static void mirror_image(int flip[3], int mirrors, int i)
{
    for (int a = 0; a < 3; a++)
        if (mirrors >> a & 1) {
            flip[a] = i & 1;
            i >>= 1;
        }
}

/* All windows that start at plane z, each seen once or in all its mirror images. */
static int run_layer(struct walk *w, int z, struct error *e)
{
    struct predictor *p = w->p;
    struct slot slots[MAX_RUN];
    int n = 0, images = mirror_images(p->o.mirrors), batch = p->o.batch < MAX_RUN ? p->o.batch : MAX_RUN;
    int total = w->n[1] * w->n[2] * images;
    walk_load(w, z);
    for (int k = 0; k < total; k++) {
        int image = k % images, y = k / images / w->n[2], x = k / images % w->n[2];
        struct slot *s = &slots[n];
        *s = (struct slot){.first = {z, walk_start(w, 1, y), walk_start(w, 2, x)}};
        mirror_image(s->flip, p->o.mirrors, image);
        walk_cut(w, n++, s->first, s->flip);
        if (n < batch && k + 1 < total)
            continue;
        run_windows(w, slots, n);
        n = 0;
        if (device_check(p->dev, e) < 0)
            return -1;
        if (p->o.stop && p->o.stop(p->o.arg))
            return fail(e, ERR_STOPPED, "P11", "stopped");
    }
    return 0;
}

/* ---- closing planes -------------------------------------------------------------------------- */

static void draw_eps(struct k_gauss *g, const struct predictor *p)
{
    for (int j = 0; j < g->pairs; j++) {
        struct rng r = rng_start(p->o.seed, 0, RNG_SAMPLE, (uint64_t)j);
        for (int k = 0; k < g->rank; k++)
            g->eps[j][k] = rng_normal(&r);
    }
}

static void spread(struct walk *w, int z)
{
    struct predictor *p = w->p;
    int64_t plane = (int64_t)w->padded[1] * w->padded[2];
    struct k_window_spread k = {.g = {.mean = w->part[1].plane,
                                      .diag = w->part[2].plane,
                                      .factor = w->part[3].plane,
                                      .classes = p->classes,
                                      .rank = p->model[1].def.rank,
                                      .pairs = p->o.samples / 2,
                                      .wanted = (1u << (p->o.samples / 2)) - 1,
                                      .seed = p->o.seed,
                                      .first = (uint64_t)z * (uint64_t)plane,
                                      .stream = RNG_SAMPLE + 1},
                                .std = w->map[1],
                                .entropy = w->map[2]};
    draw_eps(&k.g, p);
    p->dev->ops->map(p->dev, KERNEL_window_spread, &k, plane);
}

/* One closed plane of a map into the scan's grid. */
static void store_map(struct walk *w, float *to, const float *from, int z)
{
    if (!to)
        return;
    float *row = w->row;
    w->p->dev->ops->download(w->p->dev, row, from,
                             (size_t)w->padded[1] * (size_t)w->padded[2] * sizeof(float));
    for (int y = 0; y < w->dims[1]; y++)
        memcpy(to + ((int64_t)z * w->dims[1] + y) * w->dims[2],
               row + (int64_t)(y + w->left[1]) * w->padded[2] + w->left[2],
               (size_t)w->dims[2] * sizeof(float));
}

static void store_plane(struct walk *w, int z)
{
    struct prediction *out = w->out;
    uint8_t *row = w->row;
    w->p->dev->ops->download(w->p->dev, row, w->label, (size_t)w->padded[1] * (size_t)w->padded[2]);
    for (int y = 0; y < w->dims[1]; y++)
        for (int x = 0; x < w->dims[2]; x++)
            out->label[((int64_t)z * w->dims[1] + y) * w->dims[2] + x] =
                row[(int64_t)(y + w->left[1]) * w->padded[2] + w->left[2] + x];
    store_map(w, out->foreground, w->map[0], z);
    store_map(w, out->std, w->map[1], z);
    store_map(w, out->entropy, w->map[2], z);
}

/* Closes the planes below `end` and empties their places in the rings. */
static void close_planes(struct walk *w, int end)
{
    struct predictor *p = w->p;
    int64_t plane = (int64_t)w->padded[1] * w->padded[2];
    float images = (float)mirror_images(p->o.mirrors);
    for (; w->closed < end; w->closed++) {
        int z = w->closed;
        for (int k = 0; k < w->n_parts; k++) {
            const struct gathered *g = &w->part[k];
            float *sum = g->ring + z % p->o.patch[0] * plane * g->c;
            RUN(p->dev, window_mean, plane, .sum = sum, .total = {w->total_dev[1], w->total_dev[2]},
                .total_plane = images * w->total[0][z], .out = g->plane, .c = g->c, .w = w->padded[2]);
            p->dev->ops->zero(p->dev, sum, (size_t)plane * (size_t)g->c * sizeof(float));
        }
        if (z < w->left[0] || z >= w->left[0] + w->dims[0])
            continue;
        RUN(p->dev, window_label, plane, .prob = w->part[0].plane, .label = w->label, .foreground = w->map[0],
            .entropy = w->map[2], .c = p->classes);
        if (p->net[1])
            spread(w, z);
        store_plane(w, z - w->left[0]);
    }
}

/* ---- one scan -------------------------------------------------------------------------------- */

/* Mean entropy over the predicted foreground and the voxels that touch it by a face. An empty mask is as
 * doubtful as the voxel that came nearest to being in one: 0 would call a missed organ the surest of all. */
static double ambiguity(const struct prediction *p)
{
    int64_t h = p->dims[1], w = p->dims[2], at[3], step[3] = {h * w, w, 1};
    double sum = 0.0, most = 0.0;
    int64_t n = 0;
    for (int64_t i = 0; i < p->dims[0] * h * w; i++) {
        at[0] = i / (h * w);
        at[1] = i / w % h;
        at[2] = i % w;
        int near = p->label[i] != 0;
        for (int a = 0; a < 3 && !near; a++)
            near = (at[a] > 0 && p->label[i - step[a]]) || (at[a] + 1 < p->dims[a] && p->label[i + step[a]]);
        sum += near ? (double)p->entropy[i] : 0.0;
        n += near;
        most = fmax(most, (double)p->entropy[i]);
    }
    return n ? sum / (double)n : most;
}

static int predict_once(struct prediction *out, struct predictor *p, const float *image, const int dims[3],
                        struct error *e)
{
    struct walk w = {.p = p, .out = out, .image = image};
    int result = -1;
    memset(out, 0, sizeof *out);
    if (lay_grid(&w, dims, e) < 0 || make_slab(&w, e) < 0 || make_parts(&w, e) < 0 || make_output(&w, e) < 0)
        goto out;
    if (p->o.adapt)
        statistics_adapt(&w);
    for (int k = 0; k < w.n[0]; k++) {
        close_planes(&w, walk_start(&w, 0, k));
        if (run_layer(&w, walk_start(&w, 0, k), e) < 0)
            goto out;
    }
    close_planes(&w, w.padded[0]);
    if (device_check(p->dev, e) < 0)
        goto out;
    if (p->o.largest && component_keep_largest(out->label, out->dims, e) < 0)
        goto out;
    if (out->entropy)
        out->ambiguity = ambiguity(out);
    result = 0;
out:
    statistics_restore(p);
    walk_end(&w);
    if (result < 0)
        prediction_free(out);
    return result;
}

int predict_array(struct prediction *out, struct predictor *p, const float *image, const int dims[3],
                  struct error *e)
{
    int result;
    do
        result = predict_once(out, p, image, dims, e);
    while (result < 0 && predictor_shrink(p, e));
    return result;
}
