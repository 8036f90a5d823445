/* select.h - order statistics and weighted percentiles of non-negative numbers in linear time. */
#ifndef FALX_SELECT_H
#define FALX_SELECT_H

#include "base/base.h"

/* The smallest value v such that the weights of all values <= v sum to at least `target`; the
 * largest value if they never do. weight NULL = all 1. Values must be >= 0 (infinity is fine), n
 * >= 1. */
int select_weighted(double *out, const double *value, const double *weight, int64_t n, double target,
                    struct error *e);
/* numpy's percentile with linear interpolation; fraction in [0, 1]. */
int select_percentile(double *out, const double *value, int64_t n, double fraction, struct error *e);

#endif
