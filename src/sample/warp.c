/* warp.c - a patch by interpolation: affine map and elastic displacement in one step.
 *
 * For patch voxel p the position in the case is, per source axis,
 *
 *     x = offset + matrix (p - centre) + sum over 4 x 4 x 4 control points of B(d) B(h) B(w) phi
 *
 * with B the uniform cubic B-spline. The image is read there linearly, label and mask at the
 * nearest voxel, zero outside. Displacements are smooth (twice differentiable), and since a
 * control point moves at most 0.4 of the grid spacing the map does not fold (Choi and Lee 2000
 * prove it below 0.48).
 *
 * Cost: the 16 control rows around a row of voxels are collapsed into one line first, so a voxel
 * costs 4 control points instead of 64.
 */
#include <string.h>

#include "device/kernels.h"
#include "sample/augment_int.h"

/* ---- elastic --------------------------------------------------------------------------------- */

/* Voxel p lies in cell floor(p / spacing), which needs four control points. */
int warp_controls(int n, float spacing)
{
    return (int)((float)(n - 1) / spacing) + 4;
}

static void spline_fill(struct spline *out, int n, float spacing)
{
    for (int p = 0; p < n; p++) {
        float x = (float)p / spacing;
        int cell = (int)x;
        float t = x - (float)cell, u = 1 - t;
        out[p].cell = cell;
        out[p].weight[0] = u * u * u / 6;
        out[p].weight[1] = (3 * t * t * t - 6 * t * t + 4) / 6;
        out[p].weight[2] = (3 * u * u * u - 6 * u * u + 4) / 6;
        out[p].weight[3] = t * t * t / 6;
    }
}

/* Draws the control points, drawn in the turned frame and kept along the axes of the source. */
static void draw_controls(struct augment_scratch *s, const struct augment_options *o,
                          const struct augment_draw *d, const struct frame *f, const int dims[3])
{
    struct rng r = augment_rng(&d->key, AUGMENT_CONTROLS);
    float most = 0.4f * o->elastic_spacing;
    struct spline *table = s->spline;
    size_t n = 1;
    for (int a = 0; a < 3; a++) {
        s->n_control[a] = warp_controls(dims[a], o->elastic_spacing);
        n *= (size_t)s->n_control[a];
        spline_fill(table, dims[a], o->elastic_spacing);
        table += dims[a];
    }
    for (size_t i = 0; i < n; i++) {
        float move[3];
        for (int a = 0; a < 3; a++) {
            float x = d->elastic_sd * rng_normal(&r);
            move[a] = x > most ? most : x < -most ? -most : x;
        }
        for (int a = 0; a < 3; a++)
            s->control[3 * i + (size_t)a] = (float)f->sign[a] * move[f->from[a]];
    }
}

/* Displacements of the voxels of row (i, j), into s->shift. */
static void elastic_row(struct augment_scratch *s, const int dims[3], int i, int j)
{
    const struct spline *si = &s->spline[i], *sj = &s->spline[dims[0] + j];
    const struct spline *sk = &s->spline[dims[0] + dims[1]];
    size_t line = (size_t)s->n_control[2] * 3;
    memset(s->line, 0, line * sizeof(float));
    for (int a = 0; a < 4; a++) {
        for (int b = 0; b < 4; b++) {
            float weight = si->weight[a] * sj->weight[b];
            size_t row = (size_t)(si->cell + a) * (size_t)s->n_control[1] + (size_t)(sj->cell + b);
            const float *from = s->control + row * line;
            for (size_t x = 0; x < line; x++)
                s->line[x] += weight * from[x];
        }
    }
    for (int k = 0; k < dims[2]; k++) {
        const float *p = s->line + 3 * sk[k].cell, *w = sk[k].weight;
        for (int a = 0; a < 3; a++)
            s->shift[3 * k + a] = w[0] * p[a] + w[1] * p[3 + a] + w[2] * p[6 + a] + w[3] * p[9 + a];
    }
}

/* ---- the patch ------------------------------------------------------------------------------- */

void affine_init(struct affine *out, const struct augment_draw *d, const struct frame *f, const int dims[3])
{
    for (int a = 0; a < 3; a++) {
        int from = f->from[a];
        float sign = (float)f->sign[a], centre = (float)(dims[from] - 1) * 0.5f;
        float x = (float)(d->start[from] - d->pad[from]) + centre;
        for (int b = 0; b < 3; b++) {
            x -= d->matrix[from][b] * ((float)(dims[b] - 1) * 0.5f);
            out->matrix[a][b] = sign * d->matrix[from][b];
        }
        out->offset[a] = (float)f->base[a] + sign * x;
    }
}

static void warp_row(const struct patch *out, size_t first, const struct stored_case *c,
                     const struct affine *m, const float row[3], const float *shift)
{
    for (int k = 0; k < out->dims[2]; k++) {
        size_t v = first + (size_t)k;
        float x[3];
        for (int a = 0; a < 3; a++) {
            x[a] = row[a] + m->matrix[a][2] * (float)k;
            if (shift)
                x[a] += shift[3 * k + a];
        }
        for (int ch = 0; out->image && ch < out->channels; ch++)
            out->image[v * (size_t)out->channels + (size_t)ch] =
                k_read_linear(c->image + ch, c->dims, out->channels, x);
        if (!out->label && !out->mask)
            continue;
        int64_t at = k_read_nearest(c->dims, x);
        if (out->label)
            out->label[v] = c->label && at >= 0 ? c->label[at] : (label_t)0;
        if (out->mask)
            out->mask[v] = c->mask && at >= 0 ? c->mask[at] : (uint8_t)0;
    }
}

void warp_patch(const struct patch *out, const struct augment_options *o, const struct augment_draw *draw,
                const struct frame *f, const struct stored_case *c, struct augment_scratch *s)
{
    struct affine m;
    int elastic = draw->elastic_sd > 0;
    affine_init(&m, draw, f, out->dims);
    if (elastic)
        draw_controls(s, o, draw, f, out->dims);
    for (int i = 0; i < out->dims[0]; i++) {
        for (int j = 0; j < out->dims[1]; j++) {
            float row[3];
            for (int a = 0; a < 3; a++)
                row[a] = m.offset[a] + m.matrix[a][0] * (float)i + m.matrix[a][1] * (float)j;
            if (elastic)
                elastic_row(s, out->dims, i, j);
            size_t first = ((size_t)i * (size_t)out->dims[1] + (size_t)j) * (size_t)out->dims[2];
            warp_row(out, first, c, &m, row, elastic ? s->shift : NULL);
        }
    }
}
