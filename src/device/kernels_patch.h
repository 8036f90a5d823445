/* kernels_patch.h - a training patch cut out of a case, for devices that keep the cases in their memory.
 * Part of kernels.h; see there for the form of a body. The sampler of the processor (sample/warp.c) reads
 * cases through the same functions, so both make the same patch (tests/test_augment.c).
 *
 * Patch voxel p comes from position x = offset + matrix p of the case: the image linearly, label and mask
 * from the nearest voxel, all 0 outside.
 */
#ifndef FALX_KERNELS_PATCH_H
#define FALX_KERNELS_PATCH_H

KERNEL int k_floor(float x)
{
    int i = (int)x;
    return i - (x < (float)i);
}

/* Linear where some of the eight neighbours are outside. */
KERNEL float k_read_border(const float *image, const int dims[3], int64_t stride, const int i[3],
                           const float t[3])
{
    float sum = 0;
    for (int corner = 0; corner < 8; corner++) {
        float weight = 1;
        int64_t at = 0;
        int inside = 1;
        for (int a = 0; a < 3; a++) {
            int up = corner >> (2 - a) & 1, p = i[a] + up;
            inside &= p >= 0 && p < dims[a];
            weight *= up ? t[a] : 1 - t[a];
            at = at * dims[a] + (inside ? p : 0);
        }
        if (inside)
            sum += weight * image[at * stride];
    }
    return sum;
}

/* One channel, whose voxels are `stride` apart, at position x. */
KERNEL float k_read_linear(const float *image, const int dims[3], int64_t stride, const float x[3])
{
    int i[3], inside = 1;
    float t[3];
    for (int a = 0; a < 3; a++) {
        i[a] = k_floor(x[a]);
        t[a] = x[a] - (float)i[a];
        inside &= i[a] >= 0 && i[a] < dims[a] - 1;
    }
    if (!inside)
        return k_read_border(image, dims, stride, i, t);
    const int64_t n = stride, sj = dims[2] * n, si = dims[1] * sj;
    const float *p = image + i[0] * si + i[1] * sj + i[2] * n;
    float a = p[0] + t[2] * (p[n] - p[0]);
    float b = p[sj] + t[2] * (p[sj + n] - p[sj]);
    float d = p[si] + t[2] * (p[si + n] - p[si]);
    float e = p[si + sj] + t[2] * (p[si + sj + n] - p[si + sj]);
    float ab = a + t[1] * (b - a), de = d + t[1] * (e - d);
    return ab + t[0] * (de - ab);
}

/* Index of the voxel nearest to x, or -1 outside. */
KERNEL int64_t k_read_nearest(const int dims[3], const float x[3])
{
    int64_t at = 0;
    for (int a = 0; a < 3; a++) {
        int p = k_floor(x[a] + 0.5f);
        if (p < 0 || p >= dims[a])
            return -1;
        at = at * dims[a] + p;
    }
    return at;
}

/* Where a patch lies in its case, and what is done to its values: value * factor + shift after the noise,
 * whose numbers are the normals of blocks noise_first, noise_first + 1, ..., four values each. */
struct k_patch {
    float *image;          /* (d, h, w, c) */
    uint8_t *label, *mask; /* (d, h, w), or NULL: not asked for */
    const float *case_image;
    const uint8_t *case_label, *case_mask; /* NULL: zeros */
    const uint8_t *exchange;               /* what each class becomes, or NULL: itself */
    int dims[3];                           /* of the case */
    int h, w, c;                           /* of the patch */
    float matrix[3][3], offset[3];
    float factor, shift, noise_sd;
    uint64_t seed, step, noise_first;
    uint32_t stream;
};
/* Of a value: voxel * c + channel. */
KERNEL float k_patch_noise(const struct k_patch *k, int64_t value)
{
    float z[4][K_LANES];
    k_normals(z, k->seed, k->step, k->stream, k->noise_first + (uint64_t)(value / 4), 1);
    return z[value % 4][0];
}
/* A patch has fewer than 2^32 voxels: GPUs take long over divisions of 64 bits. */
KERNEL void k_patch_voxel(const struct k_patch *k, int64_t v)
{
    const uint32_t row = (uint32_t)v / (uint32_t)k->w, plane = row / (uint32_t)k->h;
    const float p[3] = {(float)(int)plane, (float)(int)(row - plane * (uint32_t)k->h),
                        (float)(int)((uint32_t)v - row * (uint32_t)k->w)};
    float x[3];
    for (int a = 0; a < 3; a++)
        x[a] = ((k->offset[a] + k->matrix[a][0] * p[0]) + k->matrix[a][1] * p[1]) + k->matrix[a][2] * p[2];
    const int channels = K_CHANNELS(k->c);
    const float sd = K_NOISE(k->noise_sd);
    for (int c = 0; c < channels; c++) {
        float value = k_read_linear(k->case_image + c, k->dims, channels, x);
        if (sd > 0)
            value += sd * k_patch_noise(k, v * channels + c);
        k->image[v * channels + c] = value * k->factor + k->shift;
    }
    int64_t at = k->label || k->mask ? k_read_nearest(k->dims, x) : -1;
    if (k->label) {
        uint8_t label = k->case_label && at >= 0 ? k->case_label[at] : (uint8_t)0;
        k->label[v] = k->exchange ? k->exchange[label] : label;
    }
    if (k->mask)
        k->mask[v] = k->case_mask && at >= 0 ? k->case_mask[at] : (uint8_t)0;
}
KERNEL void k_patch_range(const struct k_patch *k, int64_t i0, int64_t i1)
{
    for (int64_t v = i0; v < i1; v++)
        k_patch_voxel(k, v);
}

#define KERNELS_PATCH(X) X(patch)

#endif
