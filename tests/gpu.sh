#!/bin/bash
# On a GPU: the self-test passes, twenty trainings give one hash, a training killed again and again ends with the same weights, and
# in float32 the losses of fifty steps are those of the processor, and masks by the scans' own statistics, too.
# usage: gpu.sh FALX        skipped where no GPU can be used
set -u
here=$(dirname "$(realpath "$0")") falx=$(realpath "$1") work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
fail() { echo "FAILED: $*"; exit 1; }
"$falx" doctor --json | tr -d '\n' | grep -q '"gpu": *{ *"device"' || { "$falx" doctor | grep '^gpu'; exit 77; }

"$falx" phantom set --cases 8 --labeled 4 --test 0 --size 48 --quiet || exit 1
train() { # train FOLDER DEVICE PRECISION: 20 + 10 + 20 steps of both stages
    "$falx" train --preset none set -o "$1" --device "$2" --precision "$3" --filters 8 --patch 32 --steps 20 --quiet >/dev/null
}
hash() { cat "$1"/model.safetensors "$1"/stage1.safetensors | sha256sum | cut -d' ' -f1; }
losses() {
    python3 -c "import sqlite3, sys
for row in sqlite3.connect(sys.argv[1]).execute(
        \"select phase, step, value from steps where name = 'loss' order by 1, 2\"): print(*row, sep='|')" \
        "$1"/metrics.sqlite
}

for precision in bf16 tf32 f32; do
    "$falx" doctor --selftest --device cuda --precision $precision >facts || fail "self-test in $precision"
    echo "$precision: self-test $(sed -n 's/.*selftest *//p' facts)"
    rm -rf run hashes
    for i in $(seq 20); do
        rm -rf run
        train run cuda $precision || fail "training $i in $precision"
        hash run >>hashes
    done
    losses run >gpu.$precision
    [ "$(sort -u hashes | wc -l)" = 1 ] || fail "$precision: $(sort -u hashes | wc -l) results of 20 trainings"
    echo "$precision: 20 trainings, one hash"
done

FALX_TRAIN='--device cuda' FALX_KILLS=${FALX_KILLS:-20} "$here"/kill_resume.sh "$falx" || fail 'kill and resume'

train cpu cpu f32 || fail 'training on the processor'
losses cpu >cpu.f32
paste -d'|' cpu.f32 gpu.f32 | awk -F'|' '
    { d = ($3 - $6) / (1 + $3); d = d < 0 ? -d : d; most = d > most ? d : most }
    END { printf "float32: %d steps, losses differ by at most %.1e (1 + loss)\n", NR, most; exit most > 1e-3 || NR < 30 }' ||
    fail 'the losses differ'

for device in cpu cuda; do
    "$falx" predict cpu -i set/images -o masks-$device --adapt --prob --device $device --precision f32 --quiet \
        >/dev/null || fail "masks on $device"
done
python3 - <<'END' || fail 'the probabilities differ'
import array, glob, gzip, sys
most = spread = 0
for name in glob.glob('masks-cpu/*_foreground.nii.gz'):
    a, b = (array.array('f', gzip.open(n).read()[352:]) for n in (name, name.replace('-cpu', '-cuda')))
    most, spread = max(most, max(abs(x - y) for x, y in zip(a, b))), max(spread, max(a) - min(a))
print('float32: probabilities by the scans\' own statistics spread over %.2f, differ by at most %.1e' % (spread, most))
sys.exit(most > 1e-3 or spread < 0.05)
END
