/* prepare.c - one case through its recipe, and a mask back. See prepare.h.
 *
 * The image travels as one float32 volume with all channels; each step replaces it and frees what
 * it replaces, so at most two copies are alive. Label and mask take the same steps.
 *
 * Statistics are of values the step has: SCALE_SCAN sees the whole resampled scan, SCALE_CROP and
 * CLIP_PERCENTILES the crop, that is, exactly the voxels the network will be shown.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "prepare/moments.h"
#include "prepare/prepare.h"

static const float body_hu = -500.0f; /* halfway between air (-1000) and soft tissue (0) */

/* A case on its way. */
struct work {
    const struct recipe *r;
    struct prepared *p;
    uint64_t case_key;
    struct pool *pool;
};

enum part { IMAGE, LABEL, MASK };

/* Replaces each part that exists by what change() makes of it, which may free its voxels. */
static int change_parts(struct work *w,
                        int (*change)(struct volume *out, struct volume *in, const struct work *w,
                                      enum part part, struct error *e),
                        struct error *e)
{
    struct volume *parts[] = {&w->p->image, &w->p->label, &w->p->mask}, made;
    for (int i = IMAGE; i <= MASK; i++) {
        if (!parts[i]->data)
            continue;
        if (change(&made, parts[i], w, (enum part)i, e) < 0)
            return -1;
        volume_free(parts[i]);
        *parts[i] = made;
    }
    return 0;
}

/* ---- the start: floats, classes, mask -------------------------------------------------------- */

static int check_case(const struct recipe *r, const struct volume *image, const struct volume *label,
                      const struct box *label_box, struct error *e)
{
    long long channels = volume_channels(image);
    if (channels > RECIPE_MAX_CHANNELS)
        return fail(e, ERR_DATA, "L14", "%lld channels, allowed at most %d", channels, RECIPE_MAX_CHANNELS);
    if (r->n_channels > 0 && channels != r->n_channels)
        return fail(e, ERR_DATA, "L14", "%lld channels, the recipe is for %d", channels, r->n_channels);
    if (recipe_needs_label(r) && !label && !label_box)
        return fail(e, ERR_DATA, "L01",
                    "no label, but recipe %s crops around the true label; "
                    "use one without 'paper-'",
                    r->name);
    if (label && memcmp(label->dims, image->dims, 3 * sizeof image->dims[0]) != 0)
        return fail(e, ERR_DATA, "L02", "label and image differ in shape");
    return 0;
}

static int take_label(struct volume *out, const struct recipe *r, const struct volume *label,
                      const struct geometry *grid, struct error *e)
{
    label_t *classes;
    if (volume_new(out, DTYPE_U16, label->dims, grid, e) < 0 || volume_labels(&classes, NULL, label, e) < 0)
        return -1;
    mem_free(out->data);
    out->data = classes;
    for (int64_t i = 0; r->binary && i < volume_voxels(label); i++)
        classes[i] = classes[i] > 0;
    return 0;
}

static int take_mask(struct work *w, struct error *e)
{
    const struct volume *image = &w->p->image;
    const float *values = image->data;
    if (volume_new(&w->p->mask, DTYPE_U8, image->dims, &image->geometry, e) < 0)
        return -1;
    for (int64_t i = 0; i < volume_voxels(image); i++)
        ((uint8_t *)w->p->mask.data)[i] = values[i] > 0.0f;
    return 0;
}

static int start(struct work *w, const struct volume *image, const struct volume *label, struct error *e)
{
    struct prepared_transform *t = &w->p->transform;
    t->original = image->geometry;
    t->n_channels = (int)volume_channels(image);
    for (int a = 0; a < 3; a++) {
        t->original_dims[a] = image->dims[a];
        t->axis[a] = a;
    }
    for (int c = 0; c < t->n_channels; c++)
        t->value[c] = (struct value_map){-(double)FLT_MAX, (double)FLT_MAX, 0.0, 1.0};
    if (volume_as_floats(&w->p->image, image, w->r->nan, e) < 0)
        return -1;
    if (label && take_label(&w->p->label, w->r, label, &image->geometry, e) < 0)
        return -1;
    return w->r->keep_mask ? take_mask(w, e) : 0;
}

/* ---- grid ------------------------------------------------------------------------------------ */

static int permute_part(struct volume *out, struct volume *in, const struct work *w, enum part part,
                        struct error *e)
{
    (void)part;
    return volume_permute(out, in, w->p->transform.axis, w->p->transform.flip, e);
}

static int reorient(struct work *w, struct error *e)
{
    struct prepared_transform *t = &w->p->transform;
    int moves = 0;
    if (!w->r->reorient)
        return 0;
    if (orientation_axes(t->axis, t->flip, &t->original, "RAS", e) < 0)
        return -1;
    for (int a = 0; a < 3; a++)
        moves |= t->axis[a] != a || t->flip[a];
    return moves ? change_parts(w, permute_part, e) : 0;
}

static int plan_grid(struct work *w, struct error *e)
{
    const struct volume *image = &w->p->image;
    for (int a = 0; a < 3; a++) {
        int64_t n = image->dims[a];
        double have = image->geometry.spacing_mm[a], want = w->r->spacing_mm[a];
        struct resample_axis *grid = &w->p->transform.grid[a];
        if (want == 0.0)
            resample_axis_identity(grid, n);
        else if (!(have > 0.0) || !isfinite(have))
            return fail(e, ERR_DATA, "N23", "spacing %g mm on axis %d, must be > 0", have, a);
        else if (w->r->align == ALIGN_CENTRED)
            resample_axis_centred(grid, n, have, want);
        else
            resample_axis_ends(grid, n, resample_count(n, have, want));
    }
    return 0;
}

static int resample_part(struct volume *out, struct volume *in, const struct work *w, enum part part,
                         struct error *e)
{
    const enum resample_kind kinds[] = {w->r->image_kind, w->r->label_kind, RESAMPLE_NEAREST};
    return volume_resample_last(out, in, w->p->transform.grid, kinds[part], w->pool, e);
}

static int resample(struct work *w, struct error *e)
{
    if (plan_grid(w, e) < 0)
        return -1;
    if (resample_is_identity(w->p->transform.grid, w->p->image.dims))
        return 0;
    return change_parts(w, resample_part, e);
}

/* ---- crop ------------------------------------------------------------------------------------ */

/* from..end - 1 of axis a, as far as the grid reaches. */
static void set_span(struct box *out, int a, int64_t from, int64_t end, const int64_t dims[3])
{
    out->first[a] = from > 0 ? from : 0;
    out->dims[a] = (end < dims[a] ? end : dims[a]) - out->first[a];
}

/* The LA rule: per axis i and j, margins of 10..19 and what is missing to 112 voxels, the
 * network's patch; all k. */
static void crop_la(struct box *out, const struct box *label, const struct work *w)
{
    struct rng rng = rng_start(w->r->seed, 0, RNG_CROP, w->case_key);
    for (int a = 0; a < 2; a++) {
        int64_t first = label->first[a], extent = label->dims[a] - 1, last = first + extent;
        int64_t missing = extent < 112 ? (112 - extent) / 2 : 0;
        int64_t before = 10 + rng_below(&rng, 10), after = 10 + rng_below(&rng, 10);
        set_span(out, a, first - before - missing, last + after + missing, w->p->image.dims);
    }
    set_span(out, 2, 0, w->p->image.dims[2], w->p->image.dims);
}

/* Ends at the last foreground voxel + margin, as published: one voxel less there. */
static void crop_margin(struct box *out, const struct box *label, const struct work *w)
{
    for (int a = 0; a < 3; a++) {
        int64_t first = label->first[a], last = first + label->dims[a] - 1;
        set_span(out, a, first - w->r->margin, last + w->r->margin, w->p->image.dims);
    }
}

static int box_around(struct box *out, const struct volume *label, const struct recipe *r, struct error *e)
{
    if (box_of_label(out, label->data, label->dims))
        return 0;
    return fail(e, ERR_DATA, "L07", "label has no foreground, but recipe %s crops around it", r->name);
}

static int crop_around_label(struct box *out, const struct work *w, struct error *e)
{
    struct box label = w->p->label_box;
    if (label.dims[0] == 0 && box_around(&label, &w->p->label, w->r, e) < 0)
        return -1;
    (w->r->crop == CROP_LABEL ? crop_margin : crop_la)(out, &label, w);
    return 0;
}

static int find_box(struct box *out, const struct work *w, struct error *e)
{
    const struct volume *image = &w->p->image;
    if (recipe_needs_label(w->r))
        return crop_around_label(out, w, e);
    if (w->r->crop == CROP_BODY)
        return box_of_body(out, image->data, image->dims, body_hu, e);
    if (w->r->crop == CROP_NONE) {
        box_whole(out, image->dims);
        return 0;
    }
    memset(out, 0, sizeof *out);
    for (int64_t c = 0; c < volume_channels(image); c++) {
        struct box signal;
        box_of_signal(&signal, (float *)image->data + c * volume_voxels(image), image->dims);
        box_join(out, &signal);
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

static int crop_part(struct volume *out, struct volume *in, const struct work *w, enum part part,
                     struct error *e)
{
    (void)part;
    return volume_crop(out, in, w->p->transform.crop_first, w->p->transform.crop_dims, 0.0, e);
}

static int crop(struct work *w, struct error *e)
{
    struct prepared_transform *t = &w->p->transform;
    struct box box;
    if (find_box(&box, w, e) < 0)
        return -1;
    memcpy(t->crop_first, box.first, sizeof box.first);
    memcpy(t->crop_dims, box.dims, sizeof box.dims);
    if (memcmp(box.dims, w->p->image.dims, sizeof box.dims) == 0)
        return 0;
    w->p->n_label_lost = count_labelled(&w->p->label);
    if (change_parts(w, crop_part, e) < 0)
        return -1;
    w->p->n_label_lost -= count_labelled(&w->p->label);
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

/* The values of one channel, for mapping and measuring. */
static struct map_job channel_job(const struct work *w, int c)
{
    int64_t n = volume_voxels(&w->p->image);
    return (struct map_job){.values = (float *)w->p->image.data + c * n, .n = n};
}

static void clip(struct work *w, int c, double low, double high)
{
    struct map_job job = channel_job(w, c);
    job.map = (struct value_map){low, high, 0.0, 1.0};
    w->p->transform.value[c].low = low;
    w->p->transform.value[c].high = high;
    pool_run(w->pool, (job.n + BLOCK - 1) / BLOCK, map_block, &job);
}

static void rescale(struct work *w, int c, double shift, double scale)
{
    struct map_job job = channel_job(w, c);
    job.map = (struct value_map){-(double)FLT_MAX, (double)FLT_MAX, shift, scale};
    w->p->transform.value[c].shift = shift;
    w->p->transform.value[c].scale = scale;
    pool_run(w->pool, (job.n + BLOCK - 1) / BLOCK, map_block, &job);
}

/* Zero mean and unit variance; a constant channel becomes 0 [N38]. */
static int standardise(struct work *w, int c, struct error *e)
{
    struct map_job job = channel_job(w, c);
    struct moments of;
    if (moments_of(&of, job.values, job.n, w->pool, e) < 0)
        return -1;
    w->p->transform.n_constant += !(of.std > 0.0);
    rescale(w, c, of.mean, of.std > 0.0 ? of.std : 1.0);
    return 0;
}

static int clip_to_percentiles(struct work *w, int c, const struct recipe_channel *rule, struct error *e)
{
    struct map_job job = channel_job(w, c);
    double low, high;
    if (quantile_of(&low, job.values, job.n, rule->low, e) < 0 ||
        quantile_of(&high, job.values, job.n, rule->high, e) < 0)
        return -1;
    if (low < high) /* a scan that is empty but for a small object would lose it */
        clip(w, c, low, high);
    return 0;
}

static int change_crop(struct work *w, int c, const struct recipe_channel *rule, struct error *e)
{
    if (rule->clip == CLIP_LAST)
        clip(w, c, rule->low, rule->high);
    if (rule->clip == CLIP_PERCENTILES && clip_to_percentiles(w, c, rule, e) < 0)
        return -1;
    if (rule->scale == SCALE_FIXED)
        rescale(w, c, rule->mean, rule->std > 0.0 ? rule->std : 1.0);
    return rule->scale == SCALE_CROP ? standardise(w, c, e) : 0;
}

enum stage { STAGE_RAW, STAGE_SCAN, STAGE_CROP };

/* What the recipe wants done to the values of each channel at this stage. */
static int change_values(struct work *w, enum stage stage, struct error *e)
{
    for (int c = 0; c < w->p->transform.n_channels; c++) {
        const struct recipe_channel *rule = &w->r->channel[w->r->n_channels > 0 ? c : 0];
        if (stage == STAGE_RAW && rule->clip == CLIP_FIRST)
            clip(w, c, rule->low, rule->high);
        if (stage == STAGE_SCAN && rule->scale == SCALE_SCAN && standardise(w, c, e) < 0)
            return -1;
        if (stage == STAGE_CROP && change_crop(w, c, rule, e) < 0)
            return -1;
    }
    return 0;
}

/* ---- all of it ------------------------------------------------------------------------------- */

/* uint16 to uint8 where that is enough, which is nearly always: half of the file. */
static int shrink_label(struct volume *label, struct error *e)
{
    const label_t *classes = label->data;
    int64_t n = classes ? volume_voxels(label) : 0;
    struct volume small;
    for (int64_t i = 0; i < n; i++) {
        if (classes[i] > 255)
            return 0;
    }
    if (n == 0)
        return 0;
    if (volume_new(&small, DTYPE_U8, label->dims, &label->geometry, e) < 0)
        return -1;
    for (int64_t i = 0; i < n; i++)
        ((uint8_t *)small.data)[i] = (uint8_t)classes[i];
    volume_free(label);
    *label = small;
    return 0;
}

int prepare_begin(struct prepared *out, const struct recipe *r, const struct volume *image,
                  const struct volume *label, const struct box *label_box, struct error *e)
{
    struct work w = {.r = r, .p = out};
    memset(out, 0, sizeof *out);
    if (label_box)
        out->label_box = *label_box;
    if (check_case(r, image, label, label_box, e) == 0 && start(&w, image, label, e) == 0)
        return 0;
    prepared_free(out);
    return -1;
}

int prepare_end(struct prepared *io, const struct recipe *r, uint64_t case_key, struct pool *pool,
                struct error *e)
{
    struct work w = {r, io, case_key, pool};
    if (change_values(&w, STAGE_RAW, e) < 0 || reorient(&w, e) < 0 || resample(&w, e) < 0 ||
        change_values(&w, STAGE_SCAN, e) < 0 || crop(&w, e) < 0 || change_values(&w, STAGE_CROP, e) < 0 ||
        shrink_label(&io->label, e) < 0) {
        prepared_free(io);
        return -1;
    }
    if (io->transform.n_channels == 1)
        io->image.n_dims = 3;
    return 0;
}

int prepare_case(struct prepared *out, const struct recipe *r, const struct volume *image,
                 const struct volume *label, uint64_t case_key, struct pool *pool, struct error *e)
{
    return prepare_begin(out, r, image, label, NULL, e) < 0 ? -1 : prepare_end(out, r, case_key, pool, e);
}

/* The label takes the image's place, so that it meets the same grid in the same steps. */
int prepare_label_box(struct box *out, const struct recipe *r, const struct volume *label,
                      const struct geometry *grid, struct pool *pool, struct error *e)
{
    struct recipe alone = *r;
    struct prepared p = {.transform = {.axis = {0, 1, 2}, .original = *grid}};
    struct work w = {.r = &alone, .p = &p, .pool = pool};
    alone.image_kind = r->label_kind;
    int result = -1;
    if (take_label(&p.image, r, label, grid, e) == 0 && reorient(&w, e) == 0 && resample(&w, e) == 0)
        result = box_around(out, &p.image, r, e);
    prepared_free(&p);
    return result;
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
        back[a] = (struct resample_axis){.n = t->original_dims[t->axis[a]], .step = 1.0 / g->step};
        if (g->start != 0.0) /* else it would be -0 */
            back[a].start = -g->start / g->step;
    }
}

static int check_back(const struct volume *v, const struct prepared_transform *t, struct error *e)
{
    if (memcmp(v->dims, t->crop_dims, sizeof t->crop_dims) != 0)
        return fail(e, ERR_DATA, NULL, "%lldx%lldx%lld voxels, the prepared case has %lldx%lldx%lld",
                    (long long)v->dims[0], (long long)v->dims[1], (long long)v->dims[2],
                    (long long)t->crop_dims[0], (long long)t->crop_dims[1], (long long)t->crop_dims[2]);
    if (v->dtype != DTYPE_F32 && v->dtype != DTYPE_U8 && v->dtype != DTYPE_U16)
        return fail(e, ERR_DATA, NULL, "type %s, allowed uint8, uint16 and float32", dtype_name(v->dtype));
    return 0;
}

int prepare_map_back(struct volume *out, const struct volume *prepared, const struct prepared_transform *t,
                     struct pool *pool, struct error *e)
{
    enum resample_kind kind = prepared->dtype == DTYPE_F32 ? RESAMPLE_LINEAR : RESAMPLE_CLASSES;
    struct volume whole = {0}, made = {0};
    const struct volume *last = &whole;
    struct resample_axis back[3];
    const int64_t dims[3] = {t->grid[0].n, t->grid[1].n, t->grid[2].n};
    const int64_t first[3] = {-t->crop_first[0], -t->crop_first[1], -t->crop_first[2]};
    int status = -1;
    memset(out, 0, sizeof *out);
    if (check_back(prepared, t, e) < 0 || volume_crop(&whole, prepared, first, dims, 0.0, e) < 0)
        goto out;
    invert_grid(back, t);
    if (!resample_is_identity(back, dims)) {
        if (volume_resample(&made, &whole, back, kind, pool, e) < 0)
            goto out;
        last = &made;
    }
    status = volume_unpermute(out, last, t->axis, t->flip, e);
    out->geometry = t->original;
out:
    volume_free(&whole);
    volume_free(&made);
    return status;
}
