/* loss.h - losses on the outputs of networks: each gives its value and ADDS weight times its gradient to the
 * gradient tensors it is given (nothing, if the weight is 0), so losses compose by being called one after the
 * other.
 *
 * Shapes: logits, probabilities and their gradients (n, d, h, w, classes) F32; labels U8 (n, d, h, w, 1).
 * All take views of the batch (tensor_items), so "labelled" and "unlabelled" are ranges. Sums over voxels
 * are made in fixed blocks, in double across blocks. Any number of classes: Dice terms average over
 * foreground classes, or over all if the group is asked to; GED, MSE and entropy over all.
 */
#ifndef FALX_LOSS_H
#define FALX_LOSS_H

#include "device/device.h"

/* What a group of losses is asked to do. */
struct loss_options {
    int classes;
    int samples;         /* of the Gaussian over logits; 0: none */
    int points;          /* most rows of the contrast; 0: none */
    double dice_share;   /* of Dice in loss_ce_dice; the rest is cross-entropy */
    int dice_background; /* 1: background is one of the classes that Dice is the mean of */
    int likelihood_sum;  /* 1: Monte-Carlo likelihood summed over voxels, not their mean */
    int ged_sum;         /* 1: energy distance summed over pairs of samples, not their mean */
    int dice_linear; /* 1: Dice without squares, 1 - (2 sum p y + eps) / (sum p + sum y + eps), eps 1e-8 */
};

/* Device memory a group of losses works in; made once, so that steps allocate nothing. */
struct loss_scratch;
int loss_scratch_new(struct loss_scratch **out, struct device *dev, const struct loss_options *o,
                     struct error *e);
void loss_scratch_free(struct loss_scratch *s);

/* A loss needs sums over voxels before it knows its gradient, and for them the host waits for the device.
 * ask_...() make the sums only; loss_settle() waits once for all that were asked, sets their values and adds
 * their gradients, in the order in which they were asked. loss_...() are both in one. */
void loss_settle(struct loss_scratch *s);

/* ---- supervised ------------------------------------------------------------------------------ */
/* (1 - s) CE + s * mean over foreground classes of Dice with squared denominator, eps 1e-5, s the share of
 * Dice (published: 0.5); both weighted by voxel (weights F32 (n,d,h,w,1); NULL, or data NULL: 1 everywhere;
 * sums and CE's mean use them).
 * loss, ce and dice, if not NULL, get it and its two parts. An empty weight sum gives 0 [M08]. */
void ask_ce_dice(struct loss_scratch *s, const struct tensor *logits, const struct tensor *label,
                 const struct tensor *weights, double weight, const struct tensor *dlogits, double *loss,
                 double *ce, double *dice);
double loss_ce_dice(struct loss_scratch *s, const struct tensor *logits, const struct tensor *label,
                    const struct tensor *weights, double weight, const struct tensor *dlogits, double *ce,
                    double *dice);

/* Its Dice part alone. */
void ask_dice(struct loss_scratch *s, const struct tensor *logits, const struct tensor *label, double weight,
              const struct tensor *dlogits, double *value);

/* ---- AUA: low-rank Gaussian over logits ------------------------------------------------------ */
/* The parameters of one network's distribution: outputs "mean" (C), "log_cov_diag" (C), "cov_factor" (r*C,
 * channel k*C + c), and gradients to add to (data NULL: none wanted). mask U8 or data NULL. */
struct gaussian {
    struct tensor mean, diag, factor;
    struct tensor dmean, ddiag, dfactor;
    int fresh; /* 1: these are set, zeros included, not added to */
    struct tensor mask;
    int rank;
    uint64_t seed, step; /* random numbers: epsilon and eta are functions of these and ... */
    uint32_t stream;     /* ... of this (RNG_SAMPLE + 2 * which network; eta takes the next one) ... */
    int first_item;      /* ... and of the item's place in its batch: that of item 0 of these views */
};
enum { GAUSSIAN_SAMPLES = 16, GAUSSIAN_RANK = 16 }; /* most; samples is even, in antithetic pairs */

/* Monte-Carlo likelihood: mean over items, and over voxels unless the group is likelihood_sum. */
void ask_mc_likelihood(struct loss_scratch *s, const struct gaussian *g, const struct tensor *label,
                       int samples, double weight, double *value);
double loss_mc_likelihood(struct loss_scratch *s, const struct gaussian *g, const struct tensor *label,
                          int samples, double weight);
/* Generalised energy distance between student and teacher samples: mean over items, and over pairs of samples
 * unless the group is ged_sum. */
void ask_ged(struct loss_scratch *s, const struct gaussian *student, const struct gaussian *teacher,
             int samples, int joint, double weight, double *value);

/* ---- AUA: contrast --------------------------------------------------------------------------- */
/* Near-boundary voxels of one label patch, at most `cap` of them, chosen at random without replacement, in
 * raster order: flat voxel indices into points (host). Returns how many. The pool shares out the planes. */
struct boundary {
    const uint8_t *label;
    const int *dims; /* (3) */
    int rule;        /* enum nb_rule: which voxels are near */
    int cap;
    uint64_t seed, step; /* random numbers are functions of these ... */
    uint32_t item;       /* ... and of this */
    uint8_t *near;       /* room for a byte a voxel: 1 if it is near */
};
int boundary_points(int64_t *points, struct boundary *b, struct pool *pool);
/* The rows of the released code: unit vectors of all boundary voxels are listed channel by channel, the list
 * is read as rows of 16, at most `cap` rows are chosen, and row r has the label of boundary voxel r. The
 * choice is that of boundary_points. Example: of 48 voxels, row 3 holds channel 1 of voxels 0 to 15. All
 * memory is the host's and the caller's. */
struct scramble {
    int64_t *row_voxels;         /* (cap) whose label each row has */
    int64_t *points;             /* (scramble_room) voxels that the rows hold values of, in raster order */
    int32_t *place;              /* (scramble_room, 16) of channel c of point i among the rows, or -1 */
    int32_t *row_rank, *of_rank; /* (cap), (voxels) working memory */
    int n_rows, n_points;
};
int scramble_room(int64_t voxels, int cap);
void boundary_scramble(struct scramble *s, struct boundary *b, struct pool *pool);
/* Rows of a (.., c) F32 tensor at flat voxel indices -> dense (count, c). All pointers are device memory:
 * upload what boundary_points gave. net_grad_rows() is the way back. */
void gather_rows(struct device *dev, float *out, const struct tensor *from, const int64_t *points, int count);
/* (count, c) = the sums of rows that are `count` apart, of `repeated` in all. */
void fold_rows(struct device *dev, float *out, const float *rows, int count, int repeated, int c);
/* Supervised contrastive loss of projections with their class labels; O(count) memory; dg (count, dims) gets
 * weight * gradient added, by asking already. BCL_MEAN is over the anchors, the points with another of their
 * class. 0 without anchors [M08]. */
struct contrast_points {
    const float *g;       /* (count, dims), device; normalised inside */
    const uint8_t *label; /* (count), device; below the scratch's classes */
    int count, dims;      /* at most the scratch's points, and 16 */
    double tau;
    int reduce;           /* settings.h */
    const int32_t *place; /* device, of struct scramble; NULL: a row is a point's own vector ... */
    int points;           /* ... else of g and dg, whose dims are 16, and count is of the rows */
};
void ask_contrast(struct loss_scratch *s, const struct contrast_points *of, double weight, float *dg,
                  double *value);

/* ---- AUA: prototypes ------------------------------------------------------------------------- */
enum { PROTO_DIMS = 16, PROTO_CLASSES = 256 };
struct prototypes {        /* plain data: it is a state array of the checkpoint */
    int32_t classes, full; /* full: cov holds whole matrices */
    double count[PROTO_CLASSES];
    double mean[PROTO_CLASSES][PROTO_DIMS];
    double cov[PROTO_CLASSES][PROTO_DIMS][PROTO_DIMS]; /* diagonal in [a][a] unless full */
};
/* Exact pooled mean and biased (co)variance per class over everything ever fed: all voxels of features
 * (n,d,h,w,16) F32 under label, labels below p->classes. The caller sets classes and full, the rest starts
 * at 0. A class whose new sums are not finite keeps what it has. */
void prototypes_update(struct device *dev, struct prototypes *p, const struct tensor *features,
                       const struct tensor *label);
/* PCL, mean over the voxels that take part (label of a class seen before; weights as in loss_ce_dice or NULL
 * data); 0 if there are none [M08]. The gradient is added, or set, by asking already. */
struct pcl {
    const struct prototypes *prototypes;
    double tau;
    int ignore_bg; /* 1: only labels > 0 take part */
    int unscaled;  /* 1: the term u.S u of a voxel's own class counts 1, not 1 / (2 tau^2) */
    int fresh;     /* 1: dfeatures is set, zeros included, not added to */
};
void ask_prototypes(struct loss_scratch *s, const struct pcl *how, const struct tensor *features,
                    const struct tensor *label, const struct tensor *weights, double weight,
                    const struct tensor *dfeatures, double *value);

/* ---- without labels --------------------------------------------------------------------------- */
/* prob (n,d,h,w,classes) = share * softmax(logits), or, added to what is there, one more share of it. */
enum { SOFT_SET, SOFT_ADD };
void soft_labels(struct device *dev, const struct tensor *prob, const struct tensor *logits, double share,
                 int how);
/* dlogits += the gradient dprob by prob = softmax(logits). */
void soft_labels_grad(struct device *dev, const struct tensor *dlogits, const struct tensor *prob,
                      const struct tensor *dprob);
/* weights (n,d,h,w,1) = 1 where the entropy of prob, in nats, is below limit, else 0. */
void certain_voxels(struct device *dev, const struct tensor *weights, const struct tensor *prob,
                    double limit);
/* Mean over voxels and classes of (softmax(logits) - target)^2, target probabilities of the same shape, which
 * get no gradient; voxels weighted as in loss_ce_dice, an empty weight sum gives 0 [M08]. counted, if not
 * NULL, gets that sum. */
void ask_mse(struct loss_scratch *s, const struct tensor *logits, const struct tensor *target,
             const struct tensor *weights, double weight, const struct tensor *dlogits, double *value,
             double *counted);
/* Mean over voxels of the entropy of softmax(logits), as a share of the largest possible, ln classes. */
void ask_entropy(struct loss_scratch *s, const struct tensor *logits, double weight,
                 const struct tensor *dlogits, double *value);

/* ---- signed distances (loss_twin.c) ----------------------------------------------------------- */
/* raw (n,d,h,w,classes - 1) F32: tanh of it is the distance map of a foreground class, negative inside.
 * Mean of (tanh(raw) - target)^2. */
void ask_distance(struct loss_scratch *s, const struct tensor *raw, const struct tensor *target,
                  double weight, const struct tensor *draw, double *value);
/* map = tanh(raw), and the way back of a gradient by it: draw += dmap (1 - map^2). */
void distances(struct device *dev, const struct tensor *map, const struct tensor *raw);
void distances_grad(struct device *dev, const struct tensor *draw, const struct tensor *map,
                    const struct tensor *dmap);
/* Mean over voxels and foreground classes of (sigma(-1500 tanh(raw)) - softmax(logits))^2; both heads get a
 * gradient. */
void ask_dual(struct loss_scratch *s, const struct tensor *logits, const struct tensor *raw, double weight,
              const struct tensor *dlogits, const struct tensor *draw, double *value);

/* ---- between branches (loss_branches.c) ----------------------------------------------------------- */
/* Outputs of one network over the same voxels, and gradients to add to; all of them get some. */
enum { LOSS_BRANCHES = 4 };
struct loss_branches {
    int n; /* 2 to LOSS_BRANCHES */
    struct tensor logits[LOSS_BRANCHES], dlogits[LOSS_BRANCHES];
};
/* share * sum of mean (p_i - q_j)^2 over i < askers and all j but i, q = p^sharpness / sum p^sharpness. */
struct mutual {
    int askers;
    double sharpness, share;
};
void ask_mutual(struct loss_scratch *s, const struct loss_branches *b, const struct mutual *m, double weight,
                double *value);

/* Mean over branches k of
 *     mean(s_k (m - p_k)^2) / (mean(s_k) + 1e-8) + mean(kl_k),   s_k = exp(-kl_k)
 * m the mean of all p and kl_k = sum over classes of m (ln m - ln p_k) in every voxel: each is drawn to the
 * mean, less where it is far from it. */
void ask_pyramid(struct loss_scratch *s, const struct loss_branches *b, double weight, double *value);

/* ---- rows that belong together (loss_pairs.c) --------------------------------------------------- */
/* Working memory for `count` pairs of rows of `dims` numbers. */
struct pairs;
int pairs_new(struct pairs **out, struct device *dev, int count, int dims, struct error *e);
void pairs_free(struct pairs *p);
/* InfoNCE: each anchor, row i of x (PAIRS_OWN) or of other (PAIRS_OTHERS), is to find row i of the other list
 * among all of its rows, by cosine similarity / tau; mean over anchors. Rows in device memory; dx gets
 * weight * gradient by x added, by asking already; other gets none. */
enum pairs_anchor { PAIRS_OWN, PAIRS_OTHERS };
void ask_pairs(struct loss_scratch *s, struct pairs *p, const float *x, const float *other,
               enum pairs_anchor anchor, double tau, double weight, float *dx, double *value);

/* ---- rows that are like or unlike each other (loss_pairs.c) --------------------------------------- */
/* kind (count, count), host: by enum relation (kernels_pairs.h), what row j is to anchor i. */
struct relations;
int relations_new(struct relations **out, struct device *dev, const uint8_t *kind, int count, int dims,
                  struct error *e);
void relations_free(struct relations *r);
/* Sum over all pairs (i, j) that are alike of -ln(exp s_ij / (exp s_ij + sum over k unlike i of exp s_ik)),
 * s the cosine similarity / tau, divided by the number of rows. x, dx: (count, dims) as in ask_pairs; every
 * row gets a gradient, as an anchor and as one of the others. */
void ask_relations(struct loss_scratch *s, struct relations *r, const float *x, double tau, double weight,
                   float *dx, double *value);

/* ---- shared by many methods ------------------------------------------------------------------ */
/* label = argmax of logits, as U8; confidence (F32, 1 channel) = its probability, if data != NULL. */
void hard_labels(struct device *dev, const struct tensor *logits, const struct tensor *label,
                 const struct tensor *confidence);
/* out = in + clip(sd * N(0,1), +-2 sd), element-wise from (seed, step, stream). */
void add_noise(struct device *dev, const struct tensor *out, const struct tensor *in, double sd,
               uint64_t seed, uint64_t step, uint32_t stream);

#endif
