/* safetensors_read.c - a stranger's file in, proved tensors out. See safetensors.h for the promise.
 *
 *     8 bytes -> limits [S01] -> marks counted [S02] -> JSON -> tensors one by one [S03..S08]
 *             -> they tile the data without hole or overlap [S06] -> one block: data + strings
 *             -> checksum [K02] -> format [K04]
 *
 * Until the tiling is proved only the header is in memory; then a single block takes the data,
 * whose size is that of the file. Offsets are 64-bit integers from text to use; no double sees
 * them.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "base/json.h"
#include "net/safetensors_int.h"

#define FILE_MAX ((uint64_t)64 << 30) /* default; larger than any model this program can make */

/* Where bytes come from: a file or memory. */
struct input {
    int fd; /* -1: memory */
    const unsigned char *memory;
    uint64_t bytes, at; /* of the whole, and taken so far */
};

static int input_take(struct input *in, void *out, size_t n, struct error *e)
{
    if (in->fd < 0) {
        if (n > 0)
            memcpy(out, in->memory + in->at, n);
        in->at += n;
        return 0;
    }
    ssize_t got = io_read_full(in->fd, out, n);
    if (got < 0)
        return fail_errno(e, errno, "cannot read");
    in->at += (uint64_t)got;
    if ((size_t)got < n)
        return fail(e, ERR_DATA, "Z10", "file shrank while being read: %" PRIu64 " of %" PRIu64 " bytes",
                    in->at, in->bytes);
    return 0;
}

/* ---- files that must not be read ------------------------------------------------------------- */

static int refuse_pickle(struct error *e)
{
    return fail(e, ERR_DATA, "S11",
                "a pickle file: loading one can run any code, so it is not read; convert it in PyTorch "
                "with "
                "safetensors.torch.save_file(torch.load(FILE, weights_only=True), 'model.safetensors')");
}

static int has_pickle_name(const char *path)
{
    return text_ends_with_nocase(path, ".pt") || text_ends_with_nocase(path, ".pth") ||
           text_ends_with_nocase(path, ".ckpt") || text_ends_with_nocase(path, ".pkl");
}

/* In the place of the length: a zip archive (PyTorch since 1.6), or pickle protocol 2 to 5
 * (before). 0x80 0x02 is also how a sound file with 640 bytes of header begins, so this is asked of
 * unsound ones only. */
static int has_pickle_magic(const char head[8])
{
    return memcmp(head, "PK\x03\x04", 4) == 0 || (head[0] == '\x80' && head[1] >= 2 && head[1] <= 5);
}

/* ---- the header as text ---------------------------------------------------------------------- */

/* Counts what a JSON parser would spend time and memory on. */
static int check_marks(const char *text, size_t n, struct error *e)
{
    int64_t depth = 0, marks = 0, objects = 0, strings = 0;
    int in_string = 0;
    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        if (in_string) {
            strings++;
            i += c == '\\';
            in_string = c != '"';
            continue;
        }
        in_string = c == '"';
        marks += c == ',' || c == ':' || c == '[' || c == '{';
        objects += c == '{';
        depth += (c == '[' || c == '{') - (c == ']' || c == '}');
        if (depth > ST_DEPTH_MAX)
            return fail(e, ERR_DATA, "S02", "header nested deeper than %d", ST_DEPTH_MAX);
    }
    if (objects > ST_TENSORS_MAX + 2 || marks > ST_MARKS_MAX) /* + the file and its metadata */
        return fail(e, ERR_DATA, "S02",
                    "header of %" PRId64 " objects and %" PRId64 " marks, limits %d and %d", objects, marks,
                    ST_TENSORS_MAX + 2, ST_MARKS_MAX);
    if (strings > ST_METADATA_MAX + ST_STRINGS_MAX * objects)
        return fail(e, ERR_DATA, "S04", ST_METADATA_KEY " and names of %" PRId64 " bytes, limit %" PRId64,
                    strings, ST_METADATA_MAX + ST_STRINGS_MAX * objects);
    return 0;
}

/* The catalogue id behind what the JSON reader said: "no valid JSON, line L column C: WHY". */
static const char *json_fault(const char *text)
{
    const char *why = strstr(text, "column ");
    why = why ? strstr(why, ": ") : NULL;
    if (why && text_starts_with(why + 2, "duplicate object key"))
        return "S03";
    if (why && text_starts_with(why + 2, "too big"))
        return "S05"; /* an integer beyond 64 bits */
    return "S02";
}

static int parse_json(struct js **out, const char *header, size_t bytes, struct error *e)
{
    const char *text = header + 8;
    size_t n = bytes - 8;
    struct error why;
    *out = NULL;
    if (text[0] != '{')
        return has_pickle_magic(header) ? refuse_pickle(e)
                                        : fail(e, ERR_DATA, "S02",
                                               "header starts with byte 0x%02X, expected"
                                               " '{'",
                                               (unsigned char)text[0]);
    if (check_marks(text, n, e) < 0)
        return -1;
    if (js_parse(out, text, n, &why) < 0)
        return fail(e, why.code, json_fault(why.text), "%s", why.text);
    return 0;
}

/* ---- tensors and metadata -------------------------------------------------------------------- */

struct entry { /* a tensor before the data are there */
    struct st_tensor t;
    uint64_t begin;
};

static int read_shape(struct st_tensor *t, const struct js *shape, struct error *e)
{
    if (!js_is_array(shape) || js_count(shape) > ST_DIMS_MAX)
        return fail(e, ERR_DATA, "S05", "tensor %.60s: shape is not a list of at most %d integers", t->name,
                    ST_DIMS_MAX);
    t->n_dims = js_count(shape);
    for (int i = 0; i < t->n_dims; i++)
        if (js_int(&t->dims[i], js_at(shape, i)) < 0)
            return fail(e, ERR_DATA, "S05", "tensor %.60s: dimension %d is not an integer", t->name, i);
    return st_tensor_bytes(&t->bytes, t, e);
}

static int read_offsets(struct entry *n, const struct js *offsets, uint64_t data_bytes, struct error *e)
{
    int64_t begin, end;
    if (js_count(offsets) != 2 || js_int(&begin, js_at(offsets, 0)) < 0 ||
        js_int(&end, js_at(offsets, 1)) < 0)
        return fail(e, ERR_DATA, "S05", "tensor %.60s: data_offsets are not two integers", n->t.name);
    if (begin < 0 || end < begin || (uint64_t)end > data_bytes)
        return fail(e, ERR_DATA, "S06",
                    "tensor %.60s: data_offsets %" PRId64 " to %" PRId64 ", expected a"
                    " range within %" PRIu64 " bytes of data",
                    n->t.name, begin, end, data_bytes);
    if ((uint64_t)(end - begin) != n->t.bytes)
        return fail(e, ERR_DATA, "S06",
                    "tensor %.60s: data_offsets span %" PRId64 " bytes, its shape needs %zu", n->t.name,
                    end - begin, n->t.bytes);
    n->begin = (uint64_t)begin;
    return 0;
}

static int read_tensor(struct entry *n, const char *name, const struct js *v, uint64_t data_bytes,
                       struct error *e)
{
    n->t.name = (char *)(uintptr_t)name; /* of the document, until the strings are copied */
    if (st_check_name(name, e) < 0)
        return -1;
    const char *dtype = js_text(js_get(v, "dtype"));
    if (js_count(v) != 3 || !dtype || !js_get(v, "shape") || !js_get(v, "data_offsets"))
        return fail(e, ERR_DATA, "S02", "tensor %.60s: expected dtype, shape and data_offsets", name);
    if (st_dtype_find(&n->t.dtype, dtype) < 0)
        return fail(e, ERR_DATA, "S08", "tensor %.60s: type %.20s is not supported", name, dtype);
    if (read_shape(&n->t, js_get(v, "shape"), e) < 0)
        return -1;
    return read_offsets(n, js_get(v, "data_offsets"), data_bytes, e);
}

static int by_key(const void *a, const void *b)
{
    return strcmp(((const struct st_pair *)a)->key, ((const struct st_pair *)b)->key);
}

/* Keys and values stay in the document for now. */
static int read_metadata(struct st_file *out, const struct js *object, struct error *e)
{
    const char *key;
    const struct js *value;
    size_t bytes = 0;
    if (!js_is_object(object))
        return fail(e, ERR_DATA, "S04", ST_METADATA_KEY " is not an object");
    out->metadata = mem_alloc(e, (size_t)js_count(object), sizeof *out->metadata);
    if (!out->metadata)
        return -1;
    for (void *place = NULL; js_next(&place, &key, &value, object);) {
        const char *text = js_text(value);
        if (!text)
            return fail(e, ERR_DATA, "S04", ST_METADATA_KEY ": the value of \"%.60s\" is not a string", key);
        bytes += strlen(key) + strlen(text);
        out->metadata[out->n_metadata++] = (struct st_pair){(char *)(uintptr_t)key, (char *)(uintptr_t)text};
    }
    if (bytes > ST_METADATA_MAX)
        return fail(e, ERR_DATA, "S04", ST_METADATA_KEY " of %zu bytes, limit %d", bytes, ST_METADATA_MAX);
    qsort(out->metadata, (size_t)out->n_metadata, sizeof *out->metadata, by_key);
    return 0;
}

static int by_begin(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return strcmp(x->t.name, y->t.name);
}

/* Every byte belongs to exactly one tensor. */
static int check_tiling(struct entry *list, int n, uint64_t data_bytes, struct error *e)
{
    uint64_t at = 0;
    qsort(list, (size_t)n, sizeof *list, by_begin);
    for (int i = 0; i < n; at += list[i++].t.bytes)
        if (list[i].begin != at)
            return fail(e, ERR_DATA, "S06",
                        "tensor %.60s begins at byte %" PRIu64 " of the data, %s ends at"
                        " %" PRIu64 ": %s",
                        list[i].t.name, list[i].begin, i ? "the one before" : "the header", at,
                        list[i].begin < at ? "they overlap" : "a hole");
    if (at != data_bytes)
        return fail(e, ERR_DATA, "S06", "%" PRIu64 " bytes after the last tensor belong to none",
                    data_bytes - at);
    return 0;
}

static int read_entries(struct st_file *out, const struct js *root, uint64_t data_bytes, struct error *e)
{
    const char *key;
    const struct js *value;
    int result = -1;
    struct entry *list = mem_alloc(e, (size_t)js_count(root), sizeof *list);
    if (!list)
        return -1;
    int n = 0;
    for (void *place = NULL; js_next(&place, &key, &value, root);) {
        int bad = strcmp(key, ST_METADATA_KEY) == 0 ? read_metadata(out, value, e)
                                                    : read_tensor(&list[n++], key, value, data_bytes, e);
        if (bad < 0)
            goto out;
    }
    if (check_tiling(list, n, data_bytes, e) < 0)
        goto out;
    out->tensors = mem_alloc(e, (size_t)n, sizeof *out->tensors);
    if (!out->tensors)
        goto out;
    for (; out->n_tensors < n; out->n_tensors++)
        out->tensors[out->n_tensors] = list[out->n_tensors].t;
    result = 0;
out:
    mem_free(list);
    return result;
}

/* ---- the block ------------------------------------------------------------------------------- */

static char *moved(char **to, const char *text)
{
    size_t n = strlen(text) + 1;
    char *at = memcpy(*to, text, n);
    *to += n;
    return at;
}

/* Allocates data + strings, reads the one and moves the others out of the document. */
static int fill_block(struct st_file *f, struct input *in, struct error *e)
{
    size_t data = (size_t)(in->bytes - in->at), strings = 0;
    for (int i = 0; i < f->n_tensors; i++)
        strings += strlen(f->tensors[i].name) + 1;
    for (int i = 0; i < f->n_metadata; i++)
        strings += strlen(f->metadata[i].key) + strlen(f->metadata[i].value) + 2;
    char *block = mem_alloc(e, data + strings, 1), *to = block + data;
    if (!block)
        return -1;
    f->owned = block;
    for (int i = 0; i < f->n_tensors; block += f->tensors[i++].bytes) {
        f->tensors[i].data = block;
        f->tensors[i].name = moved(&to, f->tensors[i].name);
    }
    for (int i = 0; i < f->n_metadata; i++) {
        f->metadata[i].key = moved(&to, f->metadata[i].key);
        f->metadata[i].value = moved(&to, f->metadata[i].value);
    }
    return input_take(in, f->owned, data, e);
}

/* ---- what falx says of its own files --------------------------------------------------------- */

static int is_digits(const char *text)
{
    return strlen(text) == 16 && strspn(text, "0123456789abcdef") == 16;
}

/* Checks the checksum and takes it out of the metadata. */
static int check_checksum(struct st_file *f, char *header, size_t bytes, int required, struct error *e)
{
    const char *digits = st_metadata(f, ST_CHECKSUM_KEY);
    if (!digits) {
        for (int i = 0; i < f->n_metadata; i++)
            required |= text_starts_with(f->metadata[i].key, ST_OWN_PREFIX);
        return required ? fail(e, ERR_BUSY, "K02", "damaged: its metadata lack " ST_CHECKSUM_KEY) : 0;
    }
    char *at = is_digits(digits) ? st_checksum_digits(header, bytes, digits) : NULL;
    if (!at)
        return fail(e, ERR_BUSY, "K02", "damaged: " ST_CHECKSUM_KEY " is \"%.40s\"", digits);
    memcpy(at, ST_CHECKSUM_BLANK, 16);
    uint64_t sum = st_checksum(header, bytes, f), stored = strtoull(digits, NULL, 16);
    if (sum != stored)
        return fail(e, ERR_BUSY, "K02", "damaged: checksum %016" PRIx64 ", its bytes give %016" PRIx64,
                    stored, sum);
    int i = 0;
    while (f->metadata[i].value != digits)
        i++;
    f->n_metadata--;
    memmove(f->metadata + i, f->metadata + i + 1, (size_t)(f->n_metadata - i) * sizeof *f->metadata);
    return 0;
}

static int check_format(const struct st_file *f, struct error *e)
{
    const char *text = st_metadata(f, "falx.format");
    int64_t format;
    if (!text)
        return 0;
    if (parse_int(&format, text) < 0 || format < 1)
        return fail(e, ERR_BUSY, "K04", "falx.format is \"%.20s\", expected 1 to %d", text, ST_FORMAT);
    if (format > ST_FORMAT)
        return fail(e, ERR_BUSY, "K04",
                    "format %" PRId64 ", written by a newer falx; this one reads up to %d", format,
                    ST_FORMAT);
    return 0;
}

/* ---- all together ---------------------------------------------------------------------------- */

/* The length and the JSON after it, in one block: *bytes in all. */
static int read_header(char **out, size_t *bytes, struct input *in, const struct st_limits *l,
                       struct error *e)
{
    uint64_t n, limit = l && l->bytes ? l->bytes : FILE_MAX;
    char head[8];
    if (in->bytes < 8 || in->bytes > limit)
        return fail(e, ERR_DATA, "S01", "file of %" PRIu64 " bytes, expected 8 to %" PRIu64, in->bytes,
                    limit);
    if (input_take(in, head, 8, e) < 0)
        return -1;
    memcpy(&n, head, 8);
    uint64_t most = in->bytes - 8 < ST_HEADER_MAX ? in->bytes - 8 : ST_HEADER_MAX;
    if (n == 0 || n > most)
        return has_pickle_magic(head)
                   ? refuse_pickle(e)
                   : fail(e, ERR_DATA, "S01", "header of %" PRIu64 " bytes, expected 1 to %" PRIu64, n, most);
    *bytes = 8 + (size_t)n;
    *out = mem_alloc(e, *bytes, 1);
    if (!*out)
        return -1;
    memcpy(*out, head, 8);
    return input_take(in, *out + 8, (size_t)n, e);
}

static int read_input(struct st_file *out, struct input *in, const struct st_limits *l, struct error *e)
{
    size_t bytes = 0;
    char *header = NULL;
    struct js *root = NULL;
    int result = -1;
    memset(out, 0, sizeof *out);
    if (read_header(&header, &bytes, in, l, e) < 0 || parse_json(&root, header, bytes, e) < 0 ||
        read_entries(out, root, in->bytes - in->at, e) < 0 || fill_block(out, in, e) < 0 ||
        check_checksum(out, header, bytes, l && l->require_checksum, e) < 0 || check_format(out, e) < 0)
        goto out;
    result = 0;
out:
    js_free(root);
    mem_free(header);
    if (result < 0)
        st_free(out);
    return result;
}

int st_parse(struct st_file *out, const void *bytes, size_t n, const struct st_limits *l, struct error *e)
{
    struct input in = {.fd = -1, .memory = bytes, .bytes = n};
    return read_input(out, &in, l, e);
}

int st_read(struct st_file *out, const char *path, const struct st_limits *l, struct error *e)
{
    struct input in = {.at = 0};
    memset(out, 0, sizeof *out);
    if (io_open_regular(&in.fd, &in.bytes, path, e) < 0)
        return fail_in(e, path);
    int result = has_pickle_name(path) ? refuse_pickle(e) : read_input(out, &in, l, e);
    io->close(in.fd);
    return result < 0 ? fail_in(e, path) : 0;
}
