/* svg_axis.c - numbers before they are drawn: round ticks, thinned and smoothed curves. See svg.h. */
#include <math.h>
#include <stdio.h>

#include "report/svg.h"

enum { WANTED_TICKS = 5, MAX_TICKS = sizeof((struct svg_axis *)0)->tick / sizeof(double) };

static const double beyond = 1e30; /* no number of training means anything out there */

static int usable(double v)
{
    return isfinite(v) && fabs(v) <= beyond;
}

/* ---- axes ------------------------------------------------------------------------------------ */

/* 1, 2 or 5 times a power of ten, so that about as many as wished fit into the span. */
static double round_step(double span)
{
    double raw = span / WANTED_TICKS, power = pow(10, floor(log10(raw))), times = raw / power;
    return power * (times <= 1.001 ? 1 : times <= 2.001 ? 2 : times <= 5.001 ? 5 : 10);
}

static void fit_linear(struct svg_axis *a, double lo, double hi)
{
    double least = 1e-9 * fmax(fabs(lo), fabs(hi)); /* narrower, and ticks would round to each other */
    if (!(hi - lo > fmax(least, 1e-12))) {
        double half = fmax(0.1 * fabs(lo), 0.5);
        lo -= half;
        hi += half;
    }
    double step = round_step(hi - lo), first = floor(lo / step + 1e-6), last = ceil(hi / step - 1e-6);
    a->n_ticks = 0;
    for (double k = first; k <= last && a->n_ticks < MAX_TICKS; k++)
        a->tick[a->n_ticks++] = k == 0 ? 0 : k * step;
    a->lo = first * step;
    a->hi = last * step;
}

/* 1, 2 and 5 of every decade, or 1 alone, or only some decades, whatever fits. */
static void fit_log(struct svg_axis *a, double lo, double hi)
{
    int first = (int)floor(log10(lo)), last = (int)ceil(log10(hi));
    int fine = last - first <= 3, stride = (last - first) / 8 + 1;
    a->lo = lo / 1.1;
    a->hi = hi * 1.1;
    a->n_ticks = 0;
    for (int k = first; k <= last; k += stride)
        for (int i = 0; i < (fine ? 3 : 1); i++) {
            double v = (i == 0 ? 1 : i == 1 ? 2 : 5) * pow(10, k);
            if (v >= a->lo && v <= a->hi && a->n_ticks < MAX_TICKS)
                a->tick[a->n_ticks++] = v;
        }
}

void svg_axis_fit(struct svg_axis *out, double lo, double hi, int log)
{
    if (!usable(lo) || !usable(hi) || lo > hi) {
        lo = 0;
        hi = 1;
    }
    out->log = log && lo > 0 && hi > 1.5 * lo;
    if (out->log)
        fit_log(out, lo, hi);
    else
        fit_linear(out, lo, hi);
}

double svg_axis_place(const struct svg_axis *a, double value)
{
    double share = a->log ? (value > 0 ? log(value / a->lo) / log(a->hi / a->lo) : 0)
                          : (value - a->lo) / (a->hi - a->lo);
    return share > 0 ? fmin(share, 1) : 0;
}

char *svg_axis_label(char out[24], const struct svg_axis *a, double tick)
{
    double step = a->n_ticks > 1 ? a->tick[1] - a->tick[0] : 1, most = fmax(fabs(a->lo), fabs(a->hi));
    int digits = 0;
    while (digits < 6 && step * pow(10, digits) < 0.999)
        digits++;
    if (a->log || most >= 1e6 || step < 1e-5)
        snprintf(out, 24, "%.6g", tick);
    else
        snprintf(out, 24, "%.*f", digits, tick);
    return out;
}

/* ---- curves ------------------------------------------------------------------------------------ */

int svg_thin(double x[SVG_MAX_POINTS], double y[SVG_MAX_POINTS], const struct svg_series *s)
{
    int each = (s->n + SVG_MAX_POINTS - 1) / SVG_MAX_POINTS, n = 0;
    for (int i = 0; i < s->n; i += each) {
        double sum_x = 0, sum_y = 0;
        int end = s->n - i < each ? s->n : i + each, count = 0;
        for (int k = i; k < end; k++) {
            sum_x += s->x[k];
            if (usable(s->y[k])) {
                sum_y += s->y[k];
                count++;
            }
        }
        x[n] = sum_x / (end - i);
        y[n++] = count ? sum_y / count : NAN;
    }
    return n;
}

void svg_smooth(double *out, const double *y, int n, int half)
{
    for (int i = 0; i < n; i++) {
        double sum = y[i];
        int reach = 0;
        out[i] = NAN;
        if (!usable(y[i]))
            continue;
        while (reach < half && i - reach > 0 && i + reach + 1 < n && usable(y[i - reach - 1]) &&
               usable(y[i + reach + 1])) {
            reach++;
            sum += y[i - reach] + y[i + reach];
        }
        out[i] = sum / (2 * reach + 1);
    }
}
