/* find_sides.h - which classes of a data set are left and right of one thing (volume/sides.h). */
#ifndef FALX_FIND_SIDES_H
#define FALX_FIND_SIDES_H

#include "sample/case_store.h"

/* Finds the pairs in the labels of a store whose first axis runs from left to right; names of the classes may
 * be NULL. Returns how many, or -1: memory. The caller says which axes exchange them. */
int find_sides(struct sides *out, const struct case_store *s, char *const *names, struct error *e);

#endif
