/* predict_scan.c - see predict_scan.h. */
#include <string.h>

#include "predict/predict_scan.h"

void scan_result_free(struct scan_result *r)
{
    volume_free(&r->label);
    volume_free(&r->foreground);
    volume_free(&r->std);
    volume_free(&r->entropy);
    memset(r, 0, sizeof *r);
}

/* The prepared image as rows of channels, (d, h, w, c); frees the volume. */
static int take_rows(float **rows, int dims[3], struct volume *image, enum nan_policy nan, struct error *e)
{
    int64_t channels = volume_channels(image);
    for (int a = 0; a < 3; a++)
        dims[a] = (int)image->dims[a];
    *rows = mem_alloc(e, (size_t)volume_voxels(image) * (size_t)channels, sizeof(float));
    for (int64_t t = 0; *rows && t < channels; t++) {
        float *channel;
        if (volume_floats(&channel, image, t, nan, e) < 0) {
            mem_free(*rows);
            *rows = NULL;
            break;
        }
        voxels_to_rows(*rows + t, (size_t)channels * sizeof(float), channel, sizeof(float), dims);
        mem_free(channel);
    }
    volume_free(image);
    return *rows ? 0 : -1;
}

/* One array of the prediction, given up, as a volume on the original grid. */
static int map_back(struct volume *out, void *rows, enum dtype dtype, const struct prepared_transform *t,
                    struct pool *pool, struct error *e)
{
    struct volume v = {0};
    int dims[3] = {(int)t->crop_dims[0], (int)t->crop_dims[1], (int)t->crop_dims[2]};
    size_t each = dtype == DTYPE_F32 ? sizeof(float) : sizeof(label_t);
    int result = volume_new(&v, dtype, t->crop_dims, NULL, e);
    if (result == 0)
        voxels_from_rows(v.data, rows, each, each, dims);
    mem_free(rows);
    if (result == 0)
        result = prepare_map_back(out, &v, t, pool, e);
    volume_free(&v);
    return result;
}

/* Masks of fewer than 257 classes are stored in bytes. */
static int narrow(struct volume *v, struct error *e)
{
    struct volume small;
    int64_t n = volume_voxels(v);
    if (volume_new(&small, DTYPE_U8, v->dims, &v->geometry, e) < 0)
        return -1;
    for (int64_t i = 0; i < n; i++)
        ((uint8_t *)small.data)[i] = (uint8_t)((label_t *)v->data)[i];
    volume_free(v);
    *v = small;
    return 0;
}

int predict_scan(struct scan_result *out, struct predictor *p, const struct recipe *recipe,
                 const struct label_box *around, struct volume *image, struct pool *pool, struct error *e)
{
    struct prepared ready = {0};
    struct prediction got = {0};
    float *rows = NULL;
    int dims[3], result = -1;
    memset(out, 0, sizeof *out);
    struct recipe r = around ? *recipe : recipe_without_label(recipe);
    int begun = prepare_begin(&ready, &r, image, NULL, around ? &around->box : NULL, e);
    volume_free(image);
    if (begun < 0 || prepare_end(&ready, &r, around ? around->case_key : 0, pool, e) < 0 ||
        take_rows(&rows, dims, &ready.image, r.nan, e) < 0 || predict_array(&got, p, rows, dims, e) < 0)
        goto out;
    mem_free(rows);
    rows = NULL;
    out->ambiguity = got.ambiguity;
    struct {
        struct volume *to;
        void *rows;
        enum dtype type;
    } parts[] = {{&out->label, got.label, DTYPE_U16},
                 {&out->foreground, got.foreground, DTYPE_F32},
                 {&out->std, got.std, DTYPE_F32},
                 {&out->entropy, got.entropy, DTYPE_F32}};
    memset(&got, 0, sizeof got);
    result = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (result == 0 && parts[i].rows)
            result = map_back(parts[i].to, parts[i].rows, parts[i].type, &ready.transform, pool, e);
        else
            mem_free(parts[i].rows);
    }
    if (result == 0)
        result = narrow(&out->label, e);
out:
    mem_free(rows);
    prediction_free(&got);
    prepared_free(&ready);
    if (result < 0)
        scan_result_free(out);
    return result;
}
