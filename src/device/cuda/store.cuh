/* store.cuh - results on their way out: bias, what is there already, rounding to the stored type. */
#ifndef FALX_CUDA_STORE_CUH
#define FALX_CUDA_STORE_CUH

#include "device/cuda/mma.cuh"

struct target {
    void *data;
    int f32, c;
    int whole;         /* four channels at a time are whole, aligned words */
    int wide;          /* eight bf16 channels are one word of 16 bytes, aligned */
    int add;           /* to what is there */
    const float *bias; /* (c) or NULL */
};

__device__ __forceinline__ float target_one(const struct target &t, int64_t at, float v)
{
    if (t.f32) {
        float *to = (float *)t.data + at;
        v = t.add ? *to + v : v;
        *to = v;
        return v;
    }
    unsigned short *to = (unsigned short *)t.data + at;
    v = t.add ? bf16_low(*to) + v : v;
    uint32_t u = bf16_pair(v, 0.0f);
    *to = (unsigned short)u;
    return bf16_low(u);
}

__device__ __forceinline__ void target_bf16(const struct target &t, int64_t at, float v[4])
{
    uint2 *to = (uint2 *)((unsigned short *)t.data + at);
    if (t.add) {
        uint2 old = *to;
        v[0] = bf16_low(old.x) + v[0];
        v[1] = bf16_high(old.x) + v[1];
        v[2] = bf16_low(old.y) + v[2];
        v[3] = bf16_high(old.y) + v[3];
    }
    uint2 u = make_uint2(bf16_pair(v[0], v[1]), bf16_pair(v[2], v[3]));
    *to = u;
    v[0] = bf16_low(u.x);
    v[1] = bf16_high(u.x);
    v[2] = bf16_low(u.y);
    v[3] = bf16_high(u.y);
}

__device__ __forceinline__ void target_f32(const struct target &t, int64_t at, float v[4])
{
    float4 *to = (float4 *)((float *)t.data + at);
    if (t.add) {
        float4 old = *to;
        v[0] = old.x + v[0];
        v[1] = old.y + v[1];
        v[2] = old.z + v[2];
        v[3] = old.w + v[3];
    }
    *to = make_float4(v[0], v[1], v[2], v[3]);
}

/* Bias of channels `channel` .. +3. */
__device__ __forceinline__ void target_bias(const struct target &t, int channel, float b[4])
{
#pragma unroll
    for (int j = 0; j < 4; j++)
        b[j] = t.bias && channel + j < t.c ? __ldg(t.bias + channel + j) : 0.0f;
}

/* Channels `channel` .. +3 of a voxel; leaves in v what is stored. */
__device__ __forceinline__ void target_store(const struct target &t, int64_t voxel, int channel, float v[4])
{
    int64_t at = voxel * t.c + channel;
    if (t.whole && channel < t.c) {
        if (t.f32)
            target_f32(t, at, v);
        else
            target_bf16(t, at, v);
        return;
    }
#pragma unroll
    for (int j = 0; j < 4; j++)
        if (channel + j < t.c)
            v[j] = target_one(t, at + j, v[j]);
}

/* The same for eight, if wide. */
__device__ __forceinline__ void target_store_wide(const struct target &t, int64_t at, float v[8])
{
    uint4 *to = (uint4 *)((unsigned short *)t.data + at);
    if (t.add) {
        uint4 old = *to;
        const uint32_t w[4] = {old.x, old.y, old.z, old.w};
#pragma unroll
        for (int j = 0; j < 8; j++)
            v[j] = (j % 2 ? bf16_high(w[j / 2]) : bf16_low(w[j / 2])) + v[j];
    }
    *to = bf16_eight(v);
}

#endif
