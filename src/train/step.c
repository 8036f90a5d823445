/* step.c - where the loop stands, and one step of it: batch, turns, guard, update.
 *
 *     keep statistics, states -> turns { zero, gradients, guard, clip, update } -> after -> listener
 *
 * The batch of the next step is brought to the device while this one's gradients are being made, before the
 * guard waits for them.
 *
 * A turn whose loss or gradient is not finite ends the step: statistics and states go back to what they
 * were, gradients are thrown away, nothing is averaged [M01, M02, M10].
 */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "train/train_int.h"

double trainer_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double trainer_clock(void *trainer)
{
    return time_now(trainer);
}

const struct phase *trainer_phase(const struct trainer *t)
{
    return &t->own->method->phases[t->phase];
}

int64_t phase_steps(const struct phase *p, const struct settings *s)
{
    double share = p->share;
    if (p->share_setting)
        share *= *(const double *)((const char *)s + p->share_setting);
    /* the least bit of a share like 0.1 must not cost a step */
    return (int64_t)ceil(share * (double)s->steps - 1e-6);
}

int method_phases(const struct method *m, const struct settings *s)
{
    int n = 0;
    while (m->phases[n].name && (s->stages == 0 || m->phases[n].stage <= s->stages))
        n++;
    return n;
}

static int64_t nominal_steps(const struct trainer *t, int phase)
{
    return phase_steps(&t->own->method->phases[phase], t->set);
}

/* Of a later phase whose time is limited: as many as the present pace makes likely. */
int64_t trainer_phase_steps(const struct trainer *t, int phase)
{
    const struct time_plan *plan = t->own->o->time.plan;
    double scale = plan && plan->limit > 0 && phase > t->phase ? t->own->pace.scale : 1.0;
    return time_plan_steps(plan, phase, (int64_t)ceil(scale * (double)nominal_steps(t, phase)));
}

/* Of the phases before it. */
static int64_t steps_before(const struct trainer *t, int phase)
{
    int64_t sum = 0;
    for (int p = 0; p < phase; p++)
        sum += trainer_phase_steps(t, p);
    return sum;
}

void trainer_set_step(struct trainer *t, int64_t step)
{
    t->step = step;
    t->nominal = nominal_steps(t, t->phase);
    struct time_place at = time_plan_place(t->own->o->time.plan, t->phase, step, t->nominal);
    t->steps = at.steps;
    t->position = at.position;
    t->next = at.next;
    t->draw = (uint64_t)(steps_before(t, t->phase) + step);
}

int trainer_trains(const struct trainer *t)
{
    return phase_trains(trainer_phase(t));
}

int phase_trains(const struct phase *p)
{
    const struct turn *turn = p->turns;
    while (turn->gradients && !turn->model)
        turn++;
    return turn->gradients != NULL;
}

struct train_step trainer_describe(const struct trainer *t, double rate)
{
    struct train_private *own = t->own;
    struct train_step s = {.phase = trainer_phase(t)->name,
                           .phase_number = t->phase,
                           .step = t->step,
                           .steps = t->steps,
                           .done = (int64_t)t->draw,
                           .total = steps_before(t, own->n_phases),
                           .rate = rate,
                           .seconds = trainer_seconds() - own->started,
                           .notes = t->notes,
                           .n_notes = t->n_notes};
    return s;
}

struct validate_options trainer_validation(const struct trainer *t)
{
    const struct train_options *o = t->own->o;
    const int64_t *p = t->set->patch, *stride = t->set->stride;
    return (struct validate_options){.patch = {(int)p[0], (int)p[1], (int)p[2]},
                                     .stride = {(int)stride[0], (int)stride[1], (int)stride[2]},
                                     .weight = (enum window_weight)t->set->window_mode,
                                     .stop = o->listen.stop,
                                     .arg = o->listen.arg,
                                     .clock = trainer_clock,
                                     .clock_arg = (void *)t};
}

/* ---- one step -------------------------------------------------------------------------------- */

static double noted(const struct trainer *t, const char *name)
{
    for (int i = 0; i < t->n_notes; i++)
        if (strcmp(t->notes[i].name, name) == 0)
            return t->notes[i].value;
    return 0.0;
}

/* The first noted number that is not finite, "loss" last: it names the term. */
static const char *bad_term(const struct trainer *t)
{
    const char *bad = "loss";
    for (int i = t->n_notes - 1; i >= 0; i--)
        if (!isfinite(t->notes[i].value) && strcmp(t->notes[i].name, "loss") != 0)
            bad = t->notes[i].name;
    return bad;
}

/* 0 if the turn may be applied, with the norm of its gradient; else -1 and why. */
static int guard(struct trainer *t, struct model *m, double *norm, struct error *why)
{
    long long step = (long long)t->step + 1;
    const char *phase = trainer_phase(t)->name;
    *norm = m ? optim_grad_norm(m->params) : 0.0;
    if (isfinite(noted(t, "loss")) && isfinite(*norm))
        return 0;
    const char *tensor = m ? trainer_bad_gradient(t, m) : NULL;
    if (isfinite(noted(t, "loss")))
        return fail(why, ERR_NUMERIC, "M02", "%s step %lld: the gradient of %s is not finite", phase, step,
                    tensor ? tensor : "all weights together");
    return fail(why, ERR_NUMERIC, "M01", "%s step %lld: %s is not finite, first bad gradient: %s", phase,
                step, bad_term(t), tensor ? tensor : "none");
}

/* The update of a turn. Rate and norm of the step are those of its first; another's norm has a name. */
static void update(struct trainer *t, struct model *m, double norm, double *rate)
{
    char name[sizeof t->notes[0].name] = "gradient";
    double own = ldexp(optim_rate(&m->optim->o, t->position, (double)t->nominal), -(int)t->own->at.rollbacks);
    optim_step(m->optim, own, optim_clip(norm, m->optim->o.clip));
    if (*rate > 0)
        snprintf(name, sizeof name, "%.12s_gradient", m->name);
    else
        *rate = own;
    note(t, name, norm);
}

/* All turns, or those before the first bad one. */
static int turns(struct trainer *t, double *rate, struct error *why)
{
    for (const struct turn *turn = trainer_phase(t)->turns; turn->gradients; turn++) {
        struct model *m = turn->model ? trainer_find(t, turn->model) : NULL;
        double norm;
        trainer_zero_grads(t);
        turn->gradients(t);
        batches_ahead(t);
        if (guard(t, m, &norm, why) < 0)
            return -1;
        if (m)
            update(t, m, norm, rate);
    }
    return 0;
}

int trainer_step(struct trainer *t, struct error *why, struct error *e)
{
    struct train_private *own = t->own;
    const struct train_listener *l = &own->o->listen;
    double rate = 0.0, begun = time_now(t);
    *why = (struct error){.code = ERR_NONE};
    t->n_notes = 0;
    batches_next(t);
    trainer_keep(t);
    int good = turns(t, &rate, why) == 0;
    if (good) {
        if (trainer_phase(t)->after)
            trainer_phase(t)->after(t);
        own->at.bad_row = 0;
        own->at.updates += trainer_trains(t);
    } else {
        trainer_restore(t);
        trainer_zero_grads(t);
        own->at.bad_row++;
        report_line(own->o->report, REPORT_WARNING, NULL, why->id, "%s; step %s", why->text,
                    rate > 0 ? "applied up to this turn" : "not applied");
    }
    if (device_check(t->dev, e) < 0)
        return -1;
    trainer_set_step(t, t->step + 1);
    struct train_step s = trainer_describe(t, rate);
    if (l->step)
        l->step(l->arg, &s);
    time_step_done(t, time_now(t) - begun);
    return 0;
}
