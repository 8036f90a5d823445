#!/usr/bin/python3
"""Golden files of the methods whose network has several outputs; see tools/golden_aua.py.

    tools/golden_branches.py NAME > tests/golden/NAME.h     NAME: mc_net, urpc, cct

Trainings in PyTorch, in double, of networks and losses written here from the published formulas.
"""
import sys

import numpy as np
import torch
import torch.nn.functional as F

from golden_aua import (BASE, SCENE, THREE, Net, Optimizer, Run, cross_entropy, dice, philox, ramp, uniform,
                        write_run, write_table)

# Seeds and rates for the same reasons as in golden_aua.py.
RUNS = {
    "mc_net": {
        "mc_net_two": (SCENE, dict(method="mc-net", seed=61, patch=(32, 32, 32), lr=0.0002)),
        "mc_net_three": (THREE, dict(
            method="mc-net", seed=62, patch=(32, 32, 32), lr=0.0001, ramp="RAMP_CONTINUOUS", consistency=5.0,
            schedule="SCHEDULE_POLY", batch=3, dice_share=0.7)),
        "mc_net_plus_two": (SCENE, dict(method="mc-net-plus", seed=63, patch=(32, 32, 32), lr=0.0002)),
        "mc_net_plus_three": (THREE, dict(
            method="mc-net-plus", seed=64, patch=(32, 32, 32), lr=0.0001, ramp="RAMP_CONTINUOUS",
            consistency=5.0, schedule="SCHEDULE_POLY", batch=3)),
    },
    "cct": {
        "cct_two": (SCENE, dict(method="cct", seed=81, patch=(32, 32, 32), lr=0.0002)),
        "cct_three": (THREE, dict(
            method="cct", seed=82, patch=(32, 32, 32), lr=0.0001, ramp="RAMP_CONTINUOUS", consistency=5.0,
            schedule="SCHEDULE_POLY", batch=3, dice_share=0.7)),
    },
    "urpc": {
        "urpc_two": (SCENE, dict(method="urpc", seed=71, patch=(32, 32, 32), lr=0.0002)),
        "urpc_three": (THREE, dict(
            method="urpc", seed=72, patch=(32, 32, 32), lr=0.0001, ramp="RAMP_CONTINUOUS", consistency=3.0,
            schedule="SCHEDULE_POLY", batch=3, dice_share=0.3)),
    },
}


class Branches(Net):
    """A V-Net with further decoders; called, it gives the logits of all."""
    how = None  # the decoder at hand goes up by: None, a transposed convolution

    def up(self, x, c, name):
        if self.how is None:
            return super().up(x, c, name)
        self.layer += 1
        return self.unit(F.interpolate(x, scale_factor=2, **self.how), 3, c, name, 1)

    def branch(self, encoded, k, how=None):
        self.how, prefix = how, "decoder%d." % (k + 1) if k else ""
        return self.conv(self.decoder(encoded, prefix), 1, self.scene["classes"], prefix + "out_conv")


class McNet(Branches):
    def __call__(self, x):
        ways = [None, dict(mode="trilinear", align_corners=True), dict(mode="nearest")]
        encoded = self.encoder(x)
        decoders = 2 if self.s["method"] == "mc-net" else 3
        return [self.branch(encoded, k, ways[k]) for k in range(decoders)]


class Cct(Branches):
    """Three further decoders see the encoder through feature noise, dropout and dropped peaks."""

    def words(self, first, count):
        index = np.arange(count, dtype=np.uint64) + np.uint64(((self.layer - 1) << 48) + first)
        return philox(self.s["seed"], *self.mask_of, index).reshape(-1)

    def shake(self, x, how):
        self.layer += 1
        if not self.train:
            return x
        n, c, d, h, w = x.shape
        if how == 2:
            share = 0.7 + (np.float32(0.9) - np.float32(0.7)) * uniform(self.words(0, 1)[:1])[0]
            active = x.detach().mean(1, keepdim=True)
            limit = share * active.reshape(n, -1).max(1).values.reshape(n, 1, 1, 1, 1)
            self.nearest = min(self.nearest, ((active - limit).abs() / limit).min().item())
            return x * (active < limit)
        items = 1 if how == 0 else n
        u = uniform(self.words(0, items * c * d * h * w // 4)).reshape(items, d, h, w, c)
        by = 1 + 0.3 * (2 * u - 1) if how == 0 else np.where(u >= 0.3, 1 / 0.7, 0.0)
        return x * torch.from_numpy(by).permute(0, 4, 1, 2, 3)

    def __call__(self, x):
        encoded = self.encoder(x)
        shaken = [encoded] + [[self.shake(e, k) for e in encoded] for k in range(3)]
        return [self.branch(shaken[k], k) for k in range(4)]


class Pyramid(Branches):
    """Heads on the four blocks of the decoder, which have dropouts of their own."""

    def block(self, x, n, c, name):
        x = super().block(x, n, c, name)
        p = dict(block_six=0.5, block_seven=0.3, block_eight=0.2, block_nine=0.1).get(name)
        if p:
            x = Net.drop(self, x, p) if self.s["dropout"] == "NET_DROPOUT_BOTH" else x
            self.levels.append(x)
        return x

    def drop(self, x, p=0.5):
        """The encoder's; the one after block nine is not of this network."""
        return x if self.levels else super().drop(x, p)

    def __call__(self, x):
        self.levels, c, out = [], self.scene["classes"], []
        self.trunk(x)
        for k, level in enumerate(reversed(self.levels)):
            z = self.conv(level, 1, c, "out_conv%s" % (k + 1 if k else ""))
            if k:
                self.layer += 1
                z = F.interpolate(z, scale_factor=1 << k, mode="trilinear", align_corners=False)
            out.append(z)
        return out


def linear_dice(logits, label):
    p, terms = torch.softmax(logits, 1), []
    for c in range(1, p.shape[1]):
        y = (label == c).double()
        terms.append(1 - (2 * (p[:, c] * y).sum() + 1e-8) / (p[:, c].sum() + y.sum() + 1e-8))
    return sum(terms) / len(terms)


def sharpened(logits):
    p = torch.softmax(logits, 1) ** 10
    return p / p.sum(1, keepdim=True)


class BranchRun(Run):
    def train(self, net, label_loss, share, term, first=0):
        """label_loss and share of each output; term of all logits, labelled items first."""
        update = Optimizer(net)
        for t, total, image, label, _ in self.steps(1.0):
            z = net.run(image, True, 0, self.draw)
            ce = [cross_entropy(x[:self.L], label[:self.L]) for x in z]
            d, sup = zip(*(label_loss(x[:self.L], label[:self.L], c) for x, c in zip(z, ce)))
            value, w = term(z), ramp(self.s, t + first, total)
            loss = share * sum(sup) + w * value
            self.note(t, loss=loss, supervised=share * sum(sup), ce=sum(ce) / len(z), dice=sum(d) / len(z),
                      consistency=value, weight=w, gradient=update.step(loss, t, total))

    def ce_dice(self, z, label, ce):
        d, share = dice(z, label, None, 0), self.s["dice_share"]
        return d, (1 - share) * ce + share * d

    def mc_net(self):
        def label_loss(z, label, ce):
            d = linear_dice(z, label)
            return d, d

        def mutual(z):
            return sum(((torch.softmax(a, 1) - sharpened(b)) ** 2).mean() for a in z for b in z if a is not b)

        self.train(McNet(self.s, self.scene, "student"), label_loss, self.s["dice_share"], mutual, 1)

    def cct(self):
        def others(z):
            p = [torch.softmax(x[self.L:], 1) for x in z]
            return sum(((p[0] - q) ** 2).mean() for q in p[1:]) / 3

        Cct.nearest = 1.0
        net = Cct(self.s, self.scene, "student")
        self.train(net, self.ce_dice, 0.25, others)
        print("nearest voxel to a limit, as a share of it: %.0e" % net.nearest, file=sys.stderr)

    def urpc(self):
        def rectified(z):
            p = [torch.softmax(x[self.L:], 1) for x in z]
            mean, terms = sum(p) / len(p), []
            for x in z:
                log = F.log_softmax(x[self.L:], 1)
                kl = (mean * (torch.log(mean) - log)).sum(1, keepdim=True)
                sure = torch.exp(-kl)
                terms.append((sure * (mean - torch.exp(log)) ** 2).mean() / (sure.mean() + 1e-8) + kl.mean())
            return sum(terms) / len(terms)

        self.train(Pyramid(self.s, self.scene, "student"), self.ce_dice, 0.25, rectified)


def main():
    torch.set_num_threads(1)
    family, made = sys.argv[1], {}
    version = torch.__version__.split("+")[0]
    print("/* Made by tools/golden_branches.py with PyTorch %s: do not edit. */" % version)
    for name, (scene, change) in RUNS[family].items():
        s = dict(BASE, **change)
        run = BranchRun(scene, s)
        run.prototypes = None
        getattr(run, family)()
        write_run(name, run)
        made[name] = (scene, s, run)
    write_table(made, "golden_runs_" + family)


if __name__ == "__main__":
    main()
