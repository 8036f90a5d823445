/* run_folder.h - what a run folder tells those who come after training: how scans were prepared, which
 * patch and classes, which model files. Part of run.json, which the training verb writes once (mode 0600:
 * it names paths) and everybody else reads.
 */
#ifndef FALX_RUN_FOLDER_H
#define FALX_RUN_FOLDER_H

#include "base/json_write.h"
#include "predict/predict.h"

struct run_facts {
    struct recipe recipe;
    int patch[3];
    int channels, classes;
    char **class_names; /* (classes), or NULL */
    char method[24];
    int mirrors;         /* bit a: training saw scans reversed along axis a */
    struct sides sides;  /* classes that were exchanged in them */
    int tta;             /* 1: masks are means over those mirror images unless told otherwise */
    int largest;         /* 1: of every class only the largest component is kept unless told otherwise */
    int adapt;           /* 1: statistics are adapted to each scan unless told otherwise */
    int window_mode;     /* enum window_weight */
    int stride[3];       /* voxels between windows; 0: half of the patch */
    int late_covariance; /* 1: AUA's covariance was trained in stage 2, too */
    int64_t stages;      /* of AUA, as read from run.json's settings; 0 if they do not tell */
};

/* Members of run.json that run_facts_read() understands. */
void run_facts_to_json(struct js_out *o, const struct run_facts *f);
int run_facts_read(struct run_facts *out, const char *folder, struct error *e);
void run_facts_free(struct run_facts *f); /* zeroed ones are fine */

/* Which weights of a run: "final" (model.safetensors), "best", "stage1". Refuses what the run does not
 * have, and weights that do not fit its channels and classes. */
int run_model(struct predict_model *out, const char *folder, const char *which, const struct run_facts *facts,
              struct device *dev, struct error *e);

/* The weights that uncertainty is read from, given the model that makes the mask: the stage-1 student of
 * an AUA run, unless that model's covariance is trained, too. Refuses a finished run of two stages without
 * it. out->params is NULL for networks without one. */
int run_uncertainty(struct predict_model *out, const char *folder, const char *which,
                    const struct net_definition *mask, const struct run_facts *facts, struct device *dev,
                    struct error *e);

#endif
