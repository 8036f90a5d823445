/* urpc.c - uncertainty-rectified pyramid consistency (Luo et al., MICCAI 2021; Medical Image Analysis 2022),
 * as the common benchmark for 3D scans has it, on a V-Net: what the levels of one decoder say should be the
 * same, and counts less where it is not.
 *
 *     loss = mean over outputs of (cross-entropy + Dice over all classes) / 2      on labelled patches
 *          + w(t) * mean over outputs k of                                         on unlabelled ones
 *            mean(s_k (m - p_k)^2) / mean(s_k) + mean(KL(m, p_k)),   s_k = exp(-KL(m, p_k))
 *
 * m is the mean of the outputs. Nothing is held fixed. The finest output, a plain V-Net, is tested.
 */
#include "method/parts.h"

enum { OUTPUTS = 4 };

static void urpc_done(struct trainer *t)
{
    branches_done(t->method_state);
}

static int begin(struct trainer *t, struct error *e)
{
    struct branches_shape shape = {.define = urpc_define,
                                   .n = OUTPUTS,
                                   .share = 1.0 / OUTPUTS,
                                   .dice_share = t->set->dice_share,
                                   .dice_background = 1};
    return branches_begin(t, t->method_state, &shape, e);
}

static void gradients(struct trainer *t)
{
    struct branches *b = t->method_state;
    double value, w = semi_weight(t);
    branches_student(t, b);
    struct loss_branches open = branches_open(t, b);
    ask_pyramid(b->scratch, &open, w, &value);
    branches_learn(t, b, &value, w);
}

const struct method method_urpc = {
    .name = "urpc",
    .paper = "Luo et al., MICCAI 2021",
    .consistency = 0.1,
    .published = PUBLISHED_SSL4MIS("60000", "0.1", "112"),
    .check = semi_check,
    .state_bytes = sizeof(struct branches),
    .done = urpc_done,
    .phases = {{.name = "train", .share = 1.0, .begin = begin, .turns = {{gradients, "student"}}}},
};
