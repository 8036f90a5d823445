/* aua.c - "Exploring Feature Representation Learning for Semi-supervised Medical Image Segmentation"
 * (Huimin Wu, Xiaomeng Li, Kwang-Ting Cheng; arXiv 2111.10989): two stages on a V-Net.
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
 *              (paste.c), the new network begins as the labeller, and the labeller goes on as its
 *              averaged teacher; it is the result.
 *
 * Where paper and released code differ there is a switch in settings.h. Ours in general: the contrast
 * uses each voxel's own projection (the released code scrambles them), boundaries are centred, and the
 * projection head runs on the sampled voxels alone, which gives the same numbers at a fraction of the
 * work; with head_norm its statistics are therefore those of the sampled voxels.
 */
#include "method/aua.h"

#include <stddef.h>
#include <string.h>

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
    part_free(t, &a->point_grads);
    t->dev->ops->free(t->dev, a->points_dev);
    t->dev->ops->free(t->dev, a->label_dev);
    t->dev->ops->free(t->dev, a->place_dev);
    mem_free(a->points);
    mem_free(a->row_label);
    mem_free(a->scramble.row_voxels);
    mem_free(a->scramble.place);
    mem_free(a->scramble.row_rank);
    mem_free(a->scramble.of_rank);
    mem_free(a->n_points);
    mem_free(a->n_rows);
    mem_free(a->bcl);
    mem_free(a->near);
    mem_free(a->prototypes);
    memset(a, 0, sizeof *a);
}

struct net_definition aua_definition(const struct trainer *t)
{
    struct net_definition d = part_definition(t);
    d.define = aua_define;
    d.rank = (int)t->set->ssn_rank;
    d.head_norm = t->set->head_norm;
    return d;
}

int aua_scratch(struct trainer *t, struct error *e)
{
    struct aua *a = t->method_state;
    const struct settings *s = t->set;
    if (a->scratch)
        return 0;
    struct loss_options o = {.classes = t->store->n_classes,
                             .samples = (int)s->mc_samples,
                             .points = (int)s->bcl_cap,
                             .dice_share = s->dice_share,
                             .likelihood_sum = s->mc_reduce == REDUCE_SUM,
                             .ged_sum = s->ged_reduce == REDUCE_SUM};
    return loss_scratch_new(&a->scratch, t->dev, &o, e);
}

struct gaussian aua_distribution(struct trainer *t, struct model *m, int number, int first, int n)
{
    struct gaussian g = {.rank = m->def.rank,
                         .seed = (uint64_t)t->set->seed,
                         .step = t->draw,
                         .stream = RNG_SAMPLE + 2 * (uint32_t)number,
                         .first_item = first};
    struct tensor mean = net_value(m->net, "mean"), diag = net_value(m->net, "log_cov_diag");
    struct tensor factor = net_value(m->net, "cov_factor");
    g.mean = tensor_items(&mean, first, n);
    g.diag = tensor_items(&diag, first, n);
    g.factor = tensor_items(&factor, first, n);
    return g;
}

void aua_gradients(struct gaussian *g, struct model *m, int first, int n, int set)
{
    static const char *const names[] = {"mean", "log_cov_diag", "cov_factor"};
    struct tensor *to[] = {&g->dmean, &g->ddiag, &g->dfactor};
    for (int i = 0; i < 3; i++) {
        struct tensor all = set ? net_grad_to_set(m->net, names[i]) : net_grad(m->net, names[i]);
        *to[i] = tensor_items(&all, first, n);
    }
    g->fresh = set;
}

static int aua_check(const struct settings *s, struct error *e)
{
    if (semi_check(s, e) < 0)
        return -1;
    if (!s->stage2_paste || s->stages == 1)
        return 0;
    if (s->stage2_cov)
        return fail(e, ERR_CONFIG, "C03", "--stage2-cov needs patches of one scan, not --stage2-paste");
    return paste_check(s, "--stage2-paste", e);
}

/* run.sh (Pancreas-CT, 20 %) and the defaults of its scripts, but not bcl-layout = official, a defect. */
#define PUBLISHED                                                                                            \
    "optimizer = sgd\nmomentum = 0.9\nweight-decay = 0.0001\n" /* optim.SGD(...) */                          \
    "steps = 6000\nschedule = step\nlr = 0.01\n" /* --max_iterations, --base_lr / 10 every 2,500 */          \
    "batch = 4\nema-decay = 0.99\n"              /* --batch_size, --labeled_bs 2, --ema_decay */             \
    "rampup = steps\nrampup-length = 6000\n"     /* --consistency_rampup 40 stairs of 150 */                 \
    "patch = 96\naugment = crop\n"               /* patch_size, --data_loader_labeled_aug=None */            \
    "dropout = both\n"                           /* StochasticVNetSupCon(has_dropout=True) */                \
    "ssn-rank = 8\nmc-samples = 6\n"             /* --ssn_rank, --num_mc_samples */                          \
    "sup-dice = true\nged-metric = class-mean\n" /* --with_dice, --pairwise_dist_metric=cls_mean_dice */     \
    "cov-mask = inside\n"                        /* --with_mask_ssn: the mask of Pancreas is 1 throughout */ \
    "lambda-c = 0.09\nbcl-cap = 9000\n"          /* --sup_cont_weight, --random_sampled_num */               \
    "bcl-tau = 0.07\nhead-norm = false\n"        /* --temp, --head_normalization none */                     \
    "nb-rule = official\nbcl-reduce = mean\n"    /* get_pixel_samples_near_boundary(), SupConLoss */         \
    "proto-ckpt = middle\nproto-update = true\n" /* --load_epoch_num=3000, --estimator_starts_iter=0 */      \
    "pseudo-weight = 1\nlambda-r = 0.1\n"        /* --LAMBDA_PSEUDO, --LAMBDA_FEAT */                        \
    "pcl-tau = 100\npcl-cov = diagonal\n"        /* PixelContrastiveLoss */                                  \
    "pcl-ignore-bg = true\n"                     /* --IGNORE_LABEL=0 */                                      \
    "window-mode = constant\nstride = 16\n"      /* test_pancreas_ged_supcontrast_all.py */

const struct method method_aua = {
    .name = "aua",
    .paper = "Wu, Li, Cheng: arXiv 2111.10989",
    .consistency = 0.15,
    .published = PUBLISHED,
    .check = aua_check,
    .state_bytes = sizeof(struct aua),
    .done = aua_done,
    .phases =
        {
            {.name = "stage1",
             .share = 1.0,
             .stage = 1,
             .batch = {.host_labels = 1},
             .begin = stage1_begin,
             .turns = {{stage1_gradients, "student"}},
             .after = stage1_after,
             .end = stage1_end},
            {.name = "prototypes",
             .share = 0.5,
             .stage = 2,
             .batch = {.labeled_only = 1, .plain = 1},
             .begin = prototypes_begin,
             .turns = {{prototypes_gradients, NULL}}},
            {.name = "stage2",
             .share = 1.0,
             .share_setting = offsetof(struct settings, stage2_share),
             .stage = 2,
             .begin = stage2_begin,
             .turns = {{stage2_gradients, "stage2"}},
             .after = stage2_after},
        },
};
