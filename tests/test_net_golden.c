/* test_net_golden.c - values and gradients of whole networks: against PyTorch (golden/net.h, made
 * by tools/golden_net.py) and against a reference in double (net_reference.h) by finite
 * differences.
 */
#include "golden/net.h"
#include "net_reference.h"

/* ---- PyTorch --------------------------------------------------------------------------------- */

/* Squared error of the kept values, relative to the mean square of the whole tensor. */
static double golden_error(const struct golden_tensor *g, const float *v)
{
    double error = 0, mean_square = g->norm * g->norm / (double)g->count;
    for (int i = 0; i < g->kept; i++)
        error += pow((double)v[i * g->stride] - g->at[i], 2);
    return mean_square > 0 ? error / g->kept / mean_square : error;
}

struct tally {           /* of one kind of tensor */
    double error, total; /* squares, over all tensors together */
    double worst;        /* tensor by itself */
    const char *where;
    int n;
};

static void tally_add(struct tally *t, const struct golden_tensor *g, const float *v, int64_t count)
{
    double error = golden_error(g, v), off = norm_of(v, count) / g->norm - 1;
    assert_int_equal(count, g->count);
    error = off * off > error ? off * off : error;
    if (t->n++ == 0 || !(error <= t->worst)) {
        t->worst = error;
        t->where = g->name;
    }
    t->error += error * g->norm * g->norm;
    t->total += g->norm * g->norm;
}

static void tally_check(const struct tally *t, const char *what, const char *precision, double limit)
{
    double error = t->error / t->total;
    print_message("%s %-10s %3d tensors: NMSE %.1e, worst tensor %.1e (%s)\n", precision, what, t->n, error,
                  t->worst, t->where);
    assert_true(t->n > 0 && error <= limit && t->worst <= 20 * limit);
}

enum { PROJECTED = 150, PROJECT_STRIDE = 97 };

/* The projection head as a second network on rows of "features", as stage 1 uses it. */
struct head {
    struct net *net;
    struct tensor rows;
};

static void head_forward(struct bench *b, struct head *h, enum net_mode mode)
{
    struct tensor f = net_value(b->net, "features");
    struct net_pass pass = {.mode = mode, .seed = SEED, .step = STEP, .stream = RNG_DROPOUT};
    float *all = fetch_tensor(b->dev, f), *rows = malloc(PROJECTED * 16 * sizeof *rows);
    for (int i = 0; i < PROJECTED; i++)
        memcpy(rows + i * 16, all + (int64_t)i * PROJECT_STRIDE * 16, 16 * sizeof *rows);
    store(b->dev, h->rows.data, rows, PROJECTED * 16);
    net_forward(h->net, &h->rows, &pass);
    free(all);
    free(rows);
}

static void head_backward(struct bench *b, struct head *h)
{
    struct tensor f = net_grad(b->net, "features");
    net_backward(h->net);
    struct tensor d = net_input_grad(h->net);
    assert_int_equal(d.w, PROJECTED);
    float *all = fetch_tensor(b->dev, f), *rows = fetch_tensor(b->dev, d);
    for (int i = 0; i < PROJECTED * 16; i++)
        all[(int64_t)(i / 16) * PROJECT_STRIDE * 16 + i % 16] += rows[i];
    store(b->dev, f.data, all, tensor_count(&f));
    free(all);
    free(rows);
}

static void check_values(struct bench *b, struct head *h, const struct golden_tensor *g, const char *name,
                         struct tally *t)
{
    struct tensor v = strcmp(name, "projection") ? net_value(b->net, name) : net_value(h->net, name);
    float *host = fetch_tensor(b->dev, v);
    tally_add(t, g, host, tensor_count(&v));
    free(host);
}

static void check_stored(struct bench *b, const struct golden_tensor *g, const char *name, const float *from,
                         struct tally *t)
{
    const struct param *p = params_find(b->params, name);
    struct error e;
    assert_non_null(p);
    float *host = malloc((size_t)p->count * sizeof *host);
    assert_ok(param_download(host, b->params, from, (int)(p - b->params->list), &e), e);
    tally_add(t, g, host, p->count);
    free(host);
}

/* Everything PyTorch says about one case; limits for forward values and for gradients. */
static void check_golden(const struct golden_tensor *g, int n, struct bench *b, struct head *h,
                         double forward_limit, double grad_limit)
{
    struct tally train = {0}, grad = {0}, buffer = {0}, eval = {0};
    const char *precision = precision_name(b->dev->precision);
    train_forward(b);
    if (h->net) {
        head_forward(b, h, NET_TRAIN);
        struct tensor t = net_grad(h->net, "projection");
        fill_grad(b->dev, &t, b->net->graph.n_outputs);
    }
    for (int i = 0; i < n; i++)
        if (!strncmp(g[i].name, "train ", 6))
            check_values(b, h, &g[i], g[i].name + 6, &train);
    if (h->net)
        head_backward(b, h);
    net_backward(b->net);
    for (int i = 0; i < n; i++) {
        if (!strncmp(g[i].name, "grad ", 5))
            check_stored(b, &g[i], g[i].name + 5, b->params->grad, &grad);
        if (!strncmp(g[i].name, "buffer ", 7))
            check_stored(b, &g[i], g[i].name + 7, b->params->value, &buffer);
        if (!strcmp(g[i].name, "input grad")) {
            struct tensor d = net_input_grad(b->net);
            float *host = fetch_tensor(b->dev, d);
            tally_add(&grad, &g[i], host, tensor_count(&d));
            free(host);
        }
    }
    net_forward(b->net, &b->image, &eval_pass);
    if (h->net)
        head_forward(b, h, NET_EVAL);
    for (int i = 0; i < n; i++)
        if (!strncmp(g[i].name, "eval ", 5))
            check_values(b, h, &g[i], g[i].name + 5, &eval);
    tally_check(&train, "forward", precision, forward_limit);
    tally_check(&buffer, "statistics", precision, forward_limit);
    tally_check(&eval, "eval", precision, forward_limit);
    tally_check(&grad, "gradients", precision, grad_limit);
    assert_int_equal(b->params->batches, 1);
}

/* All betas, see golden_net.py. */
static void set_betas(struct bench *b, float beta)
{
    for (int k = 0; k < b->params->n; k++)
        for (int64_t i = 0; b->params->list[k].kind == PARAM_BETA && i < b->params->list[k].count; i++)
            store(b->dev, b->params->value + b->params->list[k].offset + i, &beta, 1);
}

static void golden_vnet_case(enum precision precision, int steady, double forward_limit, double grad_limit)
{
    struct net_definition def = {vnet_define, 2, 3, 4, 0, NET_DROPOUT_NONE, 0};
    struct net_shape s = {2, 32, 32, 32, NET_TRAINING, 1};
    struct device *dev = open_device(precision, 2);
    struct bench b;
    struct head h = {0};
    if (!dev)
        skip();
    bench_open(&b, dev, &def, &s);
    params_init(b.params, SEED, steady ? SALT : SALT_ZERO);
    set_betas(&b, steady ? 3.0f : 0.0f);
    if (steady)
        check_golden(golden_vnet_steady, COUNT(golden_vnet_steady), &b, &h, forward_limit, grad_limit);
    else
        check_golden(golden_vnet, COUNT(golden_vnet), &b, &h, forward_limit, grad_limit);
    bench_close(&b);
    device_close(dev);
}

/* Three decoders: skips that are part of three adds, both ways of making larger. */
static void golden_mcnet_case(enum precision precision, double forward_limit, double grad_limit)
{
    struct net_definition def = {mcnet_plus_define, 1, 3, 4, 0, NET_DROPOUT_BOTH, 0};
    struct net_shape s = {2, 32, 32, 32, NET_TRAINING, 1};
    struct device *dev = open_device(precision, 2);
    struct bench b;
    struct head h = {0};
    if (!dev)
        skip();
    bench_open(&b, dev, &def, &s);
    set_betas(&b, 3.0f);
    check_golden(golden_mcnet_steady, COUNT(golden_mcnet_steady), &b, &h, forward_limit, grad_limit);
    bench_close(&b);
    device_close(dev);
}

static void golden_aua_case(enum precision precision, double forward_limit, double grad_limit)
{
    struct net_definition def = {aua_define, 1, 2, 4, 3, NET_DROPOUT_BOTH, 0}, project = def;
    struct net_shape s = {2, 32, 32, 32, NET_TRAINING, 1}, points = {1, 1, 1, PROJECTED, NET_TRAINING, 1};
    struct device *dev = open_device(precision, 2);
    struct bench b;
    struct head h = {0};
    struct error e = {0};
    if (!dev)
        skip();
    project.define = projection_define;
    bench_open(&b, dev, &def, &s);
    set_betas(&b, 3.0f);
    assert_ok(net_new(&h.net, b.params, &project, &points, &e), e);
    h.rows = make_tensor(dev, 1, 1, 1, PROJECTED, 16);
    check_golden(golden_aua_steady, COUNT(golden_aua_steady), &b, &h, forward_limit, grad_limit);
    for (int i = 0; i < b.params->n_trainable; i++)
        assert_int_equal(b.params->touched[i], 1);
    dev->ops->free(dev, h.rows.data);
    net_free(h.net);
    bench_close(&b);
    device_close(dev);
}

static void test_golden_vnet_f32(void **state)
{
    (void)state;
    golden_vnet_case(PRECISION_F32, 0, 1e-6, 1e-6);
    golden_vnet_case(PRECISION_F32, 1, 1e-6, 1e-6);
}

/* With betas of 0 the gradients are only shown: units that switch make half of them, in any bf16.
 */
static void test_golden_vnet_bf16(void **state)
{
    (void)state;
    golden_vnet_case(PRECISION_BF16, 0, 1e-3, 2);
    golden_vnet_case(PRECISION_BF16, 1, 1e-3, 1e-3);
}

static void test_golden_mcnet_f32(void **state)
{
    (void)state;
    golden_mcnet_case(PRECISION_F32, 1e-6, 1e-6);
}

static void test_golden_mcnet_bf16(void **state)
{
    (void)state;
    golden_mcnet_case(PRECISION_BF16, 1e-3, 1e-3);
}

static void test_golden_aua_f32(void **state)
{
    (void)state;
    golden_aua_case(PRECISION_F32, 1e-6, 1e-6);
}

static void test_golden_aua_bf16(void **state)
{
    (void)state;
    golden_aua_case(PRECISION_BF16, 1e-3, 1e-3);
}

/* ---- finite differences ---------------------------------------------------------------------- */

/* What the builder can say that a V-Net does not: norm without relu, dropout on norm without
 * relu, dropout on a raw convolution, relu without norm, two readers of one value, an output that
 * is read. */
static void odd_define(struct builder *b, const struct net_definition *self)
{
    int x = net_norm(b, net_conv(b, net_input(b, self->channels), CONV_3, 3, "a"), "an");
    x = net_dropout(b, net_conv(b, x, CONV_DOWN, 5, "b"), 0.25f);
    int y = net_dropout(b, net_norm(b, net_conv(b, x, CONV_3, 6, "c"), "cn"), 0.25f);
    int s = net_relu(b, net_conv(b, y, CONV_UP, 4, "d"));
    int t = net_relu(b, net_conv(b, s, CONV_3, 3, "e"));
    int u = net_norm_relu(b, net_conv(b, t, CONV_1, 4, "i"), "in");
    int o = net_conv(b, net_add(b, u, s), CONV_3, 4, "f");
    net_output(b, o, "tap");
    int r = net_relu(b, o);
    net_output(b, net_conv(b, r, CONV_1, 2, "g"), "left");
    net_output(b, net_conv(b, r, CONV_3, 3, "h"), "right");
}

static double weighted(struct vol x, int phase)
{
    double sum = 0;
    int64_t V = (int64_t)x.d * x.h * x.w;
    for (int64_t i = 0; i < x.n * x.c * V; i++) {
        int64_t item = i / V / x.c, c = i / V % x.c, v = i % V;
        sum += x.v[i] * grad_at((item * V + v) * x.c + c, phase);
    }
    return sum;
}

static double odd_loss(struct reference *r, struct vol image)
{
    struct vol x = ref_norm(r, ref_conv(r, image, CONV_3, 3, "a"), "an");
    x = ref_drop(r, ref_conv(r, x, CONV_DOWN, 5, "b"));
    x = ref_conv(r, x, CONV_3, 6, "c");
    x = ref_drop(r, ref_norm(r, x, "cn"));
    struct vol s = ref_relu(ref_conv(r, x, CONV_UP, 4, "d"));
    struct vol t = ref_relu(ref_conv(r, s, CONV_3, 3, "e"));
    struct vol u = ref_relu(ref_norm(r, ref_conv(r, t, CONV_1, 4, "i"), "in"));
    struct vol o = ref_conv(r, ref_add(u, s), CONV_3, 4, "f");
    double loss = weighted(o, 0);
    o = ref_relu(o);
    loss += weighted(ref_conv(r, o, CONV_1, 2, "g"), 1);
    return loss + weighted(ref_conv(r, o, CONV_3, 3, "h"), 2);
}

/* Two decoders on the same skips, all ways of making larger, an output that was coarse. */
static void several_define(struct builder *b, const struct net_definition *self)
{
    int s = net_norm_relu(b, net_conv(b, net_input(b, self->channels), CONV_3, 3, "a"), "an");
    int t = net_norm_relu(b, net_conv(b, s, CONV_DOWN, 4, "b"), "bn");
    int x = net_dropout(b, net_norm_relu(b, net_conv(b, t, CONV_DOWN, 5, "c"), "cn"), 0.25f);
    net_output(b, net_resize(b, net_conv(b, x, CONV_1, 2, "d"), NET_CENTRED, 2), "coarse");
    int u = net_norm_relu(b, net_conv(b, x, CONV_UP, 4, "e"), "en");
    u = net_norm_relu(b, net_conv(b, net_add(b, u, t), CONV_3, 4, "f"), "fn");
    u = net_norm_relu(b, net_conv(b, u, CONV_UP, 3, "g"), "gn");
    net_output(b, net_conv(b, net_add(b, u, s), CONV_1, 2, "h"), "one");
    u = net_norm_relu(b, net_conv(b, net_resize(b, x, NET_ALIGNED, 1), CONV_3, 4, "i"), "in");
    u = net_norm_relu(b, net_conv(b, net_add(b, u, t), CONV_3, 4, "j"), "jn");
    u = net_norm_relu(b, net_conv(b, net_resize(b, u, NET_NEAREST, 1), CONV_3, 3, "k"), "kn");
    net_output(b, net_conv(b, net_add(b, s, u), CONV_1, 2, "l"), "two");
}

static double several_loss(struct reference *r, struct vol image)
{
    struct vol s = ref_relu(ref_norm(r, ref_conv(r, image, CONV_3, 3, "a"), "an"));
    struct vol t = ref_relu(ref_norm(r, ref_conv(r, s, CONV_DOWN, 4, "b"), "bn"));
    struct vol x = ref_drop(r, ref_relu(ref_norm(r, ref_conv(r, t, CONV_DOWN, 5, "c"), "cn")));
    double loss = weighted(ref_resize(r, ref_conv(r, x, CONV_1, 2, "d"), NET_CENTRED, 2), 0);
    struct vol u = ref_relu(ref_norm(r, ref_conv(r, x, CONV_UP, 4, "e"), "en"));
    u = ref_relu(ref_norm(r, ref_conv(r, ref_add(u, t), CONV_3, 4, "f"), "fn"));
    u = ref_relu(ref_norm(r, ref_conv(r, u, CONV_UP, 3, "g"), "gn"));
    loss += weighted(ref_conv(r, ref_add(u, s), CONV_1, 2, "h"), 1);
    u = ref_relu(ref_norm(r, ref_conv(r, ref_resize(r, x, NET_ALIGNED, 1), CONV_3, 4, "i"), "in"));
    u = ref_relu(ref_norm(r, ref_conv(r, ref_add(u, t), CONV_3, 4, "j"), "jn"));
    u = ref_relu(ref_norm(r, ref_conv(r, ref_resize(r, u, NET_NEAREST, 1), CONV_3, 3, "k"), "kn"));
    return loss + weighted(ref_conv(r, ref_add(u, s), CONV_1, 2, "l"), 2);
}

/* The three ways of perturbing, on norm and relu, with dropout and without, read directly and in an add. */
static void shaken_define(struct builder *b, const struct net_definition *self)
{
    int s = net_norm_relu(b, net_conv(b, net_input(b, self->channels), CONV_3, 4, "a"), "an");
    int x = net_dropout(b, net_norm_relu(b, net_conv(b, s, CONV_DOWN, 6, "b"), "bn"), 0.25f);
    int noisy = net_shake(b, s, NET_NOISE), low = net_shake(b, s, NET_PEAKS);
    int thin = net_shake(b, x, NET_DROP), deep = net_shake(b, x, NET_PEAKS);
    int u = net_norm_relu(b, net_conv(b, thin, CONV_UP, 4, "c"), "cn");
    net_output(b, net_conv(b, net_add(b, u, noisy), CONV_3, 2, "d"), "one");
    u = net_norm_relu(b, net_conv(b, deep, CONV_UP, 4, "e"), "en");
    net_output(b, net_conv(b, net_add(b, u, low), CONV_3, 2, "f"), "two");
}

static double shaken_loss(struct reference *r, struct vol image)
{
    struct vol s = ref_relu(ref_norm(r, ref_conv(r, image, CONV_3, 4, "a"), "an"));
    struct vol x = ref_drop(r, ref_relu(ref_norm(r, ref_conv(r, s, CONV_DOWN, 6, "b"), "bn")));
    struct vol noisy = ref_shake(r, s, NET_NOISE), low = ref_shake(r, s, NET_PEAKS);
    struct vol thin = ref_shake(r, x, NET_DROP), deep = ref_shake(r, x, NET_PEAKS);
    struct vol u = ref_relu(ref_norm(r, ref_conv(r, thin, CONV_UP, 4, "c"), "cn"));
    double loss = weighted(ref_conv(r, ref_add(u, noisy), CONV_3, 2, "d"), 0);
    u = ref_relu(ref_norm(r, ref_conv(r, deep, CONV_UP, 4, "e"), "en"));
    return loss + weighted(ref_conv(r, ref_add(u, low), CONV_3, 2, "f"), 1);
}

static double vnet_loss(struct reference *r, struct vol image)
{
    return weighted(ref_vnet(r, image, 2, 2), 0);
}

struct check {
    struct bench b;
    struct reference ref;
    double (*loss)(struct reference *r, struct vol image);
    double *image; /* channels first */
    int every;     /* look at every n-th parameter tensor */
    double limit;  /* relative; a unit within float rounding of zero is on in one and off in the
                      other */
};

static double loss_now(struct check *k)
{
    const struct tensor *t = &k->b.image;
    struct vol x = {t->n, t->c, t->d, t->h, t->w, k->image};
    double loss = k->loss(&k->ref, x);
    ref_clear(&k->ref);
    return loss;
}

static double slope_at(struct check *k, double *at)
{
    const double h = 1e-7, was = *at;
    *at = was + h;
    double up = loss_now(k);
    *at = was - h;
    double down = loss_now(k);
    *at = was;
    return (up - down) / (2 * h);
}

static void compare_slope(struct check *k, double *at, double ours, double scale, const char *name)
{
    double want = slope_at(k, at);
    if (fabs(ours - want) > k->limit * (fabs(want) + scale) + 2e-7)
        test_fail("%s: gradient %.8g, finite difference %.8g", name, ours, want);
}

static void check_slopes(struct check *k)
{
    struct params *p = k->b.params;
    float *grad = fetch(k->b.dev, p->grad, p->trainable_count);
    for (int i = 0; i < p->n_trainable; i += k->every) {
        const struct param *q = &p->list[i];
        int64_t at = q->offset + q->count * 2 / 3;
        double rms = norm_of(grad + q->offset, q->count) / sqrt((double)q->count);
        compare_slope(k, &k->ref.value[at], (double)grad[at], rms, q->name);
    }
    free(grad);
}

static void check_input_slopes(struct check *k)
{
    struct tensor d = net_input_grad(k->b.net);
    int64_t V = (int64_t)d.d * d.h * d.w, n = tensor_count(&d);
    float *host = fetch_tensor(k->b.dev, d);
    double rms = norm_of(host, n) / sqrt((double)n);
    for (int64_t at = 5; at < n; at += n / 4) {
        int64_t item = at / V / d.c, c = at / V % d.c, v = at % V;
        compare_slope(k, &k->image[at], (double)host[(item * V + v) * d.c + c], rms, "input");
    }
    free(host);
}

static void start_check(struct check *k)
{
    struct params *p = k->b.params;
    const struct tensor *t = &k->b.image;
    int64_t V = (int64_t)t->d * t->h * t->w, n = tensor_count(t);
    k->ref.params = p;
    k->ref.net = k->b.net;
    k->ref.value = malloc((size_t)p->count * sizeof(double));
    k->image = malloc((size_t)n * sizeof(double));
    for (int64_t i = 0; i < n; i++)
        k->image[i] = image_at((i / V / t->c * V + i % V) * t->c + i / V % t->c);
}

static void finite_differences(struct check *k, const struct net_definition *def, const struct net_shape *s,
                               const struct net_pass *pass)
{
    struct device *dev = open_device(PRECISION_F32, 2);
    bench_open(&k->b, dev, def, s);
    start_check(k);
    struct params *p = k->b.params;
    for (int warm = 0; warm < 3; warm++) /* running statistics worth the name */
        net_forward(k->b.net, &k->b.image, &train_pass);
    net_forward(k->b.net, &k->b.image, pass);
    params_zero_grad(p);
    for (int j = 0; j < k->b.net->graph.n_outputs; j++) {
        struct tensor t = net_grad(k->b.net, k->b.net->graph.outputs[j]);
        fill_grad(dev, &t, j);
    }
    net_backward(k->b.net);
    float *value = fetch(dev, p->value, p->count);
    for (int64_t i = 0; i < p->count; i++)
        k->ref.value[i] = (double)value[i];
    k->ref.train = pass->mode == NET_TRAIN;
    check_slopes(k);
    check_input_slopes(k);
    free(value);
    free(k->ref.value);
    free(k->image);
    bench_close(&k->b);
    device_close(dev);
}

static void test_slopes_odd(void **state)
{
    struct net_definition def = {odd_define, 2, 2, 1, 0, 0, 0};
    struct net_shape s = {3, 4, 6, 8, NET_TRAINING, 1};
    struct check train = {.loss = odd_loss, .every = 1, .limit = 1e-3}, eval = train;
    (void)state;
    finite_differences(&train, &def, &s, &train_pass);
    finite_differences(&eval, &def, &s, &eval_pass);
}

/* A coarse axis of one voxel is among these. */
static void test_slopes_several(void **state)
{
    struct net_definition def = {several_define, 2, 2, 1, 0, 0, 0};
    struct net_shape s = {3, 8, 4, 12, NET_TRAINING, 1};
    struct check train = {.loss = several_loss, .every = 1, .limit = 1e-3}, eval = train;
    (void)state;
    finite_differences(&train, &def, &s, &train_pass);
    finite_differences(&eval, &def, &s, &eval_pass);
}

static void test_slopes_shaken(void **state)
{
    struct net_definition def = {shaken_define, 2, 2, 1, 0, 0, 0};
    struct net_shape s = {3, 4, 6, 8, NET_TRAINING, 1};
    struct check train = {.loss = shaken_loss, .every = 1, .limit = 1e-3}, eval = train;
    (void)state;
    finite_differences(&train, &def, &s, &train_pass);
    finite_differences(&eval, &def, &s, &eval_pass);
}

static void test_slopes_vnet(void **state)
{
    struct net_definition def = {vnet_define, 1, 2, 2, 0, NET_DROPOUT_BOTH, 0};
    struct net_shape s = {2, 16, 32, 16, NET_TRAINING, 1};
    struct check k = {.loss = vnet_loss, .every = 7, .limit = 2e-2};
    (void)state;
    finite_differences(&k, &def, &s, &train_pass);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden_vnet_f32),  cmocka_unit_test(test_golden_vnet_bf16),
        cmocka_unit_test(test_golden_mcnet_f32), cmocka_unit_test(test_golden_mcnet_bf16),
        cmocka_unit_test(test_golden_aua_f32),   cmocka_unit_test(test_golden_aua_bf16),
        cmocka_unit_test(test_slopes_odd),       cmocka_unit_test(test_slopes_vnet),
        cmocka_unit_test(test_slopes_several),   cmocka_unit_test(test_slopes_shaken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
