/* rows.c - the movers of rows.h, in GCC's vector types. See rows.h.
 *
 * The loop over the columns of two vectors (or of the last one) is outside and the loop over rows inside,
 * so that tables stay in registers.
 * Types are arguments of inlined bodies: the switch in front makes one loop for each combination.
 */
#include "device/isa/rows.h"
#include "device/isa/isa.h"
#include "device/isa/vec.h"

#include <string.h>

enum { WIDE = 2 * LANES };

#define UNROLL _Pragma("GCC unroll 2")

/* ---- one vector ---------------------------------------------------------------------------------- */

INLINE hvec narrow(vec v)
{
#ifdef __AVX512BF16__
    return (hvec)_mm512_cvtneps_pbh((__m512)v);
#else
    uvec u = (uvec)v, magnitude = u & 0x7fffffffu;
    uvec nan = (uvec)(magnitude > 0x7f800000u);
    uvec rounded = u + 0x7fffu + ((u >> 16) & 1u);
    return __builtin_convertvector(((rounded & ~nan) | ((u | 0x400000u) & nan)) >> 16, hvec);
#endif
}

/* n <= LANES elements from element i on, zero behind; a full load where there are as many. */
INLINE vec load(const void *from, int64_t i, enum value_type type, int n)
{
    const float *f = (const float *)from + i;
    const uint16_t *h = (const uint16_t *)from + i;
    if (type == VALUE_F32)
        return n == LANES ? *(const vec *)f : vec_load(f, n);
    if (n == LANES)
        return vec_widen(*(const hvec *)h);
    hvec u = {0};
    memcpy(&u, h, (size_t)n * sizeof *h);
    return vec_widen(u);
}

/* Returns what is stored, as float. */
INLINE vec store(void *to, int64_t i, enum value_type type, int n, vec v)
{
    float *f = (float *)to + i;
    uint16_t *h = (uint16_t *)to + i;
    if (type == VALUE_F32) {
        if (n == LANES)
            *(vec *)f = v;
        else
            vec_store(f, v, n);
        return v;
    }
    hvec u = narrow(v);
    if (n == LANES)
        *(hvec *)h = u;
    else
        memcpy(h, &u, (size_t)n * sizeof *h);
    return vec_widen(u);
}

/* The same with two full vectors; v becomes what is stored. With `stream` they are whole lines. */
INLINE void store_wide(void *to, int64_t i, enum value_type type, vec *v, int stream)
{
#ifdef __AVX512BF16__
    if (type == VALUE_BF16) {
        __m512i u = (__m512i)_mm512_cvtne2ps_pbh((__m512)v[1], (__m512)v[0]);
        void *at = (uint16_t *)to + i;
        if (stream)
            _mm512_stream_si512(at, u);
        else
            _mm512_storeu_si512(at, u);
        v[0] = vec_widen((hvec)_mm512_castsi512_si256(u));
        v[1] = vec_widen((hvec)_mm512_extracti64x4_epi64(u, 1));
        return;
    }
#endif
    if (stream && type == VALUE_F32 && 4 * WIDE >= 64) {
        vec_stream((float *)to + i, v[0]);
        vec_stream((float *)to + i + LANES, v[1]);
        return;
    }
    v[0] = store(to, i, type, LANES, v[0]);
    v[1] = store(to, i + LANES, type, LANES, v[1]);
}

/* n <= LANES elements of one vector, or two full ones. */
INLINE void store_vecs(void *to, int64_t i, enum value_type type, int n, int vecs, vec *v, int stream)
{
    if (vecs == 2)
        store_wide(to, i, type, v, stream);
    else
        v[0] = store(to, i, type, n, v[0]);
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

INLINE vec through(const void *y, int64_t i, enum value_type type, int n, vec scale, vec shift, vec floor)
{
    vec v = load(y, i, type, n) * scale + shift;
    return vec_max(floor, v);
}

INLINE void fill_columns(void *to, enum value_type type, int64_t to_stride, const struct row_source *f,
                         int count, enum value_type from_type, int64_t from_stride, int64_t rows, int j,
                         int n, int vecs)
{
    vec scale[2][2], shift[2][2], floor[2];
    for (int s = 0; s < count; s++) {
        floor[s] = vec_all(f[s].floor);
        for (int k = 0; k < vecs; k++) {
            scale[s][k] = table(f[s].scale, j + k * LANES);
            shift[s][k] = table(f[s].shift, j + k * LANES);
        }
    }
    for (int64_t r = 0; r < rows; r++) {
        int64_t at = r * from_stride + j;
        vec v[2];
        ask_for(f[0].y, at, from_type);
        if (count > 1)
            ask_for(f[1].y, at, from_type);
        UNROLL
        for (int k = 0; k < vecs; k++) {
            v[k] = through(f[0].y, at + k * LANES, from_type, n, scale[0][k], shift[0][k], floor[0]);
            if (count > 1)
                v[k] += through(f[1].y, at + k * LANES, from_type, n, scale[1][k], shift[1][k], floor[1]);
        }
        store_vecs(to, r * to_stride + j, type, n, vecs, v, 0);
    }
}

INLINE void fill_typed(void *to, enum value_type type, int64_t to_stride, const struct row_source *f,
                       int count, enum value_type from_type, int64_t from_stride, int64_t rows, int chunk)
{
    int j = 0;
    for (; j + WIDE <= chunk; j += WIDE)
        fill_columns(to, type, to_stride, f, count, from_type, from_stride, rows, j, LANES, 2);
    for (; j < chunk; j += LANES)
        fill_columns(to, type, to_stride, f, count, from_type, from_stride, rows, j,
                     chunk - j < LANES ? chunk - j : LANES, 1);
}

static void fill(void *to, enum value_type type, int64_t to_stride, const struct row_source *from, int count,
                 int64_t from_stride, int64_t rows, int chunk)
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
                         enum value_type g_type, enum value_type y_type, int64_t from_stride, int64_t rows,
                         int j, int n, int vecs)
{
    vec scale[2], shift[2], p[2], q[2], r[2], floor = vec_all(f->y.floor);
    const void *from_y = f->y.y, *from_g = f->g;
    for (int k = 0; k < vecs; k++) {
        scale[k] = table(f->y.scale, j + k * LANES);
        shift[k] = table(f->y.shift, j + k * LANES);
        p[k] = table(f->p, j + k * LANES);
        q[k] = table(f->q, j + k * LANES);
        r[k] = table(f->r, j + k * LANES);
    }
    for (int64_t i = 0; i < rows; i++) {
        int64_t at = i * from_stride + j;
        vec v[2];
        ask_for(from_y, at, y_type);
        ask_for(from_g, at, g_type);
        UNROLL
        for (int k = 0; k < vecs; k++) {
            vec y = load(from_y, at + k * LANES, y_type, n);
            vec g = load(from_g, at + k * LANES, g_type, n) * p[k];
            ivec on = y * scale[k] + shift[k] > floor;
            v[k] = (vec)((ivec)g & on) + (q[k] * y + r[k]);
        }
        store_vecs(to, i * to_stride + j, type, n, vecs, v, 0);
    }
}

INLINE void grad_typed(void *to, enum value_type type, int64_t to_stride, const struct row_grad *f,
                       enum value_type g_type, enum value_type y_type, int64_t from_stride, int64_t rows,
                       int chunk)
{
    int j = 0;
    for (; j + WIDE <= chunk; j += WIDE)
        grad_columns(to, type, to_stride, f, g_type, y_type, from_stride, rows, j, LANES, 2);
    for (; j < chunk; j += LANES)
        grad_columns(to, type, to_stride, f, g_type, y_type, from_stride, rows, j,
                     chunk - j < LANES ? chunk - j : LANES, 1);
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
    __mmask16 m = vec_first(n);
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

enum { RUN = 128 }; /* rows summed in float: error below 128 * 2^-24 of the sum of magnitudes */

/* How results go into a tensor, and what is summed on the way. */
enum put { PUT, PUT_ADDED, PUT_STREAMED };
enum gather { GATHER_NOTHING, GATHER_MOMENTS, GATHER_NORM };

struct gather_tables {
    vec scale, shift, mean, floor;
};

INLINE struct gather_tables gather_tables(const struct row_store *how, int j, enum gather gather)
{
    const struct row_norm *n = how->norm;
    if (gather == GATHER_MOMENTS)
        return (struct gather_tables){.shift = table(how->shift, j)};
    if (gather == GATHER_NORM)
        return (struct gather_tables){table(n->scale, j), table(n->shift, j), table(n->mean, j),
                                      vec_all(n->floor)};
    return (struct gather_tables){.shift = vec_all(0)};
}

/* One row of two chains of sums: additions do not wait for those of the row before. */
INLINE void gather_row(vec sum[2], vec other[2], vec v, vec y, const struct gather_tables *t,
                       enum gather gather)
{
    vec a = sum[1], b = other[1];
    if (gather == GATHER_NORM) {
        v = (vec)((ivec)v & (y * t->scale + t->shift > t->floor));
        b += v * (y - t->mean);
    } else {
        v -= t->shift;
        b += v * v;
    }
    a += v;
    sum[1] = sum[0], other[1] = other[0];
    sum[0] = a, other[0] = b;
}

/* At most RUN rows if there is something to sum. */
INLINE void store_run(void *to, enum value_type type, int64_t to_stride, const float *from,
                      int64_t from_stride, int64_t first, int64_t end, int j, int n, int vecs,
                      const struct row_store *how, enum put put, enum gather gather)
{
    vec bias[2], sum[2][2], other[2][2];
    struct gather_tables t[2];
    const void *from_y = gather == GATHER_NORM ? how->norm->y : NULL;
    for (int k = 0; k < vecs; k++) {
        bias[k] = how->bias ? table(how->bias, j + k * LANES) : vec_all(0);
        t[k] = gather_tables(how, j + k * LANES, gather);
        sum[k][0] = sum[k][1] = other[k][0] = other[k][1] = vec_all(0);
    }
    for (int64_t r = first; r < end; r++) {
        int64_t at = r * to_stride + j;
        vec v[2];
        if (put != PUT_STREAMED)
            ask_to_write(to, at, type);
        if (gather == GATHER_NORM)
            ask_for(from_y, at, type);
        UNROLL
        for (int k = 0; k < vecs; k++) {
            v[k] = load(from, r * from_stride + j + k * LANES, VALUE_F32, n) + bias[k];
            if (put == PUT_ADDED)
                v[k] += load(to, at + k * LANES, type, n);
        }
        store_vecs(to, at, type, n, vecs, v, put == PUT_STREAMED);
        UNROLL
        for (int k = 0; gather != GATHER_NOTHING && k < vecs; k++) {
            vec y = gather == GATHER_NORM ? load(from_y, at + k * LANES, type, n) : vec_all(0);
            gather_row(sum[k], other[k], v[k], y, &t[k], gather);
        }
    }
    for (int k = 0; gather != GATHER_NOTHING && k < vecs; k++) {
        double *sums = gather == GATHER_NORM ? how->norm->sum : how->sum;
        double *others = gather == GATHER_NORM ? how->norm->product : how->square;
        add_doubles(sums + j + k * LANES, sum[k][0] + sum[k][1], n);
        add_doubles(others + j + k * LANES, other[k][0] + other[k][1], n);
    }
}

INLINE void store_typed(void *to, enum value_type type, int64_t to_stride, const float *from,
                        int64_t from_stride, int64_t rows, int chunk, const struct row_store *how,
                        enum put put, enum gather gather)
{
    int64_t run = gather == GATHER_NOTHING ? rows : RUN;
    for (int64_t first = 0, end; first < rows; first = end) {
        int j = 0;
        end = first + run < rows ? first + run : rows;
        for (; j + WIDE <= chunk; j += WIDE)
            store_run(to, type, to_stride, from, from_stride, first, end, j, LANES, 2, how, put, gather);
        for (; j < chunk; j += LANES)
            store_run(to, type, to_stride, from, from_stride, first, end, j,
                      chunk - j < LANES ? chunk - j : LANES, 1, how, put, gather);
    }
}

static void store_rows(void *to, enum value_type type, int64_t to_stride, const float *from,
                       int64_t from_stride, int64_t rows, int chunk, const struct row_store *how)
{
#define STORE(t, p, g)                                                                                       \
    case ((t) == VALUE_BF16) * 9 + (p)*3 + (g):                                                              \
        store_typed(to, t, to_stride, from, from_stride, rows, chunk, how, p, g);                            \
        break
#define STORES(t, p)                                                                                         \
    STORE(t, p, GATHER_NOTHING);                                                                             \
    STORE(t, p, GATHER_MOMENTS);                                                                             \
    STORE(t, p, GATHER_NORM)
    int64_t bytes = type == VALUE_BF16 ? 2 : 4;
    int whole_lines = (uintptr_t)to % 64 == 0 && to_stride * bytes % 64 == 0;
    int put = how->accumulate ? PUT_ADDED : how->stream && whole_lines ? PUT_STREAMED : PUT;
    int gather = how->norm ? GATHER_NORM : how->shift ? GATHER_MOMENTS : GATHER_NOTHING;
    switch ((type == VALUE_BF16) * 9 + put * 3 + gather) {
        STORES(VALUE_F32, PUT);
        STORES(VALUE_F32, PUT_ADDED);
        STORES(VALUE_F32, PUT_STREAMED);
        STORES(VALUE_BF16, PUT);
        STORES(VALUE_BF16, PUT_ADDED);
        STORES(VALUE_BF16, PUT_STREAMED);
    }
}

static void settle(void)
{
    _mm_sfence();
}

/* ---- sums ---------------------------------------------------------------------------------------- */

INLINE void sum_columns(double *sums, const void *from, enum value_type type, int64_t stride, int64_t rows,
                        int j, int n)
{
    for (int64_t first = 0; first < rows; first += RUN) {
        int64_t end = first + RUN < rows ? first + RUN : rows;
        vec even = vec_all(0), odd = vec_all(0);
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

static void expand(char *to, size_t to_stride, const char *from, size_t step, const size_t *offset, int n,
                   size_t chunk, int64_t rows)
{
    switch (n) { /* the numbers in use: loops over them are unrolled */
    case 3: expand_sized(to, to_stride, from, step, offset, 3, chunk, rows); break;
    default: CHECK(n == 9); expand_sized(to, to_stride, from, step, offset, 9, chunk, rows);
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
    .settle = settle,
    .sums = sums,
    .expand = expand,
    .add_parts = add_parts,
};
