/* twin.c - what methods share whose networks have a second head for signed distances: the maps of the labels,
 * and their part of the loss. See parts.h.
 *
 *     label --sdf.h--> target
 *     student --> logits, distance       label loss on the first, distances on the second
 */
#include <string.h>

#include "method/parts.h"

int twin_begin(struct trainer *t, struct twin *w, const struct semi_shape *shape, double share,
               struct error *e)
{
    const int dims[3] = {t->image.d, t->image.h, t->image.w};
    struct semi_shape own = *shape;
    own.define = shape->define ? shape->define : sdf_define;
    w->share = share;
    if (semi_begin(t, &w->semi, &own, e) < 0 ||
        part_make(t, &w->target, t->n_labeled, t->store->n_classes - 1, VALUE_F32, e) < 0)
        return -1;
    return sdf_new(&w->maps, t->dev, dims, e);
}

void twin_done(struct trainer *t, struct twin *w)
{
    semi_done(&w->semi);
    sdf_free(w->maps);
    part_free(t, &w->target);
    memset(w, 0, sizeof *w);
}

void twin_student(struct trainer *t, struct twin *w)
{
    struct net *net = trainer_find(t, "student")->net;
    const struct tensor *target = &w->target;
    semi_student(t, &w->semi, &t->image);
    w->raw = net_value(net, "distance");
    w->draw = net_grad(net, "distance");
    sdf_maps(target, w->maps, &t->label);
    struct tensor raw = tensor_items(&w->raw, 0, target->n), draw = tensor_items(&w->draw, 0, target->n);
    ask_distance(w->semi.scratch, &raw, target, w->share, &draw, &w->apart);
}

void twin_learn(struct trainer *t, struct twin *w, const char *name, const double *term, double weight)
{
    loss_settle(w->semi.scratch);
    w->semi.supervised += w->share * w->apart;
    semi_learn(t, &w->semi, name, term, weight);
    note(t, "distance", w->apart);
}
