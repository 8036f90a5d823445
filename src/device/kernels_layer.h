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

KERNEL float k_get(const void *from, int bf16, int64_t i)
{
    return bf16 ? k_float((uint32_t)((const uint16_t *)from)[i] << 16) : ((const float *)from)[i];
}

/* Rounded to nearest even; NaN stays NaN. */
KERNEL void k_put(void *to, int bf16, int64_t i, float x)
{
    uint32_t u = k_bits(x), rounded = u + 0x7FFFu + (u >> 16 & 1u);
    if (bf16)
        ((uint16_t *)to)[i] = (uint16_t)((x == x ? rounded : u | 0x00400000u) >> 16);
    else
        ((float *)to)[i] = x;
}

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

KERNEL void k_resize_range(const struct k_resize *k, int64_t i0, int64_t i1)
{
    const int c = k->grid.c;
    int64_t corner[8], item;
    float share[8];
    int at[3];
    for (int64_t i = i0; i < i1;) {
        int first = k_element(i, k->grid.to, c, &item, at);
        int end = i1 - i < c - first ? first + (int)(i1 - i) : c;
        int n = k_resize_corners(&k->grid, item, at, corner, share);
        for (int j = first; j < end; j++) {
            float sum = 0;
            for (int t = 0; t < n; t++)
                sum += share[t] * k_view_at(&k->a, corner[t] + j, item * c + j);
            k_put(k->out, k->out_bf16, i + j - first, sum);
        }
        i += end - first;
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
    enum { WIDE = K_LANES }; /* channels at once */
    const int c = k->grid.c;
    float share[3][K_RESIZE_TAPS], sum[WIDE];
    int first[3] = {0, 0, 0}, n[3], at[3];
    int64_t item;
    for (int64_t i = i0; i < i1;) {
        int from = k_element(i, k->grid.from, c, &item, at), width = c - from < WIDE ? c - from : WIDE;
        width = i1 - i < width ? (int)(i1 - i) : width;
        for (int a = 0; a < 3; a++)
            n[a] = k_resize_taps(&k->grid, a, at[a], &first[a], share[a]);
        for (int j = 0; j < width; j++)
            sum[j] = 0;
        for (int z = 0; z < n[0]; z++)
            for (int y = 0; y < n[1]; y++) {
                const float zy = share[0][z] * share[1][y];
                int64_t line = (item * k->grid.to[0] + first[0] + z) * k->grid.to[1] + first[1] + y;
                int64_t g = (line * k->grid.to[2] + first[2]) * c + from;
                for (int x = 0; x < n[2]; x++, g += c)
                    for (int j = 0; j < width; j++)
                        sum[j] += zy * share[2][x] * k_get(k->g, k->g_bf16, g + j);
            }
        for (int j = 0; j < width; j++)
            k_put(k->dx, k->dx_bf16, i + j,
                  k->fresh ? sum[j] : k_get(k->dx, k->dx_bf16, i + j) + sum[j]);
        i += width;
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

#define KERNELS_LAYER(X) X(resize) X(resize_grad) X(meet)

#endif
