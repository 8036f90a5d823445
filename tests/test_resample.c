/* test_resample.c - grids against SciPy (golden files) and against naive loops. */
#include "test.h"

#include <math.h>

#include "base/rng.h"
#include "golden/resample.h"
#include "volume/resample.h"

static const int64_t golden_dims[3] = {6, 5, 7};

static void assert_close(const float *have, const float *want, int64_t n, double tolerance)
{
    for (int64_t i = 0; i < n; i++) {
        if (fabs((double)have[i] - (double)want[i]) > tolerance) {
            test_fail("voxel %lld is %.9g, expected %.9g", (long long)i, (double)have[i], (double)want[i]);
        }
    }
}

static void volume_of(struct volume *v, enum dtype t, const int64_t dims[3], const void *data)
{
    struct error e;
    assert_ok(volume_new(v, t, dims, NULL, &e), e);
    memcpy(v->data, data, (size_t)volume_voxels(v) * dtype_bytes(t));
}

/* To a size, ends aligned: scipy.ndimage.zoom(in, dims / in.dims). */
static int to_size(struct volume *out, const struct volume *in, const int64_t dims[3],
                   enum resample_kind kind, struct error *e)
{
    struct resample_axis axis[3];
    for (int a = 0; a < 3; a++)
        resample_axis_ends(&axis[a], in->dims[a], dims[a]);
    return volume_resample(out, in, axis, kind, NULL, e);
}

/* To a spacing, centred; 0 leaves that axis alone. */
static int to_spacing(struct volume *out, const struct volume *in, const double target_mm[3],
                      enum resample_kind kind, struct pool *pool, struct error *e)
{
    struct resample_axis axis[3];
    for (int a = 0; a < 3; a++)
        if (target_mm[a] > 0.0)
            resample_axis_centred(&axis[a], in->dims[a], in->geometry.spacing_mm[a], target_mm[a]);
        else
            resample_axis_identity(&axis[a], in->dims[a]);
    return volume_resample(out, in, axis, kind, pool, e);
}

/* ---- against SciPy --------------------------------------------------------------------------- */

static void check_zoom(const int64_t to[3], const float *linear, const unsigned short *nearest)
{
    struct volume image, label, made;
    struct error e;
    volume_of(&image, DTYPE_F32, golden_dims, golden_image);
    volume_of(&label, DTYPE_U16, golden_dims, golden_label);
    int64_t n = to[0] * to[1] * to[2];
    assert_ok(to_size(&made, &image, to, RESAMPLE_LINEAR, &e), e);
    assert_close(made.data, linear, n, 1e-4);
    volume_free(&made);
    assert_ok(to_size(&made, &label, to, RESAMPLE_NEAREST, &e), e);
    assert_int_equal(made.dtype, DTYPE_U16);
    assert_memory_equal(made.data, nearest, (size_t)n * 2);
    volume_free(&made);
    volume_free(&image);
    volume_free(&label);
}

static void zoom_is_scipys(void **state)
{
    (void)state;
    const int64_t up[3] = {11, 9, 7}, down[3] = {4, 3, 10};
    check_zoom(up, golden_zoom1_up, golden_zoom0_up);
    check_zoom(down, golden_zoom1_down, golden_zoom0_down);
}

static void centred_is_scipys_map_coordinates(void **state)
{
    (void)state;
    const double spacing[3] = {1.0, 2.0, 0.7}, target[3] = {0.6, 1.1, 1.3};
    struct volume image, made;
    struct error e;
    volume_of(&image, DTYPE_F32, golden_dims, golden_image);
    geometry_identity(&image.geometry, spacing);
    assert_ok(to_spacing(&made, &image, target, RESAMPLE_CUBIC, NULL, &e), e);
    assert_int_equal(made.dims[0], GOLDEN_CENTRED_0);
    assert_int_equal(made.dims[1], GOLDEN_CENTRED_1);
    assert_int_equal(made.dims[2], GOLDEN_CENTRED_2);
    assert_close(made.data, golden_cubic, volume_voxels(&made), 2e-4);
    for (int a = 0; a < 3; a++)
        assert_true(fabs(made.geometry.spacing_mm[a] - target[a]) < 1e-12);
    volume_free(&made);
    assert_ok(to_spacing(&made, &image, target, RESAMPLE_LINEAR, NULL, &e), e);
    assert_close(made.data, golden_linear, volume_voxels(&made), 1e-4);
    volume_free(&made);
    volume_free(&image);
}

/* ---- against naive loops --------------------------------------------------------------------- */

static void noise_volume(struct volume *v, const int64_t dims[3], uint64_t seed)
{
    struct error e;
    struct rng r = rng_start(seed, 0, RNG_TEST, 0);
    assert_ok(volume_new(v, DTYPE_F32, dims, NULL, &e), e);
    for (int64_t i = 0; i < volume_voxels(v); i++)
        ((float *)v->data)[i] = rng_normal(&r);
}

/* Where voxel (i, j, k) lies, in millimetres. */
static void place(double mm[3], const struct volume *v, double i, double j, double k)
{
    for (int a = 0; a < 3; a++) {
        const double *m = v->geometry.affine[a];
        mm[a] = m[0] * i + m[1] * j + m[2] * k + m[3];
    }
}

/* Every voxel of `turned` must hold the value that `v` has in the same place of the patient. */
static void check_same_places(const struct volume *turned, const struct volume *v)
{
    struct geometry g = v->geometry;
    double back[3][4];
    assert_int_equal(affine_invert(back, (const double(*)[4])g.affine), 0);
    for (int64_t n = 0; n < volume_voxels(turned); n++) {
        int64_t i = n % turned->dims[0], j = n / turned->dims[0] % turned->dims[1];
        int64_t k = n / (turned->dims[0] * turned->dims[1]), at[3];
        double mm[3];
        place(mm, turned, (double)i, (double)j, (double)k);
        for (int a = 0; a < 3; a++) {
            at[a] = llround(back[a][0] * mm[0] + back[a][1] * mm[1] + back[a][2] * mm[2] + back[a][3]);
            assert_in_range(at[a], 0, v->dims[a] - 1);
        }
        float want = ((float *)v->data)[at[0] + v->dims[0] * (at[1] + v->dims[1] * at[2])];
        assert_true(want == ((float *)turned->data)[n]);
    }
}

static int reorient(struct volume *out, const struct volume *in, const char *orientation, struct error *e)
{
    int axis[3], flip[3];
    memset(out, 0, sizeof *out);
    if (orientation_axes(axis, flip, &in->geometry, orientation, e) < 0)
        return -1;
    return volume_permute(out, in, axis, flip, e);
}

static void all_orientations_keep_every_voxel_in_its_place(void **state)
{
    (void)state;
    static const char *const letters[3] = {"RL", "AP", "SI"};
    static const int orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    const int64_t dims[3] = {3, 4, 5};
    /* A slightly tilted LIP grid. */
    const double affine[3][4] = {{-1.5, 0.1, 0.02, 12}, {0.03, 0.05, -3, 7}, {0.1, -2, 0.04, -30}};
    struct volume v, turned, back;
    struct error e;
    noise_volume(&v, dims, 1);
    geometry_from_affine(&v.geometry, affine);
    for (int n = 0; n < 48; n++) {
        char want[4] = {0}, have[4];
        for (int a = 0; a < 3; a++)
            want[a] = letters[orders[n / 8][a]][n >> a & 1];
        assert_ok(reorient(&turned, &v, want, &e), e);
        geometry_orientation(have, &turned.geometry);
        assert_string_equal(have, want);
        check_same_places(&turned, &v);
        geometry_orientation(want, &v.geometry);
        assert_ok(reorient(&back, &turned, want, &e), e);
        assert_memory_equal(back.data, v.data, (size_t)volume_voxels(&v) * 4);
        assert_memory_equal(back.dims, v.dims, sizeof v.dims);
        for (int i = 0; i < 12; i++) {
            assert_true(fabs(back.geometry.affine[i / 4][i % 4] - affine[i / 4][i % 4]) < 1e-12);
        }
        volume_free(&turned);
        volume_free(&back);
    }
    assert_refused(reorient(&turned, &v, "RRS", &e), e, ERR_CONFIG, "");
    assert_refused(reorient(&turned, &v, "RA", &e), e, ERR_CONFIG, "");
    volume_free(&v);
}

static void crop_and_pad_undo_each_other(void **state)
{
    (void)state;
    const int64_t dims[3] = {7, 6, 5}, first[3] = {2, 1, 0}, box[3] = {4, 3, 5};
    const int64_t out_first[3] = {-2, -1, 0};
    struct volume v, part, whole;
    struct error e;
    noise_volume(&v, dims, 2);
    assert_ok(volume_crop(&part, &v, first, box, 0.0, &e), e);
    check_same_places(&part, &v);
    assert_ok(volume_crop(&whole, &part, out_first, dims, -9.0, &e), e);
    assert_memory_equal(whole.geometry.affine, v.geometry.affine, sizeof v.geometry.affine);
    for (int64_t n = 0; n < volume_voxels(&v); n++) {
        int64_t i = n % 7, j = n / 7 % 6;
        int inside = i >= 2 && i < 6 && j >= 1 && j < 4;
        assert_true(((float *)whole.data)[n] == (inside ? ((float *)v.data)[n] : -9.0f));
    }
    volume_free(&whole);
    /* A box that misses the volume is all fill. */
    const int64_t far[3] = {100, 0, 0};
    assert_ok(volume_crop(&whole, &v, far, box, 3.0, &e), e);
    for (int64_t n = 0; n < volume_voxels(&whole); n++)
        assert_true(((float *)whole.data)[n] == 3.0f);
    volume_free(&whole);
    volume_free(&part);
    volume_free(&v);
}

static void channels_move_together(void **state)
{
    (void)state;
    const int64_t first[3] = {1, 0, 1}, box[3] = {2, 2, 1}, zoom[3] = {2, 2, 2};
    struct volume v, made;
    struct error e;
    assert_ok(volume_new(&v, DTYPE_I16, (const int64_t[]){3, 2, 4}, NULL, &e), e);
    v.dims[2] = 2; /* two channels of 3x2x2 */
    v.dims[3] = 2;
    v.n_dims = 4;
    v.slope = 2.0;
    v.inter = 1.0;
    for (int i = 0; i < 24; i++)
        ((int16_t *)v.data)[i] = (int16_t)(100 * (i / 12) + i % 12);
    assert_ok(volume_crop(&made, &v, first, box, 0.0, &e), e);
    assert_int_equal(made.dims[3], 2);
    const int16_t want[] = {7, 8, 10, 11, 107, 108, 110, 111};
    assert_memory_equal(made.data, want, sizeof want);
    volume_free(&made);
    assert_ok(to_size(&made, &v, zoom, RESAMPLE_LINEAR, &e), e);
    const float ends[] = {1, 5, 7, 11, 13, 17, 19, 23, 201, 205, 207, 211, 213, 217, 219, 223};
    assert_close(made.data, ends, 16, 1e-5);
    assert_true(made.slope == 1.0 && made.inter == 0.0);
    volume_free(&made);
    volume_free(&v);
}

/* Mean over the new voxel's triangle, written as the definition. */
static float naive_smooth(const float *in, int64_t n, double x, double radius)
{
    double sum = 0.0, weights = 0.0;
    for (int64_t i = -50; i < n + 50; i++) {
        double w = 1.0 - fabs((double)i - x) / radius;
        if (w <= 0.0)
            continue;
        sum += w * (double)in[i < 0 ? 0 : i >= n ? n - 1 : i];
        weights += w;
    }
    return (float)(sum / weights);
}

static void smooth_averages_what_linear_would_skip(void **state)
{
    (void)state;
    const int64_t dims[3] = {40, 1, 1};
    struct volume v, made;
    struct error e;
    noise_volume(&v, dims, 3);
    for (double target = 0.4; target < 6.0; target += 0.37) {
        const double to[3] = {target, 0.0, 0.0};
        assert_ok(to_spacing(&made, &v, to, RESAMPLE_SMOOTH, NULL, &e), e);
        int64_t m = made.dims[0];
        assert_int_equal(m, resample_count(40, 1.0, target));
        for (int64_t o = 0; o < m; o++) {
            double x = 19.5 + ((double)o - 0.5 * (double)(m - 1)) * target;
            x = fmin(fmax(x, 0.0), 39.0);
            float want = naive_smooth(v.data, 40, x, fmax(1.0, target));
            assert_true(fabsf(((float *)made.data)[o] - want) < 1e-5f);
        }
        volume_free(&made);
    }
    /* A pattern of +1, -1 is nothing on a grid four times coarser. */
    const double coarse[3] = {4.0, 0.0, 0.0};
    for (int i = 0; i < 40; i++)
        ((float *)v.data)[i] = i % 2 ? 1.0f : -1.0f;
    assert_ok(to_spacing(&made, &v, coarse, RESAMPLE_SMOOTH, NULL, &e), e);
    for (int64_t o = 1; o + 1 < made.dims[0]; o++)
        assert_true(fabsf(((float *)made.data)[o]) < 1e-6f);
    volume_free(&made);
    volume_free(&v);
}

/* One-hot, resample each class, take the largest: the definition of RESAMPLE_CLASSES. */
static void classes_are_the_argmax_of_one_hot(void **state)
{
    (void)state;
    const int64_t dims[3] = {9, 8, 7};
    const double spacing[3] = {1.0, 1.5, 2.0}, target[3] = {0.8, 2.3, 1.1};
    struct volume label, hot, made, value[5];
    struct error e;
    struct rng r = rng_start(4, 0, RNG_TEST, 0);
    assert_ok(volume_new(&label, DTYPE_U8, dims, NULL, &e), e);
    geometry_identity(&label.geometry, spacing);
    for (int i = 0; i < 504; i++)
        ((uint8_t *)label.data)[i] = (uint8_t)rng_below(&r, 5);
    assert_ok(to_spacing(&made, &label, target, RESAMPLE_CLASSES, NULL, &e), e);
    assert_int_equal(made.dtype, DTYPE_U16);
    for (int c = 0; c < 5; c++) {
        assert_ok(volume_new(&hot, DTYPE_F32, dims, &label.geometry, &e), e);
        for (int i = 0; i < 504; i++)
            ((float *)hot.data)[i] = ((uint8_t *)label.data)[i] == c;
        assert_ok(to_spacing(&value[c], &hot, target, RESAMPLE_SMOOTH, NULL, &e), e);
        volume_free(&hot);
    }
    for (int64_t n = 0; n < volume_voxels(&made); n++) {
        int best = 0, chosen = ((label_t *)made.data)[n];
        for (int c = 1; c < 5; c++) {
            if (((float *)value[c].data)[n] > ((float *)value[best].data)[n])
                best = c;
        }
        float lost = ((float *)value[best].data)[n] - ((float *)value[chosen].data)[n];
        assert_true(lost < 1e-6f); /* equal up to rounding */
    }
    for (int c = 0; c < 5; c++)
        volume_free(&value[c]);
    volume_free(&made);
    volume_free(&label);
}

static int64_t clamped(int64_t i, int64_t n)
{
    return i < 0 ? 0 : i >= n ? n - 1 : i;
}

/* The weight of every class at input position x: each tap of the triangles in its own right, however
 * many of them are clamped to one voxel. */
static void naive_votes(double votes[5], const struct volume *label, const double x[3],
                        const double radius[3])
{
    int64_t first[3], last[3];
    double sum = 0.0;
    for (int a = 0; a < 3; a++) {
        first[a] = (int64_t)floor(x[a] - radius[a]);
        last[a] = (int64_t)ceil(x[a] + radius[a]);
    }
    memset(votes, 0, 5 * sizeof *votes);
    for (int64_t k = first[2]; k <= last[2]; k++)
        for (int64_t j = first[1]; j <= last[1]; j++)
            for (int64_t i = first[0]; i <= last[0]; i++) {
                const int64_t *n = label->dims, at[3] = {i, j, k};
                double w = 1.0;
                for (int a = 0; a < 3; a++)
                    w *= fmax(0.0, 1.0 - fabs((double)at[a] - x[a]) / radius[a]);
                int64_t row = clamped(j, n[1]) + n[1] * clamped(k, n[2]);
                votes[((uint8_t *)label->data)[clamped(i, n[0]) + n[0] * row]] += w;
                sum += w;
            }
    for (int c = 0; c < 5; c++)
        votes[c] /= sum;
}

static void check_votes(const struct volume *made, const struct volume *label, double target_mm)
{
    double x[3], radius[3], votes[5];
    for (int64_t n = 0; n < volume_voxels(made); n++) {
        int64_t at[3] = {n % made->dims[0], n / made->dims[0] % made->dims[1],
                         n / (made->dims[0] * made->dims[1])};
        int best = 0, chosen = ((label_t *)made->data)[n];
        for (int a = 0; a < 3; a++) {
            double step = target_mm / label->geometry.spacing_mm[a], last = (double)(label->dims[a] - 1);
            x[a] = 0.5 * last + ((double)at[a] - 0.5 * (double)(made->dims[a] - 1)) * step;
            x[a] = fmin(fmax(x[a], 0.0), last);
            radius[a] = fmax(1.0, step);
        }
        naive_votes(votes, label, x, radius);
        for (int c = 1; c < 5; c++)
            best = votes[c] > votes[best] ? c : best;
        assert_true(votes[best] - votes[chosen] < 1e-8); /* equal up to the rule for ties */
    }
}

/* Axes that keep their taps, that have just more taps than voxels, and many times more. */
static void folded_taps_vote_like_all_taps(void **state)
{
    (void)state;
    static const double spacings[][3] = {
        {0.41, 0.6, 0.39}, {0.36, 0.3, 0.9}, {0.8, 0.05, 0.36}, {0.02, 0.03, 0.025}};
    const int64_t dims[3] = {5, 4, 6};
    const double target[3] = {1.0, 1.0, 1.0};
    struct volume label, made;
    struct error e;
    struct rng r = rng_start(11, 0, RNG_TEST, 0);
    assert_ok(volume_new(&label, DTYPE_U8, dims, NULL, &e), e);
    for (int repeat = 0; repeat < 20; repeat++) {
        geometry_identity(&label.geometry, spacings[repeat % 4]);
        for (int i = 0; i < 120; i++)
            ((uint8_t *)label.data)[i] = (uint8_t)rng_below(&r, 5);
        assert_ok(to_spacing(&made, &label, target, RESAMPLE_CLASSES, NULL, &e), e);
        check_votes(&made, &label, 1.0);
        volume_free(&made);
    }
    volume_free(&label);
}

/* Spacing in metres, or less: one voxel is left, which the eight corners decide, as nearly all of
 * the triangle is clamped to them. Reading each tap would take 3 * 10^11 of them: half an hour. */
static void a_scan_in_metres_is_done_at_once(void **state)
{
    (void)state;
    const int64_t dims[3] = {20, 20, 20};
    const double spacing[3] = {0.0003, 0.0003, 0.0003}, target[3] = {1.0, 1.0, 1.0};
    struct volume v, made;
    struct error e;
    noise_volume(&v, dims, 12);
    geometry_identity(&v.geometry, spacing);
    for (int i = 0; i < 8000; i++) {
        int is_corner = (i % 20) % 19 == 0 && (i / 20 % 20) % 19 == 0 && (i / 400) % 19 == 0;
        ((float *)v.data)[i] = !is_corner ? 1.0f : i < 400 ? 3.0f : i % 20 ? 2.0f : 3.0f;
    }
    assert_ok(to_spacing(&made, &v, target, RESAMPLE_CLASSES, NULL, &e), e);
    assert_int_equal(volume_voxels(&made), 1);
    assert_int_equal(*(label_t *)made.data, 3);
    volume_free(&made);
    assert_ok(to_spacing(&made, &v, target, RESAMPLE_SMOOTH, NULL, &e), e);
    assert_true(fabsf(*(float *)made.data - 2.75f) < 0.05f);
    volume_free(&made);
    volume_free(&v);
}

static void the_spline_passes_through_the_samples(void **state)
{
    (void)state;
    struct volume v, made;
    struct error e;
    for (int64_t n = 1; n < 70; n += n < 6 ? 1 : 21) {
        const int64_t dims[3] = {n, 3, 2}, twice[3] = {2 * n - 1, 3, 2};
        noise_volume(&v, dims, (uint64_t)n);
        assert_ok(to_size(&made, &v, twice, RESAMPLE_CUBIC, &e), e);
        for (int64_t row = 0; row < 6; row++) {
            for (int64_t i = 0; i < n; i++) {
                float have = ((float *)made.data)[row * (2 * n - 1) + 2 * i];
                assert_true(fabsf(have - ((float *)v.data)[row * n + i]) < 1e-5f);
            }
        }
        volume_free(&made);
        volume_free(&v);
    }
}

static void threads_change_no_bit(void **state)
{
    (void)state;
    const int64_t dims[3] = {37, 41, 29};
    const double target[3] = {0.83, 1.71, 0.6};
    struct volume v, one, many;
    struct pool *pool;
    struct error e;
    noise_volume(&v, dims, 8);
    for (int threads = 2; threads <= 4; threads++) {
        assert_ok(pool_new(&pool, threads, &e), e);
        for (int kind = RESAMPLE_NEAREST; kind <= RESAMPLE_CUBIC; kind++) {
            enum resample_kind k = (enum resample_kind)kind;
            assert_ok(to_spacing(&one, &v, target, k, NULL, &e), e);
            assert_ok(to_spacing(&many, &v, target, k, pool, &e), e);
            assert_memory_equal(one.data, many.data, (size_t)volume_voxels(&one) * 4);
            volume_free(&one);
            volume_free(&many);
        }
        pool_free(pool);
    }
    volume_free(&v);
}

static void absurd_grids_are_refused(void **state)
{
    (void)state;
    const int64_t dims[3] = {50, 50, 50};
    const double tiny[3] = {1e-7, 1e-7, 1e-7};
    struct volume v, made;
    struct error e;
    noise_volume(&v, dims, 9);
    assert_refused(to_spacing(&made, &v, tiny, RESAMPLE_LINEAR, NULL, &e), e, ERR_DATA, "");
    const double vast[3] = {1e4, 1, 1};
    assert_refused(to_spacing(&made, &v, vast, RESAMPLE_SMOOTH, NULL, &e), e, ERR_DATA, "N23");
    assert_int_equal(resample_count(5, 0.5, 1.0), 2); /* 2.5 rounds to even */
    assert_int_equal(resample_count(7, 0.5, 1.0), 4);
    assert_int_equal(resample_count(1, 0.1, 1.0), 1);
    volume_free(&v);
}

static void lost_memory_is_an_error(void **state)
{
    (void)state;
    const int64_t dims[3] = {9, 8, 7};
    const double target[3] = {0.7, 1.3, 0.9};
    struct volume v, made;
    struct error e;
    noise_volume(&v, dims, 10);
    int failures = 0;
    for (int n = 0; n < 1000; n++) {
        mem_fail_at(n, 0);
        int status = to_spacing(&made, &v, target, RESAMPLE_CUBIC, NULL, &e);
        mem_fail_at(-1, 0);
        if (status == 0)
            break;
        assert_int_equal(e.code, ERR_MEMORY);
        assert_null(made.data);
        failures++;
    }
    assert_in_range(failures, 5, 999);
    volume_free(&made);
    volume_free(&v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(zoom_is_scipys),
        cmocka_unit_test(centred_is_scipys_map_coordinates),
        cmocka_unit_test(all_orientations_keep_every_voxel_in_its_place),
        cmocka_unit_test(crop_and_pad_undo_each_other),
        cmocka_unit_test(channels_move_together),
        cmocka_unit_test(smooth_averages_what_linear_would_skip),
        cmocka_unit_test(classes_are_the_argmax_of_one_hot),
        cmocka_unit_test(folded_taps_vote_like_all_taps),
        cmocka_unit_test(a_scan_in_metres_is_done_at_once),
        cmocka_unit_test(the_spline_passes_through_the_samples),
        cmocka_unit_test(threads_change_no_bit),
        cmocka_unit_test(absurd_grids_are_refused),
        cmocka_unit_test(lost_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
