/* faults_nifti.c - N01 to N40: damaged and odd NIfTI files.
 *
 * `info` describes anything that can be decoded; rows about spacing, orientation or values that
 * only matter to training are therefore asked of `check`, on a data set whose only fault is the one
 * tested.
 */
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "faults.h"

/* Offsets of NIfTI-1 fields. */
enum {
    DIM = 40,
    DATATYPE = 70,
    BITPIX = 72,
    PIXDIM = 76,
    VOX_OFFSET = 108,
    SLOPE = 112,
    INTER = 116,
    UNITS = 123,
    QFORM = 252,
    SFORM = 254,
    QUATERN = 256,
    SROW = 280,
    MAGIC = 344,
    EXTENSION = 348
};

static struct nifti1 f;

static void refused(const char *reason)
{
    nifti_put("bad.nii", &f);
    run("info", "bad.nii", NULL);
    expect_refusal(3, "bad.nii", reason);
}

static void accepted(const char *warning)
{
    nifti_put("odd.nii", &f);
    run("info", "odd.nii", NULL);
    expect_accepted(warning);
}

/* A data set of one sound case and f as a second image, with a sound label of its own. */
static void put_dataset(void)
{
    struct nifti1 good;
    put_folder("images");
    put_folder("labels");
    nifti_put("images/odd.nii", &f);
    nifti_good_label(&good);
    nifti_put("labels/good.nii", &good);
    nifti_put("labels/odd.nii", &good);
    nifti_good(&good);
    set_i16(&good, 360, 99);
    nifti_put("images/good.nii", &good);
}

static void refused_for_training(const char *reason)
{
    put_dataset();
    run("check", ".", NULL);
    expect_refusal(3, "odd.nii", reason);
}

static void accepted_for_training(const char *warning)
{
    put_dataset();
    run("check", ".", NULL);
    expect_accepted(warning);
}

/* A NIfTI-2 file with the given dims, int16; only the header. */
static void nifti2(const int64_t dims[8])
{
    memset(&f, 0, sizeof f);
    set_i32(&f, 0, 540);
    memcpy(f.byte + 4, "n+2\0\r\n\x1A\n", 8);
    set_i16(&f, 12, 4);
    set_i16(&f, 14, 16);
    memcpy(f.byte + 16, dims, 64);
    for (size_t i = 0; i < 8; i++) {
        double one = 1.0;
        memcpy(f.byte + 104 + 8 * i, &one, 8);
    }
    int64_t offset = 544;
    memcpy(f.byte + 168, &offset, 8);
    set_i32(&f, 500, 2);
    f.n = 544;
}

static void n01(void)
{
    put_file("bad.nii", "", 0);
    run("info", "bad.nii", NULL);
    expect_refusal(3, "bad.nii", "348");
}

static void n02(void)
{
    static const size_t lengths[] = {1, 3, 4, 100, 347};
    for (size_t i = 0; i < 5; i++) {
        nifti_good(&f);
        f.n = lengths[i];
        refused("348");
    }
}

static void n03(void)
{
    static const int32_t values[] = {0, -1, 347, 349, 539, 0x12345678};
    for (size_t i = 0; i < 6; i++) {
        nifti_good(&f);
        set_i32(&f, 0, values[i]);
        refused("540");
    }
    nifti_good(&f);
    memcpy(f.byte, "\x89PNG", 4);
    refused("PNG");
}

static void n04(void)
{
    static const size_t lengths[] = {348, 400, 539};
    for (size_t i = 0; i < 3; i++) {
        nifti2((int64_t[8]){3, 2, 2, 2, 1, 1, 1, 1});
        f.n = lengths[i];
        refused("NIfTI-2");
    }
}

static void n05(void)
{
    nifti_good(&f);
    memset(f.byte + MAGIC, 0, 4);
    refused("Analyze 7.5");
    memcpy(f.byte + MAGIC, "n+3", 4);
    refused("magic");
}

static void n06(void)
{
    nifti2((int64_t[8]){3, 2, 2, 2, 1, 1, 1, 1});
    memcpy(f.byte + 8, "\n\x1A\n\0", 4);
    refused("");
}

static void n07(void)
{
    static const int16_t small[] = {0, -1, 8, 200, -32768};
    for (size_t i = 0; i < 5; i++) {
        nifti_good(&f);
        set_i16(&f, DIM, small[i]);
        refused("1..7");
    }
    static const int64_t wide[] = {0, -1, 8, INT64_MIN, INT64_MAX};
    for (size_t i = 0; i < 5; i++) {
        nifti2((int64_t[8]){wide[i], 2, 2, 2, 1, 1, 1, 1});
        refused("1..7");
    }
}

static void n08(void)
{
    nifti_good(&f);
    set_i16(&f, DIM + 4, 0);
    refused("dim[2]=0");
    set_i16(&f, DIM + 4, -5);
    refused("dim[2]=-5");
}

static void n09(void)
{
    nifti2((int64_t[8]){3, (int64_t)1 << 40, (int64_t)1 << 40, (int64_t)1 << 40, 1, 1, 1, 1});
    refused("");
    nifti2((int64_t[8]){7, INT64_MAX, INT64_MAX, 2, 2, 2, 2, 2});
    refused("");
}

static void n10(void)
{
    nifti_good(&f);
    for (size_t i = 1; i <= 3; i++)
        set_i16(&f, DIM + 2 * i, 30000);
    refused("2147483648");
}

static void n11(void)
{
    nifti_good(&f);
    f.n -= 1;
    refused("47");
    f.n = 352;
    refused("48 bytes");
    nifti_good(&f);
    for (size_t i = 1; i <= 3; i++)
        set_i16(&f, DIM + 2 * i, 1000);
    refused("2000000000 bytes");
}

static void n12(void)
{
    nifti_good(&f);
    f.n += 10;
    accepted("");
    nifti_put("bad.nii", &f);
    run("info", "--strict", "bad.nii", NULL);
    expect_refusal(3, "bad.nii", "");
}

static void n13(void)
{
    static const float values[] = {-1.0f, 352.5f, 1e30f, -1e30f, 1e6f};
    for (size_t i = 0; i < 5; i++) {
        nifti_good(&f);
        set_f32(&f, VOX_OFFSET, values[i]);
        nifti_put("bad.nii", &f);
        run("info", "bad.nii", NULL);
        expect_refusal(3, "bad.nii", i < 4 ? "vox_offset" : "999648");
    }
    set_f32(&f, VOX_OFFSET, NAN);
    refused("vox_offset=nan");
    set_f32(&f, VOX_OFFSET, INFINITY);
    refused("vox_offset=inf");
}

static void n14(void)
{
    nifti_good(&f);
    set_f32(&f, VOX_OFFSET, 0.0f);
    accepted("352");
    set_f32(&f, VOX_OFFSET, 348.0f);
    accepted("352");
    f.n += 4;
    refused("");
}

static void n15(void)
{
    static const float values[] = {1.0f, 100.0f, 347.0f, 351.0f};
    for (size_t i = 0; i < 4; i++) {
        nifti_good(&f);
        set_f32(&f, VOX_OFFSET, values[i]);
        refused("vox_offset");
    }
}

static void n16(void)
{
    static const int16_t codes[] = {0, 1, 77, -4, 255};
    for (size_t i = 0; i < 5; i++) {
        nifti_good(&f);
        set_i16(&f, DATATYPE, codes[i]);
        refused("");
    }
}

static void n17(void)
{
    static const int16_t codes[] = {32, 128, 1536, 1792, 2048, 2304};
    for (size_t i = 0; i < 6; i++) {
        nifti_good(&f);
        set_i16(&f, DATATYPE, codes[i]);
        refused("");
    }
}

static void n18(void)
{
    nifti_good(&f);
    set_i16(&f, BITPIX, 8);
    refused("bitpix 8");
}

static void n19(void)
{
    nifti_good(&f);
    set_f32(&f, SLOPE, NAN);
    accepted("scl_slope");
    expect_output("values 0 to 234");
    set_f32(&f, SLOPE, INFINITY);
    refused("inf");
    set_f32(&f, SLOPE, 1.0f);
    set_f32(&f, INTER, -INFINITY);
    refused("inf");
}

static void n20(void)
{
    nifti_good(&f);
    set_f32(&f, SLOPE, 3e38f);
    refused_for_training("at (1, 0, 0)");
}

static void n21(void)
{
    struct nifti1 label;
    nifti_good(&f);
    put_dataset();
    nifti_good_label(&label);
    set_f32(&label, SLOPE, 0.5f);
    nifti_put("labels/odd.nii", &label);
    run("check", ".", NULL);
    expect_refusal(3, "odd.nii", "");
    set_f32(&label, SLOPE, 2.0f); /* integers after scaling: classes 0 and 2 */
    nifti_put("labels/odd.nii", &label);
    run("info", "labels/odd.nii", NULL);
    expect_accepted(NULL);
    expect_output("values 0 to 2");
}

static void n22(void)
{
    static const float values[] = {0.0f, 1e-40f, INFINITY};
    for (size_t i = 0; i < 3; i++) {
        nifti_good(&f);
        set_f32(&f, PIXDIM + 4, values[i]);
        refused_for_training("spacing[1]=");
    }
    nifti_good(&f);
    set_f32(&f, PIXDIM + 8, NAN);
    refused_for_training("spacing[2]=nan");
    set_f32(&f, PIXDIM + 12, 7.0f);
    accepted("spacing[2]=nan"); /* info describes it */
    expect_output(" x nan x 7 mm");
    set_i16(&f, QFORM, 0); /* now the spacing is all that is known of its place */
    set_i16(&f, SFORM, 0);
    nifti_put("odd.nii", &f);
    run("info", "odd.nii", NULL);
    expect_output("orientation RAS");
    run("convert", "odd.nii", "odd.nrrd", NULL);
    expect(last_exit() == 3);
    expect_fact("odd.nrrd: ");
    nifti_good(&f);
    set_f32(&f, PIXDIM + 4, -1.0f);
    accepted("spacing");
}

static void n23(void)
{
    static const float values[] = {1e-5f, 2e4f};
    for (size_t i = 0; i < 2; i++) {
        nifti_good(&f);
        set_f32(&f, PIXDIM + 4, values[i]);
        refused_for_training("1e-4..1e4");
    }
    nifti_good(&f);
    f.byte[UNITS] = 3; /* micron */
    set_f32(&f, PIXDIM + 4, 1000.0f);
    set_f32(&f, PIXDIM + 8, 2000.0f);
    set_f32(&f, PIXDIM + 12, 3000.0f);
    set_f32(&f, SROW, 1000.0f);
    set_f32(&f, SROW + 20, 2000.0f);
    set_f32(&f, SROW + 40, 3000.0f);
    accepted(NULL);
    expect_output("spacing 1 x 2 x 3 mm");
}

static void n24(void)
{
    nifti_good(&f);
    set_i16(&f, SFORM, 0);
    accepted("orientation");
    expect_output("orientation");
    /* its label has one: which of the two is right cannot be known */
    put_dataset();
    run("check", ".", NULL);
    expect(last_exit() == 3);
    expect_fact("[N24]");
}

static void n25(void)
{
    nifti_good(&f);
    set_f32(&f, SROW + 4, NAN);
    refused_for_training("nan");
    nifti_good(&f);
    set_f32(&f, SROW, 0.0f);
    refused_for_training("sform");
    nifti_good(&f);
    set_f32(&f, SROW + 4, 0.5f);
    accepted("orthogonal");
    set_i16(&f, QFORM, 1);
    accepted("qform");
}

static void n26(void)
{
    nifti_good(&f);
    set_i16(&f, QFORM, 1);
    set_f32(&f, 268, 7.0f); /* qoffset_x */
    accepted("7 mm");
}

static void n27(void)
{
    nifti_good(&f);
    set_i16(&f, SFORM, 0);
    set_i16(&f, QFORM, 1);
    set_f32(&f, QUATERN, 1.001f);
    accepted(NULL); /* renormalised */
    set_f32(&f, QUATERN, 1.2f);
    refused_for_training("");
}

static void n28(void)
{
    nifti_good(&f);
    set_i16(&f, SFORM, 0);
    set_i16(&f, QFORM, 1);
    set_f32(&f, PIXDIM, 0.0f);
    accepted(NULL);
    set_f32(&f, PIXDIM, 2.0f);
    refused_for_training("qfac");
}

/* Swaps n fields of `width` bytes from `offset` on. */
static void swap_fields(size_t offset, size_t width, size_t n)
{
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < width / 2; j++) {
            unsigned char *a = f.byte + offset + i * width + j;
            unsigned char *b = f.byte + offset + i * width + width - 1 - j, t = *a;
            *a = *b;
            *b = t;
        }
}

static void swap_header(void)
{
    swap_fields(0, 4, 1);
    swap_fields(DIM, 2, 8);
    swap_fields(DATATYPE, 2, 2);
    swap_fields(PIXDIM, 4, 8);
    swap_fields(VOX_OFFSET, 4, 3);
    swap_fields(QFORM, 2, 2);
    swap_fields(QUATERN, 4, 18);
}

static void n29(void)
{
    static char native[4096];
    nifti_good(&f);
    nifti_put("x.nii", &f);
    run("info", "--json", "x.nii", NULL);
    strncpy(native, last_stdout(), sizeof native - 1);
    swap_header();
    swap_fields(352, 2, 24);
    nifti_put("x.nii", &f);
    run("info", "--json", "x.nii", NULL);
    expect_accepted(NULL);
    expect(strcmp(native, last_stdout()) == 0);
}

static void n30(void)
{
    nifti_good(&f);
    set_i16(&f, DATATYPE, 16);
    set_i16(&f, BITPIX, 32);
    for (size_t i = 0; i < 24; i++)
        set_f32(&f, 352 + 4 * i, 1.0f + 0.25f * (float)i);
    f.n = 352 + 96;
    accepted(NULL);
    swap_header(); /* the voxels stay as they are */
    accepted("");
}

static void n31(void)
{
    struct nifti1 label;
    nifti_good_label(&label);
    set_i16(&label, DIM, 4);
    set_i16(&label, DIM + 8, 2);
    label.n = 352 + 48;
    nifti_put("bad.nii", &label);
    nifti_good_label(&f);
    nifti_put("good.nii", &f);
    run("eval", "bad.nii", "good.nii", NULL);
    expect_refusal(3, "bad.nii", "2 volumes");
    run("convert", "--volume", "1", "bad.nii", "one.nii", NULL);
    expect_accepted(NULL);
    run("info", "one.nii", NULL);
    expect_output("4 x 3 x 2 voxels");
    run("convert", "--volume", "7", "bad.nii", "two.nii", NULL);
    expect_refusal(2, "bad.nii", "0 to 1");
}

static void n32(void)
{
    struct nifti1 label;
    nifti_good_label(&label);
    nifti_put("good.nii", &label);
    set_i16(&label, DIM, 5);
    nifti_put("odd.nii", &label);
    run("eval", "good.nii", "odd.nii", NULL);
    expect_accepted(NULL);
}

static void n33(void)
{
    nifti_good(&f);
    set_i16(&f, DIM, 2);
    f.n = 352 + 24;
    accepted(NULL);
    expect_output("4 x 3 voxels");
    put_dataset();
    unlink("labels/odd.nii");
    run("check", ".", "--patch", "16", NULL); /* smaller on every axis: padded, and said */
    expect(last_exit() == 0);
    expect_fact("16");
}

static void n34(void)
{
    nifti_good(&f);
    f.byte[EXTENSION] = 1;
    accepted(NULL);
}

static void n35(void)
{
    static const int32_t sizes[] = {0, 7, 8, 24, -16, 64, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < 8; i++) {
        nifti_good(&f);
        memmove(f.byte + 384, f.byte + 352, 48);
        memset(f.byte + 352, 0, 32);
        f.byte[EXTENSION] = 1;
        set_f32(&f, VOX_OFFSET, 384.0f);
        set_i32(&f, 352, sizes[i]);
        f.n = 384 + 48;
        refused("esize=");
    }
    set_i32(&f, 352, 32);
    accepted(NULL);
    nifti_good(&f); /* thousands of them */
    f.byte[EXTENSION] = 1;
    for (size_t at = 352; at < 352 + 3000 * 16; at += 16)
        set_i32(&f, at, 16);
    f.n = 352 + 3000 * 16 + 48;
    set_f32(&f, VOX_OFFSET, 352.0f + 3000 * 16);
    refused("extension 1000");
}

static void n36(void)
{
    nifti_good(&f);
    memcpy(f.byte + MAGIC, "ni1", 4);
    set_f32(&f, VOX_OFFSET, 0.0f);
    put_file("a.hdr", f.byte, 348);
    run("info", "a.hdr", NULL);
    expect_refusal(3, "a.img", "");
    put_file("a.img", f.byte + 352, 47);
    run("info", "a.hdr", NULL);
    expect_refusal(3, "a.img", "48 bytes");
    put_file("a.img", f.byte + 352, 48);
    run("info", "a.hdr", NULL);
    expect_accepted(NULL);
    put_folder("in");
    put_file("in/a.hdr", f.byte, 348);
    expect(symlink("../a.img", "in/a.img") == 0);
    run("info", "in/a.hdr", NULL);
    expect_refusal(3, "a.img", "link");
}

static void float_image(void)
{
    nifti_good(&f);
    set_i16(&f, DATATYPE, 16);
    set_i16(&f, BITPIX, 32);
    for (size_t i = 0; i < 24; i++)
        set_f32(&f, 352 + 4 * i, (float)i);
    f.n = 352 + 96;
}

static void n37(void)
{
    float_image();
    set_f32(&f, 352 + 4 * 5, NAN);
    set_f32(&f, 352 + 4 * 9, INFINITY);
    refused_for_training("(1, 1, 0)");
    run("check", ".", "--nan", "zero", NULL);
    expect_accepted(NULL);
    run("info", "images/odd.nii", NULL);
    expect_output(", 2 NaN");
    run("info", "images/odd.nii", "--json", NULL);
    expect(!strstr(last_stdout(), "null")); /* least, most and mean of the others */
}

static void n38(void)
{
    nifti_good(&f);
    memset(f.byte + 352, 0, 48);
    accepted_for_training("constant");
}

static void n39(void)
{
    float_image();
    set_f32(&f, 352 + 4 * 3, 1e38f);
    refused_for_training("(3, 0, 0)");
}

static void n40(void)
{
    put_text("bad.nia", "<nifti_image\n  nifti_type = 'NIFTI-1A'\n/>\n");
    run("info", "bad.nia", NULL);
    expect_refusal(3, "bad.nia", "");
}

const struct fault faults_nifti[] = {
    {"N01", "empty file", n01},
    {"N02", "1 to 347 bytes", n02},
    {"N03", "sizeof_hdr wrong", n03},
    {"N04", "NIfTI-2 header cut", n04},
    {"N05", "Analyze 7.5", n05},
    {"N06", "text-mode transfer", n06},
    {"N07", "dim[0] out of range", n07},
    {"N08", "dim[i] not positive", n08},
    {"N09", "size overflows", n09},
    {"N10", "size over the limit", n10},
    {"N11", "file shorter than claimed", n11},
    {"N12", "file longer than claimed", n12},
    {"N13", "vox_offset not a place", n13},
    {"N14", "vox_offset 0 or 348", n14},
    {"N15", "vox_offset inside the header", n15},
    {"N16", "datatype unknown", n16},
    {"N17", "datatype not scalar", n17},
    {"N18", "bitpix disagrees", n18},
    {"N19", "slope NaN or Inf", n19},
    {"N20", "scaling overflows", n20},
    {"N21", "scaled label", n21},
    {"N22", "spacing not positive", n22},
    {"N23", "spacing absurd, units", n23},
    {"N24", "no orientation", n24},
    {"N25", "sform singular, NaN, sheared", n25},
    {"N26", "sform and qform disagree", n26},
    {"N27", "quaternion too long", n27},
    {"N28", "qfac", n28},
    {"N29", "other byte order", n29},
    {"N30", "mixed byte order", n30},
    {"N31", "4-D where 3-D is expected", n31},
    {"N32", "trailing axes of 1", n32},
    {"N33", "2-D or thin", n33},
    {"N34", "extension flag without bytes", n34},
    {"N35", "extension sizes", n35},
    {"N36", "second file of a pair", n36},
    {"N37", "NaN and Inf voxels", n37},
    {"N38", "constant image", n38},
    {"N39", "values of 1e38", n39},
    {"N40", "ASCII NIfTI", n40},
    {NULL, NULL, NULL},
};
