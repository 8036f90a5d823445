/* sampler.h - from cases in memory to an endless, reproducible sequence of training batches.
 *
 *     case_store -> labelled stream, unlabelled stream -> augment -> ring of batches -> training
 *
 * A batch has L slots from the labelled cases, then U slots from the unlabelled ones:
 *   - an epoch is one permutation of the labelled cases cut into groups of L; an incomplete last
 *     group is dropped (3 cases, L = 2: one group);
 *   - every epoch starts a new stream of unlabelled cases, fresh permutations one after another,
 *     cut into groups of U.
 * With L = 0 the unlabelled cases set the epoch in the same way.
 *
 * Views: slots that show the same crop, each in its own way, side by side. Their batches are of all cases,
 * labelled or not, and a case may give several crops, one from each of equal parts of its last axis:
 *
 *     slot = (case * pieces + piece) * views + view
 *
 * Every batch is a pure function of (store, options, step): nothing is carried from step to step,
 * so a restart at any step and any number of threads give the same bytes. Threads fill batches
 * ahead of use; nothing is allocated after sampler_new.
 *
 * Fallbacks, reported as notes [L10]: fewer labelled cases than L: an epoch is one group, filled
 * from fresh permutations one after another. No unlabelled case: the U slots draw from the
 * labelled cases by the unlabelled stream; their labels are filled in (has_label), and the slots
 * keep their place, so a method that treats them as unlabelled works unchanged.
 */
#ifndef FALX_SAMPLER_H
#define FALX_SAMPLER_H

#include "base/base.h"
#include "sample/augment.h"
#include "sample/case_store.h"

enum sampler_stream { SAMPLER_LABELED, SAMPLER_UNLABELED, SAMPLER_STREAMS };

/* What a batch does not hold, because a device makes it from the draws (augment_kernel) or nobody asks. */
enum { SAMPLER_NO_IMAGE = 1, SAMPLER_NO_LABEL = 2 }; /* masks go with the images */

struct sampler_options {
    int n_labeled, n_unlabeled;                      /* L and U, L + U in 1..4096 */
    int patch[3];                                    /* d, h, w */
    struct augment_options augment[SAMPLER_STREAMS]; /* slots of each stream have their own */
    int views, pieces; /* views > 1: see above; L is 0, U a multiple of views * pieces, and the two
                                 * augmentations are of the first view and of the others. 0 is 1 */
    uint64_t seed;
    int without;           /* SAMPLER_NO_... */
    int threads;           /* filling ahead, up to 256; 0 = sampler_next does the work */
    int depth;             /* batches in the ring, 2..64; one of them is the caller's */
    struct report *report; /* memory of the ring, fallbacks; used by sampler_new only */
};

/* Where one slot came from. With the store it makes the patch again (augment_apply). */
struct sample {
    int case_index; /* in the store */
    int has_label;
    enum sampler_stream stream;
    int exchanged; /* 1: a mirror image, with the store's sides exchanged */
    struct augment_draw draw;
};

struct batch {
    uint64_t step;
    int n, n_labeled; /* slots L + U, and L */
    int dims[3], channels;
    float *image;          /* (n, d, h, w, c) */
    label_t *label;        /* (n, d, h, w); 0 in slots without label */
    uint8_t *mask;         /* (n, d, h, w), NULL if the store has no masks; all three: or left out */
    struct sample *sample; /* (n) */
};

struct sampler;

/* The store is borrowed and must not change. Starts at step 0. */
int sampler_new(struct sampler **out, const struct case_store *store, const struct sampler_options *o,
                struct error *e);
void sampler_free(struct sampler *s); /* ends its threads; NULL is fine */

/* The batch of the next step; waits for it if need be. Borrowed until the next call on s. */
const struct batch *sampler_next(struct sampler *s);
/* The batch that sampler_next will give, already; waits for it if need be. Stays borrowed while it is that
 * call's result. */
const struct batch *sampler_peek(struct sampler *s);
/* The next batch will be that of `step`. Takes back the borrowed batch. */
void sampler_seek(struct sampler *s, uint64_t step);

size_t sampler_bytes(const struct sampler *s); /* of the ring */

#endif
