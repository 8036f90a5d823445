/* phantom_body.c - what lies at a point of the synthetic patient.
 *
 * A sample starts as air and is painted over, layer by layer: table, skin, fat, muscle wall, belly,
 * spine, ribs, then the blobs of the patient in order. Each layer gives its depth in millimetres
 * (positive inside); over the width of its border the mix of tissues runs smoothly from the one to
 * the other, at least one voxel wide. That is partial volume by distance, without supersampling.
 * The class changes where the depth changes sign: in the middle of the ramp.
 *
 * Distances of ellipses and blobs are first-order: the level function over the length of its
 * gradient. They are good near the surface, which is where they are used.
 */
#include <math.h>
#include <string.h>

#include "phantom/phantom_body.h"

/* The trunk of the standard patient, mm. */
static const float MUSCLE_A = 142, MUSCLE_B = 99, RIB_A = 135, RIB_B = 91, SPINE_Y = -50;

/* Deeper than any wall with its ramp, farther out than any border. */
static const float FAR_MM = 24;

struct mix {
    const struct body *b;
    float value[PHANTOM_MAX_CHANNELS];
    float grain[2];
    float blur_mm;
    float wall_mm, belly_mm; /* depth of the point below the muscles' outer and inner surface */
};

static float least(float a, float b)
{
    return a < b ? a : b;
}

static float most(float a, float b)
{
    return a > b ? a : b;
}

/* Distance to the nearest multiple of 1. */
static float from_whole(float t)
{
    return t - (float)((int)(t + 4096.5f) - 4096);
}

static void paint(struct mix *m, int tissue, float depth_mm, float width_mm)
{
    float t = 0.5f + depth_mm / most(width_mm, m->blur_mm);
    if (t <= 0)
        return;
    t = t >= 1 ? 1 : t * t * (3 - 2 * t);
    for (int c = 0; c < m->b->n_channels; c++)
        m->value[c] += t * (m->b->value[tissue][c] - m->value[c]);
    for (int g = 0; g < 2; g++)
        m->grain[g] += t * (m->b->grain[tissue][g] - m->grain[g]);
}

/* Depth inside an ellipse whose corners are filled by `square` (0 = ellipse, 1 = nearly a
 * rectangle). */
static float trunk_depth_mm(float x, float y, float a, float b, float square)
{
    float u = x * x / (a * a), v = y * y / (b * b);
    float rho = sqrtf(most(u + v - square * u * v, 0)) + 1e-4f;
    float slope = sqrtf(u / (a * a) + v / (b * b)) / rho + 1e-4f;
    return (1 - rho) / slope;
}

static float ellipse_depth_mm(float x, float y, float a, float b)
{
    return trunk_depth_mm(x, y, a, b, 0);
}

/* Returns 0 if p lies in the air. */
static int paint_trunk(struct mix *m, const float p[3])
{
    const struct body *b = m->b;
    /* The back is flatter than the belly and has a furrow over the spine. */
    float furrow = p[1] < 0 ? 5 / (1 + p[0] * p[0] * (1 / 500.0f)) : 0;
    float y = p[1] < 0 ? p[1] * 0.97f - furrow : p[1];
    float wall = trunk_depth_mm(p[0], y, MUSCLE_A, MUSCLE_B, 0.3f);
    float skin = wall + b->fat_mm * (1 + 0.3f * body_wave_at(p[1] * 0.003f + 0.1f));
    if (b->is_ct) { /* the couch: a shallow curved sheet under the back */
        float sag = p[1] + MUSCLE_B + b->fat_mm + 14 - p[0] * p[0] * (1 / 1500.0f);
        paint(m, TISSUE_TABLE, 3 - (sag < 0 ? -sag : sag), 3);
    }
    if (skin < -most(2, m->blur_mm))
        return 0;
    paint(m, TISSUE_SKIN, skin, 2);
    paint(m, TISSUE_FAT, skin - 3, 2);
    paint(m, TISSUE_MUSCLE, wall, 2.5f);
    float seam = wall - 0.5f * b->muscle_mm; /* fat between the layers of the flank */
    if (p[1] > -50)
        paint(m, TISSUE_FAT, 0.5f - (seam < 0 ? -seam : seam), 3);
    float belly = trunk_depth_mm(p[0], p[1] - 5, MUSCLE_A - b->muscle_mm, MUSCLE_B - b->muscle_mm - 2, 0.3f);
    paint(m, TISSUE_MESENTERY, belly, 3);
    m->wall_mm = wall;
    m->belly_mm = belly;
    return 1;
}

static void paint_spine(struct mix *m, const float p[3])
{
    float x = p[0], ax = x < 0 ? -x : x, y = p[1] - SPINE_Y;
    if (ax > 60 || y > 30 || y < -75)
        return;
    float level = from_whole(p[2] / 34 + m->b->spine_phase), off = (level < 0 ? -level : level) * 34;
    float bone = 13 - off; /* 26 mm of vertebra, then 8 mm of disc */
    float waist = 1 - 0.08f * most(bone, 0) / 13;
    float body = ellipse_depth_mm(x, y, 25 * waist, 19 * waist);
    float process = least(ellipse_depth_mm(ax - 26, y + 25, 20, 6), 9 - off);
    float spinous = least(ellipse_depth_mm(x, y + 36, 4.5f, 12), 11 - off);
    float arch = least(ellipse_depth_mm(x, y + 28, 19, 16), 12 - off);
    paint(m, TISSUE_CORTEX, most(most(process, spinous), arch), 2);
    paint(m, TISSUE_MARROW, most(process, spinous) - 3, 3);
    paint(m, TISSUE_DISC, body, 2);
    paint(m, TISSUE_CORTEX, least(body, bone + 1), 2);
    paint(m, TISSUE_MARROW, least(body, bone) - 1.8f, 2.5f);
    paint(m, TISSUE_CSF, ellipse_depth_mm(x, y + 28, 11, 9), 2);
    paint(m, TISSUE_CORD, ellipse_depth_mm(x, y + 28, 6, 4.5f), 2);
}

/* Ribs run in the wall, falling towards the front; the lowest end at the side. */
static void paint_ribs(struct mix *m, const float p[3])
{
    float ring = trunk_depth_mm(p[0], p[1], RIB_A, RIB_B, 0.3f);
    if (ring > 9 || ring < -9)
        return;
    float along = p[2] + 0.7f * p[1];
    float dz = from_whole(along / 34 + m->b->rib_phase) * 34 * 0.82f; /* across the slanted rib */
    float depth = ellipse_depth_mm(ring, dz, 5, 7);
    float ax = p[0] < 0 ? -p[0] : p[0];
    depth = least(depth, least(p[2] + 70 - 0.7f * p[1], ax - 24));
    paint(m, TISSUE_CORTEX, depth, 2);
    paint(m, TISSUE_MARROW, depth - 2.2f, 2);
}

static float level_depth_mm(const struct body_shape *s, const float p[3])
{
    float d[3] = {p[0] - s->centre[0], p[1] - s->centre[1], p[2] - s->centre[2]}, q[3];
    for (int r = 0; r < 3; r++)
        q[r] = body_dot(s->frame[r], d);
    float along = least(most(q[0], -1.3f), 1.3f), thick = 1 / (1 + s->taper * along);
    q[1] = (q[1] + s->bend[0] * (along * along - 1.0f / 3)) * thick;
    q[2] = (q[2] + s->bend[1] * along) * thick;
    float r = sqrtf(body_dot(q, q)), edge = 1;
    /* Far from the surface its exact place does not matter, and most points are far from most
     * shapes. */
    float outside = (r - 1 - s->swell) * s->thin_mm, inside = (1 - s->swell - r) * s->thin_mm;
    if (outside > FAR_MM || inside > FAR_MM)
        return outside > 0 ? -outside : inside;
    float inv = 1 / (r + 0.05f);
    for (int l = 0; l < s->n_lobes; l++)
        edge += s->lobe[l].height * body_wave_at(body_dot(s->lobe[l].k, q) * inv + s->lobe[l].phase);
    float slope[3]; /* of r, per mm */
    for (int a = 0; a < 3; a++)
        slope[a] = (s->frame[0][a] * q[0] + s->frame[1][a] * q[1] + s->frame[2][a] * q[2]) * inv;
    return (edge - r) / (sqrtf(body_dot(slope, slope)) + 1e-4f);
}

float body_depth_mm(const struct body_shape *s, const float p[3])
{
    float x = p[0] - s->centre[0], y = p[1] - s->centre[1], z = p[2] - s->centre[2];
    return x * x + y * y + z * z > s->reach_mm * s->reach_mm ? -1e9f : level_depth_mm(s, p);
}

/* Returns 1 if p lies inside. */
static int paint_shape(struct mix *m, const struct body_shape *s, const float p[3])
{
    /* Muscles of the back end at the fat, organs at the wall that holds them. */
    float depth = least(body_depth_mm(s, p), s->tissue == TISSUE_MUSCLE ? m->wall_mm : m->belly_mm - 1);
    if (depth < -most(s->soft_mm, m->blur_mm))
        return 0;
    float swing = body_wave_at(body_dot(s->soft_k, p) + s->soft_phase);
    paint(m, s->tissue, depth, s->soft_mm * (1 + 0.8f * swing));
    if (s->wall_mm > 0) {
        paint(m, s->inner, depth - s->wall_mm, 3);
        paint(m, TISSUE_GAS, least(depth - s->wall_mm, p[1] - s->centre[1] - s->gas_level_mm), 2);
    }
    return depth > 0;
}

/* Smooth noise of a lattice with cells of 1 / per_mm. */
static float texture_at(const struct body *b, const float p[3], float per_mm)
{
    enum { N = BODY_TEXTURE_CELLS, MASK = N - 1 };
    int i[3];
    float f[3];
    for (int a = 0; a < 3; a++) {
        float t = p[a] * per_mm + 4096; /* positive, so that conversion rounds down */
        i[a] = (int)t;
        f[a] = t - (float)i[a];
        f[a] = f[a] * f[a] * (3 - 2 * f[a]);
    }
    float sum[2];
    int x0 = i[0] & MASK, x1 = (i[0] + 1) & MASK;
    for (int z = 0; z < 2; z++) {
        const float *plane = b->texture + ((i[2] + z) & MASK) * N * N;
        const float *row0 = plane + (i[1] & MASK) * N, *row1 = plane + ((i[1] + 1) & MASK) * N;
        float u = row0[x0] + f[0] * (row0[x1] - row0[x0]), v = row1[x0] + f[0] * (row1[x1] - row1[x0]);
        sum[z] = u + f[1] * (v - u);
    }
    return sum[0] + f[2] * (sum[1] - sum[0]);
}

static void add_texture(struct mix *m, const float p[3])
{
    /* Turned against the axes, so that the lattice does not show. 5 mm and 17 mm cells. */
    float t[3] = {0.8f * p[0] + 0.6f * p[1], -0.6f * p[0] + 0.8f * p[1] + 0.3f * p[2], p[2] - 0.3f * p[0]};
    float g = m->grain[0] * texture_at(m->b, t, 1 / 5.0f) + m->grain[1] * texture_at(m->b, t, 1 / 17.0f);
    for (int c = 0; c < m->b->n_channels; c++)
        m->value[c] += m->b->is_ct ? g : g * m->value[c];
}

label_t body_sample(float value[PHANTOM_MAX_CHANNELS], const struct body *b, const struct body_near *near,
                    const float p[3], float blur_mm)
{
    struct mix m = {.b = b, .blur_mm = blur_mm};
    label_t label = 0;
    memcpy(m.value, b->value[TISSUE_AIR], sizeof m.value);
    if (paint_trunk(&m, p)) {
        paint_ribs(&m, p);
        for (int n = 0; n < near->n; n++) {
            const struct body_shape *s = &b->shape[near->index[n]];
            if (paint_shape(&m, s, p))
                label = s->label;
        }
        paint_spine(&m, p);
        add_texture(&m, p);
    }
    memcpy(value, m.value, sizeof m.value);
    return label;
}

void body_locate(float p[3], const struct body *b, const float x_mm[3])
{
    float q[3], push[3] = {0, 0, 0};
    for (int a = 0; a < 3; a++)
        q[a] = (x_mm[a] - b->shift[a]) / b->scale[a];
    for (int w = 0; w < BODY_WAVES; w++) {
        const struct body_wave *v = &b->wave[w];
        float s = body_wave_at(body_dot(v->k, q) + v->phase);
        for (int a = 0; a < 3; a++)
            push[a] += s * v->push[a];
    }
    for (int a = 0; a < 3; a++)
        p[a] = q[a] + push[a];
}

/* The sphere around a shape is a coarse bound; most shapes are long and thin, so their depth is
 * asked too, with room for what bending does to distances. */
void body_find_near(struct body_near *out, const struct body *b, const float p[3], float radius_mm)
{
    out->n = 0;
    for (int n = 0; n < b->n_shapes; n++) {
        const struct body_shape *s = &b->shape[n];
        float x = p[0] - s->centre[0], y = p[1] - s->centre[1], z = p[2] - s->centre[2];
        float far = s->reach_mm + radius_mm, stretch = 1 + 2 * s->bend[0] * s->bend[0] + s->taper * s->taper;
        if (x * x + y * y + z * z <= far * far && level_depth_mm(s, p) > -stretch * (radius_mm + FAR_MM))
            out->index[out->n++] = (short)n;
    }
}

void body_extent(float out_mm[2], const struct body *b)
{
    out_mm[0] = (MUSCLE_A + 1.2f * b->fat_mm) * b->scale[0] + 8;
    out_mm[1] = (MUSCLE_B + 1.2f * b->fat_mm) * b->scale[1] + 8;
}
