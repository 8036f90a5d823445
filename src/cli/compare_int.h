/* compare_int.h - the parts of `falx compare` that are shared by its files.
 *
 *     compare_data.c      which cases are held out, which labels a run may see; scans prepared once for all
 *     compare_plan.c      methods x labels x seeds and ablations as tables of lines
 *     compare_spec.c      what a variant means for its training; cells (runs)
 *     compare_result.c    whether a result belongs to its cell
 *     compare_jobs.c      the cells, one process each, in a queue; one progress line for all
 *     compare_cell.c      one cell: train, predict, score, result.json
 *     compare_features.c  what its network makes of voxels near the boundary
 *     compare_merge.c     finished cells from other folders
 *     compare_output.c    tables, charts, pictures and the page from what is finished
 *     verb_compare.c      the order of all that
 *
 *     DIR/runs/CELL/        run folder of a training, masks/, and at its end result.json
 *     DIR/logs/CELL.txt     what its process said
 *     DIR/views/VIEW/       lists of cases and prepared scans for one number of labels (--cache: elsewhere)
 *     DIR/results.*, cost.*, cases.csv, figures/, pictures/, report.html
 */
#ifndef FALX_COMPARE_INT_H
#define FALX_COMPARE_INT_H

#include "cli/config.h"
#include "cli/predicting.h"
#include "compare/compare.h"
#include "data/dataset.h"
#include "train/checkpoint.h"

/* Environment variable of the runs that a plan starts: the number of its process. */
#define COMPARE_PLAN "FALX_PLAN"

struct plan_view {  /* what runs with one number of labels may see */
    char *name;     /* "L13", "Lall", "L13-U0.25" */
    int64_t labels; /* 0: all */
    double share;   /* of the unlabelled cases that is used: 1 */
    char *folder;
    char *labeled, *left_out; /* list files in it */
    int n_labeled, n_unlabeled;
};

struct plan_cell { /* one run */
    char *name;    /* "aua-L13-s1337" */
    char *spec;    /* "aua", "aua:lambda-c=0.05", a preset */
    int view;
    int64_t seed;
    char *run, *result; /* folder, and the file that says it is finished */
    char **words;       /* what `falx train` is told, from argv[1] on */
    int n_words;
    int64_t steps; /* of its training */
};

struct plan_line {
    char *title, *spec;
    char *paper; /* name in the paper's tables: the spec, by its method if a preset stands for it */
    int view;
    int *cells;    /* (n_seeds) numbers of its runs */
    int reference; /* as in struct compare_line */
};

struct plan_table {
    const char *name, *title;
    struct plan_line *lines;
    int n_lines;
};

struct plan {
    const struct config *c;
    int lock;            /* of the folder, for those that look whether it is still there */
    struct dataset all;  /* training cases that are not held out, all labels visible */
    struct dataset held; /* cases to score on */
    char **dropped;      /* (n_dropped) names of DATASET that no run may see */
    int n_dropped;
    int64_t *seeds;
    int n_seeds;
    struct plan_view *views;
    int n_views;
    struct plan_cell *cells;
    int n_cells;
    struct plan_table *tables;
    int n_tables;
};

/* Resolves the configuration; every option of every cell is checked, nothing is written. */
int plan_make(struct plan *out, const struct config *c, struct error *e);
void plan_free(struct plan *p); /* zeroed ones are fine */
/* "TEXT", allowed ALLOWED: what is wrong with an option. */
int plan_wrong(const char *option, const char *text, const char *allowed, struct error *e);

/* compare_spec.c */
int plan_is_supervised(const char *spec);                              /* 1: learns from labels alone */
int plan_spec_share(double *share, const char *spec, struct error *e); /* of the unlabelled cases */
/* The spec with its method for a preset of published settings: "aua:stages=1" of "paper-la:stages=1". */
char *plan_spec_paper(const char *spec, struct error *e);
/* Takes out of a spec what changes nothing, such as an option with its default: how a run is asked for makes
 * no difference to its name. */
int plan_spec_shorten(char *spec, const struct plan *p, int view, struct error *e);
/* The cell of a spec that is as short as can be, made if there is none. */
int plan_cell_find(int *out, struct plan *p, const char *spec, int view, int64_t seed, struct error *e);
void plan_cell_free(struct plan_cell *k);
/* The configuration of a cell's training; borrows the cell's words. */
int plan_train_config(struct config *out, const struct plan_cell *cell, struct error *e);

/* compare_result.c
 * What a result must agree on to belong to the cell: settings, data, protocol. */
int plan_facts(struct checkpoint_facts *out, const struct plan *p, const struct plan_cell *cell,
               struct error *e);
/* The result of a cell into *out: 1, 0 if there is none, -1 if it is damaged or was made with other
 * settings [K05]. */
int plan_result(struct compare_run *out, const struct plan *p, const struct plan_cell *cell, const char *path,
                struct error *e);

/* compare_data.c */
int plan_open_data(struct plan *p, struct error *e);
int plan_view_find(int *out, struct plan *p, int64_t labels, double share, struct error *e); /* made if new */
/* Where the trainings of a view find their scans: words for `falx train`. */
int plan_view_words(char *words[4], int *n, const struct plan *p, const struct plan_view *v,
                    const struct config *train, struct error *e);
/* Writes the lists, and prepares the scans unless they are; `again`: looks whether they still fit. */
int plan_view_ready(const struct plan *p, const struct plan_view *v, const struct config *train, int again,
                    struct pool *pool, struct error *e);

/* The label of a case to score on; refused unless it lies on the grid of its scan, which the scan's mask has,
 * too. */
int plan_truth(struct volume *out, const struct plan *p, const struct data_case *k, const struct volume *scan,
               const struct volume_request *r, struct error *e);

/* compare_cell.c: returns the exit code. */
int compare_cell(const struct plan *p, const struct plan_cell *cell);
/* RUN/masks, made if it is not there; it and RUN are cleared of what a killed process was writing. */
int compare_masks_folder(char **out, const struct plan_cell *cell, struct error *e);
/* Leaves a result that tells why there are no scores. */
int compare_cell_failed(const struct plan_cell *cell, const char *why, struct error *e);

/* compare_features.c: a member "features" for networks that have some, nothing for others. */
int compare_features(struct js_out *o, const struct plan *p, const struct open_run *from, struct error *e);

/* compare_jobs.c: all cells that have no scores yet and belong to --part. *code: of the first that failed. */
int compare_jobs(int *code, struct plan *p, struct error *e);

/* compare_merge.c: takes finished cells over; how many in *n. */
int compare_merge(int *n, const struct plan *p, struct error *e);

/* compare_output.c */
int compare_output(int *finished, const struct plan *p, struct error *e);

#endif
