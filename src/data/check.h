/* check.h - looks at every voxel of a data set before anything trains on it.
 *
 * Cases are read one a thread, measured and forgotten; what is kept of a case is a few hundred
 * numbers. Everything found goes to the report in the order of the cases, whatever the number of
 * threads. Lines of the kind REPORT_NOTE tell which fallbacks training will take [L10].
 */
#ifndef FALX_CHECK_H
#define FALX_CHECK_H

#include "base/pool.h"
#include "data/dataset.h"
#include "data/landmarks.h"

struct check_options {
    struct volume_request request; /* how to read; its report is not used */
    enum nan_policy nan;
    int skip_bad;          /* 1: bad cases become warnings and are counted as skipped */
    int64_t patch[3];      /* of the training to come; 0 = unknown */
    int64_t labeled_batch; /* labelled cases a batch; 0 = no wish */
    struct pool *pool;     /* may be NULL */
    struct report *report;
    void (*done)(void *arg, int64_t n); /* progress, from any thread; may be NULL */
    void *arg;
};

struct check_case {
    enum error_code bad; /* ERR_NONE: sound */
    int64_t dims[3], channels;
    double spacing_mm[3];
    double min, max, mean; /* of the image, all channels */
    int64_t *voxels;       /* of class 0..n_classes-1; NULL if unlabelled or bad */
    int n_classes;
    int constant;  /* 1: one value everywhere in the first channel */
    uint64_t hash; /* of the first channel's shape and values */
};

struct check_result {
    struct check_case *cases; /* as many and in the order of the data set */
    int n_cases;
    int n_bad;
    enum error_code code; /* what the program should exit with; ERR_NONE if all is well */
    int n_classes;        /* declared or found; 0 if more than training takes [L05] */
    int64_t *voxels;      /* of each class over all labels */
    int *cases_with;      /* labelled training cases that hold each class */
    struct twin *twins;   /* cases that are one scan */
    int n_twins;
};

/* 0 even if problems were found: they are in out->code and went to the report. -1 if the check
 * itself could not be done (memory). */
int check_dataset(struct check_result *out, const struct dataset *d, const struct check_options *o,
                  struct error *e);
void check_free(struct check_result *r); /* zeroed ones are fine */

/* A listener that keeps every line and passes it on. Start it with { .report.line = told_keep }. */
struct told {
    struct report report; /* first: the listener is found from it */
    struct report *next;  /* hears every line too, but notes; may be NULL */
    struct told_line {
        enum report_kind kind;
        char *text;
    } * line;
    int n;
};
void told_keep(struct report *r, enum report_kind kind, const char *text);
void told_free(struct told *t);

#endif
