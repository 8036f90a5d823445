/* boxes.c - bounding boxes, and the largest connected part by runs. See boxes.h.
 *
 * A run is a maximal stretch of voxels above the threshold within one row. Runs of neighbouring
 * rows that overlap belong together; union-find joins them. A CT of 100 million voxels has about a
 * million runs, so this needs a fraction of the memory of a label per voxel.
 */
#include <string.h>

#include "prepare/boxes.h"

static void box_whole(struct box *out, const int64_t dims[3])
{
    for (int a = 0; a < 3; a++) {
        out->first[a] = 0;
        out->dims[a] = dims[a];
    }
}

/* Corners while searching; none seen if hi < lo. */
struct extent {
    int64_t lo[3], hi[3];
};

static void extent_start(struct extent *x, const int64_t dims[3])
{
    for (int a = 0; a < 3; a++) {
        x->lo[a] = dims[a];
        x->hi[a] = -1;
    }
}

static void extent_add(struct extent *x, int64_t i_lo, int64_t i_hi, int64_t j, int64_t k)
{
    const int64_t lo[3] = {i_lo, j, k}, hi[3] = {i_hi, j, k};
    for (int a = 0; a < 3; a++) {
        if (lo[a] < x->lo[a])
            x->lo[a] = lo[a];
        if (hi[a] > x->hi[a])
            x->hi[a] = hi[a];
    }
}

static int extent_box(struct box *out, const struct extent *x, const int64_t dims[3])
{
    box_whole(out, dims);
    if (x->hi[0] < 0)
        return 0;
    for (int a = 0; a < 3; a++) {
        out->first[a] = x->lo[a];
        out->dims[a] = x->hi[a] - x->lo[a] + 1;
    }
    return 1;
}

int box_of_values(struct box *out, const float *values, const int64_t dims[3], float threshold)
{
    struct extent x;
    extent_start(&x, dims);
    for (int64_t k = 0; k < dims[2]; k++) {
        for (int64_t j = 0; j < dims[1]; j++) {
            const float *row = values + dims[0] * (j + dims[1] * k);
            int64_t lo = 0, hi = dims[0] - 1;
            while (lo <= hi && !(row[lo] > threshold))
                lo++;
            while (hi >= lo && !(row[hi] > threshold))
                hi--;
            if (lo <= hi)
                extent_add(&x, lo, hi, j, k);
        }
    }
    return extent_box(out, &x, dims);
}

int box_of_label(struct box *out, const label_t *label, const int64_t dims[3])
{
    struct extent x;
    extent_start(&x, dims);
    for (int64_t k = 0; k < dims[2]; k++) {
        for (int64_t j = 0; j < dims[1]; j++) {
            const label_t *row = label + dims[0] * (j + dims[1] * k);
            int64_t lo = 0, hi = dims[0] - 1;
            while (lo <= hi && row[lo] == 0)
                lo++;
            while (hi >= lo && row[hi] == 0)
                hi--;
            if (lo <= hi)
                extent_add(&x, lo, hi, j, k);
        }
    }
    return extent_box(out, &x, dims);
}

void box_join(struct box *io, const struct box *other)
{
    for (int a = 0; a < 3; a++) {
        int64_t end = io->first[a] + io->dims[a], other_end = other->first[a] + other->dims[a];
        if (other->first[a] < io->first[a])
            io->first[a] = other->first[a];
        io->dims[a] = (other_end > end ? other_end : end) - io->first[a];
    }
}

/* ---- connected parts ------------------------------------------------------------------------- */

struct run {
    int32_t lo, hi; /* voxels of the row, both inclusive */
    int32_t parent; /* a run of the same part met earlier, or itself */
};

struct runs {
    struct run *run;
    int64_t n, room;
    int64_t *first; /* of each row; first[rows] = n */
};

static int64_t run_root(struct run *run, int64_t i)
{
    while (run[i].parent != (int32_t)i) {
        run[i].parent = run[run[i].parent].parent;
        i = run[i].parent;
    }
    return i;
}

/* The lower number wins, so that a root is always the first run of its part. */
static void run_join(struct run *run, int64_t a, int64_t b)
{
    a = run_root(run, a);
    b = run_root(run, b);
    if (a < b)
        run[b].parent = (int32_t)a;
    else
        run[a].parent = (int32_t)b;
}

static int runs_find(struct runs *r, const float *row, int64_t n, float threshold, struct error *e)
{
    for (int64_t i = 0; i < n; i++) {
        if (!(row[i] > threshold))
            continue;
        int64_t lo = i;
        while (i + 1 < n && row[i + 1] > threshold)
            i++;
        if (r->n == r->room) {
            int64_t room = r->room ? 2 * r->room : 4096;
            struct run *more = mem_resize(e, r->run, (size_t)room, sizeof *more);
            if (!more)
                return -1;
            r->run = more;
            r->room = room;
        }
        r->run[r->n] = (struct run){(int32_t)lo, (int32_t)i, (int32_t)r->n};
        r->n++;
    }
    return 0;
}

/* Joins overlapping runs of two rows. */
static void rows_join(struct runs *r, int64_t row, int64_t other)
{
    int64_t a = r->first[row], b = r->first[other];
    while (a < r->first[row + 1] && b < r->first[other + 1]) {
        const struct run *ra = &r->run[a], *rb = &r->run[b];
        int32_t a_hi = ra->hi, b_hi = rb->hi;
        if (ra->lo <= b_hi && rb->lo <= a_hi)
            run_join(r->run, a, b);
        if (a_hi < b_hi)
            a++;
        else
            b++;
    }
}

static int64_t runs_largest(struct runs *r, struct error *e)
{
    int64_t *voxels = mem_alloc(e, (size_t)r->n, sizeof *voxels), best = 0;
    if (!voxels)
        return -1;
    for (int64_t i = 0; i < r->n; i++) {
        voxels[run_root(r->run, i)] += r->run[i].hi - r->run[i].lo + 1;
    }
    for (int64_t i = 1; i < r->n; i++) {
        if (voxels[i] > voxels[best])
            best = i;
    }
    mem_free(voxels);
    return best;
}

int box_of_body(struct box *out, const float *values, const int64_t dims[3], float threshold,
                struct error *e)
{
    int64_t rows = dims[1] * dims[2], part = 0;
    struct runs r = {.first = mem_alloc(e, (size_t)rows + 1, sizeof *r.first)};
    struct extent x;
    int status = -1;
    box_whole(out, dims);
    if (!r.first)
        goto out;
    for (int64_t row = 0; row < rows; row++) {
        r.first[row] = r.n;
        if (runs_find(&r, values + row * dims[0], dims[0], threshold, e) < 0)
            goto out;
        r.first[row + 1] = r.n;
        if (row % dims[1] > 0)
            rows_join(&r, row, row - 1);
        if (row >= dims[1])
            rows_join(&r, row, row - dims[1]);
    }
    status = 0;
    if (r.n == 0)
        goto out;
    part = runs_largest(&r, e);
    if (part < 0) {
        status = -1;
        goto out;
    }
    extent_start(&x, dims);
    for (int64_t row = 0; row < rows; row++) {
        for (int64_t i = r.first[row]; i < r.first[row + 1]; i++) {
            if (run_root(r.run, i) != part)
                continue;
            extent_add(&x, r.run[i].lo, r.run[i].hi, row % dims[1], row / dims[1]);
        }
    }
    extent_box(out, &x, dims);
out:
    mem_free(r.run);
    mem_free(r.first);
    return status;
}
