/* kernels_layer.h - the layers of a network that are no convolution. Part of kernels.h; see there for the
 * form of a body.
 *
 * Values between layers are float32 or bf16 (device.h), so bodies read and write through k_get_row and
 * k_put_row.
 * They are read like a convolution reads its input: act(scale(n,c) y + shift(n,c)), see conv.h.
 *
 * An index is a run of channels of one voxel (kernels_rows.h), if nothing else is said.
 */
#ifndef FALX_KERNELS_LAYER_H
#define FALX_KERNELS_LAYER_H

#include "device/kernels_rows.h"

/* A stored tensor and how it is read. */
struct k_view {
    const void *y;
    int bf16;
    const float *scale, *shift; /* (n, c); NULL: taken as it is */
    int relu;
};

/* x as it is read; table: n * c + channel. */
KERNEL float k_view_of(const struct k_view *v, float x, int64_t table)
{
    x = v->scale ? x * v->scale[table] + v->shift[table] : x;
    return v->relu ? k_max(x, 0.0f) : x;
}

/* What it says of the channels of a row: a GPU reads it once. */
struct k_view_row {
#ifdef __CUDA_ARCH__
    float scale[K_ROW], shift[K_ROW];
#else
    const float *scale, *shift;
#endif
};

/* table: of the first channel. */
KERNEL void k_view_tables(struct k_view_row *t, const struct k_view *v, int64_t table, int n)
{
#ifdef __CUDA_ARCH__
    if (v->scale) {
        k_get_row(t->scale, v->scale, 0, table, n);
        k_get_row(t->shift, v->shift, 0, table, n);
    }
#else
    (void)n;
    t->scale = v->scale ? v->scale + table : NULL;
    t->shift = v->scale ? v->shift + table : NULL;
#endif
}

/* Elements i .. i + n - 1, of one voxel. */
KERNEL void k_view_get(float *x, const struct k_view *v, const struct k_view_row *t, int64_t i, int n)
{
    k_get_row(x, v->y, v->bf16, i, n);
    if (v->scale)
        EACH_CHANNEL (j, n)
            x[j] = x[j] * t->scale[j] + t->shift[j];
    if (v->relu)
        EACH_CHANNEL (j, n)
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

/* Corner 0 .. 7 of a fine voxel with these shares of its second neighbours: its own share, and how many
 * coarse voxels it comes after corner 0. */
KERNEL float k_resize_corner(const struct k_grids *g, int corner, const float second[3], int *after)
{
    int z = corner >> 2, y = corner >> 1 & 1, x = corner & 1;
    *after = (z * g->from[1] + y) * g->from[2] + x;
    return (z ? second[0] : 1 - second[0]) * (y ? second[1] : 1 - second[1]) *
           (x ? second[2] : 1 - second[2]);
}

KERNEL void k_resize_range(const struct k_resize *k, int64_t i0, int64_t i1)
{
    const int c = k->grid.c;
    struct k_view_row tables;
    float second[3], sum[K_ROW], x[K_ROW];
    int64_t item;
    int at[3], first[3], after;
    for (int64_t i = i0; i < i1;) {
        struct k_row r = k_row_at(i, i1, c);
        k_place(r.voxel, k->grid.to, &item, at);
        for (int a = 0; a < 3; a++)
            second[a] = k_resize_place(&k->grid, a, at[a], &first[a]);
        k_view_tables(&tables, &k->a, item * c + r.first, r.width);
        const int *from = k->grid.from;
        int64_t voxel = ((item * from[0] + first[0]) * from[1] + first[1]) * from[2] + first[2];
        EACH_CHANNEL (j, r.width)
            sum[j] = 0;
        for (int corner = 0; corner < 8; corner++) {
            float share = k_resize_corner(&k->grid, corner, second, &after);
            if (share == 0)
                continue;
            k_view_get(x, &k->a, &tables, (voxel + after) * c + r.first, r.width);
            EACH_CHANNEL (j, r.width)
                sum[j] += share * x[j];
        }
        k_put_row(k->out, k->out_bf16, r.voxel * c + r.first, sum, r.width);
        i = r.next;
    }
}

/* Its transpose: every coarse voxel gathers from the fine ones it went to. An index is a run of a coarse
 * voxel; fresh: dx is set, not added to. */
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

/* sum = what row r gathers from the lines along w whose z and y are zy[0], zy[0] + step[0], ... and zy[1],
 * zy[1] + step[1], ...: threads of a GPU may share them out. */
KERNEL void k_resize_gather(const struct k_resize_grad *k, const struct k_row *r, float *sum, const int zy[2],
                            const int step[2])
{
    const int c = k->grid.c;
    float share[3][K_RESIZE_TAPS], x[K_ROW];
    int first[3] = {0, 0, 0}, n[3], at[3];
    int64_t item;
    k_place(r->voxel, k->grid.from, &item, at);
    for (int a = 0; a < 3; a++)
        n[a] = k_resize_taps(&k->grid, a, at[a], &first[a], share[a]);
    EACH_CHANNEL (j, r->width)
        sum[j] = 0;
    for (int z = zy[0]; z < n[0]; z += step[0])
        for (int y = zy[1]; y < n[1]; y += step[1]) {
            const float both = share[0][z] * share[1][y];
            int64_t line = (item * k->grid.to[0] + first[0] + z) * k->grid.to[1] + first[1] + y;
            int64_t g = (line * k->grid.to[2] + first[2]) * c + r->first;
            for (int t = 0; t < n[2]; t++, g += c) {
                const float s = both * share[2][t];
                k_get_row(x, k->g, k->g_bf16, g, r->width);
                EACH_CHANNEL (j, r->width)
                    sum[j] += s * x[j];
            }
        }
}

KERNEL void k_resize_grad_range(const struct k_resize_grad *k, int64_t i0, int64_t i1)
{
    const int zy[2] = {0, 0}, step[2] = {1, 1}, c = k->grid.c;
    float sum[K_ROW];
    for (int64_t i = i0; i < i1;) {
        struct k_row r = k_row_at(i, i1, c);
        k_resize_gather(k, &r, sum, zy, step);
        k_store_row(k->dx, k->dx_bf16, k->fresh, r.voxel * c + r.first, sum, r.width);
        i = r.next;
    }
}

/* ---- perturbing ------------------------------------------------------------------------------ */

/* Of one item: out = a times a random factor in every element, 1 + amount (2u - 1), or, drop, 0 where
 * u < amount and 1 / (1 - amount) elsewhere; unless it is fresh, that is added. An index is a random block:
 * elements 4i .. 4i+3, which may be of several voxels. Forward a is the value, backward the gradient. */
struct k_shake {
    struct k_view a;
    void *out;
    int out_bf16, fresh;
    int c, drop;
    float amount;
    uint64_t seed, step, first;
    uint32_t stream;
};

#ifdef __CUDA_ARCH__
union k_four {
    uint2 v[2];
    float f[4];
    uint16_t half[4];
};
#endif

/* Elements 4i .. 4i+3, from a multiple of 8 bytes on: one or two vectors on a GPU. */
KERNEL void k_get_four(float *x, const void *from, int bf16, int64_t i)
{
#ifdef __CUDA_ARCH__
    const uint2 *at = (const uint2 *)from + (bf16 ? i : 2 * i);
    union k_four four;
    four.v[0] = at[0];
    if (!bf16)
        four.v[1] = at[1];
    EACH_CHANNEL (j, 4)
        x[j] = bf16 ? k_get(four.half, 1, j) : four.f[j];
#else
    k_get_row(x, from, bf16, 4 * i, 4);
#endif
}

KERNEL void k_put_four(void *to, int bf16, int64_t i, const float *x)
{
#ifdef __CUDA_ARCH__
    union k_four four;
    uint2 *at = (uint2 *)to + (bf16 ? i : 2 * i);
    EACH_CHANNEL (j, 4)
        k_put(bf16 ? (void *)four.half : four.f, bf16, j, x[j]);
    at[0] = four.v[0];
    if (!bf16)
        at[1] = four.v[1];
#else
    k_put_row(to, bf16, 4 * i, x, 4);
#endif
}

/* Random block i, made of these words, of which one is for each element. */
KERNEL void k_shake_block(const struct k_shake *k, int64_t i, const uint32_t word[4])
{
    const float amount = k->amount, kept = 1.0f / (1.0f - amount);
    float x[4], old[4] = {0};
    int channel;
    k_divide(4 * i, k->c, &channel);
    k_get_four(x, k->a.y, k->a.bf16, i);
    if (!k->fresh)
        k_get_four(old, k->out, k->out_bf16, i);
    EACH_CHANNEL (j, 4) {
        float u = k_uniform(word[j]), by = 1.0f + amount * (2.0f * u - 1.0f);
        if (k->drop)
            by = u < amount ? 0.0f : kept;
        x[j] = by * k_view_of(&k->a, x[j], channel);
        x[j] = k->fresh ? x[j] : old[j] + x[j];
        channel = channel + 1 < k->c ? channel + 1 : 0;
    }
    k_put_four(k->out, k->out_bf16, i, x);
}

KERNEL void k_shake_range(const struct k_shake *k, int64_t i0, int64_t i1)
{
    uint32_t word[4][K_LANES];
    EACH_CHUNK (i, n, i0, i1) {
        k_random(word, k->seed, k->step, k->stream, k->first + (uint64_t)i, 1);
        for (int64_t j = 0; j < n; j++) {
            const uint32_t own[4] = {word[0][j], word[1][j], word[2][j], word[3][j]};
            k_shake_block(k, i + j, own);
        }
    }
}

/* The mean over channels of every voxel, an index. */
struct k_activity {
    struct k_view a;
    float *out;
    int voxels, c; /* voxels: of an item */
};
KERNEL void k_activity_range(const struct k_activity *k, int64_t i0, int64_t i1)
{
    struct k_view_row tables;
    float x[K_ROW];
    for (int64_t i = i0; i < i1; i++) {
        int rest;
        int64_t item = k_divide(i, k->voxels, &rest);
        float sum = 0;
        for (int first = 0; first < k->c; first += K_ROW) {
            int width = k->c - first < K_ROW ? k->c - first : K_ROW;
            k_view_tables(&tables, &k->a, item * k->c + first, width);
            k_view_get(x, &k->a, &tables, i * k->c + first, width);
            EACH_CHANNEL (j, width)
                sum += x[j];
        }
        k->out[i] = sum / (float)k->c;
    }
}

/* From rows of `count` numbers rows of `parts`, parts <= count: to[i] = the largest of sign * from[i],
 * from[i + parts], ... of a row. An index is a part. */
struct k_peak {
    const float *from;
    float *to;
    int64_t count, parts;
    float sign;
};
KERNEL void k_peak_range(const struct k_peak *k, int64_t i0, int64_t i1)
{
    for (int64_t i = i0; i < i1; i++) {
        const int64_t row = i / k->parts;
        const float *from = k->from + row * k->count;
        int64_t j = i - row * k->parts;
        float top = k->sign * from[j];
        for (j += k->parts; j < k->count; j += k->parts)
            top = k_max(k->sign * from[j], top);
        k->to[i] = top;
    }
}

/* out = a in voxels whose activity is below share * peak of their item, 0 elsewhere; unless it is fresh, that
 * is added. */
struct k_keep_low {
    struct k_view a;
    void *out;
    int out_bf16, fresh;
    const float *activity, *peak; /* (items, voxels), (items) */
    int voxels, c;
    float share;
};
KERNEL void k_keep_low_range(const struct k_keep_low *k, int64_t i0, int64_t i1)
{
    struct k_view_row tables;
    float x[K_ROW];
    for (int64_t i = i0; i < i1;) {
        struct k_row r = k_row_at(i, i1, k->c);
        int rest;
        int64_t item = k_divide(r.voxel, k->voxels, &rest);
        EACH_CHANNEL (j, r.width)
            x[j] = 0;
        if (k->activity[r.voxel] < k->share * k->peak[item]) {
            k_view_tables(&tables, &k->a, item * k->c + r.first, r.width);
            k_view_get(x, &k->a, &tables, r.voxel * k->c + r.first, r.width);
        }
        k_store_row(k->out, k->out_bf16, k->fresh, r.voxel * k->c + r.first, x, r.width);
        i = r.next;
    }
}

/* ---- gradients that meet ----------------------------------------------------------------------- */

/* to += from; fresh: to = from. An index is an element. */
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
