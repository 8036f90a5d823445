/* sampler.c - which case goes into which slot, and the threads that fill batches ahead.
 *
 * The ring. Batch of step t lives in ring[t % depth]. Three step numbers describe it:
 *
 *     held <= step < fill        being filled or ready
 *     held                       the batch lent to the caller (or the next one to lend)
 *     fill, fill_slot            the next slot to be handed to a thread
 *
 * A thread takes (fill, fill_slot) if fill < held + depth, fills the slot without the lock, and
 * counts it in done[fill % depth]; a batch is ready when all its slots are. The unit of work is
 * one slot, so two threads share even a single batch, and which thread fills a slot cannot change
 * its bytes.
 *
 * The lock guards the step numbers, done[] and busy. Voxels are written by the one thread that
 * took the slot, and read by the caller after it saw the slot counted under the lock.
 */
#include "sample/sampler.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>

#include "base/pool.h"
#include "base/rng.h"

enum { MAX_SLOTS = 4096, MAX_THREADS = 256, MAX_DEPTH = 64, MAX_PATCH = 4096, MAX_PIECES = 64 };

/* What one thread works with. */
struct worker {
    struct sampler *sampler;
    struct augment_scratch *scratch;
    int *order; /* room for a permutation of the larger pool */
    pthread_t thread;
};

struct sampler {
    const struct case_store *store;
    struct sampler_options o;
    struct pool_range {
        int first, n; /* cases of the store */
    } pool[SAMPLER_STREAMS];
    uint64_t groups; /* batches in an epoch */
    int share;       /* slots that are of one case: views * pieces */

    struct batch *ring; /* depth of them */
    size_t patch_voxels;
    struct worker *worker;
    int n_workers, n_started; /* threads = 0: one worker, none started */

    pthread_mutex_t lock;
    pthread_cond_t work;  /* something to fill, or stop */
    pthread_cond_t ready; /* a batch is complete, or nothing is in flight */
    uint64_t held, fill;
    int lent; /* 1: the caller has batch `held` */
    int fill_slot;
    int *done;        /* slots filled of each ring place */
    int busy;         /* slots being filled */
    int paused, stop; /* hand out no slot; end the threads */
};

/* ---- streams --------------------------------------------------------------------------------- */

/* Fisher-Yates. Keyed by epoch, stream and how many permutations of the epoch were used up. */
static void permutation(int *out, int n, uint64_t seed, uint64_t epoch, enum sampler_stream stream,
                        uint64_t round)
{
    struct rng r = rng_start(seed, epoch, RNG_SHUFFLE, round * SAMPLER_STREAMS + stream);
    for (int i = 0; i < n; i++)
        out[i] = i;
    for (int i = n - 1; i > 0; i--) {
        int j = (int)rng_below(&r, (uint32_t)i + 1), swap = out[i];
        out[i] = out[j];
        out[j] = swap;
    }
}

/* Case of one slot. Position p of an epoch's stream is entry p % n of permutation p / n; a
 * labelled pool of at least L cases never gets past its first permutation, because the epoch ends
 * before. */
static int choose_case(const struct sampler *s, uint64_t step, int slot, int *order)
{
    enum sampler_stream stream = slot < s->o.n_labeled ? SAMPLER_LABELED : SAMPLER_UNLABELED;
    int width = (stream == SAMPLER_LABELED ? s->o.n_labeled : s->o.n_unlabeled) / s->share;
    int column = (stream == SAMPLER_LABELED ? slot : slot - s->o.n_labeled) / s->share;
    const struct pool_range *pool = &s->pool[stream];
    uint64_t position = step % s->groups * (uint64_t)width + (uint64_t)column;
    uint64_t n = (uint64_t)pool->n;
    permutation(order, pool->n, s->o.seed, step / s->groups, stream, position / n);
    return pool->first + order[position % n];
}

static void fill_slot(struct sampler *s, struct worker *w, struct batch *b, uint64_t step, int slot)
{
    struct sample *sample = &b->sample[slot];
    memset(sample, 0, sizeof *sample); /* padding bytes too: equal samples are equal bytes */
    sample->stream = slot < s->o.n_labeled ? SAMPLER_LABELED : SAMPLER_UNLABELED;
    sample->case_index = choose_case(s, step, slot, w->order);
    const struct stored_case *c = &s->store->cases[sample->case_index];
    int view = slot % s->o.views, reversed[3];
    const struct augment_options *o = &s->o.augment[s->o.views > 1 ? view > 0 : (int)sample->stream];
    const struct augment_key key = {.seed = s->o.seed,
                                    .step = step,
                                    .slot = (uint32_t)slot,
                                    .view = (uint16_t)view,
                                    .pieces = (uint8_t)s->o.pieces,
                                    .piece = (uint8_t)(slot / s->o.views % s->o.pieces)};
    sample->has_label = c->label != NULL;
    augment_draw(&sample->draw, o, c, b->dims, &key);
    augment_reversed(reversed, &sample->draw);
    sample->exchanged = sides_are_exchanged(&s->store->sides, reversed);

    size_t at = (size_t)slot * s->patch_voxels;
    struct patch p = {{b->dims[0], b->dims[1], b->dims[2]},
                      b->channels,
                      b->image ? b->image + at * (size_t)b->channels : NULL,
                      b->label ? b->label + at : NULL,
                      b->mask ? b->mask + at : NULL};
    if (p.image || p.label)
        augment_apply(&p, o, &sample->draw, c, w->scratch);
    for (size_t v = 0; p.label && sample->exchanged && v < s->patch_voxels; v++)
        p.label[v] = s->store->sides.other[p.label[v]];
}

/* ---- threads --------------------------------------------------------------------------------- */

static int has_room(const struct sampler *s)
{
    return !s->paused && s->fill - s->held < (uint64_t)s->o.depth;
}

/* Takes the next slot, fills it, counts it. Called and returns with the lock held. */
static void work_once(struct sampler *s, struct worker *w)
{
    uint64_t step = s->fill;
    int slot = s->fill_slot, place = (int)(step % (uint64_t)s->o.depth);
    struct batch *b = &s->ring[place];
    b->step = step;
    if (slot == 0)
        s->done[place] = 0;
    if (++s->fill_slot == b->n) {
        s->fill_slot = 0;
        s->fill++;
    }
    s->busy++;
    pthread_mutex_unlock(&s->lock);
    fill_slot(s, w, b, step, slot);
    pthread_mutex_lock(&s->lock);
    s->busy--;
    if (++s->done[place] == b->n || s->busy == 0)
        pthread_cond_broadcast(&s->ready);
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    struct sampler *s = w->sampler;
    float_mode_begin(NULL);
    pthread_mutex_lock(&s->lock);
    while (!s->stop) {
        if (has_room(s))
            work_once(s, w);
        else
            pthread_cond_wait(&s->work, &s->lock);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* Threads take no signals: those are for the program's own thread. One that cannot be started is done
 * without: batches are the same with fewer, and without any they are made by who asks for them [P18]. */
static void start_threads(struct sampler *s)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (s->n_started < s->o.threads &&
           pthread_create(&s->worker[s->n_started].thread, NULL, worker_main, &s->worker[s->n_started]) == 0)
        s->n_started++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* Waits for the batch of a step that is in the ring or next to be filled. The lock is held. */
static const struct batch *wait_for(struct sampler *s, uint64_t step)
{
    int place = (int)(step % (uint64_t)s->o.depth);
    while (s->fill <= step || s->done[place] < s->ring[place].n) {
        if (s->n_started == 0)
            work_once(s, &s->worker[0]);
        else
            pthread_cond_wait(&s->ready, &s->lock);
    }
    return &s->ring[place];
}

const struct batch *sampler_next(struct sampler *s)
{
    pthread_mutex_lock(&s->lock);
    if (s->lent) {
        s->held++;
        pthread_cond_broadcast(&s->work);
    }
    s->lent = 1;
    const struct batch *b = wait_for(s, s->held);
    pthread_mutex_unlock(&s->lock);
    return b;
}

const struct batch *sampler_peek(struct sampler *s)
{
    pthread_mutex_lock(&s->lock);
    const struct batch *b = wait_for(s, s->held + (uint64_t)s->lent);
    pthread_mutex_unlock(&s->lock);
    return b;
}

/* Stops the hand-out, waits for slots in flight, and begins anew with an empty ring. */
void sampler_seek(struct sampler *s, uint64_t step)
{
    pthread_mutex_lock(&s->lock);
    if (step != s->held + (uint64_t)s->lent) { /* else it is the step that comes next anyway */
        s->paused = 1;
        while (s->busy > 0)
            pthread_cond_wait(&s->ready, &s->lock);
        s->held = s->fill = step;
        s->fill_slot = 0;
        s->lent = 0;
        s->paused = 0;
        pthread_cond_broadcast(&s->work);
    }
    pthread_mutex_unlock(&s->lock);
}

size_t sampler_bytes(const struct sampler *s)
{
    const struct batch *b = &s->ring[0];
    size_t voxel = (b->image ? (size_t)b->channels * sizeof(float) : 0) + (b->label ? sizeof(label_t) : 0) +
                   (b->mask ? 1 : 0);
    return (size_t)s->o.depth * (size_t)s->ring[0].n * s->patch_voxels * voxel;
}

/* ---- birth and end --------------------------------------------------------------------------- */

static int check_options(const struct sampler_options *o, struct error *e)
{
    if (o->n_labeled < 0 || o->n_unlabeled < 0 || o->n_labeled > MAX_SLOTS ||
        o->n_unlabeled > MAX_SLOTS - o->n_labeled || o->n_labeled + o->n_unlabeled < 1)
        return fail(e, ERR_CONFIG, "C03", "batch of %d labelled + %d unlabelled slots, allowed 1..%d",
                    o->n_labeled, o->n_unlabeled, MAX_SLOTS);
    for (int a = 0; a < 3; a++)
        if (o->patch[a] < 1 || o->patch[a] > MAX_PATCH)
            return fail(e, ERR_CONFIG, "C03", "patch of %d x %d x %d voxels, allowed 1..%d each", o->patch[0],
                        o->patch[1], o->patch[2], MAX_PATCH);
    if (o->threads < 0 || o->threads > MAX_THREADS || o->depth < 2 || o->depth > MAX_DEPTH)
        return fail(e, ERR_CONFIG, "C02", "%d sampler threads and %d batches ahead, allowed 0..%d and 2..%d",
                    o->threads, o->depth, MAX_THREADS, MAX_DEPTH);
    for (int i = 0; i < SAMPLER_STREAMS; i++)
        if (augment_check(&o->augment[i], e) < 0)
            return -1;
    return 0;
}

/* One view and one piece are what batches have without them. */
static int check_views(struct sampler *s, struct error *e)
{
    struct sampler_options *o = &s->o;
    o->views = o->views ? o->views : 1;
    o->pieces = o->pieces ? o->pieces : 1;
    s->share = 1;
    if (o->views == 1 && o->pieces == 1)
        return 0;
    if (o->views < 2 || o->pieces < 1 || o->views > MAX_SLOTS || o->pieces > MAX_PIECES || o->n_labeled > 0 ||
        o->n_unlabeled % (o->views * o->pieces) != 0)
        return fail(e, ERR_CONFIG, "C03", "%d views of %d pieces do not make %d + %d slots", o->views,
                    o->pieces, o->n_labeled, o->n_unlabeled);
    s->share = o->views * o->pieces;
    return 0;
}

/* Pools of the two streams and the length of an epoch; says which fallback is in force. */
static int choose_pools(struct sampler *s, struct error *e)
{
    const struct case_store *c = s->store;
    int labeled = s->o.n_labeled, unlabeled = s->o.n_unlabeled, rest = c->n_cases - c->n_labeled;
    s->pool[SAMPLER_LABELED] = (struct pool_range){0, c->n_labeled};
    if (s->share > 1)
        rest = c->n_cases;
    s->pool[SAMPLER_UNLABELED] = (struct pool_range){c->n_cases - rest, rest};
    if (labeled > 0 && c->n_labeled == 0)
        return fail(e, ERR_DATA, "L10", "no labelled case, %d wanted in each batch", labeled);
    if (unlabeled > 0 && rest == 0) {
        if (c->n_labeled == 0)
            return fail(e, ERR_DATA, "L10", "no case to draw batches from");
        s->pool[SAMPLER_UNLABELED] = s->pool[SAMPLER_LABELED];
        report_line(s->o.report, REPORT_NOTE, NULL, "L10",
                    "no unlabelled case: the %d unlabelled slots of a batch draw from the "
                    "%d labelled cases",
                    unlabeled, c->n_labeled);
    }
    if (labeled > c->n_labeled)
        report_line(s->o.report, REPORT_NOTE, NULL, "L10",
                    "%d labelled cases for %d labelled slots: cases repeat within a batch", c->n_labeled,
                    labeled);
    int n = labeled > 0 ? c->n_labeled : s->pool[SAMPLER_UNLABELED].n;
    int width = (labeled > 0 ? labeled : unlabeled) / s->share;
    s->groups = n >= width ? (uint64_t)(n / width) : 1;
    return 0;
}

static int make_batch(struct batch *b, const struct sampler *s, struct error *e)
{
    b->n = s->o.n_labeled + s->o.n_unlabeled;
    b->n_labeled = s->o.n_labeled;
    b->channels = s->store->channels;
    memcpy(b->dims, s->o.patch, sizeof b->dims);
    size_t voxels = (size_t)b->n * s->patch_voxels; /* <= 2^12 slots of 2^36 voxels */
    int image = !(s->o.without & SAMPLER_NO_IMAGE), label = !(s->o.without & SAMPLER_NO_LABEL);
    if (image && !(b->image = mem_alloc(e, voxels, (size_t)b->channels * sizeof(float))))
        return -1;
    if (label && !(b->label = mem_alloc(e, voxels, sizeof(label_t))))
        return -1;
    if (image && s->store->has_mask && !(b->mask = mem_alloc(e, voxels, 1)))
        return -1;
    b->sample = mem_alloc(e, (size_t)b->n, sizeof *b->sample);
    return b->sample ? 0 : -1;
}

static int make_ring(struct sampler *s, struct error *e)
{
    s->patch_voxels = (size_t)s->o.patch[0] * (size_t)s->o.patch[1] * (size_t)s->o.patch[2];
    s->ring = mem_alloc(e, (size_t)s->o.depth, sizeof *s->ring);
    s->done = mem_alloc(e, (size_t)s->o.depth, sizeof *s->done);
    if (!s->ring || !s->done)
        return -1;
    for (int i = 0; i < s->o.depth; i++)
        if (make_batch(&s->ring[i], s, e) < 0)
            return -1;
    report_line(s->o.report, REPORT_NOTE, NULL, NULL, "batches: %d of %d + %d patches, %.1f MiB", s->o.depth,
                s->o.n_labeled, s->o.n_unlabeled, (double)sampler_bytes(s) / 1048576.0);
    return 0;
}

static int make_workers(struct sampler *s, struct error *e)
{
    s->n_workers = s->o.threads > 0 ? s->o.threads : 1;
    s->worker = mem_alloc(e, (size_t)s->n_workers, sizeof *s->worker);
    for (int i = 0; s->worker && i < s->n_workers; i++) {
        struct worker *w = &s->worker[i];
        w->sampler = s;
        w->order = mem_alloc(e, (size_t)s->store->n_cases, sizeof *w->order);
        if (!w->order || augment_scratch_new(&w->scratch, s->o.augment, SAMPLER_STREAMS, s->o.patch,
                                             s->store->channels, e) < 0)
            return -1;
    }
    return s->worker ? 0 : -1;
}

int sampler_new(struct sampler **out, const struct case_store *store, const struct sampler_options *o,
                struct error *e)
{
    if (check_options(o, e) < 0)
        return -1;
    struct sampler *s = mem_alloc(e, 1, sizeof *s);
    if (!s)
        return -1;
    s->store = store;
    s->o = *o;
    CHECK(pthread_mutex_init(&s->lock, NULL) == 0);
    CHECK(pthread_cond_init(&s->work, NULL) == 0);
    CHECK(pthread_cond_init(&s->ready, NULL) == 0);
    if (check_views(s, e) < 0 || choose_pools(s, e) < 0 || make_ring(s, e) < 0 || make_workers(s, e) < 0) {
        sampler_free(s);
        return -1;
    }
    start_threads(s);
    *out = s;
    return 0;
}

void sampler_free(struct sampler *s)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    s->stop = 1;
    pthread_cond_broadcast(&s->work);
    pthread_mutex_unlock(&s->lock);
    for (int i = 0; i < s->n_started; i++)
        pthread_join(s->worker[i].thread, NULL);
    for (int i = 0; s->worker && i < s->n_workers; i++) {
        mem_free(s->worker[i].order);
        augment_scratch_free(s->worker[i].scratch);
    }
    for (int i = 0; s->ring && i < s->o.depth; i++) {
        mem_free(s->ring[i].image);
        mem_free(s->ring[i].label);
        mem_free(s->ring[i].mask);
        mem_free(s->ring[i].sample);
    }
    mem_free(s->worker);
    mem_free(s->ring);
    mem_free(s->done);
    pthread_cond_destroy(&s->work);
    pthread_cond_destroy(&s->ready);
    pthread_mutex_destroy(&s->lock);
    mem_free(s);
}
