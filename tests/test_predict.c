/* test_predict.c - the sliding window against a whole-volume accumulation in double, uncertainty against
 * samples drawn voxel by voxel, memory of the ring, stops.
 */
#include "predict_naive.h"

#include "train/validate.h"

static void window_case(const int dims[3], const int stride[3], int channels, int classes,
                        enum window_weight weight, int mirrors, int batch, int side_axes)
{
    struct scene s;
    struct error e;
    struct predictor *p;
    struct prediction got;
    struct predict_options o = {.patch = {16, 16, 16},
                                .stride = {stride[0], stride[1], stride[2]},
                                .weight = weight,
                                .mirrors = mirrors,
                                .batch = batch,
                                .uncertainty = 1,
                                .probabilities = 1,
                                .sides = {side_axes, {0, 2, 1, 3}}};
    scene_open(&s, channels, classes, 0, 2);
    float *image = noise_image(dims, channels, 3);
    assert_ok(predictor_new(&p, s.dev, &s.model, NULL, &o, &e), e);
    assert_ok(predict_array(&got, p, image, dims, &e), e);
    double *prob = naive(&s, image, dims, &o, "logits", 1, classes);
    assert_null(got.std);
    compare(&got, prob, classes);
    free(prob);
    prediction_free(&got);
    predictor_free(p);
    mem_free(image);
    scene_close(&s);
}

static void windows_of_all_sizes(void **state)
{
    (void)state;
    static const int half[3] = {8, 8, 8}, odd[3] = {5, 7, 11}, whole[3] = {16, 16, 16};
    window_case((const int[3]){16, 16, 16}, half, 1, 2, WINDOW_GAUSSIAN, 0, 1, 0); /* one window */
    window_case((const int[3]){9, 5, 13}, half, 1, 2, WINDOW_GAUSSIAN, 0, 3, 0);   /* smaller */
    window_case((const int[3]){1, 1, 1}, half, 2, 3, WINDOW_CONSTANT, 0, 1, 0);
    window_case((const int[3]){37, 21, 18}, odd, 1, 3, WINDOW_GAUSSIAN, 0, 4, 0); /* larger, mixed */
    window_case((const int[3]){20, 40, 11}, odd, 3, 4, WINDOW_CONSTANT, 0, 5, 0);
    window_case((const int[3]){33, 16, 17}, whole, 2, 2, WINDOW_CONSTANT, 0, 2, 0);
    window_case((const int[3]){23, 10, 19}, half, 2, 3, WINDOW_GAUSSIAN, 7, 3, 0); /* mirror images */
    window_case((const int[3]){17, 10, 19}, half, 1, 3, WINDOW_GAUSSIAN, 5, 3, 0);
    window_case((const int[3]){23, 10, 19}, half, 2, 4, WINDOW_GAUSSIAN, 7, 3, 1); /* sides exchanged */
    window_case((const int[3]){17, 10, 19}, half, 1, 3, WINDOW_CONSTANT, 3, 3, 3);
}

/* AUA's network, as others may have it: without a factor of its covariance, which a mask does not need. */
static void masks_need_no_factor(void **state)
{
    (void)state;
    static const int dims[3] = {20, 17, 16};
    struct scene s;
    struct error e;
    struct predictor *p;
    struct prediction got;
    struct predict_options o = {
        .patch = {16, 16, 16}, .stride = {8, 8, 8}, .uncertainty = 1, .probabilities = 1};
    scene_open(&s, 1, 3, 2, 1);
    s.model.def.rank = 0;
    float *image = noise_image(dims, 1, 3);
    assert_ok(predictor_new(&p, s.dev, &s.model, NULL, &o, &e), e);
    assert_ok(predict_array(&got, p, image, dims, &e), e);
    double *prob = naive(&s, image, dims, &o, "mean", 1, 3);
    compare(&got, prob, 3);
    free(prob);
    prediction_free(&got);
    predictor_free(p);
    s.model.def = (struct net_definition){.define = vnet_define, .channels = 1, .classes = 3, .rank = 2};
    assert_refused(predictor_new(&p, s.dev, &s.model, &s.model, &o, &e), e, ERR_DATA, "S10");
    mem_free(image);
    scene_close(&s);
}

/* The network sees each window alone, so how many go together changes nothing but perhaps last bits. */
static void batches_agree(void **state)
{
    (void)state;
    static const int dims[3] = {24, 21, 30};
    struct scene s;
    struct error e;
    struct prediction one, four;
    struct predictor *p;
    struct predict_options o = {.patch = {16, 16, 16}, .batch = 1, .probabilities = 1};
    scene_open(&s, 1, 3, 0, 2);
    float *image = noise_image(dims, 1, 8);
    assert_ok(predictor_new(&p, s.dev, &s.model, NULL, &o, &e), e);
    assert_ok(predict_array(&one, p, image, dims, &e), e);
    predictor_free(p);
    o.batch = 4;
    assert_ok(predictor_new(&p, s.dev, &s.model, NULL, &o, &e), e);
    assert_ok(predict_array(&four, p, image, dims, &e), e);
    predictor_free(p);
    for (int v = 0; v < dims[0] * dims[1] * dims[2]; v++) {
        assert_int_equal(one.label[v], four.label[v]);
        assert_near((double)one.foreground[v], (double)four.foreground[v], 1e-6);
    }
    prediction_free(&one);
    prediction_free(&four);
    mem_free(image);
    scene_close(&s);
}

static void threads_agree_to_the_bit(void **state)
{
    (void)state;
    static const int dims[3] = {18, 27, 20};
    size_t n = (size_t)dims[0] * (size_t)dims[1] * (size_t)dims[2];
    struct error e;
    struct prediction got[3];
    float *image = noise_image(dims, 1, 8);
    for (int i = 0; i < 3; i++) {
        struct scene s;
        struct predictor *p;
        struct predict_options o = {.patch = {16, 16, 16}, .probabilities = 1, .uncertainty = 1};
        scene_open(&s, 1, 2, 2, 1 << i);
        assert_ok(predictor_new(&p, s.dev, &s.model, &s.model, &o, &e), e);
        assert_ok(predict_array(&got[i], p, image, dims, &e), e);
        predictor_free(p);
        scene_close(&s);
        assert_memory_equal(got[0].label, got[i].label, n * sizeof(label_t));
        assert_memory_equal(got[0].foreground, got[i].foreground, n * sizeof(float));
        assert_memory_equal(got[0].std, got[i].std, n * sizeof(float));
        assert_memory_equal(got[0].entropy, got[i].entropy, n * sizeof(float));
    }
    for (int i = 0; i < 3; i++)
        prediction_free(&got[i]);
    mem_free(image);
}

/* ---- uncertainty ----------------------------------------------------------------------------- */

static void normals4(double out[4], struct rng_block b)
{
    for (int i = 0; i < 4; i += 2) {
        double u = ((double)(b.v[i] >> 9) + 0.5) / 8388608, t = ((double)(b.v[i + 1] >> 9) + 0.5) / 8388608;
        out[i] = sqrt(-2 * log(u)) * cos(2 * acos(-1) * t);
        out[i + 1] = sqrt(-2 * log(u)) * sin(2 * acos(-1) * t);
    }
}

enum { CLASSES = 3, RANK = 2, PAIRS = 4, BLOCKS = (PAIRS * CLASSES + 3) / 4 };

struct gaussian_at { /* a voxel's parameters */
    const double *mean, *diag, *factor;
};

static void naive_eps(double eps[PAIRS][RANK], uint64_t seed)
{
    for (int j = 0; j < PAIRS; j++) {
        struct rng r = rng_start(seed, 0, RNG_SAMPLE, (uint64_t)j);
        for (int k = 0; k < RANK; k++)
            eps[j][k] = (double)rng_normal(&r);
    }
}

/* Standard deviation of the foreground probability, and entropy of the mean one. */
static void naive_spread(double *std, double *entropy, const struct gaussian_at *g, double eps[PAIRS][RANK],
                         uint64_t seed, uint64_t place)
{
    double eta[4 * BLOCKS], total[CLASSES] = {0}, f[2 * PAIRS], mean = 0, square = 0;
    for (int b = 0; b < BLOCKS; b++)
        normals4(eta + 4 * b, rng_block(seed, 0, RNG_SAMPLE + 1, place * BLOCKS + (uint64_t)b));
    for (int i = 0; i < 2 * PAIRS; i++) {
        double z[CLASSES], norm = 0;
        for (int k = 0; k < CLASSES; k++) {
            double delta = sqrt(exp(g->diag[k]) + 2e-5) * eta[i % PAIRS * CLASSES + k];
            for (int q = 0; q < RANK; q++)
                delta += eps[i % PAIRS][q] * g->factor[q * CLASSES + k];
            norm += z[k] = exp(g->mean[k] + (i < PAIRS ? delta : -delta));
        }
        for (int k = 0; k < CLASSES; k++)
            total[k] += z[k] / norm / (2 * PAIRS);
        mean += (f[i] = 1 - z[0] / norm) / (2 * PAIRS);
    }
    for (int i = 0; i < 2 * PAIRS; i++)
        square += (f[i] - mean) * (f[i] - mean) / (2 * PAIRS);
    *std = sqrt(square);
    *entropy = 0;
    for (int k = 0; k < CLASSES; k++)
        *entropy -= total[k] * log(total[k]) / log(CLASSES);
}

/* Is a voxel foreground, or does it touch some by a face? */
static int near_foreground(const struct prediction *p, int v)
{
    const int *d = p->dims;
    int at[3] = {v / d[2] / d[1], v / d[2] % d[1], v % d[2]}, near = p->label[v] != 0;
    for (int a = 0; a < 3; a++)
        for (int side = -1; side <= 1; side += 2) {
            int n[3] = {at[0], at[1], at[2]};
            n[a] += side;
            if (n[a] >= 0 && n[a] < d[a])
                near |= p->label[(n[0] * d[1] + n[1]) * d[2] + n[2]] != 0;
        }
    return near;
}

/* One epsilon for the whole scan, one eta for each voxel of the padded grid: a voxel in which several windows
 * meet is drawn once, like any other. */
static void uncertainty_of_samples(void **state)
{
    (void)state;
    static const int dims[3] = {21, 16, 12};
    struct scene s;
    struct error e;
    struct predictor *p;
    struct prediction got;
    struct predict_options o = {.patch = {16, 16, 16},
                                .stride = {5, 8, 8},
                                .uncertainty = 1,
                                .samples = 2 * PAIRS,
                                .seed = 77,
                                .weight = WINDOW_GAUSSIAN,
                                .mirrors = 1,
                                .sides = {1, {0, 2, 1}}};
    double eps[PAIRS][RANK], std, entropy, largest = 0, sum = 0;
    int near = 0;
    scene_open(&s, 1, CLASSES, RANK, 2);
    float *image = noise_image(dims, 1, 21);
    assert_ok(predictor_new(&p, s.dev, &s.model, &s.model, &o, &e), e);
    assert_ok(predict_array(&got, p, image, dims, &e), e);
    double *mean = naive(&s, image, dims, &o, "mean", 0, CLASSES);
    double *diag = naive(&s, image, dims, &o, "log_cov_diag", 0, CLASSES);
    double *factor = naive(&s, image, dims, &o, "cov_factor", 0, CLASSES * RANK);
    naive_eps(eps, o.seed);
    for (int v = 0; v < dims[0] * dims[1] * dims[2]; v++) {
        struct gaussian_at g = {mean + v * CLASSES, diag + v * CLASSES, factor + v * CLASSES * RANK};
        int z = v / dims[2] / dims[1], y = v / dims[2] % dims[1], x = v % dims[2];
        /* 12 -> 16 voxels: two of padding come first */
        naive_spread(&std, &entropy, &g, eps, o.seed, (uint64_t)((z * 16 + y) * 16 + x + 2));
        assert_near((double)got.std[v], std, 1e-5);
        assert_near((double)got.entropy[v], entropy, 3e-5);
        largest = std > largest ? std : largest;
        near += near_foreground(&got, v);
        sum += near_foreground(&got, v) ? (double)got.entropy[v] : 0;
    }
    assert_true(largest > 0.05 && near > 0);
    assert_near(got.ambiguity, sum / near, 1e-9);
    free(mean);
    free(diag);
    free(factor);
    prediction_free(&got);
    predictor_free(p);
    mem_free(image);
    scene_close(&s);
}

/* A mask without foreground is not a sure one: it has the entropy of its most doubtful voxel. */
static void empty_masks_are_doubted(void **state)
{
    (void)state;
    static const int dims[3] = {16, 16, 16};
    struct scene s;
    struct error e;
    struct predictor *p;
    struct prediction got;
    struct predict_options o = {
        .patch = {16, 16, 16}, .stride = {8, 8, 8}, .uncertainty = 1, .weight = WINDOW_CONSTANT};
    double most = 0;
    scene_open(&s, 1, CLASSES, 0, 1);
    float *image = noise_image(dims, 1, 21);
    s.model.params->value[params_find(s.model.params, "out_conv.bias")->offset] += 15; /* of background */
    s.model.params->version++;
    assert_ok(predictor_new(&p, s.dev, &s.model, NULL, &o, &e), e);
    assert_ok(predict_array(&got, p, image, dims, &e), e);
    for (int v = 0; v < 16 * 16 * 16; v++) {
        assert_int_equal(got.label[v], 0);
        most = fmax(most, (double)got.entropy[v]);
    }
    assert_true(most > 0);
    assert_near(got.ambiguity, most, 0);
    prediction_free(&got);
    predictor_free(p);
    mem_free(image);
    scene_close(&s);
}

/* Networks that learnt little say anything, such as variances beyond all numbers. */
static void any_variance_is_survived(void **state)
{
    (void)state;
    static const int dims[3] = {16, 16, 16};
    struct scene s;
    struct error e;
    struct predictor *p;
    struct prediction got;
    struct predict_options o = {.patch = {16, 16, 16}, .uncertainty = 1};
    scene_open(&s, 1, 2, 2, 2);
    struct params *of = s.model.params;
    const struct param *bias = params_find(of, "log_cov_diag_l.bias");
    for (int64_t i = 0; i < bias->count; i++)
        of->value[bias->offset + i] = 500.0f;
    of->version++;
    float *image = noise_image(dims, 1, 8);
    assert_ok(predictor_new(&p, s.dev, &s.model, &s.model, &o, &e), e);
    assert_ok(predict_array(&got, p, image, dims, &e), e);
    for (int v = 0; v < dims[0] * dims[1] * dims[2]; v++)
        assert_true(got.std[v] > 0 && got.std[v] <= 1 && got.entropy[v] >= 0 && got.entropy[v] <= 1.00001f);
    prediction_free(&got);
    predictor_free(p);
    mem_free(image);
    scene_close(&s);
}

static void refuses_what_does_not_fit(void **state)
{
    (void)state;
    struct scene plain, gaussian, many;
    struct error e;
    struct predictor *p = NULL;
    struct predict_options o = {.patch = {16, 16, 16}, .stride = {8, 17, 8}, .uncertainty = 1};
    scene_open(&plain, 1, 2, 0, 1);
    scene_open(&gaussian, 1, 2, 3, 1);
    scene_open(&many, 1, 100, 1, 1);
    const struct predict_model *two = &gaussian.model;
    assert_refused(predictor_new(&p, plain.dev, &plain.model, NULL, &o, &e), e, ERR_CONFIG, "C03");
    o.stride[1] = 16;
    o.samples = 18;
    assert_refused(predictor_new(&p, plain.dev, two, two, &o, &e), e, ERR_CONFIG, "C03");
    o.samples = 3;
    assert_refused(predictor_new(&p, plain.dev, two, two, &o, &e), e, ERR_CONFIG, "C03");
    o.samples = 6; /* 3 pairs x 100 classes */
    assert_refused(predictor_new(&p, plain.dev, &many.model, &many.model, &o, &e), e, ERR_CONFIG, "C03");
    o.samples = 0;
    assert_refused(predictor_new(&p, plain.dev, &plain.model, &plain.model, &o, &e), e, ERR_DATA, "S10");
    assert_refused(predictor_new(&p, plain.dev, &plain.model, &many.model, &o, &e), e, ERR_DATA, "S10");
    assert_null(p);
    static const int dims[3] = {16, 16, 16};
    struct prediction got;
    float *image = noise_image(dims, 1, 1);
    assert_ok(predictor_new(&p, many.dev, &many.model, &many.model, &o, &e), e); /* as many as fit */
    assert_ok(predict_array(&got, p, image, dims, &e), e);
    for (int v = 0; v < 4096; v++)
        assert_true(isfinite(got.std[v]) && isfinite(got.entropy[v]));
    prediction_free(&got);
    predictor_free(p);
    mem_free(image);
    scene_close(&plain);
    scene_close(&gaussian);
    scene_close(&many);
}

/* ---- memory and stops ------------------------------------------------------------------------ */

static const struct device_ops *real_ops;
static size_t held, most_held;
static struct {
    void *at;
    size_t bytes;
} blocks_held[4096];

static void *counting_alloc(struct device *dev, size_t bytes)
{
    void *p = real_ops->alloc(dev, bytes);
    for (int i = 0; p && i < 4096; i++)
        if (!blocks_held[i].at) {
            blocks_held[i].at = p;
            blocks_held[i].bytes = bytes;
            held += bytes;
            most_held = held > most_held ? held : most_held;
            return p;
        }
    return p;
}

static void counting_free(struct device *dev, void *memory)
{
    for (int i = 0; memory && i < 4096; i++)
        if (blocks_held[i].at == memory) {
            blocks_held[i].at = NULL;
            held -= blocks_held[i].bytes;
            break;
        }
    real_ops->free(dev, memory);
}

static int ends_after;
static int countdown(void *arg)
{
    (void)arg;
    return --ends_after < 0;
}

static void memory_does_not_grow_with_depth(void **state)
{
    (void)state;
    static const int depths[] = {16, 16 * 9};
    struct scene s;
    struct error e;
    struct predictor *p;
    size_t most[2];
    struct predict_options o = {.patch = {16, 16, 16}, .stride = {16, 16, 16}, .batch = 1};
    scene_open(&s, 1, 14, 0, 2);
    struct device_ops ops = *s.dev->ops;
    real_ops = s.dev->ops;
    ops.alloc = counting_alloc;
    ops.free = counting_free;
    s.dev->ops = &ops;
    assert_ok(predictor_new(&p, s.dev, &s.model, NULL, &o, &e), e);
    for (int i = 0; i < 2; i++) {
        struct prediction got;
        int dims[3] = {depths[i], 20, 20};
        float *image = noise_image(dims, 1, 2);
        size_t before = most_held = held;
        assert_ok(predict_array(&got, p, image, dims, &e), e);
        most[i] = most_held - before;
        assert_int_equal(held, before);
        prediction_free(&got);
        mem_free(image);
    }
    assert_true(most[1] - most[0] <= (size_t)(depths[1] - depths[0]) * 8); /* sums of weights */
    assert_true(most[0] < (size_t)20 * 20 * 4 * (14 * (16 + 2) + 16));     /* a ring, a plane, maps; a slab */
    predictor_free(p);
    assert_int_equal(held, 0);
    s.dev->ops = real_ops;
    scene_close(&s);
}

static void stops_between_windows(void **state)
{
    (void)state;
    static const int dims[3] = {32, 32, 32};
    struct scene s;
    struct error e;
    struct predictor *p;
    struct prediction got;
    struct predict_options o = {.patch = {16, 16, 16}, .batch = 1, .stop = countdown};
    scene_open(&s, 1, 2, 0, 1);
    float *image = noise_image(dims, 1, 2);
    assert_ok(predictor_new(&p, s.dev, &s.model, NULL, &o, &e), e);
    ends_after = 5;
    assert_refused(predict_array(&got, p, image, dims, &e), e, ERR_STOPPED, "P11");
    assert_null(got.label);
    assert_int_equal(ends_after, -1);
    ends_after = 1000;
    assert_ok(predict_array(&got, p, image, dims, &e), e); /* usable afterwards */
    assert_int_equal(ends_after, 1000 - 27);
    prediction_free(&got);
    predictor_free(p);
    mem_free(image);
    scene_close(&s);
}

/* The truth is what windows of one kind predict: validation with the same windows gives Dice 1, with others
 * less. */
static void validation_has_the_windows_it_is_given(void **state)
{
    (void)state;
    static const int dims[3] = {37, 21, 18};
    struct scene s;
    struct error e;
    struct predictor *p;
    struct prediction got;
    struct validation v;
    struct predict_options how = {.patch = {16, 16, 16}, .stride = {5, 7, 11}, .weight = WINDOW_CONSTANT};
    struct validate_options same = {.patch = {16, 16, 16}, .stride = {5, 7, 11}, .weight = WINDOW_CONSTANT};
    struct validate_options weights = same, strides = same;
    scene_open(&s, 1, 2, 0, 2);
    float *image = noise_image(dims, 1, 3);
    assert_ok(predictor_new(&p, s.dev, &s.model, NULL, &how, &e), e);
    assert_ok(predict_array(&got, p, image, dims, &e), e);
    struct stored_case one = {.dims = {37, 21, 18}, .image = image, .label = got.label};
    struct case_store cases = {.cases = &one, .n_cases = 1, .n_labeled = 1, .channels = 1, .n_classes = 2};
    assert_ok(validate(&v, s.dev, s.model.params, &s.model.def, &cases, &same, &e), e);
    assert_true(v.dice == 1.0);
    weights.weight = WINDOW_GAUSSIAN;
    assert_ok(validate(&v, s.dev, s.model.params, &s.model.def, &cases, &weights, &e), e);
    assert_true(v.dice > 0.5 && v.dice < 1.0);
    memset(strides.stride, 0, sizeof strides.stride);
    assert_ok(validate(&v, s.dev, s.model.params, &s.model.def, &cases, &strides, &e), e);
    assert_true(v.dice > 0.5 && v.dice < 1.0);
    prediction_free(&got);
    predictor_free(p);
    mem_free(image);
    scene_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(windows_of_all_sizes),
        cmocka_unit_test(masks_need_no_factor),
        cmocka_unit_test(batches_agree),
        cmocka_unit_test(threads_agree_to_the_bit),
        cmocka_unit_test(uncertainty_of_samples),
        cmocka_unit_test(empty_masks_are_doubted),
        cmocka_unit_test(any_variance_is_survived),
        cmocka_unit_test(refuses_what_does_not_fit),
        cmocka_unit_test(memory_does_not_grow_with_depth),
        cmocka_unit_test(stops_between_windows),
        cmocka_unit_test(validation_has_the_windows_it_is_given),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
