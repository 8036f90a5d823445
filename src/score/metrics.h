/* metrics.h - how well a predicted mask agrees with the truth: the last step of the data path.
 *
 * Definitions: A = prediction, G = truth, S(.) = surface voxels, d(a, S) = distance to the nearest:
 *
 *   dice           2|A n G| / (|A| + |G|)                    jaccard   |A n G| / |A u G|
 *   asd            mean of d(a, S(G)) over a in S(A): one-sided, prediction to truth
 *   assd           mean of asd(A, G) and asd(G, A)           hd        largest distance, both ways
 *   hd95           95th percentile of both directions' distances pooled
 *   hd95_monai     larger one of the two directions' 95th percentiles
 *   hd95_deepmind  the same over surface corners weighted by their area (surface.h)
 *   nsd            area within the tolerance of the other surface, both ways, over total area
 *   volume_error   (|A| - |G|) / |G|, signed
 *
 * Percentiles interpolate linearly between order statistics (numpy's default), except
 * hd95_deepmind: the first distance at which 95 % of the area is reached. Fractions are in [0, 1].
 * Undefined values are NaN: overlaps when both masks are empty, distances when either is. One empty
 * mask gives overlap and nsd 0.
 */
#ifndef FALX_METRICS_H
#define FALX_METRICS_H

#include "score/surface.h"

enum metric_protocol {
    METRIC_PROTOCOL_MM,   /* distances in millimetres; undefined values are left out of means */
    METRIC_PROTOCOL_PAPER /* as the literature: voxels; an empty prediction counts as dice, jaccard,
                           * asd and hd95 of 0 */
};

enum metric {
    METRIC_DICE,
    METRIC_JACCARD,
    METRIC_ASD,
    METRIC_HD95,
    METRIC_ASSD,
    METRIC_HD,
    METRIC_HD95_MONAI,
    METRIC_HD95_DEEPMIND,
    METRIC_NSD,
    METRIC_VOLUME_ERROR,
    METRIC_COUNT
};
const char *metric_name(enum metric m);
int metric_is_distance(enum metric m); /* 1: has the protocol's unit; 0: a fraction */

struct metric_options {
    enum metric_protocol protocol;
    double nsd_tolerance; /* in the protocol's unit */
};

struct class_score {
    label_t class;
    int64_t n_truth, n_prediction, n_both; /* voxels */
    double value[METRIC_COUNT];            /* NaN = undefined */
};

struct case_score {
    char *name;                  /* owned; may be NULL */
    struct class_score *classes; /* ascending */
    int n_classes;
};

/* Scores every foreground class that appears in either volume. The result is the same for any number of
 * threads. */
int metrics_measure(struct case_score *out, const struct label_pair *pair, const struct metric_options *o,
                    struct pool *pool, struct error *e);
void case_score_free(struct case_score *c);

/* Gives every case an entry for each class that appears in any of them (class 1 if there is none),
 * so that cases[i].classes[k] is the same class for all i. To be called once, before the summaries.
 */
int metrics_align(struct case_score *cases, int n_cases, const struct metric_options *o, struct error *e);

struct metric_summary {
    double mean[METRIC_COUNT]; /* NaN if nothing is defined */
    double sd[METRIC_COUNT];   /* of the sample (n - 1); NaN below two values */
    int n[METRIC_COUNT];       /* values that entered */
};
/* Mean over the foreground classes of one case, undefined ones left out. */
void metrics_case_mean(double out[METRIC_COUNT], const struct case_score *c);
/* Over cases, of the case means (k < 0) or of class number k in the aligned order. */
void metrics_summarise(struct metric_summary *out, const struct case_score *cases, int n_cases, int k);

struct metric_empties { /* (case, class) pairs */
    int predictions;    /* predicted nothing though there is something */
    int truths;         /* predicted something though there is nothing */
    int both;
};
void metrics_count_empties(struct metric_empties *out, const struct case_score *cases, int n_cases);

#endif
