/* svg.c - draws charts; see svg.h. svg_axis.c has the numbers behind them.
 *
 * Coordinates are written with one decimal, a tenth of a pixel. A chart without a usable number still has its
 * axes and says "no data".
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/svg.h"

enum {
    WIDTH = 700,
    HEIGHT = 300, /* of the drawing; fits a page of 60 rem and half a sheet of paper */
    LEFT = 58,
    RIGHT = 18,
    BOTTOM = 44,
    TITLE = 20,  /* baseline of the title */
    LINE = 17,   /* from one line of the legend to the next */
    PHASES = 14, /* height of the names of phases */
    ROW = 18,    /* of a case or method in svg_dots */
    LETTER = 7,  /* about the width of a letter of 12 units */
    FEW_CASES = 40,
    MOST_DOTS = 60, /* of a curve: more would touch */
    MAX_NAME = 24   /* letters of a name beside a row */
};

/* Literal colours: most programs that draw SVG files know no variables of style sheets. */
#define COLOURS(c0, c1, c2, c3, c4, c5, ink, dim, line)                                                      \
    ".fx text{fill:" dim "}.fx .t,.fx .k{fill:" ink "}"                                                      \
    ".fx .g,.fx .f{stroke:" line "}.fx .m,.fx .b{stroke:" dim "}"                                            \
    ".fx .l0{stroke:" c0 "}.fx .l1{stroke:" c1 "}.fx .l2{stroke:" c2 "}"                                     \
    ".fx .l3{stroke:" c3 "}.fx .l4{stroke:" c4 "}.fx .l5{stroke:" c5 "}"                                     \
    ".fx .d0{fill:" c0 "}.fx .d1{fill:" c1 "}.fx .d2{fill:" c2 "}"                                           \
    ".fx .d3{fill:" c3 "}.fx .d4{fill:" c4 "}.fx .d5{fill:" c5 "}"

const char *svg_style(void)
{
    /* Six colours apart in hue and in lightness, also for readers who see fewer; brighter ones on dark. */
    return ".fx{font:12px system-ui,sans-serif}.fx .t{font-weight:600;font-size:14px}"
           ".fx path{fill:none;stroke-width:1.8;stroke-linejoin:round}.fx .g{stroke-width:1}"
           ".fx .m{stroke-dasharray:4 4}.fx .b{stroke-width:1.5}.fx .f{stroke-width:1;opacity:.4}"
           ".fx .raw{opacity:.28;stroke-width:1}.fx .h1{stroke-dasharray:7 3}.fx .h2{stroke-dasharray:2 "
           "3}\n" COLOURS(
               "#1f6fb4", "#cf3f54", "#20855c", "#a8730a", "#7548b0", "#59616c", "#1c2026", "#5a626c",
               "#c9ced5") "\n"
                          "@media(prefers-color-scheme:dark){" COLOURS(
                              "#6db3f2", "#ff8796", "#5fd3a2", "#e8b84a", "#b998f2", "#aab2bd", "#e7eaee",
                              "#a3abb5", "#3d444d") "}\n"
                                                    "@media print{" COLOURS("#1f6fb4", "#cf3f54", "#20855c",
                                                                            "#a8730a", "#7548b0", "#59616c",
                                                                            "#000", "#444", "#bbb") "}\n";
}

/* More curves than colours: the next six are dashed, the last dotted. */
static const char *dashes(int colour)
{
    static const char *const class[] = {"", " h1", " h2"};
    int turn = colour / SVG_COLOURS;
    return class[turn < 2 ? turn : 2];
}

struct frame { /* where the data are drawn */
    struct svg_axis x, y;
    double left, top, bottom;
};

static double at_x(const struct frame *f, double v)
{
    return f->left + (WIDTH - f->left - RIGHT) * svg_axis_place(&f->x, v);
}

static double at_y(const struct frame *f, double v)
{
    return f->bottom - (f->bottom - f->top) * svg_axis_place(&f->y, v);
}

/* ---- pieces ---------------------------------------------------------------------------------------- */

static void put_text(struct html *h, double x, double y, const char *more, const char *text)
{
    html_add(h, "<text x=\"%.1f\" y=\"%.1f\"%s>", x, y, more);
    html_text(h, text);
    html_add(h, "</text>\n");
}

static void put_line(struct html *h, const char *class, double x0, double y0, double x1, double y1)
{
    html_add(h, "<line class=\"%s\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n", class, x0, y0, x1,
             y1);
}

static void put_dot(struct html *h, int colour, double x, double y, double r, const char *name)
{
    html_add(h, "<circle class=\"d%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\">", colour % SVG_COLOURS, x, y, r);
    if (name) {
        html_add(h, "<title>");
        html_text(h, name);
        html_add(h, "</title>");
    }
    html_add(h, "</circle>\n");
}

static void begin(struct html *h, double height, const char *title, int alone)
{
    html_add(h, "<svg class=\"fx\" viewBox=\"0 0 %d %.0f\" role=\"img\"", WIDTH, height);
    if (alone)
        html_add(h, " xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%.0f\"", WIDTH, height);
    html_add(h, " aria-label=\"");
    html_text(h, title);
    html_add(h, "\">\n");
    if (alone) /* a page has its own ground; a file gets one in the tone of its text */
        html_add(h,
                 "<style>%ssvg{background:#fff}@media(prefers-color-scheme:dark){"
                 "svg{background:#16191d}}</style>\n",
                 svg_style());
    put_text(h, LEFT, TITLE, " class=\"t\"", title);
}

/* Letters, not bytes, of a UTF-8 text. */
static int length_of(const char *text)
{
    int n = 0;
    for (; *text; text++)
        n += (*text & 0xC0) != 0x80;
    return n;
}

/* Places the next name of a legend; *x and *y move on. Draws if h is not NULL. */
static void put_key(struct html *h, double *x, double *y, int colour, const char *name, int dots)
{
    double width = 26 + LETTER * length_of(name) + 14;
    if (*x > LEFT && *x + width > WIDTH - RIGHT + 14) {
        *x = LEFT;
        *y += LINE;
    }
    if (h && dots)
        put_dot(h, colour, *x + 10, *y - 4, 4, NULL);
    else if (h)
        html_add(h, "<path class=\"l%d%s\" d=\"M%.1f %.1fh20\"/>\n", colour % SVG_COLOURS, dashes(colour), *x,
                 *y - 4);
    if (h)
        put_text(h, *x + 26, *y, " class=\"k\"", name);
    *x += width;
}

static void put_x_axis(struct html *h, const struct frame *f, const char *name)
{
    char label[24];
    for (int i = 0; i < f->x.n_ticks; i++) {
        double x = at_x(f, f->x.tick[i]);
        put_line(h, "g", x, f->bottom, x, f->bottom + 5);
        put_text(h, x, f->bottom + 18, " text-anchor=\"middle\"", svg_axis_label(label, &f->x, f->x.tick[i]));
    }
    put_line(h, "g", f->left, f->bottom, WIDTH - RIGHT, f->bottom);
    put_text(h, (f->left + WIDTH - RIGHT) / 2, f->bottom + 37, " text-anchor=\"middle\"", name);
}

static void put_y_axis(struct html *h, const struct frame *f, const char *name)
{
    char label[24];
    for (int i = 0; i < f->y.n_ticks; i++) {
        double y = at_y(f, f->y.tick[i]);
        put_line(h, "g", LEFT, y, WIDTH - RIGHT, y);
        put_text(h, LEFT - 6, y + 4, " text-anchor=\"end\"", svg_axis_label(label, &f->y, f->y.tick[i]));
    }
    html_add(h, "<text transform=\"translate(14 %.1f) rotate(-90)\" text-anchor=\"middle\">",
             (f->top + f->bottom) / 2);
    html_text(h, name);
    html_add(h, "</text>\n");
}

static void put_nothing(struct html *h, const struct frame *f)
{
    put_text(h, (f->left + WIDTH - RIGHT) / 2, (f->top + f->bottom) / 2, " text-anchor=\"middle\"",
             "no data");
}

/* ---- curves ---------------------------------------------------------------------------------------- */

struct extent {
    double lo, hi;
    double least; /* above zero; 0: none */
    int any;
};

static void stretch(struct extent *e, double v)
{
    e->lo = e->any ? fmin(e->lo, v) : v;
    e->hi = e->any ? fmax(e->hi, v) : v;
    e->least = v > 0 && (e->least == 0 || v < e->least) ? v : e->least;
    e->any = 1;
}

static void find_extents(struct extent *x, struct extent *y, const struct svg_chart *c)
{
    double px[SVG_MAX_POINTS], py[SVG_MAX_POINTS];
    for (int s = 0; s < c->n_series; s++)
        for (int i = 0, n = svg_thin(px, py, &c->series[s]); i < n; i++)
            if (isfinite(py[i]) && isfinite(px[i])) {
                stretch(x, px[i]);
                stretch(y, py[i]);
            }
    for (int s = 0; s < c->n_series; s++) /* a thinned curve ends a little early; the axis does not */
        if (x->any && c->series[s].n > 0 && isfinite(c->series[s].x[c->series[s].n - 1]))
            stretch(x, c->series[s].x[c->series[s].n - 1]);
}

static void put_curve(struct html *h, const struct frame *f, const char *class, int colour, const double *x,
                      const double *y, int n)
{
    for (int i = 0; i < n;) {
        int end = i;
        while (end < n && isfinite(x[end]) && isfinite(y[end]))
            end++;
        if (end - i == 1 && !*class)
            put_dot(h, colour, at_x(f, x[i]), at_y(f, y[i]), 2.5, NULL);
        if (end - i > 1) {
            html_add(h, "<path class=\"l%d%s%s\" d=\"", colour % SVG_COLOURS, dashes(colour), class);
            for (int k = i; k < end; k++)
                html_add(h, "%c%.1f %.1f", k == i ? 'M' : 'L', at_x(f, x[k]), at_y(f, y[k]));
            html_add(h, "\"/>\n");
        }
        i = end > i ? end : i + 1;
    }
}

static void put_points(struct html *h, const struct frame *f, const struct svg_series *s)
{
    for (int i = 0; i < s->n; i++)
        if (isfinite(s->x[i]) && isfinite(s->y[i]))
            put_dot(h, s->colour, at_x(f, s->x[i]), at_y(f, s->y[i]), 3, NULL);
}

static void put_series(struct html *h, const struct frame *f, const struct svg_series *s, int smooth)
{
    double x[SVG_MAX_POINTS], y[SVG_MAX_POINTS], mean[SVG_MAX_POINTS];
    int n = svg_thin(x, y, s), half = smooth ? n / 30 : 0; /* a fifteenth of the curve: waves stay */
    svg_smooth(mean, y, n, half);
    if (half > 0)
        put_curve(h, f, " raw", s->colour, x, y, n);
    put_curve(h, f, "", s->colour, x, mean, n);
}

static void put_marks(struct html *h, const struct frame *f, const struct svg_chart *c)
{
    for (int i = 0; i < c->n_marks; i++) {
        double x = at_x(f, c->marks[i].x);
        if (x > LEFT + 1)
            put_line(h, "m", x, f->top - PHASES, x, f->bottom);
        put_text(h, x + (x > LEFT + 1 ? 4 : 0), f->top - 5, "", c->marks[i].name);
    }
}

/* Draws the legend if h is not NULL; returns where the chart below may begin. */
static double put_legend(struct html *h, const struct svg_chart *c)
{
    double x = LEFT, y = TITLE + LINE + 2;
    for (int s = 0; s < c->n_series; s++)
        if (c->series[s].name)
            put_key(h, &x, &y, c->series[s].colour, c->series[s].name, 0);
    return y + 12 + (c->n_marks ? PHASES : 0);
}

void svg_lines(struct html *h, const struct svg_chart *c)
{
    struct extent x = {0}, y = {0};
    struct frame f = {.left = LEFT, .top = put_legend(NULL, c)};
    double height = HEIGHT + f.top - (TITLE + LINE + 14);
    f.bottom = height - BOTTOM;
    find_extents(&x, &y, c);
    if (!x.any)
        x.hi = y.hi = 1;
    int log = c->log && y.lo >= 0 && y.least > 0 && y.hi >= 30 * y.least;
    if (log) /* zeros, and what is below the five decades that can be read, lie on the axis */
        y.lo = fmax(y.least, 1e-5 * y.hi);
    svg_axis_fit(&f.x, x.lo, x.hi, 0);
    svg_axis_fit(&f.y, y.lo, y.hi, log);
    begin(h, height, c->title, c->alone);
    put_legend(h, c);
    put_y_axis(h, &f, c->y_name);
    put_x_axis(h, &f, c->x_name);
    put_marks(h, &f, c);
    for (int s = 0; s < c->n_series; s++)
        put_series(h, &f, &c->series[s], c->smooth);
    for (int s = 0; s < c->n_series && c->dots; s++)
        if (c->series[s].n <= MOST_DOTS)
            put_points(h, &f, &c->series[s]);
    if (!x.any)
        put_nothing(h, &f);
    html_add(h, "</svg>\n");
}

/* ---- values of cases ------------------------------------------------------------------------------- */

static void dot_name(char out[160], const struct svg_dots *d, int row, int i)
{
    snprintf(out, 160, "%.60s, %.60s: %.4g", d->cases[i], d->rows[row].name, d->rows[row].value[i]);
}

static void put_value(struct html *h, const struct frame *f, const struct svg_dots *d, int row, int i,
                      double y, double r)
{
    char name[160];
    if (!isfinite(d->rows[row].value[i]))
        return;
    dot_name(name, d, row, i);
    put_dot(h, row, at_x(f, d->rows[row].value[i]), y, r, name);
}

/* At most MAX_NAME letters of a name: a long one keeps its end, where cases differ. Returns out. */
static char *short_name(char out[4 * MAX_NAME + 1], const char *name)
{
    int skip = length_of(name) - MAX_NAME;
    for (; skip > 0; skip--)
        for (name++; (*name & 0xC0) == 0x80;)
            name++;
    snprintf(out, 4 * MAX_NAME + 1, "%s", name);
    return out;
}

/* Width of the column of names. */
static double names_width(const struct svg_dots *d, int by_case)
{
    int most = 0;
    for (int i = 0; i < (by_case ? d->n_cases : d->n_rows); i++) {
        int n = length_of(by_case ? d->cases[i] : d->rows[i].name);
        most = n > most ? n : most;
    }
    return 24 + LETTER * (most < MAX_NAME ? most : MAX_NAME);
}

/* A line between the methods' dots of a case shows who gained. */
static void put_case(struct html *h, const struct frame *f, const struct svg_dots *d, int i, double y)
{
    struct extent span = {0};
    char name[4 * MAX_NAME + 1];
    for (int r = 0; r < d->n_rows; r++)
        if (isfinite(d->rows[r].value[i]))
            stretch(&span, d->rows[r].value[i]);
    put_text(h, f->left - 10, y + 4, " text-anchor=\"end\"", short_name(name, d->cases[i]));
    put_line(h, "f", f->left, y, WIDTH - RIGHT, y);
    if (span.any)
        put_line(h, "b", at_x(f, span.lo), y, at_x(f, span.hi), y);
    for (int r = 0; r < d->n_rows; r++)
        put_value(h, f, d, r, i, y, 4.5);
}

/* Dots of one method, spread over the height of its row by a fixed pattern so that they do not hide; a line
 * at their mean. */
static void put_method(struct html *h, const struct frame *f, const struct svg_dots *d, int row, double y)
{
    char name[4 * MAX_NAME + 1];
    double sum = 0;
    int n = 0;
    for (int i = 0; i < d->n_cases; i++) {
        sum += isfinite(d->rows[row].value[i]) ? d->rows[row].value[i] : 0;
        n += isfinite(d->rows[row].value[i]);
    }
    if (n > 0)
        put_line(h, "b", at_x(f, sum / n), y - 11, at_x(f, sum / n), y + 11);
    put_text(h, f->left - 10, y + 4, " text-anchor=\"end\"", short_name(name, d->rows[row].name));
    for (int i = 0; i < d->n_cases; i++)
        put_value(h, f, d, row, i, y + (i * 7 % 11 - 5) * 1.6, 2.5);
}

void svg_dots(struct html *h, const struct svg_dots *d)
{
    struct extent x = {0};
    int by_case = d->n_cases <= FEW_CASES && d->n_rows <= SVG_COLOURS;
    int lines = by_case ? d->n_cases : d->n_rows;
    double row = by_case ? ROW : 2 * ROW, key_x = LEFT, key_y = TITLE + LINE + 2;
    for (int r = 0; r < d->n_rows; r++) {
        if (by_case) /* else the rows have the names beside them */
            put_key(NULL, &key_x, &key_y, r, d->rows[r].name, 1);
        for (int i = 0; i < d->n_cases; i++)
            if (isfinite(d->rows[r].value[i]))
                stretch(&x, d->rows[r].value[i]);
    }
    struct frame f = {.left = names_width(d, by_case), .top = by_case ? key_y + 12 : TITLE + LINE};
    f.bottom = f.top + row * (lines > 0 ? lines : 1) + 6;
    svg_axis_fit(&f.x, x.any ? x.lo : 0, x.any ? x.hi : 1, 0);
    begin(h, f.bottom + BOTTOM, d->title, d->alone);
    key_x = LEFT;
    key_y = TITLE + LINE + 2;
    for (int r = 0; r < d->n_rows && by_case; r++)
        put_key(h, &key_x, &key_y, r, d->rows[r].name, 1);
    put_x_axis(h, &f, d->x_name);
    for (int i = 0; i < lines; i++) {
        double y = f.top + row * (i + 0.5);
        if (by_case)
            put_case(h, &f, d, i, y);
        else
            put_method(h, &f, d, i, y);
    }
    if (!x.any)
        put_nothing(h, &f);
    html_add(h, "</svg>\n");
}

/* ---- two numbers of each case ---------------------------------------------------------------------- */

/* Draws the names of colours if h is not NULL; returns where the chart below may begin. */
static double put_kinds(struct html *h, const struct svg_scatter *s)
{
    double x = LEFT, y = TITLE + LINE + 2;
    for (int i = 0; i < s->n_kinds; i++)
        put_key(h, &x, &y, i, s->kinds[i], 1);
    return s->n_kinds ? y + 12 : TITLE + LINE;
}

void svg_scatter(struct html *h, const struct svg_scatter *s)
{
    struct extent x = {0}, y = {0};
    struct frame f = {.left = LEFT, .top = put_kinds(NULL, s), .bottom = HEIGHT - BOTTOM};
    char name[160];
    for (int i = 0; i < s->n; i++)
        if (isfinite(s->x[i]) && isfinite(s->y[i])) {
            stretch(&x, s->x[i]);
            stretch(&y, s->y[i]);
        }
    svg_axis_fit(&f.x, x.any ? x.lo : 0, x.any ? x.hi : 1, 0);
    svg_axis_fit(&f.y, y.any ? y.lo : 0, y.any ? y.hi : 1, 0);
    begin(h, HEIGHT, s->title, s->alone);
    put_kinds(h, s);
    put_y_axis(h, &f, s->y_name);
    put_x_axis(h, &f, s->x_name);
    for (int i = 0; i < s->n; i++)
        if (isfinite(s->x[i]) && isfinite(s->y[i])) {
            snprintf(name, sizeof name, "%.60s: %.4g, %.4g", s->names ? s->names[i] : "", s->x[i], s->y[i]);
            put_dot(h, s->colour ? s->colour[i] : 0, at_x(&f, s->x[i]), at_y(&f, s->y[i]), s->names ? 4 : 2.5,
                    s->names ? name : NULL);
        }
    if (!x.any)
        put_nothing(h, &f);
    html_add(h, "</svg>\n");
}
