/* test_dataset.c - every layout recognised, in order, with its split; lists; labels hidden.
 *
 * Names are all that matters, so most files are empty; test_dataset_load.c has volumes.
 */
#include "test.h"

#include <unistd.h>

#include "base/io.h"
#include "data/dataset.h"

static char *home; /* scratch folder of the running test */
static struct error e;

static int enter(void **state)
{
    (void)state;
    memset(&e, 0, sizeof e);
    return io_temp_folder(&home, &e) < 0 || chdir(home) < 0 ? -1 : 0;
}

static int leave(void **state)
{
    (void)state;
    int left = chdir("/");
    io_remove_tree(home);
    mem_free(home);
    return left;
}

/* ---- making sets ---- */

static void put(const char *path, const char *text)
{
    char *folder = path_folder(&e, path);
    assert_ok(io_make_folders(folder, &e), e);
    assert_ok(io_write_all(path, 0666, text, strlen(text), &e), e);
    mem_free(folder);
}

/* Words separated by blanks; '@' in the pattern stands for the word, '_' at its ends is kept. */
static void put_each(const char *pattern, const char *words)
{
    char copy[4096], path[600];
    snprintf(copy, sizeof copy, "%s", words);
    const char *at = strchr(pattern, '@');
    for (char *w = strtok(copy, " "); w; w = strtok(NULL, " ")) {
        snprintf(path, sizeof path, "%.*s%s%s", (int)(at - pattern), pattern, w, at + 1);
        put(path, "");
    }
}

/* ---- looking at sets ---- */

/* "a+ b- | c+": names in order, + labelled, the bar between training and test. */
static char *describe(const struct dataset *d)
{
    static char text[8192];
    size_t n = 0;
    text[0] = '\0';
    for (int i = 0; i < d->n_cases; i++) {
        const struct data_case *c = &d->cases[i];
        int first_test = c->split == SPLIT_TEST && (i == 0 || d->cases[i - 1].split == SPLIT_TRAIN);
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%s%s%s", first_test ? "| " : "", c->name,
                              c->label ? "+" : "-", i + 1 < d->n_cases ? " " : "");
    }
    return text;
}

static void expect_set(const char *path, const struct dataset_options *o, enum layout layout,
                       const char *cases)
{
    struct dataset d;
    assert_ok(dataset_open(&d, path, o, &e), e);
    assert_string_equal(layout_name(d.layout), layout_name(layout));
    assert_string_equal(describe(&d), cases);
    dataset_free(&d);
}

/* ---- layouts ---- */

static void plain(void **state)
{
    (void)state;
    put_each("images/@.nii.gz", "b a c ._a _x B");
    put_each("labels/@.nrrd", "c a");
    put("images/readme.txt", "not a scan");
    put("images/pair.hdr", "");
    put("images/pair.img", "");
    expect_set(".", NULL, LAYOUT_PLAIN, "B- a+ b- c+ pair-");
    put("train.list", "# order of the paper\r\nc\r\n\r\n  a \nB\n");
    expect_set("./", NULL, LAYOUT_PLAIN, "c+ a+ B-");
    put("test.list", "b\n");
    expect_set(home, NULL, LAYOUT_PLAIN, "c+ a+ B- | b-");
    io_remove_tree("train.list");
    expect_set(".", NULL, LAYOUT_PLAIN, "B- a+ c+ pair- | b-");
}

/* masks/ may be anything; taken for labels they would teach what nobody meant. */
static void masks_are_no_labels(void **state)
{
    (void)state;
    struct report heard = {0};
    put_each("images/@.nii.gz", "a b");
    put_each("masks/@.nii.gz", "a b");
    expect_set(".", &(struct dataset_options){.report = &heard}, LAYOUT_PLAIN, "a- b-");
    assert_int_equal(heard.n_warnings, 1);
    put_each("labels/@.nii.gz", "b");
    expect_set(".", &(struct dataset_options){.report = &heard}, LAYOUT_PLAIN, "a- b+");
    assert_int_equal(heard.n_warnings, 1);
}

static void plain_with_suffixes(void **state)
{
    (void)state;
    put_each("imagesTr/@.nii", "scan_0000 scan_0001");
    put_each("labelsTr/@.nii", "scan_0000");
    put_each("imagesTs/@.nii", "t");
    put_each("labelsTs/@.nii", "t");
    expect_set(".", NULL, LAYOUT_PLAIN, "scan_0000+ scan_0001- | t+");
    put("labelsTr/a.nii", ""); /* now some label shows that numbers are channels */
    put_each("imagesTr/@.nii", "a_0000 a_0001");
    io_remove_tree("labelsTr/scan_0000.nii");
    struct dataset d;
    assert_ok(dataset_open(&d, ".", NULL, &e), e);
    assert_string_equal(describe(&d), "a+ scan- | t+");
    assert_int_equal(d.cases[0].n_images, 2);
    assert_string_equal(d.cases[0].images[1], "./imagesTr/a_0001.nii");
    dataset_free(&d);
}

#define NNUNET(more)                                                                                         \
    "{\"channel_names\": {\"0\": \"T1\", \"1\": \"T2\"}, \"labels\": {\"background\": 0, "                   \
    "\"organ\": 1, \"tumour\": 2}, \"numTraining\": 1, \"file_ending\": \".nii.gz\"" more "}"

static void nnunet(void **state)
{
    (void)state;
    put("dataset.json", NNUNET(""));
    put_each("imagesTr/@.nii.gz", "b_0001 b_0000 a_0000 a_0001");
    put_each("imagesUn/@.nii.gz", "u_0000 u_0001");
    put_each("imagesTs/@.nii.gz", "t_0000 t_0001");
    put_each("labelsTr/@.nii.gz", "b");
    struct dataset d;
    assert_ok(dataset_open(&d, ".", NULL, &e), e);
    assert_int_equal(d.layout, LAYOUT_NNUNET);
    assert_string_equal(describe(&d), "a- b+ u- | t-");
    assert_int_equal(d.n_classes, 3);
    assert_string_equal(d.class_names[2], "tumour");
    assert_int_equal(d.n_channels, 2);
    assert_string_equal(d.cases[1].images[1], "./imagesTr/b_0001.nii.gz");
    dataset_free(&d);
    put("imagesTr/nochannel.nii.gz", "");
    assert_refused(dataset_open(&d, ".", NULL, &e), e, ERR_DATA, "L14", "nochannel");
}

static void nnunet_of_another_ending(void **state)
{
    (void)state;
    struct dataset d;
    put("dataset.json", NNUNET(""));
    put_each("imagesTr/@.nrrd", "a_0000 a_0001");
    assert_refused(dataset_open(&d, ".", NULL, &e), e, ERR_DATA, "L01", "./dataset.json: ", "_0000.nii.gz");
}

static void nnunet_dataset_key(void **state)
{
    (void)state;
    put("dataset.json", NNUNET(", \"dataset\": {\"z\": {\"images\": [\"x/1.nii\", \"x/2.nii\"], \"label\": "
                               "\"y/z.nii\"}, \"a\": {\"images\": [\"x/3.nii\", \"x/4.nii\"]}}"));
    put("y/z.nii", "");
    expect_set(".", NULL, LAYOUT_NNUNET, "z+ a-"); /* json order */
    put("dataset.json", NNUNET(", \"dataset\": {\"z\": {\"images\": [\"../x.nii\", \"x/2.nii\"]}}"));
    struct dataset d;
    assert_refused(dataset_open(&d, ".", NULL, &e), e, ERR_DATA, "L11");
    expect_set(".", &(struct dataset_options){.follow = 1}, LAYOUT_NNUNET, "z-");
    put("dataset.json", NNUNET(", \"dataset\": {\"../../z\": {\"images\": [\"x/1.nii\", \"x/2.nii\"]}}"));
    expect_set(".", NULL, LAYOUT_NNUNET, ".._.._z-"); /* masks are called after it */
}

static void regions_are_plain_values(void **state)
{
    (void)state;
    struct report heard = {0};
    struct dataset d;
    put("dataset.json", "{\"channel_names\": {\"0\": \"T1\"}, \"file_ending\": \".nii\", \"labels\": "
                        "{\"background\": 0, \"whole\": [1, 2, 3], \"core\": [2, 3], \"enhancing\": 3}}");
    put("imagesTr/a_0000.nii", "");
    assert_ok(dataset_open(&d, ".", &(struct dataset_options){.report = &heard}, &e), e);
    assert_int_equal(d.n_classes, 4);
    assert_string_equal(d.class_names[1], "class 1");
    assert_string_equal(d.class_names[3], "enhancing");
    assert_int_equal(heard.n_warnings, 1);
    dataset_free(&d);
}

#define MSD(name, more)                                                                                      \
    "{\"name\": \"" name "\", \"labels\": {\"0\": \"background\", \"1\": \"organ\"}, "                       \
    "\"numTraining\": 2, \"training\": [" more "], \"test\": [\"./imagesTs/t.nii.gz\", {\"image\": "         \
    "\"./imagesTs/s.nii.gz\"}]}"

static void msd(void **state)
{
    (void)state;
    struct report heard = {0};
    put("dataset.json",
        MSD("Heart", "{\"image\": \"./imagesTr/z.nii.gz\", \"label\": \"./labelsTr/z.nii.gz\"},"
                     "{\"image\": \"./imagesTr/a.nii.gz\", \"label\": \"./labelsTr/a.nii.gz\"}"));
    put("labelsTr/z.nii.gz", "");
    expect_set(".", &(struct dataset_options){.report = &heard}, LAYOUT_MSD, "z+ a- | t- s-");
    assert_int_equal(heard.n_warnings, 1); /* a's label is promised, not there */
    expect_set("dataset.json", NULL, LAYOUT_MSD, "z+ a- | t- s-");
}

/* nnU-Net v1: the json of MSD names cases, and their files carry channel numbers. A file that is there
 * as it is named has none. */
static void msd_of_numbered_files(void **state)
{
    (void)state;
    struct dataset d;
    put("dataset.json",
        MSD("Heart", "{\"image\": \"./imagesTr/z.nii.gz\", \"label\": \"./labelsTr/z.nii.gz\"},"
                     "{\"image\": \"./imagesTr/a.nii.gz\"}"));
    put_each("imagesTr/@.nii.gz", "z_0000 z_0001 a_0000 a_0001 a_0003");
    put_each("imagesTs/@.nii.gz", "s s_0000 s_0001");
    put("labelsTr/z.nii.gz", "");
    assert_ok(dataset_open(&d, ".", NULL, &e), e);
    assert_string_equal(describe(&d), "z+ a- | t- s-");
    assert_int_equal(d.cases[0].n_images, 2);
    assert_string_equal(path_name(d.cases[0].images[1]), "z_0001.nii.gz");
    assert_int_equal(d.cases[1].n_images, 2);
    assert_string_equal(path_name(d.cases[2].images[0]), "t.nii.gz"); /* not there: told when read */
    assert_int_equal(d.cases[3].n_images, 1);
    dataset_free(&d);
    assert_int_equal(symlink("/dev/null", "imagesTr/a_0002.nii.gz"), 0);
    assert_refused(dataset_open(&d, ".", NULL, &e), e, ERR_DATA, "L11");
}

/* 126 labelled cases called Colon: 100 and 26, drawn from the seed. */
static void colon(void **state)
{
    (void)state;
    char *items = mem_alloc(&e, 126, 120), *text, name[64];
    size_t n = 0;
    for (int i = 0; i < 126; i++) {
        n += (size_t)snprintf(items + n, 126 * 120 - n,
                              "%s{\"image\": \"imagesTr/c%03d.nii\", \"label\": "
                              "\"labelsTr/c%03d.nii\"}",
                              i ? "," : "", i, i);
        snprintf(name, sizeof name, "labelsTr/c%03d.nii", i);
        put(name, "");
    }
    text = mem_format(&e, MSD("Colon", "%s"), items);
    put("dataset.json", text);
    char drawn[3][8192];
    for (uint64_t seed = 0; seed < 3; seed++) {
        struct dataset d;
        struct dataset_options o = {.seed = seed / 2};
        assert_ok(dataset_open(&d, ".", &o, &e), e);
        assert_int_equal(d.n_cases, 126);
        assert_int_equal(dataset_count(&d, SPLIT_TRAIN, 1), 100);
        assert_int_equal(dataset_count(&d, SPLIT_TEST, 1), 26);
        assert_says(d.note, "seed");
        snprintf(drawn[seed], sizeof drawn[seed], "%s", describe(&d));
        dataset_free(&d);
    }
    assert_string_equal(drawn[0], drawn[1]);
    assert_string_not_equal(drawn[0], drawn[2]);
    mem_free(items);
    mem_free(text);
}

static void datalist(void **state)
{
    (void)state;
    put("set/l.json",
        "{\"training\": [{\"image\": [\"p1/t1.nii\", \"p1/t2.nii\"], "
        "\"label\": \"p1/seg.nii\", \"fold\": 0}, {\"image\": [\"p2/t1.nii\", \"p2/t2.nii\"]}], "
        "\"validation\": [{\"image\": [\"p3/t1.nii\", \"p3/t2.nii\"], \"label\": \"p3/seg.nii\"}], "
        "\"comment\": \"x\"}");
    put("set/p1/seg.nii", "");
    put("set/p3/seg.nii", "");
    expect_set("set/l.json", NULL, LAYOUT_DATALIST, "p1_t1+ p2_t1- | p3_t1+");
    put("set/m.json", "{\"dataroot\": \"p1\", "
                      "\"training\": [{\"image\": \"t1.nii\", \"label\": \"seg.nii\"}]}");
    expect_set("set/m.json", NULL, LAYOUT_DATALIST, "t1+");
    put("set/n.json", "{\"training\": [{\"image\": [\"a_0000.nii.gz\", \"a_0001.nii.gz\"]}, "
                      "{\"image\": \"b_0000.nii.gz\"}]}");
    expect_set("set/n.json", NULL, LAYOUT_DATALIST, "a- b_0000-"); /* a number is a channel among several */
    struct dataset d;
    put("set/o.json", "{\"training\": [{\"image\": \"p1\\\\t1.nii\"}]}"); /* as written on Windows */
    assert_refused(dataset_open(&d, "set/o.json", NULL, &e), e, ERR_DATA, "C06",
                   "set/o.json: ", "\"p1\\t1.nii\"");
}

#define LIST_OF_TWO                                                                                          \
    "{\"training\": [{\"image\": \"images/a.nii\", \"label\": \"labels/a.nii\"}], "                          \
    "\"testing\": [{\"image\": \"images/b.nii\", \"label\": \"labels/b.nii\"}]}"

/* Next to images/ and labels/, which alone would make every case a training case. */
static void datalist_in_a_folder(void **state)
{
    (void)state;
    struct dataset d;
    put_each("images/@.nii", "a b c");
    put_each("labels/@.nii", "a b c");
    put("notes.json", "{\"training\": \"went well\"}");
    put("broken.json", "{");
    expect_set(".", NULL, LAYOUT_PLAIN, "a+ b+ c+");
    put("fold_0.json", LIST_OF_TWO);
    expect_set(".", NULL, LAYOUT_DATALIST, "a+ | b+");
    put("datalist_1.json", LIST_OF_TWO);
    assert_refused(dataset_open(&d, ".", NULL, &e), e, ERR_DATA, "L01", "datalist_1.json", "fold_0.json");
    expect_set("fold_0.json", NULL, LAYOUT_DATALIST, "a+ | b+");
    unlink("fold_0.json");
    expect_set(".", NULL, LAYOUT_DATALIST, "a+ | b+");
    put("datalist_1.json", "{\"training\": [");
    assert_refused(dataset_open(&d, ".", NULL, &e), e, ERR_DATA, "C06");
    unlink("datalist_1.json");
    expect_set(".", NULL, LAYOUT_PLAIN, "a+ b+ c+");
    put("unfinished", "{}");
    assert_refused(dataset_open(&d, ".", NULL, &e), e, ERR_DATA, "L01", "phantom");
}

static void prepared(void **state)
{
    (void)state;
    put("prepared.json",
        "{\"recipe\": \"auto\", \"classes\": [\"background\", \"organ\"], \"cases\": ["
        "{\"name\": \"z\", \"images\": [\"images/z.nii\"], \"label\": \"labels/z.nii\"},"
        "{\"name\": \"y\", \"split\": \"test\", \"images\": [\"images/y.nii\"], \"label\": null},"
        "{\"name\": \"x\", \"images\": [\"images/x.nii\"]}]}");
    put("labels/z.nii", "");
    put_each("images/@.nii", "x y z other");
    expect_set(".", NULL, LAYOUT_PREPARED, "z+ x- | y-");
    struct dataset d;
    assert_ok(dataset_open(&d, ".", NULL, &e), e);
    assert_false(d.cases[0].place_unknown); /* no word of it: a file without a place is told of */
    dataset_free(&d);
}

static void left_atrium(void **state)
{
    (void)state;
    put_each("Training Set/@/lgemri.nrrd", "ZZTEST 0RZDK210BSMWAA6467LU 06SR5RBREL16DQ6M8LWS");
    put_each("Training Set/@/laendo.nrrd", "ZZTEST 06SR5RBREL16DQ6M8LWS");
    put_each("Testing Set/@/lgemri.nrrd", "NEVER");
    struct dataset d;
    assert_ok(dataset_open(&d, ".", NULL, &e), e);
    assert_int_equal(d.layout, LAYOUT_LA);
    assert_string_equal(describe(&d), "06SR5RBREL16DQ6M8LWS+ 0RZDK210BSMWAA6467LU- | ZZTEST+");
    assert_int_equal(d.n_label_map, 1);
    assert_int_equal(d.label_map[0][0], 255);
    assert_int_equal(d.label_map[0][1], 1);
    dataset_free(&d);
}

static void pancreas(void **state)
{
    (void)state;
    char path[128];
    for (int i = 1; i <= 82; i++) {
        snprintf(path, sizeof path, "manifest-1/Pancreas-CT/PANCREAS_%04d/study/series/1-001.dcm", i);
        put(path, "");
        snprintf(path, sizeof path, "TCIA_pancreas_labels-02-05-2017/label%04d.nii.gz", i);
        if (i != 69)
            put(path, "");
    }
    struct dataset d;
    assert_ok(dataset_open(&d, ".", NULL, &e), e);
    assert_int_equal(d.layout, LAYOUT_PANCREAS);
    assert_int_equal(d.n_cases, 80);
    assert_int_equal(dataset_count(&d, SPLIT_TRAIN, -1), 60);
    assert_true(text_starts_with(describe(&d), "PANCREAS_0031+ PANCREAS_0069- PANCREAS_0003+ "));
    assert_string_equal(d.cases[60].name, "PANCREAS_0001");
    for (int i = 0; i < 80; i++)
        assert_true(strcmp(d.cases[i].name, "PANCREAS_0025") && strcmp(d.cases[i].name, "PANCREAS_0070"));
    assert_string_equal(d.cases[60].images[0], "./manifest-1/Pancreas-CT/PANCREAS_0001/study/series");
    dataset_free(&d);
}

static void h5(void **state)
{
    (void)state;
    put_each("a/@/mri_norm2.h5", "one two three");
    put("a/train.list", "two\none\n");
    expect_set("a", NULL, LAYOUT_H5, "two+ one+");
    put_each("b/data/@.h5", "one two three");
    put("b/train.txt", "two\n");
    put("b/test.txt", "three\n");
    expect_set("b", NULL, LAYOUT_H5, "two+ | three+");
    put_each("c/Pancreas_h5/@_norm.h5", "image0001 image0002");
    put("c/train.list", "image0002\n");
    put("c/test.list", "image0001\n");
    expect_set("c/Pancreas_h5", NULL, LAYOUT_H5, "image0002+ | image0001+"); /* lists one level above */
    expect_set("c", NULL, LAYOUT_H5, "image0002+ | image0001+");
}

static void nothing_recognised(void **state)
{
    (void)state;
    struct dataset d;
    put("notes.txt", "");
    assert_refused(dataset_open(&d, ".", NULL, &e), e, ERR_DATA, "L01", "datalist*.json");
    assert_refused(dataset_open(&d, "notes.txt", NULL, &e), e, ERR_DATA, "L01");
    assert_refused(dataset_open(&d, "absent", NULL, &e), e, ERR_SYSTEM, "Z12");
    put("images/readme.txt", "");
    assert_refused(dataset_open(&d, ".", NULL, &e), e, ERR_DATA, "L01");
}

/* ---- labels ---- */

static void labels_are_hidden(void **state)
{
    (void)state;
    put_each("images/@.nii", "a b c d e");
    put_each("labels/@.nii", "a c d e");
    put("test.list", "e\n");
    expect_set(".", &(struct dataset_options){.labeled = "2"}, LAYOUT_PLAIN, "a+ b- c+ d- | e+");
    put("train.list", "d\nc\nb\na\n");
    expect_set(".", &(struct dataset_options){.labeled = "2"}, LAYOUT_PLAIN, "d+ c+ b- a- | e+");
    put("few.list", "a\n");
    expect_set(".", &(struct dataset_options){.labeled = "few.list"}, LAYOUT_PLAIN, "d- c- b- a+ | e+");
    struct dataset d;
    assert_refused(dataset_open(&d, ".", &(struct dataset_options){.labeled = "4"}, &e), e, ERR_CONFIG,
                   "C03");
    put("few.list", "b\n");
    assert_refused(dataset_open(&d, ".", &(struct dataset_options){.labeled = "few.list"}, &e), e, ERR_DATA,
                   "L01");
    static const char *const none[] = {"", "# nobody\n", "e\n"}; /* e is a test case */
    for (int i = 0; i < 3; i++) {
        put("few.list", none[i]);
        assert_refused(dataset_open(&d, ".", &(struct dataset_options){.labeled = "few.list"}, &e), e,
                       ERR_CONFIG, "C03", "few.list: ", "--labeled");
    }
}

static void cases_are_left_out(void **state)
{
    struct dataset d;
    (void)state;
    put_each("images/@.nii", "a b c d e");
    put_each("labels/@.nii", "a c d e");
    put("test.list", "e\n");
    put("out.list", "c\ne\n");
    expect_set(".", &(struct dataset_options){.leave_out = "out.list"}, LAYOUT_PLAIN, "a+ b- d+");
    expect_set(".", &(struct dataset_options){.leave_out = "out.list", .labeled = "1"}, LAYOUT_PLAIN,
               "a+ b- d-");
    put("out.list", "c\nx\n");
    assert_refused(dataset_open(&d, ".", &(struct dataset_options){.leave_out = "out.list"}, &e), e, ERR_DATA,
                   "L01");
    put("out.list", "a\nb\nc\nd\ne\n");
    assert_refused(dataset_open(&d, ".", &(struct dataset_options){.leave_out = "out.list"}, &e), e, ERR_DATA,
                   "L01");
}

/* Labels that cannot be reached, on a disk that is not mounted say, are not labels nobody made. */
static void links_that_lead_nowhere(void **state)
{
    (void)state;
    struct dataset d;
    struct dataset_options follow = {.follow = 1};
    static const char *const ends[] = {"labels", "/nowhere/labels"};
    put_each("images/@.nii", "a b");
    for (int i = 0; i < 2; i++) {
        assert_int_equal(symlink(ends[i], "labels"), 0);
        assert_refused(dataset_open(&d, ".", &follow, &e), e, ERR_SYSTEM, "Z12", "labels");
        assert_int_equal(unlink("labels"), 0);
    }
    assert_ok(dataset_open(&d, ".", &follow, &e), e);
    dataset_free(&d);
}

/* No allocation that fails may leak, crash or go unnoticed. */
static void memory_may_run_out(void **state)
{
    (void)state;
    put("dataset.json",
        MSD("Heart", "{\"image\": \"a.nii\", \"label\": \"la.nii\"}, {\"image\": \"b.nii\"}"));
    put_each("p/images/@.nii", "a b c");
    put_each("p/labels/@.nii", "a b");
    put("p/train.list", "a\nb\n");
    static const char *const sets[] = {".", "p"};
    for (int s = 0; s < 2; s++)
        for (int64_t n = 0, done = 0; !done; n++) {
            struct dataset d;
            mem_fail_at(n, 0);
            int result = dataset_open(&d, sets[s], &(struct dataset_options){.labeled = "1"}, &e);
            done = mem_count() <= n;
            mem_fail_at(-1, 0);
            assert_true(done || (result < 0 && e.code == ERR_MEMORY));
            if (result == 0)
                dataset_free(&d);
            assert_true(n < 10000);
        }
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, enter, leave)
    const struct CMUnitTest tests[] = {
        T(plain),
        T(masks_are_no_labels),
        T(plain_with_suffixes),
        T(nnunet),
        T(nnunet_of_another_ending),
        T(nnunet_dataset_key),
        T(regions_are_plain_values),
        T(msd),
        T(msd_of_numbered_files),
        T(colon),
        T(datalist),
        T(datalist_in_a_folder),
        T(prepared),
        T(left_atrium),
        T(pancreas),
        T(h5),
        T(nothing_recognised),
        T(labels_are_hidden),
        T(cases_are_left_out),
        T(links_that_lead_nowhere),
        T(memory_may_run_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
