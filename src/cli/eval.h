/* eval.h - the parts of `falx eval` that are shared by its files.
 *
 *   eval_pairs.c    which file is scored against which
 *   verb_eval.c     reads, checks, scores, one case after the other
 *   eval_output.c   JSON, CSV and the table on the terminal
 */
#ifndef FALX_EVAL_H
#define FALX_EVAL_H

#include "cli/config.h"
#include "score/metrics.h"

struct pair {
    char *name;  /* of the case: the truth's file name without extension */
    char *truth; /* paths */
    char *prediction;
    char *image; /* NULL: none */
};
struct pairs {
    struct pair *pair; /* in bytewise order of the names */
    int n;
    int n_missing; /* truths without a prediction; each was reported as a problem */
};

/* Matches files or folders by name without extension. Every case that cannot be matched is one
 * problem line in the report; predictions without a truth are one warning together. */
int eval_pairs_find(struct pairs *out, const struct config *c, struct report *report, struct error *e);
void eval_pairs_free(struct pairs *p);

/* Cases are aligned (metrics_align). The first: as a member of an object, or (NULL) by itself. */
void eval_to_json(struct js_out *o, const char *member, const struct case_score *cases, int n_cases,
                  const struct metric_options *options);
int eval_print_json(const struct case_score *cases, int n_cases, const struct metric_options *options);
int eval_write_csv(const char *path, const struct case_score *cases, int n_cases,
                   const struct metric_options *o, struct error *e);
void eval_print_table(const struct case_score *cases, int n_cases, const struct metric_options *o);

#endif
