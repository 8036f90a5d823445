/* prepare_set_int.h - between prepare_set.c (the passes) and prepare_state.c (what is on disk). */
#ifndef FALX_PREPARE_SET_INT_H
#define FALX_PREPARE_SET_INT_H

#include "prepare/fingerprint.h"
#include "prepare/prepare_set.h"

struct set_case {
    const struct data_case *from;
    char *stem;      /* name of its output files */
    uint64_t source; /* changes when an input file does */
    uint64_t key;    /* changes when the source or the recipe does */
    int bad, kept, made;
    struct error why;        /* if bad */
    struct report_hold told; /* what the pass under way has to say about it */
    struct case_print print;
    struct box label_box;                /* of the hidden label; dims[0] == 0: not looked at */
    struct prepared_transform transform; /* if kept or made */
};

struct set {
    const struct dataset *d;
    const struct prepare_options *o;
    struct set_case *cases;
    int n;
    int n_untested; /* test cases without a label, left out */
    struct recipe recipe;
    struct fingerprint fingerprint;
    char *unfinished, *json; /* paths */
    int lock;                /* on the folder; -1: not yet */
};

/* FOLDER/PART/STEM.nii.gz (mem_free). */
char *set_path(const struct set *s, const char *part, const struct set_case *c, struct error *e);
/* Does the case lend the box of its hidden label to the recipe? */
int set_uses_hidden(const struct set *s, const struct data_case *c);
/* Hash of names, lengths and times of a case's input files; of the hidden label if its box is used. */
uint64_t set_source(const struct set *s, const struct data_case *c);
/* Fills key of every case from its source and the recipe. */
int set_keys(struct set *s, struct error *e);

/* Makes this run the only one in the output folder, once; to come before any look inside. Refuses
 * a folder with other contents than ours [O03]. */
int state_lock(struct set *s, struct error *e);
/* 1 if the folder already holds the finished answer to the same request: all cases are then kept
 * and the recipe is the one used. Else 0. */
int state_is_current(struct set *s);
/* Marks as kept the cases whose files exist and were made with the same key. Refuses a folder made
 * by another recipe unless forced [O04]. */
int state_load(struct set *s, struct error *e);
/* Remembers one finished case. */
int state_save_case(const struct set *s, const struct set_case *c, struct error *e);
/* Clears what a killed run left half-written; if work is to be done, makes the folders and turns
 * prepared.json back into unfinished/. */
int state_begin(const struct set *s, struct error *e);
/* Lists and prepared.json; unfinished/ goes. */
int state_finish(const struct set *s, struct error *e);

#endif
