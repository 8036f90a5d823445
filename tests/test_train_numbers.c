/* test_train_numbers.c - numbers at the edges: values too small for a float, losses of any size, a validation
 * that has nothing to measure.
 */
#include "training.h"

static struct case_store cases, held_out;
static struct settings set;
static struct report listener = {.line = test_listen};

static int setup(void **state)
{
    (void)state;
    memset(&fault, 0, sizeof fault);
    set = tiny_settings();
    loss_weight = 1.0;
    io = &quick;
    case_store_free(&held_out);
    return 0;
}

/* ---- small and large --------------------------------------------------------------------------------- */

/* Milliseconds of the fastest of five passes over voxels of this size, without biases. */
static double pass_time(struct net *net, float *voxels, float size)
{
    struct tensor image = {.data = voxels, .type = VALUE_F32, .n = 1, .d = 16, .h = 16, .w = 16, .c = 1};
    struct net_pass pass = {.mode = NET_EVAL};
    double best = INFINITY;
    for (int i = 0; i < 16 * 16 * 16; i++)
        voxels[i] = size * (float)(1 + i % 7);
    for (int i = 0; i < 5; i++) {
        double start = trainer_seconds();
        net_forward(net, &image, &pass);
        best = fmin(best, 1000.0 * (trainer_seconds() - start));
    }
    return best;
}

/* Values that fade away must not make a pass slow: 50 times, before they were flushed. */
static void denormals_take_no_time(void **state) /* M13 */
{
    (void)state;
    static float voxels[16 * 16 * 16];
    struct error e;
    struct device *dev = tiny_device(1, PRECISION_F32);
    struct net_definition def = {.define = vnet_define, .channels = 1, .classes = 2, .filters = 4};
    struct net_shape shape = {.n = 1, .d = 16, .h = 16, .w = 16, .use = NET_FORWARD_ONLY};
    struct params *p;
    struct net *net;
    assert_ok(params_new(&p, dev, &def, PARAMS_NO_GRAD, &e), e);
    params_init(p, 3, 0);
    for (int i = 0; i < p->n_trainable; i++)
        if (text_ends_with(p->list[i].name, "bias"))
            memset(p->value + p->list[i].offset, 0, (size_t)p->list[i].count * sizeof(float));
    p->version++;
    assert_ok(net_new(&net, p, &def, &shape, &e), e);
    double plain = pass_time(net, voxels, 1.0f), faint = pass_time(net, voxels, 1e-39f);
    print_message("pass of %.3f ms, %.3f ms with denormals\n", plain, faint);
    assert_true(faint < 8 * plain);
    net_free(net);
    params_free(p);
    device_close(dev);
}

/* bf16 has the exponents of float32, so there is no loss scale to overflow: a loss and its gradient times
 * 2^40 or 2^-40 with a rate that makes up for it gives the same weights, to the bit. */
static void no_loss_is_too_large(void **state) /* M15 */
{
    (void)state;
    struct error e;
    struct train_result r;
    struct device *dev;
    set.stages = 1;
    set.weight_decay = 0.0; /* does not scale with the loss */
    double rate = set.lr;
    for (enum precision p = PRECISION_F32; p <= PRECISION_BF16; p++) {
        struct device_options how = {.name = "cpu", .precision = p, .threads = 1};
        uint64_t want = 0;
        if (device_open(&dev, &how, &e) < 0) {
            print_message("no bf16 on this processor: %s\n", e.text);
            continue;
        }
        for (int bits = -40; bits <= 40; bits += 40) {
            loss_weight = ldexp(1.0, bits);
            set.lr = ldexp(rate, -bits);
            struct train_options o = tiny_options(&set, &cases, dev, "run");
            o.report = &listener;
            *test_told = '\0';
            fresh_folder("run");
            assert_ok(train_run(&r, &o, &e), e);
            assert_not_reported(REPORT_WARNING, "M02");
            assert_true(bits < 40 || heard.gradient > 1e9);
            want = bits == -40 ? result_of("run") : want;
            assert_true(result_of("run") == want);
        }
        device_close(dev);
    }
}

/* ---- validation that cannot be measured [M05] ------------------------------------------------------ */

/* Cases without any foreground. */
static void empty_cases(struct case_store *s, int n)
{
    tiny_cases(s, n, 0, 77);
    for (int i = 0; i < n; i++)
        memset(s->cases[i].label, 0, 18 * 17 * 19 * sizeof(label_t));
}

static void undefined_dice_is_left_out_and_counted(void **state)
{
    (void)state;
    struct error e;
    struct device *dev = tiny_device(1, PRECISION_F32);
    struct net_definition def = {.define = vnet_define, .channels = 1, .classes = 2, .filters = 1};
    struct validate_options o = {.patch = {16, 16, 16}};
    struct validation v;
    struct params *p;
    assert_ok(params_new(&p, dev, &def, PARAMS_NO_GRAD, &e), e);
    params_init(p, 3, 0);
    tiny_blank(p);
    empty_cases(&held_out, 3);
    assert_ok(validate(&v, dev, p, &def, &held_out, &o, &e), e);
    assert_true(isnan(v.dice) && isnan(v.per_class[0]) && v.undefined == 3);
    held_out.cases[1].label[7] = 1; /* one case with a voxel that is missed: 0, not NaN, not 0 of 3 */
    assert_ok(validate(&v, dev, p, &def, &held_out, &o, &e), e);
    assert_true(v.dice == 0.0 && v.per_class[0] == 0.0 && v.undefined == 2);
    params_free(p);
    device_close(dev);
}

static void undefined_dice_is_never_the_best(void **state)
{
    (void)state;
    struct error e;
    struct train_result r;
    struct device *dev = tiny_device(1, PRECISION_F32);
    empty_cases(&held_out, 2);
    set.val_every = 2;
    set.stages = 1;
    fault.cured = 99, fault.kind = FAULT_BLANK, fault.until = 99;
    for (int from = 0; from <= 4; from += 4) { /* undefined from the first validation, or after two */
        struct train_options o = tiny_options(&set, &cases, dev, "run");
        o.val = &held_out;
        fault.from = from;
        heard.stop_at = from ? from : 1;
        fresh_folder("run");
        assert_refused(train_run(&r, &o, &e), e, ERR_STOPPED, "P11");
        assert_int_equal(io_exists("run/best.safetensors"), from > 0);
        uint64_t best = from ? hash_of("run", "best.safetensors") : 0;
        o.resume = 1;
        heard.stop_at = -1;
        assert_ok(train_run(&r, &o, &e), e);
        assert_true(isnan(heard.dice) && isnan(r.dice) && heard.undefined == 2);
        assert_int_equal(io_exists("run/best.safetensors"), from > 0);
        if (from)
            assert_true(hash_of("run", "best.safetensors") == best);
    }
    device_close(dev);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, setup)
    const struct CMUnitTest tests[] = {
        TEST(denormals_take_no_time),
        TEST(no_loss_is_too_large),
        TEST(undefined_dice_is_left_out_and_counted),
        TEST(undefined_dice_is_never_the_best),
    };
    tiny_cases(&cases, 4, 3, 5);
    int result = cmocka_run_group_tests(tests, test_folder_make, test_folder_remove);
    case_store_free(&cases);
    case_store_free(&held_out);
    return result;
}
