/* predict_scan.h - one raw scan through recipe, network and back: masks and maps on the scan's own grid. */
#ifndef FALX_PREDICT_SCAN_H
#define FALX_PREDICT_SCAN_H

#include "predict/predict.h"

struct scan_result {
    struct volume label;      /* uint8 */
    struct volume foreground; /* float32; data NULL unless wanted, as the next two */
    struct volume std, entropy;
    double ambiguity; /* predict.h */
};
void scan_result_free(struct scan_result *r); /* zeroed ones are fine */

/* Takes the voxels of *image: freed as soon as they are prepared, so that a large scan is not held twice.
 * A recipe that crops around the true label does so at `around`, with background outside of the crop; NULL:
 * the whole scan is predicted. Other recipes ignore it. */
int predict_scan(struct scan_result *out, struct predictor *p, const struct recipe *recipe,
                 const struct label_box *around, struct volume *image, struct pool *pool, struct error *e);

#endif
