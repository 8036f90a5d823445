/* cct.c - cross-consistency training (Ouali, Hudelot, Tami: CVPR 2020), the variant with three perturbations
 * that the common benchmark of medical segmentation has, on a V-Net: decoders that see a perturbed encoder
 * should say what the main decoder says.
 *
 *     loss = mean over decoders of (cross-entropy + Dice over all classes) / 2      on labelled patches
 *          + w(t) * mean over the others k of mean (p_main - p_k)^2                 on unlabelled ones
 *
 * Others: one sees feature noise, one dropped elements, one dropped peaks, in all five outputs of the encoder
 * (net/shake.c). Nothing is held fixed. What is tested is the main decoder: a plain V-Net.
 */
#include "method/parts.h"

enum { DECODERS = 4 };

static void cct_done(struct trainer *t)
{
    branches_done(t->method_state);
}

static int begin(struct trainer *t, struct error *e)
{
    struct branches_shape shape = {.define = cct_define,
                                   .n = DECODERS,
                                   .share = 1.0 / DECODERS,
                                   .dice_share = t->set->dice_share,
                                   .dice_background = 1};
    return branches_begin(t, t->method_state, &shape, e);
}

static void gradients(struct trainer *t)
{
    struct branches *b = t->method_state;
    struct mutual main_only = {.askers = 1, .sharpness = 1.0, .share = 1.0 / (DECODERS - 1)};
    double value, w = semi_weight(t);
    branches_student(t, b);
    struct loss_branches open = branches_open(t, b);
    ask_mutual(b->scratch, &open, &main_only, w, &value);
    branches_learn(t, b, &value, w);
}

const struct method method_cct = {
    .name = "cct",
    .paper = "Ouali, Hudelot, Tami: CVPR 2020",
    .consistency = 0.1,
    /* train_cross_consistency_training_2D.py; batch, patch and stride are those of the 3D scripts */
    .published = PUBLISHED_SSL4MIS("30000", "0.01", "96"),
    .check = semi_check,
    .state_bytes = sizeof(struct branches),
    .done = cct_done,
    .phases = {{.name = "train", .share = 1.0, .begin = begin, .turns = {{gradients, "student"}}}},
};
