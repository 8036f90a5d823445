/* runs.h - the numbers of a run in one SQLite file that users can query while it grows.
 *
 *     steps(phase, step, name, value)     validation(phase, step, class, dice)     facts(key, value)
 *
 * Rows are gathered in memory and written in one transaction per flush; a resume first deletes rows
 * beyond the step it starts from, so that every step stands there once.
 */
#ifndef FALX_RUNS_H
#define FALX_RUNS_H

#include "base/base.h"

#define RUNS_DAMAGED "K02" /* id of errors about a file that SQLite cannot read */

struct runs;
int runs_open(struct runs **out, const char *path, struct error *e); /* made if missing */
int runs_open_reading(struct runs **out, const char *path, struct error *e);
int runs_put_aside(const char *path, struct error *e); /* as PATH.damaged */
void runs_close(struct runs *r);                       /* flushes; NULL is fine */
int runs_forget_after(struct runs *r, int phase, int64_t step, struct error *e);
/* name: at most 31 bytes. */
int runs_add_step(struct runs *r, int phase, int64_t step, const char *name, double value, struct error *e);
/* class_index as in labels; the background, 0, is not in the mean of runs_validation. */
int runs_add_validation(struct runs *r, int phase, int64_t step, int class_index, double dice,
                        struct error *e);
int runs_set_fact(struct runs *r, const char *key, const char *value, struct error *e);
/* Also 0 if another program has the file locked: the rows wait in memory for the next flush. */
int runs_flush(struct runs *r, struct error *e);

struct runs_curve {
    int n;
    int *phase;
    int64_t *step;
    double *value;
};
/* A stored fact for mem_free, or NULL if there is none of that name. */
int runs_fact(char **out, struct runs *r, const char *key, struct error *e);
int runs_names(char ***names, int *n, struct runs *r, struct error *e); /* of steps; mem_free each */
int runs_curve(struct runs_curve *out, struct runs *r, const char *name, struct error *e);
/* Validation Dice (mean over foreground classes) by step. */
int runs_validation(struct runs_curve *out, struct runs *r, struct error *e);
void runs_curve_free(struct runs_curve *c);

#endif
