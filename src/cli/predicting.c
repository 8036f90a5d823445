/* predicting.c - see predicting.h. */
#include <string.h>

#include "base/io.h"
#include "cli/predicting.h"
#include "net/selftest.h"
#include "prepare/label_box.h"

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
    return 0;
}

int predicting_is_cropped(const struct recipe *r, const struct data_case *k)
{
    return recipe_needs_label(r) && k->label;
}

const char *predicting_crop(const struct recipe *r, int is_cropped)
{
    if (strcmp(r->name, "none") == 0)
        return "as stored";
    return is_cropped ? "published (ground-truth box)" : "whole scan";
}

void predicting_note_crop(const struct config *c, const struct recipe *r, int is_cropped)
{
    if (recipe_needs_label(r))
        report_line(console_report(c), REPORT_NOTE, c->args[0], NULL,
                    "trained on boxes around the true label (%s); %s", r->name,
                    is_cropped ? "scans are cropped around their labels, as published"
                               : "whole scans are predicted");
}

int predicting_case(struct scan_result *out, struct open_run *r, const struct config *c,
                    const struct dataset *d, const struct data_case *k, struct error *e)
{
    struct volume image = {0};
    struct volume_request request = config_request(c);
    const struct recipe *recipe = &r->facts.recipe;
    struct label_box around = {.case_key = hash_bytes(k->name, strlen(k->name), 0)};
    int cropped = predicting_is_cropped(recipe, k);
    int result = dataset_load_image(&image, d, k, &request, e);
    if (result < 0)
        return -1;
    if (cropped)
        result = label_box_read(&around.box, recipe, d, k, &image, &request, r->dev->pool, e);
    if (result == 0 && (result = open_run_predict(out, r, cropped ? &around : NULL, &image, e)) < 0)
        fail_in(e, k->images[0]);
    volume_free(&image);
    return result;
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
