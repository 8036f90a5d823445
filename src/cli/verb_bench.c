/* verb_bench.c - `falx bench [NAME...]`: how fast the parts of the data path are on this machine.
 *
 * One table of benchmarks; every figure is the median of repeated runs after one that warms caches
 * up (and sets up what the run needs). Speeds of I/O count decoded voxel bytes; `*.of_memory` sets
 * a speed against copying memory with one core in the same run, which is what a part that does
 * nothing but move voxels could reach at best.
 *
 * The input is a synthetic scan, the same for the same seed: nothing is read from outside, and
 * files live in a private folder that is removed at the end.
 */
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "base/json_write.h"
#include "base/pool.h"
#include "cli/bench.h"
#include "cli/options.h"
#include "phantom/phantom.h"
#include "sample/sampler.h"
#include "score/metrics.h"
#include "volume/resample.h"

struct bench {
    struct pool *pool;
    uint64_t seed;
    struct volume image, label; /* int16 and uint8 */
    label_t *truth, *prediction;
    char *folder;
    char *copied; /* two halves of the memory benchmark */
    struct case_store store;
    struct sampler *sampler;
    const struct augment_options *sampler_augment; /* what it was made with */
    /* told by the function that is timed: */
    double amount; /* units of work done by one run */
    double bytes;  /* voxel bytes it made, or 0: no comparison with memory */
};

/* A row of the table below: what to run, and with which file, kind or augmentation. */
struct row {
    const char *group, *name;
    int (*once)(struct bench *b, const struct row *r, struct error *e);
    const char *unit;
    const char *file;
    enum resample_kind kind;
    const struct augment_options *augment;
};

/* ---- what is timed --------------------------------------------------------------------------- */

static int copy_once(struct bench *b, const struct row *r, struct error *e)
{
    enum { BYTES = 64 << 20 }; /* well beyond any cache */
    (void)r;
    if (!b->copied) {
        if (!(b->copied = mem_alloc(e, 2, BYTES)))
            return -1;
        memset(b->copied, 1, BYTES); /* pages never written to are all one page of zeros */
    }
    memcpy(b->copied + BYTES, b->copied, BYTES);
    b->copied[0] = (char)(b->copied[2 * BYTES - 1] | 1); /* the copy is used */
    b->bytes = BYTES;
    b->amount = b->bytes / 1e6;
    return 0;
}

static int file_once(struct bench *b, const struct row *r, struct error *e)
{
    struct volume v = {0};
    char *path = path_join(e, b->folder, r->file);
    int reads = text_ends_with(r->name, "read"), status = -1;
    if (path)
        status = reads ? volume_read(&v, path, NULL, e) : volume_write(&b->image, path, e);
    b->amount = (double)volume_voxels(&b->image) * sizeof(int16_t) / 1e6;
    b->bytes = reads ? b->amount * 1e6 : 0;
    volume_free(&v);
    mem_free(path);
    return status;
}

/* Patch and batch of the published Left Atrium experiments. The same steps every time, so that runs
 * with random effects compare. */
static int sample_once(struct bench *b, const struct row *r, struct error *e)
{
    enum { BATCHES = 24 };
    struct sampler_options o = {.n_labeled = 2,
                                .n_unlabeled = 2,
                                .patch = {112, 112, 80},
                                .augment = {*r->augment, *r->augment},
                                .seed = b->seed,
                                .depth = 4,
                                .threads = pool_threads(b->pool)};
    if (b->sampler_augment != r->augment) {
        sampler_free(b->sampler);
        b->sampler = NULL;
        if (sampler_new(&b->sampler, &b->store, &o, e) < 0)
            return -1;
        b->sampler_augment = r->augment;
    }
    sampler_seek(b->sampler, 0);
    for (int i = 0; i < BATCHES; i++)
        (void)sampler_next(b->sampler);
    b->amount = BATCHES;
    b->bytes = (double)sampler_bytes(b->sampler) / o.depth * BATCHES;
    return 0;
}

static int score_once(struct bench *b, const struct row *r, struct error *e)
{
    const struct metric_options o = {METRIC_PROTOCOL_MM, 1};
    const struct label_pair pair = {b->truth, b->prediction, b->label.dims, b->label.geometry.spacing_mm};
    struct case_score score = {0};
    (void)r;
    if (metrics_measure(&score, &pair, &o, b->pool, e) < 0)
        return -1;
    case_score_free(&score);
    b->amount = (double)volume_voxels(&b->label) / 1e6;
    return 0;
}

/* To 1 mm, as a CT is prepared. */
static int resample_once(struct bench *b, const struct row *r, struct error *e)
{
    struct resample_axis axis[3];
    struct volume out = {0};
    for (int a = 0; a < 3; a++)
        resample_axis_centred(&axis[a], b->image.dims[a], b->image.geometry.spacing_mm[a], 1.0);
    if (volume_resample(&out, &b->image, axis, r->kind, b->pool, e) < 0)
        return -1;
    b->amount = (double)volume_voxels(&out) / 1e6;
    volume_free(&out);
    return 0;
}

static const struct row rows[] = {
    /* memory first and always: the others are compared with it */
    {"memory", "memory.copy", copy_once, "MB/s", .file = NULL},
    {"io", "io.nii.write", file_once, "MB/s", .file = "a.nii"},
    {"io", "io.nii.read", file_once, "MB/s", .file = "a.nii"},
    {"io", "io.niigz.write", file_once, "MB/s", .file = "a.nii.gz"},
    {"io", "io.niigz.read", file_once, "MB/s", .file = "a.nii.gz"},
    {"io", "io.nrrd.write", file_once, "MB/s", .file = "a.nrrd"},
    {"io", "io.nrrd.read", file_once, "MB/s", .file = "a.nrrd"},
    {"sampler", "sampler.paper", sample_once, "batches/s", .augment = &augment_paper},
    {"sampler", "sampler.full", sample_once, "batches/s", .augment = &augment_full},
    {"metrics", "metrics.case", score_once, "Mvoxel/s", .file = NULL},
    {"resample", "resample.nearest", resample_once, "Mvoxel/s", .kind = RESAMPLE_NEAREST},
    {"resample", "resample.linear", resample_once, "Mvoxel/s", .kind = RESAMPLE_LINEAR},
    {"resample", "resample.cubic", resample_once, "Mvoxel/s", .kind = RESAMPLE_CUBIC},
};
enum { N_ROWS = sizeof rows / sizeof rows[0] };

/* ---- what it is timed on --------------------------------------------------------------------- */

/* Eight cases, half of them labelled, as large as the Left Atrium's. */
static int make_store(struct bench *b, struct error *e)
{
    int n = (int)volume_voxels(&b->image);
    b->store.channels = 1;
    for (int i = 0; i < 8; i++) {
        const int dims[3] = {140 + 4 * i, 170 - 4 * i, 88};
        struct stored_case *c =
            case_store_add(&b->store, "bench", dims, i < 4 ? CASE_LABELED : CASE_UNLABELED, e);
        if (!c)
            return -1;
        for (int v = 0; v < dims[0] * dims[1] * dims[2]; v++) {
            c->image[v] = ((int16_t *)b->image.data)[v % n];
            if (c->label)
                c->label[v] = b->truth[v % n];
        }
    }
    return 0;
}

/* The scan, and as a prediction its label two voxels off along each axis. */
static int make_input(struct bench *b, struct error *e)
{
    const struct phantom_options o = {
        .cases = 1, .labeled = 1, .size = {224, 192, 128}, .classes = 2, .channels = 1, .seed = b->seed};
    const int64_t off[3] = {2, 2, 2};
    struct volume moved = {0};
    int status = -1;
    if (io_temp_folder(&b->folder, e) == 0 && phantom_make(&b->image, &b->label, &o, 0, b->pool, e) == 0 &&
        volume_crop(&moved, &b->label, off, b->label.dims, 0, e) == 0 &&
        volume_labels(&b->truth, NULL, &b->label, e) == 0 &&
        volume_labels(&b->prediction, NULL, &moved, e) == 0)
        status = make_store(b, e);
    volume_free(&moved);
    return status;
}

static void free_input(struct bench *b)
{
    if (b->folder)
        io_remove_tree(b->folder);
    mem_free(b->folder);
    mem_free(b->copied);
    volume_free(&b->image);
    volume_free(&b->label);
    mem_free(b->truth);
    mem_free(b->prediction);
    sampler_free(b->sampler);
    case_store_free(&b->store);
    pool_free(b->pool);
}

/* ---- timing ---------------------------------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_middle(double *times, int n)
{
    qsort(times, (size_t)n, sizeof *times, compare);
    return 0.5 * (times[n / 2] + times[(n - 1) / 2]);
}

enum { MOST_RUNS = 100 };

int bench_median(double *seconds, int (*once)(void *arg, struct error *e), void *arg, struct error *e)
{
    double took[MOST_RUNS], total = 0;
    int n = 0;
    if (once(arg, e) < 0)
        return -1;
    while (n < 3 || (n < MOST_RUNS && total < 0.5)) {
        double start = clock_seconds();
        if (once(arg, e) < 0)
            return -1;
        took[n] = clock_seconds() - start;
        total += took[n++];
    }
    *seconds = bench_middle(took, n);
    return 0;
}

struct row_run {
    struct bench *bench;
    const struct row *row;
};

static int row_once(void *arg, struct error *e)
{
    struct row_run *r = arg;
    return r->row->once(r->bench, r->row, e);
}

/* ---- the verb -------------------------------------------------------------------------------- */

static int check_names(const struct config *c, struct error *e)
{
    for (int i = 0; i < c->n_args; i++) {
        int row = 0;
        while (row < N_ROWS && strcmp(rows[row].group, c->args[i]) != 0)
            row++;
        int network = choice_find("peak|layer|train|window|step", c->args[i], strcspn(c->args[i], ".")) >= 0;
        if (row == N_ROWS && !network)
            return fail(e, ERR_CONFIG, "C01",
                        "%s: no such benchmark, allowed memory io sampler metrics resample peak "
                        "layer train window step",
                        c->args[i]);
    }
    return 0;
}

int bench_is_of(const char *name, const char *stem)
{
    size_t n = strlen(stem);
    return strncmp(name, stem, n) == 0 && (name[n] == '.' || name[n] == '\0');
}

/* "train" asks for train.f32.32 and all others of its group, "train.f32" for some, the whole name for one. */
int bench_wanted(const struct config *c, const char *name)
{
    int wanted = c->n_args == 0;
    for (int i = 0; i < c->n_args; i++)
        wanted |= bench_is_of(name, c->args[i]);
    return wanted;
}

int bench_named(const struct config *c, const char *name)
{
    int named = 0;
    for (int i = 0; i < c->n_args; i++)
        named |= strcmp(name, c->args[i]) == 0;
    return named;
}

/* One result: a line now, or an object of the array at the end. */
void bench_tell(const struct bench_teller *t, const char *name, double value, const char *unit)
{
    if (!t->json) {
        printf("%-28s %12.*f %s\n", name, value < 1 ? 5 : value < 10 ? 3 : 1, value, unit);
        fflush(stdout);
        return;
    }
    js_out_open(t->json, NULL, '{');
    js_out_text(t->json, "name", name);
    js_out_real(t->json, "value", value);
    js_out_text(t->json, "unit", unit);
    js_out_close(t->json, '}');
}

static int run_rows(struct bench *b, const struct bench_teller *t, struct error *e)
{
    double copy_rate = 0; /* bytes a second of memory.copy */
    char name[48];
    if (pool_new(&b->pool, (int)t->config->threads, e) < 0 || make_input(b, e) < 0)
        return -1;
    for (int i = 0; i < N_ROWS; i++) {
        double seconds;
        struct row_run run = {b, &rows[i]};
        if (i > 0 && !bench_wanted(t->config, rows[i].group))
            continue;
        b->bytes = 0;
        if (bench_median(&seconds, row_once, &run, e) < 0)
            return -1;
        bench_tell(t, rows[i].name, b->amount / seconds, rows[i].unit);
        snprintf(name, sizeof name, "%s.of_memory", rows[i].name);
        if (i == 0)
            copy_rate = b->bytes / seconds;
        else if (b->bytes > 0)
            bench_tell(t, name, b->bytes / seconds / copy_rate, "ratio");
    }
    return 0;
}

static int run(struct bench *b, const struct bench_teller *t, struct error *e)
{
    int any = t->config->n_args == 0;
    if (check_names(t->config, e) < 0)
        return -1;
    for (int i = 0; i < N_ROWS && !any; i++)
        any = bench_wanted(t->config, rows[i].group);
    if (any && run_rows(b, t, e) < 0)
        return -1;
    return bench_networks(t, e) < 0 ? -1 : bench_steps(t, e);
}

int verb_bench(struct config *c)
{
    struct error e = {0};
    struct bench b = {.seed = (uint64_t)c->set.seed};
    struct js_out json = {0};
    char *text = NULL;
    js_out_open(&json, NULL, '[');
    struct bench_teller t = {.config = c, .json = c->json ? &json : NULL};
    int status = run(&b, &t, &e);
    js_out_close(&json, ']');
    if (js_out_take(&text, &json, status < 0 ? NULL : &e) < 0)
        status = -1;
    else if (status == 0 && c->json)
        fputs(text, stdout);
    mem_free(text);
    free_input(&b);
    return status < 0 ? complain(&e) : 0;
}
