/* test_metaimage.c - MetaImage in: types, byte orders, geometry, channels, refusals. */
#include "volume/nrrd.h"
#include "volume_files.h"

#define SHAPE "ObjectType = Image\nNDims = 3\nDimSize = 2 3 2\n"
#define PLACE "TransformMatrix = 1 0 0 0 1 0 0 0 1\nOffset = 10 20 30\nElementSpacing = 2 3 4\n"
#define LOCAL "ElementType = MET_UCHAR\nElementDataFile = LOCAL\n"
static const unsigned char counting[48] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
                                           16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31,
                                           32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47};
static const double lps_affine[12] = {-2, 0, 0, -10, 0, -3, 0, -20, 0, 0, 4, 30};

static void reads_every_type(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        enum dtype dtype;
    } rows[] = {{"MET_UCHAR", DTYPE_U8},      {"MET_CHAR", DTYPE_I8},   {"MET_USHORT", DTYPE_U16},
                {"MET_SHORT", DTYPE_I16},     {"MET_UINT", DTYPE_U32},  {"MET_INT", DTYPE_I32},
                {"MET_ULONG", DTYPE_U32},     {"MET_LONG", DTYPE_I32},  {"MET_ULONG_LONG", DTYPE_U64},
                {"MET_LONG_LONG", DTYPE_I64}, {"MET_FLOAT", DTYPE_F32}, {"MET_DOUBLE", DTYPE_F64}};
    static const char *const orders[] = {"ElementByteOrderMSB = False", "BinaryDataByteOrderMSB = 0",
                                         "ElementByteOrderMSB = True", "BinaryDataByteOrderMSB = 1"};
    for (size_t i = 0; i < 4 * sizeof rows / sizeof rows[0]; i++) {
        char header[512];
        struct volume v;
        size_t each = dtype_bytes(rows[i / 4].dtype);
        unsigned char voxels[17] = "?@?@?@?@@?@?@?@?", swapped[16]; /* plausible floats */
        for (size_t k = 0; k < 2 * each; k++)
            swapped[k] = voxels[k / each * each + each - 1 - k % each];
        snprintf(header, sizeof header,
                 "NDims = 3\nDimSize = 2 1 1\n" PLACE "BinaryData = True\n"
                 "%s\n"
                 "ElementType = %s\nElementDataFile = LOCAL\n",
                 orders[i % 4], rows[i / 4].name);
        read_clean(&v, header, i % 4 < 2 ? voxels : swapped, 2 * each);
        assert_int_equal(v.dtype, rows[i / 4].dtype);
        assert_memory_equal(v.data, voxels, 2 * each);
        volume_free(&v);
    }
}

static void reads_geometry(void **state)
{
    (void)state;
    struct volume v;
    read_clean(&v, SHAPE PLACE LOCAL, counting, 12);
    check_affine(&v.geometry, lps_affine);
    assert_memory_equal(v.data, counting, 12);
    assert_string_equal(v.format, "MetaImage");
    volume_free(&v);
    /* Each run of three numbers is the direction of one axis: a column of the affine. */
    static const char *const names[3][2] = {
        {"TransformMatrix", "Offset"}, {"Rotation", "Position"}, {"Orientation", "Origin"}};
    for (int i = 0; i < 3; i++) {
        char header[512];
        snprintf(header, sizeof header,
                 SHAPE "%s = 0 1 0 0 0 1 1 0 0\n%s = 1 2 3\n"
                       "ElementSize = 2 3 4\n" LOCAL,
                 names[i][0], names[i][1]);
        read_clean(&v, header, counting, 12);
        const double turned[12] = {0, 0, -4, -1, -2, 0, 0, -2, 0, 3, 0, 3};
        check_affine(&v.geometry, turned);
        assert_true(v.geometry.known);
        volume_free(&v);
    }
    read_clean(&v, SHAPE PLACE "DistanceUnits = cm\n" LOCAL, counting, 12);
    assert_float_equal(v.geometry.affine[2][2], 40, 0);
    assert_float_equal(v.geometry.affine[0][3], -100, 0);
    volume_free(&v);
}

static void warns_of_what_is_missing(void **state)
{
    (void)state;
    struct volume v;
    read_doubted(&v, "R12", SHAPE "ElementSpacing = 2 3 4\n" LOCAL, counting, 12);
    assert_false(v.geometry.known);
    assert_float_equal(v.geometry.affine[0][0], -2, 0);
    volume_free(&v);
    read_doubted(&v, "T04",
                 SHAPE PLACE "ElementType = MET_SHORT\n"
                             "ElementDataFile = LOCAL\n",
                 counting, 24);
    assert_memory_equal(v.data, counting, 24);
    volume_free(&v);
    read_doubted(&v, "N22",
                 SHAPE "TransformMatrix = 1 0 0 0 1 0 0 0 1\n"
                       "ElementSpacing = 2 -3 4\n" LOCAL,
                 counting, 12);
    assert_float_equal(v.geometry.spacing_mm[1], 3, 0);
    volume_free(&v);
    read_doubted(&v, "N23", SHAPE PLACE "DistanceUnits = inch\n" LOCAL, counting, 12);
    volume_free(&v);
    read_doubted(&v, "T07", SHAPE PLACE "ElementToIntensityFunctionSlope = 2\n" LOCAL, counting, 12);
    volume_free(&v);
    read_doubted(&v, "N12", SHAPE PLACE LOCAL, counting, 13);
    volume_free(&v);
}

static void moves_channels_last(void **state)
{
    (void)state;
    struct volume v;
    read_clean(&v, SHAPE PLACE "ElementNumberOfChannels = 3\n" LOCAL, counting, 36);
    const int64_t dims[5] = {2, 3, 2, 3, 1};
    assert_int_equal(v.n_dims, 4);
    assert_memory_equal(v.dims, dims, sizeof dims);
    for (int i = 0; i < 36; i++)
        assert_int_equal(((unsigned char *)v.data)[i], i % 12 * 3 + i / 12);
    volume_free(&v);
    read_clean(&v,
               "NDims = 4\nDimSize = 2 3 2 2\nElementNumberOfChannels = 2\n"
               "Offset = 10 20 30 0\n"
               "TransformMatrix = 1 0 0 0 0 1 0 0 0 0 1 0 0 0 0 1\n"
               "ElementSpacing = 2 3 4 9\n" LOCAL,
               counting, 48);
    const int64_t dims_4d[6] = {2, 3, 2, 2, 2, 1};
    assert_int_equal(v.n_dims, 5);
    assert_memory_equal(v.dims, dims_4d, sizeof dims_4d);
    for (int i = 0; i < 48; i++)
        assert_int_equal(((unsigned char *)v.data)[i], i % 24 * 2 + i / 24);
    check_affine(&v.geometry, lps_affine);
    volume_free(&v);
    read_clean(&v,
               "NDims = 2\nDimSize = 2 2\nElementNumberOfChannels = 3\nOffset = 10 20\n"
               "TransformMatrix = 0 1 1 0\nElementSpacing = 2 3\n" LOCAL,
               counting, 12);
    const int64_t dims_2d[5] = {2, 2, 1, 3, 1};
    assert_memory_equal(v.dims, dims_2d, sizeof dims_2d);
    const double flat[12] = {0, -3, 0, -10, -2, 0, 0, -20, 0, 0, 1, 0};
    check_affine(&v.geometry, flat);
    volume_free(&v);
}

static void reads_compressed_voxels(void **state)
{
    (void)state;
    for (int window = 15; window <= 31; window += 16) {
        unsigned char packed[128];
        char header[512];
        struct volume v;
        size_t n = deflate_bytes(packed, sizeof packed, counting, 12, window);
        snprintf(header, sizeof header,
                 SHAPE PLACE "CompressedData = True\n"
                             "CompressedDataSize = %zu\n" LOCAL,
                 n);
        read_clean(&v, header, packed, n);
        assert_memory_equal(v.data, counting, 12);
        volume_free(&v);
        read_clean(&v, SHAPE PLACE "CompressedData = True\n" LOCAL, packed, n);
        volume_free(&v);
        read_refused("Z03", SHAPE PLACE "CompressedData = True\n" LOCAL, packed, n - 3);
        read_refused("N11", header, packed, n - 3);
        packed[n - 2] ^= 1; /* checksum */
        read_refused("Z04", header, packed, n);
    }
}

static void reads_detached_voxels(void **state)
{
    (void)state;
    struct error e;
    struct volume v;
    char junk[20] = "header..";
    const char *header = "x.mhd";
    memcpy(junk + 8, counting, 12);
    io_write_all("x.raw", 0600, junk, 20, &e);
    static const struct {
        const char *text, *id;
    } rows[] = {
        {SHAPE PLACE "ElementType = MET_UCHAR\nHeaderSize = 8\nElementDataFile = x.raw\n", NULL},
        {SHAPE PLACE "ElementType = MET_UCHAR\nHeaderSize = -1\nElementDataFile = ./x.raw", NULL},
        {SHAPE PLACE "ElementType = MET_UCHAR\nHeaderSize = 9\nElementDataFile = x.raw\n", "N11"},
        {SHAPE PLACE "ElementType = MET_UCHAR\nHeaderSize = 99\nElementDataFile = x.raw\n", "R10"},
        {SHAPE PLACE "ElementType = MET_UCHAR\nElementDataFile = x.mhd\n", "R09"},
        {SHAPE PLACE "ElementType = MET_UCHAR\nElementDataFile = ../x.raw\n", "R09"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        io_write_all(header, 0600, rows[i].text, strlen(rows[i].text), &e);
        int result = volume_read(&v, header, NULL, &e);
        if (rows[i].id) {
            assert_int_equal(result, -1);
            assert_string_equal(e.id, rows[i].id);
            continue;
        }
        if (result < 0)
            test_fail("%s", e.text);
        assert_memory_equal(v.data, counting, 12);
        volume_free(&v);
    }
}

static void skips_to_the_voxels(void **state)
{
    (void)state;
    struct volume v;
    char header[512], voxels[20] = "junkjunk";
    memcpy(voxels + 8, counting, 12);
    read_clean(&v, SHAPE PLACE "HeaderSize = -1\n" LOCAL, voxels, 20);
    assert_memory_equal(v.data, counting, 12);
    volume_free(&v);
    int n = snprintf(header, sizeof header, SHAPE PLACE "HeaderSize = %d\n" LOCAL, 100);
    assert_true(n > 100 && n + 8 < 1000);
    read_refused("R10", header, voxels, 20); /* inside the header */
    snprintf(header, sizeof header, SHAPE PLACE "HeaderSize = %d\n" LOCAL, n + 8);
    read_clean(&v, header, voxels, 20);
    assert_memory_equal(v.data, counting, 12);
    volume_free(&v);
}

static void refuses_bad_headers(void **state)
{
    (void)state;
    static const struct {
        const char *id, *header;
    } rows[] = {
        {"T01", "ObjectType = Mesh\nNDims = 3\nDimSize = 2 3 2\n" LOCAL},
        {"T02", "NDims = 1\nDimSize = 2\n" LOCAL},
        {"T02", "NDims = 5\nDimSize = 1 1 1 1 1\n" LOCAL},
        {"T02", "NDims = x\nDimSize = 2\n" LOCAL},
        {"T03", SHAPE "BinaryData = Maybe\n" LOCAL},
        {"T03", SHAPE "CompressedData = 2\n" LOCAL},
        {"T04", SHAPE "ElementByteOrderMSB = True\nBinaryDataByteOrderMSB = False\n" LOCAL},
        {"T05", SHAPE "CompressedData = True\nCompressedDataSize = -4\n" LOCAL},
        {"T06", SHAPE "HeaderSizePerSlice = 16\n" LOCAL},
        {"R02", "NDims = 3\nnonsense\n" LOCAL},
        {"R03", "NDims = 3\nDimSize = 2 3 2\n"},
        {"R03", "ObjectType = Image\nDimSize = 2 3 2\n" LOCAL},
        {"R03", "NDims = 3\n" LOCAL},
        {"R03", SHAPE "ElementDataFile = LOCAL\n"},
        {"R04", "NDims = 3\nDimSize = 2 3\n" LOCAL},
        {"R04", "NDims = 3\nDimSize = 2 3 2 2\n" LOCAL},
        {"R04", "NDims = 3\nDimSize = 2 0 2\n" LOCAL},
        {"R04", "NDims = 3\nDimSize = 2 1e3 2\n" LOCAL},
        {"R04", "NDims = 3\nDimSize = 2 -3 2\n" LOCAL},
        {"R04", SHAPE "ElementNumberOfChannels = 0\n" LOCAL},
        {"N09", "NDims = 3\nDimSize = 9000000000 9000000000 9000000000\nHeaderSize = -1\n" LOCAL},
        {"N10", "NDims = 3\nDimSize = 30000 30000 30000\n" LOCAL},
        {"R05", SHAPE "DimSize = 2 3 2\n" LOCAL},
        {"R06", SHAPE "ElementType = MET_UCHAR_ARRAY\nElementDataFile = LOCAL\n"},
        {"R06", SHAPE "ElementType = MET_STRING\nElementDataFile = LOCAL\n"},
        {"R07", SHAPE "BinaryData = False\n" LOCAL},
        {"R09", SHAPE "ElementType = MET_UCHAR\nElementDataFile = LIST\nx.raw\n"},
        {"R09", SHAPE "ElementType = MET_UCHAR\nElementDataFile = x%03d.raw 1 2 1\n"},
        {"R09", SHAPE "ElementType = MET_UCHAR\nElementDataFile = /etc/passwd\n"},
        {"R09", SHAPE "ElementType = MET_UCHAR\nElementDataFile =\n"},
        {"R10", SHAPE "HeaderSize = -2\n" LOCAL},
        {"R10", SHAPE "HeaderSize = -1\nCompressedData = True\n" LOCAL},
        {"R10", SHAPE "HeaderSize = 100000\n" LOCAL},
        {"R11", SHAPE "TransformMatrix = 1 0 0 0 1 0 0 0\n" LOCAL},
        {"R11", SHAPE "TransformMatrix = 1 0 0 0 1 0 0 0 nan\n" LOCAL},
        {"R11", SHAPE "TransformMatrix = 1 0 0 1 0 0 0 0 1\n" LOCAL},
        {"R11", SHAPE "Offset = 1 2\n" LOCAL},
        {"R11", SHAPE "ElementSpacing = 1 inf 1\n" LOCAL},
        {"R11", "NDims = 4\nDimSize = 1 1 1 1\n"
                "TransformMatrix = 1 0 0 1 0 1 0 0 0 0 1 0 0 0 0 1\n" LOCAL},
        {"N22", SHAPE "ElementSpacing = 1 0 1\n" LOCAL},
        {"N11", SHAPE PLACE LOCAL "01234567890"},
        {"N11", SHAPE PLACE "HeaderSize = -1\n" LOCAL "01234567890"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        read_refused(rows[i].id, rows[i].header, NULL, 0);
    read_refused("R13", SHAPE, "Comment = a\0b\n" LOCAL, 14 + strlen(LOCAL));
    read_refused("R02", SHAPE, "\0\1\2\3", 4);
}

/* What is read can be written as NRRD and comes back to the bit. */
static void survives_as_nrrd(void **state)
{
    (void)state;
    struct error e;
    struct volume v, back;
    const char *path = "x.nrrd";
    static const char *const headers[] = {
        SHAPE PLACE "ElementNumberOfChannels = 3\n" LOCAL,
        SHAPE "ElementSpacing = 0.1 0.2 0.3\nElementNumberOfChannels = 3\n" LOCAL};
    for (int i = 0; i < 2; i++) {
        assert_ok(read_memory(&v, headers[i], counting, 36, NULL, &e), e);
        assert_ok(volume_write(&v, path, &e), e);
        assert_ok(volume_read(&back, path, NULL, &e), e);
        check_equal(&v, &back);
        volume_free(&v);
        volume_free(&back);
    }
}

static void survives_lost_memory(void **state)
{
    (void)state;
    int refused = 0;
    for (int64_t k = 0; k < 100; k++) {
        struct volume v;
        struct error e;
        mem_fail_at(k, 0);
        int result =
            read_memory(&v, SHAPE PLACE "ElementNumberOfChannels = 3\n" LOCAL, counting, 36, NULL, &e);
        mem_fail_at(-1, 0);
        if (result == 0) {
            volume_free(&v);
            assert_true(refused >= 3);
            return;
        }
        assert_int_equal(e.code, ERR_MEMORY);
        refused++;
    }
    test_fail("memory never suffices");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_every_type),         cmocka_unit_test(reads_geometry),
        cmocka_unit_test(warns_of_what_is_missing), cmocka_unit_test(moves_channels_last),
        cmocka_unit_test(reads_compressed_voxels),  cmocka_unit_test(reads_detached_voxels),
        cmocka_unit_test(skips_to_the_voxels),      cmocka_unit_test(refuses_bad_headers),
        cmocka_unit_test(survives_as_nrrd),         cmocka_unit_test(survives_lost_memory),
    };
    return cmocka_run_group_tests(tests, test_folder_make, test_folder_remove);
}
