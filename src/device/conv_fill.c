/* conv_fill.c - blocks of the convolutions' operands: tensors read through conv.h's formulas into the
 * forms of conv_int.h.
 *
 *     tensor -> lines with a border -> neighbours side by side
 *               PADDED: this is it     NINE, ALL: by rows.h's expand()
 */
#include <math.h>
#include <string.h>

#include "device/conv_int.h"

/* ---- operands -------------------------------------------------------------------------------------- */

const float *conv_table(float **next, const float *from, float otherwise, int n, int c)
{
    int room = table_room(c);
    float *to = *next;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < room; j++)
            to[i * room + j] = from ? from[i * c + j % c] : otherwise;
    *next += (int64_t)n * room;
    return to;
}

static struct row_source make_source(float **next, const struct conv_source *s, int n)
{
    return (struct row_source){
        .y = s->y.data,
        .type = s->y.type,
        .scale = conv_table(next, s->scale, 1, n, s->y.c),
        .shift = conv_table(next, s->scale ? s->shift : NULL, 0, n, s->y.c),
        .floor = s->relu ? 0 : -INFINITY,
    };
}

struct operand conv_operand(float **next, const struct conv_in *x, int n)
{
    int c = x->from[0].y.c;
    struct operand o = {.c = c, .period = row_period(c), .table = table_room(c), .count = x->count};
    for (int i = 0; i < x->count; i++)
        o.from[i] = make_source(next, &x->from[i], n);
    return o;
}

struct operand conv_gradient(float **next, const struct conv_grad *g, int n)
{
    int c = g->g.c;
    struct operand o = {.is_grad = 1, .c = c, .period = row_period(c), .table = table_room(c)};
    o.grad = (struct row_grad){.g = g->g.data, .type = g->g.type};
    if (!g->p && !g->y.relu)
        return o;
    o.grad.y = make_source(next, &g->y, n);
    o.grad.p = conv_table(next, g->p, 1, n, c);
    o.grad.q = conv_table(next, g->p ? g->q : NULL, 0, n, c);
    o.grad.r = conv_table(next, g->p ? g->r : NULL, 0, n, c);
    return o;
}

static const void *element_at(const void *base, enum value_type type, int64_t i)
{
    return base ? (const char *)base + i * (int64_t)value_bytes(type) : NULL;
}

static struct row_source source_at(struct row_source s, int64_t table, int64_t element)
{
    s.y = element_at(s.y, s.type, element);
    if (s.scale) {
        s.scale += table;
        s.shift += table;
    }
    return s;
}

/* `rows` chunks of an operand from an element on, tables of one item. */
static void read_rows(const struct conv *v, void *to, int64_t to_stride, const struct operand *o, int item,
                      int64_t element, int64_t from_stride, int64_t rows, int chunk)
{
    int64_t table = item * o->table;
    if (o->is_grad) {
        struct row_grad g = o->grad;
        g.g = element_at(g.g, g.type, element);
        if (g.y.y) {
            g.y = source_at(g.y, table, element);
            g.p += table;
            g.q += table;
            g.r += table;
        }
        v->rows->grad(to, v->type, to_stride, &g, from_stride, rows, chunk);
    } else {
        struct row_source s[2] = {source_at(o->from[0], table, element)};
        if (o->count > 1)
            s[1] = source_at(o->from[1], table, element);
        v->rows->fill(to, v->type, to_stride, s, o->count, from_stride, rows, chunk);
    }
}

/* `len` voxels, joined to rows of a whole number of vectors. */
static void read_voxels(const struct conv *v, char *to, const struct operand *o, int item, int64_t voxel,
                        int64_t len)
{
    int64_t all = len * o->c, rows = all / o->period, rest = all % o->period, done = all - rest;
    read_rows(v, to, o->period, o, item, voxel * o->c, o->period, rows, o->period);
    if (rest)
        read_rows(v, to + done * (int64_t)v->element, rest, o, item, voxel * o->c + done, rest, 1, (int)rest);
}

/* ---- places ---------------------------------------------------------------------------------------- */

int conv_locate(struct place *at, const struct conv *v, const struct block *b, int p, int r)
{
    int plane = b->plane + p, row = b->row + r;
    if (v->s.kind == CONV_3) {
        if (plane < 0 || plane % (v->d + 1) == v->d || row < 0 || row >= v->h)
            return 0;
        at->item = plane / (v->d + 1);
        at->z = plane % (v->d + 1);
        at->y = row;
    } else {
        at->item = row / (v->d * v->h);
        at->z = row / v->h % v->d;
        at->y = row % v->h;
    }
    at->voxel = (((int64_t)at->item * v->d + at->z) * v->h + at->y) * v->w + b->x;
    return 1;
}

int64_t conv_fine_voxel(const struct conv *v, const struct place *at, const struct block *b, int t)
{
    int64_t z = ((int64_t)at->item * v->d + at->z) * 2 + t / 4, y = 2 * at->y + t / 2 % 2;
    return (z * 2 * v->h + y) * 2 * v->w + 2 * b->x + t % 2;
}

/* ---- filling A --------------------------------------------------------------------------------------- */

/* Planes with the border before and, as far as there is room for it, behind each line: `rows` lines each,
 * from the one above the block on, `row` positions apart. Returns where they end. */
static char *fill_padded(const struct conv *v, char *to, const struct operand *o, const struct block *b,
                         int plane, int planes, int64_t row, int64_t rows)
{
    size_t edge = (size_t)o->c * v->element, line = edge * (size_t)row, end = edge * (size_t)(v->w + 1);
    struct place at;
    for (int p = plane; p < plane + planes; p++)
        for (int r = -1; r < rows - 1; r++, to += line) {
            if (!conv_locate(&at, v, b, p, r)) {
                memset(to, 0, line);
                continue;
            }
            memset(to, 0, edge);
            read_voxels(v, to + edge, o, at.item, at.voxel, v->w);
            memset(to + end, 0, line - end);
        }
    return to;
}

/* The same to be expanded: with a border of its own for each line and plane. */
static void fill_stage(const struct conv *v, char *to, const struct operand *o, const struct block *b,
                       int plane, int planes)
{
    char *end = fill_padded(v, to, o, b, plane, planes, v->w + 2, b->rows + 2);
    memset(end, 0, 64); /* what expand() may read behind the last line */
}

static void fill_nine(const struct conv *v, char *to, char *stage, const struct side *a,
                      const struct operand *o, const struct block *b, int plane)
{
    size_t step = (size_t)a->c * v->element, row = (size_t)a->ld * v->element;
    size_t line = step * (size_t)(v->w + 2), offset[3] = {0, line, 2 * line};
    struct place at;
    for (int p = plane; p <= b->planes; p++) {
        int there = conv_locate(&at, v, b, p, 0);
        if (there)
            fill_stage(v, stage, o, b, p, 1);
        for (int r = 0; r < b->rows; r++, to += row * (size_t)v->w) {
            if (there)
                v->rows->expand(to, row, stage + (size_t)r * line, step, offset, 3, 3 * step, v->w);
            else
                memset(to, 0, row * (size_t)v->w);
        }
    }
}

static void fill_all(const struct conv *v, char *to, char *stage, const struct side *a,
                     const struct operand *o, const struct block *b)
{
    size_t step = (size_t)a->c * v->element, row = (size_t)a->ld * v->element;
    size_t line = step * (size_t)(v->w + 2), plane = line * (size_t)(b->rows + 2), offset[9];
    struct place at;
    for (size_t k = 0; k < 9; k++)
        offset[k] = k / 3 * plane + k % 3 * line;
    fill_stage(v, stage, o, b, -1, b->planes + 2);
    for (int p = 0; p < b->planes; p++)
        for (int r = 0; r < b->rows; r++, to += row * (size_t)v->w) {
            if (!conv_locate(&at, v, b, p, r)) {
                memset(to, 0, row * (size_t)v->w);
                continue;
            }
            v->rows->expand(to, row, stage + (size_t)p * plane + (size_t)r * line, step, offset, 9, 3 * step,
                            v->w);
        }
}

static void fill_lines(const struct conv *v, char *to, const struct side *a, const struct operand *o,
                       const struct block *b)
{
    struct place at;
    for (int r = 0; r < b->rows; r++, to += b->len * a->ld * (int64_t)v->element) {
        conv_locate(&at, v, b, 0, r);
        if (a->form == FORM_FLAT)
            read_voxels(v, to, o, at.item, at.voxel, b->len);
        for (int t = 0; a->form == FORM_EIGHT && t < 8; t += 2) /* two fine voxels side by side */
            read_rows(v, to + (size_t)(t * a->c) * v->element, a->ld, o, at.item,
                      conv_fine_voxel(v, &at, b, t) * a->c, 2 * a->c, b->len, 2 * a->c);
    }
}

/* The last two planes of the block before are the first two of this one: brings them to the front. Returns
 * the first plane that is still to be filled. */
static int keep_planes(const struct conv *v, char **to, const struct side *a, const struct block *before,
                       const struct block *b)
{
    size_t plane = (size_t)(conv_grid(a, b).plane * a->ld) * v->element;
    if (!before || before->row != b->row || before->plane + before->planes != b->plane)
        return -1;
    memmove(*to, *to + (size_t)before->planes * plane, 2 * plane);
    *to += 2 * plane;
    return 1;
}

void conv_fill(const struct conv *v, char *to, char *stage, const struct side *a, const struct operand *o,
               const struct block *b, const struct block *before)
{
    char *end = to + (size_t)(conv_positions(a, b) * a->ld) * v->element;
    struct grid g = conv_grid(a, b);
    int plane;
    switch (a->form) {
    case FORM_PADDED:
        plane = keep_planes(v, &to, a, before, b);
        to = fill_padded(v, to, o, b, plane, b->planes + 1 - plane, g.row, g.plane / g.row);
        memset(to, 0, (size_t)(end - to));
        break;
    case FORM_NINE:
        plane = keep_planes(v, &to, a, before, b);
        fill_nine(v, to, stage, a, o, b, plane);
        break;
    case FORM_ALL: fill_all(v, to, stage, a, o, b); break;
    case FORM_FLAT:
    case FORM_EIGHT: fill_lines(v, to, a, o, b); break;
    }
    memset(end, 0, GEMM_SLACK * v->element);
}

/* ---- filling Y --------------------------------------------------------------------------------------- */

const char *conv_line(const struct conv *v, const char *block, const struct side *a, const struct block *b,
                      int p, int r)
{
    struct grid g = conv_grid(a, b);
    int64_t at = p * g.plane + r * g.row, centre = 0;
    switch (a->form) {
    case FORM_PADDED: at += g.plane + g.row + 1; break;
    case FORM_NINE: at += g.plane, centre = 4 * a->c; break;
    case FORM_ALL: centre = 13 * a->c; break;
    case FORM_FLAT:
    case FORM_EIGHT: break;
    }
    return block + (at * a->ld + centre) * (int64_t)v->element;
}

int conv_is_y(const struct conv *v, const struct block *b)
{
    enum form form = v->data.a.form;
    int same = form == v->weights.form && conv_grid(&v->data.a, b).row == conv_grid(&v->weights, b).row;
    return form == FORM_FLAT || (same && (form == FORM_NINE || (form == FORM_PADDED && b->whole)));
}

void conv_fill_y(const struct conv *v, char *to, const struct operand *o, const struct block *b,
                 const char *filled, const struct side *by)
{
    struct grid g = conv_grid(&v->weights, b);
    size_t row = (size_t)o->c * v->element;
    struct row_grad copy = {.type = v->type};
    struct place at;
    char *end = to;
    for (int p = 0; p < b->planes; p++)
        for (int r = 0; r < b->rows; r++) {
            char *line = to + (size_t)(p * g.plane + r * g.row) * row;
            if (!conv_locate(&at, v, b, p, r))
                continue;
            memset(end, 0, (size_t)(line - end));
            end = line + (size_t)b->len * row;
            copy.g = filled ? conv_line(v, filled, by, b, p, r) : NULL;
            if (filled)
                v->rows->grad(line, v->type, o->c, &copy, by->ld, b->len, o->c);
            else
                read_voxels(v, line, o, at.item, at.voxel, b->len);
        }
    memset(end, 0, (size_t)(to + (size_t)g.m * row - end));
}
