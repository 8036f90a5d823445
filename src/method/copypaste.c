/* copypaste.c - bidirectional copy-paste with a mean teacher: what `--preset auto` trains.
 *
 * Boxes are pasted between labelled and unlabelled patches (paste.c). Voxels of the first, labelled
 * partner are judged by their label, those of the second by the hard label of an averaged teacher, at a
 * lower weight.
 *
 * warmup    both partners are labelled
 * mixing    labelled and unlabelled; the teacher labels clean patches by their own batch statistics, and
 *           keeps running ones of them: what it will see when it predicts. The student's are of mixtures.
 *
 * A batch holds as many labelled as unlabelled patches; the network sees one mixture of each pair.
 */
#include <stddef.h>
#include <string.h>

#include "method/parts.h"

struct copypaste {
    struct loss_scratch *scratch;
    struct paste paste;
    struct tensor other;      /* (n, d, h, w, 1) U8 labels of the second partners */
    struct tensor confidence; /* (n, d, h, w, 1) F32 of the teacher; data NULL unless asked for */
};

static void copypaste_done(struct trainer *t)
{
    struct copypaste *p = t->method_state;
    loss_scratch_free(p->scratch);
    paste_free(t, &p->paste);
    part_free(t, &p->other);
    part_free(t, &p->confidence);
    memset(p, 0, sizeof *p);
}

static int copypaste_check(const struct settings *s, struct error *e)
{
    return paste_check(s, "copy-paste", e);
}

static int copypaste_begin(struct trainer *t, struct error *e)
{
    struct copypaste *p = t->method_state;
    const struct settings *s = t->set;
    struct net_definition def = part_definition(t), calm = def;
    int n = t->n_labeled;
    calm.dropout = NET_DROPOUT_NONE; /* no noise in labels */
    if (!trainer_model(t, "student", &def, n, NET_TRAINING, 1, e) ||
        !trainer_model(t, "teacher", &calm, n, NET_FORWARD_ONLY, 0, e))
        return -1;
    if (paste_alloc(t, &p->paste, n, e) < 0 || part_make(t, &p->other, n, 1, VALUE_U8, e) < 0)
        return -1;
    if (s->pseudo_threshold > 0 && part_make(t, &p->confidence, n, 1, VALUE_F32, e) < 0)
        return -1;
    part_target(t, "teacher");
    if (p->scratch)
        return 0;
    struct loss_options o = {.classes = t->store->n_classes, .dice_share = s->dice_share};
    return loss_scratch_new(&p->scratch, t->dev, &o, e);
}

/* The student learns from the mixed batch; voxels of second partners count `weight`. */
static void learn(struct trainer *t, double weight)
{
    struct copypaste *p = t->method_state;
    struct model *student = trainer_find(t, "student");
    struct net_pass pass = part_pass(t, NET_TRAIN, 0);
    net_forward(student->net, &p->paste.mixed, &pass);
    struct tensor logits = net_value(student->net, "logits");
    struct tensor dlogits = net_grad(student->net, "logits");
    struct tensor label = tensor_items(&t->label, 0, p->paste.mixed.n);
    double known, other;
    ask_ce_dice(p->scratch, &logits, &label, &p->paste.weight[0], 1.0, &dlogits, &known, NULL, NULL);
    ask_ce_dice(p->scratch, &logits, &p->other, &p->paste.weight[1], weight, &dlogits, &other, NULL, NULL);
    loss_settle(p->scratch);
    net_backward(student->net);
    note(t, "loss", known + weight * other);
    note(t, "supervised", known);
    note(t, "pasted", other);
}

static void warmup_gradients(struct trainer *t)
{
    struct copypaste *p = t->method_state;
    int n = p->paste.mixed.n;
    for (int i = 0; i < n; i++) {
        struct tensor to = tensor_items(&p->other, i, 1), from = tensor_items(&t->label, (i + 1) % n, 1);
        t->dev->ops->copy(t->dev, to.data, from.data, (size_t)tensor_count(&to));
    }
    paste_mix(t, &p->paste, &t->image, &t->image, 1);
    learn(t, 1.0);
}

static void mixing_gradients(struct trainer *t)
{
    struct copypaste *p = t->method_state;
    struct model *teacher = trainer_find(t, "teacher");
    struct tensor unlabeled = tensor_items(&t->image, t->n_labeled, t->n_unlabeled);
    struct net_pass pass = part_pass(t, NET_TRAIN, 1);
    net_forward(teacher->net, &unlabeled, &pass);
    struct tensor logits = net_value(teacher->net, "logits");
    hard_labels(t->dev, &logits, &p->other, &p->confidence);
    paste_mix(t, &p->paste, &t->image, &unlabeled, 0);
    if (p->confidence.data)
        RUN(t->dev, mask_below, tensor_voxels(&p->confidence), .weight = p->paste.weight[1].data,
            .value = p->confidence.data, .floor = (float)t->set->pseudo_threshold);
    learn(t, t->set->paste_weight);
}

static void warmup_after(struct trainer *t)
{
    part_average(t, "teacher", "student");
}

static void mixing_after(struct trainer *t)
{
    part_average_weights(t, "teacher", "student");
}

const struct method method_copypaste = {
    .name = "copy-paste",
    .paper = "after Bai et al., CVPR 2023",
    .published = PUBLISHED_LA("15000", "step", "8") /* --self_max_iteration; theirs drops every 2,500 steps */
    "paste-warmup = 0.13333\n"                      /* --pre_max_iteration 2000 */
    "paste-size = 0.6667\n"                         /* --mask_ratio 2/3 */
    "paste-weight = 0.5\n"                          /* --u_weight */
    "largest = true\n",                             /* test_LA.py --nms 1 */
    .check = copypaste_check,
    .state_bytes = sizeof(struct copypaste),
    .done = copypaste_done,
    .phases =
        {
            {.name = "warmup",
             .share = 1.0,
             .share_setting = offsetof(struct settings, paste_warmup),
             .batch = {.labeled_only = 1},
             .begin = copypaste_begin,
             .turns = {{warmup_gradients, "student"}},
             .after = warmup_after},
            {.name = "mixing",
             .share = 1.0,
             .begin = copypaste_begin,
             .turns = {{mixing_gradients, "student"}},
             .after = mixing_after},
        },
};
