#!/usr/bin/python3
"""Golden file of the methods: whole trainings in PyTorch, in double, from the same random numbers.

    tools/golden_aua.py > tests/golden/aua.h

Every run below is a setting, a formula for its cases, and what comes out: each number noted in each step
of each phase, and the prototypes at the end. Networks, losses and updates are written here from the
published formulas and differentiated by autograd; only the random numbers (Philox by purpose, see
src/base/rng.h) and the order in which batches are drawn follow the C code, so that both sides see the
same. tests/test_methods.c trains with the same settings in float32 and compares term by term.

Arrays of cases and random numbers are channels-last as in falx, tensors of the networks channels-first.
"""
import math
import sys
import textwrap

import numpy as np
import torch
import torch.nn.functional as F

SHUFFLE, AUGMENT, TEST, INIT, POINTS, PASTE, BLEND = 2, 3, 8, 9, 10, 11, 12  # enum rng_stream
INPUT_NOISE, DROPOUT, SAMPLE = 32, 48, 64
PHASE_SEED = 0x9E3779B97F4A7C15
FEATURES, MAX_PAIRS, MAX_RANK = 16, 8, 16

BASE = dict(method="aua", seed=1337, steps=10, patch=(32, 32, 16), batch=4, labeled_batch=2, filters=2,
            dropout="NET_DROPOUT_BOTH", augment="AUGMENT_CROP", dice_share=0.5, optimizer="OPTIM_SGD",
            schedule="SCHEDULE_STEP", lr=0.0003, momentum=0.9, weight_decay=0.1, clip=0.0, ema_decay=0.99,
            consistency=150.0, teacher_noise=0.1, ramp="RAMP_STEPS", sup_dice=1, ssn_rank=8, mc_samples=6,
            mc_reduce="REDUCE_MEAN", ged_metric="GED_CLASS_MEAN", ged_reduce="REDUCE_MEAN", head_norm=0,
            nb_rule="NB_CENTRED", bcl_layout="BCL_CORRECT",
            bcl_reduce="BCL_MEAN", bcl_cap=150, lambda_c=0.09, bcl_tau=0.07, proto_ckpt="PROTO_LAST",
            proto_update=1, lambda_r=0.1, pcl_tau=100.0, pcl_ignore_bg=1, pcl_cov="PCL_DIAGONAL",
            pcl_form="PCL_RELEASED",
            pseudo_weight=1.0, pseudo_threshold=0.0, stage2_init="STAGE2_FRESH", stage2_cov=0, stage2_paste=0,
            stage2_share=1.0, stages=2, paste_warmup=0.25,
            paste_size=2.0 / 3.0, paste_weight=0.5)
SCENE = dict(classes=2, channels=1, has_mask=1, labeled=5, unlabeled=6)
THREE = dict(SCENE, classes=3, channels=2)

# Seeds are chosen so that the stage-1 network labels some voxels with each of two classes. The learning
# rate is low because this network is chaotic: batch norm over the few voxels of the deepest level
# multiplies a difference by up to 100 a step at 0.01, and float32 would be far from double after ten
# steps however exact each of them is. Weight decay is high so that it shows, and so is consistency
# where the ramp has stairs: so few steps stay on the first, e^-5.
RUNS = {
    "two_classes": (SCENE, dict(seed=11, patch=(32, 32, 32), lr=0.0005)),
    "three_classes": (dict(SCENE, classes=3, channels=2, has_mask=0, labeled=3, unlabeled=3), dict(
        seed=14, patch=(32, 32, 32), lr=0.0005, ssn_rank=5, mc_samples=4, schedule="SCHEDULE_POLY",
        bcl_cap=80, proto_ckpt="PROTO_MIDDLE", proto_update=0, pcl_ignore_bg=0, ramp="RAMP_CONTINUOUS",
        consistency=5.0)),
    "paper_text": (SCENE, dict(
        seed=55, steps=5, lr=0.0000001, ged_metric="GED_JOINT", nb_rule="NB_BG_RING", head_norm=1,
        mc_reduce="REDUCE_SUM", ged_reduce="REDUCE_SUM", pcl_form="PCL_PAPER",
        pcl_cov="PCL_FULL", bcl_reduce="BCL_SUM", lambda_c=1.0, ramp="RAMP_CONTINUOUS",
        consistency=500.0, sup_dice=0, pcl_ignore_bg=0)),
    "paper_head": (dict(SCENE, classes=3), dict(  # fewer points than places: head_norm meets repeats
        seed=6, steps=4, stages=1, head_norm=1, bcl_cap=1500, ramp="RAMP_CONTINUOUS", consistency=1.0)),
    "released": (SCENE, dict(
        seed=48, steps=5, lr=0.0001, nb_rule="NB_OFFICIAL", bcl_layout="BCL_OFFICIAL", bcl_cap=150,
        stage2_init="STAGE2_STAGE1", stage2_cov=1, pseudo_weight=0.5)),
    "threshold": (dict(SCENE, classes=3, labeled=1), dict(
        seed=90, steps=6, pseudo_threshold=0.336, lambda_c=0.0, dropout="NET_DROPOUT_BOTTLENECK",
        pcl_tau=0.5, lambda_r=5.0, clip=2.0)),
    "stage2_paste": (dict(SCENE, classes=3), dict(
        seed=90, steps=6, pseudo_threshold=0.336, stage2_paste=1,
        dropout="NET_DROPOUT_BOTTLENECK", pcl_ignore_bg=0)),
    "paste": (SCENE, dict(
        method="copy-paste", seed=75, steps=8, patch=(32, 32, 32), schedule="SCHEDULE_CONSTANT")),
    "paste_threshold": (dict(SCENE, classes=3), dict(
        method="copy-paste", seed=97, steps=4, patch=(32, 32, 32), pseudo_threshold=0.393,
        paste_warmup=0.75, paste_size=0.5, paste_weight=0.7, dice_share=0.8)),
    "supervised": (dict(SCENE, classes=3, channels=2), dict(
        method="supervised", seed=9, steps=5, dice_share=0.3)),
    "mt_two": (SCENE, dict(method="mt", seed=24, patch=(32, 32, 32), lr=0.0002)),
    "mt_three": (THREE, dict(
        method="mt", seed=26, patch=(32, 32, 32), lr=0.0001, ramp="RAMP_CONTINUOUS", consistency=5.0,
        schedule="SCHEDULE_POLY", teacher_noise=0.3, dice_share=0.7)),
    "entropy_two": (SCENE, dict(method="entropy", seed=31, patch=(32, 32, 32), lr=0.0002)),
    "entropy_three": (THREE, dict(
        method="entropy", seed=32, patch=(32, 32, 32), lr=0.0001, ramp="RAMP_CONTINUOUS", consistency=3.0,
        schedule="SCHEDULE_POLY", batch=3, labeled_batch=1)),
    "ua_mt_two": (SCENE, dict(method="ua-mt", seed=43, patch=(32, 32, 32), lr=0.0002)),
    "ua_mt_three": (THREE, dict(
        method="ua-mt", seed=45, patch=(32, 32, 32), lr=0.0001, ramp="RAMP_CONTINUOUS", consistency=5.0,
        schedule="SCHEDULE_POLY", teacher_noise=0.2, batch=3)),
    "ict_two": (SCENE, dict(method="ict", seed=54, patch=(32, 32, 32), lr=0.0002)),
    "ict_three": (THREE, dict(
        method="ict", seed=52, patch=(32, 32, 32), lr=0.0001, ramp="RAMP_CONTINUOUS", consistency=5.0,
        schedule="SCHEDULE_POLY", batch=5, labeled_batch=1)),
}


# ---- random numbers ---------------------------------------------------------------------------------

def philox(seed, step, stream, index):
    """Four 32-bit words for every index: one row each."""
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    a = np.asarray(index, dtype=np.uint64).reshape(-1)
    x, y = a & low, a >> half
    z, t = np.full_like(a, step & 0xFFFFFFFF), np.full_like(a, (stream ^ (step >> 32 << 8)) & 0xFFFFFFFF)
    for r in range(10):
        k = np.uint64((seed + r * 0x9E3779B9) & 0xFFFFFFFF)
        m = np.uint64(((seed >> 32) + r * 0xBB67AE85) & 0xFFFFFFFF)
        p, q = x * np.uint64(0xD2511F53), z * np.uint64(0xCD9E8D57)
        x, y, z, t = (q >> half) ^ y ^ k, q & low, (p >> half) ^ t ^ m, p & low
    return np.stack([x, y, z, t], axis=1)


def uniform(words):
    """In (0, 1), 23 bits; exact in float32 and so in float64."""
    return ((words >> np.uint64(9)).astype(np.float64) + 0.5) / 8388608.0


def normals(words):
    """Box-Muller: words 0, 1 give two, words 2, 3 the other two."""
    u, turn = uniform(words[:, 0::2]), uniform(words[:, 1::2])
    length = np.sqrt(-2.0 * np.log(u))
    pair = np.stack([length * np.cos(2 * np.pi * turn), length * np.sin(2 * np.pi * turn)], axis=2)
    return pair.reshape(-1, 4)


def salt_of(name):
    """FNV-1a by words of 8 bytes: models draw their first weights by name."""
    h, text = 0xCBF29CE484222325, name.encode()
    while len(text) >= 8:
        h = (h ^ int.from_bytes(text[:8], "little")) * 0x100000001B3 % 2 ** 64
        h, text = h ^ h >> 32, text[8:]
    h = (h ^ int.from_bytes(text, "little") ^ len(text) << 56) * 0x100000001B3 % 2 ** 64
    return h ^ h >> 29


class Cursor:
    """Successive words of one (seed, step, stream) from its start number `index` on."""

    def __init__(self, seed, step, stream, index):
        self.key, self.block, self.words = (seed, step, stream), index << 24, []

    def word(self):
        if not self.words:
            blocks = np.arange(self.block, self.block + 256, dtype=np.uint64)
            self.words = [int(w) for w in philox(*self.key, blocks).reshape(-1)][::-1]
            self.block += 256
        return self.words.pop()

    def below(self, n):
        high, low = self.word() * n, self.word() * n
        return (high + (low >> 32)) >> 32


# ---- cases and batches --------------------------------------------------------------------------------

def make_case(i, scene, patch):
    """A ball (two halves for three classes) in noise; golden_case() of tests/test_methods.c."""
    d = [patch[a] + 1 + (i + a) % 3 - (2 if i % 4 == 3 else 0) for a in range(3)]
    at = np.indices(d)
    centre = [d[a] // 2 + (i * (a + 2)) % 5 - 2 for a in range(3)]
    inside = sum((at[a] - centre[a]) ** 2 for a in range(3)) <= 20 + 5 * (i % 4)
    label = np.where(inside, 1, 0)
    if scene["classes"] == 3:
        label = np.where(inside & (at[2] > centre[2]), 2, label)
    n = d[0] * d[1] * d[2] * scene["channels"]
    noise = uniform(philox(77, i, TEST, np.arange((n + 3) // 4)).reshape(-1)[:n]).astype(np.float32)
    bright = np.repeat(label.reshape(-1), scene["channels"]).astype(np.float32)
    image = (noise - np.float32(0.5)) + np.float32(0.5) * bright
    mask = ((at[2] + 2 * at[1] + i) % 5 != 0).astype(np.uint8)
    return image.reshape(d + [scene["channels"]]), label.astype(np.uint8), mask


class Batches:
    """Two streams: an epoch is one permutation of the labelled cases in groups."""

    def __init__(self, cases, n_labeled, L, U, patch, seed):
        self.cases, self.n, self.L, self.U, self.patch, self.seed = cases, n_labeled, L, U, patch, seed

    def order(self, n, epoch, stream, turn):
        r, p = Cursor(self.seed, epoch, SHUFFLE, turn * 2 + stream), list(range(n))
        for i in range(n - 1, 0, -1):
            j = r.below(i + 1)
            p[i], p[j] = p[j], p[i]
        return p

    def choose(self, step, slot):
        groups = max(1, self.n // self.L)
        stream = 0 if slot < self.L else 1
        width, first, n = ((self.L, 0, self.n), (self.U, self.n, len(self.cases) - self.n))[stream]
        place = step % groups * width + (slot - stream * self.L)
        return first + self.order(n, step // groups, stream, place // n)[place % n]

    def crop(self, arrays, step, slot):
        """RandomCrop as published: padded by 3 more than needed if any axis is too short."""
        r, shape = Cursor(self.seed, step, AUGMENT, slot * 16 + 1), arrays[1].shape
        small = any(shape[a] <= self.patch[a] for a in range(3))
        pad = [max(0, (self.patch[a] - shape[a]) // 2 + 3) if small else 0 for a in range(3)]
        box = []
        for a in range(3):
            start = r.below(shape[a] + 2 * pad[a] - self.patch[a])
            box.append(slice(start, start + self.patch[a]))
        pads = [(p, p) for p in pad]
        return [np.pad(x, pads + [(0, 0)] * (x.ndim - 3))[tuple(box)] for x in arrays]

    def get(self, step):
        items = [self.crop(self.cases[self.choose(step, s)], step, s) for s in range(self.L + self.U)]
        image, label, mask = (np.stack(x) for x in zip(*items))
        label[self.L:] = 0
        return (torch.from_numpy(image.astype(np.float64)).permute(0, 4, 1, 2, 3).contiguous(),
                torch.from_numpy(label.astype(np.int64)), torch.from_numpy(mask.astype(np.float64)))


# ---- network ------------------------------------------------------------------------------------------

class Net:
    """The published V-Net, with AUA's heads or its own; parameters in order of first use."""

    def __init__(self, s, scene, name):
        self.s, self.scene, self.salt = s, scene, salt_of(name)
        self.p, self.stat = {}, {}
        self.heads = s["method"] == "aua"
        with torch.no_grad():  # makes the parameters, in their order
            self.run(torch.zeros([1, scene["channels"], 16, 16, 16], dtype=torch.float64), False, 0, 0)

    def param(self, name, shape, fan, constant=0.0):
        if name not in self.p:
            n = int(np.prod(shape))
            blocks = np.arange((n + 3) // 4, dtype=np.uint64) + np.uint64(len(self.p) << 40)
            u = uniform(philox(self.s["seed"], self.salt, INIT, blocks).reshape(-1)[:n]).astype(np.float32)
            bound = np.float32(1 / math.sqrt(fan)) if fan else np.float32(0)
            w = (np.float32(2) * u - np.float32(1)) * bound if fan else np.full(n, constant)
            self.p[name] = torch.from_numpy(w.astype(np.float64).reshape(shape)).requires_grad_(True)
        return self.p[name]

    def conv(self, x, k, c, name, up=False):
        shape = (x.shape[1], c, k, k, k) if up else (c, x.shape[1], k, k, k)
        fan = shape[1] * k ** 3
        w, b = self.param(name + ".weight", shape, fan), self.param(name + ".bias", (c,), fan)
        self.layer += 1
        if up:
            return F.conv_transpose3d(x, w, b, stride=2)
        return F.conv3d(x, w, b, stride=2 if k == 2 else 1, padding=1 if k == 3 else 0)

    def norm(self, x, name, train):
        c = x.shape[1]
        g, b = self.param(name + ".weight", (c,), 0, 1.0), self.param(name + ".bias", (c,), 0)
        if name not in self.stat:
            self.stat[name] = (torch.zeros(c, dtype=torch.float64), torch.ones(c, dtype=torch.float64))
        return F.batch_norm(x, *self.stat[name], g, b, train, 0.1, 1e-5)

    def unit(self, x, k, c, block, at, up=False):
        x = self.conv(x, k, c, "%s.conv.%d" % (block, at), up)
        return F.relu(self.norm(x, "%s.conv.%d" % (block, at + 1), self.train))

    def block(self, x, n, c, name):
        for i in range(n):
            x = self.unit(x, 3, c, name, 3 * i)
        return x

    def drop(self, x, p=0.5):
        """Whole channels; the numbers belong to the layer before it."""
        if not self.train:
            return x
        n, c = x.shape[:2]
        index = [(self.layer - 1 << 48) | (i << 24) | j for i in range(n) for j in range(c)]
        u = uniform(philox(self.s["seed"], *self.mask_of, np.array(index, dtype=np.uint64))[:, 0])
        return x * torch.from_numpy(np.where(u >= p, 1 / (1 - p), 0.0).reshape(n, c, 1, 1, 1))

    def encoder(self, x):
        """The outputs of the five blocks, the last with its dropout."""
        f, where, self.layer = self.s["filters"], self.s["dropout"], 0
        skips, names = [], ["one", "two", "three", "four", "five"]
        for level, n in enumerate([1, 2, 3, 3, 3]):
            x = self.block(x, n, f << level, "block_" + names[level])
            if level < 4:
                skips.append(x)
                x = self.unit(x, 2, f << level + 1, "block_%s_dw" % names[level], 0)
        return skips + [self.drop(x) if where != "NET_DROPOUT_NONE" else x]

    def up(self, x, c, name):
        return self.unit(x, 2, c, name, 0, True)

    def decoder(self, encoded, prefix=""):
        f, x, names = self.s["filters"], encoded[4], ["five", "six", "seven", "eight", "nine"]
        for i, n in enumerate([3, 3, 2, 1]):
            c = f << 3 - i
            x = self.up(x, c, "%sblock_%s_up" % (prefix, names[i])) + encoded[3 - i]
            x = self.block(x, n, c, "%sblock_%s" % (prefix, names[i + 1]))
        return self.drop(x) if self.s["dropout"] == "NET_DROPOUT_BOTH" else x

    def trunk(self, x):
        return self.decoder(self.encoder(x))

    def project(self, x):
        """(points, 16) -> (points, 16); names as in the released HeadConvBlock"""
        x, apart = x.t().reshape(1, FEATURES, 1, 1, -1), 3 if self.s["head_norm"] else 2
        for i in range(3):
            x = self.conv(x, 1, FEATURES, "head.conv.%d" % (apart * i))
            if i < 2 and self.s["head_norm"]:
                x = self.norm(x, "head.conv.%d" % (apart * i + 1), True)
            x = F.relu(x) if i < 2 else x
        return x.reshape(FEATURES, -1).t()

    def __call__(self, x):
        c, trunk = self.scene["classes"], self.trunk(x)
        if not self.heads:
            return {"mean": self.conv(trunk, 1, c, "out_conv")}
        f = self.conv(trunk, 1, FEATURES, "out_conv")
        if "head.conv.0.weight" not in self.p:
            self.project(torch.zeros([2, FEATURES], dtype=torch.float64))
        h = F.relu(f)
        return {"features": f, "mean": self.conv(h, 1, c, "mean_l"),
                "diag": self.conv(h, 1, c, "log_cov_diag_l"),
                "factor": self.conv(h, 1, c * self.s["ssn_rank"], "cov_factor_l")}

    def run(self, x, train, number, draw):
        self.train, self.mask_of = train, (draw, DROPOUT + number)
        return self(x)

    def copy(self, other):
        with torch.no_grad():
            for k in self.p:
                self.p[k].copy_(other.p[k])
        self.copy_statistics(other)

    def copy_statistics(self, other):
        self.stat = {k: (m.clone(), v.clone()) for k, (m, v) in other.stat.items()}

    def average(self, student, t, decay):
        keep = min(1 - 1 / (t + 1), decay)
        with torch.no_grad():
            for k in self.p:
                self.p[k].mul_(keep).add_(student.p[k], alpha=1 - keep)


# ---- losses -------------------------------------------------------------------------------------------

def rows(t):
    """(n, c, d, h, w) -> (n, voxels, c)"""
    return t.flatten(2).transpose(1, 2)


def samples_of(out, items, mask, s, draw, number, first):
    """Antithetic logit samples (n, S, voxels, classes) of some items of a network's outputs."""
    mean, zeta, factor = rows(out["mean"][items]), rows(out["diag"][items]), rows(out["factor"][items])
    n, v, c = mean.shape
    pairs, rank = s["mc_samples"] // 2, s["ssn_rank"]
    m = mask.reshape(n, v, 1)
    root = torch.sqrt(m * (torch.exp(zeta) + 1e-5) + 1e-5)
    factor = (m * factor).reshape(n, v, rank, c)
    eps = np.zeros((n, pairs, rank))
    eta = np.zeros((n, pairs, v, c))
    blocks = (pairs * c + 3) // 4
    for i in range(n):
        for j in range(pairs):
            start = ((first + i) * MAX_PAIRS + j) * MAX_RANK // 4
            words = philox(s["seed"], draw, SAMPLE + 2 * number, np.arange(start, start + (rank + 3) // 4))
            eps[i, j] = normals(words).reshape(-1)[:rank]
        index = (first + i) * v * blocks + np.arange(v * blocks)
        x = normals(philox(s["seed"], draw, SAMPLE + 2 * number + 1, index)).reshape(v, blocks * 4)
        eta[i] = x[:, :pairs * c].reshape(v, pairs, c).transpose(1, 0, 2)
    delta = torch.einsum("njk,nvkc->njvc", torch.from_numpy(eps), factor)
    delta = delta + root.unsqueeze(1) * torch.from_numpy(eta)
    return torch.cat([mean.unsqueeze(1) + delta, mean.unsqueeze(1) - delta], dim=1)


def mc_likelihood(samples, label, s):
    """Eq. 3 and 4: log p is a sum over voxels; the released code divides by their number."""
    n, S, v, _ = samples.shape
    logp = F.log_softmax(samples, dim=3)
    own = torch.gather(logp, 3, label.reshape(n, 1, v, 1).expand(n, S, v, 1)).sum((2, 3))
    return -(torch.logsumexp(own, dim=1) - math.log(S)).mean() / (v if s["mc_reduce"] == "REDUCE_MEAN" else 1)


def dice(logits, label, weight=None, first=1):
    """Mean over the classes from `first` on, squares in the denominator, items taken together."""
    p = torch.softmax(logits, dim=1)
    w = torch.ones_like(p[:, 0]) if weight is None else weight
    terms = []
    for c in range(first, p.shape[1]):
        y = (label == c).double()
        s = p[:, c]
        terms.append(1 - (2 * (w * s * y).sum() + 1e-5) / ((w * s * s).sum() + (w * y * y).sum() + 1e-5))
    return sum(terms) / len(terms)


def cross_entropy(logits, label, weight=None):
    each = F.cross_entropy(logits, label, reduction="none")
    return each.mean() if weight is None else (weight * each).sum() / weight.sum()


def ce_dice(share, logits, label, weight=None):
    return (1 - share) * cross_entropy(logits, label, weight) + share * dice(logits, label, weight)


def distance(a, b, joint):
    """Of two (voxels, classes) maps."""
    both, norms = (a * b).sum(0), (a * a).sum(0) + (b * b).sum(0)
    if joint:
        return 1 - both.sum() / norms.sum()
    return 1 - ((2 * both + 1e-5) / (norms + 1e-5)).mean()


def energy_distance(P, Q, s):
    """Eq. 7: sums over all pairs of samples; the released code divides by their number."""
    total, joint, mean = 0.0, s["ged_metric"] == "GED_JOINT", s["ged_reduce"] == "REDUCE_MEAN"
    for p, q in zip(torch.softmax(P, 3), torch.softmax(Q, 3)):
        S = len(p)
        for i in range(S):
            for j in range(S):
                total = total + (2 * distance(p[i], q[j], joint) - distance(p[i], p[j], joint)
                                 - distance(q[i], q[j], joint)) / (S ** 2 if mean else 1)
    return total / len(P)


def near_boundary(label, rule):
    """Voxels whose neighbourhood holds another label; beyond the edge lies the edge."""
    d, h, w = label.shape
    far = 1 if rule == "NB_OFFICIAL" else 2
    wide, near = np.pad(label, 1, mode="edge"), np.zeros(label.shape, dtype=bool)
    for z in range(far + 1):
        for y in range(far + 1):
            for x in range(far + 1):
                near |= wide[z:z + d, y:y + h, x:x + w] != label
    return near & (label == 0) if rule == "NB_BG_RING" else near


def choose(n, s, draw, item):
    """At most bcl_cap of n, in order."""
    left, need, r, taken = n, min(n, s["bcl_cap"]), Cursor(s["seed"], draw, POINTS, item), []
    for i in range(n):
        if need and (need == left or r.below(left) < need):
            taken.append(i)
            need -= 1
        left -= 1
    return taken


def contrast(u, label, s):
    """Supervised contrast of rows u (N, 16)."""
    n = len(u)
    other = ~torch.eye(n, dtype=torch.bool)
    score = u @ u.t() / s["bcl_tau"]
    logp = score - torch.logsumexp(score.masked_fill(~other, -math.inf), dim=1, keepdim=True)
    positive = (label[:, None] == label[None, :]) & other
    many = positive.sum(1)
    loss = -(logp * positive).sum(1)[many > 0] / many[many > 0]
    return loss.sum() if s["bcl_reduce"] == "BCL_SUM" else loss.mean()


def boundary_contrast(net, features, label, s, draw):
    terms = []
    for i in range(len(label)):
        near = np.flatnonzero(near_boundary(label[i].numpy(), s["nb_rule"]).reshape(-1))
        if not len(near):
            continue
        rows_of, f = choose(len(near), s, draw, i), rows(features[i:i + 1])[0]
        if s["bcl_layout"] == "BCL_OFFICIAL":
            # as released: masked_select of all boundary voxels, a view as rows, then some of the rows
            u = F.normalize(net.project(f[near]), dim=1).t().reshape(-1, FEATURES)[rows_of]
            print("step %d item %d: %d boundary voxels, %d rows"
                  % (draw, i, len(near), len(rows_of)), file=sys.stderr)
        else:
            # with norm in the head, its statistics are of bcl_cap places, filled by going round
            fill = [near[rows_of[k % len(rows_of)]] for k in range(s["bcl_cap"])]
            u = F.normalize(net.project(f[fill])[:len(rows_of)], dim=1)
        terms.append(contrast(u, label[i].reshape(-1)[near[rows_of]], s))
    return sum(terms) / len(terms) if terms else torch.zeros((), dtype=torch.float64)


class Prototypes:
    def __init__(self, classes, full):
        self.full = full
        self.count, self.mean = np.zeros(classes), np.zeros((classes, FEATURES))
        self.cov = np.zeros((classes, FEATURES, FEATURES))

    def update(self, features, label):
        f, y = rows(features.detach()).reshape(-1, FEATURES).numpy(), label.reshape(-1).numpy()
        for c in range(len(self.count)):
            x = f[y == c]
            if not len(x):
                continue
            w = len(x) / (len(x) + self.count[c])
            m, delta = x.mean(0), x.mean(0) - self.mean[c]
            self.cov[c] = ((1 - w) * self.cov[c] + w * np.cov(x.T, bias=True)
                           + w * (1 - w) * np.outer(delta, delta))
            self.mean[c] = (1 - w) * self.mean[c] + w * m
            self.count[c] += len(x)

    def covariance(self):
        return self.cov if self.full else self.cov * np.eye(FEATURES)

    def loss(self, features, label, weight, s):
        f, y = rows(features).reshape(-1, FEATURES), label.reshape(-1)
        w = torch.ones(len(y), dtype=torch.float64) if weight is None else weight.reshape(-1)
        seen = torch.from_numpy(self.count > 0)
        w = w * seen[y]
        if s["pcl_ignore_bg"]:
            w = w * (y > 0)
        if w.sum() == 0:
            return torch.zeros((), dtype=torch.float64)
        u, tau = F.normalize(f, dim=1), s["pcl_tau"]
        cov = torch.from_numpy(self.covariance())
        size = torch.clamp(torch.sqrt((cov ** 2).sum((1, 2), keepdim=True)), min=1e-30)
        form = torch.einsum("ia,cab,ib->ic", u, cov / size, u)
        logit = (u @ F.normalize(torch.from_numpy(self.mean), dim=1).t() + 0.5 * form / tau) / tau
        logit = logit.masked_fill(~seen, -math.inf)
        each = F.cross_entropy(logit, y, reduction="none")
        scale = 0.5 / tau ** 2 if s["pcl_form"] == "PCL_RELEASED" else 1.0  # Eq. 12: unscaled
        each = each + scale * torch.gather(form, 1, y[:, None])[:, 0]
        return (w * each).sum() / w.sum()


# ---- the loop -----------------------------------------------------------------------------------------

class Optimizer:
    def __init__(self, net):
        s = net.s
        self.net, self.s = net, s
        self.sgd = torch.optim.SGD(net.p.values(), lr=s["lr"], momentum=s["momentum"],
                                   weight_decay=s["weight_decay"])

    def step(self, loss, t, total):
        """Updates from the loss; returns the gradient's norm before clipping."""
        kind, rate, s = self.s["schedule"], self.s["lr"], self.s
        if kind == "SCHEDULE_STEP":
            rate *= 0.1 ** ((t >= total * 2500 / 6000) + (t >= total * 5000 / 6000))
        elif kind == "SCHEDULE_POLY":
            rate *= (1 - t / total) ** 0.9
        self.sgd.param_groups[0]["lr"] = rate
        self.sgd.zero_grad(set_to_none=True)
        loss.backward()
        got = [p.grad for p in self.net.p.values() if p.grad is not None]
        norm = math.sqrt(sum((g ** 2).sum().item() for g in got))
        if s["clip"] > 0:
            torch.nn.utils.clip_grad_norm_(self.net.p.values(), s["clip"])
        self.sgd.step()
        return norm


def ramp(s, t, total):
    c, R = (t, total) if s["ramp"] == "RAMP_CONTINUOUS" else (t // 150, max(1.0, total / 150))
    return s["consistency"] * math.exp(-5 * (1 - min(c, R) / R) ** 2)


def noise(shape, s, draw, number=1):
    """For (n, c, d, h, w), drawn along the channels-last order; number: of the teacher's pass."""
    n, c, d, h, w = shape
    count = n * c * d * h * w
    x = normals(philox(s["seed"], draw, INPUT_NOISE + number, np.arange((count + 3) // 4))).reshape(-1)[:count]
    x = np.clip(s["teacher_noise"] * x, -2 * s["teacher_noise"], 2 * s["teacher_noise"])
    return torch.from_numpy(x.reshape(n, d, h, w, c)).permute(0, 4, 1, 2, 3)


class Run:
    def __init__(self, scene, s):
        self.scene, self.s, self.notes, self.draw, self.phase = scene, s, [], 0, 0
        self.cases = [make_case(i, scene, s["patch"]) for i in range(scene["labeled"] + scene["unlabeled"])]
        self.L, self.U = s["labeled_batch"], s["batch"] - s["labeled_batch"]

    def steps(self, share, labeled_only=False):
        """Batches of the next phase, step by step."""
        total = math.ceil(share * self.s["steps"] - 1e-6)
        seed = (self.s["seed"] + self.phase * PHASE_SEED) % 2 ** 64
        batches = Batches(self.cases, self.scene["labeled"], self.L, 0 if labeled_only else self.U,
                          self.s["patch"], seed)
        for t in range(total):
            image, label, mask = batches.get(t)
            yield t, total, image, label, mask if self.scene["has_mask"] else torch.ones_like(mask)
            self.draw += 1
        self.phase += 1

    def note(self, t, **terms):
        for name, value in terms.items():
            self.notes.append((self.phase, t, name, float(value)))

    # ---- supervised

    def supervised(self):
        net = Net(self.s, self.scene, "model")
        update = Optimizer(net)
        for t, total, image, label, _ in self.steps(1.0, labeled_only=True):
            z = net.run(image, True, 0, self.draw)["mean"]
            ce, d = cross_entropy(z, label), dice(z, label)
            loss = (1 - self.s["dice_share"]) * ce + self.s["dice_share"] * d
            self.note(t, loss=loss, ce=ce, dice=d, gradient=update.step(loss, t, total))

    # ---- copy-paste

    def paste_box(self):
        r, patch = Cursor(self.s["seed"], self.draw, PASTE, 0), self.s["patch"]
        box = torch.zeros(patch, dtype=torch.float64)
        cut = []
        for a in range(3):
            extent = int(patch[a] * self.s["paste_size"])
            start = r.below(patch[a] - extent + 1)
            cut.append(slice(start, start + extent))
        box[tuple(cut)] = 1
        return box

    def paste_mix(self, first, second):
        """What the network sees, and where the first partners show."""
        box, n = self.paste_box(), len(first)
        shows = torch.stack([1 - box if i < n // 2 else box for i in range(n)])
        return first * shows.unsqueeze(1) + second * (1 - shows.unsqueeze(1)), shows

    def paste_step(self, t, total, first, second, own, other, trust, weight):
        """first: labelled partners with labels own; second: the others, with labels other."""
        mixed, shows = self.paste_mix(first, second)
        z = self.student.run(mixed, True, 0, self.draw)["mean"]
        share = self.s["dice_share"]
        known, pasted = ce_dice(share, z, own, shows), ce_dice(share, z, other, (1 - shows) * trust)
        loss = known + weight * pasted
        norm = self.update.step(loss, t, total)
        self.teacher.average(self.student, self.draw, self.s["ema_decay"])
        self.note(t, loss=loss, supervised=known, pasted=pasted, gradient=norm)

    def copy_paste(self):
        s = self.s
        self.student = Net(s, self.scene, "student")
        self.teacher = Net(dict(s, dropout="NET_DROPOUT_NONE"), self.scene, "teacher")
        self.update = Optimizer(self.student)
        for t, total, image, label, _ in self.steps(s["paste_warmup"], labeled_only=True):
            self.paste_step(t, total, image, image.roll(-1, 0), label, label.roll(-1, 0), 1.0, 1.0)
            self.teacher.copy_statistics(self.student)
        for t, total, image, label, _ in self.steps(1.0):
            with torch.no_grad():
                z = self.teacher.run(image[self.L:], True, 1, self.draw)["mean"]
            sure, pseudo = torch.softmax(z, 1).max(1)
            trust = (sure >= s["pseudo_threshold"]).double()
            self.closest(z, sure, t)
            self.paste_step(t, total, image[:self.L], image[self.L:], label[:self.L], pseudo, trust,
                            s["paste_weight"])

    # ---- methods with one term beside the loss of labels

    def semi(self, term, first):
        """term gives the student's logits, labelled items first, and its value; Dice from class `first` on."""
        s, L = self.s, self.L
        self.student, self.teacher = (Net(s, self.scene, n) for n in ("student", "teacher"))
        update = Optimizer(self.student)
        for t, total, image, label, _ in self.steps(1.0):
            z, name, value = term(image, t, total)
            ce, d = cross_entropy(z[:L], label[:L]), dice(z[:L], label[:L], None, first)
            sup, w = (1 - s["dice_share"]) * ce + s["dice_share"] * d, ramp(s, t, total)
            loss = sup + w * value
            norm = update.step(loss, t, total)
            self.note(t, loss=loss, supervised=sup, ce=ce, dice=d, weight=w, gradient=norm, **{name: value})
            self.teacher.average(self.student, t, s["ema_decay"])

    def guess(self, image, number, noisy):
        """The teacher's probabilities in its pass `number` of a step."""
        with torch.no_grad():
            seen = image + noise(image.shape, self.s, self.draw, number) if noisy else image
            return torch.softmax(self.teacher.run(seen, True, number, self.draw)["mean"], 1)

    def mean_teacher(self, image, t, total):
        z = self.student.run(image, True, 0, self.draw)["mean"]
        apart = torch.softmax(z[self.L:], 1) - self.guess(image[self.L:], 1, True)
        return z, "consistency", (apart ** 2).mean()

    def entropy(self, image, t, total):
        z = self.student.run(image, True, 0, self.draw)["mean"]
        p = torch.softmax(z, 1)
        return z, "entropy", -(p * torch.log(p + 1e-6)).sum(1).mean() / math.log(z.shape[1])

    def certain_teacher(self, image, t, total):
        """Mean teacher where eight samples of the teacher, two a pass, have a mean of little entropy."""
        z, seen, n = self.student.run(image, True, 0, self.draw)["mean"], image[self.L:], self.U
        mean = 0.0
        for i in range(0, 8, 2):
            both = [seen + noise(seen.shape, self.s, self.draw, 2 + i + half) for half in range(2)]
            p = self.guess(torch.cat(both), 2 + i // 2, False)
            mean = mean + (p[:n] + p[n:]) / 8
        unsure = -(mean * torch.log(mean + 1e-6)).sum(1)
        limit = (0.75 + 0.25 * math.exp(-5 * (1 - t / total) ** 2)) * math.log(z.shape[1])
        m = (unsure < limit).double()
        apart = ((torch.softmax(z[self.L:], 1) - self.guess(seen, 1, True)) ** 2).sum(1)
        self.note(t, certain=m.mean())
        print("%s step %d: certain %.3f, nearest to the limit %.0e"
              % (self.name, t, m.mean(), (unsure - limit).abs().min()), file=sys.stderr)
        return z, "consistency", (m * apart).sum() / (z.shape[1] * m.sum() + 1e-16)

    def share(self, pair):
        """Beta(0.2, 0.2) by Johnk's rule."""
        r = Cursor(self.s["seed"], self.draw, BLEND, pair)
        while True:
            x, y = (((r.word() >> 9) + 0.5) / 8388608 for _ in range(2))
            if x ** 5 + y ** 5 <= 1:
                return x ** 5 / (x ** 5 + y ** 5)

    def interpolation(self, image, t, total):
        n, known = self.U // 2, image[:self.L]
        first, second = image[self.L:self.L + n], image[self.L + n:]
        b = torch.tensor([self.share(i) for i in range(n)], dtype=torch.float64).reshape(n, 1, 1, 1, 1)
        mixed = torch.cat([known, (1 - b) * first + b * second])
        z = self.student.run(mixed, True, 0, self.draw)["mean"]
        target = (1 - b) * self.guess(first, 1, False) + b * self.guess(second, 2, False)
        return z, "consistency", ((torch.softmax(z[self.L:], 1) - target) ** 2).mean()

    # ---- AUA

    def stage1(self):
        s, L = self.s, self.L
        self.student, self.teacher = (Net(s, self.scene, n) for n in ("student", "teacher"))
        self.labeller = Net(dict(s, dropout="NET_DROPOUT_NONE"), self.scene, "labeller")
        update = Optimizer(self.student)
        for t, total, image, label, mask in self.steps(1.0):
            out = self.student.run(image, True, 0, self.draw)
            with torch.no_grad():
                seen = image[L:] + noise(image[L:].shape, s, self.draw)
                other = self.teacher.run(seen, True, 1, self.draw)
                Q = samples_of(other, slice(0, None), mask[L:], s, self.draw, 1, 0)
            known = samples_of(out, slice(0, L), mask[:L], s, self.draw, 0, 0)
            P = samples_of(out, slice(L, None), mask[L:], s, self.draw, 0, L)
            zero = torch.zeros((), dtype=torch.float64)
            mc = mc_likelihood(known, label[:L], s)
            d = dice(out["mean"][:L], label[:L]) if s["sup_dice"] else zero
            sup = 0.5 * (mc + d) if s["sup_dice"] else mc
            bcl = zero
            if s["lambda_c"] > 0:
                bcl = boundary_contrast(self.student, out["features"], label[:L], s, self.draw)
            ged, w = energy_distance(P, Q, s), ramp(s, t, total)
            loss = sup + s["lambda_c"] * bcl + w * ged
            norm = update.step(loss, t, total)
            self.note(t, loss=loss, supervised=sup, likelihood=mc, dice=d, bcl=bcl, ged=ged, weight=w,
                      gradient=norm)
            self.teacher.average(self.student, t, s["ema_decay"])
            if s["proto_ckpt"] == "PROTO_LAST" or t + 1 <= (total + 1) // 2:
                self.labeller.copy(self.student)

    def prototype_pass(self):
        self.prototypes = Prototypes(self.scene["classes"], self.s["pcl_cov"] == "PCL_FULL")
        for t, _, image, label, _ in self.steps(0.5, labeled_only=True):
            with torch.no_grad():
                out = self.labeller.run(image, False, 0, self.draw)
            self.prototypes.update(out["features"], label)
            self.note(t, loss=0.0)

    def closest(self, z, sure, t):
        """Labels and trust jump: says how near any voxel comes to a jump."""
        top = torch.topk(z, 2, dim=1).values
        gap, edge = (top[:, 0] - top[:, 1]).min(), (sure - self.s["pseudo_threshold"]).abs().min()
        share = torch.bincount(z.argmax(1).reshape(-1), minlength=z.shape[1]) / sure.numel()
        trust = (sure >= self.s["pseudo_threshold"]).double().mean()
        print("%s phase %d step %d: classes %s, trusted %.2f; least gap of logits %.0e, of confidence %.0e"
              % (self.name, self.phase, t, ["%.2f" % x for x in share], trust, gap, edge), file=sys.stderr)

    def pasted(self, net, update, t, total, image, label, pseudo, trust):
        s, L = self.s, self.L
        mixed, shows = self.paste_mix(image[:L], image[L:])
        out, hidden = net.run(mixed, True, 0, self.draw), (1 - shows) * (1 if trust is None else trust)
        known = ce_dice(s["dice_share"], out["mean"], label[:L], shows)
        guess = ce_dice(s["dice_share"], out["mean"], pseudo, hidden)
        near = self.prototypes.loss(out["features"], label[:L], shows, s)
        far = self.prototypes.loss(out["features"], pseudo, hidden, s)
        loss = known + s["paste_weight"] * guess + s["lambda_r"] * (near + far)
        self.note(t, loss=loss, supervised=known, pseudo=guess, pcl_labeled=near, pcl_pseudo=far,
                  gradient=update.step(loss, t, total))
        self.labeller.average(net, self.draw, s["ema_decay"])

    def stage2(self):
        s, L = self.s, self.L
        net = Net(s, self.scene, "stage2")
        if s["stage2_paste"] or s["stage2_init"] == "STAGE2_STAGE1":
            net.copy(self.labeller)
        update = Optimizer(net)
        for t, total, image, label, mask in self.steps(1.0):
            with torch.no_grad():
                z = self.labeller.run(image[L:], bool(s["stage2_paste"]), 1, self.draw)["mean"]
            sure, pseudo = torch.softmax(z, 1).max(1)
            self.closest(z, sure, t)
            trust = (sure >= s["pseudo_threshold"]).double() if s["pseudo_threshold"] > 0 else None
            if s["stage2_paste"]:
                self.pasted(net, update, t, total, image, label, pseudo, trust)
                continue
            out = net.run(image, True, 0, self.draw)
            known = ce_dice(s["dice_share"], out["mean"][:L], label[:L])
            guess = ce_dice(s["dice_share"], out["mean"][L:], pseudo, trust)
            f = out["features"]
            if s["proto_update"]:
                self.prototypes.update(f[:L], label[:L])
            near = self.prototypes.loss(f[:L], label[:L], None, s)
            far = self.prototypes.loss(f[L:], pseudo, trust, s)
            loss = known + s["pseudo_weight"] * guess + s["lambda_r"] * (near + far)
            if s["stage2_cov"]:
                drawn = samples_of(out, slice(0, L), mask[:L], s, self.draw, 0, 0)
                loss = loss + mc_likelihood(drawn, label[:L], s)
            self.note(t, loss=loss, supervised=known, pseudo=guess, pcl_labeled=near, pcl_pseudo=far,
                      gradient=update.step(loss, t, total))

    def run(self, name):
        self.name, self.prototypes = name, None
        if self.s["method"] == "supervised":
            self.supervised()
        elif self.s["method"] == "copy-paste":
            self.copy_paste()
        elif self.s["method"] == "mt":
            self.semi(self.mean_teacher, 0)
        elif self.s["method"] == "entropy":
            self.semi(self.entropy, 0)
        elif self.s["method"] == "ua-mt":
            self.semi(self.certain_teacher, 1)
        elif self.s["method"] == "ict":
            self.semi(self.interpolation, 0)
        else:
            self.stage1()
            if self.s["stages"] > 1:
                self.prototype_pass()
                self.stage2()


# ---- writing ------------------------------------------------------------------------------------------

def c_value(v):
    if isinstance(v, tuple):
        return "{%s}" % ", ".join(str(x) for x in v)
    return repr(v) if not isinstance(v, str) else v


def write_run(name, run):
    print("static const struct golden_note golden_notes_%s[] = {" % name)
    line = ["{%d, %d, \"%s\", %.9g}" % note for note in run.notes]
    print(textwrap.fill(", ".join(line), 100, initial_indent="    ", subsequent_indent="    ",
                        break_long_words=False) + "\n};")
    if run.prototypes:
        p = run.prototypes
        spread = p.cov if p.full else np.array([np.diag(c) for c in p.cov])
        flat = np.concatenate([p.count, p.mean.reshape(-1), spread.reshape(-1)])
        print("static const double golden_prototypes_%s[] = {" % name)
        print(textwrap.fill(", ".join("%.8g" % v for v in flat), 100, initial_indent="    ",
                            subsequent_indent="    ") + "\n};")


def write_table(runs, table="golden_runs"):
    print("static const struct golden_run %s[] = {" % table)
    for name, (scene, s, run) in runs.items():
        words = ['.name = "%s"' % name] + [".%s = %d" % item for item in scene.items()]
        print("    {%s," % ", ".join(words))
        print("     .notes = golden_notes_%s, .n_notes = %d, .prototypes = %s,"
              % (name, len(run.notes), "golden_prototypes_" + name if run.prototypes else "NULL"))
        words = [".%s = %s" % (k, c_value(v)) for k, v in s.items() if k != "method"]
        words.insert(0, '.method = (char[]){"%s"}' % s["method"])
        print(textwrap.fill(", ".join(words), 100, initial_indent="     .set = {",
                            subsequent_indent="             ", break_long_words=False) + "}},")
    print("};")


HEAD = """/* Made by tools/golden_aua.py with PyTorch %s: do not edit. */
struct golden_note {
    int phase, step;
    const char *name;
    double value;
};
struct golden_run {
    const char *name;
    int classes, channels, has_mask, labeled, unlabeled;
    struct settings set;
    const struct golden_note *notes;
    int n_notes;
    const double *prototypes; /* counts, means, then covariances (or their diagonals); or NULL */
};"""


def main():
    torch.set_num_threads(1)
    print(HEAD % torch.__version__.split("+")[0])
    made = {}
    for name, (scene, change) in RUNS.items():
        s = dict(BASE, **change)
        if len(sys.argv) > 1 and name not in sys.argv[1:]:
            continue
        run = Run(scene, s)
        run.run(name)
        write_run(name, run)
        made[name] = (scene, s, run)
    write_table(made)


if __name__ == "__main__":
    main()
