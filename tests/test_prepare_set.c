/* test_prepare_set.c - a whole data set: the folder, threads, kills, resuming, bad cases, real
 * data. */
#include "scans.h"

#include "base/json.h"
#include "data/check.h"
#include "phantom/phantom.h"
#include "prepare/prepare_set.h"
#include "volume/nifti.h"

static struct report told; /* what prepare had to say */

/* Writes one case of about 20^3 voxels with a bright labelled box. */
static void put_case(const char *name, int number, int labeled)
{
    char path[700];
    struct volume v, label;
    struct error e;
    struct rng r = rng_start(9, (uint64_t)number, RNG_TEST, 0);
    const int64_t dims[3] = {20 + number, 18, 16};
    const double spacing[3] = {1.0, 1.0 + 0.1 * number, 1.5};
    assert_ok(volume_new(&v, DTYPE_I16, dims, NULL, &e), e);
    geometry_identity(&v.geometry, spacing);
    v.geometry.known = 1;
    assert_ok(volume_new(&label, DTYPE_U8, dims, &v.geometry, &e), e);
    for (int64_t n = 0; n < volume_voxels(&v); n++) {
        int64_t i = n % dims[0], j = n / dims[0] % 18, k = n / (dims[0] * 18);
        int inside = i > 6 && i < 14 && j > 5 && j < 12 && k > 4 && k < 11;
        ((int16_t *)v.data)[n] = (int16_t)(1 + (int)rng_below(&r, 100) + 200 * inside);
        ((uint8_t *)label.data)[n] = (uint8_t)inside;
    }
    snprintf(path, sizeof path, "raw/images/%s.nii.gz", name);
    assert_ok(volume_write(&v, path, &e), e);
    snprintf(path, sizeof path, "raw/labels/%s.nii.gz", name);
    if (labeled)
        assert_ok(volume_write(&label, path, &e), e);
    volume_free(&v);
    volume_free(&label);
}

static int setup(void **state)
{
    struct error e;
    assert_int_equal(test_folder_make(state), 0);
    assert_ok(io_make_folders("raw/images", &e), e);
    assert_ok(io_make_folders("raw/labels", &e), e);
    put_case("a", 0, 1);
    put_case("b", 1, 1);
    put_case("c", 2, 0);
    put_case("d", 3, 1);
    told = (struct report){.line = test_listen};
    test_told[0] = '\0';
    return 0;
}

struct how {
    const char *preset, *labeled;
    int threads, force, skip_bad;
    uint64_t seed;
    enum crop_rule crop;
};

/* Prepares raw/ into `to`. */
static int prepare_to(struct prepare_summary *s, const char *to, struct how how, struct error *e)
{
    struct dataset d = {0};
    struct dataset_options open = {.labeled = how.labeled, .report = &told};
    struct pool *pool = NULL;
    struct prepare_options o = {.preset = how.preset,
                                .folder = to,
                                .version = "test",
                                .seed = how.seed,
                                .crop = how.crop,
                                .force = how.force,
                                .skip_bad = how.skip_bad,
                                .report = &told};
    assert_ok(dataset_open(&d, "raw", &open, e), *e);
    if (how.threads > 1)
        assert_ok(pool_new(&pool, how.threads, e), *e);
    o.pool = pool;
    int status = prepare_set(s, &d, &o, e);
    pool_free(pool);
    dataset_free(&d);
    return status;
}

static uint64_t hash_from(const char *path, uint64_t hash)
{
    struct io_listing l;
    struct error e;
    assert_ok(io_list(&l, path, &e), e);
    for (int i = 0; i < l.n; i++) {
        char *inside = path_join(&e, path, l.entry[i].name);
        hash = hash_bytes(l.entry[i].name, strlen(l.entry[i].name), hash);
        if (l.entry[i].is_folder) {
            hash = hash_from(inside, hash);
        } else {
            FILE *f = fopen(inside, "rb");
            char bytes[4096];
            size_t n;
            assert_non_null(f);
            while ((n = fread(bytes, 1, sizeof bytes, f)) > 0)
                hash = hash_bytes(bytes, n, hash);
            fclose(f);
        }
        mem_free(inside);
    }
    io_listing_free(&l);
    return hash;
}

static uint64_t hash_of(const char *folder)
{
    return hash_from(folder, 0);
}

static void the_output_is_a_data_set(void **state)
{
    (void)state;
    struct prepare_summary s;
    struct dataset d;
    struct volume v;
    struct error e;
    assert_ok(prepare_to(&s, "out", (struct how){.preset = "auto"}, &e), e);
    assert_int_equal(s.n_made, 4);
    assert_int_equal(s.n_bad + s.n_kept + told.n_problems, 0);
    assert_ok(dataset_open(&d, "out", NULL, &e), e);
    assert_int_equal(d.layout, LAYOUT_PREPARED);
    assert_int_equal(d.n_cases, 4);
    assert_int_equal(dataset_count(&d, SPLIT_TRAIN, 1), 3);
    assert_null(d.cases[2].label);
    assert_ok(dataset_load_image(&v, &d, &d.cases[0], NULL, &e), e);
    assert_int_equal(v.dtype, DTYPE_F32);
    volume_free(&v);
    assert_ok(dataset_load_label(&v, &d, &d.cases[1], NULL, &e), e);
    volume_free(&v);
    dataset_free(&d);
}

static void threads_change_no_byte(void **state)
{
    (void)state;
    static const char *const presets[] = {"auto", "colon", "la"};
    struct prepare_summary s;
    struct error e;
    for (int p = 0; p < 3; p++) {
        uint64_t want = 0;
        for (int threads = 1; threads <= 4; threads *= 2) {
            char to[20];
            snprintf(to, sizeof to, "out%d-%d", p, threads);
            struct how how = {.preset = presets[p], .threads = threads};
            assert_ok(prepare_to(&s, to, how, &e), e);
            if (threads == 1)
                want = hash_of(to);
            assert_true(hash_of(to) == want);
        }
    }
}

static void what_is_done_is_kept(void **state)
{
    (void)state;
    struct prepare_summary s;
    struct error e;
    const struct how how = {.preset = "colon"};
    assert_ok(prepare_to(&s, "out", how, &e), e);
    uint64_t want = hash_of("out");
    assert_ok(prepare_to(&s, "out", how, &e), e);
    assert_int_equal(s.n_kept, 4);
    assert_int_equal(s.n_made, 0);
    assert_true(hash_of("out") == want);
    /* A lost file is made again, alone. */
    unlink("out/images/b.nii.gz");
    assert_ok(prepare_to(&s, "out", how, &e), e);
    assert_int_equal(s.n_kept, 3);
    assert_int_equal(s.n_made, 1);
    assert_true(hash_of("out") == want);
    /* So is a case whose scan changed, and a new one. */
    put_case("b", 5, 1);
    put_case("e", 4, 0);
    assert_ok(prepare_to(&s, "out", how, &e), e);
    assert_int_equal(s.n_kept, 3);
    assert_int_equal(s.n_made, 2);
    /* Another recipe needs --force; labels hidden by it go away. */
    assert_refused(prepare_to(&s, "out", (struct how){.preset = "la"}, &e), e, ERR_CONFIG, "O04");
    assert_ok(prepare_to(&s, "out", (struct how){.preset = "la", .force = 1, .labeled = "1"}, &e), e);
    assert_int_equal(s.n_made, 5);
    assert_true(io_exists("out/labels/a.nii.gz"));
    assert_false(io_exists("out/labels/b.nii.gz"));
    assert_false(io_exists("out/unfinished"));
}

/* Names of classes come from a json beside the scans, which may change while these do not. */
static void other_names_of_classes_are_taken_over(void **state)
{
    (void)state;
    struct prepare_options o = {.preset = "auto", .folder = "out", .version = "test", .report = &told};
    struct prepare_summary s;
    struct dataset d, out;
    struct error e;
    assert_ok(dataset_open(&d, "raw", NULL, &e), e);
    d.n_classes = 2;
    d.class_names = mem_alloc(&e, 2, sizeof *d.class_names);
    d.class_names[0] = mem_string(&e, "background");
    for (int i = 0; i < 2; i++) {
        mem_free(d.class_names[1]);
        d.class_names[1] = mem_string(&e, i ? "liver" : "organ");
        assert_ok(prepare_set(&s, &d, &o, &e), e);
        assert_int_equal(i ? s.n_kept : s.n_made, 4);
        assert_ok(dataset_open(&out, "out", NULL, &e), e);
        assert_string_equal(out.class_names[1], d.class_names[1]);
        dataset_free(&out);
    }
    dataset_free(&d);
}

static void one_cache_serves_every_seed(void **state)
{
    (void)state;
    struct prepare_summary s;
    struct error e;
    assert_ok(prepare_to(&s, "out", (struct how){.preset = "auto", .seed = 1}, &e), e);
    assert_ok(prepare_to(&s, "out", (struct how){.preset = "auto", .seed = 2}, &e), e);
    assert_int_equal(s.n_made, 0);
}

static void a_folder_of_others_is_left_alone(void **state)
{
    (void)state;
    struct prepare_summary s;
    struct error e;
    uint64_t before = hash_of("raw");
    assert_refused(prepare_to(&s, "raw", (struct how){.preset = "la", .force = 1}, &e), e, ERR_CONFIG, "O03");
    assert_true(hash_of("raw") == before);
}

static void two_runs_do_not_share_a_folder(void **state)
{
    (void)state;
    const struct how how = {.preset = "la"};
    struct prepare_summary s;
    struct error e;
    int lock;
    /* A folder that another run has made, where it is writing a file. */
    assert_ok(io_make_folders("out/images", &e), e);
    assert_ok(io_make_folders("out/unfinished", &e), e);
    assert_ok(io_write_all("out/images/.falx-1.tmp", 0666, "x", 1, &e), e);
    assert_ok(io_lock_folder(&lock, "out", &e), e);
    assert_refused(prepare_to(&s, "out", how, &e), e, ERR_BUSY, "P08");
    assert_true(io_exists("out/images/.falx-1.tmp"));
    assert_false(io_exists("out/images/a.nii.gz"));
    io_unlock_folder(lock);
    /* It died: what it left is cleared away. */
    assert_ok(prepare_to(&s, "out", how, &e), e);
    assert_int_equal(s.n_made, 4);
    assert_false(io_exists("out/images/.falx-1.tmp"));
    assert_ok(io_lock_folder(&lock, "out", &e), e); /* the lock ends with the run */
    io_unlock_folder(lock);
}

static const char *busy; /* a folder that appears, with another run in it, while a run measures */
static int busy_lock;

static void appear(void *arg, const char *phase, int64_t done, int64_t total)
{
    struct error e;
    (void)arg, (void)phase;
    if (done == total && !io_exists(busy)) {
        assert_ok(io_make_folders(busy, &e), e);
        assert_ok(io_lock_folder(&busy_lock, busy, &e), e);
    }
}

static void a_folder_made_meanwhile_is_not_shared(void **state)
{
    (void)state;
    struct prepare_summary s;
    struct dataset d;
    struct error e;
    struct prepare_options o = {.preset = "la", .folder = "out", .version = "test", .progress = appear};
    busy = "out";
    assert_ok(dataset_open(&d, "raw", NULL, &e), e);
    assert_refused(prepare_set(&s, &d, &o, &e), e, ERR_BUSY, "P08");
    assert_false(io_exists("out/unfinished"));
    io_unlock_folder(busy_lock);
    dataset_free(&d);
}

static void nothing_is_written_through_a_link(void **state)
{
    (void)state;
    const struct how how = {.preset = "la", .force = 1};
    struct prepare_summary s;
    struct io_listing l;
    struct error e;
    assert_ok(io_make_folders("elsewhere", &e), e);
    assert_ok(prepare_to(&s, "out", how, &e), e);
    assert_int_equal(rename("out/images", "out.images"), 0);
    assert_int_equal(symlink("../elsewhere", "out/images"), 0);
    assert_refused(prepare_to(&s, "out", how, &e), e, ERR_CONFIG, "O03", "out/images: ");
    assert_ok(io_list(&l, "elsewhere", &e), e);
    assert_int_equal(l.n, 0);
    io_listing_free(&l);
}

static void names_that_become_one_are_refused(void **state)
{
    (void)state;
    struct prepare_summary s;
    struct error e;
    put_case("x\ny", 1, 1);
    put_case("x\\x0Ay", 2, 1);
    assert_refused(prepare_to(&s, "out", (struct how){.preset = "la"}, &e), e, ERR_DATA, "L12",
                   "5 \"x\\x0Ay\"", "6 \"x\\x0Ay\"");
    assert_false(io_exists("out"));
}

/* ---- data without a place -------------------------------------------------------------------- */

/* The warnings of a check of `folder`. */
static int warnings_of_check(const char *folder)
{
    struct report heard = {.line = test_listen};
    struct check_result r;
    struct dataset d;
    struct error e;
    test_told[0] = '\0';
    assert_ok(dataset_open(&d, folder, &(struct dataset_options){.report = &heard}, &e), e);
    assert_ok(check_dataset(&r, &d, &(struct check_options){.report = &heard}, &e), e);
    assert_int_equal(r.n_bad, 0);
    check_free(&r);
    dataset_free(&d);
    return heard.n_warnings;
}

static void drop_place(const char *path)
{
    struct volume v;
    struct error e;
    assert_ok(volume_read(&v, path, NULL, &e), e);
    v.geometry.known = 0;
    v.geometry.nifti.version = 0;
    assert_ok(volume_write(&v, path, &e), e);
    volume_free(&v);
}

static void a_missing_orientation_is_told_once(void **state)
{
    (void)state;
    struct prepare_summary s;
    struct error e;
    drop_place("raw/images/a.nii.gz");
    drop_place("raw/labels/a.nii.gz");
    assert_int_equal(warnings_of_check("raw"), 2);
    assert_reported(REPORT_WARNING, "N24");
    assert_ok(prepare_to(&s, "out", (struct how){.preset = "la"}, &e), e);
    assert_int_equal(told.n_warnings, 2);
    assert_int_equal(warnings_of_check("out"), 0); /* prepared.json says so */
}

static void h5_files_are_told_once(void **state)
{
    (void)state;
    const struct phantom_options o = {.cases = 3,
                                      .labeled = 2,
                                      .size = {32, 32, 32},
                                      .classes = 2,
                                      .channels = 1,
                                      .seed = 1,
                                      .layout = LAYOUT_H5,
                                      .version = "test"};
    struct prepare_summary s;
    struct error e;
    io_remove_tree("raw");
    assert_ok(phantom_write("raw", &o, NULL, NULL, NULL, &e), e);
    assert_int_equal(warnings_of_check("raw"), 1);
    test_told[0] = '\0';
    assert_ok(prepare_to(&s, "out", (struct how){.preset = "la"}, &e), e);
    assert_int_equal(s.n_made, 3);
    assert_int_equal(told.n_warnings, 1);
    assert_reported(REPORT_WARNING, "", "3 cases");
    assert_int_equal(warnings_of_check("out"), 0);
}

/* ---- kills: every write call fails once, as if the program had died there -------------------- */

static int64_t calls, dead_at; /* I/O calls that change the disk; from dead_at on all fail */

static int alive(void)
{
    return dead_at < 0 || calls++ < dead_at;
}
static ssize_t mortal_write(int fd, const void *bytes, size_t n)
{
    return alive() ? io_posix.write(fd, bytes, n) : -1;
}
static int mortal_rename(const char *from, const char *to)
{
    return alive() ? io_posix.rename(from, to) : -1;
}
static int mortal_unlink(const char *path)
{
    return alive() ? io_posix.unlink(path) : -1;
}
static int mortal_mkdir(const char *path, mode_t mode)
{
    return alive() ? io_posix.mkdir(path, mode) : -1;
}

static void a_killed_run_goes_on(void **state)
{
    (void)state;
    struct prepare_summary s;
    struct error e;
    const struct how how = {.preset = "auto"};
    struct io_ops mortal = io_posix;
    mortal.write = mortal_write;
    mortal.rename = mortal_rename;
    mortal.unlink = mortal_unlink;
    mortal.mkdir = mortal_mkdir;
    assert_ok(prepare_to(&s, "whole", how, &e), e);
    uint64_t want = hash_of("whole");
    int kept_some = 0, died = 0;
    for (int64_t n = 0;; n += 1 + n / 8) {
        calls = 0;
        dead_at = n;
        io = &mortal;
        int status = prepare_to(&s, "out", how, &e);
        io = &io_posix;
        dead_at = -1;
        if (status == 0)
            break;
        died++;
        struct dataset half; /* what is there passes for no data set */
        assert_int_equal(dataset_open(&half, "out", NULL, &e), -1);
        if (io_exists("out/unfinished"))
            assert_string_equal(e.id, "L01");
        assert_ok(prepare_to(&s, "out", how, &e), e);
        kept_some |= s.n_kept > 0 && s.n_made > 0;
        assert_true(hash_of("out") == want);
        test_tally("kills", 1);
        io_remove_tree("out");
    }
    assert_true(kept_some && died > 5);
}

/* ---- bad cases ------------------------------------------------------------------------------- */

static void a_bad_case_stops_all_before_anything_is_made(void **state)
{
    (void)state;
    struct prepare_summary s;
    struct error e;
    const char *path = "raw/images/b.nii.gz";
    assert_int_equal(truncate(path, 400), 0);
    assert_ok(prepare_to(&s, "out", (struct how){.preset = "auto"}, &e), e);
    assert_int_equal(s.n_bad, 1);
    assert_int_equal(told.n_problems, 1);
    assert_reported(REPORT_PROBLEM, "Z03", "b.nii.gz");
    assert_false(io_exists("out"));
    assert_ok(prepare_to(&s, "out", (struct how){.preset = "auto", .skip_bad = 1}, &e), e);
    assert_int_equal(s.n_bad, 1);
    assert_int_equal(s.n_made, 3);
    assert_int_equal(told.n_warnings, 1);
    assert_false(io_exists("out/images/b.nii.gz"));
}

static void a_header_without_its_voxels_is_a_bad_case(void **state)
{
    (void)state;
    struct prepare_summary s;
    struct volume v;
    struct error e;
    unsigned char header[NIFTI_HEADER_MAX];
    assert_ok(volume_read(&v, "raw/images/b.nii.gz", NULL, &e), e);
    nifti_header(header, &v);
    memcpy(header + 344, "ni1", 4);
    volume_free(&v);
    assert_ok(io_write_all("raw/images/e.hdr", 0666, header, 348, &e), e);
    assert_ok(prepare_to(&s, "out", (struct how){.preset = "auto"}, &e), e);
    assert_int_equal(s.n_bad, 1);
    assert_reported(REPORT_PROBLEM, "N36", "e.img: ");
}

static void the_papers_crop_needs_every_label(void **state)
{
    (void)state;
    struct prepare_summary s;
    struct error e;
    assert_ok(prepare_to(&s, "out", (struct how){.preset = "paper-la"}, &e), e);
    assert_int_equal(s.n_bad, 1);
    assert_reported(REPORT_PROBLEM, "L01", "c.nii.gz: ", "paper-la", "--crop fair", "'la'");
    assert_false(io_exists("out"));
    put_case("c", 2, 1);
    assert_ok(prepare_to(&s, "out", (struct how){.preset = "paper-la"}, &e), e);
    assert_int_equal(s.n_made, 4);
    assert_true(io_exists("out/masks/c.nii.gz"));
}

/* ---- hidden labels --------------------------------------------------------------------------- */

/* Another mask for case b: only two corners of a box, its last one moved by `more` voxels. */
static void put_corners(int64_t more)
{
    struct volume v;
    struct error e;
    assert_ok(volume_read(&v, "raw/labels/b.nii.gz", NULL, &e), e);
    memset(v.data, 0, (size_t)volume_voxels(&v));
    uint8_t *class = v.data;
    class[7 + v.dims[0] * (6 + v.dims[1] * 5)] = 1;
    class[13 + more + v.dims[0] * (11 + v.dims[1] * 10)] = 1;
    assert_ok(volume_write(&v, "raw/labels/b.nii.gz", &e), e);
    volume_free(&v);
}

static int64_t crop_end(const char *folder, int number)
{
    struct js *json;
    struct error e;
    int64_t first = 0, dims = 0;
    char *path = path_join(&e, folder, "prepared.json");
    assert_ok(js_read_file(&json, path, &e), e);
    const struct js *transform = js_get(js_at(js_get(json, "cases"), number), "transform");
    assert_int_equal(js_int(&first, js_at(js_get(transform, "crop_first"), 0)), 0);
    assert_int_equal(js_int(&dims, js_at(js_get(transform, "crop_dims"), 0)), 0);
    js_free(json);
    mem_free(path);
    return first + dims;
}

/* Of prepared.json: the number of hidden labels used. */
static void assert_recorded(const char *folder, const char *crop, int64_t wanted)
{
    struct js *json;
    struct error e;
    int64_t n = -1;
    char *path = path_join(&e, folder, "prepared.json");
    assert_ok(js_read_file(&json, path, &e), e);
    assert_string_equal(js_text(js_get(json, "crop")), crop);
    assert_int_equal(js_int(&n, js_get(json, "hidden_labels_used_for_crop")), 0);
    assert_int_equal(n, wanted);
    js_free(json);
    mem_free(path);
}

/* Images, labels and masks; prepared.json has keys of the label files. */
static uint64_t hash_volumes(const char *folder)
{
    uint64_t hash = 0;
    struct error e;
    const char *const parts[] = {"images", "labels", "masks"};
    for (int i = 0; i < 3; i++) {
        char *path = path_join(&e, folder, parts[i]);
        hash = io_exists(path) ? hash_from(path, hash) : hash;
        mem_free(path);
    }
    return hash;
}

static void of_a_hidden_label_the_box_alone_is_used(void **state)
{
    (void)state;
    static const char *const presets[] = {"paper-la", "paper-pancreas", "paper-colon"};
    struct prepare_summary s;
    struct error e;
    put_case("c", 2, 1);
    for (int i = 0; i < 3; i++) {
        char shown[20], hidden[20], other[20];
        snprintf(shown, sizeof shown, "shown%d", i);
        snprintf(hidden, sizeof hidden, "hidden%d", i);
        snprintf(other, sizeof other, "other%d", i);
        put_case("b", 1, 1);
        assert_ok(prepare_to(&s, shown, (struct how){.preset = presets[i]}, &e), e);
        assert_int_equal(s.n_hidden, 0);
        assert_recorded(shown, "published", 0);
        const struct how how = {.preset = presets[i], .labeled = "1", .threads = 1 + i};
        assert_ok(prepare_to(&s, hidden, how, &e), e);
        assert_int_equal(s.n_made, 4);
        assert_int_equal(s.n_hidden, 3);
        assert_recorded(hidden, "published", 3);
        /* the same crop as with the label in sight, and no trace of its voxels */
        for (int k = 0; k < 4; k++)
            assert_int_equal(crop_end(hidden, k), crop_end(shown, k));
        char image[2][60];
        snprintf(image[0], sizeof image[0], "%s/images", shown);
        snprintf(image[1], sizeof image[1], "%s/images", hidden);
        assert_true(hash_of(image[0]) == hash_of(image[1]));
        struct io_listing l;
        snprintf(image[0], sizeof image[0], "%s/labels", hidden);
        assert_ok(io_list(&l, image[0], &e), e);
        assert_int_equal(l.n, 1);
        io_listing_free(&l);
        put_corners(0);
        assert_ok(prepare_to(&s, other, how, &e), e);
        assert_true(hash_volumes(other) == hash_volumes(hidden));
    }
}

static void another_box_of_a_hidden_label_is_another_preparation(void **state)
{
    (void)state;
    struct prepare_summary s;
    struct error e;
    const struct how how = {.preset = "paper-la", .labeled = "1"};
    put_case("c", 2, 1);
    assert_ok(prepare_to(&s, "out", how, &e), e);
    assert_ok(prepare_to(&s, "out", how, &e), e);
    assert_int_equal(s.n_kept, 4);
    assert_int_equal(s.n_hidden, 3);
    uint64_t want = hash_of("out");
    put_corners(0);
    assert_ok(prepare_to(&s, "out", how, &e), e);
    assert_int_equal(s.n_made, 1);
    put_corners(2);
    assert_ok(prepare_to(&s, "out", how, &e), e);
    assert_int_equal(s.n_made, 1);
    assert_true(hash_of("out") != want);
}

static void a_fair_crop_opens_no_hidden_label(void **state)
{
    (void)state;
    struct prepare_summary s;
    struct error e;
    const char *hidden[] = {"raw/labels/b.nii.gz", "raw/labels/d.nii.gz"};
    for (int i = 0; i < 2; i++)
        assert_ok(io_write_all(hidden[i], 0666, "garbage", 7, &e), e);
    const struct how published = {.preset = "paper-la", .labeled = "1", .skip_bad = 0};
    put_case("c", 2, 1);
    assert_ok(prepare_to(&s, "out", published, &e), e);
    assert_int_equal(s.n_bad, 2);
    assert_reported(REPORT_PROBLEM, "N02", "b.nii.gz: ");
    assert_reported(REPORT_PROBLEM, "N02", "d.nii.gz: ");
    assert_false(io_exists("out"));
    unlink("raw/labels/c.nii.gz"); /* nor needs it one */
    const struct how fair = {.preset = "paper-la", .labeled = "1", .crop = CROP_RULE_FAIR};
    assert_ok(prepare_to(&s, "out", fair, &e), e);
    assert_int_equal(s.n_made, 4);
    assert_int_equal(s.n_bad + s.n_hidden, 0);
    assert_recorded("out", "fair", 0);
    assert_int_equal(s.recipe.crop, CROP_NONZERO);
    put_case("b", 1, 1);
    put_case("c", 2, 1);
    put_case("d", 3, 1);
    assert_refused(prepare_to(&s, "out", published, &e), e, ERR_CONFIG, "O04");
    assert_ok(prepare_to(&s, "ct", (struct how){.preset = "paper-colon", .crop = CROP_RULE_FAIR}, &e), e);
    assert_int_equal(s.recipe.crop, CROP_BODY);
}

static void labels_off_the_grid_are_refused(void **state)
{
    (void)state;
    struct prepare_summary s;
    struct volume v;
    struct error e;
    const char *path = "raw/labels/a.nii.gz";
    assert_ok(volume_read(&v, path, NULL, &e), e);
    double affine[3][4];
    memcpy(affine, v.geometry.affine, sizeof affine);
    affine[1][3] += 0.5;
    geometry_from_affine(&v.geometry, (const double(*)[4])affine);
    assert_ok(volume_write(&v, path, &e), e);
    volume_free(&v);
    assert_ok(prepare_to(&s, "out", (struct how){.preset = "la"}, &e), e);
    assert_int_equal(s.n_bad, 1);
    assert_reported(REPORT_PROBLEM, "L03", "a.nii.gz: ", "0.5 mm");
}

static void a_constant_scan_is_told(void **state)
{
    (void)state;
    const int64_t dims[3] = {16, 16, 16};
    struct prepare_summary s;
    struct volume v;
    struct error e;
    assert_ok(volume_new(&v, DTYPE_U8, dims, NULL, &e), e);
    v.geometry.known = 1;
    const char *path = "raw/images/c.nii.gz";
    assert_ok(volume_write(&v, path, &e), e);
    volume_free(&v);
    assert_ok(prepare_to(&s, "out", (struct how){.preset = "la"}, &e), e);
    assert_int_equal(s.n_made, 4);
    assert_int_equal(told.n_warnings, 1);
    assert_reported(REPORT_WARNING, "N38", "c.nii.gz: ");
}

/* ---- real data ------------------------------------------------------------------------------- */

static void hippocampus(void **state)
{
    (void)state;
    char tar[500], command[1200];
    struct prepare_summary s;
    struct dataset d;
    struct error e;
    struct recipe r;
    double least = 1.0;
    if (!test_data("hippocampus/hippocampus.tar", tar, sizeof tar)) {
        print_message("FALX_TEST_DATA is not set: skipped\n");
        skip();
    }
    io_remove_tree("raw");
    assert_ok(io_make_folders("raw", &e), e);
    snprintf(command, sizeof command, "tar -xf '%s' -C raw", tar);
    assert_int_equal(system(command), 0);
    assert_ok(prepare_to(&s, "out", (struct how){.preset = "auto", .threads = 2, .labeled = "13"}, &e), e);
    assert_int_equal(s.n_made, 130);
    const int64_t patch[3] = {32, 48, 32};
    assert_memory_equal(s.recipe.patch, patch, sizeof patch);
    assert_ok(dataset_open(&d, "out", NULL, &e), e);
    assert_int_equal(dataset_count(&d, SPLIT_TRAIN, 1), 13);
    dataset_free(&d);
    /* Labels of the first cases there and back, over another spacing. */
    assert_ok(dataset_open(&d, "raw", NULL, &e), e);
    assert_ok(recipe_named(&r, "la", 1, NAN_REFUSE, &e), e);
    r.spacing_mm[0] = r.spacing_mm[1] = r.spacing_mm[2] = 0.8;
    for (int i = 0; i < 10; i++) {
        struct volume image, label, back;
        struct prepared p;
        assert_ok(dataset_load_image(&image, &d, &d.cases[i], NULL, &e), e);
        assert_ok(dataset_load_label(&label, &d, &d.cases[i], NULL, &e), e);
        assert_ok(prepare_case(&p, &r, &image, &label, 0, NULL, &e), e);
        assert_ok(prepare_map_back(&back, &p.label, &p.transform, NULL, &e), e);
        for (int c = 1; c <= 2; c++) {
            double have = dice(&back, &label, c);
            least = have < least ? have : least;
        }
        volume_free(&image);
        volume_free(&label);
        volume_free(&back);
        prepared_free(&p);
    }
    dataset_free(&d);
    print_message("  hippocampus at 0.8 mm and back: least Dice %.4f\n", least);
    assert_true(least >= 0.97);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, test_folder_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_output_is_a_data_set),
        TEST(threads_change_no_byte),
        TEST(what_is_done_is_kept),
        TEST(one_cache_serves_every_seed),
        TEST(other_names_of_classes_are_taken_over),
        TEST(a_folder_of_others_is_left_alone),
        TEST(two_runs_do_not_share_a_folder),
        TEST(a_folder_made_meanwhile_is_not_shared),
        TEST(nothing_is_written_through_a_link),
        TEST(names_that_become_one_are_refused),
        TEST(a_missing_orientation_is_told_once),
        TEST(h5_files_are_told_once),
        TEST(a_killed_run_goes_on),
        TEST(a_bad_case_stops_all_before_anything_is_made),
        TEST(a_header_without_its_voxels_is_a_bad_case),
        TEST(the_papers_crop_needs_every_label),
        TEST(of_a_hidden_label_the_box_alone_is_used),
        TEST(another_box_of_a_hidden_label_is_another_preparation),
        TEST(a_fair_crop_opens_no_hidden_label),
        TEST(labels_off_the_grid_are_refused),
        TEST(a_constant_scan_is_told),
        TEST(hippocampus),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
