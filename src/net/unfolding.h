/* unfolding.h - a convolution of any kernel, stride and border as products of rows (CONV_1): what the kernel
 * sees at each position is unfolded into a row (kernels_strided.h), slab by slab of planes, so that nothing
 * of the size of all rows is ever stored. Called as halving.h is, which has the structs.
 */
#ifndef FALX_UNFOLDING_H
#define FALX_UNFOLDING_H

#include "net/halving.h"

struct unfolding_shape {
    struct k_window at;
    int c_out;
    int most;     /* floats of a slab's rows, if a plane is not more */
    int training; /* 1: backward will be called */
};

struct unfolding;
int unfolding_new(struct unfolding **out, struct device *dev, const struct unfolding_shape *s,
                  struct error *e);
void unfolding_free(struct unfolding *u);            /* NULL is fine */
int64_t unfolding_floats(const struct unfolding *u); /* of `work` */

/* weight (kernel, c_in, c_out) as of the params; anew whenever it has changed. */
void unfolding_pack(struct unfolding *u, const float *weight);
void unfolding_forward(struct unfolding *u, const struct leaky_in *in, const float *bias,
                       const struct tensor *y, float *work);
void unfolding_backward(struct unfolding *u, const struct leaky_in *in, const struct tensor *dy,
                        const struct layer_grads *to, float *work);

#endif
