/* prepare_set.c - the two passes of preparing a data set. See prepare_set.h.
 *
 *     measure   every case is read and checked; nothing is written; the fingerprint is taken
 *     make      every case that is not there yet is read again, prepared and written
 *
 * Several cases are in work at once as long as they fit into memory_bytes together; a single large
 * one gets all threads for itself. Either way each case is computed alone, so results are the same.
 * What a pass finds is held by the case and told afterwards in case order.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "prepare/label_box.h"
#include "prepare/prepare_set_int.h"

static const int64_t memory_bytes = (int64_t)2 << 30; /* beside other programs on an 8 GiB laptop */
enum {
    BYTES_EACH = 20,       /* a value's share at the peak: stored 8, float 4, labels 4; or resampled to
                        twice as many, 2 x 8, and labels 4 */
    SAMPLES_ALL = 1 << 22, /* fingerprint values a channel: quantiles to 1e-3 */
    SAMPLES_CASE = 4096,
    SAMPLES_LEAST = 64
};

/* ---- one pass over all cases ----------------------------------------------------------------- */

struct pass {
    struct set *s;
    const char *name;
    /* Works on one case; `inner` is the pool it may use, or NULL. */
    int (*step)(struct set *s, struct set_case *c, struct pool *inner, struct error *e);
    atomic_int next;
    pthread_mutex_t lock; /* of `done` and the progress callback */
    int64_t done;
};

static void run_case(struct pass *p, int i, struct pool *inner)
{
    struct set_case *c = &p->s->cases[i];
    const struct prepare_options *o = p->s->o;
    report_hold(&c->told);
    if (!c->bad && p->step(p->s, c, inner, &c->why) < 0) {
        c->bad = 1;
        report_line(&c->told.report, o->skip_bad ? REPORT_WARNING : REPORT_PROBLEM, NULL,
                    *c->why.id ? c->why.id : NULL, "%s%s", c->why.text, o->skip_bad ? "; case left out" : "");
    }
    pthread_mutex_lock(&p->lock);
    p->done++;
    if (o->progress)
        o->progress(o->progress_arg, p->name, p->done, p->s->n);
    pthread_mutex_unlock(&p->lock);
}

static void run_lane(void *arg, int64_t lane)
{
    struct pass *p = arg;
    (void)lane;
    for (int i = atomic_fetch_add(&p->next, 1); i < p->s->n; i = atomic_fetch_add(&p->next, 1))
        run_case(p, i, NULL);
}

/* Tells what was found and counts the bad. A fault of the machine, not of the data, ends all. */
static int tell(struct prepare_summary *out, struct set *s, struct error *e)
{
    out->n_bad = 0;
    for (int i = 0; i < s->n; i++) {
        struct set_case *c = &s->cases[i];
        out->n_bad += c->bad;
        if (c->bad && c->why.code != ERR_DATA && c->why.code != ERR_CONFIG) {
            *e = c->why;
            return -1;
        }
        report_release(&c->told, s->o->report);
    }
    return 0;
}

/* All cases, as many at once as the memory for the largest (`values` numbers) allows. */
static int run_pass(struct prepare_summary *out, struct pass *p, int64_t values, struct error *e)
{
    struct pool *pool = p->s->o->pool;
    int64_t lanes = memory_bytes / (values * BYTES_EACH + 1), threads = pool_threads(pool);
    pthread_mutex_init(&p->lock, NULL);
    if (lanes > 1)
        pool_run(pool, lanes < threads ? lanes : threads, run_lane, p);
    for (int i = 0; i < p->s->n && lanes <= 1; i++)
        run_case(p, i, pool);
    pthread_mutex_destroy(&p->lock);
    return tell(out, p->s, e);
}

/* Numbers in the largest case, by the headers; a DICOM folder counts as a large CT. */
static int64_t largest_case(const struct set *s)
{
    struct volume_request request = s->o->request;
    int64_t most = 0;
    request.part = VOLUME_HEADER_ONLY;
    request.report = NULL;
    for (int i = 0; i < s->n; i++) {
        const struct data_case *c = s->cases[i].from;
        struct volume v = {.dims = {512, 512, 512, 1, 1, 1, 1}};
        if (!io_is_folder(c->images[0]) && dataset_load_image(&v, s->d, c, &request, NULL) < 0)
            continue; /* reading it will tell why */
        int64_t values = volume_voxels(&v) * volume_channels(&v);
        most = values > most ? values : most;
        volume_free(&v);
    }
    return most;
}

/* ---- measure --------------------------------------------------------------------------------- */

static int load_case(struct volume *image, struct volume *label, struct set *s, struct set_case *c,
                     struct report *report, struct error *e)
{
    struct volume_request request = s->o->request;
    struct box box;
    request.report = report;
    if (dataset_load_image(image, s->d, c->from, &request, e) < 0)
        return -1;
    if (!c->from->label)
        return 0;
    if (dataset_load_label(label, s->d, c->from, &request, e) < 0 ||
        dataset_match_label(s->d, c->from, image, label, e) < 0 ||
        dataset_highest_class(s->d, c->from, label, e) < 0)
        return -1;
    if (!recipe_needs_label(&s->recipe) || box_of_label(&box, label->data, label->dims))
        return 0;
    fail(e, ERR_DATA, "L07", "no foreground, but recipe %s crops around it", s->recipe.name);
    return fail_in(e, c->from->label);
}

/* The published crop of a case whose label is hidden. */
static int find_hidden_box(const struct set *s, struct set_case *c, const struct volume *image,
                           struct pool *pool, struct error *e)
{
    struct volume_request request = s->o->request;
    request.report = &c->told.report;
    if (!recipe_needs_label(&s->recipe) || c->from->label)
        return 0;
    return label_box_read(&c->label_box, &s->recipe, s->d, c->from, image, &request, pool, e);
}

static int measure_case(struct set *s, struct set_case *c, struct pool *inner, struct error *e)
{
    struct volume image = {0}, label = {0};
    int samples = SAMPLES_ALL / s->n, status = -1;
    samples = samples > SAMPLES_CASE ? SAMPLES_CASE : samples;
    samples = samples < SAMPLES_LEAST ? SAMPLES_LEAST : samples;
    if (label_box_check(&s->recipe, c->from, e) < 0) /* before reading a whole CT */
        return -1;
    if (load_case(&image, &label, s, c, &c->told.report, e) == 0 &&
        find_hidden_box(s, c, &image, inner, e) == 0) {
        /* The labels of test cases are none of the recipe's business. */
        const struct volume *seen = label.data && c->from->split == SPLIT_TRAIN ? &label : NULL;
        status = case_print_measure(&c->print, &image, seen, s->o->nan, (uint64_t)(c - s->cases), samples, e);
        if (status < 0)
            fail_in(e, c->from->images[0]);
    }
    volume_free(&image);
    volume_free(&label);
    return status;
}

/* Refuses a case with other channels than the first, or than dataset.json says [L14]. */
static int check_channels(const struct set *s, const struct set_case *c, const struct set_case *first,
                          struct error *e)
{
    int here = c->print.n_channels, wanted = s->d->n_channels ? s->d->n_channels : first->print.n_channels;
    if (here == wanted)
        return 0;
    fail(e, ERR_DATA, "L14", "%d channel%s, %s has %d", here, here == 1 ? "" : "s",
         s->d->n_channels ? "dataset.json" : first->from->images[0], wanted);
    return fail_in(e, c->from->images[0]);
}

/* The fingerprint of the training cases that are sound, or of the test cases if there are no
 * others. */
static int take_fingerprint(struct set *s, struct error *e)
{
    struct case_print *prints = mem_alloc(e, (size_t)s->n, sizeof *prints);
    const struct set_case *first = NULL;
    int n = 0, status = prints ? 0 : -1;
    for (int split = SPLIT_TRAIN; split <= SPLIT_TEST && n == 0; split++) {
        for (int i = 0; i < s->n && status == 0; i++) {
            const struct set_case *c = &s->cases[i];
            if (c->bad || (int)c->from->split != split)
                continue;
            first = first ? first : c;
            prints[n++] = c->print;
            status = check_channels(s, c, first, e);
        }
    }
    if (status == 0 && (n > 0 ? fingerprint_combine(&s->fingerprint, prints, n, e)
                              : fail(e, ERR_DATA, "L01", "no case that can be prepared")) < 0)
        status = fail_in(e, s->d->root);
    mem_free(prints); /* the samples stay with the cases */
    if (status < 0)
        return -1;
    if (strcmp(s->recipe.name, "auto") == 0)
        recipe_choose(&s->recipe, &s->fingerprint);
    return 0;
}

/* ---- make ------------------------------------------------------------------------------------ */

static int write_volume(const struct volume *v, const struct set *s, const char *part,
                        const struct set_case *c, struct error *e)
{
    char *path = set_path(s, part, c, e);
    int status = path ? 0 : -1;
    if (path && v->data)
        status = volume_write(v, path, e);
    else if (path && io_exists(path))
        io->unlink(path); /* a label that is hidden now must not stay */
    mem_free(path);
    return status;
}

static void tell_oddities(struct set_case *c, const struct prepared *p)
{
    if (p->transform.n_constant > 0)
        report_line(&c->told.report, REPORT_WARNING, c->from->images[0], "N38",
                    "constant image, no contrast in %d of %d channels; normalised to 0",
                    p->transform.n_constant, p->transform.n_channels);
    if (p->n_label_lost > 0)
        report_line(&c->told.report, REPORT_WARNING, c->from->label, NULL,
                    "%lld labelled voxels lie outside of the crop and are lost", (long long)p->n_label_lost);
}

static int make_case(struct set *s, struct set_case *c, struct pool *inner, struct error *e)
{
    struct volume image = {0}, label = {0};
    struct prepared p = {0};
    if (c->kept)
        return 0;
    int loaded = load_case(&image, &label, s, c, NULL, e);
    int status = loaded;
    if (status == 0)
        status = prepare_begin(&p, &s->recipe, &image, label.data ? &label : NULL,
                               c->label_box.dims[0] ? &c->label_box : NULL, e);
    volume_free(&image); /* before the peak */
    volume_free(&label);
    if (status == 0)
        status = prepare_end(&p, &s->recipe, (uint64_t)(c - s->cases), inner, e);
    if (status < 0)
        return loaded < 0 ? -1 : fail_in(e, c->from->images[0]);
    c->transform = p.transform;
    if (write_volume(&p.image, s, "images", c, e) < 0 || write_volume(&p.label, s, "labels", c, e) < 0 ||
        write_volume(&p.mask, s, "masks", c, e) < 0 || state_save_case(s, c, e) < 0)
        status = -1;
    c->made = status == 0;
    if (c->made)
        tell_oddities(c, &p);
    prepared_free(&p);
    return status;
}

static int make_all(struct prepare_summary *out, struct set *s, int64_t largest, struct error *e)
{
    struct pass pass = {.s = s, .name = "prepare", .step = make_case};
    if (state_lock(s, e) < 0 || set_keys(s, e) < 0 || state_load(s, e) < 0 || state_begin(s, e) < 0)
        return -1;
    if (s->n_untested > 0)
        report_line(s->o->report, REPORT_NOTE, s->d->root, NULL,
                    "%d test case%s without a label left out: recipe %s crops around it", s->n_untested,
                    s->n_untested == 1 ? "" : "s", s->recipe.name);
    if (run_pass(out, &pass, largest, e) < 0)
        return -1;
    for (int i = 0; i < s->n; i++) {
        out->n_made += s->cases[i].made;
        out->n_kept += s->cases[i].kept;
    }
    if (out->n_bad > 0 && !s->o->skip_bad)
        return 0; /* what is done stays for the next start */
    return state_finish(s, e);
}

/* ---- all of it ------------------------------------------------------------------------------- */

/* A test case that the recipe cannot crop, and that could not be scored either. */
static int is_untested(const struct set *s, const struct data_case *c)
{
    return recipe_needs_label(&s->recipe) && c->split == SPLIT_TEST && !c->label && !c->hidden_label;
}

static int add_case(struct set *s, const struct data_case *from, struct error *e)
{
    struct set_case *c = &s->cases[s->n];
    char stem[1100]; /* a name of 255 bytes, each as \xNN */
    c->from = from;
    c->source = set_source(s, from);
    c->stem = mem_string(e, text_escape(stem, sizeof stem, from->name));
    s->n += c->stem != NULL;
    return c->stem ? 0 : -1;
}

static int set_init(struct set *s, struct error *e)
{
    if (s->d->n_cases == 0) {
        fail(e, ERR_DATA, "L01", "no case");
        return fail_in(e, s->d->root);
    }
    s->cases = mem_alloc(e, (size_t)s->d->n_cases, sizeof *s->cases);
    s->unfinished = path_join(e, s->o->folder, "unfinished");
    s->json = path_join(e, s->o->folder, "prepared.json");
    if (!s->cases || !s->unfinished || !s->json ||
        recipe_named(&s->recipe, s->o->preset, s->o->seed, s->o->nan, e) < 0)
        return -1;
    if (s->o->crop == CROP_RULE_FAIR)
        s->recipe = recipe_fair(&s->recipe);
    for (int i = 0; i < s->d->n_cases; i++)
        if (is_untested(s, &s->d->cases[i]))
            s->n_untested++;
        else if (add_case(s, &s->d->cases[i], e) < 0)
            return -1;
    if (s->n > 0)
        return 0;
    fail(e, ERR_DATA, "L01", "no case with a label, but recipe %s crops around it", s->recipe.name);
    return fail_in(e, s->d->root);
}

static int by_stem(const void *a, const void *b)
{
    const struct set_case *x = *(const struct set_case *const *)a;
    const struct set_case *y = *(const struct set_case *const *)b;
    int order = strcmp(x->stem, y->stem);
    return order ? order : (x > y) - (x < y);
}

/* Different names may become one when escaped: a line end and the four characters \x0A [L12]. */
static int check_stems(const struct set *s, struct error *e)
{
    const struct set_case **sorted = mem_alloc(e, (size_t)s->n, sizeof *sorted);
    int status = sorted ? 0 : -1;
    for (int i = 0; sorted && i < s->n; i++)
        sorted[i] = &s->cases[i];
    if (sorted)
        qsort(sorted, (size_t)s->n, sizeof *sorted, by_stem);
    for (int i = 1; i < s->n && status == 0; i++) {
        const struct set_case *x = sorted[i - 1], *y = sorted[i];
        if (strcmp(x->stem, y->stem) != 0)
            continue;
        fail(e, ERR_DATA, "L12",
             "case %d \"%.60s\" and case %d \"%.60s\" would become one file; rename one of them",
             (int)(x - s->cases) + 1, x->from->name, (int)(y - s->cases) + 1, y->from->name);
        status = fail_in(e, s->d->root);
    }
    mem_free(sorted);
    return status;
}

static void set_done(struct set *s)
{
    for (int i = 0; i < s->n; i++) {
        mem_free(s->cases[i].stem);
        case_print_free(&s->cases[i].print);
    }
    mem_free(s->cases);
    mem_free(s->unfinished);
    mem_free(s->json);
    io_unlock_folder(s->lock);
}

static int prepare_all(struct prepare_summary *out, struct set *s, struct error *e)
{
    struct pass pass = {.s = s, .name = "measure", .step = measure_case};
    if (set_init(s, e) < 0 || check_stems(s, e) < 0 ||
        (io_exists(s->o->folder) && state_lock(s, e) < 0)) /* a new one is made and locked later */
        return -1;
    out->n_cases = s->n;
    if (state_is_current(s)) {
        io_remove_tree(s->unfinished); /* of a process that died between prepared.json and this */
        out->n_kept = s->n;
        return 0;
    }
    int64_t largest = largest_case(s);
    if (run_pass(out, &pass, largest, e) < 0)
        return -1;
    if (out->n_bad > 0 && !s->o->skip_bad)
        return 0;
    return take_fingerprint(s, e) < 0 ? -1 : make_all(out, s, largest, e);
}

int prepare_set(struct prepare_summary *out, const struct dataset *d, const struct prepare_options *o,
                struct error *e)
{
    struct set s = {.d = d, .o = o, .lock = -1};
    memset(out, 0, sizeof *out);
    int status = prepare_all(out, &s, e);
    out->recipe = s.recipe;
    for (int i = 0; i < s.n; i++)
        out->n_hidden += !s.cases[i].bad && set_uses_hidden(&s, s.cases[i].from);
    set_done(&s);
    return status;
}

void prepare_note_crop(struct report *to, const char *root, const struct recipe *r, int n_hidden)
{
    if (!text_starts_with(r->name, "paper-"))
        return;
    if (!recipe_needs_label(r))
        report_line(to, REPORT_NOTE, root, NULL, "recipe %s: crop box of every case taken from intensities",
                    r->name);
    else if (n_hidden == 0)
        report_line(to, REPORT_NOTE, root, NULL,
                    "recipe %s: crop box of every case taken from its label, as published (--crop fair: from "
                    "intensities)",
                    r->name);
    else
        report_line(to, REPORT_NOTE, root, NULL,
                    "recipe %s: crop box of %d unlabelled case%s taken from %s hidden label%s, as published "
                    "(--crop fair: from intensities)",
                    r->name, n_hidden, n_hidden == 1 ? "" : "s", n_hidden == 1 ? "its" : "their",
                    n_hidden == 1 ? "" : "s");
}
