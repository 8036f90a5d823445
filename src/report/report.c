/* report.c - writes the page of report.h: head and style, scores, training, pictures, facts.
 *
 * Markup is plain HTML 5 that is well-formed XML too: every element is closed, every value quoted. Whatever
 * comes from outside passes html_text(). No script, no font, no address is fetched.
 */
#include <math.h>
#include <string.h>

#include "report/report.h"
#include "report/svg.h"

static const char style[] =
    ":root{color-scheme:light dark;--bg:#fff;--ink:#1c2026;--dim:#5a626c;--line:#d5d9de;--soft:#f3f5f7}\n"
    "@media(prefers-color-scheme:dark){:root{--bg:#16191d;--ink:#e7eaee;--dim:#a3abb5;--line:#343b44;"
    "--soft:#1f242a}}\n"
    "body{margin:0 auto;padding:1.5rem 1rem 3rem;max-width:60rem;background:var(--bg);color:var(--ink);"
    "font:16px/1.5 system-ui,sans-serif}\n"
    "h1{font-size:1.7rem;margin:.2rem 0}h2{font-size:1.2rem;margin:2.2rem 0 .6rem;"
    "border-bottom:1px solid var(--line)}h3{font-size:1rem;margin:1.4rem 0 .4rem}\n"
    "p,figcaption{color:var(--dim);margin:.3rem 0}\n"
    "table{border-collapse:collapse;font-variant-numeric:tabular-nums;margin:.6rem 0}\n"
    "th,td{padding:.3rem .9rem .3rem 0;border-bottom:1px solid var(--line);text-align:left;"
    "vertical-align:top;overflow-wrap:anywhere}thead th{border-bottom:2px solid var(--line);"
    "white-space:nowrap}\n"
    ".w{white-space:nowrap}.n{text-align:right;white-space:nowrap;padding-left:.9rem;padding-right:0}\n"
    "figure{margin:1rem 0}img,svg{max-width:100%;height:auto}img{border-radius:4px}svg{width:100%}\n"
    ".wide{overflow-x:auto}.best{font-weight:700}\n"
    "@media print{:root{--bg:#fff;--ink:#000;--dim:#444;--line:#bbb;--soft:#fff}body{max-width:none;"
    "font-size:11pt;padding:0}figure,tr{break-inside:avoid}h2,h3{break-after:avoid}}\n";

/* ---- scores ------------------------------------------------------------------------------------ */

static void put_mean(struct html *h, double mean, double sd, int percent, int best)
{
    double times = percent ? 100 : 1;
    html_add(h, "<td class=\"n%s\">", best ? " best" : "");
    if (isfinite(mean))
        html_add(h, "%.2f", times * mean);
    else
        html_add(h, "–");
    if (isfinite(mean) && isfinite(sd))
        html_add(h, " ± %.2f", times * sd);
    html_add(h, "</td>");
}

static int has_scores(const struct report_page *p)
{
    int n = 0;
    for (int r = 0; r < p->n_runs; r++)
        n += p->runs[r].scores.n_cases > 0;
    return n;
}

/* Is the run the best of at least two in this metric? */
static int is_best(const struct report_page *p, int run, int m)
{
    double mine = p->runs[run].scores.mean[m];
    int others = 0;
    if (!isfinite(mine))
        return 0;
    for (int r = 0; r < p->n_runs; r++) {
        double other = p->runs[r].scores.mean[m];
        if (r == run || p->runs[r].scores.n_cases == 0 || !isfinite(other))
            continue;
        others++;
        if (report_is_share(m) ? other > mine : other < mine)
            return 0;
    }
    return others > 0;
}

static void put_name(struct html *h, const struct report_run *r)
{
    html_text(h, r->name);
    if (r->method[0] && strcmp(r->method, r->name) != 0) {
        html_add(h, " (");
        html_text(h, r->method);
        html_add(h, ")");
    }
}

static void put_score_table(struct html *h, const struct report_page *p)
{
    const char *unit = "";
    for (int r = p->n_runs - 1; r >= 0; r--)
        unit = p->runs[r].scores.n_cases ? p->runs[r].scores.unit : unit;
    html_add(h, "<div class=\"wide\"><table>\n<thead><tr><th>run</th><th class=\"n\">cases</th>");
    for (int m = 0; m < REPORT_METRICS; m++) {
        html_add(h, "<th class=\"n\">%s ", report_title[m]);
        html_text(h, report_is_share(m) ? "%" : unit);
        html_add(h, " %s</th>", report_is_share(m) ? "↑" : "↓");
    }
    html_add(h, "</tr></thead>\n<tbody>\n");
    for (int r = 0; r < p->n_runs; r++) {
        const struct report_scores *s = &p->runs[r].scores;
        if (s->n_cases == 0)
            continue;
        html_add(h, "<tr><th>");
        put_name(h, &p->runs[r]);
        html_add(h, "</th><td class=\"n\">%d</td>", s->n_cases);
        for (int m = 0; m < REPORT_METRICS; m++)
            put_mean(h, s->mean[m], s->sd[m], report_is_share(m), is_best(p, r, m));
        html_add(h, "</tr>\n");
    }
    html_add(h, "</tbody></table></div>\n");
}

static void put_class_name(struct html *h, const struct report_run *r, int class)
{
    if (class < r->n_class_names && r->class_names[class][0])
        html_text(h, r->class_names[class]);
    else
        html_add(h, "class %d", class);
}

/* Dice of every class, a row each; only runs whose scores have the same classes as the first. */
static void put_class_table(struct html *h, const struct report_page *p)
{
    const struct report_run *first = NULL;
    for (int r = 0; r < p->n_runs && !first; r++)
        first = p->runs[r].scores.n_cases ? &p->runs[r] : NULL;
    if (!first || first->scores.n_classes < 2)
        return;
    html_add(h, "<h3>Dice %% by class</h3>\n<div class=\"wide\"><table>\n<thead><tr><th>class</th>");
    for (int r = 0; r < p->n_runs; r++)
        if (p->runs[r].scores.n_classes == first->scores.n_classes) {
            html_add(h, "<th class=\"n\">");
            put_name(h, &p->runs[r]);
            html_add(h, "</th>");
        }
    html_add(h, "</tr></thead>\n<tbody>\n");
    for (int k = 0; k < first->scores.n_classes; k++) {
        html_add(h, "<tr><th>");
        put_class_name(h, first, first->scores.class_number[k]);
        html_add(h, "</th>");
        for (int r = 0; r < p->n_runs; r++) {
            const struct report_scores *s = &p->runs[r].scores;
            if (s->n_classes == first->scores.n_classes)
                put_mean(h, s->class_mean[k], s->class_sd[k], 1, 0);
        }
        html_add(h, "</tr>\n");
    }
    html_add(h, "</tbody></table></div>\n");
}

static void put_scores(struct html *h, const struct report_page *p)
{
    struct error e;
    if (!has_scores(p))
        return;
    html_add(h, "<h2>Scores</h2>\n<p>Mean ± standard deviation over cases; the better mean is bold.</p>\n");
    put_score_table(h, p);
    put_class_table(h, p);
    html_add(h, "<figure>");
    if (report_draw_cases(h, p, 0, &e) < 0) {
        h->failed = 1;
        h->why = e;
    }
    html_add(h, "</figure>\n");
}

/* ---- training ------------------------------------------------------------------------------------ */

static void put_training(struct html *h, const struct report_page *p)
{
    int title = 0;
    struct html figure = {0};
    for (int i = -1; i < p->n_runs; i++) { /* -1: validation of all runs */
        int drawn =
            i < 0 ? report_draw_validation(&figure, p, 0) : report_draw_losses(&figure, &p->runs[i], 0);
        if (drawn && !title++)
            html_add(h, "<h2>Training</h2>\n");
        if (drawn)
            html_add(h, "<figure>%s</figure>\n", figure.failed ? "" : figure.text);
        if (figure.failed) {
            h->failed = 1;
            h->why = figure.why;
        }
        html_drop(&figure);
    }
}

/* ---- pictures and facts ---------------------------------------------------------------------------- */

void report_put_pictures(struct html *h, const struct report_pictures *p)
{
    const char *group = "";
    if (p->n > 0)
        html_add(h, "<h2>Pictures</h2>\n<p>Where masks are compared: agreed red, missed green, "
                    "too much blue, right place but wrong class yellow.</p>\n");
    for (int i = 0; i < p->n; i++) {
        const struct report_picture *k = &p->picture[i];
        if (strcmp(group, k->group) != 0) {
            html_add(h, "<h3>");
            html_text(h, k->group);
            html_add(h, "</h3>\n");
        }
        group = k->group;
        html_add(h, "<figure><img alt=\"");
        html_text(h, k->name);
        html_add(h, "\" src=\"data:image/png;base64,");
        html_base64(h, k->png, k->bytes);
        html_add(h, "\"/><figcaption>");
        html_text(h, k->name);
        html_add(h, "</figcaption></figure>\n");
    }
}

static void put_fact_row(struct html *h, const struct report_page *p, int fact)
{
    int told = 0;
    for (int r = 0; r < p->n_runs; r++)
        told |= p->runs[r].facts[fact].value != NULL;
    if (!told)
        return;
    html_add(h, "<tr><th>%s</th>", p->runs[0].facts[fact].name);
    for (int r = 0; r < p->n_runs; r++) {
        const char *value = p->runs[r].facts[fact].value;
        html_add(h, "<td>");
        html_text(h, value ? value : "–");
        html_add(h, "</td>");
    }
    html_add(h, "</tr>\n");
}

static void put_facts(struct html *h, const struct report_page *p)
{
    html_add(h, "<h2>Facts</h2>\n<div class=\"wide\"><table>\n<thead><tr><th>run</th>");
    for (int r = 0; r < p->n_runs; r++) {
        html_add(h, "<th>");
        html_text(h, p->runs[r].name);
        html_add(h, "</th>");
    }
    html_add(h, "</tr></thead>\n<tbody>\n");
    for (int f = 0; f < p->runs[0].n_facts; f++)
        put_fact_row(h, p, f);
    html_add(h, "</tbody></table></div>\n");
}

void report_begin(struct html *h, const char *title, const char *version)
{
    html_add(h, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
                "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"/>\n"
                "<meta name=\"generator\" content=\"falx ");
    html_text(h, version);
    html_add(h, "\"/>\n<title>");
    html_text(h, title);
    html_add(h, "</title>\n<style>\n%s%s</style>\n</head>\n<body>\n<h1>", style, svg_style());
    html_text(h, title);
    html_add(h, "</h1>\n");
}

void report_end(struct html *h, const char *version)
{
    html_add(h, "<p>Made by falx ");
    html_text(h, version);
    html_add(h, ".</p>\n</body>\n</html>\n");
}

void report_html(struct html *h, const struct report_page *p)
{
    CHECK(p->n_runs > 0);
    report_begin(h, p->title, p->version);
    put_scores(h, p);
    put_training(h, p);
    if (p->pictures)
        report_put_pictures(h, p->pictures);
    put_facts(h, p);
    report_end(h, p->version);
}
