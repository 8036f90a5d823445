/* test_contrast.c - boundary voxels and the contrast between them.
 *
 * Oracles: brute force over neighbourhoods, a textbook double loop over pairs written here (itself
 * checked by finite differences), and PyTorch (golden/contrast_cases.h).
 */
#include "device/isa/levels.h"
#include "device/kernels.h"
#include "feature_scene.h"

#include "train/settings.h"

static int has_level(const char *level)
{
    struct error e;
    struct device *d = NULL;
    struct device_options o = {.name = "cpu", .precision = PRECISION_F32, .threads = 1, .level = level};
    int ok = device_open(&d, &o, &e) == 0;
    device_close(d);
    return ok;
}

/* ---- boundary ------------------------------------------------------------------------------- */

static int brute_near(const uint8_t *label, const int d[3], int rule, const int at[3])
{
    int lo = -1, hi = rule == NB_OFFICIAL ? 0 : 1, differs = 0;
    uint8_t own = label[(at[0] * d[1] + at[1]) * d[2] + at[2]];
    for (int z = at[0] + lo; z <= at[0] + hi; z++)
        for (int y = at[1] + lo; y <= at[1] + hi; y++)
            for (int x = at[2] + lo; x <= at[2] + hi; x++)
                if (z >= 0 && y >= 0 && x >= 0 && z < d[0] && y < d[1] && x < d[2])
                    differs |= label[(z * d[1] + y) * d[2] + x] != own;
    return rule == NB_BG_RING ? differs && own == 0 : differs;
}

static int brute_points(int64_t *points, const uint8_t *label, const int d[3], int rule)
{
    int n = 0;
    for (int z = 0; z < d[0]; z++)
        for (int y = 0; y < d[1]; y++)
            for (int x = 0; x < d[2]; x++)
                if (brute_near(label, d, rule, (const int[3]){z, y, x}))
                    points[n++] = ((int64_t)z * d[1] + y) * d[2] + x;
    return n;
}

static int points_near(int64_t *points, const uint8_t *label, const int d[3], int rule, int cap,
                       uint64_t seed, uint64_t step, uint32_t item)
{
    static uint8_t near_[2000];
    struct boundary b = {label, d, rule, cap, seed, step, item, near_};
    struct pool *pool;
    assert_int_equal(pool_new(&pool, 2, NULL), 0);
    int n = boundary_points(points, &b, pool);
    pool_free(pool);
    return n;
}

static void test_boundary_rules(void **state)
{
    static const int shapes[][3] = {{1, 1, 1}, {6, 5, 7}, {1, 3, 600}, {3, 1, 1}, {9, 8, 1}, {2, 2, 257}};
    static int64_t got[2000], want[2000];
    static uint8_t label[2000];
    int met = 0;
    (void)state;
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int rule = NB_CENTRED; rule <= NB_BG_RING; rule++)
            for (uint64_t salt = 0; salt < 6; salt++) {
                const int *d = shapes[s];
                size_t n = (size_t)d[0] * (size_t)d[1] * (size_t)d[2];
                fill_label(label, n, salt, 60); /* few foreground voxels of three classes */
                for (size_t i = 0; i < n; i++)
                    label[i] = label[i] < 3 ? (uint8_t)(label[i] + 1) : 0;
                int count = points_near(got, label, d, rule, 2000, 1, 2, 3);
                assert_int_equal(count, brute_points(want, label, d, rule));
                assert_memory_equal(got, want, (size_t)count * sizeof *got);
                met += count;
            }
    assert_true(met > 1000);
}

static void test_boundary_sample(void **state)
{
    const int d[3] = {4, 4, 8}, cap = 20, draws = 4000;
    uint8_t label[128];
    int64_t all[128], some[128], again[128];
    int times[128] = {0};
    (void)state;
    fill_label(label, 128, 1, 2);
    int total = brute_points(all, label, d, NB_CENTRED);
    assert_true(total > 100);
    for (int step = 0; step < draws; step++) {
        int got = points_near(some, label, d, NB_CENTRED, cap, 5, (uint64_t)step, 1);
        assert_int_equal(got, cap);
        for (int i = 0; i < cap; i++) {
            assert_true(i == 0 || some[i] > some[i - 1]);
            assert_true(
                brute_near(label, d, NB_CENTRED,
                           (const int[3]){(int)some[i] / 32, (int)some[i] / 8 % 4, (int)some[i] % 8}));
            times[some[i]]++;
        }
    }
    double mean = (double)cap * draws / total;
    for (int i = 0; i < total; i++) /* six standard deviations */
        assert_true(fabs(times[all[i]] - mean) < 6 * sqrt(mean));
    points_near(some, label, d, NB_CENTRED, cap, 5, 9, 1);
    points_near(again, label, d, NB_CENTRED, cap, 5, 9, 1);
    assert_memory_equal(some, again, (size_t)cap * sizeof *some);
    points_near(again, label, d, NB_CENTRED, cap, 5, 9, 2);
    assert_memory_not_equal(some, again, (size_t)cap * sizeof *some);
    assert_int_equal(points_near(some, label, d, NB_CENTRED, 0, 5, 9, 1), 0);
    memset(label, 1, sizeof label); /* no boundary at all [M08] */
    assert_int_equal(points_near(some, label, d, NB_CENTRED, cap, 5, 9, 1), 0);
}

static void test_rows(void **state)
{
    float x[24], rows[6], back[24] = {0};
    const int64_t at[2] = {6, 1};
    struct tensor t = {x, VALUE_F32, 1, 2, 2, 2, 3};
    (void)state;
    open_device(NULL, 1, 2, 0);
    fill(x, 24, 1, 0);
    gather_rows(dev, rows, &t, at, 2);
    assert_memory_equal(rows, x + 18, 3 * sizeof *x);
    assert_memory_equal(rows + 3, x + 3, 3 * sizeof *x);
    for (int i = 0; i < 2; i++)
        RUN(dev, scatter_rows, 6, .to = back, .rows = rows, .at = at, .c = 3);
    for (int i = 0; i < 24; i++)
        assert_true(back[i] == (i / 3 == 6 || i / 3 == 1 ? 2 * x[i] : 0.0f));
    fold_rows(dev, back, x, 3, 8, 3); /* rows 0 3 6, 1 4 7, 2 5 */
    for (int i = 0; i < 9; i++)
        assert_true(back[i] == (i < 6 ? x[i] + x[i + 9] + x[i + 18] : x[i] + x[i + 9]));
    close_device();
}

/* ---- contrast: textbook loops --------------------------------------------------------------- */

struct naive {
    int count, layout, reduce;
    double tau;
    const uint8_t *label;
};

/* rows[i][k] of the loss from the unit vectors. */
static int64_t naive_place(const struct naive *p, int64_t i, int c)
{
    if (p->layout == BCL_CORRECT)
        return i * C + c;
    return (int64_t)c * p->count + i; /* position in the list by channels, read as rows of 16 */
}

static void naive_rows(double *rows, const struct naive *p, const double *g)
{
    for (int64_t i = 0; i < p->count; i++) {
        double s = 0;
        for (int c = 0; c < C; c++)
            s += g[i * C + c] * g[i * C + c];
        for (int c = 0; c < C; c++)
            rows[naive_place(p, i, c)] = g[i * C + c] / fmax(sqrt(s), 1e-12);
    }
}

static double naive_score(const struct naive *p, const double *rows, int i, int j)
{
    double s = 0;
    for (int c = 0; c < C; c++)
        s += rows[i * C + c] * rows[j * C + c];
    return s / p->tau;
}

/* One anchor: L_i, and for gradient the derivatives by s_ij in ds (count); 0 positives: returns
 * 0. */
static double naive_anchor(const struct naive *p, const double *rows, int i, double *ds, int *positives)
{
    double most = -1e300, sum = 0, mean = 0;
    *positives = 0;
    for (int j = 0; j < p->count; j++) {
        ds[j] = j == i ? -1e300 : naive_score(p, rows, i, j);
        most = fmax(most, ds[j]);
        *positives += j != i && p->label[j] == p->label[i];
    }
    for (int j = 0; j < p->count; j++) {
        sum += j == i ? 0 : exp(ds[j] - most);
        mean += j != i && p->label[j] == p->label[i] ? ds[j] / *positives : 0;
    }
    for (int j = 0; j < p->count; j++) {
        double wanted = p->label[j] == p->label[i] ? 1.0 / *positives : 0;
        ds[j] = j == i ? 0 : exp(ds[j] - most) / sum - wanted;
    }
    return *positives ? most + log(sum) - mean : 0;
}

static double naive_contrast(const struct naive *p, const double *g, double *dg)
{
    size_t n = (size_t)p->count * C;
    double *rows = take(n, sizeof *rows), *drows = take(n, sizeof *drows), value = 0;
    double *ds = take((size_t)p->count, sizeof *ds);
    int anchors = 0, positives;
    naive_rows(rows, p, g);
    for (int i = 0; i < p->count; i++) {
        double v = naive_anchor(p, rows, i, ds, &positives);
        if (!positives)
            continue;
        anchors++;
        value += v;
        for (int j = 0; dg && j < p->count; j++)
            for (int c = 0; c < C; c++) {
                drows[i * C + c] += ds[j] * rows[j * C + c] / p->tau;
                drows[j * C + c] += ds[j] * rows[i * C + c] / p->tau;
            }
    }
    double share = anchors == 0 ? 0 : p->reduce == BCL_SUM ? 1 : 1.0 / anchors;
    for (int64_t i = 0; dg && i < p->count; i++) {
        double dot = 0, s = 0;
        for (int c = 0; c < C; c++) {
            dot += rows[naive_place(p, i, c)] * drows[naive_place(p, i, c)];
            s += g[i * C + c] * g[i * C + c];
        }
        for (int c = 0; c < C; c++)
            dg[i * C + c] =
                share / sqrt(s) * (drows[naive_place(p, i, c)] - rows[naive_place(p, i, c)] * dot);
    }
    mem_free(rows), mem_free(drows), mem_free(ds);
    return value * share;
}

/* Points in `classes` clusters, the last one alone in its class. */
struct points {
    float *g, *dg;
    double *exact, *want;
    uint8_t *label;
};

static struct points points_new(int count, uint32_t classes, uint64_t salt)
{
    size_t n = (size_t)count * C;
    struct points p = {take(n, 4), take(n, 4), take(n, 8), take(n, 8), take((size_t)count, 1)};
    fill(p.g, n, salt, 0);
    fill_label(p.label, (size_t)count, salt, classes);
    p.label[count - 1] = (uint8_t)classes;
    for (size_t i = 0; i < n; i++) {
        p.g[i] += 0.7f * (float)(p.label[i / C] * (i % C) % 3); /* classes differ, not cleanly */
        p.exact[i] = (double)p.g[i];
    }
    return p;
}

static void points_free(struct points *p)
{
    mem_free(p->g), mem_free(p->dg), mem_free(p->exact), mem_free(p->want), mem_free(p->label);
}

static void test_naive_contrast(void **state)
{
    (void)state;
    for (int layout = BCL_CORRECT; layout <= BCL_OFFICIAL; layout++) {
        struct points p = points_new(24, 2, 3);
        struct naive q = {24, layout, layout ? BCL_SUM : BCL_MEAN, 0.2, p.label};
        naive_contrast(&q, p.exact, p.want);
        for (int i = 0; i < 24 * C; i++) {
            double x = p.exact[i], h = 1e-5;
            p.exact[i] = x + h;
            double up = naive_contrast(&q, p.exact, NULL);
            p.exact[i] = x - h;
            double down = naive_contrast(&q, p.exact, NULL);
            p.exact[i] = x;
            near(p.want[i], (up - down) / (2 * h), 1e-7);
        }
        points_free(&p);
    }
}

/* Points that are all rows; in the official layout by the table of the list by channels, read as rows of 16.
 * */
static struct contrast_points all_rows(const float *g, const uint8_t *label, int count, double tau,
                                       int layout, int reduce)
{
    static int32_t place[2200 * C];
    struct naive p = {.count = count, .layout = layout};
    struct contrast_points of = {
        .g = g, .label = label, .count = count, .dims = C, .tau = tau, .reduce = reduce};
    if (layout == BCL_CORRECT)
        return of;
    for (int i = 0; i < count * C; i++)
        place[i] = (int32_t)naive_place(&p, i / C, i % C);
    of.place = place;
    of.points = count;
    return of;
}

static double contrast_of(const struct contrast_points *of, double weight, float *dg)
{
    double value;
    ask_contrast(scratch, of, weight, dg, &value);
    loss_settle(scratch);
    return value;
}

static void check_contrast(int count, double tau, int layout, int reduce)
{
    struct points p = points_new(count, 3, (uint64_t)count);
    struct naive q = {count, layout, reduce, tau, p.label};
    for (int i = 0; i < count * C; i++)
        p.dg[i] = 0.25f; /* must be added to */
    double want = naive_contrast(&q, p.exact, p.want);
    struct contrast_points of = all_rows(p.g, p.label, count, tau, layout, reduce);
    double got = contrast_of(&of, 0.5, p.dg);
    near(got, want, 1e-5);
    for (int i = 0; i < count * C; i++)
        p.dg[i] = 2 * (p.dg[i] - 0.25f);
    double error = nmse(p.dg, p.want, (size_t)count * C);
    if (!(error < 1e-6))
        test_fail("N %d tau %g layout %d reduce %d: gradient NMSE %g", count, tau, layout, reduce, error);
    near(contrast_of(&of, 0, NULL), got, 0);
    points_free(&p);
}

static void test_contrast_levels(void **state)
{
    static const int counts[] = {3, 16, 63, 64, 65, 130, 300};
    (void)state;
    for (int l = 0; l < ISA_LEVELS; l++) {
        if (!has_level(isa_names[l]))
            continue;
        open_device(isa_names[l], 2, 4, 300);
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
            for (int layout = BCL_CORRECT; layout <= BCL_OFFICIAL; layout++) {
                check_contrast(counts[i], 0.07, layout, i % 2 ? BCL_SUM : BCL_MEAN);
                check_contrast(counts[i], 0.012, layout, BCL_MEAN); /* a shift for every row */
            }
        close_device();
    }
}

/* 40 strips' worth of tiles: every pair of strips meets once, with an odd number of them and an
 * even. */
static void test_contrast_strips(void **state)
{
    (void)state;
    open_device(NULL, 2, 4, 2200);
    check_contrast(1100, 0.07, BCL_CORRECT, BCL_MEAN);
    check_contrast(2170, 0.01, BCL_CORRECT, BCL_SUM);
    close_device();
}

static void test_contrast_threads(void **state)
{
    enum { N = 900 };
    struct points p = points_new(N, 2, 5);
    float *first = take(N * C, sizeof *first);
    double value = 0;
    (void)state;
    for (int layout = BCL_CORRECT; layout <= BCL_OFFICIAL; layout++)
        for (int threads = 1; threads <= 4; threads *= 2) {
            open_device(NULL, threads, 4, N);
            memset(p.dg, 0, N * C * sizeof *p.dg);
            struct contrast_points of = all_rows(p.g, p.label, N, 0.07, layout, BCL_MEAN);
            double got = contrast_of(&of, 1, p.dg);
            if (threads == 1) {
                value = got;
                memcpy(first, p.dg, N * C * sizeof *first);
            }
            assert_true(got == value && value > 0);
            assert_memory_equal(first, p.dg, N * C * sizeof *first);
            close_device();
        }
    mem_free(first);
    points_free(&p);
}

/* No points, one point, no two of a class: 0, and nothing is added [M08]. Rows without direction
 * and equal rows stay finite; what is not a number is told by the value [M01]. */
static void test_contrast_edges(void **state)
{
    struct points p = points_new(8, 2, 6);
    const uint8_t apart[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    (void)state;
    open_device(NULL, 2, 8, 8);
    for (int count = 0; count <= 8; count++)
        assert_true(contrast_of(&(struct contrast_points){p.g, apart, count, C, 0.07, BCL_MEAN, NULL, 0}, 1,
                                p.dg) == 0);
    for (int i = 0; i < 8 * C; i++)
        assert_true(p.dg[i] == 0);
    for (int i = 0; i < 8 * C; i++)
        p.g[i] = i < 2 * C ? 0.0f : 1.5f;
    double v = contrast_of(&(struct contrast_points){p.g, p.label, 8, C, 0.07, BCL_MEAN, NULL, 0}, 1, p.dg);
    assert_true(isfinite(v));
    for (int i = 0; i < 8 * C; i++)
        assert_true(isfinite(p.dg[i]) && (i >= 2 * C || p.dg[i] == 0));
    p.g[3 * C + 1] = NAN;
    assert_true(
        isnan(contrast_of(&(struct contrast_points){p.g, p.label, 8, C, 0.07, BCL_MEAN, NULL, 0}, 1, p.dg)));
    assert_true(
        isnan(contrast_of(&(struct contrast_points){p.g, p.label, 8, C, 0.001, BCL_MEAN, NULL, 0}, 1, p.dg)));
    close_device();
    points_free(&p);
}

/* ---- the released layout ---------------------------------------------------------------------- */

/* The released code by its own steps: unit vectors of all n boundary voxels listed channel by channel, the
 * list read as rows, some rows taken. */
struct released {
    int n, rows, rank[64];
    uint8_t label[64];
};

static double released_contrast(const struct released *r, const double *g)
{
    struct naive p = {r->rows, BCL_CORRECT, BCL_MEAN, 0.2, r->label};
    double *list = take((size_t)r->n * C, sizeof *list), rows[64 * C], ds[64], value = 0;
    int anchors = 0, positives;
    for (int i = 0; i < r->n; i++) {
        double square = 0;
        for (int c = 0; c < C; c++)
            square += g[i * C + c] * g[i * C + c];
        for (int c = 0; c < C; c++)
            list[c * r->n + i] = g[i * C + c] / sqrt(square);
    }
    for (int i = 0; i < r->rows; i++)
        memcpy(rows + i * C, list + r->rank[i] * C, C * sizeof *rows);
    for (int i = 0; i < r->rows; i++) {
        value += naive_anchor(&p, rows, i, ds, &positives);
        anchors += positives > 0;
    }
    mem_free(list);
    return value / anchors;
}

enum { SCRAMBLED_VOXELS = 8 * 8 * 12 };

struct scrambling {
    uint8_t label[SCRAMBLED_VOXELS];
    int64_t near[SCRAMBLED_VOXELS]; /* all boundary voxels */
    double g[SCRAMBLED_VOXELS * C]; /* of these */
    struct released by_hand;
    struct scramble s;
};

/* `cap` rows of the boundary voxels of random labels, as falx chooses them, and by hand. */
static void scrambling_make(struct scrambling *x, int cap)
{
    static int64_t row_voxels[64], points[SCRAMBLED_VOXELS], same[64];
    static int32_t place[SCRAMBLED_VOXELS * C], row_rank[64], of_rank[SCRAMBLED_VOXELS];
    const int d[3] = {8, 8, 12};
    uint8_t near_of[SCRAMBLED_VOXELS];
    struct boundary b = {x->label, d, NB_OFFICIAL, cap, 5, 9, 1, near_of};
    fill_label(x->label, SCRAMBLED_VOXELS, 4, 2);
    x->s = (struct scramble){row_voxels, points, place, row_rank, of_rank, 0, 0};
    boundary_scramble(&x->s, &b, dev->pool);
    x->by_hand.n = points_near(x->near, x->label, d, NB_OFFICIAL, SCRAMBLED_VOXELS, 5, 9, 1);
    x->by_hand.rows = points_near(same, x->label, d, NB_OFFICIAL, cap, 5, 9, 1);
    assert_int_equal(x->s.n_rows, x->by_hand.rows);
    assert_memory_equal(row_voxels, same, (size_t)x->s.n_rows * sizeof *same);
    for (int i = 0, at = 0; i < x->by_hand.rows; i++) {
        while (x->near[at] != same[i])
            at++;
        x->by_hand.rank[i] = at;
        x->by_hand.label[i] = x->label[same[i]];
    }
    for (int i = 0; i < x->by_hand.n * C; i++)
        x->g[i] = (double)(float)(sin(1.7 * i + 0.01 * i * i) + (i % C == 3));
}

/* Value and gradient of falx against released_contrast and its differences, over all boundary voxels. */
static void check_scrambling(struct scrambling *x)
{
    struct released *r = &x->by_hand;
    float *g = take((size_t)x->s.n_points * C, sizeof *g), *dg = take((size_t)x->s.n_points * C, sizeof *dg);
    int point = 0;
    for (int i = 0; i < x->s.n_points; i++)
        for (int v = 0; v < r->n; v++)
            for (int c = 0; c < C && x->near[v] == x->s.points[i]; c++)
                g[i * C + c] = (float)x->g[v * C + c];
    struct contrast_points of = {g, r->label, r->rows, C, 0.2, BCL_MEAN, x->s.place, x->s.n_points};
    near(contrast_of(&of, 1, dg), released_contrast(r, x->g), 1e-6);
    for (int v = 0; v < r->n; v++) {
        int used = point < x->s.n_points && x->s.points[point] == x->near[v];
        for (int c = 0; c < C; c++) {
            double *at = &x->g[v * C + c], was = *at, h = 1e-5;
            *at = was + h;
            double up = released_contrast(r, x->g);
            *at = was - h;
            double slope = (up - released_contrast(r, x->g)) / (2 * h);
            *at = was;
            near(used ? (double)dg[point * C + c] : 0.0, slope, 1e-6);
        }
        point += used;
    }
    assert_int_equal(point, x->s.n_points);
    mem_free(g), mem_free(dg);
}

/* Fewer rows than boundary voxels; so few that most voxels are in none of them; all rows. */
static void test_scrambled_above_the_cap(void **state)
{
    static struct scrambling x;
    (void)state;
    open_device(NULL, 1, 2, 64);
    scrambling_make(&x, 60);
    assert_in_range(x.by_hand.n, 600, SCRAMBLED_VOXELS);
    assert_int_equal(x.s.n_rows, 60);
    check_scrambling(&x);
    scrambling_make(&x, 5);
    assert_in_range(x.s.n_points, 40, scramble_room(SCRAMBLED_VOXELS, 5));
    check_scrambling(&x);
    close_device();
}

/* ---- golden --------------------------------------------------------------------------------- */

static void test_golden_contrast(void **state)
{
    enum { V = 80, N = sizeof golden_points / sizeof *golden_points };
    const int dims[3] = {4, 4, 5};
    uint8_t label[V], of[N];
    float x[V * C], g[N * C], dg[N * C];
    int64_t points[V];
    struct tensor t = {x, VALUE_F32, 1, 4, 4, 5, C};
    (void)state;
    for (uint32_t i = 0; i < V; i++)
        label[i] = golden_noise(1, i) > 0.2;
    for (uint32_t i = 0; i < V * C; i++)
        x[i] = (float)golden_noise(2, i);
    assert_int_equal(points_near(points, label, dims, NB_OFFICIAL, V, 1, 1, 0), N);
    for (int i = 0; i < N; i++) {
        assert_int_equal(points[i], golden_points[i]);
        of[i] = label[points[i]];
    }
    open_device(NULL, 1, 2, N);
    gather_rows(dev, g, &t, points, N);
    for (int layout = BCL_CORRECT; layout <= BCL_OFFICIAL; layout++) {
        memset(dg, 0, sizeof dg);
        struct contrast_points rows = all_rows(g, of, N, 0.07, layout, BCL_MEAN);
        double v = contrast_of(&rows, 1, dg);
        near(v, layout ? golden_official_value : golden_correct_value, 1e-6);
        assert_true(nmse(dg, layout ? golden_official : golden_correct, N * C) < 1e-9);
    }
    close_device();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_boundary_rules),
        cmocka_unit_test(test_boundary_sample),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_naive_contrast),
        cmocka_unit_test(test_contrast_levels),
        cmocka_unit_test(test_contrast_strips),
        cmocka_unit_test(test_contrast_threads),
        cmocka_unit_test(test_contrast_edges),
        cmocka_unit_test(test_scrambled_above_the_cap),
        cmocka_unit_test(test_golden_contrast),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
