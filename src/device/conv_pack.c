/* conv_pack.c - weights into the layouts that the products want.
 *
 * Both products of a convolution have their own layout of the same weights, so a unit of work is a run of
 * weights: it is read once and written to both while it is in cache.
 *
 *     weight    | tap 0: minor 0 .. 31 | 32 .. 63 | ... | tap 1: ...     runs of GEMM_PART minors
 *
 * To a product a run is some rows of B (row = (tap, minor), column = major), or some columns: row = (mirrored
 * tap, major), column = minor; or row = major, column = (tap, minor). Convolutions whose channels do not fill
 * runs are small: such a one is a unit.
 *
 * What changes weights, an optimiser or an average, can run in the same pass: weights are then packed before
 * they leave the cache.
 */
#include "device/conv_int.h"
#include "device/isa/loops.h"

static int run_units(const struct conv *v)
{
    int runs = v->minor % GEMM_PART == 0 && v->major % GEMM_PART == 0;
    return runs ? v->taps * v->minor / GEMM_PART : 1;
}

/* Of one group of columns. */
static void pack_group(const struct conv *v, const struct product *p, int group, const float *weight,
                       const struct gemm_part *part)
{
    struct gemm_shape s = {.n_segments = p->a.n_segments, .k = p->a.k, .n = columns_of(&p->cols, group)};
    char *to = p->packed + (size_t)group * p->packed_each;
    int64_t first = group * p->cols.per, tap = (int64_t)v->minor * v->major;
    if (!p->scatter && !p->mirrored) {
        v->gemm->pack(to, weight + first, v->major, v->taps * v->minor, &s, part);
        return;
    }
    struct gemm_turned t = {.b = weight + first * v->major, .ld = v->major, .block = v->major};
    if (p->mirrored) {
        t.b += (v->taps - 1) * tap;
        t.stride = tap;
        t.rows = (int64_t)v->taps * v->major;
    }
    v->gemm->pack_turned(to, &t, &s, part);
}

/* One run: all columns of some rows, or all rows (of a tap) of some columns. */
static void pack_run(const struct conv *v, const struct product *p, const float *weight, int run)
{
    int row = run * GEMM_PART, tap = row / v->minor, col = p->scatter ? row : row % v->minor;
    struct gemm_part part = {.row = row, .end = row + GEMM_PART};
    if (!p->scatter && !p->mirrored) {
        for (int group = 0; group < p->cols.groups; group++) {
            part.col_end = columns_of(&p->cols, group);
            pack_group(v, p, group, weight, &part);
        }
        return;
    }
    part.row = p->mirrored ? (int64_t)(v->taps - 1 - tap) * v->major : 0;
    part.end = part.row + v->major;
    part.col = col % p->cols.per;
    part.col_end = part.col + GEMM_PART;
    pack_group(v, p, col / p->cols.per, weight, &part);
}

static void pack_product(const struct conv *v, const struct product *p, const float *weight, int unit)
{
    if (run_units(v) > 1)
        pack_run(v, p, weight, unit);
    else
        for (int group = 0; group < p->cols.groups; group++)
            pack_group(v, p, group, weight, NULL);
}

/* A pass over the weights of some convolutions, in order of memory; with a kernel, over all numbers from the
 * first on, those between weights (biases and the like) included. */
struct pass {
    const struct conv_weight *list;
    int n;
    const struct loop_ops *loops; /* NULL: no kernel */
    int kernel;
    const void *args;
    const float *first; /* where the kernel's index 0 is */
    int64_t count;
};

/* Index of the first number behind convolution i. */
static int64_t end_of(const struct pass *p, int i)
{
    const struct conv *v = i >= 0 ? p->list[i].conv : NULL;
    return v ? p->list[i].weight - p->first + (int64_t)v->taps * v->minor * v->major : 0;
}

/* The numbers of a unit; those before a convolution belong to its first one. */
static void map_unit(const struct pass *p, int i, int unit)
{
    const struct conv *v = p->list[i].conv;
    int64_t begin = p->list[i].weight - p->first, run = (int64_t)GEMM_PART * v->major;
    int64_t from = unit > 0 ? begin + unit * run : end_of(p, i - 1);
    p->loops->map(p->kernel, p->args, from, run_units(v) > 1 ? begin + (unit + 1) * run : end_of(p, i));
}

/* Units of all convolutions, one after the other; then what is behind the last. */
static void pass_units(void *arg, char *scratch, int64_t first, int64_t end)
{
    const struct pass *p = arg;
    (void)scratch;
    for (; first < end; first++) {
        int64_t unit = first;
        int i = 0;
        for (; i < p->n && unit >= run_units(p->list[i].conv); i++)
            unit -= run_units(p->list[i].conv);
        if (i == p->n) {
            p->loops->map(p->kernel, p->args, end_of(p, i - 1), p->count);
            return;
        }
        const struct conv_weight *w = &p->list[i];
        if (p->loops)
            map_unit(p, i, (int)unit);
        pack_product(w->conv, &w->conv->forward, w->weight, (int)unit);
        if (w->conv->data.packed)
            pack_product(w->conv, &w->conv->data, w->weight, (int)unit);
    }
}

static void run_pass(struct device *dev, struct pass *p)
{
    int64_t units = p->loops ? 1 : 0;
    if (dev->error.code)
        return;
    for (int i = 0; i < p->n; i++)
        units += run_units(p->list[i].conv);
    conv_share(cpu_of(dev), pass_units, p, units, 1, 0);
}

void cpu_conv_pack(struct device *dev, const struct conv_weight *list, int n)
{
    run_pass(dev, &(struct pass){.list = list, .n = n});
}

void cpu_conv_update(struct device *dev, const struct conv_weight *list, int n, int kernel, const void *args,
                     const float *first, int64_t count)
{
    struct pass p = {.list = list,
                     .n = n,
                     .loops = cpu_isa(dev)->loops,
                     .kernel = kernel,
                     .args = args,
                     .first = first,
                     .count = count};
    for (int i = 0; i < p.n; i++)
        CHECK(p.list[i].weight >= first + end_of(&p, i - 1) && end_of(&p, i) <= count);
    run_pass(dev, &p);
}
