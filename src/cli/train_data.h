/* train_data.h - from the data set a user names to cases in memory that a network can be trained on. */
#ifndef FALX_TRAIN_DATA_H
#define FALX_TRAIN_DATA_H

#include "cli/config.h"
#include "data/dataset.h"
#include "predict/run_folder.h"
#include "prepare/prepare_set.h"
#include "sample/case_store.h"

struct train_data {
    struct case_store store; /* what is trained on: labelled, then unlabelled */
    struct case_store val;   /* validation cases; n_cases 0: none */
    struct run_facts facts;  /* recipe, patch, classes */
    int n_hidden;            /* cases cropped around their hidden labels */
    uint64_t hash;           /* of every name, shape, voxel and label in use */
};

/* Opens, prepares into the cache if the scans are raw, splits off validation cases, loads. Fills the patch
 * of *c if it is auto, and the crop from what prepared the scans. */
int train_data_load(struct train_data *out, struct config *c, struct pool *pool, struct error *e);
void train_data_free(struct train_data *d); /* zeroed ones are fine */

/* Parts of it, for those who prepare for several trainings. The recipe's name that the configuration asks for
 * if the scans still need one, else "none". */
const char *train_recipe(const struct config *c, const struct dataset *d);
/* Prepares d into a folder; what came out in *out. */
int train_prepare(struct prepare_summary *out, const struct config *c, const struct dataset *d,
                  const char *recipe, const char *folder, struct pool *pool, struct error *e);
/* Recipe and n_hidden of the falx prepare that made d; `none` for files of others. */
int train_read_summary(struct prepare_summary *out, const struct dataset *d, struct error *e);

/* Steps of all phases. */
int64_t train_total_steps(const struct settings *s);

#endif
