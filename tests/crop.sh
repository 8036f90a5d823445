#!/bin/bash
# The published crop on raw data with hidden labels: of a hidden label its box alone reaches the weights, a
# fair crop opens none, and every result says what its masks cover.
# usage: crop.sh FALX
set -u
falx=$(realpath "$1") tests=$(realpath "$(dirname "$0")") work=$(mktemp -d) failures=0
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1

wrong() { echo "WRONG: $*"; failures=$((failures + 1)); }
differ() { cmp -s "$1" "$2" && wrong "$1 and $2 are the same"; }

. "$tests/lib.sh"

# relabel FILE full|corners|wide: another mask in the box of an NRRD label, or in a wider box
relabel() {
    python3 - "$@" <<'PYTHON'
import gzip, re, sys
path, what = sys.argv[1:]
head, data = open(path, "rb").read().split(b"\n\n", 1)
nx, ny, nz = map(int, re.search(rb"sizes: (\d+) (\d+) (\d+)", head).groups())
voxels = gzip.decompress(data)
rows = [voxels[n:n + nx] for n in range(0, len(voxels), nx)]
used = [r for r in range(len(rows)) if any(rows[r])]
x0 = min(nx - len(rows[r].lstrip(b"\0")) for r in used)
x1 = max(len(rows[r].rstrip(b"\0")) for r in used) + (3 if what == "wide" else 0)
y = [r % ny for r in used]
y0, y1, z0, z1 = min(y), max(y), used[0] // ny, used[-1] // ny
new, top = bytearray(len(voxels)), max(voxels)
for z in range(z0, z1 + 1):
    for j in range(y0, y1 + 1):
        at = nx * (j + ny * z)
        if what == "full":
            new[at + x0:at + x1] = bytes([top]) * (x1 - x0)
if what != "full":
    new[x0 + nx * (y0 + ny * z0)] = new[x1 - 1 + nx * (y1 + ny * z1)] = top
open(path, "wb").write(head + b"\n\n" + gzip.compress(bytes(new)))
PYTHON
}

"$falx" phantom la --layout la --cases 5 --labeled 5 --test 2 --size 176,176,20 --quiet || exit 1
tiny="--preset paper-la --filters 2 --patch 32 --batch 2 --labeled-batch 1 --steps 2 --bcl-cap 100 --precision f32"

# ---- training -----------------------------------------------------------------------------------
note='3 unlabelled'
succeeds "$note" "$falx" train --preset none la -o run $tiny --labeled 2
grep -q '"crop": "published"' run/run.json || wrong 'run.json does not name the crop'
grep -q '"hidden_labels_used_for_crop": 3' run/run.json || wrong 'run.json does not count hidden labels'
[ "$(grep -c . run/cache/train.list)" = 5 ] && [ ! -e run/cache/labels/phantom_0003.nii.gz ] ||
    wrong 'a hidden label lies in the cache'
for what in full corners wide; do
    rm -rf other && cp -r la other
    for n in 3 4 5; do relabel other/phantom_000$n/laendo.nrrd $what; done
    succeeds 'done' "$falx" train --preset none other -o $what $tiny --labeled 2
done
for model in model stage1; do
    same run/$model.safetensors full/$model.safetensors
    same run/$model.safetensors corners/$model.safetensors
    differ run/$model.safetensors wide/$model.safetensors
done
refused 9 K05 '' "$falx" train --preset none la -o run $tiny --quiet --labeled 2 --resume --crop fair
succeeds 'done' "$falx" train --preset none la -o run $tiny --labeled 2 --resume
refused 9 K05 '' "$falx" train --preset none other -o run $tiny --quiet --labeled 2 --resume # the wide boxes

echo garbage >other/phantom_0004/laendo.nrrd
fails 3 L01 'phantom_0004/laendo.nrrd' "$falx" train --preset none other -o bad $tiny --quiet --labeled 2
succeeds intensities "$falx" train --preset none other -o fair $tiny --labeled 2 --crop fair
grep -q '"hidden_labels_used_for_crop": 0' fair/run.json && grep -q '"crop": "fair"' fair/run.json ||
    wrong 'run.json of a fair run'
rm other/phantom_0004/laendo.nrrd
fails 3 L01 'phantom_0004/lgemri.nrrd' "$falx" train --preset none other -o bad $tiny --quiet --labeled 2
grep -q -- '--crop fair' err || wrong 'L01 does not name the way out'
succeeds 'done' "$falx" train --preset none other -o fair2 $tiny --labeled 2 --crop fair
same fair/model.safetensors fair2/model.safetensors

# labels that the preparation saw and the training hides
succeeds 'seen: ' "$falx" prepare la -o seen --preset paper-la
succeeds "$note" "$falx" train seen -o later $tiny --labeled 2
grep -q '"hidden_labels_used_for_crop": 3' later/run.json || wrong 'hidden labels of a prepared set are not counted'

# raw CT layouts, one of them with test cases that have no label
"$falx" phantom ct --layout msd --cases 3 --labeled 3 --test 1 --size 40 --quiet || exit 1
rm ct/labelsTs/*
succeeds '1 test' "$falx" train ct -o ct1 $tiny --preset paper-colon5 --labeled 1
says '2 unlabelled' err
"$falx" phantom pancreas --layout pancreas --cases 3 --labeled 3 --test 0 --size 32 --quiet || exit 1
succeeds '2 unlabelled' "$falx" prepare pancreas -o ready --preset paper-pancreas --labeled 1

# ---- prediction ---------------------------------------------------------------------------------
mkdir scans labels
for n in 6 7; do
    cp la/phantom_000$n/lgemri.nrrd scans/s$n.nrrd
    cp la/phantom_000$n/laendo.nrrd labels/s$n.nrrd
done
succeeds 'crop: ' "$falx" predict run -i scans -o whole --uncertainty --prob
succeeds '(ground-truth' "$falx" predict run -i scans -o cropped --uncertainty --prob \
    --crop-labels labels
grep -q '"crop": "whole scan"' whole/uncertainty.json || wrong 'uncertainty.json of whole scans'
grep -q '"crop": "published (ground-truth box)"' cropped/uncertainty.json || wrong 'uncertainty.json of crops'
python3 - <<'PYTHON' || wrong 'probabilities of a crop are not those of its box, with zeros around it'
import gzip, struct, sys
def read(path):
    b = gzip.open(path).read()
    n = struct.unpack("<3h", b[42:48])
    return n, struct.unpack("<%df" % (n[0] * n[1] * n[2]), b[352:])
for name in ("s6", "s7"):
    n, whole = read("whole/%s_foreground.nii.gz" % name)
    n, crop = read("cropped/%s_foreground.nii.gz" % name)
    inside = [(i % n[0], i // n[0] % n[1]) for i in range(len(crop)) if crop[i] != 0]
    width = [max(p[a] for p in inside) - min(p[a] for p in inside) + 1 for a in range(2)]
    # at least the published 112 + 2 x 10 voxels but for the scan's border, at most + 2 x 19
    sys.exit(1) if not (all(100 < w < n[a] for a, w in enumerate(width)) and 0 not in whole) else None
PYTHON
refused 9 K05 whole/uncertainty.json "$falx" predict run -i scans -o whole --uncertainty --prob --resume --crop-labels labels
mkdir one && cp labels/s6.nrrd one/
mv one/s6.nrrd one/other.nrrd # the lone label of a lone scan, but not of one shard
refused 3 L01 '"s6"' "$falx" predict run -i scans -o x --crop-labels one --part 1/2
mv one/other.nrrd one/s6.nrrd
refused 3 L01 '"s7"' "$falx" predict run -i scans -o x --crop-labels one
refused 2 O01 --crop-labels "$falx" predict run -i scans/s6.nrrd -o one/s6.nrrd --crop-labels one --force
refused 2 C01 --crop-labels "$falx" predict fair -i scans -o x --crop-labels labels
succeeds '' "$falx" predict fair -i scans -o fair-masks

# ---- comparison ---------------------------------------------------------------------------------
plan="--labels 2 --methods paper-la,paper-la:crop=fair --stride 32"
succeeds "$note" "$falx" compare la -o cmp $tiny $plan
grep -q '^Crop of the test scans of paper-la: published (ground-truth box)\.$' cmp/results.md || wrong 'no caption'
grep -q '^Crop of the test scans of paper-la:crop=fair: whole scan\.$' cmp/results.md || wrong 'no caption of fair'
grep -q 'Crop of the test scans of paper-la: published' cmp/report.html || wrong 'no caption on the page'
for run in cmp/runs/paper-la-*; do
    grep -q '"crop": "published (ground-truth box)"' $run/result.json || wrong "$run/result.json names no crop"
done
succeeds '' "$falx" compare la -o cmp $tiny $plan --tables
refused 9 K05 '' "$falx" compare la -o cmp $tiny --crop fair --labels 2 --methods paper-la --stride 32

[ $failures = 0 ] && echo 'crop.sh: all as expected'
exit $((failures > 0))
