/* layouts_json.c - data sets described by a json: nnU-Net, MSD, MONAI datalist, prepared.json.
 *
 * nnU-Net and MSD both call it dataset.json. nnU-Net's says `channel_names` and `file_ending` and
 * maps label names to numbers; MSD's lists `training` files and maps numbers to names; a datalist
 * lists files under any section name. Which one it is follows from these keys, not from where the
 * file lies.
 */
#include <string.h>
#include <strings.h>

#include "base/json.h"
#include "data/layouts.h"

enum { MAX_CLASSES = 65536 }; /* label_t */

/* ---- labels ---------------------------------------------------------------------------------- */

struct class_table {
    const char **name; /* n borrowed names, NULL = not named */
    int n;             /* highest number + 1 */
};

static int table_add(struct class_table *t, int64_t number, const char *name, struct error *e)
{
    if (number < 0 || number >= MAX_CLASSES)
        return fail(e, ERR_DATA, "L04", "labels: \"%.60s\" is %lld, allowed 0..%d", name ? name : "?",
                    (long long)number, MAX_CLASSES - 1);
    if (number >= t->n) {
        const char **grown = mem_resize(e, t->name, (size_t)number + 1, sizeof *grown);
        if (!grown)
            return -1;
        memset(grown + t->n, 0, (size_t)(number + 1 - t->n) * sizeof *grown);
        t->name = grown;
        t->n = (int)number + 1;
    }
    if (name)
        t->name[number] = name;
    return 0;
}

/* A list of numbers is a region. Read as the plain numbers in it: what the label files hold. */
static int table_add_region(struct class_table *t, const char *name, const struct js *list, struct error *e)
{
    int64_t number;
    for (int i = 0; i < js_count(list); i++) {
        if (js_int(&number, js_at(list, i)) < 0)
            return fail(e, ERR_DATA, "L04", "labels: region \"%.60s\" holds something that is no integer",
                        name);
        if (table_add(t, number, js_count(list) == 1 ? name : NULL, e) < 0)
            return -1;
    }
    return 0;
}

/* The value that means "ignore" must have been mapped away: a voxel is a class or it is not. */
static int refuse_ignore(const struct opening *w, int64_t number, struct error *e)
{
    for (int i = 0; i < w->d->n_label_map; i++)
        if (w->d->label_map[i][0] == number)
            return 0;
    return fail(e, ERR_DATA, "L04",
                "labels: \"ignore\" is %lld; ignored voxels are not supported, "
                "--label-map %lld=0 makes them background",
                (long long)number, (long long)number);
}

/* nnU-Net: { "background": 0, "organ": 1, "whole": [1, 2] } */
static int read_named_labels(struct opening *w, struct class_table *t, const struct js *labels,
                             struct error *e)
{
    void *place = NULL;
    const char *name;
    const struct js *value;
    int64_t number;
    int regions = 0;
    while (js_next(&place, &name, &value, labels)) {
        if (js_is_array(value)) {
            regions += js_count(value) > 1;
            if (table_add_region(t, name, value, e) < 0)
                return -1;
        } else if (js_int(&number, value) < 0) {
            return fail(e, ERR_DATA, "L04", "labels: \"%.60s\" is no integer", name);
        } else if (strcmp(name, "ignore") == 0) {
            if (refuse_ignore(w, number, e) < 0)
                return -1;
        } else if (table_add(t, number, name, e) < 0) {
            return -1;
        }
    }
    if (regions)
        report_line(w->o->report, REPORT_WARNING, w->d->root, "L04",
                    "dataset.json has %d region%s of several labels; classes are the plain label values",
                    regions, regions == 1 ? "" : "s");
    return 0;
}

/* MSD: { "0": "background", "1": "organ" } */
static int read_numbered_labels(struct class_table *t, const struct js *labels, struct error *e)
{
    void *place = NULL;
    const char *key;
    const struct js *value;
    int64_t number;
    while (js_next(&place, &key, &value, labels)) {
        if (parse_int(&number, key) < 0 || !js_text(value))
            return fail(e, ERR_DATA, "L04", "labels: \"%.60s\" is no number with a name", key);
        if (table_add(t, number, js_text(value), e) < 0)
            return -1;
    }
    return 0;
}

/* 1 if the first value is a name, as in MSD's way round. */
static int is_numbered(const struct js *labels)
{
    void *place = NULL;
    const char *key;
    const struct js *value;
    return js_next(&place, &key, &value, labels) && js_text(value) != NULL;
}

static int read_labels(struct opening *w, const struct js *labels, struct error *e)
{
    if (!js_is_object(labels))
        return 0;
    struct class_table t = {NULL, 0};
    int result =
        is_numbered(labels) ? read_numbered_labels(&t, labels, e) : read_named_labels(w, &t, labels, e);
    if (result == 0 && t.n > 1)
        result = opening_set_classes(w, t.name, t.n, e);
    mem_free(t.name);
    return result;
}

/* ---- items: { "image": "x" or ["x", "y"], "label": "z" } ------------------------------------- */

/* Sets the label if its file is there; a json often promises more than was downloaded. */
static int add_label(struct opening *w, struct data_case *c, const char *name, struct error *e)
{
    char *path = opening_path(w, name, e);
    int there = path ? io_find(path, e) : -1, result = there < 0 ? -1 : 0;
    if (there == 1)
        result = case_set_label(c, path, e);
    else if (there == 0)
        report_line(w->o->report, REPORT_WARNING, path, "L01",
                    "label named in the json is not there; case \"%.80s\" counts as unlabelled", c->name);
    mem_free(path);
    return result;
}

/* nnU-Net v1 writes MSD's json with names of cases: its x.nii.gz is x_0000.nii.gz, x_0001.nii.gz, ... */
static int add_image(struct opening *w, struct data_case *c, const struct js *name, struct error *e)
{
    const char *text = js_text(name);
    if (!text)
        return fail(e, ERR_DATA, "C06", "case \"%.80s\": an image name is no text", c->name);
    char *path = opening_path(w, text, e);
    int there = path ? io_find(path, e) : -1;
    int added = there == 0 ? case_add_channels(w, c, path, e) : there < 0 ? -1 : 0;
    if (added == 0 && !there && strchr(text, '\\'))
        added = fail(e, ERR_DATA, "C06",
                     "\"%.100s\" is not there; folders in a path are told apart by /, not \\", text);
    int result = added == 0 ? case_add_image(c, path, e) : added;
    mem_free(path);
    return result < 0 ? -1 : 0;
}

static int add_item(struct opening *w, const char *name, enum split split, const struct js *images,
                    const struct js *label, struct error *e)
{
    struct data_case *c = opening_add(w, name, split, e);
    if (!c)
        return -1;
    int n = js_is_array(images) ? js_count(images) : 1;
    if (n == 0)
        return fail(e, ERR_DATA, "C06", "case \"%.80s\" has no image", name);
    for (int i = 0; i < n; i++)
        if (add_image(w, c, js_is_array(images) ? js_at(images, i) : images, e) < 0)
            return -1;
    if (js_is_array(label)) /* some tools write a list of one */
        label = js_count(label) == 1 ? js_at(label, 0) : label;
    return js_text(label) ? add_label(w, c, js_text(label), e) : 0;
}

/* "./imagesTr/a.nii.gz" -> "a", or with `whole` "imagesTr/a"; a first channel's "_0000" is no part
 * of the name. NULL without an image name. */
static char *name_of_item(const struct js *image, int whole, struct error *e)
{
    const char *text = js_text(js_is_array(image) ? js_at(image, 0) : image);
    if (!text || !*path_name(text)) {
        fail(e, ERR_DATA, "C06", "an item has no \"image\"");
        return NULL;
    }
    while (text[0] == '.' && text[1] == '/')
        text += 2;
    const char *from = whole ? text : path_name(text);
    size_t n = stem_length(from);
    if (js_count(image) > 1 && n > 5 && strncmp(from + n - 5, "_0000", 5) == 0)
        n -= 5;
    return mem_format(e, "%.*s", (int)n, from);
}

/* Adds the items of one section; an item is an object or, for tests, a bare file name. */
static int add_section(struct opening *w, const struct js *section, enum split split, int whole_names,
                       struct error *e)
{
    for (int i = 0; i < js_count(section); i++) {
        const struct js *item = js_at(section, i);
        const struct js *image = js_is_object(item) ? js_get(item, "image") : item;
        char *name = name_of_item(image, whole_names, e);
        int result = name ? add_item(w, name, split, image, js_get(item, "label"), e) : -1;
        mem_free(name);
        if (result < 0)
            return -1;
    }
    return 0;
}

/* Training and unlabelled sections train; all others (test, testing, validation) are for testing.
 */
static enum split split_of(const char *section)
{
    return text_starts_with(section, "train") || text_starts_with(section, "unlabel") ? SPLIT_TRAIN
                                                                                      : SPLIT_TEST;
}

static int is_section(const struct js *v)
{
    return js_is_array(v) && (js_count(v) == 0 || js_get(js_at(v, 0), "image") || js_text(js_at(v, 0)));
}

static int add_sections(struct opening *w, const struct js *root, int whole_names, struct error *e)
{
    for (int pass = SPLIT_TRAIN; pass <= SPLIT_TEST; pass++) {
        void *place = NULL;
        const char *key;
        const struct js *value;
        while (js_next(&place, &key, &value, root))
            if (is_section(value) && (int)split_of(key) == pass &&
                add_section(w, value, (enum split)pass, whole_names, e) < 0)
                return -1;
    }
    return 0;
}

static void forget_cases(struct dataset *d)
{
    for (int i = 0; i < d->n_cases; i++)
        case_free(&d->cases[i]);
    d->n_cases = 0;
}

/* ---- the layouts ----------------------------------------------------------------------------- */

static int open_datalist(struct opening *w, const struct js *root, struct error *e)
{
    const char *dataroot = js_text(js_get(root, "dataroot"));
    w->d->layout = LAYOUT_DATALIST;
    w->own_order = 1;
    if (dataroot) {
        char *folder = opening_path(w, dataroot, e);
        if (!folder)
            return -1;
        mem_free(w->d->root);
        w->d->root = folder;
    }
    if (add_sections(w, root, 0, e) < 0)
        return -1;
    int a, b, result = names_find_twins(&a, &b, w->d, e);
    if (result == 1) { /* patient1/image.nii, patient2/image.nii: the folders tell them apart */
        forget_cases(w->d);
        result = add_sections(w, root, 1, e);
    }
    return result < 0 ? -1 : read_labels(w, js_get(root, "labels"), e);
}

static int open_msd(struct opening *w, const struct js *root, struct error *e)
{
    w->d->layout = LAYOUT_MSD;
    if (add_section(w, js_get(root, "training"), SPLIT_TRAIN, 0, e) < 0 ||
        add_section(w, js_get(root, "test"), SPLIT_TEST, 0, e) < 0 ||
        read_labels(w, js_get(root, "labels"), e) < 0)
        return -1;
    const char *name = js_text(js_get(root, "name"));
    int has_train = opening_has_file(w, "train.list", e);
    int has_list = has_train == 0 ? opening_has_file(w, "test.list", e) : has_train;
    if (has_list == 0 && name && strcasecmp(name, "colon") == 0)
        return paper_split_colon(w, e);
    return has_list < 0 ? -1 : 0;
}

/* nnU-Net's `dataset` key: { "case": { "images": [...], "label": "..." } } */
static int add_named_items(struct opening *w, const struct js *items, struct error *e)
{
    void *place = NULL;
    const char *name;
    const struct js *item;
    while (js_next(&place, &name, &item, items))
        if (add_item(w, name, SPLIT_TRAIN, js_get(item, "images"), js_get(item, "label"), e) < 0)
            return -1;
    return 0;
}

static int open_nnunet(struct opening *w, const struct js *root, struct error *e)
{
    const char *ending = js_text(js_get(root, "file_ending"));
    const struct js *channels = js_get(root, "channel_names");
    const struct js *items = js_get(root, "dataset");
    w->d->layout = LAYOUT_NNUNET;
    w->d->n_channels = js_count(channels ? channels : js_get(root, "modality"));
    if (!items && (!ending || ending[0] != '.' || strchr(ending, '/')))
        return fail(e, ERR_DATA, "C06", "file_ending is missing or no ending such as .nii.gz");
    if (read_labels(w, js_get(root, "labels"), e) < 0 ||
        (items ? add_named_items(w, items, e) : opening_add_folders(w, CHANNELS_NUMBERED, ending, e)) < 0)
        return -1;
    if (!items && w->d->n_cases == 0)
        return fail(e, ERR_DATA, "L01", "file_ending is %.40s, but no image ends in _0000%.40s", ending,
                    ending);
    int64_t claimed;
    int found = dataset_count(w->d, SPLIT_TRAIN, 1);
    if (js_int(&claimed, js_get(root, "numTraining")) == 0 && claimed != found)
        report_line(w->o->report, REPORT_WARNING, w->d->root, "L01",
                    "dataset.json says numTraining=%lld, found %d labelled training cases",
                    (long long)claimed, found);
    return 0;
}

int layout_from_json(struct opening *w, const struct js *root, struct error *e)
{
    if (js_get(root, "file_ending") || js_get(root, "channel_names"))
        return open_nnunet(w, root, e);
    if (js_is_array(js_get(root, "training")) && (js_get(root, "numTraining") || !w->json))
        return open_msd(w, root, e);
    if (js_is_object(root))
        return open_datalist(w, root, e);
    return fail(e, ERR_DATA, "C06", "an object is expected at the top");
}

/* Names the json in *e, unless a file of the data set is named already. Answers 1 or -1. */
static int finish(const struct opening *w, const char *path, int result, struct error *e)
{
    if (result == 0)
        return 1;
    return text_starts_with(e->text, w->d->root) ? -1 : fail_in(e, path);
}

/* 1 if the json of that name below the root is a datalist. One that is called so must be readable:
 * without it its tests would be taken for training cases. */
static int is_datalist(struct opening *w, const char *name, struct error *e)
{
    if (text_starts_with(name, "datalist"))
        return 1;
    struct js *root = NULL;
    char *path = path_join(e, w->d->root, name);
    int result = path ? 0 : -1;
    if (path && js_read_file(&root, path, NULL) == 0) {
        const struct js *training = js_get(root, "training");
        result = is_section(training) && js_count(training) > 0;
    }
    js_free(root);
    mem_free(path);
    return result;
}

/* The one datalist among the entries of the root (mem_free), NULL if there is none. */
static int find_datalist(char **out, struct opening *w, struct error *e)
{
    struct io_listing l;
    *out = NULL;
    if (io_list(&l, w->d->root, e) < 0)
        return -1;
    int result = 0;
    for (int i = 0; i < l.n && result == 0; i++) {
        const char *name = l.entry[i].name;
        if (l.entry[i].is_folder || name[0] == '.' || !text_ends_with_nocase(name, ".json"))
            continue;
        int found = is_datalist(w, name, e);
        if (found == 1 && *out) {
            fail(e, ERR_DATA, "L01", "two datalists, %.80s and %.80s: give one of them, not the folder", *out,
                 name);
            result = fail_in(e, w->d->root);
        } else if (found == 1) {
            *out = mem_string(e, name);
            result = *out ? 0 : -1;
        } else {
            result = found;
        }
    }
    io_listing_free(&l);
    if (result < 0) {
        mem_free(*out);
        *out = NULL;
    }
    return result;
}

int layout_open_datalist(struct opening *w, struct error *e)
{
    char *found;
    if (find_datalist(&found, w, e) < 0)
        return -1;
    if (!found)
        return 0;
    w->json = found;
    int result = layout_open_json(w, e);
    w->json = NULL;
    mem_free(found);
    return result;
}

int layout_open_json(struct opening *w, struct error *e)
{
    const char *file = w->json ? w->json : "dataset.json";
    int result = opening_has_file(w, file, e);
    if (result != 1)
        return result;
    struct js *root = NULL;
    char *path = path_join(e, w->d->root, file); /* outlives a `dataroot` that moves the root */
    result = -1;
    if (path && opening_contain(w, path, e) == 0 && js_read_file(&root, path, e) == 0)
        result = finish(w, path, layout_from_json(w, root, e), e);
    js_free(root);
    mem_free(path);
    return result;
}

static int read_prepared(struct opening *w, const struct js *root, struct error *e)
{
    const struct js *cases = js_get(root, "cases"), *classes = js_get(root, "classes");
    const char *names[DATASET_MOST_CLASSES] = {NULL};
    if (!js_is_array(cases))
        return fail(e, ERR_DATA, "C06", "no list \"cases\"");
    for (int i = 0; i < js_count(cases); i++) {
        const struct js *item = js_at(cases, i);
        const char *name = js_text(js_get(item, "name")), *split = js_text(js_get(item, "split"));
        if (!name)
            return fail(e, ERR_DATA, "C06", "cases[%d] has no \"name\"", i);
        if (add_item(w, name, split && strcmp(split, "test") == 0 ? SPLIT_TEST : SPLIT_TRAIN,
                     js_get(item, "images"), js_get(item, "label"), e) < 0)
            return -1;
        /* Said when it was prepared, and written down. */
        int known = 1;
        js_is_bool(&known, js_get(js_get(item, "transform"), "original_known"));
        w->d->cases[i].place_unknown = !known;
    }
    int n = js_count(classes) < DATASET_MOST_CLASSES ? js_count(classes) : DATASET_MOST_CLASSES;
    for (int i = 0; i < n; i++)
        names[i] = js_text(js_at(classes, i));
    return n > 1 ? opening_set_classes(w, names, n, e) : 0;
}

int layout_open_prepared(struct opening *w, struct error *e)
{
    int half = opening_has_file(w, "unfinished", e); /* phantom's record until the end */
    if (half == 1) {
        fail(e, ERR_DATA, "L01", "unfinished, made in part only; run the same falx phantom again");
        return fail_in(e, w->d->root);
    }
    int whole = half < 0 ? -1 : opening_has_file(w, "prepared.json", e);
    if (whole == 0 && (half = opening_has_folder(w, "unfinished", e)) == 1) { /* prepare's, until the end */
        fail(e, ERR_DATA, "L01", "prepared in part only; run the same falx prepare again");
        return fail_in(e, w->d->root);
    }
    if (whole != 1)
        return whole < 0 || half < 0 ? -1 : 0;
    struct js *root = NULL;
    char *path = path_join(e, w->d->root, "prepared.json");
    int result = -1;
    w->d->layout = LAYOUT_PREPARED;
    w->own_order = 1;
    if (path && js_read_file(&root, path, e) == 0)
        result = finish(w, path, read_prepared(w, root, e), e);
    js_free(root);
    mem_free(path);
    return result;
}
