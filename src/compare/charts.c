/* charts.c - the figures of a comparison that are drawn from numbers. See compare.h.
 *
 *     dice-by-case      a dot a method and case, one chart a number of labels
 *     dice-by-labels    mean Dice over the number of labelled cases, a curve a method
 *     learning-curves   loss over steps, first finished seed of each method
 *     validation        Dice on validation cases over steps, where there were some
 *     uncertainty       how unsure the network was of a case, and how good its mask is
 *     features          of voxels near the boundary, with and without contrast, along their main axes
 *
 * Methods come from the first table, in its order; of the ablations only the parts of AUA have a figure.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "compare/compare.h"
#include "report/svg.h"
#include "score/statistics.h"

enum { MAX_LINES = 64, MAX_COUNTS = 16 };

static const char *const names[CHART_COUNT] = {"dice-by-case", "dice-by-labels", "learning-curves",
                                               "validation",   "uncertainty",    "features"};

const char *compare_chart_name(enum compare_chart k)
{
    return names[k];
}

/* The i-th number of labelled cases in the methods' table, or -1. */
static int64_t label_count(const struct compare_table *t, int i)
{
    int64_t seen[MAX_COUNTS];
    int n = 0;
    for (int l = 0; l < t->n_lines; l++) {
        int k = 0;
        while (k < n && seen[k] != t->lines[l].labeled)
            k++;
        if (k == n && n < MAX_COUNTS)
            seen[n++] = t->lines[l].labeled;
    }
    return i < n ? seen[i] : -1;
}

static int is_drawn(const struct compare_line *l, int64_t labeled)
{
    return l->n_done > 0 && (labeled < 0 || l->labeled == labeled);
}

static int draw_cases(struct html *h, const struct comparison *c, int64_t labeled, int alone, struct error *e)
{
    const struct compare_table *t = &c->tables[0];
    struct svg_row rows[MAX_LINES];
    char title[120];
    int n = 0;
    double *dice = mem_alloc(e, (size_t)t->n_lines * (size_t)c->n_cases + 1, sizeof *dice);
    if (!dice)
        return -1;
    for (int l = 0; l < t->n_lines && n < MAX_LINES; l++) {
        double *mine = dice + (size_t)l * (size_t)c->n_cases;
        if (!is_drawn(&t->lines[l], labeled))
            continue;
        for (int i = 0; i < c->n_cases; i++)
            mine[i] = t->lines[l].cases[i][0];
        rows[n++] = (struct svg_row){.name = t->lines[l].title, .value = mine};
    }
    snprintf(title, sizeof title, "Dice of each case, %lld labelled", (long long)labeled);
    struct svg_dots d = {.title = title,
                         .x_name = "Dice",
                         .cases = (const char *const *)c->cases,
                         .n_cases = c->n_cases,
                         .rows = rows,
                         .n_rows = n,
                         .alone = alone};
    if (n > 0)
        svg_dots(h, &d);
    mem_free(dice);
    return n > 0;
}

/* One curve a title, over its numbers of labels in ascending order. */
static int draw_labels(struct html *h, const struct comparison *c, int alone)
{
    const struct compare_table *t = &c->tables[0];
    struct svg_series series[MAX_LINES];
    double x[MAX_LINES][MAX_COUNTS], y[MAX_LINES][MAX_COUNTS];
    int n = 0, several = 0;
    for (int l = 0; l < t->n_lines; l++) {
        int s = 0;
        while (s < n && strcmp(series[s].name, t->lines[l].title) != 0)
            s++;
        if (!is_drawn(&t->lines[l], -1) || s == MAX_LINES || (s < n && series[s].n == MAX_COUNTS))
            continue;
        if (s == n)
            series[n++] = (struct svg_series){.name = t->lines[l].title, .x = x[s], .y = y[s], .colour = s};
        int at = series[s].n++;
        for (; at > 0 && x[s][at - 1] > (double)t->lines[l].labeled; at--) {
            x[s][at] = x[s][at - 1];
            y[s][at] = y[s][at - 1];
        }
        x[s][at] = (double)t->lines[l].labeled;
        y[s][at] = t->lines[l].mean[0];
        several |= series[s].n > 1;
    }
    struct svg_chart chart = {.title = "Dice by the number of labelled cases",
                              .x_name = "labelled cases",
                              .y_name = "Dice",
                              .series = series,
                              .n_series = n,
                              .dots = 1,
                              .alone = alone};
    if (several)
        svg_lines(h, &chart);
    return several;
}

/* The phases of one run, in one colour. Returns how many series there are then. */
static int add_curves(struct svg_series series[MAX_LINES], int n,
                      const struct compare_curve curves[REPORT_PHASES], const char *name, int colour)
{
    for (int i = 0; i < REPORT_PHASES && n < MAX_LINES; i++) {
        if (curves[i].n == 0)
            continue;
        series[n++] = (struct svg_series){
            .name = name, .x = curves[i].step, .y = curves[i].value, .n = curves[i].n, .colour = colour};
        name = NULL;
    }
    return n;
}

static int draw_curves(struct html *h, const struct comparison *c, int64_t labeled, int validation, int alone)
{
    const struct compare_table *t = &c->tables[0];
    struct svg_series series[MAX_LINES];
    char title[120];
    int n = 0, colour = 0;
    for (int l = 0; l < t->n_lines; l++) {
        const struct compare_run *r = NULL;
        for (int s = 0; s < t->lines[l].n_seeds && !r; s++)
            r = t->lines[l].runs[s] && !t->lines[l].runs[s]->error ? t->lines[l].runs[s] : NULL;
        if (r && t->lines[l].labeled == labeled)
            n = add_curves(series, n, validation ? r->validation : r->loss, t->lines[l].title, colour++);
    }
    snprintf(title, sizeof title, "%s, %lld labelled, first seed",
             validation ? "Dice on validation cases" : "Loss", (long long)labeled);
    struct svg_chart chart = {.title = title,
                              .x_name = "step",
                              .y_name = validation ? "Dice" : "loss",
                              .series = series,
                              .n_series = n,
                              .log = !validation,
                              .smooth = !validation,
                              .dots = validation,
                              .alone = alone};
    if (n > 0)
        svg_lines(h, &chart);
    return n > 0;
}

static const char *two_digits(char out[24], double v)
{
    snprintf(out, 24, isfinite(v) ? "%.2f" : "–", v);
    return out;
}

/* Chart i: the i-th line of the methods' table whose runs told their ambiguity. */
static int draw_uncertainty(struct html *h, const struct comparison *c, int i, int alone, struct error *e)
{
    const struct compare_table *t = &c->tables[0];
    const struct compare_line *line = NULL;
    for (int l = 0; l < t->n_lines && !line; l++) {
        int told = 0;
        for (int k = 0; k < c->n_cases; k++)
            told |= isfinite(t->lines[l].ambiguity[k]);
        line = told && i-- == 0 ? &t->lines[l] : NULL;
    }
    if (!line)
        return 0;
    double *dice = mem_alloc(e, (size_t)c->n_cases, sizeof *dice), rank = NAN;
    char title[200];
    if (!dice)
        return -1;
    for (int k = 0; k < c->n_cases; k++)
        dice[k] = line->cases[k][0];
    int result = statistics_spearman(&rank, line->ambiguity, dice, c->n_cases, e);
    double linear = statistics_pearson(line->ambiguity, dice, c->n_cases);
    char a[24], b[24];
    snprintf(title, sizeof title, "%.60s, %lld labelled: uncertainty and Dice, correlation %s, of ranks %s",
             line->title, (long long)line->labeled, two_digits(a, linear), two_digits(b, rank));
    struct svg_scatter s = {.title = title,
                            .x_name = "ambiguity of the case",
                            .y_name = "Dice",
                            .names = (const char *const *)c->cases,
                            .x = line->ambiguity,
                            .y = dice,
                            .n = c->n_cases,
                            .alone = alone};
    if (result == 0)
        svg_scatter(h, &s);
    mem_free(dice);
    return result < 0 ? -1 : 1;
}

/* The parts of AUA if they were compared, else the methods; chart i: the i-th line that told its features. */
static int draw_features(struct html *h, const struct comparison *c, int i, int alone)
{
    static const char *const classes[] = {"background", "class 1", "class 2",
                                          "class 3",    "class 4", "class 5"};
    const struct compare_table *t = &c->tables[0];
    const struct compare_run *r = NULL;
    const struct compare_line *line = NULL;
    char title[200];
    int highest = 0;
    for (int k = 0; k < c->n_tables; k++)
        t = strcmp(c->tables[k].name, "parts") == 0 ? &c->tables[k] : t;
    for (int l = 0; l < t->n_lines && !r; l++) {
        for (int s = 0; s < t->lines[l].n_seeds && !r; s++)
            r = t->lines[l].runs[s] && t->lines[l].runs[s]->features.n > 0 ? t->lines[l].runs[s] : NULL;
        line = &t->lines[l];
        r = r && i-- == 0 ? r : NULL;
    }
    if (!r)
        return 0;
    const struct compare_features *f = &r->features;
    for (int k = 0; k < f->n; k++)
        highest = f->class[k] > highest ? f->class[k] : highest;
    char axis[60], number[24];
    snprintf(title, sizeof title, "%.60s, %lld labelled: features near the boundary, classes apart %s",
             line->title, (long long)line->labeled, two_digits(number, f->apart));
    snprintf(axis, sizeof axis, "first of two axes that hold %.0f %% of the variance", 100 * f->explained);
    struct svg_scatter s = {.title = title,
                            .x_name = axis,
                            .y_name = "second axis",
                            .colour = f->class,
                            .kinds = classes,
                            .n_kinds = highest < SVG_COLOURS ? highest + 1 : SVG_COLOURS,
                            .x = f->x,
                            .y = f->y,
                            .n = f->n,
                            .alone = alone};
    svg_scatter(h, &s);
    return 1;
}

int compare_draw(struct html *h, const struct comparison *c, enum compare_chart k, int i, int alone,
                 struct error *e)
{
    int64_t labeled = label_count(&c->tables[0], i);
    if (k == CHART_UNCERTAINTY)
        return draw_uncertainty(h, c, i, alone, e);
    if (k == CHART_FEATURES)
        return draw_features(h, c, i, alone);
    if (labeled < 0)
        return 0;
    if (k == CHART_CASES)
        return draw_cases(h, c, labeled, alone, e);
    if (k == CHART_LABELS)
        return i == 0 ? draw_labels(h, c, alone) : 0;
    return draw_curves(h, c, labeled, k == CHART_VALIDATION, alone);
}
