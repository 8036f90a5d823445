/* test_hdf5.c - arrays written by libhdf5 come back voxel by voxel, whatever their type, shape,
 * chunks and filters; real files give the published numbers; damaged ones never harm the reader.
 */
#include <time.h>

#include "base/rng.h"
#include "hdf5_make.h"
#include "volume_files.h"

/* value of the voxel at array index (a, b, c, d): exact in every type tested, different for
 * neighbours */
static double value_at(int64_t a, int64_t b, int64_t c, int64_t d)
{
    return (double)((a * 7 + b * 13 + c * 29 + d * 53) % 113);
}

/* Fills a double array in C order and writes it as `type`. */
static void make(const char *path, struct hdf5_make *m, hsize_t user_block)
{
    hsize_t n[4] = {1, 1, 1, 1};
    size_t count = 1, at = 0;
    for (int a = 0; a < m->rank; a++) {
        n[a] = m->dims[a];
        count *= m->dims[a];
    }
    double *x = malloc(count * sizeof *x);
    for (hsize_t a = 0; a < n[0]; a++)
        for (hsize_t b = 0; b < n[1]; b++)
            for (hsize_t c = 0; c < n[2]; c++)
                for (hsize_t d = 0; d < n[3]; d++)
                    x[at++] = value_at((int64_t)a, (int64_t)b, (int64_t)c, (int64_t)d);
    m->memory = H5T_NATIVE_DOUBLE;
    m->data = x;
    assert_int_equal(hdf5_make_file(path, m, user_block), 0);
    free(x);
}

static void expect_voxels(const char *path, const struct hdf5_make *m, enum dtype t)
{
    struct volume v;
    struct error e;
    assert_ok(volume_read(&v, path, NULL, &e), e);
    assert_string_equal(v.format, "HDF5");
    assert_int_equal(v.dtype, t);
    assert_int_equal(v.n_dims, m->rank);
    for (int a = 0; a < VOLUME_MAX_DIMS; a++)
        assert_int_equal(v.dims[a], a < m->rank ? (int64_t)m->dims[a] : 1);
    for (int64_t d = 0; d < v.dims[3]; d++)
        for (int64_t k = 0; k < v.dims[2]; k++)
            for (int64_t j = 0; j < v.dims[1]; j++)
                for (int64_t i = 0; i < v.dims[0]; i++) {
                    int64_t at = i + v.dims[0] * (j + v.dims[1] * (k + v.dims[2] * d));
                    if (volume_value(&v, at) != value_at(i, j, k, d))
                        test_fail("%s: voxel (%d, %d, %d, %d) is wrong", path, (int)i, (int)j, (int)k,
                                  (int)d);
                }
    volume_free(&v);
}

static void test_types(void **state)
{
    (void)state;
    const struct {
        hid_t file;
        enum dtype dtype;
    } types[] = {
        {H5T_STD_U8LE, DTYPE_U8},    {H5T_STD_I8LE, DTYPE_I8},    {H5T_STD_U16LE, DTYPE_U16},
        {H5T_STD_I16BE, DTYPE_I16},  {H5T_STD_U32BE, DTYPE_U32},  {H5T_STD_I32LE, DTYPE_I32},
        {H5T_STD_U64LE, DTYPE_U64},  {H5T_STD_I64BE, DTYPE_I64},  {H5T_IEEE_F32LE, DTYPE_F32},
        {H5T_IEEE_F32BE, DTYPE_F32}, {H5T_IEEE_F64LE, DTYPE_F64}, {H5T_IEEE_F64BE, DTYPE_F64},
    };
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        struct hdf5_make m = {.type = types[i].file, .rank = 3, .dims = {5, 4, 3}};
        make("type.h5", &m, 0);
        expect_voxels("type.h5", &m, types[i].dtype);
    }
}

/* IEEE half precision, as numpy's float16 is stored, is widened. */
static void test_half_float(void **state)
{
    (void)state;
    hid_t half = H5Tcopy(H5T_IEEE_F32LE);
    H5Tset_fields(half, 15, 10, 5, 0, 10);
    H5Tset_precision(half, 16);
    H5Tset_size(half, 2);
    H5Tset_ebias(half, 15);
    struct hdf5_make m = {.type = half, .rank = 3, .dims = {3, 4, 5}};
    make("half.h5", &m, 0);
    expect_voxels("half.h5", &m, DTYPE_F32);
    H5Tclose(half);
}

/* A bool array is an enumeration of one byte. */
static void test_bool(void **state)
{
    (void)state;
    const signed char no = 0, yes = 1, mask[6] = {0, 1, 1, 0, 0, 1};
    hid_t type = H5Tenum_create(H5T_STD_I8LE);
    H5Tenum_insert(type, "FALSE", &no);
    H5Tenum_insert(type, "TRUE", &yes);
    struct hdf5_make m = {.memory = type, .rank = 3, .dims = {1, 2, 3}, .data = mask};
    assert_int_equal(hdf5_make_file("bool.h5", &m, 0), 0);
    struct volume v;
    struct error e;
    assert_ok(volume_read(&v, "bool.h5", NULL, &e), e);
    assert_int_equal(v.dtype, DTYPE_U8);
    const unsigned char expected[6] = {0, 0, 1, 0, 1, 1}; /* [j][k] with j fastest */
    assert_memory_equal(v.data, expected, 6);
    volume_free(&v);
    H5Tclose(type);
}

/* Random shapes, chunks and filters; several blocks where the array is larger than one. */
static void test_layouts(void **state)
{
    (void)state;
    struct rng r = rng_start(3, 0, RNG_TEST, 0);
    for (int i = 0; i < 60; i++) {
        struct hdf5_make m = {.type = i % 2 ? H5T_STD_I16LE : H5T_IEEE_F32LE};
        m.rank = 1 + (int)rng_below(&r, 4);
        for (int a = 0; a < m.rank; a++)
            m.dims[a] = 1 + rng_below(&r, m.rank == 1 ? 3000 : 23);
        if (rng_below(&r, 4) > 0)
            for (int a = 0; a < m.rank; a++)
                m.chunk[a] = 1 + rng_below(&r, (uint32_t)m.dims[a]);
        if (m.chunk[0]) {
            m.deflate = (int)rng_below(&r, 3);
            m.shuffle = (int)rng_below(&r, 2);
            m.fletcher32 = (int)rng_below(&r, 2);
        }
        make("layout.h5", &m, 0);
        expect_voxels("layout.h5", &m, i % 2 ? DTYPE_I16 : DTYPE_F32);
    }
}

static void test_many_blocks(void **state)
{
    (void)state;
    struct hdf5_make plain = {.type = H5T_IEEE_F32LE, .rank = 3, .dims = {190, 170, 101}};
    make("large.h5", &plain, 0);
    expect_voxels("large.h5", &plain, DTYPE_F32);
    struct hdf5_make tall = {.type = H5T_STD_U8LE,
                             .rank = 3,
                             .dims = {210, 160, 300},
                             .chunk = {210, 33, 70},
                             .deflate = 1}; /* blocks cut along both last axes */
    make("large.h5", &tall, 0);
    expect_voxels("large.h5", &tall, DTYPE_U8);
}

static void test_user_block_is_recognised(void **state)
{
    (void)state;
    unsigned char head[4096];
    for (hsize_t block = 0; block <= 2048; block = block ? 2 * block : 512) {
        struct hdf5_make m = {.type = H5T_STD_U8LE, .rank = 3, .dims = {3, 3, 3}};
        struct volume v;
        struct error e;
        make("block.h5", &m, block);
        FILE *f = fopen("block.h5", "rb");
        size_t n = fread(head, 1, sizeof head, f);
        fclose(f);
        assert_int_equal(hdf5_recognise(head, n), 1);
        assert_int_equal(hdf5_recognise(head, (size_t)block + 7), 0);
        assert_ok(volume_read(&v, "block.h5", NULL, &e), e);
        volume_free(&v);
    }
}

static void test_members_and_header(void **state)
{
    (void)state;
    struct hdf5_make image = {.type = H5T_IEEE_F32LE, .rank = 3, .dims = {3, 4, 5}};
    const unsigned char label[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    struct hdf5_make more = {
        .member = "deep/label", .memory = H5T_NATIVE_UINT8, .rank = 3, .dims = {2, 2, 2}, .data = label};
    struct volume v;
    struct error e;
    make("members.h5", &image, 0);
    hid_t file = H5Fopen("members.h5", H5F_ACC_RDWR, H5P_DEFAULT);
    H5Gclose(H5Gcreate2(file, "deep", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    assert_int_equal(hdf5_make_set(file, &more, H5P_DEFAULT), 0);
    H5Fclose(file);
    struct volume_request r = {.member = "deep/label"};
    assert_ok(volume_read(&v, "members.h5", &r, &e), e);
    assert_int_equal(v.dims[0], 2);
    volume_free(&v);
    struct volume_request header = {.part = VOLUME_HEADER_ONLY};
    assert_ok(volume_read(&v, "members.h5", &header, &e), e);
    assert_null(v.data);
    assert_int_equal(v.dims[2], 5);
    assert_int_equal(v.geometry.known, 0);
    volume_free(&v);
    r.member = "label";
    assert_refused(volume_read(&v, "members.h5", &r, &e), e, ERR_DATA, "H02");
    assert_non_null(strstr(e.text, "\"label\"; the file holds: deep, image"));
    struct volume_request small = {.limits = {.voxels = 59}};
    assert_refused(volume_read(&v, "members.h5", &small, &e), e, ERR_DATA, "H03");
}

/* Damage at random places of a sound file: an answer each time, never a hang or a crash of ours. */
static void test_damaged_files(void **state)
{
    (void)state;
    struct hdf5_make m = {
        .type = H5T_IEEE_F32LE, .rank = 3, .dims = {8, 8, 8}, .chunk = {4, 4, 4}, .deflate = 4, .shuffle = 1};
    struct rng r = rng_start(5, 0, RNG_TEST, 0);
    static unsigned char sound[1 << 16], bad[1 << 16];
    make("sound.h5", &m, 0);
    FILE *f = fopen("sound.h5", "rb");
    size_t n = fread(sound, 1, sizeof sound, f);
    fclose(f);
    assert_true(n > 1000 && n < sizeof sound);
    for (int i = 0; i < 100; i++) {
        memcpy(bad, sound, n);
        for (uint32_t k = 1 + rng_below(&r, 4); k > 0; k--)
            bad[8 + rng_below(&r, (uint32_t)n - 8)] = (unsigned char)rng_u32(&r);
        f = fopen("bad.h5", "wb");
        fwrite(bad, 1, n, f);
        fclose(f);
        struct volume v;
        struct error e;
        struct timespec a, b;
        clock_gettime(CLOCK_MONOTONIC, &a);
        int rc = volume_read(&v, "bad.h5", NULL, &e);
        clock_gettime(CLOCK_MONOTONIC, &b);
        assert_true(b.tv_sec - a.tv_sec < 3);
        if (rc < 0) {
            assert_int_equal(e.code, ERR_DATA);
            assert_int_equal(e.id[0], 'H');
        } else {
            volume_free(&v);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_half_float),
        cmocka_unit_test(test_bool),
        cmocka_unit_test(test_layouts),
        cmocka_unit_test(test_many_blocks),
        cmocka_unit_test(test_user_block_is_recognised),
        cmocka_unit_test(test_members_and_header),
        cmocka_unit_test(test_damaged_files),
    };
    return cmocka_run_group_tests(tests, test_folder_make, test_folder_remove);
}
