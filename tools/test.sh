#!/bin/bash
# All tests: the release build, the sanitizer build, a minute of each fuzz target, the Python package. Ends with ctest's
# summary.
set -eu
cd "$(dirname "$0")/.."
jobs=$(nproc)
failed=""

step() { # name, command...
    local name=$1 start=$SECONDS
    shift
    echo "== $name"
    "$@" || { echo "== $name FAILED"; failed="$failed $name"; }
    echo "== $name: $((SECONDS - start)) s"
}

tools/install-deps.sh build demo test python

# Tests of a real model are skipped where it cannot be had.
if ! LLS_TEST_MODEL=${LLS_TEST_MODEL:-$(tools/fetch-model.sh)}; then
    echo "No model: the tests that need one are skipped."
    LLS_TEST_MODEL=""
fi
export LLS_TEST_MODEL

[ -d /usr/local/cuda/bin ] && PATH="$PATH:/usr/local/cuda/bin"
if command -v ccache >/dev/null 2>&1; then
    export CMAKE_C_COMPILER_LAUNCHER=ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache CMAKE_CUDA_COMPILER_LAUNCHER=ccache
fi

configure() { cmake --preset "$1" -DLLS_BUILD_TESTS=ON; }
build() { cmake --build --preset "$@"; }
run_tests() { # preset, ctest options...
    local preset=$1
    shift
    ctest --test-dir "build/$preset" --output-on-failure --no-tests=error "$@"
}
fuzzers() { for source in tests/fuzz/fuzz_*.c; do basename "$source" .c; done; }

step "configure release" configure release
step "build release" build release
step "configure asan" configure asan
step "build asan" build asan
step "configure fuzz" configure fuzz
# shellcheck disable=SC2046 # a list of targets
step "build fuzz" build fuzz --target $(fuzzers)

step "fuzz" run_tests fuzz -j "$jobs" -R '^fuzz_'
step "tests, asan" run_tests asan -j "$jobs"

step "install for Python" cmake --install build/release --prefix build/prefix
step "Python environment" tools/python-env.sh build/prefix
step "tests, Python" build/venv/bin/python -m pytest -q -p no:cacheprovider tests/python
step "Python wheel" tools/python-wheel-test.sh

# Last, so that ctest's summary ends the output.
echo "== tests, release"
run_tests release -j "$jobs" || failed="$failed release"
if [ -n "$failed" ]; then
    echo "FAILED:$failed"
    exit 1
fi
