/* dtc.c - dual-task consistency (Luo, Chen, Song, Wang: AAAI 2021): the network says twice where the object
 * is, as a mask and as a distance to its surface, and the two should agree.
 *
 *     loss = Dice + 0.3 * mean (tanh(distance) - sdf(label))^2         on labelled patches
 *          + w(t) * mean (sigma(-1500 tanh(distance)) - softmax(logits))^2     on all patches
 *
 * No teacher; the second term moves both heads. Classes beyond two have a distance map each.
 */
#include "method/parts.h"

static void dtc_done(struct trainer *t)
{
    twin_done(t, t->method_state);
}

static int begin(struct trainer *t, struct error *e)
{
    struct semi_shape shape = {.student = t->n_labeled + t->n_unlabeled, .dice_alone = 1};
    return twin_begin(t, t->method_state, &shape, 0.3, e);
}

static void gradients(struct trainer *t)
{
    struct twin *w = t->method_state;
    double weight = semi_weight(t), value;
    twin_student(t, w);
    ask_dual(w->semi.scratch, &w->semi.logits, &w->raw, weight, &w->semi.dlogits, &w->draw, &value);
    twin_learn(t, w, "consistency", &value, weight);
}

const struct method method_dtc = {
    .name = "dtc",
    .paper = "Luo et al., AAAI 2021",
    .consistency = 1.0,
    .published = PUBLISHED_LA("6000", "step", "4") PUBLISHED_RAMPUP_40 "largest = true\n", /* --nms 1 */
    .check = semi_check,
    .state_bytes = sizeof(struct twin),
    .done = dtc_done,
    .phases = {{.name = "train", .share = 1.0, .begin = begin, .turns = {{gradients, "student"}}}},
};
