/* ua_mt.c - uncertainty-aware mean teacher (Yu, Wang, Li, Fu, Heng: MICCAI 2019).
 *
 *     loss = (cross-entropy + Dice) / 2     on labelled patches
 *          + w(t) * mean (softmax(student(x)) - softmax(teacher(x + noise)))^2 over the unlabelled voxels of
 *            which the teacher is certain
 *
 * Certain: the entropy of the teacher's mean over eight further passes, each with its own noise and dropout,
 * is below (3/4 + r(t)/4) ln classes. As published, two of them are one pass over the patches taken twice,
 *
 *     u1 .. uU | u1 .. uU        2U patches, batch norm over all of them, a sample from each half
 */
#include <math.h>

#include "method/parts.h"

enum { SAMPLES = 8 }; /* the authors' T */

struct ua_mt {
    struct semi semi;
    struct net *once;      /* the teacher's weights, planned for U patches; its own plan is for 2U */
    struct tensor noisy;   /* (2U, d, h, w, c) what the teacher sees */
    struct tensor target;  /* (U, d, h, w, classes) its probabilities */
    struct tensor mean;    /* (U, d, h, w, classes) the mean of the samples */
    struct tensor certain; /* (U, d, h, w, 1) 1 where they agree, else 0 */
};

static void ua_mt_done(struct trainer *t)
{
    struct ua_mt *m = t->method_state;
    semi_done(&m->semi);
    net_free(m->once);
    m->once = NULL;
    struct tensor *all[] = {&m->noisy, &m->target, &m->mean, &m->certain};
    for (int i = 0; i < 4; i++)
        part_free(t, all[i]);
}

static int begin(struct trainer *t, struct error *e)
{
    struct ua_mt *m = t->method_state;
    int u = t->n_unlabeled, classes = t->store->n_classes;
    struct semi_shape shape = {.student = t->n_labeled + u, .teacher = 2 * u};
    if (semi_begin(t, &m->semi, &shape, e) < 0)
        return -1;
    if (part_make(t, &m->noisy, 2 * u, t->image.c, VALUE_F32, e) < 0 ||
        part_make(t, &m->target, u, classes, VALUE_F32, e) < 0 ||
        part_make(t, &m->mean, u, classes, VALUE_F32, e) < 0 ||
        part_make(t, &m->certain, u, 1, VALUE_F32, e) < 0)
        return -1;
    struct model *teacher = trainer_find(t, "teacher");
    struct net_shape once = {
        .n = u, .d = t->image.d, .h = t->image.h, .w = t->image.w, .use = NET_FORWARD_ONLY};
    return net_new(&m->once, teacher->params, &teacher->def, &once, e);
}

/* What the student is drawn to: pass 1. */
static void make_target(struct trainer *t, const struct tensor *open)
{
    struct ua_mt *m = t->method_state;
    struct tensor noisy = tensor_items(&m->noisy, 0, open->n);
    semi_noise(t, &noisy, open, 1);
    struct tensor logits = semi_teacher(t, m->once, &noisy, 1);
    soft_labels(t->dev, &m->target, &logits, 1.0, SOFT_SET);
}

/* Where it counts: sample i has noise 2 + i, each pair of them the dropout of pass 2 + i/2. */
static void find_certain(struct trainer *t, const struct tensor *open)
{
    struct ua_mt *m = t->method_state;
    struct net *net = trainer_find(t, "teacher")->net;
    double ramp = ramp_sigmoid(t->position, (double)t->nominal);
    for (int i = 0; i < SAMPLES; i += 2) {
        for (int half = 0; half < 2; half++) {
            struct tensor to = tensor_items(&m->noisy, half * open->n, open->n);
            semi_noise(t, &to, open, 2 + i + half);
        }
        struct tensor logits = semi_teacher(t, net, &m->noisy, 2 + i / 2);
        for (int half = 0; half < 2; half++) {
            struct tensor z = tensor_items(&logits, half * open->n, open->n);
            soft_labels(t->dev, &m->mean, &z, 1.0 / SAMPLES, i + half == 0 ? SOFT_SET : SOFT_ADD);
        }
    }
    certain_voxels(t->dev, &m->certain, &m->mean, (0.75 + 0.25 * ramp) * log(m->mean.c));
}

static void gradients(struct trainer *t)
{
    struct ua_mt *m = t->method_state;
    int l = t->n_labeled, u = t->n_unlabeled;
    double w = semi_weight(t), value, counted;
    struct tensor open = tensor_items(&t->image, l, u);
    semi_student(t, &m->semi, &t->image);
    make_target(t, &open);
    find_certain(t, &open);
    struct tensor z = tensor_items(&m->semi.logits, l, u), dz = tensor_items(&m->semi.dlogits, l, u);
    ask_mse(m->semi.scratch, &z, &m->target, &m->certain, w, &dz, &value, &counted);
    semi_learn(t, &m->semi, "consistency", &value, w);
    note(t, "certain", counted / (double)tensor_voxels(&open));
}

const struct method method_ua_mt = {
    .name = "ua-mt",
    .paper = "Yu et al., MICCAI 2019",
    .consistency = 0.1,
    .published = PUBLISHED_LA("6000", "step", "4") PUBLISHED_RAMPUP_40,
    .check = semi_check,
    .state_bytes = sizeof(struct ua_mt),
    .done = ua_mt_done,
    .phases = {{.name = "train",
                .share = 1.0,
                .begin = begin,
                .turns = {{gradients, "student"}},
                .after = semi_after}},
};
