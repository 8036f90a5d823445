/* faults_nrrd.c - R01 to R14: NRRD headers and their voxels. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "faults.h"

/* A sound file in pieces: 2x3x2 bytes in LPS. */
#define MAGIC "NRRD0004\n"
#define TYPE "type: uchar\n"
#define SHAPE "dimension: 3\nsizes: 2 3 2\n"
#define SPACE "space: LPS\nspace directions: (2,0,0) (0,3,0) (0,0,4)\nspace origin: (10,20,30)\n"
#define RAW "encoding: raw\n"
#define GOOD MAGIC TYPE SHAPE SPACE RAW
#define VOXELS "0123456789ab"

static void refused(const char *text, const char *reason)
{
    put_text("bad.nrrd", text);
    run("info", "bad.nrrd", NULL);
    expect_refusal(3, "bad.nrrd", reason);
}

static void accepted(const char *text, const char *warning)
{
    put_text("good.nrrd", text);
    run("info", "good.nrrd", NULL);
    expect_accepted(warning);
    expect_output("2 x 3 x 2 voxels");
}

static void r01(void)
{
    refused("NRRD0006\n" TYPE SHAPE RAW "\n" VOXELS, "magic");
    refused("NRRD0000\n" TYPE SHAPE RAW "\n" VOXELS, "magic");
    refused("NRRD\n" TYPE SHAPE RAW "\n" VOXELS, "magic");
    refused("NRRD00041\n" TYPE SHAPE RAW "\n" VOXELS, "magic");
    accepted("NRRD0001\n" TYPE SHAPE SPACE RAW "\n" VOXELS, NULL);
}

static void r02(void)
{
    refused(GOOD, "");
    refused(GOOD "0123456789ab", "");
    char *text = malloc(100000);
    expect(text != NULL);
    size_t n = (size_t)sprintf(text, "%s", GOOD "content: ");
    memset(text + n, 'x', 20000);
    strcpy(text + n + 20000, "\n\n" VOXELS);
    refused(text, "16384");
    n = (size_t)sprintf(text, "%s", GOOD);
    while (n < 70000)
        n += (size_t)sprintf(text + n, "# one more line of comment\n");
    strcpy(text + n, "\n" VOXELS);
    refused(text, "65536");
    free(text);
}

static void r03(void)
{
    refused(MAGIC TYPE "sizes: 2 3 2\n" RAW "\n" VOXELS, "\"dimension\"");
    refused(MAGIC TYPE "dimension: 3\n" RAW "\n" VOXELS, "\"sizes\"");
    refused(MAGIC SHAPE RAW "\n" VOXELS, "\"type\"");
    refused(MAGIC TYPE SHAPE "\n" VOXELS, "\"encoding\"");
}

static void r04(void)
{
    refused(MAGIC TYPE RAW "dimension: 3\nsizes: 2 3\n\n" VOXELS, "3 integers");
    refused(MAGIC TYPE RAW "dimension: 2\nsizes: 2 3 2\n\n" VOXELS, "2 integers");
    refused(MAGIC TYPE RAW "dimension: 3\nsizes: 2 0 2\n\n" VOXELS, "sizes[1]=0");
    refused(MAGIC TYPE RAW "dimension: 3\nsizes: 2 -3 2\n\n" VOXELS, "sizes[1]=-3");
    refused(MAGIC TYPE RAW "dimension: 3\nsizes: 2 1e9 2\n\n" VOXELS, "3 integers");
    refused(MAGIC TYPE RAW "dimension: 3\nsizes: 9223372036854775808 1 1\n\n" VOXELS, "3 integers");
    refused(MAGIC TYPE RAW "dimension: 0\nsizes:\n\n" VOXELS, "1..7");
    refused(MAGIC TYPE RAW "dimension: 17\nsizes: 1\n\n" VOXELS, "1..7");
}

static void r05(void)
{
    refused(GOOD "sizes: 2 3 2\n\n" VOXELS, "sizes");
    refused(GOOD "Type: uchar\n\n" VOXELS, "ype");
    refused(GOOD "data file: a.raw\ndatafile: a.raw\n\n", "datafile");
}

static void r06(void)
{
    refused(MAGIC "type: block\nblock size: 1\n" SHAPE RAW "\n" VOXELS, "\"block\"");
    refused(MAGIC "type: unsigend char\n" SHAPE RAW "\n" VOXELS, "unsigend");
    refused(MAGIC "type:\n" SHAPE RAW "\n" VOXELS, "type");
}

static void r07(void)
{
    static const char *const names[] = {"text", "ascii", "txt", "hex", "bzip2", "bz2", "zrl"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char text[256], quoted[32];
        snprintf(text, sizeof text, MAGIC TYPE SHAPE SPACE "encoding: %s\n\n" VOXELS, names[i]);
        snprintf(quoted, sizeof quoted, "\"%s\"", names[i]);
        refused(text, quoted);
    }
}

static void r08(void)
{
    refused(MAGIC "type: short\n" SHAPE SPACE RAW "\n" VOXELS VOXELS, "\"endian\"");
    refused(MAGIC "type: short\nendian: middle\n" SHAPE SPACE RAW "\n" VOXELS VOXELS, "middle");
    accepted(GOOD "\n" VOXELS, NULL); /* bytes need none */
}

static void r09(void)
{
    put_text("a.raw", VOXELS);
    put_folder("sub");
    put_text("sub/b.raw", VOXELS);
    refused(GOOD "data file: /etc/hostname\n", "\"/etc/hostname\"");
    refused(GOOD "data file: ../a.raw\n", "\"../a.raw\"");
    refused(GOOD "data file: sub/b.raw\n", "\"sub/b.raw\"");
    refused(GOOD "data file: ..\n", "\"..\"");
    refused(GOOD "data file: a%03d.raw 1 9 1\n", "a%03d.raw");
    refused(GOOD "data file: LIST\na.raw\n", "LIST");
    refused(GOOD "data file: LIST 2\na.raw\n", "LIST");
    refused(GOOD "data file: bad.nrrd\n", "bad.nrrd");
    expect(symlink("/etc/hostname", "link.raw") == 0);
    refused(GOOD "data file: link.raw\n", "link");
    char *list = malloc(9000000);
    expect(list != NULL);
    size_t n = (size_t)sprintf(list, "%s", GOOD "data file: LIST\n");
    for (int i = 0; i < 1000000; i++)
        n += (size_t)sprintf(list + n, "%06d\n", i);
    refused(list, "LIST");
    free(list);
    accepted(GOOD "data file: a.raw\n", NULL);
}

static void r10(void)
{
    refused(MAGIC TYPE SHAPE SPACE "encoding: gzip\nbyte skip: -1\n\n" VOXELS, "gzip");
    refused(GOOD "byte skip: -2\n\n" VOXELS, "-2");
    refused(GOOD "byte skip: 1000\n\n" VOXELS, "1000");
    refused(GOOD "byte skip: 9223372036854775807\n\n" VOXELS, "9223372036854775807");
    refused(GOOD "line skip: -1\n\n" VOXELS, "-1");
    refused(GOOD "line skip: 2000000000\n\n" VOXELS, "2000000000");
    refused(GOOD "line skip: 3\n\none\ntwo\n" VOXELS, "");
    accepted(GOOD "byte skip: -1\n\njunk" VOXELS, NULL);
    accepted(GOOD "line skip: 1\nbyte skip: 2\n\nline\n12" VOXELS, NULL);
}

static void r11(void)
{
    static const struct {
        const char *directions, *reason;
    } rows[] = {{"(2,0,0) none (0,0,4)", "1 none"},
                {"none none none", "3 none"},
                {"(2,0,0) (0,nan,0) (0,0,4)", "[1]"},
                {"(2,0,0) (0,inf,0) (0,0,4)", "[1]"},
                {"(2,0,0) (0,3,0)", "[2]"},
                {"(2,0,0) (0,3,0) (0,0,4) (0,0,4)", "more"},
                {"(2,0) (0,3) (1,1)", "2 numbers"},
                {"(2,0,0) (4,0,0) (0,0,4)", "singular"},
                {"(0,0,0) (0,3,0) (0,0,4)", "singular"},
                {"2 3 4", "[0]"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[512];
        snprintf(text, sizeof text, MAGIC TYPE SHAPE RAW "space: LPS\nspace directions: %s\n\n" VOXELS,
                 rows[i].directions);
        refused(text, rows[i].reason);
    }
}

static void r12(void)
{
    accepted(MAGIC TYPE SHAPE RAW "\n" VOXELS, "orientation");
    accepted(MAGIC TYPE SHAPE RAW "space: left-posterior-superior\n"
                                  "space directions: (2,0,0) (0,3,0) (0,0,4)\n\n" VOXELS,
             NULL);
    expect_output("LPS");
    accepted(MAGIC TYPE SHAPE RAW "space: right-anterior-superior\n"
                                  "space directions: (2,0,0) (0,3,0) (0,0,4)\n\n" VOXELS,
             NULL);
    expect_output("RAS");
    refused(MAGIC TYPE SHAPE RAW "space: sideways\n\n" VOXELS, "sideways");
}

static void r13(void)
{
    static const char nul[] = GOOD "content: a\0b\n\n" VOXELS;
    char *text = malloc(100000);
    expect(text != NULL);
    size_t n = (size_t)sprintf(text, "%s", GOOD);
    for (int i = 0; i < 5000; i++)
        n += (size_t)sprintf(text + n, "k%d:=v\n", i);
    strcpy(text + n, "\n" VOXELS);
    refused(text, "4096");
    free(text);
    put_file("nul.nrrd", nul, sizeof nul - 1);
    run("info", "nul.nrrd", NULL);
    expect_refusal(3, "nul.nrrd", "NUL");
    accepted("NRRD0004\r\ntype: uchar\r\ndimension: 3\r\nsizes: 2 3 2\r\nencoding: raw\r\nspace: LPS\r\n"
             "key:=value\r\n\r\n" VOXELS,
             NULL);
}

static void r14(void)
{
    refused(GOOD "\n0123456789a", "12 bytes");
    refused(GOOD "\n", "12 bytes");
    refused(GOOD "byte skip: -1\n\n0123456789a", "12 bytes");
    put_text("a.raw", "0123");
    refused(GOOD "data file: a.raw\n", "a.raw: ");
    put_text("good.nrrd", GOOD "\n" VOXELS "more");
    run("info", "good.nrrd", NULL);
    expect_warning("N12", "");
}

const struct fault faults_nrrd[] = {
    {"R01", "magic not NRRD0001 to NRRD0005", r01},
    {"R02", "no blank line, long header, long line", r02},
    {"R03", "missing dimension, sizes, type or encoding", r03},
    {"R04", "sizes that do not fit the dimension or are no counts", r04},
    {"R05", "duplicate field", r05},
    {"R06", "unknown type", r06},
    {"R07", "encodings not supported", r07},
    {"R08", "endian missing", r08},
    {"R09", "data file elsewhere, pattern, list, itself", r09},
    {"R10", "byte skip and line skip", r10},
    {"R11", "space directions none, NaN, wrong count, singular", r11},
    {"R12", "space missing or named otherwise", r12},
    {"R13", "key flood, NUL, CRLF", r13},
    {"R14", "sizes and bytes disagree", r14},
    {NULL, NULL, NULL},
};
