/* time_plan.h - the steps of a run whose time is limited, and the position of its schedule.
 *
 * A decision (phase, step, steps): once `step` steps of that phase are done, it has `steps` in all. The
 * learning rate and the ramp-up follow the position, which is piecewise linear in the step and ends at the
 * nominal steps of the phase, those that --steps gives it.
 *
 *     position                          --steps 6000, decisions (0, 0, 6000), (0, 200, 3000), (0, 1000, 2000)
 *     6000 |                  _ .'
 *          |            _ . '           steps    0 ..  200   position = step
 *          |        _.'                        200 .. 1000   position = 200 + (step - 200) 5800 / 2800
 *          |_ . - '                           1000 .. 2000   the rest, evenly
 *        0 +----|--------|--------|
 *          0   200     1000     2000 steps
 *
 * The file RUN/time-plan.json holds all decisions before they take effect, so that a resumed run and a run
 * with --time-plan make the same steps, to the bit.
 */
#ifndef FALX_TIME_PLAN_H
#define FALX_TIME_PLAN_H

#include "base/base.h"

enum { TIME_PHASES = 4, TIME_DECISIONS = 1024 };
#define TIME_PLAN_FILE "time-plan.json"

struct time_plan {
    double limit, used;                /* seconds; limit 0: decisions are replayed, none are added */
    double phase_seconds[TIME_PHASES]; /* of a step, from the trial; 0: not measured */
    struct time_decision {
        int64_t phase, step, steps;
    } list[TIME_DECISIONS]; /* ascending in (phase, step) */
    int n;
};

/* Where a phase stands after `step` steps. */
struct time_place {
    int64_t steps;         /* of the phase in all, as decided by then */
    double position, next; /* in the schedule, now and after one more step: 0 .. nominal */
};
/* NULL or no decision: steps = nominal, position = step. */
struct time_place time_plan_place(const struct time_plan *p, int phase, int64_t step, int64_t nominal);
/* Steps of a phase after its last decision. */
int64_t time_plan_steps(const struct time_plan *p, int phase, int64_t nominal);
/* 1: all recorded decisions are of earlier steps; only then another is added. */
int time_plan_is_past(const struct time_plan *p, int phase, int64_t step);
void time_plan_add(struct time_plan *p, int phase, int64_t step, int64_t steps);

/* method and steps: of the run; a plan of another is refused [K05]. steps 0: any. */
int time_plan_read(struct time_plan *out, const char *path, const char *method, int64_t steps,
                   struct error *e);
int time_plan_write(const struct time_plan *p, const char *run, const char *method, int64_t steps,
                    struct error *e);

#endif
