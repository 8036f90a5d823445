/* Safetensors: written and read back, every kind of bad header refused, every flipped bit found. */
#include "test.h"

#include <errno.h>

#include "net/safetensors.h"

/* ---- hand-made files: what another writer would produce -------------------------------------- */

static unsigned char made[1 << 16];

/* Length, JSON as given, data 0, 1, 2, ... */
static size_t make(const char *json, size_t data)
{
    uint64_t n = strlen(json);
    memcpy(made, &n, 8);
    memcpy(made + 8, json, n);
    for (size_t i = 0; i < data; i++)
        made[8 + n + i] = (unsigned char)i;
    return 8 + n + data;
}

/* From a copy of exactly n bytes, so that the sanitizer sees one byte too far. */
static int parse(struct st_file *out, size_t n, const struct st_limits *l, struct error *e)
{
    unsigned char *copy = malloc(n ? n : 1);
    memcpy(copy, made, n);
    int result = st_parse(out, copy, n, l, e);
    free(copy);
    return result;
}

static void refuse(const char *json, size_t data, const char *id, const char *fact)
{
    struct st_file f;
    struct error e;
    static const struct st_file nothing;
    assert_refused(parse(&f, make(json, data), NULL, &e), e, ERR_DATA, id, fact);
    assert_memory_equal(&f, &nothing, sizeof f);
}

static void files_of_others_are_read(void **state)
{
    (void)state;
    struct st_file f;
    struct error e;
    size_t n = make("{\"b\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[4,12]},"
                    "\"__metadata__\":{\"format\":\"pt\",\"a\":\"\\u00e9\"},"
                    "\"a\":{\"shape\":[4],\"data_offsets\":[0,4],\"dtype\":\"U8\"},"
                    "\"s\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[12,20]}}  \n",
                    20);
    assert_ok(parse(&f, n, NULL, &e), e);
    assert_int_equal(f.n_tensors, 3);
    assert_string_equal(f.tensors[0].name, "a"); /* in the order of the data */
    assert_string_equal(f.tensors[1].name, "b");
    const struct st_tensor *b = st_find(&f, "b"), *s = st_find(&f, "s");
    assert_true(b->dtype == ST_F32 && b->n_dims == 2 && b->dims[0] == 2 && b->dims[1] == 1 && b->bytes == 8);
    assert_memory_equal(b->data, "\4\5\6\7\10\11\12\13", 8);
    assert_true(s->n_dims == 0 && s->bytes == 8);
    assert_int_equal(f.n_metadata, 2);
    assert_string_equal(f.metadata[0].key, "a"); /* sorted by key */
    assert_string_equal(st_metadata(&f, "a"), "\xC3\xA9");
    assert_string_equal(st_metadata(&f, "format"), "pt");
    assert_null(st_metadata(&f, "b"));
    assert_null(st_find(&f, "c"));
    st_free(&f);
    assert_ok(parse(&f, make("{}", 0), NULL, &e), e);
    assert_int_equal(f.n_tensors, 0);
    st_free(&f);
}

static void lengths_are_checked(void **state)
{
    (void)state;
    static const uint64_t lies[] = {0, 3, 4, 100000000, (uint64_t)1 << 32, UINT64_MAX, UINT64_MAX - 7};
    struct st_file f;
    struct error e;
    for (size_t n = 0; n < 8; n++)
        assert_refused(parse(&f, n, NULL, &e), e, ERR_DATA, "S01");
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        size_t n = make("{}", 0);
        memcpy(made, &lies[i], 8);
        assert_refused(parse(&f, n, NULL, &e), e, ERR_DATA, "S01");
    }
    size_t n = make("{}", 0);
    assert_refused(parse(&f, n, &(struct st_limits){.bytes = n - 1}, &e), e, ERR_DATA, "S01");
    assert_ok(parse(&f, n, &(struct st_limits){.bytes = n}, &e), e);
    st_free(&f);
}

static void bad_json_is_refused(void **state)
{
    (void)state;
    refuse(" {}", 0, "S02", "0x20");
    refuse("[]", 0, "S02", "0x5B");
    refuse("{", 0, "S02", "JSON");
    refuse("{}x", 0, "S02", "JSON");
    refuse("{\"a\xFF\":{}}", 0, "S02", "JSON");
    refuse("{\"a\":NaN}", 0, "S02", "JSON");
    refuse("{\"a\":Infinity}", 0, "S02", "JSON");
    refuse("{\"a\":1e999}", 0, "S02", "JSON");
    refuse("{\"a\\u0000b\":{}}", 0, "S02", "JSON");
    refuse("{\"a\":[[[1]]]}", 0, "S02", "3");
    refuse("{\"a\":1}", 0, "S02", "dtype");
    refuse("{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, "S02", "dtype");
    refuse("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"x\":1}}", 1, "S02", "dtype");
    refuse("{\"a\":{\"dtype\":1,\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "S02", "dtype");
    static char deep[20001];
    memset(deep, '[', 20000);
    memcpy(deep, "{\"a\":", 5);
    refuse(deep, 0, "S02", "3");
    static char wide[60000] = "{\"a\":\"";
    size_t n = strlen(wide);
    memset(wide + n, '{', 50000); /* brackets in a string do not count */
    strcpy(wide + n + 50000, "\"}");
    refuse(wide, 0, "S02", "dtype");
}

static void bad_names_are_refused(void **state)
{
    (void)state;
    refuse("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
           "\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
           2, "S03", "duplicate");
    refuse("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
           "\"\\u0061\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
           2, "S03", "duplicate");
    refuse("{\"\\u00e9\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
           "\"e\\u0301\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
           2, "S03", "ASCII");
    refuse("{\"\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "S03", "ASCII");
    refuse("{\"a\\n\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "S03", "ASCII");
    /* the words of the parser inside the file do not choose the id */
    refuse("{\"a\":\"duplicate object key\" x}", 0, "S02", "JSON");
}

static void bad_metadata_are_refused(void **state)
{
    (void)state;
    refuse("{\"__metadata__\":{\"a\":1}}", 0, "S04", "string");
    refuse("{\"__metadata__\":{\"a\":null}}", 0, "S04", "string");
    refuse("{\"__metadata__\":{\"a\":{}}}", 0, "S04", "string");
    refuse("{\"__metadata__\":[]}", 0, "S04", "object");
    enum { BIG = 2 << 20 };
    static unsigned char big[8 + BIG];
    struct st_file f;
    struct error e;
    uint64_t n = BIG;
    memset(big, 'x', sizeof big);
    memcpy(big, &n, 8);
    memcpy(big + 8, "{\"__metadata__\":{\"a\":\"", 22);
    memcpy(big + 8 + BIG - 3, "\"}}", 3);
    assert_refused(st_parse(&f, big, sizeof big, NULL, &e), e, ERR_DATA, "S04");
}

static void bad_shapes_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *shape, *offsets, *reason;
    } bad[] = {
        {"[4294967296,4294967296]", "[0,1]", ""},
        {"[9223372036854775807,2,2]", "[0,1]", ""},
        {"[9223372036854775808]", "[0,1]", "integer"},
        {"[-1]", "[0,1]", "dimension -1"},
        {"[-9223372036854775809]", "[0,1]", "integer"},
        {"[1.0]", "[0,1]", "integer"},
        {"[1e0]", "[0,1]", "integer"},
        {"[true]", "[0,1]", "integer"},
        {"[\"1\"]", "[0,1]", "integer"},
        {"1", "[0,1]", "list"},
        {"[1,1,1,1,1,1,1,1,1]", "[0,1]", "8"},
        {"[1]", "[0,1.0]", "integers"},
        {"[1]", "[0]", "integers"},
        {"[1]", "[0,1,2]", "integers"},
        {"[1]", "{\"a\":0,\"b\":1}", "integers"},
    };
    char json[300];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(json, sizeof json, "{\"a\":{\"dtype\":\"U8\",\"shape\":%s,\"data_offsets\":%s}}",
                 bad[i].shape, bad[i].offsets);
        refuse(json, 1, "S05", bad[i].reason);
    }
    /* 2^53 + 1 is not a double: it must come through to the last digit */
    refuse("{\"a\":{\"dtype\":\"U8\",\"shape\":[9007199254740993],\"data_offsets\":[0,1]}}", 1, "S06",
           "9007199254740993");
    refuse("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,9007199254740993]}}", 1, "S06",
           "0 to 9007199254740993");
}

static void bad_offsets_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *a, *b;
        size_t data;
        const char *reason;
    } bad[] = {
        {"[2,0]", "[2,4]", 4, "range"},   {"[0,2]", "[1,3]", 4, "byte 1"},
        {"[0,2]", "[0,2]", 4, "byte 0"},  {"[0,2]", "[3,5]", 5, "byte 3"},
        {"[1,3]", "[3,5]", 5, "byte 1"},  {"[0,2]", "[2,4]", 3, "range"},
        {"[0,2]", "[2,4]", 5, "1 bytes"}, {"[0,2]", "[2,5]", 5, "3 bytes"},
        {"[-2,0]", "[0,2]", 2, "range"},  {"[0,2]", "[9223372036854775805,9223372036854775807]", 4, "range"},
    };
    char json[300];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(json, sizeof json,
                 "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":%s},"
                 "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":%s}}",
                 bad[i].a, bad[i].b);
        refuse(json, bad[i].data, "S06", bad[i].reason);
    }
    refuse("{}", 1, "S06", "1 bytes");
    refuse("{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},"
           "\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
           1, "S07", "");
    refuse("{\"b\":{\"dtype\":\"F32\",\"shape\":[3,0],\"data_offsets\":[0,0]}}", 0, "S07", "");
}

static void bad_types_are_refused(void **state)
{
    (void)state;
    static const char *const types[] = {"F8_E4M3", "F4", "I16", "f32", "", "F32 "};
    char json[200];
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        snprintf(json, sizeof json, "{\"a\":{\"dtype\":\"%s\",\"shape\":[1],\"data_offsets\":[0,1]}}",
                 types[i]);
        refuse(json, 1, "S08", types[i]);
    }
}

static void pickles_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t n;
    } heads[] = {
        {"PK\x03\x04\0\0\x08\x08\0\0archive/data.pkl", 26},
        {"\x80\x02\x8a\nl\xfc\x9c\x46\xf9\x20j\xa8P", 14}, /* before PyTorch 1.6 */
        {"\x80\x02\0\0\0\0\0\0notabrace", 17},
        {"\x80\x05\x95\x1f\0\0\0\0\0\0\0}", 12},
    };
    struct st_file f;
    struct error e;
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        assert_ok(io_write_all("a.safetensors", 0666, heads[i].bytes, heads[i].n, &e), e);
        assert_refused(st_read(&f, "a.safetensors", NULL, &e), e, ERR_DATA, "S11", "save_file");
    }
    static const char *const names[] = {"m.pt", "m.pth", "m.ckpt", "m.pkl", "m.PT"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        assert_ok(io_write_all(names[i], 0666, made, make("{}", 0), &e), e);
        assert_refused(st_read(&f, names[i], NULL, &e), e, ERR_DATA, "S11");
    }
    /* a sound header of 640 bytes begins with 0x80 0x02 */
    char json[641];
    memset(json, ' ', 640);
    json[0] = '{', json[639] = '}', json[640] = '\0';
    size_t n = make(json, 0);
    assert_memory_equal(made, "\x80\x02", 2);
    assert_ok(parse(&f, n, NULL, &e), e);
    st_free(&f);
    assert_refused(st_read(&f, "missing.pt", NULL, &e), e, ERR_SYSTEM, "Z12");
}

/* ---- our own files --------------------------------------------------------------------------- */

static const float weights[6] = {1, -2, 3.5f, 0, 1e-30f, 6};
static const int64_t counter = 123456789012345;
static const unsigned char bytes3[3] = {7, 8, 9};
static const double moment = 0.1;

static void build(struct st_file *f)
{
    struct error e;
    memset(f, 0, sizeof *f);
    assert_ok(st_add(f, "seen", ST_U8, (int64_t[]){3}, 1, bytes3, &e), e);
    assert_ok(st_add(f, "w", ST_F32, (int64_t[]){2, 3}, 2, weights, &e), e);
    assert_ok(st_add(f, "count", ST_I64, NULL, 0, &counter, &e), e);
    assert_ok(st_add(f, "moment", ST_F64, (int64_t[]){1, 1}, 2, &moment, &e), e);
    assert_ok(st_set(f, "z", "a \"quoted\" line\nand another", &e), e);
    assert_ok(st_set(f, "falx.format", "7", &e), e);
    assert_ok(st_set(f, "falx.format", "1", &e), e); /* replaces */
}

static size_t slurp(unsigned char *out, size_t cap, const char *path)
{
    struct error e;
    int fd;
    uint64_t n;
    assert_ok(io_open_regular(&fd, &n, path, &e), e);
    assert_true(n <= cap);
    assert_int_equal(io_read_full(fd, out, n), n);
    io->close(fd);
    return n;
}

static void what_is_written_is_read(void **state)
{
    (void)state;
    struct st_file f, back;
    struct error e;
    const struct st_limits strict = {.require_checksum = 1};
    build(&f);
    assert_ok(st_write("own.safetensors", &f, &e), e);
    st_free(&f);
    assert_ok(st_read(&back, "own.safetensors", &strict, &e), e);
    static const char *const order[] = {"count", "moment", "w", "seen"}; /* wide before narrow */
    static const size_t bytes[] = {8, 8, 4, 1};                          /* of an element */
    for (int i = 0; i < 4; i++) {
        const struct st_tensor *t = &back.tensors[i];
        assert_string_equal(t->name, order[i]);
        assert_int_equal((uintptr_t)t->data % bytes[i], 0);
    }
    assert_memory_equal(st_find(&back, "w")->data, weights, sizeof weights);
    assert_memory_equal(st_find(&back, "count")->data, &counter, 8);
    assert_memory_equal(st_find(&back, "moment")->data, &moment, 8);
    assert_memory_equal(st_find(&back, "seen")->data, bytes3, 3);
    assert_int_equal(st_find(&back, "w")->dims[1], 3);
    assert_int_equal(back.n_metadata, 2); /* the checksum is not part of it */
    assert_string_equal(st_metadata(&back, "z"), "a \"quoted\" line\nand another");
    static unsigned char one[4096], two[4096];
    size_t n = slurp(one, sizeof one, "own.safetensors");
    uint64_t head;
    memcpy(&head, one, 8);
    assert_int_equal((8 + head) % 64, 0);
    assert_int_equal(n, 8 + head + 8 + 8 + 24 + 3);
    assert_ok(st_write("again.safetensors", &back, &e), e); /* equal content, equal bytes */
    assert_int_equal(slurp(two, sizeof two, "again.safetensors"), n);
    assert_memory_equal(one, two, n);
    st_free(&back);
}

/* Every position of a small file, both where a checksum is demanded and where falx's keys demand
 * it. */
static void every_flipped_bit_is_found(void **state)
{
    (void)state;
    struct st_file f, back;
    struct error e;
    build(&f);
    assert_ok(st_write("own.safetensors", &f, &e), e);
    st_free(&f);
    size_t n = slurp(made, sizeof made, "own.safetensors");
    int checked = 0;
    for (int strict = 0; strict < 2; strict++)
        for (size_t bit = 0; bit < 8 * n; bit++, checked++) {
            const struct st_limits l = {.require_checksum = strict};
            made[bit / 8] ^= (unsigned char)(1 << bit % 8);
            if (parse(&back, n, &l, &e) == 0)
                test_fail("bit %zu of byte %zu went unseen", bit % 8, bit / 8);
            assert_true(e.code == ERR_DATA || e.code == ERR_BUSY);
            made[bit / 8] ^= (unsigned char)(1 << bit % 8);
        }
    assert_int_equal(checked, 16 * n);
    for (size_t cut = 0; cut < n; cut++) /* and every truncation */
        assert_int_equal(parse(&back, cut, NULL, &e), -1);
    assert_ok(parse(&back, n, NULL, &e), e);
    st_free(&back);
}

static void a_checksum_can_be_demanded(void **state)
{
    (void)state;
    const struct st_limits strict = {.require_checksum = 1};
    struct st_file f;
    struct error e;
    size_t n = make("{\"__metadata__\":{\"a\":\"b\"}}", 0);
    assert_refused(parse(&f, n, &strict, &e), e, ERR_BUSY, "K02");
    n = make("{\"__metadata__\":{\"falx.format\":\"1\"}}", 0);
    assert_refused(parse(&f, n, NULL, &e), e, ERR_BUSY, "K02");
    n = make("{\"__metadata__\":{\"falx.checksum\": \"0123456789ABCDEF\"}}", 0);
    assert_refused(parse(&f, n, NULL, &e), e, ERR_BUSY, "K02");
}

static void newer_formats_are_refused(void **state)
{
    (void)state;
    struct st_file f, back;
    struct error e;
    build(&f);
    assert_ok(st_set(&f, "falx.format", "12", &e), e);
    assert_ok(st_write("new.safetensors", &f, &e), e);
    assert_refused(st_read(&back, "new.safetensors", NULL, &e), e, ERR_BUSY, "K04", "format 12", "to 1");
    assert_ok(st_set(&f, "falx.format", "0x1", &e), e);
    assert_ok(st_write("new.safetensors", &f, &e), e);
    assert_refused(st_read(&back, "new.safetensors", NULL, &e), e, ERR_BUSY, "K04");
    st_free(&f);
}

static void what_cannot_be_read_is_not_built(void **state)
{
    (void)state;
    struct st_file f;
    struct error e;
    build(&f);
    int64_t dims[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
    assert_refused(st_add(&f, "w", ST_F32, dims, 1, weights, &e), e, ERR_DATA, "S03");
    assert_refused(st_add(&f, "__metadata__", ST_F32, dims, 1, weights, &e), e, ERR_DATA, "S03");
    assert_refused(st_add(&f, "\xC3\xA9", ST_F32, dims, 1, weights, &e), e, ERR_DATA, "S03");
    assert_refused(st_add(&f, "x", ST_F32, dims, 9, weights, &e), e, ERR_DATA, "S05");
    assert_refused(st_add(&f, "x", ST_F32, (int64_t[]){0}, 1, weights, &e), e, ERR_DATA, "S07");
    assert_refused(st_add(&f, "x", ST_F32, (int64_t[]){-1}, 1, weights, &e), e, ERR_DATA, "S05");
    assert_int_equal(f.n_tensors, 4);
    st_free(&f);
}

static ssize_t full_disk(int fd, const void *bytes, size_t n)
{
    (void)fd, (void)bytes, (void)n;
    errno = ENOSPC;
    return -1;
}

static void a_full_disk_leaves_the_old_file(void **state)
{
    (void)state;
    struct io_ops ops = io_posix;
    struct st_file f, back;
    struct error e;
    struct io_listing before, after;
    ops.write = full_disk;
    build(&f);
    assert_ok(st_write("own.safetensors", &f, &e), e);
    assert_ok(io_list(&before, ".", &e), e);
    io = &ops;
    assert_int_equal(st_write("own.safetensors", &f, &e), -1);
    io = &io_posix;
    assert_int_equal(e.code, ERR_SYSTEM);
    assert_says(e.text, "own.safetensors");
    assert_ok(io_list(&after, ".", &e), e);
    assert_int_equal(before.n, after.n);
    assert_ok(st_read(&back, "own.safetensors", NULL, &e), e);
    st_free(&back);
    st_free(&f);
    io_listing_free(&before);
    io_listing_free(&after);
}

static void lost_memory_is_an_error(void **state)
{
    (void)state;
    struct st_file f, back;
    struct error e;
    build(&f);
    assert_ok(st_write("own.safetensors", &f, &e), e);
    for (int writing = 0; writing < 2; writing++) {
        int failures = 0, status = -1;
        for (int n = 0; n < 1000 && status < 0; n++) {
            mem_fail_at(n, 0);
            status =
                writing ? st_write("own.safetensors", &f, &e) : st_read(&back, "own.safetensors", NULL, &e);
            mem_fail_at(-1, 0);
            failures += status < 0;
            if (status < 0)
                assert_int_equal(e.code, ERR_MEMORY);
        }
        assert_in_range(failures, 4, 999);
    }
    st_free(&back);
    st_free(&f);
}

/* Sizes beyond one read() call and one page: 40 MB, through a file. */
static void large_files_come_whole(void **state)
{
    (void)state;
    enum { N = 10 << 20 };
    struct st_file f = {0}, back;
    struct error e;
    float *many = mem_alloc(&e, N, sizeof *many);
    for (int i = 0; i < N; i++)
        many[i] = (float)i;
    assert_ok(st_add(&f, "many", ST_F32, (int64_t[]){N}, 1, many, &e), e);
    assert_ok(st_write("large.safetensors", &f, &e), e);
    assert_ok(st_read(&back, "large.safetensors", &(struct st_limits){.require_checksum = 1}, &e), e);
    assert_int_equal(back.tensors[0].dims[0], N);
    assert_memory_equal(back.tensors[0].data, many, N * sizeof *many);
    st_free(&back);
    st_free(&f);
    mem_free(many);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_of_others_are_read),
        cmocka_unit_test(lengths_are_checked),
        cmocka_unit_test(bad_json_is_refused),
        cmocka_unit_test(bad_names_are_refused),
        cmocka_unit_test(bad_metadata_are_refused),
        cmocka_unit_test(bad_shapes_are_refused),
        cmocka_unit_test(bad_offsets_are_refused),
        cmocka_unit_test(bad_types_are_refused),
        cmocka_unit_test(pickles_are_refused),
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(every_flipped_bit_is_found),
        cmocka_unit_test(a_checksum_can_be_demanded),
        cmocka_unit_test(newer_formats_are_refused),
        cmocka_unit_test(what_cannot_be_read_is_not_built),
        cmocka_unit_test(a_full_disk_leaves_the_old_file),
        cmocka_unit_test(lost_memory_is_an_error),
        cmocka_unit_test(large_files_come_whole),
    };
    return cmocka_run_group_tests(tests, test_folder_make, test_folder_remove);
}
