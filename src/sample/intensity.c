/* intensity.c - effects on the values of a patch: what another scanner, coil or protocol would
 * change.
 *
 * Order: noise, blur, brightness, shift, contrast, low resolution, gamma. The strength is drawn once a
 * patch; means and ranges are taken per channel. Labels are not touched.
 *
 * Blur and low resolution are both linear and separable, so both are three passes of one axis
 * filter: a table gives for each output index up to AUGMENT_MAX_TAPS (input index, weight) pairs.
 * Sums run in index order inside one thread: the same bytes whoever computes them.
 */
#include <math.h>
#include <string.h>

#include "device/kernels.h"
#include "sample/augment_int.h"

static size_t patch_voxels(const struct patch *p)
{
    return (size_t)p->dims[0] * (size_t)p->dims[1] * (size_t)p->dims[2];
}

/* ---- noise ----------------------------------------------------------------------------------- */

/* The numbers of k_patch_noise (device/kernels_patch.h), many at once. */
static void add_noise(float *x, size_t n, const struct augment_draw *d)
{
    struct rng r = augment_rng(&d->key, AUGMENT_VOXELS);
    const size_t chunk = (size_t)4 * K_LANES;
    for (size_t i = 0; i < n; i += chunk) {
        float z[4][K_LANES];
        k_normals(z, r.seed, r.step, r.stream, r.index + i / 4, 1);
        for (size_t j = 0; j < chunk && i + j < n; j++)
            x[i + j] += d->noise_sd * z[j % 4][j / 4];
    }
}

/* ---- axis filters ---------------------------------------------------------------------------- */

struct taps {
    int n;         /* per output index */
    int *index;    /* (n, extent) */
    float *weight; /* (n, extent) */
};

static int clamp(int i, int n)
{
    return i < 0 ? 0 : i >= n ? n - 1 : i;
}

/* Gaussian cut at three deviations, edges repeated. */
static void taps_blur(struct taps *t, int extent, float sd)
{
    float kernel[AUGMENT_MAX_TAPS], sum = 0;
    int radius = (int)ceilf(3 * sd);
    t->n = 2 * radius + 1;
    for (int i = 0; i < t->n; i++) {
        float x = (float)(i - radius) / sd;
        kernel[i] = expf(-0.5f * x * x);
        sum += kernel[i];
    }
    for (int p = 0; p < extent; p++) {
        for (int i = 0; i < t->n; i++) {
            t->index[i * extent + p] = clamp(p + i - radius, extent);
            t->weight[i * extent + p] = kernel[i] / sum;
        }
    }
}

/* Keep round(zoom * extent) voxels (nearest), then go back linearly. Voxel centres are aligned. */
static void taps_zoom(struct taps *t, int extent, float zoom)
{
    int coarse = (int)((float)extent * zoom + 0.5f);
    if (coarse < 1)
        coarse = 1;
    float ratio = (float)coarse / (float)extent;
    t->n = 2;
    for (int p = 0; p < extent; p++) {
        float x = ((float)p + 0.5f) * ratio - 0.5f;
        int low = (int)floorf(x);
        float f = x - (float)low;
        for (int i = 0; i < 2; i++) {
            float at = ((float)clamp(low + i, coarse) + 0.5f) / ratio - 0.5f;
            t->index[i * extent + p] = clamp((int)floorf(at + 0.5f), extent);
            t->weight[i * extent + p] = i ? f : 1 - f;
        }
    }
}

/* Lines of `run` floats: out line p = sum of weighted input lines. */
static void filter_lines(float *out, const float *in, int extent, size_t run, const struct taps *t)
{
    for (int p = 0; p < extent; p++) {
        float *to = out + (size_t)p * run;
        memset(to, 0, run * sizeof(float));
        for (int i = 0; i < t->n; i++) {
            const float *from = in + (size_t)t->index[i * extent + p] * run;
            float weight = t->weight[i * extent + p];
            for (size_t x = 0; x < run; x++)
                to[x] += weight * from[x];
        }
    }
}

/* The same for lines of one float, tap by tap: four times faster than lines of length one. */
static void filter_points(float *out, const float *in, int extent, const struct taps *t)
{
    memset(out, 0, (size_t)extent * sizeof(float));
    for (int i = 0; i < t->n; i++) {
        const int *index = t->index + i * extent;
        const float *weight = t->weight + i * extent;
        for (int p = 0; p < extent; p++)
            out[p] += weight[p] * in[index[p]];
    }
}

/* One pass along `axis` of (d, h, w, c). */
static void filter_axis(float *out, const float *in, const struct patch *p, int axis, const struct taps *t)
{
    size_t before = 1, run = (size_t)p->channels;
    for (int a = 0; a < axis; a++)
        before *= (size_t)p->dims[a];
    for (int a = axis + 1; a < 3; a++)
        run *= (size_t)p->dims[a];
    size_t block = run * (size_t)p->dims[axis];
    for (size_t b = 0; b < before; b++) {
        if (run == 1)
            filter_points(out + b * block, in + b * block, p->dims[axis], t);
        else
            filter_lines(out + b * block, in + b * block, p->dims[axis], run, t);
    }
}

/* Three passes: patch -> scratch -> patch -> scratch, then back. */
static void filter_patch(const struct patch *p, struct augment_scratch *s,
                         void (*make)(struct taps *, int, float), float strength)
{
    struct taps t = {0, s->tap_index, s->tap_weight};
    float *from = p->image, *to = s->patch;
    for (int axis = 0; axis < 3; axis++) {
        make(&t, p->dims[axis], strength);
        filter_axis(to, from, p, axis, &t);
        float *swap = from;
        from = to;
        to = swap;
    }
    memcpy(p->image, s->patch, patch_voxels(p) * (size_t)p->channels * sizeof(float));
}

/* ---- pointwise ------------------------------------------------------------------------------- */

struct spread {
    float min, max, mean, sd;
};

/* Of every `step`-th value; sums in double. */
static struct spread measure(const float *x, size_t n, size_t step)
{
    struct spread r = {x[0], x[0], 0, 0};
    double sum = 0, squares = 0;
    for (size_t i = 0; i < n; i++) {
        float v = x[i * step];
        r.min = v < r.min ? v : r.min;
        r.max = v > r.max ? v : r.max;
        sum += (double)v;
        squares += (double)v * (double)v;
    }
    double mean = sum / (double)n, variance = squares / (double)n - mean * mean;
    r.mean = (float)mean;
    r.sd = variance > 0 ? (float)sqrt(variance) : 0;
    return r;
}

/* Away from or towards the mean, without leaving the range the channel had. */
static void change_contrast(float *x, size_t n, size_t step, float factor)
{
    struct spread s = measure(x, n, step);
    for (size_t i = 0; i < n; i++) {
        float v = s.mean + factor * (x[i * step] - s.mean);
        x[i * step] = v < s.min ? s.min : v > s.max ? s.max : v;
    }
}

/* Below this range or deviation a channel counts as constant and gamma leaves it alone. */
#define FLAT 1e-7f

static void change_gamma(float *x, size_t n, size_t step, float gamma, int invert)
{
    struct spread s = measure(x, n, step);
    float range = s.max - s.min;
    if (!(range > FLAT))
        return;
    for (size_t i = 0; i < n; i++) {
        float t = (x[i * step] - s.min) / range;
        x[i * step] = invert ? 1 - powf(1 - t, gamma) : powf(t, gamma);
    }
    struct spread now = measure(x, n, step);
    float factor = now.sd > FLAT ? s.sd / now.sd : 1;
    for (size_t i = 0; i < n; i++)
        x[i * step] = s.mean + factor * (x[i * step] - now.mean);
}

/* ---- all of them ----------------------------------------------------------------------------- */

void intensity_apply(const struct patch *out, const struct augment_draw *d, struct augment_scratch *s)
{
    size_t channels = (size_t)out->channels, voxels = patch_voxels(out), n = voxels * channels;
    if (d->noise_sd > 0)
        add_noise(out->image, n, d);
    if (d->blur_sd > 0)
        filter_patch(out, s, taps_blur, d->blur_sd);
    if (d->brightness != 1 || d->shift != 0)
        for (size_t i = 0; i < n; i++)
            out->image[i] = out->image[i] * d->brightness + d->shift;
    if (d->contrast != 1)
        for (size_t c = 0; c < channels; c++)
            change_contrast(out->image + c, voxels, channels, d->contrast);
    if (d->zoom != 1)
        filter_patch(out, s, taps_zoom, d->zoom);
    if (d->gamma != 1)
        for (size_t c = 0; c < channels; c++)
            change_gamma(out->image + c, voxels, channels, d->gamma, d->invert);
}
