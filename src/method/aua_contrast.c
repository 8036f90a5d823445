/* aua_contrast.c - the boundary-aware contrast of AUA's first stage: which voxels it compares, the head that
 * projects their features, and the gradients back into the network. See aua.c.
 */
#include "method/aua.h"

#include <string.h>

int aua_contrast_begin(struct trainer *t, struct model *student, struct error *e)
{
    struct aua *a = t->method_state;
    const struct settings *s = t->set;
    size_t cap = (size_t)s->bcl_cap, voxels = (size_t)(s->patch[0] * s->patch[1] * s->patch[2]);
    size_t items = (size_t)t->n_labeled;
    struct net_definition def = student->def;
    int at_once = s->head_norm ? 1 : t->n_labeled; /* its statistics are those of one item */
    struct net_shape shape = {
        .n = at_once, .d = 1, .h = 1, .w = (int)cap, .use = NET_TRAINING, .input_grad = 1};
    def.define = projection_define;
    a->points = mem_alloc(e, items * cap, sizeof *a->points);
    a->point_label = mem_alloc(e, items * cap, 1);
    a->n_points = mem_alloc(e, items, sizeof *a->n_points);
    a->bcl = mem_alloc(e, items, sizeof *a->bcl);
    a->near = mem_alloc(e, voxels, 1);
    if (!a->points || !a->point_label || !a->n_points || !a->bcl || !a->near)
        return -1;
    a->points_dev = t->dev->ops->alloc(t->dev, items * cap * sizeof *a->points);
    a->label_dev = t->dev->ops->alloc(t->dev, items * cap);
    if (!a->points_dev || !a->label_dev)
        return device_check(t->dev, e);
    a->points_in = (struct tensor){.type = VALUE_F32, .n = at_once, .d = 1, .h = 1, .w = (int)cap, .c = 16};
    a->point_grads = a->points_in;
    a->point_grads.n = t->n_labeled;
    if (part_alloc(t, &a->points_in, e) < 0 || part_alloc(t, &a->point_grads, e) < 0)
        return -1;
    return net_new(&a->projection, student->params, &def, &shape, e);
}

/* The voxels that the contrast of this step compares. Work of the host, for which the device need not
 * wait. */
static void choose_points(struct trainer *t)
{
    struct aua *a = t->method_state;
    const struct settings *s = t->set;
    const int *dims = t->batch->dims;
    int64_t voxels = (int64_t)dims[0] * dims[1] * dims[2], cap = s->bcl_cap;
    for (int item = 0; item < t->n_labeled; item++) {
        const uint8_t *label = t->label_host + item * voxels;
        int64_t *points = a->points + item * cap;
        struct boundary b = {.label = label,
                             .dims = dims,
                             .rule = s->nb_rule,
                             .cap = (int)cap,
                             .seed = (uint64_t)s->seed,
                             .step = t->draw,
                             .item = (uint32_t)item,
                             .near = a->near};
        int count = boundary_points(points, &b, t->dev->pool);
        a->n_points[item] = count;
        for (int i = 0; i < count; i++) {
            a->point_label[item * cap + i] = label[points[i]];
            points[i] += item * voxels;
        }
        for (int64_t i = count; i < cap; i++)
            points[i] = count > 0 ? points[i - count] : item * voxels;
    }
    t->dev->ops->upload(t->dev, a->points_dev, a->points, (size_t)(t->n_labeled * cap) * sizeof *a->points);
    t->dev->ops->upload(t->dev, a->label_dev, a->point_label, (size_t)(t->n_labeled * cap));
}

/* Contrast inside each of the n labelled items from `first` on, values when the losses are settled; 0 for one
 * without a boundary. Gradients go through the projection head's weights now; those of the features are left
 * in point_grads. */
static void contrast_items(struct trainer *t, struct model *student, int first, int n, double weight)
{
    struct aua *a = t->method_state;
    const struct settings *s = t->set;
    int cap = (int)s->bcl_cap;
    struct tensor features = net_value(student->net, "features");
    gather_rows(t->dev, a->points_in.data, &features, a->points_dev + (int64_t)first * cap, n * cap);
    struct net_pass pass = {.mode = s->head_norm ? NET_TRAIN : NET_EVAL};
    net_forward(a->projection, &a->points_in, &pass);
    struct tensor g = net_value(a->projection, "projection"), dg = net_grad(a->projection, "projection");
    for (int i = 0; i < n; i++) {
        struct contrast_points of = {.g = tensor_items(&g, i, 1).data,
                                     .label = a->label_dev + (int64_t)(first + i) * cap,
                                     .count = a->n_points[first + i],
                                     .dims = g.c,
                                     .tau = s->bcl_tau,
                                     .layout = s->bcl_layout,
                                     .reduce = s->bcl_reduce};
        ask_contrast(a->scratch, &of, weight, tensor_items(&dg, i, 1).data, &a->bcl[first + i]);
    }
    net_backward(a->projection);
    struct tensor dpoints = net_input_grad(a->projection);
    for (int i = 0; i < n; i++) { /* through the statistics of head_norm the repeats have gradients, too */
        int count = a->n_points[first + i];
        fold_rows(t->dev, tensor_items(&a->point_grads, first + i, 1).data, tensor_items(&dpoints, i, 1).data,
                  count, s->head_norm ? cap : count, dpoints.c);
    }
}

int aua_contrast(struct trainer *t, struct model *student, double weight)
{
    struct aua *a = t->method_state;
    int with = 0, at_once = a->points_in.n;
    choose_points(t);
    for (int i = 0; i < t->n_labeled; i++)
        with += a->n_points[i] > 0;
    for (int i = 0; i < t->n_labeled; i += at_once) {
        int points = 0;
        for (int k = i; k < i + at_once; k++)
            points += a->n_points[k];
        if (points > 0)
            contrast_items(t, student, i, at_once, weight / with);
        else
            memset(a->bcl + i, 0, (size_t)at_once * sizeof *a->bcl);
    }
    struct net_rows rows = {.at = a->points_dev,
                            .rows = a->point_grads.data,
                            .count = a->n_points,
                            .items = t->n_labeled,
                            .most = (int)t->set->bcl_cap};
    net_grad_rows(student->net, "features", &rows);
    return with;
}

double aua_contrast_mean(const struct trainer *t, int with)
{
    const struct aua *a = t->method_state;
    double sum = 0.0;
    for (int i = 0; i < t->n_labeled && with; i++)
        sum += a->bcl[i];
    return with ? sum / with : 0.0;
}
