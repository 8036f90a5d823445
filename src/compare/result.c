/* result.c - reads what a run of a comparison left: result.json. See compare.h.
 *
 *     { "name": "aua-L13-s1337", "error": null, "cost": {...}, "curves": { "loss": [{...}] },
 *       "ambiguity": [...], "scores": { what `falx eval --json` prints } }
 *
 * The file may have come from another machine or been edited: all of it is checked or ignored.
 */
#include <string.h>

#include "base/json.h"
#include "compare/compare.h"
#include "report/svg.h"

enum { MAX_POINTS = 5000 }; /* of a picture of features: more would be a blot */

static int text_of(char **out, const struct js *v, struct error *e)
{
    const char *text = js_text(v);
    *out = text ? mem_string(e, text) : NULL;
    return text && !*out ? -1 : 0;
}

static void read_cost(struct compare_cost *out, const struct js *json)
{
    *out = (struct compare_cost){.parameters = js_number(js_get(json, "parameters")),
                                 .seconds = js_number(js_get(json, "seconds")),
                                 .steps = js_number(js_get(json, "steps")),
                                 .seconds_case = js_number(js_get(json, "seconds_case")),
                                 .planned_bytes = js_number(js_get(json, "planned_bytes")),
                                 .peak_bytes = js_number(js_get(json, "peak_bytes"))};
}

static int read_curve(struct compare_curve *out, const struct js *json, struct error *e)
{
    const struct js *step = js_get(json, "step"), *value = js_get(json, "value");
    int n = js_count(step);
    if (n == 0 || n != js_count(value) || n > SVG_MAX_POINTS)
        return 0;
    if (!(out->step = mem_alloc(e, (size_t)n, sizeof *out->step)) ||
        !(out->value = mem_alloc(e, (size_t)n, sizeof *out->value)))
        return -1;
    for (int i = 0; i < n; i++) {
        out->step[i] = js_number(js_at(step, i));
        out->value[i] = js_number(js_at(value, i));
    }
    out->n = n;
    return 0;
}

/* One curve a phase. */
static int read_curves(struct compare_curve out[REPORT_PHASES], const struct js *json, struct error *e)
{
    for (int i = 0; i < js_count(json) && i < REPORT_PHASES; i++)
        if (read_curve(&out[i], js_at(json, i), e) < 0)
            return -1;
    return 0;
}

static int read_features(struct compare_features *out, const struct js *json, struct error *e)
{
    const struct js *x = js_get(json, "x"), *y = js_get(json, "y"), *class = js_get(json, "class");
    int n = js_count(x);
    if (n == 0 || n > MAX_POINTS || n != js_count(y) || n != js_count(class))
        return 0;
    if (!(out->x = mem_alloc(e, (size_t)n, sizeof *out->x)) ||
        !(out->y = mem_alloc(e, (size_t)n, sizeof *out->y)) ||
        !(out->class = mem_alloc(e, (size_t)n, sizeof *out->class)))
        return -1;
    for (int i = 0; i < n; i++) {
        int64_t number;
        out->x[i] = js_number(js_at(x, i));
        out->y[i] = js_number(js_at(y, i));
        out->class[i] = js_int(&number, js_at(class, i)) == 0 && number > 0 && number < 256 ? (int)number : 0;
    }
    out->apart = js_number(js_get(json, "apart"));
    out->explained = js_number(js_get(json, "explained"));
    out->n = n;
    return 0;
}

static int read_values(struct compare_run *r, const struct js *json, struct error *e)
{
    const struct js *cases = js_get(js_get(json, "scores"), "cases"), *ambiguity = js_get(json, "ambiguity");
    int n = r->scores.n_cases;
    if (!(r->value = mem_alloc(e, (size_t)n, sizeof *r->value)) ||
        (js_count(ambiguity) == n && !(r->ambiguity = mem_alloc(e, (size_t)n, sizeof *r->ambiguity))))
        return -1;
    for (int i = 0; i < n; i++) {
        const struct js *mean = js_get(js_at(cases, i), "mean");
        for (int m = 0; m < REPORT_METRICS; m++)
            r->value[i][m] = js_number(js_get(mean, metric_name(report_metric[m])));
        if (r->ambiguity)
            r->ambiguity[i] = js_number(js_at(ambiguity, i));
    }
    return 0;
}

static int read_all(struct compare_run *r, const struct js *json, struct error *e)
{
    if (text_of(&r->name, js_get(json, "name"), e) < 0 || text_of(&r->error, js_get(json, "error"), e) < 0 ||
        text_of(&r->precision, js_get(json, "precision_used"), e) < 0 ||
        text_of(&r->processor, js_get(json, "processor"), e) < 0 ||
        text_of(&r->crop, js_get(json, "crop"), e) < 0)
        return -1;
    if (!r->name)
        return fail(e, ERR_DATA, "C01", "no result of falx compare");
    if (r->error)
        return 0;
    read_cost(&r->cost, js_get(json, "cost"));
    if (report_scores_of(&r->scores, js_get(json, "scores"), e) < 0 || read_values(r, json, e) < 0 ||
        read_features(&r->features, js_get(json, "features"), e) < 0 ||
        read_curves(r->loss, js_get(js_get(json, "curves"), "loss"), e) < 0 ||
        read_curves(r->validation, js_get(js_get(json, "curves"), "validation"), e) < 0)
        return -1;
    return 0;
}

int compare_run_read(struct compare_run *out, const char *path, struct error *e)
{
    struct js *json = NULL;
    memset(out, 0, sizeof *out);
    if (js_read_file(&json, path, e) < 0)
        return -1;
    int result = read_all(out, json, e);
    if (result < 0) {
        fail_in(e, path);
        compare_run_free(out);
    }
    js_free(json);
    return result;
}

void compare_run_free(struct compare_run *r)
{
    mem_free(r->name);
    mem_free(r->error);
    mem_free(r->precision);
    mem_free(r->processor);
    mem_free(r->crop);
    report_scores_free(&r->scores);
    mem_free(r->value);
    mem_free(r->ambiguity);
    mem_free(r->features.x);
    mem_free(r->features.y);
    mem_free(r->features.class);
    for (int i = 0; i < REPORT_PHASES; i++) {
        mem_free(r->loss[i].step);
        mem_free(r->loss[i].value);
        mem_free(r->validation[i].step);
        mem_free(r->validation[i].value);
    }
    memset(r, 0, sizeof *r);
}
