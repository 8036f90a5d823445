/* Tests of the copy of kernels.h that a GPU has for the usual numbers: two classes, loops over branches
 * unrolled, rows as vectors (gpu_text.h). */
#define KERNEL_USUAL
#define KERNEL_FEW 2
#include "gpu_text.h"

enum { V = 700, c = 2, bf16 = 0, skew = 0 };

static void test_branches(void **state)
{
    (void)state;
    for (int n = 2; n <= K_BRANCHES; n++) {
        int64_t z[K_BRANCHES], dz[K_BRANCHES];
        used = 0;
        for (int i = 0; i < n; i++)
            z[i] = take(V * c, 0), dz[i] = take(V * c, 0);
#define BOTH(b)                                                                                              \
    for (int i = 0; i < n; i++)                                                                              \
        b.logits[i] = F(z[i]), k.dlogits[i] = F(dz[i]);                                                      \
    b.n = n, b.classes = c
        SAME(mutual_grad, V, BOTH(k.b), k.askers = n - 1, k.sharpness = 10, k.scale = 0.3f);
        SAME(pyramid_grad, V, BOTH(k.b), k.by_kl = 0.3f, k.by_square[0] = 0.2f, k.by_sure[1] = 0.1f);
    }
}

static void test_labels(void **state)
{
    (void)state;
    used = 0;
    int64_t z = take(V * c, 0), dz = take(V * c, 0), tables = take(2 * c, 0), sure = take(V, 0);
    int64_t label = take(V, 0);
    SAME(ce_dice_grad, V, k.logits = F(z), k.label = bytes, k.dlogits = F(dz), k.classes = c, k.a = F(tables),
         k.b = F(tables) + c);
    SAME(hard_label, V, k.logits = F(z), k.label = (uint8_t *)F(label), k.confidence = F(sure),
         k.classes = c);
}

static void test_prototypes(void **state)
{
    (void)state;
    used = 0;
    const double voxels = V;
    int64_t f = take(V * K_DIMS, 0), df = take(V * K_DIMS, 0), w = take(V, 0);
    int64_t table = take(c * K_PROTO_ROW, 0);
    SAME_SUMS(class_moments, V, c * K_ORDER_2, k.rows = F(f), k.label = bytes, k.classes = c, k.order = 2,
              k.shift[1][3] = 0.3f);
    for (int fresh = 0; fresh < 2; fresh++)
        SAME_SUMS(proto_loss, V, 1, k.table = F(table), k.features = F(f), k.dfeatures = F(df),
                  k.label = bytes, k.weights = F(w), k.classes = c, k.ignore_bg = fresh, k.fresh = fresh,
                  k.tau = 0.5f, k.weight = 70, k.count = &voxels);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_branches), cmocka_unit_test(test_labels),
                                       cmocka_unit_test(test_prototypes)};
    fill_bytes(2);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
