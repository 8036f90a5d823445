/* config.h - everything a user can set, in one struct filled from one table (options.c).
 *
 * The same table drives the command line, the config file, --help, validation, --print-config and
 * what is recorded in output folders. Precedence: flag > file > preset > default.
 */
#ifndef FALX_CONFIG_H
#define FALX_CONFIG_H

#include <stdio.h>

#include "base/base.h"
#include "base/json_write.h"
#include "base/version.h"
#include "data/dataset.h"
#include "train/settings.h"

enum verb {
    VERB_INFO,
    VERB_CHECK,
    VERB_CONVERT,
    VERB_PHANTOM,
    VERB_PREPARE,
    VERB_TRAIN,
    VERB_PREDICT,
    VERB_PSEUDO,
    VERB_EVAL,
    VERB_REPORT,
    VERB_COMPARE,
    VERB_BENCH,
    VERB_DOCTOR,
    VERB_COUNT
};

struct config {
    enum verb verb;
    char **args; /* positional arguments, in order; the strings are argv's */
    int n_args;
    char **given; /* options of the command line as "--name=value", in order */
    int n_given;

    /* every verb */
    int help, json, quiet, print_config, show_limits;
    char *config_file;   /* --config FILE */
    char *preset;        /* --preset NAME of prepare: a recipe */
    char *train_preset;  /* --preset NAME of train: a named set of values; NULL or "none": none */
    int preset_chosen;   /* 1: by default, not by the user */
    int64_t threads;     /* 0 = one per core */
    int seed_drawn;      /* 1: set.seed was drawn, not chosen */
    struct settings set; /* seed for every verb; the rest is training's */

    /* reading volumes */
    int strict, allow_gaps;
    int64_t volume;  /* --volume K: which volume of a 4D file; -1 = not given */
    int nan;         /* enum nan_policy: refuse|zero|min */
    char *member;    /* --member NAME: data set inside an HDF5 file */
    char *label_map; /* --label-map 255=1,2=0 */
    int64_t limit_voxels, limit_bytes;

    /* writing */
    char *output; /* -o */
    int force;

    /* data sets */
    char *labeled;   /* --labeled N|LIST */
    char *leave_out; /* --leave-out LIST */
    int crop;        /* enum crop_rule of paper-* recipes: published|fair */
    int follow, skip_bad;
    double geometry_tolerance_mm;

    /* phantom */
    int64_t cases, test, classes, channels;
    int64_t labels;  /* --labeled N of phantom; 0 = auto */
    int64_t size[3]; /* --size X[,Y,Z] */
    char *layout;    /* plain|nnunet|msd|datalist|h5|la|pancreas */

    /* training and predicting: where and how, nothing that changes the result of a step */
    char *device;  /* auto|cpu|cuda|cuda:N */
    int precision; /* enum precision: auto|f32|bf16|tf32 */
    int selftest;  /* --selftest: see first that it computes what it should */
    int resume;
    char *override;           /* --override KEY: a setting that may differ from the checkpoint's */
    char *recipe;             /* how raw scans are prepared; train_recipe() knows better for some layouts */
    char *cache;              /* folder of prepared scans; NULL: inside the run folder */
    char *val;                /* --val N|LIST: labelled cases kept for validation; NULL: none */
    char *max_time;           /* --max-time 40m; NULL: none */
    int time_chosen;          /* 1: max_time by default, not by the user */
    char *time_plan;          /* --time-plan FILE|RUN: decisions of an earlier run; NULL: none */
    int64_t checkpoint_every; /* steps; 0 = every 5 minutes */

    /* predict and pseudo */
    char *input; /* -i */
    char *model; /* final|best|stage1 */
    int uncertainty, prob;
    /* 1, 0, or -1: as the run was trained to; set.stride and set.window_mode likewise */
    int tta, largest, adapt;
    int64_t samples;
    char *part;        /* --part i/n */
    char *crop_labels; /* --crop-labels PATH: labels of the scans, for the published crop */

    /* eval */
    int protocol;         /* enum metric_protocol: mm|paper */
    double nsd_tolerance; /* of the surface Dice, in the unit of the protocol */
    char *csv;            /* --csv FILE */
    char *pictures;       /* --pictures FOLDER */
    char *image;          /* --image PATH: scan or folder of scans that pictures are drawn on */
    int map;              /* --map none|std|entropy: draw this map of uncertainty, too */

    /* report; also `pictures` */
    char *title;
    char *eval;   /* --eval A.json,B.json: scores, one file a run */
    char *charts; /* --charts FOLDER */

    /* compare; also `part`, `title`, `cache` */
    char *methods, *label_counts, *seeds; /* lists with commas */
    char *held_out;                       /* --test N|LIST|FOLDER */
    char *ablation, *reference, *published;
    int64_t jobs;
    char *merge; /* --merge A,B */
    int tables_only;
    char *cell; /* --cell NAME: a run of the plan, by itself */

    void *owned; /* strings belong to the config */
};

#define CONFIG_TIME "40m"            /* --max-time of a training by default preset */
enum { CONFIG_STEPS = 6000 };        /* --steps auto; 0 in set.steps only together with max_time */
enum { CONFIG_BYTES_MAX = 1 << 20 }; /* of a config file: many times what all options take */

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

/* Members with the resolved options and arguments of the verb, paths among them: for private records. */
void config_to_json(struct js_out *o, const struct config *c);

/* Verbs: each returns the exit code. */
int verb_info(struct config *c);
int verb_check(struct config *c);
int verb_convert(struct config *c);
int verb_phantom(struct config *c);
int verb_prepare(struct config *c);
int verb_train(struct config *c);
int verb_predict(struct config *c);
int verb_pseudo(struct config *c);
int verb_eval(struct config *c);
int verb_report(struct config *c);
int verb_compare(struct config *c);
int verb_bench(struct config *c);
int verb_doctor(struct config *c);

/* Refuses windows that leave gaps, if the patch is known: they are used after training. [C03] */
int config_check_stride(const struct settings *s, struct error *e);

/* A preset for training (presets.c); its texts are those of config files. */
struct preset {
    const char *name;
    int published;        /* 1: the method has its published settings, below these texts */
    const char *method;   /* unless the user names another */
    const char *protocol; /* of any method */
    const char *own;      /* of the preset's method alone */
};
const struct preset *preset_find(const char *name); /* NULL: there is none */

/* ---- signals (stop.c) --------------------------------------------------------------------- */
void stop_watch(enum verb verb); /* before any other thread is started */
void stop_polling(int on);       /* 1: from here on a signal is only noted */
int stop_requested(void);        /* 1: stop at the next good moment with ERR_STOPPED */
int stop_asked(void *unused);    /* the same as a callback */

/* --part I/N as two numbers, 1 <= I <= N; NULL is 1/1. */
int part_parse(int64_t *i, int64_t *n, const char *part, struct error *e);

/* How this configuration wants volumes read, and data sets opened; warnings go to the console. */
struct volume_request config_request(const struct config *c);
struct dataset_options config_dataset(const struct config *c);
/* Keeps volume number `which` of a 4D file, of its header if there are no voxels; -1: it has fewer [N31]. */
int keep_volume(struct volume *v, int64_t which, struct error *e);

/* ---- what verbs share (console.c) -------------------------------------------------------- */

/* Prints "falx: error: TEXT [ID]" to stderr, at most 400 bytes; returns the exit code. */
int complain(const struct error *e);
double clock_seconds(void); /* since some moment; goes on evenly whatever is done to the date */
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
void progress_total(struct progress *p, int64_t total);     /* it has changed */
void progress_skip(struct progress *p, int64_t count);      /* so many were done before any was told */
void progress_label(struct progress *p, const char *label); /* what is being done now */
void progress_end(struct progress *p);
/* For those who tell progress by a callback. The first: progress_at() of the line `progress`. The second: of
 * work in several passes, a line each; `passes` starts with its config, and its line is to be ended. */
struct progress_passes {
    const struct config *config;
    struct progress *line;
    const char *name; /* of the pass under way */
};
void progress_count(void *progress, int64_t done);
void progress_pass(void *passes, const char *name, int64_t done, int64_t total);
/* The line itself: "label  3/12  25%  1.5/s  ETA 0:06". All that is done but for the first `skipped` took
 * these seconds. Returns out. */
char *progress_text(char *out, size_t cap, const char *label, int64_t done, int64_t skipped, int64_t total,
                    double seconds);

/* ---- limits (limits.c) ------------------------------------------------------------------- */

struct limit {
    const char *name, *unit;
    int64_t value;
};
/* The row with this number as it stands under *c (NULL: the defaults); 0 past the last. */
int limit_at(struct limit *out, int number, const struct config *c);
void limits_print(const struct config *c, FILE *to);
/* What this machine, control group or process may have, and has left (verb_doctor.c). */
void machine_memory(int64_t *total_bytes, int64_t *available_bytes);

#endif
