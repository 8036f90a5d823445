/* moments.h - mean, deviation and quantiles of many numbers, the same bits for any thread count. */
#ifndef FALX_MOMENTS_H
#define FALX_MOMENTS_H

#include "base/base.h"
#include "base/pool.h"

struct moments {
    double mean, std; /* population: divided by n */
    double min, max;
};
/* n >= 1 finite values. */
int moments_of(struct moments *out, const float *values, int64_t n, struct pool *pool, struct error *e);
/* The value below which `percent` (0..100) of the n >= 1 values lie, linear between neighbours as
 * NumPy's percentile. Exact, without sorting and without changing the array. */
int quantile_of(double *out, const float *values, int64_t n, double percent, struct error *e);

#endif
