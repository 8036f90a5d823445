/* Model files: bit-exact there and back, PyTorch's names, shapes and outputs, wrong and damaged
 * ones refused.
 *
 * golden/aua_state_dict.json lists names and shapes of the state dict of AUA's released code, and its origin.
 * golden/model.safetensors.gz is a state dict made by PyTorch, golden/model.h what PyTorch computes
 * with it (tools/golden_model.py). Three more modes serve tests/oracle_model.sh, which runs PyTorch
 * beside us:
 *
 *   test_model_file --outputs FILE           prints every output of the model, one number a line
 *   test_model_file --write NETWORK FILE     makes a "vnet" or "aua"
 *   test_model_file --copy FROM TO           reads and writes
 */
#include "test.h"

#include <math.h>
#include <time.h>

#include "base/json.h"
#include "base/source.h"
#include "golden/model.h"
#include "net/model_file.h"

enum { IMAGE_D = 32, IMAGE_H = 16, IMAGE_W = 48 }; /* of golden_model.py */

static struct device *dev;
static unsigned char *golden;
static size_t n_golden;
static struct js *released; /* AUA's state dict */

static const struct net_definition small_vnet = {
    .define = vnet_define, .channels = 2, .classes = 3, .filters = 4, .dropout = NET_DROPOUT_NONE};
static const struct net_definition small_aua = {.define = aua_define,
                                                .channels = 1,
                                                .classes = 2,
                                                .filters = 4,
                                                .rank = 3,
                                                .dropout = NET_DROPOUT_BOTTLENECK,
                                                .head_norm = 1};

/* ---- helpers --------------------------------------------------------------------------------- */

static float *values_of(const struct params *p)
{
    float *v = malloc((size_t)p->count * sizeof *v);
    dev->ops->download(dev, v, p->value, (size_t)p->count * sizeof *v);
    return v;
}

/* Fresh weights, and statistics and scales that are not those of a fresh network. */
static struct params *make_params(const struct net_definition *def, uint64_t salt)
{
    struct params *p;
    struct error e;
    assert_ok(params_new(&p, dev, def, PARAMS_NO_GRAD, &e), e);
    params_init(p, 1337, salt);
    float *v = values_of(p);
    for (int i = 0; i < p->n; i++)
        for (int64_t k = 0; k < p->list[i].count; k++) {
            float *x = &v[p->list[i].offset + k], wave = sinf((float)(k + i));
            enum param_kind kind = p->list[i].kind;
            if (kind == PARAM_GAMMA || kind == PARAM_VAR)
                *x = 1.0f + 0.4f * wave;
            else if (kind == PARAM_BETA || kind == PARAM_MEAN)
                *x = 0.2f * wave;
        }
    dev->ops->upload(dev, p->value, v, (size_t)p->count * sizeof *v);
    free(v);
    p->batches = 7;
    p->version++;
    return p;
}

static void assert_same_params(const struct params *a, const struct params *b)
{
    float *x = values_of(a), *y = values_of(b);
    assert_int_equal(a->count, b->count);
    assert_memory_equal(x, y, (size_t)a->count * sizeof *x);
    assert_int_equal(a->batches, b->batches);
    free(x);
    free(y);
}

static void assert_same_definition(const struct net_definition *a, const struct net_definition *b)
{
    assert_true(a->define == b->define && a->channels == b->channels && a->classes == b->classes);
    assert_true(a->filters == b->filters && a->rank == b->rank && a->head_norm == b->head_norm);
    assert_int_equal(a->dropout, b->dropout);
}

/* A model being built, to be damaged before it is written: values are poked through copy.values. */
struct draft {
    struct params *params;
    struct st_file file;
    struct model_copy copy;
};

static void draft_make(struct draft *d, const char *prefix)
{
    struct error e;
    memset(d, 0, sizeof *d);
    d->params = make_params(&small_vnet, 1);
    assert_ok(model_to_tensors(&d->file, &d->copy, d->params, prefix, &e), e);
}

static void draft_free(struct draft *d)
{
    st_free(&d->file);
    model_copy_free(&d->copy);
    params_free(d->params);
}

static struct st_tensor *draft_tensor(struct draft *d, const char *name)
{
    for (int i = 0; i < d->file.n_tensors; i++)
        if (strcmp(d->file.tensors[i].name, name) == 0)
            return &d->file.tensors[i];
    test_fail("no tensor %s", name);
    return NULL;
}

/* model_from_tensors into other params, which must not change. */
static void assert_not_loaded(struct draft *d, enum error_code code, const char *id, const char *fact)
{
    struct error e;
    struct params *before = make_params(&small_vnet, 2), *p = make_params(&small_vnet, 2);
    assert_refused(model_from_tensors(p, &d->file, "", &e), e, code, id, fact);
    assert_same_params(before, p);
    params_free(before);
    params_free(p);
}

/* ---- there and back -------------------------------------------------------------------------- */

static void models_come_back_to_the_bit(void **state)
{
    (void)state;
    struct net_definition small_sdf = small_vnet;
    small_sdf.define = sdf_define;
    const struct net_definition *defs[] = {&small_vnet, &small_aua, &small_sdf};
    for (int i = 0; i < 3; i++) {
        struct params *p = make_params(defs[i], 1), *q;
        struct net_definition def;
        struct error e;
        assert_ok(model_write("m.safetensors", p, defs[i], &e), e);
        assert_ok(model_read(&q, &def, "m.safetensors", dev, &e), e);
        assert_same_definition(&def, defs[i]);
        assert_same_params(p, q);
        assert_ok(model_write("n.safetensors", q, &def, &e), e);
        assert_int_equal(system("cmp m.safetensors n.safetensors"), 0);
        params_free(p);
        params_free(q);
    }
}

static void names_and_shapes_are_pytorchs(void **state)
{
    (void)state;
    struct draft d;
    draft_make(&d, "");
    static const struct {
        const char *name;
        enum st_dtype dtype;
        int n_dims;
        int64_t dims[5];
    } want[] = {
        {"block_one.conv.0.weight", ST_F32, 5, {4, 2, 3, 3, 3}},
        {"block_one.conv.1.running_var", ST_F32, 1, {4}},
        {"block_one.conv.1.num_batches_tracked", ST_I64, 0, {0}},
        {"block_three_dw.conv.0.weight", ST_F32, 5, {32, 16, 2, 2, 2}},
        {"block_three.conv.6.bias", ST_F32, 1, {16}},
        {"block_five_up.conv.0.weight", ST_F32, 5, {64, 32, 2, 2, 2}},
        {"out_conv.weight", ST_F32, 5, {3, 4, 1, 1, 1}},
    };
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        const struct st_tensor *t = draft_tensor(&d, want[i].name);
        assert_true(t->dtype == want[i].dtype && t->n_dims == want[i].n_dims);
        for (int k = 0; k < t->n_dims; k++)
            assert_int_equal(t->dims[k], want[i].dims[k]);
    }
    assert_int_equal(*(const int64_t *)draft_tensor(&d, want[2].name)->data, 7);
    draft_free(&d);
}

/* Every tensor of `want`, and no other that starts with `head`. */
static void assert_state_dict(const struct net_definition *def, const struct js *want, const char *head)
{
    struct params *p = make_params(def, 1);
    struct st_file f = {0};
    struct model_copy copy;
    struct error e;
    int n = 0;
    assert_ok(model_to_tensors(&f, &copy, p, "", &e), e);
    for (int i = 0; i < f.n_tensors; i++) {
        const struct st_tensor *t = &f.tensors[i];
        if (!text_starts_with(t->name, head))
            continue;
        const struct js *shape = js_get(want, t->name);
        if (!js_is_array(shape) || js_count(shape) != t->n_dims)
            test_fail("%s is not a released tensor of %d dimensions", t->name, t->n_dims);
        for (int k = 0; k < t->n_dims; k++)
            assert_int_equal(t->dims[k], (int64_t)js_number(js_at(shape, k)));
        n++;
    }
    assert_int_equal(n, js_count(want));
    st_free(&f);
    model_copy_free(&copy);
    params_free(p);
}

static void aua_has_the_released_state_dict(void **state)
{
    (void)state;
    struct net_definition def = {.define = aua_define, .channels = 1, .classes = 2, .filters = 16, .rank = 8};
    assert_int_equal(js_count(js_get(released, "none")), 217);
    assert_state_dict(&def, js_get(released, "none"), "");
    def.filters = 2;
    def.head_norm = 1;
    assert_int_equal(js_count(js_get(released, "batchnorm")), 16);
    assert_state_dict(&def, js_get(released, "batchnorm"), "head.");
}

/* Gives a tensor the name it had when the head was called projection_head. */
static void rename_before(struct st_tensor *t, char *room, size_t n, int norm)
{
    static const char *const plain[] = {"conv1", NULL, "conv2", NULL, "conv3"};
    static const char *const normed[] = {"conv1", "norm1", NULL, "conv2", "norm2", NULL, "conv3"};
    int at;
    char tail[40];
    if (sscanf(t->name, "head.conv.%d.%39s", &at, tail) != 2)
        return;
    snprintf(room, n, "projection_head.%s.%s", norm ? normed[at] : plain[at], tail);
    t->name = room;
}

static void heads_of_older_files_are_read(void **state)
{
    (void)state;
    for (int norm = 0; norm < 2; norm++) {
        struct net_definition def = small_aua, found;
        def.head_norm = norm;
        struct params *p = make_params(&def, 1), *q = make_params(&def, 2), *r;
        struct st_file f = {0};
        struct model_copy copy;
        struct error e;
        static char room[400][64];
        assert_ok(model_to_tensors(&f, &copy, p, "", &e), e);
        for (int i = 0; i < f.n_tensors; i++)
            rename_before(&f.tensors[i], room[i], sizeof room[i], norm);
        assert_non_null(st_find(&f, "projection_head.conv3.weight"));
        assert_ok(model_from_tensors(q, &f, "", &e), e);
        assert_same_params(p, q);
        assert_ok(st_write("older.safetensors", &f, &e), e);
        assert_ok(model_read(&r, &found, "older.safetensors", dev, &e), e);
        assert_int_equal(found.head_norm, norm);
        assert_same_params(p, r);
        assert_ok(st_add(&f, "head.conv.0.bias", ST_F32, (int64_t[]){16}, 1, copy.values, &e), e);
        assert_refused(model_from_tensors(q, &f, "", &e), e, ERR_BUSY, "S10"); /* under both names */
        st_free(&f);
        model_copy_free(&copy);
        params_free(p);
        params_free(q);
        params_free(r);
    }
}

static void several_models_share_a_file(void **state)
{
    (void)state;
    struct params *one = make_params(&small_vnet, 1), *two = make_params(&small_aua, 2);
    struct params *back = make_params(&small_aua, 3);
    struct st_file f = {0}, g;
    struct model_copy a, b;
    struct error e;
    assert_ok(model_to_tensors(&f, &a, one, "model.student/", &e), e);
    assert_ok(model_to_tensors(&f, &b, two, "model.teacher/", &e), e);
    assert_ok(st_write("two.safetensors", &f, &e), e);
    assert_ok(st_read(&g, "two.safetensors", NULL, &e), e);
    assert_ok(model_from_tensors(back, &g, "model.teacher/", &e), e);
    assert_same_params(two, back);
    assert_refused(model_from_tensors(back, &g, "model.student/", &e), e, ERR_BUSY, "S10");
    assert_refused(model_from_tensors(back, &g, "model.", &e), e, ERR_BUSY, "S10");
    st_free(&f);
    st_free(&g);
    model_copy_free(&a);
    model_copy_free(&b);
    params_free(one);
    params_free(two);
    params_free(back);
}

/* ---- PyTorch --------------------------------------------------------------------------------- */

/* Every output of the network on the image by formula, one after the other, channels last. */
static float *run_model(struct params *p, const struct net_definition *def, int64_t *count)
{
    static const char *const names[2][5] = {{"logits"}, {"features", "mean", "log_cov_diag", "cov_factor"}};
    struct net_shape shape = {.n = 1, .d = IMAGE_D, .h = IMAGE_H, .w = IMAGE_W, .use = NET_FORWARD_ONLY};
    struct tensor x = {
        .type = VALUE_F32, .n = 1, .d = IMAGE_D, .h = IMAGE_H, .w = IMAGE_W, .c = def->channels};
    struct net *net;
    struct error e;
    assert_ok(net_new(&net, p, def, &shape, &e), e);
    int64_t n = tensor_count(&x);
    float *host = malloc((size_t)n * sizeof *host);
    for (int64_t i = 0; i < n; i++)
        host[i] = (float)sin(1.3 * (double)i + 0.0007 * (double)i * (double)i);
    x.data = dev->ops->alloc(dev, (size_t)n * sizeof *host);
    dev->ops->upload(dev, x.data, host, (size_t)n * sizeof *host);
    net_forward(net, &x, &(struct net_pass){.mode = NET_EVAL});
    *count = 0;
    for (int i = 0; names[def->define == aua_define][i]; i++) {
        struct tensor y = net_value(net, names[def->define == aua_define][i]);
        n = tensor_count(&y);
        host = realloc(host, (size_t)(*count + n) * sizeof *host);
        dev->ops->download(dev, host + *count, y.data, (size_t)n * sizeof *host);
        *count += n;
    }
    dev->ops->free(dev, x.data);
    net_free(net);
    assert_ok(device_check(dev, &e), e);
    return host;
}

static void pytorchs_model_gives_pytorchs_logits(void **state)
{
    (void)state;
    struct net_definition def;
    struct params *p;
    struct error e;
    int64_t n;
    assert_ok(io_write_all("golden.safetensors", 0666, golden, n_golden, &e), e);
    assert_ok(model_read(&p, &def, "golden.safetensors", dev, &e), e);
    assert_true(def.define == vnet_define && def.channels == 2 && def.classes == 3 && def.filters == 2);
    assert_int_equal(p->batches, 4);
    float *out = run_model(p, &def, &n);
    assert_int_equal(n, IMAGE_D * IMAGE_H * IMAGE_W * 3);
    double error = 0, power = 0, mean = 0;
    for (int i = 0; i < GOLDEN_MODEL_KEPT; i++)
        mean += golden_model_outputs[i] / GOLDEN_MODEL_KEPT;
    for (int i = 0; i < GOLDEN_MODEL_KEPT; i++) {
        error += pow((double)out[i * GOLDEN_MODEL_STRIDE] - golden_model_outputs[i], 2);
        power += pow(golden_model_outputs[i] - mean, 2);
    }
    if (!(error <= 1e-6 * power))
        test_fail("normalised mean squared error %g", error / power);
    free(out);
    params_free(p);
}

/* PyTorch's bytes through params and back: every tensor the same. */
static void a_state_dict_survives_us(void **state)
{
    (void)state;
    struct net_definition def;
    struct params *p;
    struct st_file before, after;
    struct error e;
    assert_ok(io_write_all("golden.safetensors", 0666, golden, n_golden, &e), e);
    assert_ok(model_read(&p, &def, "golden.safetensors", dev, &e), e);
    assert_ok(model_write("ours.safetensors", p, &def, &e), e);
    assert_ok(st_read(&before, "golden.safetensors", NULL, &e), e);
    assert_ok(st_read(&after, "ours.safetensors", NULL, &e), e);
    assert_int_equal(before.n_tensors, after.n_tensors);
    for (int i = 0; i < before.n_tensors; i++) {
        const struct st_tensor *a = &before.tensors[i], *b = st_find(&after, a->name);
        assert_true(b && a->dtype == b->dtype && a->n_dims == b->n_dims && a->bytes == b->bytes);
        assert_memory_equal(a->dims, b->dims, sizeof a->dims);
        assert_memory_equal(a->data, b->data, a->bytes);
    }
    st_free(&before);
    st_free(&after);
    params_free(p);
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void other_networks_are_refused(void **state)
{
    (void)state;
    struct draft d;
    struct params *p = make_params(&small_vnet, 2);
    struct error e;
    draft_make(&d, "");
    draft_tensor(&d, "out_conv.weight")->name = d.copy.names + 1; /* "lock_one.conv.0.weight" */
    assert_not_loaded(&d, ERR_BUSY, "S10", "out_conv.weight");
    assert_not_loaded(&d, ERR_BUSY, "S10", " lock_one.conv.0.weight");
    draft_free(&d);
    draft_make(&d, "");
    draft_tensor(&d, "block_two.conv.0.weight")->dims[2] = 1;
    assert_not_loaded(&d, ERR_BUSY, "S10", "block_two.conv.0.weight F32 8x8x1x3x3");
    draft_free(&d);
    draft_make(&d, "");
    draft_tensor(&d, "out_conv.bias")->dtype = ST_I32;
    assert_not_loaded(&d, ERR_BUSY, "S10", "out_conv.bias I32 3");
    draft_free(&d);
    draft_make(&d, "");
    d.file.n_tensors -= 5; /* the counters come first, so these are weights */
    assert_not_loaded(&d, ERR_BUSY, "S10", "5 tensors");
    assert_refused(model_from_tensors(p, &d.file, "", &e), e, ERR_BUSY, "S10", ", ...");
    draft_free(&d);
    draft_make(&d, "");
    while (d.file.n_tensors && d.file.tensors[0].dtype == ST_I64) /* a file without counters is fine */
        memmove(d.file.tensors, d.file.tensors + 1, (size_t)--d.file.n_tensors * sizeof *d.file.tensors);
    assert_ok(model_from_tensors(p, &d.file, "", &e), e);
    assert_int_equal(p->batches, 0);
    draft_free(&d);
    params_free(p);
}

static void bad_numbers_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int at;
        float value;
        const char *reason;
    } bad[] = {
        {"block_four.conv.3.weight", 17, NAN, "block_four.conv.3.weight[17]"},
        {"out_conv.bias", 2, INFINITY, "out_conv.bias[2]"},
        {"block_two.conv.1.running_var", 1, -0.5f, "running_var[1]"},
    };
    struct error e;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct draft d;
        struct st_file again = {0};
        struct model_copy copy;
        draft_make(&d, "");
        const struct param *q = params_find(d.params, bad[i].name);
        d.copy.values[q->offset + bad[i].at] = bad[i].value;
        assert_not_loaded(&d, ERR_DATA, "S09", bad[i].reason);
        dev->ops->upload(dev, d.params->value, d.copy.values, (size_t)d.params->count * sizeof(float));
        assert_refused(model_to_tensors(&again, &copy, d.params, "", &e), e, ERR_NUMERIC, "M04",
                       bad[i].name); /* and never published */
        assert_refused(model_write("nan.safetensors", d.params, &small_vnet, &e), e, ERR_NUMERIC, "M04");
        assert_false(io_exists("nan.safetensors"));
        st_free(&again);
        draft_free(&d);
    }
}

static void lying_definitions_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *key, *value;
    } lies[] = {
        {"falx.filters", "512"}, {"falx.filters", "0"},           {"falx.filters", "99999999999"},
        {"falx.filters", "x"},   {"falx.network", "transformer"}, {"falx.dropout", "some"},
        {"falx.classes", "257"}, {"falx.classes", "4"},           {"falx.channels", "1"},
        {"falx.rank", "-1"},     {"falx.head_norm", "2"},         {"falx.network", "aua"},
    };
    struct params *p = make_params(&small_vnet, 1), *q;
    struct net_definition def;
    struct st_file f;
    struct error e;
    assert_ok(model_write("m.safetensors", p, &small_vnet, &e), e);
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        assert_ok(st_read(&f, "m.safetensors", NULL, &e), e);
        assert_ok(st_set(&f, lies[i].key, lies[i].value, &e), e);
        assert_ok(st_write("lie.safetensors", &f, &e), e);
        st_free(&f);
        clock_t start = clock();
        assert_refused(model_read(&q, &def, "lie.safetensors", dev, &e), e, ERR_BUSY, "S10");
        assert_true(clock() - start < CLOCKS_PER_SEC / 2); /* gigabytes were not touched */
        assert_null(q);
        assert_says(e.text, "lie.safetensors");
    }
    assert_ok(io_write_all("other.safetensors", 0666, "\2\0\0\0\0\0\0\0{}", 10, &e), e);
    assert_refused(model_read(&q, &def, "other.safetensors", dev, &e), e, ERR_BUSY, "S10");
    params_free(p);
}

static void lost_memory_is_an_error(void **state)
{
    (void)state;
    struct params *p = make_params(&small_vnet, 1), *q = NULL;
    struct net_definition def;
    struct error e;
    for (int reading = 0; reading < 2; reading++) {
        int failures = 0, status = -1;
        for (int n = 0; n < 5000 && status < 0; n++) {
            mem_fail_at(n, 0);
            status = reading ? model_read(&q, &def, "m.safetensors", dev, &e)
                             : model_write("m.safetensors", p, &small_vnet, &e);
            mem_fail_at(-1, 0);
            failures += status < 0;
            if (status < 0)
                assert_int_equal(e.code, ERR_MEMORY);
            dev->error.code = ERR_NONE; /* sticky by design */
        }
        assert_in_range(failures, 5, 4999);
    }
    params_free(p);
    params_free(q);
}

/* ---- for oracle_model.sh --------------------------------------------------------------------- */

static int serve(int argc, char **argv)
{
    struct net_definition def = small_aua;
    struct params *p;
    struct error e;
    int64_t n;
    if (argc == 4 && strcmp(argv[1], "--write") == 0) {
        def = strcmp(argv[2], "aua") == 0 ? small_aua : small_vnet;
        p = make_params(&def, 9);
        return model_write(argv[3], p, &def, &e) < 0;
    }
    if (argc < 3 || model_read(&p, &def, argv[2], dev, &e) < 0) {
        fprintf(stderr, "%s\n", argc < 3 ? "usage: see the head of test_model_file.c" : e.text);
        return 1;
    }
    if (argc == 4 && strcmp(argv[1], "--copy") == 0)
        return model_write(argv[3], p, &def, &e) < 0;
    float *out = run_model(p, &def, &n);
    for (int64_t i = 0; i < n; i++)
        printf("%.9g\n", (double)out[i]);
    free(out);
    params_free(p);
    return 0;
}

/* The golden files lie beside this one; looked for before the working folder changes. */
static int read_golden(struct error *e)
{
    struct source *s;
    const char *slash = strrchr(__FILE__, '/');
    char path[4096];
    snprintf(path, sizeof path, "%.*s/golden/aua_state_dict.json", (int)(slash - __FILE__), __FILE__);
    if (js_read_file(&released, path, e) < 0)
        return -1;
    snprintf(path, sizeof path, "%.*s/golden/model.safetensors.gz", (int)(slash - __FILE__), __FILE__);
    golden = malloc(n_golden = 4 << 20);
    if (source_open(&s, path, e) < 0)
        return -1;
    int64_t got = source_read_some(s, golden, n_golden, e);
    source_close(s);
    n_golden = got < 0 ? 0 : (size_t)got;
    return got < 0 ? -1 : 0;
}

int main(int argc, char **argv)
{
    const struct device_options o = {.name = "cpu", .precision = PRECISION_F32, .threads = 1};
    struct error e;
    if (device_open(&dev, &o, &e) < 0 || (argc == 1 && read_golden(&e) < 0)) {
        fprintf(stderr, "%s\n", e.text);
        return 1;
    }
    int code = 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_come_back_to_the_bit),
        cmocka_unit_test(names_and_shapes_are_pytorchs),
        cmocka_unit_test(several_models_share_a_file),
        cmocka_unit_test(pytorchs_model_gives_pytorchs_logits),
        cmocka_unit_test(a_state_dict_survives_us),
        cmocka_unit_test(other_networks_are_refused),
        cmocka_unit_test(bad_numbers_are_refused),
        cmocka_unit_test(lying_definitions_are_refused),
        cmocka_unit_test(lost_memory_is_an_error),
        cmocka_unit_test(aua_has_the_released_state_dict),
        cmocka_unit_test(heads_of_older_files_are_read),
    };
    code = argc > 1 ? serve(argc, argv) : cmocka_run_group_tests(tests, test_folder_make, test_folder_remove);
    free(golden);
    js_free(released);
    device_close(dev);
    return code;
}
