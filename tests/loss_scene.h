/* loss_scene.h - what the tests of the losses share: a device, tensors with the values of
 * tools/golden_loss.py, two networks' distributions, and every loss again as naive loops in
 * double. */
#ifndef FALX_LOSS_SCENE_H
#define FALX_LOSS_SCENE_H

#include "test.h"

#include <math.h>

#include "base/rng.h"
#include "train/loss.h"

enum loss_kind {
    GOLDEN_CE_DICE,
    GOLDEN_LIKELIHOOD,
    GOLDEN_GED,
    GOLDEN_GED_JOINT,
    GOLDEN_LIKELIHOOD_SUM, /* over voxels */
    GOLDEN_GED_JOINT_SUM,  /* over pairs of samples */
    GOLDEN_CE_DICE_ALL,    /* background has a Dice, too */
    GOLDEN_MSE,            /* to the softmax of the second network's mean */
    GOLDEN_ENTROPY,
    GOLDEN_KINDS
};
enum { SEED = 20240607, STEP = 5 }; /* as in tools/golden_loss.py */

/* ---- losses by themselves --------------------------------------------------------------------- */

static inline double loss_dice(struct loss_scratch *s, const struct tensor *logits,
                               const struct tensor *label, double weight, const struct tensor *dlogits)
{
    double dice = 0;
    ask_dice(s, logits, label, weight, dlogits, &dice);
    loss_settle(s);
    return dice;
}

static inline double loss_mse(struct loss_scratch *s, const struct tensor *logits,
                              const struct tensor *target, const struct tensor *weights, double weight,
                              const struct tensor *dlogits)
{
    double value;
    ask_mse(s, logits, target, weights, weight, dlogits, &value, NULL);
    loss_settle(s);
    return value;
}

static inline double loss_entropy(struct loss_scratch *s, const struct tensor *logits, double weight,
                                  const struct tensor *dlogits)
{
    double value;
    ask_entropy(s, logits, weight, dlogits, &value);
    loss_settle(s);
    return value;
}

static inline double loss_ged(struct loss_scratch *s, const struct gaussian *student,
                              const struct gaussian *teacher, int samples, int joint, double weight)
{
    double value;
    ask_ged(s, student, teacher, samples, joint, weight, &value);
    loss_settle(s);
    return value;
}

/* ---- devices and tensors --------------------------------------------------------------------- */

static struct device *dev;

static inline struct device *open_device(int threads)
{
    struct device_options o = {.name = "cpu", .precision = PRECISION_F32, .threads = threads};
    struct device *d;
    struct error e;
    assert_ok(device_open(&d, &o, &e), e);
    return d;
}

static inline int open_shared(void **state)
{
    (void)state;
    dev = open_device(2);
    return 0;
}

static inline int close_shared(void **state)
{
    (void)state;
    device_close(dev);
    return 0;
}

static inline struct tensor new_tensor(int n, int w, int c, enum value_type type)
{
    struct tensor t = {.type = type, .n = n, .d = 1, .h = 1, .w = w, .c = c};
    t.data = dev->ops->alloc(dev, (size_t)n * (size_t)w * (size_t)c * value_bytes(type));
    assert_non_null(t.data);
    return t;
}

static inline void free_tensor(struct tensor *t)
{
    dev->ops->free(dev, t->data);
    t->data = NULL;
}

/* Values in (-size, size) by number of the tensor, as the golden file's maker has them. */
static inline void fill(struct tensor *t, int number, float size)
{
    float *x = t->data;
    for (int64_t i = 0; i < tensor_count(t); i++) {
        struct rng_block b = rng_block(SEED, (uint64_t)number, RNG_TEST, (uint64_t)i / 4);
        x[i] = (((float)(b.v[i % 4] >> 9) + 0.5f) * (1.0f / 8388608.0f) * 2 - 1) * size;
    }
}

static inline void fill_bytes(struct tensor *t, int number, int top)
{
    uint8_t *x = t->data;
    for (int64_t i = 0; i < tensor_count(t); i++)
        x[i] =
            (uint8_t)(rng_block(SEED, (uint64_t)number, RNG_TEST, (uint64_t)i / 4).v[i % 4] % (uint32_t)top);
}

/* Student and teacher, labels, weights: one case of everything. */
struct scene {
    struct gaussian net[2];
    struct tensor label, weight;
    struct tensor target;               /* softmax of the teacher's mean */
    struct loss_scratch *scratch, *all; /* all: Dice with background, sums where the other has means */
    int items, voxels, classes, rank, samples;
};

static inline void new_scene(struct scene *s, int number, int items, int voxels, int classes, int rank,
                             int samples, int masked)
{
    struct error e;
    *s = (struct scene){
        .items = items, .voxels = voxels, .classes = classes, .rank = rank, .samples = samples};
    for (int i = 0; i < 2; i++) {
        struct gaussian *g = &s->net[i];
        *g = (struct gaussian){
            .rank = rank, .seed = SEED, .step = STEP, .stream = RNG_SAMPLE + 2 * (uint32_t)i};
        struct tensor *t[] = {&g->mean, &g->diag, &g->factor, &g->dmean, &g->ddiag, &g->dfactor};
        for (int k = 0; k < 6; k++)
            *t[k] = new_tensor(items, voxels, k % 3 == 2 ? classes * rank : classes, VALUE_F32);
        fill(&g->mean, 100 * number + 10 * i, 2.0f);
        fill(&g->diag, 100 * number + 10 * i + 1, 1.0f);
        fill(&g->factor, 100 * number + 10 * i + 2, 0.5f);
    }
    s->label = new_tensor(items, voxels, 1, VALUE_U8);
    fill_bytes(&s->label, 100 * number + 3, classes);
    s->weight = new_tensor(items, voxels, 1, VALUE_F32);
    fill(&s->weight, 100 * number + 4, 1.0f);
    for (int64_t i = 0; i < (int64_t)items * voxels; i++)
        ((float *)s->weight.data)[i] = fmaxf(((float *)s->weight.data)[i], 0);
    if (masked) {
        struct tensor mask = new_tensor(items, voxels, 1, VALUE_U8);
        fill_bytes(&mask, 100 * number + 5, 4);
        s->net[0].mask = s->net[1].mask = mask;
    }
    struct loss_options o = {.classes = classes, .samples = samples, .dice_share = 0.5};
    assert_ok(loss_scratch_new(&s->scratch, dev, &o, &e), e);
    o.dice_background = o.likelihood_sum = o.ged_sum = 1;
    assert_ok(loss_scratch_new(&s->all, dev, &o, &e), e);
    s->target = new_tensor(items, voxels, classes, VALUE_F32);
    soft_labels(dev, &s->target, &s->net[1].mean, 1.0, SOFT_SET);
}

static inline void free_scene(struct scene *s)
{
    for (int i = 0; i < 2; i++) {
        struct gaussian *g = &s->net[i];
        struct tensor *t[] = {&g->mean, &g->diag, &g->factor, &g->dmean, &g->ddiag, &g->dfactor};
        for (int k = 0; k < 6; k++)
            free_tensor(t[k]);
    }
    free_tensor(&s->net[0].mask);
    free_tensor(&s->label);
    free_tensor(&s->weight);
    free_tensor(&s->target);
    loss_scratch_free(s->scratch);
    loss_scratch_free(s->all);
}

static inline void zero_grads(struct scene *s)
{
    struct gaussian *g = &s->net[0];
    struct tensor *t[] = {&g->dmean, &g->ddiag, &g->dfactor};
    for (int k = 0; k < 3; k++)
        memset(t[k]->data, 0, (size_t)tensor_count(t[k]) * sizeof(float));
}

/* How many of mean, diag and factor a loss has gradients for. */
static inline int kind_outputs(int kind)
{
    return kind >= GOLDEN_LIKELIHOOD && kind <= GOLDEN_GED_JOINT_SUM ? 3 : 1;
}

static inline double run_kind(struct scene *s, int kind, double weight)
{
    struct gaussian *g = s->net;
    switch (kind) {
    case GOLDEN_CE_DICE:
    case GOLDEN_CE_DICE_ALL:
        return loss_ce_dice(kind == GOLDEN_CE_DICE ? s->scratch : s->all, &g->mean, &s->label, &s->weight,
                            weight, &g->dmean, NULL, NULL);
    case GOLDEN_MSE: return loss_mse(s->scratch, &g->mean, &s->target, &s->weight, weight, &g->dmean);
    case GOLDEN_ENTROPY: return loss_entropy(s->scratch, &g->mean, weight, &g->dmean);
    case GOLDEN_LIKELIHOOD: return loss_mc_likelihood(s->scratch, g, &s->label, s->samples, weight);
    case GOLDEN_LIKELIHOOD_SUM: return loss_mc_likelihood(s->all, g, &s->label, s->samples, weight);
    case GOLDEN_GED_JOINT_SUM: return loss_ged(s->all, &g[0], &g[1], s->samples, 1, weight);
    default: return loss_ged(s->scratch, &g[0], &g[1], s->samples, kind == GOLDEN_GED_JOINT, weight);
    }
}

/* ---- naive loops in double ------------------------------------------------------------------- */

static inline void normals4(double out[4], struct rng_block b)
{
    for (int i = 0; i < 4; i += 2) {
        double u = ((double)(b.v[i] >> 9) + 0.5) / 8388608;
        double t = ((double)(b.v[i + 1] >> 9) + 0.5) / 8388608;
        out[i] = sqrt(-2 * log(u)) * cos(2 * acos(-1) * t);
        out[i + 1] = sqrt(-2 * log(u)) * sin(2 * acos(-1) * t);
    }
}

static inline double draw_eps(const struct gaussian *g, int item, int pair, int k)
{
    double n[4];
    uint64_t index = (((uint64_t)item * 8 + (uint64_t)pair) * 16 + (uint64_t)k) / 4;
    normals4(n, rng_block(g->seed, g->step, g->stream, index));
    return n[k % 4];
}

static inline double draw_eta(const struct gaussian *g, int item, int voxel, int row, int rows)
{
    double n[4];
    uint64_t blocks = ((uint64_t)rows + 3) / 4, place = (uint64_t)(item * g->mean.w + voxel);
    normals4(n, rng_block(g->seed, g->step, g->stream + 1, place * blocks + (uint64_t)row / 4));
    return n[row % 4];
}

/* Parameters in double, so that differences can be taken. */
struct naive {
    const struct scene *s;
    double *value[2][3]; /* network; mean, diag, factor */
    double *noise[2];    /* network; (item, voxel, pair, class): eta */
    double *shared[2];   /* network; (item, pair, rank): epsilon */
};

static inline void new_naive(struct naive *n, const struct scene *s)
{
    int pairs = s->samples / 2, rows = pairs * s->classes;
    struct error e;
    n->s = s;
    for (int i = 0; i < 2; i++) {
        const struct gaussian *g = &s->net[i];
        const struct tensor *t[] = {&g->mean, &g->diag, &g->factor};
        for (int k = 0; k < 3; k++) {
            n->value[i][k] = mem_alloc(&e, (size_t)tensor_count(t[k]), sizeof(double));
            for (int64_t j = 0; j < tensor_count(t[k]); j++)
                n->value[i][k][j] = (double)((const float *)t[k]->data)[j];
        }
        n->noise[i] = mem_alloc(&e, (size_t)(s->items * s->voxels * rows), sizeof(double));
        n->shared[i] = mem_alloc(&e, (size_t)(s->items * pairs * s->rank), sizeof(double));
        for (int b = 0; b < s->items; b++) {
            for (int v = 0; v < s->voxels; v++)
                for (int r = 0; r < rows; r++)
                    n->noise[i][(b * s->voxels + v) * rows + r] = draw_eta(g, b, v, r, rows);
            for (int k = 0; k < pairs * s->rank; k++)
                n->shared[i][b * pairs * s->rank + k] = draw_eps(g, b, k / s->rank, k % s->rank);
        }
    }
}

static inline void free_naive(struct naive *n)
{
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < 3; k++)
            mem_free(n->value[i][k]);
        mem_free(n->noise[i]);
        mem_free(n->shared[i]);
    }
}

/* Softmax of sample k of a voxel; returns its logarithm's normaliser. */
static inline double naive_sample(double *p, double *logits, const struct naive *n, int net, int item, int v,
                                  int k)
{
    const struct scene *s = n->s;
    int C = s->classes, pairs = s->samples / 2, pair = k % pairs;
    int64_t at = (int64_t)item * s->voxels + v;
    const uint8_t *mask = s->net[net].mask.data;
    double m = mask ? mask[at] != 0 : 1, total = 0;
    for (int c = 0; c < C; c++) {
        double low = 0, var = m * (exp(n->value[net][1][at * C + c]) + 1e-5) + 1e-5;
        for (int r = 0; r < s->rank; r++)
            low += n->shared[net][(item * pairs + pair) * s->rank + r] * m *
                   n->value[net][2][at * C * s->rank + r * C + c];
        double delta = low + sqrt(var) * n->noise[net][at * pairs * C + pair * C + c];
        logits[c] = n->value[net][0][at * C + c] + (k < pairs ? delta : -delta);
        total += exp(logits[c]);
    }
    for (int c = 0; c < C; c++)
        p[c] = exp(logits[c]) / total;
    return log(total);
}

static inline double naive_likelihood(const struct naive *n)
{
    const struct scene *s = n->s;
    const uint8_t *label = s->label.data;
    double value = 0, p[16], z[16];
    for (int b = 0; b < s->items; b++) {
        double sum = 0;
        for (int k = 0; k < s->samples; k++) {
            double l = 0;
            for (int v = 0; v < s->voxels; v++) {
                double norm = naive_sample(p, z, n, 0, b, v, k);
                l += z[label[b * s->voxels + v]] - norm;
            }
            sum += exp(l) / s->samples;
        }
        value -= log(sum) / s->voxels / s->items;
    }
    return value;
}

static inline double naive_distance(const double *p, const double *q, int voxels, int C, int joint)
{
    double d = 1, inner = 0, norms = 0;
    for (int c = 0; c < C; c++) {
        double k = 0, n = 0;
        for (int v = 0; v < voxels; v++) {
            double a = p[v * C + c], b = q[v * C + c];
            k += a * b;
            n += a * a + b * b;
        }
        inner += k;
        norms += n;
        d -= (2 * k + 1e-5) / (n + 1e-5) / C;
    }
    return joint ? 1 - inner / norms : d;
}

static inline double naive_ged(const struct naive *n, int joint)
{
    const struct scene *s = n->s;
    int S = s->samples, C = s->classes, V = s->voxels;
    double value = 0, z[16];
    struct error e;
    double *all = mem_alloc(&e, (size_t)(2 * S * V * C), sizeof(double));
    for (int b = 0; b < s->items; b++) {
        for (int net = 0; net < 2; net++)
            for (int k = 0; k < S; k++)
                for (int v = 0; v < V; v++)
                    naive_sample(all + ((net * S + k) * V + v) * C, z, n, net, b, v, k);
        const double *p = all, *q = all + S * V * C;
        for (int i = 0; i < S * V * C; i += V * C)
            for (int j = 0; j < S * V * C; j += V * C)
                value +=
                    (2 * naive_distance(p + i, q + j, V, C, joint) -
                     naive_distance(p + i, p + j, V, C, joint) - naive_distance(q + i, q + j, V, C, joint)) /
                    (S * S) / s->items;
    }
    mem_free(all);
    return value;
}

static inline void naive_softmax(double *p, const double *z, int classes)
{
    double top = z[0], sum = 0;
    for (int c = 1; c < classes; c++)
        top = fmax(top, z[c]);
    for (int c = 0; c < classes; c++)
        sum += p[c] = exp(z[c] - top);
    for (int c = 0; c < classes; c++)
        p[c] /= sum;
}

static inline double naive_mse(const struct naive *n)
{
    const struct scene *s = n->s;
    const float *weight = s->weight.data;
    double value = 0, total = 0, p[16], q[16];
    for (int i = 0; i < s->items * s->voxels; i++) {
        naive_softmax(p, n->value[0][0] + i * s->classes, s->classes);
        naive_softmax(q, n->value[1][0] + i * s->classes, s->classes);
        for (int c = 0; c < s->classes; c++)
            value += (double)weight[i] * (p[c] - q[c]) * (p[c] - q[c]);
        total += (double)weight[i] * s->classes;
    }
    return value / total;
}

static inline double naive_entropy(const struct naive *n)
{
    const struct scene *s = n->s;
    double value = 0, p[16];
    int voxels = s->items * s->voxels;
    for (int i = 0; i < voxels; i++) {
        naive_softmax(p, n->value[0][0] + i * s->classes, s->classes);
        for (int c = 0; c < s->classes; c++)
            value -= p[c] * log(p[c] + 1e-6);
    }
    return value / voxels / log(s->classes);
}

/* first: class that Dice begins with */
static inline double naive_ce_dice(const struct naive *n, int weighted, int first)
{
    const struct scene *s = n->s;
    const uint8_t *label = s->label.data;
    const float *weight = s->weight.data;
    double ce = 0, total = 0, dice = 0, I[16] = {0}, Z[16] = {0}, Y[16] = {0};
    for (int i = 0; i < s->items * s->voxels; i++) {
        const double *z = n->value[0][0] + i * s->classes;
        double sum = 0, w = weighted ? (double)weight[i] : 1;
        for (int c = 0; c < s->classes; c++)
            sum += exp(z[c]);
        ce -= w * (z[label[i]] - log(sum));
        total += w;
        for (int c = 0; c < s->classes; c++) {
            double p = exp(z[c]) / sum, y = label[i] == c;
            I[c] += w * p * y;
            Z[c] += w * p * p;
            Y[c] += w * y;
        }
    }
    for (int c = first; c < s->classes; c++)
        dice += (1 - (2 * I[c] + 1e-5) / (Z[c] + Y[c] + 1e-5)) / (s->classes - first);
    return 0.5 * (ce / total + dice);
}

#endif
