/* phantom_body.h - one synthetic patient: a function from a point to tissue and class. Private to
 * the phantom files.
 *
 * Points are patient millimetres in RAS around the middle of the body. A body is drawn once per
 * case and then only read, so any number of threads may sample it.
 */
#ifndef FALX_PHANTOM_BODY_H
#define FALX_PHANTOM_BODY_H

#include "phantom/phantom.h"

enum tissue {
    TISSUE_AIR,
    TISSUE_SKIN,
    TISSUE_FAT,
    TISSUE_MESENTERY,
    TISSUE_MUSCLE,
    TISSUE_CORTEX,
    TISSUE_MARROW,
    TISSUE_DISC,
    TISSUE_CSF,
    TISSUE_CORD,
    TISSUE_ARTERY,
    TISSUE_VEIN,
    TISSUE_LIVER,
    TISSUE_SPLEEN,
    TISSUE_RENAL_CORTEX,
    TISSUE_RENAL_MEDULLA,
    TISSUE_RENAL_PELVIS,
    TISSUE_GLAND,
    TISSUE_DISTRACTOR,
    TISSUE_BOWEL_WALL,
    TISSUE_BOWEL_CONTENT,
    TISSUE_STOMACH_CONTENT,
    TISSUE_GAS,
    TISSUE_BILE,
    TISSUE_NODULE,
    TISSUE_TABLE
};

/* Class numbers. With C classes, organs 1..C-1 are labelled; past ORGAN_COUNT come nodules. */
enum organ {
    ORGAN_NONE,
    ORGAN_GLAND,
    ORGAN_SPLEEN,
    ORGAN_KIDNEY_RIGHT,
    ORGAN_KIDNEY_LEFT,
    ORGAN_LIVER,
    ORGAN_STOMACH,
    ORGAN_AORTA,
    ORGAN_GALLBLADDER,
    ORGAN_CAVA,
    ORGAN_DUODENUM,
    ORGAN_COUNT
};

enum {
    BODY_LOBES = 4,
    BODY_WAVES = 3,
    BODY_SHAPES = 360,       /* 60 of the anatomy and up to 300 nodules and bowel loops */
    BODY_TEXTURE_CELLS = 32, /* texture lattice, cells along an axis; a power of two */
    BODY_TISSUES = 26
};

/* A smooth blob: the set of points where |q| < 1 + lobes(q / |q|), q = frame (p - centre), bent. */
struct body_shape {
    float centre[3];
    float frame[3][3]; /* rows: direction of an axis divided by its radius; a zero row = endless */
    float bend[2];     /* q1 += bend0 (q0^2 - 1/3), q2 += bend1 q0 */
    float taper;       /* q1, q2 divided by 1 + taper q0 */
    struct body_lobe {
        float k[3], phase, height;
    } lobe[BODY_LOBES];
    int n_lobes;
    float swell;                 /* sum of the heights of the lobes */
    float thin_mm;               /* the smallest radius */
    float reach_mm;              /* nothing of the shape or its soft border lies farther from the centre */
    float soft_mm;               /* typical width of the border ramp */
    float soft_k[3], soft_phase; /* the width swings along this wave, times 0.2 to 1.8 */
    float wall_mm;               /* below that depth the tissue is `inner` */
    float gas_level_mm;          /* contents above centre + level (towards the front) are gas; 1e9 = none */
    unsigned char tissue, inner;
    label_t label;
};

struct body {
    int n_channels;
    int is_ct;
    float scale[3], shift[3]; /* patient mm -> standard anatomy */
    struct body_wave {
        float k[3], phase, push[3]; /* slow deformation of the whole anatomy, mm */
    } wave[BODY_WAVES];
    float fat_mm, muscle_mm;                         /* thickness under the skin, of the wall */
    float spine_phase, rib_phase;                    /* turns */
    float value[BODY_TISSUES][PHANTOM_MAX_CHANNELS]; /* mean signal or HU */
    float grain[BODY_TISSUES][2];                    /* amplitude of fine and coarse texture */
    struct body_shape shape[BODY_SHAPES];
    int n_shapes;
    float texture[BODY_TEXTURE_CELLS * BODY_TEXTURE_CELLS * BODY_TEXTURE_CELLS];
};

/* Shapes near a stretch of voxels, in painting order. */
struct body_near {
    short index[BODY_SHAPES];
    int n;
};

/* Draws patient `index`. The body belongs to the caller (mem_free). */
int body_draw(struct body **out, const struct phantom_options *o, int index, struct error *e);
/* Half extent of the body with its skin, mm, along right-left and back-front. */
void body_extent(float out_mm[2], const struct body *b);

/* Patient mm -> point of the standard anatomy. */
void body_locate(float p[3], const struct body *b, const float x_mm[3]);
/* Shapes that can matter within radius_mm of p. */
void body_find_near(struct body_near *out, const struct body *b, const float p[3], float radius_mm);
/* Signal of every channel at p, borders at least blur_mm wide; returns the class. */
label_t body_sample(float value[PHANTOM_MAX_CHANNELS], const struct body *b, const struct body_near *near,
                    const float p[3], float blur_mm);
/* Depth of p below the surface of a shape, mm; negative outside. */
float body_depth_mm(const struct body_shape *s, const float p[3]);

/* A sine of t turns (t = 1 is a full period), exact to 0.001 and the same on every machine; |t| <
 * 4096. */
static inline float body_wave_at(float t)
{
    float u = t - (float)((int)(t + 4096.5f) - 4096);
    float y = 8 * u - 16 * u * (u < 0 ? -u : u);
    return y + 0.225f * (y * (y < 0 ? -y : y) - y);
}

static inline float body_dot(const float a[3], const float b[3])
{
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
}

#endif
