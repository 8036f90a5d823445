/* test_dataset_load.c - the voxels of a case: channels put together, labels mapped, refused, turned. */
#include "test.h"

#include "data/align.h"
#include "data/dataset.h"
#include "volume/resample.h"

static struct error e;

/* Value of voxel (i, j, k): 100 k + 10 j + i + add, on spacing 1x2x3. */
static void put_volume(const char *path, const int64_t dims[3], double add, enum dtype t)
{
    struct volume v;
    struct geometry g;
    char *folder = path_folder(&e, path);
    assert_ok(io_make_folders(folder, &e), e);
    mem_free(folder);
    geometry_identity(&g, (double[3]){1, 2, 3});
    g.known = 1;
    assert_ok(volume_new(&v, t, dims, &g, &e), e);
    for (int64_t n = 0; n < volume_voxels(&v); n++) {
        double value = (double)(n % dims[0] + 10 * (n / dims[0] % dims[1]) + 100 * (n / dims[0] / dims[1]));
        if (t == DTYPE_U8)
            ((uint8_t *)v.data)[n] = (uint8_t)((int)(value + add) % 3);
        else
            ((int16_t *)v.data)[n] = (int16_t)(value + add);
    }
    assert_ok(volume_write(&v, path, &e), e);
    volume_free(&v);
}

static void label_maps(void **state)
{
    (void)state;
    int(*map)[2], n;
    label_t v[4] = {255, 3, 1, 0};
    assert_ok(label_map_parse(&map, &n, "255=1,3=0,1=2", &e), e);
    label_map_apply(v, 4, map, n);
    assert_memory_equal(v, ((label_t[4]){1, 0, 2, 0}), sizeof v);
    mem_free(map);
    const char *const bad[] = {"", "1", "1=", "=1", "1=2,", "-1=0", "70000=1", "1=2=3", "a=b"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_refused(label_map_parse(&map, &n, bad[i], &e), e, ERR_CONFIG, "C02");
    assert_refused(label_map_parse(&map, &n, "2=1,3=1,2=0", &e), e, ERR_CONFIG, "C01", "2");
}

/* [L04] Training refuses what checking refuses. */
static void classes_that_may_not_be(void **state)
{
    (void)state;
    label_t v[8] = {0, 1, 0, 255, 255, 3, 0, 0};
    char path[] = "labels/a.nii";
    struct data_case c = {.label = path};
    struct volume label = {.dtype = DTYPE_U16, .n_dims = 3, .dims = {2, 2, 2, 1, 1, 1, 1}, .data = v};
    struct dataset silent = {.n_classes = 0}, three = {.n_classes = 3}, all = {.n_classes = 256};
    assert_refused(dataset_highest_class(&silent, &c, &label, &e), e, ERR_DATA, "L04",
                   "labels/a.nii: ", "255", "2 voxels", "(1, 1, 0)");
    assert_int_equal(dataset_highest_class(&all, &c, &label, &e), 255);
    v[3] = v[4] = 0;
    assert_int_equal(dataset_highest_class(&silent, &c, &label, &e), 3);
    assert_int_equal(dataset_highest_class(&all, &c, &label, &e), 3);
    assert_refused(dataset_highest_class(&three, &c, &label, &e), e, ERR_DATA, "L04", "(1, 0, 1)", "0..2");
}

static void channels_are_stacked(void **state)
{
    (void)state;
    static const int64_t dims[3] = {4, 3, 2};
    struct dataset d;
    struct volume v;
    put_volume("images/a_0000.nii.gz", dims, 0, DTYPE_I16);
    put_volume("images/a_0001.nii.gz", dims, 1000, DTYPE_I16);
    put_volume("labels/a.nii.gz", dims, 0, DTYPE_U8);
    assert_ok(dataset_open(&d, ".", &(struct dataset_options){.label_map = "2=7"}, &e), e);
    assert_ok(dataset_load_image(&v, &d, &d.cases[0], NULL, &e), e);
    assert_int_equal(v.n_dims, 4);
    assert_int_equal(v.dims[3], 2);
    assert_true(((float *)v.data)[24 + 5] == 1011); /* voxel (1, 1, 0) of channel 1 */
    struct volume label;
    assert_ok(dataset_load_label(&label, &d, &d.cases[0], NULL, &e), e);
    assert_int_equal(label.dtype, DTYPE_U16);
    assert_int_equal(((label_t *)label.data)[2], 7); /* 2 mapped */
    assert_int_equal(((label_t *)label.data)[1], 1);
    assert_ok(dataset_match_label(&d, &d.cases[0], &v, &label, &e), e);
    struct volume turned; /* its voxels in another order, and back */
    label_t kept[24];
    memcpy(kept, label.data, sizeof kept);
    assert_ok(volume_permute(&turned, &label, (const int[3]){2, 0, 1}, (const int[3]){1, 0, 1}, &e), e);
    volume_free(&label);
    label = turned;
    assert_true(label.dims[0] == 2 && memcmp(kept, label.data, sizeof kept) != 0);
    assert_ok(dataset_match_label(&d, &d.cases[0], &v, &label, &e), e);
    assert_memory_equal(kept, label.data, sizeof kept);
    assert_true(geometry_distance_mm(&v.geometry, &label.geometry, dims) < 1e-9);
    label.geometry.affine[0][3] += 0.5;
    assert_refused(dataset_match_label(&d, &d.cases[0], &v, &label, &e), e, ERR_DATA, "L03");
    label.geometry.known = 0;
    assert_refused(dataset_match_label(&d, &d.cases[0], &v, &label, &e), e, ERR_DATA, "N24");
    v.geometry.known = 0;
    assert_ok(dataset_match_label(&d, &d.cases[0], &v, &label, &e), e);
    volume_free(&v);
    volume_free(&label);
    dataset_free(&d);
}

/* Channels on the fifth axis are channels; on the fourth and the fifth they are too many axes. */
static void channels_are_one_axis(void **state)
{
    (void)state;
    float values[48] = {[24 + 5] = 7};
    struct volume v = {
        .dtype = DTYPE_F32, .n_dims = 5, .dims = {4, 3, 2, 1, 2, 1, 1}, .slope = 1, .data = values};
    struct dataset d;
    geometry_identity(&v.geometry, NULL);
    assert_ok(io_make_folders("images", &e), e);
    for (int wide = 0; wide < 2; wide++) {
        struct volume got;
        assert_ok(volume_write(&v, "images/a.nii", &e), e);
        assert_ok(dataset_open(&d, ".", NULL, &e), e);
        if (wide)
            assert_refused(dataset_load_image(&got, &d, &d.cases[0], NULL, &e), e, ERR_DATA, "N31");
        else
            assert_ok(dataset_load_image(&got, &d, &d.cases[0], NULL, &e), e);
        assert_true(wide || (got.dims[3] == 2 && got.dims[4] == 1 && ((float *)got.data)[24 + 5] == 7));
        volume_free(&got);
        dataset_free(&d);
        v.dims[2] = 1;
        v.dims[3] = 2;
    }
}

/* A label turned in each of 16 ways, with and without a true header, finds its way back. */
static void labels_are_aligned(void **state)
{
    (void)state;
    static const int64_t dims[3] = {6, 6, 5};
    for (int n = 0; n < 32; n++) {
        int lies = n >= 16, swap = n >> 3 & 1, flip[3] = {n & 1, n >> 1 & 1, n >> 2 & 1};
        struct volume image, label;
        struct geometry g;
        geometry_identity(&g, (double[3]){1, 1, 2});
        g.known = 1;
        assert_ok(volume_new(&image, DTYPE_I16, dims, &g, &e), e);
        assert_ok(volume_new(&label, DTYPE_U16, dims, &g, &e), e);
        for (int64_t at = 0; at < volume_voxels(&image); at++)
            ((int16_t *)image.data)[at] = -100;
        static const int organ[4][3] = {{1, 2, 1}, {2, 2, 1}, {3, 4, 3}, {4, 4, 3}}; /* no symmetry */
        double affine[3][4] = {{0}};
        for (int row = 0; row < 3; row++)
            for (int a = 0; a < 3; a++) { /* where the label's axis a goes */
                int to = a == 2 ? 2 : a ^ swap;
                double step = flip[to] ? -g.affine[row][to] : g.affine[row][to];
                affine[row][a] = step;
                affine[row][3] += flip[to] ? g.affine[row][to] * (double)(dims[to] - 1) : 0;
            }
        if (!lies)
            geometry_from_affine(&label.geometry, (const double(*)[4])affine);
        else
            label.geometry.affine[1][3] = 77; /* the header puts it elsewhere */
        for (int p = 0; p < 4; p++) {
            const int *o = organ[p];
            int64_t i[3] = {o[0], o[1], o[2]}, l[3];
            ((int16_t *)image.data)[i[0] + 6 * (i[1] + 6 * i[2])] = 90;
            for (int a = 0; a < 3; a++) {
                int to = a == 2 ? 2 : a ^ swap;
                l[a] = flip[to] ? dims[to] - 1 - i[to] : i[to];
            }
            ((label_t *)label.data)[l[0] + 6 * (l[1] + 6 * l[2])] = 1;
        }
        assert_ok(align_label(&label, &image, &e), e);
        for (int64_t at = 0; at < volume_voxels(&image); at++)
            assert_int_equal(((label_t *)label.data)[at], ((int16_t *)image.data)[at] == 90);
        volume_free(&image);
        volume_free(&label);
    }
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, test_folder_make, test_folder_remove)
    const struct CMUnitTest tests[] = {
        T(label_maps),         T(classes_that_may_not_be), T(channels_are_stacked), T(channels_are_one_axis),
        T(labels_are_aligned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
