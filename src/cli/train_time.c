/* train_time.c - see train_time.h.
 *
 * The first steps of the run say how many fit. Only where a method has several phases is one step of each
 * tried before, for at most a fiftieth of the time: a step of a later phase may take longer than one of the
 * first.
 */
#include "cli/train_time.h"

#include <string.h>

#include "base/io.h"
#include "train/checkpoint.h"

enum { TRIAL_STEPS = 1, TRIAL_PART = 50 };

int max_time_parse(double *out, const char *text, struct error *e)
{
    char number[32];
    size_t n = strlen(text);
    char last = n ? text[n - 1] : '\0';
    double unit = last == 's' ? 1 : last == 'm' ? 60 : last == 'h' ? 3600 : 0;
    snprintf(number, sizeof number, "%.*s", (int)(n && n < 30 ? n - 1 : 0), text);
    if (unit == 0 || parse_real(out, number) < 0 || *out <= 0 || *out * unit > 1e7) {
        fail(e, ERR_CONFIG, "C02", "\"%.40s\", allowed a time such as 90s, 40m or 2h", text);
        return fail_in(e, "--max-time");
    }
    *out *= unit;
    return 0;
}

/* ---- the plan -------------------------------------------------------------------------------- */

/* --time-plan FILE, or the folder of a run; its decisions are replayed. */
static int read_given(struct time_plan *p, const struct config *c, struct error *e)
{
    char *inside = path_join(e, c->time_plan, TIME_PLAN_FILE);
    if (!inside)
        return -1;
    int found = io_find(inside, NULL);
    int result = time_plan_read(p, found == 1 ? inside : c->time_plan, c->set.method, c->set.steps, e);
    mem_free(inside);
    p->limit = p->used = 0.0;
    return result;
}

/* The plan of the run that is resumed, if it has one: 1, 0 or -1. */
static int read_own(struct time_plan *p, const struct config *c, struct error *e)
{
    char *path = path_join(e, c->output, TIME_PLAN_FILE);
    int found = path && c->resume ? io_find(path, e) : path ? 0 : -1;
    int64_t steps = override_has(c->override, "steps") ? 0 : c->set.steps;
    if (found == 1 && time_plan_read(p, path, c->set.method, steps, e) < 0)
        found = -1;
    mem_free(path);
    return found;
}

/* Of a resumed run, whose own plan is read already. */
static int check_own(const struct time_plan *p, const struct config *c, struct error *e)
{
    if (p->limit > 0 ? !c->time_plan : !c->max_time)
        return 0;
    fail(e, ERR_BUSY, "K05", "this run was begun with --%s, not --%s",
         p->limit > 0 ? "max-time" : "time-plan", p->limit > 0 ? "time-plan" : "max-time");
    return fail_in(e, c->output);
}

static int fill_plan(struct time_plan *p, const struct config *c, double limit, struct error *e)
{
    int found = read_own(p, c, e);
    if (found < 0 || (found && check_own(p, c, e) < 0))
        return -1;
    if (!found && c->time_plan)
        return read_given(p, c, e) < 0 ? -1 : 1;
    if (limit > 0)
        p->limit = limit;
    else if (found && p->limit > 0)
        report_line(console_report(c), REPORT_NOTE, c->output, NULL,
                    "time limit of %.0f s, as recorded; --max-time sets another", p->limit);
    return found || limit > 0;
}

int train_time_open(struct time_plan **plan, struct train_time *out, struct config *c, double begun,
                    struct error *e)
{
    double limit = 0.0;
    struct time_plan *p = mem_alloc(e, 1, sizeof *p);
    if (!p)
        return -1;
    out->fill = c->set.steps == 0;
    if (out->fill)
        c->set.steps = CONFIG_STEPS;
    int used = c->max_time && max_time_parse(&limit, c->max_time, e) < 0 ? -1 : fill_plan(p, c, limit, e);
    if (used <= 0) {
        mem_free(p);
        return used;
    }
    out->deadline = begun + p->limit - p->used;
    *plan = out->plan = p;
    return 0;
}

/* ---- the trial ------------------------------------------------------------------------------- */

struct trial {
    struct time_plan *plan;
    double begun, end; /* seconds: when the step was begun; when to stop */
};

static void trial_step(void *arg, const struct train_step *s)
{
    struct trial *t = arg;
    t->plan->phase_seconds[s->phase_number] = clock_seconds() - t->begun;
}

/* Asked at the top of each step. */
static int trial_ends(void *arg)
{
    struct trial *t = arg;
    t->begun = clock_seconds();
    return stop_requested() || t->begun > t->end;
}

int train_time_trial(const struct train_options *o, struct error *e)
{
    struct time_plan *plan = o->time.plan;
    struct trial t = {.plan = plan};
    struct settings s = *o->settings;
    struct train_options trial = *o;
    struct train_result r;
    if (!plan || plan->limit <= 0 || o->resume || method_phases(method_find(s.method), &s) < 2)
        return 0;
    t.end = clock_seconds() + plan->limit / TRIAL_PART;
    s.steps = TRIAL_STEPS;
    trial.settings = &s;
    trial.time = (struct train_time){.plan = NULL};
    trial.dry = 1;
    trial.val = NULL;
    trial.report = NULL;
    trial.listen = (struct train_listener){.arg = &t, .step = trial_step, .stop = trial_ends};
    if (train_run(&r, &trial, e) == 0)
        return 0;
    if (e->code == ERR_STOPPED && !stop_requested())
        return 0; /* phases without a trial take the pace of the first */
    if (e->code == ERR_STOPPED)
        fail(e, ERR_STOPPED, "P11",
             "stopped while steps were timed for --max-time; the same command begins anew");
    return -1;
}
