/* eval_pairs.c - which prediction belongs to which truth. See eval.h.
 *
 * In folders a case is a file with the extension of a volume; its name without the extension is the
 * case's name. Content still decides how a file is read; the extension only tells volumes from the
 * lists and json files that lie beside them. A data set's folder stands for the labels inside it.
 */
#include <errno.h>
#include <string.h>
#include <strings.h>

#include "base/io.h"
#include "cli/eval.h"
#include "data/dataset.h"

/* Number of bytes of the name before its extension; 0 if the extension is not a volume's. Names that
 * start with "." are not cases: archives made on a Mac are full of "._name"; nor are voxels whose header is
 * another file. */
static size_t case_length(const char *name)
{
    size_t n = stem_length(name);
    return *name == '.' || name[n] == '\0' || strncasecmp(name + n, ".img", 4) == 0 ? 0 : n;
}

static int is_case(const char *name, const char *stem)
{
    size_t n = case_length(name);
    return n == strlen(stem) && memcmp(name, stem, n) == 0;
}

/* The file of a case in a folder, NULL if there is none. *n counts the candidates. */
static const char *find_case(int *n, const struct io_listing *l, const char *stem)
{
    const char *found = NULL;
    *n = 0;
    for (int i = 0; i < l->n; i++)
        if (!l->entry[i].is_folder && is_case(l->entry[i].name, stem)) {
            found = l->entry[i].name;
            (*n)++;
        }
    return found;
}

/* Lists a folder, or, if `path` is a file, just that file. *folder gets the folder's name. */
static int list_place(struct io_listing *out, char **folder, const char *path, struct error *e)
{
    if (io_is_folder(path)) {
        *folder = mem_string(e, path);
        return *folder ? io_list(out, path, e) : -1;
    }
    *folder = path_folder(e, path);
    out->entry = mem_alloc(e, 1, sizeof *out->entry);
    if (!*folder || !out->entry)
        return -1;
    out->n = 1;
    out->entry[0].name = mem_string(e, path_name(path));
    return out->entry[0].name ? 0 : -1;
}

/* The folder of labels that a data set's root means; `path` itself otherwise. For mem_free. */
static char *labels_place(const char *path, struct error *e)
{
    static const char *const inside[] = {"labels", "labelsTs", "labelsTr"};
    for (size_t i = 0; i < sizeof inside / sizeof *inside; i++) {
        char *sub = path_join(e, path, inside[i]);
        if (!sub || io_is_folder(sub))
            return sub;
        mem_free(sub);
    }
    return mem_string(e, path);
}

/* A file of a listed place, as the user would write it: without "./". */
static char *path_of(const char *folder, const char *name, struct error *e)
{
    return strcmp(folder, ".") == 0 ? mem_string(e, name) : path_join(e, folder, name);
}

/* The scan to draw on; every case must have one, and no more. Scans of nnU-Net data sets carry the channel
 * behind the case's name. */
static int find_image(char **out, const struct io_listing *l, const char *folder, const char *name,
                      struct error *e)
{
    int n;
    const char *found = find_case(&n, l, name);
    char *channel = found ? NULL : mem_format(e, "%s_0000", name);
    if (!found && !channel)
        return -1;
    if (!found)
        found = find_case(&n, l, channel);
    mem_free(channel);
    if (n == 0)
        fail(e, ERR_DATA, "L01", "no image for case \"%s\"", name);
    else if (n > 1)
        fail(e, ERR_DATA, "L01", "%d images for case \"%s\", expected one", n, name);
    if (n != 1)
        return fail_in(e, folder);
    *out = path_of(folder, found, e);
    return *out ? 0 : -1;
}

struct places { /* the listings of the three arguments */
    struct io_listing truth, prediction, image;
    char *truth_folder, *prediction_folder, *image_folder;
    int files; /* 1: two files were given, which belong together whatever their names */
};

static void places_done(struct places *p)
{
    io_listing_free(&p->truth);
    io_listing_free(&p->prediction);
    io_listing_free(&p->image);
    mem_free(p->truth_folder);
    mem_free(p->prediction_folder);
    mem_free(p->image_folder);
}

static int count_cases(const struct io_listing *l)
{
    int n = 0;
    for (int i = 0; i < l->n; i++)
        n += !l->entry[i].is_folder && case_length(l->entry[i].name) > 0;
    return n;
}

static int places_open(struct places *p, const struct config *c, struct error *e)
{
    char *truth = labels_place(c->args[0], e), *prediction = labels_place(c->args[1], e);
    int result = -1;
    if (!truth || !prediction)
        goto out;
    if (c->image && !io_exists(c->image)) {
        fail_errno(e, ENOENT, "cannot open");
        fail_in(e, c->image);
        goto out;
    }
    p->files = !io_is_folder(truth) && !io_is_folder(prediction);
    if (io_is_folder(truth) && !io_is_folder(prediction)) {
        fail(e, ERR_CONFIG, "C02", "the truth is a folder, so this must be one too");
        fail_in(e, c->args[1]);
        goto out;
    }
    if (list_place(&p->truth, &p->truth_folder, truth, e) < 0 ||
        list_place(&p->prediction, &p->prediction_folder, prediction, e) < 0 ||
        (c->image && list_place(&p->image, &p->image_folder, c->image, e) < 0))
        goto out;
    if (count_cases(&p->prediction) == 0 && !p->files) {
        fail(e, ERR_DATA, "L01", "no volumes in this folder");
        fail_in(e, prediction);
        goto out;
    }
    result = 0;
out:
    mem_free(truth);
    mem_free(prediction);
    return result;
}

/* Fills one pair from the truth's file name. Returns 1, 0 if it was reported as a problem, -1 on
 * error. */
static int make_pair(struct pair *out, const struct places *p, const char *file, struct report *report,
                     struct error *e)
{
    int n = 1, n_truths = 1;
    size_t length = case_length(file);
    out->name = mem_format(e, "%.*s", length ? (int)length : (int)strlen(file), file);
    out->truth = path_of(p->truth_folder, file, e);
    if (!out->name || !out->truth)
        return -1;
    const char *found = p->files ? p->prediction.entry[0].name : find_case(&n, &p->prediction, out->name);
    if (!p->files)
        find_case(&n_truths, &p->truth, out->name);
    if (n != 1 || n_truths > 1) {
        if (n == 0)
            report_line(report, REPORT_PROBLEM, out->truth, "L01", "no prediction for this case");
        else
            report_line(report, REPORT_PROBLEM, out->truth, "L01",
                        "%d truths and %d predictions for one case", n_truths, n);
        return 0;
    }
    out->prediction = path_of(p->prediction_folder, found, e);
    if (!out->prediction)
        return -1;
    if (!p->image_folder)
        return 1;
    if (!p->files || p->image.n != 1)
        return find_image(&out->image, &p->image, p->image_folder, out->name, e) < 0 ? -1 : 1;
    out->image = path_of(p->image_folder, p->image.entry[0].name, e);
    return out->image ? 1 : -1;
}

static void pair_done(struct pair *p)
{
    mem_free(p->name);
    mem_free(p->truth);
    mem_free(p->prediction);
    mem_free(p->image);
    memset(p, 0, sizeof *p);
}

/* Is this one of the maps that `falx predict` puts beside the mask of a case? */
static int is_map(const char *name, const struct io_listing *beside)
{
    static const char *const tails[] = {"_std", "_entropy", "_foreground"};
    size_t n = case_length(name);
    for (size_t t = 0; t < sizeof tails / sizeof *tails; t++) {
        size_t tail = strlen(tails[t]);
        if (n <= tail || memcmp(name + n - tail, tails[t], tail) != 0)
            continue;
        for (int i = 0; i < beside->n; i++)
            if (case_length(beside->entry[i].name) == n - tail &&
                memcmp(beside->entry[i].name, name, n - tail) == 0)
                return 1;
    }
    return 0;
}

static void warn_of_extras(const struct places *p, const struct pairs *pairs, struct report *report)
{
    int n_used = pairs->n, n_cases = count_cases(&p->prediction);
    for (int i = 0; i < p->prediction.n; i++)
        n_cases -= !p->prediction.entry[i].is_folder && is_map(p->prediction.entry[i].name, &p->prediction);
    if (n_cases > n_used && !p->files && p->truth.n > 1)
        report_line(report, REPORT_WARNING, p->prediction_folder, NULL,
                    "%d of %d predictions have no truth and are not scored", n_cases - n_used, n_cases);
}

int eval_pairs_find(struct pairs *out, const struct config *c, struct report *report, struct error *e)
{
    struct places p = {0};
    int result = -1;
    memset(out, 0, sizeof *out);
    if (places_open(&p, c, e) < 0)
        goto out;
    out->pair = mem_alloc(e, (size_t)p.truth.n, sizeof *out->pair);
    if (!out->pair)
        goto out;
    for (int i = 0; i < p.truth.n; i++) {
        const struct io_entry *entry = &p.truth.entry[i];
        if (entry->is_folder || (case_length(entry->name) == 0 && !p.files))
            continue;
        int made = make_pair(&out->pair[out->n], &p, entry->name, report, e);
        if (made < 0) {
            out->n++; /* half filled, freed with the rest */
            goto out;
        }
        if (made == 0) {
            pair_done(&out->pair[out->n]);
            out->n_missing++;
        }
        out->n += made;
    }
    if (out->n + out->n_missing == 0) {
        fail(e, ERR_DATA, "L01", "no volumes in this folder");
        fail_in(e, c->args[0]);
        goto out;
    }
    warn_of_extras(&p, out, report);
    result = 0;
out:
    places_done(&p);
    if (result < 0)
        eval_pairs_free(out);
    return result;
}

void eval_pairs_free(struct pairs *p)
{
    for (int i = 0; i < p->n; i++)
        pair_done(&p->pair[i]);
    mem_free(p->pair);
    memset(p, 0, sizeof *p);
}
