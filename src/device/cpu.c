/* cpu.c - the processor as a device: its memory, its voxel loops, its table of operations.
 *
 * The level of the processor (isa/levels.h) is chosen here, once, before the threads start. Voxel loops
 * are cut into blocks of LOOP_BLOCK indices that the threads take one by one; sums of blocks are kept
 * apart and added in the order of the blocks, so they do not depend on who made them.
 */
#include "device/cpu.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "device/contrast.h"
#include "device/isa/loops.h"
#include "device/norm.h"

/* ---- memory ---------------------------------------------------------------------------------- */

enum {
    ALIGN = 64, /* a cache line, and a row of an AMX tile */
    PAGE = 4096,
    HUGE = 4 << 20 /* from here on pages of 2 MiB pay: a third less time for an update of all weights */
};

/* What lies before an aligned address. */
struct block {
    void *raw;    /* what mem_alloc gave */
    size_t bytes; /* asked for */
};

static void *cpu_alloc(struct device *dev, size_t bytes)
{
    size_t total;
    if (size_add(&total, bytes, ALIGN + sizeof(struct block)) < 0)
        total = SIZE_MAX;
    char *raw = dev->error.code ? NULL : mem_alloc(&dev->error, total, 1);
    if (!raw)
        return NULL;
    char *at = raw + sizeof(struct block);
    at += (ALIGN - (uintptr_t)at % ALIGN) % ALIGN;
    memcpy(at - sizeof(struct block), &(struct block){raw, bytes}, sizeof(struct block));
    if (bytes >= HUGE) { /* a wish; refused, nothing is lost */
        char *page = at + (PAGE - (uintptr_t)at % PAGE) % PAGE;
        (void)madvise(page, bytes - PAGE, MADV_HUGEPAGE);
    }
    dev->bytes += bytes;
    return at;
}

static void cpu_free(struct device *dev, void *memory)
{
    struct block b;
    if (!memory)
        return;
    memcpy(&b, (char *)memory - sizeof b, sizeof b);
    dev->bytes -= b.bytes;
    mem_free(b.raw);
}

static void cpu_copy(struct device *dev, void *to, const void *from, size_t bytes)
{
    if (!dev->error.code && bytes > 0)
        memmove(to, from, bytes);
}

static void cpu_zero(struct device *dev, void *memory, size_t bytes)
{
    if (!dev->error.code && bytes > 0)
        memset(memory, 0, bytes);
}

static void cpu_sync(struct device *dev)
{
    (void)dev; /* every operation is finished when it returns */
}

int cpu_reserve(struct cpu *c, size_t each, size_t partial)
{
    each = (each + ALIGN - 1) / ALIGN * ALIGN;
    if (each > c->scratch_each) {
        size_t all;
        if (size_mul(&all, each, (size_t)pool_threads(c->base.pool)) < 0)
            all = SIZE_MAX;
        cpu_free(&c->base, c->scratch);
        c->scratch = cpu_alloc(&c->base, all);
        c->scratch_each = c->scratch ? each : 0;
    }
    if (partial > c->partial_bytes) {
        cpu_free(&c->base, c->partial);
        c->partial = cpu_alloc(&c->base, partial);
        c->partial_bytes = c->partial ? partial : 0;
    }
    return c->base.error.code ? -1 : 0;
}

/* ---- voxel loops ------------------------------------------------------------------------------- */

struct loop {
    const struct loop_ops *ops;
    int number; /* kernel or reduction */
    const void *args;
    int64_t first, count;
    int n_sums;
    double *sums; /* (blocks, n_sums) */
};

/* Blocks that a thread takes at a time: long loops are handed out in larger pieces, with the same bits. */
static int64_t blocks_at_once(int64_t blocks)
{
    return blocks >= 256 ? 16 : 1;
}

static void block_range(const struct loop *l, int64_t block, int64_t *i0, int64_t *i1)
{
    *i0 = l->first + block * LOOP_BLOCK;
    *i1 = *i0 + LOOP_BLOCK < l->count ? *i0 + LOOP_BLOCK : l->count;
}

static void map_blocks(void *arg, int64_t item)
{
    const struct loop *l = arg;
    int64_t blocks = (l->count + LOOP_BLOCK - 1) / LOOP_BLOCK, some = blocks_at_once(blocks), i0, i1;
    for (int64_t b = item * some; b < (item + 1) * some && b < blocks; b++) {
        block_range(l, b, &i0, &i1);
        l->ops->map(l->number, l->args, i0, i1);
    }
}

static void cpu_map(struct device *dev, int kernel, const void *args, int64_t count)
{
    struct loop l = {.ops = cpu_of(dev)->isa->loops, .number = kernel, .args = args, .count = count};
    int64_t blocks = (count + LOOP_BLOCK - 1) / LOOP_BLOCK, some = blocks_at_once(blocks);
    if (!dev->error.code)
        pool_run(dev->pool, (blocks + some - 1) / some, map_blocks, &l);
}

static void reduce_block(void *arg, int64_t block)
{
    const struct loop *l = arg;
    int64_t i0, i1;
    block_range(l, block, &i0, &i1);
    l->ops->reduce(l->number, l->args, i0, i1, l->n_sums, l->sums + block * l->n_sums);
}

static void cpu_sum(struct device *dev, int reduction, const void *args, int64_t count, int n_sums,
                    double *sums)
{
    struct loop l = {.ops = cpu_of(dev)->isa->loops,
                     .number = reduction,
                     .args = args,
                     .count = count,
                     .n_sums = n_sums,
                     .sums = cpu_of(dev)->block_sums};
    const int64_t group = (int64_t)LOOP_GROUP * LOOP_BLOCK;
    CHECK(n_sums >= 0 && n_sums <= LOOP_SUMS);
    for (int s = 0; s < n_sums; s++)
        sums[s] = 0;
    if (dev->error.code)
        return;
    for (l.first = 0; l.first < count; l.first += group) {
        int64_t left = count - l.first < group ? count - l.first : group;
        int64_t blocks = (left + LOOP_BLOCK - 1) / LOOP_BLOCK;
        pool_run(dev->pool, blocks, reduce_block, &l);
        for (int64_t b = 0; b < blocks; b++)
            for (int s = 0; s < n_sums; s++)
                sums[s] += l.sums[b * n_sums + s];
    }
}

/* ---- the table ----------------------------------------------------------------------------------- */

static void cpu_close(struct device *dev)
{
    struct cpu *c = cpu_of(dev);
    pool_free(dev->pool);
    cpu_free(&c->base, c->scratch);
    cpu_free(&c->base, c->partial);
    mem_free(c->block_sums);
    mem_free(c);
}

static const struct device_ops cpu_ops = {
    .name = "cpu",
    .close = cpu_close,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .upload = cpu_copy,
    .download = cpu_copy,
    .copy = cpu_copy,
    .zero = cpu_zero,
    .sync = cpu_sync,
    .conv_new = cpu_conv_new,
    .conv_free = cpu_conv_free,
    .conv_pack = cpu_conv_pack,
    .conv_update = cpu_conv_update,
    .conv_forward = cpu_conv_forward,
    .conv_backward = cpu_conv_backward,
    .norm_sums = cpu_norm_sums,
    .grad_join = cpu_grad_join,
    .contrast = cpu_contrast,
    .map = cpu_map,
    .sum = cpu_sum,
    .reduce = cpu_sum,
};

int cpu_has_bf16(void)
{
    return isa_level(NULL)->bf16 != NULL;
}

static int choose_precision(struct cpu *c, const struct device_options *o, struct error *e)
{
    c->base.precision = o->precision;
    if (o->precision == PRECISION_TF32)
        return fail(e, ERR_DEVICE, NULL, "tf32 needs an NVIDIA GPU; use precision f32 here");
    if (o->precision == PRECISION_AUTO)
        c->base.precision = c->isa->bf16 ? PRECISION_BF16 : PRECISION_F32;
    if (c->base.precision == PRECISION_BF16 && !c->isa->bf16)
        return fail(e, ERR_DEVICE, NULL,
                    "bf16 needs a processor with AMX or AVX512_BF16; use precision f32 here");
    return 0;
}

int cpu_open(struct device **out, const struct device_options *o, struct error *e)
{
    struct cpu *c = mem_alloc(e, 1, sizeof *c);
    if (!c)
        return -1;
    const char *level = o->level ? o->level : isa_best_name();
    c->base.ops = &cpu_ops;
    c->isa = isa_level(level);
    if (!c->isa) {
        fail(e, ERR_DEVICE, NULL, "this processor has no level \"%s\"", level);
        goto failed;
    }
    if (choose_precision(c, o, e) < 0)
        goto failed;
    c->block_sums = mem_alloc(e, (size_t)LOOP_GROUP * LOOP_SUMS, sizeof(double));
    if (!c->block_sums || pool_new(&c->base.pool, o->threads, e) < 0)
        goto failed;
    int threads = pool_threads(c->base.pool);
    snprintf(c->base.describe, sizeof c->base.describe, "cpu, %s, %d thread%s",
             c->base.precision == PRECISION_BF16 ? c->isa->bf16->name : c->isa->f32->name, threads,
             threads == 1 ? "" : "s");
    *out = &c->base;
    return 0;
failed:
    cpu_close(&c->base);
    return -1;
}
