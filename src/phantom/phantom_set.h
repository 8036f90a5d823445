/* phantom_set.h - private to the phantom's writers: names and places of a synthetic set, and the
 * two formats that the rest of falx only reads. */
#ifndef FALX_PHANTOM_SET_H
#define FALX_PHANTOM_SET_H

#include "phantom/phantom.h"

/* Folders of the layouts that keep images and labels of a role apart; NULL where there is none. */
struct phantom_folders {
    const char *image[3], *label[3]; /* by enum phantom_role */
};
/* NULL for layouts with a folder a case (h5, la, pancreas). */
const struct phantom_folders *phantom_folders(enum layout l);

/* 1 if every channel is a file of its own: NAME_0000.nii.gz, NAME_0001.nii.gz. */
int phantom_numbers_channels(const struct phantom_options *o);

/* The options that made a set, as a file of this name: written before the first case, read by who
 * has to know which files are the set's own. */
#define PHANTOM_UNFINISHED "unfinished" /* data/layouts_json.c refuses folders with such a file */
#define PHANTOM_RECORD "phantom.json"   /* its name at the end */
int phantom_write_record(const char *folder, const char *name, const struct phantom_options *o,
                         struct error *e);
int phantom_read_record(struct phantom_options *o, const char *folder, const char *name, struct error *e);
/* The files that list the cases: train.list, test.list, dataset.json, datalist.json. */
int phantom_write_index(const char *folder, const struct phantom_options *o, struct error *e);

/* Makes a label (uint8) look like the answer of a half-trained network, in place: borders displaced
 * by a smooth field, and a small false blob. Dice with the truth is about 0.80 to 0.92. */
int phantom_roughen(struct volume *label, const struct phantom_options *o, int index, struct error *e);

/* Writes an int16 volume of Hounsfield units, its axes along L, P and S, as one DICOM file a slice:
 * FOLDER/1-001.dcm and on, from the feet up. `patient` is the patient id; `key` makes the unique
 * ids: equal keys give equal files. */
int dicom_write_series(const struct volume *v, const char *folder, const char *patient, uint64_t key,
                       struct error *e);

struct hdf5_item {    /* one data set of three dimensions below the root group */
    const char *name; /* at most 15 characters */
    enum dtype dtype; /* uint8 or float32 */
    int64_t dims[3];  /* as HDF5 and NumPy list them: the last one runs fastest */
    const void *data; /* borrowed */
};
/* Atomically writes at most 4 items, which must be in bytewise order of their names. */
int hdf5_write(const char *path, const struct hdf5_item *item, int n_items, struct error *e);

#endif
