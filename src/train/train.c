/* train.c - THE loop.
 *
 *     for every phase:   batches, begin, numbers of the checkpoint (when resuming), then
 *         at the top of every step    decide the steps (time_limit.c) -> validate if due -> checkpoint if due
 *                                     -> stop if asked
 *         the step (step.c)           batch -> turns { gradients -> guard -> update } -> after
 *         end
 *     model.safetensors, a last checkpoint that says "finished"
 *
 * What is due is decided at the top, from the number of steps done, so a run that was killed
 * anywhere comes by the same tops with the same state.
 *
 * Guards. A step whose loss or gradient is not finite is not applied: running statistics and states go
 * back to what they were, the step counts as done. Three in a row, or weights that are not finite at an
 * anchor, lead back to the last anchor with half the learning rate; a third time is the end [M01,
 * M02, M04]. Anchors are checkpoints at fixed steps, eight a phase, so this, too, gives the same
 * bits in a run that was killed in between.
 */
#include "train/train.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/io.h"
#include "base/pool.h"
#include "train/train_int.h"

enum {
    ANCHORS = 8,       /* a phase: at most an eighth of it is done again after a rollback */
    ANCHOR_LEAST = 10, /* steps between two of them */
    BAD_STEPS = 3,     /* in a row until a rollback */
    ROLLBACKS = 2,     /* until the training is given up */
    SAVE_FAILURES = 3  /* in a row until the training is given up [P03] */
};

const struct method *method_find(const char *name)
{
    for (int i = 0; methods[i]; i++)
        if (strcmp(methods[i]->name, name) == 0)
            return methods[i];
    return NULL;
}

/* ---- where the loop stands ------------------------------------------------------------------- */

static int at_anchor(const struct trainer *t)
{
    int64_t every = (t->steps + ANCHORS - 1) / ANCHORS;
    every = every < ANCHOR_LEAST ? ANCHOR_LEAST : every;
    return t->step % every == 0 || t->step == t->steps;
}

static void tell_resumed(const struct trainer *t, int phase, int64_t step)
{
    const struct train_listener *l = &t->own->o->listen;
    if (l->resumed)
        l->resumed(l->arg, phase, step);
}

static int stop_asked(const struct trainer *t)
{
    const struct train_listener *l = &t->own->o->listen;
    return l->stop && l->stop(l->arg);
}

/* ---- checkpoints ----------------------------------------------------------------------------- */

/* A failed write is told and forgotten until it is the third in a row [P03]. */
static int save(struct trainer *t, int is_anchor, struct error *e)
{
    struct train_private *own = t->own;
    own->at.phase = t->phase;
    own->at.step = t->step;
    double begun = time_now(t);
    own->saved = trainer_seconds();
    if (own->o->dry) {
        own->saved_draw = (int64_t)t->draw;
        return 0;
    }
    if (trainer_check_folder(t, e) < 0)
        return -1;
    time_save_plan(t);
    if (own->o->listen.saving)
        own->o->listen.saving(own->o->listen.arg);
    int result = checkpoint_save(&own->files, t, &own->at, &own->facts, is_anchor, e);
    own->pace.save = time_now(t) - begun;
    if (result == 0) {
        own->save_failures = 0;
        own->saved_draw = (int64_t)t->draw;
        return 0;
    }
    if (e->code != ERR_SYSTEM || ++own->save_failures >= SAVE_FAILURES)
        return -1;
    report_line(own->o->report, REPORT_WARNING, NULL, "P03", "checkpoint not written, training goes on: %s",
                e->text);
    return 0;
}

static int save_due(const struct trainer *t)
{
    const struct train_private *own = t->own;
    const struct train_options *o = own->o;
    if (own->saved_draw == (int64_t)t->draw || t->step == t->steps)
        return 0; /* the end of a phase is an anchor */
    if (o->checkpoint_every > 0 && t->step % o->checkpoint_every == 0)
        return 1;
    return o->checkpoint_seconds > 0 && trainer_seconds() - own->saved >= o->checkpoint_seconds;
}

/* ---- going back ------------------------------------------------------------------------------ */

/* From the last anchor of this phase, with half the rate; -1 with `why` as the error if that was
 * done often enough or cannot be done. */
static int rollback(struct trainer *t, const struct error *why, struct error *e)
{
    struct train_private *own = t->own;
    struct counters at;
    struct st_file f = {.n_tensors = 0};
    int64_t rollbacks = own->at.rollbacks;
    int result = -1;
    *e = *why;
    if (rollbacks == ROLLBACKS || own->files.anchor < 0)
        return -1;
    if (checkpoint_open_anchor(&f, &own->files, e) < 0 || checkpoint_counters(&at, &f, e) < 0)
        goto out;
    if (at.phase != t->phase) {
        *e = *why;
        goto out;
    }
    if (checkpoint_load(t, &f, e) < 0)
        goto out;
    report_line(own->o->report, REPORT_WARNING, NULL, why->id,
                "%s; going back to step %" PRId64 " with half the learning rate", why->text, at.step);
    own->at = at;
    own->at.rollbacks = rollbacks + 1;
    own->at.bad_row = 0;
    trainer_zero_grads(t);
    trainer_set_step(t, at.step);
    own->saved_draw = (int64_t)t->draw;
    sampler_seek(own->sampler, (uint64_t)t->step);
    tell_resumed(t, t->phase, t->step);
    result = 0;
out:
    st_free(&f);
    return result;
}

/* ---- validation ------------------------------------------------------------------------------ */

static int validation_due(const struct trainer *t)
{
    const struct train_private *own = t->own;
    const struct train_options *o = own->o;
    if (!o->val || o->val->n_cases == 0 || own->at.validated == (int64_t)t->draw || !trainer_trains(t) ||
        trainer_phase(t)->untested)
        return 0;
    int64_t every = t->set->val_every;
    return every > 0 ? t->step > 0 && (t->step % every == 0 || t->step == t->steps)
                     : t->step == t->steps && t->phase == own->n_phases - 1;
}

static int validate_target(struct trainer *t, struct error *e)
{
    struct train_private *own = t->own;
    const struct train_listener *l = &own->o->listen;
    const struct model *m = &t->models[t->target];
    struct validate_options o = trainer_validation(t);
    struct validation v;
    double begun = time_now(t);
    if (validate(&v, t->dev, m->params, &m->tested, own->o->val, &o, e) < 0)
        return -1;
    own->pace.validation = time_now(t) - begun;
    own->at.validated = (int64_t)t->draw;
    own->at.dice = v.dice;
    struct train_step s = trainer_describe(t, 0.0);
    if (l->validated)
        l->validated(l->arg, &s, &v);
    if (isnan(v.dice) || v.dice <= own->at.best) /* a NaN is never the best; best is NaN at first */
        return 0;
    own->at.best = v.dice;
    return trainer_publish(t, m->name, "best.safetensors", e);
}

/* ---- phases ---------------------------------------------------------------------------------- */

static int stopped(struct trainer *t, struct error *e)
{
    if (t->own->saved_draw != (int64_t)t->draw || t->own->at.validated == (int64_t)t->draw)
        if (save(t, at_anchor(t), e) < 0 || t->own->save_failures > 0)
            return -1;
    return fail(e, ERR_STOPPED, "P11", "stopped after step %" PRId64 " of %s; --resume goes on from here",
                t->step, trainer_phase(t)->name);
}

/* Validation, checkpoint and stop as they are due here. 1: the state was not fit to be saved, and
 * an earlier one has taken its place. */
static int top_of_step(struct trainer *t, struct error *e)
{
    struct error why;
    time_decide(t);
    if (validation_due(t) && validate_target(t, e) < 0)
        return e->code == ERR_STOPPED ? stopped(t, e) : -1;
    int anchor = at_anchor(t) && t->own->saved_draw != (int64_t)t->draw;
    if ((anchor || save_due(t)) && save(t, at_anchor(t), &why) < 0) {
        if (why.code == ERR_NUMERIC)
            return rollback(t, &why, e) < 0 ? -1 : 1;
        *e = why;
        return -1;
    }
    return stop_asked(t) && t->step < t->steps ? stopped(t, e) : 0;
}

static int run_phase(struct trainer *t, struct error *e)
{
    struct error why;
    for (;;) {
        int back = top_of_step(t, e);
        if (back < 0)
            return -1;
        if (back)
            continue;
        if (t->step == t->steps)
            return 0;
        if (trainer_step(t, &why, e) < 0)
            return -1;
        if (t->own->at.bad_row >= BAD_STEPS && rollback(t, &why, e) < 0)
            return -1;
    }
}

/* Tensors of the batch, then whatever the method makes. */
static int begin_models(struct trainer *t, struct error *e)
{
    trainer_set_step(t, t->step);
    trainer_free_states(t);
    memset(t->own->named, 0, sizeof t->own->named);
    if (batches_begin(t, e) < 0 || trainer_phase(t)->begin(t, e) < 0)
        return -1;
    return trainer_settle(t, e);
}

/* Everything a phase needs; from *f if that has tensors, which are then given back. */
static int begin_phase(struct trainer *t, struct st_file *f, struct error *e)
{
    if (t->step > trainer_phase_steps(t, t->phase))
        return fail(e, ERR_BUSY, "K05", "the checkpoint is at step %" PRId64 " of %" PRId64, t->step,
                    trainer_phase_steps(t, t->phase));
    if (begin_models(t, e) < 0 || batches_sample(t, e) < 0)
        return -1;
    if (f->n_tensors == 0)
        return 0;
    if (checkpoint_load(t, f, e) < 0)
        return -1;
    st_free(f);
    t->own->saved_draw = (int64_t)t->draw;
    tell_resumed(t, t->phase, t->step);
    return 0;
}

static int all_phases(struct trainer *t, struct st_file *f, struct error *e)
{
    struct train_private *own = t->own;
    for (; t->phase < own->n_phases; t->phase++, t->step = 0) {
        const struct phase *p = trainer_phase(t);
        if (begin_phase(t, f, e) < 0)
            return -1;
        time_begin_phase(t);
        if (run_phase(t, e) < 0 || (p->end && p->end(t, e) < 0))
            return -1;
        if (t->phase == own->n_phases - 1)
            return 0;
        batches_end(t);
        own->saved_draw = -1; /* the next phase's first step is another state at the same count */
    }
    return 0;
}

/* ---- a run ----------------------------------------------------------------------------------- */

/* A run that starts anew must not be continued, nor be asked for masks, from what an earlier one left. */
static int forget_old(const char *run, struct error *e)
{
    static const char *const names[] = {
        "checkpoint-a.safetensors", "checkpoint-b.safetensors",  "model.safetensors", "best.safetensors",
        "stage1.safetensors",       "stage1-middle.safetensors", TIME_PLAN_FILE};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *path = path_join(e, run, names[i]);
        if (!path)
            return -1;
        if (io_exists(path))
            io->unlink(path);
        mem_free(path);
    }
    return 0;
}

static int check_settings(const struct settings *s, const struct case_store *store, struct error *e)
{
    if (s->steps < 1 || s->labeled_batch < 1 || s->batch < s->labeled_batch)
        return fail(e, ERR_CONFIG, "C03",
                    "steps %" PRId64 ", batch %" PRId64 " with %" PRId64
                    " labelled: expected 1 or more of each",
                    s->steps, s->batch, s->labeled_batch);
    if (!(s->ema_decay >= 0.0 && s->ema_decay <= 1.0))
        return fail(e, ERR_CONFIG, "C03", "ema-decay %g, expected 0 to 1", s->ema_decay);
    if (store->n_classes < 2 || store->n_classes > VALIDATE_CLASSES)
        return fail(e, ERR_DATA, "L04", "%d classes, expected 2 to %d", store->n_classes, VALIDATE_CLASSES);
    return 0;
}

static void gather_facts(struct checkpoint_facts *f, const struct train_options *o)
{
    const struct device *dev = o->dev;
    facts_settings(f, o->settings);
    facts_add(f, "data", "%016" PRIx64, o->data_hash);
    facts_add(f, "classes", "%d", o->store->n_classes);
    facts_add(f, "channels", "%d", o->store->channels);
    facts_add(f, "precision", "%s", precision_name(dev->precision));
    facts_add(f, "device", "%.*s", device_kind_length(dev), dev->describe);
    if (o->version)
        facts_add(f, "version", "%s", o->version);
}

/* 1: *f holds where to go on; 0: from the beginning. */
static int find_start(struct trainer *t, struct st_file *f, struct error *e)
{
    struct train_private *own = t->own;
    const struct train_options *o = own->o;
    own->files = (struct checkpoint_files){.run = o->run, .newest = -1, .anchor = -1};
    if (o->dry)
        return 0;
    if (!o->resume)
        return forget_old(o->run, e);
    int found = checkpoint_open(f, &own->files, o->run, o->report, e);
    if (found < 0)
        return -1;
    if (found == 0) {
        report_line(o->report, REPORT_NOTE, o->run, NULL, "no checkpoint: starting from the beginning");
        tell_resumed(t, -1, 0);
        return forget_old(o->run, e);
    }
    if (checkpoint_same(f, &own->facts, o->override, e) < 0 || checkpoint_counters(&own->at, f, e) < 0)
        return fail_in(e, o->run);
    if (own->at.phase < 0 || own->at.phase >= own->n_phases || own->at.step < 0)
        return fail(e, ERR_BUSY, "K05", "checkpoint: phase %" PRId64 " of %d, step %" PRId64, own->at.phase,
                    own->n_phases, own->at.step);
    t->phase = (int)own->at.phase;
    t->step = own->at.step;
    return 1;
}

static int is_finished(const struct train_private *own, struct error *e)
{
    char *path = path_join(e, own->o->run, "model.safetensors");
    int done = own->at.finished == 1 && path && io_exists(path);
    mem_free(path);
    if (done)
        report_line(own->o->report, REPORT_NOTE, own->o->run, NULL, "this training is finished");
    return done;
}

static int open_trainer(struct trainer *t, const struct train_options *o, struct error *e)
{
    struct train_private *own = t->own;
    own->o = o;
    own->started = own->saved = trainer_seconds();
    own->saved_draw = -1;
    own->at = (struct counters){.validated = -1, .dice = NAN, .best = NAN};
    own->pace = (struct pace){.slowdown = 1.0, .scale = 1.0};
    t->set = o->settings;
    t->dev = o->dev;
    t->store = o->store;
    own->method = method_find(o->settings->method);
    if (!own->method)
        return fail(e, ERR_CONFIG, "C01", "no method is called \"%.40s\"", o->settings->method);
    own->n_phases = method_phases(own->method, o->settings);
    t->method_state = mem_alloc(e, 1, own->method->state_bytes);
    if (!t->method_state || check_settings(t->set, t->store, e) < 0 ||
        (own->method->check && own->method->check(t->set, e) < 0))
        return -1;
    gather_facts(&own->facts, o);
    return 0;
}

static void close_trainer(struct trainer *t)
{
    if (!t)
        return;
    if (t->own && t->method_state && t->own->method->done)
        t->own->method->done(t);
    if (t->own) {
        batches_end(t);
        resident_end(t);
        trainer_free_models(t);
        trainer_free_states(t);
    }
    mem_free(t->method_state);
    mem_free(t->own);
    mem_free(t);
}

/* In a training that is shorter than one stair the consistency weight never grows. */
static void tell_ramp(const struct trainer *t)
{
    const struct settings *s = t->set;
    if (t->own->method->consistency > 0 && s->consistency > 0 && s->ramp == RAMP_STEPS &&
        s->steps <= RAMP_STAIR && t->phase == 0 && t->step == 0)
        report_line(t->own->o->report, REPORT_NOTE, NULL, NULL,
                    "%" PRId64 " steps, ramp-up interval is %d: the consistency weight stays at %.2g of "
                    "--consistency; use --rampup continuous",
                    s->steps, RAMP_STAIR, ramp_weight(1.0, 0, (double)s->steps, 0));
}

/* The model first: a run is finished when its last checkpoint says so. */
static int finish(struct trainer *t, struct error *e)
{
    struct train_private *own = t->own;
    if (trainer_publish(t, t->models[t->target].name, "model.safetensors", e) < 0)
        return -1;
    own->at.finished = 1;
    own->save_failures = 0;
    return save(t, 1, e);
}

int train_run(struct train_result *out, const struct train_options *o, struct error *e)
{
    struct st_file f = {.n_tensors = 0};
    struct trainer *t = mem_alloc(e, 1, sizeof *t);
    struct float_mode callers;
    int result = -1;
    float_mode_begin(&callers);
    if (!t || !(t->own = mem_alloc(e, 1, sizeof *t->own)))
        goto out;
    if (open_trainer(t, o, e) < 0 || (!o->dry && io_sweep(o->run, e) < 0) || find_start(t, &f, e) < 0)
        goto out;
    if (o->dry || !is_finished(t->own, e)) {
        t->own->at.finished = 0;
        tell_ramp(t);
        if (resident_begin(t, e) < 0 || all_phases(t, &f, e) < 0 || finish(t, e) < 0)
            goto out;
    }
    *out = (struct train_result){.steps = t->own->at.updates, .dice = t->own->at.dice};
    result = 0;
out:
    st_free(&f);
    close_trainer(t);
    float_mode_end(&callers);
    return result;
}

/* ---- before a run ---------------------------------------------------------------------------- */

/* Plans every phase for real and counts: memory that is not touched costs nothing. */
int train_memory(size_t *out, const struct settings *s, struct device *dev, int channels, int classes,
                 struct error *e)
{
    const struct case_store store = {.channels = channels, .n_classes = classes};
    const struct train_options o = {.settings = s, .store = &store, .dev = dev};
    struct trainer *t = mem_alloc(e, 1, sizeof *t);
    size_t before = dev->bytes;
    int result = -1;
    *out = 0;
    if (!t || !(t->own = mem_alloc(e, 1, sizeof *t->own)))
        goto out;
    t->own->counts = 1;
    if (open_trainer(t, &o, e) < 0)
        goto out;
    for (; t->phase < t->own->n_phases; t->phase++) {
        if (begin_models(t, e) < 0)
            goto out;
        *out = dev->bytes - before > *out ? dev->bytes - before : *out;
        batches_end(t);
    }
    result = 0;
out:
    close_trainer(t);
    return result;
}
