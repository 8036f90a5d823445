/* compare_merge.c - finished runs of the same plan from other folders. See compare_int.h.
 *
 * A machine that did a part of the plan has left DIR/runs/CELL/result.json and masks/. They are copied, masks
 * first, so that a run is finished here when everything of it is here. What is finished here already stays.
 */
#include <limits.h>
#include <string.h>

#include "base/io.h"
#include "cli/compare_int.h"

static int copy_file(const char *to, const char *from, struct error *e)
{
    uint64_t bytes;
    int fd, result = -1;
    if (io_open_regular(&fd, &bytes, from, e) < 0)
        return fail_in(e, from);
    void *data = bytes <= SIZE_MAX ? mem_alloc(e, (size_t)bytes, 1) : NULL;
    if (data && io_read_full(fd, data, (size_t)bytes) == (ssize_t)bytes)
        result = io_write_all(to, 0666, data, (size_t)bytes, e);
    else if (data) {
        fail(e, ERR_SYSTEM, "Z12", "cannot be read to its end");
        fail_in(e, from);
    }
    mem_free(data);
    io->close(fd);
    return result;
}

static int copy_masks(const struct plan_cell *cell, const char *from, struct error *e)
{
    struct io_listing l = {0};
    char *to = NULL;
    int result = compare_masks_folder(&to, cell, e);
    if (result == 0 && io_is_folder(from))
        result = io_list(&l, from, e);
    for (int i = 0; i < l.n && result == 0; i++) {
        if (l.entry[i].is_folder || l.entry[i].name[0] == '.')
            continue;
        char *a = path_join(e, from, l.entry[i].name), *b = path_join(e, to, l.entry[i].name);
        result = a && b ? copy_file(b, a, e) : -1;
        mem_free(a);
        mem_free(b);
    }
    io_listing_free(&l);
    mem_free(to);
    return result;
}

/* 1 if the cell was finished in `folder` and is here now. */
static int take(const struct plan *p, const struct plan_cell *cell, const char *folder, struct error *e)
{
    struct compare_run r;
    char *result = mem_format(e, "%s/runs/%s/result.json", folder, cell->name);
    char *from = mem_format(e, "%s/runs/%s/masks", folder, cell->name);
    int found = result && from ? plan_result(&r, p, cell, result, e) : -1;
    if (found == 1) {
        found = r.error ? 0 : 1;
        compare_run_free(&r);
    }
    if (found == 1 && (copy_masks(cell, from, e) < 0 || copy_file(cell->result, result, e) < 0))
        found = -1;
    mem_free(result);
    mem_free(from);
    return found;
}

static int merge_folder(int *n, const struct plan *p, const char *folder, struct error *e)
{
    for (int i = 0; i < p->n_cells; i++) {
        struct compare_run mine;
        int found = plan_result(&mine, p, &p->cells[i], p->cells[i].result, e);
        int finished = found == 1 && !mine.error;
        compare_run_free(&mine);
        if (found >= 0 && !finished)
            *n += found = take(p, &p->cells[i], folder, e);
        if (found < 0)
            return -1;
    }
    return 0;
}

/* Is this a folder that a plan worked in? Its name may have been cut, or be none. */
static int check_folder(const char *folder, size_t length, struct error *e)
{
    int is_folder = length > 0 && length < PATH_MAX && io_is_folder(folder);
    char *runs = path_join(e, folder, "runs");
    if (!runs)
        return -1;
    int is_plan = is_folder && io_is_folder(runs);
    mem_free(runs);
    if (is_plan)
        return 0;
    fail(e, ERR_CONFIG, "C02", is_folder ? "\"%.200s\" holds no runs/ of a plan" : "\"%.200s\" is no folder",
         folder);
    return fail_in(e, "--merge");
}

int compare_merge(int *n, const struct plan *p, struct error *e)
{
    char folder[PATH_MAX];
    *n = 0;
    for (const char *at = p->c->merge; at;) { /* all are looked at before any is taken from */
        size_t length = text_next(folder, sizeof folder, &at);
        if (check_folder(folder, length, e) < 0)
            return -1;
    }
    for (const char *at = p->c->merge; at;) {
        text_next(folder, sizeof folder, &at);
        if (merge_folder(n, p, folder, e) < 0)
            return -1;
    }
    return 0;
}
