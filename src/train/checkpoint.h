/* checkpoint.h - the whole state of a training in one safetensors file, and two such files in turn.
 *
 *     checkpoint-a, checkpoint-b .safetensors
 *         model.NAME/...            weights, running statistics, batches seen (model_file.h)
 *         optim.NAME/moment.0, .1   moments, one flat tensor each
 *         state/NAME                arrays of the method, as bytes
 *         metadata   at.*           where the loop stands: struct counters, serial number, anchor
 *                    run.*          what the run was started with: struct checkpoint_facts
 *
 * Saving never touches the file that holds the newest anchor. An anchor is a checkpoint made at a
 * step that follows from the settings alone (train.c), and the state a diverged training goes back
 * to: so going back gives the same bits however often the run was killed and whenever else it
 * saved.
 *
 *     file a   anchor 0 |          | anchor 20 |            ...
 *     file b            | 7, 10    |           | 25, 31     ...   (anchor 10; 7 by the clock)
 *
 * Reading takes the file with the higher serial number; if that one is damaged, the other, with
 * one line of warning [K01, K02, K08]; if both are, nothing is overwritten [K03].
 */
#ifndef FALX_CHECKPOINT_H
#define FALX_CHECKPOINT_H

#include "net/safetensors.h"
#include "train/method.h"

/* Where the loop stands, besides models and states. */
struct counters {
    int64_t phase, step; /* of the step to be done next; step = all of them: the phase's end */
    int64_t updates;     /* steps applied, in all phases */
    int64_t validated;   /* steps done (all phases) at the last validation; -1: none yet */
    int64_t bad_row;     /* steps in a row that were not applied */
    int64_t rollbacks;   /* each halved the learning rate */
    int64_t finished;    /* 1: model.safetensors is written */
    double dice, best;   /* of the last validation, and the highest; NaN: none */
};

/* What a resume must agree on: settings, data, precision, processor level, program version. */
enum { FACTS_MAX = 96 };
struct checkpoint_facts {
    struct {
        char key[24], value[72];
    } fact[FACTS_MAX]; /* key as stored: "run.lr" */
    int n;
};
/* key as the user knows it; a double is given with all its digits. */
void facts_add(struct checkpoint_facts *f, const char *key, const char *fmt, ...) PRINTF(3, 4);
void facts_settings(struct checkpoint_facts *f, const struct settings *s);
/* What a file that does not know a setting, because it is older, means by that; NULL if it should know. */
const char *facts_before(const char *key);

struct checkpoint_files {
    const char *run;    /* folder, borrowed */
    int64_t serial;     /* of the newest file; 0: none */
    int newest, anchor; /* 0 = a, 1 = b, -1 = none */
};

/* The newest good file into *out (st_free). 1, or 0 if there is none, or -1. */
int checkpoint_open(struct st_file *out, struct checkpoint_files *files, const char *run, struct report *r,
                    struct error *e);
/* The newest anchor. -1 if there is none. */
int checkpoint_open_anchor(struct st_file *out, const struct checkpoint_files *files, struct error *e);
int checkpoint_counters(struct counters *out, const struct st_file *f, struct error *e);
/* 1: --override, a list with commas, names this setting. NULL names none. */
int override_has(const char *list, const char *key);
/* -1 naming the first key that differs [K05]; keys in `override` ("lr,steps"; may be NULL) may. */
int checkpoint_same(const struct st_file *f, const struct checkpoint_facts *now, const char *override,
                    struct error *e);
/* Puts the numbers into models, moments and states, which must be those of the file. */
int checkpoint_load(struct trainer *t, const struct st_file *f, struct error *e);
/* Writes the next file. Values that are not finite are never written: ERR_NUMERIC [M04]. A write
 * that fails is tried once more with a new file [P05]; then ERR_SYSTEM, files as before. */
int checkpoint_save(struct checkpoint_files *files, struct trainer *t, const struct counters *at,
                    const struct checkpoint_facts *facts, int is_anchor, struct error *e);

#endif
