/* predicting.c - see predicting.h. */
#include <string.h>

#include "base/io.h"
#include "cli/predicting.h"

static int asks_stop(void *arg)
{
    (void)arg;
    return stop_requested();
}

int predicting_open(struct predicting *out, const struct config *c, int uncertainty, struct error *e)
{
    const char *folder = c->args[0];
    struct device_options o = {.name = c->device, .precision = (enum precision)c->precision,
                               .threads = (int)c->threads};
    memset(out, 0, sizeof *out);
    if (device_open(&out->dev, &o, e) < 0 || run_facts_read(&out->facts, folder, e) < 0 ||
        run_model(&out->mask.params, &out->mask.def, folder, c->model, &out->facts, out->dev, e) < 0 ||
        (uncertainty && run_uncertainty(&out->uncertainty.params, &out->uncertainty.def, folder, c->model,
                                         &out->mask.def, &out->facts, out->dev, e) < 0))
        goto failed;
    struct predict_options p = {
        .patch = {out->facts.patch[0], out->facts.patch[1], out->facts.patch[2]},
        .stride = {(int)c->stride[0], (int)c->stride[1], (int)c->stride[2]},
        .weight = (enum window_weight)c->window, .mirrors = run_mirrors(&out->facts, c->tta),
        .uncertainty = uncertainty, .samples = (int)c->samples, .seed = (uint64_t)c->set.seed,
        .largest = run_choice(out->facts.largest, c->largest),
        .adapt = run_choice(out->facts.adapt, c->adapt), .probabilities = c->prob, .stop = asks_stop};
    if (predictor_new(&out->predictor, out->dev, &out->mask,
                      out->uncertainty.params ? &out->uncertainty : NULL, &p, e) < 0)
        goto failed;
    if (recipe_needs_label(&out->facts.recipe))
        report_line(console_report(c), REPORT_NOTE, folder, NULL,
                    "trained on boxes around the true label (%s); scans are searched as a whole",
                    out->facts.recipe.name);
    return 0;
failed:
    predicting_close(out);
    return -1;
}

void predicting_close(struct predicting *p)
{
    predictor_free(p->predictor);
    params_free(p->mask.params);
    params_free(p->uncertainty.params);
    run_facts_free(&p->facts);
    device_close(p->dev);
    memset(p, 0, sizeof *p);
}

int predicting_case(struct scan_result *out, struct predicting *p, const struct config *c,
                    const struct dataset *d, const struct data_case *k, struct error *e)
{
    struct volume image = {0};
    struct volume_request request = config_request(c);
    if (dataset_load_image(&image, d, k, &request, e) < 0)
        return -1;
    int result = -1;
    int64_t channels = volume_channels(&image);
    if (channels != p->facts.channels)
        fail(e, ERR_DATA, "L14", "%lld channels, the run was trained on %d", (long long)channels,
             p->facts.channels);
    else
        result = predict_scan(out, p->predictor, &p->facts.recipe, &image, p->dev->pool, e);
    volume_free(&image);
    return result < 0 ? fail_in(e, k->images[0]) : 0;
}

int predicting_write(const struct volume *v, const char *folder, const char *name, const char *suffix,
                     struct error *e)
{
    if (!v->data)
        return 0;
    char *path = mem_format(e, "%s/%s%s.nii.gz", folder, name, suffix);
    int result = path ? volume_write(v, path, e) : -1;
    mem_free(path);
    return result;
}
