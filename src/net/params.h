/* params.h - the named numbers of one network: weights in one block, statistics in another.
 *
 * Made from a network's definition (net.h), so names, shapes, initialisation, checkpoints, optimiser and
 * parameter count all come from one place. A teacher, a frozen copy or a second shape of the same
 * network is another `struct params`, or another `struct net` on the same one.
 *
 *     value:  [ trainable: weights, biases, gammas, betas | buffers: running_mean, running_var ]
 *     grad:   [ the same trainable part                   ]
 *
 * The weight of a convolution has PyTorch's shape (a, b, k, k, k), a = c_out, b = c_in (a transposed
 * one: a = c_in, b = c_out), but lies as (k, k, k, b, a): the products of conv.h read and write runs
 * along a. Files keep PyTorch's order.
 */
#ifndef FALX_PARAMS_H
#define FALX_PARAMS_H

#include "base/base.h"
#include "device/device.h"

enum param_kind { PARAM_WEIGHT, PARAM_BIAS, PARAM_GAMMA, PARAM_BETA, PARAM_MEAN, PARAM_VAR };

struct param {
    char name[64]; /* as in the PyTorch state dict: "block_one.conv.0.weight" */
    enum param_kind kind;
    int dims[5], n_dims;
    int64_t offset, count; /* in floats, from the start of value (and of grad) */
    float bound;           /* initialised uniformly in (-bound, bound); 0: constant (gamma, var 1, else 0) */
};

/* The weights of a network's convolutions, and which version of them is packed (conv.h). */
struct packing {
    struct conv_weight *list; /* in order of memory */
    int n;
    uint64_t version; /* 0: none yet */
};

struct params {
    struct device *dev; /* borrowed */
    struct param *list; /* trainable ones first, both parts in order of definition */
    int n, n_trainable;
    int64_t trainable_count, count; /* floats: of the first part, of all */
    float *value;                   /* (count) device memory */
    float *grad;                    /* (trainable_count) device memory; NULL for teachers and frozen copies */
    unsigned char *touched;         /* (n_trainable) host: got a gradient since the last params_zero_grad;
                              * what is in grad of the others means nothing */
    int64_t batches;                /* training forward passes so far: PyTorch's num_batches_tracked */
    uint64_t version;        /* raised by whoever changes values, statistics included, other than by such a
                              * pass; nets then pack weights and make tables of running statistics anew */
    struct packing *packing; /* borrowed from one of the nets, or NULL: packed by params_map() */
};

enum params_grad { PARAMS_NO_GRAD, PARAMS_WITH_GRAD };

struct net_definition;
int params_new(struct params **out, struct device *dev, const struct net_definition *def,
               enum params_grad grad, struct error *e);
/* New ones without gradient for `def`, with the values of `from`, which has all of its names and maybe more:
 * a V-Net out of a network with further decoders. */
int params_part(struct params **out, const struct params *from, const struct net_definition *def,
                struct error *e);
void params_free(struct params *p); /* NULL is fine */
/* PyTorch's default initialisation from (seed, salt): number i of parameter k is a pure function of them. */
void params_init(struct params *p, uint64_t seed, uint64_t salt);
/* Values, buffers and batches; the two must have the same definition. */
void params_copy(struct params *to, const struct params *from);
int64_t params_buffer_count(const struct params *p); /* running statistics, behind the trainable part */
void params_zero_grad(struct params *p);             /* forgets them: nothing is touched */
/* Runs a kernel (kernels.h) that changes the `count` values from number `first` on, its index 0. One or more
 * calls, then params_mapped(): a network whose weights were packed finds them packed. */
void params_map(struct params *p, int kernel, const void *args, int64_t first, int64_t count);
void params_mapped(struct params *p);
/* Parameter k of a block that lies as value or grad do, to and from host memory in PyTorch's order. */
int param_download(float *to, const struct params *p, const float *block, int k, struct error *e);
int param_upload(float *block, const struct params *p, int k, const float *from, struct error *e);
const struct param *params_find(const struct params *p, const char *name); /* NULL: none */

#endif
