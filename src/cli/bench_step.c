/* bench_step.c - speed of whole steps in the loop, with batches, guards and averages, and the memory of the
 * device at its fullest.
 *
 *     step.aua.64           seconds of a step of stage 1, 2 + 2 patches of 64^3
 *     step.supervised.la    of a plain V-Net, 4 patches of 112x112x80
 *     step.aua.stage2.la    of stage 2
 *     step.aua.tf32.la      in tf32, on a GPU
 *     step.aua.la.memory    GiB held on the GPU
 *
 * Other methods are measured when they are named: step.dtc.la.
 */
#include <string.h>

#include "base/io.h"
#include "base/rng.h"
#include "cli/bench.h"
#include "train/method.h"
#include "train/train.h"

enum { MOST_STEPS = 60 };
struct stepping {
    double last, took[MOST_STEPS];
    int n;
};

/* The first steps are for caches, clocks and the sampler's ring; of several phases the last is told. */
static void step_done(void *arg, const struct train_step *s)
{
    struct stepping *k = arg;
    if (s->step == 1)
        k->n = 0;
    if (4 * s->step > s->steps && k->n < MOST_STEPS)
        k->took[k->n++] = s->seconds - k->last;
    k->last = s->seconds;
}

/* A ball in noise. */
static void fill_case(struct stored_case *c, const int dims[3], struct rng *r)
{
    int64_t d = dims[0], h = dims[1], w = dims[2];
    for (int64_t i = 0; i < d * h * w; i++) {
        int64_t x = i % w - w / 2, y = i / w % h - h / 2, z = i / w / h - d / 2;
        int inside = x * x + y * y + z * z < w * w / 9;
        c->image[i] = (float)inside + rng_between(r, -1, 1);
        if (c->label)
            c->label[i] = (label_t)inside;
    }
}

static int ball_cases(struct case_store *store, const int patch[3], struct error *e)
{
    struct rng r = rng_start(2, 0, RNG_TEST, 0);
    int dims[3] = {patch[0] + patch[0] / 4, patch[1] + patch[1] / 4, patch[2] + patch[2] / 8};
    store->channels = 1;
    store->n_classes = 2;
    for (int k = 0; k < 4; k++) {
        struct stored_case *c = case_store_add(store, k < 2 ? "labelled" : "unlabelled", dims,
                                               k < 2 ? CASE_LABELED : CASE_UNLABELED, e);
        if (!c)
            return -1;
        fill_case(c, dims, &r);
    }
    return 0;
}

static const struct kind {
    const char *suffix; /* of the method's name */
    int tf32, stages;
} kinds[] = {{"", 0, 1}, {".stage2", 0, 2}, {".tf32", 1, 1}};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

static int bench_step(const struct bench_teller *t, const char *method, const struct kind *how,
                      const struct bench_patch *patch, struct error *e)
{
    struct config c = *t->config;
    struct case_store store = {0};
    struct stepping k = {.n = 0};
    struct train_result r;
    struct device *dev = NULL;
    char *folder = NULL, kind[32], name[48], memory[64];
    enum precision precision = how->tf32 ? PRECISION_TF32 : (enum precision)c.precision;
    struct device_options o = {.name = c.device, .precision = precision, .threads = (int)c.threads};
    int result = -1;
    snprintf(kind, sizeof kind, "%s%s", method, how->suffix);
    if (!bench_patch_wanted(name, &c, "step", kind, patch))
        return 0;
    if (device_open(&dev, &o, e) < 0 || ball_cases(&store, patch->dims, e) < 0 ||
        io_temp_folder(&folder, e) < 0)
        goto out;
    c.set.method = (char *)(uintptr_t)method;
    c.set.labeled_batch = strcmp(method, "supervised") == 0 ? c.set.batch : c.set.batch / 2;
    c.set.steps = strcmp(dev->ops->name, "cpu") == 0 ? MOST_STEPS / 5 : MOST_STEPS;
    c.set.stages = how->stages;
    for (int a = 0; a < 3; a++)
        c.set.patch[a] = patch->dims[a];
    struct train_options to = {.run = folder,
                               .settings = &c.set,
                               .store = &store,
                               .dev = dev,
                               .checkpoint_seconds = 1e9,
                               .sampler_threads = train_sampler_threads(dev),
                               .listen = {.arg = &k, .step = step_done}};
    if (train_run(&r, &to, e) < 0)
        goto out;
    bench_tell(t, name, bench_middle(k.took, k.n), "seconds");
    snprintf(memory, sizeof memory, "%s.memory", name);
    if (dev->peak_bytes)
        bench_tell(t, memory, (double)dev->peak_bytes / 1073741824.0, "GiB");
    result = 0;
out:
    if (folder)
        io_remove_tree(folder);
    mem_free(folder);
    case_store_free(&store);
    device_close(dev);
    return result;
}

static int is_wanted(const struct config *c, const char *method)
{
    char stem[48];
    int wanted = strcmp(method, "supervised") == 0 || strcmp(method, "aua") == 0;
    snprintf(stem, sizeof stem, "step.%s", method);
    for (int i = 0; i < c->n_args; i++)
        wanted |= bench_is_of(c->args[i], stem);
    return wanted;
}

static int has_stage(const struct method *m, int stage)
{
    int has = 0;
    for (int i = 0; m->phases[i].name; i++)
        has |= stage == 1 || m->phases[i].stage == stage;
    return has;
}

static int bench_kinds(const struct bench_teller *t, const struct method *m, const struct bench_patch *patch,
                       struct error *e)
{
    for (int i = 0; i < N_KINDS; i++)
        if (has_stage(m, kinds[i].stages) && (!kinds[i].tf32 || bench_on_gpu(t->config)) &&
            bench_step(t, m->name, &kinds[i], patch, e) < 0)
            return -1;
    return 0;
}

int bench_steps(const struct bench_teller *t, struct error *e)
{
    for (int i = 0; i < BENCH_PATCHES; i++)
        for (int m = 0; methods[m]; m++)
            if (is_wanted(t->config, methods[m]->name) &&
                bench_kinds(t, methods[m], &bench_patches[i], e) < 0)
                return -1;
    return 0;
}
