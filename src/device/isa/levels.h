/* levels.h - the levels of the processor that the hot loops are compiled for, and which to use here. */
#ifndef FALX_LEVELS_H
#define FALX_LEVELS_H

#include "device/gemm.h"

struct row_ops;  /* rows.h: bring rows through conv.h's formulas into blocks, and blocks back to tensors */
struct loop_ops; /* loops.h: the voxel loops of kernels.h */
struct norm_ops; /* norm.h: sums of batch norm's backward pass */
struct contrast_ops; /* contrast.h: tiles of the contrastive loss */

struct isa_ops {
    const struct gemm_ops *f32;
    const struct gemm_ops *bf16; /* NULL: not multiplied fast at this level */
    const struct row_ops *rows;
    const struct loop_ops *loops;
    const struct norm_ops *norm;
    const struct contrast_ops *contrast;
};

/* From the least to the best; each contains the ones before it. */
enum { ISA_LEVELS = 5 };
extern const char *const isa_names[ISA_LEVELS]; /* "base", "avx2", "avx512", "avx512bf16", "amx" */

/* The best level of this machine, or the one named if the machine has it, else NULL. The first call asks
 * the kernel for the AMX tiles: before any thread is started. */
const struct isa_ops *isa_level(const char *name);
const char *isa_best_name(void); /* or the value of FALX_CPU_ISA, valid or not */

#endif
