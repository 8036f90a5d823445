/* config.h - everything a user can set, in one struct filled from one table (options.c).
 *
 * The same table drives the command line, the config file, --help, validation, --print-config and
 * what is recorded in output folders. Precedence: flag > file > default.
 */
#ifndef FALX_CONFIG_H
#define FALX_CONFIG_H

#include <stdio.h>

#include "base/base.h"
#include "base/json_write.h"
#include "volume/volume.h"

#define FALX_VERSION "0.1.0"

enum verb {
    VERB_INFO, VERB_CHECK, VERB_CONVERT, VERB_PHANTOM, VERB_PREPARE, VERB_EVAL, VERB_BENCH,
    VERB_DOCTOR, VERB_COUNT
};

struct config {
    enum verb verb;
    char **args; /* positional arguments, in order; the strings are argv's */
    int n_args;

    /* every verb */
    int help, json, quiet, print_config, show_limits;
    char *config_file; /* --config FILE */
    char *preset;      /* --preset NAME: prepare's recipe, or a named set of values */
    int64_t threads;   /* 0 = one per core */
    int64_t seed;      /* default 1337; --seed random draws one, prints and stores it */
    int seed_drawn;    /* 1: the seed was drawn, not chosen */

    /* reading volumes */
    int strict, allow_gaps;
    int64_t volume;    /* --volume K: which volume of a 4D file; -1 = not given */
    int nan;           /* enum nan_policy: refuse|zero|min */
    char *member;      /* --member NAME: data set inside an HDF5 file */
    char *label_map;   /* --label-map 255=1,2=0 */
    int64_t limit_voxels, limit_bytes;

    /* writing */
    char *output;      /* -o */
    int force;

    /* data sets and the training they are checked for */
    char *labeled;     /* --labeled N|LIST */
    int64_t patch[3];  /* --patch X[,Y,Z]; 0,0,0 = auto, nothing to check against */
    int64_t batch, labeled_batch;
    double ema_decay;
    int follow, skip_bad;
    double geometry_tolerance_mm;

    /* phantom */
    int64_t cases, test, classes, channels;
    int64_t labels;    /* --labeled N of phantom; 0 = auto */
    int64_t size[3];   /* --size X[,Y,Z] */
    char *layout;      /* plain|nnunet|msd|datalist|h5|la|pancreas */

    /* eval */
    int protocol;      /* enum metric_protocol: mm|paper */
    double nsd_tolerance;     /* of the surface Dice, in the unit of the protocol */
    char *csv;         /* --csv FILE */
    char *pictures;    /* --pictures FOLDER */
    char *image;       /* --image PATH: scan or folder of scans that pictures are drawn on */

    void *owned;       /* strings belong to the config */
};

/* Parses "falx VERB ..." (argv[1] is the first word after the verb name). Fills defaults, file and
 * flags in that order of strength and validates ranges. On failure *out is empty. [C01..C06] */
int config_parse(struct config *out, enum verb verb, int argc, char **argv, struct error *e);
void config_free(struct config *c);
/* "key = value" for every option of the verb, in table order. */
void config_print(const struct config *c, FILE *to);
void config_print_help(enum verb verb, FILE *to);
/* Reads config-file text into *c, a parsed config, as if from `path`: what the fuzzer calls. Keys
 * of other verbs are checked and kept, so that one file can serve several verbs. */
int config_apply_text(struct config *c, const char *text, const char *path, struct error *e);

/* Members with the resolved options of the verb, for records in output folders. Paths, which may name
 * patients, only if wanted. */
enum config_paths { CONFIG_WITH_PATHS, CONFIG_WITHOUT_PATHS };
void config_to_json(struct js_out *o, const struct config *c, enum config_paths paths);

/* Verbs: each returns the exit code. */
int verb_info(struct config *c);
int verb_check(struct config *c);
int verb_convert(struct config *c);
int verb_phantom(struct config *c);
int verb_prepare(struct config *c);
int verb_eval(struct config *c);
int verb_bench(struct config *c);
int verb_doctor(struct config *c);

/* How this configuration wants volumes read; warnings go to the console. */
struct volume_request config_request(const struct config *c);

/* ---- what verbs share (console.c) -------------------------------------------------------- */

/* Prints "falx: error: TEXT [ID]" to stderr, at most 400 bytes; returns the exit code. */
int complain(const struct error *e);
/* Prints the text built in *o to stdout and empties it; returns the exit code. */
int console_json(struct js_out *o);
/* A report that prints warnings and problems to stderr (notes only if not quiet). */
struct report *console_report(const struct config *c);
/* A progress line with rate and ETA: redrawn on a terminal, a plain line every few seconds
 * otherwise, nothing with --quiet (then NULL is returned, which all calls accept). One at a time;
 * progress_at may come from any thread. */
struct progress;
struct progress *progress_begin(const struct config *c, const char *label, int64_t total);
void progress_at(struct progress *p, int64_t done);
void progress_end(struct progress *p);
/* The line itself: "label  3/12  25%  1.5/s  ETA 0:06". Returns out. */
char *progress_text(char *out, size_t cap, const char *label, int64_t done, int64_t total,
                    double seconds);

/* ---- limits (limits.c) ------------------------------------------------------------------- */

struct limit {
    const char *name, *unit;
    int64_t value;
};
/* The row with this number as it stands under *c (NULL: the defaults); 0 past the last. */
int limit_at(struct limit *out, int number, const struct config *c);
void limits_print(const struct config *c, FILE *to);

#endif
