/* loops_usual.cu - the bodies that training spends its time in, for the usual numbers: two classes, three
 * pairs of samples, rank eight; variances, not covariances, of features; patches of one channel without
 * noise. See loops.cuh.
 *
 * All loops over these are unrolled, so that the arrays of a body are registers: a voxel of an energy
 * distance is 2,000 instructions and not one access to local memory. For the same reason every thread has its
 * own sums, over up to USUAL_RUN indices; warps and blocks add them up at the end.
 *
 * The 156 sums of the Gram matrices are too many for that: two lanes share a voxel. Each draws the samples of
 * one network, they exchange what the other needs, and each makes the 78 sums of one class:
 *
 *     even lane   P(0) P(1) --- P(1) --> |  <-- Q(0) --- Q(0) Q(1)   odd lane
 *                 sums of P(0), Q(0)                     sums of P(1), Q(1)
 *
 * Also here: coarse voxels that each gather from hundreds of fine ones or more, too few for a thread each.
 */
#define KERNEL_USUAL
#define KERNEL_FEW 2
#include "device/cuda/loops_body.cuh"

enum { USUAL_RUN = 8 };

/* Gives half of 2 HALF numbers to the thread APART away and adds what comes from there to the rest. */
template <int HALF, int APART, int N> static __device__ __forceinline__ void halve(float (&v)[N], int lane)
{
#pragma unroll
    for (int i = 0; i < HALF; i++) {
        float low = v[i], high = v[i + HALF];
        float other = __shfl_xor_sync(0xFFFFFFFFu, lane & APART ? low : high, APART);
        v[i] = (lane & APART ? high : low) + other;
    }
}

/* Sums over a warp of 32 numbers of every thread, from own[s] on: thread t gets the t-th, by 31 exchanges. */
template <int N> static __device__ __forceinline__ float thirty_two(const float (&own)[N], int s, int lane)
{
    float v[32];
#pragma unroll
    for (int i = 0; i < 32; i++)
        v[i] = s + i < N ? own[s + i < N ? s + i : 0] : 0.0f;
    halve<16, 16>(v, lane);
    halve<8, 8>(v, lane);
    halve<4, 4>(v, lane);
    halve<2, 2>(v, lane);
    halve<1, 1>(v, lane);
    return v[0];
}

/* The same of few numbers, one after the other. */
template <int N> static __device__ __forceinline__ float eight(const float (&own)[N], int lane)
{
    float mine = 0;
#pragma unroll
    for (int i = 0; i < (N < 8 ? N : 8); i++) {
        float sum = own[i];
        for (int apart = 16; apart > 0; apart /= 2)
            sum += __shfl_xor_sync(0xFFFFFFFFu, sum, apart);
        mine = lane == i ? sum : mine;
    }
    return mine;
}

/* The block's indices, threads side by side; its sums in double. */
template <int N, int UNROLL, class Args, void (*range)(const Args *, int64_t, int64_t, float *)>
static __device__ void reduce_own(const Args *args, int64_t count, double *partial)
{
    enum { WARPS = LOOPS_THREADS / 32 };
    __shared__ float rows[WARPS][N];
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const int64_t first = (int64_t)blockIdx.x * USUAL_RUN * LOOPS_THREADS + threadIdx.x;
    float own[N] = {0};
#pragma unroll UNROLL
    for (int r = 0; r < USUAL_RUN; r++) {
        int64_t i = first + r * LOOPS_THREADS;
        if (i < count)
            range(args, i, i + 1, own);
    }
#pragma unroll
    for (int s = 0; s < N; s += 32) {
        float sum = N > 8 ? thirty_two<N>(own, s, lane) : eight<N>(own, lane);
        if (s + lane < N)
            rows[warp][s + lane] = sum;
    }
    __syncthreads();
    for (int s = (int)threadIdx.x; s < N; s += LOOPS_THREADS) {
        double sum = 0;
        for (int w = 0; w < WARPS; w++)
            sum += (double)rows[w][s];
        partial[(int64_t)s * gridDim.x + blockIdx.x] = sum;
    }
}

/* ---- Gram matrices --------------------------------------------------------------------------- */

enum {
    SAMPLES = 2 * USUAL_PAIRS,
    GRAM_CLASS = SAMPLES * SAMPLES + SAMPLES * (SAMPLES + 1),
    GRAM_SUMS = USUAL_CLASSES * GRAM_CLASS,
    GRAM_AT_ONCE = LOOPS_THREADS / 2, /* voxels of a block */
    GRAM_BLOCKS = 264,                /* about: two for each of an H200's multiprocessors, all at once */
    GRAM_LEAST = 4,
    GRAM_MOST = 32 /* voxels of a thread */
};

static int gram_run(int64_t count)
{
    const int64_t all = (int64_t)GRAM_BLOCKS * GRAM_AT_ONCE, run = (count + all - 1) / all;
    return run < GRAM_LEAST ? GRAM_LEAST : run > GRAM_MOST ? GRAM_MOST : (int)run;
}

/* The sums of one class of one voxel, in the order of r_gram. */
static __device__ __forceinline__ void gram_add(float (&own)[GRAM_CLASS], const float (&p)[SAMPLES],
                                                const float (&q)[SAMPLES])
{
    int at = 0;
#pragma unroll
    for (int ab = 0; ab < SAMPLES * SAMPLES; ab++)
        own[at++] += p[ab / SAMPLES] * q[ab % SAMPLES];
#pragma unroll
    for (int a = 0; a < SAMPLES; a++)
#pragma unroll
        for (int b = a; b < SAMPLES; b++)
            own[at++] += p[a] * p[b];
#pragma unroll
    for (int a = 0; a < SAMPLES; a++)
#pragma unroll
        for (int b = a; b < SAMPLES; b++)
            own[at++] += q[a] * q[b];
}

/* Both networks' samples of a lane's class at voxel i; n 0: zeros. */
static __device__ __forceinline__ void gram_samples(float (&p)[SAMPLES], float (&q)[SAMPLES],
                                                    const struct k_gauss *own, int64_t i, int64_t n, int odd)
{
    struct k_gauss_lanes l;
    float prob[2 * GAUSS_ROWS][K_LANES];
    k_gauss_probs(own, &l, i, n, prob);
#pragma unroll
    for (int s = 0; s < SAMPLES; s++) {
        float first = prob[2 * s][0], second = prob[2 * s + 1][0], mine = odd ? second : first;
        float other = __shfl_xor_sync(0xFFFFFFFFu, odd ? first : second, 1);
        p[s] = odd ? other : mine;
        q[s] = odd ? mine : other;
    }
}

/* Sums over the lanes of one class of 16 numbers, from own[s] on: lane 2t, or 2t + 1, gets the t-th. */
static __device__ __forceinline__ float sixteen(const float (&own)[GRAM_CLASS], int s, int lane)
{
    float v[16];
#pragma unroll
    for (int i = 0; i < 16; i++)
        v[i] = s + i < GRAM_CLASS ? own[s + i < GRAM_CLASS ? s + i : 0] : 0.0f;
    halve<8, 16>(v, lane);
    halve<4, 8>(v, lane);
    halve<2, 4>(v, lane);
    halve<1, 2>(v, lane);
    return v[0];
}

static __global__ void __launch_bounds__(LOOPS_THREADS, 2)
    reduce_gram(const __grid_constant__ struct r_gram args, int64_t count, int run, double *partial)
{
    enum { WARPS = LOOPS_THREADS / 32 };
    __shared__ struct k_gauss of[2];
    __shared__ float rows[WARPS][GRAM_SUMS];
    const int t = (int)threadIdx.x, lane = t % 32, warp = t / 32, odd = lane % 2;
    float own[GRAM_CLASS] = {0}, p[SAMPLES], q[SAMPLES];
    if (t < 2)
        of[t] = t ? args.q : args.p;
    __syncthreads();
    int64_t i = (int64_t)blockIdx.x * run * GRAM_AT_ONCE + t / 2;
    for (int r = 0; r < run; r++, i += GRAM_AT_ONCE) {
        gram_samples(p, q, &of[odd], i, i < count, odd);
        gram_add(own, p, q);
    }
#pragma unroll
    for (int s = 0; s < GRAM_CLASS; s += 16) {
        float sum = sixteen(own, s, lane);
        if (s + lane / 2 < GRAM_CLASS)
            rows[warp][odd * GRAM_CLASS + s + lane / 2] = sum;
    }
    __syncthreads();
    if (t >= GRAM_SUMS)
        return;
    double sum = 0;
    for (int w = 0; w < WARPS; w++)
        sum += (double)rows[w][t];
    partial[(int64_t)t * gridDim.x + blockIdx.x] = sum;
}

/* ---- gathering from far ------------------------------------------------------------------------ */

enum { FAR = 4, LINES_Z = 4, LINES_Y = 8 }; /* times larger; a warp has 32 lines along w under way */

static __global__ void __launch_bounds__(LOOPS_THREADS)
    map_resize_grad(const __grid_constant__ struct k_resize_grad args, int64_t count)
{
    const int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / 32;
    const int lane = (int)threadIdx.x % 32, zy[2] = {lane / LINES_Y, lane % LINES_Y};
    const int step[2] = {LINES_Z, LINES_Y}, c = args.grid.c;
    float sum[K_ROW] = {0};
    if (i >= count) /* whole warps */
        return;
    struct k_row r = k_row_at(i, i + 1, c);
    k_resize_gather(&args, &r, sum, zy, step);
#pragma unroll
    for (int j = 0; j < K_ROW; j++)
        for (int apart = 16; apart > 0; apart /= 2)
            sum[j] += __shfl_xor_sync(0xFFFFFFFFu, sum[j], apart);
    if (lane == 0)
        k_store_row(args.dx, args.dx_bf16, args.fresh, r.voxel * c + r.first, sum, r.width);
}

/* ---- kernels and launches -------------------------------------------------------------------- */

#define OWN_KERNEL(name, n, unroll)                                                                          \
    static __global__ void __launch_bounds__(LOOPS_THREADS)                                                  \
        reduce_##name(const __grid_constant__ struct r_##name args, int64_t count, double *partial)          \
    {                                                                                                        \
        reduce_own<n, unroll, struct r_##name, r_##name##_range>(&args, count, partial);                     \
    }
#define OWN_LAUNCH(name, ...)                                                                                \
    case REDUCE_##name:                                                                                      \
        reduce_##name<<<l->blocks, LOOPS_THREADS, 0, l->stream>>>(*(const struct r_##name *)args, l->count,  \
                                                                  l->partial);                               \
        break;

LOOPS_USUAL_MAPS(MAP_KERNEL)
LOOPS_USUAL_REDUCES(OWN_KERNEL)

void loops_usual_map(const struct loops_launch *l, int kernel, const void *args)
{
    switch (kernel) {
        LOOPS_USUAL_MAPS(MAP_LAUNCH)
    case KERNEL_resize_grad:
        map_resize_grad<<<(int)((l->count + LOOPS_THREADS / 32 - 1) / (LOOPS_THREADS / 32)), LOOPS_THREADS, 0,
                          l->stream>>>(*(const struct k_resize_grad *)args, l->count);
        break;
    }
}

int loops_usual_blocks(int reduction, int64_t count)
{
    const int64_t each = reduction == REDUCE_gram ? (int64_t)gram_run(count) * GRAM_AT_ONCE
                                                  : (int64_t)USUAL_RUN * LOOPS_THREADS;
    return (int)((count + each - 1) / each);
}

void loops_usual_reduce(const struct loops_launch *l, int reduction, const void *args)
{
    switch (reduction) {
        LOOPS_USUAL_REDUCES(OWN_LAUNCH)
    case REDUCE_gram:
        reduce_gram<<<l->blocks, LOOPS_THREADS, 0, l->stream>>>(*(const struct r_gram *)args, l->count,
                                                                gram_run(l->count), l->partial);
        break;
    }
}

/* ---- what is usual --------------------------------------------------------------------------- */

static int fits(const void *p, uintptr_t bytes)
{
    return (uintptr_t)p % bytes == 0;
}

static int usual_gauss(const struct k_gauss *g)
{
    return g->classes == USUAL_CLASSES && g->pairs == USUAL_PAIRS && g->rank == USUAL_RANK &&
           fits(g->mean, 8) && fits(g->diag, 8) && fits(g->factor, 16);
}

static int usual_grad(const struct k_gauss_grad *d)
{
    return fits(d->mean, 8) && fits(d->diag, 8) && fits(d->factor, 16);
}

static int usual_logits(const void *logits, int classes)
{
    return classes == USUAL_CLASSES && fits(logits, 8);
}

static int usual_branches(const struct k_branches *b, float *const *dlogits)
{
    int usual = b->classes == USUAL_CLASSES;
    for (int k = 0; k < b->n; k++)
        usual = usual && fits(b->logits[k], 8) && (!dlogits || fits(dlogits[k], 8));
    return usual;
}

int loops_usual_has_map(int kernel, const void *args)
{
    const struct k_mutual_grad *mutual = (const struct k_mutual_grad *)args;
    const struct k_pyramid_grad *pyramid = (const struct k_pyramid_grad *)args;
    const struct k_resize_grad *resize = (const struct k_resize_grad *)args;
    const struct k_ce_dice_grad *dice = (const struct k_ce_dice_grad *)args;
    const struct k_hard_label *hard = (const struct k_hard_label *)args;
    const struct k_sample_nll_grad *nll = (const struct k_sample_nll_grad *)args;
    const struct k_ged_grad *ged = (const struct k_ged_grad *)args;
    const struct k_patch *patch = (const struct k_patch *)args;
    switch (kernel) {
    case KERNEL_ce_dice_grad: return usual_logits(dice->logits, dice->classes) && fits(dice->dlogits, 8);
    case KERNEL_hard_label: return usual_logits(hard->logits, hard->classes);
    case KERNEL_sample_nll_grad: return usual_gauss(&nll->g) && usual_grad(&nll->d);
    case KERNEL_ged_grad:
        return usual_gauss(&ged->p) && usual_gauss(&ged->q) && usual_grad(&ged->d) && fits(ged->mix, 16);
    case KERNEL_patch: return patch->c == 1 && !(patch->noise_sd > 0);
    case KERNEL_mutual_grad: return usual_branches(&mutual->b, mutual->dlogits);
    case KERNEL_pyramid_grad: return usual_branches(&pyramid->b, pyramid->dlogits);
    case KERNEL_resize_grad: return resize->grid.to[0] >= FAR * resize->grid.from[0];
    }
    return 0;
}

int loops_usual_has_reduce(int reduction, const void *args)
{
    const struct r_ce_dice *dice = (const struct r_ce_dice *)args;
    const struct r_gram *gram = (const struct r_gram *)args;
    const struct r_pyramid *pyramid = (const struct r_pyramid *)args;
    const struct r_class_moments *moments = (const struct r_class_moments *)args;
    const struct r_proto_loss *proto = (const struct r_proto_loss *)args;
    switch (reduction) {
    case REDUCE_ce_dice: return usual_logits(dice->logits, dice->classes) && !dice->background;
    case REDUCE_sample_nll: return usual_gauss(&((const struct r_sample_nll *)args)->g);
    case REDUCE_gram:
        return usual_gauss(&gram->p) && usual_gauss(&gram->q) && gram->c0 == 0 && gram->c1 == USUAL_CLASSES;
    case REDUCE_mutual: return usual_branches(&((const struct r_mutual *)args)->b, NULL);
    case REDUCE_pyramid: /* of so many outputs that there are 12 sums */
        return pyramid->b.n == K_BRANCHES && usual_branches(&pyramid->b, NULL);
    case REDUCE_class_moments:
        return moments->classes == USUAL_CLASSES && moments->first == 0 && moments->order == K_ORDER(0) &&
               fits(moments->rows, 16);
    case REDUCE_proto_loss:
        return proto->classes == USUAL_CLASSES && proto->full == K_FULL(0) && fits(proto->features, 16) &&
               fits(proto->dfeatures, 16);
    case REDUCE_square_sum: return 1;
    }
    return 0;
}
