/* batches.c - from the sampler to the device: the batch of the step at hand as tensors.
 *
 * Every phase has its own sequence of batches: the same sampler with another seed. What the tensors
 * hold depends on settings, phase and step alone.
 */
#include <string.h>

#include "train/train_int.h"

/* The golden ratio in 64 bits: seeds of phases that share no bits. Phase 0 has the run's own. */
#define PHASE_SEED UINT64_C(0x9E3779B97F4A7C15)

/* Left and right are exchanged, never front and back or top and bottom, which tell organs apart; every
 * second patch is scaled and turned a little; intensities and some noise. */
static const struct augment_options augment_mild = {
    .crop = AUGMENT_CROP_RANDOM, .mirror_p = {0.5f, 0.0f, 0.0f}, .scale = {0.5f, 0.85f, 1.18f},
    .rotate = {0.5f, -15.0f, 15.0f}, .noise = {0.5f, 0.0f, 0.1f}, .brightness = {0.5f, 0.8f, 1.25f},
    .contrast = {0.3f, 0.8f, 1.25f}, .gamma = {0.2f, 0.7f, 1.5f}};
static const struct augment_options augment_crop = {.crop = AUGMENT_CROP_RANDOM};

static const struct augment_options *augmentation(const struct settings *s)
{
    static const struct augment_options *const kinds[] = {
        [AUGMENT_PAPER] = &augment_paper, [AUGMENT_CROP] = &augment_crop, [AUGMENT_FULL] = &augment_full,
        [AUGMENT_MILD] = &augment_mild};
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

int train_sampler_threads(const struct device *dev)
{
    enum { MOST = 6 }; /* two hundred steps a second of small patches want no more */
    int spare = pool_threads(dev->pool) - 1;
    if (strcmp(dev->ops->name, "cpu") == 0)
        return 1;
    return spare < 1 ? 1 : spare > MOST ? MOST : spare;
}

int batches_sample(struct trainer *t, struct error *e)
{
    const struct settings *s = t->set;
    const struct train_options *o = t->own->o;
    const struct augment_options *augment =
        trainer_phase(t)->batch.plain ? &augment_crop : augmentation(s);
    struct sampler_options so = {
        .n_labeled = t->n_labeled, .n_unlabeled = t->n_unlabeled,
        .patch = {(int)s->patch[0], (int)s->patch[1], (int)s->patch[2]},
        .augment = {*augment, *augment},
        .seed = (uint64_t)s->seed + (uint64_t)t->phase * PHASE_SEED,
        .threads = o->sampler_threads, .depth = o->sampler_threads + 3,
        .report = t->step == 0 ? o->report : NULL};
    if (sampler_new(&t->own->sampler, t->store, &so, e) < 0)
        return -1;
    sampler_seek(t->own->sampler, (uint64_t)t->step);
    return 0;
}

static int make_tensor(struct trainer *t, struct tensor *x, int c, enum value_type type,
                       struct error *e)
{
    const int64_t *p = t->set->patch;
    *x = (struct tensor){.type = type, .n = t->n_labeled + t->n_unlabeled, .d = (int)p[0],
                         .h = (int)p[1], .w = (int)p[2], .c = c};
    x->data = t->dev->ops->alloc(t->dev, (size_t)tensor_count(x) * value_bytes(type));
    return device_check(t->dev, e);
}

int batches_begin(struct trainer *t, struct error *e)
{
    t->n_labeled = (int)t->set->labeled_batch;
    t->n_unlabeled =
        trainer_phase(t)->batch.labeled_only ? 0 : (int)(t->set->batch - t->set->labeled_batch);
    if (make_tensor(t, &t->image, t->store->channels, VALUE_F32, e) < 0 ||
        make_tensor(t, &t->label, 1, VALUE_U8, e) < 0)
        return -1;
    if (t->store->has_mask && make_tensor(t, &t->mask, 1, VALUE_U8, e) < 0)
        return -1;
    t->own->label = mem_alloc(e, (size_t)tensor_count(&t->label), 1);
    return t->own->label ? 0 : -1;
}

void batches_next(struct trainer *t)
{
    const struct batch *b = sampler_next(t->own->sampler);
    struct device *dev = t->dev;
    size_t voxels = (size_t)tensor_count(&t->label);
    t->batch = b;
    for (size_t i = 0; i < voxels; i++)
        t->own->label[i] = (uint8_t)b->label[i];
    dev->ops->upload(dev, t->image.data, b->image, (size_t)tensor_count(&t->image) * sizeof(float));
    dev->ops->upload(dev, t->label.data, t->own->label, voxels);
    if (t->mask.data)
        dev->ops->upload(dev, t->mask.data, b->mask, voxels);
}

void batches_end(struct trainer *t)
{
    struct tensor *all[] = {&t->image, &t->label, &t->mask};
    for (int i = 0; i < 3; i++) {
        t->dev->ops->free(t->dev, all[i]->data);
        all[i]->data = NULL;
    }
    sampler_free(t->own->sampler);
    t->own->sampler = NULL;
    mem_free(t->own->label);
    t->own->label = NULL;
    t->batch = NULL;
}
