/* run_folder.c - see run_folder.h. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "base/json.h"
#include "net/model_file.h"
#include "predict/run_folder.h"

enum { MAX_CLASSES = 256, MAX_CHANNELS = RECIPE_MAX_CHANNELS, MAX_PATCH = 1024 };

static void axes_to_json(struct js_out *o, const char *key, int axes)
{
    js_out_open(o, key, '[');
    for (int a = 0; a < 3; a++)
        if (axes >> a & 1)
            js_out_int(o, NULL, a);
    js_out_close(o, ']');
}

void run_facts_to_json(struct js_out *o, const struct run_facts *f)
{
    int64_t patch[3] = {f->patch[0], f->patch[1], f->patch[2]}, other[SIDES_CLASSES];
    int64_t stride[3] = {f->stride[0], f->stride[1], f->stride[2]};
    char word[16];
    for (int i = 0; i < SIDES_CLASSES; i++)
        other[i] = f->sides.other[i];
    js_out_text(o, "trained_method", f->method);
    js_out_int(o, "image_channels", f->channels);
    js_out_int(o, "n_classes", f->classes);
    js_out_ints(o, "network_patch", patch, 3);
    js_out_text(o, "window_fusion", text_choice(word, sizeof word, WINDOW_MODE_WORDS, f->window_mode));
    js_out_ints(o, "window_stride", stride, 3);
    axes_to_json(o, "mirrored_axes", f->mirrors);
    if (f->sides.axes) {
        axes_to_json(o, "exchanging_axes", f->sides.axes);
        js_out_ints(o, "exchanged_classes", other, f->classes);
    }
    js_out_bool(o, "mirrored_masks", f->tta);
    js_out_bool(o, "largest_component", f->largest);
    js_out_bool(o, "adapted_statistics", f->adapt);
    js_out_bool(o, "late_covariance", f->late_covariance);
    if (f->class_names) {
        js_out_open(o, "class_names", '[');
        for (int i = 0; i < f->classes; i++)
            js_out_text(o, NULL, f->class_names[i]);
        js_out_close(o, ']');
    }
    recipe_to_json(o, "preparation", &f->recipe);
}

static int read_int(int *out, const struct js *v, const char *key, int64_t min, int64_t max, struct error *e)
{
    int64_t n = 0;
    if (js_int(&n, v) < 0 || n < min || n > max)
        return fail(e, ERR_DATA, "C01", "%s is missing or not a whole number %lld..%lld", key, (long long)min,
                    (long long)max);
    *out = (int)n;
    return 0;
}

static int read_names(struct run_facts *f, const struct js *names, struct error *e)
{
    if (js_count(names) != f->classes)
        return 0;
    f->class_names = mem_alloc(e, (size_t)f->classes, sizeof *f->class_names);
    for (int i = 0; f->class_names && i < f->classes; i++) {
        const char *text = js_text(js_at(names, i));
        if (!(f->class_names[i] = mem_string(e, text ? text : "")))
            return -1;
    }
    return f->class_names ? 0 : -1;
}

/* What earlier versions did not know is not there: no. */
static int read_flags(struct run_facts *f, const struct js *json, struct error *e)
{
    const struct {
        const char *key;
        int *flag;
    } all[] = {{"mirrored_masks", &f->tta},
               {"largest_component", &f->largest},
               {"adapted_statistics", &f->adapt},
               {"late_covariance", &f->late_covariance}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!js_is_bool(all[i].flag, js_get(json, all[i].key)) && js_get(json, all[i].key))
            return fail(e, ERR_DATA, "C01", "%s is neither true nor false", all[i].key);
    return 0;
}

static int read_axes(int *out, int otherwise, const struct js *json, const char *key, struct error *e)
{
    const struct js *axes = js_get(json, key);
    *out = axes ? 0 : otherwise;
    if (axes && !js_is_array(axes))
        return fail(e, ERR_DATA, "C01", "%s is no list of axes", key);
    for (int i = 0; i < js_count(axes); i++) {
        int axis = 0;
        if (read_int(&axis, js_at(axes, i), key, 0, 2, e) < 0)
            return -1;
        *out |= 1 << axis;
    }
    return 0;
}

static int read_sides(struct sides *s, int classes, const struct js *json, struct error *e)
{
    const char *key = "exchanged_classes";
    if (read_axes(&s->axes, 0, json, "exchanging_axes", e) < 0)
        return -1;
    for (int i = 0, other = 0; i < classes && s->axes; i++) {
        if (read_int(&other, js_at(js_get(json, key), i), key, 0, classes - 1, e) < 0)
            return -1;
        s->other[i] = (uint8_t)other;
    }
    for (int i = 0; i < classes && s->axes; i++)
        if (s->other[s->other[i]] != i || s->other[0] != 0)
            return fail(e, ERR_DATA, "C01", "%s are no pairs of classes", key);
    return 0;
}

/* Runs older than the two settings had Gaussian windows half a patch apart. */
static int read_windows(struct run_facts *f, const struct js *json, struct error *e)
{
    const struct js *mode = js_get(json, "window_fusion"), *stride = js_get(json, "window_stride");
    const char *word = js_text(mode);
    f->window_mode = WINDOW_GAUSSIAN;
    if (mode && word && strcmp(word, "constant") == 0)
        f->window_mode = WINDOW_CONSTANT;
    else if (mode && (!word || strcmp(word, "gaussian") != 0))
        return fail(e, ERR_DATA, "C01", "window_fusion is neither of " WINDOW_MODE_WORDS);
    for (int a = 0; a < 3 && stride; a++)
        if (read_int(&f->stride[a], js_at(stride, a), "window_stride", 0, f->patch[a], e) < 0)
            return -1;
    return 0;
}

static int read_facts(struct run_facts *f, const struct js *json, struct error *e)
{
    const char *method = js_text(js_get(json, "trained_method"));
    const struct js *patch = js_get(json, "network_patch");
    snprintf(f->method, sizeof f->method, "%s", method ? method : "");
    if (read_int(&f->channels, js_get(json, "image_channels"), "image_channels", 1, MAX_CHANNELS, e) < 0 ||
        read_int(&f->classes, js_get(json, "n_classes"), "n_classes", 2, MAX_CLASSES, e) < 0)
        return -1;
    for (int a = 0; a < 3; a++) {
        if (read_int(&f->patch[a], js_at(patch, a), "network_patch", 16, MAX_PATCH, e) < 0)
            return -1;
        if (f->patch[a] % 16)
            return fail(e, ERR_DATA, "C01", "network_patch %d, allowed multiples of 16", f->patch[a]);
    }
    js_int(&f->stages, js_get(json, "stages"));
    /* the first run folders did not tell the axes */
    if (read_flags(f, json, e) < 0 || read_axes(&f->mirrors, 7, json, "mirrored_axes", e) < 0 ||
        read_sides(&f->sides, f->classes, json, e) < 0 || read_windows(f, json, e) < 0)
        return -1;
    if (read_names(f, js_get(json, "class_names"), e) < 0)
        return -1;
    return recipe_from_json(&f->recipe, js_get(json, "preparation"), e);
}

/* What users give in place of a run folder, told by what it is. */
static int check_folder(const char *folder, const char *run_json, struct error *e)
{
    static const char *const pickles[] = {".pt", ".pth", ".ckpt", ".pkl"};
    struct stat st;
    for (int i = 0; i < 4; i++)
        if (text_ends_with_nocase(folder, pickles[i]) && !io_is_folder(folder))
            return fail(e, ERR_DATA, "S11",
                        "a pickle can run code and is never read; a run folder is "
                        "expected (weights of others: save them as safetensors)");
    if (stat(folder, &st) < 0)
        return fail_errno(e, errno, "cannot open");
    if (!S_ISDIR(st.st_mode))
        return fail(e, ERR_DATA, "L01", "not a folder: a run folder is expected");
    if (!io_exists(run_json))
        return fail(e, ERR_DATA, "L01", "no run.json here: not a run folder");
    return 0;
}

int run_facts_read(struct run_facts *out, const char *folder, struct error *e)
{
    struct js *json = NULL;
    char *path = path_join(e, folder, "run.json");
    int result = -1;
    memset(out, 0, sizeof *out);
    if (!path)
        return -1;
    if (check_folder(folder, path, e) < 0) {
        fail_in(e, folder);
    } else if (js_read_file(&json, path, e) == 0) {
        result = read_facts(out, json, e);
        if (result < 0)
            fail_in(e, path);
    }
    if (result < 0)
        run_facts_free(out);
    js_free(json);
    mem_free(path);
    return result;
}

void run_facts_free(struct run_facts *f)
{
    for (int i = 0; f->class_names && i < f->classes; i++)
        mem_free(f->class_names[i]);
    mem_free(f->class_names);
    memset(f, 0, sizeof *f);
}

int run_model(struct predict_model *out, const char *folder, const char *which, const struct run_facts *facts,
              struct device *dev, struct error *e)
{
    const char *stem = strcmp(which, "final") == 0 ? "model" : which;
    char *path = mem_format(e, "%s/%s.safetensors", folder, stem);
    int result = -1;
    out->params = NULL;
    if (!path)
        return -1;
    if (!io_exists(path)) {
        fail(e, ERR_DATA, "S10", "this run has no such model%s",
             strcmp(stem, "model") ? "" : ": training has not finished");
        fail_in(e, path);
    } else if (model_read(&out->params, &out->def, path, dev, e) == 0) {
        const struct net_definition *def = &out->def;
        result = 0;
        if (def->channels != facts->channels || def->classes != facts->classes) {
            result = fail(e, ERR_BUSY, "S10", "%d channels and %d classes, run.json says %d and %d",
                          def->channels, def->classes, facts->channels, facts->classes);
            fail_in(e, path);
            params_free(out->params);
            out->params = NULL;
        }
    }
    mem_free(path);
    return result;
}

int run_uncertainty(struct predict_model *out, const char *folder, const char *which,
                    const struct net_definition *mask, const struct run_facts *facts, struct device *dev,
                    struct error *e)
{
    out->params = NULL;
    if (mask->rank == 0)
        return 0;
    char *path = path_join(e, folder, "stage1.safetensors");
    if (!path)
        return -1;
    int stage1 = facts->late_covariance ? 0 : io_find(path, e);
    if (stage1 == 0 && !facts->late_covariance && facts->stages > 1 && strcmp(which, "final") == 0) {
        fail(e, ERR_DATA, "S10", "not there, but uncertainty is that of stage 1: copy it with the run");
        stage1 = fail_in(e, path);
    }
    mem_free(path);
    return stage1 < 0 ? -1 : run_model(out, folder, stage1 ? "stage1" : which, facts, dev, e);
}
