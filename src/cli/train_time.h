/* train_time.h - --max-time and --time-plan: the plan of a training that must end in time
 * (train/time_plan.h). */
#ifndef FALX_TRAIN_TIME_H
#define FALX_TRAIN_TIME_H

#include "cli/config.h"
#include "train/train.h"

/* "90s", "40m", "2h", "1.5h" in seconds. */
int max_time_parse(double *seconds, const char *text, struct error *e);
/* The plan of this run, or NULL (*plan: mem_free), from its options and, on --resume, from its folder.
 * `begun`: when the command was started, by clock_seconds(). Resolves --steps auto. */
int train_time_open(struct time_plan **plan, struct train_time *out, struct config *c, double begun,
                    struct error *e);
/* Times a step of each phase of a new training; only their ratios are used. */
int train_time_trial(const struct train_options *o, struct error *e);

#endif
