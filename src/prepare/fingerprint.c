/* fingerprint.c - see fingerprint.h.
 *
 * The rules for spacing are nnU-Net's (Isensee et al., Nature Methods 18, 2021): the median of each
 * axis; if the coarsest axis is more than 3 times coarser than the others and has less than a third
 * of their voxels, its 10th percentile, but no finer than the others. A CT is recognised by its
 * air.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "prepare/boxes.h"
#include "prepare/fingerprint.h"
#include "base/json_write.h"
#include "prepare/moments.h"

static const double ct_air_hu = -500.0;                /* a scan that reaches below it holds air */
static const double patch_voxels = 96.0 * 96.0 * 96.0; /* what one GPU or a patient CPU trains on */
enum { FOREGROUND_ENOUGH = 100 }; /* fewer sampled values say little about an organ */

void case_print_free(struct case_print *p)
{
    for (int c = 0; c < RECIPE_MAX_CHANNELS; c++) {
        mem_free(p->channel[c].inside);
        mem_free(p->channel[c].foreground);
    }
    memset(p, 0, sizeof *p);
}

/* ---- one case -------------------------------------------------------------------------------- */

/* Random voxels of a box, with replacement: a regular stride could follow the rows of the scan. */
static int sample_inside(struct channel_print *p, const float *values, const int64_t dims[3],
                         const struct box *box, uint64_t key, int samples, struct error *e)
{
    struct rng rng = rng_start(0, 0, RNG_FINGERPRINT, key);
    p->inside = mem_alloc(e, (size_t)samples, sizeof *p->inside);
    if (!p->inside)
        return -1;
    for (int s = 0; s < samples; s++) {
        int64_t at[3];
        for (int a = 0; a < 3; a++)
            at[a] = box->first[a] + rng_below(&rng, (uint32_t)box->dims[a]);
        p->inside[s] = values[at[0] + dims[0] * (at[1] + dims[1] * at[2])];
    }
    p->n_inside = samples;
    return 0;
}

/* Every n-th labelled voxel, so that at most `samples` are taken. */
static int sample_foreground(struct channel_print *p, const float *values, const label_t *label,
                             int64_t n, int samples, struct error *e)
{
    int64_t total = 0, seen = 0;
    for (int64_t i = 0; i < n; i++)
        total += label[i] > 0;
    int64_t every = total / samples + 1;
    p->foreground = mem_alloc(e, (size_t)(total / every + 1), sizeof *p->foreground);
    if (!p->foreground)
        return -1;
    for (int64_t i = 0; i < n; i++) {
        if (label[i] > 0 && seen++ % every == 0)
            p->foreground[p->n_foreground++] = values[i];
    }
    return 0;
}

/* What measuring one case needs besides its channel number. */
struct measuring {
    const struct volume *image;
    const label_t *classes; /* NULL: unlabelled */
    enum nan_policy nan;
    uint64_t case_key;
    int samples;
};

static int measure_channel(struct case_print *out, struct box *joined, const struct measuring *m,
                           int64_t c, struct error *e)
{
    struct channel_print *p = &out->channel[c];
    const struct volume *image = m->image;
    int64_t n = volume_voxels(image);
    float *values = NULL;
    struct moments of;
    struct box box;
    int status = -1;
    if (volume_floats(&values, image, c, m->nan, e) < 0)
        goto out;
    if (moments_of(&of, values, n, NULL, e) < 0)
        goto out;
    p->min = of.min;
    p->max = of.max;
    if (of.min > ct_air_hu)
        box_of_values(&box, values, image->dims, (float)of.min);
    else if (box_of_body(&box, values, image->dims, (float)ct_air_hu, e) < 0)
        goto out;
    uint64_t key = m->case_key * RECIPE_MAX_CHANNELS + (uint64_t)c;
    if (sample_inside(p, values, image->dims, &box, key, m->samples, e) < 0)
        goto out;
    if (m->classes && sample_foreground(p, values, m->classes, n, m->samples, e) < 0)
        goto out;
    if (c == 0)
        *joined = box;
    else
        box_join(joined, &box);
    status = 0;
out:
    mem_free(values);
    return status;
}

int case_print_measure(struct case_print *out, const struct volume *image,
                       const struct volume *label, enum nan_policy nan, uint64_t case_key,
                       int samples, struct error *e)
{
    int64_t channels = volume_channels(image);
    label_t *classes = NULL;
    struct box box = {{0}, {0}};
    int axis[3], flip[3], status = -1;
    memset(out, 0, sizeof *out);
    if (channels > RECIPE_MAX_CHANNELS) {
        return fail(e, ERR_DATA, NULL, "%lld channels, allowed at most %d", (long long)channels,
                    RECIPE_MAX_CHANNELS);
    }
    if (label && volume_labels(&classes, NULL, label, e) < 0)
        goto out;
    const struct measuring m = {image, classes, nan, case_key, samples};
    for (int64_t c = 0; c < channels; c++) {
        if (measure_channel(out, &box, &m, c, e) < 0)
            goto out;
    }
    if (orientation_axes(axis, flip, &image->geometry, "RAS", e) < 0)
        goto out;
    for (int a = 0; a < 3; a++) {
        out->spacing_mm[a] = image->geometry.spacing_mm[axis[a]];
        out->dims[a] = image->dims[axis[a]];
        out->box_dims[a] = box.dims[axis[a]];
    }
    out->labeled = label != NULL;
    out->n_channels = (int)channels;
    status = 0;
out:
    mem_free(classes);
    if (status < 0)
        case_print_free(out);
    return status;
}

/* ---- all cases ------------------------------------------------------------------------------- */

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Percentile of few numbers, linear between neighbours; sorts them. */
static double percentile(double *values, int n, double percent)
{
    qsort(values, (size_t)n, sizeof *values, compare_doubles);
    double at = percent / 100.0 * (n - 1);
    int below = (int)floor(at), above = below + 1 < n ? below + 1 : below;
    return values[below] + (values[above] - values[below]) * (at - below);
}

static void combine_grids(struct fingerprint *f, const struct case_print *prints, int n,
                          double *room)
{
    for (int a = 0; a < 3; a++) {
        for (int i = 0; i < n; i++)
            room[i] = prints[i].spacing_mm[a];
        f->spacing_mm[a] = percentile(room, n, 50.0);
        f->spacing_10[a] = percentile(room, n, 10.0);
        for (int i = 0; i < n; i++)
            room[i] = (double)prints[i].dims[a];
        f->dims[a] = percentile(room, n, 50.0);
        for (int i = 0; i < n; i++) {
            room[i] = (double)prints[i].box_dims[a] * prints[i].spacing_mm[a];
        }
        f->box_mm[a] = percentile(room, n, 50.0);
    }
}

static int describe(struct value_print *out, const float *values, int64_t n, struct error *e)
{
    struct moments of;
    out->n = n;
    if (n == 0)
        return 0;
    if (moments_of(&of, values, n, NULL, e) < 0)
        return -1;
    out->mean = of.mean;
    out->std = of.std;
    if (quantile_of(&out->median, values, n, 50.0, e) < 0)
        return -1;
    if (quantile_of(&out->low, values, n, 0.5, e) < 0)
        return -1;
    return quantile_of(&out->high, values, n, 99.5, e);
}

static int combine_channel(struct fingerprint *f, const struct case_print *prints, int n, int c,
                           struct error *e)
{
    struct fingerprint_channel *out = &f->channel[c];
    int64_t n_inside = 0, n_foreground = 0;
    int n_ct = 0, status = -1;
    out->min = prints[0].channel[c].min;
    out->max = prints[0].channel[c].max;
    for (int i = 0; i < n; i++) {
        const struct channel_print *p = &prints[i].channel[c];
        out->min = fmin(out->min, p->min);
        out->max = fmax(out->max, p->max);
        n_ct += p->min <= ct_air_hu && p->max > 0.0;
        n_inside += p->n_inside;
        n_foreground += p->n_foreground;
    }
    out->is_ct = n_ct * 10 >= n * 9; /* nine of ten: a set may hold an oddly cut scan */
    float *inside = mem_alloc(e, (size_t)n_inside, sizeof *inside);
    float *foreground = inside ? mem_alloc(e, (size_t)n_foreground, sizeof *foreground) : NULL;
    if (!foreground)
        goto out;
    n_inside = n_foreground = 0;
    for (int i = 0; i < n; i++) {
        const struct channel_print *p = &prints[i].channel[c];
        memcpy(inside + n_inside, p->inside, (size_t)p->n_inside * sizeof *inside);
        n_inside += p->n_inside;
        if (!p->foreground)
            continue;
        memcpy(foreground + n_foreground, p->foreground, (size_t)p->n_foreground * sizeof *inside);
        n_foreground += p->n_foreground;
    }
    if (describe(&out->inside, inside, n_inside, e) < 0)
        goto out;
    status = describe(&out->foreground, foreground, n_foreground, e);
out:
    mem_free(inside);
    mem_free(foreground);
    return status;
}

int fingerprint_combine(struct fingerprint *out, const struct case_print *prints, int n,
                        struct error *e)
{
    double *room = mem_alloc(e, (size_t)n, sizeof *room);
    memset(out, 0, sizeof *out);
    if (!room)
        return -1;
    out->n_cases = n;
    out->n_channels = prints[0].n_channels;
    for (int i = 0; i < n; i++) {
        out->n_labeled += prints[i].labeled;
        if (prints[i].n_channels == out->n_channels)
            continue;
        mem_free(room);
        return fail(e, ERR_DATA, "L14", "case %d has %d channels, case 1 has %d", i + 1,
                    prints[i].n_channels, out->n_channels);
    }
    combine_grids(out, prints, n, room);
    mem_free(room);
    for (int c = 0; c < out->n_channels; c++) {
        if (combine_channel(out, prints, n, c, e) < 0)
            return -1;
    }
    return 0;
}

/* ---- the choice ------------------------------------------------------------------------------ */

static void choose_spacing(double spacing_mm[3], const struct fingerprint *f)
{
    int worst = 0;
    memcpy(spacing_mm, f->spacing_mm, sizeof f->spacing_mm);
    for (int a = 1; a < 3; a++)
        worst = spacing_mm[a] > spacing_mm[worst] ? a : worst;
    double other_mm = 0.0, other_dims = INFINITY;
    for (int a = 0; a < 3; a++) {
        if (a == worst)
            continue;
        other_mm = fmax(other_mm, spacing_mm[a]);
        other_dims = fmin(other_dims, f->dims[a]);
    }
    if (spacing_mm[worst] > 3.0 * other_mm && f->dims[worst] * 3.0 < other_dims) {
        spacing_mm[worst] = fmax(f->spacing_10[worst], other_mm);
    }
}

static void choose_channel(struct recipe_channel *rule, const struct fingerprint_channel *f)
{
    const struct value_print *of =
        f->foreground.n >= FOREGROUND_ENOUGH ? &f->foreground : &f->inside;
    if (!f->is_ct || !(of->low < of->high))
        return; /* the percentiles of `auto` stay */
    rule->clip = CLIP_LAST;
    rule->low = of->low;
    rule->high = of->high;
    rule->scale = SCALE_FIXED;
    rule->mean = of->mean;
    rule->std = of->std > 0.0 ? of->std : 1.0;
}

void suggest_patch(int64_t patch[3], const double dims[3])
{
    for (int a = 0; a < 3; a++) {
        int64_t steps = (int64_t)floor(fmin(dims[a], 1024.0) / 16.0 + 0.5);
        patch[a] = 16 * (steps > 1 ? steps : 1);
    }
    while ((double)patch[0] * (double)patch[1] * (double)patch[2] > patch_voxels) {
        int longest = 0;
        for (int a = 1; a < 3; a++)
            longest = patch[a] > patch[longest] ? a : longest;
        patch[longest] -= 16;
    }
}

void recipe_choose(struct recipe *r, const struct fingerprint *f)
{
    double dims[3];
    choose_spacing(r->spacing_mm, f);
    if (f->channel[0].is_ct)
        r->crop = CROP_BODY;
    r->n_channels = f->n_channels;
    struct recipe_channel start = r->channel[0];
    for (int c = 0; c < f->n_channels; c++) {
        r->channel[c] = start;
        choose_channel(&r->channel[c], &f->channel[c]);
    }
    for (int a = 0; a < 3; a++)
        dims[a] = f->box_mm[a] / r->spacing_mm[a];
    suggest_patch(r->patch, dims);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

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
