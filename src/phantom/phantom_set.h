/* phantom_set.h - private to phantom_set.c and phantom_index.c: names and places of a synthetic
 * set. */
#ifndef FALX_PHANTOM_SET_H
#define FALX_PHANTOM_SET_H

#include "phantom/phantom.h"

/* Folders of the layouts that keep images and labels of a role apart; NULL where there is none. */
struct phantom_folders {
    const char *image[3], *label[3]; /* by enum phantom_role */
};
/* NULL for layouts with a folder a case (h5, la, pancreas). */
const struct phantom_folders *phantom_folders(enum layout l);

/* "plain", "nnunet", ... */
const char *phantom_layout_name(enum layout l);

/* The files that list the cases: train.list, test.list, dataset.json, datalist.json, phantom.json.
 */
int phantom_write_index(const char *folder, const struct phantom_options *o, struct error *e);

#endif
