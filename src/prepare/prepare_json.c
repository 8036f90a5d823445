/* prepare_json.c - recipes, transforms and fingerprints as JSON, there and back. See prepare.h.
 *
 * One function a struct visits its members by name; the visitor either writes them all or reads
 * them all, so that both directions agree. Reading collects failures in one place: the first member
 * that is missing or out of range is named at the end.
 */
#include <math.h>
#include <string.h>

#include "base/json.h"
#include "base/json_write.h"
#include "prepare/fingerprint.h"
#include "prepare/prepare.h"

static const char *const nan_names[] = {"refuse", "zero", "min", NULL};
static const char *const align_names[] = {"centred", "ends", NULL};
static const char *const kind_names[] = {"nearest", "linear", "smooth", "cubic", "classes", NULL};
static const char *const crop_names[] = {"none", "nonzero", "body", "label", "label-la", NULL};
static const char *const clip_names[] = {"none", "first", "last", "percentiles", NULL};
static const char *const scale_names[] = {"none", "scan", "crop", "fixed", NULL};

/* ---- the visitor ----------------------------------------------------------------------------- */

struct visit {
    struct js_out *out;  /* written to, or NULL: read from `in` */
    const struct js *in; /* the object being read */
    const char *bad;     /* first key that was missing or unfit */
};

static void bad(struct visit *v, const char *key)
{
    if (!v->bad)
        v->bad = key;
}

static int read_int(int64_t *out, const struct js *value, int64_t lo, int64_t hi)
{
    int64_t n;
    if (js_int(&n, value) < 0 || n < lo || n > hi)
        return -1;
    *out = n;
    return 0;
}

static int64_t visit_int(struct visit *v, const char *key, int64_t value, int64_t lo, int64_t hi)
{
    if (v->out)
        js_out_int(v->out, key, value);
    else if (read_int(&value, js_get(v->in, key), lo, hi) < 0)
        bad(v, key);
    return value;
}

static int visit_bool(struct visit *v, const char *key, int value)
{
    if (v->out)
        js_out_bool(v->out, key, value);
    else if (!js_is_bool(&value, js_get(v->in, key)))
        bad(v, key);
    return value;
}

static void visit_bools(struct visit *v, const char *key, int x[3])
{
    const struct js *array = js_get(v->in, key);
    if (v->out)
        js_out_open(v->out, key, '[');
    for (int i = 0; i < 3; i++) {
        if (v->out)
            js_out_bool(v->out, NULL, x[i]);
        else if (js_count(array) != 3 || !js_is_bool(&x[i], js_at(array, i)))
            bad(v, key);
    }
    if (v->out)
        js_out_close(v->out, ']');
}

static void visit_three(struct visit *v, const char *key, int64_t x[3], int64_t lo, int64_t hi)
{
    const struct js *array = js_get(v->in, key);
    if (v->out)
        js_out_ints(v->out, key, x, 3);
    for (int i = 0; !v->out && i < 3; i++) {
        if (js_count(array) != 3 || read_int(&x[i], js_at(array, i), lo, hi) < 0)
            bad(v, key);
    }
}

static void visit_real(struct visit *v, const char *key, double *x)
{
    if (v->out)
        js_out_real(v->out, key, *x);
    else if (js_real(x, js_get(v->in, key)) < 0 || !isfinite(*x))
        bad(v, key);
}

static void visit_reals(struct visit *v, const char *key, double *x, int n)
{
    const struct js *array = js_get(v->in, key);
    if (v->out)
        js_out_reals(v->out, key, x, n);
    for (int i = 0; !v->out && i < n; i++) {
        if (js_count(array) != n || js_real(&x[i], js_at(array, i)) < 0 || !isfinite(x[i]))
            bad(v, key);
    }
}

static int visit_name(struct visit *v, const char *key, int value, const char *const *names)
{
    const char *text = js_text(js_get(v->in, key));
    if (v->out) {
        js_out_text(v->out, key, names[value]);
        return value;
    }
    for (int i = 0; text && names[i]; i++) {
        if (strcmp(text, names[i]) == 0)
            return i;
    }
    bad(v, key);
    return 0;
}

static int finish(const struct visit *v, const char *what, struct error *e)
{
    if (!v->bad)
        return 0;
    return fail(e, ERR_DATA, "C06", "%s: \"%s\" is missing or out of range", what, v->bad);
}

/* ---- recipe ---------------------------------------------------------------------------------- */

static void visit_channel(struct visit *v, struct recipe_channel *c)
{
    c->clip = (enum recipe_clip)visit_name(v, "clip", (int)c->clip, clip_names);
    visit_real(v, "low", &c->low);
    visit_real(v, "high", &c->high);
    c->scale = (enum recipe_scale)visit_name(v, "scale", (int)c->scale, scale_names);
    visit_real(v, "mean", &c->mean);
    visit_real(v, "std", &c->std);
}

static void visit_recipe(struct visit *v, struct recipe *r)
{
    r->seed = (uint64_t)visit_int(v, "seed", (int64_t)r->seed, INT64_MIN, INT64_MAX);
    r->nan = (enum nan_policy)visit_name(v, "nan", (int)r->nan, nan_names);
    r->reorient = visit_bool(v, "reorient", r->reorient);
    visit_reals(v, "spacing_mm", r->spacing_mm, 3);
    r->align = (enum recipe_align)visit_name(v, "align", (int)r->align, align_names);
    r->image_kind = (enum resample_kind)visit_name(v, "image_resampling", (int)r->image_kind, kind_names);
    r->label_kind = (enum resample_kind)visit_name(v, "label_resampling", (int)r->label_kind, kind_names);
    r->crop = (enum recipe_crop)visit_name(v, "crop", (int)r->crop, crop_names);
    r->margin = visit_int(v, "margin", r->margin, 0, 1 << 20);
    r->binary = visit_bool(v, "binary", r->binary);
    r->keep_mask = visit_bool(v, "keep_mask", r->keep_mask);
    r->n_channels = (int)visit_int(v, "n_channels", r->n_channels, 0, RECIPE_MAX_CHANNELS);
    visit_three(v, "patch", r->patch, 0, 1 << 20);
}

void recipe_to_json(struct js_out *o, const char *key, const struct recipe *r)
{
    struct visit v = {.out = o};
    struct recipe copy = *r;
    js_out_open(o, key, '{');
    js_out_text(o, "name", r->name);
    visit_recipe(&v, &copy);
    js_out_open(o, "channels", '[');
    for (int c = 0; c == 0 || c < r->n_channels; c++) {
        js_out_open(o, NULL, '{');
        visit_channel(&v, &copy.channel[c]);
        js_out_close(o, '}');
    }
    js_out_close(o, ']');
    js_out_close(o, '}');
}

int recipe_from_json(struct recipe *out, const struct js *from, struct error *e)
{
    struct visit v = {.in = from};
    const char *name = js_text(js_get(from, "name"));
    memset(out, 0, sizeof *out);
    if (!name || strlen(name) >= sizeof out->name)
        bad(&v, "name");
    else
        memcpy(out->name, name, strlen(name) + 1);
    visit_recipe(&v, out);
    for (int a = 0; a < 3; a++) {
        if (out->spacing_mm[a] < 0.0)
            bad(&v, "spacing_mm");
    }
    for (int c = 0; c == 0 || c < out->n_channels; c++) {
        v.in = js_at(js_get(from, "channels"), c);
        visit_channel(&v, &out->channel[c]);
    }
    return finish(&v, "recipe", e);
}

/* ---- transform ------------------------------------------------------------------------------- */

static void visit_value(struct visit *v, struct value_map *m)
{
    visit_real(v, "low", &m->low);
    visit_real(v, "high", &m->high);
    visit_real(v, "shift", &m->shift);
    visit_real(v, "scale", &m->scale);
}

static void visit_transform(struct visit *v, struct prepared_transform *t)
{
    const int64_t most = (int64_t)1 << 31; /* voxels along an axis: the limit of a whole volume */
    int64_t axis[3], dims[3];
    double start[3], step[3];
    for (int a = 0; a < 3; a++) {
        axis[a] = t->axis[a];
        dims[a] = t->grid[a].n;
        start[a] = t->grid[a].start;
        step[a] = t->grid[a].step;
    }
    visit_three(v, "original_dims", t->original_dims, 1, most);
    visit_reals(v, "original_spacing_mm", t->original.spacing_mm, 3);
    visit_reals(v, "original_affine", &t->original.affine[0][0], 12);
    t->original.known = visit_bool(v, "original_known", t->original.known);
    visit_three(v, "axis", axis, 0, 2);
    visit_bools(v, "flip", t->flip);
    visit_three(v, "resampled_dims", dims, 1, most);
    visit_reals(v, "resampled_start", start, 3);
    visit_reals(v, "resampled_step", step, 3);
    visit_three(v, "crop_first", t->crop_first, 0, most);
    visit_three(v, "crop_dims", t->crop_dims, 1, most);
    t->n_constant = (int)visit_int(v, "n_constant", t->n_constant, 0, RECIPE_MAX_CHANNELS);
    for (int a = 0; a < 3; a++) {
        t->axis[a] = (int)axis[a];
        t->grid[a] = (struct resample_axis){dims[a], start[a], step[a]};
    }
}

void transform_to_json(struct js_out *o, const char *key, const struct prepared_transform *t)
{
    struct visit v = {.out = o};
    struct prepared_transform copy = *t;
    js_out_open(o, key, '{');
    visit_transform(&v, &copy);
    js_out_open(o, "values", '[');
    for (int c = 0; c < t->n_channels; c++) {
        js_out_open(o, NULL, '{');
        visit_value(&v, &copy.value[c]);
        js_out_close(o, '}');
    }
    js_out_close(o, ']');
    js_out_close(o, '}');
}

int transform_from_json(struct prepared_transform *out, const struct js *from, struct error *e)
{
    struct visit v = {.in = from};
    const struct js *values = js_get(from, "values");
    int seen = 0, n = js_count(values);
    memset(out, 0, sizeof *out);
    visit_transform(&v, out);
    for (int a = 0; a < 3; a++) {
        seen |= 1 << out->axis[a];
        if (out->crop_first[a] + out->crop_dims[a] > out->grid[a].n)
            bad(&v, "crop_dims");
        if (!(out->grid[a].step > 0.0))
            bad(&v, "resampled_step");
    }
    if (seen != 7) /* no permutation */
        bad(&v, "axis");
    if (n < 1 || n > RECIPE_MAX_CHANNELS)
        bad(&v, "values");
    for (; out->n_channels < n && !v.bad; out->n_channels++) {
        v.in = js_at(values, out->n_channels);
        visit_value(&v, &out->value[out->n_channels]);
    }
    return finish(&v, "transform", e);
}

/* ---- fingerprint, written only --------------------------------------------------------------- */

static void values_to_json(struct js_out *o, const char *key, const struct value_print *v)
{
    js_out_open(o, key, '{');
    js_out_int(o, "n", v->n);
    js_out_real(o, "mean", v->mean);
    js_out_real(o, "std", v->std);
    js_out_real(o, "median", v->median);
    js_out_real(o, "percentile_00_5", v->low);
    js_out_real(o, "percentile_99_5", v->high);
    js_out_close(o, '}');
}

void fingerprint_to_json(struct js_out *o, const char *key, const struct fingerprint *f)
{
    js_out_open(o, key, '{');
    js_out_int(o, "n_cases", f->n_cases);
    js_out_int(o, "n_labeled", f->n_labeled);
    js_out_reals(o, "median_spacing_mm", f->spacing_mm, 3);
    js_out_reals(o, "percentile_10_spacing_mm", f->spacing_10, 3);
    js_out_reals(o, "median_dims", f->dims, 3);
    js_out_reals(o, "median_box_mm", f->box_mm, 3);
    js_out_open(o, "channels", '[');
    for (int c = 0; c < f->n_channels; c++) {
        js_out_open(o, NULL, '{');
        js_out_text(o, "kind", f->channel[c].is_ct ? "CT" : "other");
        js_out_real(o, "min", f->channel[c].min);
        js_out_real(o, "max", f->channel[c].max);
        values_to_json(o, "inside", &f->channel[c].inside);
        values_to_json(o, "foreground", &f->channel[c].foreground);
        js_out_close(o, '}');
    }
    js_out_close(o, ']');
    js_out_close(o, '}');
}
