/* conv_cpu.c - convolutions at work: fill a block, multiply, store. See conv_int.h for forms and blocks.
 *
 *     forward    x block -> product -> + bias, round, moments -> y
 *     backward   dy block -> product -> dx, batch norm's sums
 *                x block, dy rows -> weights product -> dweight;  sums of dy rows -> dbias
 *
 * Work is handed out in units: (block, group of columns) forward, (part, group of columns of dx or
 * dweight) backward, where a part is a range of blocks with a partial sum of dweight of its own. A
 * thread that goes on with the same block finds it filled. Partial sums and moments are kept by part
 * or block and added up in that order, so no result depends on who did what.
 */
#include <math.h>
#include <string.h>

#include "device/conv_int.h"
#include "device/kernels.h"

/* ---- products ------------------------------------------------------------------------------------------ */

/* One group of columns of a block whose A is filled. */
static void multiply(const struct conv *v, const struct product *p, char *scratch, const char *a,
                     const struct block *b, int group, const struct target *to, struct sums *sums)
{
    struct grid g = conv_grid(&p->a, b);
    struct gemm_shape shape = {
        .n_segments = p->a.n_segments, .k = p->a.k, .n = columns_of(&p->cols, group), .pitch = (int)g.row};
    float *c = (float *)(void *)(scratch + v->at.c);
    int64_t offset[GEMM_MAX_SEGMENTS];
    struct results s = {
        .v = v, .p = p, .to = to, .sums = sums, .b = b, .c = c, .column = group * p->cols.per, .n = shape.n};
    int64_t chunk = v->chunk;
    conv_offsets(offset, &p->a, b);
    shape.lines = conv_lines(v, &p->a, b);
    if (shape.lines.line)
        chunk -= chunk % g.row;
    for (s.first = 0; s.first < g.m; s.first = s.end) {
        s.end = s.first + chunk < g.m ? s.first + chunk : g.m;
        shape.lines.first = (int)(s.first / g.row % (g.plane / g.row));
        v->gemm->forward(c, shape.n, a + s.first * p->a.ld * (int64_t)v->element, p->a.ld, offset,
                         p->packed + (size_t)group * p->packed_each, &shape, s.end - s.first);
        conv_store(&s);
    }
}

/* Fills a block of A over what is in memory there, block number *filled (-1: nothing), unless that is it. */
static void fill_block(const struct conv *v, char *to, char *scratch, const struct side *a,
                       const struct operand *o, const struct cut *cut, int block, int *filled)
{
    struct block b = conv_block(cut, block), before;
    if (*filled == block)
        return;
    if (*filled >= 0)
        before = conv_block(cut, *filled);
    conv_fill(v, to, scratch + v->at.stage, a, o, &b, *filled >= 0 ? &before : NULL);
    *filled = block;
}

/* ---- forward ------------------------------------------------------------------------------------------- */

struct forward_job {
    struct conv *v;
    struct cut cut;
    struct operand x;
    struct target y;
};

/* Voxels of the grid in a block. */
static int64_t block_voxels(const struct conv *v, const struct block *b)
{
    struct place at;
    int64_t planes = 0;
    for (int p = 0; p < b->planes; p++)
        planes += conv_locate(&at, v, b, p, 0);
    return planes * b->rows * b->len;
}

/* Sums by place in the table become mean and sum of squared distances by channel. */
static void keep_moments(const struct forward_job *j, const struct sums *s, const struct block *b,
                         int64_t unit)
{
    const struct product *p = &j->v->forward;
    int group = (int)(unit % p->cols.groups), first = group * p->cols.per, n = columns_of(&p->cols, group);
    double *mean = j->v->moments + unit * 2 * p->c, *m2 = mean + p->c;
    double count = (double)block_voxels(j->v, b) * (p->scatter ? n / p->c : 1);
    if (p->scatter)
        first = 0, n = p->c;
    for (int c = first; c < first + n; c++) {
        double sum = 0, square = 0;
        for (int k = c; k < table_room(p->c); k += p->c) {
            sum += s->sum[k];
            square += s->square[k];
        }
        mean[c] = (double)s->shift[c] + sum / count;
        m2[c] = square - sum * sum / count > 0 || isnan(square) ? square - sum * sum / count : 0;
    }
}

static void forward_units(void *arg, char *scratch, int64_t first, int64_t end)
{
    struct forward_job *j = arg;
    struct conv *v = j->v;
    const struct product *p = &v->forward;
    int filled = -1;
    for (int64_t unit = first; unit < end; unit++) {
        int block = (int)(unit / p->cols.groups);
        struct block b = conv_block(&j->cut, block);
        fill_block(v, scratch + v->at.a, scratch, &p->a, &j->x, &j->cut, block, &filled);
        struct sums sums = conv_sums_start(v, scratch, p);
        multiply(v, p, scratch, scratch + v->at.a, &b, (int)(unit % p->cols.groups), &j->y, &sums);
        if (j->y.moments)
            keep_moments(j, &sums, &b, unit);
    }
}

/* Chan's rule: mean and m2 of the first n voxels joined with those of the next unit. */
static void combine_moments(const struct forward_job *j, struct conv_stats *stats)
{
    const struct conv *v = j->v;
    const struct product *p = &v->forward;
    double n = 0; /* the same for all channels of a unit: scattered ones are in every unit */
    memset(stats->mean, 0, (size_t)p->c * sizeof(double));
    memset(stats->m2, 0, (size_t)p->c * sizeof(double));
    for (int64_t unit = 0; unit < (int64_t)j->cut.blocks * p->cols.groups; unit++) {
        int group = (int)(unit % p->cols.groups), cols = columns_of(&p->cols, group);
        int first = p->scatter ? 0 : group * p->cols.per, end = p->scatter ? p->c : first + cols;
        struct block b = conv_block(&j->cut, (int)(unit / p->cols.groups));
        double more = (double)block_voxels(v, &b) * (p->scatter ? cols / p->c : 1);
        const double *mean = v->moments + unit * 2 * p->c, *m2 = mean + p->c;
        for (int c = first; more > 0 && c < end; c++) {
            double delta = mean[c] - stats->mean[c];
            stats->m2[c] += m2[c] + delta * delta * n * more / (n + more);
            stats->mean[c] += delta * more / (n + more);
        }
        if (p->scatter || group == p->cols.groups - 1)
            n += more;
    }
}

/* Units taken at a time: whole blocks while there are plenty, else an equal share for every thread. */
static int64_t unit_chunk(const struct conv *v, int64_t blocks, int64_t groups)
{
    int64_t threads = pool_threads(v->cpu->base.pool);
    return blocks >= 2 * threads ? groups : (blocks * groups + threads - 1) / threads;
}

void cpu_conv_forward(struct conv *v, const struct conv_in *x, const float *bias, const struct tensor *y,
                      struct conv_stats *stats)
{
    if (!v || v->cpu->base.error.code)
        return;
    int n = x->from[0].y.n, groups = v->forward.cols.groups;
    float *tables = v->tables;
    CHECK(n <= v->s.n && x->from[0].y.c == v->s.c_in && y->c == v->s.c_out && y->n == n);
    struct forward_job j = {.v = v, .cut = conv_cut(v, n, 0), .x = conv_operand(&tables, x, n)};
    j.y = conv_target(y);
    j.y.moments = stats != NULL;
    j.y.bias = conv_table(&tables, bias, 0, 1, v->s.c_out);
    conv_share(v->cpu, forward_units, &j, (int64_t)j.cut.blocks * groups, unit_chunk(v, j.cut.blocks, groups),
               1);
    if (stats)
        combine_moments(&j, stats);
    if (stats && stats->then)
        v->cpu->base.ops->map(&v->cpu->base, KERNEL_norm_tables, stats->then, v->s.c_out);
}

/* ---- backward ------------------------------------------------------------------------------------------ */

struct backward_job {
    struct conv *v;
    struct cut cut;
    struct operand x, dy;
    struct target dx;
    float *dweight, *dbias;
    int add; /* to dweight */
    int parts;
    int data_groups, groups; /* units of a part: of dx; of dx and dweight */
};

/* What a thread's scratch memory holds: A of dx, A and Y of dweight, by number of the block. */
struct filled {
    int data, a, y;
};

/* Items that a block has lines of: the first and the last. */
static void block_items(const struct conv *v, const struct block *b, int *first, int *last)
{
    int lines = v->d * v->h, planes = v->d + 1;
    *first = v->s.kind == CONV_3 ? b->plane / planes : b->row / lines;
    *last = v->s.kind == CONV_3 ? (b->plane + b->planes - 1) / planes : (b->row + b->rows - 1) / lines;
}

/* Channels that a group of columns has. */
static void group_channels(const struct product *p, int group, int *first, int *end)
{
    *first = p->scatter ? 0 : group * p->cols.per;
    *end = p->scatter ? p->c : *first + columns_of(&p->cols, group);
}

/* Where batch norm's sums of a unit and an item are: (2, c_in). */
static double *norm_sums_of(const struct conv *v, int block, int group, int item)
{
    return v->norm_sums + (((int64_t)block * v->data.cols.groups + group) * v->s.n + item) * 2 * v->s.c_in;
}

/* Sums by place in the table become sums by channel. */
static void keep_norm_sums(const struct conv *v, const struct sums *s, const struct block *b, int block,
                           int group)
{
    int c_in = v->s.c_in, room = table_room(c_in), first, end, item, last;
    group_channels(&v->data, group, &first, &end);
    for (block_items(v, b, &item, &last); item <= last; item++) {
        const double *from = s->sum + 2 * item * room;
        double *to = norm_sums_of(v, block, group, item);
        for (int c = first; c < end; c++) {
            to[c] = to[c_in + c] = 0;
            for (int k = c; k < room; k += c_in) {
                to[c] += from[k];
                to[c_in + c] += from[room + k];
            }
        }
    }
}

static void data_unit(const struct backward_job *j, char *scratch, struct filled *f, int block, int group)
{
    const struct conv *v = j->v;
    struct block b = conv_block(&j->cut, block);
    struct sums sums = {.sum = (double *)(void *)(scratch + v->at.sums)};
    int room = table_room(v->s.c_in), first, last;
    if (j->dx.mean) {
        block_items(v, &b, &first, &last);
        memset(sums.sum + 2 * first * room, 0, 2 * (size_t)((last + 1 - first) * room) * sizeof *sums.sum);
    }
    fill_block(v, scratch + v->at.data, scratch, &v->data.a, &j->dy, &j->cut, block, &f->data);
    multiply(v, &v->data, scratch, scratch + v->at.data, &b, group, &j->dx, &sums);
    if (j->dx.mean)
        keep_norm_sums(v, &sums, &b, block, group);
}

/* Units in order. */
static void combine_norm_sums(const struct backward_job *j, double *sums)
{
    const struct conv *v = j->v;
    int64_t c_in = v->s.c_in, nc = j->dx.t->n * c_in;
    memset(sums, 0, 2 * (size_t)nc * sizeof *sums);
    for (int unit = 0; unit < j->cut.blocks * v->data.cols.groups; unit++) {
        int block = unit / v->data.cols.groups, group = unit % v->data.cols.groups, first, end, item, last;
        struct block b = conv_block(&j->cut, block);
        group_channels(&v->data, group, &first, &end);
        for (block_items(v, &b, &item, &last); item <= last; item++) {
            const double *from = norm_sums_of(v, block, group, item);
            for (int64_t c = first; c < end; c++) {
                sums[item * c_in + c] += from[c];
                sums[nc + item * c_in + c] += from[c_in + c];
            }
        }
    }
}

/* Operands of the weights product, as they lie in scratch memory. */
struct pair {
    const char *a, *y;
    int64_t ldy;
};

/* Sums of dy over a block: columns of Y, or of A by channel. */
static void bias_unit(const struct conv *v, const struct pair *o, const struct block *b, double *sums)
{
    const struct side *a = &v->weights;
    int64_t m = conv_grid(a, b).m;
    if (!v->weights_of_grad) {
        v->rows->sums(sums, o->y, v->type, o->ldy, m, v->s.c_out);
        return;
    }
    for (int t = 0; t < 8; t++)
        v->rows->sums(sums, o->a + (size_t)(t * a->c) * v->element, v->type, a->ld, m, a->c);
}

/* What dx is made from serves as A (CONV_UP) or as Y, where it lies or, where lines between planes belong to
 * others, copied. */
static struct pair weights_operands(const struct backward_job *j, char *scratch, struct filled *f, int block,
                                    const struct block *b)
{
    const struct conv *v = j->v;
    char *data = j->data_groups ? scratch + v->at.data : NULL;
    const struct operand *of_y = v->weights_of_grad ? &j->x : &j->dy;
    struct pair o = {scratch + v->at.a, scratch + v->at.y, v->weights_cols.n};
    if (data)
        fill_block(v, data, scratch, &v->data.a, &j->dy, &j->cut, block, &f->data);
    if (data && v->weights_of_grad)
        o.a = data;
    else
        fill_block(v, scratch + v->at.a, scratch, &v->weights, v->weights_of_grad ? &j->dy : &j->x, &j->cut,
                   block, &f->a);
    if (data && !v->weights_of_grad && conv_is_y(v, b)) {
        o.y = conv_line(v, data, &v->data.a, b, 0, 0);
        o.ldy = v->data.a.ld;
    } else if (f->y != block) {
        conv_fill_y(v, scratch + v->at.y, of_y, b, v->weights_of_grad ? NULL : data, &v->data.a);
        f->y = block;
    }
    return o;
}

/* Where the gradient of a part, or of all, is made: rows of `ld` columns. */
struct gradient {
    float *d;
    int64_t ld;
};

/* The weight gradient of a block, columns of one group. */
static void weights_unit(const struct backward_job *j, char *scratch, struct filled *f, int block, int part,
                         int group, const struct gradient *to, enum gemm_put put)
{
    const struct conv *v = j->v;
    const struct side *a = &v->weights;
    struct block b = conv_block(&j->cut, block);
    int first = group * v->weights_cols.per;
    struct gemm_shape shape = {
        .n_segments = a->n_segments, .k = a->k, .n = columns_of(&v->weights_cols, group)};
    struct pair o = weights_operands(j, scratch, f, block, &b);
    int64_t offset[GEMM_MAX_SEGMENTS];
    if (group == 0 && j->dbias)
        bias_unit(v, &o, &b, v->bias_sums + (int64_t)part * v->s.c_out);
    if (!j->dweight)
        return;
    conv_offsets(offset, a, &b);
    shape.pitch = (int)conv_grid(a, &b).row;
    shape.lines = conv_lines(v, a, &b);
    v->gemm->weights(to->d, to->ld, put, o.a, a->ld, offset, o.y + (size_t)first * v->element, o.ldy, &shape,
                     conv_grid(a, &b).m, conv_positions(a, &b) * a->ld, scratch + v->at.gemm);
}

/* One part only: a group of columns of dweight from the first block to the last, straight there. */
static void whole_weights(const struct backward_job *j, char *scratch, struct filled *f, int group)
{
    const struct conv *v = j->v;
    int first = group * v->weights_cols.per;
    struct gradient to = {j->dweight + first, v->major};
    enum gemm_put put = !v->direct || j->cut.blocks > 1 ? GEMM_OVER : GEMM_FAR;
    if (v->direct && j->add)
        put = GEMM_ADD;
    if (!v->direct)
        to = (struct gradient){(float *)(void *)(scratch + v->at.d), columns_of(&v->weights_cols, group)};
    for (int block = 0; block < j->cut.blocks; block++)
        weights_unit(j, scratch, f, block, 0, group, &to, block > 0 ? GEMM_ADD : put);
    if (!v->direct && j->dweight)
        for (int row = 0; row < v->taps * v->minor; row++)
            v->rows->add_parts(j->dweight + (int64_t)row * v->major + first, to.d + row * to.ld, 0, 1, to.ld,
                               j->add);
}

/* Groups of dweight come first: they take longer, and what is short fills the gaps at the end. */
static void whole_group(const struct backward_job *j, char *scratch, struct filled *f, int unit)
{
    int weights_groups = j->groups - j->data_groups;
    if (unit < weights_groups)
        whole_weights(j, scratch, f, unit);
    else
        for (int block = 0; block < j->cut.blocks; block++)
            data_unit(j, scratch, f, block, unit - weights_groups);
}

/* Units [first, end) of a part, block by block. */
static void part_groups(const struct backward_job *j, char *scratch, struct filled *f, int part, int first,
                        int end)
{
    const struct conv *v = j->v;
    int begin = j->cut.blocks * part / j->parts, last = j->cut.blocks * (part + 1) / j->parts;
    float *sums = (float *)(void *)v->cpu->partial + part * (int64_t)v->part_floats;
    for (int block = begin; block < last; block++)
        for (int u = first; u < end; u++) {
            int group = u - j->data_groups;
            if (group < 0) {
                data_unit(j, scratch, f, block, u);
                continue;
            }
            struct gradient to = {sums + group * v->weights_cols.per, v->major};
            weights_unit(j, scratch, f, block, part, group, &to, block > begin ? GEMM_ADD : GEMM_OVER);
        }
}

static void backward_units(void *arg, char *scratch, int64_t first, int64_t end)
{
    const struct backward_job *j = arg;
    struct filled f = {-1, -1, -1};
    for (int64_t next; first < end; first = next) {
        int part = (int)(first / j->groups), u = (int)(first % j->groups);
        next = (part + 1) * (int64_t)j->groups < end ? (part + 1) * (int64_t)j->groups : end;
        if (j->parts > 1)
            part_groups(j, scratch, &f, part, u, u + (int)(next - first));
        else
            for (; u < j->groups && first < next; u++, first++)
                whole_group(j, scratch, &f, u);
    }
}

enum { ADD_RUN = 8 << 10 }; /* numbers of a unit of add_units */

static void add_units(void *arg, char *scratch, int64_t first, int64_t end)
{
    const struct backward_job *j = arg;
    const struct conv *v = j->v;
    int64_t all = (int64_t)v->taps * v->minor * v->major, from = first * ADD_RUN;
    int64_t to = end * ADD_RUN < all ? end * ADD_RUN : all;
    const float *parts = (const float *)(const void *)v->cpu->partial;
    (void)scratch;
    v->rows->add_parts(j->dweight + from, parts + from, (int64_t)v->part_floats, j->parts, to - from, j->add);
}

static void finish_backward(const struct backward_job *j)
{
    const struct conv *v = j->v;
    int64_t all = (int64_t)v->taps * v->minor * v->major;
    if (j->dweight && j->parts > 1)
        conv_share(v->cpu, add_units, (void *)(uintptr_t)j, (all + ADD_RUN - 1) / ADD_RUN, 1, 0);
    for (int c = 0; j->dbias && c < v->s.c_out; c++) {
        double sum = 0;
        for (int part = 0; part < j->parts; part++)
            sum += v->bias_sums[(int64_t)part * v->s.c_out + c];
        j->dbias[c] += (float)sum;
    }
}

void cpu_conv_backward(struct conv *v, const struct conv_grad *dy, const struct conv_in *x,
                       const struct tensor *dx, int add, float *dweight, float *dbias,
                       const struct conv_sums *sums)
{
    if (!v || v->cpu->base.error.code)
        return;
    int n = dy->g.n, with_data = dx && dx->data;
    float *tables = v->tables;
    CHECK(v->s.training && n <= v->s.n && dy->g.c == v->s.c_out && (!with_data || v->s.input_grad));
    struct backward_job j = {.v = v,
                             .cut = conv_cut(v, n, 1),
                             .dweight = dweight,
                             .dbias = dbias,
                             .add = (add & CONV_ADD_WEIGHT) != 0};
    j.x = conv_operand(&tables, x, n);
    j.dy = conv_gradient(&tables, dy, n);
    j.dx = conv_target(with_data ? dx : NULL);
    j.dx.accumulate = (add & CONV_ADD_DX) != 0;
    if (sums) {
        CHECK(with_data && x->from[sums->of].y.type == dx->type);
        j.dx.y = j.x.from[sums->of];
        j.dx.mean = conv_table(&tables, sums->mean, 0, 1, v->s.c_in);
    }
    j.parts = conv_parts(v, &j.cut);
    j.data_groups = with_data ? v->data.cols.groups : 0;
    j.groups = j.data_groups + (dweight ? v->weights_cols.groups : dbias ? 1 : 0);
    if (j.groups == 0)
        return;
    if (dbias)
        memset(v->bias_sums, 0, (size_t)j.parts * (size_t)v->s.c_out * sizeof(double));
    conv_share(v->cpu, backward_units, &j, (int64_t)j.parts * j.groups,
               j.parts > 1 ? unit_chunk(v, j.parts, j.groups) : 1, j.parts > 1);
    finish_backward(&j);
    if (sums)
        combine_norm_sums(&j, sums->sums);
    if (sums && sums->then)
        v->cpu->base.ops->map(&v->cpu->base, KERNEL_norm_grads, sums->then, v->s.c_in);
}
