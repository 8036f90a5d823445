/* phantom_index.c - the small files of a synthetic set: lists, dataset.json, datalist.json,
 * phantom.json.
 *
 * The record of the options comes first, called `unfinished`; lists and json when every case is
 * there; then the record becomes phantom.json. A set with a phantom.json is complete.
 */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "base/json.h"
#include "base/json_write.h"
#include "phantom/phantom_body.h"
#include "phantom/phantom_set.h"

static int write_text(const char *folder, const char *name, const char *text, struct error *e)
{
    char *path = path_join(e, folder, name);
    int rc = path ? io_write_all(path, 0666, text, strlen(text), e) : -1;
    mem_free(path);
    return rc;
}

static int write_json(const char *folder, const char *name, struct js_out *js, struct error *e)
{
    char *path = path_join(e, folder, name);
    int rc = js_out_write(js, path, 0666, e);
    mem_free(path);
    return rc;
}

static int write_list(const char *folder, const char *file, const struct phantom_options *o, int from, int to,
                      struct error *e)
{
    size_t room = (size_t)(to - from) * (PHANTOM_NAME_BYTES + 1) + 1, at = 0;
    char *text = mem_alloc(e, room, 1);
    if (!text)
        return -1;
    for (int n = from; n < to; n++) {
        char name[PHANTOM_NAME_BYTES];
        phantom_name(name, o, n);
        at += (size_t)snprintf(text + at, room - at, "%s\n", name);
    }
    int rc = write_text(folder, file, text, e);
    mem_free(text);
    return rc;
}

static void class_name(char *out, size_t cap, int number)
{
    static const char *const organ[ORGAN_COUNT] = {"background",  "gland",     "spleen",  "right kidney",
                                                   "left kidney", "liver",     "stomach", "aorta",
                                                   "gallbladder", "vena cava", "duodenum"};
    if (number < ORGAN_COUNT)
        snprintf(out, cap, "%s", organ[number]);
    else
        snprintf(out, cap, "nodule %d", number - ORGAN_COUNT + 1);
}

static void put_labels(struct js_out *js, const struct phantom_options *o)
{
    js_out_open(js, "labels", '{');
    for (int c = 0; c < o->classes; c++) {
        char name[32], number[16];
        class_name(name, sizeof name, c);
        snprintf(number, sizeof number, "%d", c);
        if (o->layout == LAYOUT_NNUNET) /* name -> number; elsewhere number -> name */
            js_out_int(js, name, c);
        else
            js_out_text(js, number, name);
    }
    js_out_close(js, '}');
}

static void put_channels(struct js_out *js, const char *key, const struct phantom_options *o)
{
    js_out_open(js, key, '{');
    for (int c = 0; c < o->channels; c++) {
        char number[16];
        snprintf(number, sizeof number, "%d", c);
        js_out_text(js, number, c == 1 ? "T2" : c == 2 ? "PD" : c == 0 ? "T1" : "MRI");
    }
    js_out_close(js, '}');
}

static int write_nnunet(const char *folder, const struct phantom_options *o, struct error *e)
{
    struct js_out js = {0};
    js_out_open(&js, NULL, '{');
    put_channels(&js, "channel_names", o);
    put_labels(&js, o);
    js_out_int(&js, "numTraining", o->labeled);
    js_out_text(&js, "file_ending", ".nii.gz");
    js_out_close(&js, '}');
    return write_json(folder, "dataset.json", &js, e);
}

/* {"image": ..., "label": ...} of one case. */
static void put_case(struct js_out *js, const struct phantom_options *o, int index)
{
    const struct phantom_folders *f = phantom_folders(o->layout);
    enum phantom_role role = phantom_role(o, index);
    const char *dot = o->layout == LAYOUT_MSD ? "./" : "";
    char name[PHANTOM_NAME_BYTES], path[PHANTOM_NAME_BYTES + 64];
    phantom_name(name, o, index);
    js_out_open(js, NULL, '{');
    if (o->layout == LAYOUT_DATALIST && o->channels > 1) {
        js_out_open(js, "image", '[');
        for (int c = 0; c < o->channels; c++) {
            snprintf(path, sizeof path, "%s/%s_%04d.nii.gz", f->image[role], name, c);
            js_out_text(js, NULL, path);
        }
        js_out_close(js, ']');
    } else {
        snprintf(path, sizeof path, "%s%s/%s.nii.gz", dot, f->image[role], name);
        js_out_text(js, "image", path);
    }
    if (f->label[role]) {
        snprintf(path, sizeof path, "%s%s/%s.nii.gz", dot, f->label[role], name);
        js_out_text(js, "label", path);
    }
    js_out_close(js, '}');
}

/* The Decathlon's dataset.json and MONAI's datalist differ in their head and in the name of the
 * tests. */
static int write_decathlon(const char *folder, const struct phantom_options *o, struct error *e)
{
    struct js_out js = {0};
    int is_msd = o->layout == LAYOUT_MSD;
    js_out_open(&js, NULL, '{');
    if (is_msd) {
        js_out_text(&js, "name", "phantom");
        js_out_text(&js, "description", "synthetic scans of an upper abdomen");
        js_out_text(&js, "tensorImageSize", o->channels > 1 ? "4D" : "3D");
        put_channels(&js, "modality", o);
    }
    put_labels(&js, o);
    if (is_msd) {
        js_out_int(&js, "numTraining", o->cases);
        js_out_int(&js, "numTest", o->test);
    }
    js_out_open(&js, "training", '[');
    for (int n = 0; n < o->cases; n++)
        put_case(&js, o, n);
    js_out_close(&js, ']');
    js_out_open(&js, is_msd ? "test" : "testing", '[');
    for (int n = o->cases; n < o->cases + o->test; n++)
        put_case(&js, o, n);
    js_out_close(&js, ']');
    js_out_close(&js, '}');
    return write_json(folder, is_msd ? "dataset.json" : "datalist.json", &js, e);
}

/* Everything needed to make the set again, and which case plays which part. */
int phantom_write_record(const char *folder, const char *file, const struct phantom_options *o,
                         struct error *e)
{
    static const char *const role[] = {"labeled", "unlabeled", "test"};
    struct js_out js = {0};
    js_out_open(&js, NULL, '{');
    if (o->version)
        js_out_text(&js, "falx", o->version);
    js_out_text(&js, "layout", layout_name(o->layout));
    js_out_int(&js, "cases", o->cases);
    js_out_int(&js, "labeled", o->labeled);
    js_out_int(&js, "test", o->test);
    js_out_ints(&js, "size", o->size, 3);
    js_out_int(&js, "classes", o->classes);
    js_out_int(&js, "channels", o->channels);
    js_out_int(&js, "seed", (int64_t)o->seed);
    js_out_open(&js, "members", '[');
    for (int n = 0; n < o->cases + o->test; n++) {
        char name[PHANTOM_NAME_BYTES];
        phantom_name(name, o, n);
        js_out_open(&js, NULL, '{');
        js_out_text(&js, "name", name);
        js_out_text(&js, "role", role[phantom_role(o, n)]);
        js_out_close(&js, '}');
    }
    js_out_close(&js, ']');
    js_out_close(&js, '}');
    return write_json(folder, file, &js, e);
}

/* A member that is a whole number and fits an int. */
static int read_int(int *out, const struct js *record, const char *key)
{
    int64_t v;
    if (js_int(&v, js_get(record, key)) < 0 || v < 0 || v > INT_MAX)
        return -1;
    *out = (int)v;
    return 0;
}

static int options_of(struct phantom_options *o, const struct js *record, struct error *e)
{
    const char *layout = js_text(js_get(record, "layout"));
    int64_t seed = 0;
    *o = (struct phantom_options){0};
    int bad = !layout || phantom_layout(&o->layout, layout, e) < 0 ||
              read_int(&o->cases, record, "cases") < 0 || read_int(&o->labeled, record, "labeled") < 0 ||
              read_int(&o->test, record, "test") < 0 || read_int(&o->classes, record, "classes") < 0 ||
              read_int(&o->channels, record, "channels") < 0 || js_int(&seed, js_get(record, "seed")) < 0;
    for (int a = 0; a < 3; a++)
        bad |= js_int(&o->size[a], js_at(js_get(record, "size"), a)) < 0;
    o->seed = (uint64_t)seed;
    if (bad || phantom_check(o, e) < 0)
        return fail(e, ERR_CONFIG, "O03", "no record of a synthetic set");
    return 0;
}

int phantom_read_record(struct phantom_options *o, const char *folder, const char *name, struct error *e)
{
    struct js *record = NULL;
    char *path = path_join(e, folder, name);
    int rc = path ? js_read_file(&record, path, e) : -1;
    if (rc == 0 && options_of(o, record, e) < 0)
        rc = fail_in(e, path);
    js_free(record);
    mem_free(path);
    return rc;
}

int phantom_write_index(const char *folder, const struct phantom_options *o, struct error *e)
{
    int rc = 0;
    if (o->layout == LAYOUT_NNUNET)
        rc = write_nnunet(folder, o, e);
    else if (o->layout == LAYOUT_MSD || o->layout == LAYOUT_DATALIST)
        rc = write_decathlon(folder, o, e);
    else if (write_list(folder, "train.list", o, 0, o->cases, e) < 0 ||
             (o->test && write_list(folder, "test.list", o, o->cases, o->cases + o->test, e) < 0))
        rc = -1;
    return rc;
}
