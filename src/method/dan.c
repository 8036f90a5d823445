/* dan.c - deep adversarial network (Zhang, Yang, Chen, Fredericksen, Hughes, Chen: MICCAI 2017), as the
 * common benchmark for 3D scans has it: a critic tries to tell masks of labelled patches from those of
 * unlabelled ones, and the network tries to make all of them look labelled.
 *
 *     turn 1, network: (cross-entropy + Dice over all classes) / 2        on labelled patches
 *                    + w(t) * CE(critic(softmax, image), labelled)        on unlabelled ones
 *     turn 2, critic:  CE(critic(softmax, image), labelled or not)        on all, as the network is tested
 */
#include "method/parts.h"

struct dan {
    struct semi semi;
    struct adversary adversary;
};

static void dan_done(struct trainer *t)
{
    struct dan *m = t->method_state;
    semi_done(&m->semi);
    adversary_done(t, &m->adversary);
}

static int begin(struct trainer *t, struct error *e)
{
    struct dan *m = t->method_state;
    struct semi_shape shape = {.student = t->n_labeled + t->n_unlabeled, .dice_background = 1};
    if (semi_begin(t, &m->semi, &shape, e) < 0)
        return -1;
    return adversary_begin(t, &m->adversary, t->store->n_classes, e);
}

static void student_turn(struct trainer *t)
{
    struct dan *m = t->method_state;
    int l = t->n_labeled, u = t->n_unlabeled;
    double w = semi_weight(t), value;
    semi_student(t, &m->semi, &t->image);
    struct tensor z = tensor_items(&m->semi.logits, l, u), dz = tensor_items(&m->semi.dlogits, l, u);
    struct tensor map = tensor_items(&m->adversary.map, l, u);
    soft_labels(t->dev, &map, &z, 1.0, SOFT_SET);
    struct tensor dmap = adversary_fool(t, &m->adversary, w, &value);
    soft_labels_grad(t->dev, &dz, &map, &dmap);
    semi_learn(t, &m->semi, "adversarial", &value, w);
}

static void critic_turn(struct trainer *t)
{
    struct dan *m = t->method_state;
    struct tensor logits = semi_tested(t, "logits");
    soft_labels(t->dev, &m->adversary.map, &logits, 1.0, SOFT_SET);
    adversary_learn(t, &m->adversary);
}

const struct method method_dan = {
    .name = "dan",
    .paper = "Zhang et al., MICCAI 2017",
    .consistency = 0.1,
    .published = PUBLISHED_SSL4MIS("30000", "0.01", "96"),
    .check = adversary_check,
    .state_bytes = sizeof(struct dan),
    .done = dan_done,
    .phases = {{.name = "train",
                .share = 1.0,
                .begin = begin,
                .turns = {{student_turn, "student"}, {critic_turn, "critic"}}}},
};
