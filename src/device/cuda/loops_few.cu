/* loops_few.cu - the bodies with arrays over classes, for up to LOOPS_FEW of them. See loops.cuh. */
#define KERNEL_FEW LOOPS_FEW
#include "device/cuda/loops_body.cuh"

LOOPS_CLASS_MAPS(MAP_KERNEL)
LOOPS_CLASS_REDUCES(REDUCE_KERNEL)

void loops_few_map(const struct loops_launch *l, int kernel, const void *args)
{
    switch (kernel) {
        LOOPS_CLASS_MAPS(MAP_LAUNCH)
    }
}

void loops_few_reduce(const struct loops_launch *l, int reduction, const void *args)
{
    switch (reduction) {
        LOOPS_CLASS_REDUCES(REDUCE_LAUNCH)
    }
}
