/* sdf.c - see sdf.h. Exact distances along one axis after the other (kernels_twin.h); the sides are scaled
 * one by one, as Xue et al. (AAAI 2020) and Luo et al. (AAAI 2021) published it.
 */
#include <string.h>

#include "train/sdf.h"

#include "device/kernels.h"
#include "device/peak.h"

struct sdf {
    struct device *dev;
    int dims[3];
    float *square[2];        /* of distances: of the pass before, of this one */
    float *outside, *inside; /* on the way to the largest of either side */
};

int sdf_new(struct sdf **out, struct device *dev, const int dims[3], struct error *e)
{
    int64_t voxels = (int64_t)dims[0] * dims[1] * dims[2], work = peak_floats(voxels);
    struct sdf *s = *out = mem_alloc(e, 1, sizeof *s);
    if (!s)
        return -1;
    CHECK((int64_t)dims[0] * dims[0] + (int64_t)dims[1] * dims[1] + (int64_t)dims[2] * dims[2] <
          (int64_t)K_NO_SIDE * (int64_t)K_NO_SIDE);
    s->dev = dev;
    memcpy(s->dims, dims, sizeof s->dims);
    s->square[0] = dev->ops->alloc(dev, (size_t)(2 * (voxels + work)) * sizeof(float));
    if (device_check(dev, e) == 0) {
        s->square[1] = s->square[0] + voxels;
        s->outside = s->square[1] + voxels;
        s->inside = s->outside + work;
        return 0;
    }
    sdf_free(s);
    *out = NULL;
    return -1;
}

void sdf_free(struct sdf *s)
{
    if (s)
        s->dev->ops->free(s->dev, s->square[0]);
    mem_free(s);
}

/* Map `of` - 1 of the c maps at out. */
static void one_class(float *out, struct sdf *s, const uint8_t *label, int of, int c)
{
    const int *n = s->dims;
    int64_t voxels = (int64_t)n[0] * n[1] * n[2];
    float *a = s->square[0], *b = s->square[1];
    RUN(s->dev, side_steps, (int64_t)n[0] * n[1], .label = label, .out = a, .n = n[2], .of = of);
    const float *far = peak_find(s->dev, a, 1, voxels, 1, s->outside);
    const float *deep = peak_find(s->dev, a, 1, voxels, -1, s->inside);
    RUN(s->dev, side_nearest, voxels, .from = a, .to = b, .most_outside = far, .most_inside = deep,
        .apart = n[2], .n = n[1]);
    RUN(s->dev, side_nearest, voxels, .from = b, .to = a, .most_outside = far, .most_inside = deep,
        .apart = (int64_t)n[1] * n[2], .n = n[0]);
    peak_find(s->dev, a, 1, voxels, 1, s->outside);
    peak_find(s->dev, a, 1, voxels, -1, s->inside);
    RUN(s->dev, side_map, voxels, .square = a, .out = out + of - 1, .most_outside = far, .most_inside = deep,
        .c = c);
}

void sdf_maps(const struct tensor *out, struct sdf *s, const struct tensor *label)
{
    for (int i = 0; i < out->n; i++)
        for (int of = 1; of <= out->c; of++)
            one_class(tensor_items(out, i, 1).data, s, tensor_items(label, i, 1).data, of, out->c);
}
