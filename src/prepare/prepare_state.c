/* prepare_state.c - the output folder of `prepare`: what is there, what is still good, how it ends.
 *
 * A case is good if a record with its key exists and its files do. Records lie in
 * unfinished/CASE.json while work goes on and in prepared.json afterwards, never in both for long:
 * before a finished folder is worked on again its records move back, so that prepared.json always
 * describes the files beside it.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/io.h"
#include "base/json.h"
#include "base/json_write.h"
#include "prepare/prepare_set_int.h"

enum { FORMAT_VERSION = 1 }; /* of prepared.json; part of every key */

/* Of the output folder. The first is the one by which the next start knows this one as ours. */
static const char *const folders[] = {"unfinished", "images", "labels", "masks", NULL};

char *set_path(const struct set *s, const char *part, const struct set_case *c, struct error *e)
{
    return mem_format(e, "%s/%s/%s.nii.gz", s->o->folder, part, c->stem);
}

static uint64_t hash_file(uint64_t hash, const char *path)
{
    struct stat st;
    int64_t facts[3] = {0, 0, 0};
    if (path && stat(path, &st) == 0) {
        facts[0] = (int64_t)st.st_size + 1;
        facts[1] = (int64_t)st.st_mtim.tv_sec;
        facts[2] = (int64_t)st.st_mtim.tv_nsec;
    }
    return hash_bytes(facts, sizeof facts, hash);
}

int set_uses_hidden(const struct set *s, const struct data_case *c)
{
    return recipe_needs_label(&s->recipe) && !c->label && c->hidden_label;
}

uint64_t set_source(const struct set *s, const struct data_case *c)
{
    uint64_t hash = hash_bytes(c->name, strlen(c->name), 0);
    for (int i = 0; i < c->n_images; i++)
        hash = hash_file(hash, c->images[i]);
    return hash_file(hash, set_uses_hidden(s, c) ? c->hidden_label : c->label);
}

/* Equal recipes have equal text. */
static int recipe_hash(uint64_t *out, const struct recipe *r, struct error *e)
{
    struct js_out o = {0};
    char *text = NULL;
    recipe_to_json(&o, NULL, r);
    if (js_out_take(&text, &o, e) < 0)
        return -1;
    *out = hash_bytes(text, strlen(text), FORMAT_VERSION);
    mem_free(text);
    return 0;
}

int set_keys(struct set *s, struct error *e)
{
    uint64_t recipe;
    if (recipe_hash(&recipe, &s->recipe, e) < 0)
        return -1;
    /* What happens to label values on the way in belongs to the recipe, too. */
    for (int i = 0; i < s->d->n_label_map; i++)
        recipe = hash_bytes(s->d->label_map[i], sizeof s->d->label_map[i], recipe);
    for (int i = 0; i < s->n; i++) {
        /* The number of the case matters only where margins are random. */
        uint64_t number = s->recipe.crop == CROP_LABEL_LA ? (uint64_t)i : 0;
        uint64_t parts[3] = {recipe, s->cases[i].source, number};
        s->cases[i].key = hash_bytes(parts, sizeof parts, 0);
    }
    return 0;
}

static void key_text(char out[17], uint64_t key)
{
    snprintf(out, 17, "%016" PRIx64, key);
}

/* ---- what is there --------------------------------------------------------------------------- */

/* Through a link the files would land in a folder that nobody named. */
static int refuse_link(const char *folder, const char *name, struct error *e)
{
    struct stat st;
    char *path = path_join(e, folder, name);
    int status = path ? 0 : -1;
    if (path && lstat(path, &st) == 0 && !S_ISDIR(st.st_mode)) {
        fail(e, ERR_CONFIG, "O03", "%s, expected a folder; remove it or choose another output",
             S_ISLNK(st.st_mode) ? "a link" : "no folder");
        status = fail_in(e, path);
    }
    mem_free(path);
    return status;
}

static int check_folder(const struct set *s, struct error *e)
{
    struct io_listing l = {0};
    const char *folder = s->o->folder;
    for (int i = 0; folders[i]; i++) {
        if (refuse_link(folder, folders[i], e) < 0)
            return -1;
    }
    if (io_exists(s->json) || io_exists(s->unfinished))
        return 0;
    if (io_list(&l, folder, e) < 0)
        return -1;
    int n = l.n;
    io_listing_free(&l);
    if (n == 0)
        return 0;
    fail(e, ERR_CONFIG, "O03",
         "holds %d entr%s but no prepared.json, by which falx knows its own; empty "
         "it or choose another folder",
         n, n == 1 ? "y" : "ies");
    return fail_in(e, folder);
}

int state_lock(struct set *s, struct error *e)
{
    const char *folder = s->o->folder;
    if (s->lock >= 0)
        return 0;
    if (io_exists(folder) && !io_is_folder(folder)) {
        fail(e, ERR_CONFIG, "O03", "not a folder, expected one to write into");
        return fail_in(e, folder);
    }
    if (io_make_folders(folder, e) < 0 || io_lock_folder(&s->lock, folder, e) < 0)
        return -1;
    return check_folder(s, e);
}

static int output_exists(const struct set *s, const struct set_case *c)
{
    const struct {
        const char *part;
        int wanted;
    } all[3] = {{"images", 1}, {"labels", c->from->label != NULL}, {"masks", s->recipe.keep_mask}};
    for (int i = 0; i < 3; i++) {
        char *path = set_path(s, all[i].part, c, NULL);
        int there = path && io_exists(path);
        mem_free(path);
        if (there != all[i].wanted)
            return 0;
    }
    return 1;
}

/* A record that is unfit for any reason is no record: the case is made again. */
static void accept_record(const struct set *s, struct set_case *c, const struct js *record)
{
    char key[17];
    const char *have = js_text(js_get(record, "key"));
    key_text(key, c->key);
    c->kept = have && strcmp(have, key) == 0 && output_exists(s, c) &&
              transform_from_json(&c->transform, js_get(record, "transform"), NULL) == 0;
}

/* Accepts the records of prepared.json; returns how many. */
static int accept_records(struct set *s, const struct js *json)
{
    const struct js *records = js_get(json, "cases");
    int n_kept = 0;
    for (int i = 0; i < js_count(records); i++) {
        const char *name = js_text(js_get(js_at(records, i), "name"));
        for (int k = 0; name && k < s->n; k++) {
            struct set_case *c = &s->cases[(i + k) % s->n]; /* mostly the same place */
            if (strcmp(name, c->stem) != 0)
                continue;
            if (!c->bad)
                accept_record(s, c, js_at(records, i));
            n_kept += c->kept;
            break;
        }
    }
    return n_kept;
}

static int load_finished(struct set *s, struct error *e)
{
    struct js *json = NULL;
    struct recipe was;
    uint64_t hash_was, hash_is;
    int status = io_find(s->json, e);
    if (status != 1)
        return status;
    status = 0;
    if (js_read_file(&json, s->json, e) < 0)
        return s->o->force ? 0 : -1;
    if (recipe_from_json(&was, js_get(json, "recipe"), NULL) == 0 &&
        recipe_hash(&hash_was, &was, NULL) == 0 && recipe_hash(&hash_is, &s->recipe, NULL) == 0 &&
        hash_was == hash_is) {
        accept_records(s, json);
    } else if (!s->o->force) {
        fail(e, ERR_CONFIG, "O04",
             "was prepared by another recipe or from other scans; `prepare --force` "
             "replaces it, `train --cache` takes another folder");
        status = fail_in(e, s->o->folder);
    }
    js_free(json);
    return status;
}

/* FOLDER/unfinished/STEM.json (mem_free). */
static char *record_path(const struct set *s, const struct set_case *c, struct error *e)
{
    return mem_format(e, "%s/%s.json", s->unfinished, c->stem);
}

int state_load(struct set *s, struct error *e)
{
    for (int i = 0; i < s->n; i++)
        s->cases[i].kept = 0;
    if (load_finished(s, e) < 0)
        return -1;
    for (int i = 0; i < s->n && io_is_folder(s->unfinished); i++) {
        struct set_case *c = &s->cases[i];
        struct js *record = NULL;
        char *path = c->bad || c->kept ? NULL : record_path(s, c, NULL);
        if (path && io_exists(path) && js_read_file(&record, path, NULL) == 0)
            accept_record(s, c, record);
        js_free(record);
        mem_free(path);
    }
    return 0;
}

/* A paper-* recipe that crops by intensities. */
static int is_fair(const struct set *s)
{
    return text_starts_with(s->o->preset, "paper-") && s->o->crop == CROP_RULE_FAIR;
}

/* Everything that decides what prepared.json says, but for what is inside of scans. */
static uint64_t request_hash(const struct set *s)
{
    const struct prepare_options *o = s->o;
    uint64_t numbers[4] = {FORMAT_VERSION, s->recipe.seed, (uint64_t)o->nan, (uint64_t)s->n};
    uint64_t hash = hash_bytes(o->preset, strlen(o->preset), 0);
    hash = hash_bytes(numbers, sizeof numbers, hash);
    if (is_fair(s))
        hash = hash_bytes("fair", 4, hash);
    for (int i = 0; i < s->n; i++) {
        uint64_t facts[2] = {s->cases[i].source, (uint64_t)s->cases[i].from->split};
        hash = hash_bytes(facts, sizeof facts, hash);
    }
    for (int i = 0; i < s->d->n_classes && s->d->class_names; i++)
        hash = hash_bytes(s->d->class_names[i], strlen(s->d->class_names[i]), hash);
    return hash;
}

int state_is_current(struct set *s)
{
    struct js *json = NULL;
    char request[17];
    int n_kept = 0;
    if (!io_exists(s->json) || js_read_file(&json, s->json, NULL) < 0)
        return 0;
    const char *was = js_text(js_get(json, "request"));
    const struct recipe named = s->recipe;
    key_text(request, request_hash(s));
    if (was && strcmp(was, request) == 0 && recipe_from_json(&s->recipe, js_get(json, "recipe"), NULL) == 0 &&
        set_keys(s, NULL) == 0)
        n_kept = accept_records(s, json);
    js_free(json);
    if (n_kept < s->n)
        s->recipe = named;
    return n_kept == s->n;
}

/* ---- records --------------------------------------------------------------------------------- */

/* A path below the output folder, as the data set's reader wants it. */
static void path_to_json(struct js_out *o, const char *key, const char *part, const struct set_case *c)
{
    char *path = mem_format(&o->why, "%s/%s.nii.gz", part, c->stem);
    if (path)
        js_out_text(o, key, path);
    else
        o->failed = 1;
    mem_free(path);
}

static void record_to_json(struct js_out *o, const struct set *s, const struct set_case *c)
{
    char key[17];
    key_text(key, c->key);
    js_out_open(o, NULL, '{');
    js_out_text(o, "name", c->stem);
    js_out_text(o, "split", c->from->split == SPLIT_TEST ? "test" : "train");
    js_out_open(o, "images", '[');
    path_to_json(o, NULL, "images", c);
    js_out_close(o, ']');
    if (c->from->label)
        path_to_json(o, "label", "labels", c);
    if (s->recipe.keep_mask)
        path_to_json(o, "mask", "masks", c);
    js_out_text(o, "key", key);
    transform_to_json(o, "transform", &c->transform);
    js_out_close(o, '}');
}

int state_save_case(const struct set *s, const struct set_case *c, struct error *e)
{
    struct js_out o = {0};
    char *path = record_path(s, c, e);
    record_to_json(&o, s, c);
    int status = js_out_write(&o, path, 0666, e);
    mem_free(path);
    return status;
}

/* A folder of the output, cleared of files that a killed run was writing; made if it is not there. */
static int begin_folder(const struct set *s, const char *name, struct error *e)
{
    char *folder = path_join(e, s->o->folder, name);
    int status = folder && io_make_folders(folder, e) == 0 ? io_sweep(folder, e) : -1;
    mem_free(folder);
    return status;
}

int state_begin(const struct set *s, struct error *e)
{
    for (int i = 0; i < 3 + s->recipe.keep_mask; i++) {
        if (begin_folder(s, folders[i], e) < 0)
            return -1;
    }
    if (begin_folder(s, ".", e) < 0)
        return -1;
    int work = 0;
    for (int i = 0; i < s->n; i++)
        work |= !s->cases[i].bad && !s->cases[i].kept;
    for (int i = 0; i < s->n && work; i++) {
        if (s->cases[i].kept && state_save_case(s, &s->cases[i], e) < 0)
            return -1;
    }
    if (work && io_exists(s->json))
        io->unlink(s->json);
    return 0;
}

/* ---- the end --------------------------------------------------------------------------------- */

static int write_list(const struct set *s, const char *name, enum split split, struct error *e)
{
    struct io_file *f = NULL;
    char *path = path_join(e, s->o->folder, name);
    int status = path ? io_create(&f, path, 0666, e) : -1;
    for (int i = 0; i < s->n && status == 0; i++) {
        const struct set_case *c = &s->cases[i];
        if (c->bad || c->from->split != split)
            continue;
        status = io_append(f, c->stem, strlen(c->stem), e);
        if (status == 0)
            status = io_append(f, "\n", 1, e);
    }
    if (status == 0)
        status = io_commit(f, e);
    else
        io_abandon(f);
    mem_free(path);
    return status;
}

static void classes_to_json(struct js_out *o, const struct set *s)
{
    const struct dataset *d = s->d;
    int n = s->recipe.binary && d->n_classes > 2 ? 2 : d->n_classes;
    js_out_open(o, "classes", '[');
    for (int i = 0; i < n; i++) {
        char number[24];
        snprintf(number, sizeof number, "class %d", i);
        js_out_text(o, NULL,
                    n < d->n_classes && i > 0 ? "foreground"
                    : d->class_names          ? d->class_names[i]
                                              : number);
    }
    js_out_close(o, ']');
}

/* Where a paper-* recipe took its crops from. */
static void crop_to_json(struct js_out *o, const struct set *s)
{
    int n = 0;
    if (!text_starts_with(s->recipe.name, "paper-"))
        return;
    for (int i = 0; i < s->n; i++)
        n += !s->cases[i].bad && set_uses_hidden(s, s->cases[i].from);
    js_out_text(o, "crop", is_fair(s) ? "fair" : "published");
    js_out_int(o, "hidden_labels_used_for_crop", n);
}

static int write_prepared(const struct set *s, struct error *e)
{
    struct js_out o = {0};
    char request[17];
    key_text(request, request_hash(s));
    js_out_open(&o, NULL, '{');
    js_out_text(&o, "format", "falx-prepared");
    js_out_int(&o, "version", FORMAT_VERSION);
    js_out_text(&o, "falx", s->o->version);
    js_out_text(&o, "request", request);
    js_out_text(&o, "layout", layout_name(s->d->layout));
    js_out_text(&o, "note", s->d->note);
    classes_to_json(&o, s);
    recipe_to_json(&o, "recipe", &s->recipe);
    crop_to_json(&o, s);
    fingerprint_to_json(&o, "fingerprint", &s->fingerprint);
    js_out_open(&o, "skipped", '[');
    for (int i = 0; i < s->n; i++) {
        if (s->cases[i].bad)
            js_out_text(&o, NULL, s->cases[i].stem);
    }
    js_out_close(&o, ']');
    js_out_open(&o, "cases", '[');
    for (int i = 0; i < s->n; i++) {
        if (!s->cases[i].bad)
            record_to_json(&o, s, &s->cases[i]);
    }
    js_out_close(&o, ']');
    js_out_close(&o, '}');
    return js_out_write(&o, s->json, 0666, e);
}

int state_finish(const struct set *s, struct error *e)
{
    if (write_list(s, "train.list", SPLIT_TRAIN, e) < 0 || write_list(s, "test.list", SPLIT_TEST, e) < 0 ||
        write_prepared(s, e) < 0)
        return -1;
    io_remove_tree(s->unfinished);
    return 0;
}
