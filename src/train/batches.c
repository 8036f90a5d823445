/* batches.c - from the sampler to the device: the batch of the step at hand as tensors.
 *
 * Every phase has its own sequence of batches: the same sampler with another seed. What the tensors
 * hold depends on settings, phase and step alone.
 *
 * A device that holds the cases cuts the patches itself (resident.c): the sampler then draws, and makes
 * labels where a method looks at them on the host, taken over while the device is busy with the step before.
 * Else a device that copies beside its work (device.h) gets the next batch while it is busy with this one,
 * into the other of two sets of tensors:
 *
 *     step t     work on set 0    | ahead: batch t+1 -> set 1
 *     step t+1   work on set 1    | ahead: batch t+2 -> set 0, which step t has left
 */
#include <string.h>

#include "train/train_int.h"

/* The golden ratio in 64 bits: seeds of phases that share no bits. Phase 0 has the run's own. */
#define PHASE_SEED UINT64_C(0x9E3779B97F4A7C15)

/* Left and right are exchanged, never front and back or top and bottom, which tell organs apart; every
 * second patch is scaled, every second turned a little; all get another brightness and some noise. */
#define MILD                                                                                                 \
    .crop = AUGMENT_CROP_WITHIN, .scale = {0.5f, 0.85f, 1.18f}, .rotate = {0.5f, -15.0f, 15.0f},             \
    .noise = {1.0f, 0.0f, 0.1f}, .brightness = {1.0f, 0.8f, 1.25f}, .shift = {1.0f, -0.2f, 0.2f}
static const struct augment_options augment_mild = {MILD, .mirror_p = {0.5f, 0.0f, 0.0f}};
/* ... and this exchanges them all the same: which way things face is no cue then, what they look like is. */
static const struct augment_options augment_mirror = {MILD, .mirror_p = {0.5f, 0.5f, 0.5f}};
static const struct augment_options augment_crop = {.crop = AUGMENT_CROP_RANDOM};

static const struct augment_options *augmentation(const struct settings *s)
{
    static const struct augment_options *const kinds[] = {[AUGMENT_PAPER] = &augment_paper,
                                                          [AUGMENT_CROP] = &augment_crop,
                                                          [AUGMENT_FULL] = &augment_full,
                                                          [AUGMENT_MILD] = &augment_mild,
                                                          [AUGMENT_MIRROR] = &augment_mirror};
    return kinds[s->augment];
}

int train_mirrors(const struct settings *s)
{
    const struct augment_options *o = augmentation(s);
    int mirrors = o->rotflip ? 3 : 0; /* RotFlip reverses axis 0 or 1 */
    for (int a = 0; a < 3; a++)
        mirrors |= (o->mirror_p[a] > 0) << a;
    return mirrors;
}

int train_side_axes(const struct settings *s)
{
    return augmentation(s)->rotflip ? 3 : train_mirrors(s) & 1;
}

int train_sampler_threads(const struct device *dev)
{
    enum { MOST = 6 }; /* two hundred steps a second of small patches want no more */
    int spare = pool_threads(dev->pool) - 1;
    if (strcmp(dev->ops->name, "cpu") == 0)
        return 1;
    return spare < 1 ? 1 : spare > MOST ? MOST : spare;
}

/* Another light, for scans of deviation 1: contrast and brightness, as Chaitanya et al. have them for values
 * of 0 to 1. The part of a crop that is made larger has their extent, too, 100 of 192 voxels. */
static const struct augment_options augment_views[][SAMPLER_STREAMS] = {
    [PHASE_VIEWS_PIECES] = {{.crop = AUGMENT_CROP_WITHIN},
                            {.crop = AUGMENT_CROP_WITHIN,
                             .scale = {1.0f, 0.52f, 0.52f},
                             .wander = 1,
                             .brightness = {1.0f, 0.7f, 1.3f},
                             .shift = {1.0f, -1.0f, 1.0f}}},
    [PHASE_VIEWS_LIGHTS] = {
        {.crop = AUGMENT_CROP_WITHIN, .brightness = {1.0f, 0.7f, 1.3f}, .shift = {1.0f, -1.0f, 1.0f}},
        {.crop = AUGMENT_CROP_WITHIN, .brightness = {1.0f, 0.7f, 1.3f}, .shift = {1.0f, -1.0f, 1.0f}}}};

/* Of labelled and unlabelled slots, or of first and second views. */
static const struct augment_options *slot_augmentation(const struct trainer *t, int which)
{
    const struct phase_batch *b = &trainer_phase(t)->batch;
    if (b->views)
        return &augment_views[b->views][which];
    return b->plain ? &augment_crop : augmentation(t->set);
}

int batches_sample(struct trainer *t, struct error *e)
{
    const struct settings *s = t->set;
    const struct train_options *o = t->own->o;
    const struct phase_batch *b = &trainer_phase(t)->batch;
    const int *patch = t->own->patch;
    int no_label = b->host_labels ? 0 : SAMPLER_NO_LABEL;
    struct sampler_options so = {.n_labeled = t->n_labeled,
                                 .n_unlabeled = t->n_unlabeled,
                                 .patch = {patch[0], patch[1], patch[2]},
                                 .augment = {*slot_augmentation(t, 0), *slot_augmentation(t, 1)},
                                 .views = b->views ? 2 : 1,
                                 .pieces = b->views == PHASE_VIEWS_PIECES ? PHASE_PIECES : 1,
                                 .seed = (uint64_t)s->seed + (uint64_t)t->phase * PHASE_SEED,
                                 .without = t->own->cut ? SAMPLER_NO_IMAGE | no_label : 0,
                                 .threads = o->sampler_threads,
                                 .depth = o->sampler_threads + 3,
                                 .report = t->step == 0 ? o->report : NULL};
    so.augment[SAMPLER_LABELED].focus = b->views || b->plain ? 0 : (float)s->focus;
    if (sampler_new(&t->own->sampler, t->store, &so, e) < 0)
        return -1;
    sampler_seek(t->own->sampler, (uint64_t)t->step);
    return 0;
}

static int make_tensor(struct trainer *t, struct tensor *x, int c, enum value_type type, struct error *e)
{
    const int *p = t->own->patch;
    *x = (struct tensor){
        .type = type, .n = t->n_labeled + t->n_unlabeled, .d = p[0], .h = p[1], .w = p[2], .c = c};
    x->data = t->dev->ops->alloc(t->dev, (size_t)tensor_count(x) * value_bytes(type));
    return device_check(t->dev, e);
}

static int make_staged(struct trainer *t, struct staged *s, struct error *e)
{
    if (make_tensor(t, &s->image, t->store->channels, VALUE_F32, e) < 0 ||
        make_tensor(t, &s->label, 1, VALUE_U8, e) < 0 ||
        (t->store->has_mask && make_tensor(t, &s->mask, 1, VALUE_U8, e) < 0))
        return -1;
    s->bytes = mem_alloc(e, (size_t)tensor_count(&s->label), 1);
    return s->bytes ? 0 : -1;
}

/* The set for the next batch. A device that cuts patches does so in its own turn: only the host's labels. */
static int make_other(struct trainer *t, struct error *e)
{
    struct train_private *own = t->own;
    struct staged *s = &own->staged[1];
    if (!t->dev->ops->upload_ahead)
        return 0;
    if (!own->cut)
        return make_staged(t, s, e);
    s->bytes = mem_alloc(e, (size_t)tensor_count(&own->staged[0].label), 1);
    return s->bytes ? 0 : -1;
}

/* What methods see. */
static void show(struct trainer *t, const struct staged *s)
{
    t->image = s->image;
    t->label = s->label;
    t->mask = s->mask;
    t->label_host = s->bytes;
}

/* Half as thick, in steps of what networks take; 80 becomes 32. */
static int thin(int extent)
{
    enum { STEP = 16 };
    return extent / 2 < STEP ? extent : extent / 2 / STEP * STEP;
}

/* How many slots of which shape. */
static void compose(struct trainer *t)
{
    const struct phase_batch *b = &trainer_phase(t)->batch;
    int all = (int)t->set->batch, *patch = t->own->patch;
    t->n_labeled = b->views ? 0 : (int)t->set->labeled_batch;
    t->n_unlabeled = b->labeled_only ? 0 : all - t->n_labeled;
    for (int a = 0; a < 3; a++)
        patch[a] = (int)t->set->patch[a];
    if (b->views == PHASE_VIEWS_LIGHTS)
        t->n_unlabeled = all < 4 ? 2 : all / 2 * 2;
    if (b->views != PHASE_VIEWS_PIECES)
        return;
    t->n_unlabeled = 2 * (all < 8 ? 1 : all / 4) * PHASE_PIECES * 2;
    patch[2] = thin(patch[2]);
}

int batches_begin(struct trainer *t, struct error *e)
{
    struct train_private *own = t->own;
    compose(t);
    own->now = 0;
    own->cut = own->resident && augment_is_local(slot_augmentation(t, 0)) &&
               augment_is_local(slot_augmentation(t, 1));
    if (make_staged(t, &own->staged[0], e) < 0 || make_other(t, e) < 0)
        return -1;
    show(t, &own->staged[0]);
    return 0;
}

typedef void upload_function(struct device *dev, void *to, const void *from_host, size_t bytes);

static void keep_labels(struct trainer *t, struct staged *s, const struct batch *b)
{
    size_t voxels = (size_t)tensor_count(&t->label);
    uint8_t *restrict bytes = s->bytes;
    const label_t *label = b->label;
    for (size_t i = 0; label && i < voxels; i++)
        bytes[i] = (uint8_t)label[i];
    s->step = b->step;
}

static void fill(struct trainer *t, struct staged *s, const struct batch *b, upload_function *upload)
{
    size_t voxels = (size_t)tensor_count(&s->label);
    keep_labels(t, s, b);
    upload(t->dev, s->image.data, b->image, (size_t)tensor_count(&s->image) * sizeof(float));
    upload(t->dev, s->label.data, s->bytes, voxels);
    if (s->mask.data)
        upload(t->dev, s->mask.data, b->mask, voxels);
}

void batches_next(struct trainer *t)
{
    struct train_private *own = t->own;
    const struct device_ops *ops = t->dev->ops;
    struct staged *other = &own->staged[!own->now];
    t->batch = sampler_next(own->sampler);
    if (other->full && other->step == t->batch->step)
        own->now = !own->now;
    else if (own->cut)
        keep_labels(t, &own->staged[own->now], t->batch);
    else
        fill(t, &own->staged[own->now], t->batch, ops->upload);
    own->staged[0].full = own->staged[1].full = 0;
    show(t, &own->staged[own->cut ? 0 : own->now]);
    t->label_host = own->staged[own->now].bytes;
    if (own->cut)
        resident_fill(t, t->batch);
    else if (ops->arrive)
        ops->arrive(t->dev);
}

void batches_ahead(struct trainer *t)
{
    struct train_private *own = t->own;
    struct staged *other = &own->staged[!own->now];
    if (!t->dev->ops->upload_ahead || other->full || t->step + 1 == t->steps)
        return;
    if (own->cut)
        keep_labels(t, other, sampler_peek(own->sampler));
    else
        fill(t, other, sampler_peek(own->sampler), t->dev->ops->upload_ahead);
    other->full = 1;
}

void batches_end(struct trainer *t)
{
    for (int k = 0; k < 2; k++) {
        struct staged *s = &t->own->staged[k];
        struct tensor *all[] = {&s->image, &s->label, &s->mask};
        for (int i = 0; i < 3; i++)
            t->dev->ops->free(t->dev, all[i]->data);
        mem_free(s->bytes);
        memset(s, 0, sizeof *s);
    }
    show(t, &t->own->staged[0]);
    sampler_free(t->own->sampler);
    t->own->sampler = NULL;
    t->batch = NULL;
}
