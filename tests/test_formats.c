/* test_formats.c - real files seen as independent readers see them, and everything written read
 * back bit for bit. The real files are found through FALX_TEST_DATA; their expected.csv was made
 * with other readers.
 */
#include "volume/nifti.h"
#include "volume_files.h"

static void real_files_are_seen_as_others_see_them(void **state)
{
    (void)state;
    check_real_files("formats", 22);
}

static void real_hdf5_is_seen_as_others_see_it(void **state)
{
    (void)state;
    check_real_files("hdf5", 6);
}

static void the_dicom_series_converts(void **state)
{
    (void)state;
    char path[500];
    struct error e;
    struct volume v, w;
    if (!test_data("formats/dicom_j2k", path, sizeof path))
        skip();
    assert_ok(volume_read(&v, path, NULL, &e), e);
    assert_int_equal(v.dims[0], 512);
    assert_int_equal(v.dims[1], 512);
    assert_int_equal(v.dims[2], 20);
    assert_ok(volume_write(&v, "ct.nii.gz", &e), e);
    assert_ok(volume_read(&w, "ct.nii.gz", NULL, &e), e);
    assert_memory_equal(v.data, w.data, volume_bytes(&v));
    volume_free(&v);
    volume_free(&w);
}

/* ---- write, then read ------------------------------------------------------------------------ */

static void make(struct volume *v, enum dtype t, int n_dims)
{
    struct error e;
    static const int64_t dims[3] = {5, 4, 3};
    static const double affine[3][4] = {
        {-0.7, 0.1, 0.02, 12.3}, {0.12, 0.69, -0.3, -45.6}, {0.03, 0.25, 2.9, 1e-3}};
    struct geometry g;
    geometry_from_affine(&g, affine);
    assert_ok(volume_new(v, t, dims, &g, &e), e);
    v->n_dims = n_dims;
    if (n_dims == 4) {
        v->dims[3] = 2;
        mem_free(v->data);
        v->data = mem_alloc(&e, 120, dtype_bytes(t));
    }
    for (size_t i = 0; i < volume_bytes(v); i++)
        ((unsigned char *)v->data)[i] = (unsigned char)(i * 37 + 11);
}

static void assert_same(const struct volume *a, const struct volume *b, double tolerance)
{
    assert_int_equal(a->dtype, b->dtype);
    assert_int_equal(a->n_dims, b->n_dims);
    assert_memory_equal(a->dims, b->dims, sizeof a->dims);
    assert_true(a->slope == b->slope && a->inter == b->inter);
    assert_memory_equal(a->data, b->data, volume_bytes(a));
    for (int i = 0; i < 12; i++)
        assert_true(fabs(a->geometry.affine[i / 4][i % 4] - b->geometry.affine[i / 4][i % 4]) <= tolerance);
}

static void every_type_comes_back(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        double tolerance;
    } kinds[] = {{"x.nii", 1e-5}, {"x.nii.gz", 1e-5}, {"x.nrrd", 0.0}};
    for (int k = 0; k < 3; k++)
        for (int t = DTYPE_U8; t <= DTYPE_F64; t++)
            for (int n_dims = 3; n_dims <= 4; n_dims++) {
                struct error e;
                struct volume v, w;
                make(&v, (enum dtype)t, n_dims);
                assert_ok(volume_write(&v, kinds[k].name, &e), e);
                assert_ok(volume_read(&w, kinds[k].name, NULL, &e), e);
                assert_same(&v, &w, kinds[k].tolerance);
                volume_free(&v);
                volume_free(&w);
            }
}

/* What came from NIfTI goes out with the same header words, to the bit, also a second time. */
static void nifti_words_survive(void **state)
{
    (void)state;
    static const char *const names[] = {
        "air.hdr.gz",     "anatomical.nii", "big.nii.gz", "example_nifti2.nii.gz", "avg152T1_LR_nifti.nii",
        "functional.nii", "5D_small.nii"};
    char base[500], path[600];
    if (!test_data("formats", base, sizeof base))
        skip();
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct error e;
        struct volume v, w;
        snprintf(path, sizeof path, "%s/%s", base, names[i]);
        assert_ok(volume_read(&v, path, NULL, &e), e);
        assert_ok(volume_write(&v, "copy.nii", &e), e);
        assert_ok(volume_read(&w, "copy.nii", NULL, &e), e);
        assert_same(&v, &w, 0.0);
        assert_memory_equal(&v.geometry.nifti, &w.geometry.nifti, sizeof v.geometry.nifti);
        volume_free(&v);
        volume_free(&w);
    }
}

/* qform made from any rotation, with and without mirror, agrees with the sform beside it. */
static void qform_agrees_with_sform(void **state)
{
    (void)state;
    for (int trial = 0; trial < 200; trial++) {
        double a = trial * 0.7, b = trial * 1.3, c = trial * 2.1, mirror = trial % 2 ? -1.0 : 1.0;
        double rz[3][4] = {{cos(a), -sin(a), 0, 0}, {sin(a), cos(a), 0, 0}, {0, 0, 1, 0}};
        double rx[3][4] = {{1, 0, 0, 0}, {0, cos(b), -sin(b), 0}, {0, sin(b), cos(b), 0}};
        double ry[3][4] = {{cos(c), 0, sin(c), 0}, {0, 1, 0, 0}, {-sin(c), 0, cos(c), 0}};
        double scale[3][4] = {{0.5, 0, 0, 3}, {0, 1.5, 0, -7}, {0, 0, 2.5 * mirror, 11}}, m[3][4];
        affine_multiply(m, (const double(*)[4])rz, (const double(*)[4])rx);
        affine_multiply(m, (const double(*)[4])m, (const double(*)[4])ry);
        affine_multiply(m, (const double(*)[4])m, (const double(*)[4])scale);
        struct geometry g;
        struct volume v, w;
        struct error e;
        geometry_from_affine(&g, (const double(*)[4])m);
        assert_ok(volume_new(&v, DTYPE_U8, (int64_t[3]){2, 2, 2}, &g, &e), e);
        unsigned char bytes[NIFTI_HEADER_MAX + 8] = {0};
        size_t n = nifti_header(bytes, &v);
        memset(bytes + 254, 0, 2); /* no sform: the reader must fall back to the qform */
        struct source *s;
        assert_ok(source_open_memory(&s, bytes, n + 8, &e), e);
        assert_ok(volume_read_source(&w, s, NULL, &e), e);
        for (int i = 0; i < 12; i++)
            /* a = sqrt(1 - b^2 - c^2 - d^2) of float32: errors up to sqrt(2^-24) near a = 0 */
            assert_true(fabs(w.geometry.affine[i / 4][i % 4] - m[i / 4][i % 4]) < 3e-3);
        source_close(s);
        volume_free(&v);
        volume_free(&w);
    }
}

static void every_failed_allocation_is_told(void **state)
{
    (void)state;
    struct error e;
    struct volume v, w;
    make(&v, DTYPE_I16, 3);
    static const char *const names[] = {"m.nii.gz", "m.nrrd"};
    for (int k = 0; k < 2; k++)
        for (int64_t n = 0;; n++) {
            mem_fail_at(n, 0);
            int result = volume_write(&v, names[k], &e);
            if (result == 0)
                result = volume_read(&w, names[k], NULL, &e);
            int64_t used = mem_count();
            mem_fail_at(-1, 0);
            if (result == 0) {
                assert_same(&v, &w, 1e-5);
                volume_free(&w);
                if (used <= n)
                    break;
            } else {
                assert_int_equal(e.code, ERR_MEMORY);
            }
        }
    volume_free(&v);
}

/* Who only wants to know whether a file can be read asks without an error to fill. */
static void errors_need_no_listener(void **state)
{
    (void)state;
    struct error e;
    struct volume v, odd;
    unsigned char header[NIFTI_HEADER_MAX];
    const struct volume_request describe = {.describe = 1};
    make(&v, DTYPE_U8, 3);
    size_t n = nifti_header(header, &v);
    memcpy(header + 344, "ni1", 4);
    assert_ok(io_write_all("alone.hdr", 0666, header, 348, &e), e);
    assert_int_equal(volume_read(&odd, "alone.hdr", NULL, NULL), -1); /* there is no alone.img */
    memcpy(header + 344, "n+1", 4);
    memset(header + 80, 0, 4); /* spacing of the first axis */
    const struct io_part parts[2] = {{header, n}, {v.data, volume_bytes(&v)}};
    struct io_file *f;
    assert_ok(io_create(&f, "flat.nii", 0666, &e), e);
    for (int i = 0; i < 2; i++)
        assert_ok(io_append(f, parts[i].bytes, parts[i].n, &e), e);
    assert_ok(io_commit(f, &e), e);
    assert_int_equal(volume_read(&odd, "flat.nii", NULL, NULL), -1);
    assert_int_equal(volume_read(&odd, "flat.nii", &describe, NULL), 0);
    volume_free(&odd);
    volume_free(&v);
}

static void orientation_is_named(void **state)
{
    (void)state;
    static const struct {
        double m[3][4];
        const char *name;
    } cases[] = {
        {{{1, 0, 0, 0}, {0, 1, 0, 0}, {0, 0, 1, 0}}, "RAS"},
        {{{-1, 0, 0, 0}, {0, -1, 0, 0}, {0, 0, 1, 0}}, "LPS"},
        {{{0, 0, 2, 0}, {2, 0, 0, 0}, {0, -2, 0, 0}}, "AIR"},
        {{{0.7, 0.72, 0, 0}, {-0.72, 0.7, 0, 0}, {0, 0, 3, 0}}, "PRS"},
    };
    for (size_t i = 0; i < 4; i++) {
        struct geometry g;
        char name[4];
        geometry_from_affine(&g, cases[i].m);
        geometry_orientation(name, &g);
        assert_string_equal(name, cases[i].name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(real_files_are_seen_as_others_see_them),
        cmocka_unit_test(real_hdf5_is_seen_as_others_see_it),
        cmocka_unit_test(the_dicom_series_converts),
        cmocka_unit_test(every_type_comes_back),
        cmocka_unit_test(nifti_words_survive),
        cmocka_unit_test(qform_agrees_with_sform),
        cmocka_unit_test(every_failed_allocation_is_told),
        cmocka_unit_test(orientation_is_named),
        cmocka_unit_test(errors_need_no_listener),
    };
    return cmocka_run_group_tests(tests, test_folder_make, test_folder_remove);
}
