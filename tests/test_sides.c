/* test_sides.c - left and right classes: found in names and labels, exchanged in mirrored patches. */
#include "test.h"

#include "sample/find_sides.h"
#include "sample/sampler.h"

/* A labelled case of 40x20x20 voxels with balls of class 1 and 2 of these radii at these places. */
static void add_balls(struct case_store *s, const int at[2][3], const int radius[2])
{
    struct error e;
    const int dims[3] = {40, 20, 20};
    struct stored_case *k = case_store_add(s, "balls", dims, CASE_LABELED, &e);
    assert_non_null(k);
    for (int a = 0; a < 3; a++)
        k->spacing_mm[a] = a + 1;
    for (int v = 0; v < 40 * 20 * 20; v++)
        for (int b = 0; b < 2; b++) {
            int d = v / 400 - at[b][0], h = v / 20 % 20 - at[b][1], w = v % 20 - at[b][2];
            if (d * d + h * h + w * w <= radius[b] * radius[b])
                k->label[v] = (label_t)(b + 1);
        }
}

/* Two kidneys are sides of one thing; not so if they change places, if one lies behind or in the other, or if
 * it is of another volume. A case with one of them alone says nothing. */
static void test_left_and_right_are_found(void **state)
{
    (void)state;
    static const struct {
        int at[2][2][3], radius[2][2], want; /* of two cases */
    } all[] = {
        {{{{8, 9, 9}, {32, 11, 9}}, {{9, 9, 9}, {31, 9, 10}}}, {{5, 5}, {4, 5}}, 1},
        {{{{8, 9, 9}, {32, 11, 9}}, {{9, 9, 9}, {31, 9, 99}}}, {{5, 5}, {4, 5}}, 1},
        {{{{8, 9, 9}, {32, 9, 9}}, {{31, 9, 9}, {9, 9, 9}}}, {{5, 5}, {5, 5}}, 0},
        {{{{16, 4, 9}, {24, 15, 9}}, {{16, 4, 9}, {24, 15, 9}}}, {{4, 4}, {4, 4}}, 0},
        {{{{19, 9, 9}, {21, 9, 9}}, {{19, 9, 9}, {21, 9, 9}}}, {{6, 4}, {6, 4}}, 0},
        {{{{8, 9, 9}, {32, 9, 9}}, {{8, 9, 9}, {32, 9, 9}}}, {{8, 5}, {8, 5}}, 0},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct case_store s = {.channels = 1, .n_classes = 4};
        struct error e;
        struct sides got;
        for (int c = 0; c < 2; c++)
            add_balls(&s, all[i].at[c], all[i].radius[c]);
        assert_int_equal(find_sides(&got, &s, NULL, &e), all[i].want);
        for (int k = 0; k < SIDES_CLASSES; k++)
            assert_int_equal(got.other[k], all[i].want && (k == 1 || k == 2) ? 3 - k : k);
        case_store_free(&s);
    }
}

static int find_named(struct sides *out, const char *x, const char *y, const int at[2][3],
                      const int radius[2])
{
    struct case_store s = {.channels = 1, .n_classes = 3};
    char *names[3] = {"background", (char *)(uintptr_t)x, (char *)(uintptr_t)y};
    struct error e;
    add_balls(&s, at, radius);
    int n = find_sides(out, &s, names, &e);
    case_store_free(&s);
    return n;
}

/* Names that say something are believed, of things that labels alone would and would not take for sides. */
static void test_names_decide(void **state)
{
    (void)state;
    static const int alike[2][3] = {{8, 9, 9}, {32, 11, 9}}, behind[2][3] = {{20, 4, 9}, {21, 15, 9}};
    static const int one[2] = {5, 5}, other[2] = {7, 3};
    static const struct {
        const char *x, *y;
        int alike, different; /* found if the two look alike, and if not */
    } all[] = {
        {"left kidney", "right kidney", 1, 1},
        {"Kidney_Right", "kidney_left", 1, 1},
        {"LeftLung", "RightLung", 1, 1},
        {"lung.L", "lung.R", 1, 1},
        {"l kidney", "r kidney", 1, 1},
        {"RH", "LH", 1, 1},
        {"1", "2", 1, 0},
        {"class 1", "class 12", 1, 0},
        {"", "", 1, 0},
        {"left", "left", 1, 0},
        {"spleen", "stomach", 0, 0},
        {"left kidney", "right lung", 0, 0},
        {"tl1", "tr1", 0, 0},
        {"left atrium", "right", 0, 0},
        {"cell", "cerl", 0, 0},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct sides got;
        assert_int_equal(find_named(&got, all[i].x, all[i].y, alike, one), all[i].alike);
        assert_int_equal(got.other[1], all[i].alike ? 2 : 1);
        assert_int_equal(find_named(&got, all[i].x, all[i].y, alike, other), all[i].different);
        assert_int_equal(find_named(&got, all[i].x, all[i].y, behind, one), 0); /* of another axis */
    }
}

/* Of three alike in a row nobody knows which two belong together; a brighter one is another thing, and leaves
 * the two others alone with each other. */
static void test_doubtful_pairs(void **state)
{
    (void)state;
    static const int outer[2][3] = {{6, 9, 9}, {34, 9, 9}}, radius[2] = {4, 4};
    for (int bright = 0; bright < 2; bright++)
        for (int third = 0; third < 2; third++) {
            struct case_store s = {.channels = 1, .n_classes = 4};
            struct sides got;
            struct error e;
            add_balls(&s, outer, radius);
            struct stored_case *k = &s.cases[0];
            for (int v = 0; v < 40 * 20 * 20; v++) {
                int d = v / 400 - 20, h = v / 20 % 20 - 9, w = v % 20 - 9;
                if (third && d * d + h * h + w * w <= 16)
                    k->label[v] = 3;
                k->image[v] = (float)(v % 3) + (bright && k->label[v] == 2 ? 10.0f : 0.0f);
            }
            assert_int_equal(find_sides(&got, &s, NULL, &e), bright == third);
            assert_int_equal(got.other[1], bright != third ? 1 : third ? 3 : 2);
            case_store_free(&s);
        }
}

/* ---- mirrored patches ------------------------------------------------------------------------------ */

/* Class 1 lies where the first axis begins, 2 where it ends, 3 in front: along the second axis. */
static struct case_store sided_store(int axes)
{
    struct case_store s = {.channels = 1, .n_classes = 4};
    const int dims[3] = {16, 16, 16};
    struct error e;
    struct stored_case *k = case_store_add(&s, "body", dims, CASE_LABELED, &e);
    assert_non_null(k);
    for (int v = 0; v < 16 * 16 * 16; v++) {
        int d = v / 256, h = v / 16 % 16;
        k->label[v] = (label_t)(d < 4 ? 1 : d >= 12 ? 2 : h < 4 ? 3 : 0);
        k->image[v] = (float)k->label[v];
    }
    for (int i = 0; i < SIDES_CLASSES; i++)
        s.sides.other[i] = (uint8_t)(i == 1 || i == 2 ? 3 - i : i);
    s.sides.axes = axes;
    return s;
}

/* Reversed along the first axis, the body must look as it was: exchanged labels lie where they always lie. */
static void test_mirrored_bodies_have_their_left_on_the_left(void **state)
{
    (void)state;
    struct case_store s = sided_store(1);
    struct sampler_options o = {.n_labeled = 2, .patch = {16, 16, 16}, .seed = 7, .depth = 2};
    o.augment[0] = (struct augment_options){.crop = AUGMENT_CROP_WITHIN, .mirror_p = {0.5f, 0.5f, 0.5f}};
    struct sampler *sampler;
    struct error e;
    int mirrored = 0;
    assert_ok(sampler_new(&sampler, &s, &o, &e), e);
    for (int step = 0; step < 20; step++) {
        const struct batch *b = sampler_next(sampler);
        for (int i = 0; i < b->n; i++) {
            int first = b->sample[i].draw.mirror[0];
            mirrored += first;
            assert_int_equal(b->sample[i].exchanged, first);
            for (int v = 0; v < 4096; v++) {
                label_t label = b->label[i * 4096 + v], seen = (label_t)b->image[i * 4096 + v];
                assert_int_equal(label, first && (seen == 1 || seen == 2) ? 3 - seen : seen);
                if (v / 256 < 4)
                    assert_int_equal(label, 1);
            }
        }
    }
    assert_true(mirrored > 10 && mirrored < 30);
    sampler_free(sampler);
    case_store_free(&s);
}

/* Every image of RotFlip is one of another body: looking from the front, class 1 is to the same hand. */
static void test_rotflip_always_exchanges(void **state)
{
    (void)state;
    struct case_store s = sided_store(3);
    struct sampler_options o = {.n_labeled = 2, .patch = {16, 16, 16}, .seed = 7, .depth = 2};
    o.augment[0] = augment_paper;
    o.augment[0].crop = AUGMENT_CROP_WITHIN;
    struct sampler *sampler;
    struct error e;
    assert_ok(sampler_new(&sampler, &s, &o, &e), e);
    for (int step = 0; step < 20; step++) {
        const struct batch *b = sampler_next(sampler);
        for (int i = 0; i < b->n; i++) {
            double at[4][2] = {{0}}, n[4] = {0};
            for (int v = 0; v < 4096; v++) {
                label_t k = b->label[i * 4096 + v];
                at[k][0] += v / 256;
                at[k][1] += v / 16 % 16;
                n[k]++;
            }
            for (int k = 1; k < 4; k++)
                at[k][0] = at[k][0] / n[k] - 7.5, at[k][1] = at[k][1] / n[k] - 7.5;
            /* the turn from the front to class 1 is the case's own: by the sign of the cross product */
            assert_true(at[3][0] * at[1][1] - at[3][1] * at[1][0] < 0);
            assert_true(at[3][0] * at[2][1] - at[3][1] * at[2][0] > 0);
        }
    }
    sampler_free(sampler);
    case_store_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_left_and_right_are_found),
        cmocka_unit_test(test_names_decide),
        cmocka_unit_test(test_doubtful_pairs),
        cmocka_unit_test(test_mirrored_bodies_have_their_left_on_the_left),
        cmocka_unit_test(test_rotflip_always_exchanges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
