/* Tests of augment.h. Oracles: numpy's rot90, flip, pad and slices (golden/augment.h), naive loops
 * for the filters, and images whose values say where a voxel came from. */
#include "test.h"

#include <math.h>

#include "base/rng.h"
#include "golden/augment.h"
#include "sample/augment.h"

/* ---- cases and patches ----------------------------------------------------------------------- */

static struct case_store one_case(int d, int h, int w, int channels)
{
    struct case_store s = {.channels = channels, .has_mask = 1};
    int dims[3] = {d, h, w};
    struct error e;
    assert_non_null(case_store_add(&s, "case", dims, CASE_LABELED, &e));
    return s;
}

static size_t voxels_of(const int dims[3])
{
    return (size_t)dims[0] * (size_t)dims[1] * (size_t)dims[2];
}

static struct patch new_patch(int d, int h, int w, int channels)
{
    struct error e;
    struct patch p = {{d, h, w}, channels, NULL, NULL, NULL};
    size_t n = voxels_of(p.dims);
    p.image = mem_alloc(&e, n * (size_t)channels, sizeof(float));
    p.label = mem_alloc(&e, n, sizeof(label_t));
    p.mask = mem_alloc(&e, n, 1);
    memset(p.image, 0xAA, n * (size_t)channels * sizeof(float)); /* every voxel must be written */
    memset(p.label, 0xAA, n * sizeof(label_t));
    memset(p.mask, 0xAA, n);
    return p;
}

static void free_patch(struct patch *p)
{
    mem_free(p->image);
    mem_free(p->label);
    mem_free(p->mask);
}

static struct augment_draw no_draw(void)
{
    struct augment_draw d = {.turns = -1,
                             .flip = -1,
                             .brightness = 1,
                             .contrast = 1,
                             .zoom = 1,
                             .gamma = 1,
                             .matrix = {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}}};
    return d;
}

/* Image 1, 2, 3, ..., label the same, mask 1. */
static void number_voxels(struct stored_case *c)
{
    for (size_t v = 0; v < voxels_of(c->dims); v++) {
        c->image[v] = (float)(v + 1);
        c->label[v] = (label_t)(v + 1);
        c->mask[v] = 1;
    }
}

/* Four channels: i, j, k and 1; the label is the voxel's number from 1 on. */
static void place_voxels(struct stored_case *c)
{
    size_t v = 0;
    for (int i = 0; i < c->dims[0]; i++)
        for (int j = 0; j < c->dims[1]; j++)
            for (int k = 0; k < c->dims[2]; k++, v++) {
                float at[4] = {(float)i, (float)j, (float)k, 1};
                memcpy(c->image + 4 * v, at, sizeof at);
                c->label[v] = (label_t)(v + 1);
                c->mask[v] = 1;
            }
}

static struct augment_scratch *scratch_for(const struct augment_options *o, const struct patch *p)
{
    struct augment_scratch *s = NULL;
    struct error e;
    assert_ok(augment_scratch_new(&s, o, 1, p->dims, p->channels, &e), e);
    return s;
}

/* ---- the paper's augmentation ---------------------------------------------------------------- */

static void test_golden_numpy(void **state)
{
    (void)state;
    struct case_store s = one_case(7, 5, 3, 1);
    number_voxels(&s.cases[0]);
    for (size_t g = 0; g < sizeof golden_patches / sizeof golden_patches[0]; g++) {
        const struct golden_patch *want = &golden_patches[g];
        struct patch p = new_patch(want->out[0], want->out[1], want->out[2], 1);
        struct augment_draw d = no_draw();
        d.turns = want->turns;
        d.flip = want->flip;
        memcpy(d.start, want->start, sizeof d.start);
        memcpy(d.pad, want->pad, sizeof d.pad);
        augment_apply(&p, &augment_paper, &d, &s.cases[0], NULL);
        for (size_t v = 0; v < voxels_of(p.dims); v++) {
            assert_float_equal(p.image[v], (float)want->value[v], 0);
            assert_int_equal(p.label[v], want->value[v]);
            assert_int_equal(p.mask[v], want->value[v] > 0);
        }
        free_patch(&p);
    }
    case_store_free(&s);
}

static void test_rotflip_four_outputs(void **state)
{
    (void)state;
    struct case_store s = one_case(4, 4, 2, 1);
    number_voxels(&s.cases[0]);
    struct patch p = new_patch(4, 4, 2, 1);
    uint64_t seen[8];
    int count[8] = {0}, n_seen = 0;
    for (uint32_t slot = 0; slot < 4000; slot++) {
        struct augment_draw d;
        augment_draw(&d, &augment_paper, &s.cases[0], p.dims,
                     &(struct augment_key){.seed = 7, .step = 11, .slot = slot});
        assert_in_range(d.turns, 0, 3);
        assert_in_range(d.flip, 0, 1);
        memset(d.pad, 0, sizeof d.pad);
        memset(d.start, 0, sizeof d.start);
        augment_apply(&p, &augment_paper, &d, &s.cases[0], NULL);
        uint64_t hash = hash_bytes(p.image, voxels_of(p.dims) * sizeof(float), 0);
        int i = 0;
        while (i < n_seen && seen[i] != hash)
            i++;
        assert_true(i < 8);
        if (i == n_seen)
            seen[n_seen++] = hash;
        count[i]++;
    }
    assert_int_equal(n_seen, 4);
    for (int i = 0; i < 4; i++)
        assert_in_range(count[i], 880, 1120); /* 1000 +- 4.4 deviations */
    uint64_t plain = hash_bytes(s.cases[0].image, voxels_of(p.dims) * sizeof(float), 0);
    for (int i = 0; i < 4; i++)
        assert_true(seen[i] != plain); /* it is always mirrored */
    free_patch(&p);
    case_store_free(&s);
}

static void test_padding_table(void **state)
{
    (void)state;
    const int want[] = {6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0, 0};
    for (int n = 90; n <= 103; n++)
        assert_int_equal(augment_pad(n, 96), want[n - 90]);
}

static void draw_for(struct augment_draw *d, const struct augment_options *o, int n0, int n1, int n2,
                     const int patch[3], uint64_t step)
{
    struct stored_case c = {.dims = {n0, n1, n2}, .spacing_mm = {1, 1, 1}};
    augment_draw(d, o, &c, patch, &(struct augment_key){.seed = 1337, .step = step, .slot = 0});
}

/* Padding of all axes as soon as one is not larger than the patch, and of none otherwise. */
static void test_padding_is_joint(void **state)
{
    (void)state;
    const int patch[3] = {96, 96, 96};
    struct augment_options o = {.crop = AUGMENT_CROP_RANDOM};
    struct augment_draw d;
    draw_for(&d, &o, 97, 98, 99, patch, 0);
    assert_int_equal(d.pad[0] + d.pad[1] + d.pad[2], 0);
    draw_for(&d, &o, 97, 96, 99, patch, 0);
    assert_int_equal(d.pad[0], 2);
    assert_int_equal(d.pad[1], 3);
    assert_int_equal(d.pad[2], 1);
    for (int n = 1; n <= 120; n++) { /* a place is always left */
        draw_for(&d, &o, n, 200, 97, patch, (uint64_t)n);
        assert_in_range(d.start[0], 0, n + 2 * d.pad[0] - 96 - 1);
        assert_in_range(d.start[2], 0, 97 + 2 * d.pad[2] - 96 - 1);
    }
}

static void test_centre_crop(void **state)
{
    (void)state;
    const int patch[3] = {96, 96, 96};
    struct augment_options o = {.crop = AUGMENT_CROP_CENTER};
    for (size_t i = 0; i < sizeof golden_centres / sizeof golden_centres[0]; i++) {
        struct augment_draw d;
        int n = golden_centres[i].n;
        draw_for(&d, &o, n, n, n, patch, i);
        for (int a = 0; a < 3; a++)
            assert_int_equal(d.start[a], golden_centres[i].start);
    }
}

/* Every place 0 .. room - 1 equally often, on each axis; room itself never. */
static void test_crop_uniform(void **state)
{
    (void)state;
    const int patch[3] = {16, 16, 16}, room[3] = {10, 3, 1};
    struct augment_options o = {.crop = AUGMENT_CROP_RANDOM};
    int count[3][10] = {{0}}, trials = 30000;
    for (int t = 0; t < trials; t++) {
        struct augment_draw d;
        draw_for(&d, &o, 26, 19, 17, patch, (uint64_t)t);
        for (int a = 0; a < 3; a++) {
            assert_in_range(d.start[a], 0, room[a] - 1);
            count[a][d.start[a]]++;
        }
    }
    const double limit[3] = {33.7, 18.4, 0.5}; /* chi-square, p = 1e-4, 9 and 2 degrees */
    for (int a = 0; a < 3; a++) {
        double want = (double)trials / room[a], chi = 0;
        for (int i = 0; i < room[a]; i++)
            chi += (count[a][i] - want) * (count[a][i] - want) / want;
        assert_true(chi < limit[a]);
    }
}

/* Ours: each axis by itself, every place of the case, and nothing outside it unless the axis is short. */
static void test_crop_within(void **state)
{
    (void)state;
    const int patch[3] = {16, 16, 16};
    struct augment_options o = {.crop = AUGMENT_CROP_WITHIN};
    int count[4] = {0}, trials = 8000;
    for (int t = 0; t < trials; t++) {
        struct augment_draw d;
        draw_for(&d, &o, 19, 16, 13, patch, (uint64_t)t);
        assert_in_range(d.start[0], 0, 3);
        count[d.start[0]]++;
        assert_int_equal(d.pad[0] + d.pad[1] + d.start[1] + d.start[2], 0);
        assert_int_equal(d.pad[2], 2);
    }
    for (int i = 0; i < 4; i++)
        assert_in_range(count[i], 1800, 2200); /* 5 deviations of 39 */
}

/* ---- interpolation --------------------------------------------------------------------------- */

static void test_warp_identity_is_copy(void **state)
{
    (void)state;
    struct case_store s = one_case(9, 12, 7, 1);
    number_voxels(&s.cases[0]);
    struct augment_options o = {.rotflip = 1, .mirror_p = {0.5f, 0.5f, 0.5f}};
    struct patch a = new_patch(10, 8, 6, 1), b = new_patch(10, 8, 6, 1);
    for (uint32_t slot = 0; slot < 64; slot++) {
        struct augment_draw d;
        augment_draw(&d, &o, &s.cases[0], a.dims, &(struct augment_key){.seed = 3, .step = 5, .slot = slot});
        augment_apply(&a, &o, &d, &s.cases[0], NULL);
        d.warp = 1;
        augment_apply(&b, &o, &d, &s.cases[0], NULL);
        size_t n = voxels_of(a.dims);
        assert_memory_equal(a.image, b.image, n * sizeof(float));
        assert_memory_equal(a.label, b.label, n * sizeof(label_t));
        assert_memory_equal(a.mask, b.mask, n);
    }
    free_patch(&a);
    free_patch(&b);
    case_store_free(&s);
}

/* A quarter turn about each axis, by matrix, against index arithmetic. */
static void test_warp_quarter_turn(void **state)
{
    (void)state;
    enum { N = 6 };
    struct case_store s = one_case(N, N, N, 1);
    number_voxels(&s.cases[0]);
    struct patch p = new_patch(N, N, N, 1);
    for (int axis = 0; axis < 3; axis++) {
        struct augment_draw d = no_draw();
        int b = (axis + 1) % 3, c = (axis + 2) % 3;
        d.warp = 1;
        d.matrix[b][b] = d.matrix[c][c] = 0;
        d.matrix[b][c] = -1;
        d.matrix[c][b] = 1;
        augment_apply(&p, &augment_full, &d, &s.cases[0], NULL);
        for (int v = 0; v < N * N * N; v++) {
            int at[3] = {v / (N * N), v / N % N, v % N}, from[3];
            from[axis] = at[axis];
            from[b] = N - 1 - at[c];
            from[c] = at[b];
            int want = (from[0] * N + from[1]) * N + from[2] + 1;
            assert_float_equal(p.image[v], (float)want, 1e-3);
            assert_int_equal(p.label[v], want);
        }
    }
    free_patch(&p);
    case_store_free(&s);
}

/* The drawn rotation is a rotation in millimetres times the scale. */
static void test_rotation_in_millimetres(void **state)
{
    (void)state;
    const int patch[3] = {8, 8, 8};
    struct augment_options o = {.scale = {1, 0.8f, 1.25f}, .rotate = {1, -40, 40}};
    struct stored_case c = {.dims = {30, 30, 30}, .spacing_mm = {0.5, 1, 2.5}};
    for (uint64_t step = 0; step < 50; step++) {
        struct augment_draw d;
        double m[3][3], scale2 = 0;
        augment_draw(&d, &o, &c, patch, &(struct augment_key){.seed = 1, .step = step, .slot = 0});
        assert_int_equal(d.warp, 1);
        for (int i = 0; i < 3; i++)
            for (int j = 0; j < 3; j++)
                m[i][j] = (double)d.matrix[i][j] * c.spacing_mm[i] / c.spacing_mm[j];
        for (int i = 0; i < 3; i++)
            scale2 += m[i][0] * m[i][0];
        assert_true(scale2 > 0.639 && scale2 < 1.563);
        for (int a = 0; a < 3; a++)
            for (int b = 0; b < 3; b++) {
                double dot = m[0][a] * m[0][b] + m[1][a] * m[1][b] + m[2][a] * m[2][b];
                assert_true(fabs(dot - (a == b ? scale2 : 0)) < 1e-5);
            }
    }
}

/* Everything spatial at once: where the image was read is where the label was read. */
static void test_label_follows_image(void **state)
{
    (void)state;
    struct case_store s = one_case(34, 30, 26, 4);
    struct stored_case *c = &s.cases[0];
    place_voxels(c);
    struct augment_options o = {.rotflip = 1,
                                .mirror_p = {0.5f, 0.5f, 0.5f},
                                .scale = {0.5f, 0.6f, 1.4f},
                                .rotate = {0.5f, -40, 40},
                                .elastic = {0.5f, 1, 3},
                                .elastic_spacing = 8};
    struct patch p = new_patch(24, 22, 28, 4);
    struct augment_scratch *scratch = scratch_for(&o, &p);
    int n_inside = 0, n_warped = 0;
    for (uint32_t slot = 0; slot < 40; slot++) {
        struct augment_draw d;
        augment_draw(&d, &o, c, p.dims, &(struct augment_key){.seed = 21, .step = 4, .slot = slot});
        n_warped += d.warp;
        augment_apply(&p, &o, &d, c, scratch);
        for (size_t v = 0; v < voxels_of(p.dims); v++) {
            const float *x = p.image + 4 * v;
            int label = p.label[v] - 1;
            assert_int_equal(p.mask[v], label >= 0);
            assert_true(x[3] >= 0 && x[3] <= 1.00001f);
            if (x[3] < 0.9999f)
                continue; /* mixed with the zeros outside */
            assert_true(label >= 0);
            int at[3] = {label / (30 * 26), label / 26 % 30, label % 26};
            for (int a = 0; a < 3; a++)
                assert_true(fabsf(x[a] - (float)at[a]) < 0.501f);
            n_inside++;
        }
    }
    assert_in_range(n_warped, 20, 40);
    assert_true(n_inside > 100000);
    augment_scratch_free(scratch);
    free_patch(&p);
    case_store_free(&s);
}

/* Labels are never mixed: only values of the case and 0 come out. */
static void test_labels_stay_labels(void **state)
{
    (void)state;
    const label_t values[4] = {0, 3, 7, 65535};
    struct case_store s = one_case(20, 20, 20, 1);
    struct rng r = rng_start(1, 2, RNG_TEST, 3);
    for (size_t v = 0; v < 8000; v++)
        s.cases[0].label[v] = values[rng_below(&r, 4)];
    struct augment_options o = augment_full;
    o.scale.p = o.rotate.p = o.elastic.p = 1;
    o.elastic_spacing = 7;
    struct patch p = new_patch(24, 16, 18, 1);
    struct augment_scratch *scratch = scratch_for(&o, &p);
    for (uint32_t slot = 0; slot < 20; slot++) {
        struct augment_draw d;
        augment_draw(&d, &o, &s.cases[0], p.dims, &(struct augment_key){.seed = 9, .step = 9, .slot = slot});
        augment_apply(&p, &o, &d, &s.cases[0], scratch);
        for (size_t v = 0; v < voxels_of(p.dims); v++) {
            label_t x = p.label[v];
            assert_true(x == 0 || x == 3 || x == 7 || x == 65535);
        }
    }
    augment_scratch_free(scratch);
    free_patch(&p);
    case_store_free(&s);
}

/* The elastic map, read off the position image: moves, is bounded, and does not fold. */
static void test_elastic_does_not_fold(void **state)
{
    (void)state;
    enum { N = 40, M = 24 };
    struct case_store s = one_case(N, N, N, 4);
    place_voxels(&s.cases[0]);
    struct augment_options o = {.elastic = {1, 100, 100}, .elastic_spacing = 8}; /* all clamped */
    struct patch p = new_patch(M, M, M, 4);
    struct augment_scratch *scratch = scratch_for(&o, &p);
    const size_t step[3] = {M * M, M, 1};
    double moved = 0;
    for (uint32_t slot = 0; slot < 10; slot++) {
        struct augment_draw d;
        augment_draw(&d, &o, &s.cases[0], p.dims, &(struct augment_key){.seed = 2, .step = 2, .slot = slot});
        for (int a = 0; a < 3; a++)
            d.start[a] = (N - M) / 2;
        augment_apply(&p, &o, &d, &s.cases[0], scratch);
        for (int v = 0; v < M * M * M; v++) {
            int at[3] = {v / (M * M), v / M % M, v % M};
            const float *x = p.image + 4 * v;
            double j[3][3];
            for (int a = 0; a < 3; a++) {
                float shift = x[a] - (float)(at[a] + d.start[a]);
                assert_true(fabsf(shift) < 0.4f * 8 + 1e-3f);
                moved += fabs((double)shift);
            }
            if (at[0] == M - 1 || at[1] == M - 1 || at[2] == M - 1)
                continue;
            for (int a = 0; a < 3; a++)
                for (int b = 0; b < 3; b++)
                    j[a][b] = (double)(x[4 * step[b] + (size_t)a] - x[a]);
            double det = j[0][0] * (j[1][1] * j[2][2] - j[1][2] * j[2][1]) -
                         j[0][1] * (j[1][0] * j[2][2] - j[1][2] * j[2][0]) +
                         j[0][2] * (j[1][0] * j[2][1] - j[1][1] * j[2][0]);
            assert_true(det > 0);
        }
    }
    assert_true(moved / (10.0 * M * M * M * 3) > 0.5);
    augment_scratch_free(scratch);
    free_patch(&p);
    case_store_free(&s);
}

/* ---- values ---------------------------------------------------------------------------------- */

struct value_test {
    struct case_store store;
    struct patch p;
    struct augment_scratch *scratch;
    struct augment_draw draw;
};

/* A 13 x 12 x 11 case of two noisy channels, cropped whole. */
static void value_begin(struct value_test *t)
{
    t->store = one_case(13, 12, 11, 2);
    struct rng r = rng_start(4, 4, RNG_TEST, 4);
    for (size_t i = 0; i < 13 * 12 * 11; i++) {
        t->store.cases[0].image[2 * i] = rng_between(&r, -1, 3);
        t->store.cases[0].image[2 * i + 1] = 50 + 10 * rng_normal(&r);
    }
    t->p = new_patch(13, 12, 11, 2);
    t->scratch = scratch_for(&augment_full, &t->p);
    t->draw = no_draw();
}

static const float *value_run(struct value_test *t)
{
    augment_apply(&t->p, &augment_full, &t->draw, &t->store.cases[0], t->scratch);
    return t->p.image;
}

static void value_end(struct value_test *t)
{
    augment_scratch_free(t->scratch);
    free_patch(&t->p);
    case_store_free(&t->store);
}

static float clamped(const float *x, const int at[3], int c)
{
    const int n[3] = {13, 12, 11};
    int p[3];
    for (int a = 0; a < 3; a++)
        p[a] = at[a] < 0 ? 0 : at[a] >= n[a] ? n[a] - 1 : at[a];
    return x[2 * ((p[0] * 12 + p[1]) * 11 + p[2]) + c];
}

static void test_blur_naive(void **state)
{
    (void)state;
    struct value_test t;
    value_begin(&t);
    t.draw.blur_sd = 0.8f;
    const float *got = value_run(&t), *in = t.store.cases[0].image;
    double kernel[7], sum = 0;
    for (int i = -3; i <= 3; i++)
        sum += kernel[i + 3] = exp(-0.5 * i * i / 0.64);
    for (int v = 0; v < 13 * 12 * 11; v += 7)
        for (int c = 0; c < 2; c++) {
            double want = 0;
            for (int w = 0; w < 343; w++) {
                int o[3] = {w / 49 - 3, w / 7 % 7 - 3, w % 7 - 3};
                int at[3] = {v / 132 + o[0], v / 11 % 12 + o[1], v % 11 + o[2]};
                want += kernel[o[0] + 3] * kernel[o[1] + 3] * kernel[o[2] + 3] * (double)clamped(in, at, c);
            }
            want /= sum * sum * sum;
            assert_true(fabs((double)got[2 * v + c] - want) < 1e-4);
        }
    value_end(&t);
}

/* Low resolution: at half the voxels every coarse voxel is an input voxel, and values lie
 * between. */
static void test_zoom_naive(void **state)
{
    (void)state;
    struct value_test t;
    value_begin(&t);
    t.draw.zoom = 0.5f;
    const float *got = value_run(&t), *in = t.store.cases[0].image;
    const int n[3] = {13, 12, 11}, coarse[3] = {7, 6, 6}; /* rounded halves */
    for (int v = 0; v < 13 * 12 * 11; v++) {
        int at[3] = {v / 132, v / 11 % 12, v % 11}, low[3];
        double f[3], want = 0;
        for (int a = 0; a < 3; a++) {
            double x = (at[a] + 0.5) * coarse[a] / n[a] - 0.5;
            low[a] = (int)floor(x);
            f[a] = x - low[a];
        }
        for (int corner = 0; corner < 8; corner++) {
            int from[3];
            double weight = 1;
            for (int a = 0; a < 3; a++) {
                int up = corner >> a & 1, c = low[a] + up;
                c = c < 0 ? 0 : c >= coarse[a] ? coarse[a] - 1 : c;
                from[a] = (int)floor((c + 0.5) * n[a] / coarse[a] - 0.5 + 0.5 + 1e-6);
                weight *= up ? f[a] : 1 - f[a];
            }
            want += weight * (double)clamped(in, from, 0);
        }
        assert_true(fabs((double)got[2 * v] - want) < 1e-4);
    }
    value_end(&t);
}

static void moments(double *mean, double *sd, const float *x, int c)
{
    double s = 0, q = 0, n = 13 * 12 * 11;
    for (int v = 0; v < 13 * 12 * 11; v++)
        s += (double)x[2 * v + c];
    for (int v = 0; v < 13 * 12 * 11; v++)
        q += pow((double)x[2 * v + c] - s / n, 2);
    *mean = s / n;
    *sd = sqrt(q / n);
}

static void test_pointwise_effects(void **state)
{
    (void)state;
    struct value_test t;
    value_begin(&t);
    const float *in = t.store.cases[0].image;
    double mean[2], sd[2], m, d;
    for (int c = 0; c < 2; c++)
        moments(&mean[c], &sd[c], in, c);

    t.draw.brightness = 1.25f;
    const float *got = value_run(&t);
    for (int i = 0; i < 2 * 13 * 12 * 11; i++)
        assert_float_equal(got[i], in[i] * 1.25f, 1e-6);

    t.draw.shift = -0.5f;
    got = value_run(&t);
    for (int i = 0; i < 2 * 13 * 12 * 11; i++)
        assert_true(fabs((double)got[i] - ((double)in[i] * 1.25 - 0.5)) < 1e-5);

    t.draw = no_draw();
    t.draw.contrast = 0.75f;
    got = value_run(&t);
    for (int i = 0; i < 2 * 13 * 12 * 11; i++)
        assert_true(fabs((double)got[i] - 0.25 * mean[i % 2] - 0.75 * (double)in[i]) < 1e-4);

    for (int invert = 0; invert < 2; invert++) {
        t.draw = no_draw();
        t.draw.gamma = 1.5f;
        t.draw.invert = invert;
        got = value_run(&t);
        for (int c = 0; c < 2; c++) {
            moments(&m, &d, got, c);
            assert_true(fabs(m - mean[c]) < 1e-4 && fabs(d - sd[c]) < 1e-3);
        }
        for (int i = 2; i < 2 * 13 * 12 * 11; i++) /* order is kept */
            assert_true((in[i] > in[i - 2]) == (got[i] > got[i - 2]) || got[i] == got[i - 2]);
        /* gamma 1.5 lengthens the bright tail; inverted, the dark one */
        double third = 0, before = 0;
        for (int v = 0; v < 13 * 12 * 11; v++) {
            third += pow(((double)got[2 * v] - mean[0]) / sd[0], 3);
            before += pow(((double)in[2 * v] - mean[0]) / sd[0], 3);
        }
        assert_true(invert ? third < before : third > before);
    }
    value_end(&t);
}

static void test_noise(void **state)
{
    (void)state;
    struct value_test t;
    value_begin(&t);
    t.draw.noise_sd = 0.5f;
    t.draw.key.seed = 5;
    const float *got = value_run(&t), *in = t.store.cases[0].image;
    double s = 0, q = 0, n = 2 * 13 * 12 * 11;
    for (int i = 0; i < 2 * 13 * 12 * 11; i++) {
        double z = (double)(got[i] - in[i]);
        s += z;
        q += z * z;
    }
    assert_true(fabs(s / n) < 4 * 0.5 / sqrt(n));
    assert_true(fabs(sqrt(q / n) - 0.5) < 4 * 0.5 / sqrt(2 * n));
    uint64_t first = hash_bytes(got, (size_t)n * sizeof(float), 0);
    t.draw.key.slot = 1; /* other slot, other noise */
    assert_true(hash_bytes(value_run(&t), (size_t)n * sizeof(float), 0) != first);
    value_end(&t);
}

/* ---- draws and options ----------------------------------------------------------------------- */

/* Effects do not share random numbers: the full set agrees with each effect alone. */
static void test_switches_are_independent(void **state)
{
    (void)state;
    const int patch[3] = {16, 16, 16};
    struct augment_options all = augment_full, only_noise = {.crop = all.crop, .noise = all.noise};
    only_noise.noise.p = all.noise.p = 0.5f;
    int fired = 0;
    for (uint64_t step = 0; step < 200; step++) {
        struct augment_draw a, b;
        draw_for(&a, &only_noise, 30, 31, 32, patch, step);
        draw_for(&b, &all, 30, 31, 32, patch, step);
        assert_float_equal(a.noise_sd, b.noise_sd, 0);
        assert_memory_equal(a.start, b.start, sizeof a.start);
        assert_int_equal(a.warp, 0);
        assert_true(a.blur_sd == 0 && a.zoom == 1 && a.gamma == 1 && a.contrast == 1);
        fired += a.noise_sd > 0;
    }
    assert_in_range(fired, 65, 135);
}

static void test_options_refused(void **state)
{
    (void)state;
    struct error e;
    assert_int_equal(augment_check(&augment_paper, &e), 0);
    assert_int_equal(augment_check(&augment_full, &e), 0);
    struct augment_options bad[8];
    for (int i = 0; i < 8; i++)
        bad[i] = augment_full;
    bad[0].blur.hi = 3.5f;
    bad[1].noise.p = 1.5f;
    bad[2].gamma.lo = 2;
    bad[2].gamma.hi = 1;
    bad[3].zoom.lo = NAN;
    bad[4].mirror_p[1] = -1;
    bad[5].elastic_spacing = 0;
    bad[6].scale.p = NAN;
    bad[7].rotate.hi = INFINITY;
    for (int i = 0; i < 8; i++)
        assert_refused(augment_check(&bad[i], &e), e, ERR_CONFIG, "C02");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden_numpy),
        cmocka_unit_test(test_rotflip_four_outputs),
        cmocka_unit_test(test_padding_table),
        cmocka_unit_test(test_padding_is_joint),
        cmocka_unit_test(test_centre_crop),
        cmocka_unit_test(test_crop_uniform),
        cmocka_unit_test(test_crop_within),
        cmocka_unit_test(test_warp_identity_is_copy),
        cmocka_unit_test(test_warp_quarter_turn),
        cmocka_unit_test(test_rotation_in_millimetres),
        cmocka_unit_test(test_label_follows_image),
        cmocka_unit_test(test_labels_stay_labels),
        cmocka_unit_test(test_elastic_does_not_fold),
        cmocka_unit_test(test_blur_naive),
        cmocka_unit_test(test_zoom_naive),
        cmocka_unit_test(test_pointwise_effects),
        cmocka_unit_test(test_noise),
        cmocka_unit_test(test_switches_are_independent),
        cmocka_unit_test(test_options_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
