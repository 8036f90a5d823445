/* hdf5_reply.h - what falx-hdf5 says on its stdout: one fixed header, then voxels.
 *
 * Both ends are built together and run on one machine, so the struct is sent as it lies in memory.
 * The reader treats it as coming from a stranger all the same: the sender has parsed a hostile
 * file.
 *
 * Voxels follow block by block. Blocks tile the array in C order (last axis fastest), each at most
 * `block` long per axis, cut at the array's end; inside a block the order is C order too, host
 * bytes.
 */
#ifndef FALX_HDF5_REPLY_H
#define FALX_HDF5_REPLY_H

#include <stdint.h>

enum {
    HDF5_MAX_RANK = 4,
    HDF5_DECODE_RATE = 8 << 20 /* bytes of voxels a CPU second that both ends count on: a seventh of what one
                                * core inflated when measured */
};
#define HDF5_REPLY_MAGIC "falxh5.1" /* 8 bytes, no NUL */

struct hdf5_reply {
    char magic[8];
    uint32_t code;                 /* enum error_code; ERR_NONE: the rest describes the data set */
    uint32_t dtype;                /* enum dtype */
    uint32_t rank;                 /* 1..4 */
    uint32_t unused;               /* 0 */
    uint64_t dims[HDF5_MAX_RANK];  /* in HDF5's order; those past rank are 1 */
    uint64_t block[HDF5_MAX_RANK]; /* 1..dims */
    char id[8];                    /* of a refusal, as in struct error */
    char text[360];
};

#endif
