/* fuzz_gzip.c - any bytes as a compressed stream, in three ways: as they are, as the content of a
 * sound gzip file (so that the reader behind the checksum is reached), and as gzip with a broken
 * tail.
 */
#include <zlib.h>

#include "fuzz.h"

static void drain(const uint8_t *bytes, size_t n)
{
    struct source *s;
    struct error e;
    unsigned char out[777];
    if (source_open_memory(&s, bytes, n, &e) < 0)
        return;
    uint64_t most = source_left_at_most(s), total = 0;
    int64_t got = source_peek(s, out, 64, &e);
    while (got > 0 && total < (1 << 20)) {
        got = source_read_some(s, out, sizeof out, &e);
        total += got > 0 ? (uint64_t)got : 0;
    }
    FUZZ_CHECK(total <= most && source_offset(s) == total);
    source_close(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    drain(data, n);
    if (n == 0)
        return 0;
    struct volume v;
    struct error e;
    z_stream z = {0};
    uLong bound = compressBound((uLong)n) + 64;
    unsigned char *packed = malloc(bound);
    FUZZ_CHECK(deflateInit2(&z, 1, Z_DEFLATED, 16 + 9, 1, Z_DEFAULT_STRATEGY) == Z_OK);
    z.next_in = (Bytef *)(uintptr_t)data;
    z.avail_in = (uInt)n;
    z.next_out = packed;
    z.avail_out = (uInt)bound;
    FUZZ_CHECK(deflate(&z, Z_FINISH) == Z_STREAM_END);
    size_t length = bound - z.avail_out;
    deflateEnd(&z);
    if (fuzz_read(&v, packed, length, &e) == 0)
        volume_free(&v);
    drain(packed, length - data[0] % length);
    free(packed);
    return 0;
}
