/* test_net.c - networks: names and numbers of parameters, the memory plan, and how networks behave.
 * Values and gradients are in test_net_golden.c.
 */
#include "net_bench.h"

static const struct net_definition vnet_16 = {vnet_define, 1, 2, 16, 0, NET_DROPOUT_BOTH, 0};
static const struct net_definition aua_16 = {aua_define, 1, 2, 16, 8, NET_DROPOUT_BOTH, 0};
static const struct net_definition mcnet_16 = {mcnet_plus_define, 1, 2, 16, 0, NET_DROPOUT_BOTH, 0};

/* ---- parameters ------------------------------------------------------------------------------ */

static int64_t count_of(struct device *dev, struct net_definition def)
{
    struct params *p = NULL;
    struct error e = {0};
    assert_ok(params_new(&p, dev, &def, PARAMS_NO_GRAD, &e), e);
    int64_t n = p->trainable_count;
    params_free(p);
    return n;
}

static void test_counts(void **state)
{
    struct device *dev = open_device(PRECISION_F32, 1);
    struct net_definition d = aua_16;
    (void)state;
    assert_int_equal(count_of(dev, vnet_16), 9448866);
    assert_int_equal(count_of(dev, aua_16), 9450260);
    d.head_norm = 1; /* two norms of 16 channels */
    assert_int_equal(count_of(dev, d), 9450260 + 2 * 2 * 16);
    d = vnet_16;
    d.define = sdf_define; /* two heads of one number */
    assert_int_equal(count_of(dev, d), 9448866);
    d = vnet_16;
    d.channels = 3, d.classes = 14; /* 27*2*16 more weights in, 12*(16+1) more numbers out */
    assert_int_equal(count_of(dev, d), 9448866 + 27 * 2 * 16 + 12 * 17);
    d = vnet_16;
    d.define = mcnet_define;
    assert_int_equal(count_of(dev, d), 12347716);
    d.define = mcnet_plus_define;
    assert_int_equal(count_of(dev, d), 15246566);
    d.define = urpc_define;
    assert_int_equal(count_of(dev, d), 9448866 + 258 + 130 + 66);
    d.define = cct_define;
    assert_int_equal(count_of(dev, d), 7376896 + 4 * (2071936 + 34));
    d.define = chaitanya_define; /* 256 -> 1024 -> 128; 64 -> 64, norm, 64 -> 64, 3x3x3 -> 128 */
    assert_int_equal(count_of(dev, d),
                     9448866 + 257 * 1024 + 1025 * 128 + 2 * 65 * 64 + 128 + (27 * 64 + 1) * 128);
    device_close(dev);
}

static void check_param(const struct params *p, const char *name, enum param_kind kind, const int *dims,
                        double fan)
{
    const struct param *q = params_find(p, name);
    int64_t count = 1;
    assert_non_null(q);
    assert_int_equal(q->kind, kind);
    for (int i = 0; i < q->n_dims; i++) {
        assert_int_equal(q->dims[i], dims[i]);
        count *= dims[i];
    }
    assert_int_equal(q->count, count);
    assert_true(fabs((double)q->bound - (fan > 0 ? 1 / sqrt(fan) : 0)) < 1e-7);
}

static void test_names(void **state)
{
    struct device *dev = open_device(PRECISION_F32, 1);
    struct params *p = NULL;
    struct error e = {0};
    (void)state;
    assert_ok(params_new(&p, dev, &aua_16, PARAMS_WITH_GRAD, &e), e);
    check_param(p, "block_one.conv.0.weight", PARAM_WEIGHT, (int[]){16, 1, 3, 3, 3}, 27);
    check_param(p, "block_one.conv.0.bias", PARAM_BIAS, (int[]){16}, 27);
    check_param(p, "block_one.conv.1.running_var", PARAM_VAR, (int[]){16}, 0);
    check_param(p, "block_one_dw.conv.0.weight", PARAM_WEIGHT, (int[]){32, 16, 2, 2, 2}, 128);
    check_param(p, "block_three.conv.6.weight", PARAM_WEIGHT, (int[]){64, 64, 3, 3, 3}, 64 * 27);
    check_param(p, "block_three.conv.7.bias", PARAM_BETA, (int[]){64}, 0);
    check_param(p, "block_five_up.conv.0.weight", PARAM_WEIGHT, (int[]){256, 128, 2, 2, 2}, 128 * 8);
    check_param(p, "block_five_up.conv.1.weight", PARAM_GAMMA, (int[]){128}, 0);
    check_param(p, "out_conv.weight", PARAM_WEIGHT, (int[]){16, 16, 1, 1, 1}, 16);
    check_param(p, "head.conv.4.bias", PARAM_BIAS, (int[]){16}, 16);
    check_param(p, "mean_l.weight", PARAM_WEIGHT, (int[]){2, 16, 1, 1, 1}, 16);
    check_param(p, "log_cov_diag_l.bias", PARAM_BIAS, (int[]){2}, 16);
    check_param(p, "cov_factor_l.weight", PARAM_WEIGHT, (int[]){16, 16, 1, 1, 1}, 16);
    assert_null(params_find(p, "head.conv.6.weight"));
    int64_t at = 0;
    for (int i = 0; i < p->n; i++) { /* dense, unique names, trainable ones first */
        int buffer = p->list[i].kind == PARAM_MEAN || p->list[i].kind == PARAM_VAR;
        assert_int_equal(buffer, i >= p->n_trainable);
        assert_int_equal(p->list[i].offset, at);
        assert_ptr_equal(params_find(p, p->list[i].name), &p->list[i]);
        at += p->list[i].count;
    }
    assert_int_equal(at, p->count);
    params_free(p);
    device_close(dev);
}

static void test_init(void **state)
{
    struct device *dev = open_device(PRECISION_F32, 1);
    struct net_definition def = {vnet_define, 1, 2, 8, 0, NET_DROPOUT_BOTH, 0};
    struct params *p = NULL, *q = NULL;
    struct error e = {0};
    (void)state;
    assert_ok(params_new(&p, dev, &def, PARAMS_NO_GRAD, &e), e);
    assert_ok(params_new(&q, dev, &def, PARAMS_NO_GRAD, &e), e);
    params_init(p, 1, 2);
    params_init(q, 1, 2);
    float *v = fetch(dev, p->value, p->count), *w = fetch(dev, q->value, q->count);
    assert_memory_equal(v, w, (size_t)p->count * sizeof *v);
    for (int k = 0; k < p->n; k++) {
        const struct param *a = &p->list[k];
        double sum = 0, square = 0, top = 0, b = (double)a->bound;
        for (int64_t i = 0; i < a->count; i++) {
            double x = (double)v[a->offset + i];
            sum += x, square += x * x, top = fabs(x) > top ? fabs(x) : top;
        }
        if (b == 0) { /* constant */
            int one = a->kind == PARAM_GAMMA || a->kind == PARAM_VAR;
            assert_true(sum == (one ? (double)a->count : 0.0));
        } else {
            assert_true(top <= b);
        }
        if (b > 0 && a->count > 1000) { /* mean 0, variance b^2/3, five standard errors */
            double n = (double)a->count;
            assert_true(fabs(sum / n) < 5 * b / sqrt(3 * n));
            assert_true(fabs(square / n / (b * b / 3) - 1) < 5 * sqrt(0.8 / n));
            assert_true(top > 0.98 * b);
        }
    }
    uint64_t version = q->version;
    params_init(q, 1, 3); /* another salt: other numbers, and nets are told */
    assert_true(q->version > version);
    free(w);
    w = fetch(dev, q->value, q->count);
    assert_true(memcmp(v, w, 1000) != 0);
    params_copy(q, p);
    free(w);
    w = fetch(dev, q->value, q->count);
    assert_memory_equal(v, w, (size_t)p->count * sizeof *v);
    free(v);
    free(w);
    params_free(p);
    params_free(q);
    device_close(dev);
}

/* ---- the memory plan ------------------------------------------------------------------------- */

/* Most bytes alive at one time: no plan can be smaller. */
static size_t plan_bound(const struct plan *p)
{
    size_t most = 0;
    for (int t = 0; t <= 2 * NET_LAYERS + 1; t++) {
        size_t now = 0;
        for (int i = 0; i < p->n; i++)
            if (p->items[i].first <= t && t <= p->items[i].last)
                now += p->items[i].bytes;
        most = now > most ? now : most;
    }
    return most;
}

static void check_plan(const struct plan *p)
{
    for (int i = 0; i < p->n; i++) {
        const struct plan_item *a = &p->items[i];
        assert_true(a->offset % PLAN_ALIGN == 0 && a->offset + a->bytes <= p->bytes);
        for (int j = 0; j < i; j++) {
            const struct plan_item *b = &p->items[j];
            int together = a->first <= b->last && b->first <= a->last;
            int apart = a->offset + a->bytes <= b->offset || b->offset + b->bytes <= a->offset;
            assert_true(!together || apart);
        }
    }
}

static size_t planned(struct device *dev, const struct net_definition *def, struct net_shape s, size_t *bound)
{
    struct error e = {0};
    struct params *p = NULL;
    struct net *n = calloc(1, sizeof *n);
    assert_ok(params_new(&p, dev, def, PARAMS_NO_GRAD, &e), e);
    n->params = p, n->dev = dev, n->shape = s;
    assert_ok(graph_record(&n->graph, def, p, NULL, NULL, &e), e);
    net_plan(n);
    check_plan(&n->plan);
    size_t bytes = n->plan.bytes;
    *bound = plan_bound(&n->plan);
    free(n);
    params_free(p);
    return bytes;
}

/* What PyTorch keeps of a V-Net for backward, float32: every convolution's output, every ReLU's
 * output, the four sums of the skips, the two dropouts' outputs. */
static double torch_bytes(double full_voxels)
{
    double level[5] = {3, 6, 8, 8, 4}, values = 0, scale = 1; /* convolutions before a norm, by level */
    for (int i = 0; i < 5; i++, scale /= 4)                   /* channels double, voxels are an eighth */
        values += (2 * level[i] + (i < 4) + (i == 0 || i == 4)) * 16 * scale * full_voxels;
    return 4 * values;
}

static void test_plan(void **state)
{
    const enum precision kinds[2] = {PRECISION_F32, PRECISION_BF16};
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct device *dev = open_device(kinds[k], 1);
        if (!dev)
            continue;
        struct net_shape train = {2, 96, 96, 96, NET_TRAINING, 0};
        struct net_shape window = {1, 96, 96, 96, NET_FORWARD_ONLY, 0};
        size_t bound[4], bytes[4];
        double torch = torch_bytes(2 * 96.0 * 96 * 96);
        bytes[0] = planned(dev, &vnet_16, train, &bound[0]);
        bytes[1] = planned(dev, &vnet_16, window, &bound[1]);
        bytes[2] = planned(dev, &aua_16, train, &bound[2]);
        bytes[3] = planned(dev, &mcnet_16, train, &bound[3]);
        print_message("%s 96^3: V-Net training of 2 %.0f MiB (least %.0f, PyTorch keeps %.0f), "
                      "window %.0f MiB (least %.0f), AUA training of 2 %.0f MiB (least %.0f), "
                      "MC-Net+ %.0f MiB (least %.0f)\n",
                      precision_name(kinds[k]), (double)bytes[0] / 1048576, (double)bound[0] / 1048576,
                      torch / 1048576, (double)bytes[1] / 1048576, (double)bound[1] / 1048576,
                      (double)bytes[2] / 1048576, (double)bound[2] / 1048576, (double)bytes[3] / 1048576,
                      (double)bound[3] / 1048576);
        for (int i = 0; i < 4; i++)
            assert_true((double)bytes[i] <= 1.1 * (double)bound[i]);
        /* gradients between layers are included on our side only */
        assert_true((double)bytes[0] <= 0.6 * torch / (k + 1));
        device_close(dev);
    }
}

/* ---- behaviour ------------------------------------------------------------------------------- */

/* All numbers of two training steps, as one hash. */
static uint64_t fingerprint(enum precision precision, int threads)
{
    struct net_definition def = {aua_define, 1, 3, 5, 2, NET_DROPOUT_BOTH, 0};
    struct net_shape s = {2, 32, 16, 48, NET_TRAINING, 1};
    struct device *dev = open_device(precision, threads);
    struct bench b;
    uint64_t hash = 1;
    if (!dev)
        return 0;
    bench_open(&b, dev, &def, &s);
    for (int step = 0; step < 2; step++) {
        train_forward(&b);
        struct tensor f = net_value(b.net, "cov_factor");
        float *out = fetch_tensor(dev, f);
        hash = hash_bytes(out, (size_t)tensor_count(&f) * sizeof *out, hash);
        net_backward(b.net);
        float *v = fetch(dev, b.params->value, b.params->count);
        float *g = fetch(dev, b.params->grad, b.params->trainable_count);
        hash = hash_bytes(g, (size_t)b.params->trainable_count * sizeof *g, hash);
        for (int64_t i = 0; i < b.params->trainable_count; i++)
            v[i] -= 0.1f * g[i];
        store(dev, b.params->value, v, b.params->trainable_count);
        b.params->version++;
        free(out);
        free(v);
        free(g);
    }
    bench_close(&b);
    device_close(dev);
    return hash;
}

static void test_same_bits(void **state)
{
    const enum precision kinds[2] = {PRECISION_F32, PRECISION_BF16};
    uint64_t one[2];
    (void)state;
    for (int k = 0; k < 2; k++) {
        one[k] = fingerprint(kinds[k], 1);
        assert_true(one[k] == fingerprint(kinds[k], 2));
        assert_true(one[k] == fingerprint(kinds[k], 4));
    }
    assert_true(one[0] != one[1]);
}

static void two_drops(struct builder *b, const struct net_definition *self)
{
    int x = net_conv(b, net_input(b, 1), CONV_1, 500, "a");
    x = net_conv(b, net_dropout(b, net_norm_relu(b, x, "an"), 0.5f), CONV_1, 500, "b");
    net_output(b, net_conv(b, net_dropout(b, net_relu(b, x), 0.25f), CONV_1, self->classes, "c"), "out");
}

static double correlation(const float *a, const float *b, int n)
{
    double ma = 0, mb = 0, ab = 0, aa = 0, bb = 0;
    for (int i = 0; i < n; i++)
        ma += (double)a[i] / n, mb += (double)b[i] / n;
    for (int i = 0; i < n; i++) {
        double x = (double)a[i] - ma, y = (double)b[i] - mb;
        ab += x * y, aa += x * x, bb += y * y;
    }
    return ab / sqrt(aa * bb);
}

static void test_dropout(void **state)
{
    struct net_definition def = {two_drops, 1, 2, 1, 0, 0, 0};
    struct net_shape s = {8, 2, 2, 2, NET_FORWARD_ONLY, 0};
    enum { N = 8 * 500 };
    struct bench b;
    struct device *dev = open_device(PRECISION_F32, 1);
    struct net_pass pass = train_pass;
    float *before = malloc(N * sizeof *before);
    (void)state;
    bench_open(&b, dev, &def, &s);
    const float keep[2] = {2.0f, 1.0f / 0.75f};
    for (int layer = 0; layer < 2; layer++) {
        const float *drop = b.net->run[layer].drop;
        double p = layer ? 0.25 : 0.5;
        pass = train_pass;
        net_forward(b.net, &b.image, &pass);
        int zeros = 0;
        for (int i = 0; i < N; i++) {
            assert_true(drop[i] == 0.0f || drop[i] == keep[layer]);
            zeros += drop[i] == 0.0f;
        }
        assert_true(fabs(zeros - p * N) < 5 * sqrt(p * (1 - p) * N));
        assert_true(fabs(correlation(drop, drop + N / 2, N / 2)) < 0.1); /* items are independent */
        memcpy(before, drop, N * sizeof *before);
        net_forward(b.net, &b.image, &pass); /* a pure function of seed, step and stream */
        assert_memory_equal(before, drop, N * sizeof *before);
        pass.step++;
        net_forward(b.net, &b.image, &pass);
        assert_true(fabs(correlation(before, drop, N)) < 0.08);
        pass = train_pass;
        pass.stream++;
        net_forward(b.net, &b.image, &pass);
        assert_true(fabs(correlation(before, drop, N)) < 0.08);
        pass.mode = NET_EVAL;
        net_forward(b.net, &b.image, &pass);
        const float *scale = b.net->run[layer].scale; /* nothing is dropped: items are alike */
        for (int i = 0; i < N; i++)
            assert_true(scale[i] != 0 && scale[i] == scale[i % 500] && (layer == 0 || scale[i] == 1));
    }
    assert_true(fabs(correlation(b.net->run[0].drop, b.net->run[1].drop, 1)) != 0);
    free(before);
    bench_close(&b);
    device_close(dev);
}

/* Names of tensors that a gradient at one output must leave alone. */
static void check_touched(const struct params *p, const char *const *heads, int n)
{
    for (int i = 0; i < p->n_trainable; i++) {
        int untouched = 0;
        for (int k = 0; k < n; k++)
            untouched |= text_starts_with(p->list[i].name, heads[k]);
        assert_int_equal(p->touched[i], !untouched);
    }
}

static void test_untouched(void **state)
{
    static const char *const idle[] = {"head.", "log_cov_diag_l", "cov_factor_l"};
    static const char *const heads[] = {"head.", "log_cov_diag_l", "cov_factor_l", "mean_l"};
    static const char *const all[] = {""};
    struct net_definition def = {aua_define, 1, 2, 2, 2, NET_DROPOUT_BOTH, 0};
    struct net_shape s = {1, 16, 16, 32, NET_TRAINING, 0};
    struct device *dev = open_device(PRECISION_F32, 1);
    struct bench b;
    (void)state;
    bench_open(&b, dev, &def, &s);
    net_forward(b.net, &b.image, &train_pass);
    params_zero_grad(b.params);
    struct tensor t = net_grad(b.net, "mean");
    fill_grad(dev, &t, 0);
    net_backward(b.net);
    check_touched(b.params, idle, 3);
    net_forward(b.net, &b.image, &train_pass);
    params_zero_grad(b.params);
    t = net_grad(b.net, "features");
    fill_grad(dev, &t, 0);
    net_backward(b.net);
    check_touched(b.params, heads, 4);
    net_forward(b.net, &b.image, &train_pass);
    params_zero_grad(b.params);
    net_backward(b.net); /* nobody asked for a gradient */
    check_touched(b.params, all, 1);
    assert_int_equal(b.params->batches, 3);
    bench_close(&b);
    device_close(dev);
}

/* A network inside of another, on its parameters, gives the same. */
static void check_inner(struct bench *b, const struct net_definition *def, const struct net_shape *s,
                        const char *output)
{
    struct error e = {0};
    struct net *inner = NULL;
    assert_ok(net_new(&inner, b->params, def, s, &e), e);
    net_forward(b->net, &b->image, &eval_pass);
    net_forward(inner, &b->image, &eval_pass);
    struct tensor x = net_value(b->net, output), y = net_value(inner, output);
    assert_memory_equal(x.data, y.data, (size_t)tensor_count(&x) * sizeof(float));
    net_free(inner);
}

static void test_mask_alone(void **state)
{
    struct net_definition def = {aua_define, 1, 3, 4, 2, NET_DROPOUT_BOTH, 1}, mask = def;
    struct net_shape s = {2, 16, 16, 32, NET_TRAINING, 0};
    struct device *dev = open_device(PRECISION_F32, 2);
    struct bench b;
    (void)state;
    bench_open(&b, dev, &def, &s);
    train_forward(&b); /* running statistics of its own */
    mask.define = aua_mask_define;
    s.use = NET_FORWARD_ONLY;
    check_inner(&b, &mask, &s, "mean");
    bench_close(&b);
    device_close(dev);
}

/* What several outputs send back is the sum of what each sends alone, to the bits of rounding; one alone
 * leaves the other decoders alone; and the V-Net inside is a V-Net. */
static void test_branches(void **state)
{
    static const char *const others[] = {"decoder2", "decoder3"};
    struct net_definition def = {mcnet_plus_define, 1, 2, 2, 0, NET_DROPOUT_BOTH, 0}, plain = def;
    struct net_shape s = {2, 16, 16, 32, NET_TRAINING, 0};
    struct device *dev = open_device(PRECISION_F32, 2);
    struct bench b;
    (void)state;
    bench_open(&b, dev, &def, &s);
    train_forward(&b);
    net_backward(b.net);
    int64_t n = b.params->trainable_count;
    float *all = fetch(dev, b.params->grad, n);
    double *sum = calloc((size_t)n, sizeof *sum), norm = norm_of(all, n);
    for (int k = 0; k < 3; k++) {
        net_forward(b.net, &b.image, &train_pass);
        params_zero_grad(b.params);
        struct tensor t = net_grad(b.net, net_logits[k]);
        fill_grad(dev, &t, k);
        net_backward(b.net);
        if (k == 0)
            check_touched(b.params, others, 2);
        float *one = fetch(dev, b.params->grad, n);
        for (int i = 0; i < b.params->n_trainable; i++)
            for (int64_t j = 0; b.params->touched[i] && j < b.params->list[i].count; j++)
                sum[b.params->list[i].offset + j] += (double)one[b.params->list[i].offset + j];
        free(one);
    }
    for (int64_t i = 0; i < n; i++)
        assert_true(fabs(sum[i] - (double)all[i]) < 1e-5 * norm);
    plain.define = vnet_define;
    check_inner(&b, &plain, &s, "logits");
    free(sum);
    free(all);
    bench_close(&b);
    device_close(dev);
}

static void test_gradients_add(void **state)
{
    struct net_definition def = {vnet_define, 1, 2, 2, 0, NET_DROPOUT_NONE, 0};
    struct net_shape s = {1, 16, 16, 32, NET_TRAINING, 0};
    struct device *dev = open_device(PRECISION_F32, 1);
    struct bench b;
    (void)state;
    bench_open(&b, dev, &def, &s);
    train_forward(&b);
    net_backward(b.net);
    float *once = fetch(dev, b.params->grad, b.params->trainable_count);
    net_forward(b.net, &b.image, &train_pass); /* batch statistics: the running ones do not matter */
    struct tensor t = net_grad(b.net, "logits");
    fill_grad(dev, &t, 0);
    t = net_grad(b.net, "logits"); /* asked again: not zeroed again */
    net_backward(b.net);
    float *twice = fetch(dev, b.params->grad, b.params->trainable_count);
    double norm = norm_of(once, b.params->trainable_count);
    assert_true(norm > 0);
    for (int64_t i = 0; i < b.params->trainable_count; i++)
        assert_true(fabs((double)twice[i] - 2 * (double)once[i]) < 1e-5 * norm);
    free(once);
    free(twice);
    bench_close(&b);
    device_close(dev);
}

static void check_finite(struct bench *b)
{
    train_forward(b);
    net_backward(b->net);
    float *v = fetch(b->dev, b->params->value, b->params->count);
    float *g = fetch(b->dev, b->params->grad, b->params->trainable_count);
    for (int64_t i = 0; i < b->params->count; i++)
        assert_true(isfinite(v[i]));
    for (int64_t i = 0; i < b->params->trainable_count; i++)
        assert_true(isfinite(g[i]));
    for (int k = 0; k < b->params->n; k++)
        for (int64_t i = 0; b->params->list[k].kind == PARAM_VAR && i < b->params->list[k].count; i++)
            assert_true(v[b->params->list[k].offset + i] >= 0);
    for (int mode = 0; mode < 2; mode++) {
        net_forward(b->net, &b->image, mode ? &train_pass : &eval_pass);
        struct tensor t = net_value(b->net, "logits");
        float *out = fetch_tensor(b->dev, t);
        for (int64_t i = 0; i < tensor_count(&t); i++)
            assert_true(isfinite(out[i]));
        free(out);
    }
    free(v);
    free(g);
}

/* M11: one item of 16 voxels a side has one voxel at the bottom; a constant image has no variance.
 */
static void test_no_variance(void **state)
{
    struct net_definition def = {vnet_define, 1, 2, 2, 0, NET_DROPOUT_BOTH, 0};
    struct net_shape s = {1, 16, 16, 16, NET_TRAINING, 0};
    struct device *dev = open_device(PRECISION_F32, 1);
    struct bench b;
    (void)state;
    bench_open(&b, dev, &def, &s);
    check_finite(&b);
    float *flat = calloc(4096, sizeof *flat);
    for (int value = 0; value < 2; value++) {
        for (int i = 0; i < 4096; i++)
            flat[i] = value ? 1e6f : 0.0f;
        store(dev, b.image.data, flat, 4096);
        check_finite(&b);
    }
    flat[7] = NAN; /* a broken step must not reach the running statistics, which outlive it */
    store(dev, b.image.data, flat, 4096);
    net_forward(b.net, &b.image, &train_pass);
    float *v = fetch(dev, b.params->value, b.params->count);
    for (int64_t i = 0; i < b.params->count; i++)
        assert_true(isfinite(v[i]));
    free(v);
    free(flat);
    bench_close(&b);
    device_close(dev);
}

static void test_fewer_items(void **state)
{
    struct net_definition def = {vnet_define, 1, 2, 3, 0, NET_DROPOUT_BOTH, 0};
    struct net_shape s = {3, 16, 16, 32, NET_FORWARD_ONLY, 0};
    struct device *dev = open_device(PRECISION_F32, 2);
    struct bench b;
    (void)state;
    bench_open(&b, dev, &def, &s);
    net_forward(b.net, &b.image, &train_pass);
    net_forward(b.net, &b.image, &eval_pass);
    struct tensor all = net_value(b.net, "logits"), item = tensor_items(&b.image, 1, 2);
    float *three = fetch_tensor(dev, all);
    net_forward(b.net, &item, &eval_pass);
    struct tensor part = net_value(b.net, "logits");
    float *two = fetch_tensor(dev, part);
    assert_int_equal(part.n, 2);
    assert_memory_equal(two, three + tensor_count(&all) / 3, (size_t)tensor_count(&part) * sizeof *two);
    free(two);
    free(three);
    bench_close(&b);
    device_close(dev);
}

/* Forward-only memory is reused, training memory kept: the values must be the same. */
static void test_plans_agree(void **state)
{
    struct net_definition def = {vnet_define, 1, 2, 4, 0, NET_DROPOUT_BOTH, 0};
    struct net_shape s = {2, 16, 32, 16, NET_TRAINING, 0};
    struct device *dev = open_device(PRECISION_F32, 2);
    struct error e = {0};
    struct bench b;
    struct net *small = NULL;
    (void)state;
    bench_open(&b, dev, &def, &s);
    s.use = NET_FORWARD_ONLY;
    size_t large = dev->bytes;
    assert_ok(net_new(&small, b.params, &def, &s, &e), e);
    assert_true(dev->bytes - large < large / 2);
    net_forward(b.net, &b.image, &train_pass);
    net_forward(small, &b.image, &train_pass);
    assert_int_equal(b.params->batches, 2);
    struct tensor x = net_value(b.net, "logits"), y = net_value(small, "logits");
    float *u = fetch_tensor(dev, x), *v = fetch_tensor(dev, y);
    assert_memory_equal(u, v, (size_t)tensor_count(&x) * sizeof *u);
    params_init(b.params, SEED + 1, SALT); /* weights changed: packed again */
    net_forward(small, &b.image, &train_pass);
    free(v);
    v = fetch_tensor(dev, y);
    assert_true(memcmp(u, v, (size_t)tensor_count(&x) * sizeof *u) != 0);
    free(u);
    free(v);
    net_free(small);
    bench_close(&b);
    device_close(dev);
}

static void test_refused(void **state)
{
    struct net_definition def = {vnet_define, 1, 2, 2, 0, NET_DROPOUT_BOTH, 0}, other = def;
    struct net_shape s = {1, 16, 24, 16, NET_FORWARD_ONLY, 0};
    struct device *dev = open_device(PRECISION_F32, 1);
    struct error e = {0};
    struct params *p = NULL;
    struct net *n = NULL;
    (void)state;
    assert_ok(params_new(&p, dev, &def, PARAMS_NO_GRAD, &e), e);
    assert_refused(net_new(&n, p, &def, &s, &e), e, ERR_CONFIG, "", "16x24x16");
    s.h = 0;
    assert_refused(net_new(&n, p, &def, &s, &e), e, ERR_CONFIG, "");
    s.h = 16;
    other.classes = 3;
    assert_refused(net_new(&n, p, &other, &s, &e), e, ERR_CONFIG, "", "out_conv.weight");
    other = (struct net_definition){aua_define, 1, 2, 2, 2, 0, 0};
    assert_refused(net_new(&n, p, &other, &s, &e), e, ERR_CONFIG, "");
    other.filters = 0;
    assert_refused(params_new(&p, dev, &other, PARAMS_NO_GRAD, &e), e, ERR_CONFIG, "");
    params_free(p);
    device_close(dev);
}

/* Every allocation of the making fails once: an error, no crash, nothing leaked (the sanitizer
 * looks). */
static void test_no_memory(void **state)
{
    struct net_definition def = {aua_define, 1, 2, 2, 2, NET_DROPOUT_BOTH, 0};
    struct net_shape s = {1, 16, 16, 16, NET_TRAINING, 1};
    int rc = -1, at = 0;
    (void)state;
    for (; rc < 0; at++) {
        struct device *dev = open_device(PRECISION_F32, 1);
        struct error e = {0};
        struct params *p = NULL;
        struct net *n = NULL;
        mem_fail_at(at, 0);
        rc = params_new(&p, dev, &def, PARAMS_WITH_GRAD, &e);
        if (rc == 0)
            rc = net_new(&n, p, &def, &s, &e);
        mem_fail_at(-1, 0);
        assert_true(rc == 0 || e.code == ERR_MEMORY);
        net_free(n);
        params_free(p);
        device_close(dev);
    }
    assert_true(at > 40); /* there are more than 30 convolutions alone */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts),      cmocka_unit_test(test_names),
        cmocka_unit_test(test_init),        cmocka_unit_test(test_plan),
        cmocka_unit_test(test_same_bits),   cmocka_unit_test(test_dropout),
        cmocka_unit_test(test_untouched),   cmocka_unit_test(test_gradients_add),
        cmocka_unit_test(test_no_variance), cmocka_unit_test(test_fewer_items),
        cmocka_unit_test(test_plans_agree), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_no_memory),   cmocka_unit_test(test_branches),
        cmocka_unit_test(test_mask_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
