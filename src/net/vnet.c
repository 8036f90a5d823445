/* vnet.c - the networks of the paper and of the methods it compares with, as definitions.
 *
 *     x1 --------------------------------------------------------- + --> nine --> head
 *      \ down                                                 up  /
 *       x2 ---------------------------------------------- + --> eight
 *        \ down                                      up  /
 *         x3 ----------------------------------- + --> seven
 *          \ down                           up  /
 *           x4 ------------------------ + --> six
 *            \ down                up  /
 *             x5 ------- (dropout) ---
 *
 * Plain blocks of 3x3x3 convolution, batch norm and ReLU; channels double on the way down; skips
 * are added after the up unit's ReLU. Names are those of the published state dict: a block is one
 * list conv.0 (convolution), conv.1 (norm), conv.2 (ReLU), conv.3 (convolution), ...
 *
 * Networks with several decoders or heads have the V-Net's own under the V-Net's names and before the others,
 * so their weights are a V-Net's and more: a net of vnet_define runs on them, and that is what is tested.
 */
#include <stdio.h>

#include "net/strided.h"

enum { FEATURES = 16 }; /* width of AUA's out_conv and projection head, whatever the filters are */

static int unit(struct builder *b, int x, enum conv_kind kind, int c, const char *block, int at)
{
    char conv[64], norm[64];
    snprintf(conv, sizeof conv, "%s.conv.%d", block, at);
    snprintf(norm, sizeof norm, "%s.conv.%d", block, at + 1);
    return net_norm_relu(b, net_conv(b, x, kind, c, conv), norm);
}

static int block(struct builder *b, int x, int stages, int c, const char *name)
{
    for (int i = 0; i < stages; i++)
        x = unit(b, x, CONV_3, c, name, 3 * i);
    return x;
}

static int down(struct builder *b, int x, int c, const char *name)
{
    return unit(b, x, CONV_DOWN, c, name, 0);
}

/* x1 to x5 of the drawing, the last with its dropout. */
struct encoded {
    int x[5];
};

static struct encoded encoder(struct builder *b, const struct net_definition *self)
{
    static const char *const names[] = {"block_one", "block_two", "block_three", "block_four", "block_five"};
    static const char *const downs[] = {"block_one_dw", "block_two_dw", "block_three_dw", "block_four_dw"};
    static const int stages[] = {1, 2, 3, 3, 3};
    struct encoded e;
    int f = self->filters, x = net_input(b, self->channels);
    for (int i = 0; i < 5; i++) {
        e.x[i] = block(b, x, stages[i], f << i, names[i]);
        if (i < 4)
            x = down(b, e.x[i], f << (i + 1), downs[i]);
    }
    if (self->dropout != NET_DROPOUT_NONE)
        e.x[4] = net_dropout(b, e.x[4], 0.5f);
    return e;
}

/* How a decoder goes up: by a transposed convolution, or by making larger and then a convolution, whose names
 * count the first as conv.0. */
enum up_by { UP_CONV, UP_ALIGNED, UP_NEAREST };

static int up_and_add(struct builder *b, int x, int skip, int c, enum up_by by, const char *name)
{
    if (by == UP_CONV)
        return net_add(b, unit(b, x, CONV_UP, c, name, 0), skip);
    x = net_resize(b, x, by == UP_NEAREST ? NET_NEAREST : NET_ALIGNED, 1);
    return net_add(b, unit(b, x, CONV_3, c, name, 1), skip);
}

/* A way through the decoder, and the outputs of its blocks six to nine with their dropouts. */
struct decoded {
    enum up_by by;
    const char *prefix; /* of its names */
    float drop[4];      /* after each block, if NET_DROPOUT_BOTH */
    int blocks;         /* of the four, the first so many */
    int x[4];
};

static void decoder(struct builder *b, const struct net_definition *self, const struct encoded *e,
                    struct decoded *d)
{
    static const char *const names[] = {"five", "six", "seven", "eight", "nine"};
    static const int stages[] = {3, 3, 2, 1};
    int x = e->x[4];
    for (int i = 0; i < d->blocks; i++) {
        char up[32], own[32];
        int c = self->filters << (3 - i);
        snprintf(up, sizeof up, "%sblock_%s_up", d->prefix, names[i]);
        snprintf(own, sizeof own, "%sblock_%s", d->prefix, names[i + 1]);
        x = block(b, up_and_add(b, x, e->x[3 - i], c, d->by, up), stages[i], c, own);
        if (self->dropout == NET_DROPOUT_BOTH && d->drop[i] > 0)
            x = net_dropout(b, x, d->drop[i]);
        d->x[i] = x;
    }
}

/* The V-Net's own way up, to block_nine and its dropout: what the heads read. */
static int way_up(struct builder *b, const struct net_definition *self, const struct encoded *e)
{
    struct decoded d = {.by = UP_CONV, .prefix = "", .drop = {0, 0, 0, 0.5f}, .blocks = 4};
    decoder(b, self, e, &d);
    return d.x[3];
}

static int trunk(struct builder *b, const struct net_definition *self)
{
    struct encoded e = encoder(b, self);
    return way_up(b, self, &e);
}

void vnet_define(struct builder *b, const struct net_definition *self)
{
    net_output(b, net_conv(b, trunk(b, self), CONV_1, self->classes, "out_conv"), "logits");
}

/* The heads of distances and of logits. */
static void two_heads(struct builder *b, const struct net_definition *self, int x)
{
    int foreground = self->classes - 1;
    net_output(b, net_conv(b, x, CONV_1, foreground, "out_conv"), "distance");
    net_output_open(b, net_conv(b, x, CONV_1, foreground, "out_conv2"), "logits");
}

void sdf_define(struct builder *b, const struct net_definition *self)
{
    two_heads(b, self, trunk(b, self));
}

void simcvd_define(struct builder *b, const struct net_definition *self)
{
    struct encoded e = encoder(b, self);
    net_output(b, net_conv(b, e.x[4], CONV_1, 8 * self->filters, "distill"), "places");
    two_heads(b, self, way_up(b, self, &e));
    net_declare(b, projector_define, self);
}

const char *const net_logits[NET_BRANCHES] = {"logits", "logits2", "logits3", "logits4"};

/* Decoder k and its head. */
static void branch(struct builder *b, const struct net_definition *self, const struct encoded *e,
                   enum up_by by, int k)
{
    char prefix[24] = "", head[40];
    struct decoded d = {.by = by, .prefix = prefix, .drop = {0, 0, 0, 0.5f}, .blocks = 4};
    if (k > 0)
        snprintf(prefix, sizeof prefix, "decoder%d.", k + 1);
    snprintf(head, sizeof head, "%sout_conv", prefix);
    decoder(b, self, e, &d);
    net_output(b, net_conv(b, d.x[3], CONV_1, self->classes, head), net_logits[k]);
}

static struct encoded two_decoders(struct builder *b, const struct net_definition *self)
{
    struct encoded e = encoder(b, self);
    branch(b, self, &e, UP_CONV, 0);
    branch(b, self, &e, UP_ALIGNED, 1);
    return e;
}

void mcnet_define(struct builder *b, const struct net_definition *self)
{
    two_decoders(b, self);
}

void mcnet_plus_define(struct builder *b, const struct net_definition *self)
{
    struct encoded e = two_decoders(b, self);
    branch(b, self, &e, UP_NEAREST, 2);
}

void cct_define(struct builder *b, const struct net_definition *self)
{
    static const enum net_shake_by how[] = {NET_NOISE, NET_DROP, NET_PEAKS};
    struct encoded e = encoder(b, self), shaken[3];
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < 5; i++)
            shaken[k].x[i] = net_shake(b, e.x[i], how[k]);
    branch(b, self, &e, UP_CONV, 0);
    for (int k = 0; k < 3; k++)
        branch(b, self, &shaken[k], UP_CONV, k + 1);
}

void urpc_define(struct builder *b, const struct net_definition *self)
{
    struct encoded e = encoder(b, self);
    /* dropouts as published */
    struct decoded d = {.by = UP_CONV, .prefix = "", .drop = {0.5f, 0.3f, 0.2f, 0.1f}, .blocks = 4};
    decoder(b, self, &e, &d);
    net_output(b, net_conv(b, d.x[3], CONV_1, self->classes, "out_conv"), net_logits[0]);
    for (int k = 1; k < 4; k++) {
        char head[32];
        snprintf(head, sizeof head, "out_conv%d", k + 1);
        int x = net_conv(b, d.x[3 - k], CONV_1, self->classes, head);
        net_output(b, net_resize(b, x, NET_CENTRED, k), net_logits[k]);
    }
}

/* The heads of Chaitanya's pre-training: on x5, and on block_seven. */
static void global_head(struct builder *b, const struct net_definition *self, int x)
{
    net_output(b, net_conv(b, x, CONV_1, 64 * self->filters, "global.hidden"), "hidden");
}

static void local_head(struct builder *b, const struct net_definition *self, int x)
{
    int f = self->filters;
    x = net_norm_relu(b, net_conv(b, x, CONV_1, 4 * f, "local.conv1"), "local.norm1");
    x = net_conv(b, x, CONV_1, 4 * f, "local.conv2");
    net_output(b, net_conv(b, x, CONV_3, 8 * f, "local.out"), "regions");
}

void chaitanya_define(struct builder *b, const struct net_definition *self)
{
    struct encoded e = encoder(b, self);
    struct decoded d = {.by = UP_CONV, .prefix = "", .drop = {0, 0, 0, 0.5f}, .blocks = 4};
    decoder(b, self, &e, &d);
    net_output(b, net_conv(b, d.x[3], CONV_1, self->classes, "out_conv"), "logits");
    global_head(b, self, e.x[4]);
    local_head(b, self, d.x[1]);
    net_declare(b, chaitanya_describe_define, self);
}

void chaitanya_global_define(struct builder *b, const struct net_definition *self)
{
    global_head(b, self, encoder(b, self).x[4]);
}

void chaitanya_describe_define(struct builder *b, const struct net_definition *self)
{
    int x = net_input(b, 64 * self->filters);
    net_output(b, net_conv(b, x, CONV_1, 8 * self->filters, "global.out"), "rows");
}

void chaitanya_local_define(struct builder *b, const struct net_definition *self)
{
    struct encoded e = encoder(b, self);
    struct decoded d = {.by = UP_CONV, .prefix = "", .blocks = 2};
    net_freeze(b);
    decoder(b, self, &e, &d);
    local_head(b, self, d.x[1]);
}

void aua_define(struct builder *b, const struct net_definition *self)
{
    int c = self->classes;
    int f = net_conv(b, trunk(b, self), CONV_1, FEATURES, "out_conv");
    net_output(b, f, "features");
    net_declare(b, projection_define, self);
    int h = net_relu(b, f);
    net_output(b, net_conv(b, h, CONV_1, c, "mean_l"), "mean");
    net_output(b, net_conv(b, h, CONV_1, c, "log_cov_diag_l"), "log_cov_diag");
    if (self->rank > 0)
        net_output(b, net_conv(b, h, CONV_1, c * self->rank, "cov_factor_l"), "cov_factor");
}

void aua_mask_define(struct builder *b, const struct net_definition *self)
{
    int f = net_conv(b, trunk(b, self), CONV_1, FEATURES, "out_conv");
    net_output(b, net_conv(b, net_relu(b, f), CONV_1, self->classes, "mean_l"), "mean");
}

/* The projection head under the names of the released code (HeadConvBlock): one list of convolutions, norms
 * and ReLUs, as in the blocks. The convolutions are head.conv.0, 2 and 4, or with norms 0, 3 and 6. */
void projection_define(struct builder *b, const struct net_definition *self)
{
    int x = net_input(b, FEATURES), at = 0;
    for (int i = 0; i < 3; i++) {
        char name[32];
        snprintf(name, sizeof name, "head.conv.%d", at++);
        x = net_conv(b, x, CONV_1, FEATURES, name);
        if (i == 2)
            break;
        snprintf(name, sizeof name, "head.conv.%d", at);
        x = net_relu(b, self->head_norm ? net_norm(b, x, name) : x);
        at += self->head_norm ? 2 : 1;
    }
    net_output(b, x, "projection");
}
