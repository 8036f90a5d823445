/* safetensors.h - the one format of models and checkpoints: 8 bytes of header length, a JSON header, data.
 *
 * Reading is strict [S01..S11]: every byte of the data belongs to exactly one tensor, integers are parsed
 * as integers, names are unique, nothing is allocated before its size was proved to fit the file. Pickle
 * files (.pt, .pth, .ckpt, .pkl) are refused by their first bytes, never parsed.
 *
 * Writing is deterministic: equal tensors and metadata give equal bytes. A checksum over all bytes but
 * itself is kept in the metadata, so that any flipped bit of a checkpoint is found [K02]; files of others
 * that lack it are read without, but where a key "falx.*" stands there must be one.
 */
#ifndef FALX_SAFETENSORS_H
#define FALX_SAFETENSORS_H

#include "base/base.h"

enum st_dtype { ST_F32, ST_F64, ST_F16, ST_BF16, ST_I64, ST_I32, ST_U64, ST_U8, ST_BOOL };

enum { ST_FORMAT = 1 }; /* newest "falx.format" that is understood; later ones are refused [K04] */

const char *st_dtype_name(enum st_dtype t); /* "F32" */

struct st_tensor {
    char *name; /* printable ASCII */
    enum st_dtype dtype;
    int64_t dims[8];
    int n_dims;       /* 0: a scalar */
    const void *data; /* little-endian, dense, row-major; in files of others perhaps not aligned */
    size_t bytes;
};

struct st_pair {
    char *key, *value;
};

struct st_file {
    struct st_tensor *tensors; /* in the order of the data */
    int n_tensors;
    struct st_pair *metadata; /* sorted by key */
    int n_metadata;
    void *owned; /* memory behind names and data after reading; NULL when being built */
};

/* Building, from a zeroed one: names, keys, values and data are borrowed until st_write. Wide elements go
 * before narrow ones, equal ones in the order of the calls. At least one element [S07]. */
int st_add(struct st_file *f, const char *name, enum st_dtype dtype, const int64_t *dims, int n_dims,
           const void *data, struct error *e);
int st_set(struct st_file *f, const char *key, const char *value, struct error *e);
void st_free(struct st_file *f); /* zeroed ones are fine */

/* The file appears whole or not at all (io.h). */
int st_write(const char *path, const struct st_file *f, struct error *e);
/* What st_write puts before the data of the tensors: length, JSON, blanks up to a multiple of 64 bytes. For
 * mem_free. */
int st_header(char **out, size_t *bytes, const struct st_file *f, struct error *e);

struct st_limits {
    size_t bytes;         /* of the whole file; 0 = 64 GiB */
    int require_checksum; /* 1: a file without one is refused [K02] */
};
/* l may be NULL. *out is all zeros after a failure. */
int st_read(struct st_file *out, const char *path, const struct st_limits *l, struct error *e);
/* The same from memory, what the fuzzer calls. */
int st_parse(struct st_file *out, const void *bytes, size_t n, const struct st_limits *l, struct error *e);

const struct st_tensor *st_find(const struct st_file *f, const char *name); /* NULL: none */
const char *st_metadata(const struct st_file *f, const char *key);          /* NULL: none */

#endif
