/* verb_compare.c - `falx compare DATASET -o DIR`: a plan of runs, and what came of it.
 *
 *     plan -> lock DIR -> take over finished runs (--merge) -> queue of processes -> tables, figures, page
 *
 * The unit of resume is a finished run: the same command, started again after any interruption, goes on with
 * the runs that are missing, those that were begun where they were, and ends in the same tables.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/io.h"
#include "cli/compare_int.h"

/* Without the plan that started it a run would work for nobody, and in the way of the next plan: it dies with
 * its parent, also if that is dead already. By hand (--cell without a plan) a run is its own master. */
static int follow_plan(struct error *e)
{
    const char *plan = getenv(COMPARE_PLAN);
    int64_t pid;
    if (!plan || parse_int(&pid, plan) < 0)
        return 0;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != (pid_t)pid)
        return fail(e, ERR_STOPPED, "P11", "the plan that started this run is gone");
    return 0;
}

/* With --cell: the run of that name in this process. */
static int run_cell(const struct plan *p, struct error *e)
{
    for (int i = 0; i < p->n_cells; i++)
        if (strcmp(p->cells[i].name, p->c->cell) == 0)
            return compare_cell(p, &p->cells[i]);
    fail(e, ERR_CONFIG, "C02", "no run of this plan is called \"%.80s\"", p->c->cell);
    fail_in(e, "--cell");
    return complain(e);
}

/* What a killed plan was writing; runs clear their own folders. */
static int sweep(const struct plan *p, struct error *e)
{
    int result = io_sweep(p->c->output, e);
    for (int i = 0; i < p->n_views && result == 0; i++)
        if (io_is_folder(p->views[i].folder))
            result = io_sweep(p->views[i].folder, e);
    return result;
}

/* Refuses a folder with somebody else's tables or page: a plan writes its own only where runs/ is. */
static int spare_others(const char *dir, struct error *e)
{
    static const char *const written[] = {"results.md", "results.csv", "results.tex", "cost.md",
                                          "cost.csv",   "cost.tex",    "cases.csv",   "report.html"};
    char *runs = path_join(e, dir, "runs");
    int result = runs ? 0 : -1, is_plan = runs && io_is_folder(runs);
    mem_free(runs);
    for (size_t i = 0; i < sizeof written / sizeof *written && result == 0 && !is_plan; i++) {
        char *path = path_join(e, dir, written[i]);
        if (!path)
            return -1;
        if (io_exists(path)) {
            fail(e, ERR_CONFIG, "O03", "holds %s, but no runs/ of a plan; choose another folder", written[i]);
            result = fail_in(e, dir);
        }
        mem_free(path);
    }
    return result;
}

static int run_plan(struct plan *p, struct error *e)
{
    const char *dir = p->c->output;
    size_t missing = io_missing(dir);
    int merged = 0, finished = 0, code = 0, result;
    if (spare_others(dir, e) < 0 || io_make_folders(dir, e) < 0 || io_lock_folder(&p->lock, dir, e) < 0)
        return complain(e);
    result = sweep(p, e);
    if (result == 0 && p->c->merge)
        result = compare_merge(&merged, p, e);
    if (result == 0 && p->c->merge)
        report_line(console_report(p->c), REPORT_NOTE, NULL, NULL, "%d finished run%s taken over", merged,
                    merged == 1 ? "" : "s");
    if (result == 0 && !p->c->tables_only)
        result = compare_jobs(&code, p, e);
    if (result == 0)
        result = io_check_locked(p->lock, dir, e);
    if (result == 0)
        result = compare_output(&finished, p, e);
    if (result < 0)
        io_remove_empty(dir, missing); /* a plan that was refused leaves nothing */
    io_unlock_folder(p->lock);
    if (result < 0)
        return complain(e);
    if (!p->c->quiet)
        printf("%s: %d of %d runs in %d table%s: results.md, cost.md, report.html\n", dir, finished,
               p->n_cells, p->n_tables, p->n_tables == 1 ? "" : "s");
    return code;
}

int verb_compare(struct config *c)
{
    struct error e = {.code = ERR_NONE};
    struct plan p;
    int code;
    memset(&p, 0, sizeof p);
    if ((c->cell && follow_plan(&e) < 0) || plan_make(&p, c, &e) < 0)
        code = complain(&e);
    else
        code = c->cell ? run_cell(&p, &e) : run_plan(&p, &e);
    plan_free(&p);
    return code;
}
