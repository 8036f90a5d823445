/* test_phantom.c - synthetic scans: the same bytes always, every class there, learnable but not by
 * brightness, and every layout readable by the rest of falx.
 */
#include <errno.h>
#include <math.h>
#include <unistd.h>

#include "base/io.h"
#include "phantom/phantom_set.h"
#include "test.h"

/* hash_case() of the two cases of same_bytes_on_every_machine. */
#define GOLDEN_MR 0xcdbeebd90d8b5a19u
#define GOLDEN_CT 0xa3ac47e924594c71u

static struct error e;

static struct phantom_options options(int size, int classes, enum layout layout)
{
    return (struct phantom_options){.cases = 3,
                                    .labeled = 1,
                                    .test = 1,
                                    .size = {size, size, size},
                                    .classes = classes,
                                    .channels = 1,
                                    .seed = 1337,
                                    .layout = layout};
}

static void make(struct volume *image, struct volume *label, const struct phantom_options *o, int index,
                 struct pool *pool)
{
    assert_ok(phantom_make(image, label, o, index, pool, &e), e);
}

static uint64_t hash_case(const struct phantom_options *o, int index, struct pool *pool)
{
    struct volume image, label;
    make(&image, &label, o, index, pool);
    size_t n = (size_t)(volume_voxels(&image) * volume_channels(&image));
    uint64_t h = hash_bytes(image.data, n * 2, 0);
    h = hash_bytes(label.data, (size_t)volume_voxels(&label), h);
    h = hash_bytes(image.dims, sizeof image.dims, h);
    h = hash_bytes(image.geometry.affine, sizeof image.geometry.affine, h);
    volume_free(&image);
    volume_free(&label);
    return h;
}

/* The numbers are what the program made when this test was written: they pin the data sets that
 * results were reported on. A deliberate change of the anatomy changes them. */
static void same_bytes_on_every_machine(void **state)
{
    (void)state;
    struct phantom_options mr = options(24, 14, LAYOUT_PLAIN), ct = options(24, 2, LAYOUT_PANCREAS);
    mr.channels = 2;
    assert_int_equal(hash_case(&mr, 0, NULL), GOLDEN_MR);
    assert_int_equal(hash_case(&ct, 1, NULL), GOLDEN_CT);
    assert_int_not_equal(hash_case(&ct, 0, NULL), GOLDEN_CT);
    ct.seed++;
    assert_int_not_equal(hash_case(&ct, 1, NULL), GOLDEN_CT);
}

static void more_classes_leave_the_image_alone(void **state)
{
    (void)state;
    struct phantom_options few = options(32, 2, LAYOUT_PLAIN), many = options(32, 11, LAYOUT_PLAIN);
    struct volume a, b, la, lb;
    make(&a, &la, &few, 0, NULL);
    make(&b, &lb, &many, 0, NULL);
    assert_memory_equal(a.data, b.data, (size_t)volume_voxels(&a) * 2);
    for (int64_t n = 0; n < volume_voxels(&a); n++)
        assert_int_equal(((uint8_t *)la.data)[n] == 1, ((uint8_t *)lb.data)[n] == 1);
    volume_free(&a);
    volume_free(&b);
    volume_free(&la);
    volume_free(&lb);
}

/* ---- folders --------------------------------------------------------------------------------- */

static uint64_t hash_tree(const char *folder, uint64_t h)
{
    struct io_listing l;
    assert_int_equal(io_list(&l, folder, NULL), 0);
    for (int n = 0; n < l.n; n++) {
        char *path = path_join(NULL, folder, l.entry[n].name);
        h = hash_bytes(l.entry[n].name, strlen(l.entry[n].name), h);
        if (l.entry[n].is_folder) {
            h = hash_tree(path, h);
        } else {
            int fd;
            uint64_t bytes;
            assert_int_equal(io_open_regular(&fd, &bytes, path, NULL), 0);
            char *content = mem_alloc(NULL, bytes, 1);
            assert_int_equal(io_read_full(fd, content, bytes), bytes);
            close(fd);
            h = hash_bytes(content, bytes, h);
            mem_free(content);
        }
        mem_free(path);
    }
    io_listing_free(&l);
    return h;
}

/* Writes a set into a new folder, to be removed by the caller. */
static char *write_set(const struct phantom_options *o, int n_threads)
{
    char *folder;
    struct pool *pool;
    assert_ok(io_temp_folder(&folder, &e), e);
    assert_ok(pool_new(&pool, n_threads, &e), e);
    assert_ok(phantom_write(folder, o, pool, NULL, NULL, &e), e);
    pool_free(pool);
    return folder;
}

static void remove_set(char *folder)
{
    io_remove_tree(folder);
    mem_free(folder);
}

static void threads_do_not_matter(void **state)
{
    (void)state;
    static const enum layout layout[] = {LAYOUT_PLAIN, LAYOUT_NNUNET, LAYOUT_H5, LAYOUT_PANCREAS};
    for (int n = 0; n < 4; n++) {
        struct phantom_options o = options(20, 2, layout[n]);
        uint64_t h[4];
        for (int t = 0; t < 4; t++) { /* 8 threads, 4 cases: the threads share each case */
            char *folder = write_set(&o, 1 << t);
            h[t] = hash_tree(folder, 0);
            remove_set(folder);
        }
        assert_int_equal(h[0], h[1]);
        assert_int_equal(h[0], h[2]);
        assert_int_equal(h[0], h[3]);
    }
}

static int count_entries(const char *folder, const char *sub)
{
    char *path = path_join(NULL, folder, sub);
    struct io_listing l = {0};
    int n = io_list(&l, path, NULL) < 0 ? -1 : l.n;
    io_listing_free(&l);
    mem_free(path);
    return n;
}

static void truth_is_kept_apart(void **state)
{
    (void)state;
    struct phantom_options o = options(16, 2, LAYOUT_PLAIN);
    o.cases = 5;
    o.labeled = 2;
    char *folder = write_set(&o, 1);
    assert_int_equal(count_entries(folder, "images"), 6);
    assert_int_equal(count_entries(folder, "labels"), 3);
    assert_int_equal(count_entries(folder, "truth"), 3);
    assert_int_equal(count_entries(folder, "rough"), 3);
    for (int n = 0; n < 6; n++) {
        char name[PHANTOM_NAME_BYTES];
        phantom_name(name, &o, n);
        char *label = mem_format(NULL, "%s/labels/%s.nii.gz", folder, name);
        char *truth = mem_format(NULL, "%s/truth/%s.nii.gz", folder, name);
        assert_int_equal(io_exists(truth), phantom_role(&o, n) == PHANTOM_UNLABELED);
        assert_int_equal(io_exists(label), !io_exists(truth));
        mem_free(label);
        mem_free(truth);
    }
    remove_set(folder);
}

/* ---- what is in the scans -------------------------------------------------------------------- */

static void every_class_is_present(void **state)
{
    (void)state;
    static const int size[] = {16, 16, 20, 48, 32}, classes[] = {2, 11, 33, 40, 256};
    for (int t = 0; t < 5; t++) {
        struct phantom_options o = options(size[t], classes[t], LAYOUT_PLAIN);
        for (int index = 0; index < 4; index++) {
            struct volume image, label;
            int64_t count[PHANTOM_MAX_CLASSES] = {0};
            make(&image, &label, &o, index, NULL);
            for (int64_t n = 0; n < volume_voxels(&label); n++)
                count[((uint8_t *)label.data)[n]]++;
            for (int c = 0; c < PHANTOM_MAX_CLASSES; c++)
                assert_int_equal(count[c] > 0, c < classes[t]);
            volume_free(&image);
            volume_free(&label);
        }
    }
}

/* Place of a class in patient mm, from the middle of the grid, and its part of the volume. */
static double centre_of(double out[3], const struct volume *label, int class)
{
    int64_t n = 0, at = 0;
    double sum[3] = {0, 0, 0};
    for (int64_t k = 0; k < label->dims[2]; k++)
        for (int64_t j = 0; j < label->dims[1]; j++)
            for (int64_t i = 0; i < label->dims[0]; i++, at++)
                if (((uint8_t *)label->data)[at] == class) {
                    sum[0] += (double)i - 0.5 * (double)(label->dims[0] - 1);
                    sum[1] += (double)j - 0.5 * (double)(label->dims[1] - 1);
                    sum[2] += (double)k - 0.5 * (double)(label->dims[2] - 1);
                    n++;
                }
    for (int a = 0; a < 3; a++) {
        out[a] = 0;
        for (int c = 0; c < 3; c++)
            out[a] += label->geometry.affine[a][c] * sum[c] / (double)n;
    }
    return (double)n / (double)at;
}

static void anatomy_is_the_same_in_every_case(void **state)
{
    (void)state;
    struct phantom_options o = options(40, 6, LAYOUT_PLAIN);
    int n_orientations = 0;
    char seen[24][4] = {{0}};
    for (int index = 0; index < 24; index++) {
        struct volume image, label;
        double gland[3], spleen[3], kidney[3], liver[3];
        char orientation[4];
        make(&image, &label, &o, index, NULL);
        double part = centre_of(gland, &label, 1);
        assert_true(part > 0.006 && part < 0.03);
        assert_true(fabs(gland[0]) < 35 && fabs(gland[1] - 20) < 35 && fabs(gland[2]) < 35);
        assert_true(centre_of(spleen, &label, 2) > 0.002);
        assert_true(centre_of(kidney, &label, 3) > 0.002);
        assert_true(centre_of(liver, &label, 5) > 0.02);
        assert_true(spleen[0] < -50);                 /* on the left, whatever the voxel axes are */
        assert_true(liver[0] > 20 && kidney[0] > 30); /* on the right */
        assert_true(kidney[1] < gland[1] - 20);       /* at the back */
        assert_true(liver[2] > kidney[2] + 20);       /* above */
        for (int a = 0; a < 3; a++)
            assert_true(image.dims[a] >= 34 && image.dims[a] <= 46);
        geometry_orientation(orientation, &image.geometry);
        int known = 0;
        for (int n = 0; n < n_orientations; n++)
            known |= strcmp(seen[n], orientation) == 0;
        if (!known)
            memcpy(seen[n_orientations++], orientation, 4);
        volume_free(&image);
        volume_free(&label);
    }
    assert_true(n_orientations >= 4);
}

/* Dice of the best interval of brightness, by trying all pairs of 64 levels. */
static double best_threshold_dice(const struct volume *image, const struct volume *label)
{
    int64_t in[65] = {0}, all[65] = {0}, n = volume_voxels(label), total = 0;
    int low = 32767, high = -32768;
    const int16_t *v = image->data;
    const uint8_t *mask = label->data;
    for (int64_t i = 0; i < n; i++) {
        low = mask[i] && v[i] < low ? v[i] : low;
        high = mask[i] && v[i] > high ? v[i] : high;
        total += mask[i] != 0;
    }
    for (int64_t i = 0; i < n; i++) {
        if (v[i] < low || v[i] > high)
            continue;
        int level = (v[i] - low) * 63 / (high - low);
        all[level]++;
        in[level] += mask[i] != 0;
    }
    double best = 0;
    for (int from = 0; from < 64; from++) {
        int64_t hit = 0, taken = 0;
        for (int to = from; to < 64; to++) {
            hit += in[to];
            taken += all[to];
            double dice = 2 * (double)hit / (double)(taken + total);
            best = dice > best ? dice : best;
        }
    }
    return best;
}

static void brightness_alone_does_not_solve_it(void **state)
{
    (void)state;
    for (int ct = 0; ct < 2; ct++) {
        struct phantom_options o = options(40, 2, ct ? LAYOUT_PANCREAS : LAYOUT_PLAIN);
        for (int index = 0; index < 4; index++) {
            struct volume image, label;
            make(&image, &label, &o, index, NULL);
            assert_true(best_threshold_dice(&image, &label) < 0.4);
            volume_free(&image);
            volume_free(&label);
        }
    }
}

/* Mean signal inside the gland, and in a shell two voxels wide around it. */
static void border_contrast(double *inside, double *around, const struct volume *image,
                            const struct volume *label)
{
    double sum[2] = {0, 0};
    int64_t count[2] = {0, 0}, nx = label->dims[0], ny = label->dims[1], nz = label->dims[2];
    const uint8_t *mask = label->data;
    for (int64_t k = 2; k < nz - 2; k++) {
        for (int64_t j = 2; j < ny - 2; j++) {
            for (int64_t i = 2; i < nx - 2; i++) {
                int64_t at = i + nx * (j + ny * k), near = 0;
                for (int step = 1; step <= 2; step++)
                    near += mask[at - step] + mask[at + step] + mask[at - step * nx] + mask[at + step * nx] +
                            mask[at - step * nx * ny] + mask[at + step * nx * ny];
                if (!mask[at] && !near)
                    continue;
                sum[!mask[at]] += ((int16_t *)image->data)[at];
                count[!mask[at]]++;
            }
        }
    }
    *inside = sum[0] / (double)count[0];
    *around = sum[1] / (double)count[1];
}

static void the_gland_can_be_seen(void **state)
{
    (void)state;
    struct phantom_options mr = options(48, 2, LAYOUT_PLAIN), ct = options(48, 2, LAYOUT_PANCREAS);
    for (int index = 0; index < 4; index++) {
        struct volume image, label;
        double inside, around;
        make(&image, &label, &mr, index, NULL);
        border_contrast(&inside, &around, &image, &label);
        assert_true(inside < 0.95 * around); /* fat around it is brighter */
        volume_free(&image);
        volume_free(&label);
        make(&image, &label, &ct, index, NULL);
        border_contrast(&inside, &around, &image, &label);
        assert_true(inside > 60 && inside < 120 && around < inside - 40);
        volume_free(&image);
        volume_free(&label);
    }
}

/* ---- layouts --------------------------------------------------------------------------------- */

/* The label lies on the image: the same voxels as the case that was made. */
static void check_case(const struct dataset *d, const struct data_case *c, const struct phantom_options *o,
                       int index)
{
    struct volume image, label, made, made_label;
    assert_ok(dataset_load_image(&image, d, c, NULL, &e), e);
    assert_ok(dataset_load_label(&label, d, c, NULL, &e), e);
    assert_ok(dataset_match_label(d, c, &image, &label, &e), e);
    make(&made, &made_label, o, index, NULL);
    assert_int_equal(volume_channels(&image), o->channels);
    assert_int_equal(volume_voxels(&image), volume_voxels(&made));
    double sum = 0, sum_made = 0;
    int64_t n = 0, n_made = 0;
    for (int64_t v = 0; v < volume_voxels(&image); v++) {
        if (((label_t *)label.data)[v] == 1) {
            sum += volume_value(&image, v);
            n++;
        }
        if (((uint8_t *)made_label.data)[v] == 1) {
            sum_made += volume_value(&made, v);
            n_made++;
        }
    }
    assert_int_equal(n, n_made);
    if (o->layout != LAYOUT_H5) /* whose images are normalised */
        assert_true(fabs(sum / (double)n - sum_made / (double)n) < 1e-3 * fabs(sum_made / (double)n));
    volume_free(&image);
    volume_free(&label);
    volume_free(&made);
    volume_free(&made_label);
}

static void check_layout(enum layout layout, int channels, int classes)
{
    struct phantom_options o = options(24, classes, layout);
    o.channels = channels;
    o.cases = 4;
    o.labeled = 2;
    o.test = 2;
    const char *entry = layout == LAYOUT_DATALIST ? "datalist.json" : ".";
    char *folder = write_set(&o, 2), *path = path_join(NULL, folder, entry);
    struct dataset d;
    assert_ok(dataset_open(&d, path, NULL, &e), e);
    assert_int_equal(d.layout, layout);
    assert_int_equal(dataset_count(&d, SPLIT_TRAIN, 1), 2);
    assert_int_equal(dataset_count(&d, SPLIT_TRAIN, 0), 2);
    assert_int_equal(dataset_count(&d, SPLIT_TEST, 1), 2);
    for (int n = 0; n < d.n_cases; n++) {
        char name[PHANTOM_NAME_BYTES];
        phantom_name(name, &o, n);
        assert_string_equal(d.cases[n].name, name);
        if (d.cases[n].label)
            check_case(&d, &d.cases[n], &o, n);
    }
    dataset_free(&d);
    mem_free(path);
    remove_set(folder);
}

static void opens_in_every_layout(void **state)
{
    (void)state;
    check_layout(LAYOUT_PLAIN, 1, 2);
    check_layout(LAYOUT_PLAIN, 2, 4);
    check_layout(LAYOUT_NNUNET, 1, 2);
    check_layout(LAYOUT_NNUNET, 3, 4);
    check_layout(LAYOUT_MSD, 1, 2);
    check_layout(LAYOUT_MSD, 2, 3);
    check_layout(LAYOUT_DATALIST, 1, 2);
    check_layout(LAYOUT_DATALIST, 2, 3);
    check_layout(LAYOUT_H5, 1, 3);
    check_layout(LAYOUT_LA, 1, 2);
    check_layout(LAYOUT_PANCREAS, 1, 2);
}

/* A rough mask is what a half-trained network might say: near the truth, but not the truth. */
static void rough_masks_are_half_right(void **state)
{
    (void)state;
    double sum = 0;
    for (int index = 0; index < 6; index++) {
        struct phantom_options o = options(index < 3 ? 64 : 32, 2, LAYOUT_PLAIN);
        struct volume image, truth, rough;
        make(&image, &truth, &o, index % 3, NULL);
        assert_ok(volume_new(&rough, DTYPE_U8, truth.dims, NULL, &e), e);
        memcpy(rough.data, truth.data, (size_t)volume_voxels(&truth));
        assert_ok(phantom_roughen(&rough, &o, index % 3, &e), e);
        int64_t both = 0, all = 0;
        for (int64_t n = 0; n < volume_voxels(&truth); n++) {
            int a = ((uint8_t *)truth.data)[n], b = ((uint8_t *)rough.data)[n];
            both += a && b;
            all += a + b;
        }
        double dice = 2 * (double)both / (double)all;
        assert_true(dice > 0.78 && dice < 0.96);
        sum += dice;
        volume_free(&image);
        volume_free(&truth);
        volume_free(&rough);
    }
    assert_true(sum / 6 > 0.80 && sum / 6 < 0.92);
}

/* ---- refusals and failures ------------------------------------------------------------------- */

static void refuses_what_it_cannot_make(void **state)
{
    (void)state;
    struct phantom_options bad[8];
    static const char *const reason[8] = {"--size 15",   "--size 1025",  "--classes 1", "--classes 257",
                                          "--labeled 4", "--channels 2", "--classes 3", "1..80"};
    for (int n = 0; n < 8; n++)
        bad[n] = options(32, 2, n < 5 ? LAYOUT_PLAIN : n == 6 ? LAYOUT_LA : LAYOUT_PANCREAS);
    bad[0].size[1] = 15;
    bad[1].size[2] = 1025;
    bad[2].classes = 1;
    bad[3].classes = 257;
    bad[4].labeled = 4;
    bad[5].channels = 2;
    bad[6].classes = 3;
    bad[7].cases = 80;
    for (int n = 0; n < 8; n++) {
        assert_refused(phantom_check(&bad[n], &e), e, ERR_CONFIG, "C02", reason[n]);
    }
}

static void survives_lack_of_memory(void **state)
{
    (void)state;
    struct phantom_options o = options(16, 2, LAYOUT_H5);
    o.cases = 1;
    o.labeled = o.test = 0;
    int done = 0;
    for (int n = 0; !done; n++) {
        char *folder;
        assert_ok(io_temp_folder(&folder, &e), e);
        mem_fail_at(n, 0);
        int rc = phantom_write(folder, &o, NULL, NULL, NULL, &e);
        mem_fail_at(-1, 0);
        done = rc == 0;
        assert_true(done || e.code == ERR_MEMORY);
        for (int m = 0; rc == 0 && (m == 0 || e.code == ERR_MEMORY); m++) {
            mem_fail_at(m, 0);
            e.code = ERR_NONE;
            phantom_clear(folder, 1, &e);
            mem_fail_at(-1, 0);
            assert_true(m < 500);
        }
        assert_true(rc < 0 || count_entries(folder, ".") == 0);
        remove_set(folder);
        assert_true(n < 500);
    }
}

static void names_the_file_it_cannot_write(void **state)
{
    (void)state;
    struct phantom_options o = options(16, 2, LAYOUT_PLAIN);
    char *folder;
    assert_ok(io_temp_folder(&folder, &e), e);
    char *blocked = path_join(NULL, folder, "images");
    assert_int_equal(io_write_all(blocked, 0666, "x", 1, NULL), 0);
    assert_int_equal(phantom_write(folder, &o, NULL, NULL, NULL, &e), -1);
    assert_says(e.text, "images");
    mem_free(blocked);
    remove_set(folder);
}

/* ---- a folder that is not empty -------------------------------------------------------------- */

static void put(const char *folder, const char *name, const char *text)
{
    char *path = path_join(NULL, folder, name), *parent = path_folder(NULL, path);
    assert_ok(io_make_folders(parent, &e), e);
    assert_ok(io_write_all(path, 0666, text, strlen(text), &e), e);
    mem_free(parent);
    mem_free(path);
}

/* Whatever the layout, force takes away every file and folder of an earlier set. */
static void an_old_set_goes_whole(void **state)
{
    (void)state;
    for (int l = LAYOUT_PLAIN; l < LAYOUT_PREPARED; l++)
        for (int channels = 1; channels <= (l <= LAYOUT_DATALIST ? 2 : 1); channels++) {
            struct phantom_options o = options(16, 2, (enum layout)l);
            o.channels = channels;
            char *folder = write_set(&o, 1);
            uint64_t h = hash_tree(folder, 0);
            assert_refused(phantom_clear(folder, 0, &e), e, ERR_CONFIG, "O03");
            assert_int_equal(hash_tree(folder, 0), h);
            assert_ok(phantom_clear(folder, 1, &e), e);
            assert_int_equal(count_entries(folder, "."), 0);
            remove_set(folder);
        }
}

/* Refused with the name of the file, and every byte stays. */
static void expect_kept(const char *folder, const char *reason)
{
    uint64_t h = hash_tree(folder, 0);
    for (int force = 0; force < 2; force++) {
        assert_refused(phantom_clear(folder, force, &e), e, ERR_CONFIG, "O03");
        assert_int_equal(hash_tree(folder, 0), h);
    }
    assert_says(e.text, reason);
}

static void the_work_of_others_stays(void **state)
{
    (void)state;
    static const char *const name[] = {"imagesTr/colon_001.nii.gz", "labelsTr/phantom_0009.nii.gz",
                                       "notes.txt", "other/", "imagesTr/phantom_0001.nii.gz"};
    for (int n = 0; n < 5; n++) { /* added to a set */
        struct phantom_options o = options(16, 2, LAYOUT_NNUNET);
        char *folder = write_set(&o, 1), *inside = mem_format(NULL, "%sx", name[n]);
        put(folder, n == 3 ? inside : name[n], "real");
        expect_kept(folder, name[n]);
        mem_free(inside);
        remove_set(folder);
    }
    char *folder; /* a set of somebody's own, then with a record that is not its own */
    assert_ok(io_temp_folder(&folder, &e), e);
    put(folder, "imagesTr/a.nii.gz", "real");
    expect_kept(folder, "imagesTr/");
    put(folder, "phantom.json", "{\"layout\": \"nnunet\"}");
    expect_kept(folder, "");
    put(folder, "phantom.json",
        "{\"layout\": \"nnunet\", \"cases\": 1, \"labeled\": 1, \"test\": 0, "
        "\"size\": [16, 16, 16], \"classes\": 2, \"channels\": 1, \"seed\": 1}");
    expect_kept(folder, "imagesTr/a.nii.gz");
    remove_set(folder);
}

/* A folder of the set that is a link leads to files that are not the set's. */
static void links_are_not_followed(void **state)
{
    (void)state;
    struct phantom_options o = options(16, 2, LAYOUT_PLAIN);
    char *folder = write_set(&o, 1), *other;
    assert_ok(io_temp_folder(&other, &e), e);
    put(other, "phantom_0001.nii.gz", "real");
    char *images = path_join(NULL, folder, "labels");
    io_remove_tree(images);
    assert_int_equal(symlink(other, images), 0);
    expect_kept(folder, "labels");
    assert_int_equal(count_entries(other, "."), 1);
    mem_free(images);
    remove_set(folder);
    remove_set(other);
}

/* From call number `calls_left` on nothing is renamed or removed: the disk as a kill leaves it. */
static int calls_left;

static int dying_rename(const char *from, const char *to)
{
    errno = EIO;
    return calls_left-- > 0 ? rename(from, to) : -1;
}

static int dying_unlink(const char *path)
{
    errno = EIO;
    return calls_left-- > 0 ? unlink(path) : -1;
}

static void half_a_set_is_refused_and_made_again(void **state)
{
    (void)state;
    struct io_ops dying = io_posix;
    struct phantom_options o = options(16, 2, LAYOUT_PLAIN);
    struct dataset d;
    dying.rename = dying_rename;
    dying.unlink = dying_unlink;
    for (int again = 0; again < 2; again++) { /* the first time, and over an earlier set */
        int done = 0, n = 0;
        for (; !done; n++) {
            char *folder = NULL;
            if (again)
                folder = write_set(&o, 1);
            else
                assert_ok(io_temp_folder(&folder, &e), e);
            calls_left = n;
            io = &dying;
            done = phantom_clear(folder, 1, &e) == 0 && phantom_write(folder, &o, NULL, NULL, NULL, &e) == 0;
            io = &io_posix;
            if (!done && (n || !again)) { /* else the earlier set is still whole */
                assert_refused(dataset_open(&d, folder, NULL, &e), e, ERR_DATA, "L01");
                assert_ok(phantom_clear(folder, 0, &e), e);
                assert_int_equal(count_entries(folder, "."), 0);
            }
            remove_set(folder);
        }
        assert_in_range(n, 14, 100);
    }
}

/* The helper process with libhdf5 reads back what was written without it. */
static void hdf5_reads_back(void **state)
{
    (void)state;
    enum { N = 3 * 4 * 5 };
    float values[N];
    uint8_t mask[N];
    char *folder;
    for (int n = 0; n < N; n++) {
        values[n] = (float)n * 0.5f - 7;
        mask[n] = (uint8_t)(n * 4);
    }
    assert_ok(io_temp_folder(&folder, &e), e);
    char *path = path_join(NULL, folder, "x.h5");
    const struct hdf5_item item[2] = {{"image", DTYPE_F32, {3, 4, 5}, values},
                                      {"label", DTYPE_U8, {3, 4, 5}, mask}};
    assert_ok(hdf5_write(path, item, 2, &e), e);
    for (int m = 0; m < 2; m++) {
        struct volume v;
        struct volume_request r = {.member = item[m].name};
        assert_ok(volume_read(&v, path, &r, &e), e);
        assert_int_equal(v.dtype, item[m].dtype);
        assert_int_equal(v.dims[0], 3);
        assert_int_equal(v.dims[2], 5);
        for (int i = 0, at = 0; i < 3; i++)
            for (int j = 0; j < 4; j++)
                for (int k = 0; k < 5; k++, at++) {
                    double seen = volume_value(&v, i + 3 * (j + 4 * k));
                    assert_true(seen == (m ? (double)mask[at] : (double)values[at]));
                }
        volume_free(&v);
    }
    mem_free(path);
    remove_set(folder);
}

int main(void)
{
#define T(name) cmocka_unit_test(name)
    const struct CMUnitTest tests[] = {
        T(same_bytes_on_every_machine),
        T(more_classes_leave_the_image_alone),
        T(threads_do_not_matter),
        T(truth_is_kept_apart),
        T(every_class_is_present),
        T(anatomy_is_the_same_in_every_case),
        T(brightness_alone_does_not_solve_it),
        T(the_gland_can_be_seen),
        T(opens_in_every_layout),
        T(rough_masks_are_half_right),
        T(refuses_what_it_cannot_make),
        T(survives_lack_of_memory),
        T(names_the_file_it_cannot_write),
        T(an_old_set_goes_whole),
        T(the_work_of_others_stays),
        T(links_are_not_followed),
        T(half_a_set_is_refused_and_made_again),
        T(hdf5_reads_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
