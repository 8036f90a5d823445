/* sheet_int.h - between sheet.c (slices of one mask) and columns.c (one slice of many masks). */
#ifndef FALX_SHEET_INT_H
#define FALX_SHEET_INT_H

#include "score/picture.h"

struct view { /* one plane of the body */
    const char *name;
    int across, down, through;  /* voxel axes */
    int flip_across, flip_down; /* 1: the index falls to the right, or downwards */
};

struct scene {
    const struct sheet *sheet;
    struct view view[3];
    int64_t lo[3], hi[3]; /* box of the masks, or of the whole volume */
    double spacing_mm[3];
    double pixels_per_mm;
    int pane;            /* pixels a side at most */
    double black, white; /* values of the scan shown as such */
    double hottest;      /* largest value of the map */
    int n_slices;
    int pane_height[3]; /* per view */
};

struct pane {
    int x, y, width, height; /* in the picture */
    int64_t slice;
    double centre[2]; /* voxel coordinates in the middle, across and down */
};

/* Fills views, box, scale and greys for the sheet's masks; panes are at most `pane` pixels a side. */
int sheet_scene(struct scene *out, const struct sheet *sheet, int pane, struct error *e);
/* A pane of row `v` at (x, y) showing one slice, with its caption; or, without one, NULL. */
void sheet_pane(struct picture *out, const struct scene *s, const struct view *v, int x, int y, int64_t slice,
                const char *caption);
/* The colours of a comparison, right-aligned at `right` in the head; returns what is left. */
int sheet_keys(struct picture *out, int right, const struct sheet *s);
void sheet_clear(struct picture *out); /* the colour between panes */
extern const uint8_t sheet_ink[3], sheet_faint[3];

#endif
