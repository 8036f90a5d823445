/* test_dicom.c - series made byte by byte: headers are read in every encoding, slices end up where
 * they belong, and damage anywhere is refused.
 */
#include <math.h>

#include "base/rng.h"
#include "dicom_make.h"
#include "test.h"
#include "volume/dicom.h"

static struct dicom_make made;

static void put(const char *path, const struct dicom_fields *f)
{
    struct error e;
    dicom_slice(&made, f);
    assert_ok(io_write_all(path, 0666, made.byte, made.n, &e), e);
}

static int header_of(struct dicom_header *h, const void *bytes, size_t n, struct error *e)
{
    struct source *s;
    if (source_open_memory(&s, bytes, n, e) < 0)
        return -1;
    int rc = dicom_read_header(h, s, e);
    source_close(s);
    return rc;
}

static void test_header_in_every_encoding(void **state)
{
    (void)state;
    const char *syntax[3] = {DICOM_EXPLICIT, DICOM_IMPLICIT, DICOM_BIG};
    for (int i = 0; i < 3; i++) {
        struct dicom_fields f = dicom_sound(4);
        struct dicom_header h;
        struct error e;
        uint64_t bytes = 0;
        f.syntax = syntax[i];
        dicom_slice(&made, &f);
        assert_ok(header_of(&h, made.byte, made.n, &e), e);
        assert_int_equal(h.rows, 4);
        assert_int_equal(h.columns, 6);
        assert_int_equal(h.bits_allocated, 16);
        assert_int_equal(h.bits_stored, 12);
        assert_int_equal(h.instance, 5);
        assert_int_equal(h.pixel_bytes, 48);
        assert_string_equal(h.series, "1.2.3.4");
        assert_string_equal(h.frame, "1.2.3.5");
        assert_true(h.has_position && h.position[0] == -10 && h.position[2] == 110);
        assert_true(h.has_orientation && h.orientation[4] == 1);
        assert_true(h.has_spacing && h.spacing[0] == 0.75 && h.spacing[1] == 0.5);
        assert_ok(dicom_check_pixels(&bytes, &h, &e), e);
        assert_int_equal(bytes, 48);
    }
}

/* Sequences of either length form, with a tag inside that must not be taken for the image's. */
static void test_nested_values_are_not_ours(void **state)
{
    (void)state;
    struct dicom_header h;
    struct error e;
    for (int defined = 0; defined < 2; defined++) {
        dicom_begin(&made, DICOM_EXPLICIT);
        dicom_head(&made, 0x0008, 0x1140, "SQ", defined ? 8 + 10 : 0xFFFFFFFF);
        dicom_head(&made, 0xFFFE, 0xE000, "", defined ? 10 : 0xFFFFFFFF);
        dicom_short(&made, 0x0010, 77);
        if (!defined) {
            dicom_head(&made, 0xFFFE, 0xE00D, "", 0);
            dicom_head(&made, 0xFFFE, 0xE0DD, "", 0);
        }
        dicom_short(&made, 0x0011, 9);
        assert_ok(header_of(&h, made.byte, made.n, &e), e);
        assert_int_equal(h.rows, 0);
        assert_int_equal(h.columns, 9);
    }
}

/* Every prefix of a file is refused, except where it ends between elements before the pixels. */
static void test_truncation_everywhere(void **state)
{
    (void)state;
    struct dicom_fields f = dicom_sound(0);
    int accepted = 0;
    dicom_slice(&made, &f);
    for (size_t n = 0; n < made.n; n++) {
        struct dicom_header h;
        struct error e;
        if (header_of(&h, made.byte, n, &e) == 0) {
            accepted++;
            assert_int_equal(h.has_pixels, 0);
        } else {
            assert_int_equal(e.code, ERR_DATA);
            assert_true(e.id[0] == 'D');
        }
    }
    assert_in_range(accepted, 20, 40); /* the number of elements behind the meta header */
}

static void test_random_damage(void **state)
{
    (void)state;
    struct rng r = rng_start(11, 0, RNG_TEST, 0);
    struct dicom_fields f = dicom_sound(0);
    static unsigned char bad[sizeof made.byte];
    dicom_slice(&made, &f);
    for (int i = 0; i < 20000; i++) {
        struct dicom_header h;
        struct error e = {ERR_NONE, "", ""};
        memcpy(bad, made.byte, made.n);
        for (uint32_t k = 1 + rng_below(&r, 4); k > 0; k--)
            bad[rng_below(&r, (uint32_t)made.n)] = (unsigned char)rng_u32(&r);
        if (header_of(&h, bad, made.n, &e) < 0)
            assert_int_equal(e.code, ERR_DATA);
        else
            assert_int_equal(e.code, ERR_NONE);
    }
}

static void put_series(const char *where, int n, int missing, const char *syntax)
{
    char path[64];
    struct error e;
    io_remove_tree(where);
    assert_ok(io_make_folders(where, &e), e);
    for (int i = 0; i < n; i++) {
        struct dicom_fields f = dicom_sound(i);
        f.syntax = syntax;
        snprintf(path, sizeof path, "%s/IM%d", where, (i * 7) % 11); /* names not in order of place */
        if (i != missing)
            put(path, &f);
    }
}

/* Each voxel of each slice against what was written; rows run from anterior to posterior in DICOM
 * and the other way in the volume that the converter makes. */
static void expect_slices(const struct volume *v, const int *instance, int n)
{
    assert_string_equal(v->format, "DICOM");
    assert_int_equal(v->dims[0], 6);
    assert_int_equal(v->dims[1], 4);
    assert_int_equal(v->dims[2], n);
    for (int k = 0; k < n; k++)
        for (unsigned j = 0; j < 4; j++)
            for (unsigned i = 0; i < 6; i++) {
                double want = 2.0 * dicom_pixel(instance[k], 3 - j, i) - 1024;
                assert_true(volume_value(v, (int64_t)(i + 6 * (j + 4 * (unsigned)k))) == want);
            }
    const double affine[3][4] = {{-0.5, 0, 0, 10}, {0, 0.75, 0, 17.75}, {0, 0, 2.5, 100}};
    for (int a = 0; a < 3; a++)
        for (int b = 0; b < 4; b++)
            assert_true(fabs(v->geometry.affine[a][b] - affine[a][b]) < 1e-4);
}

static void test_series_becomes_a_volume(void **state)
{
    (void)state;
    const char *syntax[3] = {DICOM_EXPLICIT, DICOM_IMPLICIT, DICOM_BIG};
    const int all[6] = {1, 2, 3, 4, 5, 6};
    for (int i = 0; i < 3; i++) {
        struct volume v;
        struct error e;
        put_series("series", 6, -1, syntax[i]);
        assert_ok(io_write_all("series/LICENSE", 0666, "text", 4, &e), e);
        assert_ok(volume_read(&v, "series", NULL, &e), e);
        expect_slices(&v, all, 6);
        volume_free(&v);
        struct volume_request header = {.part = VOLUME_HEADER_ONLY};
        assert_ok(volume_read(&v, "series", &header, &e), e);
        assert_int_equal(v.dims[2], 6);
        assert_null(v.data);
        volume_free(&v);
    }
}

static void test_gaps_are_filled_when_allowed(void **state)
{
    (void)state;
    struct volume_request allow = {.allow_gaps = 1};
    struct volume v;
    struct error e;
    put_series("gap", 6, 3, DICOM_EXPLICIT);
    assert_refused(volume_read(&v, "gap", NULL, &e), e, ERR_DATA, "D07", "3-5 (5 mm)");
    assert_ok(volume_read(&v, "gap", &allow, &e), e);
    const int third[6] = {1, 2, 3, 3, 5, 6};
    expect_slices(&v, third, 6);
    volume_free(&v);
    put_series("gap", 6, 1, DICOM_EXPLICIT);
    assert_ok(volume_read(&v, "gap", &allow, &e), e);
    const int first[6] = {1, 1, 3, 4, 5, 6};
    expect_slices(&v, first, 6);
    volume_free(&v);
}

static void test_single_files(void **state)
{
    (void)state;
    struct volume v;
    struct error e;
    const int one[1] = {3};
    struct dicom_fields f = dicom_sound(2);
    f.position[2] = 100;
    put("one.dcm", &f);
    assert_ok(volume_read(&v, "one.dcm", NULL, &e), e);
    expect_slices(&v, one, 1);
    volume_free(&v);
}

/* Nothing stays in the temporary folder, whether it went well or not. */
static void test_temporary_folder_is_removed(void **state)
{
    (void)state;
    struct io_listing l;
    struct volume v;
    struct error e;
    put_series("series", 3, -1, DICOM_EXPLICIT);
    assert_ok(io_make_folders("tmp", &e), e);
    const char *before = getenv("TMPDIR");
    char *keep = before ? strdup(before) : NULL, *tmp = path_join(&e, test_folder, "tmp");
    setenv("TMPDIR", tmp, 1);
    int good = volume_read(&v, "series", NULL, &e);
    volume_free(&v);
    setenv("PATH", "/nonexistent", 1);
    int bad = volume_read(&v, "series", NULL, &e);
    setenv("PATH", "/usr/local/bin:/usr/bin:/bin", 1);
    if (keep)
        setenv("TMPDIR", keep, 1);
    else
        unsetenv("TMPDIR");
    free(keep);
    assert_int_equal(good, 0);
    assert_int_equal(bad, -1);
    assert_int_equal(e.code, ERR_SYSTEM); /* no dcm2niix there */
    assert_ok(io_list(&l, tmp, &e), e);
    assert_int_equal(l.n, 0);
    io_listing_free(&l);
    mem_free(tmp);
}

static void test_real_series(void **state)
{
    (void)state;
    char path[600];
    struct volume v;
    struct volume_stats stats;
    struct error e;
    if (!test_data("formats/dicom_j2k", path, sizeof path))
        skip();
    assert_ok(volume_read(&v, path, NULL, &e), e);
    assert_int_equal(v.dims[0], 512);
    assert_int_equal(v.dims[1], 512);
    assert_int_equal(v.dims[2], 20);
    assert_true(fabs(v.geometry.spacing_mm[2] - 2) < 1e-6);
    volume_measure(&stats, &v);
    assert_true(stats.min >= -1024 && stats.max < 4096); /* Hounsfield units */
    volume_free(&v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_header_in_every_encoding),
        cmocka_unit_test(test_nested_values_are_not_ours),
        cmocka_unit_test(test_truncation_everywhere),
        cmocka_unit_test(test_random_damage),
        cmocka_unit_test(test_series_becomes_a_volume),
        cmocka_unit_test(test_gaps_are_filled_when_allowed),
        cmocka_unit_test(test_single_files),
        cmocka_unit_test(test_temporary_folder_is_removed),
        cmocka_unit_test(test_real_series),
    };
    return cmocka_run_group_tests(tests, test_folder_make, test_folder_remove);
}
