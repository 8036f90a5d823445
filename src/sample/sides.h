/* sides.h - classes that are the left and the right one of a pair, such as kidneys. */
#ifndef FALX_SIDES_H
#define FALX_SIDES_H

#include "sample/case_store.h"

/* How many pairs of classes differ in hardly more than the side they lie on, along the first axis, which is
 * from left to right once scans are turned to RAS; the first of them in pair[]. -1: memory. */
int sides_find(int pair[2], const struct case_store *s, struct error *e);

#endif
