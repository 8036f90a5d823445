/* chaitanya.c - global and local contrastive pre-training (Chaitanya, Erdil, Karani, Konukoglu, NeurIPS
 * 2020). Three phases on the weights of one V-Net, the first two without any label:
 *
 *     global   crops from four parts of a scan: the encoder is to describe those of the same part, in another
 *              light or in another scan, alike, and those of other parts otherwise
 *     local    a patch in two lights: the decoder's first two blocks are to tell a region from its neighbours
 *              in both; the encoder stays as it is
 *     train    the baseline, (cross-entropy + Dice) / 2 on labelled patches, from there
 *
 * Both losses are sums over pairs (i, j) that are alike, over the number of rows, with s = cosine / 0.1, of
 *
 *     -ln(exp s_ij / (exp s_ij + sum over k unlike i of exp s_ik))
 *
 * The authors' code is for slices and another network; docs/methods/chaitanya.md says what became of it here.
 */
#include <string.h>

#include "method/chaitanya.h"

static const double RATE = 0.1; /* of --lr, for Adam: 0.001 as published */

static void chaitanya_done(struct trainer *t)
{
    struct chaitanya *m = t->method_state;
    struct tensor *all[] = {&m->mean, &m->positive, &m->dmean, &m->rows, &m->drows};
    for (int i = 0; i < 5; i++)
        part_free(t, all[i]);
    loss_scratch_free(m->scratch);
    relations_free(m->related);
    net_free(m->describe);
    t->dev->ops->free(t->dev, m->at);
    mem_free(m->count);
    memset(m, 0, sizeof *m);
}

/* The weights of all phases, a plan of this one's layers, and an optimiser that remembers no other phase. */
static struct model *begin_phase(struct trainer *t, const struct net_definition *def, struct error *e)
{
    struct chaitanya *m = t->method_state;
    struct net_definition all = part_definition(t);
    struct loss_options o = {.classes = all.classes, .dice_share = t->set->dice_share};
    struct optim_options adam = {.kind = OPTIM_ADAM,
                                 .schedule = SCHEDULE_CONSTANT,
                                 .lr = RATE * t->set->lr,
                                 .momentum = 0.9,
                                 .beta2 = 0.999,
                                 .epsilon = 1e-8};
    struct net_shape shape = {
        .n = t->image.n, .d = t->image.d, .h = t->image.h, .w = t->image.w, .use = NET_TRAINING};
    all.define = chaitanya_define;
    chaitanya_done(t);
    trainer_drop_plan(t, "model");
    struct model *model = trainer_model(t, "model", &all, 0, NET_TRAINING, 0, e);
    if (!model || loss_scratch_new(&m->scratch, t->dev, &o, e) < 0)
        return NULL;
    model->tested.define = vnet_define;
    part_target(t, "model");
    int labels = def->define == vnet_define;
    if (labels ? !trainer_model(t, "model", &all, 0, NET_TRAINING, 1, e)
               : trainer_optim(t, model, &adam, e) < 0)
        return NULL;
    return net_new(&model->net, model->params, def, &shape, e) < 0 ? NULL : model;
}

struct model *chaitanya_begin(struct trainer *t,
                              void (*define)(struct builder *b, const struct net_definition *self),
                              struct error *e)
{
    struct net_definition def = part_definition(t);
    def.define = define;
    def.dropout = NET_DROPOUT_NONE;
    return begin_phase(t, &def, e);
}

static int train_begin(struct trainer *t, struct error *e)
{
    struct net_definition def = part_definition(t);
    return begin_phase(t, &def, e) ? 0 : -1;
}

static void train_gradients(struct trainer *t)
{
    struct chaitanya *m = t->method_state;
    part_learn_labels(t, "model", m->scratch);
}

const struct method method_chaitanya = {
    .name = "chaitanya",
    .paper = "Chaitanya et al., NeurIPS 2020",
    /* domain_specific_cl. `train` has not its Adam at 0.001: pre-training has a tenth of --lr (RATE). */
    .published = "steps = 10000\n"       /* --n_iter, --pretr_n_iter 10001 */
                 "schedule = constant\n" /* learning rates are not changed */
                 "dice-share = 1\n",     /* --dsc_loss: Dice alone */
    .state_bytes = sizeof(struct chaitanya),
    .done = chaitanya_done,
    .phases = {{.name = "global",
                .share = 1.0,
                .untested = 1,
                .batch = {.views = PHASE_VIEWS_PIECES},
                .begin = global_begin,
                .turns = {{global_gradients, "model"}}},
               {.name = "local",
                .share = 1.0,
                .untested = 1,
                .batch = {.views = PHASE_VIEWS_LIGHTS},
                .begin = local_begin,
                .turns = {{local_gradients, "model"}}},
               {.name = "train",
                .share = 1.0,
                .batch = {.labeled_only = 1},
                .begin = train_begin,
                .turns = {{train_gradients, "model"}}}},
};
