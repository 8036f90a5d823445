/* instructions.cuh - those of src/device/cuda/instructions.cuh, which says what they do, by the processor. */
#ifndef FALX_EMULATED_INSTRUCTIONS_CUH
#define FALX_EMULATED_INSTRUCTIONS_CUH

#include <cuda_runtime.h>

/* Shared memory is in the library's data: 32 bits tell any two of its places apart. */
static inline uint32_t shared_address(const void *p)
{
    return (uint32_t)((const unsigned char *)p - emulated_shared);
}

static inline unsigned char *emulated_at(uint32_t address)
{
    return emulated_shared + (int32_t)address;
}

static inline uint16_t emulated_half(const unsigned char *all, int tile, int row, int column)
{
    uint32_t address = emulated_given<uint32_t>(all, 8 * tile + row);
    uint16_t x;
    memcpy(&x, emulated_at(address) + 2 * column, sizeof x);
    return x;
}

static inline void tile_load(uint32_t a[4], uint32_t address)
{
    const unsigned char *all = emulated_exchange(&address, sizeof address);
    const int g = threadIdx.x % 32 / 4, q = threadIdx.x % 4;
    for (int i = 0; i < 4; i++)
        a[i] = emulated_half(all, i, g, 2 * q) | (uint32_t)emulated_half(all, i, g, 2 * q + 1) << 16;
}

static inline void tile_load_turned(uint32_t a[4], uint32_t address)
{
    const unsigned char *all = emulated_exchange(&address, sizeof address);
    const int g = threadIdx.x % 32 / 4, q = threadIdx.x % 4;
    for (int i = 0; i < 4; i++)
        a[i] = emulated_half(all, i, 2 * q, g) | (uint32_t)emulated_half(all, i, 2 * q + 1, g) << 16;
}

/* T(g, 2q..2q+1) of each lane to T(2q..2q+1, g): row 2q is in lanes 8q .. 8q+3. */
static inline uint32_t tile_turn(uint32_t t)
{
    const unsigned char *all = emulated_exchange(&t, sizeof t);
    const int g = threadIdx.x % 32 / 4, q = threadIdx.x % 4, up = g % 2 * 16;
    uint32_t first = emulated_given<uint32_t>(all, 8 * q + g / 2);
    uint32_t second = emulated_given<uint32_t>(all, 8 * q + 4 + g / 2);
    return (first >> up & 0xffffu) | (second >> up & 0xffffu) << 16;
}

/* d += A B of what the lanes gave as float: the four words of A, then the two of B, PER numbers each. Sums go
 * from k to k, each rounded: a GPU adds otherwise, but no worse. */
template <int PER> static inline void emulated_multiply(float d[4], const float *given)
{
    enum { LANE = EMULATED_GIFT / sizeof(float), OF_B = 4 * PER };
    const int g = threadIdx.x % 32 / 4, q = threadIdx.x % 4;
    for (int word = 0; word < 2; word++)
        for (int from = 0; from < 4; from++) {
            const float *a = given + (4 * g + from) * LANE + 2 * word * PER;
            const float *b = given + (8 * q + from) * LANE + OF_B + word * PER, *next = b + 4 * LANE;
            for (int i = 0; i < PER; i++) {
                d[0] += a[i] * b[i];
                d[1] += a[i] * next[i];
                d[2] += a[PER + i] * b[i];
                d[3] += a[PER + i] * next[i];
            }
        }
}

static inline void tile_multiply(float d[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
    const uint32_t words[6] = {a[0], a[1], a[2], a[3], b0, b1};
    float mine[12];
    for (int i = 0; i < 12; i++)
        mine[i] = __uint_as_float(i % 2 ? words[i / 2] & 0xffff0000u : words[i / 2] << 16);
    emulated_multiply<2>(d, (const float *)emulated_exchange(mine, sizeof mine));
}

/* Of 32 bits the last 13 are not looked at. */
static inline void tf32_multiply(float d[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
    const uint32_t words[6] = {a[0], a[1], a[2], a[3], b0, b1};
    float mine[6];
    for (int i = 0; i < 6; i++)
        mine[i] = __uint_as_float(words[i] & 0xffffe000u);
    emulated_multiply<1>(d, (const float *)emulated_exchange(mine, sizeof mine));
}

static inline uint32_t tf32_rounded(float f)
{
    const uint32_t u = __float_as_uint(f);
    return (u & 0x7f800000u) == 0x7f800000u ? u : (u + 0x1000u) & 0xffffe000u;
}

/* Copies are made as late as they may be (gpu.cc). */
void emulated_copy(void *to, const void *from);
void emulated_copies_end(void);
void emulated_copies_wait(int but);
static inline void word_copy(uint32_t to, const void *from)
{
    emulated_copy(emulated_at(to), from);
}
static inline void copies_end(void)
{
    emulated_copies_end();
}
template <int N> static inline void copies_wait(void)
{
    emulated_copies_wait(N);
}

static inline char *row_at(const void *base, int index, int bytes)
{
    return (char *)base + (int64_t)index * bytes;
}

static inline uint32_t emulated_bf16(float f)
{
    const uint32_t u = __float_as_uint(f);
    return f != f ? 0x7fffu : (u + 0x7fffu + (u >> 16 & 1u)) >> 16;
}

static inline uint32_t bf16_pair(float low, float high)
{
    return emulated_bf16(low) | emulated_bf16(high) << 16;
}

static inline float larger(float a, float b)
{
    return a != a ? a : b != b ? b : a > b ? a : b;
}

static inline float power_of_two(float x)
{
    return x < -126.0f ? 0.0f : exp2f(x);
}

#endif
