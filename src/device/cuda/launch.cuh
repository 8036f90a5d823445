/* launch.cuh - starting a kernel: with as much shared memory as it asks for, and its error code. */
#ifndef FALX_CUDA_LAUNCH_CUH
#define FALX_CUDA_LAUNCH_CUH

#include <cuda_runtime.h>

/* Shared memory whose size is named at the launch. */
#ifndef SHARED_MEMORY
#define SHARED_MEMORY(name) extern __shared__ __align__(128) unsigned char name[]
#endif

template <class... P, class... A>
static int cuda_start(void (*kernel)(P...), dim3 grid, int threads, size_t shared, cudaStream_t stream,
                      A... arguments)
{
    if (grid.x == 0 || grid.y == 0 || grid.z == 0)
        return 0;
    if (shared > 40 << 10) { /* of 48 that need no asking a kernel may have named 8 itself */
        cudaError_t e =
            cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
        if (e != cudaSuccess)
            return e;
    }
    kernel<<<grid, threads, shared, stream>>>(arguments...);
    return cudaGetLastError();
}

#endif
