/* label_box.h - the box that the published pipelines crop a case to: around its true label.
 *
 *     label file, hidden or not -> voxels -> box -> voxels freed
 *
 * The released code of AUA, UA-MT and DTC crops every scan around its true label, those included whose labels
 * training does not use. This is the only place that opens a hidden label, and a box is all that leaves it.
 */
#ifndef FALX_LABEL_BOX_H
#define FALX_LABEL_BOX_H

#include "data/dataset.h"
#include "prepare/prepare.h"

/* Refuses a case without a label file if the recipe crops around it [L01]. */
int label_box_check(const struct recipe *r, const struct data_case *c, struct error *e);
/* Reads the label of a case, or else its hidden one. `image`: of the case, its header at least. Refuses an
 * empty label [L07]. Errors name the file. */
int label_box_read(struct box *out, const struct recipe *r, const struct dataset *d,
                   const struct data_case *c, const struct volume *image,
                   const struct volume_request *request, struct pool *pool, struct error *e);

#endif
