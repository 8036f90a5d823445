#!/usr/bin/env python3
"""Times `falx eval` beside the SciPy way on a 512 x 512 x 300 pair of masks, in the same run.

usage: bench_eval.py FALX [--shape organ|body|scattered] [--dims X,Y,Z] [--threads N] [--repeat N]

Both start from the same two uncompressed .nii files and end with numbers; reading is part of the time.
The SciPy way is what the field's metric library does: Dice and Jaccard, then average surface distance and
pooled 95 % Hausdorff distance from binary_erosion and distance_transform_edt over the whole arrays (two
erosions and one transform a direction; each is done once here, not again for each metric). falx
computes all of its ten metrics. Prints one JSON object.
"""
import argparse
import json
import os
import resource
import subprocess
import tempfile
import time

import numpy as np
from scipy import ndimage

from metrics_oracle import write_nii

SPACING = (0.75, 0.75, 1.0)


def ellipsoid(dims, centre, radius):
    """In place along the axes: no array of coordinates for 79 million voxels."""
    parts = [(((np.arange(n, dtype=np.float32) / n) - c) / r) ** 2 for n, c, r in zip(dims, centre, radius)]
    return (parts[0][:, None, None] + parts[1][None, :, None] + parts[2][None, None, :]) <= 1


def make_pair(shape, dims):
    if shape == "body":        # nearly the whole array
        return (ellipsoid(dims, (0.5, 0.5, 0.5), (0.49, 0.49, 0.6)),
                ellipsoid(dims, (0.505, 0.495, 0.5), (0.48, 0.49, 0.6)))
    if shape == "scattered":   # an organ, and a prediction with specks far away
        t, p = make_pair("organ", dims)
        rng = np.random.default_rng(1)
        for _ in range(40):
            at = [int(rng.integers(0, n - 3)) for n in dims]
            p[at[0]:at[0] + 3, at[1]:at[1] + 3, at[2]:at[2] + 3] = True
        return t, p
    t = ellipsoid(dims, (0.35, 0.45, 0.5), (0.2, 0.16, 0.25)) | ellipsoid(dims, (0.5, 0.4, 0.55), (0.18, 0.08, 0.12))
    p = ellipsoid(dims, (0.355, 0.452, 0.5), (0.195, 0.165, 0.24)) | ellipsoid(dims, (0.5, 0.4, 0.55), (0.16, 0.085, 0.12))
    return t, p


def read_nii(path, dims):
    return np.fromfile(path, np.uint8, offset=352).reshape(dims, order="F")


def scipy_way(truth_path, prediction_path, dims):
    t, p = read_nii(truth_path, dims) != 0, read_nii(prediction_path, dims) != 0
    both = np.count_nonzero(t & p)
    sizes = np.count_nonzero(t), np.count_nonzero(p)
    cross = ndimage.generate_binary_structure(3, 1)
    ts = t ^ ndimage.binary_erosion(t, cross)
    ps = p ^ ndimage.binary_erosion(p, cross)
    pt = ndimage.distance_transform_edt(~ts, sampling=SPACING)[ps]
    tp = ndimage.distance_transform_edt(~ps, sampling=SPACING)[ts]
    return {"dice": 2 * both / sum(sizes), "jaccard": both / (sum(sizes) - both), "asd": pt.mean(),
            "hd95": np.percentile(np.concatenate([pt, tp]), 95)}


def falx_way(falx, truth, prediction, threads):
    done = subprocess.run([falx, "eval", truth, prediction, "--json", "-q", "--threads", str(threads)],
                          stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)["mean"]


def main():
    a = argparse.ArgumentParser()
    a.add_argument("falx")
    a.add_argument("--shape", default="organ", choices=["organ", "body", "scattered"])
    a.add_argument("--dims", default="512,512,300")
    a.add_argument("--threads", type=int, default=2)
    a.add_argument("--repeat", type=int, default=3)
    o = a.parse_args()
    dims = tuple(int(v) for v in o.dims.split(","))
    with tempfile.TemporaryDirectory() as folder:
        truth, prediction = os.path.join(folder, "truth.nii"), os.path.join(folder, "prediction.nii")
        t, p = make_pair(o.shape, dims)
        write_nii(truth, t.astype(np.uint8), SPACING)
        write_nii(prediction, p.astype(np.uint8), SPACING)
        del t, p
        times = []
        for _ in range(o.repeat):
            start = time.monotonic()
            ours = falx_way(o.falx, truth, prediction, o.threads)
            times.append(time.monotonic() - start)
        falx_kb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        start = time.monotonic()
        theirs = scipy_way(truth, prediction, dims)
        scipy_s = time.monotonic() - start
    falx_s = sorted(times)[len(times) // 2]
    print(json.dumps({
        "shape": o.shape, "dims": dims, "threads": o.threads, "falx_s": round(falx_s, 3),
        "falx_s_all": [round(t, 3) for t in times], "scipy_s": round(scipy_s, 2),
        "ratio": round(scipy_s / falx_s, 1), "falx_peak_mib": falx_kb // 1024,
        "scipy_peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "largest_difference": max(abs(ours[k] - theirs[k]) for k in theirs)}, indent=2))


if __name__ == "__main__":
    main()
