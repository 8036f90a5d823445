/* predict_naive.h - the sliding window as a whole-volume accumulation in double, without slabs. */
#ifndef FALX_PREDICT_NAIVE_H
#define FALX_PREDICT_NAIVE_H

#include "predict_scene.h"

static inline double window_weight_at(enum window_weight kind, int i, int n)
{
    double x = (i - 0.5 * (n - 1)) / (n / 8.0), g = exp(-0.5 * x * x);
    return kind == WINDOW_CONSTANT ? 1.0 : g > 1e-3 ? g : 1e-3;
}

enum { VOXELS = 32 * 32 * 16 }; /* of the largest patch of all tests */

struct naive {
    const struct predict_options *o;
    const float *image;
    int channels, dims[3], padded[3], left[3];
    double *sum, *total; /* (padded, c) and (padded) */
};

/* Fills `window` with what lies at `start`, mirrored, and says where each of its voxels belongs. */
static inline void naive_cut(const struct naive *n, float *window, int64_t *place, double *weight,
                             const int start[3], int mirror)
{
    const int *patch = n->o->patch, *dims = n->dims;
    for (int v = 0; v < patch[0] * patch[1] * patch[2]; v++) {
        int at[3] = {v / patch[2] / patch[1], v / patch[2] % patch[1], v % patch[2]}, in = 1;
        weight[v] = 1.0;
        for (int a = 0; a < 3; a++) {
            if (mirror >> a & 1)
                at[a] = patch[a] - 1 - at[a];
            weight[v] *= window_weight_at(n->o->weight, at[a], patch[a]);
            at[a] += start[a];
        }
        place[v] = ((int64_t)at[0] * n->padded[1] + at[1]) * n->padded[2] + at[2];
        for (int a = 0; a < 3; a++) {
            at[a] -= n->left[a];
            in &= at[a] >= 0 && at[a] < dims[a];
        }
        for (int k = 0; k < n->channels; k++)
            window[v * n->channels + k] =
                in ? n->image[((at[0] * dims[1] + at[1]) * dims[2] + at[2]) * n->channels + k] : 0.0f;
    }
}

/* 1 if an odd number of the axes that exchange sides is mirrored. */
static inline int naive_exchanged(const struct predict_options *o, int mirror)
{
    int n = 0;
    for (int a = 0; a < 3; a++)
        n += (mirror >> a & 1) && (o->sides.axes >> a & 1);
    return n % 2;
}

/* exchange: 0, or the number of classes, for which channels stand in turn. */
static inline void naive_add(struct naive *n, const float *y, int c, int softmax, const int64_t *place,
                             const double *weight, int exchange)
{
    const int *patch = n->o->patch;
    for (int v = 0; v < patch[0] * patch[1] * patch[2]; v++) {
        double norm = 0.0;
        for (int k = 0; k < c; k++)
            norm += exp((double)y[v * c + k]);
        n->total[place[v]] += weight[v];
        for (int k = 0; k < c; k++) {
            double value = (double)y[v * c + k];
            int to = exchange ? k - k % exchange + n->o->sides.other[k % exchange] : k;
            n->sum[place[v] * c + to] += weight[v] * (softmax ? exp(value) / norm : value);
        }
    }
}

/* The padding is taken off, sums become means. */
static inline double *naive_means(const struct naive *n, int c)
{
    const int *dims = n->dims;
    double *mean = calloc((size_t)dims[0] * (size_t)dims[1] * (size_t)dims[2] * (size_t)c, sizeof *mean);
    for (int v = 0; v < dims[0] * dims[1] * dims[2]; v++) {
        int z = v / dims[2] / dims[1] + n->left[0], y = v / dims[2] % dims[1] + n->left[1];
        int64_t from = ((int64_t)z * n->padded[1] + y) * n->padded[2] + v % dims[2] + n->left[2];
        assert_true(n->total[from] > 0);
        for (int k = 0; k < c; k++)
            mean[v * c + k] = n->sum[from * c + k] / n->total[from];
    }
    return mean;
}

/* Where windows start along an axis: every stride, and once flush with the end. */
static inline int naive_starts(int *start, int extent, int patch, int stride)
{
    int n = 0;
    for (int at = 0; at < extent - patch; at += stride)
        start[n++] = at;
    start[n++] = extent - patch;
    return n;
}

/* Lays the windows; returns the voxels of the padded scan. */
static inline size_t naive_lay(struct naive *n, int start[3][64], int count[3], const int dims[3])
{
    size_t voxels = 1;
    for (int a = 0; a < 3; a++) {
        n->dims[a] = dims[a];
        int patch = n->o->patch[a];
        n->padded[a] = dims[a] > patch ? dims[a] : patch;
        n->left[a] = (n->padded[a] - dims[a]) / 2;
        count[a] = naive_starts(start[a], n->padded[a], patch, n->o->stride[a]);
        voxels *= (size_t)n->padded[a];
    }
    return voxels;
}

/* Mean of one output of the network (its softmax if wanted) over all windows and mirror images, on the
 * scan's grid, c numbers a voxel. The caller frees it. */
static inline double *naive(struct scene *s, const float *image, const int dims[3],
                            const struct predict_options *o, const char *output, int softmax, int c)
{
    struct error e;
    struct net *net;
    struct naive n = {.o = o, .image = image, .channels = s->model.def.channels};
    struct net_shape shape = {1, o->patch[0], o->patch[1], o->patch[2], NET_FORWARD_ONLY, 0};
    struct net_pass pass = {.mode = NET_EVAL};
    float *window = mem_alloc(NULL, (size_t)(VOXELS * n.channels), sizeof *window);
    struct tensor x = {window, VALUE_F32, 1, shape.d, shape.h, shape.w, n.channels};
    int64_t place[VOXELS];
    double weight[VOXELS];
    int start[3][64], count[3];
    size_t voxels = naive_lay(&n, start, count, dims);
    assert_ok(net_new(&net, s->model.params, &s->model.def, &shape, &e), e);
    n.sum = calloc(voxels * (size_t)c, sizeof(double));
    n.total = calloc(voxels, sizeof(double));
    for (int i = 0; i < count[0] * count[1] * count[2]; i++)
        for (int mirror = 0; mirror < 8; mirror++) {
            if (mirror & ~o->mirrors)
                continue;
            int first[3] = {start[0][i / count[2] / count[1]], start[1][i / count[2] % count[1]],
                            start[2][i % count[2]]};
            naive_cut(&n, window, place, weight, first, mirror);
            net_forward(net, &x, &pass);
            struct tensor y = net_value(net, output);
            assert_int_equal(y.c, c);
            naive_add(&n, y.data, c, softmax, place, weight,
                      naive_exchanged(o, mirror) ? s->model.def.classes : 0);
        }
    double *mean = naive_means(&n, c);
    free(n.sum);
    free(n.total);
    mem_free(window);
    net_free(net);
    return mean;
}

/* Labels where the naive answer is clear, and both maps. */
static inline void compare(const struct prediction *p, const double *prob, int classes)
{
    int64_t n = (int64_t)p->dims[0] * p->dims[1] * p->dims[2], seen[16] = {0};
    for (int64_t v = 0; v < n; v++) {
        double first = -1, second = -1, entropy = 0;
        int best = 0;
        for (int k = 0; k < classes; k++) {
            double x = prob[v * classes + k];
            entropy -= x > 0 ? x * log(x) : 0;
            if (x > first) {
                second = first;
                first = x;
                best = k;
            } else if (x > second) {
                second = x;
            }
        }
        if (first - second > 1e-5)
            assert_int_equal(p->label[v], best);
        seen[best]++;
        assert_near((double)p->foreground[v], 1 - prob[v * classes], 2e-5);
        if (p->entropy)
            assert_near((double)p->entropy[v], entropy / log(classes), 2e-5);
    }
    assert_true(n == 1 || (seen[0] < n && seen[0] > 0)); /* else nothing was tested */
}

#endif
