/* train_budget.h - how many steps a training may take, from the time that it may take. */
#ifndef FALX_TRAIN_BUDGET_H
#define FALX_TRAIN_BUDGET_H

#include "cli/config.h"
#include "train/train.h"

/* "90s", "40m", "2h", "1.5h" in seconds. */
int budget_parse(double *seconds, const char *text, struct error *e);
/* Sets the steps of *c so that all phases of the training *o together take about so many seconds. */
int budget_measure(struct config *c, const struct train_options *o, double seconds, struct error *e);

#endif
