/* dataset.c - opening a data set: recognise, order, check names, map and hide labels.
 *
 *     recognisers (layouts*.c, pairs.c), in turn, until one says "mine"
 *       -> train.list and test.list, if there (lists.c)
 *       -> training cases first, test cases behind, each in order
 *       -> unique names -> --leave-out drops cases -> --labeled hides labels
 *
 * --labeled moves a label's path from `label` to `hidden_label`. Of all code downstream only label_box.c
 * reads the latter: the published crops need the box of every label.
 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "data/layouts.h"

static const double default_tolerance_mm = 1e-3; /* faults catalogue, L03 */

const char *layout_name(enum layout l)
{
    static const char *const name[] = {[LAYOUT_PLAIN] = "plain", [LAYOUT_NNUNET] = "nnunet",
                                       [LAYOUT_MSD] = "msd",     [LAYOUT_DATALIST] = "datalist",
                                       [LAYOUT_H5] = "h5",       [LAYOUT_PANCREAS] = "pancreas",
                                       [LAYOUT_LA] = "la",       [LAYOUT_PREPARED] = "prepared"};
    return name[l];
}

/* ---- label maps ------------------------------------------------------------------------------ */

/* One "255=1", which is cut in two. */
static int parse_pair(int pair[2], char *text)
{
    int64_t from, to;
    char *right = strchr(text, '=');
    if (!right)
        return -1;
    *right++ = '\0';
    if (parse_int(&from, text) < 0 || parse_int(&to, right) < 0 || from < 0 || from > UINT16_MAX || to < 0 ||
        to > UINT16_MAX)
        return -1;
    pair[0] = (int)from;
    pair[1] = (int)to;
    return 0;
}

int label_map_parse(int (**out)[2], int *n, const char *text, struct error *e)
{
    *out = NULL;
    *n = 0;
    if (!text)
        return 0;
    char *copy = mem_string(e, text);
    int(*map)[2] = mem_alloc(e, strlen(text) / 4 + 1, sizeof *map); /* the shortest pair is "1=2," */
    int bad = !copy || !map, count = 0;
    for (char *p = copy, *next; p && !bad; p = next, count++) {
        next = strchr(p, ',');
        if (next)
            *next++ = '\0';
        bad = parse_pair(map[count], p) < 0;
        if (bad)
            fail(e, ERR_CONFIG, "C02", "--label-map \"%.60s\": expected IN=OUT,... of 0..65535", text);
        for (int i = 0; i < count && !bad; i++) {
            bad = map[i][0] == map[count][0]; /* one value, one meaning */
            if (bad)
                fail(e, ERR_CONFIG, "C01", "--label-map \"%.60s\": duplicate %d, allowed once", text,
                     map[i][0]);
        }
    }
    mem_free(copy);
    if (bad) {
        mem_free(map);
        return -1;
    }
    *out = map;
    *n = count;
    return 0;
}

void label_map_apply(label_t *labels, int64_t n, int (*map)[2], int n_map)
{
    if (n_map == 0)
        return;
    for (int64_t i = 0; i < n; i++)
        for (int k = 0; k < n_map; k++)
            if (labels[i] == map[k][0]) {
                labels[i] = (label_t)map[k][1];
                break;
            }
}

/* ---- opening --------------------------------------------------------------------------------- */

static int recognise(struct opening *w, struct error *e)
{
    static const layout_open recognisers[] = {
        layout_open_prepared, layout_open_json, layout_open_datalist, layout_open_plain,
        layout_open_pancreas, layout_open_la,   layout_open_h5};
    int result = w->json ? layout_open_json(w, e) : 0;
    for (size_t i = 0; !w->json && result == 0 && i < sizeof recognisers / sizeof *recognisers; i++)
        result = recognisers[i](w, e);
    if (result)
        return result < 0 ? -1 : 0;
    fail(e, ERR_DATA, "L01",
         "no data set recognised (looked for prepared.json, dataset.json, datalist*.json, "
         "images/ and labels/, imagesTr/ and labelsTr/, PANCREAS_0001/, CASE/lgemri.nrrd, *.h5)");
    return fail_in(e, w->d->root);
}

/* Splits `path` into the root and, if it is a file, its name. */
static int find_root(struct opening *w, const char *path, struct error *e)
{
    struct stat st;
    if (stat(path, &st) < 0) {
        fail_errno(e, errno, "cannot open");
        return fail_in(e, path);
    }
    if (S_ISDIR(st.st_mode)) {
        w->d->root = mem_string(e, path);
        for (size_t n = w->d->root ? strlen(w->d->root) : 0; n > 1 && w->d->root[n - 1] == '/'; n--)
            w->d->root[n - 1] = '\0';
    } else if (text_ends_with_nocase(path, ".json")) {
        w->d->root = path_folder(e, path);
        w->json = path_name(path);
    } else {
        fail(e, ERR_DATA, "L01", "a folder or a datalist .json is expected");
        return fail_in(e, path);
    }
    if (!w->d->root)
        return -1;
    char real[PATH_MAX];
    if (!realpath(w->d->root, real)) {
        fail_errno(e, errno, "cannot resolve");
        return fail_in(e, path);
    }
    w->real_root = mem_string(e, real);
    return w->real_root ? 0 : -1;
}

static int apply_lists(struct opening *w, struct error *e)
{
    if (w->own_order)
        return 0;
    int found = lists_apply(w, w->d->root, e);
    if (found != 0 || w->d->layout != LAYOUT_H5)
        return found < 0 ? -1 : 0;
    char *above = mem_format(e, "%s/..", w->d->root);
    found = above ? lists_apply(w, above, e) : -1;
    mem_free(above);
    return found < 0 ? -1 : 0;
}

/* Training cases first; the order within a split stays. */
static int gather_splits(struct dataset *d, struct error *e)
{
    struct data_case *sorted = mem_alloc(e, (size_t)d->n_cases, sizeof *sorted);
    if (!sorted)
        return -1;
    int n = 0;
    for (int split = SPLIT_TRAIN; split <= SPLIT_TEST; split++)
        for (int i = 0; i < d->n_cases; i++)
            if ((int)d->cases[i].split == split)
                sorted[n++] = d->cases[i];
    mem_free(d->cases);
    d->cases = sorted;
    return 0;
}

/* The user's map takes the place of the layout's own. */
static int read_label_map(struct dataset *d, const char *text, struct error *e)
{
    if (!text)
        return 0;
    mem_free(d->label_map);
    return label_map_parse(&d->label_map, &d->n_label_map, text, e);
}

/* HDF5 has no words for spacing and orientation: one line for the set, none for each file. */
static void expect_no_place(struct opening *w)
{
    for (int i = 0; i < w->d->n_cases; i++)
        w->d->cases[i].place_unknown = 1;
    report_line(w->o->report, REPORT_WARNING, w->d->root, NULL,
                "HDF5 names no spacing or orientation: 1 mm and identity assumed for %d case%s",
                w->d->n_cases, w->d->n_cases == 1 ? "" : "s");
}

int dataset_open(struct dataset *out, const char *path, const struct dataset_options *o, struct error *e)
{
    static const struct dataset_options none = {.seed = 1337};
    struct opening w = {.d = out, .o = o ? o : &none};
    struct error unheard;
    int result = -1;
    e = e ? e : &unheard;
    memset(out, 0, sizeof *out);
    out->geometry_tolerance_mm =
        w.o->geometry_tolerance_mm > 0 ? w.o->geometry_tolerance_mm : default_tolerance_mm;
    if (find_root(&w, path, e) < 0 || read_label_map(out, w.o->label_map, e) < 0 || recognise(&w, e) < 0 ||
        apply_lists(&w, e) < 0 || gather_splits(out, e) < 0 || lists_check_names(&w, e) < 0 ||
        lists_leave_out(&w, w.o->leave_out, e) < 0)
        goto out;
    if (out->n_cases == 0) {
        fail(e, ERR_DATA, "L01", "no cases in this %s data set", layout_name(out->layout));
        fail_in(e, path);
        goto out;
    }
    result = lists_hide_labels(&w, w.o->labeled, e);
    if (result == 0 && out->layout == LAYOUT_H5)
        expect_no_place(&w);
out:
    mem_free(w.real_root);
    if (result < 0)
        dataset_free(out);
    return result;
}

/* Files of a folder that may hold images, and how many of them are of a format with a name of its own. */
static int count_files(int *files, int *named, const char *folder, struct error *e)
{
    struct io_listing l;
    *files = *named = 0;
    if (io_list(&l, folder, e) < 0)
        return -1;
    for (int i = 0; i < l.n; i++) {
        const char *name = l.entry[i].name;
        if (l.entry[i].is_folder || name[0] == '.' || name_is_other(name))
            continue;
        ++*files;
        *named += stem_length(name) < strlen(name) && !text_ends_with_nocase(name, ".dcm");
    }
    io_listing_free(&l);
    return 0;
}

/* 1 if the folder is one DICOM series. */
static int is_series(const char *folder, struct error *e)
{
    int files, named;
    if (count_files(&files, &named, folder, e) < 0)
        return -1;
    return files > 0 && named == 0;
}

/* No scan: says which folder inside has some, for it is easy to give a data set instead of its scans. */
static int fail_without_scan(const char *root, const char *path, struct error *e)
{
    struct io_listing l;
    int at = -1;
    if (io_list(&l, root, e) < 0)
        return -1;
    for (int i = 0, files, named; i < l.n && at < 0; i++) {
        char *inside = l.entry[i].is_folder ? path_join(e, root, l.entry[i].name) : NULL;
        if (inside && count_files(&files, &named, inside, e) == 0 && named > 0)
            at = i;
        mem_free(inside);
    }
    if (at < 0)
        fail(e, ERR_DATA, "L01", "no scan in this folder");
    else
        fail(e, ERR_DATA, "L01", "no scan in this folder; its folder \"%.80s\" has some", l.entry[at].name);
    io_listing_free(&l);
    return fail_in(e, path);
}

/* With several channels x_0000.nii.gz stands for all files of its case, as in a folder of scans. */
static int add_single(struct opening *w, const char *path, int is_folder, int channels, struct error *e)
{
    const char *last = path_name(path);
    size_t n = is_folder ? strlen(last) : stem_length(last), base = n;
    if (!is_folder && channels > 1 && n > 5 && strncmp(last + n - 5, "_0000", 5) == 0)
        base = n - 5;
    char *name = n ? mem_format(e, "%.*s", (int)base, last) : mem_string(e, "scan");
    struct data_case *c = name ? opening_add(w, name, SPLIT_TEST, e) : NULL;
    mem_free(name);
    if (!c || base == n)
        return c ? case_add_image(c, path, e) : -1;
    char *all = mem_format(e, "%.*s%s", (int)((size_t)(last - path) + base), path, last + n);
    int result = all ? case_add_channels(w, c, all, e) : -1;
    mem_free(all);
    return result < 0 ? -1 : 0;
}

/* Archives store patient / study / series: each series below the folder is a scan with the path in its name,
 * P01_CT_abdomen. Folders with files of another kind are none of our business. */
static int add_series_below(struct opening *w, const char *folder, const char *name, int levels,
                            struct error *e)
{
    struct io_listing l;
    int files, named, result = 0;
    if (count_files(&files, &named, folder, e) < 0 || io_list(&l, folder, e) < 0)
        return -1;
    for (int i = 0; i < l.n && files == 0 && result == 0; i++) {
        if (!l.entry[i].is_folder || l.entry[i].name[0] == '.')
            continue;
        char *path = path_join(e, folder, l.entry[i].name);
        char *longer = mem_format(e, "%s_%s", name, l.entry[i].name);
        int series = path && longer && opening_contain(w, path, e) == 0 ? is_series(path, e) : -1;
        struct data_case *c = series > 0 ? opening_add(w, longer, SPLIT_TEST, e) : NULL;
        if (series < 0 || (series && (!c || case_add_image(c, path, e) < 0)) ||
            (!series && levels > 1 && add_series_below(w, path, longer, levels - 1, e) < 0))
            result = -1;
        mem_free(path);
        mem_free(longer);
    }
    io_listing_free(&l);
    return result;
}

/* Folders between scans that are no series, such as masks made earlier, give way to the series in them. */
static int open_folders(struct opening *w, struct error *e)
{
    enum { LEVELS = 2 };
    struct dataset *d = w->d;
    int n = d->n_cases, result = 0;
    char *keep = mem_alloc(e, (size_t)n + 1, 1);
    for (int i = 0; i < n && keep && result == 0; i++) {
        const char *path = d->cases[i].images[0];
        int series = io_is_folder(path) ? is_series(path, e) : 1;
        keep[i] = series > 0;
        result = series ? series : add_series_below(w, path, d->cases[i].name, LEVELS, e);
        result = result < 0 ? -1 : 0;
    }
    char *all = keep && result == 0 ? mem_resize(e, keep, (size_t)d->n_cases + 1, 1) : NULL;
    if (all) {
        keep = all;
        memset(keep + n, 1, (size_t)(d->n_cases - n));
        dataset_keep(d, keep);
    }
    mem_free(keep);
    return all ? 0 : -1;
}

int dataset_open_scans(struct dataset *out, const char *path, int channels, const struct dataset_options *o,
                       struct error *e)
{
    struct opening w = {.d = out, .o = o};
    struct stat st;
    int result = -1;
    memset(out, 0, sizeof *out);
    out->geometry_tolerance_mm =
        o->geometry_tolerance_mm > 0 ? o->geometry_tolerance_mm : default_tolerance_mm;
    if (stat(path, &st) < 0) {
        fail_errno(e, errno, "cannot open");
        return fail_in(e, path);
    }
    if (!S_ISDIR(st.st_mode)) {
        out->root = path_folder(e, path);
        result = out->root ? add_single(&w, path, 0, channels, e) : -1;
    } else if (find_root(&w, path, e) == 0) {
        int series = is_series(out->root, e);
        result = series < 0 ? -1
                 : series   ? add_single(&w, out->root, 1, channels, e)
                            : opening_add_scans(&w, channels, e);
        if (result == 0 && !series)
            result = open_folders(&w, e);
    }
    if (result == 0 && out->n_cases == 0)
        result = fail_without_scan(out->root, path, e);
    mem_free(w.real_root);
    if (result < 0)
        dataset_free(out);
    return result;
}

void dataset_free(struct dataset *d)
{
    for (int i = 0; i < d->n_cases; i++)
        case_free(&d->cases[i]);
    mem_free(d->cases);
    for (int i = 0; i < d->n_classes && d->class_names; i++)
        mem_free(d->class_names[i]);
    mem_free(d->class_names);
    mem_free(d->label_map);
    mem_free(d->root);
    memset(d, 0, sizeof *d);
}

int dataset_count(const struct dataset *d, enum split s, int labeled)
{
    int n = 0;
    for (int i = 0; i < d->n_cases; i++)
        n += d->cases[i].split == s && (labeled < 0 || (d->cases[i].label != NULL) == labeled);
    return n;
}

void dataset_keep(struct dataset *d, const char *keep)
{
    int n = 0;
    for (int i = 0; i < d->n_cases; i++) {
        if (keep[i])
            d->cases[n++] = d->cases[i];
        else
            case_free(&d->cases[i]);
    }
    d->n_cases = n;
}
