/* conv_pack.cu - weights in the order in which the lanes of a warp want them (mma.cuh), as bf16, tf32 or
 * float32.
 *
 * Packed weights are words of 16 bytes, eight numbers each; indices from the slowest to the fastest:
 *
 *     THREE   (chunk of 16 k, group of 16 columns, tap x, tap z, tap y, lane)    conv_three.cu
 *     FIRST   (group of 16 columns, tap z, lane)                                 conv_first.cu
 *     ONE     (chunk of 16 k, group of 16 columns, lane)                         conv_one.cu
 *     STEP    (group of 32 columns, chunk of 32 k, tile of 8 columns, lane)      conv_step.cu
 *     TF32    (chunk of 16 k, group of columns, tap, tile of 8 columns, lane)    conv_f32.cu, four numbers
 *     F32     (chunk of 16 k, group of columns, tap, k, four columns)            conv_f32.cu, four numbers
 *
 * All convolutions of a network are packed by one launch.
 */
#include "device/cuda/conv_int.cuh"
#include "device/cuda/pack.cuh"

enum { THREADS = 256, JOBS = 40, BLOCKS = 128 };

struct pack_list {
    struct pack_job job[JOBS];
};

__global__ void __launch_bounds__(THREADS) pack_kernel(const __grid_constant__ struct pack_list list)
{
    const struct pack_job &j = list.job[blockIdx.y];
    for (int i = blockIdx.x * THREADS + threadIdx.x; i < j.words; i += BLOCKS * THREADS) {
        float v[8];
        if (j.kind >= PACK_F32) {
#pragma unroll
            for (int e = 0; e < 4; e++)
                v[e] = pack_f32(j, i, e);
            ((uint4 *)j.to)[i] = j.kind == PACK_F32 ? f32_four(v) : tf32_four(v);
            continue;
        }
#pragma unroll
        for (int e = 0; e < 8; e++)
            v[e] = pack_bf16(j, i, e);
        ((uint4 *)j.to)[i] = bf16_eight(v);
    }
}

struct pack_job conv_pack_job(const struct conv *v, int backward)
{
    const struct conv_shape *s = &v->s;
    struct pack_job j = {};
    int up = s->kind == CONV_UP, k = backward ? s->c_out : s->c_in, n = backward ? s->c_in : s->c_out;
    j.to = v->packed[backward];
    j.backward = backward;
    j.up = up;
    j.c_in = s->c_in;
    j.c_out = s->c_out;
    j.taps = v->taps;
    if (!v->bf16) {
        struct f32_columns w = f32_columns_of(v->taps, backward != up, n);
        j.kind = v->tf32 ? PACK_TF32 : PACK_F32;
        j.words = divide_up(k, 16) * w.groups * w.taps * w.tiles * 32;
    } else if (s->kind == CONV_3 && k == 1 && !backward) {
        j.kind = PACK_FIRST;
        j.words = divide_up(n, 16) * 3 * 32;
    } else if (s->kind == CONV_3) {
        j.kind = PACK_THREE;
        j.words = divide_up(k, 16) * divide_up(n, 16) * 27 * 32;
    } else if (s->kind == CONV_1) {
        j.kind = PACK_ONE;
        j.words = divide_up(k, 16) * divide_up(n, 16) * 32;
    } else {
        j.kind = PACK_STEP;
        struct step_sides w = step_sides_of(up != backward, k, n);
        j.words = w.to.chunks * w.from.chunks * 4 * 32;
    }
    return j;
}

int conv_pack_run(struct cuda_context *c, const struct pack_job *jobs, int n)
{
    for (int first = 0; first < n; first += JOBS) {
        struct pack_list list = {};
        int some = n - first < JOBS ? n - first : JOBS;
        for (int i = 0; i < some; i++)
            list.job[i] = jobs[first + i];
        int e = cuda_start(pack_kernel, dim3(BLOCKS, some), THREADS, 0, c->stream, list);
        if (e)
            return e;
    }
    return 0;
}
