/* halving.h - a convolution of 4x4x4 kernels with stride 2 and a border of 1, made of others, which devices
 * are fast at.
 *
 * A kernel of four steps is one of two blocks of two: out(p) = sum over s of down_s(p + s), where down_s(q)
 * is a CONV_DOWN of block q by the part of the kernel that meets it, s = 0 or 1 along each axis. So
 *
 *     x --frame--> with its border --CONV_DOWN to 8 c_out--> (blocks, s, c_out) --join--> y
 *
 * and back likewise. With few channels that would be much to pass between, and little to multiply: then the
 * voxels of a block become channels, and two blocks along each axis are two of three places of a CONV_3,
 *
 *     x --frame--> (blocks, 8 c_in) --CONV_3, 19 of 27 places 0--> (blocks, c_out) --join--> y, but the last
 *
 * x is read through act and dropout (struct k_frame of kernels_strided.h).
 */
#ifndef FALX_HALVING_H
#define FALX_HALVING_H

#include "device/conv.h"
#include "device/kernels.h"
#include "net/params.h"

struct halving_shape {
    int n, extent[3]; /* items, even numbers of voxels */
    int c_in, c_out;
    int most; /* floats of what passes between, if one item is not more */
};

struct halving;
int halving_new(struct halving **out, struct device *dev, const struct halving_shape *s, struct error *e);
void halving_free(struct halving *h); /* NULL is fine */
/* Of `work`, memory of what passes between: nothing in it matters before or after a call. */
int64_t halving_floats(const struct halving *h);

/* weight (4, 4, 4, c_in, c_out) as of the params; anew whenever it has changed. */
void halving_pack(struct halving *h, const float *weight);

/* What is read: (items, extent, c_in); `more`, if there is one, is added; factor (items, c_in), or NULL. */
struct leaky_in {
    struct tensor x, more;
    const float *factor;
    float slope;
};
void halving_forward(struct halving *h, const struct leaky_in *in, const float *bias, const struct tensor *y,
                     float *work);
/* Where gradients go: those of parameters are added, or set if they are fresh. NULL, and dx without data: not
 * wanted. */
struct layer_grads {
    float *dweight, *dbias;
    int fresh;
    struct tensor dx;
};
void halving_backward(struct halving *h, const struct leaky_in *in, const struct tensor *dy,
                      const struct layer_grads *to, float *work);

#endif
