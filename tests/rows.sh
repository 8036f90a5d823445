#!/bin/bash
# Rows and pages: tools/results refuses a page that differs from its rows and a figure without rows; tools/cells measures, keeps failures,
# skips what has a row, and takes rows from another machine. All in a copy of the repository.
# usage: rows.sh FALX
set -u
falx=$(realpath "$1") source=$(realpath "$(dirname "$0")/..")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bad=0
check() { # check TEXT COMMAND...
    local text=$1
    shift
    "$@" >"$work/out" 2>&1 && return
    echo "failed: $text"
    sed 's/^/    /' "$work/out"
    bad=1
}
not() { ! "$@"; }
says() { "${@:2}" 2>&1 | grep -q -- "$1"; }

mkdir -p "$work/copy/build"
cp -r "$source"/{docs,tools,README.md} "$work/copy"
cd "$work/copy" || exit 1
for program in "$(dirname "$falx")"/falx*; do [ -x "$program" ] && ln -s "$program" build; done
printf 'build/\n' >.gitignore
git init -q . && git config user.name test && git config user.email test@localhost
git add -A && git commit -qm start

# tools/results
check 'pages equal their rows' tools/results --check
sed -i 's/^| falx, preset `la` | 16 /&9/' docs/results/left-atrium.md
check 'an edited page is refused' not tools/results --check
tools/results
check 'and is printed again' git diff --quiet
sed -i '2s/,0\.[0-9]*,/,0.1,/' docs/rows/la-test.cases.csv
check 'an edited row is refused' not tools/results --check
git checkout -q docs
echo 'falx is 3.5 times as fast.' >>docs/results/cpu.md
check 'a figure without rows is named' says 'cpu.md.*figure without rows: 3.5' tools/results --check
check 'and refused' not tools/results --check
git checkout -q docs

# tools/cells: one training of one step on synthetic scans in the place of the Left Atrium
"$falx" phantom data/la-half --cases 6 --labeled 6 --size 48 -q >/dev/null
mkdir data/splits
head -2 data/la-half/train.list >data/splits/la.labeled-16.list
tail -2 data/la-half/train.list >data/splits/la.heldout.list
echo data >>.gitignore
cell='la-half supervised crop cpu s1'
cells() { tools/cells --only "$cell" "$@"; }
check 'a cell is measured' says '^ok' cells --no-commit --out away --steps 1 --commit abc
check 'its row has the settings' grep -q "^$cell,ok.*,64x64x32,4,4,16,both,crop,.*,constant,16x16x8," away/rows/la-half.csv
check 'and no path' not grep -q "$work" away/rows/la-half.csv
check 'a row for each case' test "$(grep -c "^$cell," away/rows/la-half.cases.csv)" = 2
check 'a cell with a row is skipped' test -z "$(cells --no-commit --out away --steps 1)"
check 'rows are taken over' tools/cells --take away/rows/la-half.csv
check 'and committed with their page' says "rows: add $cell" git log -1 --format=%s
check 'nothing is left to commit' test -z "$(git status --porcelain docs README.md)"
check 'pages equal their rows afterwards' tools/results --check
check 'edited pages stop the next commit' says 'uncommitted' sh -c "echo >>README.md; tools/cells --only none"
git checkout -q README.md

cell='la-half supervised crop cpu s2'
echo no_such_case >data/splits/la.heldout.list
check 'a failure is committed' says '^failed' cells
check 'with its reason' grep -q "^$cell,failed,.*no_such_case" docs/rows/la-half.csv
check 'and not tried again' test -z "$(cells)"
check 'its page names it' says "$cell:.*no_such_case" cat docs/results/left-atrium.md
check 'pages equal their rows with a failure' tools/results --check

[ "$bad" = 0 ] && echo 'rows: ok'
exit "$bad"
