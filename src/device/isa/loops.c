/* loops.c - the bodies of kernels.h, compiled for one level of the processor and put behind one
 * table. See loops.h for how ranges are cut and sums are ordered.
 */
#include "device/isa/loops.h"
#include "device/isa/isa.h"
#include "device/kernels.h"

#define MAP_CASE_(name)                                                                                      \
    case KERNEL_##name: k_##name##_range(args, i0, i1); break;

static void loops_map(int kernel, const void *args, int64_t i0, int64_t i1)
{
    switch ((enum kernel_id)kernel) {
        KERNELS(MAP_CASE_)
    case N_KERNELS: break;
    }
}

#define REDUCE_CASE_(name)                                                                                   \
    case REDUCE_##name: r_##name##_range(args, i0, i1, rows); break;

/* At most REDUCE_RUN indices, added to rows. */
static void reduce_run(int reduction, const void *args, int64_t i0, int64_t i1, float *rows)
{
    switch ((enum reduce_id)reduction) {
        REDUCES(REDUCE_CASE_)
    case N_REDUCES: break;
    }
}

static void loops_reduce(int reduction, const void *args, int64_t i0, int64_t i1, int n_sums, double *sums)
{
    float rows[LOOP_SUMS * REDUCE_LANES]; /* 256 KiB of stack at most, touched as far as needed */
    CHECK(n_sums >= 0 && n_sums <= LOOP_SUMS);
    for (int s = 0; s < n_sums; s++)
        sums[s] = 0;
    for (int64_t i = i0; i < i1; i += REDUCE_RUN) {
        memset(rows, 0, (size_t)n_sums * REDUCE_LANES * sizeof *rows);
        reduce_run(reduction, args, i, i1 - i < REDUCE_RUN ? i1 : i + REDUCE_RUN, rows);
        for (int s = 0; s < n_sums; s++) {
            double sum = 0;
            for (int j = 0; j < REDUCE_LANES; j++)
                sum += (double)rows[s * REDUCE_LANES + j];
            sums[s] += sum;
        }
    }
}

extern const struct loop_ops ISA(loop_ops);
const struct loop_ops ISA(loop_ops) = {.map = loops_map, .reduce = loops_reduce};
