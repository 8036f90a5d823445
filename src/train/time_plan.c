/* time_plan.c - see time_plan.h. */
#include "train/time_plan.h"

#include <string.h>

#include "base/io.h"
#include "base/json.h"
#include "base/json_write.h"

/* ---- places ---------------------------------------------------------------------------------- */

/* The line from (step, position) to (steps, nominal). */
struct segment {
    int64_t step, steps;
    double position;
};

static double on_segment(const struct segment *s, int64_t step, int64_t nominal)
{
    double rest = (double)nominal - s->position, done = (double)(step - s->step);
    return step >= s->steps ? (double)nominal : s->position + done * (rest / (double)(s->steps - s->step));
}

struct time_place time_plan_place(const struct time_plan *p, int phase, int64_t step, int64_t nominal)
{
    struct segment s = {0, nominal, 0.0};
    for (int i = 0; p && i < p->n; i++) {
        const struct time_decision *d = &p->list[i];
        if (d->phase == phase && d->step <= step)
            s = (struct segment){d->step, d->steps, on_segment(&s, d->step, nominal)};
    }
    return (struct time_place){s.steps, on_segment(&s, step, nominal), on_segment(&s, step + 1, nominal)};
}

int64_t time_plan_steps(const struct time_plan *p, int phase, int64_t nominal)
{
    for (int i = p ? p->n - 1 : -1; i >= 0; i--)
        if (p->list[i].phase == phase)
            return p->list[i].steps;
    return nominal;
}

int time_plan_is_past(const struct time_plan *p, int phase, int64_t step)
{
    const struct time_decision *last = p->n > 0 ? &p->list[p->n - 1] : NULL;
    return !last || last->phase < phase || (last->phase == phase && last->step < step);
}

void time_plan_add(struct time_plan *p, int phase, int64_t step, int64_t steps)
{
    CHECK(steps > step && p->n < TIME_DECISIONS && time_plan_is_past(p, phase, step));
    p->list[p->n++] = (struct time_decision){phase, step, steps};
}

/* ---- the file -------------------------------------------------------------------------------- */

static int read_decision(struct time_plan *p, const struct js *row, struct error *e)
{
    struct time_decision *d = &p->list[p->n], *last = p->n > 0 ? d - 1 : NULL;
    int ok = js_count(row) == 3 && js_int(&d->phase, js_at(row, 0)) == 0 &&
             js_int(&d->step, js_at(row, 1)) == 0 && js_int(&d->steps, js_at(row, 2)) == 0;
    if (!ok || d->phase < 0 || d->phase >= TIME_PHASES || d->step < 0 || d->steps <= d->step ||
        d->steps > INT64_C(1) << 40)
        return fail(e, ERR_DATA, "C01", "decision %d, expected [phase, step, steps] with step < steps",
                    p->n + 1);
    int later = !last || d->phase > last->phase ||
                (d->phase == last->phase && d->step > last->step && d->step < last->steps);
    if (!later)
        return fail(e, ERR_DATA, "C01", "decision %d is not within the steps after decision %d", p->n + 1,
                    p->n);
    p->n++;
    return 0;
}

static int read_members(struct time_plan *p, const struct js *json, struct error *e)
{
    const struct js *list = js_get(json, "decisions"), *seconds = js_get(json, "phase_seconds");
    p->limit = js_number(js_get(json, "max_time"));
    p->used = js_number(js_get(json, "used"));
    if (!js_is_array(list) || js_count(list) > TIME_DECISIONS || !(p->limit >= 0) || !(p->used >= 0))
        return fail(e, ERR_DATA, "C01", "expected max_time, used and at most %d decisions", TIME_DECISIONS);
    for (int i = 0; i < TIME_PHASES && i < js_count(seconds); i++) {
        double x = js_number(js_at(seconds, i));
        p->phase_seconds[i] = x > 0 ? x : 0.0;
    }
    for (int i = 0; i < js_count(list); i++)
        if (read_decision(p, js_at(list, i), e) < 0)
            return -1;
    return 0;
}

int time_plan_read(struct time_plan *out, const char *path, const char *method, int64_t steps,
                   struct error *e)
{
    struct js *json = NULL;
    int64_t planned = 0;
    memset(out, 0, sizeof *out);
    int result = js_read_file(&json, path, e);
    if (result < 0)
        return -1;
    const char *of = js_text(js_get(json, "method"));
    if (!of || js_int(&planned, js_get(json, "steps")) < 0)
        result = fail(e, ERR_DATA, "C01", "method or steps missing");
    else if (strcmp(of, method) != 0 || (steps > 0 && planned != steps))
        result = fail(e, ERR_BUSY, "K05", "a plan for --method %.40s --steps %lld, expected %s and %lld", of,
                      (long long)planned, method, (long long)steps);
    else
        result = read_members(out, json, e);
    js_free(json);
    return result < 0 ? fail_in(e, path) : 0;
}

int time_plan_write(const struct time_plan *p, const char *run, const char *method, int64_t steps,
                    struct error *e)
{
    struct js_out o = {0};
    char *path = path_join(e, run, TIME_PLAN_FILE);
    js_out_open(&o, NULL, '{');
    js_out_text(&o, "method", method);
    js_out_int(&o, "steps", steps);
    js_out_real(&o, "max_time", p->limit);
    js_out_real(&o, "used", p->used);
    js_out_reals(&o, "phase_seconds", p->phase_seconds, TIME_PHASES);
    js_out_open(&o, "decisions", '[');
    for (int i = 0; i < p->n; i++)
        js_out_ints(&o, NULL, &p->list[i].phase, 3);
    js_out_close(&o, ']');
    js_out_close(&o, '}');
    int result = js_out_write(&o, path, 0600, e);
    mem_free(path);
    return result;
}
