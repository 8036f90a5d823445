/* validate.h - how good a model is on whole volumes it does not train on: mean Dice over foreground
 * classes, then over cases.
 */
#ifndef FALX_VALIDATE_H
#define FALX_VALIDATE_H

#include "net/net.h"
#include "predict/predict.h"
#include "sample/case_store.h"

enum { VALIDATE_CLASSES = 256 };

struct validation {
    double dice;                        /* NaN: defined nowhere [M05] */
    double per_class[VALIDATE_CLASSES]; /* [k] is class k + 1, mean over the cases where it is defined */
    int n;                              /* foreground classes */
    int undefined;                      /* (case, class) pairs absent from truth and prediction */
};

struct validate_options {
    int patch[3], stride[3]; /* as in struct predict_options */
    enum window_weight weight;
    int (*stop)(void *arg); /* 1: give up with ERR_STOPPED; may be NULL */
    void *arg;
    double (*clock)(void *arg); /* for validate_seconds(); never NULL there */
    void *clock_arg;
};

/* Every case of the store must be labelled; n_classes of the model's definition. */
int validate(struct validation *out, struct device *dev, struct params *p, const struct net_definition *def,
             const struct case_store *cases, const struct validate_options *o, struct error *e);
/* An estimate of how long that takes, made in about `most` seconds from some windows of the first case. */
int validate_seconds(double *seconds, struct device *dev, struct params *p, const struct net_definition *def,
                     const struct case_store *cases, const struct validate_options *o, double most,
                     struct error *e);

#endif
