#!/usr/bin/env bash
# Builds a folder of test programs that runs on any machine with an NVIDIA driver: no CMake, no libraries, no checkout there.
#   tests/gpu/bundle.sh [folder]     (default build/gpu-bundle)
# Copy the folder to the GPU machine and call its run.sh, and bench.sh for the timings. With a checkout there, tests/gpu/run_python.sh <folder>/prefix
# tests the Python package against the library in it.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
out=${1:-$root/build/gpu-bundle}
build=$root/build/gpu

cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DLLS_CUDA=ON -DLLS_STATIC_DEPS=ON -DLLS_BUILD_TOOLS=ON -DLLS_BUILD_TESTS=ON ${LLS_CUDA_ARCHS:+-DLLS_CUDA_ARCHS=$LLS_CUDA_ARCHS} >/dev/null
cmake --build "$build" --target llmspeed op_test engine_test load_test golden_test stream_test llmspeed_cli
rm -rf "$out"
mkdir -p "$out/golden"
for program in tests/op_test tests/engine_test tests/load_test tests/golden_test tests/stream_test cli/llmspeed; do
  strip -o "$out/$(basename "$program")" "$build/$program"
done
cp "$root"/tests/golden/*.{json,gguf,f32} "$out/golden/"
cp "$root"/tests/gpu/{run,bench}.sh "$out/"
cmake --install "$build" --prefix "$out/prefix" --strip >/dev/null
du -sh "$out"
