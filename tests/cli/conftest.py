"""Runs the llmspeed command as a user would. LLMSPEED names the program; LLS_TEST_MODEL a real model, or nothing."""

import json
import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden"
PROGRAM = os.environ.get("LLMSPEED", str(ROOT / "build" / "release" / "cli" / "llmspeed"))

USAGE, ARGUMENT, RESOURCE, FILE = 2, 3, 6, 7


class Result:
    def __init__(self, done):
        self.code = done.returncode
        self.out_bytes = done.stdout
        self.out = done.stdout.decode("utf-8")  # strictly: output is valid UTF-8
        self.err = done.stderr.decode("utf-8")

    @property
    def json(self):
        return json.loads(self.out)


def run(*args, stdin=b"", env=None, timeout=300):
    """The command's result. It never dies of a signal, and says "llmspeed" first when it fails."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("LLS_")}
    environment.update(env or {})
    if isinstance(stdin, str):
        stdin = stdin.encode()
    command = [PROGRAM, *map(str, args)]
    done = subprocess.run(command, input=stdin, capture_output=True, timeout=timeout, env=environment)
    assert done.returncode >= 0, f"died of signal {-done.returncode}: {done.stderr.decode(errors='replace')}"
    result = Result(done)
    assert "Sanitizer" not in result.err and "runtime error" not in result.err, result.err
    if result.code:
        assert result.err.startswith(("llmspeed", "Usage: llmspeed")), result.err
    return result


@pytest.fixture
def tiny():
    return GOLDEN / "tiny_llama.gguf"


@pytest.fixture
def smol():
    model = os.environ.get("LLS_TEST_MODEL", "")
    if not model:
        pytest.skip("LLS_TEST_MODEL is not set: tools/fetch-model.sh prints the path of a model")
    return model
