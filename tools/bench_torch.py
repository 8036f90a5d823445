#!/usr/bin/env python3
"""Times falx beside PyTorch, on the same threads, taking turns: a training step (batch 2) and an inference
window of the published V-Net (16 filters, one channel, two classes), and the memory of each process.

PyTorch runs every variant it has, each in a process of its own (standard and channels-last layout; bf16 and
compiled ones from version 2 on); the best one counts. Seconds are medians over all turns.

Usage: python3 tools/bench_torch.py [FALX] [--sizes 32,64,96] [--turns 2] [--precision f32|bf16|both]
           [--variants 'last,last bf16'] [--json]
"""
import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time

THREADS = 2


def make_network(torch):
    nn = torch.nn

    def stage(kind, n, c_in, c_out):
        layers = []
        for i in range(n):
            conv = {'same': lambda: nn.Conv3d(c_in if i == 0 else c_out, c_out, 3, padding=1),
                    'down': lambda: nn.Conv3d(c_in, c_out, 2, stride=2),
                    'up': lambda: nn.ConvTranspose3d(c_in, c_out, 2, stride=2)}[kind]()
            layers += [conv, nn.BatchNorm3d(c_out), nn.ReLU(inplace=True)]
        return nn.Sequential(*layers)

    class VNet(nn.Module):
        depth = [1, 2, 3, 3, 3]

        def __init__(self, f=16):
            super().__init__()
            wide = [f, 2 * f, 4 * f, 8 * f, 16 * f]
            self.enter = nn.ModuleList(stage('same', n, 1 if i == 0 else wide[i], wide[i])
                                       for i, n in enumerate(self.depth))
            self.down = nn.ModuleList(stage('down', 1, wide[i], wide[i + 1]) for i in range(4))
            self.up = nn.ModuleList(stage('up', 1, wide[i + 1], wide[i]) for i in range(4))
            self.leave = nn.ModuleList(stage('same', self.depth[i], wide[i], wide[i]) for i in range(4))
            self.drop, self.head = nn.Dropout3d(0.5), nn.Conv3d(f, 2, 1)

        def forward(self, x):
            kept = []
            for i in range(5):
                x = self.enter[i](x)
                if i < 4:
                    kept.append(x)
                    x = self.down[i](x)
            x = self.drop(x)
            for i in (3, 2, 1, 0):
                x = self.leave[i](self.up[i](x) + kept[i])
            return self.head(self.drop(x))

    return VNet()


def one(what, size, variant):
    """Runs in a process of its own: prints the median seconds of 3 runs and the peak memory."""
    import torch
    torch.set_num_threads(THREADS)
    torch.manual_seed(1)
    net, bf16 = make_network(torch), 'bf16' in variant
    x = torch.randn(2 if what == 'train' else 1, 1, size, size, size)
    y = (x[:, 0] > 0.5).long()
    if 'last' in variant:
        net, x = (t.to(memory_format=torch.channels_last_3d) for t in (net, x))
    run = torch.compile(net) if 'compiled' in variant else net
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)

    def train():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast('cpu', torch.bfloat16, enabled=bf16):
            z = run(x)
        z = z.float()
        p, t = torch.softmax(z, 1)[:, 1], (y == 1).float()
        dice = 1 - (2 * (p * t).sum() + 1e-5) / ((p * p).sum() + (t * t).sum() + 1e-5)
        (0.5 * (torch.nn.functional.cross_entropy(z, y) + dice)).backward()
        optimizer.step()

    def window():
        with torch.no_grad(), torch.autocast('cpu', torch.bfloat16, enabled=bf16):
            run(x)

    net.train(what == 'train')
    step, took = train if what == 'train' else window, []
    step()
    for _ in range(3):
        start = time.perf_counter()
        step()
        took.append(time.perf_counter() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({'seconds': statistics.median(took), 'kib': peak, 'version': torch.__version__}))


def torch_run(what, size, variant):
    out = subprocess.run([sys.executable, __file__, '--one', what, str(size), variant], check=True,
                         capture_output=True, text=True).stdout
    return json.loads(out.splitlines()[-1])


def falx_run(falx, what, size, precision):
    out = subprocess.run(['/usr/bin/env', 'python3', '-c', RUN_AND_WEIGH, falx, 'bench', '--json', '-j',
                          str(THREADS), f'{what}.{precision}.{size}'], check=True, capture_output=True,
                         text=True).stdout.splitlines()
    return {'seconds': json.loads('\n'.join(out[:-1]))[0]['value'], 'kib': int(out[-1])}


RUN_AND_WEIGH = ('import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True); '
                 'print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)')


def main():
    parse = argparse.ArgumentParser()
    parse.add_argument('falx', nargs='?', default='build/falx')
    parse.add_argument('--sizes', default='32,64,96')
    parse.add_argument('--turns', type=int, default=2)
    parse.add_argument('--precision', default='both', choices=['f32', 'bf16', 'both'])
    parse.add_argument('--json', action='store_true', help='a list of rows instead of text')
    parse.add_argument('--variants', help='of PyTorch, comma-separated; all that it has if not given')
    o = parse.parse_args()
    import torch
    new = int(torch.__version__.split('.')[0]) >= 2
    variants = ['plain', 'last'] + (['last bf16', 'last bf16 compiled'] if new else [])
    variants = o.variants.split(',') if o.variants else variants
    precisions = ['f32', 'bf16'] if o.precision == 'both' else [o.precision]
    rows = []
    if not o.json:
        print(f'PyTorch {torch.__version__}, {THREADS} threads; seconds, MiB; ratios are PyTorch over falx')
    for size in map(int, o.sizes.split(',')):
        for what in ('train', 'window'):
            theirs, ours = {v: [] for v in variants}, {p: [] for p in precisions}
            for _ in range(o.turns):
                for p in precisions:
                    ours[p].append(falx_run(o.falx, what, size, p))
                for v in variants:
                    theirs[v].append(torch_run(what, size, v))
            seconds = lambda runs: statistics.median(r['seconds'] for r in runs)
            mib = lambda runs: max(r['kib'] for r in runs) / 1024
            version = theirs[variants[0]][0]['version']
            measured = [('falx', '', p, p, ours[p]) for p in precisions]
            measured += [('PyTorch', version, v.replace(' bf16', ''), 'bf16' if 'bf16' in v else 'f32', theirs[v]) for v in variants]
            rows += [{'what': what, 'size': size, 'program': name, 'program_version': of, 'variant': '' if name == 'falx' else variant,
                      'precision': precision, 'threads': THREADS, 'seconds': f'{seconds(taken):.4g}', 'mib': f'{mib(taken):.0f}'}
                     for name, of, variant, precision, taken in measured]
            if o.json:
                continue
            best = min(theirs, key=lambda v: seconds(theirs[v]))
            print(f'{what:6} {size:3}  PyTorch {best:18} {seconds(theirs[best]):8.4f} {mib(theirs[best]):6.0f}')
            for p in precisions:
                print(f'{"":10}  falx    {p:18} {seconds(ours[p]):8.4f} {mib(ours[p]):6.0f}'
                      f'   {seconds(theirs[best]) / seconds(ours[p]):5.2f} times as fast,'
                      f' {mib(ours[p]) / mib(theirs[best]):.2f} of the memory', flush=True)
    if o.json:
        print(json.dumps(rows, indent=1))


if __name__ == '__main__':
    if sys.argv[1:2] == ['--one']:
        one(sys.argv[2], int(sys.argv[3]), sys.argv[4])
    else:
        os.environ.setdefault('OMP_NUM_THREADS', str(THREADS))
        main()
