/* net_reference.h - a network once more, in double precision, by the plainest loops there are:
 * channels first, one array a layer, batch norm and dropout as layers of their own. Forward only;
 * gradients are checked against it by finite differences.
 */
#ifndef FALX_NET_REFERENCE_H
#define FALX_NET_REFERENCE_H

#include "net_bench.h"

struct vol {
    int n, c, d, h, w;
    double *v;
};

/* What the reference reads: parameters by name, and dropout factors of the network under test. */
struct reference {
    const struct params *params;
    double *value;         /* (params->count), changed by finite differences */
    const struct net *net; /* whose masks are used */
    int layer;             /* convolutions so far */
    int train;
    double *made[256]; /* arrays to free */
    int n_made;
};

static inline struct vol ref_vol(struct reference *r, int n, int c, int d, int h, int w)
{
    struct vol x = {n, c, d, h, w, calloc((size_t)n * (size_t)c * (size_t)(d * h * w), sizeof(double))};
    assert_true(x.v && r->n_made < 256);
    r->made[r->n_made++] = x.v;
    return x;
}

static inline void ref_clear(struct reference *r)
{
    while (r->n_made > 0)
        free(r->made[--r->n_made]);
    r->layer = 0;
}

static inline double *ref_at(const struct vol *x, int n, int c, int d, int h, int w)
{
    return &x->v[((((int64_t)n * x->c + c) * x->d + d) * x->h + h) * x->w + w];
}

static inline const double *ref_param(const struct reference *r, const char *name, const char *tail)
{
    char full[80];
    snprintf(full, sizeof full, "%s.%s", name, tail);
    const struct param *p = params_find(r->params, full);
    assert_non_null(p);
    return r->value + p->offset;
}

/* The sum over one output voxel of a convolution with kernel k. */
static inline double ref_tap_sum(const struct vol *x, enum conv_kind kind, const double *w, int c_out, int n,
                                 int o, int d, int h, int ww)
{
    double sum = 0;
    int k = kind == CONV_3 ? 3 : kind == CONV_1 ? 1 : 2;
    for (int i = 0; i < x->c; i++)
        for (int t = 0; t < k * k * k; t++) {
            int a = t / (k * k), b = t / k % k, c = t % k;
            int64_t at =
                kind == CONV_UP ? ((int64_t)t * c_out + o) * x->c + i : ((int64_t)t * x->c + i) * c_out + o;
            int p = d, q = h, s = ww;
            if (kind == CONV_UP) {
                if (a != d % 2 || b != h % 2 || c != ww % 2)
                    continue;
                p = d / 2, q = h / 2, s = ww / 2;
            } else if (kind != CONV_1) {
                int step = kind == CONV_DOWN ? 2 : 1, pad = kind == CONV_3 ? 1 : 0;
                p = step * d + a - pad, q = step * h + b - pad, s = step * ww + c - pad;
            }
            if (p < 0 || q < 0 || s < 0 || p >= x->d || q >= x->h || s >= x->w)
                continue;
            sum += *ref_at(x, n, i, p, q, s) * w[at];
        }
    return sum;
}

static inline struct vol ref_conv(struct reference *r, struct vol x, enum conv_kind kind, int c,
                                  const char *name)
{
    const double *w = ref_param(r, name, "weight"), *bias = ref_param(r, name, "bias");
    int up = kind == CONV_UP ? 2 : 1, down = kind == CONV_DOWN ? 2 : 1;
    struct vol y = ref_vol(r, x.n, c, x.d * up / down, x.h * up / down, x.w * up / down);
    for (int n = 0; n < y.n; n++)
        for (int o = 0; o < c; o++)
            for (int d = 0; d < y.d; d++)
                for (int h = 0; h < y.h; h++)
                    for (int s = 0; s < y.w; s++)
                        *ref_at(&y, n, o, d, h, s) = bias[o] + ref_tap_sum(&x, kind, w, c, n, o, d, h, s);
    r->layer++;
    return y;
}

static inline struct vol ref_norm(struct reference *r, struct vol x, const char *name)
{
    const double *gamma = ref_param(r, name, "weight"), *beta = ref_param(r, name, "bias");
    const double *run_mean = ref_param(r, name, "running_mean"), *run_var = ref_param(r, name, "running_var");
    int64_t V = (int64_t)x.d * x.h * x.w;
    struct vol y = ref_vol(r, x.n, x.c, x.d, x.h, x.w);
    for (int c = 0; c < x.c; c++) {
        double mean = 0, var = 0;
        for (int64_t i = 0; i < x.n * V; i++)
            mean += x.v[(i / V * x.c + c) * V + i % V];
        mean /= (double)(x.n * V);
        for (int64_t i = 0; i < x.n * V; i++)
            var += pow(x.v[(i / V * x.c + c) * V + i % V] - mean, 2);
        var /= (double)(x.n * V);
        mean = r->train ? mean : run_mean[c];
        var = r->train ? var : run_var[c];
        for (int64_t i = 0; i < x.n * V; i++) {
            int64_t at = (i / V * x.c + c) * V + i % V;
            y.v[at] = (x.v[at] - mean) / sqrt(var + 1e-5) * gamma[c] + beta[c];
        }
    }
    return y;
}

static inline struct vol ref_relu(struct vol x)
{
    for (int64_t i = 0; i < (int64_t)x.n * x.c * x.d * x.h * x.w; i++)
        x.v[i] = x.v[i] > 0 ? x.v[i] : 0;
    return x;
}

/* With the factors that the network drew for its layer of the same number. */
static inline struct vol ref_drop(struct reference *r, struct vol x)
{
    int64_t V = (int64_t)x.d * x.h * x.w;
    for (int64_t i = 0; i < x.n * x.c * V && r->train; i++)
        x.v[i] *= (double)r->net->run[r->layer - 1].drop[i / V];
    return x;
}

static inline struct vol ref_add(struct vol x, struct vol y)
{
    for (int64_t i = 0; i < (int64_t)x.n * x.c * x.d * x.h * x.w; i++)
        x.v[i] += y.v[i];
    return x;
}

/* Where fine voxel `at` of `to` lies among `from` coarse ones. */
static inline double ref_place(enum net_resize_by how, int at, int from, int to)
{
    if (how == NET_NEAREST)
        return floor((double)at * from / to);
    double x =
        how == NET_ALIGNED ? (to > 1 ? (double)at * (from - 1) / (to - 1) : 0) : (at + 0.5) * from / to - 0.5;
    return fmin(fmax(x, 0), from - 1);
}

static inline struct vol ref_resize(struct reference *r, struct vol x, enum net_resize_by how, int levels)
{
    struct vol y = ref_vol(r, x.n, x.c, x.d << levels, x.h << levels, x.w << levels);
    int64_t V = (int64_t)y.d * y.h * y.w;
    r->layer++;
    for (int64_t i = 0; i < y.n * y.c * V; i++) {
        double z = ref_place(how, (int)(i % V / y.w / y.h), x.d, y.d);
        double h = ref_place(how, (int)(i % V / y.w % y.h), x.h, y.h);
        double w = ref_place(how, (int)(i % y.w), x.w, y.w);
        for (int k = 0; k < 8; k++) {
            int a = (int)z + (k >> 2), b = (int)h + (k >> 1 & 1), c = (int)w + (k & 1);
            double share = (1 - fabs(z - a)) * (1 - fabs(h - b)) * (1 - fabs(w - c));
            if (share > 0)
                y.v[i] += share * *ref_at(&x, (int)(i / V / y.c), (int)(i / V % y.c), a, b, c);
        }
    }
    return y;
}

/* Uniform number `at` of the layer before, as kernels have them. */
static inline double ref_uniform(const struct reference *r, int64_t at)
{
    uint64_t index = ((uint64_t)(r->layer - 1) << 48) + (uint64_t)at / 4;
    return ((rng_block(SEED, STEP, RNG_DROPOUT, index).v[at % 4] >> 9) + 0.5) / 8388608;
}

/* What net_shake says, in a value of its own. */
static inline struct vol ref_shake(struct reference *r, struct vol x, enum net_shake_by how)
{
    struct vol y = ref_vol(r, x.n, x.c, x.d, x.h, x.w);
    int64_t V = (int64_t)x.d * x.h * x.w;
    r->layer++;
    double limit = 0.7 + 0.2 * ref_uniform(r, 0);
    for (int n = 0; n < x.n; n++) {
        double *mean = ref_vol(r, 1, 1, x.d, x.h, x.w).v, top = -1;
        for (int64_t v = 0; v < V; v++) {
            for (int c = 0; c < x.c; c++)
                mean[v] += x.v[(n * x.c + c) * V + v] / x.c;
            top = fmax(top, mean[v]);
        }
        for (int64_t i = 0; i < V * x.c; i++) { /* channels last */
            int64_t at = (n * x.c + i % x.c) * V + i / x.c;
            double u = ref_uniform(r, how == NET_DROP ? n * V * x.c + i : i), by = 1 + 0.3 * (2 * u - 1);
            by = how == NET_DROP ? (u < 0.3 ? 0 : 1 / 0.7) : by;
            by = how == NET_PEAKS ? mean[i / x.c] < limit * top : by;
            y.v[at] = x.v[at] * (r->train ? by : 1);
        }
    }
    return y;
}

static inline struct vol ref_unit(struct reference *r, struct vol x, enum conv_kind kind, int c,
                                  const char *block, int at)
{
    char conv[64], norm[64];
    snprintf(conv, sizeof conv, "%s.conv.%d", block, at);
    snprintf(norm, sizeof norm, "%s.conv.%d", block, at + 1);
    return ref_relu(ref_norm(r, ref_conv(r, x, kind, c, conv), norm));
}

static inline struct vol ref_block(struct reference *r, struct vol x, int stages, int c, const char *name)
{
    for (int i = 0; i < stages; i++)
        x = ref_unit(r, x, CONV_3, c, name, 3 * i);
    return x;
}

/* The V-Net with dropout in both places. */
static inline struct vol ref_vnet(struct reference *r, struct vol x, int f, int classes)
{
    struct vol x1 = ref_block(r, x, 1, f, "block_one");
    struct vol x2 = ref_block(r, ref_unit(r, x1, CONV_DOWN, 2 * f, "block_one_dw", 0), 2, 2 * f, "block_two");
    struct vol x3 =
        ref_block(r, ref_unit(r, x2, CONV_DOWN, 4 * f, "block_two_dw", 0), 3, 4 * f, "block_three");
    struct vol x4 =
        ref_block(r, ref_unit(r, x3, CONV_DOWN, 8 * f, "block_three_dw", 0), 3, 8 * f, "block_four");
    x = ref_block(r, ref_unit(r, x4, CONV_DOWN, 16 * f, "block_four_dw", 0), 3, 16 * f, "block_five");
    x = ref_drop(r, x);
    x = ref_add(ref_unit(r, x, CONV_UP, 8 * f, "block_five_up", 0), x4);
    x = ref_block(r, x, 3, 8 * f, "block_six");
    x = ref_add(ref_unit(r, x, CONV_UP, 4 * f, "block_six_up", 0), x3);
    x = ref_block(r, x, 3, 4 * f, "block_seven");
    x = ref_add(ref_unit(r, x, CONV_UP, 2 * f, "block_seven_up", 0), x2);
    x = ref_block(r, x, 2, 2 * f, "block_eight");
    x = ref_add(ref_unit(r, x, CONV_UP, f, "block_eight_up", 0), x1);
    x = ref_drop(r, ref_block(r, x, 1, f, "block_nine"));
    return ref_conv(r, x, CONV_1, classes, "out_conv");
}

#endif
