/* aua_stage2.c - the second stage of AUA: a new network learns from labels, from the labels of the first one
 * and from the prototypes of the classes. See aua.c.
 */
#include "method/aua.h"

int stage2_begin(struct trainer *t, struct error *e)
{
    struct aua *a = t->method_state;
    struct net_definition def = aua_definition(t);
    trainer_drop_plan(t, "labeller");
    struct model *first = aua_labeller(t, t->n_unlabeled, e);
    if (!first)
        return -1;
    int paste = t->set->stage2_paste, n = t->n_labeled + (paste ? 0 : t->n_unlabeled);
    struct model *m = trainer_model(t, "stage2", &def, n, NET_TRAINING, 1, e);
    if (!m || (paste && paste_alloc(t, &a->paste, n, e) < 0))
        return -1;
    if ((paste || t->set->stage2_init == STAGE2_STAGE1) && t->step == 0)
        trainer_copy(t, m, first);
    if (part_make(t, &a->pseudo, t->n_unlabeled, 1, VALUE_U8, e) < 0 || aua_scratch(t, e) < 0)
        return -1;
    if (t->set->pseudo_threshold > 0 && part_make(t, &a->trusted, t->n_unlabeled, 1, VALUE_F32, e) < 0)
        return -1;
    part_target(t, paste ? "labeller" : "stage2");
    return aua_prototypes_state(t, e);
}

/* Labels of the unlabelled items, and which of them to believe. An averaged teacher has statistics of its
 * own, as in copypaste.c. */
static void pseudo_labels(struct trainer *t, const struct tensor *unlabeled)
{
    struct aua *a = t->method_state;
    struct model *m = trainer_find(t, "labeller");
    struct net_pass pass = part_pass(t, t->set->stage2_paste ? NET_TRAIN : NET_EVAL, 1);
    net_forward(m->net, unlabeled, &pass);
    struct tensor logits = net_value(m->net, "mean");
    hard_labels(t->dev, &logits, &a->pseudo, &a->trusted);
    if (a->trusted.data)
        RUN(t->dev, at_least, tensor_voxels(&a->trusted), .value = a->trusted.data,
            .floor = (float)t->set->pseudo_threshold);
}

/* What a step of stage 2 learns from: where each kind of label counts, and the items it is about. Pasted,
 * every item is partly labelled and partly not, and weights say where; else the unlabelled items stand behind
 * the labelled ones. */
struct lesson {
    const struct tensor *image;
    struct tensor label[2];  /* of the scans' own, and of the labeller */
    struct tensor weight[2]; /* data NULL: all voxels count */
    int first[2];            /* of the items each is about */
    double share[2];
};

static struct tensor part_of(const struct lesson *l, int side, const struct tensor *all)
{
    return tensor_items(all, l->first[side], l->label[side].n);
}

static void prepare_lesson(struct trainer *t, struct lesson *l)
{
    struct aua *a = t->method_state;
    const struct settings *s = t->set;
    int n = t->n_labeled;
    struct tensor unlabeled = tensor_items(&t->image, n, t->n_unlabeled);
    pseudo_labels(t, &unlabeled);
    *l = (struct lesson){.image = &t->image,
                         .label = {tensor_items(&t->label, 0, n), a->pseudo},
                         .weight = {{.data = NULL}, a->trusted},
                         .first = {0, n},
                         .share = {1.0, s->pseudo_weight}};
    if (!s->stage2_paste)
        return;
    paste_mix(t, &a->paste, &t->image, &unlabeled, 0);
    l->image = &a->paste.mixed;
    l->weight[0] = a->paste.weight[0];
    l->weight[1] = a->paste.weight[1];
    l->first[1] = 0;
    l->share[1] = s->paste_weight;
    if (a->trusted.data)
        RUN(t->dev, mask_below, tensor_voxels(&l->weight[1]), .weight = l->weight[1].data,
            .value = a->trusted.data, .floor = 1.0f);
}

/* Asks for both; values are there when losses are settled. */
static void learn_labels(struct trainer *t, struct net *net, const struct lesson *l, double value[2])
{
    struct aua *a = t->method_state;
    struct tensor logits = net_value(net, "mean"), dlogits = net_grad(net, "mean");
    for (int side = 0; side < 2; side++) {
        struct tensor z = part_of(l, side, &logits), dz = part_of(l, side, &dlogits);
        ask_ce_dice(a->scratch, &z, &l->label[side], &l->weight[side], l->share[side], &dz, &value[side],
                    NULL, NULL);
    }
}

/* Prototypes of mixtures are not learnt. */
static void learn_prototypes(struct trainer *t, struct net *net, const struct lesson *l, double value[2])
{
    struct aua *a = t->method_state;
    const struct settings *s = t->set;
    struct pcl how = {.prototypes = a->prototypes,
                      .tau = s->pcl_tau,
                      .ignore_bg = s->pcl_ignore_bg,
                      .unscaled = s->pcl_form == PCL_PAPER};
    struct tensor features = net_value(net, "features"), known = part_of(l, 0, &features);
    value[0] = value[1] = 0.0;
    if (s->proto_update && !s->stage2_paste)
        prototypes_update(t->dev, a->prototypes, &known, &l->label[0]);
    for (int side = 0; side < 2 && s->lambda_r > 0; side++) {
        struct tensor grad = net_grad_to_set(net, "features"), df = part_of(l, side, &grad);
        struct tensor f = part_of(l, side, &features);
        how.fresh = side == 0 || l->first[side] > 0; /* the first to write there */
        ask_prototypes(a->scratch, &how, &f, &l->label[side], &l->weight[side], s->lambda_r, &df,
                       &value[side]);
    }
}

static double learn_covariance(struct trainer *t, struct model *m, const struct lesson *l)
{
    struct aua *a = t->method_state;
    int n = t->n_labeled;
    struct gaussian g = aua_distribution(t, m, 0, 0, n);
    aua_gradients(&g, m, 0, n, 0);
    if (t->mask.data)
        g.mask = tensor_items(&t->mask, 0, n);
    return loss_mc_likelihood(a->scratch, &g, &l->label[0], (int)t->set->mc_samples, 1.0);
}

void stage2_gradients(struct trainer *t)
{
    const struct settings *s = t->set;
    struct model *m = trainer_find(t, "stage2");
    struct lesson l;
    double label[2], pcl[2];
    prepare_lesson(t, &l);
    struct net_pass pass = part_pass(t, NET_TRAIN, 0);
    net_forward(m->net, l.image, &pass);
    learn_labels(t, m->net, &l, label);
    learn_prototypes(t, m->net, &l, pcl);
    loss_settle(((struct aua *)t->method_state)->scratch);
    double mc = s->stage2_cov ? learn_covariance(t, m, &l) : 0.0;
    net_backward(m->net);
    note(t, "loss", label[0] + l.share[1] * label[1] + s->lambda_r * (pcl[0] + pcl[1]) + mc);
    note(t, "supervised", label[0]);
    note(t, "pseudo", label[1]);
    note(t, "pcl_labeled", pcl[0]);
    note(t, "pcl_pseudo", pcl[1]);
}

void stage2_after(struct trainer *t)
{
    if (t->set->stage2_paste)
        part_average_weights(t, "labeller", "stage2");
}
