#!/bin/bash
# falx compare: a plan killed at random instants, with its runs, and started again until it gets to its end leaves
# the same tables, figures and pictures, byte for byte; a run that fails is told and stops nobody; parts of a plan
# that were done elsewhere are merged; held-out labels are nowhere in what training saw.
# usage: compare.sh FALX        FALX_KILLS: how many (6); FALX_KILL_SEED: repeats the instants
set -u
falx=$(realpath "$1") tests=$(realpath "$(dirname "$0")") work=$(mktemp -d) kills=${FALX_KILLS:-6} RANDOM=${FALX_KILL_SEED:=$$}
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
fail() { echo "FAILED: $* (FALX_KILL_SEED=$FALX_KILL_SEED)"; exit 1; }
wrong() { fail "$@"; }
now() { date +%s%3N; }
. "$tests/lib.sh"

"$falx" phantom set --cases 6 --labeled 4 --test 3 --size 20 --quiet || exit 1
tiny="--filters 1 --patch 16 --batch 2 --steps 3 --bcl-cap 100 --checkpoint-every 1"
plan="--methods supervised,aua --labels 2 --seeds 2 --ablation unlabeled --quiet"
told="results.md results.csv results.tex cases.csv figures pictures" # all but what a clock measured
same() { # same A B: all that is told
    for f in $told; do diff -r "$1/$f" "$2/$f" >/dev/null || fail "$2/$f differs from $1/$f"; done
}

# ---- undisturbed ------------------------------------------------------------------------------------------------
start=$(now)
"$falx" compare set -o whole $tiny $plan || fail 'the undisturbed plan'
whole_ms=$(($(now) - start))
[ "$(ls whole/runs | wc -l)" = 8 ] || fail "$(ls whole/runs | wc -l) runs: $(ls whole/runs)"
for f in $told cost.md cost.csv cost.tex report.html; do [ -e whole/$f ] || fail "no $f"; done
[ "$(grep -c '^| ' whole/results.md)" = 7 ] || fail 'lines of the tables' # two heads, two methods, three shares
grep -q 'features near the boundary' whole/figures/features-1.svg || fail 'no features'
grep -q 'http' whole/report.html && fail 'the page leads outside'
[ -z "$(find whole/runs -name 'checkpoint*')" ] || fail 'checkpoints are left'
[ "$(ls whole/runs/aua-L2-s1337/masks | wc -l)" = 3 ] || fail 'masks of the held-out cases'
for name in $(cat set/test.list); do
    [ -z "$(find whole/views -name "$name*")" ] || fail "$name was held out and lies in $(find whole/views -name "$name*")"
done
[ "$(ls whole/views/L2/auto/labels | wc -l)" = 2 ] || fail 'hidden labels were prepared'
cp -r whole again
"$falx" compare set -o again $tiny $plan || fail 'a finished plan'
diff -r whole again >/dev/null || fail "a finished plan, started again: $(diff -rq whole again | head -3)"
mkdir again/pictures/methods-LA && echo mine | tee again/figures/features.svg >again/pictures/methods-LA/notes.txt
touch again/figures/dice-by-case-9.svg again/figures/.falx-1-1.tmp
"$falx" compare set -o again $tiny $plan --tables || fail 'a folder with more in it'
[ -s again/figures/features.svg ] && [ -s again/pictures/methods-LA/notes.txt ] || fail 'what is not ours was removed'
rm -r again/figures/features.svg again/pictures/methods-LA
diff -r whole again >/dev/null || fail "an earlier state is left: $(diff -rq whole again | head -3)"

# ---- killed -----------------------------------------------------------------------------------------------------
hit=0 code=137
while [ $code != 0 ]; do
    "$falx" compare set -o part $tiny $plan >out 2>err & pid=$!
    if [ $hit -lt "$kills" ]; then
        ms=$(((RANDOM * 32768 + RANDOM) % (whole_ms / 4 + 1)))
        sleep "$((ms / 1000)).$(printf %03d $((ms % 1000)))"
        if [ $((hit % 3)) = 2 ]; then kill -TERM $pid; else kill -9 $pid; fi 2>/dev/null
    fi
    wait $pid 2>/dev/null
    code=$?
    [ $code = 137 ] || [ $code = 10 ] || [ $code = 143 ] || [ $code = 0 ] || fail "exit $code: $(cat err)"
    hit=$((hit + (code != 0)))
done
same whole part
rm part/runs/aua-L2-s1337/result.json # and what a kill in the midst of any writing leaves
for f in . views/L2 runs/aua-L2-s1337 runs/aua-L2-s1337/masks; do touch part/$f/.falx-1-1.tmp; done
"$falx" compare set -o part $tiny $plan || fail 'half-written files'
same whole part
[ -z "$(find part -name '.falx-*' -o -name running)" ] || fail "left behind: $(find part -name '.falx-*' -o -name running)"
("$falx" compare set -o moved $tiny $plan >out 2>err; echo $? >code) & pid=$!
while [ ! -e moved/runs ] && kill -0 $pid 2>/dev/null; do sleep 0.01; done
mv moved elsewhere
wait $pid
[ "$(cat code)" = 4 ] && grep -q '^falx: error: moved: .*\[P07\]' err ||
    fail "a folder renamed under a plan: exit $(cat code), $(cat err)"
[ ! -e moved/results.md ] && rm -rf moved || fail 'tables of half a plan'
mv elsewhere moved && "$falx" compare set -o moved $tiny $plan || fail 'going on'
same whole moved
timeout 60 bash -c 'trap "" CHLD; exec "$@"' - "$falx" compare set -o childless $tiny --methods supervised --labels 2 \
    --quiet || fail 'a parent that ignores SIGCHLD'

taskset -c 0 "$falx" compare set -o pinned $tiny --methods supervised --labels 2 --quiet || fail 'one core'
grep -q '"threads": 1,' pinned/runs/*/run.json || fail "more threads than cores it may use: $(grep threads pinned/runs/*/run.json)"

# ---- a run that fails, and others that do not ---------------------------------------------------------------------
"$falx" compare set -o failing $tiny --methods supervised,supervised:patch=1024:batch=64,mt --labels 2 --reference mt \
    >out 2>err
code=$?
[ $code = 5 ] || fail "a run without memory: exit $code, $(cat err)"
grep -q 'supervised_patch=1024_batch=64-L2-s1337 .*\[P17\]' err || fail "not told: $(cat err)"
grep -q 'MiB.*\[P17\]' failing/results.md && grep -q 'P17' failing/report.html || fail 'the failure is not in the tables'
grep -q '^| mt | 2/4 | 1 | [0-9*]' failing/results.md || fail 'the plan stopped there'
grep -q '^| supervised:patch=1024:batch=64 | 2/0 | 0 of 1 | –' failing/results.md || fail "$(cat failing/results.md)"

# ---- other settings, other machines ---------------------------------------------------------------------------------
"$falx" compare set -o whole $tiny $plan --lr 0.5 >out 2>err
code=$?
[ $code = 9 ] && grep -q ' lr = .*\[K05\]' err || fail "other settings: exit $code, $(cat err)"
"$falx" compare set -o whole $tiny $plan --val 1 >out 2>err
code=$?
[ $code = 9 ] && grep -q ' val = none.*\[K05\]' err || fail "other validation cases: exit $code, $(cat err)"
"$falx" compare set -o whole $tiny $plan --label-map 7=1 >out 2>err
code=$?
[ $code = 9 ] && grep -q ' label_map = none.*7=1.*\[K05\]' err || fail "other labels: exit $code, $(cat err)"
# windows are settings of each run, also of results whose settings have their earlier names
few="$tiny --methods supervised,supervised:window=even:stride=8,8,4 --labels 2 --reference supervised --quiet"
"$falx" compare set -o windows $few --stride 16,16,8 || fail 'windows of a spec'
spec=$(echo windows/runs/supervised_*/result.json)
grep -q '"window_mode": "constant"' "$spec" && grep -q '"stride\[2\]": "4"' "$spec" || fail "windows of a spec: $spec"
older='/"window_mode"/d; /"stride\[[01]\]"/d; s/"stride\[2\]": .*/"stride": "8,8,4", "window": "even",/'
sed -i "$older" "$spec"
"$falx" compare set -o windows $few --stride 16,16,8 --tables || fail 'windows of an older result'
sed -i 's/"8,8,4", "window": "even"/"8,8,5", "window": "even"/' "$spec"
"$falx" compare set -o windows $few --stride 16,16,8 --tables >out 2>err
code=$?
[ $code = 9 ] && grep -q ' stride\[2\] = 5.*\[K05\]' err || fail "an older result of other windows: $code, $(cat err)"
# under a preset of the paper each method keeps its own published constants
"$falx" compare set -o paper $tiny --preset paper-la --recipe auto --stride auto --reference aua --labels 2 --quiet \
    --methods supervised,mt,sassnet,dtc,mc-net-plus,aua,aua:stages=1 || fail 'a plan under a preset of the paper'
while read -r method weight labeled schedule ramp; do
    run=paper/runs/$method-L2-s1337/run.json
    for want in "\"consistency\": ${weight}0*1*," "\"labeled-batch\": $labeled," "\"schedule\": \"$schedule\"," \
        "\"rampup-length\": $ramp," '"augment": "crop",' '"window-mode": "constant",' '"dropout": "both",'; do
        grep -q "^  $want" $run || fail "$method under paper-la: no $want in $(grep "${want%%:*}" $run)"
    done
done <<end
supervised 0 2 step "auto"
mt 0.1 1 poly 30000
sassnet 0.01 1 step 6000
dtc 1 1 step 6000
mc-net-plus 1 1 constant 6000
aua 0.149* 1 step 6000
aua_stages=1 0.149* 1 step 6000
end
for i in 1 2; do
    "$falx" compare set -o machine$i $tiny $plan --part $i/2 --jobs 2 || fail "part $i"
    [ "$(find machine$i -name result.json | wc -l)" = 4 ] || fail "part $i did $(find machine$i -name result.json | wc -l)"
    grep -qE '^[1-9][0-9]* runs? ' machine$i/results.md || fail "part $i does not tell what is missing"
done
"$falx" compare set -o merged $tiny $plan --merge machine1,machine2 --tables || fail 'merging'
same whole merged
cp -r machine2/runs/* machine1/runs/
"$falx" compare set -o machine1 $tiny $plan --tables || fail 'copied runs'
same whole machine1


# ---- results that were damaged on the way ------------------------------------------------------------------------------
damaged() { # damaged TEXT SED-SCRIPT: of one result.json
    cp -r machine2 damaged
    sed -i "$2" "$(find damaged -name result.json | sort | head -1)"
    "$falx" compare set -o damaged $tiny $plan --tables >out 2>err
    code=$?
    [ $code = 3 ] && grep -qF -- "$1" err || fail "$2: exit $code, $(cat err)"
    rm -rf damaged
}
damaged result.json '0,/"name": "/s//&x/'
damaged '"phantom_' 's/"name": "phantom_/&x/'
"$falx" compare set -o machine2 $tiny ${plan% --quiet} --tables | grep -q '^machine2: 4 of 8 runs in ' || fail 'finished runs are not told'

# ---- held-out cases of other kinds ------------------------------------------------------------------------------------
truth=displaced/labels/$(head -1 set/test.list)
cp -r set displaced && gunzip "$truth.nii.gz" # its sform, 100 mm aside
printf '\0\0\310\102' | dd of="$truth.nii" bs=1 seek=292 conv=notrunc 2>/dev/null
"$falx" compare displaced -o off $tiny --methods supervised --labels 2 2>err && fail 'a truth on another grid was scored'
grep -q "$truth.nii: .*\[L03\]" err && [ ! -e off/runs ] || fail "a truth on another grid: $(cat err)"
printf '# held out\n phantom_0003\nphantom_0004.nii.gz\n' >held.list
# what a spec says needlessly makes no run of its own, however it is asked for
"$falx" compare set -o needless $tiny --methods mt:lr=0.01:unlabeled=1,supervised --labels 2 --reference supervised --quiet ||
    fail 'a spec with a default'
"$falx" compare set -o shared $tiny --methods mt,mt:lr=0.01,mt:lr=0.02:batch=2 --labels 2 --reference mt --merge needless \
    >out 2>err || fail 'specs that mean the same'
[ "$(ls needless/runs shared/runs | tr '\n' ' ')" = \
    'needless/runs: mt-L2-s1337 supervised-L2-s1337  shared/runs: mt-L2-s1337 mt_lr=0.02-L2-s1337 ' ] ||
    fail "runs $(ls needless/runs shared/runs)"
grep -q '1 of 2 ' err || fail "taken over: $(cat err)"
[ "$(grep -c '^methods,mt' shared/results.csv)" = 3 ] || fail 'lines of specs that mean the same'

"$falx" compare set -o listed $tiny --methods supervised --labels 1,all --test held.list --quiet || fail '--test LIST'
grep -q '^| supervised | 1/0 ' listed/results.md && grep -q '^| supervised | 2/0 ' listed/results.md || fail 'labels'
[ "$(cut -d, -f5 listed/cases.csv | sort -u | tr '\n' ' ')" = 'case phantom_0003 phantom_0004 ' ] || fail 'cases'
"$falx" phantom other --cases 2 --labeled 2 --test 0 --size 20 --seed 5 --quiet
"$falx" compare set -o other-test $tiny --methods supervised --labels 2 --test other --quiet || fail '--test FOLDER'
"$falx" compare set -o leak $tiny --methods supervised --labels 2 --test set >out 2>err
code=$?
[ $code = 3 ] && grep -q '\[L09\]$' err && [ ! -e leak ] || fail "trained cases: $code, $(cat err)"
cp -r other torn && truncate -s 200 torn/labels/phantom_0002.nii.gz
"$falx" compare set -o torn-test $tiny --methods supervised --labels 2 --test torn --quiet 2>err
code=$?
[ $code = 3 ] && [ "$(wc -l <err)" = 1 ] && grep -q 'phantom_0002' err && [ ! -e torn-test ] ||
    fail "a torn label to score on: $code, $(cat err)"
"$falx" prepare set -o ready --quiet && "$falx" compare ready -o from-ready $tiny --methods aua --labels 2 --quiet ||
    fail 'a prepared set'
[ -z "$(find from-ready/views -name '*.nii.gz')" ] || fail 'prepared twice'

# ---- refused: one line, and nothing is left ---------------------------------------------------------------------------
plan_refused() { # plan_refused CODE FACT OPTIONS: the last line on stderr
    local want=$1 text=$2
    fact "$text"
    shift 2
    "$falx" compare "$@" -o refused $tiny --labels 2 >out 2>err
    code=$?
    [ $code = "$want" ] && tail -n 1 err | grep -qF -- "$text" || fail "$*: exit $code, $(cat err)"
    [ ! -e refused ] || fail "$* left $(find refused | head -5)"
}
plan_refused 2 '--merge: ""' set --merge whole,,machine2
(cd whole && plan_refused 2 '--merge: ""' ../set --merge .,) || exit 1
plan_refused 2 '--merge: "whole/runs"' set --merge whole/runs
for f in results.md cost.csv report.html; do
    rm -rf mine && mkdir mine && echo mine >mine/$f
    "$falx" compare set -o mine $tiny --methods supervised --labels 2 >out 2>err
    code=$?
    [ $code = 2 ] && grep -q "^falx: error: mine: .*$f.*\[O03\]" err || fail "tables of others: exit $code, $(cat err)"
    [ "$(ls mine) $(cat mine/*)" = "$f mine" ] || fail "tables of others: $(ls mine)"
done
for i in 1 2; do # a plan without any run yet knows its own tables
    "$falx" compare set -o bare $tiny --methods supervised --labels 2 --tables --quiet || fail 'tables of nothing'
done
mkdir -p unstarted/logs/supervised-L2-s1337.txt
"$falx" compare set -o unstarted $tiny --methods supervised --labels 2 >out 2>err
code=$?
[ $code = 4 ] && grep -q '^falx: error: unstarted/logs/supervised-L2-s1337.txt: ' err ||
    fail "a run that cannot be started: exit $code, $(cat err)"
cp -r set broken && head -c 99 set/images/phantom_0002.nii.gz >broken/images/phantom_0002.nii.gz
plan_refused 3 '1 of 6 ' broken
plan_refused 4 /dev/null set --cache /dev/null
plan_refused 2 '--seeds: "4,5,4"' set --seeds 4,5,4
plan_refused 2 '--reference: "mt"' set --reference mt
plan_refused 2 '--stride: 17' set --stride 17
plan_refused 2 '"aua:config=mine"' set --methods aua:config=mine
plan_refused 2 '--patch: "16,16"' set --methods supervised:patch=16,16,mt
"$falx" compare set -o commas $tiny --methods supervised:patch=16,16,16,mt --labels 2 --quiet || fail 'a value with commas'
grep -q '^| supervised:patch=16,16,16 | 2/0 | 1 ' commas/results.md && grep -q '^| mt ' commas/results.md || fail 'commas'
echo "a plan of 8 runs, $hit times killed: tables, figures and pictures identical; failing, merged, listed: fine"
