/* hdf5_make.h - HDF5 files for tests, written by libhdf5 itself: an oracle that shares nothing with
 * the reader under test but the library inside the helper.
 */
#ifndef FALX_HDF5_MAKE_H
#define FALX_HDF5_MAKE_H

#include <hdf5.h>
#include <stdlib.h>

/* One data set to write. Zeroed fields mean: contiguous, unfiltered, not extendible. */
struct hdf5_make {
    const char *member; /* NULL = "image" */
    hid_t type;         /* in the file; `memory` if 0 */
    hid_t memory;       /* of `data` */
    int rank;
    hsize_t dims[8], most[8], chunk[8]; /* most[0] == 0: equal to dims; chunk[0] == 0: contiguous */
    int deflate, shuffle, fletcher32;
    const void *data; /* NULL: nothing is written */
};

static inline hid_t hdf5_make_plist(const struct hdf5_make *m)
{
    hid_t p = H5Pcreate(H5P_DATASET_CREATE);
    if (m->chunk[0])
        H5Pset_chunk(p, m->rank, m->chunk);
    if (m->shuffle)
        H5Pset_shuffle(p);
    if (m->deflate)
        H5Pset_deflate(p, (unsigned)m->deflate);
    if (m->fletcher32)
        H5Pset_fletcher32(p);
    return p;
}

/* Adds the data set to an open file with creation properties of the caller's. 0 or -1. */
static inline int hdf5_make_set(hid_t file, const struct hdf5_make *m, hid_t plist)
{
    hid_t space =
        m->rank ? H5Screate_simple(m->rank, m->dims, m->most[0] ? m->most : NULL) : H5Screate(H5S_SCALAR);
    hid_t set = H5Dcreate2(file, m->member ? m->member : "image", m->type > 0 ? m->type : m->memory, space,
                           H5P_DEFAULT, plist, H5P_DEFAULT);
    int rc = set < 0 ? -1 : 0;
    if (rc == 0 && m->data && H5Dwrite(set, m->memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, m->data) < 0)
        rc = -1;
    if (set >= 0)
        H5Dclose(set);
    H5Sclose(space);
    return rc;
}

/* A file with one data set, `user_block` bytes of something else in front. */
static inline int hdf5_make_file(const char *path, const struct hdf5_make *m, hsize_t user_block)
{
    hid_t create = H5Pcreate(H5P_FILE_CREATE), plist = hdf5_make_plist(m);
    H5Pset_userblock(create, user_block);
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, create, H5P_DEFAULT);
    int rc = file < 0 ? -1 : hdf5_make_set(file, m, plist);
    H5Pclose(plist);
    H5Pclose(create);
    if (file >= 0)
        H5Fclose(file);
    return rc;
}

#endif
