/* volume_files.h - what the tests of text-header formats share: files in memory, a listener,
 * scratch folders, gzip, and the table of real files with independently made values. */
#ifndef FALX_VOLUME_FILES_H
#define FALX_VOLUME_FILES_H

#include <math.h>
#include <zlib.h>

#include "test.h"
#include "volume/volume.h"

/* Keeps the last warning. */
struct listener {
    struct report report;
    char last[512];
};

static void listen_line(struct report *r, enum report_kind kind, const char *text)
{
    struct listener *l = (struct listener *)r;
    (void)kind;
    snprintf(l->last, sizeof l->last, "%s", text);
}

/* A file of header text followed by n bytes, read from memory. */
static inline int read_memory(struct volume *v, const char *header, const void *bytes, size_t n,
                              const struct volume_request *r, struct error *e)
{
    size_t head = strlen(header);
    unsigned char *file = malloc(head + n + 1);
    assert_non_null(file);
    memcpy(file, header, head);
    if (n)
        memcpy(file + head, bytes, n);
    struct source *s;
    memset(v, 0, sizeof *v);
    memset(e, 0, sizeof *e);
    int result = source_open_memory(&s, file, head + n, e);
    if (result == 0) {
        result = volume_read_source(v, s, r, e);
        source_close(s);
    }
    free(file);
    return result;
}

/* The same, and it must succeed without a warning. */
static inline void read_clean(struct volume *v, const char *header, const void *bytes, size_t n)
{
    struct error e;
    struct listener l = {.report = {.line = listen_line}};
    struct volume_request r = {.report = &l.report};
    assert_ok(read_memory(v, header, bytes, n, &r, &e), e);
    assert_string_equal(l.last, "");
}

/* It must be refused with that id. */
static inline void read_refused(const char *id, const char *header, const void *bytes, size_t n)
{
    struct volume v;
    struct error e;
    if (read_memory(&v, header, bytes, n, NULL, &e) == 0)
        test_fail("accepted, expected %s:\n%s", id, header);
    if (strcmp(e.id, id) != 0)
        test_fail("[%s] %s, expected %s:\n%.300s", e.id, e.text, id, header);
    assert_int_equal(e.code, ERR_DATA);
    assert_null(v.data);
}

/* It must be read with exactly one warning of that id, and be refused when strict. */
static inline void read_doubted(struct volume *v, const char *id, const char *header, const void *bytes,
                                size_t n)
{
    struct error e;
    struct listener l = {.report = {.line = listen_line}};
    struct volume_request r = {.report = &l.report, .strict = 1};
    char tail[16];
    snprintf(tail, sizeof tail, "[%s]", id);
    assert_refused(read_memory(v, header, bytes, n, &r, &e), e, ERR_DATA, id);
    assert_int_equal(l.report.n_warnings, 0);
    r.strict = 0;
    assert_ok(read_memory(v, header, bytes, n, &r, &e), e);
    assert_int_equal(l.report.n_warnings, 1);
    if (!text_ends_with(l.last, tail))
        test_fail("warning \"%s\", expected %s", l.last, id);
}

/* compress2-like: window 31 gives gzip, 15 zlib. Returns the length. */
static inline size_t deflate_bytes(unsigned char *out, size_t cap, const void *in, size_t n, int window)
{
    z_stream z = {0};
    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, window, 8, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_in = (z_const Bytef *)in;
    z.avail_in = (uInt)n;
    z.next_out = out;
    z.avail_out = (uInt)cap;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    n = z.total_out;
    deflateEnd(&z);
    return n;
}

static inline void check_affine(const struct geometry *g, const double expected[12])
{
    for (int i = 0; i < 12; i++)
        if (!(fabs(g->affine[i / 4][i % 4] - expected[i]) <= 1e-12))
            test_fail("affine[%d][%d]=%.17g, expected %.17g", i / 4, i % 4, g->affine[i / 4][i % 4],
                      expected[i]);
}

/* Voxels, dims, dtype and geometry to the bit. */
static inline void check_equal(const struct volume *a, const struct volume *b)
{
    assert_int_equal(a->dtype, b->dtype);
    assert_memory_equal(a->dims, b->dims, sizeof a->dims);
    assert_memory_equal(a->geometry.affine, b->geometry.affine, sizeof a->geometry.affine);
    assert_int_equal(a->geometry.known, b->geometry.known);
    assert_memory_equal(a->data, b->data, volume_bytes(a));
}

/* ---- real files ------------------------------------------------------------------------------ */

static inline void check_near(const char *file, const char *what, double got, double expected)
{
    if (!(fabs(got - expected) <= 2e-5 * fabs(expected) + 2e-6)) /* the tables have six digits */
        test_fail("%s: %s %.9g, expected %.9g", file, what, got, expected);
}

/* file,dims,spacing,affine,min,max,mean */
static inline void check_row(const char *folder, char *row)
{
    static const char *const names[3] = {"min", "max", "mean"};
    char *field[7], path[600], dims[100] = "";
    struct volume v;
    struct error e;
    struct volume_stats s;
    struct volume_request r = {.describe = 1};
    for (int i = 0; i < 7; i++)
        field[i] = strsep(&row, ",");
    snprintf(path, sizeof path, "%s/%s", folder, field[0]);
    if (strcmp(field[1], "refused") == 0) {
        assert_int_equal(volume_read(&v, path, &r, &e), -1);
        return;
    }
    assert_ok(volume_read(&v, path, &r, &e), e);
    for (int a = 0; a < v.n_dims; a++)
        snprintf(dims + strlen(dims), sizeof dims - strlen(dims), "%s%lld", a ? "x" : "",
                 (long long)v.dims[a]);
    assert_string_equal(dims, field[1]);
    for (int a = 0; a < 3; a++)
        check_near(field[0], "spacing", v.geometry.spacing_mm[a], strtod(field[2], &field[2]));
    for (int i = 0; i < 12; i++)
        check_near(field[0], "affine", v.geometry.affine[i / 4][i % 4], strtod(field[3], &field[3]));
    volume_measure(&s, &v);
    const double got[3] = {s.min, s.max, s.mean};
    for (int i = 0; i < 3; i++)
        check_near(field[0], names[i], got[i], strtod(field[4 + i], NULL));
    volume_free(&v);
}

/* Every file of the table expected.csv of a folder of real files; at least `least` of them. */
static inline void check_real_files(const char *sub, int least)
{
    char folder[500], path[600], *text, *rest, *line;
    struct error e;
    int n = 0;
    if (!test_data(sub, folder, sizeof folder)) {
        print_message("skipped: FALX_TEST_DATA is not set\n");
        skip();
    }
    snprintf(path, sizeof path, "%s/expected.csv", folder);
    assert_ok(io_read_text(&text, NULL, path, 1 << 20, &e), e);
    rest = text;
    strsep(&rest, "\n");
    for (; (line = strsep(&rest, "\n")) && *line; n++)
        check_row(folder, line);
    assert_true(n >= least);
    mem_free(text);
}

#endif
