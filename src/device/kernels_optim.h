/* kernels_optim.h - what happens to weights after the gradient. Part of kernels.h; see there for
 * the form of a body.
 *
 * These loops do next to no arithmetic; their cost is the memory they touch. Bytes a weight:
 *
 *     square_sum   reads g                              4    norm of the gradient
 *     sgd          reads w, m, g; writes w, m          20    update
 *     adam         the same with a second moment       28
 *     ema          reads t, s; writes t                12    averaged teacher
 *
 * so that a step of a network with 9.4 million weights moves 0.34 GB and nothing twice. All are
 * element by element, without fused products: the same bits on every level of the processor.
 *
 * Where weights are packed in the same pass (conv.h), a range is a few pages long and then something else
 * happens: what the next range needs is asked for ahead of time.
 */
#ifndef FALX_KERNELS_OPTIM_H
#define FALX_KERNELS_OPTIM_H

#include "device/kernels_math.h"

/* Asks for what lies a page behind a chunk of numbers. */
KERNEL void k_ahead(const float *x)
{
#ifdef __CUDA_ARCH__
    (void)x;
#else
    for (int j = 0; j < K_LANES; j += 16)
        __builtin_prefetch((const void *)((uintptr_t)(x + j) + 4096));
#endif
}

/* d = factor g + decay w;  m = momentum m + d;  w -= rate m. A moment of zeros makes the
 * first one the gradient. */
struct k_sgd {
    float *w, *m;
    const float *g;
    float rate, momentum, decay, factor;
};
KERNEL void k_sgd_range(const struct k_sgd *k, int64_t i0, int64_t i1)
{
    float *__restrict__ w = k->w, *__restrict__ m = k->m;
    const float *__restrict__ g = k->g;
    float rate = k->rate, momentum = k->momentum, decay = k->decay, factor = k->factor;
    EACH_CHUNK (c, n, i0, i1) {
        k_ahead(w + c);
        k_ahead(m + c);
        k_ahead(g + c);
        for (int64_t i = c; i < c + n; i++) {
            float d = factor * g[i] + decay * w[i];
            float moment = momentum * m[i] + d;
            m[i] = moment;
            w[i] = w[i] - rate * moment;
        }
    }
}

/* d = factor g + decay w;  m = beta1 m + (1 - beta1) d;  v = beta2 v + (1 - beta2) d d;
 * w -= rate m / (sqrt(v) * scale + epsilon). Bias corrections are in rate and scale. */
struct k_adam {
    float *w, *m, *v;
    const float *g;
    float rate, beta1, beta2, scale, epsilon, decay, factor;
};
KERNEL void k_adam_range(const struct k_adam *k, int64_t i0, int64_t i1)
{
    float *__restrict__ w = k->w, *__restrict__ m = k->m, *__restrict__ v = k->v;
    const float *__restrict__ g = k->g;
    float rate = k->rate, beta1 = k->beta1, beta2 = k->beta2, scale = k->scale;
    float epsilon = k->epsilon, decay = k->decay, factor = k->factor;
    EACH_CHUNK (c, n, i0, i1) {
        k_ahead(w + c);
        k_ahead(m + c);
        k_ahead(v + c);
        k_ahead(g + c);
        for (int64_t i = c; i < c + n; i++) {
            float d = factor * g[i] + decay * w[i];
            float first = beta1 * m[i] + (1.0f - beta1) * d;
            float second = beta2 * v[i] + (1.0f - beta2) * d * d;
            m[i] = first;
            v[i] = second;
            w[i] = w[i] - rate * first / (sqrtf(second) * scale + epsilon);
        }
    }
}

/* teacher = keep teacher + take student. */
struct k_ema {
    float *teacher;
    const float *student;
    float keep, take;
};
KERNEL void k_ema_range(const struct k_ema *k, int64_t i0, int64_t i1)
{
    float *__restrict__ teacher = k->teacher;
    const float *__restrict__ student = k->student;
    float keep = k->keep, take = k->take;
    EACH_CHUNK (c, n, i0, i1) {
        k_ahead(teacher + c);
        k_ahead(student + c);
        for (int64_t i = c; i < c + n; i++)
            teacher[i] = keep * teacher[i] + take * student[i];
    }
}

/* sum of x^2, lane by lane. */
struct r_square_sum {
    const float *x;
};
KERNEL void r_square_sum_range(const struct r_square_sum *k, int64_t i0, int64_t i1, float *sums)
{
    const float *__restrict__ x = k->x;
    float part[REDUCE_LANES] = {0}; /* in a register: the compiler cannot know that sums is not x */
    int64_t i = i0;
    for (; i + REDUCE_LANES <= i1; i += REDUCE_LANES)
        for (int j = 0; j < REDUCE_LANES; j++)
            part[j] += x[i + j] * x[i + j];
    for (int j = 0; i < i1; i++, j++)
        part[j] += x[i] * x[i];
    k_add_row(sums, 0, part);
}

#define KERNELS_OPTIM(X) X(sgd) X(adam) X(ema)
#define REDUCES_OPTIM(X) X(square_sum)

#endif
