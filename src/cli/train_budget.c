/* train_budget.c - see train_budget.h.
 *
 *     4 steps -> how many make a twentieth of the time -> those steps, timed -> how many fill the rest
 *
 * Trials train in a folder inside the run's that is removed, and leave nothing behind but a number of steps.
 */
#include <string.h>

#include "base/io.h"
#include "cli/bench.h"
#include "cli/train_budget.h"

int budget_parse(double *out, const char *text, struct error *e)
{
    char number[32];
    size_t n = strlen(text);
    char last = n ? text[n - 1] : '\0';
    double unit = last == 's' ? 1 : last == 'm' ? 60 : last == 'h' ? 3600 : 0;
    snprintf(number, sizeof number, "%.*s", (int)(n && n < 30 ? n - 1 : 0), text);
    if (unit == 0 || parse_real(out, number) < 0 || *out <= 0 || *out * unit > 1e7) {
        fail(e, ERR_CONFIG, "C02", "\"%.40s\", allowed a time such as 90s, 40m or 2h", text);
        return fail_in(e, "--budget");
    }
    *out *= unit;
    return 0;
}

/* How long the steps of each phase take: the median of the last ones, since the first are cold and a busy
 * machine lengthens some. */
enum { MEASURE_PHASES = 4, MEASURE_TIMES = 64 };
struct measure {
    struct measured_phase {
        const char *name;
        double times[MEASURE_TIMES]; /* a ring */
        int64_t steps;
        int n;
    } phase[MEASURE_PHASES];
    int n;
    double last;
};

static void measure_step(void *arg, const struct train_step *s)
{
    struct measure *m = arg;
    if (m->n == 0 || m->phase[m->n - 1].name != s->phase) {
        if (m->n == MEASURE_PHASES)
            return;
        m->phase[m->n++].name = s->phase;
    }
    struct measured_phase *p = &m->phase[m->n - 1];
    p->steps = s->steps;
    p->times[p->n++ % MEASURE_TIMES] = s->seconds - m->last;
    m->last = s->seconds;
}

/* Seconds of all phases. */
static double measured_seconds(struct measure *m)
{
    double sum = 0.0;
    for (int i = 0; i < m->n; i++) {
        struct measured_phase *p = &m->phase[i];
        int n = p->n < MEASURE_TIMES ? p->n : MEASURE_TIMES;
        sum += bench_middle(p->times, n) * (double)p->steps;
    }
    return sum;
}

/* Trains `steps` in a folder that is removed; *cost: seconds of one of --steps, its share of every phase. */
static int measure_cost(double *cost, const struct config *c, const struct train_options *o, int64_t steps,
                        struct error *e)
{
    struct measure m = {.n = 0};
    struct settings s = c->set;
    struct train_options trial = *o;
    struct train_result r;
    char *folder = path_join(e, c->output, "measuring");
    if (!folder)
        return -1;
    s.steps = steps;
    trial.settings = &s;
    trial.run = folder;
    trial.lock = 0;
    trial.val = NULL;
    trial.resume = 0;
    trial.report = NULL;
    trial.listen = (struct train_listener){.arg = &m, .step = measure_step, .stop = stop_asked};
    int result = io_make_folders(folder, e) < 0 ? -1 : train_run(&r, &trial, e);
    if (result < 0 && e->code == ERR_STOPPED)
        fail(e, ERR_STOPPED, "P11",
             "stopped while steps were timed for --budget; the same command begins "
             "anew");
    io_remove_tree(folder);
    mem_free(folder);
    *cost = measured_seconds(&m) / (double)steps;
    return result;
}

int budget_measure(struct config *c, const struct train_options *o, double seconds, struct error *e)
{
    enum { FIRST = 4, MOST = 400 };
    double begun = clock_seconds(), cost, some;
    if (measure_cost(&cost, c, o, FIRST, e) < 0)
        return -1;
    some = cost > 0 ? seconds / 20 / cost : 0;
    if (some > FIRST && measure_cost(&cost, c, o, some < MOST ? (int64_t)some : MOST, e) < 0)
        return -1;
    seconds = 0.95 * seconds - (clock_seconds() - begun); /* 5 % for loading, saving, the rest */
    c->set.steps = cost > 0 && seconds > cost ? (int64_t)(seconds / cost) : 1;
    report_line(console_report(c), REPORT_NOTE, NULL, NULL, "%.0f ms a step, %lld steps in the budget",
                1000.0 * cost, (long long)c->set.steps);
    return 0;
}
