#!/bin/bash
# A signal in the middle of the work: exit code, one line, nothing half-done, and going on gives the same bytes.
# usage: stop.sh FALX
set -eu
falx=$(realpath "$1") work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
"$falx" phantom set --cases 8 --labeled 2 --test 0 --size 48 --quiet >/dev/null
"$falx" prepare set -o whole --quiet >/dev/null
stopped=0
for ms in 05 10 15 20 30 40 60 80 120 160; do
    for signal in INT TERM HUP; do
        code=0
        "$falx" prepare set -o part --quiet >/dev/null 2>err & pid=$!
        sleep "0.$ms"
        kill -"$signal" $pid 2>/dev/null || true
        wait $pid || code=$?
        if [ $code = 10 ]; then
            stopped=$((stopped + 1))
            [ "$(wc -l <err)" = 1 ] && grep -q '^falx: error: stopped by signal .*\[P11\]$' err
            [ -z "$(find . -name '.falx-*')" ]
        elif [ $code -ge 128 ]; then # before the watch was set up: nothing had begun
            [ -z "$(find . -name '.falx-*')" ]
        else
            [ $code = 0 ]
        fi
    done
    case $ms in *5 | 20 | 60) rm -rf part ;; esac # start anew; otherwise go on where it stopped
done
[ $stopped -gt 0 ]
"$falx" prepare set -o part --quiet >/dev/null
diff -r whole/images part/images
diff -r whole/labels part/labels
cmp whole/prepared.json part/prepared.json
echo "stopped $stopped times; resumed output is the same"
