/* test_check.c - landmarks find one scan in two crops; a check says the same for any number of
 * threads. */
#include "test.h"

#include <math.h>
#include <unistd.h>

#include "base/io.h"
#include "base/rng.h"
#include "data/check.h"

static struct error e;

/* ---- landmarks ---- */

enum { TABLE = 100 }; /* scenes with a higher seed share their first 20 rows */

/* A smooth random scene: value at any place of an endless grid, so that any box can be cut from it.
 */
static float scene(uint64_t seed, int64_t x, int64_t y, int64_t z)
{
    float sum = 0;
    seed = seed > TABLE && y < 20 ? TABLE : seed;
    for (int corner = 0; corner < 8; corner++) { /* linear between random values every 5 voxels */
        int64_t at[3] = {x, y, z};
        uint64_t index = 0;
        float weight = 1;
        for (int a = 0; a < 3; a++) {
            int64_t cell = at[a] / 5 + (corner >> a & 1);
            float part = (float)(at[a] % 5) / 5;
            weight *= corner >> a & 1 ? part : 1 - part;
            index = index << 16 | (uint64_t)cell;
        }
        sum += weight * (float)(rng_block(seed, 0, RNG_TEST, index).v[0] >> 8);
    }
    return sum * (1000.0f / 16777216.0f);
}

struct cut {
    uint64_t seed;
    int64_t first[3], dims[3];
    float scale, shift, noise;
};

static float *make(const struct cut *c)
{
    float *v = mem_alloc(&e, (size_t)(c->dims[0] * c->dims[1] * c->dims[2]), sizeof *v), *p = v;
    struct rng r = rng_start(c->seed + 99, (uint64_t)c->first[0], RNG_TEST, 1);
    for (int64_t k = 0; k < c->dims[2]; k++)
        for (int64_t j = 0; j < c->dims[1]; j++)
            for (int64_t i = 0; i < c->dims[0]; i++)
                *p++ = c->shift + c->noise * rng_normal(&r) +
                       c->scale * scene(c->seed, c->first[0] + i, c->first[1] + j, c->first[2] + k);
    return v;
}

static void find(struct landmarks *out, const struct cut *c, const double spacing_mm[3])
{
    float *v = make(c);
    assert_ok(landmarks_find(out, v, c->dims, spacing_mm, &e), e);
    mem_free(v);
}

/* The twins among n <= 5 cuts, for mem_free; answers how many. */
static int find_twins(struct twin **twins, const struct cut *cuts, int n, const double spacing_mm[3])
{
    struct landmarks scans[5] = {{0}};
    int found;
    for (int i = 0; i < n; i++)
        find(&scans[i], &cuts[i], spacing_mm);
    assert_ok(landmarks_find_twins(twins, &found, scans, n, &e), e);
    for (int i = 0; i < n; i++)
        mem_free(scans[i].point);
    return found;
}

static void crops_of_one_scan_are_found(void **state)
{
    (void)state;
    static const double cube[3] = {1, 1, 1};
    const struct cut cuts[] = {
        {1, {0, 0, 0}, {50, 50, 40}, 1, 0, 0},         {2, {0, 0, 0}, {50, 50, 40}, 1, 0, 0},
        {1, {8, 3, 2}, {40, 47, 36}, 0.01f, -3, 0.1f}, /* cropped, rescaled, 1 % noise */
        {3, {0, 0, 0}, {50, 50, 40}, 1, 0, 0},         {2, {1, 0, 0}, {49, 50, 40}, 2, 5, 0},
    };
    struct twin *twins;
    assert_int_equal(find_twins(&twins, cuts, 5, cube), 2);
    assert_int_equal(twins[0].a, 0);
    assert_int_equal(twins[0].b, 2);
    assert_memory_equal(twins[0].offset, ((int32_t[3]){-8, -3, -2}), 12);
    assert_int_equal(twins[1].a, 1);
    assert_int_equal(twins[1].b, 4);
    assert_memory_equal(twins[1].offset, ((int32_t[3]){-1, 0, 0}), 12);
    mem_free(twins);
}

static void scans_on_one_table_are_no_twins(void **state)
{
    (void)state;
    static const double cube[3] = {1, 1, 1};
    const struct cut cuts[] = {{TABLE + 1, {0, 0, 0}, {60, 80, 50}, 1, 0, 0},
                               {TABLE + 2, {0, 0, 0}, {60, 80, 50}, 1, 0, 0},
                               {TABLE + 1, {4, 0, 3}, {50, 70, 40}, 1, 0, 0}};
    struct twin *twins;
    assert_int_equal(find_twins(&twins, cuts, 3, cube), 1); /* the crop of one of them */
    assert_true(twins[0].a == 0 && twins[0].b == 2);
    mem_free(twins);
}

static void thick_slices_are_compared(void **state)
{
    (void)state;
    static const double thick[3] = {1, 1, 8};
    const struct cut cuts[] = {{7, {0, 0, 0}, {80, 80, 10}, 1, 0, 0},
                               {7, {6, 2, 1}, {70, 70, 8}, 1, 0, 0},
                               {8, {0, 0, 0}, {80, 80, 10}, 1, 0, 0}};
    struct twin *twins;
    assert_int_equal(find_twins(&twins, cuts, 3, thick), 1);
    assert_memory_equal(twins[0].offset, ((int32_t[3]){-6, -2, -1}), 12);
    mem_free(twins);
}

static void small_and_flat_scans_have_none(void **state)
{
    (void)state;
    static const double cube[3] = {1, 1, 1};
    struct landmarks points;
    find(&points, &(struct cut){1, {0, 0, 0}, {12, 50, 50}, 1, 0, 0}, cube);
    assert_int_equal(points.n, 0);
    mem_free(points.point);
    find(&points, &(struct cut){1, {0, 0, 0}, {30, 30, 30}, 0, 4, 0}, cube);
    assert_int_equal(points.n, 0);
    mem_free(points.point);
    struct twin *twins;
    int n;
    assert_ok(landmarks_find_twins(&twins, &n, &points, 0, &e), e);
    assert_int_equal(n, 0);
    mem_free(twins);
}

/* ---- whole sets ---- */

struct log {
    struct report report;
    char text[16384];
};

static void keep(struct report *r, enum report_kind kind, const char *text)
{
    struct log *l = (struct log *)r;
    test_log(l->text, sizeof l->text, kind, text);
}

/* Everything a check finds, as text. */
static void check(struct log *out, enum error_code *code, const char *folder, int threads, int skip_bad)
{
    struct dataset d;
    struct check_result r;
    struct pool *pool;
    memset(out, 0, sizeof *out);
    out->report.line = keep;
    struct dataset_options opening = {.report = &out->report};
    assert_ok(dataset_open(&d, folder, &opening, &e), e);
    assert_ok(pool_new(&pool, threads, &e), e);
    struct check_options o = {
        .pool = pool, .skip_bad = skip_bad, .patch = {32, 32, 32}, .report = &out->report};
    assert_ok(check_dataset(&r, &d, &o, &e), e);
    for (int i = 0; i < r.n_cases; i++) {
        size_t n = strlen(out->text);
        const struct check_case *c = &r.cases[i];
        snprintf(out->text + n, sizeof out->text - n, "%s %d %016llx %.9g\n", d.cases[i].name, (int)c->bad,
                 (unsigned long long)c->hash, c->mean);
    }
    *code = r.code;
    if (skip_bad) {
        char keep_case[8];
        int before = d.n_cases;
        for (int i = 0; i < before; i++)
            keep_case[i] = r.cases[i].bad == ERR_NONE;
        dataset_keep(&d, keep_case);
        assert_int_equal(d.n_cases, before - r.n_bad);
    }
    check_free(&r);
    pool_free(pool);
    dataset_free(&d);
}

static void put_scene(const char *path, const struct cut *c, double threshold)
{
    struct volume v;
    float *values = make(c);
    assert_ok(volume_new(&v, threshold > 0 ? DTYPE_U8 : DTYPE_F32, c->dims, NULL, &e), e);
    for (int64_t i = 0; i < volume_voxels(&v); i++) {
        if (threshold > 0)
            ((uint8_t *)v.data)[i] = (double)values[i] > threshold;
        else
            ((float *)v.data)[i] = values[i];
    }
    assert_ok(volume_write(&v, path, &e), e);
    volume_free(&v);
    mem_free(values);
}

static void put_set(const char *home)
{
    static const struct cut cuts[] = {
        {1, {0, 0, 0}, {40, 36, 34}, 1, 0, 0}, {2, {0, 0, 0}, {36, 40, 34}, 1, 0, 0},
        {1, {3, 1, 2}, {36, 34, 30}, 1, 0, 0}, {4, {0, 0, 0}, {40, 36, 34}, 1, 0, 0},
        {5, {0, 0, 0}, {40, 36, 34}, 1, 0, 0}, {6, {0, 0, 0}, {40, 36, 34}, 1, 0, 0}};
    char path[300];
    snprintf(path, sizeof path, "%s/images", home);
    assert_ok(io_make_folders(path, &e), e);
    snprintf(path, sizeof path, "%s/labels", home);
    assert_ok(io_make_folders(path, &e), e);
    for (int i = 0; i < 6; i++) {
        snprintf(path, sizeof path, "%s/images/case%d.nii.gz", home, i);
        put_scene(path, &cuts[i], 0);
        snprintf(path, sizeof path, "%s/labels/case%d.nii.gz", home, i);
        if (i < 5)
            put_scene(path, &cuts[i == 4 ? 1 : i], 600); /* case4 gets a label of another shape */
    }
    snprintf(path, sizeof path, "%s/images/case5.nii.gz", home);
    assert_ok(io_write_all(path, 0666, "broken", 6, &e), e);
}

static void threads_do_not_matter(void **state)
{
    (void)state;
    char *home;
    struct log one, many;
    enum error_code code;
    assert_ok(io_temp_folder(&home, &e), e);
    put_set(home);
    check(&one, &code, home, 1, 0);
    assert_int_equal(code, ERR_DATA);
    assert_logged(one.text, REPORT_PROBLEM, "L02", "case4.nii.gz: ", "36x40x34", "40x36x34");
    assert_says(one.text, "case5.nii.gz: ");
    assert_logged(one.text, REPORT_WARNING, "L09", "\"case2\"", "(-3, -1, -2)");
    assert_logged(one.text, REPORT_WARNING, "C03", "1 ", "32x32x32");
    for (int threads = 2; threads <= 4; threads++) {
        check(&many, &code, home, threads, 0);
        assert_string_equal(one.text, many.text);
        assert_int_equal(code, ERR_DATA);
    }
    check(&many, &code, home, 2, 1);
    assert_int_equal(code, ERR_NONE);
    assert_int_equal(many.report.n_problems, 0);
    assert_says(many.text, "skipped: ");
    io_remove_tree(home);
    mem_free(home);
}

/* How often `part` is in `text`. */
static int count_of(const char *text, const char *part)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, part)); at++)
        n++;
    return n;
}

/* Scans 0..3 again, first shifted, then identical: one line each for pairs of one kind from four on. */
static void many_duplicates_are_one_line(void **state)
{
    (void)state;
    char *home, path[300];
    struct log log;
    enum error_code code;
    assert_ok(io_temp_folder(&home, &e), e);
    snprintf(path, sizeof path, "%s/images", home);
    assert_ok(io_make_folders(path, &e), e);
    for (int i = 0; i < 4; i++) {
        struct cut whole = {(uint64_t)i + 1, {0, 0, 0}, {40, 36, 34}, 1, 0, 0}, shifted = whole;
        shifted.first[0] = 2;
        snprintf(path, sizeof path, "%s/images/p%d_ed.nii.gz", home, i);
        put_scene(path, &whole, 0);
        snprintf(path, sizeof path, "%s/images/p%d_es.nii.gz", home, i);
        put_scene(path, &shifted, 0);
    }
    check(&log, &code, home, 2, 0);
    assert_int_equal(code, ERR_NONE);
    assert_int_equal(count_of(log.text, "[L09]"), 1);
    assert_non_null(strstr(log.text, "4 pairs"));
    assert_int_equal(count_of(log.text, "p0_ed and p0_es"), 1);
    assert_int_equal(count_of(log.text, " and p"), 3);
    assert_non_null(strstr(log.text, "--leave-out"));
    snprintf(path, sizeof path, "%s/test.list", home); /* three shifted pairs: a line each */
    assert_ok(io_write_all(path, 0666, "p0_es\n", 6, &e), e);
    snprintf(path, sizeof path, "%s/images/p0_es.nii.gz", home);
    put_scene(path, &(struct cut){1, {0, 0, 0}, {40, 36, 34}, 1, 0, 0}, 0);
    check(&log, &code, home, 2, 0);
    assert_int_equal(code, ERR_DATA); /* a test case in training */
    assert_int_equal(log.report.n_problems, 1);
    assert_int_equal(count_of(log.text, "[L09]"), 4);
    io_remove_tree(home);
    mem_free(home);
}

/* home/images/NAME and home/labels/NAME: a label of 0 and `usual`, but for one voxel of value `stray`. */
static void put_label(const char *home, const char *name, uint64_t seed, int usual, int stray)
{
    const struct cut c = {seed, {0, 0, 0}, {8, 8, 8}, 1, 0, 0};
    char path[300];
    struct volume v;
    snprintf(path, sizeof path, "%s/images/%s", home, name);
    put_scene(path, &c, 0);
    assert_ok(volume_new(&v, DTYPE_U16, c.dims, NULL, &e), e);
    for (int64_t i = 0; i < volume_voxels(&v); i++)
        ((label_t *)v.data)[i] = (label_t)(i == 77 ? stray : i % 2 * usual);
    snprintf(path, sizeof path, "%s/labels/%s", home, name);
    assert_ok(volume_write(&v, path, &e), e);
    volume_free(&v);
}

static char *make_home(void)
{
    char path[300], *home;
    assert_ok(io_temp_folder(&home, &e), e);
    snprintf(path, sizeof path, "%s/images", home);
    assert_ok(io_make_folders(path, &e), e);
    snprintf(path, sizeof path, "%s/labels", home);
    assert_ok(io_make_folders(path, &e), e);
    return home;
}

static void a_stray_label_is_told_once(void **state)
{
    (void)state;
    struct log log;
    enum error_code code;
    char *home = make_home(), path[300];
    put_label(home, "a.nii", 11, 1, 300);
    put_label(home, "b.nii", 12, 1, 65535);
    put_label(home, "c.nii", 13, 1, 1);
    for (int skip_bad = 0; skip_bad < 2; skip_bad++) {
        check(&log, &code, home, 2, skip_bad);
        assert_int_equal(code, ERR_DATA);
        assert_int_equal(log.report.n_problems, 1);
        assert_logged(log.text, REPORT_PROBLEM, "L05", "labels/b.nii: ", "2..256", "65535");
    }
    snprintf(path, sizeof path, "%s/images/c.nii", home); /* a bad case beside it hides nothing */
    assert_ok(io_write_all(path, 0666, "broken", 6, &e), e);
    check(&log, &code, home, 2, 0);
    assert_int_equal(log.report.n_problems, 2);
    assert_logged(log.text, REPORT_PROBLEM, "L05", "65536 classes");
    io_remove_tree(home);
    mem_free(home);
}

static void labels_without_foreground_are_refused(void **state)
{
    (void)state;
    struct log log;
    enum error_code code;
    char *home = make_home(), path[300];
    put_label(home, "a.nii", 11, 0, 0);
    put_label(home, "b.nii", 12, 0, 0);
    check(&log, &code, home, 2, 0);
    assert_int_equal(code, ERR_DATA);
    assert_int_equal(log.report.n_problems, 1);
    assert_logged(log.text, REPORT_PROBLEM, "L07", home);
    snprintf(path, sizeof path, "%s/dataset.json", home); /* nor if a class is declared */
    const char *declared = "{\"labels\": {\"0\": \"background\", \"1\": \"organ\"}, \"training\": "
                           "[{\"image\": \"images/a.nii\", \"label\": \"labels/a.nii\"}]}";
    assert_ok(io_write_all(path, 0666, declared, strlen(declared), &e), e);
    check(&log, &code, home, 2, 0);
    assert_int_equal(code, ERR_DATA);
    assert_logged(log.text, REPORT_PROBLEM, "L07", home);
    io_remove_tree(home);
    mem_free(home);
}

static void missing_classes_are_told_as_runs(void **state)
{
    (void)state;
    struct log log;
    enum error_code code;
    char *home = make_home();
    put_label(home, "a.nii", 11, 1, 5);
    put_label(home, "b.nii", 12, 1, 7);
    put_label(home, "c.nii", 13, 1, 251);
    check(&log, &code, home, 1, 0);
    assert_int_equal(code, ERR_NONE); /* training goes on without them */
    assert_int_equal(log.report.n_problems, 0);
    assert_logged(log.text, REPORT_WARNING, "L07", "2 to 4");
    assert_logged(log.text, REPORT_WARNING, "L07", "class 6", "--label-map");
    assert_logged(log.text, REPORT_WARNING, "L07", "8 to 250");
    io_remove_tree(home);
    mem_free(home);
}

static void skipping_every_case_is_refused(void **state)
{
    (void)state;
    struct log log;
    enum error_code code;
    char *home = make_home(), path[300];
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/images/case%d.nii", home, i);
        assert_ok(io_write_all(path, 0666, "broken", 6, &e), e);
    }
    check(&log, &code, home, 2, 1);
    assert_int_equal(code, ERR_DATA);
    assert_int_equal(log.report.n_problems, 1);
    assert_logged(log.text, REPORT_PROBLEM, "L01", home);
    put_label(home, "sound.nii", 11, 1, 1);
    check(&log, &code, home, 2, 1);
    assert_int_equal(code, ERR_NONE);
    io_remove_tree(home);
    mem_free(home);
}

/* Unpacks an archive of the real data, or only some of its files, into home/NAME. */
static void unpack(const char *home, const char *name, const char *archive, const char *only)
{
    char path[512], folder[300], command[900];
    snprintf(folder, sizeof folder, "%s/%s", home, name);
    assert_ok(io_make_folders(folder, &e), e);
    test_data(archive, path, sizeof path);
    snprintf(command, sizeof command, "tar -xf '%s' -C '%s' %s", path, folder, only);
    assert_int_equal(system(command), 0);
}

/* 41 Left Atrium cases, with the two that are one scan, and all hippocampus cases: no other pair.
 */
static void real_twins(void **state)
{
    (void)state;
    char path[512], *home;
    struct log log;
    enum error_code code;
    if (!test_data("la/la-train-1.tar.xz", path, sizeof path) || !io_exists(path))
        skip();
    assert_ok(io_temp_folder(&home, &e), e);
    unpack(home, "la", "la/la-train-1.tar.xz", "");
    unpack(home, "la", "la/la-train-2.tar.xz", "--wildcards '*/CMPXO4J23G58J53Q98SZ.nii'");
    snprintf(path, sizeof path, "%s/la/train.list", home);
    io_remove_tree(path); /* it names the other half too */
    snprintf(path, sizeof path, "%s/la", home);
    check(&log, &code, path, 2, 0);
    assert_int_equal(code, ERR_NONE);
    assert_int_equal(log.report.n_warnings, 1);
    assert_logged(log.text, REPORT_WARNING, "L09", "\"CMPXO4J23G58J53Q98SZ\"", "(7, 7, 0)",
                  "\"0RZDK210BSMWAA6467LU\"");
    unpack(home, "hippocampus", "hippocampus/hippocampus.tar", "");
    snprintf(path, sizeof path, "%s/hippocampus", home);
    check(&log, &code, path, 2, 0);
    assert_int_equal(code, ERR_NONE);
    assert_null(strstr(log.text, "[L09]"));
    io_remove_tree(home);
    mem_free(home);
}

int main(void)
{
#define T(name) cmocka_unit_test(name)
    const struct CMUnitTest tests[] = {
        T(crops_of_one_scan_are_found),
        T(scans_on_one_table_are_no_twins),
        T(thick_slices_are_compared),
        T(small_and_flat_scans_have_none),
        T(threads_do_not_matter),
        T(many_duplicates_are_one_line),
        T(a_stray_label_is_told_once),
        T(labels_without_foreground_are_refused),
        T(missing_classes_are_told_as_runs),
        T(skipping_every_case_is_refused),
        T(real_twins),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
