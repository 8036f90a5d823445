/* aua_prototypes.c - between the stages of AUA: the network of the first one walks over labelled patches, and
 * mean and covariance of its features are pooled per class. See aua.c.
 */
#include "method/aua.h"

int aua_prototypes_state(struct trainer *t, struct error *e)
{
    struct aua *a = t->method_state;
    if (!a->prototypes && !(a->prototypes = mem_alloc(e, 1, sizeof *a->prototypes)))
        return -1;
    a->prototypes->classes = t->store->n_classes;
    a->prototypes->full = t->set->pcl_cov == PCL_FULL;
    return trainer_state(t, "prototypes", a->prototypes, sizeof *a->prototypes, e);
}

struct model *aua_labeller(struct trainer *t, int n_items, struct error *e)
{
    struct net_definition def = aua_definition(t);
    struct model *student = trainer_find(t, "student");
    def.dropout = NET_DROPOUT_NONE; /* no noise in labels */
    struct model *m = trainer_model(t, "labeller", &def, n_items, NET_FORWARD_ONLY, 0, e);
    if (m && student && t->set->proto_ckpt == PROTO_LAST)
        trainer_copy(t, m, student);
    return m;
}

int prototypes_begin(struct trainer *t, struct error *e)
{
    struct aua *a = t->method_state;
    net_free(a->projection);
    a->projection = NULL;
    part_free(t, &a->noisy);
    if (!aua_labeller(t, t->n_labeled, e))
        return -1;
    trainer_drop_model(t, "teacher");
    trainer_drop_model(t, "student");
    part_target(t, "labeller");
    return aua_scratch(t, e) < 0 ? -1 : aua_prototypes_state(t, e);
}

void prototypes_gradients(struct trainer *t)
{
    struct aua *a = t->method_state;
    struct model *m = trainer_find(t, "labeller");
    struct net_pass pass = part_pass(t, NET_EVAL, 0);
    net_forward(m->net, &t->image, &pass);
    struct tensor features = net_value(m->net, "features");
    prototypes_update(t->dev, a->prototypes, &features, &t->label);
    note(t, "loss", 0.0);
}
