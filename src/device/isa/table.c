/* table.c - what one level of the processor offers: its products, its row movers, its voxel loops. */
#include "device/isa/isa.h"
#include "device/isa/levels.h"

extern const struct gemm_ops ISA(gemm_f32_ops);
extern const struct row_ops ISA(row_ops);
extern const struct loop_ops ISA(loop_ops);
extern const struct norm_ops ISA(norm_ops);
extern const struct contrast_ops ISA(contrast_ops);
#if defined(ISA_LEVEL_amx)
extern const struct gemm_ops ISA(gemm_amx_ops);
#define BF16_OPS &ISA(gemm_amx_ops)
#elif defined(__AVX512BF16__)
extern const struct gemm_ops ISA(gemm_pairs_ops);
#define BF16_OPS &ISA(gemm_pairs_ops)
#else
#define BF16_OPS NULL
#endif

extern const struct isa_ops ISA(isa_ops);
const struct isa_ops ISA(isa_ops) = {
    .f32 = &ISA(gemm_f32_ops),
    .bf16 = BF16_OPS,
    .rows = &ISA(row_ops),
    .loops = &ISA(loop_ops),
    .norm = &ISA(norm_ops),
    .contrast = &ISA(contrast_ops),
};
