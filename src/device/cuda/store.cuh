/* store.cuh - results on their way out: bias, what is there already, rounding to the stored type.
 *
 * A lane has N rows of W channels, and for each row its voxel or -1. Whole words are written where channels
 * and memory allow, number by number elsewhere. Values are left as they are stored.
 */
#ifndef FALX_CUDA_STORE_CUH
#define FALX_CUDA_STORE_CUH

#include "device/cuda/mma.cuh"

struct target {
    void *data;
    int f32, c;
    int aligned;       /* to 16 bytes */
    int add;           /* to what is there */
    const float *bias; /* (c) or NULL */
};

/* Whether runs of W channels are whole, aligned words. */
template <int W> __host__ __device__ __forceinline__ int target_whole(const struct target &t)
{
    return t.aligned && t.c % W == 0;
}

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

/* ---- words --------------------------------------------------------------------------------------------- */

__device__ __forceinline__ void words_load(uint32_t (&w)[2], const void *from)
{
    uint2 u = *(const uint2 *)from;
    w[0] = u.x;
    w[1] = u.y;
}

__device__ __forceinline__ void words_load(uint32_t (&w)[4], const void *from)
{
    uint4 u = *(const uint4 *)from;
    w[0] = u.x;
    w[1] = u.y;
    w[2] = u.z;
    w[3] = u.w;
}

__device__ __forceinline__ void words_store(void *to, const uint32_t (&w)[2])
{
    *(uint2 *)to = make_uint2(w[0], w[1]);
}

__device__ __forceinline__ void words_store(void *to, const uint32_t (&w)[4])
{
    *(uint4 *)to = make_uint4(w[0], w[1], w[2], w[3]);
}

template <int W> __device__ __forceinline__ void words_open(float (&v)[W], const uint32_t (&w)[W / 2])
{
#pragma unroll
    for (int k = 0; k < W; k++)
        v[k] = k % 2 ? bf16_high(w[k / 2]) : bf16_low(w[k / 2]);
}

/* v = w + v */
template <int W> __device__ __forceinline__ void words_add(float (&v)[W], const uint32_t (&w)[W / 2])
{
#pragma unroll
    for (int k = 0; k < W; k++)
        v[k] = (k % 2 ? bf16_high(w[k / 2]) : bf16_low(w[k / 2])) + v[k];
}

/* ---- rows ---------------------------------------------------------------------------------------------- */

template <int ADD, int N, int W>
__device__ __forceinline__ void put_bf16(const struct target &t, const int (&voxel)[N], int channel,
                                         float (&v)[N][W])
{
    enum { BATCH = ADD && N > 32 / W ? 32 / W : N }; /* loads in flight */
    unsigned short *to = (unsigned short *)t.data + channel;
#pragma unroll
    for (int first = 0; first < N; first += BATCH) {
        uint32_t old[BATCH][W / 2] = {};
#pragma unroll
        for (int i = first; i < first + BATCH; i++)
            if (ADD && voxel[i] >= 0)
                words_load(old[i - first], row_at(to, voxel[i], 2 * t.c));
#pragma unroll
        for (int i = first; i < first + BATCH; i++) {
            char *at = row_at(to, voxel[i], 2 * t.c);
            uint32_t w[W / 2];
            if (ADD)
                words_add(v[i], old[i - first]);
#pragma unroll
            for (int k = 0; k < W; k += 2)
                w[k / 2] = bf16_pair(v[i][k], v[i][k + 1]);
            if (voxel[i] >= 0)
                words_store(at, w);
            words_open(v[i], w);
        }
    }
}

template <int N, int W>
__device__ __forceinline__ void put_f32(const struct target &t, const int (&voxel)[N], int channel,
                                        float (&v)[N][W])
{
#pragma unroll
    for (int i = 0; i < N; i++) {
        float4 *to = (float4 *)row_at((float *)t.data + channel, voxel[i], 4 * t.c);
        if (voxel[i] < 0)
            continue;
#pragma unroll
        for (int k = 0; k < W; k += 4) {
            float4 f = t.add ? to[k / 4] : make_float4(0, 0, 0, 0);
            v[i][k] = f.x + v[i][k];
            v[i][k + 1] = f.y + v[i][k + 1];
            v[i][k + 2] = f.z + v[i][k + 2];
            v[i][k + 3] = f.w + v[i][k + 3];
            to[k / 4] = make_float4(v[i][k], v[i][k + 1], v[i][k + 2], v[i][k + 3]);
        }
    }
}

/* Few channels of float32, as the heads of a network have them. */
template <int N, int W>
__device__ __forceinline__ void put_few(const struct target &t, const int (&voxel)[N], int channel,
                                        float (&v)[N][W])
{
#pragma unroll
    for (int i = 0; i < N; i++) {
        float *to = (float *)row_at((float *)t.data + channel, voxel[i], 4 * t.c);
#pragma unroll
        for (int k = 0; k < W; k++)
            if (voxel[i] >= 0 && channel + k < t.c)
                to[k] = v[i][k];
    }
}

template <int N, int W>
__device__ __forceinline__ void put_any(const struct target &t, const int (&voxel)[N], int channel,
                                        float (&v)[N][W])
{
#pragma unroll
    for (int i = 0; i < N; i++)
#pragma unroll
        for (int k = 0; k < W; k++)
            if (voxel[i] >= 0 && channel + k < t.c)
                v[i][k] = target_one(t, (int64_t)voxel[i] * t.c + channel + k, v[i][k]);
}

template <int N, int W>
__device__ __forceinline__ void put_rows(const struct target &t, const int (&voxel)[N], int channel,
                                         float (&v)[N][W])
{
    if (t.bias)
#pragma unroll
        for (int k = 0; k < W; k++) {
            float bias = channel + k < t.c ? __ldg(t.bias + channel + k) : 0.0f;
#pragma unroll
            for (int i = 0; i < N; i++)
                v[i][k] += bias;
        }
    if (!target_whole<W>(t) && t.f32 && !t.add)
        put_few(t, voxel, channel, v);
    else if (!target_whole<W>(t))
        put_any(t, voxel, channel, v);
    else if (channel >= t.c)
        return;
    else if (t.f32)
        put_f32(t, voxel, channel, v);
    else if (t.add)
        put_bf16<1>(t, voxel, channel, v);
    else
        put_bf16<0>(t, voxel, channel, v);
}

#endif
