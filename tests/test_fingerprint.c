/* test_fingerprint.c - what a recipe is chosen from: quantiles, boxes, fingerprints; naive oracles.
 */
#include "test.h"

#include <math.h>

#include "base/rng.h"
#include "prepare/boxes.h"
#include "prepare/fingerprint.h"
#include "prepare/moments.h"
#include "scans.h"

static int compare_floats(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static void quantiles_are_those_of_sorted_values(void **state)
{
    (void)state;
    struct rng r = rng_start(6, 0, RNG_TEST, 0);
    struct error e;
    float values[1000], sorted[1000];
    for (int n = 1; n <= 1000; n = n * 3 + 1) {
        for (int i = 0; i < n; i++)
            values[i] = sorted[i] = rng_normal(&r) * 100.0f - (float)(i % 3);
        qsort(sorted, (size_t)n, sizeof *sorted, compare_floats);
        for (double p = 0.0; p <= 100.0; p += 12.5) {
            double at = p / 100.0 * (n - 1), have;
            int below = (int)at, above = below + 1 < n ? below + 1 : below;
            double lo = (double)sorted[below], hi = (double)sorted[above];
            assert_ok(quantile_of(&have, values, n, p, &e), e);
            assert_true(fabs(have - (lo + (hi - lo) * (at - below))) < 1e-9);
        }
    }
}

static int64_t flood(uint8_t *seen, const float *values, const int64_t dims[3], int64_t start,
                     struct box *box)
{
    static int64_t stack[4096];
    int64_t top = 0, count = 0, lo[3] = {99, 99, 99}, hi[3] = {-1, -1, -1};
    const int64_t stride[3] = {1, dims[0], dims[0] * dims[1]};
    stack[top++] = start;
    seen[start] = 1;
    while (top > 0) {
        int64_t n = stack[--top];
        int64_t at[3] = {n % dims[0], n / dims[0] % dims[1], n / stride[2]};
        count++;
        for (int a = 0; a < 3; a++) {
            lo[a] = at[a] < lo[a] ? at[a] : lo[a];
            hi[a] = at[a] > hi[a] ? at[a] : hi[a];
            for (int s = -1; s <= 1; s += 2) {
                int64_t next = n + s * stride[a];
                if (at[a] + s < 0 || at[a] + s >= dims[a] || seen[next] || !(values[next] > 0.0f))
                    continue;
                seen[next] = 1;
                stack[top++] = next;
            }
        }
    }
    for (int a = 0; a < 3; a++) {
        box->first[a] = lo[a];
        box->dims[a] = hi[a] - lo[a] + 1;
    }
    return count;
}

static void the_body_is_the_large_parts(void **state)
{
    (void)state;
    const int64_t dims[3] = {11, 9, 8};
    struct rng r = rng_start(7, 0, RNG_TEST, 0);
    struct error e;
    int n_joined = 0;
    for (int round = 0; round < 200; round++) {
        float values[792], share = rng_between(&r, 0.1f, 0.6f);
        uint8_t seen[792] = {0};
        struct box want = {{0, 0, 0}, {0, 0, 0}}, have, part[792];
        int64_t count[792], best = 0;
        int n = 0;
        for (int i = 0; i < 792; i++)
            values[i] = rng_uniform(&r) < share ? 1.0f : -1.0f;
        for (int64_t i = 0; i < 792; i++) {
            if (seen[i] || !(values[i] > 0.0f))
                continue;
            count[n] = flood(seen, values, dims, i, &part[n]);
            best = count[n] > best ? count[n] : best;
            n++;
        }
        for (int i = 0; i < n; i++) {
            if (4 * count[i] >= best)
                box_join(&want, &part[i]);
            n_joined += 4 * count[i] >= best && count[i] < best;
        }
        assert_ok(box_of_body(&have, values, dims, 0.0f, &e), e);
        assert_memory_equal(&have, &want, sizeof want);
    }
    assert_true(n_joined > 0);
    float air[792] = {0};
    struct box whole;
    assert_ok(box_of_body(&whole, air, dims, 0.0f, &e), e);
    assert_int_equal(whole.dims[0] * whole.dims[1] * whole.dims[2], 792);
}

static void the_fingerprint_chooses(void **state)
{
    (void)state;
    const int64_t dims[3] = {64, 60, 12};
    const double fine[3] = {1, 1, 5}, thick[3] = {1, 1, 7};
    struct volume image, label;
    struct case_print prints[5];
    struct fingerprint f;
    struct recipe r;
    struct error e;
    for (int i = 0; i < 5; i++) {
        scan_of(&image, dims, i == 0 ? fine : thick, -1000, 40);
        ball_of(&label, &image, 9.0);
        for (int64_t n = 0; n < volume_voxels(&label); n++) {
            if (((uint8_t *)label.data)[n])
                ((int16_t *)image.data)[n] = 150;
        }
        assert_ok(
            case_print_measure(&prints[i], &image, i < 2 ? &label : NULL, NAN_REFUSE, (uint64_t)i, 1000, &e),
            e);
        assert_int_equal(prints[i].box_dims[0], 59);
        volume_free(&image);
        volume_free(&label);
    }
    assert_ok(fingerprint_combine(&f, prints, 5, &e), e);
    assert_int_equal(f.n_labeled, 2);
    assert_true(f.channel[0].is_ct && f.channel[0].foreground.n > 100);
    assert_true(f.channel[0].foreground.mean == 150.0 && f.channel[0].foreground.std == 0.0);
    assert_ok(recipe_named(&r, "auto", 1, NAN_REFUSE, &e), e);
    recipe_choose(&r, &f);
    /* Median 7 is over 3 times coarser, 12 voxels are under a third: the 10th percentile (5 + 0.4 *
     * 2). */
    assert_true(fabs(r.spacing_mm[2] - 5.8) < 1e-9 && r.spacing_mm[0] == 1.0);
    assert_int_equal(r.crop, CROP_BODY);
    /* Foreground without any spread cannot be a window: percentiles stay. */
    assert_int_equal(r.channel[0].clip, CLIP_PERCENTILES);
    for (int i = 0; i < 2000 && i < prints[0].channel[0].foreground.n; i++) {
        prints[0].channel[0].foreground.value[i] += (float)(i % 100);
    }
    assert_ok(fingerprint_combine(&f, prints, 5, &e), e);
    assert_ok(recipe_named(&r, "auto", 1, NAN_REFUSE, &e), e);
    recipe_choose(&r, &f);
    assert_int_equal(r.channel[0].scale, SCALE_FIXED);
    assert_true(r.channel[0].low == 150.0 && r.channel[0].high > 200.0);
    prints[4].n_channels = 2;
    assert_refused(fingerprint_combine(&f, prints, 5, &e), e, ERR_DATA, "L14");
    for (int i = 0; i < 5; i++)
        case_print_free(&prints[i]);
}

/* A piece of lung: the wall of the chest on one side, a nodule in the air. The box of the largest part would
 * cut the nodule off, so scans stay whole; voxels drawn over the rim of the wall do not matter. */
static void what_is_labelled_stays(void **state)
{
    (void)state;
    const int64_t dims[3] = {40, 40, 40};
    const double mm[3] = {1, 1, 1};
    for (int is_nodule = 0; is_nodule < 2; is_nodule++) {
        struct volume image, label;
        struct case_print print;
        struct fingerprint f;
        struct recipe r;
        struct error e;
        scan_of(&image, dims, mm, -850, -850);
        assert_ok(volume_new(&label, DTYPE_U8, dims, &image.geometry, &e), e);
        for (int64_t n = 0; n < volume_voxels(&image); n++) {
            int64_t j = n / 40 % 40;
            int nodule = n % 40 < 6 && j >= 20 && j < 26;
            ((int16_t *)image.data)[n] = j < 10 || nodule ? 40 : -850;
            ((uint8_t *)label.data)[n] = (uint8_t)(is_nodule ? nodule : j < 10);
        }
        ((uint8_t *)label.data)[20 * 40] = 1;
        assert_ok(case_print_measure(&print, &image, &label, NAN_REFUSE, 0, 1000, &e), e);
        assert_int_equal(print.n_labeled, is_nodule ? 40 * 36 : 40 * 400 + 1);
        assert_int_equal(print.n_outside, is_nodule ? 40 * 36 : 1);
        assert_ok(fingerprint_combine(&f, &print, 1, &e), e);
        assert_ok(recipe_named(&r, "auto", 1, NAN_REFUSE, &e), e);
        recipe_choose(&r, &f);
        assert_int_equal(r.crop, is_nodule ? CROP_NONZERO : CROP_BODY);
        assert_int_equal(r.patch[1], is_nodule ? 48 : 16);
        case_print_free(&print);
        volume_free(&image);
        volume_free(&label);
    }
}

static void patches_are_multiples_of_16(void **state)
{
    (void)state;
    const struct {
        double dims[3];
        int64_t want[3];
    } all[] = {
        {{35.5, 50, 36}, {32, 48, 32}},
        {{400, 400, 300}, {96, 96, 96}},
        {{3, 100, 1000}, {16, 96, 576}},
        {{88, 88, 88}, {96, 96, 96}},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        int64_t patch[3];
        suggest_patch(patch, all[i].dims);
        assert_memory_equal(patch, all[i].want, sizeof patch);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantiles_are_those_of_sorted_values),
        cmocka_unit_test(the_body_is_the_large_parts),
        cmocka_unit_test(the_fingerprint_chooses),
        cmocka_unit_test(what_is_labelled_stays),
        cmocka_unit_test(patches_are_multiples_of_16),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
