/* optim.c - updates, averages, schedules and ramps. See optim.h.
 *
 * The loops themselves are kernels_optim.h. Parameters lie one behind the other in memory, so those
 * that got a gradient form a few long runs (as a rule one), and each run is one call:
 *
 *     params   | conv.0.weight | conv.0.bias | ... | head.weight | head.bias |
 *     touched  |       1             1        1          0             1     |
 *     runs     |<----------------------------->|           |<--------------->|
 */
#include "train/optim.h"

#include <math.h>
#include <string.h>

#include "device/kernels.h"

int optim_new(struct optim **out, struct params *p, const struct optim_options *o, struct error *e)
{
    struct device *dev = p->dev;
    struct optim *m = mem_alloc(e, 1, sizeof *m);
    if (!m)
        return -1;
    m->o = *o;
    m->params = p;
    for (int i = 0; i < (o->kind == OPTIM_ADAM ? 2 : 1); i++)
        m->moment[i] = dev->ops->alloc(dev, (size_t)p->trainable_count * sizeof(float));
    if (device_check(dev, e) < 0) {
        optim_free(m);
        return -1;
    }
    *out = m;
    return 0;
}

void optim_free(struct optim *m)
{
    if (!m)
        return;
    struct device *dev = m->params->dev;
    dev->ops->free(dev, m->moment[0]);
    dev->ops->free(dev, m->moment[1]);
    mem_free(m);
}

/* ---- update ---------------------------------------------------------------------------------- */

/* The next run of touched parameters from *i on: its first number and its length, 0 at the end. */
static int64_t next_run(const struct params *p, int *i, int64_t *offset)
{
    while (*i < p->n_trainable && !p->touched[*i])
        (*i)++;
    if (*i == p->n_trainable)
        return 0;
    int64_t first = p->list[*i].offset, end = first;
    for (; *i < p->n_trainable && p->touched[*i]; (*i)++)
        end = p->list[*i].offset + p->list[*i].count;
    *offset = first;
    return end - first;
}

double optim_grad_norm(struct params *p)
{
    double sum = 0.0;
    int64_t at, n;
    for (int i = 0; (n = next_run(p, &i, &at)) > 0;) {
        double part = 0.0;
        REDUCE(p->dev, square_sum, n, 1, &part, .x = p->grad + at);
        sum += part;
    }
    return sqrt(sum);
}

/* 1e-6 in the denominator as in PyTorch's clip_grad_norm_. */
double optim_clip(double norm, double clip)
{
    return clip > 0 && norm > clip ? clip / (norm + 1e-6) : 1.0;
}

static void adam_run(struct optim *m, int64_t at, int64_t n, double rate, double factor)
{
    const struct optim_options *o = &m->o;
    double t = (double)m->updates; /* counts this one already */
    double correct1 = 1.0 - pow(o->momentum, t), correct2 = 1.0 - pow(o->beta2, t);
    struct k_adam k = {.w = m->params->value + at,
                       .m = m->moment[0] + at,
                       .v = m->moment[1] + at,
                       .g = m->params->grad + at,
                       .rate = (float)(rate / correct1),
                       .beta1 = (float)o->momentum,
                       .beta2 = (float)o->beta2,
                       .scale = (float)(1.0 / sqrt(correct2)),
                       .epsilon = (float)o->epsilon,
                       .decay = (float)o->weight_decay,
                       .factor = (float)factor};
    params_map(m->params, KERNEL_adam, &k, at, n);
}

static void sgd_run(struct optim *m, int64_t at, int64_t n, double rate, double factor)
{
    struct k_sgd k = {.w = m->params->value + at,
                      .m = m->moment[0] + at,
                      .g = m->params->grad + at,
                      .rate = (float)rate,
                      .momentum = (float)m->o.momentum,
                      .decay = (float)m->o.weight_decay,
                      .factor = (float)factor};
    params_map(m->params, KERNEL_sgd, &k, at, n);
}

void optim_step(struct optim *m, double rate, double factor)
{
    struct params *p = m->params;
    int64_t at, n;
    m->updates++;
    for (int i = 0; (n = next_run(p, &i, &at)) > 0;) {
        if (m->o.kind == OPTIM_ADAM)
            adam_run(m, at, n, rate, factor);
        else
            sgd_run(m, at, n, rate, factor);
    }
    memset(p->touched, 0, (size_t)p->n_trainable);
    params_mapped(p);
}

void ema_update(struct params *teacher, const struct params *student, int64_t t, double decay)
{
    double warm = 1.0 - 1.0 / ((double)t + 1.0), keep = warm < decay ? warm : decay;
    CHECK(teacher->trainable_count == student->trainable_count && keep >= 0.0 && keep <= 1.0);
    struct k_ema k = {.teacher = teacher->value,
                      .student = student->value,
                      .keep = (float)keep,
                      .take = (float)(1.0 - keep)};
    params_map(teacher, KERNEL_ema, &k, 0, teacher->trainable_count);
    params_mapped(teacher);
}

/* ---- schedules and ramps --------------------------------------------------------------------- */

double optim_rate(const struct optim_options *o, double t, double total)
{
    t = t < 0 ? 0 : t > total ? total : t;
    switch (o->schedule) {
    case SCHEDULE_STEP:
        return 12 * t >= 10 * total ? o->lr * 0.01 : 12 * t >= 5 * total ? o->lr * 0.1 : o->lr;
    case SCHEDULE_POLY: return o->lr * pow(1.0 - t / total, 0.9);
    case SCHEDULE_CONSTANT: break;
    }
    return o->lr;
}

double ramp_sigmoid(double c, double R)
{
    if (R <= 0)
        return 1.0;
    double x = 1.0 - (c < 0 ? 0 : c > R ? R : c) / R;
    return exp(-5.0 * x * x);
}

double ramp_weight(double top, double t, double total, int continuous)
{
    if (continuous)
        return top * ramp_sigmoid(t, total);
    double R = total / RAMP_STAIR;
    return top * ramp_sigmoid(floor(t / RAMP_STAIR), R < 1 ? 1 : R);
}
