/* loss.c - losses on plain logits, hard labels, noise on inputs; and the memory of all losses.
 *
 * Each loss is two passes over the voxels (kernels_loss.h): sums, from which the host makes the
 * value and a few coefficients in double, then the gradient. Logits are read twice, softmax is made
 * twice, nothing of the size of the logits is stored.
 *
 *     CE   = sum w nll / sum w
 *     Dice = mean over c > 0 of 1 - (2 I + eps) / A
 *            with I = sum w p y,  A = sum w p^2 + sum w y + eps
 *     dDice/dp(c) = (-2 y / A + (2 I + eps) 2 p / A^2) w / (classes - 1)
 *
 * Sums run over all items together. A class that is nowhere has A = sum w p^2 + eps: finite, and it
 * pushes its probability down.
 */
#include "train/loss_scratch.h"

#include "device/contrast.h"
#include "device/isa/loops.h"
#include "device/kernels.h"

static const double DICE_EPS = 1e-5; /* as published with the squared denominator */

/* ---- memory ---------------------------------------------------------------------------------- */

static int check_shape(int classes, int samples, struct error *e)
{
    if (classes < 2 || classes > KERNEL_CLASSES)
        return fail(e, ERR_CONFIG, NULL, "%d classes: from 2 to %d are possible", classes,
                    KERNEL_CLASSES);
    if (samples < 0 || samples % 2 || samples > GAUSSIAN_SAMPLES)
        return fail(e, ERR_CONFIG, NULL, "%d samples: an even number up to %d is possible", samples,
                    GAUSSIAN_SAMPLES);
    if (samples * classes > 2 * GAUSS_ROWS)
        return fail(e, ERR_CONFIG, NULL, "%d samples of %d classes: the product may be %d at most",
                    samples, classes, 2 * GAUSS_ROWS);
    return 0;
}

static int scratch_fill(struct loss_scratch *s, struct error *e)
{
    struct device *dev = s->dev;
    size_t classes = (size_t)s->classes, samples = (size_t)s->samples, rows = (size_t)s->points;
    size_t grams = classes * (2 * samples * samples + samples);
    s->table_count = 2 * classes + classes * 2 * samples * samples;
    if (s->table_count < classes * K_PROTO_ROW) /* prototypes.c; more than loss_contrast.c needs */
        s->table_count = classes * K_PROTO_ROW;
    if (!(s->sums = mem_alloc(e, grams + LOOP_SUMS, sizeof *s->sums)) ||
        !(s->host = mem_alloc(e, s->table_count, sizeof *s->host)))
        return -1;
    s->table = dev->ops->alloc(dev, s->table_count * sizeof(float));
    if (rows) {
        s->rows = dev->ops->alloc(dev, rows * CONTRAST_DIMS * sizeof(float));
        s->pull = dev->ops->alloc(dev, rows * CONTRAST_DIMS * sizeof(float));
        s->anchor = dev->ops->alloc(dev, rows * sizeof(float));
        s->log_sum = dev->ops->alloc(dev, rows * sizeof(float));
        s->contrast = dev->ops->alloc(dev, contrast_scratch(s->points));
    }
    return device_check(dev, e);
}

int loss_scratch_new(struct loss_scratch **out, struct device *dev, const struct loss_options *o,
                     struct error *e)
{
    *out = NULL;
    if (check_shape(o->classes, o->samples, e) < 0)
        return -1;
    struct loss_scratch *s = mem_alloc(e, 1, sizeof *s);
    if (!s)
        return -1;
    s->dev = dev;
    s->classes = o->classes;
    s->samples = o->samples;
    s->points = o->points;
    s->dice_share = o->dice_share;
    if (scratch_fill(s, e) < 0) {
        loss_scratch_free(s);
        return -1;
    }
    *out = s;
    return 0;
}

void loss_scratch_free(struct loss_scratch *s)
{
    if (!s)
        return;
    void *device_memory[] = {s->table, s->rows, s->pull, s->anchor, s->log_sum, s->contrast};
    for (size_t i = 0; i < sizeof device_memory / sizeof *device_memory; i++)
        s->dev->ops->free(s->dev, device_memory[i]);
    mem_free(s->sums);
    mem_free(s->host);
    mem_free(s);
}

/* ---- cross-entropy and Dice ------------------------------------------------------------------ */

struct ce_dice {
    const struct tensor *logits, *label, *dlogits;
    const float *weights;      /* of voxels; NULL: 1 */
    double w_ce, w_dice;       /* gradient: w_ce dCE + w_dice dDice */
    double ce, dice;           /* values */
};

/* Values, and in s->host the coefficients a(c), b(c) of dDice/dp(c) = a y + b p. */
static void ce_dice_values(struct ce_dice *l, struct loss_scratch *s, int classes)
{
    const double *sums = s->sums;
    float *a = s->host, *b = s->host + classes;
    double share = 1.0 / (classes - 1);
    l->ce = sums[0] / sums[1];
    l->dice = 0;
    for (int c = 1; c < classes; c++) {
        const double *of = sums + 3 * c - 1; /* p y, p p, y */
        double top = 2 * of[0] + DICE_EPS, bottom = of[1] + of[2] + DICE_EPS;
        l->dice += share * (1 - top / bottom);
        a[c] = (float)(l->w_dice * share * -2 / bottom);
        b[c] = (float)(l->w_dice * share * 2 * top / (bottom * bottom));
    }
}

static void ce_dice_run(struct ce_dice *l, struct device *dev, struct loss_scratch *s)
{
    int classes = l->logits->c;
    int64_t voxels = tensor_voxels(l->logits);
    CHECK(classes == s->classes && l->label->type == VALUE_U8 && tensor_voxels(l->label) == voxels);
    REDUCE(dev, ce_dice, voxels, 3 * classes - 1, s->sums, .logits = l->logits->data,
           .label = l->label->data, .weight = l->weights, .classes = classes);
    double total = s->sums[1];
    if (total == 0)
        return; /* no voxel takes part */
    ce_dice_values(l, s, classes);
    if (!l->dlogits || !l->dlogits->data || (l->w_ce == 0 && l->w_dice == 0))
        return;
    dev->ops->upload(dev, s->table, s->host, 2 * (size_t)classes * sizeof(float));
    RUN(dev, ce_dice_grad, voxels, .logits = l->logits->data, .label = l->label->data,
        .weight = l->weights, .dlogits = l->dlogits->data, .classes = classes,
        .ce = (float)(l->w_ce / total), .a = s->table, .b = s->table + classes);
}

double loss_ce_dice(struct device *dev, struct loss_scratch *s, const struct tensor *logits,
                    const struct tensor *label, const struct tensor *weights, double weight,
                    const struct tensor *dlogits, double *ce, double *dice)
{
    struct ce_dice l = {.logits = logits, .label = label, .dlogits = dlogits,
                        .weights = weights ? weights->data : NULL,
                        .w_ce = (1 - s->dice_share) * weight, .w_dice = s->dice_share * weight};
    ce_dice_run(&l, dev, s);
    if (ce)
        *ce = l.ce;
    if (dice)
        *dice = l.dice;
    return (1 - s->dice_share) * l.ce + s->dice_share * l.dice;
}

double loss_dice(struct device *dev, struct loss_scratch *s, const struct tensor *logits,
                 const struct tensor *label, double weight, const struct tensor *dlogits)
{
    struct ce_dice l = {.logits = logits, .label = label, .dlogits = dlogits, .w_dice = weight};
    ce_dice_run(&l, dev, s);
    return l.dice;
}

/* ---- shared by many methods ------------------------------------------------------------------ */

void hard_labels(struct device *dev, const struct tensor *logits, const struct tensor *label,
                 const struct tensor *confidence)
{
    CHECK(logits->c <= KERNEL_CLASSES && label->type == VALUE_U8);
    RUN(dev, hard_label, tensor_voxels(logits), .logits = logits->data, .label = label->data,
        .confidence = confidence ? confidence->data : NULL, .classes = logits->c);
}

void add_noise(struct device *dev, const struct tensor *out, const struct tensor *in, double sd,
               uint64_t seed, uint64_t step, uint32_t stream)
{
    int64_t count = tensor_count(in);
    RUN(dev, noise, (count + 3) / 4, .out = out->data, .in = in->data, .count = count,
        .sd = (float)sd, .seed = seed, .step = step, .stream = stream);
}
