/* eval_output.c - scores as JSON, as CSV and as a table. See eval.h.
 *
 * Undefined values are null in JSON, empty in CSV and "-" in the table. Names of columns carry the
 * definition and the unit, because "95HD" alone means three different numbers in the literature.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/eval.h"
#include "report/html.h"

static const char *protocol_name(const struct metric_options *o)
{
    return o->protocol == METRIC_PROTOCOL_PAPER ? "paper" : "mm";
}

static const char *unit_name(const struct metric_options *o)
{
    return o->protocol == METRIC_PROTOCOL_PAPER ? "voxels" : "mm";
}

/* ---- JSON ---------------------------------------------------------------------------------- */

static void values_to_json(struct js_out *o, const char *key, const double value[METRIC_COUNT])
{
    js_out_open(o, key, '{');
    for (int m = 0; m < METRIC_COUNT; m++)
        js_out_real(o, metric_name((enum metric)m), value[m]);
    js_out_close(o, '}');
}

static char *class_key(char out[16], const struct class_score *s)
{
    snprintf(out, 16, "%d", s->class);
    return out;
}

static void case_to_json(struct js_out *o, const struct case_score *c)
{
    char key[16];
    double mean[METRIC_COUNT];
    js_out_open(o, NULL, '{');
    js_out_text(o, "name", c->name);
    js_out_open(o, "classes", '{');
    for (int k = 0; k < c->n_classes; k++) {
        js_out_open(o, class_key(key, &c->classes[k]), '{');
        for (int m = 0; m < METRIC_COUNT; m++)
            js_out_real(o, metric_name((enum metric)m), c->classes[k].value[m]);
        js_out_int(o, "voxels_truth", c->classes[k].n_truth);
        js_out_int(o, "voxels_prediction", c->classes[k].n_prediction);
        js_out_close(o, '}');
    }
    js_out_close(o, '}');
    metrics_case_mean(mean, c);
    values_to_json(o, "mean", mean);
    js_out_close(o, '}');
}

static void summary_to_json(struct js_out *o, const struct case_score *cases, int n_cases, int k)
{
    struct metric_summary s;
    metrics_summarise(&s, cases, n_cases, k);
    values_to_json(o, "mean", s.mean);
    values_to_json(o, "sd", s.sd);
}

void eval_to_json(struct js_out *o, const char *member, const struct case_score *cases, int n_cases,
                  const struct metric_options *options)
{
    struct metric_empties empty;
    char key[16];
    metrics_count_empties(&empty, cases, n_cases);
    js_out_open(o, member, '{');
    js_out_text(o, "protocol", protocol_name(options));
    js_out_text(o, "unit", unit_name(options));
    js_out_real(o, "nsd_tolerance", options->nsd_tolerance);
    js_out_open(o, "cases", '[');
    for (int i = 0; i < n_cases; i++)
        case_to_json(o, &cases[i]);
    js_out_close(o, ']');
    js_out_open(o, "classes", '{');
    for (int k = 0; k < cases[0].n_classes; k++) {
        js_out_open(o, class_key(key, &cases[0].classes[k]), '{');
        summary_to_json(o, cases, n_cases, k);
        js_out_close(o, '}');
    }
    js_out_close(o, '}');
    summary_to_json(o, cases, n_cases, -1);
    js_out_int(o, "n_cases", n_cases);
    js_out_int(o, "n_empty_predictions", empty.predictions);
    js_out_int(o, "n_empty_truths", empty.truths);
    js_out_int(o, "n_empty_both", empty.both);
    js_out_close(o, '}');
}

int eval_print_json(const struct case_score *cases, int n_cases, const struct metric_options *options)
{
    struct js_out o = {0};
    eval_to_json(&o, NULL, cases, n_cases, options);
    return console_json(&o);
}

/* ---- CSV ----------------------------------------------------------------------------------- */

static void csv_header(struct html *h, const struct metric_options *o)
{
    html_add(h, "case,class,voxels_truth,voxels_prediction");
    for (int m = 0; m < METRIC_COUNT; m++) {
        const char *name = m == METRIC_HD95 ? "hd95_pooled" : metric_name((enum metric)m);
        int distance = metric_is_distance((enum metric)m);
        if (m == METRIC_NSD)
            html_add(h, ",nsd_at_%g%s", o->nsd_tolerance, unit_name(o));
        else
            html_add(h, ",%s%s%s", name, distance ? "_" : "", distance ? unit_name(o) : "");
    }
    html_add(h, "\n");
}

static void csv_values(struct html *h, const double value[METRIC_COUNT])
{
    for (int m = 0; m < METRIC_COUNT; m++)
        if (isfinite(value[m]))
            html_add(h, ",%.10g", value[m]);
        else
            html_add(h, ",");
    html_add(h, "\n");
}

static void csv_summary(struct html *h, const struct case_score *cases, int n_cases, int k)
{
    struct metric_summary s;
    char class[16] = "all";
    metrics_summarise(&s, cases, n_cases, k);
    if (k >= 0)
        snprintf(class, sizeof class, "%d", cases[0].classes[k].class);
    html_add(h, "mean,%s,,", class);
    csv_values(h, s.mean);
    html_add(h, "sd,%s,,", class);
    csv_values(h, s.sd);
}

int eval_write_csv(const char *path, const struct case_score *cases, int n_cases,
                   const struct metric_options *o, struct error *e)
{
    struct html h = {0};
    csv_header(&h, o);
    for (int i = 0; i < n_cases; i++)
        for (int k = 0; k < cases[i].n_classes; k++) {
            const struct class_score *s = &cases[i].classes[k];
            html_csv(&h, cases[i].name);
            html_add(&h, ",%d,%lld,%lld", s->class, (long long)s->n_truth, (long long)s->n_prediction);
            csv_values(&h, s->value);
        }
    for (int k = -1; k < cases[0].n_classes; k++)
        csv_summary(&h, cases, n_cases, k);
    return html_write(&h, path, e);
}

/* ---- table --------------------------------------------------------------------------------- */

/* Fractions with four digits, distances with three significant decimals. */
static void print_value(double v, int is_distance)
{
    if (isfinite(v))
        printf(" %9.*f", is_distance ? 3 : 4, v);
    else
        printf(" %9s", "-");
}

static void print_cases(const struct case_score *cases, int n_cases, const struct metric_options *o)
{
    static const enum metric shown[] = {METRIC_DICE, METRIC_JACCARD, METRIC_ASD, METRIC_HD95, METRIC_NSD};
    enum { N_SHOWN = sizeof shown / sizeof *shown };
    int width = 4;
    char name[41];
    for (int i = 0; i < n_cases; i++) {
        int n = (int)strlen(text_escape(name, sizeof name, cases[i].name));
        width = n > width ? n : width;
    }
    printf("%-*s", width, "case");
    for (int m = 0; m < N_SHOWN; m++)
        printf(" %9s", metric_name(shown[m]));
    printf("   (distances in %s)\n", unit_name(o));
    for (int i = 0; i < n_cases; i++) {
        double value[METRIC_COUNT];
        metrics_case_mean(value, &cases[i]);
        printf("%-*s", width, text_escape(name, sizeof name, cases[i].name));
        for (int m = 0; m < N_SHOWN; m++)
            print_value(value[shown[m]], metric_is_distance(shown[m]));
        printf("\n");
    }
}

static void print_mean_sd(const struct metric_summary *s, int m)
{
    int digits = metric_is_distance((enum metric)m) ? 3 : 4;
    char text[64] = "-";
    if (isfinite(s->sd[m]))
        snprintf(text, sizeof text, "%.*f \u00b1 %.*f", digits, s->mean[m], digits, s->sd[m]);
    else if (isfinite(s->mean[m]))
        snprintf(text, sizeof text, "%.*f", digits, s->mean[m]);
    printf("  %*s", isfinite(s->sd[m]) ? 18 : 17, text);
}

/* One row a metric; one column for all classes together, then one a class. */
static void print_summary(const struct case_score *cases, int n_cases, const struct metric_options *o)
{
    enum { CLASS_COLUMNS = 4 }; /* fits 100 columns; more classes go to CSV and JSON */
    int n_classes = cases[0].n_classes == 1 ? 0 : cases[0].n_classes;
    int n_shown = n_classes < CLASS_COLUMNS ? n_classes : CLASS_COLUMNS;
    struct metric_summary s[CLASS_COLUMNS + 1];
    for (int k = 0; k <= n_shown; k++)
        metrics_summarise(&s[k], cases, n_cases, k - 1);
    /* the sign is two bytes and one column */
    printf("\n%-*s  %17s", n_cases == 1 ? 14 : 15, n_cases == 1 ? "one case" : "mean \u00b1 sd",
           n_classes ? "all classes" : protocol_name(o));
    for (int k = 0; k < n_shown; k++)
        printf("  %11s %5d", "class", cases[0].classes[k].class);
    printf("%s\n", n_classes > n_shown ? "  ..." : "");
    for (int m = 0; m < METRIC_COUNT; m++) {
        printf("%-14s", metric_name((enum metric)m));
        for (int k = 0; k <= n_shown; k++)
            print_mean_sd(&s[k], m);
        printf("\n");
    }
}

void eval_print_table(const struct case_score *cases, int n_cases, const struct metric_options *o)
{
    struct metric_empties empty;
    print_cases(cases, n_cases, o);
    print_summary(cases, n_cases, o);
    metrics_count_empties(&empty, cases, n_cases);
    if (empty.predictions + empty.truths + empty.both)
        printf("\nempty: %d predictions, %d truths, %d both%s\n", empty.predictions, empty.truths, empty.both,
               o->protocol == METRIC_PROTOCOL_PAPER
                   ? "; an empty prediction counts as 0 in dice, jaccard, asd and hd95"
                   : "; undefined values are left out of the means");
}
