#!/usr/bin/python3
"""Golden files of the methods with a distance head or a critic: trainings in PyTorch, in double.

    tools/golden_twin.py dtc > tests/golden/dtc.h

Batches, trunk, losses of labels and the loop are those of golden_aua.py, see there. Distance maps are SciPy's
and made from their definition, not from the C code.
"""
import math
import sys

import numpy as np
import torch
import torch.nn.functional as F
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
    "dan": {
        "dan_two": (SCENE, dict(method="dan", seed=71, patch=(32, 32, 16), lr=0.0002)),
        "dan_three": (THREE, dict(
            method="dan", seed=72, patch=(32, 16, 32), lr=0.0001, ramp="RAMP_CONTINUOUS", consistency=2.0,
            schedule="SCHEDULE_POLY", batch=3, labeled_batch=1)),
    },
    "sassnet": {
        "sassnet_two": (SCENE, dict(method="sassnet", seed=81, patch=(32, 32, 16), lr=0.0002)),
        "sassnet_three": (THREE, dict(
            method="sassnet", seed=82, patch=(32, 16, 32), lr=0.0001, ramp="RAMP_CONTINUOUS", consistency=2.0,
            schedule="SCHEDULE_POLY", batch=3, labeled_batch=2)),
    },
    "simcvd": {
        "simcvd_two": (SCENE, dict(method="simcvd", seed=91, patch=(32, 32, 32), lr=0.0002)),
        "simcvd_three": (THREE, dict(
            method="simcvd", seed=92, patch=(32, 32, 32), lr=0.0001, ramp="RAMP_CONTINUOUS", consistency=2.0,
            schedule="SCHEDULE_POLY", batch=3, labeled_batch=1, dice_share=0.7)),
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


class SimNet(Twin):
    """With a linear view of the deepest level and a projector of the slices of its distance maps."""

    def drop(self, x):
        y = super().drop(x)
        if x.shape[1] == 16 * self.s["filters"]:  # the bottleneck, before the decoder
            self.places = self.conv(y, 1, 8 * self.s["filters"], "distill")
        return y

    def project(self, maps):
        """(n, c, d, h, w) -> (n * w, 8 * filters), slice by slice"""
        n, c, d, h, w = maps.shape
        f, x = self.s["filters"], maps.permute(0, 4, 1, 2, 3).reshape(n * w, c, d, h)
        for i in range(3):
            name, shape = "projector.conv%d" % (i + 1), (f << i, x.shape[1], 3, 3)
            fan = shape[1] * 9
            weight, bias = self.param(name + ".weight", shape, fan), self.param(name + ".bias", shape[:1], fan)
            x = F.relu(F.conv2d(x, weight, bias, stride=2, padding=1))
        x = x.mean((2, 3))
        weight = self.param("projector.linear.weight", (8 * f, 4 * f), 4 * f)
        return F.linear(x, weight, self.param("projector.linear.bias", (8 * f,), 4 * f))

    def __call__(self, x):
        out = super().__call__(x)
        out["places"], out["slices"] = base.rows(self.places).flatten(0, 1), self.project(out["distance"])
        return out


def tell_apart(anchors, others, tau):
    score = F.normalize(anchors, dim=1) @ F.normalize(others, dim=1).t() / tau
    return F.cross_entropy(score, torch.arange(len(score)))


class Critic(base.Net):
    """4x4x4 convolutions of stride 2, leaky ReLU, dropout; two logits an item."""

    def __init__(self, s, scene, channels):
        self.s, self.scene, self.salt, self.p = s, scene, base.salt_of("critic"), {}
        with torch.no_grad():
            self.run(torch.zeros([1, channels, 16, 16, 16], dtype=torch.float64),
                     torch.zeros([1, scene["channels"], 16, 16, 16], dtype=torch.float64), False, 0)

    def down(self, x, c, name):
        shape = (c, x.shape[1], 4, 4, 4)
        w, b = self.param(name + ".weight", shape, shape[1] * 64), self.param(name + ".bias", (c,), shape[1] * 64)
        return F.conv3d(x, w, b, stride=2, padding=1)

    def run(self, maps, image, train, draw):
        self.train, self.mask_of, c = train, (draw, base.DROPOUT + 1), 4 * self.s["filters"]
        x = self.down(maps, c, "conv0") + self.down(image, c, "conv1")
        for i in (1, 2, 3):
            self.layer = i  # dropout's numbers belong to the layer before
            x = self.down(self.drop(F.leaky_relu(x, 0.2)), c << i, "conv%d" % (i + 1))
        x = F.leaky_relu(x, 0.2).mean((2, 3, 4))
        w, b = self.param("classifier.weight", (2, 8 * c), 8 * c), self.param("classifier.bias", (2,), 8 * c)
        return F.linear(x, w, b)


class Adam:
    def __init__(self, net):
        self.net = net
        self.adam = torch.optim.Adam(net.p.values(), lr=1e-4, betas=(0.9, 0.99))

    def step(self, loss):
        self.adam.zero_grad(set_to_none=True)
        loss.backward()
        norm = math.sqrt(sum((p.grad ** 2).sum().item() for p in self.net.p.values()))
        self.adam.step()
        return norm


class Run(base.Run):
    def fool(self, maps, image):
        """The critic should take unlabelled items for labelled ones; it is not moved by this."""
        U = self.U
        verdict = self.critic.run(maps[self.L:], image[self.L:], False, self.draw)
        return "adversarial", F.cross_entropy(verdict, torch.ones(U, dtype=torch.int64))

    def criticise(self, t, image, map_of):
        with torch.no_grad():
            maps = map_of(self.student.run(image, False, 0, self.draw))
        truth = torch.tensor([1] * self.L + [0] * self.U)
        loss = F.cross_entropy(self.critic.run(maps, image, True, self.draw), truth)
        self.note(t, critic=loss, critic_gradient=self.judge.step(loss))

    def dan(self):
        s, L = self.s, self.L
        self.student = base.Net(s, self.scene, "student")
        self.critic = Critic(s, self.scene, self.scene["classes"])
        update, self.judge = base.Optimizer(self.student), Adam(self.critic)
        for t, total, image, label, _ in self.steps(1.0):
            z = self.student.run(image, True, 0, self.draw)["mean"]
            ce, d = cross_entropy(z[:L], label[:L]), dice(z[:L], label[:L], None, 0)
            name, value = self.fool(torch.softmax(z, 1), image)
            sup, w = (1 - s["dice_share"]) * ce + s["dice_share"] * d, ramp(s, t, total)
            loss = sup + w * value
            norm = update.step(loss, t, total)
            self.note(t, loss=loss, supervised=sup, ce=ce, dice=d, weight=w, gradient=norm, **{name: value})
            self.criticise(t, image, lambda out: torch.softmax(out["mean"], 1))

    def twin(self, term, after=None):
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
            if after:
                after(t, image)

    def dual(self, out, image):
        step = torch.sigmoid(-1500 * out["distance"])
        return "consistency", ((step - torch.softmax(out["mean"], 1)[:, 1:]) ** 2).mean()

    def sassnet(self):
        self.critic = Critic(self.s, self.scene, self.scene["classes"] - 1)
        self.judge = Adam(self.critic)
        self.twin(lambda out, image: self.fool(out["distance"], image),
                  lambda t, image: self.criticise(t, image, lambda out: out["distance"]))

    def simcvd(self):
        s, L = self.s, self.L
        self.student, self.teacher = (SimNet(s, self.scene, n) for n in ("student", "teacher"))
        update = base.Optimizer(self.student)
        for t, total, image, label, _ in self.steps(1.0):
            out = self.student.run(image, True, 0, self.draw)
            with torch.no_grad():
                other = self.teacher.run(image, True, 1, self.draw)
            z = out["mean"]
            ce, d = cross_entropy(z[:L], label[:L]), dice(z[:L], label[:L])
            apart = ((out["distance"][:L] - sdf(label[:L], self.scene["classes"])) ** 2).mean()
            sup = (1 - s["dice_share"]) * ce + s["dice_share"] * d + 0.1 * apart
            same = ((torch.softmax(z[L:], 1) - torch.softmax(other["mean"][L:], 1)) ** 2).mean()
            contrast = tell_apart(other["slices"], out["slices"], 0.5)
            distil, w = tell_apart(out["places"], other["places"], 1.0), ramp(s, t, total)
            agreement = same + distil + 5 * contrast
            loss = sup + w * agreement
            norm = update.step(loss, t, total)
            self.note(t, loss=loss, supervised=sup, ce=ce, dice=d, distance=apart, agreement=agreement,
                      consistency=same, distillation=distil, contrast=contrast, weight=w, gradient=norm)
            self.teacher.average(self.student, t, s["ema_decay"])

    def run(self, name):
        self.name, self.prototypes = name, None
        {"dtc": lambda: self.twin(self.dual), "dan": self.dan, "sassnet": self.sassnet,
         "simcvd": self.simcvd}[self.s["method"]]()


def main():
    torch.set_num_threads(1)
    method, made = sys.argv[1], {}
    print("/* Made by tools/golden_twin.py with PyTorch %s: do not edit. */" % torch.__version__.split("+")[0])
    for name, (scene, change) in RUNS[method].items():
        s = dict(base.BASE, **change)
        run = Run(scene, s)
        run.run(name)
        base.write_run(name, run)
        made[name] = (scene, s, run)
    base.write_table(made, "golden_runs_" + method)


if __name__ == "__main__":
    main()
