/* peak.h - the largest of many numbers in device memory, in passes that each leave a 64th of them; of several
 * rows of them at once. */
#ifndef FALX_PEAK_H
#define FALX_PEAK_H

#include "device/device.h"

/* Working memory for a row of so many numbers; the largest of the rows will be its last ones. */
int64_t peak_floats(int64_t count);
/* The largest of sign * x, rows x count, of every row: in device memory. */
const float *peak_find(struct device *dev, const float *x, int rows, int64_t count, float sign, float *work);

#endif
