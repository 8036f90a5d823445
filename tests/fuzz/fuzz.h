/* fuzz.h - what the volume fuzzers share: bounded reading from memory, and equality to the bit.
 *
 * Every target defines LLVMFuzzerTestOneInput; libFuzzer drives it in `make fuzz`, replay.c in `make test`.
 */
#ifndef FALX_FUZZ_H
#define FALX_FUZZ_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/source.h"
#include "volume/volume.h"

#define FUZZ_CHECK(cond) ((cond) ? (void)0 : (fprintf(stderr, "not true: %s\n", #cond), abort()))

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* Reads at most 64 Ki voxels; a copy of exactly n bytes lets the sanitizer see one byte too far. */
static inline int fuzz_read(struct volume *out, const uint8_t *data, size_t n)
{
    struct source *s;
    struct error e;
    struct report report = {NULL, 0, 0};
    struct volume_request r = {.limits = {1 << 16, 1 << 20}, .report = &report};
    uint8_t *copy = malloc(n ? n : 1);
    if (n)
        memcpy(copy, data, n);
    int result = source_open_memory(&s, copy, n, &e);
    if (result == 0) {
        result = volume_read_source(out, s, &r, &e);
        source_close(s);
    }
    free(copy);
    if (result < 0)
        FUZZ_CHECK(e.text[0] && (e.code == ERR_DATA || e.code == ERR_MEMORY) && !strchr(e.text, '\n'));
    return result;
}

static inline size_t fuzz_bytes(const struct volume *v)
{
    return (size_t)(volume_voxels(v) * volume_channels(v)) * dtype_bytes(v->dtype);
}

static inline int fuzz_same(const struct volume *a, const struct volume *b)
{
    return a->dtype == b->dtype && a->n_dims == b->n_dims && a->slope == b->slope &&
           a->inter == b->inter && memcmp(a->dims, b->dims, sizeof a->dims) == 0 &&
           memcmp(a->geometry.affine, b->geometry.affine, sizeof a->geometry.affine) == 0 &&
           memcmp(a->data, b->data, fuzz_bytes(a)) == 0;
}

#endif
