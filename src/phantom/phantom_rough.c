/* phantom_rough.c - imperfect masks, so that there is something to score before anything is
 * trained.
 *
 * Every voxel takes the class found a little way off; how far, and where to, swings slowly over the
 * volume. The way grows with the size of the grid, 1 to 2 voxels of 64, so that organs suffer
 * nearly alike on fine and on coarse grids. Then a ball of class 1 is put where nothing is: a false
 * positive.
 */
#include <string.h>

#include "base/rng.h"
#include "phantom/phantom_body.h"
#include "phantom/phantom_set.h"

enum { DRAW_ROUGH = 10 /* of the RNG_PHANTOM stream; see phantom.c */, WAVES = 3 };

struct field {                       /* where voxel axis a is displaced to: the sum of its waves */
    struct body_wave wave[3][WAVES]; /* push[0] is the height, voxels */
};

static void draw_field(struct field *f, const int64_t dims[3], struct rng *r)
{
    for (int a = 0; a < 3; a++)
        for (int w = 0; w < WAVES; w++) {
            struct body_wave *b = &f->wave[a][w];
            for (int c = 0; c < 3; c++)
                b->k[c] = rng_between(r, -4, 4) / (float)dims[c]; /* up to 4 turns across the scan */
            b->phase = rng_uniform(r);
            b->push[0] = rng_between(r, 0.4f, 0.65f) * (float)(dims[a] + 16) / 80;
        }
}

/* The voxel that (i, j, k) takes its class from. */
static int64_t source_of(const struct field *f, const int64_t dims[3], const int64_t at[3])
{
    int64_t from[3];
    const float place[3] = {(float)at[0], (float)at[1], (float)at[2]};
    for (int a = 0; a < 3; a++) {
        float x = place[a] + 0.5f;
        for (int w = 0; w < WAVES; w++) {
            const struct body_wave *b = &f->wave[a][w];
            x += b->push[0] * body_wave_at(body_dot(b->k, place) + b->phase);
        }
        from[a] = x < 0 ? 0 : x < (float)dims[a] ? (int64_t)x : dims[a] - 1;
    }
    return from[0] + dims[0] * (from[1] + dims[1] * from[2]);
}

int phantom_roughen(struct volume *label, const struct phantom_options *o, int index, struct error *e)
{
    const int64_t *n = label->dims, voxels = volume_voxels(label);
    struct rng r = rng_start(o->seed, (uint64_t)index, RNG_PHANTOM, DRAW_ROUGH);
    struct field f;
    float ball[3]; /* its middle, somewhere in the inner half of the scan, as a part of the size */
    uint8_t *classes = label->data, *truth = mem_alloc(e, (size_t)voxels, 1);
    if (!truth)
        return -1;
    memcpy(truth, classes, (size_t)voxels);
    draw_field(&f, n, &r);
    for (int a = 0; a < 3; a++)
        ball[a] = rng_between(&r, 0.25f, 0.75f);
    for (int64_t v = 0; v < voxels; v++) {
        const int64_t at[3] = {v % n[0], v / n[0] % n[1], v / (n[0] * n[1])};
        float away = 0;
        for (int a = 0; a < 3; a++) {
            float part = (float)at[a] / (float)n[a] - ball[a];
            away += part * part;
        }
        classes[v] = truth[source_of(&f, n, at)];
        if (classes[v] == 0 && away < 0.05f * 0.05f)
            classes[v] = 1;
    }
    mem_free(truth);
    return 0;
}
