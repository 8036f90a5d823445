/* parts.h - the few lines that every method file would repeat. */
#ifndef FALX_PARTS_H
#define FALX_PARTS_H

#include "base/rng.h"
#include "device/kernels.h"
#include "train/loss.h"
#include "train/method.h"

extern const struct method method_supervised, method_mt, method_aua, method_copypaste;

/* V-Net with the run's channels, classes, filters and dropout. */
struct net_definition part_definition(const struct trainer *t);
/* How network `number` of the method runs this step. */
struct net_pass part_pass(const struct trainer *t, enum net_mode mode, int number);
/* The model that is validated and published at the end. */
void part_target(struct trainer *t, const char *model);

/* Device memory of a method: the shape of `like` with n items of c channels, then its memory. Alloc
 * keeps what is already there; free accepts what is not. */
struct tensor part_like(const struct tensor *like, int n, int c, enum value_type type);
int part_alloc(struct trainer *t, struct tensor *x, struct error *e);
void part_free(struct trainer *t, struct tensor *x);

/* Boxes pasted between partners (paste.c): what the network sees, and whose voxels show. */
struct paste {
    struct tensor mixed;     /* (n, d, h, w, c) */
    struct tensor weight[2]; /* (n, d, h, w, 1) F32: 1 where the first, the second partner shows */
};
int paste_alloc(struct trainer *t, struct paste *p, int n, struct error *e);
void paste_free(struct trainer *t, struct paste *p);
/* Mixes item i of `firsts` with item (i + shift) % n of `seconds`. */
void paste_mix(struct trainer *t, struct paste *p, const struct tensor *firsts,
               const struct tensor *seconds, int shift);

/* 1 if the label of this slot is not the same everywhere. */
int part_has_boundary(const struct trainer *t, int item);
/* The teacher's weights follow the student's, an average over all phases (draw, not step, counts); its
 * running statistics are the student's. */
void part_average(struct trainer *t, const char *teacher, const char *student);

#endif
