/* svg.h - charts as SVG: curves over steps, values of cases by method, one number against another.
 *
 *     title                                       700 x 300 units, as wide as its place
 *     -- name  -- name                            legend, in as many lines as it needs
 *     |      :phase                               a dashed line where a phase begins
 *     |\__   :____
 *     |   \__:    \___
 *     +------+---------- x name
 *
 * Colours and type come from a style sheet (svg_style), so that one drawing serves light, dark and paper.
 * Same input, same bytes.
 */
#ifndef FALX_SVG_H
#define FALX_SVG_H

#include "report/html.h"

enum {
    SVG_COLOURS = 6,
    SVG_MAX_POINTS = 400 /* of a curve: more than the pixels that a point would need */
};

/* The rules that the drawings need; to stand in the page, or in each drawing by itself (`alone`). */
const char *svg_style(void);

struct svg_series {
    const char *name;    /* in the legend; NULL: none, a continuation of another one */
    const double *x, *y; /* x ascending. Points that are not finite, or beyond 1e30, are gaps */
    int n;
    int colour; /* 0 ..; from SVG_COLOURS on dashed */
};

struct svg_mark {
    double x;
    const char *name;
};

struct svg_chart {
    const char *title, *x_name, *y_name;
    const struct svg_series *series;
    int n_series;
    const struct svg_mark *marks; /* ascending */
    int n_marks;
    int log;    /* 1: a logarithmic axis if data >= 0 span a factor of 30 or more */
    int dots;   /* 1: a dot at each point, too, for curves of few */
    int smooth; /* 1: a moving mean, over the curve itself drawn faintly */
    int alone;  /* 1: a file by itself */
};
void svg_lines(struct html *h, const struct svg_chart *c);

struct svg_row {
    const char *name;    /* of the method */
    const double *value; /* of each case; NaN: none */
};
struct svg_dots {
    const char *title, *x_name;
    const char *const *cases;
    int n_cases;
    const struct svg_row *rows; /* one colour each, from 0 */
    int n_rows;
    int alone;
};
/* Up to 40 cases and as many methods as colours: a line a case, with a dot a method. More: a line a method,
 * with a dot a case and a mark at the mean. */
void svg_dots(struct html *h, const struct svg_dots *d);

struct svg_scatter {
    const char *title, *x_name, *y_name;
    const char *const *names; /* of the points; NULL: none */
    const int *colour;        /* of each point; NULL: all the first */
    const char *const *kinds; /* (n_kinds) names of the colours, from the first on */
    int n_kinds;
    const double *x, *y; /* not finite: left out */
    int n;
    int alone;
};
void svg_scatter(struct html *h, const struct svg_scatter *s);

/* What the drawings are made of, for tests. */
struct svg_axis {
    double lo, hi;
    int log;
    double tick[24];
    int n_ticks;
};
/* An axis that holds lo .. hi, with round numbers; any input gives a usable one. */
void svg_axis_fit(struct svg_axis *out, double lo, double hi, int log);
double svg_axis_place(const struct svg_axis *a, double value);             /* 0 at lo, 1 at hi; kept inside */
char *svg_axis_label(char out[24], const struct svg_axis *a, double tick); /* returns out */
/* Means of as many neighbours as it takes to have at most SVG_MAX_POINTS; gaps are left out of means.
 * Returns the number of points. */
int svg_thin(double x[SVG_MAX_POINTS], double y[SVG_MAX_POINTS], const struct svg_series *s);
/* Moving mean over 2 * half + 1 points; over fewer, as many on either side, at ends and gaps. */
void svg_smooth(double *out, const double *y, int n, int half);

#endif
