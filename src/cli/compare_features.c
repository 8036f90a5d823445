/* compare_features.c - the feature space of a trained network in two dimensions. See compare_int.h.
 *
 *     a few held-out scans -> one window around the object -> features of voxels near the true boundary
 *     -> unit vectors -> their two main axes (principal components) -> points with the class they belong to
 *
 * What contrast between classes does shows where classes meet: the same voxels of networks trained with and
 * without it, each along the axes in which its own features vary most. One number goes with the picture: the
 * variance between the classes' means over that inside of classes, in all dimensions.
 */
#include <math.h>
#include <string.h>

#include "cli/compare_int.h"
#include "train/loss.h"
#include "train/settings.h"

enum { SCANS = 6, POINTS = 100, WIDTH = 16, ROUNDS = 200 }; /* WIDTH: of AUA's features */

struct cloud {
    int n;
    double (*row)[WIDTH]; /* (SCANS * POINTS) unit vectors */
    int *class;
};

struct window {
    int dims[3], first[3]; /* of the patch; first voxel of the scan in it, may be negative */
    float *image;          /* (d, h, w, channels) */
    uint8_t *label, *near; /* (d, h, w) */
};

/* ---- a window around the object ------------------------------------------------------------------- */

/* The patch around the middle of the labelled voxels, inside the scan as far as that is large enough. */
static void place_window(struct window *w, const struct volume *label)
{
    const int64_t *n = label->dims;
    double sum[3] = {0, 0, 0}, count = 0;
    for (int64_t i = 0, z = 0; z < n[2]; z++)
        for (int64_t y = 0; y < n[1]; y++)
            for (int64_t x = 0; x < n[0]; x++, i++)
                if (volume_value(label, i) > 0) {
                    const double at[3] = {(double)x, (double)y, (double)z};
                    for (int a = 0; a < 3; a++)
                        sum[a] += at[a];
                    count++;
                }
    for (int a = 0; a < 3; a++) {
        int middle = count > 0 ? (int)(sum[a] / count) : (int)(n[a] / 2), last = (int)n[a] - w->dims[a];
        int first = middle - w->dims[a] / 2;
        w->first[a] = last < 0 ? last / 2 : first < 0 ? 0 : first > last ? last : first;
    }
}

/* Zeros where the patch reaches beyond the scan. */
static void fill_window(struct window *w, const struct prepared *from, int channels)
{
    const int64_t *n = from->image.dims;
    int64_t voxels = n[0] * n[1] * n[2], to = 0;
    for (int i = 0; i < w->dims[0]; i++)
        for (int j = 0; j < w->dims[1]; j++)
            for (int k = 0; k < w->dims[2]; k++, to++) {
                int64_t x = w->first[0] + i, y = w->first[1] + j, z = w->first[2] + k;
                int inside = x >= 0 && x < n[0] && y >= 0 && y < n[1] && z >= 0 && z < n[2];
                int64_t at = inside ? x + n[0] * (y + n[1] * z) : 0;
                for (int c = 0; c < channels; c++)
                    w->image[to * channels + c] =
                        inside ? ((const float *)from->image.data)[c * voxels + at] : 0.0f;
                double class = inside ? volume_value(&from->label, at) : 0;
                w->label[to] = class > 0 && class < 256 ? (uint8_t) class : 0;
            }
}

/* One held-out scan, prepared like those of training; its label is only looked at here. */
static int load_window(struct window *w, const struct plan *p, const struct open_run *net,
                       const struct data_case *k, struct error *e)
{
    struct volume image = {0}, label = {0};
    struct prepared ready = {0};
    struct volume_request request = config_request(p->c);
    request.report = NULL;
    int result = dataset_load_image(&image, &p->held, k, &request, e);
    if (result == 0)
        result = plan_truth(&label, p, k, &image, &request, e);
    if (result == 0)
        result = prepare_case(&ready, &net->facts.recipe, &image, &label, 0, net->dev->pool, e);
    if (result == 0) {
        place_window(w, &ready.label);
        fill_window(w, &ready, net->facts.channels);
    }
    volume_free(&image);
    volume_free(&label);
    prepared_free(&ready);
    return result;
}

/* ---- features --------------------------------------------------------------------------------------- */

static void add_point(struct cloud *c, const float *feature, int class)
{
    double length = 0;
    for (int i = 0; i < WIDTH; i++)
        length += (double)feature[i] * feature[i];
    for (int i = 0; i < WIDTH && length > 0; i++)
        c->row[c->n][i] = feature[i] / sqrt(length);
    c->class[c->n] = class;
    c->n += length > 0;
}

/* Runs the network on the window and keeps the features of boundary voxels. */
static int add_window(struct cloud *c, struct net *net, struct window *w, struct device *dev,
                      const struct tensor *input, float *features, uint32_t item, struct error *e)
{
    int64_t points[POINTS], voxels = (int64_t)w->dims[0] * w->dims[1] * w->dims[2];
    struct net_pass pass = {.mode = NET_EVAL};
    dev->ops->upload(dev, input->data, w->image, (size_t)(voxels * input->c) * sizeof(float));
    net_forward(net, input, &pass);
    struct tensor out = net_value(net, "features");
    CHECK(out.c == WIDTH);
    dev->ops->download(dev, features, out.data, (size_t)voxels * WIDTH * sizeof(float));
    if (device_check(dev, e) < 0)
        return -1;
    struct boundary b = {.label = w->label,
                         .dims = w->dims,
                         .rule = NB_CENTRED,
                         .cap = POINTS,
                         .seed = 1337,
                         .item = item,
                         .near = w->near};
    int n = boundary_points(points, &b, dev->pool);
    for (int i = 0; i < n; i++)
        add_point(c, features + points[i] * WIDTH, w->label[points[i]]);
    return 0;
}

static int gather(struct cloud *c, const struct plan *p, const struct open_run *from, struct error *e)
{
    struct device *dev = from->dev;
    const int *patch = from->facts.patch;
    struct net_shape shape = {.n = 1, .d = patch[0], .h = patch[1], .w = patch[2], .use = NET_FORWARD_ONLY};
    size_t voxels = (size_t)patch[0] * (size_t)patch[1] * (size_t)patch[2];
    int channels = from->facts.channels, result = -1;
    struct window w = {.dims = {patch[0], patch[1], patch[2]}};
    struct tensor input = {
        .type = VALUE_F32, .n = 1, .d = patch[0], .h = patch[1], .w = patch[2], .c = channels};
    struct net *net = NULL;
    float *features = mem_alloc(e, voxels * WIDTH, sizeof *features);
    w.image = mem_alloc(e, voxels * (size_t)channels, sizeof *w.image);
    w.label = mem_alloc(e, voxels, 1);
    w.near = mem_alloc(e, voxels, 1);
    input.data = dev->ops->alloc(dev, voxels * (size_t)channels * sizeof(float));
    if (!features || !w.image || !w.label || !w.near || device_check(dev, e) < 0 ||
        net_new(&net, from->mask.params, &from->mask.def, &shape, e) < 0)
        goto out;
    result = 0;
    for (int i = 0; i < p->held.n_cases && i < SCANS && result == 0; i++) {
        result = load_window(&w, p, from, &p->held.cases[i], e);
        if (result == 0)
            result = add_window(c, net, &w, dev, &input, features, (uint32_t)i, e);
    }
out:
    net_free(net);
    if (input.data)
        dev->ops->free(dev, input.data);
    mem_free(features);
    mem_free(w.image);
    mem_free(w.label);
    mem_free(w.near);
    return result;
}

/* ---- two dimensions ------------------------------------------------------------------------------------ */

static void subtract_mean(struct cloud *c)
{
    for (int a = 0; a < WIDTH; a++) {
        double mean = 0;
        for (int i = 0; i < c->n; i++)
            mean += c->row[i][a] / c->n;
        for (int i = 0; i < c->n; i++)
            c->row[i][a] -= mean;
    }
}

/* The direction of most variance, by repeated multiplication; its largest entry is positive. Takes it out of
 * the covariance. Returns the variance along it. */
static double main_axis(double axis[WIDTH], double covariance[WIDTH][WIDTH])
{
    double next[WIDTH], value = 0;
    int largest = 0;
    for (int a = 0; a < WIDTH; a++)
        axis[a] = 1.0 / (1 + a); /* in no symmetry plane of anything */
    for (int round = 0; round < ROUNDS; round++) {
        double length = 0;
        for (int a = 0; a < WIDTH; a++) {
            next[a] = 0;
            for (int b = 0; b < WIDTH; b++)
                next[a] += covariance[a][b] * axis[b];
            length += next[a] * next[a];
        }
        value = sqrt(length);
        for (int a = 0; a < WIDTH && value > 0; a++)
            axis[a] = next[a] / value;
    }
    for (int a = 1; a < WIDTH; a++)
        largest = fabs(axis[a]) > fabs(axis[largest]) ? a : largest;
    for (int a = 0, flip = axis[largest] < 0; a < WIDTH; a++)
        axis[a] = flip ? -axis[a] : axis[a];
    for (int a = 0; a < WIDTH; a++)
        for (int b = 0; b < WIDTH; b++)
            covariance[a][b] -= value * axis[a] * axis[b];
    return value;
}

/* Variance of the classes' means, weighted by their points, over the mean variance inside of classes. */
static double apart(const struct cloud *c)
{
    double between = 0, all = 0;
    for (int class = 0; class < 256; class ++) {
        double mean[WIDTH] = {0};
        int n = 0;
        for (int i = 0; i < c->n; i++)
            for (int a = 0; c->class[i] == class && a < WIDTH; a++) {
                mean[a] += c->row[i][a];
                n += a == 0;
            }
        for (int a = 0; n > 0 && a < WIDTH; a++)
            between += mean[a] * mean[a] / n;
    }
    for (int i = 0; i < c->n; i++)
        for (int a = 0; a < WIDTH; a++)
            all += c->row[i][a] * c->row[i][a];
    return all > between ? between / (all - between) : NAN;
}

static void flatten(struct js_out *o, struct cloud *c, double *x, double *y, int64_t *class)
{
    double covariance[WIDTH][WIDTH] = {{0}}, axis[2][WIDTH], value[2], all = 0;
    subtract_mean(c);
    for (int i = 0; i < c->n; i++)
        for (int a = 0; a < WIDTH; a++)
            for (int b = 0; b < WIDTH; b++)
                covariance[a][b] += c->row[i][a] * c->row[i][b] / c->n;
    for (int a = 0; a < WIDTH; a++)
        all += covariance[a][a];
    for (int k = 0; k < 2; k++)
        value[k] = main_axis(axis[k], covariance);
    for (int i = 0; i < c->n; i++) {
        x[i] = y[i] = 0;
        class[i] = c->class[i];
        for (int a = 0; a < WIDTH; a++) {
            x[i] += axis[0][a] * c->row[i][a];
            y[i] += axis[1][a] * c->row[i][a];
        }
    }
    js_out_open(o, "features", '{');
    js_out_real(o, "apart", apart(c));
    js_out_real(o, "explained", all > 0 ? (value[0] + value[1]) / all : NAN);
    js_out_reals(o, "x", x, c->n);
    js_out_reals(o, "y", y, c->n);
    js_out_ints(o, "class", class, c->n);
    js_out_close(o, '}');
}

int compare_features(struct js_out *o, const struct plan *p, const struct open_run *from, struct error *e)
{
    struct cloud c = {.n = 0};
    enum { ALL = SCANS * POINTS };
    double *place = NULL;
    int64_t *class = NULL;
    int result = -1;
    if (from->mask.def.define != aua_define)
        return 0;
    c.row = mem_alloc(e, ALL, sizeof *c.row);
    c.class = mem_alloc(e, ALL, sizeof *c.class);
    place = mem_alloc(e, 2 * ALL, sizeof *place);
    class = mem_alloc(e, ALL, sizeof *class);
    if (c.row && c.class && place && class)
        result = gather(&c, p, from, e);
    if (result == 0 && c.n > 2)
        flatten(o, &c, place, place + ALL, class);
    mem_free(c.row);
    mem_free(c.class);
    mem_free(place);
    mem_free(class);
    return result;
}
