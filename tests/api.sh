#!/bin/bash
# The library as it is delivered: only names that begin with falx_, a pkg-config file that builds the example
# against the shared and the static library, and the example at work on a trained run.
# usage: api.sh FALX
set -eu
falx=$(realpath "$1") lib=$(realpath "$(dirname "$1")")/lib source=$(realpath "$(dirname "$0")")/../examples/predict.c
if [ ! -e "$lib/libfalx.so" ]; then echo "api: skipped, no library in $lib"; exit 77; fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

foreign() { awk '$NF !~ /^falx_/ { print $NF }' | grep -vE '^(_init|_fini|_edata|_end|__bss_start)$' || true; }
[ -z "$(nm -D --defined-only "$lib/libfalx.so" | foreign)" ]
[ -z "$(nm -g --defined-only "$lib/libfalx.a" | grep -v ':$' | grep . | foreign)" ]
nm -D --defined-only "$lib/libfalx.so" | grep -q ' T falx_predict$'

"$falx" phantom set --cases 4 --labeled 2 --test 0 --size 24 --quiet
"$falx" train --preset none set -o run --filters 2 --patch 16 --steps 4 --quiet >/dev/null
scan=set/images/phantom_0003.nii.gz
"$falx" predict run -i $scan -o cli.nii.gz --quiet

export PKG_CONFIG_PATH=$lib/pkgconfig
cc=${CC:-cc}
$cc -Wall -Werror "$source" $(pkg-config --cflags --libs falx) -Wl,-rpath,"$lib" -o shared
$cc -Wall -Werror "$source" $(pkg-config --cflags falx) "$lib/libfalx.a" \
    $(pkg-config --static --libs falx | sed "s,-L$lib *-lfalx,,") -o static
for program in "$lib/example" ./shared ./static; do
    rm -f mask.nii.gz
    "$program" run $scan mask.nii.gz >out
    grep -q 'aua, 1 channels, 2 classes, patch 16 x 16 x 16' out
    grep -q 'after 10 steps' out
    cmp mask.nii.gz cli.nii.gz
    code=0
    "$program" nowhere $scan mask.nii.gz >out 2>err || code=$?
    [ $code = 4 ] && [ "$(wc -l <err)" = 1 ] && [ ! -s out ]
done
# a program with a decimal comma gets the same files
cat >comma.c <<'END'
#include <locale.h>
#include <stdlib.h>
__attribute__((constructor)) static void comma(void)
{
    if (!setlocale(LC_ALL, "de_DE.UTF-8"))
        exit(77);
}
END
if localedef -i de_DE -f UTF-8 ./de_DE.UTF-8 2>/dev/null; then
    $cc "$source" comma.c $(pkg-config --cflags --libs falx) -Wl,-rpath,"$lib" -o comma
    LOCPATH=$PWD ./comma run $scan comma.nrrd | grep -q 'loss [0-9],'
    "$falx" predict run -i $scan -o point.nrrd --quiet
    cmp comma.nrrd point.nrrd
else
    echo 'not tried: a decimal comma, no localedef here'
fi
[ "$(pkg-config --modversion falx)" = "$("$falx" --version | cut -d' ' -f2)" ]
echo 'library: only falx_ names; example built three ways, same mask as falx predict'
