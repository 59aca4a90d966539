# The two commands: make demo, make test. The build itself is CMake's (cmake --preset release).
.PHONY: all demo test install-deps clean help

all: ## build the library and the command into build/release
	@test -f build/release/build.ninja || cmake --preset release
	@cmake --build --preset release

demo: ## from a fresh clone to an answer of a small model (MODEL=file.gguf, Q="a question")
	@MODEL="$(MODEL)" tools/demo.sh $(if $(Q),"$(Q)")

test: ## everything: unit, op, engine and command tests, sanitizers, fuzzers
	@tools/test.sh

install-deps: ## what the build, the demo and the tests need (Debian, Ubuntu)
	@tools/install-deps.sh build demo test

clean: ## remove build/
	rm -rf build

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1	/p' Makefile
