/* open_run.h - a run folder opened for prediction: its device, models and predictor, for the program and the
 * library alike.
 */
#ifndef FALX_OPEN_RUN_H
#define FALX_OPEN_RUN_H

#include "predict/predict_scan.h"
#include "predict/run_folder.h"

struct run_request {
    struct device_options device;
    const char *model;       /* as of run_model() */
    int tta, largest, adapt; /* 1, 0, or -1: as the run was trained to */
    int window_mode;         /* enum window_weight, or -1: that of the run */
    /* A stride of 0 is that of the run; patch, weight, mirrors, sides, largest and adapt are filled in. */
    struct predict_options how;
};

struct open_run {
    struct device *dev;
    struct run_facts facts;
    struct predict_model mask, uncertainty; /* the second without params: entropy of the mask's model */
    struct predictor *predictor;
};
int open_run(struct open_run *out, const char *folder, const struct run_request *wanted, struct error *e);
void open_run_close(struct open_run *r); /* zeroed ones are fine */

/* Takes the voxels of *image, as predict_scan() does. */
int open_run_predict(struct scan_result *out, struct open_run *r, const struct label_box *around,
                     struct volume *image, struct error *e);

#endif
