/* fingerprint.h - what a data set looks like, and the recipe `auto` chooses from that.
 *
 *     each case -> case_print (independent of all others) -> fingerprint -> recipe
 *
 * Spacing, size and intensities come from every training case, labelled or not. Intensities of
 * organs, and whether all of them lie in the body, come from labelled training cases alone. Test cases
 * are left out.
 */
#ifndef FALX_FINGERPRINT_H
#define FALX_FINGERPRINT_H

#include "prepare/prepare.h"

/* One case. Axes are those of the scan turned to RAS. */
struct case_print {
    double spacing_mm[3];
    int64_t dims[3];              /* voxels */
    int64_t box_dims[3];          /* of the box around body (CT) or signal */
    int labeled;                  /* 1: foreground was looked at */
    int64_t n_labeled, n_outside; /* labelled voxels, and those of them outside of the first channel's box */
    int n_channels;
    struct channel_print {
        double min, max;
        struct sample_print {
            float *value;
            int n;
        } inside, foreground; /* of voxels of the box, and of labelled ones */
    } channel[RECIPE_MAX_CHANNELS];
};

struct value_print {
    int64_t n;                           /* sampled values; 0: the rest says nothing */
    double mean, std, median, low, high; /* low, high: percentiles 0.5 and 99.5 */
};

struct fingerprint {
    int n_cases, n_labeled, n_channels;
    double spacing_mm[3], spacing_10[3]; /* median and 10th percentile */
    double dims[3], box_mm[3];           /* medians; box: of the body or signal */
    int keeps_labels;                    /* 1: hardly a labelled voxel lies outside of these boxes */
    struct fingerprint_channel {
        int is_ct; /* values are Hounsfield units */
        double min, max;
        struct value_print inside, foreground;
    } channel[RECIPE_MAX_CHANNELS];
};

/* Looks at one case; `samples` values per channel at most. label NULL: unlabelled. */
int case_print_measure(struct case_print *out, const struct volume *image, const struct volume *label,
                       enum nan_policy nan, uint64_t case_key, int samples, struct error *e);
void case_print_free(struct case_print *p);

/* n >= 1 cases in list order. Refuses different channel counts [L14]. */
int fingerprint_combine(struct fingerprint *out, const struct case_print *prints, int n, struct error *e);
/* Finishes the recipe `auto`. */
void recipe_choose(struct recipe *r, const struct fingerprint *f);
/* A patch of at most 96^3 voxels, multiples of 16, shaped like a typical prepared case. */
void suggest_patch(int64_t patch[3], const double dims[3]);

void fingerprint_to_json(struct js_out *o, const char *key, const struct fingerprint *f);

#endif
