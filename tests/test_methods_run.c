/* test_methods_run.c - every method in a run: whether it learns, goes on after a stop, publishes what is
 * tested.
 *
 * Learning: a bright ball in noise, a few dozen steps, and the Dice of the model that a run would be judged
 * by, on cases it never saw. Stopping: a run that was interrupted ends in the same bytes.
 */
#include <sys/resource.h>

#include "base/rng.h"
#include "methods.h"
#include "net/model_file.h"
#include "train/checkpoint.h"
#include "train/loss.h"

#include "golden/aua.h"

#ifdef __SANITIZE_ADDRESS__
enum { LEARN_STEPS = 2, JUDGED = 0 }; /* a step takes ten times as long: that it is clean must do */
#else
enum { LEARN_STEPS = 40, JUDGED = 1 };
#endif

/* ---- learning ---------------------------------------------------------------------------------- */

/* A ball of radius 5 or so, somewhere, brighter by 2.5 deviations of the noise. */
static void ball_case(struct case_store *s, int i, int labeled, uint64_t seed)
{
    static const int dims[3] = {34, 18, 18};
    struct error e;
    char name[16];
    snprintf(name, sizeof name, "case%d", i);
    struct stored_case *c = case_store_add(s, name, dims, labeled ? CASE_LABELED : CASE_UNLABELED, &e);
    assert_non_null(c);
    struct rng r = rng_start(seed, (uint64_t)i, RNG_TEST, 1);
    int centre[3] = {10 + (int)rng_below(&r, 14), 7 + (int)rng_below(&r, 4), 7 + (int)rng_below(&r, 4)};
    int square = 20 + (int)rng_below(&r, 16);
    for (int v = 0; v < dims[0] * dims[1] * dims[2]; v++) {
        int z = v / dims[2] / dims[1] - centre[0], y = v / dims[2] % dims[1] - centre[1];
        int x = v % dims[2] - centre[2], in = z * z + y * y + x * x <= square;
        c->image[v] = 0.5f * rng_normal(&r) + 1.25f * (float)in;
        if (c->label)
            c->label[v] = (label_t)in;
    }
}

/* Dice of the final model on three cases that were not trained on. */
static double dice_after(char *method, int64_t steps)
{
    struct case_store train = {.channels = 1, .n_classes = 2}, val = train;
    struct settings set = golden_runs[0].set; /* switches of AUA */
    struct train_result r;
    struct error e;
    for (int i = 0; i < 7; i++)
        ball_case(&train, i, i < 3, 1);
    for (int i = 0; i < 3; i++)
        ball_case(&val, i, 1, 2);
    set.method = method;
    set.steps = steps;
    set.filters = 4;
    set.patch[0] = 32, set.patch[1] = set.patch[2] = 16;
    set.dropout = NET_DROPOUT_BOTTLENECK;
    set.schedule = SCHEDULE_POLY;
    set.lr = 0.03;
    set.weight_decay = 1e-4;
    set.ramp = RAMP_CONTINUOUS;
    set.consistency = 0.15;
    set.ema_decay = 0.9;
    fresh_run();
    struct train_options o = {.run = "run", .settings = &set, .store = &train, .val = &val, .dev = dev};
    assert_ok(train_run(&r, &o, &e), e);
    case_store_free(&train);
    case_store_free(&val);
    if (getenv("FALX_TEST_MARGINS"))
        print_message("%-16s Dice %.3f after %d updates\n", method, r.dice, (int)r.steps);
    return r.dice;
}

/* The ball is a twentieth of the scan: marking everything scores 0.10, the best threshold of the
 * intensity 0.67. */
static void every_method_learns(void **state)
{
    (void)state;
    for (int i = 0; methods[i]; i++) {
        char name[32];
        snprintf(name, sizeof name, "%s", methods[i]->name);
        double dice = dice_after(name, JUDGED && getenv("FALX_SOAK") ? 5 * LEARN_STEPS : LEARN_STEPS);
        if (JUDGED && dice <= 0.8)
            dice = dice_after(name, 100); /* Dice alone takes longer */
        if (JUDGED && !(dice > 0.8))
            test_fail("%s does not learn", name);
        test_tally("methods", JUDGED);
    }
}

/* ---- stopping ---------------------------------------------------------------------------------- */

struct stopping {
    int64_t at, done; /* 0: never */
};

static void on_counted_step(void *arg, const struct train_step *s)
{
    ((struct stopping *)arg)->done = s->done;
}

static int wants_stop(void *arg)
{
    const struct stopping *s = arg;
    return s->at > 0 && s->done >= s->at;
}

/* The smallest training there is: one filter, four steps. */
static struct settings small_settings(char *method)
{
    struct settings set = golden_runs[0].set;
    set.method = method;
    set.steps = 4;
    set.filters = 1;
    set.patch[0] = set.patch[1] = set.patch[2] = 16;
    set.ramp = RAMP_CONTINUOUS;
    return set;
}

static int train_small(const struct settings *set, int64_t stop_at, int threads, int resume, struct error *e)
{
    struct case_store store = {.channels = 1, .n_classes = 2};
    struct stopping s = {.at = stop_at};
    struct device_options d = {.name = "cpu", .precision = PRECISION_F32, .threads = threads};
    struct train_options o = {.run = "run",
                              .settings = set,
                              .store = &store,
                              .resume = resume,
                              .listen = {.arg = &s, .step = on_counted_step, .stop = wants_stop}};
    struct train_result r;
    for (int i = 0; i < 5; i++)
        ball_case(&store, i, i < 2, 3);
    assert_ok(device_open(&o.dev, &d, e), *e);
    if (!resume)
        fresh_run();
    int result = train_run(&r, &o, e);
    device_close(o.dev);
    case_store_free(&store);
    return result;
}

static uint64_t model_hash(void)
{
    static unsigned char bytes[1 << 20];
    FILE *f = fopen("run/model.safetensors", "rb");
    assert_non_null(f);
    size_t n = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    assert_true(n > 0 && n < sizeof bytes);
    return hash_bytes(bytes, n, 0);
}

static int64_t all_steps(const struct method *m, const struct settings *set)
{
    int64_t sum = 0;
    for (const struct phase *p = m->phases; p->name; p++)
        sum += phase_steps(p, set);
    return sum;
}

/* Stopped after some step, gone on with by two threads: the bytes of the run that nobody disturbed. */
static void check_resumes(const struct method *m, const struct settings *set)
{
    struct error e;
    assert_ok(train_small(set, 0, 1, 0, &e), e);
    uint64_t want = model_hash();
    for (int64_t at = 1; at < all_steps(m, set); at += 2) {
        assert_refused(train_small(set, at, 1, 0, &e), e, ERR_STOPPED, "P11");
        assert_ok(train_small(set, 0, 2, 1, &e), e);
        if (model_hash() != want)
            test_fail("%s differs after a stop at step %d", m->name, (int)at);
        test_tally("kills", 1);
    }
}

static void every_method_resumes(void **state)
{
    (void)state;
    for (int i = 0; methods[i]; i++) {
        char name[32];
        snprintf(name, sizeof name, "%s", methods[i]->name);
        struct settings set = small_settings(name);
        check_resumes(methods[i], &set);
    }
}

/* A labeller that was there since the middle of stage 1 labels like one that a resume made anew. */
static void pasting_resumes(void **state)
{
    char name[] = "aua";
    struct settings set = small_settings(name);
    (void)state;
    set.proto_ckpt = PROTO_MIDDLE;
    set.stage2_paste = 1;
    set.dropout = NET_DROPOUT_BOTTLENECK;
    check_resumes(method_find(name), &set);
}

/* The labeller of AUA's middle is the student after the middle step or, if that one was not applied, after
 * the next: here the second step of four meets a scan that is not finite. */
static void middle_survives_a_bad_step(void **state)
{
    struct case_store store = {.channels = 1, .n_classes = 2};
    char name[] = "aua";
    struct settings set = small_settings(name);
    struct train_options o = {.run = "run", .settings = &set, .store = &store, .dev = dev};
    struct net_definition def;
    struct train_result r;
    struct params *p;
    struct error e;
    (void)state;
    for (int i = 0; i < 8; i++)
        ball_case(&store, i, i < 2, 3);
    for (int v = 0; v < 34 * 18 * 18; v++)
        store.cases[7].image[v] = NAN;
    set.proto_ckpt = PROTO_MIDDLE;
    set.stages = 1;
    set.seed = 6;
    fresh_run();
    assert_ok(train_run(&r, &o, &e), e);
    assert_int_equal(r.steps, 3);
    assert_ok(model_read(&p, &def, "run/stage1-middle.safetensors", dev, &e), e);
    assert_int_equal(p->batches, 2);
    params_free(p);
    case_store_free(&store);
}

/* Methods whose network has several outputs, or heads of earlier phases, publish the V-Net in it, with the
 * weights of the last step. */
static void branches_publish_a_vnet(void **state)
{
    static const char names[][16] = {"mc-net", "mc-net-plus", "urpc", "cct", "chaitanya"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct net_definition def;
        struct checkpoint_files files;
        struct params *p;
        struct st_file f;
        struct error e;
        char name[sizeof names[0]], full[96];
        memcpy(name, names[i], sizeof name);
        struct settings set = small_settings(name);
        assert_ok(train_small(&set, 0, 1, 0, &e), e);
        assert_ok(model_read(&p, &def, "run/model.safetensors", dev, &e), e);
        assert_true(def.define == vnet_define && def.classes == 2);
        assert_int_equal(checkpoint_open(&f, &files, "run", NULL, &e), 1);
        for (int k = 0; k < p->n; k++) {
            float *have = mem_alloc(&e, (size_t)p->list[k].count, sizeof *have);
            snprintf(full, sizeof full, "model.%s/%s", i < 4 ? "student" : "model", p->list[k].name);
            const struct st_tensor *t = st_find(&f, full);
            assert_non_null(t);
            assert_ok(param_download(have, p, p->value, k, &e), e);
            assert_memory_equal(have, t->data, t->bytes);
            mem_free(have);
        }
        st_free(&f);
        params_free(p);
    }
}

static void odd_batches_are_refused(void **state)
{
    static const struct {
        char name[16];
        int batch, labeled;
    } odd[] = {{"mt", 4, 4},     {"entropy", 2, 2},    {"ua-mt", 1, 1},     {"ict", 2, 2},
               {"ict", 5, 2},    {"dtc", 2, 2},        {"dan", 3, 3},       {"sassnet", 2, 2},
               {"simcvd", 1, 1}, {"mc-net", 2, 2},     {"urpc", 2, 2},      {"cct", 2, 2},
               {"aua", 2, 2},    {"copy-paste", 2, 2}, {"copy-paste", 4, 3}};
    (void)state;
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        struct error e;
        char name[16];
        memcpy(name, odd[i].name, sizeof name);
        struct settings set = small_settings(name);
        set.batch = odd[i].batch;
        set.labeled_batch = odd[i].labeled;
        assert_refused(train_small(&set, 0, 1, 0, &e), e, ERR_CONFIG, "C03");
    }
}

static void wide_critics_are_refused(void **state)
{
    static char names[][8] = {"dan", "sassnet"};
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct error e;
        struct settings set = small_settings(names[i]);
        set.filters = 255;
        assert_ok(method_find(names[i])->check(&set, &e), e);
        set.filters = 256; /* as many as --filters allows */
        assert_refused(method_find(names[i])->check(&set, &e), e, ERR_CONFIG, "C03");
    }
}

/* What is too large is refused, not killed: counting must not fill it with weights. */
static void counted_memory_is_not_touched(void **state)
{
    (void)state;
    static char aua[] = "aua"; /* a teacher, and a labeller that is a copy */
    struct error e;
    struct settings set = small_settings(aua);
    struct rusage before, after;
    size_t bytes;
    set.filters = 64;
    assert_int_equal(getrusage(RUSAGE_SELF, &before), 0);
    assert_ok(train_memory(&bytes, &set, dev, 1, 2, &e), e);
    assert_int_equal(getrusage(RUSAGE_SELF, &after), 0);
    assert_true(bytes > (size_t)2 << 30);
    assert_true(after.ru_maxrss - before.ru_maxrss < 400 << 10); /* KiB; the weights of one model: 590 MiB */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counted_memory_is_not_touched), /* first: a peak stays */
        cmocka_unit_test(every_method_learns),
        cmocka_unit_test(every_method_resumes),
        cmocka_unit_test(pasting_resumes),
        cmocka_unit_test(middle_survives_a_bad_step),
        cmocka_unit_test(branches_publish_a_vnet),
        cmocka_unit_test(odd_batches_are_refused),
        cmocka_unit_test(wide_critics_are_refused),
    };
#ifdef __SANITIZE_ADDRESS__
    if (!getenv("FALX_SOAK"))
        cmocka_set_test_filter("every_method_learns"); /* one short run of each */
#endif
    return cmocka_run_group_tests(tests, open_device, close_device);
}
