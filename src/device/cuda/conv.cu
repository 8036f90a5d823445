/* conv.cu - convolutions of the GPU: plans, and the calls of driver.h. See conv_int.cuh for the parts.
 *
 *     forward    one pass; moments come with it (CONV_3) or from what was stored
 *     backward   a pass for dx; the weight gradient in parts, which are then added; sums for dbias
 */
#include <math.h>
#include <stdlib.h>

#include "device/cuda/conv_int.cuh"

/* ---- making and freeing -------------------------------------------------------------------------------- */

static struct volume scaled(const struct volume &v, int up, int down)
{
    struct volume s = {v.n, v.d * up / down, v.h * up / down, v.w * up / down};
    return s;
}

static size_t larger_of(size_t a, size_t b)
{
    return a > b ? a : b;
}

enum { MOST_SPLIT = 256 << 20 };

/* Tensor cores cut off sums, they do not round them: where that would show, in outputs of float32, every
 * chunk of 16 channels is summed on its own. */
static void split_all(struct three_plan *p, const struct volume &v)
{
    if ((int64_t)p->chunks * volume_voxels(v) * 64 * p->groups <= MOST_SPLIT)
        p->splits = p->chunks;
}

static void plan_three(struct conv *v)
{
    const struct conv_shape *s = &v->s;
    if (s->c_in == 1)
        v->forward = first_plan(v->in, s->c_out);
    else
        v->forward = three_plan(v->in, s->c_in, s->c_out, 0);
    if (s->out == VALUE_F32)
        split_all(&v->forward, v->in);
    v->data = three_plan(v->in, s->c_out, s->c_in, 0);
    v->weight = s->c_in == 1 ? v->forward : three_plan(v->in, s->c_in, s->c_out, 1);
}

static size_t scratch_bytes(const struct conv *v)
{
    size_t bytes = sums_bytes(v), weight;
    if (!v->bf16)
        weight = plain_bytes(v);
    else if (v->s.kind == CONV_3)
        weight = v->s.c_in == 1 ? first_weight_bytes(v) : three_weight_bytes(v);
    else
        weight = step_bytes(v);
    if (v->bf16 && v->s.kind == CONV_3)
        bytes = larger_of(bytes, three_bytes(v));
    return larger_of(bytes, v->s.training ? weight : 0);
}

static size_t packed_bytes(const struct conv *v, int backward)
{
    struct pack_job j = conv_pack_job(v, backward);
    return (size_t)j.words * (j.kind == PACK_COPY ? sizeof(float) : sizeof(uint4));
}

static void set_up(struct conv *v, struct cuda_context *c, const struct conv_shape *s)
{
    v->context = c;
    v->s = *s;
    v->bf16 = c->precision == PRECISION_BF16;
    v->taps = s->kind == CONV_3 ? 27 : s->kind == CONV_1 ? 1 : 8;
    v->in = (struct volume){s->n, s->d, s->h, s->w};
    v->out = s->kind == CONV_DOWN ? scaled(v->in, 1, 2) : s->kind == CONV_UP ? scaled(v->in, 2, 1) : v->in;
    v->coarse = s->kind == CONV_UP ? v->in : v->out;
    v->fine_c = s->kind == CONV_UP ? s->c_out : s->c_in;
    v->coarse_c = s->kind == CONV_UP ? s->c_in : s->c_out;
    if (v->bf16 && s->kind == CONV_3)
        plan_three(v);
}

int cuda_conv_new(struct cuda_context *c, struct conv **out, const struct conv_shape *s)
{
    struct conv *v = (struct conv *)calloc(1, sizeof *v);
    *out = NULL;
    if (!v)
        return cudaErrorMemoryAllocation;
    set_up(v, c, s);
    int e = cuda_reserve(c, scratch_bytes(v));
    for (int backward = 0; !e && backward < 1 + s->input_grad; backward++) {
        size_t bytes = packed_bytes(v, backward);
        if (bytes > 0)
            e = cudaMalloc(&v->packed[backward], bytes);
    }
    if (e) {
        cuda_conv_free(v);
        return e;
    }
    *out = v;
    return 0;
}

void cuda_conv_free(struct conv *v)
{
    if (!v)
        return;
    cudaFree(v->packed[0]);
    cudaFree(v->packed[1]);
    free(v);
}

int cuda_conv_pack(struct cuda_context *c, const struct conv_weight *list, int n)
{
    struct pack_job *jobs = (struct pack_job *)malloc(sizeof *jobs * 2 * (size_t)(n > 0 ? n : 1));
    int count = 0;
    if (!jobs)
        return cudaErrorMemoryAllocation;
    for (int i = 0; i < n; i++)
        for (int backward = 0; backward < 2; backward++) {
            if (!list[i].conv->packed[backward])
                continue;
            jobs[count] = conv_pack_job(list[i].conv, backward);
            jobs[count++].from = list[i].weight;
        }
    int e = conv_pack_run(c, jobs, count);
    free(jobs);
    return e;
}

/* ---- operands ------------------------------------------------------------------------------------------ */

static int aligned(const void *p)
{
    return (uintptr_t)p % 16 == 0;
}

static int whole_words(const struct tensor *t)
{
    return t->type == VALUE_BF16 && t->c % 8 == 0 && aligned(t->data);
}

static void read_source(struct reader *r, int i, const struct conv_source *s)
{
    r->from[i] = s->y.data;
    r->f32[i] = s->y.type == VALUE_F32;
    r->scale[i] = s->scale;
    r->shift[i] = s->shift;
    r->floor[i] = s->relu ? 0.0f : -INFINITY;
}

static struct reader input_reader(const struct conv_in *x)
{
    struct reader r = {};
    r.kind = x->count > 1 ? READ_TWO : READ_ONE;
    r.c = x->from[0].y.c;
    r.wide = 1;
    for (int i = 0; i < x->count; i++) {
        read_source(&r, i, &x->from[i]);
        r.wide &= whole_words(&x->from[i].y);
    }
    return r;
}

static struct reader gradient_reader(const struct conv_grad *g)
{
    struct conv_source plain = {};
    struct reader r = {};
    plain.y = g->g;
    read_source(&r, 0, &plain);
    r.c = g->g.c;
    r.wide = whole_words(&g->g);
    if (!g->p && !(g->y.y.data && g->y.relu))
        return r;
    r.kind = READ_GRAD;
    read_source(&r, 1, &g->y);
    r.p = g->p;
    r.q = g->q;
    r.r = g->r;
    r.wide &= whole_words(&g->y.y);
    return r;
}

static struct target target_of(const struct tensor *t, const float *bias, int add)
{
    struct target to = {};
    to.data = t->data;
    to.f32 = t->type == VALUE_F32;
    to.c = t->c;
    to.whole = t->c % 4 == 0 && aligned(t->data);
    to.wide = whole_words(t);
    to.add = add;
    to.bias = bias;
    return to;
}

/* ---- running ------------------------------------------------------------------------------------------- */

static int run_pass(struct conv_pass *p)
{
    struct conv *v = p->v;
    if (!v->bf16)
        return plain_pass(p);
    if (v->s.kind != CONV_3)
        return step_pass(p);
    return v->s.c_in == 1 && !p->backward ? first_pass(p) : three_pass(p);
}

int cuda_conv_forward(struct conv *v, const struct conv_in *x, const float *bias, const struct tensor *y,
                      const struct conv_stats *stats)
{
    struct conv_pass p = {};
    p.v = v;
    p.n = y->n;
    p.from = input_reader(x);
    p.to = target_of(y, bias, 0);
    p.moments = stats ? (float4 *)v->context->scratch : NULL;
    int e = run_pass(&p);
    if (e || !stats)
        return e;
    if (p.regions == 0)
        e = moments_of_rows(v->context, y, p.moments, &p.regions);
    return e ? e : moments_join(v->context, p.moments, p.regions, y->c, stats);
}

static int run_weight(struct conv *v, int n, const struct reader &x, const struct reader &dy, float *dweight,
                      int add)
{
    struct weight_pass p = {};
    p.v = v;
    p.n = n;
    p.x = x;
    p.dy = dy;
    p.partial = (float *)v->context->scratch;
    int e = !v->bf16 ? plain_weight(&p)
            : v->s.kind != CONV_3 ? step_weight(&p) : v->s.c_in == 1 ? first_weight(&p) : three_weight(&p);
    if (e)
        return e;
    int rows = v->s.kind == CONV_3 ? v->s.c_in : v->fine_c, cols = v->s.kind == CONV_3 ? v->s.c_out
                                                                                      : v->coarse_c;
    return parts_join(v->context, &p, v->taps, rows, cols, dweight, add);
}

int cuda_conv_backward(struct conv *v, const struct conv_grad *dy, const struct conv_in *x,
                       const struct tensor *dx, int add, float *dweight, float *dbias,
                       const struct conv_sums *sums)
{
    struct reader gradient = gradient_reader(dy);
    int e = 0;
    if (dx && dx->data) {
        struct conv_pass p = {};
        p.v = v;
        p.n = dy->g.n;
        p.backward = 1;
        p.from = gradient;
        p.to = target_of(dx, NULL, (add & CONV_ADD_DX) != 0);
        e = run_pass(&p);
    }
    if (!e && sums)
        e = cuda_norm_sums(v->context, dx, &x->from[sums->of], sums->mean, sums->sums);
    if (!e && dweight)
        e = run_weight(v, dy->g.n, input_reader(x), gradient, dweight, (add & CONV_ADD_WEIGHT) != 0);
    return !e && dbias ? bias_sums(v, dy->g.n, gradient, dbias) : e;
}
