#!/bin/sh
# Compares `falx eval` with SciPy on more than 200 random and adversarial pairs of masks.
# usage: oracle_metrics.sh FALX        PYTHON names the interpreter (default: one that has SciPy)
set -eu
falx=$1
here=$(dirname "$0")
for python in "${PYTHON:-}" python3 /usr/bin/python3; do
    if [ -n "$python" ] && "$python" -c 'import numpy, scipy.ndimage' 2>/dev/null; then
        exec "$python" "$here/../tools/metrics_oracle.py" "$falx"
    fi
done
echo "oracle_metrics: skipped, no Python with SciPy"
exit 77
