/* ict.c - interpolation consistency training (Verma et al., IJCAI 2019), as the common benchmark for 3D scans
 * has it: between two patches the network should say what lies between its answers to them.
 *
 *     loss = (cross-entropy + Dice over all classes) / 2      on labelled patches
 *          + w(t) * mean (softmax(student(blend(u, v))) - blend(softmax(teacher(u)), softmax(teacher(v))))^2
 *     blend(u, v) = (1 - share) u + share v,  share ~ Beta(0.2, 0.2), one for every pair
 *
 * The first half of the unlabelled patches meets the second. The teacher sees each half by itself and without
 * noise, the student the labelled patches and the blends:
 *
 *     batch      l1 .. lL | u1 .. un | v1 .. vn
 *     student    l1 .. lL | blend(u1, v1) .. blend(un, vn)
 */
#include "method/parts.h"

static const double ALPHA = 0.2; /* of the Beta distribution, as in the benchmark: most shares near 0 or 1 */

struct ict {
    struct semi semi;
    struct tensor seen;   /* (L + n, d, h, w, c) what the student sees */
    struct tensor target; /* (n, d, h, w, classes) blended probabilities of the teacher */
};

static void ict_done(struct trainer *t)
{
    struct ict *m = t->method_state;
    semi_done(&m->semi);
    part_free(t, &m->seen);
    part_free(t, &m->target);
}

static int begin(struct trainer *t, struct error *e)
{
    struct ict *m = t->method_state;
    int pairs = t->n_unlabeled / 2, n = t->n_labeled + pairs;
    struct semi_shape shape = {.student = n, .teacher = pairs, .dice_background = 1};
    if (semi_begin(t, &m->semi, &shape, e) < 0 || part_make(t, &m->seen, n, t->image.c, VALUE_F32, e) < 0)
        return -1;
    return part_make(t, &m->target, pairs, t->store->n_classes, VALUE_F32, e);
}

/* Of the second patch of a pair, in this step. */
static double share_of(const struct trainer *t, int pair)
{
    struct rng r = rng_start((uint64_t)t->set->seed, t->draw, RNG_BLEND, (uint64_t)pair);
    return rng_beta(&r, ALPHA);
}

static void blend_patches(struct trainer *t, const struct tensor half[2])
{
    struct ict *m = t->method_state;
    struct tensor known = tensor_items(&m->seen, 0, t->n_labeled);
    t->dev->ops->copy(t->dev, known.data, t->image.data, (size_t)tensor_count(&known) * sizeof(float));
    for (int i = 0; i < half[0].n; i++) {
        struct tensor out = tensor_items(&m->seen, t->n_labeled + i, 1);
        struct tensor a = tensor_items(&half[0], i, 1), b = tensor_items(&half[1], i, 1);
        double share = share_of(t, i);
        RUN(t->dev, blend, tensor_count(&out), .out = out.data, .a = a.data, .b = b.data,
            .keep = (float)(1.0 - share), .take = (float)share);
    }
}

/* Halves are passes 1 and 2 of the teacher. */
static void blend_answers(struct trainer *t, const struct tensor half[2])
{
    struct ict *m = t->method_state;
    struct net *teacher = trainer_find(t, "teacher")->net;
    for (int h = 0; h < 2; h++) {
        struct tensor logits = semi_teacher(t, teacher, &half[h], 1 + h);
        for (int i = 0; i < half[h].n; i++) {
            struct tensor to = tensor_items(&m->target, i, 1), z = tensor_items(&logits, i, 1);
            double share = share_of(t, i);
            soft_labels(t->dev, &to, &z, h ? share : 1.0 - share, h ? SOFT_ADD : SOFT_SET);
        }
    }
}

static void gradients(struct trainer *t)
{
    struct ict *m = t->method_state;
    int l = t->n_labeled, pairs = t->n_unlabeled / 2;
    double w = semi_weight(t), value;
    struct tensor half[2] = {tensor_items(&t->image, l, pairs), tensor_items(&t->image, l + pairs, pairs)};
    blend_patches(t, half);
    semi_student(t, &m->semi, &m->seen);
    blend_answers(t, half);
    struct tensor z = tensor_items(&m->semi.logits, l, pairs), dz = tensor_items(&m->semi.dlogits, l, pairs);
    ask_mse(m->semi.scratch, &z, &m->target, NULL, w, &dz, &value, NULL);
    semi_learn(t, &m->semi, "consistency", &value, w);
}

const struct method method_ict = {
    .name = "ict",
    .paper = "Verma et al., IJCAI 2019",
    .consistency = 0.1,
    .published = PUBLISHED_SSL4MIS("30000", "0.01", "96"),
    .check = semi_check_pairs,
    .state_bytes = sizeof(struct ict),
    .done = ict_done,
    .phases = {{.name = "train",
                .share = 1.0,
                .begin = begin,
                .turns = {{gradients, "student"}},
                .after = semi_after}},
};
