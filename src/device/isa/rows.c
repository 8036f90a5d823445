/* rows.c - the movers of rows.h, in GCC's vector types. See rows.h.
 *
 * The loop over 16 columns is outside and the loop over rows inside, so that tables stay in registers.
 * Types are arguments of inlined bodies: the switch in front makes one loop for each combination.
 */
#include "device/isa/rows.h"

#include <string.h>

#include "device/isa/isa.h"
#ifdef __AVX512F__
#include <immintrin.h>
#endif

#define INLINE static inline __attribute__((always_inline))

enum { LANES = ROW_LANES };
typedef float vec __attribute__((vector_size(64)));
typedef int32_t ivec __attribute__((vector_size(64)));
typedef uint32_t uvec __attribute__((vector_size(64)));
typedef uint16_t half __attribute__((vector_size(32)));

/* ---- one vector ---------------------------------------------------------------------------------- */

INLINE vec widen(half h)
{
#ifdef __AVX512F__
    return (vec)_mm512_slli_epi32(_mm512_cvtepu16_epi32((__m256i)h), 16);
#else
    return (vec)(__builtin_convertvector(h, uvec) << 16);
#endif
}

INLINE half narrow(vec v)
{
#ifdef __AVX512BF16__
    return (half)_mm512_cvtneps_pbh((__m512)v);
#else
    uvec u = (uvec)v, magnitude = u & 0x7fffffffu;
    uvec nan = (uvec)(magnitude > 0x7f800000u);
    uvec rounded = u + 0x7fffu + ((u >> 16) & 1u);
    return __builtin_convertvector(((rounded & ~nan) | ((u | 0x400000u) & nan)) >> 16, half);
#endif
}

INLINE vec spread(float a)
{
    return (vec){a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a};
}

/* The larger one; b where one is NaN. */
INLINE vec largest(vec a, vec b)
{
#ifdef __AVX512F__
    return (vec)_mm512_max_ps((__m512)a, (__m512)b);
#else
    ivec first = a > b;
    return (vec)(((ivec)a & first) | ((ivec)b & ~first));
#endif
}

#ifdef __AVX512F__
#define FIRST(n) ((__mmask16)((1u << (n)) - 1))
#endif

/* n <= 16 elements from element i on, zero behind; a full load where n is 16. */
INLINE vec load(const void *from, int64_t i, enum value_type type, int n)
{
    const float *f = (const float *)from + i;
    const uint16_t *h = (const uint16_t *)from + i;
    vec v = {0};
    half u = {0};
    if (n == LANES && type == VALUE_F32)
        memcpy(&v, f, sizeof v);
    else if (n == LANES)
        memcpy(&u, h, sizeof u);
#ifdef __AVX512F__
    else if (type == VALUE_F32)
        v = (vec)_mm512_maskz_loadu_ps(FIRST(n), f);
    else
        u = (half)_mm256_maskz_loadu_epi16(FIRST(n), h);
#else
    else if (type == VALUE_F32)
        memcpy(&v, f, (size_t)n * sizeof *f);
    else
        memcpy(&u, h, (size_t)n * sizeof *h);
#endif
    return type == VALUE_F32 ? v : widen(u);
}

/* Returns what is stored, as float. */
INLINE vec store(void *to, int64_t i, enum value_type type, int n, vec v)
{
    float *f = (float *)to + i;
    uint16_t *h = (uint16_t *)to + i;
    half u = {0};
    if (type == VALUE_BF16)
        u = narrow(v);
    if (n == LANES && type == VALUE_F32)
        memcpy(f, &v, sizeof v);
    else if (n == LANES)
        memcpy(h, &u, sizeof u);
#ifdef __AVX512F__
    else if (type == VALUE_F32)
        _mm512_mask_storeu_ps(f, FIRST(n), (__m512)v);
    else
        _mm256_mask_storeu_epi16(h, FIRST(n), (__m256i)u);
#else
    else if (type == VALUE_F32)
        memcpy(f, &v, (size_t)n * sizeof *f);
    else
        memcpy(h, &u, (size_t)n * sizeof *h);
#endif
    return type == VALUE_F32 ? v : widen(u);
}

INLINE void ask_for(const void *from, int64_t i, enum value_type type)
{
    __builtin_prefetch(isa_ahead(from, i * (type == VALUE_F32 ? 4 : 2)));
}

INLINE void ask_to_write(void *to, int64_t i, enum value_type type)
{
    __builtin_prefetch(isa_ahead(to, i * (type == VALUE_F32 ? 4 : 2)), 1);
}

INLINE vec table(const float *t, int j)
{
    return load(t, j, VALUE_F32, LANES);
}

/* ---- fill ---------------------------------------------------------------------------------------- */

INLINE vec through(const void *y, int64_t i, enum value_type type, int n, vec scale, vec shift,
                   vec floor)
{
    ask_for(y, i, type);
    vec v = load(y, i, type, n) * scale + shift;
    return largest(floor, v);
}

INLINE void fill_columns(void *to, enum value_type type, int64_t to_stride, const struct row_source *f,
                         int count, enum value_type from_type, int64_t from_stride, int64_t rows, int j,
                         int n)
{
    vec scale0 = table(f[0].scale, j), shift0 = table(f[0].shift, j), floor0 = spread(f[0].floor);
    vec scale1 = scale0, shift1 = shift0, floor1 = floor0;
    const void *y0 = f[0].y, *y1 = NULL;
    if (count > 1) {
        y1 = f[1].y;
        scale1 = table(f[1].scale, j);
        shift1 = table(f[1].shift, j);
        floor1 = spread(f[1].floor);
    }
    for (int64_t r = 0; r < rows; r++) {
        vec v = through(y0, r * from_stride + j, from_type, n, scale0, shift0, floor0);
        if (count > 1)
            v += through(y1, r * from_stride + j, from_type, n, scale1, shift1, floor1);
        store(to, r * to_stride + j, type, n, v);
    }
}

INLINE void fill_typed(void *to, enum value_type type, int64_t to_stride, const struct row_source *f,
                       int count, enum value_type from_type, int64_t from_stride, int64_t rows,
                       int chunk)
{
    int j = 0;
    for (; j + LANES <= chunk; j += LANES)
        fill_columns(to, type, to_stride, f, count, from_type, from_stride, rows, j, LANES);
    if (j < chunk)
        fill_columns(to, type, to_stride, f, count, from_type, from_stride, rows, j, chunk - j);
}

static void fill(void *to, enum value_type type, int64_t to_stride, const struct row_source *from,
                 int count, int64_t from_stride, int64_t rows, int chunk)
{
#define FILL(t, f, c) fill_typed(to, t, to_stride, from, c, f, from_stride, rows, chunk)
    enum value_type f = from[0].type;
    CHECK(count == 1 || from[1].type == f);
    switch ((type == VALUE_BF16) * 4 + (f == VALUE_BF16) * 2 + (count > 1)) {
    case 0: FILL(VALUE_F32, VALUE_F32, 1); break;
    case 1: FILL(VALUE_F32, VALUE_F32, 2); break;
    case 2: FILL(VALUE_F32, VALUE_BF16, 1); break;
    case 3: FILL(VALUE_F32, VALUE_BF16, 2); break;
    case 4: FILL(VALUE_BF16, VALUE_F32, 1); break;
    case 5: FILL(VALUE_BF16, VALUE_F32, 2); break;
    case 6: FILL(VALUE_BF16, VALUE_BF16, 1); break;
    default: FILL(VALUE_BF16, VALUE_BF16, 2); break;
    }
}

/* ---- grad ---------------------------------------------------------------------------------------- */

INLINE void grad_columns(void *to, enum value_type type, int64_t to_stride, const struct row_grad *f,
                         enum value_type g_type, enum value_type y_type, int64_t from_stride,
                         int64_t rows, int j, int n)
{
    vec scale = table(f->y.scale, j), shift = table(f->y.shift, j), floor = spread(f->y.floor);
    vec p = table(f->p, j), q = table(f->q, j), r = table(f->r, j);
    const void *from_y = f->y.y, *from_g = f->g;
    for (int64_t k = 0; k < rows; k++) {
        ask_for(from_y, k * from_stride + j, y_type);
        ask_for(from_g, k * from_stride + j, g_type);
        vec y = load(from_y, k * from_stride + j, y_type, n);
        vec g = load(from_g, k * from_stride + j, g_type, n) * p;
        ivec on = y * scale + shift > floor;
        store(to, k * to_stride + j, type, n, (vec)((ivec)g & on) + (q * y + r));
    }
}

INLINE void grad_typed(void *to, enum value_type type, int64_t to_stride, const struct row_grad *f,
                       enum value_type g_type, enum value_type y_type, int64_t from_stride,
                       int64_t rows, int chunk)
{
    int j = 0;
    for (; j + LANES <= chunk; j += LANES)
        grad_columns(to, type, to_stride, f, g_type, y_type, from_stride, rows, j, LANES);
    if (j < chunk)
        grad_columns(to, type, to_stride, f, g_type, y_type, from_stride, rows, j, chunk - j);
}

/* g alone: fill() with a table of ones would do, but has no table at hand. */
INLINE void convert(void *to, enum value_type type, int64_t to_stride, const void *from,
                    enum value_type from_type, int64_t from_stride, int64_t rows, int chunk)
{
    for (int64_t r = 0; r < rows; r++) {
        int j = 0;
        for (; j + LANES <= chunk; j += LANES)
            store(to, r * to_stride + j, type, LANES, load(from, r * from_stride + j, from_type, LANES));
        if (j < chunk)
            store(to, r * to_stride + j, type, chunk - j,
                  load(from, r * from_stride + j, from_type, chunk - j));
    }
}

static void grad_plain(void *to, enum value_type type, int64_t to_stride, const struct row_grad *from,
                       int64_t from_stride, int64_t rows, int chunk)
{
#define CONVERT(t, f) convert(to, t, to_stride, from->g, f, from_stride, rows, chunk)
    switch ((type == VALUE_BF16) * 2 + (from->type == VALUE_BF16)) {
    case 0: CONVERT(VALUE_F32, VALUE_F32); break;
    case 1: CONVERT(VALUE_F32, VALUE_BF16); break;
    case 2: CONVERT(VALUE_BF16, VALUE_F32); break;
    default: CONVERT(VALUE_BF16, VALUE_BF16); break;
    }
}

static void grad(void *to, enum value_type type, int64_t to_stride, const struct row_grad *from,
                 int64_t from_stride, int64_t rows, int chunk)
{
#define GRAD(t, g, y) grad_typed(to, t, to_stride, from, g, y, from_stride, rows, chunk)
    if (!from->y.y) {
        grad_plain(to, type, to_stride, from, from_stride, rows, chunk);
        return;
    }
    int y = from->y.type == VALUE_BF16;
    switch ((type == VALUE_BF16) * 4 + (from->type == VALUE_BF16) * 2 + y) {
    case 0: GRAD(VALUE_F32, VALUE_F32, VALUE_F32); break;
    case 1: GRAD(VALUE_F32, VALUE_F32, VALUE_BF16); break;
    case 2: GRAD(VALUE_F32, VALUE_BF16, VALUE_F32); break;
    case 3: GRAD(VALUE_F32, VALUE_BF16, VALUE_BF16); break;
    case 4: GRAD(VALUE_BF16, VALUE_F32, VALUE_F32); break;
    case 5: GRAD(VALUE_BF16, VALUE_F32, VALUE_BF16); break;
    case 6: GRAD(VALUE_BF16, VALUE_BF16, VALUE_F32); break;
    default: GRAD(VALUE_BF16, VALUE_BF16, VALUE_BF16); break;
    }
}

/* ---- store --------------------------------------------------------------------------------------- */

INLINE void add_doubles(double *to, vec v, int n)
{
#ifdef __AVX512F__
    __m512 f = (__m512)v;
    __m512d low = _mm512_cvtps_pd(_mm512_castps512_ps256(f));
    __m512d high = _mm512_cvtps_pd(_mm512_extractf32x8_ps(f, 1));
    __mmask16 m = FIRST(n);
    low = _mm512_add_pd(low, _mm512_maskz_loadu_pd((__mmask8)m, to));
    high = _mm512_add_pd(high, _mm512_maskz_loadu_pd((__mmask8)(m >> 8), to + 8));
    _mm512_mask_storeu_pd(to, (__mmask8)m, low);
    _mm512_mask_storeu_pd(to + 8, (__mmask8)(m >> 8), high);
#else
    float f[LANES];
    memcpy(f, &v, sizeof f);
    for (int k = 0; k < n; k++)
        to[k] += (double)f[k];
#endif
}

/* Two sets of sums, for even and odd rows: additions do not wait for each other. */
INLINE void store_columns(void *to, enum value_type type, int64_t to_stride, const float *from,
                          int64_t from_stride, int64_t rows, int j, int n, const struct row_store *how,
                          int accumulate, int moments)
{
    vec bias = how->bias ? table(how->bias, j) : spread(0), shift = spread(0);
    vec sum[2] = {spread(0), spread(0)}, square[2] = {spread(0), spread(0)};
    if (moments)
        shift = table(how->shift, j);
    for (int64_t r = 0; r < rows; r++) {
        ask_to_write(to, r * to_stride + j, type);
        vec v = load(from, r * from_stride + j, VALUE_F32, n) + bias;
        if (accumulate)
            v += load(to, r * to_stride + j, type, n);
        v = store(to, r * to_stride + j, type, n, v);
        if (moments) {
            v -= shift;
            vec s = sum[1] + v, q = square[1] + v * v;
            sum[1] = sum[0], square[1] = square[0];
            sum[0] = s, square[0] = q;
        }
    }
    if (moments) {
        add_doubles(how->sum + j, sum[0] + sum[1], n);
        add_doubles(how->square + j, square[0] + square[1], n);
    }
}

INLINE void store_typed(void *to, enum value_type type, int64_t to_stride, const float *from,
                        int64_t from_stride, int64_t rows, int chunk, const struct row_store *how,
                        int accumulate, int moments)
{
    int j = 0;
    for (; j + LANES <= chunk; j += LANES)
        store_columns(to, type, to_stride, from, from_stride, rows, j, LANES, how, accumulate, moments);
    if (j < chunk)
        store_columns(to, type, to_stride, from, from_stride, rows, j, chunk - j, how, accumulate,
                      moments);
}

static void store_rows(void *to, enum value_type type, int64_t to_stride, const float *from,
                       int64_t from_stride, int64_t rows, int chunk, const struct row_store *how)
{
#define STORE(t, a, m) store_typed(to, t, to_stride, from, from_stride, rows, chunk, how, a, m)
    int moments = how->shift != NULL;
    switch ((type == VALUE_BF16) * 4 + (how->accumulate != 0) * 2 + moments) {
    case 0: STORE(VALUE_F32, 0, 0); break;
    case 1: STORE(VALUE_F32, 0, 1); break;
    case 2: STORE(VALUE_F32, 1, 0); break;
    case 3: STORE(VALUE_F32, 1, 1); break;
    case 4: STORE(VALUE_BF16, 0, 0); break;
    case 5: STORE(VALUE_BF16, 0, 1); break;
    case 6: STORE(VALUE_BF16, 1, 0); break;
    default: STORE(VALUE_BF16, 1, 1); break;
    }
}

/* ---- sums ---------------------------------------------------------------------------------------- */

enum { SUM_RUN = 128 }; /* rows summed in float: error below 128 * 2^-24 of the sum of magnitudes */

INLINE void sum_columns(double *sums, const void *from, enum value_type type, int64_t stride,
                        int64_t rows, int j, int n)
{
    for (int64_t first = 0; first < rows; first += SUM_RUN) {
        int64_t end = first + SUM_RUN < rows ? first + SUM_RUN : rows;
        vec even = spread(0), odd = spread(0);
        for (int64_t r = first; r < end; r += 2) {
            even += load(from, r * stride + j, type, n);
            if (r + 1 < end)
                odd += load(from, (r + 1) * stride + j, type, n);
        }
        add_doubles(sums + j, even + odd, n);
    }
}

static void sums(double *sums, const void *from, enum value_type type, int64_t stride, int64_t rows,
                 int chunk)
{
    for (int j = 0; j < chunk; j += LANES) {
        int n = chunk - j < LANES ? chunk - j : LANES;
        if (n == LANES && type == VALUE_BF16)
            sum_columns(sums, from, VALUE_BF16, stride, rows, j, LANES);
        else if (n == LANES)
            sum_columns(sums, from, VALUE_F32, stride, rows, j, LANES);
        else
            sum_columns(sums, from, type, stride, rows, j, n);
    }
}

/* ---- expand -------------------------------------------------------------------------------------- */

/* Chunks of at most `size` bytes, copied as `size`: what is written too much, the next chunk mends. */
INLINE void expand_small(char *to, size_t to_stride, const char *from, size_t step, const size_t *offset,
                         int n, size_t chunk, int64_t rows, size_t size)
{
    static const char zero[16];
    size_t at[9], used = (size_t)n * chunk;
    for (int k = 0; k < n; k++)
        at[k] = offset[k];
    for (int64_t r = 0; r < rows; r++, to += to_stride, from += step) {
        for (size_t b = to_stride; b > used; b -= sizeof zero)
            memcpy(to + b - sizeof zero, zero, sizeof zero);
        for (int k = 0; k < n; k++)
            memcpy(to + (size_t)k * chunk, from + at[k], size);
    }
}

INLINE void expand_sized(char *to, size_t to_stride, const char *from, size_t step, const size_t *offset,
                         int n, size_t chunk, int64_t rows)
{
    if (n == 9 && chunk == 6) /* one channel of bf16, the first layer: all known */
        expand_small(to, 64, from, step, offset, 9, 6, rows, 8);
    else if (chunk <= 8)
        expand_small(to, to_stride, from, step, offset, n, chunk, rows, 8);
    else if (chunk <= 16)
        expand_small(to, to_stride, from, step, offset, n, chunk, rows, 16);
    else if (chunk <= 32)
        expand_small(to, to_stride, from, step, offset, n, chunk, rows, 32);
    else if (chunk <= 64)
        expand_small(to, to_stride, from, step, offset, n, chunk, rows, 64);
    else
        for (int64_t r = 0; r < rows; r++, to += to_stride, from += step)
            for (int k = 0; k < n; k++)
                for (size_t b = 0; b < chunk; b += 64)
                    memcpy(to + (size_t)k * chunk + b, from + offset[k] + b, 64);
}

static void expand(char *to, size_t to_stride, const char *from, size_t step, const size_t *offset,
                   int n, size_t chunk, int64_t rows)
{
    switch (n) { /* the numbers in use: loops over them are unrolled */
    case 3: expand_sized(to, to_stride, from, step, offset, 3, chunk, rows); break;
    default:
        CHECK(n == 9);
        expand_sized(to, to_stride, from, step, offset, 9, chunk, rows);
    }
}

/* ---- add_parts ----------------------------------------------------------------------------------- */

static void add_parts(float *to, const float *from, int64_t part, int parts, int64_t n, int add)
{
    for (int64_t i = 0; i < n; i += LANES) {
        int lanes = n - i < LANES ? (int)(n - i) : LANES;
        vec sum = load(from, i, VALUE_F32, lanes);
        for (int p = 1; p < parts; p++)
            sum += load(from, p * part + i, VALUE_F32, lanes);
        if (add)
            sum += load(to, i, VALUE_F32, lanes);
        store(to, i, VALUE_F32, lanes, sum);
    }
}

extern const struct row_ops ISA(row_ops);
const struct row_ops ISA(row_ops) = {
    .fill = fill,
    .grad = grad,
    .store = store_rows,
    .sums = sums,
    .expand = expand,
    .add_parts = add_parts,
};
