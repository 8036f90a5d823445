/* volume_files.h - what the tests of text-header formats share: files in memory, a listener,
 * scratch folders, gzip, and the table of real files with independently made values. */
#ifndef FALX_VOLUME_FILES_H
#define FALX_VOLUME_FILES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <math.h>
#include <unistd.h>
#include <zlib.h>

#include "base/io.h"
#include "volume/volume.h"

#include <cmocka.h> /* last: it has a macro fail() */

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

static inline struct listener listener_new(void)
{
    struct listener l = {.report = {.line = listen_line}, .last = ""};
    return l;
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
    struct listener l = listener_new();
    struct volume_request r = {.report = &l.report};
    if (read_memory(v, header, bytes, n, &r, &e) < 0)
        fail_msg("refused: %s [%s]\n%s", e.text, e.id, header);
    assert_string_equal(l.last, "");
}

/* It must be refused with that id. */
static inline void read_refused(const char *id, const char *header, const void *bytes, size_t n)
{
    struct volume v;
    struct error e;
    if (read_memory(&v, header, bytes, n, NULL, &e) == 0)
        fail_msg("accepted, expected %s:\n%s", id, header);
    if (strcmp(e.id, id) != 0)
        fail_msg("[%s] %s, expected %s:\n%.300s", e.id, e.text, id, header);
    assert_int_equal(e.code, ERR_DATA);
    assert_null(v.data);
}

/* It must be read with exactly one warning of that id, and be refused when strict. */
static inline void read_doubted(struct volume *v, const char *id, const char *header,
                                const void *bytes, size_t n)
{
    struct error e;
    struct listener l = listener_new();
    struct volume_request r = {.report = &l.report, .strict = 1};
    char tail[16];
    snprintf(tail, sizeof tail, "[%s]", id);
    assert_int_equal(read_memory(v, header, bytes, n, &r, &e), -1);
    assert_string_equal(e.id, id);
    assert_int_equal(l.report.n_warnings, 0);
    r.strict = 0;
    if (read_memory(v, header, bytes, n, &r, &e) < 0)
        fail_msg("refused: %s [%s]", e.text, e.id);
    assert_int_equal(l.report.n_warnings, 1);
    if (!text_ends_with(l.last, tail))
        fail_msg("warning \"%s\", expected %s", l.last, id);
}

/* compress2-like: window 31 gives gzip, 15 zlib. Returns the length. */
static inline size_t deflate_bytes(unsigned char *out, size_t cap, const void *in, size_t n,
                                   int window)
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
            fail_msg("affine[%d][%d]=%.17g, expected %.17g", i / 4, i % 4, g->affine[i / 4][i % 4],
                     expected[i]);
}

/* Voxels, dims, dtype and geometry to the bit. */
static inline void check_equal(const struct volume *a, const struct volume *b)
{
    assert_int_equal(a->dtype, b->dtype);
    assert_memory_equal(a->dims, b->dims, sizeof a->dims);
    assert_memory_equal(a->geometry.affine, b->geometry.affine, sizeof a->geometry.affine);
    assert_int_equal(a->geometry.known, b->geometry.known);
    size_t n = (size_t)(volume_voxels(a) * volume_channels(a)) * dtype_bytes(a->dtype);
    assert_memory_equal(a->data, b->data, n);
}

/* ---- real files ---- */

static inline void check_near(const char *file, const char *what, double got, double expected)
{
    if (!(fabs(got - expected) <= 2e-5 * fabs(expected) + 2e-6)) /* the table has six digits */
        fail_msg("%s: %s %.9g, expected %.9g", file, what, got, expected);
}

static inline void check_row(const char *folder, char *row)
{
    char *save = NULL, *file = strtok_r(row, ",", &save), *dims = strtok_r(NULL, ",", &save);
    char *spacing = strtok_r(NULL, ",", &save), *affine = strtok_r(NULL, ",", &save),
         text[256] = "";
    const char *const names[3] = {"min", "max", "mean"};
    struct volume v;
    struct error e;
    struct volume_stats stats;
    char *path = path_join(&e, folder, file);
    if (volume_read(&v, path, NULL, &e) < 0)
        fail_msg("%s [%s]", e.text, e.id);
    for (int a = 0; a < v.n_dims; a++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%lld", a ? "x" : "",
                 (long long)v.dims[a]);
    assert_string_equal(text, dims);
    for (int a = 0; a < 3; a++)
        check_near(file, "spacing", v.geometry.spacing_mm[a], strtod(spacing, &spacing));
    for (int i = 0; i < 12; i++)
        check_near(file, "affine", v.geometry.affine[i / 4][i % 4], strtod(affine, &affine));
    volume_measure(&stats, &v);
    const double got[3] = {stats.min, stats.max, stats.mean};
    for (int i = 0; i < 3; i++)
        check_near(file, names[i], got[i], atof(strtok_r(NULL, ",\n", &save)));
    volume_free(&v);
    mem_free(path);
}

/* Every file of the table whose name ends in one of up to three tails; at least `least` of them. */
static inline void check_real_files(const char *const tails[3], int least)
{
    const char *root = getenv("FALX_TEST_DATA");
    if (!root) {
        print_message("skipped: FALX_TEST_DATA is not set\n");
        skip();
    }
    char folder[4096], path[4200], row[4096];
    snprintf(folder, sizeof folder, "%s/formats", root);
    snprintf(path, sizeof path, "%s/expected.csv", folder);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    int n = 0;
    while (fgets(row, sizeof row, f)) {
        char name[256];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(row, ","), row);
        for (int i = 0; i < 3 && tails[i]; i++)
            if (text_ends_with(name, tails[i])) {
                check_row(folder, row);
                n++;
                break;
            }
    }
    fclose(f);
    assert_true(n >= least);
}

#endif
