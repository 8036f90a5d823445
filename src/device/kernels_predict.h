/* kernels_predict.h - voxel loops of the sliding window. Part of kernels.h; see there for the form of a body.
 *
 * A window is cut out of the planes of the scan that lie on the device, mirrored as asked.
 *
 * Windows are added into a ring of planes, weighted towards their middle; when no later window reaches a
 * plane its sums are divided by the sum of weights, which is a product of three numbers because windows
 * stand on a grid and weights are products.
 */
#ifndef FALX_KERNELS_PREDICT_H
#define FALX_KERNELS_PREDICT_H

#include "device/kernels_gauss.h"

/* One window of a scan; zeros outside of it. */
struct k_window_cut {
    const float *scan; /* (extent..., c) */
    float *out;        /* (patch..., c) */
    int c, extent[3];
    int patch[3], first[3]; /* window's extent, and its place in the scan; it may reach beyond */
    int flip[3];            /* 1: mirrored along this axis */
};
KERNEL void k_window_cut_range(const struct k_window_cut *k, int64_t i0, int64_t i1)
{
    for (int64_t i = i0, n; i < i1; i += n) { /* n voxels of a row of the window */
        int64_t at[3] = {i / k->patch[2] / k->patch[1], i / k->patch[2] % k->patch[1], i % k->patch[2]};
        n = k->patch[2] - at[2] < i1 - i ? k->patch[2] - at[2] : i1 - i;
        int64_t z = k->first[0] + (k->flip[0] ? k->patch[0] - 1 - at[0] : at[0]);
        int64_t y = k->first[1] + (k->flip[1] ? k->patch[1] - 1 - at[1] : at[1]);
        int64_t x = k->first[2] + (k->flip[2] ? k->patch[2] - 1 - at[2] : at[2]), step = k->flip[2] ? -1 : 1;
        int inside = z >= 0 && z < k->extent[0] && y >= 0 && y < k->extent[1];
        const float *row = k->scan + (inside ? (z * k->extent[1] + y) * k->extent[2] * k->c : 0);
        for (int64_t j = 0; j < n; j++, x += step)
            for (int c = 0; c < k->c; c++)
                k->out[(i + j) * k->c + c] = inside && x >= 0 && x < k->extent[2] ? row[x * k->c + c] : 0.0f;
    }
}

/* Adds one window of c values a voxel, or their softmax, to the ring. */
struct k_window_add {
    const float *x;         /* (patch..., c) */
    float *ring;            /* (patch[0] planes, h, w, c); plane z of the volume lies at z % patch[0] */
    const float *weight[3]; /* (patch[a]) */
    int c, softmax, h, w;
    int patch[3], first[3];  /* window's extent, and its place in the volume */
    int flip[3];             /* 1: the window was seen mirrored along this axis */
    const uint8_t *exchange; /* what each class is in the mirror image, or NULL: itself */
    int classes;             /* of which every channel is one, in turn */
};
/* Where a channel of the window belongs. */
KERNEL int k_window_channel(const struct k_window_add *k, int c)
{
    return k->exchange ? c / k->classes * k->classes + k->exchange[c % k->classes] : c;
}
KERNEL void k_window_add_range(const struct k_window_add *k, int64_t i0, int64_t i1)
{
    float z[KERNEL_CLASSES][K_LANES];
    EACH_CHUNK (i, n, i0, i1) {
        for (int c0 = 0; c0 < k->c; c0 += KERNEL_CLASSES) { /* factors may have more channels */
            int some = k->c - c0 < KERNEL_CLASSES ? k->c - c0 : KERNEL_CLASSES;
            k_load(z, k->x + i * k->c + c0, some, k->c, n);
            if (k->softmax)
                k_softmax(z, k->c);
            for (int64_t j = 0; j < n; j++) {
                int64_t at[3] = {(i + j) / k->patch[2] / k->patch[1], (i + j) / k->patch[2] % k->patch[1],
                                 (i + j) % k->patch[2]};
                float weight = 1.0f;
                for (int a = 0; a < 3; a++) {
                    at[a] = k->flip[a] ? k->patch[a] - 1 - at[a] : at[a];
                    weight *= k->weight[a][at[a]];
                    at[a] += k->first[a];
                }
                float *sum = k->ring + ((at[0] % k->patch[0] * k->h + at[1]) * k->w + at[2]) * k->c;
                for (int c = 0; c < some; c++)
                    sum[k_window_channel(k, c0 + c)] += weight * z[c][j];
            }
        }
    }
}

/* One plane: out = sums / weights. */
struct k_window_mean {
    const float *sum;      /* (h, w, c) */
    const float *total[2]; /* (h), (w): sums of weights along the axes */
    float total_plane;
    float *out; /* (h, w, c) */
    int c, w;
};
KERNEL void k_window_mean_range(const struct k_window_mean *k, int64_t i0, int64_t i1)
{
    for (int64_t i = i0; i < i1; i++) {
        float scale = 1.0f / (k->total_plane * k->total[0][i / k->w] * k->total[1][i % k->w]);
        for (int c = 0; c < k->c; c++)
            k->out[i * k->c + c] = k->sum[i * k->c + c] * scale;
    }
}

/* Label (ties to the lower class), probability of not being background, entropy / ln(classes). */
struct k_window_label {
    const float *prob; /* (v, c) */
    uint8_t *label;
    float *foreground, *entropy; /* NULL: not wanted */
    int c;
};
KERNEL void k_window_label_range(const struct k_window_label *k, int64_t i0, int64_t i1)
{
    float per_class = 1.0f / k_log((float)k->c);
    for (int64_t i = i0; i < i1; i++) {
        const float *p = k->prob + i * k->c;
        float sum = 0;
        int best = 0;
        for (int c = 0; c < k->c; c++) {
            best = p[c] > p[best] ? c : best;
            sum -= p[c] * k_log(k_max(p[c], 1e-20f));
        }
        k->label[i] = (uint8_t)best;
        if (k->foreground)
            k->foreground[i] = 1.0f - p[0];
        if (k->entropy)
            k->entropy[i] = sum * per_class;
    }
}

/* Over the samples of a low-rank Gaussian: standard deviation of the foreground probability, and entropy /
 * ln(classes) of the mean probability. */
struct k_window_spread {
    struct k_gauss g;
    float *std, *entropy;
};
KERNEL void k_window_spread_range(const struct k_window_spread *k, int64_t i0, int64_t i1)
{
    int classes = k->g.classes, samples = 2 * k->g.pairs;
    float per_class = 1.0f / k_log((float)classes);
    struct k_gauss_lanes l;
    float z[KERNEL_CLASSES][K_LANES], mean[KERNEL_CLASSES][K_LANES];
    float origin[K_LANES], sum[K_LANES], square[K_LANES]; /* about the first sample: nothing cancels */
    EACH_CHUNK (i, n, i0, i1) {
        k_gauss_draw(&k->g, &l, i, n);
        for (int c = 0; c < classes; c++)
            EACH_LANE (j)
                mean[c][j] = 0;
        EACH_LANE (j)
            sum[j] = square[j] = 0;
        for (int s = 0; s < samples; s++) {
            k_gauss_sample(&k->g, &l, s, z);
            k_softmax(z, classes);
            for (int c = 0; c < classes; c++)
                EACH_LANE (j)
                    mean[c][j] += z[c][j] / (float)samples;
            EACH_LANE (j) {
                origin[j] = s == 0 ? z[0][j] : origin[j];
                sum[j] += (z[0][j] - origin[j]) / (float)samples;
                square[j] += (z[0][j] - origin[j]) * (z[0][j] - origin[j]) / (float)samples;
            }
        }
        for (int64_t j = 0; j < n; j++) {
            float entropy = 0;
            for (int c = 0; c < classes; c++)
                entropy -= mean[c][j] * k_log(k_max(mean[c][j], 1e-20f));
            k->std[i + j] = sqrtf(k_max(square[j] - sum[j] * sum[j], 0.0f));
            k->entropy[i + j] = entropy * per_class;
        }
    }
}

#define KERNELS_PREDICT(X) X(window_cut) X(window_add) X(window_mean) X(window_label) X(window_spread)

#endif
