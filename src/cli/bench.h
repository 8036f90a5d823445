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
/* 1 if the name is the stem, or goes on from it after a dot. */
int bench_is_of(const char *name, const char *stem);
/* 1 if the user asked for this benchmark or its group, or for none in particular. */
int bench_wanted(const struct config *c, const char *name);
/* 1 if the user asked for it by its whole name: those that take long on a processor. */
int bench_named(const struct config *c, const char *name);
double bench_middle(double *times, int n); /* their median; sorts them */
/* Median seconds of run(arg), after one that does not count: at least 3 runs, then more until half a second
 * is spent, 100 at most. -1: run failed. */
int bench_median(double *seconds, int (*run)(void *arg, struct error *e), void *arg, struct error *e);

/* Shape of a patch: a cube, or "la", that of the published Left Atrium experiments. */
struct bench_patch {
    const char *name;
    int dims[3];
};
enum { BENCH_PATCHES = 4 };
extern const struct bench_patch bench_patches[BENCH_PATCHES];
/* 1 if GROUP.KIND.PATCH is to run; its name is left in `name`. "la" must be asked for by name. */
int bench_patch_wanted(char name[48], const struct config *c, const char *group, const char *kind,
                       const struct bench_patch *p);

/* 1 if the device asked for is a GPU: more precisions are timed then. */
int bench_on_gpu(const struct config *c);

/* Groups train and window (bench_net.c). */
int bench_networks(const struct bench_teller *t, struct error *e);
/* Group step (bench_step.c). */
int bench_steps(const struct bench_teller *t, struct error *e);
/* Groups peak and layer (bench_layers.c). */
int bench_layers(const struct bench_teller *t, enum precision precision, struct error *e);

#endif
