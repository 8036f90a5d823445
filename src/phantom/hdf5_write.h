/* hdf5_write.h - plain HDF5 files, written without libhdf5. */
#ifndef FALX_HDF5_WRITE_H
#define FALX_HDF5_WRITE_H

#include "volume/volume.h"

/* One data set of three dimensions below the root group. */
struct hdf5_item {
    const char *name; /* at most 15 characters */
    enum dtype dtype; /* uint8 or float32 */
    int64_t dims[3];  /* as HDF5 and NumPy list them: the last one runs fastest */
    const void *data; /* borrowed */
};

/* Atomically writes at most 4 items, which must be in bytewise order of their names. */
int hdf5_write(const char *path, const struct hdf5_item *item, int n_items, struct error *e);

#endif
