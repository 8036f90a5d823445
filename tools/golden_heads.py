#!/usr/bin/python3
"""Golden files of the methods with a distance head or a critic: trainings in PyTorch, in double.

    tools/golden_heads.py dtc > tests/golden/dtc.h

Batches, trunk, losses of labels and the loop are those of golden_aua.py, see there. Distance maps are SciPy's
and made from their definition, not from the C code.
"""
import math
import sys

import numpy as np
import torch
from scipy import ndimage

import golden_aua as base
from golden_aua import SCENE, THREE, cross_entropy, dice, ramp

RUNS = {
    "dtc": {
        "dtc_two": (SCENE, dict(method="dtc", seed=61, patch=(32, 32, 32), lr=0.00005, consistency=50.0)),
        "dtc_three": (THREE, dict(
            method="dtc", seed=62, patch=(32, 32, 32), lr=0.00002, ramp="RAMP_CONTINUOUS", consistency=2.0,
            schedule="SCHEDULE_POLY", batch=3, labeled_batch=1)),
    },
}


# ---- signed distances ---------------------------------------------------------------------------------

def sdf(label, classes):
    """(n, d, h, w) -> (n, classes - 1, d, h, w)"""
    out = np.zeros((len(label), classes - 1) + tuple(label.shape[1:]))
    six = ndimage.generate_binary_structure(3, 1)
    for i, y in enumerate(label.numpy()):
        for c in range(1, classes):
            own = y == c
            if not own.any() or own.all():
                continue
            far, deep = ndimage.distance_transform_edt(~own), ndimage.distance_transform_edt(own)
            out[i, c - 1] = far / far.max() - deep / deep.max()
            out[i, c - 1][own & ndimage.binary_dilation(~own, six)] = 0
    return torch.from_numpy(out)


class Twin(base.Net):
    """V-Net with a distance head and a head of logits without background."""

    def __call__(self, x):
        c, trunk = self.scene["classes"], self.trunk(x)
        raw = self.conv(trunk, 1, c - 1, "out_conv")
        z = self.conv(trunk, 1, c - 1, "out_conv2")
        return {"distance": torch.tanh(raw), "mean": torch.cat([torch.zeros_like(z[:, :1]), z], 1)}


class Run(base.Run):
    def twin(self, term):
        """Dice and distances of labels, and a term of the student's outputs on the whole batch."""
        s, L = self.s, self.L
        self.student = Twin(s, self.scene, "student")
        update = base.Optimizer(self.student)
        for t, total, image, label, _ in self.steps(1.0):
            out = self.student.run(image, True, 0, self.draw)
            ce, d = cross_entropy(out["mean"][:L], label[:L]), dice(out["mean"][:L], label[:L])
            apart = ((out["distance"][:L] - sdf(label[:L], self.scene["classes"])) ** 2).mean()
            name, value = term(out, image)
            sup, w = d + 0.3 * apart, ramp(s, t, total)
            loss = sup + w * value
            norm = update.step(loss, t, total)
            self.note(t, loss=loss, supervised=sup, ce=ce, dice=d, distance=apart, weight=w, gradient=norm,
                      **{name: value})

    def dual(self, out, image):
        step = torch.sigmoid(-1500 * out["distance"])
        return "consistency", ((step - torch.softmax(out["mean"], 1)[:, 1:]) ** 2).mean()

    def run(self, name):
        self.name, self.prototypes = name, None
        {"dtc": lambda: self.twin(self.dual)}[self.s["method"]]()


def main():
    torch.set_num_threads(1)
    method, made = sys.argv[1], {}
    print("/* Made by tools/golden_heads.py with PyTorch %s: do not edit. */" % torch.__version__.split("+")[0])
    for name, (scene, change) in RUNS[method].items():
        s = dict(base.BASE, **change)
        run = Run(scene, s)
        run.run(name)
        base.write_run(name, run)
        made[name] = (scene, s, run)
    base.write_table(made, "golden_%s" % method)


if __name__ == "__main__":
    main()
