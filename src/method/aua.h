/* aua.h - what the files of AUA share; aua.c tells the method. */
#ifndef FALX_AUA_H
#define FALX_AUA_H

#include "method/parts.h"

struct aua {
    struct loss_scratch *scratch;
    struct net *projection;       /* on the student's weights, for `room` voxels of one or all items */
    struct tensor noisy;          /* (U, d, h, w, c) what the teacher sees */
    struct tensor pseudo;         /* (U, d, h, w, 1) U8 labels of the stage-1 student */
    struct tensor trusted;        /* (U, d, h, w, 1) F32 0 or 1, by confidence; data NULL: all count */
    struct paste paste;           /* stage2_paste */
    int room;                     /* most voxels of an item that are projected: bcl_cap, more if scrambled */
    struct tensor points_in;      /* (1 or L, 1, 1, room, 16) features of the sampled voxels */
    struct tensor point_grads;    /* (L, 1, 1, room, 16) their gradients */
    int64_t *points, *points_dev; /* (L, room) voxels of the batch, host, and the same on the device */
    uint8_t *row_label, *label_dev; /* (L, cap) of the rows that are compared, likewise */
    struct scramble scramble;       /* bcl_layout official: of one item */
    int32_t *place_dev;             /* (L, room, 16) its table; or NULL */
    double *bcl;                    /* (L) the loss inside each labelled item */
    int *n_points, *n_rows;         /* (L) of each labelled item; behind its points they repeat up to room */
    uint8_t *near;                  /* (d, h, w) host: which voxels lie at a boundary */
    struct prototypes *prototypes;  /* a state of the checkpoint */
};

struct net_definition aua_definition(const struct trainer *t);
int aua_scratch(struct trainer *t, struct error *e);

/* The distribution that `m` gives for items first .. first+n-1 of its batch, and where their gradients go.
 * set 1: the losses of a step set these gradients, of all items, where they would else be added to zeros. */
struct gaussian aua_distribution(struct trainer *t, struct model *m, int number, int first, int n);
void aua_gradients(struct gaussian *g, struct model *m, int first, int n, int set);

/* Contrast inside every labelled item: returns how many have a boundary, over which the mean is taken once
 * the losses are settled. */
int aua_contrast_begin(struct trainer *t, struct model *student, struct error *e);
int aua_contrast(struct trainer *t, struct model *student, double weight);
double aua_contrast_mean(const struct trainer *t, int with);

/* The prototypes, a state of the checkpoint; and the stage-1 student that later phases look at, without what
 * only its training needed. n_items 0: not run in this phase. */
int aua_prototypes_state(struct trainer *t, struct error *e);
struct model *aua_labeller(struct trainer *t, int n_items, struct error *e);

/* The phases: what the table in aua.c names. */
int stage1_begin(struct trainer *t, struct error *e);
void stage1_gradients(struct trainer *t);
void stage1_after(struct trainer *t);
int stage1_end(struct trainer *t, struct error *e);
int prototypes_begin(struct trainer *t, struct error *e);
void prototypes_gradients(struct trainer *t);
int stage2_begin(struct trainer *t, struct error *e);
void stage2_gradients(struct trainer *t);
void stage2_after(struct trainer *t);

#endif
