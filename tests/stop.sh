#!/bin/bash
# A signal in the middle of the work: exit code, one line, nothing half-done, and going on gives the same bytes.
# usage: stop.sh FALX
set -eu
falx=$(realpath "$1") work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
"$falx" phantom set --cases 12 --labeled 2 --test 0 --size 64 --quiet >/dev/null
"$falx" prepare set -o whole --quiet >/dev/null
stopped=0 try=0
while [ $stopped -lt 6 ] && [ $try -lt 90 ]; do # until a few signals have hit, at various moments
    signal=$(echo INT TERM HUP | cut -d' ' -f$((try % 3 + 1))) code=0
    "$falx" prepare set -o part --quiet >/dev/null 2>err & pid=$!
    sleep "0.$(printf %03d $((20 + try * 37 % 280)))"
    kill -"$signal" $pid 2>/dev/null || true
    wait $pid || code=$?
    try=$((try + 1))
    [ -z "$(find . -name '.falx-*')" ] # no unfinished file, however it ended
    if [ $code = 10 ]; then
        stopped=$((stopped + 1))
        [ "$(wc -l <err)" = 1 ]
        grep -q '^falx: error: .*\[P11\]$' err
    elif [ $code = 0 ]; then
        rm -rf part # the signal came too late: start anew
    else
        [ $code -ge 128 ] # before the watch was set up: nothing had begun
    fi
done
[ $stopped -gt 0 ]
"$falx" prepare set -o part --quiet >/dev/null
diff -r whole/images part/images
diff -r whole/labels part/labels
cmp whole/prepared.json part/prepared.json

(trap '' HUP && exec "$falx" prepare set -o nohup --quiet) >/dev/null 2>err & pid=$!
sleep 0.1
kill -HUP $pid 2>/dev/null || true
wait $pid # a hangup is nothing to what runs under nohup
cmp whole/prepared.json nohup/prepared.json
echo "stopped $stopped times in $try; resumed output is the same"
