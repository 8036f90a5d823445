/* Tests of loss.h: the losses on logit samples, and all of them on hard cases. Oracles: PyTorch's
 * autograd with the same random numbers (golden/loss.h), naive loops in double and their finite
 * differences. */
#include "loss_scene.h"

#include "golden/loss.h"

/* ---- PyTorch --------------------------------------------------------------------------------- */

static double nmse(const float *got, const float *want, int64_t n)
{
    double error = 0, power = 0;
    for (int64_t i = 0; i < n; i++) {
        error += ((double)got[i] - (double)want[i]) * ((double)got[i] - (double)want[i]);
        power += (double)want[i] * (double)want[i];
    }
    return error / power;
}

static void test_golden(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof golden_losses / sizeof *golden_losses; i++) {
        const struct golden_loss *want = &golden_losses[i];
        struct scene s;
        new_scene(&s, want->number, 2, 20, want->classes, want->rank, want->samples, want->masked);
        double value = run_kind(&s, want->kind, 1.0);
        assert_true(fabs(value - want->value) <= 1e-6 * (1 + fabs(want->value)));
        const struct tensor *grad[] = {&s.net[0].dmean, &s.net[0].ddiag, &s.net[0].dfactor};
        const float *at = want->grad;
        for (int k = 0; k < kind_outputs(want->kind); k++) {
            int64_t n = tensor_count(grad[k]);
            assert_true(nmse(grad[k]->data, at, n) <= 1e-9);
            at += n;
        }
        free_scene(&s);
    }
}

/* ---- finite differences ---------------------------------------------------------------------- */

static double naive_kind(const struct naive *n, int kind)
{
    switch (kind) {
    case GOLDEN_CE_DICE:
    case GOLDEN_CE_DICE_ALL: return naive_ce_dice(n, 1, kind == GOLDEN_CE_DICE);
    case GOLDEN_LIKELIHOOD: return naive_likelihood(n);
    case GOLDEN_LIKELIHOOD_SUM: return n->s->voxels * naive_likelihood(n);
    case GOLDEN_GED_JOINT_SUM: return n->s->samples * n->s->samples * naive_ged(n, 1);
    case GOLDEN_MSE: return naive_mse(n);
    case GOLDEN_ENTROPY: return naive_entropy(n);
    default: return naive_ged(n, kind == GOLDEN_GED_JOINT);
    }
}

/* Every seventh or so derivative of one loss against central differences of the naive one. */
static void check_differences(struct scene *s, struct naive *n, int kind, double weight)
{
    const struct tensor *grad[] = {&s->net[0].dmean, &s->net[0].ddiag, &s->net[0].dfactor};
    const double h = 1e-4;
    zero_grads(s);
    double value = run_kind(s, kind, weight), want = naive_kind(n, kind);
    assert_true(fabs(value - want) <= 1e-6 * (1 + fabs(want)));
    for (int k = 0; k < kind_outputs(kind); k++) {
        int64_t count = tensor_count(grad[k]), stride = count / 40 + 1;
        double largest = 0, worst = 0;
        for (int64_t i = 0; i < count; i += stride) {
            double *x = &n->value[0][k][i], old = *x;
            *x = old + h;
            double up = naive_kind(n, kind);
            *x = old - h;
            double down = naive_kind(n, kind);
            *x = old;
            double slope = weight * (up - down) / (2 * h);
            largest = fmax(largest, fabs(slope));
            worst = fmax(worst, fabs(slope - (double)((const float *)grad[k]->data)[i]));
        }
        assert_true(largest > 1e-6);
        assert_true(worst <= 1e-5 * largest);
    }
}

static void test_differences(void **state)
{
    /* classes, rank, samples, masked, voxels: 33 and 50 leave part of a chunk */
    static const int shapes[][5] = {{2, 8, 6, 0, 50}, {2, 1, 2, 1, 33}, {3, 4, 4, 1, 50}, {5, 2, 6, 0, 33}};
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct scene s;
        struct naive n;
        new_scene(&s, 40 + (int)i, 2, shapes[i][4], shapes[i][0], shapes[i][1], shapes[i][2], shapes[i][3]);
        new_naive(&n, &s);
        check_differences(&s, &n, GOLDEN_CE_DICE, 0.7);
        check_differences(&s, &n, GOLDEN_LIKELIHOOD, 1.3);
        check_differences(&s, &n, GOLDEN_GED, 0.15);
        check_differences(&s, &n, GOLDEN_GED_JOINT, 0.15);
        check_differences(&s, &n, GOLDEN_LIKELIHOOD_SUM, 0.1);
        check_differences(&s, &n, GOLDEN_GED_JOINT_SUM, 0.02);
        check_differences(&s, &n, GOLDEN_CE_DICE_ALL, 0.7);
        check_differences(&s, &n, GOLDEN_MSE, 0.1);
        check_differences(&s, &n, GOLDEN_ENTROPY, 0.1);
        free_naive(&n);
        free_scene(&s);
    }
}

/* ---- hard cases ------------------------------------------------------------------------------ */

static void assert_finite_grads(struct scene *s)
{
    const struct tensor *grad[] = {&s->net[0].dmean, &s->net[0].ddiag, &s->net[0].dfactor};
    for (int k = 0; k < 3; k++)
        for (int64_t i = 0; i < tensor_count(grad[k]); i++)
            assert_true(isfinite(((const float *)grad[k]->data)[i]));
}

static void test_single_class(void **state)
{
    (void)state;
    for (int only = 0; only < 3; only++) {
        struct scene s;
        new_scene(&s, 53, 2, 40, 3, 2, 4, 0);
        memset(s.label.data, only, 2 * 40);
        for (int kind = GOLDEN_CE_DICE; kind < GOLDEN_KINDS; kind++)
            assert_true(isfinite(run_kind(&s, kind, 1)));
        assert_finite_grads(&s);
        free_scene(&s);
    }
}

static void test_huge_logits(void **state)
{
    (void)state;
    for (int classes = 2; classes <= 4; classes += 2) {
        struct scene s;
        new_scene(&s, 54, 2, 70, classes, 2, 4, 0);
        for (int i = 0; i < 2; i++) {
            float *mean = s.net[i].mean.data;
            for (int k = 0; k < 2 * 70 * classes; k++)
                mean[k] = k % 3 == 0 ? mean[k] : mean[k] > 0 ? 1e4f : -1e4f;
        }
        for (int kind = GOLDEN_CE_DICE; kind < GOLDEN_KINDS; kind++)
            assert_true(isfinite(run_kind(&s, kind, 1)));
        assert_finite_grads(&s);
        struct naive n;
        double ce = 0, want = 0;
        new_naive(&n, &s);
        for (int i = 0; i < 2 * 70; i++) { /* log-sum-exp by hand, in double */
            const double *z = n.value[0][0] + i * classes;
            double top = z[0], sum = 0;
            for (int c = 1; c < classes; c++)
                top = fmax(top, z[c]);
            for (int c = 0; c < classes; c++)
                sum += exp(z[c] - top);
            want += (top + log(sum) - z[((uint8_t *)s.label.data)[i]]) / (2 * 70);
        }
        loss_ce_dice(s.scratch, &s.net[0].mean, &s.label, NULL, 0, &s.net[0].dmean, &ce, NULL);
        assert_true(fabs(ce - want) < 1e-6 * want);
        free_naive(&n);
        free_scene(&s);
    }
}

/* ---- samples --------------------------------------------------------------------------------- */

static void test_ged_of_equals(void **state)
{
    (void)state;
    struct scene s;
    new_scene(&s, 55, 2, 64, 3, 4, 6, 1);
    struct gaussian same = s.net[0];
    for (int joint = 0; joint < 2; joint++) {
        assert_true(fabs(loss_ged(s.scratch, &s.net[0], &same, 6, joint, 0)) < 1e-12);
        double there = loss_ged(s.scratch, &s.net[0], &s.net[1], 6, joint, 0);
        double back = loss_ged(s.scratch, &s.net[1], &s.net[0], 6, joint, 0);
        assert_true(fabs(there) > 1e-3 && fabs(there - back) < 1e-7);
    }
    free_scene(&s);
}

/* Certain and opposite: every distance between is 1, within 0 (class mean) or 1/2 (joint). */
static void test_ged_of_opposites(void **state)
{
    (void)state;
    struct scene s;
    new_scene(&s, 56, 1, 90, 2, 2, 4, 0);
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < 180; k++)
            ((float *)s.net[i].mean.data)[k] = (k + k / 2 + i) % 2 ? 1000.0f : -1000.0f;
    assert_true(fabs(loss_ged(s.scratch, &s.net[0], &s.net[1], 4, 0, 1) - 2) < 1e-6);
    assert_true(fabs(loss_ged(s.scratch, &s.net[0], &s.net[1], 4, 1, 1) - 1) < 1e-6);
    free_scene(&s);
}

static void test_certain_likelihood_is_ce(void **state)
{
    (void)state;
    struct scene s;
    double ce;
    new_scene(&s, 57, 2, 3000, 3, 4, 6, 1);
    memset(s.net[0].mask.data, 0, 2 * 3000); /* factor 0, variance 1e-5 */
    loss_ce_dice(s.scratch, &s.net[0].mean, &s.label, NULL, 0, &s.net[0].dmean, &ce, NULL);
    double mc = loss_mc_likelihood(s.scratch, &s.net[0], &s.label, 6, 1);
    assert_true(fabs(mc - ce) < 3e-4);
    for (int64_t i = 0; i < tensor_count(&s.net[0].dfactor); i++)
        assert_true(((float *)s.net[0].dfactor.data)[i] == 0);
    free_scene(&s);
}

static void test_not_finite(void **state)
{
    (void)state;
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 6; i++) {
        int classes = i < 3 ? 2 : 3;
        struct scene s;
        new_scene(&s, 58, 1, 50, classes, 2, 4, 0);
        ((float *)s.net[0].factor.data)[17 * 2 * classes + 1] = bad[i % 3];
        assert_true(!isfinite(loss_mc_likelihood(s.scratch, &s.net[0], &s.label, 4, 1)));
        assert_true(!isfinite(loss_ged(s.scratch, &s.net[0], &s.net[1], 4, 0, 1)));
        free_scene(&s);
    }
}

/* Items 1 and 2 of three, told where they stand, draw what they drew in the whole batch. */
static void test_views(void **state)
{
    (void)state;
    struct scene s;
    new_scene(&s, 59, 3, 40, 2, 3, 4, 0);
    struct gaussian part[2][2]; /* first item, the rest */
    struct tensor label[2];
    for (int k = 0; k < 2; k++) {
        int first = k, n = 1 + k;
        label[k] = tensor_items(&s.label, first, n);
        for (int i = 0; i < 2; i++) {
            struct gaussian *g = &part[k][i];
            *g = s.net[i];
            g->mean = tensor_items(&g->mean, first, n);
            g->diag = tensor_items(&g->diag, first, n);
            g->factor = tensor_items(&g->factor, first, n);
            g->dmean.data = g->ddiag.data = g->dfactor.data = NULL;
            g->first_item = first;
        }
    }
    double whole = 3 * loss_mc_likelihood(s.scratch, &s.net[0], &s.label, 4, 0);
    double parts = 0, last = 0;
    double ged = 3 * loss_ged(s.scratch, &s.net[0], &s.net[1], 4, 0, 0), ged_parts = 0;
    for (int k = 0; k < 2; k++) {
        last = loss_mc_likelihood(s.scratch, &part[k][0], &label[k], 4, 1);
        parts += (k + 1) * last;
        ged_parts += (k + 1) * loss_ged(s.scratch, &part[k][0], &part[k][1], 4, 0, 1);
    }
    assert_true(fabs(whole - parts) < 1e-12 * fabs(whole));
    assert_true(fabs(ged - ged_parts) < 1e-12 * fabs(ged));
    part[1][0].first_item = 0; /* other numbers elsewhere */
    double moved = loss_mc_likelihood(s.scratch, &part[1][0], &label[1], 4, 0);
    assert_true(fabs(moved - last) > 1e-6);
    free_scene(&s);
}

/* More sums than one reduction makes: Gram matrices of 16 samples and 14 classes are 7,392. */
static void test_many_classes(void **state)
{
    (void)state;
    struct scene s;
    new_scene(&s, 60, 1, 40, 14, 2, 16, 0);
    struct naive n;
    new_naive(&n, &s);
    double want = naive_ged(&n, 0);
    assert_true(fabs(loss_ged(s.scratch, &s.net[0], &s.net[1], 16, 0, 1) - want) < 1e-6);
    assert_true(fabs(loss_mc_likelihood(s.scratch, &s.net[0], &s.label, 16, 1) - naive_likelihood(&n)) <
                1e-6);
    free_naive(&n);
    free_scene(&s);
}

static void test_refusals(void **state)
{
    (void)state;
    struct loss_scratch *s;
    struct error e;
    static const struct loss_options refused[] = {{.classes = 1},
                                                  {.classes = 257},
                                                  {.classes = 2, .samples = 5},
                                                  {.classes = 2, .samples = 18},
                                                  {.classes = 100, .samples = 6}};
    static const struct loss_options fine = {.classes = 2, .samples = 6};
    for (int i = 0; i < 5; i++)
        assert_refused(loss_scratch_new(&s, dev, &refused[i], &e), e, ERR_CONFIG, i < 4 ? "" : "C03");
    for (int i = 0; i < 4; i++) {            /* no memory: refused, nothing lost */
        struct device *own = open_device(1); /* its error will stick */
        mem_fail_at(i, 1);
        assert_int_equal(loss_scratch_new(&s, own, &fine, &e), -1);
        mem_fail_at(-1, 0);
        assert_int_equal(e.code, ERR_MEMORY);
        assert_null(s);
        device_close(own);
    }
}

/* ---- threads --------------------------------------------------------------------------------- */

static uint64_t hash_floats(const struct tensor *t, uint64_t start)
{
    return hash_bytes(t->data, (size_t)tensor_count(t) * sizeof(float), start);
}

/* Several blocks of voxels an item: values and gradients are the same bytes for any number of
 * threads. */
static void test_threads(void **state)
{
    static const int threads[] = {1, 2, 4};
    uint64_t first = 0;
    struct device *shared = dev;
    (void)state;
    for (int i = 0; i < 3; i++) {
        dev = open_device(threads[i]);
        struct scene s;
        new_scene(&s, 63, 2, 14001, 2, 8, 6, 1);
        double value[GOLDEN_KINDS];
        for (int kind = GOLDEN_CE_DICE; kind < GOLDEN_KINDS; kind++)
            value[kind] = run_kind(&s, kind, 1);
        uint64_t hash = hash_bytes(value, sizeof value, 1);
        hash = hash_floats(&s.net[0].dmean, hash);
        hash = hash_floats(&s.net[0].ddiag, hash);
        hash = hash_floats(&s.net[0].dfactor, hash);
        first = i ? first : hash;
        assert_true(hash == first);
        free_scene(&s);
        device_close(dev);
    }
    dev = shared;
}

static uint64_t hash_grads(const struct scene *s)
{
    uint64_t hash = hash_floats(&s->net[0].dmean, 1);
    hash = hash_floats(&s->net[0].ddiag, hash);
    return hash_floats(&s->net[0].dfactor, hash);
}

/* Many losses asked before they are settled give the bytes that they give one by one; more than there is
 * room for are settled in between. */
static void test_settled_together(void **state)
{
    enum { ROUNDS = 5 }; /* of 3 + 1 + 3 sums */
    double alone[3], mc[ROUNDS], dice[ROUNDS], ged[ROUNDS];
    struct scene s;
    (void)state;
    new_scene(&s, 64, 3, 5000, 2, 8, 6, 1);
    struct gaussian *g = s.net;
    for (int i = 0; i < ROUNDS; i++) {
        alone[0] = loss_mc_likelihood(s.scratch, g, &s.label, 6, 0.5);
        alone[1] = loss_dice(s.scratch, &g->mean, &s.label, 0.5, &g->dmean);
        alone[2] = loss_ged(s.scratch, &g[0], &g[1], 6, 0, 0.1);
    }
    uint64_t want = hash_grads(&s);
    zero_grads(&s);
    for (int i = 0; i < ROUNDS; i++) {
        ask_mc_likelihood(s.scratch, g, &s.label, 6, 0.5, &mc[i]);
        ask_dice(s.scratch, &g->mean, &s.label, 0.5, &g->dmean, &dice[i]);
        ask_ged(s.scratch, &g[0], &g[1], 6, 0, 0.1, &ged[i]);
    }
    loss_settle(s.scratch);
    assert_true(hash_grads(&s) == want);
    for (int i = 0; i < ROUNDS; i++)
        assert_true(mc[i] == alone[0] && dice[i] == alone[1] && ged[i] == alone[2]);
    loss_settle(s.scratch); /* nothing is left */
    assert_true(hash_grads(&s) == want);
    free_scene(&s);
}

/* Fresh gradients are set, whatever was there; a weight of 0 sets zeros. */
static void test_fresh(void **state)
{
    struct scene s;
    (void)state;
    new_scene(&s, 65, 2, 333, 2, 8, 6, 0);
    struct gaussian *g = s.net;
    for (int kind = GOLDEN_LIKELIHOOD; kind <= GOLDEN_GED; kind++)
        for (int weight = 0; weight < 2; weight++) {
            zero_grads(&s);
            run_kind(&s, kind, weight);
            uint64_t want = hash_grads(&s);
            fill(&g->dmean, 1, 3), fill(&g->ddiag, 2, 3), fill(&g->dfactor, 3, 3);
            g->fresh = 1;
            run_kind(&s, kind, weight);
            g->fresh = 0;
            assert_true(hash_grads(&s) == want);
        }
    free_scene(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_differences),
        cmocka_unit_test(test_single_class),
        cmocka_unit_test(test_huge_logits),
        cmocka_unit_test(test_ged_of_equals),
        cmocka_unit_test(test_ged_of_opposites),
        cmocka_unit_test(test_certain_likelihood_is_ce),
        cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_views),
        cmocka_unit_test(test_many_classes),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_settled_together),
        cmocka_unit_test(test_fresh),
    };
    return cmocka_run_group_tests(tests, open_shared, close_shared);
}
