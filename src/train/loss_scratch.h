/* loss_scratch.h - the memory behind struct loss_scratch, for the files loss*.c alone. */
#ifndef FALX_LOSS_SCRATCH_H
#define FALX_LOSS_SCRATCH_H

#include "train/loss.h"

struct loss_scratch {
    struct device *dev;
    int classes, samples, points;
    double dice_share;
    double *sums;     /* host: what reductions give; all Gram matrices of an item */
    float *host;      /* host: a table of coefficients being made ... */
    float *table;     /* device: ... and where kernels read it */
    size_t table_count;

    /* contrast: device memory for `points` rows (NULL if there are none) */
    float *rows, *pull;        /* (points, 16) */
    float *anchor, *log_sum;   /* (points) */
    void *contrast;            /* contrast_scratch(points) bytes */
};

#endif
