/* dataset.h - a folder recognised as a set of cases.
 *
 * A case is one patient's scan: one or more image files (channels) and, perhaps, a label file.
 * Opening a data set looks only at names and json; volumes are read by dataset_load_* or checked by
 * check.h.
 *
 *     files on disk -> dataset_open (names, order, split, which labels may be seen)
 *                   -> check_dataset (every file, before anything trains)
 *                   -> dataset_load_* (voxels)
 *
 * A data set that `falx prepare` wrote is described by its prepared.json:
 *     { "recipe": "auto", "classes": ["background", "organ"],
 *       "cases": [ { "name": "a", "split": "train", "images": ["images/a.nii.gz"],
 *                    "label": "labels/a.nii.gz" } ] }
 * Paths are relative to the folder, `label` is absent or null for unlabelled cases, `split` is
 * "train" (if absent) or "test", `classes` may be absent, and further keys belong to the
 * preparation; of them only transform.original_known is looked at. A folder with unfinished/ but no
 * prepared.json is a preparation that was stopped: refused [L01].
 */
#ifndef FALX_DATASET_H
#define FALX_DATASET_H

#include "base/base.h"
#include "volume/volume.h"

enum layout {
    LAYOUT_PLAIN,    /* images/ labels/ [train.list test.list], or imagesTr/ labelsTr/ without json */
    LAYOUT_NNUNET,   /* dataset.json of nnU-Net v2 */
    LAYOUT_MSD,      /* dataset.json of the Medical Segmentation Decathlon */
    LAYOUT_DATALIST, /* a MONAI datalist .json given as the path */
    LAYOUT_H5,       /* research h5 files, one per case, with lists */
    LAYOUT_PANCREAS, /* Pancreas-CT as downloaded: DICOM tree + label NIfTI */
    LAYOUT_LA,       /* LA 2018 as downloaded: CASE/lgemri.nrrd, CASE/laendo.nrrd */
    LAYOUT_PREPARED  /* output of `falx prepare`: prepared.json */
};
const char *layout_name(enum layout l);

enum split { SPLIT_TRAIN, SPLIT_TEST };

struct data_case {
    char *name;    /* unique in the set, without '/'; never derived from header text */
    char **images; /* absolute or root-relative paths ready to open; one per channel file */
    int n_images;
    char *label;        /* NULL: unlabelled */
    char *hidden_label; /* the label that --labeled hides; label_box_read() alone opens it */
    int place_unknown;  /* 1: its files are known to name no orientation: not told again */
    enum split split;
};

struct dataset {
    char *root;
    enum layout layout;
    struct data_case *cases; /* training cases in list order first, then test cases */
    int n_cases;
    int n_classes;       /* with background; 0 = not declared */
    char **class_names;  /* n_classes strings, or NULL */
    int (*label_map)[2]; /* n_label_map pairs: value in file -> class */
    int n_label_map;
    int align_labels;             /* Pancreas-CT: label axes are not the image's; loading turns them */
    int n_channels;               /* declared by json; 0 = not declared */
    double geometry_tolerance_mm; /* between the grids of one case's files */
    char note[200];               /* what a user should know, e.g. "split drawn from seed 1337"; or "" */
};

struct dataset_options {
    int follow;                   /* 1: links and paths out of the root are allowed [L11] */
    const char *labeled;          /* "N" or a list file; NULL = all that have labels. Hides other labels. */
    const char *leave_out;        /* a list file of cases that are not to be in the set at all, or NULL */
    const char *label_map;        /* "255=1,3=0" or NULL */
    uint64_t seed;                /* for drawn splits */
    double geometry_tolerance_mm; /* 0 = 1e-3 */
    int checking;                 /* 1: what is odd but not fatal is a problem, else a warning */
    struct report *report;
};

/* path: a folder, or a datalist .json. What is odd but not fatal (a label without an image, a json
 * that names a label that is not there) goes to the report. */
int dataset_open(struct dataset *out, const char *path, const struct dataset_options *o, struct error *e);
/* Scans to predict: a volume, a DICOM folder, or a folder of either, as unlabelled test cases named by
 * their stems; series further down by their paths, P01_CT. With several channels x_0000, x_0001, ... are one
 * case, which x_0000 alone stands for, too. */
int dataset_open_scans(struct dataset *out, const char *path, int channels, const struct dataset_options *o,
                       struct error *e);
/* Length of the name of a file without its format ending (.nii.gz, .nrrd, ...). */
size_t stem_length(const char *name);
void dataset_free(struct dataset *d);                                  /* zeroed or freed ones are fine */
int dataset_count(const struct dataset *d, enum split s, int labeled); /* labeled: 1, 0, or -1 = either */
/* Sets mark[i] of the cases that a list file names, one a line, blanks and # comments aside; each must be
 * there [L01]. Returns how many, or -1. */
int dataset_mark_listed(char *mark, const struct dataset *d, const char *path, int follow, struct error *e);
/* Sets mark[i] of the last n training cases that have a label; -1 if there are fewer [C03]. */
int dataset_mark_last(char *mark, const struct dataset *d, int64_t n, struct error *e);
/* Keeps the cases i with keep[i] != 0, in order, and frees the others. */
void dataset_keep(struct dataset *d, const char *keep);

/* One case's image: a 4D volume (dims[3] = channels) in the first file's dtype if it is one file,
 * else float32; all channels on one grid [L14]. Label: volume of dtype uint16 with the label map
 * applied, on the image's grid. Errors name the file. Header-only requests give dims, spacing and
 * type alone. */
int dataset_load_image(struct volume *out, const struct dataset *d, const struct data_case *c,
                       const struct volume_request *r, struct error *e);
int dataset_load_label(struct volume *out, const struct dataset *d, const struct data_case *c,
                       const struct volume_request *r, struct error *e);
enum { DATASET_MOST_CLASSES = 256 }; /* that training takes */
/* The highest class of a label, or -1 if it is not allowed [L04]. Allowed are those of the set if it declares
 * any; else not 255, the usual number for "ignore", or for "the organ". Errors name the label file. */
int dataset_highest_class(const struct dataset *d, const struct data_case *c, const struct volume *label,
                          struct error *e);
/* Puts a label with voxels on the grid of its image, if its axes only run in another order or direction.
 * Then: do image and label lie on one grid? Shapes [L02]; spacing, origin and direction within the set's
 * tolerance [L03]; either both files name an orientation or none [N24]. Errors name the label file. */
int dataset_match_label(const struct dataset *d, const struct data_case *c, const struct volume *image,
                        struct volume *label, struct error *e);

/* "255=1,3=0": pairs of 0..65535. NULL gives none. For mem_free. */
int label_map_parse(int (**out)[2], int *n, const char *text, struct error *e);
void label_map_apply(label_t *labels, int64_t n, int (*map)[2], int n_map);

#endif
