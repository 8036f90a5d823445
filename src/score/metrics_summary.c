/* metrics_summary.c - means over classes and cases: the second half of metrics.h.
 *
 * A case's value is the mean over its foreground classes; the set's value is the mean over cases. A
 * value that is undefined (NaN) takes no part, and metric_summary.n says how many did.
 */
#include <math.h>
#include <string.h>

#include "score/metrics.h"

/* Marks the classes of all cases in seen[65536]; class 1 if there is none. Returns their number. */
static int classes_seen(uint8_t *seen, const struct case_score *cases, int n_cases)
{
    int n = 0;
    for (int i = 0; i < n_cases; i++)
        for (int k = 0; k < cases[i].n_classes; k++) {
            n += !seen[cases[i].classes[k].class];
            seen[cases[i].classes[k].class] = 1;
        }
    if (n == 0)
        seen[1] = 1;
    return n ? n : 1;
}

static void score_absent(struct class_score *s, int class, const struct metric_options *o)
{
    memset(s, 0, sizeof *s);
    s->class = (label_t) class;
    for (int m = 0; m < METRIC_COUNT; m++)
        s->value[m] = NAN;
    if (o->protocol == METRIC_PROTOCOL_PAPER)
        s->value[METRIC_DICE] = s->value[METRIC_JACCARD] = s->value[METRIC_ASD] = s->value[METRIC_HD95] = 0;
}

int metrics_align(struct case_score *cases, int n_cases, const struct metric_options *o, struct error *e)
{
    int result = -1;
    uint8_t *seen = mem_alloc(e, UINT16_MAX + 1, 1);
    if (!seen)
        return -1;
    int n = classes_seen(seen, cases, n_cases);
    for (int i = 0; i < n_cases; i++) {
        struct class_score *full = mem_alloc(e, (size_t)n, sizeof *full);
        if (!full)
            goto out;
        for (int c = 1, k = 0, from = 0; c <= UINT16_MAX; c++) {
            if (!seen[c])
                continue;
            if (from < cases[i].n_classes && cases[i].classes[from].class == c)
                full[k++] = cases[i].classes[from++];
            else
                score_absent(&full[k++], c, o);
        }
        mem_free(cases[i].classes);
        cases[i].classes = full;
        cases[i].n_classes = n;
    }
    result = 0;
out:
    mem_free(seen);
    return result;
}

void metrics_case_mean(double out[METRIC_COUNT], const struct case_score *c)
{
    for (int m = 0; m < METRIC_COUNT; m++) {
        double sum = 0;
        int n = 0;
        for (int k = 0; k < c->n_classes; k++)
            if (!isnan(c->classes[k].value[m])) {
                sum += c->classes[k].value[m];
                n++;
            }
        out[m] = n ? sum / n : NAN;
    }
}

static void case_values(double out[METRIC_COUNT], const struct case_score *c, int k)
{
    if (k < 0)
        metrics_case_mean(out, c);
    else
        memcpy(out, c->classes[k].value, METRIC_COUNT * sizeof *out);
}

void metrics_summarise(struct metric_summary *out, const struct case_score *cases, int n_cases, int k)
{
    double value[METRIC_COUNT], squares[METRIC_COUNT] = {0};
    memset(out, 0, sizeof *out);
    for (int i = 0; i < n_cases; i++) {
        case_values(value, &cases[i], k);
        for (int m = 0; m < METRIC_COUNT; m++)
            if (!isnan(value[m])) {
                out->mean[m] += value[m];
                out->n[m]++;
            }
    }
    for (int m = 0; m < METRIC_COUNT; m++)
        out->mean[m] = out->n[m] ? out->mean[m] / out->n[m] : NAN;
    /* a second pass keeps the digits that a sum of squares loses */
    for (int i = 0; i < n_cases; i++) {
        case_values(value, &cases[i], k);
        for (int m = 0; m < METRIC_COUNT; m++)
            if (!isnan(value[m]))
                squares[m] += (value[m] - out->mean[m]) * (value[m] - out->mean[m]);
    }
    for (int m = 0; m < METRIC_COUNT; m++)
        out->sd[m] = out->n[m] > 1 ? sqrt(squares[m] / (out->n[m] - 1)) : NAN;
}

void metrics_count_empties(struct metric_empties *out, const struct case_score *cases, int n_cases)
{
    memset(out, 0, sizeof *out);
    for (int i = 0; i < n_cases; i++)
        for (int k = 0; k < cases[i].n_classes; k++) {
            const struct class_score *s = &cases[i].classes[k];
            out->both += s->n_truth == 0 && s->n_prediction == 0;
            out->truths += s->n_truth == 0 && s->n_prediction > 0;
            out->predictions += s->n_truth > 0 && s->n_prediction == 0;
        }
}
