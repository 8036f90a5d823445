/* peak.h - the largest of many numbers in device memory, in passes that each leave a 64th of them. */
#ifndef FALX_PEAK_H
#define FALX_PEAK_H

#include "device/device.h"

/* Working memory for so many numbers; the largest will be its last one. */
int64_t peak_floats(int64_t count);
/* The largest of sign * x, in device memory. */
const float *peak_find(struct device *dev, const float *x, int64_t count, float sign, float *work);

#endif
