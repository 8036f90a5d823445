/* statistics.c - see statistics.h. Sums run in the order of the input, so equal input gives equal bits. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "score/statistics.h"

enum { EXACT_PAIRS = 50 }; /* counts up to 2^50 are exact in double, and there are 2550 sums */

struct ranked {
    double value;
    int at; /* place in the input */
};

static int by_value(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    if (x->value != y->value)
        return x->value < y->value ? -1 : 1;
    return (x->at > y->at) - (x->at < y->at);
}

/* Twice the rank of each value, so that shared ranks are whole numbers, too. Returns the sum of t^3 - t over
 * groups of t equal ones, or -1 for want of memory. */
static double double_ranks(int *rank2, const double *value, int n, struct error *e)
{
    double ties = 0;
    struct ranked *r = mem_alloc(e, (size_t)n + 1, sizeof *r);
    if (!r)
        return -1;
    for (int i = 0; i < n; i++)
        r[i] = (struct ranked){value[i], i};
    qsort(r, (size_t)n, sizeof *r, by_value);
    for (int i = 0, end; i < n; i = end) {
        for (end = i; end < n && r[end].value == r[i].value; end++)
            ;
        double t = end - i;
        ties += t * t * t - t;
        for (int k = i; k < end; k++)
            rank2[r[k].at] = i + 1 + end; /* ranks i+1 .. end, twice their mean */
    }
    mem_free(r);
    return ties;
}

/* Share of the 2^n choices of signs whose doubled rank sum is at most `sum`. */
static int share_up_to(double *out, const int *rank2, int n, int sum, struct error *e)
{
    int most = 0;
    double ways = 0;
    for (int i = 0; i < n; i++)
        most += rank2[i];
    double *count = mem_alloc(e, (size_t)most + 1, sizeof *count);
    if (!count)
        return -1;
    count[0] = 1;
    for (int i = 0; i < n; i++)
        for (int s = most; s >= rank2[i]; s--)
            count[s] += count[s - rank2[i]];
    for (int s = 0; s <= sum; s++)
        ways += count[s];
    mem_free(count);
    *out = ldexp(ways, -n);
    return 0;
}

int statistics_wilcoxon(double *p, int *pairs, const double *a, const double *b, int n, struct error *e)
{
    double *size = mem_alloc(e, (size_t)n + 1, sizeof *size), share = NAN;
    int *rank2 = mem_alloc(e, (size_t)n + 1, sizeof *rank2);
    int *sign = mem_alloc(e, (size_t)n + 1, sizeof *sign);
    int m = 0, up = 0, all = 0, result = -1;
    if (!size || !rank2 || !sign)
        goto out;
    for (int i = 0; i < n; i++) {
        double d = a[i] - b[i];
        if (!isfinite(d) || d == 0)
            continue;
        size[m] = fabs(d);
        sign[m++] = d > 0;
    }
    double ties = double_ranks(rank2, size, m, e);
    if (ties < 0)
        goto out;
    for (int i = 0; i < m; i++) {
        all += rank2[i];
        up += sign[i] ? rank2[i] : 0;
    }
    int less = up < all - up ? up : all - up;
    if (m > 0 && m <= EXACT_PAIRS) {
        if (share_up_to(&share, rank2, m, less, e) < 0)
            goto out;
        share = fmin(1, 2 * share);
    } else if (m > 0) {
        double k = m, middle = k * (k + 1) / 4, variance = k * (k + 1) * (2 * k + 1) / 24 - ties / 48;
        share = erfc((middle - 0.5 * less) / sqrt(2 * variance));
    }
    *p = share;
    if (pairs)
        *pairs = m;
    result = 0;
out:
    mem_free(size);
    mem_free(rank2);
    mem_free(sign);
    return result;
}

int statistics_holm(double *p, int n, struct error *e)
{
    struct ranked *r = mem_alloc(e, (size_t)n + 1, sizeof *r);
    double least = 0;
    int m = 0;
    if (!r)
        return -1;
    for (int i = 0; i < n; i++)
        if (!isnan(p[i]))
            r[m++] = (struct ranked){p[i], i};
    qsort(r, (size_t)m, sizeof *r, by_value);
    for (int i = 0; i < m; i++) { /* never below that of a smaller p */
        least = fmax(least, fmin(1, (m - i) * r[i].value));
        p[r[i].at] = least;
    }
    mem_free(r);
    return 0;
}

double statistics_pearson(const double *a, const double *b, int n)
{
    double mean[2] = {0, 0}, aa = 0, bb = 0, ab = 0;
    int m = 0;
    for (int i = 0; i < n; i++)
        if (isfinite(a[i]) && isfinite(b[i])) {
            mean[0] += a[i];
            mean[1] += b[i];
            m++;
        }
    for (int i = 0; i < n; i++)
        if (isfinite(a[i]) && isfinite(b[i])) {
            double x = a[i] - mean[0] / m, y = b[i] - mean[1] / m;
            aa += x * x;
            bb += y * y;
            ab += x * y;
        }
    return m > 1 && aa > 0 && bb > 0 ? ab / sqrt(aa * bb) : NAN;
}

int statistics_spearman(double *out, const double *a, const double *b, int n, struct error *e)
{
    double *both = mem_alloc(e, 2 * (size_t)n + 2, sizeof *both), *x = both, *y = both + n + 1;
    int *rank2 = mem_alloc(e, (size_t)n + 1, sizeof *rank2), m = 0, result = -1;
    if (!both || !rank2)
        goto out;
    for (int i = 0; i < n; i++)
        if (isfinite(a[i]) && isfinite(b[i])) {
            x[m] = a[i];
            y[m++] = b[i];
        }
    for (int k = 0; k < 2; k++) {
        double *values = k ? y : x;
        if (double_ranks(rank2, values, m, e) < 0)
            goto out;
        for (int i = 0; i < m; i++)
            values[i] = rank2[i];
    }
    *out = statistics_pearson(x, y, m);
    result = 0;
out:
    mem_free(both);
    mem_free(rank2);
    return result;
}

int statistics_mean(double *mean, double *sd, const double *value, int n)
{
    double sum = 0, squares = 0;
    int m = 0;
    for (int i = 0; i < n; i++)
        if (isfinite(value[i])) {
            sum += value[i];
            m++;
        }
    *mean = m > 0 ? sum / m : NAN;
    for (int i = 0; i < n; i++)
        if (isfinite(value[i]))
            squares += (value[i] - *mean) * (value[i] - *mean);
    *sd = m > 1 ? sqrt(squares / (m - 1)) : NAN;
    return m;
}
