/* cuda_conv_check.cu - the convolutions of the GPU against plain loops in double over the same rounded
 * operands. A program of its own, for a first visit to a GPU; cuda_conv_times.cu takes the times.
 *
 *     make build/cuda_conv_check && build/cuda_conv_check
 * An argument says how many random cases of each kind are tried (24), a second which precision is (1: f32,
 * 2: bf16, 3: tf32; all).
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <vector>

#include "device/cuda/context.cuh"
#include "device/kernels_norm.h"

static int failures;

static void must(int code, const char *what)
{
    if (code == 0)
        return;
    printf("FAIL %s: %s\n", what, cudaGetErrorString((cudaError_t)code));
    exit(1);
}

/* ---- numbers ------------------------------------------------------------------------------------------- */

static uint64_t state = 1;

static float random_between(float lo, float hi)
{
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return lo + (hi - lo) * (float)(state >> 40) / 16777216.0f;
}

static int random_below(int n)
{
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (int)((state >> 33) % (uint64_t)n);
}

static uint16_t to_bf16(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

static float from_bf16(uint16_t h)
{
    uint32_t u = (uint32_t)h << 16;
    float f;
    memcpy(&f, &u, 4);
    return f;
}

/* To ten bits of mantissa, ties away from 0; not for what is not finite. */
static float to_tf32(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    u = (u + 0x1000u) & 0xffffe000u;
    memcpy(&f, &u, 4);
    return f;
}

/* A tensor on both sides; the host's copy holds floats. */
struct both {
    struct tensor t;
    std::vector<float> host;
};

static int64_t count_of(const struct tensor *t)
{
    return (int64_t)t->n * t->d * t->h * t->w * t->c;
}

static size_t bytes_of(const struct tensor *t)
{
    return (size_t)count_of(t) * (t->type == VALUE_F32 ? 4 : 2);
}

static void up(struct both *b)
{
    size_t n = b->host.size();
    if (b->t.type == VALUE_F32) {
        must(cudaMemcpy(b->t.data, b->host.data(), n * 4, cudaMemcpyHostToDevice), "upload");
        return;
    }
    std::vector<uint16_t> half(n);
    for (size_t i = 0; i < n; i++)
        half[i] = to_bf16(b->host[i]);
    must(cudaMemcpy(b->t.data, half.data(), n * 2, cudaMemcpyHostToDevice), "upload");
    for (size_t i = 0; i < n; i++)
        b->host[i] = from_bf16(half[i]);
}

static void down(struct both *b)
{
    size_t n = b->host.size();
    std::vector<uint16_t> half(n);
    must(cudaDeviceSynchronize(), "sync");
    if (b->t.type == VALUE_F32) {
        must(cudaMemcpy(b->host.data(), b->t.data, n * 4, cudaMemcpyDeviceToHost), "download");
        return;
    }
    must(cudaMemcpy(half.data(), b->t.data, n * 2, cudaMemcpyDeviceToHost), "download");
    for (size_t i = 0; i < n; i++)
        b->host[i] = from_bf16(half[i]);
}

static struct both make(enum value_type type, int n, int d, int h, int w, int c, float lo, float hi)
{
    struct both b;
    b.t = tensor{NULL, type, n, d, h, w, c};
    b.host.resize((size_t)count_of(&b.t));
    must(cudaMalloc(&b.t.data, bytes_of(&b.t)), "memory");
    for (float &f : b.host)
        f = random_between(lo, hi);
    up(&b);
    return b;
}

static struct both floats(int64_t n, float lo, float hi)
{
    return make(VALUE_F32, 1, 1, 1, 1, (int)n, lo, hi);
}

static float *data_of(const struct both *b)
{
    return (float *)b->t.data;
}

/* ---- one case ------------------------------------------------------------------------------------------ */

struct one {
    enum conv_kind kind;
    int n, d, h, w, c_in, c_out;
    int sources, norm, relu; /* of the input */
    int grad;                /* 0: G alone, 1: behind relu, 2: p, q, r */
    int dx, add;
    int f32_out, f32_dx, f32_in;
    int mixed; /* 1: the gradient is not of the output's type but of the precision's */
};

struct set {
    struct one o;
    enum precision precision;
    int taps;
    struct both x[2], scale[2], shift[2], y, g, p, q, r, y_scale, y_shift, dx, weight, bias, dweight, dbias;
    std::vector<float> dx_before, dweight_before, dbias_before;
    double *mean, *m2, *norm_sums;
    struct both center; /* of the channels that norm_sums are of */
    int with_sums;
    std::vector<double> moments, sums;
    struct both tables, grads; /* what is made of them, see tables_at() and grads_at() */
    std::vector<float> tables_before, grads_before;
    double *statistics;           /* (2, c) of each */
    std::vector<double> a, dy, w; /* operands */
    std::vector<double> dy_added; /* dy as dbias adds it up: tf32 is for products alone */
    struct conv_in in;
    struct conv_grad grad;
};

static double operand(const struct set *s, float f)
{
    return s->precision == PRECISION_BF16   ? from_bf16(to_bf16(f))
           : s->precision == PRECISION_TF32 ? to_tf32(f)
                                            : f;
}

static void set_up(struct set *s, const struct one *o, enum precision precision)
{
    enum value_type type = precision == PRECISION_BF16 ? VALUE_BF16 : VALUE_F32;
    enum value_type out = o->f32_out ? VALUE_F32 : type;
    int up2 = o->kind == CONV_UP ? 2 : 1, down2 = o->kind == CONV_DOWN ? 2 : 1;
    int d = o->d * up2 / down2, h = o->h * up2 / down2, w = o->w * up2 / down2;
    int64_t nci = (int64_t)o->n * o->c_in, nco = (int64_t)o->n * o->c_out;
    s->o = *o;
    s->precision = precision;
    s->taps = o->kind == CONV_3 ? 27 : o->kind == CONV_1 ? 1 : 8;
    s->in = conv_in{};
    s->in.count = o->sources;
    for (int i = 0; i < o->sources; i++) {
        s->x[i] = make(o->f32_in ? VALUE_F32 : type, o->n, o->d, o->h, o->w, o->c_in, -1, 1);
        s->scale[i] = floats(nci, 0.5f, 1.5f);
        s->shift[i] = floats(nci, -0.5f, 0.5f);
        for (int64_t k = 0; o->norm == 2 && k < nci; k += 2)
            s->scale[i].host[(size_t)k] = s->shift[i].host[(size_t)k] = 0;
        up(&s->scale[i]);
        up(&s->shift[i]);
        s->in.from[i].y = s->x[i].t;
        s->in.from[i].scale = o->norm ? data_of(&s->scale[i]) : NULL;
        s->in.from[i].shift = o->norm ? data_of(&s->shift[i]) : NULL;
        s->in.from[i].relu = o->relu;
    }
    s->y = make(out, o->n, d, h, w, o->c_out, -1, 1);
    s->g = make(o->mixed ? type : out, o->n, d, h, w, o->c_out, -1, 1);
    s->dx = make(o->f32_dx ? VALUE_F32 : type, o->n, o->d, o->h, o->w, o->c_in, -1, 1);
    s->weight = floats((int64_t)s->taps * o->c_in * o->c_out, -1, 1);
    s->dweight = floats((int64_t)s->taps * o->c_in * o->c_out, -1, 1);
    s->bias = floats(o->c_out, -1, 1);
    s->dbias = floats(o->c_out, -1, 1);
    s->p = floats(nco, 0.5f, 1.5f);
    s->q = floats(nco, -0.1f, 0.1f);
    s->r = floats(nco, -0.1f, 0.1f);
    s->y_scale = floats(nco, 0.5f, 1.5f);
    s->y_shift = floats(nco, -0.5f, 0.5f);
    s->grad = conv_grad{};
    s->grad.g = s->g.t;
    if (o->grad > 0) {
        s->grad.y.y = s->y.t;
        s->grad.y.relu = 1;
    }
    if (o->grad > 1) {
        s->grad.y.scale = data_of(&s->y_scale);
        s->grad.y.shift = data_of(&s->y_shift);
        s->grad.p = data_of(&s->p);
        s->grad.q = data_of(&s->q);
        s->grad.r = data_of(&s->r);
    }
    s->dx_before = s->dx.host;
    s->dweight_before = s->dweight.host;
    s->dbias_before = s->dbias.host;
    must(cudaMalloc((void **)&s->mean, 2 * (size_t)o->c_out * sizeof(double)), "memory");
    s->m2 = s->mean + o->c_out;
    s->moments.resize(2 * (size_t)o->c_out);
    s->center = floats(o->c_in, -0.5f, 0.5f);
    s->with_sums = o->dx && s->dx.t.type == s->x[0].t.type;
    s->sums.resize(2 * (size_t)nci);
    must(cudaMalloc((void **)&s->norm_sums, s->sums.size() * sizeof(double)), "memory");
    s->tables = floats((5 + 2 * o->n) * o->c_out, 0.1f, 1.0f);
    s->grads = floats((3 + 3 * o->n) * o->c_in, 0.1f, 1.0f);
    s->tables_before = s->tables.host;
    s->grads_before = s->grads.host;
    std::vector<double> half(2 * (size_t)(o->c_out + o->c_in), 0.5);
    must(cudaMalloc((void **)&s->statistics, half.size() * sizeof(double)), "memory");
    must(cudaMemcpy(s->statistics, half.data(), half.size() * sizeof(double), cudaMemcpyHostToDevice),
         "upload");
}

/* Batch norm's tables in a row: gamma, beta, running mean and variance, center (c), scale, shift (n, c). */
static struct k_norm_tables tables_at(const struct set *s, float *f, double *statistics,
                                      const double *moments)
{
    struct k_norm_tables k = {};
    int c = s->o.c_out;
    k.batch_mean = moments;
    k.batch_m2 = moments + c;
    k.momentum = 0.1;
    k.elements = (double)s->y.host.size() / c;
    k.gamma = f;
    k.beta = f + c;
    k.running_mean = f + 2 * c;
    k.running_var = f + 3 * c;
    k.items = s->o.n;
    k.c = c;
    k.mean = statistics;
    k.rstd = statistics + c;
    k.center = f + 4 * c;
    k.scale = f + 5 * c;
    k.shift = k.scale + s->o.n * c;
    return k;
}

/* Likewise: gamma, its gradient, that of beta (c), p, q, r (n, c). */
static struct k_norm_grads grads_at(const struct set *s, float *f, double *statistics, const double *sums)
{
    struct k_norm_grads k = {};
    int c = s->o.c_in;
    k.sums = sums;
    k.mean = statistics;
    k.rstd = statistics + c;
    k.elements = (double)s->x[0].host.size() / c;
    k.gamma = f;
    k.items = s->o.n;
    k.c = c;
    k.dgamma = f + c;
    k.dbeta = f + 2 * c;
    k.p = f + 3 * c;
    k.q = k.p + s->o.n * c;
    k.r = k.q + s->o.n * c;
    return k;
}

static void tear_down(struct set *s)
{
    struct both *all[] = {&s->x[0],    &s->x[1],   &s->scale[0], &s->scale[1], &s->shift[0], &s->shift[1],
                          &s->y,       &s->g,      &s->p,        &s->q,        &s->r,        &s->y_scale,
                          &s->y_shift, &s->dx,     &s->weight,   &s->bias,     &s->dweight,  &s->dbias,
                          &s->center,  &s->tables, &s->grads};
    for (struct both *b : all)
        if (!b->host.empty())
            cudaFree(b->t.data);
    cudaFree(s->mean);
    cudaFree(s->norm_sums);
    cudaFree(s->statistics);
}

/* Runs everything and brings the results back. */
static void run(struct cuda_context *c, struct set *s)
{
    const struct one *o = &s->o;
    struct conv_shape shape = {o->kind,  o->n + 1,       o->d,        o->h, o->w, o->c_in,
                               o->c_out, s->x[0].t.type, s->y.t.type, 1,    o->dx};
    struct k_norm_tables tables = tables_at(s, data_of(&s->tables), s->statistics, s->mean);
    struct k_norm_grads grads = grads_at(s, data_of(&s->grads), s->statistics + 2 * o->c_out, s->norm_sums);
    struct conv_stats stats = {s->mean, s->m2, &tables};
    struct conv_sums sums = {o->sources - 1, data_of(&s->center), s->norm_sums, &grads};
    struct conv *v;
    must(cuda_conv_new(c, &v, &shape), "conv_new");
    struct conv_weight list = {v, data_of(&s->weight)};
    must(cuda_conv_pack(c, &list, 1), "conv_pack");
    must(cuda_conv_forward(v, &s->in, data_of(&s->bias), &s->y.t, &stats), "conv_forward");
    must(cuda_conv_backward(v, &s->grad, &s->in, o->dx ? &s->dx.t : NULL,
                            o->add ? CONV_ADD_DX | CONV_ADD_WEIGHT : CONV_SAME_X, data_of(&s->dweight),
                            data_of(&s->dbias), s->with_sums ? &sums : NULL),
         "conv_backward");
    must(cudaDeviceSynchronize(), "running");
    down(&s->y);
    down(&s->dx);
    down(&s->dweight);
    down(&s->dbias);
    down(&s->tables);
    down(&s->grads);
    must(cudaMemcpy(s->moments.data(), s->mean, s->moments.size() * sizeof(double), cudaMemcpyDeviceToHost),
         "moments");
    must(cudaMemcpy(s->sums.data(), s->norm_sums, s->sums.size() * sizeof(double), cudaMemcpyDeviceToHost),
         "sums");
    cuda_conv_free(v);
}

/* ---- the oracle ---------------------------------------------------------------------------------------- */

static void make_operands(struct set *s)
{
    const struct one *o = &s->o;
    size_t item = s->x[0].host.size() / (size_t)o->n, out_item = s->y.host.size() / (size_t)o->n;
    s->a.resize(s->x[0].host.size());
    for (size_t i = 0; i < s->a.size(); i++) {
        float sum = 0;
        size_t at = i / item * (size_t)o->c_in + i % (size_t)o->c_in;
        for (int k = 0; k < o->sources; k++) {
            float v = s->x[k].host[i];
            if (o->norm) {
                v = v * s->scale[k].host[at];
                v = v + s->shift[k].host[at];
            }
            sum += o->relu && v < 0 ? 0 : v;
        }
        s->a[i] = operand(s, sum);
    }
    s->dy.resize(s->y.host.size());
    s->dy_added.resize(s->y.host.size());
    for (size_t i = 0; i < s->dy.size(); i++) {
        size_t at = i / out_item * (size_t)o->c_out + i % (size_t)o->c_out;
        volatile float v = s->g.host[i], y = s->y.host[i], normed = y, part;
        if (o->grad > 1) {
            normed = y * s->y_scale.host[at];
            normed = normed + s->y_shift.host[at];
        }
        if (o->grad > 0 && !(normed > 0))
            v = 0;
        if (o->grad > 1) {
            v = v * s->p.host[at];
            part = s->q.host[at] * y;
            part = part + s->r.host[at];
            v = v + part;
        }
        s->dy[i] = operand(s, v);
        s->dy_added[i] = s->precision == PRECISION_TF32 ? v : s->dy[i];
    }
    s->w.resize(s->weight.host.size());
    for (size_t i = 0; i < s->w.size(); i++)
        s->w[i] = operand(s, s->weight.host[i]);
}

struct truth {
    std::vector<double> y, dx, dweight;
};

static void touch(const struct set *s, struct truth *t, int64_t in, int64_t out, int tap)
{
    int ci = s->o.c_in, co = s->o.c_out;
    for (int i = 0; i < ci; i++)
        for (int j = 0; j < co; j++) {
            int64_t at =
                s->o.kind == CONV_UP ? (int64_t)(tap * co + j) * ci + i : (int64_t)(tap * ci + i) * co + j;
            double a = s->a[in * ci + i], g = s->dy[out * co + j], w = s->w[at];
            t->y[out * co + j] += a * w;
            t->dx[in * ci + i] += g * w;
            t->dweight[at] += a * g;
        }
}

static void convolve(const struct set *s, struct truth *t)
{
    const struct tensor *x = &s->x[0].t, *y = &s->y.t;
    int edge = s->o.kind == CONV_3 ? 3 : s->o.kind == CONV_1 ? 1 : 2;
    const struct tensor *small = s->o.kind == CONV_UP ? x : y, *big = s->o.kind == CONV_UP ? y : x;
    int step = edge == 2 ? 2 : 1, pad = edge == 3 ? 1 : 0;
    for (int64_t v = 0; v < (int64_t)small->n * small->d * small->h * small->w; v++)
        for (int tap = 0; tap < s->taps; tap++) {
            int64_t xx = v % small->w * step + tap % edge - pad;
            int64_t yy = v / small->w % small->h * step + tap / edge % edge - pad;
            int64_t zz = v / small->w / small->h % small->d * step + tap / edge / edge - pad;
            int64_t n = v / small->w / small->h / small->d;
            if (xx < 0 || yy < 0 || zz < 0 || xx >= big->w || yy >= big->h || zz >= big->d)
                continue;
            int64_t other = ((n * big->d + zz) * big->h + yy) * big->w + xx;
            touch(s, t, small == x ? v : other, small == x ? other : v, tap);
        }
}

/* ---- comparing ----------------------------------------------------------------------------------------- */

static double error_of(const std::vector<double> &want, const std::vector<float> &have)
{
    double error = 0, power = 1e-30;
    for (size_t i = 0; i < want.size(); i++) {
        error += (want[i] - have[i]) * (want[i] - have[i]);
        power += want[i] * want[i];
    }
    return error / power;
}

/* Returns 1 if the error is above what tests/test_conv.c allows; tensor cores cut off sums, so what they
 * have made may have 1e-9 here even if it is stored in float32. */
static int judge(const char *what, double error, double limit)
{
    if (error <= limit)
        return 0;
    printf("     %s: error %g > %g\n", what, error, limit);
    return 1;
}

static int judge_sums(const struct set *s)
{
    int bad = 0, co = s->o.c_out;
    size_t voxels = s->y.host.size() / (size_t)co;
    for (int c = 0; c < co; c++) {
        double mean = 0, m2 = 0, sum = s->dbias_before[(size_t)c], mass = 0;
        for (size_t i = (size_t)c; i < s->y.host.size(); i += (size_t)co) {
            mean += s->y.host[i];
            sum += s->dy_added[i];
            mass += fabs(s->dy_added[i]);
        }
        mean /= (double)voxels;
        for (size_t i = (size_t)c; i < s->y.host.size(); i += (size_t)co)
            m2 += (s->y.host[i] - mean) * (s->y.host[i] - mean);
        bad |= judge("mean", fabs(s->moments[(size_t)c] - mean) / (1 + sqrt(m2 / (double)voxels)), 1e-6);
        bad |= judge("m2", fabs(s->moments[(size_t)(co + c)] - m2), 1e-5 * m2 + 1e-9);
        bad |= judge("dbias", fabs(sum - s->dbias.host[(size_t)c]) / (1 + mass), 1e-6);
    }
    return bad;
}

/* Batch norm's sums, of dx as it is stored. */
static int judge_norm(const struct set *s)
{
    int of = s->o.sources - 1, c = s->o.c_in, bad = 0;
    size_t item = s->dx.host.size() / (size_t)s->o.n, all = s->sums.size() / 2;
    std::vector<double> want(2 * all), mass(2 * all);
    for (size_t i = 0; s->with_sums && i < s->dx.host.size(); i++) {
        size_t channel = i % (size_t)c, at = i / item * (size_t)c + channel;
        volatile float y = s->x[of].host[i], u = y;
        if (s->o.norm) {
            u = y * s->scale[of].host[at];
            u = u + s->shift[of].host[at];
        }
        double kept = !s->o.relu || u > 0 ? s->dx.host[i] : 0, far = y - s->center.host[channel];
        want[at] += kept;
        want[all + at] += kept * far;
        mass[at] += fabs(kept);
        mass[all + at] += fabs(kept * far);
    }
    for (size_t i = 0; s->with_sums && i < 2 * all; i++)
        bad |= judge("norm sums", fabs(s->sums[i] - want[i]) / (1 + mass[i]), 1e-6);
    return bad;
}

static int judge_made(const char *what, const std::vector<float> &want, const std::vector<float> &have)
{
    int bad = 0;
    for (size_t i = 0; i < want.size(); i++)
        bad |= judge(what, fabs((double)want[i] - have[i]) / (1 + fabs((double)want[i])), 1e-6);
    return bad;
}

/* What was made of moments and sums, against the same made of them here. */
static int judge_then(const struct set *s)
{
    std::vector<float> tables = s->tables_before, grads = s->grads_before;
    std::vector<double> some(2 * (size_t)s->o.c_out), half(2 * (size_t)s->o.c_in, 0.5);
    struct k_norm_tables t = tables_at(s, tables.data(), some.data(), s->moments.data());
    struct k_norm_grads g = grads_at(s, grads.data(), half.data(), s->sums.data());
    k_norm_tables_range(&t, 0, s->o.c_out);
    if (s->with_sums)
        k_norm_grads_range(&g, 0, s->o.c_in);
    return judge_made("tables", tables, s->tables.host) | judge_made("grads", grads, s->grads.host);
}

static void check(struct cuda_context *c, const struct one *o)
{
    struct set s;
    struct truth t;
    static const char *const names[] = {"", "f32 ", "bf16", "tf32"};
    set_up(&s, o, c->precision);
    run(c, &s);
    make_operands(&s);
    t.y.resize(s.y.host.size());
    for (size_t i = 0; i < t.y.size(); i++)
        t.y[i] = s.bias.host[i % (size_t)o->c_out];
    t.dx.assign(s.dx_before.begin(), s.dx_before.end());
    t.dweight.assign(s.dweight_before.begin(), s.dweight_before.end());
    if (!o->add) {
        t.dx.assign(t.dx.size(), 0);
        t.dweight.assign(t.dweight.size(), 0);
    }
    convolve(&s, &t);
    double f32 = c->precision == PRECISION_F32 ? 1e-12 : 1e-9;
    double ey = error_of(t.y, s.y.host), ew = error_of(t.dweight, s.dweight.host);
    double ex = o->dx ? error_of(t.dx, s.dx.host) : 0;
    int bad = judge("output", ey, s.y.t.type == VALUE_BF16 ? 1e-5 : f32);
    bad |= judge("dx", ex, s.dx.t.type == VALUE_BF16 ? 1e-5 : f32);
    bad |= judge("dweight", ew, f32) | judge_sums(&s) | judge_norm(&s) | judge_then(&s);
    printf("%s %s kind %d %dx%dx%dx%d %d->%d sources %d norm %d relu %d grad %d add %d f32 %d%d%d: "
           "y %.1e dx %.1e dw %.1e\n",
           bad ? "FAIL" : "PASS", names[c->precision], o->kind, o->n, o->d, o->h, o->w, o->c_in, o->c_out,
           o->sources, o->norm, o->relu, o->grad, o->add, o->f32_out, o->f32_dx, o->f32_in, ey, ex, ew);
    fflush(stdout);
    failures += bad;
    tear_down(&s);
}

/* ---- cases --------------------------------------------------------------------------------------------- */

static const struct one cases[] = {
    {CONV_3, 1, 3, 40, 40, 16, 16, 1, 1, 1, 2, 1, 0, 0, 0, 0},
    {CONV_3, 2, 2, 30, 50, 1, 16, 1, 0, 0, 2, 0, 0, 0, 0, 1},
    {CONV_3, 1, 2, 30, 40, 2, 8, 1, 1, 1, 2, 1, 0, 0, 0, 0},
    {CONV_3, 2, 9, 9, 17, 8, 16, 2, 1, 1, 2, 1, 1, 0, 0, 0},
    {CONV_3, 2, 4, 4, 4, 130, 70, 2, 1, 1, 2, 1, 0, 0, 0, 0},
    {CONV_3, 2, 2, 2, 2, 256, 256, 1, 2, 1, 2, 1, 0, 0, 0, 0},
    {CONV_3, 1, 1, 3, 3, 256, 300, 1, 1, 1, 2, 1, 0, 0, 0, 0},
    {CONV_3, 2, 7, 7, 5, 32, 48, 1, 1, 1, 2, 1, 1, 0, 1, 0},
    {CONV_3, 1, 14, 14, 10, 32, 32, 1, 1, 1, 2, 1, 0, 0, 0, 0},
    {CONV_3, 1, 6, 6, 20, 40, 40, 2, 1, 1, 1, 1, 1, 1, 0, 0},
    {CONV_3, 1, 5, 6, 7, 1, 1, 1, 0, 0, 0, 1, 1, 1, 1, 1},
    {CONV_3, 2, 5, 6, 7, 1, 40, 1, 1, 1, 2, 1, 0, 0, 0, 0},
    {CONV_DOWN, 2, 16, 24, 28, 16, 32, 1, 1, 1, 2, 1, 1, 0, 0, 0},
    {CONV_DOWN, 2, 4, 4, 4, 64, 128, 1, 1, 1, 2, 1, 1, 0, 0, 0},
    {CONV_DOWN, 2, 10, 8, 8, 64, 1024, 1, 0, 0, 0, 1, 0, 1, 0, 0, 1}, /* a critic's: net/halving.h */
    {CONV_DOWN, 1, 6, 8, 4, 256, 4096, 1, 0, 0, 0, 1, 0, 1, 0, 0, 1},
    {CONV_DOWN, 1, 18, 14, 16, 2, 512, 1, 0, 0, 0, 1, 0, 1, 0, 0, 1},
    {CONV_DOWN, 2, 4, 6, 2, 5, 3, 2, 1, 1, 2, 1, 1, 0, 0, 0},
    {CONV_UP, 2, 8, 12, 14, 32, 16, 1, 1, 1, 2, 1, 0, 0, 0, 0},
    {CONV_UP, 2, 2, 2, 2, 256, 128, 1, 2, 1, 2, 1, 0, 0, 0, 0},
    {CONV_UP, 1, 3, 2, 5, 20, 7, 2, 2, 1, 1, 1, 1, 1, 1, 0},
    {CONV_1, 2, 20, 20, 20, 16, 2, 1, 2, 1, 0, 1, 0, 1, 0, 0},
    {CONV_1, 1, 1, 1, 5000, 16, 16, 1, 0, 1, 1, 1, 0, 1, 0, 0},
    {CONV_1, 2, 3, 5, 7, 24, 80, 1, 0, 1, 1, 1, 1, 1, 0, 0},
    {CONV_1, 2, 6, 10, 12, 16, 18, 1, 0, 1, 0, 1, 1, 1, 0, 1},
    {CONV_1, 2, 6, 10, 12, 16, 16, 2, 1, 1, 2, 1, 0, 0, 0, 0},
    {CONV_1, 1, 1, 2, 4, 2048, 8192, 1, 0, 0, 0, 1, 0, 1, 0, 0}, /* 65,536 pairs of 16 channels */
    {CONV_3, 2, 17, 33, 20, 16, 16, 1, 1, 1, 2, 1, 0, 0, 0, 0},
    {CONV_3, 4, 7, 7, 5, 64, 64, 1, 1, 1, 2, 1, 0, 0, 0, 0},
    {CONV_DOWN, 1, 32, 48, 32, 16, 32, 1, 1, 1, 2, 1, 0, 0, 0, 0},
    {CONV_UP, 2, 4, 6, 4, 64, 32, 2, 1, 1, 2, 1, 0, 0, 0, 0},
    {CONV_UP, 1, 7, 7, 5, 128, 64, 1, 1, 1, 2, 1, 1, 0, 0, 0},
    {CONV_3, 1, 1, 1, 700, 16, 8, 1, 1, 1, 2, 1, 0, 0, 0, 0},
    {CONV_UP, 1, 2, 3, 5, 16, 96, 1, 1, 1, 2, 1, 0, 0, 0, 0},
    {CONV_1, 2, 64, 64, 72, 8, 8, 1, 1, 1, 2, 1, 0, 0, 0, 0},
};

static struct one random_one(int kind)
{
    static const int channels[] = {1, 2, 3, 5, 16, 20, 32, 40};
    struct one o = {};
    o.kind = (enum conv_kind)kind;
    o.n = 1 + random_below(3);
    int *size[] = {&o.d, &o.h, &o.w};
    for (int i = 0; i < 3; i++)
        *size[i] = kind == CONV_DOWN ? 2 + 2 * random_below(3) : 1 + random_below(kind == CONV_UP ? 3 : 9);
    if (kind == CONV_3 && random_below(2))
        o.w = 13 + random_below(5);
    o.c_in = channels[random_below(8)];
    o.c_out = channels[random_below(8)];
    if (kind == CONV_3 && o.c_in * o.c_out > 600)
        o.d = 1 + o.d % 3;
    o.sources = 1 + random_below(2);
    o.norm = random_below(3);
    o.relu = random_below(2);
    o.grad = random_below(3);
    o.dx = random_below(4) > 0;
    o.add = random_below(2);
    o.f32_out = random_below(4) == 0;
    o.f32_dx = random_below(4) == 0;
    o.f32_in = random_below(4) == 0;
    return o;
}

/* The same bits twice, and not a number is seen. */
static void check_bits(struct cuda_context *c)
{
    static const struct one o = {CONV_3, 2, 9, 9, 17, 32, 32, 1, 1, 1, 2, 1, 0, 0, 0, 0};
    struct set s[2];
    for (int i = 0; i < 2; i++) {
        state = 7;
        set_up(&s[i], &o, c->precision);
        run(c, &s[i]);
    }
    int same = s[0].y.host == s[1].y.host && s[0].dx.host == s[1].dx.host &&
               s[0].dweight.host == s[1].dweight.host && s[0].moments == s[1].moments &&
               s[0].sums == s[1].sums;
    s[0].x[0].host[1000] = NAN;
    up(&s[0].x[0]);
    run(c, &s[0]);
    int seen = isnan(s[0].moments[0]) && isnan(s[0].moments[32]);
    printf("%s the same bits twice\n", same ? "PASS" : "FAIL");
    printf("%s not a number is seen\n", seen ? "PASS" : "FAIL");
    failures += !same + !seen;
    tear_down(&s[0]);
    tear_down(&s[1]);
}

/* Two layers at once give what they give one after the other. */
static void check_pair(struct cuda_context *c, int c_in, int middle, int c_out)
{
    struct both x = make(VALUE_BF16, 3, 5, 7, 9, c_in, -2, 2), scale = floats(3 * c_in, -1, 1);
    struct both shift = floats(3 * c_in, -1, 1), between = make(VALUE_BF16, 3, 5, 7, 9, middle, 0, 0);
    struct both one = make(VALUE_F32, 3, 5, 7, 9, c_out, 0, 0);
    struct both both = make(VALUE_F32, 3, 5, 7, 9, c_out, 1, 1);
    struct both w[2] = {floats(c_in * middle, -1, 1), floats(middle * c_out, -1, 1)};
    struct both bias[2] = {floats(middle, -1, 1), floats(c_out, -1, 1)};
    struct conv_shape shape[2] = {{CONV_1, 3, 5, 7, 9, c_in, middle, VALUE_BF16, VALUE_BF16, 0, 0},
                                  {CONV_1, 3, 5, 7, 9, middle, c_out, VALUE_BF16, VALUE_F32, 0, 0}};
    struct conv_in from = {1, {{x.t, data_of(&scale), data_of(&shift), 1}}};
    struct conv_in next = {1, {{between.t, NULL, NULL, 1}}};
    struct conv *v[2];
    int made = 0;
    for (int i = 0; i < 2; i++) {
        must(cuda_conv_new(c, &v[i], &shape[i]), "conv_new");
        struct conv_weight list = {v[i], data_of(&w[i])};
        must(cuda_conv_pack(c, &list, 1), "conv_pack");
    }
    must(cuda_conv_forward(v[0], &from, data_of(&bias[0]), &between.t, NULL), "conv_forward");
    must(cuda_conv_forward(v[1], &next, data_of(&bias[1]), &one.t, NULL), "conv_forward");
    must(cuda_conv_pair(v[0], &from, data_of(&bias[0]), v[1], data_of(&bias[1]), &both.t, &made),
         "conv_pair");
    must(cudaDeviceSynchronize(), "running");
    down(&one);
    down(&both);
    int right = made == (c->precision == PRECISION_BF16) && (!made || one.host == both.host);
    printf("%s a pair %d -> %d -> %d%s\n", right ? "PASS" : "FAIL", c_in, middle, c_out,
           made ? "" : ", not made");
    failures += !right;
    struct both *all[] = {&x, &scale, &shift, &between, &one, &both, &w[0], &w[1], &bias[0], &bias[1]};
    for (struct both *b : all)
        cudaFree(b->t.data);
    cuda_conv_free(v[0]);
    cuda_conv_free(v[1]);
}

static void check_all(struct cuda_context *c, int each)
{
    for (const struct one &o : cases)
        check(c, &o);
    for (int kind = CONV_3; kind <= CONV_1; kind++)
        for (int i = 0; i < each; i++) {
            struct one o = random_one(kind);
            check(c, &o);
        }
    check_bits(c);
    check_pair(c, 16, 16, 2);
    check_pair(c, 16, 16, 14);
    check_pair(c, 5, 7, 3);
}

int main(int n, char **arg)
{
    int each = n > 1 ? atoi(arg[1]) : 24;
    struct cuda_context c = {};
    static const enum precision all[] = {PRECISION_BF16, PRECISION_TF32, PRECISION_F32};
    for (enum precision p : all) {
        c.precision = p;
        if (n < 3 || p == atoi(arg[2]))
            check_all(&c, each);
    }
    printf("%s: %d failures\n", failures ? "FAIL" : "PASS", failures);
    return failures > 0;
}
