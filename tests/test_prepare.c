/* test_prepare.c - one case through each recipe, against naive loops; masks back; real scans. */
#include "test.h"

#include <math.h>

#include "base/json.h"
#include "base/json_write.h"
#include "base/rng.h"
#include "prepare/boxes.h"
#include "prepare/moments.h"
#include "prepare/prepare.h"
#include "scans.h"

static const char *const all_recipes[] = {"auto",           "la",          "pancreas", "colon", "paper-la",
                                          "paper-pancreas", "paper-colon", "none"};
enum { N_RECIPES = sizeof all_recipes / sizeof *all_recipes };

static void recipe_of(struct recipe *r, const char *name)
{
    struct error e;
    assert_ok(recipe_named(r, name, 1337, NAN_REFUSE, &e), e);
}

static void check_standard(const struct volume *v, int64_t channel)
{
    struct moments of;
    struct error e;
    int64_t n = volume_voxels(v);
    assert_ok(moments_of(&of, (float *)v->data + channel * n, n, NULL, &e), e);
    assert_true(fabs(of.mean) < 1e-5 && fabs(of.std - 1.0) < 1e-5);
}

/* ---- recipes as values ----------------------------------------------------------------------- */

static void recipes_survive_json(void **state)
{
    (void)state;
    struct error e;
    for (int i = 0; i < N_RECIPES; i++) {
        struct recipe r, back;
        struct js_out o = {0};
        struct js *js;
        char *text, *again;
        recipe_of(&r, all_recipes[i]);
        r.channel[0].low = 0.1 + 1e-17; /* not exact in decimal */
        recipe_to_json(&o, NULL, &r);
        assert_ok(js_out_take(&text, &o, &e), e);
        assert_ok(js_parse(&js, text, strlen(text), &e), e);
        assert_ok(recipe_from_json(&back, js, &e), e);
        recipe_to_json(&o, NULL, &back);
        assert_ok(js_out_take(&again, &o, &e), e);
        assert_string_equal(text, again);
        assert_non_null(strstr(text, r.reorient ? "\"reorient\": true" : "\"reorient\": false"));
        assert_true(back.channel[0].low == r.channel[0].low && back.crop == r.crop);
        js_free(js);
        assert_ok(js_parse(&js, "{\"name\": \"x\"}", 13, &e), e);
        assert_refused(recipe_from_json(&back, js, &e), e, ERR_DATA, "C06");
        js_free(js);
        mem_free(text);
        mem_free(again);
    }
    struct recipe r;
    assert_refused(recipe_named(&r, "paper", 1, NAN_REFUSE, &e), e, ERR_CONFIG, "C03");
}

/* ---- the paper's recipes --------------------------------------------------------------------- */

static void paper_la_crops_as_published(void **state)
{
    (void)state;
    const int64_t dims[3] = {200, 190, 7};
    const double spacing[3] = {0.625, 0.625, 1.25};
    struct volume image, label;
    struct prepared p;
    struct recipe r;
    struct error e;
    int64_t widths[2] = {0, 0};
    int varies = 0;
    recipe_of(&r, "paper-la");
    scan_of(&image, dims, spacing, 0, 100);
    assert_ok(volume_new(&label, DTYPE_U8, dims, &image.geometry, &e), e);
    /* Foreground 80..99 x 5..144, slice 2: 20 (inclusive extent 19) and 140 voxels wide. */
    for (int64_t j = 5; j < 145; j++) {
        for (int64_t i = 80; i < 100; i++)
            ((uint8_t *)label.data)[i + 200 * (j + 190 * 2)] = 255;
    }
    for (uint64_t key = 0; key < 40; key++) {
        assert_ok(prepare_case(&p, &r, &image, &label, key, NULL, &e), e);
        const int64_t *first = p.transform.crop_first, *size = p.transform.crop_dims;
        /* axis 0: missing (112 - 19) div 2 = 46; axis 1: wide enough, clamped at 0 below */
        assert_in_range(80 - 46 - first[0], 10, 19);
        assert_in_range(first[0] + size[0] - 99 - 46, 10, 19);
        assert_int_equal(first[1], 0);
        assert_in_range(first[1] + size[1] - 144, 10, 19);
        assert_int_equal(size[2], 7);
        widths[key % 2] = size[0] * 1000 + size[1] + first[0] * 1000000;
        if (key > 0 && widths[0] != widths[1])
            varies = 1; /* margins vary with the case */
        assert_int_equal(p.mask.dims[0], size[0]);
        prepared_free(&p);
    }
    assert_true(varies);
    assert_ok(prepare_case(&p, &r, &image, &label, 3, NULL, &e), e);
    /* Mean and deviation of the whole scan, mask of what is > 0, label 255 -> 1. */
    double sum = 0.0, square = 0.0;
    int64_t n = volume_voxels(&image);
    for (int64_t i = 0; i < n; i++)
        sum += volume_value(&image, i);
    for (int64_t i = 0; i < n; i++)
        square += pow(volume_value(&image, i) - sum / (double)n, 2);
    for (int64_t i = 0; i < volume_voxels(&p.image); i++) {
        int64_t w = p.image.dims[0], h = p.image.dims[1];
        int64_t from = i % w + p.transform.crop_first[0] +
                       200 * (i / w % h + p.transform.crop_first[1] + 190 * (i / (w * h)));
        double want = (volume_value(&image, from) - sum / (double)n) / sqrt(square / (double)n);
        assert_true(fabs((double)((float *)p.image.data)[i] - want) < 1e-5);
        assert_int_equal(((uint8_t *)p.mask.data)[i], volume_value(&image, from) > 0);
        assert_int_equal(((uint8_t *)p.label.data)[i], volume_value(&label, from) > 0);
    }
    prepared_free(&p);
    volume_free(&image);
    volume_free(&label);
}

/* A box in place of the label gives the same voxels. */
static void a_box_serves_as_well_as_the_label(void **state)
{
    (void)state;
    static const char *const names[] = {"paper-la", "paper-pancreas", "paper-colon"};
    const int64_t dims[3] = {150, 140, 40};
    const double spacing[3] = {0.7, 0.8, 2.5}; /* the CT recipes resample */
    struct volume image, label;
    struct prepared with, without;
    struct box box;
    struct recipe r;
    struct error e;
    scan_of(&image, dims, spacing, 0, 100);
    assert_ok(volume_new(&label, DTYPE_U8, dims, NULL, &e), e); /* its own geometry says nothing */
    for (int64_t k = 12; k < 19; k++)
        for (int64_t n = 0; n < 30; n++)
            ((uint8_t *)label.data)[70 + n % 6 + dims[0] * (60 + n + dims[1] * k)] = 255;
    for (int i = 0; i < 3; i++) {
        recipe_of(&r, names[i]);
        assert_ok(prepare_case(&with, &r, &image, &label, 5, NULL, &e), e);
        assert_ok(prepare_label_box(&box, &r, &label, &image.geometry, NULL, &e), e);
        assert_ok(prepare_begin(&without, &r, &image, NULL, &box, &e), e);
        assert_ok(prepare_end(&without, &r, 5, NULL, &e), e);
        assert_memory_equal(&with.transform, &without.transform, sizeof with.transform);
        assert_true(volume_voxels(&with.image) < volume_voxels(&image) * (i ? 2 : 1));
        assert_memory_equal(with.image.data, without.image.data,
                            (size_t)volume_voxels(&with.image) * sizeof(float));
        assert_null(without.label.data);
        prepared_free(&with);
        prepared_free(&without);
    }
    memset(label.data, 0, (size_t)volume_voxels(&label));
    assert_refused(prepare_label_box(&box, &r, &label, &image.geometry, NULL, &e), e, ERR_DATA, "L07");
    volume_free(&image);
    volume_free(&label);
}

static void paper_recipes_refuse_cases_without_foreground(void **state)
{
    (void)state;
    const int64_t dims[3] = {20, 20, 20};
    const double spacing[3] = {1, 1, 1};
    static const char *const names[] = {"paper-la", "paper-pancreas", "paper-colon"};
    struct volume image, label;
    struct prepared p;
    struct recipe r;
    struct error e;
    scan_of(&image, dims, spacing, -1000, 40);
    assert_ok(volume_new(&label, DTYPE_U8, dims, &image.geometry, &e), e);
    for (int i = 0; i < 3; i++) {
        recipe_of(&r, names[i]);
        assert_refused(prepare_case(&p, &r, &image, NULL, 0, NULL, &e), e, ERR_DATA, "L01", "label");
        assert_refused(prepare_case(&p, &r, &image, &label, 0, NULL, &e), e, ERR_DATA, "L07");
    }
    volume_free(&image);
    volume_free(&label);
}

/* Trilinear value at a position, by the formula. */
static double naive_linear(const struct volume *v, const double x[3])
{
    double sum = 0.0;
    for (int t = 0; t < 8; t++) {
        double w = 1.0;
        int64_t at[3];
        for (int a = 0; a < 3; a++) {
            int64_t lo = (int64_t)floor(x[a]), up = t >> a & 1;
            w *= up ? x[a] - (double)lo : 1.0 - (x[a] - (double)lo);
            at[a] = lo + up < v->dims[a] ? lo + up : lo;
        }
        double value = volume_value(v, at[0] + v->dims[0] * (at[1] + v->dims[1] * at[2]));
        sum += w * fmin(fmax(value, -125.0), 275.0);
    }
    return sum;
}

static void paper_ct_is_clip_zoom_crop_standardise(void **state)
{
    (void)state;
    const int64_t dims[3] = {40, 36, 22};
    const double spacing[3] = {1.7, 1.7, 3.1};
    struct volume image, label;
    struct prepared p;
    struct recipe r;
    struct error e;
    recipe_of(&r, "paper-pancreas");
    scan_of(&image, dims, spacing, -1000, 240);
    ball_of(&label, &image, 6.0);
    assert_ok(prepare_case(&p, &r, &image, &label, 0, NULL, &e), e);
    const struct prepared_transform *t = &p.transform;
    const int64_t want[3] = {68, 61, 68}; /* round(40 * 1.7), round(61.2), round(68.2) */
    for (int a = 0; a < 3; a++)
        assert_int_equal(t->grid[a].n, want[a]);
    check_standard(&p.image, 0);
    int64_t box[3] = {p.image.dims[0], p.image.dims[1], p.image.dims[2]}, hit = 0;
    for (int64_t n = 0; n < volume_voxels(&p.image); n++) {
        int64_t at[3] = {n % box[0], n / box[0] % box[1], n / (box[0] * box[1])}, near[3];
        double x[3];
        for (int a = 0; a < 3; a++) {
            x[a] = (double)(at[a] + t->crop_first[a]) * (double)(dims[a] - 1) / (double)(want[a] - 1);
            near[a] = (int64_t)floor(x[a] + 0.5);
        }
        double value = (naive_linear(&image, x) - t->value[0].shift) / t->value[0].scale;
        assert_true(fabs((double)((float *)p.image.data)[n] - value) < 1e-4);
        int64_t from = near[0] + dims[0] * (near[1] + dims[1] * near[2]);
        assert_int_equal(((uint8_t *)p.label.data)[n], volume_value(&label, from) > 0);
        hit += ((uint8_t *)p.label.data)[n];
    }
    /* 25 voxels before the foreground, 24 behind: the published slice ends at last + 25. */
    struct box fore;
    label_t *classes;
    assert_true(hit > 500);
    assert_ok(volume_labels(&classes, NULL, &p.label, &e), e);
    assert_true(box_of_label(&fore, classes, p.label.dims));
    assert_true(t->crop_first[0] == 0 || fore.first[0] == 25);
    assert_int_equal(box[0], t->crop_first[0] + fore.first[0] + fore.dims[0] - 1 + 25 < want[0]
                                 ? fore.first[0] + fore.dims[0] - 1 + 25
                                 : want[0] - t->crop_first[0]);
    mem_free(classes);
    prepared_free(&p);
    volume_free(&image);
    volume_free(&label);
}

/* ---- our recipes ----------------------------------------------------------------------------- */

static void our_recipes_never_look_at_the_label(void **state)
{
    (void)state;
    static const char *const names[] = {"la", "pancreas", "colon", "none", "auto"};
    const int64_t dims[3] = {30, 28, 26};
    const double spacing[3] = {0.8, 0.8, 1.5};
    struct volume image, label;
    struct prepared with, without;
    struct error e;
    scan_of(&image, dims, spacing, -1000, 40);
    ball_of(&label, &image, 7.0);
    for (int i = 0; i < 5; i++) {
        struct recipe r;
        recipe_of(&r, names[i]);
        assert_false(recipe_needs_label(&r));
        assert_ok(prepare_case(&with, &r, &image, &label, 0, NULL, &e), e);
        assert_ok(prepare_case(&without, &r, &image, NULL, 9, NULL, &e), e);
        assert_int_equal(volume_voxels(&with.image), volume_voxels(&without.image));
        assert_memory_equal(with.image.data, without.image.data,
                            (size_t)volume_voxels(&with.image) * sizeof(float));
        assert_null(without.label.data);
        assert_non_null(with.label.data);
        if (i != 3)
            check_standard(&with.image, 0);
        prepared_free(&with);
        prepared_free(&without);
    }
    volume_free(&image);
    volume_free(&label);
}

static void ct_keeps_the_body_and_the_window(void **state)
{
    (void)state;
    const int64_t dims[3] = {40, 40, 20};
    const double spacing[3] = {1, 1, 1};
    struct volume image;
    struct prepared p;
    struct recipe r;
    struct error e;
    recipe_of(&r, "pancreas");
    scan_of(&image, dims, spacing, -1000, 40);
    for (int64_t k = 0; k < 20; k++) { /* a table below, apart from the body 3..37 */
        for (int64_t i = 0; i < 40; i++)
            ((int16_t *)image.data)[i + 40 * (0 + 40 * k)] = 300;
    }
    ((int16_t *)image.data)[10 + 40 * (10 + 40 * 10)] = 3000; /* metal */
    assert_ok(prepare_case(&p, &r, &image, NULL, 0, NULL, &e), e);
    assert_int_equal(p.transform.crop_first[1], 3);
    assert_int_equal(p.image.dims[1], 35);
    struct moments of;
    assert_ok(moments_of(&of, p.image.data, volume_voxels(&p.image), NULL, &e), e);
    double top = of.max * p.transform.value[0].scale + p.transform.value[0].shift;
    assert_true(fabs(top - 275.0) < 1e-3);
    prepared_free(&p);
    volume_free(&image);
}

static void constant_and_broken_images(void **state)
{
    (void)state;
    const int64_t dims[3] = {8, 8, 8};
    struct volume v;
    struct prepared p;
    struct recipe r;
    struct error e;
    assert_ok(volume_new(&v, DTYPE_F32, dims, NULL, &e), e);
    for (int i = 0; i < 512; i++)
        ((float *)v.data)[i] = 7.25f;
    for (int n = 0; n < N_RECIPES; n++) {
        recipe_of(&r, all_recipes[n]);
        if (recipe_needs_label(&r) || r.channel[0].scale == SCALE_NONE)
            continue;
        assert_ok(prepare_case(&p, &r, &v, NULL, 0, NULL, &e), e);
        assert_int_equal(p.transform.n_constant, 1);
        for (int i = 0; i < 512; i++)
            assert_true(((float *)p.image.data)[i] == 0.0f);
        prepared_free(&p);
    }
    ((float *)v.data)[5] = NAN;
    recipe_of(&r, "la");
    assert_refused(prepare_case(&p, &r, &v, NULL, 0, NULL, &e), e, ERR_DATA, "N37");
    r.nan = NAN_ZERO;
    assert_ok(prepare_case(&p, &r, &v, NULL, 0, NULL, &e), e);
    assert_int_equal(p.transform.n_constant, 0);
    prepared_free(&p);
    volume_free(&v);
}

static void channels_are_standardised_apart(void **state)
{
    (void)state;
    struct volume v;
    struct prepared p;
    struct recipe r;
    struct error e;
    struct rng rng = rng_start(8, 0, RNG_TEST, 0);
    assert_ok(volume_new(&v, DTYPE_F32, (const int64_t[]){9, 8, 21}, NULL, &e), e);
    v.n_dims = 4;
    v.dims[2] = 7;
    v.dims[3] = 3;
    for (int i = 0; i < 1512; i++) {
        ((float *)v.data)[i] = rng_normal(&rng) * (float)(1 + i / 504) + (float)(100 * (i / 504));
    }
    recipe_of(&r, "la");
    assert_ok(prepare_case(&p, &r, &v, NULL, 0, NULL, &e), e);
    assert_int_equal(p.image.dims[3], 3);
    assert_int_equal(p.transform.n_channels, 3);
    for (int c = 0; c < 3; c++) {
        check_standard(&p.image, c);
        assert_true(fabs(p.transform.value[c].shift - 100.0 * c) < 1.0);
    }
    prepared_free(&p);
    volume_free(&v);
}

/* ---- and back -------------------------------------------------------------------------------- */

static void check_transform_json(const struct prepared_transform *t)
{
    struct prepared_transform back;
    struct js_out o = {0};
    struct js *js;
    struct error e;
    char *text, *again;
    transform_to_json(&o, NULL, t);
    assert_ok(js_out_take(&text, &o, &e), e);
    assert_ok(js_parse(&js, text, strlen(text), &e), e);
    assert_ok(transform_from_json(&back, js, &e), e);
    transform_to_json(&o, NULL, &back);
    assert_ok(js_out_take(&again, &o, &e), e);
    assert_string_equal(text, again);
    js_free(js);
    mem_free(text);
    mem_free(again);
}

static void without_resampling_the_way_back_is_exact(void **state)
{
    (void)state;
    static const int orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    const int64_t dims[3] = {17, 15, 13};
    const double spacing[3] = {1, 2, 3};
    struct volume image, label, back;
    struct prepared p;
    struct recipe r;
    struct error e;
    recipe_of(&r, "la");
    scan_of(&image, dims, spacing, 0, 100);
    ball_of(&label, &image, 5.0);
    for (int n = 0; n < 48; n++) {
        double affine[3][4] = {{0}};
        for (int a = 0; a < 3; a++) {
            affine[orders[n / 8][a]][a] = (n >> a & 1 ? -1.0 : 1.0) * spacing[a];
            affine[a][3] = 10.0 * a;
        }
        geometry_from_affine(&image.geometry, (const double(*)[4])affine);
        label.geometry = image.geometry;
        assert_ok(prepare_case(&p, &r, &image, &label, 0, NULL, &e), e);
        check_transform_json(&p.transform);
        assert_ok(prepare_map_back(&back, &p.label, &p.transform, NULL, &e), e);
        assert_int_equal(back.dtype, DTYPE_U8);
        assert_int_equal(p.n_label_lost, 0);
        assert_memory_equal(back.dims, label.dims, sizeof label.dims);
        assert_memory_equal(back.data, label.data, (size_t)volume_voxels(&label));
        assert_memory_equal(&back.geometry, &image.geometry, sizeof image.geometry);
        volume_free(&back);
        prepared_free(&p);
    }
    /* Voxels labelled outside of the body are lost, and counted. */
    ((uint8_t *)label.data)[0] = ((uint8_t *)label.data)[1] = 1;
    assert_ok(prepare_case(&p, &r, &image, &label, 0, NULL, &e), e);
    assert_int_equal(p.n_label_lost, 2);
    prepared_free(&p);
    volume_free(&image);
    volume_free(&label);
}

static void after_resampling_a_mask_comes_back(void **state)
{
    (void)state;
    const double spacings[4][3] = {{0.7, 0.7, 2.5}, {1.4, 1.4, 1.4}, {0.6, 0.6, 0.6}, {3, 1.2, 0.9}};
    struct volume image, label, back, chance;
    struct prepared p;
    struct recipe r;
    struct error e;
    for (int s = 0; s < 4; s++) {
        int64_t dims[3];
        for (int a = 0; a < 3; a++)
            dims[a] = (int64_t)(70.0 / spacings[s][a]) + a;
        scan_of(&image, dims, spacings[s], -1000, 40);
        ball_of(&label, &image, 22.0);
        recipe_of(&r, "pancreas");
        assert_ok(prepare_case(&p, &r, &image, &label, 0, NULL, &e), e);
        check_transform_json(&p.transform);
        assert_ok(prepare_map_back(&back, &p.label, &p.transform, NULL, &e), e);
        assert_true(dice(&back, &label, 1) >= 0.97);
        assert_true(dice(&back, &label, 2) >= 0.97);
        volume_free(&back);
        assert_ok(volume_as_floats(&chance, &p.label, NAN_REFUSE, &e), e);
        for (int64_t i = 0; i < volume_voxels(&chance); i++) {
            ((float *)chance.data)[i] = ((float *)chance.data)[i] > 0.0f ? 1.0f : 0.0f;
        }
        assert_ok(prepare_map_back(&back, &chance, &p.transform, NULL, &e), e);
        assert_int_equal(back.dtype, DTYPE_F32);
        for (int64_t i = 0; i < volume_voxels(&back); i++) {
            float v = ((float *)back.data)[i];
            assert_true(v >= 0.0f && v <= 1.0f);
            ((float *)back.data)[i] = v > 0.5f ? 1.0f : 0.0f;
        }
        assert_true(dice(&back, &label, -1) >= 0.97);
        volume_free(&back);
        volume_free(&chance);
        prepared_free(&p);
        volume_free(&image);
        volume_free(&label);
    }
}

static void a_mask_of_another_size_is_refused(void **state)
{
    (void)state;
    const int64_t dims[3] = {8, 8, 8}, other[3] = {8, 8, 9};
    struct volume v, wrong, back;
    struct prepared p;
    struct recipe r;
    struct error e;
    recipe_of(&r, "none");
    assert_ok(volume_new(&v, DTYPE_I16, dims, NULL, &e), e);
    assert_ok(volume_new(&wrong, DTYPE_U8, other, NULL, &e), e);
    assert_ok(prepare_case(&p, &r, &v, NULL, 0, NULL, &e), e);
    assert_refused(prepare_map_back(&back, &wrong, &p.transform, NULL, &e), e, ERR_DATA, "");
    assert_refused(prepare_map_back(&back, &v, &p.transform, NULL, &e), e, ERR_DATA, "");
    prepared_free(&p);
    assert_refused(prepare_case(&p, &r, &v, &wrong, 0, NULL, &e), e, ERR_DATA, "L02");
    volume_free(&v);
    volume_free(&wrong);
}

/* ---- real scans ------------------------------------------------------------------------------ */

static void check_real(const char *image_name, const char *label_name, const char *recipe, double least)
{
    char path[600];
    struct volume image, label, back;
    struct prepared p;
    struct recipe r;
    struct error e;
    recipe_of(&r, recipe);
    assert_ok(volume_read(&image, test_data(image_name, path, sizeof path), NULL, &e), e);
    assert_ok(volume_read(&label, test_data(label_name, path, sizeof path), NULL, &e), e);
    assert_ok(prepare_case(&p, &r, &image, &label, 0, NULL, &e), e);
    assert_ok(prepare_map_back(&back, &p.label, &p.transform, NULL, &e), e);
    double have = dice(&back, &label, r.binary ? -1 : 1);
    print_message("  %s, %s: Dice %.4f\n", image_name, recipe, have);
    assert_true(dice(&back, &label, -1) >= least && have >= least);
    volume_free(&back);
    prepared_free(&p);
    volume_free(&image);
    volume_free(&label);
}

static void real_masks_come_back(void **state)
{
    (void)state;
    char path[600];
    if (!test_data("formats", path, sizeof path)) {
        print_message("FALX_TEST_DATA is not set: skipped\n");
        skip();
    }
    check_real("formats/abdomen_ct.nii.gz", "formats/abdomen_seg.nii.gz", "pancreas", 0.97);
    check_real("formats/lung_ct.mha", "formats/lung_mask.mha", "pancreas", 0.97);
    check_real("formats/lung_ct.mha", "formats/lung_mask.mha", "paper-pancreas", 0.97);
    check_real("formats/lung_ct.mha", "formats/lung_mask.mha", "la", 1.0);
    check_real("formats/breast1_image.nrrd", "formats/breast1_label.nrrd", "la", 1.0);
    check_real("formats/brain1_image.nrrd", "formats/brain1_label.nrrd", "auto", 1.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recipes_survive_json),
        cmocka_unit_test(paper_la_crops_as_published),
        cmocka_unit_test(a_box_serves_as_well_as_the_label),
        cmocka_unit_test(paper_recipes_refuse_cases_without_foreground),
        cmocka_unit_test(paper_ct_is_clip_zoom_crop_standardise),
        cmocka_unit_test(our_recipes_never_look_at_the_label),
        cmocka_unit_test(ct_keeps_the_body_and_the_window),
        cmocka_unit_test(constant_and_broken_images),
        cmocka_unit_test(channels_are_standardised_apart),
        cmocka_unit_test(without_resampling_the_way_back_is_exact),
        cmocka_unit_test(after_resampling_a_mask_comes_back),
        cmocka_unit_test(a_mask_of_another_size_is_refused),
        cmocka_unit_test(real_masks_come_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
