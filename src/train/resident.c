/* resident.c - the cases of the run in the memory of the device, and patches cut out of them there.
 *
 * A GPU would wait for patches that processors make and copy: the sampler then only draws which case, where
 * and how, and one kernel a patch (device/kernels_patch.h) does the rest, to the same bits.
 */
#include "device/kernels.h"
#include "train/train_int.h"

struct resident {
    struct resident_case {
        float *image;
        uint8_t *label, *mask; /* NULL: none */
    } * cases;
    int n;
    uint8_t *exchange; /* what each class is in a mirror image */
};

static void *put(struct trainer *t, const void *from, size_t bytes)
{
    void *to = t->dev->ops->alloc(t->dev, bytes);
    if (to)
        t->dev->ops->upload(t->dev, to, from, bytes);
    return to;
}

static void put_case(struct trainer *t, struct resident_case *to, const struct stored_case *c, uint8_t *bytes)
{
    size_t voxels = case_voxels(c);
    to->image = put(t, c->image, voxels * (size_t)t->store->channels * sizeof(float));
    if (c->label) {
        for (size_t v = 0; v < voxels; v++)
            bytes[v] = (uint8_t)c->label[v];
        to->label = put(t, bytes, voxels);
    }
    if (c->mask)
        to->mask = put(t, c->mask, voxels);
}

int resident_begin(struct trainer *t, struct error *e)
{
    const struct case_store *s = t->store;
    size_t most = 0;
    if (s->bytes > t->dev->room)
        return 0;
    struct resident *r = t->own->resident = mem_alloc(e, 1, sizeof *r);
    if (!r || !(r->cases = mem_alloc(e, (size_t)s->n_cases, sizeof *r->cases)))
        return -1;
    r->n = s->n_cases;
    for (int i = 0; i < r->n; i++) {
        size_t voxels = case_voxels(&s->cases[i]);
        most = voxels > most ? voxels : most;
    }
    uint8_t *bytes = mem_alloc(e, most, 1);
    if (!bytes)
        return -1;
    for (int i = 0; i < r->n; i++)
        put_case(t, &r->cases[i], &s->cases[i], bytes);
    r->exchange = put(t, s->sides.other, sizeof s->sides.other);
    mem_free(bytes);
    return device_check(t->dev, e);
}

void resident_end(struct trainer *t)
{
    struct resident *r = t->own->resident;
    for (int i = 0; r && r->cases && i < r->n; i++) {
        t->dev->ops->free(t->dev, r->cases[i].image);
        t->dev->ops->free(t->dev, r->cases[i].label);
        t->dev->ops->free(t->dev, r->cases[i].mask);
    }
    if (r) {
        t->dev->ops->free(t->dev, r->exchange);
        mem_free(r->cases);
    }
    mem_free(r);
    t->own->resident = NULL;
}

void resident_fill(struct trainer *t, const struct batch *b)
{
    for (int i = 0; i < b->n; i++) {
        const struct sample *s = &b->sample[i];
        const struct resident_case *from = &t->own->resident->cases[s->case_index];
        struct tensor image = tensor_items(&t->image, i, 1), label = tensor_items(&t->label, i, 1);
        struct k_patch k;
        augment_kernel(&k, &s->draw, &t->store->cases[s->case_index], b->dims);
        k.c = b->channels;
        k.image = image.data;
        k.label = label.data;
        k.mask = t->mask.data ? tensor_items(&t->mask, i, 1).data : NULL;
        k.case_image = from->image;
        k.case_label = from->label;
        k.case_mask = from->mask;
        k.exchange = s->exchanged ? t->own->resident->exchange : NULL;
        t->dev->ops->map(t->dev, KERNEL_patch, &k, tensor_voxels(&label));
    }
}
