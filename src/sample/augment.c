/* augment.c - the random choices of a patch, and the patch by copying rows.
 *
 * RotFlip and mirrors only permute and reverse axes, so a patch is read straight from the case:
 *
 *     patch voxel p -> padded frame  start + p -> turned frame  start + p - pad = q
 *                   -> source axis a:  base[a] + sign[a] * q[from[a]]
 *
 * The last axis is never exchanged with another, so a row of voxels is one stretch of the source
 * (read backwards if mirrored) with zeros before and after. No turned or padded copy of the case
 * is made.
 *
 * RotFlip, as published: k quarter turns in the plane of axes 0 and 1 (numpy's rot90: for k = 1
 * out[i][j] = in[j][n1 - 1 - i]), then always one flip along axis 0 or 1. So only the four mirror
 * images ever occur (flip 0, flip 1, transpose, anti-transpose). Kept for comparability.
 */
#include "sample/augment.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "device/kernels.h"
#include "sample/augment_int.h"

const struct augment_options augment_paper = {.rotflip = 1, .crop = AUGMENT_CROP_RANDOM};

/* Probabilities and ranges follow nnU-Net v2 (Isensee et al. 2021), except elastic, which is off
 * there: ours moves control points 24 voxels apart by 1 to 4 voxels. */
const struct augment_options augment_full = {
    .crop = AUGMENT_CROP_WITHIN,
    .mirror_p = {0.5f, 0.5f, 0.5f},
    .scale = {0.2f, 0.7f, 1.4f},
    .rotate = {0.2f, -30.0f, 30.0f},
    .elastic = {0.2f, 1.0f, 4.0f},
    .elastic_spacing = 24.0f,
    .noise = {0.1f, 0.0f, 0.316f},
    .blur = {0.2f, 0.5f, 1.0f},
    .brightness = {0.15f, 0.75f, 1.25f},
    .contrast = {0.15f, 0.75f, 1.25f},
    .zoom = {0.25f, 0.5f, 1.0f},
    .gamma = {0.3f, 0.7f, 1.5f},
};

/* ---- options --------------------------------------------------------------------------------- */

/* Limits keep tables of fixed extent and values finite; all are far outside useful settings. */
static const struct {
    const char *name;
    size_t offset;
    float least, most;
} ranges[] = {
    {"scale", offsetof(struct augment_options, scale), 0.1f, 10.0f},
    {"rotate", offsetof(struct augment_options, rotate), -180.0f, 180.0f},
    {"elastic", offsetof(struct augment_options, elastic), 0.0f, 100.0f},
    {"noise", offsetof(struct augment_options, noise), 0.0f, 1e6f},
    {"blur", offsetof(struct augment_options, blur), 0.0f, (float)AUGMENT_BLUR_MAX},
    {"brightness", offsetof(struct augment_options, brightness), 0.0f, 100.0f},
    {"shift", offsetof(struct augment_options, shift), -100.0f, 100.0f},
    {"contrast", offsetof(struct augment_options, contrast), 0.0f, 100.0f},
    {"zoom", offsetof(struct augment_options, zoom), 0.05f, 1.0f},
    {"gamma", offsetof(struct augment_options, gamma), 0.1f, 10.0f},
};

static int check_number(const char *name, const char *what, float value, float least, float most,
                        struct error *e)
{
    if (value >= least && value <= most)
        return 0; /* false for NaN */
    return fail(e, ERR_CONFIG, "C02", "augmentation %s: %s %g, allowed %g..%g", name, what, (double)value,
                (double)least, (double)most);
}

int augment_check(const struct augment_options *o, struct error *e)
{
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        const struct augment_range *r = (const void *)((const char *)o + ranges[i].offset);
        const char *name = ranges[i].name;
        if (check_number(name, "probability", r->p, 0, 1, e) < 0)
            return -1;
        if (r->p > 0 && (check_number(name, "lower end", r->lo, ranges[i].least, r->hi, e) < 0 ||
                         check_number(name, "upper end", r->hi, r->lo, ranges[i].most, e) < 0))
            return -1;
    }
    for (int a = 0; a < 3; a++)
        if (check_number("mirror", "probability", o->mirror_p[a], 0, 1, e) < 0)
            return -1;
    if (o->elastic.p == 0)
        return 0;
    return check_number("elastic", "spacing", o->elastic_spacing, 2, 1000, e);
}

/* ---- choices --------------------------------------------------------------------------------- */

struct rng augment_rng(const struct augment_key *k, enum augment_purpose purpose)
{
    return rng_start(k->seed, k->step, RNG_AUGMENT, (uint64_t)k->slot * AUGMENT_PURPOSES + purpose);
}

/* The same for what views of one crop share. */
static struct rng shared_rng(const struct augment_key *k, enum augment_purpose purpose)
{
    struct augment_key first = *k;
    first.slot -= k->view;
    return augment_rng(&first, purpose);
}

/* A number of the range with its probability, else `off`. Uniform numbers are > 0: p = 0 never
 * fires. */
static float draw_value(const struct augment_range *range, float off, const struct augment_draw *d,
                        enum augment_purpose purpose)
{
    struct rng r = augment_rng(&d->key, purpose);
    float coin = rng_uniform(&r), value = rng_between(&r, range->lo, range->hi);
    return coin <= range->p ? value : off;
}

int augment_pad(int extent, int out)
{
    int twice = out - extent;
    int half = twice >= 0 ? twice / 2 : -((1 - twice) / 2); /* floor of twice / 2 */
    int pad = half + 3;
    return pad > 0 ? pad : 0;
}

/* Half of n, ties to even, as Python's round(n / 2). */
static int half_to_even(int n)
{
    int low = n / 2;
    return n % 2 == 0 ? low : low + low % 2;
}

/* Parts without a place of their own, where there are fewer places than parts, have their neighbour's. */
static void draw_crop_within(struct augment_draw *d, const int extent[3], const int patch[3])
{
    struct rng r = shared_rng(&d->key, AUGMENT_CROP);
    for (int a = 0; a < 3; a++) {
        int room = extent[a] - patch[a], places = room < 0 ? 1 : room + 1;
        int of = a == 2 && d->key.pieces ? d->key.pieces : 1, part = of > 1 ? d->key.piece : 0;
        int from = places * part / of, until = places * (part + 1) / of;
        d->pad[a] = room < 0 ? (1 - room) / 2 : 0;
        d->start[a] = from + (int)rng_below(&r, until > from ? (uint32_t)(until - from) : 1);
    }
}

/* A view that shows `scale` of the patch along each axis moves inside it, by whole voxels. */
static void draw_wander(struct augment_draw *d, float scale, const int patch[3])
{
    struct rng r = augment_rng(&d->key, AUGMENT_WANDER);
    for (int a = 0; a < 3; a++) {
        int most = scale < 1 ? (int)(0.5f * (1 - scale) * (float)patch[a]) : 0;
        d->start[a] += (int)rng_below(&r, 2 * (uint32_t)most + 1) - most;
    }
}

static void draw_crop(struct augment_draw *d, enum augment_crop crop, const int extent[3], const int patch[3])
{
    if (crop == AUGMENT_CROP_WITHIN) {
        draw_crop_within(d, extent, patch);
        return;
    }
    struct rng r = shared_rng(&d->key, AUGMENT_CROP);
    int small = 0;
    for (int a = 0; a < 3; a++)
        small |= extent[a] <= patch[a];
    for (int a = 0; a < 3; a++) {
        d->pad[a] = small ? augment_pad(extent[a], patch[a]) : 0;
        int room = extent[a] + 2 * d->pad[a] - patch[a]; /* >= 1 by the padding rule */
        if (crop == AUGMENT_CROP_RANDOM)
            d->start[a] = (int)rng_below(&r, (uint32_t)room); /* the last place never occurs */
        else
            d->start[a] = half_to_even(room);
    }
}

static void draw_turn(struct augment_draw *d, const struct augment_options *o)
{
    struct rng r = shared_rng(&d->key, AUGMENT_ROTFLIP);
    int turns = (int)rng_below(&r, 4), flip = (int)rng_below(&r, 2);
    d->turns = o->rotflip ? turns : -1;
    d->flip = o->rotflip ? flip : -1;
    struct rng m = shared_rng(&d->key, AUGMENT_MIRROR);
    for (int a = 0; a < 3; a++)
        d->mirror[a] = rng_uniform(&m) <= o->mirror_p[a];
}

/* out = a * b */
static void multiply(float out[3][3], float a[3][3], float b[3][3])
{
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 3; j++)
            out[i][j] = a[i][0] * b[0][j] + a[i][1] * b[1][j] + a[i][2] * b[2][j];
}

/* Turns about axis 0, then 1, then 2, by the drawn angles; identity if not drawn. */
static int draw_rotation(float out[3][3], const struct augment_draw *d, const struct augment_range *o)
{
    struct rng r = augment_rng(&d->key, AUGMENT_ROTATE);
    float m[3][3] = {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}};
    int fires = rng_uniform(&r) <= o->p;
    for (int a = 0; a < 3 && fires; a++) {
        float angle = rng_between(&r, o->lo, o->hi) * 0.0174532925f; /* pi / 180 */
        int b = (a + 1) % 3, c = (a + 2) % 3;
        float turn[3][3] = {{0}}, product[3][3];
        turn[a][a] = 1;
        turn[b][b] = turn[c][c] = cosf(angle);
        turn[b][c] = -sinf(angle);
        turn[c][b] = sinf(angle);
        multiply(product, turn, m);
        memcpy(m, product, sizeof m);
    }
    memcpy(out, m, sizeof m);
    return fires;
}

/* Rotation acts in millimetres: voxel offsets are stretched by the spacing and back. */
static void draw_warp(struct augment_draw *d, const struct augment_options *o, const struct stored_case *c,
                      const int patch[3])
{
    float turn[3][3], spacing[3];
    float scale = draw_value(&o->scale, 1.0f, d, AUGMENT_SCALE);
    int rotated = draw_rotation(turn, d, &o->rotate);
    for (int a = 0; a < 3; a++) {
        int odd = d->turns > 0 && d->turns % 2; /* odd turns exchange axes 0 and 1 */
        int source = odd && a < 2 ? 1 - a : a;
        spacing[a] = (float)c->spacing_mm[source];
        if (!(spacing[a] > 0))
            spacing[a] = 1;
    }
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 3; j++)
            d->matrix[i][j] = scale * turn[i][j] * (i == j ? 1.0f : spacing[j] / spacing[i]);
    d->elastic_sd = draw_value(&o->elastic, 0.0f, d, AUGMENT_ELASTIC);
    d->warp = rotated || scale != 1.0f || d->elastic_sd > 0;
    if (o->wander)
        draw_wander(d, scale, patch);
}

/* Reverses axis `axis` of the turned frame. */
static void frame_flip(struct frame *f, int axis)
{
    for (int a = 0; a < 3; a++) {
        if (f->from[a] != axis)
            continue;
        f->base[a] += f->sign[a] * (f->extent[axis] - 1);
        f->sign[a] = -f->sign[a];
    }
}

static void frame_init(struct frame *f, const struct augment_draw *d, const int dims[3])
{
    for (int a = 0; a < 3; a++) {
        f->extent[a] = dims[a];
        f->from[a] = a;
        f->sign[a] = 1;
        f->base[a] = 0;
    }
    for (int k = 0; k < d->turns; k++) { /* a quarter turn: exchange axes, reverse the first */
        int n = f->extent[0];
        f->extent[0] = f->extent[1];
        f->extent[1] = n;
        for (int a = 0; a < 2; a++)
            f->from[a] = 1 - f->from[a];
        frame_flip(f, 0);
    }
    if (d->flip >= 0)
        frame_flip(f, d->flip);
    for (int a = 0; a < 3; a++)
        if (d->mirror[a])
            frame_flip(f, a);
}

/* A patch around a point of the case: any that holds it and could have been drawn without it. */
static void draw_focus(struct augment_draw *d, const struct augment_options *o, const struct stored_case *c,
                       const int patch[3])
{
    struct rng r = rng_start(d->key.seed, d->key.step, RNG_FOCUS, d->key.slot - d->key.view);
    struct frame f;
    if (c->n_focus == 0 || rng_uniform(&r) > o->focus)
        return;
    frame_init(&f, d, c->dims);
    const int *at = c->focus[rng_below(&r, (uint32_t)c->n_focus)].at;
    for (int a = 0; a < 3; a++) {
        int to = f.from[a], room = f.extent[to] + 2 * d->pad[to] - patch[to];
        int place = f.sign[a] * (at[a] - f.base[a]) + d->pad[to];
        int last = o->crop == AUGMENT_CROP_RANDOM ? room - 1 : d->pad[to] > 0 ? 0 : room;
        int first = place - patch[to] + 1 > 0 ? place - patch[to] + 1 : 0;
        last = place < last ? place : last;
        d->start[to] = first + (int)rng_below(&r, last > first ? (uint32_t)(last - first + 1) : 1);
    }
}

void augment_draw(struct augment_draw *out, const struct augment_options *o, const struct stored_case *c,
                  const int patch[3], const struct augment_key *key)
{
    memset(out, 0, sizeof *out); /* padding bytes too: equal draws are equal bytes */
    out->key.seed = key->seed;   /* member by member, for the same reason */
    out->key.step = key->step;
    out->key.slot = key->slot;
    out->key.view = key->view;
    out->key.piece = key->piece;
    out->key.pieces = key->pieces;
    draw_turn(out, o);
    int swap = out->turns > 0 && out->turns % 2;
    int extent[3] = {c->dims[swap], c->dims[1 - swap], c->dims[2]};
    draw_crop(out, o->crop, extent, patch);
    draw_focus(out, o, c, patch);
    draw_warp(out, o, c, patch);
    out->noise_sd = draw_value(&o->noise, 0.0f, out, AUGMENT_NOISE);
    out->blur_sd = draw_value(&o->blur, 0.0f, out, AUGMENT_BLUR);
    out->brightness = draw_value(&o->brightness, 1.0f, out, AUGMENT_BRIGHTNESS);
    out->shift = draw_value(&o->shift, 0.0f, out, AUGMENT_SHIFT);
    out->contrast = draw_value(&o->contrast, 1.0f, out, AUGMENT_CONTRAST);
    out->zoom = draw_value(&o->zoom, 1.0f, out, AUGMENT_ZOOM);
    out->gamma = draw_value(&o->gamma, 1.0f, out, AUGMENT_GAMMA);
    struct rng r = augment_rng(key, AUGMENT_GAMMA);
    for (int i = 0; i < 2; i++)
        (void)rng_u32(&r);                  /* those of draw_value */
    out->invert = rng_uniform(&r) <= 0.25f; /* nnU-Net: 0.1 inverted beside 0.3 plain */
}

void augment_reversed(int reversed[3], const struct augment_draw *draw)
{
    for (int a = 0; a < 3; a++)
        reversed[a] = draw->mirror[a] ^ (draw->flip == a);
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* One row of the patch: `n` items of `each` bytes from source items from, from + sign, ... */
static void copy_row(char *out, const char *in, int64_t from, int sign, int n, size_t each)
{
    const char *first = in + (size_t)from * each;
    if (sign > 0)
        memcpy(out, first, (size_t)n * each);
    else if (each == sizeof(float)) /* a fixed count of bytes makes memcpy one instruction */
        for (int i = 0; i < n; i++)
            memcpy(out + 4 * i, first - 4 * i, sizeof(float));
    else
        for (int i = 0; i < n; i++)
            memcpy(out + (size_t)i * each, first - (size_t)i * each, each);
}

/* One array of the patch (image, label or mask), items of `each` bytes; in == NULL gives zeros. */
static void copy_patch(void *out, const int dims[3], const void *in, const struct augment_draw *d,
                       const struct frame *f, size_t each)
{
    /* stretch [lo, hi) of a row lies inside the frame */
    int shift[3] = {d->start[0] - d->pad[0], d->start[1] - d->pad[1], d->start[2] - d->pad[2]};
    int lo = shift[2] < 0 ? -shift[2] : 0, hi = f->extent[2] - shift[2];
    if (hi > dims[2])
        hi = dims[2];
    /* extents of the source along axes 1 and 2 */
    int n1 = f->extent[f->from[1]], n2 = f->extent[2];
    size_t row = (size_t)dims[2] * each;
    char *to = out;
    for (int i = 0; i < dims[0]; i++) {
        for (int j = 0; j < dims[1]; j++, to += row) {
            int q[3] = {shift[0] + i, shift[1] + j, shift[2] + lo}, p[3];
            int inside = q[0] >= 0 && q[0] < f->extent[0] && q[1] >= 0 && q[1] < f->extent[1];
            if (!in || !inside || lo >= hi) {
                memset(to, 0, row);
                continue;
            }
            for (int a = 0; a < 3; a++)
                p[a] = f->base[a] + f->sign[a] * q[f->from[a]];
            int64_t from = ((int64_t)p[0] * n1 + p[1]) * n2 + p[2];
            memset(to, 0, (size_t)lo * each);
            copy_row(to + (size_t)lo * each, in, from, f->sign[2], hi - lo, each);
            memset(to + (size_t)hi * each, 0, (size_t)(dims[2] - hi) * each);
        }
    }
}

void augment_apply(const struct patch *out, const struct augment_options *o, const struct augment_draw *draw,
                   const struct stored_case *c, struct augment_scratch *s)
{
    struct frame f;
    frame_init(&f, draw, c->dims);
    if (draw->warp) {
        warp_patch(out, o, draw, &f, c, s);
    } else {
        size_t voxel = (size_t)out->channels * sizeof(float);
        if (out->image)
            copy_patch(out->image, out->dims, c->image, draw, &f, voxel);
        if (out->label)
            copy_patch(out->label, out->dims, c->label, draw, &f, sizeof(label_t));
        if (out->mask)
            copy_patch(out->mask, out->dims, c->mask, draw, &f, 1);
    }
    if (out->image)
        intensity_apply(out, draw, s);
}

/* ---- on a device ----------------------------------------------------------------------------- */

int augment_is_local(const struct augment_options *o)
{
    return !(o->elastic.p > 0 || o->blur.p > 0 || o->contrast.p > 0 || o->zoom.p > 0 || o->gamma.p > 0);
}

/* A copy of rows is a map, too, whose positions are whole numbers: reading linearly there is exact. */
void augment_kernel(struct k_patch *out, const struct augment_draw *draw, const struct stored_case *c,
                    const int patch[3])
{
    struct frame f;
    struct affine m;
    struct rng noise = augment_rng(&draw->key, AUGMENT_VOXELS);
    frame_init(&f, draw, c->dims);
    affine_init(&m, draw, &f, patch);
    *out = (struct k_patch){.h = patch[1],
                            .w = patch[2],
                            .factor = draw->brightness,
                            .shift = draw->shift,
                            .noise_sd = draw->noise_sd,
                            .seed = noise.seed,
                            .step = noise.step,
                            .noise_first = noise.index,
                            .stream = noise.stream};
    memcpy(out->dims, c->dims, sizeof out->dims);
    memcpy(out->matrix, m.matrix, sizeof out->matrix);
    memcpy(out->offset, m.offset, sizeof out->offset);
}

/* ---- working memory -------------------------------------------------------------------------- */

int augment_scratch_new(struct augment_scratch **out, const struct augment_options *o, int n_options,
                        const int patch[3], int channels, struct error *e)
{
    struct augment_scratch *s = mem_alloc(e, 1, sizeof *s);
    size_t voxels = 1, controls = 3, longest = 0;
    float spacing = 1e9f; /* of the finest control grid asked for */
    if (!s)
        return -1;
    for (int i = 0; i < n_options; i++)
        if (o[i].elastic.p > 0)
            spacing = fminf(spacing, o[i].elastic_spacing);
    for (int a = 0; a < 3; a++) { /* a patch has at most 2^36 voxels: no overflow */
        size_t n = (size_t)patch[a];
        voxels *= n;
        controls *= (size_t)warp_controls(patch[a], spacing);
        longest = n > longest ? n : longest;
    }
    s->patch = mem_alloc(e, voxels, (size_t)channels * sizeof(float));
    s->tap_index = mem_alloc(e, longest, AUGMENT_MAX_TAPS * sizeof(int));
    s->tap_weight = mem_alloc(e, longest, AUGMENT_MAX_TAPS * sizeof(float));
    s->control = mem_alloc(e, controls, sizeof(float));
    s->line = mem_alloc(e, (size_t)warp_controls(patch[2], spacing), 3 * sizeof(float));
    s->shift = mem_alloc(e, (size_t)patch[2], 3 * sizeof(float));
    s->spline = mem_alloc(e, 3 * longest, sizeof *s->spline);
    if (s->patch && s->tap_index && s->tap_weight && s->control && s->line && s->shift && s->spline) {
        *out = s;
        return 0;
    }
    augment_scratch_free(s);
    return -1;
}

void augment_scratch_free(struct augment_scratch *s)
{
    if (!s)
        return;
    mem_free(s->patch);
    mem_free(s->control);
    mem_free(s->line);
    mem_free(s->shift);
    mem_free(s->spline);
    mem_free(s->tap_index);
    mem_free(s->tap_weight);
    mem_free(s);
}
