/* gpu.cc - the processor as a GPU: blocks one after the other, the threads of a block as fibers.
 *
 *     a thread runs until it gives something to its warp or comes to __syncthreads();
 *     a warp goes on when all its lanes have given, a block when all its threads have come
 *
 * It is stricter than a GPU:
 *   - a warp whose lanes wait for different things is stuck there, and ends the program here;
 *   - memory is given out full of 0xFF, which is NaN, and its end lies before a page that cannot be touched;
 *     shared memory holds what the last block left;
 *   - asynchronous copies are made as late as they may be;
 *   - with FALX_EMULATED_MEMORY there are so many MiB of memory;
 *   - with FALX_EMULATED_ORDER=backwards the last thread and the last block run first: what depends on the
 *     order of threads comes out otherwise.
 * What it does not see: races between streams, and what a GPU's compiler makes of the text.
 */
#include "cuda_runtime.h"

#include <sys/mman.h>
#include <unistd.h>

enum { LANES = 32, MOST_THREADS = 1024, STACK = 512 << 10 };
enum { SHARED_MOST = 227 << 10, SHARED_UNASKED = 48 << 10 }; /* of Hopper; without cudaFuncSetAttribute */
alignas(1024) unsigned char emulated_shared[SHARED_MOST];
struct emulated_place emulated_place;

struct copy {
    void *to;
    const void *from;
};
enum wait { RUNS, FOR_WARP, FOR_BLOCK, ENDED };
struct fiber {
    void *stack, *at; /* at: its stack pointer while it does not run */
    enum wait wait;
    int turn; /* which of two sets of gifts it writes next */
    std::vector<std::vector<copy>> groups;
};
static struct fiber fibers[MOST_THREADS];
alignas(16) static unsigned char gifts[MOST_THREADS / LANES][2][LANES * EMULATED_GIFT];
static struct fiber *here;
static void *scheduler;
static const std::function<void()> *program;
static cudaError_t last_error;

static void stuck(const char *why)
{
    fprintf(stderr, "emulated GPU: block %u,%u,%u, thread %u: %s\n", blockIdx.x, blockIdx.y, blockIdx.z,
            threadIdx.x, why);
    abort();
}

/* ---- fibers ---------------------------------------------------------------------------------------- */

/* Keeps the registers that a call keeps, exchanges stacks, and returns on the other one. */
extern "C" void emulated_switch(void **from, void *to);
asm(".text\n.globl emulated_switch\n.hidden emulated_switch\nemulated_switch:\n"
    "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
    "mov %rsp, (%rdi)\nmov %rsi, %rsp\n"
    "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n");

static void leave(enum wait wait)
{
    here->wait = wait;
    emulated_switch(&here->at, scheduler);
}

static void fiber_main(void)
{
    (*program)();
    leave(ENDED);
}

static void fiber_begin(struct fiber *f)
{
    if (!f->stack) {
        f->stack =
            mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (f->stack == MAP_FAILED)
            stuck("no memory for a stack");
    }
    void **top = (void **)((char *)f->stack + STACK) - 1; /* as after a call: 8 off a multiple of 16 */
    *--top = (void *)fiber_main;
    f->at = top - 6;
    f->wait = RUNS;
    f->turn = 0;
    f->groups.assign(1, {});
}

static void fiber_run(int i)
{
    here = &fibers[i];
    threadIdx = dim3((unsigned)i);
    emulated_switch(&scheduler, here->at);
}

/* ---- together ------------------------------------------------------------------------------------------ */

const unsigned char *emulated_exchange(const void *gift, size_t bytes)
{
    struct fiber *f = here;
    const int i = (int)(f - fibers);
    unsigned char *set = gifts[i / LANES][f->turn];
    if (bytes > EMULATED_GIFT)
        stuck("too much is exchanged");
    memcpy(set + i % LANES * EMULATED_GIFT, gift, bytes);
    f->turn ^= 1;
    leave(FOR_WARP);
    return set;
}

void __syncthreads(void)
{
    leave(FOR_BLOCK);
}

/* Runs the lanes of a warp until none can go on. */
static void run_warp(int first, int n, int backwards)
{
    for (int given = 1; given;) {
        int ended = 0;
        given = 0;
        for (int k = 0; k < n; k++) {
            const int i = first + (backwards ? n - 1 - k : k);
            if (fibers[i].wait == RUNS)
                fiber_run(i);
            given += fibers[i].wait == FOR_WARP;
            ended += fibers[i].wait == ENDED;
        }
        if (given && given + ended < n)
            stuck("a warp has lanes that wait for each other and others that do not");
        for (int i = first; i < first + n; i++)
            if (fibers[i].wait == FOR_WARP)
                fibers[i].wait = RUNS;
    }
}

static void run_block(int threads, int backwards)
{
    const int warps = (threads + LANES - 1) / LANES;
    for (int i = 0; i < threads; i++)
        fiber_begin(&fibers[i]);
    for (int waiting = 1; waiting;) {
        waiting = 0;
        for (int k = 0; k < warps; k++) {
            const int w = backwards ? warps - 1 - k : k, first = w * LANES;
            run_warp(first, threads - first < LANES ? threads - first : LANES, backwards);
        }
        for (int i = 0; i < threads; i++) {
            waiting += fibers[i].wait == FOR_BLOCK;
            fibers[i].wait = fibers[i].wait == FOR_BLOCK ? RUNS : fibers[i].wait;
        }
    }
}

void emulated_run(const void *kernel, dim3 grid, dim3 threads, size_t shared,
                  const std::function<void()> &thread)
{
    const char *order = getenv("FALX_EMULATED_ORDER");
    const int backwards = order && strcmp(order, "backwards") == 0;
    const int64_t blocks = (int64_t)grid.x * grid.y * grid.z;
    if (blocks == 0 || grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535 ||
        threads.y * threads.z != 1 || threads.x == 0 || threads.x > MOST_THREADS ||
        shared > (size_t)emulated_shared_limit(kernel, 0)) {
        last_error = cudaErrorInvalidConfiguration;
        return;
    }
    gridDim = grid;
    blockDim = threads;
    program = &thread;
    for (int64_t k = 0; k < blocks; k++) {
        const int64_t b = backwards ? blocks - 1 - k : k;
        blockIdx =
            dim3((unsigned)(b % grid.x), (unsigned)(b / grid.x % grid.y), (unsigned)(b / grid.x / grid.y));
        run_block((int)threads.x, backwards);
    }
}

/* ---- copies -------------------------------------------------------------------------------------------- */

void emulated_copy(void *to, const void *from)
{
    if (((uintptr_t)to | (uintptr_t)from) % 16)
        stuck("a copy of 16 bytes from or to a place that is no multiple of 16");
    here->groups.back().push_back({to, from});
}

void emulated_copies_end(void)
{
    here->groups.push_back({});
}

/* The last group is open; of those before all but `but` are made. */
void emulated_copies_wait(int but)
{
    auto &groups = here->groups;
    const int n = (int)groups.size() - 1 - but;
    for (int i = 0; i < n; i++)
        for (const copy &c : groups[i])
            memcpy(c.to, c.from, 16);
    if (n > 0)
        groups.erase(groups.begin(), groups.begin() + n);
}

/* ---- runtime ------------------------------------------------------------------------------------------- */

static size_t memory_total(void)
{
    const char *mib = getenv("FALX_EMULATED_MEMORY");
    return (size_t)(mib ? atoll(mib) : 8192) << 20;
}
static size_t memory_used;

cudaError_t cudaMemGetInfo(size_t *available, size_t *total)
{
    *total = memory_total();
    *available = *total - memory_used;
    return cudaSuccess;
}

/* Where each piece of memory was mapped, and how much. */
static std::map<void *, std::pair<void *, size_t>> &pieces(void)
{
    static std::map<void *, std::pair<void *, size_t>> all;
    return all;
}

cudaError_t cudaMalloc(void **out, size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), used = (bytes + 255) / 256 * 256;
    const size_t whole = (used + page - 1) / page * page;
    if (memory_used + whole > memory_total())
        return last_error = cudaErrorMemoryAllocation;
    char *all = (char *)mmap(NULL, whole + page, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED || mprotect(all + whole, page, PROT_NONE) < 0)
        return cudaErrorMemoryAllocation;
    *out = all + whole - used;
    memset(*out, 0xff, used);
    pieces()[*out] = {all, whole + page};
    memory_used += whole;
    return cudaSuccess;
}

cudaError_t cudaFree(void *memory)
{
    auto at = pieces().find(memory);
    if (memory && at == pieces().end())
        return cudaErrorInvalidValue;
    if (memory) {
        munmap(at->second.first, at->second.second);
        memory_used -= at->second.second - (size_t)sysconf(_SC_PAGESIZE);
        pieces().erase(at);
    }
    return cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t e = last_error;
    last_error = cudaSuccess;
    return e;
}

const char *cudaGetErrorString(cudaError_t code)
{
    static const char *const texts[] = {"no error", "invalid value",         "out of memory", "not ready",
                                        "timeout",  "invalid configuration", "unknown error"};
    return (unsigned)code < sizeof texts / sizeof *texts ? texts[code] : "unknown error";
}

/* As many multiprocessors as an H200: launches are split by their number. */
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *out, int index)
{
    *out = {"emulated GPU", 9, 0, 132};
    return index ? cudaErrorInvalidValue : cudaSuccess;
}

int emulated_shared_limit(const void *kernel, int more)
{
    static std::map<const void *, int> limits;
    if (more > SHARED_MOST)
        return 0;
    if (more > 0)
        limits[kernel] = more;
    return limits.count(kernel) ? limits[kernel] : SHARED_UNASKED;
}
