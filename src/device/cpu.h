/* cpu.h - the CPU device from inside: what conv_cpu.c, norm_cpu.c and contrast_cpu.c share. */
#ifndef FALX_CPU_H
#define FALX_CPU_H

#include "device/device.h"
#include "device/isa/levels.h"

struct cpu {
    struct device base; /* first: a struct device * of this kind is a struct cpu * */
    const struct isa_ops *isa;

    /* Working memory of convolutions, as large as the largest plan needs; grows in conv_new only. */
    char *scratch; /* threads times scratch_each bytes */
    size_t scratch_each;
    char *partial; /* partial sums of weight gradients */
    size_t partial_bytes;

    double *block_sums; /* LOOP_GROUP * LOOP_SUMS, of reduce() */
};

static inline struct cpu *cpu_of(struct device *dev)
{
    return (struct cpu *)(void *)dev;
}

static inline const struct isa_ops *cpu_isa(struct device *dev)
{
    return cpu_of(dev)->isa;
}

int cpu_open(struct device **out, const struct device_options *o, struct error *e);

/* Memory for `each` bytes of scratch a thread and `partial` bytes for all; -1 with the sticky error. */
int cpu_reserve(struct cpu *c, size_t each, size_t partial);

/* The convolutions (conv_plan.c, conv_pack.c, conv_cpu.c): members of the table of operations. */
struct conv *cpu_conv_new(struct device *dev, const struct conv_shape *s);
void cpu_conv_free(struct conv *v);
void cpu_conv_pack(struct device *dev, const struct conv_weight *list, int n);
void cpu_conv_update(struct device *dev, const struct conv_weight *list, int n, int kernel, const void *args,
                     const float *first, int64_t count);
void cpu_conv_forward(struct conv *v, const struct conv_in *x, const float *bias, const struct tensor *y,
                      struct conv_stats *stats);
void cpu_conv_backward(struct conv *v, const struct conv_grad *dy, const struct conv_in *x,
                       const struct tensor *dx, int add, float *dweight, float *dbias,
                       const struct conv_sums *sums);

#endif
