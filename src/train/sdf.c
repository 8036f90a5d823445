/* sdf.c - see sdf.h. Two exact distance transforms (score/distance.h) a class; the sides are scaled one by
 * one, as Xue et al. (AAAI 2020) and Luo et al. (AAAI 2021) published it.
 */
#include "train/sdf.h"

#include "score/distance.h"

struct sdf {
    struct distance *distance;
    size_t voxels;
    uint8_t *mark;          /* 1: to be near to */
    float *outside, *inside;/* distance to the object; to the rest */
};

int sdf_new(struct sdf **out, const int dims[3], struct pool *pool, struct error *e)
{
    const int64_t extent[3] = {dims[2], dims[1], dims[0]}; /* first axis fastest, there */
    const double spacing[3] = {1, 1, 1};
    struct sdf *s = mem_alloc(e, 1, sizeof *s);
    *out = NULL;
    if (!s)
        return -1;
    s->voxels = (size_t)dims[0] * (size_t)dims[1] * (size_t)dims[2];
    if (!(s->mark = mem_alloc(e, s->voxels, 1)) ||
        !(s->outside = mem_alloc(e, s->voxels, sizeof *s->outside)) ||
        !(s->inside = mem_alloc(e, s->voxels, sizeof *s->inside)) ||
        distance_new(&s->distance, extent, spacing, pool, e) < 0) {
        sdf_free(s);
        return -1;
    }
    *out = s;
    return 0;
}

void sdf_free(struct sdf *s)
{
    if (!s)
        return;
    distance_free(s->distance);
    mem_free(s->mark);
    mem_free(s->outside);
    mem_free(s->inside);
    mem_free(s);
}

static size_t mark(struct sdf *s, const uint8_t *label, int of, int inverse)
{
    size_t count = 0;
    for (size_t i = 0; i < s->voxels; i++)
        count += s->mark[i] = (uint8_t)((label[i] == of) ^ inverse);
    return count;
}

static float largest(const float *x, size_t n)
{
    float top = 0;
    for (size_t i = 0; i < n; i++)
        top = x[i] > top ? x[i] : top;
    return top;
}

static void one_class(float *out, struct sdf *s, const uint8_t *label, int of, int stride)
{
    size_t inside = mark(s, label, of, 0);
    if (inside == 0 || inside == s->voxels) {
        for (size_t i = 0; i < s->voxels; i++)
            out[i * (size_t)stride] = 0;
        return;
    }
    distance_map(s->outside, s->distance, s->mark);
    mark(s, label, of, 1);
    distance_map(s->inside, s->distance, s->mark);
    float far = largest(s->outside, s->voxels), deep = largest(s->inside, s->voxels);
    for (size_t i = 0; i < s->voxels; i++) { /* one step inside is a face shared with the rest */
        float depth = s->inside[i] > 1 ? s->inside[i] / deep : 0.0f;
        out[i * (size_t)stride] = s->outside[i] / far - depth;
    }
}

void sdf_maps(float *out, struct sdf *s, const uint8_t *label, int classes)
{
    for (int c = 1; c < classes; c++)
        one_class(out + c - 1, s, label, c, classes - 1);
}
