/* parts.h - the few lines that every method file would repeat. */
#ifndef FALX_PARTS_H
#define FALX_PARTS_H

#include "base/rng.h"
#include "device/kernels.h"
#include "net/strided.h"
#include "train/loss.h"
#include "train/method.h"
#include "train/sdf.h"

extern const struct method method_supervised, method_aua, method_copypaste;
extern const struct method method_mt, method_entropy, method_ua_mt, method_ict; /* for comparison */
extern const struct method method_dtc, method_dan, method_sassnet, method_simcvd;
extern const struct method method_mc_net, method_mc_net_plus, method_urpc, method_cct, method_chaitanya;

/* Published settings that the scripts of several methods share, as config files (struct method). The labelled
 * half of a batch is --labeled-batch auto, the weight --consistency auto. Arguments are strings.
 *
 * On the Left Atrium: UA-MT, train_LA.py (supervised) and train_LA_meanteacher_certainty_unlabel.py; SASSNet,
 * train_gan_sdfloss.py; DTC, train_la_dtc.py; MC-Net, train_mcnet_3d.py; BCP, LA_BCP_train.py. */
#define PUBLISHED_SGD                                                                                        \
    "optimizer = sgd\nmomentum = 0.9\nweight-decay = 0.0001\n" /* optim.SGD(...) */                          \
    "ema-decay = 0.99\n"                                       /* --ema_decay */                             \
    "augment = paper\n"                                        /* RandomRotFlip(), RandomCrop() */           \
    "dropout = both\n"         /* VNet(has_dropout=True), net_factory_3d("vnet") */                          \
    "window-mode = constant\n" /* test_single_case(): score_map / cnt */
#define PUBLISHED_LA(steps, schedule, batch)                                                                 \
    PUBLISHED_SGD                                                                                            \
    "steps = " steps "\n"                            /* --max_iterations */                                  \
    "schedule = " schedule "\n"                      /* step: lr_ = base_lr * 0.1 ** (iter_num // 2500) */   \
    "lr = 0.01\n"                                    /* --base_lr */                                         \
    "batch = " batch "\n"                            /* --batch_size; --labeled_bs is its half */            \
    "patch = 112,112,80\n"                           /* patch_size */                                        \
    "stride = 18,18,4\n"                             /* test_LA.py: stride_xy, stride_z */
#define PUBLISHED_RAMPUP_40 "rampup-length = 6000\n" /* --consistency_rampup 40, stairs of 150 steps */
/* On BraTS 2019: SSL4MIS, train_mean_teacher_3D.py, train_entropy_minimization_3D.py,
 * train_interpolation_consistency_training_3D.py, train_adversarial_network_3D.py, and on GTV
 * train_uncertainty_rectified_pyramid_consistency_3D.py, which differ in few arguments. */
#define PUBLISHED_SSL4MIS(steps, lr, patch)                                                                  \
    PUBLISHED_SGD                                                                                            \
    "steps = " steps "\n"         /* --max_iterations */                                                     \
    "rampup-length = " steps "\n" /* --consistency_rampup: 200 (URPC: 400) stairs of 150 steps */            \
    "schedule = poly\n"           /* lr_ = base_lr * (1.0 - iter_num / max_iterations) ** 0.9 */             \
    "lr = " lr "\n"               /* --base_lr */                                                            \
    "batch = 4\n"                 /* --batch_size; --labeled_bs 2 */                                         \
    "patch = " patch "\n"         /* --patch_size */                                                         \
    "stride = 64\n"               /* test_3D.py, test_urpc.py: stride_xy, stride_z */

/* V-Net with the run's channels, classes, filters and dropout. */
struct net_definition part_definition(const struct trainer *t);
/* How network `number` of the method runs this step. */
struct net_pass part_pass(const struct trainer *t, enum net_mode mode, int number);
/* The model that is validated and published at the end. */
void part_target(struct trainer *t, const char *model);

/* A step of labels alone: `model`'s pass over the batch, their loss, back, and the notes of it. */
void part_learn_labels(struct trainer *t, const char *model, struct loss_scratch *scratch);

/* Device memory of a method: n items of c channels that are as large as the batch's; or what x says already.
 * Both keep memory that is there; free accepts what is not. */
int part_make(struct trainer *t, struct tensor *x, int n, int c, enum value_type type, struct error *e);
int part_alloc(struct trainer *t, struct tensor *x, struct error *e);
void part_free(struct trainer *t, struct tensor *x);

/* Boxes pasted between partners (paste.c): what the network sees, and whose voxels show. Batches have as many
 * labelled patches as others. */
struct paste {
    struct tensor mixed;     /* (n, d, h, w, c) */
    struct tensor weight[2]; /* (n, d, h, w, 1) F32: 1 where the first, the second partner shows */
};
int paste_check(const struct settings *s, const char *who, struct error *e); /* refuses other batches [C03] */
int paste_alloc(struct trainer *t, struct paste *p, int n, struct error *e);
void paste_free(struct trainer *t, struct paste *p);
/* Mixes item i of `firsts` with item (i + shift) % n of `seconds`. */
void paste_mix(struct trainer *t, struct paste *p, const struct tensor *firsts, const struct tensor *seconds,
               int shift);

/* The teacher's weights follow the student's, an average over all phases (draw, not step, counts). */
void part_average_weights(struct trainer *t, const char *teacher, const char *student);
/* ... and its running statistics are the student's. */
void part_average(struct trainer *t, const char *teacher, const char *student);

/* ---- methods with one term beside the loss of labels (semi.c) ---------------------------------- */

/* A V-Net "student", perhaps with an averaged "teacher", that learns in one phase
 *
 *     loss = label loss of the first n_labeled items + w(t) * term of the method
 *
 * gradients = semi_student, passes of the teacher, ask_...() on logits and dlogits, semi_learn. */
struct semi {
    struct loss_scratch *scratch;
    struct tensor logits, dlogits; /* of the student, between semi_student and semi_learn */
    double supervised, ce, dice;   /* the label loss and its parts, of semi_learn */
};
struct semi_shape {
    int student, teacher; /* items of a pass; teacher 0: there is none */
    int dice_background;  /* of the label loss, see loss.h */
    int dice_alone;       /* 1: the label loss is Dice whatever --dice-share says; CE is noted */
    void (*define)(struct builder *b, const struct net_definition *self); /* NULL: V-Net */
};
int semi_begin(struct trainer *t, struct semi *s, const struct semi_shape *shape, struct error *e);
void semi_done(struct semi *s);
/* Methods' checks: refuse batches without unlabelled patches, or with an odd number of them [C03]. */
int semi_check(const struct settings *s, struct error *e);
int semi_check_pairs(const struct settings *s, struct error *e);

double semi_weight(const struct trainer *t); /* w(t) = --consistency * ramp at t->position */
double semi_weight_at(const struct trainer *t, double position);
/* The student's pass over `image`, labelled items first, and the question for its label loss. */
void semi_student(struct trainer *t, struct semi *s, const struct tensor *image);
/* A pass of the teacher: batch statistics and dropout as in training, no gradient. number: of the pass, its
 * own dropout. Returns the logits, which hold until the next pass of that net. */
struct tensor semi_teacher(struct trainer *t, struct net *net, const struct tensor *image, int number);
/* The student's pass over the whole batch as it is tested: running statistics, no dropout. One of
 * its outputs. */
struct tensor semi_tested(struct trainer *t, const char *output);
/* out = in + noise of the teacher's pass `number`. */
void semi_noise(struct trainer *t, const struct tensor *out, const struct tensor *in, int number);
/* Settles everything asked for, sends it back through the student and notes loss, label loss, `name` (the
 * value of the method's term) and its weight. */
void semi_learn(struct trainer *t, struct semi *s, const char *name, const double *term, double weight);
/* The phase's after: the teacher's weights follow the student's; its running statistics stay its own. */
void semi_after(struct trainer *t);

/* ---- methods whose networks predict signed distances besides (twin.c) -------------------------- */

/* semi, on a network with the outputs "logits" and "distance": the loss of labels is
 *
 *     label loss + share * mean (tanh(distance) - sdf(label))^2
 *
 * gradients = twin_student, what the method asks of raw, draw and semi's logits, twin_learn. */
struct twin {
    struct semi semi;
    double share; /* of the distances in the loss of labels */
    struct sdf *maps;
    struct tensor target;    /* (L, d, h, w, classes - 1) distances of the labels */
    struct tensor raw, draw; /* output "distance" of the student, between twin_student and twin_learn */
    double apart;            /* the mean above */
};
/* shape->define NULL: V-Net with two heads. */
int twin_begin(struct trainer *t, struct twin *w, const struct semi_shape *shape, double share,
               struct error *e);
void twin_done(struct trainer *t, struct twin *w);
void twin_student(struct trainer *t, struct twin *w);
void twin_learn(struct trainer *t, struct twin *w, const char *name, const double *term, double weight);

/* ---- methods whose network has several outputs (branches.c) ------------------------------------ */

/* A network "student" with outputs net_logits[0 .. n-1] that learns in one phase
 *
 *     loss = share * sum over outputs of their label loss + w(t) * term between the outputs
 *
 * of the whole batch. The V-Net in it, which makes the first output, is tested.
 * gradients = branches_student, ask_...(), branches_learn. */
struct branches {
    struct loss_scratch *scratch;
    struct loss_branches of; /* all patches, between branches_student and branches_learn */
    double share;
    double loss[NET_BRANCHES], ce[NET_BRANCHES], dice[NET_BRANCHES];
};
struct branches_shape {
    void (*define)(struct builder *b, const struct net_definition *self);
    int n;
    double share, dice_share;         /* of each label loss; of Dice in it */
    int dice_background, dice_linear; /* see loss.h */
};
int branches_begin(struct trainer *t, struct branches *b, const struct branches_shape *shape,
                   struct error *e);
void branches_done(struct branches *b);
void branches_student(struct trainer *t, struct branches *b);
struct loss_branches branches_open(const struct trainer *t, const struct branches *b); /* unlabelled ones */
/* Settles everything asked for, sends it back and notes loss, label loss and its parts (means over the
 * outputs), the term as "consistency" and its weight. */
void branches_learn(struct trainer *t, struct branches *b, const double *term, double weight);

/* ---- methods with a critic (adversary.c) -------------------------------------------------------- */

/* A network "critic" that is shown maps (the student's output) beside images and told which of them are of
 * labelled patches. In the student's turn it is asked to be mistaken; its own turn comes after.
 *
 *     adversary_fool    w * mean cross-entropy of "labelled" over the unlabelled items; critic without
 *                       dropout, its weights get no gradient. Returns the gradient by their maps.
 *     adversary_learn   mean cross-entropy of what is true, over all items; critic with dropout
 *
 * Maps are put into `map` first, those of unlabelled items, or of all. */
struct adversary {
    struct strided *critic;
    struct loss_scratch *scratch; /* of two classes */
    struct tensor map, dmap;      /* (n, d, h, w, channels of the map) */
    struct tensor truth, known;   /* (n, 1, 1, 1, 1) U8: 1 where labelled; 1 everywhere */
};
/* Methods' check: refuses batches without unlabelled patches, and critics that are too wide [C03]. */
int adversary_check(const struct settings *s, struct error *e);
int adversary_begin(struct trainer *t, struct adversary *a, int channels, struct error *e);
void adversary_done(struct trainer *t, struct adversary *a);
struct tensor adversary_fool(struct trainer *t, struct adversary *a, double weight, double *value);
void adversary_learn(struct trainer *t, struct adversary *a);

#endif
