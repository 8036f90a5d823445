/* Tests of case_store.h: a small data set written to disk comes back in the layout the network
 * wants, labelled cases first, with its memory told before it is used. */
#include "test.h"

#include <math.h>

#include "base/pool.h"
#include "phantom/phantom_set.h"
#include "sample/case_store.h"

enum { CASES = 5 };

static struct dataset set;

static float value_at(int c, int i, int j, int k)
{
    return (float)(1000 * c + 100 * i + 10 * j + k);
}

static void case_dims(int64_t dims[3], int c)
{
    dims[0] = 6 + c;
    dims[1] = 5;
    dims[2] = 4 + c % 2;
}

static void write_volume(const char *folder, int c, enum dtype t)
{
    struct error e;
    struct volume v;
    int64_t dims[3];
    char path[400];
    case_dims(dims, c);
    assert_ok(volume_new(&v, t, dims, NULL, &e), e);
    for (int64_t k = 0, n = 0; k < dims[2]; k++)
        for (int64_t j = 0; j < dims[1]; j++)
            for (int64_t i = 0; i < dims[0]; i++, n++) {
                if (t == DTYPE_F32)
                    ((float *)v.data)[n] = value_at(c, (int)i, (int)j, (int)k);
                else
                    ((uint8_t *)v.data)[n] = (uint8_t)((i + 2 * j + 3 * k) % 3);
            }
    snprintf(path, sizeof path, "%s/case%d.nii.gz", folder, c);
    assert_ok(volume_write(&v, path, &e), e);
    volume_free(&v);
}

/* Cases 1 and 3 have labels. */
static int make_set(void **state)
{
    struct error e = {0};
    assert_int_equal(test_folder_make(state), 0);
    assert_ok(io_make_folders("images", &e), e);
    assert_ok(io_make_folders("labels", &e), e);
    for (int c = 0; c < CASES; c++)
        write_volume("images", c, DTYPE_F32);
    for (int c = 1; c < CASES; c += 2)
        write_volume("labels", c, DTYPE_U8);
    struct dataset_options o = {.seed = 1};
    assert_ok(dataset_open(&set, ".", &o, &e), e);
    assert_int_equal(set.n_cases, CASES);
    return 0;
}

static int remove_set(void **state)
{
    dataset_free(&set);
    return test_folder_remove(state);
}

static void test_layout(void **state)
{
    (void)state;
    const int order[CASES] = {1, 3, 0, 2, 4};
    struct report told = {.line = test_listen};
    struct case_store_options o = {.mask = CASE_MASK_FIELD, .report = &told};
    struct case_store s;
    struct error e = {0};
    test_told[0] = '\0';
    assert_ok(pool_new(&o.pool, 2, &e), e);
    assert_ok(case_store_load(&s, &set, &o, &e), e);
    assert_int_equal(s.n_cases, CASES);
    assert_int_equal(s.n_labeled, 2);
    assert_int_equal(s.channels, 1);
    assert_int_equal(s.n_classes, 3);
    size_t bytes = 0;
    for (int c = 0; c < CASES; c++) {
        const struct stored_case *x = &s.cases[c];
        char name[16];
        int64_t dims[3];
        snprintf(name, sizeof name, "case%d", order[c]);
        assert_string_equal(x->name, name);
        case_dims(dims, order[c]);
        for (int a = 0; a < 3; a++)
            assert_int_equal(x->dims[a], dims[a]);
        assert_int_equal(x->label != NULL, c < 2);
        size_t v = 0;
        for (int i = 0; i < x->dims[0]; i++)
            for (int j = 0; j < x->dims[1]; j++)
                for (int k = 0; k < x->dims[2]; k++, v++) {
                    assert_true(x->image[v] == value_at(order[c], i, j, k));
                    if (x->label)
                        assert_int_equal(x->label[v], (i + 2 * j + 3 * k) % 3);
                    assert_int_equal(x->mask[v], i + j + k > 0); /* voxel 0 is the darkest */
                }
        bytes += v * (sizeof(float) + 1 + (x->label ? sizeof(label_t) : 0));
    }
    assert_int_equal(s.bytes, bytes);
    assert_reported(REPORT_NOTE, "", "5 cases", "2 labelled", "3 unlabelled", "1 channel", "0.00 GiB");
    case_store_free(&s);
    pool_free(o.pool);
}

static void test_limit_comes_first(void **state)
{
    (void)state;
    struct report told = {.line = test_listen};
    struct case_store_options o = {.limit_bytes = 1000, .report = &told};
    struct case_store s;
    struct error e = {0};
    test_told[0] = '\0';
    assert_int_equal(case_store_load(&s, &set, &o, &e), -1);
    assert_int_equal(e.code, ERR_MEMORY);
    assert_reported(REPORT_NOTE, "", "GiB");
    assert_null(s.cases);
}

static void write_nan_case(float bad)
{
    struct error e;
    struct volume v;
    int64_t dims[3];
    case_dims(dims, 2);
    assert_ok(volume_new(&v, DTYPE_F32, dims, NULL, &e), e);
    for (int n = 0; n < 6; n++)
        ((float *)v.data)[n] = (float)-n;
    ((float *)v.data)[7] = bad;
    assert_ok(volume_write(&v, "images/case2.nii.gz", &e), e);
    volume_free(&v);
}

static void test_nan_policy(void **state)
{
    (void)state;
    const struct {
        enum nan_policy policy;
        float want;
    } rows[] = {{NAN_ZERO, 0}, {NAN_MIN, -5}};
    struct case_store_options o = {.nan = NAN_REFUSE};
    struct case_store s;
    struct error e = {0};
    write_nan_case(NAN);
    assert_refused(case_store_load(&s, &set, &o, &e), e, ERR_DATA, "N37", "case2.nii.gz: ");
    for (int i = 0; i < 2; i++) {
        o.nan = rows[i].policy;
        assert_ok(case_store_load(&s, &set, &o, &e), e);
        const struct stored_case *c = &s.cases[3]; /* 1 3 0 2 4 */
        assert_true(c->image[5 * 5 * 4] == -5);
        assert_true(c->image[7 * 5 * 4] == rows[i].want); /* voxel (7, 0, 0) of 8 x 5 x 4 */
        case_store_free(&s);
    }
    write_volume("images", 2, DTYPE_F32);
}

static void test_files_that_change(void **state)
{
    (void)state;
    struct case_store_options o = {0};
    struct case_store s;
    struct error e = {0};
    assert_int_equal(rename("images/case4.nii.gz", "case4"), 0);
    assert_int_equal(case_store_load(&s, &set, &o, &e), -1);
    assert_says(e.text, "case4.nii.gz");
    assert_int_equal(rename("case4", "images/case4.nii.gz"), 0);

    write_volume("labels", 3, DTYPE_U8);
    /* the label of another shape */
    assert_int_equal(rename("labels/case3.nii.gz", "labels/case1.nii.gz"), 0);
    assert_refused(case_store_load(&s, &set, &o, &e), e, ERR_DATA, "L02");
    write_volume("labels", 1, DTYPE_U8);
    write_volume("labels", 3, DTYPE_U8);
    assert_ok(case_store_load(&s, &set, &o, &e), e);
    case_store_free(&s);
}

/* A prepared set brings masks of its own: here the voxels where the label file is not 0. */
static void test_kept_masks(void **state)
{
    (void)state;
    const char json[] = "{\"cases\": [{\"name\": \"case1\", \"images\": [\"images/case1.nii.gz\"]},"
                        "{\"name\": \"case2\", \"images\": [\"images/case2.nii.gz\"]}]}";
    struct case_store_options o = {.mask = CASE_MASK_FIELD};
    struct dataset prepared;
    struct case_store s;
    struct error e = {0};
    assert_ok(io_write_all("prepared.json", 0666, json, strlen(json), &e), e);
    assert_ok(dataset_open(&prepared, ".", &(struct dataset_options){0}, &e), e);
    assert_ok(io_make_folders("masks", &e), e);
    write_volume("masks", 1, DTYPE_U8);
    assert_ok(case_store_load(&s, &prepared, &o, &e), e);
    for (int v = 0; v < 7 * 5 * 5; v++) {
        int i = v / 25, j = v / 5 % 5, k = v % 5;
        assert_int_equal(s.cases[0].mask[v], (i + 2 * j + 3 * k) % 3 != 0);
    }
    for (int v = 0; v < 8 * 5 * 4; v++) /* none kept: above the darkest */
        assert_int_equal(s.cases[1].mask[v], v > 0);
    case_store_free(&s);
    assert_int_equal(rename("masks/case1.nii.gz", "masks/case2.nii.gz"), 0); /* another shape */
    assert_refused(case_store_load(&s, &prepared, &o, &e), e, ERR_DATA, "L02");
    dataset_free(&prepared);
}

/* A research h5 with (3, 4, 5) voxels; with a mask of one voxel in three if type is uint8 or float32. */
static void write_h5(const char *path, int with_mask, enum dtype type)
{
    float image[60], odd[60] = {0};
    uint8_t mask[60];
    struct error e;
    for (int v = 0; v < 60; v++) {
        image[v] = (float)v;
        mask[v] = v % 3 == 0;
    }
    const struct hdf5_item item[] = {
        {"image", DTYPE_F32, {3, 4, 5}, image},
        {"mask", type, {3, 4, 5}, type == DTYPE_U8 ? (const void *)mask : odd},
    };
    assert_ok(hdf5_write(path, item, 1 + with_mask, &e), e);
}

static void test_masks_of_h5(void **state)
{
    (void)state;
    struct case_store_options o = {.mask = CASE_MASK_FIELD};
    struct dataset h5;
    struct case_store s;
    struct error e = {0};
    assert_ok(io_make_folders("h5", &e), e);
    write_h5("h5/a.h5", 1, DTYPE_U8);
    write_h5("h5/b.h5", 0, DTYPE_U8);
    assert_ok(dataset_open(&h5, "h5", &(struct dataset_options){0}, &e), e);
    assert_int_equal(h5.layout, LAYOUT_H5);
    assert_ok(case_store_load(&s, &h5, &o, &e), e);
    for (int v = 0; v < 60; v++) {
        assert_true(s.cases[0].image[v] == (float)v);
        assert_int_equal(s.cases[0].mask[v], v % 3 == 0);
        assert_int_equal(s.cases[1].mask[v], v > 0); /* none kept: above the darkest */
    }
    case_store_free(&s);
    o.mask = CASE_MASK_INSIDE;
    assert_ok(case_store_load(&s, &h5, &o, &e), e);
    assert_int_equal(s.cases[0].mask[1], 1);
    case_store_free(&s);
    o.mask = CASE_MASK_FIELD;
    write_h5("h5/a.h5", 1, DTYPE_F32);
    assert_refused(case_store_load(&s, &h5, &o, &e), e, ERR_DATA, "L02");
    dataset_free(&h5);
}

static void test_every_allocation_may_fail(void **state)
{
    (void)state;
    struct case_store_options o = {.mask = CASE_MASK_INSIDE};
    struct case_store s;
    struct error e;
    int n = 0, result = -1;
    for (; result < 0; n++) {
        mem_fail_at(n, 0);
        result = case_store_load(&s, &set, &o, &e);
        mem_fail_at(-1, 0);
        if (result < 0) {
            assert_int_equal(e.code, ERR_MEMORY);
            assert_null(s.cases);
        }
    }
    assert_true(n > 20);
    assert_int_equal(s.cases[0].mask[0], 1);
    case_store_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layout),
        cmocka_unit_test(test_limit_comes_first),
        cmocka_unit_test(test_nan_policy),
        cmocka_unit_test(test_files_that_change),
        cmocka_unit_test(test_every_allocation_may_fail),
        cmocka_unit_test(test_kept_masks),
        cmocka_unit_test(test_masks_of_h5),
    };
    return cmocka_run_group_tests(tests, make_set, remove_set);
}
