/* source.h - the bytes of one input behind one bounded cursor: plain file, gzip file or memory.
 *
 *     file or memory --> raw buffer --> [inflate] --> source_read
 *
 * Parsers touch input through this file only. It never hands out a byte that is not there, it decides
 * by content whether the file is compressed, and it knows how many bytes the file can possibly justify:
 * source_can_hold() refuses a claim the file cannot honour before anything is allocated.
 */
#ifndef FALX_SOURCE_H
#define FALX_SOURCE_H

#include "base/base.h"

struct source;

enum source_coding { SOURCE_PLAIN, SOURCE_GZIP, SOURCE_ZLIB, SOURCE_GZIP_OR_ZLIB };

/* Opens a file; gzip is recognised by its first bytes and decoded from the start. Other compressors
 * (bzip2, xz, zstd) are refused by name [Z09]. */
int source_open(struct source **out, const char *path, struct error *e);
/* The same over memory (borrowed). */
int source_open_memory(struct source **out, const void *bytes, size_t n, struct error *e);
/* A file next to this one, for detached data. `name` must be one plain component, and the file must
 * really lie in the same folder (no link out of it). Not recognised as gzip: the header says what it is.
 * From memory: an independent cursor over the same bytes. */
int source_open_beside(struct source **out, struct source *of, const char *name, struct error *e);
void source_close(struct source *s);

const char *source_path(const struct source *s); /* as given; "memory" for memory */
int source_is_compressed(const struct source *s);

/* The first decoded bytes without moving the cursor; fewer than n only if the data end. Only valid
 * while nothing was read yet; n <= 4096. Returns the count or -1. */
int64_t source_peek(struct source *s, void *out, size_t n, struct error *e);

/* Exactly n bytes or failure ("ends after %llu of %llu bytes"). */
int source_read(struct source *s, void *out, size_t n, struct error *e);
/* Up to n bytes, fewer only at the end; -1 on error (damaged stream, I/O). */
int64_t source_read_some(struct source *s, void *out, size_t n, struct error *e);
int source_skip(struct source *s, uint64_t n, struct error *e);
uint64_t source_offset(const struct source *s); /* decoded bytes consumed */

/* From here on the remaining bytes are a compressed stream (NRRD, MetaImage). Not on a gzip file. */
int source_decode(struct source *s, enum source_coding coding, struct error *e);
/* Moves the cursor so that exactly n bytes remain; plain files only. */
int source_seek_from_end(struct source *s, uint64_t n, struct error *e);

/* Upper bound of the decoded bytes left: exact for plain bytes, 1032 per compressed byte otherwise
 * (a deflate match of 258 bytes takes at least 2 bits). */
uint64_t source_left_at_most(const struct source *s);
/* 0 if a claim of `bytes` more decoded bytes can be true; else -1 with the numbers in *e. */
int source_can_hold(const struct source *s, uint64_t bytes, const char *id, struct error *e);

/* After the wanted bytes: how many decoded bytes follow them. A compressed stream that ends here has its
 * checksum and length verified, -1 if they are wrong [Z04]; one that goes on counts as 1 and is not
 * inflated further, so a bomb stays unexploded. */
int64_t source_finish(struct source *s, struct error *e);
int source_has_trailing_garbage(const struct source *s); /* bytes after the last gzip member [Z07] */

#endif
