/* Tests of loss.h: cross-entropy and Dice, hard and soft labels, entropy, noise on inputs. Oracles: naive
 * loops in double. */
#include "loss_scene.h"

/* ---- cross-entropy and Dice ------------------------------------------------------------------ */

static void test_zero_logits(void **state)
{
    (void)state;
    struct scene s;
    double ce, dice;
    new_scene(&s, 50, 1, 77, 2, 1, 2, 0);
    memset(s.net[0].mean.data, 0, 77 * 2 * sizeof(float));
    struct tensor *z = &s.net[0].mean;
    double value = loss_ce_dice(s.scratch, z, &s.label, NULL, 0, z, &ce, &dice);
    assert_true(fabs(ce - log(2)) < 1e-7);
    assert_true(fabs(value - 0.5 * (ce + dice)) < 1e-15);
    double ones = 0;
    for (int i = 0; i < 77; i++)
        ones += ((uint8_t *)s.label.data)[i];
    assert_true(fabs(dice - (1 - (ones + 1e-5) / (77 / 4.0 + ones + 1e-5))) < 1e-7);
    free_scene(&s);
}

static void test_no_weights_is_ones(void **state)
{
    (void)state;
    struct scene s;
    struct naive n;
    new_scene(&s, 51, 2, 61, 3, 1, 2, 0);
    new_naive(&n, &s);
    struct tensor *z = &s.net[0].mean, *dz = &s.net[0].dmean, none = {0};
    double plain = loss_ce_dice(s.scratch, z, &s.label, &none, 1, dz, NULL, NULL);
    assert_true(fabs(plain - naive_ce_dice(&n, 0, 1)) < 1e-6);
    /* a constant weight changes nothing but eps: scaled by 1000 that is beyond float */
    for (int i = 0; i < 2 * 61; i++)
        ((float *)s.weight.data)[i] = 1000;
    double scaled = loss_ce_dice(s.scratch, z, &s.label, &s.weight, 0, dz, NULL, NULL);
    assert_true(fabs(plain - scaled) < 1e-6);
    /* Dice alone is that part, with its own weight */
    double dice;
    loss_ce_dice(s.scratch, z, &s.label, NULL, 0, dz, NULL, &dice);
    zero_grads(&s);
    assert_true(loss_dice(s.scratch, z, &s.label, 2.0, dz) == dice);
    double sum = 0, size = 0;
    for (int i = 0; i < 2 * 61 * 3; i++) {
        sum += (double)((float *)dz->data)[i];
        size += fabs((double)((float *)dz->data)[i]);
    }
    assert_true(size > 1e-3 && fabs(sum) < 1e-6 * size); /* a voxel's gradients cancel */
    free_naive(&n);
    free_scene(&s);
}

static void test_empty_weights(void **state)
{
    (void)state;
    struct scene s;
    double ce = 9, dice = 9;
    new_scene(&s, 52, 2, 40, 3, 1, 2, 0);
    memset(s.weight.data, 0, 2 * 40 * sizeof(float));
    struct gaussian *g = &s.net[0];
    double value = loss_ce_dice(s.scratch, &g->mean, &s.label, &s.weight, 1, &g->dmean, &ce, &dice);
    assert_true(value == 0 && ce == 0 && dice == 0);
    assert_true(loss_mse(s.scratch, &g->mean, &s.target, &s.weight, 1, &g->dmean) == 0);
    for (int i = 0; i < 2 * 40 * 3; i++)
        assert_true(((float *)s.net[0].dmean.data)[i] == 0);
    free_scene(&s);
}

/* ---- labels and noise ------------------------------------------------------------------------ */

static void test_hard_labels(void **state)
{
    (void)state;
    for (int classes = 2; classes <= 5; classes++) {
        struct tensor z = new_tensor(1, 99, classes, VALUE_F32);
        struct tensor label = new_tensor(1, 99, 1, VALUE_U8);
        struct tensor sure = new_tensor(1, 99, 1, VALUE_F32);
        fill(&z, 61, 3.0f);
        float *x = z.data;
        for (int c = 0; c < classes; c++)
            x[5 * classes + c] = 1; /* a tie: the first class */
        hard_labels(dev, &z, &label, &sure);
        for (int v = 0; v < 99; v++) {
            int best = 0;
            double sum = 0;
            for (int c = 1; c < classes; c++)
                best = x[v * classes + c] > x[v * classes + best] ? c : best;
            for (int c = 0; c < classes; c++)
                sum += exp((double)x[v * classes + c] - (double)x[v * classes + best]);
            assert_int_equal(((uint8_t *)label.data)[v], best);
            assert_true(fabs((double)((float *)sure.data)[v] - 1 / sum) < 1e-6);
        }
        memset(label.data, 255, 99);
        struct tensor none = {0};
        hard_labels(dev, &z, &label, &none);
        for (int v = 0; v < 99; v++)
            assert_true(((uint8_t *)label.data)[v] < classes);
        free_tensor(&z);
        free_tensor(&label);
        free_tensor(&sure);
    }
}

/* Shares of several softmaxes, and where they are certain; the plain mean without weights; no gradient where
 * the two agree. */
static void test_soft_labels(void **state)
{
    (void)state;
    for (int classes = 2; classes <= 5; classes++) {
        struct scene s;
        struct naive n;
        new_scene(&s, 64, 2, 45, classes, 1, 2, 0);
        new_naive(&n, &s);
        struct tensor mix = new_tensor(2, 45, classes, VALUE_F32), none = {0};
        fill(&mix, 65, 1.0f); /* what was there does not count */
        soft_labels(dev, &mix, &s.net[0].mean, 0.3, SOFT_SET);
        soft_labels(dev, &mix, &s.net[1].mean, 0.7, SOFT_ADD);
        double p[16], q[16], mse = 0;
        for (int v = 0; v < 90; v++) {
            naive_softmax(p, n.value[0][0] + v * classes, classes);
            naive_softmax(q, n.value[1][0] + v * classes, classes);
            for (int c = 0; c < classes; c++) {
                double got = (double)((float *)mix.data)[v * classes + c];
                assert_true(fabs(got - 0.3 * p[c] - 0.7 * q[c]) < 2e-7);
                mse += (p[c] - q[c]) * (p[c] - q[c]) / (90 * classes);
            }
        }
        struct gaussian *g = s.net;
        double value, counted, certain = 0;
        struct tensor sure = new_tensor(2, 45, 1, VALUE_F32);
        certain_voxels(dev, &sure, &mix, 0.8 * log(classes));
        for (int v = 0; v < 90; v++) {
            double entropy = 0;
            for (int c = 0; c < classes; c++) {
                double got = (double)((float *)mix.data)[v * classes + c];
                entropy -= got * log(got + 1e-6);
            }
            assert_true(((float *)sure.data)[v] == (float)(entropy < 0.8 * log(classes)));
            certain += entropy < 0.8 * log(classes);
        }
        assert_true(certain > 10 && certain < 80);
        ask_mse(s.scratch, &g->mean, &s.target, &sure, 0, &g->dmean, &value, &counted);
        loss_settle(s.scratch);
        assert_true(counted == certain);
        free_tensor(&sure);
        assert_true(fabs(loss_mse(s.scratch, &g->mean, &s.target, &none, 0, &g->dmean) - mse) < 1e-7);
        soft_labels(dev, &mix, &g->mean, 1, SOFT_SET);
        assert_true(loss_mse(s.scratch, &g->mean, &mix, NULL, 1, &g->dmean) < 1e-14);
        for (int i = 0; i < 90 * classes; i++)
            assert_true(fabsf(((float *)g->dmean.data)[i]) < 1e-8f);
        free_tensor(&mix);
        free_naive(&n);
        free_scene(&s);
    }
}

/* Nothing known is 1, everything known 0, with no slope at either. */
static void test_entropy(void **state)
{
    (void)state;
    for (int classes = 2; classes <= 5; classes++) {
        struct tensor z = new_tensor(2, 45, classes, VALUE_F32), dz = new_tensor(2, 45, classes, VALUE_F32);
        struct loss_options o = {.classes = classes};
        struct loss_scratch *s;
        struct error e;
        assert_ok(loss_scratch_new(&s, dev, &o, &e), e);
        assert_true(fabs(loss_entropy(s, &z, 1, &dz) - 1) < 1e-5);
        for (int v = 0; v < 90; v++)
            ((float *)z.data)[v * classes + v % classes] = 1000;
        assert_true(fabs(loss_entropy(s, &z, 1, &dz)) < 2e-6);
        for (int i = 0; i < 90 * classes; i++)
            assert_true(fabsf(((float *)dz.data)[i]) < 1e-7f);
        ((float *)z.data)[7] = NAN;
        assert_true(isnan(loss_entropy(s, &z, 1, &dz)));
        loss_scratch_free(s);
        free_tensor(&z);
        free_tensor(&dz);
    }
}

static void test_noise(void **state)
{
    (void)state;
    enum { N = 20003 };
    struct tensor in = new_tensor(1, N, 1, VALUE_F32), out = new_tensor(1, N, 1, VALUE_F32);
    double sum = 0, squares = 0;
    int clipped = 0;
    fill(&in, 62, 1.0f);
    add_noise(dev, &out, &in, 0.1, SEED, 3, RNG_INPUT_NOISE);
    for (int i = 0; i < N; i++) {
        double n[4], d = (double)((float *)out.data)[i] - (double)((float *)in.data)[i];
        normals4(n, rng_block(SEED, 3, RNG_INPUT_NOISE, (uint64_t)i / 4));
        double want = fmin(fmax(n[i % 4], -2), 2) * 0.1;
        assert_true(fabs(d - want) < 2e-7);
        sum += d;
        squares += d * d;
        clipped += fabs(n[i % 4]) > 2;
    }
    assert_true(fabs(sum / N) < 0.1 * 4 / sqrt(N));
    assert_true(fabs(squares / N / 0.01 - 0.9206) < 0.03); /* variance of a clipped normal */
    assert_true(fabs((double)clipped / N - 0.0455) < 0.006);
    free_tensor(&in);
    free_tensor(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_zero_logits),   cmocka_unit_test(test_no_weights_is_ones),
        cmocka_unit_test(test_empty_weights), cmocka_unit_test(test_hard_labels),
        cmocka_unit_test(test_soft_labels),   cmocka_unit_test(test_entropy),
        cmocka_unit_test(test_noise),
    };
    return cmocka_run_group_tests(tests, open_shared, close_shared);
}
