/* test_distance.c - the distance transform and selection against naive references.
 *
 * Oracle: for every voxel the smallest distance over all marked voxels, by trying them all.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "score/distance.h"
#include "score/select.h"

#include <cmocka.h> /* last: it defines fail() as a macro */

enum { MOST = 4096 };

struct grid {
    int64_t dims[3];
    double spacing[3];
    uint8_t marks[MOST]; /* bit 0 and bit 1 */
};

static int64_t grid_voxels(const struct grid *g)
{
    return g->dims[0] * g->dims[1] * g->dims[2];
}

/* Shapes from a single row to a small block; sets from empty through single voxels to nearly full.
 */
static void grid_random(struct grid *g, uint64_t number)
{
    static const double densities[] = {0, 0.003, 0.03, 0.3, 0.9, 1};
    struct rng r = rng_start(7, number, RNG_TEST, 0);
    for (int a = 0; a < 3; a++) {
        g->dims[a] = 1 + rng_below(&r, 16);
        g->spacing[a] = number % 3 == 0 ? 1.0 : 0.2 + 5.0 * (double)rng_uniform(&r);
    }
    double density[2] = {densities[rng_below(&r, 6)], densities[rng_below(&r, 6)]};
    for (int64_t i = 0; i < grid_voxels(g); i++)
        g->marks[i] =
            (uint8_t)(((double)rng_uniform(&r) < density[0]) | (((double)rng_uniform(&r) < density[1]) << 1));
}

static double naive_distance(const struct grid *g, int64_t at, uint8_t to)
{
    int64_t nx = g->dims[0], ny = g->dims[1];
    double best = INFINITY;
    for (int64_t i = 0; i < grid_voxels(g); i++) {
        if (!(g->marks[i] & to))
            continue;
        double x = (double)(i % nx - at % nx) * g->spacing[0];
        double y = (double)(i / nx % ny - at / nx % ny) * g->spacing[1];
        double z = (double)(i / nx / ny - at / nx / ny) * g->spacing[2];
        double d = sqrt(x * x + y * y + z * z);
        best = d < best ? d : best;
    }
    return best;
}

static void assert_near(double got, double want, double tolerance)
{
    if (got != want && !(fabs(got - want) <= tolerance))
        fail_msg("got %.17g, want %.17g", got, want);
}

static void lists_equal_naive(void **state)
{
    static struct grid g;
    struct error e;
    (void)state;
    for (uint64_t number = 0; number < 150; number++) {
        struct distance *d;
        struct distance_list l;
        grid_random(&g, number);
        assert_int_equal(distance_new(&d, g.dims, g.spacing, NULL, &e), 0);
        assert_int_equal(distance_between(&l, d, g.marks, 2, 1, &e), 0);
        int64_t n = 0;
        for (int64_t i = 0; i < grid_voxels(&g); i++)
            n += (g.marks[i] & 2) != 0;
        assert_int_equal(l.n, n);
        for (int64_t i = 0; i < l.n; i++) {
            assert_true(g.marks[l.at[i]] & 2);
            assert_near(l.value[i], naive_distance(&g, l.at[i], 1), 1e-12);
        }
        distance_list_free(&l);
        distance_free(d);
    }
}

/* Distances from every voxel to those that are on. */
static void whole_map(float *out, const uint8_t *on, const int64_t dims[3], const double spacing[3])
{
    struct distance *d = NULL;
    struct distance_list l;
    struct error e;
    int64_t n = dims[0] * dims[1] * dims[2];
    uint8_t *marks = malloc((size_t)n);
    for (int64_t i = 0; i < n; i++)
        marks[i] = on[i] ? 3 : 2;
    assert_int_equal(distance_new(&d, dims, spacing, NULL, &e), 0);
    assert_int_equal(distance_between(&l, d, marks, 2, 1, &e), 0);
    assert_int_equal(l.n, n);
    for (int64_t i = 0; i < n; i++)
        out[l.at[i]] = (float)l.value[i];
    distance_list_free(&l);
    distance_free(d);
    free(marks);
}

static void maps_equal_naive(void **state)
{
    static struct grid g;
    static float map[MOST];
    (void)state;
    for (uint64_t number = 200; number < 260; number++) {
        grid_random(&g, number);
        for (int64_t i = 0; i < grid_voxels(&g); i++)
            g.marks[i] &= 1;
        whole_map(map, g.marks, g.dims, g.spacing);
        for (int64_t i = 0; i < grid_voxels(&g); i++) {
            double want = naive_distance(&g, i, 1);
            assert_near((double)map[i], want, 1e-6 * want);
        }
    }
}

/* A long thin grid: parabolas far apart, where careless arithmetic loses digits. */
static void long_axis_is_exact(void **state)
{
    const int64_t dims[3] = {20000, 1, 1}, turned[3] = {1, 1, 20000};
    const double spacing[3] = {0.7, 1, 0.7};
    uint8_t *marks = calloc(20000, 1);
    float *map = calloc(20000, sizeof *map);
    (void)state;
    marks[0] = marks[19999] = 1;
    for (int turn = 0; turn < 2; turn++) {
        whole_map(map, marks, turn ? turned : dims, spacing);
        for (int i = 0; i < 20000; i++)
            assert_near((double)map[i], 0.7 * (i < 10000 ? i : 19999 - i), 1e-3);
    }
    free(marks);
    free(map);
}

static void threads_change_nothing(void **state)
{
    static struct grid g;
    struct distance_list lists[3];
    struct error e;
    (void)state;
    grid_random(&g, 3);
    g.dims[0] = g.dims[1] = g.dims[2] = 16;
    for (int i = 0; i < MOST; i++)
        g.marks[i] = (uint8_t)(i % 7 == 0 ? 1 : i % 5 == 0 ? 2 : 0);
    for (int t = 0; t < 3; t++) {
        struct pool *pool;
        struct distance *d;
        assert_int_equal(pool_new(&pool, 1 << t, &e), 0);
        assert_int_equal(distance_new(&d, g.dims, g.spacing, pool, &e), 0);
        assert_int_equal(distance_between(&lists[t], d, g.marks, 1, 2, &e), 0);
        assert_int_equal(lists[t].n, lists[0].n);
        size_t bytes = (size_t)lists[0].n * sizeof(double);
        assert_memory_equal(lists[t].value, lists[0].value, bytes);
        assert_memory_equal(lists[t].at, lists[0].at, bytes);
        distance_free(d);
        pool_free(pool);
    }
    for (int t = 0; t < 3; t++)
        distance_list_free(&lists[t]);
}

static void bad_grids_are_refused(void **state)
{
    const int64_t good[3] = {4, 4, 4}, long_axis[3] = {4, DISTANCE_MAX_AXIS + 1, 1};
    const double one[3] = {1, 1, 1}, zero[3] = {1, 0, 1}, nan[3] = {1, 1, NAN};
    struct distance *d;
    struct error e;
    (void)state;
    assert_int_equal(distance_new(&d, long_axis, one, NULL, &e), -1);
    assert_int_equal(e.code, ERR_DATA);
    assert_int_equal(distance_new(&d, good, zero, NULL, &e), -1);
    assert_int_equal(distance_new(&d, good, nan, NULL, &e), -1);
    for (int n = 0; n < 16; n++) { /* every allocation may fail */
        mem_fail_at(n, 0);
        assert_int_equal(distance_new(&d, good, one, NULL, &e), -1);
        assert_int_equal(e.code, ERR_MEMORY);
    }
    mem_fail_at(-1, 0);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void percentiles_equal_sorting(void **state)
{
    struct error e;
    (void)state;
    for (uint64_t number = 0; number < 60; number++) {
        struct rng r = rng_start(11, number, RNG_TEST, 0);
        int64_t n = 1 + rng_below(&r, number < 20 ? 5 : 300);
        double value[300], sorted[300], fraction = number % 4 ? (double)rng_uniform(&r) : 0.95, got;
        for (int64_t i = 0; i < n; i++) /* many ties in half of the lists */
            value[i] = number % 2 ? (double)rng_below(&r, 6) : 100 * (double)rng_uniform(&r);
        memcpy(sorted, value, sizeof sorted);
        qsort(sorted, (size_t)n, sizeof *sorted, by_value);
        double place = fraction * (double)(n - 1);
        int64_t low = (int64_t)place, high = low + 1 < n ? low + 1 : low;
        assert_int_equal(select_percentile(&got, value, n, fraction, &e), 0);
        assert_near(got, sorted[low] + (place - (double)low) * (sorted[high] - sorted[low]), 1e-12);
    }
}

static void weights_are_honoured(void **state)
{
    const double value[] = {3, 1, 2, INFINITY}, weight[] = {5, 1, 2, 2};
    const double target[] = {0, 1, 1.5, 3, 3.5, 8, 8.5, 99}, want[] = {1, 1, 2, 2, 3, 3, INFINITY, INFINITY};
    struct error e;
    (void)state;
    for (int i = 0; i < 8; i++) {
        double got;
        assert_int_equal(select_weighted(&got, value, weight, 4, target[i], &e), 0);
        assert_near(got, want[i], 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_equal_naive),     cmocka_unit_test(maps_equal_naive),
        cmocka_unit_test(long_axis_is_exact),    cmocka_unit_test(threads_change_nothing),
        cmocka_unit_test(bad_grids_are_refused), cmocka_unit_test(percentiles_equal_sorting),
        cmocka_unit_test(weights_are_honoured),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
