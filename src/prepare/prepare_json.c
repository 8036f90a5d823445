/* prepare_json.c - recipes and transforms as JSON, there and back. See prepare.h.
 *
 * The reader collects failures in one place: every getter does nothing once something is missing,
 * and the first missing key is named at the end.
 */
#include <math.h>
#include <string.h>

#include "base/json.h"
#include "base/json_write.h"
#include "prepare/prepare.h"

static const char *const nan_names[] = {"refuse", "zero", "min", NULL};
static const char *const align_names[] = {"centred", "ends", NULL};
static const char *const kind_names[] = {"nearest", "linear", "smooth", "cubic", "classes", NULL};
static const char *const crop_names[] = {"none", "nonzero", "body", "label", "label-la", NULL};
static const char *const clip_names[] = {"none", "first", "last", "percentiles", NULL};
static const char *const scale_names[] = {"none", "scan", "crop", "fixed", NULL};

/* ---- writing --------------------------------------------------------------------------------- */

void recipe_to_json(struct js_out *o, const char *key, const struct recipe *r)
{
    int n = r->n_channels > 0 ? r->n_channels : 1;
    js_out_open(o, key, '{');
    js_out_text(o, "name", r->name);
    js_out_int(o, "seed", (int64_t)r->seed);
    js_out_text(o, "nan", nan_names[r->nan]);
    js_out_int(o, "reorient", r->reorient);
    js_out_reals(o, "spacing_mm", r->spacing_mm, 3);
    js_out_text(o, "align", align_names[r->align]);
    js_out_text(o, "image_resampling", kind_names[r->image_kind]);
    js_out_text(o, "label_resampling", kind_names[r->label_kind]);
    js_out_text(o, "crop", crop_names[r->crop]);
    js_out_int(o, "margin", r->margin);
    js_out_int(o, "binary", r->binary);
    js_out_int(o, "keep_mask", r->keep_mask);
    js_out_int(o, "n_channels", r->n_channels);
    js_out_open(o, "channels", '[');
    for (int c = 0; c < n; c++) {
        const struct recipe_channel *rule = &r->channel[c];
        js_out_open(o, NULL, '{');
        js_out_text(o, "clip", clip_names[rule->clip]);
        js_out_real(o, "low", rule->low);
        js_out_real(o, "high", rule->high);
        js_out_text(o, "scale", scale_names[rule->scale]);
        js_out_real(o, "mean", rule->mean);
        js_out_real(o, "std", rule->std);
        js_out_close(o, '}');
    }
    js_out_close(o, ']');
    js_out_ints(o, "patch", r->patch, 3);
    js_out_close(o, '}');
}

static void values_to_json(struct js_out *o, const struct prepared_transform *t)
{
    js_out_open(o, "values", '[');
    for (int c = 0; c < t->n_channels; c++) {
        js_out_open(o, NULL, '{');
        js_out_real(o, "low", t->value[c].low);
        js_out_real(o, "high", t->value[c].high);
        js_out_real(o, "shift", t->value[c].shift);
        js_out_real(o, "scale", t->value[c].scale);
        js_out_close(o, '}');
    }
    js_out_close(o, ']');
}

void transform_to_json(struct js_out *o, const char *key, const struct prepared_transform *t)
{
    int64_t axis[3], flip[3], dims[3];
    double start[3], step[3];
    for (int a = 0; a < 3; a++) {
        axis[a] = t->axis[a];
        flip[a] = t->flip[a];
        dims[a] = t->grid[a].n;
        start[a] = t->grid[a].start;
        step[a] = t->grid[a].step;
    }
    js_out_open(o, key, '{');
    js_out_ints(o, "original_dims", t->original_dims, 3);
    js_out_reals(o, "original_spacing_mm", t->original.spacing_mm, 3);
    js_out_reals(o, "original_affine", &t->original.affine[0][0], 12);
    js_out_int(o, "original_known", t->original.known);
    js_out_ints(o, "axis", axis, 3);
    js_out_ints(o, "flip", flip, 3);
    js_out_ints(o, "resampled_dims", dims, 3);
    js_out_reals(o, "resampled_start", start, 3);
    js_out_reals(o, "resampled_step", step, 3);
    js_out_ints(o, "crop_first", t->crop_first, 3);
    js_out_ints(o, "crop_dims", t->crop_dims, 3);
    values_to_json(o, t);
    js_out_int(o, "n_constant", t->n_constant);
    js_out_close(o, '}');
}

/* ---- reading --------------------------------------------------------------------------------- */

/* An object being read; `bad` is the first key that was missing or unfit. */
struct in {
    const struct js *v;
    const char *bad;
};

static void bad(struct in *in, const char *key)
{
    if (!in->bad)
        in->bad = key;
}

static void get_reals(double *out, struct in *in, const char *key, int n)
{
    const struct js *array = js_get(in->v, key);
    if (js_count(array) != n)
        bad(in, key);
    for (int i = 0; i < n; i++) {
        out[i] = 0.0;
        if (js_real(&out[i], js_at(array, i)) < 0 || !isfinite(out[i]))
            bad(in, key);
    }
}

static void get_real(double *out, struct in *in, const char *key)
{
    *out = 0.0;
    if (js_real(out, js_get(in->v, key)) < 0 || !isfinite(*out))
        bad(in, key);
}

static int64_t get_int(struct in *in, const char *key, int64_t lo, int64_t hi)
{
    int64_t v = lo;
    if (js_int(&v, js_get(in->v, key)) == 0 && v >= lo && v <= hi)
        return v;
    bad(in, key);
    return lo;
}

static void get_ints(int64_t *out, struct in *in, const char *key, int64_t lo, int64_t hi)
{
    const struct js *array = js_get(in->v, key);
    if (js_count(array) != 3)
        bad(in, key);
    for (int i = 0; i < 3; i++) {
        out[i] = lo;
        if (js_int(&out[i], js_at(array, i)) == 0 && out[i] >= lo && out[i] <= hi)
            continue;
        bad(in, key);
        out[i] = lo;
    }
}

static int get_name(struct in *in, const char *key, const char *const *names)
{
    const char *text = js_text(js_get(in->v, key));
    for (int i = 0; text && names[i]; i++) {
        if (strcmp(text, names[i]) == 0)
            return i;
    }
    bad(in, key);
    return 0;
}

static int finish(const struct in *in, const char *what, struct error *e)
{
    if (!in->bad)
        return 0;
    return fail(e, ERR_DATA, "C06", "%s: \"%s\" is missing or out of range", what, in->bad);
}

static int channels_from_json(struct recipe *r, const struct js *v, struct error *e)
{
    int n = r->n_channels > 0 ? r->n_channels : 1;
    for (int c = 0; c < n; c++) {
        struct in in = {js_at(v, c), NULL};
        struct recipe_channel *rule = &r->channel[c];
        rule->clip = (enum recipe_clip)get_name(&in, "clip", clip_names);
        rule->scale = (enum recipe_scale)get_name(&in, "scale", scale_names);
        get_real(&rule->low, &in, "low");
        get_real(&rule->high, &in, "high");
        get_real(&rule->mean, &in, "mean");
        get_real(&rule->std, &in, "std");
        if (finish(&in, "recipe channel", e) < 0)
            return -1;
    }
    return 0;
}

int recipe_from_json(struct recipe *out, const struct js *v, struct error *e)
{
    struct in in = {v, NULL};
    const char *name = js_text(js_get(v, "name"));
    memset(out, 0, sizeof *out);
    if (!name || strlen(name) >= sizeof out->name)
        bad(&in, "name");
    else
        memcpy(out->name, name, strlen(name) + 1);
    out->seed = (uint64_t)get_int(&in, "seed", INT64_MIN, INT64_MAX);
    out->nan = (enum nan_policy)get_name(&in, "nan", nan_names);
    out->reorient = (int)get_int(&in, "reorient", 0, 1);
    get_reals(out->spacing_mm, &in, "spacing_mm", 3);
    for (int a = 0; a < 3; a++) {
        if (out->spacing_mm[a] < 0.0)
            bad(&in, "spacing_mm");
    }
    out->align = (enum recipe_align)get_name(&in, "align", align_names);
    out->image_kind = (enum resample_kind)get_name(&in, "image_resampling", kind_names);
    out->label_kind = (enum resample_kind)get_name(&in, "label_resampling", kind_names);
    out->crop = (enum recipe_crop)get_name(&in, "crop", crop_names);
    out->margin = get_int(&in, "margin", 0, 1 << 20);
    out->binary = (int)get_int(&in, "binary", 0, 1);
    out->keep_mask = (int)get_int(&in, "keep_mask", 0, 1);
    out->n_channels = (int)get_int(&in, "n_channels", 0, RECIPE_MAX_CHANNELS);
    get_ints(out->patch, &in, "patch", 0, 1 << 20);
    if (finish(&in, "recipe", e) < 0)
        return -1;
    return channels_from_json(out, js_get(v, "channels"), e);
}

static int values_from_json(struct prepared_transform *t, const struct js *v, struct error *e)
{
    for (int c = 0; c < t->n_channels; c++) {
        struct in in = {js_at(v, c), NULL};
        get_real(&t->value[c].low, &in, "low");
        get_real(&t->value[c].high, &in, "high");
        get_real(&t->value[c].shift, &in, "shift");
        get_real(&t->value[c].scale, &in, "scale");
        if (finish(&in, "transform value", e) < 0)
            return -1;
    }
    return 0;
}

/* The crop lies in the resampled grid and the axes are a permutation. */
static void check_transform(struct in *in, const struct prepared_transform *t)
{
    int seen = 0;
    for (int a = 0; a < 3; a++) {
        seen |= 1 << t->axis[a];
        if (t->crop_first[a] + t->crop_dims[a] > t->grid[a].n)
            bad(in, "crop_dims");
        if (!(t->grid[a].step > 0.0))
            bad(in, "resampled_step");
    }
    if (seen != 7)
        bad(in, "axis");
}

int transform_from_json(struct prepared_transform *out, const struct js *v, struct error *e)
{
    const int64_t most = (int64_t)1 << 31; /* voxels along an axis: the limit of a whole volume */
    struct in in = {v, NULL};
    int64_t axis[3], flip[3], dims[3];
    double start[3], step[3], affine[3][4], spacing[3];
    memset(out, 0, sizeof *out);
    get_ints(out->original_dims, &in, "original_dims", 1, most);
    get_reals(spacing, &in, "original_spacing_mm", 3);
    get_reals(&affine[0][0], &in, "original_affine", 12);
    geometry_from_affine(&out->original, (const double(*)[4])affine);
    memcpy(out->original.spacing_mm, spacing, sizeof spacing);
    out->original.known = (int)get_int(&in, "original_known", 0, 1);
    get_ints(axis, &in, "axis", 0, 2);
    get_ints(flip, &in, "flip", 0, 1);
    get_ints(dims, &in, "resampled_dims", 1, most);
    get_reals(start, &in, "resampled_start", 3);
    get_reals(step, &in, "resampled_step", 3);
    get_ints(out->crop_first, &in, "crop_first", 0, most);
    get_ints(out->crop_dims, &in, "crop_dims", 1, most);
    for (int a = 0; a < 3; a++) {
        out->axis[a] = (int)axis[a];
        out->flip[a] = (int)flip[a];
        out->grid[a] = (struct resample_axis){dims[a], start[a], step[a]};
    }
    out->n_constant = (int)get_int(&in, "n_constant", 0, RECIPE_MAX_CHANNELS);
    out->n_channels = js_count(js_get(v, "values"));
    if (out->n_channels < 1 || out->n_channels > RECIPE_MAX_CHANNELS)
        bad(&in, "values");
    check_transform(&in, out);
    if (finish(&in, "transform", e) < 0)
        return -1;
    return values_from_json(out, js_get(v, "values"), e);
}
