/* device.h - where arithmetic happens. Everything above this folder (networks, losses, optimisers)
 * is written once against the table of operations below; a device is one such table.
 *
 *     memory          alloc, free, upload, download, copy, zero, sync, upload_ahead
 *     convolution     conv.h: plan once, run many times; heads.h: several small ones at once
 *     batch norm      norm.h: the two sums of its backward pass
 *     voxel loops     kernels.h: one body per loop, compiled for every device
 *
 * Tensors are channels-last, always: a voxel is a row of c numbers. A tensor never owns its memory.
 *
 * Errors are sticky: the first failure is kept in device.error, later operations return at once, and
 * the training loop asks device_check() once a step. So networks, losses and methods carry no error
 * plumbing.
 *
 * Same bits for any number of threads: work is cut into pieces that depend on shapes alone, and
 * partial sums are added in the order of the pieces.
 */
#ifndef FALX_DEVICE_H
#define FALX_DEVICE_H

#include "base/base.h"
#include "base/pool.h"

enum value_type { VALUE_F32, VALUE_BF16, VALUE_U8 };
size_t value_bytes(enum value_type t);

struct tensor {
    void *data; /* device memory; NULL: absent */
    enum value_type type;
    int n, d, h, w, c; /* row-major in this order, c fastest */
};
int64_t tensor_voxels(const struct tensor *t); /* n*d*h*w */
int64_t tensor_count(const struct tensor *t);  /* voxels * c */
/* Items first .. first+n-1 of the batch, a view. */
struct tensor tensor_items(const struct tensor *t, int first, int n);

/* How values between layers are stored and multiplied: TF32 stores float32 and multiplies with mantissas of
 * ten bits, on GPUs alone. Weights, statistics, logits, losses and the optimiser are float32 in all. */
enum precision { PRECISION_AUTO, PRECISION_F32, PRECISION_BF16, PRECISION_TF32 };
const char *precision_name(enum precision p);

struct device;
struct conv;
struct conv_shape;
struct conv_in;
struct conv_grad;
struct conv_stats;
struct conv_sums;
struct conv_source;
struct conv_weight;
struct contrast;
struct heads;

struct device_ops {
    const char *name; /* "cpu", "cuda" */
    void (*close)(struct device *dev);

    /* Memory comes zeroed and aligned to 64 bytes; NULL with the sticky error set on failure. */
    void *(*alloc)(struct device *dev, size_t bytes);
    void (*free)(struct device *dev, void *memory); /* NULL is fine */
    /* Memory of the host may be used again when a call returns; copies need not have happened by then. */
    void (*upload)(struct device *dev, void *to, const void *from_host, size_t bytes);
    void (*download)(struct device *dev, void *to_host, const void *from, size_t bytes);
    void (*copy)(struct device *dev, void *to, const void *from, size_t bytes);
    void (*zero)(struct device *dev, void *memory, size_t bytes);
    void (*sync)(struct device *dev);
    /* Uploads beside the work that is under way; NULL, both: this device does one thing at a time. `to` may
     * still be in use by what was asked for before the last arrive(), by nothing later; what is asked for
     * after the next arrive() finds it filled. */
    void (*upload_ahead)(struct device *dev, void *to, const void *from_host, size_t bytes);
    void (*arrive)(struct device *dev);

    /* Convolutions, see conv.h. */
    struct conv *(*conv_new)(struct device *dev, const struct conv_shape *s);
    void (*conv_free)(struct conv *v);
    void (*conv_pack)(struct device *dev, const struct conv_weight *list, int n);
    void (*conv_update)(struct device *dev, const struct conv_weight *list, int n, int kernel,
                        const void *args, const float *first, int64_t count);
    void (*conv_forward)(struct conv *v, const struct conv_in *x, const float *bias, const struct tensor *y,
                         struct conv_stats *stats);
    void (*conv_backward)(struct conv *v, const struct conv_grad *dy, const struct conv_in *x,
                          const struct tensor *dx, int add, float *dweight, float *dbias,
                          const struct conv_sums *sums);
    /* A CONV_1, and a second one of max(., 0) of what it gives, which is stored nowhere: 1, or 0 if these two
     * cannot be made so, which depends on their shapes alone. NULL: none can. */
    int (*conv_pair)(struct conv *v, const struct conv_in *x, const float *bias, struct conv *then,
                     const float *then_bias, const struct tensor *y);
    /* What is asked for after this waits for all weight gradients that are made beside (conv.h: CONV_BESIDE)
     * but the last so many. NULL: nothing is made beside. */
    void (*catch_up)(struct device *dev, int but);

    /* The heads of a network at once, see heads.h. fit: 1 if these can be; NULL, all three: never. */
    int (*heads_fit)(const struct device *dev, const struct heads *h);
    void (*heads_forward)(struct device *dev, const struct heads *h);
    void (*heads_backward)(struct device *dev, const struct heads *h);

    /* Batch norm's backward sums and the join of two gradients, see norm.h (cpu: norm_cpu.c). */
    void (*norm_sums)(struct device *dev, const struct tensor *g, const struct conv_source *y,
                      const float *mean, double *sums); /* sums: device memory */
    void (*grad_join)(struct device *dev, const struct tensor *to, const struct tensor *g,
                      const struct conv_source *y);

    /* All pairs of the contrastive loss, see contrast.h (cpu: cpu_contrast of contrast_cpu.c). */
    void (*contrast)(struct device *dev, const struct contrast *c);

    /* Loops over voxels and sums over voxels, see kernels.h. sum() leaves its sums in device memory; reduce()
     * brings them to the host and so waits for everything asked for before. */
    void (*map)(struct device *dev, int kernel, const void *args, int64_t count);
    void (*sum)(struct device *dev, int reduction, const void *args, int64_t count, int n_sums, double *sums);
    void (*reduce)(struct device *dev, int reduction, const void *args, int64_t count, int n_sums,
                   double *sums_host);
};

struct device {
    const struct device_ops *ops;
    enum precision precision; /* never AUTO */
    struct error error;       /* first failure; code ERR_NONE while all is well */
    size_t bytes;             /* memory that is held, with what convolutions keep */
    size_t peak_bytes;        /* cuda: the most at once */
    struct pool *pool;        /* cpu: the threads; borrowed by those who load and write files */
    size_t room;              /* bytes a data set may take in its own memory; 0: that is the host's */
    char describe[96];        /* "cpu, AMX bf16, 2 threads" */
};

struct device_options {
    const char *name;         /* "auto", "cpu", "cuda[:i]"; NULL = auto */
    enum precision precision; /* AUTO: bf16 where the device multiplies it fast, else f32 */
    int threads;              /* 0 = one per core */
    const char *level;        /* tests: level of the processor (isa/levels.h); NULL = the best */
};

int device_open(struct device **out, const struct device_options *o, struct error *e);
void device_close(struct device *dev); /* NULL is fine */
/* 0, or -1 with the sticky error copied to *e. */
int device_check(struct device *dev, struct error *e);
/* Memory that a GPU did not have is forgotten, for nothing was lost by asking [G05]: 1 if that was all that
 * was wrong, and less can be asked for. */
int device_forgive_memory(struct device *dev);
/* Bytes of describe without the number of threads, on which no bit of a result depends. */
int device_kind_length(const struct device *dev);
/* The type of values between layers under the device's precision. */
enum value_type device_value_type(const struct device *dev);

/* Whether this processor multiplies bf16 fast: by AMX tiles, if the kernel grants them, or AVX512_BF16. */
int cpu_has_bf16(void);

#endif
