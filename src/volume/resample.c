/* resample.c - aligned resampling, one axis after the other.
 *
 * Along one axis an output voxel is a short weighted sum of input voxels. The indices and weights
 * depend on the axis alone, so they are tabled once (`struct taps`), and a pass over the volume
 * applies the table to bundles of WIDTH lines at a time:
 *
 *     input lines --gather--> in[n][WIDTH] --(spline filter)--> sums --> out[m][WIDTH] --> output
 *
 * Bundles are double, so each pass rounds once, to float32. The axis that shrinks most comes first.
 *
 * The cubic is the interpolating B-spline: its coefficients c solve (c[i-1] + 4 c[i] + c[i+1]) / 6
 * = s[i], by one recursive filter forth and one back with pole z = sqrt(3) - 2 (Unser, Aldroubi,
 * Eden, IEEE Trans. Signal Processing 41, 1993), with borders mirrored at the outer voxel centres.
 */
#include <math.h>
#include <string.h>

#include "volume/resample.h"

enum { WIDTH = 32 }; /* lines a bundle: 512-voxel lines take 128 KiB, which fits into L2 */

/* Output o = sum over t of weight[o * per + t] * input[index[o * per + t]]. */
struct taps {
    int64_t n; /* outputs */
    int per;
    int64_t *index;
    double *weight; /* each output's weights sum to 1 */
};

int64_t resample_count(int64_t n, double spacing_mm, double target_mm)
{
    double count = rint((double)n * spacing_mm / target_mm);
    if (!(count >= 1.0))
        return 1;
    return count < 9e15 ? (int64_t)count : INT64_C(9000000000000000);
}

void resample_axis_identity(struct resample_axis *out, int64_t n)
{
    out->n = n;
    out->start = 0.0;
    out->step = 1.0;
}

void resample_axis_centred(struct resample_axis *out, int64_t n, double spacing_mm, double target_mm)
{
    out->n = resample_count(n, spacing_mm, target_mm);
    out->step = target_mm / spacing_mm;
    out->start = 0.5 * ((double)(n - 1) - (double)(out->n - 1) * out->step);
    if (out->n == n && fabs(out->step - 1.0) < 1e-6)
        resample_axis_identity(out, n); /* 1e-6: float32 */
}

void resample_axis_ends(struct resample_axis *out, int64_t n, int64_t n_out)
{
    out->n = n_out;
    out->start = 0.0;
    if (n > 1 && n_out > 1)
        out->step = (double)(n - 1) / (double)(n_out - 1);
    else
        out->step = (double)n / (double)n_out; /* one voxel has no ends; keep its extent */
}

static int axis_is_identity(const struct resample_axis *a, int64_t n)
{
    return a->n == n && a->start == 0.0 && a->step == 1.0;
}

int resample_is_identity(const struct resample_axis axis[3], const int64_t dims[3])
{
    return axis_is_identity(&axis[0], dims[0]) && axis_is_identity(&axis[1], dims[1]) &&
           axis_is_identity(&axis[2], dims[2]);
}

/* ---- tables ---------------------------------------------------------------------------------- */

static void taps_free(struct taps *t)
{
    mem_free(t->index);
    mem_free(t->weight);
    memset(t, 0, sizeof *t);
}

static int64_t clamp_index(int64_t i, int64_t n)
{
    return i < 0 ? 0 : i >= n ? n - 1 : i;
}

/* Reflection at the centres of the outer voxels: -1 -> 1, n -> n - 2. */
static int64_t mirror_index(int64_t i, int64_t n)
{
    int64_t period = 2 * (n - 1);
    if (n == 1)
        return 0;
    i %= period;
    if (i < 0)
        i += period;
    return i < n ? i : period - i;
}

static void taps_linear(int64_t *index, double *weight, double x, int64_t n)
{
    int64_t at = (int64_t)floor(x);
    double f = x - (double)at;
    index[0] = at;
    index[1] = clamp_index(at + 1, n);
    weight[0] = 1.0 - f;
    weight[1] = f;
}

/* Input voxels that a triangle of half width `radius` may touch. */
static int triangle_width(double radius)
{
    return (int)ceil(2.0 * radius);
}

/* A triangle of half width `radius` input voxels around x, weights normalised; `weight` comes zeroed.
 * With fewer taps than its width it is folded: tap i is voxel i with all weights clamped to it. */
static void taps_triangle(int64_t *index, double *weight, int per, double x, double radius, int64_t n)
{
    int64_t first = (int64_t)floor(x - radius) + 1;
    int width = triangle_width(radius), folded = per < width;
    double sum = 0.0;
    for (int t = 0; t < per; t++)
        index[t] = folded ? t : clamp_index(first + t, n);
    for (int t = 0; t < width; t++) {
        double w = fmax(0.0, 1.0 - fabs((double)(first + t) - x) / radius);
        weight[folded ? clamp_index(first + t, n) : t] += w;
        sum += w;
    }
    for (int t = 0; t < per; t++)
        weight[t] /= sum;
}

/* The four coefficients, and their weights, that make the spline's value at x in [0, n - 1]. */
static void taps_spline(int64_t *index, double *weight, double x, int64_t n)
{
    int64_t at = (int64_t)floor(x);
    double f = x - (double)at, g = 1.0 - f;
    for (int t = 0; t < 4; t++)
        index[t] = mirror_index(at - 1 + t, n);
    weight[0] = g * g * g / 6.0;
    weight[1] = (4.0 - 6.0 * f * f + 3.0 * f * f * f) / 6.0;
    weight[2] = (4.0 - 6.0 * g * g + 3.0 * g * g * g) / 6.0;
    weight[3] = f * f * f / 6.0;
}

/* Classes are voted for by the product of three axes at once, so a triangle wider than its axis is
 * folded: 20^3 voxels with spacing in metres would be read 2000^3 times. Images take one axis after the
 * other, and keep all taps: a mean of two floats is often a tie, which a folded weight rounds otherwise. */
static int taps_per_output(enum resample_kind kind, double radius, int64_t n)
{
    if (kind == RESAMPLE_NEAREST)
        return 1;
    if (kind == RESAMPLE_CUBIC)
        return 4;
    if (radius <= 1.0)
        return 2;
    return kind == RESAMPLE_CLASSES && n < triangle_width(radius) ? (int)n : triangle_width(radius);
}

static int taps_new(struct taps *t, const struct resample_axis *a, int64_t n, enum resample_kind kind,
                    struct error *e)
{
    int smooth = kind == RESAMPLE_SMOOTH || kind == RESAMPLE_CLASSES;
    double radius = smooth && a->step > 1.0 ? a->step : 1.0;
    size_t cells = 0;
    memset(t, 0, sizeof *t);
    if (radius > 4096.0)
        return fail(e, ERR_DATA, "N23", "new voxels are %g old ones long, allowed up to 4096", radius);
    t->n = a->n;
    t->per = taps_per_output(kind, radius, n);
    if (size_mul(&cells, (size_t)a->n, (size_t)t->per) < 0)
        return fail(e, ERR_DATA, NULL, "a grid axis of %lld voxels is too long", (long long)a->n);
    t->index = mem_alloc(e, cells, sizeof *t->index);
    t->weight = t->index ? mem_alloc(e, cells, sizeof *t->weight) : NULL;
    if (!t->weight) {
        taps_free(t);
        return -1;
    }
    for (int64_t o = 0; o < a->n; o++) {
        int64_t *index = t->index + o * t->per;
        double *weight = t->weight + o * t->per;
        double x = fmin(fmax(a->start + a->step * (double)o, 0.0), (double)(n - 1));
        if (kind == RESAMPLE_NEAREST) {
            index[0] = clamp_index((int64_t)floor(x + 0.5), n);
            weight[0] = 1.0;
        } else if (kind == RESAMPLE_CUBIC) {
            taps_spline(index, weight, x, n);
        } else if (radius > 1.0) {
            taps_triangle(index, weight, t->per, x, radius, n);
        } else {
            taps_linear(index, weight, x, n);
        }
    }
    return 0;
}

/* ---- one pass over the volume ---------------------------------------------------------------- */

struct pass {
    float *out;
    const float *in;
    int64_t inner, n, lines; /* stride along the axis, input length, lines in the volume */
    const struct taps *taps;
    int filter;   /* 1: cubic B-spline coefficients first */
    double *room; /* n_slots bundles of (n + m) * WIDTH doubles */
    int64_t n_slots, per_slot;
};

/* Samples to coefficients along the n rows of a bundle, all WIDTH lines at once. */
static void spline_filter(double *s, int64_t n)
{
    const double z = sqrt(3.0) - 2.0, gain = (1.0 - z) * (1.0 - 1.0 / z);
    double start[WIDTH];
    if (n == 1)
        return;
    for (int64_t i = 0; i < n * WIDTH; i++)
        s[i] *= gain;
    /* Causal start: sum over the mirrored signal of z^i s[i]; z^48 is below double's rounding. */
    int64_t reach = n < 48 ? 2 * (n - 1) : 48;
    double zi = 1.0;
    memset(start, 0, sizeof start);
    for (int64_t i = 0; i < reach; i++, zi *= z) {
        const double *row = s + mirror_index(i, n) * WIDTH;
        for (int c = 0; c < WIDTH; c++)
            start[c] += zi * row[c];
    }
    if (n < 48)
        for (int c = 0; c < WIDTH; c++)
            start[c] /= 1.0 - zi; /* the signal repeats */
    memcpy(s, start, sizeof start);
    for (int64_t i = 1; i < n; i++)
        for (int c = 0; c < WIDTH; c++)
            s[i * WIDTH + c] += z * s[(i - 1) * WIDTH + c];
    double *last = s + (n - 1) * WIDTH;
    for (int c = 0; c < WIDTH; c++)
        last[c] = (z * last[c - WIDTH] + last[c]) * z / (z * z - 1.0);
    for (int64_t i = n - 2; i >= 0; i--) {
        double *row = s + i * WIDTH;
        for (int c = 0; c < WIDTH; c++)
            row[c] = z * (row[WIDTH + c] - row[c]);
    }
}

static void sum_taps(double *out, const double *in, const struct taps *t)
{
    for (int64_t o = 0; o < t->n; o++) {
        double *sum = out + o * WIDTH;
        for (int c = 0; c < WIDTH; c++)
            sum[c] = 0.0;
        for (int k = 0; k < t->per; k++) {
            const double *row = in + t->index[o * t->per + k] * WIDTH;
            double w = t->weight[o * t->per + k];
            for (int c = 0; c < WIDTH; c++)
                sum[c] += w * row[c];
        }
    }
}

/* Places of the first voxels of `width` lines, for lines of `length` voxels. */
static void line_starts(int64_t start[WIDTH], const struct pass *p, int64_t length, int64_t line, int width)
{
    for (int c = 0; c < width; c++) {
        int64_t l = line + c;
        start[c] = (l / p->inner) * p->inner * length + l % p->inner;
    }
}

static void gather(double *bundle, const struct pass *p, int64_t line, int width)
{
    int64_t start[WIDTH];
    line_starts(start, p, p->n, line, width);
    for (int64_t i = 0; i < p->n; i++) {
        double *row = bundle + i * WIDTH;
        for (int c = 0; c < width; c++)
            row[c] = p->in[start[c] + i * p->inner];
        for (int c = width; c < WIDTH; c++)
            row[c] = 0.0;
    }
}

static void scatter(const struct pass *p, const double *bundle, int64_t line, int width)
{
    int64_t start[WIDTH];
    line_starts(start, p, p->taps->n, line, width);
    for (int64_t i = 0; i < p->taps->n; i++) {
        const double *row = bundle + i * WIDTH;
        for (int c = 0; c < width; c++)
            p->out[start[c] + i * p->inner] = (float)row[c];
    }
}

/* One slot works through its own contiguous share of the bundles, in its own room. */
static void pass_slot(void *arg, int64_t slot)
{
    const struct pass *p = arg;
    int64_t bundles = (p->lines + WIDTH - 1) / WIDTH;
    double *in = p->room + slot * p->per_slot, *out = in + p->n * WIDTH;
    for (int64_t b = bundles * slot / p->n_slots; b < bundles * (slot + 1) / p->n_slots; b++) {
        int64_t line = b * WIDTH;
        int width = p->lines - line < WIDTH ? (int)(p->lines - line) : WIDTH;
        gather(in, p, line, width);
        if (p->filter)
            spline_filter(in, p->n);
        sum_taps(out, in, p->taps);
        scatter(p, out, line, width);
    }
}

/* in (dims) -> out (dims with axis a replaced by taps->n). */
static int run_pass(float *out, const float *in, const int64_t dims[3], int a, const struct taps *taps,
                    int filter, struct pool *pool, struct error *e)
{
    struct pass p = {.out = out, .in = in, .n = dims[a], .taps = taps, .filter = filter};
    p.inner = a == 0 ? 1 : a == 1 ? dims[0] : dims[0] * dims[1];
    p.lines = dims[0] * dims[1] * dims[2] / dims[a];
    p.n_slots = (int64_t)pool_threads(pool) * 4; /* 4: evens out slow cores */
    p.per_slot = (p.n + taps->n) * WIDTH;
    p.room = mem_alloc(e, (size_t)(p.n_slots * p.per_slot), sizeof *p.room);
    if (!p.room)
        return -1;
    pool_run(pool, p.n_slots, pass_slot, &p);
    mem_free(p.room);
    return 0;
}

/* Axes by growing n_out / n_in, so that later passes see fewer voxels. */
static void order_axes(int order[3], const int64_t dims[3], const struct resample_axis axis[3])
{
    double growth[3];
    for (int a = 0; a < 3; a++) { /* insertion sort */
        growth[a] = (double)axis[a].n / (double)dims[a];
        int at = a;
        for (; at > 0 && growth[order[at - 1]] > growth[a]; at--)
            order[at] = order[at - 1];
        order[at] = a;
    }
}

/* *out = new array of the product of dims; overflow and limit are checked. */
static void *grid_alloc(const int64_t dims[3], size_t each, struct error *e)
{
    size_t n = 1;
    for (int a = 0; a < 3; a++)
        if (size_mul(&n, n, (size_t)dims[a]) < 0 || n > volume_default_limits.voxels) {
            fail(e, ERR_DATA, NULL, "the new grid of %lldx%lldx%lld is larger than %llu voxels",
                 (long long)dims[0], (long long)dims[1], (long long)dims[2],
                 (unsigned long long)volume_default_limits.voxels);
            return NULL;
        }
    return mem_alloc(e, n, each);
}

/* One axis after the other. */
int resample_replace(float **io, const int64_t dims[3], const struct resample_axis axis[3],
                     enum resample_kind kind, struct pool *pool, struct error *e)
{
    int64_t now[3] = {dims[0], dims[1], dims[2]};
    int order[3];
    struct taps taps = {0};
    order_axes(order, dims, axis);
    for (int step = 0; step < 3; step++) {
        int a = order[step];
        int64_t next[3] = {now[0], now[1], now[2]};
        next[a] = axis[a].n;
        if (axis_is_identity(&axis[a], now[a]))
            continue;
        float *made = grid_alloc(next, sizeof *made, e);
        int failed = !made || taps_new(&taps, &axis[a], now[a], kind, e) < 0 ||
                     run_pass(made, *io, now, a, &taps, kind == RESAMPLE_CUBIC, pool, e) < 0;
        taps_free(&taps);
        mem_free(*io);
        *io = made;
        if (failed) {
            mem_free(*io);
            *io = NULL;
            return -1;
        }
        now[a] = next[a];
    }
    return 0;
}

/* ---- labels ---------------------------------------------------------------------------------- */

enum { MAX_CANDIDATES = 32 }; /* classes that meet around one voxel: plain linear sees at most 8 */

struct vote {
    int n;
    label_t class[MAX_CANDIDATES];
    double weight[MAX_CANDIDATES];
};

struct classes_job {
    label_t *out;
    const label_t *in;
    const int64_t *dims;
    const struct taps *taps; /* three */
};

static void vote_add(struct vote *v, label_t class, double weight)
{
    for (int i = 0; i < v->n; i++)
        if (v->class[i] == class) {
            v->weight[i] += weight;
            return;
        }
    if (v->n == MAX_CANDIDATES)
        return;
    v->class[v->n] = class;
    v->weight[v->n++] = weight;
}

/* 1e-9: equal weights must tie although they were summed in different orders. */
static label_t vote_winner(const struct vote *v)
{
    int best = 0;
    for (int i = 1; i < v->n; i++) {
        double more = v->weight[i] - v->weight[best];
        if (more > 1e-9 || (more > -1e-9 && v->class[i] < v -> class[best]))
            best = i;
    }
    return v->class[best];
}

/* The row of the input that taps b and c of output row (j, k) read. */
static const label_t *tap_row(const struct classes_job *job, int64_t j, int64_t k, int b, int c)
{
    const struct taps *t = job->taps;
    int64_t row = t[1].index[j * t[1].per + b] + job->dims[1] * t[2].index[k * t[2].per + c];
    return job->in + row * job->dims[0];
}

/* 1 if all voxels that output (i, j, k) reads have one class: true nearly everywhere, and cheap. */
static int is_uniform(const struct classes_job *job, int64_t i, int64_t j, int64_t k)
{
    const struct taps *t = job->taps;
    const int64_t *index = t[0].index + i * t[0].per;
    label_t class = tap_row(job, j, k, 0, 0)[index[0]];
    for (int c = 0; c < t[2].per; c++)
        for (int b = 0; b < t[1].per; b++) {
            const label_t *in = tap_row(job, j, k, b, c);
            for (int a = 0; a < t[0].per; a++)
                if (in[index[a]] != class)
                    return 0;
        }
    return 1;
}

static label_t classes_at(const struct classes_job *job, int64_t i, int64_t j, int64_t k)
{
    const struct taps *t = job->taps;
    struct vote v = {.n = 0};
    if (is_uniform(job, i, j, k))
        return tap_row(job, j, k, 0, 0)[t[0].index[i * t[0].per]];
    for (int c = 0; c < t[2].per; c++)
        for (int b = 0; b < t[1].per; b++) {
            double row = t[2].weight[k * t[2].per + c] * t[1].weight[j * t[1].per + b];
            const label_t *in = tap_row(job, j, k, b, c);
            for (int a = 0; a < t[0].per; a++) {
                double w = row * t[0].weight[i * t[0].per + a];
                if (w > 0.0)
                    vote_add(&v, in[t[0].index[i * t[0].per + a]], w);
            }
        }
    return vote_winner(&v);
}

static void classes_slice(void *arg, int64_t k)
{
    const struct classes_job *job = arg;
    const struct taps *t = job->taps;
    label_t *out = job->out + k * t[0].n * t[1].n;
    for (int64_t j = 0; j < t[1].n; j++)
        for (int64_t i = 0; i < t[0].n; i++)
            *out++ = classes_at(job, i, j, k);
}

int resample_classes(label_t **out, const label_t *in, const int64_t dims[3],
                     const struct resample_axis axis[3], struct pool *pool, struct error *e)
{
    const int64_t to[3] = {axis[0].n, axis[1].n, axis[2].n};
    struct taps taps[3] = {{0}};
    int status = -1;
    *out = NULL;
    for (int a = 0; a < 3; a++)
        if (taps_new(&taps[a], &axis[a], dims[a], RESAMPLE_CLASSES, e) < 0)
            goto out;
    *out = grid_alloc(to, sizeof **out, e);
    if (!*out)
        goto out;
    struct classes_job job = {*out, in, dims, taps};
    pool_run(pool, to[2], classes_slice, &job);
    status = 0;
out:
    for (int a = 0; a < 3; a++)
        taps_free(&taps[a]);
    return status;
}
