/* open_run.c - see open_run.h. */
#include <string.h>

#include "predict/open_run.h"

static int open_models(struct open_run *r, const char *folder, const struct run_request *wanted,
                       struct error *e)
{
    if (run_model(&r->mask, folder, wanted->model, &r->facts, r->dev, e) < 0)
        return -1;
    if (!wanted->how.uncertainty)
        return 0;
    return run_uncertainty(&r->uncertainty, folder, wanted->model, &r->mask.def, &r->facts, r->dev, e);
}

static int choose(int own, int wanted)
{
    return wanted < 0 ? own : wanted;
}

int open_run(struct open_run *out, const char *folder, const struct run_request *wanted, struct error *e)
{
    memset(out, 0, sizeof *out);
    struct run_facts *f = &out->facts;
    if (device_open(&out->dev, &wanted->device, e) < 0 || run_facts_read(f, folder, e) < 0 ||
        open_models(out, folder, wanted, e) < 0)
        goto failed;
    struct predict_options o = wanted->how;
    memcpy(o.patch, f->patch, sizeof o.patch);
    if (o.stride[0] == 0)
        memcpy(o.stride, f->stride, sizeof o.stride);
    o.weight = (enum window_weight)choose(f->window_mode, wanted->window_mode);
    o.mirrors = choose(f->tta, wanted->tta) ? f->mirrors : 0;
    o.sides = f->sides;
    o.largest = choose(f->largest, wanted->largest);
    o.adapt = choose(f->adapt, wanted->adapt);
    if (predictor_new(&out->predictor, out->dev, &out->mask,
                      out->uncertainty.params ? &out->uncertainty : NULL, &o, e) == 0)
        return 0;
failed:
    open_run_close(out);
    return -1;
}

void open_run_close(struct open_run *r)
{
    predictor_free(r->predictor);
    params_free(r->mask.params);
    params_free(r->uncertainty.params);
    run_facts_free(&r->facts);
    device_close(r->dev);
    memset(r, 0, sizeof *r);
}

int open_run_predict(struct scan_result *out, struct open_run *r, const struct label_box *around,
                     struct volume *image, struct error *e)
{
    int64_t channels = volume_channels(image);
    if (channels != r->facts.channels)
        return fail(e, ERR_DATA, "L14", "%lld channel%s, the run was trained on %d", (long long)channels,
                    channels == 1 ? "" : "s", r->facts.channels);
    return predict_scan(out, r->predictor, &r->facts.recipe, around, image, r->dev->pool, e);
}
