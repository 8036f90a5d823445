#!/usr/bin/env python3
"""Times falx next to PyTorch on one GPU: a supervised step of 4 patches, a step of AUA's stage 1 (2 + 2 patches) and an inference
window, patches of 112x112x80. PyTorch has the same network and losses, eager and compiled, in bf16 and tf32.

Usage: python3 tools/bench_torch_gpu.py [FALX [bf16|tf32 ...]]      prints a JSON list of rows: seconds are medians, MiB those of the GPU
"""
import json
import math
import statistics
import subprocess
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

SHAPE = (112, 112, 80)
FALX_STEPS = {'supervised': 'step.supervised{}.la', 'aua': 'step.aua{}.la', 'window': 'window.{}.la'}


def block(n, cin, cout):
    layers = []
    for i in range(n):
        layers += [nn.Conv3d(cin if i == 0 else cout, cout, 3, padding=1), nn.BatchNorm3d(cout),
                   nn.ReLU(inplace=True)]
    return nn.Sequential(*layers)


def down(cin, cout):
    return nn.Sequential(nn.Conv3d(cin, cout, 2, stride=2), nn.BatchNorm3d(cout), nn.ReLU(inplace=True))


def up(cin, cout):
    return nn.Sequential(nn.ConvTranspose3d(cin, cout, 2, stride=2), nn.BatchNorm3d(cout), nn.ReLU(inplace=True))


class VNet(nn.Module):
    def __init__(self, classes=2, f=16, rank=8, dropout=True):
        super().__init__()
        self.classes, self.rank, self.dropout = classes, rank, dropout
        d = [1, 2, 3, 3, 3]
        w = [f, 2 * f, 4 * f, 8 * f, 16 * f]
        self.enc = nn.ModuleList([block(d[i], 1 if i == 0 else w[i], w[i]) for i in range(5)])
        self.down = nn.ModuleList([down(w[i], w[i + 1]) for i in range(4)])
        self.up = nn.ModuleList([up(w[i + 1], w[i]) for i in range(4)])
        self.dec = nn.ModuleList([block(d[i], w[i], w[i]) for i in range(4)])
        self.out = nn.Conv3d(f, f, 1)
        self.head = nn.Sequential(nn.Conv3d(f, f, 1), nn.ReLU(inplace=True), nn.Conv3d(f, f, 1), nn.ReLU(inplace=True),
                                  nn.Conv3d(f, f, 1))
        self.mean = nn.Conv3d(f, classes, 1)
        self.logdiag = nn.Conv3d(f, classes, 1)
        self.factor = nn.Conv3d(f, classes * rank, 1)

    def trunk(self, x):
        skips = []
        for i in range(5):
            x = self.enc[i](x)
            if i < 4:
                skips.append(x)
                x = self.down[i](x)
        x = F.dropout3d(x, 0.5, self.training and self.dropout)
        for i in reversed(range(4)):
            x = self.dec[i](self.up[i](x) + skips[i])
        x = F.dropout3d(x, 0.5, self.training and self.dropout)
        return self.out(x)

    def forward(self, x, heads=True):
        f = self.trunk(x)
        h = F.relu(f)
        mean = self.mean(h)
        if not heads:
            return mean, f
        return mean, self.logdiag(h).exp() + 1e-5, self.factor(h), F.normalize(self.head(f), dim=1)


def samples(mean, diag, factor, S, rank):
    b = mean.shape[0]
    k = S // 2
    m, d = mean.flatten(1), diag.flatten(1)
    Fm = factor.reshape(b, rank, -1)
    e = torch.randn(k, b, rank, device=m.device, dtype=m.dtype)
    dev = torch.einsum('kbr,brn->kbn', e, Fm) + torch.randn(k, *d.shape, device=m.device, dtype=m.dtype) * d.sqrt()
    s = torch.cat([m + dev, m - dev])
    return s.reshape(S, *mean.shape)


def ged(a, b):
    def cross(x, y):
        X, Y = x.flatten(3), y.flatten(3)              # S,B,C,V
        num = torch.einsum('ibcv,jbcv->ijbc', X, Y)
        xx, yy = (X * X).sum(-1), (Y * Y).sum(-1)
        return (1 - ((2 * num + 1e-5) / (xx[:, None] + yy[None] + 1e-5)).mean(-1)).mean((0, 1))
    return (2 * cross(a, b) - cross(a, a) - cross(b, b)).mean()


def dice(p, y):
    return 1 - (2 * (p * y).sum() + 1e-5) / ((p * p).sum() + (y * y).sum() + 1e-5)


def bcl(feat, label, n=9000, tau=0.07):
    total = 0
    for f, y in zip(feat, label):
        fg = y[None, None].float()
        near = (F.max_pool3d(fg, 3, 1, 1) - (1 - F.max_pool3d(1 - fg, 3, 1, 1)) > 0)[0, 0]
        idx = near.flatten().nonzero().flatten()
        idx = idx[torch.randperm(len(idx), device=idx.device)[:n]]
        z = f.flatten(1).t()[idx].float()
        l = y.flatten()[idx]
        sim = z @ z.t() / tau
        sim = sim - sim.max(1, keepdim=True)[0].detach()
        eye = torch.eye(len(idx), device=z.device, dtype=torch.bool)
        logp = sim - torch.logsumexp(sim.masked_fill(eye, -1e9), 1, keepdim=True)
        pos = (l[:, None] == l[None]) & ~eye
        total = total - ((logp * pos).sum(1) / pos.sum(1).clamp(min=1)).mean()
    return total / len(feat)


def stage1_step(net, teacher, opt, x, y, amp, S=6):
    opt.zero_grad(set_to_none=True)
    noise = torch.clamp(torch.randn_like(x[2:]) * 0.1, -0.2, 0.2)
    with torch.autocast('cuda', torch.bfloat16, enabled=amp):
        mean, diag, fac, z = net(x)
        with torch.no_grad():
            tm, td, tf, _ = teacher(x[2:] + noise)
    mean, diag, fac, z, tm, td, tf = (t.float() for t in (mean, diag, fac, z, tm, td, tf))
    s = samples(mean, diag, fac, S, net.rank if hasattr(net, 'rank') else 8)
    lp = -F.cross_entropy(s[:, :2].flatten(0, 1), y[:2].repeat(S, 1, 1, 1), reduction='none').reshape(S, 2, -1).sum(-1)
    mc = -(torch.logsumexp(lp, 0) - math.log(S)).mean() / y[0].numel()
    sup = 0.5 * (mc + dice(F.softmax(mean[:2], 1)[:, 1], (y[:2] == 1).float()))
    con = ged(F.softmax(s[:, 2:], 2), F.softmax(samples(tm, td, tf, S, 8), 2))
    loss = sup + 0.15 * con + 0.09 * bcl(z[:2], y[:2])
    loss.backward()
    opt.step()
    with torch.no_grad():
        torch._foreach_lerp_(list(teacher.parameters()), list(net.parameters()), 0.01)
    return loss


def plain_step(net, opt, x, y, amp):
    opt.zero_grad(set_to_none=True)
    with torch.autocast('cuda', torch.bfloat16, enabled=amp):
        mean, _ = net(x, heads=False)
    loss = 0.5 * (F.cross_entropy(mean.float(), y) + dice(F.softmax(mean.float(), 1)[:, 1], (y == 1).float()))
    loss.backward()
    opt.step()
    return loss


def timed(fn, warm=5, n=15):
    """Median seconds of a call, and the MiB that the GPU held at the most."""
    torch.cuda.reset_peak_memory_stats()
    for _ in range(warm):
        fn()
    torch.cuda.synchronize()
    taken = []
    for _ in range(n):
        start, end = torch.cuda.Event(True), torch.cuda.Event(True)
        start.record()
        fn()
        end.record()
        torch.cuda.synchronize()
        taken.append(start.elapsed_time(end) / 1000)
    return statistics.median(taken), torch.cuda.max_memory_allocated() / 2 ** 20


def ball(shape, dev):
    g = torch.stack(torch.meshgrid(*[torch.linspace(-1, 1, s, device=dev) for s in shape], indexing='ij'))
    return ((g ** 2).sum(0) < 0.25).long()


def torch_rows(precision, compiled):
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    torch.manual_seed(0)
    bf16 = precision == 'bf16'
    net, teacher = VNet().cuda(), VNet().cuda().requires_grad_(False)
    x = torch.randn(4, 1, *SHAPE, device='cuda')
    windows = torch.randn(8, 1, *SHAPE, device='cuda')
    y = ball(SHAPE, 'cuda')[None].repeat(4, 1, 1, 1)
    if bf16:
        net, teacher, x, windows = (t.to(memory_format=torch.channels_last_3d) for t in (net, teacher, x, windows))
    student, mean_teacher = (torch.compile(net), torch.compile(teacher)) if compiled else (net, teacher)

    def sgd():  # one for each kind of step: fused SGD wants gradients of the same parameters in every step
        net.zero_grad(set_to_none=True)
        return torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4, fused=True)

    def window():
        with torch.no_grad(), torch.autocast('cuda', torch.bfloat16, enabled=bf16):
            return student(windows, heads=False)[0]

    opt = sgd()
    measured = {'supervised': timed(lambda: plain_step(student, opt, x, y, bf16))}
    opt = sgd()
    measured['aua'] = timed(lambda: stage1_step(student, mean_teacher, opt, x, y, bf16))
    net.eval()
    seconds, mib = timed(window)
    measured['window'] = (seconds / len(windows), mib)
    return [row(what, 'PyTorch', torch.__version__, 'compiled' if compiled else 'eager', precision, *values)
            for what, values in measured.items()]


def row(what, program, version, variant, precision, seconds, mib):
    return {'what': what, 'size': 'x'.join(map(str, SHAPE)), 'program': program, 'program_version': version, 'variant': variant,
            'precision': precision, 'seconds': f'{seconds:.4g}', 'mib': '' if mib is None else f'{mib:.0f}'}


def falx_rows(falx, precision):
    """Each benchmark gives seconds and, for a step, the GiB that the GPU held (NAME.memory)."""
    for what, name in FALX_STEPS.items():
        name = name.format(precision if what == 'window' else '' if precision == 'bf16' else f'.{precision}')
        out = subprocess.run([falx, 'bench', '--json', '--device', 'cuda', name], check=True, capture_output=True, text=True).stdout
        value = {r['name']: r['value'] for r in json.loads(out)}
        gib = value.get(f'{name}.memory')
        yield row(what, 'falx', '', '', precision, value[name], gib and gib * 1024)


def main():
    falx = sys.argv[1] if len(sys.argv) > 1 else 'build/falx'
    rows = []
    for precision in sys.argv[2:] or ('bf16', 'tf32'):
        rows += falx_rows(falx, precision)
        for compiled in (False, True):
            rows += torch_rows(precision, compiled)
            torch.cuda.empty_cache()
    print(json.dumps(rows, indent=1))


if __name__ == '__main__':
    main()
