"""The command itself: verbs, help, version, usage errors, the man page."""

import re
import shutil
import subprocess

import pytest

from conftest import ROOT, USAGE, run

VERBS = [("generate",), ("bench",), ("bench", "op"), ("bench", "model"), ("ladder",), ("info",), ("inspect",), ("tokenize",)]


def test_help_lists_the_verbs():
    result = run("--help")
    assert result.code == 0
    for verb in ("generate", "bench", "ladder", "info", "inspect", "tokenize"):
        assert re.search(rf"^  {verb} ", result.out, re.M)


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_each_verb_explains_itself_with_examples(verb):
    result = run(*verb, "--help")
    assert result.code == 0
    assert result.out.startswith("Usage: llmspeed " + " ".join(verb))
    assert "Examples:\n  llmspeed " in result.out


def test_version():
    header = (ROOT / "include" / "llmspeed" / "version.h").read_text()
    version = re.search(r'LLS_VERSION_STRING "(.*)"', header)[1]
    for args in (["--version"], ["-V"], ["generate", "--version"]):
        result = run(*args)
        assert result.code == 0 and result.out.startswith(f"llmspeed {version} ")


@pytest.mark.parametrize("args, message", [
    ([], "Usage: llmspeed"),
    (["sing"], 'verb is "sing", must be one of: generate bench ladder tune info inspect tokenize'),
    (["bench", "all"], 'verb is "all", must be one of: op model'),
    (["bench"], "Usage: llmspeed bench"),
    (["--colour"], "unrecognized option"),
    (["generate", "-p", "x"], "no model: give one with -m FILE"),
    (["generate", "-m"], "option requires an argument"),
    (["generate", "-m", "f", "x"], 'unexpected argument "x"'),
    (["generate", "-m", "f", "--temp", "hot"], '--temp is "hot", must be a finite number'),
    (["generate", "-m", "f", "--temp", "nan"], '--temp is "nan"'),
    (["generate", "-m", "f", "-n", "ten"], '-n is "ten", must be an integer from -1'),
    (["generate", "-m", "f", "-n", "-2"], '-n is "-2"'),
    (["generate", "-m", "f", "-n", "99999999999999999999"], "must be an integer"),
    (["generate", "-m", "f", "-t", "-1"], '-t is "-1"'),
    (["generate", "-m", "f", "--context", "0"], '--context is "0"'),
    (["generate", "-m", "f", "--device", "tpu"], '--device is "tpu", must be auto, cpu, cuda or cuda:N'),
    (["generate", "-m", "f", "--device", "cuda:x"], 'is "x"'),
    (["generate", "-m", "f", "--kv-dtype", "q4_0"], '--kv-dtype is "q4_0", must be f16, bf16 or f32'),
    (["generate", "-m", "f", "--system", "x"], "--system needs --chat"),
    (["generate", "-m", "f", "--chat", "--raw-special"], "--raw-special does not go with --chat"),
    (["tokenize", "-p", "x"], "no model"),
    (["tokenize", "-m", "f", "-p", "x", "--decode", "1"], "must be one of them"),
    (["inspect"], "no file given"),
    (["inspect", "a", "b"], 'a second file "b"'),
    (["ladder"], "no op given"),
    (["ladder", "gemm", "rope"], 'a second op "rope"'),
    (["info", "x"], 'unexpected argument "x"'),
    (["bench", "op", "--seconds", "0"], '--seconds is "0", must be above 0'),
    (["bench", "op", "--sustained", "-1"], '--sustained is "-1", must be above 0'),
    (["bench", "model", "-m", "f", "-r", "0"], '-r is "0"'),
    (["bench", "model", "-m", "f", "-p", "0", "-n", "0"], "nothing to measure"),
], ids=lambda value: " ".join(value) if isinstance(value, list) else "")
def test_usage_errors(args, message):
    result = run(*args)
    assert result.code == USAGE
    assert message in result.err
    assert result.out == ""


def test_output_that_cannot_be_written():
    with open("/dev/full", "w") as full:
        done = subprocess.run([run.__globals__["PROGRAM"], "info"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("llmspeed: standard output: ")


def test_info():
    result = run("info")
    assert result.code == 0
    assert result.out.startswith("llmspeed ")
    info = run("info", "--json").json
    assert info["cpu"]["cores"] >= 1 and info["cpu"]["level"] in ("portable", "avx2", "avx512")
    rows = info["variants"]
    assert {"embed", "rmsnorm", "rope", "linear", "attn_decode", "sample"} <= {row["op"] for row in rows}
    for op in {row["op"] for row in rows}:
        of_op = [row for row in rows if row["op"] == op]
        assert of_op[-1]["variant"] == "ref" and of_op[-1]["unavailable"] is None
        for row in of_op:
            assert f"{row['variant']} " in result.out
            assert row["device"] in ("cpu", "cuda") and row["dtypes"]


def test_info_says_why_a_row_cannot_run():
    rows = run("info", "--json", env={"LLS_CPU_LEVEL": "portable"}).json["variants"]
    better = [row for row in rows if row["variant"] in ("cpu_avx2", "cpu_avx512")]
    for row in better:
        assert "this machine has portable" in row["unavailable"]


def man_lint(*command):
    if not shutil.which(command[0]):
        pytest.skip(f"{command[0]} is not installed")
    return subprocess.run(command, capture_output=True, text=True)


def test_man_page_is_clean():
    page = str(ROOT / "docs" / "llmspeed.1")
    lint = man_lint("mandoc", "-T", "lint", "-W", "warning", page)
    assert lint.returncode == 0 and lint.stdout == "" and lint.stderr == ""


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_man_page_names_every_option(verb):
    page = (ROOT / "docs" / "llmspeed.1").read_text()
    options = set(re.findall(r"--([a-z][a-z0-9-]+)", run(*verb, "--help").out)) - {"help", "usage", "version"}
    known = set(re.findall(r"-([a-z][a-z0-9-]+)", page))
    aliases = {"new-tokens", "prompt-tokens", "rounds"}  # the page has their letters
    assert options - known - aliases == set()
