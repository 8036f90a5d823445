#!/usr/bin/env python3
"""Makes tests/golden/contrast_cases.h: boundary contrast and prototype loss by PyTorch, in double.

Both sides make the inputs from the same integer hash, so only answers are stored. The contrast is
written the way the published code works: ones-convolution for the boundary, boolean mask, view.
Usage: python3 tools/golden_contrast.py > tests/golden/contrast_cases.h
"""
import numpy as np
import torch
import torch.nn.functional as F

DIMS, C, TAU = (4, 4, 5), 16, 0.07
VOXELS, CLASSES, PCL_TAU = 40, 3, 0.5


def noise(salt, n):
    """n numbers in [-0.5, 0.5), exact in float32."""
    h = (np.arange(n, dtype=np.uint64) + salt * 1000003) * 2654435761 % 2**32
    h ^= h >> 15
    h = h * 2246822519 % 2**32
    h ^= h >> 13
    return (h >> 8).astype(np.float64) / 2**24 - 0.5


def show(name, values, form="%.9g"):
    kind = "int" if form == "%d" else "double"
    print("static const %s golden_%s[%d] = {" % (kind, name, len(values)))
    line = "   "
    for v in values:
        word = " " + form % v + ","
        if len(line) + len(word) > 98:
            print(line)
            line = "   "
        line += word
    print(line + "\n};")


def near_boundary(label):
    """2x2x2 ones-convolution after replicate padding, cropped to the size: one-sided."""
    x = torch.tensor(label, dtype=torch.float64)[None, None]
    ones = torch.ones(1, 1, 2, 2, 2, dtype=torch.float64)
    s = F.conv3d(F.pad(x, (1,) * 6, mode="replicate"), ones)
    s = s[0, 0, :DIMS[0], :DIMS[1], :DIMS[2]].numpy()
    return ((label == 0) & (s > 0)) | ((label == 1) & (s < 8))


def supervised_contrast(rows, label):
    s = rows @ rows.T / TAU
    s = s - s.max(dim=1, keepdim=True)[0].detach()
    others = 1 - torch.eye(len(rows), dtype=torch.float64)
    same = (label[:, None] == label[None, :]).double() * others
    log_p = s - torch.log((torch.exp(s) * others).sum(1, keepdim=True))
    return -((same * log_p).sum(1) / same.sum(1)).mean()


def contrast():
    label = (noise(1, int(np.prod(DIMS))).reshape(DIMS) > 0.2).astype(np.int64)
    near = near_boundary(label)
    show("points", np.flatnonzero(near), "%d")
    for layout in ("correct", "official"):
        last = noise(2, int(np.prod(DIMS)) * C).reshape(DIMS + (C,))
        last = torch.tensor(last, requires_grad=True)
        g = F.normalize(last.permute(3, 0, 1, 2)[None].contiguous(), dim=1)
        mask = torch.tensor(near)[None, None].expand_as(g)
        if layout == "official":
            rows = g[mask].view(-1, C)
        else:
            rows = g[0].permute(1, 2, 3, 0)[torch.tensor(near)]
        value = supervised_contrast(rows, torch.tensor(label[near]))
        value.backward()
        print("static const double golden_%s_value = %.15g;" % (layout, value.item()))
        show(layout, last.grad[torch.tensor(near)].reshape(-1).numpy())


def pooled(features, label, full):
    mean, cov = [], []
    for c in range(CLASSES):
        x = features[label == c]
        d = x - x.mean(0)
        mean.append(x.mean(0))
        cov.append(d.T @ d / len(x) if full else np.diag((d * d).mean(0)))
    return np.array(mean), np.array(cov)


def prototype_loss(name, full, ignore_bg, scale=0.5 / PCL_TAU**2):
    """scale: of the form of the label's own class; 1 in Eq. 12 of the AUA paper."""
    seen = noise(3, 200 * C).reshape(200, C)
    seen_label = np.arange(200) % CLASSES
    seen = seen + 0.3 * seen_label[:, None] * np.sin(np.arange(C))[None]
    seen = seen.astype(np.float32).astype(np.float64)
    mean, cov = (torch.tensor(x) for x in pooled(seen, seen_label, full))
    mean = F.normalize(mean, dim=1)
    cov = cov / cov.flatten(1).norm(dim=1)[:, None, None]
    f = torch.tensor(noise(4, VOXELS * C).reshape(VOXELS, C), requires_grad=True)
    label = torch.tensor((np.floor((noise(5, VOXELS) + 0.5) * CLASSES)).astype(np.int64))
    keep = label > 0 if ignore_bg else label >= 0
    u = F.normalize(f[keep], dim=1)
    form = torch.einsum("ia,cab,ib->ic", u, cov, u)
    logit = (u @ mean.T + 0.5 * form / PCL_TAU) / PCL_TAU
    mine = form.gather(1, label[keep][:, None]).mean()
    value = F.cross_entropy(logit, label[keep]) + scale * mine
    value.backward()
    print("static const double golden_%s_value = %.15g;" % (name, value.item()))
    show(name, f.grad.reshape(-1).numpy())


def main():
    version = torch.__version__.split("+")[0]
    print("/* Made by tools/golden_contrast.py with PyTorch %s: do not edit. */" % version)
    contrast()
    prototype_loss("diagonal", False, False)
    prototype_loss("full", True, True)
    prototype_loss("unscaled", True, False, 1.0)


main()
