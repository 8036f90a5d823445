/* aua_contrast.c - the boundary-aware contrast of AUA's first stage: which voxels it compares, the head that
 * projects their features, and the gradients back into the network. See aua.c.
 */
#include "method/aua.h"

#include <string.h>

/* Memory of the released code's scrambling; its points are those of the item at hand. */
static int scramble_begin(struct trainer *t, size_t voxels, struct error *e)
{
    struct aua *a = t->method_state;
    struct scramble *s = &a->scramble;
    size_t cap = (size_t)t->set->bcl_cap, places = (size_t)a->room * 16;
    s->row_voxels = mem_alloc(e, cap, sizeof *s->row_voxels);
    s->row_rank = mem_alloc(e, cap, sizeof *s->row_rank);
    s->of_rank = mem_alloc(e, voxels, sizeof *s->of_rank);
    s->place = mem_alloc(e, places, sizeof *s->place);
    a->place_dev = t->dev->ops->alloc(t->dev, (size_t)t->n_labeled * places * sizeof *a->place_dev);
    if (!s->row_voxels || !s->row_rank || !s->of_rank || !s->place)
        return -1;
    return a->place_dev ? 0 : device_check(t->dev, e);
}

/* Lists of points and rows, on the host and on the device. */
static int points_begin(struct trainer *t, size_t voxels, struct error *e)
{
    struct aua *a = t->method_state;
    size_t items = (size_t)t->n_labeled, cap = (size_t)t->set->bcl_cap, room = (size_t)a->room;
    a->points = mem_alloc(e, items * room, sizeof *a->points);
    a->row_label = mem_alloc(e, items * cap, 1);
    a->n_points = mem_alloc(e, items, sizeof *a->n_points);
    a->n_rows = mem_alloc(e, items, sizeof *a->n_rows);
    a->bcl = mem_alloc(e, items, sizeof *a->bcl);
    a->near = mem_alloc(e, voxels, 1);
    if (!a->points || !a->row_label || !a->n_points || !a->n_rows || !a->bcl || !a->near)
        return -1;
    a->points_dev = t->dev->ops->alloc(t->dev, items * room * sizeof *a->points);
    a->label_dev = t->dev->ops->alloc(t->dev, items * cap);
    return a->points_dev && a->label_dev ? 0 : device_check(t->dev, e);
}

int aua_contrast_begin(struct trainer *t, struct model *student, struct error *e)
{
    struct aua *a = t->method_state;
    const struct settings *s = t->set;
    int64_t voxels = s->patch[0] * s->patch[1] * s->patch[2];
    struct net_definition def = student->def;
    int at_once = s->head_norm ? 1 : t->n_labeled; /* its statistics are those of one item */
    a->room = s->bcl_layout == BCL_OFFICIAL ? scramble_room(voxels, (int)s->bcl_cap) : (int)s->bcl_cap;
    struct net_shape shape = {
        .n = at_once, .d = 1, .h = 1, .w = a->room, .use = NET_TRAINING, .input_grad = 1};
    def.define = projection_define;
    if (points_begin(t, (size_t)voxels, e) < 0 ||
        (s->bcl_layout == BCL_OFFICIAL && scramble_begin(t, (size_t)voxels, e) < 0))
        return -1;
    a->points_in = (struct tensor){.type = VALUE_F32, .n = at_once, .d = 1, .h = 1, .w = a->room, .c = 16};
    a->point_grads = a->points_in;
    a->point_grads.n = t->n_labeled;
    if (part_alloc(t, &a->points_in, e) < 0 || part_alloc(t, &a->point_grads, e) < 0)
        return -1;
    return net_new(&a->projection, student->params, &def, &shape, e);
}

/* Points and rows of one item: a point is projected, a row is compared. Each point is a row of its own, but
 * in the released code's layout. */
static void choose_item(struct trainer *t, int item, const uint8_t *label)
{
    struct aua *a = t->method_state;
    const struct settings *s = t->set;
    int64_t *points = a->points + (int64_t)item * a->room, *row_voxels = points;
    int64_t voxels = tensor_voxels(&t->label) / t->label.n;
    struct boundary b = {.label = label,
                         .dims = t->batch->dims,
                         .rule = s->nb_rule,
                         .cap = (int)s->bcl_cap,
                         .seed = (uint64_t)s->seed,
                         .step = t->draw,
                         .item = (uint32_t)item,
                         .near = a->near};
    if (a->place_dev) {
        struct scramble *sc = &a->scramble;
        sc->points = points;
        boundary_scramble(sc, &b, t->dev->pool);
        a->n_rows[item] = sc->n_rows;
        a->n_points[item] = sc->n_points;
        row_voxels = sc->row_voxels;
        t->dev->ops->upload(t->dev, a->place_dev + (int64_t)item * a->room * 16, sc->place,
                            (size_t)sc->n_points * 16 * sizeof *sc->place);
    } else
        a->n_rows[item] = a->n_points[item] = boundary_points(points, &b, t->dev->pool);
    int count = a->n_points[item];
    for (int i = 0; i < a->n_rows[item]; i++)
        a->row_label[item * s->bcl_cap + i] = label[row_voxels[i]];
    for (int i = 0; i < a->room; i++)
        points[i] = i < count ? points[i] + item * voxels : count > 0 ? points[i - count] : item * voxels;
}

/* The voxels that the contrast of this step compares. Work of the host, for which the device need not
 * wait. */
static void choose_points(struct trainer *t)
{
    struct aua *a = t->method_state;
    size_t items = (size_t)t->n_labeled;
    int64_t voxels = tensor_voxels(&t->label) / t->label.n;
    for (int item = 0; item < t->n_labeled; item++)
        choose_item(t, item, t->label_host + item * voxels);
    t->dev->ops->upload(t->dev, a->points_dev, a->points, items * (size_t)a->room * sizeof *a->points);
    t->dev->ops->upload(t->dev, a->label_dev, a->row_label, items * (size_t)t->set->bcl_cap);
}

/* What the loss of an item compares, given its projections. */
static struct contrast_points points_of(const struct trainer *t, int item, const struct tensor *g)
{
    const struct aua *a = t->method_state;
    return (struct contrast_points){.g = g->data,
                                    .label = a->label_dev + item * t->set->bcl_cap,
                                    .count = a->n_rows[item],
                                    .dims = g->c,
                                    .tau = t->set->bcl_tau,
                                    .reduce = t->set->bcl_reduce,
                                    .place =
                                        a->place_dev ? a->place_dev + (int64_t)item * a->room * 16 : NULL,
                                    .points = a->n_points[item]};
}

/* Contrast inside each of the n labelled items from `first` on, values when the losses are settled; 0 for one
 * without a boundary. Gradients go through the projection head's weights now; those of the features are left
 * in point_grads. */
static void contrast_items(struct trainer *t, struct model *student, int first, int n, double weight)
{
    struct aua *a = t->method_state;
    int room = a->room, norm = t->set->head_norm;
    struct tensor features = net_value(student->net, "features");
    gather_rows(t->dev, a->points_in.data, &features, a->points_dev + (int64_t)first * room, n * room);
    struct net_pass pass = {.mode = norm ? NET_TRAIN : NET_EVAL};
    net_forward(a->projection, &a->points_in, &pass);
    struct tensor g = net_value(a->projection, "projection"), dg = net_grad(a->projection, "projection");
    for (int i = 0; i < n; i++) {
        struct tensor own = tensor_items(&g, i, 1);
        struct contrast_points of = points_of(t, first + i, &own);
        ask_contrast(a->scratch, &of, weight, tensor_items(&dg, i, 1).data, &a->bcl[first + i]);
    }
    net_backward(a->projection);
    struct tensor dpoints = net_input_grad(a->projection);
    for (int i = 0; i < n; i++) { /* through the statistics of head_norm the repeats have gradients, too */
        int count = a->n_points[first + i];
        fold_rows(t->dev, tensor_items(&a->point_grads, first + i, 1).data, tensor_items(&dpoints, i, 1).data,
                  count, norm ? room : count, dpoints.c);
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
                            .most = a->room};
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
