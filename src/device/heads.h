/* heads.h - the heads of a network at once: 1x1x1 convolutions that read one tensor and are read by none.
 *
 * One by one they would read it again and again, which costs more than their few products:
 *
 *     forward     x once -> y of every head
 *     backward    x and dy of every head once -> dx, dweight, dbias
 *
 * x is an output of the network itself, float32 of 16 channels without a table; heads read max(x, 0), or x.
 * dx is the gradient at x, past the max, rounded to bf16. dweight and dbias are set, or added to.
 *
 * Only the usual numbers are made at once: one head of 16 channels and one to four of 2.
 */
#ifndef FALX_HEADS_H
#define FALX_HEADS_H

#include <stdint.h>

enum { HEADS_IN = 16, HEADS_WIDE = 16, HEADS_NARROW = 2, HEADS_NARROWS = 4, HEADS_MOST = 1 + HEADS_NARROWS };

struct head {
    int c;                      /* channels */
    const float *weight, *bias; /* (16, c), (c) */
    float *y;                   /* (voxels, c) */
    const float *dy;            /* backward */
    float *dweight, *dbias;
    int add; /* 1: those two are added to */
};

struct heads {
    int n, relu;
    int64_t voxels; /* of all items */
    const float *x; /* (voxels, 16) */
    struct head head[HEADS_MOST];
    void *dx; /* (voxels, 16) bf16; backward */
};

static inline int heads_are_usual(const struct heads *h)
{
    int wide = 0, narrow = 0;
    for (int i = 0; i < h->n; i++) {
        wide += h->head[i].c == HEADS_WIDE;
        narrow += h->head[i].c == HEADS_NARROW;
    }
    return wide == 1 && narrow >= 1 && narrow <= HEADS_NARROWS && wide + narrow == h->n &&
           h->voxels < INT32_MAX / 64;
}

#endif
