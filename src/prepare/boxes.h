/* boxes.h - which part of a scan is worth keeping: boxes found from values or from a label.
 *
 * All arrays are one channel with the first axis fastest. A box that finds nothing is the whole
 * volume.
 */
#ifndef FALX_BOXES_H
#define FALX_BOXES_H

#include "base/base.h"
#include "volume/volume.h"

struct box { /* dims[0] == 0: empty */
    int64_t first[3], dims[3];
};

void box_whole(struct box *out, const int64_t dims[3]);
/* Least box holding both. */
void box_join(struct box *io, const struct box *other);
/* Least box around all values above the least one. */
void box_of_signal(struct box *out, const float *values, const int64_t dims[3]);
/* Least box around all voxels with a class > 0. Returns 1, or 0 if there is none. */
int box_of_label(struct box *out, const label_t *label, const int64_t dims[3]);
/* Least box around the largest 6-connected part of the values > threshold and those at least a quarter as
 * large: a body without the table and the air, or two legs. */
int box_of_body(struct box *out, const float *values, const int64_t dims[3], float threshold,
                struct error *e);

#endif
