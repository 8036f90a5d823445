/* compare_plan.c - which runs, and in which tables they stand. See compare_int.h.
 *
 * --methods is a list of specs (compare_spec.c), and so is every ablation. Each spec makes a line for each
 * number of labels, with a run for each seed; tables that need the same run share it.
 */
#include <string.h>

#include "cli/compare_int.h"
#include "train/method.h"

/* ---- ablations of AUA (the paper's, and the switches between paper and released code) -------------- */

static const struct ablation {
    const char *name, *title;
    struct {
        const char *title, *spec;
    } line[6];
    int reference; /* the line that the others are tested against */
} ablations[] = {
    {"parts",
     "Ablation: parts of AUA",
     {{"supervised", "supervised"},
      {"AUA", "aua:stages=1:lambda-c=0"},
      {"+ BCL", "aua:stages=1"},
      {"+ pseudo labels", "aua:lambda-r=0"},
      {"+ PCL", "aua"}},
     4},
    {"lambda-c",
     "Ablation: weight of the boundary-aware contrast",
     {{"0.03", "aua:lambda-c=0.03"},
      {"0.05", "aua:lambda-c=0.05"},
      {"0.07", "aua:lambda-c=0.07"},
      {"0.09", "aua:lambda-c=0.09"}},
     3},
    {"unlabeled",
     "Ablation: unlabelled cases",
     {{"a quarter", "aua:unlabeled=0.25"}, {"half", "aua:unlabeled=0.5"}, {"all", "aua"}},
     2},
    {"proto-ckpt",
     "Ablation: stage-1 weights that stage 2 builds on",
     {{"half-way", "aua:proto-ckpt=middle"}, {"last step", "aua:proto-ckpt=last"}},
     1},
    {"bcl-layout",
     "Ablation: features of the boundary-aware contrast",
     {{"each voxel's own", "aua:bcl-layout=correct"}, {"scrambled, as released", "aua:bcl-layout=official"}},
     0},
    {"text",
     "Ablation: our choices and the paper's text",
     {{"as configured", "aua"}, {"as the text says", "paper-text"}},
     0},
};
enum { N_ABLATIONS = sizeof ablations / sizeof *ablations };

/* ---- lists with commas ----------------------------------------------------------------------------- */

/* The next word of a list; -1: nothing there, or too long. */
static int next_word(char *out, size_t cap, const char **at)
{
    size_t n = text_next(out, cap, at);
    return n == 0 || n >= cap ? -1 : 0;
}

/* No name begins with a digit: a comma before one belongs to a value, as in "aua:patch=96,96,48,mt". */
static int next_spec(char *out, size_t cap, const char **at)
{
    const char *spec = *at;
    size_t n = text_next(out, cap, at);
    while (*at && **at >= '0' && **at <= '9')
        n += 1 + text_next(out, cap, at);
    snprintf(out, cap, "%.*s", (int)n, spec);
    return n == 0 || n >= cap ? -1 : 0;
}

/* "3": that many from --seed on; "1,5,9": these. */
static int read_seeds(struct plan *p, struct error *e)
{
    const char *text = p->c->seeds;
    int64_t count = 1, value;
    char word[32];
    int listed = strchr(text, ',') != NULL;
    if (!listed && (parse_int(&count, text) < 0 || count < 1 || count > 1000))
        return plan_wrong("--seeds", text, "a count 1..1000, or seeds with commas", e);
    for (const char *at = text; listed && (at = strchr(at, ',')); at++)
        count++;
    if (!(p->seeds = mem_alloc(e, (size_t)count, sizeof *p->seeds)))
        return -1;
    for (const char *at = text; p->n_seeds < count; p->n_seeds++) {
        if (listed && (next_word(word, sizeof word, &at) < 0 || parse_int(&value, word) < 0 || value < 0))
            return plan_wrong("--seeds", text, "a count 1..1000, or seeds with commas", e);
        p->seeds[p->n_seeds] = listed ? value : p->c->set.seed + p->n_seeds;
        for (int i = 0; i < p->n_seeds; i++)
            if (p->seeds[i] == p->seeds[p->n_seeds])
                return plan_wrong("--seeds", text, "each seed once", e);
    }
    return 0;
}

/* ---- tables ---------------------------------------------------------------------------------------- */

static struct plan_table *add_table(struct plan *p, const char *name, const char *title, struct error *e)
{
    struct plan_table *more = mem_resize(e, p->tables, (size_t)p->n_tables + 1, sizeof *more);
    if (!more)
        return NULL;
    p->tables = more;
    more[p->n_tables] = (struct plan_table){.name = name, .title = title};
    return &more[p->n_tables++];
}

/* A line and its cells; none where there is nothing for a method that needs unlabelled cases. */
static int add_line(struct plan *p, struct plan_table *t, const char *title, const char *spec, int64_t labels,
                    struct error *e)
{
    char shortest[200];
    double share;
    int view;
    if (plan_spec_share(&share, spec, e) < 0 || plan_view_find(&view, p, labels, share, e) < 0)
        return -1;
    if (p->views[view].n_unlabeled == 0 && !plan_is_supervised(spec))
        return 0;
    struct plan_line *more = mem_resize(e, t->lines, (size_t)t->n_lines + 1, sizeof *more);
    if (!more)
        return -1;
    t->lines = more;
    struct plan_line *l = &more[t->n_lines++];
    *l = (struct plan_line){.view = view, .reference = -1};
    l->title = mem_string(e, title);
    l->spec = mem_string(e, spec);
    l->paper = plan_spec_paper(spec, e);
    l->cells = mem_alloc(e, (size_t)p->n_seeds, sizeof *l->cells);
    if (!l->title || !l->spec || !l->paper || !l->cells)
        return -1;
    snprintf(shortest, sizeof shortest, "%s", spec);
    if (plan_spec_shorten(shortest, p, view, e) < 0)
        return -1;
    for (int s = 0; s < p->n_seeds; s++)
        if (plan_cell_find(&l->cells[s], p, shortest, view, p->seeds[s], e) < 0)
            return -1;
    return 0;
}

/* Lines from `first` on are tested against the one whose spec this is, if it is there. */
static void set_reference(struct plan_table *t, int first, const char *spec)
{
    int reference = -1;
    for (int l = first; l < t->n_lines; l++)
        reference = strcmp(t->lines[l].spec, spec) == 0 ? l : reference;
    for (int l = first; l < t->n_lines; l++)
        t->lines[l].reference = reference;
}

static int add_methods(struct plan *p, int64_t labels, struct error *e)
{
    struct plan_table *t = &p->tables[0];
    int first = t->n_lines;
    char spec[200];
    for (const char *at = p->c->methods; at;) {
        if (next_spec(spec, sizeof spec, &at) < 0)
            return plan_wrong("--methods", p->c->methods, "names with commas between", e);
        int all = strcmp(spec, "all") == 0;
        for (int i = 0; all && methods[i]; i++)
            if (add_line(p, t, methods[i]->name, methods[i]->name, labels, e) < 0)
                return -1;
        if (!all && add_line(p, t, spec, spec, labels, e) < 0)
            return -1;
    }
    set_reference(t, first, p->c->reference);
    return 0;
}

/* The default may be absent; a name that was given may not. */
static int check_reference(const struct config *c, struct error *e)
{
    char spec[200];
    int found = strcmp(c->reference, "aua") == 0;
    for (const char *at = c->methods; at && !found;)
        found = next_spec(spec, sizeof spec, &at) == 0 &&
                (strcmp(spec, c->reference) == 0 || (strcmp(spec, "all") == 0 && method_find(c->reference)));
    return found ? 0 : plan_wrong("--reference", c->reference, "one of --methods", e);
}

static int add_ablation(struct plan *p, const struct ablation *a, const int64_t *labels, int n_labels,
                        struct error *e)
{
    struct plan_table *t = add_table(p, a->name, a->title, e);
    if (!t)
        return -1;
    for (int k = 0; k < n_labels; k++) {
        int first = t->n_lines;
        for (int i = 0; i < 6 && a->line[i].spec; i++)
            if (add_line(p, t, a->line[i].title, a->line[i].spec, labels[k], e) < 0)
                return -1;
        set_reference(t, first, a->line[a->reference].spec);
    }
    return 0;
}

static int add_ablations(struct plan *p, const int64_t *labels, int n_labels, struct error *e)
{
    char word[32];
    for (const char *at = p->c->ablation; at;) {
        int found = 0;
        if (next_word(word, sizeof word, &at) < 0)
            word[0] = '\0';
        for (int i = 0; i < N_ABLATIONS; i++)
            if (strcmp(word, "all") == 0 || strcmp(word, ablations[i].name) == 0) {
                found = 1;
                if (add_ablation(p, &ablations[i], labels, n_labels, e) < 0)
                    return -1;
            }
        if (!found)
            return plan_wrong("--ablation", word,
                              "parts, lambda-c, unlabeled, proto-ckpt, bcl-layout, text, all", e);
    }
    return 0;
}

int plan_make(struct plan *out, const struct config *c, struct error *e)
{
    enum { MOST = 16 };
    int64_t labels[MOST];
    char word[32];
    int n = 0;
    memset(out, 0, sizeof *out);
    out->c = c;
    if (c->seed_drawn)
        return plan_wrong("--seed", "random", "a number: the same command must be the same plan", e);
    if (c->labeled || c->leave_out) /* from a config file */
        return fail(e, ERR_CONFIG, "C01",
                    "labeled and leave-out are not for compare: --labels and --test "
                    "say which cases are seen");
    for (const char *at = c->label_counts; at; n++) {
        int bad = n == MOST || next_word(word, sizeof word, &at) < 0;
        if (!bad && strcmp(word, "all") == 0)
            labels[n] = 0;
        else if (bad || parse_int(&labels[n], word) < 0 || labels[n] < 1)
            return plan_wrong("--labels", c->label_counts, "up to 16 counts with commas, and all", e);
    }
    if (check_reference(c, e) < 0 || read_seeds(out, e) < 0 || plan_open_data(out, e) < 0 ||
        !add_table(out, "methods", "Methods", e))
        return -1;
    for (int k = 0; k < n; k++)
        if (add_methods(out, labels[k], e) < 0)
            return -1;
    if (out->tables[0].n_lines == 0)
        return fail(e, ERR_CONFIG, "C03",
                    "nothing to do: no unlabelled case is left, and supervised is not "
                    "among --methods");
    return add_ablations(out, labels, n, e);
}

void plan_free(struct plan *p)
{
    for (int i = 0; i < p->n_cells; i++)
        plan_cell_free(&p->cells[i]);
    for (int i = 0; i < p->n_views; i++) {
        mem_free(p->views[i].name);
        mem_free(p->views[i].folder);
        mem_free(p->views[i].labeled);
        mem_free(p->views[i].left_out);
    }
    for (int t = 0; t < p->n_tables; t++) {
        for (int l = 0; l < p->tables[t].n_lines; l++) {
            mem_free(p->tables[t].lines[l].title);
            mem_free(p->tables[t].lines[l].spec);
            mem_free(p->tables[t].lines[l].paper);
            mem_free(p->tables[t].lines[l].cells);
        }
        mem_free(p->tables[t].lines);
    }
    for (int i = 0; i < p->n_dropped; i++)
        mem_free(p->dropped[i]);
    mem_free(p->dropped);
    mem_free(p->cells);
    mem_free(p->views);
    mem_free(p->tables);
    mem_free(p->seeds);
    dataset_free(&p->all);
    dataset_free(&p->held);
    memset(p, 0, sizeof *p);
}
