/* kernels_mix.h - voxel loops that put pictures together and choose which voxels count. Part of
 * kernels.h; see there for the form of a body.
 */
#ifndef FALX_KERNELS_MIX_H
#define FALX_KERNELS_MIX_H

/* out = ground with a box of `box` in it; ground_shows and box_shows get 0 or 1 per voxel. */
struct k_paste {
    float *out;
    const float *ground, *box;
    float *ground_shows, *box_shows;
    int c, h, w; /* channels, and the two faster axes of the patch */
    int first[3], extent[3];
};
KERNEL void k_paste_range(const struct k_paste *k, int64_t i0, int64_t i1)
{
    for (int64_t i = i0; i < i1; i++) {
        int64_t x = i % k->w, y = i / k->w % k->h, z = i / k->w / k->h;
        int inside = (z >= k->first[0]) & (z < k->first[0] + k->extent[0]) & (y >= k->first[1]) &
                     (y < k->first[1] + k->extent[1]) & (x >= k->first[2]) & (x < k->first[2] + k->extent[2]);
        k->ground_shows[i] = (float)!inside;
        k->box_shows[i] = (float)inside;
        const float *from = inside ? k->box : k->ground;
        for (int c = 0; c < k->c; c++)
            k->out[i * k->c + c] = from[i * k->c + c];
    }
}

/* out = keep * a + take * b. */
struct k_blend {
    float *out;
    const float *a, *b;
    float keep, take;
};
KERNEL void k_blend_range(const struct k_blend *k, int64_t i0, int64_t i1)
{
    for (int64_t i = i0; i < i1; i++)
        k->out[i] = k->keep * k->a[i] + k->take * k->b[i];
}

/* value = 1 where it is at least floor, else 0. */
struct k_at_least {
    float *value;
    float floor;
};
KERNEL void k_at_least_range(const struct k_at_least *k, int64_t i0, int64_t i1)
{
    for (int64_t i = i0; i < i1; i++)
        k->value[i] = (float)(k->value[i] >= k->floor);
}

/* weight = 0 where value is below floor. */
struct k_mask_below {
    float *weight;
    const float *value;
    float floor;
};
KERNEL void k_mask_below_range(const struct k_mask_below *k, int64_t i0, int64_t i1)
{
    for (int64_t i = i0; i < i1; i++)
        k->weight[i] *= (float)(k->value[i] >= k->floor);
}

#define KERNELS_MIX(X) X(paste) X(blend) X(at_least) X(mask_below)

#endif
