/* predicting.h - what `predict` and `pseudo` share: a run opened for prediction, one case through it. */
#ifndef FALX_PREDICTING_H
#define FALX_PREDICTING_H

#include "cli/config.h"
#include "data/dataset.h"
#include "predict/predict_scan.h"
#include "predict/run_folder.h"

struct predicting {
    struct device *dev;
    struct run_facts facts;
    struct predict_model mask, uncertainty; /* the second without params: entropy of the mask's model */
    struct predictor *predictor;
};

/* Opens the run c->args[0]. uncertainty: maps are wanted. */
int predicting_open(struct predicting *out, const struct config *c, int uncertainty, struct error *e);
void predicting_close(struct predicting *p); /* zeroed ones are fine */

/* Loads, predicts. Errors name the file. */
int predicting_case(struct scan_result *out, struct predicting *p, const struct config *c,
                    const struct dataset *d, const struct data_case *k, struct error *e);
/* FOLDER/NAMEsuffix.nii.gz, if the volume is there. */
int predicting_write(const struct volume *v, const char *folder, const char *name, const char *suffix,
                     struct error *e);

#endif
