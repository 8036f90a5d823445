/* compare_output.c - what a comparison leaves for its readers, from what is finished. See compare_int.h.
 *
 *     result.json of every cell -> struct comparison -> tables, figures/, pictures/, report.html
 *
 * Figures and pictures of an earlier state are removed first, so that the folder tells one state only. What
 * others keep in figures/ and pictures/ is left alone.
 */
#include <math.h>
#include <string.h>

#include "base/io.h"
#include "cli/compare_int.h"
#include "score/picture.h"

struct output {
    const struct plan *p;
    struct compare_run *runs; /* (n_cells) */
    char *here;               /* (n_cells) 1: has a result */
    struct comparison all;
    char about[400];
};

/* ---- from plan and results to a comparison --------------------------------------------------------- */

static int read_results(struct output *o, struct error *e)
{
    o->runs = mem_alloc(e, (size_t)o->p->n_cells, sizeof *o->runs);
    o->here = mem_alloc(e, (size_t)o->p->n_cells, 1);
    if (!o->runs || !o->here)
        return -1;
    for (int i = 0; i < o->p->n_cells; i++) {
        int found = plan_result(&o->runs[i], o->p, &o->p->cells[i], o->p->cells[i].result, e);
        if (found < 0)
            return -1;
        o->here[i] = (char)found;
    }
    return 0;
}

static int fill_line(struct compare_line *to, const struct output *o, const struct plan_line *from,
                     struct error *e)
{
    const struct plan_view *v = &o->p->views[from->view];
    to->title = from->title;
    to->method = from->paper;
    to->labeled = v->n_labeled;
    to->unlabeled = plan_is_supervised(from->spec) ? 0 : v->n_unlabeled; /* as the literature counts */
    to->reference = from->reference;
    to->n_seeds = o->p->n_seeds;
    to->runs = mem_alloc(e, (size_t)o->p->n_seeds, sizeof *to->runs);
    for (int s = 0; to->runs && s < to->n_seeds; s++)
        to->runs[s] = o->here[from->cells[s]] ? &o->runs[from->cells[s]] : NULL;
    return to->runs ? 0 : -1;
}

static int fill_tables(struct output *o, struct error *e)
{
    struct comparison *c = &o->all;
    if (!(c->tables = mem_alloc(e, (size_t)o->p->n_tables, sizeof *c->tables)))
        return -1;
    for (int t = 0; t < o->p->n_tables; t++) {
        const struct plan_table *from = &o->p->tables[t];
        struct compare_table *to = &c->tables[c->n_tables++];
        to->name = from->name;
        to->title = from->title;
        if (!(to->lines = mem_alloc(e, (size_t)from->n_lines + 1, sizeof *to->lines)))
            return -1;
        for (; to->n_lines < from->n_lines; to->n_lines++)
            if (fill_line(&to->lines[to->n_lines], o, &from->lines[to->n_lines], e) < 0)
                return -1;
    }
    return 0;
}

static void describe(struct output *o)
{
    const struct plan *p = o->p;
    snprintf(o->about, sizeof o->about,
             "%d case%s to train on, %d held out; %d seed%s; %lld steps a training phase unless a method "
             "says otherwise.",
             p->all.n_cases, p->all.n_cases == 1 ? "" : "s", p->held.n_cases, p->n_seeds,
             p->n_seeds == 1 ? "" : "s", (long long)p->c->set.steps);
    o->all.title = p->c->title;
    o->all.version = FALX_VERSION;
    o->all.about = o->about;
    o->all.published = p->c->published;
}

/* ---- an earlier state ------------------------------------------------------------------------------ */

/* BEFORE, a number, AFTER? */
static int is_numbered(const char *name, const char *before, const char *after)
{
    const char *number = name + (text_starts_with(name, before) ? strlen(before) : strlen(name));
    size_t n = strspn(number, "-0123456789");
    return n > 0 && strcmp(number + n, after) == 0;
}

static int is_chart(const char *name)
{
    int found = 0;
    for (int k = 0; k < CHART_COUNT; k++)
        found |= is_numbered(name, compare_chart_name((enum compare_chart)k), ".svg");
    return found;
}

static int is_group(const char *name)
{
    return is_numbered(name, "methods-L", "") || is_numbered(name, "parts-L", "");
}

/* What we made in this folder, temporary files of a process that was killed among it; then the folder, if
 * that was all. */
static void remove_ours(const char *folder, int (*is_ours)(const char *name))
{
    struct io_listing l;
    if (io_list(&l, folder, NULL) < 0)
        return;
    for (int i = 0; i < l.n; i++)
        if (is_ours(l.entry[i].name) || io_is_unfinished(l.entry[i].name)) {
            char *path = path_join(NULL, folder, l.entry[i].name);
            io_remove_tree(path);
            mem_free(path);
        }
    io_listing_free(&l);
    io_remove_empty(folder, strlen(folder));
}

/* ---- pictures -------------------------------------------------------------------------------------- */

enum { SHOWN = 3, MAX_COLUMNS = 28, SIDE = 7 }; /* cases; methods of a case, and side by side */

/* Masks of a case by all lines of a table that have one label count, and what is written above them. */
struct case_picture {
    struct volume image, truth;
    float *values;
    label_t *want, *masks[MAX_COLUMNS];
    const char *names[MAX_COLUMNS];
    char *notes[MAX_COLUMNS];
    int n;
};

static void picture_done(struct case_picture *k)
{
    for (int i = 0; i < k->n; i++) {
        mem_free(k->masks[i]);
        mem_free(k->notes[i]);
    }
    volume_free(&k->image);
    volume_free(&k->truth);
    mem_free(k->values);
    mem_free(k->want);
}

static int add_mask(struct case_picture *k, const struct output *o, const struct compare_line *l,
                    const struct compare_run *run, const char *name, struct error *e)
{
    struct volume mask = {0};
    struct volume_request request = config_request(o->p->c);
    double dice = NAN;
    char *path = mem_format(e, "%s/runs/%s/masks/%s.nii.gz", o->p->c->output, run->name, name);
    int result = path ? io_find(path, e) : -1;
    request.report = NULL;
    if (result != 1) { /* a result that came without its masks is not drawn */
        mem_free(path);
        return result;
    }
    result = 0;
    for (int i = 0; i < run->scores.n_cases; i++)
        if (strcmp(run->scores.names[i], name) == 0)
            dice = run->value[i][0];
    int at = k->n++;
    k->names[at] = l->title;
    k->notes[at] = isfinite(dice) ? mem_format(e, "Dice %.3f", dice) : mem_string(e, "");
    if (volume_read(&mask, path, &request, e) < 0)
        result = -1;
    else if (memcmp(mask.dims, k->truth.dims, 3 * sizeof *mask.dims) != 0)
        result = fail(e, ERR_DATA, "L02", "%.200s: of another shape than the truth", path);
    else
        result = volume_labels(&k->masks[at], NULL, &mask, e);
    volume_free(&mask);
    mem_free(path);
    return result < 0 || !k->notes[at] ? -1 : 0;
}

static int load_case(struct case_picture *k, const struct output *o, const struct compare_table *t,
                     int64_t labeled, const struct data_case *c, struct error *e)
{
    struct volume_request request = config_request(o->p->c);
    request.report = NULL;
    if (dataset_load_image(&k->image, &o->p->held, c, &request, e) < 0 ||
        plan_truth(&k->truth, o->p, c, &k->image, &request, e) < 0 ||
        volume_floats(&k->values, &k->image, 0, NAN_ZERO, e) < 0 ||
        volume_labels(&k->want, NULL, &k->truth, e) < 0)
        return -1;
    for (int l = 0; l < t->n_lines && k->n < MAX_COLUMNS; l++) {
        const struct compare_run *r = NULL;
        for (int s = 0; s < t->lines[l].n_seeds && !r; s++)
            r = t->lines[l].runs[s] && !t->lines[l].runs[s]->error ? t->lines[l].runs[s] : NULL;
        if (r && t->lines[l].labeled == labeled && add_mask(k, o, &t->lines[l], r, c->name, e) < 0)
            return -1;
    }
    return 0;
}

/* The k-th picture of a case: at most SIDE methods, so that each can be seen. */
static int draw_some(const struct case_picture *k, int first, const char *title, const char *folder,
                     struct error *e)
{
    struct picture picture = {0};
    int n = k->n - first < SIDE ? k->n - first : SIDE;
    char part[16] = "";
    snprintf(part, sizeof part, "-%d", first / SIDE + 1);
    char *path = mem_format(e, "%s/%s%s.png", folder, title, k->n > SIDE ? part : "");
    struct columns all = {.dims = {k->truth.dims[0], k->truth.dims[1], k->truth.dims[2]},
                          .geometry = &k->truth.geometry,
                          .image = k->values,
                          .truth = k->want,
                          .title = title,
                          .n = n,
                          .names = k->names + first,
                          .notes = (const char *const *)k->notes + first,
                          .masks = (const label_t *const *)k->masks + first};
    int result = path ? picture_draw_columns(&picture, &all, e) : -1;
    if (result == 0)
        result = picture_write(&picture, path, e);
    picture_free(&picture);
    mem_free(path);
    return result;
}

static int draw_case(const struct output *o, const struct compare_table *t, int64_t labeled,
                     const struct data_case *c, const char *folder, struct error *e)
{
    struct case_picture k = {.n = 0};
    int result = load_case(&k, o, t, labeled, c, e);
    if (result == 0 && k.n > 0)
        result = io_make_folders(folder, e);
    for (int first = 0; first < k.n && result == 0; first += SIDE)
        result = draw_some(&k, first, c->name, folder, e);
    picture_done(&k);
    return result;
}

/* The best, the middle and the worst case of the line that others are tested against, by Dice. */
static int choose_cases(int shown[SHOWN], const struct output *o, const struct compare_table *t,
                        int64_t labeled)
{
    const struct compare_line *by = NULL;
    const struct comparison *c = &o->all;
    int n = 0, order[SHOWN] = {0, 0, 0}, m = 0;
    for (int l = 0; l < t->n_lines; l++)
        if (t->lines[l].n_done > 0 && t->lines[l].labeled == labeled && (!by || t->lines[l].reference == l))
            by = &t->lines[l];
    for (int i = 0; by && i < c->n_cases; i++)
        m += isfinite(by->cases[i][0]);
    order[1] = m / 2;
    order[2] = m - 1;
    for (int want = 0; want < SHOWN && m > 0; want++)
        for (int i = 0; i < c->n_cases; i++) { /* the case with rank order[want] */
            int rank = 0, again = 0;
            for (int k = 0; k < c->n_cases; k++)
                rank += by->cases[k][0] > by->cases[i][0] || (by->cases[k][0] == by->cases[i][0] && k < i);
            for (int k = 0; k < n; k++)
                again |= shown[k] == i;
            if (isfinite(by->cases[i][0]) && rank == order[want] && !again)
                shown[n++] = i;
        }
    return n;
}

/* A folder a table and number of labels. */
static int draw_table(const struct output *o, const struct compare_table *t, const char *root,
                      struct error *e)
{
    for (int l = 0; l < t->n_lines; l++) {
        int64_t labeled = t->lines[l].labeled;
        int shown[SHOWN], first = 1, result = 0;
        for (int k = 0; k < l; k++)
            first &= t->lines[k].labeled != labeled;
        int n = first ? choose_cases(shown, o, t, labeled) : 0;
        char *folder = mem_format(e, "%s/%s-L%lld", root, t->name, (long long)labeled);
        for (int i = 0; folder && i < n && result == 0; i++)
            for (int k = 0; k < o->p->held.n_cases && result == 0; k++)
                if (strcmp(o->p->held.cases[k].name, o->all.cases[shown[i]]) == 0)
                    result = draw_case(o, t, labeled, &o->p->held.cases[k], folder, e);
        mem_free(folder);
        if (!folder || result < 0)
            return -1;
    }
    return 0;
}

/* Methods, and of the ablations the parts of AUA, as the paper has them. */
static int draw_pictures(const struct output *o, const char *root, struct error *e)
{
    remove_ours(root, is_group);
    for (int t = 0; t < o->all.n_tables; t++)
        if ((t == 0 || strcmp(o->all.tables[t].name, "parts") == 0) &&
            draw_table(o, &o->all.tables[t], root, e) < 0)
            return -1;
    return 0;
}

/* ---- charts and page ------------------------------------------------------------------------------- */

/* NAME-1.svg, NAME-2.svg, ... */
static int write_charts(const struct comparison *c, const char *folder, struct error *e)
{
    remove_ours(folder, is_chart);
    if (io_make_folders(folder, e) < 0)
        return -1;
    for (int k = 0; k < CHART_COUNT; k++)
        for (int i = 0;; i++) {
            struct html h = {0};
            const char *name = compare_chart_name((enum compare_chart)k);
            int drawn = compare_draw(&h, c, (enum compare_chart)k, i, 1, e);
            char *path = mem_format(e, "%s/%s-%d.svg", folder, name, i + 1);
            int result = drawn > 0 ? html_write(&h, path, e) : drawn;
            html_drop(&h);
            mem_free(path);
            if (result < 0)
                return -1;
            if (drawn == 0)
                break;
        }
    return 0;
}

static int write_page(const struct output *o, const char *pictures, const char *path, struct error *e)
{
    struct report_pictures shown = {0};
    struct html h = {0};
    int result = io_is_folder(pictures) ? report_pictures_read(&shown, pictures, e) : 0;
    if (result == 0)
        result = compare_page(&h, &o->all, &shown, e);
    if (result == 0)
        result = html_write(&h, path, e);
    html_drop(&h);
    report_pictures_free(&shown);
    return result;
}

/* runs/ first, also without any run: it tells the next start that the tables are those of a plan. */
static int write_all(struct output *o, struct error *e)
{
    const char *dir = o->p->c->output;
    char *runs = path_join(e, dir, "runs"), *figures = path_join(e, dir, "figures");
    char *pictures = path_join(e, dir, "pictures"), *page = path_join(e, dir, "report.html");
    int result = runs && figures && pictures && page ? io_make_folders(runs, e) : -1;
    if (result == 0)
        result = compare_write_tables(&o->all, dir, e);
    if (result == 0)
        result = write_charts(&o->all, figures, e);
    if (result == 0)
        result = draw_pictures(o, pictures, e);
    if (result == 0)
        result = write_page(o, pictures, page, e);
    mem_free(runs);
    mem_free(figures);
    mem_free(pictures);
    mem_free(page);
    return result;
}

static void output_free(struct output *o)
{
    compare_done(&o->all);
    for (int t = 0; t < o->all.n_tables; t++) {
        for (int l = 0; l < o->all.tables[t].n_lines; l++)
            mem_free(o->all.tables[t].lines[l].runs);
        mem_free(o->all.tables[t].lines);
    }
    mem_free(o->all.tables);
    for (int i = 0; o->runs && i < o->p->n_cells; i++)
        compare_run_free(&o->runs[i]);
    mem_free(o->runs);
    mem_free(o->here);
}

int compare_output(int *finished, const struct plan *p, struct error *e)
{
    struct output o = {.p = p};
    describe(&o);
    int result = read_results(&o, e);
    if (result == 0)
        result = fill_tables(&o, e);
    if (result == 0)
        result = compare_summarise(&o.all, e);
    if (result == 0)
        result = write_all(&o, e);
    *finished = 0;
    for (int i = 0; i < p->n_cells && result == 0; i++)
        *finished += o.here[i] && !o.runs[i].error;
    output_free(&o);
    return result;
}
