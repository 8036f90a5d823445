/* pairs.c - images and labels of two folders made into cases, and the plain layout built on it.
 *
 *     images/a.nii.gz        labels/a.nii.gz      one file a case
 *     images/a_0000.nii.gz   labels/a.nii.gz      numbered channels: a_0000, a_0001, ... are one case
 *     images/b.nrrd                               unlabelled
 *
 * A number at the end of a name is a channel where the layout says so (nnU-Net), or where labels
 * show it: some image is called x_0000 and its label x. Otherwise scan_0001 is just the name of a
 * case.
 */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "data/layouts.h"

/* Channel number of "x_0012" (then *base is the length of "x"), or -1. */
static int channel_of(size_t *base, const char *stem)
{
    size_t n = strlen(stem);
    if (n < 6 || stem[n - 5] != '_')
        return -1;
    int channel = 0;
    for (size_t i = n - 4; i < n; i++) {
        if (stem[i] < '0' || stem[i] > '9')
            return -1;
        channel = 10 * channel + (stem[i] - '0');
    }
    *base = n - 5;
    return channel;
}

/* The label of the case whose name is the first n bytes of `stem`. */
static struct scan_file *find_label(const struct scan *labels, const char *stem, size_t n)
{
    char name[256];
    if (n >= sizeof name)
        return NULL;
    memcpy(name, stem, n);
    name[n] = '\0';
    return scan_find(labels, name);
}

static int labels_show_channels(const struct scan *images, const struct scan *labels)
{
    size_t n;
    for (int i = 0; i < images->n; i++)
        if (channel_of(&n, images->file[i].stem) == 0 && !scan_find(labels, images->file[i].stem) &&
            find_label(labels, images->file[i].stem, n))
            return 1;
    return 0;
}

struct piece { /* one image file with the case it belongs to */
    const struct scan_file *file;
    size_t base; /* bytes of file->stem that are the case's name */
    int channel; /* -1: not numbered */
};

static int by_case(const void *a, const void *b)
{
    const struct piece *x = a, *y = b;
    size_t n = x->base < y->base ? x->base : y->base;
    int order = memcmp(x->file->stem, y->file->stem, n);
    if (order)
        return order;
    if (x->base != y->base)
        return x->base < y->base ? -1 : 1;
    return (x->channel > y->channel) - (x->channel < y->channel);
}

static int same_case(const struct piece *x, const struct piece *y)
{
    return x->base == y->base && memcmp(x->file->stem, y->file->stem, x->base) == 0;
}

/* Adds the case made of n pieces, channels in order. */
static int add_case(struct opening *w, const struct piece *p, int n, const struct scan *labels,
                    enum split split, struct error *e)
{
    int result = -1;
    char *name = mem_format(e, "%.*s", (int)p->base, p->file->stem);
    struct data_case *c = name ? opening_add(w, name, split, e) : NULL;
    if (!c)
        goto out;
    for (int i = 0; i < n; i++) {
        if (p[i].channel != i && (p[i].channel >= 0 || n > 1)) {
            fail(e, ERR_DATA, "L14", "case \"%.80s\" has no channel _%04d", name, i);
            fail_in(e, p[i].file->path);
            goto out;
        }
        if (case_add_image(c, p[i].file->path, e) < 0)
            goto out;
    }
    struct scan_file *label = scan_find(labels, name);
    if (label) {
        label->used = 1;
        if (case_set_label(c, label->path, e) < 0)
            goto out;
    }
    result = 0;
out:
    mem_free(name);
    return result;
}

static int cut_names(struct piece *p, const struct scan *images, int numbered, enum channel_rule rule,
                     struct error *e)
{
    for (int i = 0; i < images->n; i++) {
        const struct scan_file *f = &images->file[i];
        p[i] = (struct piece){f, strlen(f->stem), -1};
        if (numbered)
            p[i].channel = channel_of(&p[i].base, f->stem);
        if (p[i].channel < 0 && rule == CHANNELS_NUMBERED) {
            fail(e, ERR_DATA, "L14", "the name does not end in a channel number such as _0000");
            return fail_in(e, f->path);
        }
    }
    return 0;
}

static int by_name_nocase(const void *a, const void *b)
{
    return strcasecmp(*(char *const *)a, *(char *const *)b);
}

/* Labels that no image claimed, each with the case that differs only in letter case, if there is
 * one. */
static int report_orphans(struct opening *w, const struct scan *labels, int first, struct error *e)
{
    enum report_kind kind = w->o->checking ? REPORT_PROBLEM : REPORT_WARNING;
    int orphans = 0, n = w->d->n_cases - first;
    for (int i = 0; i < labels->n; i++)
        orphans += !labels->file[i].used;
    if (!orphans)
        return 0;
    char **name = mem_alloc(e, (size_t)n, sizeof *name);
    if (!name)
        return -1;
    for (int i = 0; i < n; i++)
        name[i] = w->d->cases[first + i].name;
    qsort(name, (size_t)n, sizeof *name, by_name_nocase);
    for (int i = 0; i < labels->n; i++) {
        const struct scan_file *f = &labels->file[i];
        if (f->used)
            continue;
        char **near = n ? bsearch(&f->stem, name, (size_t)n, sizeof *name, by_name_nocase) : NULL;
        if (near)
            report_line(w->o->report, kind, f->path, "L01",
                        "label without an image; case \"%.80s\" differs only in letter case", *near);
        else
            report_line(w->o->report, kind, f->path, "L01", "label without an image");
    }
    mem_free(name);
    return 0;
}

static int add_folder(struct opening *w, const char *images_folder, const char *labels_folder,
                      enum split split, enum channel_rule rule, const char *ending, struct error *e)
{
    struct scan images = {0}, labels = {0};
    struct piece *p = NULL;
    int result = -1, first = w->d->n_cases;
    int labelled = labels_folder ? opening_has_folder(w, labels_folder, e) : 0;
    if (labelled < 0 || scan_folder(&images, w, images_folder, ending, e) < 0 ||
        (labelled && scan_folder(&labels, w, labels_folder, ending, e) < 0))
        goto out;
    p = mem_alloc(e, (size_t)images.n, sizeof *p);
    w->numbered |= rule == CHANNELS_NUMBERED || labels_show_channels(&images, &labels);
    if (!p || cut_names(p, &images, w->numbered, rule, e) < 0)
        goto out;
    qsort(p, (size_t)images.n, sizeof *p, by_case);
    for (int i = 0, n; i < images.n; i += n) {
        for (n = 1; i + n < images.n && same_case(&p[i], &p[i + n]); n++)
            continue;
        if (add_case(w, &p[i], n, &labels, split, e) < 0)
            goto out;
    }
    result = report_orphans(w, &labels, first, e);
out:
    mem_free(p);
    scan_free(&images);
    scan_free(&labels);
    return result;
}

/* x_0000, y_0000, ...: names of nnU-Net, even with one channel. Of several channels one such name is enough:
 * without any, each file holds all channels of its case. */
static int are_numbered(struct opening *w, int channels, struct error *e)
{
    struct scan images;
    size_t n;
    int first = 0;
    if (scan_folder(&images, w, ".", NULL, e) < 0)
        return -1;
    for (int i = 0; i < images.n; i++)
        first += channel_of(&n, images.file[i].stem) == 0;
    int numbered = first > 0 && (channels > 1 || first == images.n);
    scan_free(&images);
    return numbered;
}

int opening_add_scans(struct opening *w, int channels, struct error *e)
{
    int numbered = are_numbered(w, channels, e);
    if (numbered < 0)
        return -1;
    return add_folder(w, ".", NULL, SPLIT_TEST, numbered ? CHANNELS_NUMBERED : CHANNELS_GUESS, NULL, e);
}

int opening_add_folders(struct opening *w, enum channel_rule rule, const char *ending, struct error *e)
{
    static const struct {
        const char *images, *labels;
        enum split split;
    } folders[] = {{"images", "labels", SPLIT_TRAIN},
                   {"imagesTr", "labelsTr", SPLIT_TRAIN},
                   {"imagesUn", NULL, SPLIT_TRAIN},
                   {"imagesTs", "labelsTs", SPLIT_TEST}};
    int found = 0;
    for (int i = rule == CHANNELS_NUMBERED ? 1 : 0; i < 4; i++) { /* nnU-Net knows no images/ */
        int there = opening_has_folder(w, folders[i].images, e);
        if (there < 0 || (there && add_folder(w, folders[i].images, folders[i].labels, folders[i].split, rule,
                                              ending, e) < 0))
            return -1;
        found += there;
    }
    return found;
}

static int warn_of_masks(struct opening *w, struct error *e)
{
    int masks = opening_has_folder(w, "masks", e), labels = opening_has_folder(w, "labels", e);
    if (labels == 0)
        labels = opening_has_folder(w, "labelsTr", e);
    if (masks < 0 || labels < 0)
        return -1;
    if (masks && !labels)
        report_line(w->o->report, REPORT_WARNING, w->d->root, "L01",
                    "masks/ is not looked at: labels are expected in labels/ or labelsTr/");
    return 0;
}

int layout_open_plain(struct opening *w, struct error *e)
{
    int there = opening_has_folder(w, "images", e);
    if (there == 0)
        there = opening_has_folder(w, "imagesTr", e);
    if (there != 1)
        return there;
    w->d->layout = LAYOUT_PLAIN;
    if (warn_of_masks(w, e) < 0)
        return -1;
    return opening_add_folders(w, CHANNELS_GUESS, NULL, e);
}
