/* falx.c - the public functions over predict/ and runs/. See falx.h. */
#include "api/falx.h"

#include <string.h>

#include "base/io.h"
#include "base/pool.h"
#include "base/version.h"
#include "predict/open_run.h"
#include "runs/runs.h"

struct falx_run {
    char *folder;
    int uncertainty; /* maps of it were asked for */
    struct open_run open;
};

const char *falx_version(void)
{
    return FALX_VERSION;
}

/* Hands an inner error out; returns -1. */
static int told(struct falx_error *to, const struct error *e)
{
    if (to) {
        to->code = (int)e->code;
        memcpy(to->id, e->id, sizeof to->id);
        memcpy(to->text, e->text, sizeof to->text);
    }
    return -1;
}
_Static_assert(sizeof(((struct falx_error *)0)->text) == sizeof(((struct error *)0)->text), "same text");

/* What must be there: a run that was never opened, or whose opening failed, is NULL. */
static int need(const void *argument, const char *what, struct error *e)
{
    return argument ? 0 : fail(e, ERR_CONFIG, "C02", "no %s was given", what);
}

static int precision_of(enum precision *out, const char *name, struct error *e)
{
    for (int p = PRECISION_AUTO; p <= PRECISION_TF32; p++)
        if (strcmp(name ? name : "auto", precision_name((enum precision)p)) == 0) {
            *out = (enum precision)p;
            return 0;
        }
    return fail(e, ERR_CONFIG, "C01", "precision \"%.20s\", allowed auto|f32|bf16|tf32", name);
}

_Static_assert((int)FALX_MOST_THREADS == (int)POOL_MOST_THREADS, "the library takes as many as falx");

static int check_request(const char *folder, const struct falx_options *o, struct error *e)
{
    if (need(folder, "folder of a run", e) < 0)
        return -1;
    if (o->threads < 0 || o->threads > FALX_MOST_THREADS)
        return fail(e, ERR_CONFIG, "C02", "threads=%d, allowed 0..%d", o->threads, FALX_MOST_THREADS);
    return 0;
}

/* From a flag of falx.h to one of open_run.h. */
static int choice(int flag)
{
    return flag > 0 ? 1 : flag < 0 ? 0 : -1;
}

int falx_open(struct falx_run **out, const char *folder, const struct falx_options *o, struct falx_error *e)
{
    static const struct falx_options none = {0};
    struct error inner = {.code = ERR_NONE};
    struct falx_run *r = mem_alloc(&inner, 1, sizeof *r);
    struct float_mode callers;
    *out = NULL;
    o = o ? o : &none;
    struct run_request wanted = {.device = {.name = o->device ? o->device : "auto", .threads = o->threads},
                                 .model = o->model ? o->model : "final",
                                 .tta = choice(o->mirror),
                                 .largest = choice(o->largest),
                                 .adapt = choice(o->adapt),
                                 .window_mode = -1,
                                 .how = {.uncertainty = o->uncertainty, .seed = 1337, .probabilities = 1}};
    float_mode_begin(&callers);
    if (!r || check_request(folder, o, &inner) < 0 ||
        precision_of(&wanted.device.precision, o->precision, &inner) < 0 ||
        !(r->folder = mem_string(&inner, folder)) || open_run(&r->open, folder, &wanted, &inner) < 0)
        goto failed;
    r->uncertainty = o->uncertainty;
    *out = r;
    float_mode_end(&callers);
    return 0;
failed:
    float_mode_end(&callers);
    falx_close(r);
    return told(e, &inner);
}

void falx_close(struct falx_run *run)
{
    if (!run)
        return;
    open_run_close(&run->open);
    mem_free(run->folder);
    mem_free(run);
}

void falx_info(struct falx_info *out, const struct falx_run *run)
{
    static const struct run_facts none;
    const struct run_facts *f = run ? &run->open.facts : &none;
    *out = (struct falx_info){.channels = f->channels,
                              .classes = f->classes,
                              .patch = {f->patch[0], f->patch[1], f->patch[2]},
                              .method = f->method};
}

const char *falx_class_name(const struct falx_run *run, int i)
{
    const struct run_facts *f = run ? &run->open.facts : NULL;
    return f && f->class_names && i >= 0 && i < f->classes ? f->class_names[i] : NULL;
}

/* ---- predicting --------------------------------------------------------------------------------- */

/* The caller's voxels as a volume of our own. */
static int copy_image(struct volume *out, const struct falx_image *image, struct error *e)
{
    size_t n;
    struct geometry g;
    double inverse[3][4];
    if (!image->voxels || image->channels < 1 || image->dims[0] < 1 || image->dims[1] < 1 ||
        image->dims[2] < 1 || size_mul(&n, (size_t)image->dims[0], (size_t)image->dims[1]) < 0 ||
        size_mul(&n, n, (size_t)image->dims[2]) < 0 || size_mul(&n, n, (size_t)image->channels) < 0 ||
        n > (size_t)1 << 40)
        return fail(e, ERR_DATA, "N01", "image without voxels, or of an impossible shape");
    if (affine_invert(inverse, image->affine) < 0)
        return fail(e, ERR_DATA, "N25", "the affine of the image is singular or not finite");
    int64_t dims[3] = {image->dims[0], image->dims[1], image->dims[2] * image->channels};
    geometry_from_affine(&g, image->affine);
    for (int a = 0; a < 3; a++)
        if (!(g.spacing_mm[a] >= 1e-4 && g.spacing_mm[a] <= 1e4)) /* as of files */
            return fail(e, ERR_DATA, "N23", "spacing[%d]=%g mm, allowed 1e-4..1e4", a + 1, g.spacing_mm[a]);
    if (volume_new(out, DTYPE_F32, dims, &g, e) < 0)
        return -1;
    out->dims[2] = image->dims[2];
    out->dims[3] = image->channels;
    out->n_dims = image->channels > 1 ? 4 : 3;
    memcpy(out->data, image->voxels, n * sizeof(float));
    return 0;
}

/* Can all of these be made? Asked before a minute is spent on the others. */
static int check_maps(const struct falx_maps *m, const struct falx_run *run, struct error *e)
{
    if (m->entropy && !run->uncertainty)
        return fail(e, ERR_CONFIG, NULL, "entropy: the run was not opened with uncertainty");
    if (m->std && !run->open.uncertainty.params)
        return fail(e, ERR_CONFIG, NULL, "std: the run was not opened with uncertainty, or has none (%s)",
                    run->open.facts.method);
    return 0;
}

static void give(void *to, const struct volume *from, size_t each)
{
    if (to)
        memcpy(to, from->data, (size_t)volume_voxels(from) * each);
}

int falx_predict(struct falx_run *run, struct falx_maps *maps, const struct falx_image *image,
                 struct falx_error *e)
{
    struct error inner = {.code = ERR_NONE};
    struct volume v = {0};
    struct scan_result r = {0};
    struct float_mode callers;
    int result = -1;
    float_mode_begin(&callers);
    if (need(run, "open run", &inner) == 0 && need(maps, "struct of maps", &inner) == 0 &&
        need(image, "image", &inner) == 0 && check_maps(maps, run, &inner) == 0 &&
        copy_image(&v, image, &inner) == 0 && open_run_predict(&r, &run->open, NULL, &v, &inner) == 0) {
        give(maps->mask, &r.label, 1);
        give(maps->foreground, &r.foreground, sizeof(float));
        give(maps->std, &r.std, sizeof(float));
        give(maps->entropy, &r.entropy, sizeof(float));
        result = 0;
    }
    float_mode_end(&callers);
    if (maps)
        maps->ambiguity = r.ambiguity;
    volume_free(&v);
    scan_result_free(&r);
    return result < 0 ? told(e, &inner) : 0;
}

/* A mask in the place of its scan would be the end of the scan. */
static int check_files(const char *in, const char *out, struct error *e)
{
    if (need(in, "input file", e) < 0 || need(out, "output file", e) < 0 || volume_can_write(out, e) < 0)
        return -1;
    if (!io_is_same(in, out))
        return 0;
    fail(e, ERR_CONFIG, "O01", "this is the scan to predict, and would be replaced");
    return fail_in(e, out);
}

int falx_predict_file(struct falx_run *run, const char *in, const char *out, struct falx_error *e)
{
    struct error inner = {.code = ERR_NONE};
    struct volume v = {0};
    struct scan_result r = {0};
    struct float_mode callers;
    int result = -1;
    float_mode_begin(&callers);
    if (need(run, "open run", &inner) == 0 && check_files(in, out, &inner) == 0 &&
        volume_read(&v, in, NULL, &inner) == 0 && open_run_predict(&r, &run->open, NULL, &v, &inner) == 0)
        result = volume_write(&r.label, out, &inner);
    float_mode_end(&callers);
    volume_free(&v);
    scan_result_free(&r);
    return result < 0 ? told(e, &inner) : 0;
}

/* ---- metrics ------------------------------------------------------------------------------------ */

int falx_metric(struct falx_curve *out, const struct falx_run *run, const char *name, struct falx_error *e)
{
    struct error inner = {.code = ERR_NONE};
    struct runs *runs = NULL;
    struct runs_curve curve = {0};
    int given = need(run, "open run", &inner) == 0 && need(name, "name of a metric", &inner) == 0;
    char *path = given ? path_join(&inner, run->folder, "metrics.sqlite") : NULL;
    int result = path ? runs_open_reading(&runs, path, &inner) : -1;
    if (result == 0)
        result = strcmp(name, "validation") == 0 ? runs_validation(&curve, runs, &inner)
                                                 : runs_curve(&curve, runs, name, &inner);
    *out = (struct falx_curve){curve.n, curve.phase, curve.step, curve.value};
    runs_close(runs);
    mem_free(path);
    return result < 0 ? told(e, &inner) : 0;
}

void falx_curve_free(struct falx_curve *c)
{
    if (!c)
        return;
    mem_free(c->phase);
    mem_free(c->step);
    mem_free(c->value);
    memset(c, 0, sizeof *c);
}
