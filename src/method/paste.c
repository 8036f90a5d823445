/* paste.c - boxes pasted between the scans of a batch, after Bai et al. (CVPR 2023): a box of one patch is
 * pasted into its partner's and the other way round, so that the network sees both kinds in one picture and
 * cannot tell them apart. A part that copypaste.c and aua.c share.
 *
 *     items 0 .. n/2-1     first partner, with a box from the second
 *     items n/2 .. n-1     second partner, with a box from the first
 *
 *     weight[0]  1 where the first partner shows       weight[1]  1 where the second one does
 */
#include "method/parts.h"

int paste_check(const struct settings *s, const char *who, struct error *e)
{
    if (s->batch == 2 * s->labeled_batch)
        return 0;
    return fail(e, ERR_CONFIG, "C03", "--labeled-batch %lld of %lld: %s needs one half",
                (long long)s->labeled_batch, (long long)s->batch, who);
}

int paste_alloc(struct trainer *t, struct paste *p, int n, struct error *e)
{
    if (part_make(t, &p->mixed, n, t->image.c, VALUE_F32, e) < 0 ||
        part_make(t, &p->weight[0], n, 1, VALUE_F32, e) < 0)
        return -1;
    return part_make(t, &p->weight[1], n, 1, VALUE_F32, e);
}

void paste_free(struct trainer *t, struct paste *p)
{
    part_free(t, &p->mixed);
    part_free(t, &p->weight[0]);
    part_free(t, &p->weight[1]);
}

/* The box of this step, one for the whole batch. */
static void draw_box(int first[3], int extent[3], const struct trainer *t)
{
    struct rng r = rng_start((uint64_t)t->set->seed, t->draw, RNG_PASTE, 0);
    const int *dims = t->batch->dims;
    for (int a = 0; a < 3; a++) {
        extent[a] = (int)((double)dims[a] * t->set->paste_size);
        first[a] = (int)rng_below(&r, (uint32_t)(dims[a] - extent[a] + 1));
    }
}

void paste_mix(struct trainer *t, struct paste *p, const struct tensor *firsts, const struct tensor *seconds,
               int shift)
{
    const int *dims = t->batch->dims;
    int first[3], extent[3], n = p->mixed.n;
    draw_box(first, extent, t);
    for (int i = 0; i < n; i++) {
        struct tensor a = tensor_items(firsts, i, 1), b = tensor_items(seconds, (i + shift) % n, 1);
        struct tensor wa = tensor_items(&p->weight[0], i, 1), wb = tensor_items(&p->weight[1], i, 1);
        struct tensor out = tensor_items(&p->mixed, i, 1);
        int swap = i >= n / 2;
        RUN(t->dev, paste, tensor_voxels(&out), .out = out.data, .ground = swap ? b.data : a.data,
            .box = swap ? a.data : b.data, .ground_shows = swap ? wb.data : wa.data,
            .box_shows = swap ? wa.data : wb.data, .c = out.c, .h = dims[1], .w = dims[2],
            .first = {first[0], first[1], first[2]}, .extent = {extent[0], extent[1], extent[2]});
    }
}
