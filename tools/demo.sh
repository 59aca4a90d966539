#!/bin/sh
# From a fresh clone to an answer: installs what is missing, builds, fetches a small model, asks it a question.
#   tools/demo.sh [question]      MODEL=path/to/model.gguf uses another model
set -eu
cd "$(dirname "$0")/.."
question=${1:-"Why is the sky blue? Answer in two sentences."}

tools/install-deps.sh build demo

# CUDA is worth its build time where there is a GPU to run it.
[ -d /usr/local/cuda/bin ] && PATH="$PATH:/usr/local/cuda/bin"
cuda=OFF
if command -v nvcc >/dev/null 2>&1 && nvidia-smi -L >/dev/null 2>&1; then cuda=ON; fi
[ -f build/release/build.ninja ] || cmake --preset release -DLLS_CUDA=$cuda -DLLS_BUILD_TESTS=OFF
# One quiet line when there is nothing to do, ninja's own progress otherwise.
cmake --build --preset release --target llmspeed_cli

model=${MODEL:-$(tools/fetch-model.sh)}
echo
echo "$ llmspeed generate --chat -m $model -p \"$question\""
exec build/release/cli/llmspeed generate --chat -m "$model" -p "$question" -n 256
