/* chaitanya.h - shared by chaitanya.c (phases) and its two pre-trainings, chaitanya_global.c and
 * chaitanya_local.c. See chaitanya.c.
 */
#ifndef FALX_CHAITANYA_H
#define FALX_CHAITANYA_H

#include "method/parts.h"

#define CHAITANYA_TAU 0.1

struct chaitanya {
    struct loss_scratch *scratch;
    struct relations *related;
    struct net *describe;                /* global: from the numbers below to a row an item */
    struct tensor mean, positive, dmean; /* (1, 1, 1, items, 64 f): means of "hidden", their ReLU */
    int64_t *at;                         /* local: (items, regions) device, voxels of "regions" ... */
    struct tensor rows, drows;           /* ... and what is there, (items, 1, 1, regions, 8 f) */
    int *count;                          /* (items): regions, each time */
};

/* The model "model", this phase's layers planned without dropout, Adam to train them. */
struct model *chaitanya_begin(struct trainer *t,
                              void (*define)(struct builder *b, const struct net_definition *self),
                              struct error *e);

int global_begin(struct trainer *t, struct error *e);
void global_gradients(struct trainer *t);
int local_begin(struct trainer *t, struct error *e);
void local_gradients(struct trainer *t);

#endif
