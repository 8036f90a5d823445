/* compare_plan.c - which runs, and in which tables they stand. See compare_int.h.
 *
 * A variant is written as a spec, NAME[:KEY=VALUE]...: a method or a preset with options of `falx train`
 * behind it; "unlabeled" is the share of unlabelled cases to use. --methods is a list of specs, and so is
 * every ablation. A cell is a spec, a view and a seed; tables that need the same cell share its run, also if
 * they say it with more words.
 */
#include <limits.h>
#include <string.h>

#include "cli/compare_int.h"
#include "cli/options.h"
#include "cli/train_data.h"

/* ---- ablations of AUA (the paper's, and the switches between paper and released code) -------------- */

static const struct ablation {
    const char *name, *title;
    struct {
        const char *title, *spec;
    } line[6];
    int reference; /* the line that the others are tested against */
} ablations[] = {
    {"parts", "Ablation: parts of AUA",
     {{"supervised", "supervised"}, {"AUA", "aua:stages=1:lambda-c=0"}, {"+ BCL", "aua:stages=1"},
      {"+ pseudo labels", "aua:lambda-r=0"}, {"+ PCL", "aua"}}, 4},
    {"lambda-c", "Ablation: weight of the boundary-aware contrast",
     {{"0.03", "aua:lambda-c=0.03"}, {"0.05", "aua:lambda-c=0.05"}, {"0.07", "aua:lambda-c=0.07"},
      {"0.09", "aua:lambda-c=0.09"}}, 3},
    {"unlabeled", "Ablation: unlabelled cases",
     {{"a quarter", "aua:unlabeled=0.25"}, {"half", "aua:unlabeled=0.5"}, {"all", "aua"}}, 2},
    {"proto-ckpt", "Ablation: stage-1 weights that stage 2 builds on",
     {{"half-way", "aua:proto-ckpt=middle"}, {"last step", "aua:proto-ckpt=last"}}, 1},
    {"bcl-layout", "Ablation: features of the boundary-aware contrast",
     {{"each voxel's own", "aua:bcl-layout=correct"},
      {"scrambled, as released", "aua:bcl-layout=official"}}, 0},
    {"text", "Ablation: our choices and the paper's text",
     {{"as configured", "aua"}, {"as the text says", "paper-text"}}, 0},
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

static int wrong(const char *option, const char *text, const char *allowed, struct error *e)
{
    fail(e, ERR_CONFIG, "C02", "\"%.60s\", allowed %s", text, allowed);
    return fail_in(e, option);
}

/* "3": that many from --seed on; "1,5,9": these. */
static int read_seeds(struct plan *p, struct error *e)
{
    const char *text = p->c->seeds;
    int64_t count = 1, value;
    char word[32];
    int listed = strchr(text, ',') != NULL;
    if (!listed && (parse_int(&count, text) < 0 || count < 1 || count > 1000))
        return wrong("--seeds", text, "a count 1..1000, or seeds with commas", e);
    for (const char *at = text; listed && (at = strchr(at, ',')); at++)
        count++;
    if (!(p->seeds = mem_alloc(e, (size_t)count, sizeof *p->seeds)))
        return -1;
    for (const char *at = text; p->n_seeds < count; p->n_seeds++) {
        if (listed && (next_word(word, sizeof word, &at) < 0 || parse_int(&value, word) < 0 || value < 0))
            return wrong("--seeds", text, "a count 1..1000, or seeds with commas", e);
        p->seeds[p->n_seeds] = listed ? value : p->c->set.seed + p->n_seeds;
        for (int i = 0; i < p->n_seeds; i++)
            if (p->seeds[i] == p->seeds[p->n_seeds])
                return wrong("--seeds", text, "each seed once", e);
    }
    return 0;
}

/* ---- cells ----------------------------------------------------------------------------------------- */

static int add_word(struct plan_cell *cell, char *word, struct error *e)
{
    char **more = word ? mem_resize(e, cell->words, (size_t)cell->n_words + 1, sizeof *more) : NULL;
    if (!more) {
        mem_free(word);
        return -1;
    }
    cell->words = more;
    more[cell->n_words++] = word;
    return 0;
}

/* Is this option of compare's command line handed on to its trainings as it is? */
static int is_handed_on(const char *word)
{
    static const char *const own[] = {"output", "seed", "cache", "device"}; /* set for each run */
    const char *name = word + 2;
    size_t n = strcspn(name, "=");
    const struct option_row *o = option_find(name, n, VERB_COMPARE);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (strlen(own[i]) == n && memcmp(own[i], name, n) == 0)
            return 0;
    return o && o->verbs & 1u << VERB_TRAIN && o->verbs & 1u << VERB_COMPARE;
}

/* May a spec set it, or is it the same for all runs: what is said and stopped at, how scans are read? */
static int is_open(const char *word)
{
    const struct option_row *o = option_find(word + 2, strcspn(word + 2, "="), VERB_COMPARE);
    return is_handed_on(word) && o->group != GROUP_GENERAL && o->group != GROUP_READING;
}

static int unknown_method(const char *word, struct error *e)
{
    char allowed[160];
    int at = snprintf(allowed, sizeof allowed, "presets and");
    for (int i = 0; methods[i] && at < (int)sizeof allowed - 1; i++)
        at += snprintf(allowed + at, sizeof allowed - (size_t)at, " %s", methods[i]->name);
    return wrong("--methods", word, allowed, e);
}

/* One KEY=VALUE of a spec. */
static int add_key(struct plan_cell *cell, double *share, const char *spec, const char *word, struct error *e)
{
    char option[220];
    snprintf(option, sizeof option, "--%s", word);
    if (text_starts_with(word, "unlabeled=")) {
        if (parse_real(share, strchr(word, '=') + 1) < 0 || !(*share >= 0 && *share <= 1))
            return wrong("--methods", spec, "unlabeled=0..1", e);
        return 0;
    }
    if (!strchr(word, '=') || !is_open(option))
        return wrong("--methods", spec, "NAME[:KEY=VALUE]... with options of train that the plan leaves open",
                     e);
    return cell ? add_word(cell, mem_string(e, option), e) : 0;
}

/* The words of a spec behind those of the command line (cell may be NULL); *share: of unlabelled cases. */
static int add_spec(struct plan_cell *cell, double *share, const char *spec, struct error *e)
{
    char word[200];
    size_t n = strcspn(spec, ":");
    snprintf(word, sizeof word, "%.*s", (int)(n < sizeof word ? n : 0), spec);
    const char *kind = method_find(word) ? "method" : preset_text(word) ? "preset" : NULL;
    if (!kind)
        return unknown_method(word, e);
    if (cell && add_word(cell, mem_format(e, "--%s=%s", kind, word), e) < 0)
        return -1;
    *share = 1;
    for (const char *at = spec + n; *at; at += n) {
        n = strcspn(++at, ":");
        snprintf(word, sizeof word, "%.*s", (int)(n < sizeof word ? n : 0), at);
        if (add_key(cell, share, spec, word, e) < 0)
            return -1;
    }
    return 0;
}

static char *cell_name(const char *spec, const struct plan_view *v, int64_t seed, struct error *e)
{
    char *name = mem_format(e, "%s-%s-s%lld", spec, v->name, (long long)seed);
    for (char *c = name; c && *c; c++)
        if (*c == ':')
            *c = '_';
        else if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._=+-", *c))
            *c = '-';
    return name;
}

int plan_train_config(struct config *out, const struct plan_cell *cell, struct error *e)
{
    if (config_parse(out, VERB_TRAIN, cell->n_words, cell->words, e) == 0)
        return 0;
    return fail_in(e, cell->spec);
}

/* Prepared labels are mapped already. */
static void drop_label_map(struct plan_cell *cell)
{
    int n = 0;
    for (int i = 0; i < cell->n_words; i++)
        if (text_starts_with(cell->words[i], "--label-map="))
            mem_free(cell->words[i]);
        else
            cell->words[n++] = cell->words[i];
    cell->n_words = n;
}

/* Masks are made when a run has trained: windows that leave gaps are refused before, if the patch is told. */
static int check_stride(const struct config *c, const struct settings *set, struct error *e)
{
    for (int a = 0; a < 3; a++)
        if (set->patch[a] && c->stride[a] > set->patch[a])
            return fail(e, ERR_CONFIG, "C03",
                        "--stride: %lld, allowed 1..%lld (the patch): windows must touch",
                        (long long)c->stride[a], (long long)set->patch[a]);
    return 0;
}

/* All words of a cell. The data come last, since they depend on what the others mean. */
static int fill_cell(struct plan_cell *cell, const struct plan *p, struct error *e)
{
    const struct config *c = p->c;
    struct config train;
    double share;
    char *data[4] = {NULL};
    int n = 0;
    if (add_word(cell, mem_string(e, "train"), e) < 0)
        return -1;
    for (int i = 0; i < c->n_given; i++)
        if (is_handed_on(c->given[i]) && add_word(cell, mem_string(e, c->given[i]), e) < 0)
            return -1;
    if (add_spec(cell, &share, cell->spec, e) < 0 ||
        add_word(cell, mem_format(e, "--seed=%lld", (long long)cell->seed), e) < 0 ||
        add_word(cell, mem_format(e, "--output=%s", cell->run), e) < 0 ||
        add_word(cell, mem_format(e, "--device=%s", c->device), e) < 0 ||
        add_word(cell, mem_format(e, "--threads=%lld", (long long)c->threads), e) < 0 ||
        add_word(cell, mem_string(e, c->args[0]), e) < 0 || plan_train_config(&train, cell, e) < 0)
        return -1;
    cell->steps = train_total_steps(&train.set);
    int result = check_stride(c, &train.set, e);
    if (result == 0)
        result = plan_view_words(data, &n, p, &p->views[cell->view], &train, e);
    config_free(&train);
    mem_free(cell->words[--cell->n_words]); /* where the data stood so that the rest could be checked */
    for (int i = 0; i < n; i++)
        if (add_word(cell, data[i], e) < 0) /* which frees it */
            result = -1;
    if (n == 1)
        drop_label_map(cell);
    return result;
}

static void cell_free(struct plan_cell *k)
{
    for (int i = 0; i < k->n_words; i++)
        mem_free(k->words[i]);
    mem_free(k->words);
    mem_free(k->name);
    mem_free(k->spec);
    mem_free(k->run);
    mem_free(k->result);
}

static int make_cell(struct plan_cell *cell, const struct plan *p, const char *spec, int view, int64_t seed,
                     struct error *e)
{
    *cell = (struct plan_cell){.view = view, .seed = seed};
    cell->spec = mem_string(e, spec);
    cell->name = cell_name(spec, &p->views[view], seed, e);
    cell->run = cell->name ? mem_format(e, "%s/runs/%s", p->c->output, cell->name) : NULL;
    cell->result = cell->run ? path_join(e, cell->run, "result.json") : NULL;
    return cell->spec && cell->result ? fill_cell(cell, p, e) : -1;
}

/* Of all that a training is told, but for its folder and the name of a preset, which stands for values. */
static int hash_cell(uint64_t *out, const struct plan_cell *cell, struct error *e)
{
    struct config train;
    char text[PATH_MAX];
    if (plan_train_config(&train, cell, e) < 0)
        return -1;
    *out = 1;
    for (const struct option_row *o = options; o < options + n_options; o++) {
        int aside = strcmp(o->name, "output") == 0 || strcmp(o->name, "preset") == 0;
        if (aside || !(o->verbs & 1u << VERB_TRAIN))
            continue;
        if (!option_text(text, sizeof text, o, &train))
            text[0] = '\0';
        *out = hash_bytes(text, strlen(text) + 1, *out);
    }
    config_free(&train);
    return 0;
}

/* What a spec means for this view: its training, and the share of unlabelled cases. */
static int spec_meaning(uint64_t *out, const struct plan *p, const char *spec, int view, struct error *e)
{
    struct plan_cell cell = {0};
    double share = 0;
    int result = make_cell(&cell, p, spec, view, 0, e) < 0 || hash_cell(out, &cell, e) < 0 ||
                 add_spec(NULL, &share, spec, e) < 0 ? -1 : 0;
    *out = result == 0 ? hash_bytes(&share, sizeof share, *out) : 0;
    cell_free(&cell);
    return result;
}

/* Takes out of a spec what changes nothing, such as an option with its default: how a run is asked for makes
 * no difference to its name. */
static int shorten_spec(char *spec, const struct plan *p, int view, struct error *e)
{
    char without[200];
    uint64_t whole = 0, rest;
    size_t at = strcspn(spec, ":");
    if (spec[at] && spec_meaning(&whole, p, spec, view, e) < 0)
        return -1;
    while (spec[at]) {
        size_t next = at + 1 + strcspn(spec + at + 1, ":");
        snprintf(without, sizeof without, "%.*s%s", (int)at, spec, spec + next);
        if (spec_meaning(&rest, p, without, view, e) < 0)
            return -1;
        if (rest == whole)
            memmove(spec + at, spec + next, strlen(spec + next) + 1);
        else
            at = next;
    }
    return 0;
}

/* The cell of a spec that is as short as can be, made if there is none. */
static int find_cell(int *out, struct plan *p, const char *spec, int view, int64_t seed, struct error *e)
{
    for (*out = 0; *out < p->n_cells; (*out)++) {
        const struct plan_cell *k = &p->cells[*out];
        if (k->view == view && k->seed == seed && strcmp(k->spec, spec) == 0)
            return 0;
    }
    struct plan_cell *more = mem_resize(e, p->cells, (size_t)p->n_cells + 1, sizeof *more);
    if (!more)
        return -1;
    p->cells = more;
    return make_cell(&more[p->n_cells++], p, spec, view, seed, e);
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

int plan_is_supervised(const char *spec)
{
    size_t n = strcspn(spec, ":");
    return n == strlen("supervised") && memcmp(spec, "supervised", n) == 0;
}

/* A line and its cells; none where there is nothing for a method that needs unlabelled cases. */
static int add_line(struct plan *p, struct plan_table *t, const char *title, const char *spec, int64_t labels,
                    struct error *e)
{
    char shortest[200];
    double share;
    int view;
    if (add_spec(NULL, &share, spec, e) < 0 || plan_view_find(&view, p, labels, share, e) < 0)
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
    l->cells = mem_alloc(e, (size_t)p->n_seeds, sizeof *l->cells);
    if (!l->title || !l->spec || !l->cells)
        return -1;
    snprintf(shortest, sizeof shortest, "%s", spec);
    if (shorten_spec(shortest, p, view, e) < 0)
        return -1;
    for (int s = 0; s < p->n_seeds; s++)
        if (find_cell(&l->cells[s], p, shortest, view, p->seeds[s], e) < 0)
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
            return wrong("--methods", p->c->methods, "names with commas between", e);
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
    return found ? 0 : wrong("--reference", c->reference, "one of --methods", e);
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
            return wrong("--ablation", word,
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
        return wrong("--seed", "random", "a number: the same command must be the same plan", e);
    if (c->labeled || c->leave_out) /* from a config file */
        return fail(e, ERR_CONFIG, "C01", "labeled and leave-out are not for compare: --labels and --test "
                    "say which cases are seen");
    for (const char *at = c->label_counts; at; n++) {
        int bad = n == MOST || next_word(word, sizeof word, &at) < 0;
        if (!bad && strcmp(word, "all") == 0)
            labels[n] = 0;
        else if (bad || parse_int(&labels[n], word) < 0 || labels[n] < 1)
            return wrong("--labels", c->label_counts, "up to 16 counts with commas, and all", e);
    }
    if (check_reference(c, e) < 0 || read_seeds(out, e) < 0 || plan_open_data(out, e) < 0 ||
        !add_table(out, "methods", "Methods", e))
        return -1;
    for (int k = 0; k < n; k++)
        if (add_methods(out, labels[k], e) < 0)
            return -1;
    if (out->tables[0].n_lines == 0)
        return fail(e, ERR_CONFIG, "C03", "nothing to do: no unlabelled case is left, and supervised is not "
                    "among --methods");
    return add_ablations(out, labels, n, e);
}

void plan_free(struct plan *p)
{
    for (int i = 0; i < p->n_cells; i++)
        cell_free(&p->cells[i]);
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
