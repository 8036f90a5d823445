/* pool.c - threads that wait for a range of numbered items and take them one by one. See pool.h.
 *
 *   caller:  publish job -> work -> wait until every worker has left the job
 *   worker:  wait for a new job number -> take items until none is left -> leave
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "base/pool.h"

struct pool {
    pthread_mutex_t lock;
    pthread_cond_t start, done;
    int n_threads; /* with the caller */
    int n_started; /* threads that really run */
    int stop;
    uint64_t job;  /* number of the current job */
    int n_inside;  /* workers that have not left it */
    int64_t n_items;
    atomic_int_fast64_t next;
    void (*item)(void *arg, int64_t i);
    void *arg;
    pthread_t thread[];
};

static void work(struct pool *p)
{
    for (;;) {
        int64_t i = atomic_fetch_add(&p->next, 1);
        if (i >= p->n_items)
            return;
        p->item(p->arg, i);
    }
}

static void *worker(void *arg)
{
    struct pool *p = arg;
    uint64_t seen = 0;
    pthread_mutex_lock(&p->lock);
    for (;;) {
        while (!p->stop && p->job == seen)
            pthread_cond_wait(&p->start, &p->lock);
        if (p->stop)
            break;
        seen = p->job;
        pthread_mutex_unlock(&p->lock);
        work(p);
        pthread_mutex_lock(&p->lock);
        if (--p->n_inside == 0)
            pthread_cond_signal(&p->done);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
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
    p->n_threads = n_threads;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->start, NULL);
    pthread_cond_init(&p->done, NULL);
    for (; p->n_started < n_threads - 1; p->n_started++) {
        int error = pthread_create(&p->thread[p->n_started], NULL, worker, p);
        if (error) {
            fail_errno(e, error, "cannot start a thread");
            pool_free(p);
            return -1;
        }
    }
    *out = p;
    return 0;
}

void pool_free(struct pool *p)
{
    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    p->stop = 1;
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
    if (!p || p->n_started == 0 || n_items < 2) {
        for (int64_t i = 0; i < n_items; i++)
            item(arg, i);
        return;
    }
    pthread_mutex_lock(&p->lock);
    p->item = item;
    p->arg = arg;
    p->n_items = n_items;
    atomic_store(&p->next, 0);
    p->n_inside = p->n_started;
    p->job++;
    pthread_cond_broadcast(&p->start);
    pthread_mutex_unlock(&p->lock);
    work(p);
    pthread_mutex_lock(&p->lock);
    while (p->n_inside > 0)
        pthread_cond_wait(&p->done, &p->lock);
    pthread_mutex_unlock(&p->lock);
}
