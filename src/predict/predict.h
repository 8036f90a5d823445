/* predict.h - from a trained model and a prepared scan to a mask and maps.
 *
 *     run folder (open_run.h) -> models, predictor
 *     raw scan -> recipe (predict_scan.h) -> windows -> network -> slab of summed probabilities (predict.c)
 *              -> argmax, maps -> back to the scan's own grid (predict_scan.h)
 *
 * Windows are walked slab by slab along the slowest axis: a slab is closed as soon as no later window
 * touches it, so memory does not grow with classes x volume.
 */
#ifndef FALX_PREDICT_H
#define FALX_PREDICT_H

#include "net/net.h"
#include "prepare/prepare.h"
#include "volume/sides.h"
#include "volume/volume.h"

enum window_weight { WINDOW_CONSTANT, WINDOW_GAUSSIAN }; /* the paper's rule; nnU-Net's sigma = 1/8 */
#define WINDOW_MODE_WORDS "constant|gaussian"

struct predict_options {
    int patch[3];
    int stride[3]; /* at most the patch; 0: half of it */
    enum window_weight weight;
    int mirrors;        /* bit a: scans are also seen reversed along axis a; the mean of all images */
    struct sides sides; /* classes that are exchanged in mirror images */
    int batch;          /* windows at a time; 0 = chosen from the patch */
    int adapt;          /* 1: batch norm goes half by the scan's own statistics, which are in the models'
                             * params while a scan is predicted */
    int uncertainty;    /* 1: std of the foreground probability over samples, and entropy */
    int samples;        /* of the logits distribution; 0 = 16, fewer if > 32 classes */
    uint64_t seed;
    int largest;            /* 1: keep the largest component of every class */
    int probabilities;      /* 1: also the foreground probability (1 - background) */
    int (*stop)(void *arg); /* asked between windows; may be NULL */
    void *arg;
};

/* On the grid of the network, (d, h, w). */
struct prediction {
    int dims[3];
    label_t *label;
    float *foreground; /* 1 - p(background); NULL unless wanted */
    float *std;        /* of the foreground probability; NULL unless uncertainty */
    float *entropy;    /* in nats / ln C, 0..1; NULL unless uncertainty */
    double ambiguity;  /* one score a case: mean entropy over the predicted foreground and the voxels
                             * around it; of an empty mask the highest of any voxel */
};
void prediction_free(struct prediction *p);

struct predictor;
/* mask: the model that makes it; uncertainty (may be NULL): the stage-1 student. Both borrowed. */
struct predict_model {
    struct params *params;
    struct net_definition def;
};
int predictor_new(struct predictor **out, struct device *dev, const struct predict_model *mask,
                  const struct predict_model *uncertainty, const struct predict_options *o, struct error *e);
void predictor_free(struct predictor *p);
/* How often the network is run for a scan of this size. */
int64_t predictor_runs(const struct predictor *p, const int dims[3]);
/* image (d, h, w, c) as in the case store. */
int predict_array(struct prediction *out, struct predictor *p, const float *image, const int dims[3],
                  struct error *e);

#endif
