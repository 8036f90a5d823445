/* verb_compare.c - `falx compare DATASET -o DIR`: a plan of runs, and what came of it.
 *
 *     plan -> lock DIR -> take over finished runs (--merge) -> queue of processes -> tables, figures, page
 *
 * The unit of resume is a finished run: the same command, started again after any interruption, goes on with
 * the runs that are missing, those that were begun where they were, and ends in the same tables.
 */
#include <string.h>

#include "base/io.h"
#include "cli/compare.h"

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

static int run_plan(struct plan *p, struct error *e)
{
    const char *dir = p->c->output;
    size_t missing = io_missing(dir);
    int lock = -1, merged = 0, code = 0, result;
    if (io_make_folders(dir, e) < 0 || io_lock_folder(&lock, dir, e) < 0)
        return complain(e);
    result = p->c->merge ? compare_merge(&merged, p, e) : 0;
    if (result == 0 && p->c->merge)
        report_line(console_report(p->c), REPORT_NOTE, NULL, NULL, "%d finished run%s taken over", merged,
                    merged == 1 ? "" : "s");
    if (result == 0 && !p->c->tables_only)
        result = compare_jobs(&code, p, e);
    if (result == 0)
        result = compare_output(p, e);
    if (result < 0)
        io_remove_empty(dir, missing); /* a plan that was refused leaves nothing */
    io_unlock_folder(lock);
    if (result < 0)
        return complain(e);
    if (!p->c->quiet)
        printf("%s: %d runs in %d table%s: results.md, cost.md, report.html\n", dir, p->n_cells, p->n_tables,
               p->n_tables == 1 ? "" : "s");
    return code;
}

int verb_compare(struct config *c)
{
    struct error e = {.code = ERR_NONE};
    struct plan p;
    int code;
    if (plan_make(&p, c, &e) < 0)
        code = complain(&e);
    else
        code = c->cell ? run_cell(&p, &e) : run_plan(&p, &e);
    plan_free(&p);
    return code;
}
