/* isa.h - files in this folder are compiled once for every level of the processor: base (any x86-64),
 * avx2, avx512, avx512bf16 (Cooper Lake, Zen 4 and later), amx (Sapphire Rapids and later). ISA(name)
 * gives each copy its own symbol, name_base, name_avx2, ...; what leaves this folder is one table per
 * level, chosen at start (cpu.c).
 *
 * The code is plain C with GCC's vector types (vec.h), so one text serves all levels. Results of one
 * level are the same on every machine and for every number of threads; levels may differ in the last
 * bit.
 */
#ifndef FALX_ISA_H
#define FALX_ISA_H

#define ISA_JOIN_(a, b) a##_##b
#define ISA_JOIN(a, b) ISA_JOIN_(a, b)
#define ISA(name) ISA_JOIN(name, ISA_LEVEL)

#ifndef ISA_LEVEL /* an editor or linter looks at the file by itself */
#define ISA_LEVEL base
#define ISA_LEVEL_base 1
#endif

#include <stdint.h>

/* The processor's own prefetching stops at the end of a page and stays too close: asking for what comes
 * 2 KiB later makes rows arrive two to three times as fast from the third cache. Tensors are read from
 * begin to end, so that is where the next rows are. */
enum { ISA_AHEAD = 2048 };

static inline const void *isa_ahead(const void *from, int64_t bytes)
{
    return (const void *)((uintptr_t)from + (uintptr_t)bytes + ISA_AHEAD);
}

#endif
