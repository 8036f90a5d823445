/* case_store.h - the training cases of a data set, in memory, ready to be cut into patches.
 *
 *     data set (files) -> case_store (this file) -> sampler -> batch
 *
 * A file keeps its first axis fastest; the network wants channels last. Loading turns every image
 * once into (d, h, w, c) = (i, j, k, channel): voxel (i, j, k), channel t is image[((i * h + j) *
 * w + k) * channels + t]. Labelled cases come first, in list order, then the unlabelled ones, so
 * that the two streams of the sampler are two ranges of indices.
 */
#ifndef FALX_CASE_STORE_H
#define FALX_CASE_STORE_H

#include "base/base.h"
#include "base/pool.h"
#include "data/dataset.h"
#include "volume/sides.h"
#include "volume/volume.h"

struct focus_point {
    int at[3], class;
};

struct stored_case {
    char *name;  /* as in the data set */
    int dims[3]; /* d, h, w */
    double spacing_mm[3];
    float *image;              /* (d, h, w, c) */
    label_t *label;            /* (d, h, w), NULL: unlabelled */
    uint8_t *mask;             /* (d, h, w) of 0 and 1, NULL: the store has no masks */
    struct focus_point *focus; /* (n_focus): what patches may be cut around; NULL: not looked for (focus.h) */
    int n_focus;
};

static inline size_t case_voxels(const struct stored_case *c)
{
    return (size_t)c->dims[0] * (size_t)c->dims[1] * (size_t)c->dims[2];
}

struct case_store {
    struct stored_case *cases; /* labelled first */
    int n_cases, n_labeled;
    int channels;  /* the same for every case [L14] */
    int n_classes; /* with background: declared, or highest label + 1 */
    int has_mask;
    struct sides sides; /* of classes; none after loading */
    size_t bytes;       /* of all images, labels and masks */
};

/* Which voxels the covariance of the logits is trained on; padding is never among them. */
enum case_mask {
    CASE_MASK_NONE,
    CASE_MASK_INSIDE, /* every voxel of the case (Pancreas) */
    CASE_MASK_FIELD   /* the scan's field (LA): masks/ of a prepared set, `mask` of a research h5, else voxels
                       * brighter than the darkest of channel 0 */
};

struct case_store_options {
    enum split split;
    enum nan_policy nan; /* NaN and Inf in images */
    enum case_mask mask;
    uint64_t limit_bytes;                 /* 0 = none; a set that needs more is refused before loading */
    const struct volume_request *request; /* limits and strictness; NULL = defaults */
    struct pool *pool;                    /* cases are read in parallel; NULL = one after another */
    struct report *report;                /* gets the memory needed, before anything is loaded */
};

/* Loads the cases of one split. A case without a label file is unlabelled. Errors name the file. */
int case_store_load(struct case_store *out, const struct dataset *d, const struct case_store_options *o,
                    struct error *e);

enum case_kind { CASE_LABELED, CASE_UNLABELED };

/* Cases made in memory. Adds one with zeroed image, label (if labelled) and mask (if has_mask);
 * all labelled ones must come first. Returns it (valid until the next call), or NULL. Set channels
 * and has_mask before. */
struct stored_case *case_store_add(struct case_store *s, const char *name, const int dims[3],
                                   enum case_kind kind, struct error *e);

void case_store_free(struct case_store *s); /* zeroed ones are fine */

#endif
