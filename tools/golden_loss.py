#!/usr/bin/env python3
"""Makes tests/golden/loss.h: values and gradients of the losses by PyTorch's autograd, in double.

Inputs are not stored: both sides make them, and the logit samples, from the same counter-based random
numbers (Philox 4x32-10). Usage: /usr/bin/python3 tools/golden_loss.py > tests/golden/loss.h
"""
import numpy as np
import torch

STREAM_TEST, STREAM_SAMPLE, SEED, STEP = 8, 64, 20240607, 5
MAX_PAIRS, MAX_RANK = 8, 16


def philox(seed, step, stream, index):
    index = np.asarray(index, dtype=np.uint64)
    low = np.uint64(0xFFFFFFFF)
    k0, k1 = seed & 0xFFFFFFFF, seed >> 32
    c = [index & low, index >> np.uint64(32), np.full_like(index, step & 0xFFFFFFFF),
         np.full_like(index, stream ^ ((step >> 32 << 8) & 0xFFFFFFFF))]
    for _ in range(10):
        p0, p1 = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [(p1 >> np.uint64(32)) ^ c[1] ^ np.uint64(k0), p1 & low,
             (p0 >> np.uint64(32)) ^ c[3] ^ np.uint64(k1), p0 & low]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return np.stack(c, axis=-1)


def unit(words):
    return ((words >> np.uint64(9)).astype(np.float64) + 0.5) / 2**23


def normals(words):
    u = unit(words)
    r0, r1 = np.sqrt(-2 * np.log(u[..., 0])), np.sqrt(-2 * np.log(u[..., 2]))
    a0, a1 = 2 * np.pi * u[..., 1], 2 * np.pi * u[..., 3]
    return np.stack([r0 * np.cos(a0), r0 * np.sin(a0), r1 * np.cos(a1), r1 * np.sin(a1)], axis=-1)


def numbers(number, count, size):
    """`count` float32 values in (-size, size): number says which tensor of which case."""
    u = unit(philox(SEED, number, STREAM_TEST, np.arange((count + 3) // 4))).reshape(-1)[:count]
    return ((u * 2 - 1).astype(np.float32) * np.float32(size)).astype(np.float64)


def bytes_below(number, count, top):
    words = philox(SEED, number, STREAM_TEST, np.arange((count + 3) // 4)).reshape(-1)[:count]
    return (words % np.uint64(top)).astype(np.int64)


class Case:
    def __init__(self, number, classes, rank, samples, masked):
        self.classes, self.rank, self.samples = classes, rank, samples
        self.items, self.voxels = 2, 20
        n = self.items * self.voxels
        shape = (self.items, self.voxels, -1)
        self.net = []
        for which in range(2):  # student, teacher
            base = 100 * number + 10 * which
            self.net.append([torch.tensor(numbers(base + i, n * c, size).reshape(shape),
                                          requires_grad=which == 0)
                             for i, (c, size) in enumerate(
                                 ((classes, 2.0), (classes, 1.0), (classes * rank, 0.5)))])
        self.label = torch.tensor(bytes_below(100 * number + 3, n, classes).reshape(shape[:2]))
        self.weight = torch.tensor(numbers(100 * number + 4, n, 1.0).reshape(shape[:2])).clamp(min=0)
        self.mask = torch.ones(shape[:2], dtype=torch.float64)
        if masked:
            self.mask = torch.tensor((bytes_below(100 * number + 5, n, 4) > 0).astype(np.float64)
                                     .reshape(shape[:2]))

    def draw(self, which):
        """(samples, items, voxels, classes) logits."""
        mean, diag, factor = self.net[which]
        classes, rank, pairs = self.classes, self.rank, self.samples // 2
        m = self.mask[:, :, None]
        var = m * (torch.exp(diag) + 1e-5) + 1e-5
        blocks = (pairs * classes + 3) // 4
        stream = STREAM_SAMPLE + 2 * which
        out = []
        for p in range(pairs):
            per_item = []
            for b in range(self.items):
                index = (b * MAX_PAIRS + p) * MAX_RANK // 4 + np.arange((rank + 3) // 4)
                eps = torch.tensor(normals(philox(SEED, STEP, stream, index)).reshape(-1)[:rank])
                v = np.arange(b * self.voxels, (b + 1) * self.voxels)
                index = v[:, None] * blocks + np.arange(blocks)
                eta = normals(philox(SEED, STEP, stream + 1, index)).reshape(self.voxels, -1)
                eta = torch.tensor(eta[:, p * classes:(p + 1) * classes])
                low = (factor[b].reshape(self.voxels, rank, classes) * eps[None, :, None]).sum(1)
                per_item.append(m[b] * low + torch.sqrt(var[b]) * eta)
            out.append(torch.stack(per_item))
        delta = torch.stack(out)
        return torch.cat([mean + delta, mean - delta])

    def likelihood(self, mean=True):
        log_p = torch.log_softmax(self.draw(0), dim=-1)
        picked = torch.gather(log_p, -1, self.label[None, :, :, None].expand(self.samples, -1, -1, 1))
        l = picked.sum(dim=(2, 3))
        return -((torch.logsumexp(l, 0) - np.log(self.samples)) / (self.voxels if mean else 1)).mean()

    def ged(self, joint, mean=True):
        p, q = (torch.softmax(self.draw(w), dim=-1) for w in range(2))

        def d(a, b):
            inner, norms = (a * b).sum(1), (a * a + b * b).sum(1)  # (items, classes)
            if joint:
                return 1 - inner.sum(-1) / norms.sum(-1)
            return 1 - ((2 * inner + 1e-5) / (norms + 1e-5)).mean(-1)

        total = 0
        for i in range(self.samples):
            for j in range(self.samples):
                total = total + 2 * d(p[i], q[j]) - d(p[i], p[j]) - d(q[i], q[j])
        return (total / (self.samples**2 if mean else 1)).mean()

    def ce_dice(self, first=1):
        z, w = self.net[0][0], self.weight
        log_p = torch.log_softmax(z, dim=-1)
        p, y = log_p.exp(), torch.nn.functional.one_hot(self.label, self.classes).double()
        ce = -(w * (log_p * y).sum(-1)).sum() / w.sum()
        w = w[:, :, None]
        dice = 0
        for c in range(first, self.classes):
            top = 2 * (w * p * y)[..., c].sum() + 1e-5
            bottom = (w * p * p)[..., c].sum() + (w * y)[..., c].sum() + 1e-5
            dice = dice + 1 - top / bottom
        return 0.5 * (ce + dice / (self.classes - first))

    def mse(self):
        p, q = (torch.softmax(self.net[i][0], dim=-1) for i in range(2))
        return (self.weight * ((p - q) ** 2).mean(-1)).sum() / self.weight.sum()

    def entropy(self):
        p = torch.softmax(self.net[0][0], dim=-1)
        return -(p * torch.log(p + 1e-6)).sum(-1).mean() / np.log(self.classes)

    def gradients(self, value):
        grads = torch.autograd.grad(value, self.net[0], allow_unused=True)
        return [g.numpy().reshape(-1) for g in grads if g is not None]


def show(case, number, kind, value, masked):
    out, line = [], ""
    for v in np.concatenate(case.gradients(value)):
        text = "%.6gf, " % v if "." in "%.6g" % v or "e" in "%.6g" % v else "%.6g.0f, " % v
        if len(line) + len(text) > 96:
            out.append(line.rstrip())
            line = "     "
        line += text
    out.append(line.rstrip(", "))
    print("    {%d, %s, %d, %d, %d, %d, %.12g,\n     {%s}}," %
          (number, kind, case.classes, case.rank, case.samples, masked, float(value),
           "\n".join(out).strip()))


def main():
    print("/* Made by tools/golden_loss.py with torch %s: do not edit. */" % torch.__version__.split("+")[0])
    print("static const struct golden_loss {\n    int number, kind, classes, rank, samples, masked;")
    print("    double value;\n    float grad[800]; /* of mean, diag, factor, one after the other */")
    print("} golden_losses[] = {")
    for number, classes, rank, samples, masked in ((1, 2, 8, 6, 0), (2, 3, 3, 4, 1), (3, 5, 2, 6, 1)):
        case = Case(number, classes, rank, samples, masked)
        show(case, number, "GOLDEN_CE_DICE", case.ce_dice(), masked)
        show(case, number, "GOLDEN_LIKELIHOOD", case.likelihood(), masked)
        show(case, number, "GOLDEN_GED", case.ged(False), masked)
        if number == 2:
            show(case, number, "GOLDEN_GED_JOINT", case.ged(True), masked)
            show(case, number, "GOLDEN_GED_JOINT_SUM", case.ged(True, False), masked)
        show(case, number, "GOLDEN_LIKELIHOOD_SUM", case.likelihood(False), masked)
        show(case, number, "GOLDEN_CE_DICE_ALL", case.ce_dice(0), masked)
        show(case, number, "GOLDEN_MSE", case.mse(), masked)
        show(case, number, "GOLDEN_ENTROPY", case.entropy(), masked)
    print("};")


main()
