/* component.c - largest connected parts by runs: a run is a stretch of one class along a row. Runs of
 * neighbouring rows that touch (corners included) are united in a forest; memory goes with the surface of
 * the mask, not with its volume.
 */
#include <string.h>

#include "predict/component.h"

struct run {
    int64_t start; /* flat voxel index */
    int length, parent;
    int64_t voxels; /* of the whole part, at its root */
    label_t class;
};

static int root(struct run *runs, int i)
{
    while (runs[i].parent != i) {
        runs[i].parent = runs[runs[i].parent].parent;
        i = runs[i].parent;
    }
    return i;
}

/* The earlier run becomes the root, so a root is the first of its part in raster order. */
static void unite(struct run *runs, int a, int b)
{
    a = root(runs, a);
    b = root(runs, b);
    if (a < b)
        runs[b].parent = a;
    else
        runs[a].parent = b;
}

/* Runs of one row; returns how many were found, counting only if out is NULL. */
static int row_runs(struct run *out, const label_t *row, int64_t start, int w)
{
    int n = 0;
    for (int x = 0; x < w;) {
        int first = x;
        while (x < w && row[x] == row[first])
            x++;
        if (row[first] == 0)
            continue;
        if (out)
            out[n] = (struct run){.start = start + first, .length = x - first, .class = row[first]};
        n++;
    }
    return n;
}

/* Unites the runs of two rows that touch: their stretches overlap or meet at corners. */
static void join_rows(struct run *runs, const int a[2], const int b[2], int64_t row_a, int64_t row_b)
{
    for (int i = a[0], j = b[0]; j < b[1]; j++) {
        int64_t first = runs[j].start - row_b, end = first + runs[j].length;
        while (i < a[1] && runs[i].start - row_a + runs[i].length < first)
            i++;
        for (int k = i; k < a[1] && runs[k].start - row_a <= end; k++)
            if (runs[k].class == runs[j].class)
                unite(runs, k, j);
    }
}

static void join_all(struct run *runs, const int *first, const int dims[3])
{
    static const int before[4][2] = {{0, -1}, {-1, -1}, {-1, 0}, {-1, 1}};
    int h = dims[1], w = dims[2];
    for (int z = 0; z < dims[0]; z++)
        for (int y = 0; y < h; y++)
            for (int k = 0; k < 4; k++) {
                int pz = z + before[k][0], py = y + before[k][1];
                if (pz < 0 || py < 0 || py >= h)
                    continue;
                int64_t row = (int64_t)z * h + y, other = (int64_t)pz * h + py;
                join_rows(runs, (const int[2]){first[other], first[other + 1]},
                          (const int[2]){first[row], first[row + 1]}, other * w, row * w);
            }
}

/* best: zeroed, one number a class: root of its largest part, + 1. */
static void erase_smaller(label_t *label, struct run *runs, int n, int *best)
{
    for (int i = 0; i < n; i++)
        runs[root(runs, i)].voxels += runs[i].length;
    for (int i = 0; i < n; i++) {
        int *b = &best[runs[i].class];
        if (runs[i].parent == i && (!*b || runs[i].voxels > runs[*b - 1].voxels))
            *b = i + 1;
    }
    for (int i = 0; i < n; i++)
        if (root(runs, i) != best[runs[i].class] - 1)
            memset(label + runs[i].start, 0, (size_t)runs[i].length * sizeof *label);
}

int component_keep_largest(label_t *label, const int dims[3], struct error *e)
{
    int64_t rows = (int64_t)dims[0] * dims[1], total = 0;
    int w = dims[2], result = -1;
    int *first = mem_alloc(e, (size_t)rows + 1, sizeof *first);
    int *best = mem_alloc(e, 65536, sizeof *best);
    struct run *runs = NULL;
    if (!first || !best)
        goto out;
    for (int64_t r = 0; r < rows; r++) {
        first[r] = (int)total;
        total += row_runs(NULL, label + r * w, 0, w);
        if (total > INT32_MAX) {
            fail(e, ERR_DATA, NULL, "mask of more than 2^31 pieces");
            goto out;
        }
    }
    first[rows] = (int)total;
    if (!(runs = mem_alloc(e, (size_t)total + 1, sizeof *runs)))
        goto out;
    for (int64_t r = 0; r < rows; r++)
        row_runs(runs + first[r], label + r * w, r * w, w);
    for (int i = 0; i < (int)total; i++)
        runs[i].parent = i;
    join_all(runs, first, dims);
    erase_smaller(label, runs, (int)total, best);
    result = 0;
out:
    mem_free(runs);
    mem_free(best);
    mem_free(first);
    return result;
}
