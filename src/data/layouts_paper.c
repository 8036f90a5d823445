/* layouts_paper.c - the paper's data as downloaded, with the published splits.
 *
 *   Pancreas-CT   Pancreas-CT/PANCREAS_0001/STUDY/SERIES/x.dcm    labels: .../label0001.nii.gz
 *   LA 2018       [Training Set/]CASE/lgemri.nrrd, laendo.nrrd (the atrium is 255)
 *   MSD Colon     recognised by layouts_json.c; here only its split
 *
 * The lists are data, not choices: their order decides which cases are labelled in every published
 * table.
 */
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "data/layouts.h"

/* ---- Pancreas-CT ----------------------------------------------------------------------------- */

/* The split shared by the papers on 80 of the 82 scans. Cases 25 and 70 are copies of case 2. */
static const unsigned char pancreas_train[60] = {31, 69, 3,  45, 47, 2,  65, 15, 13, 62, 43, 37, 68, 54, 75,
                                                 39, 32, 10, 8,  57, 81, 14, 35, 56, 5,  20, 21, 6,  52, 49,
                                                 40, 30, 34, 11, 7,  9,  29, 18, 76, 22, 51, 61, 33, 19, 67,
                                                 48, 59, 82, 38, 71, 63, 78, 28, 17, 60, 77, 80, 24, 23, 50};
static const unsigned char pancreas_test[20] = {1,  4,  12, 16, 26, 27, 36, 41, 42, 44,
                                                46, 53, 55, 58, 64, 66, 72, 73, 74, 79};

/* The folder of the DICOM slices: down through only children until there are files. */
static char *find_series(const char *folder, int depth, struct error *e)
{
    struct io_listing l;
    if (io_list(&l, folder, e) < 0)
        return NULL;
    int files = 0, folders = 0, child = 0;
    for (int i = 0; i < l.n; i++) {
        if (l.entry[i].name[0] == '.' || l.entry[i].name[0] == '_')
            continue;
        if (l.entry[i].is_folder) {
            child = i;
            folders++;
        } else {
            files++;
        }
    }
    char *found = NULL;
    if (files > 0) {
        found = mem_string(e, folder);
    } else if (folders == 1 && depth < 4) { /* patient/study/series, and one to spare */
        char *next = path_join(e, folder, l.entry[child].name);
        found = next ? find_series(next, depth + 1, e) : NULL;
        mem_free(next);
    } else {
        fail(e, ERR_DATA, "D01", folders ? "several series where one is expected" : "no DICOM files");
        fail_in(e, folder);
    }
    io_listing_free(&l);
    return found;
}

/* First folder below `folder` whose name fits the pattern, as a path; NULL if there is none. */
static int find_folder(char **found, const char *folder, const char *pattern, struct error *e)
{
    struct io_listing l;
    int result = 0;
    *found = NULL;
    if (io_list(&l, folder, e) < 0)
        return -1;
    for (int i = 0; i < l.n && !*found && result == 0; i++)
        if (l.entry[i].is_folder && fnmatch(pattern, l.entry[i].name, FNM_CASEFOLD) == 0)
            result = (*found = path_join(e, folder, l.entry[i].name)) ? 0 : -1;
    io_listing_free(&l);
    return result;
}

/* The folder that holds PANCREAS_0001 and the others: the root, Pancreas-CT/ in it, or in
 * manifest-.../; NULL if there is none. */
static int find_patients(char **found, const char *root, struct error *e)
{
    char *manifest = NULL;
    int result = find_folder(&manifest, root, "manifest-*", e);
    const char *const starts[2] = {root, manifest};
    *found = NULL;
    for (int i = 0; i < 2 && !*found && starts[i] && result == 0; i++) {
        char *collection = NULL, *inside = NULL;
        result = find_folder(&collection, starts[i], "Pancreas-CT", e);
        if (result == 0)
            result =
                find_folder(&inside, collection ? collection : starts[i], "PANCREAS_[0-9][0-9][0-9][0-9]", e);
        if (inside)
            result = (*found = path_folder(e, inside)) ? 0 : -1;
        mem_free(inside);
        mem_free(collection);
    }
    mem_free(manifest);
    return result;
}

static int find_labels(char **found, const char *root, struct error *e)
{
    int result = find_folder(found, root, "TCIA_pancreas_labels*", e);
    return result < 0 || *found ? result : find_folder(found, root, "label*", e);
}

/* Adds case `number` if its folder is there; answers 1, 0 or -1. */
static int add_patient(struct opening *w, const char *patients, const char *labels, int number,
                       enum split split, struct error *e)
{
    char name[16];
    snprintf(name, sizeof name, "PANCREAS_%04d", number);
    char *folder = path_join(e, patients, name), *series = NULL;
    char *label = mem_format(e, "%s/label%04d.nii.gz", labels ? labels : w->d->root, number);
    int result = folder && label ? io_is_folder(folder) : -1;
    if (result == 1) {
        series = find_series(folder, 0, e);
        if (!series || opening_add_files(w, name, split, series, label, e) < 0)
            result = -1;
    }
    mem_free(folder);
    mem_free(series);
    mem_free(label);
    return result;
}

int layout_open_pancreas(struct opening *w, struct error *e)
{
    static const char *const classes[2] = {"background", "pancreas"};
    char *patients, *labels = NULL;
    int result = find_patients(&patients, w->d->root, e), missing = 0;
    if (!patients)
        return result;
    result = -1;
    if (find_labels(&labels, w->d->root, e) < 0)
        goto out;
    w->d->layout = LAYOUT_PANCREAS;
    w->d->align_labels = 1;
    for (int i = 0; i < 80; i++) {
        int number = i < 60 ? pancreas_train[i] : pancreas_test[i - 60];
        int added = add_patient(w, patients, labels, number, i < 60 ? SPLIT_TRAIN : SPLIT_TEST, e);
        if (added < 0)
            goto out;
        missing += !added;
    }
    opening_note(w, "published split of 60 and 20 cases; 25 and 70, copies of case 2, are left out");
    if (missing)
        opening_note(w, "%d cases of the split are not here", missing);
    result = opening_set_classes(w, classes, 2, e) < 0 ? -1 : 1;
out:
    mem_free(patients);
    mem_free(labels);
    return result;
}

/* ---- Left Atrium 2018 ------------------------------------------------------------------------ */

/* The 80 training cases of the published split; the other labelled cases of the challenge are its
 * test. */
static const char la_train[80][21] = {
    "06SR5RBREL16DQ6M8LWS", "0RZDK210BSMWAA6467LU", "1D7CUD1955YZPGK8XHJX", "1GU15S0GJ6PFNARO469W",
    "1MHBF3G6DCPWHSKG7XCP", "23X6SY44VT9KFHR7S7OC", "2XL5HSFSE93RMOJDRGR4", "38CWS74285MFGZZXR09Z",
    "3C2QTUNI0852XV7ZH4Q1", "3DA0T2V6JJ2NLUAV6FWM", "4498CA6DZWELOXCBRYRF", "45C45I6IXAFGNRO067W9",
    "4CHFJGF6ZUM7CMZTNFQF", "4EPVTT1HPA8U60CDUKXE", "57SGAJMLCTCH92QUA0EE", "5BHTH9RHH3PQT913I59W",
    "5FKQL4K14KCB72Y8YMC2", "5HH0WPWIY06DLAFOBQ4M", "5QFK2PMHNX7UALK52NNA", "5UB5KFD2PK38Z4LS6W80",
    "6799D6LEBH3NSRV1KH27", "78NJ5YFQF72BGC8RO51C", "7FUCNXB39F78WTOP5K71", "8GYK8A9MBRC9TV0FVSRA",
    "8M99G0JLAXG9GLPV0O8G", "8RE90C8H5DKF4V6HO8UU", "8ZG2TRZ81MAWHZPN9KKG", "9DCM2IB45SK6YKQNYUQY",
    "9DHWWP5Y66VDMPXISZ13", "9DQYTIU00I4JC0OEOKQQ", "A11O45O3NAXWM7T2H8CH", "A4R1S23KR0KU2WSYHK2X",
    "A5RNNK0A891WUSC2V624", "AT5CRO5JUDBWD4RUPXSQ", "BNK95S2SJXEGSW7VAKYU", "BXJWOUYP2J3EN4U92517",
    "BYSRSI3H4YTWKMM3MADP", "BZUFJX66T0W6ZPVTL9DU", "CB5P5W7X310NIIVU7UZV", "CBIJFVZ5L9BS0LKWE8YL",
    "CCGAKN4EDT72KC8TTJ76", "CLXFYOBQDCVXQ9P7YC07", "CMPXO4J23G58J53Q98SZ", "CZPMV6KWZ4I7IJJP9FOK",
    "DLKXBV73A55ZTSZ0QQI2", "DQ5UYBGR5QP6L692QSG6", "DYXSCIWHLSUOZIDDSZ40", "E2ZMO66WGS74UKXTZPPQ",
    "EJ5V7SPR4961JWD6SS8V", "FGM5NIWN3URY4HF4WNUW", "GSC9KNY0VEZXFSGWNF25", "HVE7DR3CUA2IM3RC6OMA",
    "HZZ4O0BRKF8S0YX3NNF7", "I2VZ7N8H9QYNYT7ZZF1Y", "IDWWHGWJ5STOQXSDT6GU", "IIY6TYJMTJIZRIZLB9YW",
    "IJJY51YW3W4YJJ7DTVTK", "IQYKPTWXVV9H0IHB8YXC", "JEC6HJ7SQJXBKVREX03F", "JGFOLWJF7YCYD8DPHQNH",
    "K32FD6LRSUSSXGS1YUOX", "KM5RYAMP4P4ZP6XWP3Q2", "KSNYHUBHHUJTYJ14UQZR", "LH4FVU3TQDEC87YGN6FL",
    "LJSDNMND9SHKM7Q4IRHJ", "MFTDVMBWFNQ3F5KHBRDR", "MJHV7F65TB2A76CQLOC3", "MVKIPGBKTNSENNP1S4HB",
    "O5TSIKRD4AIB8K84WIR9", "OIRDLE32TXZX942FVZMM", "P1OTI3IWJUIB5NRLULLH", "PVNXUK681N9BY14K4Z86",
    "Q0MEX9ZIKAGJORSPLQ3Y", "Q7J0WYM695R9MA285ZW0", "QZC1W0FNR19KJFLOCFLH", "R8ER97O9UUN77C02VE2J",
    "RSZY41MT2FGDKHWWL5L2", "SN4LF8SGBSRQUPTDSX78", "TDDI6L3Y0L9VVFP9MNFS", "UZUZZT2W9IUSHL6ASOX3"};

static int by_text(const void *key, const void *entry)
{
    return strcmp(key, entry);
}

static int is_la_train(const char *name)
{
    return bsearch(name, la_train, 80, sizeof la_train[0], by_text) != NULL;
}

/* CASE/lgemri.nrrd below `folder`; answers how many cases were added. */
static int add_la_cases(struct opening *w, const char *folder, struct error *e)
{
    struct io_listing l;
    if (io_list(&l, folder, e) < 0)
        return -1;
    int found = 0;
    for (int i = 0; i < l.n && found >= 0; i++) {
        const char *name = l.entry[i].name;
        if (!l.entry[i].is_folder || name[0] == '.' || name[0] == '_')
            continue;
        char *image = mem_format(e, "%s/%s/lgemri.nrrd", folder, name);
        char *label = mem_format(e, "%s/%s/laendo.nrrd", folder, name);
        int there = image && label ? io_find(image, e) : -1;
        if (there == 1 && opening_add_files(w, name, SPLIT_TRAIN, image, label, e) < 0)
            there = -1;
        found = there < 0 ? -1 : found + there;
        mem_free(image);
        mem_free(label);
    }
    io_listing_free(&l);
    return found;
}

int layout_open_la(struct opening *w, struct error *e)
{
    static const char *const classes[2] = {"background", "left atrium"};
    w->d->layout = LAYOUT_LA;
    char *folder;
    if (find_folder(&folder, w->d->root, "Training[ _]Set", e) < 0)
        return -1;
    int found = add_la_cases(w, folder ? folder : w->d->root, e), published = 0;
    mem_free(folder);
    if (found <= 0)
        return found;
    for (int i = 0; i < w->d->n_cases; i++)
        published += is_la_train(w->d->cases[i].name);
    if (published) {
        for (int i = 0; i < w->d->n_cases; i++)
            w->d->cases[i].split = is_la_train(w->d->cases[i].name) ? SPLIT_TRAIN : SPLIT_TEST;
        opening_note(w, "published split: %d of its 80 training cases are here, all others are test cases",
                     published);
    }
    if (!w->o->label_map && /* the challenge paints the atrium 255 */
        label_map_parse(&w->d->label_map, &w->d->n_label_map, "255=1", e) < 0)
        return -1;
    return opening_set_classes(w, classes, 2, e) < 0 ? -1 : 1;
}

/* ---- MSD Colon ------------------------------------------------------------------------------- */

enum { COLON_LABELED = 126, COLON_TEST = 26 }; /* as the paper has it */

int paper_split_colon(struct opening *w, struct error *e)
{
    struct dataset *d = w->d;
    if (dataset_count(d, SPLIT_TRAIN, 1) != COLON_LABELED || dataset_count(d, SPLIT_TRAIN, 0) != 0)
        return 0;
    char *keep = mem_alloc(e, (size_t)d->n_cases, 1);
    if (!keep)
        return -1;
    int order[COLON_LABELED], n = 0;
    for (int i = 0; i < d->n_cases; i++) {
        keep[i] = d->cases[i].split == SPLIT_TRAIN;
        if (keep[i])
            order[n++] = i;
    }
    struct rng r = rng_start(w->o->seed, 0, RNG_SPLIT, 0);
    for (int i = 0; i < COLON_TEST; i++) { /* the first 26 of a shuffle */
        int j = i + (int)rng_below(&r, (uint32_t)(COLON_LABELED - i)), swap = order[i];
        order[i] = order[j];
        order[j] = swap;
        d->cases[order[i]].split = SPLIT_TEST;
    }
    dataset_keep(d, keep);
    mem_free(keep);
    opening_note(w,
                 "split of 100 and 26 cases drawn from seed %llu (the paper's own is not published); "
                 "cases without labels left out",
                 (unsigned long long)w->o->seed);
    return 0;
}
