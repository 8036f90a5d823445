/* dataset_load.c - the voxels of one case: channels put together, labels made into class numbers.
 *
 * Several image files become one float32 volume whose fourth axis is the channel. A single file
 * keeps its type: converting is the business of whoever needs floats.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "data/align.h"
#include "data/dataset.h"
#include "volume/resample.h"

/* Are the voxels of two grids the same places? `id_shape` and `id_place` name the fault. */
static int match(const struct dataset *d, const struct volume *a, const struct volume *b, const char *what,
                 const char *id_shape, const char *id_place, struct error *e)
{
    const int64_t *n = a->dims, *m = b->dims;
    if (n[0] != m[0] || n[1] != m[1] || n[2] != m[2])
        return fail(e, ERR_DATA, id_shape, "%lldx%lldx%lld voxels, %s has %lldx%lldx%lld", (long long)m[0],
                    (long long)m[1], (long long)m[2], what, (long long)n[0], (long long)n[1],
                    (long long)n[2]);
    if (!a->geometry.known || !b->geometry.known)
        return 0;
    double apart = geometry_distance_mm(&a->geometry, &b->geometry, n);
    if (!(apart <= d->geometry_tolerance_mm))
        return fail(e, ERR_DATA, id_place,
                    "its grid lies %.4g mm from that of %s, allowed %.4g (--geometry-tolerance)", apart, what,
                    d->geometry_tolerance_mm);
    return 0;
}

/* HDF5 has no words for an orientation, and a mask in memory has those of its scan; of the other formats
 * silence is a choice. */
static int can_state_place(const struct volume *v)
{
    return strcmp(v->format, "HDF5") != 0 && strcmp(v->format, "memory") != 0;
}

int dataset_match_label(const struct dataset *d, const struct data_case *c, const struct volume *image,
                        struct volume *label, struct error *e)
{
    int result = 0;
    if (label->data) /* who draws on a DICOM series counts its rows from above, who converts it from below */
        result = volume_turn_onto(label, image, d->geometry_tolerance_mm, e);
    if (result == 0)
        result = match(d, image, label, "the image", "L02", "L03", e);
    if (result == 0 && image->geometry.known != label->geometry.known && can_state_place(image) &&
        can_state_place(label))
        result = fail(e, ERR_DATA, "N24", "states %s orientation, the image states %s",
                      label->geometry.known ? "an" : "no", image->geometry.known ? "one" : "none");
    return result < 0 ? fail_in(e, c->label) : 0;
}

/* Channels may stand on any one axis behind the third: ITK's NIfTI has vectors on the fifth. Two such axes
 * of more than one entry are refused. */
static int as_channels(struct volume *v, struct error *e)
{
    int64_t channels = volume_channels(v);
    for (int a = 3; a < VOLUME_MAX_DIMS; a++) {
        if (v->dims[a] != 1 && v->dims[a] != channels)
            return fail(e, ERR_DATA, "N31", "%d axes; a case has three, and channels", v->n_dims);
        v->dims[a] = a == 3 ? channels : 1;
    }
    v->n_dims = 4;
    return 0;
}

/* Copies one channel file into its place in *out. What is not finite stays so: the caller's policy
 * decides. */
static int take_channel(struct volume *out, const struct volume *one, int channel, struct error *e)
{
    int64_t n = volume_voxels(one);
    float *to = (float *)out->data + n * channel;
    for (int64_t i = 0; i < n; i++) {
        double v = volume_value(one, i);
        if (isfinite(v) && fabs(v) > (double)FLT_MAX)
            return fail(e, ERR_DATA, "N20", "value %g does not fit float32", v);
        to[i] = (float)v;
    }
    return 0;
}

static int new_stack(struct volume *out, const struct volume *first, int n_channels, int header_only,
                     struct error *e)
{
    *out = *first;
    out->data = NULL;
    out->dtype = DTYPE_F32;
    out->slope = 1;
    out->inter = 0;
    out->n_dims = 4;
    out->dims[3] = n_channels;
    if (header_only)
        return 0;
    size_t n;
    if (size_mul(&n, (size_t)volume_voxels(first), (size_t)n_channels) < 0)
        return fail(e, ERR_DATA, "N09", "%d channels of this size overflow", n_channels);
    out->data = mem_alloc(e, n, sizeof(float));
    return out->data ? 0 : -1;
}

static int load_stack(struct volume *out, const struct dataset *d, const struct data_case *c,
                      const struct volume_request *r, struct error *e)
{
    int header_only = r->part == VOLUME_HEADER_ONLY;
    for (int i = 0; i < c->n_images; i++) {
        struct volume one = {0};
        int bad = volume_read(&one, c->images[i], r, e);
        if (bad == 0) {
            if (volume_channels(&one) != 1)
                bad = fail(e, ERR_DATA, "L14", "%lld volumes in one of several channel files",
                           (long long)volume_channels(&one));
            else if (i == 0)
                bad = new_stack(out, &one, c->n_images, header_only, e);
            else
                bad = match(d, out, &one, path_name(c->images[0]), "L14", "L14", e);
            if (bad == 0 && !header_only)
                bad = take_channel(out, &one, i, e);
            if (bad < 0)
                fail_in(e, c->images[i]);
        }
        volume_free(&one);
        if (bad < 0) {
            volume_free(out);
            return -1;
        }
    }
    return 0;
}

int dataset_load_image(struct volume *out, const struct dataset *d, const struct data_case *c,
                       const struct volume_request *r, struct error *e)
{
    struct volume_request request = r ? *r : (struct volume_request){0};
    request.place_unknown = c->place_unknown;
    memset(out, 0, sizeof *out);
    if (c->n_images > 1)
        return load_stack(out, d, c, &request, e);
    if (volume_read(out, c->images[0], &request, e) < 0)
        return -1;
    if (as_channels(out, e) == 0)
        return 0;
    volume_free(out);
    return fail_in(e, c->images[0]);
}

/* Stored numbers of any type -> class numbers, mapped. */
static int as_classes(struct volume *v, const struct dataset *d, struct error *e)
{
    if (volume_channels(v) != 1)
        return fail(e, ERR_DATA, "N31", "%lld volumes in one label file, expected 1",
                    (long long)volume_channels(v));
    if (v->data) {
        label_t *labels;
        if (volume_labels(&labels, NULL, v, e) < 0)
            return -1;
        label_map_apply(labels, volume_voxels(v), d->label_map, d->n_label_map);
        mem_free(v->data);
        v->data = labels;
    }
    v->dtype = DTYPE_U16;
    v->n_dims = 3;
    v->slope = 1;
    v->inter = 0;
    return 0;
}

/* Labels with axes of their own need the image to find their place. */
static int align(struct volume *label, const struct dataset *d, const struct data_case *c,
                 const struct volume_request *r, struct error *e)
{
    struct volume image;
    struct volume_request request = *r;
    request.member = NULL;
    request.report = NULL; /* whoever loads the image hears of it */
    if (!label->data)
        return 0;
    if (dataset_load_image(&image, d, c, &request, e) < 0)
        return -1;
    int result = align_label(label, &image, e);
    volume_free(&image);
    return result < 0 ? fail_in(e, c->label) : 0;
}

int dataset_load_label(struct volume *out, const struct dataset *d, const struct data_case *c,
                       const struct volume_request *r, struct error *e)
{
    struct volume_request request = r ? *r : (struct volume_request){0};
    memset(out, 0, sizeof *out);
    if (!c->label)
        return fail(e, ERR_INTERNAL, NULL, "case \"%.80s\" has no label to load", c->name);
    request.member = "label"; /* HDF5 files hold image and label */
    request.place_unknown = c->place_unknown;
    if (volume_read(out, c->label, &request, e) < 0)
        return -1;
    if (as_classes(out, d, e) < 0)
        fail_in(e, c->label);
    else if (!d->align_labels || align(out, d, c, &request, e) == 0)
        return 0;
    volume_free(out);
    return -1;
}

int dataset_highest_class(const struct dataset *d, const struct data_case *c, const struct volume *label,
                          struct error *e)
{
    const label_t *class = label->data;
    int64_t n = volume_voxels(label), x = label->dims[0], y = label->dims[1], at = -1, voxels = 0;
    int highest = 0;
    for (int64_t i = 0; i < n; i++)
        if (class[i] > highest) {
            highest = class[i];
            at = i;
            voxels = 1;
        } else if (class[i] == highest) {
            voxels++;
        }
    if (d->n_classes ? highest < d->n_classes : highest != 255)
        return highest;
    char hint[64];
    if (d->n_classes)
        snprintf(hint, sizeof hint, "allowed 0..%d", d->n_classes - 1);
    else
        snprintf(hint, sizeof hint, "not declared; see --label-map %d=1", highest);
    fail(e, ERR_DATA, "L04", "label value %d in %lld voxels, first at (%lld, %lld, %lld); %s", highest,
         (long long)voxels, (long long)(at % x), (long long)(at / x % y), (long long)(at / (x * y)), hint);
    return fail_in(e, c->label);
}
