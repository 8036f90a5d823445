/* Tests of device/kernels_patch.h: a patch made on a device out of a case in its memory is, bit for bit, the
 * patch that the sampler makes on the processor. */
#include "test.h"

#include "base/rng.h"
#include "device/device.h"
#include "device/kernels.h"
#include "sample/augment.h"

enum { D = 11, H = 10, W = 9, CHANNELS = 2 };

static struct case_store random_case(int d, int h, int w)
{
    struct case_store s = {.channels = CHANNELS, .has_mask = 1};
    struct error e;
    struct stored_case *c = case_store_add(&s, "case", (int[3]){d, h, w}, CASE_LABELED, &e);
    struct rng r = rng_start(5, (uint64_t)(d * 10000 + h * 100 + w), RNG_TEST, 0);
    assert_non_null(c);
    c->spacing_mm[0] = 1.5;
    c->spacing_mm[1] = c->spacing_mm[2] = 0.8;
    for (int v = 0; v < d * h * w; v++) {
        for (int t = 0; t < CHANNELS; t++)
            c->image[v * CHANNELS + t] = rng_between(&r, -2, 2);
        c->label[v] = (label_t)rng_below(&r, 250);
        c->mask[v] = (uint8_t)rng_below(&r, 2);
    }
    return s;
}

/* What the processor made, and the same tensors for the device; memory of the cpu device is the host's. */
struct made {
    float image[2][D * H * W * CHANNELS];
    label_t label[D * H * W];
    uint8_t bytes[D * H * W], mask[2][D * H * W];
};

static uint8_t exchange[256]; /* every second time: what a class becomes */

static void compare(struct device *dev, const struct augment_options *o, const struct stored_case *c,
                    const uint8_t *case_label, uint64_t step)
{
    static struct made m;
    const int patch[3] = {D, H, W};
    struct augment_scratch *scratch;
    struct augment_draw draw;
    struct k_patch k;
    struct error e;
    memset(&m, 0xAA, sizeof m);
    augment_draw(&draw, o, c, patch, &(struct augment_key){.seed = 1337, .step = step, .slot = 3});
    assert_ok(augment_scratch_new(&scratch, o, 1, patch, CHANNELS, &e), e);
    augment_apply(&(struct patch){{D, H, W}, CHANNELS, m.image[0], m.label, m.mask[0]}, o, &draw, c, scratch);
    augment_scratch_free(scratch);
    augment_kernel(&k, &draw, c, patch);
    k.image = m.image[1];
    k.label = m.bytes;
    k.mask = m.mask[1];
    k.case_image = c->image;
    k.case_label = case_label;
    k.case_mask = c->mask;
    k.c = CHANNELS;
    k.exchange = step % 2 ? exchange : NULL;
    dev->ops->map(dev, KERNEL_patch, &k, D * H * W);
    for (int i = 0; i < D * H * W * CHANNELS; i++)
        assert_true(m.image[0][i] == m.image[1][i]);
    for (int v = 0; v < D * H * W; v++)
        assert_int_equal(m.bytes[v], !case_label ? 0 : step % 2 ? exchange[m.label[v]] : m.label[v]);
    assert_memory_equal(m.mask[0], m.mask[1], sizeof m.mask[0]);
}

static void test_same_patch(void **state)
{
    static const int sizes[][3] = {{14, 15, 16}, {11, 10, 9}, {5, 20, 8}, {1, 1, 1}, {30, 9, 9}};
    const struct augment_options kinds[] = {
        augment_paper,
        {.crop = AUGMENT_CROP_WITHIN, .mirror_p = {0.5f, 0.5f, 0.5f}, .noise = {0.5f, 0, 0.3f}},
        {.crop = AUGMENT_CROP_WITHIN,
         .mirror_p = {0.5f, 0, 0},
         .scale = {0.5f, 0.7f, 1.4f},
         .rotate = {0.5f, -30, 30},
         .noise = {0.5f, 0, 0.3f},
         .brightness = {0.5f, 0.7f, 1.3f},
         .shift = {0.5f, -1, 1}},
        {.crop = AUGMENT_CROP_WITHIN, .scale = {1, 0.4f, 0.6f}, .wander = 1, .shift = {1, -1, 1}},
        {.rotflip = 1, .crop = AUGMENT_CROP_CENTER, .scale = {1, 0.2f, 5}, .rotate = {1, -180, 180}}};
    struct device_options o = {.name = "cpu", .threads = 2};
    struct device *dev;
    struct error e;
    (void)state;
    assert_ok(device_open(&dev, &o, &e), e);
    for (int i = 1; i < 256; i++)
        exchange[i] = (uint8_t)(i ^ 2);
    exchange[2] = 2; /* the background stays */
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        struct case_store store = random_case(sizes[s][0], sizes[s][1], sizes[s][2]);
        const struct stored_case *c = &store.cases[0];
        uint8_t label[30 * 30 * 30];
        for (int v = 0; v < c->dims[0] * c->dims[1] * c->dims[2]; v++)
            label[v] = (uint8_t)c->label[v];
        for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
            for (uint64_t step = 0; step < 20; step++)
                compare(dev, &kinds[i], c, step % 4 ? label : NULL, step);
        case_store_free(&store);
    }
    device_close(dev);
}

static void test_what_is_local(void **state)
{
    (void)state;
    assert_true(augment_is_local(&augment_paper));
    assert_false(augment_is_local(&augment_full));
    const struct augment_options not [] = {{.elastic = {1, 0, 1}},
                                           {.blur = {1, 1, 1}},
                                           {.contrast = {1, 1, 1}},
                                           {.zoom = {1, 1, 1}},
                                           {.gamma = {1, 1, 1}}};
    for (size_t i = 0; i < sizeof not / sizeof *not ; i++)
        assert_false(augment_is_local(&not [i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_patch),
        cmocka_unit_test(test_what_is_local),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
