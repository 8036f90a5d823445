/* test_predict_scan.c - around the network: the largest component against a flood fill, the order of voxels,
 * what a run folder tells and how damaged ones are refused, masks on the grid of the scan they came from,
 * and what happens when memory ends anywhere on that way.
 */
#include "base/json_write.h"
#include "data/dataset.h"
#include "net/model_file.h"
#include "predict/component.h"
#include "predict/predict_scan.h"
#include "predict/run_folder.h"
#include "predict_scene.h"
#include "scans.h"

/* ---- components ------------------------------------------------------------------------------ */

/* Marks what a voxel is connected to; returns how many voxels that are. */
static int flood(int *mark, int number, const label_t *label, const int dims[3], int from)
{
    int *queue = calloc((size_t)dims[0] * (size_t)dims[1] * (size_t)dims[2], sizeof *queue), n = 1;
    queue[0] = from;
    mark[from] = number;
    for (int i = 0; i < n; i++) {
        int v = queue[i], z = v / dims[2] / dims[1], y = v / dims[2] % dims[1], x = v % dims[2];
        for (int k = 0; k < 27; k++) {
            int a = z + k / 9 - 1, b = y + k / 3 % 3 - 1, c = x + k % 3 - 1;
            if (a < 0 || b < 0 || c < 0 || a >= dims[0] || b >= dims[1] || c >= dims[2])
                continue;
            int w = (a * dims[1] + b) * dims[2] + c;
            if (mark[w] || label[w] != label[v])
                continue;
            mark[w] = number;
            queue[n++] = w;
        }
    }
    free(queue);
    return n;
}

static void largest_against_flood_fill(void **state)
{
    (void)state;
    struct error e;
    struct rng r = rng_start(11, 0, RNG_TEST, 0);
    for (int trial = 0; trial < 300; trial++) {
        int dims[3], size[9] = {0}, best[9] = {0}, number = 0, classes = 1 + (int)rng_below(&r, 3);
        for (int a = 0; a < 3; a++)
            dims[a] = 1 + (int)rng_below(&r, 9);
        int n = dims[0] * dims[1] * dims[2], *mark = calloc((size_t)n, sizeof *mark);
        label_t *label = calloc((size_t)n, sizeof *label), *want = calloc((size_t)n, sizeof *want);
        uint32_t percent = 5 + rng_below(&r, 90);
        for (int v = 0; v < n; v++)
            label[v] = rng_below(&r, 100) < percent ? (label_t)(1 + rng_below(&r, (uint32_t)classes)) : 0;
        for (int v = 0; v < n; v++) {
            if (!label[v] || mark[v])
                continue;
            int count = flood(mark, ++number, label, dims, v);
            if (count > size[label[v]]) { /* the first of equals stays */
                size[label[v]] = count;
                best[label[v]] = number;
            }
        }
        for (int v = 0; v < n; v++)
            want[v] = label[v] && mark[v] == best[label[v]] ? label[v] : 0;
        assert_ok(component_keep_largest(label, dims, &e), e);
        assert_memory_equal(label, want, (size_t)n * sizeof *label);
        free(mark);
        free(label);
        free(want);
    }
}

/* ---- order of voxels ------------------------------------------------------------------------- */

static void rows_and_back(void **state)
{
    (void)state;
    static const int shapes[][3] = {{1, 1, 1}, {3, 5, 7}, {17, 2, 33}, {16, 16, 16}, {40, 1, 18}};
    static const size_t sizes[] = {1, 2, 4, 8};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (size_t j = 0; j < 4; j++) {
            const int *d = shapes[i];
            size_t n = (size_t)d[0] * (size_t)d[1] * (size_t)d[2], each = sizes[j], step = 3 * each;
            unsigned char *voxels = malloc(n * each), *rows = calloc(n, step), *back = calloc(n, each);
            for (size_t k = 0; k < n * each; k++)
                voxels[k] = (unsigned char)(k * 131 + k / 251);
            voxels_to_rows(rows + each, step, voxels, each, d);
            for (int a = 0; a < d[0]; a++)
                for (int b = 0; b < d[1]; b++)
                    for (int c = 0; c < d[2]; c++) {
                        unsigned char *row = rows + (size_t)((a * d[1] + b) * d[2] + c) * step;
                        unsigned char *voxel = voxels + (size_t)(a + d[0] * (b + d[1] * c)) * each;
                        assert_memory_equal(row + each, voxel, each);
                        for (size_t k = 0; k < each; k++)
                            assert_true(row[k] == 0 && row[2 * each + k] == 0); /* other channels */
                    }
            voxels_from_rows(back, rows + each, step, each, d);
            assert_memory_equal(back, voxels, n * each);
            free(voxels);
            free(rows);
            free(back);
        }
}

/* ---- run folders ----------------------------------------------------------------------------- */

static void write_text(const char *path, const char *text)
{
    struct error e;
    assert_ok(io_write_all(path, 0666, text, strlen(text), &e), e);
}

static char *facts_text(const struct run_facts *f)
{
    struct js_out o = {0};
    struct error e;
    char *text = NULL;
    js_out_open(&o, NULL, '{');
    run_facts_to_json(&o, f);
    js_out_close(&o, '}');
    assert_ok(js_out_take(&text, &o, &e), e);
    return text;
}

static struct run_facts some_facts(void)
{
    static char background[] = "background", atrium[] = "left \"atrium\"", accent[] = "\xC3\xA9";
    static char *names[] = {background, atrium, accent};
    struct run_facts f = {.patch = {16, 32, 48},
                          .channels = 2,
                          .classes = 3,
                          .class_names = names,
                          .method = "aua",
                          .sides = {1, {0, 2, 1}},
                          .window_mode = WINDOW_CONSTANT,
                          .stride = {4, 8, 12}};
    struct error e;
    assert_ok(recipe_named(&f.recipe, "pancreas", 7, NAN_ZERO, &e), e);
    return f;
}

static void facts_round_trip(void **state)
{
    (void)state;
    struct run_facts f = some_facts(), got;
    struct error e;
    char *text = facts_text(&f), *again;
    assert_ok(io_make_folders("round", &e), e);
    write_text("round/run.json", text);
    assert_ok(run_facts_read(&got, "round", &e), e);
    again = facts_text(&got);
    assert_string_equal(text, again);
    assert_string_equal(got.class_names[1], "left \"atrium\"");
    assert_int_equal(got.patch[2], 48);
    assert_int_equal(got.window_mode, WINDOW_CONSTANT);
    assert_int_equal(got.stride[2], 12);
    assert_int_equal(got.recipe.crop, CROP_BODY);
    assert_memory_equal(&got.sides, &f.sides, sizeof f.sides);
    mem_free(again);
    run_facts_free(&got);
    run_facts_free(&got); /* zeroed */
    mem_free(text);
}

/* Every damage is refused with one error that names the file, and nothing is left in *out. */
static void damaged_run_json(void **state)
{
    (void)state;
    struct run_facts f = some_facts(), got;
    struct error e;
    char *text = facts_text(&f), *bad;
    assert_ok(io_make_folders("bad", &e), e);
    for (size_t n = 0; n + 2 < strlen(text); n += 7) { /* cut short anywhere */
        bad = mem_format(&e, "%.*s", (int)n, text);
        write_text("bad/run.json", bad);
        assert_int_equal(run_facts_read(&got, "bad", &e), -1);
        assert_int_equal(e.code, ERR_DATA);
        assert_says(e.text, "bad/run.json");
        mem_free(bad);
    }
    static const char *const swaps[][2] = {
        {"\"n_classes\": 3", "\"n_classes\": 1"},
        {"\"n_classes\": 3", "\"n_classes\": 300"},
        {"\"n_classes\": 3", "\"n_classes\": \"3\""},
        {"\"n_classes\": 3", "\"classes\": 3"},
        {"\"image_channels\": 2", "\"image_channels\": 0"},
        {"\"image_channels\": 2", "\"image_channels\": 17"},
        {"[16, 32, 48]", "[16, 32]"},
        {"[16, 32, 48]", "[16, 33, 48]"},
        {"[16, 32, 48]", "[0, 32, 48]"},
        {"[16, 32, 48]", "[16, 32, 4096]"},
        {"[16, 32, 48]", "16"},
        {"\"preparation\"", "\"other\""},
        {"\"constant\"", "\"even\""},
        {"\"constant\"", "0"},
        {"[4, 8, 12]", "[4, 8]"},
        {"[4, 8, 12]", "[17, 8, 12]"},
        {"[4, 8, 12]", "4"},
        {"[0, 2, 1]", "[0, 2]"},
        {"[0, 2, 1]", "[0, 2, 2]"},
        {"[0, 2, 1]", "[1, 0, 2]"},
        {"[0, 2, 1]", "[0, 3, 1]"},
    };
    for (size_t i = 0; i < sizeof swaps / sizeof *swaps; i++) {
        char *at = strstr(text, swaps[i][0]);
        if (!at)
            test_fail("not there: %s", swaps[i][0]);
        bad = mem_format(&e, "%.*s%s%s", (int)(at - text), text, swaps[i][1], at + strlen(swaps[i][0]));
        write_text("bad/run.json", bad);
        assert_int_equal(run_facts_read(&got, "bad", &e), -1);
        assert_int_equal(e.code, ERR_DATA);
        assert_says(e.text, "bad/run.json");
        assert_null(got.class_names);
        mem_free(bad);
    }
    mem_free(text);
    assert_refused(run_facts_read(&got, "nowhere", &e), e, ERR_SYSTEM, "Z12");
    assert_ok(io_make_folders("empty", &e), e);
    assert_refused(run_facts_read(&got, "empty", &e), e, ERR_DATA, "L01");
}

/* [S11] A pickle is named as one, whether it is there or not, and never opened. */
static void pickles_are_not_read(void **state)
{
    (void)state;
    static const char *const names[] = {"model.pt", "MODEL.PTH", "last.ckpt", "net.pkl"};
    struct run_facts got;
    struct error e;
    for (int i = 0; i < 4; i++) {
        write_text(names[i], "\x80\x02}q");
        assert_refused(run_facts_read(&got, names[i], &e), e, ERR_DATA, "S11", "pickle");
    }
    write_text("lone.safetensors", "x");
    assert_refused(run_facts_read(&got, "lone.safetensors", &e), e, ERR_DATA, "L01", "folder");
}

static void models_of_a_run(void **state)
{
    (void)state;
    struct scene s;
    struct error e;
    struct predict_model m;
    struct run_facts facts = {.channels = 1, .classes = 3};
    scene_open(&s, 1, 3, 2, 1);
    assert_ok(io_make_folders("models", &e), e);
    assert_refused(run_model(&m, "models", "final", &facts, s.dev, &e), e, ERR_DATA, "S10",
                   "model.safetensors");
    assert_ok(model_write("models/model.safetensors", s.model.params, &s.model.def, &e), e);
    assert_refused(run_model(&m, "models", "best", &facts, s.dev, &e), e, ERR_DATA, "S10");
    assert_ok(run_model(&m, "models", "final", &facts, s.dev, &e), e);
    assert_memory_equal(m.params->value, s.model.params->value, (size_t)m.params->count * sizeof(float));
    params_free(m.params);
    facts.classes = 4;
    assert_refused(run_model(&m, "models", "final", &facts, s.dev, &e), e, ERR_BUSY, "S10");
    assert_null(m.params);
    facts.classes = 3;
    /* uncertainty: the model itself, or stage 1 if it is there, or none */
    assert_ok(run_uncertainty(&m, "models", "final", &s.model.def, &facts, s.dev, &e), e);
    assert_memory_equal(m.params->value, s.model.params->value, (size_t)m.params->count * sizeof(float));
    params_free(m.params);
    facts.stages = 2; /* what stage 2 says of covariance was never trained */
    assert_refused(run_uncertainty(&m, "models", "final", &s.model.def, &facts, s.dev, &e), e, ERR_DATA,
                   "S10");
    assert_null(m.params);
    s.model.params->value[0] = 42;
    assert_ok(model_write("models/stage1.safetensors", s.model.params, &s.model.def, &e), e);
    assert_ok(run_uncertainty(&m, "models", "final", &s.model.def, &facts, s.dev, &e), e);
    assert_true(m.params->value[0] == 42.0f);
    params_free(m.params);
    struct net_definition plain = s.model.def;
    plain.rank = 0;
    assert_ok(run_uncertainty(&m, "models", "final", &plain, &facts, s.dev, &e), e);
    assert_null(m.params);
    scene_close(&s);
}

/* ---- which scans ------------------------------------------------------------------------------- */

static void small_scan(const char *path)
{
    static const int64_t dims[3] = {6, 7, 8};
    static const double spacing[3] = {1, 1, 1};
    struct volume v;
    struct error e;
    scan_of(&v, dims, spacing, 0, 9);
    assert_ok(volume_write(&v, path, &e), e);
    volume_free(&v);
}

/* The names of the cases with their numbers of files, "a:1 b:2 ". */
static void names_of(char *out, size_t cap, const struct dataset *d)
{
    size_t n = 0;
    *out = '\0';
    for (int i = 0; i < d->n_cases; i++) {
        assert_true(d->cases[i].split == SPLIT_TEST && !d->cases[i].label);
        n += (size_t)snprintf(out + n, cap - n, "%s:%d ", d->cases[i].name, d->cases[i].n_images);
    }
}

static void expect_scans(const char *path, int channels, const char *want)
{
    struct dataset_options o = {.follow = 0};
    struct dataset d;
    struct error e;
    char got[300];
    assert_ok(dataset_open_scans(&d, path, channels, &o, &e), e);
    names_of(got, sizeof got, &d);
    assert_string_equal(got, want);
    for (int i = 0; i < d.n_cases; i++)
        for (int k = 0; k < d.cases[i].n_images; k++)
            assert_true(io_exists(d.cases[i].images[k]));
    dataset_free(&d);
}

static void scans_to_predict(void **state)
{
    (void)state;
    struct dataset_options o = {.follow = 0};
    struct dataset d;
    struct error e;
    assert_ok(io_make_folders("scans/empty", &e), e);
    small_scan("scans/b.nrrd");
    small_scan("scans/a.x.nii.gz");
    small_scan("scans/c_0001.nii"); /* just a name */
    expect_scans("scans/a.x.nii.gz", 1, "a.x:1 ");
    expect_scans("scans", 1, "a.x:1 b:1 c_0001:1 ");
    expect_scans("scans///", 1, "a.x:1 b:1 c_0001:1 ");
    expect_scans("scans", 2, "a.x:1 b:1 c_0001:1 "); /* each holds all channels, or is refused when read */
    assert_refused(dataset_open_scans(&d, "scans/empty", 1, &o, &e), e, ERR_DATA, "L01");
    assert_refused(dataset_open_scans(&d, "scans/none", 1, &o, &e), e, ERR_SYSTEM, "Z12");
    assert_ok(io_make_folders("set/imagesTr", &e), e); /* a data set, not its scans */
    small_scan("set/imagesTr/a.nii.gz");
    assert_ok(io_write_all("set/dataset.json", 0666, "{}", 2, &e), e);
    assert_refused(dataset_open_scans(&d, "set", 1, &o, &e), e, ERR_DATA, "L01", "\"imagesTr\"");
    assert_ok(io_make_folders("numbered", &e), e);
    small_scan("numbered/p_0000.nii.gz");
    small_scan("numbered/q_0000.nii.gz");
    expect_scans("numbered", 1, "p:1 q:1 ");
    small_scan("numbered/p_0001.nii.gz");
    small_scan("numbered/q_0001.nii.gz");
    expect_scans("numbered", 2, "p:2 q:2 ");
    expect_scans("numbered/p_0000.nii.gz", 2, "p:2 ");
    expect_scans("numbered/p_0001.nii.gz", 2, "p_0001:1 "); /* no first channel: refused when read */
    expect_scans("numbered/p_0000.nii.gz", 1, "p_0000:1 ");
    unlink("numbered/p_0000.nii.gz");
    assert_refused(dataset_open_scans(&d, "numbered", 2, &o, &e), e, ERR_DATA, "L14");
}

/* An archive of patient / study / series: what is looked at is the names, the files may be anything. */
static void series_in_archives(void **state)
{
    (void)state;
    static const char *const folders[] = {
        "archive/P1/CT",   "archive/P1/MR",    "archive/P2/first/CT",    "archive/P3",
        "archive/.old/CT", "archive/masks/CT", "archive/P5/a/b/too-deep"};
    struct error e;
    char path[80];
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        assert_ok(io_make_folders(folders[i], &e), e);
        snprintf(path, sizeof path, "%s/IM0001", folders[i]);
        assert_ok(io_write_all(path, 0666, "x", 1, &e), e);
    }
    small_scan("archive/masks/a.nii.gz"); /* no part of an archive, and so is what lies below */
    assert_ok(io_make_folders("archive/P4/empty", &e), e);
    expect_scans("archive", 1, "P3:1 P1_CT:1 P1_MR:1 P2_first_CT:1 ");
    expect_scans("archive/P1", 1, "CT:1 MR:1 ");
    expect_scans("archive/P3", 1, "P3:1 ");
}

/* ---- scans on their own grid ----------------------------------------------------------------- */

/* A turned and sheared-free grid of uneven spacing: rotation about z by 25 degrees, axes exchanged. */
static void odd_grid(struct geometry *g)
{
    double c = cos(0.436), t = sin(0.436);
    const double affine[3][4] = {{0, -1.2 * t, 2.5 * c, -31}, {0, 1.2 * c, 2.5 * t, 17}, {-0.8, 0, 0, 250}};
    geometry_from_affine(g, affine);
}

static void masks_come_back_on_the_grid(void **state)
{
    (void)state;
    static const int64_t dims[3] = {38, 22, 15};
    /* as is, cropped, resampled; the last two would crop around a label */
    static const char *const names[] = {"none", "auto", "la", "pancreas", "paper-la", "paper-pancreas"};
    struct scene s;
    struct error e;
    struct predictor *p;
    struct predict_options o = {.patch = {16, 16, 16}, .batch = 2, .uncertainty = 1, .probabilities = 1};
    scene_open(&s, 1, 2, 1, 2);
    assert_ok(predictor_new(&p, s.dev, &s.model, &s.model, &o, &e), e);
    for (int i = 0; i < 6; i++) {
        struct volume image;
        struct recipe recipe;
        struct scan_result r;
        struct geometry grid;
        odd_grid(&grid);
        assert_ok(recipe_named(&recipe, names[i], 0, NAN_REFUSE, &e), e);
        scan_of(&image, dims, (const double[3]){1, 1, 1}, i % 2 && i > 1 ? -1000 : 0, 50);
        image.geometry = grid;
        assert_ok(predict_scan(&r, p, &recipe, NULL, &image, s.dev->pool, &e), e);
        assert_null(image.data);
        const struct volume *all[] = {&r.label, &r.foreground, &r.std, &r.entropy};
        for (int k = 0; k < 4; k++) {
            assert_int_equal(all[k]->dtype, k ? DTYPE_F32 : DTYPE_U8);
            assert_memory_equal(all[k]->dims, dims, sizeof dims);
            assert_memory_equal(all[k]->geometry.affine, grid.affine, sizeof grid.affine);
            assert_int_equal(volume_channels(all[k]), 1);
        }
        int64_t foreground = 0;
        for (int64_t v = 0; v < volume_voxels(&r.label); v++) {
            double f = volume_value(&r.foreground, v), entropy = volume_value(&r.entropy, v);
            foreground += volume_value(&r.label, v) > 0;
            assert_true(f >= 0 && f <= 1.00001 && entropy >= 0 && entropy <= 1.00001);
        }
        assert_true(foreground > 0 && foreground < volume_voxels(&r.label));
        scan_result_free(&r);
    }
    predictor_free(p);
    scene_close(&s);
}

/* The mask must lie where the voxels lie: a bright cube and a network that answers brightness. */
static void masks_lie_where_the_voxels_lie(void **state)
{
    (void)state;
    static const int64_t dims[3] = {30, 26, 21};
    struct scene s;
    struct error e;
    struct predictor *p;
    struct recipe recipe;
    struct volume image;
    struct scan_result r, turned;
    struct predict_options o = {.patch = {16, 16, 16}, .batch = 2, .probabilities = 1};
    scene_open(&s, 1, 2, 0, 2);
    assert_ok(predictor_new(&p, s.dev, &s.model, NULL, &o, &e), e);
    assert_ok(recipe_named(&recipe, "la", 0, NAN_REFUSE, &e), e); /* reorients to RAS, crops */
    /* the same patient stored twice: RAS, and with the first axis the other way round */
    scan_of(&image, dims, (const double[3]){1, 1, 1}, 0, 50);
    struct volume mirror;
    assert_ok(volume_new(&mirror, image.dtype, dims, &image.geometry, &e), e);
    mirror.geometry.affine[0][0] = -1;
    mirror.geometry.affine[0][3] += (double)(dims[0] - 1);
    for (int64_t v = 0; v < volume_voxels(&image); v++)
        ((int16_t *)mirror.data)[v - v % dims[0] + dims[0] - 1 - v % dims[0]] = ((int16_t *)image.data)[v];
    assert_ok(predict_scan(&r, p, &recipe, NULL, &image, s.dev->pool, &e), e);
    assert_ok(predict_scan(&turned, p, &recipe, NULL, &mirror, s.dev->pool, &e), e);
    for (int64_t v = 0; v < volume_voxels(&r.label); v++) {
        int64_t w = v - v % dims[0] + dims[0] - 1 - v % dims[0],
                at[3] = {v % dims[0], v / dims[0] % dims[1], v / dims[0] / dims[1]};
        int inside = 1;
        for (int a = 0; a < 3; a++)
            inside &= at[a] >= 3 && at[a] < dims[a] - 2;
        assert_true(volume_value(&r.label, v) == volume_value(&turned.label, w));
        assert_true(volume_value(&r.foreground, v) == volume_value(&turned.foreground, w));
        /* what the crop left out is background for sure, what it kept is not */
        assert_true((volume_value(&r.foreground, v) > 0) == inside);
    }
    scan_result_free(&r);
    scan_result_free(&turned);
    predictor_free(p);
    scene_close(&s);
}

/* [P16] Every allocation fails once; what was held is given back (the sanitizer looks), the error is told. */
static void any_allocation_may_fail(void **state)
{
    (void)state;
    static const int64_t dims[3] = {17, 12, 9};
    static const double spacing[3] = {1, 1, 1};
    struct volume scan, image;
    struct recipe recipe;
    struct error e;
    struct predict_options o = {
        .patch = {16, 16, 16}, .batch = 1, .uncertainty = 1, .samples = 2, .probabilities = 1, .largest = 1};
    int succeeded = 0;
    assert_ok(recipe_named(&recipe, "la", 0, NAN_REFUSE, &e), e);
    scan_of(&scan, dims, spacing, 0, 100);
    for (int k = 0; !succeeded; k++) {
        struct scene s;
        struct predictor *p = NULL;
        struct scan_result r;
        scene_open(&s, 1, 2, 1, 1);
        assert_ok(volume_new(&image, scan.dtype, dims, &scan.geometry, &e), e);
        memcpy(image.data, scan.data, volume_bytes(&scan));
        e.code = ERR_NONE;
        mem_fail_at(k, 0);
        int result = predictor_new(&p, s.dev, &s.model, &s.model, &o, &e);
        if (result == 0)
            result = predict_scan(&r, p, &recipe, NULL, &image, s.dev->pool, &e);
        succeeded = mem_count() <= k;
        mem_fail_at(-1, 0);
        if (result == 0)
            scan_result_free(&r);
        else
            assert_int_equal(e.code, ERR_MEMORY);
        assert_true(result == 0 || !succeeded);
        volume_free(&image);
        predictor_free(p);
        scene_close(&s);
        assert_true(k < 5000);
    }
    volume_free(&scan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(largest_against_flood_fill),
        cmocka_unit_test(rows_and_back),
        cmocka_unit_test(facts_round_trip),
        cmocka_unit_test(damaged_run_json),
        cmocka_unit_test(pickles_are_not_read),
        cmocka_unit_test(models_of_a_run),
        cmocka_unit_test(scans_to_predict),
        cmocka_unit_test(series_in_archives),
        cmocka_unit_test(masks_come_back_on_the_grid),
        cmocka_unit_test(masks_lie_where_the_voxels_lie),
        cmocka_unit_test(any_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, test_folder_make, test_folder_remove);
}
