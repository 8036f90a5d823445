/* bench.h - between verb_bench.c, which has the table and tells results, and the files that time a part. */
#ifndef FALX_BENCH_H
#define FALX_BENCH_H

#include "cli/config.h"
#include "device/device.h"

struct bench_teller {
    const struct config *config;
    struct js_out *json; /* NULL: lines on stdout */
};
void bench_tell(const struct bench_teller *t, const char *name, double value, const char *unit);
/* 1 if the user asked for this benchmark or its group, or for none in particular. */
int bench_wanted(const struct config *c, const char *name);
double bench_now(void); /* monotonic seconds */
double bench_middle(double *times, int n); /* their median; sorts them */
/* Median seconds of run(arg), after one that does not count: at least 3 runs, then more until half a second
 * is spent, 100 at most. -1: run failed. */
int bench_median(double *seconds, int (*run)(void *arg, struct error *e), void *arg, struct error *e);

/* Groups train, window and step (bench_net.c). */
int bench_networks(const struct bench_teller *t, struct error *e);
/* Groups peak and layer (bench_layers.c). */
int bench_layers(const struct bench_teller *t, enum precision precision, struct error *e);

#endif
