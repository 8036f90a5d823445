/* test_conv.c - the four convolutions of the CPU device, all directions, against plain loops in double
 * over the same rounded operands; every level of the processor, f32 and bf16, any number of threads. */
#include "test.h"

#include <math.h>

#include "base/rng.h"
#include "device/conv.h"
#include "device/isa/levels.h"

enum { NO_NORM, NORM, NORM_DROPOUT };

struct one {
    enum conv_kind kind;
    int n, d, h, w, c_in, c_out;
    int sources, norm, relu; /* of the input */
    int grad;                /* 0: G alone, 1: G behind relu, 2: p, q, r */
    int dx, accumulate;
    int f32_out; /* output and its gradient in F32 even if the device computes in bf16 */
};

/* ---- numbers ------------------------------------------------------------------------------------- */

static float bf16_round(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    u = (u + 0x7fffu + ((u >> 16) & 1u)) & 0xffff0000u;
    memcpy(&f, &u, 4);
    return f;
}

static float value_at(const struct tensor *t, int64_t i)
{
    if (t->type == VALUE_F32)
        return ((const float *)t->data)[i];
    uint32_t u = (uint32_t)((const uint16_t *)t->data)[i] << 16;
    float f;
    memcpy(&f, &u, 4);
    return f;
}

static void set_value(const struct tensor *t, int64_t i, float f)
{
    if (t->type == VALUE_F32) {
        ((float *)t->data)[i] = f;
        return;
    }
    f = bf16_round(f);
    uint32_t u;
    memcpy(&u, &f, 4);
    ((uint16_t *)t->data)[i] = (uint16_t)(u >> 16);
}

static void *get(struct device *dev, size_t bytes)
{
    void *p = dev->ops->alloc(dev, bytes);
    assert_non_null(p);
    assert_int_equal((uintptr_t)p % 64, 0);
    return p;
}

static struct tensor random_tensor(struct device *dev, enum value_type type, int n, int d, int h, int w,
                                   int c, struct rng *r)
{
    struct tensor t = {.type = type, .n = n, .d = d, .h = h, .w = w, .c = c};
    t.data = get(dev, (size_t)tensor_count(&t) * value_bytes(type));
    for (int64_t i = 0; i < tensor_count(&t); i++)
        set_value(&t, i, rng_between(r, -1, 1));
    return t;
}

static float *random_floats(struct device *dev, int64_t n, float lo, float hi, struct rng *r)
{
    float *f = get(dev, (size_t)n * sizeof *f);
    for (int64_t i = 0; i < n; i++)
        f[i] = rng_between(r, lo, hi);
    return f;
}

static double nmse(const double *want, const double *have, int64_t n)
{
    double error = 0, power = 1e-30;
    for (int64_t i = 0; i < n; i++) {
        error += (want[i] - have[i]) * (want[i] - have[i]);
        power += want[i] * want[i];
    }
    return error / power;
}

/* ---- one convolution with its operands ------------------------------------------------------------- */

struct set {
    struct one o;
    struct device *dev;
    int bf16, taps;
    struct conv_in x;
    struct conv_grad g;
    struct tensor y, dx;
    float *weight, *bias, *dweight, *dbias;
    int64_t n_weights;
    double *mean, *m2;
    double *before; /* of dx */
    float *center;  /* (c_in): mean for the sums over dx */
    double *sums;   /* (2, n, c_in): of the last source */
};

static struct conv_source random_source(struct device *dev, const struct one *o, enum value_type type,
                                        struct rng *r)
{
    struct conv_source s = {.y = random_tensor(dev, type, o->n, o->d, o->h, o->w, o->c_in, r),
                            .relu = o->relu};
    if (o->norm == NO_NORM)
        return s;
    float *scale = random_floats(dev, (int64_t)o->n * o->c_in, 0.5f, 1.5f, r);
    float *shift = random_floats(dev, (int64_t)o->n * o->c_in, -0.5f, 0.5f, r);
    for (int i = 0; o->norm == NORM_DROPOUT && i < o->n * o->c_in; i++)
        if (rng_below(r, 2))
            scale[i] = shift[i] = 0;
    s.scale = scale;
    s.shift = shift;
    return s;
}

static int out_size(const struct one *o, int size)
{
    return o->kind == CONV_DOWN ? size / 2 : o->kind == CONV_UP ? size * 2 : size;
}

static void set_up(struct set *s, struct device *dev, const struct one *o)
{
    struct rng r = rng_start(7, 0, RNG_TEST, 0);
    enum value_type type = device_value_type(dev), out = o->f32_out ? VALUE_F32 : type;
    int64_t nc = (int64_t)o->n * o->c_out;
    *s = (struct set){.o = *o,
                      .dev = dev,
                      .bf16 = type == VALUE_BF16,
                      .taps = o->kind == CONV_3   ? 27
                              : o->kind == CONV_1 ? 1
                                                  : 8};
    s->x.count = o->sources;
    for (int i = 0; i < o->sources; i++)
        s->x.from[i] = random_source(dev, o, type, &r);
    int d = out_size(o, o->d), h = out_size(o, o->h), w = out_size(o, o->w);
    s->y = random_tensor(dev, out, o->n, d, h, w, o->c_out, &r);
    s->dx = random_tensor(dev, type, o->n, o->d, o->h, o->w, o->c_in, &r);
    s->before = get(dev, (size_t)tensor_count(&s->dx) * sizeof(double));
    for (int64_t i = 0; i < tensor_count(&s->dx); i++)
        s->before[i] = o->accumulate ? (double)value_at(&s->dx, i) : 0;
    s->n_weights = (int64_t)o->c_in * o->c_out * s->taps;
    s->weight = random_floats(dev, s->n_weights, -1, 1, &r);
    s->bias = random_floats(dev, o->c_out, -1, 1, &r);
    s->dweight = random_floats(dev, s->n_weights, -1, 1, &r);
    for (int64_t i = 0; !o->accumulate && i < s->n_weights; i++)
        s->dweight[i] = NAN; /* not to be looked at */
    s->dbias = random_floats(dev, o->c_out, -1, 1, &r);
    s->mean = get(dev, (size_t)o->c_out * sizeof(double));
    s->m2 = get(dev, (size_t)o->c_out * sizeof(double));
    s->center = random_floats(dev, o->c_in, -0.5f, 0.5f, &r);
    s->sums = get(dev, 2 * (size_t)(o->n * o->c_in) * sizeof(double));
    s->g = (struct conv_grad){.g = random_tensor(dev, out, o->n, d, h, w, o->c_out, &r)};
    if (o->grad > 0)
        s->g.y = (struct conv_source){.y = s->y, .relu = 1};
    if (o->grad > 1) {
        s->g.y.scale = random_floats(dev, nc, 0.5f, 1.5f, &r);
        s->g.y.shift = random_floats(dev, nc, -0.5f, 0.5f, &r);
        s->g.p = random_floats(dev, nc, 0.5f, 1.5f, &r);
        s->g.q = random_floats(dev, nc, -0.1f, 0.1f, &r);
        s->g.r = random_floats(dev, nc, -0.1f, 0.1f, &r);
    }
}

static void tear_down(struct set *s)
{
    void *all[] = {s->x.from[0].y.data,
                   (void *)(uintptr_t)s->x.from[0].scale,
                   (void *)(uintptr_t)s->x.from[0].shift,
                   s->x.from[1].y.data,
                   (void *)(uintptr_t)s->x.from[1].scale,
                   (void *)(uintptr_t)s->x.from[1].shift,
                   s->y.data,
                   s->dx.data,
                   s->before,
                   s->center,
                   s->sums,
                   s->weight,
                   s->bias,
                   s->dweight,
                   s->dbias,
                   s->mean,
                   s->m2,
                   s->g.g.data,
                   (void *)(uintptr_t)s->g.y.scale,
                   (void *)(uintptr_t)s->g.y.shift,
                   (void *)(uintptr_t)s->g.p,
                   (void *)(uintptr_t)s->g.q,
                   (void *)(uintptr_t)s->g.r};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        s->dev->ops->free(s->dev, all[i]);
}

static void run(struct set *s)
{
    const struct one *o = &s->o;
    struct error e;
    struct conv_shape shape = {o->kind,  o->n,       o->d,      o->h, o->w, o->c_in,
                               o->c_out, s->dx.type, s->y.type, 1,    o->dx};
    struct conv_stats stats = {s->mean, s->m2, NULL};
    const struct device_ops *ops = s->dev->ops;
    struct conv *v = ops->conv_new(s->dev, &shape);
    assert_ok(device_check(s->dev, &e), e);
    ops->conv_pack(s->dev, &(struct conv_weight){v, s->weight}, 1);
    ops->conv_forward(v, &s->x, s->bias, &s->y, &stats);
    struct conv_sums sums = {o->sources - 1, s->center, s->sums, NULL};
    ops->conv_backward(v, &s->g, &s->x, o->dx ? &s->dx : NULL,
                       o->accumulate ? CONV_ADD_DX | CONV_ADD_WEIGHT : 0, s->dweight, s->dbias,
                       o->dx ? &sums : NULL);
    ops->conv_free(v);
    assert_ok(device_check(s->dev, &e), e);
}

/* ---- the oracle ------------------------------------------------------------------------------------ */

struct truth {
    double *a, *dy, *weight; /* operands as multiplied */
    double *y, *dx, *dweight, *dbias;
    double *mass; /* sum of magnitudes that dbias is the sum of */
};

static double *doubles(int64_t n)
{
    double *d = mem_alloc(NULL, (size_t)n, sizeof *d);
    assert_non_null(d);
    return d;
}

static double operand(const struct set *s, float f)
{
    return (double)(s->bf16 ? bf16_round(f) : f);
}

static void make_input(const struct set *s, double *a)
{
    const struct tensor *t = &s->x.from[0].y;
    int64_t item = tensor_count(t) / t->n;
    for (int64_t i = 0; i < tensor_count(t); i++) {
        float sum = 0;
        for (int k = 0; k < s->x.count; k++) {
            const struct conv_source *f = &s->x.from[k];
            int64_t at = i / item * t->c + i % t->c;
            float v = value_at(&f->y, i);
            if (f->scale)
                v = v * f->scale[at] + f->shift[at];
            sum += f->relu && v < 0 ? 0 : v;
        }
        a[i] = operand(s, sum);
    }
}

static void make_gradient(const struct set *s, double *dy)
{
    const struct conv_grad *g = &s->g;
    int64_t item = tensor_count(&g->g) / g->g.n;
    for (int64_t i = 0; i < tensor_count(&g->g); i++) {
        int64_t at = i / item * g->g.c + i % g->g.c;
        float v = value_at(&g->g, i), y = g->y.y.data ? value_at(&g->y.y, i) : 0;
        float normed = g->y.scale ? y * g->y.scale[at] + g->y.shift[at] : y;
        if (g->y.relu && !(normed > 0))
            v = 0;
        if (g->p)
            v = v * g->p[at] + (g->q[at] * y + g->r[at]);
        dy[i] = operand(s, v);
    }
}

/* Adds what one input voxel, one output voxel and the tap between them have to do with each other. */
static void touch(const struct set *s, struct truth *t, int64_t in, int64_t out, int tap, int forward)
{
    int ci = s->o.c_in, co = s->o.c_out;
    for (int i = 0; i < ci; i++)
        for (int j = 0; j < co; j++) {
            int64_t at =
                s->o.kind == CONV_UP ? (int64_t)(tap * co + j) * ci + i : (int64_t)(tap * ci + i) * co + j;
            if (forward) {
                t->y[out * co + j] += t->a[in * ci + i] * t->weight[at];
            } else {
                t->dx[in * ci + i] += t->dy[out * co + j] * t->weight[at];
                t->dweight[at] += t->a[in * ci + i] * t->dy[out * co + j];
            }
        }
}

static void convolve(const struct set *s, struct truth *t, int forward)
{
    const struct tensor *x = &s->x.from[0].y, *y = &s->y;
    int edge = s->o.kind == CONV_3 ? 3 : s->o.kind == CONV_1 ? 1 : 2;
    const struct tensor *small = s->o.kind == CONV_UP ? x : y, *big = s->o.kind == CONV_UP ? y : x;
    int step = edge == 2 ? 2 : 1, pad = edge == 3 ? 1 : 0;
    for (int64_t v = 0; v < tensor_voxels(small); v++)
        for (int tap = 0; tap < s->taps; tap++) {
            int64_t xx = v % small->w * step + tap % edge - pad;
            int64_t yy = v / small->w % small->h * step + tap / edge % edge - pad;
            int64_t zz = v / small->w / small->h % small->d * step + tap / edge / edge - pad;
            int64_t n = v / small->w / small->h / small->d;
            if (xx < 0 || yy < 0 || zz < 0 || xx >= big->w || yy >= big->h || zz >= big->d)
                continue;
            int64_t other = ((n * big->d + zz) * big->h + yy) * big->w + xx;
            touch(s, t, small == x ? v : other, small == x ? other : v, tap, forward);
        }
}

static void truth_free(struct truth *t)
{
    double *all[] = {t->a, t->dy, t->weight, t->y, t->dx, t->dweight, t->dbias, t->mass};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        mem_free(all[i]);
}

/* What is known before run(): gradients that are added to start from what is there. */
static struct truth truth_start(const struct set *s)
{
    struct truth t = {.a = doubles(tensor_count(&s->dx)),
                      .dy = doubles(tensor_count(&s->y)),
                      .weight = doubles(s->n_weights),
                      .y = doubles(tensor_count(&s->y)),
                      .dx = doubles(tensor_count(&s->dx)),
                      .dweight = doubles(s->n_weights),
                      .dbias = doubles(s->o.c_out),
                      .mass = doubles(s->o.c_out)};
    make_input(s, t.a);
    for (int64_t i = 0; i < s->n_weights; i++) {
        t.weight[i] = operand(s, s->weight[i]);
        t.dweight[i] = s->o.accumulate ? (double)s->dweight[i] : 0;
    }
    for (int i = 0; i < s->o.c_out; i++)
        t.dbias[i] = (double)s->dbias[i];
    for (int64_t i = 0; i < tensor_count(&s->y); i++)
        t.y[i] = (double)s->bias[i % s->o.c_out];
    memcpy(t.dx, s->before, (size_t)tensor_count(&s->dx) * sizeof(double));
    convolve(s, &t, 1);
    return t;
}

/* The rest: the gradient is read through the output that run() stored. */
static void truth_finish(const struct set *s, struct truth *t)
{
    make_gradient(s, t->dy);
    for (int64_t i = 0; i < tensor_count(&s->y); i++) {
        t->dbias[i % s->o.c_out] += t->dy[i];
        t->mass[i % s->o.c_out] += fabs(t->dy[i]);
    }
    convolve(s, t, 0);
}

/* ---- comparing ------------------------------------------------------------------------------------- */

static void assert_near(const char *what, const struct one *o, const double *want, const double *have,
                        int64_t n, double limit)
{
    double e = nmse(want, have, n);
    if (!(e <= limit))
        test_fail("%s of kind %d, %dx%dx%dx%d, %d -> %d, grad %d: error %g > %g", what, o->kind, o->n, o->d,
                  o->h, o->w, o->c_in, o->c_out, o->grad, e, limit);
}

static void compare_tensor(const char *what, const struct set *s, const double *want, const struct tensor *t)
{
    double *have = doubles(tensor_count(t));
    for (int64_t i = 0; i < tensor_count(t); i++)
        have[i] = (double)value_at(t, i);
    assert_near(what, &s->o, want, have, tensor_count(t), t->type == VALUE_BF16 ? 1e-5 : 1e-12);
    mem_free(have);
}

static void compare_floats(const char *what, const struct set *s, const double *want, const float *f,
                           int64_t n)
{
    double *have = doubles(n);
    for (int64_t i = 0; i < n; i++)
        have[i] = (double)f[i];
    assert_near(what, &s->o, want, have, n, 1e-12);
    mem_free(have);
}

/* Against the moments of what was really stored. */
static void compare_moments(const struct set *s)
{
    int64_t voxels = tensor_voxels(&s->y);
    for (int c = 0; c < s->o.c_out; c++) {
        double mean = 0, m2 = 0;
        for (int64_t i = 0; i < voxels; i++)
            mean += (double)value_at(&s->y, i * s->o.c_out + c);
        mean /= (double)voxels;
        for (int64_t i = 0; i < voxels; i++)
            m2 += pow((double)value_at(&s->y, i * s->o.c_out + c) - mean, 2);
        assert_true(fabs(s->mean[c] - mean) <= 1e-6 * (1 + sqrt(m2 / (double)voxels)));
        assert_true(fabs(s->m2[c] - m2) <= 1e-5 * m2 + 1e-9);
    }
}

/* Batch norm's sums over the gradient that was really stored. */
static void compare_sums(const struct set *s)
{
    const struct conv_source *f = &s->x.from[s->o.sources - 1];
    int64_t c_in = s->o.c_in, nc = s->o.n * c_in, item = tensor_count(&s->dx) / s->o.n;
    double *want = doubles(2 * nc), *mass = doubles(nc);
    for (int64_t i = 0; i < tensor_count(&s->dx); i++) {
        int64_t at = i / item * c_in + i % c_in;
        float y = value_at(&f->y, i), normed = f->scale ? y * f->scale[at] + f->shift[at] : y;
        double g = f->relu && !(normed > 0) ? 0 : (double)value_at(&s->dx, i);
        want[at] += g;
        want[nc + at] += g * ((double)y - (double)s->center[i % c_in]);
        mass[at] += fabs(g);
    }
    for (int64_t i = 0; i < 2 * nc; i++)
        assert_true(fabs(s->sums[i] - want[i]) <= 3e-6 * mass[i % nc]);
    mem_free(want);
    mem_free(mass);
}

static void check_one(struct device *dev, const struct one *o)
{
    struct set s;
    set_up(&s, dev, o);
    struct truth t = truth_start(&s);
    run(&s);
    truth_finish(&s, &t);
    compare_tensor("output", &s, t.y, &s.y);
    compare_moments(&s);
    if (o->dx) {
        compare_tensor("dx", &s, t.dx, &s.dx);
        compare_sums(&s);
    }
    compare_floats("dweight", &s, t.dweight, s.dweight, s.n_weights);
    for (int c = 0; c < o->c_out; c++)
        assert_true(fabs(t.dbias[c] - (double)s.dbias[c]) <= 1e-6 * (1 + t.mass[c]));
    truth_free(&t);
    tear_down(&s);
}

/* ---- tests ----------------------------------------------------------------------------------------- */

static struct device *open_device(const char *level, enum precision p, int threads)
{
    struct device *dev;
    struct error e;
    struct device_options o = {.name = "cpu", .precision = p, .threads = threads, .level = level};
    assert_ok(device_open(&dev, &o, &e), e);
    assert_int_equal(dev->precision, p);
    return dev;
}

static struct one random_one(int kind, struct rng *r)
{
    static const int channels[] = {1, 2, 3, 5, 16, 20, 32, 40};
    struct one o = {.kind = (enum conv_kind)kind, .n = 1 + (int)rng_below(r, 3)};
    int *size[] = {&o.d, &o.h, &o.w};
    for (int i = 0; i < 3; i++)
        *size[i] =
            kind == CONV_DOWN ? 2 + 2 * (int)rng_below(r, 3) : 1 + (int)rng_below(r, kind == CONV_UP ? 3 : 9);
    if (kind == CONV_3 && rng_below(r, 2))
        o.w = 13 + (int)rng_below(r, 5); /* long lines take another way */
    o.c_in = channels[rng_below(r, 8)];
    o.c_out = channels[rng_below(r, 8)];
    if (kind == CONV_3 && o.c_in * o.c_out > 600)
        o.d = 1 + o.d % 3;
    o.sources = 1 + (int)rng_below(r, 2);
    o.norm = (int)rng_below(r, 3);
    o.relu = (int)rng_below(r, 2);
    o.grad = (int)rng_below(r, 3);
    o.dx = rng_below(r, 4) > 0;
    o.accumulate = (int)rng_below(r, 2);
    o.f32_out = (int)rng_below(r, 4) == 0;
    return o;
}

static void check_many(const char *level, enum precision p)
{
    struct device *dev = open_device(level, p, 2);
    struct rng r = rng_start(11, 0, RNG_TEST, 0);
    for (int kind = CONV_3; kind <= CONV_1; kind++)
        for (int i = 0; i < 24; i++) {
            struct one o = random_one(kind, &r);
            check_one(dev, &o);
        }
    device_close(dev);
}

static void test_every_kind(void **state)
{
    (void)state;
    for (int i = 0; i < ISA_LEVELS; i++) {
        const struct isa_ops *isa = isa_level(isa_names[i]);
        if (isa)
            check_many(isa_names[i], PRECISION_F32);
        if (isa && isa->bf16)
            check_many(isa_names[i], PRECISION_BF16);
    }
}

/* Shapes that are cut in every way: strips of lines, many blocks, groups of columns, one part or many. */
static const struct one cut_shapes[] = {
    {CONV_3, 1, 3, 40, 40, 16, 16, 1, NORM, 1, 2, 1, 0, 0},
    {CONV_3, 2, 2, 30, 50, 1, 16, 1, NO_NORM, 0, 2, 0, 0, 0},
    {CONV_3, 1, 2, 30, 40, 2, 8, 1, NORM, 1, 2, 1, 0, 0},
    {CONV_3, 2, 9, 9, 17, 8, 16, 2, NORM, 1, 2, 1, 1, 0},
    {CONV_3, 2, 4, 4, 4, 130, 70, 2, NORM, 1, 2, 1, 0, 0},
    {CONV_3, 2, 2, 2, 2, 256, 256, 1, NORM_DROPOUT, 1, 2, 1, 0, 0},
    {CONV_3, 1, 1, 3, 3, 256, 300, 1, NORM, 1, 2, 1, 0, 0},
    {CONV_DOWN, 2, 16, 24, 28, 16, 32, 1, NORM, 1, 2, 1, 1, 0},
    {CONV_DOWN, 2, 4, 4, 4, 64, 128, 1, NORM, 1, 2, 1, 1, 0},
    {CONV_UP, 2, 8, 12, 14, 32, 16, 1, NORM, 1, 2, 1, 0, 0},
    {CONV_UP, 2, 2, 2, 2, 256, 128, 1, NORM_DROPOUT, 1, 2, 1, 0, 0},
    {CONV_1, 2, 20, 20, 20, 16, 2, 1, NORM_DROPOUT, 1, 0, 1, 0, 1},
    {CONV_1, 1, 1, 1, 5000, 16, 16, 1, NO_NORM, 1, 1, 1, 0, 1},
    {CONV_1, 1, 1, 1, 140000, 16, 16, 2, NORM, 1, 2, 1, 0, 0}, /* so large that results go past the caches */
    {CONV_UP, 2, 16, 32, 20, 32, 16, 1, NORM, 1, 2, 1, 0, 0},
};
enum { N_CUT = sizeof cut_shapes / sizeof *cut_shapes };

static void test_cut_shapes(void **state)
{
    (void)state;
    for (int bf16 = 0; bf16 < 2; bf16++) {
        if (bf16 && !isa_level(NULL)->bf16)
            break;
        struct device *dev = open_device(NULL, bf16 ? PRECISION_BF16 : PRECISION_F32, 2);
        for (int i = 0; i < N_CUT; i++)
            check_one(dev, &cut_shapes[i]);
        device_close(dev);
    }
}

static uint64_t hash_of(struct device *dev, const struct one *o)
{
    struct set s;
    set_up(&s, dev, o);
    run(&s);
    uint64_t h = hash_bytes(s.y.data, (size_t)tensor_count(&s.y) * value_bytes(s.y.type), 1);
    h = hash_bytes(s.dx.data, (size_t)tensor_count(&s.dx) * value_bytes(s.dx.type), h);
    h = hash_bytes(s.dweight, (size_t)s.n_weights * sizeof(float), h);
    h = hash_bytes(s.dbias, (size_t)o->c_out * sizeof(float), h);
    h = hash_bytes(s.mean, (size_t)o->c_out * sizeof(double), h);
    h = hash_bytes(s.m2, (size_t)o->c_out * sizeof(double), h);
    h = hash_bytes(s.sums, 2 * (size_t)(o->n * o->c_in) * sizeof(double), h);
    tear_down(&s);
    return h;
}

static void test_same_bits_for_any_threads(void **state)
{
    static const int threads[] = {1, 2, 3, 4, 7};
    uint64_t want[2][N_CUT] = {{0}};
    (void)state;
    for (int bf16 = 0; bf16 < 2; bf16++)
        for (int k = 0; k < 5; k++) {
            if (bf16 && !isa_level(NULL)->bf16)
                break;
            struct device *dev = open_device(NULL, bf16 ? PRECISION_BF16 : PRECISION_F32, threads[k]);
            for (int i = 0; i < N_CUT; i++) {
                uint64_t h = hash_of(dev, &cut_shapes[i]);
                if (k == 0)
                    want[bf16][i] = h;
                assert_int_equal(h, want[bf16][i]);
            }
            device_close(dev);
        }
}

/* A plan for n items runs fewer. */
static void test_fewer_items(void **state)
{
    static const struct one two = {CONV_3, 2, 5, 6, 14, 16, 20, 1, NORM, 1, 2, 1, 0, 0};
    struct device *dev = open_device(NULL, PRECISION_F32, 2);
    struct set s;
    (void)state;
    set_up(&s, dev, &two);
    struct conv_shape shape = {two.kind,  2,         two.d,     two.h, two.w, two.c_in,
                               two.c_out, VALUE_F32, VALUE_F32, 0,     0};
    struct conv *v = dev->ops->conv_new(dev, &shape);
    dev->ops->conv_pack(dev, &(struct conv_weight){v, s.weight}, 1);
    dev->ops->conv_forward(v, &s.x, s.bias, &s.y, NULL);
    int64_t item = tensor_count(&s.y) / 2;
    float *both = random_floats(dev, item, 0, 1, &(struct rng){0});
    memcpy(both, s.y.data, (size_t)item * sizeof *both);
    s.x.from[0].y = tensor_items(&s.x.from[0].y, 0, 1);
    struct tensor first = tensor_items(&s.y, 0, 1);
    memset(first.data, 0, (size_t)item * sizeof(float));
    dev->ops->conv_forward(v, &s.x, s.bias, &first, NULL);
    for (int64_t i = 0; i < item; i++)
        assert_true(fabsf(both[i] - value_at(&first, i)) < 1e-4f);
    dev->ops->conv_free(v);
    dev->ops->free(dev, both);
    tear_down(&s);
    device_close(dev);
}

/* Not a number in, not a number out: guards depend on it. */
static void test_nan_is_seen(void **state)
{
    static const struct one o = {CONV_3, 1, 4, 4, 14, 16, 16, 1, NORM, 1, 0, 1, 0, 0};
    (void)state;
    for (int bf16 = 0; bf16 < 2; bf16++) {
        if (bf16 && !isa_level(NULL)->bf16)
            break;
        struct device *dev = open_device(NULL, bf16 ? PRECISION_BF16 : PRECISION_F32, 1);
        struct set s;
        set_up(&s, dev, &o);
        if (bf16)
            ((uint16_t *)s.x.from[0].y.data)[1000] = 0x7fff;
        else
            ((float *)s.x.from[0].y.data)[1000] = NAN;
        run(&s);
        assert_true(isnan(s.mean[0]) && isnan(s.m2[0]));
        tear_down(&s);
        device_close(dev);
    }
}

static void test_out_of_memory_is_sticky(void **state)
{
    static const struct conv_shape shape = {CONV_3, 1, 8, 8, 8, 16, 16, VALUE_F32, VALUE_F32, 1, 1};
    struct device *dev = open_device(NULL, PRECISION_F32, 1);
    struct error e;
    int failures = 0;
    (void)state;
    for (int n = 0; n < 64; n++) {
        mem_fail_at(n, 0);
        struct conv *v = dev->ops->conv_new(dev, &shape);
        mem_fail_at(-1, 0);
        if (!v) {
            failures++;
            assert_int_equal(device_check(dev, &e), -1);
            assert_int_equal(e.code, ERR_MEMORY);
            assert_null(dev->ops->alloc(dev, 8));
            dev->error = (struct error){0};
        }
        dev->ops->conv_free(v);
    }
    assert_true(failures >= 5);
    device_close(dev);
}

static void test_refuses(void **state)
{
    struct device *dev;
    struct error e;
    (void)state;
    assert_refused(device_open(&dev, &(struct device_options){.name = "abacus"}, &e), e, ERR_CONFIG, "C01");
    assert_refused(device_open(&dev, &(struct device_options){.level = "none"}, &e), e, ERR_DEVICE, "");
    struct device_options o = {.level = "base", .precision = PRECISION_BF16};
    assert_refused(device_open(&dev, &o, &e), e, ERR_DEVICE, "");
    o = (struct device_options){.name = "cpu", .precision = PRECISION_TF32};
    assert_refused(device_open(&dev, &o, &e), e, ERR_DEVICE, "");
    assert_ok(device_open(&dev, &(struct device_options){.threads = 3}, &e), e);
    assert_int_equal(dev->precision, isa_level(NULL)->bf16 ? PRECISION_BF16 : PRECISION_F32);
    assert_non_null(strstr(dev->describe, "3 threads"));
    device_close(dev);
    device_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refuses),
        cmocka_unit_test(test_every_kind),
        cmocka_unit_test(test_cut_shapes),
        cmocka_unit_test(test_same_bits_for_any_threads),
        cmocka_unit_test(test_fewer_items),
        cmocka_unit_test(test_nan_is_seen),
        cmocka_unit_test(test_out_of_memory_is_sticky),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
