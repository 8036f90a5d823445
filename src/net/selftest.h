/* selftest.h - does this device compute what it should? A processor or GPU that is broken or overheated, or a
 * compiler that is wrong about it, may give other numbers and no error [G08]. A processor is compared with
 * itself at its plainest level: what is wrong in both is not seen.
 */
#ifndef FALX_SELFTEST_H
#define FALX_SELFTEST_H

#include "device/device.h"

/* Of all tensors the worst: squared difference by square, and the furthest number by root mean square. */
struct selftest_error {
    double mean_square, furthest;
};
struct selftest {
    struct selftest_error values, gradients;
};

/* One pass of the paper's network, forward and back, on `dev` and by the plainest float32 code of the
 * processor: -1 if they differ by more than the device's precision makes them. out may be NULL. A second or
 * two. */
int selftest_run(struct selftest *out, struct device *dev, struct error *e);

#endif
