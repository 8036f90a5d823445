#!/usr/bin/env python3
"""Makes tests/golden/net.h: the V-Net, MC-Net+ and AUA's network as PyTorch computes them, in double precision.

Weights and dropout masks are falx's own random numbers (Philox, src/base/rng.h), made again here, and
images and output gradients are formulas of the index, so that only results are stored: a few values of
every tensor and its norm.

Gradients through 30 layers of batch norm and ReLU change by half when anything is rounded to bf16,
because units near zero switch on or off. So there are cases whose betas are 3: few units are near zero
there, and the gradients of a bf16 device can be told right from wrong.

Usage: python3 tools/golden_net.py > tests/golden/net.h
"""
import textwrap

import numpy as np
import torch
import torch.nn.functional as F

RNG_INIT, RNG_DROPOUT = 9, 48
SEED, SALT, STEP = 1337, 5, 77
SALT_ZERO = 7  # of the network with betas of 0: no unit lies within float rounding of zero
KEEP = 6  # values kept of a parameter's gradient


def philox(seed, step, stream, index):
    """Blocks of four 32-bit numbers, one row for every index (uint64 array)."""
    index = np.asarray(index, dtype=np.uint64)
    low, one = np.uint64(0xFFFFFFFF), np.uint64(32)
    k0, k1 = np.uint64(seed & 0xFFFFFFFF), np.uint64(seed >> 32)
    c = [index & low, index >> one, np.full_like(index, step & 0xFFFFFFFF),
         np.full_like(index, stream ^ ((step >> 32) << 8))]
    for _ in range(10):
        p0, p1 = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [(p1 >> one) ^ c[1] ^ k0, p1 & low, (p0 >> one) ^ c[3] ^ k1, p0 & low]
        k0, k1 = (k0 + np.uint64(0x9E3779B9)) & low, (k1 + np.uint64(0xBB67AE85)) & low
    return np.stack(c, axis=1)


def uniform(bits):
    return ((bits >> np.uint64(9)).astype(np.float32) + np.float32(0.5)) * np.float32(1 / 8388608)


def initial(k, shape, fan, salt):
    n = int(np.prod(shape))
    blocks = np.arange((n + 3) // 4, dtype=np.uint64) + (np.uint64(k) << np.uint64(40))
    u = uniform(philox(SEED, salt, RNG_INIT, blocks)).reshape(-1)[:n]
    w = (np.float32(2) * u - np.float32(1)) * np.float32(1 / np.sqrt(fan))
    return torch.from_numpy(w.astype(np.float64).reshape(shape))


def image_formula(n):
    i = np.arange(n, dtype=np.float64)
    return np.sin(1.3 * i + 0.0007 * i * i).astype(np.float32).astype(np.float64)


def grad_formula(n, phase):
    i = np.arange(n, dtype=np.float64)
    g = (np.sin(0.0013 * i + phase) + 0.5 * np.cos(2.0 * i)) * 0.001
    return g.astype(np.float32).astype(np.float64)


def first(flat, shape):
    """A flat channels-last array as PyTorch's (n, c, d, h, w)."""
    return torch.from_numpy(flat.reshape(shape)).permute(0, 4, 1, 2, 3).contiguous()


def last(t):
    return t.detach().permute(0, 2, 3, 4, 1).contiguous().reshape(-1).numpy()


class Net:
    """Runs the published network from a dict of parameters, made on first use, in falx's order."""

    def __init__(self, dropout, beta):
        self.p, self.buffers, self.before_norm = {}, {}, set()
        self.dropout, self.beta, self.train, self.layer = dropout, beta, True, 0

    def param(self, name, shape, fan):
        if name not in self.p:
            constant = torch.full(shape, 1.0 if "weight" in name else self.beta, dtype=torch.float64)
            w = initial(len(self.p), shape, fan, SALT if self.beta else SALT_ZERO) if fan else constant
            self.p[name] = w.requires_grad_(True)
        return self.p[name]

    def conv(self, x, k, c, name, up=False):
        i = x.shape[1]
        shape = (i, c, k, k, k) if up else (c, i, k, k, k)
        fan = shape[1] * k ** 3
        w, b = self.param(name + ".weight", shape, fan), self.param(name + ".bias", (c,), fan)
        self.layer += 1
        if up:
            return F.conv_transpose3d(x, w, b, stride=2)
        return F.conv3d(x, w, b, stride=2 if k == 2 else 1, padding=1 if k == 3 else 0)

    def unit(self, x, k, c, block, at, up=False):
        conv, norm = "%s.conv.%d" % (block, at), "%s.conv.%d" % (block, at + 1)
        self.before_norm.add(conv + ".bias")
        x = self.conv(x, k, c, conv, up)
        g, b = self.param(norm + ".weight", (c,), 0), self.param(norm + ".bias", (c,), 0)
        if norm not in self.buffers:
            zero = torch.zeros(c, dtype=torch.float64)
            self.buffers[norm] = (zero, zero + 1)
        mean, var = self.buffers[norm]
        return F.relu(F.batch_norm(x, mean, var, g, b, self.train, 0.1, 1e-5))

    def resize(self, x, **how):
        self.layer += 1
        return F.interpolate(x, scale_factor=2, **how)

    def up(self, x, skip, c, name, how=None):
        """how: of F.interpolate, with a convolution after it; None: a transposed convolution."""
        if how is None:
            return self.unit(x, 2, c, name, 0, True) + skip
        return self.unit(self.resize(x, **how), 3, c, name, 1) + skip

    def block(self, x, stages, c, name):
        for i in range(stages):
            x = self.unit(x, 3, c, name, 3 * i)
        return x

    def drop(self, x):
        if not self.train:
            return x
        n, c = x.shape[:2]
        index = [(self.layer - 1 << 48) | (i << 24) | j for i in range(n) for j in range(c)]
        u = uniform(philox(SEED, STEP, RNG_DROPOUT, np.array(index, dtype=np.uint64))[:, 0])
        m = torch.from_numpy(np.where(u >= 0.5, 2.0, 0.0).reshape(n, c, 1, 1, 1))
        return x * m

    def encoder(self, x, f):
        self.layer = 0
        x1 = self.block(x, 1, f, "block_one")
        x2 = self.block(self.unit(x1, 2, 2 * f, "block_one_dw", 0), 2, 2 * f, "block_two")
        x3 = self.block(self.unit(x2, 2, 4 * f, "block_two_dw", 0), 3, 4 * f, "block_three")
        x4 = self.block(self.unit(x3, 2, 8 * f, "block_three_dw", 0), 3, 8 * f, "block_four")
        x = self.block(self.unit(x4, 2, 16 * f, "block_four_dw", 0), 3, 16 * f, "block_five")
        return x1, x2, x3, x4, self.drop(x) if self.dropout else x

    def decoder(self, encoded, f, how=None, prefix=""):
        x1, x2, x3, x4, x = encoded
        at = prefix + "block_"
        x = self.block(self.up(x, x4, 8 * f, at + "five_up", how), 3, 8 * f, at + "six")
        x = self.block(self.up(x, x3, 4 * f, at + "six_up", how), 3, 4 * f, at + "seven")
        x = self.block(self.up(x, x2, 2 * f, at + "seven_up", how), 2, 2 * f, at + "eight")
        x = self.block(self.up(x, x1, f, at + "eight_up", how), 1, f, at + "nine")
        return self.drop(x) if self.dropout else x

    def trunk(self, x, f):
        return self.decoder(self.encoder(x, f), f)


def vnet(net, x, f, classes):
    return {"logits": net.conv(net.trunk(x, f), 1, classes, "out_conv")}


def mcnet_plus(net, x, f, classes):
    encoded, out = net.encoder(x, f), {}
    ways = [None, dict(mode="trilinear", align_corners=True), dict(mode="nearest")]
    for k, how in enumerate(ways):
        prefix = "decoder%d." % (k + 1) if k else ""
        trunk = net.decoder(encoded, f, how, prefix)
        out["logits%s" % (k + 1 if k else "")] = net.conv(trunk, 1, classes, prefix + "out_conv")
    return out


def aua(net, x, f, classes, rank, points):
    feat = net.conv(net.trunk(x, f), 1, 16, "out_conv")
    g = feat.permute(0, 2, 3, 4, 1).reshape(-1, 16)[points].t().reshape(1, 16, 1, 1, -1)
    g = F.relu(net.conv(g, 1, 16, "head.conv.0"))
    g = F.relu(net.conv(g, 1, 16, "head.conv.2"))
    g = net.conv(g, 1, 16, "head.conv.4")
    h = F.relu(feat)
    return {"features": feat, "mean": net.conv(h, 1, classes, "mean_l"),
            "log_cov_diag": net.conv(h, 1, classes, "log_cov_diag_l"),
            "cov_factor": net.conv(h, 1, classes * rank, "cov_factor_l"), "projection": g}


def put(name, flat, keep):
    stride = max(1, len(flat) // keep)
    stride += stride % 2 == 0 and stride > 1  # odd: meets every channel
    kept = flat[::stride][:keep]
    text = textwrap.fill(", ".join("%.7g" % v for v in kept), 88, subsequent_indent="      ")
    print('    {"%s", %d, %d, %d, %.9g,\n     {%s}},' % (name, len(flat), stride, len(kept),
                                                      np.sqrt(np.sum(flat ** 2)), text))


def case(tag, shape, run, dropout, beta):
    net, x = Net(dropout, beta), first(image_formula(int(np.prod(shape))), shape)
    x.requires_grad_(True)
    out = run(net, x)
    loss = sum((last_grad(t, k) * t).sum() for k, t in enumerate(out.values()))
    loss.backward()
    print("static const struct golden_tensor golden_%s[] = {" % tag)
    for name, t in out.items():
        put("train " + name, last(t), 64)
    put("input grad", last(x.grad), 64)
    for name, p in net.p.items():
        if name not in net.before_norm:
            put("grad " + name, p.grad.reshape(-1).numpy(), KEEP)
    for name, (mean, var) in net.buffers.items():
        put("buffer " + name + ".running_mean", mean.numpy(), KEEP)
        put("buffer " + name + ".running_var", var.numpy(), KEEP)
    net.train = False
    with torch.no_grad():
        for name, t in run(net, x).items():
            put("eval " + name, last(t), 64)
    print("};")


def last_grad(t, phase):
    n, c, d, h, w = t.shape
    return first(grad_formula(t.numel(), phase), (n, d, h, w, c))


def main():
    torch.set_num_threads(1)
    version = torch.__version__.split("+")[0]
    print("/* Made by tools/golden_net.py with PyTorch %s: do not edit. */" % version)
    print("#include <stdint.h>\n\nstruct golden_tensor {\n    const char *name;\n    int64_t count, stride;\n    int kept;")
    print("    double norm;\n    double at[64];\n};")
    case("vnet", (2, 32, 32, 32, 2), lambda n, x: vnet(n, x, 4, 3), False, 0.0)
    case("vnet_steady", (2, 32, 32, 32, 2), lambda n, x: vnet(n, x, 4, 3), False, 3.0)
    points = np.arange(0, 2 * 32 * 32 * 32, 97)[:150]
    case("mcnet_steady", (2, 32, 32, 32, 1), lambda n, x: mcnet_plus(n, x, 4, 3), True, 3.0)
    case("aua_steady", (2, 32, 32, 32, 1), lambda n, x: aua(n, x, 4, 2, 3, points), True, 3.0)


main()
