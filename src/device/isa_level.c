/* isa_level.c - which of the compiled levels (isa/levels.h) this machine can run.
 *
 * A level needs every instruction group its files were compiled for (the Makefile's -march), not
 * only the one that gives it its name: a virtual machine may hide any of them. Whether the system
 * saves the wide registers is known to __builtin_cpu_supports. AMX needs one consent more: the
 * kernel gives a process the 8 KiB of tile registers only when asked, and threads inherit what was
 * granted before they started; where it refuses, the level below is the best.
 *
 * FALX_CPU_ISA=LEVEL caps the level, so that a newer CPU gives the bits of an older one. cpu_open() rejects
 * a level that the CPU lacks.
 */
#include "device/isa/levels.h"

#include <cpuid.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

extern const struct isa_ops isa_ops_base, isa_ops_avx2, isa_ops_avx512, isa_ops_avx512bf16, isa_ops_amx;

/* 1 if all the wanted bits are set in what cpuid answers for a leaf. */
static int cpuid_has(unsigned leaf, unsigned sub, unsigned eax, unsigned ebx, unsigned ecx, unsigned edx)
{
    unsigned a, b, c, d;
    return __get_cpuid_count(leaf, sub, &a, &b, &c, &d) && (a & eax) == eax && (b & ebx) == ebx &&
           (c & ecx) == ecx && (d & edx) == edx;
}

static unsigned bit(int n)
{
    return 1u << n;
}

static int has_base(void)
{
    return 1;
}

/* x86-64-v3; by bit: movbe, f16c; lzcnt. */
static int has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
           __builtin_cpu_supports("bmi2") && cpuid_has(1, 0, 0, 0, bit(22) | bit(29), 0) &&
           cpuid_has(0x80000001u, 0, 0, 0, bit(5), 0);
}

/* x86-64-v4. */
static int has_avx512(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
}

/* By bit of leaf 7's second part. */
static int has_avx512bf16(void)
{
    return cpuid_has(7, 1, bit(5), 0, 0, 0);
}

/* sapphirerapids; by bit of leaf 7: ebx ifma; ecx vbmi, vbmi2, gfni, vaes, vpclmulqdq, vnni,
 * bitalg, vpopcntdq; edx amx-bf16, fp16, amx-tile; and of its second part: eax avx-vnni. */
static int has_amx(void)
{
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 }; /* Linux, asm/prctl.h */
    unsigned ecx = bit(1) | bit(6) | bit(8) | bit(9) | bit(10) | bit(11) | bit(12) | bit(14);
    return cpuid_has(7, 0, 0, bit(21), ecx, bit(22) | bit(23) | bit(24)) &&
           cpuid_has(7, 1, bit(4), 0, 0, 0) &&
           syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}

const char *const isa_names[ISA_LEVELS] = {"base", "avx2", "avx512", "avx512bf16", "amx"};

static const struct {
    const struct isa_ops *ops;
    int (*here)(void);
} levels[ISA_LEVELS] = {
    {&isa_ops_base, has_base},     {&isa_ops_avx2, has_avx2},
    {&isa_ops_avx512, has_avx512}, {&isa_ops_avx512bf16, has_avx512bf16},
    {&isa_ops_amx, has_amx},
};

static int best; /* index of the best level that runs here, once asked */

/* FALX_CPU_ISA, NULL if unset or empty. */
static const char *requested_level(void)
{
    const char *name = getenv("FALX_CPU_ISA");
    return name && *name ? name : NULL;
}

static void ask(void)
{
    const char *wanted = requested_level();
    while (best + 1 < ISA_LEVELS && levels[best + 1].here())
        best++;
    for (int i = 0; i < best && wanted; i++)
        if (strcmp(isa_names[i], wanted) == 0)
            best = i;
}

static int best_level(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, ask);
    return best;
}

const struct isa_ops *isa_level(const char *name)
{
    int top = best_level();
    if (!name)
        return levels[top].ops;
    for (int i = 0; i <= top; i++)
        if (strcmp(isa_names[i], name) == 0)
            return levels[i].ops;
    return NULL;
}

const char *isa_best_name(void)
{
    const char *wanted = requested_level();
    return wanted ? wanted : isa_names[best_level()];
}
