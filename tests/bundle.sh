#!/bin/bash
# The bundle at work where nothing else is: in an empty root, as a user without rights, its folder read-only and with
# blanks and a colon in its path, started through a link. Whatever it makes is the same to the bit as from the normal build.
# With ROOT, in that root instead, which debootstrap may have made; needs root rights then. See docs/bundle.md.
# usage: bundle.sh FALX [ROOT]
set -eu
falx=$(realpath "$1") build=$(realpath "$(dirname "$1")") tools=$(realpath "$(dirname "$0")")/../tools
for needed in "$build/falx-launch" dcm2niix dpkg; do
    command -v "$needed" >/dev/null || { echo "bundle: skipped, no $needed"; exit 77; }
done
export work place root user=
work=$(mktemp -d) root=$(realpath "${2:-$work}")
mkdir -p "$root"/{dev,proc,tmp}
[ -e "$root/dev/null" ] || touch "$root/dev/null"
place=$(mktemp -d "$root/tmp/falx.XXXXXX")
trap 'rm -rf "$work" "$place"' EXIT
mkdir "$place/a b:c" "$place/there"
chmod 755 "$work" "$place"
chmod 1777 "$root/tmp" "$place/there"
"$tools/bundle" "$build" "$work/bundle"

namespaces='--mount --pid --fork'
if [ "$(id -u)" = 0 ]; then user=--userspec=65534:65534; else namespaces="$namespaces --map-root-user"; fi
if unshare $namespaces --mount-proc="$root/proc" true 2>/dev/null; then
    at=${place#"$root"}
    inside() { # inside COMMAND...: there is nothing but the root
        unshare $namespaces --mount-proc="$root/proc" sh -ec 'mount --bind /dev/null "$root/dev/null"
            mount --bind "$work/bundle" "$place/a b:c" && mount -o remount,bind,ro "$place/a b:c"
            unset TMPDIR
            exec chroot $user "$root" "$@"' sh "$@"
    }
else
    [ $# = 1 ] || { echo 'bundle: namespaces are not permitted here'; exit 1; }
    echo 'namespaces are not permitted here: the bundle runs beside the libraries of this system'
    at=$place
    rmdir "$place/a b:c" && mv "$work/bundle" "$place/a b:c"
    inside() { "$@"; }
fi
ln -s "$at/a b:c/bin/falx" "$place/link"

work_through() { # work_through FOLDER COMMAND...: everything that needs a library or a helper
    local in=$1
    shift
    "$@" phantom "$in/set" --cases 4 --labeled 2 --test 2 --size 24 --quiet
    "$@" train --preset none "$in/set" -o "$in/run" --filters 2 --patch 16 --steps 4 --device cpu --quiet
    "$@" predict "$in/run" -i "$in/set/images" -o "$in/masks" --device cpu --quiet
    "$@" eval "$in/set/labels" "$in/masks" --csv "$in/scores.csv" --pictures "$in/pictures" --quiet
    "$@" report "$in/run" -o "$in/report.html" --quiet
    "$@" compare "$in/set" -o "$in/cmp" --methods supervised --filters 2 --patch 16 --steps 2 --device cpu --quiet
    "$@" phantom "$in/h5" --layout h5 --cases 1 --test 0 --size 24 --quiet
    "$@" convert "$in/h5/phantom_0001/mri_norm2.h5" "$in/from_h5.nii.gz" --quiet
    "$@" phantom "$in/ct" --layout pancreas --cases 1 --test 0 --size 24 --quiet
    "$@" convert "$in/ct/Pancreas-CT/PANCREAS_0001/series" "$in/from_dicom.nii.gz" --quiet
}

inside "$at/link" doctor | tee "$work/doctor"
for helper in falx-limit falx-hdf5 dcm2niix; do grep -q "$helper  *$at/a b:c/lib/$helper\$" "$work/doctor"; done
mkdir "$work/here"
work_through "$work/here" "$falx" >"$work/log"
work_through "$at/there" inside "$at/link" >"$work/log"
for made in masks pictures scores.csv cmp/results.md cmp/cases.csv cmp/pictures from_h5.nii.gz from_dicom.nii.gz run/model.safetensors; do
    diff -r "$work/here/$made" "$place/there/$made"
done
[ "$(find "$place/there/masks" -name '*.nii.gz' | wc -l)" -ge 4 ] && [ -s "$place/there/report.html" ]
inside "$at/a b:c/bin/falx" info "$at/nothing" >"$work/log" 2>&1 && exit 1
grep -q '^falx: error: ' "$work/log"
echo 'bundle: masks, scores, pictures, volumes and model the same as from the normal build'
