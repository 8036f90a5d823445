/* train_data.c - see train_data.h.
 *
 *     DATASET -> dataset_open (hides labels) -> prepare_set -> RUN/cache -> dataset_open -> two case stores
 *
 * A set that is prepared already (prepared.json, research h5), or that a paper's preset takes as published,
 * skips the middle. Validation cases come from inside the labelled ones and leave the training set.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/io.h"
#include "base/json.h"
#include "cli/train_data.h"
#include "prepare/fingerprint.h"
#include "sample/find_sides.h"
#include "sample/focus.h"
#include "train/train.h"

void train_data_free(struct train_data *d)
{
    case_store_free(&d->store);
    case_store_free(&d->val);
    run_facts_free(&d->facts);
    memset(d, 0, sizeof *d);
}

/* ---- preparing ----------------------------------------------------------------------------- */

/* Plain folders under a paper-* recipe hold what others prepared in the published way. */
static int is_published_set(const struct config *c, const struct dataset *d)
{
    return text_starts_with(c->recipe, "paper-") &&
           (d->layout == LAYOUT_PLAIN || d->layout == LAYOUT_DATALIST);
}

const char *train_recipe(const struct config *c, const struct dataset *d)
{
    if (d->layout == LAYOUT_PREPARED || d->layout == LAYOUT_H5)
        return "none";
    return is_published_set(c, d) ? "none" : c->recipe;
}

/* Another training prepares the same folder: its turn first. 0 when told to stop. */
static int wait_for_turn(const struct config *c, const char *folder, int times)
{
    const struct timespec nap = {0, 100000000};
    if (times == 0)
        report_line(console_report(c), REPORT_NOTE, folder, NULL,
                    "waiting for another falx that prepares it");
    nanosleep(&nap, NULL);
    return !stop_requested();
}

int train_prepare(struct prepare_summary *out, const struct config *c, const struct dataset *d,
                  const char *recipe, const char *folder, struct pool *pool, struct error *e)
{
    struct progress_passes passes = {.config = c};
    struct prepare_options o = {.preset = recipe,
                                .folder = folder,
                                .version = FALX_VERSION,
                                .seed = (uint64_t)c->set.seed,
                                .nan = (enum nan_policy)c->nan,
                                .crop = (enum crop_rule)c->crop,
                                .skip_bad = c->skip_bad,
                                .request = config_request(c),
                                .pool = pool,
                                .report = console_report(c),
                                .progress = progress_pass,
                                .progress_arg = &passes};
    int result, times = 0;
    do
        result = prepare_set(out, d, &o, e);
    while (result < 0 && e->code == ERR_BUSY && wait_for_turn(c, folder, times++));
    progress_end(passes.line);
    if (result < 0 && c->resume && !c->cache && strcmp(e->id, "O04") == 0) {
        fail(e, ERR_BUSY, "K05", "these scans are not those the run was begun with");
        return fail_in(e, d->root);
    }
    if (result < 0)
        return -1;
    if (out->n_bad > 0 && !c->skip_bad) {
        fail(e, ERR_DATA, "L01", "%d of %d cases refused, see above; --skip-bad leaves them out", out->n_bad,
             out->n_cases);
        return fail_in(e, d->root);
    }
    prepare_note_crop(o.report, d->root, &out->recipe, out->n_hidden);
    return 0;
}

int train_read_summary(struct prepare_summary *out, const struct dataset *d, struct error *e)
{
    struct js *json = NULL;
    char *path;
    int64_t hidden = 0;
    memset(out, 0, sizeof *out);
    if (d->layout != LAYOUT_PREPARED)
        return recipe_named(&out->recipe, "none", 0, NAN_REFUSE, e);
    if (!(path = path_join(e, d->root, "prepared.json")))
        return -1;
    int result = js_read_file(&json, path, e);
    if (result == 0 && (result = recipe_from_json(&out->recipe, js_get(json, "recipe"), e)) < 0)
        fail_in(e, path);
    if (js_int(&hidden, js_get(json, "hidden_labels_used_for_crop")) == 0 && hidden > 0 && hidden <= INT_MAX)
        out->n_hidden = (int)hidden;
    js_free(json);
    mem_free(path);
    return result;
}

/* ---- validation cases -------------------------------------------------------------------------- */

static int no_label(const struct config *c, struct error *e)
{
    fail(e, ERR_DATA, "L10", "no labelled case to learn from");
    return fail_in(e, c->args[0]);
}

static int is_labeled(const struct data_case *k)
{
    return k->split == SPLIT_TRAIN && k->label;
}

/* Marks the cases named in a list; each must be a labelled training case. */
static int mark_listed(char *keep, const struct dataset *d, const char *path, int follow, struct error *e)
{
    int n = dataset_mark_listed(keep, d, path, follow, e);
    for (int i = 0; i < d->n_cases && n > 0; i++)
        if (keep[i] && !is_labeled(&d->cases[i]))
            return fail(e, ERR_CONFIG, "C03", "no labelled training case \"%.80s\"", d->cases[i].name);
    return n == 0 ? fail(e, ERR_CONFIG, "C03", "a list without names") : n < 0 ? -1 : 0;
}

/* Marks in keep[] what `--val` asks for: a number or a list. */
static int choose_val(char *keep, const struct dataset *d, const struct config *c, struct error *e)
{
    int64_t count = 0;
    int result;
    if (!c->val)
        return 0;
    if (parse_int(&count, c->val) == 0)
        result = dataset_mark_last(keep, d, count, e);
    else
        result = mark_listed(keep, d, c->val, c->follow, e);
    return result < 0 ? fail_in(e, "--val") : 0;
}

/* Is a label left to learn from? Asked before scans are prepared for nothing. */
static int check_val(const struct dataset *d, const struct config *c, struct error *e)
{
    char *keep = mem_alloc(e, (size_t)d->n_cases + 1, 1);
    int result = keep ? choose_val(keep, d, c, e) : -1, left = 0;
    for (int i = 0; i < d->n_cases && result == 0; i++)
        left += is_labeled(&d->cases[i]) && !keep[i];
    mem_free(keep);
    return result < 0 || left > 0 ? result : no_label(c, e);
}

/* ---- loading -------------------------------------------------------------------------------------- */

/* Scans that are taken without a preparation. */
static int take_prepared(struct prepare_summary *done, const struct dataset *d, const struct config *c,
                         struct error *e)
{
    if (is_published_set(c, d))
        report_line(
            console_report(c), REPORT_NOTE, d->root, NULL,
            "%s layout: scans taken as prepared by the published pipeline; `falx prepare --preset %s` "
            "prepares raw ones",
            layout_name(d->layout), c->recipe);
    if (train_read_summary(done, d, e) < 0)
        return -1;
    /* labels that this training hides, but not the preparation before it */
    for (int i = 0; i < d->n_cases && recipe_needs_label(&done->recipe); i++)
        done->n_hidden += d->cases[i].hidden_label != NULL;
    prepare_note_crop(console_report(c), d->root, &done->recipe, done->n_hidden);
    return 0;
}

/* Opens the set, through the cache if need be. */
static int open_prepared(struct dataset *out, struct prepare_summary *done, const struct config *c,
                         struct pool *pool, struct error *e)
{
    struct dataset_options o = config_dataset(c);
    if (c->cache && io_is_same(c->cache, c->output)) { /* locked by ourselves: waiting would have no end */
        fail(e, ERR_CONFIG, "O03", "this is the folder of the run itself, expected another");
        return fail_in(e, "--cache");
    }
    if (dataset_open(out, c->args[0], &o, e) < 0 || check_val(out, c, e) < 0)
        return -1;
    if (*out->note)
        report_line(o.report, REPORT_NOTE, out->root, NULL, "%s", out->note);
    const char *name = train_recipe(c, out);
    if (strcmp(name, "none") == 0)
        return take_prepared(done, out, c, e);
    char *folder = c->cache ? mem_string(e, c->cache) : path_join(e, c->output, "cache");
    int result = folder ? train_prepare(done, c, out, name, folder, pool, e) : -1;
    dataset_free(out);
    if (result == 0) {
        o.labeled = o.label_map = o.leave_out = NULL; /* done in the first pass */
        result = dataset_open(out, folder, &o, e);
    }
    mem_free(folder);
    return result;
}

/* Training cases without, and validation cases alone. Test cases are in neither. */
static int load_stores(struct train_data *out, struct dataset *d, const struct config *c, struct pool *pool,
                       struct error *e)
{
    static const enum case_mask masks[] = {CASE_MASK_NONE, CASE_MASK_NONE, CASE_MASK_INSIDE, CASE_MASK_FIELD};
    struct volume_request request = config_request(c);
    struct case_store_options o = {.split = SPLIT_TRAIN,
                                   .nan = (enum nan_policy)c->nan,
                                   .mask = masks[c->set.cov_mask],
                                   .request = &request,
                                   .pool = pool,
                                   .report = console_report(c)};
    if (c->set.cov_mask == COV_MASK_AUTO && strcmp(c->set.method, "aua") == 0)
        o.mask = CASE_MASK_INSIDE;
    char *keep = mem_alloc(e, (size_t)d->n_cases + 1, 1);
    int result = -1;
    if (!keep || choose_val(keep, d, c, e) < 0)
        goto out;
    for (int pass = 0; pass < 2; pass++) { /* both stores are loaded from views of d */
        struct dataset view = *d;
        int n = 0;
        if (!(view.cases = mem_alloc(e, (size_t)d->n_cases + 1, sizeof *view.cases)))
            goto out;
        for (int i = 0; i < d->n_cases; i++)
            if (d->cases[i].split == SPLIT_TRAIN && keep[i] == pass)
                view.cases[n++] = d->cases[i];
        view.n_cases = n;
        int loaded = pass && n == 0 ? 0 : case_store_load(pass ? &out->val : &out->store, &view, &o, e);
        mem_free(view.cases);
        if (loaded < 0)
            goto out;
        o.mask = CASE_MASK_NONE;
    }
    result = 0;
out:
    mem_free(keep);
    return result;
}

/* ---- the whole ------------------------------------------------------------------------------------ */

static uint64_t hash_store(const struct case_store *s, uint64_t hash)
{
    for (int i = 0; i < s->n_cases; i++) {
        const struct stored_case *k = &s->cases[i];
        size_t voxels = case_voxels(k);
        hash = hash_bytes(k->name, strlen(k->name), hash);
        hash = hash_bytes(k->dims, sizeof k->dims, hash);
        hash = hash_bytes(k->image, voxels * (size_t)s->channels * sizeof *k->image, hash);
        if (k->label)
            hash = hash_bytes(k->label, voxels * sizeof *k->label, hash);
    }
    return hash;
}

static int compare_ints(const void *a, const void *b)
{
    return (*(const int *)a > *(const int *)b) - (*(const int *)a < *(const int *)b);
}

/* The recipe's suggestion, or one made from the median size of the cases. */
static int choose_patch(int64_t patch[3], const struct case_store *s, const struct recipe *r, struct error *e)
{
    double median[3];
    int *extents = mem_alloc(e, (size_t)s->n_cases, sizeof *extents);
    if (!extents)
        return -1;
    for (int a = 0; a < 3; a++) {
        for (int i = 0; i < s->n_cases; i++)
            extents[i] = s->cases[i].dims[a];
        qsort(extents, (size_t)s->n_cases, sizeof *extents, compare_ints);
        median[a] = extents[s->n_cases / 2];
        patch[a] = r->patch[a];
    }
    mem_free(extents);
    if (patch[0] <= 0)
        suggest_patch(patch, median);
    return 0;
}

static int copy_names(struct run_facts *f, const struct dataset *d, struct error *e)
{
    if (!d->class_names || d->n_classes != f->classes)
        return 0;
    if (!(f->class_names = mem_alloc(e, (size_t)f->classes, sizeof *f->class_names)))
        return -1;
    for (int i = 0; i < f->classes; i++)
        if (!(f->class_names[i] = mem_string(e, d->class_names[i])))
            return -1;
    return 0;
}

/* Classes without a voxel in the labels of training; *first: the lowest of them. */
static int missing_classes(int *first, const struct case_store *s)
{
    char seen[DATASET_MOST_CLASSES] = {0};
    int missing = 0;
    for (int i = 0; i < s->n_labeled; i++) {
        const struct stored_case *k = &s->cases[i];
        for (size_t v = 0, n = case_voxels(k); v < n; v++)
            seen[k->label[v]] = 1;
    }
    for (int k = s->n_classes - 1; k > 0; k--)
        if (!seen[k]) {
            *first = k;
            missing++;
        }
    return missing;
}

/* At least one class beside background, and not too many; those without an example are told of. */
static int check_classes(const struct config *c, const struct case_store *s, struct error *e)
{
    int first = 0;
    if (s->n_classes > DATASET_MOST_CLASSES) {
        fail(e, ERR_DATA, "L05", "%d classes, allowed 2..%d", s->n_classes, DATASET_MOST_CLASSES);
        return fail_in(e, c->args[0]);
    }
    int missing = missing_classes(&first, s);
    if (missing == s->n_classes - 1) {
        fail(e, ERR_DATA, "L07", "no label has any foreground");
        return fail_in(e, c->args[0]);
    }
    if (missing)
        report_line(console_report(c), REPORT_WARNING, c->args[0], "L07",
                    "%d of %d classes, the first of them %d, ha%s no voxel in the labels of training and "
                    "cannot be learnt",
                    missing, s->n_classes - 1, first, missing == 1 ? "s" : "ve");
    return 0;
}

/* A left and a right organ look alike in mirrored scans: exchanged with them, or at least told, as the masks
 * would be wrong without a word. */
static int treat_sides(const struct config *c, struct case_store *s, const struct run_facts *f,
                       struct error *e)
{
    int axes = train_side_axes(&c->set), keep = c->set.sides == SIDES_KEEP, first = 1;
    int n = axes ? find_sides(&s->sides, s, f->class_names, e) : 0;
    if (n <= 0)
        return n;
    while (s->sides.other[first] == first)
        first++;
    report_line(console_report(c), keep ? REPORT_WARNING : REPORT_NOTE, c->args[0], NULL,
                "classes %d and %d%s are left and right of one thing: mirrored patches %s", first,
                s->sides.other[first], n > 1 ? " (and others)" : "",
                keep ? "mix them up; --sides exchange or --augment crop does not"
                     : "exchange them (--sides keep does not)");
    s->sides.axes = keep ? 0 : axes;
    return 0;
}

/* Little is learnt of a class that patches seldom show. */
static int look_for_focus(const struct config *c, struct case_store *s, struct error *e)
{
    int patch[3] = {(int)c->set.patch[0], (int)c->set.patch[1], (int)c->set.patch[2]}, rarest;
    if (focus_find(s, e) < 0)
        return -1;
    double seen = focus_seen(s, patch, &rarest);
    if (c->set.focus == 0 && seen < 0.1)
        report_line(console_report(c), REPORT_WARNING, c->args[0], NULL,
                    "class %d is in %.0f of 100 patches and may not be learnt: a larger --patch, more "
                    "--steps or --focus 0.3 may help",
                    rarest, 100 * seen);
    return 0;
}

int train_data_load(struct train_data *out, struct config *c, struct pool *pool, struct error *e)
{
    struct dataset d = {0};
    int result = -1;
    memset(out, 0, sizeof *out);
    struct run_facts *f = &out->facts;
    struct prepare_summary done;
    if (open_prepared(&d, &done, c, pool, e) < 0 || load_stores(out, &d, c, pool, e) < 0)
        goto out;
    f->recipe = done.recipe;
    out->n_hidden = done.n_hidden;
    if (text_starts_with(f->recipe.name, "paper-"))
        c->crop = recipe_needs_label(&f->recipe) ? CROP_RULE_PUBLISHED : CROP_RULE_FAIR;
    if (out->store.n_labeled == 0) { /* others were left out as bad */
        no_label(c, e);
        goto out;
    }
    if (out->val.n_classes > out->store.n_classes)
        out->store.n_classes = out->val.n_classes;
    f->channels = out->store.channels;
    f->classes = out->store.n_classes;
    if (check_classes(c, &out->store, e) < 0 || copy_names(f, &d, e) < 0 ||
        treat_sides(c, &out->store, f, e) < 0)
        goto out;
    if ((c->set.patch[0] == 0 && choose_patch(c->set.patch, &out->store, &f->recipe, e) < 0) ||
        look_for_focus(c, &out->store, e) < 0)
        goto out;
    if (config_check_stride(&c->set, e) < 0)
        goto out;
    for (int a = 0; a < 3; a++) {
        f->patch[a] = (int)c->set.patch[a];
        f->stride[a] = c->set.stride[a] ? (int)c->set.stride[a] : f->patch[a] / 2;
    }
    snprintf(f->method, sizeof f->method, "%s", c->set.method);
    f->mirrors = train_mirrors(&c->set);
    f->sides = out->store.sides;
    f->tta = c->tta == 1;
    f->largest = c->largest == 1;
    f->adapt = c->adapt == 1;
    f->window_mode = c->set.window_mode;
    f->late_covariance = c->set.stage2_cov && c->set.stages > 1;
    out->hash = hash_store(&out->val, hash_store(&out->store, 1));
    if (f->sides.axes)
        out->hash = hash_bytes(f->sides.other, sizeof f->sides.other, out->hash);
    result = 0;
out:
    dataset_free(&d);
    if (result < 0)
        train_data_free(out);
    return result;
}

int64_t train_total_steps(const struct settings *s)
{
    const struct method *m = method_find(s->method);
    int64_t total = 0;
    for (int i = 0; i < method_phases(m, s); i++)
        total += phase_steps(&m->phases[i], s);
    return total;
}
