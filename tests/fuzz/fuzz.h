/* fuzz.h - what must hold for any bytes given to a reader of volumes.
 *
 * Reading never crashes and gives the same answer twice; a refusal is one printable line about the
 * data; what is accepted, written and read again is the same to the bit. All in memory. Every
 * target defines LLVMFuzzerTestOneInput; libFuzzer drives it in `make fuzz`, replay.c in `make
 * test`.
 */
#ifndef FALX_FUZZ_H
#define FALX_FUZZ_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "volume/nifti.h"
#include "volume/nrrd.h"

#define FUZZ_CHECK(cond) ((cond) ? (void)0 : (fprintf(stderr, "not true: %s\n", #cond), abort()))

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

/* Reads at most 64 Ki voxels; a copy of exactly n bytes lets the sanitizer see one byte too far. */
static inline int fuzz_read(struct volume *out, const uint8_t *bytes, size_t n, struct error *e)
{
    struct source *s;
    struct report report = {.line = NULL};
    struct volume_request r = {.limits = {1 << 16, 1 << 20}, .report = &report};
    uint8_t *copy = malloc(n ? n : 1);
    if (n)
        memcpy(copy, bytes, n);
    int result = source_open_memory(&s, copy, n, e);
    if (result == 0) {
        result = volume_read_source(out, s, &r, e);
        source_close(s);
    }
    free(copy);
    if (result == 0)
        return 0;
    FUZZ_CHECK(*e->text && *e->id && (e->code == ERR_DATA || e->code == ERR_MEMORY));
    for (const char *p = e->text; *p; p++)
        FUZZ_CHECK((unsigned char)*p >= 0x20 && *p != 0x7F);
    return -1;
}

static inline void fuzz_must_be_equal(const struct volume *a, const struct volume *b)
{
    FUZZ_CHECK(a->dtype == b->dtype && memcmp(a->dims, b->dims, sizeof a->dims) == 0);
    FUZZ_CHECK(a->n_dims == b->n_dims || b->n_dims == 3); /* NRRD is written with three at least */
    FUZZ_CHECK(a->slope == b->slope && a->inter == b->inter);
    FUZZ_CHECK(memcmp(a->geometry.affine, b->geometry.affine, sizeof a->geometry.affine) == 0);
    FUZZ_CHECK(a->geometry.known == b->geometry.known);
    FUZZ_CHECK(memcmp(a->data, b->data, volume_bytes(a)) == 0);
}

/* Through memory, as NIfTI if it came from there, else as NRRD. */
static inline void fuzz_must_survive_writing(const struct volume *v)
{
    struct error e;
    struct volume back;
    unsigned char nifti[NIFTI_HEADER_MAX];
    char *nrrd = NULL;
    size_t head, n = volume_bytes(v);
    if (strncmp(v->format, "NIfTI", 5) == 0) {
        head = nifti_header(nifti, v);
    } else {
        FUZZ_CHECK(nrrd_header(&nrrd, v, 0, &e) == 0);
        head = strlen(nrrd);
    }
    unsigned char *file = malloc(head + n);
    memcpy(file, nrrd ? (void *)nrrd : nifti, head);
    memcpy(file + head, v->data, n);
    FUZZ_CHECK(fuzz_read(&back, file, head + n, &e) == 0);
    fuzz_must_be_equal(v, &back);
    volume_free(&back);
    mem_free(nrrd);
    free(file);
}

static inline int fuzz_volume(const uint8_t *bytes, size_t n)
{
    struct volume v, again;
    struct error e, e_again;
    int result = fuzz_read(&v, bytes, n, &e);
    FUZZ_CHECK(fuzz_read(&again, bytes, n, &e_again) == result);
    if (result < 0) {
        FUZZ_CHECK(strcmp(e.text, e_again.text) == 0 && strcmp(e.id, e_again.id) == 0);
        return 0;
    }
    fuzz_must_be_equal(&v, &again);
    fuzz_must_survive_writing(&v);
    volume_free(&v);
    volume_free(&again);
    return 0;
}

#endif
