/* report.h - one page that tells what runs gave: scores, curves, pictures, facts.
 *
 *     RUN/run.json ---------\
 *     RUN/metrics.sqlite ----+--> struct report_run --+
 *     falx eval --json -----/                         +--> report.html: one file, no links, no scripts
 *     folder of PNGs -------> struct report_picture --+
 *
 * The page can be read offline, on paper, on light and dark screens. The same input gives the same bytes: it
 * holds no date and no path. Names of cases are shown, since scores are told case by case.
 */
#ifndef FALX_REPORT_H
#define FALX_REPORT_H

#include "report/html.h"
#include "runs/runs.h"
#include "score/metrics.h"

/* The four metrics of the literature's tables. */
enum { REPORT_METRICS = 4, REPORT_CLASSES = 32, REPORT_PHASES = 4 };
extern const enum metric report_metric[REPORT_METRICS]; /* dice, jaccard, asd, hd95 */
extern const char *const report_title[REPORT_METRICS];  /* "Dice", ..., "95HD" */
int report_is_share(int m); /* 1: number m of them is shown in percent, and more is better; 0: a distance */

struct report_scores {
    char unit[16]; /* "mm", "voxels": of distances */
    int n_cases;   /* 0: no scores */
    char **names;  /* (n_cases) */
    double *dice;  /* (n_cases), mean over classes; NaN: undefined */
    double mean[REPORT_METRICS], sd[REPORT_METRICS];
    int has_empty; /* 1: a prediction has no foreground */
    int n_classes; /* the first REPORT_CLASSES of them */
    int class_number[REPORT_CLASSES];
    double class_mean[REPORT_CLASSES], class_sd[REPORT_CLASSES]; /* Dice */
};
/* From what `falx eval --json` printed. Errors name the file. */
int report_scores_read(struct report_scores *out, const char *path, struct error *e);
struct js;
int report_scores_of(struct report_scores *out, const struct js *json, struct error *e); /* names no file */
void report_scores_free(struct report_scores *s);

struct report_fact {
    const char *name; /* static */
    char *value;      /* NULL: not told */
};

struct report_run {
    char *name; /* of the folder */
    char *method;
    double seconds;            /* of training; NaN: not told */
    struct report_fact *facts; /* the same names in the same order for every run */
    int n_facts;
    char **class_names; /* (n_class_names), or NULL */
    int n_class_names;
    char **curve_names; /* "loss" and its terms, in the order of the alphabet */
    struct runs_curve *curves;
    int n_curves;
    struct runs_curve validation;
    const char *phases[REPORT_PHASES]; /* names, set by the caller; NULL: "phase N" */
    struct report_scores scores;
};
/* Reads a run folder; one without metrics.sqlite has no curves. */
int report_run_read(struct report_run *out, const char *folder, struct error *e);
void report_run_free(struct report_run *r);       /* zeroed ones are fine */
int64_t report_steps(const struct report_run *r); /* of all phases, as far as noted */

struct report_picture {
    char *group; /* folder inside the folder of pictures, or "" */
    char *name;
    unsigned char *png;
    size_t bytes;
};
struct report_pictures {
    struct report_picture *picture; /* those without a group first, then by group and name */
    int n;
};
/* Every *.png of a folder and of the folders in it. */
int report_pictures_read(struct report_pictures *out, const char *folder, struct error *e);
void report_pictures_free(struct report_pictures *p);

struct report_page {
    const char *title;
    const struct report_run *runs;
    int n_runs;
    const struct report_pictures *pictures; /* NULL: none */
    const char *version;                    /* of the program */
};
void report_html(struct html *h, const struct report_page *p);
/* Pieces of it, for other pages of the same make. */
void report_begin(struct html *h, const char *title, const char *version);
void report_put_pictures(struct html *h, const struct report_pictures *p);
void report_end(struct html *h, const char *version);

/* Charts one by one, as files of their own (alone) or parts of a page. Return 1, or 0 if there is nothing to
 * draw; the last one -1 if memory is short. */
int report_draw_losses(struct html *h, const struct report_run *r, int alone);
int report_draw_validation(struct html *h, const struct report_page *p, int alone);
int report_draw_cases(struct html *h, const struct report_page *p, int alone, struct error *e);

#endif
