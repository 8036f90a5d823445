/* resample.h - the same scan on another grid: other axes, another box, another spacing.
 *
 * A grid changes in three ways, each with its exactness:
 *
 *     permute / reorient   axes exchanged and reversed    every voxel kept, bit for bit
 *     crop (and pad)       another box of the same grid   every shared voxel kept, bit for bit
 *     resample             another spacing                voxels are computed
 *
 * Each of them moves the affine along, so that a voxel stays where it is in the patient.
 *
 * Aligned resampling is separable: along one axis, output index o reads input position
 * start + step * o, clamped to the input. Two conventions for start and step are in use:
 *
 *     centred   the centres of both grids coincide; output spacing is exact     (our recipes)
 *     ends      first and last voxel centres coincide, as scipy.ndimage.zoom    (the paper's)
 *
 * Every output voxel is computed by one thread from the input alone: same bits for any thread
 * count.
 */
#ifndef FALX_RESAMPLE_H
#define FALX_RESAMPLE_H

#include "base/pool.h"
#include "volume/volume.h"

enum resample_kind {
    RESAMPLE_NEAREST, /* voxel floor(x + 1/2): SciPy's order 0; keeps type and scaling */
    RESAMPLE_LINEAR,  /* SciPy's order 1 */
    RESAMPLE_SMOOTH,  /* linear, but along an axis that gets coarser the triangle is widened to the
                       * new voxel, so that fine detail is averaged instead of aliased */
    RESAMPLE_CUBIC,   /* interpolating cubic B-spline, borders mirrored at the outer voxel centres:
                       * SciPy's order 3 with mode="mirror" */
    RESAMPLE_CLASSES  /* label volumes: the class with the largest RESAMPLE_SMOOTH weight, ties to
                       * the lower class; result uint16 */
};

/* One axis of an aligned resampling. */
struct resample_axis {
    int64_t n;          /* output voxels */
    double start, step; /* input position of output o: start + step * o */
};
/* round(n * spacing / target), halves to even as Python rounds, at least 1. */
int64_t resample_count(int64_t n, double spacing_mm, double target_mm);
void resample_axis_identity(struct resample_axis *out, int64_t n);
void resample_axis_centred(struct resample_axis *out, int64_t n, double spacing_mm, double target_mm);
void resample_axis_ends(struct resample_axis *out, int64_t n, int64_t n_out);
/* 1 if output o is input o for all three axes. */
int resample_is_identity(const struct resample_axis axis[3], const int64_t dims[3]);

/* ---- bare arrays of one channel, first axis fastest; *out is the caller's (mem_free) --------- */

/* kind: all but CLASSES. The array is no more needed: *io (mem_free) is freed after the first axis and
 * replaced by the result, or by NULL on failure. */
int resample_replace(float **io, const int64_t dims[3], const struct resample_axis axis[3],
                     enum resample_kind kind, struct pool *pool, struct error *e);
/* RESAMPLE_CLASSES. */
int resample_classes(label_t **out, const label_t *in, const int64_t dims[3],
                     const struct resample_axis axis[3], struct pool *pool, struct error *e);

/* ---- volumes; all channels alike; *out is new and freed by the caller ------------------------ */

/* Output axis a is input axis axis[a], reversed if flip[a]. */
int volume_permute(struct volume *out, const struct volume *in, const int axis[3], const int flip[3],
                   struct error *e);
/* Where the voxels lie after that. */
void geometry_permute(struct geometry *out, const struct volume *in, const int axis[3], const int flip[3]);
/* Finds the permutation that puts the voxels of `v` where those of `grid` lie, to tolerance_mm. Returns 1;
 * 0 if they lie there as they are, or if a file names no orientation; -1 if there is none. */
int volume_find_turn(int axis[3], int flip[3], const struct volume *v, const struct volume *grid,
                     double tolerance_mm);
/* That, done to `v`; as it is if there is none. */
int volume_turn_onto(struct volume *v, const struct volume *grid, double tolerance_mm, struct error *e);
/* Undoes volume_permute: the arguments are those given to it. */
int volume_unpermute(struct volume *out, const struct volume *in, const int axis[3], const int flip[3],
                     struct error *e);
/* The permutation that brings a grid to an orientation such as "RAS"; -1 if that is not one. */
int orientation_axes(int axis[3], int flip[3], const struct geometry *g, const char *orientation,
                     struct error *e);
/* The box first .. first + dims - 1, which may reach beyond the input: `fill` (a stored value, not
 * a scaled one) is put there. So this pads, too. */
int volume_crop(struct volume *out, const struct volume *in, const int64_t first[3], const int64_t dims[3],
                double fill, struct error *e);
/* Float32 copy of all channels with scaling applied. */
int volume_as_floats(struct volume *out, const struct volume *in, enum nan_policy nan, struct error *e);

/* NEAREST keeps the type, CLASSES gives uint16, the others float32. NaN is refused [N37]. */
int volume_resample(struct volume *out, const struct volume *in, const struct resample_axis axis[3],
                    enum resample_kind kind, struct pool *pool, struct error *e);
/* The same of a volume that is no more needed, whose values are finite: spares memory by freeing
 * its voxels on the way where it can. */
int volume_resample_last(struct volume *out, struct volume *in, const struct resample_axis axis[3],
                         enum resample_kind kind, struct pool *pool, struct error *e);

#endif
