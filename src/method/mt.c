/* mt.c - mean teacher (Tarvainen and Valpola, NeurIPS 2017), as the common benchmark for 3D scans has it.
 *
 *     loss = (cross-entropy + Dice over all classes) / 2          on labelled patches
 *          + w(t) * mean (softmax(student(x)) - softmax(teacher(x + noise)))^2     on unlabelled ones
 *
 * The student sees the whole batch at once and clean, the teacher the unlabelled patches with noise.
 */
#include "method/parts.h"

struct mt {
    struct semi semi;
    struct tensor noisy;  /* (U, d, h, w, c) what the teacher sees */
    struct tensor target; /* (U, d, h, w, classes) its probabilities */
};

static void mt_done(struct trainer *t)
{
    struct mt *m = t->method_state;
    semi_done(&m->semi);
    part_free(t, &m->noisy);
    part_free(t, &m->target);
}

static int begin(struct trainer *t, struct error *e)
{
    struct mt *m = t->method_state;
    int u = t->n_unlabeled;
    struct semi_shape shape = {.student = t->n_labeled + u, .teacher = u, .dice_background = 1};
    if (semi_begin(t, &m->semi, &shape, e) < 0 || part_make(t, &m->noisy, u, t->image.c, VALUE_F32, e) < 0)
        return -1;
    return part_make(t, &m->target, u, t->store->n_classes, VALUE_F32, e);
}

static void gradients(struct trainer *t)
{
    struct mt *m = t->method_state;
    int l = t->n_labeled, u = t->n_unlabeled;
    double w = semi_weight(t), value;
    struct tensor open = tensor_items(&t->image, l, u);
    semi_student(t, &m->semi, &t->image);
    semi_noise(t, &m->noisy, &open, 1);
    struct tensor guess = semi_teacher(t, trainer_find(t, "teacher")->net, &m->noisy, 1);
    soft_labels(t->dev, &m->target, &guess, 1.0, SOFT_SET);
    struct tensor z = tensor_items(&m->semi.logits, l, u), dz = tensor_items(&m->semi.dlogits, l, u);
    ask_mse(m->semi.scratch, &z, &m->target, NULL, w, &dz, &value, NULL);
    semi_learn(t, &m->semi, "consistency", &value, w);
}

const struct method method_mt = {
    .name = "mt",
    .paper = "Tarvainen, Valpola: NeurIPS 2017",
    .consistency = 0.1,
    .published = PUBLISHED_SSL4MIS("30000", "0.01", "96"),
    .check = semi_check,
    .state_bytes = sizeof(struct mt),
    .done = mt_done,
    .phases = {{.name = "train",
                .share = 1.0,
                .begin = begin,
                .turns = {{gradients, "student"}},
                .after = semi_after}},
};
