/* aua_stage1.c - the first stage of AUA: likelihood and contrast on labelled patches, energy distance to the
 * teacher on the others. See aua.c.
 */
#include "method/aua.h"

int stage1_begin(struct trainer *t, struct error *e)
{
    struct aua *a = t->method_state;
    const struct settings *s = t->set;
    struct net_definition def = aua_definition(t);
    struct model *student =
        trainer_model(t, "student", &def, t->n_labeled + t->n_unlabeled, NET_TRAINING, 1, e);
    if (!student || !trainer_model(t, "teacher", &def, t->n_unlabeled, NET_FORWARD_ONLY, 0, e))
        return -1;
    if (s->proto_ckpt == PROTO_MIDDLE && !aua_labeller(t, 0, e))
        return -1;
    if (part_make(t, &a->noisy, t->n_unlabeled, t->image.c, VALUE_F32, e) < 0 || aua_scratch(t, e) < 0)
        return -1;
    if (s->lambda_c > 0 && aua_contrast_begin(t, student, e) < 0)
        return -1;
    part_target(t, "student");
    return 0;
}

void stage1_gradients(struct trainer *t)
{
    struct aua *a = t->method_state;
    const struct settings *s = t->set;
    struct model *student = trainer_find(t, "student"), *teacher = trainer_find(t, "teacher");
    int l = t->n_labeled, u = t->n_unlabeled, samples = (int)s->mc_samples;

    struct net_pass pass = part_pass(t, NET_TRAIN, 0);
    net_forward(student->net, &t->image, &pass);
    struct tensor unlabeled = tensor_items(&t->image, l, u);
    semi_noise(t, &a->noisy, &unlabeled, 1);
    pass = part_pass(t, NET_TRAIN, 1);
    net_forward(teacher->net, &a->noisy, &pass);

    struct gaussian known = aua_distribution(t, student, 0, 0, l);
    struct gaussian open = aua_distribution(t, student, 0, l, u);
    struct gaussian other = aua_distribution(t, teacher, 1, 0, u);
    aua_gradients(&known, student, 0, l, 1);
    aua_gradients(&open, student, l, u, 1);
    if (t->mask.data) {
        known.mask = tensor_items(&t->mask, 0, l);
        open.mask = other.mask = tensor_items(&t->mask, l, u);
    }
    struct tensor label = tensor_items(&t->label, 0, l);
    double half = s->sup_dice ? 0.5 : 1.0, w = semi_weight(t), mc, dice = 0.0, ged;
    ask_mc_likelihood(a->scratch, &known, &label, samples, half, &mc);
    if (s->sup_dice)
        ask_dice(a->scratch, &known.mean, &label, half, &known.dmean, &dice);
    int with = s->lambda_c > 0 ? aua_contrast(t, student, s->lambda_c) : 0;
    ask_ged(a->scratch, &open, &other, samples, s->ged_metric == GED_JOINT, w, &ged);
    loss_settle(a->scratch);
    net_backward(student->net);

    double supervised = half * (mc + dice), bcl = aua_contrast_mean(t, with);
    note(t, "loss", supervised + s->lambda_c * bcl + w * ged);
    note(t, "supervised", supervised);
    note(t, "likelihood", mc);
    note(t, "dice", dice);
    note(t, "bcl", bcl);
    note(t, "ged", ged);
    note(t, "weight", w);
}

void stage1_after(struct trainer *t)
{
    struct model *student = trainer_find(t, "student"), *labeller = trainer_find(t, "labeller");
    semi_after(t);
    /* once, in the middle; if that step was not applied, after the next one that is */
    if (labeller && labeller->params->batches == 0 && t->next >= (double)((t->nominal + 1) / 2))
        trainer_copy(t, labeller, student);
}

int stage1_end(struct trainer *t, struct error *e)
{
    if (t->set->proto_ckpt == PROTO_MIDDLE &&
        trainer_publish(t, "labeller", "stage1-middle.safetensors", e) < 0)
        return -1;
    return trainer_publish(t, "student", "stage1.safetensors", e);
}
