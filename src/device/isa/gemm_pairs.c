/* gemm_pairs.c - the two products of gemm.h in bf16 with VDPBF16PS, which multiplies two pairs of bf16
 * and adds both products to a float: twice the operations of a float's instruction. The walk is that
 * of gemm_walk.h, a word being a pair of neighbours in the direction of the sum:
 *
 *     forward   elements k, k+1 of A lie side by side already; of B, see gemm_bf16.h
 *     weights   voxels m, m+1: rows of Y are joined two by two, and every element of A with the one a row
 *               later, for a tap may begin at any voxel
 *
 * Where a segment or a line has an odd number, the last pair's second half is multiplied by zero.
 */
#include "device/isa/gemm_bf16.h"

#if defined(__AVX512BF16__) && !defined(ISA_LEVEL_amx)
#define WALK_PAIRS
#include "device/isa/gemm_walk.h"

static void forward(float *c, int64_t ldc, const void *a, int64_t lda, const int64_t *offset,
                    const void *packed, const struct gemm_shape *s, int64_t m_count)
{
    forward_walk(c, ldc, a, lda, offset, packed, (int64_t)steps_of(s) * TILE_ROWS, s, m_count);
}

/* ---- words of the weights product ----------------------------------------------------------- */

static inline __m256i load_columns(const uint16_t *from, int valid)
{
    return _mm256_maskz_loadu_epi16(vec_first(valid), from);
}

static float *join_line(float *to, int V, const void *from, int64_t ldy, int64_t line, int valid)
{
    const uint16_t *y = from;
    for (int64_t i = 0; i < line; i += 2, y += 2 * ldy)
        for (int v = 0; v < V; v++, to += LANES) {
            __m256i first = load_columns(y + v * LANES, valid - v * LANES), second = _mm256_setzero_si256();
            if (i + 1 < line)
                second = load_columns(y + ldy + v * LANES, valid - v * LANES);
            _mm512_storeu_si512(to, interleave(first, second));
        }
    return to;
}

/* Elements [begin, end) of A, each with the one a row later, which is zero where A ends. */
static void join_elements(float *to, const uint16_t *a, int64_t begin, int64_t end, int64_t lda,
                          int64_t reach)
{
    for (int64_t i = begin; i < end; i += LANES) {
        int64_t left = reach - i, later = left - lda;
        __m256i first = load_columns(a + i, left < LANES ? (int)left : LANES);
        __m256i second = _mm256_setzero_si256();
        if (later > 0)
            second = load_columns(a + i + lda, later < LANES ? (int)later : LANES);
        _mm512_storeu_si512(to + i, interleave(first, second));
    }
}

/* Where every tap begins with an even voxel, only words of these are looked at. */
static void join_voxels(float *to, const uint16_t *a, int64_t lda, int64_t reach, const int64_t *offset,
                        const struct gemm_shape *s, int64_t m_count)
{
    if (s->n_segments > 1 || offset[0] + s->k > lda || s->lines.line > 0) {
        join_elements(to, a, 0, reach, lda, reach);
        return;
    }
    for (int64_t m = 0; m < m_count; m += 2)
        join_elements(to, a, m * lda + offset[0], m * lda + offset[0] + s->k, lda, reach);
}

static size_t weights_scratch(const struct gemm_shape *s, int64_t lda, int64_t m_count, int64_t reach)
{
    (void)lda;
    return (size_t)(panel_floats(s, m_count) + reach + LANES) * sizeof(float);
}

static void weights(float *d, int64_t ldd, enum gemm_put put, const void *a, int64_t lda,
                    const int64_t *offset, const void *y, int64_t ldy, const struct gemm_shape *s,
                    int64_t m_count, int64_t reach, void *scratch)
{
    struct gradient to = {d, ldd, put == GEMM_ADD};
    float *panel = scratch, *words = panel + panel_floats(s, m_count);
    join_voxels(words, a, lda, reach, offset, s, m_count);
    weights_walk(&to, words, lda, offset, y, ldy, s, m_count, panel, join_line);
}

extern const struct gemm_ops ISA(gemm_pairs_ops);
const struct gemm_ops ISA(gemm_pairs_ops) = {
    .name = "avx512 bf16",
    .element_bytes = ELEMENT,
    .by_lines = 1,
    .pack_bytes = ISA(gemm_bf16_pack_bytes),
    .pack = ISA(gemm_bf16_pack),
    .pack_turned = ISA(gemm_bf16_pack_turned),
    .forward = forward,
    .weights_scratch = weights_scratch,
    .weights = weights,
    .peak = peak,
};
#endif
