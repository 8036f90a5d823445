/* prepare.h - from a raw scan to what the network sees, and back.
 *
 *     raw volume -> [clip] -> reorient -> resample -> crop -> [clip] -> shift and scale -> prepared
 *     mask on the original grid <- reorient <- resample <- uncrop <-------------- mask <- network
 *
 * A recipe says what to do; it is a value, written to and read from JSON, and holds every number
 * that matters. A transform says what was done to one case, so that masks find their way back.
 *
 * Two families. The paper-* recipes repeat the published pipelines, which crop around the TRUE
 * label of every case, unlabelled and test cases included; they need a label or its box (label_box.h).
 * recipe_fair() crops by intensities instead. All others never look at a label except that `auto` learns the
 * intensities of labelled organs from labelled training cases, so they work just the same when predicting.
 */
#ifndef FALX_PREPARE_H
#define FALX_PREPARE_H

#include "base/base.h"
#include "base/pool.h"
#include "prepare/boxes.h"
#include "volume/resample.h"
#include "volume/volume.h"

enum { RECIPE_MAX_CHANNELS = 16 };

enum recipe_align { ALIGN_CENTRED, ALIGN_ENDS }; /* see resample.h */

enum recipe_crop {
    CROP_NONE,
    CROP_NONZERO, /* box around what is brighter than the scan's least value, in any channel */
    CROP_BODY,    /* box around the large parts of channel 0 above -500 HU */
    CROP_LABEL,   /* box of the label and `margin` voxels around it (paper-pancreas, paper-colon) */
    CROP_LABEL_LA /* the LA 2018 rule: patch-wide box with random margins, all slices (paper-la) */
};

enum crop_rule {                      /* --crop: where a paper-* recipe takes its crop from */
                 CROP_RULE_PUBLISHED, /* the true label */
                 CROP_RULE_FAIR       /* intensities */
};

enum recipe_clip {
    CLIP_NONE,
    CLIP_FIRST,      /* to low..high before anything else, as the published CT pipelines do */
    CLIP_LAST,       /* to low..high after the crop */
    CLIP_PERCENTILES /* to the crop's own percentiles low..high */
};

enum recipe_scale {
    SCALE_NONE,
    SCALE_SCAN, /* zero mean, unit variance over the whole scan, before the crop (paper-la) */
    SCALE_CROP, /* over the crop: what the network will see */
    SCALE_FIXED /* by `mean` and `std` of the recipe */
};

/* How the values of one channel are treated. */
struct recipe_channel {
    enum recipe_clip clip;
    double low, high; /* values, or percent for CLIP_PERCENTILES */
    enum recipe_scale scale;
    double mean, std; /* for SCALE_FIXED */
};

struct recipe {
    char name[24];
    uint64_t seed; /* for random margins */
    enum nan_policy nan;
    int reorient;         /* 1: to RAS */
    double spacing_mm[3]; /* 0: keep the axis as it is */
    enum recipe_align align;
    enum resample_kind image_kind;
    enum resample_kind label_kind; /* NEAREST or CLASSES */
    enum recipe_crop crop;
    int64_t margin; /* voxels, for CROP_LABEL */
    int binary;     /* 1: every class > 0 becomes 1 */
    int keep_mask;  /* 1: where the raw scan is > 0 is kept as an extra volume */
    int n_channels; /* of channel[]; 0: channel[0] holds for all */
    struct recipe_channel channel[RECIPE_MAX_CHANNELS];
    int64_t patch[3]; /* suggested patch, multiples of 16; 0: no suggestion */
};

/* "none", "auto", "la", "pancreas", "colon", "paper-la", "paper-pancreas", "paper-colon". `auto` is
 * not finished until recipe_choose() (fingerprint.h) has seen the data. */
int recipe_named(struct recipe *out, const char *name, uint64_t seed, enum nan_policy nan, struct error *e);
int recipe_needs_label(const struct recipe *r); /* 1: it crops around the true label */
/* The same for a scan that has no label yet: the body (CT) or all of it in place of the box of the label. */
struct recipe recipe_without_label(const struct recipe *r);
/* The same for training without a look at labels: the body (CT) or the nonzero voxels. */
struct recipe recipe_fair(const struct recipe *r);

/* What was done to one case. */
struct prepared_transform {
    int64_t original_dims[3];
    struct geometry original;
    int axis[3], flip[3];                /* reorientation, as in volume_permute() */
    struct resample_axis grid[3];        /* resampling of the reoriented grid */
    int64_t crop_first[3], crop_dims[3]; /* box on the resampled grid */
    int n_channels;
    struct value_map { /* prepared = (min(max(v, low), high) - shift) / scale */
        double low, high, shift, scale;
    } value[RECIPE_MAX_CHANNELS];
    int n_constant; /* channels without any contrast, set to 0 [N38] */
};

struct prepared {
    struct volume image;  /* float32, channels in dims[3] */
    struct volume label;  /* uint8, or uint16 from 256 classes up; data NULL: unlabelled */
    struct volume mask;   /* uint8 0/1; data NULL unless recipe.keep_mask */
    struct box label_box; /* given to prepare_begin(); dims[0] == 0: none */
    int64_t n_label_lost; /* labelled voxels outside of the crop */
    struct prepared_transform transform;
};

/* Prepares one case. `case_key` numbers the case for random margins. A recipe that needs a label
 * refuses label == NULL and empty labels. The label must lie on the image's grid. */
int prepare_case(struct prepared *out, const struct recipe *r, const struct volume *image,
                 const struct volume *label, uint64_t case_key, struct pool *pool, struct error *e);
/* Its two halves, so that image and label can be freed in between. *out is empty if one fails. label_box
 * stands in for a label that a recipe crops around; NULL: taken from the label. */
int prepare_begin(struct prepared *out, const struct recipe *r, const struct volume *image,
                  const struct volume *label, const struct box *label_box, struct error *e);
int prepare_end(struct prepared *io, const struct recipe *r, uint64_t case_key, struct pool *pool,
                struct error *e);
void prepared_free(struct prepared *p); /* zeroed ones are fine */
struct label_box {                      /* the true label of a scan, where a recipe crops around it */
    struct box box;
    uint64_t case_key; /* as of prepare_case() */
};
/* The box of a label on the resampled grid, before any margin. The label lies on `grid`, the image's. Refuses
 * an empty label [L07]. */
int prepare_label_box(struct box *out, const struct recipe *r, const struct volume *label,
                      const struct geometry *grid, struct pool *pool, struct error *e);

/* Brings a volume on the prepared grid back to the original one. Integer types are masks: uint8 and
 * uint16, resampled by RESAMPLE_CLASSES. Float32 is a map of probabilities: resampled linearly.
 * What was cropped away is 0. Exact where the recipe did not resample. */
int prepare_map_back(struct volume *out, const struct volume *prepared, const struct prepared_transform *t,
                     struct pool *pool, struct error *e);

/* JSON, with every number exact. Reading refuses what writing cannot have written. The NIfTI words
 * of the original geometry are not kept, its affine is. */
struct js;
struct js_out;
void recipe_to_json(struct js_out *o, const char *key, const struct recipe *r);
int recipe_from_json(struct recipe *out, const struct js *v, struct error *e);
void transform_to_json(struct js_out *o, const char *key, const struct prepared_transform *t);
int transform_from_json(struct prepared_transform *out, const struct js *v, struct error *e);

#endif
