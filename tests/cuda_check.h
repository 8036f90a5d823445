/* cuda_check.h - for the small programs that check a GPU: memory on both sides, differences, verdicts. */
#ifndef FALX_CUDA_CHECK_H
#define FALX_CUDA_CHECK_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "device/cuda/driver.h"

static const struct cuda_driver *d;
static struct cuda_context *gpu;
static int failures;
static int64_t voxels = 1000003; /* odd: the last block, warp and vector are not full */

static void must(int code, const char *what)
{
    if (code == 0)
        return;
    printf("FAIL %s: %s (%d)\n", what, d->text(code), code);
    exit(1);
}

static double now(void)
{
    struct timespec t;
    must(d->sync(gpu), "sync");
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

/* ---- memory on both sides ------------------------------------------------------------------- */

struct both {
    void *at[2]; /* host, GPU */
    size_t bytes;
};

static uint64_t seed = 1;

static double random_unit(void) /* 0 .. 1 */
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(seed >> 40) / (double)(1 << 24);
}

static void upload(const struct both *b)
{
    must(d->upload(gpu, b->at[1], b->at[0], b->bytes), "upload");
}

static struct both both_of(size_t bytes)
{
    struct both b = {{calloc(1, bytes ? bytes : 1), NULL}, bytes};
    must(d->alloc(gpu, &b.at[1], bytes), "alloc");
    return b;
}

static struct both floats(int64_t n, double low, double high)
{
    struct both b = both_of((size_t)n * sizeof(float));
    for (int64_t i = 0; i < n; i++)
        ((float *)b.at[0])[i] = (float)(low + (high - low) * random_unit());
    upload(&b);
    return b;
}

static inline struct both bytes_below(int64_t n, int below)
{
    struct both b = both_of((size_t)n);
    for (int64_t i = 0; i < n; i++)
        ((uint8_t *)b.at[0])[i] = (uint8_t)(random_unit() * below);
    upload(&b);
    return b;
}

static void drop(struct both *b)
{
    free(b->at[0]);
    must(d->free(gpu, b->at[1]), "free");
}

#define F(b) ((float *)(b).at[side])
#define U(b) ((uint8_t *)(b).at[side])

static void *fetched(const struct both *b)
{
    void *to = malloc(b->bytes ? b->bytes : 1);
    must(d->download(gpu, to, b->at[1], b->bytes), "download");
    return to;
}

/* ---- verdicts -------------------------------------------------------------------------------- */

static void verdict(const char *name, const char *more, double error, double limit, double us)
{
    int bad = !(error <= limit);
    failures += bad;
    printf("%s %-18s %-26s error %.2e  %9.1f us\n", bad ? "FAIL" : "PASS", name, more, error, us);
}

/* Largest difference of floats, relative to 1e-3 and more. */
static double difference(const struct both *b)
{
    float *got = (float *)fetched(b), *want = (float *)b->at[0];
    double worst = 0;
    for (size_t i = 0; i < b->bytes / sizeof *got; i++) {
        double off = fabs((double)got[i] - (double)want[i]) / (1e-3 + fabs((double)want[i]));
        worst = off <= worst ? worst : off;
    }
    free(got);
    return worst;
}

static inline double bytes_differ(const struct both *b)
{
    uint8_t *got = (uint8_t *)fetched(b);
    double n = 0;
    for (size_t i = 0; i < b->bytes; i++)
        n += got[i] != ((uint8_t *)b->at[0])[i];
    free(got);
    return n;
}

static double larger(double a, double b)
{
    return b <= a ? a : b; /* not a number: taken */
}

#endif
