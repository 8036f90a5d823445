/* prepare_set_int.h - shared by prepare_set.c (the passes) and prepare_state.c (what is on disk).
 */
#ifndef FALX_PREPARE_SET_INT_H
#define FALX_PREPARE_SET_INT_H

#include <pthread.h>

#include "prepare/fingerprint.h"
#include "prepare/prepare_set.h"

struct set_line { /* a warning, kept until all cases are read */
    enum report_kind kind;
    char *text;
};

struct set_case {
    const struct data_case *from;
    char *stem;      /* name of its output files */
    uint64_t source; /* changes when an input file does */
    uint64_t key;    /* changes when the source or the recipe does */
    int bad, kept, made;
    int told;         /* bad, and the report knows */
    struct error why; /* if bad */
    struct case_print print;
    struct prepared_transform transform; /* if kept or made */
    int64_t values;                      /* voxels * channels */
    int64_t n_label_lost;                /* if made: labelled voxels outside of the crop */
    struct set_line *lines;
    int n_lines;
};

struct set {
    const struct dataset *d;
    const struct prepare_options *o;
    struct set_case *cases; /* d->n_cases */
    int n;
    struct recipe recipe;
    struct fingerprint fingerprint;
    char *images, *labels, *masks, *unfinished, *json; /* paths */
    pthread_mutex_t lock;                              /* of `done` and the progress callback */
    int64_t done;
};

/* A path below one of the folders: FOLDER/STEM + ending (mem_free). */
char *set_path(const char *folder, const char *stem, const char *ending, struct error *e);
/* Hash of names, lengths and times of a case's input files. */
uint64_t set_source(const struct data_case *c);
/* Fills key of every case from its source and the recipe. */
int set_keys(struct set *s, struct error *e);

/* Refuses an output folder with other contents than ours. */
int state_check_folder(const struct set *s, struct error *e);
/* 1 if the folder already holds the finished answer to the same request: all cases are then kept
 * and the recipe is the one used. Else 0, and nothing is changed. */
int state_is_current(struct set *s);
/* Marks as kept the cases whose files exist and were made with the same key. Refuses a folder made
 * by another recipe unless forced. */
int state_load(struct set *s, struct error *e);
/* Remembers one finished case. */
int state_save_case(const struct set *s, const struct set_case *c, struct error *e);
/* Clears what a killed run left half-written; if work is to be done, makes the folders and turns
 * prepared.json back into unfinished/. */
int state_begin(const struct set *s, struct error *e);
/* Lists and prepared.json; unfinished/ goes. */
int state_finish(const struct set *s, struct error *e);

#endif
