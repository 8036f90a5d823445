/* strided.h - a chain of strided convolutions, the mean over what is left, and a linear layer: networks that
 * judge or describe a whole map.
 *
 *     map --conv0--+
 *                  + --> act, dropout --> conv2 --> act, dropout --> ... --> mean over voxels --> linear
 *     image -conv1-+
 *
 * Kernels, strides and act (slope below 0) are none that the V-Net's convolutions have (conv.h). 4x4x4
 * kernels of stride 2 are made of these all the same (halving.h); others are small beside them, and
 * unfolded (unfolding.h).
 *
 * Parameters are named numbers of struct params as those of any network; a chain is run by its own functions.
 */
#ifndef FALX_STRIDED_H
#define FALX_STRIDED_H

#include "net/net.h"

enum { STRIDED_LAYERS = 4 };

struct strided_spec {
    const char *name[STRIDED_LAYERS]; /* of the convolutions' parameters; NULL ends them */
    const char *second;               /* of the image's; NULL: there is no image */
    const char *linear;
    int width[STRIDED_LAYERS]; /* channels, times the definition's filters */
    int kernel[3], stride[3], pad[3];
    float slope, dropout[STRIDED_LAYERS];
    int columns; /* 1: a mean for each place along the last axis, not one for the item */
    int out;     /* numbers of the linear layer; 0: the last width, times filters */
    int slab;    /* most floats of rows, or of halving.h, at once; 0: 256 MiB of them */
};

/* The discriminator of adversarial methods: 4x4x4 kernels of stride 2, leaky ReLU 0.2, dropout 0.5, two
 * logits an item. definition.classes are the channels of the map, .channels those of the image, .filters 16
 * as published.  11,024,386 parameters (1, 2, 16). */
extern const struct strided_spec critic_spec;
void critic_define(struct builder *b, const struct net_definition *self);

/* What SimCVD compares slices by: 3x3 kernels of stride 2 in the first two axes, ReLU, a row of 8 * filters
 * numbers for each place along the third. The map has classes - 1 channels, there is no image. */
extern const struct strided_spec projector_spec;
void projector_define(struct builder *b, const struct net_definition *self);

/* The parameters of a chain whose map has `map` channels, `image` of the image, for definitions. */
void strided_declare(struct builder *b, const struct strided_spec *spec, int map, int image, int filters);

struct strided;
/* shape: n items of d, h, w, strides' multiples. The params are borrowed. */
int strided_new(struct strided **out, struct params *p, const struct strided_spec *spec,
                const struct net_shape *shape, int map, int image, int filters, struct error *e);
void strided_free(struct strided *s); /* NULL is fine */

/* map and image, (n, d, h, w, c) F32, up to as many items as planned, stay in use until backward. Returns
 * (n, 1, 1, columns, out) F32, which holds until the next forward. */
struct tensor strided_forward(struct strided *s, const struct tensor *map, const struct tensor *image,
                              const struct net_pass *pass);
struct tensor strided_grad(struct strided *s); /* of that, zeros; asked for once */
/* Adds the parameters' gradients (STRIDED_WEIGHTS), leaves that of the map in dmap (STRIDED_MAP), or both. */
enum { STRIDED_WEIGHTS = 1, STRIDED_MAP = 2 };
void strided_backward(struct strided *s, int what, const struct tensor *dmap);

#endif
