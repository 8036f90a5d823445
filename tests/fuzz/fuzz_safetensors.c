/* fuzz_safetensors.c - any bytes as safetensors.
 *
 * Reading never crashes and gives the same answer twice; a refusal is one printable line with a
 * catalogue id; tensors lie inside the data and tile it; what is accepted, written and read again
 * is the same, now with a checksum; and then any one flipped bit is found.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "net/safetensors.h"

#define FUZZ_CHECK(cond) ((cond) ? (void)0 : (fprintf(stderr, "not true: %s\n", #cond), abort()))

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

/* A copy of exactly n bytes lets the sanitizer see one byte too far. */
static int read_copy(struct st_file *out, const uint8_t *bytes, size_t n, int strict, struct error *e)
{
    const struct st_limits l = {.bytes = 1 << 20, .require_checksum = strict};
    uint8_t *copy = malloc(n ? n : 1);
    if (n)
        memcpy(copy, bytes, n);
    int result = st_parse(out, copy, n, &l, e);
    free(copy);
    if (result == 0)
        return 0;
    FUZZ_CHECK(*e->text && *e->id && (e->code == ERR_DATA || e->code == ERR_BUSY));
    FUZZ_CHECK(!out->tensors && !out->metadata && !out->owned);
    for (const char *p = e->text; *p; p++)
        FUZZ_CHECK((unsigned char)*p >= 0x20 && *p != 0x7F);
    return -1;
}

static void must_be_equal(const struct st_file *a, const struct st_file *b)
{
    FUZZ_CHECK(a->n_tensors == b->n_tensors && a->n_metadata == b->n_metadata);
    for (int i = 0; i < a->n_tensors; i++) {
        const struct st_tensor *x = &a->tensors[i], *y = &b->tensors[i];
        FUZZ_CHECK(strcmp(x->name, y->name) == 0 && x->dtype == y->dtype && x->n_dims == y->n_dims);
        FUZZ_CHECK(memcmp(x->dims, y->dims, sizeof x->dims) == 0 && x->bytes == y->bytes);
        FUZZ_CHECK(memcmp(x->data, y->data, x->bytes) == 0);
        FUZZ_CHECK(st_find(a, x->name) == x);
    }
    for (int i = 0; i < a->n_metadata; i++) {
        FUZZ_CHECK(strcmp(a->metadata[i].key, b->metadata[i].key) == 0);
        FUZZ_CHECK(strcmp(a->metadata[i].value, b->metadata[i].value) == 0);
    }
}

static void must_tile(const struct st_file *f)
{
    const char *at = f->owned;
    for (int i = 0; i < f->n_tensors; i++) {
        FUZZ_CHECK(f->tensors[i].data == at);
        at += f->tensors[i].bytes;
    }
}

static void must_survive_writing(const struct st_file *f, size_t any)
{
    struct st_file back;
    struct error e;
    char *header;
    size_t head, total;
    FUZZ_CHECK(st_header(&header, &head, f, &e) == 0 && head % 64 == 0);
    total = head;
    for (int i = 0; i < f->n_tensors; i++)
        total += f->tensors[i].bytes;
    uint8_t *file = malloc(total), *to = file + head;
    memcpy(file, header, head);
    for (int i = 0; i < f->n_tensors; to += f->tensors[i++].bytes)
        memcpy(to, f->tensors[i].data, f->tensors[i].bytes);
    int result = read_copy(&back, file, total, 1, &e);
    FUZZ_CHECK(result == 0 || total > 1 << 20);
    if (result == 0) {
        must_be_equal(f, &back);
        st_free(&back);
    }
    any = any * 2654435761u % (8 * total);
    file[any / 8] ^= (uint8_t)(1u << any % 8);
    FUZZ_CHECK(read_copy(&back, file, total, 1, &e) < 0);
    free(file);
    mem_free(header);
}

static void try_bytes(const uint8_t *bytes, size_t n)
{
    struct st_file f, again;
    struct error e, e_again;
    int result = read_copy(&f, bytes, n, 0, &e);
    FUZZ_CHECK(read_copy(&again, bytes, n, 0, &e_again) == result);
    if (result < 0) {
        FUZZ_CHECK(strcmp(e.text, e_again.text) == 0 && strcmp(e.id, e_again.id) == 0);
        return;
    }
    must_be_equal(&f, &again);
    must_tile(&f);
    must_survive_writing(&f, n);
    st_free(&f);
    st_free(&again);
}

/* As given, and once more with a length that fits: the header ends with the last brace. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    try_bytes(bytes, n);
    const uint8_t *end = n > 8 ? memrchr(bytes + 8, '}', n - 8) : NULL;
    if (!end)
        return 0;
    uint64_t length = (uint64_t)(end + 1 - (bytes + 8));
    uint8_t *fixed = malloc(n);
    memcpy(fixed, bytes, n);
    memcpy(fixed, &length, 8);
    try_bytes(fixed, n);
    free(fixed);
    return 0;
}
