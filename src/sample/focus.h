/* focus.h - patches that are cut around a class, where patches from anywhere would seldom hold it.
 *
 * A lesion of ten voxels in a large scan is in one of a hundred patches, and nothing is learnt from the
 * others but that there is none. So a share of the labelled patches is placed where it holds a voxel of a
 * class drawn at random, each class of the case as likely as the others.
 */
#ifndef FALX_FOCUS_H
#define FALX_FOCUS_H

#include "sample/case_store.h"

/* Fills `focus` of every labelled case: as many voxels of each class it holds, spread over its extent. */
int focus_find(struct case_store *s, struct error *e);

/* The share of patches from anywhere that hold a class, of those cases that do; the least of all classes,
 * and *rarest, which one it is. 1 if there is none. After focus_find(). */
double focus_seen(const struct case_store *s, const int patch[3], int *rarest);

#endif
