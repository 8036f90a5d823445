#!/bin/bash
# On a GPU: six steps of every method give the same weights twice, and in float32 the losses and gradients of the
# processor. Steps are small, since what is rounded otherwise grows thirty times a step at the usual rate.
# usage: gpu_methods.sh FALX [METHOD...]        skipped where no GPU can be used; FALX_SIZE: other patches and steps
set -u
falx=$(realpath "$1") work=$(mktemp -d) failed=0 size=${FALX_SIZE:---filters 8 --patch 32 --steps 6}
shift
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
"$falx" doctor --json | tr -d '\n' | grep -q '"gpu": *{ *"device"' || { "$falx" doctor | grep '^gpu'; exit 77; }

"$falx" phantom set --cases 8 --labeled 4 --test 0 --size 48 --quiet || exit 1
train() { # train FOLDER DEVICE PRECISION
    "$falx" train set -o "$1" --method "$method" --device "$2" --precision "$3" $size --lr 0.0001 \
        --quiet >/dev/null
}
losses() { # of all terms, and the gradients' lengths
    python3 -c "import sqlite3, sys
for row in sqlite3.connect(sys.argv[1]).execute('select phase, step, name, value from steps order by 1, 2, 3'):
    print(*row, sep='|')" "$1"/metrics.sqlite
}

[ $# -gt 0 ] || set -- $("$falx" train set -o none --method none 2>&1 | sed 's/.*allowed //; s/ \[.*//; s/|/ /g')
for method; do
    rm -rf a b c d # threads in another order, where the order can be chosen (emulated/gpu.cc)
    train a cuda bf16 && FALX_EMULATED_ORDER=backwards train b cuda bf16 && train c cuda f32 && train d cpu f32 ||
        { echo "FAILED: $method does not train"; failed=1; continue; }
    cmp -s a/model.safetensors b/model.safetensors || { echo "FAILED: $method: two results in bf16"; failed=1; }
    losses c >gpu
    losses d >cpu
    paste -d'|' cpu gpu | awk -F'|' -v method="$method" '
        { d = ($4 - $8) / (1 + ($4 < 0 ? -$4 : $4)); d = d < 0 ? -d : d; g = $3 ~ /gradient/
          if ($1 + $2 == 1 && !g && d > first) first = d
          if (d > most[g]) most[g] = d }
        END { printf "%-12s float32: %d numbers, terms differ by %.1e at first and %.1e later," \
                     " gradients by %.1e\n", method, NR, first, most[0], most[1]
              exit first > 1e-5 || most[0] > 2e-3 || most[1] > 1e-2 || NR < 10 }' ||
        { echo "FAILED: $method: the losses differ"; failed=1; }
done
exit $failed
