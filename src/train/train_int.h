/* train_int.h - what the files of the loop share; methods do not include it.
 *
 *     train.c     runs, phases, rollbacks     step.c         one step and its guards
 *     trainer.c   what methods call           batches.c      sampler -> device
 *     validate.c  whole volumes               resident.c     cases on the device
 *     time_limit.c   steps that fit the time
 *     checkpoint.c   files
 */
#ifndef FALX_TRAIN_INT_H
#define FALX_TRAIN_INT_H

#include "train/checkpoint.h"
#include "train/train.h"

/* A batch on the device. */
struct staged {
    struct tensor image, label, mask; /* data NULL: none */
    uint8_t *bytes;                   /* (n, d, h, w) host: labels on their way */
    uint64_t step;                    /* of the sampler */
    int full;                         /* filled ahead, not yet used */
};

/* What the rest of the run takes, for time_limit.c. */
struct pace {
    double seconds, steps;   /* of the last steps of this phase, older ones with less weight */
    double step;             /* seconds of a step of this phase, 0: not known */
    double slowdown;         /* of measured steps to those of the trial */
    double scale;            /* steps made for one nominal step */
    double checked;          /* when the plan was looked at last */
    double validation, save; /* seconds of one */
    int warm;                /* 1: the first step of this phase is done, the slowest as a rule */
    int n_reported;          /* plans reported */
};

struct train_private {
    const struct train_options *o;
    const struct method *method;
    int n_phases;       /* that the settings ask for */
    int counts;         /* 1: only memory is asked for, and stays untouched */
    struct counters at; /* phase and step are those of struct trainer, set when saving */
    struct checkpoint_facts facts;
    struct checkpoint_files files;
    int save_failures;     /* in a row [P03] */
    double started, saved; /* seconds of the monotonic clock: this process, last checkpoint */
    int64_t saved_draw;    /* steps done (all phases) at that checkpoint; -1: none */
    struct pace pace;

    struct resident *resident;    /* the cases in the memory of the device; NULL: it has none or no room */
    int patch[3];                 /* of this phase's batches */
    int cut;                      /* 1: this phase cuts its patches out of them */
    struct sampler *sampler;      /* of this phase */
    struct staged staged[2];      /* the batch of this step and, where the device copies beside its work,
                                      * the next one */
    int now;                      /* which of the two is this step's */
    int named[TRAIN_MODELS];      /* by this phase's begin */
    float *buffers[TRAIN_MODELS]; /* running statistics before the step, device */
    int64_t batches[TRAIN_MODELS];
};

/* step.c: where the loop stands ... */
const struct phase *trainer_phase(const struct trainer *t);
int64_t trainer_phase_steps(const struct trainer *t, int phase);
void trainer_set_step(struct trainer *t, int64_t step); /* steps, position and draw, too */
int phase_trains(const struct phase *p);                /* 1: it updates a model */
int trainer_trains(const struct trainer *t);            /* 1: this phase updates a model */
struct train_step trainer_describe(const struct trainer *t, double rate);
double trainer_seconds(void); /* of the monotonic clock */
struct validate_options trainer_validation(const struct trainer *t);
/* time_limit.c, all without effect if there is no time limit: */
void time_begin_phase(struct trainer *t);
double time_now(const struct trainer *t);
void time_step_done(struct trainer *t, double seconds);
void time_decide(struct trainer *t);          /* how many steps fit, if it is time to */
void time_save_plan(const struct trainer *t); /* with the time used by now */
/* ... and the next step. 0 also for one that was not applied; *why then has a code. */
int trainer_step(struct trainer *t, struct error *why, struct error *e);

/* trainer.c */
int trainer_check_folder(const struct trainer *t, struct error *e); /* before anything is written there */
void trainer_free_models(struct trainer *t);
void trainer_free_states(struct trainer *t);
/* After begin: models it did not name go; the others get room for keeping their statistics. */
int trainer_settle(struct trainer *t, struct error *e);
/* Running statistics and states: as they are now, for a step that is not applied to be undone. */
void trainer_keep(struct trainer *t);
void trainer_restore(struct trainer *t);
/* Gradients of all models zero, nothing touched; costs nothing if they are already. */
void trainer_zero_grads(struct trainer *t);
/* The first parameter whose gradient is not finite; NULL: none. */
const char *trainer_bad_gradient(struct trainer *t, const struct model *m);

/* resident.c: the cases on the device, which cuts the patches itself. */
int resident_begin(struct trainer *t, struct error *e);
void resident_fill(struct trainer *t, const struct batch *b); /* image, label and mask from its draws */
void resident_end(struct trainer *t);

/* batches.c: tensors of the phase at hand, then the sampler, then one batch after another. */
int batches_begin(struct trainer *t, struct error *e);
int batches_sample(struct trainer *t, struct error *e);
void batches_next(struct trainer *t);
void batches_ahead(struct trainer *t); /* begins to bring the next one, if the device can do that aside */
void batches_end(struct trainer *t);   /* zeroed ones are fine */

#endif
