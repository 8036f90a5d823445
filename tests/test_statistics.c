/* test_statistics.c - the tests over cases against SciPy 1.10, and against counting by hand.
 *
 * Figures in comments name the call that gave them; series are formulas, so that both sides can make them.
 */
#include <math.h>

#include "score/statistics.h"
#include "test.h"

enum { MOST = 100 };

static void near(double got, double want)
{
    if (!(fabs(got - want) <= 1e-12 * (1 + fabs(want))) && !(isnan(got) && isnan(want)))
        test_fail("got %.17g, want %.17g", got, want);
}

/* Differences ((i * times) % 97) / 97 + add, i = 1..n, as pairs. */
static double p_of(int n, int times, double add)
{
    double a[MOST], b[MOST], p;
    int pairs;
    struct error e;
    for (int i = 0; i < n; i++) {
        a[i] = ((i + 1) * times % 97) / 97.0 + add;
        b[i] = 0;
    }
    assert_ok(statistics_wilcoxon(&p, &pairs, a, b, n, &e), e);
    assert_int_equal(pairs, n);
    return p;
}

static void wilcoxon_is_scipys(void **state)
{
    (void)state; /* scipy.stats.wilcoxon(d, mode="exact"), the last mode="approx" */
    near(p_of(6, 31, -0.3), 0.09375);
    near(p_of(12, 31, -0.3), 0.01611328125);
    near(p_of(20, 53, -0.4), 0.20244979858398438);
    near(p_of(50, 31, -0.45), 0.19427670053532076);
    near(p_of(90, 31, -0.42), 0.007775403611927758);
}

static void ties_and_zeros(void **state)
{
    double a[MOST], b[MOST] = {0}, p;
    int pairs;
    struct error e;
    (void)state;
    for (int i = 0; i < 80; i++) /* d = ((i * 31) % 13) - 5, i = 1..80; approx, zero_method="wilcox" */
        a[i] = (i + 1) * 31 % 13 - 5;
    assert_ok(statistics_wilcoxon(&p, &pairs, a, b, 80, &e), e);
    near(p, 0.017087844509735363);
    assert_int_equal(pairs, 73);
    for (int i = 0; i < 12; i++) /* d = ((i * 5) % 7) - 2: all 2^11 signs counted in Python */
        a[i] = (i + 1) * 5 % 7 - 2;
    assert_ok(statistics_wilcoxon(&p, &pairs, a, b, 12, &e), e);
    near(p, 0.0595703125);
    assert_int_equal(pairs, 11);
}

static void nothing_to_say(void **state)
{
    double a[3] = {1, NAN, 2}, b[3] = {1, 5, 2}, p, sd;
    int pairs;
    struct error e;
    (void)state;
    assert_ok(statistics_wilcoxon(&p, &pairs, a, b, 3, &e), e);
    assert_true(isnan(p) && pairs == 0);
    assert_ok(statistics_wilcoxon(&p, NULL, a, b, 0, &e), e);
    assert_true(isnan(p));
    a[0] = 2;
    assert_ok(statistics_wilcoxon(&p, &pairs, a, b, 3, &e), e);
    near(p, 1); /* one pair: both signs are as far from the middle */
    assert_true(isnan(statistics_pearson(a, b, 1)));
    assert_true(isnan(statistics_pearson(b, b, 0)));
    assert_int_equal(statistics_mean(&p, &sd, a, 2), 1);
    assert_true(p == 2 && isnan(sd));
    assert_int_equal(statistics_mean(&p, &sd, a + 1, 1), 0);
    assert_true(isnan(p));
}

/* Swapping the sides or the order of the pairs changes nothing. */
static void order_does_not_matter(void **state)
{
    double a[30], b[30], c[30], d[30], p, q;
    struct error e;
    (void)state;
    for (int i = 0; i < 30; i++) {
        a[i] = i * 17 % 31;
        b[i] = i * 11 % 23;
        c[(i + 7) % 30] = b[i];
        d[(i + 7) % 30] = a[i];
    }
    assert_ok(statistics_wilcoxon(&p, NULL, a, b, 30, &e), e);
    assert_ok(statistics_wilcoxon(&q, NULL, c, d, 30, &e), e);
    assert_true(p == q && p > 0 && p < 1);
}

static void holm_raises(void **state)
{
    double p[6] = {0.01, 0.04, NAN, 0.03, 0.005, 0.9};
    static const double want[6] = {0.04, 0.09, NAN, 0.09, 0.025, 0.9}; /* m = 5, by hand */
    struct error e;
    (void)state;
    assert_ok(statistics_holm(p, 6, &e), e);
    for (int i = 0; i < 6; i++)
        near(p[i], want[i]);
}

static void correlations_are_scipys(void **state)
{
    double a[24], b[24], r;
    struct error e;
    (void)state;
    for (int i = 0; i < 24; i++) {
        a[i] = (i + 1) * 31 % 17 * 1.5;
        b[i] = (i + 1) * 13 % 11 + 0.3 * ((i + 1) * 31 % 17);
    }
    near(statistics_pearson(a, b, 24), 0.13120189550491812);
    assert_ok(statistics_spearman(&r, a, b, 24, &e), e);
    near(r, -0.3291969858491121);
    a[3] = NAN; /* left out with its partner */
    assert_ok(statistics_spearman(&r, a, a, 24, &e), e);
    near(r, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wilcoxon_is_scipys), cmocka_unit_test(ties_and_zeros),
        cmocka_unit_test(nothing_to_say),     cmocka_unit_test(order_does_not_matter),
        cmocka_unit_test(holm_raises),        cmocka_unit_test(correlations_are_scipys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
