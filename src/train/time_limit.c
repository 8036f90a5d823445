/* time_limit.c - decides how many steps fit the time that is left.
 *
 *     time left = deadline - 2 % - now - validations, checkpoints and model.safetensors to come
 *     scale     = time left / seconds of the rest of the schedule, all phases, at one step a nominal step
 *     steps     = those done + scale * nominal steps left in this phase
 *
 * A step of this phase takes what the last ones took, one of a later phase as much longer as in the trial.
 * The plan is looked at when a phase begins, when its steps are first measured, and each fiftieth of the
 * time; it is changed where it is off by one in a hundred. All decisions are on disk before they take
 * effect (time_plan.h), unless the write fails [P03]. Steps that a rollback repeats may exceed the limit.
 */
#include <inttypes.h>
#include <math.h>

#include "train/train_int.h"

enum { CHECKS = 50, MEMORY = 20, ANCHORS_A_PHASE = 9, STEPS_AN_ANCHOR = 10 };
static const double MARGIN = 0.02, PROBE = 0.01; /* of the limit */
static const double TOLERANCE = 0.01;            /* of the steps left */

static struct time_plan *limited(const struct trainer *t)
{
    struct time_plan *p = t->own->o->time.plan;
    return p && p->limit > 0 ? p : NULL;
}

double time_now(const struct trainer *t)
{
    const struct train_time *time = &t->own->o->time;
    return time->clock ? time->clock(time->arg) : trainer_seconds();
}

/* ---- what a step takes ----------------------------------------------------------------------- */

void time_begin_phase(struct trainer *t)
{
    const struct time_plan *plan = limited(t);
    struct pace *p = &t->own->pace;
    if (!plan)
        return;
    if (plan->phase_seconds[t->phase] > 0)
        p->step = plan->phase_seconds[t->phase] * p->slowdown;
    p->seconds = p->steps = 0.0;
    p->warm = 0;
}

void time_step_done(struct trainer *t, double seconds)
{
    const struct time_plan *plan = limited(t);
    struct pace *p = &t->own->pace;
    if (!plan)
        return;
    if (p->warm) {
        double keep = exp(-seconds * MEMORY / plan->limit);
        p->seconds = p->seconds * keep + seconds;
        p->steps = p->steps * keep + 1.0;
        p->step = p->seconds / p->steps;
        if (plan->phase_seconds[t->phase] > 0)
            p->slowdown = p->step / plan->phase_seconds[t->phase];
    } else if (p->step <= 0 || seconds < p->step) {
        p->step = seconds; /* later ones are no slower */
    }
    p->warm = 1;
}

static double step_seconds(const struct trainer *t, int phase)
{
    const struct pace *p = &t->own->pace;
    const struct train_options *o = t->own->o;
    double trial = o->time.plan->phase_seconds[phase];
    double s = phase != t->phase && trial > 0 ? trial * p->slowdown : p->step;
    const struct phase *ph = &t->own->method->phases[phase];
    if (o->val && t->set->val_every > 0 && !ph->untested && phase_trains(ph))
        s += p->validation / (double)t->set->val_every;
    if (o->checkpoint_every > 0)
        s += p->save / (double)o->checkpoint_every;
    return s;
}

/* ---- what is left ---------------------------------------------------------------------------- */

/* Of the schedule from here on, at one step a nominal step. */
static double schedule_seconds(const struct trainer *t)
{
    double sum = ((double)t->nominal - t->position) * step_seconds(t, t->phase);
    for (int q = t->phase + 1; q < t->own->n_phases; q++)
        sum += (double)phase_steps(&t->own->method->phases[q], t->set) * step_seconds(t, q);
    return sum;
}

/* All but steps: checkpoints at anchors, the last checkpoint and model.safetensors, the last validation. */
static double other_seconds(const struct trainer *t)
{
    const struct pace *p = &t->own->pace;
    double saves = 2.0;
    for (int q = t->phase; q < t->own->n_phases; q++) {
        int64_t steps = q == t->phase ? t->steps - t->step : trainer_phase_steps(t, q);
        saves += fmin(ANCHORS_A_PHASE, 1.0 + (double)(steps / STEPS_AN_ANCHOR));
    }
    return saves * p->save + (t->own->o->val ? p->validation : 0.0);
}

static double scale_that_fits(const struct trainer *t)
{
    const struct train_time *time = &t->own->o->time;
    double left = time->deadline - MARGIN * time->plan->limit - time_now(t) - other_seconds(t);
    double scale = left > 0 ? left / schedule_seconds(t) : 0.0;
    return scale > 1 && !time->fill ? 1.0 : scale;
}

/* ---- deciding -------------------------------------------------------------------------------- */

/* A few windows of the first validation case are timed before a validation is due. */
static void probe_validation(struct trainer *t)
{
    const struct train_options *o = t->own->o;
    const struct model *m = &t->models[t->target];
    struct error ignored; /* the validation reports it */
    if (!o->val || t->own->pace.validation > 0 || trainer_phase(t)->untested || !trainer_trains(t))
        return;
    struct validate_options v = trainer_validation(t);
    validate_seconds(&t->own->pace.validation, t->dev, m->params, &m->tested, o->val, &v,
                     PROBE * o->time.plan->limit, &ignored);
}

void time_save_plan(const struct trainer *t)
{
    struct train_private *own = t->own;
    struct time_plan *plan = own->o->time.plan;
    struct error e;
    if (!plan || own->o->dry)
        return;
    if (plan->limit > 0)
        plan->used = plan->limit - (own->o->time.deadline - time_now(t));
    if (trainer_check_folder(t, &e) < 0 ||
        time_plan_write(plan, own->o->run, t->set->method, t->set->steps, &e) < 0)
        report_line(own->o->report, REPORT_WARNING, NULL, "P03", "%s not written, training goes on: %s",
                    TIME_PLAN_FILE, e.text);
}

static int is_due(struct trainer *t, const struct time_plan *plan)
{
    const struct pace *p = &t->own->pace;
    if (t->step == t->steps || plan->n == TIME_DECISIONS || !time_plan_is_past(plan, t->phase, t->step))
        return 0;
    return t->step <= 1 || p->steps == 1.0 || time_now(t) - p->checked >= plan->limit / CHECKS;
}

static void report_plan(struct trainer *t)
{
    struct train_private *own = t->own;
    if (own->pace.n_reported++ > 0)
        return;
    report_line(own->o->report, own->pace.scale > 0 ? REPORT_NOTE : REPORT_WARNING, NULL, NULL,
                "%.3g s a step: about %" PRId64 " steps in the time limit%s", own->pace.step,
                trainer_describe(t, 0.0).total,
                own->pace.scale > 0 ? "" : ", one a phase; use a longer --max-time");
}

void time_decide(struct trainer *t)
{
    struct time_plan *plan = limited(t);
    struct pace *p = &t->own->pace;
    if (!plan || !is_due(t, plan))
        return;
    probe_validation(t);
    p->checked = time_now(t);
    if (p->step <= 0)
        return;
    p->scale = scale_that_fits(t);
    int64_t more = (int64_t)(((double)t->nominal - t->position) * p->scale), left = t->steps - t->step;
    more = more < 1 ? 1 : more;
    if (t->step == 0 || fabs((double)(more - left)) > TOLERANCE * (double)left) {
        time_plan_add(plan, t->phase, t->step, t->step + more);
        trainer_set_step(t, t->step);
    }
    time_save_plan(t);
    if (p->warm || t->phase > 0)
        report_plan(t);
}
