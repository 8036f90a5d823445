/* pool.h - one pool of threads. Work is a range of numbered items; which thread runs an item never
 * matters, so results are the same for any number of threads.
 */
#ifndef FALX_POOL_H
#define FALX_POOL_H

#include <fenv.h>

#include "base/base.h"

struct pool;

enum { POOL_MOST_THREADS = 1024 }; /* that users may ask for */
/* n_threads counts the caller, who works too; 0 = one per available core. */
int pool_new(struct pool **out, int n_threads, struct error *e);
void pool_free(struct pool *p);
int pool_threads(const struct pool *p); /* 1 for NULL */
int pool_usable_cores(void);            /* that this process may run on, at least 1 */

/* Calls item(arg, i) for every i in [0, n_items), each once, and returns when all are done.
 * p == NULL runs them here, in order. Not to be called from inside an item. */
void pool_run(struct pool *p, int64_t n_items, void (*item)(void *arg, int64_t i), void *arg);

/* The arithmetic of every thread that computes: round to nearest, no traps, denormals kept; inside the items
 * of a pool they are flushed to zero, whichever thread runs them, since one operation on a denormal can take
 * as long as a hundred others [M13]. A caller's own mode (-ffast-math, another rounding) would change bits:
 * it is kept in *before, which may be NULL, and put back at the end. Threads of a pool start with ours. */
struct float_mode {
    fenv_t env;
};
void float_mode_begin(struct float_mode *before);
void float_mode_end(const struct float_mode *before);

#endif
