/* pool.c - threads that wait for a range of numbered items and take them one by one. See pool.h.
 *
 *   caller:  publish job, open -> work -> close -> wait until nobody is inside
 *   worker:  wait for a new job number -> go inside, if still open take items until none is left -> leave
 *
 * The caller never waits for a worker that has not come yet: on a busy machine it does the work alone.
 * A worker goes inside before it looks whether the job is open, the caller closes before it looks whether
 * somebody is inside; one of them sees the other (all of this is sequentially consistent).
 *
 * A training step hands out several hundred jobs of some ten microseconds, and waking a sleeping thread
 * costs as much: so who waits looks for a moment before going to sleep, unless there are more threads
 * than cores.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "base/pool.h"

enum { LOOKS = 1000 }; /* before sleeping: some 50 microseconds */

struct pool {
    pthread_mutex_t lock; /* for sleeping only */
    pthread_cond_t start, done;
    int n_threads; /* with the caller */
    int n_started; /* threads that really run */
    int looks;     /* LOOKS or 0 */
    atomic_int stop;
    atomic_int asleep; /* workers */
    atomic_int caller_asleep;
    atomic_uint_fast64_t job; /* number of the current job */
    atomic_int open, inside;

    /* the job: written while nobody is inside and it is not open */
    int64_t n_items;
    void (*item)(void *arg, int64_t i);
    void *arg;
    atomic_int_fast64_t next;
    pthread_t thread[];
};

static void look_again(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

static void work(struct pool *p)
{
    for (;;) {
        int64_t i = atomic_fetch_add(&p->next, 1);
        if (i >= p->n_items)
            return;
        p->item(p->arg, i);
    }
}

/* Returns when there is a job after `seen`, or the pool ends. */
static void wait_for_job(struct pool *p, uint64_t seen)
{
    for (int i = 0; i < p->looks; i++) {
        if (atomic_load(&p->job) != seen || atomic_load(&p->stop))
            return;
        look_again();
    }
    pthread_mutex_lock(&p->lock);
    atomic_fetch_add(&p->asleep, 1);
    while (atomic_load(&p->job) == seen && !atomic_load(&p->stop))
        pthread_cond_wait(&p->start, &p->lock);
    atomic_fetch_sub(&p->asleep, 1);
    pthread_mutex_unlock(&p->lock);
}

void float_mode_begin(struct float_mode *before)
{
    if (before)
        fegetenv(&before->env);
    fesetenv(FE_DFL_ENV);
}

void float_mode_end(const struct float_mode *before)
{
    fesetenv(&before->env);
}

/* The processor's own word for flushing (x86: FTZ and DAZ, bits 15 and 6 of MXCSR): set it, or put it back.
 * Where there is none denormals are kept, which is as good where they cost nothing. */
static unsigned flush_begin(void)
{
#if defined(__x86_64__)
    unsigned before = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(before | 0x8040);
    return before;
#else
    return 0;
#endif
}

static void flush_end(unsigned before)
{
#if defined(__x86_64__)
    __builtin_ia32_ldmxcsr(before);
#else
    (void)before;
#endif
}

static void *worker(void *arg)
{
    struct pool *p = arg;
    uint64_t seen = 0;
    float_mode_begin(NULL);
    flush_begin();
    for (;;) {
        wait_for_job(p, seen);
        if (atomic_load(&p->stop))
            return NULL;
        seen = atomic_load(&p->job);
        atomic_fetch_add(&p->inside, 1);
        if (atomic_load(&p->open))
            work(p);
        if (atomic_fetch_sub(&p->inside, 1) == 1 && atomic_load(&p->caller_asleep)) {
            pthread_mutex_lock(&p->lock);
            pthread_cond_signal(&p->done);
            pthread_mutex_unlock(&p->lock);
        }
    }
}

static void wait_until_left(struct pool *p)
{
    for (int i = 0; i < p->looks; i++) {
        if (atomic_load(&p->inside) == 0)
            return;
        look_again();
    }
    pthread_mutex_lock(&p->lock);
    atomic_store(&p->caller_asleep, 1);
    while (atomic_load(&p->inside) > 0)
        pthread_cond_wait(&p->done, &p->lock);
    atomic_store(&p->caller_asleep, 0);
    pthread_mutex_unlock(&p->lock);
}

int pool_usable_cores(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) < 0)
        return 1;
    int n = CPU_COUNT(&set);
    return n > 0 ? n : 1;
}

int pool_new(struct pool **out, int n_threads, struct error *e)
{
    *out = NULL;
    if (n_threads <= 0)
        n_threads = pool_usable_cores();
    struct pool *p = mem_alloc(e, 1, sizeof *p + (size_t)n_threads * sizeof(pthread_t));
    if (!p)
        return -1;
    p->looks = n_threads <= pool_usable_cores() ? LOOKS : 0;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->start, NULL);
    pthread_cond_init(&p->done, NULL);
    /* A thread that cannot be started is done without: results are the same with fewer [P18]. */
    while (p->n_started < n_threads - 1 && pthread_create(&p->thread[p->n_started], NULL, worker, p) == 0)
        p->n_started++;
    p->n_threads = p->n_started + 1;
    *out = p;
    return 0;
}

void pool_free(struct pool *p)
{
    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    atomic_store(&p->stop, 1);
    pthread_cond_broadcast(&p->start);
    pthread_mutex_unlock(&p->lock);
    for (int i = 0; i < p->n_started; i++)
        pthread_join(p->thread[i], NULL);
    pthread_cond_destroy(&p->done);
    pthread_cond_destroy(&p->start);
    pthread_mutex_destroy(&p->lock);
    mem_free(p);
}

int pool_threads(const struct pool *p)
{
    return p ? p->n_threads : 1;
}

void pool_run(struct pool *p, int64_t n_items, void (*item)(void *arg, int64_t i), void *arg)
{
    unsigned callers = flush_begin();
    if (!p || p->n_started == 0 || n_items < 2) {
        for (int64_t i = 0; i < n_items; i++)
            item(arg, i);
        flush_end(callers);
        return;
    }
    p->item = item;
    p->arg = arg;
    p->n_items = n_items;
    atomic_store(&p->next, 0);
    atomic_store(&p->open, 1);
    atomic_fetch_add(&p->job, 1);
    if (atomic_load(&p->asleep) > 0) {
        pthread_mutex_lock(&p->lock);
        pthread_cond_broadcast(&p->start);
        pthread_mutex_unlock(&p->lock);
    }
    work(p);
    flush_end(callers);
    atomic_store(&p->open, 0);
    wait_until_left(p);
}
