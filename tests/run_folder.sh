#!/bin/bash
# A run folder and the world around it: full disks, folders that are no folders or go away, a second process, a
# signature of the dead, readers while it grows, refused starts that leave nothing [P04, P07-P10, P14].
# usage: run_folder.sh FALX
set -u
falx=$(realpath "$1") tests=$(realpath "$(dirname "$0")") work=$(mktemp -d) failures=0
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1

wrong() { echo "WRONG: $*"; failures=$((failures + 1)); }
. "$tests/lib.sh"
# expect CODE FACT COMMAND...: this exit code; the last line on stderr (or stdout) holds FACT
expect() {
    local want=$1 text=$2 code
    fact "$text"
    shift 2
    { "$@" 2>&1 >&3 | cat >err; code=${PIPESTATUS[0]}; } 3>out # cat: limits of the command are not those of err
    [ "$code" = "$want" ] || wrong "exit $code, expected $want: $* ($(tail -1 err))"
    { tail -1 err; cat out; } | grep -qF -- "$text" || wrong "no \"$text\" from: $* ($(tail -1 err))"
}
one_line() { [ "$(wc -l <err)" = 1 ] || wrong "$(wc -l <err) lines, expected one: $(cat err)"; }
absent() { for f in "$@"; do [ ! -e "$f" ] || wrong "$f was left behind"; done; }
tidy() { [ -z "$(find "$@" -name '.falx-*' -o -name running)" ] || wrong "left behind: $(find "$@" -name '.falx-*' -o -name running)"; }
limited() { # limited FLAGS COMMAND...: under `ulimit FLAGS`
    local flags=$1
    shift
    (ulimit $flags && exec "$@")
}
await() { for _ in $(seq 400); do [ -e "$1" ] && return; sleep 0.02; done; wrong "$1 did not appear"; }
now() { date +%s%3N; }

"$falx" phantom set --cases 4 --labeled 2 --test 0 --size 24 --quiet || exit 1
tiny="--filters 2 --patch 16 --steps 4 --quiet"
slow="--method supervised --filters 8 --patch 64 --batch 2 --labeled-batch 1 --precision f32 --quiet -j 2"
"$falx" prepare set -o ready --quiet || exit 1
expect 0 'run steps=8' "$falx" train --preset none set -o run $tiny
tidy run
grep -q '"denormals": "flushed"' run/run.json || wrong 'run.json does not tell the arithmetic [M13]'

# ---- a refused start leaves nothing ----------------------------------------------------------------------
expect 2 '--labeled 9' "$falx" train --preset none set -o gone1 $tiny --labeled 9
expect 4 'nodata' "$falx" train --preset none nodata -o gone2/a/b/ $tiny
expect 5 'MiB' "$falx" train --preset none ready -o gone3/a --patch 1024 --batch 64 --quiet
absent gone1 gone2 gone3
mkdir kept
expect 2 '--labeled 9' "$falx" train --preset none set -o kept/a $tiny --labeled 9
[ -d kept ] && [ ! -e kept/a ] || wrong 'a folder that was there before the run is gone, or the new one is not'
expect 2 '--labeled 9' "$falx" train --preset none set -o kept $tiny --labeled 9
[ -d kept ] || wrong 'the folder that was given is gone'

# ---- full disks [P04] ------------------------------------------------------------------------------------
scan=set/images/phantom_0001.nii.gz
for out in mask.nii.gz mask.nrrd mask.nii; do # a limit on the size of files stops a write like a full disk
    expect 4 "$out" limited '-f 0' "$falx" predict run -i $scan -o $out
    one_line
    absent $out
done
expect 4 'full-run/run.json' limited '-f 1' "$falx" train --preset none ready -o full-run $tiny
one_line
absent full-run
mkdir masks
expect 4 'masks/' limited '-f 0' "$falx" predict run -i set/images -o masks --uncertainty
[ -z "$(ls -A masks)" ] || wrong "in masks: $(ls -A masks)"
expect 4 'more/' limited '-f 0' "$falx" prepare set -o more --quiet
[ ! -e more/prepared.json ] || wrong 'prepared.json of a failed run'
tidy .
if [ -w /dev/full ]; then
    mkdir full-log && ln -s /dev/full full-log/log.txt
    expect 4 '[P04]' "$falx" train --preset none set -o full-log $tiny # to its end, but the log is lost
    says 'log.txt: ' err
    same full-log/model.safetensors run/model.safetensors
fi
mkdir long-log && head -c 3000000 /dev/zero >long-log/log.txt # too long to get one more line
expect 4 '[P04]' limited '-f 2000' "$falx" train --preset none set -o long-log $tiny
[ "$(stat -c %s long-log/log.txt)" = 3000000 ] || wrong 'half a line in the log'
same long-log/model.safetensors run/model.safetensors
mkdir no-log no-log/log.txt
expect 4 'no-log/log.txt' "$falx" train --preset none set -o no-log $tiny
mkdir pipe-log && mkfifo pipe-log/log.txt
expect 4 'pipe-log/log.txt' timeout 60 "$falx" train --preset none set -o pipe-log $tiny

# ---- folders that are none, or go away [P07] ---------------------------------------------------------------
echo text >file
expect 4 'file' "$falx" train --preset none set -o file $tiny
one_line
expect 4 'file/run' "$falx" train --preset none set -o file/run $tiny
one_line
ln -s nowhere dangling
expect 4 'dangling' "$falx" train --preset none set -o dangling $tiny
long="--method supervised --filters 2 --patch 16 --steps 2000 --checkpoint-every 1 --quiet"
for how in 'rm -rf away' 'mv away moved'; do
    rm -rf away moved
    "$falx" train --preset none set -o away $long >out 2>err & pid=$!
    await away/checkpoint-b.safetensors
    for _ in $(seq 50); do $how 2>/dev/null && break; done # a file may come while rm is at work
    code=0 start=$(now)
    wait $pid || code=$?
    [ $code = 4 ] && tail -1 err | grep -q 'away: .*\[P07\]' || wrong "$how: exit $code, $(cat err)"
    [ $(($(now) - start)) -lt 10000 ] || wrong "$how: noticed after $(($(now) - start)) ms"
    [ ! -e away ] || wrong "$how: the folder came back"
done

# ---- two at a time, and the dead [P08, P09] ------------------------------------------------------------------
"$falx" train set -o busy $slow >out1 2>err1 & pid=$!
await busy/checkpoint-a.safetensors
for resume in '' --resume; do
    start=$(now)
    expect 9 "pid $pid " "$falx" train set -o busy $slow $resume
    [ $(($(now) - start)) -lt 1000 ] || wrong "the second process took $(($(now) - start)) ms to say so"
    one_line
    grep -qE 'busy: .* [0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:]{8} UTC \[P08\]$' err || wrong "$(cat err)"
done
rm busy/running
expect 9 '[P08]' "$falx" train set -o busy $slow # the lock is not the text
kill -9 $pid
wait $pid 2>/dev/null
mkdir ghost
echo 'pid 1 on elsewhere since 1999-12-31 23:59:59 UTC' >ghost/running
expect 0 done "$falx" train --preset none set -o ghost $tiny
tidy ghost
"$falx" train --preset none set -o part --filters 2 --patch 16 --steps 200 --checkpoint-every 2 --quiet >out 2>err & pid=$!
await part/checkpoint-b.safetensors
kill -9 $pid
"$falx" train --preset none set -o part --filters 2 --patch 16 --steps 200 --checkpoint-every 2 --quiet --resume >out 2>err & pid2=$!
wait $pid 2>/dev/null # the kernel may take a moment to bury the first
sleep 0.3
if kill -0 $pid2 2>/dev/null; then
    grep -q "pid $pid2 " part/running || wrong "signed by another: $(cat part/running)"
    kill -TERM $pid2
fi
code=0
wait $pid2 || code=$?
[ $code = 0 ] || [ $code = 10 ] || [ $code = 9 ] || wrong "resume after kill -9: exit $code, $(cat err)"
expect 0 done "$falx" train --preset none set -o part --filters 2 --patch 16 --steps 200 --checkpoint-every 2 --quiet --resume
tidy part

# ---- readers [P10], and two clocks [P14] -----------------------------------------------------------------------
grow="--filters 2 --patch 16 --steps 100 --checkpoint-every 1 --val 1 --val-every 3 --quiet"
"$falx" train --preset none set -o grow $grow >out1 2>err1 & pid=$!
await grow/best.safetensors
looks=0
while kill -0 $pid 2>/dev/null; do
    expect 0 'mask' "$falx" predict grow -i $scan -o seen.nii.gz --model best --force
    expect 0 'grow' "$falx" report grow -o seen.html --title grow --force --json
    looks=$((looks + 1))
done
wait $pid || wrong "a run that was read: $(cat err1)"
[ $looks -gt 0 ] || wrong 'nobody had time to read'
TZ=Pacific/Kiritimati "$falx" train --preset none set -o later $grow >out 2>err || wrong "$(cat err)"
for f in checkpoint-a checkpoint-b model stage1 best; do same grow/$f.safetensors later/$f.safetensors; done

[ $failures = 0 ] || { echo "$failures wrong"; exit 1; }
echo "run folders: full disks, lost folders, locks, $looks looks of readers"
