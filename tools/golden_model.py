#!/usr/bin/env python3
"""The published V-Net and AUA's network in PyTorch, as modules with the released names: the other side of
the exchange of model files.

  golden_model.py golden FOLDER       makes model.safetensors.gz and model.h for tests/test_model_file.c
  golden_model.py write FILE NETWORK  a randomly made "vnet" or "aua" as a state dict, no metadata
  golden_model.py compare FILE TEXT   loads FILE by name, strictly, and compares the outputs with those in
                                      TEXT, one number a line, as `test_model_file --outputs FILE` prints
  golden_model.py same FILE FILE      both hold the same tensors, to the bit

The image is a formula of the index, so that both sides see the same one.
"""
import gzip
import json
import sys

import numpy as np
import torch
from torch import nn

SHAPE = (1, 32, 16, 48)  # n, d, h, w: all different, so that no two axes can be mistaken
KEEP = 1024              # outputs kept in model.h
TYPES = {"F32": np.float32, "F64": np.float64, "I64": np.int64, "U8": np.uint8}


def conv_block(stages, i, o):
    ops = []
    for s in range(stages):
        ops += [nn.Conv3d(i if s == 0 else o, o, 3, padding=1), nn.BatchNorm3d(o), nn.ReLU()]
    return ops


class Block(nn.Module):
    def __init__(self, ops):
        super().__init__()
        self.conv = nn.Sequential(*ops)

    def forward(self, x):
        return self.conv(x)


def block(stages, i, o):
    return Block(conv_block(stages, i, o))


def down(i):
    return Block([nn.Conv3d(i, 2 * i, 2, stride=2), nn.BatchNorm3d(2 * i), nn.ReLU()])


def up(i):
    return Block([nn.ConvTranspose3d(i, i // 2, 2, stride=2), nn.BatchNorm3d(i // 2), nn.ReLU()])


class VNet(nn.Module):
    def __init__(self, channels, classes, f):
        super().__init__()
        self.block_one, self.block_one_dw = block(1, channels, f), down(f)
        self.block_two, self.block_two_dw = block(2, 2 * f, 2 * f), down(2 * f)
        self.block_three, self.block_three_dw = block(3, 4 * f, 4 * f), down(4 * f)
        self.block_four, self.block_four_dw = block(3, 8 * f, 8 * f), down(8 * f)
        self.block_five, self.block_five_up = block(3, 16 * f, 16 * f), up(16 * f)
        self.block_six, self.block_six_up = block(3, 8 * f, 8 * f), up(8 * f)
        self.block_seven, self.block_seven_up = block(3, 4 * f, 4 * f), up(4 * f)
        self.block_eight, self.block_eight_up = block(2, 2 * f, 2 * f), up(2 * f)
        self.block_nine, self.out_conv = block(1, f, f), nn.Conv3d(f, classes, 1)

    def forward(self, x):
        x1 = self.block_one(x)
        x2 = self.block_two(self.block_one_dw(x1))
        x3 = self.block_three(self.block_two_dw(x2))
        x4 = self.block_four(self.block_three_dw(x3))
        x = self.block_five_up(self.block_five(self.block_four_dw(x4))) + x4
        x = self.block_six_up(self.block_six(x)) + x3
        x = self.block_seven_up(self.block_seven(x)) + x2
        x = self.block_eight_up(self.block_eight(x)) + x1
        return self.out_conv(self.block_nine(x))

    def outputs(self, x):
        return [self.forward(x)]


def head(norm):
    """HeadConvBlock of the released code."""
    ops = []
    for i in range(3):
        ops += [nn.Conv3d(16, 16, 1)] + ([nn.BatchNorm3d(16)] if norm and i < 2 else [])
        ops += [nn.ReLU()] if i < 2 else []
    return Block(ops)


class AUA(VNet):
    def __init__(self, channels, classes, f, rank, norm):
        super().__init__(channels, 16, f)
        self.head = head(norm)
        self.mean_l = nn.Conv3d(16, classes, 1)
        self.log_cov_diag_l = nn.Conv3d(16, classes, 1)
        self.cov_factor_l = nn.Conv3d(16, classes * rank, 1)

    def outputs(self, x):
        f = self.forward(x)
        h = torch.relu(f)
        return [f, self.mean_l(h), self.log_cov_diag_l(h), self.cov_factor_l(h)]


def read_tensors(path):
    with (gzip.open if path.endswith(".gz") else open)(path, "rb") as f:
        n = int.from_bytes(f.read(8), "little")
        header, data, found = json.loads(f.read(n)), f.read(), {}
    header.pop("__metadata__", None)
    for name, t in header.items():
        begin, end = t["data_offsets"]
        found[name] = np.frombuffer(data[begin:end], TYPES[t["dtype"]]).reshape(t["shape"])
    return found


def file_bytes(state):
    header, data = {}, b""
    for name, t in state.items():
        a = t.numpy()
        dtype = [k for k, v in TYPES.items() if v == a.dtype][0]
        header[name] = {"dtype": dtype, "shape": list(a.shape), "data_offsets": [len(data), len(data) + a.nbytes]}
        data += a.tobytes()
    text = json.dumps(header, separators=(",", ":")).encode()
    return len(text).to_bytes(8, "little") + text + data


def load(path):
    """The network that the names and shapes tell of, with the numbers of the file."""
    t = read_tensors(path)
    f, channels = t["block_one.conv.0.weight"].shape[:2]
    if "mean_l.weight" in t:
        classes = t["mean_l.weight"].shape[0]
        net = AUA(channels, classes, f, t["cov_factor_l.weight"].shape[0] // classes,
                  "head.conv.6.weight" in t)
    else:
        net = VNet(channels, t["out_conv.weight"].shape[0], f)
    net.load_state_dict({k: torch.from_numpy(v.copy()) for k, v in t.items()}, strict=True)
    return net.eval(), channels


def image(channels):
    i = np.arange(int(np.prod(SHAPE)) * channels, dtype=np.float64)
    flat = np.sin(1.3 * i + 0.0007 * i * i).astype(np.float32)
    return torch.from_numpy(flat.reshape(SHAPE + (channels,))).permute(0, 4, 1, 2, 3).contiguous()


def outputs(net, channels):
    """All outputs, channels last, one after the other; in double, as the better of the two."""
    with torch.no_grad():
        out = net.double().outputs(image(channels).double())
    return np.concatenate([t.permute(0, 2, 3, 4, 1).reshape(-1).numpy() for t in out])


def settle(net, channels):
    """Gives the batch norms something to remember: a few passes in training mode."""
    gen = torch.Generator().manual_seed(3)
    net.train()
    with torch.no_grad():
        for m in net.modules():
            if isinstance(m, nn.BatchNorm3d):
                m.momentum = 0.9
                m.weight.uniform_(0.5, 1.5, generator=gen)
                m.bias.uniform_(-0.3, 0.3, generator=gen)
        for k in range(4):
            net(image(channels) * (1 + 0.1 * k) + 0.05 * k)
        for m in net.modules():
            if isinstance(m, nn.BatchNorm3d):
                m.num_batches_tracked.fill_(4)  # the head's too, which did not run
    return net.eval()


def alive(out):
    """Outputs that did not differ from voxel to voxel would show nothing."""
    assert len(np.unique(np.float32(out))) > len(out) // 4, len(np.unique(np.float32(out)))


def make_golden(folder):
    torch.manual_seed(11)
    channels, classes, filters = 2, 3, 2
    net = VNet(channels, classes, filters)
    with torch.no_grad():  # few different weights: packs into a small file
        for m in net.modules():
            if isinstance(m, (nn.Conv3d, nn.ConvTranspose3d)) and m is not net.out_conv:
                bound = float(2.0 ** np.round(np.log2(m.weight.abs().max().item())))
                m.weight.copy_(torch.round(m.weight * (1.2 / bound)) * bound)
    settle(net, channels)
    with open(folder + "/model.safetensors.gz", "wb") as f:
        f.write(gzip.compress(file_bytes(net.state_dict()), 9, mtime=0))
    out = outputs(net, channels)
    alive(out)
    stride = len(out) // KEEP // 2 * 2 + 1  # odd: meets every channel
    kept = out[::stride][:KEEP]
    with open(folder + "/model.h", "w") as f:
        f.write("/* Made by tools/golden_model.py with PyTorch %s: do not edit. */\n"
                % torch.__version__.split("+")[0])
        f.write("enum { GOLDEN_MODEL_STRIDE = %d, GOLDEN_MODEL_KEPT = %d };\n" % (stride, len(kept)))
        f.write("static const double golden_model_outputs[] = {\n")
        for i in range(0, len(kept), 8):
            f.write("    " + ", ".join("%.7g" % v for v in kept[i:i + 8]) + ",\n")
        f.write("};\n")


def write(path, network):
    torch.manual_seed(5)
    net = VNet(2, 3, 4) if network == "vnet" else AUA(1, 2, 4, 3, norm=True)
    state = settle(net, 2 if network == "vnet" else 1).state_dict()
    with open(path, "wb") as f:
        f.write(file_bytes(state))


def compare(path, text):
    want, got = outputs(*load(path)), np.loadtxt(text)
    assert want.shape == got.shape, (want.shape, got.shape)
    error = np.sum((want - got) ** 2) / np.sum((want - want.mean()) ** 2)
    print("%s: %d outputs, normalised mean squared error %.2g" % (path, len(want), error))
    assert error <= 1e-6
    alive(want)


def same(one, two):
    a, b = read_tensors(one), read_tensors(two)
    assert a.keys() == b.keys(), a.keys() ^ b.keys()
    for k in a:
        assert a[k].shape == b[k].shape and a[k].dtype == b[k].dtype and a[k].tobytes() == b[k].tobytes(), k
    print("%s, %s: %d equal tensors" % (one, two, len(a)))


if __name__ == "__main__":
    torch.set_num_threads(1)
    {"golden": make_golden, "write": write, "compare": compare, "same": same}[sys.argv[1]](*sys.argv[2:])
