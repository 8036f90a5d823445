/* cuda_conv_times.cu - how long the convolutions of the V-Net take on a GPU, next to what products and bytes
 * alone would take: patches of 112 x 112 x 80, a batch of four and a single one.
 *
 *     make build/cuda_conv_times && build/cuda_conv_times [LAYER [BATCH [f32|tf32]]]
 *
 * LAYER is a part of a layer's name: those alone are timed.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <vector>

#include "device/cuda/context.cuh"

static void must(int code, const char *what)
{
    if (code == 0)
        return;
    printf("FAIL %s: %s\n", what, cudaGetErrorString((cudaError_t)code));
    exit(1);
}

static int64_t count_of(const struct tensor *t)
{
    return (int64_t)t->n * t->d * t->h * t->w * t->c;
}

static size_t bytes_of(const struct tensor *t)
{
    return (size_t)count_of(t) * (t->type == VALUE_F32 ? 4 : 2);
}

static uint16_t random_bf16(void)
{
    static uint64_t state = 1;
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    float f = (float)(state >> 40) / 8388608.0f - 1.0f;
    uint32_t u;
    memcpy(&u, &f, 4);
    return (uint16_t)(u >> 16);
}

struct layer {
    const char *name;
    enum conv_kind kind;
    int level, c_in, c_out; /* level of the input */
    int times;              /* in the V-Net */
};

static const struct layer layers[] = {
    {"first", CONV_3, 0, 1, 16, 1},        {"three 16", CONV_3, 0, 16, 16, 1},
    {"three 32", CONV_3, 1, 32, 32, 4},    {"three 64", CONV_3, 2, 64, 64, 6},
    {"three 128", CONV_3, 3, 128, 128, 6}, {"three 256", CONV_3, 4, 256, 256, 3},
    {"down 16", CONV_DOWN, 0, 16, 32, 1},  {"down 32", CONV_DOWN, 1, 32, 64, 1},
    {"down 64", CONV_DOWN, 2, 64, 128, 1}, {"down 128", CONV_DOWN, 3, 128, 256, 1},
    {"up 256", CONV_UP, 4, 256, 128, 1},   {"up 128", CONV_UP, 3, 128, 64, 1},
    {"up 64", CONV_UP, 2, 64, 32, 1},      {"up 32", CONV_UP, 1, 32, 16, 1},
    {"head", CONV_1, 0, 16, 2, 1},
};

struct timed {
    struct conv *v;
    struct conv_in in;
    struct conv_grad grad;
    struct tensor y, dx;
    struct conv_stats stats;
    struct conv_sums sums;
    float *bias, *dweight;
};

enum { FORWARD, FORWARD_STATS, DX, DX_SUMS, DWEIGHT, N_TIMES };
static const char *const names[N_TIMES] = {"forward", "+stats", "dx", "+sums", "dw"};

static void run_timed(const struct timed *t, int what)
{
    if (what == FORWARD || what == FORWARD_STATS)
        must(cuda_conv_forward(t->v, &t->in, t->bias, &t->y, what == FORWARD ? NULL : &t->stats), "forward");
    else
        must(cuda_conv_backward(t->v, &t->grad, &t->in, what == DWEIGHT ? NULL : &t->dx, CONV_SAME_X,
                                what == DWEIGHT ? t->dweight : NULL, NULL, what == DX_SUMS ? &t->sums : NULL),
             "backward");
}

static float time_of(const struct timed *t, int what)
{
    enum { RUNS = 20 };
    cudaEvent_t begin, end;
    float ms;
    cudaEventCreate(&begin);
    cudaEventCreate(&end);
    for (int i = 0; i < 3; i++)
        run_timed(t, what);
    cudaEventRecord(begin);
    for (int i = 0; i < RUNS; i++)
        run_timed(t, what);
    cudaEventRecord(end);
    must(cudaEventSynchronize(end), "timing");
    cudaEventElapsedTime(&ms, begin, end);
    return ms / RUNS;
}

static void *noise(size_t bytes, int bf16)
{
    std::vector<uint16_t> half(1 << 20);
    void *p;
    must(cudaMalloc(&p, bytes), "memory");
    for (size_t i = 0; i < half.size(); i++)
        half[i] = bf16 || i % 2 ? random_bf16() : 0;
    for (size_t at = 0; at < bytes; at += 2 * half.size()) {
        size_t some = bytes - at < 2 * half.size() ? bytes - at : 2 * half.size();
        must(cudaMemcpy((char *)p + at, half.data(), some, cudaMemcpyHostToDevice), "upload");
    }
    return p;
}

static struct tensor noise_tensor(enum value_type type, int n, int level, int c)
{
    struct tensor t = {NULL, type, n, 112 >> level, 112 >> level, 80 >> level, c};
    t.data = noise(bytes_of(&t), type == VALUE_BF16);
    return t;
}

static void time_layer(struct cuda_context *c, const struct layer *l, int n, double total[N_TIMES])
{
    enum value_type type = c->precision == PRECISION_BF16 ? VALUE_BF16 : VALUE_F32;
    int out_level = l->kind == CONV_DOWN ? l->level + 1 : l->kind == CONV_UP ? l->level - 1 : l->level;
    int taps = l->kind == CONV_3 ? 27 : l->kind == CONV_1 ? 1 : 8, first = l->c_in == 1;
    struct timed t = {};
    struct tensor x = noise_tensor(first ? VALUE_F32 : type, n, l->level, l->c_in);
    t.y = noise_tensor(l->kind == CONV_1 ? VALUE_F32 : type, n, out_level, l->c_out);
    struct tensor g = noise_tensor(t.y.type, n, out_level, l->c_out);
    t.dx = noise_tensor(x.type, n, l->level, l->c_in);
    float *tables = (float *)noise(8 * 4 * 256 * sizeof(float), 0);
    size_t weights = (size_t)taps * l->c_in * l->c_out;
    float *weight = (float *)noise(weights * sizeof(float), 0);
    t.dweight = (float *)noise(weights * sizeof(float), 0);
    t.bias = tables;
    t.in.count = 1;
    t.in.from[0].y = x;
    if (!first) {
        t.in.from[0].scale = tables;
        t.in.from[0].shift = tables + 1024;
        t.in.from[0].relu = 1;
    }
    t.grad.g = g;
    if (l->kind != CONV_1) {
        t.grad.y.y = t.y;
        t.grad.y.scale = tables + 2048;
        t.grad.y.shift = tables + 3072;
        t.grad.y.relu = 1;
        t.grad.p = tables + 4096;
        t.grad.q = tables + 5120;
        t.grad.r = tables + 6144;
    }
    must(cudaMalloc((void **)&t.stats.mean, 512 * sizeof(double)), "memory");
    t.stats.m2 = t.stats.mean + 256;
    t.sums.mean = tables;
    must(cudaMalloc((void **)&t.sums.sums, 2 * 4 * 256 * sizeof(double)), "memory");
    struct conv_shape s = {l->kind, n, x.d, x.h, x.w, l->c_in, l->c_out, x.type, t.y.type, 1, !first};
    must(cuda_conv_new(c, &t.v, &s), "conv_new");
    struct conv_weight list = {t.v, weight};
    must(cuda_conv_pack(c, &list, 1), "conv_pack");
    const struct tensor *coarse = l->kind == CONV_UP ? &x : &t.y;
    double flops = 2.0 * (double)count_of(coarse) / coarse->c * (double)weights;
    double bytes = (double)bytes_of(&x) + (double)bytes_of(&t.y);
    printf("%-10s n=%d %8.2f GFLOP %7.1f MB, floor %.3f / %.3f ms:", l->name, n, flops * 1e-9, bytes * 1e-6,
           flops / 600e12 * 1e3, bytes / 4.3e12 * 1e3);
    for (int what = 0; what < N_TIMES; what++) {
        if ((what == DX || what == DX_SUMS) && first)
            continue;
        float ms = time_of(&t, what);
        total[what] += (double)ms * l->times;
        printf(" %s %.3f (%.0f TF)", names[what], ms, flops / ms * 1e-9);
    }
    printf("\n");
    fflush(stdout);
    cuda_conv_free(t.v);
    void *all[] = {x.data, t.y.data, g.data, t.dx.data, tables, weight, t.dweight, t.stats.mean, t.sums.sums};
    for (void *p : all)
        cudaFree(p);
}

static void time_all(struct cuda_context *c, int n, const char *only)
{
    double total[N_TIMES] = {0};
    for (const struct layer &l : layers)
        if (strstr(l.name, only))
            time_layer(c, &l, n, total);
    printf("V-Net of %d items: forward %.3f ms, with moments %.3f, dx %.3f, with sums %.3f, dweight %.3f; "
           "a step %.3f\n",
           n, total[FORWARD], total[FORWARD_STATS], total[DX], total[DX_SUMS], total[DWEIGHT],
           total[FORWARD_STATS] + total[DX_SUMS] + total[DWEIGHT]);
}

int main(int n, char **arg)
{
    struct cuda_context c = {};
    const char *only = n > 1 ? arg[1] : "";
    c.precision = n < 4 ? PRECISION_BF16 : strcmp(arg[3], "tf32") == 0 ? PRECISION_TF32 : PRECISION_F32;
    for (int batch = 4; batch > 0; batch -= 3)
        if (n < 3 || atoi(arg[2]) == batch)
            time_all(&c, batch, only);
    return 0;
}
