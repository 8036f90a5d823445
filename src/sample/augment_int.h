/* augment_int.h - shared by augment.c (choices, copies), warp.c (interpolation), intensity.c
 * (values). */
#ifndef FALX_AUGMENT_INT_H
#define FALX_AUGMENT_INT_H

#include "base/rng.h"
#include "sample/augment.h"

/* Each effect has random numbers of its own: switching one off leaves the others as they were. */
enum augment_purpose {
    AUGMENT_ROTFLIP,
    AUGMENT_CROP,
    AUGMENT_MIRROR,
    AUGMENT_SCALE,
    AUGMENT_ROTATE,
    AUGMENT_ELASTIC,
    AUGMENT_NOISE,
    AUGMENT_BLUR,
    AUGMENT_BRIGHTNESS,
    AUGMENT_CONTRAST,
    AUGMENT_ZOOM,
    AUGMENT_GAMMA,
    AUGMENT_CONTROLS,
    AUGMENT_VOXELS,
    AUGMENT_SHIFT,
    AUGMENT_WANDER,
    AUGMENT_PURPOSES = 16
};
struct rng augment_rng(const struct augment_key *k, enum augment_purpose purpose);

/* A Gaussian is cut at 3 deviations; with at most 3 voxels of deviation that is 9 + 1 + 9 taps. */
enum { AUGMENT_BLUR_MAX = 3, AUGMENT_MAX_TAPS = 2 * 3 * AUGMENT_BLUR_MAX + 1 };

struct augment_scratch {
    float *patch;          /* (d, h, w, c): second buffer of the axis filters */
    float *control;        /* (a, b, c, 3) control points of the elastic grid */
    float *line;           /* (c, 3): control points collapsed for one row of voxels */
    float *shift;          /* (w, 3): displacement of one row of voxels */
    struct spline *spline; /* three tables, one per axis, of dims[axis] entries each */
    int n_control[3];      /* control points per axis */
    int *tap_index;        /* (longest axis, AUGMENT_MAX_TAPS) */
    float *tap_weight;     /* the same shape */
};

/* Cubic B-spline at one voxel: weights of control points cell .. cell + 3. */
struct spline {
    int cell;
    float weight[4];
};

/* Turned frame: source index on axis a = base[a] + sign[a] * q[from[a]], q in [0, extent). */
struct frame {
    int extent[3], from[3], sign[3], base[3];
};

/* x = offset + matrix * p, patch voxel to source position. */
struct affine {
    float matrix[3][3], offset[3];
};
void affine_init(struct affine *out, const struct augment_draw *d, const struct frame *f, const int dims[3]);

int warp_controls(int n, float spacing); /* control points for an axis of n voxels */
/* Image, label and mask of the patch by interpolation. */
void warp_patch(const struct patch *out, const struct augment_options *o, const struct augment_draw *draw,
                const struct frame *f, const struct stored_case *c, struct augment_scratch *s);

/* The value effects, in place on out->image. */
void intensity_apply(const struct patch *out, const struct augment_draw *draw, struct augment_scratch *s);

#endif
