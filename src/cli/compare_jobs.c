/* compare_jobs.c - the queue of a comparison: a process for every run, a few at a time. See compare_int.h.
 *
 * Each run is `falx compare ... --cell NAME`: whatever happens to it, a refusal, a crash, a lost device, is
 * told in its result and the plan goes on. What it says goes to logs/NAME.txt; how far it is, is read from
 * its log.txt. A signal is passed on to all runs, which save and end, and the same command goes on later.
 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/child.h"
#include "base/io.h"
#include "base/pool.h"
#include "cli/compare_int.h"
#include "train/method.h"

enum { MAX_JOBS = 64, MAX_DEVICES = 16, BUSY_TRIES = 50 };

struct job {
    pid_t pid; /* 0: free */
    int cell;
    int tries;
};

struct queue {
    struct plan *p;
    struct job jobs[MAX_JOBS];
    int n_jobs;
    char devices[MAX_DEVICES][32];
    int n_devices;
    char *self;
    char *wanted;        /* (n_cells): 1: to be run */
    int next;            /* cell */
    int64_t done, total; /* steps of finished runs, and of all */
    int n_done, n_all;   /* runs */
    int code;            /* of the first that failed */
    int stopping;
    double looked; /* when progress was last read */
    struct progress *line;
};

/* ---- starting a run -------------------------------------------------------------------------------- */

static int spawn(pid_t *pid, const char *program, char **argv, const char *log)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attr;
    sigset_t none;
    int err = posix_spawn_file_actions_init(&files);
    if (err)
        return err;
    if ((err = posix_spawnattr_init(&attr)) != 0) {
        posix_spawn_file_actions_destroy(&files);
        return err;
    }
    sigemptyset(&none);
    err = posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    if (!err)
        err = posix_spawn_file_actions_addopen(&files, 1, "/dev/null", O_WRONLY, 0);
    if (!err)
        err = posix_spawn_file_actions_addopen(&files, 2, log, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (!err)
        err = posix_spawnattr_setsigmask(&attr, &none);
    if (!err) /* a group of its own: a Ctrl-C comes through us, once */
        err = posix_spawnattr_setpgroup(&attr, 0);
    if (!err)
        err = posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
    if (!err)
        err = posix_spawn(pid, program, &files, &attr, argv, environ);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attr);
    return err;
}

static char *log_path(const struct plan *p, const struct plan_cell *cell, struct error *e)
{
    return mem_format(e, "%s/logs/%s.txt", p->c->output, cell->name);
}

static int start(struct queue *q, struct job *j, struct error *e)
{
    const struct config *c = q->p->c;
    const struct plan_cell *cell = &q->p->cells[j->cell];
    int slot = (int)(j - q->jobs), n = 0, result = -1;
    int64_t threads = c->threads ? c->threads : pool_usable_cores();
    threads = threads / q->n_jobs > 0 ? threads / q->n_jobs : 1;
    char **argv = mem_alloc(e, (size_t)c->n_given + 8, sizeof *argv), *log = log_path(q->p, cell, e);
    char *only = mem_format(e, "--cell=%s", cell->name);
    char *device = mem_format(e, "--device=%s", q->devices[slot % q->n_devices]);
    char *share = mem_format(e, "--threads=%lld", (long long)threads);
    char compare[] = "compare";
    if (argv && log && only && device && share) {
        argv[n++] = q->self;
        argv[n++] = compare;
        for (int i = 0; i < c->n_given; i++)
            argv[n++] = c->given[i];
        argv[n++] = only;
        argv[n++] = device;
        argv[n++] = share;
        argv[n++] = c->args[0];
        int err = spawn(&j->pid, q->self, argv, log);
        result = err ? fail_errno(e, err, "cannot start a run with this log") : 0;
        if (err)
            fail_in(e, log);
    }
    mem_free(argv);
    mem_free(log);
    mem_free(only);
    mem_free(device);
    mem_free(share);
    if (result < 0)
        j->pid = 0;
    return result;
}

/* ---- how far, and how it ended --------------------------------------------------------------------- */

/* The last `cap` - 1 bytes of a file, or "". */
static void read_tail(char *out, size_t cap, const char *path)
{
    struct error ignored;
    uint64_t bytes;
    int fd;
    out[0] = '\0';
    if (!path || io_open_regular(&fd, &bytes, path, &ignored) < 0)
        return;
    if (bytes >= cap)
        lseek(fd, (off_t)(bytes - cap + 1), SEEK_SET);
    ssize_t n = io_read_full(fd, out, cap - 1);
    out[n > 0 ? n : 0] = '\0';
    io->close(fd);
}

/* Steps of a run from the last line of its log.txt, "PHASE done/all ...". */
static int64_t steps_of(const struct plan_cell *cell)
{
    char tail[2000], phase[32];
    long long done, all;
    int64_t before = 0;
    struct error ignored;
    struct config train;
    char *path = path_join(NULL, cell->run, "log.txt");
    read_tail(tail, sizeof tail, path);
    mem_free(path);
    size_t n = strlen(tail);
    while (n && tail[n - 1] != '\n')
        n--;
    if (n == 0 || plan_train_config(&train, cell, &ignored) < 0)
        return 0;
    tail[n - 1] = '\0';
    const char *last = strrchr(tail, '\n');
    int known = sscanf(last ? last + 1 : tail, "%31s %lld/%lld", phase, &done, &all) == 3;
    const struct method *m = method_find(train.set.method);
    for (const struct phase *k = m->phases; known && k->name && strcmp(k->name, phase) != 0; k++)
        before += phase_steps(k, &train.set); /* the phase was run, and so were those before it */
    config_free(&train);
    return known && done >= 0 && before + done <= cell->steps ? before + done : 0;
}

/* "3 of 12 runs done, aua-L13-s1337 and 1 more  4200/36000  11%  9.8/s  ETA ..." */
static void show_progress(struct queue *q)
{
    const char *first = NULL;
    char label[160], more[24] = "";
    int64_t running = 0;
    int n = 0;
    if (clock_seconds() - q->looked < 0.5)
        return;
    q->looked = clock_seconds();
    for (int i = 0; i < q->n_jobs; i++)
        if (q->jobs[i].pid) {
            const struct plan_cell *cell = &q->p->cells[q->jobs[i].cell];
            running += steps_of(cell);
            first = first ? first : cell->name;
            n++;
        }
    if (n > 1)
        snprintf(more, sizeof more, " and %d more", n - 1);
    snprintf(label, sizeof label, "%d of %d runs done, %.40s%s", q->n_done, q->n_all, first ? first : "",
             more);
    progress_label(q->line, first ? label : "compare");
    progress_at(q->line, q->done + running);
}

/* Why a run ended without scores: its last error, or how its process ended. */
static void reason(char out[400], const struct queue *q, const struct plan_cell *cell, int status)
{
    static const char mark[] = "falx: error: ";
    char tail[4000], *path = log_path(q->p, cell, NULL);
    const char *found = NULL;
    read_tail(tail, sizeof tail, path);
    mem_free(path);
    for (const char *at = tail; (at = strstr(at, mark)) != NULL; at += sizeof mark - 1)
        found = at + sizeof mark - 1;
    if (WIFSIGNALED(status))
        snprintf(out, 400, "ended by signal %d", WTERMSIG(status));
    else if (found)
        snprintf(out, 400, "%.*s", (int)(strcspn(found, "\n") < 390 ? strcspn(found, "\n") : 390), found);
    else
        snprintf(out, 400, "ended with code %d", WEXITSTATUS(status));
}

static int tell_finished(struct queue *q, const struct plan_cell *cell, struct error *e)
{
    struct compare_run r;
    int found = plan_result(&r, q->p, cell, cell->result, e);
    if (found == 0)
        fail(e, ERR_SYSTEM, "P07", "%s was removed while falx was working", cell->result);
    if (found != 1)
        return -1;
    report_line(console_report(q->p->c), REPORT_NOTE, NULL, NULL,
                "run %d of %d, %s: Dice %.2f %%, trained in %.0f s", q->n_done, q->n_all, cell->name,
                100 * r.scores.mean[0], r.cost.seconds);
    compare_run_free(&r);
    return 0;
}

/* A process ended. */
static int finish(struct queue *q, struct job *j, int status, struct error *e)
{
    const struct plan_cell *cell = &q->p->cells[j->cell];
    const struct timespec nap = {0, 100000000};
    char why[400];
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : ERR_INTERNAL;
    j->pid = 0;
    if (q->stopping || (WIFEXITED(status) && code == ERR_STOPPED)) {
        q->stopping = 1;
        return 0;
    }
    reason(why, q, cell, status);
    if (code == ERR_BUSY && strstr(why, "[P08]") && ++j->tries < BUSY_TRIES) {
        /* the run of a plan that was killed a moment ago */
        nanosleep(&nap, NULL);
        return start(q, j, e);
    }
    q->n_done++;
    q->done += cell->steps;
    if (code == 0)
        return tell_finished(q, cell, e);
    q->code = q->code ? q->code : code;
    report_line(console_report(q->p->c), REPORT_WARNING, NULL, NULL, "run %d of %d, %s failed: %s", q->n_done,
                q->n_all, cell->name, why);
    return compare_cell_failed(cell, why, e);
}

/* ---- the queue ------------------------------------------------------------------------------------- */

static int read_devices(struct queue *q, struct error *e)
{
    const size_t cap = sizeof q->devices[0];
    for (const char *at = q->p->c->device; at;) {
        size_t n = q->n_devices < MAX_DEVICES ? text_next(q->devices[q->n_devices++], cap, &at) : 0;
        if (n == 0 || n >= cap) {
            fail(e, ERR_CONFIG, "C02", "\"%.60s\", allowed up to %d devices with commas", q->p->c->device,
                 MAX_DEVICES);
            return fail_in(e, "--device");
        }
    }
    return 0;
}

/* Marks the cells to be run: without scores, and of this part. Results of other settings stop everything. */
static int choose_cells(struct queue *q, struct error *e)
{
    int64_t part, parts;
    if (part_parse(&part, &parts, q->p->c->part, e) < 0 ||
        !(q->wanted = mem_alloc(e, (size_t)q->p->n_cells + 1, 1)))
        return -1;
    for (int i = 0; i < q->p->n_cells; i++) {
        struct compare_run r;
        int found = plan_result(&r, q->p, &q->p->cells[i], q->p->cells[i].result, e);
        if (found < 0)
            return -1;
        q->wanted[i] = (found == 0 || r.error) && i % parts == part - 1;
        compare_run_free(&r);
        q->n_all += q->wanted[i];
        q->total += q->wanted[i] ? q->p->cells[i].steps : 0;
    }
    return 0;
}

/* Every case to score on is read once: a bad one would be noticed when the first run has trained. */
static int check_held(const struct plan *p, struct error *e)
{
    struct volume_request request = config_request(p->c);
    int result = 0;
    for (int i = 0; i < p->held.n_cases && result == 0; i++) {
        const struct data_case *k = &p->held.cases[i];
        struct volume image = {0}, label = {0};
        if (dataset_load_image(&image, &p->held, k, &request, e) < 0 ||
            plan_truth(&label, p, k, &image, &request, e) < 0)
            result = -1;
        volume_free(&image);
        volume_free(&label);
    }
    return result;
}

/* Lists and prepared scans of every view that is needed, before any run looks at them. */
static int prepare_views(struct queue *q, struct error *e)
{
    struct pool *pool = NULL;
    int result = pool_new(&pool, (int)q->p->c->threads, e);
    for (int i = 0; i < q->p->n_cells && result == 0; i++) {
        struct config train;
        int seen = 0;
        if (!q->wanted[i] || (result = plan_train_config(&train, &q->p->cells[i], e)) < 0)
            continue;
        for (int k = 0; k < i && !seen; k++) /* same view, same place of its scans: the last words */
            seen = q->wanted[k] && q->p->cells[k].view == q->p->cells[i].view &&
                   strcmp(q->p->cells[k].words[q->p->cells[k].n_words - 1],
                          q->p->cells[i].words[q->p->cells[i].n_words - 1]) == 0;
        if (!seen)
            result = plan_view_ready(q->p, &q->p->views[q->p->cells[i].view], &train, 1, pool, e);
        config_free(&train);
    }
    pool_free(pool);
    return result;
}

static int fill_slots(struct queue *q, struct error *e)
{
    for (int i = 0; i < q->n_jobs && !q->stopping; i++) {
        while (q->next < q->p->n_cells && !q->wanted[q->next])
            q->next++;
        if (q->jobs[i].pid || q->next == q->p->n_cells)
            continue;
        q->jobs[i] = (struct job){.cell = q->next++};
        progress_skip(q->line, steps_of(&q->p->cells[q->jobs[i].cell]));
        if (io_check_locked(q->p->lock, q->p->c->output, e) < 0 || start(q, &q->jobs[i], e) < 0)
            return -1;
    }
    return 0;
}

static void stop_all(struct queue *q)
{
    for (int i = 0; i < q->n_jobs; i++)
        if (q->jobs[i].pid)
            kill(q->jobs[i].pid, SIGTERM);
    q->stopping = 1;
}

/* Waits for what is running; returns how many processes are left, or -1. */
static int look_around(struct queue *q, struct error *e)
{
    int left = 0;
    for (int i = 0; i < q->n_jobs; i++) {
        int status;
        if (!q->jobs[i].pid)
            continue;
        pid_t ended = waitpid(q->jobs[i].pid, &status, WNOHANG);
        if (ended == q->jobs[i].pid && finish(q, &q->jobs[i], status, e) < 0)
            return -1;
        left += q->jobs[i].pid != 0;
    }
    return left;
}

static int run_queue(struct queue *q, struct error *e)
{
    const struct timespec nap = {0, 20000000};
    int left = 1;
    while (left > 0) {
        if (stop_requested() && !q->stopping)
            stop_all(q);
        left = fill_slots(q, e) < 0 ? -1 : look_around(q, e);
        if (left < 0)
            break;
        left += !q->stopping && q->next < q->p->n_cells;
        show_progress(q);
        if (left > 0)
            nanosleep(&nap, NULL);
    }
    if (left >= 0 && !q->stopping)
        return 0;
    struct error why = e->code ? *e : (struct error){.code = ERR_NONE};
    stop_all(q);
    while (look_around(q, &(struct error){.code = ERR_NONE}) > 0)
        nanosleep(&nap, NULL);
    if (left < 0)
        *e = why;
    return left < 0 ? -1 : fail(e, ERR_STOPPED, "P11", "stopped; the same command goes on");
}

int compare_jobs(int *code, struct plan *p, struct error *e)
{
    struct queue q = {.p = p, .n_jobs = (int)p->c->jobs};
    char *logs = path_join(e, p->c->output, "logs"), number[24];
    int result = -1;
    e->code = ERR_NONE;
    if (!logs || read_devices(&q, e) < 0 || choose_cells(&q, e) < 0)
        goto out;
    if (q.n_jobs > q.n_all)
        q.n_jobs = q.n_all;
    result = q.n_all == 0 ? 0 : check_held(p, e) < 0 ? -1 : prepare_views(&q, e);
    if (result < 0 || q.n_all == 0 || (result = io_make_folders(logs, e)) < 0 ||
        (result = child_find_self(&q.self, e)) < 0)
        goto out;
    snprintf(number, sizeof number, "%ld", (long)getpid());
    if (setenv(COMPARE_PLAN, number, 1) < 0)
        result = fail_errno(e, errno, COMPARE_PLAN);
    if (result < 0)
        goto out;
    report_line(console_report(p->c), REPORT_NOTE, NULL, NULL,
                "%d of %d runs to do, %d case%s to score, %d at a time", q.n_all, p->n_cells, p->held.n_cases,
                p->held.n_cases == 1 ? "" : "s", q.n_jobs);
    stop_polling(1);
    q.line = progress_begin(p->c, "compare", q.total);
    result = run_queue(&q, e);
    progress_label(q.line, "compare");
    progress_end(q.line);
    stop_polling(0);
out:
    *code = q.code;
    mem_free(q.wanted);
    mem_free(q.self);
    mem_free(logs);
    return result;
}
