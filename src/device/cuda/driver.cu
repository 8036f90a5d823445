/* driver.cu - the one symbol of libfalx_cuda.so: the table of driver.h, with opening and memory here and the
 * arithmetic in the files beside (context.cuh).
 *
 * Waiting is asking again and again whether the stream is empty, so that a GPU that never answers is found
 * out after CUDA_PATIENCE seconds [G07] instead of hanging the program. Small results land in pinned
 * memory, which saves a staging copy and its wait; a system that refuses it is slower, nothing else [G12].
 *
 * Calls come from the thread that opened the context, or any other as long as there is one GPU in use.
 */
#include "device/cuda/context.cuh"
#include "device/kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { FIRST_SCRATCH = 32 << 20 }; /* enough for all sums; convolutions and contrast may want more */

static const char *driver_text(int code)
{
    return cudaGetErrorString((cudaError_t)code);
}

static int driver_count(int *out)
{
    *out = 0;
    return cudaGetDeviceCount(out);
}

/* ---- memory ---------------------------------------------------------------------------------- */

int cuda_own(struct cuda_context *c, void **out, size_t bytes)
{
    int code = cudaMalloc(out, bytes);
    if (code) {
        (void)cudaGetLastError(); /* told by the result; the next launch is not to blame */
        *out = NULL;
        return code;
    }
    c->own_bytes += bytes;
    return cudaSuccess;
}

void cuda_disown(struct cuda_context *c, void *memory, size_t bytes)
{
    if (!memory)
        return;
    cudaFree(memory); /* waits for those who use it */
    c->own_bytes -= bytes;
}

static size_t driver_own_bytes(const struct cuda_context *c)
{
    return c->own_bytes;
}

/* What is too small goes before its successor comes: there may be no room for both. If there is none for the
 * larger one either, the old size comes back, for convolutions made before count on it, and a caller may be
 * content with less [G05]. */
static int grow(struct cuda_context *c, void **scratch, size_t *has, size_t bytes)
{
    size_t before = *has;
    if (bytes <= before)
        return cudaSuccess;
    cuda_disown(c, *scratch, before);
    int code = cuda_own(c, scratch, bytes);
    *has = code ? 0 : bytes;
    if (!code || before == 0)
        return code;
    if (cuda_own(c, scratch, before))
        return cudaErrorUnknown; /* not forgiven: nothing can be computed any more, with less either */
    *has = before;
    return code;
}

int cuda_reserve(struct cuda_context *c, size_t bytes)
{
    return grow(c, &c->scratch, &c->scratch_bytes, bytes);
}

int cuda_reserve_beside(struct cuda_context *c, size_t bytes)
{
    return grow(c, &c->beside_scratch, &c->beside_bytes, bytes);
}

int cuda_reserve_ring(struct cuda_context *c, size_t bytes)
{
    return grow(c, &c->ring, &c->ring_bytes, bytes);
}

static int driver_alloc(struct cuda_context *c, void **out, size_t bytes)
{
    *out = NULL;
    bytes = bytes ? bytes : 1;
    int code = cudaMalloc(out, bytes);
    if (code) {
        (void)cudaGetLastError(); /* told by the result; the next launch is not to blame */
        *out = NULL;
        return code;
    }
    code = cudaMemsetAsync(*out, 0, bytes, c->stream);
    if (code) {
        cudaFree(*out);
        *out = NULL;
    }
    return code;
}

static int driver_free(struct cuda_context *c, void *memory)
{
    (void)c;
    return cudaFree(memory);
}

/* Memory of the host that is not pinned may be used again when this returns. */
static int driver_upload(struct cuda_context *c, void *to, const void *from_host, size_t bytes)
{
    return cudaMemcpyAsync(to, from_host, bytes, cudaMemcpyHostToDevice, c->stream);
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int driver_sync(struct cuda_context *c)
{
    double until = seconds() + CUDA_PATIENCE;
    int code = cudaStreamQuery(c->stream);
    if (code != cudaErrorNotReady)
        return code;
    while (code == cudaErrorNotReady && seconds() < until)
        code = cudaStreamQuery(c->stream);
    (void)cudaGetLastError(); /* "not ready" is kept as if it were an error */
    return code == cudaErrorNotReady ? cudaErrorLaunchTimeout : code;
}

int cuda_fetch(struct cuda_context *c, void *to_host, const void *from, size_t bytes)
{
    int lands = c->landing && bytes <= CUDA_LANDING;
    int code = lands ? cudaSuccess : driver_sync(c); /* a copy to other memory waits without end */
    if (!code)
        code = cudaMemcpyAsync(lands ? c->landing : to_host, from, bytes, cudaMemcpyDeviceToHost, c->stream);
    if (!code)
        code = driver_sync(c);
    if (!code && lands)
        memcpy(to_host, c->landing, bytes);
    return code;
}

static int driver_copy(struct cuda_context *c, void *to, const void *from, size_t bytes)
{
    return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, c->stream);
}

static int driver_zero(struct cuda_context *c, void *memory, size_t bytes)
{
    return cudaMemsetAsync(memory, 0, bytes, c->stream);
}

/* ---- uploads ahead --------------------------------------------------------------------------- */

/* From memory that is not pinned this returns when all has left it; the work of the stream goes on. */
static int driver_upload_ahead(struct cuda_context *c, void *to, const void *from_host, size_t bytes)
{
    int code = cudaStreamWaitEvent(c->ahead, c->left, 0);
    if (!code)
        code = cudaMemcpyAsync(to, from_host, bytes, cudaMemcpyHostToDevice, c->ahead);
    return code ? code : cudaEventRecord(c->arrived, c->ahead);
}

static int driver_arrive(struct cuda_context *c)
{
    int code = cudaEventRecord(c->left, c->stream);
    return code ? code : cudaStreamWaitEvent(c->stream, c->arrived, 0);
}

/* ---- opening --------------------------------------------------------------------------------- */

static void driver_close(struct cuda_context *c)
{
    if (!c)
        return;
    if (c->stream) {
        (void)driver_sync(c);
        cudaStreamDestroy(c->stream);
    }
    if (c->ahead)
        cudaStreamDestroy(c->ahead);
    if (c->beside)
        cudaStreamDestroy(c->beside);
    cudaEvent_t events[3 + CUDA_BESIDE] = {c->arrived, c->left, c->forked};
    memcpy(events + 3, c->done, sizeof c->done);
    for (cudaEvent_t e : events)
        if (e)
            cudaEventDestroy(e);
    cudaFree(c->scratch);
    cudaFree(c->beside_scratch);
    cudaFree(c->ring);
    cudaFreeHost(c->landing);
    free(c);
}

/* Versions are known even where no GPU can be opened: the reason may be in them. */
static int learn_facts(struct cuda_facts *f, int index)
{
    struct cudaDeviceProp p;
    memset(f, 0, sizeof *f);
    (void)cudaDriverGetVersion(&f->driver);
    (void)cudaRuntimeGetVersion(&f->runtime);
    int code = cudaSetDevice(index);
    if (!code)
        code = cudaGetDeviceProperties(&p, index);
    if (!code)
        code = cudaMemGetInfo(&f->available, &f->total);
    if (code)
        return code;
    snprintf(f->name, sizeof f->name, "%.95s", p.name);
    f->major = p.major;
    f->minor = p.minor;
    f->multiprocessors = p.multiProcessorCount;
    return cudaSuccess;
}

/* What is made beside has the lowest priority: whatever waits for nothing else goes first. */
static int make_streams(struct cuda_context *c)
{
    cudaEvent_t *events[3 + CUDA_BESIDE] = {&c->arrived, &c->left, &c->forked};
    int low = 0, high = 0, code = cudaDeviceGetStreamPriorityRange(&low, &high);
    for (int i = 0; i < CUDA_BESIDE; i++)
        events[3 + i] = &c->done[i];
    if (!code)
        code = cudaStreamCreateWithPriority(&c->stream, cudaStreamNonBlocking, high);
    if (!code)
        code = cudaStreamCreateWithPriority(&c->beside, cudaStreamNonBlocking, low);
    if (!code)
        code = cudaStreamCreateWithFlags(&c->ahead, cudaStreamNonBlocking);
    for (int i = 0; !code && i < 3 + CUDA_BESIDE; i++)
        code = cudaEventCreateWithFlags(events[i], cudaEventDisableTiming);
    return code;
}

static int driver_open(struct cuda_context **out, int index, enum precision precision,
                       struct cuda_facts *facts)
{
    *out = NULL;
    int code = learn_facts(facts, index);
    if (code)
        return code;
    struct cuda_context *c = (struct cuda_context *)calloc(1, sizeof *c);
    if (!c)
        return cudaErrorMemoryAllocation;
    c->precision = precision;
    code = make_streams(c);
    if (!code)
        code = cuda_reserve(c, FIRST_SCRATCH);
    if (code) {
        driver_close(c);
        return code;
    }
    if (cudaHostAlloc(&c->landing, CUDA_LANDING, cudaHostAllocDefault)) {
        (void)cudaGetLastError();
        c->landing = NULL;
    }
    *out = c;
    return cudaSuccess;
}

/* ---- the table ------------------------------------------------------------------------------- */

/* clang-format off */
static const struct cuda_driver table = {
    CUDA_DRIVER_VERSION, KERNELS_FORM,
    driver_text, driver_count, driver_open, driver_close,
    driver_alloc, driver_free, driver_own_bytes,
    driver_upload, cuda_fetch, driver_copy, driver_zero, driver_sync, driver_upload_ahead, driver_arrive,
    cuda_conv_new, cuda_conv_free, cuda_conv_pack, cuda_conv_forward, cuda_conv_backward, cuda_conv_pair,
    cuda_catch_up,
    cuda_heads_forward, cuda_heads_backward,
    cuda_norm_sums, cuda_grad_join, cuda_contrast, cuda_map, cuda_sum, cuda_reduce,
};
/* clang-format on */

extern "C" __attribute__((visibility("default"))) const struct cuda_driver *falx_cuda_driver(void)
{
    return &table;
}
