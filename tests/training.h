/* training.h - a training small enough to be killed a few hundred times: a method of three phases
 * on a V-Net with one filter, a few cases made in memory, and the options to run it in the working
 * directory.
 *
 *     first    student and averaged teacher (dropout, running statistics, moments, a state array)
 *     walk     no updates: sums up features into a state that the last phase reads
 *     second   a new network, beside the student of the first phase
 *
 * What goes wrong on purpose is set in `fault`.
 */
#ifndef FALX_TRAINING_H
#define FALX_TRAINING_H

#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "test.h"
#include "train/loss.h"
#include "train/train_int.h"

/* ---- faults of the method -------------------------------------------------------------------- */

static struct {
    int64_t from, until; /* steps [from, until) of the first phase go wrong ... */
    int64_t cured;       /* ... until the training was rolled back so many times */
    int kind;            /* enum below */
} fault;
enum { FAULT_LOSS, FAULT_GRADIENT, FAULT_EXPLODE, FAULT_WEIGHTS, FAULT_BLANK };
static double loss_weight = 1.0; /* of the first phase's loss */

/* ---- the method ------------------------------------------------------------------------------ */

struct tiny {
    struct loss_scratch *scratch;
    double sums[4]; /* state "sums"; the last two count applied steps, before and after the guard */
    int64_t walked; /* state "walked" */
};

static void tiny_done(struct trainer *t)
{
    struct tiny *s = t->method_state;
    loss_scratch_free(s->scratch);
    s->scratch = NULL;
}

static struct net_definition tiny_definition(const struct trainer *t)
{
    struct net_definition d = {.define = vnet_define,
                               .channels = t->store->channels,
                               .classes = t->store->n_classes,
                               .filters = (int)t->set->filters};
    return d;
}

static int tiny_common(struct trainer *t, const char *target, struct error *e)
{
    struct tiny *s = t->method_state;
    struct loss_options o = {.classes = t->store->n_classes, .dice_share = 0.5};
    t->target = (int)(trainer_find(t, target) - t->models);
    if (trainer_state(t, "sums", s->sums, sizeof s->sums, e) < 0 ||
        trainer_state(t, "walked", &s->walked, sizeof s->walked, e) < 0)
        return -1;
    return s->scratch ? 0 : loss_scratch_new(&s->scratch, t->dev, &o, e);
}

static int first_begin(struct trainer *t, struct error *e)
{
    struct net_definition d = tiny_definition(t);
    if (!trainer_model(t, "student", &d, t->n_labeled, NET_TRAINING, 1, e) ||
        !trainer_model(t, "teacher", &d, t->n_labeled, NET_FORWARD_ONLY, 0, e))
        return -1;
    return tiny_common(t, "student", e);
}

static int walk_begin(struct trainer *t, struct error *e)
{
    struct net_definition d = tiny_definition(t);
    if (!trainer_model(t, "student", &d, t->n_labeled, NET_TRAINING, 0, e))
        return -1;
    return tiny_common(t, "student", e);
}

static int second_begin(struct trainer *t, struct error *e)
{
    struct net_definition d = tiny_definition(t);
    if (!trainer_model(t, "student", &d, 0, NET_FORWARD_ONLY, 0, e) ||
        !trainer_model(t, "newcomer", &d, t->n_labeled, NET_TRAINING, 1, e))
        return -1;
    if (t->step == 0)
        trainer_copy(t, trainer_find(t, "newcomer"), trainer_find(t, "student"));
    return tiny_common(t, "newcomer", e);
}

static struct net_pass tiny_pass(const struct trainer *t, enum net_mode mode, uint32_t number)
{
    struct net_pass p = {
        .mode = mode, .seed = (uint64_t)t->set->seed, .step = t->draw, .stream = RNG_DROPOUT + number};
    return p;
}

/* From here on all is background: the first class's bias in the last layer says so. */
static void tiny_blank(struct params *p)
{
    const struct param *last = &p->list[p->n_trainable - 1];
    CHECK(strcmp(last->name, "out_conv.bias") == 0);
    p->value[last->offset] = 1e4f;
    p->version++;
}

/* Spoils the step if it is one of those. */
static void tiny_fault(struct trainer *t, struct model *m)
{
    if (t->phase != 0 || t->step < fault.from || t->step >= fault.until ||
        t->own->at.rollbacks >= fault.cured)
        return;
    if (fault.kind == FAULT_LOSS)
        note(t, "loss", NAN);
    else if (fault.kind == FAULT_GRADIENT)
        m->params->grad[m->params->list[1].offset] = INFINITY;
    else if (fault.kind == FAULT_EXPLODE)
        for (int64_t i = 0; i < m->params->trainable_count; i++)
            m->params->grad[i] *= 1e6f;
    else if (fault.kind == FAULT_WEIGHTS)
        m->params->value[3] = NAN;
    else
        tiny_blank(m->params);
    if (fault.kind == FAULT_LOSS) /* what NaN activations do to running statistics */
        m->params->value[m->params->trainable_count] = NAN;
}

static void learn(struct trainer *t, const char *name)
{
    struct tiny *s = t->method_state;
    struct model *m = trainer_find(t, name);
    struct net_pass pass = tiny_pass(t, NET_TRAIN, 0);
    struct tensor none = {.data = NULL}, image = tensor_items(&t->image, 0, t->n_labeled);
    struct tensor label = tensor_items(&t->label, 0, t->n_labeled);
    net_forward(m->net, &image, &pass);
    struct tensor z = net_value(m->net, "logits"), dz = net_grad(m->net, "logits");
    note(t, "loss", loss_ce_dice(s->scratch, &z, &label, &none, loss_weight, &dz, NULL, NULL));
    net_backward(m->net);
    tiny_fault(t, m);
}

static void first_gradients(struct trainer *t)
{
    struct tiny *s = t->method_state;
    struct model *teacher = trainer_find(t, "teacher");
    struct net_pass pass = tiny_pass(t, NET_TRAIN, 1);
    struct tensor image = tensor_items(&t->image, 0, t->n_labeled);
    net_forward(teacher->net, &image, &pass);
    learn(t, "student");
    s->sums[2] += 1;
}

static void first_after(struct trainer *t)
{
    struct tiny *s = t->method_state;
    ema_update(trainer_find(t, "teacher")->params, trainer_find(t, "student")->params, t->step,
               t->set->ema_decay);
    s->sums[0] += t->notes[0].value;
    s->sums[3] += 1;
}

static void walk_gradients(struct trainer *t)
{
    struct tiny *s = t->method_state;
    struct model *m = trainer_find(t, "student");
    struct net_pass pass = tiny_pass(t, NET_EVAL, 0);
    net_forward(m->net, &t->image, &pass);
    struct tensor z = net_value(m->net, "logits");
    s->sums[1] += (double)((float *)z.data)[17] * s->sums[0];
    s->walked++;
}

static void second_gradients(struct trainer *t)
{
    struct tiny *s = t->method_state;
    struct model *m = trainer_find(t, "newcomer");
    learn(t, "newcomer");
    m->params->grad[0] += (float)(1e-3 * s->sums[1]); /* so that a lost state shows in the weights */
}

static int first_end(struct trainer *t, struct error *e)
{
    const struct tiny *s = t->method_state;
    CHECK(s->sums[2] == s->sums[3]);
    return trainer_publish(t, "student", "stage1.safetensors", e);
}

static const struct method method_tiny = {
    .name = "tiny",
    .paper = "none",
    .state_bytes = sizeof(struct tiny),
    .done = tiny_done,
    .phases =
        {
            {.name = "first",
             .share = 1.0,
             .batch = {.labeled_only = 1},
             .begin = first_begin,
             .turns = {{first_gradients, "student"}},
             .after = first_after,
             .end = first_end},
            {.name = "walk",
             .share = 0.25,
             .stage = 2,
             .batch = {.labeled_only = 1, .plain = 1},
             .begin = walk_begin,
             .turns = {{walk_gradients, NULL}}},
            {.name = "second",
             .share = 0.5,
             .stage = 2,
             .begin = second_begin,
             .turns = {{second_gradients, "newcomer"}}},
        },
};
const struct method *const methods[] = {&method_tiny, NULL};

/* ---- data and options ------------------------------------------------------------------------ */

/* Cubes of brightness 1 in noise; every case its own. */
static void tiny_cases(struct case_store *s, int labeled, int unlabeled, uint64_t seed)
{
    static const int dims[3] = {18, 17, 19};
    struct error e;
    *s = (struct case_store){.channels = 1, .n_classes = 2};
    for (int i = 0; i < labeled + unlabeled; i++) {
        char name[16];
        snprintf(name, sizeof name, "case%d", i);
        struct stored_case *c =
            case_store_add(s, name, dims, i < labeled ? CASE_LABELED : CASE_UNLABELED, &e);
        assert_non_null(c);
        struct rng r = rng_start(seed, (uint64_t)i, RNG_TEST, 0);
        int at = 2 + (int)rng_below(&r, 5);
        for (int v = 0; v < dims[0] * dims[1] * dims[2]; v++) {
            int z = v / dims[2] / dims[1], y = v / dims[2] % dims[1], x = v % dims[2];
            int in = z >= at && z < at + 8 && y >= at && y < at + 8 && x >= at && x < at + 8;
            c->image[v] = 0.5f * rng_normal(&r) + (float)in;
            if (c->label)
                c->label[v] = (label_t)in;
        }
    }
}

static struct settings tiny_settings(void)
{
    static char name[] = "tiny";
    struct settings s = {.method = name,
                         .seed = 7,
                         .steps = 8,
                         .patch = {16, 16, 16},
                         .batch = 3,
                         .labeled_batch = 2,
                         .filters = 1,
                         .augment = AUGMENT_PAPER,
                         .dice_share = 0.5,
                         .schedule = SCHEDULE_POLY,
                         .lr = 0.05,
                         .momentum = 0.9,
                         .weight_decay = 1e-4,
                         .ema_decay = 0.9,
                         .stage2_share = 1,
                         .stages = 2,
                         .paste_warmup = 0.25};
    return s;
}

static struct device *tiny_device(int threads, enum precision precision)
{
    struct device *dev;
    struct error e;
    struct device_options o = {.name = "cpu", .precision = precision, .threads = threads};
    assert_ok(device_open(&dev, &o, &e), e);
    return dev;
}

/* ---- listening ------------------------------------------------------------------------------- */

static struct {
    int64_t stop_at; /* done steps at which a stop is asked for; -1: never */
    int64_t done;    /* steps the listener has heard of, as counted by the run */
    int steps, resumed, validated, undefined;
    int64_t resumed_at;
    double dice;
    double last_loss, gradient, rate;
    double *loss;        /* by done step, if not NULL */
    int64_t most_allocs; /* allocations between two steps of one phase */
} heard;

static void on_resumed(void *arg, int phase, int64_t step)
{
    (void)arg, (void)phase;
    heard.resumed++;
    heard.resumed_at = step;
}

static void on_step(void *arg, const struct train_step *s)
{
    (void)arg;
    int64_t allocs = mem_count();
    if (s->step > 2 && allocs > heard.most_allocs)
        heard.most_allocs = allocs;
    heard.steps++;
    heard.done = s->done;
    heard.rate = s->rate;
    for (int i = 0; i < s->n_notes; i++) {
        if (strcmp(s->notes[i].name, "loss") == 0)
            heard.last_loss = s->notes[i].value;
        if (strcmp(s->notes[i].name, "gradient") == 0)
            heard.gradient = s->notes[i].value;
    }
    if (heard.loss)
        heard.loss[s->done] = heard.last_loss;
    mem_fail_at(-1, 0);
}

static void on_validated(void *arg, const struct train_step *s, const struct validation *v)
{
    (void)arg, (void)s;
    heard.validated++;
    heard.dice = v->dice;
    heard.undefined = v->undefined;
}

static int on_stop(void *arg)
{
    (void)arg;
    return heard.stop_at >= 0 && heard.done >= heard.stop_at;
}

static struct train_options tiny_options(const struct settings *s, const struct case_store *store,
                                         struct device *dev, const char *run)
{
    memset(&heard, 0, sizeof heard);
    heard.stop_at = -1;
    struct train_options o = {
        .run = run,
        .settings = s,
        .store = store,
        .dev = dev,
        .checkpoint_every = 3,
        .data_hash = 99,
        .version = "1",
        .listen = {.resumed = on_resumed, .step = on_step, .validated = on_validated, .stop = on_stop}};
    return o;
}

/* ---- running --------------------------------------------------------------------------------- */

/* What a killed process wrote stays in the kernel's memory: no need to wait for a disk. */
static inline int quick_fsync(int fd)
{
    (void)fd;
    return 0;
}
static inline int quick_open(const char *p, int f, mode_t m)
{
    return io_posix.open(p, f, m);
}
static const struct io_ops quick = {quick_open, read,   write, quick_fsync, close,
                                    rename,     unlink, mkdir, lstat};

static inline void fresh_folder(const char *run)
{
    io_remove_tree(run);
    assert_int_equal(mkdir(run, 0777), 0);
}

static inline uint64_t hash_of(const char *run, const char *name)
{
    char path[200];
    static unsigned char bytes[1 << 22];
    snprintf(path, sizeof path, "%s/%s", run, name);
    FILE *f = fopen(path, "rb");
    if (!f)
        test_fail("%s is missing", path);
    size_t n = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    assert_true(n > 0 && n < sizeof bytes);
    return hash_bytes(bytes, n, 0);
}

static inline uint64_t result_of(const char *run)
{
    return hash_of(run, "model.safetensors") ^ hash_of(run, "stage1.safetensors");
}

/* The result that every interrupted run must come to: of a run in folder `reference`, one thread. */
static inline uint64_t uninterrupted(int (*train)(const char *run, int resume, int threads, struct error *e))
{
    struct error e;
    heard.stop_at = -1;
    fresh_folder("reference");
    assert_ok(train("reference", 0, 1, &e), e);
    return result_of("reference");
}

#endif
