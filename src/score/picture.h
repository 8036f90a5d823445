/* picture.h - slices of a scan with masks drawn over them, as PNG files.
 *
 * A sheet shows slices through the object in the three planes of the body, one plane a row, all at
 * the same scale and with the true proportions of the voxels:
 *
 *     axial      seen from the feet: patient's right on the left, front up
 *     coronal    seen from the front: patient's right on the left, head up
 *     sagittal   seen from the patient's left: front on the left, head up
 *
 * Three ways of colouring: a comparison (agreed red, missed green, too much blue, right place but
 * wrong class yellow), one colour a class, or the values of a map with the masks as outlines.
 */
#ifndef FALX_PICTURE_H
#define FALX_PICTURE_H

#include "base/pool.h"
#include "volume/volume.h"

struct picture {
    int width, height;
    uint8_t *rgb; /* height rows of width * 3 bytes, top first */
};
int picture_new(struct picture *out, int width, int height, struct error *e); /* black */
void picture_free(struct picture *p);
/* 8-bit PNG, written whole or not at all. Equal pictures give equal bytes. */
int picture_write(const struct picture *p, const char *path, struct error *e);

struct sheet {
    int64_t dims[3];
    const struct geometry *geometry;
    const float *image;        /* NULL: masks on a plain ground */
    const label_t *truth;      /* the one mask, or what the prediction is compared with */
    const label_t *prediction; /* NULL: `truth` is drawn with one colour a class */
    const float *heat;         /* NULL, or a map of values >= 0 over the scan; masks are outlined */
    const char *heat_name;     /* beside its scale */
    const char *title;         /* one line above, or NULL; letters, digits and some marks */
    int n_slices;              /* a plane; 0 = 5 */
};
/* Draws the sheet into a new picture. If no mask has a voxel the slices go through the whole
 * volume. */
int picture_draw_sheet(struct picture *out, const struct sheet *s, struct error *e);

/* The same slices with the masks of several methods side by side, one column each after that of the truth;
 * one row a plane, through the slice with most of the truth. */
struct columns {
    int64_t dims[3];
    const struct geometry *geometry;
    const float *image; /* NULL: masks on a plain ground */
    const label_t *truth;
    const char *title;
    int n;                       /* methods, 1 or more */
    const char *const *names;    /* (n) above the columns */
    const char *const *notes;    /* (n) second lines, such as the score; or NULL */
    const label_t *const *masks; /* (n) */
};
int picture_draw_columns(struct picture *out, const struct columns *c, struct error *e);

#endif
