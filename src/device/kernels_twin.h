/* kernels_twin.h - voxel loops of networks with a second head, whose tanh is a signed distance: negative
 * inside of an object, one map for every class but background. Part of kernels.h; see there for the form of
 * a body.
 *
 *     logits of the foreground (v, c - 1) --widen--> those of all classes, the first 0 --> softmax
 *     raw distance (v, c - 1) --tanh--> t --> smooth step sigma(-1500 t): 1 inside, 0 outside
 */
#ifndef FALX_KERNELS_TWIN_H
#define FALX_KERNELS_TWIN_H

#include "device/kernels_loss.h"

/* out (v, c + 1) = 0, then x (v, c). */
struct k_widen {
    const float *x;
    float *out;
    int c;
};
KERNEL void k_widen_range(const struct k_widen *k, int64_t i0, int64_t i1)
{
    const int c = k->c;
    for (int64_t i = i0; i < i1; i++) {
        k->out[i * (c + 1)] = 0;
        for (int j = 0; j < c; j++)
            k->out[i * (c + 1) + 1 + j] = k->x[i * c + j];
    }
}

/* out (v, c) = x (v, c + 1) without its first channel. */
struct k_narrow {
    const float *x;
    float *out;
    int c;
};
KERNEL void k_narrow_range(const struct k_narrow *k, int64_t i0, int64_t i1)
{
    const int c = k->c;
    for (int64_t i = i0; i < i1; i++)
        for (int j = 0; j < c; j++)
            k->out[i * c + j] = k->x[i * (c + 1) + 1 + j];
}

/* dlogits += dprob, a gradient by prob = softmax(logits), through softmax. */
struct k_softmax_grad {
    const float *prob, *dprob;
    float *dlogits;
    int classes;
};
KERNEL void k_softmax_grad_range(const struct k_softmax_grad *k, int64_t i0, int64_t i1)
{
    float p[KERNEL_CLASSES][K_LANES], g[KERNEL_CLASSES][K_LANES];
    const int classes = k->classes;
    EACH_CHUNK (i, n, i0, i1) {
        k_load(p, k->prob + i * classes, classes, classes, n);
        k_load(g, k->dprob + i * classes, classes, classes, n);
        k_through_softmax(g, p, classes);
        k_add_rows(k->dlogits + i * classes, g, classes, classes, n, 0);
    }
}

/* ---- distances ------------------------------------------------------------------------------- */

KERNEL float k_tanh(float x)
{
    float e = k_exp(-2.0f * fabsf(x)), t = (1.0f - e) / (1.0f + e);
    return x < 0 ? -t : t;
}

/* map = tanh(raw). */
struct k_tanh_map {
    const float *raw;
    float *map;
};
KERNEL void k_tanh_map_range(const struct k_tanh_map *k, int64_t i0, int64_t i1)
{
    for (int64_t i = i0; i < i1; i++)
        k->map[i] = k_tanh(k->raw[i]);
}

/* draw += dmap, a gradient by map = tanh(raw), through tanh. */
struct k_tanh_grad {
    const float *map, *dmap;
    float *draw;
};
KERNEL void k_tanh_grad_range(const struct k_tanh_grad *k, int64_t i0, int64_t i1)
{
    for (int64_t i = i0; i < i1; i++)
        k->draw[i] += k->dmap[i] * (1.0f - k->map[i] * k->map[i]);
}

/* Sum of (tanh(raw) - target)^2 over elements. */
struct r_distance {
    const float *raw, *target;
};
KERNEL void r_distance_range(const struct r_distance *k, int64_t i0, int64_t i1, float *sums)
{
    float x[1][K_LANES], y[1][K_LANES];
    EACH_CHUNK (i, n, i0, i1) {
        k_load(x, k->raw + i, 1, 1, n); /* zeros in lanes not in use: they differ by nothing */
        k_load(y, k->target + i, 1, 1, n);
        EACH_LANE (j)
            x[0][j] = k_tanh(x[0][j]) - y[0][j];
        k_add_product(sums, 0, x[0], x[0]);
    }
}

/* draw += scale * (t - target), through tanh. */
struct k_distance_grad {
    const float *raw, *target;
    float *draw;
    float scale;
};
KERNEL void k_distance_grad_range(const struct k_distance_grad *k, int64_t i0, int64_t i1)
{
    const float scale = k->scale;
    for (int64_t i = i0; i < i1; i++) {
        float t = k_tanh(k->raw[i]);
        k->draw[i] += scale * (t - k->target[i]) * (1.0f - t * t);
    }
}

/* ---- signed distances of labels ----------------------------------------------------------------
 *
 * Every voxel is on one of two sides, of the class or not. What is kept of it is the square of its distance
 * to the nearest one of the other side, negative inside; asked by a voxel of the other side, it is 0 steps
 * away. So three passes along the axes do for both at once. Squares are whole and below 2^24: exact floats.
 */
#define K_NO_SIDE 4096.0f /* steps to the other side where there is none; longer than any patch */

/* Along the last axis, in two sweeps of a row. An index is a row of n voxels. */
struct k_side_steps {
    const uint8_t *label;
    float *out;
    int n, of;
};
KERNEL void k_side_steps_range(const struct k_side_steps *k, int64_t i0, int64_t i1)
{
    for (int64_t i = i0; i < i1; i++) {
        const uint8_t *label = k->label + i * k->n;
        float *out = k->out + i * k->n, steps = K_NO_SIDE;
        for (int x = 0; x < k->n; x++) {
            int change = x > 0 && (label[x] == k->of) != (label[x - 1] == k->of);
            out[x] = steps = change ? 1.0f : k_min(steps + 1.0f, K_NO_SIDE);
        }
        steps = K_NO_SIDE;
        for (int x = k->n - 1; x >= 0; x--) {
            int inside = label[x] == k->of, change = x < k->n - 1 && inside != (label[x + 1] == k->of);
            steps = change ? 1.0f : k_min(steps + 1.0f, K_NO_SIDE);
            float nearest = k_min(steps, out[x]);
            out[x] = inside ? -nearest * nearest : nearest * nearest;
        }
    }
}

/* Along another axis, of n voxels so many apart: outwards, until nothing nearer is possible. Nothing is done
 * where one of the sides is empty. */
struct k_side_nearest {
    const float *from, *most_outside, *most_inside;
    float *to;
    int64_t apart;
    int n;
};
KERNEL void k_side_nearest_range(const struct k_side_nearest *k, int64_t i0, int64_t i1)
{
    float best[1][K_LANES], sign[K_LANES], x[1][K_LANES];
    int64_t n;
    if (*k->most_outside <= 0 || *k->most_inside <= 0)
        return;
    for (int64_t i = i0; i < i1; i += n) { /* a chunk is at one place of the axis */
        const int64_t left = k->apart - i % k->apart, rest = i1 - i < left ? i1 - i : left;
        const int before = (int)(i / k->apart % k->n), after = k->n - 1 - before;
        n = rest < K_LANES ? rest : K_LANES;
        k_load(best, k->from + i, 1, 1, n); /* zeros in lanes not in use: nothing is nearer */
        EACH_LANE (j)
            sign[j] = best[0][j] < 0 ? -1.0f : 1.0f;
        EACH_LANE (j)
            best[0][j] *= sign[j];
        for (int t = 1; t <= before || t <= after; t++) {
            const float square = (float)(t * t);
            int open = 0;
            EACH_LANE (j)
                open |= square < best[0][j];
            if (!open)
                break;
            for (int side = 0; side < 2; side++) {
                if (t > (side ? after : before))
                    continue;
                k_load(x, k->from + i + (side ? t : -t) * k->apart, 1, 1, n);
                EACH_LANE (j)
                    best[0][j] = k_min(best[0][j], k_max(sign[j] * x[0][j], 0.0f) + square);
            }
        }
        for (int64_t j = 0; j < n; j++)
            k->to[i + j] = sign[j] * best[0][j];
    }
}

/* The map of a class, one of c numbers of a voxel, from squares: each side by its own largest; 0 on the
 * outermost voxels inside, and all over if one side is empty. */
struct k_side_map {
    const float *square, *most_outside, *most_inside;
    float *out; /* that number of the first voxel */
    int c;
};
KERNEL void k_side_map_range(const struct k_side_map *k, int64_t i0, int64_t i1)
{
    const float far = *k->most_outside, deep = *k->most_inside;
    for (int64_t i = i0; i < i1; i++) {
        float x = far > 0 && deep > 0 ? k->square[i] : 0.0f;
        k->out[i * k->c] = x > 0 ? sqrtf(x) / sqrtf(far) : x < -1 ? -(sqrtf(-x) / sqrtf(deep)) : 0.0f;
    }
}

/* ---- two heads that agree -------------------------------------------------------------------- */

#define K_STEEP 1500.0f /* of the smooth step, as published */

/* p(c) = softmax of a chunk's logits, t(c) the distances of classes 1 and up, step(c) what they say. */
KERNEL void k_two_heads(float (*p)[K_LANES], float (*t)[K_LANES], float (*step)[K_LANES], const float *logits,
                        const float *raw, int classes, int64_t i, int64_t n)
{
    k_load(p, logits + i * classes, classes, classes, n);
    k_load(t + 1, raw + i * (classes - 1), classes - 1, classes - 1, n);
    k_softmax(p, classes);
    for (int c = 1; c < classes; c++) {
        EACH_LANE (j) {
            t[c][j] = k_tanh(t[c][j]);
            step[c][j] = 1.0f / (1.0f + k_exp(K_STEEP * t[c][j])); /* e^1500 is infinite: 0 */
        }
    }
}

/* Sum of (step(-t) - p)^2 over voxels and foreground classes. */
struct r_dual {
    const float *logits, *raw;
    int classes;
};
KERNEL void r_dual_range(const struct r_dual *k, int64_t i0, int64_t i1, float *sums)
{
    float p[KERNEL_CLASSES][K_LANES], t[KERNEL_CLASSES][K_LANES], m[KERNEL_CLASSES][K_LANES];
    float one[K_LANES], value[K_LANES];
    const int classes = k->classes;
    EACH_CHUNK (i, n, i0, i1) {
        k_two_heads(p, t, m, k->logits, k->raw, classes, i, n);
        k_load_weights(one, NULL, i, n); /* lanes not in use count 0 */
        EACH_LANE (j)
            value[j] = 0;
        for (int c = 1; c < classes; c++)
            EACH_LANE (j)
                value[j] += (m[c][j] - p[c][j]) * (m[c][j] - p[c][j]);
        k_add_product(sums, 0, value, one);
    }
}

/* dlogits += scale * (p - step), through softmax; draw += scale * (step - p), through step and tanh. */
struct k_dual_grad {
    const float *logits, *raw;
    float *dlogits, *draw;
    int classes;
    float scale;
};
KERNEL void k_dual_grad_range(const struct k_dual_grad *k, int64_t i0, int64_t i1)
{
    float p[KERNEL_CLASSES][K_LANES], t[KERNEL_CLASSES][K_LANES], m[KERNEL_CLASSES][K_LANES];
    const int classes = k->classes;
    const float scale = k->scale;
    EACH_CHUNK (i, n, i0, i1) {
        k_two_heads(p, t, m, k->logits, k->raw, classes, i, n);
        EACH_LANE (j)
            m[0][j] = 0;
        for (int c = 1; c < classes; c++) {
            EACH_LANE (j) {
                float g = scale * (m[c][j] - p[c][j]), slope = -K_STEEP * m[c][j] * (1.0f - m[c][j]);
                t[c][j] = g * slope * (1.0f - t[c][j] * t[c][j]);
                m[c][j] = -g;
            }
        }
        k_through_softmax(m, p, classes);
        k_add_rows(k->dlogits + i * classes, m, classes, classes, n, 0);
        k_add_rows(k->draw + i * (classes - 1), t + 1, classes - 1, classes - 1, n, 0);
    }
}

/* clang-format off */
#define KERNELS_TWIN(X) X(widen) X(narrow) X(softmax_grad) X(tanh_map) X(tanh_grad) X(distance_grad) \
    X(side_steps) X(side_nearest) X(side_map) X(dual_grad)
#define REDUCES_TWIN(X) X(distance) X(dual)
/* clang-format on */

#endif
