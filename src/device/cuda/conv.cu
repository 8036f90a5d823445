/* conv.cu - convolutions of the GPU: plans, and the calls of driver.h. See conv_int.cuh for the parts.
 *
 *     forward    one pass; moments come with it (tally.cuh), or from what was stored
 *     backward   a pass for dx, likewise with batch norm's sums; beside it, in a stream of its own, the
 *                weight gradient in parts, which are then added; sums for dbias
 *
 * Operands of CONV_3 are laid out first (conv_lay.cu): x by the forward pass, dy once for both gradients. dy
 * is read in both streams, so it lies in a ring: what had a place of it must be done before the next takes
 * it.
 */
#include <math.h>
#include <stdlib.h>

#include "device/cuda/conv_int.cuh"
#include "device/kernels.h"

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

static void plan_three(struct conv *v)
{
    const struct conv_shape *s = &v->s;
    if (s->c_in == 1)
        v->forward = first_plan(v->in, s->c_out);
    else
        v->forward = three_plan(v->in, s->c_in, s->c_out, 0);
    if (s->out == VALUE_F32)
        three_split_all(&v->forward, v->in);
    v->data = three_plan(v->in, s->c_out, s->c_in, 0);
    v->weight = s->c_in == 1 ? v->forward : three_plan(v->in, s->c_in, s->c_out, 1);
    v->laid = laid_over(laid_over(laid_over(v->laid, v->forward), v->data), v->weight);
}

static size_t scratch_bytes(const struct conv *v)
{
    size_t sums = sums_bytes(v);
    if (!v->bf16)
        return sums;
    if (v->s.kind == CONV_3)
        return larger_of(sums, larger_of(three_bytes(v), v->s.c_in == 1 ? first_bytes(v) : 0));
    return larger_of(sums, v->s.kind == CONV_1 ? one_bytes(v) : step_bytes(v));
}

/* Of the scratch beside. */
static size_t weight_bytes(const struct conv *v)
{
    if (!v->s.training)
        return 0;
    if (!v->bf16)
        return f32_weight_bytes(v);
    if (v->s.kind == CONV_3)
        return v->s.c_in == 1 ? first_weight_bytes(v) : three_weight_bytes(v);
    return v->s.kind == CONV_1 ? one_weight_bytes(v) : step_weight_bytes(v);
}

/* Whether operands are laid out (conv_lay.cu); x of a first layer is not. */
static int is_laid(const struct conv *v)
{
    return v->bf16 && v->s.kind == CONV_3;
}

/* Of the ring: dy laid out. */
static size_t ring_bytes(const struct conv *v, int n)
{
    if (!v->s.training || !is_laid(v))
        return 0;
    return laid_bytes(v->laid, n, v->s.c_in > 1 ? three_weight_groups(v) : v->data.chunks) / 256 * 256 + 256;
}

static size_t packed_bytes(const struct conv *v, int backward)
{
    struct pack_job j = conv_pack_job(v, backward);
    return (size_t)j.words * sizeof(uint4);
}

static void set_up(struct conv *v, struct cuda_context *c, const struct conv_shape *s)
{
    v->context = c;
    v->s = *s;
    v->bf16 = c->precision == PRECISION_BF16;
    v->tf32 = c->precision == PRECISION_TF32;
    v->taps = s->kind == CONV_3 ? 27 : s->kind == CONV_1 ? 1 : 8;
    v->in = (struct volume){s->n, s->d, s->h, s->w};
    v->out = s->kind == CONV_DOWN ? scaled(v->in, 1, 2) : s->kind == CONV_UP ? scaled(v->in, 2, 1) : v->in;
    v->coarse = s->kind == CONV_UP ? v->in : v->out;
    v->fine_c = s->kind == CONV_UP ? s->c_out : s->c_in;
    v->coarse_c = s->kind == CONV_UP ? s->c_in : s->c_out;
    if (v->bf16 && s->kind == CONV_3)
        plan_three(v);
    if (!v->bf16)
        f32_plan(v);
    v->tally_counters = 1 + divide_up(s->c_in > s->c_out ? s->c_in : s->c_out, 16);
}

static size_t counters_bytes(const struct conv *v)
{
    int splits = v->bf16 && v->s.kind == CONV_3 ? three_counters(v) : 0;
    return sizeof *v->counters * (size_t)(v->tally_counters + splits);
}

static size_t kept_bytes(const struct conv *v)
{
    if (!is_laid(v) || !v->s.training || v->s.c_in == 1)
        return 0;
    return laid_bytes(v->laid, v->s.n, v->forward.chunks);
}

static int make_counters(struct conv *v)
{
    size_t bytes = counters_bytes(v);
    int e = cuda_own(v->context, (void **)&v->counters, bytes);
    return e ? e : cudaMemsetAsync(v->counters, 0, bytes, v->context->stream);
}

int cuda_conv_new(struct cuda_context *c, struct conv **out, const struct conv_shape *s)
{
    struct conv *v = (struct conv *)calloc(1, sizeof *v);
    *out = NULL;
    if (!v)
        return cudaErrorMemoryAllocation;
    set_up(v, c, s);
    int e = cuda_reserve(c, scratch_bytes(v));
    if (!e)
        e = cuda_reserve_beside(c, weight_bytes(v));
    if (!e)
        e = cuda_reserve_ring(c, ring_bytes(v, s->n) * 3 / 2);
    if (!e && kept_bytes(v) > 0)
        e = cuda_own(c, (void **)&v->kept, kept_bytes(v));
    if (!e)
        e = make_counters(v);
    for (int backward = 0; !e && backward < 1 + s->input_grad; backward++) {
        size_t bytes = packed_bytes(v, backward);
        if (bytes > 0)
            e = cuda_own(c, &v->packed[backward], bytes);
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
    for (int backward = 0; backward < 2; backward++)
        cuda_disown(v->context, v->packed[backward], packed_bytes(v, backward));
    cuda_disown(v->context, v->counters, counters_bytes(v));
    cuda_disown(v->context, v->kept, kept_bytes(v));
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

/* Whether values, and the table if there is one, can be read in words of 16 bytes. */
static int whole_words(const struct tensor *t, const float *table)
{
    return t->type == VALUE_BF16 && t->c % 8 == 0 && aligned(t->data) && aligned(table);
}

static int quads_of(const struct tensor *t, const float *table)
{
    if (t->c % 4 != 0 || !aligned(t->data) || !aligned(table))
        return QUADS_NONE;
    return t->type == VALUE_F32 ? QUADS_F32 : QUADS_BF16;
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
    r.quads = quads_of(&x->from[0].y, x->from[0].scale);
    for (int i = 0; i < x->count; i++) {
        const struct conv_source *from = &x->from[i];
        read_source(&r, i, from);
        r.wide &= whole_words(&from->y, from->scale) && aligned(from->shift);
        if (quads_of(&from->y, from->shift) != r.quads)
            r.quads = QUADS_NONE;
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
    r.wide = whole_words(&g->g, NULL);
    r.quads = quads_of(&g->g, NULL);
    if (!g->p && !(g->y.y.data && g->y.relu))
        return r;
    r.kind = READ_GRAD;
    read_source(&r, 1, &g->y);
    r.p = g->p;
    r.q = g->q;
    r.r = g->r;
    int tables = aligned(g->y.scale) && aligned(g->y.shift) && aligned(g->q) && aligned(g->r);
    r.wide &= tables && whole_words(&g->y.y, g->p);
    if (!tables || quads_of(&g->y.y, g->p) != r.quads)
        r.quads = QUADS_NONE;
    return r;
}

static struct target target_of(const struct tensor *t, const float *bias, int add)
{
    struct target to = {};
    to.data = t->data;
    to.f32 = t->type == VALUE_F32;
    to.c = t->c;
    to.aligned = aligned(t->data);
    to.add = add;
    to.bias = bias;
    return to;
}

/* ---- tallies ------------------------------------------------------------------------------------------- */

static struct tally moments_tally(const struct tensor *y, const struct conv_stats *stats)
{
    struct tally t = {};
    t.kind = TALLY_MOMENTS;
    t.first = stats->mean;
    t.second = stats->m2;
    t.count = (double)y->n * y->d * y->h * y->w;
    t.then = stats->then != NULL;
    if (t.then)
        t.tables = *stats->then;
    return t;
}

static struct tally norm_tally(const struct conv_source *y, const struct conv_sums *sums)
{
    struct tally t = {};
    t.kind = TALLY_NORM;
    t.y = y->y.data;
    t.scale = y->scale;
    t.shift = y->shift;
    t.mean = sums->mean;
    t.relu = y->relu;
    t.first = sums->sums;
    t.second = sums->sums + (int64_t)y->y.n * y->y.c;
    t.then = sums->then != NULL;
    if (t.then)
        t.grads = *sums->then;
    return t;
}

/* ---- beside -------------------------------------------------------------------------------------------- */

/* What is put beside from now on waits for what is in the stream now. */
static int fork_beside(struct cuda_context *c)
{
    if (!c->beside)
        return 0;
    int e = cudaEventRecord(c->forked, c->stream);
    return e ? e : cudaStreamWaitEvent(c->beside, c->forked, 0);
}

static int end_beside(struct cuda_context *c)
{
    return c->beside ? cudaEventRecord(c->done[c->n_beside++ % CUDA_BESIDE], c->beside) : 0;
}

/* An event that was recorded anew since is that of a later one, which comes after. */
int cuda_catch_up(struct cuda_context *c, int but)
{
    int64_t last = c->n_beside - 1 - but;
    return c->beside && last >= 0 ? cudaStreamWaitEvent(c->stream, c->done[last % CUDA_BESIDE], 0) : 0;
}

/* Memory for the next weight gradient and what is done before it in the stream: the next of the ring, once
 * those who had it are done. */
static int take_ring(struct cuda_context *c, size_t bytes, void **out)
{
    size_t begin = c->ring_at + bytes <= c->ring_bytes ? c->ring_at : 0, end = begin + bytes;
    int64_t wait = c->n_beside - CUDA_BESIDE; /* older ones have left no trace */
    for (int64_t i = wait < 0 ? 0 : wait; i < c->n_beside; i++)
        if (c->taken[i % CUDA_BESIDE].begin < end && begin < c->taken[i % CUDA_BESIDE].end)
            wait = i;
    c->ring_at = end;
    c->taken[c->n_beside % CUDA_BESIDE] = (struct cuda_region){begin, end};
    *out = (char *)c->ring + begin;
    return wait >= 0 ? cuda_catch_up(c, (int)(c->n_beside - 1 - wait)) : 0;
}

/* ---- laying out ---------------------------------------------------------------------------------------- */

/* x of a forward pass: kept in training, for the weight gradient reads it again. */
static int lay_input(struct conv_pass *p)
{
    struct conv *v = p->v;
    uint4 *to = v->kept ? v->kept : (uint4 *)((char *)v->context->scratch + three_operand(v));
    v->kept_forward = 1;
    return lay_out(v, p->n, p->from, to, v->forward.chunks, &p->laid, v->context->stream);
}

/* dy, for dx and the weight gradient. */
static int lay_gradient(struct conv *v, int n, const struct reader &dy, struct laid_operand *out)
{
    int chunks = v->s.c_in > 1 ? three_weight_groups(v) : v->data.chunks;
    void *to;
    int e = take_ring(v->context, ring_bytes(v, n), &to);
    return e ? e : lay_out(v, n, dy, (uint4 *)to, chunks, out, v->context->stream);
}

/* x for the weight gradient, beside, unless it is there. */
static int lay_again(struct weight_pass *p, int same)
{
    struct conv *v = p->v;
    p->laid_x.at = v->kept;
    p->laid_x.chunks = v->weight.chunks;
    if (same && v->kept_forward)
        return 0;
    v->kept_forward = 0;
    return lay_out(v, p->n, p->x, v->kept, v->weight.chunks, &p->laid_x, p->stream);
}

/* ---- running ------------------------------------------------------------------------------------------- */

/* Runs a pass; afterwards its tally's kind is NONE if it has still to be made. */
static int run_pass(struct conv_pass *p)
{
    struct conv *v = p->v;
    if (!v->bf16) {
        p->tally.kind = TALLY_NONE;
        return f32_pass(p);
    }
    if (v->s.kind == CONV_1)
        return one_pass(p);
    if (v->s.kind != CONV_3)
        return step_pass(p);
    if (v->s.c_in == 1 && !p->backward)
        return first_pass(p);
    int e = p->backward ? 0 : lay_input(p);
    return e ? e : three_pass(p);
}

int cuda_conv_forward(struct conv *v, const struct conv_in *x, const float *bias, const struct tensor *y,
                      const struct conv_stats *stats)
{
    struct conv_pass p = {};
    float4 *moments = (float4 *)v->context->scratch;
    int regions = 0;
    p.v = v;
    p.n = y->n;
    p.from = input_reader(x);
    p.to = target_of(y, bias, 0);
    if (stats)
        p.tally = moments_tally(y, stats);
    int e = run_pass(&p);
    if (e || !stats || p.tally.kind)
        return e;
    e = moments_of_rows(v->context, y, moments, &regions);
    if (!e)
        e = moments_join(v->context, moments, regions, y->c, stats);
    return e || !stats->then ? e : cuda_map(v->context, KERNEL_norm_tables, stats->then, y->c);
}

int cuda_conv_pair(struct conv *v, const struct conv_in *x, const float *bias, struct conv *then,
                   const float *then_bias, const struct tensor *y, int *made)
{
    const struct conv_shape *a = &v->s, *b = &then->s;
    struct conv_pass first = {}, second = {};
    *made = v->bf16 && a->kind == CONV_1 && b->kind == CONV_1 && a->c_in <= 16 && a->c_out <= 16 &&
            b->c_out <= 16;
    if (!*made)
        return 0;
    first.v = v;
    first.n = y->n;
    first.from = input_reader(x);
    first.to.c = a->c_out;
    first.to.bias = bias;
    second.v = then;
    second.to = target_of(y, then_bias, 0);
    return one_pair(&first, &second);
}

static int run_dx(struct conv *v, const struct reader &dy, const struct laid_operand &laid,
                  const struct conv_in *x, const struct tensor *dx, int add, const struct conv_sums *sums)
{
    struct conv_pass p = {};
    p.v = v;
    p.n = dx->n;
    p.backward = 1;
    p.from = dy;
    p.laid = laid;
    p.to = target_of(dx, NULL, add);
    if (sums && whole_words(dx, sums->mean) && whole_words(&x->from[sums->of].y, x->from[sums->of].scale) &&
        aligned(x->from[sums->of].shift))
        p.tally = norm_tally(&x->from[sums->of], sums);
    int e = run_pass(&p);
    if (e || !sums || p.tally.kind)
        return e;
    e = cuda_norm_sums(v->context, dx, &x->from[sums->of], sums->mean, sums->sums);
    return e || !sums->then ? e : cuda_map(v->context, KERNEL_norm_grads, sums->then, dx->c);
}

static int run_weight(struct conv *v, const struct reader &dy, const struct laid_operand &laid,
                      const struct reader &x, int n, int add, float *dweight, float *dbias)
{
    struct weight_pass p = {};
    int three = v->s.kind == CONV_3, rows = three ? v->s.c_in : v->fine_c;
    p.v = v;
    p.n = n;
    p.x = x;
    p.dy = dy;
    p.stream = v->context->beside ? v->context->beside : v->context->stream;
    p.partial = (float *)v->context->beside_scratch;
    p.dbias = dbias;
    p.laid_dy = laid;
    int e = v->kept ? lay_again(&p, (add & CONV_SAME_X) != 0) : 0;
    if (e)
        return e;
    e = !v->bf16              ? f32_weight(&p)
        : v->s.kind == CONV_1 ? one_weight(&p)
        : !three              ? step_weight(&p)
        : v->s.c_in == 1      ? first_weight(&p)
                              : three_weight(&p);
    return e ? e
             : parts_join(&p, v->taps, rows, three ? v->s.c_out : v->coarse_c, dweight,
                          (add & CONV_ADD_WEIGHT) != 0);
}

int cuda_conv_backward(struct conv *v, const struct conv_grad *dy, const struct conv_in *x,
                       const struct tensor *dx, int add, float *dweight, float *dbias,
                       const struct conv_sums *sums)
{
    struct reader gradient = gradient_reader(dy);
    struct laid_operand laid = {};
    int together = v->bf16 && v->s.kind == CONV_1 && dweight; /* dweight and dbias */
    int with_dx = dx && dx->data, e = 0;
    v->context->taken[v->context->n_beside % CUDA_BESIDE] = (struct cuda_region){0, 0};
    if (is_laid(v) && (with_dx || (dweight && v->kept)))
        e = lay_gradient(v, dy->g.n, gradient, &laid);
    if (!e && dweight)
        e = fork_beside(v->context);
    if (!e && with_dx)
        e = run_dx(v, gradient, laid, x, dx, (add & CONV_ADD_DX) != 0, sums);
    if (!e && dweight)
        e = run_weight(v, gradient, laid, input_reader(x), dy->g.n, add, dweight, together ? dbias : NULL);
    if (!e && dweight)
        e = end_beside(v->context);
    if (!e && dweight && !(add & CONV_BESIDE))
        e = cuda_catch_up(v->context, 0);
    return !e && dbias && !together ? bias_sums(v, dy->g.n, gradient, dbias) : e;
}
