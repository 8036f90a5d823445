#!/usr/bin/env python3
"""Compares `falx eval --json` with NumPy and SciPy on random and adversarial pairs of masks.

usage: metrics_oracle.py FALX [FOLDER]     (FOLDER keeps the files; a temporary one otherwise)

Every definition is written down here a second time, from SciPy's binary_erosion and
distance_transform_edt over the whole, uncropped arrays. Areas of surface elements come from closed
formulas for each shape, not from polygons as in the program. Tolerance: 1e-9 on fractions, 1e-6 on
distances. Exit status 0 if all agree.
"""
import functools
import itertools
import json
import os
import struct
import subprocess
import sys
import tempfile

import numpy as np
from scipy import ndimage

TAU = 1.5  # tolerance of the surface Dice, mm


# ---- files ------------------------------------------------------------------------------------

def write_nii(path, labels, spacing):
    """NIfTI-1, uint8 or uint16, diagonal affine."""
    code, bits = (2, 8) if labels.dtype == np.uint8 else (512, 16)
    h = bytearray(352)
    struct.pack_into("<i", h, 0, 348)
    struct.pack_into("<8h", h, 40, 3, *labels.shape, 1, 1, 1, 1)
    struct.pack_into("<2h", h, 70, code, bits)
    struct.pack_into("<8f", h, 76, 1, *spacing, 0, 0, 0, 0)
    struct.pack_into("<3f", h, 108, 352, 1, 0)
    h[123] = 2  # millimetres
    struct.pack_into("<2h", h, 252, 0, 1)
    for row in range(3):
        struct.pack_into("<4f", h, 280 + 16 * row, *[spacing[row] if c == row else 0 for c in range(4)])
    h[344:348] = b"n+1\0"
    with open(path, "wb") as f:
        f.write(h)
        f.write(labels.tobytes(order="F"))


# ---- shapes -----------------------------------------------------------------------------------

def ball(shape, centre, radius):
    grid = np.indices(shape)
    return sum(((grid[a] - centre[a]) / radius[a]) ** 2 for a in range(3)) <= 1


def blob(rng, shape):
    noise = ndimage.gaussian_filter(rng.standard_normal(shape), rng.uniform(0.7, 2.5))
    return noise > np.quantile(noise, rng.uniform(0.5, 0.97))


def random_shape(rng, shape):
    return tuple(int(rng.integers(1, 26)) for _ in range(3)) if shape is None else shape


def pairs(rng):
    """Yields (name, truth, prediction, spacing)."""
    def spacing(i):
        return (1.0, 1.0, 1.0) if i % 3 == 0 else tuple(np.float32(rng.uniform(0.3, 6, 3)).tolist())

    def one(a):
        return a.astype(np.uint8)

    for i in range(60):                                     # smooth blobs, any box, several parts
        s = random_shape(rng, None)
        yield f"blob{i}", one(blob(rng, s)), one(blob(rng, s)), spacing(i)
    for i in range(40):                                     # an object and the same one disturbed
        s = tuple(int(v) for v in rng.integers(12, 36, 3))
        c, r = [rng.uniform(0.3, 0.7) * n for n in s], [rng.uniform(0.15, 0.5) * n for n in s]
        t = ball(s, c, r)
        p = ball(s, [x + rng.uniform(-2, 2) for x in c], [x * rng.uniform(0.8, 1.2) for x in r])
        yield f"organ{i}", one(t), one(p), spacing(i)
    for i in range(30):                                     # noise of any density
        s = random_shape(rng, None)
        yield (f"noise{i}", one(rng.random(s) < rng.uniform(0.001, 0.999)),
               one(rng.random(s) < rng.uniform(0.001, 0.999)), spacing(i))
    for i in range(20):                                     # single voxels, corners included
        s = tuple(int(v) for v in rng.integers(1, 30, 3))
        t, p = np.zeros(s, np.uint8), np.zeros(s, np.uint8)
        t[tuple(rng.integers(0, n) for n in s)] = 1
        p[tuple((0 if i % 2 else n - 1) for n in s)] = 1
        yield f"voxel{i}", t, p, spacing(i)
    for i in range(20):                                     # boxes that touch the borders
        s = tuple(int(v) for v in rng.integers(4, 24, 3))
        t, p = np.zeros(s, np.uint8), np.zeros(s, np.uint8)
        axis = i % 3
        sl = [slice(None)] * 3
        sl[axis] = slice(0, int(rng.integers(1, s[axis] + 1)))
        t[tuple(sl)] = 1
        sl[axis] = slice(int(rng.integers(0, s[axis])), None)
        p[tuple(sl)] = 1
        yield f"border{i}", t, p, spacing(i)
    for i in range(15):                                     # thin: planes, lines, slivers one voxel wide
        s = [int(v) for v in rng.integers(6, 30, 3)]
        s[i % 3] = 1 if i % 2 else s[i % 3]
        t, p = np.zeros(s, np.uint8), np.zeros(s, np.uint8)
        at = rng.integers(0, s[0])
        t[at, :, s[2] // 2:] = 1
        p[:, rng.integers(0, s[1]), :] = 1
        yield f"thin{i}", t, p, spacing(i)
    for i in range(15):                                     # several far-apart parts
        s = (30, 28, 26)
        t = np.zeros(s, bool)
        p = np.zeros(s, bool)
        for _ in range(int(rng.integers(2, 6))):
            t |= ball(s, rng.uniform(0, 28, 3), rng.uniform(1, 5, 3))
            p |= ball(s, rng.uniform(0, 28, 3), rng.uniform(1, 5, 3))
        yield f"parts{i}", one(t), one(p), spacing(i)
    for i in range(20):                                     # many classes, some missing on one side
        s = tuple(int(v) for v in rng.integers(5, 26, 3))
        kind = np.uint16 if i % 2 else np.uint8
        step = 40 if i % 4 == 1 else 1
        t = (ndimage.zoom(rng.integers(0, 6, (4, 4, 4)), [n / 4 for n in s], order=0) * step).astype(kind)
        p = t.copy()
        change = blob(rng, s)
        p[change] = (rng.integers(0, 7) * step)
        yield f"classes{i}", t, p, spacing(i)
    s = (9, 8, 7)
    full, none = np.ones(s, np.uint8), np.zeros(s, np.uint8)
    part = none.copy()
    part[2:5, 2:6, 1:4] = 1
    yield "empty_prediction", part, none, (1, 2, 3)
    yield "empty_truth", none, part, (1, 2, 3)
    yield "empty_both", none, none, (1, 2, 3)
    yield "full_both", full, full, (0.5, 2, 3)
    yield "full_truth", full, part, (0.5, 2, 3)
    yield "equal", part, part, (0.5, 2, 3)
    shifted = np.roll(part, 1, 0)
    yield "shifted", part, shifted, (1, 1, 1)


# ---- definitions ------------------------------------------------------------------------------

def surface(mask):
    cross = ndimage.generate_binary_structure(3, 1)
    return mask ^ ndimage.binary_erosion(mask, cross, border_value=0)


def directed(a, b, spacing):
    return ndimage.distance_transform_edt(~surface(b), sampling=spacing)[surface(a)]


def group_pieces(group):
    """Area vectors (per unit cell) of the surface that cuts off a connected group of cube corners, by the
    group's shape; the components are areas seen along the axes."""
    axes = [a for c in group for a in range(3) if tuple(c[i] ^ (i == a) for i in range(3)) in group]
    count = [axes.count(a) // 2 for a in range(3)]  # edges of the group along each axis
    one, unit = np.ones(3), np.eye(3)
    if len(group) == 1:
        return [one / 8]
    if len(group) == 2:
        return [0.5 * (one - unit[count.index(1)])]
    if len(group) == 3:                              # an L: its normal has no edge
        return [0.5 * unit[count.index(0)], 0.375 * one]
    if 0 in count:                                   # a face
        return [unit[count.index(0)]]
    ends = [c for c in group if sum(tuple(c[i] ^ (i == a) for i in range(3)) in group for a in range(3)) == 1]
    if len(ends) == 3:                               # a corner and its three neighbours
        return [0.75 * one]
    out = [0.5 * one]                                # a path: the axes of its two end edges
    for c in ends:
        a = next(a for a in range(3) if tuple(c[i] ^ (i == a) for i in range(3)) in group)
        out.append(0.25 * (one - unit[a]))
    return out


def cell_area(code, spacing):
    """Marching-cubes area in the cube of 8 voxel centres; the rarer kind of corners is cut off."""
    corners = [c for k, c in enumerate(itertools.product((0, 1), repeat=3)) if code >> k & 1]
    if len(corners) > 4:
        corners = [c for c in itertools.product((0, 1), repeat=3) if c not in corners]
    scale = np.prod(spacing) / np.array(spacing)
    area, left = 0.0, set(corners)
    while left:
        group, front = set(), [left.pop()]
        while front:
            c = front.pop()
            group.add(c)
            for a in range(3):
                d = tuple(c[i] ^ (i == a) for i in range(3))
                if d in left:
                    left.discard(d)
                    front.append(d)
        area += sum(np.linalg.norm(v * scale) for v in group_pieces(group))
    return area


def codes(mask):
    m = np.pad(mask, 1).astype(int)
    out = 0
    for k, (x, y, z) in enumerate(itertools.product((0, 1), repeat=3)):
        n = [m.shape[a] - 1 for a in range(3)]
        out = out + (m[x:x + n[0], y:y + n[1], z:z + n[2]] << k)
    return out


@functools.lru_cache(maxsize=None)
def area_table(spacing):
    return np.array([cell_area(c, spacing) if 0 < c < 255 else 0.0 for c in range(256)])


def weighted(distance, area, fraction):
    order = np.argsort(distance, kind="stable")
    sums = np.cumsum(area[order]) / area.sum()
    return distance[order][min(np.searchsorted(sums, fraction), len(sums) - 1)]


def scores(t, p, spacing, tau):
    """Metric -> value, or (low, high) where rounding may decide; None = undefined."""
    nt, np_, both = int(t.sum()), int(p.sum()), int((t & p).sum())
    out = dict.fromkeys(["dice", "jaccard", "asd", "assd", "hd", "hd95", "hd95_monai", "hd95_deepmind",
                         "nsd", "volume_error"])
    if nt + np_:
        out["dice"], out["jaccard"] = 2 * both / (nt + np_), both / (nt + np_ - both)
    if nt:
        out["volume_error"] = (np_ - nt) / nt
    if bool(nt) != bool(np_):
        out["nsd"] = 0.0
    if not nt or not np_:
        return out
    pt, tp = directed(p, t, spacing), directed(t, p, spacing)
    out["asd"], out["assd"] = pt.mean(), (pt.mean() + tp.mean()) / 2
    out["hd"] = max(pt.max(), tp.max())
    out["hd95"] = np.percentile(np.concatenate([pt, tp]), 95)
    out["hd95_monai"] = max(np.percentile(pt, 95), np.percentile(tp, 95))
    ct, cp, table = codes(t), codes(p), area_table(spacing)
    bt, bp = (ct > 0) & (ct < 255), (cp > 0) & (cp < 255)
    dt = ndimage.distance_transform_edt(~bt, sampling=spacing)[bp]
    dp = ndimage.distance_transform_edt(~bp, sampling=spacing)[bt]
    at, ap = table[ct[bt]], table[cp[bp]]
    out["hd95_deepmind"] = tuple(max(weighted(dt, ap, f), weighted(dp, at, f))
                                 for f in (0.95 - 1e-9, 0.95 + 1e-9))
    total = at.sum() + ap.sum()
    out["nsd"] = tuple((ap[dt <= x].sum() + at[dp <= x].sum()) / total for x in (tau - 1e-9, tau + 1e-9))
    return out


# ---- comparison -------------------------------------------------------------------------------

FRACTIONS = {"dice", "jaccard", "nsd", "volume_error"}


def agrees(name, got, want):
    if want is None or got is None:
        return want is None and got is None
    low, high = want if isinstance(want, tuple) else (want, want)
    eps = 1e-9 if name in FRACTIONS else 1e-6
    return min(low, high) - eps <= got <= max(low, high) + eps


def expected_means(cases):
    """Case means, then their mean, from the program's own values: what `mean` must be."""
    out = {}
    for name in cases[0]["mean"]:
        per_case = []
        for c in cases:
            v = [k[name] for k in c["classes"].values() if k[name] is not None]
            if v:
                per_case.append(sum(v) / len(v))
        out[name] = (np.mean(per_case) if per_case else None,
                     np.std(per_case, ddof=1) if len(per_case) > 1 else None)
    return out


def run(falx, folder, protocol, threads):
    done = subprocess.run([falx, "eval", folder + "/truth", folder + "/prediction", "--json", "-q", "--nsd-mm",
                           str(TAU), "--protocol", protocol, "--threads", str(threads)],
                          stdout=subprocess.PIPE)
    if done.returncode:
        sys.exit(f"falx eval ended with {done.returncode}")
    return done.stdout


def compare(report, all_pairs, protocol):
    n_values = n_bad = 0
    by_name = {c["name"]: c for c in report["cases"]}
    for name, t, p, spacing in all_pairs:
        for class_, got in by_name[name]["classes"].items():
            tc, pc = t == int(class_), p == int(class_)
            want = scores(tc, pc, (1, 1, 1) if protocol == "paper" else spacing, TAU)
            if protocol == "paper" and not pc.any():
                want.update(dice=0, jaccard=0, asd=0, hd95=0)
            for metric, value in want.items():
                n_values += 1
                if not agrees(metric, got[metric], value):
                    n_bad += 1
                    print(f"{protocol} {name} class {class_} {metric}: {got[metric]}, should be {value}")
        present = set(np.unique(t)) | set(np.unique(p))
        if not present - {0} <= {int(k) for k in by_name[name]["classes"]}:
            n_bad += 1
            print(f"{name}: classes {present} not all reported")
    for metric, (mean, sd) in expected_means(report["cases"]).items():
        n_values += 2
        if not agrees(metric, report["mean"][metric], mean) or not agrees(metric, report["sd"][metric], sd):
            n_bad += 1
            print(f"{protocol} mean {metric}: {report['mean'][metric]}, should be {mean}")
    return n_values, n_bad


def main():
    falx = sys.argv[1]
    folder = sys.argv[2] if len(sys.argv) > 2 else None
    scratch = None if folder else tempfile.TemporaryDirectory()
    folder = folder or scratch.name
    os.makedirs(folder + "/truth", exist_ok=True)
    os.makedirs(folder + "/prediction", exist_ok=True)
    all_pairs = list(pairs(np.random.default_rng(20240229)))
    for name, t, p, spacing in all_pairs:
        write_nii(f"{folder}/truth/{name}.nii", t, spacing)
        write_nii(f"{folder}/prediction/{name}.nii", p, spacing)
    n_bad = 0
    for protocol in ("mm", "paper"):
        text = run(falx, folder, protocol, 1)
        if text != run(falx, folder, protocol, 3):
            n_bad += 1
            print(f"{protocol}: 1 and 3 threads print different numbers")
        n, bad = compare(json.loads(text), all_pairs, protocol)
        n_bad += bad
        print(f"protocol {protocol}: {len(all_pairs)} pairs, {n} values, {bad} disagree")
    sys.exit(1 if n_bad else 0)


if __name__ == "__main__":
    main()
