/* sides.c - see sides.h.
 *
 * Bodies are alike on both sides, so a network that sees mirrored scans cannot learn which of two kidneys it
 * looks at: whoever trains with mirror images should know. Two classes count as sides of one thing if, in
 * every label that holds both, the same one lies further along the first axis, they lie beside each other and
 * clearly apart, and if they are of about one volume altogether. Liver and spleen are too different, the
 * parts of one lesion too close, the ends of a hippocampus behind each other.
 */
#include <math.h>

#include "sample/sides.h"

static const double beside = 0.5; /* distance along the other axes, to that along the first, at most */
static const double apart = 1.5;  /* distance to the sum of standard deviations; two balls that touch: 2.2 */
static const double alike = 2.0;  /* volumes differ by less than this factor */

struct place { /* of a class in one case */
    double voxels, at[3], sd; /* mean and, along the first axis, deviation, mm */
};

static void find_places(struct place *place, int n_classes, const struct stored_case *k)
{
    const label_t *label = k->label;
    for (int i = 0; i < n_classes; i++)
        place[i] = (struct place){0};
    for (int d = 0; d < k->dims[0]; d++)
        for (int h = 0; h < k->dims[1]; h++)
            for (int w = 0; w < k->dims[2]; w++) {
                struct place *p = &place[*label++];
                const double mm[3] = {d * k->spacing_mm[0], h * k->spacing_mm[1], w * k->spacing_mm[2]};
                p->voxels++;
                p->sd += mm[0] * mm[0];
                for (int a = 0; a < 3; a++)
                    p->at[a] += mm[a];
            }
    for (struct place *p = place; p < place + n_classes; p++) {
        for (int a = 0; a < 3 && p->voxels > 0; a++)
            p->at[a] /= p->voxels;
        p->sd = p->voxels > 0 ? sqrt(fmax(p->sd / p->voxels - p->at[0] * p->at[0], 0.0)) : 0.0;
    }
}

enum relation { NOT_SEEN, BEFORE, BEHIND, NO_SIDES };

static enum relation relate(const struct place *x, const struct place *y)
{
    double along = y->at[0] - x->at[0], across = fmax(fabs(y->at[1] - x->at[1]), fabs(y->at[2] - x->at[2]));
    if (x->voxels == 0 || y->voxels == 0)
        return NOT_SEEN;
    if (across > beside * fabs(along) || fabs(along) < apart * (x->sd + y->sd) || along == 0.0)
        return NO_SIDES;
    return along > 0.0 ? BEFORE : BEHIND;
}

/* What all labels so far say of a pair, and one more. */
static uint8_t agree(uint8_t all, enum relation one)
{
    return one == NOT_SEEN || one == all ? all : all == NOT_SEEN ? (uint8_t)one : NO_SIDES;
}

int sides_find(int pair[2], const struct case_store *s, struct error *e)
{
    int n = s->n_classes, found = 0;
    struct place *place = mem_alloc(e, (size_t)n, sizeof *place);
    double *voxels = mem_alloc(e, (size_t)n, sizeof *voxels);
    uint8_t *all = mem_alloc(e, (size_t)n, (size_t)n);
    int result = place && voxels && all ? 0 : -1;
    for (int c = 0; c < s->n_labeled && result == 0; c++) {
        find_places(place, n, &s->cases[c]);
        for (int i = 1; i < n; i++) {
            voxels[i] += place[i].voxels;
            for (int k = i + 1; k < n; k++)
                all[i * n + k] = agree(all[i * n + k], relate(&place[i], &place[k]));
        }
    }
    for (int i = n - 2; i > 0 && result == 0; i--)
        for (int k = n - 1; k > i; k--) {
            int is_side = all[i * n + k] == BEFORE || all[i * n + k] == BEHIND;
            if (!is_side || voxels[i] > alike * voxels[k] || voxels[k] > alike * voxels[i])
                continue;
            pair[0] = i;
            pair[1] = k;
            found++;
        }
    mem_free(place);
    mem_free(voxels);
    mem_free(all);
    return result < 0 ? -1 : found;
}
