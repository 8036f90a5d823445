/* faults_hdf5.c - H01 to H09. Files are written by libhdf5 and, where it would not write such a
 * thing, changed by hand afterwards.
 */
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "../hdf5_make.h"
#include "faults.h"

static const float zeros[60];

/* image, float32, 3x4x5: sound. */
static struct hdf5_make sound(void)
{
    struct hdf5_make m = {.memory = H5T_NATIVE_FLOAT, .rank = 3, .dims = {3, 4, 5}, .data = zeros};
    return m;
}

static void put_sound(const char *name)
{
    struct hdf5_make m = sound();
    expect(hdf5_make_file(name, &m, 0) == 0);
}

/* Bytes of a file, to be changed and put back. */
static size_t get_file(const char *name, unsigned char *out, size_t cap)
{
    FILE *f = fopen(name, "rb");
    size_t n = f ? fread(out, 1, cap, f) : 0;
    if (f)
        fclose(f);
    expect(n > 0 && n < cap);
    return n;
}

static unsigned char bytes[1 << 20];

static void h01(void)
{
    put_sound("good.h5");
    run("info", "good.h5", NULL);
    expect_warning(NULL, "spacing");
    size_t n = get_file("good.h5", bytes, sizeof bytes);
    put_file("cut.h5", bytes, n / 2);
    run("info", "cut.h5", NULL);
    expect_refusal(3, "cut.h5", "truncated");
    put_file("head.h5", bytes, 9);
    run("info", "head.h5", NULL);
    expect_refusal(3, "head.h5", "HDF5");
    bytes[8] = 99;
    put_file("version.h5", bytes, n);
    run("info", "version.h5", NULL);
    expect_refusal(3, "version.h5", "superblock");
    memset(bytes, 'x', n);
    put_file("none.h5", bytes, n);
    run("info", "none.h5", NULL);
    expect(last_exit() == 3);
    expect_fact("none.h5");
}

static void h02(void)
{
    put_sound("scan.h5");
    run("info", "--member", "label", "scan.h5", NULL);
    expect_refusal(3, "scan.h5", "image");
    hid_t file = H5Fopen("scan.h5", H5F_ACC_RDWR, H5P_DEFAULT);
    H5Gclose(H5Gcreate2(file, "label", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    H5Fclose(file);
    run("info", "--member", "label", "scan.h5", NULL);
    expect_refusal(3, "scan.h5", "\"label\"");
    run("info", "--member", "label/image", "scan.h5", NULL);
    expect_refusal(3, "scan.h5", "\"label/image\"");
}

static void h03(void)
{
    struct hdf5_make five = {.memory = H5T_NATIVE_FLOAT, .rank = 5, .dims = {1, 2, 2, 2, 2}};
    expect(hdf5_make_file("five.h5", &five, 0) == 0);
    run("info", "five.h5", NULL);
    expect_refusal(3, "five.h5", "rank 5");
    struct hdf5_make scalar = {.memory = H5T_NATIVE_FLOAT, .rank = 0};
    expect(hdf5_make_file("scalar.h5", &scalar, 0) == 0);
    run("info", "scalar.h5", NULL);
    expect_refusal(3, "scalar.h5", "rank 0");
    struct hdf5_make empty = {.memory = H5T_NATIVE_FLOAT, .rank = 3, .dims = {3, 0, 5}};
    expect(hdf5_make_file("empty.h5", &empty, 0) == 0);
    run("info", "empty.h5", NULL);
    expect_refusal(3, "empty.h5", "axis 1");
    struct hdf5_make open = sound();
    open.chunk[0] = open.chunk[1] = open.chunk[2] = 2;
    open.most[0] = 3;
    open.most[1] = 4;
    open.most[2] = H5S_UNLIMITED;
    expect(hdf5_make_file("open.h5", &open, 0) == 0);
    run("info", "open.h5", NULL);
    expect_refusal(3, "open.h5", "axis 2");
    struct hdf5_make huge = {
        .memory = H5T_NATIVE_UINT8, .rank = 3, .dims = {(hsize_t)1 << 62, 1, 1}, .chunk = {1 << 20, 1, 1}};
    expect(hdf5_make_file("huge.h5", &huge, 0) == 0);
    run("info", "huge.h5", NULL);
    expect_refusal(3, "huge.h5", "4611686018427387904");
}

static void refuse_type(const char *name, hid_t type)
{
    struct hdf5_make m = {.memory = type, .rank = 3, .dims = {3, 4, 5}};
    expect(hdf5_make_file(name, &m, 0) == 0);
    run("info", name, NULL);
    expect_refusal(3, name, "float");
}

static void h04(void)
{
    hid_t compound = H5Tcreate(H5T_COMPOUND, 8), text = H5Tcopy(H5T_C_S1);
    H5Tinsert(compound, "a", 0, H5T_NATIVE_FLOAT);
    H5Tinsert(compound, "b", 4, H5T_NATIVE_FLOAT);
    H5Tset_size(text, 8);
    hid_t vlen = H5Tvlen_create(H5T_NATIVE_FLOAT);
    hsize_t two = 2;
    hid_t array = H5Tarray_create2(H5T_NATIVE_FLOAT, 1, &two);
    refuse_type("compound.h5", compound);
    refuse_type("text.h5", text);
    refuse_type("vlen.h5", vlen);
    refuse_type("array.h5", array);
    refuse_type("reference.h5", H5T_STD_REF_OBJ);
    refuse_type("bits.h5", H5T_STD_B16LE);
    refuse_type("longdouble.h5", H5T_NATIVE_LDOUBLE);
    H5Tclose(compound);
    H5Tclose(text);
    H5Tclose(vlen);
    H5Tclose(array);
}

static void refuse_filter(const char *name, hid_t plist, const char *reason)
{
    struct hdf5_make m = sound();
    m.memory = H5T_NATIVE_INT32;
    hid_t file = H5Fcreate(name, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    expect(hdf5_make_set(file, &m, plist) == 0);
    H5Fclose(file);
    H5Pclose(plist);
    run("info", name, NULL);
    expect_refusal(3, name, reason);
}

/* Stands for a filter that only a plug-in provides. */
static size_t copy_filter(unsigned flags, size_t n, const unsigned values[], size_t used, size_t *room,
                          void **buffer)
{
    (void)flags, (void)n, (void)values, (void)room, (void)buffer;
    return used;
}

static void h05(void)
{
    struct hdf5_make m = sound();
    m.chunk[0] = m.chunk[1] = m.chunk[2] = 2;
    hid_t p = hdf5_make_plist(&m);
    H5Pset_scaleoffset(p, H5Z_SO_INT, 0);
    refuse_filter("offset.h5", p, "filter 6");
    p = hdf5_make_plist(&m);
    H5Pset_nbit(p);
    refuse_filter("nbit.h5", p, "filter 5");
    const H5Z_class2_t lzf = {H5Z_CLASS_T_VERS, 32000, 1, 1, "lzf", NULL, NULL, copy_filter};
    H5Zregister(&lzf);
    p = hdf5_make_plist(&m);
    H5Pset_filter(p, 32000, H5Z_FLAG_MANDATORY, 0, NULL);
    refuse_filter("lzf.h5", p, "32000 (lzf)");
    /* and no plug-in is looked for where the user says they are */
    setenv("HDF5_PLUGIN_PATH", "/", 1);
    run("info", "lzf.h5", NULL);
    unsetenv("HDF5_PLUGIN_PATH");
    expect_refusal(3, "lzf.h5", "filter 32000");
}

static void h06(void)
{
    put_sound("secret.h5");
    hid_t file = H5Fcreate("link.h5", H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    H5Lcreate_external("secret.h5", "/image", file, "image", H5P_DEFAULT, H5P_DEFAULT);
    H5Lcreate_soft("/image", file, "label", H5P_DEFAULT, H5P_DEFAULT);
    H5Lcreate_external("secret.h5", "/", file, "folder", H5P_DEFAULT, H5P_DEFAULT);
    H5Fclose(file);
    run("info", "link.h5", NULL);
    expect_refusal(3, "link.h5", "\"image\"");
    run("info", "--member", "label", "link.h5", NULL);
    expect_refusal(3, "link.h5", "\"label\"");
    run("info", "--member", "folder/image", "link.h5", NULL);
    expect_refusal(3, "link.h5", "\"folder\"");

    struct hdf5_make m = sound();
    m.data = NULL;
    put_file("raw.bin", zeros, sizeof zeros);
    file = H5Fcreate("external.h5", H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    hid_t p = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_external(p, "raw.bin", 0, sizeof zeros);
    expect(hdf5_make_set(file, &m, p) == 0);
    H5Pclose(p);
    H5Fclose(file);
    run("info", "external.h5", NULL);
    expect_refusal(3, "external.h5", "external");

    file = H5Fcreate("virtual.h5", H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    p = H5Pcreate(H5P_DATASET_CREATE);
    hid_t space = H5Screate_simple(3, m.dims, NULL);
    H5Pset_virtual(p, space, "secret.h5", "/image", space);
    expect(hdf5_make_set(file, &m, p) == 0);
    H5Sclose(space);
    H5Pclose(p);
    H5Fclose(file);
    run("info", "virtual.h5", NULL);
    expect_refusal(3, "virtual.h5", "virtual");
}

/* The layout message of a chunked data set: version 3, class 2, rank + 1, address, extents. */
static unsigned char *find_layout(size_t n)
{
    for (size_t i = 0; i + 27 <= n; i++)
        if (bytes[i] == 3 && bytes[i + 1] == 2 && bytes[i + 2] == 4 && bytes[i + 11] == 2 &&
            bytes[i + 15] == 4 && bytes[i + 19] == 5 && bytes[i + 23] == 4)
            return bytes + i;
    return NULL;
}

static void h07(void)
{
    struct hdf5_make m = sound();
    m.chunk[0] = 2;
    m.chunk[1] = 4;
    m.chunk[2] = 5;
    expect(hdf5_make_file("chunk.h5", &m, 0) == 0);
    size_t n = get_file("chunk.h5", bytes, sizeof bytes);
    unsigned char *layout = find_layout(n);
    expect(layout != NULL);
    if (!layout)
        return;
    layout[2] = 3;
    put_file("rank.h5", bytes, n);
    run("info", "rank.h5", NULL);
    expect_refusal(3, "rank.h5", "rank 2");
    layout[2] = 4;
    layout[11] = 0;
    put_file("zero.h5", bytes, n);
    run("info", "zero.h5", NULL);
    expect_refusal(3, "zero.h5", "chunk");
    /* nothing stored, a lot declared */
    struct hdf5_make bomb = {.memory = H5T_NATIVE_FLOAT,
                             .rank = 3,
                             .dims = {2000, 2000, 500},
                             .chunk = {10, 10, 10},
                             .deflate = 9};
    expect(hdf5_make_file("bomb.h5", &bomb, 0) == 0);
    run("info", "bomb.h5", NULL);
    expect_refusal(3, "bomb.h5", "2000x2000x500x1");
    /* one chunk that would need more memory than the parser has */
    struct hdf5_make wide = {.memory = H5T_NATIVE_UINT8,
                             .rank = 3,
                             .dims = {600, 600, 600},
                             .chunk = {600, 600, 600},
                             .deflate = 9};
    struct hdf5_make ballast = {
        .member = "ballast", .memory = H5T_NATIVE_UINT8, .rank = 1, .dims = {sizeof bytes}, .data = bytes};
    expect(hdf5_make_file("wide.h5", &wide, 0) == 0);
    hid_t file = H5Fopen("wide.h5", H5F_ACC_RDWR, H5P_DEFAULT);
    expect(hdf5_make_set(file, &ballast, H5P_DEFAULT) == 0);
    H5Fclose(file);
    run("info", "wide.h5", NULL);
    expect_refusal(3, "wide.h5", "600x600x600x1");
}

/* Puts a shell script in the place of the parser. */
static void put_parser(const char *script)
{
    char folder[PATH_MAX];
    put_folder("helpers");
    put_text("helpers/falx-hdf5", script);
    expect(chmod("helpers/falx-hdf5", 0755) == 0);
    if (!getcwd(folder, sizeof folder - 16))
        return;
    strcat(folder, "/helpers");
    setenv("FALX_HELPERS", folder, 1);
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void h08(void)
{
    put_sound("scan.h5");
    put_parser("#!/bin/sh\nkill -SEGV $$\n");
    run("info", "scan.h5", NULL);
    expect_refusal(3, "scan.h5", "signal 11");
    put_parser("#!/bin/sh\nwhile :; do :; done\n");
    double start = seconds();
    run("info", "scan.h5", NULL);
    expect(seconds() - start < 3);
    expect_refusal_slow(3, "scan.h5", "HDF5");
    put_parser("#!/bin/sh\nsleep 60\n");
    start = seconds();
    run("info", "scan.h5", NULL);
    expect(seconds() - start < 3);
    expect_refusal_slow(3, "scan.h5", "time");
    if (!getenv("FALX_FAULTS_RELAXED")) { /* sanitized programs give no memory limit to their children */
        put_parser("#!/bin/sh\ndd if=/dev/zero of=/dev/null bs=1500M count=1\n");
        run("info", "scan.h5", NULL);
        expect_refusal(3, "scan.h5", "exit 1");
    }
    put_parser("#!/bin/sh\nyes\n");
    run("info", "scan.h5", NULL);
    expect_refusal(3, "scan.h5", "HDF5");
    unsetenv("FALX_HELPERS");
}

static void bad_file(const char *folder, const char *name)
{
    char path[PATH_MAX + 300];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    double start = seconds();
    run("info", path, NULL);
    expect(seconds() - start < 2);
    expect(last_exit() == 0 || last_exit() == 3);
    const char *line_end = strchr(last_stderr(), '\n');
    expect(line_end && line_end[1] == '\0');
}

static void h09(void)
{
    const char *data = getenv("FALX_TEST_DATA");
    char folder[PATH_MAX];
    int n = 0;
    if (!data) {
        skip("FALX_TEST_DATA is not set");
        return;
    }
    snprintf(folder, sizeof folder, "%s/bad-hdf5", data);
    DIR *d = opendir(folder);
    for (struct dirent *f = d ? readdir(d) : NULL; f; f = readdir(d))
        if (f->d_name[0] != '.') {
            bad_file(folder, f->d_name);
            n++;
        }
    if (d)
        closedir(d);
    expect(n >= 13);
}

const struct fault faults_hdf5[] = {
    {"H01", "HDF5 truncated, unknown superblock", h01},
    {"H02", "data set missing or a group", h02},
    {"H03", "rank and extents", h03},
    {"H04", "types that are no numbers", h04},
    {"H05", "filters", h05},
    {"H06", "links and storage in other files", h06},
    {"H07", "chunks", h07},
    {"H08", "parser crashes, hangs or eats memory", h08},
    {"H09", "files that crash libhdf5", h09},
    {NULL, NULL, NULL},
};
