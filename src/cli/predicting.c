/* predicting.c - see predicting.h. */
#include "cli/predicting.h"
#include "base/io.h"
#include "net/selftest.h"

int predicting_open(struct open_run *out, const struct config *c, int uncertainty, struct error *e)
{
    const char *folder = c->args[0];
    struct run_request wanted = {
        .device = {.name = c->device, .precision = (enum precision)c->precision, .threads = (int)c->threads},
        .model = c->model,
        .tta = c->tta,
        .largest = c->largest,
        .adapt = c->adapt,
        .window_mode = c->set.window_mode,
        .how = {.stride = {(int)c->set.stride[0], (int)c->set.stride[1], (int)c->set.stride[2]},
                .uncertainty = uncertainty,
                .samples = (int)c->samples,
                .seed = (uint64_t)c->set.seed,
                .probabilities = c->prob,
                .stop = stop_asked}};
    if (c->resume && c->force)
        return fail(e, ERR_CONFIG, "C01", "--resume keeps what is there, --force replaces it: not both");
    if (open_run(out, folder, &wanted, e) < 0)
        return -1;
    if (c->selftest && selftest_run(NULL, out->dev, e) < 0) {
        open_run_close(out);
        return -1;
    }
    if (c->nan != NAN_REFUSE)
        out->facts.recipe.nan = (enum nan_policy)c->nan;
    if (recipe_needs_label(&out->facts.recipe))
        report_line(console_report(c), REPORT_NOTE, folder, NULL,
                    "trained on boxes around the true label (%s); scans are searched as a whole",
                    out->facts.recipe.name);
    return 0;
}

int predicting_case(struct scan_result *out, struct open_run *r, const struct config *c,
                    const struct dataset *d, const struct data_case *k, struct error *e)
{
    struct volume image = {0};
    struct volume_request request = config_request(c);
    if (dataset_load_image(&image, d, k, &request, e) < 0)
        return -1;
    int result = open_run_predict(out, r, &image, e);
    volume_free(&image);
    return result < 0 ? fail_in(e, k->images[0]) : 0;
}

int predicting_skips(const struct config *c, struct error *e)
{
    if (e->code == ERR_STOPPED)
        fail(e, ERR_STOPPED, "P11", "stopped; --resume goes on");
    if (!c->skip_bad || e->code != ERR_DATA)
        return 0;
    report_line(console_report(c), REPORT_WARNING, NULL, *e->id ? e->id : NULL, "%s; case left out", e->text);
    return 1;
}

int predicting_check_output(const char *path, const struct config *c, struct error *e)
{
    if (io_check_output(path, 1, e) < 0)
        return -1;
    if (c->force || c->resume || !io_exists(path))
        return 0;
    fail(e, ERR_CONFIG, "O01", "exists; --resume keeps it and does what is missing, --force replaces it");
    return fail_in(e, path);
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
