/* compare.h - what a comparison's runs gave, as tables, charts and a page.
 *
 *     DIR/runs/NAME/result.json --> struct compare_run --\
 *                                                         +--> tables (Markdown, CSV, LaTeX), charts, page
 *     the plan: tables of lines, a line = runs by seed --/
 *
 * A finished run has left one small file with everything that is told about it: scores case by case, cost,
 * curves. Tables are functions of these files and of the plan alone, so that a plan that was interrupted,
 * or filled in on several machines, ends in the same bytes. Wall-clock time appears only in the cost table.
 */
#ifndef FALX_COMPARE_H
#define FALX_COMPARE_H

#include "report/report.h"

struct compare_cost {     /* NaN: not told */
    double parameters;    /* of the network that predicts */
    double seconds;       /* of training */
    double steps;         /* updates of all phases */
    double seconds_case;  /* of predicting a case, the reading of files included */
    double planned_bytes; /* of models, activations and batches in training */
    double peak_bytes;    /* of the device if it has memory of its own, else of the process */
};

struct compare_curve { /* of one number in one phase */
    int n;
    double *step, *value; /* thinned to at most SVG_MAX_POINTS; steps are counted over all phases */
};

struct compare_features { /* of voxels near the boundary, along their two main axes */
    int n;
    double *x, *y;
    int *class;
    double apart;     /* variance between classes over that inside of them */
    double explained; /* share of the variance that the two axes hold */
};

struct compare_run {
    char *name;
    char *error; /* why there are no scores; NULL: there are */
    char *precision, *processor;
    char *crop; /* what its masks cover: "whole scan", "published (ground-truth box)"; NULL: not recorded */
    struct report_scores scores;
    double (*value)[REPORT_METRICS]; /* (scores.n_cases), mean over classes; NaN: undefined */
    double *ambiguity;               /* (scores.n_cases), or NULL: not asked for */
    struct compare_cost cost;
    struct compare_curve loss[REPORT_PHASES], validation[REPORT_PHASES];
    struct compare_features features; /* n = 0: none */
};
/* Reads a result.json. Errors name the file. */
int compare_run_read(struct compare_run *out, const char *path, struct error *e);
void compare_run_free(struct compare_run *r); /* zeroed ones are fine */

struct compare_line {                /* of a table: one variant at one number of labels */
    const char *title;               /* "aua", "+ BCL" */
    const char *method;              /* name in the paper's tables; NULL: in none */
    int64_t labeled, unlabeled;      /* cases that it learns from */
    int reference;                   /* the line of this table that it is tested against; itself or -1: not */
    const struct compare_run **runs; /* (n_seeds); NULL: not finished yet */
    int n_seeds;

    /* set by compare_summarise() */
    int n_done;
    double mean[REPORT_METRICS], sd[REPORT_METRICS];  /* over seeds, of the means over cases */
    double p[REPORT_METRICS], p_holm[REPORT_METRICS]; /* against the reference; NaN: not tested */
    double (*cases)[REPORT_METRICS];                  /* (n_cases of the comparison), means over seeds */
    double *ambiguity;                                /* (n_cases), means over seeds; NaN: not asked for */
    struct compare_cost cost;                         /* means over seeds */
    int has_empty; /* 1: distances of a prediction without foreground count as 0 (protocol paper) */
};

struct compare_table {
    const char *name, *title; /* "methods", "Methods" */
    struct compare_line *lines;
    int n_lines;
};

struct comparison {
    const char *title, *version;
    const char *about;     /* a sentence on data and settings */
    const char *published; /* name of the paper's table to put beside, or NULL */
    struct compare_table *tables;
    int n_tables;

    /* set by compare_summarise() */
    char **cases; /* names of all cases that any run scored, in order of the alphabet */
    int n_cases;
    const struct compare_run *first; /* finished one */
    char unit[16];                   /* of distances */
    int mixed;                       /* 1: not all runs were computed with the same precision and processor */
};
int compare_summarise(struct comparison *c, struct error *e);
void compare_done(struct comparison *c); /* frees what compare_summarise() made */

/* results.md/.csv/.tex, cost.md/.csv/.tex and cases.csv in a folder. */
int compare_write_tables(const struct comparison *c, const char *folder, struct error *e);

/* What the paper's tables say of a method with so many labelled cases; NULL: nothing. */
struct compare_published {
    const char *table, *method;
    int labeled, unlabeled;
    double value[REPORT_METRICS]; /* in the units of the tables: percent and voxels */
};
const struct compare_published *compare_published_find(const char *table, const char *method,
                                                       int64_t labeled);

/* ---- between the files of this folder -------------------------------------------------------------- */

struct grid {    /* a table as text: row 0 is the head */
    char **text; /* (rows, columns), mem_alloc'd or NULL: empty */
    int rows, columns;
    unsigned char *best; /* (rows, columns): 1 to be printed bold */
    int n_left;          /* columns from the left that hold words */
    const char *title;
};
void grid_free(struct grid *g);
void grid_markdown(struct html *h, const struct grid *g);
void grid_latex(struct html *h, const struct grid *g);
void grid_html(struct html *h, const struct grid *g);
/* Scores of a table, and costs of all. */
int compare_scores_grid(struct grid *out, const struct comparison *c, const struct compare_table *t,
                        struct error *e);
int compare_cost_grid(struct grid *out, const struct comparison *c, struct error *e);
/* What a table's reader must know of distances with NO_DISTANCE behind them; "" if there are none. */
#define NO_DISTANCE "†"
const char *compare_empty_note(const struct comparison *c);
/* What the runs' masks cover, a line for each answer. */
void compare_crops(struct html *h, const struct comparison *c, const char *before, const char *after);
/* "aua, 13 labels, seed 1: why", a line each, for runs without scores; and how many are not finished. */
void compare_failures(struct html *h, const struct comparison *c, const char *before, const char *after);
int compare_missing(const struct comparison *c);

/* Charts: files of their own, or parts of a page. */
enum compare_chart {
    CHART_CASES,
    CHART_LABELS,
    CHART_LOSS,
    CHART_VALIDATION,
    CHART_UNCERTAINTY,
    CHART_FEATURES,
    CHART_COUNT
};
const char *compare_chart_name(enum compare_chart k); /* "dice-by-case" */
/* Chart number i of a kind (one a number of labels). 1, 0: there is no such chart, -1. */
int compare_draw(struct html *h, const struct comparison *c, enum compare_chart k, int i, int alone,
                 struct error *e);
/* The page: everything in one file. pictures may be NULL. */
int compare_page(struct html *h, const struct comparison *c, const struct report_pictures *pictures,
                 struct error *e);

#endif
