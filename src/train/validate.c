/* validate.c - see validate.h. Windows, weights and reassembly are those of prediction
 * (predict.h), on the grid of the prepared cases.
 */
#include "train/validate.h"

#include <math.h>
#include <string.h>

/* Voxels of every class in truth, prediction and both -> Dice of class 1 .. n into dice[0 .. n-1];
 * NaN where a class is in neither. */
static void dice_of(double *dice, int n, const label_t *truth, const label_t *prediction, size_t voxels)
{
    int64_t sizes[VALIDATE_CLASSES] = {0}, both[VALIDATE_CLASSES] = {0};
    CHECK(n < VALIDATE_CLASSES);
    for (size_t v = 0; v < voxels; v++) {
        label_t a = truth[v], b = prediction[v];
        if (a <= n)
            sizes[a]++;
        if (b <= n)
            sizes[b]++;
        if (a == b && a <= n)
            both[a]++;
    }
    for (int k = 0; k < n; k++)
        dice[k] = sizes[k + 1] ? 2.0 * (double)both[k + 1] / (double)sizes[k + 1] : NAN;
}

/* Sums on their way to means. */
struct sums {
    double dice, per_class[VALIDATE_CLASSES];
    int cases, n[VALIDATE_CLASSES], undefined;
};

static void add_case(struct sums *s, const double *dice, int n)
{
    double sum = 0.0;
    int defined = 0;
    for (int k = 0; k < n; k++) {
        if (isnan(dice[k])) {
            s->undefined++;
            continue;
        }
        sum += dice[k];
        defined++;
        s->per_class[k] += dice[k];
        s->n[k]++;
    }
    if (defined == 0)
        return;
    s->dice += sum / defined;
    s->cases++;
}

static void finish(struct validation *out, const struct sums *s, int n)
{
    out->n = n;
    out->undefined = s->undefined;
    out->dice = s->cases ? s->dice / s->cases : NAN;
    for (int k = 0; k < n; k++)
        out->per_class[k] = s->n[k] ? s->per_class[k] / s->n[k] : NAN;
}

static struct predict_options windows_of(const struct validate_options *o, int (*stop)(void *), void *arg)
{
    return (struct predict_options){.patch = {o->patch[0], o->patch[1], o->patch[2]},
                                    .stride = {o->stride[0], o->stride[1], o->stride[2]},
                                    .weight = o->weight,
                                    .stop = stop,
                                    .arg = arg};
}

int validate(struct validation *out, struct device *dev, struct params *p, const struct net_definition *def,
             const struct case_store *cases, const struct validate_options *o, struct error *e)
{
    struct predict_model model = {p, *def};
    struct predict_options po = windows_of(o, o->stop, o->arg);
    struct predictor *predictor = NULL;
    struct sums sums = {.dice = 0};
    double dice[VALIDATE_CLASSES];
    int n = def->classes - 1, result = -1;
    if (predictor_new(&predictor, dev, &model, NULL, &po, e) < 0)
        goto out;
    for (int i = 0; i < cases->n_cases; i++) {
        const struct stored_case *c = &cases->cases[i];
        struct prediction got = {.label = NULL};
        CHECK(c->label);
        if (predict_array(&got, predictor, c->image, c->dims, e) < 0)
            goto out;
        dice_of(dice, n, c->label, got.label, case_voxels(c));
        add_case(&sums, dice, n);
        prediction_free(&got);
    }
    finish(out, &sums, n);
    result = 0;
out:
    predictor_free(predictor);
    return result;
}

/* ---- how long ---------------------------------------------------------------------------------- */

/* Counts runs of the network; the first one is cold. */
struct probe {
    const struct validate_options *o;
    double most, first, last;
    int64_t runs;
};

static int probe_run(void *arg)
{
    struct probe *p = arg;
    p->last = p->o->clock(p->o->clock_arg);
    if (p->runs++ == 0)
        p->first = p->last;
    return (p->runs > 1 && p->last - p->first >= p->most) || (p->o->stop && p->o->stop(p->o->arg));
}

int validate_seconds(double *seconds, struct device *dev, struct params *p, const struct net_definition *def,
                     const struct case_store *cases, const struct validate_options *o, double most,
                     struct error *e)
{
    struct probe probe = {.o = o, .most = most};
    struct predict_model model = {p, *def};
    struct predict_options po = windows_of(o, probe_run, &probe);
    struct predictor *predictor = NULL;
    struct prediction got = {.label = NULL};
    double begun = o->clock(o->clock_arg);
    int64_t all = 0;
    int result = predictor_new(&predictor, dev, &model, NULL, &po, e);
    if (result == 0)
        result = predict_array(&got, predictor, cases->cases[0].image, cases->cases[0].dims, e);
    for (int i = 0; predictor && i < cases->n_cases; i++)
        all += predictor_runs(predictor, cases->cases[i].dims);
    if (probe.runs > 0) {
        double run =
            probe.runs > 1 ? (probe.last - probe.first) / (double)(probe.runs - 1) : probe.last - begun;
        *seconds = run * (double)all;
        result = 0;
    }
    prediction_free(&got);
    predictor_free(predictor);
    return result;
}
