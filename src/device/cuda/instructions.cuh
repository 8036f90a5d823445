/* instructions.cuh - the instructions that have no name in CUDA C: those of the tensor cores and a few more.
 * All assembly stands here, so that a processor can stand in for a GPU (tests/emulated).
 *
 * A warp multiplies A (16 x 16) by B (16 x 8) into D (16 x 8, float). With g = lane / 4 and q = lane % 4
 * a lane holds, two numbers to a word,
 *
 *     a[0] = A(g, 2q..2q+1)     a[1] = A(g+8, 2q..)     a[2] = A(g, 2q+8..)     a[3] = A(g+8, 2q+8..)
 *     b[0] = B(2q..2q+1, g)     b[1] = B(2q+8.., g)
 *     d[0..1] = D(g, 2q..2q+1)  d[2..3] = D(g+8, 2q..)
 *
 * tile_load reads four 8 x 8 tiles from shared memory: lanes 8i .. 8i+7 name the rows of tile i (16 bytes
 * each), and word i of a lane becomes T(g, 2q..2q+1); tile_load_turned gives T(2q..2q+1, g) instead.
 * tile_turn makes the second out of the first, of one tile that is in registers.
 *
 * tf32_multiply takes A (16 x 8) and B (8 x 8) of tf32, float32 with a mantissa of ten bits, one number to a
 * word; tile_load's word i of rows of four such numbers is a[i]:
 *
 *     a[0] = A(g, q)    a[1] = A(g+8, q)    a[2] = A(g, q+4)    a[3] = A(g+8, q+4)
 *     b0 = B(q, g)      b1 = B(q+4, g)      d as above
 *
 * word_copy brings 16 bytes from memory to shared memory without waiting; copies_end closes a group of them,
 * and copies_wait<N> waits for all groups of this thread but the last N.
 */
#ifndef FALX_CUDA_INSTRUCTIONS_CUH
#define FALX_CUDA_INSTRUCTIONS_CUH

#include <cuda_runtime.h>
#include <stdint.h>

__device__ __forceinline__ uint32_t shared_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

__device__ __forceinline__ void tile_load(uint32_t a[4], uint32_t address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
                 : "r"(address)
                 : "memory");
}

__device__ __forceinline__ void tile_load_turned(uint32_t a[4], uint32_t address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
                 : "r"(address)
                 : "memory");
}

__device__ __forceinline__ uint32_t tile_turn(uint32_t t)
{
    uint32_t turned;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(turned) : "r"(t));
    return turned;
}

__device__ __forceinline__ void tile_multiply(float d[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ void tf32_multiply(float d[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* To the nearest, ties away from 0. */
__device__ __forceinline__ uint32_t tf32_rounded(float f)
{
    uint32_t u;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(u) : "f"(f));
    return u;
}

__device__ __forceinline__ void word_copy(uint32_t to, const void *from)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" : : "r"(to), "l"(from) : "memory");
}

__device__ __forceinline__ void copies_end(void)
{
    asm volatile("cp.async.commit_group;" : : : "memory");
}

template <int N> __device__ __forceinline__ void copies_wait(void)
{
    asm volatile("cp.async.wait_group %0;" : : "n"(N) : "memory");
}

/* base + index * bytes, in one instruction. */
__device__ __forceinline__ char *row_at(const void *base, int index, int bytes)
{
    char *at;
    asm("mad.wide.s32 %0, %1, %2, %3;" : "=l"(at) : "r"(index), "r"(bytes), "l"(base));
    return at;
}

/* Two numbers to one word, the first in the low half; to nearest even. */
__device__ __forceinline__ uint32_t bf16_pair(float low, float high)
{
    uint32_t u;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(u) : "f"(high), "f"(low));
    return u;
}

/* The larger one; not a number if one is not. */
__device__ __forceinline__ float larger(float a, float b)
{
    float c;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
    return c;
}

/* 2^x, relative error 2^-22; 0 for -infinity and for what would be denormal. */
__device__ __forceinline__ float power_of_two(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

#endif
