/* vnet.c - the networks of the paper, as definitions.
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
 */
#include <stdio.h>

#include "net/net.h"

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

static int up_and_add(struct builder *b, int x, int skip, int c, const char *name)
{
    return net_add(b, unit(b, x, CONV_UP, c, name, 0), skip);
}

/* Up to block_nine and its dropout: what the heads read. */
static int trunk(struct builder *b, const struct net_definition *self)
{
    int f = self->filters, x;
    int x1 = block(b, net_input(b, self->channels), 1, f, "block_one");
    x = down(b, x1, 2 * f, "block_one_dw");
    int x2 = block(b, x, 2, 2 * f, "block_two");
    x = down(b, x2, 4 * f, "block_two_dw");
    int x3 = block(b, x, 3, 4 * f, "block_three");
    x = down(b, x3, 8 * f, "block_three_dw");
    int x4 = block(b, x, 3, 8 * f, "block_four");
    x = down(b, x4, 16 * f, "block_four_dw");
    x = block(b, x, 3, 16 * f, "block_five");
    if (self->dropout != NET_DROPOUT_NONE)
        x = net_dropout(b, x, 0.5f);
    x = block(b, up_and_add(b, x, x4, 8 * f, "block_five_up"), 3, 8 * f, "block_six");
    x = block(b, up_and_add(b, x, x3, 4 * f, "block_six_up"), 3, 4 * f, "block_seven");
    x = block(b, up_and_add(b, x, x2, 2 * f, "block_seven_up"), 2, 2 * f, "block_eight");
    x = block(b, up_and_add(b, x, x1, f, "block_eight_up"), 1, f, "block_nine");
    return self->dropout == NET_DROPOUT_BOTH ? net_dropout(b, x, 0.5f) : x;
}

void vnet_define(struct builder *b, const struct net_definition *self)
{
    net_output(b, net_conv(b, trunk(b, self), CONV_1, self->classes, "out_conv"), "logits");
}

void sdf_define(struct builder *b, const struct net_definition *self)
{
    int x = trunk(b, self), foreground = self->classes - 1;
    net_output(b, net_conv(b, x, CONV_1, foreground, "out_conv"), "distance");
    net_output_open(b, net_conv(b, x, CONV_1, foreground, "out_conv2"), "logits");
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

void projection_define(struct builder *b, const struct net_definition *self)
{
    int norm = self->head_norm;
    int x = net_conv(b, net_input(b, FEATURES), CONV_1, FEATURES, "projection_head.conv1");
    x = net_relu(b, norm ? net_norm(b, x, "projection_head.norm1") : x);
    x = net_conv(b, x, CONV_1, FEATURES, "projection_head.conv2");
    x = net_relu(b, norm ? net_norm(b, x, "projection_head.norm2") : x);
    net_output(b, net_conv(b, x, CONV_1, FEATURES, "projection_head.conv3"), "projection");
}
