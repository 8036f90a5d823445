/* cuda.h - a GPU as a device, through the table of driver.h. This part is in every build; the table comes
 * from libfalx_cuda.so, looked for at run time, or from a test.
 *
 *     $FALX_CUDA_LIBRARY, if set: that file and no other (empty: none)
 *     beside the program: libfalx_cuda.so, ../lib/libfalx_cuda.so
 *
 * Failures are those of the catalogue: library, driver or GPU absent [G01] or too old [G02], memory too
 * small at the start [G03] or gone later [G04], an error that the GPU does not recover from [G06], no
 * answer for a minute [G07]. The first is kept in device.error and nothing is computed after it.
 */
#ifndef FALX_CUDA_H
#define FALX_CUDA_H

#include "device/cuda/driver.h"

enum { CUDA_MAJOR = 8 }; /* least compute capability: bf16 products (Ampere) */

/* 1 for "cuda" and for what begins with "cuda:". */
int cuda_is_name(const char *name);

/* o->name: "cuda" (the first), "cuda:i", or anything else for the first. Precision AUTO is bf16. */
int cuda_open(struct device **out, const struct device_options *o, struct error *e);
int cuda_open_driver(struct device **out, const struct cuda_driver *d, const struct device_options *o,
                     struct error *e);

#endif
