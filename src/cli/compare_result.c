/* compare_result.c - does a result belong to its cell? See compare_int.h.
 *
 * Files come from other machines and from editors: a result counts if it was made with the settings, the data
 * and the protocol that the plan has for its cell, and holds a score for each case to score on.
 */
#include <string.h>

#include "base/io.h"
#include "base/json.h"
#include "cli/compare_int.h"
#include "cli/options.h"
#include "cli/train_data.h"

static uint64_t hash_names(const struct dataset *d, const struct plan_view *v)
{
    uint64_t hash = 1;
    int labeled = 0, unlabeled = 0;
    for (int i = 0; i < d->n_cases; i++) {
        int mine = d->cases[i].label && (!v || labeled < v->n_labeled);
        if (!mine && v && unlabeled++ >= v->n_unlabeled)
            continue;
        labeled += mine;
        hash = hash_bytes(d->cases[i].name, strlen(d->cases[i].name) + (size_t)mine, hash);
    }
    return hash;
}

/* An option of a verb as a config file would have it. */
static void option_fact(struct checkpoint_facts *out, const char *name, enum verb verb,
                        const struct config *c)
{
    char text[80];
    option_text(text, sizeof text, option_find(name, strlen(name), verb), c);
    facts_add(out, name, "%s", text);
}

int plan_facts(struct checkpoint_facts *out, const struct plan *p, const struct plan_cell *cell,
               struct error *e)
{
    const struct config *c = p->c;
    struct config train;
    memset(out, 0, sizeof *out);
    if (plan_train_config(&train, cell, e) < 0)
        return -1;
    facts_settings(out, &train.set);
    const char *recipe = train_recipe(&train, &p->all);
    facts_add(out, "recipe", "%s", recipe);
    if (text_starts_with(recipe, "paper-")) /* others have no such rule */
        option_fact(out, "crop", VERB_TRAIN, &train);
    option_fact(out, "tta", VERB_TRAIN, &train);
    option_fact(out, "largest", VERB_TRAIN, &train);
    option_fact(out, "adapt", VERB_TRAIN, &train);
    facts_add(out, "val", "%s", train.val ? train.val : "none"); /* these cases are not trained on */
    config_free(&train);
    facts_add(out, "label_map", "%s", c->label_map ? c->label_map : "none");
    option_fact(out, "protocol", VERB_COMPARE, c);
    option_fact(out, "samples", VERB_COMPARE, c);
    facts_add(out, "trained_cases", "%016llx",
              (unsigned long long)hash_names(&p->all, &p->views[cell->view]));
    facts_add(out, "test_cases", "%016llx", (unsigned long long)hash_names(&p->held, NULL));
    return 0;
}

/* A setting of a result. Older ones have "stride", "auto" or "X,Y,Z", and "window", "even" or "gaussian". */
static const char *recorded(char *word, size_t cap, const struct js *settings, const char *key)
{
    const char *have = js_text(js_get(settings, key)), *stride = js_text(js_get(settings, "stride"));
    const char *window = js_text(js_get(settings, "window"));
    if (!have && window && strcmp(key, "window_mode") == 0)
        have = strcmp(window, "even") == 0 ? "constant" : window;
    if (!have && stride && strcmp(stride, "auto") != 0 && text_starts_with(key, "stride[")) {
        for (int a = 0; a <= key[strlen("stride[")] - '0' && stride; a++)
            text_next(word, cap, &stride);
        have = word;
    }
    have = have ? have : facts_before(key);
    return have ? have : "none";
}

/* Files come from other machines and from editors: the run's name, and a score for each case to score on. */
static int check_scores(const struct compare_run *r, const struct plan *p, const struct plan_cell *cell,
                        struct error *e)
{
    if (strcmp(r->name, cell->name) != 0)
        return fail(e, ERR_DATA, "C01", "the result of \"%.80s\", expected that of %.80s", r->name,
                    cell->name);
    if (r->error)
        return 0;
    if (r->scores.n_cases != p->held.n_cases)
        return fail(e, ERR_DATA, "C01", "scores of %d cases, expected %d", r->scores.n_cases,
                    p->held.n_cases);
    for (int i = 0; i < p->held.n_cases; i++)
        if (strcmp(r->scores.names[i], p->held.cases[i].name) != 0)
            return fail(e, ERR_DATA, "C01", "score %d is of case \"%.80s\", expected \"%.80s\"", i + 1,
                        r->scores.names[i], p->held.cases[i].name);
    return 0;
}

int plan_result(struct compare_run *out, const struct plan *p, const struct plan_cell *cell, const char *path,
                struct error *e)
{
    struct checkpoint_facts want;
    struct js *json = NULL;
    int result = io_find(path, e);
    memset(out, 0, sizeof *out);
    if (result != 1)
        return result;
    result = -1;
    if (compare_run_read(out, path, e) < 0 || js_read_file(&json, path, e) < 0 ||
        plan_facts(&want, p, cell, e) < 0)
        goto out;
    result = 1;
    for (int i = 0; i < want.n && !out->error && result == 1; i++) {
        const char *key = want.fact[i].key + strlen("run.");
        char word[40];
        const char *have = recorded(word, sizeof word, js_get(json, "settings"), key);
        if (strcmp(have, want.fact[i].value) == 0)
            continue;
        result = fail(e, ERR_BUSY, "K05",
                      "made with %s = %.40s, the plan has %s; choose another -o, or the "
                      "settings of then",
                      key, have, want.fact[i].value);
        fail_in(e, path);
    }
    if (result == 1 && check_scores(out, p, cell, e) < 0)
        result = fail_in(e, path);
out:
    js_free(json);
    if (result < 0)
        compare_run_free(out);
    return result;
}
