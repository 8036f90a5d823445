/* conv_int.cuh - what the files of the convolutions share.
 *
 *     conv.cu               plans, packing, the calls of driver.h
 *     conv_three.cu         CONV_3 and its gradient of the input      (tensor cores)
 *     conv_three_weight.cu  CONV_3, gradient of the weight            (tensor cores)
 *     conv_lay.cu           what these two read, laid out for them
 *     conv_first.cu         CONV_3 of one channel                     (tensor cores)
 *     conv_step.cu          CONV_DOWN, CONV_UP                        (tensor cores)
 *     conv_step_weight.cu   their gradient of the weight              (tensor cores)
 *     conv_one.cu           CONV_1                                    (tensor cores)
 *     conv_f32.cu           all kinds with tensors of float32         (float32, or tf32 on tensor cores)
 *     conv_f32_weight.cu    their gradient of the weight              (likewise)
 *     conv_sums.cu          moments and bias gradients in passes of their own, sums of parts
 *
 * CONV_DOWN and CONV_UP are one family, "steps": a voxel of the coarse side meets eight voxels of the fine
 * side, and the weight is (taps, c of fine, c of coarse) in both. DOWN goes from fine to coarse, UP from
 * coarse to fine; a gradient goes the other way. CONV_1 has the weight of a step with one tap.
 *
 * Working memory is the context's scratch: a call uses it from its first launch to its last. Weight gradients
 * are made in a stream beside, with a scratch of their own; dbias is not.
 */
#ifndef FALX_CUDA_CONV_INT_CUH
#define FALX_CUDA_CONV_INT_CUH

#include "device/cuda/context.cuh"
#include "device/cuda/fill.cuh"
#include "device/cuda/launch.cuh"
#include "device/cuda/tally.cuh"

/* Passes are cut into blocks for so many multiprocessors, those of an H200: a constant, so that sums do not
 * depend on the machine. */
enum { MULTIPROCESSORS = 132 };

/* How a CONV_3 pass is cut, see conv_three.cu. */
struct three_plan {
    int pz, py, px; /* pattern of the 16 voxels of a line of work; powers of two */
    int log_py, log_px;
    int wz, wy, wx, wn;    /* warps of a block: in space, over groups of columns */
    int tz, ty, tx;        /* tile: voxels of a block */
    int nz, ny, nx, tiles; /* of an item */
    struct divisor by_tiles, by_ny, by_nx;
    struct box in;      /* tile with its border */
    struct box out;     /* tile without: the weight gradient's */
    int chunks, groups; /* of 16 channels: input (products run over them), output */
    int splits;         /* parts of the chunks, by blocks of their own */
};

/* How a pass over float32 is cut, see f32.cuh. */
struct tile_plan {
    int z, y, x, rows; /* voxels of a tile */
    int ny, nx, count; /* tiles of an item */
    struct divisor by_y, by_x, by_ny, by_nx;
    int step, border, border_z;   /* from a tile to its box */
    int box_z, box_y, box_x, box; /* voxels of the box */
    struct divisor by_box_y, by_box_x;
};

/* A volume with a border of one, filled up to whole tiles: see conv_lay.cu. */
struct laid {
    int d, h, w;
    int words; /* of an item's block of 8 channels */
};

/* An operand that is laid out: (item, 2 chunks, words). */
struct laid_operand {
    const uint4 *at;
    int chunks; /* of 16 channels; those behind the last are 0 */
};

struct conv {
    struct cuda_context *context;
    struct conv_shape s;
    int bf16, tf32; /* products on tensor cores; neither: in float32. Not bf16: tensors are float32 */
    int taps;
    int fine_c, coarse_c;          /* of steps */
    struct volume in, out, coarse; /* n is that of the plan */
    struct three_plan forward, data, weight;
    struct tile_plan tile[3]; /* not bf16: forward, gradient of the input, of the weight */
    struct laid laid;         /* of CONV_3: for all three */
    uint4 *kept;              /* of CONV_3 in training: x as it was laid out last, for the weight gradient */
    int kept_forward;         /* 1: by a forward pass */
    void *packed[2];          /* forward, gradient of the input */
    unsigned *counters;       /* of blocks that are done, 0 between launches: tallies, then splits */
    int tally_counters;
};

static inline int64_t volume_voxels(const struct volume &v)
{
    return (int64_t)v.n * v.d * v.h * v.w;
}

static inline int64_t volume_item(const struct volume &v)
{
    return (int64_t)v.d * v.h * v.w;
}

__host__ __device__ inline int divide_up(int a, int b)
{
    return (a + b - 1) / b;
}

/* ---- what a pass is asked for -------------------------------------------------------------------------- */

struct conv_pass {
    struct conv *v;
    int n;        /* items of this call */
    int backward; /* 1: gradient of the input */
    struct reader from;
    struct laid_operand laid; /* the same laid out: CONV_3's */
    struct target to;
    struct tally tally; /* what is wanted; a pass that cannot make it sets kind to NONE */
};

struct weight_pass {
    struct conv *v;
    int n;
    cudaStream_t stream;
    struct reader x, dy;
    struct laid_operand laid_x, laid_dy; /* the same laid out: CONV_3's */
    float *partial;                      /* scratch: (parts, taps, rows, cols) */
    int parts, rows, cols;               /* out */
    float *dbias; /* or NULL; its sums are the last row of every part then: CONV_1's alone */
};

/* ---- parts --------------------------------------------------------------------------------------------- */

struct three_plan three_plan(const struct volume &v, int c_in, int c_out, int weight);
size_t three_bytes(const struct conv *v);
int three_pass(struct conv_pass *p);
size_t three_weight_shared(const struct three_plan &p);
void three_split_all(struct three_plan *p, const struct volume &v);
int three_counters(const struct conv *v);
size_t three_operand(const struct conv *v);    /* bytes of scratch before an operand that is laid out there */
int three_weight_groups(const struct conv *v); /* chunks of dy that it wants laid out */
size_t three_weight_bytes(const struct conv *v);
int three_weight(struct weight_pass *p);

struct three_plan first_plan(const struct volume &v, int c_out);
size_t first_bytes(const struct conv *v);
int first_pass(struct conv_pass *p);
size_t first_weight_bytes(const struct conv *v);
int first_weight(struct weight_pass *p);

size_t step_bytes(const struct conv *v);
int step_pass(struct conv_pass *p);
size_t step_weight_bytes(const struct conv *v);
int step_weight(struct weight_pass *p);

size_t one_bytes(const struct conv *v);
int one_pass(struct conv_pass *p);
int one_pair(const struct conv_pass *first, const struct conv_pass *second);
size_t one_weight_bytes(const struct conv *v);
int one_weight(struct weight_pass *p);

void f32_plan(struct conv *v);
int f32_pass(struct conv_pass *p);
size_t f32_weight_bytes(const struct conv *v);
int f32_weight(struct weight_pass *p);

/* Which layout a packed weight has; n is the number of words of 16 bytes, made by conv_pack.cu. */
enum pack_kind { PACK_THREE, PACK_FIRST, PACK_STEP, PACK_ONE, PACK_F32, PACK_TF32 };
struct pack_job {
    const float *from;
    void *to;
    int kind, backward, up;
    int c_in, c_out, taps;
    int words;
};
struct pack_job conv_pack_job(const struct conv *v, int backward);
int conv_pack_run(struct cuda_context *c, const struct pack_job *jobs, int n);

/* ---- conv_lay.cu --------------------------------------------------------------------------------------- */

struct laid laid_over(const struct laid &l, const struct three_plan &p); /* made large enough for a plan */
size_t laid_bytes(const struct laid &l, int n, int chunks);
/* Of n items; the result is where it was put. */
int lay_out(const struct conv *v, int n, const struct reader &from, uint4 *to, int chunks,
            struct laid_operand *out, cudaStream_t stream);

/* ---- conv_sums.cu -------------------------------------------------------------------------------------- */

size_t sums_bytes(const struct conv *v);
/* Of stored rows of c channels: regions of each channel, (c, regions). */
int moments_of_rows(struct cuda_context *c, const struct tensor *y, float4 *moments, int *regions);
int moments_join(struct cuda_context *c, const float4 *moments, int regions, int channels,
                 const struct conv_stats *stats);
/* dbias += sums over voxels of dy as it is multiplied. */
int bias_sums(struct conv *v, int n, const struct reader &dy, float *dbias);
/* dweight = or += the parts, in order; dbias, if the pass has it, += theirs. */
int parts_join(const struct weight_pass *p, int taps, int rows, int cols, float *dweight, int add);

/* ---- tallies ------------------------------------------------------------------------------------------- */

static inline size_t tally_bytes(int channels, int items, int regions)
{
    return (size_t)channels * (size_t)items * (size_t)regions * sizeof(double2);
}

/* The tally of a pass whose blocks make so many regions of each item; parts are put behind `offset` bytes of
 * scratch. */
static inline struct tally tally_ready(const struct conv_pass *p, size_t offset, int regions)
{
    struct tally t = p->tally;
    t.of = p->to;
    t.parts = (double2 *)((char *)p->v->context->scratch + offset);
    t.counters = p->v->counters;
    t.items = p->n;
    t.regions = regions;
    return t;
}

#endif
