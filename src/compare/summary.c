/* summary.c - means over seeds, and what can be said against the reference. See compare.h.
 *
 * A run's score is its mean over cases; a line's is the mean of its runs, with the standard deviation of the
 * sample. For the test against the reference each case has one value a line, its mean over the seeds: the
 * pairs are cases, and seeds do not count as patients.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compare/compare.h"
#include "score/statistics.h"

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Calls `what` for every finished run of the plan; runs of several tables come several times. */
static int each_run(struct comparison *c,
                    int (*what)(struct comparison *, const struct compare_run *, struct error *),
                    struct error *e)
{
    for (int t = 0; t < c->n_tables; t++)
        for (int l = 0; l < c->tables[t].n_lines; l++)
            for (int s = 0; s < c->tables[t].lines[l].n_seeds; s++) {
                const struct compare_run *r = c->tables[t].lines[l].runs[s];
                if (r && !r->error && what(c, r, e) < 0)
                    return -1;
            }
    return 0;
}

static int same_text(const char *a, const char *b)
{
    return (!a && !b) || (a && b && strcmp(a, b) == 0);
}

/* Mixed precisions and processors are told; units cannot be mixed at all. */
static int check_run(struct comparison *c, const struct compare_run *r, struct error *e)
{
    if (!c->first) {
        snprintf(c->unit, sizeof c->unit, "%s", r->scores.unit);
        c->first = r;
    }
    if (strcmp(r->scores.unit, c->unit) != 0) {
        fail(e, ERR_CONFIG, "C02", "distances in %s, other runs in %s: choose one --protocol", r->scores.unit,
             c->unit);
        return fail_in(e, r->name);
    }
    c->mixed |=
        !same_text(r->precision, c->first->precision) || !same_text(r->processor, c->first->processor);
    return 0;
}

static int add_cases(struct comparison *c, const struct compare_run *r, struct error *e)
{
    int known = c->n_cases;
    for (int i = 0; i < r->scores.n_cases; i++) {
        if (known && bsearch(&r->scores.names[i], c->cases, (size_t)known, sizeof *c->cases, by_text))
            continue;
        char **more = mem_resize(e, c->cases, (size_t)c->n_cases + 1, sizeof *more);
        if (!more)
            return -1;
        c->cases = more;
        if (!(more[c->n_cases] = mem_string(e, r->scores.names[i])))
            return -1;
        c->n_cases++;
    }
    if (c->n_cases > known)
        qsort(c->cases, (size_t)c->n_cases, sizeof *c->cases, by_text);
    return 0;
}

/* Means over seeds of what a line says of each case. */
static int gather_cases(struct compare_line *l, const struct comparison *c, struct error *e)
{
    double *seeds = mem_alloc(e, (size_t)l->n_seeds + 1, sizeof *seeds), sd;
    l->cases = mem_alloc(e, (size_t)c->n_cases + 1, sizeof *l->cases);
    l->ambiguity = mem_alloc(e, (size_t)c->n_cases + 1, sizeof *l->ambiguity);
    int result = seeds && l->cases && l->ambiguity ? 0 : -1;
    for (int i = 0; i < c->n_cases && result == 0; i++)
        for (int m = 0; m <= REPORT_METRICS; m++) { /* the last: ambiguity */
            for (int s = 0; s < l->n_seeds; s++) {
                const struct compare_run *r = l->runs[s];
                seeds[s] = NAN;
                for (int k = 0; r && !r->error && k < r->scores.n_cases; k++)
                    if (strcmp(r->scores.names[k], c->cases[i]) == 0)
                        seeds[s] = m < REPORT_METRICS ? r->value[k][m] : r->ambiguity ? r->ambiguity[k] : NAN;
            }
            statistics_mean(m < REPORT_METRICS ? &l->cases[i][m] : &l->ambiguity[i], &sd, seeds, l->n_seeds);
        }
    mem_free(seeds);
    return result;
}

static void mean_cost(struct compare_line *l)
{
    static const size_t members[] = {
        offsetof(struct compare_cost, parameters),    offsetof(struct compare_cost, seconds),
        offsetof(struct compare_cost, steps),         offsetof(struct compare_cost, seconds_case),
        offsetof(struct compare_cost, planned_bytes), offsetof(struct compare_cost, peak_bytes)};
    for (size_t k = 0; k < sizeof members / sizeof *members; k++) {
        double sum = 0;
        int n = 0;
        for (int s = 0; s < l->n_seeds; s++) {
            const struct compare_run *r = l->runs[s];
            double v = r && !r->error ? *(const double *)((const char *)&r->cost + members[k]) : NAN;
            sum += isfinite(v) ? v : 0;
            n += isfinite(v);
        }
        *(double *)((char *)&l->cost + members[k]) = n > 0 ? sum / n : NAN;
    }
}

static int summarise_line(struct compare_line *l, const struct comparison *c, struct error *e)
{
    double *seeds = mem_alloc(e, (size_t)l->n_seeds + 1, sizeof *seeds);
    if (!seeds)
        return -1;
    l->n_done = l->has_empty = 0;
    for (int s = 0; s < l->n_seeds; s++)
        if (l->runs[s] && !l->runs[s]->error && strcmp(c->unit, "voxels") == 0)
            l->has_empty |= l->runs[s]->scores.has_empty;
    for (int m = 0; m < REPORT_METRICS; m++) {
        for (int s = 0; s < l->n_seeds; s++) {
            const struct compare_run *r = l->runs[s];
            seeds[s] = r && !r->error ? r->scores.mean[m] : NAN;
            l->n_done += m == 0 && r && !r->error;
        }
        statistics_mean(&l->mean[m], &l->sd[m], seeds, l->n_seeds);
    }
    mem_free(seeds);
    mean_cost(l);
    return gather_cases(l, c, e);
}

/* One metric of all lines of a table against their references; corrected over the table. */
static int test_metric(struct compare_table *t, int m, int n_cases, struct error *e)
{
    double *a = mem_alloc(e, (size_t)n_cases + 1, sizeof *a);
    double *b = mem_alloc(e, (size_t)n_cases + 1, sizeof *b);
    double *all = mem_alloc(e, (size_t)t->n_lines + 1, sizeof *all);
    int result = a && b && all ? 0 : -1;
    for (int l = 0; l < t->n_lines && result == 0; l++) {
        struct compare_line *line = &t->lines[l];
        line->p[m] = NAN;
        if (line->reference >= 0 && line->reference != l) {
            for (int i = 0; i < n_cases; i++) {
                a[i] = line->cases[i][m];
                b[i] = t->lines[line->reference].cases[i][m];
            }
            result = statistics_wilcoxon(&line->p[m], NULL, a, b, n_cases, e);
        }
        all[l] = line->p[m];
    }
    if (result == 0)
        result = statistics_holm(all, t->n_lines, e);
    for (int l = 0; l < t->n_lines && result == 0; l++)
        t->lines[l].p_holm[m] = all[l];
    mem_free(a);
    mem_free(b);
    mem_free(all);
    return result;
}

int compare_summarise(struct comparison *c, struct error *e)
{
    if (each_run(c, check_run, e) < 0 || each_run(c, add_cases, e) < 0)
        return -1;
    for (int t = 0; t < c->n_tables; t++) {
        for (int l = 0; l < c->tables[t].n_lines; l++)
            if (summarise_line(&c->tables[t].lines[l], c, e) < 0)
                return -1;
        for (int m = 0; m < REPORT_METRICS; m++)
            if (test_metric(&c->tables[t], m, c->n_cases, e) < 0)
                return -1;
    }
    return 0;
}

void compare_done(struct comparison *c)
{
    for (int t = 0; t < c->n_tables; t++)
        for (int l = 0; l < c->tables[t].n_lines; l++) {
            mem_free(c->tables[t].lines[l].cases);
            mem_free(c->tables[t].lines[l].ambiguity);
            c->tables[t].lines[l].cases = NULL;
            c->tables[t].lines[l].ambiguity = NULL;
        }
    for (int i = 0; i < c->n_cases; i++)
        mem_free(c->cases[i]);
    mem_free(c->cases);
    c->cases = NULL;
    c->n_cases = 0;
}
