#!/usr/bin/env python3
"""Reading speed of falx beside numpy and Python's gzip, in one run.

Usage: python3 tools/bench_io.py [build/falx]

The scan has 256 x 256 x 160 voxels of 16 bits: a smooth body in air with noise in the low bits. Both read it
and find its minimum, maximum and mean: falx as a whole process, Python the shortest way there is and without
its start-up. Figures are medians of five, in millions of voxel bytes a second.
"""
import gzip
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

DIMS = (256, 256, 160)


def make_scan():
    i, j, k = np.meshgrid(*[np.arange(n) for n in DIMS], indexing="ij", sparse=True)
    inside = ((i - 128) / 110) ** 2 + ((j - 128) / 90) ** 2 <= 1
    body = 60 * np.sin(0.07 * i) * np.cos(0.05 * (j + k))
    noise = np.random.default_rng(1337).integers(0, 24, DIMS)
    return np.where(inside, body + noise, -1000).astype("<i2").ravel(order="F")


def nifti_bytes(voxels):
    header = np.zeros(352, np.uint8)
    header[0:4].view("<i4")[:] = 348
    header[40:56].view("<i2")[:] = (3,) + DIMS + (1, 1, 1, 1)
    header[70:74].view("<i2")[:] = (4, 16)
    header[76:92].view("<f4")[:] = 1
    header[108:112].view("<f4")[:] = 352
    header[344:348] = np.frombuffer(b"n+1\0", np.uint8)
    return header.tobytes() + voxels.tobytes()


def read_plain(path):
    return np.fromfile(path, "<i2", offset=352)


def read_gzip(path):
    with gzip.open(path) as f:
        return np.frombuffer(f.read(), "<i2", offset=352)


def describe(falx):
    """What `falx info` tells: the whole process, reading and statistics."""
    def run(path):
        out = subprocess.run([falx, "info", "--json", "--quiet", path], check=True, capture_output=True)
        seen = json.loads(out.stdout)[0]
        return seen["min"], seen["max"], seen["mean"]
    return run


def measured(read):
    """The same numbers from an array, imports not counted."""
    def run(path):
        voxels = read(path)
        return voxels.min(), voxels.max(), voxels.mean()
    return run


def rate(run, path, want):
    assert np.allclose(run(path), (want.min(), want.max(), want.mean()), rtol=1e-9)
    times = []
    for _ in range(5):
        start = time.perf_counter()
        run(path)
        times.append(time.perf_counter() - start)
    return want.nbytes / statistics.median(times) / 1e6


def main():
    falx = sys.argv[1] if len(sys.argv) > 1 else "build/falx"
    voxels = make_scan()
    with tempfile.TemporaryDirectory() as folder:
        plain, packed = os.path.join(folder, "a.nii"), os.path.join(folder, "a.nii.gz")
        with open(plain, "wb") as f:
            f.write(nifti_bytes(voxels))
        with gzip.open(packed, "wb", compresslevel=6) as f:
            f.write(nifti_bytes(voxels))
        print("%-16s %10s %10s %8s" % ("MB/s", "falx", "python", "ratio"))
        for path, read in ((plain, read_plain), (packed, read_gzip)):
            falx_rate, python_rate = rate(describe(falx), path, voxels), rate(measured(read), path, voxels)
            print("%-16s %10.1f %10.1f %8.2f" % (os.path.basename(path), falx_rate, python_rate,
                                                 falx_rate / python_rate))


main()
