/* conv.h - the four convolutions of the V-Net family, forward and backward, with normalisation and
 * activation done while reading.
 *
 * A convolution reads its input through a small formula instead of a stored copy:
 *
 *     a(n,v,c) = sum over 1 or 2 sources of act( scale(n,c) * y(n,v,c) + shift(n,c) )
 *
 * y is the raw output of an earlier convolution, exactly as stored; scale and shift hold its batch
 * norm (and dropout: a dropped channel has scale = shift = 0, a kept one 1/(1-p) times both); act is
 * max(.,0) or nothing. Two sources are a skip connection. So only raw outputs are ever stored: half
 * of the memory and none of the passes of separate layers.
 *
 * The gradient is read likewise. With G = dL/da of the value that follows y,
 *
 *     dy(n,v,c) = p(n,c) * [scale*y + shift > 0] * G(n,v,c) + q(n,c) * y(n,v,c) + r(n,c)
 *
 * which is batch norm's backward formula once its two sums are known (net_norm.c makes p, q, r from them).
 *
 * Inside (conv_cpu.c): a piece of the input is brought through the formula into a scratch block with
 * a zero border, in cache; there every direction is one small matrix product (gemm.h) over segments.
 */
#ifndef FALX_CONV_H
#define FALX_CONV_H

#include "device/device.h"

enum conv_kind {
    CONV_3,    /* 3x3x3, stride 1, zero padding 1 */
    CONV_DOWN, /* 2x2x2, stride 2: halves d, h, w */
    CONV_UP,   /* transposed 2x2x2, stride 2: doubles d, h, w */
    CONV_1     /* 1x1x1 */
};

struct conv_shape {
    enum conv_kind kind;
    int n, d, h, w;          /* of the input; DOWN: even */
    int c_in, c_out;         /* any, 1 and more */
    enum value_type in, out; /* of the stored tensors: F32 or BF16. Products are made in the
                            * device's precision; sums always in f32 */
    int training;            /* 1: backward will be called */
    int input_grad;          /* 1: dx will be asked for */
};

/* One stored tensor and how it is read. scale == NULL: taken as it is (relu still applies). */
struct conv_source {
    struct tensor y;
    const float *scale, *shift; /* (n, c) each, device memory */
    int relu;
};
struct conv_in {
    int count; /* 1 or 2 */
    struct conv_source from[2];
};

/* The gradient at the output. p == NULL: dy = G, masked by relu if set. */
struct conv_grad {
    struct tensor g;        /* dL/da, type as stored */
    struct conv_source y;   /* the output this is the gradient of, with its norm */
    const float *p, *q, *r; /* (n, c) each */
};

/* Moments of the stored output (after rounding to its type), per channel over n and voxels. Sums of
 * pieces are combined in order, in double. What is made of them in the end, a channel at a time, may come
 * along: map() of KERNEL_norm_tables (kernels_norm.h). */
struct k_norm_tables;
struct conv_stats {
    double *mean, *m2;                /* (c_out) mean, and sum of squared distances from it */
    const struct k_norm_tables *then; /* or NULL */
};

/* Batch norm's backward sums (norm.h), made while dx is written: of source `of` of the input, whose gradient
 * dx then is, with all that is added to it. Sums of pieces are combined in order, in double. What is made of
 * them may come along, too: map() of KERNEL_norm_grads. */
struct k_norm_grads;
struct conv_sums {
    int of;
    const float *mean;               /* (c_in) device memory */
    double *sums;                    /* (2, n, c_in) device memory */
    const struct k_norm_grads *then; /* or NULL */
};

/* A convolution and its weight, for packing many at once. */
struct conv_weight {
    struct conv *conv;
    const float *weight;
};

/* weight and dweight are (taps, c_in, c_out), and (taps, c_out, c_in) for CONV_UP; the taps are (k, k, k).
 * pack() brings weights into the layouts the products want; call it after every change. update() is map() of
 * a kernel (kernels.h) that changes the `count` numbers from `first` on, and pack() of the weights listed,
 * which lie among them, in order of memory: one pass over it.
 *
 * forward:  y = conv(a) + bias, rounded to y's type; stats may be NULL.
 * backward: dx (F32 or BF16, NULL data: not wanted) = dL/da of the input; dweight (may be NULL) its
 *           gradient; dbias (may be NULL) gets its gradient ADDED. `add` says which of the first two
 *           are added to what is there instead. sums may be NULL; else dx is wanted, of the type of x.
 *           CONV_BESIDE: the weight gradient need not be there before catch_up(), and reads dy and x until
 *           then: a device may make it beside what comes after. Only where catch_up is there.
 *           CONV_SAME_X: x is what the last forward pass read, unchanged: a device may have kept something.
 * All go through dev->ops. */
enum { CONV_ADD_DX = 1, CONV_ADD_WEIGHT = 2, CONV_BESIDE = 4, CONV_SAME_X = 8 };

#endif
