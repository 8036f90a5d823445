/* loss_scratch.h - the memory behind struct loss_scratch, and losses that were asked for and not yet settled;
 * for the files loss*.c alone.
 *
 *     ask     sums over voxels into `found`, on the device; what is left to do becomes a struct pending
 *     settle  `found` comes to the host at once; every pending makes its value and starts its gradients
 */
#ifndef FALX_LOSS_SCRATCH_H
#define FALX_LOSS_SCRATCH_H

#include "device/kernels.h"
#include "train/loss.h"

/* Cross-entropy and Dice, on logits. */
struct ce_dice {
    struct tensor logits, label, dlogits;
    const float *weights;     /* of voxels; NULL: 1 */
    double w_ce, w_dice;      /* gradient: w_ce dCE + w_dice dDice */
    double *loss, *ce, *dice; /* values wanted, or NULL */
};

/* Likelihood of one item, or energy distance of one. */
struct likelihood {
    struct k_sample_nll_grad k;
    int64_t voxels;
    int samples;
    double scale, weight; /* of the value, of the gradient */
};
struct ged {
    struct k_ged_grad k;
    int64_t voxels;
    int joint, items;
    int divisor; /* of the sum over pairs of samples: their number, or 1 */
    double weight;
};

/* Losses of logits that need no label. */
struct open_loss {
    struct tensor logits, dlogits;
    const float *target, *weights; /* probabilities; of voxels, NULL: 1 */
    double weight;
    double *counted; /* gets the sum of the voxels' weights; or NULL */
};

/* Losses of a head that predicts distances. */
struct twin_loss {
    struct tensor raw, draw, logits, dlogits;
    const float *target; /* distances */
    double weight;
};

/* Losses between branches. */
struct branch_loss {
    struct loss_branches b;
    struct mutual mutual;
    double weight;
};

/* Rows that belong together: the gradient is made by asking. */
struct pairs_loss {
    int count; /* anchors, that the value is the mean of */
};

/* The contrast between classes, likewise. */
struct contrast_loss {
    int mean; /* over anchors; 0: the sum */
};

struct pending {
    /* sums: the host's copy of what it asked for. */
    void (*settle)(struct loss_scratch *s, const struct pending *p, const double *sums);
    size_t first;  /* of its sums in `found` */
    double *value; /* is added to, or set */
    union {
        struct ce_dice ce_dice;
        struct likelihood likelihood;
        struct ged ged;
        struct open_loss open;
        struct twin_loss twin;
        struct branch_loss branches;
        struct pairs_loss pairs;
        struct contrast_loss contrast;
    } of;
};
enum { LOSS_PENDING = 16 };

struct loss_scratch {
    struct device *dev;
    int classes, samples, points;
    double dice_share;
    int dice_first; /* the first class that has a Dice: 1, or 0 with background */
    int dice_linear, likelihood_sum, ged_sum;
    struct pending pending[LOSS_PENDING];
    int n_pending;
    size_t asked, room; /* doubles of found: in use, all */
    double *found;      /* device: what sums give ... */
    double *sums;       /* host: ... and where they come to */
    float *host;        /* host: a table of coefficients being made ... */
    float *table;       /* device: ... and where kernels read it */
    size_t table_count;

    /* contrast: device memory for `points` rows (NULL if there are none) */
    float *rows, *pull;      /* (points, 16) */
    float *anchor, *log_sum; /* (points) */
    void *contrast;          /* contrast_scratch(points) bytes */
};

/* A new pending with room for its sums, which begin at s->found + first; all before it are settled first if
 * there is no place left. */
struct pending *loss_ask(struct loss_scratch *s, size_t n_sums, double *value);

#endif
