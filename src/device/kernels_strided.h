/* kernels_strided.h - loops of convolutions with any kernel, stride and padding, made of products of rows
 * (net/strided.h says how). Part of kernels.h; see there for the form of a body.
 *
 *     unfold        rows (position, tap, channel): what a kernel sees at each position, zeros beyond the edge
 *     unfold_grad   its transpose: the gradient of a row goes back to the voxels it was read from
 *     frame, join   what comes before and after the convolution that a 4x4x4 kernel of stride 2 is made of
 *
 * Values are read through act(x) = x or slope * x if negative, times a factor of item and channel (dropout).
 * An index is a run of channels of one voxel (kernels_rows.h), if nothing else is said.
 */
#ifndef FALX_KERNELS_STRIDED_H
#define FALX_KERNELS_STRIDED_H

#include "device/kernels_rows.h"

struct k_window {
    int extent[3], c; /* of what is read: one item */
    int out[3];       /* positions */
    int kernel[3], stride[3], pad[3];
};

KERNEL float k_leaky(float x, float slope)
{
    return x > 0 ? x : slope * x;
}

/* NULL: 1. */
KERNEL float k_factor_at(const float *factor, int64_t i)
{
    return factor ? factor[i] : 1.0f;
}

/* The derivative of act(x) * factor. */
KERNEL float k_leaky_slope(float x, float slope, float factor)
{
    return x > 0 ? factor : slope * factor;
}

struct k_unfold {
    struct k_window at;
    const float *x, *more; /* (extent, c); more is added to x, or NULL */
    const float *factor;   /* (c), or NULL: 1 */
    float slope;
    int64_t first; /* position of the first row */
    float *rows;   /* (positions, taps, c) */
};
/* x + more, n channels of a voxel from element `from` on; more may be NULL. */
KERNEL void k_sum_row(float *v, const float *x, const float *more, int64_t from, int n)
{
    float with[K_ROW];
    k_get_row(v, x, 0, from, n);
    if (!more)
        return;
    k_get_row(with, more, 0, from, n);
    EACH_CHANNEL (j, n)
        v[j] += with[j];
}

/* act(x + more) * factor of them; 0 for from < 0. */
KERNEL void k_leaky_row(float *v, const float *x, const float *more, const float *factor, float slope,
                        int64_t from, int n)
{
    EACH_CHANNEL (j, n)
        v[j] = 0;
    if (from < 0)
        return;
    k_sum_row(v, x, more, from, n);
    EACH_CHANNEL (j, n)
        v[j] = k_leaky(v[j], slope) * k_factor_at(factor, j);
}

KERNEL void k_unfold_range(const struct k_unfold *k, int64_t i0, int64_t i1)
{
    const struct k_window *w = &k->at;
    const int c = w->c, taps = w->kernel[0] * w->kernel[1] * w->kernel[2];
    float v[K_ROW];
    for (int64_t i = i0; i < i1;) {
        struct k_row r = k_row_at(i, i1, c);
        int tap, at[3], step[3];
        int64_t item, place = k->first + k_divide(r.voxel, taps, &tap);
        k_place(place, w->out, &item, at);
        k_place(tap, w->kernel, &item, step);
        for (int a = 0; a < 3; a++)
            at[a] = at[a] * w->stride[a] - w->pad[a] + step[a];
        const int64_t voxel = k_number(0, w->extent, at[0], at[1], at[2]);
        k_leaky_row(v, k->x, k->more, k->factor ? k->factor + r.first : NULL, k->slope,
                    voxel < 0 ? -1 : voxel * c + r.first, r.width);
        k_put_row(k->rows, 0, r.voxel * c + r.first, v, r.width);
        i = r.next;
    }
}

/* dx += what `planes` planes of positions from number `plane` on say, one row each. */
struct k_unfold_grad {
    struct k_window at;
    const float *rows; /* (positions, taps, c) */
    int plane, planes;
    float *dx; /* (extent, c) */
};

/* Along axis a voxel `at` is seen by positions low .. high; that of p is tap at + pad - p * stride. */
KERNEL void k_seen_by(const struct k_window *w, int a, int at, int *low, int *high)
{
    const int shifted = at + w->pad[a], first = shifted - w->kernel[a] + w->stride[a];
    *low = first > 0 ? first / w->stride[a] : 0;
    *high = shifted / w->stride[a];
    *high = *high < w->out[a] - 1 ? *high : w->out[a] - 1;
}

KERNEL void k_unfold_grad_range(const struct k_unfold_grad *k, int64_t i0, int64_t i1)
{
    const struct k_window *w = &k->at;
    const int c = w->c;
    float sum[K_ROW], from[K_ROW];
    for (int64_t i = i0; i < i1;) {
        struct k_row r = k_row_at(i, i1, c);
        int at[3], low[3], high[3];
        int64_t item;
        k_place(r.voxel, w->extent, &item, at);
        for (int a = 0; a < 3; a++)
            k_seen_by(w, a, at[a], &low[a], &high[a]);
        low[0] = low[0] > k->plane ? low[0] : k->plane;
        high[0] = high[0] < k->plane + k->planes ? high[0] : k->plane + k->planes - 1;
        k_get_row(sum, k->dx, 0, r.voxel * c + r.first, r.width);
        for (int z = low[0]; z <= high[0]; z++) {
            for (int y = low[1]; y <= high[1]; y++) {
                for (int x = low[2]; x <= high[2]; x++) {
                    int64_t tap = at[0] + w->pad[0] - z * w->stride[0];
                    tap = tap * w->kernel[1] + at[1] + w->pad[1] - y * w->stride[1];
                    tap = tap * w->kernel[2] + at[2] + w->pad[2] - x * w->stride[2];
                    int64_t row = ((int64_t)(z - k->plane) * w->out[1] + y) * w->out[2] + x;
                    int64_t taps = (int64_t)w->kernel[0] * w->kernel[1] * w->kernel[2];
                    k_get_row(from, k->rows, 0, (row * taps + tap) * c + r.first, r.width);
                    EACH_CHANNEL (j, r.width)
                        sum[j] += from[j];
                }
            }
        }
        k_put_row(k->dx, 0, r.voxel * c + r.first, sum, r.width);
        i = r.next;
    }
}

/* g, a gradient by act(x) * factor, becomes that by x. */
struct k_leaky_grad {
    const float *x, *more, *factor; /* as in unfold; of one item */
    float *g;
    float slope;
    int c;
};
KERNEL void k_leaky_grad_range(const struct k_leaky_grad *k, int64_t i0, int64_t i1)
{
    for (int64_t i = i0; i < i1; i++) {
        float x = k->x[i] + (k->more ? k->more[i] : 0.0f);
        k->g[i] *= k_leaky_slope(x, k->slope, k_factor_at(k->factor, i % k->c));
    }
}

/* ---- kernels of four steps as two blocks of two (net/halving.h) -------------------------------- */

/* framed (items, extent + 2, c) = act(x + more) * factor, and a border of 0. folded: its blocks of 2x2x2
 * voxels lie together, as channels of one: (items, extent / 2 + 1, 8, c). */
struct k_frame {
    const float *x, *more, *factor; /* (items, extent, c); (items, c); the last two may be NULL */
    void *framed;
    int bf16, folded;
    int extent[3], c;
    float slope;
};

/* Where voxel number `voxel` of what is framed lies. */
KERNEL void k_framed_place(const struct k_frame *k, int64_t voxel, int64_t *item, int at[3])
{
    int size[3], s;
    if (!k->folded) {
        for (int a = 0; a < 3; a++)
            size[a] = k->extent[a] + 2;
        k_place(voxel, size, item, at);
        return;
    }
    for (int a = 0; a < 3; a++)
        size[a] = k->extent[a] / 2 + 1;
    k_place(k_divide(voxel, 8, &s), size, item, at);
    for (int a = 0; a < 3; a++)
        at[a] = 2 * at[a] + (s >> (2 - a) & 1);
}

/* The number of what lies there. */
KERNEL int64_t k_framed_number(const struct k_frame *k, int64_t item, int z, int y, int x)
{
    const int framed[3] = {k->extent[0] + 2, k->extent[1] + 2, k->extent[2] + 2};
    const int blocks[3] = {framed[0] / 2, framed[1] / 2, framed[2] / 2};
    if (!k->folded)
        return k_number(item, framed, z, y, x);
    return k_number(item, blocks, z / 2, y / 2, x / 2) * 8 + z % 2 * 4 + y % 2 * 2 + x % 2;
}

KERNEL void k_frame_range(const struct k_frame *k, int64_t i0, int64_t i1)
{
    const int c = k->c;
    float v[K_ROW];
    for (int64_t i = i0; i < i1;) {
        struct k_row r = k_row_at(i, i1, c);
        int at[3];
        int64_t item;
        k_framed_place(k, r.voxel, &item, at);
        const int64_t from = k_number(item, k->extent, at[0] - 1, at[1] - 1, at[2] - 1);
        k_leaky_row(v, k->x, k->more, k->factor ? k->factor + item * c + r.first : NULL, k->slope,
                    from < 0 ? -1 : from * c + r.first, r.width);
        k_put_row(k->framed, k->bf16, r.voxel * c + r.first, v, r.width);
        i = r.next;
    }
}

/* dx = the gradient of that, through act and factor. */
struct k_frame_grad {
    struct k_frame of; /* framed: its gradient */
    float *dx;
};
KERNEL void k_frame_grad_range(const struct k_frame_grad *g, int64_t i0, int64_t i1)
{
    const struct k_frame *k = &g->of;
    const int c = k->c;
    float d[K_ROW], x[K_ROW];
    for (int64_t i = i0; i < i1;) {
        struct k_row r = k_row_at(i, i1, c);
        int at[3];
        int64_t item, to = r.voxel * c + r.first;
        k_place(r.voxel, k->extent, &item, at);
        const int64_t from = k_framed_number(k, item, at[0] + 1, at[1] + 1, at[2] + 1);
        const float *factor = k->factor ? k->factor + item * c + r.first : NULL;
        k_get_row(d, k->framed, k->bf16, from * c + r.first, r.width);
        k_sum_row(x, k->x, k->more, to, r.width);
        EACH_CHANNEL (j, r.width)
            d[j] *= k_leaky_slope(x[j], k->slope, k_factor_at(factor, j));
        k_put_row(g->dx, 0, to, d, r.width);
        i = r.next;
    }
}

/* y (items, out, c) = bias + what the blocks of a voxel say: the eight that it meets, each with a part for
 * every place it may have, or its first alone; parts (items, out + 1, 8 or 1, c). */
struct k_join {
    const float *parts, *bias;
    float *y;
    int out[3], each, c; /* each: 8 or 1 */
};
KERNEL void k_join_range(const struct k_join *k, int64_t i0, int64_t i1)
{
    const int blocks[3] = {k->out[0] + 1, k->out[1] + 1, k->out[2] + 1}, c = k->c;
    float sum[K_ROW], part[K_ROW];
    for (int64_t i = i0; i < i1;) {
        struct k_row r = k_row_at(i, i1, c);
        int at[3];
        int64_t item;
        k_place(r.voxel, k->out, &item, at);
        k_get_row(sum, k->bias, 0, r.first, r.width);
        for (int s = 0; s < k->each; s++) {
            int64_t block = k_number(item, blocks, at[0] + s / 4, at[1] + s / 2 % 2, at[2] + s % 2);
            k_get_row(part, k->parts, 0, (block * k->each + s) * c + r.first, r.width);
            EACH_CHANNEL (j, r.width)
                sum[j] += part[j];
        }
        k_put_row(k->y, 0, r.voxel * c + r.first, sum, r.width);
        i = r.next;
    }
}

/* Its transpose: dparts from dy. */
struct k_spread {
    const float *dy;
    void *dparts;
    int bf16;
    int out[3], each, c;
};
KERNEL void k_spread_range(const struct k_spread *k, int64_t i0, int64_t i1)
{
    const int blocks[3] = {k->out[0] + 1, k->out[1] + 1, k->out[2] + 1}, c = k->c;
    float v[K_ROW];
    for (int64_t i = i0; i < i1;) {
        struct k_row r = k_row_at(i, i1, c); /* a part is a voxel of its own here */
        int at[3], s;
        int64_t item;
        k_place(k_divide(r.voxel, k->each, &s), blocks, &item, at);
        const int64_t from = k_number(item, k->out, at[0] - s / 4, at[1] - s / 2 % 2, at[2] - s % 2);
        EACH_CHANNEL (j, r.width)
            v[j] = 0;
        if (from >= 0)
            k_get_row(v, k->dy, 0, from * c + r.first, r.width);
        k_put_row(k->dparts, k->bf16, r.voxel * c + r.first, v, r.width);
        i = r.next;
    }
}

/* A weight (4, 4, 4, in, out) as that of a CONV_DOWN, (2, 2, 2, in, 8, out), or folded, of a CONV_3,
 * (3, 3, 3, 8, in, out), of which only places 1 and 2 along each axis are written; back: the other way, added
 * unless it is fresh. An index is an element of the first. */
struct k_halve_weight {
    const float *from;
    float *to;
    int c_in, c_out, folded, back, fresh;
};
KERNEL void k_halve_weight_range(const struct k_halve_weight *k, int64_t i0, int64_t i1)
{
    for (int64_t i = i0; i < i1; i++) {
        const int64_t out = i % k->c_out, in = i / k->c_out % k->c_in, tap = i / k->c_out / k->c_in;
        const int64_t z = tap / 16, y = tap / 4 % 4, x = tap % 4;
        const int64_t within = z % 2 * 4 + y % 2 * 2 + x % 2, block = z / 2 * 4 + y / 2 * 2 + x / 2;
        const int64_t three = (1 + z / 2) * 9 + (1 + y / 2) * 3 + 1 + x / 2;
        const int64_t row =
            k->folded ? (three * 8 + within) * k->c_in + in : (within * k->c_in + in) * 8 + block;
        const int64_t other = row * k->c_out + out;
        if (!k->back)
            k->to[other] = k->from[i];
        else
            k->to[i] = k->from[other] + (k->fresh ? 0.0f : k->to[i]);
    }
}

/* ---- means ----------------------------------------------------------------------------------- */

/* mean (groups, c) of act(x) over voxels. A group is an item, or, with several columns, the voxels of an
 * item that have the same place along the last axis. */
struct k_pool {
    const float *x; /* (items, voxels, columns, c) */
    float *mean;    /* (items, columns, c) */
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

/* clang-format off */
#define KERNELS_STRIDED(X) X(unfold) X(unfold_grad) X(leaky_grad) X(frame) X(frame_grad) X(join) X(spread) \
    X(halve_weight) X(pool) X(pool_grad)
/* clang-format on */

#endif
