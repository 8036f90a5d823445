/* test_api.c - the library as another program sees it: a run is opened, asked, used, closed, and everything
 * that is wrong comes back as an error and not as a line on the terminal. Run folders are written by hand
 * around fresh networks; trained ones are opened by tests/api.sh.
 */
#include <fcntl.h>
#include <math.h>

#include "api/falx.h"
#include "base/json_write.h"
#include "base/pool.h"
#include "net/model_file.h"
#include "predict/run_folder.h"
#include "runs/runs.h"
#include "scans.h"

/* A run folder of an untrained network; special: it is to be seen mirrored, and by statistics of the scan. */
static void make_run(const char *folder, int channels, int rank, const char *recipe, int special)
{
    static char background[] = "background", organ[] = "organ";
    static char *names[] = {background, organ};
    struct run_facts f = {.patch = {16, 16, 16},
                          .channels = channels,
                          .classes = 2,
                          .class_names = names,
                          .method = "aua",
                          .mirrors = 5,
                          .tta = special,
                          .adapt = special};
    struct net_definition def = {.define = rank ? aua_define : vnet_define,
                                 .channels = channels,
                                 .classes = 2,
                                 .filters = 2,
                                 .rank = rank};
    struct device_options o = {.name = "cpu", .precision = PRECISION_F32, .threads = 1};
    struct js_out json = {0};
    struct device *dev;
    struct params *p;
    struct runs *runs;
    struct error e;
    char *text = NULL, path[200];
    assert_ok(recipe_named(&f.recipe, recipe, 0, NAN_REFUSE, &e), e);
    assert_ok(io_make_folders(folder, &e), e);
    js_out_open(&json, NULL, '{');
    run_facts_to_json(&json, &f);
    js_out_close(&json, '}');
    assert_ok(js_out_take(&text, &json, &e), e);
    snprintf(path, sizeof path, "%s/run.json", folder);
    assert_ok(io_write_all(path, 0600, text, strlen(text), &e), e);
    mem_free(text);
    assert_ok(device_open(&dev, &o, &e), e);
    assert_ok(params_new(&p, dev, &def, PARAMS_NO_GRAD, &e), e);
    params_init(p, 3, 0);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    assert_ok(model_write(path, p, &def, &e), e);
    params_free(p);
    device_close(dev);
    snprintf(path, sizeof path, "%s/metrics.sqlite", folder);
    assert_ok(runs_open(&runs, path, &e), e);
    for (int i = 1; i <= 5; i++)
        assert_ok(runs_add_step(runs, 0, i, "loss", 1.0 / i, &e), e);
    assert_ok(runs_add_validation(runs, 0, 5, 1, 0.75, &e), e);
    runs_close(runs);
}

static const double identity[3][4] = {{1, 0, 0, 0}, {0, 1, 0, 0}, {0, 0, 1, 0}};

static struct falx_image image_of(const float *voxels, int64_t x, int64_t y, int64_t z, int channels)
{
    struct falx_image image = {.voxels = voxels, .dims = {x, y, z}, .channels = channels};
    memcpy(image.affine, identity, sizeof identity);
    return image;
}

static float *noise(size_t n)
{
    float *v = mem_alloc(NULL, n, sizeof *v);
    struct rng r = rng_start(1, 0, RNG_TEST, 0);
    assert_non_null(v);
    for (size_t i = 0; i < n; i++)
        v[i] = rng_normal(&r);
    return v;
}

static void a_run_tells_about_itself(void **state)
{
    (void)state;
    struct falx_error e;
    struct falx_run *run;
    struct falx_info info;
    struct falx_curve curve;
    make_run("run", 1, 2, "none", 0);
    assert_int_equal(falx_open(&run, "run", NULL, &e), 0);
    falx_info(&info, run);
    assert_int_equal(info.channels, 1);
    assert_int_equal(info.classes, 2);
    assert_int_equal(info.patch[2], 16);
    assert_string_equal(info.method, "aua");
    assert_string_equal(falx_class_name(run, 1), "organ");
    assert_null(falx_class_name(run, 2));
    assert_null(falx_class_name(run, -1));
    assert_true(strlen(falx_version()) > 0);
    assert_int_equal(falx_metric(&curve, run, "loss", &e), 0);
    assert_int_equal(curve.n, 5);
    assert_true(curve.step[4] == 5 && curve.value[4] == 1.0 / 5);
    falx_curve_free(&curve);
    assert_int_equal(falx_metric(&curve, run, "validation", &e), 0);
    assert_true(curve.n == 1 && curve.value[0] == 0.75);
    falx_curve_free(&curve);
    assert_int_equal(falx_metric(&curve, run, "nothing of that name", &e), 0);
    assert_int_equal(curve.n, 0);
    falx_curve_free(&curve);
    falx_close(run);
    falx_close(NULL);
}

/* Memory and file give the same mask; two handles do not disturb each other. */
static void memory_and_file_agree(void **state)
{
    (void)state;
    enum { X = 20, Y = 17, Z = 9 };
    struct falx_error e;
    struct error inner;
    struct falx_run *run, *other;
    struct falx_options o = {.threads = 2, .precision = "f32", .uncertainty = 1};
    float *voxels = noise(X * Y * Z), *foreground = noise(X * Y * Z), *std = noise(X * Y * Z),
          *entropy = noise(X * Y * Z);
    uint8_t *mask = mem_alloc(NULL, X * Y * Z, 1);
    struct falx_image image = image_of(voxels, X, Y, Z, 1);
    struct falx_maps maps = {.mask = mask, .foreground = foreground, .std = std, .entropy = entropy};
    struct volume v, got;
    make_run("files", 1, 2, "none", 0);
    assert_int_equal(falx_open(&run, "files", &o, &e), 0);
    o.threads = 1;
    assert_int_equal(falx_open(&other, "files", &o, &e), 0);
    assert_int_equal(falx_predict(run, &maps, &image, &e), 0);
    for (int i = 0; i < X * Y * Z; i++)
        assert_true(mask[i] <= 1 && foreground[i] >= 0 && foreground[i] <= 1 && std[i] >= 0 &&
                    entropy[i] >= 0 && entropy[i] <= 1.00001f && (foreground[i] > 0.5f) == (mask[i] == 1));
    assert_true(maps.ambiguity > 0 && maps.ambiguity <= 1.00001);
    assert_ok(volume_new(&v, DTYPE_F32, (const int64_t[3]){X, Y, Z}, NULL, &inner), inner);
    geometry_from_affine(&v.geometry, identity);
    memcpy(v.data, voxels, sizeof *voxels * X * Y * Z);
    assert_ok(volume_write(&v, "scan.nii.gz", &inner), inner);
    assert_int_equal(falx_predict_file(other, "scan.nii.gz", "mask.nrrd", &e), 0);
    assert_ok(volume_read(&got, "mask.nrrd", NULL, &inner), inner);
    assert_int_equal(volume_voxels(&got), X * Y * Z);
    assert_memory_equal(got.data, mask, X * Y * Z);
    falx_close(run);
    falx_close(other);
    volume_free(&v);
    volume_free(&got);
    mem_free(voxels);
    mem_free(foreground);
    mem_free(std);
    mem_free(entropy);
    mem_free(mask);
}

/* [M13] A caller that rounds towards zero and flushes denormals gets the same bits, and keeps its ways. */
static void the_callers_arithmetic_changes_no_bit(void **state)
{
    (void)state;
    enum { N = 20 * 17 * 9 };
    struct falx_error e;
    float *voxels = noise(N), *maps[2] = {noise(N), noise(N)};
    struct falx_image image = image_of(voxels, 20, 17, 9, 1);
    struct falx_options o = {.threads = 2, .precision = "f32"};
    make_run("mode", 1, 0, "none", 0);
    for (int odd = 0; odd < 2; odd++) {
        struct falx_maps m = {.foreground = maps[odd]};
        struct falx_run *run;
        struct float_mode before;
        float_mode_begin(&before);
        if (odd)
            fesetround(FE_TOWARDZERO);
        int result = falx_open(&run, "mode", &o, &e);
        int mode_after_open = fegetround();
        result = result < 0 ? -1 : falx_predict(run, &m, &image, &e);
        int mode_after_predict = fegetround();
        float_mode_end(&before);
        assert_int_equal(result, 0);
        assert_true(mode_after_open == (odd ? FE_TOWARDZERO : FE_TONEAREST));
        assert_true(mode_after_predict == mode_after_open);
        falx_close(run);
    }
    assert_memory_equal(maps[0], maps[1], N * sizeof(float));
    mem_free(voxels);
    mem_free(maps[0]);
    mem_free(maps[1]);
}

static void several_channels(void **state)
{
    (void)state;
    struct falx_error e;
    struct falx_run *run;
    float *voxels = noise(2 * 16 * 16 * 18);
    uint8_t mask[16 * 16 * 18], swapped[16 * 16 * 18];
    struct falx_maps maps = {.mask = mask};
    struct falx_image image = image_of(voxels, 16, 16, 18, 2);
    make_run("two", 2, 0, "none", 0);
    assert_int_equal(falx_open(&run, "two", NULL, &e), 0);
    assert_int_equal(falx_predict(run, &maps, &image, &e), 0);
    assert_true(maps.ambiguity == 0);
    maps.mask = swapped;
    image.channels = 1;
    assert_int_equal(falx_predict(run, &maps, &image, &e), -1);
    assert_int_equal(e.code, 3);
    assert_string_equal(e.id, "L14");
    falx_close(run);
    mem_free(voxels);
}

/* Runs `errors` with stdout and stderr in a file, which must stay empty. */
static void nothing_is_printed(void (*errors)(void))
{
    fflush(stdout);
    fflush(stderr);
    int out = dup(1), err = dup(2), file = open("printed", O_RDWR | O_CREAT | O_TRUNC, 0600);
    dup2(file, 1);
    dup2(file, 2);
    errors();
    fflush(stdout);
    fflush(stderr);
    off_t bytes = lseek(file, 0, SEEK_END);
    dup2(out, 1);
    dup2(err, 2);
    close(out);
    close(err);
    close(file);
    assert_int_equal(bytes, 0);
}

static void refused(int result, const struct falx_error *e, int code, const char *id)
{
    assert_int_equal(result, -1);
    assert_int_equal(e->code, code);
    assert_string_equal(e->id, id);
    assert_true(*e->text && !strchr(e->text, '\n'));
}

static void all_errors(void)
{
    struct falx_error e;
    struct falx_run *run;
    struct falx_curve curve;
    float voxels[64] = {0};
    uint8_t mask[64];
    struct falx_maps maps = {.mask = mask}, wants_std = {.std = voxels}, wants_entropy = {.entropy = voxels};
    struct falx_image image = image_of(voxels, 4, 4, 4, 1);
    refused(falx_open(&run, "nowhere", NULL, &e), &e, 4, "Z12");
    assert_null(run);
    refused(falx_open(&run, "model.pt", NULL, &e), &e, 3, "S11");
    refused(falx_open(&run, "plain", &(struct falx_options){.precision = "f16"}, &e), &e, 2, "C01");
    refused(falx_open(&run, "plain", &(struct falx_options){.device = "abacus"}, &e), &e, 2, "C01");
    refused(falx_open(&run, "plain", &(struct falx_options){.model = "best"}, &e), &e, 3, "S10");
    refused(falx_open(&run, "plain", &(struct falx_options){.threads = 100000}, &e), &e, 2, "C02");
    refused(falx_open(&run, NULL, NULL, &e), &e, 2, "C02");
    assert_int_equal(falx_open(&run, "nowhere", NULL, NULL), -1); /* nobody asks why */
    struct falx_info info;
    falx_info(&info, NULL); /* of a run that was not opened */
    assert_true(info.classes == 0 && !*info.method && !falx_class_name(NULL, 1));
    refused(falx_predict(NULL, &maps, &image, &e), &e, 2, "C02");
    refused(falx_predict_file(NULL, "scan.nii", "out.nii", &e), &e, 2, "C02");
    refused(falx_metric(&curve, NULL, "loss", &e), &e, 2, "C02");
    falx_curve_free(NULL);
    assert_int_equal(falx_open(&run, "plain", NULL, &e), 0);
    refused(falx_predict(run, NULL, &image, &e), &e, 2, "C02");
    refused(falx_predict(run, &maps, NULL, &e), &e, 2, "C02");
    refused(falx_metric(&curve, run, NULL, &e), &e, 2, "C02");
    image.dims[1] = 0;
    refused(falx_predict(run, &wants_std, &image, &e), &e, 2, ""); /* before the image is looked at */
    refused(falx_predict(run, &wants_entropy, &image, &e), &e, 2, "");
    refused(falx_predict(run, &maps, &image, &e), &e, 3, "N01");
    image.dims[1] = INT64_MAX / 4;
    refused(falx_predict(run, &maps, &image, &e), &e, 3, "N01");
    image.dims[1] = 4;
    image.voxels = NULL;
    refused(falx_predict(run, &maps, &image, &e), &e, 3, "N01");
    image.voxels = voxels;
    voxels[5] = NAN;
    refused(falx_predict(run, &maps, &image, &e), &e, 3, "N37");
    voxels[5] = 0;
    image.affine[1][1] = NAN;
    refused(falx_predict(run, &maps, &image, &e), &e, 3, "N25");
    image.affine[1][1] = 1e-5;
    refused(falx_predict(run, &maps, &image, &e), &e, 3, "N23");
    image.affine[1][1] = 0; /* flat */
    refused(falx_predict(run, &maps, &image, &e), &e, 3, "N25");
    refused(falx_predict_file(run, "nowhere.nii", "out.nii", &e), &e, 4, "Z12");
    refused(falx_predict_file(run, NULL, "out.nii", &e), &e, 2, "C02");
    refused(falx_predict_file(run, "scan.nii", NULL, &e), &e, 2, "C02");
    struct error inner;
    assert_ok(io_write_all("scan.nii", 0666, "precious", 8, &inner), inner);
    refused(falx_predict_file(run, "scan.nii", "./scan.nii", &e), &e, 2, "O01");
    assert_int_equal(falx_predict_file(run, "nowhere.nii", "out.png", &e), -1);
    assert_false(io_exists("out.nii"));
    unlink("plain/metrics.sqlite");
    assert_int_equal(falx_metric(&curve, run, "loss", &e), -1);
    assert_true(curve.n == 0 && *e.text);
    falx_curve_free(&curve);
    falx_close(run);
}

/* Nothing said is what `falx predict` does: the run decides. */
static void a_run_has_choices(void **state)
{
    (void)state;
    enum { N = 20 * 17 * 9 };
    static const struct falx_options asked[] = {{.threads = 1},
                                                {.mirror = 1, .adapt = 1},
                                                {.mirror = -1},
                                                {.adapt = -1},
                                                {.device = "cpu", .largest = 1}};
    float *voxels = noise(N), *foreground[5];
    struct falx_image image = image_of(voxels, 20, 17, 9, 1);
    make_run("special", 1, 0, "none", 1);
    for (int i = 0; i < 5; i++) {
        struct falx_error e;
        struct falx_run *run;
        struct falx_maps maps = {.foreground = foreground[i] = noise(N)};
        assert_int_equal(falx_open(&run, "special", i ? &asked[i] : NULL, &e), 0);
        assert_int_equal(falx_predict(run, &maps, &image, &e), 0);
        assert_int_equal(memcmp(foreground[0], foreground[i], N * sizeof(float)) != 0, i == 2 || i == 3);
        falx_close(run);
    }
    for (int i = 0; i < 5; i++)
        mem_free(foreground[i]);
    mem_free(voxels);
}

static void errors_come_back(void **state)
{
    (void)state;
    make_run("plain", 1, 0, "la", 0);
    nothing_is_printed(all_errors);
}

/* [P16] No allocation of open and predict may fail without an error, or leave anything behind. */
static void any_allocation_may_fail(void **state)
{
    (void)state;
    float *voxels = noise(10 * 9 * 8);
    uint8_t mask[10 * 9 * 8];
    struct falx_image image = image_of(voxels, 10, 9, 8, 1);
    make_run("tight", 1, 0, "none", 1);
    for (int k = 0, done = 0; !done; k++) {
        struct falx_error e = {.code = 0};
        struct falx_run *run = NULL;
        struct falx_maps maps = {.mask = mask};
        struct falx_options o = {.threads = 1, .precision = "f32"};
        mem_fail_at(k, 0);
        int result = falx_open(&run, "tight", &o, &e);
        if (result == 0)
            result = falx_predict(run, &maps, &image, &e);
        done = mem_count() <= k;
        mem_fail_at(-1, 0);
        if (result < 0)
            assert_int_equal(e.code, 5);
        assert_true(result == 0 || !done);
        falx_close(run);
        assert_true(k < 5000);
    }
    mem_free(voxels);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_tells_about_itself),
        cmocka_unit_test(memory_and_file_agree),
        cmocka_unit_test(the_callers_arithmetic_changes_no_bit),
        cmocka_unit_test(several_channels),
        cmocka_unit_test(a_run_has_choices),
        cmocka_unit_test(errors_come_back),
        cmocka_unit_test(any_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, test_folder_make, test_folder_remove);
}
