/* loops_all.cu - every body of kernels.h as a GPU kernel, from the lists there. See loops.cuh. */
#include "device/cuda/loops_body.cuh"

KERNELS(MAP_KERNEL)
REDUCES(REDUCE_KERNEL)

void loops_all_map(const struct loops_launch *l, int kernel, const void *args)
{
    switch (kernel) {
        KERNELS(MAP_LAUNCH)
    }
}

void loops_all_reduce(const struct loops_launch *l, int reduction, const void *args)
{
    switch (reduction) {
        REDUCES(REDUCE_LAUNCH)
    }
}
