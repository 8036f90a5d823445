/* branches.c - what methods share whose network has several outputs, its branches: the pass, the label loss
 * of each, and what is noted. See parts.h.
 */
#include <string.h>

#include "method/parts.h"

_Static_assert((int)LOSS_BRANCHES == (int)NET_BRANCHES, "networks have as many");

int branches_begin(struct trainer *t, struct branches *b, const struct branches_shape *shape, struct error *e)
{
    struct net_definition def = part_definition(t);
    struct loss_options o = {.classes = t->store->n_classes,
                             .dice_share = shape->dice_share,
                             .dice_background = shape->dice_background,
                             .dice_linear = shape->dice_linear};
    def.define = shape->define;
    b->of.n = shape->n;
    b->share = shape->share;
    struct model *m = trainer_model(t, "student", &def, t->n_labeled + t->n_unlabeled, NET_TRAINING, 1, e);
    if (!m)
        return -1;
    m->tested = part_definition(t);
    part_target(t, "student");
    return loss_scratch_new(&b->scratch, t->dev, &o, e);
}

void branches_done(struct branches *b)
{
    loss_scratch_free(b->scratch);
    memset(b, 0, sizeof *b);
}

void branches_student(struct trainer *t, struct branches *b)
{
    struct net *net = trainer_find(t, "student")->net;
    struct net_pass pass = part_pass(t, NET_TRAIN, 0);
    struct tensor label = tensor_items(&t->label, 0, t->n_labeled);
    net_forward(net, &t->image, &pass);
    for (int i = 0; i < b->of.n; i++) {
        b->of.logits[i] = net_value(net, net_logits[i]);
        b->of.dlogits[i] = net_grad(net, net_logits[i]);
        struct tensor z = tensor_items(&b->of.logits[i], 0, t->n_labeled);
        struct tensor dz = tensor_items(&b->of.dlogits[i], 0, t->n_labeled);
        ask_ce_dice(b->scratch, &z, &label, NULL, b->share, &dz, &b->loss[i], &b->ce[i], &b->dice[i]);
    }
}

struct loss_branches branches_open(const struct trainer *t, const struct branches *b)
{
    struct loss_branches open = {.n = b->of.n};
    for (int i = 0; i < open.n; i++) {
        open.logits[i] = tensor_items(&b->of.logits[i], t->n_labeled, t->n_unlabeled);
        open.dlogits[i] = tensor_items(&b->of.dlogits[i], t->n_labeled, t->n_unlabeled);
    }
    return open;
}

void branches_learn(struct trainer *t, struct branches *b, const double *term, double weight)
{
    double supervised = 0, ce = 0, dice = 0;
    loss_settle(b->scratch);
    net_backward(trainer_find(t, "student")->net);
    for (int i = 0; i < b->of.n; i++) {
        supervised += b->share * b->loss[i];
        ce += b->ce[i] / b->of.n;
        dice += b->dice[i] / b->of.n;
    }
    note(t, "loss", supervised + weight * *term);
    note(t, "supervised", supervised);
    note(t, "ce", ce);
    note(t, "dice", dice);
    note(t, "consistency", *term);
    note(t, "weight", weight);
}
