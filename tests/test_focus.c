/* test_focus.c - patches that are cut around a class: which voxels, how rare, and where the patches lie. */
#include "test.h"

#include "sample/focus.h"
#include "sample/sampler.h"

/* Class 1 fills a corner of 10 voxels a side, class 2 is a single voxel far away, class 3 is in no case. */
static struct case_store make_store(void)
{
    struct case_store s = {.channels = 1, .n_classes = 4};
    const int dims[3] = {48, 40, 32};
    struct error e;
    for (int i = 0; i < 2; i++) {
        struct stored_case *c = case_store_add(&s, "scan", dims, i ? CASE_UNLABELED : CASE_LABELED, &e);
        assert_non_null(c);
        for (int v = 0; c->label && v < 48 * 40 * 32; v++) {
            int d = v / 1280, h = v / 32 % 40, w = v % 32;
            c->label[v] = (label_t)(d < 10 && h < 10 && w < 10 ? 1 : d == 40 && h == 5 && w == 30 ? 2 : 0);
        }
    }
    return s;
}

static void test_points(void **state)
{
    (void)state;
    struct case_store s = make_store();
    struct error e;
    int n[4] = {0}, low = 48, high = 0;
    assert_ok(focus_find(&s, &e), e);
    assert_int_equal(s.cases[1].n_focus, 0);
    for (int i = 0; i < s.cases[0].n_focus; i++) {
        const struct focus_point *p = &s.cases[0].focus[i];
        assert_int_equal(s.cases[0].label[(p->at[0] * 40 + p->at[1]) * 32 + p->at[2]], p->class);
        n[p->class]++;
        if (p->class == 1) {
            low = p->at[0] < low ? p->at[0] : low;
            high = p->at[0] > high ? p->at[0] : high;
        }
    }
    assert_true(n[1] == n[2] && n[1] > 100 && n[3] == 0); /* one voxel counts as much as a thousand */
    assert_true(low == 0 && high == 9);
    case_store_free(&s);
}

static void test_how_rare(void **state)
{
    (void)state;
    struct case_store s = make_store();
    struct error e;
    int rarest = -1;
    assert_ok(focus_find(&s, &e), e);
    /* of places along the axes 7 of 33, 6 of 25 and 2 of 17 hold the voxel */
    assert_true(focus_seen(&s, (const int[3]){16, 16, 16}, &rarest) < 0.1);
    assert_int_equal(rarest, 2);
    assert_true(focus_seen(&s, (const int[3]){64, 48, 32}, &rarest) == 1.0);
    assert_int_equal(rarest, 0);
    case_store_free(&s);
}

/* With a share of a half, half of the labelled patches and some hold a class, each as often; all lie where
 * patches lie, turned and mirrored ones too; unlabelled ones are as they were. */
static void test_patches_hold_a_class(void **state)
{
    (void)state;
    const struct augment_options kinds[] = {augment_paper,
                                            {.crop = AUGMENT_CROP_RANDOM},
                                            {.crop = AUGMENT_CROP_WITHIN, .mirror_p = {0.5f, 0.5f, 0.5f}}};
    enum { STEPS = 200, VOXELS = 16 * 16 * 16 };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        for (int all = 0; all < 2; all++) {
            struct case_store s = make_store();
            struct sampler_options o = {.n_labeled = 1,
                                        .n_unlabeled = 1,
                                        .patch = {16, 16, 16},
                                        .seed = 3,
                                        .augment = {kinds[i], kinds[i]},
                                        .depth = 2};
            struct sampler *focused, *plain;
            struct error e;
            int holds[4] = {0};
            assert_ok(focus_find(&s, &e), e);
            assert_ok(sampler_new(&plain, &s, &o, &e), e);
            o.augment[0].focus = all ? 1 : 0.5f;
            assert_ok(sampler_new(&focused, &s, &o, &e), e);
            for (int step = 0; step < STEPS; step++) {
                const struct batch *b = sampler_next(focused), *p = sampler_next(plain);
                const struct augment_draw *d = &b->sample[0].draw, *was = &p->sample[0].draw;
                int met[4] = {0}, turned = d->turns > 0 && d->turns % 2;
                const int extent[3] = {turned ? 40 : 48, turned ? 48 : 40, 32};
                for (int v = 0; v < VOXELS; v++)
                    met[b->label[v]] = 1;
                assert_true(!all || met[1] || met[2]);
                holds[1] += met[1];
                holds[2] += met[2];
                assert_true(d->turns == was->turns && d->flip == was->flip && d->mirror[1] == was->mirror[1]);
                for (int a = 0; a < 3; a++)
                    assert_true(d->start[a] >= 0 && d->start[a] <= extent[a] - 16 && d->pad[a] == 0);
                assert_memory_equal(&b->sample[1].draw, &p->sample[1].draw, sizeof *d);
            }
            assert_in_range(holds[1], all ? 80 : 50, all ? 140 : 100);
            assert_in_range(holds[2], all ? 80 : 30, all ? 120 : 80);
            sampler_free(focused);
            sampler_free(plain);
            case_store_free(&s);
        }
}

/* A case that is smaller than the patch along an axis lies in its middle, as ever. */
static void test_small_cases(void **state)
{
    (void)state;
    struct case_store s = make_store();
    struct augment_options without = {.crop = AUGMENT_CROP_WITHIN}, o = without;
    const int patch[3] = {16, 64, 48};
    o.focus = 1;
    struct error e;
    assert_ok(focus_find(&s, &e), e);
    for (uint64_t step = 0; step < 50; step++) {
        struct augment_key key = {.seed = 1, .step = step};
        struct augment_draw d, plain;
        augment_draw(&d, &o, &s.cases[0], patch, &key);
        augment_draw(&plain, &without, &s.cases[0], patch, &key);
        assert_memory_equal(d.pad, plain.pad, sizeof d.pad);
        assert_true(d.start[1] == plain.start[1] && d.start[2] == plain.start[2]);
        assert_true(d.start[0] < 10 || (d.start[0] > 24 && d.start[0] <= 32));
    }
    case_store_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_points),
        cmocka_unit_test(test_how_rare),
        cmocka_unit_test(test_patches_hold_a_class),
        cmocka_unit_test(test_small_cases),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
