/* test_twin.c - networks with a head for signed distances: the maps of labels, the losses, the network.
 * Oracles: brute force over all pairs of voxels, central differences of naive loops in double.
 */
#include <math.h>

#include "device/kernels.h"
#include "loss_scene.h"
#include "net/net.h"
#include "train/sdf.h"

/* ---- maps of labels ---------------------------------------------------------------------------- */

enum { D = 5, H = 7, W = 9, VOXELS = D * H * W };

/* From voxel i to the nearest one that is, or is not, of the class. */
static double nearest(const uint8_t *label, int of, int is, int i)
{
    double best = INFINITY;
    for (int j = 0; j < VOXELS; j++) {
        double z = i / W / H - j / W / H, y = i / W % H - j / W % H, x = i % W - j % W;
        if ((label[j] == of) == is)
            best = fmin(best, sqrt(z * z + y * y + x * x));
    }
    return best;
}

static int is_face(const uint8_t *label, int i)
{
    static const int steps[6][3] = {{1, 0, 0}, {-1, 0, 0}, {0, 1, 0}, {0, -1, 0}, {0, 0, 1}, {0, 0, -1}};
    for (int k = 0; k < 6; k++) {
        int z = i / W / H + steps[k][0], y = i / W % H + steps[k][1], x = i % W + steps[k][2];
        if (z >= 0 && z < D && y >= 0 && y < H && x >= 0 && x < W && label[(z * H + y) * W + x] != label[i])
            return 1;
    }
    return 0;
}

/* map (voxels, classes - 1) of a label, by way of the device. */
static void make_maps(float *map, const int dims[3], const uint8_t *label, int classes)
{
    struct tensor in = {NULL, VALUE_U8, 1, dims[0], dims[1], dims[2], 1}, out = in;
    size_t voxels = (size_t)tensor_voxels(&in), floats = voxels * (size_t)(classes - 1);
    struct sdf *s;
    struct error e;
    out.type = VALUE_F32;
    out.c = classes - 1;
    in.data = dev->ops->alloc(dev, voxels);
    out.data = dev->ops->alloc(dev, floats * sizeof *map);
    assert_ok(sdf_new(&s, dev, dims, &e), e);
    dev->ops->upload(dev, in.data, label, voxels);
    sdf_maps(&out, s, &in);
    dev->ops->download(dev, map, out.data, floats * sizeof *map);
    assert_ok(device_check(dev, &e), e);
    sdf_free(s);
    dev->ops->free(dev, in.data);
    dev->ops->free(dev, out.data);
}

static void check_maps(const uint8_t *label, int classes)
{
    static const int dims[3] = {D, H, W};
    static float map[VOXELS * 4];
    make_maps(map, dims, label, classes);
    for (int c = 1; c < classes; c++) {
        double out[VOXELS], in[VOXELS], far = 0, deep = 0;
        for (int i = 0; i < VOXELS; i++) {
            far = fmax(far, out[i] = nearest(label, c, 1, i));
            deep = fmax(deep, in[i] = nearest(label, c, 0, i));
        }
        for (int i = 0; i < VOXELS; i++) {
            double want = out[i] / far - in[i] / deep, got = (double)map[i * (classes - 1) + c - 1];
            if (!isfinite(far) || !isfinite(deep) || (label[i] == c && is_face(label, i)))
                want = 0;
            if (!(fabs(got - want) < 1e-6))
                test_fail("class %d, voxel %d: %g, not %g", c, i, got, want);
        }
    }
}

static void test_maps(void **state)
{
    uint8_t label[VOXELS];
    (void)state;
    for (int kind = 0; kind < 7; kind++) {
        for (int i = 0; i < VOXELS; i++) {
            int z = i / W / H, y = i / W % H, x = i % W;
            int noise = (int)(rng_block(5, 0, RNG_TEST, (uint64_t)i).v[0] % 4);
            /* nothing, all, a voxel, a bar, quarters, stripes, noise */
            int at[7] = {0,         1,    i == 100, y >= 1 && y < 6 && x >= 2 && x < 7, 2 * (z > 2) + (x > 4),
                         x / 2 % 4, noise};
            label[i] = (uint8_t)at[kind];
        }
        check_maps(label, 2);
        check_maps(label, 4);
    }
}

/* A cube of 5 voxels: -1 in the middle, 0 on its faces, 1 at the far corner. */
static void test_cube(void **state)
{
    const int dims[3] = {16, 16, 16};
    static uint8_t label[4096];
    static float map[4096];
    (void)state;
    for (int i = 0; i < 4096; i++) {
        int z = i / 256, y = i / 16 % 16, x = i % 16;
        label[i] = z >= 3 && z < 8 && y >= 3 && y < 8 && x >= 3 && x < 8;
    }
    make_maps(map, dims, label, 2);
    assert_true(map[(5 * 16 + 5) * 16 + 5] == -1);
    assert_true(map[(3 * 16 + 5) * 16 + 5] == 0);
    assert_true(fabsf(map[(4 * 16 + 5) * 16 + 5] + 2.0f / 3) < 1e-6f);
    assert_true(map[4095] == 1);
}

/* ---- losses ------------------------------------------------------------------------------------ */

enum { ITEMS = 2, POINTS = 45 };

struct twin {
    struct tensor z, dz, raw, draw, target;
    double *logits, *distance; /* what the naive loops read */
    struct loss_scratch *scratch;
    int classes;
};

static double naive_loss(const struct twin *h, int dual)
{
    int C = h->classes, n = ITEMS * POINTS;
    double value = 0, p[16];
    for (int v = 0; v < n; v++) {
        naive_softmax(p, h->logits + v * C, C);
        for (int c = 1; c < C; c++) {
            double t = tanh(h->distance[v * (C - 1) + c - 1]), m = 1 / (1 + exp(1500 * t));
            double off = dual ? m - p[c] : t - (double)((float *)h->target.data)[v * (C - 1) + c - 1];
            value += off * off / n / (C - 1);
        }
    }
    return value;
}

static double run_loss(struct twin *h, int dual, double weight)
{
    double value;
    memset(h->dz.data, 0, (size_t)tensor_count(&h->dz) * sizeof(float));
    memset(h->draw.data, 0, (size_t)tensor_count(&h->draw) * sizeof(float));
    if (dual)
        ask_dual(h->scratch, &h->z, &h->raw, weight, &h->dz, &h->draw, &value);
    else
        ask_distance(h->scratch, &h->raw, &h->target, weight, &h->draw, &value);
    loss_settle(h->scratch);
    return value;
}

/* relative: of the largest slope. Float sees the steep step only so well. */
static void check_slopes(struct twin *h, double *x, const struct tensor *grad, int dual, double relative)
{
    const double step = 1e-6;
    double largest = 0, worst = 0;
    for (int64_t i = 0; i < tensor_count(grad); i++) {
        double old = x[i];
        x[i] = old + step;
        double up = naive_loss(h, dual);
        x[i] = old - step;
        double slope = 0.7 * (up - naive_loss(h, dual)) / (2 * step);
        x[i] = old;
        largest = fmax(largest, fabs(slope));
        worst = fmax(worst, fabs(slope - (double)((float *)grad->data)[i]));
    }
    assert_true(largest > 1e-4);
    if (!(worst <= relative * largest))
        test_fail("%d classes, dual %d: off by %g of %g", h->classes, dual, worst, largest);
}

static double *doubles(const struct tensor *t)
{
    double *out = malloc((size_t)tensor_count(t) * sizeof *out);
    for (int64_t i = 0; i < tensor_count(t); i++)
        out[i] = (double)((float *)t->data)[i];
    return out;
}

static void test_losses(void **state)
{
    (void)state;
    for (int classes = 2; classes <= 4; classes++) {
        struct twin h = {.classes = classes};
        struct loss_options o = {.classes = classes};
        struct error e;
        struct tensor *all[] = {&h.z, &h.dz, &h.raw, &h.draw, &h.target};
        for (int k = 0; k < 5; k++)
            *all[k] = new_tensor(ITEMS, POINTS, classes - (k > 1), VALUE_F32);
        fill(&h.z, 71, 2.0f);
        fill(&h.raw, 72, 2.0f);
        fill(&h.target, 73, 1.0f);
        float *raw = h.raw.data;
        for (int i = 0; i < tensor_count(&h.raw); i += 2)
            raw[i] *= 0.001f; /* near the surface, where the step has a slope */
        raw[1] = 30, raw[3] = -30;
        assert_ok(loss_scratch_new(&h.scratch, dev, &o, &e), e);
        h.logits = doubles(&h.z);
        h.distance = doubles(&h.raw);
        assert_true(fabs(run_loss(&h, 0, 0.7) - naive_loss(&h, 0)) < 1e-6);
        check_slopes(&h, h.distance, &h.draw, 0, 1e-5);
        assert_true(fabs(run_loss(&h, 1, 0.7) - naive_loss(&h, 1)) < 1e-5);
        check_slopes(&h, h.distance, &h.draw, 1, 1e-3);
        check_slopes(&h, h.logits, &h.dz, 1, 1e-3);
        raw[5] = NAN;
        assert_true(isnan(run_loss(&h, 0, 0.7)) && isnan(run_loss(&h, 1, 0.7)));
        loss_scratch_free(h.scratch);
        for (int k = 0; k < 5; k++)
            free_tensor(all[k]);
        free(h.logits);
        free(h.distance);
    }
}

static void test_tanh(void **state)
{
    (void)state;
    for (int i = -20000; i <= 20000; i++) {
        float x = (float)i * 1e-3f;
        assert_true(fabs((double)k_tanh(x) - tanh((double)x)) < 1.5e-7);
    }
    assert_true(k_tanh(0) == 0 && k_tanh(1e30f) == 1 && k_tanh(-INFINITY) == -1 && isnan(k_tanh(NAN)));
}

/* Gradients by maps go back through softmax and tanh. */
static void test_maps_back(void **state)
{
    (void)state;
    for (int classes = 2; classes <= 4; classes++) {
        struct tensor x, map, g, dx, *all[] = {&x, &map, &g, &dx};
        for (int k = 0; k < 4; k++)
            *all[k] = new_tensor(1, POINTS, classes, VALUE_F32);
        fill(&x, 75, 2.0f);
        fill(&g, 76, 1.0f);
        const float *z = x.data, *slope = g.data, *got = dx.data;
        distances(dev, &map, &x);
        distances_grad(dev, &dx, &map, &g);
        for (int i = 0; i < POINTS * classes; i++) {
            double t = tanh((double)z[i]);
            assert_true(fabs((double)((float *)map.data)[i] - t) < 2e-7);
            assert_true(fabs((double)got[i] - (double)slope[i] * (1 - t * t)) < 1e-6);
        }
        soft_labels(dev, &map, &x, 1.0, SOFT_SET);
        memset(dx.data, 0, (size_t)tensor_count(&dx) * sizeof(float));
        soft_labels_grad(dev, &dx, &map, &g);
        for (int v = 0; v < POINTS; v++) {
            double p[16], logits[16], mean = 0;
            for (int c = 0; c < classes; c++)
                logits[c] = (double)z[v * classes + c];
            naive_softmax(p, logits, classes);
            for (int c = 0; c < classes; c++)
                mean += p[c] * (double)slope[v * classes + c];
            for (int c = 0; c < classes; c++)
                assert_true(fabs((double)got[v * classes + c] -
                                 p[c] * ((double)slope[v * classes + c] - mean)) < 1e-6);
        }
        for (int k = 0; k < 4; k++)
            free_tensor(all[k]);
    }
}

/* ---- rows that belong together ---------------------------------------------------------------- */

enum { ROWS = 37, DIMS = 11 };

static double naive_pairs(const double *anchor, const double *other, double tau)
{
    double value = 0;
    for (int i = 0; i < ROWS; i++) {
        double sum = 0, own = 0;
        for (int j = 0; j < ROWS; j++) {
            double dot = 0, a = 0, b = 0;
            for (int d = 0; d < DIMS; d++) {
                dot += anchor[i * DIMS + d] * other[j * DIMS + d];
                a += anchor[i * DIMS + d] * anchor[i * DIMS + d];
                b += other[j * DIMS + d] * other[j * DIMS + d];
            }
            sum += exp(dot / sqrt(a * b) / tau);
            own = i == j ? dot / sqrt(a * b) / tau : own;
        }
        value += (log(sum) - own) / ROWS;
    }
    return value;
}

static void check_pairs(struct loss_scratch *s, struct pairs *p, enum pairs_anchor anchor, double tau)
{
    struct tensor x = new_tensor(1, ROWS, DIMS, VALUE_F32), y = new_tensor(1, ROWS, DIMS, VALUE_F32);
    struct tensor dx = new_tensor(1, ROWS, DIMS, VALUE_F32);
    const double h = 1e-5;
    double value, largest = 0, worst = 0;
    fill(&x, 77, 2.0f);
    fill(&y, 78, 1.0f);
    double *own = doubles(&x), *other = doubles(&y), **a = anchor == PAIRS_OWN ? &own : &other;
    double **b = anchor == PAIRS_OWN ? &other : &own;
    ask_pairs(s, p, x.data, y.data, anchor, tau, 0.7, dx.data, &value);
    loss_settle(s);
    assert_true(fabs(value - naive_pairs(*a, *b, tau)) < 1e-6);
    for (int i = 0; i < ROWS * DIMS; i++) {
        double old = own[i];
        own[i] = old + h;
        double up = naive_pairs(*a, *b, tau);
        own[i] = old - h;
        double slope = 0.7 * (up - naive_pairs(*a, *b, tau)) / (2 * h);
        own[i] = old;
        largest = fmax(largest, fabs(slope));
        worst = fmax(worst, fabs(slope - (double)((float *)dx.data)[i]));
    }
    assert_true(largest > 1e-4 && worst < 1e-5 * largest);
    memset(x.data, 0, DIMS * sizeof(float)); /* a row of nothing has no direction, but no NaN either */
    ask_pairs(s, p, x.data, y.data, anchor, tau, 0.7, dx.data, &value);
    loss_settle(s);
    assert_true(isfinite(value));
    free_tensor(&x), free_tensor(&y), free_tensor(&dx);
    free(own), free(other);
}

static void test_pairs(void **state)
{
    struct loss_options o = {.classes = 2};
    struct loss_scratch *s;
    struct pairs *p;
    struct error e;
    (void)state;
    assert_ok(loss_scratch_new(&s, dev, &o, &e), e);
    assert_ok(pairs_new(&p, dev, ROWS, DIMS, &e), e);
    check_pairs(s, p, PAIRS_OWN, 1.0);
    check_pairs(s, p, PAIRS_OTHERS, 0.5);
    pairs_free(p);
    loss_scratch_free(s);
}

/* ---- rows that are like or unlike each other --------------------------------------------------- */

static double cosine(const double *a, const double *b)
{
    double dot = 0, x = 0, y = 0;
    for (int d = 0; d < DIMS; d++) {
        dot += a[d] * b[d];
        x += a[d] * a[d];
        y += b[d] * b[d];
    }
    return dot / sqrt(x * y);
}

static double naive_relations(const double *rows, const uint8_t *kind, double tau)
{
    double value = 0;
    for (int i = 0; i < ROWS; i++) {
        double others = 0;
        for (int j = 0; j < ROWS; j++)
            if (kind[i * ROWS + j] == RELATION_UNLIKE)
                others += exp(cosine(rows + i * DIMS, rows + j * DIMS) / tau);
        for (int j = 0; j < ROWS; j++) {
            double own = exp(cosine(rows + i * DIMS, rows + j * DIMS) / tau);
            if (kind[i * ROWS + j] == RELATION_LIKE)
                value -= log(own / (own + others)) / ROWS;
        }
    }
    return value;
}

/* A table that is not symmetric; some rows are alike with many, some with none. */
static void test_relations(void **state)
{
    struct tensor x = new_tensor(1, ROWS, DIMS, VALUE_F32), dx = new_tensor(1, ROWS, DIMS, VALUE_F32);
    struct loss_options o = {.classes = 2};
    static uint8_t kind[ROWS * ROWS];
    struct loss_scratch *s;
    struct relations *r;
    struct error e;
    const double h = 1e-5, tau = 0.3;
    double value, largest = 0, worst = 0;
    (void)state;
    for (int i = 0; i < ROWS * ROWS; i++)
        kind[i] = (uint8_t)(i / ROWS == i % ROWS || i / ROWS == 7 ? 0 : i * 7 % 11 % 3);
    fill(&x, 79, 2.0f);
    double *rows = doubles(&x);
    assert_ok(loss_scratch_new(&s, dev, &o, &e), e);
    assert_ok(relations_new(&r, dev, kind, ROWS, DIMS, &e), e);
    ask_relations(s, r, x.data, tau, 0.7, dx.data, &value);
    loss_settle(s);
    assert_true(value > 1 && fabs(value / naive_relations(rows, kind, tau) - 1) < 1e-6);
    for (int i = 0; i < ROWS * DIMS; i++) {
        double old = rows[i];
        rows[i] = old + h;
        double up = naive_relations(rows, kind, tau);
        rows[i] = old - h;
        double slope = 0.7 * (up - naive_relations(rows, kind, tau)) / (2 * h);
        rows[i] = old;
        largest = fmax(largest, fabs(slope));
        worst = fmax(worst, fabs(slope - (double)((float *)dx.data)[i]));
    }
    assert_true(largest > 1e-3 && worst < 1e-5 * largest);
    memset(x.data, 0, DIMS * sizeof(float));
    ask_relations(s, r, x.data, 0.1, 0.7, dx.data, &value);
    loss_settle(s);
    assert_true(isfinite(value));
    relations_free(r);
    loss_scratch_free(s);
    free_tensor(&x), free_tensor(&dx);
    free(rows);
}

/* ---- the network ------------------------------------------------------------------------------- */

/* Class 0 has the logit 0, whatever comes in, and what is sent to it stays outside. */
static void test_open_output(void **state)
{
    struct net_definition def = {.define = sdf_define, .channels = 1, .classes = 3, .filters = 2};
    struct net_shape shape = {.n = 2, .d = 16, .h = 16, .w = 16, .use = NET_TRAINING};
    struct net_pass pass = {.mode = NET_TRAIN, .seed = 1};
    struct tensor image = {.type = VALUE_F32, .n = 2, .d = 16, .h = 16, .w = 16, .c = 1};
    struct params *p;
    struct net *net;
    struct error e;
    (void)state;
    image.data = dev->ops->alloc(dev, 2 * 4096 * sizeof(float));
    fill(&image, 74, 1.0f);
    assert_ok(params_new(&p, dev, &def, PARAMS_WITH_GRAD, &e), e);
    params_init(p, 3, 3);
    assert_ok(net_new(&net, p, &def, &shape, &e), e);
    net_forward(net, &image, &pass);
    struct tensor z = net_value(net, "logits"), dz = net_grad(net, "logits");
    struct tensor raw = net_value(net, "distance");
    assert_true(z.c == 3 && raw.c == 2 && dz.c == 3);
    double size = 0, sum[3] = {0};
    float *grad = dz.data, *value = z.data;
    for (int i = 0; i < 3 * 2 * 4096; i++) {
        assert_true(i % 3 || value[i] == 0);
        size += fabs((double)value[i]);
        grad[i] = (float)(1 + i % 3 + i % 7) * 1e-3f;
        sum[i % 3] += (double)grad[i];
    }
    assert_true(size > 100);
    net_backward(net);
    const struct param *bias = params_find(p, "out_conv2.bias"), *other = params_find(p, "out_conv.bias");
    assert_int_equal(bias->count, 2);
    for (int c = 0; c < 2; c++)
        assert_true(fabs((double)p->grad[bias->offset + c] / sum[c + 1] - 1) < 1e-5);
    /* distances were not asked for */
    assert_true(p->touched[bias - p->list] && !p->touched[other - p->list]);
    net_free(net);
    params_free(p);
    free_tensor(&image);
}

/* What is frozen gets no gradient; the rest gets what it would have got. */
static void test_frozen_encoder(void **state)
{
    struct net_definition all = {.define = chaitanya_define,
                                 .channels = 1,
                                 .classes = 2,
                                 .filters = 2,
                                 .dropout = NET_DROPOUT_NONE},
                          local = all;
    struct net_shape shape = {.n = 2, .d = 16, .h = 16, .w = 32, .use = NET_TRAINING};
    struct net_pass pass = {.mode = NET_TRAIN, .seed = 1};
    struct tensor image = {.type = VALUE_F32, .n = 2, .d = 16, .h = 16, .w = 32, .c = 1};
    struct params *p;
    struct net *part, *whole;
    struct error e;
    (void)state;
    local.define = chaitanya_local_define;
    image.data = dev->ops->alloc(dev, 2 * 8192 * sizeof(float));
    fill(&image, 75, 1.0f);
    assert_ok(params_new(&p, dev, &all, PARAMS_WITH_GRAD, &e), e);
    params_init(p, 3, 3);
    assert_ok(net_new(&part, p, &local, &shape, &e), e);
    assert_ok(net_new(&whole, p, &all, &shape, &e), e);
    float *kept = malloc((size_t)p->trainable_count * sizeof *kept);
    unsigned char *touched = malloc((size_t)p->n_trainable);
    net_forward(part, &image, &pass);
    struct tensor d = net_grad(part, "regions");
    assert_true(d.c == 16 && d.d == 4 && d.w == 8);
    fill(&d, 76, 1.0f);
    net_backward(part);
    memcpy(kept, p->grad, (size_t)p->trainable_count * sizeof *kept);
    memcpy(touched, p->touched, (size_t)p->n_trainable);
    params_zero_grad(p);
    net_forward(whole, &image, &pass);
    d = net_grad(whole, "regions");
    fill(&d, 76, 1.0f);
    net_backward(whole);
    int frozen = 0, trained = 0, encoder = 1;
    for (int k = 0; k < p->n_trainable; k++) {
        const struct param *q = &p->list[k];
        encoder = encoder && strncmp(q->name, "block_five_up", 13) != 0;
        assert_int_equal(touched[k], p->touched[k] && !encoder);
        frozen += p->touched[k] && encoder;
        trained += touched[k];
        double largest = 0, worst = 0; /* sums are made in another order */
        for (int64_t i = q->offset; touched[k] && i < q->offset + q->count; i++) {
            largest = fmax(largest, fabs((double)p->grad[i]));
            worst = fmax(worst, fabs((double)p->grad[i] - (double)kept[i]));
        }
        assert_true(worst <= 1e-4 * largest);
    }
    assert_true(frozen == 16 * 4 && trained == 8 * 4 + 8);
    free(kept), free(touched);
    net_free(part);
    net_free(whole);
    params_free(p);
    free_tensor(&image);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_maps),           cmocka_unit_test(test_cube),
        cmocka_unit_test(test_losses),         cmocka_unit_test(test_tanh),
        cmocka_unit_test(test_open_output),    cmocka_unit_test(test_maps_back),
        cmocka_unit_test(test_pairs),          cmocka_unit_test(test_relations),
        cmocka_unit_test(test_frozen_encoder),
    };
    return cmocka_run_group_tests(tests, open_shared, close_shared);
}
