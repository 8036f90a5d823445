/* cuda.c - struct device_ops on top of struct cuda_driver: what a call's code means, and memory counted. */
#include "device/cuda/cuda.h"

#include <stdio.h>
#include <string.h>

#include "device/kernels.h"

/* Codes of CUDA that have a meaning of their own here. */
enum { CODE_MEMORY = 2, CODE_OLD_DRIVER = 35, CODE_NO_GPU = 100, CODE_TIMEOUT = 702 };

struct block {
    void *memory;
    size_t bytes;
};

struct gpu {
    struct device base; /* first: a struct device * of this kind is a struct gpu * */
    const struct cuda_driver *d;
    struct cuda_context *c;
    int index;
    int hung;     /* it did not answer: nothing more is asked of it, not even to close */
    size_t total; /* bytes of the GPU */
    size_t bytes; /* of these in blocks */
    struct block *blocks;
    int n_blocks, room;
};

/* What struct conv * points to above this file. */
struct gpu_conv {
    struct gpu *gpu;
    struct conv *conv; /* the driver's */
};

static struct gpu *gpu_of(struct device *dev)
{
    return (struct gpu *)(void *)dev;
}

static const struct gpu *gpu_of_const(const struct device *dev)
{
    return (const struct gpu *)(const void *)dev;
}

static struct gpu_conv *conv_of(struct conv *v)
{
    return (struct gpu_conv *)(void *)v;
}

static double gib(size_t bytes)
{
    return (double)bytes / 1073741824.0;
}

/* ---- sticky errors --------------------------------------------------------------------------- */

/* Keeps the first failure. Work is done later than it is asked for: `where` saw it, and need not be the
 * cause. */
static int keep(struct gpu *g, int code, const char *where)
{
    struct error *e = &g->base.error;
    if (code == 0)
        return 0;
    if (e->code)
        return -1;
    g->hung = code == CODE_TIMEOUT;
    if (code == CODE_TIMEOUT)
        return fail(e, ERR_DEVICE, "G07", "cuda:%d: no answer within a minute (%s); the GPU hangs", g->index,
                    where);
    if (code == CODE_MEMORY)
        return fail(e, ERR_DEVICE, "G04", "cuda:%d: out of memory (%s); %.2f of %.2f GiB are held here",
                    g->index, where, gib(g->bytes), gib(g->total));
    return fail(e, ERR_DEVICE, "G06",
                "cuda:%d: %s (CUDA error %d, seen in %s); nothing more is computed on it", g->index,
                g->d->text(code), code, where);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void count(struct gpu *g)
{
    struct device *d = &g->base;
    d->bytes = g->bytes + g->d->own_bytes(g->c);
    d->peak_bytes = d->bytes > d->peak_bytes ? d->bytes : d->peak_bytes;
}

static int remember(struct gpu *g, void *memory, size_t bytes)
{
    if (g->n_blocks == g->room) {
        int room = g->room ? 2 * g->room : 64;
        struct block *more = mem_resize(&g->base.error, g->blocks, (size_t)room, sizeof *more);
        if (!more)
            return -1;
        g->blocks = more;
        g->room = room;
    }
    g->blocks[g->n_blocks++] = (struct block){memory, bytes};
    g->bytes += bytes;
    count(g);
    return 0;
}

static void forget(struct gpu *g, const void *memory)
{
    for (int i = g->n_blocks - 1; i >= 0; i--)
        if (g->blocks[i].memory == memory) {
            g->bytes -= g->blocks[i].bytes;
            count(g);
            g->blocks[i] = g->blocks[--g->n_blocks];
            return;
        }
}

static void *gpu_alloc(struct device *dev, size_t bytes)
{
    struct gpu *g = gpu_of(dev);
    void *memory = NULL;
    if (dev->error.code)
        return NULL;
    int code = g->d->alloc(g->c, &memory, bytes);
    if (code == CODE_MEMORY) {
        fail(&dev->error, ERR_DEVICE, "G03",
             "cuda:%d: out of memory: %.2f GiB wanted, %.2f of %.2f GiB are held already; try a smaller "
             "patch or batch",
             g->index, gib(bytes), gib(g->bytes), gib(g->total));
        return NULL;
    }
    if (keep(g, code, "alloc") < 0)
        return NULL;
    if (remember(g, memory, bytes) < 0) {
        g->d->free(g->c, memory);
        return NULL;
    }
    return memory;
}

static void gpu_free(struct device *dev, void *memory)
{
    struct gpu *g = gpu_of(dev);
    if (!memory)
        return;
    forget(g, memory);
    if (!g->hung)
        keep(g, g->d->free(g->c, memory), "free");
}

static void gpu_upload(struct device *dev, void *to, const void *from_host, size_t bytes)
{
    struct gpu *g = gpu_of(dev);
    if (!dev->error.code && bytes > 0)
        keep(g, g->d->upload(g->c, to, from_host, bytes), "upload");
}

static void gpu_upload_ahead(struct device *dev, void *to, const void *from_host, size_t bytes)
{
    struct gpu *g = gpu_of(dev);
    if (!dev->error.code && bytes > 0)
        keep(g, g->d->upload_ahead(g->c, to, from_host, bytes), "upload_ahead");
}

static void gpu_arrive(struct device *dev)
{
    struct gpu *g = gpu_of(dev);
    if (!dev->error.code)
        keep(g, g->d->arrive(g->c), "arrive");
}

static void gpu_download(struct device *dev, void *to_host, const void *from, size_t bytes)
{
    struct gpu *g = gpu_of(dev);
    if (!dev->error.code && bytes > 0)
        keep(g, g->d->download(g->c, to_host, from, bytes), "download");
}

static void gpu_copy(struct device *dev, void *to, const void *from, size_t bytes)
{
    struct gpu *g = gpu_of(dev);
    if (!dev->error.code && bytes > 0)
        keep(g, g->d->copy(g->c, to, from, bytes), "copy");
}

static void gpu_zero(struct device *dev, void *memory, size_t bytes)
{
    struct gpu *g = gpu_of(dev);
    if (!dev->error.code && bytes > 0)
        keep(g, g->d->zero(g->c, memory, bytes), "zero");
}

static void gpu_sync(struct device *dev)
{
    struct gpu *g = gpu_of(dev);
    if (!dev->error.code)
        keep(g, g->d->sync(g->c), "sync");
}

/* ---- convolutions ---------------------------------------------------------------------------- */

/* Kernels count the voxels of a tensor, borders and tiles behind its end included, in 32 bits. */
static int can_count(struct gpu *g, const struct conv_shape *s)
{
    int up = s->kind == CONV_UP ? 2 : 1, side[3] = {up * s->d, up * s->h, up * s->w};
    if ((int64_t)s->n * side[0] * side[1] * side[2] <= 1 << 30)
        return 1;
    fail(&g->base.error, ERR_DEVICE, "G03",
         "cuda:%d: %d patches of %dx%dx%d have more than 2^30 voxels; "
         "try a smaller patch or batch",
         g->index, s->n, side[0], side[1], side[2]);
    return 0;
}

static struct conv *gpu_conv_new(struct device *dev, const struct conv_shape *s)
{
    struct gpu *g = gpu_of(dev);
    struct gpu_conv *v = NULL;
    if (!dev->error.code && can_count(g, s))
        v = mem_alloc(&dev->error, 1, sizeof *v);
    if (!v)
        return NULL;
    v->gpu = g;
    if (keep(g, g->d->conv_new(g->c, &v->conv, s), "conv_new") < 0) {
        mem_free(v);
        return NULL;
    }
    count(g);
    return (struct conv *)(void *)v;
}

static void gpu_conv_free(struct conv *v)
{
    if (!v)
        return;
    struct gpu_conv *own = conv_of(v);
    if (!own->gpu->hung) {
        own->gpu->d->conv_free(own->conv);
        count(own->gpu);
    }
    mem_free(own);
}

static void gpu_conv_pack(struct device *dev, const struct conv_weight *list, int n)
{
    enum { AT_ONCE = 64 };
    struct gpu *g = gpu_of(dev);
    struct conv_weight own[AT_ONCE];
    for (int at = 0, some; at < n && !dev->error.code; at += some) {
        some = n - at < AT_ONCE ? n - at : AT_ONCE;
        for (int i = 0; i < some; i++)
            own[i] = (struct conv_weight){conv_of(list[at + i].conv)->conv, list[at + i].weight};
        keep(g, g->d->conv_pack(g->c, own, some), "conv_pack");
    }
}

static void gpu_conv_forward(struct conv *v, const struct conv_in *x, const float *bias,
                             const struct tensor *y, struct conv_stats *stats)
{
    struct gpu *g = conv_of(v)->gpu;
    if (!g->base.error.code)
        keep(g, g->d->conv_forward(conv_of(v)->conv, x, bias, y, stats), "conv_forward");
}

static void gpu_conv_backward(struct conv *v, const struct conv_grad *dy, const struct conv_in *x,
                              const struct tensor *dx, int add, float *dweight, float *dbias,
                              const struct conv_sums *sums)
{
    struct gpu *g = conv_of(v)->gpu;
    if (!g->base.error.code)
        keep(g, g->d->conv_backward(conv_of(v)->conv, dy, x, dx, add, dweight, dbias, sums), "conv_backward");
}

static int gpu_conv_pair(struct conv *v, const struct conv_in *x, const float *bias, struct conv *then,
                         const float *then_bias, const struct tensor *y)
{
    struct gpu *g = conv_of(v)->gpu;
    int made = 0;
    if (!g->base.error.code && g->d->conv_pair)
        keep(g, g->d->conv_pair(conv_of(v)->conv, x, bias, conv_of(then)->conv, then_bias, y, &made),
             "conv_pair");
    return made;
}

static void gpu_catch_up(struct device *dev, int but)
{
    struct gpu *g = gpu_of(dev);
    if (!dev->error.code)
        keep(g, g->d->catch_up(g->c, but), "catch_up");
}

/* ---- heads ----------------------------------------------------------------------------------- */

static int gpu_heads_fit(const struct device *dev, const struct heads *h)
{
    return gpu_of_const(dev)->d->heads_forward && dev->precision == PRECISION_BF16 && heads_are_usual(h);
}

static void gpu_heads_forward(struct device *dev, const struct heads *h)
{
    struct gpu *g = gpu_of(dev);
    if (!dev->error.code)
        keep(g, g->d->heads_forward(g->c, h), "heads_forward");
}

static void gpu_heads_backward(struct device *dev, const struct heads *h)
{
    struct gpu *g = gpu_of(dev);
    if (!dev->error.code)
        keep(g, g->d->heads_backward(g->c, h), "heads_backward");
}

/* ---- the rest -------------------------------------------------------------------------------- */

static void gpu_norm_sums(struct device *dev, const struct tensor *t, const struct conv_source *y,
                          const float *mean, double *sums)
{
    struct gpu *g = gpu_of(dev);
    if (!dev->error.code)
        keep(g, g->d->norm_sums(g->c, t, y, mean, sums), "norm_sums");
}

static void gpu_grad_join(struct device *dev, const struct tensor *to, const struct tensor *t,
                          const struct conv_source *y)
{
    struct gpu *g = gpu_of(dev);
    if (!dev->error.code)
        keep(g, g->d->grad_join(g->c, to, t, y), "grad_join");
}

static void gpu_contrast(struct device *dev, const struct contrast *work)
{
    struct gpu *g = gpu_of(dev);
    if (!dev->error.code)
        keep(g, g->d->contrast(g->c, work), "contrast");
}

static void gpu_map(struct device *dev, int kernel, const void *args, int64_t count)
{
    struct gpu *g = gpu_of(dev);
    if (!dev->error.code && count > 0)
        keep(g, g->d->map(g->c, kernel, args, count), "map");
}

static void gpu_sum(struct device *dev, int reduction, const void *args, int64_t count, int n_sums,
                    double *sums)
{
    struct gpu *g = gpu_of(dev);
    if (!dev->error.code)
        keep(g, g->d->sum(g->c, reduction, args, count, n_sums, sums), "sum");
}

static void gpu_reduce(struct device *dev, int reduction, const void *args, int64_t count, int n_sums,
                       double *sums_host)
{
    struct gpu *g = gpu_of(dev);
    for (int s = 0; s < n_sums; s++)
        sums_host[s] = 0;
    if (!dev->error.code && count > 0)
        keep(g, g->d->reduce(g->c, reduction, args, count, n_sums, sums_host), "reduce");
}

/* The GPU's memory is fast enough for two passes. */
static void gpu_conv_update(struct device *dev, const struct conv_weight *list, int n, int kernel,
                            const void *args, const float *first, int64_t count)
{
    (void)first;
    gpu_map(dev, kernel, args, count);
    gpu_conv_pack(dev, list, n);
}

static void gpu_close(struct device *dev)
{
    struct gpu *g = gpu_of(dev);
    if (g->c && !g->hung)
        g->d->close(g->c);
    pool_free(dev->pool);
    mem_free(g->blocks);
    mem_free(g);
}

static const struct device_ops gpu_ops = {
    .name = "cuda",
    .close = gpu_close,
    .alloc = gpu_alloc,
    .free = gpu_free,
    .upload = gpu_upload,
    .download = gpu_download,
    .copy = gpu_copy,
    .zero = gpu_zero,
    .sync = gpu_sync,
    .upload_ahead = gpu_upload_ahead,
    .arrive = gpu_arrive,
    .conv_new = gpu_conv_new,
    .conv_free = gpu_conv_free,
    .conv_pack = gpu_conv_pack,
    .conv_update = gpu_conv_update,
    .conv_forward = gpu_conv_forward,
    .conv_backward = gpu_conv_backward,
    .conv_pair = gpu_conv_pair,
    .catch_up = gpu_catch_up,
    .heads_fit = gpu_heads_fit,
    .heads_forward = gpu_heads_forward,
    .heads_backward = gpu_heads_backward,
    .norm_sums = gpu_norm_sums,
    .grad_join = gpu_grad_join,
    .contrast = gpu_contrast,
    .map = gpu_map,
    .sum = gpu_sum,
    .reduce = gpu_reduce,
};

/* ---- opening --------------------------------------------------------------------------------- */

int cuda_is_name(const char *name)
{
    return strcmp(name, "cuda") == 0 || text_starts_with(name, "cuda:");
}

static int read_index(int *out, const char *name, struct error *e)
{
    int64_t index = 0;
    *out = 0;
    if (!name || !text_starts_with(name, "cuda:"))
        return 0;
    if (parse_int(&index, name + 5) < 0 || index < 0 || index > 1023)
        return fail(e, ERR_CONFIG, "C01", "unknown device \"%s\": cuda:0, cuda:1, ... are the GPUs", name);
    *out = (int)index;
    return 0;
}

/* Why a GPU could not be opened. Versions are filled in even then (driver.h). */
static int refuse(const struct cuda_driver *d, int index, int code, const struct cuda_facts *f,
                  struct error *e)
{
    int count = 0;
    if (f->driver == 0)
        return fail(e, ERR_DEVICE, "G01", "no NVIDIA driver is installed here");
    if (code == CODE_OLD_DRIVER)
        return fail(e, ERR_DEVICE, "G02", "the NVIDIA driver knows CUDA %d.%d, CUDA %d.%d is needed",
                    f->driver / 1000, f->driver % 1000 / 10, f->runtime / 1000, f->runtime % 1000 / 10);
    if (code == CODE_NO_GPU || d->count(&count) != 0 || count < 1)
        return fail(e, ERR_DEVICE, "G01", "no GPU is here: %s", d->text(code));
    if (index >= count)
        return fail(e, ERR_DEVICE, "G01", "cuda:%d does not exist: %d GPU%s here", index, count,
                    count == 1 ? " is" : "s are");
    if (code == CODE_MEMORY)
        return fail(e, ERR_DEVICE, "G03", "cuda:%d: no memory is left: %.2f of %.2f GiB are free", index,
                    gib(f->available), gib(f->total));
    return fail(e, ERR_DEVICE, "G06", "cuda:%d cannot be opened: %s (CUDA error %d)", index, d->text(code),
                code);
}

static int open_context(struct gpu *g, struct error *e)
{
    struct cuda_facts f = {.name = ""};
    int code = g->d->open(&g->c, g->index, g->base.precision, &f);
    if (code != 0) {
        g->c = NULL;
        return refuse(g->d, g->index, code, &f, e);
    }
    if (f.major < CUDA_MAJOR)
        return fail(e, ERR_DEVICE, "G02", "cuda:%d, %s, has compute capability %d.%d; %d.0 is needed",
                    g->index, f.name, f.major, f.minor, CUDA_MAJOR);
    g->total = f.total;
    g->base.room = f.available / 2;
    snprintf(g->base.describe, sizeof g->base.describe, "cuda:%d, %.64s", g->index, f.name);
    return 0;
}

int cuda_open_driver(struct device **out, const struct cuda_driver *d, const struct device_options *o,
                     struct error *e)
{
    *out = NULL;
    if (d->version != CUDA_DRIVER_VERSION || d->kernels != KERNELS_FORM)
        return fail(e, ERR_DEVICE, "G02",
                    "libfalx_cuda.so has interface %d.%d, this program %d.%d; build both anew", d->version,
                    d->version == CUDA_DRIVER_VERSION ? d->kernels : 0, CUDA_DRIVER_VERSION, KERNELS_FORM);
    struct gpu *g = mem_alloc(e, 1, sizeof *g);
    if (!g)
        return -1;
    g->base.ops = &gpu_ops;
    g->base.precision = o->precision == PRECISION_AUTO ? PRECISION_BF16 : o->precision;
    g->d = d;
    if (read_index(&g->index, o->name, e) < 0 || open_context(g, e) < 0 ||
        pool_new(&g->base.pool, o->threads, e) < 0) {
        gpu_close(&g->base);
        return -1;
    }
    *out = &g->base;
    return 0;
}
