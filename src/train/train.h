/* train.h - THE loop: batch, turns, update, log, validate, checkpoint; and resume from any instant.
 *
 *     prepared cases -> case_store -> sampler -> [ turns -> update -> after ] x steps -> run folder
 *
 * Run folder: run.json (settings, versions, data hashes), metrics.sqlite, log.txt,
 * checkpoint-a/b.safetensors (two generations, written in turn), model.safetensors,
 * best.safetensors (if validated), and what phases publish.
 *
 * Interrupted anywhere, a run continues to the same bits: everything is a function of (settings,
 * data, step) and of what the checkpoint holds. Numbers that are not finite stop a step, not a run
 * [M01, M02].
 */
#ifndef FALX_TRAIN_H
#define FALX_TRAIN_H

#include "data/dataset.h"
#include "prepare/prepare.h"
#include "train/method.h"
#include "train/time_plan.h"
#include "train/validate.h"

struct train_step { /* handed to the listener after every step */
    const char *phase;
    int phase_number;     /* 0-based */
    int64_t step, steps;  /* done in this phase, and of how many */
    int64_t done, total;  /* over all phases */
    double rate, seconds; /* learning rate; since the start of this process */
    const struct note *notes;
    int n_notes;
};

struct train_listener { /* all members may be NULL */
    void *arg;
    /* On resume and after a rollback: so many steps of that phase are done; what was noted of
     * later ones is void, they come again. Phase -1: there was nothing to resume. */
    void (*resumed)(void *arg, int phase_number, int64_t step);
    void (*step)(void *arg, const struct train_step *s);
    void (*validated)(void *arg, const struct train_step *s, const struct validation *v);
    /* A checkpoint is about to be written: numbers of the steps before it will not come again. */
    void (*saving)(void *arg);
    int (*stop)(void *arg); /* 1: checkpoint now and return ERR_STOPPED */
};

/* A run that shall end by a deadline (time_limit.c). */
struct train_time {
    struct time_plan *plan;     /* decisions; NULL: the steps are those of the settings */
    double deadline;            /* by the clock; used if plan->limit > 0 */
    int fill;                   /* 1: as many steps as fit; 0: at most those of the settings */
    double (*clock)(void *arg); /* seconds; NULL: the monotonic clock */
    void *arg;
};

struct train_options {
    const char *run; /* folder; exists, locked by the caller */
    int lock;        /* of that folder: nothing is written once the name leads elsewhere [P07];
                              * 0: not looked at */
    const struct settings *settings;
    const struct case_store *store; /* labelled first; validation cases not among them */
    const struct case_store *val;   /* NULL: none */
    struct device *dev;
    int64_t checkpoint_every;  /* steps; 0 = by time */
    double checkpoint_seconds; /* 300 */
    int resume;
    uint64_t data_hash;   /* of the cases and labels in use; a resume must agree [K05] */
    const char *version;  /* of the program, which a resume must agree on [P22]; may be NULL */
    const char *override; /* keys that a resume may change: "steps,lr"; may be NULL */
    int sampler_threads;
    struct train_time time;
    int dry; /* 1: a trial, which writes no file */
    struct report *report;
    struct train_listener listen;
};

struct train_result {
    int64_t steps; /* updates done in all phases */
    double dice;   /* of the final model on validation cases; NaN without them */
};

int train_run(struct train_result *out, const struct train_options *o, struct error *e);
/* Threads for the sampler: a training on the processor needs its cores, one on a GPU leaves them idle. */
int train_sampler_threads(const struct device *dev);
/* The axes along which training sees scans reversed, too: bit a for axis a. */
int train_mirrors(const struct settings *s);
/* Those that exchange left and right, once scans are turned to RAS; RotFlip may make any axis of the plane
 * the one that was from left to right. */
int train_side_axes(const struct settings *s);
/* Bytes a training with these settings will need at its peak for models, plans and batches; store,
 * ring and the arrays of losses are left out. */
int train_memory(size_t *out, const struct settings *s, struct device *dev, int channels, int classes,
                 struct error *e);

#endif
