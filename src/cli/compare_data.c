/* compare_data.c - the cases of a comparison: held out, labelled, unlabelled, prepared. See compare_int.h.
 *
 *     DATASET = held out (--test) + test cases of its own, which nobody sees + cases to train on
 *     view    = the first N labels of the latter, all or a share of the others as unlabelled cases
 *
 * Views are list files, which `falx train` takes by --labeled and --leave-out. Raw scans are prepared once a
 * view, with the labels of that view only, and all its trainings share the result.
 */
#include <math.h>
#include <string.h>

#include "base/io.h"
#include "cli/compare_int.h"
#include "cli/train_data.h"

/* ---- held-out cases -------------------------------------------------------------------------------- */

/* Cases named in a file; each must have a label. */
static int mark_listed(char *mark, const struct dataset *d, const char *path, int follow, struct error *e)
{
    int n = dataset_mark_listed(mark, d, path, follow, e);
    for (int i = 0; i < d->n_cases && n > 0; i++)
        if (mark[i] && !d->cases[i].label)
            return fail(e, ERR_CONFIG, "C03", "no case with a label is called \"%.80s\"", d->cases[i].name);
    return n == 0 ? fail(e, ERR_CONFIG, "C03", "a list without names") : n < 0 ? -1 : 0;
}

static int mark_own_test(char *mark, const struct dataset *d, struct error *e)
{
    int n = 0;
    for (int i = 0; i < d->n_cases; i++)
        n += mark[i] = d->cases[i].split == SPLIT_TEST && d->cases[i].label;
    if (n == 0)
        return fail(e, ERR_CONFIG, "C03",
                    "this data set has no test cases with labels; --test N holds out "
                    "its last N labelled cases");
    return 0;
}

static int choose_held_out(char *mark, const struct plan *p, struct error *e)
{
    const char *test = p->c->held_out;
    int64_t wanted;
    int result;
    if (!test)
        return mark_own_test(mark, &p->all, e) < 0 ? fail_in(e, p->c->args[0]) : 0;
    if (parse_int(&wanted, test) == 0)
        result = dataset_mark_last(mark, &p->all, wanted, e);
    else
        result = mark_listed(mark, &p->all, test, p->c->follow, e);
    return result < 0 ? fail_in(e, "--test") : 0;
}

/* Whether a scan of `a` is a scan of `b`, by whatever name; *which: of a. */
static int share_a_scan(int *which, const struct dataset *a, const struct dataset *b)
{
    for (int i = 0; i < a->n_cases; i++)
        for (int k = 0; k < b->n_cases; k++)
            if (io_is_same(a->cases[i].images[0], b->cases[k].images[0])) {
                *which = i;
                return 1;
            }
    return 0;
}

/* Another data set: all of its cases that have a label. */
static int open_test_set(struct plan *p, struct error *e)
{
    struct dataset_options o = config_dataset(p->c);
    int n = 0;
    if (dataset_open(&p->held, p->c->held_out, &o, e) < 0)
        return -1;
    char *keep = mem_alloc(e, (size_t)p->held.n_cases, 1);
    if (!keep)
        return -1;
    for (int i = 0; i < p->held.n_cases; i++)
        n += keep[i] = p->held.cases[i].label != NULL;
    dataset_keep(&p->held, keep);
    mem_free(keep);
    if (n == 0)
        fail(e, ERR_CONFIG, "C03", "no case with a label in %.200s", p->c->held_out);
    else if (share_a_scan(&n, &p->held, &p->all))
        fail(e, ERR_DATA, "L09", "\"%.80s\" is one of the cases to train on", p->held.cases[n].name);
    else
        return 0;
    return fail_in(e, "--test");
}

/* From now on p->all holds what may be trained on, p->dropped the names of the rest. */
static int drop_marked(struct plan *p, char *mark, struct error *e)
{
    p->dropped = mem_alloc(e, (size_t)p->all.n_cases + 1, sizeof *p->dropped);
    if (!p->dropped)
        return -1;
    for (int i = 0; i < p->all.n_cases; i++) {
        mark[i] = !mark[i] && p->all.cases[i].split == SPLIT_TRAIN;
        if (!mark[i] && !(p->dropped[p->n_dropped++] = mem_string(e, p->all.cases[i].name)))
            return -1;
    }
    dataset_keep(&p->all, mark);
    return 0;
}

int plan_open_data(struct plan *p, struct error *e)
{
    struct dataset_options o = config_dataset(p->c);
    const char *test = p->c->held_out;
    int64_t number;
    int elsewhere =
        test && parse_int(&number, test) < 0 && (io_is_folder(test) || text_ends_with(test, ".json"));
    if (dataset_open(&p->all, p->c->args[0], &o, e) < 0)
        return -1;
    char *mark = mem_alloc(e, (size_t)p->all.n_cases, 1);
    int result = -1;
    if (!mark || (elsewhere ? open_test_set(p, e) : choose_held_out(mark, p, e)) < 0)
        goto out;
    o.report = NULL; /* all was told the first time */
    if (!elsewhere && dataset_open(&p->held, p->c->args[0], &o, e) < 0)
        goto out;
    if (!elsewhere)
        dataset_keep(&p->held, mark);
    result = drop_marked(p, mark, e);
out:
    mem_free(mark);
    return result;
}

/* ---- views ----------------------------------------------------------------------------------------- */

static int count_view(struct plan_view *v, const struct plan *p, struct error *e)
{
    int have = 0;
    for (int i = 0; i < p->all.n_cases; i++)
        have += p->all.cases[i].label != NULL;
    if (have == 0)
        return fail(e, ERR_CONFIG, "C03", "no case with a label is left to learn from: all are held out");
    if (v->labels > have) {
        fail(e, ERR_CONFIG, "C03", "%lld, but %d labelled case%s not held out", (long long)v->labels, have,
             have == 1 ? " is" : "s are");
        return fail_in(e, "--labels");
    }
    v->n_labeled = v->labels ? (int)v->labels : have;
    int others = p->all.n_cases - v->n_labeled;
    v->n_unlabeled = (int)lround(v->share * others);
    if (v->n_unlabeled == 0 && others > 0 && v->share > 0)
        v->n_unlabeled = 1;
    return 0;
}

int plan_view_find(int *out, struct plan *p, int64_t labels, double share, struct error *e)
{
    const char *root = p->c->cache;
    for (*out = 0; *out < p->n_views; (*out)++)
        if (p->views[*out].labels == labels && p->views[*out].share == share)
            return 0;
    struct plan_view *more = mem_resize(e, p->views, (size_t)p->n_views + 1, sizeof *more);
    if (!more)
        return -1;
    p->views = more;
    struct plan_view *v = &more[p->n_views++];
    *v = (struct plan_view){.labels = labels, .share = share};
    char number[24] = "all", part[32] = "";
    if (labels)
        snprintf(number, sizeof number, "%lld", (long long)labels);
    if (share != 1)
        snprintf(part, sizeof part, "-U%g", share);
    v->name = mem_format(e, "L%s%s", number, part);
    if (!v->name || count_view(v, p, e) < 0)
        return -1;
    v->folder = root ? path_join(e, root, v->name) : mem_format(e, "%s/views/%s", p->c->output, v->name);
    v->labeled = v->folder ? path_join(e, v->folder, "labeled.list") : NULL;
    v->left_out = v->folder ? path_join(e, v->folder, "left-out.list") : NULL;
    return v->labeled && v->left_out ? 0 : -1;
}

/* Writes a list unless the file says the same already: a run that is on its way may be reading it. */
static int write_list(const char *path, char *const *names, int n, struct error *e)
{
    struct error ignored;
    size_t bytes = 1, at = 0;
    char *text, *old = NULL;
    for (int i = 0; i < n; i++)
        bytes += strlen(names[i]) + 1;
    if (!(text = mem_alloc(e, bytes, 1))) /* and a NUL */
        return -1;
    for (int i = 0; i < n; i++)
        at += (size_t)snprintf(text + at, bytes - at, "%s\n", names[i]);
    int same =
        io_exists(path) && io_read_text(&old, NULL, path, 1 << 26, &ignored) == 0 && strcmp(old, text) == 0;
    int result = same ? 0 : io_write_all(path, 0666, text, bytes - 1, e);
    mem_free(old);
    mem_free(text);
    return result;
}

static int write_lists(const struct plan *p, const struct plan_view *v, struct error *e)
{
    char **labeled = mem_alloc(e, (size_t)p->all.n_cases + 1, sizeof *labeled);
    char **out = mem_alloc(e, (size_t)(p->all.n_cases + p->n_dropped) + 1, sizeof *out);
    int n = 0, n_out = 0, unlabeled = 0, result = -1;
    if (!labeled || !out)
        goto out;
    for (; n_out < p->n_dropped; n_out++)
        out[n_out] = p->dropped[n_out];
    for (int i = 0; i < p->all.n_cases; i++) {
        char *name = p->all.cases[i].name;
        if (p->all.cases[i].label && n < v->n_labeled)
            labeled[n++] = name;
        else if (unlabeled++ >= v->n_unlabeled)
            out[n_out++] = name;
    }
    if (io_make_folders(v->folder, e) == 0 && write_list(v->labeled, labeled, n, e) == 0)
        result = write_list(v->left_out, out, n_out, e);
out:
    mem_free(labeled);
    mem_free(out);
    return result;
}

/* Folder of a view's prepared scans; NULL without an error: they need no preparation. */
static char *prepared_folder(const struct plan *p, const struct plan_view *v, const struct config *train,
                             struct error *e)
{
    const char *recipe = train_recipe(train, &p->all);
    int fair = text_starts_with(recipe, "paper-") && train->crop == CROP_RULE_FAIR;
    e->code = ERR_NONE;
    return strcmp(recipe, "none") == 0 ? NULL
                                       : mem_format(e, "%s/%s%s", v->folder, recipe, fair ? "-fair" : "");
}

int plan_view_words(char *words[4], int *n, const struct plan *p, const struct plan_view *v,
                    const struct config *train, struct error *e)
{
    char *folder = prepared_folder(p, v, train, e);
    *n = 0;
    if (e->code)
        return -1;
    if (folder) {
        words[(*n)++] = folder;
        return 0;
    }
    words[(*n)++] = mem_string(e, p->c->args[0]);
    words[(*n)++] = mem_format(e, "--labeled=%s", v->labeled);
    words[(*n)++] = mem_format(e, "--leave-out=%s", v->left_out);
    return words[0] && words[1] && words[2] ? 0 : -1;
}

int plan_view_ready(const struct plan *p, const struct plan_view *v, const struct config *train, int again,
                    struct pool *pool, struct error *e)
{
    struct dataset_options o = config_dataset(p->c);
    struct dataset d = {0};
    struct prepare_summary done;
    struct config shared = *train;
    char *folder = prepared_folder(p, v, train, e), *json = NULL;
    size_t missing = io_missing(v->folder);
    int result = e->code ? -1 : write_lists(p, v, e);
    if (result < 0 || !folder)
        goto out;
    json = path_join(e, folder, "prepared.json");
    result = json ? 0 : -1;
    if (result < 0 || (!again && io_exists(json)))
        goto out;
    shared.set.seed = p->c->set.seed; /* not that of whichever run comes first */
    o.labeled = v->labeled;
    o.leave_out = v->left_out;
    o.report = NULL; /* all was told when the plan was made */
    result = dataset_open(&d, p->c->args[0], &o, e);
    if (result == 0)
        result = train_prepare(&done, &shared, &d, train_recipe(train, &d), folder, pool, e);
out:
    if (result < 0 && missing) { /* made for nothing */
        io->unlink(v->labeled);
        io->unlink(v->left_out);
        io_remove_empty(v->folder, missing);
    }
    dataset_free(&d);
    mem_free(folder);
    mem_free(json);
    return result;
}

int plan_truth(struct volume *out, const struct plan *p, const struct data_case *k, const struct volume *scan,
               const struct volume_request *r, struct error *e)
{
    if (dataset_load_label(out, &p->held, k, r, e) < 0)
        return -1;
    if (dataset_match_label(&p->held, k, scan, out, e) == 0)
        return 0;
    volume_free(out);
    return -1;
}
