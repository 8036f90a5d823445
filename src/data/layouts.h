/* layouts.h - private to dataset.c, layouts*.c and lists.c: what the recognisers of layouts share.
 *
 * One recogniser a layout. It looks at w->d->root, answers 0 ("not mine") as cheaply as it can, or
 * fills the data set and answers 1. Which cases are there and where their files lie is its work;
 * order by list files, uniqueness of names, hiding of labels and label maps are done once for all,
 * in dataset.c.
 */
#ifndef FALX_LAYOUTS_H
#define FALX_LAYOUTS_H

#include "base/io.h"
#include "data/dataset.h"

struct opening { /* a data set being opened */
    struct dataset *d;
    const struct dataset_options *o;
    const char *json; /* name of the json file below the root that was asked for, or NULL */
    char *real_root;  /* root with all links resolved */
    int capacity;     /* of d->cases */
    int own_order;    /* 1: the layout's own file decides order and split; list files are not asked */
    int numbered;     /* 1: an image folder showed that names end in channel numbers */
};

typedef int (*layout_open)(struct opening *w, struct error *e); /* 1, 0 = another layout, -1 */
int layout_open_prepared(struct opening *w, struct error *e);   /* all but json: only if w->json is NULL */
int layout_open_json(struct opening *w, struct error *e);       /* nnU-Net, MSD, or the json asked for */
int layout_open_datalist(struct opening *w, struct error *e);   /* a json found in the folder */
struct js;
int layout_from_json(struct opening *w, const struct js *root, struct error *e); /* its inner part */
int layout_open_plain(struct opening *w, struct error *e);
int layout_open_pancreas(struct opening *w, struct error *e);
int layout_open_la(struct opening *w, struct error *e);
int layout_open_h5(struct opening *w, struct error *e);

/* The paper tests on 26 of the 126 labelled cases of MSD Colon without saying which: draws them.
 * Sets of another make-up are left as they are. */
int paper_split_colon(struct opening *w, struct error *e);

/* ---- building cases -------------------------------------------------------------------------- */

/* A new case, called `name` with '_' for '/'; the pointer is good until the next call. */
struct data_case *opening_add(struct opening *w, const char *name, enum split split, struct error *e);
int case_add_image(struct data_case *c, const char *path, struct error *e);
/* The channels that stand for x.nii.gz: x_0000.nii.gz, x_0001.nii.gz, ... as far as they are there. Answers
 * how many, or -1. */
int case_add_channels(struct opening *w, struct data_case *c, const char *path, struct error *e);
int case_set_label(struct data_case *c, const char *path, struct error *e);
void case_free(struct data_case *c);
/* A whole case of one image and, if `label` is not NULL and that file is there, its label. Links
 * out of the root are refused. */
int opening_add_files(struct opening *w, const char *name, enum split split, const char *image,
                      const char *label, struct error *e);
/* Names for classes 0..n-1; missing ones become "class 3". Sets n_classes. */
int opening_set_classes(struct opening *w, const char *const *names, int n, struct error *e);
/* "The published split ..." and the like; what does not fit is cut. */
void opening_note(struct opening *w, const char *fmt, ...) PRINTF(2, 3);

/* ---- files and folders ----------------------------------------------------------------------- */

/* Refuses a path that leads, by links, out of the root [L11]; --follow allows it. A path that does
 * not exist is fine: whoever opens it will say so. */
int opening_contain(struct opening *w, const char *path, struct error *e);
/* root + "/" + a name from a json. Names that lead out, by themselves or by links, are refused
 * [L11] unless --follow. */
char *opening_path(struct opening *w, const char *name, struct error *e);
int name_leads_out(const char *name); /* 1 if it is absolute or has a ".." */
/* Below the root, is there a folder (file) of that name? 1, 0 or -1. */
int opening_has_folder(struct opening *w, const char *name, struct error *e);
int opening_has_file(struct opening *w, const char *name, struct error *e);

/* 1 if the name alone tells that it is no scan: text, a picture, voxels whose header is another file. */
int name_is_other(const char *name);

struct scan_file {
    char *stem; /* name without format ending: "a" of a.nii.gz */
    char *path;
    int used; /* by whoever pairs */
};
struct scan {
    struct scan_file *file; /* sorted by stem, bytewise; stems are unique */
    int n;
};
/* The volumes of a folder below the root: files, and folders as DICOM series. Names starting with
 * '.' or '_', text, and data files that belong to a header are left out. `ending` NULL = any. */
int scan_folder(struct scan *out, struct opening *w, const char *folder, const char *ending, struct error *e);
void scan_free(struct scan *s);
struct scan_file *scan_find(const struct scan *s, const char *stem); /* NULL if there is none */

enum channel_rule {
    CHANNELS_GUESS,   /* x_0000, x_0001 are channels of x if some x has a label; else cases of their
                         own */
    CHANNELS_NUMBERED /* every image name must end in its channel number (nnU-Net) */
};
/* Adds the cases of images/, imagesTr/, imagesUn/ (train) and imagesTs/ (test) with those of
 * labels/, labelsTr/ and labelsTs/, whichever of them are there. Labels without an image go to the
 * report [L01]. Answers how many image folders there were, or -1. */
int opening_add_folders(struct opening *w, enum channel_rule rule, const char *ending, struct error *e);

/* Adds every volume that lies in the root itself as an unlabelled test case. */
int opening_add_scans(struct opening *w, int channels, struct error *e);

/* ---- names and lists (lists.c) --------------------------------------------------------------- */

struct list {
    char *text; /* the file's bytes, cut into names */
    char **name;
    int n;
};
/* One name a line; blank lines and lines starting with '#' are skipped; CR and blanks around a name
 * are dropped. The same name twice [L09] and, without `follow`, absolute names and ".." [L11] are
 * refused. Takes `text`. */
int list_parse(struct list *out, char *text, int follow, struct error *e);
void list_free(struct list *l);

/* Two cases of one name, as positions a < b. 1 if there are such, 0, -1. */
int names_find_twins(int *a, int *b, const struct dataset *d, struct error *e);
/* Order and split from train.list and test.list (.txt too) in `folder`, if there; cases on no list
 * are left out. Returns 1 if lists were found and fit, 0 if not there, -1. */
int lists_apply(struct opening *w, const char *folder, struct error *e);
/* Drops the cases named in a list file; NULL: none. */
int lists_leave_out(struct opening *w, const char *path, struct error *e);
/* Hides the labels of all training cases but the first N labelled ones, or but those in a list
 * file. */
int lists_hide_labels(struct opening *w, const char *labeled, struct error *e);
/* Unique names [L09], and names that differ only in letter case (a warning) [L01]. */
int lists_check_names(struct opening *w, struct error *e);

#endif
