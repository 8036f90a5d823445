/* gzip.c - writing gzip: a small counterpart to source.c. No time and no name go into the header, so
 * equal voxels make equal files.
 */
#include <limits.h>
#include <zlib.h>

#include "base/io.h"

enum {
    GZIP_LEVEL = 2, /* scans: faster than level 3 and nearly as small */
    OUT_BYTES = 1 << 16
};

/* Runs deflate until the part is used up (or, with Z_FINISH, the stream is closed). */
static int deflate_part(z_stream *z, const void *bytes, size_t n, int flush, struct io_file *f,
                        struct error *e)
{
    unsigned char out[OUT_BYTES];
    const unsigned char *p = bytes;
    for (;;) {
        if (z->avail_in == 0 && n > 0) {
            size_t part = n < INT_MAX ? n : INT_MAX;
            z->next_in = (Bytef *)(uintptr_t)p; /* zlib reads only; its type lacks the const */
            z->avail_in = (uInt)part;
            p += part;
            n -= part;
        }
        z->next_out = out;
        z->avail_out = sizeof out;
        int code = deflate(z, n == 0 ? flush : Z_NO_FLUSH);
        CHECK(code != Z_STREAM_ERROR);
        if (io_append(f, out, sizeof out - z->avail_out, e) < 0)
            return -1;
        if (n == 0 && z->avail_in == 0 && (flush == Z_FINISH ? code == Z_STREAM_END : z->avail_out > 0))
            return 0;
    }
}

int io_append_gzip(struct io_file *f, const struct io_part *parts, int n_parts, struct error *e)
{
    z_stream z = {0};
    if (deflateInit2(&z, GZIP_LEVEL, Z_DEFLATED, 15 + 16, 9, Z_DEFAULT_STRATEGY) != Z_OK)
        return fail(e, ERR_MEMORY, NULL, "out of memory for deflate");
    int result = 0;
    for (int i = 0; i < n_parts && result == 0; i++)
        result = deflate_part(&z, parts[i].bytes, parts[i].n, i + 1 < n_parts ? Z_NO_FLUSH : Z_FINISH, f, e);
    deflateEnd(&z);
    return result;
}
