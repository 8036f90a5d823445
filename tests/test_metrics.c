/* test_metrics.c - scores on shapes whose answer is known, and against a naive reference.
 *
 * The comparison with SciPy over many shapes is tests/oracle_metrics.sh; here are the definitions
 * themselves, borders, empty masks, means and threads.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include "base/rng.h"
#include "score/metrics.h"
#include "score/surface.h"

#include <cmocka.h> /* last: it defines fail() as a macro */

enum { N = 14, VOXELS = N * N * N };

static const int64_t dims[3] = {N, N, N};
static const double unit[3] = {1, 1, 1};
static const struct metric_options mm = {METRIC_PROTOCOL_MM, 1.0};
static const struct metric_options paper = {METRIC_PROTOCOL_PAPER, 1.0};

static void fill_box(label_t *v, const int lo[3], const int hi[3], label_t class)
{
    for (int z = lo[2]; z < hi[2]; z++)
        for (int y = lo[1]; y < hi[1]; y++)
            for (int x = lo[0]; x < hi[0]; x++)
                v[x + N * (y + N * z)] = class;
}

static void near(double got, double want, double tolerance)
{
    if (!(fabs(got - want) <= tolerance) && !(isnan(got) && isnan(want)))
        fail_msg("got %.17g, want %.17g", got, want);
}

static struct case_score measure(const label_t *t, const label_t *p, const double spacing[3],
                                 const struct metric_options *o)
{
    struct case_score s;
    struct error e;
    assert_int_equal(metrics_measure(&s, &(struct label_pair){t, p, dims, spacing}, o, NULL, &e), 0);
    return s;
}

static void equal_cubes_are_perfect(void **state)
{
    static label_t t[VOXELS];
    (void)state;
    fill_box(t, (int[]){3, 3, 3}, (int[]){9, 9, 9}, 1);
    struct case_score s = measure(t, t, unit, &mm);
    assert_int_equal(s.n_classes, 1);
    const double *v = s.classes[0].value;
    near(v[METRIC_DICE], 1, 0);
    near(v[METRIC_JACCARD], 1, 0);
    near(v[METRIC_NSD], 1, 0);
    static const enum metric zero[] = {METRIC_ASD,         METRIC_ASSD,       METRIC_HD,
                                       METRIC_HD95,        METRIC_HD95_MONAI, METRIC_HD95_DEEPMIND,
                                       METRIC_VOLUME_ERROR};
    for (int i = 0; i < 7; i++)
        near(v[zero[i]], 0, 0);
    case_score_free(&s);
}

/* A 6-cube has 152 surface voxels; shifted by one along x, one face of 36 has no counterpart, and
 * the voxels beside the two x faces coincide with the other surface. */
static void shifted_cube(void **state)
{
    static label_t t[VOXELS], p[VOXELS];
    static const double spacing[3] = {2.5, 1, 1};
    (void)state;
    fill_box(t, (int[]){3, 3, 3}, (int[]){9, 9, 9}, 1);
    fill_box(p, (int[]){4, 3, 3}, (int[]){10, 9, 9}, 1);
    struct case_score s = measure(t, p, spacing, &mm);
    const double *v = s.classes[0].value;
    near(v[METRIC_DICE], 2.0 * 180 / 432, 1e-15);
    near(v[METRIC_JACCARD], 180.0 / 252, 1e-15);
    near(v[METRIC_HD], 2.5, 1e-15);
    near(v[METRIC_HD95], 2.5, 1e-15);
    near(v[METRIC_ASD], v[METRIC_ASSD], 1e-15); /* the two shapes are each other's mirror image */
    /* prediction's far face: 36 voxels at 2.5 mm; its near face: 4 x 4 inner voxels are 1 voxel
     * inside the truth: 1 mm from its sides at the rim, 2 mm in the middle, never more than 2.5
     * along x */
    double far_face = 36 * 2.5, inner = 12 * 1.0 + 4 * 2.0;
    near(v[METRIC_ASD], (far_face + inner) / 152, 1e-12);
    case_score_free(&s);
}

static void asd_has_a_direction(void **state)
{
    static label_t t[VOXELS], p[VOXELS];
    (void)state;
    fill_box(t, (int[]){2, 2, 2}, (int[]){5, 5, 5}, 1);
    memcpy(p, t, sizeof p);
    fill_box(p, (int[]){11, 2, 2}, (int[]){12, 3, 3}, 1); /* a speck far away, prediction only */
    struct case_score s = measure(t, p, unit, &mm), back = measure(p, t, unit, &mm);
    near(s.classes[0].value[METRIC_ASD], 7.0 / 27, 1e-15); /* 26 surface voxels at 0, the speck at 7 */
    near(back.classes[0].value[METRIC_ASD], 0, 0);
    near(s.classes[0].value[METRIC_ASSD], 3.5 / 27, 1e-15);
    near(s.classes[0].value[METRIC_HD], 7, 0);
    /* pooled: 53 values, place 49.4: still zero; one direction alone: 27 values, place 24.7: zero
     */
    near(s.classes[0].value[METRIC_HD95], 0, 0);
    near(s.classes[0].value[METRIC_HD95_MONAI], 0, 0);
    case_score_free(&s);
    case_score_free(&back);
}

/* A slab over the whole array: its faces at the array's border are surface too. */
static void border_counts_as_surface(void **state)
{
    static label_t t[VOXELS], p[VOXELS];
    (void)state;
    fill_box(t, (int[]){0, 0, 0}, (int[]){N, N, N}, 1);
    fill_box(p, (int[]){6, 6, 6}, (int[]){7, 7, 7}, 1);
    struct case_score s = measure(t, p, unit, &mm);
    near(s.classes[0].value[METRIC_ASD], 6, 0); /* six voxels from the middle to the border */
    case_score_free(&s);
}

static void empty_masks(void **state)
{
    static label_t none[VOXELS], some[VOXELS];
    struct metric_empties empty;
    struct metric_summary sum;
    struct error e;
    (void)state;
    fill_box(some, (int[]){3, 3, 3}, (int[]){5, 5, 5}, 1);
    for (int i = 0; i < 2; i++) {
        const struct metric_options *o = i ? &paper : &mm;
        struct case_score c[3] = {measure(some, none, unit, o), measure(none, some, unit, o),
                                  measure(none, none, unit, o)};
        assert_int_equal(metrics_align(c, 3, o, &e), 0);
        assert_int_equal(c[2].n_classes, 1);
        near(c[0].classes[0].value[METRIC_DICE], 0, 0);
        near(c[0].classes[0].value[METRIC_HD95], i ? 0 : NAN, 0);
        near(c[0].classes[0].value[METRIC_HD], NAN, 0);
        near(c[0].classes[0].value[METRIC_VOLUME_ERROR], -1, 0);
        near(c[1].classes[0].value[METRIC_DICE], 0, 0);
        near(c[1].classes[0].value[METRIC_ASD], NAN, 0);
        near(c[2].classes[0].value[METRIC_DICE], i ? 0 : NAN, 0);
        metrics_count_empties(&empty, c, 3);
        assert_int_equal(empty.predictions, 1);
        assert_int_equal(empty.truths, 1);
        assert_int_equal(empty.both, 1);
        metrics_summarise(&sum, c, 3, -1);
        assert_int_equal(sum.n[METRIC_DICE], i ? 3 : 2);
        assert_int_equal(sum.n[METRIC_ASD], i ? 2 : 0);
        near(sum.mean[METRIC_ASD], i ? 0 : NAN, 0);
        for (int k = 0; k < 3; k++)
            case_score_free(&c[k]);
    }
}

static void means_go_over_classes_then_cases(void **state)
{
    struct class_score one[2] = {{.class = 1}, {.class = 2}}, two[2] = {{.class = 1}, {.class = 2}};
    struct case_score cases[2] = {{NULL, one, 2}, {NULL, two, 2}};
    struct metric_summary s;
    (void)state;
    one[0].value[METRIC_DICE] = 0.2;
    one[1].value[METRIC_DICE] = 0.6;
    two[0].value[METRIC_DICE] = 0.9;
    two[1].value[METRIC_DICE] = NAN; /* case mean 0.9: the undefined class takes no part */
    metrics_summarise(&s, cases, 2, -1);
    near(s.mean[METRIC_DICE], 0.65, 1e-15);
    near(s.sd[METRIC_DICE], 0.25 * sqrt(2), 1e-15);
    metrics_summarise(&s, cases, 2, 1);
    near(s.mean[METRIC_DICE], 0.6, 1e-15);
    near(s.sd[METRIC_DICE], NAN, 0);
    assert_int_equal(s.n[METRIC_DICE], 1);
}

static void areas_of_known_shapes(void **state)
{
    static const double spacing[3] = {1, 2, 3};
    double area[256], plain[256];
    (void)state;
    surface_areas(area, spacing);
    surface_areas(plain, unit);
    near(area[0] + area[255], 0, 0);
    for (int code = 0; code < 256; code++)
        near(area[code], area[255 - code], 1e-12);
    for (int code = 1; code < 255; code++)
        assert_true(plain[code] > 0.2 && plain[code] < 2);
    near(plain[1], sqrt(3) / 8, 1e-15);
    near(area[0x0f], 1 * 2, 1e-12);                  /* flat, normal to z */
    near(area[0x33], 1 * 3, 1e-12);                  /* normal to y */
    near(area[0x55], 2 * 3, 1e-12);                  /* normal to x */
    near(plain[0x03], sqrt(0.5), 1e-15);             /* an edge: a slope of 45 degrees */
    near(plain[0x07], 0.5 + 0.375 * sqrt(3), 1e-15); /* an L */
    near(plain[0x17], 0.75 * sqrt(3), 1e-15);        /* a corner with its three neighbours */
    near(plain[0x81], 2 * sqrt(3) / 8, 1e-15);       /* two opposite corners */
}

/* Pieces of area over a ball add up to 4 pi r^2, a little more because of the steps. */
static void area_of_a_ball(void **state)
{
    enum { R = 20, M = 2 * R + 3 };
    static label_t v[M * M * M];
    const int64_t shape[3] = {M, M, M};
    struct mask_box box = {{0, 0, 0}, {M, M, M}};
    struct mask_pair m = {0};
    struct error e;
    static uint8_t marks[(M + 1) * (M + 1) * (M + 1)];
    double area[256], sum = 0;
    (void)state;
    for (int i = 0; i < M * M * M; i++) {
        int x = i % M - R - 1, y = i / M % M - R - 1, z = i / M / M - R - 1;
        v[i] = x * x + y * y + z * z <= R * R;
    }
    assert_int_equal(mask_pair_new(&m, &(struct label_pair){v, v, shape, unit}, &box, 1, NULL, &e), 0);
    surface_mark_corners(marks, &m, NULL);
    surface_areas(area, unit);
    for (int64_t i = 0; i < (int64_t)sizeof marks; i++)
        if (marks[i] & SURFACE_TRUTH)
            sum += area[surface_code(&m, i, SURFACE_TRUTH)];
    assert_true(sum > 4 * M_PI * R * R * 1.0 && sum < 4 * M_PI * R * R * 1.12);
    mask_pair_free(&m);
}

static void nsd_steps_with_the_tolerance(void **state)
{
    static label_t t[VOXELS], p[VOXELS];
    struct metric_options o = mm;
    double last = -1;
    (void)state;
    fill_box(t, (int[]){2, 2, 2}, (int[]){8, 8, 8}, 1);
    fill_box(p, (int[]){4, 2, 2}, (int[]){10, 8, 8}, 1);
    for (int i = 0; i < 4; i++) {
        o.nsd_tolerance = i;
        struct case_score s = measure(t, p, unit, &o);
        assert_true(s.classes[0].value[METRIC_NSD] > last || last == 1);
        last = s.classes[0].value[METRIC_NSD];
        if (i == 2)
            near(last, 1, 0);
        case_score_free(&s);
    }
}

static void random_labels(label_t *t, label_t *p, uint64_t seed)
{
    struct rng r = rng_start(seed, 0, RNG_TEST, 0);
    for (int i = 0; i < VOXELS; i++) {
        t[i] = (label_t)(rng_below(&r, 4) ? 0 : rng_below(&r, 5) * 60);
        p[i] = (label_t)(rng_below(&r, 3) ? t[i] : rng_below(&r, 5) * 60);
    }
}

static void threads_and_classes(void **state)
{
    static label_t t[VOXELS], p[VOXELS];
    static const double spacing[3] = {0.7, 1.3, 2.9};
    const struct label_pair pair = {t, p, dims, spacing};
    struct case_score s[3];
    struct error e;
    (void)state;
    random_labels(t, p, 5);
    for (int k = 0; k < 3; k++) {
        struct pool *pool;
        assert_int_equal(pool_new(&pool, 1 << k, &e), 0);
        assert_int_equal(metrics_measure(&s[k], &pair, &mm, pool, &e), 0);
        pool_free(pool);
        assert_int_equal(s[k].n_classes, 4); /* 60 120 180 240 */
        assert_int_equal(s[k].classes[3].class, 240);
        assert_memory_equal(s[k].classes, s[0].classes, 4 * sizeof *s[0].classes);
    }
    for (int k = 0; k < 3; k++)
        case_score_free(&s[k]);
}

static void memory_failure_is_an_error(void **state)
{
    static label_t t[VOXELS], p[VOXELS];
    const struct label_pair pair = {t, p, dims, unit};
    struct case_score s;
    struct error e;
    (void)state;
    random_labels(t, p, 6);
    mem_fail_at(1000000, 0);
    assert_int_equal(metrics_measure(&s, &pair, &mm, NULL, &e), 0);
    int64_t n = mem_count();
    case_score_free(&s);
    assert_true(n > 50);
    for (int64_t k = 0; k < n; k++) {
        mem_fail_at(k, 0);
        assert_int_equal(metrics_measure(&s, &pair, &mm, NULL, &e), -1);
        assert_int_equal(e.code, ERR_MEMORY);
        assert_null(s.classes);
    }
    mem_fail_at(-1, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_cubes_are_perfect),
        cmocka_unit_test(shifted_cube),
        cmocka_unit_test(asd_has_a_direction),
        cmocka_unit_test(border_counts_as_surface),
        cmocka_unit_test(empty_masks),
        cmocka_unit_test(means_go_over_classes_then_cases),
        cmocka_unit_test(areas_of_known_shapes),
        cmocka_unit_test(area_of_a_ball),
        cmocka_unit_test(nsd_steps_with_the_tolerance),
        cmocka_unit_test(threads_and_classes),
        cmocka_unit_test(memory_failure_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
