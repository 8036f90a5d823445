#!/usr/bin/python3
"""Golden file of the method that pre-trains without labels: its three phases in PyTorch, in double.

    tools/golden_pretrain.py > tests/golden/chaitanya.h

Trunk, losses of labels and the loop are those of golden_aua.py, see there; views of crops are made here from
their description in src/sample/sampler.h and read with SciPy.
"""
import math

import numpy as np
import torch
import torch.nn.functional as F
from scipy import ndimage

import golden_aua as base
from golden_aua import AUGMENT, PHASE_SEED, SCENE, THREE, Cursor, cross_entropy, dice

RUNS = {
    "chaitanya_two": (SCENE, dict(method="chaitanya", seed=101, patch=(32, 32, 32), lr=0.00004)),
    "chaitanya_three": (THREE, dict(
        method="chaitanya", seed=103, patch=(32, 16, 48), lr=0.00001, schedule="SCHEDULE_POLY", batch=8,
        labeled_batch=3, dice_share=0.7, dropout="NET_DROPOUT_BOTTLENECK", clip=5.0)),
}
PIECES, TAU = 4, 0.1
CROP, SCALE, BRIGHTNESS, SHIFT, WANDER, PURPOSES = 1, 3, 8, 14, 15, 16  # enum augment_purpose


# ---- views --------------------------------------------------------------------------------------------

class Views(base.Batches):
    """Slots (case, piece, view) of all cases; the first view has the effects effects[0], the other [1]."""

    def __init__(self, cases, patch, seed, width, pieces, effects):
        super().__init__(cases, 0, 0, width, patch, seed)
        self.width, self.pieces, self.effects = width, pieces, effects

    def rng(self, step, slot, purpose):
        return Cursor(self.seed, step, AUGMENT, slot * PURPOSES + purpose)

    def value(self, step, slot, purpose, low, high):
        r = self.rng(step, slot, purpose)
        r.word()  # whether at all: always
        u = np.float32(((r.word() >> 9) + 0.5) / 8388608)
        return float(np.float32(low) + (np.float32(high) - np.float32(low)) * u)

    def case(self, step, place):
        n = len(self.cases)
        groups = max(1, n // self.width)
        at = step % groups * self.width + place
        return self.cases[self.order(n, step // groups, 1, at // n)[at % n]][0]

    def corner(self, shape, step, slot, piece):
        """The first voxel of the crop, below 0 where it is larger than the case."""
        r, out = self.rng(step, slot, CROP), []
        for a in range(3):
            room = shape[a] - self.patch[a]
            places, of = max(0, room) + 1, self.pieces if a == 2 else 1
            low, high = places * (piece if of > 1 else 0) // of, places * ((piece if of > 1 else 0) + 1) // of
            out.append(low + r.below(max(1, high - low)) - (-(room // 2) if room < 0 else 0))
        return out

    def view(self, step, slot):
        view, piece = slot % 2, slot // 2 % self.pieces
        image = self.case(step, slot // 2 // self.pieces)
        at, scale = self.corner(image.shape, step, slot - view, piece), 1.0
        if "larger" in self.effects[view]:
            r, scale = self.rng(step, slot, WANDER), 0.52
            for a in range(3):
                most = int((1 - scale) / 2 * self.patch[a])
                at[a] += r.below(2 * most + 1) - most
        middle = [(n - 1) / 2 for n in self.patch]
        grid = np.meshgrid(*[at[a] + middle[a] + scale * (np.arange(n) - middle[a])
                             for a, n in enumerate(self.patch)], indexing="ij")
        seen = [ndimage.map_coordinates(image[..., c].astype(np.float64), grid, order=1, mode="grid-constant")
                for c in range(image.shape[3])]
        if "light" in self.effects[view]:
            factor = self.value(step, slot, BRIGHTNESS, 0.7, 1.3)
            shift = self.value(step, slot, SHIFT, -1.0, 1.0)
            seen = [x * factor + shift for x in seen]
        return torch.from_numpy(np.stack(seen))

    def get(self, step):
        return torch.stack([self.view(step, s) for s in range(2 * self.pieces * self.width)])


# ---- network ------------------------------------------------------------------------------------------

class Net(base.Net):
    """The V-Net, a projection of its deepest level, and one of the regions of block_seven."""

    stage = "all"

    def two_blocks(self, encoded):
        f, x = self.s["filters"], encoded[4]
        for i, (up, own) in enumerate([("five", "six"), ("six", "seven")]):
            x = self.up(x, f << 3 - i, "block_%s_up" % up) + encoded[3 - i]
            x = self.block(x, 3, f << 3 - i, "block_" + own)
        return x

    def describe(self, deepest):
        f = self.s["filters"]
        x = F.relu(self.conv(deepest.mean((2, 3, 4), keepdim=True), 1, 64 * f, "global.hidden"))
        if self.stage == "all":
            self.regions(torch.zeros([1, 4 * f, 4, 4, 4], dtype=torch.float64))
        return self.conv(x, 1, 8 * f, "global.out").flatten(1)

    def regions(self, x):
        """Rows of all places whose 3x3x3 lies inside: (n, 8 f, d - 2, h - 2, w - 2)"""
        f = self.s["filters"]
        x = F.relu(self.norm(self.conv(x, 1, 4 * f, "local.conv1"), "local.norm1", self.train))
        x = self.conv(self.conv(x, 1, 4 * f, "local.conv2"), 3, 8 * f, "local.out")
        return x[:, :, 1:-1, 1:-1, 1:-1]

    def __call__(self, x):
        if self.stage == "train":
            return {"mean": self.conv(self.trunk(x), 1, self.scene["classes"], "out_conv")}
        encoded = self.encoder(x)
        if self.stage == "all":
            self.conv(self.decoder(encoded), 1, self.scene["classes"], "out_conv")
        if self.stage == "local":
            return {"regions": self.regions(self.two_blocks([y.detach() for y in encoded]))}
        return {"rows": self.describe(encoded[4])}


def alike(rows, pairs, unlike):
    """Sum over pairs (i, j); unlike[i]: the rows that i is told from."""
    score = F.normalize(rows, dim=1) @ F.normalize(rows, dim=1).t() / TAU
    terms = [torch.logsumexp(torch.cat([score[i, j:j + 1], score[i, unlike[i]]]), 0) - score[i, j]
             for i, j in pairs]
    return sum(terms) / len(rows)


def global_loss(rows):
    n = len(rows)
    at = [(i // 2 // PIECES, i // 2 % PIECES, i % 2) for i in range(n)]
    unlike = [[j for j in range(n) if at[j][1] != at[i][1]] for i in range(n)]
    pairs = []
    for group in range(0, n // 2 // PIECES, 2):
        for piece in range(PIECES):
            four = [at.index((group + c, piece, v)) for c, v in ((0, 0), (0, 1), (1, 0), (1, 1))]
            for a, b in ((0, 1), (0, 2), (2, 3), (1, 3)):
                pairs += [(four[a], four[b]), (four[b], four[a])]
    return alike(rows, pairs, unlike)


def places(extent):
    grid = [(1, e // 2, e - 2) for e in extent]
    quarter = [(e // 4, e - 1 - e // 4) for e in extent]
    found = []
    for axes in (grid, quarter):
        for z in axes[0]:
            for y in axes[1]:
                for x in axes[2]:
                    if (z, y, x) not in found:
                        found.append((z, y, x))
    return found


def local_loss(regions):
    at = places([e + 2 for e in regions.shape[2:]])
    far = [[(sum((a - b) ** 2 for a, b in zip(p, q)), k) for k, q in enumerate(at)] for p in at]
    near = [[k for _, k in sorted(far[r])[1:6]] for r in range(len(at))]
    z, y, x = (torch.tensor(p) - 1 for p in zip(*at))
    rows = regions[:, :, z, y, x].transpose(1, 2).flatten(0, 1)
    items, n, pairs, unlike = len(regions), len(at), [], []
    for i in range(items):
        for r in range(n):
            pairs.append((i * n + r, (i ^ 1) * n + r))
            unlike.append([j * n + q for j in (i, i ^ 1) for q in near[r]])
    return alike(rows, pairs, unlike)


# ---- training -----------------------------------------------------------------------------------------

class Run(base.Run):
    def pretrain(self, stage, views, loss_of):
        s, net = self.s, self.net
        dropout, s["dropout"], net.stage = s["dropout"], "NET_DROPOUT_NONE", stage
        adam = torch.optim.Adam(net.p.values(), lr=0.1 * s["lr"])
        for t in range(s["steps"]):
            loss = loss_of(net.run(views.get(t), True, 0, self.draw))
            adam.zero_grad(set_to_none=True)
            loss.backward()
            norm = math.sqrt(sum((p.grad ** 2).sum().item() for p in net.p.values() if p.grad is not None))
            if s["clip"] > 0:
                torch.nn.utils.clip_grad_norm_(net.p.values(), s["clip"])
            adam.step()
            self.note(t, loss=loss, gradient=norm)
            self.draw += 1
        s["dropout"] = dropout
        self.phase += 1

    def views(self, patch, width, pieces, effects):
        seed = (self.s["seed"] + self.phase * PHASE_SEED) % 2 ** 64
        return Views(self.cases, patch, seed, width, pieces, effects)

    def run(self):
        s = self.s
        self.prototypes, self.net = None, Net(s, self.scene, "model")
        patch = s["patch"]
        thin = patch[:2] + (max(16, patch[2] // 2 // 16 * 16),)
        pieces = self.views(thin, 2 * max(1, s["batch"] // 4), PIECES, ("", "larger light"))
        self.pretrain("global", pieces, lambda out: global_loss(out["rows"]))
        self.pretrain("local", self.views(patch, max(1, s["batch"] // 2), 1, ("light", "light")),
                      lambda out: local_loss(out["regions"]))
        self.net.stage = "train"
        update = base.Optimizer(self.net)
        for t, total, image, label, _ in self.steps(1.0, labeled_only=True):
            z = self.net.run(image, True, 0, self.draw)["mean"]
            ce, d = cross_entropy(z, label), dice(z, label)
            loss = (1 - s["dice_share"]) * ce + s["dice_share"] * d
            self.note(t, loss=loss, ce=ce, dice=d, gradient=update.step(loss, t, total))


def main():
    torch.set_num_threads(1)
    made = {}
    print("/* Made by tools/golden_pretrain.py with PyTorch %s: do not edit. */" % torch.__version__.split("+")[0])
    for name, (scene, change) in RUNS.items():
        s = dict(base.BASE, **change)
        run = Run(scene, s)
        run.run()
        base.write_run(name, run)
        made[name] = (scene, s, run)
    base.write_table(made, "golden_runs_chaitanya")


if __name__ == "__main__":
    main()
