#!/bin/bash
# A Python environment in build/venv with the package, linked to an installed library, and all that its tests need.
#   tools/python-env.sh PREFIX        (cmake --install build/release --prefix PREFIX)
# What is there already is kept. torch comes with its CUDA libraries: some 6 GB, two minutes.
set -eu
prefix=$(realpath "${1:?usage: python-env.sh PREFIX}")
cd "$(dirname "$0")/.."
venv=build/venv

[ -x $venv/bin/python ] || python3 -m venv $venv
$venv/bin/python -m pip install -q --disable-pip-version-check scikit-build-core pybind11 build -r tests/python/requirements.txt
# Without build isolation: the build's own tools are in the environment, and its folder is used again the next time.
$venv/bin/python -m pip install -q --disable-pip-version-check --no-build-isolation --no-deps --force-reinstall \
    -C "cmake.define.LLM_SPEED_PREFIX=$prefix" -C build-dir=build/python .
