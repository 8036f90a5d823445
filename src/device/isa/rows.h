/* rows.h - the movers of the convolutions: rows of tensors through conv.h's formulas into blocks that a
 * product can read, and blocks of results back into tensors. One table per level of the processor.
 *
 * Every mover works on `rows` runs of `chunk` elements that lie a stride apart on either side:
 *
 *     from   |chunk|......|chunk|......|chunk|        rows = 3
 *     to     |chunk|..|chunk|..|chunk|
 *
 * Tables (scale, shift, bias ...) run along the chunk and are the same for every row; they must be
 * readable up to the next multiple of 16 elements, which is how wide loops are at most. A caller whose rows
 * are short and lie side by side joins them and repeats the table (row_period()).
 *
 * Types are VALUE_F32 or VALUE_BF16; rounding to bf16 is to nearest even, NaN stays NaN.
 */
#ifndef FALX_ROWS_H
#define FALX_ROWS_H

#include "device/device.h"

enum {
    ROW_LANES = 16, /* of the longest vectors */
    ROW_WIDE = 32   /* two of them: a whole line of bf16, which loops take at once where they can */
};

/* Elements after which a table of c channels may be cut without a rest: the least common multiple of c
 * and 32. */
static inline int row_period(int c)
{
    int twos = c & -c;
    return twos >= ROW_WIDE ? c : c / twos * ROW_WIDE;
}

/* One source of a value: max(scale*y + shift, floor). */
struct row_source {
    const void *y;
    enum value_type type;
    const float *scale, *shift;
    float floor; /* 0 for relu, else -infinity */
};

/* A gradient: p [scale*y + shift > floor] g + q y + r; y.y == NULL: g alone. */
struct row_grad {
    const void *g;
    enum value_type type;
    struct row_source y;
    const float *p, *q, *r;
};

/* Batch norm's backward sums over a gradient g as it is stored (norm.h): M = [scale*y + shift > floor]. */
struct row_norm {
    const void *y; /* as the tensor lies, and of its type */
    const float *scale, *shift, *mean;
    float floor;
    double *sum, *product; /* += M g and M g (y - mean) */
};

/* What happens to results on their way into a tensor. */
struct row_store {
    const float *bias;           /* NULL: none */
    int accumulate;              /* 1: added to what is there */
    int stream;                  /* 1: past the caches, if that can be; settle() before others look */
    const float *shift;          /* moments wanted: any number near the mean; NULL: not wanted */
    double *sum, *square;        /* += (v - shift) and its square, v as stored */
    const struct row_norm *norm; /* NULL: not wanted; not beside moments */
};

struct row_ops {
    /* to = sum over 1 or 2 sources. Strides in elements. */
    void (*fill)(void *to, enum value_type type, int64_t to_stride, const struct row_source *from, int count,
                 int64_t from_stride, int64_t rows, int chunk);
    void (*grad)(void *to, enum value_type type, int64_t to_stride, const struct row_grad *from,
                 int64_t from_stride, int64_t rows, int chunk);
    void (*store)(void *to, enum value_type type, int64_t to_stride, const float *from, int64_t from_stride,
                  int64_t rows, int chunk, const struct row_store *how);
    /* What was streamed is in memory from here on. */
    void (*settle)(void);

    /* sums[j] += element j of every row. */
    void (*sums)(double *sums, const void *from, enum value_type type, int64_t stride, int64_t rows,
                 int chunk);

    /* Neighbours side by side: row i of `to` gets the n chunks, 3 or 9, that begin at i*step + offset[.] of
     * `from`, in bytes. What is left of the row is zero (or the first bytes of what follows the last
     * chunk in `from`); with chunks of more than 64 bytes it is nothing to be read. May read and write up
     * to 64 bytes past a chunk: rows are made in order. */
    void (*expand)(char *to, size_t to_stride, const char *from, size_t step, const size_t *offset, int n,
                   size_t chunk, int64_t rows);

    /* to[i] = sum over p < parts, in order, of from[p*part + i], i < n; with `add` on top of what is
     * there. */
    void (*add_parts)(float *to, const float *from, int64_t part, int parts, int64_t n, int add);
};

#endif
