/* compare_cell.c - one run of a comparison, in a process of its own: train, predict, score.
 * See compare_int.h.
 *
 *     falx train (resumed, if it was begun) -> each held-out case: mask -> metrics -> RUN/result.json
 *
 * Everything goes through the functions of `falx train`, `predict` and `eval`. result.json is written last
 * and whole: a run without it is not finished, and going on costs at most the prediction once more. Masks
 * stay in RUN/masks; checkpoints, which nobody needs any longer, go.
 */
#include <math.h>
#include <string.h>
#include <sys/resource.h>

#include "base/io.h"
#include "base/json.h"
#include "cli/compare_int.h"
#include "cli/eval.h"
#include "cli/predicting.h"
#include "cli/train_data.h"
#include "report/svg.h"

struct cell_run {
    const struct plan *plan;
    const struct plan_cell *cell;
    struct config predict; /* of `falx predict` for this run; all of it is borrowed */
    struct case_score *cases;
    int n_cases;
    double *ambiguity; /* (n_cases); NULL: this method has none */
    double seconds_case;
    struct metric_options options;
    const char *crop; /* what masks cover */
    char precision[8], processor[96];
    double parameters;
    struct js_out o; /* result.json in the making */
};

static void run_done(struct cell_run *r)
{
    for (int i = 0; i < r->n_cases; i++)
        case_score_free(&r->cases[i]);
    mem_free(r->cases);
    mem_free(r->ambiguity);
    mem_free(r->o.text);
    memset(r, 0, sizeof *r);
}

static void describe(struct cell_run *r, const struct device *dev)
{
    snprintf(r->precision, sizeof r->precision, "%s", precision_name(dev->precision));
    snprintf(r->processor, sizeof r->processor, "%.*s", device_kind_length(dev), dev->describe);
}

/* ---- predicting and scoring ------------------------------------------------------------------------ */

/* How this comparison predicts: what compare shares with `falx predict`. What it shares with `falx train`,
 * too, follows the run: a spec may have changed it. */
static void predict_config(struct config *out, const struct plan_cell *cell, const struct config *c,
                           char **run)
{
    *out = *c; /* borrows all strings; only args are its own */
    *run = cell->run;
    out->verb = VERB_PREDICT;
    out->args = run;
    out->n_args = 1;
    out->tta = out->largest = out->adapt = out->set.window_mode = -1;
    memset(out->set.stride, 0, sizeof out->set.stride);
}

/* Scores a mask on the grid of its scan. */
static int score(struct case_score *out, const struct cell_run *r, const struct data_case *k,
                 const struct volume *mask, struct pool *pool, struct error *e)
{
    const struct plan *p = r->plan;
    struct volume truth = {0};
    struct volume_request request = config_request(p->c);
    label_t *want = NULL, *got = NULL;
    int result = -1;
    request.report = NULL;
    if (plan_truth(&truth, p, k, mask, &request, e) < 0)
        return -1;
    if (volume_labels(&want, NULL, &truth, e) == 0 && volume_labels(&got, NULL, mask, e) == 0) {
        struct label_pair pair = {want, got, truth.dims, truth.geometry.spacing_mm};
        result = metrics_measure(out, &pair, &r->options, pool, e);
    }
    mem_free(want);
    mem_free(got);
    volume_free(&truth);
    return result;
}

/* What masks of the held-out cases cover: by the recipe of their preparation, or else by the run's. */
static int find_crop(struct cell_run *r, const struct recipe *recipe, struct error *e)
{
    const struct dataset *held = &r->plan->held;
    struct prepare_summary done = {.recipe = *recipe};
    if (held->layout == LAYOUT_PREPARED && train_read_summary(&done, held, e) < 0)
        return -1;
    int cropped = predicting_is_cropped(&done.recipe, &held->cases[0]); /* all of them show their labels */
    if (!r->crop)                                                       /* once a run */
        predicting_note_crop(&r->predict, recipe, cropped);
    r->crop = predicting_crop(&done.recipe, cropped);
    return 0;
}

/* Scans that are prepared already are predicted as they are. */
static int open_cell(struct open_run *p, struct cell_run *r, int uncertainty, struct error *e)
{
    if (predicting_open(p, &r->predict, uncertainty, e) < 0 || find_crop(r, &p->facts.recipe, e) < 0)
        return -1;
    if (r->plan->held.layout != LAYOUT_PREPARED)
        return 0;
    return recipe_named(&p->facts.recipe, "none", 0, (enum nan_policy)r->plan->c->nan, e);
}

static int predict_case(struct cell_run *r, struct open_run *p, const struct data_case *k, const char *masks,
                        struct error *e)
{
    struct scan_result scan = {0};
    double start = clock_seconds();
    int result = predicting_case(&scan, p, &r->predict, &r->plan->held, k, e);
    r->seconds_case += clock_seconds() - start;
    if (result == 0)
        result = predicting_write(&scan.label, masks, k->name, "", e);
    if (result == 0)
        result = score(&r->cases[r->n_cases], r, k, &scan.label, p->dev->pool, e);
    if (result == 0)
        r->cases[r->n_cases++].name = mem_string(e, k->name);
    scan_result_free(&scan);
    return result < 0 || !r->cases[r->n_cases - 1].name ? -1 : 0;
}

int compare_masks_folder(char **out, const struct plan_cell *cell, struct error *e)
{
    *out = path_join(e, cell->run, "masks");
    if (!*out || io_make_folders(*out, e) < 0 || io_sweep(cell->run, e) < 0)
        return -1;
    return io_sweep(*out, e);
}

static int predict_all(struct cell_run *r, struct error *e)
{
    const struct dataset *held = &r->plan->held;
    struct open_run p = {0};
    char *masks = NULL;
    int result = compare_masks_folder(&masks, r->cell, e);
    r->cases = mem_alloc(e, (size_t)held->n_cases, sizeof *r->cases);
    if (result < 0 || !r->cases || open_cell(&p, r, 0, e) < 0) {
        open_run_close(&p);
        mem_free(masks);
        return -1;
    }
    describe(r, p.dev);
    r->parameters = (double)p.mask.params->trainable_count;
    struct progress *line = progress_begin(r->plan->c, "predicting", held->n_cases);
    for (int i = 0; i < held->n_cases && result == 0; i++) {
        result = predict_case(r, &p, &held->cases[i], masks, e);
        progress_at(line, i + 1);
    }
    progress_end(line);
    r->seconds_case /= held->n_cases;
    if (result == 0)
        result = compare_features(&r->o, r->plan, &p, e);
    open_run_close(&p);
    mem_free(masks);
    return result < 0 ? -1 : metrics_align(r->cases, r->n_cases, &r->options, e);
}

/* One score a case of how unsure the network is. A pass of its own, so that the time of masks is that of
 * masks; only for networks with a distribution of logits. */
static int ask_ambiguity(struct cell_run *r, struct error *e)
{
    const struct dataset *held = &r->plan->held;
    struct open_run p = {0};
    int result = open_cell(&p, r, 1, e);
    if (result == 0 && p.uncertainty.params) {
        r->ambiguity = mem_alloc(e, (size_t)held->n_cases, sizeof *r->ambiguity);
        result = r->ambiguity ? 0 : -1;
        for (int i = 0; i < held->n_cases && result == 0; i++) {
            struct scan_result scan = {0};
            result = predicting_case(&scan, &p, &r->predict, held, &held->cases[i], e);
            r->ambiguity[i] = scan.ambiguity;
            scan_result_free(&scan);
        }
    }
    open_run_close(&p);
    return result;
}

/* ---- what is told ---------------------------------------------------------------------------------- */

static void fact_to_json(struct js_out *o, struct runs *store, const char *key)
{
    struct error ignored;
    char *text = NULL;
    double value = NAN;
    if (!store || runs_fact(&text, store, key, &ignored) < 0 || !text || parse_real(&value, text) < 0)
        value = NAN;
    mem_free(text);
    js_out_real(o, key, value);
}

static void cost_to_json(struct js_out *o, const struct cell_run *r, struct runs *store)
{
    struct error ignored;
    struct rusage usage;
    char *device = NULL;
    double peak = 0;
    js_out_open(o, "cost", '{');
    js_out_real(o, "parameters", r->parameters);
    fact_to_json(o, store, "seconds");
    fact_to_json(o, store, "steps");
    fact_to_json(o, store, "planned_bytes");
    js_out_real(o, "seconds_case", r->seconds_case);
    if (store && runs_fact(&device, store, "device_peak_bytes", &ignored) == 0 && device)
        peak = parse_real(&peak, device) < 0 ? 0 : peak;
    mem_free(device);
    if (peak == 0 && getrusage(RUSAGE_SELF, &usage) == 0)
        peak = 1024.0 * (double)usage.ru_maxrss;
    js_out_real(o, "peak_bytes", peak);
    js_out_close(o, '}');
}

/* Where each phase begins if steps are counted over all of them. */
static void find_starts(double start[REPORT_PHASES + 1], const struct runs_curve *c)
{
    double length[REPORT_PHASES] = {0};
    for (int i = 0; i < c->n; i++)
        if (c->phase[i] >= 0 && c->phase[i] < REPORT_PHASES)
            length[c->phase[i]] = fmax(length[c->phase[i]], (double)c->step[i]);
    start[0] = 0;
    for (int i = 0; i < REPORT_PHASES; i++)
        start[i + 1] = start[i] + length[i];
}

/* What a curve has in one phase, thinned for a chart; nothing if it is zero throughout. */
static void phase_to_json(struct js_out *o, const struct runs_curve *c, int phase, double start, double *step)
{
    double x[SVG_MAX_POINTS], y[SVG_MAX_POINTS];
    int first = 0, n = 0, told = 0;
    while (first < c->n && c->phase[first] != phase)
        first++;
    for (; first + n < c->n && c->phase[first + n] == phase; n++) {
        step[n] = start + (double)c->step[first + n];
        told |= c->value[first + n] != 0;
    }
    if (!told)
        return;
    struct svg_series s = {.x = step, .y = c->value + first, .n = n};
    n = svg_thin(x, y, &s);
    js_out_open(o, NULL, '{');
    js_out_reals(o, "step", x, n);
    js_out_reals(o, "value", y, n);
    js_out_close(o, '}');
}

static void curve_to_json(struct js_out *o, const char *name, const struct runs_curve *c, const double *start,
                          struct error *e)
{
    double *step = mem_alloc(e, (size_t)c->n + 1, sizeof *step);
    js_out_open(o, name, '[');
    for (int phase = 0; step && phase < REPORT_PHASES; phase++)
        phase_to_json(o, c, phase, start[phase], step);
    js_out_close(o, ']');
    mem_free(step);
}

static void curves_to_json(struct js_out *o, struct runs *store, struct error *e)
{
    struct runs_curve loss = {0}, validation = {0};
    double start[REPORT_PHASES + 1];
    js_out_open(o, "curves", '{');
    if (store && runs_curve(&loss, store, "loss", e) == 0 && runs_validation(&validation, store, e) == 0) {
        find_starts(start, &loss);
        curve_to_json(o, "loss", &loss, start, e);
        curve_to_json(o, "validation", &validation, start, e);
    }
    runs_curve_free(&loss);
    runs_curve_free(&validation);
    js_out_close(o, '}');
}

static int write_result(const struct plan_cell *cell, struct js_out *o, struct error *e)
{
    int made = io_make_folders(cell->run, e) == 0;
    return js_out_write(o, made ? cell->result : NULL, 0666, e);
}

static int tell_result(struct cell_run *r, struct error *e)
{
    const struct plan_cell *cell = r->cell;
    const struct plan_view *v = &r->plan->views[cell->view];
    struct checkpoint_facts facts;
    struct runs *store = NULL;
    struct js_out *o = &r->o;
    char *path = path_join(e, cell->run, "metrics.sqlite");
    if (!path || plan_facts(&facts, r->plan, cell, e) < 0) {
        mem_free(path);
        return -1;
    }
    if (runs_open_reading(&store, path, e) < 0)
        store = NULL; /* a run whose store was lost still has its scores */
    mem_free(path);
    js_out_text(o, "falx", FALX_VERSION);
    js_out_text(o, "name", cell->name);
    js_out_text(o, "error", NULL);
    js_out_text(o, "spec", cell->spec);
    js_out_int(o, "seed", cell->seed);
    js_out_int(o, "labeled", v->n_labeled);
    js_out_int(o, "unlabeled", v->n_unlabeled);
    js_out_text(o, "precision_used", r->precision);
    js_out_text(o, "processor", r->processor);
    js_out_text(o, "crop", r->crop);
    js_out_open(o, "settings", '{');
    for (int i = 0; i < facts.n; i++)
        js_out_text(o, facts.fact[i].key + strlen("run."), facts.fact[i].value);
    js_out_close(o, '}');
    cost_to_json(o, r, store);
    curves_to_json(o, store, e);
    if (r->ambiguity)
        js_out_reals(o, "ambiguity", r->ambiguity, r->n_cases);
    eval_to_json(o, "scores", r->cases, r->n_cases, &r->options);
    js_out_close(o, '}');
    runs_close(store);
    return write_result(cell, o, e);
}

int compare_cell_failed(const struct plan_cell *cell, const char *why, struct error *e)
{
    struct js_out o = {0};
    js_out_open(&o, NULL, '{');
    js_out_text(&o, "falx", FALX_VERSION);
    js_out_text(&o, "name", cell->name);
    js_out_text(&o, "error", why);
    js_out_close(&o, '}');
    return write_result(cell, &o, e);
}

/* ---- the run --------------------------------------------------------------------------------------- */

/* Returns the exit code of training. */
static int train(const struct plan *p, const struct plan_cell *cell, struct error *e)
{
    struct config c;
    struct pool *pool = NULL;
    char *begun = path_join(e, cell->run, "run.json");
    if (!begun || plan_train_config(&c, cell, e) < 0) {
        mem_free(begun);
        return complain(e);
    }
    int result = pool_new(&pool, (int)p->c->threads, e);
    if (result == 0)
        result = plan_view_ready(p, &p->views[cell->view], &c, 0, pool, e);
    pool_free(pool);
    c.resume = io_exists(begun);
    mem_free(begun);
    int code = result < 0 ? complain(e) : verb_train(&c);
    config_free(&c);
    return code;
}

static void remove_checkpoints(const struct plan_cell *cell)
{
    static const char *const names[] = {"checkpoint-a.safetensors", "checkpoint-b.safetensors"};
    for (int i = 0; i < 2; i++) {
        char *path = path_join(NULL, cell->run, names[i]);
        if (path)
            io->unlink(path);
        mem_free(path);
    }
}

int compare_cell(const struct plan *p, const struct plan_cell *cell)
{
    struct error e = {.code = ERR_NONE};
    struct compare_run done;
    char *run;
    int found = plan_result(&done, p, cell, cell->result, &e);
    int finished = found == 1 && !done.error;
    compare_run_free(&done);
    if (found < 0 || finished)
        return found < 0 ? complain(&e) : 0;
    int code = train(p, cell, &e);
    if (code)
        return code;
    struct cell_run r = {
        .plan = p,
        .cell = cell,
        .options = {.protocol = (enum metric_protocol)p->c->protocol, .nsd_tolerance = p->c->nsd_tolerance}};
    predict_config(&r.predict, cell, p->c, &run);
    js_out_open(&r.o, NULL, '{');
    int result = predict_all(&r, &e);
    if (result == 0)
        result = ask_ambiguity(&r, &e);
    if (result == 0)
        result = tell_result(&r, &e);
    if (result == 0)
        remove_checkpoints(cell);
    run_done(&r);
    return result < 0 ? complain(&e) : 0;
}
