/* tables.c - the tables of a comparison: what stands in which column, and the files. See compare.h.
 *
 *     results.md .csv .tex   a block a table: mean ± sd over seeds, test against the reference, the paper
 *     cost.md .csv .tex      training time, step, inference, memory, parameters
 *     cases.csv              every run, case and metric, for statistics of one's own
 *
 * Markdown and LaTeX round for readers; CSV keeps what the runs told.
 */
#include <math.h>
#include <string.h>

#include "compare/compare.h"

/* ---- grids ----------------------------------------------------------------------------------------- */

static int grid_new(struct grid *g, const char *title, int rows, int columns, int n_left, struct error *e)
{
    *g = (struct grid){.title = title, .rows = rows, .columns = columns, .n_left = n_left};
    g->text = mem_alloc(e, (size_t)rows * (size_t)columns, sizeof *g->text);
    g->best = mem_alloc(e, (size_t)rows * (size_t)columns, 1);
    return g->text && g->best ? 0 : -1;
}

/* Takes `text`, which mem_format() made or could not make. */
static int put(struct grid *g, int row, int column, char *text)
{
    g->text[row * g->columns + column] = text;
    return text ? 0 : -1;
}

static char *mean_text(double mean, double sd, double times, int digits, struct error *e)
{
    if (!isfinite(mean))
        return mem_string(e, "–");
    if (!isfinite(sd))
        return mem_format(e, "%.*f", digits, times * mean);
    return mem_format(e, "%.*f ± %.*f", digits, times * mean, digits, times * sd);
}

static char *p_text(double p, struct error *e)
{
    if (isnan(p))
        return mem_string(e, "–");
    return p < 0.001 ? mem_string(e, "<0.001") : mem_format(e, "%.3f", p);
}

/* A mean with distances of 0 where nothing was predicted. */
static int has_no_distance(const struct compare_line *l, int m)
{
    return l->has_empty && !report_is_share(m);
}

static char *score_text(const struct compare_line *l, int m, struct error *e)
{
    char *text = mean_text(l->mean[m], l->sd[m], report_is_share(m) ? 100 : 1, 2, e);
    if (!text || !has_no_distance(l, m))
        return text;
    char *marked = mem_format(e, "%s " NO_DISTANCE, text);
    mem_free(text);
    return marked;
}

const char *compare_empty_note(const struct comparison *c)
{
    for (int t = 0; t < c->n_tables; t++)
        for (int l = 0; l < c->tables[t].n_lines; l++)
            if (c->tables[t].lines[l].has_empty)
                return NO_DISTANCE
                    " Some predictions are empty. Their distances count as 0, as in the literature, "
                    "which makes the mean too good; it is not marked as the best.";
    return "";
}

/* Best of at least two lines with the same number of labels. */
static int is_best(const struct compare_table *t, int line, int m)
{
    double mine = t->lines[line].mean[m];
    if (has_no_distance(&t->lines[line], m))
        return 0;
    int others = 0;
    for (int l = 0; l < t->n_lines && isfinite(mine); l++) {
        double other = t->lines[l].mean[m];
        if (l == line || t->lines[l].labeled != t->lines[line].labeled || !isfinite(other) ||
            has_no_distance(&t->lines[l], m))
            continue;
        others++;
        if (report_is_share(m) ? other > mine : other < mine)
            return 0;
    }
    return isfinite(mine) && others > 0;
}

static const struct compare_published *published_of(const struct comparison *c, const struct compare_line *l)
{
    return compare_published_find(c->published, l->method, l->labeled);
}

static int has_published(const struct comparison *c, const struct compare_table *t)
{
    int n = 0;
    for (int l = 0; l < t->n_lines; l++)
        n += published_of(c, &t->lines[l]) != NULL;
    return n;
}

enum { HEAD_COLUMNS = 3 }; /* title, labelled / unlabelled, seeds */

static int put_head(struct grid *g, const struct comparison *c, int tested, int paper, struct error *e)
{
    int column = HEAD_COLUMNS;
    if (put(g, 0, 0, mem_string(e, "method")) < 0 || put(g, 0, 1, mem_string(e, "labelled/unlabelled")) < 0 ||
        put(g, 0, 2, mem_string(e, "seeds")) < 0)
        return -1;
    for (int m = 0; m < REPORT_METRICS; m++)
        if (put(g, 0, column++,
                mem_format(e, "%s %s %s", report_title[m], report_is_share(m) ? "%" : c->unit,
                           report_is_share(m) ? "↑" : "↓")) < 0)
            return -1;
    if (tested && put(g, 0, column++, mem_string(e, "p (Dice)")) < 0)
        return -1;
    for (int m = 0; paper && m < REPORT_METRICS; m++)
        if (put(g, 0, column++,
                mem_format(e, "paper: %s%s", report_title[m], report_is_share(m) ? " %" : " voxels")) < 0)
            return -1;
    return 0;
}

static int put_line(struct grid *g, const struct comparison *c, const struct compare_table *t, int i,
                    int tested, int paper, struct error *e)
{
    const struct compare_line *l = &t->lines[i];
    int column = HEAD_COLUMNS, row = i + 1;
    if (put(g, row, 0, mem_string(e, l->title)) < 0 ||
        put(g, row, 1, mem_format(e, "%lld/%lld", (long long)l->labeled, (long long)l->unlabeled)) < 0 ||
        put(g, row, 2,
            l->n_done == l->n_seeds ? mem_format(e, "%d", l->n_done)
                                    : mem_format(e, "%d of %d", l->n_done, l->n_seeds)) < 0)
        return -1;
    for (int m = 0; m < REPORT_METRICS; m++) {
        g->best[row * g->columns + column] = (unsigned char)is_best(t, i, m);
        if (put(g, row, column++, score_text(l, m, e)) < 0)
            return -1;
    }
    if (tested && put(g, row, column++, p_text(l->p[0], e)) < 0)
        return -1;
    const struct compare_published *said = published_of(c, l);
    for (int m = 0; paper && m < REPORT_METRICS; m++)
        if (put(g, row, column++, mean_text(said ? said->value[m] : NAN, NAN, 1, 2, e)) < 0)
            return -1;
    return 0;
}

int compare_scores_grid(struct grid *out, const struct comparison *c, const struct compare_table *t,
                        struct error *e)
{
    int tested = 0, paper = has_published(c, t) > 0, result;
    for (int l = 0; l < t->n_lines; l++)
        tested |= t->lines[l].reference >= 0 && t->lines[l].reference != l;
    result =
        grid_new(out, t->title, t->n_lines + 1, HEAD_COLUMNS + REPORT_METRICS * (1 + paper) + tested, 2, e);
    if (result == 0)
        result = put_head(out, c, tested, paper, e);
    for (int l = 0; l < t->n_lines && result == 0; l++)
        result = put_line(out, c, t, l, tested, paper, e);
    if (result < 0)
        grid_free(out);
    return result;
}

/* ---- cost ------------------------------------------------------------------------------------------ */

enum { COSTS = 6 };
static const char *const cost_titles[COSTS] = {"parameters",       "training s",  "step ms",
                                               "inference s/case", "planned MiB", "peak MiB"};
static const char *const cost_keys[COSTS] = {"parameters",       "training_s",  "step_ms",
                                             "inference_s_case", "planned_mib", "peak_mib"};
static const int cost_digits[COSTS] = {0, 1, 2, 3, 0, 0};

static void cost_values(double out[COSTS], const struct compare_cost *c)
{
    out[0] = c->parameters;
    out[1] = c->seconds;
    out[2] = c->steps > 0 ? 1000 * c->seconds / c->steps : NAN;
    out[3] = c->seconds_case;
    out[4] = c->planned_bytes / (1 << 20);
    out[5] = c->peak_bytes / (1 << 20);
}

int compare_cost_grid(struct grid *out, const struct comparison *c, struct error *e)
{
    int rows = 1, row = 1, result;
    for (int t = 0; t < c->n_tables; t++)
        rows += c->tables[t].n_lines;
    result = grid_new(out, "Cost", rows, 2 + COSTS, 2, e);
    if (result == 0 && (put(out, 0, 0, mem_string(e, "method")) < 0 ||
                        put(out, 0, 1, mem_string(e, "labelled/unlabelled")) < 0))
        result = -1;
    for (int k = 0; k < COSTS && result == 0; k++)
        result = put(out, 0, 2 + k, mem_string(e, cost_titles[k]));
    for (int t = 0; t < c->n_tables; t++)
        for (int l = 0; l < c->tables[t].n_lines && result == 0; l++, row++) {
            const struct compare_line *line = &c->tables[t].lines[l];
            double value[COSTS];
            cost_values(value, &line->cost);
            if (put(out, row, 0, mem_string(e, line->title)) < 0 ||
                put(out, row, 1,
                    mem_format(e, "%lld/%lld", (long long)line->labeled, (long long)line->unlabeled)) < 0)
                result = -1;
            for (int k = 0; k < COSTS && result == 0; k++)
                result = put(out, row, 2 + k, mean_text(value[k], NAN, 1, cost_digits[k], e));
        }
    if (result < 0)
        grid_free(out);
    return result;
}

/* ---- CSV ------------------------------------------------------------------------------------------- */

static void csv_real(struct html *h, double v)
{
    html_add(h, isfinite(v) ? ",%.10g" : ",", v);
}

/* What every row begins with: table,method,labeled */
static void csv_line(struct html *h, const struct compare_table *t, const struct compare_line *l)
{
    html_csv(h, t->name);
    html_add(h, ",");
    html_csv(h, l->title);
    html_add(h, ",%lld", (long long)l->labeled);
}

static void csv_results(struct html *h, const struct comparison *c)
{
    html_add(h, "table,method,labeled,unlabeled,seeds_done,seeds");
    for (int m = 0; m < REPORT_METRICS; m++) {
        const char *name = metric_name(report_metric[m]), *unit = report_is_share(m) ? "" : c->unit;
        html_add(h, ",%s%s%s_mean,%s%s%s_sd,%s_p,%s_p_holm,%s_paper", name, *unit ? "_" : "", unit, name,
                 *unit ? "_" : "", unit, name, name, name);
    }
    html_add(h, "\n");
    for (int t = 0; t < c->n_tables; t++)
        for (int i = 0; i < c->tables[t].n_lines; i++) {
            const struct compare_line *l = &c->tables[t].lines[i];
            const struct compare_published *said = published_of(c, l);
            csv_line(h, &c->tables[t], l);
            html_add(h, ",%lld,%d,%d", (long long)l->unlabeled, l->n_done, l->n_seeds);
            for (int m = 0; m < REPORT_METRICS; m++) {
                csv_real(h, l->mean[m]);
                csv_real(h, l->sd[m]);
                csv_real(h, l->p[m]);
                csv_real(h, l->p_holm[m]);
                csv_real(h, said ? said->value[m] : NAN);
            }
            html_add(h, "\n");
        }
}

static void csv_cost(struct html *h, const struct comparison *c)
{
    html_add(h, "table,method,labeled,unlabeled");
    for (int k = 0; k < COSTS; k++)
        html_add(h, ",%s", cost_keys[k]);
    html_add(h, "\n");
    for (int t = 0; t < c->n_tables; t++)
        for (int i = 0; i < c->tables[t].n_lines; i++) {
            const struct compare_line *l = &c->tables[t].lines[i];
            double value[COSTS];
            cost_values(value, &l->cost);
            csv_line(h, &c->tables[t], l);
            html_add(h, ",%lld", (long long)l->unlabeled);
            for (int k = 0; k < COSTS; k++)
                csv_real(h, value[k]);
            html_add(h, "\n");
        }
}

static void csv_cases(struct html *h, const struct comparison *c)
{
    html_add(h, "table,method,labeled,run,case,dice,jaccard,asd,hd95,ambiguity\n");
    for (int t = 0; t < c->n_tables; t++)
        for (int i = 0; i < c->tables[t].n_lines; i++)
            for (int s = 0; s < c->tables[t].lines[i].n_seeds; s++) {
                const struct compare_line *l = &c->tables[t].lines[i];
                const struct compare_run *r = l->runs[s];
                for (int k = 0; r && !r->error && k < r->scores.n_cases; k++) {
                    csv_line(h, &c->tables[t], l);
                    html_add(h, ",");
                    html_csv(h, r->name);
                    html_add(h, ",");
                    html_csv(h, r->scores.names[k]);
                    for (int m = 0; m < REPORT_METRICS; m++)
                        csv_real(h, r->value[k][m]);
                    csv_real(h, r->ambiguity ? r->ambiguity[k] : NAN);
                    html_add(h, "\n");
                }
            }
}

/* ---- what is missing ------------------------------------------------------------------------------- */

/* Line k of all tables; NULL: beyond the last. */
static const struct compare_line *line_at(const struct comparison *c, int k)
{
    for (int t = 0; t < c->n_tables; t++) {
        if (k < c->tables[t].n_lines)
            return &c->tables[t].lines[k];
        k -= c->tables[t].n_lines;
    }
    return NULL;
}

/* NULL: no run of the line has recorded it. */
static const char *line_crop(const struct compare_line *l)
{
    for (int s = 0; s < l->n_seeds; s++)
        if (l->runs[s] && l->runs[s]->crop)
            return l->runs[s]->crop;
    return NULL;
}

/* Has a line before line k the same title and crop? */
static int is_repeated(const struct comparison *c, int k)
{
    const struct compare_line *l = line_at(c, k);
    for (int i = 0; i < k; i++) {
        const struct compare_line *other = line_at(c, i);
        const char *crop = line_crop(other);
        if (crop && strcmp(other->title, l->title) == 0 && strcmp(crop, line_crop(l)) == 0)
            return 1;
    }
    return 0;
}

void compare_crops(struct html *h, const struct comparison *c, const char *before, const char *after)
{
    const struct compare_line *l;
    const char *first = NULL;
    int mixed = 0;
    for (int k = 0; (l = line_at(c, k)); k++) {
        const char *crop = line_crop(l);
        mixed |= first && crop && strcmp(first, crop) != 0;
        first = first ? first : crop;
    }
    for (int k = 0; first && (l = line_at(c, k)) && (mixed || k == 0); k++) {
        const char *crop = mixed ? line_crop(l) : first;
        if (!crop || (mixed && is_repeated(c, k)))
            continue;
        html_add(h, "%sCrop of the test scans", before);
        if (mixed) {
            html_add(h, " of ");
            html_text(h, l->title);
        }
        html_add(h, ": ");
        html_text(h, crop);
        html_add(h, ".%s", after);
    }
}

void compare_failures(struct html *h, const struct comparison *c, const char *before, const char *after)
{
    for (int t = 0; t < c->n_tables; t++)
        for (int i = 0; i < c->tables[t].n_lines; i++)
            for (int s = 0; s < c->tables[t].lines[i].n_seeds; s++) {
                const struct compare_run *r = c->tables[t].lines[i].runs[s];
                if (!r || !r->error)
                    continue;
                html_add(h, "%s", before);
                html_text(h, r->name);
                html_add(h, ": ");
                html_text(h, r->error);
                html_add(h, "%s", after);
            }
}

int compare_missing(const struct comparison *c)
{
    int n = 0;
    for (int t = 0; t < c->n_tables; t++)
        for (int i = 0; i < c->tables[t].n_lines; i++)
            for (int s = 0; s < c->tables[t].lines[i].n_seeds; s++)
                n += !c->tables[t].lines[i].runs[s];
    return n;
}

/* ---- files ----------------------------------------------------------------------------------------- */

static int write_text(struct html *h, const char *folder, const char *name, struct error *e)
{
    char *path = path_join(e, folder, name);
    int result = html_write(h, path, e);
    mem_free(path);
    return result;
}

static void put_notes(struct html *h, const struct comparison *c)
{
    int missing = compare_missing(c);
    html_add(h,
             "Mean ± standard deviation over seeds of the means over %d cases. p: Wilcoxon signed-rank "
             "test over cases against the reference, two-sided, not corrected (results.csv has Holm's "
             "correction).\n",
             c->n_cases);
    if (c->mixed)
        html_add(h, "\nNot all runs were computed with the same precision on the same kind of processor.\n");
    if (*compare_empty_note(c))
        html_add(h, "\n%s\n", compare_empty_note(c));
    compare_crops(h, c, "\n", "\n");
    if (missing)
        html_add(h, "\n%d run%s not finished yet.\n", missing, missing == 1 ? " is" : "s are");
    html_add(h, "\n");
    compare_failures(h, c, "- ", "\n");
}

static int write_grids(const struct comparison *c, int cost, const char *folder, struct error *e)
{
    struct html markdown = {0}, latex = {0};
    struct grid g = {0};
    int result = 0, n = cost ? 1 : c->n_tables;
    if (!cost)
        html_add(&markdown, "# %s\n\n%s\n\n", c->title, c->about);
    for (int t = 0; t < n && result == 0; t++) {
        result = cost ? compare_cost_grid(&g, c, e) : compare_scores_grid(&g, c, &c->tables[t], e);
        if (result == 0) {
            grid_markdown(&markdown, &g);
            grid_latex(&latex, &g);
        }
        grid_free(&g);
    }
    if (!cost)
        put_notes(&markdown, c);
    if (result == 0)
        result = write_text(&markdown, folder, cost ? "cost.md" : "results.md", e);
    if (result == 0)
        result = write_text(&latex, folder, cost ? "cost.tex" : "results.tex", e);
    html_drop(&markdown);
    html_drop(&latex);
    return result;
}

int compare_write_tables(const struct comparison *c, const char *folder, struct error *e)
{
    static const struct {
        const char *name;
        void (*write)(struct html *h, const struct comparison *c);
    } files[] = {{"results.csv", csv_results}, {"cost.csv", csv_cost}, {"cases.csv", csv_cases}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct html h = {0};
        files[i].write(&h, c);
        if (write_text(&h, folder, files[i].name, e) < 0)
            return -1;
    }
    return write_grids(c, 0, folder, e) < 0 || write_grids(c, 1, folder, e) < 0 ? -1 : 0;
}
