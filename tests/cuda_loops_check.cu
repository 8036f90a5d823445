/* cuda_loops_check.cu - a small program for a machine with a GPU: everything of libfalx_cuda.so but the
 * convolutions against the same bodies on the host, or plain loops in double.
 *
 *     make build/cuda_loops_check && build/cuda_loops_check [VOXELS]
 *
 * A line each: PASS or FAIL, the largest error, microseconds of one call. Maps must agree to the last bits,
 * sums within rounding, and a second run must give the same bits as the first. Ends with the number of
 * failures, 0 if all is well.
 */
#include "cuda_check.h"

#include "device/isa/loops.h"
#include "device/kernels.h"

/* ---- maps ------------------------------------------------------------------------------------ */

static double time_map(int kernel, const void *args, int64_t count)
{
    double start = now();
    for (int i = 0; i < 10; i++)
        must(d->map(gpu, kernel, args, count), "map");
    return (now() - start) / 10;
}

/* Runs the body here and there; `set` fills k for `side`; `error` compares what it wrote. */
#define MAP(name, more, count, set, error)                                                                   \
    do {                                                                                                     \
        struct k_##name here = {}, there = {};                                                               \
        for (int side = 0; side < 2; side++) {                                                               \
            struct k_##name &k = side ? there : here;                                                        \
            set;                                                                                             \
        }                                                                                                    \
        must(d->map(gpu, KERNEL_##name, &there, (count)), #name);                                            \
        k_##name##_range(&here, 0, (count));                                                                 \
        double off_ = error;                                                                                 \
        verdict(#name, more, off_, 2e-6, time_map(KERNEL_##name, &there, (count)));                          \
    } while (0)

static void check_optim(void)
{
    int64_t n = voxels;
    struct both w = floats(n, -1, 1), m = floats(n, -1, 1), v = floats(n, 0, 1), g = floats(n, -1, 1);
    MAP(sgd, "", n,
        (k.w = F(w), k.m = F(m), k.g = F(g), k.rate = 0.1f, k.momentum = 0.9f, k.decay = 1e-4f,
         k.factor = 0.5f),
        larger(difference(&w), difference(&m)));
    upload(&w), upload(&m);
    MAP(adam, "", n,
        (k.w = F(w), k.m = F(m), k.v = F(v), k.g = F(g), k.rate = 0.1f, k.beta1 = 0.9f, k.beta2 = 0.99f,
         k.scale = 1.1f, k.epsilon = 1e-8f, k.decay = 1e-4f, k.factor = 1),
        larger(difference(&w), larger(difference(&m), difference(&v))));
    upload(&w);
    MAP(ema, "", n, (k.teacher = F(w), k.student = F(g), k.keep = 0.99f, k.take = 0.01f), difference(&w));
    drop(&w), drop(&m), drop(&v), drop(&g);
}

static void check_mix(void)
{
    int64_t n = voxels;
    struct both out = floats(2 * n, 0, 1), a = floats(2 * n, 0, 1), b = floats(2 * n, 0, 1);
    struct both sa = floats(n, 0, 1), sb = floats(n, 0, 1);
    MAP(paste, "2 channels", n,
        (k.out = F(out), k.ground = F(a), k.box = F(b), k.ground_shows = F(sa), k.box_shows = F(sb), k.c = 2,
         k.h = 50, k.w = 40, k.first[0] = 3, k.first[1] = 5, k.first[2] = 7, k.extent[0] = 100,
         k.extent[1] = 30, k.extent[2] = 20),
        larger(difference(&out), larger(difference(&sa), difference(&sb))));
    upload(&a), upload(&b);
    MAP(blend, "", n, (k.out = F(out), k.a = F(a), k.b = F(b), k.keep = 0.3f, k.take = 0.7f),
        difference(&out));
    MAP(at_least, "", n, (k.value = F(a), k.floor = 0.4f), difference(&a));
    MAP(mask_below, "", n, (k.weight = F(b), k.value = F(out), k.floor = 0.4f), difference(&b));
    struct both x = floats(n, -1, 1), y = floats(n, -1, 1);
    MAP(noise, "", (n + 3) / 4,
        (k.out = F(y), k.in = F(x), k.count = n, k.sd = 0.1f, k.seed = 7, k.step = 3, k.stream = 11),
        difference(&y));
    drop(&out), drop(&a), drop(&b), drop(&sa), drop(&sb), drop(&x), drop(&y);
}

static void check_norm_tables(void)
{
    enum { ITEMS = 3, C = 48 };
    struct both factor = floats(ITEMS * C, 0, 2), gamma = floats(C, 0.5, 1.5), beta = floats(C, -1, 1);
    struct both rm = floats(C, -1, 1), rv = floats(C, 0.5, 1), scale = floats(ITEMS * C, 0, 1);
    struct both shift = floats(ITEMS * C, 0, 1), center = floats(C, 0, 1), p = floats(ITEMS * C, 0, 1);
    struct both q = floats(ITEMS * C, 0, 1), r = floats(ITEMS * C, 0, 1), moments = both_of(12 * C * 8);
    for (int i = 0; i < 12 * C; i++)
        ((double *)moments.at[0])[i] = 1 + random_unit();
    upload(&moments);
#define D(n) ((double *)moments.at[side] + (n)*C)
    MAP(drop, "", C,
        (k.factor = F(factor), k.p = 0.5f, k.items = ITEMS, k.c = C, k.seed = 5, k.step = 6, k.first = 7,
         k.item = 1 << 24, k.stream = 3),
        difference(&factor));
    MAP(norm_tables, "", C,
        (k.batch_mean = D(0), k.batch_m2 = D(1), k.elements = 1000, k.gamma = F(gamma), k.beta = F(beta),
         k.running_mean = F(rm), k.running_var = F(rv), k.factor = F(factor), k.items = ITEMS, k.c = C,
         k.mean = D(2), k.rstd = D(3), k.center = F(center), k.scale = F(scale), k.shift = F(shift)),
        larger(difference(&scale), larger(difference(&shift), difference(&rm))));
    MAP(norm_grads, "", C,
        (k.sums = D(4), k.mean = D(2), k.rstd = D(3), k.elements = 1000, k.gamma = F(gamma),
         k.factor = F(factor), k.items = ITEMS, k.c = C, k.dgamma = F(rm), k.dbeta = F(rv), k.p = F(p),
         k.q = F(q), k.r = F(r)),
        larger(difference(&p), larger(difference(&q), difference(&r))));
    MAP(norm_grads, "fresh", C,
        (k.sums = D(4), k.mean = D(2), k.rstd = D(3), k.elements = 1000, k.gamma = F(gamma),
         k.factor = F(factor), k.items = ITEMS, k.c = C, k.dgamma = F(rm), k.dbeta = F(rv), k.fresh = 1,
         k.dbias = F(beta), k.p = F(p), k.q = F(q), k.r = F(r)),
        larger(difference(&rm), larger(difference(&rv), difference(&beta))));
    struct both *all[] = {&factor, &gamma, &beta, &rm, &rv, &scale, &shift, &center, &p, &q, &r, &moments};
    for (int i = 0; i < 12; i++)
        drop(all[i]);
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* The host's sums, as isa/loops.c makes them. */
#define HOST_SUMS(name, sums, count, n_sums, args)                                                           \
    do {                                                                                                     \
        float *rows_ = (float *)malloc((size_t)(n_sums)*REDUCE_LANES * sizeof(float));                       \
        memset(sums, 0, (size_t)(n_sums) * sizeof(double));                                                  \
        for (int64_t i_ = 0; i_ < (count); i_ += REDUCE_RUN) {                                               \
            int64_t end_ = (count)-i_ < REDUCE_RUN ? (count) : i_ + REDUCE_RUN;                              \
            memset(rows_, 0, (size_t)(n_sums)*REDUCE_LANES * sizeof(float));                                 \
            r_##name##_range(&args, i_, end_, rows_);                                                        \
            for (int s_ = 0; s_ < (n_sums)*REDUCE_LANES; s_++)                                               \
                sums[s_ / REDUCE_LANES] += (double)rows_[s_];                                                \
        }                                                                                                    \
        free(rows_);                                                                                         \
    } while (0)

static double sums_before[LOOP_SUMS], sums_want[LOOP_SUMS], sums_got[LOOP_SUMS];

static double sums_error(int n_sums, int64_t count)
{
    double worst = 0;
    for (int s = 0; s < n_sums; s++)
        worst = larger(worst, fabs(sums_got[s] - sums_want[s]) / (fabs(sums_want[s]) + sqrt((double)count)));
    return worst;
}

/* `again`: the reduction writes nothing else, so a second run must give the same bits. */
#define SUMS(name, more, count, n_sums, again, error, set)                                                   \
    do {                                                                                                     \
        struct r_##name here = {}, there = {};                                                               \
        for (int side = 0; side < 2; side++) {                                                               \
            struct r_##name &k = side ? there : here;                                                        \
            set;                                                                                             \
        }                                                                                                    \
        must(d->reduce(gpu, REDUCE_##name, &there, (count), (n_sums), sums_got), #name);                     \
        HOST_SUMS(name, sums_want, (count), (n_sums), here);                                                 \
        double off_ = larger(sums_error(n_sums, (count)), error), start_ = now();                            \
        must(d->reduce(gpu, REDUCE_##name, &there, (count), (n_sums), sums_before), #name);                  \
        double us_ = now() - start_;                                                                         \
        if ((again) && memcmp(sums_before, sums_got, (size_t)(n_sums) * sizeof(double)))                     \
            off_ = INFINITY;                                                                                 \
        verdict(#name, more, off_, 2e-6, us_);                                                               \
    } while (0)

static void check_square_sum(void)
{
    struct both x = floats(9 * voxels, -1, 1);
    static const int64_t less[] = {1, 31, 32, 33, 1023, 1024, 1025};
    for (int i = 0; i < 7; i++)
        SUMS(square_sum, "few", less[i], 1, 1, 0.0, k.x = F(x));
    SUMS(square_sum, "9 times the voxels", 9 * voxels, 1, 1, 0.0, k.x = F(x));
    drop(&x);
}

static void check_classes(int classes)
{
    int64_t n = voxels;
    char more[32];
    snprintf(more, sizeof more, "%d classes", classes);
    struct both z = floats(n * classes, -4, 4), dz = floats(n * classes, -1, 1), w = floats(n, 0, 1);
    struct both a = floats(classes, -1, 1), b = floats(classes, -1, 1), y = bytes_below(n, classes);
    struct both best = bytes_below(n, classes), sure = floats(n, 0, 1), more_out = floats(n, 0, 1);
    SUMS(ce_dice, more, n, 3 * classes - 1, 1, 0.0,
         (k.logits = F(z), k.label = U(y), k.weight = F(w), k.classes = classes));
    SUMS(ce_dice, "with background", n, 3 * classes + 2, 1, 0.0,
         (k.logits = F(z), k.label = U(y), k.weight = F(w), k.classes = classes, k.background = 1));
    MAP(ce_dice_grad, more, n,
        (k.logits = F(z), k.label = U(y), k.weight = F(w), k.dlogits = F(dz), k.classes = classes,
         k.ce = 0.7f, k.a = F(a), k.b = F(b)),
        difference(&dz));
    MAP(hard_label, more, n,
        (k.logits = F(z), k.label = U(best), k.confidence = F(sure), k.classes = classes),
        larger(bytes_differ(&best), difference(&sure)));
    struct both prob = floats(n * classes, 0.01, 1);
    MAP(window_label, more, n,
        (k.prob = F(prob), k.label = U(best), k.foreground = F(sure), k.entropy = F(more_out), k.c = classes),
        larger(bytes_differ(&best), larger(difference(&sure), difference(&more_out))));
    SUMS(mse, more, n, 2, 1, 0.0,
         (k.logits = F(z), k.target = F(prob), k.weight = F(w), k.classes = classes));
    upload(&dz);
    MAP(mse_grad, more, n,
        (k.logits = F(z), k.target = F(prob), k.weight = F(w), k.dlogits = F(dz), k.classes = classes,
         k.scale = 0.7f),
        difference(&dz));
    SUMS(entropy, more, n, 1, 1, 0.0, (k.logits = F(z), k.classes = classes));
    upload(&dz);
    MAP(entropy_grad, more, n, (k.logits = F(z), k.dlogits = F(dz), k.classes = classes, k.scale = 0.7f),
        difference(&dz));
    MAP(certain, more, n, (k.prob = F(prob), k.weight = F(sure), k.classes = classes, k.limit = 0.6f),
        difference(&sure));
    MAP(add_softmax, more, n, (k.logits = F(z), k.prob = F(prob), k.classes = classes, k.share = 0.3f),
        difference(&prob));
    struct both *all[] = {&z, &dz, &w, &a, &b, &y, &best, &sure, &more_out, &prob};
    for (int i = 0; i < 10; i++)
        drop(all[i]);
}

/* The signed distances of a label of thin stripes and large blocks. */
static void check_sides(void)
{
    enum { D = 20, H = 33, W = 45, N = D * H * W };
    struct both label = bytes_below(N, 2), a = floats(N, 0, 1), b = floats(N, 0, 1), most = floats(2, 1, 2);
    for (int i = 0; i < N; i++)
        ((uint8_t *)label.at[0])[i] = i / W % H < 9 ? i % W % 5 == 2 : i / W / H > 6 && i % W < 20;
    upload(&label);
    MAP(side_steps, "", D * H, (k.label = (uint8_t *)label.at[side], k.out = F(a), k.n = W, k.of = 1),
        difference(&a));
    MAP(side_nearest, "second axis", N,
        (k.from = F(a), k.to = F(b), k.most_outside = F(most), k.most_inside = F(most), k.apart = W, k.n = H),
        difference(&b));
    MAP(side_nearest, "first axis", N,
        (k.from = F(b), k.to = F(a), k.most_outside = F(most), k.most_inside = F(most), k.apart = W * H,
         k.n = D),
        difference(&a));
    MAP(side_map, "", N,
        (k.square = F(a), k.out = F(b), k.most_outside = F(most), k.most_inside = F(most) + 1, k.c = 1),
        difference(&b));
    drop(&label), drop(&a), drop(&b), drop(&most);
}

static void check_twin(int classes)
{
    int64_t n = voxels, count = n * (classes - 1);
    char more[32];
    snprintf(more, sizeof more, "%d classes", classes);
    struct both z = floats(n * classes, -4, 4), dz = floats(n * classes, -1, 1);
    struct both raw = floats(count, -0.002, 0.002);
    struct both draw = floats(count, -1, 1), target = floats(count, -1, 1);
    MAP(widen, more, n, (k.x = F(raw), k.out = F(dz), k.c = classes - 1), difference(&dz));
    MAP(narrow, more, n, (k.x = F(dz), k.out = F(draw), k.c = classes - 1), difference(&draw));
    SUMS(distance, more, count, 1, 1, 0.0, (k.raw = F(raw), k.target = F(target)));
    MAP(distance_grad, more, count, (k.raw = F(raw), k.target = F(target), k.draw = F(draw), k.scale = 0.7f),
        difference(&draw));
    SUMS(dual, more, n, 1, 1, 0.0, (k.logits = F(z), k.raw = F(raw), k.classes = classes));
    upload(&draw);
    MAP(dual_grad, more, n,
        (k.logits = F(z), k.raw = F(raw), k.dlogits = F(dz), k.draw = F(draw), k.classes = classes,
         k.scale = 0.001f),
        larger(difference(&dz), difference(&draw)));
    MAP(tanh_map, more, count, (k.raw = F(target), k.map = F(draw)), difference(&draw));
    upload(&draw);
    MAP(tanh_grad, more, count, (k.map = F(target), k.dmap = F(raw), k.draw = F(draw)), difference(&draw));
    upload(&dz);
    MAP(softmax_grad, more, n, (k.prob = F(z), k.dprob = F(dz), k.dlogits = F(dz), k.classes = classes),
        difference(&dz));
    struct both *all[] = {&z, &dz, &raw, &draw, &target};
    for (int i = 0; i < 5; i++)
        drop(all[i]);
}

/* A turned patch that sticks out of its case. */
static void check_patch(int channels, float noise)
{
    enum { D = 20, H = 30, W = 40, P = 25, ALL = D * H * W };
    int64_t n = (int64_t)P * P * P;
    char more[32];
    snprintf(more, sizeof more, "%d channels%s", channels, noise > 0 ? ", noise" : "");
    struct both from = floats((int64_t)ALL * channels, -1, 1), label = bytes_below(ALL, 5);
    struct both image = floats(n * channels, 5, 6), labels = bytes_below(n, 7), mask = bytes_below(n, 7);
    struct both other = bytes_below(5, 5);
    MAP(patch, more, n,
        (k.image = F(image), k.label = U(labels), k.mask = U(mask), k.case_image = F(from),
         k.case_label = U(label), k.exchange = noise > 0 ? U(other) : NULL, k.dims[0] = D, k.dims[1] = H,
         k.dims[2] = W, k.h = P, k.w = P, k.c = channels, k.matrix[0][0] = 0.9f, k.matrix[0][1] = 0.3f,
         k.matrix[1][0] = -0.3f, k.matrix[1][1] = 0.9f, k.matrix[2][2] = -1, k.offset[0] = -2.5f,
         k.offset[1] = 6, k.offset[2] = 30, k.factor = 1.2f, k.shift = 0.1f, k.noise_sd = noise, k.seed = 3,
         k.step = 5, k.noise_first = 7, k.stream = 2),
        larger(difference(&image), larger(bytes_differ(&labels), bytes_differ(&mask))));
    struct both *all[] = {&from, &label, &image, &labels, &mask, &other};
    for (int i = 0; i < 6; i++)
        drop(all[i]);
}

#include "cuda_branch_checks.h"

/* Kernels, strides and padding that leave voxels out, or meet some twice. */
static void check_strided(int c, int kernel, int stride, int pad)
{
    struct k_window at = {{12, 10, 14}, c, {0, 0, 0}, {kernel, kernel, 1}, {stride, stride, 1},
                          {pad, pad, 0}};
    char more[48];
    snprintf(more, sizeof more, "%d channels, kernel %d, stride %d", c, kernel, stride);
    for (int a = 0; a < 3; a++)
        at.out[a] = (at.extent[a] + 2 * at.pad[a] - at.kernel[a]) / at.stride[a] + 1;
    int64_t n = (int64_t)12 * 10 * 14 * c, plane = (int64_t)at.out[1] * at.out[2];
    int64_t rows = 2 * plane * kernel * kernel * c;
    struct both x = floats(n, -1, 1), y = floats(n, -1, 1), f = floats(c, 0, 2), r = floats(rows, -1, 1);
    struct both dx = floats(n, -1, 1), mean = floats(14 * c, -1, 1);
    MAP(unfold, more, k_runs(rows / c, c),
        (k.at = at, k.x = F(x), k.more = F(y), k.factor = F(f), k.slope = 0.2f, k.first = plane,
         k.rows = F(r)),
        difference(&r));
    upload(&r);
    MAP(unfold_grad, more, k_runs(n / c, c),
        (k.at = at, k.rows = F(r), k.plane = 1, k.planes = 2, k.dx = F(dx)), difference(&dx));
    upload(&dx);
    MAP(leaky_grad, more, n,
        (k.x = F(x), k.more = F(y), k.factor = F(f), k.g = F(dx), k.slope = 0.2f, k.c = c), difference(&dx));
    MAP(pool, more, 14 * c,
        (k.x = F(x), k.mean = F(mean), k.voxels = 120, k.columns = 14, k.c = c, k.slope = 0.2f),
        difference(&mean));
    upload(&mean);
    MAP(pool_grad, more, n,
        (k.x = F(x), k.dmean = F(mean), k.g = F(dx), k.voxels = 120, k.columns = 14, k.c = c, k.slope = 0.2f),
        difference(&dx));
    struct both *all[] = {&x, &y, &f, &r, &dx, &mean};
    for (int i = 0; i < 6; i++)
        drop(all[i]);
}

static void check_halving(int c, int bf16)
{
    enum { ITEMS = 2, D = 6, H = 10, W = 4, OUT = 20 };
    const int extent[3] = {D, H, W}, half[3] = {D / 2, H / 2, W / 2};
    int64_t n = (int64_t)ITEMS * D * H * W * c, framed = (int64_t)ITEMS * (D + 2) * (H + 2) * (W + 2) * c;
    int64_t y = (int64_t)ITEMS * D * H * W / 8 * OUT, weights = (int64_t)64 * c * OUT;
    int64_t parts = (int64_t)ITEMS * (D / 2 + 1) * (H / 2 + 1) * (W / 2 + 1) * 8 * OUT;
    struct both x = floats(n, -1, 1), more = floats(n, -1, 1), f = floats(ITEMS * c, 0, 2);
    struct both frame = floats(framed, -1, 1), out = floats(y, -1, 1), part = floats(parts, -1, 1);
    struct both spread = floats(parts, -1, 1), bias = floats(OUT, -1, 1), w = floats(weights, -1, 1);
    struct both halved = floats(weights, -1, 1), dx = floats(n, -1, 1);
    char what[48];
    snprintf(what, sizeof what, "%d channels%s", c, bf16 ? ", bf16" : "");
#define FRAME(k)                                                                                             \
    k.x = F(x), k.more = F(more), k.factor = F(f), k.framed = F(frame), k.bf16 = bf16, k.c = c,              \
    k.slope = 0.2f, memcpy(k.extent, extent, sizeof extent)
    MAP(frame, what, k_runs(framed / c, c), (FRAME(k)), difference(&frame));
    upload(&frame);
    MAP(frame_grad, what, k_runs(n / c, c), (FRAME(k.of), k.dx = F(dx)), difference(&dx));
    MAP(frame, "folded", k_runs(framed / c, c), (FRAME(k), k.folded = 1), difference(&frame));
    upload(&frame);
    MAP(frame_grad, "folded", k_runs(n / c, c), (FRAME(k.of), k.of.folded = 1, k.dx = F(dx)),
        difference(&dx));
    for (int each = 8; each > 0; each -= 7) {
        upload(&part);
        MAP(join, what, k_runs(y / OUT, OUT),
            (k.parts = F(part), k.bias = F(bias), k.y = F(out), k.each = each, k.c = OUT,
             memcpy(k.out, half, sizeof half)),
            difference(&out));
        upload(&out);
        MAP(spread, what, k_runs(parts * each / 8 / OUT, OUT),
            (k.dy = F(out), k.dparts = F(spread), k.bf16 = bf16, k.each = each, k.c = OUT,
             memcpy(k.out, half, sizeof half)),
            difference(&spread));
    }
    MAP(halve_weight, what, weights, (k.from = F(w), k.to = F(halved), k.c_in = c, k.c_out = OUT),
        difference(&halved));
    upload(&halved);
    MAP(halve_weight, "back", weights,
        (k.from = F(halved), k.to = F(w), k.c_in = c, k.c_out = OUT, k.back = 1), difference(&w));
    struct both folded = floats(weights / 64 * 216, -1, 1);
    upload(&w);
    MAP(halve_weight, "folded", weights,
        (k.from = F(w), k.to = F(folded), k.c_in = c, k.c_out = OUT, k.folded = 1), difference(&folded));
    upload(&folded);
    MAP(halve_weight, "folded, back", weights,
        (k.from = F(folded), k.to = F(w), k.c_in = c, k.c_out = OUT, k.folded = k.back = k.fresh = 1),
        difference(&w));
    drop(&folded);
    struct both *all[] = {&x, &more, &f, &dx, &frame, &out, &part, &spread, &bias, &w, &halved};
    for (int i = 0; i < 11; i++)
        drop(all[i]);
}

static void check_pairs(int rows, int dims)
{
    int64_t count = (int64_t)rows * dims;
    char more[48];
    snprintf(more, sizeof more, "%d rows of %d", rows, dims);
    int64_t pairs = (int64_t)rows * rows;
    struct both x = floats(count, -1, 1), u = floats(count, -0.1, 0.1), v = floats(count, -0.1, 0.1);
    struct both length = floats(rows, 1, 2), sum = floats(rows, 3, 4), loss = floats(rows, 0, 1);
    struct both pull = floats(count, -1, 1), dx = floats(count, -1, 1), s = floats(pairs, -2, 2);
    MAP(pair_unit, more, rows,
        (k.x = F(x), k.unit = F(u), k.turned = F(v), k.length = F(length), k.count = rows, k.dims = dims),
        larger(difference(&u), larger(difference(&v), difference(&length))));
    upload(&u), upload(&v), upload(&length);
    MAP(pair_product, more, pairs,
        (k.left = F(u), k.right = F(v), k.product = F(s), k.inner = dims, k.columns = rows, k.scale = 2.0f),
        difference(&s));
    for (int columns = 0; columns < 2; columns++) {
        upload(&s);
        MAP(pair_anchor, more, rows,
            (k.like = F(s), k.log_sum = F(sum), k.loss = F(loss), k.count = rows, k.of_columns = columns),
            larger(difference(&sum), difference(&loss)));
        upload(&sum);
        MAP(pair_share, more, pairs,
            (k.log_sum = F(sum), k.like = F(s), k.count = rows, k.of_columns = columns), difference(&s));
    }
    upload(&s);
    MAP(pair_product, more, count,
        (k.left = F(s), k.right = F(u), k.product = F(pull), k.inner = rows, k.columns = dims,
         k.scale = 1.0f),
        difference(&pull));
    upload(&pull);
    MAP(pair_leave, more, rows,
        (k.pull = F(pull), k.unit = F(u), k.length = F(length), k.dx = F(dx), k.dims = dims, k.weight = 0.3f),
        difference(&dx));
    SUMS(total, more, count, 1, 1, 0.0, (k.x = F(x)));
    struct both kind = bytes_below(pairs, 3);
    struct both z = floats(rows, 1, 2), rest = floats(rows, 0, 1);
    MAP(relate, more, rows,
        (k.like = F(s), k.kind = U(kind), k.z = F(z), k.rest = F(rest), k.loss = F(loss), k.count = rows),
        larger(difference(&z), larger(difference(&rest), difference(&loss))));
    upload(&z), upload(&rest);
    MAP(relate_share, more, pairs,
        (k.kind = U(kind), k.z = F(z), k.rest = F(rest), k.like = F(s), k.count = rows), difference(&s));
    struct both *all[] = {&x, &u, &v, &length, &sum, &loss, &pull, &dx, &kind, &z, &rest, &s};
    for (int i = 0; i < 12; i++)
        drop(all[i]);
}

static void check_window(int channels, int softmax)
{
    enum { P = 24, H = 40, W = 50 };
    int64_t n = (int64_t)P * P * P, plane = (int64_t)H * W;
    char more[32];
    snprintf(more, sizeof more, "%d channels%s", channels, softmax ? ", softmax" : "");
    struct both x = floats(n * channels, -3, 3), ring = floats(P * plane * channels, 0, 1);
    struct both weight = floats(3 * P, 0.1, 1), total = floats(H + W, 1, 2);
    struct both out = floats(plane * channels, 0, 1), other = bytes_below(7, channels < 7 ? channels : 5);
    MAP(window_cut, more, n,
        (k.scan = F(ring), k.out = F(x), k.c = channels, k.extent[0] = P, k.extent[1] = H, k.extent[2] = W,
         k.patch[0] = k.patch[1] = k.patch[2] = P, k.first[0] = -3, k.first[1] = 20, k.first[2] = 5,
         k.flip[1] = 1, k.flip[2] = softmax),
        difference(&x));
    MAP(window_add, more, n,
        (k.x = F(x), k.ring = F(ring), k.weight[0] = F(weight), k.weight[1] = F(weight) + P,
         k.weight[2] = F(weight) + 2 * P, k.c = channels, k.softmax = softmax, k.h = H, k.w = W,
         k.patch[0] = k.patch[1] = k.patch[2] = P, k.first[0] = 30, k.first[1] = 16, k.first[2] = 26,
         k.flip[0] = 1, k.flip[2] = 1, k.exchange = channels > 2 ? U(other) : NULL,
         k.classes = channels < 300 ? channels : 5),
        difference(&ring));
    MAP(window_mean, more, plane,
        (k.sum = F(x), k.total[0] = F(total), k.total[1] = F(total) + H, k.total_plane = 1.5f, k.out = F(out),
         k.c = channels, k.w = W),
        difference(&out));
    drop(&x), drop(&ring), drop(&weight), drop(&total), drop(&out), drop(&other);
}

/* ---- the Gaussian over logits ---------------------------------------------------------------- */

struct scene {
    int classes, rank, pairs;
    struct both mean, diag, factor, mask;
    float eps[GAUSS_PAIRS][GAUSS_RANK];
};

static struct scene scene_of(int classes, int rank, int pairs, int64_t n)
{
    struct scene s = {classes,
                      rank,
                      pairs,
                      floats(n * classes, -2, 2),
                      floats(n * classes, -3, 0),
                      floats(n * classes * rank, -0.5, 0.5),
                      bytes_below(n, 3),
                      {{0}}};
    for (int i = 0; i < GAUSS_PAIRS * GAUSS_RANK; i++)
        s.eps[i / GAUSS_RANK][i % GAUSS_RANK] = (float)(2 * random_unit() - 1);
    return s;
}

static void set_gauss(struct k_gauss *g, const struct scene *s, int side, uint64_t stream)
{
    g->mean = F(s->mean), g->diag = F(s->diag), g->factor = F(s->factor), g->mask = U(s->mask);
    g->classes = s->classes, g->rank = s->rank, g->pairs = s->pairs, g->wanted = (1u << s->pairs) - 1;
    g->seed = 3, g->step = 4, g->first = 1000, g->stream = (uint32_t)stream;
    memcpy(g->eps, s->eps, sizeof g->eps);
}

static void scene_drop(struct scene *s)
{
    drop(&s->mean), drop(&s->diag), drop(&s->factor), drop(&s->mask);
}

static void check_gauss(int classes, int rank, int pairs)
{
    int64_t n = voxels / (classes > 4 ? 10 : 1);
    int samples = 2 * pairs, grams = samples * samples + samples * (samples + 1);
    int some = LOOP_SUMS / grams < classes ? LOOP_SUMS / grams : classes;
    char more[40];
    snprintf(more, sizeof more, "%d classes, %d samples", classes, samples);
    struct scene p = scene_of(classes, rank, pairs, n), q = scene_of(classes, rank, pairs, n);
    struct both y = bytes_below(n, classes), mix = floats((int64_t)classes * samples * 2 * samples, -1, 1);
    struct both dm = floats(n * classes, -1, 1), dd = floats(n * classes, -1, 1);
    struct both df = floats(n * classes * rank, -1, 1), std = floats(n, 0, 1), entropy = floats(n, 0, 1);
    SUMS(sample_nll, more, n, samples, 1, 0.0, (set_gauss(&k.g, &p, side, 5), k.label = U(y)));
    SUMS(gram, more, n, some * grams, 1, 0.0,
         (set_gauss(&k.p, &p, side, 5), set_gauss(&k.q, &q, side, 9), k.c0 = classes - some, k.c1 = classes));
#define GRADS (k.d.mean = F(dm), k.d.diag = F(dd), k.d.factor = F(df))
#define GRADS_DIFFER larger(difference(&dm), larger(difference(&dd), difference(&df)))
    MAP(sample_nll_grad, more, n,
        (set_gauss(&k.g, &p, side, 5), GRADS, k.label = U(y), k.omega[1] = 0.7f, k.omega[samples - 1] = 0.3f),
        GRADS_DIFFER);
    upload(&dm), upload(&dd), upload(&df);
    MAP(sample_nll_grad, "fresh", n,
        (set_gauss(&k.g, &p, side, 5), GRADS, k.d.fresh = 1, k.label = U(y), k.omega[0] = 1.0f),
        GRADS_DIFFER);
    upload(&dm), upload(&dd), upload(&df);
    MAP(ged_grad, more, n,
        (set_gauss(&k.p, &p, side, 5), set_gauss(&k.q, &q, side, 9), GRADS, k.mix = F(mix)), GRADS_DIFFER);
    MAP(window_spread, more, n, (set_gauss(&k.g, &p, side, 5), k.std = F(std), k.entropy = F(entropy)),
        larger(difference(&std), difference(&entropy)));
    scene_drop(&p), scene_drop(&q);
    struct both *all[] = {&y, &mix, &dm, &dd, &df, &std, &entropy};
    for (int i = 0; i < 7; i++)
        drop(all[i]);
}

/* ---- rows and prototypes --------------------------------------------------------------------- */

static void check_rows(int official)
{
    int n = 9001, dims = 16;
    struct both from = floats((int64_t)5 * n * dims, -1, 1), g = floats((int64_t)n * dims, -1, 1);
    struct both rows = floats((int64_t)n * 16, 0, 0), drows = floats((int64_t)n * 16, -1, 1);
    struct both dg = floats((int64_t)n * dims, -1, 1), label = bytes_below(n, 3), anchor = floats(n, 0, 0);
    struct both table = floats(3 * 17 + 1, 2, 5), sums = both_of(3 * 17 * sizeof(double));
    struct both logs = floats(n, 0, 5), at = both_of((size_t)n * 8), places = both_of((size_t)n * 16 * 4);
    for (int i = 0; i < n; i++)
        ((int64_t *)at.at[0])[i] = 5 * i + i % 5;
    upload(&at);
    for (int i = 0; i < n * 16; i++) /* a third of them in no row */
        ((int32_t *)places.at[0])[i] = i % 3 ? i % 16 * n + i / 16 : -1;
    upload(&places);
#define PLACE (official ? (const int32_t *)places.at[side] : NULL)
    for (int i = 0; i < 3 * 17; i++)
        ((double *)sums.at[0])[i] = i % 17 ? 2 * random_unit() : 3000;
    upload(&sums);
    const char *more = official ? "released layout" : "";
    MAP(gather_rows, more, n * dims,
        (k.rows = F(g), k.from = F(from), k.at = (int64_t *)at.at[side], k.c = dims), difference(&g));
    MAP(scatter_rows, more, n * dims,
        (k.to = F(from), k.rows = F(g), k.at = (int64_t *)at.at[side], k.c = dims), difference(&from));
    for (int64_t i = 0; i < (int64_t)5 * n * dims; i++) {
        /* lower halves may be no numbers: upper ones twice */
        uint32_t *u = (uint32_t *)from.at[0] + i;
        *u = (*u & 0xFFFF0000u) | *u >> 16;
    }
    upload(&from);
    MAP(scatter_rows, "rounded", n * dims,
        (k.to = F(from), k.rows = F(g), k.at = (int64_t *)at.at[side], k.c = dims, k.bf16 = 1),
        bytes_differ(&from));
    MAP(fold, more, 7 * dims,
        (k.to = F(rows), k.from = F(g), k.period = 7 * dims, k.total = (int64_t)n * dims), difference(&rows));
    MAP(unit_rows, more, n, (k.rows = F(rows), k.g = F(g), k.place = PLACE, k.dims = dims),
        difference(&rows));
    MAP(contrast_table, more, 3,
        (k.sums = (double *)sums.at[side], k.table = F(table), k.scale = F(table) + 3 * 17, k.classes = 3,
         k.mean = !official, k.weight = 0.3),
        difference(&table));
    MAP(contrast_anchors, more, n, (k.anchor = F(anchor), k.label = U(label), k.table = F(table)),
        difference(&anchor));
    SUMS(contrast_value, more, n, 1, 1, 0.0,
         (k.rows = F(rows), k.log_sum = F(logs), k.label = U(label), k.table = F(table), k.tau = 0.07f));
    MAP(contrast_pull, more, n,
        (k.pull = F(drows), k.rows = F(rows), k.label = U(label), k.table = F(table), k.tau = 0.07f),
        difference(&drows));
    upload(&drows);
    MAP(unit_rows_back, more, n,
        (k.dg = F(dg), k.g = F(g), k.drows = F(drows), k.place = PLACE, k.dims = dims,
         k.scale = F(table) + 3 * 17),
        difference(&dg));
#undef PLACE
    struct both *all[] = {&from, &g, &rows, &drows, &dg, &label, &anchor, &table, &sums, &logs, &at, &places};
    for (int i = 0; i < 12; i++)
        drop(all[i]);
}

static void check_prototypes(int classes, int full)
{
    int64_t n = voxels;
    char more[32];
    snprintf(more, sizeof more, "%d classes%s", classes, full ? ", full" : "");
    struct both f = floats(n * 16, -1, 1), df = floats(n * 16, -1, 1), w = floats(n, 0, 1);
    struct both table = floats((int64_t)classes * K_PROTO_ROW, -0.3, 0.3), y = bytes_below(n, classes + 1);
    struct both count = both_of(sizeof(double));
    *(double *)count.at[0] = 7000;
    upload(&count);
    for (int c = 0; c < classes; c++)
        ((float *)table.at[0])[c * K_PROTO_ROW] = c == 1 && classes > 2 ? -1e30f : 0.0f;
    upload(&table);
    for (int order = 1; order <= 3; order++) {
        int per = order == 1 ? K_ORDER_1 : order == 2 ? K_ORDER_2 : K_ORDER_3;
        int group = classes < K_GROUP ? classes : K_GROUP;
        SUMS(class_moments, more, n, group * per, 1, 0.0,
             (k.rows = F(f), k.label = U(y), k.classes = group, k.order = order, k.shift[0][3] = 0.2f,
              k.shift[group - 1][5] = -0.1f));
    }
#define PROTO (k.table = F(table), k.label = U(y), k.weights = F(w), k.classes = classes, k.ignore_bg = full)
    SUMS(proto_count, more, n, 1, 1, 0.0, PROTO);
    for (int fresh = 0; fresh < 2; fresh++)
        SUMS(proto_loss, more, n, 1, 1, difference(&df),
             (PROTO, k.features = F(f), k.dfeatures = F(df), k.full = full, k.fresh = fresh,
              k.unscaled = fresh, k.tau = 0.5f, k.weight = 700, k.count = (double *)count.at[side]));
    drop(&f), drop(&df), drop(&w), drop(&table), drop(&y), drop(&count);
}

/* ---- batch norm ------------------------------------------------------------------------------ */

struct norm_case {
    int n, d, h, w, c, g_bf16, y_bf16, relu, tables;
};

static double value_at(const struct both *b, int bf16, int64_t i)
{
    return (double)(bf16 ? k_float((uint32_t)((uint16_t *)b->at[0])[i] << 16) : ((float *)b->at[0])[i]);
}

static double norm_error(const struct norm_case *s, const struct both *g, const struct both *y,
                         const struct both *tables, const double *got)
{
    int64_t V = (int64_t)s->d * s->h * s->w, nc = (int64_t)s->n * s->c;
    double worst = 0, *want = (double *)calloc((size_t)(3 * nc), sizeof *want);
    const float *scale = (float *)tables->at[0], *shift = scale + nc, *mean = shift + nc;
    for (int64_t i = 0; i < V * nc; i++) {
        int64_t c = i % s->c, at = i / s->c / V * s->c + c;
        double G = value_at(g, s->g_bf16, i), v = value_at(y, s->y_bf16, i);
        float u = s->tables ? scale[at] * (float)v + shift[at] : (float)v;
        if (s->relu && !(u > 0))
            continue;
        want[at] += G;
        want[nc + at] += G * (v - (double)mean[c]);
        want[2 * nc + at] += fabs(G);
    }
    for (int64_t i = 0; i < nc; i++) {
        double most = want[2 * nc + i] + 1e-9;
        worst = larger(worst, fabs(got[i] - want[i]) / most);
        worst = larger(worst, fabs(got[nc + i] - want[nc + i]) / (3 * most));
    }
    free(want);
    return worst;
}

static void check_norm(const struct norm_case *s)
{
    int64_t nc = (int64_t)s->n * s->c, n = nc * s->d * s->h * s->w;
    struct both g = values(n, s->g_bf16), y = values(n, s->y_bf16), tables = floats(2 * nc + s->c, -1, 1);
    struct both sums = both_of((size_t)(2 * nc) * sizeof(double)), to = floats(n, -1, 1);
    float *t = (float *)tables.at[1];
    struct tensor G = {g.at[1], s->g_bf16 ? VALUE_BF16 : VALUE_F32, s->n, s->d, s->h, s->w, s->c}, Y = G;
    struct tensor T = G;
    Y.data = y.at[1], Y.type = s->y_bf16 ? VALUE_BF16 : VALUE_F32;
    T.data = to.at[1], T.type = VALUE_F32;
    struct conv_source from = {Y, s->tables ? t : NULL, s->tables ? t + nc : NULL, s->relu};
    char more[64];
    snprintf(more, sizeof more, "%dx%dx%dx%dx%d %s %s", s->n, s->d, s->h, s->w, s->c,
             s->g_bf16 ? "bf16" : "f32", s->y_bf16 ? "bf16" : "f32");
    must(d->norm_sums(gpu, &G, &from, t + 2 * nc, (double *)sums.at[1]), "norm_sums");
    double *got = (double *)fetched(&sums), start = now();
    must(d->norm_sums(gpu, &G, &from, t + 2 * nc, (double *)sums.at[1]), "norm_sums");
    double us = now() - start, *again = (double *)fetched(&sums);
    double off = memcmp(got, again, sums.bytes) ? INFINITY : norm_error(s, &g, &y, &tables, got);
    verdict("norm_sums", more, off, 1e-6, us);
    free(got), free(again);
    from.scale = from.shift = NULL;
    must(d->grad_join(gpu, &T, &G, &from), "grad_join");
    for (int64_t i = 0; i < n; i++)
        if (!s->relu || value_at(&y, s->y_bf16, i) > 0)
            ((float *)to.at[0])[i] += (float)value_at(&g, s->g_bf16, i);
    off = difference(&to), start = now();
    must(d->grad_join(gpu, &T, &G, &from), "grad_join");
    verdict("grad_join", more, off, 0, now() - start);
    drop(&g), drop(&y), drop(&tables), drop(&sums), drop(&to);
}

static void check_norms(int large)
{
    static const int channels[] = {1, 2, 3, 4, 7, 8, 16, 24, 32, 48, 100, 255, 256, 300};
    for (int i = 0; i < 14; i++)
        for (int k = 0; k < 2; k++) {
            struct norm_case s = {2, 3, 5, k ? 7 : 16, channels[i], k, i & 1, 1, 1};
            check_norm(&s);
        }
    struct norm_case others[] = {{1, 1, 1, 1, 5, 0, 0, 1, 1},     {3, 9, 9, 9, 16, 1, 1, 0, 1},
                                 {2, 8, 8, 64, 16, 1, 1, 1, 0},   {4, 112, 112, 80, 16, 1, 1, 1, 1},
                                 {4, 56, 56, 40, 32, 1, 1, 1, 1}, {4, 7, 7, 5, 256, 1, 1, 1, 1}};
    for (int i = 0; i < (large ? 6 : 3); i++)
        check_norm(&others[i]);
}

/* ---- contrast -------------------------------------------------------------------------------- */

/* ln Z and pull in double; rows[] as given. */
static double contrast_error(int n, double tau, const float *x, const float *anchor, const float *log_sum,
                             const float *pull)
{
    double *Z = (double *)calloc((size_t)n, sizeof *Z), *top = (double *)calloc((size_t)n, sizeof *top);
    double worst = 0, off = 0, all = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < n; i++) {
            double want[16] = {0};
            for (int j = 0; j < n; j++) {
                double s = 0;
                for (int k = 0; k < 16; k++)
                    s += (double)x[i * 16 + k] * (double)x[j * 16 + k] / tau;
                if (j == i)
                    continue;
                if (pass == 0) {
                    double more = s > top[i] || Z[i] == 0 ? s : top[i];
                    Z[i] = Z[i] * exp(top[i] - more) + exp(s - more);
                    top[i] = more;
                } else {
                    double w = exp(s - top[i]) * (double)anchor[i] / Z[i] +
                               exp(s - top[j]) * (double)anchor[j] / Z[j];
                    for (int k = 0; k < 16; k++)
                        want[k] += w * (double)x[j * 16 + k];
                }
            }
            if (pass == 0)
                worst = larger(worst, fabs((double)log_sum[i] - top[i] - log(Z[i])) / (1 + fabs(top[i])));
            for (int k = 0; pass == 1 && k < 16; k++) {
                off += pow((double)pull[i * 16 + k] - want[k], 2);
                all += want[k] * want[k];
            }
        }
    free(Z), free(top);
    return larger(worst, sqrt(off / (all + 1e-30)));
}

static void check_contrast(int n, double tau, int exact)
{
    struct both x = floats((int64_t)n * 16, -1, 1), anchor = floats(n, 0, 0), logs = floats(n, 0, 0);
    struct both pull = floats((int64_t)n * 16, 0, 0);
    float *rows = (float *)x.at[0];
    for (int i = 0; i < n; i++) {
        float length = k_length(rows + i * 16, 16);
        for (int k = 0; k < 16; k++)
            rows[i * 16 + k] /= length;
        ((float *)anchor.at[0])[i] = i % 7 ? 1.0f : 0.0f;
    }
    upload(&x), upload(&anchor);
    struct contrast work = {
        n,   (float)tau, (float *)x.at[1], (float *)anchor.at[1], (float *)logs.at[1], (float *)pull.at[1],
        NULL};
    must(d->contrast(gpu, &work), "contrast");
    float *l0 = (float *)fetched(&logs), *p0 = (float *)fetched(&pull);
    double start = now();
    must(d->contrast(gpu, &work), "contrast");
    double us = now() - start;
    float *l1 = (float *)fetched(&logs), *p1 = (float *)fetched(&pull);
    double off = memcmp(l0, l1, logs.bytes) || memcmp(p0, p1, pull.bytes) ? INFINITY : 0;
    char more[40];
    snprintf(more, sizeof more, "%d rows, tau %g", n, tau);
    if (exact && off == 0)
        off = contrast_error(n, (double)(float)tau, rows, (float *)anchor.at[0], l0, p0);
    verdict("contrast", more, off, 1e-5, us);
    free(l0), free(p0), free(l1), free(p1);
    drop(&x), drop(&anchor), drop(&logs), drop(&pull);
}

int main(int argc, char **argv)
{
    struct cuda_facts f;
    d = falx_cuda_driver();
    if (argc > 1)
        voxels = atoll(argv[1]);
    int large = voxels >= 100000;
    must(d->version != CUDA_DRIVER_VERSION, "version");
    must(d->open(&gpu, 0, PRECISION_BF16, &f), "open");
    printf("%s, %d.%d, %d multiprocessors, driver %d, runtime %d, %.1f of %.1f GiB free\n", f.name, f.major,
           f.minor, f.multiprocessors, f.driver, f.runtime, (double)f.available / 1073741824.0,
           (double)f.total / 1073741824.0);
    check_optim();
    check_mix();
    check_norm_tables();
    for (int channels = 1; channels <= 2; channels++) {
        check_patch(channels, 0);
        check_patch(channels, 0.1f);
    }
    check_square_sum();
    for (int classes = 2; classes <= 14; classes += classes == 2 ? 1 : classes == 3 ? 2 : 9)
        check_classes(classes), check_twin(classes);
    check_sides();
    check_branches(2, 2), check_branches(2, 4), check_branches(3, 3), check_branches(14, 3);
    for (int how = K_NEAREST; how <= K_CENTRED; how++)
        check_resize(how, 40, 1), check_resize(how, 20, 2), check_resize(how, 2, 3);
    check_shake(16, 0), check_shake(40, 1);
    check_strided(1, 4, 2, 1), check_strided(24, 4, 2, 1);
    check_strided(3, 3, 2, 1), check_strided(5, 2, 3, 0);
    check_halving(3, 0), check_halving(64, 1);
    check_pairs(33, 5), check_pairs(320, 128), check_pairs(980, 256);
    check_window(2, 1), check_window(7, 1), check_window(300, 0);
    check_gauss(2, 8, 3), check_gauss(4, 5, 8), check_gauss(3, 0, 2), check_gauss(14, 8, 3);
    check_gauss(32, 2, 8);
    check_rows(0), check_rows(1);
    check_prototypes(2, 0), check_prototypes(2, 1), check_prototypes(3, 0), check_prototypes(17, 1);
    check_norms(large);
    check_contrast(2, 0.07, 1), check_contrast(63, 0.07, 1), check_contrast(257, 0.01, 1);
    check_contrast(1000, 0.07, 1), check_contrast(1921, 0.005, 1);
    if (large)
        check_contrast(9000, 0.07, 0), check_contrast(18000, 0.07, 0);
    d->close(gpu);
    printf("%d failure%s\n", failures, failures == 1 ? "" : "s");
    return failures > 0;
}
