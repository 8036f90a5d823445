#!/bin/bash
# train, predict and pseudo as a user meets them, on data so small that a run takes a fraction of a second:
# what is made, what is refused with which exit code and one line, and what the surroundings may do
# (signals, closed pipes, limits) without harm to a run.
# usage: train.sh FALX        FALX_TEST_DATA: real files, for the DICOM folder
set -u
falx=$(realpath "$1") tests=$(realpath "$(dirname "$0")") work=$(mktemp -d) failures=0
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1

wrong() { echo "WRONG: $*"; failures=$((failures + 1)); }

. "$tests/lib.sh"

await() { for _ in $(seq 400); do [ -e "$1" ] && return; sleep 0.02; done; wrong "$1 did not appear"; }

limited() { # limited FLAGS COMMAND...: under `ulimit FLAGS`
    local flags=$1
    shift
    (ulimit $flags && exec "$@")
}

"$falx" phantom set --cases 4 --labeled 2 --test 2 --size 24 --quiet || exit 1
tiny="--filters 2 --patch 16 --steps 4 --quiet"

# ---- a run, and what a second start says --------------------------------------------------------
succeeds 'run steps=8' "$falx" train --preset none set -o run $tiny
for f in model stage1; do [ -s run/$f.safetensors ] || wrong "no $f.safetensors"; done
[ "$(stat -c %a run/run.json)" = 600 ] || wrong 'run.json can be read by others'
grep -q 'stage2 4/4' run/log.txt || wrong 'log.txt does not tell of the last step'
[ -z "$(find run -name '.falx-*')" ] || wrong 'temporary files left'
refused 2 O01 '' "$falx" train --preset none set -o run $tiny
cp run/model.safetensors first
succeeds 'run: ' "$falx" train --preset none set -o run --filters 2 --patch 16 --steps 4 --resume
same run/model.safetensors first
refused 9 K05 '' "$falx" train --preset none set -o run --filters 2 --patch 16 --steps 5 --quiet --resume
refused 9 K05 'seed' "$falx" train --preset none set -o run $tiny --seed 3 --resume
"$falx" phantom others --cases 7 --labeled 2 --test 0 --size 32 --seed 9 --quiet
refused 9 K05 '' "$falx" train --preset none others -o run $tiny --resume
mv set/labels/phantom_0002.nii.gz label
refused 9 K05 '' "$falx" train --preset none set -o run $tiny --resume
mv label set/labels/phantom_0002.nii.gz
refused 2 C02 '--override: "stepz"' "$falx" train --preset none set -o run $tiny --resume --override lr,stepz
cp -r run other
succeeds ' other steps=' "$falx" train --preset none set -o other $tiny --resume --weight-decay 0.01 --override weight-decay
succeeds 'anew: ' "$falx" train --preset none set -o anew --filters 2 --patch 16 --steps 4 --resume
says 0.0067 err; says '--rampup continuous' err
same anew/model.safetensors first
cp -r run lost && rm lost/*.safetensors # what it took counts no longer
python3 -c "import sqlite3
with sqlite3.connect('lost/metrics.sqlite') as db: db.execute(\"update facts set value = '1e6' where key = 'seconds'\")"
succeeds 'lost: ' "$falx" train --preset none set -o lost --filters 2 --patch 16 --steps 4 --resume
"$falx" report lost -o lost.html --json | grep -Eq '"seconds": [0-9]{1,3}\.' || wrong 'seconds of steps that were lost count'

cp -r run stale && rm stale/run.json # its numbers are those of nobody
succeeds ' stale steps=' "$falx" train set -o stale $tiny --method supervised --steps 2
succeeds '"steps": 2,' "$falx" report stale -o stale.html --json

cp -r run torn && truncate -s 5000 torn/metrics.sqlite && cp torn/metrics.sqlite damaged && echo old >torn/metrics.sqlite-journal
refused 3 K02 '' "$falx" report torn -o torn.html
succeeds 'metrics.sqlite.damaged' "$falx" train --preset none set -o torn $tiny --resume
same torn/metrics.sqlite.damaged damaged
same torn/model.safetensors first
succeeds '1 run' "$falx" report torn -o torn.html

refused 3 L10 '' "$falx" train --preset none set -o unlearnt $tiny --val 2
[ ! -e unlearnt ] || wrong "without a label to learn from scans were prepared: $(find unlearnt | head -3)"

refused 3 L07 'set:' "$falx" train --preset none set -o unlearnt $tiny --label-map 1=0
succeeds '2 of 3 classes' "$falx" train --preset none set -o gap $tiny --label-map 1=3

# ---- trainings that share a folder of prepared cases wait for each other -------------------------
succeeds done "$falx" train --preset none set -o shared-1 $tiny --recipe la --cache shared
flock shared sleep 2 & pid=$!
sleep 0.2
succeeds 'shared: ' "$falx" train --preset none set -o shared-2 ${tiny% --quiet} --recipe la --cache shared
kill -0 $pid 2>/dev/null && wrong 'a training did not wait for the folder of prepared cases'
same shared-2/model.safetensors shared-1/model.safetensors
refused 2 O03 '--cache: ' timeout 20 "$falx" train --preset none set -o own $tiny --cache ./own
[ ! -e own ] || wrong 'a run that was its own cache left a folder'
for i in 1 2 3; do
    "$falx" train --preset none set -o shared-$i-of-3 $tiny --recipe la --cache together >/dev/null 2>err-$i &
done
wait
for i in 1 2 3; do same shared-$i-of-3/model.safetensors shared-1/model.safetensors; done

# ---- same bytes, whatever the threads ------------------------------------------------------------
precisions=f32
if "$falx" doctor --json | grep -q '"amx_bf16": true\|"avx512_bf16": true'; then
    precisions='f32 bf16'
else
    refused 6 '' 'bf16' "$falx" train --preset none set -o no-bf16 $tiny --precision bf16
fi
refused 6 '' 'tf32' "$falx" train --preset none set -o no-gpu $tiny --precision tf32 --device cpu
for p in $precisions; do
    for j in 1 2 4; do
        succeeds done "$falx" train --preset none set -o $p-$j $tiny --precision $p -j $j
        same $p-$j/model.safetensors $p-1/model.safetensors
        same $p-$j/stage1.safetensors $p-1/stage1.safetensors
    done
done

# ---- refusals ----------------------------------------------------------------------------------------
refused 4 Z12 'nodata' "$falx" train --preset none nodata -o x1 $tiny
refused 2 C03 '--labeled 9' "$falx" train --preset none set -o x2 $tiny --labeled 9
refused 4 Z12 'nolist' "$falx" train --preset none set -o x3 $tiny --labeled nolist
refused 2 C03 '--val' "$falx" train --preset none set -o x4 $tiny --val 5
refused 3 L10 '' "$falx" train --preset none set -o x5 $tiny --val 2
printf 'phantom_0001\nphantom_0099\n' >list
refused 3 L01 '"phantom_0099"' "$falx" train --preset none set -o x6 $tiny --val list
printf 'phantom_0003\n' >list
refused 2 C03 '"phantom_0003"' "$falx" train --preset none set -o x6 $tiny --val list
printf '# one\r\n\n phantom_0002.nii.gz \r\n' >list # as --labeled takes it
succeeds 'done x6' "$falx" train --preset none set -o x6 $tiny --val list
grep -A1 '"validation_cases"' x6/run.json | grep -q phantom_0002 || wrong 'the validation case of a list with comments'
refused 2 C02 '--max-time' "$falx" train --preset none set -o x7 $tiny --budget 5x
refused 2 C03 '' "$falx" train --preset none set -o x8 --patch 20 --quiet
for m in mt ua-mt entropy dtc dan sassnet simcvd mc-net mc-net-plus urpc cct aua; do
    refused 2 C03 "$m" "$falx" train set -o x8 $tiny --method $m --labeled-batch 4
done
refused 2 C03 'ict' "$falx" train set -o x8 $tiny --method ict --labeled-batch 3
refused 2 C03 'copy-paste' "$falx" train set -o x8 $tiny --method copy-paste --labeled-batch 3
refused 2 C03 'paste' "$falx" train --preset none set -o x8 $tiny --stage2-paste --labeled-batch 1
refused 2 C03 'stage2-cov' "$falx" train --preset none set -o x8 $tiny --stage2-paste --stage2-cov
[ ! -e x8 ] || wrong 'settings that were refused left a folder'
refused 4 Z12 '/proc/run' "$falx" train --preset none set -o /proc/run $tiny
refused 5 P17 'MiB' "$falx" train --preset none set -o x9 --patch 1024 --batch 64 --quiet
"$falx" train --preset none set -o x10 $tiny --label-map 1=150 2>err && wrong 'more samples of classes than there is room for'
says '--mc-samples 6' err; says '[C03]' err
mkdir locked && chmod 555 locked
[ -w locked ] || refused 4 '' 'locked' "$falx" train --preset none set -o locked/run $tiny

# ---- validation, time limit, presets -----------------------------------------------------------------------
succeeds 'dice=0' "$falx" train --preset none set -o val $tiny --val 1 --val-every 2
[ -s val/best.safetensors ] || wrong 'no best.safetensors'
[ "$(grep -c validation val/log.txt)" = 4 ] || wrong 'not four validations in the log'
printf 'phantom_0002\r\n' >list
succeeds 'dice=0' "$falx" train --preset none set -o val2 $tiny --val list --val-every 2
same val/model.safetensors val2/model.safetensors
succeeds ' steps' "$falx" train --preset none set -o limited --filters 2 --patch 16 --max-time 4s --val 1
[ -s limited/time-plan.json ] && [ -s limited/model.safetensors ] || wrong 'a run with --max-time lacks a file'
grep -q '"steps": 6000,' limited/run.json || wrong 'nominal steps are not recorded'
succeeds 'again steps=' "$falx" train --preset none set -o again --filters 2 --patch 16 --time-plan limited --val 1
same again/model.safetensors limited/model.safetensors
same again/best.safetensors limited/best.safetensors
python3 -c "import json
was, now = (json.load(open(run + '/time-plan.json')) for run in ('limited', 'again'))
assert now['decisions'] == was['decisions'] and now['max_time'] == 0 < was['max_time']" || wrong 'decisions were not repeated'
succeeds 'limited: ' "$falx" train --preset none set -o limited --filters 2 --patch 16 --budget 4s --val 1 --resume
refused 2 C01 '--time-plan' "$falx" train --preset none set -o x11 $tiny --max-time 5s --time-plan limited
refused 9 K05 '' "$falx" train --preset none set -o x11 $tiny --time-plan limited/time-plan.json --quiet
refused 4 Z12 'x12' "$falx" train --preset none set -o x11 $tiny --time-plan x12 --quiet
"$falx" train --preset none set -o killed --filters 2 --patch 16 --max-time 6s --checkpoint-every 5 --quiet >out 2>err & pid=$!
for _ in $(seq 400); do [ -e killed/checkpoint-b.safetensors ] && break; sleep 0.01; done
kill -KILL $pid
wait $pid 2>/dev/null
refused 9 K05 '--max-time' "$falx" train --preset none set -o killed --filters 2 --patch 16 --steps 6000 --time-plan limited --resume --checkpoint-every 5 --quiet
succeeds 'killed steps=' "$falx" train --preset none set -o killed --filters 2 --patch 16 --resume --checkpoint-every 5
succeeds 'done again2' "$falx" train --preset none set -o again2 --filters 2 --patch 16 --time-plan killed
same again2/model.safetensors killed/model.safetensors
"$falx" train set -o bare --patch 16 --filters 2 >out 2>err & pid=$!
await bare/run.json
kill -TERM $pid
wait $pid
[ $? = 10 ] && head -1 err | grep -q 'preset auto .*copy-paste: 800 + 3200 steps.* 40m; --max-time' ||
    wrong "the default is not announced: $(cat err)"
grep -q '"max-time": "40m"' bare/run.json && grep -q '"preset": "auto"' bare/run.json || wrong 'the default is not recorded'
# a limit or a step count that is not given again is that of the run
"$falx" train set -o own --patch 16 --filters 2 --max-time 8s --checkpoint-every 5 --quiet >out 2>err & pid=$!
for _ in $(seq 400); do [ -e own/checkpoint-b.safetensors ] && break; sleep 0.01; done
kill -KILL $pid
wait $pid 2>/dev/null
succeeds 'own steps=' "$falx" train set -o own --patch 16 --filters 2 --checkpoint-every 5 --resume
says ' 8 s' err
grep -q '"max_time": 8' own/time-plan.json || wrong 'a resume has another time limit'
"$falx" train --preset none set -o more --patch 16 --filters 2 --steps 500000 --max-time 9h --checkpoint-every 5 --quiet >out 2>err & pid=$!
for _ in $(seq 400); do [ -e more/checkpoint-b.safetensors ] && break; sleep 0.01; done
kill -TERM $pid
wait $pid
resumed="--preset none set -o more --patch 16 --filters 2 --checkpoint-every 5 --max-time 4s --resume"
refused 9 K05 400000 "$falx" train $resumed --steps 400000 --quiet
succeeds 'more steps=' "$falx" train $resumed --steps 400000 --override steps
refused 2 C01 'paper-text' "$falx" train set -o x13 --preset paper-text --method mt
succeeds 'method steps=' "$falx" train set -o method --method supervised --patch 16 --filters 2 --steps 2
head -1 err | grep -q 'supervised: 2 steps; --max-time' || wrong "the plan is not announced: $(head -1 err)"
"$falx" train --preset none set -o days --filters 8 --patch 32 --steps 10000000 >out 2>err & pid=$!
for _ in $(seq 400); do grep -q ' hours .*--max-time' err && break; sleep 0.02; done
kill -TERM $pid
wait $pid
[ $? = 10 ] && grep -q ' hours .*--max-time' err || wrong "days are not announced: $(cat err)"
while read -r p lambda augment mode stride; do # as the paper has it: "Preprocessing", "Implementation details"
    succeeds 'method = aua' "$falx" train set -o x --preset $p --print-config
    grep -qx "lambda-c = $lambda" out || wrong "lambda-c of preset $p"
    grep -qx "augment = $augment" out || wrong "augmentation of preset $p"
    grep -qx "window-mode = $mode" out && grep -qx "stride = $stride" out || wrong "windows of preset $p"
    mv out preset && succeeds 'method = aua' "$falx" train set -o x --config preset --print-config
    same preset out
done <<end
paper-la 0.09 crop constant 18,18,4
paper-pancreas20 0.09 crop constant 16,16,16
paper-pancreas5 0.01 crop constant 16,16,16
paper-colon5 0.03 paper constant 16,16,16
paper-text 0.09 paper gaussian auto
la 0.09 mirror gaussian auto
end
# every constant of the pages of presets: | `key`, `key` of `preset` | value; value | where the paper says so |
for page in paper-la paper-pancreas paper-colon5; do
    checked=0
    while IFS='|' read -r _ keys values _; do
        preset=${page/%pancreas/pancreas20}
        case $keys in *' of '*) preset=$(tr -d '` ' <<<"${keys##* of }") keys=${keys%% of *} ;; esac
        IFS=, read -ra key <<<"$(tr -d '` ' <<<"$keys")"
        IFS=';' read -ra value <<<"$(tr -d '` ' <<<"$values")"
        [ ${#key[@]} = ${#value[@]} ] || wrong "$page.md: $keys has the values $values"
        "$falx" train set -o x --preset $preset --print-config >out
        for i in "${!key[@]}"; do
            grep -qx "${key[i]} = ${value[i]}" out || wrong "$page.md: ${key[i]} = ${value[i]}, $preset has $(grep "^${key[i]} =" out)"
            checked=$((checked + 1))
        done
    done < <(grep '^| `' "$tests/../docs/presets/$page.md")
    [ $checked -ge 40 ] || wrong "$page.md: $checked constants"
done
succeeds 'patch = 112,112,80' "$falx" train set -o x --preset paper-la --print-config
succeeds 'largest = true' "$falx" train set -o x --preset la --print-config
succeeds 'patch = 160,128,80' "$falx" train set -o x --preset la --print-config
succeeds 'rampup = continuous' "$falx" train set -o x --preset paper-text --print-config
for line in 'mc-reduce = sum' 'ged-reduce = sum' 'bcl-reduce = sum' 'pcl-form = paper' 'nb-rule = bg-ring'; do
    grep -qx "$line" out || wrong "preset paper-text lacks $line"
done
succeeds 'steps = 7' "$falx" train set -o x --preset auto --steps 7 --print-config
refused 2 C01 '"paper-moon"' "$falx" train set -o x --preset paper-moon --print-config

# ---- signals -----------------------------------------------------------------------------------------------
long="--filters 2 --patch 16 --steps 60 --checkpoint-every 10 --quiet"
slow="--method supervised --filters 8 --patch 64 --batch 2 --labeled-batch 1 --precision f32 --quiet -j 2"

"$falx" train --preset none set -o whole $long >out 2>err || wrong "long run: $(tail -1 err)"
stopped=0
for signal in TERM INT HUP; do
    rm -rf part
    setsid "$falx" train --preset none set -o part $long >out 2>err & pid=$! # a background job of a script ignores INT
    await part/checkpoint-b.safetensors
    start=$SECONDS code=0
    kill -$signal $pid 2>/dev/null
    wait $pid || code=$?
    [ $((SECONDS - start)) -le 20 ] || wrong "SIG$signal: $((SECONDS - start)) s to stop"
    if [ $code = 10 ]; then
        stopped=$((stopped + 1))
        grep -q '\[P11\]' err && [ "$(wc -l <err)" = 1 ] || wrong "SIG$signal: $(cat err)"
        succeeds done "$falx" train --preset none set -o part $long --resume
    elif [ $code != 0 ]; then
        wrong "SIG$signal: exit $code, $(cat err)"
    fi
    same part/model.safetensors whole/model.safetensors
done
[ $stopped -gt 0 ] || wrong 'no signal hit a run'

"$falx" train set -o busy $slow >out1 2>err1 & pid=$!
await busy/checkpoint-a.safetensors
refused 9 P08 '' "$falx" train set -o busy $slow
refused 9 P08 '' "$falx" train set -o busy $slow --resume
kill -TERM $pid
sleep 0.05
kill -TERM $pid 2>/dev/null
code=0
wait $pid || code=$?
[ $code = 143 ] || [ $code = 10 ] || wrong "second signal: exit $code"
[ $code = 143 ] || echo "note: the first signal was answered before the second came"
[ -z "$(find busy -name '.falx-*')" ] || wrong 'temporary files left by the second signal'

# ---- surroundings -------------------------------------------------------------------------------------------
"$falx" train --preset none set -o pipe --filters 2 --patch 16 --steps 4 2>&1 | head -0
[ "${PIPESTATUS[0]}" = 0 ] || wrong 'a log reader that went away ended the run'
mkdir plain && for i in 1 2 3 4; do cp set/images/phantom_000$i.nii.gz plain/$i.nii; done # a warning each
"$falx" predict run -i plain -o piped 2>&1 | head -0
[ "$(ls piped | wc -l)" = 4 ] || wrong "a closed pipe for warnings ended predict after $(ls piped | wc -l) of 4 masks"
"$falx" train --preset none set -o closed $tiny >&- 2>&- <&- || wrong 'closed standard files ended the run'
"$falx" train --preset none set -o full $tiny >/dev/full 2>/dev/full || wrong 'a full stdout ended the run'
env -i "$falx" train --preset none set -o homeless $tiny >out 2>err || wrong "empty environment: $(cat err)"
for r in pipe closed full homeless; do same $r/model.safetensors first; done
(umask 0777; exec "$falx" train --preset none set -o masked $tiny) >out 2>err; code=$?
{ [ $code = 0 ] && [ ! -s err ]; } || { [ $code = 4 ] && [ "$(wc -l <err)" = 1 ]; } ||
    wrong "umask 0777: exit $code, $(cat err)"
chmod -R u+rwX masked 2>/dev/null
refused 4 Z12 '' limited '-f 1' "$falx" train --preset none set -o small-files $tiny
refused 4 Z12 '' limited '-n 5' "$falx" train --preset none set -o few-files $tiny
succeeds done limited '-n 16' "$falx" train --preset none set -o sixteen-files $tiny
refused 5 P17 '292 MiB' limited '-v 300000' "$falx" train --preset none set \
    -o small-memory --patch 96 --quiet
limited '-s 256' "$falx" train --preset none set -o small-stack $tiny >out 2>err; code=$?
[ $code = 0 ] || { [ $code = 4 ] && grep -q 'ulimit -s' err; } || wrong "ulimit -s 256: exit $code"
# whatever address space is left, and wherever it ends: done or refused, never a crash of a stack that cannot grow
for kb in $(seq 12000 400 24000); do
    (ulimit -c 0 -v $kb && exec "$falx" train set -o narrow --method supervised --filters 1 --patch 16 --batch 2 --steps 1 \
        --quiet --device cpu) >out 2>err; code=$?
    [ $code = 0 ] || [ $code = 5 ] || wrong "ulimit -v $kb: exit $code, $(tail -1 err)"
    rm -rf narrow
done
[ -z "$(find small-files few-files small-memory -name '.falx-*' 2>/dev/null)" ] || wrong 'temporary files left'

# ---- networks with several outputs: a plain V-Net is published ---------------------------------------------
succeeds 'done' "$falx" train set -o plain $tiny --method supervised
for m in mc-net-plus urpc cct chaitanya; do
    succeeds 'done' "$falx" train set -o "$m" $tiny --method $m --val 1
    succeeds 'mask' "$falx" predict "$m" -i set/images/phantom_0001.nii.gz -o $m.nii.gz
    [ "$(wc -c <$m/model.safetensors)" = "$(wc -c <plain/model.safetensors)" ] || wrong "$m: not a V-Net"
done

# ---- predict ---------------------------------------------------------------------------------------------------
scans=set/images
succeeds '6 masks' "$falx" predict run -i $scans -o masks --uncertainty --prob --tta --largest
[ "$(ls masks | wc -l)" = 25 ] || wrong "$(ls masks | wc -l) files of 6 masks, 18 maps and a list"
[ "$(grep -c ambiguity masks/uncertainty.json)" = 6 ] || wrong 'uncertainty.json'
for f in masks/phantom_000?.nii.gz; do
    for g in "$f" "$scans/${f##*/}"; do
        "$falx" info "$g" --json | grep -vE '"(path|dtype|min|max|mean)"' >"grid-$(dirname "$g" | tr / -)"
    done
    same grid-masks grid-set-images
done
refused 2 O01 '' "$falx" predict run -i $scans -o masks
# a run can ask for mirror images itself; --no-tta and --tta are stronger, and mean the images training saw;
# likewise for the largest component and statistics of the scan
succeeds done "$falx" train --preset none set -o mirrored $tiny --augment mild --tta --largest --adapt
for how in '' --tta --no-tta --adapt --no-adapt; do
    succeeds '1 mask' "$falx" predict mirrored -i $scans --part 1/6 -o "seen$how" --prob $how
done
for how in tta adapt; do
    same seen/phantom_0001_foreground.nii.gz seen--$how/phantom_0001_foreground.nii.gz
    cmp -s seen/phantom_0001_foreground.nii.gz seen--no-$how/phantom_0001_foreground.nii.gz &&
        wrong "--$how changes nothing"
done
grep -q '"largest_component": true' mirrored/run.json || wrong 'the run does not tell of its components'
rm masks/phantom_0001.nii.gz
for f in masks/phantom_000[2-6].nii.gz; do rm "$f"; done
refused 2 O01 '_std' "$falx" predict run -i $scans -o masks --uncertainty
refused 2 O01 'phantom_' "$falx" predict run -i $scans -o $scans --force
mkdir twins scored && echo mine >scored/uncertainty.json
for f in a a_std; do cp $scans/phantom_0001.nii.gz twins/$f.nii.gz; done
refused 2 O01 'twins-out/a_std.nii.gz: ' \
    "$falx" predict run -i twins -o twins-out --uncertainty --force
refused 2 O01 '' "$falx" predict run -i twins -o twins-out --uncertainty --part 1/2
[ ! -e twins-out ] || wrong "refused outputs leave $(find twins-out)"
succeeds '2 masks' "$falx" predict run -i twins -o twins-out
refused 2 O01 'scored/uncertainty.json: ' "$falx" predict run -i $scans -o scored --uncertainty
[ "$(ls scored) $(cat scored/*)" = 'uncertainty.json mine' ] || wrong "a list of others: $(ls scored)"
succeeds '2 masks' "$falx" predict run -i $scans -o part2 --part 2/4
for i in 1 2 3; do succeeds 'mask' "$falx" predict run -i $scans -o parts --uncertainty --part $i/3; done
[ "$(grep -c ambiguity parts/uncertainty-?-of-3.json | tr '\n' ' ')" = "$(echo parts/uncertainty-{1,2,3}-of-3.json:2 '')" ] ||
    wrong "scores of parts: $(ls parts)"
sed 's/"adapted_statistics": [a-z]*/"adapted_statistics": "yes"/' run/run.json >odd.json && cp -r run odd && mv odd.json odd/run.json
refused 3 C01 'adapted_statistics' "$falx" predict odd -i $scans -o oddly
[ "$(ls part2 | tr '\n' ' ')" = 'phantom_0002.nii.gz phantom_0006.nii.gz ' ] || wrong "part 2/4: $(ls part2)"
for p in 0/4 5/4 1 1/ /2 1/2x -1/2; do refused 2 C02 '--part' "$falx" predict run -i $scans -o px --part=$p; done
one=$scans/phantom_0001.nii.gz
# --resume makes what is missing, to the same bytes; a bad scan is no reason to do without the others
succeeds '6 masks' "$falx" predict run -i $scans -o unbroken --uncertainty
cp -r $scans holes && head -c 99 $one >holes/phantom_0003.nii.gz
refused 3 Z03 'phantom_0003' "$falx" predict run -i holes -o resumed --uncertainty
[ "$(grep -c name resumed/uncertainty.json)" = 2 ] || wrong 'scores of the scans before a bad one'
refused 2 O01 '--resume' "$falx" predict run -i $scans -o resumed --uncertainty
rm resumed/phantom_0002_std.nii.gz && touch -d 2001-01-01 resumed/phantom_0001.nii.gz
succeeds '5 masks' "$falx" predict run -i $scans -o resumed --uncertainty --resume
[ "$(stat -c %y resumed/phantom_0001.nii.gz | head -c 4)" = 2001 ] || wrong '--resume made a mask anew'
diff -r unbroken resumed || wrong 'resumed masks are others'
succeeds '0 masks' "$falx" predict run -i $scans -o resumed --uncertainty --resume
refused 2 C01 '--force' "$falx" predict run -i $scans -o resumed --resume --force
succeeds 'phantom_0003.nii.gz:' \
    "$falx" predict run -i holes -o skipped --uncertainty --skip-bad
[ "$(ls skipped/*_std.nii.gz | wc -l) $(grep -c name skipped/uncertainty.json)" = '5 5' ] || wrong 'a bad scan is left out'
succeeds '1 mask' "$falx" predict run -i $scans -o skipped --uncertainty --resume
for f in unbroken/*.nii.gz; do same "$f" "skipped/${f##*/}"; done
mkdir bad && cp holes/phantom_0003.nii.gz bad/
code=0; "$falx" predict run -i bad -o none --skip-bad 2>err || code=$?
[ $code = 3 ] && [ ! -e none ] && grep -q '\[L10\]$' err || wrong "only bad scans: $code, $(cat err)"
mkdir linked && ln -s "$PWD/$one" linked/a.nii.gz
refused 3 L11 '--follow' "$falx" predict run -i linked -o followed
succeeds '1 mask' "$falx" predict run -i linked -o followed --follow
cp -r set orphaned && cp orphaned/labels/phantom_0001.nii.gz orphaned/labels/nobody.nii.gz
succeeds 'orphaned/labels/nobody.nii.gz:' "$falx" prepare orphaned -o prepared
succeeds 'ambiguity' "$falx" predict run -i $one -o one.nii.gz --uncertainty
[ -s one_std.nii.gz ] && [ -s one_entropy.nii.gz ] || wrong 'no maps beside the mask'
for i in 1 2; do # names with dots keep them, and eval finds the map that is called after the mask
    succeeds '1 mask' "$falx" predict run -i $one -o one.v$i.nii.gz --uncertainty
    succeeds 'dice' "$falx" eval set/labels/phantom_0001.nii.gz one.v$i.nii.gz --pictures drawn$i --map std
    [ -s one.v${i}_std.nii.gz ] && [ -s drawn$i/phantom_0001_std.png ] || wrong "maps of one.v$i.nii.gz"
done
succeeds '6 masks' "$falx" predict run -i $scans -o all --uncertainty
succeeds ' of 6 ' "$falx" eval set/labels all
mkdir pairs # truths as gzipped pairs of header and voxels
gzip -dc set/labels/phantom_0001.nii.gz | tail -c +353 | gzip >pairs/phantom_0001.img.gz
{ gzip -dc set/labels/phantom_0001.nii.gz | head -c 108; head -c 4 /dev/zero
  gzip -dc set/labels/phantom_0001.nii.gz | tail -c +113 | head -c 232; printf 'ni1\0'; } | gzip >pairs/phantom_0001.hdr.gz
succeeds 'phantom_0001    1.0000' "$falx" eval pairs set/labels
cp -r $scans twice && cp $one twice/phantom_0001.nrrd # which of the two is meant?
refused 3 L01 '"phantom_0001"' "$falx" eval set/labels set/labels --image twice --pictures px
succeeds 'prepared' "$falx" prepare set -o sevens --preset none --label-map 1=7
succeeds '--label-map 7=1' "$falx" eval sevens set
# what knows how unsure it is: stage 1, or stage 2 if its covariance was trained
for cov in '' --stage2-cov; do
    succeeds done "$falx" train --preset none set -o "unsure$cov" $tiny $cov
    succeeds ambiguity "$falx" predict "unsure$cov" -i $one -o "first$cov.nii.gz" --uncertainty
    rm "unsure$cov/stage1.safetensors"
done
succeeds ambiguity "$falx" predict unsure--stage2-cov -i $one -o late--stage2-cov.nii.gz --uncertainty
same first--stage2-cov_std.nii.gz late--stage2-cov_std.nii.gz
refused 3 S10 'stage1.safetensors: ' "$falx" predict unsure -i $one -o late.nii.gz --uncertainty
refused 3 S10 '' "$falx" pseudo unsure set -o late
succeeds '1 mask' "$falx" predict unsure -i $one -o late.nii.gz
succeeds '1 mask' "$falx" predict run -i $one -o one.nrrd
succeeds '1 mask' "$falx" predict run -i $one -o near.nrrd --geometry-tolerance 0.1
refused 2 O02 '.mha' "$falx" predict run -i $one -o one.mha
refused 4 Z12 'nowhere' "$falx" predict run -i $one -o nowhere/one.nii.gz
refused 2 C03 'stride' "$falx" predict run -i $one -o strided.nii.gz --stride 17
# windows are settings of a run: recorded, followed by predict and pseudo, no part of a training step
refused 2 C03 '' "$falx" train --preset none set -o gaps $tiny --stride 17
[ ! -e gaps ] || wrong 'windows with gaps left a folder'
succeeds done "$falx" train --preset none set -o windowed $tiny --window-mode constant --stride 4,5,6
succeeds done "$falx" train --preset none set -o unwindowed $tiny
same windowed/model.safetensors unwindowed/model.safetensors
grep -q '"window_fusion": "constant"' windowed/run.json || wrong 'the windows of a run are not recorded'
follow() { # follow NAME RUN OPTIONS...: the probabilities, which show every window
    local name=$1 run=$2
    shift 2
    succeeds '1 mask' "$falx" predict $run -i $one -o $name.nii.gz --prob "$@"
}
follow as-run windowed
follow as-given unwindowed --window even --stride 4,5,6 # the option's and the choice's earlier names
follow usual unwindowed
follow overruled windowed --window-mode gaussian --stride 8
same as-run_foreground.nii.gz as-given_foreground.nii.gz
same usual_foreground.nii.gz overruled_foreground.nii.gz
cmp -s as-run_foreground.nii.gz usual_foreground.nii.gz && wrong 'windows make no difference'
cp -r unwindowed older && sed -i '/"window\|"stride/d' older/run.json # a run of before these settings
follow older older
same usual_foreground.nii.gz older_foreground.nii.gz
succeeds ambiguity "$falx" pseudo windowed set -o as-run
succeeds ambiguity "$falx" pseudo unwindowed set -o as-given --window-mode constant --stride 4,5,6
diff -r as-run as-given >/dev/null || wrong 'pseudo does not follow the windows of a run'
refused 9 K05 'stride[2] = 6' "$falx" train --preset none set -o windowed $tiny --window-mode constant --stride 4,5,7 --resume
refused 3 S11 '' "$falx" predict model.pt -i $one -o x.nii.gz
touch model.pt && refused 3 S11 'pickle' "$falx" predict model.pt -i $one -o x.nii.gz
refused 4 Z12 'norun' "$falx" predict norun -i $one -o x.nii.gz
refused 3 L01 '' "$falx" predict set -i $one -o x.nii.gz
refused 4 Z12 'noscan' "$falx" predict run -i noscan -o x.nii.gz
mkdir empty && refused 3 L01 '' "$falx" predict run -i empty -o x
refused 3 N02 'list: ' "$falx" predict run -i list -o x.nii.gz
refused 3 S10 '' "$falx" predict run -i $one -o x.nii.gz --model best
for p in $precisions; do
    for j in 1 2 4; do
        succeeds mask "$falx" predict run -i $one -o $p-$j.nii.gz --precision $p -j $j --uncertainty
        for f in '' _std _entropy; do same $p-$j$f.nii.gz $p-1$f.nii.gz; done
    done
done
head -c 100000 run/model.safetensors >cut && mkdir cut-run && cp run/run.json cut-run && mv cut cut-run/model.safetensors
refused 3 S06 'model.safetensors' "$falx" predict cut-run -i $one -o x.nii.gz
mkdir cut && head -c 99 $one >cut/a.nii.gz
refused 3 Z03 'cut/a.nii.gz' "$falx" predict run -i cut -o made/for/nothing
[ ! -e made ] || wrong "a refused scan leaves $(find made)"
refused 4 '' 'log.txt' "$falx" report run -o page.html --charts run/log.txt
[ ! -e page.html ] || wrong 'a page although its charts could not be written'

# ---- what is read, and what is not ours, stays as it is, also with --force --------------------------------------
kept() { # kept FACT FILE COMMAND...: refused with O01 and FACT, and FILE is as before
    local fact=$1 file=$2
    shift 2
    cp "$file" before
    refused 2 O01 "$fact" "$@"
    same "$file" before
}
mkdir charts && echo mine >charts/loss-run.svg
kept 'charts/loss-run.svg: ' charts/loss-run.svg "$falx" report run -o page.html --charts charts
[ "$(ls charts)" = loss-run.svg ] && [ ! -e page.html ] || wrong "written before it was refused: $(ls charts)"
succeeds '1 run' "$falx" report run -o page.html --charts charts --force
cp -r set/labels truth && label=truth/phantom_0001.nii.gz
"$falx" eval truth truth --json >scores.json 2>err || wrong "eval: $(cat err)"
mkdir shots && "$falx" eval $label $label --pictures shots >out 2>err || wrong "eval: $(cat err)"
shot=$(ls shots/*.png)
cp -r run $'red\033[31m' # a name cannot speak to the terminal
succeeds 'red\x1B[31m ' "$falx" report $'red\033[31m' -o red.html --eval scores.json
for f in run.json metrics.sqlite model.safetensors; do
    kept 'only *.html' run/$f "$falx" report run -o run/$f --force
done
kept 'only *.html' run/log.txt "$falx" report run -o run/../run/./log.txt --force
kept 'scores.json' scores.json "$falx" report run -o scores.json --eval scores.json --force
kept "$shot" "$shot" "$falx" report run -o "$shot" --pictures shots --force
succeeds '1 run' "$falx" report run -o run/report.html
succeeds '1 run' "$falx" report run -o run/report.html --force
for what in 'truth truth' "$label $label"; do
    kept '"phantom_0001"' $label "$falx" eval $what --csv $label --force
done
kept "$one" $one "$falx" eval $label $label --image $one --pictures shots2 --csv $one --force
"$falx" prepare set -o ready --quiet >out 2>err || wrong "prepare: $(cat err)"
no_mask=ready/images/phantom_0001.nii.gz
refused 3 L05 '' "$falx" eval $no_mask $no_mask --pictures made/for/nothing
[ ! -e made ] || wrong "a refused mask leaves $(find made)"
kept 'ready' ready/prepared.json "$falx" prepare ready -o ready --force
kept 'ready' ready/prepared.json "$falx" prepare ready -o ./ready/ --quiet

# ---- scores of what is not there ----------------------------------------------------------------------------------
for what in 'nosuch nosuch2' 'nosuch truth' "nosuch $label"; do refused 4 Z12 'nosuch: ' "$falx" eval $what; done
for what in 'truth nosuch' "$label nosuch"; do refused 4 Z12 'nosuch: ' "$falx" eval $what; done
series=${FALX_TEST_DATA:-none}/formats/dicom_j2k
if [ -d "$series" ] && command -v dcm2niix >/dev/null; then
    succeeds '1 mask' "$falx" predict run -i "$series" -o dicom.nii.gz --stride 16
else
    echo 'not tried: predicting a DICOM folder, no FALX_TEST_DATA or no dcm2niix'
fi

# ---- methods with other networks: trained by one thread and two, predicted ----------------------------------
for m in dtc dan sassnet simcvd; do
    succeeds done "$falx" train set -o m-$m $tiny --method $m -j 1
    succeeds done "$falx" train set -o m2-$m $tiny --method $m -j 2
    same m-$m/model.safetensors m2-$m/model.safetensors
    succeeds 'mask' "$falx" predict m-$m -i $one -o $m.nii.gz --uncertainty
    [ -s ${m}_entropy.nii.gz ] || wrong "no entropy of $m"
done

# ---- pseudo -----------------------------------------------------------------------------------------------------
succeeds 'ambiguity' "$falx" pseudo run set -o proposed
[ "$(ls proposed/labels proposed/confidence | grep -c nii.gz)" = 4 ] || wrong 'proposals of two cases'
grep -q '"rank": 2' proposed/ranking.json || wrong 'ranking.json'
refused 2 O01 '' "$falx" pseudo run set -o proposed
rm proposed/ranking.json && refused 2 O01 'labels/' "$falx" pseudo run set -o proposed
succeeds '"rank": 1' "$falx" pseudo run set -o proposed --force --json
mv out ranking && same ranking proposed/ranking.json
succeeds 'phantom_0002' "$falx" pseudo run set -o proposed3 --labeled 1
cp -r set odd-names && mv odd-names/images/phantom_0003.nii.gz odd-names/images/$'two\nlines\e[2J.nii.gz' && rm odd-names/train.list
succeeds 'two\x0Alines\x1B[2J ' "$falx" pseudo run odd-names -o proposed5
rm proposed/confidence/phantom_0004.nii.gz && touch -d 2001-01-01 proposed/labels/phantom_000?.nii.gz
succeeds 'ambiguity' "$falx" pseudo run set -o proposed --resume
[ "$(stat -c %y proposed/labels/*3.nii.gz proposed/labels/*4.nii.gz | grep -c ^2001)" = 1 ] || wrong 'pseudo --resume'
same ranking proposed/ranking.json
for f in . images labels; do refused 2 O01 'set' "$falx" pseudo run set -o ./set/$f; done
cp -r set holed && head -c 99 $one >holed/images/phantom_0003.nii.gz
refused 3 Z03 'phantom_0003' "$falx" pseudo run holed -o made/for/nothing
[ ! -e made ] || wrong "a refused scan leaves $(find made)"
succeeds 'phantom_0003.nii.gz:' \
    "$falx" pseudo run holed -o proposed4 --skip-bad
[ "$(grep -c rank proposed4/ranking.json)" = 1 ] || wrong 'a case that was left out is ranked'
rm set/images/phantom_000[34].nii.gz
sed -i '/000[34]/d' set/train.list
refused 3 L10 '' "$falx" pseudo run set -o proposed2

[ $failures = 0 ] || { echo "$failures wrong"; exit 1; }
echo 'train, predict and pseudo behave'
