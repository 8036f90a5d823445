/* landmarks.c - see landmarks.h.
 *
 * The constants were chosen on the 80 published Left Atrium crops, of which two are one scan, and
 * on 130 hippocampus crops: the two share 87 landmarks; no other pair shares more than 2 at one
 * offset; crops that lose a sixth of their voxels and get 1.5 % noise keep at least 9 even in
 * 35x50x36 voxels. A table or head rest that two patients lay on is one rigid thing in two scans: landmarks
 * that agree must be spread over what the scans have in common.
 */
#include "data/landmarks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    REACH = 4,        /* voxels to the points compared: far enough to differ, near enough if small */
    SMOOTH = 2,       /* passes of a mean over 3 voxels */
    SHARED_LEAST = 6, /* agreeing landmarks that make a twin: three times what chance gave */
    SPREAD = 4,       /* they reach over this part of the common extent along each axis, at least */
    CROWD = 32        /* a key that more landmarks share than this tells nothing */
};
/* An axis this much coarser than the finest (thick slices) is not smoothed, and compared one step
 * away. */
static const double coarse_ratio = 2.5;

struct grid {
    int64_t n[3], step[3]; /* voxels and strides */
    int reach[3], margin[3];
};

static void grid_of(struct grid *g, const int64_t dims[3], const double spacing_mm[3])
{
    double finest = fmin(spacing_mm[0], fmin(spacing_mm[1], spacing_mm[2]));
    for (int a = 0; a < 3; a++) {
        int coarse = spacing_mm[a] > coarse_ratio * finest;
        g->n[a] = dims[a];
        g->step[a] = a == 0 ? 1 : g->step[a - 1] * dims[a - 1];
        g->reach[a] = coarse ? 1 : REACH;
        g->margin[a] = coarse ? 1 : REACH + SMOOTH; /* no value from beyond the scan is looked at */
    }
}

/* One pass of a sum over 3 along a line of n values; the ends lie in the margin. */
static void smooth_line(float *v, int64_t n)
{
    float before = v[0];
    for (int64_t i = 1; i + 1 < n; i++) {
        float here = v[i];
        v[i] = before + here + v[i + 1];
        before = here;
    }
    v[0] *= 3;
    v[n - 1] *= 3;
}

/* The same across n rows of `width` values, `step` apart; `before` holds one row. */
static void smooth_rows(float *v, int64_t n, int64_t step, int64_t width, float *before)
{
    memcpy(before, v, (size_t)width * sizeof *v);
    for (int64_t k = 1; k + 1 < n; k++) {
        float *row = v + k * step, *next = row + step;
        for (int64_t i = 0; i < width; i++) {
            float here = row[i];
            row[i] = before[i] + here + next[i];
            before[i] = here;
        }
    }
    for (int64_t i = 0; i < width; i++) {
        v[i] *= 3;
        v[(n - 1) * step + i] *= 3;
    }
}

static void smooth_axis(float *v, const struct grid *g, int axis, float *row)
{
    if (axis == 0)
        for (int64_t i = 0; i < g->n[1] * g->n[2]; i++)
            smooth_line(v + i * g->n[0], g->n[0]);
    else if (axis == 1)
        for (int64_t k = 0; k < g->n[2]; k++)
            smooth_rows(v + k * g->step[2], g->n[1], g->step[1], g->n[0], row);
    else
        for (int64_t j = 0; j < g->n[1]; j++)
            smooth_rows(v + j * g->step[1], g->n[2], g->step[2], g->n[0], row);
}

/* 1 if v[at] is above, or below, all 26 neighbours. */
static int is_extreme(const float *v, const struct grid *g, int64_t at)
{
    int above = 1, below = 1;
    for (int dk = -1; dk <= 1; dk++)
        for (int dj = -1; dj <= 1; dj++)
            for (int di = -1; di <= 1; di++) {
                if (!di && !dj && !dk)
                    continue;
                float near = v[at + di * g->step[0] + dj * g->step[1] + dk * g->step[2]];
                above &= v[at] > near;
                below &= v[at] < near;
                if (!above && !below)
                    return 0;
            }
    return 1;
}

static float strength(const float *v, const struct grid *g, int64_t at)
{
    float sum = 0;
    for (int a = 0; a < 3; a++)
        sum += fabsf(2 * v[at] - v[at - g->step[a]] - v[at + g->step[a]]);
    return sum;
}

/* Which of two opposite points is brighter, for 13 directions at two distances. */
static uint32_t key_of(const float *v, const struct grid *g, int64_t at)
{
    uint32_t key = 0;
    for (int half = 1; half <= 2; half++)
        for (int d = 14; d < 27; d++) { /* the 13 directions after the middle of a 3x3x3 cube */
            int64_t go = 0;
            int part[3] = {d % 3 - 1, d / 3 % 3 - 1, d / 9 - 1};
            for (int a = 0; a < 3; a++) {
                int reach = g->reach[a] / half;
                go += part[a] * (reach ? reach : 1) * g->step[a];
            }
            key = key << 1 | (v[at + go] > v[at - go]);
        }
    return key;
}

/* `items`, grown if need be, so that one more than n fits. NULL if memory is out; `items` stays. */
static void *with_room(void *items, size_t n, size_t *room, size_t each, struct error *e)
{
    size_t more = *room > n ? *room : 2 * n + 256;
    void *grown = *room > n ? items : mem_resize(e, items, more, each);
    *room = grown ? more : *room;
    return grown;
}

struct candidate {
    float strength;
    int64_t at;
};

struct candidates {
    struct candidate *c;
    size_t n, room;
};

static int by_strength(const void *p, const void *q)
{
    const struct candidate *x = p, *y = q;
    if (x->strength != y->strength)
        return x->strength > y->strength ? -1 : 1;
    return (x->at > y->at) - (x->at < y->at);
}

/* All extremes of the volume, in the order of voxels. */
static int find_extremes(struct candidates *out, const float *values, const struct grid *g, struct error *e)
{
    for (int64_t k = g->margin[2]; k < g->n[2] - g->margin[2]; k++)
        for (int64_t j = g->margin[1]; j < g->n[1] - g->margin[1]; j++)
            for (int64_t i = g->margin[0]; i < g->n[0] - g->margin[0]; i++) {
                int64_t at = i + j * g->step[1] + k * g->step[2];
                if (!is_extreme(values, g, at))
                    continue;
                struct candidate *grown = with_room(out->c, out->n, &out->room, sizeof *grown, e);
                if (!grown)
                    return -1;
                out->c = grown;
                out->c[out->n++] = (struct candidate){strength(values, g, at), at};
            }
    return 0;
}

int landmarks_find(struct landmarks *out, float *values, const int64_t dims[3], const double spacing_mm[3],
                   struct error *e)
{
    struct grid g;
    *out = (struct landmarks){NULL, 0};
    grid_of(&g, dims, spacing_mm);
    for (int a = 0; a < 3; a++)
        if (g.n[a] <= 2 * g.margin[a])
            return 0;
    float *row = mem_alloc(e, (size_t)dims[0], sizeof *row);
    if (!row)
        return -1;
    for (int a = 0; a < 3; a++)
        for (int pass = 0; pass < SMOOTH && g.reach[a] == REACH; pass++)
            smooth_axis(values, &g, a, row);
    mem_free(row);
    struct candidates found = {NULL, 0, 0};
    if (find_extremes(&found, values, &g, e) == 0)
        out->point = mem_alloc(e, LANDMARKS_MAX, sizeof *out->point);
    if (found.n)
        qsort(found.c, found.n, sizeof *found.c, by_strength);
    for (size_t i = 0; i < found.n && i < LANDMARKS_MAX && out->point; i++) {
        int64_t at = found.c[i].at;
        struct landmark *p = &out->point[out->n++];
        p->at[0] = (int32_t)(at % g.n[0]);
        p->at[1] = (int32_t)(at / g.step[1] % g.n[1]);
        p->at[2] = (int32_t)(at / g.step[2]);
        p->key = key_of(values, &g, at);
    }
    mem_free(found.c);
    return out->point ? 0 : -1;
}

/* ---- twins ----------------------------------------------------------------------------------- */

struct entry {
    uint32_t key;
    int scan, point;
};
struct vote {
    int a, b;
    int32_t offset[3], at[3]; /* at: the landmark of scan a */
};
struct votes {
    struct vote *vote;
    size_t n, room;
};

static int by_key(const void *p, const void *q)
{
    const struct entry *x = p, *y = q;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    if (x->scan != y->scan)
        return x->scan < y->scan ? -1 : 1;
    return (x->point > y->point) - (x->point < y->point);
}

static int by_pair(const void *p, const void *q)
{
    const struct vote *x = p, *y = q;
    if (x->a != y->a)
        return x->a < y->a ? -1 : 1;
    if (x->b != y->b)
        return x->b < y->b ? -1 : 1;
    for (int i = 0; i < 3; i++)
        if (x->offset[i] != y->offset[i])
            return x->offset[i] < y->offset[i] ? -1 : 1;
    return 0;
}

static int add_vote(struct votes *v, const struct landmarks *scans, const struct entry *x,
                    const struct entry *y, struct error *e)
{
    struct vote *grown = with_room(v->vote, v->n, &v->room, sizeof *grown, e);
    if (!grown)
        return -1;
    v->vote = grown;
    struct vote *to = &v->vote[v->n++];
    to->a = x->scan;
    to->b = y->scan;
    for (int i = 0; i < 3; i++) {
        to->at[i] = scans[x->scan].point[x->point].at[i];
        to->offset[i] = scans[y->scan].point[y->point].at[i] - to->at[i];
    }
    return 0;
}

/* Every two landmarks of different scans with one key vote for an offset between the scans. */
static int collect_votes(struct votes *v, const struct landmarks *scans, int n, struct error *e)
{
    size_t total = 0, filled = 0;
    int result = -1;
    for (int i = 0; i < n; i++)
        total += (size_t)scans[i].n;
    struct entry *all = mem_alloc(e, total, sizeof *all);
    if (!all)
        return -1;
    for (int i = 0; i < n; i++)
        for (int k = 0; k < scans[i].n; k++)
            all[filled++] = (struct entry){scans[i].point[k].key, i, k};
    qsort(all, total, sizeof *all, by_key);
    for (size_t i = 0, next; i < total; i = next) {
        for (next = i + 1; next < total && all[next].key == all[i].key; next++)
            continue;
        if (next - i > CROWD)
            continue;
        for (size_t p = i; p < next; p++)
            for (size_t q = p + 1; q < next; q++)
                if (all[p].scan != all[q].scan && add_vote(v, scans, &all[p], &all[q], e) < 0)
                    goto out;
    }
    result = 0;
out:
    mem_free(all);
    return result;
}

static int differ_by(const struct vote *x, const struct vote *y)
{
    int most = 0;
    for (int a = 0; a < 3; a++) {
        int by = abs(x->offset[a] - y->offset[a]);
        most = by > most ? by : most;
    }
    return most;
}

/* The offset on which most of n votes of one pair agree within a voxel (noise moves an extreme),
 * and among such offsets the one that most votes name exactly. */
static void best_offset(struct twin *out, const struct vote *v, size_t n)
{
    int best_exact = 0;
    *out = (struct twin){.a = v->a, .b = v->b};
    for (size_t i = 0; i < n; i++) {
        int agree = 0, exact = 0;
        for (size_t k = 0; k < n; k++) {
            int by = differ_by(&v[i], &v[k]);
            agree += by <= 1;
            exact += by == 0;
        }
        if (agree > out->shared || (agree == out->shared && exact > best_exact)) {
            out->shared = agree;
            best_exact = exact;
            memcpy(out->offset, v[i].offset, sizeof out->offset);
        }
    }
}

/* From where to where the landmarks of a scan reach along an axis. */
static void reach_of(int32_t *lo, int32_t *hi, const struct landmarks *l, int axis)
{
    *lo = INT32_MAX;
    *hi = INT32_MIN;
    for (int i = 0; i < l->n; i++) {
        *lo = l->point[i].at[axis] < *lo ? l->point[i].at[axis] : *lo;
        *hi = l->point[i].at[axis] > *hi ? l->point[i].at[axis] : *hi;
    }
}

/* Of the n votes for a pair: do those for its offset come from all over what the scans share? */
static int is_spread(const struct twin *t, const struct vote *v, size_t n, const struct landmarks *scans)
{
    const struct vote best = {.offset = {t->offset[0], t->offset[1], t->offset[2]}};
    for (int axis = 0; axis < 3; axis++) {
        int32_t lo = INT32_MAX, hi = INT32_MIN, a[2], b[2];
        for (size_t i = 0; i < n; i++)
            if (differ_by(&v[i], &best) <= 1) {
                lo = v[i].at[axis] < lo ? v[i].at[axis] : lo;
                hi = v[i].at[axis] > hi ? v[i].at[axis] : hi;
            }
        reach_of(&a[0], &a[1], &scans[t->a], axis);
        reach_of(&b[0], &b[1], &scans[t->b], axis);
        int32_t from = b[0] - t->offset[axis], until = b[1] - t->offset[axis]; /* in voxels of a */
        int32_t common = (a[1] < until ? a[1] : until) - (a[0] > from ? a[0] : from);
        if (SPREAD * (hi - lo) < common)
            return 0;
    }
    return 1;
}

int landmarks_find_twins(struct twin **out, int *n_twins, const struct landmarks *scans, int n,
                         struct error *e)
{
    struct votes v = {0};
    size_t room = 0;
    int result = -1;
    *out = NULL;
    *n_twins = 0;
    if (collect_votes(&v, scans, n, e) < 0)
        goto out;
    if (v.n)
        qsort(v.vote, v.n, sizeof *v.vote, by_pair);
    for (size_t i = 0, next; i < v.n; i = next) {
        for (next = i + 1; next < v.n && v.vote[next].a == v.vote[i].a && v.vote[next].b == v.vote[i].b;)
            next++;
        struct twin t;
        best_offset(&t, &v.vote[i], next - i);
        if (t.shared < SHARED_LEAST || !is_spread(&t, &v.vote[i], next - i, scans))
            continue;
        struct twin *grown = with_room(*out, (size_t)*n_twins, &room, sizeof t, e);
        if (!grown)
            goto out;
        *out = grown;
        (*out)[(*n_twins)++] = t;
    }
    result = 0;
out:
    mem_free(v.vote);
    if (result < 0) {
        mem_free(*out);
        *out = NULL;
    }
    return result;
}
