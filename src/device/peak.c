/* peak.c - see peak.h. */
#include "device/peak.h"

#include "device/kernels.h"

static int64_t parts_of(int64_t count)
{
    enum { RUN_LENGTH = 64 };
    return (count + RUN_LENGTH - 1) / RUN_LENGTH;
}

int64_t peak_floats(int64_t count)
{
    int64_t floats = 0;
    do
        floats += count = parts_of(count);
    while (count > 1);
    return floats;
}

const float *peak_find(struct device *dev, const float *x, int rows, int64_t count, float sign, float *work)
{
    for (int64_t parts;; x = work, work += rows * parts, count = parts, sign = 1) {
        parts = parts_of(count);
        RUN(dev, peak, rows * parts, .from = x, .to = work, .count = count, .parts = parts, .sign = sign);
        if (parts == 1)
            return work;
    }
}
