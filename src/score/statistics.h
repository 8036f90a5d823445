/* statistics.h - is a difference more than chance, do two numbers go together: tests over cases.
 *
 *   wilcoxon   signed-rank test of paired values, two-sided: the share of all ways to choose signs whose
 *              rank sum lies as far from the middle as the one seen. Pairs that are equal are left out, equal
 *              differences share their ranks. Up to 50 pairs every way is counted; above, the normal curve
 *              with its variance lessened for shared ranks stands for the count.
 *   holm       p-values of several tests at once, raised so that 5 % is the risk of a single false alarm
 *              among all of them
 *   pearson    linear correlation;  spearman: the same of ranks
 *
 * Values that are not finite are left out in pairs. NaN: nothing to be said.
 */
#ifndef FALX_STATISTICS_H
#define FALX_STATISTICS_H

#include "base/base.h"

/* *p: NaN if no two values differ; *pairs (may be NULL): pairs that do. -1 only for want of memory. */
int statistics_wilcoxon(double *p, int *pairs, const double *a, const double *b, int n, struct error *e);
/* In place; NaN entries do not count as tests. */
int statistics_holm(double *p, int n, struct error *e);
double statistics_pearson(const double *a, const double *b, int n);
int statistics_spearman(double *out, const double *a, const double *b, int n, struct error *e);
/* Mean of the finite ones and sd of the sample (n - 1); NaN below one and two values. Returns how many. */
int statistics_mean(double *mean, double *sd, const double *value, int n);

#endif
