/* test_strided.c - chains of strided convolutions: numbers of parameters, values and gradients against naive
 * loops in double and their central differences, slabs of any height.
 */
#include <math.h>

#include "loss_scene.h"
#include "net/strided.h"

enum { MAP_C = 3, IMAGE_C = 2, ITEMS = 2 };
static const int extent[3] = {16, 32, 16};

/* ---- naive ------------------------------------------------------------------------------------- */

struct naive_map {
    int n, e[3], c;
    double *v;
};

static struct naive_map naive_new(int n, const int e[3], int c)
{
    struct naive_map m = {n, {e[0], e[1], e[2]}, c, NULL};
    m.v = calloc((size_t)n * (size_t)e[0] * (size_t)e[1] * (size_t)e[2] * (size_t)c, sizeof *m.v);
    assert_non_null(m.v);
    return m;
}

static double *naive_at(const struct naive_map *m, int item, int z, int y, int x)
{
    return m->v +
           ((((size_t)item * (size_t)m->e[0] + (size_t)z) * (size_t)m->e[1] + (size_t)y) * (size_t)m->e[2] +
            (size_t)x) *
               (size_t)m->c;
}

/* value of parameter NAME.TAIL, in our order: (taps, in, out) */
static const double *named(const struct params *p, const double *values, const char *name, const char *tail)
{
    char full[64];
    snprintf(full, sizeof full, "%s.%s", name, tail);
    const struct param *q = params_find(p, full);
    assert_non_null(q);
    return values + q->offset;
}

static struct naive_map naive_conv(const struct naive_map *in, const struct strided_spec *s, const double *w,
                                   const double *b, int c)
{
    int e[3];
    for (int a = 0; a < 3; a++)
        e[a] = (in->e[a] + 2 * s->pad[a] - s->kernel[a]) / s->stride[a] + 1;
    struct naive_map out = naive_new(in->n, e, c);
    int taps = s->kernel[0] * s->kernel[1] * s->kernel[2];
    for (int i = 0; i < in->n * e[0] * e[1] * e[2]; i++) {
        int item = i / e[2] / e[1] / e[0], at[3] = {i / e[2] / e[1] % e[0], i / e[2] % e[1], i % e[2]};
        double *to = out.v + (size_t)i * (size_t)c;
        for (int o = 0; o < c; o++)
            to[o] = b[o];
        for (int t = 0; t < taps; t++) {
            int k[3] = {t / s->kernel[2] / s->kernel[1], t / s->kernel[2] % s->kernel[1], t % s->kernel[2]};
            int inside = 1;
            for (int a = 0; a < 3; a++) {
                k[a] += at[a] * s->stride[a] - s->pad[a];
                inside = inside && k[a] >= 0 && k[a] < in->e[a];
            }
            const double *from = inside ? naive_at(in, item, k[0], k[1], k[2]) : NULL;
            for (int j = 0; inside && j < in->c; j++)
                for (int o = 0; o < c; o++)
                    to[o] += w[(t * in->c + j) * c + o] * from[j];
        }
    }
    return out;
}

static double naive_drop(const struct net_pass *pass, int layer, int item, int c, float p)
{
    uint64_t index = ((uint64_t)layer << 48) + ((uint64_t)item << 24) + (uint64_t)c;
    double u = ((double)(rng_block(pass->seed, pass->step, pass->stream, index).v[0] >> 9) + 0.5) / 8388608;
    return pass->mode == NET_EVAL || p <= 0 ? 1 : u >= (double)p ? 1 / (1 - (double)p) : 0;
}

/* act and dropout of layer i, in place */
static void naive_act(struct naive_map *y, const struct strided_spec *s, int i, const struct net_pass *pass)
{
    size_t each = (size_t)y->e[0] * (size_t)y->e[1] * (size_t)y->e[2] * (size_t)y->c;
    for (size_t k = 0; k < (size_t)y->n * each; k++) {
        y->v[k] *= y->v[k] > 0 ? 1 : (double)s->slope;
        y->v[k] *= naive_drop(pass, i, (int)(k / each), (int)(k % (size_t)y->c), s->dropout[i]);
    }
}

/* sum over outputs of coefficient * output; outputs (item, column, out) are stored, too, if wanted. */
static double naive_run(const struct strided_spec *s, const struct params *p, const double *values,
                        const struct naive_map *map, const struct naive_map *image, int filters,
                        const struct net_pass *pass, double *outputs)
{
    struct naive_map y = {0};
    double sum = 0;
    for (int i = 0; i < STRIDED_LAYERS && s->name[i]; i++) {
        const double *w = named(p, values, s->name[i], "weight"), *b = named(p, values, s->name[i], "bias");
        struct naive_map next = naive_conv(i ? &y : map, s, w, b, s->width[i] * filters);
        if (i == 0 && s->second) {
            struct naive_map other = naive_conv(image, s, named(p, values, s->second, "weight"),
                                                named(p, values, s->second, "bias"), next.c);
            for (int k = 0; k < next.n * next.e[0] * next.e[1] * next.e[2] * next.c; k++)
                next.v[k] += other.v[k];
            free(other.v);
        }
        naive_act(&next, s, i, pass);
        free(y.v);
        y = next;
    }
    int columns = s->columns ? y.e[2] : 1, outs = s->out ? s->out : s->width[STRIDED_LAYERS - 1] * filters;
    const double *w = named(p, values, s->linear, "weight"), *b = named(p, values, s->linear, "bias");
    for (int i = 0; i < y.n * columns * outs; i++) {
        int o = i % outs, column = i / outs % columns, item = i / outs / columns, count = 0;
        double out = 0;
        for (int v = 0; v < y.e[0] * y.e[1] * y.e[2]; v++) {
            if (s->columns && v % y.e[2] != column)
                continue;
            const double *from = naive_at(&y, item, v / y.e[2] / y.e[1], v / y.e[2] % y.e[1], v % y.e[2]);
            for (int j = 0; j < y.c; j++)
                out += from[j] * w[j * outs + o];
            count++;
        }
        out = out / count + b[o];
        sum += cos(i) * out;
        if (outputs)
            outputs[i] = out;
    }
    free(y.v);
    return sum;
}

/* ---- a chain ----------------------------------------------------------------------------------- */

struct scene_of {
    const struct strided_spec *spec;
    struct params *params;
    struct strided *chain;
    struct tensor map, image, dmap;
    struct naive_map naive[2]; /* the same map and image */
    double *values;
    int filters;
};

static const struct strided_spec *declared;

static void declare(struct builder *b, const struct net_definition *self)
{
    strided_declare(b, declared, self->classes, self->channels, self->filters);
}

static void fill_both(struct tensor *t, struct naive_map *m, int number)
{
    fill(t, number, 1.0f);
    for (int64_t i = 0; i < tensor_count(t); i++)
        m->v[i] = (double)((float *)t->data)[i];
}

static struct tensor patch_of(int c)
{
    struct tensor t = {.type = VALUE_F32, .n = ITEMS, .d = extent[0], .h = extent[1], .w = extent[2], .c = c};
    t.data = dev->ops->alloc(dev, (size_t)tensor_count(&t) * sizeof(float));
    return t;
}

static void scene_open(struct scene_of *s, const struct strided_spec *spec, int filters)
{
    struct net_definition def = {
        .define = declare, .channels = IMAGE_C, .classes = MAP_C, .filters = filters};
    struct net_shape shape = {.n = ITEMS + 1, .d = extent[0], .h = extent[1], .w = extent[2]};
    struct error e;
    *s = (struct scene_of){.spec = spec, .filters = filters};
    declared = spec;
    assert_ok(params_new(&s->params, dev, &def, PARAMS_WITH_GRAD, &e), e);
    params_init(s->params, 5, 6);
    assert_ok(strided_new(&s->chain, s->params, spec, &shape, MAP_C, IMAGE_C, filters, &e), e);
    s->map = patch_of(MAP_C), s->dmap = patch_of(MAP_C), s->image = patch_of(IMAGE_C);
    s->naive[0] = naive_new(ITEMS, extent, MAP_C);
    s->naive[1] = naive_new(ITEMS, extent, IMAGE_C);
    fill_both(&s->map, &s->naive[0], 81);
    fill_both(&s->image, &s->naive[1], 82);
    s->values = malloc((size_t)s->params->count * sizeof *s->values);
    for (int64_t i = 0; i < s->params->count; i++)
        s->values[i] = (double)s->params->value[i];
}

static void scene_close(struct scene_of *s)
{
    strided_free(s->chain);
    params_free(s->params);
    free_tensor(&s->map), free_tensor(&s->dmap), free_tensor(&s->image);
    free(s->naive[0].v), free(s->naive[1].v), free(s->values);
}

static double naive_of(const struct scene_of *s, const struct net_pass *pass, double *outputs)
{
    return naive_run(s->spec, s->params, s->values, &s->naive[0], &s->naive[1], s->filters, pass, outputs);
}

static struct tensor forward(struct scene_of *s, const struct net_pass *pass)
{
    return strided_forward(s->chain, &s->map, s->spec->second ? &s->image : NULL, pass);
}

static void set_gradient(struct scene_of *s)
{
    struct tensor g = strided_grad(s->chain);
    for (int i = 0; i < tensor_count(&g); i++)
        ((float *)g.data)[i] = (float)cos(i);
}

/* Derivatives of some numbers against central differences of the naive chain. */
static void check_slopes(const struct scene_of *s, double *x, const float *grad, int64_t count, int64_t every,
                         const struct net_pass *pass, const char *what)
{
    const double h = 1e-6;
    double largest = 0, worst = 0;
    for (int64_t i = 0; i < count; i += every) {
        double old = x[i];
        x[i] = old + h;
        double up = naive_of(s, pass, NULL);
        x[i] = old - h;
        double slope = (up - naive_of(s, pass, NULL)) / (2 * h);
        x[i] = old;
        largest = fmax(largest, fabs(slope));
        worst = fmax(worst, fabs(slope - (double)grad[i]));
    }
    if (!(largest > 0 && worst <= 2e-5 * largest))
        test_fail("%s: off by %g of %g", what, worst, largest);
}

static void check_chain(const struct strided_spec *spec, int filters, enum net_mode mode)
{
    struct net_pass pass = {.mode = mode, .seed = 9, .step = 4, .stream = RNG_DROPOUT + 1};
    struct scene_of s;
    double outputs[1024];
    scene_open(&s, spec, filters);
    struct tensor out = forward(&s, &pass);
    assert_true(tensor_count(&out) <= 1024);
    naive_of(&s, &pass, outputs);
    for (int i = 0; i < tensor_count(&out); i++)
        assert_true(fabs((double)((float *)out.data)[i] - outputs[i]) < 1e-5);
    set_gradient(&s);
    strided_backward(s.chain, STRIDED_MAP, &s.dmap);
    for (int i = 0; i < s.params->n; i++)
        assert_true(!s.params->touched[i]);
    check_slopes(&s, s.naive[0].v, s.dmap.data, tensor_count(&s.dmap), 997, &pass, "map");
    forward(&s, &pass);
    set_gradient(&s);
    strided_backward(s.chain, STRIDED_WEIGHTS, NULL);
    for (int i = 0; i < s.params->n; i++) {
        const struct param *p = &s.params->list[i];
        assert_true(s.params->touched[i]);
        check_slopes(&s, s.values + p->offset, s.params->grad + p->offset, p->count, p->count / 9 + 1, &pass,
                     p->name);
    }
    scene_close(&s);
}

/* Slices of a volume: kernels of 3x3 in two axes, plain ReLU, a row of numbers for each slice. */
static const struct strided_spec slices = {.name = {"a", "b", "c"},
                                           .linear = "last",
                                           .width = {1, 2, 4, 8},
                                           .kernel = {3, 3, 1},
                                           .stride = {2, 2, 1},
                                           .pad = {1, 1, 0},
                                           .columns = 1};

/* Mean squared difference by mean square. */
static double apart(const float *x, const float *y, int64_t n)
{
    double off = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        off += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
        size += (double)x[i] * (double)x[i];
    }
    return off / size;
}

/* The critic in bf16 beside float32, where the processor multiplies it. */
static void test_bf16(void **state)
{
    struct net_pass pass = {.mode = NET_TRAIN, .seed = 9, .step = 4, .stream = RNG_DROPOUT + 1};
    struct device_options o = {.name = "cpu", .precision = PRECISION_BF16, .threads = 2};
    struct device *own[2] = {dev, NULL};
    struct tensor out[2];
    struct scene_of s[2];
    struct error e;
    (void)state;
    if (!cpu_has_bf16())
        skip();
    assert_ok(device_open(&own[1], &o, &e), e);
    for (int k = 0; k < 2; k++) {
        dev = own[k];
        scene_open(&s[k], &critic_spec, 4);
        out[k] = forward(&s[k], &pass);
        set_gradient(&s[k]);
        strided_backward(s[k].chain, STRIDED_WEIGHTS | STRIDED_MAP, &s[k].dmap);
    }
    double values = apart(out[0].data, out[1].data, tensor_count(&out[0]));
    double maps = apart(s[0].dmap.data, s[1].dmap.data, tensor_count(&s[0].dmap));
    double weights = apart(s[0].params->grad, s[1].params->grad, s[0].params->trainable_count);
    if (!(values > 0 && values < 1e-4 && maps < 1e-3 && weights < 1e-3))
        test_fail("off by %g, the map's gradient by %g, the weights' by %g", values, maps, weights);
    for (int k = 0; k < 2; k++) {
        dev = own[k];
        scene_close(&s[k]);
    }
    dev = own[0];
    device_close(own[1]);
}

static void test_gradients(void **state)
{
    (void)state;
    check_chain(&critic_spec, 1, NET_EVAL);
    check_chain(&critic_spec, 1, NET_TRAIN);
    check_chain(&slices, 1, NET_TRAIN);
}

static void test_counts(void **state)
{
    struct params *p;
    struct error e;
    (void)state;
    for (int map = 1; map <= 2; map++) {
        struct net_definition def = {.define = critic_define, .channels = 1, .classes = map, .filters = 16};
        assert_ok(params_new(&p, dev, &def, PARAMS_NO_GRAD, &e), e);
        assert_int_equal(p->count, map == 1 ? 11020290 : 11024386); /* as published */
        params_free(p);
    }
}

/* Many slabs or one: the same outputs to the bit, the same gradients but for the order of sums. A second
 * backward pass adds. */
static void compare_slabs(const struct strided_spec *whole, int slab)
{
    struct net_pass pass = {.mode = NET_TRAIN, .seed = 9, .step = 4, .stream = RNG_DROPOUT + 1};
    struct strided_spec small = *whole;
    struct scene_of s[2];
    small.slab = slab;
    scene_open(&s[0], whole, 2);
    scene_open(&s[1], &small, 2);
    struct tensor a = forward(&s[0], &pass), b = forward(&s[1], &pass);
    assert_memory_equal(a.data, b.data, (size_t)tensor_count(&a) * sizeof(float));
    for (int k = 0; k < 2; k++) {
        set_gradient(&s[k]);
        strided_backward(s[k].chain, STRIDED_WEIGHTS | STRIDED_MAP, &s[k].dmap);
    }
    for (int64_t i = 0; i < tensor_count(&s[0].dmap); i++)
        assert_true(fabsf(((float *)s[0].dmap.data)[i] - ((float *)s[1].dmap.data)[i]) < 1e-7f);
    forward(&s[1], &pass);
    set_gradient(&s[1]);
    strided_backward(s[1].chain, STRIDED_WEIGHTS, NULL);
    double size = 0, off = 0;
    for (int64_t i = 0; i < s[0].params->count; i++) {
        double x = (double)s[0].params->grad[i], y = (double)s[1].params->grad[i] / 2;
        size += x * x;
        off += (x - y) * (x - y);
    }
    assert_true(size > 1e-6 && off < 1e-10 * size);
    scene_close(&s[0]);
    scene_close(&s[1]);
}

/* The critic's items one by one; two planes of the projector's rows. */
static void test_slabs(void **state)
{
    (void)state;
    compare_slabs(&critic_spec, 1);
    compare_slabs(&projector_spec, 2 * 9 * 16 * 16 * (MAP_C - 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_slabs),
        cmocka_unit_test(test_bf16),
    };
    return cmocka_run_group_tests(tests, open_shared, close_shared);
}
