/* adapt.c - batch norm by statistics of the scan at hand.
 *
 *     a few windows of the scan -> means and variances of every layer, averaged
 *     batch norm goes half-way from those of training to these, for this scan
 *
 * Scans whose intensities are unlike those of training gain most. Windows are measured one at a time, so that
 * the batch does not matter. Both constants were chosen on scans of the
 * Left Atrium's development split.
 */
#include "predict/predict_int.h"

enum { WINDOWS = 4 };
static const float OWN_SHARE = 0.5f;

int statistics_keep(struct predictor *p, struct error *e)
{
    for (int i = 0; i < 2 && p->o.adapt; i++) {
        const struct params *of = p->model[i].params;
        if (!of || (i == 1 && of == p->model[0].params))
            continue;
        size_t n = (size_t)params_buffer_count(of);
        p->trained[i] = mem_alloc(e, n, sizeof(float));
        p->own[i] = mem_alloc(e, n, sizeof(float));
        if (!p->trained[i] || !p->own[i])
            return -1;
        p->dev->ops->download(p->dev, p->trained[i], of->value + of->trainable_count, n * sizeof(float));
    }
    return device_check(p->dev, e);
}

static void set_statistics(struct predictor *p, float *const values[2])
{
    for (int i = 0; i < 2; i++) {
        struct params *of = p->model[i].params;
        if (!values[i])
            continue;
        p->dev->ops->upload(p->dev, of->value + of->trainable_count, values[i],
                            (size_t)params_buffer_count(of) * sizeof(float));
        of->version++;
    }
}

void statistics_adapt(struct walk *w)
{
    /* along every axis one window in each quarter, in another order, so that they do not lie on a line */
    static const int quarter[3][WINDOWS] = {{0, 1, 2, 3}, {1, 3, 0, 2}, {2, 0, 3, 1}}, upright[3] = {0, 0, 0};
    struct predictor *p = w->p;
    struct tensor x = tensor_items(&p->input, 0, 1);
    for (int k = 0; k < WINDOWS; k++) {
        struct net_pass pass = {.mode = NET_MEASURE, .measured = k};
        int first[3];
        for (int a = 0; a < 3; a++)
            first[a] = walk_start(w, a, (2 * quarter[a][k] + 1) * w->n[a] / (2 * WINDOWS));
        walk_load(w, first[0]);
        walk_cut(w, 0, first, upright);
        for (int i = 0; i < 2; i++)
            if (p->own[i])
                net_forward(p->net[i], &x, &pass);
    }
    for (int i = 0; i < 2; i++) {
        const struct params *of = p->model[i].params;
        float *own = p->own[i];
        size_t n = own ? (size_t)params_buffer_count(of) : 0;
        if (own)
            p->dev->ops->download(p->dev, own, of->value + of->trainable_count, n * sizeof(float));
        for (size_t k = 0; k < n; k++)
            own[k] = OWN_SHARE * own[k] + (1.0f - OWN_SHARE) * p->trained[i][k];
    }
    set_statistics(p, p->own);
}

void statistics_restore(struct predictor *p)
{
    set_statistics(p, p->trained);
}

void statistics_forget(struct predictor *p)
{
    for (int i = 0; i < 2; i++) {
        mem_free(p->trained[i]);
        mem_free(p->own[i]);
    }
}
