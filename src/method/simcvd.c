/* simcvd.c - contrastive voxel-wise representation distillation (You, Zhou, Zhao, Staib, Duncan: IEEE TMI
 * 2022). Their code is not public: what is here is put together from what is published of it, and
 * docs/methods/simcvd.md says which parts are our reading.
 *
 *     loss = (cross-entropy + Dice) / 2 + 0.1 * mean (tanh(distance) - sdf(label))^2      on labelled patches
 *          + w(t) * (consistency + distillation + 5 contrast),  with an averaged teacher who sees the same
 *                                                               patches through another dropout
 *
 *     consistency    mean (softmax(student) - softmax(teacher))^2   on unlabelled patches
 *     contrast       each slice of the teacher's distance maps, projected, finds the student's among all
 *     distillation   each place of the student's deepest level finds the teacher's among all
 */
#include <string.h>

#include "method/parts.h"

struct simcvd {
    struct twin twin;
    struct tensor target;         /* (U, d, h, w, classes) the teacher's probabilities */
    struct tensor map[2], dmap;   /* (B, d, h, w, classes - 1) distances of student and teacher */
    struct strided *projector[2]; /* of student and teacher, on their own weights */
    struct pairs *slices, *places;
};
static const double SHARE = 0.1, TAU = 0.5, CONTRAST = 5.0; /* alpha; tau; lambda / gamma */

static void simcvd_done(struct trainer *t)
{
    struct simcvd *m = t->method_state;
    struct tensor *all[] = {&m->target, &m->map[0], &m->map[1], &m->dmap};
    twin_done(t, &m->twin);
    for (int i = 0; i < 4; i++)
        part_free(t, all[i]);
    for (int i = 0; i < 2; i++)
        strided_free(m->projector[i]);
    pairs_free(m->slices);
    pairs_free(m->places);
    memset(m, 0, sizeof *m);
}

static int begin_pairs(struct trainer *t, struct simcvd *m, int n, struct error *e)
{
    static const char *const names[2] = {"student", "teacher"};
    struct net_shape shape = {.n = n, .d = t->image.d, .h = t->image.h, .w = t->image.w};
    int filters = (int)t->set->filters, maps = t->store->n_classes - 1;
    struct tensor deep = net_value(trainer_find(t, "student")->net, "places");
    for (int i = 0; i < 2; i++)
        if (strided_new(&m->projector[i], trainer_find(t, names[i])->params, &projector_spec, &shape, maps, 0,
                        filters, e) < 0)
            return -1;
    if (pairs_new(&m->slices, t->dev, n * t->image.w, 8 * filters, e) < 0)
        return -1;
    return pairs_new(&m->places, t->dev, (int)tensor_voxels(&deep), deep.c, e);
}

static int begin(struct trainer *t, struct error *e)
{
    struct simcvd *m = t->method_state;
    int n = t->n_labeled + t->n_unlabeled, classes = t->store->n_classes;
    struct semi_shape shape = {.student = n, .teacher = n, .define = simcvd_define};
    if (twin_begin(t, &m->twin, &shape, SHARE, e) < 0)
        return -1;
    trainer_find(t, "student")->tested.define = sdf_define;
    if (part_make(t, &m->target, t->n_unlabeled, classes, VALUE_F32, e) < 0)
        return -1;
    struct tensor *maps[] = {&m->map[0], &m->map[1], &m->dmap};
    for (int i = 0; i < 3; i++)
        if (part_make(t, maps[i], n, classes - 1, VALUE_F32, e) < 0)
            return -1;
    return begin_pairs(t, m, n, e);
}

/* Slices of both networks' distances, through the student's projector back to its maps. */
static void ask_slices(struct trainer *t, struct simcvd *m, const struct tensor *raw, double weight,
                       double *value)
{
    struct net_pass pass = part_pass(t, NET_TRAIN, 0);
    struct tensor rows[2];
    distances(t->dev, &m->map[0], &m->twin.raw);
    distances(t->dev, &m->map[1], raw);
    for (int i = 0; i < 2; i++)
        rows[i] = strided_forward(m->projector[i], &m->map[i], NULL, &pass);
    struct tensor drows = strided_grad(m->projector[0]);
    ask_pairs(m->twin.semi.scratch, m->slices, rows[0].data, rows[1].data, PAIRS_OTHERS, TAU, weight,
              drows.data, value);
    strided_backward(m->projector[0], STRIDED_WEIGHTS | STRIDED_MAP, &m->dmap);
    distances_grad(t->dev, &m->twin.draw, &m->map[0], &m->dmap);
}

static void gradients(struct trainer *t)
{
    struct simcvd *m = t->method_state;
    struct semi *s = &m->twin.semi;
    struct net *student = trainer_find(t, "student")->net, *teacher = trainer_find(t, "teacher")->net;
    int l = t->n_labeled, u = t->n_unlabeled;
    double w = semi_weight(t), consistency, distillation, contrast;
    twin_student(t, &m->twin);
    struct tensor guess = semi_teacher(t, teacher, &t->image, 1), open = tensor_items(&guess, l, u);
    soft_labels(t->dev, &m->target, &open, 1.0, SOFT_SET);
    struct tensor z = tensor_items(&s->logits, l, u), dz = tensor_items(&s->dlogits, l, u);
    ask_mse(s->scratch, &z, &m->target, NULL, w, &dz, &consistency, NULL);
    struct tensor own = net_value(student, "places"), other = net_value(teacher, "places");
    struct tensor down = net_grad(student, "places"), raw = net_value(teacher, "distance");
    ask_pairs(s->scratch, m->places, own.data, other.data, PAIRS_OWN, 1.0, w, down.data, &distillation);
    ask_slices(t, m, &raw, CONTRAST * w, &contrast);
    loss_settle(s->scratch);
    double agreement = consistency + distillation + CONTRAST * contrast;
    twin_learn(t, &m->twin, "agreement", &agreement, w);
    note(t, "consistency", consistency);
    note(t, "distillation", distillation);
    note(t, "contrast", contrast);
}

const struct method method_simcvd = {
    .name = "simcvd",
    .paper = "You et al., IEEE TMI 2022",
    .consistency = 0.1,
    /* no code is public: a reading, the settings of UA-MT, on whose data its tables are */
    .published = PUBLISHED_LA("6000", "step", "4") PUBLISHED_RAMPUP_40,
    .check = semi_check,
    .state_bytes = sizeof(struct simcvd),
    .done = simcvd_done,
    .phases = {{.name = "train",
                .share = 1.0,
                .begin = begin,
                .turns = {{gradients, "student"}},
                .after = semi_after}},
};
