/* settings.h - every number of a training run, resolved: presets, files and flags are behind us.
 *
 * The command line fills it (cli/options.c has one row per member), run.json records it, a resume
 * compares it. Switches of AUA have the names of the published comparison between its paper and its
 * released code; which of the two a preset follows is told in docs/methods.
 */
#ifndef FALX_SETTINGS_H
#define FALX_SETTINGS_H

#include "base/base.h"

/* Choices, and their words on the command line and in files, in the same order. */
enum ged_metric { GED_CLASS_MEAN, GED_JOINT };
#define GED_METRIC_WORDS "class-mean|joint"
enum nb_rule { NB_CENTRED, NB_OFFICIAL, NB_BG_RING };
#define NB_RULE_WORDS "centred|official|bg-ring"
enum bcl_layout { BCL_CORRECT, BCL_OFFICIAL };
#define BCL_LAYOUT_WORDS "correct|official"
enum bcl_reduce { BCL_MEAN, BCL_SUM };
#define BCL_REDUCE_WORDS "mean|sum"
enum loss_reduce { REDUCE_MEAN, REDUCE_SUM };
#define LOSS_REDUCE_WORDS "mean|sum"
enum pcl_form { PCL_RELEASED, PCL_PAPER };
#define PCL_FORM_WORDS "released|paper"
enum ramp_kind { RAMP_STEPS, RAMP_CONTINUOUS };
#define RAMP_WORDS "steps|continuous"
enum cov_mask { COV_MASK_AUTO, COV_MASK_NONE, COV_MASK_INSIDE, COV_MASK_FIELD };
#define COV_MASK_WORDS "auto|none|inside|field"
enum proto_ckpt { PROTO_LAST, PROTO_MIDDLE };
#define PROTO_CKPT_WORDS "last|middle"
enum pcl_cov { PCL_DIAGONAL, PCL_FULL };
#define PCL_COV_WORDS "diagonal|full"
enum stage2_init { STAGE2_FRESH, STAGE2_STAGE1 };
#define STAGE2_INIT_WORDS "fresh|stage1"
enum augment_kind { AUGMENT_PAPER, AUGMENT_CROP, AUGMENT_FULL, AUGMENT_MILD, AUGMENT_MIRROR };
#define AUGMENT_WORDS "paper|crop|full|mild|mirror"
enum sides_kind { SIDES_EXCHANGE, SIDES_KEEP };
#define SIDES_WORDS "exchange|keep"
#define DROPOUT_WORDS "both|bottleneck|none" /* enum net_dropout_at */
#define OPTIMIZER_WORDS "sgd|adam"           /* enum optim_kind */
#define SCHEDULE_WORDS "step|poly|constant"  /* enum optim_schedule */
#define SWITCH_WORDS "false|true"

struct settings {
    char *method;
    int64_t seed;
    int64_t steps;    /* of each training phase */
    int64_t patch[3]; /* d, h, w */
    int64_t batch, labeled_batch;
    int64_t filters;
    int dropout;       /* enum net_dropout_at */
    int augment;       /* enum augment_kind */
    int sides;         /* enum sides_kind: of left and right classes in mirrored patches */
    double focus;      /* share of labelled patches that is cut around a class: 0 */
    double dice_share; /* of Dice in the loss of labels; the rest is cross-entropy: 0.5 */

    int optimizer, schedule; /* enum optim_kind, enum optim_schedule */
    double lr, momentum, weight_decay;
    double clip; /* gradient norm; 0 = no clipping */
    double ema_decay;

    int64_t val_every; /* steps between validations; 0 = only at the end */

    /* windows of validation and prediction; no training step depends on them */
    int64_t stride[3]; /* voxels between windows; 0 = half of the patch */
    int window_mode;   /* enum window_weight */

    /* mean teacher family and AUA */
    double consistency;           /* w_max, lambda_g of aua; the published ones are in struct method */
    double teacher_noise;         /* 0.1, clipped at twice that */
    int ramp;                     /* enum ramp_kind */
    int64_t rampup_length;        /* steps until consistency has its full weight; 0 = those of the phase */
    int sup_dice;                 /* 1: supervised term is the mean of MC likelihood and Dice */
    int64_t ssn_rank, mc_samples; /* 8, 6 (even: antithetic pairs) */
    int cov_mask, ged_metric;
    int mc_reduce, ged_reduce; /* enum loss_reduce: over voxels; over pairs of samples */
    int head_norm, nb_rule, bcl_layout, bcl_reduce;
    int64_t bcl_cap; /* boundary points a volume: 9000 */
    double lambda_c; /* weight of the boundary-aware contrastive term: 0.09; 0 = off */
    double bcl_tau;  /* 0.07 */
    int proto_ckpt, proto_update;
    double lambda_r, pcl_tau; /* weight of the prototype-aware term: 0.1; 100 */
    int pcl_ignore_bg, pcl_cov, pcl_form;
    double pseudo_weight;    /* of the pseudo-labelled part of the loss: 1 */
    double pseudo_threshold; /* voxels whose label is less probable than this are left out: 0 */
    int stage2_init;
    int stage2_cov;      /* 1: covariance heads are trained in stage 2 too */
    double stage2_share; /* steps of stage 2 as a share of those of stage 1: 1 */
    int stage2_paste;    /* 1: stage 2 pastes boxes between labelled and unlabelled patches */
    int64_t stages;      /* 1: stop after stage 1; 2 */

    /* copy-paste */
    double paste_warmup; /* steps with labelled scans alone, as a share of `steps`: 0.25 */
    double paste_size;   /* edge of the box as a share of the patch's: 2/3 */
    double paste_weight; /* of the pasted pseudo-labelled part: 0.5 */
};

#endif
