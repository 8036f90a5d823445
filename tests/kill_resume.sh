#!/bin/bash
# kill -9 at random instants of a training, then --resume, which is killed, too, until the run gets to its end:
# the same weights as in the run that nobody disturbed, every step once in the metrics (as the library's example
# tells, where it is built), and nothing left behind [P01, P19].
# usage: kill_resume.sh FALX        FALX_KILLS: how many (25); FALX_KILL_SEED: repeats the instants; FALX_TRAIN:
#        further options
set -u
falx=$(realpath "$1") example=$(dirname "$falx")/lib/example work=$(mktemp -d) kills=${FALX_KILLS:-25} RANDOM=${FALX_KILL_SEED:=$$}
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
fail() { echo "FAILED: $* (FALX_KILL_SEED=$FALX_KILL_SEED)"; exit 1; }

"$falx" phantom set --cases 4 --labeled 2 --test 0 --size 20 --quiet || exit 1
# one filter, all three phases of aua, a checkpoint at least every second step, a model that is validated
settings="--filters 1 --patch 16 --batch 2 --steps 6 --bcl-cap 200 --val 1 --val-every 3 --quiet ${FALX_TRAIN:-}"
now() { date +%s%3N; }

start=$(now)
"$falx" train --preset none set -o whole $settings --checkpoint-every 2 >/dev/null || fail 'the undisturbed run'
whole_ms=$(($(now) - start))
(cd whole && find . | sort) >whole.files
curve() { [ ! -x "$example" ] || "$example" "$1" none none.nii 2>/dev/null | grep '^loss'; }
curve whole >whole.curve

hit=0 runs=0 phase_hit=(0 0 0) before=0
while [ $hit -lt "$kills" ]; do
    rm -rf part
    resume='' code=137
    every=$((RANDOM % 2 + 1))
    while [ $code = 137 ]; do
        "$falx" train --preset none set -o part $settings --checkpoint-every $every $resume >/dev/null 2>err & pid=$!
        if [ $hit -lt "$kills" ]; then # enough of them: let it end
            # a resume has less before it: some are killed early, in the middle of going on
            limit=$((RANDOM % 4 == 0 ? whole_ms / 3 : whole_ms))
            ms=$(((RANDOM * 32768 + RANDOM) % (limit + 1)))
            sleep "$((ms / 1000)).$(printf %03d $((ms % 1000)))"
            kill -9 $pid 2>/dev/null
        fi
        wait $pid 2>/dev/null
        code=$?
        [ $code = 137 ] || [ $code = 0 ] || fail "exit $code: $(cat err)"
        if [ $code = 137 ]; then
            hit=$((hit + 1))
            at=$(cat part/checkpoint-?.safetensors 2>/dev/null | grep -ao '"at.phase": "[012]' | sort | tail -1)
            if [ -n "$at" ]; then
                phase_hit[${at##*\"}]=$((phase_hit[${at##*\"}] + 1))
            else
                before=$((before + 1))
            fi
        fi
        resume=--resume
    done
    runs=$((runs + 1))
    for f in model stage1 best; do
        [ -e whole/$f.safetensors ] || continue # only aua has stages
        cmp -s whole/$f.safetensors part/$f.safetensors || fail "$f.safetensors differs after kill $hit"
    done
    (cd part && find . | sort) >part.files
    diff whole.files part.files >/dev/null || fail "files: $(diff whole.files part.files | tr '\n' ' ')"
    curve part >part.curve
    cmp -s whole.curve part.curve || fail "metrics: $(cat part.curve), expected $(cat whole.curve)"
done
echo "tally kills $hit"
echo "$hit kills in $runs runs ($before before the first checkpoint; in stage 1, prototypes, stage 2:" \
    "${phase_hit[*]}): weights identical, nothing left behind"
