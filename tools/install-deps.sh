#!/bin/sh
# Installs what this machine lacks, on Debian and Ubuntu: tools/install-deps.sh [build] [demo] [test] [python]
# What is there already, in whatever way it came, is left alone.
set -eu

# group | package | how to see that it is there | what for
needs() {
    cat <<'END'
build|gcc|command -v gcc|the C compiler
build|libc6-dev|test -e /usr/include/stdio.h|the C library's headers
build|cmake|command -v cmake|configures the build
build|ninja-build|command -v ninja|runs the build
build|git|command -v git|names the commit in result files
build|libpcre2-dev|test -e /usr/include/pcre2.h|splits text before tokenisation
build|libutf8proc-dev|test -e /usr/include/utf8proc.h|Unicode normal forms
build|libjansson-dev|test -e /usr/include/jansson.h|JSON
demo|ca-certificates|test -s /etc/ssl/certs/ca-certificates.crt|secure download of the model
demo|python3|command -v python3|fetches the model with pip
demo|python3-venv|python3 -c 'import ensurepip'|a place of its own for that pip
test|pkg-config|command -v pkg-config|finds cmocka
test|libcmocka-dev|test -e /usr/include/cmocka.h|unit tests
test|python3-pytest|command -v pytest-3|tests of the command
test|mandoc|command -v mandoc|checks the man page
test|clang|command -v clang|libFuzzer
test|libclang-rt-dev|ls /usr/lib/llvm-*/lib/clang/*/lib/linux/libclang_rt.fuzzer-*|libFuzzer's run-time library
python|python3|command -v python3|the package's language
python|python3-venv|python3 -c 'import ensurepip'|an environment for the package and its tests
python|python3-dev|test -e "$(python3 -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h"|Python's headers
python|g++|command -v g++|the binding
test|g++|command -v g++|the C++ library that libFuzzer links
END
}

missing=""
for group in "${@:-build}"; do
    while IFS='|' read -r in_group package probe purpose; do
        [ "$in_group" = "$group" ] || continue
        sh -c "$probe" >/dev/null 2>&1 && continue
        echo "missing: $package ($purpose)"
        missing="$missing $package"
    done <<END
$(needs)
END
done
[ -n "$missing" ] || exit 0

if ! command -v apt-get >/dev/null 2>&1; then
    echo "No apt-get here: install the packages above, or what they are called on this system." >&2
    exit 1
fi
sudo=""
if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null 2>&1 || { echo "Not root and no sudo: ask for these packages:$missing" >&2; exit 1; }
    sudo="sudo"
fi
export DEBIAN_FRONTEND=noninteractive
$sudo apt-get update -q
# Where clang brings its run-time library along (Debian 12, Ubuntu 22.04), there is no such package.
case "$missing" in
*libclang-rt-dev*)
    apt-cache show libclang-rt-dev >/dev/null 2>&1 || missing=$(echo "$missing" | sed 's/libclang-rt-dev//')
    ;;
esac
# shellcheck disable=SC2086 # a list of words
$sudo apt-get install -q -y $missing
