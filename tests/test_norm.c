/* test_norm.c - the two operations of norm.h against plain loops in double, at every level of the
 * processor. On the cpu device memory is host memory, so that the tests can write it.
 */
#include "device/isa/levels.h"
#include "device/norm.h"
#include "net_bench.h"

static void put_value(struct tensor *t, int64_t i, float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    if (t->type == VALUE_F32)
        ((float *)t->data)[i] = v;
    else
        ((uint16_t *)t->data)[i] = (uint16_t)(bits >> 16);
}

static double get_value_at(const struct tensor *t, int64_t i)
{
    float v;
    uint32_t bits;
    if (t->type == VALUE_F32)
        return (double)((float *)t->data)[i];
    bits = (uint32_t)((uint16_t *)t->data)[i] << 16;
    memcpy(&v, &bits, sizeof v);
    return (double)v;
}

static void check_sums(struct device *dev, int c, int w, enum value_type type, int relu)
{
    struct tensor y = {.type = type, .n = 2, .d = 3, .h = 5, .w = w, .c = c}, g = y;
    int64_t n = tensor_count(&y), V = tensor_voxels(&y) / 2, nc = 2 * c;
    y.data = dev->ops->alloc(dev, (size_t)n * 4);
    g.data = dev->ops->alloc(dev, (size_t)n * 4);
    float *tables = dev->ops->alloc(dev, (size_t)(5 * c) * sizeof *tables);
    double *sums = malloc(norm_sums_count(2, c) * sizeof *sums), *want = calloc((size_t)nc * 3, sizeof *want);
    struct conv_source s = {y, tables, tables + nc, relu};
    float *mean = tables + 2 * nc;
    for (int i = 0; i < 5 * c; i++)
        tables[i] = (float)grad_at(i, 3) * 700;
    for (int64_t i = 0; i < n; i++) {
        put_value(&y, i, (float)image_at(i) + 0.2f);
        put_value(&g, i, (float)grad_at(i, 1));
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t at = i / c / V * c + i % c;
        double v = get_value_at(&y, i), G = get_value_at(&g, i);
        if (relu && !((float)(tables[at] * (float)v) + tables[nc + at] > 0))
            continue;
        want[at] += G;
        want[nc + at] += G * (v - (double)mean[i % c]);
        want[2 * nc + at] += fabs(G);
    }
    dev->ops->norm_sums(dev, &g, &s, mean, sums);
    for (int64_t i = 0; i < nc; i++) {
        double limit = 1e-6 * want[2 * nc + i];
        assert_true(fabs(sums[i] - want[i]) <= limit);
        assert_true(fabs(sums[nc + i] - want[nc + i]) <= 3 * limit);
    }
    free(sums);
    free(want);
    dev->ops->free(dev, tables);
    dev->ops->free(dev, y.data);
    dev->ops->free(dev, g.data);
}

static struct device *open_level(const char *level)
{
    struct device_options o = {.name = "cpu", .precision = PRECISION_F32, .threads = 2, .level = level};
    struct device *dev = NULL;
    struct error e = {0};
    if (device_open(&dev, &o, &e) < 0)
        print_message("%s\n", e.text);
    return dev;
}

static void test_norm_sums(void **state)
{
    static const int channels[] = {1, 2, 3, 4, 7, 8, 16, 24, 32, 48, 100, 256};
    (void)state;
    for (int l = 0; l < ISA_LEVELS; l++) {
        struct device *dev = open_level(isa_names[l]);
        if (!dev)
            continue;
        for (int i = 0; i < COUNT(channels); i++)
            for (int k = 0; k < 4; k++)
                check_sums(dev, channels[i], k & 1 ? 7 : 90, k & 1 ? VALUE_F32 : VALUE_BF16, k & 2);
        check_sums(dev, 16, 2000, VALUE_BF16, 1); /* several pieces */
        device_close(dev);
    }
}

static void check_join(struct device *dev, int relu, enum value_type type)
{
    enum { N = 70001 };
    struct tensor to = make_tensor(dev, 1, 1, 1, N, 1), y = make_tensor(dev, 1, 1, 1, N, 1), g = y;
    g.type = type;
    g.data = dev->ops->alloc(dev, N * sizeof(float));
    for (int i = 0; i < N; i++) {
        put_value(&to, i, (float)i);
        put_value(&y, i, (float)image_at(i));
        put_value(&g, i, (float)(i % 5) * 0.5f);
    }
    struct conv_source s = {y, NULL, NULL, relu};
    dev->ops->grad_join(dev, &to, &g, &s);
    for (int i = 0; i < N; i++) {
        double add = !relu || image_at(i) > 0 ? (i % 5) * 0.5 : 0;
        assert_true(get_value_at(&to, i) == i + add);
    }
    dev->ops->free(dev, to.data);
    dev->ops->free(dev, y.data);
    dev->ops->free(dev, g.data);
}

static void test_grad_join(void **state)
{
    (void)state;
    for (int l = 0; l < ISA_LEVELS; l++) {
        struct device *dev = open_level(isa_names[l]);
        for (int k = 0; dev && k < 4; k++)
            check_join(dev, k & 1, k & 2 ? VALUE_BF16 : VALUE_F32);
        device_close(dev);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_norm_sums),
        cmocka_unit_test(test_grad_join),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
