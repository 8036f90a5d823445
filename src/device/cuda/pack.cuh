/* pack.cuh - where each number of a packed weight comes from, and the two sides of a step. */
#ifndef FALX_CUDA_PACK_CUH
#define FALX_CUDA_PACK_CUH

#include "device/cuda/conv_int.cuh"

/* The side of a step that is read and the one that is written. What a coarse voxel meets on a side are
 * `parts` runs of `length` channels: one on the coarse side; four on the fine side, for the two voxels side
 * by side in x are one run. Runs are filled up to chunks of 32. */
struct step_side {
    int parts, length, c;
    int chunks; /* of all parts */
};
struct step_sides {
    int to_fine;
    struct step_side from, to;
};

__host__ __device__ inline struct step_side step_side_of(int fine, int c)
{
    struct step_side s = {fine ? 4 : 1, fine ? 2 * c : c, c, 0};
    s.chunks = s.parts * divide_up(s.length, 32);
    return s;
}

__host__ __device__ inline struct step_sides step_sides_of(int to_fine, int c_from, int c_to)
{
    struct step_sides s = {to_fine, step_side_of(!to_fine, c_from), step_side_of(to_fine, c_to)};
    return s;
}

/* Number `at` of chunk `chunk` of a side: tap and channel; 0 behind the end of a run. */
__host__ __device__ inline int step_number(const struct step_side &s, int chunk, int at, int *tap,
                                           int *channel)
{
    int each = s.chunks / s.parts, part = chunk / each, offset = chunk % each * 32 + at;
    *tap = part * 2 + offset / s.c; /* on the coarse side: 0 */
    *channel = offset % s.c;
    return offset < s.length;
}

__host__ __device__ inline float pack_three(const struct pack_job &j, int word, int e)
{
    int k_all = j.backward ? j.c_out : j.c_in, n_all = j.backward ? j.c_in : j.c_out;
    int groups = divide_up(n_all, 16), lane = word % 32, order = word / 32 % 27;
    int group = word / (32 * 27) % groups, chunk = word / (32 * 27) / groups;
    int g = lane / 4, q = lane % 4, tile = e / 4;
    int k = 16 * chunk + 2 * q + e % 2 + e / 2 % 2 * 8, n = 16 * group + 4 * (g / 2) + 2 * tile + g % 2;
    int tap = order % 9 * 3 + order / 9; /* (x, z, y) -> (z, y, x) */
    if (k >= k_all || n >= n_all)
        return 0.0f;
    return j.backward ? j.from[((int64_t)(26 - tap) * j.c_in + n) * j.c_out + k]
                      : j.from[((int64_t)tap * j.c_in + k) * j.c_out + n];
}

__host__ __device__ inline float pack_first(const struct pack_job &j, int word, int e)
{
    int lane = word % 32, plane = word / 32 % 3, group = word / 96;
    int g = lane / 4, q = lane % 4, tile = e / 4, n = 16 * group + 4 * (g / 2) + 2 * tile + g % 2;
    int y = q / 2 + e / 2 % 2 * 2, x = q % 2 * 2 + e % 2;
    return y < 3 && x < 3 && n < j.c_out ? j.from[(int64_t)(plane * 9 + y * 3 + x) * j.c_out + n] : 0.0f;
}

__host__ __device__ inline float pack_one(const struct pack_job &j, int word, int e)
{
    int k_all = j.backward ? j.c_out : j.c_in, n_all = j.backward ? j.c_in : j.c_out;
    int groups = divide_up(n_all, 16), lane = word % 32, group = word / 32 % groups;
    int g = lane / 4, tile = e / 4, k = 16 * (word / 32 / groups) + lane % 4 * 4 + e % 4;
    int n = 16 * group + 4 * (g / 2) + 2 * tile + g % 2;
    if (k >= k_all || n >= n_all)
        return 0.0f;
    return j.backward ? j.from[(int64_t)n * j.c_out + k] : j.from[(int64_t)k * j.c_out + n];
}

__host__ __device__ inline float pack_step(const struct pack_job &j, int word, int e)
{
    int to_fine = j.up != j.backward, fine_c = j.up ? j.c_out : j.c_in, coarse_c = j.up ? j.c_in : j.c_out;
    struct step_sides s = step_sides_of(to_fine, to_fine ? coarse_c : fine_c, to_fine ? fine_c : coarse_c);
    int lane = word % 32, tile = word / 32 % 4, chunk = word / 128 % s.from.chunks;
    int group = word / 128 / s.from.chunks, g = lane / 4, q = lane % 4;
    int from_tap, from_c, to_tap, to_c;
    int inside = step_number(s.from, chunk, 8 * q + e, &from_tap, &from_c);
    inside &= step_number(s.to, group, 8 * (g / 2) + 2 * tile + g % 2, &to_tap, &to_c);
    if (!inside)
        return 0.0f;
    int tap = to_fine ? to_tap : from_tap, f = to_fine ? to_c : from_c, c = to_fine ? from_c : to_c;
    return j.from[((int64_t)tap * fine_c + f) * coarse_c + c];
}

/* The columns of a pass over float32: those of one tap are filled up to whole groups; a scatter, a step from
 * the coarse side to the fine one, has them for each of its taps. */
struct f32_columns {
    int tiles, groups_each; /* of 8 columns in a group; groups of a tap */
    int scatter;
    int groups, taps; /* all groups; taps that are summed over */
};

__host__ __device__ inline struct f32_columns f32_columns_of(int taps, int to_fine, int columns)
{
    struct f32_columns w = {columns > 16 ? 4 : 2, 0, taps == 8 && to_fine, 0, 0};
    w.groups_each = divide_up(columns, 8 * w.tiles);
    w.groups = w.groups_each * (w.scatter ? taps : 1);
    w.taps = w.scatter ? 1 : taps;
    return w;
}

__host__ __device__ inline float pack_f32(const struct pack_job &j, int word, int e)
{
    int k_all = j.backward ? j.c_out : j.c_in, n_all = j.backward ? j.c_in : j.c_out;
    int to_fine = j.backward != j.up;
    struct f32_columns w = f32_columns_of(j.taps, to_fine, n_all);
    int fine_c = j.up ? j.c_out : j.c_in, coarse_c = j.up ? j.c_in : j.c_out;
    int at = word % (32 * w.tiles), lane = at % 32, g = lane / 4, cores = j.kind == PACK_TF32;
    int rest = word / (32 * w.tiles);
    int tap = rest % w.taps, group = rest / w.taps % w.groups;
    int k = 16 * (rest / w.taps / w.groups), n = 8 * w.tiles * (group % w.groups_each);
    k += cores ? 4 * e + lane % 4 : at / (2 * w.tiles);
    n += cores ? 2 * w.tiles * (g / 2) + 2 * (at / 32) + g % 2 : 4 * (at % (2 * w.tiles)) + e;
    if (k >= k_all || n >= n_all)
        return 0.0f;
    if (w.scatter)
        tap = group / w.groups_each;
    if (j.taps == 27 && j.backward)
        tap = 26 - tap;
    return j.from[((int64_t)tap * fine_c + (to_fine ? n : k)) * coarse_c + (to_fine ? k : n)];
}

__host__ __device__ inline float pack_bf16(const struct pack_job &j, int word, int e)
{
    return j.kind == PACK_THREE   ? pack_three(j, word, e)
           : j.kind == PACK_FIRST ? pack_first(j, word, e)
           : j.kind == PACK_ONE   ? pack_one(j, word, e)
                                  : pack_step(j, word, e);
}

#endif
