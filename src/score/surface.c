/* surface.c - surface voxels, surface corners and the area of the surface in a cell. See surface.h.
 *
 * Areas. Take the eight voxel centres around a corner as the corners of a cube. Between a set and
 * an unset one the surface cuts the edge in the middle. The set corners that hang together along
 * edges are cut off by one closed polygon of such mid-points (if more than four are set, the unset
 * ones are cut off instead: the surface is the same seen from behind). Diagonal corners stay apart.
 *
 *        o-------o        one corner    triangle            L of three   pentagon, not flat
 *       /|      /|        edge          rectangle           face         square
 *      *-+-*---o |        tripod        hexagon, flat       path of four hexagon, not flat
 *      | o-|---|-o
 *      |/  *   |/         A polygon that is not flat is spread as the fan of triangles whose
 *      #---*---o          area is largest at unit spacing.
 *
 * These are the areas of marching cubes with its usual triangles and a threshold of one half.
 */
#include <math.h>
#include <string.h>

#include "score/surface.h"

/* ---- masks --------------------------------------------------------------------------------- */

struct cut_job {
    struct mask_pair *m;
    const struct label_pair *from;
    const struct mask_box *box;
    label_t class;
};

static void cut_slice(void *arg, int64_t z)
{
    const struct cut_job *j = arg;
    const int64_t *n = j->m->dims;
    label_t class = j->class;
    for (int64_t y = 0; y < n[1]; y++) {
        int64_t row = ((z + j->box->lo[2]) * j->from->dims[1] + y + j->box->lo[1]) * j->from->dims[0];
        const label_t *t = j->from->truth + row + j->box->lo[0];
        const label_t *p = j->from->prediction + row + j->box->lo[0];
        uint8_t *bits = j->m->bits + ((z + 1) * (n[1] + 2) + y + 1) * (n[0] + 2) + 1;
        for (int64_t x = 0; x < n[0]; x++)
            bits[x] = (uint8_t)((t[x] == class) | ((p[x] == class) << 1));
    }
}

int mask_pair_new(struct mask_pair *out, const struct label_pair *from, const struct mask_box *box,
                  label_t class, struct pool *pool, struct error *e)
{
    struct cut_job job = {out, from, box, class};
    size_t bytes = 1;
    for (int a = 0; a < 3; a++) {
        out->dims[a] = box->hi[a] - box->lo[a];
        bytes *= (size_t)out->dims[a] + 2; /* a box inside a volume in memory: no overflow */
    }
    out->bits = mem_alloc(e, bytes, 1);
    if (!out->bits)
        return -1;
    pool_run(pool, out->dims[2], cut_slice, &job);
    return 0;
}

void mask_pair_free(struct mask_pair *m)
{
    mem_free(m->bits);
    memset(m, 0, sizeof *m);
}

/* ---- marks --------------------------------------------------------------------------------- */

struct mark_job {
    uint8_t *marks;
    const struct mask_pair *m;
};

static void mark_voxel_slice(void *arg, int64_t z)
{
    const struct mark_job *j = arg;
    const int64_t *n = j->m->dims;
    int64_t row = n[0] + 2, slice = row * (n[1] + 2);
    for (int64_t y = 0; y < n[1]; y++) {
        const uint8_t *b = j->m->bits + (z + 1) * slice + (y + 1) * row + 1;
        uint8_t *mark = j->marks + (z * n[1] + y) * n[0];
        for (int64_t x = 0; x < n[0]; x++) {
            unsigned all = b[x - 1] & b[x + 1] & b[x - row] & b[x + row] & b[x - slice] & b[x + slice];
            mark[x] = (uint8_t)(b[x] & ~all);
        }
    }
}

void surface_mark_voxels(uint8_t *marks, const struct mask_pair *m, struct pool *pool)
{
    struct mark_job job = {marks, m};
    pool_run(pool, m->dims[2], mark_voxel_slice, &job);
}

static void mark_corner_slice(void *arg, int64_t z)
{
    const struct mark_job *j = arg;
    const int64_t *n = j->m->dims;
    int64_t row = n[0] + 2, slice = row * (n[1] + 2);
    for (int64_t y = 0; y <= n[1]; y++) {
        const uint8_t *a = j->m->bits + z * slice + y * row;
        const uint8_t *b = a + row, *c = a + slice, *d = c + row;
        uint8_t *mark = j->marks + (z * (n[1] + 1) + y) * (n[0] + 1);
        for (int64_t x = 0; x <= n[0]; x++) {
            unsigned any = a[x] | a[x + 1] | b[x] | b[x + 1] | c[x] | c[x + 1] | d[x] | d[x + 1];
            unsigned all = a[x] & a[x + 1] & b[x] & b[x + 1] & c[x] & c[x + 1] & d[x] & d[x + 1];
            mark[x] = (uint8_t)(any & ~all);
        }
    }
}

void surface_mark_corners(uint8_t *marks, const struct mask_pair *m, struct pool *pool)
{
    struct mark_job job = {marks, m};
    pool_run(pool, m->dims[2] + 1, mark_corner_slice, &job);
}

int surface_code(const struct mask_pair *m, int64_t corner, uint8_t bit)
{
    int64_t row = m->dims[0] + 2, slice = row * (m->dims[1] + 2);
    int64_t x = corner % (m->dims[0] + 1), rest = corner / (m->dims[0] + 1);
    int64_t y = rest % (m->dims[1] + 1), z = rest / (m->dims[1] + 1);
    const uint8_t *b = m->bits + z * slice + y * row + x;
    int code = 0;
    for (int k = 0; k < 8; k++)
        if (b[(k & 1) + (k >> 1 & 1) * row + (k >> 2) * slice] & bit)
            code |= 1 << k;
    return code;
}

/* ---- areas --------------------------------------------------------------------------------- */

struct polygon {
    int n;
    double at[6][3]; /* in the unit cube; four connected corners are cut off by at most six edges */
};

/* The corners (as a bit set) that hang together with the lowest one of `set`. */
static int connected(int set)
{
    int found = set & -set, before;
    do {
        before = found;
        for (int k = 0; k < 8; k++)
            if (found >> k & 1)
                found |= set & (1 << (k ^ 1) | 1 << (k ^ 2) | 1 << (k ^ 4));
    } while (found != before);
    return found;
}

/* The middles of the edges that leave `set`, in no order. */
static void cut_points(struct polygon *out, int set)
{
    out->n = 0;
    for (int k = 0; k < 8; k++)
        for (int axis = 0; axis < 3; axis++) {
            if (!(set >> k & 1) || (set >> (k ^ 1 << axis) & 1))
                continue;
            for (int a = 0; a < 3; a++)
                out->at[out->n][a] = a == axis ? 0.5 : (double)(k >> a & 1);
            out->n++;
        }
}

static int share_face(const double a[3], const double b[3])
{
    for (int i = 0; i < 3; i++)
        if (a[i] == b[i] && a[i] != 0.5)
            return 1;
    return 0;
}

/* Around the polygon the next point is one on a common face of the cube. */
static void order_points(struct polygon *p)
{
    for (int i = 1; i < p->n; i++)
        for (int k = i; k < p->n; k++)
            if (share_face(p->at[i - 1], p->at[k])) {
                double t[3];
                memcpy(t, p->at[i], sizeof t);
                memcpy(p->at[i], p->at[k], sizeof t);
                memcpy(p->at[k], t, sizeof t);
                break;
            }
}

static double triangle_area(const double a[3], const double b[3], const double c[3], const double spacing[3])
{
    double u[3], v[3];
    for (int i = 0; i < 3; i++) {
        u[i] = (b[i] - a[i]) * spacing[i];
        v[i] = (c[i] - a[i]) * spacing[i];
    }
    double x = u[1] * v[2] - u[2] * v[1], y = u[2] * v[0] - u[0] * v[2];
    double z = u[0] * v[1] - u[1] * v[0];
    return 0.5 * sqrt(x * x + y * y + z * z);
}

static double fan_area(const struct polygon *p, int first, const double spacing[3])
{
    double sum = 0;
    for (int i = 1; i + 1 < p->n; i++)
        sum += triangle_area(p->at[first], p->at[(first + i) % p->n], p->at[(first + i + 1) % p->n], spacing);
    return sum;
}

static double polygon_area(const struct polygon *p, const double spacing[3])
{
    static const double unit[3] = {1, 1, 1};
    int best = 0;
    for (int first = 1; first < p->n; first++)
        if (fan_area(p, first, unit) > fan_area(p, best, unit) + 1e-9) /* ties: the first */
            best = first;
    return fan_area(p, best, spacing);
}

void surface_areas(double area[256], const double spacing[3])
{
    for (int code = 0; code < 256; code++) {
        int left = __builtin_popcount((unsigned)code) <= 4 ? code : 255 - code;
        area[code] = 0;
        while (left) {
            struct polygon p;
            int part = connected(left);
            cut_points(&p, part);
            order_points(&p);
            area[code] += polygon_area(&p, spacing);
            left &= ~part;
        }
    }
}
