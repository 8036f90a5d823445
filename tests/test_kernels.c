/* Tests of kernels.h and isa/loops.h: the functions that bodies are written with, against libm in
 * double; random numbers against base/rng.h; loads and stores of every shape; all levels of this
 * processor against each other; and how a device cuts ranges and adds sums. */
#include "test.h"

#include <math.h>
#include <sys/mman.h>

#include "base/rng.h"
#include "device/device.h"
#include "device/isa/levels.h"
#include "device/isa/loops.h"
#include "device/kernels.h"

/* ---- functions ------------------------------------------------------------------------------- */

static void test_exp(void **state)
{
    (void)state;
    double worst = 0;
    for (int i = -870000; i <= 880000; i++) {
        float x = (float)i * 1e-4f, got = k_exp(x);
        double want = exp((double)x);
        worst = fmax(worst, fabs((double)got - want) / want);
    }
    for (uint32_t u = 0x20000000; u < 0x3F800000; u += 1009) { /* near 0, both signs */
        double p = (double)k_float(u);
        worst = fmax(worst, fabs((double)k_exp((float)p) - exp(p)) / exp(p));
        worst = fmax(worst, fabs((double)k_exp((float)-p) - exp(-p)) / exp(-p));
    }
    print_message("exp: relative error %.2g\n", worst);
    assert_true(worst <= 2e-7);
    assert_true(k_exp(0) == 1 && k_exp(-90) == 0 && k_exp(-INFINITY) == 0 && k_exp(-1e30f) == 0);
    assert_true(k_exp(89) == INFINITY && k_exp(INFINITY) == INFINITY && isnan(k_exp(NAN)));
}

static void test_logarithm(void **state)
{
    (void)state;
    double worst = 0;
    for (uint32_t u = 0x00800000; u < 0x7F800000; u += 997) {
        double x = (double)k_float(u), want = log(x);
        if (want != 0)
            worst = fmax(worst, fabs((double)k_log((float)x) - want) / fabs(want));
    }
    for (uint32_t u = 0x3F000000; u < 0x40000000; u += 3) { /* 0.5 .. 2, where it passes 0 */
        double x = (double)k_float(u), want = log(x);
        if (want != 0)
            worst = fmax(worst, fabs((double)k_log((float)x) - want) / fabs(want));
    }
    print_message("log: relative error %.2g\n", worst);
    assert_true(worst <= 2e-7);
    assert_true(k_log(1) == 0 && isnan(k_log(NAN)) && !isfinite(k_log(INFINITY)));
}

static void test_sincos(void **state)
{
    (void)state;
    double worst = 0;
    for (int i = 0; i < 8388608; i += 3) { /* every third number that k_normal can ask for */
        float t = ((float)i + 0.5f) * (1.0f / 8388608.0f), s, c;
        k_sincos_turn(t, &s, &c);
        double angle = 2 * acos(-1) * (double)t;
        worst = fmax(worst, fabs((double)s - sin(angle)));
        worst = fmax(worst, fabs((double)c - cos(angle)));
    }
    print_message("sine, cosine: absolute error %.2g\n", worst);
    assert_true(worst <= 2e-7);
}

static void test_random(void **state)
{
    (void)state;
    static const uint64_t cases[][5] = {/* seed, step, stream, first, stride */
                                        {0, 0, 0, 0, 1},
                                        {1337, 5, 65, 1000, 2},
                                        {UINT64_MAX, 1ull << 40, 70, (1ull << 32) - 9, 3},
                                        {0x0123456789ABCDEF, UINT64_MAX, UINT32_MAX, UINT64_MAX - 70, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const uint64_t *k = cases[i];
        uint32_t got[4][K_LANES];
        k_random(got, k[0], k[1], (uint32_t)k[2], k[3], k[4]);
        EACH_LANE (j) {
            uint64_t index = k[3] + (uint64_t)j * k[4];
            struct rng_block want = rng_block(k[0], k[1], (uint32_t)k[2], index);
            for (int q = 0; q < 4; q++)
                assert_int_equal(got[q][j], want.v[q]);
        }
    }
}

/* Moments and the lag products of a million normals, each within 5 standard errors. */
static void test_normals(void **state)
{
    (void)state;
    enum { N = 1 << 20 };
    double sum = 0, squares = 0, fourth = 0, mixed = 0, x[4][K_LANES];
    for (int i = 0; i < N / 4; i += K_LANES) {
        float got[4][K_LANES];
        k_normals(got, 99, 1, RNG_TEST, (uint64_t)i, 1);
        for (int q = 0; q < 4; q++)
            EACH_LANE (j) {
                x[q][j] = (double)got[q][j];
                sum += x[q][j];
                squares += x[q][j] * x[q][j];
                fourth += pow(x[q][j], 4);
            }
        EACH_LANE (j)
            mixed += x[0][j] * x[1][j] + x[2][j] * x[3][j] + x[0][j] * x[2][j];
    }
    assert_true(fabs(sum / N) < 5 / sqrt(N));
    assert_true(fabs(squares / N - 1) < 5 * sqrt(2.0 / N));
    assert_true(fabs(fourth / N - 3) < 5 * sqrt(96.0 / N));
    assert_true(fabs(mixed) < 5 * sqrt(3.0 / 4 * N));
}

/* ---- rows and lanes -------------------------------------------------------------------------- */

static void test_rows(void **state)
{
    static const int strides[] = {1, 2, 3, 5, 16, 17, 40};
    (void)state;
    for (size_t k = 0; k < sizeof strides / sizeof *strides; k++) {
        int stride = strides[k], total = stride * K_LANES;
        float row[40 * K_LANES], x[40][K_LANES];
        for (int count = 1; count <= stride; count++) {
            for (int n = 1; n <= K_LANES; n += count == stride ? 1 : K_LANES - 1) {
                for (int i = 0; i < total; i++)
                    row[i] = (float)(i + 1);
                k_load(x, row, count, stride, n);
                for (int c = 0; c < count; c++)
                    for (int j = 0; j < K_LANES; j++)
                        assert_true(x[c][j] == (j < n ? row[j * stride + c] : 0));
                k_add_rows(row, x, count, stride, n, 0);
                for (int i = 0; i < total; i++) {
                    int times = i / stride < n && i % stride < count ? 2 : 1;
                    assert_true(row[i] == (float)(times * (i + 1)));
                }
                k_add_rows(row, x, count, stride, n, 1);
                for (int i = 0; i < total; i++)
                    assert_true(row[i] == (float)(i + 1));
            }
        }
    }
}

/* ---- samples of the Gaussian ----------------------------------------------------------------- */

/* Antithetic: pairs of samples have the mean as their middle; unwanted pairs may stay away. */
static void test_antithetic(void **state)
{
    enum { V = 10 + K_LANES, C = 3, RANK = 5, PAIRS = 3 };
    static float mean[V * C], diag[V * C], factor[V * C * RANK];
    static struct k_gauss_lanes all, some;
    float plus[C][K_LANES], minus[C][K_LANES];
    (void)state;
    for (int i = 0; i < V * C * RANK; i++)
        factor[i] = (float)(i % 13) * 0.1f - 0.6f;
    for (int i = 0; i < V * C; i++)
        mean[i] = (float)(i % 7) - 3, diag[i] = (float)(i % 5) * 0.3f - 1;
    struct k_gauss g = {.mean = mean,
                        .diag = diag,
                        .factor = factor,
                        .classes = C,
                        .rank = RANK,
                        .pairs = PAIRS,
                        .wanted = 7,
                        .seed = 4,
                        .stream = 65,
                        .first = 1000};
    for (int p = 0; p < PAIRS; p++)
        for (int k = 0; k < RANK; k++)
            g.eps[p][k] = (float)(p - k) * 0.4f;
    k_gauss_draw(&g, &all, 10, K_LANES);
    for (int p = 0; p < PAIRS; p++) {
        k_gauss_sample(&g, &all, p, plus);
        k_gauss_sample(&g, &all, p + PAIRS, minus);
        for (int c = 0; c < C; c++)
            EACH_LANE (j) {
                float want = mean[(10 + j) * C + c], middle = 0.5f * (plus[c][j] + minus[c][j]);
                assert_true(fabsf(middle - want) <= 1e-6f * (1 + fabsf(plus[c][j])));
                assert_true(plus[c][j] != minus[c][j]);
            }
    }
    g.wanted = 1; /* rows 0 .. 2: the first block alone, which has row 3, too */
    k_gauss_draw(&g, &some, 10, K_LANES);
    for (int r = 0; r < 4; r++)
        assert_memory_equal(all.eta[r], some.eta[r], sizeof all.eta[r]);
}

/* ---- levels ---------------------------------------------------------------------------------- */

/* Kernels hold no fused products, so levels give the same bytes; the reductions, too. */
static void test_levels(void **state)
{
    enum { V = 4096, C = 5 };
    static float logits[V * C], grad[ISA_LEVELS][V * C], noise[ISA_LEVELS][V];
    static float a[C] = {0, -1, 2, 3, -4}, b[C] = {0, 1, 2, 3, 4};
    static uint8_t label[V];
    double sums[ISA_LEVELS][3 * C - 1];
    int levels = 0;
    (void)state;
    for (int i = 0; i < V * C; i++)
        logits[i] = (float)(rng_block(1, 2, RNG_TEST, (uint64_t)i).v[0] >> 8) * 1e-6f;
    for (int i = 0; i < V; i++)
        label[i] = (uint8_t)(i % C);
    for (int i = 0; i < ISA_LEVELS; i++) {
        const struct isa_ops *isa = isa_level(isa_names[i]);
        if (!isa)
            continue;
        struct k_ce_dice_grad k = {logits, label, NULL, grad[levels], C, 0.5f, a, b, 0};
        struct r_ce_dice r = {logits, label, NULL, C, 0, 0};
        struct k_noise n = {noise[levels], logits, V, 0.1f, 7, 8, 9};
        isa->loops->map(KERNEL_ce_dice_grad, &k, 0, V);
        isa->loops->map(KERNEL_noise, &n, 0, V / 4);
        isa->loops->reduce(REDUCE_ce_dice, &r, 0, V, 3 * C - 1, sums[levels]);
        assert_memory_equal(grad[levels], grad[0], sizeof grad[0]);
        assert_memory_equal(noise[levels], noise[0], sizeof noise[0]);
        assert_memory_equal(sums[levels], sums[0], sizeof sums[0]);
        levels++;
    }
    assert_true(levels >= 1 && grad[0][0] != 0 && noise[0][0] != logits[0]);
}

/* What the losses between branches and the layers without weights write on one level: one hash. Ranges are
 * cut at odd places. */
static uint64_t branch_hash(const struct loop_ops *loops)
{
    enum { V = 2 * 3 * 5 * 2, C = 40, N = 8 * V * C };
    static float z[3][N], dz[3][N], out[N];
    static uint16_t small[N], large[N];
    double sums[9];
    for (int i = 0; i < 3 * N; i++) {
        z[i / N][i % N] = (float)(rng_block(3, 4, RNG_TEST, (uint64_t)i).v[0] >> 8) * 1e-6f - 8;
        dz[i / N][i % N] = 0;
    }
    for (int i = 0; i < N; i++)
        small[i] = (uint16_t)(k_bits(z[0][i]) >> 16);
    struct k_branches b = {{z[0], z[1], z[2], NULL}, 3, 5};
    struct r_mutual r = {b, 3, 10};
    struct r_pyramid s = {b};
    struct k_mutual_grad mutual = {b, {dz[0], dz[1], dz[2], NULL}, 3, 10, 0.5f};
    struct k_pyramid_grad pyramid = {
        b, {dz[0], dz[1], dz[2], NULL}, {0.1f, 0.2f, 0.3f, 0}, {0, 0.1f, 0, 0}, 0.4f};
    loops->reduce(REDUCE_mutual, &r, 0, N / 5, 1, sums);
    uint64_t hash = hash_bytes(sums, sizeof *sums, 1);
    loops->reduce(REDUCE_pyramid, &s, 0, N / 5, 9, sums);
    hash = hash_bytes(sums, sizeof sums, hash);
    loops->map(KERNEL_mutual_grad, &mutual, 0, N / 5);
    loops->map(KERNEL_pyramid_grad, &pyramid, 0, N / 5);
    struct k_view view = {small, 1, z[1], z[2], 1};
    struct k_grids grid = {K_ALIGNED, {3, 5, 2}, {6, 10, 4}, C};
    struct k_resize up = {view, large, 1, grid};
    struct k_resize_grad down = {large, 1, dz[0], 0, 0, grid};
    struct k_shake shake = {.a = view, .out = dz[1], .c = C, .amount = 0.3f, .seed = 5};
    struct k_activity activity = {view, out, V, C};
    struct k_keep_low low = {
        .a = view, .out = dz[2], .activity = out, .peak = &out[7], .voxels = V, .c = C, .share = 1};
    for (int64_t half = 0; half < 2; half++) {
        loops->map(KERNEL_resize, &up, half * 333, half ? N / K_RUN : 333);
        loops->map(KERNEL_activity, &activity, half * 77, half ? V : 77);
    }
    for (int64_t half = 0; half < 2; half++) {
        loops->map(KERNEL_resize_grad, &down, half * 77, half ? V * C / K_RUN : 77);
        loops->map(KERNEL_shake, &shake, half * 77, half ? N / 4 : 77);
        loops->map(KERNEL_keep_low, &low, half * 77, half ? V * C / K_RUN : 77);
    }
    hash = hash_bytes(large, sizeof large, hash);
    return hash_bytes(dz, sizeof dz, hash);
}

static void test_branch_levels(void **state)
{
    uint64_t first = 0;
    (void)state;
    for (int i = 0; i < ISA_LEVELS; i++) {
        const struct isa_ops *isa = isa_level(isa_names[i]);
        uint64_t hash = isa ? branch_hash(isa->loops) : first;
        first = first ? first : hash;
        assert_true(hash == first);
    }
    assert_true(first != 0);
}

/* ---- devices --------------------------------------------------------------------------------- */

static struct device *open_device(int threads)
{
    struct device_options o = {.name = "cpu", .precision = PRECISION_F32, .threads = threads};
    struct device *d;
    struct error e;
    assert_ok(device_open(&d, &o, &e), e);
    return d;
}

/* Ranges of every awkward length: each index once, sums of ones exact, the same for 1, 2 and 4
 * threads. */
static void test_ranges(void **state)
{
    static const int64_t counts[] = {0, 1, 31, 32, 33, 511, 513, 4095, 4096, 4097, 70000, 300001};
    static float logits[300001 * 2];
    static uint8_t label[300001 + 1];
    uint64_t first[sizeof counts / sizeof *counts];
    (void)state;
    for (int i = 0; i < 300001 * 2; i++)
        logits[i] = (float)(i % 1009 * 7919 % 1000) * 0.01f - 5;
    for (int t = 1; t <= 4; t *= 2) {
        struct device *dev = open_device(t);
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
            double sums[5];
            memset(label, 7, sizeof label);
            RUN(dev, hard_label, counts[i], .logits = logits, .label = label, .classes = 2);
            for (int64_t v = 0; v < counts[i]; v++)
                assert_int_equal(label[v], logits[2 * v + 1] > logits[2 * v]);
            assert_int_equal(label[counts[i]], 7);
            REDUCE(dev, ce_dice, counts[i], 5, sums, .logits = logits, .label = label, .classes = 2);
            assert_true(sums[1] == (double)counts[i]);
            uint64_t hash = hash_bytes(sums, sizeof sums, 0);
            first[i] = t == 1 ? hash : first[i];
            assert_true(first[i] == hash);
        }
        device_close(dev);
    }
}

/* Sums of many small numbers: float inside 512, double beyond, so the error does not grow. */
static void test_sum_accuracy(void **state)
{
    enum { V = 1000000 };
    static float logits[V * 2];
    static uint8_t label[V];
    double want = 0, sums[5];
    struct device *dev = open_device(2);
    (void)state;
    for (int i = 0; i < V; i++) {
        logits[2 * i] = (float)(i % 97) * 0.05f;
        want += log(exp((double)logits[2 * i]) + 1) - (double)logits[2 * i];
    }
    REDUCE(dev, ce_dice, V, 5, sums, .logits = logits, .label = label, .classes = 2);
    assert_true(fabs(sums[0] - want) < 1e-7 * want);
    device_close(dev);
}

/* Voxels whose elements lie beyond 2^31, in memory that is not there until touched. */
static void test_far_indices(void **state)
{
    (void)state;
    const int64_t voxels = (1ll << 31) / 2 + 4096, at = voxels - 40;
    size_t bytes = (size_t)voxels * 2 * sizeof(float);
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    float *logits = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    uint8_t *label = mmap(NULL, (size_t)voxels, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (logits == MAP_FAILED || label == MAP_FAILED)
        skip();
    for (int64_t i = at; i < voxels; i++)
        logits[2 * i + i % 2] = 1;
    struct k_hard_label k = {.logits = logits, .label = label, .classes = 2};
    struct r_ce_dice r = {.logits = logits, .label = label, .classes = 2};
    double sums[5];
    const struct loop_ops *loops = isa_level(NULL)->loops;
    loops->map(KERNEL_hard_label, &k, at, voxels);
    for (int64_t i = at; i < voxels; i++)
        assert_int_equal(label[i], i % 2);
    loops->reduce(REDUCE_ce_dice, &r, at, voxels, 5, sums);
    assert_true(sums[1] == 40 && sums[4] == 20);
    munmap(logits, bytes);
    munmap(label, (size_t)voxels);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exp),         cmocka_unit_test(test_logarithm),
        cmocka_unit_test(test_sincos),      cmocka_unit_test(test_random),
        cmocka_unit_test(test_normals),     cmocka_unit_test(test_rows),
        cmocka_unit_test(test_antithetic),  cmocka_unit_test(test_levels),
        cmocka_unit_test(test_ranges),      cmocka_unit_test(test_sum_accuracy),
        cmocka_unit_test(test_far_indices), cmocka_unit_test(test_branch_levels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
