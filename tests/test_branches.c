/* Tests of the losses between the outputs of one network, and of Dice without squares. Oracles: naive loops
 * in double and their finite differences. */
#include "loss_scene.h"

enum kind { LINEAR_DICE, MUTUAL_ALL, MUTUAL_FIRST, PYRAMID, KINDS };
enum { ITEMS = 2, MOST = 4 };

static const struct mutual all_pairs = {.askers = 3, .sharpness = 10, .share = 1};
static const struct mutual first_only = {.askers = 1, .sharpness = 1, .share = 1.0 / 3};

struct branches {
    int n, classes, voxels;
    struct loss_branches of;
    struct tensor label;
    struct loss_scratch *scratch;
    double *z[MOST];
};

static void open_branches(struct branches *b, int n, int classes, int voxels, float size)
{
    struct loss_options o = {.classes = classes, .dice_share = 1, .dice_linear = 1};
    struct error e;
    *b = (struct branches){.n = n, .classes = classes, .voxels = voxels, .of = {.n = n}};
    assert_ok(loss_scratch_new(&b->scratch, dev, &o, &e), e);
    b->label = new_tensor(ITEMS, voxels, 1, VALUE_U8);
    fill_bytes(&b->label, 7, classes);
    for (int i = 0; i < n; i++) {
        b->of.logits[i] = new_tensor(ITEMS, voxels, classes, VALUE_F32);
        b->of.dlogits[i] = new_tensor(ITEMS, voxels, classes, VALUE_F32);
        fill(&b->of.logits[i], 80 + i, size);
        int64_t count = tensor_count(&b->of.logits[i]);
        b->z[i] = mem_alloc(&e, (size_t)count, sizeof(double));
        for (int64_t k = 0; k < count; k++)
            b->z[i][k] = (double)((float *)b->of.logits[i].data)[k];
    }
}

static void close_branches(struct branches *b)
{
    for (int i = 0; i < b->n; i++) {
        free_tensor(&b->of.logits[i]);
        free_tensor(&b->of.dlogits[i]);
        mem_free(b->z[i]);
    }
    free_tensor(&b->label);
    loss_scratch_free(b->scratch);
}

static double run_kind_of(struct branches *b, enum kind kind, double weight)
{
    double value = 0;
    for (int i = 0; i < b->n; i++)
        memset(b->of.dlogits[i].data, 0, (size_t)tensor_count(&b->of.dlogits[i]) * sizeof(float));
    if (kind == LINEAR_DICE)
        ask_dice(b->scratch, &b->of.logits[0], &b->label, weight, &b->of.dlogits[0], &value);
    else if (kind == PYRAMID)
        ask_pyramid(b->scratch, &b->of, weight, &value);
    else
        ask_mutual(b->scratch, &b->of, kind == MUTUAL_ALL ? &all_pairs : &first_only, weight, &value);
    loss_settle(b->scratch);
    return value;
}

/* ---- naive loops ----------------------------------------------------------------------------- */

static double naive_linear(const struct branches *b)
{
    double I[8] = {0}, P[8] = {0}, Y[8] = {0}, p[8], dice = 0;
    for (int v = 0; v < ITEMS * b->voxels; v++) {
        int y = ((const uint8_t *)b->label.data)[v];
        naive_softmax(p, b->z[0] + v * b->classes, b->classes);
        for (int c = 1; c < b->classes; c++) {
            I[c] += y == c ? p[c] : 0;
            P[c] += p[c];
            Y[c] += y == c;
        }
    }
    for (int c = 1; c < b->classes; c++)
        dice += (1 - (2 * I[c] + 1e-8) / (P[c] + Y[c] + 1e-8)) / (b->classes - 1);
    return dice;
}

static double naive_mutual(const struct branches *b, const struct mutual *m)
{
    double sum = 0, p[8], q[8];
    for (int v = 0; v < ITEMS * b->voxels; v++)
        for (int i = 0; i < m->askers; i++)
            for (int j = 0; j < b->n; j++) {
                double total = 0;
                naive_softmax(p, b->z[i] + v * b->classes, b->classes);
                naive_softmax(q, b->z[j] + v * b->classes, b->classes);
                for (int c = 0; c < b->classes; c++)
                    total += q[c] = pow(q[c], m->sharpness); /* as published, by probabilities */
                for (int c = 0; i != j && c < b->classes; c++)
                    sum += (p[c] - q[c] / total) * (p[c] - q[c] / total);
            }
    return m->share * sum / (ITEMS * b->voxels * b->classes);
}

static double naive_pyramid(const struct branches *b)
{
    int C = b->classes, voxels = ITEMS * b->voxels;
    double top[MOST] = {0}, sure[MOST] = {0}, kls[MOST] = {0}, value = 0;
    for (int v = 0; v < voxels; v++) {
        double p[MOST][8], mean[8] = {0};
        for (int k = 0; k < b->n; k++) {
            naive_softmax(p[k], b->z[k] + v * C, C);
            for (int c = 0; c < C; c++)
                mean[c] += p[k][c] / b->n;
        }
        for (int k = 0; k < b->n; k++) {
            double kl = 0, square = 0;
            for (int c = 0; c < C; c++) {
                kl += mean[c] * (log(mean[c]) - log(p[k][c]));
                square += (mean[c] - p[k][c]) * (mean[c] - p[k][c]);
            }
            top[k] += exp(-kl) * square / (voxels * C);
            sure[k] += exp(-kl) / voxels;
            kls[k] += kl / voxels;
        }
    }
    for (int k = 0; k < b->n; k++)
        value += (top[k] / (sure[k] + 1e-8) + kls[k]) / b->n;
    return value;
}

static double naive_of(const struct branches *b, enum kind kind)
{
    if (kind == PYRAMID)
        return naive_pyramid(b);
    if (kind == LINEAR_DICE)
        return naive_linear(b);
    return naive_mutual(b, kind == MUTUAL_ALL ? &all_pairs : &first_only);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void check_slopes(struct branches *b, enum kind kind, double weight)
{
    const double h = 1e-5;
    double value = run_kind_of(b, kind, weight), want = naive_of(b, kind);
    assert_true(fabs(value - want) <= 1e-6 * (1 + fabs(want)));
    for (int i = 0; i < (kind == LINEAR_DICE ? 1 : b->n); i++) {
        const float *grad = b->of.dlogits[i].data;
        double largest = 0, worst = 0;
        for (int k = 0; k < ITEMS * b->voxels * b->classes; k += 7) {
            double *x = &b->z[i][k], old = *x;
            *x = old + h;
            double up = naive_of(b, kind);
            *x = old - h;
            double slope = weight * (up - naive_of(b, kind)) / (2 * h);
            *x = old;
            largest = fmax(largest, fabs(slope));
            worst = fmax(worst, fabs(slope - (double)grad[k]));
        }
        assert_true(largest > 1e-6);
        assert_true(worst <= 2e-5 * largest);
    }
}

/* 33 and 50 voxels leave part of a chunk. */
static void test_differences(void **state)
{
    (void)state;
    for (int classes = 2; classes <= 5; classes++)
        for (enum kind kind = LINEAR_DICE; kind < KINDS; kind++) {
            struct branches b;
            open_branches(&b, kind >= MUTUAL_FIRST ? 4 : 3, classes, classes % 2 ? 33 : 50, 2.0f);
            check_slopes(&b, kind, 0.7);
            close_branches(&b);
        }
}

/* Logits of any size: values within bounds, finite slopes; agreement and certainty cost nothing. */
static void test_extremes(void **state)
{
    (void)state;
    for (enum kind kind = MUTUAL_ALL; kind < KINDS; kind++) {
        struct branches b;
        open_branches(&b, 3, 3, 50, 3e4f);
        double value = run_kind_of(&b, kind, 1);
        assert_true(value > 0 && value < (kind == PYRAMID ? 3e4 : 6));
        for (int i = 0; i < b.n; i++)
            for (int k = 0; k < ITEMS * 50 * 3; k++)
                assert_true(isfinite(((float *)b.of.dlogits[i].data)[k]));
        for (int i = 1; i < b.n; i++)
            memcpy(b.of.logits[i].data, b.of.logits[0].data, ITEMS * 50 * 3 * sizeof(float));
        assert_true(fabs(run_kind_of(&b, kind, 1)) < 1e-6);
        ((float *)b.of.logits[1].data)[5] = NAN;
        assert_true(isnan(run_kind_of(&b, kind, 1)));
        close_branches(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_differences),
        cmocka_unit_test(test_extremes),
    };
    return cmocka_run_group_tests(tests, open_shared, close_shared);
}
