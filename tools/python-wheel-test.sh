#!/bin/bash
# The package as a stranger gets it: a source archive, a wheel from that alone, installed where there is no framework.
#   tools/python-wheel-test.sh      after tools/python-env.sh, whose environment has the build tools
set -eu
cd "$(dirname "$0")/.."
root=$PWD
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

"$root/build/venv/bin/python" -m build --no-isolation --outdir "$scratch/dist" . >"$scratch/log" 2>&1 || { tail -n 40 "$scratch/log"; exit 1; }
ls -l "$scratch"/dist
[ "$(stat -c %s "$scratch"/dist/*.tar.gz)" -lt 1000000 ] || { echo "the source archive holds more than sources"; exit 1; }
python3 -m venv "$scratch/venv"
"$scratch/venv/bin/python" -m pip install -q --disable-pip-version-check "$scratch"/dist/*.whl
cd "$scratch" # so that the installed package is found, not this tree's
"$scratch/venv/bin/python" - "$root" <<'PY'
import sys, numpy, llm_speed
assert not llm_speed.__file__.startswith(sys.argv[1]), llm_speed.__file__
x = numpy.arange(1, 9, dtype=numpy.float32).reshape(2, 4)
want = x / numpy.sqrt((x * x).mean(-1, keepdims=True) + 1e-6)
numpy.testing.assert_allclose(llm_speed.rmsnorm(x), want, rtol=1e-6)
print("wheel:", llm_speed.__version__, llm_speed._C.build_info())
PY
