#!/bin/sh
# Model files between falx and PyTorch, both ways: a state dict of PyTorch gives the same outputs here, one of
# ours gives the same there, and reading and writing changes no bit.
# usage: oracle_model.sh FALX        PYTHON names the interpreter (default: one that has PyTorch)
set -eu
driver=$(dirname "$1")/test_model_file
here=$(dirname "$0")
for python in "${PYTHON:-}" python3 /usr/bin/python3 none; do
    if [ "$python" = none ]; then
        echo "oracle_model: skipped, no Python with PyTorch"
        exit 77
    fi
    [ -n "$python" ] && "$python" -c 'import numpy, torch' 2>/dev/null && break
done
other="$python $here/../tools/golden_model.py"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for network in vnet aua; do
    $other write "$folder/theirs.safetensors" $network
    "$driver" --write $network "$folder/ours.safetensors"
    for side in theirs ours; do
        "$driver" --outputs "$folder/$side.safetensors" >"$folder/outputs"
        $other compare "$folder/$side.safetensors" "$folder/outputs"
    done
    "$driver" --copy "$folder/theirs.safetensors" "$folder/copy.safetensors"
    $other same "$folder/theirs.safetensors" "$folder/copy.safetensors"
done
