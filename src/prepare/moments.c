/* moments.c - sums in fixed blocks, quantiles by counting. See moments.h.
 *
 * Blocks of BLOCK values are summed each by one thread in order, and the blocks' sums in order by
 * the caller. Deviations are summed in a second pass around the mean, which loses no digits when
 * the mean is large beside the deviation.
 *
 * A quantile needs the k-th smallest value. Floats order like their bits once negative ones are
 * inverted, so two counting passes find it: first over the high 16 bits, then over the low 16 bits
 * of the values that share them.
 */
#include <math.h>
#include <string.h>

#include "prepare/moments.h"

enum { BLOCK = 1 << 16, BINS = 1 << 16 };

struct sums_job {
    const float *values;
    int64_t n;
    double about;
    int power; /* 1: sum of v, 2: sum of (v - about)^2 */
    struct block_sum {
        double sum, min, max;
    } * block;
};

static void sum_block(void *arg, int64_t b)
{
    const struct sums_job *job = arg;
    int64_t from = b * BLOCK, to = from + BLOCK < job->n ? from + BLOCK : job->n;
    struct block_sum s = {0.0, (double)job->values[from], (double)job->values[from]};
    for (int64_t i = from; i < to; i++) {
        double v = (double)job->values[i], d = v - job->about;
        s.sum += job->power == 1 ? v : d * d;
        s.min = v < s.min ? v : s.min;
        s.max = v > s.max ? v : s.max;
    }
    job->block[b] = s;
}

/* All blocks into the first. */
static struct block_sum add_blocks(struct sums_job *job, struct pool *pool)
{
    int64_t n_blocks = (job->n + BLOCK - 1) / BLOCK;
    pool_run(pool, n_blocks, sum_block, job);
    struct block_sum all = job->block[0];
    for (int64_t b = 1; b < n_blocks; b++) {
        all.sum += job->block[b].sum;
        all.min = fmin(all.min, job->block[b].min);
        all.max = fmax(all.max, job->block[b].max);
    }
    return all;
}

int moments_of(struct moments *out, const float *values, int64_t n, struct pool *pool, struct error *e)
{
    struct sums_job job = {.values = values, .n = n, .power = 1};
    job.block = mem_alloc(e, (size_t)(n / BLOCK + 1), sizeof *job.block);
    if (!job.block)
        return -1;
    struct block_sum first = add_blocks(&job, pool);
    *out = (struct moments){first.sum / (double)n, 0.0, first.min, first.max};
    if (out->min < out->max) {
        job.power = 2;
        job.about = out->mean;
        out->std = sqrt(add_blocks(&job, pool).sum / (double)n);
    }
    mem_free(job.block);
    return 0;
}

/* Unsigned numbers in the order of the floats. */
static uint32_t order_key(float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

static float key_value(uint32_t key)
{
    uint32_t bits = key & 0x80000000u ? key & 0x7fffffffu : ~key;
    float v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

/* The bin that holds the value number *rank; *rank becomes its number within the bin. */
static uint32_t find_bin(const int64_t *count, int64_t *rank)
{
    uint32_t bin = 0;
    while (*rank >= count[bin])
        *rank -= count[bin++];
    return bin;
}

static float kth_smallest(const float *values, int64_t n, int64_t k, int64_t *count)
{
    memset(count, 0, BINS * sizeof *count);
    for (int64_t i = 0; i < n; i++)
        count[order_key(values[i]) >> 16]++;
    uint32_t high = find_bin(count, &k);
    memset(count, 0, BINS * sizeof *count);
    for (int64_t i = 0; i < n; i++) {
        uint32_t key = order_key(values[i]);
        if (key >> 16 == high)
            count[key & 0xffffu]++;
    }
    return key_value(high << 16 | find_bin(count, &k));
}

int quantile_of(double *out, const float *values, int64_t n, double percent, struct error *e)
{
    int64_t *count = mem_alloc(e, BINS, sizeof *count);
    if (!count)
        return -1;
    double at = fmin(fmax(percent / 100.0, 0.0), 1.0) * (double)(n - 1);
    int64_t below = (int64_t)floor(at), above = below + 1 < n ? below + 1 : below;
    double lo = (double)kth_smallest(values, n, below, count);
    double hi = (double)kth_smallest(values, n, above, count);
    *out = lo + (hi - lo) * (at - (double)below);
    mem_free(count);
    return 0;
}
