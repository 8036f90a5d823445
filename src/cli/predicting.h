/* predicting.h - what `predict`, `pseudo` and `compare` share: a run opened as the options say, one case
 * through it.
 */
#ifndef FALX_PREDICTING_H
#define FALX_PREDICTING_H

#include "cli/config.h"
#include "data/dataset.h"
#include "predict/open_run.h"

/* Opens the run c->args[0]. uncertainty: maps are wanted. */
int predicting_open(struct open_run *out, const struct config *c, int uncertainty, struct error *e);

/* Does the run crop the scan as published: by its recipe, around the label that the case shows? */
int predicting_is_cropped(const struct recipe *r, const struct data_case *k);
/* What masks cover, for records: "published (ground-truth box)", "whole scan" or "as stored". */
const char *predicting_crop(const struct recipe *r, int is_cropped);
/* A note on it, for runs under a recipe that crops around the true label. */
void predicting_note_crop(const struct config *c, const struct recipe *r, int is_cropped);
/* Loads, predicts. Errors name the file. */
int predicting_case(struct scan_result *out, struct open_run *r, const struct config *c,
                    const struct dataset *d, const struct data_case *k, struct error *e);
/* After an error: 1 if --skip-bad leaves the scan out, which is told, and 0 if the verb is to end. */
int predicting_skips(const struct config *c, struct error *e);
/* io_check_output() as --force and --resume have it; a file that is there is refused with a word of both. */
int predicting_check_output(const char *path, const struct config *c, struct error *e);
/* FOLDER/NAMEsuffix.nii.gz, if the volume is there. */
int predicting_write(const struct volume *v, const char *folder, const char *name, const char *suffix,
                     struct error *e);

#endif
