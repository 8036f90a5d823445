/* driver.h - the GPU as one table of calls, so that the program runs without one.
 *
 *     cuda.c  (C, always built)      the device: names, sticky errors, memory counted
 *        |  struct cuda_driver
 *        +--> libfalx_cuda.so        *.cu, built where nvcc is found, opened at run time
 *        +--> a fake of the tests    the same calls on the processor, failing when told to
 *
 * Every call that works on the GPU is put into the context's main stream and returns at once; download,
 * reduce and sync wait. upload_ahead has a stream of its own, and arrive() makes one wait for the other;
 * weight gradients have one, too, and catch_up() makes the main stream wait for it.
 * All return 0 or a CUDA error code; text() names it. Memory and tensors are those of the GPU
 * unless a name ends in _host. What is computed is said in device.h, conv.h, heads.h, norm.h, contrast.h,
 * kernels.h; sums are made in an order that depends on shapes alone, so two runs give the same bits.
 */
#ifndef FALX_CUDA_DRIVER_H
#define FALX_CUDA_DRIVER_H

#include "device/contrast.h"
#include "device/conv.h"
#include "device/heads.h"
#include "device/norm.h"

enum { CUDA_DRIVER_VERSION = 8 }; /* of this table; the library and the program must agree */

struct cuda_facts {
    char name[96];
    int major, minor; /* compute capability */
    int multiprocessors;
    int driver, runtime;     /* versions as CUDA counts them, 13000 for 13.0 */
    size_t total, available; /* bytes */
};

struct cuda_context; /* one GPU and its streams */

struct cuda_driver {
    int version; /* CUDA_DRIVER_VERSION */
    int kernels; /* KERNELS_FORM of kernels.h */
    const char *(*text)(int code);
    int (*count)(int *out);
    int (*open)(struct cuda_context **out, int index, enum precision precision, struct cuda_facts *facts);
    void (*close)(struct cuda_context *c);

    int (*alloc)(struct cuda_context *c, void **out, size_t bytes); /* zeroed, aligned to 256 */
    int (*free)(struct cuda_context *c, void *memory);
    size_t (*own_bytes)(const struct cuda_context *c); /* scratch, and what convolutions keep */
    int (*upload)(struct cuda_context *c, void *to, const void *from_host, size_t bytes);
    int (*download)(struct cuda_context *c, void *to_host, const void *from, size_t bytes);
    int (*copy)(struct cuda_context *c, void *to, const void *from, size_t bytes);
    int (*zero)(struct cuda_context *c, void *memory, size_t bytes);
    int (*sync)(struct cuda_context *c);
    int (*upload_ahead)(struct cuda_context *c, void *to, const void *from_host, size_t bytes);
    int (*arrive)(struct cuda_context *c);

    int (*conv_new)(struct cuda_context *c, struct conv **out, const struct conv_shape *s);
    void (*conv_free)(struct conv *v);
    int (*conv_pack)(struct cuda_context *c, const struct conv_weight *list, int n);
    int (*conv_forward)(struct conv *v, const struct conv_in *x, const float *bias, const struct tensor *y,
                        const struct conv_stats *stats); /* stats: GPU memory, or NULL */
    int (*conv_backward)(struct conv *v, const struct conv_grad *dy, const struct conv_in *x,
                         const struct tensor *dx, int add, float *dweight, float *dbias,
                         const struct conv_sums *sums);
    int (*conv_pair)(struct conv *v, const struct conv_in *x, const float *bias, struct conv *then,
                     const float *then_bias, const struct tensor *y, int *made); /* NULL: never */
    int (*catch_up)(struct cuda_context *c, int but);
    int (*heads_forward)(struct cuda_context *c, const struct heads *h); /* both NULL: never at once */
    int (*heads_backward)(struct cuda_context *c, const struct heads *h);

    int (*norm_sums)(struct cuda_context *c, const struct tensor *g, const struct conv_source *y,
                     const float *mean, double *sums); /* sums: GPU memory, (2, n, c) */
    int (*grad_join)(struct cuda_context *c, const struct tensor *to, const struct tensor *g,
                     const struct conv_source *y);
    int (*contrast)(struct cuda_context *c, const struct contrast *work);
    int (*map)(struct cuda_context *c, int kernel, const void *args, int64_t count);
    int (*sum)(struct cuda_context *c, int reduction, const void *args, int64_t count, int n_sums,
               double *sums); /* GPU memory */
    int (*reduce)(struct cuda_context *c, int reduction, const void *args, int64_t count, int n_sums,
                  double *sums_host);
};

/* The one symbol of libfalx_cuda.so. */
#if defined(__cplusplus)
extern "C"
#endif
    const struct cuda_driver *
    falx_cuda_driver(void);

#endif
