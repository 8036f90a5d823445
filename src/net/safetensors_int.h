/* safetensors_int.h - what the writer and the reader of safetensors share, for nobody else. */
#ifndef FALX_SAFETENSORS_INT_H
#define FALX_SAFETENSORS_INT_H

#include "net/safetensors.h"

/* Limits. A V-Net has 205 tensors and 40 kB of header, a checkpoint of eight of them, moments
 * included, 1,700 and 350 kB. What is allowed is ten times that and still refused or read within 64
 * MiB and a tenth of a second. */
enum {
    ST_DIMS_MAX = 8,
    ST_TENSORS_MAX = 16384,
    ST_HEADER_MAX = 4 << 20,   /* bytes of JSON */
    ST_METADATA_MAX = 1 << 20, /* bytes of keys and values */
    ST_STRINGS_MAX = 256,      /* bytes of strings a tensor: its name and the fixed words */
    ST_MARKS_MAX = 1 << 18,    /* commas, colons, brackets: what costs a parser memory; 16 a tensor */
    ST_DEPTH_MAX = 3           /* file, tensor, shape */
};

#define ST_METADATA_KEY "__metadata__"
#define ST_OWN_PREFIX "falx."
#define ST_CHECKSUM_KEY "falx.checksum"
#define ST_CHECKSUM_BLANK "0000000000000000"

int st_dtype_find(enum st_dtype *out, const char *name);
int st_check_name(const char *name, struct error *e);
/* Bytes of dims x dtype; refuses negative ones, overflow and none at all. */
int st_tensor_bytes(size_t *out, const struct st_tensor *t, struct error *e);

/* Over everything before the data, checksum digits blank, and then the tensors in order. */
uint64_t st_checksum(const void *header, size_t bytes, const struct st_file *f);
/* Where the digits stand in the JSON as falx writes it; NULL if these are not there. */
char *st_checksum_digits(char *header, size_t bytes, const char *digits);

#endif
