/* model_file.c - params to and from tensors with names; see model_file.h.
 *
 *     params.value   [ weights, biases, gammas, betas | running_mean, running_var ]   device
 *          |  param_download, which turns weights to PyTorch's order
 *     model_copy     the same block in host memory, tensors point into it
 *          |  st_write
 *     file           PREFIX + name, PyTorch's shapes, and <norm>.num_batches_tracked beside each
 *                    running_mean
 *
 * AUA's names are those of the released code; files with falx's older names of its head are read, too.
 * Reading proves everything, names, shapes and finite values, before the first number of params changes.
 */
#include "net/model_file.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define MEAN_TAIL ".running_mean"
#define BATCHES_TAIL ".num_batches_tracked"

/* Networks a file can hold, by the name in "falx.network". */
static const struct {
    const char *name;
    void (*define)(struct builder *b, const struct net_definition *self);
} networks[] = {{"vnet", vnet_define}, {"aua", aua_define}, {"vnet-sdf", sdf_define}};
enum { N_NETWORKS = sizeof networks / sizeof networks[0] };

static const char *const dropouts[] = {
    [NET_DROPOUT_BOTH] = "both", [NET_DROPOUT_BOTTLENECK] = "bottleneck", [NET_DROPOUT_NONE] = "none"};

/* ---- the first bad number -------------------------------------------------------------------- */

/* Index of the first value that is not finite (or, in a variance, negative), or -1. Bytes may lie
 * anywhere. */
static int64_t first_bad(float *bad, const void *values, int64_t n, enum param_kind kind)
{
    for (int64_t i = 0; i < n; i++) {
        memcpy(bad, (const char *)values + i * (int64_t)sizeof *bad, sizeof *bad);
        if (!isfinite(*bad) || (kind == PARAM_VAR && *bad < 0))
            return i;
    }
    return -1;
}

/* ---- to tensors ------------------------------------------------------------------------------ */

/* Copies PREFIX + name + tail to *to and moves it on. */
static const char *put_name(char **to, const char *prefix, const char *name, size_t n_name, const char *tail)
{
    char *at = *to;
    size_t n_prefix = strlen(prefix), n_tail = strlen(tail) + 1;
    memcpy(at, prefix, n_prefix);
    memcpy(at + n_prefix, name, n_name);
    memcpy(at + n_prefix + n_name, tail, n_tail);
    *to = at + n_prefix + n_name + n_tail;
    return at;
}

static int add_param(struct st_file *f, char **names, const struct model_copy *keep, const struct param *q,
                     const char *prefix, struct error *e)
{
    int64_t dims[5] = {0};
    float bad;
    size_t n = strlen(q->name);
    const float *values = keep->values + q->offset;
    int64_t at = first_bad(&bad, values, q->count, q->kind);
    if (at >= 0)
        return fail(e, ERR_NUMERIC, "M04", "%s[%" PRId64 "] is %g; not written", q->name, at, (double)bad);
    for (int i = 0; i < q->n_dims; i++)
        dims[i] = q->dims[i];
    if (st_add(f, put_name(names, prefix, q->name, n, ""), ST_F32, dims, q->n_dims, values, e) < 0)
        return -1;
    if (q->kind != PARAM_MEAN || !text_ends_with(q->name, MEAN_TAIL))
        return 0;
    const char *tracked = put_name(names, prefix, q->name, n - strlen(MEAN_TAIL), BATCHES_TAIL);
    return st_add(f, tracked, ST_I64, NULL, 0, keep->batches, e);
}

int model_to_tensors(struct st_file *f, struct model_copy *keep, const struct params *p, const char *prefix,
                     struct error *e)
{
    size_t each = strlen(prefix) + sizeof p->list->name + sizeof BATCHES_TAIL;
    memset(keep, 0, sizeof *keep);
    keep->values = mem_alloc(e, (size_t)p->count, sizeof *keep->values);
    keep->batches = mem_alloc(e, 1, sizeof *keep->batches);
    keep->names = mem_alloc(e, 2 * (size_t)p->n, each);
    char *names = keep->names;
    if (!keep->values || !keep->batches || !keep->names)
        goto give_up;
    *keep->batches = p->batches;
    for (int i = 0; i < p->n; i++)
        if (param_download(keep->values + p->list[i].offset, p, p->value, i, e) < 0 ||
            add_param(f, &names, keep, &p->list[i], prefix, e) < 0)
            goto give_up;
    return 0;
give_up:
    model_copy_free(keep);
    return -1;
}

void model_copy_free(struct model_copy *keep)
{
    mem_free(keep->values);
    mem_free(keep->batches);
    mem_free(keep->names);
    memset(keep, 0, sizeof *keep);
}

/* ---- from tensors ---------------------------------------------------------------------------- */

/* The first three of a kind of difference, and how many there are. */
struct differences {
    const char *kind;
    int n;
    char text[150]; /* three kinds fill the error line */
};

static void PRINTF(2, 3) differ(struct differences *d, const char *fmt, ...)
{
    size_t used = strlen(d->text);
    va_list args;
    if (d->n++ >= 3)
        return;
    if (d->n > 1)
        used += (size_t)snprintf(d->text + used, sizeof d->text - used, ", ");
    if (used >= sizeof d->text)
        return;
    va_start(args, fmt);
    vsnprintf(d->text + used, sizeof d->text - used, fmt, args);
    va_end(args);
}

static void describe_dims(char *out, size_t cap, const int64_t *dims, int n)
{
    size_t used = (size_t)snprintf(out, cap, n ? "" : "scalar");
    for (int i = 0; i < n && used < cap; i++)
        used += (size_t)snprintf(out + used, cap - used, i ? "x%" PRId64 : "%" PRId64, dims[i]);
}

static int has_shape(const struct st_tensor *t, enum st_dtype dtype, const int *dims, int n_dims)
{
    int same = t->dtype == dtype && t->n_dims == n_dims;
    for (int i = 0; same && i < n_dims; i++)
        same = t->dims[i] == dims[i];
    return same;
}

static void differ_in_shape(struct differences *d, const struct st_tensor *t, enum st_dtype dtype,
                            const int *dims, int n_dims)
{
    char have[48], want[48];
    int64_t wide[5] = {0};
    for (int i = 0; i < n_dims; i++)
        wide[i] = dims[i];
    describe_dims(have, sizeof have, t->dims, t->n_dims);
    describe_dims(want, sizeof want, wide, n_dims);
    differ(d, "%.30s %s %s not %s %s", t->name, st_dtype_name(t->dtype), have, st_dtype_name(dtype), want);
}

/* Names of the projection head in files of falx before it took the released ones. */
static const struct {
    const char *before, *now, *now_with_norm;
} head_names[] = {
    {"projection_head.conv1.", "head.conv.0.", "head.conv.0."},
    {"projection_head.norm1.", NULL, "head.conv.1."},
    {"projection_head.conv2.", "head.conv.2.", "head.conv.3."},
    {"projection_head.norm2.", NULL, "head.conv.4."},
    {"projection_head.conv3.", "head.conv.4.", "head.conv.6."},
};
#define HEAD_NORM_MARK "head.conv.6.weight" /* only a head with norms has it */

struct tensor_name {
    char text[64];
};

/* A name of a file as it is today: copied to `keep` if it is an older one. */
static const char *current_name(struct tensor_name *keep, const struct params *p, const char *name)
{
    if (!text_starts_with(name, "projection_head."))
        return name;
    int norm = params_find(p, HEAD_NORM_MARK) != NULL;
    for (size_t i = 0; i < sizeof head_names / sizeof head_names[0]; i++) {
        const char *now = norm ? head_names[i].now_with_norm : head_names[i].now;
        if (!now || !text_starts_with(name, head_names[i].before))
            continue;
        snprintf(keep->text, sizeof keep->text, "%s%.40s", now, name + strlen(head_names[i].before));
        return keep->text;
    }
    return name;
}

/* Looks up PREFIX + name; NULL if there is none. */
static const struct st_tensor *find_tensor(const struct st_file *f, const char *prefix,
                                           const struct params *p, const char *name)
{
    struct tensor_name keep;
    size_t n = strlen(prefix);
    for (int i = 0; i < f->n_tensors; i++) {
        const char *full = f->tensors[i].name;
        if (strncmp(full, prefix, n) == 0 && strcmp(current_name(&keep, p, full + n), name) == 0)
            return &f->tensors[i];
    }
    return NULL;
}

/* Is `name` (without prefix) the counter of a batch norm of p? */
static int is_counter(const struct params *p, const char *name)
{
    char mean[sizeof p->list->name];
    if (!text_ends_with(name, BATCHES_TAIL))
        return 0;
    int n = snprintf(mean, sizeof mean, "%.*s" MEAN_TAIL, (int)(strlen(name) - strlen(BATCHES_TAIL)), name);
    return n < (int)sizeof mean && params_find(p, mean) != NULL;
}

/* Fills d[missing, extra, mis-shaped]; *batches gets the largest counter. Files older than the
 * counters lack them all, and that is fine: they count, nothing reads them. */
static void compare(struct differences d[3], int64_t *batches, const struct params *p,
                    const struct st_file *f, const char *prefix)
{
    for (int i = 0; i < p->n; i++) {
        const struct param *q = &p->list[i];
        const struct st_tensor *t = find_tensor(f, prefix, p, q->name);
        if (!t)
            differ(&d[0], "%.40s", q->name);
        else if (!has_shape(t, ST_F32, q->dims, q->n_dims))
            differ_in_shape(&d[2], t, ST_F32, q->dims, q->n_dims);
    }
    *batches = 0;
    for (int i = 0; i < f->n_tensors; i++) {
        const struct st_tensor *t = &f->tensors[i];
        int64_t count = 0;
        if (!text_starts_with(t->name, prefix))
            continue;
        struct tensor_name keep;
        const char *name = current_name(&keep, p, t->name + strlen(prefix));
        if (!is_counter(p, name)) {
            if (!params_find(p, name) || find_tensor(f, prefix, p, name) != t)
                differ(&d[1], "%.40s", t->name);
        } else if (!has_shape(t, ST_I64, NULL, 0)) {
            differ_in_shape(&d[2], t, ST_I64, NULL, 0);
        } else {
            memcpy(&count, t->data, sizeof count);
            *batches = count > *batches ? count : *batches;
        }
    }
}

static int check_architecture(int64_t *batches, const struct params *p, const struct st_file *f,
                              const char *prefix, struct error *e)
{
    struct differences d[3] = {{.kind = "missing"}, {.kind = "not expected"}, {.kind = "of another shape"}};
    char text[600] = "";
    size_t used = 0;
    compare(d, batches, p, f, prefix);
    for (int i = 0; i < 3; i++)
        if (d[i].n)
            used +=
                (size_t)snprintf(text + used, sizeof text - used, "%s%d tensors %s: %s%s", used ? "; " : "",
                                 d[i].n, d[i].kind, d[i].text, d[i].n > 3 ? ", ..." : "");
    return used ? fail(e, ERR_BUSY, "S10", "another network: %s", text) : 0;
}

int model_from_tensors(struct params *p, const struct st_file *f, const char *prefix, struct error *e)
{
    int64_t batches;
    float bad;
    if (check_architecture(&batches, p, f, prefix, e) < 0)
        return -1;
    for (int i = 0; i < p->n; i++) {
        const struct param *q = &p->list[i];
        int64_t at = first_bad(&bad, find_tensor(f, prefix, p, q->name)->data, q->count, q->kind);
        if (at >= 0)
            return fail(e, ERR_DATA, "S09", "%s%s[%" PRId64 "] is %g, expected %s", prefix, q->name, at,
                        (double)bad, isfinite(bad) ? "a variance" : "a finite number");
    }
    p->version++;
    for (int i = 0; i < p->n; i++)
        if (param_upload(p->value, p, i, find_tensor(f, prefix, p, p->list[i].name)->data, e) < 0)
            return -1;
    p->batches = batches;
    return 0;
}

/* ---- the definition -------------------------------------------------------------------------- */

/* Numbers of a definition under their keys, with the most a file may ask for. Labels are bytes, so
 * there are at most 256 classes; the others are ten times what anyone trains. */
struct number {
    const char *key;
    int *value, least, most;
};
enum { N_NUMBERS = 5 };

static void list_numbers(struct number out[N_NUMBERS], struct net_definition *d)
{
    out[0] = (struct number){"falx.channels", &d->channels, 1, 256};
    out[1] = (struct number){"falx.classes", &d->classes, 1, 256};
    out[2] = (struct number){"falx.filters", &d->filters, 1, 512};
    out[3] = (struct number){"falx.rank", &d->rank, 0, 256};
    out[4] = (struct number){"falx.head_norm", &d->head_norm, 0, 1};
}

static int check_numbers(struct net_definition *d, struct error *e)
{
    struct number list[N_NUMBERS];
    list_numbers(list, d);
    for (int i = 0; i < N_NUMBERS; i++)
        if (*list[i].value < list[i].least || *list[i].value > list[i].most)
            return fail(e, ERR_BUSY, "S10", "%s is %d, expected %d to %d", list[i].key, *list[i].value,
                        list[i].least, list[i].most);
    return 0;
}

/* Index of text among words, or -1 with a line about the key. */
static int find_word(const char *key, const char *text, const char *const *words, int n, struct error *e)
{
    for (int i = 0; text && i < n; i++)
        if (strcmp(text, words[i]) == 0)
            return i;
    return fail(e, ERR_BUSY, "S10", "%s is %.40s, not known to this falx", key, text ? text : "missing");
}

static int definition_from_metadata(struct net_definition *out, const struct st_file *f, struct error *e)
{
    const char *names[N_NETWORKS];
    struct number list[N_NUMBERS];
    for (int i = 0; i < N_NETWORKS; i++)
        names[i] = networks[i].name;
    int network = find_word("falx.network", st_metadata(f, "falx.network"), names, N_NETWORKS, e);
    if (network < 0)
        return -1;
    out->define = networks[network].define;
    out->dropout = find_word("falx.dropout", st_metadata(f, "falx.dropout"), dropouts, 3, e);
    if (out->dropout < 0)
        return -1;
    list_numbers(list, out);
    for (int i = 0; i < N_NUMBERS; i++) {
        const char *text = st_metadata(f, list[i].key);
        int64_t v;
        if (!text || parse_int(&v, text) < 0 || v < list[i].least || v > list[i].most)
            return fail(e, ERR_BUSY, "S10", "%s is %.40s, expected %d to %d", list[i].key,
                        text ? text : "missing", list[i].least, list[i].most);
        *list[i].value = (int)v;
    }
    return 0;
}

/* Dimension `axis` of a tensor with five, or 0. */
static int dim_of(const struct st_file *f, const char *name, int axis)
{
    const struct st_tensor *t = st_find(f, name);
    return t && t->n_dims == 5 && t->dims[axis] <= 1 << 20 ? (int)t->dims[axis] : 0;
}

/* A state dict from elsewhere: the names say which network, the shapes how wide it is. */
static int definition_from_shapes(struct net_definition *out, const struct st_file *f, struct error *e)
{
    int mean = dim_of(f, "mean_l.weight", 0), second = dim_of(f, "out_conv2.weight", 0);
    out->define = mean ? aua_define : second ? sdf_define : vnet_define;
    out->filters = dim_of(f, "block_one.conv.0.weight", 0);
    out->channels = dim_of(f, "block_one.conv.0.weight", 1);
    out->classes = mean ? mean : second ? second + 1 : dim_of(f, "out_conv.weight", 0);
    out->rank = mean ? dim_of(f, "cov_factor_l.weight", 0) / mean : 0;
    out->head_norm = st_find(f, HEAD_NORM_MARK) || st_find(f, "projection_head.norm1.weight");
    if (!out->filters || !out->classes)
        return fail(e, ERR_BUSY, "S10",
                    "not a V-Net: no block_one.conv.0.weight and out_conv.weight of five"
                    " dimensions");
    return check_numbers(out, e);
}

static int read_definition(struct net_definition *out, const struct st_file *f, struct error *e)
{
    struct net_definition d = {.dropout = NET_DROPOUT_BOTH};
    int bad = st_metadata(f, "falx.network") ? definition_from_metadata(&d, f, e)
                                             : definition_from_shapes(&d, f, e);
    if (bad < 0)
        return -1;
    *out = d;
    return 0;
}

/* ---- files ----------------------------------------------------------------------------------- */

static int set_definition(struct st_file *f, char text[N_NUMBERS][16], const struct net_definition *def,
                          struct error *e)
{
    struct net_definition d = *def;
    struct number list[N_NUMBERS];
    list_numbers(list, &d);
    for (int i = 0; i < N_NETWORKS; i++)
        if (networks[i].define == def->define && st_set(f, "falx.network", networks[i].name, e) < 0)
            return -1;
    CHECK(st_metadata(f, "falx.network") && def->dropout >= 0 && def->dropout < 3);
    for (int i = 0; i < N_NUMBERS; i++) {
        snprintf(text[i], sizeof text[i], "%d", *list[i].value);
        if (st_set(f, list[i].key, text[i], e) < 0)
            return -1;
    }
    if (st_set(f, "falx.dropout", dropouts[def->dropout], e) < 0)
        return -1;
    return st_set(f, "falx.format", "1", e);
}

int model_write(const char *path, const struct params *p, const struct net_definition *def, struct error *e)
{
    struct st_file f = {0};
    struct model_copy keep = {0};
    char text[N_NUMBERS][16];
    int result = -1;
    if (model_to_tensors(&f, &keep, p, "", e) < 0 || set_definition(&f, text, def, e) < 0)
        fail_in(e, path);
    else
        result = st_write(path, &f, e);
    st_free(&f);
    model_copy_free(&keep);
    return result;
}

/* The deepest block is most of a network. If it is in the file, so much memory is justified. */
static int prove_size(const struct net_definition *d, const struct st_file *f, struct error *e)
{
    const char *name = "block_five.conv.0.weight";
    const struct st_tensor *t = st_find(f, name);
    int c = 16 * d->filters;
    if (!t || !has_shape(t, ST_F32, (int[5]){c, c, 3, 3, 3}, 5))
        return fail(e, ERR_BUSY, "S10", "another network: %s is not F32 %dx%dx3x3x3", name, c, c);
    return 0;
}

int model_read(struct params **out, struct net_definition *def, const char *path, struct device *dev,
               struct error *e)
{
    struct st_file f;
    struct params *p = NULL;
    *out = NULL;
    if (st_read(&f, path, NULL, e) < 0)
        return -1;
    if (read_definition(def, &f, e) < 0 || prove_size(def, &f, e) < 0 ||
        params_new(&p, dev, def, PARAMS_NO_GRAD, e) < 0 || model_from_tensors(p, &f, "", e) < 0) {
        params_free(p);
        p = NULL;
        fail_in(e, path);
    }
    st_free(&f);
    *out = p;
    return p ? 0 : -1;
}
