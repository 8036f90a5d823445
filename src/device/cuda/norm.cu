/* norm.cu - norm.h on the GPU: the two sums of batch norm's backward pass, and the join of two gradients.
 *
 * Both only read: their speed is that of memory, so threads read vectors of V = 8 elements, 16 bytes of
 * bf16. For that an item is looked at as rows of W = lcm(c, V) elements, groups = W / V vectors, so that
 * element e of a thread's vector is always channel (group V + e) mod c, whatever c is:
 *
 *     c = 16   | v0 | v1 |                    c = 4   |  v0  |   channels 0123 0123
 *     c = 3    | v0 | v1 | v2 |   24 elements, channels 012 012 01 | 2 012 012 0 | 12 012 012
 *
 *     thread   a group, every lanes-th row of its block's: up to 64 rows in float
 *     block    its lanes by a tree, in double            -> partial (item, block, 2, W)
 *     warp     one sum of one channel: blocks in order, each thread every 32nd, then a tree
 *
 * All of it follows from the shape. Items that do not begin at a multiple of 16 bytes, or whose size is
 * not one of V, are read one by one: V = 1, W = c.
 */
#include "device/cuda/context.cuh"

enum {
    THREADS = 256,
    BLOCKS = 256, /* of an item, about: enough for any GPU with four items */
    FEW_ROWS = 4, /* of a thread */
    MOST_ROWS = 64
};

typedef unsigned short bf16; /* as stored */

/* ---- vectors --------------------------------------------------------------------------------- */

static __device__ __forceinline__ void load_vector(float (&v)[1], const float *p)
{
    v[0] = *p;
}

static __device__ __forceinline__ void load_vector(float (&v)[1], const bf16 *p)
{
    v[0] = __uint_as_float((unsigned)*p << 16);
}

static __device__ __forceinline__ void load_vector(float (&v)[8], const float *p)
{
    float4 a = ((const float4 *)p)[0], b = ((const float4 *)p)[1];
    v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w;
    v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
}

static __device__ __forceinline__ void load_vector(float (&v)[8], const bf16 *p)
{
    uint4 w = *(const uint4 *)p;
    const unsigned pair[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        v[2 * i] = __uint_as_float(pair[i] << 16);
        v[2 * i + 1] = __uint_as_float(pair[i] & 0xFFFF0000u);
    }
}

static __device__ __forceinline__ void store_vector(float *p, const float (&v)[1])
{
    *p = v[0];
}

static __device__ __forceinline__ void store_vector(float *p, const float (&v)[8])
{
    ((float4 *)p)[0] = make_float4(v[0], v[1], v[2], v[3]);
    ((float4 *)p)[1] = make_float4(v[4], v[5], v[6], v[7]);
}

static int vector_fits(const void *p)
{
    return (uintptr_t)p % 16 == 0;
}

/* ---- sums ------------------------------------------------------------------------------------ */

struct sums_work {
    const void *g, *y;
    const float *scale, *shift, *mean; /* scale NULL: 1 and 0 */
    int relu, c, items;
    int64_t vectors;   /* of an item */
    int groups;        /* vectors of a row */
    int beside, lanes; /* groups and rows that a block's threads stand for at once */
    int rows;          /* of a thread, at most */
    int blocks;        /* along the rows of an item */
    double *partial, *sums;
};

/* What a thread adds of one vector. Rounded one by one: the mask is that of the forward pass. */
template <int V>
static __device__ __forceinline__ void add_vector(float (&s1)[V], float (&s2)[V], const float (&g)[V],
                                                  const float (&y)[V], const float (&scale)[V],
                                                  const float (&shift)[V], const float (&mean)[V], int open)
{
#pragma unroll
    for (int e = 0; e < V; e++) {
        float u = __fadd_rn(__fmul_rn(scale[e], y[e]), shift[e]);
        float kept = open || u > 0.0f ? g[e] : 0.0f;
        s1[e] += kept;
        s2[e] += kept * (y[e] - mean[e]);
    }
}

/* The float sums of one thread: rows `first`, first + lanes, ... of its group. */
template <int V, class G, class Y>
static __device__ __forceinline__ void sum_rows(float (&s1)[V], float (&s2)[V], const struct sums_work &w,
                                                int item, int group, int64_t first)
{
    float scale[V], shift[V], mean[V];
#pragma unroll
    for (int e = 0; e < V; e++) {
        int channel = (group * V + e) % w.c, at = item * w.c + channel;
        scale[e] = w.scale ? w.scale[at] : 1.0f;
        shift[e] = w.scale ? w.shift[at] : 0.0f;
        mean[e] = w.mean[channel];
    }
    const int64_t start = first * w.groups + group, step = (int64_t)w.lanes * w.groups;
    const int64_t left = start < w.vectors ? (w.vectors - start + step - 1) / step : 0;
    const int n = left < w.rows ? (int)left : w.rows;
    const G *g = (const G *)w.g + (item * w.vectors + start) * V;
    const Y *y = (const Y *)w.y + (item * w.vectors + start) * V;
#pragma unroll 4
    for (int r = 0; r < n; r++) {
        float gv[V], yv[V];
        load_vector(gv, g + r * step * V);
        load_vector(yv, y + r * step * V);
        add_vector<V>(s1, s2, gv, yv, scale, shift, mean, !w.relu);
    }
}

template <int V, class G, class Y>
static __global__ void __launch_bounds__(THREADS) sum_blocks(const __grid_constant__ struct sums_work w)
{
    __shared__ double part[2 * V][THREADS];
    const int t = (int)threadIdx.x, lane = t / w.beside, item = (int)blockIdx.z;
    const int group = (int)blockIdx.y * w.beside + t % w.beside;
    float s1[V] = {0}, s2[V] = {0};
    if (lane < w.lanes && group < w.groups)
        sum_rows<V, G, Y>(s1, s2, w, item, group, (int64_t)blockIdx.x * w.lanes * w.rows + lane);
#pragma unroll
    for (int e = 0; e < V; e++) {
        part[e][t] = (double)s1[e];
        part[V + e][t] = (double)s2[e];
    }
    __syncthreads();
    for (int left = w.lanes, half; left > 1; left = half) {
        half = (left + 1) / 2;
        if (lane < left - half)
            for (int e = 0; e < 2 * V; e++)
                part[e][t] += part[e][t + half * w.beside];
        __syncthreads();
    }
    if (lane > 0 || group >= w.groups)
        return;
    double *to = w.partial + ((int64_t)item * w.blocks + blockIdx.x) * 2 * w.groups * V + group * V;
    for (int e = 0; e < V; e++) {
        to[e] = part[e][t];
        to[(int64_t)w.groups * V + e] = part[V + e][t];
    }
}

/* One warp a sum: over blocks, and over the places of its channel in a row of W elements. */
static __global__ void __launch_bounds__(THREADS)
    join_blocks(const __grid_constant__ struct sums_work w, int64_t W)
{
    const int64_t at = ((int64_t)blockIdx.x * THREADS + threadIdx.x) / 32, all = (int64_t)w.items * w.c;
    const int lane = (int)threadIdx.x % 32, places = (int)(W / w.c);
    if (at >= 2 * all) /* whole warps */
        return;
    const int64_t second = at / all, item = at % all / w.c, channel = at % w.c;
    double sum = 0;
    for (int64_t i = lane; i < (int64_t)w.blocks * places; i += 32)
        sum += w.partial[((item * w.blocks + i / places) * 2 + second) * W + i % places * w.c + channel];
    for (int apart = 16; apart > 0; apart /= 2)
        sum += __shfl_xor_sync(0xFFFFFFFFu, sum, apart);
    if (lane == 0)
        w.sums[at] = sum;
}

template <int V>
static void launch_sums(const struct sums_work *w, int g_bf16, int y_bf16, cudaStream_t stream)
{
    dim3 grid((unsigned)w->blocks, (unsigned)((w->groups + w->beside - 1) / w->beside), (unsigned)w->items);
    if (g_bf16 && y_bf16)
        sum_blocks<V, bf16, bf16><<<grid, THREADS, 0, stream>>>(*w);
    else if (g_bf16)
        sum_blocks<V, bf16, float><<<grid, THREADS, 0, stream>>>(*w);
    else if (y_bf16)
        sum_blocks<V, float, bf16><<<grid, THREADS, 0, stream>>>(*w);
    else
        sum_blocks<V, float, float><<<grid, THREADS, 0, stream>>>(*w);
}

/* Elements of a row: lcm(c, V). */
static int row_elements(int c, int V)
{
    int W = c;
    while (W % V)
        W += c;
    return W;
}

static void cut_sums(struct sums_work *w, int64_t elements, int V)
{
    w->vectors = elements / V;
    w->groups = row_elements(w->c, V) / V;
    w->beside = w->groups < THREADS ? w->groups : THREADS;
    w->lanes = THREADS / w->beside;
    int64_t rows = (w->vectors + w->groups - 1) / w->groups;
    int64_t each = rows / ((int64_t)w->lanes * BLOCKS);
    w->rows = each < FEW_ROWS ? FEW_ROWS : each > MOST_ROWS ? MOST_ROWS : (int)each;
    int64_t of_block = (int64_t)w->lanes * w->rows;
    w->blocks = (int)((rows + of_block - 1) / of_block);
}

int cuda_norm_sums(struct cuda_context *c, const struct tensor *g, const struct conv_source *y,
                   const float *mean, double *sums)
{
    int64_t elements = (int64_t)g->d * g->h * g->w * g->c;
    int V = elements % 8 == 0 && vector_fits(g->data) && vector_fits(y->y.data) ? 8 : 1;
    struct sums_work w = {};
    w.g = g->data, w.y = y->y.data, w.scale = y->scale, w.shift = y->shift, w.mean = mean;
    w.relu = y->relu, w.c = g->c, w.items = g->n;
    if (elements == 0 || g->n == 0)
        return cudaMemsetAsync(sums, 0, 2 * (size_t)g->n * (size_t)g->c * sizeof *sums, c->stream);
    cut_sums(&w, elements, V);
    int64_t W = (int64_t)w.groups * V, found = 2 * (int64_t)g->n * g->c;
    int code = cuda_reserve(c, (size_t)(w.items * (int64_t)w.blocks * 2 * W) * sizeof(double));
    if (code)
        return code;
    w.partial = (double *)c->scratch;
    w.sums = sums;
    if (V == 8)
        launch_sums<8>(&w, g->type == VALUE_BF16, y->y.type == VALUE_BF16, c->stream);
    else
        launch_sums<1>(&w, g->type == VALUE_BF16, y->y.type == VALUE_BF16, c->stream);
    join_blocks<<<(unsigned)((found * 32 + THREADS - 1) / THREADS), THREADS, 0, c->stream>>>(w, W);
    return cudaGetLastError();
}

/* ---- join ------------------------------------------------------------------------------------ */

struct join_work {
    float *to;
    const void *g, *y;
    int relu;
    int64_t count;
};

template <int V, class G, class Y>
static __device__ __forceinline__ void join_vector(const struct join_work &w, int64_t at)
{
    float gv[V], yv[V], to[V];
    load_vector(to, w.to + at);
    load_vector(gv, (const G *)w.g + at);
    if (w.relu)
        load_vector(yv, (const Y *)w.y + at);
#pragma unroll
    for (int e = 0; e < V; e++)
        to[e] += !w.relu || yv[e] > 0.0f ? gv[e] : 0.0f;
    store_vector(w.to + at, to);
}

/* A thread a vector; what is left of the last one goes one by one. */
template <int V, class G, class Y>
static __global__ void __launch_bounds__(THREADS) join(const __grid_constant__ struct join_work w)
{
    int64_t at = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * V;
    if (at + V <= w.count) {
        join_vector<V, G, Y>(w, at);
        return;
    }
    for (; at < w.count; at++)
        join_vector<1, G, Y>(w, at);
}

template <int V>
static void launch_join(const struct join_work *w, int g_bf16, int y_bf16, cudaStream_t stream)
{
    int64_t vectors = (w->count + V - 1) / V;
    unsigned blocks = (unsigned)((vectors + THREADS - 1) / THREADS);
    if (g_bf16 && y_bf16)
        join<V, bf16, bf16><<<blocks, THREADS, 0, stream>>>(*w);
    else if (g_bf16)
        join<V, bf16, float><<<blocks, THREADS, 0, stream>>>(*w);
    else if (y_bf16)
        join<V, float, bf16><<<blocks, THREADS, 0, stream>>>(*w);
    else
        join<V, float, float><<<blocks, THREADS, 0, stream>>>(*w);
}

int cuda_grad_join(struct cuda_context *c, const struct tensor *to, const struct tensor *g,
                   const struct conv_source *y)
{
    struct join_work w = {(float *)to->data, g->data, y->y.data, y->relu,
                          (int64_t)to->n * to->d * to->h * to->w * to->c};
    if (to->type != VALUE_F32 || y->scale)
        return cudaErrorInvalidValue;
    if (w.count == 0)
        return cudaSuccess;
    if (vector_fits(w.to) && vector_fits(w.g) && vector_fits(w.y))
        launch_join<8>(&w, g->type == VALUE_BF16, y->y.type == VALUE_BF16, c->stream);
    else
        launch_join<1>(&w, g->type == VALUE_BF16, y->y.type == VALUE_BF16, c->stream);
    return cudaGetLastError();
}
