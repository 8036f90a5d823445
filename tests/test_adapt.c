/* test_adapt.c - masks by the scan's own statistics, against statistics that steps of training leave. */
#include "predict_naive.h"

/* Sets the running statistics half-way to the mean of what four windows have, each told by how far a step of
 * training without dropout moves them. A patch has more than one voxel at the bottom: one has no variance. */
static void naive_adapt(struct scene *s, const float *image, const int dims[3],
                        const struct predict_options *o)
{
    static const int eighths[4][3] = {{1, 3, 5}, {3, 7, 1}, {5, 1, 7}, {7, 5, 3}}; /* of an axis's windows */
    struct error e;
    struct net *net;
    struct params *p = s->model.params;
    struct net_definition def = s->model.def;
    struct naive n = {.o = o, .image = image, .channels = def.channels};
    struct net_shape shape = {1, o->patch[0], o->patch[1], o->patch[2], NET_FORWARD_ONLY, 0};
    struct net_pass pass = {.mode = NET_TRAIN};
    float *window = mem_alloc(NULL, (size_t)(VOXELS * n.channels), sizeof *window);
    struct tensor x = {window, VALUE_F32, 1, shape.d, shape.h, shape.w, n.channels};
    int64_t place[VOXELS], first = p->trainable_count, many = p->count - first;
    double weight[VOXELS], *mean = calloc((size_t)many, sizeof *mean);
    float *was = mem_alloc(NULL, (size_t)many, sizeof *was);
    int start[3][64], count[3];
    def.dropout = NET_DROPOUT_NONE;
    naive_lay(&n, start, count, dims);
    assert_ok(net_new(&net, p, &def, &shape, &e), e);
    memcpy(was, p->value + first, (size_t)many * sizeof *was);
    for (int k = 0; k < 4; k++) {
        int at[3] = {start[0][eighths[k][0] * count[0] / 8], start[1][eighths[k][1] * count[1] / 8],
                     start[2][eighths[k][2] * count[2] / 8]};
        naive_cut(&n, window, place, weight, at, 0);
        net_forward(net, &x, &pass);
        for (int64_t j = 0; j < many; j++)
            mean[j] += ((double)p->value[first + j] - 0.9 * (double)was[j]) / 0.1 / 4;
        memcpy(p->value + first, was, (size_t)many * sizeof *was);
    }
    for (int64_t j = 0; j < many; j++)
        p->value[first + j] = (float)(0.5 * (mean[j] + (double)was[j]));
    p->version++;
    net_free(net);
    mem_free(was);
    mem_free(window);
    free(mean);
}

static void adapts_to_the_scan(void **state)
{
    (void)state;
    static const int dims[3] = {61, 40, 30};
    struct scene s;
    struct error e;
    struct predictor *p;
    struct prediction got[3];
    struct predict_options o = {.patch = {32, 32, 16}, .stride = {8, 8, 8}, .probabilities = 1};
    int voxels = dims[0] * dims[1] * dims[2], moved = 0;
    scene_open(&s, 2, 3, 2, 2);
    size_t bytes = (size_t)s.model.params->count * sizeof(float);
    float *image = noise_image(dims, 2, 8), *before = mem_alloc(NULL, bytes, 1);
    memcpy(before, s.model.params->value, bytes);
    for (int v = 0; v < 2 * voxels; v++)
        image[v] = 3.0f * image[v] + 1.0f; /* brighter and more contrast than the network is used to */
    for (int i = 0; i < 3; i++) {
        o.adapt = i < 2;
        o.batch = i ? 1 : 3;
        o.uncertainty = i == 1; /* of the same parameters, which are adapted once */
        assert_ok(predictor_new(&p, s.dev, &s.model, i == 1 ? &s.model : NULL, &o, &e), e);
        assert_ok(predict_array(&got[i], p, image, dims, &e), e);
        if (i == 0) { /* again, from where the first time left it */
            prediction_free(&got[i]);
            assert_ok(predict_array(&got[i], p, image, dims, &e), e);
        }
        assert_memory_equal(s.model.params->value, before, bytes);
        predictor_free(p);
    }
    for (int v = 0; v < voxels; v++) {
        assert_near((double)got[0].foreground[v], (double)got[1].foreground[v], 1e-6);
        moved += fabsf(got[0].foreground[v] - got[2].foreground[v]) > 0.05f;
    }
    assert_true(moved > voxels / 10);
    naive_adapt(&s, image, dims, &o);
    double *prob = naive(&s, image, dims, &o, "mean", 1, 3);
    compare(&got[0], prob, 3);
    free(prob);
    for (int i = 0; i < 3; i++)
        prediction_free(&got[i]);
    mem_free(image);
    mem_free(before);
    scene_close(&s);
}

/* A window of one voxel at the bottom tells of no variance: the layers there keep that of training. */
static void one_voxel_is_no_statistic(void **state)
{
    (void)state;
    static const int dims[3] = {16, 16, 16};
    struct scene s;
    struct error e;
    struct net *net;
    struct net_shape shape = {1, 16, 16, 16, NET_FORWARD_ONLY, 0};
    struct net_pass pass = {.mode = NET_MEASURE};
    scene_open(&s, 1, 2, 0, 2);
    struct params *p = s.model.params;
    const struct param *bottom = params_find(p, "block_five.conv.1.running_var");
    const struct param *top = params_find(p, "block_one.conv.1.running_var");
    struct tensor x = {noise_image(dims, 1, 3), VALUE_F32, 1, 16, 16, 16, 1};
    assert_ok(net_new(&net, p, &s.model.def, &shape, &e), e);
    for (int train = 0; train < 2; train++) {
        net_forward(net, &x, &pass);
        for (int64_t i = 0; i < bottom->count; i++)
            assert_true(p->value[bottom->offset + i] == 1.0f);
        assert_true(p->value[top->offset] != 1.0f);
        pass.mode = NET_TRAIN;
    }
    net_free(net);
    mem_free(x.data);
    scene_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adapts_to_the_scan),
        cmocka_unit_test(one_voxel_is_no_statistic),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
