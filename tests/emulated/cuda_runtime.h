/* cuda_runtime.h - as much of CUDA as src/device/cuda asks for, with the processor as the GPU: gpu.cc runs
 * the threads of a block one after the other, each until it waits for others. So every kernel is run where
 * there is no GPU, and more strictly than by one (see gpu.cc). For tests; the Makefile turns
 * `kernel<<<...>>>(...)` into `emulated_launch(kernel, ...)(...)` and compiles with this header, not CUDA's.
 */
#ifndef FALX_EMULATED_CUDA_RUNTIME_H
#define FALX_EMULATED_CUDA_RUNTIME_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <functional>
#include <map>
#include <vector>

/* ---- the language -------------------------------------------------------------------------------- */

#define __CUDACC__
#ifndef EMULATED_HOST /* programs that run the same text themselves, as a host */
#define __CUDA_ARCH__ 900
#endif
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline)) /* after the headers of C++, which spell it so */
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) alignas(n)
#define __shared__ static /* blocks run one after the other, and find what the last one left */
#define SHARED_MEMORY(name) unsigned char *const name = emulated_shared

struct alignas(8) uint2 {
    uint32_t x, y;
};
struct alignas(16) uint4 {
    uint32_t x, y, z, w;
};
struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(16) double2 {
    double x, y;
};
static inline uint2 make_uint2(uint32_t x, uint32_t y)
{
    return {x, y};
}
static inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w)
{
    return {x, y, z, w};
}
static inline float2 make_float2(float x, float y)
{
    return {x, y};
}
static inline float4 make_float4(float x, float y, float z, float w)
{
    return {x, y, z, w};
}
static inline double2 make_double2(double x, double y)
{
    return {x, y};
}
struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
    {
    }
};

/* The thread that runs now. */
extern struct emulated_place {
    dim3 thread, block, threads, grid;
} emulated_place;
#define threadIdx (emulated_place.thread)
#define blockIdx (emulated_place.block)
#define blockDim (emulated_place.threads)
#define gridDim (emulated_place.grid)
extern unsigned char emulated_shared[];

/* ---- what threads do together -------------------------------------------------------------------- */

/* Every lane of the warp gives `bytes`, at most EMULATED_GIFT of them, and may then read what lane i gave at
 * [i * EMULATED_GIFT] until it gives again. */
enum { EMULATED_GIFT = 48 };
const unsigned char *emulated_exchange(const void *gift, size_t bytes);
void __syncthreads(void);
static inline void __syncwarp(void)
{
    emulated_exchange("", 0);
}
static inline void __threadfence(void)
{
}

template <class T> static inline T emulated_given(const unsigned char *all, int lane)
{
    T x;
    memcpy(&x, all + (lane & 31) * EMULATED_GIFT, sizeof x);
    return x;
}
template <class T> static inline T __shfl_xor_sync(unsigned, T x, int apart)
{
    return emulated_given<T>(emulated_exchange(&x, sizeof x), (int)(threadIdx.x % 32) ^ apart);
}
static inline int __any_sync(unsigned, int x)
{
    const unsigned char *all = emulated_exchange(&x, sizeof x);
    int some = 0;
    for (int lane = 0; lane < 32; lane++)
        some |= emulated_given<int>(all, lane);
    return some != 0;
}
static inline unsigned atomicAdd(unsigned *at, unsigned more)
{
    unsigned before = *at;
    *at += more;
    return before;
}

template <class T> static inline T __ldg(const T *p)
{
    return *p;
}
template <class T> static inline T __ldcg(const T *p)
{
    return *p;
}
static inline float __uint_as_float(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}
static inline uint32_t __float_as_uint(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}
static inline uint32_t __umulhi(uint32_t a, uint32_t b)
{
    return (uint32_t)((uint64_t)a * b >> 32);
}
static inline int min(int a, int b)
{
    return a < b ? a : b;
}
static inline float __fadd_rn(float a, float b)
{
    return a + b;
}
static inline float __fmul_rn(float a, float b)
{
    return a * b;
}

/* ---- the runtime --------------------------------------------------------------------------------- */

enum cudaError_t {
    cudaSuccess,
    cudaErrorInvalidValue,
    cudaErrorMemoryAllocation,
    cudaErrorNotReady,
    cudaErrorLaunchTimeout,
    cudaErrorInvalidConfiguration,
    cudaErrorUnknown
};
enum {
    cudaMemcpyHostToDevice,
    cudaMemcpyDeviceToHost,
    cudaMemcpyDeviceToDevice,
    cudaHostAllocDefault,
    cudaStreamNonBlocking,
    cudaEventDisableTiming,
    cudaFuncAttributeMaxDynamicSharedMemorySize
};
typedef struct emulated_stream *cudaStream_t; /* whatever is put into one is done at once */
typedef struct emulated_event *cudaEvent_t;
struct cudaDeviceProp {
    char name[96];
    int major, minor, multiProcessorCount;
};

cudaError_t cudaMalloc(void **out, size_t bytes);
cudaError_t cudaFree(void *memory);
cudaError_t cudaMemGetInfo(size_t *available, size_t *total);
cudaError_t cudaGetLastError(void);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *out, int index);
const char *cudaGetErrorString(cudaError_t code);
template <class T> cudaError_t cudaMalloc(T **out, size_t bytes)
{
    return cudaMalloc((void **)out, bytes);
}
static inline cudaError_t cudaHostAlloc(void **out, size_t bytes, int)
{
    return cudaMalloc(out, bytes);
}
static inline cudaError_t cudaFreeHost(void *memory)
{
    return cudaFree(memory);
}
static inline cudaError_t cudaMemcpy(void *to, const void *from, size_t n, int)
{
    return memcpy(to, from, n), cudaSuccess;
}
static inline cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n, int kind, cudaStream_t)
{
    return cudaMemcpy(to, from, n, kind);
}
static inline cudaError_t cudaMemsetAsync(void *at, int x, size_t n, cudaStream_t)
{
    return memset(at, x, n), cudaSuccess;
}
static inline cudaError_t cudaGetDeviceCount(int *n)
{
    return *n = 1, cudaSuccess;
}
static inline cudaError_t cudaSetDevice(int i)
{
    return i ? cudaErrorInvalidValue : cudaSuccess;
}
static inline cudaError_t cudaDriverGetVersion(int *v)
{
    return *v = 13000, cudaSuccess;
}
static inline cudaError_t cudaRuntimeGetVersion(int *v)
{
    return *v = 13000, cudaSuccess;
}
static inline cudaError_t cudaDeviceSynchronize(void)
{
    return cudaGetLastError();
}
static inline cudaError_t cudaDeviceGetStreamPriorityRange(int *a, int *b)
{
    return *a = *b = 0, cudaSuccess;
}
static inline cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, int, int)
{
    return *s = (cudaStream_t)1, cudaSuccess;
}
static inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, int)
{
    return *s = (cudaStream_t)1, cudaSuccess;
}
static inline cudaError_t cudaStreamDestroy(cudaStream_t)
{
    return cudaSuccess;
}
static inline cudaError_t cudaStreamQuery(cudaStream_t)
{
    return cudaSuccess;
}
static inline cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, int)
{
    return cudaSuccess;
}
static inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, int)
{
    return *e = (cudaEvent_t)1, cudaSuccess;
}
static inline cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t)
{
    return cudaSuccess;
}
static inline cudaError_t cudaEventDestroy(cudaEvent_t)
{
    return cudaSuccess;
}

/* ---- launches ------------------------------------------------------------------------------------ */

/* Most shared memory that a launch of this kernel may name; more than 0: is that now. */
int emulated_shared_limit(const void *kernel, int more);
template <class... P> cudaError_t cudaFuncSetAttribute(void (*kernel)(P...), int, int bytes)
{
    return emulated_shared_limit((const void *)kernel, bytes) < bytes ? cudaErrorInvalidValue : cudaSuccess;
}

void emulated_run(const void *kernel, dim3 grid, dim3 threads, size_t shared,
                  const std::function<void()> &thread);

template <class... P> struct emulated_start {
    void (*kernel)(P...);
    dim3 grid, threads;
    size_t shared;
    void operator()(P... arguments) const
    {
        emulated_run((const void *)kernel, grid, threads, shared, [&] { kernel(arguments...); });
    }
};
template <class... P>
emulated_start<P...> emulated_launch(void (*kernel)(P...), dim3 grid, dim3 threads, size_t shared,
                                     cudaStream_t)
{
    return {kernel, grid, threads, shared};
}

#endif
