/* page.c - report.html of a comparison: tables, charts, pictures and cost in one file that works offline. */
#include "compare/compare.h"
#include "report/svg.h"

static int put_tables(struct html *h, const struct comparison *c, struct error *e)
{
    for (int t = 0; t < c->n_tables; t++) {
        struct grid g;
        if (compare_scores_grid(&g, c, &c->tables[t], e) < 0)
            return -1;
        html_add(h, "<h2>");
        html_text(h, c->tables[t].title);
        html_add(h, "</h2>\n");
        grid_html(h, &g);
        grid_free(&g);
    }
    html_add(h,
             "<p>Mean ± standard deviation over seeds of the means over %d cases; the best mean of each "
             "number of labels is bold. p: Wilcoxon signed-rank test over cases against the reference, "
             "two-sided, not corrected for the number of methods.</p>\n",
             c->n_cases);
    if (c->mixed)
        html_add(h, "<p>Not all runs were computed with the same precision on the same kind of processor."
                    "</p>\n");
    if (*compare_empty_note(c))
        html_add(h, "<p>%s</p>\n", compare_empty_note(c));
    compare_crops(h, c, "<p>", "</p>\n");
    if (compare_missing(c))
        html_add(h, "<p>Runs not finished yet: %d.</p>\n", compare_missing(c));
    compare_failures(h, c, "<p>Failed: ", "</p>\n");
    return 0;
}

/* Headings and what a reader has to know; without a heading a chart belongs to those before it. */
static const struct {
    const char *head, *words;
} chapters[CHART_COUNT] = {
    [CHART_CASES] = {"Cases", "Each case is the mean of its seeds."},
    [CHART_LABELS] = {"Number of labels", "Mean over cases and seeds."},
    [CHART_LOSS] = {"Training",
                    "Losses of different methods have different terms and cannot be compared; their course "
                    "can. Steps are counted over all phases."},
    [CHART_UNCERTAINTY] = {"Uncertainty",
                           "Ambiguity is the mean entropy of the first stage's network over the object and "
                           "what surrounds it, of an empty mask the highest of any voxel. Where it foretells "
                           "bad masks, the correlation is far below zero."},
    [CHART_FEATURES] = {"Features",
                        "Unit vectors of voxels of held-out scans at the true boundary, where classes are "
                        "hard to tell, along the two directions in which they vary most. Classes apart: "
                        "variance between their means over that inside of them, in all dimensions."},
};

static int put_charts(struct html *h, const struct comparison *c, struct error *e)
{
    for (int k = 0; k < CHART_COUNT; k++)
        for (int i = 0;; i++) {
            struct html figure = {0};
            int drawn = compare_draw(&figure, c, (enum compare_chart)k, i, 0, e);
            char *text = NULL;
            if (drawn <= 0 || html_take(&text, NULL, &figure, e) < 0) {
                html_drop(&figure);
                if (drawn != 0)
                    return -1;
                break;
            }
            if (i == 0 && chapters[k].head)
                html_add(h, "<h2>%s</h2>\n<p>%s</p>\n", chapters[k].head, chapters[k].words);
            html_add(h, "<figure>%s</figure>\n", text);
            mem_free(text);
        }
    return 0;
}

int compare_page(struct html *h, const struct comparison *c, const struct report_pictures *pictures,
                 struct error *e)
{
    struct grid cost;
    report_begin(h, c->title, c->version);
    html_add(h, "<p>");
    html_text(h, c->about);
    html_add(h, "</p>\n");
    if (put_tables(h, c, e) < 0 || put_charts(h, c, e) < 0)
        return -1;
    if (pictures)
        report_put_pictures(h, pictures);
    if (compare_cost_grid(&cost, c, e) < 0)
        return -1;
    html_add(h, "<h2>Cost</h2>\n");
    grid_html(h, &cost);
    grid_free(&cost);
    html_add(h, "<p>Planned: models, activations and batches of training. Peak: of the device's memory if it "
                "has its own, else of the whole process.</p>\n");
    report_end(h, c->version);
    return 0;
}
