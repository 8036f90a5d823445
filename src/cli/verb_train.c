/* verb_train.c - `falx train DATASET -o RUN`: everything around the loop (train.h).
 *
 *     open device -> lock RUN -> load data -> [trial, for --max-time] -> run.json -> train -> one line
 *
 * While training, numbers go to metrics.sqlite and log.txt; a signal is only noted and ends the run at the
 * next step with a checkpoint and exit code 10.
 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "base/json.h"
#include "cli/train_data.h"
#include "cli/train_time.h"
#include "net/selftest.h"
#include "runs/runs.h"
#include "train/train.h"

enum { LOG_EVERY = 50, FLUSH_EVERY = 200 }; /* steps between lines of the log, and between writes */

struct telling {
    const struct config *config;
    struct progress *line;
    struct runs *runs;
    int log;            /* descriptor, or -1 */
    double start;       /* of this process's training, by clock_seconds() */
    double earlier;     /* seconds of those that a resumed run had before */
    int stepped;        /* steps of this process */
    double first;       /* when the first of them was done */
    int timed;          /* 1: the number of steps follows a plan */
    int64_t planned;    /* steps of the phase by that plan */
    struct error error; /* of the store of numbers */
    struct error lost;  /* the first record that was given up: the exit code of a run that came to its end */
};

/* A record that cannot be written is given up with one warning: the run matters more. Its end tells [P04]. */
static void give_up(struct telling *t, const char *name, const struct error *why)
{
    report_line(console_report(t->config), REPORT_WARNING, name, why->id, "%s; training goes on without",
                why->text);
    if (t->lost.code)
        return;
    fail(&t->lost, why->code, why->id, "trained to the end, but from some point on without %s: %.200s", name,
         why->text);
    fail_in(&t->lost, t->config->output);
}

/* A line is written whole or not at all. */
static void log_line(struct telling *t, const char *text)
{
    struct error why;
    size_t n = strlen(text);
    off_t before = t->log >= 0 ? lseek(t->log, 0, SEEK_END) : 0;
    ssize_t done = t->log >= 0 ? io->write(t->log, text, n) : (ssize_t)n;
    if (done == (ssize_t)n)
        return;
    fail_errno(&why, done < 0 ? errno : ENOSPC, "cannot write");
    strcpy(why.id, "P04");
    if (done > 0 && ftruncate(t->log, before) < 0)
        done = 0; /* the beginning of a line stays: there is no way left to remove it */
    io->close(t->log);
    t->log = -1;
    give_up(t, "log.txt", &why);
}

static void store_failed(struct telling *t)
{
    give_up(t, "metrics.sqlite", &t->error);
    runs_close(t->runs);
    t->runs = NULL;
}

static void tell_resumed(void *arg, int phase_number, int64_t step)
{
    struct telling *t = arg;
    const char *override = t->config->override;
    if (phase_number < 0)
        t->earlier = 0.0;
    if (t->runs && runs_forget_after(t->runs, phase_number, step, &t->error) < 0)
        store_failed(t);
    if (t->runs && override && runs_set_fact(t->runs, "override", override, &t->error) < 0)
        store_failed(t);
}

/* Days are announced when a few steps have been timed, not found out by waiting. */
static void tell_pace(struct telling *t, const struct train_step *s)
{
    enum { TIMED = 3, LONG_HOURS = 24 };
    if (t->stepped++ == 0) {
        progress_skip(t->line, s->done - 1);
        t->first = clock_seconds();
    }
    double hours = (clock_seconds() - t->first) / TIMED * (double)(s->total - s->done) / 3600;
    if (t->stepped == 1 + TIMED && hours > LONG_HOURS)
        report_line(console_report(t->config), REPORT_NOTE, NULL, NULL,
                    "about %.0f hours at this pace: a GPU, a smaller --patch or --filters make steps faster, "
                    "--max-time 8h takes as many as fit",
                    hours);
}

/* The steps of the phase, when they were decided anew. */
static void tell_plan(struct telling *t, const struct train_step *s)
{
    progress_total(t->line, s->total);
    if (!t->timed || s->steps == t->planned)
        return;
    t->planned = s->steps;
    if (t->runs &&
        runs_add_step(t->runs, s->phase_number, s->step, "planned_steps", (double)s->steps, &t->error) < 0)
        store_failed(t);
}

static void tell_step(void *arg, const struct train_step *s)
{
    struct telling *t = arg;
    char text[600];
    int n = 0;
    tell_pace(t, s);
    tell_plan(t, s);
    for (int i = 0; i < s->n_notes && t->runs; i++)
        if (runs_add_step(t->runs, s->phase_number, s->step, s->notes[i].name, s->notes[i].value, &t->error) <
            0)
            store_failed(t);
    if (t->runs && s->done % FLUSH_EVERY == 0 && runs_flush(t->runs, &t->error) < 0)
        store_failed(t);
    progress_at(t->line, s->done);
    if (s->step % LOG_EVERY != 0 && s->step != s->steps)
        return;
    n = snprintf(text, sizeof text, "%s %lld/%lld rate=%.3g", s->phase, (long long)s->step,
                 (long long)s->steps, s->rate);
    for (int i = 0; i < s->n_notes && n < (int)sizeof text - 40; i++)
        n += snprintf(text + n, sizeof text - (size_t)n, " %s=%.5g", s->notes[i].name, s->notes[i].value);
    snprintf(text + n, sizeof text - (size_t)n, "\n");
    log_line(t, text);
}

/* undefined: pairs of case and class that are in neither truth nor prediction, left out of the mean [M05]. */
static void tell_validation(void *arg, const struct train_step *s, const struct validation *v)
{
    struct telling *t = arg;
    char text[160], undefined[32] = "";
    if (v->undefined > 0)
        snprintf(undefined, sizeof undefined, " undefined=%d", v->undefined);
    snprintf(text, sizeof text, "%s %lld/%lld validation dice=%.4f%s\n", s->phase, (long long)s->step,
             (long long)s->steps, v->dice, undefined);
    log_line(t, text);
    for (int i = 0; i < v->n && t->runs; i++)
        if (runs_add_validation(t->runs, s->phase_number, s->step, i + 1, v->per_class[i], &t->error) < 0)
            store_failed(t);
}

static void tell_fact(struct telling *t, const char *key, double value, int digits)
{
    char text[32];
    snprintf(text, sizeof text, "%.*f", digits, value);
    if (t->runs && runs_set_fact(t->runs, key, text, &t->error) < 0)
        store_failed(t);
}

/* What a resumed run took before, up to its last checkpoint. */
static void recall_seconds(struct telling *t)
{
    char *before = NULL;
    if (t->runs && t->config->resume && runs_fact(&before, t->runs, "seconds", &t->error) < 0)
        store_failed(t);
    if (!before || parse_real(&t->earlier, before) < 0)
        t->earlier = 0.0;
    mem_free(before);
    t->start = clock_seconds();
}

static void tell_seconds(struct telling *t)
{
    tell_fact(t, "seconds", t->earlier + clock_seconds() - t->start, 3);
}

/* Rows of steps that a resume will not repeat must be in the file before their checkpoint is. */
static void tell_saving(void *arg)
{
    struct telling *t = arg;
    tell_seconds(t);
    if (t->runs && runs_flush(t->runs, &t->error) < 0)
        store_failed(t);
}

/* ---- run folder ------------------------------------------------------------------------------ */

static int write_run_json(const struct config *c, const struct train_data *d, const struct device *dev,
                          struct error *e)
{
    struct js_out o = {0};
    char hash[20], *path = path_join(e, c->output, "run.json");
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)d->hash);
    js_out_open(&o, NULL, '{');
    config_to_json(&o, c);
    js_out_text(&o, "precision_used", precision_name(dev->precision));
    js_out_text(&o, "processor", dev->describe);
    js_out_text(&o, "denormals", "flushed"); /* in all that a pool computes [M13] */
    js_out_text(&o, "data_hash", hash);
    js_out_int(&o, "labeled_cases", d->store.n_labeled);
    js_out_int(&o, "unlabeled_cases", d->store.n_cases - d->store.n_labeled);
    js_out_int(&o, "hidden_labels_used_for_crop", d->n_hidden);
    js_out_open(&o, "validation_cases", '[');
    for (int i = 0; i < d->val.n_cases; i++)
        js_out_text(&o, NULL, d->val.cases[i].name);
    js_out_close(&o, ']');
    run_facts_to_json(&o, &d->facts);
    js_out_close(&o, '}');
    int result = js_out_write(&o, path, 0600, e);
    mem_free(path);
    return result;
}

/* What the first start found out and a resume must keep: nominal steps, a drawn seed. What the prepared
 * scans depend on is compared here, before they are looked at; the rest by the checkpoint [K05]. */
static int take_recorded(struct config *c, struct error *e)
{
    struct js *json = NULL;
    char *path = path_join(e, c->output, "run.json");
    int64_t steps = 0, seed = 0;
    int result = path ? js_read_file(&json, path, e) : -1;
    if (result < 0)
        goto out;
    const char *recipe = js_text(js_get(json, "recipe"));
    if (js_int(&steps, js_get(json, "steps")) < 0 || steps < 1 || js_int(&seed, js_get(json, "seed")) < 0 ||
        seed < 0 || !recipe)
        result = fail(e, ERR_DATA, "C01", "steps, seed or recipe missing");
    else if (!c->seed_drawn && c->set.seed != seed)
        result = fail(e, ERR_BUSY, "K05", "this run was begun with seed = %lld, not %lld", (long long)seed,
                      (long long)c->set.seed);
    else if (strcmp(recipe, c->recipe) != 0)
        result =
            fail(e, ERR_BUSY, "K05", "this run was begun with recipe = %.40s, not %s", recipe, c->recipe);
    if (result < 0)
        fail_in(e, path);
    if (result == 0 && c->set.steps == 0 && steps != CONFIG_STEPS)
        c->set.steps = steps; /* of a --budget before falx had time-plan.json */
    c->set.seed = seed;
out:
    js_free(json);
    mem_free(path);
    return result;
}

/* A folder with a run in it is only touched with --resume. */
static int claim_folder(int *lock, struct config *c, struct error *e)
{
    char *path;
    if (io_make_folders(c->output, e) < 0 || io_lock_folder(lock, c->output, e) < 0)
        return -1;
    io_sign_folder(c->output);
    if (!(path = path_join(e, c->output, "run.json")))
        return -1;
    int exists = io_find(path, e);
    mem_free(path);
    if (exists < 0)
        return -1;
    if (exists && !c->resume) {
        fail(e, ERR_CONFIG, "O01", "holds a run already: --resume goes on with it");
        return fail_in(e, c->output);
    }
    if (!exists && c->resume)
        report_line(console_report(c), REPORT_NOTE, c->output, NULL, "nothing to resume, starting over");
    c->resume = exists;
    if (exists && c->time_chosen)
        c->max_time = NULL; /* the run's own limit holds, if it has one (time-plan.json) */
    return exists ? take_recorded(c, e) : 0;
}

/* Takes away the signature and, from byte `missing` of the path on, folders in which nothing came about; not
 * those of somebody else who has the name by now. */
static void leave_folder(int lock, const char *folder, size_t missing)
{
    if (lock < 0)
        return;
    if (io_check_locked(lock, folder, NULL) == 0) {
        io_unsign_folder(folder);
        io_remove_empty(folder, missing);
    }
    io_unlock_folder(lock);
}

/* ---- the verb ----------------------------------------------------------------------------------- */

/* A damaged store is put aside and a new one begun: the run matters more than its numbers. */
static int open_store(struct telling *t, const char *path, struct error *e)
{
    if (runs_open(&t->runs, path, e) == 0)
        return 0;
    if (strcmp(e->id, RUNS_DAMAGED) != 0)
        return -1;
    report_line(console_report(t->config), REPORT_WARNING, NULL, e->id,
                "%s; put aside as metrics.sqlite.damaged, a new one is begun", e->text);
    e->code = ERR_NONE;
    return runs_put_aside(path, e) < 0 ? -1 : runs_open(&t->runs, path, e);
}

static int open_records(struct telling *t, const struct config *c, struct error *e)
{
    char *store = path_join(e, c->output, "metrics.sqlite"), *log = path_join(e, c->output, "log.txt");
    int result = -1;
    if (store && log) {
        result = open_store(t, store, e);
        if (result == 0 && !c->resume) /* numbers of a run that lost its run.json */
            result = runs_forget_after(t->runs, 0, 0, e);
        /* O_NONBLOCK: a FIFO without a reader is refused, not waited for */
        if (result == 0)
            t->log = io->open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666);
        if (t->log < 0 && result == 0) {
            fail_errno(e, errno, "cannot open");
            result = fail_in(e, log);
        }
    }
    mem_free(store);
    mem_free(log);
    return result;
}

/* Says what is going to happen; refuses what will not fit before hours are spent on it [P17]. *planned: bytes
 * of models, plans and batches. */
static int check_memory(size_t *planned, const struct config *c, const struct train_data *d,
                        struct device *dev, struct error *e)
{
    size_t bytes = 0;
    int64_t total, available;
    char needs[40] = "more"; /* than an address can count, or than the system promises */
    int result = train_memory(&bytes, &c->set, dev, d->store.channels, d->store.n_classes, e);
    if (result < 0 && e->code != ERR_MEMORY)
        return -1;
    machine_memory(&total, &available);
    if (result == 0)
        snprintf(needs, sizeof needs, "%zu MiB", bytes >> 20);
    if (result < 0 || (int64_t)bytes > available)
        return fail(e, ERR_MEMORY, "P17",
                    "%lld MiB of memory are available, this training needs %s: a "
                    "smaller --patch, --batch or --filters may fit",
                    (long long)(available >> 20), needs);
    *planned = bytes;
    if (d->store.bytes <= dev->room)
        bytes += d->store.bytes; /* the device holds the cases, too */
    report_line(console_report(c), REPORT_NOTE, NULL, NULL,
                "%s, %s: %d labelled and %d unlabelled cases, patch %lld,%lld,%lld, %zu MiB for training",
                dev->describe, precision_name(dev->precision), d->store.n_labeled,
                d->store.n_cases - d->store.n_labeled, (long long)c->set.patch[0], (long long)c->set.patch[1],
                (long long)c->set.patch[2], bytes >> 20);
    return 0;
}

/* The result is on disk: a closed stdout or a reader that went away is no failure [P12, P13]. */
static void tell_end(const struct config *c, const struct train_result *r)
{
    char dice[32] = "n/a";
    if (!isnan(r->dice))
        snprintf(dice, sizeof dice, "%.4f", r->dice);
    (void)dprintf(STDOUT_FILENO, "done %s steps=%lld dice=%s\n", c->output, (long long)r->steps, dice);
}

/* lock: of the run folder; planned: bytes. */
static int train(struct config *c, struct train_data *d, struct device *dev, int lock,
                 const struct train_time *time, size_t planned, struct error *e)
{
    struct telling t = {.config = c, .log = -1, .timed = time->plan != NULL};
    struct train_result result;
    struct train_options o = {.run = c->output,
                              .lock = lock,
                              .settings = &c->set,
                              .store = &d->store,
                              .val = d->val.n_cases ? &d->val : NULL,
                              .dev = dev,
                              .checkpoint_every = c->checkpoint_every,
                              .checkpoint_seconds = 300,
                              .resume = c->resume,
                              .override = c->override,
                              .data_hash = d->hash,
                              .version = FALX_VERSION,
                              .sampler_threads = train_sampler_threads(dev),
                              .time = *time,
                              .report = console_report(c),
                              .listen = {.arg = &t,
                                         .resumed = tell_resumed,
                                         .step = tell_step,
                                         .validated = tell_validation,
                                         .saving = tell_saving,
                                         .stop = stop_asked}};
    if (train_time_trial(&o, e) < 0)
        return -1;
    if (!c->resume && write_run_json(c, d, dev, e) < 0)
        return -1;
    if (open_records(&t, c, e) < 0) {
        runs_close(t.runs);
        return -1;
    }
    recall_seconds(&t);
    t.line = progress_begin(c, c->set.method, train_total_steps(&c->set));
    int status = train_run(&result, &o, e);
    progress_end(t.line);
    if (status == 0) {
        tell_fact(&t, "steps", (double)result.steps, 0);
        tell_fact(&t, "planned_bytes", (double)planned, 0);
        tell_fact(&t, "device_peak_bytes", (double)dev->peak_bytes, 0);
    }
    tell_seconds(&t);
    runs_close(t.runs);
    if (t.log >= 0)
        io->close(t.log);
    if (status < 0)
        return -1;
    tell_end(c, &result);
    if (t.lost.code)
        *e = t.lost;
    return t.lost.code ? -1 : 0;
}

/* "copy-paste: 800 + 3200 steps" */
static void plan_text(char *out, size_t cap, const struct config *c)
{
    const struct method *m = method_find(c->set.method);
    struct settings s = c->set;
    s.steps = s.steps > 0 ? s.steps : CONFIG_STEPS;
    int n = snprintf(out, cap, "%s: ", m->name);
    for (int i = 0; i < method_phases(m, &s); i++)
        n += snprintf(out + n, cap - (size_t)n, "%s%lld", i ? " + " : "",
                      (long long)phase_steps(&m->phases[i], &s));
    snprintf(out + n, cap - (size_t)n, " steps");
}

/* The first line: what is planned, and which option changes it. */
static void report_plan(const struct config *c)
{
    char plan[160];
    if (c->resume) /* the plan is the run's own */
        return;
    plan_text(plan, sizeof plan, c);
    if (c->preset_chosen && c->max_time)
        report_line(
            console_report(c), REPORT_NOTE, NULL, NULL,
            "preset auto by default (%s), at most %s; --max-time 2h or --steps allow more, --preset or "
            "--method choose another",
            plan, c->max_time);
    else if (c->preset_chosen)
        report_line(console_report(c), REPORT_NOTE, NULL, NULL,
                    "preset auto by default (%s); --preset or --method choose another", plan);
    else if (!c->max_time && !c->time_plan)
        report_line(console_report(c), REPORT_NOTE, NULL, NULL, "%s; --max-time 40m limits the time", plan);
}

int verb_train(struct config *c)
{
    struct error e = {.code = ERR_NONE};
    struct train_data data = {0};
    struct device *dev = NULL;
    struct device_options o = {
        .name = c->device, .precision = (enum precision)c->precision, .threads = (int)c->threads};
    struct time_plan *plan = NULL;
    struct train_time time = {.plan = NULL};
    double begun = clock_seconds(), limit;
    size_t missing = io_missing(c->output), planned = 0;
    int lock = -1, result = -1;
    report_plan(c);
    if ((!c->max_time || max_time_parse(&limit, c->max_time, &e) == 0) && device_open(&dev, &o, &e) == 0 &&
        (!c->selftest || selftest_run(NULL, dev, &e) == 0) && claim_folder(&lock, c, &e) == 0 &&
        train_time_open(&plan, &time, c, begun, &e) == 0 && train_data_load(&data, c, dev->pool, &e) == 0 &&
        check_memory(&planned, c, &data, dev, &e) == 0) {
        stop_polling(1);
        result = train(c, &data, dev, lock, &time, planned, &e);
    }
    mem_free(plan);
    train_data_free(&data);
    leave_folder(lock, c->output, result < 0 ? missing : 0);
    device_close(dev);
    return result < 0 ? complain(&e) : 0;
}
