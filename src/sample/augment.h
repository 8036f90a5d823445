/* augment.h - from one case in memory to one training patch.
 *
 * The work is split in two so that every patch can be explained and made again:
 *
 *     augment_draw    all random choices, from options, case size and (seed, step, slot)
 *     augment_apply   the patch, from the case and those choices
 *
 * Order of the effects:
 *
 *     RotFlip, mirror -> pad -> crop          a signed permutation of the axes: rows are copied
 *       or, if drawn, affine and elastic      one interpolation straight from the case, never two
 *     noise, blur, brightness, shift, contrast, low resolution, gamma     on the patch, image only
 *
 * "Turned frame" below is the case after RotFlip and mirrors, before padding. RotFlip, RandomCrop
 * and CenterCrop are those of the published semi-supervised LA and Pancreas code, quirks included;
 * the rest is ours and off by default. Image, label and mask always move together: the image is
 * interpolated linearly, label and mask take the nearest voxel, and all are 0 outside the case.
 *
 * Arrays are (d, h, w, c) = (i, j, k, channel) with the channel fastest and k next.
 */
#ifndef FALX_AUGMENT_H
#define FALX_AUGMENT_H

#include "base/base.h"
#include "sample/case_store.h"

enum augment_crop {
    AUGMENT_CROP_RANDOM, /* as published: one short axis pads all, and the last place never occurs */
    AUGMENT_CROP_CENTER, /* as published */
    AUGMENT_CROP_WITHIN  /* any place inside the case; a short axis is padded alone and centred */
};

/* With probability p a value uniform in [lo, hi]; p = 0 switches the effect off. */
struct augment_range {
    float p, lo, hi;
};

struct augment_options {
    int rotflip; /* 1: RandomRotFlip */
    enum augment_crop crop;
    float focus;                     /* probability that the patch is cut around one of the case's points */
    float mirror_p[3];               /* of each axis on its own */
    struct augment_range scale;      /* 0.8 shows the patch's content 1/0.8 times as large */
    int wander;                      /* 1: any part of it, where that is not all; else its middle */
    struct augment_range rotate;     /* degrees, each axis on its own, in millimetre space */
    struct augment_range elastic;    /* standard deviation of the control points, voxels */
    float elastic_spacing;           /* voxels between control points */
    struct augment_range noise;      /* standard deviation of added Gaussian noise */
    struct augment_range blur;       /* standard deviation of the Gaussian, voxels */
    struct augment_range brightness; /* factor on all values */
    struct augment_range shift;      /* added to all values */
    struct augment_range contrast;   /* factor on the distance from the patch's mean */
    struct augment_range zoom;       /* low resolution: fraction of the voxels kept along an axis */
    struct augment_range gamma;      /* exponent, on the patch's own range; mean and sd are kept */
};

extern const struct augment_options augment_paper; /* RotFlip and RandomCrop, as published for LA */
extern const struct augment_options augment_full;  /* everything of ours on; no RotFlip */

/* 0, or -1 if a number is outside what the effects can do (ranges in augment.c). */
int augment_check(const struct augment_options *o, struct error *e);

/* What all random numbers of one patch are a function of. */
struct augment_key {
    uint64_t seed, step;
    uint32_t slot;         /* place in the batch */
    uint16_t view;         /* slots back to the one whose turn, mirrors and crop it shares; 0: its own */
    uint8_t piece, pieces; /* AUGMENT_CROP_WITHIN: places along the last axis fall into so many equal
                          * parts, and this crop is of part `piece`; 0, 0: of any */
};

/* Every random choice of one patch. Neutral values mean "not applied". */
struct augment_draw {
    struct augment_key key;         /* of the voxel noise and of the control points */
    int turns, flip;                /* RotFlip: quarter turns 0..3, then flipped axis 0 or 1; -1, -1 = off */
    int mirror[3];                  /* 1: turned frame reversed along this axis */
    int pad[3];                     /* zeros on each side of the turned frame */
    int start[3];                   /* first voxel of the patch in the padded frame */
    int warp;                       /* 1: matrix or elastic in force, 0: rows are copied */
    float matrix[3][3];             /* patch offset from its centre -> offset in the turned frame, voxels */
    float elastic_sd;               /* voxels, 0 = off */
    float noise_sd, blur_sd, shift; /* 0 = off */
    float brightness, contrast, zoom, gamma; /* 1 = off */
    int invert;                              /* gamma acts on the negative image */
};

/* Fills *out for the patch of this key; of the case only shape, spacing and points are looked at. */
void augment_draw(struct augment_draw *out, const struct augment_options *o, const struct stored_case *c,
                  const int patch[3], const struct augment_key *key);

/* The axes along which the patch is reversed; quarter turns reverse none. */
void augment_reversed(int reversed[3], const struct augment_draw *draw);

/* Working memory of one thread, enough for every patch of this shape under these options. */
struct augment_scratch;
int augment_scratch_new(struct augment_scratch **out, const struct augment_options *o, int n_options,
                        const int patch[3], int channels, struct error *e);
void augment_scratch_free(struct augment_scratch *s);

/* Where a patch goes; each of the three may be NULL. */
struct patch {
    int dims[3]; /* d, h, w */
    int channels;
    float *image;   /* (d, h, w, c) */
    label_t *label; /* (d, h, w); 0 if the case has none */
    uint8_t *mask;  /* (d, h, w); 0 outside the case and if the case has none */
};

/* Writes every voxel of *out. Allocates nothing, cannot fail. */
void augment_apply(const struct patch *out, const struct augment_options *o, const struct augment_draw *draw,
                   const struct stored_case *c, struct augment_scratch *s);

/* The same patch on a device that holds the cases (device/kernels_patch.h). Effects that look at a whole
 * patch or bend it are not for it: options with one of them are not local. Fills all but pointers and c. */
struct k_patch;
int augment_is_local(const struct augment_options *o);
void augment_kernel(struct k_patch *out, const struct augment_draw *draw, const struct stored_case *c,
                    const int patch[3]);

/* The padding rule of RandomCrop and CenterCrop for one axis, zeros on each side. Whether any
 * padding happens is decided over all axes: only if one axis of the case is <= the patch. */
int augment_pad(int extent, int out);

#endif
