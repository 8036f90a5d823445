/* check_set.h - private to check.c and check_set.c: a check under way. */
#ifndef FALX_CHECK_SET_H
#define FALX_CHECK_SET_H

#include <pthread.h>

#include "data/check.h"

struct gate { /* lets cases in while their bytes fit the budget */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t used;
};

struct check_job {
    struct check_result *out;
    const struct dataset *d;
    const struct check_options *o;
    struct told *told;        /* one a case */
    struct landmarks *points; /* one a case */
    struct gate gate;
    int64_t n_done; /* under gate.lock */
};

/* What concerns several cases: channel counts [L14], classes [L07], twins [L09], patch and batch
 * [L10]. */
int check_set(struct check_job *j, struct error *e);

#endif
