/* copypaste.c - bidirectional copy-paste with a mean teacher: what `--preset auto` trains.
 *
 * Idea of Bai et al. (CVPR 2023): a box of one scan is pasted into another, labelled into unlabelled
 * and the other way round, so that the network sees both kinds in one picture and cannot tell them
 * apart. Voxels of the first, labelled partner are judged by their label, those of the second by the
 * hard label of an averaged teacher, at a lower weight.
 *
 *     items 0 .. n/2-1     first partner, with a box from the second
 *     items n/2 .. n-1     second partner, with a box from the first
 *
 * warmup    both partners are labelled
 * mixing    labelled and unlabelled; the teacher labels clean patches in evaluation mode, with the
 *           student's running statistics
 *
 * A batch holds as many labelled as unlabelled patches; the network sees one mixture of each pair.
 */
#include <string.h>

#include "method/parts.h"

struct paste {
    struct loss_scratch *scratch;
    struct tensor mixed;      /* (n, d, h, w, c) what the student sees */
    struct tensor other;      /* (n, d, h, w, 1) U8 labels of the second partners */
    struct tensor weight[2];  /* (n, d, h, w, 1) F32: 1 where the first, the second partner shows */
    struct tensor confidence; /* (n, d, h, w, 1) F32 of the teacher; data NULL unless asked for */
};

static void paste_done(struct trainer *t)
{
    struct paste *p = t->method_state;
    loss_scratch_free(p->scratch);
    part_free(t, &p->mixed);
    part_free(t, &p->other);
    part_free(t, &p->weight[0]);
    part_free(t, &p->weight[1]);
    part_free(t, &p->confidence);
    memset(p, 0, sizeof *p);
}

static int make(struct trainer *t, struct tensor *x, int c, enum value_type type, struct error *e)
{
    if (!x->data)
        *x = part_like(&t->image, t->n_labeled, c, type);
    return part_alloc(t, x, e);
}

static int paste_begin(struct trainer *t, struct error *e)
{
    struct paste *p = t->method_state;
    const struct settings *s = t->set;
    struct net_definition def = part_definition(t);
    int n = t->n_labeled;
    if (t->n_unlabeled != 0 && t->n_unlabeled != n)
        return fail(e, ERR_CONFIG, "C03", "--labeled-batch %d of %d: copy-paste needs one half", n,
                    n + t->n_unlabeled);
    if (!trainer_model(t, "student", &def, n, NET_TRAINING, 1, e) ||
        !trainer_model(t, "teacher", &def, n, NET_FORWARD_ONLY, 0, e))
        return -1;
    if (make(t, &p->mixed, t->image.c, VALUE_F32, e) < 0 || make(t, &p->other, 1, VALUE_U8, e) < 0 ||
        make(t, &p->weight[0], 1, VALUE_F32, e) < 0 || make(t, &p->weight[1], 1, VALUE_F32, e) < 0)
        return -1;
    if (s->pseudo_threshold > 0 && make(t, &p->confidence, 1, VALUE_F32, e) < 0)
        return -1;
    part_target(t, "teacher");
    if (p->scratch)
        return 0;
    return loss_scratch_new(&p->scratch, t->dev, n, (int)s->patch[0], (int)s->patch[1],
                            (int)s->patch[2], t->store->n_classes, 2, 1, e);
}

/* The box of this step, one for the whole batch. */
static void draw_box(int first[3], int extent[3], const struct trainer *t)
{
    struct rng r = rng_start((uint64_t)t->set->seed, t->draw, RNG_PASTE, 0);
    const int *dims = t->batch->dims;
    for (int a = 0; a < 3; a++) {
        extent[a] = (int)((double)dims[a] * t->set->paste_size);
        first[a] = (int)rng_below(&r, (uint32_t)(dims[a] - extent[a] + 1));
    }
}

/* Mixes item i (first partner) with item partner(i) of the batch: (i + 1) % n in the warm-up, n + i when
 * unlabelled patches stand behind the labelled ones. */
static void mix(struct trainer *t)
{
    struct paste *p = t->method_state;
    const int *dims = t->batch->dims;
    int first[3], extent[3], n = p->mixed.n;
    draw_box(first, extent, t);
    for (int i = 0; i < n; i++) {
        int j = t->n_unlabeled ? n + i : (i + 1) % n, second = i >= n / 2;
        struct tensor a = tensor_items(&t->image, i, 1), b = tensor_items(&t->image, j, 1);
        struct tensor wa = tensor_items(&p->weight[0], i, 1), wb = tensor_items(&p->weight[1], i, 1);
        struct tensor out = tensor_items(&p->mixed, i, 1);
        RUN(t->dev, paste, tensor_voxels(&out), .out = out.data, .ground = second ? b.data : a.data,
            .box = second ? a.data : b.data, .ground_shows = second ? wb.data : wa.data,
            .box_shows = second ? wa.data : wb.data, .c = out.c, .h = dims[1], .w = dims[2],
            .first = {first[0], first[1], first[2]}, .extent = {extent[0], extent[1], extent[2]});
    }
}

/* The student learns from the mixed batch; voxels of second partners count `weight`. */
static void learn(struct trainer *t, double weight)
{
    struct paste *p = t->method_state;
    struct model *student = trainer_find(t, "student");
    struct net_pass pass = part_pass(t, NET_TRAIN, 0);
    net_forward(student->net, &p->mixed, &pass);
    struct tensor logits = net_value(student->net, "logits");
    struct tensor dlogits = net_grad(student->net, "logits"), label = tensor_items(&t->label, 0, p->mixed.n);
    double known = loss_ce_dice(t->dev, p->scratch, &logits, &label, &p->weight[0], 1.0, &dlogits,
                                NULL, NULL);
    double other = loss_ce_dice(t->dev, p->scratch, &logits, &p->other, &p->weight[1], weight,
                                &dlogits, NULL, NULL);
    net_backward(student->net);
    note(t, "loss", known + weight * other);
    note(t, "supervised", known);
    note(t, "pasted", other);
}

static void warmup_gradients(struct trainer *t)
{
    struct paste *p = t->method_state;
    int n = p->mixed.n;
    for (int i = 0; i < n; i++) {
        struct tensor to = tensor_items(&p->other, i, 1), from = tensor_items(&t->label, (i + 1) % n, 1);
        t->dev->ops->copy(t->dev, to.data, from.data, (size_t)tensor_count(&to));
    }
    mix(t);
    learn(t, 1.0);
}

static void mixing_gradients(struct trainer *t)
{
    struct paste *p = t->method_state;
    struct model *teacher = trainer_find(t, "teacher");
    struct tensor unlabeled = tensor_items(&t->image, t->n_labeled, t->n_unlabeled);
    struct net_pass pass = part_pass(t, NET_EVAL, 1);
    net_forward(teacher->net, &unlabeled, &pass);
    struct tensor logits = net_value(teacher->net, "logits");
    hard_labels(t->dev, &logits, &p->other, &p->confidence);
    mix(t);
    if (p->confidence.data)
        RUN(t->dev, mask_below, tensor_voxels(&p->confidence), .weight = p->weight[1].data,
            .value = p->confidence.data, .floor = (float)t->set->pseudo_threshold);
    learn(t, t->set->paste_weight);
}

/* draw, not step: the average goes on over both phases. */
static void paste_after(struct trainer *t)
{
    struct model *student = trainer_find(t, "student"), *teacher = trainer_find(t, "teacher");
    ema_update(teacher->params, student->params, (int64_t)t->draw, t->set->ema_decay);
    part_copy_buffers(teacher->params, student->params);
}

const struct method method_copypaste = {
    .name = "copy-paste",
    .paper = "after Bai et al., CVPR 2023",
    .state_bytes = sizeof(struct paste),
    .done = paste_done,
    .phases = {
        {.name = "warmup", .share = 0.25, .batch = {.labeled_only = 1}, .begin = paste_begin,
         .turns = {{warmup_gradients, "student"}}, .after = paste_after},
        {.name = "mixing", .share = 1.0, .begin = paste_begin,
         .turns = {{mixing_gradients, "student"}}, .after = paste_after},
    },
};
