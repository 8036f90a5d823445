#!/usr/bin/env python3
"""Makes tests/golden/resample.h: small inputs and what SciPy answers, for tests/test_resample.c.

Run: /usr/bin/python3 tools/golden_resample.py > tests/golden/resample.h
Arrays are written first axis fastest, as falx keeps them.
"""
import numpy as np
import scipy
from scipy import ndimage

rng = np.random.default_rng(2)


def put(name, array, kind):
    flat = np.asarray(array).ravel(order="F")
    words = [("%.9gf" % v if kind == "float" else "%d" % v) for v in flat]
    words = [w if kind != "float" or "." in w or "e" in w else w[:-1] + ".0f" for w in words]
    print("static const %s %s[] = {" % (kind, name))
    for i in range(0, len(words), 6):
        print("    " + ", ".join(words[i:i + 6]) + ",")
    print("};\n")


def centred(n, spacing, target):
    m = max(1, int(round(n * spacing / target)))
    step = target / spacing
    return np.arange(m) * step + 0.5 * ((n - 1) - (m - 1) * step)


def clamp(x, n):
    return np.clip(x, 0, n - 1)


image = (rng.normal(size=(6, 5, 7)) * 100).astype(np.float32)
label = rng.integers(0, 4, size=(6, 5, 7))
print("/* Made by tools/golden_resample.py with NumPy %s and SciPy %s; do not edit. */" %
      (np.__version__, scipy.__version__))
print("#ifndef FALX_GOLDEN_RESAMPLE_H\n#define FALX_GOLDEN_RESAMPLE_H\n")
put("golden_image", image, "float")
put("golden_label", label, "unsigned short")

for name, to in (("up", (11, 9, 7)), ("down", (4, 3, 10))):
    zoom = [t / n for t, n in zip(to, image.shape)]
    linear = ndimage.zoom(image.astype(np.float64), zoom, order=1, mode="nearest")
    nearest = ndimage.zoom(label, zoom, order=0, mode="nearest")
    assert linear.shape == to and nearest.shape == to
    put("golden_zoom1_" + name, linear, "float")
    put("golden_zoom0_" + name, nearest, "unsigned short")

# Centred grids: spacing (1, 2, 0.7) to (0.6, 1.1, 1.3) mm.
grid = [clamp(centred(n, s, t), n) for n, s, t in zip(image.shape, (1, 2, 0.7), (0.6, 1.1, 1.3))]
where = np.stack(np.meshgrid(*grid, indexing="ij"))
print("enum { GOLDEN_CENTRED_0 = %d, GOLDEN_CENTRED_1 = %d, GOLDEN_CENTRED_2 = %d };\n"
      % where.shape[1:])
cubic = ndimage.map_coordinates(image.astype(np.float64), where, order=3, mode="mirror")
linear = ndimage.map_coordinates(image.astype(np.float64), where, order=1, mode="nearest")
put("golden_cubic", cubic, "float")
put("golden_linear", linear, "float")

print("#endif")
