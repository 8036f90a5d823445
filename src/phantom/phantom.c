/* phantom.c - one synthetic case: places the scanner's grid on a patient and fills its voxels.
 *
 *     voxel (i,j,k) --affine--> patient mm --body_locate--> anatomy --body_sample--> signal, class
 *     signal --bias field (MR)--> --noise: Rician (MR), correlated Gaussian (CT)--> int16
 *
 * The grid differs from case to case: number of voxels by 15 %, spacing with it, and, where the
 * layout stores orientation, the directions of the axes, their order, and a small oblique turn.
 * Slices are filled independently of each other; noise is a function of the voxel number. So
 * threads do not matter.
 */
#include <string.h>

#include "base/rng.h"
#include "phantom/phantom.h"
#include "phantom/phantom_body.h"

/* Uses of the RNG_PHANTOM stream; phantom_shapes.c has 0..7 and 16 and up, phantom_rough.c 10. */
enum { DRAW_GRID = 8, DRAW_SIGNAL = 9 };

enum { BLOCK = 8 /* voxels that share one list of near shapes */, BIAS_WAVES = 3 };

/* Depth of the slab along foot-head, mm: gland, kidneys and spleen whole, liver and stomach cut. */
static const double SLAB_MM = 185;

struct render {
    const struct phantom_options *o;
    const struct body *body;
    uint64_t step; /* case number, as the random numbers want it */
    int64_t dims[3];
    float affine[3][4];                                      /* voxel -> mm from the middle of the body */
    float blur_mm, block_mm;                                 /* least border width; reach of half a block */
    float noise;                                             /* standard deviation */
    struct body_wave bias[PHANTOM_MAX_CHANNELS][BIAS_WAVES]; /* push[0] is the height */
    int16_t *image;
    uint8_t *label;
};

static int check_range(const char *option, int64_t seen, int64_t lowest, int64_t highest, struct error *e)
{
    if (seen >= lowest && seen <= highest)
        return 0;
    return fail(e, ERR_CONFIG, "C02", "%s %lld, allowed %lld..%lld", option, (long long)seen,
                (long long)lowest, (long long)highest);
}

/* What a layout has no room for. */
static int check_only(const char *option, int seen, int allowed, enum layout l, struct error *e)
{
    if (seen == allowed)
        return 0;
    return fail(e, ERR_CONFIG, "C02", "%s %d, allowed with --layout %s: %d", option, seen, layout_name(l),
                allowed);
}

/* Layouts of one channel a case, its axes always L, P, S: a folder a case. */
static int is_single(enum layout l)
{
    return l == LAYOUT_H5 || l == LAYOUT_LA || l == LAYOUT_PANCREAS;
}

int phantom_check(const struct phantom_options *o, struct error *e)
{
    int single = is_single(o->layout);
    int binary = o->layout == LAYOUT_LA || o->layout == LAYOUT_PANCREAS;
    for (int a = 0; a < 3; a++)
        if (check_range("--size", o->size[a], PHANTOM_MIN_SIZE, PHANTOM_MAX_SIZE, e) < 0)
            return -1;
    if (check_range("--cases", o->cases, 1, PHANTOM_MAX_CASES, e) < 0 ||
        check_range("--test", o->test, 0, PHANTOM_MAX_CASES, e) < 0 ||
        check_range("--labeled", o->labeled, 0, o->cases, e) < 0 ||
        check_range("--classes", o->classes, 2, PHANTOM_MAX_CLASSES, e) < 0 ||
        check_range("--channels", o->channels, 1, PHANTOM_MAX_CHANNELS, e) < 0 ||
        (binary && check_only("--classes", o->classes, 2, o->layout, e) < 0) ||
        (single && check_only("--channels", o->channels, 1, o->layout, e) < 0))
        return -1;
    if (o->layout == LAYOUT_PANCREAS && o->cases + o->test > PHANTOM_PANCREAS_CASES)
        return fail(e, ERR_CONFIG, "C02",
                    "--cases %d and --test %d, allowed with --layout pancreas: together 1..%d", o->cases,
                    o->test, PHANTOM_PANCREAS_CASES);
    return 0;
}

/* ---- the grid -------------------------------------------------------------------------------- */

/* Which patient axis each voxel axis follows, in which direction, and how the box is turned. */
struct placement {
    int axis[3], sign[3];
    double turn[3][3];
};

static void draw_placement(struct placement *p, struct rng *r, int is_free)
{
    /* axial twice, coronal, sagittal */
    static const int order[4][3] = {{0, 1, 2}, {0, 1, 2}, {0, 2, 1}, {1, 2, 0}};
    double half[3] = {0, 0, 0}, norm = 1;
    int view = rng_below(r, 4) == 0 ? (int)rng_below(r, 4) : 0, is_oblique = rng_below(r, 3) == 0;
    int flip[3] = {(int)rng_below(r, 2), (int)rng_below(r, 2), rng_below(r, 6) == 0};
    for (int a = 0; a < 3; a++) {
        float tilt = rng_between(r, -0.05f, 0.05f); /* half angle: up to 6 degrees an axis */
        half[a] = is_free && is_oblique ? (double)tilt : 0;
        norm += half[a] * half[a];
        p->axis[a] = order[is_free ? view : 0][a];
        p->sign[a] = is_free ? (flip[a] ? -1 : 1) : (a < 2 ? -1 : 1); /* fixed: LPS, as DICOM */
    }
    /* The rotation of the quaternion (1, half). */
    double s = 2 / norm, x = half[0], y = half[1], z = half[2];
    const double m[3][3] = {{1 - s * (y * y + z * z), s * (x * y - z), s * (x * z + y)},
                            {s * (x * y + z), 1 - s * (x * x + z * z), s * (y * z - x)},
                            {s * (x * z - y), s * (y * z + x), 1 - s * (x * x + y * y)}};
    memcpy(p->turn, m, sizeof m);
}

static double to_micrometre(double mm)
{
    return (double)(int64_t)(mm * 1000 + 0.5) / 1000;
}

/* Voxels along the patient's axes. */
static void draw_size(int64_t n[3], const struct phantom_options *o, struct rng *r)
{
    float plane = rng_between(r, 0.85f, 1.15f), deep = rng_between(r, 0.85f, 1.15f);
    for (int a = 0; a < 3; a++)
        n[a] = (int64_t)((float)o->size[a] * (a < 2 ? plane : deep) + 0.5f);
}

int64_t phantom_slices(const struct phantom_options *o, int index)
{
    struct rng r = rng_start(o->seed, (uint64_t)index, RNG_PHANTOM, DRAW_GRID);
    int64_t n[3];
    draw_size(n, o, &r);
    return n[2];
}

/* Size, and the spacing with which the body fills the field of view; square pixels. */
static void draw_field(int64_t n[3], double spacing[3], const struct phantom_options *o, const struct body *b,
                       struct rng *r)
{
    float half[2];
    draw_size(n, o, r);
    body_extent(half, b);
    double margin = (double)rng_between(r, 1, 1.06f);
    double wide = 2 * margin * (double)half[0] / (double)n[0];
    double high = 2 * margin * (double)half[1] / (double)n[1];
    spacing[0] = spacing[1] = to_micrometre(wide > high ? wide : high);
    spacing[2] =
        to_micrometre(SLAB_MM * (double)b->scale[2] * (double)rng_between(r, 0.95f, 1.1f) / (double)n[2]);
}

static void draw_grid(struct render *v, struct geometry *g, const struct phantom_options *o)
{
    struct rng r = rng_start(o->seed, v->step, RNG_PHANTOM, DRAW_GRID);
    int64_t n[3];
    double spacing[3], affine[3][4], volume = 1;
    struct placement at;
    draw_field(n, spacing, o, v->body, &r);
    draw_placement(&at, &r, !is_single(o->layout));
    for (int a = 0; a < 3; a++) {
        /* Where the middle of the body lies on the scanner's axes, to a tenth of a millimetre. */
        double middle = 0.1 * (double)(int)rng_between(&r, a == 2 ? -2000 : -150, a == 2 ? 2000 : 150);
        affine[a][3] = middle;
        for (int c = 0; c < 3; c++) {
            int axis = at.axis[c];
            /* + 0.0 leaves no negative zero */
            affine[a][c] = at.turn[a][axis] * at.sign[c] * spacing[axis] + 0.0;
            affine[a][3] -= affine[a][c] * 0.5 * (double)(n[axis] - 1);
            v->affine[a][c] = (float)affine[a][c];
        }
        v->affine[a][3] = (float)(affine[a][3] - middle);
    }
    for (int c = 0; c < 3; c++) {
        v->dims[c] = n[at.axis[c]];
        volume *= spacing[c];
    }
    /* The cube root of a voxel's volume, by halving steps; borders past 12 mm gain nothing. */
    float blur = 1;
    for (float step = 6; step > 0.05f; step *= 0.5f)
        blur += (double)((blur + step) * (blur + step) * (blur + step)) < volume ? step : 0;
    v->blur_mm = blur < 12 ? blur : 12;
    /* 2.6: room for 1 / scale and for what the slow waves stretch. */
    v->block_mm = 0.5f * BLOCK * (float)spacing[at.axis[0]] * 2.6f;
    geometry_from_affine(g, (const double(*)[4])affine);
    g->known = 1;
}

/* ---- voxels ---------------------------------------------------------------------------------- */

static void draw_signal(struct render *v)
{
    struct rng r = rng_start(v->o->seed, v->step, RNG_PHANTOM, DRAW_SIGNAL);
    float part = rng_between(&r, 0.025f, 0.05f); /* noise: of the fat in MR, 10 to 20 HU in CT */
    v->noise = v->body->is_ct ? 400 * part : part * v->body->value[TISSUE_FAT][0];
    for (int c = 0; c < v->o->channels; c++) {
        for (int w = 0; w < BIAS_WAVES; w++) {
            struct body_wave *b = &v->bias[c][w];
            for (int a = 0; a < 3; a++)
                b->k[a] = rng_between(&r, -1, 1) / 450; /* turns per mm: slower than any organ */
            b->phase = rng_uniform(&r);
            b->push[0] = rng_between(&r, 0.04f, 0.14f);
        }
    }
}

/* Two nearly normal numbers of variance 1 from one block: sums of four 16-bit uniforms each. */
static void noise_pair(float out[2], const struct render *v, uint64_t index)
{
    struct rng_block b = rng_block(v->o->seed, v->step, RNG_NOISE, index);
    for (int n = 0; n < 2; n++) {
        uint32_t p = b.v[2 * n], q = b.v[2 * n + 1];
        uint32_t sum = (p & 0xffff) + (p >> 16) + (q & 0xffff) + (q >> 16);
        out[n] = ((float)sum - 131070.0f) * (1 / 37837.0f); /* sd of the sum: 65536 sqrt(4 / 12) */
    }
}

/* CT noise is smooth in the plane: reconstruction spreads it over neighbours. */
static float noise_ct(const struct render *v, uint64_t index)
{
    static const float weight[3] = {0.72f, 0.49f, 0.49f}; /* squares sum to 1 */
    uint64_t at[3] = {index, index + 1, index + (uint64_t)v->dims[0]};
    float sum = 0, pair[2];
    for (int n = 0; n < 3; n++) {
        noise_pair(pair, v, at[n]);
        sum += weight[n] * pair[0];
    }
    return sum;
}

static int16_t finish_value(const struct render *v, float value, int channel, const float x[3],
                            uint64_t index)
{
    if (v->body->is_ct) {
        value += v->noise * noise_ct(v, index);
        value = value < -1024 ? -1024 : value > 3071 ? 3071 : value; /* 12 bits, as scanners store */
        return (int16_t)((int)(value + 4096.5f) - 4096);
    }
    float bias = 1, pair[2];
    for (int w = 0; w < BIAS_WAVES; w++) {
        const struct body_wave *b = &v->bias[channel][w];
        bias += b->push[0] * body_wave_at(body_dot(b->k, x) + b->phase);
    }
    noise_pair(pair, v, index);
    float real = value * bias + v->noise * pair[0], imaginary = v->noise * pair[1];
    value = sqrtf(real * real + imaginary * imaginary);
    return (int16_t)(value > 32767 ? 32767 : value + 0.5f);
}

static void voxel_place(float x[3], const struct render *v, float i, float j, float k)
{
    for (int a = 0; a < 3; a++)
        x[a] = v->affine[a][0] * i + v->affine[a][1] * j + v->affine[a][2] * k + v->affine[a][3];
}

static void render_voxel(const struct render *v, const struct body_near *near, int64_t i, int64_t j,
                         int64_t k)
{
    float x[3], p[3], value[PHANTOM_MAX_CHANNELS];
    int64_t at = i + v->dims[0] * (j + v->dims[1] * k), voxels = v->dims[0] * v->dims[1] * v->dims[2];
    voxel_place(x, v, (float)i, (float)j, (float)k);
    body_locate(p, v->body, x);
    v->label[at] = (uint8_t)body_sample(value, v->body, near, p, v->blur_mm);
    for (int c = 0; c < v->o->channels; c++)
        v->image[at + c * voxels] = finish_value(v, value[c], c, x, (uint64_t)(at + c * voxels));
}

static void render_slice(void *arg, int64_t k)
{
    const struct render *v = arg;
    struct body_near near;
    for (int64_t j = 0; j < v->dims[1]; j++) {
        for (int64_t from = 0; from < v->dims[0]; from += BLOCK) {
            int64_t to = from + BLOCK < v->dims[0] ? from + BLOCK : v->dims[0];
            float x[3], p[3];
            voxel_place(x, v, (float)from + 0.5f * BLOCK, (float)j, (float)k);
            body_locate(p, v->body, x);
            body_find_near(&near, v->body, p, v->block_mm);
            for (int64_t i = from; i < to; i++)
                render_voxel(v, &near, i, j, k);
        }
    }
}

/* The voxel deepest inside the shapes of a class, among those that other classes can spare. */
static int64_t find_room(const struct render *v, int class, const int64_t *count)
{
    int64_t best = -1, voxels = v->dims[0] * v->dims[1] * v->dims[2];
    float deepest = -1e30f;
    for (int64_t at = 0; at < voxels; at++) {
        float x[3], p[3];
        if (v->label[at] && count[v->label[at]] <= 1)
            continue;
        voxel_place(x, v, (float)(at % v->dims[0]), (float)(at / v->dims[0] % v->dims[1]),
                    (float)(at / (v->dims[0] * v->dims[1])));
        body_locate(p, v->body, x);
        for (int n = 0; n < v->body->n_shapes; n++) {
            const struct body_shape *s = &v->body->shape[n];
            float depth = s->label == class ? body_depth_mm(s, p) : -1e30f;
            best = depth > deepest ? at : best;
            deepest = depth > deepest ? depth : deepest;
        }
    }
    return best;
}

/* On coarse grids a small organ can fall between the voxels: it then gets the one nearest to it. */
static void keep_all_classes(struct render *v)
{
    int64_t count[PHANTOM_MAX_CLASSES] = {0}, voxels = v->dims[0] * v->dims[1] * v->dims[2];
    for (int64_t n = 0; n < voxels; n++)
        count[v->label[n]]++;
    for (int c = 1; c < v->o->classes; c++) {
        int64_t at = count[c] ? -1 : find_room(v, c, count);
        if (at < 0)
            continue;
        count[v->label[at]]--;
        v->label[at] = (uint8_t)c;
        count[c]++;
    }
}

int phantom_make(struct volume *image, struct volume *label, const struct phantom_options *o, int index,
                 struct pool *pool, struct error *e)
{
    int rc = -1;
    struct body *body = NULL;
    struct geometry g;
    memset(image, 0, sizeof *image);
    memset(label, 0, sizeof *label);
    memset(&g, 0, sizeof g);
    if (phantom_check(o, e) < 0 || body_draw(&body, o, index, e) < 0)
        goto out;
    struct render v = {.o = o, .body = body, .step = (uint64_t)index};
    draw_grid(&v, &g, o);
    draw_signal(&v);
    int64_t dims[3] = {v.dims[0], v.dims[1], v.dims[2] * o->channels}; /* room for every channel */
    if (volume_new(image, DTYPE_I16, dims, &g, e) < 0 || volume_new(label, DTYPE_U8, v.dims, &g, e) < 0)
        goto out;
    image->dims[2] = v.dims[2];
    image->dims[3] = o->channels;
    image->n_dims = o->channels > 1 ? 4 : 3;
    v.image = image->data;
    v.label = label->data;
    pool_run(pool, v.dims[2], render_slice, &v);
    keep_all_classes(&v);
    rc = 0;
out:
    mem_free(body);
    if (rc < 0) {
        volume_free(image);
        volume_free(label);
    }
    return rc;
}
