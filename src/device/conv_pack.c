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
 */
#include "device/conv_int.h"

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

/* Units of all convolutions, one after the other. */
static void pack_units(void *arg, char *scratch, int64_t first, int64_t end)
{
    (void)scratch;
    for (int64_t i = first; i < end; i++) {
        const struct conv_weight *w = arg;
        int64_t unit = i;
        for (; unit >= run_units(w->conv); w++)
            unit -= run_units(w->conv);
        pack_product(w->conv, &w->conv->forward, w->weight, (int)unit);
        if (w->conv->data.packed)
            pack_product(w->conv, &w->conv->data, w->weight, (int)unit);
    }
}

void cpu_conv_pack(struct device *dev, const struct conv_weight *list, int n)
{
    int64_t units = 0;
    if (dev->error.code)
        return;
    for (int i = 0; i < n; i++)
        units += run_units(list[i].conv);
    conv_share(cpu_of(dev), pack_units, (void *)(uintptr_t)list, units, 1, 0);
}
