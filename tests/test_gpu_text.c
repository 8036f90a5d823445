/* Tests of what a GPU makes of kernels.h where there is none (gpu_text.h): rows of channels as vectors,
 * single lanes. What a real GPU adds is checked by cuda_loops_check.cu. */
#include "gpu_text.h"

/* Every shape of row: full runs, tails, single channels, and places that are no multiple of 16 bytes. */
static void each_shape(void (*check)(int c, int bf16, int skew))
{
    static const int channels[] = {1, 2, 3, 4, 8, 12, 16, 20, 40};
    for (int i = 0; i < (int)(sizeof channels / sizeof *channels); i++)
        for (int bf16 = 0; bf16 < 2; bf16++)
            for (int skew = 0; skew < 4; skew += 2) {
                used = 0;
                check(channels[i], bf16, skew);
            }
}

/* ---- layers -------------------------------------------------------------------------------------- */

static void check_layers(int c, int bf16, int skew)
{
    enum { N = 2, D = 2, H = 3, W = 2, V = D * H * W };
    int64_t y = take(N * V * c, skew), out = take(8 * N * V * c, skew), t = take(4 * N * c, skew);
    int64_t mean = take(N * V, 0), top = take(N * V, 0);
#define VIEW(view)                                                                                           \
    view.y = F(y), view.bf16 = bf16, view.scale = F(t), view.shift = F(t) + N * c, view.relu = 1
    for (int how = K_NEAREST; how <= K_CENTRED; how++) {
        struct k_grids grid = {how, {D, H, W}, {2 * D, 2 * H, 2 * W}, c};
        SAME(resize, k_runs(8 * N * V, c), VIEW(k.a), k.out = F(out), k.out_bf16 = bf16, k.grid = grid);
        for (int fresh = 0; fresh < 2; fresh++)
            SAME(resize_grad, k_runs(N * V, c), k.g = F(out), k.g_bf16 = bf16, k.dx = F(y), k.dx_bf16 = bf16,
                 k.fresh = fresh, k.grid = grid);
    }
    for (int drop = 0; drop < 2; drop++)
        SAME(shake, V * c / 4, VIEW(k.a), k.out = F(out), k.out_bf16 = bf16, k.fresh = drop, k.c = c,
             k.drop = drop, k.amount = 0.3f, k.seed = 5, k.step = 3, k.first = 2, k.stream = RNG_TEST);
    SAME(activity, N * V, VIEW(k.a), k.out = F(mean), k.voxels = V, k.c = c);
    SAME(peak, N * 3, k.from = F(mean), k.to = F(top), k.count = V, k.parts = 3, k.sign = -1);
    SAME(keep_low, k_runs(N * V, c), VIEW(k.a), k.out = F(out), k.out_bf16 = bf16, k.activity = F(mean),
         k.peak = F(top), k.voxels = V, k.c = c, k.share = 0.5f);
    SAME(meet, N * V * c, k.to = F(y), k.from = F(out), k.bf16 = bf16);
}

static void test_layers(void **state)
{
    (void)state;
    each_shape(check_layers);
}

/* ---- strided convolutions ------------------------------------------------------------------------ */

static void check_strided(int c, int bf16, int skew)
{
    enum { D = 6, H = 5, W = 4, KERNEL_EDGE = 3, TAPS = KERNEL_EDGE * KERNEL_EDGE };
    struct k_window at = {{D, H, W}, c, {3, 3, W}, {KERNEL_EDGE, KERNEL_EDGE, 1}, {2, 2, 1}, {1, 1, 0}};
    int64_t n = (int64_t)D * H * W * c, rows = (int64_t)2 * 3 * W * TAPS * c;
    int64_t x = take(n, skew), more = take(n, skew), f = take(c, skew), r = take(rows, skew);
    int64_t dx = take(n, skew), mean = take((int64_t)W * c, skew);
    SAME(unfold, k_runs(rows / c, c), k.at = at, k.x = F(x), k.more = F(more), k.factor = F(f),
         k.slope = 0.2f, k.first = 3 * W, k.rows = F(r));
    SAME(unfold_grad, k_runs(n / c, c), k.at = at, k.rows = F(r), k.plane = 1, k.planes = 2, k.dx = F(dx));
    SAME(leaky_grad, n, k.x = F(x), k.more = F(more), k.factor = F(f), k.g = F(dx), k.slope = 0.2f, k.c = c);
    SAME(pool, W * c, k.x = F(x), k.mean = F(mean), k.voxels = D * H, k.columns = W, k.c = c, k.slope = 0.2f);
    SAME(pool_grad, n, k.x = F(x), k.dmean = F(mean), k.g = F(dx), k.voxels = D * H, k.columns = W, k.c = c,
         k.slope = 0.2f);
}

static void check_halving(int c, int bf16, int skew)
{
    enum { N = 2, D = 4, H = 2, W = 6, IN = 3 };
    const int extent[3] = {D, H, W}, half[3] = {D / 2, H / 2, W / 2};
    int64_t n = (int64_t)N * D * H * W * c, framed = (int64_t)N * (D + 2) * (H + 2) * (W + 2) * c;
    int64_t blocks = framed / c / 8, weights = (int64_t)64 * IN * c;
    int64_t x = take(n, skew), more = take(n, skew), f = take(N * c, skew), frame = take(framed, skew);
    int64_t y = take(n / 8, skew), parts = take(8 * blocks * c, skew), w = take(weights, 0);
    int64_t made = take(weights / 64 * 216, 0);
#define FRAME(k)                                                                                             \
    k.x = F(x), k.more = F(more), k.factor = F(f), k.framed = F(frame), k.bf16 = bf16, k.c = c,              \
    k.folded = folded, k.slope = 0.2f, memcpy(k.extent, extent, sizeof extent)
    for (int folded = 0; folded < 2; folded++) {
        const int each = folded ? 1 : 8;
        SAME(frame, k_runs(framed / c, c), FRAME(k));
        SAME(frame_grad, k_runs(n / c, c), FRAME(k.of), k.dx = F(x));
        SAME(join, k_runs(n / c / 8, c), k.parts = F(parts), k.bias = F(f), k.y = F(y), k.each = each,
             k.c = c, memcpy(k.out, half, sizeof half));
        SAME(spread, k_runs(blocks * each, c), k.dy = F(y), k.dparts = F(parts), k.bf16 = bf16, k.each = each,
             k.c = c, memcpy(k.out, half, sizeof half));
        for (int back = 0; back < 2; back++)
            SAME(halve_weight, weights, k.from = F(back ? made : w), k.to = F(back ? w : made), k.c_in = IN,
                 k.c_out = c, k.folded = folded, k.back = back);
    }
}

static void test_strided(void **state)
{
    (void)state;
    each_shape(check_strided);
    each_shape(check_halving);
}

/* ---- losses -------------------------------------------------------------------------------------- */

static void check_pairs(int c, int bf16, int skew)
{
    enum { ROWS = 35, PAIRS = ROWS * ROWS };
    int64_t x = take(ROWS * c, skew), unit = take(ROWS * c, skew), turned = take(ROWS * c, skew);
    int64_t like = take(PAIRS, skew), length = take(ROWS, 0), a = take(ROWS, 0), b = take(ROWS, 0);
    SAME(pair_unit, ROWS, k.x = F(x), k.unit = F(unit), k.turned = F(turned), k.length = F(length),
         k.count = ROWS, k.dims = c);
    SAME(pair_product, PAIRS, k.left = F(unit), k.right = F(turned), k.product = F(like), k.inner = c,
         k.columns = ROWS, k.scale = 2);
    for (int columns = 0; columns < 2; columns++) {
        SAME(pair_anchor, ROWS, k.like = F(like), k.log_sum = F(a), k.loss = F(b), k.count = ROWS,
             k.of_columns = columns);
        SAME(pair_share, PAIRS, k.like = F(like), k.log_sum = F(a), k.count = ROWS, k.of_columns = columns);
    }
    SAME(pair_product, ROWS * c, k.left = F(like), k.right = F(unit), k.product = F(x), k.inner = ROWS,
         k.columns = c, k.scale = 1);
    SAME(pair_leave, ROWS, k.pull = F(x), k.unit = F(unit), k.length = F(length), k.dx = F(turned),
         k.dims = c, k.weight = 0.3f);
    SAME(relate, ROWS, k.like = F(like), k.kind = bytes, k.z = F(a), k.rest = F(b), k.loss = F(length),
         k.count = ROWS);
    SAME(relate_share, PAIRS, k.kind = bytes, k.z = F(a), k.rest = F(b), k.like = F(like), k.count = ROWS);
}

/* c classes. */
static void check_branches(int c, int bf16, int skew)
{
    enum { V = 70, BRANCHES = 3 };
    int64_t z[BRANCHES], dz[BRANCHES];
    for (int i = 0; i < BRANCHES; i++)
        z[i] = take(V * c, skew), dz[i] = take(V * c, skew);
#define BOTH(b)                                                                                              \
    for (int i = 0; i < BRANCHES; i++)                                                                       \
        b.logits[i] = F(z[i]), k.dlogits[i] = F(dz[i]);                                                      \
    b.n = BRANCHES, b.classes = c
    SAME(mutual_grad, V, BOTH(k.b), k.askers = 2, k.sharpness = 10, k.scale = 0.3f);
    SAME(pyramid_grad, V, BOTH(k.b), k.by_kl = 0.3f, k.by_square[0] = 0.2f, k.by_sure[1] = 0.1f);
}

static void test_losses(void **state)
{
    (void)state;
    each_shape(check_pairs);
    each_shape(check_branches);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_layers), cmocka_unit_test(test_strided),
                                       cmocka_unit_test(test_losses)};
    fill_bytes(3);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
