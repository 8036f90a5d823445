/* test_optim.c - updates against plain loops in double; schedules and ramps against their
 * definitions; the same bits for any number of threads and every level of the processor.
 */
#include <math.h>

#include "device/isa/levels.h"
#include "method/parts.h"
#include "net/net.h"
#include "test.h"
#include "train/optim.h"

enum { STEPS = 5 };

/* Three layers without norm, so that runs of touched parameters can be made by hand. */
static void define(struct builder *b, const struct net_definition *self)
{
    int x = net_input(b, self->channels);
    x = net_conv(b, x, CONV_3, 7, "a");
    x = net_conv(b, net_relu(b, x), CONV_3, 40, "b");
    net_output(b, net_conv(b, net_relu(b, x), CONV_1, self->classes, "c"), "logits");
}
static const struct net_definition def = {.define = define, .channels = 3, .classes = 2, .filters = 1};

static struct device *open_device(int threads, const char *level)
{
    struct device *dev;
    struct error e;
    struct device_options o = {.name = "cpu", .precision = PRECISION_F32, .threads = threads, .level = level};
    assert_ok(device_open(&dev, &o, &e), e);
    return dev;
}

static struct params *make_params(struct device *dev, uint64_t salt)
{
    struct params *p;
    struct error e;
    assert_ok(params_new(&p, dev, &def, PARAMS_WITH_GRAD, &e), e);
    params_init(p, 5, salt);
    return p;
}

/* A gradient that is a function of step and place; parameters whose bit is 0 are not touched. */
static float gradient_at(int step, int64_t i)
{
    return sinf((float)i * 0.37f + (float)step) * (i % 11 == 0 ? 3.0f : 0.1f);
}
static void set_gradients(struct params *p, int step, unsigned touched)
{
    for (int64_t i = 0; i < p->trainable_count; i++)
        p->grad[i] = gradient_at(step, i);
    for (int k = 0; k < p->n_trainable; k++)
        p->touched[k] = touched >> k & 1;
}

static const unsigned touched_at[STEPS] = {0x3F, 0x3F, 0x2D, 0x00, 0x1E}; /* six parameters */

/* ---- the oracle ------------------------------------------------------------------------------ */

struct oracle {
    double *w, *m, *v;
};
static void oracle_step(struct oracle *o, const struct params *p, const struct optim_options *opt, int step,
                        double rate, double factor)
{
    for (int k = 0; k < p->n_trainable; k++)
        for (int64_t i = p->list[k].offset; i < p->list[k].offset + p->list[k].count; i++) {
            if (!(touched_at[step] >> k & 1))
                continue;
            double d = factor * (double)gradient_at(step, i) + opt->weight_decay * o->w[i];
            if (opt->kind == OPTIM_SGD) {
                o->m[i] = opt->momentum * o->m[i] + d;
                o->w[i] -= rate * o->m[i];
                continue;
            }
            o->m[i] = opt->momentum * o->m[i] + (1 - opt->momentum) * d;
            o->v[i] = opt->beta2 * o->v[i] + (1 - opt->beta2) * d * d;
            double m = o->m[i] / (1 - pow(opt->momentum, step + 1));
            double v = o->v[i] / (1 - pow(opt->beta2, step + 1));
            o->w[i] -= rate * m / (sqrt(v) + opt->epsilon);
        }
}

static void updates_are_those_of_the_formula(const struct optim_options *o)
{
    struct device *dev = open_device(2, NULL);
    struct params *p = make_params(dev, 0);
    struct optim *m;
    struct error e;
    size_t n = (size_t)p->trainable_count;
    struct oracle want = {calloc(n, sizeof(double)), calloc(n, sizeof(double)), calloc(n, sizeof(double))};
    assert_ok(optim_new(&m, p, o, &e), e);
    for (size_t i = 0; i < n; i++)
        want.w[i] = (double)p->value[i];
    for (int step = 0; step < STEPS; step++) {
        uint64_t version = p->version;
        set_gradients(p, step, touched_at[step]);
        optim_step(m, 0.01 / (step + 1), 0.5);
        oracle_step(&want, p, o, step, 0.01 / (step + 1), 0.5);
        assert_true(p->version > version);
        for (int k = 0; k < p->n_trainable; k++)
            assert_int_equal(p->touched[k], 0);
    }
    for (size_t i = 0; i < n; i++)
        if (fabs((double)p->value[i] - want.w[i]) > 2e-6 * (1 + fabs(want.w[i])))
            test_fail("weight %zu is %.9g, expected %.9g", i, (double)p->value[i], want.w[i]);
    assert_int_equal(m->updates, STEPS);
    optim_free(m);
    params_free(p);
    free(want.w), free(want.m), free(want.v);
    device_close(dev);
}

static void sgd(void **state)
{
    (void)state;
    struct optim_options o = {.kind = OPTIM_SGD, .momentum = 0.9, .weight_decay = 1e-2};
    updates_are_those_of_the_formula(&o);
}

static void adam(void **state)
{
    (void)state;
    struct optim_options o = {
        .kind = OPTIM_ADAM, .momentum = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .weight_decay = 1e-2};
    updates_are_those_of_the_formula(&o);
}

/* ---- norm and clipping ----------------------------------------------------------------------- */

static void norm_counts_what_was_touched(void **state)
{
    (void)state;
    struct device *dev = open_device(2, NULL);
    struct params *p = make_params(dev, 0);
    double sum = 0;
    set_gradients(p, 1, 0x35);
    for (int k = 0; k < p->n_trainable; k++)
        for (int64_t i = 0; i < p->list[k].count && (0x35 >> k & 1); i++)
            sum += pow((double)gradient_at(1, p->list[k].offset + i), 2);
    assert_true(fabs(optim_grad_norm(p) - sqrt(sum)) < 1e-6 * sqrt(sum));
    p->grad[p->list[1].offset] = NAN; /* not touched */
    assert_true(isfinite(optim_grad_norm(p)));
    p->grad[p->list[5].offset] = NAN; /* touched */
    assert_true(!isfinite(optim_grad_norm(p)));
    p->grad[p->list[5].offset] = -INFINITY;
    assert_true(!isfinite(optim_grad_norm(p)));
    params_zero_grad(p);
    assert_true(optim_grad_norm(p) == 0.0);
    params_free(p);
    device_close(dev);
}

static void clipping(void **state)
{
    (void)state;
    assert_true(optim_clip(3.0, 0.0) == 1.0);
    assert_true(optim_clip(3.0, 3.0) == 1.0);
    assert_true(fabs(optim_clip(1e6, 2.0) * 1e6 - 2.0) < 1e-5);
    assert_true(optim_clip(1e30, 1.0) > 0.0);
}

/* ---- same bits ------------------------------------------------------------------------------- */

static uint64_t train_a_little(int threads, const char *level)
{
    struct device *dev = open_device(threads, level);
    struct params *p = make_params(dev, 0), *teacher = make_params(dev, 1);
    struct optim *m;
    struct error e;
    struct optim_options o = {.kind = OPTIM_SGD, .momentum = 0.9, .weight_decay = 1e-4};
    assert_ok(optim_new(&m, p, &o, &e), e);
    uint64_t h = 0;
    for (int step = 0; step < STEPS; step++) {
        set_gradients(p, step, touched_at[step]);
        double norm = optim_grad_norm(p);
        optim_step(m, 0.01, optim_clip(norm, 1.0));
        ema_update(teacher, p, step, 0.99);
        h = hash_bytes(&norm, sizeof norm, h);
    }
    h = hash_bytes(p->value, (size_t)p->count * sizeof(float), h);
    h = hash_bytes(teacher->value, (size_t)p->count * sizeof(float), h);
    optim_free(m);
    params_free(p);
    params_free(teacher);
    device_close(dev);
    return h;
}

static void same_bits_for_threads_and_levels(void **state)
{
    (void)state;
    uint64_t one = train_a_little(1, NULL);
    for (int threads = 2; threads <= 4; threads++)
        assert_true(train_a_little(threads, NULL) == one);
    for (int i = 0; i < ISA_LEVELS; i++)
        if (isa_level(isa_names[i]))
            assert_true(train_a_little(2, isa_names[i]) == one);
}

/* ---- averages -------------------------------------------------------------------------------- */

static void averages(void **state)
{
    (void)state;
    struct device *dev = open_device(1, NULL);
    struct params *t = make_params(dev, 0), *s = make_params(dev, 1);
    size_t bytes = (size_t)t->trainable_count * sizeof(float);
    ema_update(t, s, 0, 0.99); /* first: a copy */
    assert_memory_equal(t->value, s->value, bytes);
    params_init(t, 5, 0);
    float before = t->value[17];
    ema_update(t, s, 1, 0.99);
    assert_true(fabsf(t->value[17] - 0.5f * (before + s->value[17])) < 1e-7f);
    params_init(t, 5, 0);
    ema_update(t, s, 100000, 0.99);
    assert_true(fabsf(t->value[17] - (0.99f * before + 0.01f * s->value[17])) < 1e-7f);
    params_free(t);
    params_free(s);
    device_close(dev);
}

/* ---- packed along -------------------------------------------------------------------------------- */

/* Layers with and without whole runs of weights, every kind of convolution. */
static void define_wide(struct builder *b, const struct net_definition *self)
{
    int x = net_input(b, self->channels);
    x = net_conv(b, x, CONV_3, 32, "a");
    x = net_conv(b, net_relu(b, x), CONV_3, 64, "b");
    x = net_conv(b, net_relu(b, x), CONV_DOWN, 96, "c");
    x = net_conv(b, net_relu(b, x), CONV_3, 32, "d");
    x = net_conv(b, net_relu(b, x), CONV_UP, 32, "e");
    net_output(b, net_conv(b, net_relu(b, x), CONV_1, self->classes, "f"), "logits");
}

/* Weights after some steps and logits and gradients made with them; `lazy`: packed when they are wanted. */
static uint64_t train_packed(enum precision precision, int threads, int lazy, enum optim_kind kind)
{
    static const struct net_definition wide = {
        .define = define_wide, .channels = 2, .classes = 3, .filters = 1};
    struct net_shape shape = {.n = 1, .d = 4, .h = 6, .w = 8, .use = NET_TRAINING};
    struct net_pass pass = {.mode = NET_TRAIN};
    struct device_options o = {.name = "cpu", .precision = precision, .threads = threads};
    struct optim_options how = {
        .kind = kind, .momentum = 0.9, .weight_decay = 1e-4, .beta2 = 0.999, .epsilon = 1e-8};
    struct device *dev;
    struct params *p[2]; /* student, teacher */
    struct net *n[2];
    struct optim *m;
    struct error e;
    assert_ok(device_open(&dev, &o, &e), e);
    for (int i = 0; i < 2; i++) {
        assert_ok(params_new(&p[i], dev, &wide, PARAMS_WITH_GRAD, &e), e);
        params_init(p[i], 5, (uint64_t)i);
        assert_ok(net_new(&n[i], p[i], &wide, &shape, &e), e);
        if (lazy)
            p[i]->packing = NULL;
    }
    assert_ok(optim_new(&m, p[0], &how, &e), e);
    struct tensor image = {.type = VALUE_F32, .n = 1, .d = 4, .h = 6, .w = 8, .c = 2};
    image.data = dev->ops->alloc(dev, (size_t)tensor_count(&image) * sizeof(float));
    uint64_t h = 0;
    for (int step = 0; step < STEPS; step++) {
        for (int64_t i = 0; i < tensor_count(&image); i++)
            ((float *)image.data)[i] = gradient_at(step, i);
        for (int i = 0; i < 2; i++) {
            net_forward(n[i], &image, &pass);
            struct tensor y = net_value(n[i], "logits"), dy = net_grad(n[i], "logits");
            h = hash_bytes(y.data, (size_t)tensor_count(&y) * sizeof(float), h);
            memcpy(dy.data, y.data, (size_t)tensor_count(&y) * sizeof(float));
            params_zero_grad(p[i]);
            net_backward(n[i]);
        }
        for (int k = 2 * step; k < 3 * step; k++) /* runs, the second with a gap in the middle of a layer */
            p[0]->touched[k] = 0;
        optim_step(m, 0.001, 1.0);
        ema_update(p[1], p[0], step + 1, 0.9);
        assert_int_equal(n[0] && p[0]->packing && p[0]->packing->version == p[0]->version, !lazy);
    }
    for (int i = 0; i < 2; i++) {
        h = hash_bytes(p[i]->value, (size_t)p[i]->count * sizeof(float), h);
        h = hash_bytes(p[i]->grad, (size_t)p[i]->trainable_count * sizeof(float), h);
    }
    optim_free(m);
    for (int i = 0; i < 2; i++) {
        net_free(n[i]);
        params_free(p[i]);
    }
    dev->ops->free(dev, image.data);
    device_close(dev);
    return h;
}

static void packed_along(void **state)
{
    (void)state;
    for (int bf16 = 0; bf16 < (isa_level(NULL)->bf16 ? 2 : 1); bf16++)
        for (int k = 0; k < 2; k++) {
            enum precision precision = bf16 ? PRECISION_BF16 : PRECISION_F32;
            enum optim_kind kind = k ? OPTIM_ADAM : OPTIM_SGD;
            uint64_t lazy = train_packed(precision, 1, 1, kind);
            assert_true(train_packed(precision, 1, 0, kind) == lazy);
            assert_true(train_packed(precision, 3, 0, kind) == lazy);
        }
}

/* ---- schedules and ramps [M14] --------------------------------------------------------------- */

static void rates(void **state)
{
    (void)state;
    struct optim_options o = {.schedule = SCHEDULE_STEP, .lr = 0.01};
    static const struct {
        double t, rate;
    } want[] = {{0, 1e-2},    {2499, 1e-2}, {2500, 1e-3}, {4999, 1e-3},
                {5000, 1e-4}, {5999, 1e-4}, {7000, 1e-4}};
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++)
        assert_true(fabs(optim_rate(&o, want[i].t, 6000) - want[i].rate) < 1e-15);
    o.schedule = SCHEDULE_POLY;
    assert_true(optim_rate(&o, 0, 100) == 0.01);
    assert_true(fabs(optim_rate(&o, 50, 100) - 0.01 * pow(0.5, 0.9)) < 1e-15);
    assert_true(optim_rate(&o, 100, 100) == 0.0 && optim_rate(&o, 200, 100) == 0.0);
    o.schedule = SCHEDULE_CONSTANT;
    assert_true(optim_rate(&o, 99, 100) == 0.01);
}

static void ramps(void **state)
{
    (void)state;
    double low = exp(-5.0);
    assert_true(ramp_sigmoid(3, 0) == 1.0 && ramp_sigmoid(-1, 4) == low && ramp_sigmoid(9, 4) == 1.0);
    assert_true(fabs(ramp_sigmoid(2, 4) - exp(-1.25)) < 1e-15);
    assert_true(ramp_weight(0.1, 0, 6000, 0) == 0.1 * low);
    assert_true(ramp_weight(0.1, 149, 6000, 0) == 0.1 * low); /* stairs of 150 steps */
    assert_true(fabs(ramp_weight(0.1, 3000, 6000, 0) - 0.1 * exp(-1.25)) < 1e-15);
    assert_true(ramp_weight(0.1, 6000, 6000, 0) == 0.1 && ramp_weight(0.1, 9999, 6000, 0) == 0.1);
    assert_true(ramp_weight(0.1, 0, 10, 0) == 0.1 * low); /* R is at least 1 */
    assert_true(fabs(ramp_weight(0.1, 5, 10, 1) - 0.1 * exp(-1.25)) < 1e-15);
    assert_true(ramp_weight(0.1, 20, 10, 1) == 0.1);
}

/* MC-Net's released training: sigmoid_rampup(iter_num // 150, 40.0) of 15,000 iterations, iter_num from 1 on.
 * The weights are those of its function in NumPy. */
static void rampup_length(void **state)
{
    (void)state;
    static const struct {
        int64_t iteration;
        double weight;
    } want[] = {{1, 0.006737946999085467},
                {149, 0.006737946999085467},
                {150, 0.008624700856245927},
                {1500, 0.060054667895307945},
                {3000, 0.2865047968601901},
                {4649, 0.7316156289466418},
                {5850, 0.9968798777302081},
                {5999, 0.9968798777302081},
                {6000, 1.0},
                {15000, 1.0}};
    struct settings set = {.consistency = 1.0, .ramp = RAMP_STEPS, .rampup_length = 6000};
    struct trainer t = {.set = &set, .nominal = 15000};
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++)
        assert_true(fabs(semi_weight_at(&t, (double)want[i].iteration) - want[i].weight) < 1e-15);
    for (int i = 1; i < 15000; i++) { /* 40 stairs, then level */
        t.position = i;
        assert_true((semi_weight(&t) > semi_weight_at(&t, i - 1)) == (i % 150 == 0 && i <= 6000));
    }
    set.rampup_length = 0; /* the steps of the phase */
    assert_true(fabs(semi_weight_at(&t, 7500) - exp(-1.25)) < 1e-15 && semi_weight_at(&t, 14999) < 1.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sgd),
        cmocka_unit_test(adam),
        cmocka_unit_test(norm_counts_what_was_touched),
        cmocka_unit_test(clipping),
        cmocka_unit_test(same_bits_for_threads_and_levels),
        cmocka_unit_test(averages),
        cmocka_unit_test(packed_along),
        cmocka_unit_test(rates),
        cmocka_unit_test(ramps),
        cmocka_unit_test(rampup_length),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
