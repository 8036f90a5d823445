/* cuda_heads_check.cu - the heads of a network on a GPU (heads.h) against plain loops in double over operands
 * rounded to bf16, and the time they take. A program of its own, for a visit to a GPU.
 *
 *     make build/cuda_heads_check && build/cuda_heads_check
 * An argument says how many voxels the last and timed case has (four patches of 112 x 112 x 80).
 */
#include "cuda_check.h"

static float rounded(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    u = (u + 0x7FFFu + (u >> 16 & 1u)) & 0xFFFF0000u;
    memcpy(&x, &u, sizeof x);
    return x;
}

struct scene {
    int64_t voxels;
    int narrows, relu, add;
    struct both x, dx, weight[HEADS_MOST], bias[HEADS_MOST], y[HEADS_MOST], dy[HEADS_MOST];
    struct both dweight[HEADS_MOST], dbias[HEADS_MOST];
};

/* The wide head is neither first nor last. */
static int channels_of(int head)
{
    return head == 1 ? HEADS_WIDE : HEADS_NARROW;
}

static struct scene scene_of(int64_t voxels, int narrows, int relu, int add)
{
    struct scene s = {voxels, narrows, relu, add};
    s.x = floats(voxels * HEADS_IN, -1, 1);
    s.dx = both_of((size_t)voxels * HEADS_IN * 2);
    for (int i = 0; i <= narrows; i++) {
        int c = channels_of(i);
        s.weight[i] = floats(HEADS_IN * c, -1, 1);
        s.bias[i] = floats(c, -1, 1);
        s.y[i] = floats(voxels * c, 5, 6);
        s.dy[i] = floats(voxels * c, -1, 1);
        s.dweight[i] = floats(HEADS_IN * c, -9, 9);
        s.dbias[i] = floats(c, -9, 9);
    }
    return s;
}

static struct heads heads_of(const struct scene *s)
{
    struct heads h = {s->narrows + 1, s->relu, s->voxels, (const float *)s->x.at[1]};
    h.dx = s->dx.at[1];
    for (int i = 0; i < h.n; i++) {
        struct head one = {channels_of(i),
                           (const float *)s->weight[i].at[1],
                           (const float *)s->bias[i].at[1],
                           (float *)s->y[i].at[1],
                           (const float *)s->dy[i].at[1],
                           (float *)s->dweight[i].at[1],
                           (float *)s->dbias[i].at[1],
                           s->add};
        h.head[i] = one;
    }
    return h;
}

static float read_x(const struct scene *s, int64_t v, int k)
{
    float x = ((const float *)s->x.at[0])[v * HEADS_IN + k];
    return s->relu && !(x > 0) ? 0.0f : x;
}

static void expect_forward(struct scene *s, int head)
{
    int c = channels_of(head);
    const float *weight = (const float *)s->weight[head].at[0], *bias = (const float *)s->bias[head].at[0];
    for (int64_t v = 0; v < s->voxels; v++)
        for (int o = 0; o < c; o++) {
            double sum = bias[o];
            for (int k = 0; k < HEADS_IN; k++)
                sum += (double)rounded(read_x(s, v, k)) * (double)rounded(weight[k * c + o]);
            ((float *)s->y[head].at[0])[v * c + o] = (float)sum;
        }
}

static void expect_gradients(struct scene *s, int head)
{
    int c = channels_of(head);
    const float *dy = (const float *)s->dy[head].at[0];
    for (int o = 0; o < c; o++)
        for (int k = 0; k <= HEADS_IN; k++) {
            double sum = 0;
            for (int64_t v = 0; v < s->voxels; v++)
                sum +=
                    (double)rounded(dy[v * c + o]) * (k < HEADS_IN ? (double)rounded(read_x(s, v, k)) : 1.0);
            float *to = k < HEADS_IN ? (float *)s->dweight[head].at[0] + k * c + o
                                     : (float *)s->dbias[head].at[0] + o;
            *to = (float)(s->add ? (double)*to + sum : sum);
        }
}

/* The largest difference of dx from what it should be, of size 1 or so. */
static double dx_error(const struct scene *s)
{
    uint16_t *got = (uint16_t *)fetched(&s->dx);
    double worst = 0;
    for (int64_t v = 0; v < s->voxels; v++)
        for (int k = 0; k < HEADS_IN; k++) {
            double sum = 0;
            for (int i = 0; i <= s->narrows; i++)
                for (int c = channels_of(i), o = 0; o < c; o++)
                    sum += (double)rounded(((const float *)s->dy[i].at[0])[v * c + o]) *
                           (double)rounded(((const float *)s->weight[i].at[0])[k * c + o]);
            if (s->relu && !(((const float *)s->x.at[0])[v * HEADS_IN + k] > 0))
                sum = 0;
            uint32_t u = (uint32_t)got[v * HEADS_IN + k] << 16;
            float f;
            memcpy(&f, &u, sizeof f);
            double off = fabs((double)f - sum) / (1 + fabs(sum));
            worst = off <= worst ? worst : off;
        }
    free(got);
    return worst;
}

/* Sums of so many products are compared with the size of the sums. */
static double sums_error(const struct both *b, int64_t count)
{
    float *got = (float *)fetched(b), *want = (float *)b->at[0];
    double worst = 0;
    for (size_t i = 0; i < b->bytes / sizeof *got; i++) {
        double off = fabs((double)got[i] - (double)want[i]) / (sqrt((double)count) + fabs((double)want[i]));
        worst = off <= worst ? worst : off;
    }
    free(got);
    return worst;
}

static void check(int64_t count, int narrows, int relu, int add)
{
    struct scene s = scene_of(count, narrows, relu, add);
    struct heads h = heads_of(&s);
    char more[40];
    double forward = 0, sums = 0, start = now();
    snprintf(more, sizeof more, "%lld, %d%s%s", (long long)count, narrows, relu ? " relu" : "",
             add ? " add" : "");
    must(d->heads_forward(gpu, &h), "forward");
    double between = now();
    must(d->heads_backward(gpu, &h), "backward");
    double end = now();
    for (int i = 0; i <= narrows; i++) {
        expect_forward(&s, i);
        expect_gradients(&s, i);
        forward = larger(forward, difference(&s.y[i]));
        sums = larger(sums, larger(sums_error(&s.dweight[i], count), sums_error(&s.dbias[i], count)));
    }
    verdict("heads_forward", more, forward, 1e-3, between - start);
    verdict("heads_dx", more, dx_error(&s), 4e-3, 0);
    verdict("heads_sums", more, sums, 1e-4, end - between);
    drop(&s.x), drop(&s.dx);
    for (int i = 0; i <= narrows; i++) {
        struct both *all[] = {&s.weight[i], &s.bias[i], &s.y[i], &s.dy[i], &s.dweight[i], &s.dbias[i]};
        for (int k = 0; k < 6; k++)
            drop(all[k]);
    }
}

/* The same bits every time. */
static void check_again(void)
{
    struct scene s = scene_of(100003, 2, 1, 0);
    struct heads h = heads_of(&s);
    must(d->heads_backward(gpu, &h), "backward");
    void *first = fetched(&s.dweight[1]);
    must(d->heads_backward(gpu, &h), "backward");
    void *second = fetched(&s.dweight[1]);
    verdict("heads_again", "same bits", memcmp(first, second, s.dweight[1].bytes) != 0, 0, 0);
    free(first), free(second);
}

int main(int n, char **arg)
{
    struct cuda_facts f;
    d = falx_cuda_driver();
    must(d->open(&gpu, 0, PRECISION_BF16, &f), "open");
    int64_t last = n > 1 ? atoll(arg[1]) : 4 * 112 * 112 * 80;
    check(1, 2, 1, 0);
    for (int narrows = 1; narrows <= HEADS_NARROWS; narrows++)
        check(1003 + 64 * narrows, narrows, narrows % 2, narrows / 2 % 2);
    check(100003, 2, 1, 1);
    check_again();
    check(last, 2, 1, 0);
    printf("%d failures\n", failures);
    d->close(gpu);
    return failures > 0;
}
