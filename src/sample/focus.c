/* focus.c - see focus.h. */
#include "sample/focus.h"

#include "base/rng.h"

enum {
    POINTS = 256, /* of a class: enough that every part of it has some */
    TRIALS = 64   /* patches of a case */
};

/* Points of a class are those numbered 0, n/POINTS, 2n/POINTS ... of its n voxels, in the order of memory. */
static int64_t points_before(int64_t voxel, int64_t n)
{
    return (voxel * POINTS + n - 1) / n;
}

static int find_points(struct stored_case *c, int n_classes, struct error *e)
{
    int64_t *n = mem_alloc(e, (size_t)n_classes, 2 * sizeof *n), *met = n + n_classes;
    int classes = 0;
    if (!n)
        return -1;
    int64_t voxels = (int64_t)case_voxels(c);
    for (int64_t v = 0; v < voxels; v++)
        n[c->label[v]]++;
    for (int k = 1; k < n_classes; k++)
        classes += n[k] > 0;
    c->focus = mem_alloc(e, (size_t)classes * POINTS + 1, sizeof *c->focus);
    for (int64_t v = 0; c->focus && v < voxels; v++) {
        int k = c->label[v], row = (int)(v / c->dims[2]);
        if (k == 0)
            continue;
        int64_t first = points_before(met[k], n[k]), end = points_before(++met[k], n[k]);
        for (int64_t i = first; i < end; i++)
            c->focus[c->n_focus++] =
                (struct focus_point){{row / c->dims[1], row % c->dims[1], (int)(v % c->dims[2])}, k};
    }
    mem_free(n);
    return c->focus ? 0 : -1;
}

int focus_find(struct case_store *s, struct error *e)
{
    for (int i = 0; i < s->n_labeled; i++)
        if (find_points(&s->cases[i], s->n_classes, e) < 0)
            return -1;
    return 0;
}

static int is_inside(const struct focus_point *p, const int start[3], const int patch[3])
{
    int inside = 1;
    for (int a = 0; a < 3; a++)
        inside &= p->at[a] >= start[a] && p->at[a] < start[a] + patch[a];
    return inside;
}

double focus_seen(const struct case_store *s, const int patch[3], int *rarest)
{
    int seen[DATASET_MOST_CLASSES] = {0}, all[DATASET_MOST_CLASSES] = {0};
    double least = 1;
    for (int i = 0; i < s->n_labeled; i++) {
        const struct stored_case *c = &s->cases[i];
        struct rng r = rng_start(0, (uint64_t)i, RNG_FOCUS, 0);
        uint8_t holds[DATASET_MOST_CLASSES] = {0};
        for (int p = 0; p < c->n_focus; p++)
            holds[c->focus[p].class] = 1;
        for (int t = 0; t < TRIALS; t++) {
            uint8_t met[DATASET_MOST_CLASSES] = {0};
            int start[3];
            for (int a = 0; a < 3; a++) {
                int room = c->dims[a] - patch[a];
                start[a] = (int)rng_below(&r, room > 0 ? (uint32_t)room + 1 : 1);
            }
            for (int p = 0; p < c->n_focus; p++)
                met[c->focus[p].class] |= (uint8_t)is_inside(&c->focus[p], start, patch);
            for (int k = 1; k < s->n_classes; k++)
                seen[k] += met[k], all[k] += holds[k];
        }
    }
    *rarest = 0;
    for (int k = 1; k < s->n_classes; k++)
        if (all[k] && seen[k] < least * all[k]) {
            least = (double)seen[k] / all[k];
            *rarest = k;
        }
    return least;
}
