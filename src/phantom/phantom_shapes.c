/* phantom_shapes.c - draws a patient: the table of tissues, the table of organs, and what differs
 * between one patient and the next.
 *
 * The anatomy is that of a textbook drawing, in millimetres of a standard patient: x to the right,
 * y to the front, z to the head, origin in the middle of the body at the height of the gland. Parts
 * are painted in table order, later ones over earlier ones. A patient moves, turns, swells and
 * lobes every part a little, bends the whole by slow waves, and shifts the brightness of every
 * tissue.
 *
 * Streams of random numbers: one per use, numbered below, so that a new part does not change the
 * others.
 */
#include <string.h>

#include "base/rng.h"
#include "phantom/phantom_body.h"

enum {
    DRAW_PATIENT = 0,
    DRAW_TISSUE = 1,
    DRAW_TEXTURE = 2,
    DRAW_BOWEL = 3,
    DRAW_VEINS = 4,
    DRAW_PARTS = 16,
    DRAW_NODULES = 512
};

/* Signal per tissue. CT in Hounsfield units of a portal-venous scan; MR in arbitrary units with fat
 * at 900: contrast-enhanced T1, T2, and a flatter proton-density image. `varies` is the part by
 * which patients differ (CT: times 60 HU). Grain in the same units as the signal, per mille of it
 * for MR. */
static const struct tissue_row {
    short ct, mr[3], varies_permille;
    short ct_grain[2], mr_grain[2];
} tissue_row[BODY_TISSUES] = {
    [TISSUE_AIR] = {-1000, {4, 4, 4}, 0, {0, 0}, {0, 0}},
    [TISSUE_SKIN] = {20, {420, 330, 450}, 100, {8, 8}, {40, 40}},
    [TISSUE_FAT] = {-105, {900, 640, 760}, 50, {9, 10}, {35, 40}},
    [TISSUE_MESENTERY] = {-95, {810, 600, 720}, 60, {20, 16}, {60, 60}},
    [TISSUE_MUSCLE] = {58, {330, 170, 480}, 60, {10, 14}, {70, 90}},
    [TISSUE_CORTEX] = {620, {110, 70, 120}, 80, {40, 60}, {60, 60}},
    [TISSUE_MARROW] = {210, {560, 420, 560}, 120, {45, 40}, {80, 80}},
    [TISSUE_DISC] = {85, {360, 520, 520}, 100, {8, 8}, {50, 50}},
    [TISSUE_CSF] = {12, {150, 950, 560}, 50, {4, 4}, {30, 30}},
    [TISSUE_CORD] = {40, {380, 430, 600}, 50, {4, 4}, {30, 30}},
    [TISSUE_ARTERY] = {165, {860, 120, 300}, 120, {6, 6}, {40, 40}},
    [TISSUE_VEIN] = {150, {780, 160, 330}, 120, {6, 6}, {40, 40}},
    [TISSUE_LIVER] = {108, {560, 270, 560}, 100, {9, 7}, {50, 50}},
    [TISSUE_SPLEEN] = {118, {500, 480, 600}, 100, {8, 6}, {50, 40}},
    [TISSUE_RENAL_CORTEX] = {178, {670, 520, 640}, 100, {8, 8}, {50, 50}},
    [TISSUE_RENAL_MEDULLA] = {128, {520, 600, 620}, 100, {10, 14}, {60, 90}},
    [TISSUE_RENAL_PELVIS] = {0, {380, 880, 620}, 150, {8, 8}, {60, 60}},
    [TISSUE_GLAND] = {92, {590, 390, 590}, 70, {15, 12}, {80, 80}},
    [TISSUE_DISTRACTOR] = {88, {575, 400, 585}, 90, {14, 12}, {80, 80}},
    [TISSUE_BOWEL_WALL] = {84, {560, 380, 560}, 100, {12, 10}, {70, 70}},
    [TISSUE_BOWEL_CONTENT] = {35, {300, 620, 560}, 350, {16, 20}, {90, 120}},
    [TISSUE_STOMACH_CONTENT] = {18, {230, 800, 600}, 350, {14, 18}, {70, 90}},
    [TISSUE_GAS] = {-880, {15, 15, 15}, 20, {30, 0}, {20, 20}},
    [TISSUE_BILE] = {10, {260, 900, 620}, 200, {4, 4}, {30, 30}},
    [TISSUE_NODULE] = {76, {500, 450, 570}, 100, {8, 8}, {50, 50}},
    [TISSUE_TABLE] = {-40, {4, 4, 4}, 0, {20, 0}, {0, 0}},
};

/* One part of the standard anatomy. */
struct part {
    unsigned char organ, tissue, inner; /* inner is used if wall_mm > 0 */
    unsigned char axis;                 /* the patient axis of q0, the long or bent one */
    short centre_mm[3], radius_mm[3];   /* along x, y, z */
    float turn[3];                      /* half-angle turn vector, radians / 2 */
    float bend[2], taper;
    float lobes, ripple; /* height of the lobes; turns of a lobe wave per unit of q */
    float soft_mm, wall_mm, jitter_mm;
    short has_gas, gas_level_mm; /* 1: gas fills the contents in front of that level */
};
enum { ENDLESS_MM = 800 /* radii from here on mean endless; the table says 900 */ };

/* clang-format off */
static const struct part part_table[] = {
    /* muscles of the back */
    {.tissue = TISSUE_MUSCLE, .axis = 2, .centre_mm = {35, -79, 0}, .radius_mm = {29, 20, 900},
     .lobes = .03f, .ripple = .3f, .soft_mm = 2, .jitter_mm = 1},
    {.tissue = TISSUE_MUSCLE, .axis = 2, .centre_mm = {-35, -79, 0}, .radius_mm = {29, 20, 900},
     .lobes = .03f, .ripple = .3f, .soft_mm = 2, .jitter_mm = 1},
    {.tissue = TISSUE_MUSCLE, .axis = 2, .centre_mm = {40, -46, -70}, .radius_mm = {18, 18, 90},
     .turn = {0, .05f, 0}, .lobes = .05f, .ripple = .3f, .soft_mm = 2, .jitter_mm = 2},
    {.tissue = TISSUE_MUSCLE, .axis = 2, .centre_mm = {-40, -46, -70}, .radius_mm = {18, 18, 90},
     .turn = {0, -.05f, 0}, .lobes = .05f, .ripple = .3f, .soft_mm = 2, .jitter_mm = 2},
    /* colon, full of gas in front */
    {.tissue = TISSUE_BOWEL_WALL, .inner = TISSUE_BOWEL_CONTENT, .axis = 2,
     .centre_mm = {101, 2, -62}, .radius_mm = {23, 24, 46}, .bend = {.1f, 0}, .lobes = .1f,
     .ripple = .8f, .soft_mm = 3, .wall_mm = 4, .jitter_mm = 7, .has_gas = 1, .gas_level_mm = 2},
    {.tissue = TISSUE_BOWEL_WALL, .inner = TISSUE_BOWEL_CONTENT, .axis = 2,
     .centre_mm = {-108, -10, -52}, .radius_mm = {18, 20, 58}, .bend = {.1f, 0}, .lobes = .1f,
     .ripple = .8f, .soft_mm = 3, .wall_mm = 4, .jitter_mm = 6, .has_gas = 1, .gas_level_mm = 4},
    {.tissue = TISSUE_BOWEL_WALL, .inner = TISSUE_BOWEL_CONTENT, .centre_mm = {0, 62, -34},
     .radius_mm = {90, 15, 20}, .turn = {0, 0, .02f}, .bend = {.1f, .2f}, .lobes = .1f,
     .ripple = .7f, .soft_mm = 3, .wall_mm = 4, .jitter_mm = 7, .has_gas = 1},
    /* liver: right and left lobe */
    {.organ = ORGAN_LIVER, .tissue = TISSUE_LIVER, .centre_mm = {66, 8, 48},
     .radius_mm = {66, 74, 66}, .turn = {0, .15f, .2f}, .bend = {.3f, .1f}, .taper = .25f,
     .lobes = .1f, .ripple = .55f, .soft_mm = 4, .jitter_mm = 6},
    {.organ = ORGAN_LIVER, .tissue = TISSUE_LIVER, .centre_mm = {6, 52, 58},
     .radius_mm = {60, 26, 36}, .turn = {0, 0, .12f}, .bend = {.15f, 0}, .taper = .3f,
     .lobes = .06f, .ripple = .45f, .soft_mm = 4, .jitter_mm = 5},
    {.organ = ORGAN_GALLBLADDER, .tissue = TISSUE_BILE, .axis = 1, .centre_mm = {56, 52, -6},
     .radius_mm = {16, 24, 20}, .turn = {.15f, 0, .1f}, .bend = {.1f, 0}, .taper = .2f,
     .lobes = .04f, .ripple = .4f, .soft_mm = 3, .jitter_mm = 5},
    {.organ = ORGAN_SPLEEN, .tissue = TISSUE_SPLEEN, .axis = 2, .centre_mm = {-98, -30, 36},
     .radius_mm = {27, 46, 48}, .turn = {0, 0, .22f}, .bend = {-.25f, .1f}, .taper = .1f,
     .lobes = .07f, .ripple = .5f, .soft_mm = 3, .jitter_mm = 5},
    {.organ = ORGAN_STOMACH, .tissue = TISSUE_BOWEL_WALL, .inner = TISSUE_STOMACH_CONTENT,
     .centre_mm = {-56, 32, 48}, .radius_mm = {50, 39, 42}, .turn = {0, .2f, -.25f},
     .bend = {-.2f, .25f}, .taper = -.25f, .lobes = .09f, .ripple = .6f, .soft_mm = 3,
     .wall_mm = 5, .jitter_mm = 7, .has_gas = 1, .gas_level_mm = 12},
    /* kidneys in their fat */
    {.tissue = TISSUE_MESENTERY, .axis = 2, .centre_mm = {66, -42, -20}, .radius_mm = {37, 32, 62},
     .turn = {0, .08f, 0}, .bend = {.1f, 0}, .lobes = .05f, .ripple = .4f, .soft_mm = 3,
     .jitter_mm = 4},
    {.tissue = TISSUE_MESENTERY, .axis = 2, .centre_mm = {-67, -42, -8}, .radius_mm = {37, 32, 62},
     .turn = {0, -.08f, 0}, .bend = {-.1f, 0}, .lobes = .05f, .ripple = .4f, .soft_mm = 3,
     .jitter_mm = 4},
    {.organ = ORGAN_KIDNEY_RIGHT, .tissue = TISSUE_RENAL_CORTEX, .inner = TISSUE_RENAL_MEDULLA,
     .axis = 2, .centre_mm = {67, -42, -22}, .radius_mm = {28, 25, 50}, .turn = {0, .08f, -.2f},
     .bend = {-.28f, 0}, .lobes = .06f, .ripple = .7f, .soft_mm = 3, .wall_mm = 8, .jitter_mm = 4},
    {.organ = ORGAN_KIDNEY_LEFT, .tissue = TISSUE_RENAL_CORTEX, .inner = TISSUE_RENAL_MEDULLA,
     .axis = 2, .centre_mm = {-68, -42, -10}, .radius_mm = {28, 25, 52}, .turn = {0, -.08f, .2f},
     .bend = {.28f, 0}, .lobes = .06f, .ripple = .7f, .soft_mm = 3, .wall_mm = 8, .jitter_mm = 4},
    {.tissue = TISSUE_RENAL_PELVIS, .axis = 2, .centre_mm = {47, -40, -22},
     .radius_mm = {11, 8, 17}, .lobes = .15f, .ripple = .9f, .soft_mm = 3, .jitter_mm = 2},
    {.tissue = TISSUE_RENAL_PELVIS, .axis = 2, .centre_mm = {-48, -40, -10},
     .radius_mm = {11, 8, 17}, .lobes = .15f, .ripple = .9f, .soft_mm = 3, .jitter_mm = 2},
    {.organ = ORGAN_CAVA, .tissue = TISSUE_VEIN, .axis = 2, .centre_mm = {20, -24, 0},
     .radius_mm = {14, 10, 900}, .turn = {0, .02f, 0}, .lobes = .05f, .ripple = .3f, .soft_mm = 2,
     .jitter_mm = 2},
    {.organ = ORGAN_AORTA, .tissue = TISSUE_ARTERY, .axis = 2, .centre_mm = {-11, -26, 0},
     .radius_mm = {11, 11, 900}, .turn = {0, -.02f, 0}, .lobes = .02f, .ripple = .3f, .soft_mm = 2,
     .jitter_mm = 2},
    /* the gland's neighbours of its own brightness, then the gland, then the veins behind it */
    {.organ = ORGAN_DUODENUM, .tissue = TISSUE_DISTRACTOR, .axis = 2, .centre_mm = {74, 8, -18},
     .radius_mm = {19, 21, 42}, .turn = {0, 0, .1f}, .bend = {-.3f, .1f}, .lobes = .1f,
     .ripple = .7f, .soft_mm = 5, .jitter_mm = 4},
    {.tissue = TISSUE_DISTRACTOR, .centre_mm = {-72, 12, -34}, .radius_mm = {40, 20, 19},
     .turn = {0, .1f, .1f}, .bend = {.3f, .2f}, .lobes = .12f, .ripple = .8f, .soft_mm = 5,
     .jitter_mm = 6},
    {.organ = ORGAN_GLAND, .tissue = TISSUE_GLAND, .centre_mm = {-6, 22, -4},
     .radius_mm = {78, 25, 30}, .turn = {0, .14f, .04f}, .bend = {.5f, .15f}, .taper = .3f,
     .lobes = .1f, .ripple = 1, .soft_mm = 6, .jitter_mm = 5},
    {.tissue = TISSUE_VEIN, .centre_mm = {-14, 3, 3}, .radius_mm = {58, 6, 6},
     .turn = {0, .14f, .04f}, .bend = {1.6f, .1f}, .soft_mm = 3, .jitter_mm = 3},
    {.tissue = TISSUE_VEIN, .axis = 2, .centre_mm = {10, 0, -45}, .radius_mm = {7, 7, 46},
     .turn = {.02f, 0, 0}, .bend = {.1f, 0}, .soft_mm = 3, .jitter_mm = 3},
};
/* clang-format on */
enum {
    PARTS = sizeof part_table / sizeof part_table[0],
    GLAND_PARTS = 3 /* at the end: gland and veins */
};

static const float still[3] = {0, 0, 0}; /* a part that sways with no other */

static void draw_turn(float m[3][3], const float half[3], struct rng *r, float spread)
{
    /* The rotation of the unit quaternion along (1, half): no sine needed. */
    float q[4] = {1, 0, 0, 0}, norm = 1;
    for (int a = 0; a < 3; a++) {
        q[a + 1] = half[a] + rng_between(r, -spread, spread);
        norm += q[a + 1] * q[a + 1];
    }
    norm = 1 / sqrtf(norm);
    float w = q[0] * norm, x = q[1] * norm, y = q[2] * norm, z = q[3] * norm;
    const float rows[3][3] = {{1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)},
                              {2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)},
                              {2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)}};
    memcpy(m, rows, sizeof rows);
}

static void draw_lobes(struct body_shape *s, float height, float ripple, struct rng *r)
{
    s->n_lobes = height > 0 ? BODY_LOBES : 0;
    for (int l = 0; l < s->n_lobes; l++) {
        float pitch = ripple * (1 + 0.5f * (float)l); /* each finer and lower than the one before */
        for (int a = 0; a < 3; a++)
            s->lobe[l].k[a] = rng_between(r, -pitch, pitch);
        s->lobe[l].phase = rng_uniform(r);
        s->lobe[l].height = height * rng_between(r, 0.6f, 1.2f) / (1 + 0.4f * (float)l);
    }
}

static void draw_border(struct body_shape *s, float soft_mm, struct rng *r)
{
    s->soft_mm = soft_mm;
    for (int a = 0; a < 3; a++)
        s->soft_k[a] = rng_between(r, -1, 1) / 70; /* turns per mm: stretches of 3 to 10 cm */
    s->soft_phase = rng_uniform(r);
}

/* How far the shape can matter: the largest radius, bent and lobed, plus the widest border. Endless
 * shapes reach everywhere. */
static void measure_shape(struct body_shape *s, const float radius[3])
{
    float longest = 0;
    s->swell = 0;
    s->thin_mm = 1e9f;
    for (int a = 0; a < 3; a++) {
        longest = radius[a] > longest ? radius[a] : longest;
        s->thin_mm = radius[a] < s->thin_mm ? radius[a] : s->thin_mm;
    }
    for (int l = 0; l < s->n_lobes; l++)
        s->swell += s->lobe[l].height;
    s->reach_mm = longest >= ENDLESS_MM ? 1e9f : longest * (1.2f + s->swell) + 2 * s->soft_mm + 12;
}

/* The part's shape in this patient; the caller has room for it. */
static void draw_part(struct body *b, const struct part *t, int classes, struct rng *r, const float sway[3])
{
    static const unsigned char order[3][3] = {{0, 1, 2}, {1, 0, 2}, {2, 0, 1}}; /* of q0, q1, q2 */
    struct body_shape *s = &b->shape[b->n_shapes++];
    float turn[3][3], radius[3], swell = rng_between(r, 0.93f, 1.07f);
    memset(s, 0, sizeof *s);
    draw_turn(turn, t->turn, r, 0.05f);
    for (int a = 0; a < 3; a++) {
        radius[a] = (float)t->radius_mm[a] * swell * rng_between(r, 0.93f, 1.07f);
        s->centre[a] = (float)t->centre_mm[a] + sway[a] + rng_between(r, -t->jitter_mm, t->jitter_mm);
    }
    for (int row = 0; row < 3; row++) {
        int axis = order[t->axis][row];
        for (int a = 0; a < 3 && t->radius_mm[axis] < ENDLESS_MM; a++)
            s->frame[row][a] = turn[a][axis] / radius[axis];
    }
    s->bend[0] = t->bend[0] * rng_between(r, 0.75f, 1.25f);
    s->bend[1] = t->bend[1] * rng_between(r, 0.75f, 1.25f);
    s->taper = t->taper * rng_between(r, 0.8f, 1.2f);
    draw_lobes(s, t->lobes, t->ripple, r);
    draw_border(s, t->soft_mm, r);
    s->tissue = t->tissue;
    s->inner = t->inner;
    s->wall_mm = t->wall_mm;
    s->gas_level_mm = t->has_gas ? (float)t->gas_level_mm + rng_between(r, -6, 10) : 1e9f;
    s->label = (label_t)(t->organ < classes ? t->organ : 0);
    measure_shape(s, radius);
}

/* Small bowel: loops that crowd the lower front of the belly. */
static void draw_bowel(struct body *b, uint64_t seed, uint64_t index)
{
    struct rng r = rng_start(seed, index, RNG_PHANTOM, DRAW_BOWEL);
    for (int n = 0; n < 22; n++) {
        struct part loop = {.tissue = TISSUE_BOWEL_WALL,
                            .inner = TISSUE_BOWEL_CONTENT,
                            .radius_mm = {26, 14, 14},
                            .bend = {.4f, .2f},
                            .lobes = .1f,
                            .ripple = .7f,
                            .soft_mm = 3,
                            .jitter_mm = 9,
                            .gas_level_mm = 2};
        loop.centre_mm[0] = (short)(-84 + 42 * (n % 5) + (n / 5 % 2) * 16);
        loop.centre_mm[1] = (short)(52 - 26 * (n / 5 % 3));
        loop.centre_mm[2] = (short)(-62 - 30 * (n / 10));
        for (int a = 0; a < 3; a++)
            loop.turn[a] = rng_between(&r, -0.6f, 0.6f);
        loop.wall_mm = rng_uniform(&r) < 0.5f ? 0 : 4; /* half of the loops are collapsed */
        loop.has_gas = rng_uniform(&r) < 0.25f;
        draw_part(b, &loop, 1, &r, still);
    }
}

/* Thin vessels scattered about a point: veins of the liver (and of its class), and of the
 * mesentery. */
static void draw_vessels(struct body *b, const struct part *like, int n_vessels, int classes, struct rng *r)
{
    for (int n = 0; n < n_vessels; n++) {
        struct part vessel = *like;
        vessel.turn[1] = rng_between(r, -0.6f, 0.6f);
        vessel.turn[2] = rng_between(r, -1, 1);
        vessel.centre_mm[2] = (short)(like->centre_mm[2] + (2 * n - n_vessels) * 6);
        draw_part(b, &vessel, classes, r, still);
    }
}

static const struct part liver_vein = {.organ = ORGAN_LIVER,
                                       .tissue = TISSUE_VEIN,
                                       .centre_mm = {58, 6, 44},
                                       .radius_mm = {32, 4, 4},
                                       .taper = .4f,
                                       .lobes = .1f,
                                       .ripple = .5f,
                                       .soft_mm = 2.5f,
                                       .jitter_mm = 16};
static const struct part mesentery_vessel = {.tissue = TISSUE_VEIN,
                                             .centre_mm = {-10, 18, -40},
                                             .radius_mm = {24, 3, 3},
                                             .bend = {.4f, 0},
                                             .taper = .3f,
                                             .lobes = .1f,
                                             .ripple = .5f,
                                             .soft_mm = 2.5f,
                                             .jitter_mm = 40};

/* Classes beyond the organs: nodules at fixed places of the anatomy, spread by the low-discrepancy
 * sequence of the root of x^4 = x + 1, and shrinking so that they keep clear of each other. */
static void draw_nodules(struct body *b, int classes, uint64_t seed, uint64_t index)
{
    static const float step[3] = {0.8191725f, 0.6710436f, 0.5497005f};
    int n = classes - ORGAN_COUNT;
    float radius = 15;
    while (radius * radius * radius * (float)n > 15.0f * 15 * 15 * 8)
        radius -= 0.25f; /* total volume at most that of eight nodules of 15 mm */
    for (int m = 0; m < n; m++) {
        struct rng r = rng_start(seed, index, RNG_PHANTOM, (uint64_t)(DRAW_NODULES + m));
        struct part t = {.tissue = TISSUE_NODULE,
                         .radius_mm = {20, 20, 20},
                         .lobes = .07f,
                         .ripple = .5f,
                         .soft_mm = 3,
                         .jitter_mm = 2};
        static const float span[3] = {170, 90, 120}, from[3] = {-85, -25, -60};
        for (int a = 0; a < 3; a++) {
            float u = step[a] * (float)(m + 1);
            t.centre_mm[a] = (short)(from[a] + span[a] * (u - (float)(int)u));
            t.radius_mm[a] = (short)(radius + 0.5f);
        }
        draw_part(b, &t, 1, &r, still);
        b->shape[b->n_shapes - 1].label = (label_t)(ORGAN_COUNT + m);
    }
}

static void draw_patient(struct body *b, uint64_t seed, uint64_t index)
{
    struct rng r = rng_start(seed, index, RNG_PHANTOM, DRAW_PATIENT);
    float stature = rng_between(&r, 0.9f, 1.1f);
    for (int a = 0; a < 3; a++) {
        b->scale[a] = stature * rng_between(&r, 0.95f, 1.05f);
        b->shift[a] = rng_between(&r, -6, 6);
    }
    for (int w = 0; w < BODY_WAVES; w++) {
        for (int a = 0; a < 3; a++) {
            b->wave[w].k[a] = rng_between(&r, -1, 1) / 220; /* turns per mm: 20 cm and longer */
            b->wave[w].push[a] = rng_between(&r, -4, 4);
        }
        b->wave[w].phase = rng_uniform(&r);
    }
    float stout = rng_uniform(&r);
    b->fat_mm = 7 + 20 * stout * stout;
    b->muscle_mm = rng_between(&r, 9, 15);
    b->spine_phase = rng_uniform(&r);
    b->rib_phase = rng_uniform(&r);
}

static void draw_tissues(struct body *b, uint64_t seed, uint64_t index)
{
    struct rng r = rng_start(seed, index, RNG_PHANTOM, DRAW_TISSUE);
    float gain = rng_between(&r, 0.65f, 1.5f); /* MR numbers have no unit: each scan has its own */
    for (int t = 0; t < BODY_TISSUES; t++) {
        const struct tissue_row *row = &tissue_row[t];
        for (int c = 0; c < b->n_channels; c++) {
            float part = (float)row->varies_permille * 0.001f * rng_between(&r, -1, 1);
            /* Channels past the third blend two of the three contrasts. */
            float mr = c < 3 ? row->mr[c] : 0.5f * (float)(row->mr[c % 3] + row->mr[(c + 1) % 3]);
            b->value[t][c] = b->is_ct ? (float)row->ct + 60 * part : gain * mr * (1 + part);
        }
        for (int g = 0; g < 2; g++)
            b->grain[t][g] = b->is_ct ? (float)row->ct_grain[g] : 0.001f * (float)row->mr_grain[g];
    }
}

static void draw_texture(struct body *b, uint64_t seed, uint64_t index)
{
    struct rng r = rng_start(seed, index, RNG_PHANTOM, DRAW_TEXTURE);
    for (int n = 0; n < BODY_TEXTURE_CELLS * BODY_TEXTURE_CELLS * BODY_TEXTURE_CELLS; n++)
        b->texture[n] = rng_between(&r, -2, 2);
}

int body_draw(struct body **out, const struct phantom_options *o, int index, struct error *e)
{
    struct body *b = mem_alloc(e, 1, sizeof *b);
    if (!b)
        return -1;
    uint64_t n = (uint64_t)index;
    b->n_channels = o->channels;
    b->is_ct = o->layout == LAYOUT_PANCREAS;
    draw_patient(b, o->seed, n);
    draw_tissues(b, o->seed, n);
    draw_texture(b, o->seed, n);
    draw_bowel(b, o->seed, n);
    struct rng veins = rng_start(o->seed, n, RNG_PHANTOM, DRAW_VEINS);
    draw_vessels(b, &mesentery_vessel, 10, o->classes, &veins);
    float sway[3] = {0, 0, 0}; /* gland and its veins move together */
    for (int p = 0; p < PARTS; p++) {
        struct rng r = rng_start(o->seed, n, RNG_PHANTOM, (uint64_t)(DRAW_PARTS + p));
        for (int a = 0; a < 3 && p == PARTS - GLAND_PARTS; a++)
            sway[a] = rng_between(&r, -6, 6);
        draw_part(b, &part_table[p], o->classes, &r, sway);
        if (part_table[p].organ == ORGAN_LIVER && part_table[p + 1].organ != ORGAN_LIVER)
            draw_vessels(b, &liver_vein, 7, o->classes, &veins);
    }
    draw_nodules(b, o->classes, o->seed, n);
    CHECK(b->n_shapes <= BODY_SHAPES);
    *out = b;
    return 0;
}
