/* volume_fuzz.h - what must hold for any bytes given to a reader of volumes.
 *
 * Reading never crashes and gives the same answer twice; a refusal is one printable line about the
 * data; what is accepted, written as NRRD and read again is the same to the bit. All in memory.
 */
#ifndef FALX_VOLUME_FUZZ_H
#define FALX_VOLUME_FUZZ_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "volume/nrrd.h"
#include "volume/volume.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

#define MUST(cond)   \
    do {             \
        if (!(cond)) \
            abort(); \
    } while (0)

/* 0 read, -1 refused, 1 not a file of this format. */
static inline int fuzz_read(struct volume *v, const struct volume_format *format, const void *bytes,
                            size_t n, struct error *e)
{
    static const struct volume_request request = {.limits = {1 << 16, 1 << 20}};
    struct source *s;
    unsigned char head[512];
    memset(v, 0, sizeof *v);
    memset(e, 0, sizeof *e);
    if (source_open_memory(&s, bytes, n, e) < 0)
        return 1;
    int64_t got = source_peek(s, head, sizeof head, e);
    int result = 1;
    if (got >= 0 && format->recognise(head, (size_t)got))
        result = volume_read_source(v, s, &request, e);
    source_close(s);
    return result;
}

static inline size_t fuzz_bytes_of(const struct volume *v)
{
    return (size_t)(volume_voxels(v) * volume_channels(v)) * dtype_bytes(v->dtype);
}

static inline void fuzz_must_be_equal(const struct volume *a, const struct volume *b)
{
    MUST(a->dtype == b->dtype && memcmp(a->dims, b->dims, sizeof a->dims) == 0);
    MUST(memcmp(a->geometry.affine, b->geometry.affine, sizeof a->geometry.affine) == 0);
    MUST(a->geometry.known == b->geometry.known);
    MUST(memcmp(a->data, b->data, fuzz_bytes_of(a)) == 0);
}

static inline void fuzz_must_be_an_error(const struct error *e)
{
    MUST(e->code == ERR_DATA && *e->text && *e->id);
    for (const char *p = e->text; *p; p++)
        MUST((unsigned char)*p >= 0x20 && *p != 0x7F);
}

static inline void fuzz_must_survive_writing(const struct volume *v)
{
    struct error e;
    struct volume back;
    char *header;
    MUST(nrrd_header(&header, v, NRRD_RAW, &e) == 0);
    size_t head = strlen(header), n = fuzz_bytes_of(v);
    char *file = mem_alloc(&e, head + n, 1);
    MUST(file != NULL);
    memcpy(file, header, head);
    memcpy(file + head, v->data, n);
    MUST(fuzz_read(&back, &format_nrrd, file, head + n, &e) == 0);
    fuzz_must_be_equal(v, &back);
    volume_free(&back);
    mem_free(header);
    mem_free(file);
}

static inline int fuzz_volume(const struct volume_format *format, const uint8_t *bytes, size_t n)
{
    struct volume v, again;
    struct error e, e_again;
    int result = fuzz_read(&v, format, bytes, n, &e);
    if (result > 0)
        return 0;
    MUST(fuzz_read(&again, format, bytes, n, &e_again) == result);
    if (result < 0) {
        fuzz_must_be_an_error(&e);
        MUST(strcmp(e.text, e_again.text) == 0 && strcmp(e.id, e_again.id) == 0);
        return 0;
    }
    fuzz_must_be_equal(&v, &again);
    fuzz_must_survive_writing(&v);
    volume_free(&v);
    volume_free(&again);
    return 0;
}

#endif
