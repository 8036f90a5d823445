/* loss.c - losses on plain logits, hard labels, noise on inputs; and the memory of all losses.
 *
 * Each loss is two passes over the voxels (kernels_loss.h): sums, from which the host makes the
 * value and a few coefficients in double, then the gradient. Logits are read twice, softmax is made
 * twice, nothing of the size of the logits is stored. Between the two the host waits for the device, so
 * several losses make their first passes one after the other and wait once (loss_scratch.h).
 *
 *     CE   = sum w nll / sum w
 *     Dice = mean over c >= first of 1 - (2 I + eps) / A
 *            with I = sum w p y,  A = sum w p^2 + sum w y + eps; first is 1, or 0 with background
 *     dDice/dp(c) = (-2 y / A + (2 I + eps) 2 p / A^2) w / (classes - first)
 *     linear: A = sum w p + sum w y + eps, and 1 for 2 p there
 *
 * Sums run over all items together. A class that is nowhere has A = sum w p^2 + eps: finite, and it
 * pushes its probability down.
 */
#include "train/loss_scratch.h"

#include <string.h>

#include "device/contrast.h"
#include "device/isa/loops.h"

static const double DICE_EPS = 1e-5, LINEAR_EPS = 1e-8; /* as published with squares, and without */

/* ---- memory ---------------------------------------------------------------------------------- */

static int check_shape(int classes, int samples, struct error *e)
{
    if (classes < 2 || classes > KERNEL_CLASSES)
        return fail(e, ERR_CONFIG, NULL, "%d classes: from 2 to %d are possible", classes, KERNEL_CLASSES);
    if (samples < 0 || samples % 2 || samples > GAUSSIAN_SAMPLES)
        return fail(e, ERR_CONFIG, NULL, "%d samples: an even number up to %d is possible", samples,
                    GAUSSIAN_SAMPLES);
    if (samples * classes > 2 * GAUSS_ROWS)
        return fail(e, ERR_CONFIG, "C03",
                    "--mc-samples %d with %d classes: the product is %d, allowed up to "
                    "%d",
                    samples, classes, samples * classes, 2 * GAUSS_ROWS);
    return 0;
}

/* Doubles that sums may need: the Gram matrices of several items, and all else that is asked with them. */
static size_t sums_room(const struct loss_scratch *s)
{
    size_t classes = (size_t)s->classes, samples = (size_t)s->samples;
    return 8 * classes * (2 * samples * samples + samples) + classes * K_ORDER_1 + LOOP_SUMS;
}

static int scratch_fill(struct loss_scratch *s, struct error *e)
{
    struct device *dev = s->dev;
    size_t classes = (size_t)s->classes, samples = (size_t)s->samples, rows = (size_t)s->points;
    s->room = sums_room(s);
    s->table_count = 2 * classes + classes * 2 * samples * samples;
    if (s->table_count < classes * K_PROTO_ROW) /* prototypes.c; more than loss_contrast.c needs */
        s->table_count = classes * K_PROTO_ROW;
    if (!(s->sums = mem_alloc(e, s->room, sizeof *s->sums)) ||
        !(s->host = mem_alloc(e, s->table_count, sizeof *s->host)))
        return -1;
    s->table = dev->ops->alloc(dev, s->table_count * sizeof(float));
    s->found = dev->ops->alloc(dev, s->room * sizeof(double));
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
    s->dice_first = o->dice_background ? 0 : 1;
    s->dice_linear = o->dice_linear;
    s->likelihood_sum = o->likelihood_sum;
    s->ged_sum = o->ged_sum;
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
    void *device_memory[] = {s->table, s->found, s->rows, s->pull, s->anchor, s->log_sum, s->contrast};
    for (size_t i = 0; i < sizeof device_memory / sizeof *device_memory; i++)
        s->dev->ops->free(s->dev, device_memory[i]);
    mem_free(s->sums);
    mem_free(s->host);
    mem_free(s);
}

/* ---- asking and settling --------------------------------------------------------------------- */

struct pending *loss_ask(struct loss_scratch *s, size_t n_sums, double *value)
{
    CHECK(n_sums <= s->room);
    if (s->n_pending == LOSS_PENDING || s->asked + n_sums > s->room)
        loss_settle(s);
    struct pending *p = &s->pending[s->n_pending++];
    *p = (struct pending){.first = s->asked, .value = value};
    s->asked += n_sums;
    return p;
}

void loss_settle(struct loss_scratch *s)
{
    size_t bytes = s->asked * sizeof *s->sums;
    int n = s->n_pending;
    if (n == 0)
        return;
    memset(s->sums, 0, bytes); /* what a failed device says */
    s->dev->ops->download(s->dev, s->sums, s->found, bytes);
    s->n_pending = 0;
    s->asked = 0;
    for (int i = 0; i < n; i++)
        s->pending[i].settle(s, &s->pending[i], s->sums + s->pending[i].first);
}

/* ---- cross-entropy and Dice ------------------------------------------------------------------ */

/* Values, and in s->host the coefficients a(c), b(c) of dDice/dp(c) = a y + b p. */
static void ce_dice_values(const struct ce_dice *l, struct loss_scratch *s, const double *sums, double *ce,
                           double *dice)
{
    float *a = s->host, *b = s->host + s->classes;
    int first = s->dice_first;
    double share = 1.0 / (s->classes - first), eps = s->dice_linear ? LINEAR_EPS : DICE_EPS;
    *ce = sums[0] / sums[1];
    *dice = 0;
    a[0] = b[0] = 0;
    for (int c = first; c < s->classes; c++) {
        const double *of = sums + 2 + 3 * (c - first); /* p y, p p, y */
        double top = 2 * of[0] + eps, bottom = of[1] + of[2] + eps;
        *dice += share * (1 - top / bottom);
        a[c] = (float)(l->w_dice * share * -2 / bottom);
        b[c] = (float)(l->w_dice * share * (s->dice_linear ? 1 : 2) * top / (bottom * bottom));
    }
}

static void ce_dice_grad(const struct ce_dice *l, struct loss_scratch *s, double total)
{
    struct device *dev = s->dev;
    if (l->w_ce == 0 && l->w_dice == 0)
        return;
    dev->ops->upload(dev, s->table, s->host, 2 * (size_t)s->classes * sizeof(float));
    RUN(dev, ce_dice_grad, tensor_voxels(&l->logits), .logits = l->logits.data, .label = l->label.data,
        .weight = l->weights, .dlogits = l->dlogits.data, .classes = s->classes,
        .ce = (float)(l->w_ce / total), .a = s->table, .b = s->table + s->classes, .linear = s->dice_linear);
}

static void ce_dice_settle(struct loss_scratch *s, const struct pending *p, const double *sums)
{
    const struct ce_dice *l = &p->of.ce_dice;
    double ce = 0, dice = 0, total = sums[1];
    if (total != 0) { /* else no voxel takes part */
        ce_dice_values(l, s, sums, &ce, &dice);
        ce_dice_grad(l, s, total);
    }
    if (l->loss)
        *l->loss = (1 - s->dice_share) * ce + s->dice_share * dice;
    if (l->ce)
        *l->ce = ce;
    if (l->dice)
        *l->dice = dice;
}

static void ce_dice_ask(struct loss_scratch *s, const struct ce_dice *l)
{
    int classes = l->logits.c, n_sums = 2 + 3 * (classes - s->dice_first);
    int64_t voxels = tensor_voxels(&l->logits);
    CHECK(classes == s->classes && l->label.type == VALUE_U8 && tensor_voxels(&l->label) == voxels);
    struct pending *p = loss_ask(s, (size_t)n_sums, NULL);
    p->settle = ce_dice_settle;
    p->of.ce_dice = *l;
    SUM(s->dev, ce_dice, voxels, n_sums, s->found + p->first, .logits = l->logits.data,
        .label = l->label.data, .weight = l->weights, .classes = classes, .background = !s->dice_first,
        .linear = s->dice_linear);
}

void ask_dice(struct loss_scratch *s, const struct tensor *logits, const struct tensor *label, double weight,
              const struct tensor *dlogits, double *value)
{
    struct ce_dice l = {
        .logits = *logits, .label = *label, .dlogits = *dlogits, .w_dice = weight, .dice = value};
    ce_dice_ask(s, &l);
}

void ask_ce_dice(struct loss_scratch *s, const struct tensor *logits, const struct tensor *label,
                 const struct tensor *weights, double weight, const struct tensor *dlogits, double *loss,
                 double *ce, double *dice)
{
    struct ce_dice l = {.logits = *logits,
                        .label = *label,
                        .weights = weights ? weights->data : NULL,
                        .dlogits = *dlogits,
                        .w_ce = (1 - s->dice_share) * weight,
                        .w_dice = s->dice_share * weight,
                        .loss = loss,
                        .ce = ce,
                        .dice = dice};
    ce_dice_ask(s, &l);
}

double loss_ce_dice(struct loss_scratch *s, const struct tensor *logits, const struct tensor *label,
                    const struct tensor *weights, double weight, const struct tensor *dlogits, double *ce,
                    double *dice)
{
    double loss = 0;
    ask_ce_dice(s, logits, label, weights, weight, dlogits, &loss, ce, dice);
    loss_settle(s);
    return loss;
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
    RUN(dev, noise, (count + 3) / 4, .out = out->data, .in = in->data, .count = count, .sd = (float)sd,
        .seed = seed, .step = step, .stream = stream);
}
