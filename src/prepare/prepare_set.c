/* prepare_set.c - the two passes of preparing a data set. See prepare_set.h.
 *
 *     measure   every case is read and checked; nothing is written; the fingerprint is taken
 *     make      every case that is not there yet is read again, prepared and written
 *
 * Several cases are in work at once as long as they fit into MEMORY_BYTES together; a single large
 * one gets all threads for itself. Either way each case is computed alone, so results are the same.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/io.h"
#include "prepare/boxes.h"
#include "prepare/prepare_set_int.h"

static const int64_t memory_bytes = (int64_t)2
                                    << 30; /* fits beside other programs on an 8 GiB laptop */
enum {
    BYTES_EACH = 28, /* a value's share at the peak: stored 8, float 4, resampled 3 x 4, label 4 */
    SAMPLES_ALL = 1 << 22, /* fingerprint values a channel: quantiles to 1e-3 */
    SAMPLES_CASE = 4096
};

/* ---- lines of a case, told in order afterwards ----------------------------------------------- */

struct case_report {
    struct report report; /* first: the listener is found from it */
    struct set_case *c;
};

static void keep_line(struct report *r, enum report_kind kind, const char *text)
{
    struct set_case *c = ((struct case_report *)r)->c;
    struct set_line *more = mem_resize(NULL, c->lines, (size_t)c->n_lines + 1, sizeof *more);
    if (!more)
        return; /* no memory for a warning: the work will fail by itself */
    c->lines = more;
    c->lines[c->n_lines].kind = kind;
    c->lines[c->n_lines].text = mem_string(NULL, text);
    if (c->lines[c->n_lines].text)
        c->n_lines++;
}

static void tell_lines(struct set *s)
{
    for (int i = 0; i < s->n; i++) {
        struct set_case *c = &s->cases[i];
        for (int l = 0; l < c->n_lines; l++) {
            report_line(s->o->report, c->lines[l].kind, NULL, NULL, "%s", c->lines[l].text);
            mem_free(c->lines[l].text);
        }
        c->n_lines = 0;
    }
}

/* Bad cases become problems, or warnings if they may be left out. A fault of the machine ends all.
 */
static int tell_bad(struct prepare_summary *out, struct set *s, struct error *e)
{
    enum report_kind kind = s->o->skip_bad ? REPORT_WARNING : REPORT_PROBLEM;
    for (int i = 0; i < s->n; i++) {
        struct set_case *c = &s->cases[i];
        if (!c->bad)
            continue;
        out->n_bad++;
        if (c->told)
            continue;
        c->told = 1;
        if (c->why.code != ERR_DATA && c->why.code != ERR_CONFIG) {
            *e = c->why;
            return -1;
        }
        report_line(s->o->report, kind, NULL, *c->why.id ? c->why.id : NULL, "%s%s", c->why.text,
                    s->o->skip_bad ? "; case left out" : "");
    }
    return 0;
}

/* ---- running over cases ---------------------------------------------------------------------- */

/* Works on one case; `inner` is the pool it may use, or NULL. */
typedef int (*case_step)(struct set *s, struct set_case *c, struct pool *inner, struct error *e);

struct lanes {
    struct set *s;
    case_step step;
    const char *phase;
    atomic_int next;
};

static void run_case(struct lanes *l, int i, struct pool *inner)
{
    struct set *s = l->s;
    struct set_case *c = &s->cases[i];
    if (!c->bad && l->step(s, c, inner, &c->why) < 0)
        c->bad = 1;
    pthread_mutex_lock(&s->lock);
    s->done++;
    if (s->o->progress)
        s->o->progress(s->o->progress_arg, l->phase, s->done, s->n);
    pthread_mutex_unlock(&s->lock);
}

static void run_lane(void *arg, int64_t lane)
{
    struct lanes *l = arg;
    (void)lane;
    for (int i = atomic_fetch_add(&l->next, 1); i < l->s->n; i = atomic_fetch_add(&l->next, 1)) {
        run_case(l, i, NULL);
    }
}

/* All cases, as many at once as the memory for the largest (`values` numbers) allows. */
static void run_cases(struct set *s, const char *phase, case_step step, int64_t values)
{
    struct lanes l = {.s = s, .step = step, .phase = phase};
    int64_t at_once = memory_bytes / (values * BYTES_EACH + 1);
    int64_t threads = pool_threads(s->o->pool);
    if (at_once > threads)
        at_once = threads;
    if (at_once > s->n)
        at_once = s->n;
    s->done = 0;
    atomic_init(&l.next, 0);
    if (at_once > 1) {
        pool_run(s->o->pool, at_once, run_lane, &l);
        return;
    }
    for (int i = 0; i < s->n; i++)
        run_case(&l, i, s->o->pool);
}

/* ---- measure --------------------------------------------------------------------------------- */

static int check_grids(const struct set *s, const struct volume *image, const struct volume *label,
                       struct error *e)
{
    for (int a = 0; a < 3; a++) {
        if (label->dims[a] == image->dims[a])
            continue;
        return fail(e, ERR_DATA, "L02", "%lldx%lldx%lld voxels, the image has %lldx%lldx%lld",
                    (long long)label->dims[0], (long long)label->dims[1], (long long)label->dims[2],
                    (long long)image->dims[0], (long long)image->dims[1],
                    (long long)image->dims[2]);
    }
    if (!image->geometry.known || !label->geometry.known)
        return 0;
    double off = geometry_distance_mm(&image->geometry, &label->geometry, image->dims);
    if (off <= s->o->geometry_tolerance_mm)
        return 0;
    return fail(e, ERR_DATA, "L03", "lies %g mm off the image, allowed %g (--geometry-tolerance)",
                off, s->o->geometry_tolerance_mm);
}

static int check_foreground(const struct set *s, const struct volume *label, struct error *e)
{
    label_t *classes = NULL;
    struct box box;
    if (!recipe_needs_label(&s->recipe))
        return 0;
    if (volume_labels(&classes, NULL, label, e) < 0)
        return -1;
    int found = box_of_label(&box, classes, label->dims);
    mem_free(classes);
    if (found)
        return 0;
    return fail(e, ERR_DATA, "L07", "no foreground, but recipe %s crops around it", s->recipe.name);
}

static int load_case(struct volume *image, struct volume *label, struct set *s, struct set_case *c,
                     struct report *report, struct error *e)
{
    struct volume_request request = s->o->request;
    request.report = report;
    if (dataset_load_image(image, s->d, c->from, &request, e) < 0)
        return -1;
    if (!c->from->label)
        return 0;
    if (dataset_load_label(label, s->d, c->from, &request, e) < 0)
        return -1;
    return check_grids(s, image, label, e) < 0 ? fail_in(e, c->from->label) : 0;
}

static int measure_case(struct set *s, struct set_case *c, struct pool *inner, struct error *e)
{
    struct case_report report = {.report = {.line = keep_line}, .c = c};
    struct volume image = {0}, label = {0};
    int samples = SAMPLES_ALL / s->n, status = -1;
    (void)inner;
    if (samples > SAMPLES_CASE)
        samples = SAMPLES_CASE;
    if (samples < 64)
        samples = 64;
    if (recipe_needs_label(&s->recipe) && !c->from->label) {
        fail(e, ERR_DATA, NULL, "no label, but recipe %s crops around the true label; take '%s'",
             s->recipe.name, s->recipe.name + strlen("paper-"));
        fail_in(e, c->from->images[0]);
        goto out;
    }
    if (load_case(&image, &label, s, c, &report.report, e) < 0)
        goto out;
    if (label.data && check_foreground(s, &label, e) < 0) {
        fail_in(e, c->from->label);
        goto out;
    }
    c->values = volume_voxels(&image) * volume_channels(&image);
    /* The labels of test cases are none of the recipe's business. */
    const struct volume *seen = label.data && c->from->split == SPLIT_TRAIN ? &label : NULL;
    uint64_t number = (uint64_t)(c - s->cases);
    if (case_print_measure(&c->print, &image, seen, s->o->nan, number, samples, e) < 0) {
        fail_in(e, c->from->images[0]);
        goto out;
    }
    status = 0;
out:
    volume_free(&image);
    volume_free(&label);
    return status;
}

/* Numbers in the case whose files are largest, from its header; a DICOM folder counts as a large
 * CT. */
static int64_t largest_case(const struct set *s)
{
    const struct data_case *largest = NULL;
    int64_t most = -1;
    for (int i = 0; i < s->n; i++) {
        struct stat st;
        const struct data_case *c = s->cases[i].from;
        if (stat(c->images[0], &st) != 0)
            continue;
        if (S_ISDIR(st.st_mode))
            return (int64_t)512 * 512 * 512;
        if ((int64_t)st.st_size > most) {
            most = (int64_t)st.st_size;
            largest = c;
        }
    }
    struct volume_request request = s->o->request;
    struct volume v = {0};
    request.part = VOLUME_HEADER_ONLY;
    request.report = NULL;
    int64_t values = 0;
    if (largest && volume_read(&v, largest->images[0], &request, NULL) == 0) {
        values = volume_voxels(&v) * volume_channels(&v) * largest->n_images;
    }
    volume_free(&v);
    return values;
}

/* The fingerprint of the training cases that are sound, or of the test cases if there are no
 * others. */
static int take_fingerprint(struct set *s, struct error *e)
{
    struct case_print *prints = mem_alloc(e, (size_t)s->n, sizeof *prints);
    int n = 0;
    if (!prints)
        return -1;
    for (int split = SPLIT_TRAIN; split <= SPLIT_TEST && n == 0; split++) {
        for (int i = 0; i < s->n; i++) {
            const struct set_case *c = &s->cases[i];
            if (!c->bad && (int)c->from->split == split)
                prints[n++] = c->print;
        }
    }
    int status = n > 0 ? fingerprint_combine(&s->fingerprint, prints, n, e)
                       : fail(e, ERR_DATA, NULL, "no case that can be prepared");
    mem_free(prints); /* the samples stay with the cases */
    if (status < 0)
        return fail_in(e, s->d->root);
    if (strcmp(s->recipe.name, "auto") == 0)
        recipe_choose(&s->recipe, &s->fingerprint);
    return 0;
}

/* ---- make ------------------------------------------------------------------------------------ */

static int write_volume(const struct volume *v, const char *folder, const char *stem,
                        struct error *e)
{
    char *path = set_path(folder, stem, ".nii.gz", e);
    int status = 0;
    if (!path)
        return -1;
    if (v->data)
        status = volume_write(v, path, e);
    else if (io_exists(path))
        io->unlink(path); /* a label that is hidden now must not stay */
    mem_free(path);
    return status;
}

static int make_case(struct set *s, struct set_case *c, struct pool *inner, struct error *e)
{
    struct volume image = {0}, label = {0};
    struct prepared p = {0};
    uint64_t number = (uint64_t)(c - s->cases);
    int status = -1;
    if (c->kept)
        return 0;
    if (load_case(&image, &label, s, c, NULL, e) < 0)
        goto out;
    if (prepare_case(&p, &s->recipe, &image, label.data ? &label : NULL, number, inner, e) < 0) {
        fail_in(e, c->from->images[0]);
        goto out;
    }
    volume_free(&image);
    volume_free(&label);
    if (write_volume(&p.image, s->images, c->stem, e) < 0)
        goto out;
    if (write_volume(&p.label, s->labels, c->stem, e) < 0)
        goto out;
    if (write_volume(&p.mask, s->masks, c->stem, e) < 0)
        goto out;
    c->transform = p.transform;
    c->n_label_lost = p.n_label_lost;
    if (state_save_case(s, c, e) < 0)
        goto out;
    c->made = 1;
    status = 0;
out:
    volume_free(&image);
    volume_free(&label);
    prepared_free(&p);
    return status;
}

static void warn_oddities(struct set *s)
{
    for (int i = 0; i < s->n; i++) {
        const struct set_case *c = &s->cases[i];
        if (c->made && c->transform.n_constant > 0) {
            report_line(s->o->report, REPORT_WARNING, c->from->images[0], "N38",
                        "constant image, no contrast in %d of %d channels; normalised to 0",
                        c->transform.n_constant, c->transform.n_channels);
        }
        if (c->made && c->n_label_lost > 0) {
            report_line(s->o->report, REPORT_WARNING, c->from->label, NULL,
                        "%lld labelled voxels lie outside of the crop and are lost",
                        (long long)c->n_label_lost);
        }
    }
}

/* ---- all of it ------------------------------------------------------------------------------- */

static int set_init(struct set *s, const struct dataset *d, const struct prepare_options *o,
                    struct error *e)
{
    s->d = d;
    s->o = o;
    s->cases = mem_alloc(e, (size_t)d->n_cases, sizeof *s->cases);
    s->images = path_join(e, o->folder, "images");
    s->labels = path_join(e, o->folder, "labels");
    s->masks = path_join(e, o->folder, "masks");
    s->unfinished = path_join(e, o->folder, "unfinished");
    s->json = path_join(e, o->folder, "prepared.json");
    if (!s->cases || !s->images || !s->labels || !s->masks || !s->unfinished || !s->json)
        return -1;
    if (d->n_cases == 0) {
        fail(e, ERR_DATA, NULL, "no case");
        return fail_in(e, d->root);
    }
    s->n = d->n_cases;
    for (int i = 0; i < s->n; i++) {
        char stem[1100]; /* a name of 255 bytes, each as \xNN */
        s->cases[i].from = &d->cases[i];
        s->cases[i].source = set_source(&d->cases[i]);
        s->cases[i].stem = mem_string(e, text_escape(stem, sizeof stem, d->cases[i].name));
        if (!s->cases[i].stem)
            return -1;
        for (char *c = s->cases[i].stem; *c; c++)
            *c = *c == '/' ? '_' : *c;
    }
    return recipe_named(&s->recipe, o->preset, o->seed, o->nan, e);
}

static void set_done(struct set *s)
{
    for (int i = 0; i < s->n; i++) {
        mem_free(s->cases[i].stem);
        mem_free(s->cases[i].lines);
        case_print_free(&s->cases[i].print);
    }
    mem_free(s->cases);
    mem_free(s->images);
    mem_free(s->labels);
    mem_free(s->masks);
    mem_free(s->unfinished);
    mem_free(s->json);
    pthread_mutex_destroy(&s->lock);
}

static int make_all(struct prepare_summary *out, struct set *s, struct error *e)
{
    int64_t most = 0;
    for (int i = 0; i < s->n; i++)
        most = s->cases[i].values > most ? s->cases[i].values : most;
    if (set_keys(s, e) < 0 || state_load(s, e) < 0 || state_begin(s, e) < 0)
        return -1;
    if (recipe_needs_label(&s->recipe)) {
        report_line(
            s->o->report, REPORT_NOTE, s->d->root, NULL,
            "recipe %s crops around the true "
            "label of every case, as published; a scan without a label cannot be prepared so",
            s->recipe.name);
    }
    out->n_bad = 0;
    run_cases(s, "prepare", make_case, most);
    if (tell_bad(out, s, e) < 0)
        return -1;
    warn_oddities(s);
    for (int i = 0; i < s->n; i++) {
        out->n_made += s->cases[i].made;
        out->n_kept += s->cases[i].kept;
    }
    if (out->n_bad > 0 && !s->o->skip_bad)
        return 0; /* what is done stays for the next start */
    return state_finish(s, e);
}

int prepare_set(struct prepare_summary *out, const struct dataset *d,
                const struct prepare_options *o, struct error *e)
{
    struct set s = {0};
    int status = -1;
    memset(out, 0, sizeof *out);
    pthread_mutex_init(&s.lock, NULL);
    if (set_init(&s, d, o, e) < 0)
        goto out;
    out->n_cases = s.n;
    if (state_check_folder(&s, e) < 0)
        goto out;
    if (state_is_current(&s)) {
        out->n_kept = s.n;
        out->recipe = s.recipe;
        status = 0;
        goto out;
    }
    run_cases(&s, "measure", measure_case, largest_case(&s));
    tell_lines(&s);
    if (tell_bad(out, &s, e) < 0)
        goto out;
    if (out->n_bad > 0 && !o->skip_bad) {
        status = 0;
        goto out;
    }
    if (take_fingerprint(&s, e) < 0)
        goto out;
    status = make_all(out, &s, e);
    out->recipe = s.recipe;
out:
    set_done(&s);
    return status;
}
