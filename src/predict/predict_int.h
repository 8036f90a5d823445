/* predict_int.h - a predictor (predictor.c), and the walk of predict.c over one scan, shared with what adapts
 * the network to it (adapt.c). */
#ifndef FALX_PREDICT_INT_H
#define FALX_PREDICT_INT_H

#include "predict/predict.h"

/* One output of one network, gathered over windows. */
struct gathered {
    struct net *net; /* borrowed */
    const char *output;
    int c, softmax;
    float *ring;  /* (patch[0], h, w, c) device */
    float *plane; /* (h, w, c) device: a closed plane */
};

struct predictor {
    struct device *dev;
    struct predict_options o;
    struct predict_model model[2]; /* mask, uncertainty; params NULL: none */
    struct net *net[2];
    int channels, classes;
    struct tensor input; /* (batch, patch..., channels) */
    float *weight[3], *weight_dev[3];
    uint8_t *exchange;          /* options.sides.other on the device */
    float *trained[2], *own[2]; /* to adapt: running statistics of the models, and what goes in their place */
};

/* The walk over one scan. */
struct walk {
    struct predictor *p;
    struct prediction *out;
    const float *image;
    int dims[3], padded[3], left[3]; /* of the scan; at least the patch; zeros before it */
    int n[3];                        /* windows along each axis */
    float *slab;                     /* device: the planes of the scan that a layer of windows sees ... */
    int slab_first, slab_planes;     /* ... which */
    float *total[3], *total_dev[3];  /* sums of weights along each axis */
    struct gathered part[4];         /* probabilities; mean, log_cov_diag, cov_factor */
    int n_parts;
    uint8_t *label; /* one closed plane, device */
    float *map[3];  /* foreground, std, entropy, device */
    void *row;      /* the same on the host */
    int closed;     /* planes below are done */
};

/* ---- predictor.c ---- */
/* Where memory was short, half as many windows at a time [G05]. 1 if that is worth another try. */
int predictor_shrink(struct predictor *p, struct error *e);

/* ---- predict.c ---- */
int walk_start(const struct walk *w, int axis, int k);
/* The planes that windows starting at plane z see. */
void walk_load(struct walk *w, int z);
/* One window, mirrored as asked, into slot i of the batch. */
void walk_cut(struct walk *w, int i, const int first[3], const int flip[3]);

/* ---- adapt.c: nothing is done unless options.adapt ---- */
int statistics_keep(struct predictor *p, struct error *e);
void statistics_adapt(struct walk *w);
void statistics_restore(struct predictor *p);
void statistics_forget(struct predictor *p);

#endif
