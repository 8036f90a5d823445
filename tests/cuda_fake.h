/* cuda_fake.h - a GPU that is none: the table of cuda/driver.h on the processor, failing when told to.
 *
 * Its memory can be touched only during a call. Between calls it is locked, so that code above the device
 * that reads or writes a tensor by itself, which the processor forgives and a GPU does not, ends in a
 * segmentation fault here.
 */
#ifndef FALX_CUDA_FAKE_H
#define FALX_CUDA_FAKE_H

#include <sys/mman.h>

#include "device/cuda/cuda.h"
#include "device/kernels.h"
#include "test.h"

enum { FAKE_MEMORY = 2, FAKE_OLD = 35, FAKE_NO_GPU = 100, FAKE_LOST = 700, FAKE_HANG = 702 };
enum { FAKE_ARENA = 512 << 20, FAKE_BESIDE = 128 };

static struct {
    /* what is there */
    int gpus, driver, major;
    size_t total;
    /* what goes wrong: call number fail_at (counted from 0) and all after it give the code */
    int64_t fail_at;
    int code;
    /* ... or, without a word, the first number of what this convolution gives (counted from 1) */
    int lie_forward, lie_backward;
    /* what was seen */
    int64_t calls; /* that work on the GPU; free and close are not counted */
    int64_t after; /* of these after the failure */
    int opened, closed, blocks;
    size_t used;
    char *arena;
    size_t next;
    struct device *cpu;
    struct conv *convs[512];
    int n_convs;
    /* weight gradients that are made beside: as late as they may be, oldest first */
    struct fake_weight {
        struct conv *v;
        struct conv_grad dy;
        struct conv_in x;
        int add;
        float *dweight, *dbias;
    } beside[FAKE_BESIDE];
    int n_beside;
} fake;

struct cuda_context {
    int index;
};

static void fake_reset(void)
{
    if (fake.arena)
        munmap(fake.arena, FAKE_ARENA);
    memset(&fake, 0, sizeof fake);
    fake.gpus = 2;
    fake.driver = 13000;
    fake.major = 9;
    fake.total = 256 << 20;
    fake.fail_at = -1;
    fake.arena = mmap(NULL, FAKE_ARENA, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(fake.arena != MAP_FAILED);
}

static void fake_unlock(void)
{
    assert_int_equal(mprotect(fake.arena, FAKE_ARENA, PROT_READ | PROT_WRITE), 0);
}

static int fake_lock(void)
{
    assert_int_equal(mprotect(fake.arena, FAKE_ARENA, PROT_NONE), 0);
    return fake.cpu->error.code ? FAKE_MEMORY : 0;
}

/* Begins a call: its code. */
static int fake_call(void)
{
    int64_t call = fake.calls++;
    if (fake.fail_at < 0 || call < fake.fail_at)
        return 0;
    fake.after += call > fake.fail_at;
    return fake.code;
}

#define FAKE_CALL(work)                                                                                      \
    do {                                                                                                     \
        int code_ = fake_call();                                                                             \
        if (code_)                                                                                           \
            return code_;                                                                                    \
        fake_unlock();                                                                                       \
        work;                                                                                                \
        return fake_lock();                                                                                  \
    } while (0)

static const char *fake_text(int code)
{
    return code == FAKE_LOST ? "an illegal memory access" : code == FAKE_NO_GPU ? "no device" : "other";
}

static int fake_count(int *out)
{
    *out = fake.gpus;
    return 0;
}

static int fake_open(struct cuda_context **out, int index, enum precision precision, struct cuda_facts *facts)
{
    static struct cuda_context contexts[8];
    struct device_options o = {.name = "cpu", .precision = PRECISION_F32, .threads = 2};
    (void)precision;
    *facts = (struct cuda_facts){.name = "NVIDIA Fake",
                                 .driver = fake.driver,
                                 .runtime = 13000,
                                 .total = fake.total,
                                 .available = fake.total - fake.used};
    if (fake.driver < 13000)
        return FAKE_OLD;
    if (fake.gpus == 0)
        return FAKE_NO_GPU;
    if (index >= fake.gpus)
        return 101;
    if (fake_call())
        return fake.code;
    facts->major = fake.major;
    facts->multiprocessors = 1;
    if (device_open(&fake.cpu, &o, NULL) < 0)
        return FAKE_MEMORY;
    contexts[index].index = index;
    *out = &contexts[index];
    fake.opened++;
    return 0;
}

/* What a GPU that hangs was not asked to free goes here. */
static void fake_close(struct cuda_context *c)
{
    (void)c;
    while (fake.n_convs > 0)
        fake.cpu->ops->conv_free(fake.convs[--fake.n_convs]);
    device_close(fake.cpu);
    fake.cpu = NULL;
    fake.closed++;
}

/* A block has its size in the 256 bytes before it; given back memory is not used again. */
static int fake_alloc(struct cuda_context *c, void **out, size_t bytes)
{
    int code = fake_call();
    (void)c;
    if (code)
        return code;
    if (bytes > fake.total - fake.used || bytes + 512 > FAKE_ARENA - fake.next)
        return FAKE_MEMORY;
    fake_unlock();
    *out = fake.arena + fake.next + 256;
    memcpy(fake.arena + fake.next, &bytes, sizeof bytes);
    fake.next += (256 + bytes + 255) / 256 * 256;
    fake.used += bytes;
    fake.blocks++;
    return fake_lock();
}

static int fake_free(struct cuda_context *c, void *memory)
{
    size_t bytes;
    (void)c;
    fake_unlock();
    memcpy(&bytes, (char *)memory - 256, sizeof bytes);
    fake_lock();
    fake.used -= bytes;
    fake.blocks--;
    return fake.fail_at >= 0 && fake.calls > fake.fail_at ? fake.code : 0;
}

static int fake_copy(struct cuda_context *c, void *to, const void *from, size_t bytes)
{
    (void)c;
    FAKE_CALL(memmove(to, from, bytes));
}

static size_t fake_own_bytes(const struct cuda_context *c)
{
    (void)c;
    return 0;
}

static int fake_zero(struct cuda_context *c, void *memory, size_t bytes)
{
    (void)c;
    FAKE_CALL(memset(memory, 0, bytes));
}

static int fake_sync(struct cuda_context *c)
{
    (void)c;
    return fake_call();
}

static int fake_conv_new(struct cuda_context *c, struct conv **out, const struct conv_shape *s)
{
    (void)c;
    assert_true(fake.n_convs < 512);
    FAKE_CALL(*out = fake.convs[fake.n_convs++] = fake.cpu->ops->conv_new(fake.cpu, s));
}

static void fake_conv_free(struct conv *v)
{
    int i = 0;
    while (i < fake.n_convs && fake.convs[i] != v)
        i++;
    assert_true(i < fake.n_convs);
    fake.convs[i] = fake.convs[--fake.n_convs];
    fake.cpu->ops->conv_free(v);
}

static int fake_conv_pack(struct cuda_context *c, const struct conv_weight *list, int n)
{
    (void)c;
    FAKE_CALL(fake.cpu->ops->conv_pack(fake.cpu, list, n));
}

static int fake_conv_forward(struct conv *v, const struct conv_in *x, const float *bias,
                             const struct tensor *y, const struct conv_stats *stats)
{
    struct conv_stats own = {NULL, NULL, NULL};
    if (stats)
        own = *stats;
    FAKE_CALL(fake.cpu->ops->conv_forward(v, x, bias, y, stats ? &own : NULL);
              if (--fake.lie_forward == 0) * (float *)y->data += 1);
}

/* All weight gradients but the last so many. */
static void fake_make_weights(int but)
{
    const struct tensor none = {0};
    int n = fake.n_beside - but, left = n > 0 ? but : fake.n_beside;
    for (int i = 0; i < n; i++) {
        struct fake_weight *w = &fake.beside[i];
        fake.cpu->ops->conv_backward(w->v, &w->dy, &w->x, &none, w->add, w->dweight, w->dbias, NULL);
    }
    memmove(fake.beside, fake.beside + fake.n_beside - left, (size_t)left * sizeof *fake.beside);
    fake.n_beside = left;
}

static void fake_backward(struct conv *v, const struct conv_grad *dy, const struct conv_in *x,
                          const struct tensor *dx, int add, float *dweight, float *dbias,
                          const struct conv_sums *sums)
{
    int beside = dweight && add & CONV_BESIDE;
    add &= ~CONV_BESIDE;
    assert_true(fake.n_beside < FAKE_BESIDE);
    if (beside)
        fake.beside[fake.n_beside++] = (struct fake_weight){v, *dy, *x, add, dweight, dbias};
    if (!beside || dx->data)
        fake.cpu->ops->conv_backward(v, dy, x, dx, add, beside ? NULL : dweight, beside ? NULL : dbias, sums);
}

static int fake_conv_backward(struct conv *v, const struct conv_grad *dy, const struct conv_in *x,
                              const struct tensor *dx, int add, float *dweight, float *dbias,
                              const struct conv_sums *sums)
{
    FAKE_CALL(fake_backward(v, dy, x, dx, add, dweight, dbias, sums);
              if (--fake.lie_backward == 0) * (float *)dx->data += 100);
}

static int fake_catch_up(struct cuda_context *c, int but)
{
    (void)c;
    FAKE_CALL(fake_make_weights(but));
}

static int fake_norm_sums(struct cuda_context *c, const struct tensor *g, const struct conv_source *y,
                          const float *mean, double *sums)
{
    (void)c;
    FAKE_CALL(fake.cpu->ops->norm_sums(fake.cpu, g, y, mean, sums));
}

static int fake_grad_join(struct cuda_context *c, const struct tensor *to, const struct tensor *g,
                          const struct conv_source *y)
{
    (void)c;
    FAKE_CALL(fake.cpu->ops->grad_join(fake.cpu, to, g, y));
}

static int fake_contrast(struct cuda_context *c, const struct contrast *work)
{
    (void)c;
    FAKE_CALL(fake.cpu->ops->contrast(fake.cpu, work));
}

static int fake_map(struct cuda_context *c, int kernel, const void *args, int64_t count)
{
    (void)c;
    FAKE_CALL(fake.cpu->ops->map(fake.cpu, kernel, args, count));
}

static int fake_sum(struct cuda_context *c, int reduction, const void *args, int64_t count, int n_sums,
                    double *sums)
{
    (void)c;
    FAKE_CALL(fake.cpu->ops->sum(fake.cpu, reduction, args, count, n_sums, sums));
}

static int fake_reduce(struct cuda_context *c, int reduction, const void *args, int64_t count, int n_sums,
                       double *sums_host)
{
    (void)c;
    FAKE_CALL(fake.cpu->ops->reduce(fake.cpu, reduction, args, count, n_sums, sums_host));
}

static const struct cuda_driver fake_driver = {
    .version = CUDA_DRIVER_VERSION,
    .kernels = KERNELS_FORM,
    .text = fake_text,
    .count = fake_count,
    .open = fake_open,
    .close = fake_close,
    .alloc = fake_alloc,
    .free = fake_free,
    .own_bytes = fake_own_bytes,
    .upload = fake_copy,
    .download = fake_copy,
    .copy = fake_copy,
    .zero = fake_zero,
    .sync = fake_sync,
    .upload_ahead = fake_copy,
    .arrive = fake_sync,
    .conv_new = fake_conv_new,
    .conv_free = fake_conv_free,
    .conv_pack = fake_conv_pack,
    .conv_forward = fake_conv_forward,
    .conv_backward = fake_conv_backward,
    .catch_up = fake_catch_up,
    .norm_sums = fake_norm_sums,
    .grad_join = fake_grad_join,
    .contrast = fake_contrast,
    .map = fake_map,
    .sum = fake_sum,
    .reduce = fake_reduce,
};

#endif
