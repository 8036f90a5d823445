/* conv_plan.c - convolutions before they run: forms, cutting into blocks, memory, packed weights.
 * See conv_int.h for the forms.
 */
#include <stdatomic.h>
#include <string.h>

#include "device/conv_int.h"

enum {
    LINE_ELEMENTS = 32,       /* bf16 in a cache line, and k of an AMX tile */
    SHORT_LINE = 12,          /* longest line for NINE: its ninefold fill costs less than border products */
    FEW_CHANNELS = 4,         /* most for ALL */
    COLUMNS = 32,             /* of a group: two AMX tiles, which is what a pass over A makes */
    WEIGHTS_COLUMNS = 64,     /* the same for dweight, where each pass transposes A anew */
    BLOCK_BYTES = 1 << 20,    /* of A, or of A and Y: with all else it stays in a 2 MiB second cache */
    PIECES = 10,              /* blocks wanted, to feed as many threads ... */
    BLOCK_POSITIONS = 1024,   /* ... unless they become smaller than this */
    CHUNK_FLOATS = 32 << 10,  /* of results before they are stored: 128 KiB */
    PART_BYTES = 6 << 20,     /* of all partial sums of a weight gradient */
    MOST_PARTS = 16,          /* of them: enough for as many threads, little to add up */
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

static struct side make_side(enum form form, int c)
{
    int group = LINE_ELEMENTS / (c < LINE_ELEMENTS ? c : LINE_ELEMENTS);
    switch (form) {
    case FORM_FLAT: return (struct side){form, c, c, 1, c};
    case FORM_EIGHT: return (struct side){form, c, 8 * c, 1, 8 * c};
    case FORM_PADDED: return (struct side){form, c, c, 9, 3 * c};
    case FORM_PAIRED:
        return (struct side){form, c, LINE_ELEMENTS, 9 * ((3 + group - 1) / group), LINE_ELEMENTS};
    case FORM_NINE: return (struct side){form, c, 9 * c, 3, 9 * c};
    case FORM_ALL: break;
    }
    int all = up_to(27 * c, LINE_ELEMENTS);
    return (struct side){FORM_ALL, c, all, 1, all};
}

/* For a 3x3x3 kernel over c channels. */
static enum form form_3(const struct conv *v, int c, int for_weights)
{
    if (c <= FEW_CHANNELS)
        return FORM_ALL;
    if (v->w <= SHORT_LINE)
        return FORM_NINE;
    if (v->element == 2 && !for_weights && (c == 16 || c == 8))
        return FORM_PAIRED;
    return FORM_PADDED;
}

static int bordered(const struct side *a)
{
    return a->form == FORM_PADDED || a->form == FORM_PAIRED;
}

struct grid conv_grid(const struct side *a, const struct block *b)
{
    struct grid g = {.row = b->len, .plane = b->rows * b->len};
    if (bordered(a)) {
        g.row = b->len + 2;
        g.plane = (b->rows + 2) * g.row;
    }
    g.m = (b->planes - 1) * g.plane + (b->rows - 1) * g.row + b->len;
    return g;
}

int64_t conv_positions(const struct side *a, const struct block *b)
{
    struct grid g = conv_grid(a, b);
    int halo = bordered(a) || a->form == FORM_NINE ? 2 : 0;
    return (b->planes + halo) * g.plane;
}

void conv_offsets(int64_t *offset, const struct side *a, const struct block *b)
{
    struct grid g = conv_grid(a, b);
    int parts = a->n_segments / 9, group = LINE_ELEMENTS / a->c;
    for (int s = 0; s < a->n_segments; s++) {
        offset[s] = 0;
        if (a->form == FORM_NINE)
            offset[s] = s * g.plane * a->ld;
        if (bordered(a)) {
            int tap = s / parts;
            offset[s] = (tap / 3 * g.plane + tap % 3 * g.row + s % parts * group) * a->ld;
        }
    }
}

int conv_row(const struct side *a, int t, int ch)
{
    if (a->form != FORM_PAIRED)
        return t * a->c + ch;
    int parts = a->n_segments / 9, group = LINE_ELEMENTS / a->c, x = t % 3;
    return (t / 3 * parts + x / group) * LINE_ELEMENTS + x % group * a->c + ch;
}

/* ---- cutting ------------------------------------------------------------------------------------- */

static int64_t block_bytes(const struct conv *v, const struct block *b, int backward)
{
    if (!backward)
        return conv_positions(&v->forward.a, b) * v->forward.a.ld * (int64_t)v->element;
    int64_t data = v->s.input_grad ? conv_positions(&v->data.a, b) * v->data.a.ld : 0;
    int64_t a = conv_positions(&v->weights, b) * v->weights.ld;
    int64_t y = conv_grid(&v->weights, b).m * v->weights_cols.n;
    return (a + y > data ? a + y : data) * (int64_t)v->element;
}

/* CONV_3: planes and lines of a block. Lines between planes cost a product, halo lines a fill: about half
 * of what the product costs at 16 channels, and less the more there are. */
static void cut_volume(struct cut *c, const struct conv *v, int backward)
{
    int64_t total = (int64_t)c->n * v->d * v->h * v->w, most = total / PIECES;
    double best = 0;
    most = most > BLOCK_POSITIONS ? most : BLOCK_POSITIONS;
    for (int n_rows = 1; n_rows <= c->rows; n_rows++) {
        struct block b = {.planes = 1, .rows = (c->rows + n_rows - 1) / n_rows, .len = c->len};
        while (b.planes < c->planes && (b.planes + 1) * b.rows * b.len <= most) {
            b.planes++;
            if (block_bytes(v, &b, backward) > BLOCK_BYTES) {
                b.planes--;
                break;
            }
        }
        if (n_rows < c->rows && (block_bytes(v, &b, backward) > BLOCK_BYTES || b.rows * b.len > most))
            continue;
        double lines = bordered(&v->forward.a) ? (b.rows + 2.0) / b.rows : 1;
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
    struct cut c = {.n = n, .planes = 1, .rows = n * v->d * v->h, .len = v->w, .n_planes = 1,
                    .n_rows = 1, .n_len = 1};
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
    int64_t x = i % c->n_len, row = i / c->n_len % c->n_rows, plane = i / c->n_len / c->n_rows;
    struct block b = {.plane = (int)(c->planes * plane / c->n_planes),
                      .row = (int)(c->rows * row / c->n_rows), .x = c->len * x / c->n_len};
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
        struct gemm_shape s = {a->n_segments, a->k, v->weights_cols.per};
        conv_offsets(offset, a, &b);
        raise(&m->y, g.m * v->weights_cols.n * (int64_t)v->element + SLACK_BYTES);
        raise(&m->gemm, (int64_t)v->gemm->weights_scratch(&s, a->ld, g.m, conv_positions(a, &b) * a->ld));
        if (v->s.input_grad) {
            raise(&m->data, side_bytes(v, &v->data.a, &b));
            raise(&m->stage, stage_bytes(v, &v->data.a, &b));
        }
    }
}

static int64_t plain_floats(const struct side *a, const struct columns *c)
{
    return (int64_t)a->n_segments * a->k * c->per;
}

static void lay_out(struct conv *v, struct needs *m)
{
    int per = v->forward.cols.per;
    int64_t plain = plain_floats(&v->forward.a, &v->forward.cols);
    for (int n = 1; n <= v->s.n; n++) {
        raise_needs(m, v, n, 0);
        if (v->s.training)
            raise_needs(m, v, n, 1);
    }
    if (v->s.training)
        raise(&plain, plain_floats(&v->weights, &v->weights_cols));
    if (v->s.input_grad) {
        raise(&plain, plain_floats(&v->data.a, &v->data.cols));
        per = v->data.cols.per > per ? v->data.cols.per : per;
    }
    v->chunk = CHUNK_FLOATS / per > 64 ? CHUNK_FLOATS / per : 64;
    struct layout *at = &v->at;
    at->a = take(&at->total, m->a);
    at->data = take(&at->total, m->data);
    at->y = take(&at->total, m->y);
    at->stage = take(&at->total, m->stage);
    at->c = take(&at->total, v->chunk * per * (int64_t)sizeof(float) + SLACK_BYTES);
    at->gemm = take(&at->total, m->gemm);
    at->d = take(&at->total, plain * (int64_t)sizeof(float) + SLACK_BYTES);
    at->sums = take(&at->total, 3 * (int64_t)sizeof(double) * table_room(v->s.c_out));
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
    p.cols = make_columns(scatter ? 8 * to : to, scatter ? to : 1, COLUMNS);
    struct gemm_shape s = {p.a.n_segments, p.a.k, p.cols.per};
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
        v->forward = make_product(v, form_3(v, in, 0), in, out, 0);
        v->data = make_product(v, form_3(v, out, 0), out, in, 0);
        v->weights = make_side(form_3(v, in, 1), in);
    } else {
        v->forward = make_product(v, down ? FORM_EIGHT : FORM_FLAT, in, out, up);
        v->data = make_product(v, up ? FORM_EIGHT : FORM_FLAT, out, in, down);
        v->weights = make_side(up || down ? FORM_EIGHT : FORM_FLAT, up ? out : in);
    }
    v->data.mirrored = s->kind == CONV_3 || s->kind == CONV_1;
    v->weights_cols = make_columns(v->major, 1, WEIGHTS_COLUMNS);
    v->part_floats = (size_t)v->weights.n_segments * (size_t)v->weights.k * (size_t)v->major;
}

static int64_t tables_floats(const struct conv *v, int n)
{
    int64_t in = table_room(v->s.c_in), out = table_room(v->s.c_out);
    return n * (4 * in + 5 * out) + out;
}

/* For every element of (minor, taps) its row. */
static int *make_rows(const struct conv *v, const struct side *a)
{
    struct device *dev = &v->cpu->base;
    int *rows = dev->ops->alloc(dev, (size_t)(v->minor * v->taps) * sizeof(int));
    for (int i = 0; rows && i < v->minor * v->taps; i++)
        rows[i] = conv_row(a, i % v->taps, i / v->taps);
    return rows;
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
    if (v->s.training && v->s.input_grad)
        v->data.packed = ops->alloc(dev, v->data.packed_each * (size_t)v->data.cols.groups);
    v->forward.rows = make_rows(v, &v->forward.a);
    if (v->s.training && v->s.input_grad)
        v->data.rows = make_rows(v, &v->data.a);
    if (v->s.training) {
        v->weights_rows = make_rows(v, &v->weights);
        v->bias_sums = ops->alloc(dev, (size_t)m->parts * (size_t)v->s.c_out * sizeof(double));
    }
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
    v->parts = m.parts;
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
    void *memory[] = {v->tables, v->moments, v->forward.packed, v->data.packed, v->forward.rows,
                      v->data.rows, v->weights_rows, v->bias_sums};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        dev->ops->free(dev, memory[i]);
    mem_free(v);
}

/* ---- sharing out ----------------------------------------------------------------------------------- */

struct share {
    struct cpu *cpu;
    conv_units *run;
    void *arg;
    int64_t n, chunk;
    atomic_int_fast64_t next;
};

static void share_slot(void *arg, int64_t slot)
{
    struct share *s = arg;
    for (;;) {
        int64_t first = atomic_fetch_add(&s->next, s->chunk);
        if (first >= s->n)
            return;
        s->run(s->arg, s->cpu->scratch + (size_t)slot * s->cpu->scratch_each, first,
               least(first + s->chunk, s->n));
    }
}

void conv_share(struct cpu *cpu, conv_units *run, void *arg, int64_t n, int64_t chunk)
{
    struct share s = {.cpu = cpu, .run = run, .arg = arg, .n = n, .chunk = chunk};
    pool_run(cpu->base.pool, least(pool_threads(cpu->base.pool), (n + chunk - 1) / chunk), share_slot,
             &s);
}

/* ---- weights --------------------------------------------------------------------------------------- */

struct packing {
    const struct conv *v;
    const float *weight;
};

/* The weights of a group of columns as plain (row, column), by how they lie in (major, minor, taps). */
static void plain_columns(float *plain, const struct conv *v, const struct product *p, int group,
                          const float *weight)
{
    int n = columns_of(&p->cols, group), first = group * p->cols.per, run = v->minor * v->taps;
    int rows[27];
    if (p->scatter) { /* row = major, column = (tap, minor) */
        int taps = n / v->minor;
        for (int t = 0; t < taps; t++)
            rows[t] = t;
        for (int a = 0; a < v->major; a++)
            v->rows->turn(plain + (int64_t)a * n, rows, v->minor,
                          weight + (int64_t)a * run + first / v->minor, v->taps, taps, v->minor);
        return;
    }
    if (!p->mirrored) { /* row = (tap, minor), column = major */
        v->rows->turn(plain, p->rows, n, weight + (int64_t)first * run, run, run, n);
        return;
    }
    for (int t = 0; t < v->taps; t++) /* row = (mirrored tap, major), column = minor */
        rows[t] = conv_row(&p->a, v->taps - 1 - t, 0);
    for (int a = 0; a < v->major; a++) {
        const float *from = weight + (int64_t)a * run + first * v->taps;
        for (int i = 0; a + 1 < v->major && i < n * v->taps; i += 16) /* far from the last one */
            __builtin_prefetch(from + run + i);
        v->rows->turn(plain + (int64_t)a * n, rows, n, from, v->taps, v->taps, n);
    }
}

static void pack_units(void *arg, char *scratch, int64_t first, int64_t end)
{
    const struct packing *k = arg;
    const struct conv *v = k->v;
    float *plain = (float *)(void *)(scratch + v->at.d);
    for (int64_t i = first; i < end; i++) {
        int group = (int)i;
        const struct product *p = &v->forward;
        if (group >= p->cols.groups) {
            group -= p->cols.groups;
            p = &v->data;
        }
        struct gemm_shape s = {p->a.n_segments, p->a.k, columns_of(&p->cols, group)};
        if (p->a.form == FORM_ALL || p->a.form == FORM_PAIRED) /* have rows of no weight */
            memset(plain, 0, (size_t)s.n_segments * (size_t)s.k * (size_t)s.n * sizeof *plain);
        plain_columns(plain, v, p, group, k->weight);
        v->gemm->pack(p->packed + (size_t)group * p->packed_each, plain, &s);
    }
}

void cpu_conv_pack(struct conv *v, const float *weight)
{
    if (!v || v->cpu->base.error.code)
        return;
    struct packing k = {v, weight};
    int64_t n = v->forward.cols.groups + (v->data.packed ? v->data.cols.groups : 0);
    conv_share(v->cpu, pack_units, &k, n, 1);
}
