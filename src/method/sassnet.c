/* sassnet.c - shape-aware semi-supervised network (Li, Zhang, He: MICCAI 2020): a critic as in dan.c, which
 * looks at shapes, that is at the signed distances the network predicts, instead of masks.
 *
 *     turn 1, network: Dice + 0.3 * mean (tanh(distance) - sdf(label))^2      on labelled patches
 *                    + w(t) * CE(critic(tanh(distance), image), labelled)     on unlabelled ones
 *     turn 2, critic:  CE(critic(tanh(distance), image), labelled or not)     on all patches, as in dan.c
 *
 * Unlabelled patches reach the mask through the trunk that both heads share.
 */
#include "method/parts.h"

struct sassnet {
    struct twin twin;
    struct adversary adversary;
};

static void sassnet_done(struct trainer *t)
{
    struct sassnet *m = t->method_state;
    twin_done(t, &m->twin);
    adversary_done(t, &m->adversary);
}

static int begin(struct trainer *t, struct error *e)
{
    struct sassnet *m = t->method_state;
    struct semi_shape shape = {.student = t->n_labeled + t->n_unlabeled, .dice_alone = 1};
    if (twin_begin(t, &m->twin, &shape, 0.3, e) < 0)
        return -1;
    return adversary_begin(t, &m->adversary, t->store->n_classes - 1, e);
}

static void student_turn(struct trainer *t)
{
    struct sassnet *m = t->method_state;
    int l = t->n_labeled, u = t->n_unlabeled;
    double w = semi_weight(t), value;
    twin_student(t, &m->twin);
    struct tensor raw = tensor_items(&m->twin.raw, l, u), draw = tensor_items(&m->twin.draw, l, u);
    struct tensor map = tensor_items(&m->adversary.map, l, u);
    distances(t->dev, &map, &raw);
    struct tensor dmap = adversary_fool(t, &m->adversary, w, &value);
    distances_grad(t->dev, &draw, &map, &dmap);
    twin_learn(t, &m->twin, "adversarial", &value, w);
}

static void critic_turn(struct trainer *t)
{
    struct sassnet *m = t->method_state;
    struct tensor raw = semi_tested(t, "distance");
    distances(t->dev, &m->adversary.map, &raw);
    adversary_learn(t, &m->adversary);
}

const struct method method_sassnet = {
    .name = "sassnet",
    .paper = "Li, Zhang, He: MICCAI 2020",
    .consistency = 0.01, /* for 16 labelled cases; the authors take 0.015 for 8 */
    .published = PUBLISHED_LA("6000", "step", "4") PUBLISHED_RAMPUP_40,
    .check = adversary_check,
    .state_bytes = sizeof(struct sassnet),
    .done = sassnet_done,
    .phases = {{.name = "train",
                .share = 1.0,
                .begin = begin,
                .turns = {{student_turn, "student"}, {critic_turn, "critic"}}}},
};
