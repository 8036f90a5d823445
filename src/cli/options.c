/* options.c - the one table of options, and the table of verbs as the user sees them.
 *
 * A row drives the command line, the config file, --help, validation, --print-config and the JSON
 * in output folders. To add an option: a field in struct config, a row here, nothing else.
 *
 * Defaults are text and go through the same parser as what a user types, so a default out of its
 * own range cannot exist. Rows stand in the order of --help, group by group. Aliases are the names
 * that the published research scripts of the field use.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/options.h"

#define AT(field) offsetof(struct config, field)

enum {
    INFO = 1 << VERB_INFO, CHECKING = 1 << VERB_CHECK, CONVERT = 1 << VERB_CONVERT,
    PHANTOM = 1 << VERB_PHANTOM, PREPARE = 1 << VERB_PREPARE, EVAL = 1 << VERB_EVAL,
    BENCH = 1 << VERB_BENCH, DOCTOR = 1 << VERB_DOCTOR,
    ALL = (1 << VERB_COUNT) - 1,
    READING = INFO | CHECKING | CONVERT | PREPARE | EVAL,
    DATASETS = CHECKING | PREPARE
};

const struct option_row options[] = {
    {.name = "help", .letter = 'h', .kind = OPTION_FLAG, .offset = AT(help), .verbs = ALL,
     .traits = OPTION_ARGV_ONLY, .value = "false", .help = "this text"},
    {.name = "config", .kind = OPTION_PATH, .offset = AT(config_file), .verbs = ALL,
     .traits = OPTION_ARGV_ONLY, .meta = "FILE",
     .help = "read options from FILE, lines of `key = value`; options given here are stronger"},
    {.name = "print-config", .kind = OPTION_FLAG, .offset = AT(print_config), .verbs = ALL,
     .traits = OPTION_ARGV_ONLY, .value = "false",
     .help = "print every option with its value as a config file, and stop"},
    {.name = "limits", .kind = OPTION_FLAG, .offset = AT(show_limits), .verbs = ALL,
     .traits = OPTION_ARGV_ONLY, .value = "false",
     .help = "print the limits that input is held to, and stop"},
    {.name = "json", .kind = OPTION_FLAG, .offset = AT(json),
     .verbs = INFO | CHECKING | EVAL | BENCH | DOCTOR, .value = "false",
     .help = "print JSON instead of text"},
    {.name = "quiet", .letter = 'q', .kind = OPTION_FLAG, .offset = AT(quiet), .verbs = ALL,
     .value = "false", .help = "no progress and no notes; warnings and errors stay"},
    {.name = "threads", .aliases = "jobs|num-workers", .letter = 'j', .kind = OPTION_INT,
     .offset = AT(threads), .verbs = ALL, .traits = OPTION_AUTO, .value = "auto", .min = 0,
     .max = 1024, .meta = "N",
     .help = "threads to use; auto or 0 is one per core; results do not depend on it"},
    {.name = "seed", .kind = OPTION_SEED, .offset = AT(seed),
     .verbs = CHECKING | PHANTOM | PREPARE | BENCH, .value = "1337", .min = 0,
     .max = 9007199254740991.0, .meta = "N|random",
     .help = "seed of everything random; random draws one, prints and stores it"},

    {.name = "strict", .kind = OPTION_FLAG, .group = GROUP_READING, .offset = AT(strict),
     .verbs = READING, .value = "false",
     .help = "refuse files with oddities that are only warned of"},
    {.name = "allow-gaps", .kind = OPTION_FLAG, .group = GROUP_READING, .offset = AT(allow_gaps),
     .verbs = READING, .value = "false", .help = "accept DICOM series with missing slices"},
    {.name = "volume", .kind = OPTION_INT, .group = GROUP_READING, .offset = AT(volume),
     .verbs = CONVERT | EVAL, .value = "-1", .min = -1, .max = 1000000, .meta = "K",
     .help = "which volume of a 4D file, from 0; -1 is none in particular"},
    {.name = "nan", .kind = OPTION_CHOICE, .group = GROUP_READING, .offset = AT(nan),
     .verbs = DATASETS, .value = "refuse", .choices = "refuse|zero|min",
     .help = "what to do with voxels that are not numbers"},
    {.name = "member", .kind = OPTION_TEXT, .group = GROUP_READING, .offset = AT(member),
     .verbs = READING, .meta = "NAME",
     .help = "data set inside an HDF5 file (image if not given)"},
    {.name = "label-map", .kind = OPTION_TEXT, .group = GROUP_READING, .offset = AT(label_map),
     .verbs = DATASETS | EVAL, .meta = "IN=OUT,...",
     .help = "label values to exchange while reading, such as 255=1"},
    /* Limits: 2^31 voxels and 8 GiB unless said otherwise; the upper end is 2^40. */
    {.name = "limit-voxels", .kind = OPTION_INT, .group = GROUP_READING,
     .offset = AT(limit_voxels), .verbs = READING, .value = "2147483648", .min = 1,
     .max = 1099511627776.0, .meta = "N", .help = "refuse volumes of more voxels"},
    {.name = "limit-bytes", .kind = OPTION_INT, .group = GROUP_READING, .offset = AT(limit_bytes),
     .verbs = READING, .value = "8589934592", .min = 1, .max = 1099511627776.0, .meta = "N",
     .help = "refuse volumes of more bytes once decoded"},

    {.name = "output", .aliases = "out|save-path", .letter = 'o', .kind = OPTION_PATH,
     .group = GROUP_WRITING, .offset = AT(output), .verbs = PREPARE, .traits = OPTION_NEEDED,
     .meta = "FOLDER", .help = "where the result goes"},
    {.name = "force", .kind = OPTION_FLAG, .group = GROUP_WRITING, .offset = AT(force),
     .verbs = CONVERT | PHANTOM | PREPARE | EVAL, .value = "false",
     .help = "replace existing output"},

    {.name = "preset", .aliases = "recipe", .kind = OPTION_TEXT, .group = GROUP_DATA,
     .offset = AT(preset), .verbs = PREPARE, .value = "auto",
     .choices = "la|pancreas|colon|auto|paper-la|paper-pancreas|paper-colon|none",
     .help = "how to prepare; paper-NAME repeats the published pipeline, NAME is our recipe"},
    {.name = "labeled", .aliases = "labelled|labelnum|label-num|labeled-num",
     .kind = OPTION_COUNT_OR_PATH, .group = GROUP_DATA, .offset = AT(labeled),
     .verbs = DATASETS, .min = 1, .max = 1000000, .id = "C03", .meta = "N|LIST",
     .help = "use the labels of the first N cases or of those named in a file; hide all others"},
    {.name = "patch", .aliases = "patch-size", .kind = OPTION_INT3, .group = GROUP_DATA,
     .offset = AT(patch), .verbs = CHECKING, .traits = OPTION_AUTO, .value = "auto", .min = 16,
     .max = 1024, .multiple = 16, .id = "C03", .meta = "X[,Y,Z]",
     .help = "patch that training will cut, in voxels (the network halves it four times)"},
    /* 2 labelled + 2 unlabelled patches and 0.99: what the methods of the field train with. */
    {.name = "batch", .aliases = "batch-size", .kind = OPTION_INT, .group = GROUP_DATA,
     .offset = AT(batch), .verbs = CHECKING, .value = "4", .min = 1, .max = 4096, .id = "C03",
     .meta = "N", .help = "patches in a batch"},
    {.name = "labeled-batch", .aliases = "labelled-batch|labeled-bs|labelled-bs",
     .kind = OPTION_INT, .group = GROUP_DATA, .offset = AT(labeled_batch), .verbs = CHECKING,
     .traits = OPTION_AUTO, .value = "auto", .min = 1, .max = 4096, .id = "C03", .meta = "N",
     .help = "how many of them are labelled; auto is half"},
    {.name = "ema-decay", .kind = OPTION_REAL, .group = GROUP_DATA, .offset = AT(ema_decay),
     .verbs = CHECKING, .traits = OPTION_MAX_OPEN, .value = "0.99", .min = 0, .max = 1,
     .id = "C03", .meta = "A", .help = "how much of itself the averaged teacher keeps a step"},
    {.name = "follow", .kind = OPTION_FLAG, .group = GROUP_DATA, .offset = AT(follow),
     .verbs = DATASETS, .value = "false",
     .help = "allow links and paths that lead out of the data set"},
    {.name = "skip-bad", .kind = OPTION_FLAG, .group = GROUP_DATA, .offset = AT(skip_bad),
     .verbs = DATASETS, .value = "false",
     .help = "leave bad cases out instead of stopping, and say which"},
    {.name = "geometry-tolerance", .kind = OPTION_REAL, .group = GROUP_DATA,
     .offset = AT(geometry_tolerance_mm), .verbs = DATASETS | EVAL, .value = "0.001", .min = 0,
     .max = 1000, .meta = "MM", .help = "how far the grids of image and label may lie apart"},

    {.name = "cases", .kind = OPTION_INT, .group = GROUP_PHANTOM, .offset = AT(cases),
     .verbs = PHANTOM, .value = "20", .min = 1, .max = 10000, .meta = "N",
     .help = "training cases to make"},
    {.name = "labeled", .aliases = "labelled|labelnum|label-num|labeled-num", .kind = OPTION_INT,
     .group = GROUP_PHANTOM, .offset = AT(labels), .verbs = PHANTOM, .traits = OPTION_AUTO,
     .value = "auto", .min = 1, .max = 10000, .id = "C03", .meta = "N",
     .help = "how many of them get a label, the first ones; auto is 4, or all if there are fewer"},
    {.name = "test", .kind = OPTION_INT, .group = GROUP_PHANTOM, .offset = AT(test),
     .verbs = PHANTOM, .value = "4", .min = 0, .max = 10000, .meta = "N",
     .help = "test cases to make besides"},
    {.name = "size", .kind = OPTION_INT3, .group = GROUP_PHANTOM, .offset = AT(size),
     .verbs = PHANTOM, .value = "96", .min = 16, .max = 1024, .meta = "X[,Y,Z]",
     .help = "voxels of a case, before variation"},
    {.name = "classes", .aliases = "num-classes", .kind = OPTION_INT, .group = GROUP_PHANTOM,
     .offset = AT(classes), .verbs = PHANTOM, .value = "2", .min = 2, .max = 256, .meta = "N",
     .help = "classes, background included"},
    {.name = "channels", .kind = OPTION_INT, .group = GROUP_PHANTOM, .offset = AT(channels),
     .verbs = PHANTOM, .value = "1", .min = 1, .max = 16, .meta = "N", .help = "images a case"},
    {.name = "layout", .kind = OPTION_TEXT, .group = GROUP_PHANTOM, .offset = AT(layout),
     .verbs = PHANTOM, .value = "plain", .choices = "plain|nnunet|msd|datalist|h5|la|pancreas",
     .help = "folder layout to write"},

    {.name = "protocol", .kind = OPTION_CHOICE, .group = GROUP_EVAL, .offset = AT(protocol),
     .verbs = EVAL, .value = "mm", .choices = "mm|paper",
     .help = "distances in millimetres, or in voxels as the literature's tables"},
    {.name = "nsd", .aliases = "nsd-mm", .kind = OPTION_REAL, .group = GROUP_EVAL,
     .offset = AT(nsd_tolerance), .verbs = EVAL, .value = "1", .min = 0, .max = 1000, .meta = "DISTANCE",
     .help = "tolerance of the surface Dice, in the unit of the protocol"},
    {.name = "csv", .kind = OPTION_PATH, .group = GROUP_EVAL, .offset = AT(csv), .verbs = EVAL,
     .meta = "FILE", .help = "write one line a case and class"},
    {.name = "pictures", .kind = OPTION_PATH, .group = GROUP_EVAL, .offset = AT(pictures),
     .verbs = EVAL, .meta = "FOLDER",
     .help = "write slices: agreed red, missed green, too much blue"},
    {.name = "image", .aliases = "images", .kind = OPTION_PATH, .group = GROUP_EVAL,
     .offset = AT(image), .verbs = EVAL, .meta = "PATH",
     .help = "scan or folder of scans to draw the pictures on"},
};
const int n_options = sizeof options / sizeof *options;
_Static_assert(sizeof options / sizeof *options <= OPTION_MAX, "raise OPTION_MAX");

const struct verb_row verbs[VERB_COUNT] = {
    [VERB_INFO] = {"info", "FILE...", 1, 1000000,
                   "header, spacing, orientation and range of volumes",
                   "info scan.nii.gz series/ --json"},
    [VERB_CHECK] = {"check", "DATASET", 1, 1,
                    "recognise a data set and check every file of it",
                    "check Task10_Colon --labeled 5"},
    [VERB_CONVERT] = {"convert", "IN OUT", 2, 2,
                      "any readable volume or DICOM folder to NIfTI or NRRD",
                      "convert series/ scan.nii.gz"},
    [VERB_PHANTOM] = {"phantom", "OUT", 1, 1,
                      "make a synthetic data set, the same for the same seed",
                      "phantom toy --cases 12 --labeled 3 --size 64"},
    [VERB_PREPARE] = {"prepare", "DATASET -o OUT", 1, 1,
                      "crop, resample and normalise a data set for training",
                      "prepare Task10_Colon -o ready --preset colon"},
    [VERB_EVAL] = {"eval", "TRUTH PREDICTION", 2, 2,
                   "score masks against the truth, case by case",
                   "eval labels/ masks/ --csv scores.csv"},
    [VERB_BENCH] = {"bench", "[NAME...]", 0, 64,
                    "measure the speed of this machine at falx's work",
                    "bench io metrics --json"},
    [VERB_DOCTOR] = {"doctor", "", 0, 0,
                     "what this machine has and what falx will use",
                     "doctor --json"},
};

const char *const group_titles[GROUP_COUNT] = {
    [GROUP_GENERAL] = "General", [GROUP_READING] = "Reading volumes", [GROUP_WRITING] = "Writing",
    [GROUP_DATA] = "Data sets and training", [GROUP_PHANTOM] = "Phantom", [GROUP_EVAL] = "Scores",
};

/* ---- looking things up ------------------------------------------------------------------- */

/* '_' and '-' are one character in names. */
static int same_name(const char *a, const char *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if ((a[i] == '_' ? '-' : a[i]) != b[i])
            return 0;
    return 1;
}

/* Number of the word in "a|b|c" that equals the first n bytes of text, or -1. */
static int word_in_list(const char *list, const char *text, size_t n,
                        int (*same)(const char *, const char *, size_t))
{
    int number = 0;
    for (const char *w = list; w; number++) {
        size_t length = strcspn(w, "|");
        if (length == n && same(text, w, n))
            return number;
        w = w[length] ? w + length + 1 : NULL;
    }
    return -1;
}

static int same_bytes(const char *a, const char *b, size_t n)
{
    return memcmp(a, b, n) == 0;
}

int choice_find(const char *choices, const char *text, size_t n)
{
    return word_in_list(choices, text, n, same_bytes);
}

char *choice_text(char *out, size_t cap, const char *choices, int number)
{
    const char *w = choices;
    while (number-- > 0 && w[strcspn(w, "|")])
        w += strcspn(w, "|") + 1;
    snprintf(out, cap, "%.*s", (int)strcspn(w, "|"), w);
    return out;
}

const struct option_row *option_find(const char *name, size_t n, enum verb verb)
{
    const struct option_row *other = NULL;
    for (const struct option_row *o = options; o < options + n_options; o++) {
        int matches = (strlen(o->name) == n && same_name(name, o->name, n)) ||
                      word_in_list(o->aliases, name, n, same_name) >= 0;
        if (matches && o->verbs & 1u << verb)
            return o;
        if (matches && !other)
            other = o;
    }
    return other;
}

const struct option_row *option_by_letter(char letter, enum verb verb)
{
    for (const struct option_row *o = options; o < options + n_options; o++)
        if (o->letter == letter && o->verbs & 1u << verb)
            return o;
    return NULL;
}

/* Two slips, or a third of a long word, still count as the same word. */
int word_is_near(const char *misspelt, const char *word, int *distance)
{
    int length = (int)strlen(word), allowed = length / 3 > 2 ? length / 3 : 2;
    *distance = text_distance(misspelt, word);
    return *distance <= allowed && *distance < length;
}

const char *option_nearest(const char *name, enum verb verb)
{
    const char *best = NULL;
    int best_distance = 0, distance;
    for (const struct option_row *o = options; o < options + n_options; o++) {
        if (!(o->verbs & 1u << verb) || !word_is_near(name, o->name, &distance))
            continue;
        if (!best || distance < best_distance) {
            best = o->name;
            best_distance = distance;
        }
    }
    return best;
}

/* ---- values as text ---------------------------------------------------------------------- */

/* The shortest decimal that reads back as the same number. */
static void real_text(char *out, size_t cap, double v)
{
    double back;
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(out, cap, "%.*g", digits, v);
        if (parse_real(&back, out) == 0 && back == v)
            return;
    }
}

static int int_text(char *out, size_t cap, const struct option_row *o, const int64_t *v)
{
    if (o->kind == OPTION_SEED && *v < 0)
        snprintf(out, cap, "random");
    else if (o->traits & OPTION_AUTO && *v == 0)
        snprintf(out, cap, "auto");
    else if (o->kind == OPTION_INT3)
        snprintf(out, cap, "%" PRId64 ",%" PRId64 ",%" PRId64, v[0], v[1], v[2]);
    else
        snprintf(out, cap, "%" PRId64, *v);
    return 1;
}

int option_text(char *out, size_t cap, const struct option_row *o, const struct config *c)
{
    const void *at = (const char *)c + o->offset;
    const char *text;
    switch (o->kind) {
    case OPTION_FLAG:
        snprintf(out, cap, "%s", *(const int *)at ? "true" : "false");
        return 1;
    case OPTION_INT:
    case OPTION_SEED:
    case OPTION_INT3:
        return int_text(out, cap, o, at);
    case OPTION_REAL:
        real_text(out, cap, *(const double *)at);
        return 1;
    case OPTION_CHOICE:
        choice_text(out, cap, o->choices, *(const int *)at);
        return 1;
    case OPTION_TEXT:
    case OPTION_PATH:
    case OPTION_COUNT_OR_PATH:
        break;
    }
    text = *(char *const *)at;
    snprintf(out, cap, "%s", text ? text : "");
    return text != NULL;
}

char *option_allowed(char *out, size_t cap, const struct option_row *o)
{
    char range[100], multiple[40] = "";
    const char *kind = o->kind == OPTION_REAL ? "a number" : "a whole number";
    if (o->kind == OPTION_REAL)
        snprintf(range, sizeof range, "%s %g%s%g", kind, o->min,
                 o->traits & OPTION_MAX_OPEN ? " to below " : "..", o->max);
    else
        snprintf(range, sizeof range, "%s %.0f..%.0f", kind, o->min, o->max);
    if (o->multiple)
        snprintf(multiple, sizeof multiple, ", a multiple of %" PRId64, o->multiple);
    if (o->kind == OPTION_FLAG)
        snprintf(out, cap, "true|false");
    else if (o->choices)
        snprintf(out, cap, "%s", o->choices);
    else if (o->kind == OPTION_TEXT || o->kind == OPTION_PATH)
        snprintf(out, cap, "text");
    else
        snprintf(out, cap, "%s%s%s%s", range, multiple,
                 o->kind == OPTION_INT3 ? ", once or X,Y,Z" : "",
                 o->kind == OPTION_SEED        ? ", or random"
                 : o->traits & OPTION_AUTO     ? ", or auto"
                 : o->kind == OPTION_COUNT_OR_PATH ? ", or a file"
                                               : "");
    return out;
}
