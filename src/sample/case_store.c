/* case_store.c - reading a split into memory.
 *
 * Two passes. The first reads headers only: shapes, channel counts, and the bytes all cases will
 * take, which are reported (and refused if over the limit) before the second pass loads voxels.
 * The second pass runs one case per item of the pool; every case has an error slot of its own, and
 * the failure of the first bad case in list order is the one returned, whatever thread met it.
 */
#include "sample/case_store.h"

#include <limits.h>
#include <string.h>

/* ---- shapes and memory ----------------------------------------------------------------------- */

/* 32-bit voxel indices along an axis, 64-bit products: one axis of a case may have 2^20 voxels. */
enum { CASE_MAX_EXTENT = 1 << 20 };

/* Bytes of one case; -1 on overflow. */
static int case_bytes(size_t *out, const int dims[3], int channels, enum case_kind kind,
                      int has_mask)
{
    size_t voxel = (size_t)channels * sizeof(float) + (kind == CASE_LABELED ? sizeof(label_t) : 0)
                 + (has_mask ? 1 : 0);
    size_t n = voxel;
    for (int a = 0; a < 3; a++)
        if (size_mul(&n, n, (size_t)dims[a]) < 0) return -1;
    *out = n;
    return 0;
}

static size_t case_voxels(const struct stored_case *c)
{
    return (size_t)c->dims[0] * (size_t)c->dims[1] * (size_t)c->dims[2];
}

static int case_allocate(struct case_store *s, struct stored_case *c, enum case_kind kind,
                         struct error *e)
{
    size_t n;
    if (case_bytes(&n, c->dims, s->channels, kind, s->has_mask) < 0)
        return fail(e, ERR_MEMORY, NULL, "case %s: %d x %d x %d voxels overflow the address space",
                    c->name, c->dims[0], c->dims[1], c->dims[2]);
    size_t voxels = case_voxels(c);
    c->image = mem_alloc(e, voxels, (size_t)s->channels * sizeof(float));
    if (!c->image) return -1;
    if (kind == CASE_LABELED && !(c->label = mem_alloc(e, voxels, sizeof(label_t)))) return -1;
    if (s->has_mask && !(c->mask = mem_alloc(e, voxels, 1))) return -1;
    return 0;
}

static void case_release(struct stored_case *c)
{
    mem_free(c->name);
    mem_free(c->image);
    mem_free(c->label);
    mem_free(c->mask);
}

struct stored_case *case_store_add(struct case_store *s, const char *name, const int dims[3],
                                   enum case_kind kind, struct error *e)
{
    CHECK(s->channels >= 1);
    CHECK(kind == CASE_UNLABELED || s->n_labeled == s->n_cases);
    struct stored_case *grown = mem_resize(e, s->cases, (size_t)s->n_cases + 1, sizeof *grown);
    if (!grown) return NULL;
    s->cases = grown;
    struct stored_case *c = &grown[s->n_cases];
    memset(c, 0, sizeof *c);
    for (int a = 0; a < 3; a++) {
        CHECK(dims[a] >= 1 && dims[a] <= CASE_MAX_EXTENT);
        c->dims[a] = dims[a];
        c->spacing_mm[a] = 1;
    }
    if (!(c->name = mem_string(e, name)) || case_allocate(s, c, kind, e) < 0) {
        case_release(c);
        return NULL;
    }
    size_t bytes = 0;
    (void)case_bytes(&bytes, dims, s->channels, kind, s->has_mask);
    s->bytes += bytes;
    s->n_cases++;
    if (kind == CASE_LABELED) s->n_labeled++;
    return c;
}

void case_store_free(struct case_store *s)
{
    if (!s) return;
    for (int i = 0; i < s->n_cases; i++) case_release(&s->cases[i]);
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

/* Labelled cases of the split, then the others, each in list order. */
static int choose_cases(struct loading *l, struct error *e)
{
    const struct dataset *d = l->set;
    l->from = mem_alloc(e, (size_t)d->n_cases, sizeof *l->from);
    l->store->cases = mem_alloc(e, (size_t)d->n_cases, sizeof *l->store->cases);
    if (!l->from || !l->store->cases) return -1;
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < d->n_cases; i++) {
            const struct data_case *c = &d->cases[i];
            if (c->split != l->options->split || (c->label == NULL) != (pass == 1)) continue;
            l->from[l->store->n_cases++] = c;
        }
        if (pass == 0) l->store->n_labeled = l->store->n_cases;
    }
    if (l->store->n_cases == 0)
        return fail(e, ERR_DATA, "L01", "%s: no %s case", d->root,
                    l->options->split == SPLIT_TRAIN ? "training" : "test");
    return 0;
}

/* Shape and channel count of one case from the header of its first file. */
static int measure_case(struct loading *l, int i, struct error *e)
{
    const struct data_case *from = l->from[i];
    struct stored_case *c = &l->store->cases[i];
    struct volume_request r = l->request;
    struct volume v = {0};
    r.part = VOLUME_HEADER_ONLY;
    if (volume_read(&v, from->images[0], &r, e) < 0) return -1;
    int64_t channels = from->n_images > 1 ? from->n_images : volume_channels(&v);
    int result = -1;
    for (int a = 0; a < 3; a++) {
        if (v.dims[a] > CASE_MAX_EXTENT) {
            fail(e, ERR_DATA, NULL, "axis %d has %lld voxels, allowed %d", a, (long long)v.dims[a],
                 CASE_MAX_EXTENT);
            fail_in(e, from->images[0]);
            goto out;
        }
        c->dims[a] = (int)v.dims[a];
        c->spacing_mm[a] = v.geometry.spacing_mm[a];
    }
    if (i == 0) l->store->channels = channels > INT_MAX ? INT_MAX : (int)channels;
    if (channels != l->store->channels) {
        fail(e, ERR_DATA, "L14", "%lld channels, but %s has %d", (long long)channels,
             l->from[0]->name, l->store->channels);
        fail_in(e, from->images[0]);
        goto out;
    }
    if (!(c->name = mem_string(e, from->name))) goto out;
    result = 0;
out:
    volume_free(&v);
    return result;
}

static enum case_kind kind_of(const struct case_store *s, int i)
{
    return i < s->n_labeled ? CASE_LABELED : CASE_UNLABELED;
}

/* Measures every case, adds up the memory, reports it and compares it with the limit. */
static int measure_cases(struct loading *l, struct error *e)
{
    struct case_store *s = l->store;
    for (int i = 0; i < s->n_cases; i++) {
        size_t bytes;
        if (measure_case(l, i, e) < 0) return -1;
        if (case_bytes(&bytes, s->cases[i].dims, s->channels, kind_of(s, i), s->has_mask) < 0
            || size_add(&s->bytes, s->bytes, bytes) < 0)
            return fail(e, ERR_MEMORY, NULL, "%s: the cases do not fit into memory", l->set->root);
    }
    double gib = (double)s->bytes / 1073741824.0;
    report_line(l->options->report, REPORT_NOTE, l->set->root, NULL,
                "%d cases (%d labelled, %d unlabelled), %d channel%s: %.2f GiB in memory",
                s->n_cases, s->n_labeled, s->n_cases - s->n_labeled, s->channels,
                s->channels == 1 ? "" : "s", gib);
    if (l->options->limit_bytes && s->bytes > l->options->limit_bytes)
        return fail(e, ERR_MEMORY, NULL, "%s: the cases need %.2f GiB of memory, allowed %.2f",
                    l->set->root, gib, (double)l->options->limit_bytes / 1073741824.0);
    return 0;
}

/* ---- second pass: voxels --------------------------------------------------------------------- */

/* Planes are turned in tiles of this edge, so that both sides stay in the first-level cache. */
enum { TILE = 16 };

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* One channel, first axis fastest, into channel t of (d, h, w, c). */
static void turn_channel(float *out, const float *in, const int n[3], int channels, int t)
{
    for (int j = 0; j < n[1]; j++)
        for (int i0 = 0; i0 < n[0]; i0 += TILE)
            for (int k0 = 0; k0 < n[2]; k0 += TILE)
                for (int i = i0; i < least(i0 + TILE, n[0]); i++)
                    for (int k = k0; k < least(k0 + TILE, n[2]); k++)
                        out[(((size_t)i * (size_t)n[1] + (size_t)j) * (size_t)n[2] + (size_t)k)
                                * (size_t)channels + (size_t)t] =
                            in[(size_t)i + (size_t)n[0] * ((size_t)j + (size_t)n[1] * (size_t)k)];
}

static void turn_label(label_t *out, const label_t *in, const int n[3])
{
    for (int j = 0; j < n[1]; j++)
        for (int i0 = 0; i0 < n[0]; i0 += TILE)
            for (int k0 = 0; k0 < n[2]; k0 += TILE)
                for (int i = i0; i < least(i0 + TILE, n[0]); i++)
                    for (int k = k0; k < least(k0 + TILE, n[2]); k++)
                        out[((size_t)i * (size_t)n[1] + (size_t)j) * (size_t)n[2] + (size_t)k] =
                            in[(size_t)i + (size_t)n[0] * ((size_t)j + (size_t)n[1] * (size_t)k)];
}

static int same_shape(const struct volume *v, const struct stored_case *c)
{
    return v->dims[0] == c->dims[0] && v->dims[1] == c->dims[1] && v->dims[2] == c->dims[2];
}

static int load_image(struct loading *l, int i, struct error *e)
{
    struct stored_case *c = &l->store->cases[i];
    struct volume v = {0};
    float *channel = NULL;
    int result = -1;
    if (dataset_load_image(&v, l->set, l->from[i], &l->request, e) < 0) goto out;
    if (!same_shape(&v, c) || volume_channels(&v) != l->store->channels) {
        fail(e, ERR_DATA, "L13", "the file changed while it was being loaded");
        fail_in(e, l->from[i]->images[0]);
        goto out;
    }
    for (int t = 0; t < l->store->channels; t++) {
        if (volume_floats(&channel, &v, t, l->options->nan, e) < 0) {
            fail_in(e, l->from[i]->images[0]);
            goto out;
        }
        turn_channel(c->image, channel, c->dims, l->store->channels, t);
        mem_free(channel);
        channel = NULL;
    }
    result = 0;
out:
    mem_free(channel);
    volume_free(&v);
    return result;
}

static int load_label(struct loading *l, int i, struct error *e)
{
    struct stored_case *c = &l->store->cases[i];
    const char *path = l->from[i]->label;
    struct volume v = {0};
    label_t *label = NULL;
    int result = -1, declared = l->set->n_classes;
    if (dataset_load_label(&v, l->set, l->from[i], &l->request, e) < 0) goto out;
    if (!same_shape(&v, c)) {
        fail(e, ERR_DATA, "L02", "%lld x %lld x %lld voxels, its image has %d x %d x %d",
             (long long)v.dims[0], (long long)v.dims[1], (long long)v.dims[2], c->dims[0],
             c->dims[1], c->dims[2]);
        fail_in(e, path);
        goto out;
    }
    if (volume_labels(&label, &l->highest[i], &v, e) < 0) {
        fail_in(e, path);
        goto out;
    }
    if (declared > 0 && l->highest[i] >= declared) {
        fail(e, ERR_DATA, "L04", "label %d, allowed 0..%d", l->highest[i], declared - 1);
        fail_in(e, path);
        goto out;
    }
    turn_label(c->label, label, c->dims);
    result = 0;
out:
    mem_free(label);
    volume_free(&v);
    return result;
}

static void fill_mask(struct stored_case *c, enum case_mask kind, int channels)
{
    size_t n = case_voxels(c), step = (size_t)channels;
    float least_value = c->image[0];
    for (size_t v = 0; v < n; v++)
        if (c->image[v * step] < least_value) least_value = c->image[v * step];
    for (size_t v = 0; v < n; v++)
        c->mask[v] = kind == CASE_MASK_INSIDE || c->image[v * step] > least_value;
}

static void load_case(void *arg, int64_t item)
{
    struct loading *l = arg;
    int i = (int)item;
    struct stored_case *c = &l->store->cases[i];
    struct error *e = &l->error[i];
    if (case_allocate(l->store, c, kind_of(l->store, i), e) < 0) return;
    if (load_image(l, i, e) < 0) return;
    if (c->label && load_label(l, i, e) < 0) return;
    if (c->mask) fill_mask(c, l->options->mask, l->store->channels);
}

static int load_cases(struct loading *l, struct error *e)
{
    struct case_store *s = l->store;
    l->highest = mem_alloc(e, (size_t)s->n_cases, sizeof *l->highest);
    l->error = mem_alloc(e, (size_t)s->n_cases, sizeof *l->error);
    if (!l->highest || !l->error) return -1;
    l->request.part = VOLUME_ALL;
    l->request.report = NULL; /* it has no lock; `falx check` tells warnings */
    pool_run(l->options->pool, s->n_cases, load_case, l);
    s->n_classes = l->set->n_classes;
    for (int i = 0; i < s->n_cases; i++) {
        if (l->error[i].code != ERR_NONE) {
            if (e) *e = l->error[i];
            return -1;
        }
        if (l->highest[i] >= s->n_classes) s->n_classes = l->highest[i] + 1;
    }
    return 0;
}

int case_store_load(struct case_store *out, const struct dataset *d,
                    const struct case_store_options *o, struct error *e)
{
    struct loading l = {.store = out, .set = d, .options = o};
    int result = -1;
    memset(out, 0, sizeof *out);
    out->has_mask = o->mask != CASE_MASK_NONE;
    if (o->request) l.request = *o->request;
    if (choose_cases(&l, e) < 0) goto out;
    if (measure_cases(&l, e) < 0) goto out;
    if (load_cases(&l, e) < 0) goto out;
    result = 0;
out:
    mem_free(l.from);
    mem_free(l.highest);
    mem_free(l.error);
    if (result < 0) case_store_free(out);
    return result;
}
