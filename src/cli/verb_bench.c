/* verb_bench.c - `falx bench [NAME...]`: how fast the parts of the data path are on this machine.
 *
 * One table of benchmarks, each a function that adds results (name, value, unit). Every figure is
 * the median of repeated runs after one that warms caches up. Speeds of I/O count decoded voxel
 * bytes, in millions (MB); `*.of_memory` sets a speed against copying memory on the same machine
 * in the same run, which is what a part that does nothing but move voxels could reach at best.
 *
 * Inputs are made here, the same for every seed-equal run: nothing is read from outside, and files
 * live in a private folder that is removed at the end.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/io.h"
#include "base/pool.h"
#include "base/rng.h"
#include "cli/config.h"
#include "sample/sampler.h"
#include "score/metrics.h"
#include "volume/resample.h"
#include "volume/volume.h"

enum { MAX_RESULTS = 64 };

struct bench {
    uint64_t seed;
    struct pool *pool;
    char *folder;         /* for files; made when first needed */
    double copy_rate;     /* bytes a second of memory.copy; 0 = not measured yet */
    struct bench_result {
        const char *name, *unit;
        double value;
    } result[MAX_RESULTS];
    int n;
};

static void add(struct bench *b, const char *name, double value, const char *unit)
{
    CHECK(b->n < MAX_RESULTS);
    b->result[b->n++] = (struct bench_result){name, unit, value};
}

/* ---- timing ---------------------------------------------------------------------------------- */

/* At least 3 runs, then more until half a second is spent, 9 at most: noise of a few per cent. */
enum { LEAST_RUNS = 3, MOST_RUNS = 9 };
#define ENOUGH_SECONDS 0.5

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Median seconds of once(arg), after one run that does not count. */
static int measure(double *seconds, int (*once)(void *arg, struct error *e), void *arg,
                   struct error *e)
{
    double took[MOST_RUNS], total = 0;
    int n = 0;
    if (once(arg, e) < 0) return -1;
    while (n < LEAST_RUNS || (n < MOST_RUNS && total < ENOUGH_SECONDS)) {
        double start = now();
        if (once(arg, e) < 0) return -1;
        took[n] = now() - start;
        total += took[n++];
    }
    qsort(took, (size_t)n, sizeof took[0], compare);
    *seconds = n % 2 ? took[n / 2] : 0.5 * (took[n / 2 - 1] + took[n / 2]);
    return 0;
}

/* ---- memory ---------------------------------------------------------------------------------- */

enum { COPY_BYTES = 128 << 20 }; /* well beyond any cache */

struct copy_work {
    char *from, *to;
};

static int copy_once(void *arg, struct error *e)
{
    struct copy_work *w = arg;
    (void)e;
    memcpy(w->to, w->from, COPY_BYTES);
    w->from[0] = (char)(w->to[COPY_BYTES - 1] + 1); /* the copy is used */
    return 0;
}

/* One thread: every part below is compared with what one core can copy. */
static int bench_memory(struct bench *b, struct error *e)
{
    struct copy_work w = {mem_alloc(e, COPY_BYTES, 1), mem_alloc(e, COPY_BYTES, 1)};
    double seconds;
    int result = -1;
    if (!w.from || !w.to || measure(&seconds, copy_once, &w, e) < 0) goto out;
    b->copy_rate = COPY_BYTES / seconds;
    add(b, "memory.copy", b->copy_rate / 1e6, "MB/s");
    result = 0;
out:
    mem_free(w.from);
    mem_free(w.to);
    return result;
}

/* ---- files ----------------------------------------------------------------------------------- */

struct io_work {
    const struct volume *volume; /* what is written */
    char *path;
};

/* A scan as gzip sees it: a smooth body of 16-bit numbers, air around, noise in the low bits. */
static int make_scan(struct volume *v, uint64_t seed, struct error *e)
{
    const int64_t dims[3] = {256, 256, 160};
    if (volume_new(v, DTYPE_I16, dims, NULL, e) < 0) return -1;
    struct rng r = rng_start(seed, 0, RNG_NOISE, 0);
    int16_t *out = v->data;
    for (int64_t k = 0; k < dims[2]; k++)
        for (int64_t j = 0; j < dims[1]; j++)
            for (int64_t i = 0; i < dims[0]; i++) {
                double x = (double)(i - 128) / 110, y = (double)(j - 128) / 90, s = x * x + y * y;
                double body = 60 * sin(0.07 * (double)i) * cos(0.05 * (double)(j + k));
                *out++ = (int16_t)(s > 1 ? -1000 : body + (double)rng_below(&r, 24));
            }
    return 0;
}

static int read_once(void *arg, struct error *e)
{
    struct io_work *w = arg;
    struct volume v = {0};
    if (volume_read(&v, w->path, NULL, e) < 0) return -1;
    volume_free(&v);
    return 0;
}

static int write_once(void *arg, struct error *e)
{
    struct io_work *w = arg;
    return volume_write(w->volume, w->path, e);
}

static int bench_io(struct bench *b, struct error *e)
{
    static const struct {
        const char *file, *name;
        const char *share; /* the result that sets it against memory.copy, or NULL */
        int (*once)(void *arg, struct error *e);
    } rows[] = {
        {"a.nii", "io.nii.write", NULL, write_once},
        {"a.nii", "io.nii.read", "io.nii.read.of_memory", read_once},
        {"a.nii.gz", "io.niigz.write", NULL, write_once},
        {"a.nii.gz", "io.niigz.read", "io.niigz.read.of_memory", read_once},
        {"a.nrrd", "io.nrrd.write", NULL, write_once},
        {"a.nrrd", "io.nrrd.read", "io.nrrd.read.of_memory", read_once},
    };
    struct volume scan = {0};
    struct io_work w = {&scan, NULL};
    int result = -1;
    if (!b->folder && io_temp_folder(&b->folder, e) < 0) goto out;
    if (make_scan(&scan, b->seed, e) < 0) goto out;
    double bytes = (double)volume_voxels(&scan) * (double)dtype_bytes(scan.dtype);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        double seconds;
        mem_free(w.path);
        if (!(w.path = path_join(e, b->folder, rows[i].file))) goto out;
        if (measure(&seconds, rows[i].once, &w, e) < 0) goto out;
        add(b, rows[i].name, bytes / seconds / 1e6, "MB/s");
        if (rows[i].share) add(b, rows[i].share, bytes / seconds / b->copy_rate, "ratio");
    }
    result = 0;
out:
    mem_free(w.path);
    volume_free(&scan);
    return result;
}

/* ---- sampler --------------------------------------------------------------------------------- */

/* Patch and batch of the published Left Atrium experiments; cases as large as theirs are. */
enum { RUN_BATCHES = 24, N_CASES = 8 };

static int make_store(struct case_store *s, uint64_t seed, struct error *e)
{
    s->channels = 1;
    for (int i = 0; i < N_CASES; i++) {
        const int dims[3] = {140 + 4 * i, 170 - 4 * i, 88};
        enum case_kind kind = i < N_CASES / 2 ? CASE_LABELED : CASE_UNLABELED;
        struct stored_case *c = case_store_add(s, "bench", dims, kind, e);
        if (!c) return -1;
        struct rng r = rng_start(seed, (uint64_t)i, RNG_NOISE, 1);
        size_t n = (size_t)dims[0] * (size_t)dims[1] * (size_t)dims[2];
        for (size_t v = 0; v < n; v++) {
            c->image[v] = rng_between(&r, -1, 1);
            if (c->label) c->label[v] = v / 4096 % 3 == 0;
        }
    }
    return 0;
}

/* The same steps every time, so that runs with random effects compare. */
static int sample_once(void *arg, struct error *e)
{
    struct sampler *s = arg;
    (void)e;
    sampler_seek(s, 0);
    for (int i = 0; i < RUN_BATCHES; i++) (void)sampler_next(s);
    return 0;
}

static int bench_one_sampler(struct bench *b, const struct case_store *store, const char *name,
                             const char *share, const struct augment_options *o, struct error *e)
{
    struct sampler_options options = {.n_labeled = 2, .n_unlabeled = 2, .patch = {112, 112, 80},
                                      .augment = {*o, *o}, .seed = b->seed, .depth = 4,
                                      .threads = pool_threads(b->pool)};
    struct sampler *s = NULL;
    double seconds;
    if (sampler_new(&s, store, &options, e) < 0) return -1;
    int result = measure(&seconds, sample_once, s, e);
    double bytes = (double)sampler_bytes(s) / options.depth;
    sampler_free(s);
    if (result < 0) return -1;
    add(b, name, RUN_BATCHES / seconds, "batches/s");
    add(b, share, bytes * RUN_BATCHES / seconds / b->copy_rate, "ratio");
    return 0;
}

static int bench_sampler(struct bench *b, struct error *e)
{
    static const struct {
        const char *name, *share;
        const struct augment_options *augment;
    } rows[] = {{"sampler.paper", "sampler.paper.of_memory", &augment_paper},
                {"sampler.full", "sampler.full.of_memory", &augment_full}};
    struct case_store store = {0};
    int result = -1;
    if (make_store(&store, b->seed, e) < 0) goto out;
    for (int i = 0; i < 2; i++)
        if (bench_one_sampler(b, &store, rows[i].name, rows[i].share, rows[i].augment, e) < 0)
            goto out;
    result = 0;
out:
    case_store_free(&store);
    return result;
}

/* ---- metrics --------------------------------------------------------------------------------- */

struct score_work {
    label_t *truth, *prediction;
    struct pool *pool;
};

enum { SCORE_EDGE = 256 };

/* An organ with a wavy surface, and a prediction that is a little off. */
static void make_pair(struct score_work *w)
{
    size_t v = 0;
    for (int k = 0; k < SCORE_EDGE; k++)
        for (int j = 0; j < SCORE_EDGE; j++)
            for (int i = 0; i < SCORE_EDGE; i++, v++) {
                double x = i - 128, y = 1.3 * (j - 120), z = 1.1 * (k - 130);
                double r = sqrt(x * x + y * y + z * z) + 4 * sin(0.2 * i) * cos(0.15 * (j + k));
                w->truth[v] = r < 80;
                w->prediction[v] = r + 3 * sin(0.1 * j) < 81;
            }
}

static int score_once(void *arg, struct error *e)
{
    struct score_work *w = arg;
    const int64_t dims[3] = {SCORE_EDGE, SCORE_EDGE, SCORE_EDGE};
    const double spacing[3] = {1, 1, 1};
    const struct metric_options o = {METRIC_PROTOCOL_MM, 1};
    struct case_score score = {0};
    if (metrics_measure(&score, w->truth, w->prediction, dims, spacing, &o, w->pool, e) < 0)
        return -1;
    case_score_free(&score);
    return 0;
}

static int bench_metrics(struct bench *b, struct error *e)
{
    const size_t n = (size_t)SCORE_EDGE * SCORE_EDGE * SCORE_EDGE;
    struct score_work w = {mem_alloc(e, n, sizeof(label_t)), mem_alloc(e, n, sizeof(label_t)),
                           b->pool};
    double seconds;
    int result = -1;
    if (!w.truth || !w.prediction) goto out;
    make_pair(&w);
    if (measure(&seconds, score_once, &w, e) < 0) goto out;
    add(b, "metrics.256", seconds, "s");
    result = 0;
out:
    mem_free(w.truth);
    mem_free(w.prediction);
    return result;
}

/* ---- resampling ------------------------------------------------------------------------------ */

struct resample_work {
    const float *in;
    int64_t dims[3];
    struct resample_axis axis[3];
    enum resample_kind kind;
    struct pool *pool;
};

static int resample_once(void *arg, struct error *e)
{
    struct resample_work *w = arg;
    float *out = NULL;
    if (resample_floats(&out, w->in, w->dims, w->axis, w->kind, w->pool, e) < 0) return -1;
    mem_free(out);
    return 0;
}

/* 200 x 200 x 100 voxels of 0.8 x 0.8 x 2.5 mm to 1 mm, as a CT is prepared. */
static int bench_resample(struct bench *b, struct error *e)
{
    static const struct {
        const char *name;
        enum resample_kind kind;
    } rows[] = {{"resample.nearest", RESAMPLE_NEAREST}, {"resample.linear", RESAMPLE_LINEAR},
                {"resample.cubic", RESAMPLE_CUBIC}};
    struct resample_work w = {.dims = {200, 200, 100}, .pool = b->pool};
    const double spacing[3] = {0.8, 0.8, 2.5};
    size_t n = 200 * 200 * 100;
    double voxels = 1;
    float *in = mem_alloc(e, n, sizeof(float));
    if (!in) return -1;
    for (size_t i = 0; i < n; i++) in[i] = (float)(i % 251);
    w.in = in;
    for (int a = 0; a < 3; a++) {
        resample_axis_centred(&w.axis[a], w.dims[a], spacing[a], 1.0);
        voxels *= (double)w.axis[a].n;
    }
    int result = 0;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0] && result == 0; i++) {
        double seconds;
        w.kind = rows[i].kind;
        result = measure(&seconds, resample_once, &w, e);
        if (result == 0) add(b, rows[i].name, voxels / seconds / 1e6, "Mvoxel/s");
    }
    mem_free(in);
    return result;
}

/* ---- the verb -------------------------------------------------------------------------------- */

/* memory comes first: the others are compared with it. */
static const struct {
    const char *name;
    int (*run)(struct bench *b, struct error *e);
} benches[] = {
    {"memory", bench_memory},   {"io", bench_io},           {"sampler", bench_sampler},
    {"metrics", bench_metrics}, {"resample", bench_resample},
};
enum { N_BENCHES = sizeof benches / sizeof benches[0] };

static int find_bench(const char *name)
{
    for (int i = 0; i < N_BENCHES; i++)
        if (strcmp(benches[i].name, name) == 0) return i;
    return -1;
}

/* wanted[i] = 1 for those named; all if none is. */
static int choose(int wanted[N_BENCHES], const struct config *c, struct error *e)
{
    for (int i = 0; i < N_BENCHES; i++) wanted[i] = c->n_args == 0;
    for (int i = 0; i < c->n_args; i++) {
        int found = find_bench(c->args[i]);
        if (found < 0)
            return fail(e, ERR_CONFIG, "C01",
                        "%s: no such benchmark, allowed memory io sampler metrics resample",
                        c->args[i]);
        wanted[found] = 1;
    }
    wanted[0] = 1;
    return 0;
}

static void print_table(const struct bench *b)
{
    for (int i = 0; i < b->n; i++)
        printf("%-28s %12.*f %s\n", b->result[i].name, b->result[i].value < 10 ? 3 : 1,
               b->result[i].value, b->result[i].unit);
}

/* Names and units are plain words of ours: nothing to escape. */
static void print_json(const struct bench *b)
{
    printf("[");
    for (int i = 0; i < b->n; i++)
        printf("%s\n  {\"name\": \"%s\", \"value\": %.6g, \"unit\": \"%s\"}", i ? "," : "",
               b->result[i].name, b->result[i].value, b->result[i].unit);
    printf("\n]\n");
}

int verb_bench(struct config *c)
{
    struct error e = {0};
    struct bench b = {.seed = (uint64_t)c->seed};
    int wanted[N_BENCHES], done = 0, result = -1;
    struct progress *progress = NULL;
    if (choose(wanted, c, &e) < 0) goto out;
    if (pool_new(&b.pool, (int)c->threads, &e) < 0) goto out;
    progress = progress_begin(c, "bench", N_BENCHES);
    for (int i = 0; i < N_BENCHES; i++) {
        if (wanted[i] && benches[i].run(&b, &e) < 0) goto out;
        progress_at(progress, ++done);
    }
    result = 0;
out:
    if (progress) progress_end(progress);
    if (b.folder) io_remove_tree(b.folder);
    mem_free(b.folder);
    pool_free(b.pool);
    if (result < 0) return complain(&e);
    if (c->json) print_json(&b);
    else print_table(&b);
    return 0;
}
