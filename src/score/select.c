/* select.c - selection by counting the bits of doubles, 16 at a time. See select.h.
 *
 * The bits of non-negative doubles, read as integers, are ordered as the numbers are. So the wanted
 * value is found digit by digit: weigh the values by their highest 16 bits, find the bucket in
 * which the target is reached, then look only at the values in that bucket and weigh by the next 16
 * bits. Four passes over the values, nothing is moved or sorted, and equal values do no harm.
 */
#include <math.h>
#include <string.h>

#include "score/select.h"

enum { DIGIT_BITS = 16, DIGITS = 1 << DIGIT_BITS };

static uint64_t bits_of(double v)
{
    uint64_t u;
    v += 0.0; /* -0 becomes +0 */
    memcpy(&u, &v, sizeof u);
    return u;
}

/* Adds up the weights of the values whose bits above `shift + 16` equal those of `prefix`. */
static void weigh(double *bucket, const double *value, const double *weight, int64_t n, int shift,
                  uint64_t prefix)
{
    memset(bucket, 0, DIGITS * sizeof *bucket);
    for (int64_t i = 0; i < n; i++) {
        uint64_t u = bits_of(value[i]);
        /* two shifts: one by 64 is undefined */
        if (((u ^ prefix) >> shift) >> DIGIT_BITS == 0)
            bucket[u >> shift & (DIGITS - 1)] += weight ? weight[i] : 1.0;
    }
}

/* The first bucket in which `*left` is used up, or the last that is not empty; what comes before it
 * is taken from *left. */
static uint64_t find_bucket(const double *bucket, double *left)
{
    uint64_t last = 0;
    double left_at_last = *left;
    for (uint64_t k = 0; k < DIGITS; k++) {
        if (bucket[k] == 0)
            continue;
        last = k;
        left_at_last = *left;
        if (bucket[k] >= *left)
            break;
        *left -= bucket[k];
    }
    *left = left_at_last;
    return last;
}

int select_weighted(double *out, const double *value, const double *weight, int64_t n, double target,
                    struct error *e)
{
    double *bucket = mem_alloc(e, DIGITS, sizeof *bucket);
    uint64_t found = 0;
    if (!bucket)
        return -1;
    for (int shift = 64 - DIGIT_BITS; shift >= 0; shift -= DIGIT_BITS) {
        weigh(bucket, value, weight, n, shift, found);
        found |= find_bucket(bucket, &target) << shift;
    }
    memcpy(out, &found, sizeof *out);
    mem_free(bucket);
    return 0;
}

int select_percentile(double *out, const double *value, int64_t n, double fraction, struct error *e)
{
    double place = fraction * (double)(n - 1), below = floor(place), low, high;
    if (select_weighted(&low, value, NULL, n, below + 1, e) < 0 ||
        select_weighted(&high, value, NULL, n, below + 2, e) < 0)
        return -1;
    *out = place > below ? low + (place - below) * (high - low) : low;
    return 0;
}
