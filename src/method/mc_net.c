/* mc_net.c - mutual consistency (Wu et al.: MC-Net, MICCAI 2021, two decoders; MC-Net+, Medical Image
 * Analysis 2022, three): decoders that differ only in how they go up should say the same, with certainty.
 *
 *     loss = 1/2 sum over decoders of Dice without squares      on labelled patches
 *          + w(t) * sum over i, j != i of mean (p_i - sharp(p_j))^2      on all patches, labelled ones too
 *     sharp(p) = p^10 / sum over classes of p^10
 *
 * Both sides of a pair get gradients. Cross-entropy is noted only. What is tested is the first decoder with
 * the encoder: a plain V-Net.
 */
#include "method/parts.h"

static const double SHARPNESS = 10.0; /* the authors' temperature of 0.1 */

static void mc_net_done(struct trainer *t)
{
    branches_done(t->method_state);
}

static int begin(struct trainer *t, int decoders, struct error *e)
{
    struct branches_shape shape = {
        .n = decoders, .share = t->set->dice_share, .dice_share = 1.0, .dice_linear = 1};
    shape.define = decoders == 2 ? mcnet_define : mcnet_plus_define;
    return branches_begin(t, t->method_state, &shape, e);
}

static int begin_two(struct trainer *t, struct error *e)
{
    return begin(t, 2, e);
}

static int begin_three(struct trainer *t, struct error *e)
{
    return begin(t, 3, e);
}

static void gradients(struct trainer *t)
{
    struct branches *b = t->method_state;
    struct mutual all = {.askers = b->of.n, .sharpness = SHARPNESS, .share = 1.0};
    double value, w = semi_weight_at(t, t->next); /* the authors count steps from 1 */
    branches_student(t, b);
    ask_mutual(b->scratch, &b->of, &all, w, &value);
    branches_learn(t, b, &value, w);
}

const struct method method_mc_net = {
    .name = "mc-net",
    .paper = "Wu et al., MICCAI 2021",
    .consistency = 1.0,
    /* train_mcnet_3d.py: its "change lr" is commented out */
    .published = PUBLISHED_LA("15000", "constant", "4") PUBLISHED_RAMPUP_40,
    .check = semi_check,
    .state_bytes = sizeof(struct branches),
    .done = mc_net_done,
    .phases = {{.name = "train", .share = 1.0, .begin = begin_two, .turns = {{gradients, "student"}}}},
};

const struct method method_mc_net_plus = {
    .name = "mc-net-plus",
    .paper = "Wu et al., Medical Image Analysis 2022",
    .consistency = 1.0,
    /* train_mcnet_3d.py: its "change lr" is commented out */
    .published = PUBLISHED_LA("15000", "constant", "4") PUBLISHED_RAMPUP_40,
    .check = semi_check,
    .state_bytes = sizeof(struct branches),
    .done = mc_net_done,
    .phases = {{.name = "train", .share = 1.0, .begin = begin_three, .turns = {{gradients, "student"}}}},
};
