/* prepare.c - one case through its recipe, and a mask back. See prepare.h.
 *
 * The image travels as one float32 volume with all channels; each step replaces it and frees what
 * it replaces, so at most two copies are alive. The label takes the same steps.
 *
 * Statistics are of values the step has: SCALE_SCAN sees the whole resampled scan, SCALE_CROP and
 * CLIP_PERCENTILES the crop, that is, exactly the voxels the network will be shown.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "prepare/boxes.h"
#include "prepare/moments.h"
#include "prepare/prepare.h"

static const float body_hu = -500.0f; /* halfway between air (-1000) and soft tissue (0) */

/* The case on its way. `label` has data NULL if there is none. */
struct work {
    const struct recipe *r;
    struct volume image, label, mask;
    struct prepared_transform *t;
    uint64_t case_key;
    int64_t n_label_lost;
    struct pool *pool;
};

static const struct recipe_channel *channel_rule(const struct recipe *r, int64_t c)
{
    return &r->channel[r->n_channels > 0 ? c : 0];
}

static float *channel_values(const struct volume *v, int64_t c)
{
    return (float *)v->data + c * volume_voxels(v);
}

static void replace(struct volume *old, struct volume *made)
{
    volume_free(old);
    *old = *made;
    memset(made, 0, sizeof *made);
}

/* ---- the start: floats, classes, transform --------------------------------------------------- */

static int check_case(const struct recipe *r, const struct volume *image,
                      const struct volume *label, struct error *e)
{
    int64_t channels = volume_channels(image);
    if (channels > RECIPE_MAX_CHANNELS) {
        return fail(e, ERR_DATA, NULL, "%lld channels, allowed at most %d", (long long)channels,
                    RECIPE_MAX_CHANNELS);
    }
    if (r->n_channels > 0 && channels != r->n_channels) {
        return fail(e, ERR_DATA, "L14", "%lld channels, the recipe is for %d", (long long)channels,
                    r->n_channels);
    }
    if (recipe_needs_label(r) && !label) {
        return fail(e, ERR_DATA, NULL,
                    "unlabelled, but recipe %s crops around the true label; use a "
                    "recipe without 'paper-'",
                    r->name);
    }
    for (int a = 0; label && a < 3; a++) {
        if (label->dims[a] == image->dims[a])
            continue;
        return fail(e, ERR_DATA, "L02", "label is %lldx%lldx%lld, image %lldx%lldx%lld",
                    (long long)label->dims[0], (long long)label->dims[1], (long long)label->dims[2],
                    (long long)image->dims[0], (long long)image->dims[1],
                    (long long)image->dims[2]);
    }
    return 0;
}

/* Class numbers as a uint16 volume on the image's grid. */
static int take_label(struct work *w, const struct volume *label, const struct geometry *grid,
                      struct error *e)
{
    label_t *classes = NULL;
    int64_t n = volume_voxels(label);
    if (volume_labels(&classes, NULL, label, e) < 0)
        return -1;
    for (int64_t i = 0; w->r->binary && i < n; i++)
        classes[i] = classes[i] > 0;
    if (volume_new(&w->label, DTYPE_U16, label->dims, grid, e) < 0) {
        mem_free(classes);
        return -1;
    }
    mem_free(w->label.data);
    w->label.data = classes;
    return 0;
}

static int take_mask(struct work *w, struct error *e)
{
    const float *values = channel_values(&w->image, 0);
    int64_t n = volume_voxels(&w->image);
    if (volume_new(&w->mask, DTYPE_U8, w->image.dims, &w->image.geometry, e) < 0)
        return -1;
    for (int64_t i = 0; i < n; i++)
        ((uint8_t *)w->mask.data)[i] = values[i] > 0.0f;
    return 0;
}

static void start_transform(struct prepared_transform *t, const struct volume *image)
{
    memset(t, 0, sizeof *t);
    t->original = image->geometry;
    t->n_channels = (int)volume_channels(image);
    for (int a = 0; a < 3; a++) {
        t->original_dims[a] = image->dims[a];
        t->axis[a] = a;
    }
    for (int c = 0; c < t->n_channels; c++) {
        t->value[c] = (struct value_map){-(double)FLT_MAX, (double)FLT_MAX, 0.0, 1.0};
    }
}

static int start_work(struct work *w, const struct volume *image, const struct volume *label,
                      struct error *e)
{
    start_transform(w->t, image);
    if (volume_as_floats(&w->image, image, w->r->nan, e) < 0)
        return -1;
    if (label && take_label(w, label, &image->geometry, e) < 0)
        return -1;
    return w->r->keep_mask ? take_mask(w, e) : 0;
}

/* ---- grid ------------------------------------------------------------------------------------ */

static int permute_in_place(struct volume *v, const struct prepared_transform *t, struct error *e)
{
    struct volume made = {0};
    if (!v->data)
        return 0;
    if (volume_permute(&made, v, t->axis, t->flip, e) < 0)
        return -1;
    replace(v, &made);
    return 0;
}

static int reorient(struct work *w, struct error *e)
{
    struct prepared_transform *t = w->t;
    int moves = 0;
    if (!w->r->reorient)
        return 0;
    if (orientation_axes(t->axis, t->flip, &w->image.geometry, "RAS", e) < 0)
        return -1;
    for (int a = 0; a < 3; a++)
        moves |= t->axis[a] != a || t->flip[a];
    if (!moves)
        return 0;
    if (permute_in_place(&w->image, t, e) < 0 || permute_in_place(&w->label, t, e) < 0)
        return -1;
    return permute_in_place(&w->mask, t, e);
}

static int plan_grid(struct work *w, struct error *e)
{
    for (int a = 0; a < 3; a++) {
        int64_t n = w->image.dims[a];
        double have = w->image.geometry.spacing_mm[a], want = w->r->spacing_mm[a];
        struct resample_axis *grid = &w->t->grid[a];
        resample_axis_identity(grid, n);
        if (want == 0.0)
            continue;
        if (!(have > 0.0) || !isfinite(have)) {
            return fail(e, ERR_DATA, NULL, "spacing %g mm on axis %d, must be > 0", have, a);
        }
        if (w->r->align == ALIGN_CENTRED)
            resample_axis_centred(grid, n, have, want);
        else
            resample_axis_ends(grid, n, resample_count(n, have, want));
    }
    return 0;
}

static int resample(struct work *w, struct error *e)
{
    struct volume made = {0};
    const struct resample_axis *grid = w->t->grid;
    if (plan_grid(w, e) < 0)
        return -1;
    if (resample_is_identity(grid, w->image.dims))
        return 0;
    if (volume_resample(&made, &w->image, grid, w->r->image_kind, w->pool, e) < 0)
        return -1;
    replace(&w->image, &made);
    if (w->label.data) {
        if (volume_resample(&made, &w->label, grid, w->r->label_kind, w->pool, e) < 0)
            return -1;
        replace(&w->label, &made);
    }
    if (w->mask.data) {
        if (volume_resample(&made, &w->mask, grid, RESAMPLE_NEAREST, w->pool, e) < 0)
            return -1;
        replace(&w->mask, &made);
    }
    return 0;
}

/* ---- crop ------------------------------------------------------------------------------------ */

void crop_la(struct box *out, const struct box *label, const int64_t dims[3], uint64_t seed,
             uint64_t case_key)
{
    const int64_t patch[2] = {112, 112}; /* the network's patch in i and j */
    struct rng rng = rng_start(seed, 0, RNG_CROP, case_key);
    for (int a = 0; a < 2; a++) {
        int64_t first = label->first[a], last = first + label->dims[a] - 1;
        int64_t missing = patch[a] - (last - first) > 0 ? (patch[a] - (last - first)) / 2 : 0;
        int64_t before = 10 + rng_below(&rng, 10), after = 10 + rng_below(&rng, 10);
        int64_t from = first - before - missing, end = last + after + missing;
        out->first[a] = from > 0 ? from : 0;
        out->dims[a] = (end < dims[a] ? end : dims[a]) - out->first[a];
    }
    out->first[2] = 0;
    out->dims[2] = dims[2];
}

/* Half-open with the last foreground voxel + margin as its end, as published: one voxel less there.
 */
static void crop_margin(struct box *out, const struct box *label, const int64_t dims[3],
                        int64_t margin)
{
    for (int a = 0; a < 3; a++) {
        int64_t from = label->first[a] - margin,
                end = label->first[a] + label->dims[a] - 1 + margin;
        out->first[a] = from > 0 ? from : 0;
        out->dims[a] = (end < dims[a] ? end : dims[a]) - out->first[a];
    }
}

static int crop_around_label(struct box *out, const struct work *w, struct error *e)
{
    struct box label;
    if (!box_of_label(&label, w->label.data, w->label.dims)) {
        return fail(e, ERR_DATA, "L07", "label has no foreground, but recipe %s crops around it",
                    w->r->name);
    }
    if (w->r->crop == CROP_LABEL)
        crop_margin(out, &label, w->image.dims, w->r->margin);
    else
        crop_la(out, &label, w->image.dims, w->r->seed, w->case_key);
    return 0;
}

static void crop_nonzero(struct box *out, const struct volume *image)
{
    int64_t n = volume_voxels(image), channels = volume_channels(image);
    for (int64_t c = 0; c < channels; c++) {
        const float *values = channel_values(image, c);
        struct box box;
        float least = values[0];
        for (int64_t i = 1; i < n; i++)
            least = values[i] < least ? values[i] : least;
        box_of_values(&box, values, image->dims, least);
        if (c == 0)
            *out = box;
        else
            box_join(out, &box);
    }
}

static int find_box(struct box *out, const struct work *w, struct error *e)
{
    switch (w->r->crop) {
    case CROP_LABEL:
    case CROP_LABEL_LA:
        return crop_around_label(out, w, e);
    case CROP_BODY:
        return box_of_body(out, channel_values(&w->image, 0), w->image.dims, body_hu, e);
    case CROP_NONZERO:
        crop_nonzero(out, &w->image);
        return 0;
    case CROP_NONE:
        break;
    }
    for (int a = 0; a < 3; a++) {
        out->first[a] = 0;
        out->dims[a] = w->image.dims[a];
    }
    return 0;
}

static int64_t count_labelled(const struct volume *label)
{
    const label_t *classes = label->data;
    int64_t n = classes ? volume_voxels(label) : 0, count = 0;
    for (int64_t i = 0; i < n; i++)
        count += classes[i] > 0;
    return count;
}

static int crop(struct work *w, struct error *e)
{
    struct volume *all[3] = {&w->image, &w->label, &w->mask}, made = {0};
    struct box box;
    if (find_box(&box, w, e) < 0)
        return -1;
    memcpy(w->t->crop_first, box.first, sizeof box.first);
    memcpy(w->t->crop_dims, box.dims, sizeof box.dims);
    if (memcmp(box.dims, w->image.dims, sizeof box.dims) == 0)
        return 0;
    w->n_label_lost = count_labelled(&w->label);
    for (int i = 0; i < 3; i++) {
        if (!all[i]->data)
            continue;
        if (volume_crop(&made, all[i], box.first, box.dims, 0.0, e) < 0)
            return -1;
        replace(all[i], &made);
    }
    w->n_label_lost -= count_labelled(&w->label);
    return 0;
}

/* ---- values ---------------------------------------------------------------------------------- */

struct map_job {
    float *values;
    int64_t n;
    struct value_map map;
};

enum { BLOCK = 1 << 16 };

static void map_block(void *arg, int64_t b)
{
    const struct map_job *job = arg;
    const struct value_map m = job->map;
    int64_t end = (b + 1) * BLOCK < job->n ? (b + 1) * BLOCK : job->n;
    for (int64_t i = b * BLOCK; i < end; i++) {
        double v = (double)job->values[i];
        v = v < m.low ? m.low : v > m.high ? m.high : v;
        job->values[i] = (float)((v - m.shift) / m.scale);
    }
}

static void map_values(float *values, int64_t n, struct value_map map, struct pool *pool)
{
    struct map_job job = {values, n, map};
    pool_run(pool, (n + BLOCK - 1) / BLOCK, map_block, &job);
}

/* Shift and scale that give zero mean and unit variance; a constant channel becomes 0 [N38]. */
static int standardise(struct work *w, int64_t c, struct error *e)
{
    struct value_map m = {-(double)FLT_MAX, (double)FLT_MAX, 0.0, 1.0};
    struct moments of;
    int64_t n = volume_voxels(&w->image);
    if (moments_of(&of, channel_values(&w->image, c), n, w->pool, e) < 0)
        return -1;
    m.shift = of.mean;
    if (of.std > 0.0)
        m.scale = of.std;
    else
        w->t->n_constant++;
    w->t->value[c].shift = m.shift;
    w->t->value[c].scale = m.scale;
    map_values(channel_values(&w->image, c), n, m, w->pool);
    return 0;
}

static void clip(struct work *w, int64_t c, double low, double high)
{
    w->t->value[c].low = low;
    w->t->value[c].high = high;
    map_values(channel_values(&w->image, c), volume_voxels(&w->image),
               (struct value_map){low, high, 0.0, 1.0}, w->pool);
}

static int clip_last(struct work *w, int64_t c, struct error *e)
{
    const struct recipe_channel *rule = channel_rule(w->r, c);
    const float *values = channel_values(&w->image, c);
    int64_t n = volume_voxels(&w->image);
    double low = rule->low, high = rule->high;
    if (rule->clip == CLIP_PERCENTILES) {
        if (quantile_of(&low, values, n, rule->low, e) < 0)
            return -1;
        if (quantile_of(&high, values, n, rule->high, e) < 0)
            return -1;
        /* A scan that is empty but for a small object would lose it: leave such a one alone. */
        if (!(low < high))
            return 0;
    }
    clip(w, c, low, high);
    return 0;
}

/* What is done before the crop. CLIP_FIRST comes before the grid changes. */
static void clip_first(struct work *w)
{
    for (int64_t c = 0; c < w->t->n_channels; c++) {
        const struct recipe_channel *rule = channel_rule(w->r, c);
        if (rule->clip == CLIP_FIRST)
            clip(w, c, rule->low, rule->high);
    }
}

static int scale_scan(struct work *w, struct error *e)
{
    for (int64_t c = 0; c < w->t->n_channels; c++) {
        if (channel_rule(w->r, c)->scale == SCALE_SCAN && standardise(w, c, e) < 0)
            return -1;
    }
    return 0;
}

static int scale_crop(struct work *w, struct error *e)
{
    for (int64_t c = 0; c < w->t->n_channels; c++) {
        const struct recipe_channel *rule = channel_rule(w->r, c);
        if ((rule->clip == CLIP_LAST || rule->clip == CLIP_PERCENTILES) && clip_last(w, c, e) < 0) {
            return -1;
        }
        if (rule->scale == SCALE_CROP && standardise(w, c, e) < 0)
            return -1;
        if (rule->scale != SCALE_FIXED)
            continue;
        w->t->value[c].shift = rule->mean;
        w->t->value[c].scale = rule->std > 0.0 ? rule->std : 1.0;
        struct value_map m = w->t->value[c];
        map_values(channel_values(&w->image, c), volume_voxels(&w->image), m, w->pool);
    }
    return 0;
}

/* ---- all of it ------------------------------------------------------------------------------- */

/* uint16 to uint8 where that is enough, which is nearly always: a quarter of the file. */
static int shrink_label(struct volume *label, struct error *e)
{
    const label_t *classes = label->data;
    int64_t n = volume_voxels(label);
    struct volume made = {0};
    if (!label->data)
        return 0;
    for (int64_t i = 0; i < n; i++) {
        if (classes[i] > 255)
            return 0;
    }
    if (volume_new(&made, DTYPE_U8, label->dims, &label->geometry, e) < 0)
        return -1;
    for (int64_t i = 0; i < n; i++)
        ((uint8_t *)made.data)[i] = (uint8_t)classes[i];
    replace(label, &made);
    return 0;
}

int prepare_case(struct prepared *out, const struct recipe *r, const struct volume *image,
                 const struct volume *label, uint64_t case_key, struct pool *pool, struct error *e)
{
    struct work w = {.r = r, .t = &out->transform, .case_key = case_key, .pool = pool};
    int status = -1;
    memset(out, 0, sizeof *out);
    if (check_case(r, image, label, e) < 0)
        goto out;
    if (start_work(&w, image, label, e) < 0)
        goto out;
    clip_first(&w);
    if (reorient(&w, e) < 0)
        goto out;
    if (resample(&w, e) < 0)
        goto out;
    if (scale_scan(&w, e) < 0)
        goto out;
    if (crop(&w, e) < 0)
        goto out;
    if (scale_crop(&w, e) < 0)
        goto out;
    if (shrink_label(&w.label, e) < 0)
        goto out;
    if (w.t->n_channels == 1)
        w.image.n_dims = 3;
    status = 0;
out:
    out->image = w.image;
    out->label = w.label;
    out->mask = w.mask;
    out->n_label_lost = w.n_label_lost;
    if (status < 0)
        prepared_free(out);
    return status;
}

void prepared_free(struct prepared *p)
{
    volume_free(&p->image);
    volume_free(&p->label);
    volume_free(&p->mask);
}

/* ---- back ------------------------------------------------------------------------------------ */

/* The grid that inverts `grid`: output o of the original lies at (o - start) / step. */
static void invert_grid(struct resample_axis back[3], const struct prepared_transform *t)
{
    for (int a = 0; a < 3; a++) {
        const struct resample_axis *g = &t->grid[a];
        int64_t n = t->original_dims[t->axis[a]];
        back[a] = (struct resample_axis){n, -g->start / g->step, 1.0 / g->step};
        if (g->start == 0.0)
            back[a].start = 0.0; /* not -0 */
    }
}

static enum resample_kind back_kind(const struct volume *v)
{
    return v->dtype == DTYPE_F32 ? RESAMPLE_LINEAR : RESAMPLE_CLASSES;
}

static int check_back(const struct volume *v, const struct prepared_transform *t, struct error *e)
{
    if (memcmp(v->dims, t->crop_dims, sizeof t->crop_dims) != 0) {
        return fail(
            e, ERR_DATA, NULL, "%lldx%lldx%lld voxels, the prepared case has %lldx%lldx%lld",
            (long long)v->dims[0], (long long)v->dims[1], (long long)v->dims[2],
            (long long)t->crop_dims[0], (long long)t->crop_dims[1], (long long)t->crop_dims[2]);
    }
    if (v->dtype != DTYPE_F32 && v->dtype != DTYPE_U8 && v->dtype != DTYPE_U16) {
        return fail(e, ERR_DATA, NULL, "type %s, allowed uint8, uint16 and float32",
                    dtype_name(v->dtype));
    }
    return 0;
}

int prepare_map_back(struct volume *out, const struct volume *prepared,
                     const struct prepared_transform *t, struct pool *pool, struct error *e)
{
    struct volume whole = {0}, made = {0};
    struct resample_axis back[3];
    const int64_t dims[3] = {t->grid[0].n, t->grid[1].n, t->grid[2].n};
    int64_t first[3];
    int status = -1;
    memset(out, 0, sizeof *out);
    if (check_back(prepared, t, e) < 0)
        goto out;
    for (int a = 0; a < 3; a++)
        first[a] = -t->crop_first[a];
    if (volume_crop(&whole, prepared, first, dims, 0.0, e) < 0)
        goto out;
    invert_grid(back, t);
    if (!resample_is_identity(back, dims)) {
        if (volume_resample(&made, &whole, back, back_kind(prepared), pool, e) < 0)
            goto out;
        replace(&whole, &made);
    }
    if (volume_unpermute(out, &whole, t->axis, t->flip, e) < 0)
        goto out;
    out->geometry = t->original;
    status = 0;
out:
    volume_free(&whole);
    volume_free(&made);
    return status;
}
