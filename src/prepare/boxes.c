/* boxes.c - bounding boxes, and connected parts by runs. See boxes.h.
 *
 * A run is a maximal stretch of voxels above the threshold within one row. Runs of neighbouring
 * rows that overlap belong together; union-find joins them. A CT of 100 million voxels has about a
 * million runs, so this needs a fraction of the memory of a label per voxel.
 */
#include <string.h>

#include "prepare/boxes.h"

void box_whole(struct box *out, const int64_t dims[3])
{
    memset(out->first, 0, sizeof out->first);
    memcpy(out->dims, dims, sizeof out->dims);
}

void box_join(struct box *io, const struct box *other)
{
    if (io->dims[0] == 0)
        *io = *other;
    for (int a = 0; a < 3; a++) {
        int64_t end = io->first[a] + io->dims[a], other_end = other->first[a] + other->dims[a];
        if (other->first[a] < io->first[a])
            io->first[a] = other->first[a];
        io->dims[a] = (other_end > end ? other_end : end) - io->first[a];
    }
}

/* Voxels lo..hi of row (j, k). */
static void box_add_row(struct box *io, int64_t lo, int64_t hi, int64_t j, int64_t k)
{
    box_join(io, &(struct box){{lo, j, k}, {hi - lo + 1, 1, 1}});
}

/* Is voxel v inside? Of the label if there is one, else of the values. */
static int is_inside(const label_t *label, const float *values, float threshold, int64_t v)
{
    return label ? label[v] > 0 : values[v] > threshold;
}

static int box_of_voxels(struct box *out, const int64_t dims[3], const label_t *label, const float *values,
                         float threshold)
{
    memset(out, 0, sizeof *out);
    for (int64_t row = 0; row < dims[1] * dims[2]; row++) {
        int64_t start = row * dims[0], lo = 0, hi = dims[0] - 1;
        while (lo <= hi && !is_inside(label, values, threshold, start + lo))
            lo++;
        while (hi > lo && !is_inside(label, values, threshold, start + hi))
            hi--;
        if (lo <= hi)
            box_add_row(out, lo, hi, row % dims[1], row / dims[1]);
    }
    if (out->dims[0] > 0)
        return 1;
    box_whole(out, dims);
    return 0;
}

int box_of_label(struct box *out, const label_t *label, const int64_t dims[3])
{
    return box_of_voxels(out, dims, label, NULL, 0.0f);
}

void box_of_signal(struct box *out, const float *values, const int64_t dims[3])
{
    float least = values[0];
    for (int64_t i = 1; i < dims[0] * dims[1] * dims[2]; i++)
        least = values[i] < least ? values[i] : least;
    box_of_voxels(out, dims, NULL, values, least);
}

/* ---- connected parts ------------------------------------------------------------------------- */

enum { BODY_SHARE = 4 }; /* a part belongs to the body if it is this share of the largest: a leg, no table */

struct run {
    int32_t lo, hi; /* voxels of the row, both inclusive */
    int32_t parent; /* a run of the same part met earlier, or itself */
};

struct runs {
    struct run *run;
    int64_t n, room;
    int64_t *first; /* of each row; first[rows] = n */
};

static int32_t run_root(struct run *run, int32_t i)
{
    while (run[i].parent != i) {
        run[i].parent = run[run[i].parent].parent;
        i = run[i].parent;
    }
    return i;
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
            int64_t room = 2 * r->room + 4096;
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

/* Joins overlapping runs of two rows. The lower number becomes the root, so that a root is always
 * the first run of its part. */
static void rows_join(struct runs *r, int64_t row, int64_t other)
{
    int64_t a = r->first[row], b = r->first[other];
    while (a < r->first[row + 1] && b < r->first[other + 1]) {
        const struct run *ra = &r->run[a], *rb = &r->run[b];
        if (ra->lo <= rb->hi && rb->lo <= ra->hi) {
            int32_t x = run_root(r->run, (int32_t)a), y = run_root(r->run, (int32_t)b);
            r->run[x > y ? x : y].parent = x < y ? x : y;
        }
        if (ra->hi < rb->hi)
            a++;
        else
            b++;
    }
}

/* Voxels of each part, at its root (mem_free); *most gets those of the largest. */
static int64_t *runs_measure(int64_t *most, struct runs *r, struct error *e)
{
    int64_t *voxels = mem_alloc(e, (size_t)r->n, sizeof *voxels);
    *most = 0;
    for (int32_t i = 0; voxels && i < r->n; i++) {
        int64_t *part = &voxels[run_root(r->run, i)];
        *part += r->run[i].hi - r->run[i].lo + 1;
        *most = *part > *most ? *part : *most;
    }
    return voxels;
}

int box_of_body(struct box *out, const float *values, const int64_t dims[3], float threshold, struct error *e)
{
    int64_t rows = dims[1] * dims[2], most, *voxels = NULL;
    struct runs r = {.first = mem_alloc(e, (size_t)rows + 1, sizeof *r.first)};
    if (!r.first)
        goto out;
    for (int64_t row = 0; row < rows; row++) {
        if (runs_find(&r, values + row * dims[0], dims[0], threshold, e) < 0)
            goto out;
        r.first[row + 1] = r.n;
        if (row % dims[1] > 0)
            rows_join(&r, row, row - 1);
        if (row >= dims[1])
            rows_join(&r, row, row - dims[1]);
    }
    voxels = runs_measure(&most, &r, e);
    memset(out, 0, sizeof *out);
    for (int64_t row = 0; row < rows && voxels; row++) {
        for (int64_t i = r.first[row]; i < r.first[row + 1]; i++) {
            if (voxels[run_root(r.run, (int32_t)i)] * BODY_SHARE >= most)
                box_add_row(out, r.run[i].lo, r.run[i].hi, row % dims[1], row / dims[1]);
        }
    }
    if (out->dims[0] == 0)
        box_whole(out, dims);
out:
    mem_free(r.run);
    mem_free(r.first);
    int result = voxels ? 0 : -1;
    mem_free(voxels);
    return result;
}
