/* loss_gaussian.c - the two losses on logit samples of a low-rank Gaussian: Monte-Carlo likelihood
 * of the labels, and generalised energy distance between the samples of two networks.
 *
 *     mean, diag, factor --+-- draw samples --> sums by item --> host: value, coefficients
 *     random numbers ------+-- draw them again ----------------> gradients of mean, diag, factor
 *
 * Samples come in antithetic pairs (kernels_gauss.h) and are drawn again in the second pass: memory
 * does not grow with their number.
 *
 * Likelihood of item b:  l(s) = sum over voxels of ln softmax(sample s)(label);
 *     L = - mean over b of [ ln sum_s exp l(s) - ln S ] / V
 * as released. The text of the paper, Eq. 2 to 4, has no 1 / V: log p(y|g) is the sum over the V voxels of
 * an image and over its classes. Sample s has the share omega(s) = softmax_s l(s) of the gradient. l is a
 * sum over all voxels, so the best sample of a large patch takes nearly everything; samples without a share
 * are not drawn again.
 *
 * Energy distance of item b, P the student's samples after softmax, Q the teacher's:
 *     (2 sum_ij d(Pi,Qj) - sum_ij d(Pi,Pj) - sum_ij d(Qi,Qj)) / S^2
 * as released. Eq. 7 has no 1 / S^2: each of the three is a sum over the S x S pairs, i = j included. (Its
 * indices run from 0 to S, while "we take S samples"; here there are S.) Neither equation has a batch: the
 * mean over b is the released code's in both forms. Distances need only the products K = sum over voxels of
 * P Q, class by class (Gram matrices), and so do the coefficients of their gradients
 *     class mean   d = 1 - mean over c of (2 K(c) + eps) / (N(c) + eps),  N = |P|^2 + |Q|^2
 *     joint        d = 1 - sum K(c) / sum N(c),  so 1/2 for equal arguments (Eq. 8)
 *     dd/dP(c) = -a(c) Q(c) + b(c) P(c)
 */
#include "train/loss_scratch.h"

#include "base/rng.h"
#include "device/isa/loops.h"

static const double GED_EPS = 1e-5;     /* as published */
static const double SHARE_FLOOR = 1e-9; /* of a sample: below the rounding of the others' sum */

/* ---- one item -------------------------------------------------------------------------------- */

/* epsilon(pair, k): one random block gives four of them. */
static void draw_epsilon(float eps[GAUSS_PAIRS][GAUSS_RANK], const struct gaussian *g, uint64_t item,
                         int pairs)
{
    for (int p = 0; p < pairs; p++) {
        for (int k = 0; k < g->rank; k += 4) {
            uint64_t index = ((item * GAUSS_PAIRS + (uint64_t)p) * GAUSS_RANK + (uint64_t)k) / 4;
            struct rng_block b = rng_block(g->seed, g->step, g->stream, index);
            k_normal(&eps[p][k], &eps[p][k + 1], b.v[0], b.v[1]);
            k_normal(&eps[p][k + 2], &eps[p][k + 3], b.v[2], b.v[3]);
        }
    }
}

static int64_t item_voxels(const struct gaussian *g)
{
    return (int64_t)g->mean.d * g->mean.h * g->mean.w;
}

static struct k_gauss gauss_item(const struct gaussian *g, int item, int samples)
{
    int64_t voxels = item_voxels(g), classes = g->mean.c;
    uint64_t place = (uint64_t)(g->first_item + item);
    struct k_gauss k = {
        .mean = (const float *)g->mean.data + item * voxels * classes,
        .diag = (const float *)g->diag.data + item * voxels * classes,
        .factor = (const float *)g->factor.data + item * voxels * classes * g->rank,
        .mask = g->mask.data ? (const uint8_t *)g->mask.data + item * voxels : NULL,
        .classes = (int)classes,
        .rank = g->rank,
        .pairs = samples / 2,
        .wanted = (1u << (samples / 2)) - 1,
        .seed = g->seed,
        .step = g->step,
        .stream = g->stream + 1,
        .first = place * (uint64_t)voxels,
    };
    CHECK(g->rank >= 0 && g->rank <= GAUSS_RANK && g->factor.c == g->rank * g->mean.c);
    draw_epsilon(k.eps, g, place, k.pairs);
    return k;
}

static float *grad_of(const struct tensor *t, int64_t offset)
{
    return t->data ? (float *)t->data + offset : NULL;
}

static struct k_gauss_grad grad_item(const struct gaussian *g, int item)
{
    int64_t rows = item * item_voxels(g), classes = g->mean.c;
    struct k_gauss_grad d = {
        .mean = grad_of(&g->dmean, rows * classes),
        .diag = grad_of(&g->ddiag, rows * classes),
        .factor = grad_of(&g->dfactor, rows * classes * g->rank),
        .fresh = g->fresh,
    };
    return d;
}

/* 1 if there is a gradient to make; fresh ones that a weight of 0 leaves out are zeros. */
static int start_grad(struct device *dev, const struct k_gauss_grad *d, const struct k_gauss *g,
                      int64_t voxels, double weight)
{
    float *all[] = {d->mean, d->diag, d->factor};
    size_t row = (size_t)g->classes * sizeof(float), rows[] = {row, row, row * (size_t)g->rank};
    for (int i = 0; i < 3 && d->fresh && weight == 0; i++)
        if (all[i])
            dev->ops->zero(dev, all[i], (size_t)voxels * rows[i]);
    return weight != 0 && (d->mean || d->diag || d->factor);
}

/* ---- Monte-Carlo likelihood ------------------------------------------------------------------ */

/* Returns ln mean over s of exp l(s), where nll(s) = -l(s); share(s) = softmax of l. */
static double log_mean_exp(double *share, const double *nll, int samples)
{
    double least = nll[0], sum = 0;
    for (int s = 1; s < samples; s++)
        least = nll[s] < least ? nll[s] : least;
    for (int s = 0; s < samples; s++)
        sum += share[s] = exp(least - nll[s]);
    for (int s = 0; s < samples; s++)
        share[s] /= sum;
    return log(sum / samples) - least;
}

static void likelihood_grad(struct device *dev, struct likelihood *l, const double *share)
{
    if (!start_grad(dev, &l->k.d, &l->k.g, l->voxels, l->weight))
        return;
    l->k.g.wanted = 0;
    for (int s = 0; s < l->samples; s++) {
        l->k.omega[s] = 0;
        if (share[s] >= SHARE_FLOOR) {
            l->k.omega[s] = (float)(l->weight * share[s]);
            l->k.g.wanted |= 1u << s % (l->samples / 2);
        }
    }
    dev->ops->map(dev, KERNEL_sample_nll_grad, &l->k, l->voxels);
}

static void likelihood_settle(struct loss_scratch *s, const struct pending *p, const double *nll)
{
    struct likelihood l = p->of.likelihood;
    double share[GAUSSIAN_SAMPLES];
    *p->value -= l.scale * log_mean_exp(share, nll, l.samples);
    likelihood_grad(s->dev, &l, share);
}

void ask_mc_likelihood(struct loss_scratch *s, const struct gaussian *g, const struct tensor *label,
                       int samples, double weight, double *value)
{
    int items = g->mean.n;
    int64_t voxels = item_voxels(g);
    double scale = 1.0 / ((double)items * (s->likelihood_sum ? 1.0 : (double)voxels));
    CHECK(samples >= 2 && samples <= s->samples && g->mean.c == s->classes);
    *value = 0;
    for (int b = 0; b < items; b++) {
        struct r_sample_nll pass = {.g = gauss_item(g, b, samples),
                                    .label = (const uint8_t *)label->data + b * voxels};
        struct pending *p = loss_ask(s, (size_t)samples, value);
        p->settle = likelihood_settle;
        p->of.likelihood = (struct likelihood){.k = {.g = pass.g, .d = grad_item(g, b), .label = pass.label},
                                               .voxels = voxels,
                                               .samples = samples,
                                               .scale = scale,
                                               .weight = weight * scale};
        s->dev->ops->sum(s->dev, REDUCE_sample_nll, &pass, voxels, samples, s->found + p->first);
    }
}

double loss_mc_likelihood(struct loss_scratch *s, const struct gaussian *g, const struct tensor *label,
                          int samples, double weight)
{
    double value;
    ask_mc_likelihood(s, g, label, samples, weight, &value);
    loss_settle(s);
    return value;
}

/* ---- generalised energy distance ------------------------------------------------------------- */

/* Gram matrices of an item: class by class P Q in full, then P P and Q Q above the diagonal. */
struct grams {
    const double *sums;
    int classes, samples, joint;
};
enum gram_kind { GRAM_PQ, GRAM_PP, GRAM_QQ };

static int gram_count(int samples)
{
    return samples * samples + samples * (samples + 1);
}

static double gram_at(const struct grams *g, enum gram_kind kind, int c, int i, int j)
{
    int n = g->samples, low = i < j ? i : j, high = i < j ? j : i;
    int triangle = low * n - low * (low - 1) / 2 + high - low, half = n * (n + 1) / 2;
    int at = kind == GRAM_PQ ? i * n + j : n * n + (kind == GRAM_QQ) * half + triangle;
    return g->sums[c * gram_count(n) + at];
}

/* Distance of sample i (of P, or of Q for QQ) from sample j (of Q, or of P for PP), and the
 * coefficients of its gradient with respect to the first: dd(c) = -a(c) other + b(c) own. */
static double pair_distance(double *a, double *b, const struct grams *g, enum gram_kind kind, int i, int j)
{
    enum gram_kind first = kind == GRAM_QQ ? GRAM_QQ : GRAM_PP;
    enum gram_kind second = kind == GRAM_PP ? GRAM_PP : GRAM_QQ;
    double distance = 1, inner = 0, norms = 0;
    for (int c = 0; c < g->classes; c++) {
        double k = gram_at(g, kind, c, i, j);
        double n = gram_at(g, first, c, i, i) + gram_at(g, second, c, j, j);
        double top = 2 * k + GED_EPS, bottom = n + GED_EPS;
        inner += k;
        norms += n;
        a[c] = 2 / bottom / g->classes;
        b[c] = 2 * top / (bottom * bottom) / g->classes;
        distance -= top / bottom / g->classes;
    }
    if (!g->joint)
        return distance;
    for (int c = 0; c < g->classes; c++) {
        a[c] = 1 / norms;
        b[c] = 2 * inner / (norms * norms);
    }
    return 1 - inner / norms;
}

/* Sum over all pairs of samples. */
static double ged_value(const struct grams *g)
{
    double a[KERNEL_CLASSES], b[KERNEL_CLASSES], sum = 0;
    for (int i = 0; i < g->samples; i++)
        for (int j = 0; j < g->samples; j++)
            sum += 2 * pair_distance(a, b, g, GRAM_PQ, i, j) - pair_distance(a, b, g, GRAM_PP, i, j) -
                   pair_distance(a, b, g, GRAM_QQ, i, j);
    return sum;
}

/* The table of k_ged_grad: what dGED/dP(i) takes of every Q and P, times weight. A pair of P's
 * occurs twice in the sum, hence the factor 2 for both kinds. */
static void ged_mix(float *mix, const struct grams *g, double weight, int divisor)
{
    int n = g->samples;
    double a[KERNEL_CLASSES], b[KERNEL_CLASSES], own[KERNEL_CLASSES];
    double f = 2 * weight / divisor;
    for (int i = 0; i < n; i++) {
        for (int c = 0; c < g->classes; c++)
            own[c] = 0;
        for (int j = 0; j < n; j++) {
            pair_distance(a, b, g, GRAM_PQ, i, j);
            for (int c = 0; c < g->classes; c++) {
                mix[(c * n + i) * 2 * n + j] = (float)(-f * a[c]);
                own[c] += f * b[c];
            }
            if (j == i)
                continue; /* d(P,P) is constant */
            pair_distance(a, b, g, GRAM_PP, i, j);
            for (int c = 0; c < g->classes; c++) {
                mix[(c * n + i) * 2 * n + n + j] = (float)(f * a[c]);
                own[c] -= f * b[c];
            }
        }
        for (int c = 0; c < g->classes; c++)
            mix[(c * n + i) * 2 * n + n + i] = (float)own[c];
    }
}

/* As many classes a pass as LOOP_SUMS allows: all of them, for few classes or samples. */
static void ged_grams(struct device *dev, double *sums, const struct k_ged_grad *k, int64_t voxels)
{
    int count = gram_count(2 * k->p.pairs), a_pass = LOOP_SUMS / count;
    for (int c = 0; c < k->p.classes; c += a_pass) {
        int end = k->p.classes - c < a_pass ? k->p.classes : c + a_pass;
        SUM(dev, gram, voxels, (end - c) * count, sums + c * count, .p = k->p, .q = k->q, .c0 = c, .c1 = end);
    }
}

static void ged_settle(struct loss_scratch *s, const struct pending *p, const double *sums)
{
    const struct ged *l = &p->of.ged;
    struct device *dev = s->dev;
    struct grams g = {sums, s->classes, 2 * l->k.p.pairs, l->joint};
    size_t table = (size_t)g.classes * 2 * (size_t)g.samples * (size_t)g.samples * sizeof(float);
    *p->value += ged_value(&g) / l->divisor / l->items;
    if (!start_grad(dev, &l->k.d, &l->k.p, l->voxels, l->weight))
        return;
    ged_mix(s->host, &g, l->weight, l->divisor);
    dev->ops->upload(dev, s->table, s->host, table);
    dev->ops->map(dev, KERNEL_ged_grad, &l->k, l->voxels);
}

void ask_ged(struct loss_scratch *s, const struct gaussian *student, const struct gaussian *teacher,
             int samples, int joint, double weight, double *value)
{
    int items = student->mean.n, classes = student->mean.c;
    int64_t voxels = item_voxels(student);
    CHECK(samples >= 2 && samples <= s->samples && classes == s->classes && teacher->mean.n == items &&
          teacher->mean.c == classes && item_voxels(teacher) == voxels);
    *value = 0;
    for (int b = 0; b < items; b++) {
        struct pending *p = loss_ask(s, (size_t)classes * (size_t)gram_count(samples), value);
        p->settle = ged_settle;
        p->of.ged = (struct ged){.k = {.p = gauss_item(student, b, samples),
                                       .q = gauss_item(teacher, b, samples),
                                       .d = grad_item(student, b),
                                       .mix = s->table},
                                 .voxels = voxels,
                                 .joint = joint,
                                 .items = items,
                                 .divisor = s->ged_sum ? 1 : samples * samples,
                                 .weight = weight / items};
        ged_grams(s->dev, s->found + p->first, &p->of.ged.k, voxels);
    }
}
