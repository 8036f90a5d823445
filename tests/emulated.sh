#!/bin/bash
# The GPU's kernels with the processor as the GPU (emulated/gpu.cc), first threads first and last threads first: what they make
# against plain loops, and whole steps of some methods in both orders and beside the processor.
# usage: emulated.sh FALX        after `make emulated`
set -u
here=$(dirname "$(realpath "$0")") emulated=$(dirname "$(realpath "$1")")/emulated work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1

checks() { # checks ORDER
    export FALX_EMULATED_ORDER=$1
    "$emulated"/cuda_loops_check 3000 >"$1" && "$emulated"/cuda_heads_check 5000 >>"$1" && "$emulated"/cuda_conv_check 1 >>"$1"
}
methods() { # methods EDGE NAME...
    local edge=$1
    shift
    FALX_SIZE="--filters 4 --patch $edge --steps 2" "$here"/gpu_methods.sh "$emulated"/falx "$@"
}

ends() { wait $1 && return; echo "FAILED: $2"; failed=1; }
failed=0
checks forwards & one=$!
checks backwards & two=$!
ends $one 'kernels'
ends $two 'kernels, last threads first'
grep -h '^FAIL' forwards backwards
methods 16 aua dan urpc sassnet & one=$!
# two patches of 16 have two voxels at the bottom, whose batch norm makes much of any rounding
{ methods 32 copy-paste && methods 16 simcvd mc-net-plus; } & two=$!
ends $one 'methods'
ends $two 'methods'
"$emulated"/falx phantom set --cases 2 --labeled 2 --test 0 --size 24 --quiet
FALX_EMULATED_MEMORY=36 "$emulated"/falx train --preset none set -o run --device cuda --filters 4 --patch 16 --steps 2 --quiet 2>err
[ $? = 6 ] && grep -q '\[G0[34]\]$' err && [ "$(wc -l <err)" = 1 ] || { echo "FAILED: too little memory: $(cat err)"; failed=1; }
passed=$(cat forwards backwards | grep -c '^PASS')
[ $failed = 0 ] && [ $passed -gt 500 ] && echo "$passed checks of kernels; 7 methods agree with the processor"
