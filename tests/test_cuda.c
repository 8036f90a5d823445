/* test_cuda.c - a GPU as a device, without one: cuda.c on a driver that is the processor (cuda_fake.h).
 *
 * Opening and its refusals [G01, G02, G03]; memory counted, too small, and enough for less [G03, G04, G05];
 * every call of a little of everything failing in turn [G06, G07]; one wrong number [G08]; and
 * whole trainings on memory that the program itself cannot touch, to the same bits as on the processor.
 */
#include "cuda_fake.h"

#include <math.h>

#include "base/rng.h"
#include "device/kernels.h"
#include "net/selftest.h"
#include "predict/predict.h"
#include "train/train.h"

#include "golden/aua.h"

static int open_named(struct device **dev, const char *name, struct error *e)
{
    struct device_options o = {.name = name, .threads = 1};
    return cuda_open_driver(dev, &fake_driver, &o, e);
}

static struct device *open_fake(enum precision precision)
{
    struct device *dev;
    struct error e;
    struct device_options o = {.name = "cuda", .precision = precision, .threads = 2};
    assert_ok(cuda_open_driver(&dev, &fake_driver, &o, &e), e);
    return dev;
}

/* ---- opening --------------------------------------------------------------------------------- */

static void test_open(void **state)
{
    struct device *dev;
    struct error e;
    (void)state;
    fake_reset();
    dev = open_fake(PRECISION_AUTO);
    assert_string_equal(dev->describe, "cuda:0, NVIDIA Fake");
    assert_string_equal(dev->ops->name, "cuda");
    assert_true(dev->precision == PRECISION_BF16 && device_value_type(dev) == VALUE_BF16);
    assert_int_equal(pool_threads(dev->pool), 2);
    device_close(dev);
    dev = open_fake(PRECISION_F32);
    assert_true(dev->precision == PRECISION_F32 && device_value_type(dev) == VALUE_F32);
    device_close(dev);
    dev = open_fake(PRECISION_TF32);
    assert_true(dev->precision == PRECISION_TF32 && device_value_type(dev) == VALUE_F32);
    device_close(dev);
    assert_ok(open_named(&dev, "cuda:1", &e), e);
    assert_string_equal(dev->describe, "cuda:1, NVIDIA Fake");
    device_close(dev);
    assert_true(fake.opened == 4 && fake.closed == 4);
}

static void test_names(void **state)
{
    static const char *const wrong[] = {"cuda:",   "cuda:x",   "cuda:-1",
                                        "cuda:1 ", "cuda:0x1", "cuda:99999999999"};
    struct device *dev;
    struct error e;
    (void)state;
    fake_reset();
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_refused(open_named(&dev, wrong[i], &e), e, ERR_CONFIG, "C01");
        assert_null(dev);
    }
    assert_refused(open_named(&dev, "cuda:2", &e), e, ERR_DEVICE, "G01", "cuda:2", "2 GPUs");
    fake.gpus = 1;
    assert_refused(open_named(&dev, "cuda:1", &e), e, ERR_DEVICE, "G01", "cuda:1", "1 GPU ");
    assert_true(cuda_is_name("cuda") && cuda_is_name("cuda:7"));
    assert_false(cuda_is_name("cudas") || cuda_is_name("cpu") || cuda_is_name("auto"));
    struct device_options o = {.name = "cudas"};
    assert_refused(device_open(&dev, &o, &e), e, ERR_CONFIG, "C01");
    assert_int_equal(fake.opened, 0);
}

static void test_refusals(void **state)
{
    struct device *dev;
    struct error e;
    struct cuda_driver other = fake_driver;
    struct device_options o = {.name = "cuda"};
    (void)state;
    fake_reset();
    fake.driver = 0;
    assert_refused(open_named(&dev, "cuda", &e), e, ERR_DEVICE, "G01", "NVIDIA");
    fake.driver = 12040;
    assert_refused(open_named(&dev, "cuda", &e), e, ERR_DEVICE, "G02", "CUDA 12.4", "CUDA 13.0");
    fake_reset();
    fake.gpus = 0;
    assert_refused(open_named(&dev, "cuda", &e), e, ERR_DEVICE, "G01");
    fake_reset();
    fake.major = 7;
    assert_refused(open_named(&dev, "cuda", &e), e, ERR_DEVICE, "G02", "cuda:0", "NVIDIA Fake", "7.0", "8.0");
    assert_int_equal(fake.closed, 1);
    other.version++;
    assert_refused(cuda_open_driver(&dev, &other, &o, &e), e, ERR_DEVICE, "G02");
    other.version--;
    other.kernels++; /* built with other loops */
    assert_refused(cuda_open_driver(&dev, &other, &o, &e), e, ERR_DEVICE, "G02");
    for (int code = 0; code < 2; code++) {
        fake_reset();
        fake.fail_at = 0;
        fake.code = code ? FAKE_LOST : FAKE_MEMORY;
        assert_refused(open_named(&dev, "cuda", &e), e, ERR_DEVICE, code ? "G06" : "G03");
        assert_null(dev);
    }
}

/* The library is looked for at run time; "auto" goes on without it, "cuda" does not. */
static void test_library(void **state)
{
    static const char *const wrong[] = {"", "/nowhere/libfalx_cuda.so", "/etc/passwd", "libm.so.6"};
    struct device *dev;
    struct error e;
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct device_options o = {.name = "cuda", .threads = 1};
        setenv("FALX_CUDA_LIBRARY", wrong[i], 1);
        assert_refused(device_open(&dev, &o, &e), e, ERR_DEVICE, "G01");
        assert_null(strchr(e.text, '\n'));
        o.name = i % 2 ? "auto" : NULL;
        assert_ok(device_open(&dev, &o, &e), e);
        assert_string_equal(dev->ops->name, "cpu");
        device_close(dev);
    }
    unsetenv("FALX_CUDA_LIBRARY");
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void test_memory(void **state)
{
    struct device *dev;
    struct error e;
    float there[1000], back[1000];
    void *block[200];
    (void)state;
    fake_reset();
    dev = open_fake(PRECISION_F32);
    for (int i = 0; i < 200; i++)
        assert_non_null(block[i] = dev->ops->alloc(dev, (size_t)i + 1));
    assert_int_equal(dev->bytes, 200 * 201 / 2);
    for (int i = 0; i < 200; i++)
        dev->ops->free(dev, block[(i * 37) % 200]);
    dev->ops->free(dev, NULL);
    assert_true(dev->bytes == 0 && fake.blocks == 0);
    float *a = dev->ops->alloc(dev, sizeof there), *b = dev->ops->alloc(dev, sizeof there);
    dev->ops->download(dev, back, a, sizeof back);
    for (int i = 0; i < 1000; i++) {
        assert_true(back[i] == 0);
        there[i] = (float)i;
    }
    dev->ops->upload(dev, a, there, sizeof there);
    dev->ops->copy(dev, b, a, sizeof there);
    dev->ops->zero(dev, a, 4 * sizeof *a);
    dev->ops->copy(dev, b, a, 2 * sizeof *a);
    dev->ops->zero(dev, NULL, 0); /* nothing of nothing is no call */
    dev->ops->sync(dev);
    dev->ops->download(dev, back, b, sizeof back);
    assert_ok(device_check(dev, &e), e);
    for (int i = 0; i < 1000; i++)
        assert_true(back[i] == (i < 2 ? 0.0f : (float)i));
    dev->ops->free(dev, a);
    dev->ops->free(dev, b);
    device_close(dev);
}

static void test_out_of_memory(void **state)
{
    struct device *dev;
    struct error e;
    (void)state;
    fake_reset();
    dev = open_fake(PRECISION_F32);
    void *some = dev->ops->alloc(dev, fake.total / 2);
    assert_non_null(some);
    assert_null(dev->ops->alloc(dev, fake.total));
    assert_refused(device_check(dev, &e), e, ERR_DEVICE, "G03", "cuda:0: ", "0.25 GiB", "0.12 of 0.25 GiB",
                   "patch", "batch");
    assert_null(dev->ops->alloc(dev, 1)); /* it stays so */
    dev->ops->free(dev, some);
    device_close(dev);
    assert_int_equal(fake.blocks, 0);

    fake_reset();
    dev = open_fake(PRECISION_F32);
    mem_fail_at(0, 1); /* the host's: where blocks are written down */
    assert_null(dev->ops->alloc(dev, 100));
    mem_fail_at(-1, 0);
    assert_refused(device_check(dev, &e), e, ERR_MEMORY, "");
    device_close(dev);
    assert_int_equal(fake.blocks, 0);
}

/* More voxels than 32 bits can count are as much too large: half as many may do. */
static void test_too_many_voxels(void **state)
{
    (void)state;
    struct error e;
    struct device *dev;
    struct conv_shape shape = {CONV_UP, 2, 512, 512, 512, 1, 1, VALUE_F32, VALUE_F32, 0, 0};
    fake_reset();
    dev = open_fake(PRECISION_F32);
    assert_null(dev->ops->conv_new(dev, &shape));
    assert_refused(device_check(dev, &e), e, ERR_DEVICE, "G03", "cuda:0: ", "1024x1024x1024", "2^30");
    assert_true(device_forgive_memory(dev));
    device_close(dev);
}

/* ---- failing calls --------------------------------------------------------------------------- */

enum { SIDE = 4, C = 16, N = SIDE * SIDE * SIDE * C, TAPS = 27 * C * C };

struct little {
    float out[N];
    double sums[2], square;
};

/* Convolution, norm, join, contrast, loops: what a step is made of, on small tensors. */
static void a_little_of_everything(struct device *dev, struct little *to)
{
    const struct device_ops *ops = dev->ops;
    struct conv_shape shape = {CONV_3, 1, SIDE, SIDE, SIDE, C, C, VALUE_F32, VALUE_F32, 1, 1};
    float host[TAPS];
    for (int i = 0; i < TAPS; i++)
        host[i] = (float)sin(0.7 * i);
    float *x = ops->alloc(dev, N * sizeof *x), *y = ops->alloc(dev, N * sizeof *y);
    float *dx = ops->alloc(dev, N * sizeof *dx), *w = ops->alloc(dev, 2 * TAPS * sizeof *w);
    float *mean = ops->alloc(dev, 4 * C * sizeof *mean), *rows = ops->alloc(dev, 64 * 40 * sizeof *rows);
    double *moments = ops->alloc(dev, norm_sums_count(1, C) * sizeof *moments);
    void *scratch = ops->alloc(dev, contrast_scratch(64));
    struct conv *v = ops->conv_new(dev, &shape);
    if (v) { /* what was not allocated must not be computed with */
        struct tensor X = {x, VALUE_F32, 1, SIDE, SIDE, SIDE, C}, Y = X, D = X;
        Y.data = y, D.data = dx;
        struct conv_in in = {1, {{X, NULL, NULL, 1}}};
        struct conv_grad grad = {.g = Y, .y = {X, NULL, NULL, 0}};
        struct conv_source from = {Y, NULL, NULL, 1};
        struct conv_weight weight = {v, w};
        struct conv_stats stats = {moments, moments + C, NULL};
        struct contrast pairs = {64, 0.07f, rows, rows + 64 * 16, rows + 64 * 17, rows + 64 * 18, scratch};
        ops->upload(dev, x, host, N * sizeof *x);
        ops->upload(dev, w, host, TAPS * sizeof *w);
        ops->upload(dev, rows, host, 64 * 16 * sizeof *rows);
        ops->conv_pack(dev, &weight, 1);
        ops->conv_forward(v, &in, NULL, &Y, &stats);
        ops->norm_sums(dev, &Y, &from, mean, moments);
        ops->download(dev, to->sums, moments, sizeof to->sums);
        ops->conv_backward(v, &grad, &in, &D, 0, w + TAPS, NULL, NULL);
        if (ops->catch_up)
            ops->catch_up(dev, 0);
        ops->grad_join(dev, &D, &Y, &from);
        ops->contrast(dev, &pairs);
        RUN(dev, sgd, N, .w = dx, .m = y, .g = x, .rate = 0.1f, .momentum = 0.9f, .factor = 1);
        REDUCE(dev, square_sum, N, 1, &to->square, .x = dx);
        ops->copy(dev, y, dx, N * sizeof *y);
        ops->zero(dev, x, sizeof *x);
        ops->sync(dev);
        ops->download(dev, to->out, y, sizeof to->out);
    }
    ops->conv_free(v);
    void *blocks[] = {x, y, dx, w, mean, rows, moments, scratch};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        ops->free(dev, blocks[i]);
}

static void test_same_as_processor(void **state)
{
    struct little want = {.square = 0}, got = want;
    struct device_options o = {.name = "cpu", .precision = PRECISION_F32, .threads = 2};
    struct device *cpu, *dev;
    struct error e;
    (void)state;
    assert_ok(device_open(&cpu, &o, &e), e);
    a_little_of_everything(cpu, &want);
    assert_ok(device_check(cpu, &e), e);
    device_close(cpu);
    fake_reset();
    dev = open_fake(PRECISION_F32);
    a_little_of_everything(dev, &got);
    assert_ok(device_check(dev, &e), e);
    device_close(dev);
    assert_true(want.square > 0 && want.sums[0] != 0);
    assert_memory_equal(&got, &want, sizeof got);
    assert_int_equal(fake.blocks, 0);
}

/* Each call fails once: one line that says so, no call after it, all memory given back. */
static void every_call_fails(int code, const char *id)
{
    struct little to = {.square = 0};
    struct error e;
    for (int64_t n = 1;; n++) { /* call 0 opens */
        fake_reset();
        struct device *dev = open_fake(PRECISION_F32);
        fake.fail_at = n;
        fake.code = code;
        a_little_of_everything(dev, &to);
        int failed = device_check(dev, &e) < 0;
        if (failed && strcmp(e.id, id) != 0 && !(code == FAKE_MEMORY && strcmp(e.id, "G03") == 0))
            test_fail("call %d: %s [%s]", (int)n, e.text, e.id);
        assert_true(fake.after == 0 && dev->bytes == 0);
        assert_true(code == FAKE_HANG && failed ? fake.blocks > 0 || n == 1 : fake.blocks == 0);
        device_close(dev);
        assert_int_equal(fake.closed, code != FAKE_HANG || !failed);
        if (code == FAKE_HANG && failed)
            fake_close(NULL);
        if (!failed) {
            assert_true(n > 20);
            return;
        }
    }
}

static void test_failing_calls(void **state)
{
    (void)state;
    every_call_fails(FAKE_LOST, "G06");
    every_call_fails(FAKE_HANG, "G07");
    every_call_fails(FAKE_MEMORY, "G04");
}

static void test_sticky_text(void **state)
{
    struct error e;
    double sum = 3;
    (void)state;
    fake_reset();
    struct device *dev = open_fake(PRECISION_F32);
    float *x = dev->ops->alloc(dev, 400);
    fake.fail_at = fake.calls;
    fake.code = FAKE_LOST;
    REDUCE(dev, square_sum, 100, 1, &sum, .x = x);
    assert_true(sum == 0);
    assert_refused(device_check(dev, &e), e, ERR_DEVICE, "G06", "cuda:0: ", "CUDA error 700", "reduce");
    fake.fail_at = -1; /* even if it could again */
    dev->ops->sync(dev);
    assert_refused(device_check(dev, &e), e, ERR_DEVICE, "G06");
    dev->ops->free(dev, x);
    device_close(dev);
}

/* ---- too little memory for a batch ------------------------------------------------------------ */

/* Labels of a scan with so much memory; *peak of it is used. */
static label_t *predict_with(size_t total, size_t *peak, int *result, struct error *e)
{
    static const int dims[3] = {40, 41, 36};
    struct predict_options o = {.patch = {32, 32, 16}, .batch = 8, .adapt = 1};
    struct predict_model model = {.def = {.define = vnet_define, .channels = 1, .classes = 2, .filters = 4}};
    struct predictor *p = NULL;
    struct prediction got = {.label = NULL};
    float *image = mem_alloc(NULL, (size_t)dims[0] * (size_t)dims[1] * (size_t)dims[2], sizeof *image);
    struct rng r = rng_start(3, 0, RNG_TEST, 0);
    for (int i = 0; i < dims[0] * dims[1] * dims[2]; i++)
        image[i] = rng_normal(&r);
    fake_reset();
    fake.total = total;
    struct device *dev = open_fake(PRECISION_F32);
    *result = params_new(&model.params, dev, &model.def, PARAMS_NO_GRAD, e);
    assert_int_equal(*result, 0);
    params_init(model.params, 5, 0);
    *result = predictor_new(&p, dev, &model, NULL, &o, e);
    if (*result == 0)
        *result = predict_array(&got, p, image, dims, e);
    *peak = dev->peak_bytes;
    predictor_free(p);
    params_free(model.params);
    assert_int_equal(fake.blocks, 0);
    device_close(dev);
    mem_free(image);
    return got.label;
}

/* [G05] Fewer windows at a time, the same mask; at last a refusal. */
static void test_smaller_batches(void **state)
{
    (void)state;
    struct error e;
    size_t peak, less = 0, tries = 0;
    int result;
    label_t *want = predict_with((size_t)256 << 20, &peak, &result, &e);
    assert_ok(result, e);
    for (size_t total = peak - 1;; total = total * 9 / 10, tries++) {
        label_t *got = predict_with(total, &less, &result, &e);
        if (result < 0)
            break;
        assert_true(less <= total);
        assert_memory_equal(got, want, 40 * 41 * 36 * sizeof *want);
        mem_free(got);
    }
    assert_true(tries >= 8); /* less than a half of the memory was enough */
    assert_true(e.code == ERR_DEVICE && strcmp(e.id, "G03") == 0);
    mem_free(want);
}

/* ---- trainings ------------------------------------------------------------------------------- */

static void noise_cases(struct case_store *s, int count, int labeled)
{
    static const int dims[3] = {18, 19, 17};
    struct error e;
    *s = (struct case_store){.channels = 1, .n_classes = 2};
    for (int i = 0; i < count; i++) {
        char name[16];
        snprintf(name, sizeof name, "case%d", i);
        struct stored_case *c =
            case_store_add(s, name, dims, i < labeled ? CASE_LABELED : CASE_UNLABELED, &e);
        assert_non_null(c);
        struct rng r = rng_start(5, (uint64_t)i, RNG_TEST, 2);
        for (int v = 0; v < dims[0] * dims[1] * dims[2]; v++) {
            int in = v / (dims[2] * dims[1]) / 6 == 1 && v / dims[2] % dims[1] / 6 == 1;
            c->image[v] = rng_normal(&r) + (float)in;
            if (c->label)
                c->label[v] = (label_t)in;
        }
    }
}

static uint64_t train_on(struct device *dev, char *method)
{
    static unsigned char bytes[1 << 22];
    struct case_store train, val;
    struct settings set = golden_runs[0].set;
    struct train_result r;
    struct error e;
    noise_cases(&train, 4, 2);
    noise_cases(&val, 1, 1);
    set.method = method;
    set.steps = 3;
    set.filters = 2;
    set.patch[0] = set.patch[1] = set.patch[2] = 16;
    set.dropout = NET_DROPOUT_BOTTLENECK;
    io_remove_tree("run");
    assert_int_equal(io->mkdir("run", 0777), 0);
    struct train_options o = {.run = "run", .settings = &set, .store = &train, .val = &val, .dev = dev};
    assert_ok(train_run(&r, &o, &e), e);
    case_store_free(&train);
    case_store_free(&val);
    FILE *f = fopen("run/model.safetensors", "rb");
    assert_non_null(f);
    size_t n = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    assert_true(n > 0 && n < sizeof bytes);
    return hash_bytes(bytes, n, 0);
}

/* One number among millions is wrong in one layer: found. */
static void test_wrong_number(void **state)
{
    static const struct {
        int forward, backward;
    } lies[] = {{0, 0}, {9, 0}, {0, 5}};
    (void)state;
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        struct error e = {.code = ERR_NONE};
        fake_reset();
        fake.total = FAKE_ARENA;
        struct device *dev = open_fake(PRECISION_F32);
        fake.lie_forward = lies[i].forward;
        fake.lie_backward = lies[i].backward;
        int result = selftest_run(NULL, dev, &e);
        if (i == 0)
            assert_ok(result, e);
        else
            assert_refused(result, e, ERR_DEVICE, "G08");
        assert_true(dev->bytes == 0 && fake.blocks == 0);
        device_close(dev);
    }
}

static void test_trainings(void **state)
{
    (void)state;
    for (int m = 0; methods[m]; m++) {
        char name[32];
        snprintf(name, sizeof name, "%s", methods[m]->name);
        struct device_options o = {.name = "cpu", .precision = PRECISION_F32, .threads = 2};
        struct device *dev;
        struct error e;
        assert_ok(device_open(&dev, &o, &e), e);
        uint64_t want = train_on(dev, name);
        device_close(dev);
        fake_reset();
        dev = open_fake(PRECISION_F32);
        assert_true(train_on(dev, name) == want);
        assert_true(dev->bytes == 0 && fake.blocks == 0);
        device_close(dev);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_library),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test(test_too_many_voxels),
        cmocka_unit_test(test_same_as_processor),
        cmocka_unit_test(test_failing_calls),
        cmocka_unit_test(test_sticky_text),
        cmocka_unit_test(test_smaller_batches),
        cmocka_unit_test(test_wrong_number),
        cmocka_unit_test(test_trainings),
    };
    return cmocka_run_group_tests(tests, test_folder_make, test_folder_remove);
}
