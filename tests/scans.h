/* scans.h - small made-up scans and labels for tests of preparation. */
#ifndef FALX_TEST_SCANS_H
#define FALX_TEST_SCANS_H

#include <math.h>

#include "base/rng.h"
#include "test.h"
#include "volume/volume.h"

/* A scan of int16 values: air of `air`, a body of noise around `body` in the middle box. */
static inline void scan_of(struct volume *v, const int64_t dims[3], const double spacing[3], int air,
                           int body)
{
    struct error e;
    struct rng r = rng_start(5, 0, RNG_TEST, 0);
    assert_ok(volume_new(v, DTYPE_I16, dims, NULL, &e), e);
    geometry_identity(&v->geometry, spacing);
    v->geometry.known = 1;
    for (int64_t n = 0; n < volume_voxels(v); n++) {
        int64_t at[3] = {n % dims[0], n / dims[0] % dims[1], n / (dims[0] * dims[1])};
        int inside = 1;
        for (int a = 0; a < 3; a++)
            inside &= at[a] >= 3 && at[a] < dims[a] - 2;
        int value = inside ? body + (int)rng_below(&r, 60) : air;
        ((int16_t *)v->data)[n] = (int16_t)value;
    }
}

/* A ball of class 1 with a core of class 2. */
static inline void ball_of(struct volume *v, const struct volume *like, double radius_mm)
{
    struct error e;
    const int64_t *dims = like->dims;
    assert_ok(volume_new(v, DTYPE_U8, dims, &like->geometry, &e), e);
    for (int64_t n = 0; n < volume_voxels(v); n++) {
        int64_t at[3] = {n % dims[0], n / dims[0] % dims[1], n / (dims[0] * dims[1])};
        double d = 0.0;
        for (int a = 0; a < 3; a++) {
            double x = ((double)at[a] - 0.5 * (double)(dims[a] - 1)) * like->geometry.spacing_mm[a];
            d += x * x;
        }
        d = sqrt(d);
        ((uint8_t *)v->data)[n] = d < radius_mm * 0.5 ? 2 : d < radius_mm;
    }
}

/* Dice of one class, or of all above 0 if class is -1. */
static inline double dice(const struct volume *a, const struct volume *b, int class)
{
    int64_t both = 0, sum = 0;
    for (int64_t n = 0; n < volume_voxels(a); n++) {
        int x = class < 0 ? volume_value(a, n) > 0 : volume_value(a, n) == class;
        int y = class < 0 ? volume_value(b, n) > 0 : volume_value(b, n) == class;
        both += x && y;
        sum += x + y;
    }
    return sum ? 2.0 * (double)both / (double)sum : 1.0;
}

#endif
