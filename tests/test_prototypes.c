/* test_prototypes.c - pooled statistics of classes in feature space, and the loss against them.
 *
 * Oracles: mean and covariance of everything at once, a textbook loop over voxels with finite
 * differences, and PyTorch (golden/contrast_cases.h).
 */
#include "feature_scene.h"

/* ---- prototypes ----------------------------------------------------------------------------- */

static struct prototypes *prototypes_new(int classes, int full)
{
    struct prototypes *p = take(1, sizeof *p);
    p->classes = classes;
    p->full = full;
    return p;
}

static void feed(struct prototypes *p, float *x, uint8_t *label, int n)
{
    struct tensor f = {x, VALUE_F32, 1, 1, 1, n, C}, l = {label, VALUE_U8, 1, 1, 1, n, 1};
    prototypes_update(dev, p, &f, &l);
}

/* Mean and biased covariance of everything, class by class, against p. */
static void check_prototypes(const struct prototypes *p, const float *x, const uint8_t *label, int n,
                             double tolerance)
{
    for (int c = 0; c < p->classes; c++) {
        double count = 0, mean[C] = {0}, cov[C][C] = {{0}};
        for (int i = 0; i < n; i++)
            for (int a = 0; a < C && label[i] == c; a++) {
                count += a == 0;
                mean[a] += (double)x[i * C + a];
            }
        for (int a = 0; a < C; a++)
            mean[a] /= count > 0 ? count : 1;
        for (int i = 0; i < n; i++)
            for (int a = 0; a < C && label[i] == c; a++)
                for (int b = 0; b < C; b++)
                    cov[a][b] += ((double)x[i * C + a] - mean[a]) * ((double)x[i * C + b] - mean[b]) / count;
        assert_true(p->count[c] == count);
        for (int a = 0; a < C; a++) {
            near(p->mean[c][a], mean[a], tolerance);
            for (int b = 0; b < C; b++)
                near(p->cov[c][a][b], a == b || p->full ? cov[a][b] : 0, tolerance);
        }
    }
}

static void test_prototypes_pooled(void **state)
{
    enum { N = 3000 };
    float *x = take(N * C, sizeof *x);
    uint8_t *label = take(N, 1);
    (void)state;
    open_device(NULL, 2, 2, 0);
    for (int round = 0; round < 4; round++) {
        int full = round % 2, classes = round < 2 ? 3 : 21;
        /* once far from 0 against their spread */
        fill(x, N * C, (uint64_t)round, round == 1 ? 500.0f : 0.0f);
        fill_label(label, N, (uint64_t)round, (uint32_t)classes);
        for (int i = 0; i < N; i++) {
            label[i] = label[i] == 1 && i < 1500 ? 0 : label[i]; /* class 1 comes late */
            for (int a = 0; a < C; a++)
                x[i * C + a] += (float)(label[i] * a % 5) + (i > 2000 ? 3.0f : 0.0f);
        }
        struct prototypes *once = prototypes_new(classes, full);
        struct prototypes *parts = prototypes_new(classes, full);
        feed(once, x, label, N);
        check_prototypes(once, x, label, N, 2e-6);
        for (int i = 0, step = 1; i < N; i += step, step = 2 * step < N - i ? 2 * step : N - i)
            feed(parts, x + i * C, label + i, step);
        check_prototypes(parts, x, label, N, 2e-6);
        mem_free(once), mem_free(parts);
    }
    close_device();
    mem_free(x), mem_free(label);
}

static void test_prototypes_threads(void **state)
{
    enum { N = 20000 };
    float *x = take(N * C, sizeof *x);
    uint8_t *label = take(N, 1);
    struct prototypes *first = prototypes_new(3, 1), *p = prototypes_new(3, 1);
    (void)state;
    fill(x, N * C, 1, 1);
    fill_label(label, N, 1, 3);
    for (int threads = 1; threads <= 4; threads *= 2) {
        open_device(NULL, threads, 3, 0);
        memset(p->count, 0, sizeof *p - offsetof(struct prototypes, count));
        feed(p, x, label, N);
        feed(p, x, label, N / 2);
        close_device();
        if (threads == 1)
            memcpy(first, p, sizeof *p);
        assert_memory_equal(first, p, sizeof *p);
    }
    mem_free(x), mem_free(label), mem_free(first), mem_free(p);
}

/* ---- prototype loss: textbook loops --------------------------------------------------------- */

struct naive_pcl {
    const struct prototypes *p;
    const uint8_t *label;
    const float *weights; /* or NULL */
    int n, ignore_bg;
    double tau;
    int unscaled;
};

/* u.S u / 2 for class c. */
static double naive_form(const struct prototypes *p, const double *u, int c)
{
    double norm = 0, form = 0;
    for (int a = 0; a < C; a++)
        for (int b = 0; b < C; b++) {
            norm += p->cov[c][a][b] * p->cov[c][a][b];
            form += u[a] * p->cov[c][a][b] * u[b];
        }
    return norm > 0 ? 0.5 * form / sqrt(norm) : 0;
}

static double naive_voxel(const struct naive_pcl *q, const double *f, int label)
{
    double u[C], length = 0, sum = 0, mine = 0;
    for (int a = 0; a < C; a++)
        length += f[a] * f[a];
    for (int a = 0; a < C; a++)
        u[a] = f[a] / sqrt(length);
    for (int c = 0; c < q->p->classes; c++) {
        double norm = 0, dot = 0;
        for (int a = 0; a < C; a++) {
            norm += q->p->mean[c][a] * q->p->mean[c][a];
            dot += u[a] * q->p->mean[c][a];
        }
        if (q->p->count[c] == 0)
            continue;
        double logit = (dot / sqrt(norm) + naive_form(q->p, u, c) / q->tau) / q->tau;
        sum += exp(logit);
        mine = c == label ? logit : mine;
    }
    return log(sum) - mine + naive_form(q->p, u, label) * (q->unscaled ? 2 : 1 / (q->tau * q->tau));
}

/* Sum over voxels first .. first + n - 1, and of their weights. */
static double naive_sum(const struct naive_pcl *q, const double *f, int first, int n, double *count)
{
    double value = 0;
    *count = 0;
    for (int i = first; i < first + n; i++) {
        double w = q->weights ? (double)q->weights[i] : 1;
        if (q->p->count[q->label[i]] == 0 || (q->ignore_bg && q->label[i] == 0) || w == 0)
            continue;
        value += w * naive_voxel(q, f + i * C, q->label[i]);
        *count += w;
    }
    return value;
}

static double run_prototypes(const struct naive_pcl *q, float *f, float *df, double weight, int fresh)
{
    struct tensor x = {f, VALUE_F32, 1, 1, 1, q->n, C}, dx = {df, VALUE_F32, 1, 1, 1, q->n, C};
    union {
        const void *in;
        void *out;
    } label = {q->label}, weights = {q->weights}; /* tensors point to what may be written */
    struct tensor l = {label.out, VALUE_U8, 1, 1, 1, q->n, 1};
    struct tensor w = {weights.out, VALUE_F32, 1, 1, 1, q->n, 1};
    struct pcl how = {.prototypes = q->p,
                      .tau = q->tau,
                      .ignore_bg = q->ignore_bg,
                      .unscaled = q->unscaled,
                      .fresh = fresh};
    double value;
    ask_prototypes(scratch, &how, &x, &l, &w, weight, &dx, &value);
    loss_settle(scratch);
    return value;
}

static void check_pcl(const struct naive_pcl *q, float *f)
{
    size_t n = (size_t)q->n * C;
    float *df = take(n, sizeof *df);
    double *x = take(n, sizeof *x), *want = take(n, sizeof *want);
    for (size_t i = 0; i < n; i++) {
        x[i] = (double)f[i];
        df[i] = 1;
    }
    double count, own, sum = naive_sum(q, x, 0, q->n, &count);
    near(run_prototypes(q, f, df, 3, 0), sum / count, 1e-6);
    for (size_t i = 0; i < n; i++) {
        double h = 1e-5, at = x[i];
        x[i] = at + h;
        double up = naive_sum(q, x, (int)(i / C), 1, &own);
        x[i] = at - h;
        want[i] = 3 * (up - naive_sum(q, x, (int)(i / C), 1, &own)) / (2 * h * count);
        x[i] = at;
        df[i] -= 1;
    }
    double error = nmse(df, want, n);
    if (!(error < 1e-6))
        test_fail("tau %g, full %d: gradient NMSE %g", q->tau, q->p->full, error);
    for (size_t i = 0; i < n; i++)
        df[i] = NAN;
    run_prototypes(q, f, df, 3, 1);
    error = nmse(df, want, n);
    if (!(error < 1e-6))
        test_fail("tau %g, full %d: gradient NMSE %g when set", q->tau, q->p->full, error);
    mem_free(df), mem_free(x), mem_free(want);
}

static void test_prototype_loss(void **state)
{
    enum { N = 150 };
    float f[N * C], seen[600 * C], weights[N];
    uint8_t label[N], seen_label[600];
    (void)state;
    open_device(NULL, 2, 4, 0);
    fill(f, N * C, 1, 0.3f);
    fill(seen, 600 * C, 2, 0.5f);
    fill_label(label, N, 3, 4);
    fill_label(seen_label, 600, 4, 3); /* class 3 is never seen */
    for (int i = 0; i < 600 * C; i++)
        seen[i] *= 0.3f + (float)(seen_label[i / C] * (i % C) % 4);
    for (int i = 0; i < N; i++)
        weights[i] = i % 5 ? (float)(i % 3) : 0.5f;
    for (int full = 0; full < 2; full++) {
        struct prototypes *p = prototypes_new(4, full);
        feed(p, seen, seen_label, 600);
        for (int k = 0; k < 8; k++) {
            struct naive_pcl q = {p, label, k / 2 % 2 ? weights : NULL, N, k % 2, full ? 0.3 : 0.7, k / 4};
            check_pcl(&q, f);
        }
        mem_free(p);
    }
    close_device();
}

/* Nothing to do [M08], and covariances that are poor [M09]: always finite. */
static void test_prototype_edges(void **state)
{
    enum { N = 40 };
    float f[N * C], df[N * C] = {0}, zero[N] = {0};
    uint8_t label[N] = {0};
    (void)state;
    open_device(NULL, 1, 3, 0);
    fill(f, N * C, 1, 0);
    for (int full = 0; full < 2; full++) {
        struct prototypes *p = prototypes_new(3, full);
        struct naive_pcl q = {p, label, NULL, N, 0, 100, 0};
        assert_true(run_prototypes(&q, f, df, 1, 0) == 0); /* no class seen */
        feed(p, f, label, N);
        q.ignore_bg = 1;
        assert_true(run_prototypes(&q, f, df, 1, 0) == 0); /* background only */
        q = (struct naive_pcl){p, label, zero, N, 0, 100, 0};
        assert_true(run_prototypes(&q, f, df, 1, 0) == 0); /* no weight */
        for (int i = 0; i < N * C; i++)
            assert_true(df[i] == 0);

        memset(p->count, 0, sizeof p->count);
        memset(p->mean, 0, sizeof p->mean);
        memset(p->cov, 0, sizeof p->cov);
        for (int i = 0; i < N; i++) /* one voxel of class 1, five of class 2, the rest equal */
            label[i] = i == 0 ? 1 : i < 6 ? 2 : 0;
        for (int i = 6 * C; i < N * C; i++)
            f[i] = f[i % C];
        feed(p, f, label, N);
        q = (struct naive_pcl){p, label, NULL, N, 0, 0.1, 0};
        double v = run_prototypes(&q, f, df, 1, 0);
        assert_true(isfinite(v) && v > 0);
        for (int i = 0; i < N * C; i++)
            assert_true(isfinite(df[i]));
        for (int a = 0; a < C; a++) {
            assert_true(p->cov[1][a][a] == 0 && fabs(p->cov[0][a][a]) < 1e-12);
            if (full) /* the matrix of five voxels is kept, the loss takes its diagonal */
                p->cov[2][a][(a + 1) % C] = 1e6;
        }
        memset(df, 0, sizeof df);
        near(run_prototypes(&q, f, df, 1, 0), v, 0);

        struct prototypes before = *p;
        f[3] = INFINITY; /* of class 1: that class stays as it was */
        feed(p, f, label, N);
        assert_memory_equal(before.mean[1], p->mean[1], sizeof p->mean[1]);
        assert_true(before.count[1] == p->count[1] && before.count[2] + 5 == p->count[2]);
        fill(f, N * C, 1, 0);
        memset(label, 0, sizeof label);
        memset(df, 0, sizeof df);
        mem_free(p);
    }
    close_device();
}

static void test_golden_prototypes(void **state)
{
    enum { N = 40, SEEN = 200 };
    float f[N * C], df[N * C], seen[SEEN * C];
    uint8_t label[N], seen_label[SEEN];
    (void)state;
    open_device(NULL, 1, 3, 0);
    for (uint32_t i = 0; i < SEEN * C; i++) {
        seen_label[i / C] = (uint8_t)(i / C % 3);
        seen[i] = (float)(golden_noise(3, i) + 0.3 * (i / C % 3) * sin(i % C));
    }
    for (uint32_t i = 0; i < N * C; i++)
        f[i] = (float)golden_noise(4, i);
    for (uint32_t i = 0; i < N; i++)
        label[i] = (uint8_t)((golden_noise(5, i) + 0.5) * 3);
    static const double values[] = {golden_diagonal_value, golden_full_value, golden_unscaled_value};
    static const double *const grads[] = {golden_diagonal, golden_full, golden_unscaled};
    for (int i = 0; i < 3; i++) {
        struct prototypes *p = prototypes_new(3, i > 0);
        struct naive_pcl q = {p, label, NULL, N, i == 1, 0.5, i == 2};
        memset(df, 0, sizeof df);
        feed(p, seen, seen_label, SEEN);
        near(run_prototypes(&q, f, df, 1, 0), values[i], 1e-6);
        assert_true(nmse(df, grads[i], N * C) < 1e-10);
        mem_free(p);
    }
    close_device();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prototypes_pooled), cmocka_unit_test(test_prototypes_threads),
        cmocka_unit_test(test_prototype_loss),    cmocka_unit_test(test_prototype_edges),
        cmocka_unit_test(test_golden_prototypes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
