/* distance.c - exact Euclidean distance transform, one axis at a time. See distance.h.
 *
 * The squared distance to the nearest marked voxel is separable:
 *
 *   D(x,y,z) = min over z' of (sz (z-z'))^2 + [min over x' of (sx (x-x'))^2 + [min over y' ...]]
 *
 *   pass 1, along y   steps to the nearest mark in the same column, for the whole grid: two
 *                     sweeps of whole rows, 16 bits a voxel
 *   pass 2, along x   lower envelope of the parabolas (sx (x-x'))^2 + (sy steps(x'))^2
 *   pass 3, along z   the same, over the results of pass 2
 *
 * (Meijster et al. 2000; Felzenszwalb and Huttenlocher 2012.) After pass 1 each y is a plane (z, x)
 * of its own, small enough for the cache: `steps` is laid out [y][z][x], and passes 2 and 3 need
 * memory for one plane a thread only.
 *
 * Most questions are asked close to the answer (two surfaces of the same organ). So before passes 2
 * and 3 a plane's questions are put to a search that walks outwards from the voxel and stops when
 * no nearer mark is possible. The search has a budget of a few looks per voxel of the plane; what
 * is not answered then is answered by passes 2 and 3. Both give exact values, and the whole stays
 * linear in the grid.
 */
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "score/distance.h"

#define NO_MARK UINT32_MAX

/* Looks per voxel of a plane. A look takes 1 to 2 ns, passes 2 and 3 about 16 ns a voxel: a search
 * that fails costs at most half as much again. */
enum { LOOKS_PER_VOXEL = 4 };

/* Lower envelope of parabolas f + w (q - at)^2: number i is lowest from start[i] to start[i+1]. */
struct envelope {
    int n;
    int32_t *at;
    uint32_t *note; /* what the owner wants to know about the parabola */
    double *f, *start;
};

struct scratch {       /* one per thread */
    uint32_t *nearest; /* [z][x]: steps along y << 16 | steps along x, or NO_MARK */
    double *value;     /* [z][x]: distances, in the columns asked about */
    uint8_t *asked;    /* [x]: 1 = this column is wanted */
    struct envelope envelope;
};

struct distance {
    int64_t dims[3];
    struct pool *pool;
    double *square[3];  /* square[a][n] = (n * spacing[a])^2; one more along y: no mark, infinite */
    double *slope[3];   /* slope[a][n] = 1 / (2 n spacing[a]^2) */
    uint16_t *steps;    /* [y][z][x]: steps along y to the nearest mark; dims[1] = there is none */
    int64_t *row_start; /* dims[1] + 1: first list entry of each y */
    struct scratch *scratch;
    int n_scratch;

    /* the job under way */
    const uint8_t *marks;
    uint8_t from, to;
    struct distance_list *list;
    atomic_int_fast64_t next;
};

/* ---- memory -------------------------------------------------------------------------------- */

static int scratch_init(struct scratch *s, const int64_t dims[3], struct error *e)
{
    size_t longest = (size_t)(dims[0] > dims[2] ? dims[0] : dims[2]);
    s->nearest = mem_alloc(e, (size_t)(dims[0] * dims[2]), sizeof *s->nearest);
    s->value = mem_alloc(e, (size_t)(dims[0] * dims[2]), sizeof *s->value);
    s->asked = mem_alloc(e, (size_t)dims[0], 1);
    s->envelope.at = mem_alloc(e, longest, sizeof *s->envelope.at);
    s->envelope.note = mem_alloc(e, longest, sizeof *s->envelope.note);
    s->envelope.f = mem_alloc(e, longest, sizeof *s->envelope.f);
    s->envelope.start = mem_alloc(e, longest, sizeof *s->envelope.start);
    return s->nearest && s->value && s->asked && s->envelope.at && s->envelope.note && s->envelope.f &&
                   s->envelope.start
               ? 0
               : -1;
}

static void scratch_done(struct scratch *s)
{
    mem_free(s->nearest);
    mem_free(s->value);
    mem_free(s->asked);
    mem_free(s->envelope.at);
    mem_free(s->envelope.note);
    mem_free(s->envelope.f);
    mem_free(s->envelope.start);
}

static int axis_tables(struct distance *d, int axis, double spacing, struct error *e)
{
    int64_t n = d->dims[axis];
    if (n < 1 || n > DISTANCE_MAX_AXIS)
        return fail(e, ERR_DATA, NULL, "axis of %lld voxels, distances need 1..%d", (long long)n,
                    DISTANCE_MAX_AXIS);
    if (!(spacing > 0 && isfinite(spacing)))
        return fail(e, ERR_DATA, NULL, "spacing %g, distances need a positive one", spacing);
    d->square[axis] = mem_alloc(e, (size_t)n + 1, sizeof(double));
    d->slope[axis] = mem_alloc(e, (size_t)n, sizeof(double));
    if (!d->square[axis] || !d->slope[axis])
        return -1;
    for (int64_t i = 0; i < n; i++) {
        d->square[axis][i] = ((double)i * spacing) * ((double)i * spacing);
        d->slope[axis][i] = 1.0 / (2.0 * (double)i * (spacing * spacing));
    }
    d->square[axis][n] = INFINITY;
    return 0;
}

int distance_new(struct distance **out, const int64_t dims[3], const double spacing[3], struct pool *pool,
                 struct error *e)
{
    struct distance *d = mem_alloc(e, 1, sizeof *d);
    if (!d)
        return -1;
    size_t voxels;
    d->pool = pool;
    memcpy(d->dims, dims, sizeof d->dims);
    for (int a = 0; a < 3; a++)
        if (axis_tables(d, a, spacing[a], e) < 0)
            goto bad;
    if (size_mul(&voxels, (size_t)(dims[0] * dims[1]), (size_t)dims[2]) < 0) {
        fail(e, ERR_MEMORY, NULL, "%lld x %lld x %lld voxels are too many", (long long)dims[0],
             (long long)dims[1], (long long)dims[2]);
        goto bad;
    }
    d->steps = mem_alloc(e, voxels, sizeof *d->steps);
    d->row_start = mem_alloc(e, (size_t)dims[1] + 1, sizeof *d->row_start);
    d->scratch = mem_alloc(e, (size_t)pool_threads(pool), sizeof *d->scratch);
    if (!d->steps || !d->row_start || !d->scratch)
        goto bad;
    for (d->n_scratch = 0; d->n_scratch < pool_threads(pool);)
        if (scratch_init(&d->scratch[d->n_scratch++], dims, e) < 0)
            goto bad;
    *out = d;
    return 0;
bad:
    distance_free(d);
    return -1;
}

void distance_free(struct distance *d)
{
    if (!d)
        return;
    for (int i = 0; i < d->n_scratch; i++)
        scratch_done(&d->scratch[i]);
    for (int a = 0; a < 3; a++) {
        mem_free(d->square[a]);
        mem_free(d->slope[a]);
    }
    mem_free(d->scratch);
    mem_free(d->row_start);
    mem_free(d->steps);
    mem_free(d);
}

void distance_list_free(struct distance_list *l)
{
    mem_free(l->value);
    mem_free(l->at);
    memset(l, 0, sizeof *l);
}

/* One worker per scratch; each takes slices or planes until none is left. */
static void run_workers(struct distance *d, void (*worker)(void *d, int64_t slot))
{
    atomic_store(&d->next, 0);
    pool_run(d->pool, d->n_scratch, worker, d);
}

/* ---- envelope ------------------------------------------------------------------------------ */

/* Adds the parabola with its lowest point f at q; q grows from call to call, last is the highest
 * place that will be asked about. Two parabolas cross at (f_q - f_p) / (2 w (q - p)) + (p + q) / 2.
 */
static inline void envelope_add(struct envelope *v, int32_t q, double f, uint32_t note, const double *slope,
                                double last)
{
    double start = 0.0; /* the first one holds from the first voxel on */
    while (v->n > 0) {
        int32_t p = v->at[v->n - 1];
        start = (f - v->f[v->n - 1]) * slope[q - p] + 0.5 * (double)(q + p);
        if (start > v->start[v->n - 1])
            break;
        v->n--; /* the one before is nowhere lowest */
        start = 0.0;
    }
    if (start > last)
        return; /* lowest only beyond the end */
    v->at[v->n] = q;
    v->note[v->n] = note;
    v->f[v->n] = f;
    v->start[v->n++] = start;
}

/* ---- pass 1: one slice, all y -------------------------------------------------------------- */

/* Row by row, so that each inner loop is one vector loop over x. */
static void sweep_slice(struct distance *d, int64_t z)
{
    int64_t nx = d->dims[0], ny = d->dims[1], plane = d->dims[2] * nx;
    uint16_t none = (uint16_t)ny;
    uint8_t to = d->to;
    for (int64_t y = 0; y < ny; y++) {
        const uint8_t *mark = d->marks + (z * ny + y) * nx;
        uint16_t *row = d->steps + y * plane + z * nx;
        const uint16_t *above = y > 0 ? row - plane : NULL;
        for (int64_t x = 0; !above && x < nx; x++)
            row[x] = (mark[x] & to) ? 0 : none;
        for (int64_t x = 0; above && x < nx; x++) {
            uint16_t next = (uint16_t)(above[x] + (above[x] != none));
            row[x] = (mark[x] & to) ? 0 : next;
        }
    }
    for (int64_t y = ny - 2; y >= 0; y--) {
        uint16_t *row = d->steps + y * plane + z * nx;
        const uint16_t *below = row + plane;
        for (int64_t x = 0; x < nx; x++) {
            uint16_t next = (uint16_t)(below[x] + (below[x] != none));
            row[x] = next < row[x] ? next : row[x];
        }
    }
}

static void slice_worker(void *arg, int64_t slot)
{
    struct distance *d = arg;
    (void)slot;
    for (int64_t z; (z = atomic_fetch_add(&d->next, 1)) < d->dims[2];)
        sweep_slice(d, z);
}

/* ---- passes 2 and 3: one plane ------------------------------------------------------------- */

static void nearest_in_row(uint32_t *nearest, const uint16_t *steps, const struct distance *d,
                           struct envelope *v)
{
    int64_t nx = d->dims[0], x = 0;
    uint16_t none = (uint16_t)d->dims[1];
    v->n = 0;
    for (int32_t q = 0; q < nx; q++)
        if (steps[q] != none)
            envelope_add(v, q, d->square[1][steps[q]], steps[q], d->slope[0], (double)(nx - 1));
    if (v->n == 0)
        memset(nearest, 0xff, (size_t)nx * sizeof *nearest); /* NO_MARK */
    for (int i = 0; i < v->n; i++) {
        int64_t end = i + 1 < v->n ? (int64_t)v->start[i + 1] + 1 : nx;
        for (; x < end; x++)
            nearest[x] = v->note[i] << 16 | (uint32_t)(x < v->at[i] ? v->at[i] - x : x - v->at[i]);
    }
}

static void distances_in_column(double *value, const uint32_t *nearest, const struct distance *d,
                                struct envelope *v)
{
    int64_t nx = d->dims[0], nz = d->dims[2];
    int i = 0;
    v->n = 0;
    for (int32_t z = 0; z < nz; z++)
        if (nearest[z * nx] != NO_MARK) {
            double f = d->square[1][nearest[z * nx] >> 16] + d->square[0][nearest[z * nx] & 0xffff];
            envelope_add(v, z, f, 0, d->slope[2], (double)(nz - 1));
        }
    for (int64_t z = 0; z < nz; z++) {
        if (v->n == 0) {
            value[z * nx] = INFINITY;
            continue;
        }
        while (i + 1 < v->n && v->start[i + 1] < (double)z)
            i++;
        int64_t along_z = z < v->at[i] ? v->at[i] - z : z - v->at[i];
        value[z * nx] = sqrt(v->f[i] + d->square[2][along_z]);
    }
}

/* Distances in the columns x with s->asked[x]. */
static void distances_in_plane(struct scratch *s, const struct distance *d, int64_t y)
{
    int64_t nx = d->dims[0], nz = d->dims[2];
    for (int64_t z = 0; z < nz; z++)
        nearest_in_row(s->nearest + z * nx, d->steps + (y * nz + z) * nx, d, &s->envelope);
    for (int64_t x = 0; x < nx; x++)
        if (s->asked[x])
            distances_in_column(s->value + x, s->nearest + x, d, &s->envelope);
}

/* ---- search -------------------------------------------------------------------------------- */

struct search {
    const uint16_t *plane; /* steps of this y */
    int64_t looks_left;
    double best; /* squared */
};

/* Looks at one row of the plane, outwards from x, as long as something nearer is possible. */
static void search_row(struct search *s, const struct distance *d, int64_t z, int64_t x, double along_z)
{
    const double *along_x = d->square[0], *along_y = d->square[1];
    const uint16_t *row = s->plane + z * d->dims[0];
    int64_t left = x, right = d->dims[0] - 1 - x, far = left > right ? left : right, k = 0;
    for (; k <= far && along_x[k] + along_z < s->best; k++) {
        double a = k <= left ? along_y[row[x - k]] : INFINITY;
        double b = k <= right ? along_y[row[x + k]] : INFINITY;
        double here = ((a < b ? a : b) + along_x[k]) + along_z;
        s->best = here < s->best ? here : s->best;
    }
    s->looks_left -= 2 * k + 1;
}

/* The distance of voxel (x, z) of the plane, or -1 if the looks ran out. */
static double search_from(struct search *s, const struct distance *d, int64_t x, int64_t z)
{
    int64_t below = z, above = d->dims[2] - 1 - z, far = below > above ? below : above;
    s->best = INFINITY;
    for (int64_t k = 0; k <= far && d->square[2][k] < s->best; k++) {
        if (s->looks_left <= 0)
            return -1;
        if (k <= below)
            search_row(s, d, z - k, x, d->square[2][k]);
        if (k > 0 && k <= above)
            search_row(s, d, z + k, x, d->square[2][k]);
    }
    return sqrt(s->best);
}

/* ---- lists --------------------------------------------------------------------------------- */

static void count_row(void *arg, int64_t y)
{
    struct distance *d = arg;
    int64_t nx = d->dims[0], ny = d->dims[1], n = 0;
    uint8_t from = d->from;
    for (int64_t z = 0; z < d->dims[2]; z++) {
        const uint8_t *mark = d->marks + (z * ny + y) * nx;
        int32_t in_row = 0; /* 32 bits: a vector sum */
        for (int64_t x = 0; x < nx; x++)
            in_row += (mark[x] & from) != 0;
        n += in_row;
    }
    d->row_start[y + 1] = n;
}

/* Where the next mark may be: skips zeros, eight at a time while eight are left. */
static inline int64_t skip_zeros(const uint8_t *row, int64_t x, int64_t nx)
{
    uint64_t eight;
    while (x + 8 <= nx && (memcpy(&eight, row + x, 8), eight == 0))
        x += 8;
    return x;
}

/* Enters the voxels of `from` in one plane. */
static void list_voxels(struct distance *d, int64_t y)
{
    int64_t nx = d->dims[0], ny = d->dims[1], n = d->row_start[y];
    for (int64_t z = 0; z < d->dims[2]; z++) {
        int64_t start = (z * ny + y) * nx;
        const uint8_t *row = d->marks + start;
        for (int64_t x = skip_zeros(row, 0, nx); x < nx;) {
            if (row[x] & d->from)
                d->list->at[n++] = start + x;
            x++;
            if (x < nx && row[x] == 0)
                x = skip_zeros(row, x, nx);
        }
    }
}

static void list_plane(struct distance *d, struct scratch *s, int64_t y)
{
    int64_t nx = d->dims[0], ny = d->dims[1], nz = d->dims[2];
    int64_t first = d->row_start[y], end = d->row_start[y + 1];
    struct search search = {d->steps + y * nz * nx, LOOKS_PER_VOXEL * nx * nz, 0};
    int any = 0;
    if (first == end)
        return;
    list_voxels(d, y);
    memset(s->asked, 0, (size_t)nx);
    for (int64_t i = first; i < end; i++) {
        int64_t at = d->list->at[i];
        int on_it = (d->marks[at] & d->to) != 0;
        double value = on_it ? 0 : search_from(&search, d, at % nx, at / (nx * ny));
        d->list->value[i] = value;
        any |= s->asked[at % nx] |= value < 0;
    }
    if (!any)
        return;
    distances_in_plane(s, d, y);
    for (int64_t i = first; i < end; i++)
        if (d->list->value[i] < 0)
            d->list->value[i] = s->value[d->list->at[i] / (nx * ny) * nx + d->list->at[i] % nx];
}

static void list_worker(void *arg, int64_t slot)
{
    struct distance *d = arg;
    for (int64_t y; (y = atomic_fetch_add(&d->next, 1)) < d->dims[1];)
        list_plane(d, &d->scratch[slot], y);
}

int distance_between(struct distance_list *out, struct distance *d, const uint8_t *marks, uint8_t from,
                     uint8_t to, struct error *e)
{
    memset(out, 0, sizeof *out);
    d->marks = marks;
    d->from = from;
    d->to = to;
    d->list = out;
    pool_run(d->pool, d->dims[1], count_row, d);
    for (int64_t y = 0; y < d->dims[1]; y++)
        d->row_start[y + 1] += d->row_start[y];
    out->n = d->row_start[d->dims[1]];
    out->value = mem_alloc(e, (size_t)out->n, sizeof *out->value);
    out->at = mem_alloc(e, (size_t)out->n, sizeof *out->at);
    if (!out->value || !out->at) {
        distance_list_free(out);
        return -1;
    }
    run_workers(d, slice_worker);
    run_workers(d, list_worker);
    return 0;
}
