/* feature_scene.h - what the tests of losses in feature space share: a device, random rows,
 * comparisons.
 */
#ifndef FALX_TEST_FEATURE_SCENE_H
#define FALX_TEST_FEATURE_SCENE_H

#include <math.h>

#include "test.h"

#include "base/rng.h"
#include "golden/contrast_cases.h"
#include "train/loss.h"

enum { C = 16 };

static struct device *dev;
static struct loss_scratch *scratch;

static inline void open_device(const char *level, int threads, int classes, int points)
{
    struct error e;
    struct device_options o = {.name = "cpu", .precision = PRECISION_F32, .threads = threads, .level = level};
    assert_ok(device_open(&dev, &o, &e), e);
    struct loss_options losses = {.classes = classes, .samples = 2, .points = points};
    assert_ok(loss_scratch_new(&scratch, dev, &losses, &e), e);
}

static inline void close_device(void)
{
    loss_scratch_free(scratch);
    device_close(dev);
}

static inline void fill(float *x, size_t n, uint64_t salt, float offset)
{
    struct rng r = rng_start(7, salt, RNG_TEST, 0);
    for (size_t i = 0; i < n; i++)
        x[i] = offset + rng_normal(&r);
}

static inline void fill_label(uint8_t *x, size_t n, uint64_t salt, uint32_t classes)
{
    struct rng r = rng_start(8, salt, RNG_TEST, 0);
    for (size_t i = 0; i < n; i++)
        x[i] = (uint8_t)rng_below(&r, classes);
}

static inline void *take(size_t count, size_t each)
{
    struct error e;
    void *p = mem_alloc(&e, count, each);
    assert_non_null(p);
    return p;
}

/* Squared distance over squared length. */
static inline double nmse(const float *got, const double *want, size_t n)
{
    double d = 0, s = 0;
    for (size_t i = 0; i < n; i++) {
        d += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
        s += want[i] * want[i];
    }
    return s > 0 ? d / s : d;
}

static inline void near(double got, double want, double relative)
{
    if (!(fabs(got - want) <= relative * (1 + fabs(want))))
        test_fail("got %.12g, want %.12g", got, want);
}

/* noise() of tools/golden_contrast.py. */
static inline double golden_noise(uint32_t salt, uint32_t i)
{
    uint32_t h = (i + salt * 1000003u) * 2654435761u;
    h ^= h >> 15;
    h *= 2246822519u;
    h ^= h >> 13;
    return (h >> 8) / 16777216.0 - 0.5;
}

#endif
