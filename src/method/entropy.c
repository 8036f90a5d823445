/* entropy.c - entropy minimisation (Grandvalet and Bengio, NeurIPS 2004; Vu et al., CVPR 2019), as the common
 * benchmark for 3D scans has it: no teacher, the network is asked to be certain everywhere.
 *
 *     loss = (cross-entropy + Dice over all classes) / 2      on labelled patches
 *          + w(t) * mean entropy / ln classes                 on all patches, labelled ones too
 */
#include "method/parts.h"

static void entropy_done(struct trainer *t)
{
    semi_done(t->method_state);
}

static int begin(struct trainer *t, struct error *e)
{
    struct semi_shape shape = {.student = t->n_labeled + t->n_unlabeled, .dice_background = 1};
    return semi_begin(t, t->method_state, &shape, e);
}

static void gradients(struct trainer *t)
{
    struct semi *s = t->method_state;
    double w = semi_weight(t), value;
    semi_student(t, s, &t->image);
    ask_entropy(s->scratch, &s->logits, w, &s->dlogits, &value);
    semi_learn(t, s, "entropy", &value, w);
}

const struct method method_entropy = {
    .name = "entropy",
    .paper = "Grandvalet, Bengio: NeurIPS 2004; Vu et al.: CVPR 2019",
    .consistency = 0.1,
    .published = PUBLISHED_SSL4MIS("30000", "0.01", "96"),
    .check = semi_check,
    .state_bytes = sizeof(struct semi),
    .done = entropy_done,
    .phases = {{.name = "train", .share = 1.0, .begin = begin, .turns = {{gradients, "student"}}}},
};
