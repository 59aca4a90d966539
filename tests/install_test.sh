#!/bin/sh
# Installs the build into a temporary prefix and uses it as a stranger would: install_test.sh BUILD_DIR SOURCE_DIR [MODEL.gguf]
# Examples by CMake and by pkg-config, the SONAME, the exported symbols, and the headers alone as C11 and as C++17.
set -eu
build=$1 source=$2 model=${3:-}
cc=${CC:-cc} cxx=${CXX:-c++}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
prefix=$scratch/prefix

fail() {
    echo "install_test: $*" >&2
    exit 1
}

cmake --install "$build" --prefix "$prefix" >"$scratch/install.log" || { cat "$scratch/install.log" >&2; fail "cmake --install failed"; }
pc=$(find "$prefix" -name llmspeed.pc)
libdir=$(dirname "$(dirname "$pc")")
library=$libdir/libllmspeed.so
[ -n "$pc" ] && [ -e "$library" ] || fail "llmspeed.pc or libllmspeed.so is not in the prefix"

# minimal.c is the program that llmspeed.h opens with, to the byte.
sed -n '/^ \*     #include/,/^ \*     }$/p' "$prefix/include/llmspeed/llmspeed.h" | sed -e 's/^ \*     //' -e 's/^ \*$//' >"$scratch/minimal.c"
cmp "$scratch/minimal.c" "$source/examples/minimal.c" || fail "examples/minimal.c is not the program in llmspeed.h"

# 1 / sqrt(mean(1, 4, 9, 16)) = 0.365148
check_examples() {
    got=$("$1/minimal")
    [ "$got" = 0.365148 ] || fail "$2: minimal printed \"$got\", must be 0.365148"
    if "$1/generate" "$scratch/none.gguf" hello 2>"$scratch/message"; then fail "$2: generate found a model that does not exist"; fi
    grep -q LLS_ERR_IO "$scratch/message" || fail "$2: generate said \"$(cat "$scratch/message")\", must name LLS_ERR_IO"
    [ -z "$model" ] || "$1/generate" "$model" "Hello" 4 || fail "$2: generate failed on $model"
    echo "$2: minimal and generate work"
}
cmake -S "$source/examples" -B "$scratch/cmake" -DCMAKE_PREFIX_PATH="$prefix" >"$scratch/log" 2>&1 || { cat "$scratch/log" >&2; fail "find_package failed"; }
cmake --build "$scratch/cmake" >"$scratch/log" 2>&1 || { cat "$scratch/log" >&2; fail "the CMake build failed"; }
check_examples "$scratch/cmake" CMake
mkdir "$scratch/make"
PKG_CONFIG_PATH=$libdir/pkgconfig make -C "$source/examples" BUILD="$scratch/make" >"$scratch/log" 2>&1 || { cat "$scratch/log" >&2; fail "the pkg-config build failed"; }
check_examples "$scratch/make" pkg-config

major=$(sed -n 's/^#define LLS_VERSION_MAJOR //p' "$prefix/include/llmspeed/version.h")
soname=$(objdump -p "$library" | sed -n 's/^ *SONAME *//p')
[ "$soname" = "libllmspeed.so.$major" ] || fail "SONAME is $soname, must be libllmspeed.so.$major"
foreign=$(nm -D --defined-only "$library" | awk '$3 !~ /^lls_[a-z]/ {print $3}')
[ -z "$foreign" ] || fail "exports more than lls_*: $foreign"
# Every function that the headers declare is there to link.
cat "$prefix"/include/llmspeed/*.h | sed -n 's/^LLS_API .*[ *]\(lls_[a-z0-9_]*\)(.*/\1/p' | sort >"$scratch/declared"
nm -D --defined-only "$library" | awk '{print $3}' | sort >"$scratch/exported"
missing=$(comm -23 "$scratch/declared" "$scratch/exported")
[ -s "$scratch/declared" ] && [ -z "$missing" ] || fail "declared but not exported: $missing"
echo "$soname exports $(wc -l <"$scratch/exported") functions, $(wc -l <"$scratch/declared") of them declared"

for header in "$prefix"/include/llmspeed/*.h; do
    name=llmspeed/$(basename "$header")
    for form in "$cc -x c -std=c11" "$cxx -x c++ -std=c++17"; do
        printf '#include <%s>\n#include <%s>\nextern int not_empty;\n' "$name" "$name" |
            $form -Wall -Wextra -Werror -pedantic -I"$prefix/include" -fsyntax-only - || fail "$name does not compile alone: $form"
    done
done
# The initialisers too, which are macros and so compile only where they are used.
sed -n 's/^#define \(LLS_[A-Z0-9_]*_INIT\) .*/\1/p' "$prefix"/include/llmspeed/*.h | sort -u | while read -r macro; do
    type=$(echo "$macro" | tr 'A-Z' 'a-z' | sed 's/_init$//')
    echo "static $type v_$type = $macro;"
    echo "size_t s_$type(void);"
    echo "size_t s_$type(void) { return v_$type.struct_size; }"
done >"$scratch/inits"
[ -s "$scratch/inits" ] || fail "found no _INIT macro"
for form in "$cc -x c -std=c11" "$cxx -x c++ -std=c++17 -Wno-missing-field-initializers"; do
    { echo '#include <llmspeed/llmspeed.h>'; cat "$scratch/inits"; } |
        $form -Wall -Wextra -Werror -pedantic -I"$prefix/include" -fsyntax-only - || fail "an _INIT macro does not compile: $form"
done
echo "headers: C11 and C++17"
