/* compare_spec.c - what a spec means: the words of a training, and the run that they name. See compare_int.h.
 *
 * A variant is written as a spec, NAME[:KEY=VALUE]...: a method or a preset with options of `falx train`
 * behind it; "unlabeled" is the share of unlabelled cases to use. A cell is a spec, a view and a seed; specs
 * that mean the same share its run, also if they say it with more words.
 */
#include <limits.h>
#include <string.h>

#include "cli/compare_int.h"
#include "cli/options.h"
#include "cli/train_data.h"

int plan_wrong(const char *option, const char *text, const char *allowed, struct error *e)
{
    fail(e, ERR_CONFIG, "C02", "\"%.60s\", allowed %s", text, allowed);
    return fail_in(e, option);
}

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
    return plan_wrong("--methods", word, allowed, e);
}

/* One KEY=VALUE of a spec. */
static int add_key(struct plan_cell *cell, double *share, const char *spec, const char *word, struct error *e)
{
    char option[220];
    snprintf(option, sizeof option, "--%s", word);
    if (text_starts_with(word, "unlabeled=")) {
        if (parse_real(share, strchr(word, '=') + 1) < 0 || !(*share >= 0 && *share <= 1))
            return plan_wrong("--methods", spec, "unlabeled=0..1", e);
        return 0;
    }
    if (!strchr(word, '=') || !is_open(option))
        return plan_wrong("--methods", spec,
                          "NAME[:KEY=VALUE]... with options of train that the plan leaves open", e);
    return cell ? add_word(cell, mem_string(e, option), e) : 0;
}

/* The words of a spec behind those of the command line (cell may be NULL); *share: of unlabelled cases. */
static int add_spec(struct plan_cell *cell, double *share, const char *spec, struct error *e)
{
    char word[200];
    size_t n = strcspn(spec, ":");
    snprintf(word, sizeof word, "%.*s", (int)(n < sizeof word ? n : 0), spec);
    const char *kind = method_find(word) ? "method" : preset_find(word) ? "preset" : NULL;
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

int plan_spec_share(double *share, const char *spec, struct error *e)
{
    return add_spec(NULL, share, spec, e);
}

char *plan_spec_paper(const char *spec, struct error *e)
{
    char name[40];
    size_t n = strcspn(spec, ":");
    snprintf(name, sizeof name, "%.*s", (int)(n < sizeof name ? n : 0), spec);
    const struct preset *p = preset_find(name);
    return p && p->published ? mem_format(e, "%s%s", p->method, spec + n) : mem_string(e, spec);
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
    int result = plan_view_words(data, &n, p, &p->views[cell->view], &train, e);
    config_free(&train);
    mem_free(cell->words[--cell->n_words]); /* where the data stood so that the rest could be checked */
    for (int i = 0; i < n; i++)
        if (add_word(cell, data[i], e) < 0) /* which frees it */
            result = -1;
    if (n == 1)
        drop_label_map(cell);
    return result;
}

void plan_cell_free(struct plan_cell *k)
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
                         plan_spec_share(&share, spec, e) < 0
                     ? -1
                     : 0;
    *out = result == 0 ? hash_bytes(&share, sizeof share, *out) : 0;
    plan_cell_free(&cell);
    return result;
}

int plan_spec_shorten(char *spec, const struct plan *p, int view, struct error *e)
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

int plan_cell_find(int *out, struct plan *p, const char *spec, int view, int64_t seed, struct error *e)
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

int plan_is_supervised(const char *spec)
{
    size_t n = strcspn(spec, ":");
    return n == strlen("supervised") && memcmp(spec, "supervised", n) == 0;
}
