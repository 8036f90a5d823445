/* kernels_strided.h - loops of convolutions with any kernel, stride and padding, made of products of rows
 * (net/strided.h says how). Part of kernels.h; see there for the form of a body.
 *
 *     unfold        rows (position, tap, channel): what a kernel sees at each position, zeros beyond the edge
 *     unfold_grad   its transpose: the gradient of a row goes back to the voxels it was read from
 *
 * Values are read through act(x) = x or slope * x if negative, times a factor of item and channel (dropout).
 * An index is an element, channels fastest.
 */
#ifndef FALX_KERNELS_STRIDED_H
#define FALX_KERNELS_STRIDED_H

#include "device/kernels_math.h"

struct k_window {
    int extent[3], c;                   /* of what is read: one item */
    int out[3];                         /* positions */
    int kernel[3], stride[3], pad[3];
};

KERNEL float k_leaky(float x, float slope)
{
    return x > 0 ? x : slope * x;
}

struct k_unfold {
    struct k_window at;
    const float *x, *more;              /* (extent, c); more is added to x, or NULL */
    const float *factor;                /* (c), or NULL: 1 */
    float slope;
    int64_t first;                      /* position of the first row */
    float *rows;                        /* (positions, taps, c) */
};
KERNEL void k_unfold_range(const struct k_unfold *k, int64_t i0, int64_t i1)
{
    const struct k_window *w = &k->at;
    const int c = w->c, taps = w->kernel[0] * w->kernel[1] * w->kernel[2];
    for (int64_t i = i0, n; i < i1; i += n) { /* n channels of one voxel */
        const int j = (int)(i % c), tap = (int)(i / c % taps);
        const int64_t place = k->first + i / c / taps;
        const int64_t z = place / w->out[2] / w->out[1] * w->stride[0] - w->pad[0] +
                          tap / w->kernel[2] / w->kernel[1];
        const int64_t y = place / w->out[2] % w->out[1] * w->stride[1] - w->pad[1] +
                          tap / w->kernel[2] % w->kernel[1];
        const int64_t x = place % w->out[2] * w->stride[2] - w->pad[2] + tap % w->kernel[2];
        const int inside = z >= 0 && z < w->extent[0] && y >= 0 && y < w->extent[1] && x >= 0 &&
                           x < w->extent[2];
        const int64_t from = inside ? ((z * w->extent[1] + y) * w->extent[2] + x) * c + j : 0;
        n = c - j < i1 - i ? c - j : i1 - i;
        for (int64_t e = 0; e < n; e++) {
            float v = inside ? k->x[from + e] + (k->more ? k->more[from + e] : 0.0f) : 0.0f;
            k->rows[i + e] = k_leaky(v, k->slope) * (k->factor ? k->factor[j + e] : 1.0f);
        }
    }
}

/* dx += what `planes` planes of positions from number `plane` on say, one row each. */
struct k_unfold_grad {
    struct k_window at;
    const float *rows;                  /* (positions, taps, c) */
    int plane, planes;
    float *dx;                          /* (extent, c) */
};

/* Along axis a voxel `at` is seen by positions low .. high; that of p is tap at + pad - p * stride. */
KERNEL void k_seen_by(const struct k_window *w, int a, int64_t at, int *low, int *high)
{
    int64_t shifted = at + w->pad[a], first = shifted - w->kernel[a] + w->stride[a];
    *low = first > 0 ? (int)(first / w->stride[a]) : 0;
    *high = (int)(shifted / w->stride[a]);
    *high = *high < w->out[a] - 1 ? *high : w->out[a] - 1;
}

KERNEL void k_unfold_grad_range(const struct k_unfold_grad *k, int64_t i0, int64_t i1)
{
    const struct k_window *w = &k->at;
    const int c = w->c;
    for (int64_t i = i0, n; i < i1; i += n) { /* n channels of one voxel */
        const int64_t voxel = i / c, j = i % c;
        const int64_t at[3] = {voxel / w->extent[2] / w->extent[1], voxel / w->extent[2] % w->extent[1],
                               voxel % w->extent[2]};
        int low[3], high[3];
        for (int a = 0; a < 3; a++)
            k_seen_by(w, a, at[a], &low[a], &high[a]);
        low[0] = low[0] > k->plane ? low[0] : k->plane;
        high[0] = high[0] < k->plane + k->planes ? high[0] : k->plane + k->planes - 1;
        n = c - j < i1 - i ? c - j : i1 - i;
        for (int z = low[0]; z <= high[0]; z++) {
            for (int y = low[1]; y <= high[1]; y++) {
                for (int x = low[2]; x <= high[2]; x++) {
                    int64_t tap = at[0] + w->pad[0] - z * w->stride[0];
                    tap = tap * w->kernel[1] + at[1] + w->pad[1] - y * w->stride[1];
                    tap = tap * w->kernel[2] + at[2] + w->pad[2] - x * w->stride[2];
                    int64_t row = ((int64_t)(z - k->plane) * w->out[1] + y) * w->out[2] + x;
                    int64_t taps = (int64_t)w->kernel[0] * w->kernel[1] * w->kernel[2];
                    const float *from = k->rows + (row * taps + tap) * c + j;
                    for (int64_t e = 0; e < n; e++)
                        k->dx[i + e] += from[e];
                }
            }
        }
    }
}

/* g, a gradient by act(x) * factor, becomes that by x. */
struct k_leaky_grad {
    const float *x, *more, *factor;     /* as in unfold; of one item */
    float *g;
    float slope;
    int c;
};
KERNEL void k_leaky_grad_range(const struct k_leaky_grad *k, int64_t i0, int64_t i1)
{
    for (int64_t i = i0; i < i1; i++) {
        float x = k->x[i] + (k->more ? k->more[i] : 0.0f), f = k->factor ? k->factor[i % k->c] : 1.0f;
        k->g[i] *= x > 0 ? f : k->slope * f;
    }
}

/* ---- means ----------------------------------------------------------------------------------- */

/* mean (groups, c) of act(x) over voxels. A group is an item, or, with several columns, the voxels of an
 * item that have the same place along the last axis. */
struct k_pool {
    const float *x;                     /* (items, voxels, columns, c) */
    float *mean;                        /* (items, columns, c) */
    int64_t voxels;
    int columns, c;
    float slope;
};
KERNEL void k_pool_range(const struct k_pool *k, int64_t i0, int64_t i1)
{
    const int64_t line = (int64_t)k->columns * k->c;
    for (int64_t i = i0; i < i1; i++) {
        const float *from = k->x + i / line * k->voxels * line + i % line;
        double sum = 0;
        for (int64_t v = 0; v < k->voxels; v++)
            sum += (double)k_leaky(from[v * line], k->slope);
        k->mean[i] = (float)(sum / (double)k->voxels);
    }
}

/* g (items, voxels, columns, c) = the gradient by x. */
struct k_pool_grad {
    const float *x, *dmean;
    float *g;
    int64_t voxels;
    int columns, c;
    float slope;
};
KERNEL void k_pool_grad_range(const struct k_pool_grad *k, int64_t i0, int64_t i1)
{
    const int64_t line = (int64_t)k->columns * k->c;
    const float share = 1.0f / (float)k->voxels;
    for (int64_t i = i0; i < i1; i++) {
        float d = k->dmean[i / line / k->voxels * line + i % line] * share;
        k->g[i] = k->x[i] > 0 ? d : k->slope * d;
    }
}

#define KERNELS_STRIDED(X) X(unfold) X(unfold_grad) X(leaky_grad) X(pool) X(pool_grad)

#endif
