#!/bin/bash
# tools/run-tests itself: in a tree of stand-ins every kind of step fails in every way a step can, and each failure is
# counted and named; without any, the tier passes.
# usage: runner_selftest.sh FALX        FALX is not used
set -u
here=$(dirname "$(realpath "$0")")/.. tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
fail() { echo "FAILED: $*"; cat "$tree/out"; exit 1; }
cd "$tree" || exit 1
mkdir -p tests/fuzz tools bin build/asan build/tsan
cp "$here/tools/run-tests" tools/

# A step that passes, or does what plants/ says of it.
cat >stand-in <<'END'
#!/bin/bash
plant=plants/$(echo "${0#"$PWD/"}" | tr / _)
for word in "$@"; do [ ! -e "plants/make_$word" ] || plant=plants/make_$word; done
case $(cat "$plant" 2>/dev/null) in
exit) echo "[  FAILED  ] 2 test(s), listed below:"; exit 1 ;;
crash) kill -SEGV $$ ;;
silent) exit 0 ;;
not_tried) echo "not tried: a part of it"; exit 0 ;;
skip) echo "[  SKIPPED ] some_test"; exit 77 ;;
skip_one) echo "[       OK ] one"; echo "[  SKIPPED ] some_test"; exit 0 ;;
fewer) echo "[       OK ] one"; echo "tally goldens 35"; exit 0 ;;
bad_fault) echo "faults: 115 passed, 1 failed, 0 skipped"; exit 1 ;;
skip_fault) echo "faults: 115 passed, 0 failed, 1 skipped"; exit 0 ;;
esac
case ${0##*/} in
test_methods) echo "tally goldens 36" ;;
test_methods_run) echo "tally methods 16" ;;
test_train) echo "tally kills 100000" ;;
doc-commands) echo "tally commands 1000" ;;
faults) echo "faults: 116 passed, 0 failed, 0 skipped" ;;
esac
echo "[       OK ] one"
END
chmod +x stand-in
place() { for f in "$@"; do cp stand-in "$f"; done; }
units="base sampler case_store distance metrics phantom prepare prepare_set check resample conv norm contrast
       methods methods_run train train_faults time_plan config net"
for t in $units; do
    touch "tests/test_$t.c"
    place "build/test_$t" "build/asan/test_$t" "build/tsan/test_$t"
done
for t in one two three; do
    touch "tests/fuzz/fuzz_$t.c"
    place "build/asan/replay_$t"
done
place build/faults build/asan/faults tools/lint tools/doc-commands tools/test-data bin/make
printf '#!/bin/bash\n[ "$1" = -c ] || exec "$@"\n' >bin/python3 # has every module, runs stand-ins
chmod +x bin/python3
place tests/{emulated,gpu,train,stop,compare}.sh
export PATH=$tree/bin:$PATH
unset FALX_TEST_DATA

tier() { # tier NAME: into out, its exit code into code
    tools/run-tests "$1" >out 2>&1
    code=$?
}
plant() { # plant KIND FILE: what the stand-in does when it runs
    mkdir -p plants
    echo "$1" >"plants/$(echo "$2" | tr / _)"
}
# failed N NAME...: the tier fails, N failures are counted, these steps are named
failed() {
    local n=$1 name
    shift
    [ $code != 0 ] || fail 'the tier passes with planted failures'
    tail -1 out | grep -qx "[0-9]* passed, $n failed, [0-9]* skipped" || fail "$(tail -1 out), expected $n failed"
    for name in "$@"; do grep -qF "FAILED  $name:" out || fail "$name is not named"; done
    rm -rf plants
}

for t in check test; do
    tier $t
    [ $code = 0 ] && tail -1 out | grep -qx '[0-9]* passed, 0 failed, 0 skipped' || fail "tier $t without any failure: exit $code"
done

# every kind of step, in every way; a cmocka program says how many of its tests failed
plant exit build/test_train
plant crash build/test_methods_run
plant silent build/asan/test_net
plant skip_one build/asan/test_config
plant exit build/tsan/test_base
plant crash build/tsan/test_conv
plant bad_fault build/faults
plant exit build/asan/replay_two
plant crash build/asan/replay_three
plant exit tests/emulated.sh
plant crash tests/train.sh
plant skip tests/stop.sh
plant skip tests/gpu.sh
plant not_tried tests/compare.sh
plant exit tools/lint
plant exit tools/doc-commands
plant exit tools/test-data
missing="build/asan/test_base build/asan/replay_one build/tsan/test_norm build/asan/faults"
for f in $missing; do mv "$f" "$f.gone"; done
tier test
for f in $missing; do mv "$f.gone" "$f"; done
failed 26 build/test_train build/test_methods_run build/asan/test_net build/asan/test_config build/tsan/test_base \
    build/tsan/test_conv build/asan/test_base 'fuzz corpus one' build/tsan/test_norm 'fault catalogue, sanitized' \
    'fault catalogue' 'fuzz corpus two' 'fuzz corpus three' emulated.sh train.sh stop.sh compare.sh lint \
    'commands in documents' 'make test data' commands faults methods kills
grep -q '^skipped gpu.sh' out || fail 'a GPU that is not there is no skip'

plant bad_fault build/asan/faults # once lost in a pipe
tier test
failed 1 'fault catalogue, sanitized'
plant skip_fault build/asan/faults
tier test
failed 1 'fault catalogue, sanitized'
plant fewer build/test_methods
tier check
failed 1 goldens
mv build/test_net gone
tier check
mv gone build/test_net
failed 1 build/test_net
for b in everything asan tsan emulated; do
    mkdir -p plants
    plant exit make_$b
    tier test
    failed 1
done
echo 'every planted failure was counted'
