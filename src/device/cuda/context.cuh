/* context.cuh - one opened GPU from inside, and the parts of the table of driver.h by file:
 *
 *     driver.cu     the table, opening, memory          loops.cu      map and reduce
 *     norm.cu       norm_sums, grad_join                contrast.cu   all pairs
 *     conv*.cu      the convolutions                    heads.cu      the heads of a network at once
 *
 * Everything but weight gradients is put into the one stream, so a part may use the scratch of the context
 * from its first launch to its last: the next part's launches come after. Weight gradients have a stream and
 * a scratch of their own. Scratch grows in conv_new and where a count is larger than any before; its address
 * changes then, so ask for it anew in every call.
 */
#ifndef FALX_CUDA_CONTEXT_CUH
#define FALX_CUDA_CONTEXT_CUH

#include <cuda_runtime.h>

#include "device/cuda/driver.h"

enum { CUDA_BESIDE = 8 };

struct cuda_region {
    size_t begin, end;
};

struct cuda_context {
    cudaStream_t stream;
    cudaStream_t ahead;            /* uploads beside the work ... */
    cudaEvent_t arrived, left;     /* ... the last of them, and the last arrive() of the stream */
    cudaStream_t beside;           /* weight gradients; NULL: they are made in the stream */
    cudaEvent_t forked;            /* ... what the next of them waits for ... */
    cudaEvent_t done[CUDA_BESIDE]; /* ... and each of the last ones when it was done */
    int64_t n_beside;              /* of them, so far */
    enum precision precision;
    struct cuda_region taken[CUDA_BESIDE]; /* of the ring, by each of the last ones */
    void *ring;                            /* what both streams read: dy laid out */
    size_t ring_bytes, ring_at;
    void *scratch, *beside_scratch;
    size_t scratch_bytes, beside_bytes;
    size_t own_bytes; /* of all that, and of what convolutions keep */
    void *landing; /* CUDA_LANDING bytes of pinned host memory, where small results arrive; NULL: refused */
};
enum { CUDA_LANDING = 1 << 16 };

/* Memory of the context's own, counted: 0, or a CUDA error code. */
int cuda_own(struct cuda_context *c, void **out, size_t bytes);
void cuda_disown(struct cuda_context *c, void *memory, size_t bytes); /* NULL is fine */

/* Makes scratch at least this large: 0, or a CUDA error code, and then it is as large as before. What was in
 * it is lost. */
int cuda_reserve(struct cuda_context *c, size_t bytes);
int cuda_reserve_beside(struct cuda_context *c, size_t bytes); /* the other scratch, likewise */
int cuda_reserve_ring(struct cuda_context *c, size_t bytes);

/* Waits for everything in the stream, at most CUDA_PATIENCE seconds, then copies to the host. */
enum { CUDA_PATIENCE = 60 };
int cuda_fetch(struct cuda_context *c, void *to_host, const void *from, size_t bytes);

/* Members of the table, by their names there. */
int cuda_conv_new(struct cuda_context *c, struct conv **out, const struct conv_shape *s);
void cuda_conv_free(struct conv *v);
int cuda_conv_pack(struct cuda_context *c, const struct conv_weight *list, int n);
int cuda_conv_forward(struct conv *v, const struct conv_in *x, const float *bias, const struct tensor *y,
                      const struct conv_stats *stats);
int cuda_conv_backward(struct conv *v, const struct conv_grad *dy, const struct conv_in *x,
                       const struct tensor *dx, int add, float *dweight, float *dbias,
                       const struct conv_sums *sums);
int cuda_conv_pair(struct conv *v, const struct conv_in *x, const float *bias, struct conv *then,
                   const float *then_bias, const struct tensor *y, int *made);
int cuda_catch_up(struct cuda_context *c, int but);
int cuda_heads_forward(struct cuda_context *c, const struct heads *h);
int cuda_heads_backward(struct cuda_context *c, const struct heads *h);

int cuda_norm_sums(struct cuda_context *c, const struct tensor *g, const struct conv_source *y,
                   const float *mean, double *sums);
int cuda_grad_join(struct cuda_context *c, const struct tensor *to, const struct tensor *g,
                   const struct conv_source *y);
int cuda_contrast(struct cuda_context *c, const struct contrast *work);
int cuda_map(struct cuda_context *c, int kernel, const void *args, int64_t count);
int cuda_sum(struct cuda_context *c, int reduction, const void *args, int64_t count, int n_sums,
             double *sums);
int cuda_reduce(struct cuda_context *c, int reduction, const void *args, int64_t count, int n_sums,
                double *sums_host);

#endif
