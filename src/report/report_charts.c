/* report_charts.c - curves and scores of runs as charts; see report.h.
 *
 * Steps are counted over all phases: phase 1 goes on where phase 0 ended. A curve is one series a phase, so
 * that neither a line nor a mean reaches across the start of a phase.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/report.h"
#include "report/svg.h"

enum { MAX_SERIES = 64 }; /* in a chart: 6 curves of 4 phases, or some dozens of runs */

/* ---- curves over all phases ---------------------------------------------------------------------------- */

struct phases {
    int n;
    double start[REPORT_PHASES + 1]; /* steps before the phase; [n]: all */
};

static void count_steps(double length[REPORT_PHASES], int *n, const struct runs_curve *c)
{
    for (int i = 0; i < c->n; i++)
        if (c->phase[i] >= 0 && c->phase[i] < REPORT_PHASES) {
            double *most = &length[c->phase[i]];
            *most = fmax(*most, (double)c->step[i]);
            *n = c->phase[i] >= *n ? c->phase[i] + 1 : *n;
        }
}

static void find_phases(struct phases *p, const struct report_run *r)
{
    double length[REPORT_PHASES] = {0};
    memset(p, 0, sizeof *p);
    for (int i = 0; i < r->n_curves; i++)
        count_steps(length, &p->n, &r->curves[i]);
    count_steps(length, &p->n, &r->validation);
    for (int i = 0; i < p->n; i++)
        p->start[i + 1] = p->start[i] + length[i];
}

int64_t report_steps(const struct report_run *r)
{
    struct phases p;
    find_phases(&p, r);
    return (int64_t)p.start[p.n];
}

struct chart { /* a chart under construction; numbers belong to it */
    struct svg_series series[MAX_SERIES];
    int n;
    double *owned[MAX_SERIES];
};

static void chart_free(struct chart *c)
{
    for (int i = 0; i < c->n; i++)
        mem_free(c->owned[i]);
}

/* Adds what a curve has in one phase, unless it is nothing or zero throughout. Returns 1 if added. */
static int add_phase(struct chart *c, const struct runs_curve *curve, const struct phases *p, int phase,
                     const char *name, int colour, struct html *h)
{
    int first = 0, n = 0, told = 0;
    while (first < curve->n && curve->phase[first] != phase)
        first++;
    while (first + n < curve->n && curve->phase[first + n] == phase) {
        told |= isfinite(curve->value[first + n]) && curve->value[first + n] != 0;
        n++;
    }
    if (!told || c->n == MAX_SERIES)
        return 0;
    double *x = mem_alloc(&h->why, 2 * (size_t)n, sizeof *x);
    if (!x) {
        h->failed = 1;
        return 0;
    }
    for (int i = 0; i < n; i++) {
        x[i] = p->start[phase] + (double)curve->step[first + i];
        x[n + i] = curve->value[first + i];
    }
    c->owned[c->n] = x;
    c->series[c->n++] = (struct svg_series){.name = name, .x = x, .y = x + n, .n = n, .colour = colour};
    return 1;
}

/* Returns 1 if there was anything to add. */
static int add_curve(struct chart *c, const struct runs_curve *curve, const struct phases *p,
                     const char *name, int colour, struct html *h)
{
    int added = 0;
    for (int phase = 0; phase < p->n; phase++)
        added |= add_phase(c, curve, p, phase, added ? NULL : name, colour, h);
    return added;
}

/* ---- losses ---------------------------------------------------------------------------------------- */

/* Terms worth a colour, the most telling first; what is not named here comes after, by the alphabet. */
static const char *const order[] = {"loss",        "supervised", "consistency", "entropy",      "ged",
                                    "bcl",         "pseudo",     "pasted",      "pcl_pseudo",   "pcl_labeled",
                                    "adversarial", "critic",     "contrast",    "distillation", "distance",
                                    "ce",          "likelihood", "dice"};
static const char *const not_losses[] = {"gradient", "critic_gradient", "weight", "rate", "certain"};
enum { N_ORDER = sizeof order / sizeof *order, N_NOT = sizeof not_losses / sizeof *not_losses };

static int rank_of(const char *name)
{
    for (int i = 0; i < N_NOT; i++)
        if (strcmp(name, not_losses[i]) == 0)
            return -1;
    for (int i = 0; i < N_ORDER; i++)
        if (strcmp(name, order[i]) == 0)
            return i;
    return N_ORDER;
}

static int put_marks(struct svg_mark marks[REPORT_PHASES], char text[REPORT_PHASES][24],
                     const struct report_run *r, const struct phases *p)
{
    for (int i = 0; i < p->n; i++) {
        snprintf(text[i], 24, "phase %d", i + 1);
        marks[i] = (struct svg_mark){.x = p->start[i], .name = r->phases[i] ? r->phases[i] : text[i]};
    }
    return p->n > 1 ? p->n : 0;
}

int report_draw_losses(struct html *h, const struct report_run *r, int alone)
{
    struct chart c = {.n = 0};
    struct phases p;
    struct svg_mark marks[REPORT_PHASES];
    char text[REPORT_PHASES][24], title[120];
    int colour = 0;
    find_phases(&p, r);
    for (int rank = 0; rank <= N_ORDER; rank++)
        for (int i = 0; i < r->n_curves && colour < SVG_COLOURS; i++)
            if (rank_of(r->curve_names[i]) == rank)
                colour += add_curve(&c, &r->curves[i], &p, r->curve_names[i], colour, h);
    snprintf(title, sizeof title, "%.80s: loss and its terms", r->name);
    struct svg_chart chart = {.title = title,
                              .x_name = "step",
                              .y_name = "loss",
                              .series = c.series,
                              .n_series = c.n,
                              .marks = marks,
                              .log = 1,
                              .smooth = 1,
                              .alone = alone};
    chart.n_marks = put_marks(marks, text, r, &p);
    if (c.n > 0)
        svg_lines(h, &chart);
    chart_free(&c);
    return c.n > 0;
}

/* ---- validation -------------------------------------------------------------------------------------- */

int report_draw_validation(struct html *h, const struct report_page *page, int alone)
{
    struct chart c = {.n = 0};
    struct svg_mark marks[REPORT_PHASES];
    char text[REPORT_PHASES][24];
    struct phases p = {0};
    for (int i = 0; i < page->n_runs; i++) {
        find_phases(&p, &page->runs[i]);
        add_curve(&c, &page->runs[i].validation, &p, page->runs[i].name, i, h);
    }
    struct svg_chart chart = {.title = "Dice on validation cases",
                              .x_name = "step",
                              .y_name = "Dice",
                              .series = c.series,
                              .n_series = c.n,
                              .marks = marks,
                              .alone = alone};
    if (page->n_runs == 1)
        chart.n_marks = put_marks(marks, text, &page->runs[0], &p);
    if (c.n > 0)
        svg_lines(h, &chart);
    chart_free(&c);
    return c.n > 0;
}

/* ---- cases --------------------------------------------------------------------------------------------- */

static double dice_of(const struct report_scores *s, const char *name)
{
    for (int i = 0; i < s->n_cases; i++)
        if (strcmp(s->names[i], name) == 0)
            return s->dice[i];
    return NAN;
}

/* The cases of the first run that has scores; other runs are shown where they scored the same. */
int report_draw_cases(struct html *h, const struct report_page *p, int alone, struct error *e)
{
    const struct report_scores *first = NULL;
    struct svg_row rows[MAX_SERIES];
    double *value = NULL;
    int n_rows = 0;
    for (int r = 0; r < p->n_runs && !first; r++)
        first = p->runs[r].scores.n_cases > 0 ? &p->runs[r].scores : NULL;
    if (!first)
        return 0;
    value = mem_alloc(e, (size_t)p->n_runs * (size_t)first->n_cases, sizeof *value);
    if (!value)
        return -1;
    for (int r = 0; r < p->n_runs && n_rows < MAX_SERIES; r++) {
        double *mine = value + (size_t)r * (size_t)first->n_cases;
        if (p->runs[r].scores.n_cases == 0)
            continue;
        for (int i = 0; i < first->n_cases; i++)
            mine[i] = dice_of(&p->runs[r].scores, first->names[i]);
        rows[n_rows++] = (struct svg_row){.name = p->runs[r].name, .value = mine};
    }
    struct svg_dots d = {.title = "Dice of each case",
                         .x_name = "Dice",
                         .cases = (const char *const *)first->names,
                         .n_cases = first->n_cases,
                         .rows = rows,
                         .n_rows = n_rows,
                         .alone = alone};
    svg_dots(h, &d);
    mem_free(value);
    return 1;
}
