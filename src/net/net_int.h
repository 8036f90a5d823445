/* net_int.h - inside of src/net: the recorded graph, the memory plan, the network that runs.
 *
 *     define()  --graph.c-->  struct graph  --net_build.c-->  struct net  --net.c-->  forward, backward
 *                                                 plan.c: where each buffer lies
 *                                                 net_norm.c: tables scale, shift and p, q, r
 *                                                 resize.c, shake.c: layers without weights
 *                                                 net_heads.c: the last layers at once, on a GPU
 *
 * Layers are convolutions, and operations that store something of their own (resize.c, shake.c). Everything
 * else a definition says (norm, relu, dropout, add) becomes the way a layer's stored output is read, its
 * "view"; a layer has one view, and may be an output besides.
 *
 * Time, for lifetimes: layer i of N runs at i, losses at N, backward of layer i at 2N-i, the next
 * forward pass begins at 2N+1. Where a device makes weight gradients beside the rest (conv.h), they may be
 * NET_BEHIND layers behind: what they read lives so much longer.
 */
#ifndef FALX_NET_INT_H
#define FALX_NET_INT_H

#include "device/conv.h"
#include "net/net.h"

enum {
    NET_LAYERS = 128, /* a V-Net has 30, cct's with four decoders 87 */
    NET_VALUES = 4 * NET_LAYERS,
    NET_BEHIND = 2, /* more cost memory and win nothing: weight gradients of a layer take as long as dx */
    NET_OUTPUTS = 8
};

enum value_kind { FROM_INPUT, FROM_LAYER, FROM_ADD };

/* What the builder's small integers stand for. */
struct value {
    enum value_kind kind;
    int c, level; /* channels; times that d, h, w were halved */
    int layer;    /* FROM_LAYER: whose output, read with norm, relu and dropout as below */
    int norm, relu;
    float dropout;
    int from[2]; /* FROM_ADD: two FROM_LAYER values */
};

enum layer_kind { LAYER_CONV, LAYER_RESIZE, LAYER_SHAKE };

struct layer {
    enum layer_kind is;
    enum conv_kind kind; /* LAYER_CONV */
    int by;              /* LAYER_RESIZE: enum net_resize_by; LAYER_SHAKE: enum net_shake_by */
    int input;           /* value */
    int c_in, c_out;
    int level_in, level; /* of input and output */
    int view;            /* the value it is read as; -1: by nobody */
    int output;          /* number of the output it is, or -1 */
    int weight, bias;    /* LAYER_CONV: params->list */
    int norm;            /* 1: gamma, beta, mean, var are set */
    int gamma, beta, mean, var;
};

struct graph {
    struct value values[NET_VALUES];
    struct layer layers[NET_LAYERS];
    const char *outputs[NET_OUTPUTS]; /* names, those of the definition */
    int output_layer[NET_OUTPUTS];
    int open[NET_OUTPUTS]; /* 1: it has one more channel than the layer, the first, which is 0 */
    int n_values, n_layers, n_outputs;
    int max_level;
    int frozen; /* so many layers, the first ones, are not trained */
};

/* Runs a definition. params given: names are looked up there. params NULL: parameters are appended to
 * *list (mem_free) in order of definition. */
int graph_record(struct graph *g, const struct net_definition *def, const struct params *params,
                 struct param **list, int *n_list, struct error *e);

/* ---- memory plan ----------------------------------------------------------------------------- */
struct plan_item {
    size_t bytes;
    int first, last; /* alive from first to last, both included */
    size_t offset;   /* result, a multiple of PLAN_ALIGN */
};
enum { PLAN_ALIGN = 64, PLAN_ITEMS = 4 * NET_LAYERS + 2 + 2 * NET_OUTPUTS };
struct plan {
    struct plan_item items[PLAN_ITEMS];
    int n;
    size_t bytes; /* of the arena */
};
int plan_add(struct plan *p, size_t bytes, int first, int last); /* its number */
void plan_place(struct plan *p);

/* ---- the network that runs ------------------------------------------------------------------- */
/* A gradient between layers. The two operands of an add share one (see net_build.c). */
struct slot {
    int item;        /* of the plan */
    int layer;       /* whose shape it has; -1: the input */
    int from, until; /* layers: the first to write it and the last to read it in a backward pass */
    int written;     /* in this backward pass */
    int masked;      /* 1: by relu, too: it is the gradient at the layer's output */
    int beside;      /* the last weight gradient that reads it, counted from 1; 0: none in this pass */
};

/* What a layer has beside its entry in the graph. */
struct layer_run {
    struct conv *conv;
    int y, out_grad, aside;           /* items of the plan; out_grad, aside -1: none */
    int wide, wide_grad;              /* the same of an open output with its channel of zeros, or -1 */
    int slot;                         /* gradient of its view, -1: none */
    int meets;                        /* slot to be added to that one when the layer has read it, -1: none */
    enum value_type type;             /* of y */
    float *scale, *shift, *p, *q, *r; /* (n, c) device; NULL if read as it is */
    float *center;                    /* (c) device: mean as float */
    float *drop;                      /* (n, c) device: 0 or 1/(1-p); NULL without dropout */
    double *mean, *rstd;              /* (c) device, of the last forward pass */
    float *kept;                      /* LAYER_SHAKE: aside, in place */
};

struct net {
    struct graph graph;
    struct params *params; /* borrowed */
    struct device *dev;    /* borrowed */
    struct net_shape shape;
    struct plan plan;
    struct layer_run run[NET_LAYERS];
    struct slot slots[NET_LAYERS + 1];
    int n_slots, input_slot;     /* input_slot -1: none */
    int behind;                  /* layers that weight gradients may be behind; 0: they are made at once */
    int n_beside, n_caught;      /* weight gradients of this pass; of these, those that are waited for */
    int beside[NET_LAYERS];      /* how many there were after a layer's turn */
    unsigned char *arena;        /* device */
    float *tables;               /* device: all scale, shift, p, q, r, center, drop */
    double *moments;             /* device: mean and rstd of all layers, then the three below */
    double *stat_mean, *stat_m2; /* (widest layer) where conv_forward leaves moments */
    double *sums;                /* norm_sums_count(n, widest): what norm_backward starts from */
    int sums_of;                 /* the layer whose sums they are, its p, q, r are made; -1: none */
    struct conv_weight weights[NET_LAYERS];
    struct packing packing;  /* of them */
    int pair;                /* a layer that may be run with the one after it, the last; -1: none */
    int first_head, n_heads; /* layers that are run at once (heads.h); n_heads 0: none */

    /* the pass at hand */
    struct tensor image;
    int items; /* n of this pass */
    struct net_pass pass;
    int fresh; /* 1: forward done, backward not yet */
    unsigned char asked[NET_OUTPUTS];
    struct net_rows rows; /* of a gradient at few voxels; at NULL: none */
    int rows_output;
    int tables_stand; /* 1: tables of the running statistics are there from an earlier pass ... */
    struct {
        uint64_t version; /* ... with these parameters */
        int64_t batches;
        int items; /* of it; 0: the last pass had others */
    } tables_of;
};

/* Slots, lifetimes and places of a net whose graph, params, dev and shape are set; allocates nothing. */
void net_plan(struct net *n);

struct tensor net_layer_tensor(const struct net *n, int layer); /* y */
struct tensor net_slot_tensor(const struct net *n, int slot);
/* The slot that the gradient of a layer's input goes to, or -1; of an add, that of the later operand. */
int net_input_slot(const struct net *n, int layer);
/* How layer l's output is read by the next layer, with the tables of this pass. */
struct conv_source net_source(const struct net *n, int layer);

float *net_param(const struct net *n, int param); /* its values, of params->list */

/* resize.c: a LAYER_RESIZE. dx: of its input, or with data NULL. */
void resize_forward(struct net *n, int layer, const struct conv_source *in);
void resize_backward(struct net *n, int layer, const struct tensor *g, const struct tensor *dx, int add);

/* net_heads.c. Which layers are heads that the device runs at once; running them. backward: 0 if it was not
 * possible this time, since a gradient is missing, or at few voxels, or there is one already at what they
 * read. */
void heads_find(struct net *n);
void pair_find(struct net *n); /* sets n->pair */
void heads_forward(struct net *n);
int heads_backward(struct net *n);

/* shake.c: a LAYER_SHAKE, likewise. bytes: what it keeps from forward to backward, besides its output. */
size_t shake_bytes(const struct net *n, int layer);
void shake_forward(struct net *n, int layer, const struct conv_source *in);
void shake_backward(struct net *n, int layer, const struct tensor *g, const struct tensor *dx, int add);

/* net_norm.c. What makes the tables of a layer after its forward convolution; in NET_TRAIN from stat_mean and
 * stat_m2, and the running statistics are moved. Draws its dropout. */
struct k_norm_tables norm_tables(struct net *n, int layer, const struct net_pass *pass);
/* The gradient of a parameter, which counts from now on. */
float *net_touched_grad(struct net *n, int param);
/* What makes gradients of gamma and beta, and p, q, r, from n->sums; making these and those from the gradient
 * of the view. */
struct k_norm_grads norm_grads(struct net *n, int layer);
void norm_backward(struct net *n, int layer, const struct tensor *g);

#endif
