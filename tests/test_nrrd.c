/* test_nrrd.c - NRRD in and out: types, axes, spaces, detached files, refusals, round trips. */
#include <locale.h>

#include "volume/nrrd.h"
#include "volume_files.h"

/* A 2x3x2 file of bytes 0..11 in LPS, with room for more fields. */
#define GOOD_FIELDS "NRRD0004\ntype: uchar\ndimension: 3\nsizes: 2 3 2\nencoding: raw\n"
#define GOOD_SPACE                                                                                           \
    "space: LPS\nspace directions: (2,0,0) (0,3,0) (0,0,4)\n"                                                \
    "space origin: (10,20,30)\n"
#define GOOD GOOD_FIELDS GOOD_SPACE
static const unsigned char counting[256] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
                                            16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31,
                                            32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47};

static const double lps_affine[12] = {-2, 0, 0, -10, 0, -3, 0, -20, 0, 0, 4, 30};

static void reads_every_type_name(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        enum dtype dtype;
    } rows[] = {
        {"signed char", DTYPE_I8},
        {"int8", DTYPE_I8},
        {"int8_t", DTYPE_I8},
        {"uchar", DTYPE_U8},
        {"unsigned char", DTYPE_U8},
        {"uint8", DTYPE_U8},
        {"uint8_t", DTYPE_U8},
        {"short", DTYPE_I16},
        {"short int", DTYPE_I16},
        {"signed short", DTYPE_I16},
        {"signed short int", DTYPE_I16},
        {"int16", DTYPE_I16},
        {"int16_t", DTYPE_I16},
        {"ushort", DTYPE_U16},
        {"unsigned short", DTYPE_U16},
        {"unsigned short int", DTYPE_U16},
        {"uint16", DTYPE_U16},
        {"uint16_t", DTYPE_U16},
        {"int", DTYPE_I32},
        {"signed int", DTYPE_I32},
        {"int32", DTYPE_I32},
        {"int32_t", DTYPE_I32},
        {"uint", DTYPE_U32},
        {"unsigned int", DTYPE_U32},
        {"uint32", DTYPE_U32},
        {"uint32_t", DTYPE_U32},
        {"longlong", DTYPE_I64},
        {"long long", DTYPE_I64},
        {"long long int", DTYPE_I64},
        {"signed long long", DTYPE_I64},
        {"signed long long int", DTYPE_I64},
        {"int64", DTYPE_I64},
        {"int64_t", DTYPE_I64},
        {"ulonglong", DTYPE_U64},
        {"unsigned long long", DTYPE_U64},
        {"unsigned long long int", DTYPE_U64},
        {"uint64", DTYPE_U64},
        {"uint64_t", DTYPE_U64},
        {"float", DTYPE_F32},
        {"double", DTYPE_F64},
        {"Unsigned  Short", DTYPE_U16},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char header[512];
        struct volume v;
        snprintf(header, sizeof header,
                 "NRRD0005\ntype: %s\ndimension: 3\nsizes: 2 1 1\n"
                 "endian: little\n"
                 "encoding: raw\n" GOOD_SPACE "\n",
                 rows[i].name);
        unsigned char voxels[17] = "?@?@?@?@@?@?@?@?"; /* plausible numbers in every type */
        read_clean(&v, header, voxels, 2 * dtype_bytes(rows[i].dtype));
        assert_int_equal(v.dtype, rows[i].dtype);
        assert_memory_equal(v.data, voxels, 2 * dtype_bytes(v.dtype));
        volume_free(&v);
    }
}

static void swaps_bytes(void **state)
{
    (void)state;
    static const struct {
        const char *type;
        size_t each;
    } rows[] = {{"short", 2}, {"float", 4}, {"double", 8}, {"uint64", 8}};
    for (size_t r = 0; r < 4; r++) {
        unsigned char reversed[24];
        size_t each = rows[r].each;
        char header[512];
        for (size_t i = 0; i < 24; i++)
            reversed[i] = counting[i / each * each + each - 1 - i % each];
        struct volume v;
        snprintf(header, sizeof header,
                 "NRRD0005\ntype: %s\ndimension: 3\nsizes: %d 1 1\n"
                 "endian: BIG\n"
                 "encoding: raw\n" GOOD_SPACE "\n",
                 rows[r].type, (int)(24 / each));
        struct error e;
        assert_ok(read_memory(&v, header, reversed, 24, NULL, &e), e);
        assert_memory_equal(v.data, counting, 24);
        volume_free(&v);
    }
}

static void converts_spaces(void **state)
{
    (void)state;
    static const struct {
        const char *space;
        double x, y;
    } rows[] = {{"left-posterior-superior", -1, -1}, {"LPS", -1, -1},
                {"right-anterior-superior", 1, 1},   {"RAS", 1, 1},
                {"left-anterior-superior", -1, 1},   {"LAS", -1, 1},
                {"Left-Posterior-Superior", -1, -1}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char header[512];
        struct volume v;
        snprintf(header, sizeof header,
                 GOOD_FIELDS "space: %s\n"
                             "space directions: (1, 2,3) ( 4,-5,6 ) "
                             "(7,8,-10)\nspace origin: (10,20,30)\n\n",
                 rows[i].space);
        read_clean(&v, header, counting, 12);
        double x = rows[i].x, y = rows[i].y;
        const double expected[12] = {x, 4 * x, 7 * x, 10 * x, 2 * y, -5 * y, 8 * y, 20 * y, 3, 6, -10, 30};
        check_affine(&v.geometry, expected);
        assert_true(v.geometry.known);
        assert_float_equal(v.geometry.spacing_mm[0], sqrt(14), 1e-12);
        volume_free(&v);
    }
}

static void warns_of_unnamed_spaces(void **state)
{
    (void)state;
    struct volume v;
    static const double as_given[12] = {2, 0, 0, 10, 0, 3, 0, 20, 0, 0, 4, 30};
    const char *directions = "space directions: (2,0,0) (0,3,0) (0,0,4)\n"
                             "space origin: (10,20,30)\n\n";
    static const char *const unnamed[] = {"", "space dimension: 3\n", "space: 3D-right-handed\n",
                                          "space: 3D-left-handed\n"};
    char header[512];
    for (int i = 0; i < 4; i++) {
        snprintf(header, sizeof header, GOOD_FIELDS "%s%s", unnamed[i], directions);
        read_doubted(&v, "R12", header, counting, 12);
        assert_false(v.geometry.known);
        check_affine(&v.geometry, as_given);
        volume_free(&v);
    }
    snprintf(header, sizeof header, GOOD_FIELDS "space: scanner-xyz\n%s", directions);
    read_doubted(&v, "R12", header, counting, 12);
    assert_true(v.geometry.known);
    check_affine(&v.geometry, lps_affine);
    volume_free(&v);
    read_doubted(&v, "R12", GOOD_FIELDS "\n", counting, 12);
    static const double identity[12] = {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0};
    check_affine(&v.geometry, identity);
    volume_free(&v);
}

/* Value at (i, j, k, t) must be the byte that stood at that place of the file. */
static void check_axes(const char *sizes, const char *directions, const int64_t dims[4],
                       const int file_stride[4])
{
    struct volume v;
    char header[512];
    snprintf(header, sizeof header,
             "NRRD0004\ntype: uchar\ndimension: %d\nsizes: %s\n"
             "encoding: raw\n"
             "space: RAS\nspace directions: %s\n\n",
             4, sizes, directions);
    read_clean(&v, header, counting, 48);
    assert_int_equal(v.n_dims, 4);
    assert_memory_equal(v.dims, dims, 4 * sizeof dims[0]);
    const unsigned char *got = v.data;
    for (int64_t t = 0; t < dims[3]; t++)
        for (int64_t k = 0; k < dims[2]; k++)
            for (int64_t j = 0; j < dims[1]; j++)
                for (int64_t i = 0; i < dims[0]; i++)
                    assert_int_equal(*got++, i * file_stride[0] + j * file_stride[1] + k * file_stride[2] +
                                                 t * file_stride[3]);
    static const double diagonal[12] = {2, 0, 0, 0, 0, 3, 0, 0, 0, 0, 4, 0};
    check_affine(&v.geometry, diagonal);
    volume_free(&v);
}

static void moves_channels_last(void **state)
{
    (void)state;
    check_axes("3 2 4 2", "none (2,0,0) (0,3,0) (0,0,4)", (int64_t[]){2, 4, 2, 3}, (int[]){3, 6, 24, 1});
    check_axes("2 3 4 2", "(2,0,0) none (0,3,0) (0,0,4)", (int64_t[]){2, 4, 2, 3}, (int[]){1, 6, 24, 2});
    check_axes("2 4 2 3", "(2,0,0) (0,3,0) (0,0,4) none", (int64_t[]){2, 4, 2, 3}, (int[]){1, 2, 8, 16});
    check_axes("2 4 3 2", "(2,0,0) (0,3,0) none (0,0,4)", (int64_t[]){2, 4, 2, 3}, (int[]){1, 2, 24, 8});
}

static void moves_every_width(void **state)
{
    (void)state;
    static const char *const types[] = {"uint8", "uint16", "uint32", "uint64"};
    for (int w = 0; w < 4; w++) {
        size_t each = (size_t)1 << w;
        char header[512];
        struct volume v;
        snprintf(header, sizeof header,
                 "NRRD0004\ntype: %s\ndimension: 4\nsizes: 2 3 1 1\n"
                 "endian: little\n"
                 "encoding: raw\nspace: RAS\nspace directions: none (1,0,0) (0,1,0) (0,0,1)\n\n",
                 types[w]);
        read_clean(&v, header, counting, 6 * each);
        for (size_t i = 0; i < 3; i++)
            for (size_t t = 0; t < 2; t++)
                assert_memory_equal((char *)v.data + (i + 3 * t) * each, counting + (t + 2 * i) * each, each);
        volume_free(&v);
    }
}

static void reads_kinds_and_flat_images(void **state)
{
    (void)state;
    struct volume v;
    const char *colour = "NRRD0004\ntype: uchar\ndimension: 3\nsizes: 3 2 4\nencoding: raw\n"
                         "space: LPS\n"
                         "kinds: RGB-color domain domain\nspacings: NaN 2 3\n\n";
    read_clean(&v, colour, counting, 24);
    const int64_t dims[4] = {2, 4, 1, 3};
    assert_memory_equal(v.dims, dims, sizeof dims);
    assert_int_equal(((unsigned char *)v.data)[1], 3);
    assert_float_equal(v.geometry.spacing_mm[1], 3, 0);
    volume_free(&v);
    const char *slice = "NRRD0004\ntype: uchar\ndimension: 2\nsizes: 3 4\nencoding: raw\n"
                        "space: RAS\n"
                        "space directions: (0,2,0) (0,0,3)\n\n";
    read_clean(&v, slice, counting, 12);
    static const double lying[12] = {0, 0, 1, 0, 2, 0, 0, 0, 0, 3, 0, 0};
    check_affine(&v.geometry, lying);
    assert_int_equal(v.n_dims, 2);
    volume_free(&v);
    const char *time = "NRRD0004\ntype: uchar\ndimension: 4\nsizes: 2 2 2 3\nencoding: raw\n"
                       "space: RAST\n"
                       "space directions: (1,0,0,0) (0,1,0,0) (0,0,1,0) (0,0,0,5)\n"
                       "space origin: (1,2,3,4)\n\n";
    read_clean(&v, time, counting, 24);
    assert_int_equal(v.dims[3], 3);
    assert_float_equal(v.geometry.affine[2][3], 3, 0);
    volume_free(&v);
    read_doubted(&v, "R12",
                 "NRRD0002\ntype: uchar\ndimension: 4\nsizes: 2 2 2 3\nencoding: raw\n"
                 "spacings: nan 2 3 4\n\n",
                 counting, 24);
    assert_int_equal(v.dims[3], 2);
    assert_float_equal(v.geometry.spacing_mm[0], 2, 0);
    volume_free(&v);
}

static void converts_units(void **state)
{
    (void)state;
    struct volume v;
    read_clean(&v, GOOD "space units: \"cm\" \"um\" \"m\"\n\n", counting, 12);
    const double expected[12] = {-20, 0, 0, -100, 0, -0.003, 0, -0.02, 0, 0, 4000, 30000};
    check_affine(&v.geometry, expected);
    volume_free(&v);
    read_clean(&v, GOOD "space units: \"mm\" \"\" \"millimeters\"\n\n", counting, 12);
    check_affine(&v.geometry, lps_affine);
    volume_free(&v);
    read_doubted(&v, "N23", GOOD "space units: \"mm\" \"mm\" \"furlong\"\n\n", counting, 12);
    check_affine(&v.geometry, lps_affine);
    volume_free(&v);
    read_clean(&v,
               GOOD_FIELDS "space: RAS\nspacings: 1 2 3\n"
                           "units: \"cm\" \"mm\"\n\n",
               counting, 12);
    assert_float_equal(v.geometry.spacing_mm[0], 10, 0);
    assert_float_equal(v.geometry.spacing_mm[2], 3, 0);
    volume_free(&v);
    read_doubted(&v, "N22", GOOD_FIELDS "space: RAS\nspacings: 1 -2 3\n\n", counting, 12);
    assert_float_equal(v.geometry.spacing_mm[1], 2, 0);
    volume_free(&v);
}

static void tolerates_odd_lines(void **state)
{
    (void)state;
    struct volume v;
    read_clean(&v,
               "NRRD0004\r\n# a comment\r\ntype: uchar\r\nDimension:3\r\nsizes:  2\t3 2 \r\n"
               "a key:=type: float\r\nx:y:=1\r\nEncoding: RAW\r\ncontent: what: ever\r\n"
               "space: LPS\r\n"
               "space directions: (2,0,0) (0,3,0) (0,0,4)\r\nspace origin: (10,20,30)\r\n\r\n",
               counting, 12);
    check_affine(&v.geometry, lps_affine);
    assert_memory_equal(v.data, counting, 12);
    volume_free(&v);
}

static void skips_lines_and_bytes(void **state)
{
    (void)state;
    static const struct {
        const char *skip, *before;
    } rows[] = {{"line skip: 2\n", "one\ntwo\n"},
                {"lineskip: 1\nbyteskip: 3\n", "one\nabc"},
                {"byte skip: 5\n", "12345"},
                {"byte skip: -1\n", "anything at all\n"},
                {"line skip: 1\nbyte skip: -1\n", "one\nmore"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char header[512];
        struct volume v;
        snprintf(header, sizeof header, GOOD "%s\n%s", rows[i].skip, rows[i].before);
        read_clean(&v, header, counting, 12);
        assert_memory_equal(v.data, counting, 12);
        volume_free(&v);
    }
    unsigned char raw[16] = "abcd", packed[128] = "line\n"; /* lines before, bytes after decoding */
    memcpy(raw + 4, counting, 12);
    size_t n = 5 + deflate_bytes(packed + 5, sizeof packed - 5, raw, 16, 31);
    struct volume v;
    read_clean(&v,
               "NRRD0004\ntype: uchar\ndimension: 3\nsizes: 2 3 2\nencoding: gz\nline skip: 1\n"
               "byte skip: 4\n" GOOD_SPACE "\n",
               packed, n);
    assert_memory_equal(v.data, counting, 12);
    volume_free(&v);
}

static void refuses_bad_headers(void **state)
{
    (void)state;
    static const struct {
        const char *id, *header;
    } rows[] = {
        {"R01", "NRRD0006\ntype: uchar\n\n"},
        {"R01", "NRRD00.01\n\n"},
        {"R01", "NRRD"},
        {"R02", GOOD},
        {"R02", "NRRD0004\ntype: uchar\nnot a field\n\n"},
        {"R03", "NRRD0004\ntype: uchar\nsizes: 2 3 2\nencoding: raw\n\n"},
        {"R03", "NRRD0004\ntype: uchar\ndimension: 3\nencoding: raw\n\n"},
        {"R03", "NRRD0004\ndimension: 3\nsizes: 2 3 2\nencoding: raw\n\n"},
        {"R03", "NRRD0004\ntype: uchar\ndimension: 3\nsizes: 2 3 2\n\n"},
        {"R04", "NRRD0004\ntype: uchar\ndimension: 8\nsizes: 2 3 2 1 1 1 1 1\nencoding: raw\n\n"},
        {"R04", "NRRD0004\ntype: uchar\ndimension: 0\nsizes:\nencoding: raw\n\n"},
        {"R04", "NRRD0004\ntype: uchar\ndimension: 3\nsizes: 2 3\nencoding: raw\n\n"},
        {"R04", "NRRD0004\ntype: uchar\ndimension: 3\nsizes: 2 3 2 1\nencoding: raw\n\n"},
        {"R04", "NRRD0004\ntype: uchar\ndimension: 3\nsizes: 2 0 2\nencoding: raw\n\n"},
        {"R04", "NRRD0004\ntype: uchar\ndimension: 3\nsizes: 2 -3 2\nencoding: raw\n\n"},
        {"R04", "NRRD0004\ntype: uchar\ndimension: 3\nsizes: 2 1e9 2\nencoding: raw\n\n"},
        {"R04", "NRRD0004\ntype: uchar\ndimension: 3\nsizes: 9223372036854775808 1 1\n"
                "encoding: raw\n\n"},
        {"R04", "NRRD0004\ntype: uchar\ndimension: 2\nsizes: 2 2\nkinds: list vector\n"
                "encoding: raw\n\n"},
        {"R04", "NRRD0004\ntype: uchar\ndimension: 2\nsizes: 2 2\nkinds: domain\n"
                "encoding: raw\n\n"},
        {"R04", "NRRD0004\ntype: uchar\ndimension: 6\nsizes: 1 1 1 1 1 1\nencoding: raw\n"
                "kinds: domain list list list list list\n\n"},
        {"N09", "NRRD0004\ntype: uchar\ndimension: 3\nsizes: 9000000000 9000000000 9000000000\n"
                "encoding: raw\n\n"},
        {"N09", "NRRD0004\ntype: uchar\ndimension: 3\nsizes: 9000000000 9000000000 9000000000\n"
                "encoding: raw\nbyte skip: -1\n\n"},
        {"N10", "NRRD0004\ntype: uchar\ndimension: 3\nsizes: 30000 30000 30000\nencoding: raw\n\n"},
        {"R05", GOOD "sizes: 2 3 2\n\n"},
        {"R05", GOOD "Space Origin: (0,0,0)\n\n"},
        {"R06", "NRRD0004\ntype: block\ndimension: 3\nsizes: 2 3 2\nencoding: raw\n\n"},
        {"R06", "NRRD0004\ntype: char\ndimension: 3\nsizes: 2 3 2\nencoding: raw\n\n"},
        {"R06", "NRRD0004\ntype: unsigned charm\ndimension: 3\nsizes: 2 3 2\nencoding: raw\n\n"},
        {"R07", "NRRD0004\ntype: uchar\ndimension: 3\nsizes: 2 3 2\nencoding: bzip2\n\n"},
        {"R07", "NRRD0004\ntype: uchar\ndimension: 3\nsizes: 2 3 2\nencoding: ascii\n\n"},
        {"R07", "NRRD0004\ntype: uchar\ndimension: 3\nsizes: 2 3 2\nencoding: hex\n\n"},
        {"R08", "NRRD0004\ntype: short\ndimension: 3\nsizes: 2 3 2\nencoding: raw\n\n"},
        {"R08", "NRRD0004\ntype: short\ndimension: 3\nsizes: 2 3 2\nencoding: raw\n"
                "endian: middle\n\n"},
        {"R09", GOOD "data file: /etc/passwd\n"},
        {"R09", GOOD "data file: ../x.raw\n"},
        {"R09", GOOD "data file: sub/x.raw\n"},
        {"R09", GOOD "data file: x%03d.raw 0 9 1\n"},
        {"R09", GOOD "data file: LIST\nx.raw\n"},
        {"R09", GOOD "data file: LIST 2\n"},
        {"R09", GOOD "data file: memory\n"},
        {"R09", GOOD "data file: .\n"},
        {"R09", GOOD "data file:\n"},
        {"R10", GOOD "byte skip: -2\n\n"},
        {"R10", GOOD "byte skip: 1.5\n\n"},
        {"R10", GOOD "byte skip: 1000000\n\n"},
        {"R10", GOOD "line skip: -1\n\n"},
        {"R10", GOOD "line skip: 1000000000\n\n"},
        {"R10", GOOD "line skip: 5\n\n"},
        {"R10", "NRRD0004\ntype: uchar\ndimension: 3\nsizes: 2 3 2\nencoding: gzip\n"
                "byte skip: -1\n\n"},
        {"R10", "NRRD0004\ntype: uchar\ndimension: 3\nsizes: 2 3 2\nencoding: gzip\n"
                "byte skip: 100000000\n\n"},
        {"R11", GOOD_FIELDS "space: LPS\nspace directions: (2,0,0) none (0,0,4)\n\n"},
        {"R11", GOOD_FIELDS "space: LPS\nspace directions: (2,0,0) (0,nan,0) (0,0,4)\n\n"},
        {"R11", GOOD_FIELDS "space: LPS\nspace directions: (2,0,0) (0,inf,0) (0,0,4)\n\n"},
        {"R11", GOOD_FIELDS "space: LPS\nspace directions: (2,0,0) (0,1,0)\n\n"},
        {"R11", GOOD_FIELDS "space: LPS\nspace directions: (2,0,0) (0,1,0) (0,0,1) (0,0,1)\n\n"},
        {"R11", GOOD_FIELDS "space: LPS\nspace directions: (2,0) (0,1) (0,0)\n\n"},
        {"R11", GOOD_FIELDS "space: LPS\nspace directions: (2,0,0) (0,1,0) (0,0,1\n\n"},
        {"R11", GOOD_FIELDS "space: LPS\nspace directions: (2,0,0) (0,1,0) (0,0,1,1,1)\n\n"},
        {"R11", GOOD_FIELDS "space: LPS\nspace directions: (2,0,0) (4,0,0) (0,0,1)\n\n"},
        {"R11", GOOD_FIELDS "space: LPS\n"
                            "space directions: (1e200,0,0) (0,1e200,0) (0,0,1e200)\n\n"},
        {"R11", GOOD_FIELDS "space: LPS\nspace origin: (1,2)\n\n"},
        {"R11", GOOD_FIELDS "space: LPST\nspace directions: (1,0,0,1) (0,1,0,0) (0,0,1,0)\n\n"},
        {"R11", GOOD_FIELDS "space: LPS\nspacings: 1 2\n\n"},
        {"R11", GOOD_FIELDS "space: LPS\nspacings: 1 2 3 4\n\n"},
        {"N22", GOOD_FIELDS "space: LPS\nspacings: 1 0 3\n\n"},
        {"R12", GOOD_FIELDS "space: sideways\n\n"},
        {"R12", GOOD_FIELDS "space: LPS\nspace dimension: 2\n\n"},
        {"R12", GOOD_FIELDS "space dimension: 9\n\n"},
        {"R14", GOOD "\n01234567890"},
        {"R14", GOOD "byte skip: -1\n\n01234567890"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        read_refused(rows[i].id, rows[i].header, NULL, 0);
}

static void refuses_floods_and_binary(void **state)
{
    (void)state;
    char *big = malloc(200000);
    assert_non_null(big);
    size_t n = (size_t)sprintf(big, "%s", GOOD);
    memset(big + n, 'x', 20000);
    memcpy(big + n, "content: ", 9);
    strcpy(big + n + 20000, "\n\n");
    read_refused("R02", big, counting, 12); /* a long line */
    for (int i = 0; i < 80; i++)
        memset(big + n + i * 1000, '#', 999), big[n + (size_t)i * 1000 + 999] = '\n';
    strcpy(big + n + 80000, "\n");
    read_refused("R02", big, counting, 12); /* a long header */
    for (int i = 0; i < 5000; i++)
        sprintf(big + n + i * 8, "k%04d:=\n", i);
    strcpy(big + n + 5000 * 8, "\n");
    read_refused("R13", big, counting, 12); /* many keys */
    for (int i = 0; i < 2000; i++)
        sprintf(big + n + i * 8, "k%04d: \n", i);
    strcpy(big + n + 2000 * 8, "\n");
    read_refused("R13", big, counting, 12); /* many fields */
    free(big);
    read_refused("R13", GOOD, "content: a\0b\n\n0123456789ab", 25);
    read_refused("R13", GOOD, "# a\0b\n\n0123456789ab", 18);
    read_refused("R02", GOOD, counting, 12); /* voxels without a blank line */
}

static void warns_of_more_bytes(void **state)
{
    (void)state;
    struct volume v;
    read_doubted(&v, "N12", GOOD "\n", counting, 20);
    assert_memory_equal(v.data, counting, 12);
    volume_free(&v);
}

static void reads_detached_voxels(void **state)
{
    (void)state;
    struct error e;
    struct volume v;
    char packed[128];
    const char *header = "x.nhdr";
    size_t n = deflate_bytes((unsigned char *)packed, sizeof packed, counting, 12, 31);
    io_write_all("x.raw", 0600, counting, 12, &e);
    io_write_all("x.raw.gz", 0600, packed, n, &e);
    static const char *const texts[] = {
        GOOD "data file: x.raw\n", GOOD "datafile: ./x.raw\n\n",
        "NRRD0004\ntype: uchar\ndimension: 3\nsizes: 2 3 2\nencoding: gzip\n" GOOD_SPACE
        "data file: x.raw.gz"};
    for (int i = 0; i < 3; i++) {
        io_write_all(header, 0600, texts[i], strlen(texts[i]), &e);
        assert_ok(volume_read(&v, header, NULL, &e), e);
        assert_memory_equal(v.data, counting, 12);
        volume_free(&v);
    }
    static const struct {
        const char *text, *id, *name;
    } bad[] = {{GOOD "data file: x.nhdr\n", "R09", "x.nhdr"},
               {GOOD "data file: x.link\n", "R09", "x.link"},
               {GOOD "data file: gone.raw\n", NULL, "gone.raw"},
               {"NRRD0004\ntype: uchar\ndimension: 3\nsizes: 2 3 3\nencoding: raw\n"
                "data file: x.raw\n",
                "R14", "x.raw: "}};
    assert_int_equal(symlink("/etc/passwd", "x.link"), 0);
    for (int i = 0; i < 4; i++) {
        io_write_all(header, 0600, bad[i].text, strlen(bad[i].text), &e);
        assert_int_equal(volume_read(&v, header, NULL, &e), -1);
        assert_says(e.text, bad[i].name);
        assert_ptr_equal(strstr(e.text, header), e.text);
        if (bad[i].id)
            assert_string_equal(e.id, bad[i].id);
    }
}

/* ---- writing ---- */

static struct volume random_volume(enum dtype t, int known, unsigned seed)
{
    struct volume v;
    struct error e;
    const int64_t dims[3] = {5, 4, 3};
    double affine[3][4];
    for (int i = 0; i < 12; i++) {
        seed = seed * 1664525u + 1013904223u;
        affine[i / 4][i % 4] = ((double)seed / 4294967296.0 - 0.5) / 3.0 + (i % 5 == 0 ? 1.0 : 0.0);
    }
    assert_ok(volume_new(&v, t, dims, NULL, &e), e);
    geometry_from_affine(&v.geometry, (const double(*)[4])affine);
    v.geometry.known = known;
    for (size_t i = 0; i < 60 * dtype_bytes(t); i++) {
        seed = seed * 1664525u + 1013904223u;
        ((unsigned char *)v.data)[i] = (unsigned char)(seed >> 24);
    }
    return v;
}

static void round_trips_to_the_bit(void **state)
{
    (void)state;
    struct error e;
    for (int i = 0; i < 40; i++) {
        struct volume v = random_volume((enum dtype)(i % 10), i / 20, (unsigned)i), back;
        if (i % 3 == 1) { /* the same voxels as channels */
            const int64_t dims[5] = {5, 2, 1, 3, 2};
            v.n_dims = 5;
            memcpy(v.dims, dims, sizeof dims);
        }
        if (i / 10 % 2) {
            assert_ok(nrrd_write(&v, "x.nrrd", &e), e);
            assert_ok(volume_read(&back, "x.nrrd", NULL, &e), e);
        } else {
            char *header;
            assert_ok(nrrd_header(&header, &v, 0, &e), e);
            assert_ok(read_memory(&back, header, v.data, volume_bytes(&v), NULL, &e), e);
            mem_free(header);
        }
        check_equal(&v, &back);
        assert_int_equal(v.n_dims, back.n_dims);
        volume_free(&v);
        volume_free(&back);
    }
}

/* A program that embeds falx may have set a locale with a decimal comma. */
static void writes_points_in_every_locale(void **state)
{
    (void)state;
    struct error e;
    struct volume v = random_volume(DTYPE_U8, 1, 7), back;
    setenv("LOCPATH", test_folder, 1);
    if (system("localedef -i de_DE -f UTF-8 ./de_DE.UTF-8 >/dev/null 2>&1") != 0 ||
        !setlocale(LC_NUMERIC, "de_DE.UTF-8")) {
        volume_free(&v);
        skip(); /* no sources of locales here */
    }
    int written = nrrd_write(&v, "x.nrrd", &e);
    setlocale(LC_NUMERIC, "C");
    assert_ok(written, e);
    assert_ok(volume_read(&back, "x.nrrd", NULL, &e), e);
    check_equal(&v, &back);
    volume_free(&v);
    volume_free(&back);
}

static void writes_scaled_values(void **state)
{
    (void)state;
    struct error e;
    const char *path = "x.nrrd";
    for (int i = 0; i < 2; i++) {
        struct volume v = random_volume(i ? DTYPE_I32 : DTYPE_I16, 1, 7), back;
        v.slope = 0.25;
        v.inter = -1024;
        assert_ok(volume_write(&v, path, &e), e);
        assert_ok(volume_read(&back, path, NULL, &e), e);
        assert_int_equal(back.dtype, i ? DTYPE_F64 : DTYPE_F32);
        for (int64_t k = 0; k < 60; k++)
            assert_true(volume_value(&v, k) == volume_value(&back, k));
        volume_free(&v);
        volume_free(&back);
    }
}

static void writes_segmentations(void **state)
{
    (void)state;
    char *text;
    struct error e;
    struct volume v, back;
    const int64_t dims[3] = {4, 3, 2};
    float *x;
    const char *path = "x.seg.nrrd";
    assert_ok(volume_new(&v, DTYPE_F32, dims, NULL, &e), e);
    x = v.data;
    x[1] = x[6] = 2; /* (1,0,0) (2,1,0) */
    x[23] = 255;     /* (3,2,1) */
    assert_ok(volume_write(&v, path, &e), e);
    assert_ok(volume_read(&back, path, NULL, &e), e);
    assert_int_equal(back.dtype, DTYPE_U8);
    for (int64_t i = 0; i < 24; i++)
        assert_true(volume_value(&back, i) == (double)x[i]);
    volume_free(&back);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    text = calloc(1, 65536);
    assert_true(fread(text, 1, 65535, f) > 0);
    fclose(f);
    static const char *const keys[] = {"\nSegment0_ID:=Segment_2\n",
                                       "\nSegment0_Name:=class 2\n",
                                       "\nSegment0_LabelValue:=2\n",
                                       "\nSegment0_Layer:=0\n",
                                       "\nSegment0_Extent:=1 2 0 1 0 0\n",
                                       "\nSegment0_Color:=1.00 0.00 0.00\n",
                                       "\nSegment1_LabelValue:=255\n",
                                       "\nSegment1_Extent:=3 3 2 2 1 1\n",
                                       "\nSegmentation_MasterRepresentation:=Binary labelmap\n"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (!strstr(text, keys[i]))
            test_fail("missing: %s", keys[i]);
    assert_null(strstr(text, "Segment2_"));
    free(text);
    x[23] = 300; /* needs 16 bits */
    assert_ok(volume_write(&v, path, &e), e);
    assert_ok(volume_read(&back, path, NULL, &e), e);
    assert_int_equal(back.dtype, DTYPE_U16);
    assert_true(volume_value(&back, 23) == 300);
    volume_free(&back);
    x[23] = 1.5f;
    assert_refused(volume_write(&v, path, &e), e, ERR_DATA, "L05");
    assert_ptr_equal(strstr(e.text, path), e.text);
    volume_free(&v);
}

static void refuses_too_many_segments(void **state)
{
    (void)state;
    struct error e;
    struct volume v;
    const int64_t dims[3] = {2000, 1, 1};
    assert_ok(volume_new(&v, DTYPE_U16, dims, NULL, &e), e);
    for (int i = 0; i < 2000; i++)
        ((uint16_t *)v.data)[i] = (uint16_t)i;
    assert_int_equal(volume_write(&v, "never-made.seg.nrrd", &e), -1);
    assert_says(e.text, "never-made.seg.nrrd: ", "classes");
    assert_false(io_exists("never-made.seg.nrrd"));
    volume_free(&v);
}

/* ---- failures around the parser ---- */

static void survives_lost_memory(void **state)
{
    (void)state;
    const char *header = "NRRD0004\ntype: uchar\ndimension: 4\nsizes: 3 2 2 1\nencoding: raw\n"
                         "space: RAS\n"
                         "space directions: none (1,0,0) (0,1,0) (0,0,1)\n\n";
    int refused = 0;
    for (int64_t k = 0; k < 100; k++) {
        struct volume v;
        struct error e;
        mem_fail_at(k, 0);
        int result = read_memory(&v, header, counting, 12, NULL, &e);
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

static void refuses_every_prefix(void **state)
{
    (void)state;
    const char *good = GOOD "\n";
    size_t n = strlen(good);
    for (size_t cut = 4; cut < n; cut++) {
        char header[512];
        struct volume v;
        struct error e;
        memcpy(header, good, cut);
        header[cut] = '\0';
        assert_int_equal(read_memory(&v, header, NULL, 0, NULL, &e), -1);
        assert_true(e.id[0] == 'R');
    }
    for (size_t cut = 0; cut < 12; cut++)
        read_refused("R14", good, counting, cut);
}

static void reads_headers_alone(void **state)
{
    (void)state;
    struct volume v;
    struct error e;
    struct volume_request r = {.part = VOLUME_HEADER_ONLY};
    const char *header = "NRRD0004\ntype: uchar\ndimension: 4\nsizes: 3 2 2 1\nencoding: raw\n"
                         "space: RAS\n"
                         "space directions: none (1,0,0) (0,1,0) (0,0,1)\n\n";
    assert_ok(read_memory(&v, header, counting, 12, &r, &e), e);
    assert_null(v.data);
    const int64_t dims[4] = {2, 2, 1, 3};
    assert_memory_equal(v.dims, dims, sizeof dims);
    volume_free(&v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_every_type_name),
        cmocka_unit_test(swaps_bytes),
        cmocka_unit_test(converts_spaces),
        cmocka_unit_test(warns_of_unnamed_spaces),
        cmocka_unit_test(moves_channels_last),
        cmocka_unit_test(moves_every_width),
        cmocka_unit_test(reads_kinds_and_flat_images),
        cmocka_unit_test(converts_units),
        cmocka_unit_test(tolerates_odd_lines),
        cmocka_unit_test(skips_lines_and_bytes),
        cmocka_unit_test(refuses_bad_headers),
        cmocka_unit_test(refuses_floods_and_binary),
        cmocka_unit_test(warns_of_more_bytes),
        cmocka_unit_test(reads_detached_voxels),
        cmocka_unit_test(round_trips_to_the_bit),
        cmocka_unit_test(writes_scaled_values),
        cmocka_unit_test(writes_segmentations),
        cmocka_unit_test(refuses_too_many_segments),
        cmocka_unit_test(survives_lost_memory),
        cmocka_unit_test(refuses_every_prefix),
        cmocka_unit_test(reads_headers_alone),
        cmocka_unit_test(writes_points_in_every_locale),
    };
    return cmocka_run_group_tests(tests, test_folder_make, test_folder_remove);
}
