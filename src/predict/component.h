/* component.h - the largest connected part of every class in a mask. */
#ifndef FALX_COMPONENT_H
#define FALX_COMPONENT_H

#include "volume/volume.h"

/* Sets voxels to 0 that are not in the largest 26-connected part of their class; of equal parts the one met
 * first stays. label (d, h, w), w fastest. Returns 0, or -1 without memory. */
int component_keep_largest(label_t *label, const int dims[3], struct error *e);

#endif
