/* conv_sums.cu - sums over voxels and over parts, all in an order that depends on shapes alone.
 *
 *     moments_of_rows   stored rows -> (count, mean, squared distances) of regions, per channel
 *     moments_join      regions -> mean and squared distances, in double
 *     bias_sums         dy through its formula -> sums per channel, added to dbias
 *     parts_join        parts of a weight gradient -> the gradient
 *
 * A thread of the first and third takes eight channels of every so many rows; the block adds its threads
 * up in double.
 */
#include "device/cuda/conv_int.cuh"

enum {
    THREADS = 256,
    LEAST_EACH = 4,
    MOST_EACH = 32, /* rows of a thread */
    BLOCKS = 2 * MULTIPROCESSORS,
    WIDTH = 8 /* channels of a thread */
};

/* How rows of c channels are shared out: a thread takes a group of channels in every so many rows. */
struct rows_cut {
    int groups, lanes; /* groups of channels of a block; rows at a time */
    int across;        /* blocks across the channels */
    int run, blocks;   /* rows of a block */
};

static struct rows_cut cut_rows(int64_t rows, int c)
{
    struct rows_cut k;
    int all = divide_up(c, WIDTH);
    k.groups = all < THREADS ? all : THREADS;
    k.across = divide_up(all, k.groups);
    k.lanes = THREADS / k.groups;
    int64_t each = rows / ((int64_t)k.lanes * BLOCKS);
    k.run = k.lanes * (int)(each < LEAST_EACH ? LEAST_EACH : each > MOST_EACH ? MOST_EACH : each);
    k.blocks = (int)((rows + k.run - 1) / k.run);
    return k;
}

/* Blocks of so many rows or fewer, at most: fewer rows may take shorter runs, but at least 4/5 as long. */
static size_t most_blocks(int64_t rows, int c)
{
    size_t blocks = (size_t)cut_rows(rows, c).blocks, bound = 5 * BLOCKS / 4 + 1;
    return blocks > bound ? blocks : bound;
}

/* Adds N numbers of each thread over the lanes, pairwise in a fixed order; lane 0 gets the sums. */
template <int N> __device__ __forceinline__ void add_lanes(double v[N], const struct rows_cut &k)
{
    __shared__ double all[N][THREADS];
    int lane = threadIdx.x / k.groups, half = 1;
    while (2 * half < k.lanes)
        half *= 2;
#pragma unroll
    for (int i = 0; i < N; i++)
        all[i][threadIdx.x] = v[i];
    for (; half > 0; half /= 2) {
        __syncthreads();
        if (lane < half && lane + half < k.lanes)
#pragma unroll
            for (int i = 0; i < N; i++)
                all[i][threadIdx.x] += all[i][threadIdx.x + half * k.groups];
    }
#pragma unroll
    for (int i = 0; i < N; i++) /* of lane 0: nobody else wrote there */
        v[i] = all[i][threadIdx.x];
}

/* ---- moments ------------------------------------------------------------------------------------------- */

/* Plainly stored eight channels; 0 behind the last. */
__device__ __forceinline__ void load_eight(float v[8], const void *y, int f32, int64_t row, int c,
                                           int channel)
{
#pragma unroll
    for (int j = 0; j < 8; j++)
        v[j] = 0.0f;
    if (!f32 && c % 8 == 0) {
        uint4 u = __ldg((const uint4 *)((const unsigned short *)y + row * c + channel));
        const uint32_t w[4] = {u.x, u.y, u.z, u.w};
#pragma unroll
        for (int j = 0; j < 8; j++)
            v[j] = j % 2 ? bf16_high(w[j / 2]) : bf16_low(w[j / 2]);
        return;
    }
    if (f32 && c % 8 == 0) {
        const float4 *from = (const float4 *)((const float *)y + row * c + channel);
        float4 low = __ldg(from), high = __ldg(from + 1);
        v[0] = low.x, v[1] = low.y, v[2] = low.z, v[3] = low.w;
        v[4] = high.x, v[5] = high.y, v[6] = high.z, v[7] = high.w;
        return;
    }
#pragma unroll
    for (int j = 0; j < 8; j++)
        if (channel + j < c)
            v[j] = value_load(y, f32, row * c + channel + j);
}

/* From sums over the rows of a thread, taken from `shift`, those of the block's region. */
__device__ __forceinline__ void keep_moments(const float *sum, const float *square, const float *shift,
                                             double n, int channel, int c, const struct rows_cut &k,
                                             float4 *moments, int regions)
{
    double s[2 * WIDTH];
#pragma unroll
    for (int j = 0; j < WIDTH; j++) {
        s[j] = sum[j];
        s[WIDTH + j] = square[j];
    }
    add_lanes<2 * WIDTH>(s, k);
#pragma unroll
    for (int j = 0; j < WIDTH; j++) {
        if ((int)threadIdx.x >= k.groups || channel + j >= c)
            continue;
        double m2 = s[WIDTH + j] - s[j] * s[j] / n;
        m2 = m2 < 0 ? 0 : m2;
        moments[(int64_t)(channel + j) * regions + blockIdx.x] =
            make_float4((float)n, (float)(shift[j] + s[j] / n), (float)m2, 0);
    }
}

/* Distances are taken from the block's first row, which is near enough to the mean. */
__global__ void __launch_bounds__(THREADS, 3)
    moments_rows(const void *y, int f32, int64_t rows, int c, struct rows_cut k, float4 *moments, int regions)
{
    int group = threadIdx.x % k.groups, lane = threadIdx.x / k.groups;
    int channel = 8 * (blockIdx.y * k.groups + group);
    int64_t first = (int64_t)blockIdx.x * k.run, end = first + k.run < rows ? first + k.run : rows;
    float shift[8] = {0}, sum[8] = {0}, square[8] = {0};
    if (channel < c && lane < k.lanes) {
        load_eight(shift, y, f32, first, c, channel);
#pragma unroll 4
        for (int64_t row = first + lane; row < end; row += k.lanes) {
            float v[8];
            load_eight(v, y, f32, row, c, channel);
#pragma unroll
            for (int j = 0; j < 8; j++) {
                v[j] -= shift[j];
                sum[j] += v[j];
                square[j] += v[j] * v[j];
            }
        }
    }
    keep_moments(sum, square, shift, (double)(end - first), channel, c, k, moments, regions);
}

int moments_of_rows(struct cuda_context *c, const struct tensor *y, float4 *moments, int *regions)
{
    int64_t rows = (int64_t)y->n * y->d * y->h * y->w;
    struct rows_cut k = cut_rows(rows, y->c);
    *regions = k.blocks;
    return cuda_start(moments_rows, dim3(k.blocks, k.across), THREADS, 0, c->stream, (const void *)y->data,
                      (int)(y->type == VALUE_F32), rows, y->c, k, moments, k.blocks);
}

/* The sum over the threads of a block, in order; all get it. */
__device__ double add_threads(double v)
{
    __shared__ double all[THREADS];
    __syncthreads();
    all[threadIdx.x] = v;
    for (int n = THREADS / 2; n > 0; n /= 2) {
        __syncthreads();
        if ((int)threadIdx.x < n)
            all[threadIdx.x] += all[threadIdx.x + n];
    }
    __syncthreads();
    return all[0];
}

/* One block for each channel. */
__global__ void __launch_bounds__(THREADS)
    join_moments(const float4 *moments, int regions, double *mean, double *m2)
{
    const float4 *of = moments + (int64_t)blockIdx.x * regions;
    double n = 0, sum = 0, square = 0;
    for (int i = threadIdx.x; i < regions; i += THREADS) {
        float4 m = of[i];
        n += m.x;
        sum += (double)m.x * m.y;
    }
    n = add_threads(n);
    double all = add_threads(sum) / n;
    for (int i = threadIdx.x; i < regions; i += THREADS) {
        float4 m = of[i];
        square += m.z + m.x * (m.y - all) * (m.y - all);
    }
    square = add_threads(square);
    if (threadIdx.x == 0) {
        mean[blockIdx.x] = all;
        m2[blockIdx.x] = square;
    }
}

int moments_join(struct cuda_context *c, const float4 *moments, int regions, int channels,
                 const struct conv_stats *stats)
{
    return cuda_start(join_moments, dim3(channels), THREADS, 0, c->stream, moments, regions, stats->mean,
                      stats->m2);
}

/* ---- bias ---------------------------------------------------------------------------------------------- */

template <int KIND>
__device__ __forceinline__ void sum_rows(float sum[8], const struct reader &dy, int rounded, int item,
                                         int64_t first, int64_t end, int step, int channel)
{
    float t[READ_TABLES][8];
    read_tables<KIND>(t, dy, item, channel, 0);
    for (int64_t row = first; row < end; row += step) {
        float v[8];
        read_any<KIND>(v, dy, row * dy.c + channel, dy.c - channel, t);
#pragma unroll
        for (int j = 0; j < 8; j++)
            sum[j] += rounded ? bf16_rounded(v[j]) : v[j];
    }
}

/* blockIdx.z is the item; `voxels` of each. */
__global__ void __launch_bounds__(THREADS) bias_rows(const __grid_constant__ struct reader dy, int rounded,
                                                     int64_t voxels, struct rows_cut k, double *partial)
{
    int group = threadIdx.x % k.groups, lane = threadIdx.x / k.groups, item = blockIdx.z;
    int channel = 8 * (blockIdx.y * k.groups + group);
    int64_t first = (int64_t)blockIdx.x * k.run, end = first + k.run < voxels ? first + k.run : voxels;
    float sum[8] = {0};
    if (channel < dy.c && lane < k.lanes) {
        first += (int64_t)item * voxels + lane;
        end += (int64_t)item * voxels;
        if (dy.kind == READ_GRAD)
            sum_rows<READ_GRAD>(sum, dy, rounded, item, first, end, k.lanes, channel);
        else
            sum_rows<READ_ONE>(sum, dy, rounded, item, first, end, k.lanes, channel);
    }
    double s[8];
#pragma unroll
    for (int j = 0; j < 8; j++)
        s[j] = sum[j];
    add_lanes<8>(s, k);
#pragma unroll
    for (int j = 0; j < 8; j++)
        if (lane == 0 && channel + j < dy.c)
            partial[((int64_t)item * gridDim.x + blockIdx.x) * dy.c + channel + j] = s[j];
}

__global__ void __launch_bounds__(THREADS) join_bias(const double *partial, int parts, int c, float *dbias)
{
    double sum = 0;
    for (int i = threadIdx.x; i < parts; i += THREADS)
        sum += partial[(int64_t)i * c + blockIdx.x];
    sum = add_threads(sum);
    if (threadIdx.x == 0)
        dbias[blockIdx.x] += (float)sum;
}

int bias_sums(struct conv *v, int n, const struct reader &dy, float *dbias)
{
    struct cuda_context *c = v->context;
    int64_t voxels = volume_item(v->out);
    struct rows_cut k = cut_rows(voxels, dy.c);
    double *partial = (double *)c->scratch;
    int e = cuda_start(bias_rows, dim3(k.blocks, k.across, n), THREADS, 0, c->stream, dy, v->bf16, voxels, k,
                       partial);
    if (e)
        return e;
    return cuda_start(join_bias, dim3(dy.c), THREADS, 0, c->stream, (const double *)partial, k.blocks * n,
                      dy.c, dbias);
}

/* ---- parts --------------------------------------------------------------------------------------------- */

struct parts_job {
    const float *partial; /* (parts, taps, rows_each, cols_each) */
    int parts, taps, rows_each, cols_each;
    int rows, cols;
    struct divisor by_cols, by_rows;
    int slices;     /* a thread takes every slices-th part */
    float *dweight; /* (taps, rows, cols) */
    float *dbias;   /* or NULL: its sums are the last row of a part */
    int add;
};

__device__ __forceinline__ void load_columns(float (&to)[1], const float *from)
{
    to[0] = __ldg(from);
}

__device__ __forceinline__ void load_columns(float (&to)[4], const float *from)
{
    float4 f = __ldg((const float4 *)from);
    to[0] = f.x;
    to[1] = f.y;
    to[2] = f.z;
    to[3] = f.w;
}

/* Adds parts i, i + slices, ... as long as N of them are there: so many loads are in flight. Returns the
 * next. */
template <int N, int W>
__device__ __forceinline__ int add_batches(double (&sum)[W], const struct parts_job &j, const float *from,
                                           int i)
{
    int64_t size = (int64_t)j.taps * j.rows_each * j.cols_each;
    for (; i + (N - 1) * j.slices < j.parts; i += N * j.slices) {
        float part[N][W];
#pragma unroll
        for (int k = 0; k < N; k++)
            load_columns(part[k], from + (i + k * j.slices) * size);
#pragma unroll
        for (int k = 0; k < N; k++)
#pragma unroll
            for (int column = 0; column < W; column++)
                sum[column] += part[k][column];
    }
    return i;
}

/* W columns at once, from an index of dweight on; those behind its end are the bias. */
template <int W>
__device__ __forceinline__ void add_parts(double (&sum)[W], const struct parts_job &j, int at, int slice)
{
    int line = divide(at, j.by_cols), tap = divide(line, j.by_rows), row = line - tap * j.rows;
    if (tap == j.taps) {
        tap = j.taps - 1;
        row = j.rows_each - 1;
    }
    const float *from = j.partial + (int64_t)(tap * j.rows_each + row) * j.cols_each + at - line * j.cols;
    slice = add_batches<8>(sum, j, from, slice);
    slice = add_batches<2>(sum, j, from, slice);
    add_batches<1>(sum, j, from, slice);
}

/* A block takes some columns and all slices of them. */
template <int W>
__global__ void __launch_bounds__(THREADS) join_parts(const __grid_constant__ struct parts_job j)
{
    __shared__ double all[W][THREADS];
    int columns = THREADS / j.slices, column = threadIdx.x % columns, slice = threadIdx.x / columns;
    int at = (blockIdx.x * columns + column) * W, end = j.taps * j.rows * j.cols;
    int inside = at < end + (j.dbias ? j.cols : 0);
    double sum[W] = {0};
    if (inside)
        add_parts(sum, j, at, slice);
#pragma unroll
    for (int k = 0; k < W; k++)
        all[k][threadIdx.x] = sum[k];
    __syncthreads();
    if (slice > 0 || !inside)
        return;
    float *to = at < end ? j.dweight + at : j.dbias + at - end;
#pragma unroll
    for (int k = 0; k < W; k++) {
        for (int s = 1; s < j.slices; s++)
            sum[k] += all[k][s * columns + column];
        to[k] = (float)(at >= end || j.add ? to[k] + sum[k] : sum[k]);
    }
}

int parts_join(const struct weight_pass *p, int taps, int rows, int cols, float *dweight, int add)
{
    struct parts_job j = {p->partial,       p->parts,         taps, p->rows, p->cols,  rows, cols,
                          divisor_of(cols), divisor_of(rows), 1,    dweight, p->dbias, add};
    int count = taps * rows * cols + (p->dbias ? cols : 0);
    while (j.slices < 32 && p->parts > 4 * j.slices)
        j.slices *= 2;
    int each = THREADS / j.slices, wide = cols % 4 == 0 && p->cols % 4 == 0 && count > each * MULTIPROCESSORS;
    each *= wide ? 4 : 1;
    return cuda_start(wide ? join_parts<4> : join_parts<1>, dim3(divide_up(count, each)), THREADS, 0,
                      p->stream, j);
}

/* Scratch that the sums of a convolution take. */
size_t sums_bytes(const struct conv *v)
{
    size_t item = (size_t)cut_rows(volume_item(v->out), v->s.c_out).blocks;
    size_t bias = item * v->out.n * v->s.c_out * sizeof(double);
    size_t moments = most_blocks(volume_voxels(v->out), v->s.c_out) * v->s.c_out * sizeof(float4);
    return bias > moments ? bias : moments;
}
