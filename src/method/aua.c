/* aua.c - "Exploring Feature Representation Learning for Semi-supervised Medical Image Segmentation"
 * (Wu, Zhuang, Zheng; arXiv 2111.10989): two stages on a V-Net.
 *
 * stage1       The student's logits are a low-rank Gaussian N(mu, W W' + D). On labelled patches:
 *                  supervised  = (Monte-Carlo likelihood of the label + Dice of mu) / 2
 *                  bcl         = supervised contrast between projections of voxels near the boundary
 *              on unlabelled ones the generalised energy distance (ged) between samples of the student
 *              and of its averaged teacher, who sees noise:
 *                  loss = supervised + lambda_c bcl + w(t) ged
 * prototypes   The frozen stage-1 student walks over labelled patches; mean and covariance of its
 *              features are pooled per class.
 * stage2       A new network learns from labels and from the stage-1 student's labels of the rest:
 *                  loss = (CE + Dice)/2 on both + lambda_r (pcl on both)
 *              where pcl draws each voxel's feature to the prototype of its class.
 *              Ours, with stage2_paste: boxes are pasted between labelled and unlabelled patches
 *              (paste.c), and the labeller goes on as an averaged teacher of the new network; it is
 *              the result.
 *
 * Where paper and released code differ there is a switch in settings.h. Ours in general: the contrast
 * uses each voxel's own projection (the released code scrambles them), boundaries are centred, and the
 * projection head runs on the sampled voxels alone, which gives the same numbers at a fraction of the
 * work; with head_norm its statistics are therefore those of the sampled voxels.
 */
#include <string.h>

#include "method/parts.h"

struct aua {
    struct loss_scratch *scratch;
    struct net *projection;      /* on the student's weights, for bcl_cap voxels */
    struct tensor noisy;         /* (U, d, h, w, c) what the teacher sees */
    struct tensor pseudo;        /* (U, d, h, w, 1) U8 labels of the stage-1 student */
    struct tensor trusted;       /* (U, d, h, w, 1) F32 0 or 1, by confidence; data NULL: all count */
    struct paste paste;          /* stage2_paste */
    struct tensor points_in;     /* (1, 1, 1, cap, 16) features of the sampled voxels */
    int64_t *points, *points_dev;        /* (L, cap) host, and the same on the device */
    uint8_t *point_label, *label_dev;    /* (L, cap) likewise */
    double *bcl;                 /* (L) the loss inside each labelled item */
    int *n_points;               /* (L) of each labelled item; behind them they repeat up to cap */
    uint8_t *near;               /* (d, h, w) host: which voxels lie at a boundary */
    struct prototypes *prototypes; /* a state of the checkpoint */
};

static void aua_done(struct trainer *t)
{
    struct aua *a = t->method_state;
    loss_scratch_free(a->scratch);
    net_free(a->projection);
    part_free(t, &a->noisy);
    part_free(t, &a->pseudo);
    part_free(t, &a->trusted);
    paste_free(t, &a->paste);
    part_free(t, &a->points_in);
    t->dev->ops->free(t->dev, a->points_dev);
    t->dev->ops->free(t->dev, a->label_dev);
    mem_free(a->points);
    mem_free(a->point_label);
    mem_free(a->n_points);
    mem_free(a->bcl);
    mem_free(a->near);
    mem_free(a->prototypes);
    memset(a, 0, sizeof *a);
}

static struct net_definition definition(const struct trainer *t)
{
    struct net_definition d = part_definition(t);
    d.define = aua_define;
    d.rank = (int)t->set->ssn_rank;
    d.head_norm = t->set->head_norm;
    return d;
}

static int scratch(struct trainer *t, struct error *e)
{
    struct aua *a = t->method_state;
    const struct settings *s = t->set;
    if (a->scratch)
        return 0;
    struct loss_options o = {.classes = t->store->n_classes, .samples = (int)s->mc_samples,
                             .points = (int)s->bcl_cap, .dice_share = s->dice_share};
    return loss_scratch_new(&a->scratch, t->dev, &o, e);
}

/* ---- stage 1 -------------------------------------------------------------------------------- */

static int contrast_begin(struct trainer *t, struct model *student, struct error *e)
{
    struct aua *a = t->method_state;
    const struct settings *s = t->set;
    size_t cap = (size_t)s->bcl_cap, voxels = (size_t)(s->patch[0] * s->patch[1] * s->patch[2]);
    size_t items = (size_t)t->n_labeled;
    struct net_definition def = student->def;
    struct net_shape shape = {.n = 1, .d = 1, .h = 1, .w = (int)cap, .use = NET_TRAINING, .input_grad = 1};
    def.define = projection_define;
    a->points = mem_alloc(e, items * cap, sizeof *a->points);
    a->point_label = mem_alloc(e, items * cap, 1);
    a->n_points = mem_alloc(e, items, sizeof *a->n_points);
    a->bcl = mem_alloc(e, items, sizeof *a->bcl);
    a->near = mem_alloc(e, voxels, 1);
    if (!a->points || !a->point_label || !a->n_points || !a->bcl || !a->near)
        return -1;
    a->points_dev = t->dev->ops->alloc(t->dev, items * cap * sizeof *a->points);
    a->label_dev = t->dev->ops->alloc(t->dev, items * cap);
    if (!a->points_dev || !a->label_dev)
        return device_check(t->dev, e);
    a->points_in = (struct tensor){.type = VALUE_F32, .n = 1, .d = 1, .h = 1, .w = (int)cap, .c = 16};
    if (part_alloc(t, &a->points_in, e) < 0)
        return -1;
    return net_new(&a->projection, student->params, &def, &shape, e);
}

static int stage1_begin(struct trainer *t, struct error *e)
{
    struct aua *a = t->method_state;
    const struct settings *s = t->set;
    struct net_definition def = definition(t);
    struct model *student = trainer_model(t, "student", &def, t->n_labeled + t->n_unlabeled,
                                          NET_TRAINING, 1, e);
    if (!student || !trainer_model(t, "teacher", &def, t->n_unlabeled, NET_FORWARD_ONLY, 0, e))
        return -1;
    if (s->proto_ckpt == PROTO_MIDDLE && !trainer_model(t, "labeller", &def, 0, NET_FORWARD_ONLY, 0, e))
        return -1;
    a->noisy = part_like(&t->image, t->n_unlabeled, t->image.c, VALUE_F32);
    if (part_alloc(t, &a->noisy, e) < 0 || scratch(t, e) < 0)
        return -1;
    if (s->lambda_c > 0 && contrast_begin(t, student, e) < 0)
        return -1;
    part_target(t, "student");
    return 0;
}

/* The distribution that `m` gives for items first .. first+n-1 of its batch. */
static struct gaussian distribution(struct trainer *t, struct model *m, int number, int first, int n)
{
    struct gaussian g = {.rank = m->def.rank, .seed = (uint64_t)t->set->seed, .step = t->draw,
                         .stream = RNG_SAMPLE + 2 * (uint32_t)number, .first_item = first};
    struct tensor mean = net_value(m->net, "mean"), diag = net_value(m->net, "log_cov_diag");
    struct tensor factor = net_value(m->net, "cov_factor");
    g.mean = tensor_items(&mean, first, n);
    g.diag = tensor_items(&diag, first, n);
    g.factor = tensor_items(&factor, first, n);
    return g;
}

/* Where the gradients of items first .. first+n-1 go. set: the losses of a step set them, all items. */
static void distribution_gradients(struct gaussian *g, struct model *m, int first, int n, int set)
{
    static const char *const names[] = {"mean", "log_cov_diag", "cov_factor"};
    struct tensor *to[] = {&g->dmean, &g->ddiag, &g->dfactor};
    for (int i = 0; i < 3; i++) {
        struct tensor all = set ? net_grad_to_set(m->net, names[i]) : net_grad(m->net, names[i]);
        *to[i] = tensor_items(&all, first, n);
    }
    g->fresh = set;
}

/* The voxels that the contrast of this step compares. Work of the host, for which the device need not
 * wait. */
static void choose_points(struct trainer *t)
{
    struct aua *a = t->method_state;
    const struct settings *s = t->set;
    const int *dims = t->batch->dims;
    int64_t voxels = (int64_t)dims[0] * dims[1] * dims[2], cap = s->bcl_cap;
    for (int item = 0; item < t->n_labeled; item++) {
        const uint8_t *label = t->label_host + item * voxels;
        int64_t *points = a->points + item * cap;
        int count = boundary_points(points, a->near, t->dev->pool, label, dims, s->nb_rule, (int)cap,
                                    (uint64_t)s->seed, t->draw, (uint32_t)item);
        a->n_points[item] = count;
        for (int i = 0; i < count; i++)
            a->point_label[item * cap + i] = label[points[i]];
        for (int64_t i = count; i < cap && count > 0; i++)
            points[i] = points[i - count];
    }
    t->dev->ops->upload(t->dev, a->points_dev, a->points,
                        (size_t)(t->n_labeled * cap) * sizeof *a->points);
    t->dev->ops->upload(t->dev, a->label_dev, a->point_label, (size_t)(t->n_labeled * cap));
}

/* Contrast inside one labelled item, its value when the losses are settled; 0 if it has no boundary.
 * Gradients go through the projection head's weights now and into the features' gradient. */
static void contrast_item(struct trainer *t, struct model *student, int item, double weight, double *value)
{
    struct aua *a = t->method_state;
    const struct settings *s = t->set;
    int count = a->n_points[item], cap = (int)s->bcl_cap;
    const int64_t *points = a->points_dev + (int64_t)item * cap;
    *value = 0;
    if (count == 0)
        return;
    struct tensor all = net_value(student->net, "features"), features = tensor_items(&all, item, 1);
    gather_rows(t->dev, a->points_in.data, &features, points, cap);
    struct net_pass pass = {.mode = s->head_norm ? NET_TRAIN : NET_EVAL};
    net_forward(a->projection, &a->points_in, &pass);
    struct tensor g = net_value(a->projection, "projection"), dg = net_grad(a->projection, "projection");
    ask_contrast(a->scratch, g.data, a->label_dev + (int64_t)item * cap, count, g.c, s->bcl_tau,
                 s->bcl_layout, s->bcl_reduce, weight, dg.data, value);
    net_backward(a->projection);
    struct tensor dall = net_grad(student->net, "features"), df = tensor_items(&dall, item, 1);
    struct tensor dpoints = net_input_grad(a->projection);
    /* Through the statistics of head_norm the repeats have gradients, too: a round of them at a time. */
    for (int i = 0; i < (s->head_norm ? cap : count); i += count)
        scatter_rows(t->dev, &df, (const float *)dpoints.data + (int64_t)i * dpoints.c, points + i,
                     i + count < cap ? count : cap - i);
}

/* Inside every labelled item; returns how many have a boundary, over which the mean is taken. */
static int contrast(struct trainer *t, struct model *student, double weight)
{
    struct aua *a = t->method_state;
    int with = 0;
    for (int i = 0; i < t->n_labeled; i++)
        with += part_has_boundary(t, i);
    choose_points(t);
    for (int i = 0; i < t->n_labeled; i++)
        contrast_item(t, student, i, with ? weight / with : 0.0, &a->bcl[i]);
    return with;
}

static double contrast_mean(const struct trainer *t, int with)
{
    const struct aua *a = t->method_state;
    double sum = 0.0;
    for (int i = 0; i < t->n_labeled && with; i++)
        sum += a->bcl[i];
    return with ? sum / with : 0.0;
}

static void stage1_gradients(struct trainer *t)
{
    struct aua *a = t->method_state;
    const struct settings *s = t->set;
    struct model *student = trainer_find(t, "student"), *teacher = trainer_find(t, "teacher");
    int l = t->n_labeled, u = t->n_unlabeled, samples = (int)s->mc_samples;

    struct net_pass pass = part_pass(t, NET_TRAIN, 0);
    net_forward(student->net, &t->image, &pass);
    struct tensor unlabeled = tensor_items(&t->image, l, u);
    add_noise(t->dev, &a->noisy, &unlabeled, s->teacher_noise, (uint64_t)s->seed, t->draw,
              RNG_INPUT_NOISE + 1);
    pass = part_pass(t, NET_TRAIN, 1);
    net_forward(teacher->net, &a->noisy, &pass);

    struct gaussian known = distribution(t, student, 0, 0, l);
    struct gaussian open = distribution(t, student, 0, l, u);
    struct gaussian other = distribution(t, teacher, 1, 0, u);
    distribution_gradients(&known, student, 0, l, 1);
    distribution_gradients(&open, student, l, u, 1);
    if (t->mask.data) {
        known.mask = tensor_items(&t->mask, 0, l);
        open.mask = other.mask = tensor_items(&t->mask, l, u);
    }
    struct tensor label = tensor_items(&t->label, 0, l);
    double half = s->sup_dice ? 0.5 : 1.0, mc, dice = 0.0, ged;
    double w = ramp_weight(s->consistency, t->step, t->steps, s->ramp == RAMP_CONTINUOUS);
    ask_mc_likelihood(a->scratch, &known, &label, samples, half, &mc);
    if (s->sup_dice)
        ask_dice(a->scratch, &known.mean, &label, half, &known.dmean, &dice);
    int with = s->lambda_c > 0 ? contrast(t, student, s->lambda_c) : 0;
    ask_ged(a->scratch, &open, &other, samples, s->ged_metric == GED_JOINT, w, &ged);
    loss_settle(a->scratch);
    net_backward(student->net);

    double supervised = half * (mc + dice), bcl = contrast_mean(t, with);
    note(t, "loss", supervised + s->lambda_c * bcl + w * ged);
    note(t, "supervised", supervised);
    note(t, "likelihood", mc);
    note(t, "dice", dice);
    note(t, "bcl", bcl);
    note(t, "ged", ged);
    note(t, "weight", w);
}

static void stage1_after(struct trainer *t)
{
    struct model *student = trainer_find(t, "student");
    ema_update(trainer_find(t, "teacher")->params, student->params, t->step, t->set->ema_decay);
    if (t->set->proto_ckpt == PROTO_MIDDLE && t->step + 1 == (t->steps + 1) / 2)
        params_copy(trainer_find(t, "labeller")->params, student->params);
}

static int stage1_end(struct trainer *t, struct error *e)
{
    if (t->set->proto_ckpt == PROTO_MIDDLE &&
        trainer_publish(t, "labeller", "stage1-middle.safetensors", e) < 0)
        return -1;
    return trainer_publish(t, "student", "stage1.safetensors", e);
}

/* ---- prototypes ------------------------------------------------------------------------------ */

static int prototypes_state(struct trainer *t, struct error *e)
{
    struct aua *a = t->method_state;
    if (!a->prototypes && !(a->prototypes = mem_alloc(e, 1, sizeof *a->prototypes)))
        return -1;
    a->prototypes->classes = t->store->n_classes;
    a->prototypes->full = t->set->pcl_cov == PCL_FULL;
    return trainer_state(t, "prototypes", a->prototypes, sizeof *a->prototypes, e);
}

/* The stage-1 student that later phases look at, without what only its training needed. */
static struct model *labeller(struct trainer *t, int n_items, struct error *e)
{
    struct net_definition def = definition(t);
    struct model *student = trainer_find(t, "student");
    struct model *m = trainer_model(t, "labeller", &def, n_items, NET_FORWARD_ONLY, 0, e);
    if (m && student && t->set->proto_ckpt == PROTO_LAST)
        params_copy(m->params, student->params);
    return m;
}

static int prototypes_begin(struct trainer *t, struct error *e)
{
    struct aua *a = t->method_state;
    net_free(a->projection);
    a->projection = NULL;
    part_free(t, &a->noisy);
    if (!labeller(t, t->n_labeled, e))
        return -1;
    trainer_drop_model(t, "teacher");
    trainer_drop_model(t, "student");
    part_target(t, "labeller");
    return scratch(t, e) < 0 ? -1 : prototypes_state(t, e);
}

static void prototypes_gradients(struct trainer *t)
{
    struct aua *a = t->method_state;
    struct model *m = trainer_find(t, "labeller");
    struct net_pass pass = part_pass(t, NET_EVAL, 0);
    net_forward(m->net, &t->image, &pass);
    struct tensor features = net_value(m->net, "features");
    prototypes_update(t->dev, a->prototypes, &features, &t->label);
    note(t, "loss", 0.0);
}

/* ---- stage 2 --------------------------------------------------------------------------------- */

static int paste_begin(struct trainer *t, struct error *e)
{
    struct aua *a = t->method_state;
    if (t->n_labeled != t->n_unlabeled)
        return fail(e, ERR_CONFIG, "C03", "--labeled-batch %d of %d: --stage2-paste needs one half",
                    t->n_labeled, t->n_labeled + t->n_unlabeled);
    if (t->set->stage2_cov)
        return fail(e, ERR_CONFIG, "C03", "--stage2-cov needs patches of one scan, not --stage2-paste");
    return paste_alloc(t, &a->paste, t->n_labeled, e);
}

static int stage2_begin(struct trainer *t, struct error *e)
{
    struct aua *a = t->method_state;
    struct net_definition def = definition(t);
    trainer_drop_plan(t, "labeller");
    struct model *first = labeller(t, t->n_unlabeled, e);
    if (!first)
        return -1;
    int paste = t->set->stage2_paste, n = t->n_labeled + (paste ? 0 : t->n_unlabeled);
    struct model *m = trainer_model(t, "stage2", &def, n, NET_TRAINING, 1, e);
    if (!m || (paste && paste_begin(t, e) < 0))
        return -1;
    if (t->set->stage2_init == STAGE2_STAGE1 && t->step == 0)
        params_copy(m->params, first->params);
    a->pseudo = part_like(&t->image, t->n_unlabeled, 1, VALUE_U8);
    a->trusted = part_like(&t->image, t->n_unlabeled, 1, VALUE_F32);
    if (part_alloc(t, &a->pseudo, e) < 0 || scratch(t, e) < 0)
        return -1;
    if (t->set->pseudo_threshold > 0 && part_alloc(t, &a->trusted, e) < 0)
        return -1;
    part_target(t, paste ? "labeller" : "stage2");
    return prototypes_state(t, e);
}

/* Stage-1 labels of the unlabelled items, and which of them to believe. */
static void pseudo_labels(struct trainer *t, const struct tensor *unlabeled)
{
    struct aua *a = t->method_state;
    struct model *m = trainer_find(t, "labeller");
    struct net_pass pass = part_pass(t, NET_EVAL, 1);
    net_forward(m->net, unlabeled, &pass);
    struct tensor logits = net_value(m->net, "mean");
    hard_labels(t->dev, &logits, &a->pseudo, &a->trusted);
    if (a->trusted.data)
        RUN(t->dev, at_least, tensor_voxels(&a->trusted), .value = a->trusted.data,
            .floor = (float)t->set->pseudo_threshold);
}

/* Pasted, every item is partly labelled and partly not, and weights say where; else the unlabelled items
 * stand behind the labelled ones. Prototypes of mixtures are not learnt. */
static void stage2_gradients(struct trainer *t)
{
    struct aua *a = t->method_state;
    const struct settings *s = t->set;
    struct model *m = trainer_find(t, "stage2");
    int l = t->n_labeled, u = t->n_unlabeled, open = s->stage2_paste ? 0 : l;
    struct tensor unlabeled = tensor_items(&t->image, l, u), none = {.data = NULL};
    const struct tensor *image = &t->image, *weight_l = &none, *weight_u = &a->trusted;
    double share = s->stage2_paste ? s->paste_weight : s->pseudo_weight;

    pseudo_labels(t, &unlabeled);
    if (s->stage2_paste) {
        paste_mix(t, &a->paste, &t->image, &unlabeled, 0);
        image = &a->paste.mixed;
        weight_l = &a->paste.weight[0];
        weight_u = &a->paste.weight[1];
        if (a->trusted.data)
            RUN(t->dev, mask_below, tensor_voxels(weight_u), .weight = weight_u->data,
                .value = a->trusted.data, .floor = 1.0f);
    }
    struct net_pass pass = part_pass(t, NET_TRAIN, 0);
    net_forward(m->net, image, &pass);

    struct tensor logits = net_value(m->net, "mean"), dlogits = net_grad(m->net, "mean");
    struct tensor label = tensor_items(&t->label, 0, l);
    struct tensor zl = tensor_items(&logits, 0, l), zu = tensor_items(&logits, open, u);
    struct tensor dzl = tensor_items(&dlogits, 0, l), dzu = tensor_items(&dlogits, open, u);
    double known = loss_ce_dice(t->dev, a->scratch, &zl, &label, weight_l, 1.0, &dzl, NULL, NULL);
    double pseudo = loss_ce_dice(t->dev, a->scratch, &zu, &a->pseudo, weight_u, share, &dzu, NULL, NULL);

    double pcl_l = 0.0, pcl_u = 0.0;
    struct tensor f = net_value(m->net, "features"), fl = tensor_items(&f, 0, l);
    if (s->proto_update && !s->stage2_paste)
        prototypes_update(t->dev, a->prototypes, &fl, &label);
    if (s->lambda_r > 0) {
        struct tensor df = net_grad(m->net, "features"), dfl = tensor_items(&df, 0, l);
        struct tensor fu = tensor_items(&f, open, u), dfu = tensor_items(&df, open, u);
        pcl_l = loss_prototypes(t->dev, a->scratch, a->prototypes, &fl, &label, weight_l, s->pcl_tau,
                                s->pcl_ignore_bg, s->lambda_r, &dfl);
        pcl_u = loss_prototypes(t->dev, a->scratch, a->prototypes, &fu, &a->pseudo, weight_u, s->pcl_tau,
                                s->pcl_ignore_bg, s->lambda_r, &dfu);
    }
    double mc = 0.0;
    if (s->stage2_cov) {
        struct gaussian g = distribution(t, m, 0, 0, l);
        distribution_gradients(&g, m, 0, l, 0);
        g.mask = t->mask.data ? tensor_items(&t->mask, 0, l) : none;
        mc = loss_mc_likelihood(t->dev, a->scratch, &g, &label, (int)s->mc_samples, 1.0);
    }
    net_backward(m->net);
    note(t, "loss", known + share * pseudo + s->lambda_r * (pcl_l + pcl_u) + mc);
    note(t, "supervised", known);
    note(t, "pseudo", pseudo);
    note(t, "pcl_labeled", pcl_l);
    note(t, "pcl_pseudo", pcl_u);
}

static void stage2_after(struct trainer *t)
{
    if (t->set->stage2_paste)
        part_average(t, "labeller", "stage2");
}

const struct method method_aua = {
    .name = "aua",
    .paper = "Wu, Zhuang, Zheng: arXiv 2111.10989",
    .consistency = 0.15,
    .state_bytes = sizeof(struct aua),
    .done = aua_done,
    .phases = {
        {.name = "stage1", .share = 1.0, .stage = 1, .batch = {.host_labels = 1}, .begin = stage1_begin,
         .turns = {{stage1_gradients, "student"}}, .after = stage1_after, .end = stage1_end},
        {.name = "prototypes", .share = 0.5, .stage = 2, .batch = {.labeled_only = 1, .plain = 1},
         .begin = prototypes_begin, .turns = {{prototypes_gradients, NULL}}},
        {.name = "stage2", .share = 1.0, .by_stage2_share = 1, .stage = 2, .begin = stage2_begin,
         .turns = {{stage2_gradients, "stage2"}}, .after = stage2_after},
    },
};
