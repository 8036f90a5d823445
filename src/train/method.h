/* method.h - what a method is: a list of phases, each a list of turns. The loop (train.c) owns the rest:
 * batches, learning rate, zeroing, clipping, updates, guards, logging, validation, checkpoints, signals.
 *
 *     method = phases;  phase = begin, per step { turn: gradients -> update }..., after, end
 *
 * A turn's function runs forward passes and losses, leaves gradients in the params of one model and notes
 * numbers by name; the loop then updates that model. Two turns a step are an adversarial pair, three
 * phases are AUA. Everything a phase carries from step to step is either a model (weights, moments) or a
 * registered state array, and so is in every checkpoint, and as it was after a step that is not applied,
 * without a word from the method.
 */
#ifndef FALX_METHOD_H
#define FALX_METHOD_H

#include "net/net.h"
#include "sample/sampler.h"
#include "train/optim.h"
#include "train/settings.h"

enum { TRAIN_MODELS = 8, TRAIN_NOTES = 24, TRAIN_STATES = 8 };

/* A network in training: weights, the plan for the batch at hand, perhaps an optimiser. */
struct model {
    char name[16]; /* "student", "teacher", "labeller", "stage2" */
    struct net_definition def;
    struct net_definition tested; /* what is validated and published of it; def, unless begin says less */
    struct params *params;
    struct net *net;     /* planned for the items this model sees a step; NULL if it is not run */
    struct optim *optim; /* NULL: never updated by the loop */
};

struct note {
    char name[24]; /* "loss", "supervised", "consistency", "bcl" */
    double value;
};

struct state_array {
    char name[24];
    void *data; /* host memory of the method */
    size_t bytes;
    void *kept; /* of the loop: as it was before the step */
};

struct trainer {
    const struct settings *set;
    struct device *dev;
    const struct case_store *store;

    /* this step */
    int phase;           /* index into method->phases */
    int64_t step, steps; /* 0-based within the phase, and how many it has */
    int64_t nominal;     /* steps that --steps gives the phase: the length of its schedule */
    /* in the schedule, before and after this step: step, step + 1 without a time limit */
    double position, next;
    uint64_t draw;              /* step counted over all phases: what random numbers are drawn from */
    const struct batch *batch;  /* host */
    struct tensor image;        /* (n, d, h, w, channels) F32, device */
    struct tensor label;        /* (n, d, h, w, 1) U8, device; 0 in slots without label */
    const uint8_t *label_host;  /* the same bytes, host; only where the phase asks for them */
    struct tensor mask;         /* (n, d, h, w, 1) U8, device; data NULL if there are none */
    int n_labeled, n_unlabeled; /* slots, labelled first */

    struct model models[TRAIN_MODELS];
    int n_models;
    struct note notes[TRAIN_NOTES];
    int n_notes;
    struct state_array states[TRAIN_STATES];
    int n_states;
    int target;                /* model that validation and model.safetensors take, set by begin */
    void *method_state;        /* of method->state_bytes, zeroed at start */
    struct train_private *own; /* of the loop */
};

struct turn {
    void (*gradients)(struct trainer *t);
    const char *model; /* whose weights are updated afterwards; NULL: none (a pass) */
};

/* Batches a phase wants; zeroed: the configured composition. */
struct phase_batch {
    int labeled_only; /* 1: the unlabelled slots are left out */
    int plain;        /* 1: crops only, no other augmentation */
    int host_labels;  /* 1: label_host is looked at */
    int views;        /* enum phase_views; then there are no labelled slots */
};

/* Pairs of views of one crop, side by side, of all cases.
 *   PIECES   thin crops, from each of PHASE_PIECES parts of a case along the last axis: as it is, then a part
 *            of it made larger in another light; 2 cases, or 4, 6, ... with --batch 8, 12, ...
 *   LIGHTS   patches in two lights, half as many as --batch says */
enum phase_views { PHASE_NO_VIEWS, PHASE_VIEWS_PIECES, PHASE_VIEWS_LIGHTS };
enum { PHASE_PIECES = 4 };

struct phase {
    const char *name;     /* "stage1" */
    double share;         /* steps = share * --steps, rounded up (prototypes: 0.5) */
    size_t share_setting; /* times this number of the settings, by its offset; 0: none */
    int untested;         /* 1: what it trains cannot segment yet, so it is not validated */
    int stage;            /* left out, with all after it, if settings.stages is smaller */
    struct phase_batch batch;
    /* Makes models and registers state; called when the phase starts and again on resume, before the
     * checkpoint's numbers are put in. On resume there are no models of earlier phases, so it names every
     * model and state the phase needs; a model it does not name is dropped afterwards. */
    int (*begin)(struct trainer *t, struct error *e);
    struct turn turns[3];             /* ends at gradients == NULL */
    void (*after)(struct trainer *t); /* EMA, estimators; only after a finite step; may be NULL */
    int (*end)(struct trainer *t, struct error *e); /* may be NULL */
};

int64_t phase_steps(const struct phase *p, const struct settings *s);

struct method {
    const char *name, *paper; /* "aua", "Wu, Li, Cheng: arXiv 2111.10989" */
    double consistency;       /* what --consistency auto stands for: its published full weight */
    const char *published;    /* the other settings of its authors, as a config file: --preset published */
    int (*check)(const struct settings *s, struct error *e); /* refuses what no data can make good, such as
                                    * batches of the wrong kind; may be NULL */
    size_t state_bytes;
    void (*done)(struct trainer *t); /* frees what begin made besides models; also after a failed
                                      * begin, so it accepts what is not there; may be NULL */
    struct phase phases[4];          /* ends at name == NULL */
};
extern const struct method *const methods[]; /* ends with NULL */
const struct method *method_find(const char *name);
int method_phases(const struct method *m, const struct settings *s); /* how many of its phases are run */

/* ---- what begin() calls ------------------------------------------------------------------------ */
/* A new model with fresh weights from (seed, name), planned for n items of the patch; n = 0:
 * no plan. with_optim: updated by turns. Returns NULL with *e set on failure. A model of that name keeps its
 * weights and gets this plan if it has none. */
struct model *trainer_model(struct trainer *t, const char *name, const struct net_definition *def,
                            int n_items, enum net_use use, int with_optim, struct error *e);
struct model *trainer_find(struct trainer *t, const char *name);
/* The weights and statistics of another model of the same definition. */
void trainer_copy(struct trainer *t, struct model *to, const struct model *from);
/* An optimiser of its own for a model that was made without one; after each trainer_model(). */
int trainer_optim(struct trainer *t, struct model *m, const struct optim_options *o, struct error *e);
/* Frees a model's plan (its weights stay), or the whole model, when a phase no longer needs it. */
void trainer_drop_plan(struct trainer *t, const char *name);
void trainer_drop_model(struct trainer *t, const char *name);
int trainer_state(struct trainer *t, const char *name, void *data, size_t bytes, struct error *e);
/* Writes RUN/file with this model's weights, atomically. */
int trainer_publish(struct trainer *t, const char *model, const char *file, struct error *e);

/* ---- what turns call ----------------------------------------------------------------------------- */
void note(struct trainer *t, const char *name, double value); /* "loss" is what guards watch */

#endif
