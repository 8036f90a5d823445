/* fingerprint.c - see fingerprint.h.
 *
 * The rules for spacing are nnU-Net's (Isensee et al., Nature Methods 18, 2021): the median of each
 * axis; if the coarsest axis is more than 3 times coarser than the others and has less than a third
 * of their voxels, its 10th percentile, but no finer than the others. A CT is known by its air.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "prepare/boxes.h"
#include "prepare/fingerprint.h"
#include "prepare/moments.h"

static const double ct_air_hu = -500.0;                /* a scan that reaches below it holds air */
static const double patch_voxels = 96.0 * 96.0 * 96.0; /* what one GPU or a patient CPU trains on */
enum { FOREGROUND_ENOUGH = 100 };                      /* fewer sampled values say little about an organ */
enum { OUTSIDE_ONE_IN = 1000 }; /* labelled voxels may lie outside of the body: drawn over its rim */

void case_print_free(struct case_print *p)
{
    for (int c = 0; c < RECIPE_MAX_CHANNELS; c++) {
        mem_free(p->channel[c].inside.value);
        mem_free(p->channel[c].foreground.value);
    }
    memset(p, 0, sizeof *p);
}

/* ---- one case -------------------------------------------------------------------------------- */

/* Random voxels of a box, with replacement: a regular stride could follow the rows of the scan. */
static int sample_inside(struct sample_print *out, const float *values, const int64_t dims[3],
                         const struct box *box, struct rng rng, int samples, struct error *e)
{
    out->value = mem_alloc(e, (size_t)samples, sizeof *out->value);
    if (!out->value)
        return -1;
    for (; out->n < samples; out->n++) {
        int64_t at[3];
        for (int a = 0; a < 3; a++)
            at[a] = box->first[a] + rng_below(&rng, (uint32_t)box->dims[a]);
        out->value[out->n] = values[at[0] + dims[0] * (at[1] + dims[1] * at[2])];
    }
    return 0;
}

/* Every n-th labelled voxel, so that at most `samples` are taken. */
static int sample_foreground(struct sample_print *out, const float *values, const label_t *label, int64_t n,
                             int samples, struct error *e)
{
    int64_t total = 0, seen = 0;
    for (int64_t i = 0; i < n; i++)
        total += label[i] > 0;
    int64_t every = total / samples + 1;
    out->value = mem_alloc(e, (size_t)(total / every + 1), sizeof *out->value);
    if (!out->value)
        return -1;
    for (int64_t i = 0; i < n; i++) {
        if (label[i] > 0 && seen++ % every == 0)
            out->value[out->n++] = values[i];
    }
    return 0;
}

/* Labelled voxels of a box. */
static int64_t count_labeled(const label_t *label, const int64_t dims[3], const struct box *box)
{
    int64_t count = 0;
    for (int64_t k = 0; k < box->dims[2]; k++)
        for (int64_t j = 0; j < box->dims[1]; j++) {
            int64_t row = box->first[1] + j + dims[1] * (box->first[2] + k);
            for (int64_t i = 0; i < box->dims[0]; i++)
                count += label[box->first[0] + i + dims[0] * row] > 0;
        }
    return count;
}

/* One channel into *p; its box of body or signal is joined to *joined. classes NULL: unlabelled. */
static int measure_channel(struct channel_print *p, struct box *joined, const float *values,
                           const int64_t dims[3], const label_t *classes, uint64_t key, int samples,
                           struct error *e)
{
    int64_t n = dims[0] * dims[1] * dims[2];
    struct moments of;
    struct box box;
    if (moments_of(&of, values, n, NULL, e) < 0)
        return -1;
    p->min = of.min;
    p->max = of.max;
    if (of.min > ct_air_hu)
        box_of_signal(&box, values, dims);
    else if (box_of_body(&box, values, dims, (float)ct_air_hu, e) < 0)
        return -1;
    box_join(joined, &box);
    struct rng rng = rng_start(0, 0, RNG_FINGERPRINT, key);
    if (sample_inside(&p->inside, values, dims, &box, rng, samples, e) < 0)
        return -1;
    return classes ? sample_foreground(&p->foreground, values, classes, n, samples, e) : 0;
}

int case_print_measure(struct case_print *out, const struct volume *image, const struct volume *label,
                       enum nan_policy nan, uint64_t case_key, int samples, struct error *e)
{
    int64_t channels = volume_channels(image);
    label_t *classes = NULL;
    struct box box = {{0}, {0}};
    int axis[3], flip[3], status = -1;
    memset(out, 0, sizeof *out);
    if (channels > RECIPE_MAX_CHANNELS)
        return fail(e, ERR_DATA, "L14", "%lld channels, allowed at most %d", (long long)channels,
                    RECIPE_MAX_CHANNELS);
    if (label && volume_labels(&classes, NULL, label, e) < 0)
        goto out;
    for (int64_t c = 0; c < channels; c++) {
        uint64_t key = case_key * RECIPE_MAX_CHANNELS + (uint64_t)c;
        float *values;
        if (volume_floats(&values, image, c, nan, e) < 0)
            goto out;
        int bad = measure_channel(&out->channel[c], &box, values, image->dims, classes, key, samples, e);
        mem_free(values);
        if (bad)
            goto out;
        if (classes && c == 0) { /* only now is the box that of the first channel */
            struct box whole;
            box_whole(&whole, image->dims);
            out->n_labeled = count_labeled(classes, image->dims, &whole);
            out->n_outside = out->n_labeled - count_labeled(classes, image->dims, &box);
        }
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

static int combine_grids(struct fingerprint *f, const struct case_print *prints, int n, struct error *e)
{
    double *room = mem_alloc(e, 3 * (size_t)n, sizeof *room);
    double *spacing = room, *dims = room + n, *box = room + 2 * n;
    if (!room)
        return -1;
    for (int a = 0; a < 3; a++) {
        for (int i = 0; i < n; i++) {
            spacing[i] = prints[i].spacing_mm[a];
            dims[i] = (double)prints[i].dims[a];
            box[i] = (double)prints[i].box_dims[a] * prints[i].spacing_mm[a];
        }
        f->spacing_mm[a] = percentile(spacing, n, 50.0);
        f->spacing_10[a] = percentile(spacing, n, 10.0);
        f->dims[a] = percentile(dims, n, 50.0);
        f->box_mm[a] = percentile(box, n, 50.0);
    }
    mem_free(room);
    return 0;
}

/* Statistics of the samples of all cases together. */
static int describe(struct value_print *out, const struct sample_print *of[], int n, struct error *e)
{
    struct moments all;
    int status = -1;
    for (int i = 0; i < n; i++)
        out->n += of[i]->n;
    if (out->n == 0)
        return 0;
    float *values = mem_alloc(e, (size_t)out->n, sizeof *values), *to = values;
    if (!values)
        return -1;
    for (int i = 0; i < n; to += of[i++]->n) {
        if (of[i]->n > 0)
            memcpy(to, of[i]->value, (size_t)of[i]->n * sizeof *to);
    }
    if (moments_of(&all, values, out->n, NULL, e) == 0 &&
        quantile_of(&out->median, values, out->n, 50.0, e) == 0 &&
        quantile_of(&out->low, values, out->n, 0.5, e) == 0)
        status = quantile_of(&out->high, values, out->n, 99.5, e);
    if (status == 0) {
        out->mean = all.mean;
        out->std = all.std;
    }
    mem_free(values);
    return status;
}

static int combine_channel(struct fingerprint_channel *out, const struct case_print *prints, int n, int c,
                           struct error *e)
{
    const struct sample_print **of = mem_alloc(e, 2 * (size_t)n, sizeof *of);
    int n_ct = 0;
    if (!of)
        return -1;
    out->min = INFINITY;
    out->max = -INFINITY;
    for (int i = 0; i < n; i++) {
        const struct channel_print *p = &prints[i].channel[c];
        out->min = fmin(out->min, p->min);
        out->max = fmax(out->max, p->max);
        n_ct += p->min <= ct_air_hu && p->max > 0.0;
        of[i] = &p->inside;
        of[n + i] = &p->foreground;
    }
    out->is_ct = n_ct * 10 >= n * 9; /* nine of ten: a set may hold an oddly cut scan */
    int status = describe(&out->inside, of, n, e);
    if (status == 0)
        status = describe(&out->foreground, of + n, n, e);
    mem_free(of);
    return status;
}

int fingerprint_combine(struct fingerprint *out, const struct case_print *prints, int n, struct error *e)
{
    int64_t n_labeled = 0, n_outside = 0;
    memset(out, 0, sizeof *out);
    out->n_cases = n;
    out->n_channels = prints[0].n_channels;
    for (int i = 0; i < n; i++) {
        out->n_labeled += prints[i].labeled;
        n_labeled += prints[i].n_labeled;
        n_outside += prints[i].n_outside;
        if (prints[i].n_channels != out->n_channels)
            return fail(e, ERR_DATA, "L14", "case %d has %d channels, case 1 has %d", i + 1,
                        prints[i].n_channels, out->n_channels);
    }
    out->keeps_labels = n_outside * OUTSIDE_ONE_IN <= n_labeled;
    if (combine_grids(out, prints, n, e) < 0)
        return -1;
    for (int c = 0; c < out->n_channels; c++) {
        if (combine_channel(&out->channel[c], prints, n, c, e) < 0)
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
    const struct value_print *of = f->foreground.n >= FOREGROUND_ENOUGH ? &f->foreground : &f->inside;
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
    int to_body = f->channel[0].is_ct && f->keeps_labels; /* a piece of lung has nodules beside the "body" */
    choose_spacing(r->spacing_mm, f);
    if (to_body)
        r->crop = CROP_BODY;
    r->n_channels = f->n_channels;
    struct recipe_channel start = r->channel[0];
    for (int c = 0; c < f->n_channels; c++) {
        r->channel[c] = start;
        choose_channel(&r->channel[c], &f->channel[c]);
    }
    for (int a = 0; a < 3; a++)
        dims[a] = (f->channel[0].is_ct && !to_body ? f->dims[a] * f->spacing_mm[a] : f->box_mm[a]) /
                  r->spacing_mm[a];
    suggest_patch(r->patch, dims);
}
