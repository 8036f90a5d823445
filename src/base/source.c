/* source.c - the bounded cursor of source.h. The only file that includes zlib.h for reading.
 *
 * Two layers. Raw: `in` holds bytes of the file not yet used, refilled by raw_fill(). Decoded: for plain
 * sources the raw bytes themselves; for compressed ones what inflate makes of them. A file is never
 * mapped: it may shrink while it is read, and that must be an error line, not SIGBUS.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "base/io.h"
#include "base/source.h"

enum {
    RAW_BUFFER = 1 << 16,
    HEAD_MAX = 4096,           /* most that can be peeked */
    GZIP_HEADER_MAX = 1 << 16, /* names and comments inside a gzip header; real ones are < 300 bytes */
    EMPTY_MEMBERS_MAX = 10000  /* in a row; bgzip ends with one, concatenation may add a few */
};
#define DEFLATE_MOST 1032 /* decoded bytes per compressed byte: 258 bytes from 2 bits */

struct source {
    char *path;
    int fd; /* -1 for memory */
    const unsigned char *memory;
    uint64_t raw_bytes; /* length of the file or memory */
    uint64_t raw_at;    /* raw bytes taken into `in` so far */
    unsigned char *in;
    size_t in_room;     /* RAW_BUFFER, less for small files */
    size_t in_at, in_n; /* unused raw bytes are in[in_at .. in_n) */
    uint64_t offset;    /* decoded bytes handed out */
    enum source_coding coding;
    z_stream z;
    gz_header member; /* .done tells when a gzip header has been passed */
    int z_live, ended, garbage, empty_members;
    uint64_t member_out, member_in;
    unsigned char *head; /* decoded bytes peeked from a compressed stream */
    size_t head_at, head_n;
};

/* ---- raw layer --------------------------------------------------------------------------------- */

static int64_t raw_get(struct source *s, void *out, size_t n, struct error *e)
{
    if (s->fd < 0) {
        uint64_t left = s->raw_bytes - s->raw_at;
        size_t got = left < n ? (size_t)left : n;
        if (got > 0)
            memcpy(out, s->memory + s->raw_at, got);
        s->raw_at += got;
        return (int64_t)got;
    }
    ssize_t got = io_read_full(s->fd, out, n);
    if (got < 0)
        return fail_errno(e, errno, "cannot read");
    s->raw_at += (uint64_t)got;
    if ((size_t)got < n && s->raw_at < s->raw_bytes)
        return fail(e, ERR_DATA, "Z10", "file shrank while being read: %llu of %llu bytes",
                    (unsigned long long)s->raw_at, (unsigned long long)s->raw_bytes);
    return got;
}

/* Makes at least `wanted` (<= HEAD_MAX) raw bytes available, fewer only at the end. */
static int raw_fill(struct source *s, size_t wanted, struct error *e)
{
    if (s->in_n - s->in_at >= wanted)
        return 0;
    memmove(s->in, s->in + s->in_at, s->in_n - s->in_at);
    s->in_n -= s->in_at;
    s->in_at = 0;
    int64_t got = raw_get(s, s->in + s->in_n, s->in_room - s->in_n, e);
    if (got < 0)
        return -1;
    s->in_n += (size_t)got;
    return 0;
}

static uint64_t raw_left(const struct source *s)
{
    uint64_t unread = s->raw_bytes > s->raw_at ? s->raw_bytes - s->raw_at : 0;
    return unread + (s->in_n - s->in_at);
}

/* ---- inflate ------------------------------------------------------------------------------------ */

static int coding_start(struct source *s, enum source_coding coding, struct error *e)
{
    int window = coding == SOURCE_GZIP ? 15 + 16 : coding == SOURCE_ZLIB ? 15 : 15 + 32;
    memset(&s->z, 0, sizeof s->z);
    if (inflateInit2(&s->z, window) != Z_OK)
        return fail(e, ERR_MEMORY, NULL, "out of memory for inflate");
    memset(&s->member, 0, sizeof s->member);
    if (coding == SOURCE_GZIP)
        inflateGetHeader(&s->z, &s->member);
    s->z_live = 1;
    s->coding = coding;
    return 0;
}

static int inflate_refused(struct source *s, struct error *e)
{
    const char *why = s->z.msg ? s->z.msg : "invalid data";
    const char *id = strstr(why, "flags") || strstr(why, "method") || strstr(why, "header") ? "Z08" : "Z04";
    return fail(e, ERR_DATA, id, "damaged compressed stream: %s after %llu decoded bytes", why,
                (unsigned long long)s->offset);
}

/* A member has ended: go on with the next one if there is one. Sets s->ended otherwise. */
static int next_member(struct source *s, struct error *e)
{
    if (raw_fill(s, 2, e) < 0)
        return -1;
    size_t have = s->in_n - s->in_at;
    const unsigned char *p = s->in + s->in_at;
    int more = s->coding == SOURCE_GZIP && have >= 2 && p[0] == 0x1F && p[1] == 0x8B;
    if (!more) {
        s->ended = 1;
        s->garbage = have > 0;
        return 0;
    }
    s->empty_members = s->member_out == 0 ? s->empty_members + 1 : 0;
    if (s->empty_members > EMPTY_MEMBERS_MAX)
        return fail(e, ERR_DATA, "Z07", "more than %d empty gzip members in a row", EMPTY_MEMBERS_MAX);
    inflateReset(&s->z);
    memset(&s->member, 0, sizeof s->member);
    inflateGetHeader(&s->z, &s->member);
    s->member_out = s->member_in = 0;
    return 0;
}

/* One call of inflate on what is buffered, at most `n` bytes out. Returns bytes produced or -1. */
static int64_t inflate_some(struct source *s, unsigned char *out, size_t n, struct error *e)
{
    if (raw_fill(s, 1, e) < 0)
        return -1;
    if (s->in_at == s->in_n)
        return fail(e, ERR_DATA, "Z03", "compressed stream ends after %llu decoded bytes",
                    (unsigned long long)(s->offset + s->head_n - s->head_at));
    s->z.next_in = s->in + s->in_at;
    s->z.avail_in = (uInt)(s->in_n - s->in_at);
    s->z.next_out = out;
    s->z.avail_out = n > INT_MAX ? INT_MAX : (uInt)n;
    uInt room = s->z.avail_out;
    int code = inflate(&s->z, Z_NO_FLUSH);
    size_t used = (s->in_n - s->in_at) - s->z.avail_in;
    s->in_at += used;
    s->member_in += used;
    uInt made = room - s->z.avail_out;
    s->member_out += made;
    if (code == Z_MEM_ERROR)
        return fail(e, ERR_MEMORY, NULL, "out of memory for inflate");
    if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR)
        return inflate_refused(s, e);
    if (s->coding == SOURCE_GZIP && !s->member.done && s->member_in > GZIP_HEADER_MAX)
        return fail(e, ERR_DATA, "Z08", "gzip header longer than %d bytes", GZIP_HEADER_MAX);
    if (code == Z_STREAM_END && next_member(s, e) < 0)
        return -1;
    return made;
}

/* Decoded bytes from the inflater, fewer than n only at the end of the stream. */
static int64_t inflate_full(struct source *s, unsigned char *out, size_t n, struct error *e)
{
    size_t done = 0;
    while (done < n && !s->ended) {
        int64_t made = inflate_some(s, out + done, n - done, e);
        if (made < 0)
            return -1;
        done += (size_t)made;
    }
    return (int64_t)done;
}

/* ---- opening ------------------------------------------------------------------------------------ */

/* Compressors that users may expect to work, by their first bytes. */
static const char *other_compressor(const unsigned char *p, size_t n)
{
    if (n >= 3 && memcmp(p, "BZh", 3) == 0)
        return "bzip2";
    if (n >= 6 && memcmp(p,
                         "\xFD"
                         "7zXZ",
                         6) == 0)
        return "xz";
    if (n >= 4 && memcmp(p, "\x28\xB5\x2F\xFD", 4) == 0)
        return "zstd";
    if (n >= 4 && memcmp(p, "PK\x03\x04", 4) == 0)
        return "zip";
    return NULL;
}

static int detect_coding(struct source *s, struct error *e)
{
    if (raw_fill(s, 6, e) < 0)
        return -1;
    const unsigned char *p = s->in + s->in_at;
    size_t n = s->in_n - s->in_at;
    const char *other = other_compressor(p, n);
    if (other)
        return fail(e, ERR_DATA, "Z09", "%s compression is not supported, expected plain or gzip", other);
    if (n >= 2 && p[0] == 0x1F && p[1] == 0x8B)
        return coding_start(s, SOURCE_GZIP, e);
    return 0;
}

static struct source *source_new(const char *path, struct error *e)
{
    struct source *s = mem_alloc(e, 1, sizeof *s);
    if (!s)
        return NULL;
    s->fd = -1;
    s->path = mem_string(e, path);
    if (!s->path) {
        source_close(s);
        return NULL;
    }
    return s;
}

enum detection { DETECT_GZIP, DETECT_NOTHING };

/* The length is known: makes the buffer and looks at the first bytes. */
static int start(struct source *s, enum detection detect, struct error *e)
{
    s->in_room = s->raw_bytes < RAW_BUFFER ? (size_t)s->raw_bytes + 16 : RAW_BUFFER;
    s->in = mem_alloc(e, s->in_room, 1);
    if (!s->in)
        return -1;
    return detect == DETECT_GZIP ? detect_coding(s, e) : 0;
}

static int open_file(struct source **out, const char *path, enum detection detect, struct error *e)
{
    *out = NULL;
    struct source *s = source_new(path, e);
    if (!s)
        return -1;
    if (io_open_regular(&s->fd, &s->raw_bytes, path, e) < 0) {
        s->fd = -1;
        goto failed;
    }
    if (start(s, detect, e) < 0)
        goto failed;
    *out = s;
    return 0;
failed:
    source_close(s);
    return -1;
}

int source_open(struct source **out, const char *path, struct error *e)
{
    return open_file(out, path, DETECT_GZIP, e);
}

static int open_memory(struct source **out, const void *bytes, size_t n, enum detection detect,
                       struct error *e)
{
    *out = NULL;
    struct source *s = source_new("memory", e);
    if (!s)
        return -1;
    s->memory = bytes;
    s->raw_bytes = n;
    if (start(s, detect, e) < 0) {
        source_close(s);
        return -1;
    }
    *out = s;
    return 0;
}

int source_open_memory(struct source **out, const void *bytes, size_t n, struct error *e)
{
    return open_memory(out, bytes, n, DETECT_GZIP, e);
}

/* 1 if `path` really lies in the folder of `of`, as seen or with links resolved. */
static int lies_beside(const char *path, const char *of)
{
    char real[PATH_MAX], real_of[PATH_MAX], folder[PATH_MAX];
    char *seen = path_folder(NULL, of);
    int ok = 0;
    if (seen && realpath(path, real) && realpath(of, real_of) && realpath(seen, folder)) {
        *strrchr(real, '/') = '\0';
        *strrchr(real_of, '/') = '\0';
        ok = strcmp(real, *folder == '/' && !folder[1] ? "" : folder) == 0 || strcmp(real, real_of) == 0;
    }
    mem_free(seen);
    return ok;
}

int source_open_beside(struct source **out, struct source *of, const char *name, struct error *e)
{
    *out = NULL;
    if (!path_is_plain(name))
        return fail(e, ERR_DATA, "N36", "data file \"%s\" is not a plain name in the same folder", name);
    if (of->fd < 0)
        return open_memory(out, of->memory, (size_t)of->raw_bytes, DETECT_NOTHING, e);
    char *folder = path_folder(e, of->path);
    char *path = folder ? path_join(e, folder, name) : NULL;
    int result = -1;
    if (path && !io_exists(path))
        fail(e, ERR_DATA, "N36", "no such file, although the header names it");
    else if (path)
        result = open_file(out, path, DETECT_NOTHING, e);
    if (path && result == 0 && !lies_beside(path, of->path)) {
        source_close(*out);
        *out = NULL;
        result = fail(e, ERR_DATA, "N36", "link leads out of the folder");
    }
    if (path && result < 0)
        fail_in(e, name);
    mem_free(folder);
    mem_free(path);
    return result;
}

void source_close(struct source *s)
{
    if (!s)
        return;
    if (s->z_live)
        inflateEnd(&s->z);
    if (s->fd >= 0)
        io->close(s->fd);
    mem_free(s->head);
    mem_free(s->in);
    mem_free(s->path);
    mem_free(s);
}

const char *source_path(const struct source *s)
{
    return s->path;
}

int source_is_compressed(const struct source *s)
{
    return s->coding != SOURCE_PLAIN;
}

int source_decode(struct source *s, enum source_coding coding, struct error *e)
{
    if (s->coding != SOURCE_PLAIN)
        return fail(e, ERR_DATA, "Z09", "compressed data inside a compressed file are not supported");
    return coding == SOURCE_PLAIN ? 0 : coding_start(s, coding, e);
}

/* ---- reading ------------------------------------------------------------------------------------ */

int64_t source_peek(struct source *s, void *out, size_t n, struct error *e)
{
    CHECK(n <= HEAD_MAX && s->offset == 0);
    const unsigned char *from;
    size_t have;
    if (s->coding == SOURCE_PLAIN) {
        if (raw_fill(s, n, e) < 0)
            return -1;
        from = s->in + s->in_at;
        have = s->in_n - s->in_at;
    } else {
        if (!s->head) {
            s->head = mem_alloc(e, HEAD_MAX, 1);
            int64_t got = s->head ? inflate_full(s, s->head, HEAD_MAX, e) : -1;
            if (got < 0)
                return -1;
            s->head_n = (size_t)got;
        }
        from = s->head;
        have = s->head_n;
    }
    have = have < n ? have : n;
    memcpy(out, from, have);
    return (int64_t)have;
}

/* Takes what a buffer holds, at most n bytes. */
static size_t take(void *out, size_t n, const unsigned char *buffer, size_t *at, size_t end)
{
    size_t have = end - *at < n ? end - *at : n;
    if (have > 0)
        memcpy(out, buffer + *at, have);
    *at += have;
    return have;
}

int64_t source_read_some(struct source *s, void *out, size_t n, struct error *e)
{
    unsigned char *p = out;
    size_t done = s->coding == SOURCE_PLAIN ? take(p, n, s->in, &s->in_at, s->in_n)
                                            : take(p, n, s->head, &s->head_at, s->head_n);
    if (done < n) {
        int64_t got = s->coding != SOURCE_PLAIN ? inflate_full(s, p + done, n - done, e)
                                                : raw_get(s, p + done, n - done, e);
        if (got < 0)
            return -1;
        done += (size_t)got;
    }
    s->offset += done;
    return (int64_t)done;
}

int source_read(struct source *s, void *out, size_t n, struct error *e)
{
    int64_t got = source_read_some(s, out, n, e);
    if (got < 0)
        return -1;
    if ((size_t)got < n)
        return fail(e, ERR_DATA, s->coding == SOURCE_PLAIN ? "N11" : "Z03", "ends after %llu of %llu bytes",
                    (unsigned long long)s->offset, (unsigned long long)(s->offset - (uint64_t)got + n));
    return 0;
}

int source_skip(struct source *s, uint64_t n, struct error *e)
{
    unsigned char scrap[4096];
    while (n > 0) {
        size_t part = n < sizeof scrap ? (size_t)n : sizeof scrap;
        if (source_read(s, scrap, part, e) < 0)
            return -1;
        n -= part;
    }
    return 0;
}

uint64_t source_offset(const struct source *s)
{
    return s->offset;
}

int source_seek_from_end(struct source *s, uint64_t n, struct error *e)
{
    if (s->coding != SOURCE_PLAIN)
        return fail(e, ERR_DATA, "R10", "compressed data cannot be counted from their end");
    if (source_can_hold(s, n, "N11", e) < 0)
        return -1;
    return source_skip(s, raw_left(s) - n, e);
}

uint64_t source_left_at_most(const struct source *s)
{
    uint64_t left = raw_left(s);
    if (s->coding == SOURCE_PLAIN)
        return left;
    /* 64 kB more: what inflate may already have taken in but not given out */
    return (s->head_n - s->head_at) + (s->ended ? 0 : left * DEFLATE_MOST + RAW_BUFFER);
}

int source_can_hold(const struct source *s, uint64_t bytes, const char *id, struct error *e)
{
    uint64_t most = source_left_at_most(s);
    if (bytes <= most)
        return 0;
    if (s->coding == SOURCE_PLAIN)
        return fail(e, ERR_DATA, id, "needs %llu bytes at offset %llu, file has %llu there",
                    (unsigned long long)bytes, (unsigned long long)s->offset, (unsigned long long)most);
    return fail(e, ERR_DATA, "Z06", "claims %llu bytes, but %llu compressed bytes hold at most %llu",
                (unsigned long long)bytes, (unsigned long long)s->raw_bytes, (unsigned long long)most);
}

int64_t source_finish(struct source *s, struct error *e)
{
    if (s->coding == SOURCE_PLAIN)
        return (int64_t)raw_left(s);
    unsigned char one;
    return source_read_some(s, &one, 1, e);
}

int source_has_trailing_garbage(const struct source *s)
{
    return s->garbage;
}
