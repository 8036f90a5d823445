/* cuda_branch_checks.h - the part of cuda_loops_check.cu about networks with several outputs: losses between
 * them, and the layers that are no convolution.
 */
#ifndef FALX_CUDA_BRANCH_CHECKS_H
#define FALX_CUDA_BRANCH_CHECKS_H

/* Between -0.9 and 1.1, of either type of values between layers. */
static struct both values(int64_t n, int bf16)
{
    struct both b = both_of((size_t)n * (bf16 ? 2 : 4));
    for (int64_t i = 0; i < n; i++) {
        float v = (float)(2 * random_unit() - 0.9);
        uint32_t bits = k_bits(v);
        if (bf16)
            ((uint16_t *)b.at[0])[i] = (uint16_t)(bits >> 16);
        else
            ((float *)b.at[0])[i] = v;
    }
    upload(&b);
    return b;
}

static double differences(const struct both *b, int n)
{
    double worst = 0;
    for (int i = 0; i < n; i++)
        worst = larger(worst, difference(&b[i]));
    return worst;
}

static void check_branches(int classes, int branches)
{
    int64_t n = voxels / (classes > 4 ? 4 : 1);
    struct both z[K_BRANCHES], dz[K_BRANCHES];
    char more[32];
    snprintf(more, sizeof more, "%d classes, %d branches", classes, branches);
    for (int i = 0; i < branches; i++)
        z[i] = floats(n * classes, -4, 4), dz[i] = floats(n * classes, -1, 1);
#define BRANCHES                                                                                             \
    for (int i = 0; i < branches; i++)                                                                       \
        k.b.logits[i] = F(z[i]);                                                                             \
    k.b.n = branches, k.b.classes = classes
#define DBRANCHES                                                                                            \
    BRANCHES;                                                                                                \
    for (int i = 0; i < branches; i++)                                                                       \
    k.dlogits[i] = F(dz[i])
    SUMS(mutual, more, n, 1, 1, 0.0, BRANCHES; (k.askers = branches, k.sharpness = 10));
    MAP(mutual_grad, more, n, DBRANCHES;
        (k.askers = branches, k.sharpness = 10, k.scale = 0.3f), differences(dz, branches));
    for (int i = 0; i < branches; i++)
        upload(&dz[i]);
    SUMS(pyramid, more, n, 3 * branches, 1, 0.0, BRANCHES);
    MAP(pyramid_grad, more, n, DBRANCHES; (k.by_kl = 0.3f, k.by_square[0] = 0.2f, k.by_square[1] = 0.1f,
                                           k.by_square[2] = 0.4f, k.by_sure[1] = 0.1f),
                                          differences(dz, branches));
    struct both y = bytes_below(n, classes), a = floats(2 * classes, -1, 1);
    SUMS(ce_dice, "linear", n, 3 * classes - 1, 1, 0.0,
         (k.logits = F(z[0]), k.label = U(y), k.classes = classes, k.linear = 1));
    upload(&dz[0]);
    MAP(ce_dice_grad, "linear", n,
        (k.logits = F(z[0]), k.label = U(y), k.dlogits = F(dz[0]), k.classes = classes, k.a = F(a),
         k.b = F(a) + classes, k.linear = 1),
        difference(&dz[0]));
    for (int i = 0; i < branches; i++)
        drop(&z[i]), drop(&dz[i]);
    drop(&y), drop(&a);
}

/* Layers that are no convolution: c channels, made 2^levels times larger. */
static void check_resize(int how, int c, int levels)
{
    static const int from[3] = {3, 5, 1};
    int64_t coarse = 2 * 15 * c, fine = coarse << 3 * levels;
    struct both y = floats(coarse, -1, 1), g = floats(fine, -1, 1), tables = floats(4 * c, -1, 1);
    struct both x = floats(coarse, -1, 1);
    char more[32];
    snprintf(more, sizeof more, "rule %d, %d channels, %d", how, c, 1 << levels);
#define GRIDS                                                                                                \
    for (int a = 0; a < 3; a++)                                                                              \
        k.grid.from[a] = from[a], k.grid.to[a] = from[a] << levels;                                          \
    k.grid.how = how, k.grid.c = c
    MAP(resize, more, k_runs(fine / c, c), GRIDS;
        (k.a.y = F(y), k.a.scale = F(tables), k.a.shift = F(tables) + 2 * c, k.a.relu = 1, k.out = F(g)),
        difference(&g));
    /* from far, thousands of numbers are added in another order */
    MAP(resize_grad, more, k_runs(coarse / c, c), GRIDS;
        (k.g = F(g), k.dx = F(y)), difference(&y) / (levels > 1 ? 8 : 1));
    upload(&y);
    MAP(meet, more, coarse, (k.to = F(y), k.from = F(x)), difference(&y));
    drop(&y), drop(&g), drop(&tables), drop(&x);
}

/* One item of c channels, perturbed; peaks are those of three items. */
static void check_shake(int c, int bf16)
{
    enum { ITEMS = 3 };
    int64_t n = 7 * 9 * 4, count = n * c;
    struct both y = values(count, bf16), out = floats(count, -1, 1), tables = floats(2 * ITEMS * c, -1, 1);
    struct both means = floats(n, 0, 1), parts = floats(ITEMS * 11, 0, 1);
    char more[32];
    snprintf(more, sizeof more, "%d channels %s", c, bf16 ? "bf16" : "f32");
#define VIEW                                                                                                 \
    (k.a.y = y.at[side], k.a.bf16 = bf16, k.a.scale = F(tables), k.a.shift = F(tables) + ITEMS * c,          \
     k.a.relu = 1)
#define SHAKE (k.out = F(out), k.c = c, k.amount = 0.3f, k.seed = 3, k.step = 4, k.first = 5)
    MAP(shake, more, count / 4, (VIEW, SHAKE), difference(&out));
    MAP(shake, "drop, fresh", count / 4, (VIEW, SHAKE, k.drop = k.fresh = 1), difference(&out));
    MAP(activity, more, n, (VIEW, k.out = F(means), k.voxels = (int)n / ITEMS, k.c = c), difference(&means));
    upload(&means);
    MAP(peak, more, ITEMS * 10,
        (k.from = F(means), k.to = F(parts), k.count = n / ITEMS, k.parts = 10, k.sign = -1),
        difference(&parts));
    MAP(peak, "last", ITEMS,
        (k.from = F(parts), k.to = F(parts) + ITEMS * 10, k.count = 10, k.parts = 1, k.sign = 1),
        difference(&parts));
    /* below three times the least: some voxels */
    MAP(keep_low, more, k_runs(n, c),
        (VIEW, k.out = F(out), k.activity = F(means), k.peak = F(parts) + ITEMS * 10,
         k.voxels = (int)n / ITEMS, k.c = c, k.share = -3),
        difference(&out));
    drop(&y), drop(&out), drop(&tables), drop(&means), drop(&parts);
}

#endif
