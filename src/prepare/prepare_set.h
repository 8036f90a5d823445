/* prepare_set.h - a whole data set through one recipe, into a folder that is a data set itself:
 *
 *     FOLDER/images/CASE.nii.gz    float32
 *     FOLDER/labels/CASE.nii.gz    uint8 or uint16; absent: unlabelled
 *     FOLDER/masks/CASE.nii.gz     uint8, recipes with keep_mask only
 *     FOLDER/train.list test.list  names in order
 *     FOLDER/prepared.json         recipe, fingerprint and every case's transform; written last
 *     FOLDER/unfinished/CASE.json  while the work goes on: what is done, for the next start
 *
 * Every file appears whole or not at all. A run that was killed goes on where it stopped; a case
 * whose files and recipe did not change is kept. Nothing is created before every input was read
 * once and found sound. One run at a time works in a folder [P08].
 *
 * A hidden label is never written. Recipes that crop as published take the box of a hidden label and nothing
 * else from it. Test cases without a label are left out by them, with a note.
 */
#ifndef FALX_PREPARE_SET_H
#define FALX_PREPARE_SET_H

#include "data/dataset.h"
#include "prepare/prepare.h"

struct prepare_options {
    const char *preset;
    const char *folder;  /* output */
    const char *version; /* of the program, for prepared.json */
    uint64_t seed;
    enum nan_policy nan;
    enum crop_rule crop;           /* of paper-* recipes */
    int force;                     /* 1: replace what another recipe made */
    int skip_bad;                  /* 1: leave bad cases out, with a warning each */
    struct volume_request request; /* limits and strictness; its report is not used */
    struct pool *pool;
    struct report *report; /* problems of cases, warnings, notes, in case order */
    /* Called from any thread, one call at a time; may be NULL. */
    void (*progress)(void *arg, const char *phase, int64_t done, int64_t total);
    void *progress_arg;
};

struct prepare_summary {
    int n_cases;
    int n_made, n_kept; /* prepared now, and before */
    int n_bad;          /* refused, each with one line in the report */
    int n_hidden;       /* cropped around their hidden labels */
    struct recipe recipe;
};

/* Returns 0 also if cases were refused. Unless skip_bad, there is then no prepared.json; and nothing at all
 * was written if they could not be read. */
int prepare_set(struct prepare_summary *out, const struct dataset *d, const struct prepare_options *o,
                struct error *e);
/* A note on where a paper-* recipe took its crops from; nothing for other recipes. */
void prepare_note_crop(struct report *to, const char *root, const struct recipe *r, int n_hidden);

#endif
