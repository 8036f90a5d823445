/* case_store.c - reading a split into memory.
 *
 * Two passes. The first reads headers only: channel counts, and the bytes all cases will take,
 * which are reported (and refused if over the limit) before the second pass loads voxels. The
 * second pass runs one case per item of the pool; every case has an error slot of its own, and the
 * failure of the first bad case in list order is the one returned, whatever thread met it.
 */
#include "sample/case_store.h"

#include <string.h>

#include "base/io.h"

/* ---- memory ---------------------------------------------------------------------------------- */

/* Voxel indices along an axis are 32 bits, products 64: one axis may have 2^20 voxels. */
enum { CASE_MAX_EXTENT = 1 << 20 };

static size_t voxel_bytes(const struct case_store *s, enum case_kind kind)
{
    return (size_t)s->channels * sizeof(float) + (kind == CASE_LABELED ? sizeof(label_t) : 0) +
           (s->has_mask ? 1 : 0);
}

static int case_allocate(struct case_store *s, struct stored_case *c, enum case_kind kind, struct error *e)
{
    size_t voxels = case_voxels(c);
    c->image = mem_alloc(e, voxels, (size_t)s->channels * sizeof(float));
    if (!c->image)
        return -1;
    if (kind == CASE_LABELED && !(c->label = mem_alloc(e, voxels, sizeof(label_t))))
        return -1;
    if (s->has_mask && !(c->mask = mem_alloc(e, voxels, 1)))
        return -1;
    return 0;
}

static void case_release(struct stored_case *c)
{
    mem_free(c->name);
    mem_free(c->image);
    mem_free(c->label);
    mem_free(c->mask);
    mem_free(c->focus);
}

struct stored_case *case_store_add(struct case_store *s, const char *name, const int dims[3],
                                   enum case_kind kind, struct error *e)
{
    CHECK(s->channels >= 1);
    CHECK(kind == CASE_UNLABELED || s->n_labeled == s->n_cases);
    struct stored_case *grown = mem_resize(e, s->cases, (size_t)s->n_cases + 1, sizeof *grown);
    if (!grown)
        return NULL;
    s->cases = grown;
    struct stored_case *c = &grown[s->n_cases];
    *c = (struct stored_case){.dims = {dims[0], dims[1], dims[2]}, .spacing_mm = {1, 1, 1}};
    if (!(c->name = mem_string(e, name)) || case_allocate(s, c, kind, e) < 0) {
        case_release(c);
        return NULL;
    }
    s->bytes += case_voxels(c) * voxel_bytes(s, kind);
    s->n_cases++;
    s->n_labeled += kind == CASE_LABELED;
    return c;
}

void case_store_free(struct case_store *s)
{
    for (int i = 0; i < s->n_cases; i++)
        case_release(&s->cases[i]);
    mem_free(s->cases);
    memset(s, 0, sizeof *s);
}

/* ---- first pass: headers --------------------------------------------------------------------- */

struct loading {
    struct case_store *store;
    const struct dataset *set;
    const struct case_store_options *options;
    struct volume_request request;
    const struct data_case **from; /* data set case of each stored case */
    label_t *highest;              /* largest class of each case */
    struct error *error;           /* of each case; code 0 = loaded */
};

static enum case_kind kind_of(const struct case_store *s, int i)
{
    return i < s->n_labeled ? CASE_LABELED : CASE_UNLABELED;
}

/* Labelled cases of the split, then the others, each in list order. */
static int choose_cases(struct loading *l, struct error *e)
{
    const struct dataset *d = l->set;
    size_t n = (size_t)d->n_cases;
    l->store->cases = mem_alloc(e, n, sizeof *l->store->cases);
    l->from = mem_alloc(e, n, sizeof *l->from);
    l->highest = mem_alloc(e, n, sizeof *l->highest);
    l->error = mem_alloc(e, n, sizeof *l->error);
    if (!l->store->cases || !l->from || !l->highest || !l->error)
        return -1;
    for (int unlabeled = 0; unlabeled < 2; unlabeled++) {
        l->store->n_labeled = l->store->n_cases * unlabeled;
        for (int i = 0; i < d->n_cases; i++) {
            const struct data_case *c = &d->cases[i];
            if (c->split == l->options->split && (c->label == NULL) == unlabeled)
                l->from[l->store->n_cases++] = c;
        }
    }
    if (l->store->n_cases > 0)
        return 0;
    return fail(e, ERR_DATA, "L01", "%s: no %s case", d->root,
                l->options->split == SPLIT_TRAIN ? "training" : "test");
}

/* Shape and channel count of a case; the first case decides the count. */
static int take_shape(struct loading *l, int i, const struct volume *v, struct error *e)
{
    struct stored_case *c = &l->store->cases[i];
    long long channels = volume_channels(v);
    for (int a = 0; a < 3; a++) {
        if (v->dims[a] > CASE_MAX_EXTENT)
            return fail(e, ERR_DATA, NULL, "axis %d has %lld voxels, allowed %d", a, (long long)v->dims[a],
                        CASE_MAX_EXTENT);
        c->dims[a] = (int)v->dims[a];
        c->spacing_mm[a] = v->geometry.spacing_mm[a];
    }
    if (l->store->channels == 0 && channels < CASE_MAX_EXTENT)
        l->store->channels = (int)channels;
    if (channels != l->store->channels)
        return fail(e, ERR_DATA, "L14", "%lld channels, but %s has %d", channels, l->from[0]->name,
                    l->store->channels);
    return 0;
}

/* Measures every case, adds up the memory, reports it and compares it with the limit. */
static int measure_cases(struct loading *l, struct error *e)
{
    struct case_store *s = l->store;
    struct volume_request header = l->request;
    header.part = VOLUME_HEADER_ONLY;
    for (int i = 0; i < s->n_cases; i++) {
        struct volume v;
        size_t bytes;
        if (dataset_load_image(&v, l->set, l->from[i], &header, e) < 0)
            return -1;
        int bad = take_shape(l, i, &v, e);
        volume_free(&v);
        if (bad)
            return fail_in(e, l->from[i]->images[0]);
        if (size_mul(&bytes, case_voxels(&s->cases[i]), voxel_bytes(s, kind_of(s, i))) < 0 ||
            size_add(&s->bytes, s->bytes, bytes) < 0)
            return fail(e, ERR_MEMORY, NULL, "%s: the cases do not fit into memory", l->set->root);
    }
    double gib = (double)s->bytes / 1073741824.0;
    report_line(l->options->report, REPORT_NOTE, l->set->root, NULL,
                "%d cases (%d labelled, %d unlabelled), %d channel%s: %.2f GiB in memory", s->n_cases,
                s->n_labeled, s->n_cases - s->n_labeled, s->channels, s->channels == 1 ? "" : "s", gib);
    if (l->options->limit_bytes && s->bytes > l->options->limit_bytes)
        return fail(e, ERR_MEMORY, NULL, "%s: the cases need %.2f GiB of memory, allowed %.2f", l->set->root,
                    gib, (double)l->options->limit_bytes / 1073741824.0);
    return 0;
}

/* ---- second pass: voxels --------------------------------------------------------------------- */

static int load_image(struct loading *l, int i, const struct volume *v, struct error *e)
{
    struct stored_case *c = &l->store->cases[i];
    size_t step = (size_t)l->store->channels * sizeof(float);
    for (int t = 0; t < l->store->channels; t++) {
        float *channel;
        if (volume_floats(&channel, v, t, l->options->nan, e) < 0)
            return fail_in(e, l->from[i]->images[0]);
        voxels_to_rows(c->image + t, step, channel, sizeof(float), c->dims);
        mem_free(channel);
    }
    return 0;
}

static int load_label(struct loading *l, int i, const struct volume *image, struct error *e)
{
    const struct data_case *from = l->from[i];
    struct stored_case *c = &l->store->cases[i];
    struct volume v;
    if (dataset_load_label(&v, l->set, from, &l->request, e) < 0)
        return -1;
    int highest = -1;
    if (dataset_match_label(l->set, from, image, &v, e) == 0)
        highest = dataset_highest_class(l->set, from, &v, e);
    if (highest >= 0) {
        voxels_to_rows(c->label, sizeof(label_t), v.data, sizeof(label_t), c->dims);
        l->highest[i] = (label_t)highest;
    }
    volume_free(&v);
    return highest < 0 ? -1 : 0;
}

/* A mask that comes with the case. */
static int read_mask(struct stored_case *c, const char *path, const struct volume_request *r, struct error *e)
{
    struct volume v;
    if (volume_read(&v, path, r, e) < 0)
        return -1;
    int fits = v.dtype == DTYPE_U8;
    for (int a = 0; a < 3; a++)
        fits &= v.dims[a] == c->dims[a];
    if (fits)
        voxels_to_rows(c->mask, 1, v.data, 1, c->dims);
    volume_free(&v);
    for (size_t at = 0; at < case_voxels(c); at++)
        c->mask[at] = c->mask[at] != 0;
    if (fits)
        return 0;
    fail(e, ERR_DATA, "L02", "a mask must be uint8 and have the image's shape");
    return fail_in(e, path);
}

/* The one that `falx prepare` kept. 1: there is one, 0: there is none, -1. */
static int prepared_mask(struct loading *l, int i, struct error *e)
{
    char *path = mem_format(e, "%s/masks/%s.nii.gz", l->set->root, l->from[i]->name);
    int kept = path ? io_find(path, e) : -1;
    if (kept == 1 && read_mask(&l->store->cases[i], path, &l->request, e) < 0)
        kept = -1;
    mem_free(path);
    return kept;
}

/* The data set "mask" of a research h5, as AUA's authors keep it. 1, 0 or -1 as above. */
static int h5_mask(struct loading *l, int i, struct error *e)
{
    struct volume_request request = l->request;
    struct error why = {.code = ERR_NONE};
    request.member = "mask";
    request.report = NULL; /* reported with the image */
    if (read_mask(&l->store->cases[i], l->from[i]->images[0], &request, &why) == 0)
        return 1;
    if (strcmp(why.id, "H02") == 0)
        return 0;
    *e = why;
    return -1;
}

static int load_mask(struct loading *l, int i, struct error *e)
{
    struct stored_case *c = &l->store->cases[i];
    size_t n = case_voxels(c), step = (size_t)l->store->channels;
    int field = l->options->mask == CASE_MASK_FIELD;
    int kept = !field                              ? 0
               : l->set->layout == LAYOUT_PREPARED ? prepared_mask(l, i, e)
               : l->set->layout == LAYOUT_H5       ? h5_mask(l, i, e)
                                                   : 0;
    if (kept)
        return kept < 0 ? -1 : 0;
    float darkest = c->image[0];
    for (size_t v = 0; v < n; v++)
        if (c->image[v * step] < darkest)
            darkest = c->image[v * step];
    for (size_t v = 0; v < n; v++)
        c->mask[v] = !field || c->image[v * step] > darkest;
    return 0;
}

/* The shape is taken again, from the volume itself: a file may have changed since. */
static void load_case(void *arg, int64_t item)
{
    struct loading *l = arg;
    int i = (int)item;
    struct stored_case *c = &l->store->cases[i];
    struct error *e = &l->error[i];
    struct volume image;
    if (dataset_load_image(&image, l->set, l->from[i], &l->request, e) < 0)
        return;
    if (take_shape(l, i, &image, e) < 0)
        fail_in(e, l->from[i]->images[0]);
    else if ((c->name = mem_string(e, l->from[i]->name)) &&
             case_allocate(l->store, c, kind_of(l->store, i), e) == 0 && load_image(l, i, &image, e) == 0 &&
             (!c->label || load_label(l, i, &image, e) == 0) && c->mask)
        (void)load_mask(l, i, e);
    volume_free(&image);
}

static int load_cases(struct loading *l, struct error *e)
{
    struct case_store *s = l->store;
    pool_run(l->options->pool, s->n_cases, load_case, l);
    s->n_classes = l->set->n_classes;
    for (int i = 0; i < s->n_cases; i++) {
        if (l->error[i].code != ERR_NONE) {
            if (e)
                *e = l->error[i];
            return -1;
        }
        if (l->highest[i] >= s->n_classes)
            s->n_classes = l->highest[i] + 1;
    }
    return 0;
}

int case_store_load(struct case_store *out, const struct dataset *d, const struct case_store_options *o,
                    struct error *e)
{
    struct loading l = {.store = out, .set = d, .options = o};
    memset(out, 0, sizeof *out);
    out->has_mask = o->mask != CASE_MASK_NONE;
    if (o->request)
        l.request = *o->request;
    l.request.report = NULL; /* it has no lock; `falx check` tells warnings */
    int result = choose_cases(&l, e);
    if (result == 0)
        result = measure_cases(&l, e);
    if (result == 0)
        result = load_cases(&l, e);
    mem_free(l.from);
    mem_free(l.highest);
    mem_free(l.error);
    if (result < 0)
        case_store_free(out);
    return result;
}
