/* faults_layout.c - L01 to L14: data sets whose files do not fit together.
 *
 * A sound set of small cases is damaged in one way at a time and given to `falx check`. A case
 * without a label is unlabelled and never a fault.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "faults.h"

enum { DIM = 40, DATATYPE = 70, BITPIX = 72, SROW = 280, VOXELS = 352, N_VOXELS = 24 };

static struct nifti1 f;

/* An image that no other case has: `mark` is its first voxel. */
static void put_image(const char *path, int16_t mark)
{
    nifti_good(&f);
    set_i16(&f, VOXELS, mark);
    nifti_put(path, &f);
}

static void put_label(const char *path)
{
    nifti_good_label(&f);
    nifti_put(path, &f);
}

static void put_case(const char *name, int16_t mark)
{
    char path[300];
    put_folder("images");
    put_folder("labels");
    snprintf(path, sizeof path, "images/%s.nii", name);
    put_image(path, mark);
    snprintf(path, sizeof path, "labels/%s.nii", name);
    put_label(path);
}

static void put_two(void)
{
    put_case("a", 100);
    put_case("b", 101);
}

/* A label with one voxel of the given value; as float32 if `real`. */
static void put_odd_label(const char *path, double value, int real)
{
    nifti_good_label(&f);
    if (real) {
        set_i16(&f, DATATYPE, 16);
        set_i16(&f, BITPIX, 32);
        f.n = VOXELS + 4 * N_VOXELS;
        for (size_t i = 0; i < N_VOXELS; i++)
            set_f32(&f, VOXELS + 4 * i, i == 5 ? (float)value : i % 2 ? 1.0f : 0.0f);
    } else {
        f.byte[VOXELS + 5] = (unsigned char)value;
    }
    nifti_put(path, &f);
}

static void l01(void)
{
    put_two();
    unlink("labels/b.nii");
    run("check", ".", NULL);
    expect_accepted(NULL); /* unlabelled */
    expect_output("1 labelled, 1 unlabelled");
    put_label("labels/c.nii");
    run("check", ".", NULL);
    expect_refusal(3, "labels/c.nii", "");
    rename("labels/c.nii", "labels/B.nii");
    run("check", ".", NULL);
    expect_refusal(3, "labels/B.nii", "case");
    rename("labels/B.nii", "labels/b.nii");
    put_text("train.list", "a\nb\nghost\n");
    run("check", ".", NULL);
    expect_refusal(3, "train.list", "\"ghost\"");
}

/* Nothing to recognise, a file, a set of which a part was made: one line each. */
static void l01_nothing(void)
{
    put_folder("empty");
    run("check", "empty", NULL);
    expect_refusal(3, "empty: ", "dataset.json");
    put_text("file", "x");
    run("check", "file", NULL);
    expect_refusal(3, "file: ", ".json");
    run("check", "missing", NULL);
    expect(last_exit() == 4);
    expect_fact("missing: ");
    put_two();
    put_text("unfinished", "{}");
    run("check", ".", NULL);
    expect_refusal(3, ".: ", "phantom");
    unlink("unfinished");
    put_text("datalist.json", "{\"training\": [{\"image\": \"images/a.nii\", \"label\": "
                              "\"labels/a.nii\"}], \"testing\": [{\"image\": \"images/b.nii\"}]}");
    run("check", ".", NULL);
    expect_accepted(NULL);
    expect_output("1 labelled, 0 unlabelled, 1 test");
}

static void l02(void)
{
    put_two();
    nifti_good_label(&f);
    set_i16(&f, DIM + 6, 1); /* 4x3x1 */
    f.n = VOXELS + 12;
    nifti_put("labels/b.nii", &f);
    run("check", ".", NULL);
    expect_refusal(3, "labels/b.nii", "4x3x1");
}

static void l03(void)
{
    put_two();
    nifti_good_label(&f);
    set_f32(&f, SROW + 12, 7.5f); /* the origin's first coordinate */
    nifti_put("labels/b.nii", &f);
    run("check", ".", NULL);
    expect_refusal(3, "labels/b.nii", "0.001");
    run("check", ".", "--geometry-tolerance", "1000", NULL);
    expect_accepted(NULL);
    nifti_good_label(&f); /* the same voxels from the other side: no other place */
    set_f32(&f, SROW, -1.0f);
    set_f32(&f, SROW + 12, 3.0f);
    for (size_t i = 0; i < N_VOXELS; i++)
        f.byte[VOXELS + i] = (i / 4 * 4 + 3 - i % 4) % 3 == 1;
    nifti_put("labels/b.nii", &f);
    run("check", ".", NULL);
    expect_accepted(NULL);
    run("eval", "labels/a.nii", "labels/b.nii", NULL);
    expect_accepted(NULL);
    expect_output("1.0000    1.0000");
    set_f32(&f, SROW + 12, 3.5f);
    nifti_put("labels/b.nii", &f);
    run("check", ".", NULL);
    expect_refusal(3, "labels/b.nii", "0.001");
    run("eval", "labels/a.nii", "labels/b.nii", NULL);
    expect_refusal(3, "labels/b.nii", " mm");
}

static void l04(void)
{
    put_two();
    put_odd_label("labels/b.nii", 255, 0);
    run("check", ".", NULL);
    expect_refusal(3, "labels/b.nii", "255");
    run("check", ".", "--label-map", "255=1", NULL);
    expect_accepted(NULL);
    put_odd_label("labels/b.nii", -1, 1);
    run("check", ".", NULL);
    expect_refusal(3, "labels/b.nii", "-1");
    put_label("labels/b.nii");
    rename("images", "imagesTr");
    rename("labels", "labelsTr");
    rename("imagesTr/a.nii", "imagesTr/a_0000.nii");
    rename("imagesTr/b.nii", "imagesTr/b_0000.nii");
    put_text("dataset.json", "{\"channel_names\": {\"0\": \"CT\"}, \"file_ending\": \".nii\", \"numTraining\""
                             ": 2, \"labels\": {\"background\": 0, \"organ\": 1, \"ignore\": 2}}");
    run("check", ".", NULL);
    expect_refusal(3, "dataset.json", "\"ignore\"");
    run("check", ".", "--label-map", "2=0", NULL);
    expect_accepted(NULL);
    put_odd_label("labelsTr/b.nii", 3, 0);
    run("check", ".", "--label-map", "2=0", NULL);
    expect_refusal(3, "labelsTr/b.nii", "0..1");
}

static void l05(void)
{
    put_two();
    put_odd_label("labels/b.nii", 0.9, 1);
    run("check", ".", NULL);
    expect_refusal(3, "labels/b.nii", "0.9");
    put_odd_label("labels/b.nii", 0.9995, 1);
    run("check", ".", NULL);
    expect_accepted(NULL);
}

static void l06(void)
{
    put_two();
    put_odd_label("labels/b.nii", 0.0 / 0.0, 1);
    run("check", ".", NULL);
    expect_refusal(3, "labels/b.nii", "");
}

static void l07(void)
{
    put_two();
    nifti_good_label(&f);
    memset(f.byte + VOXELS, 0, N_VOXELS);
    nifti_put("labels/b.nii", &f);
    run("check", ".", NULL);
    expect_accepted("background");
    put_odd_label("labels/b.nii", 3, 0); /* classes 0, 1 and 3: none is 2 */
    run("check", ".", NULL);
    expect_accepted("class 2");
    put_text("dataset.json",
             "{\"modality\": {\"0\": \"CT\"}, \"labels\": {\"0\": \"background\", \"1\": \"liver\", "
             "\"2\": \"spleen\", \"3\": \"colon\"}, \"training\": ["
             "{\"image\": \"images/a.nii\", \"label\": \"labels/a.nii\"}, "
             "{\"image\": \"images/b.nii\", \"label\": \"labels/b.nii\"}]}");
    run("check", ".", NULL); /* declared: few labels need not hold every organ */
    expect_accepted("class 2 (spleen)");
    unlink("dataset.json");
    put_odd_label("labels/b.nii", 2, 0);
    put_text("test.list", "b\n");
    run("check", ".", NULL);
    expect_accepted("test");
}

static void l08(void)
{
    put_two();
    nifti_good(&f);
    for (size_t i = 0; i < N_VOXELS; i++)
        set_i16(&f, VOXELS + 2 * i, (int16_t)(i % 3));
    nifti_put("images/b.nii", &f);
    nifti_put("labels/b.nii", &f);
    run("check", ".", NULL);
    expect_refusal(3, "labels/b.nii", "image");
}

static void l09(void)
{
    put_two();
    put_case("c", 100); /* the voxels of a */
    run("check", ".", NULL);
    expect_accepted("\"a\"");
    put_text("test.list", "c\n");
    run("check", ".", NULL);
    expect_refusal(3, "images/c.nii", "\"c\"");
    expect_fact("\"a\"");
    put_text("train.list", "a\nb\nc\n");
    run("check", ".", NULL);
    expect_refusal(3, "test.list", "\"c\"");
    put_text("train.list", "a\na\n");
    run("check", ".", NULL);
    expect_refusal(3, "train.list", "\"a\"");
}

static void l10(void)
{
    put_two();
    run("check", ".", NULL);
    expect_accepted(NULL);
    expect_output("unlabelled");
    run("check", ".", "--batch", "6", "--labeled-batch", "3", NULL);
    expect_accepted(NULL);
    expect_output("2 labelled");
}

static void l11(void)
{
    put_folder("outside");
    put_image("outside/b.nii", 102);
    put_folder("set");
    expect(chdir("set") == 0);
    put_two();
    put_text("train.list", "a\n../set/images/b\n");
    expect(chdir("..") == 0);
    run("check", "set", NULL);
    expect_refusal(3, "set/train.list", "");
    expect(chdir("set") == 0);
    put_text("train.list", "/etc/passwd\n");
    expect(chdir("..") == 0);
    run("check", "set", NULL);
    expect_refusal(3, "set/train.list", "");
    unlink("set/train.list");
    unlink("set/images/b.nii");
    expect(symlink("../../outside/b.nii", "set/images/b.nii") == 0);
    run("check", "set", NULL);
    expect_refusal(3, "set/images/b.nii", "link");
    run("check", "set", "--follow", NULL);
    expect_accepted(NULL);
    put_text("set/list.json", "{\"training\": [{\"image\": \"../outside/b.nii\"}]}");
    run("check", "set/list.json", NULL);
    expect_refusal(3, "set/list.json", "");
    run("check", "set/list.json", "--follow", NULL);
    expect_accepted(NULL);
}

static void l12(void)
{
    char longest[256];
    memset(longest, 'x', sizeof longest);
    longest[251] = '\0'; /* with .nii a name of 255 bytes, the most there is */
    const char *const names[] = {"with space",
                                 "two\nlines",
                                 "%s%n%d",
                                 "-rf",
                                 "\xFF\xFE",
                                 "\xE2\x80\xAE"
                                 "abc",
                                 "quote\"back\\slash",
                                 longest};
    const int n = sizeof names / sizeof *names;
    for (int i = 0; i < n; i++)
        put_case(names[i], (int16_t)(100 + i));
    run("check", ".", NULL);
    expect_accepted(NULL);
    expect_output("8 labelled");
    run("check", ".", "--json", NULL);
    expect_accepted(NULL);
    expect_output("\"two\\nlines\"");
    nifti_good_label(&f);
    f.n -= 3;
    nifti_put("labels/two\nlines.nii", &f);
    run("check", ".", NULL);
    expect(last_exit() == 3);
    expect_fact("two\\x0Alines.nii");
    expect(strchr(last_stderr(), '\n') == last_stderr() + strlen(last_stderr()) - 1); /* one line */
    rename("labels/two\nlines.nii", "labels/-rf.nii");
    put_label("labels/two\nlines.nii");
    rename("labels/-rf.nii", "labels/\xFF\xFE.nii");
    put_label("labels/-rf.nii");
    run("check", ".", NULL);
    expect_fact("\\xFF\\xFE.nii");
}

static void l13(void)
{
    put_two();
    put_text("train.list", "a\nb\n");
    char name[64];
    for (int i = 0; i < 100000; i++) {
        snprintf(name, sizeof name, "images/other%06d.nii", i);
        int fd = open(name, O_CREAT | O_WRONLY, 0666);
        expect(fd >= 0);
        close(fd);
    }
    run("check", ".", NULL);
    expect_accepted(NULL);
    expect_output("100000 cases");
    put_text("list.json", "{\"training\": [{\"image\": \"images/a.nii\"}, "
                          "{\"image\": \"images/gone.nii\"}]}");
    run("check", "list.json", NULL);
    expect_refusal(4, "images/gone.nii", "");
}

static void l14(void)
{
    put_two();
    nifti_good(&f);
    set_i16(&f, DIM, 4);
    set_i16(&f, DIM + 8, 2); /* two volumes */
    f.n = VOXELS + 4 * N_VOXELS;
    nifti_put("images/b.nii", &f);
    run("check", ".", NULL);
    expect_refusal(3, "images/b.nii", "2 channels");
    run("prepare", ".", "-o", "prepared", NULL);
    expect_refusal(3, "images/b.nii", "./images/a.nii");
    put_image("images/b.nii", 101);
    put_text("images/b.nrrd", "NRRD0004\n");
    run("check", ".", NULL);
    expect_refusal(3, "images/b.nii", "b.nrrd");
    unlink("images/b.nrrd");
    rename("images/b.nii", "images/b_0000.nii");
    nifti_good(&f);
    set_i16(&f, DIM + 2, 3); /* 3x3x2: another grid for channel 1 */
    nifti_put("images/b_0001.nii", &f);
    run("check", ".", NULL);
    expect_refusal(3, "images/b_0001.nii", "3x3x2");
}

const struct fault faults_layout[] = {
    {"L01", "labels without images, letter case", l01},
    {"L01", "nothing there, half a set, datalist in a folder", l01_nothing},
    {"L02", "shape of image and label differ", l02},
    {"L03", "place of image and label differ", l03},
    {"L04", "label values that are no class", l04},
    {"L05", "labels that are not integers", l05},
    {"L06", "labels that are NaN", l06},
    {"L07", "classes without a voxel", l07},
    {"L08", "label is a copy of the image", l08},
    {"L09", "the same case twice", l09},
    {"L10", "too few labelled or unlabelled cases", l10},
    {"L11", "links and paths out of the data set", l11},
    {"L12", "odd file names", l12},
    {"L13", "100,000 files, files that vanish", l13},
    {"L14", "mixed formats and channel counts", l14},
    {NULL, NULL, NULL},
};
