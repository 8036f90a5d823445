/* conv_int.h - what conv_plan.c (shapes, memory), conv_pack.c (weights), conv_fill.c (operands), conv_store.c
 * (results) and conv_cpu.c (running) share.
 *
 * Every direction of every convolution is a product over positions m of a grid (gemm.h). What a row of
 * the left operand A holds is its form:
 *
 *     FLAT     a voxel                                        1 segment of c           CONV_1, UP
 *     EIGHT    the 2x2x2 fine voxels of a coarse one          1 segment of 8c          DOWN, UP's gradient
 *     PADDED   a voxel, lines with a zero border              9 segments (dz,dy) of 3c
 *     NINE     the 3x3 neighbours in y and x                  3 segments (dz) of 9c
 *     ALL      the 27 neighbours                              1 segment of 27c, filled up to a multiple of 32
 *
 * The last three are CONV_3 (and its gradient). PADDED costs nothing to make but bf16 multiplies border
 * positions too, so short lines take NINE. The first layer, with a channel or two, takes ALL.
 *
 * PADDED has little border: the zero behind a line is the one before the next, and where a block has all
 * lines of its planes, the line of zeros below a plane is the one above the next:
 *
 *     0 0 0 0 | 0 a b c | 0 d e f | 0 0 0 0 | 0 g h i | ...         lines of 3 voxels, planes of 2 lines
 *
 * Segments and their elements follow the taps of the kernel: row (tap, channel) of B and of D is row
 * (tap, channel) of the weight.
 *
 * Planes of all items follow each other with one empty plane between items, so that small volumes of a
 * batch make one long run:
 *
 *     item 0: z = 0 .. d-1 | empty | item 1: z = 0 .. d-1 | empty | ...          plane = item*(d+1) + z
 *
 * A block is a range of planes and of lines (y), with all of x.
 */
#ifndef FALX_CONV_INT_H
#define FALX_CONV_INT_H

#include "device/conv.h"
#include "device/cpu.h"
#include "device/isa/rows.h"

enum form { FORM_FLAT, FORM_EIGHT, FORM_PADDED, FORM_NINE, FORM_ALL };

/* The left operand of a product. */
struct side {
    enum form form;
    int c;             /* channels of the tensor it is read from */
    int64_t ld;        /* elements from position to position */
    int n_segments, k; /* struct gemm_shape, but for the columns */
};

/* Columns of a product in groups that can be handed to different threads. */
struct columns {
    int n, per; /* all; of a group (the last may have less) */
    int groups;
};

/* forward, and the gradient of the input. */
struct product {
    struct side a;
    int scatter;  /* 1: columns are (2x2x2 fine voxels, channels) */
    int mirrored; /* 1: rows are (mirrored tap, major), else (tap, minor) */
    int c;        /* channels of the result */
    struct columns cols;
    char *packed;
    size_t packed_each; /* bytes of a group of columns */
};

struct block {
    int plane, planes, row, rows;
    int whole; /* 1: all lines of its planes */
    int64_t x, len;
};

/* How a pass is cut into blocks: by shapes alone. */
struct cut {
    int n;            /* items */
    int planes, rows; /* in all */
    int64_t len;
    int n_planes, n_rows, n_len; /* pieces of each */
    int blocks;
};

/* Where things are in a thread's scratch memory, bytes. */
struct layout {
    size_t a, data, y, stage, c, gemm, d, sums, total;
};

struct conv {
    struct cpu *cpu;
    struct conv_shape s;
    const struct gemm_ops *gemm;
    const struct row_ops *rows;
    enum value_type type; /* of operands: what gemm multiplies */
    size_t element;       /* its bytes */

    int d, h; /* of the grid: CONV_1 is one line an item, DOWN and UP the coarse side */
    int64_t w;
    int taps;         /* 27, 8, 1 */
    int major, minor; /* weight is (taps, minor, major) */

    struct product forward, data;
    struct side weights;         /* dweight = A^T Y: A; EIGHT always on the left */
    int weights_of_grad;         /* CONV_UP: A is the gradient, Y the input */
    struct columns weights_cols; /* = columns of Y */
    int direct;                  /* 1: D has the rows of dweight, else some more: ALL */

    int64_t chunk;      /* positions of one forward product */
    size_t part_floats; /* of a partial sum of dweight */
    struct layout at;
    float *tables;     /* scale, shift ... of the call at hand, rows filled up */
    double *moments;   /* (block, column group, 2, c_out) */
    double *bias_sums; /* (part, c_out) */
    double *norm_sums; /* (block, column group of dx, item, 2, c_in) */
};

/* Positions of a block for a form: line r of plane p begins at p*plane + r*row. */
struct grid {
    int64_t row, plane, m;
};
struct grid conv_grid(const struct side *a, const struct block *b);
/* Positions that A occupies: with borders. */
int64_t conv_positions(const struct side *a, const struct block *b);
void conv_offsets(int64_t *offset, const struct side *a, const struct block *b);
/* The positions that are no border, for a product that can leave out the others; else all. */
struct gemm_lines conv_lines(const struct conv *v, const struct side *a, const struct block *b);

struct cut conv_cut(const struct conv *v, int n, int backward);
struct block conv_block(const struct cut *c, int i);
int conv_parts(const struct conv *v, const struct cut *c);

static inline int columns_of(const struct columns *c, int group)
{
    return c->n - group * c->per < c->per ? c->n - group * c->per : c->per;
}

/* ---- conv_fill.c ----------------------------------------------------------------------------- */

/* A tensor seen through one of conv.h's formulas, with its tables filled up and repeated. */
struct operand {
    int is_grad;
    int c, period; /* channels; elements after which tables repeat */
    int64_t table; /* floats from item to item */
    int count;
    struct row_source from[2];
    struct row_grad grad;
};

/* Each takes the memory of its tables from *next and moves that on. */
struct operand conv_operand(float **next, const struct conv_in *x, int n);
struct operand conv_gradient(float **next, const struct conv_grad *g, int n);
/* Floats of a table of c channels: repeated so that rows, or a pair of voxels, may be joined. */
static inline int table_room(int c)
{
    return 2 * row_period(c) + ROW_LANES;
}

/* (n, c) numbers, or one and the same where there are none. */
const float *conv_table(float **next, const float *from, float otherwise, int n, int c);

struct place {
    int item, z, y;
    int64_t voxel; /* of the grid, at the block's first x */
};
/* Line r of plane p, counted from the block's first; both may lie outside. 0: there is nothing there. */
int conv_locate(struct place *at, const struct conv *v, const struct block *b, int p, int r);
/* Voxel of the fine grid at the block's first x of this line, for tap t. */
int64_t conv_fine_voxel(const struct conv *v, const struct place *at, const struct block *b, int t);

/* Fills a block of A. `stage` is for lines that are then expanded; `before` is the block that is there now,
 * of the same operand, or NULL: if this one follows it, planes that both have are kept. */
void conv_fill(const struct conv *v, char *to, char *stage, const struct side *a, const struct operand *o,
               const struct block *b, const struct block *before);
/* Where line r of plane p begins in a block that A was filled with: its voxels lie a->ld apart. */
const char *conv_line(const struct conv *v, const char *block, const struct side *a, const struct block *b,
                      int p, int r);
/* 1 if that, from line 0 on, is Y: the block of dx has the grid of v->weights and zeros between its lines. */
int conv_is_y(const struct conv *v, const struct block *b);
/* Y: plain rows on the grid of v->weights, zero between the lines; taken from `filled`, a block of the
 * same operand in form `by`, if that is not NULL. */
void conv_fill_y(const struct conv *v, char *to, const struct operand *o, const struct block *b,
                 const char *filled, const struct side *by);

/* ---- conv_store.c ---------------------------------------------------------------------------- */

/* A tensor that results go to. */
struct target {
    const struct tensor *t;
    const float *bias; /* table, or NULL */
    int accumulate, stream;
    int moments;       /* 1: wanted */
    const float *mean; /* table: batch norm's sums are wanted, over source y; or NULL */
    struct row_source y;
};

/* Moments of one unit, or batch norm's sums (item, 2), in a thread's scratch: by place in the table of
 * channels. */
struct sums {
    double *sum, *square;
    float *shift;
    int started;
};

/* Results of a product, one group of columns of a block. */
struct results {
    const struct conv *v;
    const struct product *p;
    const struct target *to;
    struct sums *sums;
    const struct block *b;
    const float *c; /* positions first .. end of the grid */
    int64_t first, end;
    int column, n; /* of the group */
};

struct target conv_target(const struct tensor *t); /* plain: written, nothing else wanted */
struct sums conv_sums_start(const struct conv *v, char *scratch, const struct product *p);
void conv_store(const struct results *s);

/* ---- conv_plan.c ----------------------------------------------------------------------------- */

/* Hands out units 0 .. n-1 to the threads, each with a scratch memory of its own, `chunk` at a time; with
 * `runs` many chunks at first and fewer towards the end, for who can go on where the last unit ended. */
typedef void conv_units(void *arg, char *scratch, int64_t first, int64_t end);
void conv_share(struct cpu *cpu, conv_units *run, void *arg, int64_t n, int64_t chunk, int runs);

#endif
