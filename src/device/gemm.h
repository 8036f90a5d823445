/* gemm.h - the two small matrix products every convolution is made of, one table per instruction set.
 *
 * The operand A is a block of cache-resident rows; a segment is a shift of it. For a 3x3x3 convolution
 * over a block with a one-voxel border the voxels x-1, x, x+1 of a row lie side by side, so the kernel
 * is 9 segments (dz, dy), each 3*c_in long:
 *
 *     forward    C[m][j]         =  sum_s sum_k A[m*lda + offset[s] + k] * B[s][k][j]
 *     weights    D[s][k][j]    (+)= sum_m       A[m*lda + offset[s] + k] * Y[m*ldy + j]
 *
 * A and Y are float or bf16 (uint16_t holding the upper half of a float); C and D are float. Rows of A
 * may be read up to GEMM_SLACK elements past the last segment (values there must be finite): the caller
 * leaves that much room after the block, zeroed.
 */
#ifndef FALX_GEMM_H
#define FALX_GEMM_H

#include "base/base.h"

enum { GEMM_MAX_SEGMENTS = 32, GEMM_SLACK = 128, GEMM_PART = 32 };

struct gemm_shape {
    int n_segments;
    int k;                   /* elements of a segment, the same for all */
    int n;                   /* columns of B, C, D, Y */
    int pitch;               /* forward: positions from one line of the grid to the next, 0 if
                                      unknown. The order of the work may follow it, no bit does. */
    struct gemm_lines {      /* where not all positions count, for a table that has by_lines: */
        int line;            /* those of a line that do, from its first on; 0: all of all lines */
        int of_plane, plane; /* lines of a plane that do; lines from plane to plane */
        int first;           /* position 0 begins this line of a plane */
    } lines;
};

/* B as a matrix that lies in memory by columns, in blocks of rows, each before the last one:
 *
 *     B[r][j] = b[j*ld + r % block - r / block * stride]
 *
 * So a block >= all rows is a plain transposition; and where weights are (tap, c_in, c_out), the gradient
 * of a kernel's input, whose rows are (mirrored tap, c_out), has b at the last tap, block = ld = c_out,
 * stride = c_in * c_out. */
struct gemm_turned {
    const float *b;
    int64_t ld, block, stride;
    int64_t rows; /* those from here on do not exist and are zero; 0: all exist */
};

/* A part of B for packing by itself: rows [row, end) of columns [col, col_end). Where it is not all of B, the
 * segments' k, the rows and the columns it begins and ends at are multiples of GEMM_PART. */
struct gemm_part {
    int64_t row, end;
    int col, col_end;
};

/* What weights does to D, which may hold anything before it is overwritten. */
enum gemm_put {
    GEMM_OVER,
    GEMM_ADD,
    GEMM_FAR /* overwrites it, past the caches if that is faster: D is not looked at before long */
};

struct gemm_ops {
    const char *name;  /* "avx512 f32", "amx bf16", "base f32" */
    int element_bytes; /* of A, B (packed) and Y: 4 or 2 */
    int by_lines;      /* not 0: where gemm_shape has lines of a multiple of so many positions,
                                      forward leaves C of what does not count as it is (or makes it), and
                                      weights may pass it over: Y is zero there */

    /* Size of B once packed, bytes, and the packing from float, to an address aligned to 64. Row r = s*k + k
     * of B is at b + r*ldb; rows from `rows` on do not exist and are zero. pack_turned gives the same bytes
     * for the same B. Both make the bytes of one part, so that a thread packs what it has just read; `part`
     * NULL: of all. */
    size_t (*pack_bytes)(const struct gemm_shape *s);
    void (*pack)(void *packed, const float *b, int64_t ldb, int64_t rows, const struct gemm_shape *s,
                 const struct gemm_part *part);
    void (*pack_turned)(void *packed, const struct gemm_turned *t, const struct gemm_shape *s,
                        const struct gemm_part *part);

    /* C rows m in [0, m_count), all n columns (ldc >= n). Overwrites C. */
    void (*forward)(float *c, int64_t ldc, const void *a, int64_t lda, const int64_t *offset,
                    const void *packed, const struct gemm_shape *s, int64_t m_count);

    /* Row r = s*k + k of D is at d + r*ldd. Needs scratch of weights_scratch() bytes, any contents; fewer
     * rows or columns need no more. A is transposed once a call, so the more columns the better. */
    size_t (*weights_scratch)(const struct gemm_shape *s, int64_t lda, int64_t m_count, int64_t reach);
    void (*weights)(float *d, int64_t ldd, enum gemm_put put, const void *a, int64_t lda,
                    const int64_t *offset, const void *y, int64_t ldy, const struct gemm_shape *s,
                    int64_t m_count, int64_t reach, void *scratch);

    /* Multiplies registers, nothing else, and returns how many operations that were: what the products
     * above are measured against. */
    int64_t (*peak)(int64_t rounds);
};
/* reach: elements of A from its start to the end of what any segment of any row may touch. */

#endif
