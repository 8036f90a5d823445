/* safetensors.c - building and writing; reading is in safetensors_read.c.
 *
 *     offset 0         8               8 + n (a multiple of 64)
 *            | n (LE) | JSON, blanks  | data of tensor 0 | tensor 1 | ...
 *
 *     JSON: { "__metadata__": { "falx.checksum": "<16 hex digits>", ... },
 *             "name": { "dtype": "F32", "shape": [16, 1, 3, 3, 3], "data_offsets": [0, 1728] } }
 *
 * Wide elements come first, so that every tensor is aligned to its element without holes.
 *
 * The checksum is one chain: the bytes before the data with the 16 digits as '0', then tensor after
 * tensor. Every link is a bijection of the words hashed so far (hash_bytes), so that files which
 * differ in one word of 8 bytes never share a checksum.
 */
#include "net/safetensors.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "base/json_write.h"
#include "net/safetensors_int.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tensors are stored as they lie in memory");

static const struct {
    const char *name;
    size_t bytes;
} dtypes[] = {
    [ST_F32] = {"F32", 4},   [ST_F64] = {"F64", 8}, [ST_F16] = {"F16", 2},
    [ST_BF16] = {"BF16", 2}, [ST_I64] = {"I64", 8}, [ST_I32] = {"I32", 4},
    [ST_U64] = {"U64", 8},   [ST_U8] = {"U8", 1},   [ST_BOOL] = {"BOOL", 1},
};
enum { N_DTYPES = sizeof dtypes / sizeof dtypes[0] };

const char *st_dtype_name(enum st_dtype t)
{
    return dtypes[t].name;
}

int st_dtype_find(enum st_dtype *out, const char *name)
{
    for (int i = 0; i < N_DTYPES; i++)
        if (strcmp(name, dtypes[i].name) == 0) {
            *out = (enum st_dtype)i;
            return 0;
        }
    return -1;
}

/* ---- checks that hold for both directions ---------------------------------------------------- */

int st_check_name(const char *name, struct error *e)
{
    const char *p = name;
    while (*p >= 0x20 && *p < 0x7F)
        p++;
    if (*p || p == name)
        return fail(e, ERR_DATA, "S03", "tensor name \"%.60s\" is not printable ASCII", name);
    return 0;
}

int st_tensor_bytes(size_t *out, const struct st_tensor *t, struct error *e)
{
    size_t bytes = dtypes[t->dtype].bytes;
    for (int i = 0; i < t->n_dims; i++) {
        if (t->dims[i] < 0)
            return fail(e, ERR_DATA, "S05", "tensor %.60s: dimension %" PRId64 ", expected 0 or more",
                        t->name, t->dims[i]);
        if (size_mul(&bytes, bytes, (size_t)t->dims[i]) < 0)
            return fail(e, ERR_DATA, "S05", "tensor %.60s: its size overflows 64 bits", t->name);
    }
    if (bytes == 0)
        return fail(e, ERR_DATA, "S07", "tensor %.60s has no elements, expected at least one", t->name);
    *out = bytes;
    return 0;
}

/* ---- building -------------------------------------------------------------------------------- */

/* Room for one more in an array that grows when its count is a power of two. */
static void *grown(void *list, int n, size_t each, struct error *e)
{
    if (n & (n - 1))
        return list;
    return mem_resize(e, list, n ? 2 * (size_t)n : 1, each);
}

int st_add(struct st_file *f, const char *name, enum st_dtype dtype, const int64_t *dims, int n_dims,
           const void *data, struct error *e)
{
    struct st_tensor t = {.name = (char *)(uintptr_t)name, .dtype = dtype, .n_dims = n_dims, .data = data};
    if (n_dims < 0 || n_dims > ST_DIMS_MAX)
        return fail(e, ERR_DATA, "S05", "tensor %.60s: %d dimensions, limit %d", name, n_dims, ST_DIMS_MAX);
    for (int i = 0; i < n_dims; i++)
        t.dims[i] = dims[i];
    if (st_check_name(name, e) < 0 || st_tensor_bytes(&t.bytes, &t, e) < 0)
        return -1;
    if (strcmp(name, ST_METADATA_KEY) == 0 || st_find(f, name))
        return fail(e, ERR_DATA, "S03", "tensor name %.60s is taken", name);
    if (f->n_tensors == ST_TENSORS_MAX)
        return fail(e, ERR_DATA, "S01", "more than %d tensors", ST_TENSORS_MAX);
    struct st_tensor *list = grown(f->tensors, f->n_tensors, sizeof *list, e);
    if (!list)
        return -1;
    f->tensors = list;
    int at = f->n_tensors++;
    for (; at > 0 && dtypes[list[at - 1].dtype].bytes < dtypes[dtype].bytes; at--)
        list[at] = list[at - 1];
    list[at] = t;
    return 0;
}

int st_set(struct st_file *f, const char *key, const char *value, struct error *e)
{
    char *k = (char *)(uintptr_t)key, *v = (char *)(uintptr_t)value;
    int at = 0;
    while (at < f->n_metadata && strcmp(f->metadata[at].key, key) < 0)
        at++;
    if (at < f->n_metadata && strcmp(f->metadata[at].key, key) == 0) {
        f->metadata[at].value = v;
        return 0;
    }
    struct st_pair *list = grown(f->metadata, f->n_metadata, sizeof *list, e);
    if (!list)
        return -1;
    f->metadata = list;
    memmove(list + at + 1, list + at, (size_t)(f->n_metadata - at) * sizeof *list);
    list[at] = (struct st_pair){k, v};
    f->n_metadata++;
    return 0;
}

void st_free(struct st_file *f)
{
    mem_free(f->tensors);
    mem_free(f->metadata);
    mem_free(f->owned);
    memset(f, 0, sizeof *f);
}

const struct st_tensor *st_find(const struct st_file *f, const char *name)
{
    for (int i = 0; i < f->n_tensors; i++)
        if (strcmp(f->tensors[i].name, name) == 0)
            return &f->tensors[i];
    return NULL;
}

const char *st_metadata(const struct st_file *f, const char *key)
{
    for (int i = 0; i < f->n_metadata; i++)
        if (strcmp(f->metadata[i].key, key) == 0)
            return f->metadata[i].value;
    return NULL;
}

/* ---- writing --------------------------------------------------------------------------------- */

static void put_metadata(struct js_out *o, const struct st_file *f)
{
    js_out_open(o, ST_METADATA_KEY, '{');
    js_out_text(o, ST_CHECKSUM_KEY, ST_CHECKSUM_BLANK);
    for (int i = 0; i < f->n_metadata; i++)
        if (strcmp(f->metadata[i].key, ST_CHECKSUM_KEY) != 0)
            js_out_text(o, f->metadata[i].key, f->metadata[i].value);
    js_out_close(o, '}');
}

static int header_json(char **out, const struct st_file *f, struct error *e)
{
    struct js_out o = {0};
    int64_t offsets[2] = {0, 0};
    js_out_open(&o, NULL, '{');
    put_metadata(&o, f);
    for (int i = 0; i < f->n_tensors; i++) {
        const struct st_tensor *t = &f->tensors[i];
        offsets[0] = offsets[1];
        offsets[1] += (int64_t)t->bytes;
        js_out_open(&o, t->name, '{');
        js_out_text(&o, "dtype", dtypes[t->dtype].name);
        js_out_ints(&o, "shape", t->dims, t->n_dims);
        js_out_ints(&o, "data_offsets", offsets, 2);
        js_out_close(&o, '}');
    }
    js_out_close(&o, '}');
    return js_out_take(out, &o, e);
}

uint64_t st_checksum(const void *header, size_t bytes, const struct st_file *f)
{
    uint64_t h = hash_bytes(header, bytes, 0);
    for (int i = 0; i < f->n_tensors; i++)
        h = hash_bytes(f->tensors[i].data, f->tensors[i].bytes, h);
    return h;
}

int st_header(char **out, size_t *bytes, const struct st_file *f, struct error *e)
{
    char *json, *header = NULL;
    *out = NULL;
    if (header_json(&json, f, e) < 0)
        return -1;
    size_t used = strlen(json), total = (8 + used + 63) / 64 * 64;
    if (used > ST_HEADER_MAX - 64)
        fail(e, ERR_DATA, "S01", "header of %zu bytes, limit %d", used, ST_HEADER_MAX);
    else
        header = mem_alloc(e, total, 1);
    if (header) {
        uint64_t n = total - 8;
        char digits[17];
        memcpy(header, &n, 8);
        memcpy(header + 8, json, used);
        memset(header + 8 + used, ' ', total - 8 - used);
        char *at = st_checksum_digits(header, total, ST_CHECKSUM_BLANK);
        CHECK(at);
        snprintf(digits, sizeof digits, "%016" PRIx64, st_checksum(header, total, f));
        memcpy(at, digits, 16);
    }
    mem_free(json);
    *out = header;
    *bytes = total;
    return header ? 0 : -1;
}

char *st_checksum_digits(char *header, size_t bytes, const char *digits)
{
    char wanted[64];
    int n = snprintf(wanted, sizeof wanted, "\"%s\": \"%.16s\"", ST_CHECKSUM_KEY, digits);
    char *at = memmem(header, bytes, wanted, (size_t)n);
    return at ? at + n - 17 : NULL;
}

int st_write(const char *path, const struct st_file *f, struct error *e)
{
    char *header;
    size_t bytes;
    struct io_file *file = NULL;
    int result = -1;
    if (st_header(&header, &bytes, f, e) < 0)
        return fail_in(e, path);
    if (io_create(&file, path, 0666, e) < 0 || io_append(file, header, bytes, e) < 0)
        goto out;
    for (int i = 0; i < f->n_tensors; i++)
        if (io_append(file, f->tensors[i].data, f->tensors[i].bytes, e) < 0)
            goto out;
    result = io_commit(file, e);
    file = NULL;
out:
    io_abandon(file);
    mem_free(header);
    return result;
}
