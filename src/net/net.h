/* net.h - a network: recorded once as a list of nodes, run by two loops, its memory planned at build.
 *
 * A definition is a function that calls the builder below; it reads like the paper:
 *
 *     x = net_norm_relu(b, net_conv(b, x, CONV_3, 32, "block_two.conv.0"), "block_two.conv.1");
 *
 * net_conv stores its raw output. net_norm_relu, net_relu, net_dropout and net_add store nothing: they are
 * how the next convolution reads it (conv.h). net_output marks a value that leaves the network: it is
 * float32, stays valid until the next forward, and has a gradient that losses add to.
 *
 * net_new makes convolution plans and a memory plan from the lifetimes of values (training keeps what
 * backward reads; forward-only reuses at once). After that nothing is allocated.
 */
#ifndef FALX_NET_H
#define FALX_NET_H

#include "device/conv.h"
#include "net/params.h"

struct builder; /* what a definition talks to */

struct net_definition {
    void (*define)(struct builder *b, const struct net_definition *self);
    int channels, classes, filters; /* of the image; with background; of the first level */
    int rank;                       /* AUA: of the covariance factor; 0 = plain network */
    int dropout;                    /* enum net_dropout_at */
    int head_norm;                  /* AUA paper-text: batch norm in the projection head */
};
enum net_dropout_at { NET_DROPOUT_BOTH, NET_DROPOUT_BOTTLENECK, NET_DROPOUT_NONE };

/* ---- builder: values are small integers ------------------------------------------------------ */
int net_input(struct builder *b, int channels);
int net_conv(struct builder *b, int x, enum conv_kind kind, int c_out, const char *name);
int net_norm_relu(struct builder *b, int x, const char *name); /* batch norm eps 1e-5, momentum 0.1 */
int net_norm(struct builder *b, int x, const char *name);
int net_relu(struct builder *b, int x);
int net_dropout(struct builder *b, int x, float p); /* whole channels, as Dropout3d; not on raw input */
/* A skip: the later layer is read by this add alone; the earlier one may be part of several adds, and what
 * else reads it comes before all of their later layers (net_build.c says why). */
int net_add(struct builder *b, int x, int y);
/* 2^levels times as large along each axis, by repeating voxels or by trilinear interpolation between them:
 * corners on corners, or centres of voxels taken as boxes (PyTorch's align_corners = true, false). Stored. */
enum net_resize_by { NET_NEAREST, NET_ALIGNED, NET_CENTRED };
int net_resize(struct builder *b, int x, enum net_resize_by how, int levels);
/* Perturbed at random in training (shake.c has the ways), as it is otherwise. Stored. */
enum net_shake_by { NET_NOISE, NET_DROP, NET_PEAKS };
int net_shake(struct builder *b, int x, enum net_shake_by how);
void net_output(struct builder *b, int x, const char *name); /* x: a raw convolution, or made larger */
/* Logits of all classes but the first, whose logit is 0: with one such number softmax is the sigmoid. The
 * output has all of them, and so has its gradient. Such a convolution is read by nobody else. */
void net_output_open(struct builder *b, int x, const char *name);
/* What was recorded so far is not trained: gradients end where later layers read it. */
void net_freeze(struct builder *b);
/* The parameters of a convolution that others run: NAME.weight, of PyTorch's shape, and NAME.bias. */
void net_weights(struct builder *b, const char *name, const int dims[5]);
/* The parameters of a second network that lives in the same struct params (a projection head). */
void net_declare(struct builder *b, void (*define)(struct builder *b, const struct net_definition *self),
                 const struct net_definition *self);

/* ---- definitions ----------------------------------------------------------------------------- */
/* V-Net as published: output "logits" (classes), head out_conv.  9,448,866 parameters (1, 2, 16). */
void vnet_define(struct builder *b, const struct net_definition *self);
/* V-Net with a second head: outputs "distance" (classes - 1, raw: tanh of it is a signed distance), head
 * out_conv, and "logits" (classes, the first 0), head out_conv2.  9,448,866 parameters (1, 2, 16). */
void sdf_define(struct builder *b, const struct net_definition *self);
/* The same for SimCVD: one more output, "places" (8 * filters), a linear view of the deepest level, and the
 * parameters of a projector of distance maps (strided.h). What is tested is sdf_define. */
void simcvd_define(struct builder *b, const struct net_definition *self);
/* Networks with several outputs of classes: "logits", which is the V-Net's, "logits2", "logits3", ... */
enum { NET_BRANCHES = 4 };
extern const char *const net_logits[NET_BRANCHES];
/* MC-Net, 2 decoders, and MC-Net+, 3: they differ in how they go up, by transposed convolution, by trilinear
 * resizing (corners on corners), by nearest resizing, the latter two with a 3x3x3 convolution after it.
 * 12,347,716 and 15,246,566 parameters (1, 2, 16). */
void mcnet_define(struct builder *b, const struct net_definition *self);
void mcnet_plus_define(struct builder *b, const struct net_definition *self);
/* CCT: the V-Net, and three more of its decoders on what the encoder says, perturbed in each of the three
 * ways of net_shake.  15,664,776 parameters (1, 2, 16). */
void cct_define(struct builder *b, const struct net_definition *self);
/* URPC: heads of classes on blocks nine to six, the coarse ones made as large as the image by trilinear
 * resizing (centres of voxels). Dropout of 0.5, 0.3, 0.2 and 0.1 after blocks six to nine for the V-Net's.
 * 9,449,320 parameters (1, 2, 16). */
void urpc_define(struct builder *b, const struct net_definition *self);
/* Chaitanya's pre-training, on the parameters of one network, chaitanya_define (the V-Net, then all that
 * follows; made, not run). f: filters.
 *   global   the encoder and output "hidden" (64 f): its mean over an item and ReLU are what ...
 *   describe ... describes an item: (1, 1, 1, items, 64 f) in, output "rows" (8 f) out
 *   local    the encoder, which is not trained, the decoder to block_seven and output "regions" (8 f): in
 *            each voxel, but on the border, a view of the 3x3x3 around it */
void chaitanya_define(struct builder *b, const struct net_definition *self);
void chaitanya_global_define(struct builder *b, const struct net_definition *self);
void chaitanya_describe_define(struct builder *b, const struct net_definition *self);
void chaitanya_local_define(struct builder *b, const struct net_definition *self);
/* AUA's network: outputs "features" (16, raw out_conv), "mean", "log_cov_diag", "cov_factor".  The
 * projection head is a second little network (projection_define) run on gathered voxels only, its
 * parameters live in the same struct params.  9,450,260 parameters (1, 2, 16, rank 8). */
void aua_define(struct builder *b, const struct net_definition *self);
/* "mean" alone, on the same parameters or fewer: all that a mask needs. */
void aua_mask_define(struct builder *b, const struct net_definition *self);
/* (1, 1, 1, points, 16) in, output "projection" (16) out, not yet of unit length. */
void projection_define(struct builder *b, const struct net_definition *self);

/* ---- running ---------------------------------------------------------------------------------- */
enum net_use { NET_FORWARD_ONLY, NET_TRAINING };

struct net_shape {
    int n, d, h, w; /* d, h, w multiples of 16 for a V-Net */
    enum net_use use;
    int input_grad; /* 1: net_backward also leaves the gradient of the input */
};

struct net;
int net_new(struct net **out, struct params *p, const struct net_definition *def, const struct net_shape *s,
            struct error *e);
void net_free(struct net *n); /* NULL is fine */

enum net_mode {
    NET_TRAIN,  /* batch statistics, running ones updated, dropout on */
    NET_EVAL,   /* running statistics, no dropout */
    NET_MEASURE /* batch statistics, no dropout; running ones become the mean over such passes */
};
struct net_pass {
    enum net_mode mode;
    uint64_t seed, step;
    uint32_t stream; /* RNG_DROPOUT + which network, so that student and teacher differ */
    int measured;    /* NET_MEASURE: passes before this one */
};

/* image (n, d, h, w, channels) float32 in device memory. In NET_TRAIN as many items as planned, else at most
 * as many. */
void net_forward(struct net *n, const struct tensor *image, const struct net_pass *pass);
/* From the gradients of the outputs to params->grad (added) and touched. Outputs whose gradient was not
 * asked for since the forward pass send nothing back. Once for each forward pass, in either mode. */
void net_backward(struct net *n);

/* value: the output after net_forward. */
struct tensor net_value(const struct net *n, const char *output);
/* Its gradient, float32, zeroed at the first call after net_forward; asking for it makes it count. */
struct tensor net_grad(struct net *n, const char *output);
/* The same without zeros, for callers who set all of it. */
struct tensor net_grad_to_set(struct net *n, const char *output);
/* The same at a few voxels, none twice, one output at a time: added in net_backward, until when all of this
 * must stay. */
struct net_rows {
    const int64_t *at; /* (items, most) device: voxels, counted through the batch */
    const float *rows; /* (items, most, c) device */
    const int *count;  /* (items) how many of them, 0 for none */
    int items, most;
};
void net_grad_rows(struct net *n, const char *output, const struct net_rows *rows);
struct tensor net_input_grad(const struct net *n);

#endif
