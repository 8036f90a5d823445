/* conv_plan.c - convolutions before they run: forms, cutting into blocks, memory, packed weights.
 * See conv_int.h for the forms.
 */
#include <stdatomic.h>
#include <string.h>

#include "device/conv_int.h"

enum {
    LINE_ELEMENTS = 32,    /* bf16 in a cache line, and k of an AMX tile */
    SHORT_LINE = 5,        /* longest line for NINE: its ninefold fill costs less than border products */
    TINY_LINE = 3,         /* the same for products that leave out the border: they do of longer lines */
    FEW_CHANNELS = 4,      /* most for ALL */
    NARROW = 8,            /* channels whose rows would lie across cache lines: NINE, rows filled up */
    COLUMNS = 32,          /* of a group: two AMX tiles, which is what a pass over A makes */
    SCATTER_COLUMNS = 128, /* of fine voxels: with 16 channels all eight, written line after line */
    WEIGHTS_COLUMNS = 128, /* the same for dweight, where each pass transposes A anew */
    BLOCK_BYTES = 1 << 20, /* of all operands: with all else they stay in a 2 MiB second cache */
    LARGE_BLOCK_BYTES = 4 << 20,      /* the same where that costs less than more blocks */
    PIECES = 10,                      /* blocks wanted, to feed as many threads ... */
    BLOCK_POSITIONS = 1024,           /* ... unless they become smaller than this */
    CHUNK_FLOATS = 32 << 10,          /* of results before they are stored: 128 KiB */
    PART_BYTES = 6 << 20,             /* of all partial sums of a weight gradient */
    MOST_PARTS = 16,                  /* of them: enough for as many threads, little to add up */
    SLACK_BYTES = GEMM_SLACK * 4 + 64 /* behind a block: what products and expand() may touch */
};

static int up_to(int x, int unit)
{
    return (x + unit - 1) / unit * unit;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* ---- forms --------------------------------------------------------------------------------------- */

/* From row to row of NINE: whole cache lines where the rest is zeros (NARROW) or never read, an odd number of
 * them, or rows of 128 and 256 channels would meet in few sets of the cache. */
static int nine_row(int c)
{
    return c == NARROW ? 12 * c : 9 * c % LINE_ELEMENTS == 0 ? 9 * c + LINE_ELEMENTS : 9 * c;
}

static struct side make_side(enum form form, int c)
{
    switch (form) {
    case FORM_FLAT: return (struct side){form, c, c, 1, c};
    case FORM_EIGHT: return (struct side){form, c, 8 * c, 1, 8 * c};
    case FORM_PADDED: return (struct side){form, c, c, 9, 3 * c};
    case FORM_NINE: return (struct side){form, c, nine_row(c), 3, 9 * c};
    case FORM_ALL: break;
    }
    int all = up_to(27 * c, LINE_ELEMENTS);
    return (struct side){FORM_ALL, c, all, 1, all};
}

/* For a 3x3x3 kernel over c channels. */
static enum form form_3(const struct conv *v, int c)
{
    if (c <= FEW_CHANNELS)
        return FORM_ALL;
    int nine = v->gemm->by_lines == 1 ? TINY_LINE : SHORT_LINE;
    return v->w <= nine || (c == NARROW && v->element == 2) ? FORM_NINE : FORM_PADDED;
}

/* Positions from line to line of PADDED. Rows of half a cache line are even in number: AMX products read
 * two at once (gemm_amx.h). */
static int64_t padded_row(const struct side *a, int64_t len)
{
    return a->c == LINE_ELEMENTS / 2 ? up_to((int)len + 1, 2) : len + 1;
}

struct grid conv_grid(const struct side *a, const struct block *b)
{
    struct grid g = {.row = b->len, .plane = b->rows * b->len};
    if (a->form == FORM_PADDED) {
        g.row = padded_row(a, b->len);
        g.plane = (b->rows + (b->whole ? 1 : 2)) * g.row;
    }
    g.m = (b->planes - 1) * g.plane + (b->rows - 1) * g.row + b->len;
    return g;
}

int64_t conv_positions(const struct side *a, const struct block *b)
{
    struct grid g = conv_grid(a, b);
    int halo = a->form == FORM_PADDED || a->form == FORM_NINE ? 2 : 0;
    int64_t last = a->form != FORM_PADDED ? 0 : b->whole ? g.row + 1 : 1; /* zeros that no other line has */
    return (b->planes + halo) * g.plane + last;
}

void conv_offsets(int64_t *offset, const struct side *a, const struct block *b)
{
    struct grid g = conv_grid(a, b);
    for (int s = 0; s < a->n_segments; s++) {
        offset[s] = 0;
        if (a->form == FORM_NINE)
            offset[s] = s * g.plane * a->ld;
        if (a->form == FORM_PADDED)
            offset[s] = (s / 3 * g.plane + s % 3 * g.row) * a->ld;
    }
}

struct gemm_lines conv_lines(const struct conv *v, const struct side *a, const struct block *b)
{
    struct grid g = conv_grid(a, b);
    struct gemm_lines all = {0}, lines = {.line = (int)b->len, .of_plane = b->rows};
    if (v->gemm->by_lines == 0 || b->len % v->gemm->by_lines || a->form != FORM_PADDED)
        return all;
    lines.plane = (int)(g.plane / g.row);
    return g.row <= v->chunk ? lines : all;
}

/* ---- cutting ------------------------------------------------------------------------------------- */

static int64_t block_bytes(const struct conv *v, const struct block *b, int backward)
{
    if (!backward)
        return conv_positions(&v->forward.a, b) * v->forward.a.ld * (int64_t)v->element;
    int64_t data = v->s.input_grad ? conv_positions(&v->data.a, b) * v->data.a.ld : 0;
    int64_t y = data && conv_is_y(v, b) ? 0 : conv_grid(&v->weights, b).m * v->weights_cols.n;
    int64_t a = v->weights_of_grad && data ? 0 : conv_positions(&v->weights, b) * v->weights.ld;
    return (a + y + data) * (int64_t)v->element;
}

/* Where a weight gradient is too large for partial sums, every block goes over all of it, in memory: then it
 * is the smaller evil if operands come from the third cache. */
static int64_t block_limit(const struct conv *v, int backward)
{
    int64_t gradient = (int64_t)(v->part_floats * sizeof(float));
    return backward && 2 * gradient > PART_BYTES ? LARGE_BLOCK_BYTES : BLOCK_BYTES;
}

/* CONV_3: planes and lines of a block. Lines between planes cost a product, halo lines a fill: about half
 * of what the product costs at 16 channels, and less the more there are. */
static void cut_volume(struct cut *c, const struct conv *v, int backward)
{
    int64_t total = (int64_t)c->n * v->d * v->h * v->w, most = total / PIECES;
    int64_t limit = block_limit(v, backward);
    double best = 0;
    most = most > BLOCK_POSITIONS ? most : BLOCK_POSITIONS;
    for (int n_rows = 1; n_rows <= c->rows; n_rows++) {
        struct block b = {
            .planes = 1, .rows = (c->rows + n_rows - 1) / n_rows, .whole = n_rows == 1, .len = c->len};
        while (b.planes < c->planes && (b.planes + 1) * b.rows * b.len <= most) {
            b.planes++;
            if (block_bytes(v, &b, backward) > limit) {
                b.planes--;
                break;
            }
        }
        if (n_rows < c->rows && (block_bytes(v, &b, backward) > limit || b.rows * b.len > most))
            continue;
        double lines = v->forward.a.form == FORM_PADDED ? (b.rows + 2.0 - b.whole) / b.rows : 1;
        double halo = (b.planes + 2.0) / b.planes * (b.rows + 2) / b.rows;
        double cost = lines + 8.0 / v->s.c_out * halo;
        if (best == 0 || cost < best) {
            best = cost;
            c->n_rows = n_rows;
            c->n_planes = (c->planes + b.planes - 1) / b.planes;
        }
    }
}

/* The others: as many lines, or as much of a line, as fit. */
static void cut_lines(struct cut *c, const struct conv *v, int backward)
{
    struct block one = {.planes = 1, .rows = 1, .len = 1};
    int64_t total = c->rows * c->len, most = BLOCK_BYTES / block_bytes(v, &one, backward);
    int64_t piece = total / PIECES > BLOCK_POSITIONS ? total / PIECES : BLOCK_POSITIONS;
    most = most < 1 ? 1 : most < piece ? most : piece;
    int rows = (int)least(most / c->len, v->s.kind == CONV_1 ? 1 : c->rows);
    if (rows < 1) {
        c->n_rows = c->rows;
        c->n_len = (int)((c->len + most - 1) / most);
    } else {
        c->n_rows = (c->rows + rows - 1) / rows;
    }
}

struct cut conv_cut(const struct conv *v, int n, int backward)
{
    struct cut c = {
        .n = n, .planes = 1, .rows = n * v->d * v->h, .len = v->w, .n_planes = 1, .n_rows = 1, .n_len = 1};
    if (v->s.kind == CONV_3) {
        c.planes = n * (v->d + 1) - 1;
        c.rows = v->h;
        cut_volume(&c, v, backward);
    } else {
        cut_lines(&c, v, backward);
    }
    c.blocks = c.n_planes * c.n_rows * c.n_len;
    return c;
}

struct block conv_block(const struct cut *c, int i)
{
    int64_t plane = i % c->n_planes, x = i / c->n_planes % c->n_len, row = i / c->n_planes / c->n_len;
    struct block b = {.plane = (int)(c->planes * plane / c->n_planes),
                      .row = (int)(c->rows * row / c->n_rows),
                      .whole = c->n_rows == 1,
                      .x = c->len * x / c->n_len};
    b.planes = (int)(c->planes * (plane + 1) / c->n_planes) - b.plane;
    b.rows = (int)(c->rows * (row + 1) / c->n_rows) - b.row;
    b.len = c->len * (x + 1) / c->n_len - b.x;
    return b;
}

/* How many partial sums of dweight; one means that column groups are finished one after the other. */
int conv_parts(const struct conv *v, const struct cut *c)
{
    int64_t fit = PART_BYTES / (int64_t)(v->part_floats * sizeof(float));
    int64_t parts = least(least(fit, MOST_PARTS), c->blocks);
    return parts < 2 ? 1 : (int)parts;
}

/* ---- memory -------------------------------------------------------------------------------------- */

static size_t take(size_t *at, int64_t bytes)
{
    size_t begin = *at;
    *at += ((size_t)bytes + 63) / 64 * 64;
    return begin;
}

static void raise(int64_t *most, int64_t value)
{
    *most = value > *most ? value : *most;
}

static int64_t side_bytes(const struct conv *v, const struct side *a, const struct block *b)
{
    return conv_positions(a, b) * a->ld * (int64_t)v->element + SLACK_BYTES;
}

/* Padded lines, before they are expanded: all planes for ALL, one for the others. */
static int64_t stage_bytes(const struct conv *v, const struct side *a, const struct block *b)
{
    int64_t planes = a->form == FORM_ALL ? b->planes + 2 : 1;
    return planes * (b->rows + 2) * (b->len + 2) * a->c * (int64_t)v->element + SLACK_BYTES;
}

struct needs {
    int64_t a, data, y, stage, gemm, blocks;
    int parts;
};

static void raise_needs(struct needs *m, const struct conv *v, int n, int backward)
{
    struct cut c = conv_cut(v, n, backward);
    int64_t offset[GEMM_MAX_SEGMENTS];
    raise(&m->blocks, c.blocks);
    if (backward && conv_parts(v, &c) > m->parts)
        m->parts = conv_parts(v, &c);
    for (int i = 0; i < c.blocks; i++) {
        struct block b = conv_block(&c, i);
        const struct side *a = backward ? &v->weights : &v->forward.a;
        raise(&m->a, side_bytes(v, a, &b));
        raise(&m->stage, stage_bytes(v, a, &b));
        if (!backward)
            continue;
        struct grid g = conv_grid(a, &b);
        struct gemm_shape s = {.n_segments = a->n_segments, .k = a->k, .n = v->weights_cols.per};
        conv_offsets(offset, a, &b);
        raise(&m->y, g.m * v->weights_cols.n * (int64_t)v->element + SLACK_BYTES);
        raise(&m->gemm, (int64_t)v->gemm->weights_scratch(&s, a->ld, g.m, conv_positions(a, &b) * a->ld));
        if (v->s.input_grad) {
            raise(&m->data, side_bytes(v, &v->data.a, &b));
            raise(&m->stage, stage_bytes(v, &v->data.a, &b));
        }
    }
}

static void lay_out(struct conv *v, struct needs *m)
{
    int per = v->forward.cols.per;
    for (int n = 1; n <= v->s.n; n++) {
        raise_needs(m, v, n, 0);
        if (v->s.training)
            raise_needs(m, v, n, 1);
    }
    if (v->s.input_grad)
        per = v->data.cols.per > per ? v->data.cols.per : per;
    v->chunk = CHUNK_FLOATS / per > 64 ? CHUNK_FLOATS / per : 64;
    struct layout *at = &v->at;
    at->a = take(&at->total, m->a);
    at->data = take(&at->total, m->data);
    at->y = take(&at->total, m->y);
    at->stage = take(&at->total, m->stage);
    at->c = take(&at->total, v->chunk * per * (int64_t)sizeof(float) + SLACK_BYTES);
    at->gemm = take(&at->total, m->gemm);
    at->d = take(&at->total, v->direct ? 0 : (int64_t)(v->part_floats * sizeof(float)) + SLACK_BYTES);
    int64_t sums = 3 * (int64_t)table_room(v->s.c_out);
    if (v->s.input_grad)
        raise(&sums, 2 * (int64_t)v->s.n * table_room(v->s.c_in));
    at->sums = take(&at->total, sums * (int64_t)sizeof(double));
}

/* ---- plans --------------------------------------------------------------------------------------- */

/* Groups of the wanted size; of whole units if a unit has more than a column. */
static struct columns make_columns(int n, int unit, int wanted)
{
    struct columns c = {.n = n, .per = n};
    if (unit > 1)
        while (c.per / 2 >= wanted && c.per / 2 % unit == 0)
            c.per /= 2;
    else if (n > wanted)
        c.per = wanted;
    c.groups = (n + c.per - 1) / c.per;
    return c;
}

static struct product make_product(const struct conv *v, enum form form, int from, int to, int scatter)
{
    struct product p = {.a = make_side(form, from), .scatter = scatter, .c = to};
    p.cols = make_columns(scatter ? 8 * to : to, scatter ? to : 1, scatter ? SCATTER_COLUMNS : COLUMNS);
    struct gemm_shape s = {.n_segments = p.a.n_segments, .k = p.a.k, .n = p.cols.per};
    p.packed_each = (v->gemm->pack_bytes(&s) + 63) / 64 * 64;
    return p;
}

static void set_shapes(struct conv *v)
{
    const struct conv_shape *s = &v->s;
    int up = s->kind == CONV_UP, down = s->kind == CONV_DOWN, in = s->c_in, out = s->c_out;
    v->d = down ? s->d / 2 : s->d;
    v->h = down ? s->h / 2 : s->h;
    v->w = down ? s->w / 2 : s->w;
    v->taps = s->kind == CONV_3 ? 27 : s->kind == CONV_1 ? 1 : 8;
    v->major = up ? in : out;
    v->minor = up ? out : in;
    v->weights_of_grad = up;
    if (s->kind == CONV_1) {
        v->w = (int64_t)s->d * s->h * s->w;
        v->d = v->h = 1;
    }
    if (s->kind == CONV_3) {
        v->forward = make_product(v, form_3(v, in), in, out, 0);
        v->data = make_product(v, form_3(v, out), out, in, 0);
        v->weights = make_side(form_3(v, in), in);
    } else {
        v->forward = make_product(v, down ? FORM_EIGHT : FORM_FLAT, in, out, up);
        v->data = make_product(v, up ? FORM_EIGHT : FORM_FLAT, out, in, down);
        v->weights = make_side(up || down ? FORM_EIGHT : FORM_FLAT, up ? out : in);
    }
    v->data.mirrored = s->kind == CONV_3 || s->kind == CONV_1;
    v->weights_cols = make_columns(v->major, 1, WEIGHTS_COLUMNS);
    v->part_floats = (size_t)v->weights.n_segments * (size_t)v->weights.k * (size_t)v->major;
    v->direct = v->part_floats == (size_t)v->taps * (size_t)v->minor * (size_t)v->major;
}

static int64_t tables_floats(const struct conv *v, int n)
{
    int64_t in = table_room(v->s.c_in), out = table_room(v->s.c_out);
    return n * (4 * in + 5 * out) + out + in;
}

/* Memory of the plan itself. */
static int allocate(struct conv *v, const struct needs *m)
{
    struct device *dev = &v->cpu->base;
    const struct device_ops *ops = dev->ops;
    size_t moments = (size_t)m->blocks * (size_t)v->forward.cols.groups * 2 * (size_t)v->s.c_out;
    v->tables = ops->alloc(dev, (size_t)tables_floats(v, v->s.n) * sizeof(float));
    v->moments = ops->alloc(dev, moments * sizeof(double));
    v->forward.packed = ops->alloc(dev, v->forward.packed_each * (size_t)v->forward.cols.groups);
    if (v->s.training && v->s.input_grad) {
        size_t sums = (size_t)m->blocks * (size_t)v->data.cols.groups * (size_t)v->s.n * 2;
        v->data.packed = ops->alloc(dev, v->data.packed_each * (size_t)v->data.cols.groups);
        v->norm_sums = ops->alloc(dev, sums * (size_t)v->s.c_in * sizeof(double));
    }
    if (v->s.training)
        v->bias_sums = ops->alloc(dev, (size_t)m->parts * (size_t)v->s.c_out * sizeof(double));
    size_t partial = m->parts > 1 ? (size_t)m->parts * v->part_floats * sizeof(float) : 0;
    return cpu_reserve(v->cpu, v->at.total, partial);
}

struct conv *cpu_conv_new(struct device *dev, const struct conv_shape *s)
{
    struct conv *v = dev->error.code ? NULL : mem_alloc(&dev->error, 1, sizeof *v);
    if (!v)
        return NULL;
    int bf16 = dev->precision == PRECISION_BF16;
    struct needs m = {.parts = 1};
    v->cpu = cpu_of(dev);
    v->s = *s;
    v->gemm = bf16 ? v->cpu->isa->bf16 : v->cpu->isa->f32;
    v->rows = v->cpu->isa->rows;
    v->type = bf16 ? VALUE_BF16 : VALUE_F32;
    v->element = value_bytes(v->type);
    CHECK(s->kind != CONV_DOWN || (s->d % 2 == 0 && s->h % 2 == 0 && s->w % 2 == 0));
    set_shapes(v);
    lay_out(v, &m);
    if (allocate(v, &m) < 0) {
        cpu_conv_free(v);
        return NULL;
    }
    return v;
}

void cpu_conv_free(struct conv *v)
{
    if (!v)
        return;
    struct device *dev = &v->cpu->base;
    void *memory[] = {v->tables, v->moments, v->forward.packed, v->data.packed, v->bias_sums, v->norm_sums};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        dev->ops->free(dev, memory[i]);
    mem_free(v);
}

/* ---- sharing out ----------------------------------------------------------------------------------- */

struct share {
    struct cpu *cpu;
    conv_units *run;
    void *arg;
    int64_t n, chunk, threads;
    int runs;
    atomic_int_fast64_t next;
};

static void share_slot(void *arg, int64_t slot)
{
    struct share *s = arg;
    int64_t first = atomic_load(&s->next);
    while (first < s->n) {
        int64_t share = s->runs ? (s->n - first) / (2 * s->threads * s->chunk) * s->chunk : 0;
        int64_t end = least(first + (share > s->chunk ? share : s->chunk), s->n);
        if (!atomic_compare_exchange_weak(&s->next, &first, end))
            continue;
        s->run(s->arg, s->cpu->scratch + (size_t)slot * s->cpu->scratch_each, first, end);
        first = atomic_load(&s->next);
    }
    s->cpu->isa->rows->settle();
}

void conv_share(struct cpu *cpu, conv_units *run, void *arg, int64_t n, int64_t chunk, int runs)
{
    int64_t threads = pool_threads(cpu->base.pool);
    struct share s = {
        .cpu = cpu, .run = run, .arg = arg, .n = n, .chunk = chunk, .threads = threads, .runs = runs};
    pool_run(cpu->base.pool, least(threads, (n + chunk - 1) / chunk), share_slot, &s);
}
