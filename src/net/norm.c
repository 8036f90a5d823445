/* norm.c - batch norm and dropout as tables, a few hundred numbers a layer, made on the host in
 * double.
 *
 * Forward, from the moments of the stored output (mean, var over items and voxels), per item and
 * channel:
 *
 *     k = gamma / sqrt(var + eps),   scale = m k,   shift = m (beta - mean k),   m = 0 or 1/(1-p)
 *
 * Backward, with M = [scale*y + shift > 0], xhat = (y - mean) rstd and N elements a channel:
 *
 *     s1 = sum m M G  = dL/dbeta          s2 = sum m M G xhat  = dL/dgamma
 *     dy = k (m M G - s1/N - xhat s2/N)   so  p = k m,  q = -k rstd s2/N,  r = -k s1/N - q mean
 *
 * In NET_EVAL the statistics are constants, so q = r = 0. One voxel or no variance [M11]: eps keeps
 * rstd finite, and the unbiased variance of one element is taken as 0. Moments that are not finite
 * (a diverged step, which the loop discards) do not enter the running statistics.
 */
#include <math.h>

#include "base/rng.h"
#include "net/net_int.h"

static const double EPS = 1e-5, MOMENTUM = 0.1; /* PyTorch's defaults */

static void get(struct net *n, float *to, int param)
{
    const struct param *p = &n->params->list[param];
    n->dev->ops->download(n->dev, to, n->params->value + p->offset, (size_t)p->count * sizeof *to);
}

static void put(struct net *n, int param, const float *from)
{
    const struct param *p = &n->params->list[param];
    n->dev->ops->upload(n->dev, n->params->value + p->offset, from,
                        (size_t)p->count * sizeof *from);
}

/* ---- forward --------------------------------------------------------------------------------- */

/* One block of random numbers for every (layer, item, channel). */
static void draw_dropout(struct net *n, int layer, const struct net_pass *pass)
{
    struct layer_run *r = &n->run[layer];
    const struct layer *l = &n->graph.layers[layer];
    float p = n->graph.values[l->view].dropout;
    for (int i = 0; i < n->items; i++)
        for (int c = 0; c < l->c_out; c++) {
            uint64_t index = ((uint64_t)layer << 48) | ((uint64_t)i << 24) | (uint64_t)c;
            struct rng_block b = rng_block(pass->seed, pass->step, pass->stream, index);
            float u = ((float)(b.v[0] >> 9) + 0.5f) * (1.0f / 8388608.0f);
            int kept = pass->mode == NET_EVAL || u >= p;
            float factor = pass->mode == NET_EVAL ? 1.0f : 1.0f / (1.0f - p);
            r->drop[(int64_t)i * l->c_out + c] = kept ? factor : 0.0f;
        }
}

static void move_running(struct net *n, const struct layer *l, double elements)
{
    float *mean = n->stage, *var = n->stage + l->c_out;
    get(n, mean, l->mean);
    get(n, var, l->var);
    for (int c = 0; c < l->c_out; c++) {
        double m2 = n->stat_m2[c], unbiased = m2 / (elements > 1 ? elements - 1 : 1);
        double new_mean = (1 - MOMENTUM) * mean[c] + MOMENTUM * n->stat_mean[c];
        double new_var = (1 - MOMENTUM) * var[c] + MOMENTUM * (unbiased > 0 ? unbiased : 0);
        if (!isfinite((float)new_mean) || !isfinite((float)new_var) || !isfinite(m2))
            continue;
        mean[c] = (float)new_mean;
        var[c] = (float)new_var;
    }
    put(n, l->mean, mean);
    put(n, l->var, var);
}

/* mean and rstd of this pass. */
static void choose_moments(struct net *n, int layer, enum net_mode mode)
{
    const struct layer *l = &n->graph.layers[layer];
    struct layer_run *r = &n->run[layer];
    struct tensor y = net_layer_tensor(n, layer);
    double elements = (double)tensor_voxels(&y);
    if (mode == NET_TRAIN) {
        move_running(n, l, elements);
    } else {
        get(n, n->stage, l->mean);
        get(n, n->stage + l->c_out, l->var);
    }
    for (int c = 0; c < l->c_out; c++) {
        double var = mode == NET_TRAIN ? n->stat_m2[c] / elements : (double)n->stage[l->c_out + c];
        r->mean[c] = mode == NET_TRAIN ? n->stat_mean[c] : (double)n->stage[c];
        r->rstd[c] = 1.0 / sqrt((var < 0 ? 0 : var) + EPS);
    }
}

static double dropped(const struct layer_run *r, int64_t at)
{
    return r->drop ? (double)r->drop[at] : 1.0;
}

static void upload_pair(struct net *n, int layer, const float *scale, const float *shift)
{
    struct layer_run *r = &n->run[layer];
    size_t bytes = (size_t)n->items * (size_t)n->graph.layers[layer].c_out * sizeof *scale;
    n->dev->ops->upload(n->dev, r->scale, scale, bytes);
    n->dev->ops->upload(n->dev, r->shift, shift, bytes);
}

void norm_tables(struct net *n, int layer, const struct net_pass *pass)
{
    const struct layer *l = &n->graph.layers[layer];
    struct layer_run *r = &n->run[layer];
    int c = l->c_out;
    int64_t nc = (int64_t)n->items * c;
    float *scale = n->stage, *shift = scale + nc, *gamma = shift + nc, *beta = gamma + c;
    if (!r->scale)
        return;
    if (r->drop)
        draw_dropout(n, layer, pass);
    if (l->norm) {
        choose_moments(n, layer, pass->mode);
        get(n, gamma, l->gamma);
        get(n, beta, l->beta);
    }
    for (int64_t at = 0; at < nc; at++) {
        int j = (int)(at % c);
        double k = l->norm ? (double)gamma[j] * r->rstd[j] : 1.0;
        double s = l->norm ? (double)beta[j] - r->mean[j] * k : 0.0;
        scale[at] = (float)(k * dropped(r, at));
        shift[at] = (float)(s * dropped(r, at));
    }
    upload_pair(n, layer, scale, shift);
}

/* ---- backward -------------------------------------------------------------------------------- */

static void add_grad(struct net *n, int param, const double *sum, int c)
{
    float *at = net_started_grad(n, param);
    size_t bytes = (size_t)c * sizeof *at;
    n->dev->ops->download(n->dev, n->stage, at, bytes);
    for (int j = 0; j < c; j++)
        n->stage[j] = (float)((double)n->stage[j] + sum[j]);
    n->dev->ops->upload(n->dev, at, n->stage, bytes);
}

const float *norm_center(struct net *n, int layer)
{
    const struct layer_run *r = &n->run[layer];
    int c = n->graph.layers[layer].c_out;
    for (int j = 0; j < c; j++)
        n->stage[j] = (float)r->mean[j];
    n->dev->ops->upload(n->dev, r->center, n->stage, (size_t)c * sizeof(float));
    return r->center;
}

/* s1 and s2 per channel, left in stat_mean and stat_m2, which are free during backward. */
static void norm_grad(struct net *n, int layer, const struct tensor *g)
{
    const struct layer *l = &n->graph.layers[layer];
    struct layer_run *r = &n->run[layer];
    struct conv_source y = net_source(n, layer);
    int c = l->c_out;
    int64_t nc = (int64_t)n->items * c;
    if (n->sums_of != layer)
        n->dev->ops->norm_sums(n->dev, g, &y, norm_center(n, layer), n->sums);
    for (int j = 0; j < c; j++) {
        double s1 = 0, s2 = 0, off = (double)(float)r->mean[j] - r->mean[j];
        for (int64_t at = j; at < nc; at += c) {
            s1 += dropped(r, at) * n->sums[at];
            s2 += dropped(r, at) * (n->sums[nc + at] + off * n->sums[at]);
        }
        n->stat_mean[j] = s1;
        n->stat_m2[j] = s2 * r->rstd[j];
    }
    add_grad(n, l->beta, n->stat_mean, c);
    add_grad(n, l->gamma, n->stat_m2, c);
}

static void upload_grad_tables(struct net *n, int layer)
{
    struct layer_run *r = &n->run[layer];
    int64_t nc = (int64_t)n->items * n->graph.layers[layer].c_out;
    float *to[3] = {r->p, r->q, r->r};
    for (int k = 0; k < 3; k++)
        n->dev->ops->upload(n->dev, to[k], n->stage + k * nc, (size_t)nc * sizeof(float));
}

void norm_backward(struct net *n, int layer, const struct tensor *g)
{
    const struct layer *l = &n->graph.layers[layer];
    struct layer_run *r = &n->run[layer];
    int c = l->c_out;
    int64_t nc = (int64_t)n->items * c;
    double elements = (double)tensor_voxels(g);
    float *p = n->stage, *q = p + nc, *shift = q + nc, *gamma = shift + nc;
    if (l->norm) {
        norm_grad(n, layer, g);
        get(n, gamma, l->gamma);
    }
    for (int64_t at = 0; at < nc; at++) {
        int j = (int)(at % c);
        double k = l->norm ? (double)gamma[j] * r->rstd[j] : 1.0, slope = 0, constant = 0;
        if (l->norm && n->mode == NET_TRAIN) {
            slope = -k * r->rstd[j] * n->stat_m2[j] / elements;
            constant = -k * n->stat_mean[j] / elements - slope * r->mean[j];
        }
        p[at] = (float)(k * dropped(r, at));
        q[at] = (float)slope;
        shift[at] = (float)constant;
    }
    upload_grad_tables(n, layer);
}
