/* verb_eval.c - `falx eval TRUTH PREDICTION`: scores masks against the truth, case by case.
 *
 *   match files by name -> check all headers -> per case: read both, score, draw -> print
 *
 * Nothing is scored until every pair has been matched and has agreeing grids; all problems are
 * told, one line each, and nothing is written then. The truth's file gives the spacing. Memory is
 * that of one case.
 */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/io.h"
#include "cli/eval.h"
#include "data/dataset.h"
#include "score/picture.h"
#include "volume/resample.h"

struct eval {
    const struct config *c;
    struct report *report;
    struct volume_request request; /* how masks are read */
    struct pool *pool;
    struct pairs pairs;
    struct metric_options options;
    int (*map)[2]; /* label map: n_map pairs of value read and class */
    int n_map;
    struct case_score *cases;
    int n_cases;
};

/* ---- checking ------------------------------------------------------------------------------ */

/* The one volume to score. */
static int choose_volume(struct volume *v, const struct config *c, struct error *e)
{
    if (c->volume >= 0)
        return keep_volume(v, c->volume, e);
    if (volume_channels(v) == 1)
        return 0;
    return fail(e, ERR_DATA, "N31", "4-D image with %lld volumes; choose one with --volume",
                (long long)volume_channels(v));
}

static int check_grids(const struct volume *truth, const struct volume *prediction, double tolerance_mm,
                       struct error *e)
{
    const int64_t *t = truth->dims, *p = prediction->dims;
    int axis[3], flip[3];
    if (volume_find_turn(axis, flip, prediction, truth, tolerance_mm) == 1)
        return 0; /* the same voxels in another order: turned when they are read */
    if (memcmp(t, p, 3 * sizeof *t) != 0)
        return fail(e, ERR_DATA, "L02", "%lld x %lld x %lld voxels, the truth has %lld x %lld x %lld",
                    (long long)p[0], (long long)p[1], (long long)p[2], (long long)t[0], (long long)t[1],
                    (long long)t[2]);
    if (!truth->geometry.known || !prediction->geometry.known)
        return 0; /* a file that states no position cannot contradict one */
    double off = geometry_distance_mm(&truth->geometry, &prediction->geometry, t);
    if (!(off <= tolerance_mm))
        return fail(e, ERR_DATA, "L03",
                    "grid lies up to %g mm off the truth's, allowed %g (--geometry-tolerance)", off,
                    tolerance_mm);
    return 0;
}

static int read_header(struct volume *out, const char *path, const struct eval *v, struct error *e)
{
    struct volume_request r = v->request;
    r.part = VOLUME_HEADER_ONLY;
    r.report = NULL; /* warnings come with the voxels */
    if (volume_read(out, path, &r, e) < 0)
        return -1;
    return choose_volume(out, v->c, e) < 0 ? fail_in(e, path) : 0;
}

static int check_pair(const struct pair *p, const struct eval *v, struct error *e)
{
    struct volume truth = {0}, prediction = {0};
    int result = -1;
    if (read_header(&truth, p->truth, v, e) < 0 || read_header(&prediction, p->prediction, v, e) < 0)
        goto out;
    result = check_grids(&truth, &prediction, v->c->geometry_tolerance_mm, e);
    if (result < 0)
        fail_in(e, p->prediction);
out:
    volume_free(&truth);
    volume_free(&prediction);
    return result;
}

/* Names of the maps of uncertainty, in the order of the words of --map. */
static const char *const map_names[] = {NULL, "std", "entropy"};

/* NAME.png of the masks, NAME_std.png of a map. */
static char *picture_path(const struct eval *v, const struct pair *p, const char *map, struct error *e)
{
    return mem_format(e, "%s/%s%s%s.png", v->c->pictures, p->name, map ? "_" : "", map ? map : "");
}

/* The map that `falx predict --uncertainty` put beside the mask, called after it. */
static char *map_path(const struct eval *v, const struct pair *p, struct error *e)
{
    const char *name = path_name(p->prediction);
    int n = (int)((size_t)(name - p->prediction) + stem_length(name));
    return mem_format(e, "%.*s_%s.nii.gz", n, p->prediction, map_names[v->c->map]);
}

/* Even --force does not write over what is scored or drawn. */
static int check_spares(const char *path, const struct eval *v, const struct pair *p, struct error *e)
{
    char *map = v->c->map ? map_path(v, p, e) : NULL;
    if (v->c->map && !map)
        return -1;
    int is_read = io_is_same(path, p->truth) || io_is_same(path, p->prediction) ||
                  (p->image && io_is_same(path, p->image)) || (map && io_is_same(path, map));
    mem_free(map);
    if (!is_read)
        return 0;
    fail(e, ERR_CONFIG, "O01", "this is read to score case \"%.80s\", and would be replaced", p->name);
    return fail_in(e, path);
}

static int check_picture(const struct eval *v, const struct pair *p, const char *map, struct error *e)
{
    char *path = picture_path(v, p, map, e);
    int result = path ? check_spares(path, v, p, e) : -1;
    if (result == 0)
        result = io_check_output(path, v->c->force, e);
    mem_free(path);
    return result;
}

static int check_csv(const struct eval *v, struct error *e)
{
    for (int i = 0; i < v->pairs.n; i++)
        if (check_spares(v->c->csv, v, &v->pairs.pair[i], e) < 0)
            return -1;
    return io_check_output(v->c->csv, v->c->force, e);
}

/* Output that is already there is found before an hour of work, not after. */
static int check_output(const struct eval *v, struct error *e)
{
    if (v->c->csv && check_csv(v, e) < 0)
        return -1;
    if (!v->c->pictures || !io_is_folder(v->c->pictures))
        return 0; /* the folder is made later */
    for (int i = 0; i < v->pairs.n; i++)
        if (check_picture(v, &v->pairs.pair[i], NULL, e) < 0 ||
            (v->c->map && check_picture(v, &v->pairs.pair[i], map_names[v->c->map], e) < 0))
            return -1;
    return 0;
}

/* Tells every problem; returns the number of them, with the first one's code in *code. */
static int check_pairs(const struct eval *v, enum error_code *code)
{
    int n = v->pairs.n_missing;
    *code = n ? ERR_DATA : ERR_NONE;
    for (int i = 0; i < v->pairs.n; i++) {
        struct error e;
        if (check_pair(&v->pairs.pair[i], v, &e) == 0)
            continue;
        complain(&e);
        *code = n++ ? *code : e.code;
    }
    return n;
}

/* ---- one case ------------------------------------------------------------------------------ */

/* Passes lines on without touching the listener's counters: two readers may speak at the same time.
 */
struct relay {
    struct report report;
    struct report *to;
};

static void relay_line(struct report *r, enum report_kind kind, const char *text)
{
    struct report *to = ((struct relay *)r)->to;
    to->line(to, kind, text);
}

struct mask {
    const struct eval *eval;
    const char *path;
    struct volume volume; /* its voxels are dropped once the labels are there */
    label_t *labels;
    struct error e;
    int result;
};

static void load_mask(void *arg, int64_t i)
{
    struct mask *m = (struct mask *)arg + i;
    struct relay relay = {{.line = relay_line}, m->eval->report};
    struct volume_request r = m->eval->request;
    r.report = &relay.report;
    m->result = volume_read(&m->volume, m->path, &r, &m->e);
    if (m->result < 0)
        return;
    m->result = choose_volume(&m->volume, m->eval->c, &m->e);
    if (m->result == 0)
        m->result = volume_labels(&m->labels, NULL, &m->volume, &m->e);
    if (m->result < 0)
        fail_in(&m->e, m->path);
    mem_free(m->volume.data);
    m->volume.data = NULL;
    if (m->result == 0)
        label_map_apply(m->labels, volume_voxels(&m->volume), m->eval->map, m->eval->n_map);
}

/* Voxels in another order than the truth's are put into that. */
static int turn_mask(struct mask *m, const struct mask *truth, struct error *e)
{
    m->volume.data = m->labels;
    m->volume.dtype = DTYPE_U16;
    int result = volume_turn_onto(&m->volume, &truth->volume, m->eval->c->geometry_tolerance_mm, e);
    m->labels = m->volume.data;
    m->volume.data = NULL;
    return result;
}

static int load_image(float **out, const struct eval *v, const char *path, const struct mask *truth,
                      struct error *e)
{
    struct volume image = {0};
    struct volume_request r = config_request(v->c);
    int result = -1;
    if (volume_read(&image, path, &r, e) < 0)
        return -1;
    if (volume_turn_onto(&image, &truth->volume, v->c->geometry_tolerance_mm, e) < 0)
        goto out;
    if (memcmp(image.dims, truth->volume.dims, 3 * sizeof *image.dims) != 0)
        fail(e, ERR_DATA, "L02", "image of another shape than the truth");
    else
        result = volume_floats(out, &image, 0, NAN_ZERO, e);
out:
    if (result < 0)
        fail_in(e, path);
    volume_free(&image);
    return result;
}

static int load_map(float **out, const struct eval *v, const struct pair *p, const struct mask *truth,
                    struct error *e)
{
    char *path = map_path(v, p, e);
    int result = path ? load_image(out, v, path, truth, e) : -1;
    mem_free(path);
    return result;
}

/* The case's name and its two best-known scores, as far as they are defined. */
static char *picture_title(const struct eval *v, const struct pair *p, const struct case_score *score,
                           struct error *e)
{
    double mean[METRIC_COUNT];
    metrics_case_mean(mean, score);
    if (isnan(mean[METRIC_DICE]))
        return mem_format(e, "%s   empty", p->name);
    if (isnan(mean[METRIC_HD95]))
        return mem_format(e, "%s   Dice %.3f", p->name, mean[METRIC_DICE]);
    return mem_format(e, "%s   Dice %.3f   95HD %.2f %s", p->name, mean[METRIC_DICE], mean[METRIC_HD95],
                      v->options.protocol == METRIC_PROTOCOL_PAPER ? "voxels" : "mm");
}

static int draw_sheet(const struct eval *v, const struct pair *p, const struct sheet *s, const char *map,
                      struct error *e)
{
    struct picture picture = {0};
    char *path = picture_path(v, p, map, e);
    int result = path ? picture_draw_sheet(&picture, s, e) : -1;
    if (result == 0)
        result = picture_write(&picture, path, e);
    picture_free(&picture);
    mem_free(path);
    return result;
}

static int draw_case(const struct eval *v, const struct pair *p, const struct case_score *score,
                     const struct mask mask[2], struct error *e)
{
    struct sheet s = {
        .geometry = &mask[0].volume.geometry, .truth = mask[0].labels, .prediction = mask[1].labels};
    const char *map = map_names[v->c->map];
    float *image = NULL, *heat = NULL;
    int result = -1;
    memcpy(s.dims, mask[0].volume.dims, sizeof s.dims);
    char *title = picture_title(v, p, score, e);
    if (!title || (p->image && load_image(&image, v, p->image, &mask[0], e) < 0) ||
        (map && load_map(&heat, v, p, &mask[0], e) < 0))
        goto out;
    s.title = title;
    s.image = image;
    result = draw_sheet(v, p, &s, NULL, e);
    s.heat = heat;
    s.heat_name = map;
    if (result == 0 && map)
        result = draw_sheet(v, p, &s, map, e);
out:
    mem_free(image);
    mem_free(heat);
    mem_free(title);
    return result;
}

static int score_case(struct eval *v, const struct pair *p, struct error *e)
{
    struct mask mask[2] = {{.eval = v, .path = p->truth}, {.eval = v, .path = p->prediction}};
    struct case_score *score = &v->cases[v->n_cases];
    int result = -1;
    pool_run(v->pool, 2, load_mask, mask);
    for (int i = 0; i < 2; i++)
        if (mask[i].result < 0) {
            *e = mask[i].e;
            goto out;
        }
    if (turn_mask(&mask[1], &mask[0], e) < 0)
        goto out;
    struct label_pair pair = {mask[0].labels, mask[1].labels, mask[0].volume.dims,
                              mask[0].volume.geometry.spacing_mm};
    if (metrics_measure(score, &pair, &v->options, v->pool, e) < 0) {
        fail_in(e, p->truth);
        goto out;
    }
    v->n_cases++;
    score->name = mem_string(e, p->name);
    if (!score->name || (v->c->pictures && draw_case(v, p, score, mask, e) < 0))
        goto out;
    result = 0;
out:
    for (int i = 0; i < 2; i++) {
        mem_free(mask[i].labels);
        volume_free(&mask[i].volume);
    }
    return result;
}

/* ---- the verb ------------------------------------------------------------------------------ */

/* Told before the other argument decides whether this one had to be a folder. */
static int check_is_there(const char *path, struct error *e)
{
    errno = ENOENT; /* unless the look at it says otherwise */
    if (io_exists(path))
        return 0;
    fail_errno(e, errno, "cannot open");
    return fail_in(e, path);
}

static int eval_begin(struct eval *v, struct error *e)
{
    const struct config *c = v->c;
    v->report = console_report(c);
    v->request = config_request(c);
    if (!c->member) /* an HDF5 file of the research layout keeps masks under this name */
        v->request.member = "label";
    v->options.protocol = (enum metric_protocol)c->protocol;
    v->options.nsd_tolerance = c->nsd_tolerance;
    if (label_map_parse(&v->map, &v->n_map, c->label_map, e) < 0)
        return -1;
    if (check_is_there(c->args[0], e) < 0 || check_is_there(c->args[1], e) < 0)
        return -1;
    if (eval_pairs_find(&v->pairs, c, v->report, e) < 0)
        return -1;
    v->cases = mem_alloc(e, (size_t)v->pairs.n, sizeof *v->cases);
    return v->cases ? 0 : -1;
}

static int score_all(struct eval *v, struct error *e)
{
    struct progress *progress = progress_begin(v->c, "eval", v->pairs.n);
    int result = 0;
    for (int i = 0; result == 0 && i < v->pairs.n; i++) {
        result = score_case(v, &v->pairs.pair[i], e);
        progress_at(progress, i + 1);
    }
    progress_end(progress);
    return result;
}

/* Position of the first class that only truths hold, or only predictions; -1: there is none. */
static int lone_class(const struct eval *v, int of_truths)
{
    for (int k = 0; k < v->cases[0].n_classes; k++) {
        int64_t n_own = 0, n_other = 0;
        for (int i = 0; i < v->n_cases; i++) {
            const struct class_score *s = &v->cases[i].classes[k];
            n_own += of_truths ? s->n_truth : s->n_prediction;
            n_other += of_truths ? s->n_prediction : s->n_truth;
        }
        if (n_own > 0 && n_other == 0)
            return k;
    }
    return -1;
}

/* An organ that is 255 in the truths and 1 in the predictions scores 0 everywhere: nothing else shows why. */
static void warn_of_numbers(const struct eval *v)
{
    int truth = lone_class(v, 1), prediction = lone_class(v, 0);
    if (truth < 0 || prediction < 0)
        return;
    int from = v->cases[0].classes[truth].class, to = v->cases[0].classes[prediction].class;
    report_line(v->report, REPORT_WARNING, NULL, "L04",
                "class %d is in truths only and class %d in predictions only; if they are one, use "
                "--label-map %d=%d",
                from, to, from, to);
}

/* Returns the exit code. */
static int eval_print(const struct eval *v)
{
    struct error e;
    warn_of_numbers(v);
    if (v->c->csv && eval_write_csv(v->c->csv, v->cases, v->n_cases, &v->options, &e) < 0)
        return complain(&e);
    if (v->c->json)
        return eval_print_json(v->cases, v->n_cases, &v->options);
    eval_print_table(v->cases, v->n_cases, &v->options);
    return 0;
}

static void eval_end(struct eval *v)
{
    for (int i = 0; i < v->n_cases; i++)
        case_score_free(&v->cases[i]);
    mem_free(v->cases);
    mem_free(v->map);
    eval_pairs_free(&v->pairs);
    pool_free(v->pool);
}

int verb_eval(struct config *c)
{
    struct eval v = {.c = c};
    struct error e = {.code = ERR_NONE};
    enum error_code problem = ERR_NONE;
    size_t missing = c->pictures ? io_missing(c->pictures) : 0;
    int code;
    if (eval_begin(&v, &e) < 0 || check_output(&v, &e) < 0)
        code = complain(&e);
    else if (check_pairs(&v, &problem) > 0)
        code = (int)problem; /* told one by one */
    else if (pool_new(&v.pool, (int)c->threads, &e) < 0 ||
             (c->pictures && io_make_folders(c->pictures, &e) < 0) || score_all(&v, &e) < 0 ||
             metrics_align(v.cases, v.n_cases, &v.options, &e) < 0)
        code = complain(&e);
    else
        code = eval_print(&v);
    if (code && missing)
        io_remove_empty(c->pictures, missing); /* made for nothing */
    eval_end(&v);
    return code;
}
