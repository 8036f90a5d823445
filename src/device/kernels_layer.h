/* kernels_layer.h - the layers of a network that are no convolution. Part of kernels.h; see there for the
 * form of a body.
 *
 * Values between layers are float32 or bf16 (device.h), so bodies read and write through k_get and k_put.
 * They are read like a convolution reads its input: act(scale(n,c) y + shift(n,c)), see conv.h.
 *
 * An index is one element, channels fastest. A CPU walks along the channels of a voxel, a GPU thread has one.
 */
#ifndef FALX_KERNELS_LAYER_H
#define FALX_KERNELS_LAYER_H

#include "device/kernels_math.h"

/* ---- values of two types --------------------------------------------------------------------- */

/* A stored tensor and how it is read. */
struct k_view {
    const void *y;
    int bf16;
    const float *scale, *shift; /* (n, c); NULL: taken as it is */
    int relu;
};

/* table: n * c + channel. */
KERNEL float k_view_at(const struct k_view *v, int64_t i, int64_t table)
{
    float x = k_get(v->y, v->bf16, i);
    x = v->scale ? x * v->scale[table] + v->shift[table] : x;
    return v->relu ? k_max(x, 0.0f) : x;
}

/* Channels of one voxel at once, up to K_LANES: elements i .. i + n - 1, as vectors on a CPU. */
KERNEL void k_get_row(float *x, const void *from, int bf16, int64_t i, int n)
{
    if (bf16)
        for (int j = 0; j < n; j++)
            x[j] = k_get(from, 1, i + j);
    else
        for (int j = 0; j < n; j++)
            x[j] = k_get(from, 0, i + j);
}

KERNEL void k_put_row(void *to, int bf16, int64_t i, const float *x, int n)
{
    if (bf16)
        for (int j = 0; j < n; j++)
            k_put(to, 1, i + j, x[j]);
    else
        for (int j = 0; j < n; j++)
            k_put(to, 0, i + j, x[j]);
}

KERNEL void k_view_row(float *x, const struct k_view *v, int64_t i, int64_t table, int n)
{
    k_get_row(x, v->y, v->bf16, i, n);
    for (int j = 0; v->scale && j < n; j++)
        x[j] = x[j] * v->scale[table + j] + v->shift[table + j];
    for (int j = 0; v->relu && j < n; j++)
        x[j] = k_max(x[j], 0.0f);
}

/* ---- making larger --------------------------------------------------------------------------- */

enum k_resize_how {
    K_NEAREST,
    K_ALIGNED, /* trilinear, corners on corners: source = at (from - 1) / (to - 1) */
    K_CENTRED  /* trilinear, voxels are boxes: source = (at + 1/2) from / to - 1/2, not below 0 */
};
enum { K_RESIZE_MOST = 16, K_RESIZE_TAPS = 3 * K_RESIZE_MOST + 2 }; /* largest factor; what meets a voxel */

struct k_grids {
    int how;
    int from[3], to[3]; /* voxels along d, h, w, coarse and fine */
    int c;
};

/* Fine voxel `at` of an axis lies between coarse `first` and the one after it; returns the share of that. */
KERNEL float k_resize_place(const struct k_grids *g, int axis, int at, int *first)
{
    int from = g->from[axis], to = g->to[axis];
    float x = 0;
    if (g->how == K_NEAREST) {
        *first = at / (to / from);
        return 0;
    }
    if (g->how == K_ALIGNED)
        x = to > 1 ? (float)at * ((float)(from - 1) / (float)(to - 1)) : 0.0f;
    else
        x = ((float)at + 0.5f) * ((float)from / (float)to) - 0.5f;
    x = k_max(x, 0.0f);
    *first = (int)x < from - 1 ? (int)x : from - 1;
    return *first < from - 1 ? x - (float)*first : 0.0f;
}

/* out = a made larger. */
struct k_resize {
    struct k_view a;
    void *out;
    int out_bf16;
    struct k_grids grid;
};

/* The eight corners of one fine voxel: their elements (channel 0) and shares. */
KERNEL int k_resize_corners(const struct k_grids *g, int64_t item, const int at[3], int64_t *corner,
                            float *share)
{
    int first[3], n = 0;
    float second[3];
    for (int a = 0; a < 3; a++)
        second[a] = k_resize_place(g, a, at[a], &first[a]);
    for (int k = 0; k < 8; k++) {
        int z = k >> 2, y = k >> 1 & 1, x = k & 1;
        float s = (z ? second[0] : 1 - second[0]) * (y ? second[1] : 1 - second[1]) *
                  (x ? second[2] : 1 - second[2]);
        if (s == 0)
            continue;
        share[n] = s;
        corner[n++] = (((item * g->from[0] + first[0] + z) * g->from[1] + first[1] + y) * g->from[2] +
                       first[2] + x) * g->c;
    }
    return n;
}

/* Element i: its item and place on a grid; returns its channel. */
KERNEL int k_element(int64_t i, const int *grid, int c, int64_t *item, int at[3])
{
    int64_t v = i / c;
    at[2] = (int)(v % grid[2]);
    at[1] = (int)(v / grid[2] % grid[1]);
    at[0] = (int)(v / grid[2] / grid[1] % grid[0]);
    *item = v / grid[2] / grid[1] / grid[0];
    return (int)(i % c);
}

/* Channels to take at once: of those left in the voxel and in the range. */
KERNEL int k_row_width(int in_voxel, int64_t in_range)
{
    int width = in_voxel < K_LANES ? in_voxel : K_LANES;
    return in_range < width ? (int)in_range : width;
}

KERNEL void k_resize_range(const struct k_resize *k, int64_t i0, int64_t i1)
{
    const int c = k->grid.c;
    int64_t corner[8], item;
    float share[8], sum[K_LANES], x[K_LANES];
    int at[3];
    for (int64_t i = i0; i < i1;) {
        int first = k_element(i, k->grid.to, c, &item, at), width = k_row_width(c - first, i1 - i);
        int n = k_resize_corners(&k->grid, item, at, corner, share);
        for (int j = 0; j < width; j++)
            sum[j] = 0;
        for (int t = 0; t < n; t++) {
            k_view_row(x, &k->a, corner[t] + first, item * c + first, width);
            for (int j = 0; j < width; j++)
                sum[j] += share[t] * x[j];
        }
        k_put_row(k->out, k->out_bf16, i, sum, width);
        i += width;
    }
}

/* Its transpose: every coarse element gathers from the fine ones it went to. An index is a coarse element;
 * fresh: dx is set, not added to. */
struct k_resize_grad {
    const void *g;
    int g_bf16;
    void *dx;
    int dx_bf16, fresh;
    struct k_grids grid;
};

/* Shares of coarse voxel `at` in the fine ones from *first on; returns how many. */
KERNEL int k_resize_taps(const struct k_grids *g, int axis, int at, int *first, float *share)
{
    int factor = g->to[axis] / g->from[axis], n = 0;
    int lo = (at - 1) * factor - 1, hi = (at + 2) * factor;
    lo = lo < 0 ? 0 : lo;
    hi = hi < g->to[axis] - 1 ? hi : g->to[axis] - 1;
    for (int fine = lo; fine <= hi; fine++) {
        int near;
        float second = k_resize_place(g, axis, fine, &near);
        float s = near == at ? 1 - second : near + 1 == at ? second : 0.0f;
        if (n == 0 && s == 0)
            continue;
        *first = n == 0 ? fine : *first;
        share[n++] = s;
    }
    while (n > 0 && share[n - 1] == 0)
        n--;
    return n;
}

KERNEL void k_resize_grad_range(const struct k_resize_grad *k, int64_t i0, int64_t i1)
{
    const int c = k->grid.c;
    float share[3][K_RESIZE_TAPS], sum[K_LANES], x[K_LANES];
    int first[3] = {0, 0, 0}, n[3], at[3];
    int64_t item;
    for (int64_t i = i0; i < i1;) {
        int from = k_element(i, k->grid.from, c, &item, at), width = k_row_width(c - from, i1 - i);
        for (int a = 0; a < 3; a++)
            n[a] = k_resize_taps(&k->grid, a, at[a], &first[a], share[a]);
        for (int j = 0; j < width; j++)
            sum[j] = 0;
        for (int z = 0; z < n[0]; z++)
            for (int y = 0; y < n[1]; y++) {
                const float zy = share[0][z] * share[1][y];
                int64_t line = (item * k->grid.to[0] + first[0] + z) * k->grid.to[1] + first[1] + y;
                int64_t g = (line * k->grid.to[2] + first[2]) * c + from;
                for (int t = 0; t < n[2]; t++, g += c) {
                    k_get_row(x, k->g, k->g_bf16, g, width);
                    for (int j = 0; j < width; j++)
                        sum[j] += zy * share[2][t] * x[j];
                }
            }
        if (!k->fresh) {
            k_get_row(x, k->dx, k->dx_bf16, i, width);
            for (int j = 0; j < width; j++)
                sum[j] = x[j] + sum[j];
        }
        k_put_row(k->dx, k->dx_bf16, i, sum, width);
        i += width;
    }
}

/* ---- perturbing ------------------------------------------------------------------------------ */

/* Of one item: out = a times a random factor in every element, 1 + amount (2u - 1), or, drop, 0 where
 * u < amount and 1 / (1 - amount) elsewhere; unless it is fresh, that is added. An index is a random block:
 * elements 4i .. 4i+3. Forward a is the value, backward the gradient. */
struct k_shake {
    struct k_view a;
    void *out;
    int out_bf16, fresh;
    int64_t count;
    int c, drop;
    float amount;
    uint64_t seed, step, first;
    uint32_t stream;
};
KERNEL void k_shake_range(const struct k_shake *k, int64_t i0, int64_t i1)
{
    uint32_t word[4][K_LANES];
    const float amount = k->amount, kept = 1.0f / (1.0f - amount);
    EACH_CHUNK(i, n, i0, i1) {
        k_random(word, k->seed, k->step, k->stream, k->first + (uint64_t)i, 1);
        int64_t last = k->count - 4 * i < 4 * n ? k->count - 4 * i : 4 * n;
        for (int64_t e = 0; e < last; e++) {
            int64_t at = 4 * i + e;
            float u = ((float)(int32_t)(word[e & 3][e >> 2] >> 9) + 0.5f) * (1.0f / 8388608.0f);
            float by = 1.0f + amount * (2.0f * u - 1.0f), x = k_view_at(&k->a, at, at % k->c);
            if (k->drop)
                by = u < amount ? 0.0f : kept;
            k_put(k->out, k->out_bf16, at, k->fresh ? by * x : k_get(k->out, k->out_bf16, at) + by * x);
        }
    }
}

/* Of one item: the mean over channels of every voxel, an index. */
struct k_activity {
    struct k_view a;
    float *out;
    int c;
};
KERNEL void k_activity_range(const struct k_activity *k, int64_t i0, int64_t i1)
{
    for (int64_t i = i0; i < i1; i++) {
        float sum = 0;
        for (int j = 0; j < k->c; j++)
            sum += k_view_at(&k->a, i * k->c + j, j);
        k->out[i] = sum / (float)k->c;
    }
}

/* to[i] = the largest of sign * from[i], from[i + parts], ...; parts <= count. An index is a part. */
struct k_peak {
    const float *from;
    float *to;
    int64_t count, parts;
    float sign;
};
KERNEL void k_peak_range(const struct k_peak *k, int64_t i0, int64_t i1)
{
    for (int64_t i = i0; i < i1; i++) {
        float top = k->sign * k->from[i];
        for (int64_t j = i + k->parts; j < k->count; j += k->parts)
            top = k_max(k->sign * k->from[j], top);
        k->to[i] = top;
    }
}

/* Of one item: out = a in voxels whose activity is below share * peak, 0 elsewhere; unless it is fresh, that
 * is added. An index is an element. */
struct k_keep_low {
    struct k_view a;
    void *out;
    int out_bf16, fresh;
    const float *activity, *peak;
    int c;
    float share;
};
KERNEL void k_keep_low_range(const struct k_keep_low *k, int64_t i0, int64_t i1)
{
    for (int64_t i = i0; i < i1; i++) {
        float x = k->activity[i / k->c] < k->share * *k->peak ? k_view_at(&k->a, i, i % k->c) : 0.0f;
        k_put(k->out, k->out_bf16, i, k->fresh ? x : k_get(k->out, k->out_bf16, i) + x);
    }
}

/* ---- gradients that meet ----------------------------------------------------------------------- */

/* to += from; fresh: to = from. */
struct k_meet {
    void *to;
    const void *from;
    int bf16, fresh;
};
KERNEL void k_meet_range(const struct k_meet *k, int64_t i0, int64_t i1)
{
    for (int64_t i = i0; i < i1; i++) {
        float x = k_get(k->from, k->bf16, i);
        k_put(k->to, k->bf16, i, k->fresh ? x : k_get(k->to, k->bf16, i) + x);
    }
}

#define KERNELS_LAYER(X) X(resize) X(resize_grad) X(shake) X(activity) X(peak) X(keep_low) X(meet)

#endif
