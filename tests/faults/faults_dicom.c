/* faults_dicom.c - D01 to D09, on small series made byte by byte.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../dicom_make.h"
#include "faults.h"

static struct dicom_make made;

static void put_made(const char *name)
{
    put_file(name, made.byte, made.n);
}

static void put_slice(const char *folder, int i, const struct dicom_fields *f)
{
    char path[64];
    snprintf(path, sizeof path, "%s/%d.dcm", folder, i);
    dicom_slice(&made, f);
    put_made(path);
}

/* n sound slices; their fields may be changed by `change` before they are written. */
static void put_series(const char *folder, int n, void (*change)(struct dicom_fields *f, int i))
{
    put_folder(folder);
    for (int i = 0; i < n; i++) {
        struct dicom_fields f = dicom_sound(i);
        if (change)
            change(&f, i);
        if (f.rows) /* 0: left out */
            put_slice(folder, i, &f);
    }
}

/* "info FOLDER" is refused for the reason. */
static void refuse_series(const char *folder, int n, void (*change)(struct dicom_fields *f, int i),
                          const char *reason)
{
    put_series(folder, n, change);
    run("info", folder, NULL);
    expect_refusal(3, folder, reason);
}

static void d01(void)
{
    put_series("good", 3, NULL);
    run("info", "good", NULL);
    expect_accepted(NULL);
    expect_output("6 x 4 x 3");
    put_series("none", 2, NULL);
    put_text("none/2.dcm", "this is not DICOM");
    run("info", "none", NULL);
    expect_refusal(3, "none/2.dcm", "128");
    put_folder("notes");
    put_text("notes/readme.txt", "nothing here");
    run("info", "notes", NULL);
    expect_refusal(3, "notes", "DICOM");
    for (int elf = 0; elf < 2; elf++) {
        struct dicom_fields f = dicom_sound(0);
        dicom_slice(&made, &f);
        memcpy(made.byte,
               elf ? "\x7F"
                     "ELF"
                   : "MZ\x90\x00",
               4);
        put_made("program.dcm");
        run("convert", "program.dcm", elf ? "elf.nii" : "mz.nii", NULL);
        expect_accepted("program");
        FILE *out = fopen(elf ? "elf.nii" : "mz.nii", "rb");
        unsigned char head[352] = {0};
        expect(out && fread(head, 1, sizeof head, out) == sizeof head);
        for (size_t i = 0; i + 4 <= sizeof head; i++) /* never copied */
            expect(memcmp(head + i, made.byte, 4) != 0);
        if (out)
            fclose(out);
    }
}

/* A file whose only element is as told; value bytes follow. */
static void refuse_element(const char *name, unsigned element, const char *vr, uint32_t length,
                           size_t value_bytes, const char *reason)
{
    static const unsigned char nothing[64];
    dicom_begin(&made, DICOM_EXPLICIT);
    dicom_head(&made, 0x0008, element, vr, length);
    dicom_bytes(&made, nothing, value_bytes);
    put_made(name);
    run("info", name, NULL);
    expect_refusal(3, name, reason);
}

static void d02(void)
{
    refuse_element("odd.dcm", 0x0060, "CS", 7, 8, "(0008,0060)");
    refuse_element("long.dcm", 0x0060, "CS", 600, 8, "600");
    refuse_element("huge.dcm", 0x0060, "OB", 0xFFFFFFFE, 8, "4294967294");
    refuse_element("open.dcm", 0x0060, "OB", 0xFFFFFFFF, 8, "0xFFFFFFFF");
    struct dicom_fields f = dicom_sound(0);
    dicom_slice(&made, &f);
    made.n -= 10;
    put_made("cut.dcm");
    run("info", "cut.dcm", NULL);
    expect_refusal(3, "cut.dcm", "(7FE0,0010)");
    /* an item longer than the sequence around it */
    dicom_begin(&made, DICOM_EXPLICIT);
    dicom_head(&made, 0x0008, 0x1140, "SQ", 8);
    dicom_head(&made, 0xFFFE, 0xE000, "", 10);
    dicom_short(&made, 0x0010, 1);
    put_made("item.dcm");
    run("info", "item.dcm", NULL);
    expect_refusal(3, "item.dcm", "(FFFE,E000)");
}

static void d03(void)
{
    for (int explicit_length = 0; explicit_length < 2; explicit_length++) {
        dicom_begin(&made, DICOM_EXPLICIT);
        for (int i = 0; i < 1100; i++) {
            uint32_t inside = (uint32_t)(1100 - i) * 20 - 12;
            dicom_head(&made, 0x0008, 0x1140, "SQ", explicit_length ? inside : 0xFFFFFFFF);
            dicom_head(&made, 0xFFFE, 0xE000, "", explicit_length ? inside - 8 : 0xFFFFFFFF);
        }
        put_made("deep.dcm");
        run("info", "deep.dcm", NULL);
        expect_refusal(3, "deep.dcm", "33");
    }
}

static void d04(void)
{
    dicom_begin(&made, DICOM_EXPLICIT);
    dicom_head(&made, 0x0002, 0x0102, "ZZ", 0xFFF0);
    dicom_u32(&made, 0x7FFFFFF0);
    put_made("vr.dcm");
    run("info", "vr.dcm", NULL);
    expect_refusal(3, "vr.dcm", "0x5A5A");
}

static void jpeg_ls(struct dicom_fields *f, int i)
{
    (void)i;
    f->syntax = "1.2.840.10008.1.2.4.80";
}

static void deflated(struct dicom_fields *f, int i)
{
    (void)i;
    f->syntax = "1.2.840.10008.1.2.1.99";
}

static void d05(void)
{
    refuse_series("ls", 2, jpeg_ls, "1.2.840.10008.1.2.4.80");
    refuse_series("deflated", 2, deflated, "1.2.840.10008.1.2.1.99");
    /* announced as JPEG 2000, but the fragment is noise: the converter's failure is told */
    struct dicom_fields f = dicom_sound(0);
    f.syntax = "1.2.840.10008.1.2.4.90";
    f.pixel_bytes = 0xFFFFFFFF;
    dicom_slice(&made, &f); /* pixels fill the buffer; go back behind the head of the element */
    for (made.n = 132; memcmp(made.byte + made.n, "\xE0\x7F\x10\x00", 4) != 0;)
        made.n++;
    made.n += 12;
    dicom_head(&made, 0xFFFE, 0xE000, "", 0);
    dicom_head(&made, 0xFFFE, 0xE000, "", 16);
    dicom_bytes(&made, "not a codestream", 16);
    dicom_head(&made, 0xFFFE, 0xE0DD, "", 0);
    put_made("noise.dcm");
    run("info", "noise.dcm", NULL);
    expect(last_exit() == 3);
    expect_fact("noise.dcm: ");
}

static void too_few_pixels(struct dicom_fields *f, int i)
{
    f->pixel_bytes = i == 1 ? 46 : 48;
}

static void too_many_bits(struct dicom_fields *f, int i)
{
    f->bits_stored = i == 1 ? 17 : 12;
}

static void many_frames(struct dicom_fields *f, int i)
{
    (void)i;
    f->columns = 1;
    f->rows = 65535;
    f->frames = "2147483647";
}

static void d06(void)
{
    refuse_series("few", 3, too_few_pixels, "few/1.dcm: 46 bytes");
    refuse_series("bits", 3, too_many_bits, "bits/1.dcm: BitsStored=17");
    refuse_series("frames", 1, many_frames, "2147483647");
    struct dicom_fields f = dicom_sound(0);
    f.frames = "-3";
    dicom_slice(&made, &f);
    put_made("negative.dcm");
    run("info", "negative.dcm", NULL);
    expect_refusal(3, "negative.dcm", "NumberOfFrames");
}

static void missing(struct dicom_fields *f, int i)
{
    f->rows = i == 2 || i == 5 || i == 6 ? 0 : 4;
}

static void duplicate(struct dicom_fields *f, int i)
{
    f->position[2] = i == 3 ? 105 : f->position[2];
}

static void uneven(struct dicom_fields *f, int i)
{
    f->position[2] += i >= 3 ? 0.8 : 0;
}

static void unequal(struct dicom_fields *f, int i)
{
    f->rows = i == 2 ? 6 : 4;
    f->columns = i == 2 ? 4 : 6;
}

static void pixel_spacing(struct dicom_fields *f, int i)
{
    f->spacing = i == 2 ? "0.75\\0.6" : "0.75\\0.5";
}

static void mixed(struct dicom_fields *f, int i)
{
    f->orientation = i == 2 ? "1\\0\\0\\0\\0\\-1" : "1\\0\\0\\0\\1\\0";
}

static void tilt(struct dicom_fields *f, int i)
{
    f->position[1] += 0.7 * i;
}

static void two_series(struct dicom_fields *f, int i)
{
    f->series = i < 2 ? "1.2.3.4" : "1.2.3.9";
    f->frame = i < 2 ? "1.2.3.5" : "1.2.3.6"; /* which is no news then */
}

static void skewed(struct dicom_fields *f, int i)
{
    (void)i;
    f->orientation = "1\\0\\0\\0.5\\1\\0";
}

static void d07(void)
{
    refuse_series("missing", 9, missing, "2-4 (5 mm), 5-8 (7.5 mm)");
    run("info", "--allow-gaps", "missing", NULL);
    expect_warning(NULL, "slices");
    expect_output("6 x 4 x 9");
    refuse_series("duplicate", 6, duplicate, "3 and 4");
    run("info", "--allow-gaps", "duplicate", NULL);
    expect_refusal(3, "duplicate", "3 and 4");
    refuse_series("uneven", 6, uneven, "3-4 (3.3 mm)");
    refuse_series("unequal", 4, unequal, "6 x 4");
    refuse_series("spacing", 4, pixel_spacing, "0.6 mm");
    refuse_series("mixed", 4, mixed, "slice 3");
    refuse_series("skewed", 4, skewed, "orientation 1\\0\\0\\0.5\\1\\0");
    refuse_series("tilt", 4, tilt, "0.7 mm");
    refuse_series("several", 5, two_series, "2, 3 files");
}

static void two_patients(struct dicom_fields *f, int i)
{
    f->patient = i == 2 ? "P2" : "P1";
}

static void two_frames(struct dicom_fields *f, int i)
{
    f->frame = i == 2 ? "1.2.3.6" : "1.2.3.5";
}

/* An overview of the same patient, with a series and a frame of reference of its own. */
static void with_localizer(struct dicom_fields *f, int i)
{
    f->series = i == 3 ? "1.2.3.9" : "1.2.3.4";
    f->frame = i == 3 ? "1.2.3.6" : "1.2.3.5";
    f->image_type = i == 3 ? "ORIGINAL\\PRIMARY\\LOCALIZER" : "ORIGINAL\\PRIMARY\\AXIAL";
}

static void d08(void)
{
    refuse_series("patients", 4, two_patients, "0.dcm and 2.dcm");
    expect(strstr(last_stderr(), "P2") == NULL); /* who they are is not told */
    refuse_series("frames", 4, two_frames, "frames");
    put_series("localizer", 4, with_localizer);
    run("info", "--quiet", "localizer", NULL);
    expect(last_exit() == 0);
    expect_output("6 x 4 x 3");
}

static void evil(struct dicom_fields *f, int i)
{
    (void)i;
    f->patient = "../../evil";
    f->series = "../../../evil/1.2";
}

static int count_files(const char *folder)
{
    int n = 0;
    DIR *d = opendir(folder);
    for (struct dirent *f = d ? readdir(d) : NULL; f; f = readdir(d))
        n += f->d_name[0] != '.';
    if (d)
        closedir(d);
    return n;
}

static void d09(void)
{
    char tmp[4096], *keep = getenv("TMPDIR") ? strdup(getenv("TMPDIR")) : NULL;
    put_series("scan", 3, evil);
    put_folder("out/tmp");
    if (!getcwd(tmp, sizeof tmp - 16))
        return;
    strcat(tmp, "/out/tmp");
    setenv("TMPDIR", tmp, 1);
    run("convert", "scan", "out/mine.nii", NULL);
    if (keep)
        setenv("TMPDIR", keep, 1);
    else
        unsetenv("TMPDIR");
    free(keep);
    expect_accepted(NULL);
    expect(count_files(".") == 2 && count_files("out") == 2 && count_files("out/tmp") == 0);
    expect(access("out/mine.nii", R_OK) == 0);
    FILE *f = fopen("out/mine.nii", "rb");
    char head[352] = {0};
    expect(f && fread(head, 1, sizeof head, f) == sizeof head);
    for (size_t i = 0; i + 4 <= sizeof head; i++) /* and no text of the series either */
        expect(memcmp(head + i, "evil", 4) != 0 && memcmp(head + i, "Jane", 4) != 0);
    if (f)
        fclose(f);
}

const struct fault faults_dicom[] = {
    {"D01", "no DICM; a program in the preamble", d01},
    {"D02", "element lengths", d02},
    {"D03", "nested sequences", d03},
    {"D04", "unknown VR in the meta header", d04},
    {"D05", "transfer syntaxes not decoded", d05},
    {"D06", "rows, columns, frames and bits against pixels", d06},
    {"D07", "missing, duplicate, unequal, mixed, tilted slices", d07},
    {"D08", "two patients or frames of reference", d08},
    {"D09", "names from files never become paths", d09},
    {NULL, NULL, NULL},
};
