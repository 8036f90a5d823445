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
#define BOTH(b)                                                                                    \
    for (int i = 0; i < n; i++)                                                                    \
        b.logits[i] = F(z[i]), k.dlogits[i] = F(dz[i]);                                            \
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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_branches), cmocka_unit_test(test_labels)};
    fill_bytes(2);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
