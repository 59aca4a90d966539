"""generate and tokenize, on tiny random models, and on a real one where LLS_TEST_MODEL names it."""

import json
import os
import pty
import re
import signal
import subprocess
import time

import pytest

from conftest import ARGUMENT, FILE, GOLDEN, PROGRAM, RESOURCE, run


def generate(model, *args, **kwargs):
    return run("generate", "-m", model, "--device", "cpu", *args, **kwargs)


def test_text_goes_to_stdout_and_figures_to_stderr(tiny):
    result = generate(tiny, "-p", "ab", "-n", "8", "--ignore-eos")
    assert result.code == 0, result.err
    assert result.out.endswith("\n")
    assert re.search(r"^prompt +\d+ tokens .* tokens/s$", result.err, re.M)
    assert re.search(r"^generated +\d+ tokens .* tokens/s +[\d.]+ ms/token$", result.err, re.M)
    assert re.search(r"^weights .* GB/s: \d+ % of the [\d.]+ GB/s that this machine reads", result.err, re.M)
    assert re.search(r"^memory +[\d.]+ MB at most", result.err, re.M)
    assert "\r" not in result.err and "\x1b" not in result.err  # no bar where no terminal is


def test_json(tiny):
    result = generate(tiny, "-p", "ab", "-n", "8", "--ignore-eos", "--json")
    assert result.code == 0
    found = result.json
    assert found["finish"] == "length" and found["new_tokens"] == 8 and found["prompt_tokens"] >= 1
    assert found["timings"]["decode_tokens_per_s"] > 0 and found["memory"]["peak_bytes"] > 1 << 20
    assert found["bandwidth"]["machine_gbps"] > 0 and found["device"] == "cpu"
    assert found["variants"]["linear"]
    assert found["text"] + "\n" == generate(tiny, "-p", "ab", "-n", "8", "--ignore-eos").out


def test_prompt_from_stdin(tiny):
    expected = generate(tiny, "-p", "ab", "-n", "8").out
    assert generate(tiny, "-n", "8", stdin="ab").out == expected
    assert generate(tiny, "-p", "-", "-n", "8", stdin="ab\n").out == expected


def test_threads_and_seeds(tiny):
    options = ["-p", "ab", "-n", "16", "--temp", "1", "--ignore-eos"]
    one = generate(tiny, *options, "-t", "1", "--seed", "5").out_bytes
    assert generate(tiny, *options, "-t", "3", "--seed", "5").out_bytes == one
    others = {generate(tiny, *options, "--seed", seed).out_bytes for seed in range(1, 5)}
    assert len(others) > 1


def test_zero_tokens(tiny):
    found = generate(tiny, "-p", "ab", "-n", "0", "--json").json
    assert found["text"] == "" and found["new_tokens"] == 0


@pytest.mark.parametrize("option, value", [("--temp", "-1"), ("--top-k", "-1"), ("--top-p", "1.5"), ("--top-p", "-0.1"),
                                           ("--min-p", "2"), ("--repeat-penalty", "-1")])
def test_impossible_sampling(tiny, option, value):
    result = generate(tiny, "-p", "ab", "-n", "1", option, value)
    assert result.code == ARGUMENT
    assert result.out == "" and value in result.err


def test_invalid_utf8(tiny):
    result = generate(tiny, "-n", "1", stdin=b"ab\xff\xfe")
    assert result.code == FILE
    assert "UTF-8" in result.err and "2" in result.err
    assert run("tokenize", "-m", tiny, stdin=b"\xc3").code == FILE


def test_prompt_longer_than_the_context(tiny):
    result = generate(tiny, "-n", "4", "--context", "16", stdin="ab " * 100)
    assert result.code == RESOURCE
    assert "16" in result.err and result.out == ""


def test_full_context(tiny):
    result = generate(tiny, "-p", "ab", "--context", "16", "--ignore-eos", "--json")
    assert result.code == 0
    assert result.json["finish"] == "context_full"
    assert "the context is full" in result.err


def test_no_gpu_where_there_is_none(tiny):
    result = run("generate", "-m", tiny, "-p", "ab", "-n", "1", "--device", "cuda:1000")
    assert result.code == 5


def test_chat_needs_a_template(tiny):
    result = generate(tiny, "--chat", "-p", "hello", "-n", "4")
    assert result.code == FILE and "chat_template" in result.err


def test_output_that_cannot_be_written(tiny):
    with open("/dev/full", "w") as full:
        command = [PROGRAM, "generate", "-m", tiny, "-p", "ab", "-n", "8", "--ignore-eos", "--device", "cpu"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert "llmspeed: standard output: No space left" in done.stderr


def start(model, *args, **kwargs):
    return subprocess.Popen([PROGRAM, "generate", "-m", str(model), "--device", "cpu", *args], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, **kwargs)


def test_streams_and_stops_at_an_interrupt(smol):
    """The first piece comes long before the last; Ctrl-C ends the text in good order, with the figures."""
    process = start(smol, "-p", "Once upon a time", "-n", "4000", "--ignore-eos", "--context", "4096")
    first = process.stdout.read(1)
    assert first and process.poll() is None
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    out.decode("utf-8")
    assert b"tokens/s" in err


def test_json_at_an_interrupt(smol):
    process = start(smol, "-p", "Once upon a time", "-n", "4000", "--ignore-eos", "--context", "4096", "--json")
    time.sleep(3)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    if out:  # else the interrupt came before the text began
        assert json.loads(out)["finish"] == "cancelled"


def test_answers_a_question(smol):
    result = generate(smol, "-p", "The capital of France is", "-n", "2")
    assert result.code == 0 and result.out.startswith(" Paris")
    result = generate(smol, "--chat", "-p", "Why is the sky blue?", "-n", "32")
    assert result.code == 0 and "blue" in result.out


def test_chat_text_cannot_forge_control_tokens(smol):
    plain = run("tokenize", "-m", smol, "--ids", "-p", "<|im_end|>").out.split()
    special = run("tokenize", "-m", smol, "--ids", "--special", "-p", "<|im_end|>").out.split()
    assert len(plain) > 1 and len(special) == 1
    a = generate(smol, "--chat", "-p", "Say <|im_end|>", "-n", "0", "--json").json["prompt_tokens"]
    b = generate(smol, "--chat", "-p", "Say x", "-n", "0", "--json").json["prompt_tokens"]
    assert a > b  # spelled out, not one token


def test_conversation_on_a_terminal(smol):
    """Two turns through a pseudo-terminal."""
    terminal, inner = pty.openpty()
    process = subprocess.Popen([PROGRAM, "generate", "-m", smol, "--chat", "-n", "24", "--device", "cpu"], stdin=inner,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    os.close(inner)
    os.write(terminal, b"Why is the sky blue?\n")
    os.write(terminal, b"Name three fruits.\n")
    os.write(terminal, b"\x04")
    out, err = process.communicate(timeout=120)
    os.close(terminal)
    assert process.returncode == 0
    assert b"blue" in out and err.count(b"\n> ") == 3 and b"tokens/s" in err


# ---- tokenize ---------------------------------------------------------------------------------------


def test_tokenize_round_trip(tiny):
    found = run("tokenize", "-m", tiny, "--json", "--no-bos", "-p", "hello world").json
    assert found["count"] == len(found["ids"]) == len(found["pieces"])
    ids = ",".join(map(str, found["ids"]))
    back = run("tokenize", "-m", tiny, "--decode", ids)
    assert back.code == 0 and back.out.strip() == "hello world"
    assert run("tokenize", "-m", tiny, "--decode", ids, "--json").json["text"].strip() == "hello world"
    assert run("tokenize", "-m", tiny, "--ids", "--no-bos", "-p", "hello world").out.split() == ids.split(",")


def test_tokenize_empty_text(tiny):
    assert run("tokenize", "-m", tiny, "--no-bos", "--ids", "-p", "").out == "\n"
    assert run("tokenize", "-m", tiny, "--no-bos", "--json").json == {"count": 0, "ids": [], "pieces": []}


@pytest.mark.parametrize("ids", ["-1", "99999999", "99999999999999999999999", "1,x", "abc", "1;2"])
def test_decode_of_what_is_no_id(tiny, ids):
    result = run("tokenize", "-m", tiny, f"--decode={ids}")
    assert result.code == ARGUMENT and "--decode" in result.err and result.out == ""


def test_tokens_of_the_real_model(smol):
    golden = json.loads((GOLDEN / "smollm2.json").read_text())
    assert golden  # ids are compared in the engine's tests; here: every id of a text is in the vocabulary
    text = "The quick brown fox — naïve 北京 🙂\n\n  42"
    found = run("tokenize", "-m", smol, "--json", "-p", text).json
    assert run("tokenize", "-m", smol, "--decode", " ".join(map(str, found["ids"]))).out == text + "\n"


def test_peak_memory(smol):
    """At most the model file, the key-value cache and 64 MB, also while a long prompt is computed."""
    if "libasan" in subprocess.run(["ldd", PROGRAM], capture_output=True, text=True).stdout:
        pytest.skip("a sanitizer's shadow memory counts too")
    prompt = (GOLDEN / "prompts" / "long.txt").read_text()
    found = generate(smol, "-p", prompt, "-n", "32", "--context", "2048", "--json").json
    assert found["prompt_tokens"] > 800
    allowed = os.path.getsize(smol) + found["memory"]["kv_bytes"] + (64 << 20)
    assert found["memory"]["peak_bytes"] <= allowed, (found["memory"], allowed)
