/* options.h - the rows of the one table of options, for the files that walk it.
 *
 * Everything the program knows about an option stands in its row in options.c. A name may have
 * several rows if verbs differ in default or choices; no verb sees two of them.
 */
#ifndef FALX_OPTIONS_H
#define FALX_OPTIONS_H

#include "cli/config.h"

enum option_kind {                       /* what lies at the offset in struct config */
                   OPTION_FLAG,          /* int, 0 or 1 */
                   OPTION_INT,           /* int64_t */
                   OPTION_SEED,          /* int64_t; "random" is -1 until one is drawn */
                   OPTION_REAL,          /* double */
                   OPTION_TEXT,          /* char *; NULL = not set; only the choices if there are any */
                   OPTION_PATH,          /* char *; NULL = not set; taken literally */
                   OPTION_COUNT_OR_PATH, /* char *; NULL = not set; digits are a count of at least min */
                   OPTION_CHOICE,        /* int: number of the choice, as in the enum it stands for */
                   OPTION_INT3           /* int64_t[3]; one number sets all three */
};

enum option_trait {
    OPTION_ARGV_ONLY = 1, /* makes no sense in a config file; not shown by --print-config */
    OPTION_AUTO = 2,      /* the word "auto" is allowed and stored as 0, of flags, choices and reals as -1 */
    OPTION_MAX_OPEN = 4,  /* max itself is not allowed */
    OPTION_NEEDED = 8     /* the verb refuses to run without it */
};

enum option_group {
    GROUP_GENERAL,
    GROUP_READING,
    GROUP_WRITING,
    GROUP_DATA,
    GROUP_COMPUTE,
    GROUP_TRAIN,
    GROUP_AUA,
    GROUP_PREDICT,
    GROUP_PHANTOM,
    GROUP_EVAL,
    GROUP_COMPARE,
    GROUP_COUNT
};

struct option_row {
    const char *name;    /* with '-'; '_' is accepted for it everywhere */
    const char *aliases; /* "a|b" or NULL */
    char letter;         /* short form, or 0 */
    enum option_kind kind;
    size_t offset;  /* in struct config */
    unsigned verbs; /* bit 1 << verb */
    unsigned traits;
    enum option_group group;
    const char *value;       /* default, as a user would write it; NULL = not set */
    double min, max;         /* numbers; within 2^53, so that double holds every integer */
    int64_t multiple;        /* integers must be a multiple of this; 0 = any */
    const char *choices;     /* "a|b|c" or NULL */
    const char *old_choices; /* earlier names of the choices, in their order; still accepted; or NULL */
    const char *id;          /* catalogue id of a range violation; NULL = "C02" */
    const char *meta;        /* what --help calls the value */
    const char *help;        /* one sentence, no full stop */
};
extern const struct option_row options[];
extern const int n_options;
enum { OPTION_MAX = 192 }; /* n_options stays below; sizes small arrays indexed by row */

struct verb_row {
    const char *name;
    const char *args; /* as shown in the usage line */
    int min_args, max_args;
    const char *about;
    const char *example; /* without the leading "falx " */
};
extern const struct verb_row verbs[VERB_COUNT];
extern const char *const group_titles[GROUP_COUNT];

/* Number of the choice that equals the first n bytes of text, or -1. */
int choice_find(const char *choices, const char *text, size_t n);
/* The row for a name or alias of n bytes: the verb's own if there is one, else any, else NULL. */
const struct option_row *option_find(const char *name, size_t n, enum verb verb);
const struct option_row *option_by_letter(char letter, enum verb verb);
/* The verb's option name nearest to a misspelt one (only if near enough), else NULL. */
const char *option_nearest(const char *name, enum verb verb);
int word_is_near(const char *misspelt, const char *word, int *distance);
/* Sets the option from text, or fails with what is allowed. The name is added by the caller. */
int option_set(struct config *c, const struct option_row *o, const char *text, struct error *e);
/* The value as a user would write it; returns 0 if it is not set. Cut at cap. */
int option_text(char *out, size_t cap, const struct option_row *o, const struct config *c);
/* "a whole number 1..4096", "refuse|zero|min", ... Returns out. */
char *option_allowed(char *out, size_t cap, const struct option_row *o);

#endif
