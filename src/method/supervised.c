/* supervised.c - the baseline: a V-Net on the labelled patches alone.
 *
 *     loss = (cross-entropy + Dice) / 2
 *
 * As published for the Left Atrium by Yu et al. (MICCAI 2019), whose V-Net is the lower and, with
 * all labels, the upper bound of every comparison.
 */
#include <string.h>

#include "method/parts.h"

struct supervised {
    struct loss_scratch *scratch;
};

static void supervised_done(struct trainer *t)
{
    struct supervised *s = t->method_state;
    loss_scratch_free(s->scratch);
    memset(s, 0, sizeof *s);
}

static int begin(struct trainer *t, struct error *e)
{
    struct supervised *s = t->method_state;
    struct loss_options o = {.classes = t->store->n_classes, .dice_share = t->set->dice_share};
    struct net_definition def = part_definition(t);
    if (!trainer_model(t, "model", &def, t->n_labeled, NET_TRAINING, 1, e))
        return -1;
    part_target(t, "model");
    return loss_scratch_new(&s->scratch, t->dev, &o, e);
}

static void gradients(struct trainer *t)
{
    struct supervised *s = t->method_state;
    part_learn_labels(t, "model", s->scratch);
}

const struct method method_supervised = {
    .name = "supervised",
    .paper = "Milletari et al., 3DV 2016",
    .published = PUBLISHED_LA("6000", "step", "4"), /* UA-MT, train_LA.py: all four are labelled */
    .state_bytes = sizeof(struct supervised),
    .done = supervised_done,
    .phases = {{.name = "train",
                .share = 1.0,
                .batch = {.labeled_only = 1},
                .begin = begin,
                .turns = {{gradients, "model"}}}},
};
